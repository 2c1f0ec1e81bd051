/* bench_goals: what the CUDA device has to reach: Qwen3-8B's sizes in bf16 with random weights, on one H100. On an H200
 * times of decoding are multiplied by 0.72 and rates of its memory divided by it (its bandwidth); the rest stays. Rows
 * of the table in docs/BENCHMARKS.md. */
#pragma once
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
    GOAL_ATTENTION,
    GOAL_PREFILL,
    GOAL_IDLE,
    GOAL_HOST,
    GOALS
};
static const struct goal {
    const char  *name, *unit;
    uint32_t     batch, ctx; /* of a decode step */
    double       must, good;
    enum goal_is is;
    bool         kv8; /* of a KV pool in 8 bits */
} bench_goals[GOALS] = {
    [GOAL_B1_1K] = { "decode step, batch 1, ctx 1k", "ms", 1, 1024, 6.8, 6.4, GOAL_DECODE, false },
    [GOAL_B1_8K] = { "decode step, batch 1, ctx 8k", "ms", 1, 8192, 7.2, 6.8, GOAL_DECODE, false },
    [GOAL_B32_1K] = { "decode step, batch 32, ctx 1k", "ms", 32, 1024, 9.3, 8.2, GOAL_DECODE, false },
    [GOAL_B32_8K] = { "decode step, batch 32, ctx 8k", "ms", 32, 8192, 23, 20.5, GOAL_DECODE, false },
    [GOAL_B128_1K] = { "decode step, batch 128, ctx 1k", "ms", 128, 1024, 15.5, 13.5, GOAL_DECODE, false },
    [GOAL_B32_8K_KV8] = { "decode step, batch 32, ctx 8k, KV in fp8", "ms", 32, 8192, 15, 13, GOAL_DECODE, true },
    [GOAL_ATTENTION] = { "attention at >= 256k tokens of KV", "GB/s", 0, 0, 2400, 2750, GOAL_MEMORY, false },
    [GOAL_PREFILL] = { "prefill, 4k prompt", "tok/s", 0, 4096, 33000, 40000, GOAL_OTHER, false },
    [GOAL_IDLE] = { "idle between steps, batch 1", "us", 1, 1024, 100, 40, GOAL_OTHER, false },
    [GOAL_HOST] = { "host work per running request, 256 running", "us", 256, 1024, 0.5, 0.2, GOAL_OTHER, false },
};

/* 1 for an H100, 0.72 for an H200, 0 for a GPU without goals. gpu: its name; NULL: none */
static inline double goals_scale(const char *gpu, const char *shape)
{
    if (!gpu || !shape || strcmp(shape, "qwen3-8b") != 0) return 0;
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
