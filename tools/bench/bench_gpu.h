/* bench_gpu: the part of bench_ops for devices whose memory is their own: every op at the sizes of a model, timed by
 * the device (dev_time: recorded once, replayed), weights and KV in turn so that they come from memory, against roofs
 * of the same run.
 * Over 500 lines: a list of measurements, one for each op, that share buffers and roofs. */
#pragma once
#include "base/check.h"
#include "base/rng.h"
#include "engine/batch.h"
#include "engine/model/model.h"
#include "bench_goals.h"
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GPU_COPIES_MAX = 64,
    GPU_ROWS = 8192,
    GPU_SEQS = 256,
    GPU_BLOCK = 16,
    GPU_LAYERS = 64,
    GPU_WINDOW_MIN = 512, /* tokens */
    GPU_DRAFT_MAX = 8,    /* rows of a sequence that are drafts */
    GPU_ATTN_TOKENS = 256 << 10
};
static const double GPU_COLD_BYTES = 400e6; /* several times the L2 cache of any GPU there is */

struct gpu_bench {
    struct device    *d;
    const char       *only;
    struct model_spec spec;
    bool              tiny;
    double            copy_gbs, gemm_tflops, scale,
        attn_gbs; /* scale: goals_scale; attn_gbs: decode over a long KV, 0: not measured */
    uint32_t            rows_max, seqs_max, ctx_max, pages_max;
    void               *x, *y; /* act, numbers: the widest input and output */
    float              *norm, *inv_freq;
    struct dev_kv       kv; /* several layers: in turn */
    struct dev_kv_layer kv_layer[GPU_LAYERS];
    uint32_t            kv_blocks; /* of one layer: the memory of the pool */
    struct batch        batch;
    struct batch_cfg    batch_cfg;
};

static bool gpu_wanted(const struct gpu_bench *b, const char *name) { return !b->only || strstr(name, b->only); }

static void gpu_report(const struct gpu_bench *b, const char *name, double s, double bytes, double flops)
{
    double gbs = bytes / s * 1e-9, tf = flops / s * 1e-12;
    printf("%-50s %10.2f", name, s * 1e6);
    bytes > 0 ? printf(" %9.1f %5.0f%%", gbs, 100 * gbs / b->copy_gbs) : printf(" %9s %6s", "-", "-");
    flops > 0 ? printf(" %9.2f %5.0f%%\n", tf, 100 * tf / b->gemm_tflops) : printf(" %9s %6s\n", "-", "-");
    fflush(stdout);
}

static void *gpu_take(struct gpu_bench *b, size_t bytes)
{
    void *p;
    if (b->d->ops->alloc(b->d, bytes, &p)) {
        fprintf(stderr, "bench_ops: the device has no room for %zu more bytes\n", bytes);
        exit(EXIT_SOFTWARE);
    }
    return p;
}
/* n numbers of the activations' type */
static void *gpu_noise(struct gpu_bench *b, size_t n, uint64_t seed)
{
    enum { WIDE = 1 << 12 };
    struct dev_weight w = {
        .data = gpu_take(b, (n + WIDE) * 2), .dtype = b->d->act, .n = (uint32_t)((n + WIDE - 1) / WIDE), .k = WIDE
    };
    dev_weight_fill(b->d, &w, 0, w.n, seed, 0, 0, WIDE, 1);
    return w.data;
}

/* ---------------------------------------------------------------- products */

struct gpu_linear {
    struct gpu_bench *b;
    struct dev_weight w[GPU_COPIES_MAX];
    uint32_t          n_w, m;
    bool              logits, norm; /* struct dev_matrix */
    enum op_end       end;
};
static void gpu_linear_once(void *arg, uint32_t i)
{
    struct gpu_linear    *a = arg;
    const struct dev_ops *op = a->b->d->ops;
    if (a->logits)
        op->logits(a->b->d, a->b->y, a->b->x, &a->w[i % a->n_w], a->m);
    else
        op->linear(a->b->d, a->b->y, a->b->x, &a->w[i % a->n_w], NULL, a->m);
}

static double gpu_linear_time(struct gpu_linear *a)
{
    uint32_t n = a->m > 512 ? 4 : 2 * a->n_w;
    return dev_time(a->b->d, n < 8 && a->m <= 512 ? 8 : n, gpu_linear_once, a);
}

/* Codes of any kind, row after row the same bytes but for where they begin. */
static void gpu_codes_fill(struct device *d, struct dev_weight *w, uint64_t seed)
{
    enum { ROWS = 64 };
    uint32_t n_group = w->q.group ? (w->k + w->q.group - 1) / w->q.group : 1;
    uint8_t *code = malloc(w->k + ROWS), *zero = malloc(n_group);
    float   *scale = malloc(n_group * sizeof *scale);
    if (!code || !zero || !scale) exit(EXIT_SOFTWARE);
    for (uint32_t i = 0; i < w->k + ROWS; i++)
        code[i] =
            (uint8_t)(rng_philox(seed, 1, i).x[0] & (dtype_is_half_byte(w->dtype) ? 15 : 0xb7)); /* no NaN of E4M3 */
    memset(zero, 7, n_group);
    for (uint32_t i = 0; i < n_group; i++) scale[i] = 0.001f;
    for (uint32_t r = 0; r < w->n; r += ROWS) {
        struct dev_codes c = { .code = code, .code_stride = 1, .scale = scale, .zero = w->q.zero ? zero : NULL };
        d->ops->quant_set(d, w, r, w->n - r < ROWS ? w->n - r : ROWS, &c);
    }
    free(code);
    free(zero);
    free(scale);
}

