/* attn: paged attention with a running softmax (Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3), for prefill and
 * decode alike: who computes what, and how chunks are put together. What is computed: attn.h.
 *
 * Queries of one sequence that share a KV head are taken many at a time, so that KV is read and packed once for all of
 * them. Where they are few (decode), memory is what takes the time: one thread walks several KV heads of a tile, which
 * lie behind each other in a page, and asks for what comes some heads later. Where that gives too few pieces for the
 * threads (a long sequence alone), the chunks of its keys are spread too: each leaves its sums in shared memory, and a
 * second pass puts them together, in the order in which one thread alone does.
 *
 * Keys and values of 8 bits (kernels/kv8.h) become bf16 tile by tile, exactly, in a thread's own memory, and go the way of
 * bf16 from there.
 *
 * Where rows see each other in both directions (cpu_mutual) their keys and values lie among the projections of the step
 * instead of in a pool. That and the keys that a row sees are all that differs.
 * Over 500 lines: one plan of pieces and one way through them, wherever the keys lie. */
#include "kernels/cpu/attn.h"
#include "kernels/kv8.h"
#include <math.h>

enum {
    ATTN_QUERIES = 128,
    ATTN_CHUNKS_MIN = 2, /* of a piece: less is not worth a second pass */
    ATTN_AHEAD = 4       /* heads of a tile that are asked for ahead, at most */
};

struct attn_part {
    uint32_t seq, first;     /* queries [first, first + queries) of the sequence: row * group + head */
    uint32_t chunk, n_chunk; /* its share of the keys */
    /* chunks of all parts of these queries, where `chunk` is their first; 0: it is not, or this is the only part */
    uint32_t n_whole;
    size_t   sums; /* where in job.sums those of `chunk` and head 0 go; SIZE_MAX: the only part, they go nowhere */
};
struct attn_job {
    const struct simd      *v;
    const struct attn_kind *kind;
    const struct op_attn   *o;
    const struct dev_batch *b;
    const struct dev_kv    *kv;
    enum dtype              type;   /* of the numbers that kind reads: kv's, or bf16 for 8 bits */
    bool                    mutual; /* keys and values are those of the step; kv says their type alone */
    struct cpu_dev         *d;
    struct attn_part       *part;
    float                  *sums;                /* [chunk][head], each attn_sum_floats */
    uint32_t                n_part, n_spread;    /* n_spread: queries whose parts are several */
    uint32_t                group, queries, pad; /* heads per KV head; queries of a piece; head_dim rounded up to 16 */
    uint32_t                span;                /* KV heads of a piece of few queries */
    uint32_t                n_thread;
};

