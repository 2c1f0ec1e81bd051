#!/usr/bin/env python3
"""The same shapes through PyTorch and transformers on the same machine: what tools/bench_ops and tools/bench_engine are compared with.

  bench_peer_torch.py [--device cuda|cpu] [--shape qwen3-8b|llama-3.1-8b|llama-3.2-1b|tiny] [--only attention,gemm,decode,prefill]
                      [--batch LIST] [--ctx LIST] [--prefill LIST] [--steps N] [--no-compile] [--seconds N] [--json FILE]

  roof       device copy, a large matrix product: what the machine does at best, in this run
  attention  scaled_dot_product_attention: decode (one query row per sequence, grouped heads) and causal prefill, each backend that takes it
  gemm       torch.nn.functional.linear over rotating weights that are larger together than the cache, captured in a graph
  decode     transformers' model with random weights, static cache: eager, and torch.compile(mode="reduce-overhead")
  prefill    the same model, one prompt

Random non-zero numbers everywhere (zeros run faster than work does); medians; times by device events where there are any.
--seconds: cases that would begin later are left out, and said so; compiling one takes a minute and more.
"""

import argparse
import gc
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = {  # as engine/model/shapes.c has them
    "qwen3-8b": dict(kind="qwen3", hidden=4096, inter=12288, layers=36, heads=32, kv_heads=8, dim=128, vocab=151936, theta=1e6, eps=1e-6),
    "llama-3.1-8b": dict(kind="llama", hidden=4096, inter=14336, layers=32, heads=32, kv_heads=8, dim=128, vocab=128256, theta=5e5, eps=1e-5),
    "llama-3.2-1b": dict(kind="llama", hidden=2048, inter=8192, layers=16, heads=32, kv_heads=8, dim=64, vocab=128256, theta=5e5, eps=1e-5),
    "tiny": dict(kind="qwen3", hidden=64, inter=96, layers=2, heads=4, kv_heads=2, dim=16, vocab=331, theta=1e4, eps=1e-6),
}


BEGIN = time.monotonic()


