/* attn: paged attention with a running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3) over tiles of 64
 * keys at absolute positions, for prefill and decode alike.
 *
 * A piece of work: up to 64 queries (rows x heads of one group) of one sequence that share a KV head. Each tile of K is
 * turned into 16 keys per vector, then scores and the sum over V are products as in gemm.c: one chain per element, over
 * head_dim and over keys in order of position. What a query may not see is never summed, not even with weight zero, so
 * its bits do not know of the keys behind it, of the chunk it came in, or of the pages' size. */
#include "kernels/cpu/cpu.h"
#include <math.h>

enum { ATTN_TILE = 64, ATTN_QUERIES = 64, ATTN_DIM_MAX = 512, ATTN_IN_PLACE = 12, ATTN_ASK = 8 };

struct attn_job {
    const struct simd      *v;
    const struct op_attn   *o;
    const struct dev_batch *b;
    const struct dev_kv    *kv;
    struct cpu_dev         *d;
    struct attn_part {
        uint32_t seq, first; /* queries [first, first + queries) of the sequence: row * group + head */
    } * part;
    uint32_t group, queries, pad; /* heads per KV head; queries of a piece; head_dim rounded up to 16 */
    bool     copy_v;              /* V goes through a copy in F32: rows of odd length, short pages, or many queries to pay for it */
};

/* What a piece works in; n queries. */
struct attn_work {
    float      *k, *v;     /* [ATTN_TILE / 16][head_dim][16]; [ATTN_TILE][pad] where V cannot be read in place */
    float      *q, *s, *y; /* [n][head_dim], [n][ATTN_TILE], [n][pad] */
    float      *m, *l;     /* [n], [n][16] */
    uint32_t   *pos;       /* [n] */
    uint32_t   *lo, *hi;   /* [n] keys seen of this tile */
    uint32_t    n, seq, head;
    uint32_t    ask, ask_end;       /* positions of the next tile to be asked for */
    const char *v_token[ATTN_TILE]; /* the values of each key of the tile: in the pool, or in v */
};

static uint32_t attn_query_floats(uint32_t dim, uint32_t pad) { return dim + ATTN_TILE + pad + 1 + 16 + 3; }

static uint32_t attn_first_key(const struct op_attn *o, uint32_t pos) { return o->window && pos >= o->window ? pos - o->window + 1 : 0; }

/* Asks for keys and values of the next tile, some tokens a call: pages lie anywhere, so no hardware guesses where, and
 * only so much can be under way at a time. */
static void attn_ask(const struct attn_job *j, struct attn_work *w)
{
    const struct dev_kv *kv = j->kv;
    size_t               bytes = j->o->head_dim * dtype_bytes(kv->dtype), v_bytes = kv_v_offset(kv) * dtype_bytes(kv->dtype);
    for (uint32_t stop = w->ask + ATTN_ASK < w->ask_end ? w->ask + ATTN_ASK : w->ask_end; w->ask < stop;) {
        uint32_t slot = w->ask % kv->block_tokens, n = kv->block_tokens - slot < stop - w->ask ? kv->block_tokens - slot : stop - w->ask;
        uint32_t block = j->b->page[j->b->page_start[w->seq] + w->ask / kv->block_tokens];
        if (block >= kv->n_block) return; /* attn_load says so */
        const char *k = kv_at(kv, kv_offset(kv, block, j->o->layer, w->head, slot));
        for (size_t i = 0; i < n * bytes; i += 64) {
            __builtin_prefetch(k + i, 0, 2);
            __builtin_prefetch(k + v_bytes + i, 0, 2);
        }
        w->ask += n;
    }
}

