"""docs/cuda/kernels.md: what the build shows of each kernel, and what a model of the GPU predicts.   Used by tests/cuda/sass.

The predictions are for an H100 SXM and layers of Qwen3-8B's sizes, experts of Qwen3-30B-A3B's. They are written down before a run, so that a run can say where the
model is wrong: change the model then, not the page."""

import os

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHOWN = ("HMMA", "HGMMA", "QGMMA", "LDSM", "LDGSTS", "LDG.128", "LDG.!128", "MUFU")
ANCHORS = ("QGMMA", "HGMMA", "HMMA", "LDG.128.STRONG", "LDG.NA", "LDG.128", "LDG")  # of the loop that is shown
SM_REGISTERS, SM_THREADS, SM_BLOCKS = 65536, 2048, 32
HEADS, KV_HEADS, DIM, HIDDEN, INTER, LAYERS = 32, 8, 128, 4096, 12288, 36
READ_GBS = 2750  # what a good kernel reads of the 3350 GB/s
SLOTS = 132 * 4  # warps of decode attention that run at a time: four rings of 51 KB an SM


def registers():
    found = {}
    with open(os.path.join(ROOT, "tests/cuda/registers.txt"), encoding="utf-8") as f:
        for line in f:
            if not line.startswith("#"):
                file, kernel, *cells = line.split()
                found[(file, kernel)] = dict(c.split("=") for c in cells).get("sm_90a")
    return found


