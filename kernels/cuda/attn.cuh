/* attn: the arithmetic of attention, one for decode and for tiles of rows, so that a row's bits do not depend on which
 * kernel had it.   Device code of attn.cu, attn_kv8.cu, attn_hopper.cu and mutual.cu.
 *   truth: kernels/ref/attn.c, kernels/ref/mutual.c
 *
 * A warp owns 16 query rows (MT times 16: the same rows of MT heads) and walks KV, as attn_feed.cuh brings it, in tiles
 * of 64 tokens at absolute positions: S = Q K^T and O += P V with mma.m16n8k16 (T in, bf16 or f16 as the KV pool is; fp32
 * sums), between them a running softmax in fp32 (Milakov & Gimelshein 2018, arXiv:1805.02867; tiling as in Dao 2023,
 * arXiv:2307.08691). In an mma a lane holds rows g = lane / 4 and g + 8, columns 2 * (lane % 4), + 1. All that rounds is
 * spelt out (__fmaf_rn, ...), so that no instance of a template contracts it in another way.
 *
 * Heads of more than 256 numbers: a row's result is too wide for the registers of one warp. Two warps share it then, a
 * half of the columns each; both make the row's scores, so neither waits for the other. Their tiles are of 16 tokens, so
 * that every GPU's shared memory holds the ring. */
#pragma once
#include "kernels/cuda/attn_feed.cuh"

/* ---------------------------------------------------------------- rows */

template <int HD, int MT> struct attn_rows {
    enum { UNEQUAL = 0 };                                         /* they see the same, but for rows of other warps */
    float    o[MT][attn_dim<HD>::OUT / 8][4], m[MT][2], l[MT][2]; /* l: this lane's part of the sum */
    uint32_t first[2], last[2];     /* what rows g and g + 8 see: positions first .. last */
    uint32_t seen_first, seen_last; /* what any row of the warp sees                       */
    uint32_t all_first, all_last;   /* what every row of the warp sees                     */
};

/* Rows of a run, each with a sight of its own: first and last of the above mean nothing. */
template <int HD> struct attn_run_rows : attn_rows<HD, 1> {
    enum { UNEQUAL = 1 };
    const struct tree_sight
        *sight; /* of rows g (0) and g + 8 (8), in shared memory: few tiles ask, registers are dear */
};

/* Does row g (h 0) or g + 8 not see token t? */
template <int HD, int MT>
static __device__ __forceinline__ bool attn_hides(const struct attn_rows<HD, MT> &r, int h, uint32_t t)
{
    return t < r.first[h] || t > r.last[h];
}
template <int HD>
static __device__ __forceinline__ bool attn_hides(const struct attn_run_rows<HD> &r, int h, uint32_t t)
{
    return (tree_tile(r.sight[8 * h], t) & 1) == 0;
}
/* Scores of the tile at t that a row does not see go. */
template <int HD, int MT>
static __device__ __forceinline__ void attn_mask(float s[attn_dim<HD>::KV / 8][4], const struct attn_rows<HD, MT> &r,
                                                 uint32_t t)
{
    uint32_t column = t + (threadIdx.x & 3) * 2;
#pragma unroll
    for (int j = 0; j < attn_dim<HD>::KV / 8; j++)
#pragma unroll
        for (int x = 0; x < 4; x++)
            if (attn_hides(r, x >> 1, column + j * 8 + (x & 1))) s[j][x] = -INFINITY;
}
template <int HD>
static __device__ __forceinline__ void attn_mask(float s[attn_dim<HD>::KV / 8][4], const struct attn_run_rows<HD> &r,
                                                 uint32_t t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint64_t seen = tree_tile(r.sight[8 * h], t) >> (threadIdx.x & 3) * 2;
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::KV / 8; j++)
#pragma unroll
            for (int x = 0; x < 2; x++)
                if (!(seen >> (j * 8 + x) & 1)) s[j][2 * h + x] = -INFINITY;
    }
}

template <int HD, int MT> static __device__ __forceinline__ void attn_clear(struct attn_rows<HD, MT> &r)
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::OUT / 8; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) r.o[i][j][x] = 0.0f;
        r.m[i][0] = r.m[i][1] = -INFINITY;
        r.l[i][0] = r.l[i][1] = 0.0f;
    }
}

/* Weight of what was summed under maximum m when the maximum is now `to`: exactly 1 when it has not moved. */
static __device__ __forceinline__ float attn_weight(float m, float to, float scale)
{
    return m == to ? 1.0f : ex2_approx(__fmul_rn(__fsub_rn(m, to), scale));
}
/* What the sums over values under maximum m are multiplied by, where the weights sum to `sum`. The sink is taken up
 * here, behind all chunks, so that each row has it once and at the same place. */
