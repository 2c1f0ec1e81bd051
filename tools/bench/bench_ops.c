/* bench_ops: how far each op is from what the machine can do. The roofs are measured first, in the same run: reading
 * memory (4 streams per thread, prefetched), and in registers fused multiply-adds and products of bf16 and of int8.
 * Products of matrices: every type of weight, sizes of a model of 1B and of one of 8B, 1 to 2048 rows. Medians.
 *   bench_ops [--device ref|cpu] [--simd amx|avx512-bf16|avx512-vnni|avx512|avx-vnni|avx2|neon-bf16|neon|scalar]
 *   [--threads N] [--runs N] [--rows-max N] [--only SUBSTRING] [--clock wall|cpu]
 *   bench_ops --device cuda [--shape NAME] [--gpu N] [--gemm-file FILE] [--cublaslt FILE] [--deterministic] [--pdl] [--wgmma] [--fp8-prefill]
 *   [--only SUBSTRING]
 * --clock cpu, with one thread: the time it ran, for machines that others use too. On a GPU (bench_gpu.h) the sizes are
 * a model's. Over 500 lines: a list of measurements, one for each op, that share buffers and roofs. */
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/thread.h"
#include "kernels/cpu/team.h"
#include "kernels/device.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench_gpu.h"
#if defined(__x86_64__)
#include "kernels/cpu/amx.h"
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { PIECES = 64, RUNS_MAX = 1000 };

struct bench {
    struct device *d;
    struct team   *team;
    const char    *only, *simd;
    uint32_t       n_thread, runs, rows_max; /* rows_max: of products */
    double         read_gbs, fma_gflops, bf16_gflops,
        int8_gflops; /* the roofs; what the instruction set has none of: that of fma */
    float *noise;    /* NOISE normal-ish numbers */
};
enum { NOISE = 1 << 20 };

