#!/usr/bin/env python3
"""eval_ppl: what a format of weights, or a type of KV, costs in quality, against the checkpoint's own bf16.

    python3 tools/eval_ppl.py [--build build/release] [--model models/pebble] [--texts 60] [--formats int8,w8a8,...]
    python3 tools/eval_ppl.py --random [--build ...]        # a model of random weights: only how far logits move

Pebble: texts that its training never drew (another seed of pebble_data.py). Perplexity over them, in tokens; how often the most likely
id is bf16's (greedy agreement, position by position on the same text); mean KL divergence from bf16's distribution, in nats.
--random: the shape tiny of make_random_model.py, random ids, the same columns without perplexity.
The format nvfp4 is a checkpoint of its own, made of this one by write_nvfp4.py.
The format fp8-prefill is fp8 with activations in fp8 too, on a GPU (--device cuda, or a build for the emulator) and for texts of 129 ids and more: --length.
A format kv-NAME is a type of KV (kv-bfloat16, kv-fp8) with the checkpoint's own weights; every other row has KV in float32.
Everything goes through tools/logits, which runs the server's own engine code. Needs numpy.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

from write_nvfp4 import write_nvfp4

HERE = os.path.dirname(os.path.abspath(__file__))
FORMATS = ["auto", "int8", "int8-g128", "w8a8", "fp8", "int4-g128", "int4", "int4-all", "w4a8", "nvfp4", "kv-bfloat16", "kv-fp8"]
ROWS_MAX = 512


def held_out_ids(build, folder, n, length):
    """n documents of a seed that training did not use, as ids; plain texts and conversations in turn. length: as many of them as make so many ids."""
    sys.path.insert(0, os.path.join(HERE, "pebble"))
    from pebble_data import Gen
    gen, out, more = Gen(987654321), [], []
    while len(out) < n:
        d = gen.doc()
        text = d["text"] if "text" in d else "\n".join(str(m.get("content") or "") for m in d["messages"])
        if len(text) < 40:
            continue
        p = subprocess.run([os.path.join(build, "tools/tokenize"), "--plain", folder, text], capture_output=True, text=True, check=True)
        more += [int(w) for w in p.stdout.split()]
        if len(more) < length:
            continue
        if len(more) > 8:
            out.append(more[: length or ROWS_MAX])
        more = []
    return out


def logits(build, folder, ids, extra):
    text = "\n".join(" ".join(map(str, i)) for i in ids) + "\n"
    p = subprocess.run([os.path.join(build, "tools/logits"), "--model", folder] + extra, input=text.encode(), capture_output=True)
    if p.returncode:
        sys.exit("logits %s: %s" % (" ".join(extra), p.stderr.decode().strip()))
    a = np.frombuffer(p.stdout, np.float32)
    return a.reshape(sum(map(len, ids)), -1)


def log_softmax(a):
    a = a.astype(np.float64)
    a -= a.max(1, keepdims=True)
    return a - np.log(np.exp(a).sum(1, keepdims=True))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default="build/release")
    ap.add_argument("--model", default=os.path.join(HERE, "../models/pebble"))
    ap.add_argument("--random", action="store_true")
    ap.add_argument("--texts", type=int, default=60)
    ap.add_argument("--formats", default=",".join(FORMATS))
    ap.add_argument("--cpu-isa", default="auto")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--length", type=int, default=0)
    a = ap.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        if a.random:
            a.model = os.path.join(tmp, "tiny")
            subprocess.run([sys.executable, os.path.join(HERE, "make_random_model.py"), "--shape", "tiny", "--out", a.model], check=True,
                           stdout=subprocess.DEVNULL)
            rng = np.random.default_rng(1)
            ids = [[int(x) for x in rng.integers(0, 2000, 128)] for _ in range(a.texts)]
        else:
            ids = held_out_ids(a.build, a.model, a.texts, min(a.length, ROWS_MAX))
        where = ["--cpu-isa", a.cpu_isa, "--device", a.device]
        base = log_softmax(logits(a.build, a.model, ids, where))
        # rows whose next id is known: all but the last of each text
        rows, nexts, at = [], [], 0
        for i in ids:
            rows += range(at, at + len(i) - 1)
            nexts += i[1:]
            at += len(i)
        print("%d texts, %d tokens" % (len(ids), at))
        print("%-12s %10s %12s %12s %12s" % ("format", "perplexity", "agreement", "KL mean", "KL p99"))
        for f in a.formats.split(","):
            folder, option = a.model, ["--quantization", f]
            if f.startswith("kv-"):
                option = ["--kv-cache-dtype", f[3:]]
            elif f == "fp8-prefill":
                option = ["--quantization", "fp8", "--fp8-prefill", "true"]
            elif f == "nvfp4":
                folder, option = os.path.join(tmp, f), []
                write_nvfp4(a.model, folder)
            lp = log_softmax(logits(a.build, folder, ids, where + option))
            kl = (np.exp(base) * (base - lp)).sum(1)
            ppl = float(np.exp(-lp[rows, nexts].mean())) if not a.random else float("nan")
            print("%-12s %10.4f %11.2f%% %12.6f %12.6f" % ("bf16" if f == "auto" else f, ppl, 100 * float((lp.argmax(1) == base.argmax(1)).mean()),
                                                         float(kl.mean()), float(np.percentile(kl, 99))))


if __name__ == "__main__":
    main()