static __device__ __forceinline__ float attn_share(const struct attn_args &a, uint32_t head, float m, float sum)
{
    if (!a.sinks) return 1.0f / sum;
    float score = __fmul_rn(m, a.scale), sink = __fmaf_rn(a.sinks[head], ATTN_LOG2E, -a.sink_less);
    float to = fmaxf(score, sink), was = ex2_approx(__fsub_rn(score, to)), more = ex2_approx(__fsub_rn(sink, to));
    return was / __fmaf_rn(sum, was, more);
}
/* The sum of a lane's parts; the same bits in the four lanes of a row */
static __device__ __forceinline__ float attn_quad_sum(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
/* Numbers e and e + 1 of the result */
static __device__ __forceinline__ void attn_put2(const struct attn_args &a, uint32_t row, uint32_t head, uint32_t e,
                                                 float x, float y)
{
    uint16_t *to = (uint16_t *)a.out + ((size_t)row * a.n_head + head) * a.head_dim + e;
    uint16_t  lo = a.f16 ? __half_as_ushort(__float2half_rn(x)) : __bfloat16_as_ushort(__float2bfloat16_rn(x));
    uint16_t  hi = a.f16 ? __half_as_ushort(__float2half_rn(y)) : __bfloat16_as_ushort(__float2bfloat16_rn(y));
    if (e >= a.head_dim) return;
    if (a.head_dim % 2 == 0) {
        *(uint32_t *)to = lo | (uint32_t)hi << 16;
        return;
    }
    to[0] = lo;
    if (e + 1 < a.head_dim) to[1] = hi;
}

/* ---------------------------------------------------------------- one tile */

template <class T, int HD, int MT, int WARPS>
static __device__ __forceinline__ void attn_scores(float s[MT][attn_dim<HD>::KV / 8][4],
                                                   const struct attn_query<HD, MT, WARPS> &q, const char *k)
{
    enum { STRIDE = attn_dim<HD>::STRIDE };
    uint32_t lane = threadIdx.x & 31;
    k += ((lane / 16) * 8 + lane % 8) * STRIDE + (lane / 8 % 2) * 16;
    const char *q_lane = attn_q_lane<HD>(q.smem);
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::KV / 8; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) s[i][j][x] = 0.0f;
#pragma unroll
    for (int d = 0; d < attn_dim<HD>::STEPS; d++) {
        uint32_t f[MT][4];
#pragma unroll
        for (int i = 0; i < MT; i++) {
            if (attn_query<HD, MT, WARPS>::IN_REGISTERS) {
#pragma unroll
                for (int x = 0; x < 4; x++) f[i][x] = q.f[attn_query<HD, MT, WARPS>::IN_REGISTERS ? d : 0][x];
            } else {
                ldmatrix_x4(f[i], q_lane + i * 16 * STRIDE + d * 32);
            }
        }
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::KV / 16; j++) {
            uint32_t b[4];
            ldmatrix_x4(b, k + j * 16 * STRIDE + d * 32);
#pragma unroll
            for (int i = 0; i < MT; i++) {
                attn_type<T>::mma(s[i][2 * j], f[i], b);
                attn_type<T>::mma(s[i][2 * j + 1], f[i], b + 2);
            }
        }
    }
}

/* cap * tanh(u) = cap - 2 cap / (1 + e^2u), of which the second part is left: a softmax does not see what all scores
 * have in common. Far from 0 the power is 0 or infinite, and the result -2 cap or 0. */
template <int HD, int MT>
static __device__ __forceinline__ void attn_cap(float s[MT][attn_dim<HD>::KV / 8][4], float cap_in, float cap_out)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::KV / 8; j++)
#pragma unroll
            for (int x = 0; x < 4; x++) {
                float e = ex2_approx(__fmul_rn(s[i][j][x], cap_in));
                s[i][j][x] = __fmul_rn(cap_out, rcp_approx(__fadd_rn(1.0f, e)));
            }
}