/* As many copies as make them cold, at most what is left. q NULL: plain. */
static bool gpu_weights(struct gpu_linear *a, const struct dev_quant *q, uint32_t n, uint32_t k)
{
    struct device *d = a->b->d;
    double         bytes = q ? (double)dev_quant_bytes(d, q, n, k) : 2.0 * n * k;
    uint32_t       want = a->b->tiny ? 2 : (uint32_t)(GPU_COLD_BYTES / bytes) + 1;
    if (want < 4 && !a->b->tiny) want = 4;
    if (want > GPU_COPIES_MAX) want = GPU_COPIES_MAX;
    for (a->n_w = 0; a->n_w < want; a->n_w++) {
        struct dev_weight *w = &a->w[a->n_w];
        if (q ? d->ops->quant_alloc(d, q, n, k, w) : d->ops->weight_alloc(d, d->act, n, k, w)) break;
        if (q)
            gpu_codes_fill(d, w, 10 + a->n_w);
        else
            dev_weight_fill(d, w, 0, n, 10 + a->n_w, 0, 0, k, 0.02f);
    }
    return a->n_w > 0;
}

static double gpu_weight_bytes(const struct dev_weight *w)
{
    return w->q.code == DT_F32 ? 2.0 * w->n * w->k : (double)w->bytes;
}

static struct op_fused gpu_joined(const struct gpu_linear *a, uint32_t i)
{
    return (struct op_fused){ .out = a->b->y,
                              .x = a->b->x,
                              .w = &a->w[i % a->n_w],
                              .norm = a->norm ? a->b->norm : NULL,
                              .eps = 1e-6f,
                              .m = a->m,
                              .end = a->end };
}
static void gpu_joined_once(void *arg, uint32_t i)
{
    struct gpu_linear *a = arg;
    struct op_fused    o = gpu_joined(a, i);
    a->b->d->ops->fused(a->b->d, &o);
}

/* The same products joined with what stands around them, where the device does that: what is saved are kernels, so the
 * roof is the one of the product alone. */
static void gpu_joins(struct gpu_linear *a, const char *what, uint32_t n, uint32_t k)
{
    const struct dev_ops *op = a->b->d->ops;
    char                  name[80];
    if (!op->fused || (!a->norm && a->end == OP_END_STORE)) return;
    for (a->m = 1; a->m <= 32 && a->m <= a->b->rows_max; a->m *= 2) {
        struct op_fused o = gpu_joined(a, 0);
        if (!op->fused(a->b->d, &o)) continue;
        snprintf(name, sizeof name, "joined %s n %u k %u m %u", what, n, k, a->m);
        gpu_report(a->b, name, dev_time(a->b->d, 2 * a->n_w < 8 ? 8 : 2 * a->n_w, gpu_joined_once, a),
                   gpu_weight_bytes(&a->w[0]) + 2.0 * a->m * k + 2.0 * a->m * n, 2.0 * a->m * n * k);
    }
}

static void gpu_linear(struct gpu_bench *b, const char *what, const struct dev_quant *q, const struct dev_matrix *w)
{
    static const uint32_t rows[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, 4096, 8192 };
    struct gpu_linear     a = { .b = b, .logits = w->logits, .norm = w->norm, .end = w->end };
    const uint32_t        n = w->n, k = w->k;
    const bool            logits = w->logits;
    char                  name[80];
    snprintf(name, sizeof name, "linear %s", what);
    if (!gpu_wanted(b, name) || !gpu_weights(&a, q, n, k)) return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i] > b->rows_max || (logits && rows[i] > b->seqs_max)) break;
        a.m = rows[i];
        snprintf(name, sizeof name, "linear %s n %u k %u m %u", what, n, k, a.m);
        double out = (logits ? 4.0 : 2.0) * a.m * n;
        gpu_report(b, name, gpu_linear_time(&a), gpu_weight_bytes(&a.w[0]) + 2.0 * a.m * k + out, 2.0 * a.m * n * k);
    }
    gpu_joins(&a, what, n, k);
}

/* The two largest matrices of a layer, as each kind of codes. */
static void gpu_codes(struct gpu_bench *b)
{
    static const struct {
        const char      *gate_up, *down;
        struct dev_quant q;
    } kinds[] = {
        { "gate_up codes int4", "down codes int4", { .code = DT_I4, .group = 128, .zero = true } },
        { "gate_up codes fp8", "down codes fp8", { .code = DT_F8E4M3, .group = 128 } },
        { "gate_up codes int8", "down codes int8", { .code = DT_I8 } },
        { "gate_up codes nvfp4", "down codes nvfp4", { .code = DT_F4E2M1, .group = 16 } },
    };
    const struct dev_matrix gate_up = { .n = 2 * b->spec.inter, .k = b->spec.hidden, .norm = true, .end = OP_END_GLU };
    const struct dev_matrix down = { .n = b->spec.hidden, .k = b->spec.inter, .end = OP_END_ADD };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        gpu_linear(b, kinds[i].gate_up, &kinds[i].q, &gate_up);
        gpu_linear(b, kinds[i].down, &kinds[i].q, &down);
    }
}