static clockid_t bench_clock = CLOCK_MONOTONIC;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(bench_clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int double_order(const void *pa, const void *pb)
{
    double a = *(const double *)pa, b = *(const double *)pb;
    return (a > b) - (a < b);
}

/* Median seconds of fn(arg, i): at least 5 times (3 where it is slow), then until 0.3 s have passed or `runs`. */
static double median_s(const struct bench *b, void (*fn)(void *arg, uint32_t i), void *arg)
{
    double   t[RUNS_MAX], begin = now_s();
    uint32_t n = 0;
    fn(arg, 0); /* warm */
    while (n < b->runs && (n < 5 || now_s() - begin < 0.3) && (n < 3 || now_s() - begin < 2)) {
        double t0 = now_s();
        fn(arg, n + 1);
        t[n++] = now_s() - t0;
    }
    qsort(t, n, sizeof *t, double_order);
    return t[n / 2];
}

#include "bench_roof.h"

static void report_of(const struct bench *b, const char *name, double s, double bytes, double flops, double gflops_max)
{
    printf("%-46s %10.1f %8.2f %5.0f%% %9.1f %5.0f%%\n", name, s * 1e6, bytes / s * 1e-9,
           100 * bytes / s * 1e-9 / b->read_gbs, flops / s * 1e-9, 100 * flops / s * 1e-9 / gflops_max);
    fflush(stdout);
}
static void report(const struct bench *b, const char *name, double s, double bytes, double flops)
{
    report_of(b, name, s, bytes, flops, b->fma_gflops);
}

static bool wanted(const struct bench *b, const char *name) { return !b->only || strstr(name, b->only); }

static void *take(const struct bench *b, size_t bytes)
{
    void *p;
    if (b->d->ops->alloc(b->d, bytes, &p)) exit(EXIT_SOFTWARE);
    return p;
}
static float *take_noise(const struct bench *b, size_t n)
{
    float *x = take(b, n * sizeof *x);
    for (size_t i = 0; i < n; i += NOISE) memcpy(x + i, b->noise, (n - i < NOISE ? n - i : NOISE) * sizeof *x);
    return x;
}
/* Every type of weight, and what multiplies with it. */
enum unit { UNIT_FMA, UNIT_BF16, UNIT_INT8 };
static const struct format {
    const char      *name;
    enum dtype       plain;
    struct dev_quant q; /* code F32: plain */
    enum unit        unit;
} formats[] = {
    { "bf16", DT_BF16, { DT_F32, 0, false, false, false }, UNIT_BF16 },
    { "int8", DT_F32, { DT_I8, 0, false, false, false }, UNIT_BF16 },
    { "int8-g128", DT_F32, { DT_I8, 128, false, false, false }, UNIT_BF16 },
    { "w8a8", DT_F32, { DT_I8, 0, false, true, false }, UNIT_INT8 },
    { "int4", DT_F32, { DT_I4, 32, false, false, false }, UNIT_BF16 },
    { "int4 by int8", DT_F32, { DT_I4, 32, false, true, false }, UNIT_INT8 },
    { "int4-g128", DT_F32, { DT_I4, 128, false, false, false }, UNIT_BF16 },
    { "int4-g128 with zeros", DT_F32, { DT_I4, 128, true, false, false }, UNIT_BF16 },
    { "fp8", DT_F32, { DT_F8E4M3, 128, false, false, false }, UNIT_BF16 },
    { "mxfp4", DT_F32, { DT_F4E2M1, 32, false, false, false }, UNIT_BF16 },
    { "nvfp4", DT_F32, { DT_F4E2M1, 16, false, false, false }, UNIT_BF16 },
    { "f16", DT_F16, { DT_F32, 0, false, false, false }, UNIT_FMA },
    { "f32", DT_F32, { DT_F32, 0, false, false, false }, UNIT_FMA },
};
enum { FORMATS = sizeof formats / sizeof *formats };

static struct dev_weight take_format(const struct bench *b, const struct format *f, uint32_t n, uint32_t k)
{
    struct dev_weight w;
    if (f->q.code == DT_F32 ? b->d->ops->weight_alloc(b->d, f->plain, n, k, &w)
                            : b->d->ops->quant_alloc(b->d, &f->q, n, k, &w))
        exit(EXIT_SOFTWARE);
    for (uint32_t r = 0; r < n; r += 16) /* whole panels: sixteen rows that overlap */
        b->d->ops->weight_set(b->d, &w, r, n - r < 16 ? n - r : 16, b->noise + (r * 13) % 1000, 52, DT_F32);
    return w;
}
static struct dev_weight take_weight(const struct bench *b, enum dtype t, uint32_t n, uint32_t k)
{
    struct format f = { .plain = t };
    return take_format(b, &f, n, k);
}

/* ---------------------------------------------------------------- ops */

enum { MATRICES = 10 }; /* in turn, so that each comes from memory: 335 MB of bf16 */

struct linear_arg {
    const struct bench *b;
    struct dev_weight  *w;
    uint32_t            n_w, m;
    float              *x, *out;
};
static void linear_once(void *arg, uint32_t i)
{
    struct linear_arg *a = arg;
    a->b->d->ops->linear(a->b->d, a->out, a->x, &a->w[i % a->n_w], NULL, a->m);
}

/* Memory is taken for good, so a shape and a format are measured in a device of their own. */
static void bench_linear(const struct bench *all, const struct dev_cfg *cfg, const struct format *f, uint32_t n,
                         uint32_t k, uint32_t n_w, const uint32_t *m, uint32_t n_m)
{
    char           name[80];
    struct bench   own = *all, *b = &own;
    struct dev_cfg one = *cfg;
    snprintf(name, sizeof name, "linear %s k %u n %u m", f->name, k, n);
    if (!wanted(b, name)) return;
    one.arena_bytes = (size_t)n_w * n * (k + 64) * 4 + (size_t)m[n_m - 1] * (n + k) * 4 + ((size_t)512 << 20);
    if (dev_open(&one, &b->d)) exit(EXIT_SOFTWARE);
    struct dev_weight w[MATRICES];
    CHECK(n_w <= MATRICES);
    for (uint32_t i = 0; i < n_w; i++) w[i] = take_format(b, f, n, k);
    struct linear_arg a = {
        b, w, n_w, 0, take_noise(b, (size_t)m[n_m - 1] * k), take(b, (size_t)m[n_m - 1] * n * sizeof(float))
    };
    double roof = f->unit == UNIT_INT8 ? b->int8_gflops : b->fma_gflops;
    if (f->unit == UNIT_BF16) roof = b->bf16_gflops;
    for (uint32_t i = 0; i < n_m; i++) {
        if ((a.m = m[i]) > b->rows_max) break;
        snprintf(name, sizeof name, "linear %s k %u n %u m %u", f->name, k, n, m[i]);
        report_of(b, name, median_s(b, linear_once, &a), (double)w[0].bytes, 2.0 * m[i] * n * k, roof);
    }
    dev_close(b->d);
}

struct row_arg {
    const struct bench *b;
    float              *x, *y, *w;
    uint32_t            n, dim;
};
static void norm_once(void *arg, uint32_t i)
{
    (void)i;
    struct row_arg *a = arg;
    a->b->d->ops->rmsnorm(a->b->d, a->y, a->x, a->w, a->n, a->dim, 1e-6f);
}
static void swiglu_once(void *arg, uint32_t i)
{
    (void)i;
    struct row_arg *a = arg;
    a->b->d->ops->glu(a->b->d, a->y, a->x, a->n, a->dim, OP_SILU);
}
static void bench_rows(const struct bench *b, uint32_t n)
{
    char           name[80];
    struct row_arg a = { b, NULL, NULL, NULL, n, 2048 };
    snprintf(name, sizeof name, "rmsnorm n %u dim 2048", n);
    if (wanted(b, name)) {
        a.x = take_noise(b, (size_t)n * a.dim);
        a.y = take(b, (size_t)n * a.dim * 4);
        a.w = take_noise(b, a.dim);
        report(b, name, median_s(b, norm_once, &a), 8.0 * n * a.dim, 4.0 * n * a.dim);
    }
    snprintf(name, sizeof name, "swiglu n %u inter 8192", n);
    a.dim = 8192;
    if (wanted(b, name)) {
        a.x = take_noise(b, (size_t)n * a.dim * 2);
        a.y = take(b, (size_t)n * a.dim * 4);
        report(b, name, median_s(b, swiglu_once, &a), 12.0 * n * a.dim, 20.0 * n * a.dim);
    }
}

struct attn_arg {
    const struct bench *b;
    struct op_qkv       q;
    struct op_attn      a;
    struct dev_batch    batch;
    struct dev_kv       kv;
};
static void qkv_once(void *arg, uint32_t i)
{
    (void)i;
    struct attn_arg *a = arg;
    a->b->d->ops->qkv(a->b->d, &a->q, &a->batch, &a->kv);
}
static void attn_once(void *arg, uint32_t i)
{
    (void)i;
    struct attn_arg *a = arg;
    a->b->d->ops->attention(a->b->d, &a->a, &a->batch, &a->kv);
}
/* Any numbers: bf16 of noise; of 8 bits codes and scales that are none of what is special. */
static void fill_kv(const struct bench *b, struct dev_kv *kv)
{
    size_t bytes = kv->block_bytes * kv->n_block;
    for (size_t i = 0; kv->dtype == DT_BF16 && i < bytes / 2; i++)
        ((bf16 *)kv->base)[i] = f32_to_bf16(b->noise[i % NOISE]);
    for (size_t i = 0; kv->dtype == DT_F8E4M3 && i < bytes; i++) ((uint8_t *)kv->base)[i] = (uint8_t)(24 + i * 37 % 96);
}

/* n_seq sequences whose last `rows` tokens of `context` are computed now */
static void bench_attn_kv(const struct bench *b, enum dtype type, uint32_t n_head, uint32_t n_kv_head, uint32_t dim,
                          uint32_t n_seq, uint32_t context, uint32_t rows)
{
    char        name[80];
    const char *kind = type == DT_BF16 ? "" : " fp8";
    uint32_t    n = n_seq * rows, width = (n_head + 2 * n_kv_head) * dim, pages = (context + 15) / 16;
    snprintf(name, sizeof name, "attention%s %u/%u/%u seqs %u ctx %u rows %u", kind, n_head, n_kv_head, dim, n_seq,
             context, rows);
    if (!wanted(b, name)) return;
    uint64_t            token = dev_kv_heads_bytes(type, n_kv_head, dim);
    struct dev_kv_layer layer = { .bytes = 16 * token };
    struct dev_kv       kv = { .dtype = type,
                               .n_block = n_seq * pages,
                               .n_layer = 1,
                               .block_tokens = 16,
                               .block_bytes = layer.bytes,
                               .layer = &layer };
    struct attn_arg     a = { .b = b, .kv = kv };
    a.kv.base = take(b, a.kv.block_bytes * a.kv.n_block);
    fill_kv(b, &a.kv);
    uint32_t *u = take(b, (4 * (size_t)n + 2 * n_seq + 2 + n_seq * pages) * sizeof *u), *pos = u, *row_seq = pos + n,
             *row_start = row_seq + n, *page_start = row_start + n_seq + 1, *page = page_start + n_seq + 1;
    row_start[0] = page_start[0] = 0;
    for (uint32_t s = 0; s < n_seq; s++) {
        for (uint32_t r = 0; r < rows; r++) {
            pos[s * rows + r] = context - rows + r;
            row_seq[s * rows + r] = s;
        }
        for (uint32_t p = 0; p < pages; p++) page[s * pages + p] = (s * pages + p) * 7 % a.kv.n_block;
        row_start[s + 1] = (s + 1) * rows;
        page_start[s + 1] = (s + 1) * pages;
    }
    a.batch = (struct dev_batch){ .n_row = n,
                                  .n_seq = n_seq,
                                  .pos = pos,
                                  .row_seq = row_seq,
                                  .row_start = row_start,
                                  .page_start = page_start,
                                  .page = page };
    float *x = take_noise(b, (size_t)n * width), *y = take(b, (size_t)n * n_head * dim * 4),
          *inv = take_noise(b, dim / 2);
    for (uint32_t i = 0; i < dim / 2; i++) inv[i] = powf(10000.0f, -2.0f * (float)i / (float)dim);
    a.a = (struct op_attn){ y, x, n_head, n_kv_head, dim, 0, 0.1f, .window = 0 };
    a.q = (struct op_qkv){ x, inv, inv, 1e-6f, inv, 1, n_head, n_kv_head, dim, dim, .layer = 0 };
    double seen = n_seq * (rows * (double)(context - rows) + rows * (rows + 1.0) / 2);
    report(b, name, median_s(b, attn_once, &a), (double)n_seq * context * (double)token, 4.0 * seen * n_head * dim);
    snprintf(name, sizeof name, "qkv%s %u/%u/%u rows %u", kind, n_head, n_kv_head, dim, n);
    report(b, name, median_s(b, qkv_once, &a), 8.0 * n * width, 10.0 * n * width);
}
static void bench_attn(const struct bench *b, uint32_t n_head, uint32_t n_kv_head, uint32_t dim, uint32_t n_seq,
                       uint32_t context, uint32_t rows)
{
    bench_attn_kv(b, DT_BF16, n_head, n_kv_head, dim, n_seq, context, rows);
    bench_attn_kv(b, DT_F8E4M3, n_head, n_kv_head, dim, n_seq, context, rows);
}

struct moe_arg {
    const struct bench *b;
    struct op_moe       o;
    float              *logits;
};
static void moe_once(void *arg, uint32_t i)
{
    struct moe_arg *a = arg;
    a->o.router_logits = a->logits + (i % 8) * 64; /* other experts each time */
    a->b->d->ops->moe(a->b->d, &a->o);
}
static void bench_moe(const struct bench *b, const uint32_t *m, uint32_t n_m)
{
    enum { EXPERTS = 64, TOP = 8, HIDDEN = 2048, INTER = 768, ROWS = 512 };
    if (!wanted(b, "moe")) return;
    static struct dev_weight gate_up[EXPERTS], down[EXPERTS];
    for (int e = 0; e < EXPERTS; e++) {
        gate_up[e] = take_weight(b, DT_BF16, 2 * INTER, HIDDEN);
        down[e] = take_weight(b, DT_BF16, HIDDEN, INTER);
    }
    struct moe_arg a = { b,
                         { .out = take(b, ROWS * HIDDEN * 4),
                           .x = take_noise(b, ROWS * HIDDEN),
                           .gate_up = gate_up,
                           .down = down,
                           .n_expert = EXPERTS,
                           .top_k = TOP,
                           .hidden = HIDDEN,
                           .inter = INTER,
                           .renorm = true,
                           .act = OP_SILU },
                         take_noise(b, (ROWS + 8) * EXPERTS) };
    for (uint32_t i = 0; i < n_m; i++) {
        char name[80];
        a.o.n_row = m[i];
        snprintf(name, sizeof name, "moe 64x8 hidden 2048 inter 768 m %u", m[i]);
        double used = EXPERTS * (1 - pow(1 - (double)TOP / EXPERTS, m[i])), each = 3.0 * HIDDEN * INTER;
        report(b, name, median_s(b, moe_once, &a), used * each * 2, 2.0 * m[i] * TOP * each);
    }
}

struct sample_arg {
    const struct bench *b;
    struct op_sample    o;
};
static void sample_once(void *arg, uint32_t i)
{
    (void)i;
    struct sample_arg *a = arg;
    a->b->d->ops->sample(a->b->d, &a->o);
}
static void bench_sample(const struct bench *b, uint32_t n, uint32_t vocab)
{
    static const struct {
        const char          *name;
        struct op_sample_row row;
    } how[] = {
        { "greedy", { .temperature = 0, .top_p = 1, .repetition = 1 } },
        { "temperature", { .temperature = 0.8f, .top_p = 1, .repetition = 1 } },
        { "top-p 0.9", { .temperature = 0.8f, .top_p = 0.9f, .repetition = 1 } },
        { "top-k 50 top-p 0.9", { .temperature = 0.8f, .top_p = 0.9f, .top_k = 50, .repetition = 1 } },
        { "greedy, 20 logprobs", { .temperature = 0, .top_p = 1, .repetition = 1, .n_top = 20 } },
    };
    enum { N = 64 };
    if (!wanted(b, "sample")) return;
    struct op_sample_row row[N];
    uint32_t            *u = take(b, N * (2 + OP_SAMPLE_TOP_MAX) * 4);
    float               *f = take(b, N * (1 + OP_SAMPLE_TOP_MAX) * 4), *logits = take_noise(b, (size_t)n * vocab);
    for (size_t i = 0; i < (size_t)n * vocab; i++)
        logits[i] = logits[i] * 2.5f + (i % 4999 == 7 ? (float)(i % 13) : 0); /* a bulk and some peaks */
    struct sample_arg a = { b, { logits, n, vocab, row, u, u, u, NULL, NULL, u, f, u + N, u + 2 * N, f + N } };
    for (size_t h = 0; h < sizeof how / sizeof *how; h++) {
        char name[80];
        for (uint32_t i = 0; i < n; i++) {
            row[i] = how[h].row;
            row[i].seed = i;
        }
        snprintf(name, sizeof name, "sample n %u vocab %u %s", n, vocab, how[h].name);
        report(b, name, median_s(b, sample_once, &a), 4.0 * n * vocab, 0);
    }
}

/* ---------------------------------------------------------------- a whole small model: what an op costs beside its
 * arithmetic */

enum {
    HIDDEN = 256,
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    INTER = 768,
    VOCAB = 3072,
    LAYERS = 5,
    WIDTH = (HEADS + 2 * KV_HEADS) * DIM,
    TOKENS = 512
};

struct small_arg {
    const struct bench *b;
    struct dev_weight   qkv[LAYERS], o[LAYERS], gate_up[LAYERS], down[LAYERS], embed;
    struct dev_kv       kv;
    struct dev_kv_layer kv_layer[LAYERS];
    struct dev_batch    batch;
    uint32_t            u[4 * TOKENS + TOKENS];
    float              *x, *h, *p, *y, *delta, *gu, *act, *logits, *norm, inv[DIM / 2], logprob[TOKENS],
        top_logprob[TOKENS * OP_SAMPLE_TOP_MAX];
    uint32_t id[TOKENS], rank[TOKENS], top_id[TOKENS * OP_SAMPLE_TOP_MAX], n_logits;
};
static void small_step(void *arg, uint32_t i)
{
    (void)i;
    struct small_arg     *a = arg;
    struct device        *d = a->b->d;
    const struct dev_ops *ops = d->ops;
    uint32_t              n = a->batch.n_row;
    ops->embed(d, a->x, a->batch.id, &a->embed, n);
    ops->rmsnorm(d, a->h, a->x, a->norm, n, HIDDEN, 1e-6f);
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct op_qkv  q = { a->p, a->norm, a->norm, 1e-6f, a->inv, 1, HEADS, KV_HEADS, DIM, DIM, .layer = l };
        struct op_attn t = { a->y, a->p, HEADS, KV_HEADS, DIM, l, 0.125f, .window = 0 };
        ops->linear(d, a->p, a->h, &a->qkv[l], NULL, n);
        ops->qkv(d, &q, &a->batch, &a->kv);
        ops->attention(d, &t, &a->batch, &a->kv);
        ops->linear(d, a->delta, a->y, &a->o[l], NULL, n);
        ops->add_rmsnorm(d, a->h, a->x, a->delta, a->norm, n, HIDDEN, 1e-6f);
        ops->linear(d, a->gu, a->h, &a->gate_up[l], NULL, n);
        ops->glu(d, a->act, a->gu, n, INTER, OP_SILU);
        ops->linear(d, a->delta, a->act, &a->down[l], NULL, n);
        ops->add_rmsnorm(d, a->h, a->x, a->delta, a->norm, n, HIDDEN, 1e-6f);
    }
    ops->linear(d, a->logits, a->h + (n - a->n_logits) * HIDDEN, &a->embed, NULL, a->n_logits);
    struct op_sample_row row[64];
    for (uint32_t r = 0; r < a->n_logits; r++) row[r] = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    struct op_sample s = { a->logits, a->n_logits, VOCAB, row,        NULL,    NULL,      NULL,
                           NULL,      NULL,        a->id, a->logprob, a->rank, a->top_id, a->top_logprob };
    ops->sample(d, &s);
}
/* n_seq sequences of `rows` rows each, the last of them at position context - 1 */
static void bench_small(const struct bench *b, uint32_t n_seq, uint32_t context, uint32_t rows)
{
    static struct small_arg a;
    if (!wanted(b, "small model")) return;
    if (!a.b) {
        a.b = b;
        for (uint32_t l = 0; l < LAYERS; l++) {
            a.qkv[l] = take_weight(b, DT_BF16, WIDTH, HIDDEN);
            a.o[l] = take_weight(b, DT_BF16, HIDDEN, HEADS * DIM);
            a.gate_up[l] = take_weight(b, DT_BF16, 2 * INTER, HIDDEN);
            a.down[l] = take_weight(b, DT_BF16, HIDDEN, INTER);
        }
        a.embed = take_weight(b, DT_BF16, VOCAB, HIDDEN);
        uint64_t bytes = 16 * dev_kv_heads_bytes(DT_BF16, KV_HEADS, DIM);
        for (uint32_t l = 0; l < LAYERS; l++)
            a.kv_layer[l] = (struct dev_kv_layer){ .offset = l * bytes, .bytes = bytes };
        a.kv = (struct dev_kv){ .dtype = DT_BF16,
                                .n_block = 2048,
                                .n_layer = LAYERS,
                                .block_tokens = 16,
                                .block_bytes = LAYERS * bytes,
                                .layer = a.kv_layer };
        a.kv.base = take(b, a.kv.n_block * a.kv.block_bytes);
        a.x = take(b, TOKENS * HIDDEN * 4);
        a.h = take(b, TOKENS * HIDDEN * 4);
        a.p = take(b, TOKENS * WIDTH * 4);
        a.y = take(b, TOKENS * HIDDEN * 4);
        a.delta = take(b, TOKENS * HIDDEN * 4);
        a.gu = take(b, TOKENS * 2 * INTER * 4);
        a.act = take(b, TOKENS * INTER * 4);
        a.logits = take(b, 64 * VOCAB * 4);
        a.norm = take_noise(b, HIDDEN);
        for (uint32_t i = 0; i < DIM / 2; i++) a.inv[i] = powf(10000.0f, -2.0f * (float)i / DIM);
    }
    uint32_t        n = n_seq * rows, pages = (context + 15) / 16;
    static uint32_t id[TOKENS], pos[TOKENS], row_seq[TOKENS], row_start[65], page_start[65], page[2048];
    CHECK(n <= TOKENS && n_seq <= 64 && n_seq * pages <= 2048);
    for (uint32_t s = 0; s < n_seq; s++) {
        for (uint32_t r = 0; r < rows; r++) {
            id[s * rows + r] = r;
            pos[s * rows + r] = context - rows + r;
            row_seq[s * rows + r] = s;
        }
        for (uint32_t p = 0; p < pages; p++) page[s * pages + p] = s * pages + p;
        row_start[s + 1] = (s + 1) * rows;
        page_start[s + 1] = (s + 1) * pages;
    }
    a.batch = (struct dev_batch){ .n_row = n,
                                  .n_seq = n_seq,
                                  .n_page = n_seq * pages,
                                  .id = id,
                                  .pos = pos,
                                  .row_seq = row_seq,
                                  .row_start = row_start,
                                  .page_start = page_start,
                                  .page = page };
    a.n_logits = n_seq;
    double params = (double)LAYERS * HIDDEN * (WIDTH + HEADS * DIM + 3 * INTER), head = (double)VOCAB * HIDDEN;
    double s = median_s(b, small_step, &a);
    char   name[80];
    snprintf(name, sizeof name, "small model: %u seqs, %u rows, ctx %u: %.0f tok/s", n_seq, rows, context, n / s);
    report(b, name, s, 2 * (params + head), 2 * (params * n + head * n_seq));
}