/* Scores of the tile at t become weights p, as fragments of A; maximum, sum and o move along. */
template <class T, int HD, int MT, class ROWS>
static __device__ __forceinline__ void attn_softmax(uint32_t p[MT][attn_dim<HD>::KV / 16][4],
                                                    float s[MT][attn_dim<HD>::KV / 8][4], ROWS &r, uint32_t t,
                                                    bool mixed, float scale)
{
#pragma unroll
    for (int i = 0; i < MT; i++) {
        if (mixed) attn_mask<HD>(s[i], r, t);
        float was[2], shift[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float m = r.m[i][h];
#pragma unroll
            for (int j = 0; j < attn_dim<HD>::KV / 8; j++) m = fmaxf(m, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
            m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
            was[h] = attn_weight(r.m[i][h], m, scale);
            shift[h] = m == -INFINITY ? 0.0f : -__fmul_rn(m, scale);
            r.m[i][h] = m;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float even = 0.0f, odd = 0.0f;
#pragma unroll
            for (int j = 0; j < attn_dim<HD>::KV / 8; j++) {
                float x = s[i][j][2 * h] = ex2_approx(__fmaf_rn(s[i][j][2 * h], scale, shift[h]));
                float y = s[i][j][2 * h + 1] = ex2_approx(__fmaf_rn(s[i][j][2 * h + 1], scale, shift[h]));
                even = __fadd_rn(even, x), odd = __fadd_rn(odd, y);
            }
            r.l[i][h] = __fmaf_rn(r.l[i][h], was[h], __fadd_rn(even, odd));
        }
        if (__any_sync(0xffffffffu, was[0] != 1.0f || was[1] != 1.0f)) { /* times 1 changes no bit */
#pragma unroll
            for (int j = 0; j < attn_dim<HD>::OUT / 8; j++)
#pragma unroll
                for (int x = 0; x < 4; x++) r.o[i][j][x] = __fmul_rn(r.o[i][j][x], was[x >> 1]);
        }
#pragma unroll
        for (int j = 0; j < attn_dim<HD>::KV / 16; j++)
#pragma unroll
            for (int x = 0; x < 4; x++)
                p[i][j][x] =
                    attn_type<T>::pack(s[i][2 * j + (x >> 1)][2 * (x & 1)], s[i][2 * j + (x >> 1)][2 * (x & 1) + 1]);
    }
}

/* Mask of the halves that are NaN or infinite */
template <class T> static __device__ __forceinline__ uint32_t attn_not_finite(uint32_t w)
{
    const uint32_t low = attn_type<T>::LARGEST, high = low << 16;
    return ((w & low) == low ? 0xffffu : 0u) | ((w & high) == high ? 0xffff0000u : 0u);
}

/* o += p V, of the columns from v on that this warp has. FINITE: of what is finite in V only. */
template <class T, int HD, int MT, bool FINITE>
static __device__ __forceinline__ void attn_sum(struct attn_rows<HD, MT> &r,
                                                const uint32_t p[MT][attn_dim<HD>::KV / 16][4], const char *v)
{
    enum { STRIDE = attn_dim<HD>::STRIDE };
    uint32_t lane = threadIdx.x & 31;
    v += ((lane / 8 % 2) * 8 + lane % 8) * STRIDE + (lane / 16) * 16;
#pragma unroll
    for (int j = 0; j < attn_dim<HD>::KV / 16; j++)
#pragma unroll
        for (int d = 0; d < attn_dim<HD>::OUT / 16; d++) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, v + j * 16 * STRIDE + d * 32);
            if (FINITE) {
#pragma unroll
                for (int x = 0; x < 4; x++) b[x] &= ~attn_not_finite<T>(b[x]);
            }
#pragma unroll
            for (int i = 0; i < MT; i++) {
                attn_type<T>::mma(r.o[i][2 * d], p[i][j], b);
                attn_type<T>::mma(r.o[i][2 * d + 1], p[i][j], b + 2);
            }
        }
}

template <class T, int HD> static __device__ __forceinline__ bool attn_any_not_finite(const char *v)
{
    uint32_t bad = 0;
    for (uint32_t i = threadIdx.x & 31; i < attn_dim<HD>::KV * (HD / 8); i += 32) {
        uint4 w = *(const uint4 *)(v + i / (HD / 8) * attn_dim<HD>::STRIDE + i % (HD / 8) * 16);
        bad |= attn_not_finite<T>(w.x) | attn_not_finite<T>(w.y) | attn_not_finite<T>(w.z) | attn_not_finite<T>(w.w);
    }
    return __any_sync(0xffffffffu, bad != 0);
}

/* A tile that only some rows see may hold NaN or infinity for them, and weight zero does not keep it from the others:
 * so it is left out of the product and added to the rows that see it. A lane's columns are its own, so nobody else
 * knows of it. */