/* The matrices of a layer, and the head. q: outputs of the first. */
static void gpu_products(struct gpu_bench *b, uint32_t q)
{
    const struct model_spec *m = &b->spec;
    const struct {
        const char       *name;
        struct dev_matrix w;
    } all[] = { { "qkv", { .n = q, .k = m->hidden, .norm = true } },
                { "o", { .n = m->hidden, .k = m->n_head * m->head_dim, .end = OP_END_ADD } },
                { "gate_up", { .n = 2 * m->inter, .k = m->hidden, .norm = true, .end = OP_END_GLU } },
                { "down", { .n = m->hidden, .k = m->inter, .end = OP_END_ADD } },
                { "lm_head", { .n = m->vocab, .k = m->hidden, .logits = true } } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) gpu_linear(b, all[i].name, NULL, &all[i].w);
}

/* ---------------------------------------------------------------- rows */

struct gpu_row {
    struct gpu_bench *b;
    int               what;
    uint32_t          n, dim;
};
enum { ROW_NORM, ROW_ADD_NORM, ROW_SWIGLU };
static void gpu_row_once(void *arg, uint32_t i)
{
    struct gpu_row       *a = arg;
    struct gpu_bench     *b = a->b;
    const struct dev_ops *op = b->d->ops;
    (void)i;
    switch (a->what) {
    case ROW_NORM: op->rmsnorm(b->d, b->y, b->x, b->norm, a->n, a->dim, 1e-6f); break;
    case ROW_ADD_NORM:
        op->add_rmsnorm(b->d, b->y, b->x, (char *)b->y + 2 * (size_t)a->n * a->dim, b->norm, a->n, a->dim, 1e-6f);
        break;
    default: op->glu(b->d, b->y, b->x, a->n, a->dim, OP_SILU);
    }
}
static void gpu_rows(struct gpu_bench *b)
{
    static const uint32_t rows[] = { 1, 32, 128, 256, 2048, 4096, 8192 };
    static const struct {
        const char *name;
        double      passes; /* over [n, dim], read or written */
    } kind[] = { { "rmsnorm", 2 }, { "add_rmsnorm", 4 }, { "swiglu", 3 } };
    for (int k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i] <= b->rows_max; i++) {
            struct gpu_row a = { b, k, rows[i], k == ROW_SWIGLU ? b->spec.inter : b->spec.hidden };
            char           name[80];
            snprintf(name, sizeof name, "%s n %u dim %u", kind[k].name, a.n, a.dim);
            if (gpu_wanted(b, name))
                gpu_report(b, name, dev_time(b->d, 20, gpu_row_once, &a), kind[k].passes * 2 * a.n * a.dim, 0);
        }
}

/* ---------------------------------------------------------------- KV */

/* A third of what is left for KV. */
static void gpu_kv(struct gpu_bench *b)
{
    const struct model_spec *m = &b->spec;
    uint64_t                 block = GPU_BLOCK * dev_kv_heads_bytes(DT_BF16, m->n_kv_head, m->head_dim);
    uint64_t n = b->d->ops->free_bytes(b->d) / 3 / block, most = b->tiny ? 256 : (uint64_t)b->pages_max * 2;
    b->kv = (struct dev_kv){ .dtype = DT_BF16,
                             .n_block = (uint32_t)(n < most ? n : most),
                             .n_layer = 1,
                             .block_tokens = GPU_BLOCK,
                             .block_bytes = block,
                             .layer = b->kv_layer };
    for (uint32_t l = 0; l < GPU_LAYERS; l++)
        b->kv_layer[l] = (struct dev_kv_layer){ .offset = l * block, .bytes = block };
    b->kv_blocks = b->kv.n_block;
    b->kv.base = gpu_noise(b, (size_t)b->kv.n_block * block / 2, 3);
}

/* The same memory as blocks of rows in 8 bits. Codes and scales are of sizes that models have: none is NaN. */
static void gpu_kv8(struct gpu_bench *b)
{
    enum { PIECE = 1 << 20 };
    const struct model_spec *m = &b->spec;
    uint64_t was = b->kv_layer[0].bytes, block = GPU_BLOCK * dev_kv_heads_bytes(DT_F8E4M3, m->n_kv_head, m->head_dim);
    uint64_t bytes = b->kv_blocks * was;
    unsigned char *codes = malloc(PIECE);
    CHECK(codes);
    for (uint32_t i = 0; i < PIECE; i++) codes[i] = (unsigned char)(24 + (uint64_t)i * 37 % 96);
    for (uint64_t at = 0; at < bytes; at += PIECE)
        b->d->ops->to_device(b->d, (char *)b->kv.base + at, codes, bytes - at < PIECE ? bytes - at : PIECE);
    free(codes);
    b->kv.dtype = DT_F8E4M3;
    b->kv.n_layer = 1;
    b->kv.block_bytes = block;
    for (uint32_t l = 0; l < GPU_LAYERS; l++)
        b->kv_layer[l] = (struct dev_kv_layer){ .offset = l * block, .bytes = block };
    b->kv_blocks = (uint32_t)(bytes / block);
}

/* The same memory as a pool of as many layers as make `pages` of each cold together. */
static void gpu_kv_shape(struct gpu_bench *b, uint32_t pages)
{
    uint64_t block = b->kv.block_bytes / b->kv.n_layer;
    uint32_t want = (uint32_t)(GPU_COLD_BYTES / ((double)pages * (double)block)) + 1, fit = b->kv_blocks / pages;
    b->kv.n_layer = want < fit ? want : fit;
    if (!b->kv.n_layer) b->kv.n_layer = 1;
    if (b->kv.n_layer > GPU_LAYERS) b->kv.n_layer = GPU_LAYERS;
    b->kv.n_block = b->kv_blocks / b->kv.n_layer;
    b->kv.block_bytes = block * b->kv.n_layer;
}