int main(int argc, char **argv)
{
    struct bench   b = { .runs = 200, .rows_max = 2048 };
    struct dev_cfg cfg = { .kind = DEV_CPU, .arena_bytes = (size_t)2 << 30, .n_rank = 1 };
    const char    *shape = "qwen3-8b";
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--device") && !strcmp(value, "ref"))
            cfg.kind = DEV_REF;
        else if (!strcmp(argv[i], "--device") && !strcmp(value, "cpu"))
            cfg.kind = DEV_CPU;
        else if (!strcmp(argv[i], "--device") && !strcmp(value, "cuda"))
            cfg.kind = DEV_CUDA;
        else if (!strcmp(argv[i], "--shape"))
            shape = value;
        else if (!strcmp(argv[i], "--gpu"))
            cfg.ordinal = (int)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--gemm-file"))
            cfg.gemm_file = value;
        else if (!strcmp(argv[i], "--cublaslt"))
            cfg.cublaslt = value;
        else if (!strcmp(argv[i], "--deterministic")) {
            cfg.deterministic = true;
            i--;
        } else if (!strcmp(argv[i], "--pdl")) {
            cfg.pdl = true;
            i--;
        } else if (!strcmp(argv[i], "--wgmma")) {
            cfg.wgmma = true;
            i--;
        } else if (!strcmp(argv[i], "--fp8-prefill")) {
            cfg.fp8_prefill = true;
            i--;
        } else if (!strcmp(argv[i], "--simd"))
            cfg.simd = value;
        else if (!strcmp(argv[i], "--threads"))
            cfg.n_thread = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--runs"))
            b.runs = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--rows-max"))
            b.rows_max = (uint32_t)strtoul(value, NULL, 10);
        else if (!strcmp(argv[i], "--only"))
            b.only = value;
        else if (!strcmp(argv[i], "--clock"))
            bench_clock = !strcmp(value, "cpu") ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
        else {
            fprintf(
                stderr,
                "bench_ops [--device ref|cpu] [--simd NAME] [--threads N] [--runs N] [--rows-max N] [--only SUBSTRING] [--clock wall|cpu]\n"
                "bench_ops --device cuda [--shape NAME] [--gpu N] [--gemm-file FILE] [--cublaslt FILE] [--deterministic] [--pdl] [--wgmma] [--fp8-prefill] [--only SUBSTRING]\n");
            return EXIT_USAGE;
        }
    }
    if (b.runs < 1 || b.runs > RUNS_MAX) b.runs = RUNS_MAX;
    if (cfg.kind == DEV_CUDA) return gpu_main(&cfg, shape, b.only);
    if (dev_open(&cfg, &b.d)) return EXIT_CONFIG;
    b.n_thread = cfg.n_thread ? cfg.n_thread : thread_cpu_count();
    if (cfg.kind == DEV_REF) b.n_thread = 1;
    b.simd = strstr(b.d->ops->name, "neon") ? "neon" : "scalar";
    if (strstr(b.d->ops->name, "avx2") || strstr(b.d->ops->name, "avx-vnni")) b.simd = "avx2";
    if (strstr(b.d->ops->name, "avx512") || strstr(b.d->ops->name, "amx")) b.simd = "avx512";
    CHECK(team_create(b.n_thread, &b.team) == ST_OK);
    b.noise = malloc((NOISE + 16384) * sizeof *b.noise);
    CHECK(b.noise);
    for (uint64_t i = 0; i < NOISE + 16384; i++) {
        struct rng_block r = rng_philox(1, 2, i);
        b.noise[i] = (rng_unit(r.x[0]) + rng_unit(r.x[1]) + rng_unit(r.x[2]) + rng_unit(r.x[3]) - 2) * 1.7f;
    }
    roofs(&b);
    static const uint32_t rows[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048 }, small[] = { 1, 4, 16, 128 };
    bool                  is_ref = cfg.kind == DEV_REF; /* some of it would take minutes there */
    for (int f = 0; f < FORMATS; f++) {
        bench_linear(&b, &cfg, &formats[f], 8192, 2048, is_ref ? 1 : MATRICES, rows, is_ref ? 1 : 11);
        if (is_ref) continue;
        bench_linear(&b, &cfg, &formats[f], 2048, 8192, MATRICES, rows, 11);
        bench_linear(&b, &cfg, &formats[f], 14336, 4096, MATRICES / 2, rows, 11);
        bench_linear(&b, &cfg, &formats[f], 4096, 14336, MATRICES / 2, rows, 11);
    }
    bench_linear(&b, &cfg, &formats[0], 1536, 256, 1, small, is_ref ? 1 : 4);
    bench_rows(&b, 1);
    bench_rows(&b, 512);
    bench_attn(&b, 32, 8, 128, is_ref ? 1 : 16, 2048, 1);
    if (!is_ref) bench_attn(&b, 32, 8, 128, 1, 256, 1);
    if (!is_ref) bench_attn(&b, 32, 8, 128, 1, 8192, 1);
    if (!is_ref) bench_attn(&b, 32, 8, 128, 1, 8192, 4); /* a draft of three and the token before it */
    if (!is_ref) bench_attn(&b, 8, 1, 128, 1, 16384, 1); /* more threads than KV heads */
    bench_attn(&b, 4, 2, 64, 1, 512, 1);
    if (!is_ref) bench_attn(&b, 4, 2, 64, 16, 512, 1);
    bench_attn(&b, 32, 8, 128, 1, 64, 1);
    if (!is_ref) bench_attn(&b, 32, 8, 128, 1, 2048, 512);
    if (!is_ref) bench_attn(&b, 32, 8, 128, 1, 512, 512);
    if (!is_ref) bench_attn(&b, 8, 4, 32, 1, 2048, 512);
    bench_moe(&b, small, is_ref ? 1 : 4);
    bench_sample(&b, 1, 151936);
    if (!is_ref) bench_sample(&b, 16, 151936);
    bench_small(&b, 1, 100, 1);
    if (is_ref) return 0;
    bench_small(&b, 1, 1000, 1);
    bench_small(&b, 8, 100, 1);
    bench_small(&b, 32, 100, 1);
    bench_small(&b, 1, 512, 512);
    bench_small(&b, 1, 2048, 512);
    team_free(b.team);
    dev_close(b.d);
    free(b.noise);
    return 0;
}
