/* attn_world: some sequences whose attention is computed step by step, in chunks and batches as a test wants them. */
#pragma once
#include "op/op_test.h"

enum { SEQS = 3, TOKENS_MAX = 200, LAYERS = 2, LAYER = 1 };

struct shape {
    uint32_t   n_head, n_kv_head, dim, rot, block_tokens, window;
    enum dtype kv;
    bool       norm;
    float      cap;
    bool       sinks, chunked, q_only;
};

/* Sequences of given lengths, their projections, and a pool whose pages are dealt in no order. */
struct world {
    struct shape s;
    uint32_t     len[SEQS], page[SEQS][TOKENS_MAX], width;
    float       *qkv[SEQS], *q_norm, *k_norm, *sinks, inv_freq[256];
};

static inline struct world make(struct shape s, uint32_t seed)
{
    struct world w = { .s = s, .len = { 173, 40, 66 }, .width = (s.n_head + 2 * s.n_kv_head) * s.dim };
    for (uint32_t i = 0; i < SEQS; i++) {
        w.qkv[i] = op_random((size_t)w.len[i] * w.width, 10 + i, 1.5f);
        for (uint32_t p = 0; p < TOKENS_MAX; p++) w.page[i][p] = (p * SEQS + i) * 7 + seed;
    }
    w.q_norm = op_random(s.dim, 20, 1);
    w.k_norm = op_random(s.dim, 21, 1);
    w.sinks = op_random(s.n_head, 22, 6); /* some above every score, some far below */
    for (uint32_t i = 0; i < s.rot / 2; i++) w.inv_freq[i] = 1.0f / powf(10000.0f, 2.0f * (float)i / (float)s.rot);
    return w;
}
static inline void unmake(struct world *w)
{
    for (int i = 0; i < SEQS; i++) free(w->qkv[i]);
    free(w->q_norm);
    free(w->k_norm);
    free(w->sinks);
}

static inline struct dev_kv make_kv(struct device *d, struct shape s)
{
    struct dev_kv kv = {
        .dtype = s.kv, .n_block = SEQS * TOKENS_MAX + 1, .n_layer = LAYERS, .block_tokens = s.block_tokens
    };
    op_kv_layers(&kv, s.n_kv_head, s.dim);
    if (kv.block_bytes * kv.n_block > OP_ARENA / 4) kv.n_block = (uint32_t)(OP_ARENA / 4 / kv.block_bytes);
    kv.n_block -= kv.n_block % 7 == 0; /* so that no two pages fall together */
    assert_true(kv.n_block >= SEQS * (173 / s.block_tokens + 1));
    assert_int_equal(d->ops->alloc(d, kv.block_bytes * kv.n_block, &kv.base), ST_OK);
    return kv;
}

/* One step: rows [from[i], to[i]) of each sequence, in the order of `order`. out: per sequence [len, n_head * dim].
 * more than eight: what a step has, and where its results go. */
