/* attn: paged attention with a running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3) over tiles of 64
 * keys at absolute positions, for prefill and decode alike.
 *
 * A piece of work: up to 64 queries (rows x heads of one group) of one sequence that share a KV head. Each tile of K is
 * turned into 16 keys per vector, then scores and the sum over V are products as in gemm.c: one chain per element, over
 * head_dim and over keys in order of position. What a query may not see is never summed, not even with weight zero, so
 * its bits do not know of the keys behind it, of the chunk it came in, or of the pages' size. */
#include "kernels/cpu/cpu.h"
#include <math.h>

enum { ATTN_TILE = 64, ATTN_QUERIES = 64, ATTN_DIM_MAX = 512 };

struct attn_job {
    const struct simd       *v;
    const struct op_attn    *o;
    const struct dev_batch  *b;
    const struct dev_kv     *kv;
    struct cpu_dev          *d;
    struct attn_part {
        uint32_t seq, first; /* queries [first, first + queries) of the sequence: row * group + head */
    }       *part;
    uint32_t group, queries, pad; /* heads per KV head; queries of a piece; head_dim rounded up to 16 */
};

/* What a piece works in; n queries. */
struct attn_work {
    float    *k, *v;     /* [ATTN_TILE / 16][head_dim][16], [ATTN_TILE][pad] */
    float    *q, *s, *y; /* [n][head_dim], [n][ATTN_TILE], [n][pad] */
    float    *m, *l;     /* [n], [n][16] */
    uint32_t *pos;       /* [n] */
    uint32_t *lo, *hi;   /* [n] keys seen of this tile */
    uint32_t  n;
};

static uint32_t attn_query_floats(uint32_t dim, uint32_t pad) { return dim + ATTN_TILE + pad + 1 + 16 + 3; }

static uint32_t attn_first_key(const struct op_attn *o, uint32_t pos) { return o->window && pos >= o->window ? pos - o->window + 1 : 0; }

/* Keys and values of positions [t0, t0 + ATTN_TILE) for those in [begin, end), zeros for the others. */
static void attn_load(const struct attn_job *j, const struct attn_work *w, uint32_t seq, uint32_t head, uint32_t t0, uint32_t begin,
                      uint32_t end)
{
    static const _Alignas(64) float nothing[ATTN_DIM_MAX];
    const struct dev_kv            *kv = j->kv;
    const uint32_t                 *page = j->b->page + j->b->page_start[seq];
    uint32_t                        dim = j->o->head_dim, n_page = j->b->page_start[seq + 1] - j->b->page_start[seq];
    const void                     *token[ATTN_TILE];
    for (uint32_t i = 0; i < ATTN_TILE; i++) {
        uint32_t t = t0 + i;
        token[i] = nothing;
        if (t < begin || t >= end) continue;
        CHECK(t / kv->block_tokens < n_page);
        uint32_t block = page[t / kv->block_tokens];
        CHECK(block < kv->n_block);
        size_t at = kv_offset(kv, block, j->o->layer, head, t % kv->block_tokens);
        token[i] = kv_at(kv, at);
        j->v->load(w->v + i * j->pad, kv_at(kv, at + kv_v_offset(kv)), kv->dtype, dim);
    }
    for (uint32_t i = 0; i < ATTN_TILE; i += 16)
        if (t0 + i < end && t0 + i + 16 > begin) j->v->pack_k(w->k + i * dim, token + i, kv->dtype, dim);
}

/* y += weights [from, to) of the tile * V, for n queries from query i on */
static void attn_sum(const struct attn_job *j, const struct attn_work *w, uint32_t i, uint32_t n, uint32_t from, uint32_t to)
{
    if (from >= to) return;
    j->v->mul[DT_F32](w->y + i * j->pad, j->pad, w->s + i * ATTN_TILE + from, ATTN_TILE, w->v + from * j->pad, SIMD_LANES, j->pad, to - from,
                      n, j->pad / SIMD_LANES, true);
}

/* Queries [i, end) that see some of this tile: scores, weights, sums. */
static void attn_tile(const struct attn_job *j, const struct attn_work *w, uint32_t t0, uint32_t i, uint32_t end)
{
    uint32_t dim = j->o->head_dim, lo = 0, hi = ATTN_TILE, n_key = 0;
    for (uint32_t q = i; q < end; q++) {
        uint32_t first = attn_first_key(j->o, w->pos[q]);
        w->lo[q] = first > t0 ? first - t0 : 0;
        w->hi[q] = w->pos[q] - t0 < ATTN_TILE ? w->pos[q] - t0 + 1 : ATTN_TILE;
        lo = w->lo[q] > lo ? w->lo[q] : lo;
        hi = w->hi[q] < hi ? w->hi[q] : hi;
        n_key = w->hi[q] > n_key ? w->hi[q] : n_key;
    }
    j->v->mul[DT_F32](w->s + i * ATTN_TILE, ATTN_TILE, w->q + i * dim, dim, w->k, (size_t)dim * SIMD_LANES, SIMD_LANES, dim, end - i,
                      (n_key + SIMD_LANES - 1) / SIMD_LANES, false);
    for (uint32_t q = i; q < end; q++) {
        float was = j->v->softmax(w->s + q * ATTN_TILE, w->lo[q], w->hi[q], &w->m[q], w->l + q * SIMD_LANES);
        if (was != 1.0f) j->v->norm(w->y + q * j->pad, w->y + q * j->pad, NULL, was, j->pad);
    }
    if (lo < hi) { /* keys that all see are summed for all together; each one's own before and behind */
        for (uint32_t q = i; q < end; q++) attn_sum(j, w, q, 1, w->lo[q], lo);
        attn_sum(j, w, i, end - i, lo, hi);
        for (uint32_t q = i; q < end; q++) attn_sum(j, w, q, 1, hi, w->hi[q]);
    } else {
        for (uint32_t q = i; q < end; q++) attn_sum(j, w, q, 1, w->lo[q], w->hi[q]);
    }
}

