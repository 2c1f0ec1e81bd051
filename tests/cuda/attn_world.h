/* attn_world: sequences with their queries and a KV pool on two devices, for the tests of attention.
 * Q, K and V of every position are random numbers, rounded as the CUDA device has them; the pool is NaN where no token
 * lies and pages are dealt in no order. A step names, for each sequence, which rows it computes. */
#pragma once
#include "cuda/cuda_test.h"
#include "kernels/cuda/cuda.h"
#include "kernels/kv8.h"

enum {
    AW_SEQS = 8,
    AW_ROWS = 2048,
    AW_LAYERS = 2,
    AW_LAYER = 1,
    AW_PAGES = 4096,
    AW_PARTS = 1280,
    AW_ITEMS = 768,
    AW_RUNS = 40
};

struct aw_shape {
    uint32_t   n_head, n_kv_head, dim, block_tokens, window;
    enum dtype act;
    float      cap;
    bool       sinks, chunked;
    enum dtype kv; /* F32 (0): as act */
};
static inline enum dtype aw_kv(const struct aw_shape *s) { return s->kv == DT_F32 ? s->act : s->kv; }
struct aw_world {
    struct aw_shape s;
    uint32_t        n_seq, len[AW_SEQS], page0[AW_SEQS + 1]; /* page0: first page of each in the order of dealing */
    uint32_t        n_block, width;
    float          *qkv[AW_SEQS]; /* [len][width] */
    float           sinks[32];
    uint16_t       *pool; /* as on the devices */
    size_t          pool_bytes;
    struct dev_kv   kv;
    const uint64_t *tree[AW_SEQS]; /* NULL, or words of the nodes in slots base .. of a sequence */
    uint32_t        base[AW_SEQS];
};
/* rows [from, to) of sequence seq of the world; none: padding of a graph's bucket */
struct aw_part {
    uint32_t seq, from, to;
};

static inline uint32_t aw_block(const struct aw_world *w, uint32_t seq, uint32_t p)
{
    return ((w->page0[seq] + p) * 7 + 3) % w->n_block;
}
/* Where the row of token t lies in the pool. */
static inline void *aw_at(const struct aw_world *w, uint32_t seq, uint32_t t, uint32_t head, bool v)
{
    const struct dev_kv *kv = &w->kv;
    uint64_t             block = aw_block(w, seq, t / kv->block_tokens) * kv->block_bytes + kv->layer[AW_LAYER].offset;
    uint64_t             head_bytes = kv->block_tokens * dev_kv_heads_bytes(kv->dtype, 1, w->s.dim) / 2;
    return (char *)w->pool + block + ((size_t)v * w->s.n_kv_head + head) * head_bytes +
           (size_t)(t % kv->block_tokens) * w->s.dim * dtype_bytes(kv->dtype);
}
/* K or V of a token and head in qkv. */
static inline float *aw_numbers(const struct aw_world *w, uint32_t seq, uint32_t t, uint32_t head, bool v)
{
    return w->qkv[seq] + (size_t)t * w->width + (w->s.n_head + (v ? w->s.n_kv_head : 0) + head) * w->s.dim;
}
/* K and V of token t go from qkv to the pool. */
static inline void aw_append(struct aw_world *w, uint32_t seq, uint32_t t)
{
    size_t scale_at = kv8_scale_at(w->s.block_tokens, t % w->s.block_tokens, w->s.dim);
    for (uint32_t h = 0; h < w->s.n_kv_head; h++)
        for (int v = 0; v < 2; v++) {
            void        *to = aw_at(w, seq, t, h, v);
            const float *x = aw_numbers(w, seq, t, h, v);
            if (w->kv.dtype == DT_F8E4M3) {
                kv8_store(to, scale_at, x, w->s.dim);
                continue;
            }
            for (uint32_t i = 0; i < w->s.dim; i++)
                ((uint16_t *)to)[i] = w->kv.dtype == DT_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        }
}
/* K and V of token t in the pool are no numbers, as of a token that has not come. */
static inline void aw_forget(struct aw_world *w, uint32_t seq, uint32_t t)
{
    size_t scale_at = kv8_scale_at(w->s.block_tokens, t % w->s.block_tokens, w->s.dim);
    for (uint32_t h = 0; h < w->s.n_kv_head; h++)
        for (int v = 0; v < 2; v++) {
            char *at = aw_at(w, seq, t, h, v);
            memset(at, 0xff, w->s.dim * dtype_bytes(w->kv.dtype));
            if (w->kv.dtype == DT_F8E4M3) at[scale_at] = (char)0xff;
        }
}
static inline struct aw_world aw_make(struct aw_shape s, const uint32_t *len, uint32_t n_seq)
{
    struct aw_world w = { .s = s, .n_seq = n_seq, .width = (s.n_head + 2 * s.n_kv_head) * s.dim };
    for (uint32_t i = 0; i < n_seq; i++) {
        w.len[i] = len[i];
        w.page0[i + 1] = w.page0[i] + (len[i] + s.block_tokens - 1) / s.block_tokens;
        w.qkv[i] = op_random((size_t)len[i] * w.width, 40 + i, 1.5f);
        ct_round(w.qkv[i], (size_t)len[i] * w.width, s.act);
    }
    for (uint32_t h = 0; h < 32; h++) w.sinks[h] = 6.0f - 0.7f * (float)(h * 5 % 17);
    w.n_block = w.page0[n_seq] + 5;
    w.n_block += w.n_block % 7 == 0; /* so that no two pages fall together */
    w.kv = (struct dev_kv){
        .dtype = aw_kv(&s), .n_block = w.n_block, .n_layer = AW_LAYERS, .block_tokens = s.block_tokens
    };
    op_kv_layers(&w.kv, s.n_kv_head, s.dim);
    w.pool_bytes = w.kv.block_bytes * w.n_block;
    w.pool = malloc(w.pool_bytes);
    memset(w.pool, 0xff, w.pool_bytes);
    for (uint32_t i = 0; i < n_seq; i++)
        for (uint32_t t = 0; t < len[i]; t++) aw_append(&w, i, t);
    return w;
}
static inline void aw_free(struct aw_world *w)
{
    for (uint32_t i = 0; i < w->n_seq; i++) free(w->qkv[i]);
    free(w->pool);
}