/* ---------------------------------------------------------------- attention, qkv, sampling: ops that need a step
 * around them */

/* What the rows of a sequence in a step are: its next tokens; a chain of drafts; nodes of a tree of them; or a chain
 * once more, each row as a sequence of its own over the same blocks, which is what runs of rows are measured against. */
enum gpu_kind { GPU_TOKENS, GPU_CHAIN, GPU_TREE, GPU_SINGLY };

struct gpu_step {
    struct gpu_bench *b;
    enum gpu_kind     kind;
    uint32_t          n_seq, ctx, rows; /* as gpu_in_step was asked */
    struct dev_step   on;
    struct op_qkv     q;
    struct op_attn    a;
    struct op_sample  s;
    bool              fused; /* the device has done that */
};
static void gpu_qkv_once(void *arg, uint32_t i)
{
    struct gpu_step *p = arg;
    p->q.layer = i % p->b->kv.n_layer;
    p->b->d->ops->qkv(p->b->d, &p->q, &p->on.b, &p->b->kv);
}
static void gpu_attn_once(void *arg, uint32_t i)
{
    struct gpu_step *p = arg;
    p->a.layer = i % p->b->kv.n_layer;
    p->b->d->ops->attention(p->b->d, &p->a, &p->on.b, &p->b->kv);
}
static void gpu_sample_once(void *arg, uint32_t i)
{
    struct gpu_step *p = arg;
    (void)i;
    p->b->d->ops->sample(p->b->d, &p->s);
}

/* The word of node i: of a chain, or of a tree in which each node has two children. */
static uint64_t gpu_word(enum gpu_kind kind, uint32_t i)
{
    uint64_t word = UINT64_C(1) << i;
    while (i > 0) {
        i = kind == GPU_TREE ? (i - 1) / 2 : i - 1;
        word |= UINT64_C(1) << i;
    }
    return word;
}

/* Sequence s of the step: its pages, and of its ctx tokens the last `rows`. */
static void gpu_add(struct gpu_bench *b, enum gpu_kind kind, uint32_t s, uint32_t ctx, uint32_t rows, uint32_t *id,
                    uint32_t *page)
{
    uint32_t n_page = (ctx + GPU_BLOCK - 1) / GPU_BLOCK;
    for (uint32_t i = 0; i < n_page; i++)
        page[i] = (uint32_t)(((uint64_t)s * n_page + i) * 7919 % b->kv.n_block); /* scattered */
    for (uint32_t i = 0; i < rows; i++) id[i] = (s * 31 + i * 7) % b->spec.vocab;
    if (kind != GPU_SINGLY) {
        batch_add(&b->batch, id, rows, ctx - rows, page, n_page);
        return;
    }
    for (uint32_t i = 0; i < rows; i++)
        batch_add(&b->batch, id + i, 1, ctx - rows + i, page, (ctx - rows + i) / GPU_BLOCK + 1);
}

/* A step of n_seq sequences, whose last `rows` tokens of ctx are computed now, is begun; fn runs in it. */
static void gpu_in_step(struct gpu_bench *b, enum gpu_kind kind, uint32_t n_seq, uint32_t ctx, uint32_t rows,
                        const struct op_sample_row *how, void (*fn)(struct gpu_step *p))
{
    static uint64_t word[GPU_SEQS * GPU_DRAFT_MAX];
    uint32_t        n_page = (ctx + GPU_BLOCK - 1) / GPU_BLOCK, *page = malloc(n_page * sizeof *page),
             *id = malloc(rows * sizeof *id);
    const struct model_spec *m = &b->spec;
    CHECK(page && id);
    gpu_kv_shape(b, n_seq * n_page);
    batch_clear(&b->batch);
    for (uint32_t s = 0; s < n_seq; s++) gpu_add(b, kind, s, ctx, rows, id, page);
    bool words = kind == GPU_CHAIN || kind == GPU_TREE;
    for (uint32_t i = 0; words && i < n_seq * rows; i++) {
        word[i] = gpu_word(kind, i % rows);
        b->batch.pos[i] = ctx - rows + tree_count(word[i]) - 1;
    }
    for (uint32_t s = 0; s < n_seq; s++) {
        struct op_sample_row *r = batch_add_sample(&b->batch, (s + 1) * rows - 1);
        *r = how ? *how : (struct op_sample_row){ .top_p = 1, .repetition = 1 };
        r->seed = s;
    }
    struct dev_step       h = batch_step(&b->batch);
    struct gpu_step       p = { .b = b, .kind = kind, .n_seq = n_seq, .ctx = ctx, .rows = rows };
    const struct dev_ops *op = b->d->ops;
    if (words) h.b.tree = word;
    op->step_begin(b->d, &h, &p.on);
    p.q = (struct op_qkv){ b->x,
                           m->family->qk_norm ? b->norm : NULL,
                           m->family->qk_norm ? b->norm : NULL,
                           m->rms_eps,
                           b->inv_freq,
                           1,
                           m->n_head,
                           m->n_kv_head,
                           m->head_dim,
                           m->rot,
                           .layer = 0 };
    p.a = (struct op_attn){ b->y,       b->x, m->n_head, m->n_kv_head, m->head_dim, 0, 1 / sqrtf((float)m->head_dim),
                            .window = 0 };
    p.s = (struct op_sample){ .logits = b->y,
                              .n = n_seq,
                              .vocab = m->vocab,
                              .row = p.on.sample,
                              .hist = p.on.hist,
                              .ban = p.on.ban,
                              .allow = p.on.allow,
                              .bias = p.on.bias,
                              .id = p.on.out.id,
                              .logprob = p.on.out.logprob,
                              .rank = p.on.out.rank,
                              .top_id = p.on.out.top_id,
                              .top_logprob = p.on.out.top_logprob };
    fn(&p);
    op->step_end(b->d, &h, &p.on);
    if (op->step_wait(b->d, &h)) {
        fprintf(stderr, "bench_ops: the device is lost\n");
        exit(EXIT_SOFTWARE);
    }
    free(page);
    free(id);
}