def blocks_of_sm(threads, n):
    """By registers, which a warp takes in units of 8 a thread, and by threads."""
    warps = max(1, -(-threads // 32))
    return min(SM_BLOCKS, SM_THREADS // max(threads, 1), SM_REGISTERS // (-(-n // 8) * 8 * 32 * warps))


def units(rows):
    """Warps that take a chunk: 16 pairs of a row and one of the heads of a KV head are a warp's."""
    return KV_HEADS * -(-rows * (HEADS // KV_HEADS) // 16)


def merges(rows):
    """How often a warp merges four rows of its mma."""
    return -(-min(16, rows * (HEADS // KV_HEADS)) // 4)


def chunk_of(batch, ctx, rows):
    """As cuda_attn_chunk, for sequences of one length."""
    tiles, budget = -(-ctx // 64), max(SLOTS // units(rows), batch + batch // 4)
    chunk = 4
    while chunk * chunk * 100 < tiles * 22 * merges(rows):
        chunk += 1
    while batch * -(-tiles // chunk) > budget and chunk < tiles:
        chunk += 1
    return chunk


TILE_US, TILE8_US = 0.9, 2.5  # of a warp; of rows in 8 bits, which become bf16 first


def decode(batch, ctx, each=2, tile_us=TILE_US, rows=1):
    """Bytes, flops, us: 2 to begin and for Q, then what memory or a warp's own tiles take, then 0.1 for each part and four rows of a warp.
    each: bytes of a number. rows: of a sequence."""
    chunk = chunk_of(batch, ctx, rows)
    parts, turns = -(-ctx // (64 * chunk)), -(-batch * units(rows) * -(-ctx // (64 * chunk)) // SLOTS)
    read = 2 * each * batch * ctx * KV_HEADS * DIM + 4 * batch * rows * HEADS * DIM
    us = 2 + max(read / READ_GBS / 1e3, tile_us * chunk * turns) + (0.1 * parts * merges(rows) if parts > 1 else 0)
    return read, 4 * batch * rows * ctx * HEADS * DIM, us


def prefill(rows):
    """The tensor cores and the shared memory are both full at about 300 TFLOP/s."""
    flops = 4 * (rows * (rows + 1) // 2) * HEADS * DIM
    return 2 * rows * (2 * HEADS + 2 * KV_HEADS) * DIM, flops, 3 + flops / 300e6


def prefill_groups(rows):
    """By warp groups: 570 TFLOP/s without overlap within a group (arXiv:2407.08608, table 2), less a quarter for tiles of 64 and cp.async."""
    read, flops, _ = prefill(rows)
    return read, flops, 3 + flops / 430e6


def moved(n):
    return n, 0, 2.3 + n / 2600e3


# Of a layer, and the head: rows and columns of the matrix, GB/s to reach.
MATRICES = (("QKV", 6144, 4096, 2600), ("O", 4096, 4096, 2600), ("gate and up", 24576, 4096, 2850), ("down", 4096, 12288, 2850), ("head", 151936, 4096, 2850))


def stream(rows, n, k):
    """Weights come from memory, rows of x by groups of 8 for each 16 rows of weights from L1 or L2, which bring 5 TB/s of both."""
    read, near = 2 * (n * k + rows * (n + k)), 2 * n * k * (1 + -(-rows // 8) * 8 / 16)
    return read, 2 * rows * n * k, 2.3 + max(read / READ_GBS, near / 5000) / 1e3


def joined(product, rows, k, norm, behind):
    """As stream or codes, with a product's surroundings: each of two blocks an SM reads all rows ahead of a norm and meets three barriers; a sum or a
    gate costs a round trip to L2 behind the last tile."""
    read, flops, us = product
    return read, flops, us + (0.9 + 2 * rows * k * 2 * 132 / 5e6 if norm else 0.3) + behind


# What products of a layer are joined with: name, n, k, enum op_end, a norm.
JOINED = (("QKV", 6144, 4096, 0, True), ("QKV", 6144, 4096, 3, True), ("O", 4096, 4096, 1, False), ("gate and up", 24576, 4096, 2, True), ("down", 4096, 12288, 1, False))
ENDS = ("", ", sum", ", gate", ", RoPE and KV")


def heads(rows):
    """Behind a product of q, k and v: a barrier, an addition in L2 that publishes and acquires, a read of what was written, and what k_qkv computes."""
    return 1.8 + rows / 80


def routed(rows, n, k, top_k):
    """The product by n / 16 blocks, each with 64 KB of weights under way, or 48 for more than 8 rows; the last block to be done learns that in 1 us, then a warp
    has a row at a time and takes 0.25 us for each expert that it chooses; lists 0.5."""
    read, flops = 2 * (n * k + rows * (n + k)), 2 * rows * n * k
    return read, flops, 2.3 + 0.7 * -(-2 * 16 * k // (65536 if rows <= 8 else 49152)) + 1 + 0.25 * top_k * -(-rows // 8) + 0.5


def many(rows, n, k):
    """By mma.sync from shared memory: 16 loads of 16 bytes a lane for 64 products of a warp keep both busy at about 300 TFLOP/s."""
    flops = 2 * rows * n * k
    return 2 * (n * k + rows * (n + k)), flops, 3 + flops / 300e6


# Of an expert of Qwen3-30B-A3B, of 128 of which a row has 8: its matrices.
EXPERTS, TOP, EXPERT_MATRICES = 128, 8, (("gate and up", "true", 1536, 2048), ("down", "false", 2048, 768))


def grouped(rows, n, k, unit, tflops):
    """Rows that choose evenly. The last rows of an expert take the time of half a unit. By mma.sync as many(); by warp groups 610 TFLOP/s are
    known of two that multiply 128 x 128 from shared memory, less a seventh for cp.async, for a fence a step and for sums that leave by shared memory."""
    slots, flops = rows * TOP, 2 * rows * TOP * n * k
    return 2 * (EXPERTS * n * k + slots * (n + k)), flops, 3 + flops * (1 + unit * EXPERTS / 2 / slots) / tflops / 1e6


# Codes: bytes of a weight with its scales, inputs of a line, instructions of a line in the loops for 8 and 16 rows, GB/s to reach; instructions of 128 inputs
# by warp groups.
CODES = (
    ("i4", "int4, groups of 128", 0.5 + 4 / 128, 128, (261, 333), 1600, 447),
    ("f8", "fp8, blocks of 128", 1 + 4 / 128, 64, (163, 196), 2500, 527),
)


def codes_groups(rows, n, k, bytes_each, loop):
    """Tiles of 128 x 128, one an SM, two that share x in a cluster, by stages of 128 inputs, at 1755 MHz: products take 1024 cycles; a scheduler issues 0.8
    instructions a cycle of two warps; L2 brings 6 TB/s of half of x and of codes (tiles of 128 x 256 that reach 610 TFLOP/s take 7). The longest of them, and
    1 us for a tile's end, while which the next tile's stages come."""
    tiles, stages = -(-rows // 128) * -(-n // 256) * 2, -(-k // 128)
    cycles = max(1024, 2 * loop / 0.8, 128 * 128 * (1 + bytes_each) * 132 * 1.755 / 6000)
    read = n * k * bytes_each + 2 * rows * (n + k)
    return read, 2 * rows * n * k, 3 + -(-tiles // 132) * (stages * cycles / 1755 + 1)


def codes_fp8(rows, n, k):
    """Tiles of 256 x 128, two that share x in a cluster, by stages of 128 inputs, at 1755 MHz, of bytes on both sides: products take 1024 cycles, their
    operands 1152 of shared memory, and L2 brings 6 TB/s of w and of half of x, as in codes_groups. Ahead of them k_act_codes reads rows and writes codes, with
    1.3 us between both."""
    tiles, stages = -(-rows // 256) * -(-n // 256) * 2, -(-k // 128)
    cycles = max(1152, (256 / 2 + 128) * (128 + 4) * 132 * 1.755 / 6000)
    read = n * k * (1 + 4 / 128) + rows * (3 * k + 2 * n)
    return read, 2 * rows * n * k, moved(3 * rows * k)[2] + 1.3 + 3 + -(-tiles // 132) * (stages * cycles / 1755 + 1)


def codes(rows, n, k, bytes_each, unit, loop):
    """As stream, and the warps' instructions: four schedulers an SM issue 0.8 a cycle each at 1755 MHz."""
    read = n * k * bytes_each + 2 * rows * (n + k)
    near = n * k * (bytes_each + 2 * rows / 16)
    issue = n / 16 * k / unit * loop[rows > 8] / (132 * 4 * 0.8 * 1755)
    return read, 2 * rows * n * k, 2.3 + max(read / READ_GBS / 1e3, near / 5000 / 1e3, issue)


def wide(rows, n, k, bytes_each):
    """By the library, for which codes become numbers in slabs of 32 MiB: codes come from memory, numbers go to L2 and, the half of them, on to memory at
    last; a slab is two kernels more. The library as in sass_steps.library()."""
    slabs = -(-2 * n * k // (32 << 20))
    read = n * k * (bytes_each + 2) + 2 * rows * (n + k)
    return read, 2 * rows * n * k, n * k * (bytes_each / READ_GBS + 2 / 4500) / 1e3 + slabs * 4 + 2 * rows * n * k / 690e6


def cases():
    """Kernel, case, (bytes, flops, us), goal in us."""
    width = (HEADS + 2 * KV_HEADS) * DIM
    yield "k_attn_decode<bf16,128>", "batch 1, 1k", decode(1, 1024), "8"
    yield "k_attn_decode<bf16,128>", "batch 1, 8k", decode(1, 8192), "18"
    yield "k_attn_decode<bf16,128>", "batch 8, 8k", decode(8, 8192), "105"
    yield "k_attn_decode<bf16,128>", "batch 32, 1k", decode(32, 1024), "52"
    yield "k_attn_decode<bf16,128>", "batch 32, 8k", decode(32, 8192), "395"
    for batch, ctx, goal in ((1, 8192, "21"), (32, 1024, "30"), (32, 8192, "205")):
        yield "k_attn_decode<kv8,128>", "batch %d, %dk, KV in fp8" % (batch, ctx // 1024), decode(batch, ctx, 1 + 1 / DIM, TILE8_US), goal
    for batch, ctx, goal in ((1, 1024, "9"), (1, 8192, "20"), (32, 1024, "56")):
        yield "k_attn_runs<bf16,128>", "batch %d, %dk, 4 rows each" % (batch, ctx // 1024), decode(batch, ctx, rows=4), goal
    yield "k_attn_tile<bf16,128,2,4>", "prompt of 4k", prefill(4096), "393"
    yield "k_attn_hopper<bf16,128>", "prompt of 4k, --wgmma", prefill_groups(4096), "275"
    for name, n, k, gbs in MATRICES:
        for rows, groups in ((1, 1), (16, 2)):
            yield "k_gemm_rows<bf16,%s,%d,6,true>" % ("float" if name == "head" else "bf16", groups), "%s, %d rows" % (name, rows), stream(rows, n, k), "%.1f" % (2 * n * k / gbs / 1e3)
    for name, n, k, end, norm in JOINED:
        for rows in (1, 8):
            what, goal = name + ", norm" * norm + ENDS[end], 2 * n * k / (2600 if n * k < 6e7 and k < 12288 else 2850) / 1e3
            us = joined(stream(rows, n, k), rows, k, norm, heads(rows) if end == 3 else 0)
            yield "k_gemm_fused<bf16,1,%d,%s>" % (end, "true" if norm else "false"), "%s, %d rows" % (what, rows), us, "%.1f" % (goal + norm + 1.5 * (end == 3))
    for rows, groups in ((1, 1), (8, 1), (16, 2)):
        yield "k_moe_route_few<bf16,bf16,%d>" % groups, "router of 128 experts, 8 chosen, 2048 wide, %d rows" % rows, routed(rows, 128, 2048, 8), "-"
    yield "k_gemm_many<bf16,bf16>", "gate and up, 4096 rows", many(4096, 24576, 4096), "1390"
    for name, gate_up, n, k in EXPERT_MATRICES:
        yield "k_moe_block<bf16,%s,128,false>" % gate_up, "%s of 128 experts, 4096 rows" % name, grouped(4096, n, k, 8, 300), "-"
        ideal = grouped(4096, n, k, 64, 600)
        yield "k_moe_hopper<bf16,%s>" % gate_up, "%s of 128 experts, 4096 rows, --wgmma" % name, grouped(4096, n, k, 64, 520), "%.0f" % ideal[2]
    for kind, what, each, unit, loop, gbs, groups_loop in CODES:
        for name, n, k in (("gate and up", 24576, 4096), ("down", 4096, 12288)):
            for rows, groups, deep in ((1, 1, 4), (16, 2, 2)):
                yield "k_codes_rows<bf16,codes_%s,%d,%d,true>" % (kind, groups, deep), "%s, %s, %d rows" % (name, what, rows), codes(rows, n, k, each, unit, loop), "%.1f" % (n * k * each / gbs / 1e3)
        for name, n, k, end, norm in JOINED[1:]:
            for rows in (1, 8):
                us = joined(codes(rows, n, k, each, unit, loop), rows, k, norm, heads(rows) if end == 3 else 0)
                case = "%s%s, %s, %d rows" % (name, ", norm" * norm + ENDS[end], what, rows)
                yield "k_codes_fused<bf16,codes_%s,1,4,%s>" % (kind, "true" if norm else "false"), case, us, "%.1f" % (n * k * each / gbs / 1e3 + norm + 1.5 * (end == 3))
        read, flops, us = many(4096, 24576, 4096)
        yield "k_codes_numbers<bf16,codes_%s>" % kind, "gate and up, %s, 4096 rows, with the library's products" % what, wide(4096, 24576, 4096, each), "1600"
        yield "k_codes_many<bf16,codes_%s>" % kind, "gate and up, %s, 4096 rows" % what, (read - 24576 * 4096 * (2 - each), flops, us), "-"
        for rows in (512, 4096):
            yield "k_codes_hopper<bf16,codes_%s,4>" % kind, "gate and up, %s, %d rows, --wgmma" % (what, rows), codes_groups(rows, 24576, 4096, each, groups_loop), "1600" if rows == 4096 else "200"
    for rows in (512, 4096):
        yield "k_codes_fp8<bf16,2,true>", "gate and up, fp8, blocks of 128, %d rows, --fp8-prefill" % rows, codes_fp8(rows, 24576, 4096), "700" if rows == 4096 else "110"
    yield "k_act_codes<bf16>", "4096 rows of 4096", moved(3 * 4096 * 4096), "-"
    for rows in (1, 32, 4096):
        yield "k_qkv<bf16,16>", "%d rows" % rows, moved(4 * rows * width), "-"
        yield "k_norm<bf16,true>", "%d rows" % rows, moved(8 * rows * HIDDEN), "-"
        yield "k_glu<bf16,gate_silu,true>", "%d rows" % rows, moved(6 * rows * INTER), "-"


def page(functions, version):
    known, out = registers(), []
    out.append("# Kernels: what they take, and what is predicted of them\n")
    out.append("Written by `tests/cuda/sass --update` from the machine code that nvcc %s makes for sm_90a; `./check sass` holds the rules" % version)
    out.append("(`tests/cuda/sass.txt`). No GPU has confirmed a figure of the second table yet.\n")
    out.append("## What the build shows\n")
    out.append("Blocks of an SM are bounded by registers and threads here; shared memory that is asked for at the launch may allow fewer (decode attention of")
    out.append("128 numbers a head: 4). The counts are those of the innermost loop that matters, `-`: the kernel has none.\n")
    out.append("| kernel | threads | registers | blocks of an SM | code, bytes | loop | %s |" % " | ".join(SHOWN))
    out.append("|---|" + "---|" * (5 + len(SHOWN)))
    for (file, kernel), f in sorted(functions.items()):
        n = known.get((file, kernel))
        if n is None or "f16" in kernel.replace("bf16", "") or kernel.startswith("k_gemm_check"):
            continue  # f16 is as bf16
        loop = next((x for x in (f.hot_loop(a) for a in ANCHORS) if x), None)
        cells = ["-"] * (1 + len(SHOWN))
        if loop:
            cells = [str(loop[1] - loop[0])] + [str(f.count(op, *loop)) for op in SHOWN]
        out.append("| `%s` | %d | %s | %d | %d | %s |" % (kernel, f.threads, n, blocks_of_sm(f.threads, int(n)), f.bytes(), " | ".join(cells)))
    out.append("\n## What is predicted: one layer of Qwen3-8B, bf16, on an H100\n")
    out.append("Experts are those of Qwen3-30B-A3B. The model is `tests/cuda/sass_figures.py`; `bench_ops` (section `ops_speed` of `tests/gpu/all`) measures the same cases.\n")
    out.append("| kernel | case | bytes | flops | predicted, us | goal, us | measured |")
    out.append("|---|---|---|---|---|---|---|")
    for kernel, case, (read, flops, us), goal in cases():
        out.append("| `%s` | %s | %.3g M | %s | %.1f | %s | |" % (kernel, case, read / 1e6, "%.3g G" % (flops / 1e9) if flops else "-", us, goal))
    return "\n".join(out) + "\n"