/* The host's arrays of a step, and the same on the device. */
struct aw_step {
    uint32_t pos[AW_ROWS], row_seq[AW_ROWS], row_start[AW_SEQS + 1], page_start[AW_SEQS + 1], page[AW_PAGES],
        slot[AW_ROWS], len[AW_RUNS];
    uint64_t               tree[AW_ROWS];
    uint32_t               tile_seq[64], tile_row[64], item_seq[AW_ITEMS], item_chunk[AW_ITEMS], seq_item[AW_SEQS + 1];
    uint32_t               chunk[1];
    struct cuda_attn_run   run[AW_RUNS];
    struct dev_batch       b, on;
    struct cuda_attn_lists l;
    float                 *q; /* [n_row][width] */
};
static inline uint32_t aw_pages(const struct aw_world *w, const struct aw_part *p)
{
    return p->from == p->to ? 0 : (p->to + w->s.block_tokens - 1) / w->s.block_tokens;
}
/* Parts of one row stand first. Padding: sequences without rows where rows_too is not set, else with a row of no
 * sequence. */
static inline void aw_plan(const struct aw_world *w, const struct cuda_attn_split *split, const struct aw_part *p,
                           uint32_t n, bool rows_too, uint32_t n_item_pad, struct aw_step *st)
{
    uint32_t row = 0, page = 0, n_decode = 0;
    bool     trees = false;
    memset(st, 0xff, sizeof *st);
    for (uint32_t i = 0; i < n; i++) {
        st->row_start[i] = row;
        st->page_start[i] = page;
        for (uint32_t t = p[i].from; t < p[i].to; t++) {
            bool node = w->tree[p[i].seq] && t >= w->base[p[i].seq];
            st->tree[row] = node ? w->tree[p[i].seq][t - w->base[p[i].seq]] : 0;
            st->pos[row] = node ? w->base[p[i].seq] + tree_count(st->tree[row]) - 1 : t;
            st->slot[row] = t;
            st->row_seq[row++] = i;
        }
        if (p[i].from == p[i].to && rows_too) {
            st->pos[row] = st->slot[row] = 0;
            st->tree[row] = 0;
            st->row_seq[row++] = UINT32_MAX;
        }
        for (uint32_t j = 0; j < aw_pages(w, &p[i]); j++) st->page[page++] = aw_block(w, p[i].seq, j);
        n_decode += p[i].to == p[i].from + 1 || p[i].to == p[i].from;
        trees = trees || w->tree[p[i].seq];
    }
    assert_true(row <= AW_ROWS && page <= AW_PAGES);
    st->row_start[n] = row;
    st->page_start[n] = page;
    st->b = (struct dev_batch){ .n_row = row,
                                .n_seq = n,
                                .n_page = page,
                                .pos = st->pos,
                                .row_seq = st->row_seq,
                                .row_start = st->row_start,
                                .page_start = st->page_start,
                                .page = st->page,
                                .tree = trees ? st->tree : NULL };
    uint32_t n_run = n_item_pad ? 0 : cuda_attn_runs(split, &st->b), n_list = n_run ? n_run : n_decode;
    st->l = (struct cuda_attn_lists){ .tile_seq = st->tile_seq,
                                      .tile_row = st->tile_row,
                                      .item_seq = st->item_seq,
                                      .item_chunk = st->item_chunk,
                                      .seq_item = st->seq_item,
                                      .chunk = st->chunk,
                                      .n_decode_pad = n_decode,
                                      .n_item_pad = n_item_pad ? n_item_pad : cuda_attn_items_max(split, n_list),
                                      .run = st->run,
                                      .n_run_pad = n_run,
                                      .n_part = AW_PARTS };
    assert_true(st->l.n_item_pad <= AW_ITEMS && n_run <= AW_RUNS && cuda_attn_tiles_max(row, n) <= 64);
    cuda_attn_fill(split, &st->b, st->len, &st->l);
    st->q = malloc(((size_t)row + 1) * w->width * sizeof *st->q);
    for (uint32_t r = 0; r < row; r++)
        for (uint32_t i = 0; i < w->width; i++)
            st->q[(size_t)r * w->width + i] =
                st->row_seq[r] == UINT32_MAX ? NAN : w->qkv[p[st->row_seq[r]].seq][(size_t)st->slot[r] * w->width + i];
}

