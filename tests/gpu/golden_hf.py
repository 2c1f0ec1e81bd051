#!/usr/bin/env python3
"""Greedy tokens of the server against transformers, for a random bf16 model of every family, larger than the checkpoints in the tree.

    golden_hf.py --spillway bin/spillway [--device cuda] [--tiny] [--args "more options"] [family ...]

transformers computes in float32 with the same weights, on the GPU (with --tiny on the cpu, small shapes), so that the roundings are ours
alone. Both continue the same prompts; where they differ it counts how far our token lies below the best by transformers' own logits: under
0.5 nat it is a near-tie, which rounding decides, and the comparison goes on behind it; over that, or with more than one token in ten a
near-tie, it is an error. One line per family; exit 1 on an error, 77 without torch and transformers."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

os.environ.setdefault("TQDM_DISABLE", "1")
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools", "golden"))
try:
    import torch
    import make_golden as mg
except ImportError as e:
    print("no torch and transformers for this python: %s" % e)
    sys.exit(77)

NEAR = 0.5  # nat
NEAR_SHARE = 0.1  # of all tokens
PORT = 18431
# Routers as sure of themselves as trained ones, and experts that add less to the stream: else a rounding that lets the last expert chosen and
# the first one left out change places moves the logits by nats, in transformers' own bf16 too (25 of 300 tokens of the mixtral below
# were then 0.5 nat and more off its float32; with these none, the widest 0.09). Powers of two: nothing is rounded.
ROUTER, EXPERTS = 8.0, 0.25
MEDIUM = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4, head_dim=64,
              max_position_embeddings=2048)
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             max_position_embeddings=512)
# family: what differs from the shape above
FAMILIES = {
    "llama3": dict(rope_parameters=mg.LLAMA3),
    "llama-bias": dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "mistral": dict(sliding_window=64),
    "qwen2": dict(use_sliding_window=False, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3": dict(),
    "mixtral": dict(num_local_experts=8, num_experts_per_tok=2),
    "qwen3-moe": dict(num_experts=16, num_experts_per_tok=4, norm_topk_prob=True, decoder_sparse_step=1),
}


def build(name, tiny, folder):
    config_class, model_class = mg.MODELS[name][:2]
    with open(os.path.join(ROOT, "models", "pebble", "config.json")) as f:
        vocab = json.load(f)["vocab_size"]
    c = dict(SMALL if tiny else MEDIUM, vocab_size=vocab, bos_token_id=1, eos_token_id=2, pad_token_id=None)
    c.update(FAMILIES[name])
    if name == "qwen3":
        c["head_dim"] = 32 if tiny else 128
    if "moe" in name:
        c["moe_intermediate_size"] = 32 if tiny else 512
    if name == "mixtral":
        c["intermediate_size"] = 48 if tiny else 1024
    if name == "qwen2":
        c.pop("head_dim")
    config = config_class(**c)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    mg.fill(model, 11, torch.bfloat16)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if key.endswith(".gate.weight"):
                value *= ROUTER
            elif "experts" in key and "down" in key:
                value *= EXPERTS
    mg.save(model, folder, torch.bfloat16, False, 1)
    for f in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(os.path.join(ROOT, "models", "pebble", f), folder)
    return model  # of float32, every weight as it was saved; never cast as a whole, for that rounds RoPE's frequencies too


def post(path, body, timeout=120):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (PORT, path), json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return json.load(reply)


def start(spillway, device, folder, log, args):
    p = subprocess.Popen([spillway, "--model", folder, "--device", device, "--port", str(PORT), *args], stdout=log, stderr=log)
    end = time.time() + 120
    while time.time() < end and p.poll() is None:
        try:
            urllib.request.urlopen("http://127.0.0.1:%d/ready" % PORT, timeout=2)
            return p
        except OSError:
            time.sleep(0.1)
    p.kill()
    p.wait()
    return None


def ours(ids, n):
    r = post("/v1/completions", {"prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True, "return_token_ids": True})
    return r["choices"][0]["token_ids"]


def theirs(model, ids, n):
    """Greedy ids and, for each, how far below it every token lies, in nats."""
    x = torch.tensor([ids], device=model.device)
    past, out, below = None, [], []
    with torch.no_grad():
        for _ in range(n):
            r = model(x if past is None else x[:, -1:], past_key_values=past, use_cache=True)
            past = r.past_key_values
            logits = r.logits[0, -1].float().cpu()
            out.append(int(logits.argmax()))
            below.append((logits[out[-1]] - logits).tolist())
            x = torch.cat([x, torch.tensor([[out[-1]]], device=model.device)], 1)
    return out, below


def compare(model, prompts, n):
    same = near = wrong = 0
    worst = 0.0
    for ids in prompts:
        want, below = theirs(model, ids, n)
        at = 0
        while at < n:
            got = ours(ids + want[:at], n - at)
            k = next((i for i, (a, b) in enumerate(zip(got, want[at:])) if a != b), n - at)
            same += k
            at += k
            if at == n:
                break
            gap = below[at][got[k]]
            worst = max(worst, gap)
            if gap < NEAR:
                near += 1
            else:
                wrong += 1
            at += 1
    return same, near, wrong, worst


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--spillway", required=True)
    ap.add_argument("--device", default="cuda")
    ap.add_argument("--tiny", action="store_true")
    ap.add_argument("--args", default="", help="for the server, as --dtype float32 --kv-cache-dtype float32: then nothing is rounded")
    ap.add_argument("family", nargs="*")
    a = ap.parse_args()
    n, lengths = (12, (5, 40)) if a.tiny else (64, (5, 80, 700))
    bad = 0
    torch.manual_seed(1)
    for name in a.family or FAMILIES:
        folder = tempfile.mkdtemp(prefix="spillway-golden-")
        log = open(os.path.join(folder, "server.log"), "w+")
        p = None
        try:
            model = build(name, a.tiny, folder)
            if not a.tiny and torch.cuda.is_available():
                model = model.cuda()
            g = torch.Generator().manual_seed(5)
            prompts = [torch.randint(3, model.config.vocab_size, (k,), generator=g).tolist() for k in lengths]
            p = start(a.spillway, a.device, folder, log, a.args.split())
            if not p:
                log.seek(0)
                print("%-12s FAIL the server did not start: %s" % (name, log.read().strip().splitlines()[-1:]))
                bad += 1
                continue
            same, near, wrong, worst = compare(model, prompts, n)
            fails = wrong > 0 or near > NEAR_SHARE * n * len(lengths)
            print("%-12s %s %d of %d tokens equal, %d near-ties, %d wrong, widest gap of a difference %.3f nat"
                  % (name, "FAIL" if fails else "ok  ", same, n * len(lengths), near, wrong, worst), flush=True)
            bad += fails
        finally:
            if p:
                p.send_signal(signal.SIGTERM)
                p.wait(30)
            log.close()
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if bad else 0


sys.exit(main())
