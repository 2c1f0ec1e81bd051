"""docs/cuda/kernels.md, its last table: what the kernels' predictions make of whole steps, beside what they have to reach.   Used by tests/cuda/sass.

Rows are those of tools/bench/bench_goals.h. A step is its layers, the head and what surrounds them. Up to FUSED rows the kernels are ours, joined; above, the
library multiplies (`tune` decides: the quicker of both is taken here)."""

import os
import re

from sass_figures import ROOT, CODES, HIDDEN, KV_HEADS, HEADS, DIM, INTER, LAYERS, TILE8_US, codes, codes_fp8, codes_groups, decode, heads, joined, moved, prefill, prefill_groups, routed, stream, wide

GAP_US, GAP_PDL_US = 1.3, 0.5  # from a kernel to the next, plain and dependent launches
AHEAD_US = 1.5  # what a product gains that has asked for its weights before the one ahead ended, of 2.3 to begin
REST_MS = 0.05  # of a step: embedding, last norm, sampling, ids to the host
FUSED_NORM, FUSED = 8, 32  # rows
WIDTH = (HEADS + 2 * KV_HEADS) * DIM
QKV, O, GATE_UP, DOWN, HEAD = (WIDTH, HIDDEN), (HIDDEN, HEADS * DIM), (2 * INTER, HIDDEN), (HIDDEN, INTER), (151936, HIDDEN)


def library(rows, n, k):
    """cuBLASLt, tuned, as others have measured it: GB/s of weights by their size, or 690 TFLOP/s."""
    gbs = 2850 if n * k > 9e7 else 2700 if n * k > 4e7 else 2450
    return max(2 * n * k / gbs / 1e3, 2 * rows * n * k / 690e6)


class Step:
    """Kernels of a layer: their us, and how many ask for weights before they wait."""

    def __init__(self, layers):
        self.layers, self.us, self.kernels, self.products, self.head = layers, 0, 0, 0, 0

    def kernel(self, us, product=False):
        self.us += us
        self.kernels += 1
        self.products += product

    def ms(self, pdl):
        us = self.us + self.kernels * (GAP_PDL_US if pdl else GAP_US) - (self.products * AHEAD_US if pdl else 0)
        return (self.layers * us + self.head) / 1e3 + REST_MS


def ours(step, rows, product=stream):
    """A dense layer's products by our own kernels, joined with what surrounds them. product: stream, or of codes."""
    norm = rows <= FUSED_NORM
    for (n, k), behind in ((QKV, heads(rows)), (GATE_UP, 0)):
        if not norm:
            step.kernel(moved(8 * rows * HIDDEN)[2])
        step.kernel(joined(product(rows, n, k), rows, k, norm, behind)[2], True)
    for n, k in (O, DOWN):
        step.kernel(joined(product(rows, n, k), rows, k, False, 0)[2], True)


def apart(step, rows, product, ahead, sums=False):
    """A dense layer with norms, RoPE and the gate by kernels of their own. ahead: do its products ask for weights before they wait? sums: O and down are added to the
    residual stream by the library, which reads it once more, so that norms read no product beside it."""
    for n, k in (QKV, O, GATE_UP, DOWN):
        step.kernel(product(rows, n, k) + (2 * rows * HIDDEN / 2600e3 if sums and n == HIDDEN else 0), ahead)
    norm = (4 if sums else 8) * rows * HIDDEN
    for number in (norm, 4 * rows * WIDTH, norm, 6 * rows * INTER):
        step.kernel(moved(number)[2])


def dense(batch, ctx, kv_bytes=2, kind=None, own=False):
    """kind: of CODES; None: bf16. own: --deterministic, where the library does not multiply."""
    found = []
    attention = decode(batch, ctx, kv_bytes, TILE8_US if kv_bytes < 2 else 0.9)[2]
    for joined_up in (True, False):
        step = Step(LAYERS)
        step.head = min(stream(batch, *HEAD)[2], library(batch, *HEAD))
        if kind:
            each, unit, loop = next(c for c in CODES if c[0] == kind)[2:5]
            coded = lambda rows, n, k: codes(rows, n, k, each, unit, loop)
            if joined_up and batch <= FUSED:
                ours(step, batch, coded)
            else:
                apart(step, batch, lambda rows, n, k: coded(rows, n, k)[2], True)
        elif joined_up and batch <= FUSED:
            ours(step, batch)
        elif own:
            apart(step, batch, lambda rows, n, k: stream(rows, n, k)[2], True)
        else:
            apart(step, batch, library, False, True)
        step.kernel(attention)
        found.append(step)
    return [min(s.ms(pdl) for s in found) for pdl in (False, True)]