/* What attention works on, on the device; made once, filled for every step, so that a graph can be replayed. */
struct aw_device {
    struct device         *d;
    struct dev_kv          kv;
    struct aw_step        *at; /* device */
    void                  *qkv, *out;
    float                 *sinks;
    float                 *partial;
    uint32_t              *arrived;
    size_t                 out_bytes;
    struct cuda_attn_split split;
};
static inline struct aw_device aw_open(const struct aw_world *w, bool deterministic)
{
    struct aw_device a = { .kv = w->kv };
    struct dev_cfg   cfg = { .kind = DEV_CUDA,
                             .arena_bytes = 256u << 20,
                             .n_rank = 1,
                             .act = w->s.act,
                             .deterministic = deterministic,
                             .pdl = true };
    assert_int_equal(dev_open(&cfg, &a.d), ST_OK);
    a.split = cuda_attn_split(cuda_of(a.d), w->s.n_head, w->s.n_kv_head, w->s.dim);
    a.kv.base = ct_bytes(a.d, w->pool, w->pool_bytes);
    a.at = ct_alloc(a.d, sizeof *a.at);
    a.qkv = ct_alloc(a.d, (size_t)AW_ROWS * w->width * 2);
    if (w->s.sinks) a.sinks = ct_bytes(a.d, w->sinks, sizeof w->sinks);
    a.out_bytes = (size_t)AW_ROWS * w->s.n_head * w->s.dim * 2;
    a.out = ct_alloc(a.d, a.out_bytes);
    a.partial = ct_alloc(a.d, AW_PARTS * (size_t)w->s.n_head * cuda_attn_part(w->s.dim) * sizeof *a.partial);
    uint32_t zero[2 * AW_RUNS * 32] = { 0 };
    assert_true(w->s.n_head <= 32);
    a.arrived = ct_bytes(a.d, zero, 2 * AW_RUNS * w->s.n_head * sizeof *zero);
    return a;
}
/* Copies a step to the device; n_decode, n_tile and n_item of the launch are the padded ones. */
static inline void aw_upload(struct aw_device *a, const struct aw_world *w, struct aw_step *st)
{
    ct_put(a->d, a->at, st, sizeof *st);
    ct_put_as(a->d, a->qkv, w->s.act, st->q, (size_t)st->b.n_row * w->width);
    st->on = (struct dev_batch){ .n_row = st->b.n_row,
                                 .n_seq = st->b.n_seq,
                                 .n_page = st->b.n_page,
                                 .pos = a->at->pos,
                                 .row_seq = a->at->row_seq,
                                 .row_start = a->at->row_start,
                                 .page_start = a->at->page_start,
                                 .page = a->at->page,
                                 .tree = st->b.tree ? a->at->tree : NULL };
    cuda_of(a->d)->attn = (struct cuda_attn_plan){
        st->l.n_decode_pad, st->l.n_tile,    a->at->tile_seq, a->at->tile_row,  st->l.n_item_pad, a->at->item_seq,
        a->at->item_chunk,  a->at->seq_item, a->at->chunk,    a->partial,       AW_PARTS,         a->arrived,
        st->l.n_run,        st->l.n_run_row, st->l.run_most,  st->l.run_spread, a->at->run
    };
}
static inline struct op_attn aw_op(const struct aw_world *w, void *out, const void *qkv, const float *sinks)
{
    return (struct op_attn){ .out = out,
                             .qkv = qkv,
                             .n_head = w->s.n_head,
                             .n_kv_head = w->s.n_kv_head,
                             .head_dim = w->s.dim,
                             .layer = AW_LAYER,
                             .scale = 1 / sqrtf((float)w->s.dim),
                             .window = w->s.window,
                             .cap = w->s.cap,
                             .sinks = sinks,
                             .chunked = w->s.chunked };
}
static inline void aw_enqueue(struct aw_device *a, const struct aw_world *w, const struct aw_step *st)
{
    struct op_attn o = aw_op(w, a->out, a->qkv, a->sinks);
    a->d->ops->attention(a->d, &o, &st->on, &a->kv);
}
/* The result of a step as it lies on the device; beyond the step's rows nothing may have been written. */
static inline uint16_t *aw_result(struct aw_device *a, const struct aw_world *w, const struct aw_step *st)
{
    uint16_t *out = malloc(a->out_bytes);
    ct_get(a->d, out, a->out, a->out_bytes);
    for (uint32_t r = 0; r < AW_ROWS; r++)
        for (uint32_t i = 0; i < w->s.n_head * w->s.dim && (r >= st->b.n_row || st->row_seq[r] == UINT32_MAX); i++)
            assert_int_equal(out[(size_t)r * w->s.n_head * w->s.dim + i], 0xffff);
    uint32_t arrived[2 * AW_RUNS * 32];
    ct_get(a->d, arrived, a->arrived, 2 * AW_RUNS * w->s.n_head * sizeof *arrived);
    for (uint32_t i = 0; i < 2 * AW_RUNS * w->s.n_head; i++) assert_int_equal(arrived[i], 0);
    return out;
}
/* One step from its parts; the caller frees the result. */
static inline uint16_t *aw_run(struct aw_device *a, const struct aw_world *w, const struct aw_part *p, uint32_t n,
                               bool rows_too)
{
    struct aw_step *st = malloc(sizeof *st);
    aw_plan(w, &a->split, p, n, rows_too, 0, st);
    aw_upload(a, w, st);
    ct_poison(a->d, a->out, a->out_bytes);
    ct_poison(a->d, a->partial, AW_PARTS * (size_t)w->s.n_head * cuda_attn_part(w->s.dim) * sizeof *a->partial);
    aw_enqueue(a, w, st);
    uint16_t *out = aw_result(a, w, st);
    free(st->q);
    free(st);
    return out;
}
/* A number of a result. */
static inline float aw_float(const struct aw_world *w, uint16_t x)
{
    return w->s.act == DT_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}
