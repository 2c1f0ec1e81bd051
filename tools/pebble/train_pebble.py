#!/usr/bin/env python3
"""train_pebble: make models/pebble, the embedded default model, on two CPU cores in about an hour.

    python3 tools/pebble/train_pebble.py prepare                 # tokenizer and configs (and random weights to try the folder with)
    python3 tools/pebble/train_pebble.py train --minutes 66      # learn; checkpoints in --work, the folder is written at the end
    python3 tools/pebble/train_pebble.py export                  # write the newest checkpoint into the folder
    python3 tools/pebble/train_pebble.py verify                  # own logits against transformers

The model is Qwen3ForCausalLM with 4.7 M parameters. Its text is drawn afresh from pebble_data.Gen(seed). The matrices
learn with Muon (Jordan 2024: momentum, then a Newton-Schulz orthogonalisation), the embedding and the norms with AdamW. The rate
warms up, stays, and falls linearly to zero over the last half; --minutes measures progress in time, --steps in steps.
Rows hold whole documents, masked from each other; loss is on what the assistant says and on plain text.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

import jinja2
import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from pebble_data import Gen  # noqa: E402

FOLDER = os.path.join(HERE, "..", "..", "models", "pebble")
N_VOCAB, DIM, N_LAYER, N_HEAD, N_KV, HEAD_DIM, FFN, N_CTX, THETA, EPS = 3072, 256, 5, 4, 2, 64, 768, 2048, 10000.0, 1e-6
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EOT, IM_START, IM_END = 0, 1, 2


# ---------------------------------------------------------------------------------------------- text to rows
class Text:
    """Documents as ids, with a mask of the ids that the model has to say itself."""

    def __init__(self, folder):
        env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
        with open(os.path.join(folder, "chat_template.jinja")) as f:
            self.template = env.from_string(f.read())
        path = os.path.join(folder, "tokenizer.json")
        self.tok = Tokenizer.from_file(path) if os.path.exists(path) else None
        if self.tok:
            self.head = self.tok.encode("<|im_start|>assistant\n").ids

    def render(self, doc):
        return doc["text"] + "<|endoftext|>" if "text" in doc else self.template.render(messages=doc["messages"], tools=doc.get("tools"), add_generation_prompt=False)

    def ids(self, doc):
        ids = self.tok.encode(self.render(doc)).ids
        if "text" in doc:
            return ids, [1] * len(ids)
        say, i, n = [0] * len(ids), 0, len(self.head)
        while i < len(ids):
            if ids[i] == IM_START and ids[i:i + n] == self.head:
                i += n
                while ids[i] != IM_END:
                    say[i] = 1
                    i += 1
                say[i] = 1
            i += 1
        return ids, say


class Rows:
    """Batches [n_row, n_col + 1] of whole documents: ids, the document number of each id, and what counts for the loss."""

    def __init__(self, text, seed):
        self.text, self.gen, self.pool = text, Gen(seed), {False: [], True: []}

    def batch(self, n_row, n_col, long=False):
        ids = np.zeros((n_row, n_col + 1), np.int64)
        num = np.full((n_row, n_col + 1), -1, np.int64)
        say = np.zeros((n_row, n_col + 1), bool)
        pool = self.pool[long]
        for r in range(n_row):
            at, k = 0, 0
            while at < n_col:
                while len(pool) < (4 if long else 48):
                    pool.append(self.text.ids(self.gen.doc(long)))
                room = n_col + 1 - at
                pick = next((i for i, d in enumerate(pool) if len(d[0]) <= room), None)
                d = pool.pop(0 if pick is None else pick)
                n = min(room, len(d[0]))
                ids[r, at:at + n], say[r, at:at + n], num[r, at:at + n] = d[0][:n], d[1][:n], k
                at, k = at + n, k + 1
        same = num[:, 1:] == num[:, :-1]
        x, y = torch.from_numpy(ids[:, :-1]), torch.from_numpy(ids[:, 1:])
        d = torch.from_numpy(num[:, :-1])
        mask = (d[:, :, None] == d[:, None, :]) & torch.ones(n_col, n_col, dtype=torch.bool).tril()
        want = torch.from_numpy(say[:, 1:] & same).flatten().nonzero().flatten()
        # A fixed number of rows goes through the head, so that shapes never change.
        n_want = n_row * n_col * 5 // 8
        target = torch.full((n_want,), -100)
        where = torch.zeros(n_want, dtype=torch.int64)
        n = min(n_want, len(want))
        want = want[torch.randperm(len(want))[:n]] if len(want) > n_want else want
        where[:n] = want
        target[:n] = y.flatten()[want]
        return x, mask[:, None], where, target


# ---------------------------------------------------------------------------------------------- the model: Qwen3, plainly
class RMSNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        f = x.float()
        return (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + EPS) * self.weight).to(x.dtype)


def rope(x, cos, sin):
    h = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., h:], x[..., :h]), -1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        self.self_attn = nn.ModuleDict({"q_proj": lin(DIM, N_HEAD * HEAD_DIM), "k_proj": lin(DIM, N_KV * HEAD_DIM), "v_proj": lin(DIM, N_KV * HEAD_DIM),
                                        "o_proj": lin(N_HEAD * HEAD_DIM, DIM), "q_norm": RMSNorm(HEAD_DIM), "k_norm": RMSNorm(HEAD_DIM)})
        self.mlp = nn.ModuleDict({"gate_proj": lin(DIM, FFN), "up_proj": lin(DIM, FFN), "down_proj": lin(FFN, DIM)})
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(DIM), RMSNorm(DIM)

    def forward(self, x, cos, sin, mask):
        b, t, _ = x.shape
        at, h = self.self_attn, self.input_layernorm(x)
        q = rope(at["q_norm"](at["q_proj"](h).view(b, t, N_HEAD, HEAD_DIM)).transpose(1, 2), cos, sin)
        k = rope(at["k_norm"](at["k_proj"](h).view(b, t, N_KV, HEAD_DIM)).transpose(1, 2), cos, sin)
        v = at["v_proj"](h).view(b, t, N_KV, HEAD_DIM).transpose(1, 2)
        k, v = (z.repeat_interleave(N_HEAD // N_KV, 1) for z in (k, v))
        q, k = q.to(v.dtype), k.to(v.dtype)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + at["o_proj"](o.transpose(1, 2).reshape(b, t, -1))
        h = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](h)) * self.mlp["up_proj"](h))


class Pebble(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens, self.layers, self.norm = nn.Embedding(N_VOCAB, DIM), nn.ModuleList(Layer() for _ in range(N_LAYER)), RMSNorm(DIM)
        f = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
        a = torch.outer(torch.arange(N_CTX), torch.cat((f, f)))
        self.register_buffer("cos", a.cos(), persistent=False)
        self.register_buffer("sin", a.sin(), persistent=False)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        for n, p in self.named_parameters():
            if p.ndim == 2 and "embed" not in n:
                nn.init.zeros_(p) if "o_proj" in n or "down_proj" in n else nn.init.normal_(p, std=p.shape[1] ** -0.5)

    def hidden(self, x, mask):
        h, t = self.embed_tokens(x), x.shape[1]
        for layer in self.layers:
            h = layer(h, self.cos[:t], self.sin[:t], mask)
        return self.norm(h)

    def forward(self, x, mask, where, target):
        h = self.hidden(x, mask).flatten(0, 1)[where]
        return F.cross_entropy(F.linear(h, self.embed_tokens.weight).float(), target)

    def logits(self, x):
        t = x.shape[1]
        return F.linear(self.hidden(x, torch.ones(t, t, dtype=torch.bool).tril()), self.embed_tokens.weight)


class Muon:
    """Momentum, then the nearest (nearly) orthogonal matrix. Matrices of one shape go through together, each worker takes a part."""

    def __init__(self, params, lr=0.02, momentum=0.95, decay=0.01, rank=0, n_rank=1):
        self.lr0, self.lr, self.momentum, self.decay, self.rank, self.n_rank, self.groups = lr, lr, momentum, decay, rank, n_rank, {}
        for p in params:
            self.groups.setdefault((min(p.shape), max(p.shape)), []).append(p)
        self.state = {s: torch.zeros(len(ps), *s) for s, ps in self.groups.items()}

    @torch.no_grad()
    def step(self):
        for s, ps in self.groups.items():
            g = torch.stack([p.grad.T if p.shape[0] > p.shape[1] else p.grad for p in ps])
            m = self.state[s]
            m.lerp_(g, 1 - self.momentum)
            lo, hi = (len(ps) * (self.rank + i) // self.n_rank for i in (0, 1))
            x = g.lerp(m, self.momentum)[lo:hi].bfloat16()
            x = x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).bfloat16()
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            u_all = torch.zeros(len(ps), *s)
            u_all[lo:hi] = x.float()
            if self.n_rank > 1:
                dist.all_reduce(u_all)
            for p, u in zip(ps, u_all):
                p.mul_(1 - self.lr * self.decay)
                p.add_(u.T if p.shape[0] > p.shape[1] else u, alpha=-self.lr * math.sqrt(max(1, p.shape[0] / p.shape[1])))


# ---------------------------------------------------------------------------------------------- the folder
def prepare(folder, seed):
    text, gen = Text(folder), Gen(seed)
    print("a document, rendered:\n" + text.render(Gen(5).tools()))
    tok = Tokenizer(models.BPE(byte_fallback=False))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    corpus = (text.render(gen.doc()) for _ in range(60000))
    strip = (s.replace("<|endoftext|>", "").replace("<|im_end|>", "").replace("<|im_start|>", "") for s in corpus)
    tok.train_from_iterator(strip, trainers.BpeTrainer(vocab_size=N_VOCAB, min_frequency=4, special_tokens=SPECIAL + PLAIN,
                                                       initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    spec = json.loads(tok.to_str())
    for t in spec["added_tokens"]:
        t["special"] = t["content"] in SPECIAL
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(spec, f, ensure_ascii=False, indent=1)
        f.write("\n")
    n = tok.get_vocab_size()
    print("vocab", n)
    put = lambda name, obj: open(os.path.join(folder, name), "w").write(json.dumps(obj, indent=2) + "\n")
    put("config.json", {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": N_VOCAB, "hidden_size": DIM, "num_hidden_layers": N_LAYER,
                        "num_attention_heads": N_HEAD, "num_key_value_heads": N_KV, "head_dim": HEAD_DIM, "intermediate_size": FFN, "hidden_act": "silu",
                        "max_position_embeddings": N_CTX, "rope_theta": THETA, "rms_norm_eps": EPS, "tie_word_embeddings": True, "attention_bias": False,
                        "attention_dropout": 0.0, "use_sliding_window": False, "initializer_range": 0.02, "use_cache": True, "bos_token_id": None,
                        "eos_token_id": IM_END, "pad_token_id": EOT, "torch_dtype": "bfloat16"})
    put("generation_config.json", {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "eos_token_id": [IM_END, EOT], "pad_token_id": EOT})
    put("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": N_CTX, "bos_token": None, "eos_token": "<|im_end|>",
                                  "pad_token": "<|endoftext|>", "unk_token": None, "add_bos_token": False, "add_prefix_space": False,
                                  "clean_up_tokenization_spaces": False,
                                  "added_tokens_decoder": {str(i): {"content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                                                    "special": s in SPECIAL} for i, s in enumerate(SPECIAL + PLAIN)}})
    torch.manual_seed(seed)
    write(folder, Pebble().state_dict())


def write(folder, state):
    from safetensors.torch import save_file
    path = os.path.join(folder, "model.safetensors")
    save_file({"model." + k: v.to(torch.bfloat16).contiguous() for k, v in state.items()}, path + ".part", metadata={"format": "pt"})
    os.chmod(path + ".part", 0o644)
    os.replace(path + ".part", path)
    print("wrote", os.path.getsize(path), "bytes,", sum(v.numel() for v in state.values()), "parameters")


def weights(folder):
    from safetensors.torch import load_file
    return {k[len("model."):]: v.float() for k, v in load_file(os.path.join(folder, "model.safetensors")).items()}


def newest(work):
    return torch.load(os.path.join(work, "last.pt"), map_location="cpu", weights_only=False)


def train(opt):
    """One thread per worker, and gradients are averaged once per step: a worker that loses its core to a neighbour delays the other
    once per step and not once per operation, as threads would."""
    rank, n_rank = opt.rank, opt.workers
    torch.set_num_threads(1)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(opt.work, f"inductor.{rank}")
    if n_rank > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(opt.meet))
        others = [subprocess.Popen([sys.executable] + sys.argv + ["--rank", str(r)]) for r in range(1, n_rank)] if rank == 0 else []
        dist.init_process_group("gloo", rank=rank, world_size=n_rank)
    torch.manual_seed(opt.seed)
    torch._dynamo.config.cache_size_limit = 32
    os.makedirs(opt.work, exist_ok=True)
    text = Text(opt.folder)
    m = Pebble()
    if opt.onward:
        m.load_state_dict(weights(opt.folder))
    mats = [p for n, p in m.named_parameters() if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in m.named_parameters() if not (p.ndim == 2 and "embed" not in n)]
    muon, adam_lr = Muon(mats, lr=opt.lr, rank=rank, n_rank=n_rank), opt.lr * 0.15
    adam = torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    step, used = 0, 0.0
    if opt.resume:
        c = newest(opt.work)
        m.load_state_dict(c["model"])
        muon.state, step, used = c["muon"], c["step"], c["used"]
        adam.load_state_dict(c["adam"])
        if opt.fresh:
            step, used = 0, 0.0
    rows = Rows(text, (opt.seed + step) * 1000 + rank)
    run = torch.compile(m, dynamic=False) if opt.compile else m
    log = open(os.path.join(opt.work, "train.log"), "a")
    t0, n_tok, sum_loss, n_loss, t_log, t_save, done = time.time() - used, 0, 0.0, 0, time.time(), time.time(), 0.0
    progress = lambda: step / opt.steps if opt.steps else (time.time() - t0) / (60 * opt.minutes)
    done = progress() if rank == 0 else used / (60 * opt.minutes)
    both = mats + rest
    flat = torch.zeros(sum(p.numel() for p in both) + 2)
    while done < 1:
        k = min(1, (step + 1) / opt.warmup) * min(1, (1 - done) / opt.decay)
        muon.lr = muon.lr0 * k
        for g in adam.param_groups:
            g["lr"] = adam_lr * k
        long = step % opt.long_every == 0 and step > opt.long_from
        n_row, n_col = (2, N_CTX) if long else (8, 512)
        with torch.autocast("cpu", torch.bfloat16):
            loss = run(*rows.batch(n_row // n_rank, n_col, long))
        loss.backward()
        step += 1
        flat[-2], flat[-1] = loss.item(), progress() * n_rank if rank == 0 else 0
        torch.cat([p.grad.flatten() for p in both], out=flat[:-2])
        if n_rank > 1:
            dist.all_reduce(flat)
            flat /= n_rank
        at = 0
        for p in both:
            p.grad.copy_(flat[at:at + p.numel()].view_as(p))
            at += p.numel()
        mean_loss, done = flat[-2].item(), flat[-1].item()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        muon.step()
        adam.step()
        m.zero_grad()
        if rank > 0:
            continue
        n_tok += n_row * n_col
        if not long:
            sum_loss, n_loss = sum_loss + mean_loss, n_loss + 1
        if step % 25 == 0:
            dt = time.time() - t_log
            line = f"step {step} done {done:.3f} loss {sum_loss / max(1, n_loss):.4f} lr {k:.3f} tok/s {n_tok / dt:.0f} used {time.time() - t0:.0f}s"
            print(line, flush=True)
            print(line, file=log, flush=True)
            n_tok, sum_loss, n_loss, t_log = 0, 0.0, 0, time.time()
        if time.time() - t_save > 120:
            save(opt.work, m, muon, adam, step, time.time() - t0)
            t_save = time.time()
    if rank == 0:
        save(opt.work, m, muon, adam, step, time.time() - t0)
        write(opt.folder, m.state_dict())
        for p in others if n_rank > 1 else []:
            p.wait()


def save(work, m, muon, adam, step, used):
    path = os.path.join(work, "last.pt")
    torch.save({"model": m.state_dict(), "muon": muon.state, "adam": adam.state_dict(), "step": step, "used": used}, path + ".part")
    os.chmod(path + ".part", 0o644)
    os.replace(path + ".part", path)


def verify(folder):
    """Our model and transformers on the same bf16 weights, in float32: the worst difference of a logit."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    m = Pebble().eval()
    m.load_state_dict(weights(folder))
    hf = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tok, text, gen, worst = AutoTokenizer.from_pretrained(folder), Text(folder), Gen(99), 0.0
    for i in range(24):
        doc = gen.doc(long=i % 6 == 5)
        ids, _ = text.ids(doc)
        if "messages" in doc:
            theirs = tok.apply_chat_template(doc["messages"], tools=doc.get("tools"), tokenize=False)
            assert theirs == text.render(doc), (theirs, text.render(doc))
            assert tok(theirs, add_special_tokens=False)["input_ids"] == ids
        x = torch.tensor([ids[:N_CTX]])
        with torch.no_grad():
            worst = max(worst, (m.logits(x) - hf(x).logits).abs().max().item())
    print(f"worst difference of a logit: {worst:.2e}")
    assert worst < 1e-3


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("what", choices=["prepare", "train", "export", "verify"])
    ap.add_argument("--folder", default=FOLDER)
    ap.add_argument("--work", default="/tmp/pebble", help="checkpoints and train.log")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--minutes", type=float, default=66)
    ap.add_argument("--steps", type=int, default=0, help="a fixed number of steps instead of a time")
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    ap.add_argument("--meet", type=int, default=29517, help="the port on which the workers meet")
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--warmup", type=int, default=40)
    ap.add_argument("--decay", type=float, default=0.55, help="the part of the run in which the rate falls")
    ap.add_argument("--long-from", type=int, default=900, help="from this step on, every --long-every-th batch is full-length chats")
    ap.add_argument("--long-every", type=int, default=12)
    ap.add_argument("--resume", action="store_true")
    ap.add_argument("--fresh", action="store_true", help="with --resume: a new schedule from the old weights")
    ap.add_argument("--onward", action="store_true", help="begin with the folder's weights instead of random ones")
    ap.add_argument("--compile", type=int, default=1)
    opt = ap.parse_args()
    if opt.what == "prepare":
        prepare(opt.folder, opt.seed)
    elif opt.what == "train":
        train(opt)
    elif opt.what == "export":
        write(opt.folder, newest(opt.work)["model"])
    else:
        verify(opt.folder)


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