template <class T, int HD, int MT, class ROWS>
static __device__ __forceinline__ void attn_sum_careful(ROWS &r, const uint32_t p[MT][attn_dim<HD>::KV / 16][4],
                                                        const char *v, uint32_t t)
{
    attn_sum<T, HD, MT, true>(r, p, v);
    v += (threadIdx.x & 3) * 4;
#pragma unroll
    for (int d = 0; d < attn_dim<HD>::OUT / 8; d++)
#pragma unroll 1
        for (uint32_t j = 0; j < attn_dim<HD>::KV; j++) {
            uint32_t w = *(const uint32_t *)(v + j * attn_dim<HD>::STRIDE + d * 16);
            w &= attn_not_finite<T>(w);
            if (!w) continue;
            float x = attn_type<T>::number(w & 0xffffu), y = attn_type<T>::number(w >> 16);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (attn_hides(r, h, t + j)) continue;
#pragma unroll
                for (int i = 0; i < MT; i++) r.o[i][d][2 * h] += x, r.o[i][d][2 * h + 1] += y;
            }
        }
}

/* ---------------------------------------------------------------- folding: chunks within one walk */

/* Sums of the chunks so far, per thread: [MT][m, l of row g; m, l of row g + 8; o] of THREADS floats each. */
template <int HD, int MT> struct attn_fold {
    enum { EACH = 4 + attn_dim<HD>::OUT / 2 };
};
/* Adds what row half h has now to what was folded, or begins with it; the result goes to memory (KEEP) or to the
 * rows. more than eight: it is compiled into its caller, which has all of this in registers. */
template <int HD, int MT, int THREADS>
static __device__ __forceinline__ void attn_merge(struct attn_rows<HD, MT> &r, int i, int h, float sum, float *fold,
                                                  bool begin, bool keep, float scale)
{
    fold += i * attn_fold<HD, MT>::EACH * THREADS + threadIdx.x;
    float *ml = fold + 2 * h * THREADS, m = r.m[i][h], w = 0.0f, w_new = 1.0f;
    if (!begin) {
        m = fmaxf(ml[0], m);
        w = attn_weight(ml[0], m, scale);
        w_new = attn_weight(r.m[i][h], m, scale);
        sum = __fmaf_rn(sum, w_new, __fmul_rn(ml[THREADS], w));
    }
    if (keep) ml[0] = m, ml[THREADS] = sum;
    r.m[i][h] = keep ? -INFINITY : m;
    r.l[i][h] = keep ? 0.0f : sum;
#pragma unroll
    for (int j = 0; j < attn_dim<HD>::OUT / 8; j++)
#pragma unroll
        for (int x = 2 * h; x < 2 * h + 2; x++) {
            float *at = fold + (4 + j * 4 + x) * THREADS, o = r.o[i][j][x];
            if (!begin) o = __fmaf_rn(o, w_new, __fmul_rn(*at, w));
            if (keep) *at = o;
            r.o[i][j][x] = keep ? 0.0f : o;
        }
}
/* Before the tile at t (a multiple of CUDA_ATTN_FIXED_MIN): rows whose chunk ends here put it aside. */
template <int HD, int MT, int THREADS>
static __device__ __forceinline__ void attn_put_aside(struct attn_rows<HD, MT> &r, float *fold, uint32_t t,
                                                      uint32_t window, float scale)
{
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float    sum = attn_quad_sum(r.l[i][h]);
            uint32_t chunk = cuda_attn_chunk_fixed(r.last[h] + 1, window);
            if (t % chunk || r.first[h] >= t || r.last[h] < t) continue;
            attn_merge<HD, MT, THREADS>(r, i, h, sum, fold, t - chunk <= r.first[h], true, scale);
        }
}

/* ---------------------------------------------------------------- the walk */

/* All tiles of the feed, which has been begun. Behind it r.l is whole. All threads of the block call it. fold: NULL, or
 * room. */