/* What ref says, from the same pool. */
static inline float *aw_want(const struct aw_world *w, const struct aw_part *p, uint32_t n)
{
    struct device         *ref = ct_open_ref();
    struct aw_step        *st = malloc(sizeof *st);
    struct cuda_attn_split split = { 1, 8, false, 1, 1 };
    struct dev_kv          kv = w->kv;
    uint32_t               rows = 0;
    for (uint32_t i = 0; i < n; i++) rows += p[i].to - p[i].from;
    float *out = calloc((size_t)rows + 1, w->s.n_head * w->s.dim * sizeof *out);
    aw_plan(w, &split, p, n, false, 256, st);
    kv.base = w->pool;
    struct op_attn o = aw_op(w, out, st->q, w->s.sinks ? w->sinks : NULL);
    ref->ops->attention(ref, &o, &st->b, &kv);
    free(st->q);
    free(st);
    dev_close(ref);
    return out;
}
static inline void aw_assert_close(const struct aw_world *w, const uint16_t *got, const float *want,
                                   const struct aw_part *p, uint32_t n, const char *what)
{
    size_t rows = 0;
    for (uint32_t i = 0; i < n; i++) rows += p[i].to - p[i].from;
    rows *= w->s.n_head * w->s.dim;
    float *x = malloc(rows * sizeof *x);
    for (size_t i = 0; i < rows; i++) x[i] = aw_float(w, got[i]);
    /* weights are rounded to the pool's type for the product with V, the result to act (and q of F16 to bf16 where the
     * pool is of that) */
    bool half = w->kv.dtype == DT_F16;
    ct_assert_close(x, want, rows, half ? 8e-4 : 6e-3, half ? 0.008 : 0.06, what);
    free(x);
}
/* What element k of a token is set to, for each of three values: NaN, infinity, and infinities of both signs. */
static inline float aw_no_number(int value, uint32_t k)
{
    if (value == 0) return NAN;
    return value == 1 || k % 2 ? INFINITY : -INFINITY;
}