/* Sums of a chunk, or of several: y [n][pad], l [n][SIMD_LANES], m [n]. */
static size_t attn_sum_floats(uint32_t n, uint32_t pad)
{
    return n * ((size_t)pad + SIMD_LANES) + (n + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES;
}
static size_t attn_query_floats(uint32_t dim, uint32_t pad) { return dim + ATTN_TILE + 2 * (pad + SIMD_LANES + 1) + 2; }

static uint32_t attn_n_query(const struct attn_job *j, uint32_t seq, uint32_t first)
{
    uint32_t n = (j->b->row_start[seq + 1] - j->b->row_start[seq]) * j->group - first;
    return n < j->queries ? n : j->queries;
}

/* The position of a row of the sequence. */
static uint32_t attn_pos(const struct attn_job *j, uint32_t seq, uint32_t row)
{
    return j->mutual ? row - j->b->row_start[seq] : j->b->pos[row];
}

/* The slots that a row sees: of all positions up to its own, or of its window; none behind it but where rows see each
 * other. */
static struct tree_sight attn_sight(const struct attn_job *j, uint32_t seq, uint32_t row)
{
    uint32_t pos = attn_pos(j, seq, row), window = j->o->window, first = 0;
    if (window && pos >= window) first = pos - window + 1;
    if (j->o->chunked) first = pos - pos % window;
    return tree_sight_of(pos, j->mutual ? 0 : dev_tree(j->b, row), first);
}
/* The first and the last of them. */
static uint32_t attn_first_key(const struct attn_job *j, uint32_t seq, uint32_t row)
{
    return attn_sight(j, seq, row).first;
}
static uint32_t attn_last_key(const struct attn_job *j, uint32_t seq, uint32_t row)
{
    uint32_t pos = attn_pos(j, seq, row), window = j->o->window;
    if (!j->mutual) return tree_slot(pos, dev_tree(j->b, row));
    uint32_t behind = j->b->row_start[seq + 1] - row;
    return pos + (window && window < behind ? window : behind) - 1;
}

/* The keys seen from a piece: [*begin_out, returned) */
static uint32_t attn_keys(const struct attn_job *j, uint32_t seq, uint32_t first, uint32_t *begin_out)
{
    uint32_t row0 = j->b->row_start[seq], last = first + attn_n_query(j, seq, first) - 1;
    *begin_out = attn_first_key(j, seq, row0 + first / j->group); /* it rises within a sequence, as the last does */
    return attn_last_key(j, seq, row0 + last / j->group) + 1;
}

/* The same where they are rows of the step, from token t on, i of the tile. Returns the end of those found. */
static uint32_t attn_find_rows(const struct attn_job *j, uint32_t seq, uint32_t head, uint32_t t, uint32_t stop,
                               uint32_t i, struct attn_tokens *to)
{
    uint32_t     n_kv = j->o->n_kv_head, dim = j->o->head_dim;
    size_t       width = (size_t)(j->o->n_head + 2 * n_kv) * dim;
    const float *k = (const float *)j->o->qkv + (j->b->row_start[seq] + t) * width + (j->o->n_head + head) * dim;
    for (; t < stop; t++, i++, k += width) {
        to->k[i] = (const char *)k;
        to->v[i] = (const char *)(k + (size_t)n_kv * dim);
    }
    return i;
}

/* Where keys [begin, end) of the tile at t0 lie. */
static void attn_find(const struct attn_job *j, uint32_t seq, uint32_t head, uint32_t t0, uint32_t begin, uint32_t end,
                      struct attn_tokens *to)
{
    static const _Alignas(64) float nothing[ATTN_DIM_MAX];
    const struct dev_kv            *kv = j->kv;
    const uint32_t                 *page = j->mutual ? NULL : j->b->page + j->b->page_start[seq];
    uint32_t                        n_page = j->mutual ? 0 : j->b->page_start[seq + 1] - j->b->page_start[seq];
    size_t   bytes = j->o->head_dim * dtype_bytes(kv->dtype), v_bytes = j->mutual ? 0 : kv_value_bytes(kv, j->o->layer);
    uint32_t t = begin > t0 ? begin : t0, stop = end < t0 + ATTN_TILE ? end : t0 + ATTN_TILE,
             slot = t % kv->block_tokens, i = 0;
    for (; i < ATTN_TILE && i + t0 < t; i++) to->k[i] = to->v[i] = (const char *)nothing;
    if (j->mutual) {
        i = attn_find_rows(j, seq, head, t, stop, i, to);
        t = stop;
    }
    for (uint32_t p = t / kv->block_tokens; t < stop; p++, slot = 0) { /* page by page */
        CHECK(p < n_page);
        CHECK(page[p] < kv->n_block + kv->n_guest);
        const char *k = kv_key_read(kv, page[p], j->o->layer, head, slot, j->o->head_dim);
        uint32_t    scale = (uint32_t)kv8_scale_at(kv->block_tokens, slot, j->o->head_dim); /* where there are any */
        for (; slot < kv->block_tokens && t < stop; slot++, t++, i++, k += bytes, scale -= j->o->head_dim - 1) {
            to->k[i] = k;
            to->v[i] = k + v_bytes;
            to->scale_at[i] = scale;
        }
    }
    for (; i < ATTN_TILE; i++) to->k[i] = to->v[i] = (const char *)nothing;
}

/* The tiles that a piece reads, in order, all its KV heads of one after the other; and those found ahead. */
struct attn_walk {
    uint32_t           seq, first, head, n_head, begin, end; /* first: query; keys [begin, end) */
    uint32_t           t0, h;                                /* to be found next */
    uint32_t           n, ahead;
    struct attn_tokens found[ATTN_AHEAD + 1];
};
static void attn_walk_find(const struct attn_job *j, struct attn_walk *k)
{
    attn_find(j, k->seq, k->head + k->h, k->t0, k->begin, k->end, &k->found[k->n++ % (k->ahead + 1)]);
    if (++k->h == k->n_head) {
        k->h = 0;
        k->t0 += ATTN_TILE;
    }
}
static void attn_walk_begin(const struct attn_job *j, struct attn_walk *k)
{
    k->t0 = k->begin / ATTN_TILE * ATTN_TILE;
    k->h = k->n = 0;
    k->ahead = k->n_head < ATTN_AHEAD ? k->n_head : ATTN_AHEAD;
    while (k->n < k->ahead) attn_walk_find(j, k);
}
static void attn_walk_step(const struct attn_job *j, struct attn_walk *k, struct attn_work *w)
{
    w->now = &k->found[(k->n - k->ahead) % (k->ahead + 1)];
    w->next = &k->found[k->n % (k->ahead + 1)];
    attn_walk_find(j, k);
}

/* Keys and values [first, end) of a tile of 8 bits as bf16, where w->now then points; the next are asked for. */
static void attn_widen(struct attn_work *w, uint32_t first, uint32_t end)
{
    const struct attn_tokens *now = w->now, *next = w->next;
    bf16                     *k = w->room, *v = w->room + ATTN_TILE * w->dim;
    *w->wide = *now;
    for (uint32_t i = first; i < end; i++) {
        const uint8_t *from[2] = { (const uint8_t *)now->k[i], (const uint8_t *)now->v[i] };
        bf16          *to[2] = { k + i * w->dim, v + i * w->dim };
        for (uint32_t at = 0; at < w->dim; at += 64) {
            __builtin_prefetch(next->k[i] + at, 0, 2);
            __builtin_prefetch(next->v[i] + at, 0, 2);
        }
        for (int n = 0; n < 2; n++) w->v->load_f8(to[n], from[n], kv8_factor(from[n][now->scale_at[i]]), w->dim);
        w->wide->k[i] = (const char *)to[0];
        w->wide->v[i] = (const char *)to[1];
    }
    w->now = w->next = w->wide;
}

/* The work of a piece's KV head h: w is that of its first; sums: those of the first. */
static struct attn_work attn_head(const struct attn_work *w, uint32_t h, float *sums)
{
    struct attn_work of = *w;
    of.q += (size_t)h * w->n * w->dim;
    of.y = sums + h * attn_sum_floats(w->n, w->pad);
    of.l = of.y + w->n * w->pad;
    of.m = of.l + w->n * SIMD_LANES;
    return of;
}

/* Keys of the tile at t0 that query i does not see though they lie between its first and its last; ~0: it sees none. */
static uint64_t attn_hidden(const struct attn_job *j, const struct attn_work *w, const struct attn_walk *walk,
                            uint32_t t0, uint32_t i)
{
    uint32_t row = j->b->row_start[walk->seq] + (walk->first + i) / j->group, lo, hi = attn_sees(w, t0, i, &lo);
    if (j->mutual || !dev_tree(j->b, row)) return 0;
    uint64_t seen = tree_tile(attn_sight(j, walk->seq, row), t0);
    return seen ? tree_ones(hi) & ~tree_ones(lo) & ~seen : ~UINT64_C(0);
}

/* Queries [q0, q1), all of which reach into the tile at t0: as many as a block takes at a time, but those alone from
 * which a part of the tile is hidden. */
static void attn_blocks(const struct attn_job *j, struct attn_work *w, const struct attn_walk *walk, uint32_t t0,
                        uint32_t q0, uint32_t q1)
{
    for (uint32_t i = q0, n; i < q1; i += n) {
        for (n = j->b->tree ? 0 : q1 - i; i + n < q1 && !attn_hidden(j, w, walk, t0, i + n); n++) continue;
        if (n) {
            n = simd_rows(n, j->kind->rows);
            j->kind->block(w, t0, i, n);
            continue;
        }
        n = 1;
        w->hidden = attn_hidden(j, w, walk, t0, i);
        if (w->hidden != ~UINT64_C(0)) j->kind->block(w, t0, i, 1);
        w->hidden = 0;
    }
}

/* One chunk for all queries of the piece that see some of it -> sums, for each KV head. */
static void attn_chunk(const struct attn_job *j, const struct attn_work *w, struct attn_walk *walk, uint32_t chunk,
                       float *sums)
{
    uint32_t begin = walk->begin, end = walk->end, q0 = 0, q1 = 0;
    if (begin < chunk * ATTN_CHUNK) begin = chunk * ATTN_CHUNK;
    if (end > (chunk + 1) * ATTN_CHUNK) end = (chunk + 1) * ATTN_CHUNK;
    for (uint32_t h = 0; h < walk->n_head; h++) {
        struct attn_work of = attn_head(w, h, sums);
        memset(of.y, 0, w->n * w->pad * sizeof *of.y);
        memset(of.l, 0, w->n * SIMD_LANES * sizeof *of.l);
        for (uint32_t i = 0; i < w->n; i++) of.m[i] = -INFINITY;
    }
    for (uint32_t t0 = begin / ATTN_TILE * ATTN_TILE; t0 < end; t0 += ATTN_TILE) {
        while (q0 < w->n && w->last[q0] < t0) q0++; /* those done */
        for (q1 = q0; q1 < w->n && w->first[q1] < t0 + ATTN_TILE; q1++) continue;
        for (uint32_t h = 0; h < walk->n_head; h++) {
            struct attn_work of = attn_head(w, h, sums);
            attn_walk_step(j, walk, &of);
            if (q0 == q1) continue;
            uint32_t lo = begin > t0 ? begin - t0 : 0, hi = end - t0 < ATTN_TILE ? end - t0 : ATTN_TILE;
            if (of.wide) attn_widen(&of, lo, hi);
            j->kind->tile(&of, lo, hi);
            attn_blocks(j, &of, walk, t0, q0, q1);
        }
    }
}

/* Sums of the chunks so far (y, l, m) += those of one more. Every query takes its chunks in order and begins with a
 * copy. */
static void attn_join(const struct attn_work *w, float *y, float *l, float *m, const float *more, uint32_t chunk)
{
    const float *more_l = more + w->n * w->pad, *more_m = more_l + w->n * SIMD_LANES;
    for (uint32_t i = 0; i < w->n; i++, y += w->pad, l += SIMD_LANES, more += w->pad, more_l += SIMD_LANES) {
        uint32_t first = w->first[i] / ATTN_CHUNK;
        if (chunk < first || chunk > w->last[i] / ATTN_CHUNK) continue;
        if (chunk == first) {
            memcpy(y, more, w->pad * sizeof *y);
            memcpy(l, more_l, SIMD_LANES * sizeof *l);
            m[i] = more_m[i];
            continue;
        }
        float max = more_m[i] > m[i] ? more_m[i] : m[i], of[ATTN_DIM_MAX], now, was;
        w->v->exp_sum(&was, &m[i], max, 0, 1);
        w->v->exp_sum(&now, &more_m[i], max, 0, 1);
        w->v->norm(of, more_l, NULL, now, SIMD_LANES);
        w->v->norm(l, l, NULL, was, SIMD_LANES);
        w->v->add(l, of, SIMD_LANES);
        w->v->norm(y, y, NULL, was, w->pad);
        w->v->norm(of, more, NULL, now, w->pad);
        w->v->add(y, of, w->pad);
        m[i] = max;
    }
}

/* What the sums over values under maximum m are multiplied by, where the weights sum to `sum`. The sink is taken up
 * here, behind all chunks, so that each row has it once and at the same place. */
static float attn_share(const struct attn_job *j, uint32_t h, float m, float sum)
{
    if (!j->o->sinks) return 1.0f / sum;
    const float *sink = &j->o->sinks[h];
    float        max = *sink > m ? *sink : m, was, more;
    j->v->exp_sum(&was, &m, max, 0, 1);
    j->v->exp_sum(&more, sink, max, 0, 1);
    return was / (was * sum + more);
}

/* The rows of a KV head from its sums in w: y, l and m. */
static void attn_out(const struct attn_job *j, const struct attn_work *w, uint32_t row0, uint32_t first, uint32_t head)
{
    float *y = w->y, *l = w->l;
    for (uint32_t i = 0; i < w->n; i++, y += w->pad, l += SIMD_LANES) {
        uint32_t row = row0 + (first + i) / j->group, h = head * j->group + (first + i) % j->group;
        if (j->kind->finish) j->kind->finish(y, w->dim);
        j->v->norm((float *)j->o->out + ((size_t)row * j->o->n_head + h) * w->dim, y, NULL,
                   attn_share(j, h, w->m[i], j->v->sum(l)), w->dim);
    }
}

/* Floats of scratch for a tile of 8 bits as bf16. */
static size_t attn_wide_floats(const struct attn_job *j)
{
    return j->kv->dtype == DT_F8E4M3 ? sizeof(struct attn_tokens) / sizeof(float) + ATTN_TILE * j->o->head_dim : 0;
}

/* The queries of a part, for n_head KV heads, in the scratch of a thread; *at_out: what is left of that. */
static struct attn_work attn_take(const struct attn_job *j, const struct attn_part *p, uint32_t n_head, uint32_t thread,
                                  float **at_out)
{
    struct attn_work w = { .v = j->v,
                           .o = j->o,
                           .kv = j->kv,
                           .type = j->type,
                           .dim = j->o->head_dim,
                           .pad = j->pad,
                           .n = attn_n_query(j, p->seq, p->first) };
    float           *scratch = cpu_scratch(j->d, thread);
    if (attn_wide_floats(j)) {
        w.wide = (struct attn_tokens *)(void *)scratch;
        w.room = (bf16 *)(void *)(w.wide + 1);
    }
    w.k = scratch + attn_wide_floats(j);
    w.vt = w.k + ATTN_TILE * w.dim;
    w.s = w.vt + ATTN_TILE * w.pad;
    w.q = w.s + w.n * ATTN_TILE;
    w.first = (uint32_t *)(void *)(w.q + (size_t)n_head * w.n * w.dim);
    w.last = w.first + w.n;
    *at_out = (float *)(void *)(w.last + w.n);
    for (uint32_t i = 0; i < w.n; i++) {
        uint32_t row = j->b->row_start[p->seq] + (p->first + i) / j->group;
        w.first[i] = attn_first_key(j, p->seq, row);
        w.last[i] = attn_last_key(j, p->seq, row);
    }
    return w;
}

static void attn_piece(void *arg, uint32_t piece, uint32_t thread)
{
    const struct attn_job *j = arg;
    const struct attn_part p = j->part[piece / j->o->n_kv_head];
    uint32_t               head = piece % j->o->n_kv_head, row0 = j->b->row_start[p.seq], n_head = 1;
    if (attn_n_query(j, p.seq, p.first) <= ATTN_FEW) { /* the first of some heads takes the others with it */
        if (head % j->span) return;
        n_head = j->o->n_kv_head - head < j->span ? j->o->n_kv_head - head : j->span;
    }
    float           *at;
    struct attn_work w = attn_take(j, &p, n_head, thread, &at);
    size_t           floats = attn_sum_floats(w.n, w.pad);
    struct attn_walk walk = { .seq = p.seq, .first = p.first, .head = head, .n_head = n_head };
    walk.end = attn_keys(j, p.seq, p.first, &walk.begin);
    if (walk.begin < p.chunk * ATTN_CHUNK) walk.begin = p.chunk * ATTN_CHUNK;
    if (walk.end > (p.chunk + p.n_chunk) * ATTN_CHUNK) walk.end = (p.chunk + p.n_chunk) * ATTN_CHUNK;
    attn_walk_begin(j, &walk);
    for (uint32_t i = 0; i < n_head * w.n; i++) {
        uint32_t row = row0 + (p.first + i % w.n) / j->group,
                 h = (head + i / w.n) * j->group + (p.first + i % w.n) % j->group;
        j->kind->query(&w, i, (const float *)j->o->qkv + ((size_t)row * op_attn_heads(j->o) + h) * w.dim);
    }
    float *all = at + n_head * floats;
    for (uint32_t c = 0; c < p.n_chunk; c++) {
        float *sums = p.sums == SIZE_MAX ? at : j->sums + p.sums + ((size_t)c * j->o->n_kv_head + head) * floats;
        attn_chunk(j, &w, &walk, p.chunk + c, sums);
        for (uint32_t h = 0; h < n_head && p.sums == SIZE_MAX; h++) {
            struct attn_work to = attn_head(&w, h, all);
            attn_join(&w, to.y, to.l, to.m, sums + h * floats, p.chunk + c);
        }
    }
    for (uint32_t h = 0; h < n_head && p.sums == SIZE_MAX; h++) {
        struct attn_work of = attn_head(&w, h, all);
        attn_out(j, &of, row0, p.first, head + h);
    }
}

static void attn_whole(void *arg, uint32_t piece, uint32_t thread)
{
    const struct attn_job  *j = arg;
    const struct attn_part *p = &j->part[piece / j->o->n_kv_head];
    uint32_t                head = piece % j->o->n_kv_head;
    float                  *all;
    if (!p->n_whole) return;
    struct attn_work one = attn_take(j, p, 1, thread, &all), w = attn_head(&one, 0, all);
    size_t           floats = attn_sum_floats(w.n, w.pad);
    for (uint32_t c = 0; c < p->n_whole; c++)
        attn_join(&w, w.y, w.l, w.m, j->sums + p->sums + ((size_t)c * j->o->n_kv_head + head) * floats, p->chunk + c);
    attn_out(j, &w, j->b->row_start[p->seq], p->first, head);
}

/* ---------------------------------------------------------------- who takes what */

struct attn_plan {
    uint64_t keys, most; /* queries x keys: of all parts, of the largest */
    uint32_t n_part, n_part_max;
    size_t   n_sum, n_sum_max; /* floats for sums: taken, there are */
};

static uint64_t attn_cost(const struct attn_job *j, uint32_t seq, uint32_t first)
{
    uint32_t begin, end = attn_keys(j, seq, first, &begin);
    return (uint64_t)attn_n_query(j, seq, first) * ((end - begin + ATTN_TILE - 1) / ATTN_TILE * ATTN_TILE);
}

/* Would the threads wait for one of them? */
static bool attn_uneven(const struct attn_job *j, const struct attn_plan *p)
{
    uint64_t n_kv = j->o->n_kv_head, rounds = (p->n_part * n_kv + j->n_thread - 1) / j->n_thread;
    return j->n_thread > 1 && rounds * p->most * j->n_thread > p->keys * n_kv * 9 / 8;
}

/* The queries of a piece: one part, or several of some chunks each where that helps and there is room. */
static void attn_add(struct attn_job *j, struct attn_plan *plan, uint32_t seq, uint32_t first, bool spread)
{
    uint32_t         begin, end = attn_keys(j, seq, first, &begin), n = attn_n_query(j, seq, first), n_part = 1;
    struct attn_part p = {
        seq, first, begin / ATTN_CHUNK, (end - 1) / ATTN_CHUNK + 1 - begin / ATTN_CHUNK, 0, SIZE_MAX
    };
    size_t one = attn_sum_floats(n, j->pad) * j->o->n_kv_head;
    if (spread) { /* pieces of about a fourth of what a thread has to do */
        uint64_t share = plan->keys * j->o->n_kv_head / (4 * j->n_thread) / n / ATTN_CHUNK;
        if (share < ATTN_CHUNKS_MIN) share = ATTN_CHUNKS_MIN;
        n_part = (uint32_t)((p.n_chunk + share - 1) / share);
        if (j->n_part + n_part > plan->n_part_max || p.n_chunk > (plan->n_sum_max - plan->n_sum) / one) n_part = 1;
    }
    if (n_part == 1) {
        j->part[j->n_part++] = p;
        return;
    }
    p.n_whole = p.n_chunk; /* the first of them names the whole */
    p.sums = plan->n_sum;
    plan->n_sum += one * p.n_whole;
    j->n_spread++;
    for (uint32_t left = p.n_whole; n_part > 0;
         n_part--, p.chunk += p.n_chunk, p.sums += one * p.n_chunk, p.n_whole = 0) {
        p.n_chunk = (left + n_part - 1) / n_part;
        left -= p.n_chunk;
        j->part[j->n_part++] = p;
    }
}

static uint64_t attn_plan(struct attn_job *j)
{
    struct attn_plan plan = { 0 };
    size_t           bytes = j->d->shared_bytes;
    for (uint32_t s = 0; s < j->b->n_seq; s++)
        for (uint32_t i = 0; i < (j->b->row_start[s + 1] - j->b->row_start[s]) * j->group;
             i += j->queries, plan.n_part++) {
            uint64_t cost = attn_cost(j, s, i);
            plan.keys += cost;
            plan.most = cost > plan.most ? cost : plan.most;
        }
    CHECK(plan.n_part * sizeof *j->part <= bytes);
    plan.n_part_max = plan.n_part + 8 * j->n_thread;
    size_t used = (plan.n_part_max * sizeof *j->part + 63) / 64 * 64;
    bool   spread = attn_uneven(j, &plan) && used < bytes;
    if (spread) {
        j->sums = (float *)(void *)((char *)j->part + used);
        plan.n_sum_max = (bytes - used) / sizeof(float);
    }
    for (uint32_t s = j->b->n_seq; s-- > 0;) { /* the last see the most keys: they go first */
        uint32_t n = (j->b->row_start[s + 1] - j->b->row_start[s]) * j->group;
        for (uint32_t u = (n + j->queries - 1) / j->queries; u-- > 0;) attn_add(j, &plan, s, u * j->queries, spread);
    }
    return plan.keys;
}

/* KV heads that a piece of few queries takes: all that fit, but some pieces for each thread. */
static uint32_t attn_span(const struct attn_job *j)
{
    uint32_t n_kv = j->o->n_kv_head, span = n_kv, most = j->queries / ATTN_FEW;
    while (j->n_thread > 1 && span > 1 && j->n_part * (n_kv / span) < 2 * j->n_thread) span = (span + 1) / 2;
    if (span < most) return span;
    return most > 0 ? most : 1;
}

/* All of it. kind: how the keys' type is computed. */
static void attn_run(struct attn_job *j)
{
    const struct op_attn *o = j->o;
    CHECK(o->head_dim <= ATTN_DIM_MAX && o->n_head % o->n_kv_head == 0);
    j->part = (void *)j->d->shared;
    j->n_thread = team_n_thread(j->d->team);
    j->group = o->n_head / o->n_kv_head;
    j->pad = (o->head_dim + SIMD_LANES - 1) / SIMD_LANES * SIMD_LANES;
    size_t room =
        j->d->scratch_bytes / sizeof(float) - attn_wide_floats(j) - ATTN_TILE * (o->head_dim + j->pad) - 2 * SIMD_LANES;
    j->queries = (uint32_t)(room / attn_query_floats(o->head_dim, j->pad));
    if (j->queries > ATTN_QUERIES) j->queries = ATTN_QUERIES;
    uint64_t cost = attn_plan(j) * o->head_dim / 4 * o->n_kv_head;
    j->span = attn_span(j);
    team_run(j->d->team, j->n_part * o->n_kv_head, cost, attn_piece, j);
    if (j->n_spread) team_run(j->d->team, j->n_part * o->n_kv_head, cost, attn_whole, j);
}

void cpu_attention(struct device *d, const struct op_attn *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cpu_dev *c = cpu_of(d);
    /* A soft cap is wanted by few models: floats alone have it. */
    enum dtype      type = kv->dtype == DT_F8E4M3 ? DT_BF16 : kv->dtype;
    bool            own = c->isa->attn && o->cap == 0 && c->isa->attn->serves(type, o->head_dim);
    struct attn_job j = {
        .v = c->v, .kind = own ? c->isa->attn : &attn_float, .o = o, .b = b, .kv = kv, .type = type, .d = c
    };
    CHECK(elem_is_kv(kv->dtype));
    CHECK(kv_holds_heads(kv, o->layer, o->n_kv_head, o->head_dim));
    attn_run(&j);
}

void cpu_mutual(struct device *d, const struct op_attn *o, const struct dev_batch *b)
{
    static const struct dev_kv step = { .dtype = DT_F32, .block_tokens = 1 }; /* no two values behind each other */
    struct cpu_dev            *c = cpu_of(d);
    struct attn_job            j = {
                   .v = c->v, .kind = &attn_float, .o = o, .b = b, .kv = &step, .type = DT_F32, .mutual = true, .d = c
    };
    attn_run(&j);
}