static void gpu_attn_name(const struct gpu_step *p, char *name, size_t bytes)
{
    static const char *const drafts[] = { [GPU_CHAIN] = "", [GPU_TREE] = ", a tree", [GPU_SINGLY] = ", one by one" };
    const char              *kv8 = p->b->kv.dtype == DT_F8E4M3 ? " fp8 KV" : "";
    if (p->kind != GPU_TOKENS)
        snprintf(name, bytes, "attention drafts %u of %u ctx %u%s%s", p->n_seq, p->rows, p->ctx, kv8, drafts[p->kind]);
    else if (p->rows == 1)
        snprintf(name, bytes, "attention decode batch %u ctx %u%s", p->n_seq, p->ctx, kv8);
    else
        snprintf(name, bytes, "attention prefill %u of ctx %u%s", p->rows, p->ctx, kv8);
}

static void gpu_attn_case(struct gpu_step *p)
{
    struct gpu_bench        *b = p->b;
    const struct model_spec *m = &b->spec;
    uint32_t                 rows = p->rows, ctx = p->ctx, n = p->n_seq * rows;
    double                   width = (m->n_head + 2.0 * m->n_kv_head) * m->head_dim,
           seen = (double)n * (ctx - rows) + n * (rows + 1.0) / 2;
    double   token = (double)dev_kv_heads_bytes(b->kv.dtype, m->n_kv_head, m->head_dim), kv = p->n_seq * ctx * token;
    bool     kv8 = b->kv.dtype == DT_F8E4M3, decode = rows == 1 || p->kind != GPU_TOKENS;
    char     name[80];
    uint32_t turns = b->kv.n_layer < 8 ? 8 : b->kv.n_layer;
    if (!decode) turns = 4;
    gpu_attn_name(p, name, sizeof name);
    if (gpu_wanted(b, name)) {
        double s = dev_time(b->d, turns, gpu_attn_once, p), bytes = decode ? kv + 4.0 * n * m->n_head * m->head_dim : 0;
        gpu_report(b, name, s, bytes, decode ? 0 : 4 * seen * m->n_head * m->head_dim);
        /* the goal is for KV of so many tokens however they are spread: the slowest counts */
        if (rows == 1 && !kv8 && (uint64_t)p->n_seq * ctx >= GPU_ATTN_TOKENS &&
            (b->attn_gbs == 0 || bytes / s * 1e-9 < b->attn_gbs))
            b->attn_gbs = bytes / s * 1e-9;
    }
    if (p->kind != GPU_TOKENS) return;
    uint32_t window = ctx / 8;
    snprintf(name, sizeof name, "attention decode batch %u ctx %u window %u", n, ctx, window);
    if (rows == 1 && !kv8 && (window >= GPU_WINDOW_MIN || b->tiny) && gpu_wanted(b, name)) {
        p->a.window = window;
        double s = dev_time(b->d, turns, gpu_attn_once, p);
        p->a.window = 0;
        gpu_report(b, name, s, kv / 8 + 4.0 * n * m->n_head * m->head_dim, 0);
    }
    snprintf(name, sizeof name, "qkv rows %u%s", n, kv8 ? " fp8 KV" : "");
    if (gpu_wanted(b, name) && (rows > 1 || ctx == b->ctx_max || b->tiny))
        gpu_report(b, name, dev_time(b->d, 20, gpu_qkv_once, p), 4.0 * n * width + n * token, 0);
}

/* The product of q, k and v with its norm ahead and op qkv behind, in a step of single rows: what is saved is a kernel, so
 * the roof is the one of the product alone. */