/* Keys of positions [t0, t0 + ATTN_TILE) for those in [begin, end), zeros for the others; where their values are. */
static void attn_load(const struct attn_job *j, struct attn_work *w, uint32_t t0, uint32_t begin, uint32_t end)
{
    static const _Alignas(64) float nothing[ATTN_DIM_MAX];
    const struct dev_kv            *kv = j->kv;
    const uint32_t                 *page = j->b->page + j->b->page_start[w->seq];
    uint32_t                        dim = j->o->head_dim, n_page = j->b->page_start[w->seq + 1] - j->b->page_start[w->seq];
    const void                     *token[ATTN_TILE];
    size_t                          bytes = dim * dtype_bytes(kv->dtype), v_bytes = kv_v_offset(kv) * dtype_bytes(kv->dtype);
    for (uint32_t i = 0; i < ATTN_TILE; i++) token[i] = nothing;
    uint32_t t = begin > t0 ? begin : t0, stop = end < t0 + ATTN_TILE ? end : t0 + ATTN_TILE, slot = t % kv->block_tokens;
    for (uint32_t p = t / kv->block_tokens; t < stop; p++, slot = 0) { /* page by page */
        CHECK(p < n_page);
        CHECK(page[p] < kv->n_block);
        const char *k = kv_at(kv, kv_offset(kv, page[p], j->o->layer, w->head, slot));
        for (; slot < kv->block_tokens && t < stop; slot++, t++, k += bytes) {
            token[t - t0] = k;
            w->v_token[t - t0] = k + v_bytes;
        }
    }
    for (uint32_t i = 0; i < ATTN_TILE; i += SIMD_LANES) {
        attn_ask(j, w);
        if (t0 + i < end && t0 + i + SIMD_LANES > begin) j->v->pack_k(w->k + i * dim, token + i, kv->dtype, dim);
    }
    if (!j->copy_v) return;
    for (t = begin > t0 ? begin : t0; t < stop; t++) {
        j->v->load(w->v + (t - t0) * j->pad, w->v_token[t - t0], kv->dtype, dim);
        w->v_token[t - t0] = (const char *)(w->v + (t - t0) * j->pad);
    }
}

/* y += weights [from, to) of the tile * V, for n queries from query i on: run by run of values that lie behind each other */
static void attn_sum(const struct attn_job *j, struct attn_work *w, uint32_t i, uint32_t n, uint32_t from, uint32_t to)
{
    enum dtype v_type = j->copy_v ? DT_F32 : j->kv->dtype;
    size_t     bytes = j->pad * dtype_bytes(v_type);
    for (uint32_t run; from < to; from += run) {
        attn_ask(j, w);
        for (run = 1; from + run < to && w->v_token[from + run] == w->v_token[from + run - 1] + bytes; run++) continue;
        j->v->mul[v_type](w->y + i * j->pad, j->pad, w->s + i * ATTN_TILE + from, ATTN_TILE, w->v_token[from], SIMD_LANES, j->pad, run, n,
                          j->pad / SIMD_LANES, true);
    }
}

/* Queries [i, end) that see some of this tile: scores, weights, sums. */
static void attn_tile(const struct attn_job *j, struct attn_work *w, uint32_t t0, uint32_t i, uint32_t end)
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
    struct attn_job        job = *(const struct attn_job *)arg, *j = &job;
    const struct op_attn  *o = j->o;
    const struct attn_part part = j->part[piece / o->n_kv_head];
    uint32_t               dim = o->head_dim, row0 = j->b->row_start[part.seq];
    uint32_t               n_all = (j->b->row_start[part.seq + 1] - row0) * j->group;
    struct attn_work       w = { .seq = part.seq, .head = piece % o->n_kv_head };
    w.n = n_all - part.first < j->queries ? n_all - part.first : j->queries;
    float *at = cpu_scratch(j->d, thread);
    j->copy_v = w.n > ATTN_IN_PLACE || o->head_dim % SIMD_LANES || j->kv->block_tokens < SIMD_LANES;
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
        uint32_t     row = row0 + (part.first + i) / j->group, h = w.head * j->group + (part.first + i) % j->group;
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
        w.ask = t0 + ATTN_TILE;
        w.ask_end = end < w.ask + ATTN_TILE ? end : w.ask + ATTN_TILE;
        attn_load(j, &w, t0, attn_first_key(o, w.pos[q0]), w.pos[q1 - 1] + 1);
        attn_tile(j, &w, t0, q0, q1);
    }
    for (uint32_t i = 0; i < w.n; i++) {
        uint32_t row = row0 + (part.first + i) / j->group, h = w.head * j->group + (part.first + i) % j->group;
        j->v->norm((float *)o->out + ((size_t)row * o->n_head + h) * dim, w.y + i * j->pad, NULL, 1.0f / j->v->sum(w.l + i * SIMD_LANES),
                   dim);
    }
}

void cpu_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cpu_dev *c = cpu_of(d);
    struct attn_job j = { .v = c->v, .o = o, .b = b, .kv = kv, .d = c, .part = (void *)c->shared };
    CHECK(elem_is_float(kv->dtype));
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