static inline void step(struct device *d, struct world *w, struct dev_kv *kv, const uint32_t *order, uint32_t n_seq,
                        const uint32_t *from, const uint32_t *to, float **out, float **qkv_out)
{
    uint32_t pos[SEQS * TOKENS_MAX], row_seq[SEQS * TOKENS_MAX],
        row_start[SEQS + 1] = { 0 }, page_start[SEQS + 1] = { 0 }, page[SEQS * TOKENS_MAX], n = 0, p = 0;
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t s = order[i];
        for (uint32_t t = from[s]; t < to[s]; t++) {
            pos[n] = t;
            row_seq[n++] = i;
        }
        for (uint32_t t = 0; t < to[s]; t += w->s.block_tokens)
            page[p++] = w->page[s][t / w->s.block_tokens] % kv->n_block;
        row_start[i + 1] = n;
        page_start[i + 1] = p;
    }
    size_t width = w->width, out_width = (size_t)w->s.n_head * w->s.dim;
    float *x = malloc((n + 1) * width * sizeof *x), *y = malloc((n + 1) * out_width * sizeof *y);
    for (uint32_t r = 0; r < n; r++)
        memcpy(x + r * width, w->qkv[order[row_seq[r]]] + pos[r] * width, width * sizeof *x);
    struct dev_batch b = { .n_row = n,
                           .n_seq = n_seq,
                           .pos = pos,
                           .row_seq = row_seq,
                           .row_start = row_start,
                           .page_start = page_start,
                           .page = page };
    struct op_qkv    q = { x,
                        w->s.norm ? w->q_norm : NULL,
                        w->s.norm ? w->k_norm : NULL,
                           1e-6f,
                        w->s.rot ? w->inv_freq : NULL,
                           1.25f,
                           w->s.n_head,
                           w->s.n_kv_head,
                           w->s.dim,
                           w->s.rot,
                           .layer = LAYER,
                           .v_norm = w->s.norm ? w->k_norm : NULL,
                           .q_beta = w->s.norm ? 0.3f : 0,
                           .q_period = 7,
                           .q_shift = w->s.chunked };
    struct op_attn   a = { y,
                           x,
                           w->s.n_head,
                           w->s.n_kv_head,
                           w->s.dim,
                           LAYER,
                           1 / sqrtf((float)w->s.dim),
                           w->s.window,
                           w->s.cap,
                         w->s.sinks ? w->sinks : NULL,
                           .chunked = w->s.chunked };
    d->ops->qkv(d, &q, &b, kv);
    d->ops->attention(d, &a, &b, kv);
    if (w->s.q_only) { /* the same from queries alone, which another layer makes of its own projection */
        float *q_rows = malloc((n + 1) * out_width * sizeof *q_rows),
              *again = malloc((n + 1) * out_width * sizeof *again);
        for (uint32_t r = 0; r < n; r++) memcpy(q_rows + r * out_width, x + r * width, out_width * sizeof *x);
        a.qkv = q_rows;
        a.out = again;
        a.q_only = true;
        d->ops->attention(d, &a, &b, kv);
        op_assert_same(again, y, n * out_width, "queries alone");
        free(q_rows);
        free(again);
    }
    for (uint32_t r = 0; r < n; r++) {
        memcpy(out[order[row_seq[r]]] + pos[r] * out_width, y + r * out_width, out_width * sizeof *y);
        if (qkv_out) memcpy(qkv_out[order[row_seq[r]]] + pos[r] * width, x + r * width, width * sizeof *x);
    }
    free(x);
    free(y);
}

static inline void make_out(struct world *w, float **out, size_t width)
{
    for (int i = 0; i < SEQS; i++) out[i] = calloc(w->len[i] * width, sizeof **out);
}
static inline void free_out(float **out)
{
    for (int i = 0; i < SEQS; i++) free(out[i]);
}
static inline void assert_same_out(struct world *w, float **got, float **want, const char *what)
{
    for (int i = 0; i < SEQS; i++) op_assert_same(got[i], want[i], (size_t)w->len[i] * w->s.n_head * w->s.dim, what);
}

/* all sequences, `chunk` rows of each a step; together, or one after the other */
static inline void run(struct device *d, struct world *w, struct dev_kv *kv, uint32_t chunk, bool together, float **out,
                       float **qkv_out)
{
    static const uint32_t order[SEQS] = { 2, 0, 1 };
    if (together) {
        uint32_t from[SEQS] = { 0 }, to[SEQS];
        for (bool more = true; more;) {
            more = false;
            for (int s = 0; s < SEQS; s++) {
                to[s] = from[s] + chunk < w->len[s] ? from[s] + chunk : w->len[s];
                more |= to[s] < w->len[s];
            }
            step(d, w, kv, order, SEQS, from, to, out, qkv_out);
            memcpy(from, to, sizeof from);
        }
        return;
    }
    for (uint32_t s = 0; s < SEQS; s++)
        for (uint32_t t = 0; t < w->len[s]; t += chunk) {
            uint32_t from[SEQS] = { 0 }, to[SEQS] = { 0 };
            from[s] = t;
            to[s] = t + chunk < w->len[s] ? t + chunk : w->len[s];
            step(d, w, kv, &s, 1, from, to, out, qkv_out);
        }
}
