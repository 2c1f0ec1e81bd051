/* attn: what the arithmetic of attention works on.   Private to kernels/cpu/.
 * Work: some queries (rows x heads of one group) of one sequence that share a KV head, and some chunks of its keys. A
 * chunk is ATTN_CHUNK positions from a multiple of that on, with a running softmax of its own, in tiles of ATTN_TILE;
 * chunks are put together in order. So a row has the same bits whoever computes which of its chunks, and whichever rows
 * are computed beside it. */
#pragma once
#include "kernels/cpu/cpu.h"

enum {
    ATTN_TILE = 64,
    ATTN_CHUNK = 512,
    ATTN_ROWS = 6,            /* queries of a block */
    ATTN_FEW = 2 * ATTN_ROWS, /* more than so many pay for copies of a tile */
    ATTN_DIM_MAX = 512
};

/* Where the keys and values of a tile lie: in the pool or, where nobody sees them, zeros. */
struct attn_tokens {
    const char *k[ATTN_TILE], *v[ATTN_TILE];
    uint32_t    scale_at[ATTN_TILE]; /* of keys and values in 8 bits: bytes from a row to its scale */
};

struct attn_work {
    const struct simd    *v;
    const struct op_attn *o;
    const struct dev_kv  *kv;
    uint32_t              dim, pad;     /* head_dim; rounded up to SIMD_LANES */
    uint32_t              n;            /* queries */
    float                *k, *vt;       /* a tile as `tile` makes it: ATTN_TILE * dim; ATTN_TILE * pad */
    float                *q, *s, *y;    /* [n][dim] as `query` makes it, [n][ATTN_TILE], [n][pad] */
    float                *m, *l;        /* [n], [n][SIMD_LANES] */
    uint32_t             *first, *last; /* [n] the keys that a query sees, both included */
    /* Of a tree: keys of the tile (a bit each) that the only query of a block does not see though they lie between first
     * and last. They count as if they were not there: no weight, whatever they hold. 0 where a block has more queries. */
    uint64_t                  hidden;
    bool                      wild;       /* of kinds that care: some value of the tile is infinite or no number */
    const struct attn_tokens *now, *next; /* this tile and the one to be asked for */
    enum dtype                type;       /* of what those point to */
    struct attn_tokens       *wide;       /* NULL, or those of `room`: there keys and values of 8 bits are bf16 */
    bf16                     *room;       /* [k, v][ATTN_TILE][dim] */
};

/* How a tile is computed: for a type of keys and an instruction set. */
struct attn_kind {
    uint32_t rows; /* of a block, at most */
    bool (*serves)(enum dtype kv, uint32_t dim);
    void (*query)(struct attn_work *w, uint32_t i, const float *q);
    void (*tile)(struct attn_work *w, uint32_t first,
                 uint32_t end); /* what its blocks of queries share; of keys [first, end) of the tile */
    /* queries [i, i + n), n <= rows, all of which see some of the tile at t0: scores, weights, sums */
    void (*block)(struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n);
    void (*finish)(float *y, uint32_t dim); /* sums in order of dimension; NULL: they are */
};
extern const struct attn_kind attn_float;
#if defined(__x86_64__)
extern const struct attn_kind attn_bf16;            /* keys and values of bf16, by vdpbf16ps */
extern const struct attn_kind attn_amx;             /* the same, by tiles */
bool                          attn_amx_works(void); /* they do what they should, here; they are there and allowed */
#endif

/* The keys of a tile that query i sees: [*lo_out, returned) */
static inline uint32_t attn_sees(const struct attn_work *w, uint32_t t0, uint32_t i, uint32_t *lo_out)
{
    *lo_out = w->first[i] > t0 ? w->first[i] - t0 : 0;
    return w->last[i] - t0 < ATTN_TILE ? w->last[i] - t0 + 1 : ATTN_TILE;
}
/* What n queries from i on see of a tile: each [lo, hi); all of them [from, to); some of them [first, end), whole
 * vectors from first. */
struct attn_window {
    uint32_t lo[ATTN_ROWS], hi[ATTN_ROWS], from, to, first, end;
};
static inline struct attn_window attn_window(const struct attn_work *w, uint32_t t0, uint32_t i, uint32_t n)
{
    struct attn_window s;
    s.from = s.end = 0;
    s.to = s.first = ATTN_TILE;
    for (uint32_t q = 0; q < n; q++) {
        s.hi[q] = attn_sees(w, t0, i + q, &s.lo[q]);
        s.from = s.lo[q] > s.from ? s.lo[q] : s.from;
        s.first = s.lo[q] < s.first ? s.lo[q] : s.first;
        s.to = s.hi[q] < s.to ? s.hi[q] : s.to;
        s.end = s.hi[q] > s.end ? s.hi[q] : s.end;
    }
    s.first = s.first / SIMD_LANES * SIMD_LANES;
    return s;
}
/* Are there enough queries to pay for copies of the tile? */
static inline bool attn_many(const struct attn_work *w) { return w->n > ATTN_FEW; }
