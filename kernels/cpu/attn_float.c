/* attn float: a tile of keys and values of any type, in floats. Keys become 16 per vector, then scores and sums over
 * values are products as in gemm.c: one chain per element, over head_dim and over keys in order of position. What a
 * query may not see is never summed, not even with weight zero, so its bits do not know of the keys behind it. */
#include "kernels/cpu/attn.h"
#include <math.h>

static bool serves(enum dtype kv, uint32_t dim)
{
    (void)kv;
    (void)dim;
    return true;
}

static void query(struct attn_work *w, uint32_t i, const float *q)
{
    w->v->norm(w->q + i * w->dim, q, NULL, w->o->scale, w->dim);
}

/* Values are copied to floats where rows are of odd length, pages short, or queries many enough to pay for it. */
static bool copies(const struct attn_work *w)
{
    return attn_many(w) || w->dim % SIMD_LANES || w->kv->block_tokens < SIMD_LANES;
}

static void ask(const char *const *token, uint32_t n, size_t bytes)
{
    for (uint32_t t = 0; t < n; t++)
        for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(token[t] + i, 0, 2);
}

static void tile(struct attn_work *w, uint32_t first, uint32_t end)
{
    size_t bytes = w->dim * dtype_bytes(w->type);
    for (uint32_t i = first / SIMD_LANES * SIMD_LANES; i < end; i += SIMD_LANES) {
        const void *token[SIMD_LANES];
        for (uint32_t t = 0; t < SIMD_LANES; t++) token[t] = w->now->k[i + t];
        ask(w->next->k + i, SIMD_LANES, bytes);
        w->v->pack_k(w->k + i * w->dim, token, w->type, w->dim);
        if (!copies(w)) continue;
        ask(w->next->v + i, SIMD_LANES, bytes);
        for (uint32_t t = i; t < i + SIMD_LANES; t++) w->v->load(w->vt + t * w->pad, w->now->v[t], w->type, w->dim);
    }
}

/* y += weights [from, to) of the tile * V, for n queries from query i on: run by run of values that lie behind each
 * other */
static void sum(struct attn_work *w, uint32_t i, uint32_t n, uint32_t from, uint32_t to)
{
    if (from >= to) return;
    if (copies(w)) {
        w->v->mul[DT_F32](w->y + i * w->pad, w->pad, w->s + i * ATTN_TILE + from, ATTN_TILE, w->vt + from * w->pad,
                          SIMD_LANES, w->pad, to - from, n, w->pad / SIMD_LANES, true);
        return;
    }
    size_t bytes = w->pad * dtype_bytes(w->type);
    for (uint32_t run; from < to; from += run) {
        for (run = 1; from + run < to && w->now->v[from + run] == w->now->v[from + run - 1] + bytes; run++) continue;
        ask(w->next->v + from, run, bytes);
        w->v->mul[w->type](w->y + i * w->pad, w->pad, w->s + i * ATTN_TILE + from, ATTN_TILE, w->now->v[from],
                           SIMD_LANES, w->pad, run, n, w->pad / SIMD_LANES, true);
    }
}

/* The same of query i alone, without the keys that are hidden from it: a run of others after the other. */
static void sum_around(struct attn_work *w, uint32_t i, uint32_t from, uint32_t to)
{
    for (uint32_t end; from < to; from = end) {
        end = from + 1;
        if (w->hidden >> from & 1) continue;
        while (end < to && !(w->hidden >> end & 1)) end++;
        sum(w, i, 1, from, end);
    }
}

static void block(struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n)
{
    struct attn_window r = attn_window(w, t0, i, n);
    w->v->mul[DT_F32](w->s + i * ATTN_TILE + r.first, ATTN_TILE, w->q + i * w->dim, w->dim, w->k + r.first * w->dim,
                      (size_t)w->dim * SIMD_LANES, SIMD_LANES, w->dim, n,
                      (r.end - r.first + SIMD_LANES - 1) / SIMD_LANES, false);
    for (uint32_t q = 0; q < n && w->o->cap != 0; q++)
        w->v->cap(w->s + (i + q) * ATTN_TILE + r.lo[q], 1, w->o->cap, r.hi[q] - r.lo[q]);
    for (uint32_t t = r.lo[0]; w->hidden && t < r.hi[0]; t++)
        if (w->hidden >> t & 1) w->s[i * ATTN_TILE + t] = -INFINITY;
    for (uint32_t q = 0; q < n; q++) {
        float was =
            w->v->softmax(w->s + (i + q) * ATTN_TILE, r.lo[q], r.hi[q], &w->m[i + q], w->l + (i + q) * SIMD_LANES);
        if (was != 1.0f) w->v->norm(w->y + (i + q) * w->pad, w->y + (i + q) * w->pad, NULL, was, w->pad);
    }
    if (w->hidden) {
        sum_around(w, i, r.lo[0], r.hi[0]);
        return;
    }
    if (r.from >= r.to) { /* no key that all see */
        for (uint32_t q = 0; q < n; q++) sum(w, i + q, 1, r.lo[q], r.hi[q]);
        return;
    }
    for (uint32_t q = 0; q < n; q++) sum(w, i + q, 1, r.lo[q], r.from); /* each one's own before and behind */
    sum(w, i, n, r.from, r.to);
    for (uint32_t q = 0; q < n; q++) sum(w, i + q, 1, r.to, r.hi[q]);
}

const struct attn_kind attn_float = { ATTN_ROWS, serves, query, tile, block, NULL };