def experts(ctx):
    """Qwen3-30B-A3B, one row: 48 layers of 32 heads, 4 KV heads, 2048 wide, 8 of 128 experts of 768."""
    step, hidden, width, inter, top = Step(48), 2048, (32 + 8) * DIM, 768, 8
    step.head = stream(1, 151936, hidden)[2]
    step.kernel(joined(stream(1, width, hidden), 1, hidden, True, heads(1))[2], True)
    step.kernel(decode(1, ctx)[2])  # as many tiles a warp; half the heads share as much time
    step.kernel(joined(stream(1, hidden, 32 * DIM), 1, 32 * DIM, False, 0)[2], True)
    step.kernel(moved(8 * hidden)[2])
    step.kernel(routed(1, 128, hidden, top)[2], True)
    step.kernel(stream(1, top * 2 * inter, hidden)[2], True)
    step.kernel(stream(1, top * hidden, inter)[2], True)
    step.kernel(moved(4 * top * hidden)[2])
    return [step.ms(pdl) for pdl in (False, True)]


def prompt(rows, attention, kind=None, fp8=False):
    """tok/s. attention: prefill_groups with --wgmma, which has products with codes too; fp8: --fp8-prefill"""
    step = Step(LAYERS)
    step.head = stream(1, *HEAD)[2]
    each, loop = next(((c[2], c[6]) for c in CODES if c[0] == kind), (0, 0))
    product = library
    if fp8:
        product = lambda m, n, k: codes_fp8(m, n, k)[2]
    elif kind and attention == prefill_groups:
        product = lambda m, n, k: codes_groups(m, n, k, each, loop)[2]
    elif kind:
        product = lambda m, n, k: wide(m, n, k, each)[2]
    apart(step, rows, product, False, not kind)
    step.kernel(attention(rows)[2])
    return [rows / step.ms(pdl) * 1e3 for pdl in (False, True)]


def goals():
    """Of tools/bench/bench_goals.h: {name: (must, good)}"""
    with open(os.path.join(ROOT, "tools/bench/bench_goals.h"), encoding="utf-8") as f:
        found = re.findall(r'\{\s*"([^"]+)",\s*"[^"]+",\s*\d+,\s*\d+,\s*([\d.]+),\s*([\d.]+),', f.read())
    return {name: (float(must), float(good)) for name, must, good in found}


def rows():
    """Name of a goal and what is added to it, unit, what is predicted without and with dependent launches."""
    yield "decode step, batch 1, ctx 1k", "", "ms", dense(1, 1024)
    yield "decode step, batch 1, ctx 8k", "", "ms", dense(1, 8192)
    yield "decode step, batch 32, ctx 1k", "", "ms", dense(32, 1024)
    yield "decode step, batch 32, ctx 8k", "", "ms", dense(32, 8192)
    yield "decode step, batch 128, ctx 1k", "", "ms", dense(128, 1024)
    yield "decode step, batch 32, ctx 8k, KV in fp8", "", "ms", dense(32, 8192, 1 + 1 / DIM)
    yield "decode step, batch 1, ctx 1k, --deterministic", "", "ms", dense(1, 1024, own=True)
    yield "decode step, batch 1, ctx 1k, weights in fp8", "", "ms", dense(1, 1024, kind="f8")
    yield "decode step, batch 1, ctx 1k, weights in int4", "", "ms", dense(1, 1024, kind="i4")
    yield "decode step, batch 1, ctx 1k, Qwen3-30B-A3B", "", "ms", experts(1024)
    yield "prefill, 4k prompt", "", "tok/s", prompt(4096, prefill)
    yield "prefill, 4k prompt", ", --wgmma", "tok/s", prompt(4096, prefill_groups)
    yield "prefill, 4k prompt, weights in fp8", "", "tok/s", prompt(4096, prefill, "f8")
    yield "prefill, 4k prompt, weights in fp8", ", --wgmma", "tok/s", prompt(4096, prefill_groups, "f8")
    yield "prefill, 4k prompt, weights in fp8", ", --wgmma --fp8-prefill", "tok/s", prompt(4096, prefill_groups, "f8", True)


def verdict(unit, value, must, good):
    more = unit == "tok/s"
    if value >= good if more else value <= good:
        return "good"
    return "must" if (value >= must if more else value <= must) else "short"


def section():
    out = ["\n## What is predicted of whole steps\n"]
    out.append("Qwen3-8B and Qwen3-30B-A3B on an H100, by `tests/cuda/sass_steps.py` from the kernels above: %d layers, the head, %.2f ms for the rest; %.1f us between kernels,"
               % (LAYERS, REST_MS, GAP_US))
    out.append("with dependent launches (`--pdl`) %.1f, and %.1f less for each product that asks for its weights before it waits. `bench_engine` measures the same rows"
               % (GAP_PDL_US, AHEAD_US))
    out.append("(docs/BENCHMARKS.md), with what must and should be reached.\n")
    out.append("| | unit | predicted | | with `--pdl` | | must | good | measured |")
    out.append("|---|---|---|---|---|---|---|---|---|")
    reach = goals()
    for name, more, unit, (plain, pdl) in rows():
        must, good = reach[name]
        show = (lambda v: "%.0f" % v) if unit == "tok/s" else (lambda v: "%.2f" % v)
        out.append("| %s | %s | %s | %s | %s | %s | %g | %g | |" % (name + more, unit, show(plain), verdict(unit, plain, must, good), show(pdl), verdict(unit, pdl, must, good), must, good))
    return "\n".join(out) + "\n"