static struct gpu_linear gpu_of_qkv;
static void              gpu_joined_qkv_once(void *arg, uint32_t i)
{
    struct gpu_step *p = arg;
    struct op_fused  o = gpu_joined(&gpu_of_qkv, i);
    p->q.layer = i % p->b->kv.n_layer;
    o.heads = &p->q;
    o.b = &p->on.b;
    o.kv = &p->b->kv;
    o.m = p->on.b.n_row;
    p->fused = p->b->d->ops->fused(p->b->d, &o);
}
static void gpu_joined_qkv_case(struct gpu_step *p)
{
    const uint32_t n = gpu_of_qkv.w[0].n, k = gpu_of_qkv.w[0].k, m = p->on.b.n_row, turns = 2 * gpu_of_qkv.n_w;
    char           name[80];
    p->q.qkv = p->b->y;
    gpu_joined_qkv_once(p, 0);
    if (!p->fused) return;
    snprintf(name, sizeof name, "joined qkv, kv n %u k %u m %u%s", n, k, m,
             p->b->kv.dtype == DT_F8E4M3 ? " fp8 KV" : "");
    gpu_report(p->b, name, dev_time(p->b->d, turns < 8 ? 8 : turns, gpu_joined_qkv_once, p),
               2.0 * n * k + 2.0 * m * k + 2.0 * m * n, 2.0 * m * n * k);
}
static void gpu_joined_qkv(struct gpu_bench *b)
{
    const struct model_spec *m = &b->spec;
    struct gpu_linear       *a = &gpu_of_qkv;
    if (!b->d->ops->fused || !gpu_wanted(b, "joined qkv, kv")) return;
    a->b = b;
    a->norm = true;
    a->end = OP_END_QKV;
    if (!a->n_w && !gpu_weights(a, NULL, (m->n_head + 2 * m->n_kv_head) * m->head_dim, m->hidden)) return;
    for (uint32_t rows = 1; rows <= 32 && rows <= b->seqs_max; rows *= 2)
        gpu_in_step(b, GPU_TOKENS, rows, GPU_BLOCK + 1, 1, NULL, gpu_joined_qkv_case);
}

static const char *gpu_sample_name;
static void        gpu_sample_case(struct gpu_step *p)
{
    char name[80];
    snprintf(name, sizeof name, "sample n %u vocab %u %s", p->s.n, p->s.vocab, gpu_sample_name);
    if (gpu_wanted(p->b, name))
        gpu_report(p->b, name, dev_time(p->b->d, 10, gpu_sample_once, p), 4.0 * p->s.n * p->s.vocab, 0);
}

/* Attention and qkv, over the pool as it is. */
static void gpu_attn(struct gpu_bench *b)
{
    static const uint32_t batch[] = { 1, 2, 8, 32, 128, 256 }, prompt[] = { 512, 2048, 4096, 8192 };
    uint32_t              ctx[] = { b->tiny ? 40 : 1024, b->ctx_max };
    for (int c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof batch / sizeof *batch && batch[i] <= b->seqs_max; i++)
            if ((uint64_t)batch[i] * (ctx[c] / GPU_BLOCK + 1) <=
                (b->kv_blocks < b->pages_max ? b->kv_blocks : b->pages_max))
                gpu_in_step(b, GPU_TOKENS, batch[i], ctx[c], 1, NULL, gpu_attn_case);
    for (int c = 0; c < 2; c++)
        for (uint32_t rows = 2; rows <= GPU_DRAFT_MAX; rows *= 2) {
            gpu_in_step(b, GPU_CHAIN, 1, ctx[c], rows, NULL, gpu_attn_case);
            gpu_in_step(b, GPU_SINGLY, 1, ctx[c], rows, NULL, gpu_attn_case);
        }
    for (int c = 0; c < 2; c++) gpu_in_step(b, GPU_TREE, 1, ctx[c], GPU_DRAFT_MAX, NULL, gpu_attn_case);
    for (int i = 0; i < 4; i++)
        if (prompt[i] <= b->rows_max && prompt[i] <= b->ctx_max)
            gpu_in_step(b, GPU_TOKENS, 1, prompt[i], prompt[i], NULL, gpu_attn_case);
    if (b->tiny) gpu_in_step(b, GPU_TOKENS, 1, b->rows_max, b->rows_max, NULL, gpu_attn_case);
    if (!b->tiny)
        gpu_in_step(b, GPU_TOKENS, 1, b->ctx_max, 2048, NULL, gpu_attn_case); /* the last chunk of a long prompt */
}

static void gpu_sampling(struct gpu_bench *b)
{
    static const uint32_t batch[] = { 1, 8, 128 };
    static const struct {
        const char          *name;
        struct op_sample_row row;
    } how[] = { { "greedy", { .temperature = 0, .top_p = 1, .repetition = 1 } },
                { "temperature", { .temperature = 0.8f, .top_p = 1, .repetition = 1 } },
                { "top-p 0.9", { .temperature = 0.8f, .top_p = 0.9f, .repetition = 1 } },
                { "top-k 50 top-p 0.9", { .temperature = 0.8f, .top_p = 0.9f, .top_k = 50, .repetition = 1 } } };
    for (size_t h = 0; h < sizeof how / sizeof *how; h++)
        for (size_t i = 0; i < sizeof batch / sizeof *batch && batch[i] <= b->seqs_max; i++) {
            gpu_sample_name = how[h].name;
            gpu_in_step(b, GPU_TOKENS, batch[i], 16, 1, &how[h].row, gpu_sample_case);
        }
}

/* ---------------------------------------------------------------- mixture of experts, at the sizes of Qwen3-30B-A3B */