static void attn_piece(void *arg, uint32_t piece, uint32_t thread)
{
    const struct attn_job *j = arg;
    const struct op_attn  *o = j->o;
    const struct attn_part part = j->part[piece / o->n_kv_head];
    uint32_t               head = piece % o->n_kv_head, dim = o->head_dim, row0 = j->b->row_start[part.seq];
    uint32_t               n_all = (j->b->row_start[part.seq + 1] - row0) * j->group;
    struct attn_work       w = { .n = n_all - part.first < j->queries ? n_all - part.first : j->queries };
    float                 *at = cpu_scratch(j->d, thread);
    w.k = at, at += ATTN_TILE * dim;
    w.v = at, at += ATTN_TILE * j->pad;
    w.y = at, at += w.n * j->pad;
    w.s = at, at += w.n * ATTN_TILE;
    w.l = at, at += w.n * SIMD_LANES;
    w.q = at, at += w.n * dim;
    w.m = at, at += w.n;
    w.pos = (uint32_t *)(void *)at, w.lo = w.pos + w.n, w.hi = w.lo + w.n;
    memset(w.y, 0, w.n * j->pad * sizeof *w.y);
    memset(w.l, 0, w.n * SIMD_LANES * sizeof *w.l);
    for (uint32_t i = 0; i < w.n; i++) {
        uint32_t     row = row0 + (part.first + i) / j->group, h = head * j->group + (part.first + i) % j->group;
        const float *q = (const float *)o->qkv + ((size_t)row * (o->n_head + 2 * o->n_kv_head) + h) * dim;
        j->v->norm(w.q + i * dim, q, NULL, o->scale, dim);
        w.m[i] = -INFINITY;
        w.pos[i] = j->b->pos[row];
    }
    uint32_t begin = attn_first_key(o, w.pos[0]), end = w.pos[w.n - 1] + 1; /* positions rise within a sequence */
    uint32_t q0 = 0, q1 = 0;
    for (uint32_t t0 = begin / ATTN_TILE * ATTN_TILE; t0 < end; t0 += ATTN_TILE) {
        while (q0 < w.n && w.pos[q0] < t0) q0++; /* those done */
        for (q1 = q0; q1 < w.n && attn_first_key(o, w.pos[q1]) < t0 + ATTN_TILE; q1++) continue;
        if (q0 == q1) continue;
        attn_load(j, &w, part.seq, head, t0, attn_first_key(o, w.pos[q0]), w.pos[q1 - 1] + 1);
        attn_tile(j, &w, t0, q0, q1);
    }
    for (uint32_t i = 0; i < w.n; i++) {
        uint32_t row = row0 + (part.first + i) / j->group, h = head * j->group + (part.first + i) % j->group;
        j->v->norm((float *)o->out + ((size_t)row * o->n_head + h) * dim, w.y + i * j->pad, NULL, 1.0f / j->v->sum(w.l + i * SIMD_LANES), dim);
    }
}

void cpu_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cpu_dev *c = cpu_of(d);
    struct attn_job j = { .v = c->v, .o = o, .b = b, .kv = kv, .d = c, .part = (void *)c->shared };
    CHECK(o->head_dim == kv->head_dim && o->n_kv_head == kv->n_kv_head && o->layer < kv->n_layer);
    CHECK(o->head_dim <= ATTN_DIM_MAX && o->n_head % o->n_kv_head == 0);
    j.group = o->n_head / o->n_kv_head;
    j.pad = (o->head_dim + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES;
    size_t room = c->scratch_bytes / sizeof(float) - ATTN_TILE * (o->head_dim + j.pad);
    j.queries = (uint32_t)(room / attn_query_floats(o->head_dim, j.pad));
    if (j.queries > ATTN_QUERIES) j.queries = ATTN_QUERIES;
    uint32_t n_part = 0;
    uint64_t cost = 0;
    for (uint32_t s = b->n_seq; s-- > 0;) {
        uint32_t n = (b->row_start[s + 1] - b->row_start[s]) * j.group;
        if (n == 0) continue;
        cost += (uint64_t)n * (b->pos[b->row_start[s + 1] - 1] / ATTN_TILE + 1) * ATTN_TILE * o->head_dim / 4 * o->n_kv_head;
        for (uint32_t u = (n + j.queries - 1) / j.queries; u-- > 0;) { /* the last see the most keys: they go first */
            CHECK((n_part + 1) * sizeof *j.part <= c->shared_bytes);
            j.part[n_part++] = (struct attn_part){ s, u * j.queries };
        }
    }
    team_run(c->team, n_part * o->n_kv_head, cost, attn_piece, &j);
}
