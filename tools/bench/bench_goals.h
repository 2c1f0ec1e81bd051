/* bench_goals: what the CUDA device has to reach: sizes of Qwen3-8B and Qwen3-30B-A3B with random weights, on one H100.
 * On an H200 times of decoding are multiplied by 0.72 and rates of its memory divided by it (its bandwidth); the rest
 * stays. Rows of the table in docs/BENCHMARKS.md; what is predicted of them: docs/cuda/kernels.md. */
#pragma once
#include "base/dtype.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum goal_is { GOAL_DECODE, GOAL_MEMORY, GOAL_OTHER }; /* what a faster memory changes */
enum {
    GOAL_B1_1K,
    GOAL_B1_8K,
    GOAL_B32_1K,
    GOAL_B32_8K,
    GOAL_B128_1K,
    GOAL_B32_8K_KV8,
    GOAL_B1_1K_SAME,
    GOAL_B1_1K_FP8,
    GOAL_B1_1K_INT4,
    GOAL_B1_1K_EXPERTS,
    GOAL_DECODES, /* above: steps of decoding */
    GOAL_PREFILL = GOAL_DECODES,
    GOAL_PREFILL_FP8,
    GOAL_IDLE,
    GOAL_HOST,
    GOAL_ATTENTION,
    GOAL_REDUCE,
    GOALS
};
/* What is measured, and how. Zeros: Qwen3-8B as it is, sums in whatever order is quickest. */
struct goal_how {
    enum dtype codes; /* of the matrices; DT_F32 (0): none */
    bool       kv8;   /* a KV pool in 8 bits */
    bool       same;  /* --deterministic */
    bool       experts;
};
static const struct goal {
    const char     *name, *unit;
    uint32_t        batch, ctx; /* of a decode step */
    double          must, good;
    enum goal_is    is;
    struct goal_how how;
} bench_goals[GOALS] = {
    [GOAL_B1_1K] = { "decode step, batch 1, ctx 1k", "ms", 1, 1024, 6.4, 5.85, GOAL_DECODE, { .kv8 = false } },
    [GOAL_B1_8K] = { "decode step, batch 1, ctx 8k", "ms", 1, 8192, 7.0, 6.3, GOAL_DECODE, { .kv8 = false } },
    [GOAL_B32_1K] = { "decode step, batch 32, ctx 1k", "ms", 32, 1024, 8.5, 8.0, GOAL_DECODE, { .kv8 = false } },
    [GOAL_B32_8K] = { "decode step, batch 32, ctx 8k", "ms", 32, 8192, 21, 19, GOAL_DECODE, { .kv8 = false } },
    [GOAL_B128_1K] = { "decode step, batch 128, ctx 1k", "ms", 128, 1024, 15.5, 13.5, GOAL_DECODE, { .kv8 = false } },
    [GOAL_B32_8K_KV8] = { "decode step, batch 32, ctx 8k, KV in fp8",
                          "ms",
                          32,
                          8192,
                          15,
                          13,
                          GOAL_DECODE,
                          { .kv8 = true } },
    [GOAL_B1_1K_SAME] = { "decode step, batch 1, ctx 1k, --deterministic",
                          "ms",
                          1,
                          1024,
                          7.0,
                          6.2,
                          GOAL_DECODE,
                          { .same = true } },
    [GOAL_B1_1K_FP8] = { "decode step, batch 1, ctx 1k, weights in fp8",
                         "ms",
                         1,
                         1024,
                         4.2,
                         3.4,
                         GOAL_DECODE,
                         { .codes = DT_F8E4M3 } },
    [GOAL_B1_1K_INT4] = { "decode step, batch 1, ctx 1k, weights in int4",
                          "ms",
                          1,
                          1024,
                          3.4,
                          2.6,
                          GOAL_DECODE,
                          { .codes = DT_I4 } },
    [GOAL_B1_1K_EXPERTS] = { "decode step, batch 1, ctx 1k, Qwen3-30B-A3B",
                             "ms",
                             1,
                             1024,
                             4.55,
                             3.33,
                             GOAL_DECODE,
                             { .experts = true } }, /* 220 and 300 tok/s */
    [GOAL_PREFILL] = { "prefill, 4k prompt", "tok/s", 0, 4096, 38000, 44000, GOAL_OTHER, { .kv8 = false } },
    [GOAL_PREFILL_FP8] = { "prefill, 4k prompt, weights in fp8",
                           "tok/s",
                           0,
                           4096,
                           38000,
                           65000,
                           GOAL_OTHER,
                           { .codes = DT_F8E4M3 } },
    [GOAL_IDLE] = { "idle between steps, batch 1", "us", 1, 1024, 100, 40, GOAL_OTHER, { .kv8 = false } },
    [GOAL_HOST] = { "host work per running request, 256 running",
                    "us",
                    256,
                    1024,
                    0.5,
                    0.2,
                    GOAL_OTHER,
                    { .kv8 = false } },
    [GOAL_ATTENTION] = { "attention at >= 256k tokens of KV", "GB/s", 0, 0, 2400, 2750, GOAL_MEMORY, { .kv8 = false } },
    [GOAL_REDUCE] = { "all-reduce of 16 KiB, 2 ranks, NVLink", "us", 0, 0, 9, 6, GOAL_OTHER, { .kv8 = false } },
};
static inline bool goal_measures(const struct goal *g, const struct goal_how *how)
{
    return g->how.codes == how->codes && g->how.kv8 == how->kv8 && g->how.same == how->same &&
           g->how.experts == how->experts;
}

/* 1 for an H100, 0.72 for an H200, 0 for a GPU without goals. gpu: its name; NULL: none */
static inline double goals_scale(const char *gpu, const char *shape)
{
    if (!gpu || !shape || (strcmp(shape, "qwen3-8b") && strcmp(shape, "qwen3-30b-a3b"))) return 0;
    if (strstr(gpu, "H200")) return 0.72;
    return strstr(gpu, "H100") ? 1 : 0;
}
static inline double goal_of(const struct goal *g, double v, double scale)
{
    if (g->is == GOAL_DECODE) return v * scale;
    return g->is == GOAL_MEMORY ? v / scale : v;
}
static inline const char *goal_reached(const struct goal *g, double v, double scale)
{
    bool   more = g->must < g->good;
    double must = goal_of(g, g->must, scale), good = goal_of(g, g->good, scale);
    if (more ? v >= good : v <= good) return "good";
    bool enough = more ? v >= must : v <= must;
    return enough ? "must" : "SHORT";
}
/* One row as docs/BENCHMARKS.md has it; v NAN: not measured in this run. scale 0: goals that hold elsewhere, without a
 * verdict */
static inline void goal_print(FILE *to, const struct goal *g, double v, double scale)
{
    double s = scale > 0 ? scale : 1;
    char   text[24] = "-";
    if (!isnan(v)) snprintf(text, sizeof text, "%.5g", v);
    const char *verdict = scale > 0 ? goal_reached(g, v, scale) : "no goal for this GPU and shape";
    if (isnan(v)) verdict = "not measured here";
    fprintf(to, "| %s | %s | %.5g | %.5g | %s | %s |\n", g->name, text, goal_of(g, g->must, s), goal_of(g, g->good, s),
            g->unit, verdict);
}
static inline void goals_title(FILE *to)
{
    fprintf(to, "\n| | measured | must | good | unit | |\n|---|---|---|---|---|---|\n");
}