template <class T, int HD, int MT, int WARPS, class FEED, class ROWS>
static __device__ __forceinline__ void attn_walk(const struct attn_args &a, FEED &f,
                                                 const struct attn_query<HD, MT, WARPS> &q, ROWS &r, float *fold)
{
    enum { KV = attn_dim<HD>::KV, PARTS = attn_dim<HD>::PARTS };
    attn_clear(r);
    /* The feed is a tile ahead. Of three slots, the one that it fills next but has not yet begun to is the one to be
     * worked on. */
    while (f.t < f.hi + KV) {
        uint32_t t = f.t - KV, p[MT][KV / 16][4];
        bool     seen = t <= r.seen_last && t + KV > r.seen_first, mixed = t < r.all_first || t + KV - 1 > r.all_last;
        cp_async_wait<1>();
        if (WARPS == 1)
            __syncwarp();
        else
            __syncthreads(); /* K is there, and everybody is done with the V before it, where the next K goes */
        attn_feed_k<HD, WARPS>(a, f);
        if (fold && t % CUDA_ATTN_FIXED_MIN == 0) attn_put_aside<HD, MT, WARPS * 32>(r, fold, t, a.window, a.scale);
        attn_widen<HD, WARPS>(f, t);
        if (seen) {
            float s[MT][KV / 8][4];
            attn_scores<T, HD, MT, WARPS>(s, q, attn_tile_of<HD>(f));
            if (a.cap_out != 0.0f) attn_cap<HD, MT>(s, a.cap_in, a.cap_out);
            attn_softmax<T, HD, MT>(p, s, r, t, mixed, a.scale);
        }
        cp_async_wait<1>();
        if (WARPS == 1)
            __syncwarp();
        else
            __syncthreads();
        attn_feed_v<HD, WARPS>(a, f);
        attn_widen<HD, WARPS>(f, f.t - 2 * KV); /* t, which is not kept for this */
        if (!seen) continue;
        const char *v = attn_tile_of<HD>(f);
        const char *mine = v + attn_column<HD>() * sizeof(T);
        if ((ROWS::UNEQUAL || WARPS > PARTS) && mixed && attn_any_not_finite<T, HD>(v))
            attn_sum_careful<T, HD, MT>(r, p, mine, f.t - 2 * KV);
        else
            attn_sum<T, HD, MT, false>(r, p, mine);
    }
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) r.l[i][h] = attn_quad_sum(r.l[i][h]);
}

/* ---------------------------------------------------------------- the result */

template <int HD, int MT>
static __device__ __forceinline__ void attn_put_rows(const struct attn_args &a, const struct attn_rows<HD, MT> &r,
                                                     int i, int h, uint32_t row, uint32_t head)
{
    float by = attn_share(a, head, r.m[i][h], r.l[i][h]);
#pragma unroll
    for (int j = 0; j < attn_dim<HD>::OUT / 8; j++)
        attn_put2(a, row, head, attn_column<HD>() + j * 8 + (threadIdx.x & 3) * 2, __fmul_rn(r.o[i][j][2 * h], by),
                  __fmul_rn(r.o[i][j][2 * h + 1], by));
}

/* ---------------------------------------------------------------- launches */

/* Shared memory: the ring, then (unless in registers) Q, then (fixed split) the fold. */
template <class P, int HD, int MT, int WARPS> struct attn_smem {
    enum {
        RING = attn_ring<P, HD>::BYTES,
        Q = attn_query<HD, MT, WARPS>::IN_REGISTERS ? 0
                                                    : MT * (WARPS / attn_dim<HD>::PARTS) * 16 * attn_dim<HD>::STRIDE,
        FOLD = MT * attn_fold<HD, MT>::EACH * WARPS * 32 * 4
    };
};

/* What the op alone says: heads, scale, cap, where q and the result are, the plan of the step. */
static inline struct attn_args attn_args_of(const struct cuda_dev *d, const struct op_attn *o,
                                            const struct dev_batch *b)
{
    struct attn_args a;
    memset(&a, 0, sizeof a);
    a.qkv = o->qkv, a.out = o->out;
    a.head_dim = o->head_dim, a.n_head = o->n_head, a.n_kv_head = o->n_kv_head;
    a.width = op_attn_heads(o);
    a.group = o->n_head / o->n_kv_head, a.window = o->window, a.chunked = o->chunked;
    a.scale = o->scale * ATTN_LOG2E;
    a.sinks = o->sinks;
    if (o->cap != 0.0f) { /* the capped scores have their scale already */
        a.cap_in = 2.0f * a.scale / o->cap, a.cap_out = -2.0f * o->cap;
        a.scale = ATTN_LOG2E;
        a.sink_less = o->cap * ATTN_LOG2E;
    }
    a.f16 = d->impl.dev.act == DT_F16;
    a.pos = b->pos, a.row_start = b->row_start, a.page_start = b->page_start, a.page = b->page;
    a.tree = b->tree;
    a.plan = d->attn;
    return a;
}

/* attn_kv8.cu: op_attn over a pool of rows in 8 bits. */
void cuda_attn_kv8(struct cuda_dev *d, const struct attn_args &a);
/* attn_hopper.cu: the tiles of rows of op_attn. f16: of the pool. false: not there, not wanted or not of this shape. */
bool cuda_attn_hopper(struct cuda_dev *d, const struct attn_args &a, bool f16);