struct gpu_moe {
    struct gpu_bench *b;
    struct op_moe     o;
    char             *logits;
    struct dev_weight router;
    void             *routed; /* room for its logits */
};
static void gpu_moe_once(void *arg, uint32_t i)
{
    struct gpu_moe *a = arg;
    a->o.router_logits = a->logits + (size_t)(i % 8) * a->o.n_expert * 2; /* other experts each time */
    a->b->d->ops->moe(a->b->d, &a->o);
}
/* With the router's product ahead of them: other rows each time. */
static struct op_router gpu_router(const struct gpu_moe *a, uint32_t i)
{
    return (struct op_router){ .out = a->routed,
                               .x = (const char *)a->b->x + (size_t)(i % 8) * a->o.hidden * 2,
                               .w = &a->router };
}
static void gpu_routed_once(void *arg, uint32_t i)
{
    struct gpu_moe  *a = arg;
    struct op_router r = gpu_router(a, i);
    (void)a->b->d->ops->routed(a->b->d, &r, &a->o);
}
static void gpu_apart_once(void *arg, uint32_t i)
{
    struct gpu_moe  *a = arg;
    struct op_router r = gpu_router(a, i);
    a->o.router_logits = a->routed;
    a->b->d->ops->linear(a->b->d, r.out, r.x, r.w, NULL, a->o.n_row);
    a->b->d->ops->moe(a->b->d, &a->o);
}
/* Few rows: the router, the lists and the experts by ops one after another, and by one that joins them. Bytes are those
 * of the experts, which are the same both ways, and of the router. */
static void gpu_routers(struct gpu_moe *a, uint32_t m, double bytes, double flops)
{
    const struct dev_ops *op = a->b->d->ops;
    struct op_router      r = gpu_router(a, 0);
    char                  name[80];
    a->o.n_row = m;
    if (!op->routed || !op->routed(a->b->d, &r, &a->o)) return;
    snprintf(name, sizeof name, "router and moe %ux%u m %u", a->o.n_expert, a->o.top_k, m);
    gpu_report(a->b, name, dev_time(a->b->d, 8, gpu_apart_once, a), bytes, flops);
    snprintf(name, sizeof name, "routed moe %ux%u m %u", a->o.n_expert, a->o.top_k, m);
    gpu_report(a->b, name, dev_time(a->b->d, 8, gpu_routed_once, a), bytes, flops);
}
static struct op_moe gpu_moe_size(bool tiny)
{
    return tiny ? (struct op_moe){ .n_expert = 8, .top_k = 2, .hidden = 64, .inter = 32, .renorm = true }
                : (struct op_moe){ .n_expert = 128, .top_k = 8, .hidden = 2048, .inter = 768, .renorm = true };
}
static void gpu_moe(struct gpu_bench *b)
{
    static const uint32_t    rows[] = { 1, 8, 16, 32, 128, 512, 1024, 2048, 4096 };
    static struct dev_weight gate_up[128], down[128];
    struct gpu_moe           a = { .b = b, .o = gpu_moe_size(b->tiny) };
    if (!gpu_wanted(b, "moe")) return;
    for (uint32_t e = 0; e < a.o.n_expert; e++) {
        if (b->d->ops->weight_alloc(b->d, b->d->act, 2 * a.o.inter, a.o.hidden, &gate_up[e]) ||
            b->d->ops->weight_alloc(b->d, b->d->act, a.o.hidden, a.o.inter, &down[e]))
            return;
        dev_weight_fill(b->d, &gate_up[e], 0, 2 * a.o.inter, 200 + e, 0, 0, a.o.hidden, 0.02f);
        dev_weight_fill(b->d, &down[e], 0, a.o.hidden, 400 + e, 0, 0, a.o.inter, 0.02f);
    }
    if (b->d->ops->weight_alloc(b->d, b->d->act, a.o.n_expert, a.o.hidden, &a.router)) return;
    dev_weight_fill(b->d, &a.router, 0, a.o.n_expert, 199, 0, 0, a.o.hidden, 0.02f);
    a.routed = gpu_noise(b, (size_t)b->rows_max * a.o.n_expert, 10);
    a.logits = gpu_noise(b, (size_t)(b->rows_max + 8) * a.o.n_expert, 9);
    a.o.x = b->x;
    a.o.out = b->y;
    a.o.gate_up = gate_up;
    a.o.down = down;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i] <= b->rows_max; i++) {
        char   name[80];
        double each = 3.0 * a.o.hidden * a.o.inter,
               used = a.o.n_expert * (1 - pow(1 - (double)a.o.top_k / a.o.n_expert, rows[i]));
        a.o.n_row = rows[i];
        snprintf(name, sizeof name, "moe %ux%u hidden %u inter %u m %u", a.o.n_expert, a.o.top_k, a.o.hidden, a.o.inter,
                 rows[i]);
        gpu_report(b, name, dev_time(b->d, 8, gpu_moe_once, &a), 2 * used * each, 2.0 * rows[i] * a.o.top_k * each);
        double router = (double)a.o.n_expert * a.o.hidden;
        gpu_routers(&a, rows[i], 2 * (used * each + router), 2.0 * rows[i] * (a.o.top_k * each + router));
    }
}

/* ---------------------------------------------------------------- all of it */

static void gpu_roofs(struct gpu_bench *b)
{
    double read = dev_probe(b->d, DEV_PROBE_READ), triad = dev_probe(b->d, DEV_PROBE_TRIAD),
           gap = dev_probe(b->d, DEV_PROBE_GAP);
    struct gpu_linear a = { .b = b, .m = b->tiny ? 64 : 8192 };
    b->copy_gbs = dev_probe(b->d, DEV_PROBE_COPY);
    uint32_t n = b->tiny ? 64 : 8192;
    if (b->d->ops->weight_alloc(b->d, b->d->act, n, n, &a.w[0])) exit(EXIT_SOFTWARE);
    dev_weight_fill(b->d, &a.w[0], 0, n, 5, 0, 0, n, 0.02f);
    a.n_w = 1;
    b->gemm_tflops = 2.0 * a.m * n * n / dev_time(b->d, 4, gpu_linear_once, &a) * 1e-12;
    printf("roofs: copy %.0f GB/s, read %.0f, triad %.0f; product %u^3 %.2f TFLOP/s\n", b->copy_gbs, read, triad, n,
           b->gemm_tflops);
    printf("between two kernels of a graph that do nothing: %.2f us, with programmatic dependent launch %.2f us\n\n",
           gap, dev_probe(b->d, DEV_PROBE_GAP_PDL));
    printf("%-50s %10s %9s %6s %9s %6s\n", "op", "us", "GB/s", "copy", "TFLOP/s", "gemm");
}