class Bench:
    def __init__(self, args):
        self.args = args
        self.s = SHAPES[args.shape]
        self.device = torch.device(args.device)
        self.gpu = self.device.type == "cuda"
        self.rows = []
        if not self.gpu:  # a dry run: its figures mean nothing, and threads that wait for each other take long
            torch.set_num_threads(1)
        self.copy_gbs = self.gemm_tflops = float("nan")
        torch.manual_seed(1)

    def noise(self, *shape, std=1.0):
        return (torch.randn(*shape, device=self.device, dtype=torch.float32) * std).to(torch.bfloat16)

    def late(self, name):
        """Is there no time left for one more? Says so."""
        if not self.args.seconds or time.monotonic() - BEGIN < self.args.seconds:
            return False
        print(f"{name}: left out, no time", flush=True)
        return True

    def sync(self):
        if self.gpu:
            torch.cuda.synchronize()

    def seconds(self, fn, runs=20, inner=1, warm=3):
        """Median seconds of fn(i), over `runs` measurements of `inner` calls each, after `warm` calls."""
        for i in range(warm):
            fn(i)
        self.sync()
        times = []
        for r in range(runs):
            if self.gpu:
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                for i in range(inner):
                    fn(r * inner + i)
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e-3 / inner)
            else:
                t = time.perf_counter()
                for i in range(inner):
                    fn(r * inner + i)
                times.append((time.perf_counter() - t) / inner)
        return statistics.median(times)

    def graph_seconds(self, calls):
        """Median seconds of one call of a list that is captured as a graph, so that what launches cost the host does not show."""
        if not self.gpu:
            return self.seconds(lambda i: calls[i % len(calls)](), runs=5)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for c in calls[:3]:
                c()
        torch.cuda.synchronize()
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            for c in calls:
                c()
        s = self.seconds(lambda i: g.replay(), runs=20) / len(calls)
        del g
        return s

    def report(self, kind, name, seconds, nbytes=0.0, flops=0.0, **more):
        gbs, tf = nbytes / seconds * 1e-9, flops / seconds * 1e-12
        text = f"{name:<52} {seconds * 1e6:>11.1f} us"
        text += f" {gbs:>8.1f} GB/s {100 * gbs / self.copy_gbs:>4.0f}%" if nbytes else " " * 19
        text += f" {tf:>8.2f} TFLOP/s {100 * tf / self.gemm_tflops:>4.0f}%" if flops else ""
        print(text + "".join(f"  {k} {v}" for k, v in more.items()), flush=True)
        self.rows.append(dict(kind=kind, name=name, us=seconds * 1e6, gbs=gbs, tflops=tf, **more))

    def clean(self):
        gc.collect()
        if self.gpu:
            torch.cuda.empty_cache()

    # ------------------------------------------------------------------------------------------------ roof

    def roof(self):
        n = (1 << 30 if self.gpu else 1 << 24) // 2
        a, b = self.noise(n), torch.empty(n, device=self.device, dtype=torch.bfloat16)
        s = self.seconds(lambda i: b.copy_(a))
        self.copy_gbs = 2 * n * 2 / s * 1e-9
        del a, b
        n = 8192 if self.gpu else 256
        x, w = self.noise(n, n), self.noise(n, n)
        s_gemm = self.seconds(lambda i: F.linear(x, w), runs=10)
        self.gemm_tflops = 2 * n**3 / s_gemm * 1e-12
        print(f"roof: copy {self.copy_gbs:.0f} GB/s (read + written), bf16 product {n}^3 {self.gemm_tflops:.2f} TFLOP/s\n")
        self.rows.append(dict(kind="roof", name="roof", gbs=self.copy_gbs, tflops=self.gemm_tflops))
        self.clean()

    # ------------------------------------------------------------------------------------------------ attention

    def attention(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        s, a = self.s, self.args
        backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
        if not self.gpu:
            backends = {"flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}

        def case(label, batch, q_rows, kv_rows, causal, nbytes, flops, n_copy):
            if self.late(label):
                return
            try:
                q = [self.noise(batch, s["heads"], q_rows, s["dim"]) for _ in range(n_copy)]
                k = [self.noise(batch, s["kv_heads"], kv_rows, s["dim"]) for _ in range(n_copy)]
                v = [self.noise(batch, s["kv_heads"], kv_rows, s["dim"]) for _ in range(n_copy)]
            except torch.OutOfMemoryError:
                print(f"{label:<52} does not fit")
                return
            best = False
            for name, backend in backends.items():
                def one(i):
                    j = i % n_copy
                    return F.scaled_dot_product_attention(q[j], k[j], v[j], is_causal=causal, enable_gqa=True)
                try:
                    with sdpa_kernel(backend):
                        t = self.seconds(one, runs=15, inner=4)
                except (RuntimeError, torch.OutOfMemoryError):
                    continue  # this backend does not take such a problem
                self.report("attention", f"{label} {name}", t, nbytes, flops)
                best = True
            if not best:
                print(f"{label:<52} no backend takes it")
            del q, k, v
            self.clean()

        for ctx in a.ctx:
            for batch in a.batch:
                nbytes = 2 * batch * ctx * s["kv_heads"] * s["dim"] * 2
                copies = max(1, min(8, int(256e6 // nbytes) + 1)) if self.gpu else 1
                case(f"attention decode batch {batch} ctx {ctx}", batch, 1, ctx, False, nbytes, 0, copies)
        for n in a.prefill:
            flops = 4 * s["heads"] * s["dim"] * n * (n + 1) / 2
            case(f"attention prefill {n}", 1, n, n, True, 0, flops, 1)
        print()

    # ------------------------------------------------------------------------------------------------ products

    def gemm(self):
        s = self.s
        q = (s["heads"] + 2 * s["kv_heads"]) * s["dim"]
        shapes = [("qkv", q, s["hidden"]), ("o", s["hidden"], s["heads"] * s["dim"]), ("gate_up", 2 * s["inter"], s["hidden"]),
                  ("down", s["hidden"], s["inter"]), ("lm_head", s["vocab"], s["hidden"])]
        rows = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 4096, 8192] if self.gpu else [1, 8]
        for name, n, k in shapes:
            if self.late(f"linear {name}"):
                continue
            copies = max(4, int(400e6 // (n * k * 2)) + 1) if self.gpu else 2
            w = [self.noise(n, k, std=0.02) for _ in range(copies)]
            for m in rows:
                if name == "lm_head" and m > 512:
                    continue
                x = self.noise(m, k)
                t = self.graph_seconds([lambda j=j: F.linear(x, w[j % copies]) for j in range(2 * copies if m <= 512 else copies)])
                self.report("gemm", f"linear {name} n {n} k {k} m {m}", t, 2.0 * (n * k + m * k + m * n), 2.0 * m * n * k)
            del w
            self.clean()
        print()

    # ------------------------------------------------------------------------------------------------ a model

    def model(self):
        import transformers

        s = self.s
        context = max(self.args.ctx + self.args.prefill) + self.args.steps + 64
        common = dict(hidden_size=s["hidden"], intermediate_size=s["inter"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                      num_key_value_heads=s["kv_heads"], head_dim=s["dim"], vocab_size=s["vocab"], max_position_embeddings=context,
                      rope_theta=s["theta"], rms_norm_eps=s["eps"], tie_word_embeddings=False, use_cache=True)
        if s["kind"] == "qwen3":
            config, cls = transformers.Qwen3Config(**common), transformers.Qwen3ForCausalLM
        else:
            config, cls = transformers.LlamaConfig(**common), transformers.LlamaForCausalLM
        config._attn_implementation = "sdpa"
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with self.device:
                m = cls(config)
        finally:
            torch.set_default_dtype(before)
        with torch.no_grad():  # whatever the initialiser left
            for name, p in m.named_parameters():
                p.fill_(1.0) if p.dim() == 1 else p.normal_(0.0, 0.02)
        return m.eval(), transformers

    def cache(self, transformers, m, batch, length):
        kw = dict(config=m.config, max_cache_len=length)
        try:
            c = transformers.StaticCache(**kw)
            c.early_initialization(batch, m.config.num_key_value_heads, m.config.head_dim, torch.bfloat16, self.device)
            return c
        except (TypeError, AttributeError):
            return transformers.StaticCache(max_batch_size=batch, device=self.device, dtype=torch.bfloat16, **kw)

    def decode(self, m, transformers):
        a, params = self.args, sum(p.numel() for n, p in m.named_parameters() if "embed_tokens" not in n)
        kv_token = 2 * self.s["layers"] * self.s["kv_heads"] * self.s["dim"] * 2

        def run(forward, label, batch, ctx):
            length = (ctx + a.steps + 8 + 63) // 64 * 64
            try:
                cache = self.cache(transformers, m, batch, length)
                for layer in getattr(cache, "layers", []):  # a cache of zeros would be no work
                    layer.keys.normal_(), layer.values.normal_()
                ids = torch.randint(0, self.s["vocab"], (batch, 1), device=self.device)
                state = dict(ids=ids, at=torch.full((1,), ctx, device=self.device, dtype=torch.long))

                def step(i):
                    if self.gpu:
                        torch.compiler.cudagraph_mark_step_begin()
                    out = forward(input_ids=state["ids"], past_key_values=cache, cache_position=state["at"],
                                  position_ids=state["at"].expand(batch, 1), use_cache=True)
                    state["ids"] = out.logits[:, -1].argmax(-1, keepdim=True).clone()

                with torch.no_grad():
                    t = self.seconds(step, runs=a.steps, warm=6)  # compiling takes several calls
            except torch.OutOfMemoryError:
                print(f"{label} batch {batch} ctx {ctx}: does not fit")
                self.clean()
                return
            self.report("decode", f"{label} batch {batch} ctx {ctx}", t, params * 2 + batch * ctx * kv_token, batch=batch, ctx=ctx,
                        step_ms=round(t * 1e3, 3), tok_s=round(batch / t, 1))
            del cache, state
            self.clean()

        def guarded(forward, label, batch, ctx):
            if self.late(f"{label} batch {batch} ctx {ctx}"):
                return
            try:
                run(forward, label, batch, ctx)
            except Exception as e:  # a peer that fails is a line of the table, not the end of it
                print(f"{label} batch {batch} ctx {ctx}: {type(e).__name__}: {str(e).splitlines()[0][:120]}")
                self.clean()

        for ctx in a.ctx:
            for batch in a.batch:
                guarded(m.__call__, "decode eager", batch, ctx)
        if not a.no_compile:
            for ctx in a.ctx:
                for batch in a.batch:
                    torch._dynamo.reset()  # each size gets code of its own, as a server would have it
                    compiled = torch.compile(m.forward, mode="reduce-overhead" if self.gpu else "default", dynamic=False)
                    guarded(compiled, "decode compiled", batch, ctx)
        print()

    def prefill(self, m):
        for n in self.args.prefill:
            if self.late(f"prefill {n}"):
                continue
            ids = torch.randint(0, self.s["vocab"], (1, n), device=self.device)

            def once(i):
                m(input_ids=ids, use_cache=True, logits_to_keep=1)

            try:
                with torch.no_grad():
                    t = self.seconds(once, runs=5)
            except torch.OutOfMemoryError:
                print(f"prefill {n}: does not fit")
                continue
            self.report("prefill", f"prefill eager {n} tokens", t, tokens=n, tok_s=round(n / t, 1))
            self.clean()


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--shape", default="qwen3-8b", choices=sorted(SHAPES))
    p.add_argument("--only", default="attention,gemm,decode,prefill")
    p.add_argument("--batch", type=numbers)
    p.add_argument("--ctx", type=numbers)
    p.add_argument("--prefill", type=numbers)
    p.add_argument("--steps", type=int)
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--seconds", type=float, default=0)
    p.add_argument("--json")
    args = p.parse_args()
    tiny = args.shape == "tiny"
    args.batch = args.batch or ([1, 3] if tiny else [1, 32, 128])
    args.ctx = args.ctx or ([40] if tiny else [1024, 8192])
    args.prefill = args.prefill or ([64] if tiny else [512, 2048, 4096, 8192])
    args.steps = args.steps or (3 if tiny else 30)
    only = set(args.only.split(","))

    b = Bench(args)
    name = torch.cuda.get_device_name(0) if b.gpu else "cpu"
    print(f"{args.shape} on {name}, torch {torch.__version__}" + (f", CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}" if b.gpu else ""))
    b.roof()
    if "attention" in only:
        b.attention()
    if "gemm" in only:
        b.gemm()
    if only & {"decode", "prefill"}:
        m, transformers = b.model()
        print(f"transformers {transformers.__version__}, {sum(x.numel() for x in m.parameters()) * 2e-9:.2f} GB of weights")
        if "prefill" in only:
            b.prefill(m)
        if "decode" in only:
            b.decode(m, transformers)
    if args.json:
        out = dict(device=name, shape=args.shape, torch=torch.__version__, rows=b.rows)
        with sys.stdout if args.json == "-" else open(args.json, "w") as f:
            json.dump(out, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