static uint32_t gpu_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void gpu_step_init(struct gpu_bench *b)
{
    const struct model_spec *m = &b->spec;
    struct op_moe            moe = gpu_moe_size(b->tiny);
    b->batch_cfg = (struct batch_cfg){ .rows_max = b->rows_max,
                                       .seqs_max = b->seqs_max,
                                       .pages_max = b->pages_max,
                                       .hist_max = 64,
                                       .ban_max = 64,
                                       .allow_max = 64,
                                       .bias_max = 64 };
    struct dev_limits lim = { .rows_max = b->rows_max,
                              .seqs_max = b->seqs_max,
                              .pages_max = b->pages_max,
                              .hist_max = 64,
                              .ban_max = 64,
                              .allow_max = 64,
                              .bias_max = 64,
                              .logit_rows_max = b->seqs_max,
                              .vocab = m->vocab,
                              .n_head = m->n_head,
                              .n_kv_head = m->n_kv_head,
                              .head_dim = m->head_dim,
                              .hidden = moe.hidden,
                              .n_expert = moe.n_expert,
                              .top_k = moe.top_k,
                              .inter = moe.inter };
    if (b->d->ops->step_init(b->d, &lim) || batch_init(&b->batch, &b->batch_cfg)) exit(EXIT_SOFTWARE);
}

static int gpu_main(const struct dev_cfg *cfg, const char *shape, const char *only)
{
    struct gpu_bench b = { .only = only, .tiny = !strcmp(shape, "tiny") };
    struct dev_cfg   dev = *cfg;
    struct source    src;
    char             err[400];
    if (!model_shape(shape, &src) || model_spec_load(&src, &b.spec, err, sizeof err)) {
        fprintf(stderr, "bench_ops: no shape %s; there are %s\n", shape, model_shape_names());
        return EXIT_USAGE;
    }
    const struct model_spec *m = &b.spec;
    dev.arena_bytes = b.tiny ? (size_t)256 << 20 : 0;
    dev.eager = true; /* ops are timed one by one */
    if (dev_open(&dev, &b.d)) return EXIT_CONFIG;
    b.rows_max = b.tiny ? 64 : GPU_ROWS;
    b.seqs_max = b.tiny ? 8 : GPU_SEQS;
    b.ctx_max = b.tiny ? 200 : 8192;
    b.pages_max = b.tiny ? 8 * 14 : 128 * (8192 / GPU_BLOCK + 1); /* 128 sequences of 8k */
    uint32_t q = (m->n_head + 2 * m->n_kv_head) * m->head_dim, moe = gpu_moe_size(b.tiny).hidden;
    uint32_t in = gpu_max(gpu_max(q, 2 * m->inter), gpu_max(m->hidden, moe)), out = gpu_max(in, 2 * m->hidden);
    size_t   logits = 2 * (size_t)b.seqs_max * m->vocab, y = (size_t)b.rows_max * out; /* elements of 2 bytes */
    if (!b.tiny && in < 8192) in = 8192;
    b.x = gpu_noise(&b, (size_t)b.rows_max * in, 1);
    b.y = gpu_noise(&b, y > logits ? y : logits, 2);
    float *ones = malloc(m->hidden * sizeof *ones), *inv = malloc(m->rot * sizeof *inv);
    CHECK(ones && inv);
    for (uint32_t i = 0; i < m->hidden; i++) ones[i] = 1;
    model_rope(m, inv);
    b.norm = gpu_take(&b, m->hidden * sizeof *ones);
    b.inv_freq = gpu_take(&b, m->rot / 2 * sizeof *inv);
    b.d->ops->to_device(b.d, b.norm, ones, m->hidden * sizeof *ones);
    b.d->ops->to_device(b.d, b.inv_freq, inv, m->rot / 2 * sizeof *inv);
    free(ones);
    free(inv);
    gpu_step_init(&b);
    gpu_roofs(&b);
    gpu_products(&b, q);
    gpu_codes(&b);
    gpu_rows(&b);
    gpu_moe(&b);
    gpu_kv(&b);
    gpu_attn(&b);
    gpu_joined_qkv(&b);
    gpu_sampling(&b);
    gpu_kv8(&b);
    gpu_attn(&b);
    gpu_joined_qkv(&b);
    struct dev_info info;
    char            why[200];
    if (dev_list(&info, 1, why, sizeof why)) b.scale = goals_scale(info.name, shape);
    goals_title(stdout);
    goal_print(stdout, &bench_goals[GOAL_ATTENTION], b.attn_gbs > 0 ? b.attn_gbs : (double)NAN, b.scale);
    batch_free(&b.batch);
    model_spec_free(&b.spec);
    dev_close(b.d);
    return 0;
}
