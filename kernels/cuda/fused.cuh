/* fused: what products of few rows share that are joined with what stands around them (struct op_fused): a norm ahead of the
 * product, what becomes of its sums, and op qkv behind it.   Device code and arguments of gemm_fused.cu, which says how
 * each works, and codes_fused.cu. R: the arguments of their frame, struct rows_args or struct codes_args. */
#pragma once
#include "base/check.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/rope_kv.cuh"
#include "kernels/cuda/rows.cuh"

enum {
    FUSED_NORM = 8, /* most rows with a norm */
    NORM_WARPS = NORM_THREADS / WARP
};

template <class R> struct fused_args {
    R               rows;
    const float    *bias, *norm;
    float           eps;
    enum op_act     act;
    enum op_end     end;
    uint32_t        pitch; /* numbers from one normalised row to the next */
    struct qkv_args heads; /* of QKV, as the next two */
    uint32_t        lanes; /* of a head */
    uint32_t       *tiles; /* of each head, that have been written; zero between launches */
};

/* ---------------------------------------------------------------- ahead */

/* Half a row of all banks beyond a multiple of them, so that 8 lanes which read 64 bytes of two rows meet all banks. */
static inline uint32_t fused_pitch(uint32_t k) { return (k + 63) / 64 * 64 + 32; }
/* Normalised rows, weights of the norm, sums of squares. */
static inline size_t fused_smem(uint32_t m, uint32_t k)
{
    return (size_t)m * fused_pitch(k) * 2 + (size_t)k * 4 + (size_t)m * NORM_WARPS * 4;
}

/* Waits for the kernel ahead and puts x's rows, normalised, to smem. A warp here does the work of norm_threads(k) / 32
 * warps of k_norm, one after another. */
template <class T, class R> static __device__ __forceinline__ void fused_norm(const struct fused_args<R> &p, T *smem)
{
    const uint32_t m = p.rows.m, k = p.rows.k, lane = threadIdx.x % WARP, n_warp = norm_threads(k) / WARP;
    const uint32_t step = n_warp * WARP * VEC;
    float         *w = (float *)(smem + (size_t)m * p.pitch), *part = w + k;
    for (uint32_t i = threadIdx.x * 4; i < k; i += ROWS_THREADS * 4) cp_async16(w + i, p.norm + i);
    cp_async_commit();
    pdl_wait(); /* no kernel writes weights, of norms neither */
    for (uint32_t r = 0; r < m; r++)
        for (uint32_t i = threadIdx.x * VEC; i < k; i += ROWS_THREADS * VEC)
            cp_async16(smem + r * p.pitch + i, p.rows.x + (size_t)r * k + i);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (uint32_t of = threadIdx.x / WARP; of < m * n_warp; of += ROWS_WARPS) {
        const T *x = smem + of / n_warp * p.pitch;
        float    sum = 0.0f;
        for (uint32_t i = (of % n_warp * WARP + lane) * VEC; i < k; i += step) {
            float f[VEC];
            uint4 a = *(const uint4 *)(x + i);
            sum += norm_take<T, false>(f, a, a, (T *)NULL);
        }
        sum = warp_sum(sum);
        if (lane == 0) part[of / n_warp * NORM_WARPS + of % n_warp] = sum;
    }
    __syncthreads();
    for (uint32_t of = threadIdx.x / WARP; of < m * n_warp; of += ROWS_WARPS) {
        T    *x = smem + of / n_warp * p.pitch;
        float sum = warp_sum(lane < n_warp ? part[of / n_warp * NORM_WARPS + lane] : 0.0f);
        float scale = norm_scale(sum, k, p.eps);
        for (uint32_t i = (of % n_warp * WARP + lane) * VEC; i < k; i += step) {
            float f[VEC], v[VEC];
            act_load8<T>(f, *(const uint4 *)(x + i));
            norm_load_w(v, w + i);
            norm_put(x + i, f, v, scale);
        }
    }
    __syncthreads();
}

/* ---------------------------------------------------------------- behind */

static __device__ __forceinline__ float fused_glu(float gate, float up, enum op_act act)
{
    return act == OP_CLAMPED ? act_clamped(gate, up) : act_any(gate, act) * up;
}

/* Where number e of a lane's sums of group i of a tile belongs; false: nowhere. */
template <class R>
static __device__ __forceinline__ bool fused_place(const struct fused_args<R> &p, bool is_glu, uint32_t lane,
                                                   uint32_t tile, int i, int e, uint32_t &r, uint32_t &at)
{
    r = is_glu ? tile * (ROWS_TILE / 2) + (lane >> 2) : tile * ROWS_TILE + (lane >> 2) + (e >> 1) * 8;
    at = i * 8 + (lane & 3) * 2 + (e & 1);
    return r < (is_glu ? p.rows.n / 2 : p.rows.n) && at < p.rows.m;
}

/* Of ADD: what the sums of a tile will be added to. */
template <class T, int NB, class R>
static __device__ __forceinline__ void fused_ahead(const struct fused_args<R> &p, enum op_end end, float (&old)[NB][4],
                                                   uint32_t tile)
{
    const uint32_t lane = rows_thread() % WARP;
    uint32_t       r, at;
    if (end != OP_END_ADD) return;
#pragma unroll
    for (int i = 0; i < NB; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (fused_place(p, false, lane, tile, i, e, r, at))
                old[i][e] = act_load(((const T *)p.rows.out)[(size_t)at * p.rows.n + r]);
}

/* ends(sum, r): a sum of row r of w as the product leaves it. */
template <class T, int NB, class R, class ENDS>
static __device__ __forceinline__ void fused_put(const struct fused_args<R> &p, enum op_end end,
                                                 const float (&sum)[NB][4], const float (&old)[NB][4], uint32_t tile,
                                                 ENDS ends)
{
    const uint32_t lane = rows_thread() % WARP, n = p.rows.n;
    T             *out = (T *)p.rows.out;
    uint32_t       r, at;
    if (end == OP_END_GLU) { /* the gate has the first two numbers, up the others */
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                if (!fused_place(p, true, lane, tile, i, e, r, at)) continue;
                float gate = rows_end<T>(ends(sum[i][e], r), p.bias, r);
                float up = rows_end<T>(ends(sum[i][e + 2], n / 2 + r), p.bias, n / 2 + r);
                out[(size_t)at * (n / 2) + r] = act_store<T>(fused_glu(gate, up, p.act));
            }
        return;
    }
#pragma unroll
    for (int i = 0; i < NB; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            if (!fused_place(p, false, lane, tile, i, e, r, at)) continue;
            float y = rows_end<T>(ends(sum[i][e], r), p.bias, r);
            if (end == OP_END_ADD) y += old[i][e];
            out[(size_t)at * n + r] = act_store<T>(y);
        }
}

/* Op qkv of a head whose tiles are all written, for all rows: by lanes of the block's warps, each with eight pairs. */
template <class T, int NB, class R>
static __device__ __forceinline__ void fused_head(const struct fused_args<R> &p, const struct qkv_row *rows,
                                                  uint32_t head)
{
    const uint32_t        lane = threadIdx.x % WARP, each = WARP / p.lanes;
    const struct qkv_lane l = qkv_lane_of(p.heads, head, lane % p.lanes, p.lanes, p.heads.norm_mean);
#pragma unroll 1
    for (uint32_t from = threadIdx.x / WARP * each; from < p.rows.m; from += ROWS_WARPS * each) {
        const struct qkv_row r = rows[min(from + lane / p.lanes, p.rows.m - 1)];
        struct qkv_lane      of = l;
        T                   *x = (T *)p.rows.out + (size_t)r.row * p.rows.n + head * p.heads.head_dim;
        uint4                u = make_uint4(0, 0, 0, 0), v = u;
        float                c[QKV_EACH], s[QKV_EACH];
        of.in = l.in && r.there && from + lane / p.lanes < p.rows.m;
        if (of.in) {
            u = __ldcg((const uint4 *)(x + l.i));
            v = __ldcg((const uint4 *)(x + l.j));
        }
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            c[k] = 1.0f;
            s[k] = 0.0f;
            if (l.is_turned && head < p.heads.n_head + p.heads.n_kv_head)
                qkv_angle(p.heads, r.pos, l.i + k, c[k], s[k]);
        }
        qkv_head<T>(p.heads, r, of, x, u, v, [&](int k, float &cosine, float &sine) {
            cosine = c[k];
            sine = s[k];
        });
        if (NB == 1) break; /* there is a warp for each row */
    }
}

/* Behind all tiles of a block: counts them for their heads, and finishes those that are whole now. What other blocks
 * wrote of these is seen: the barrier hands a block's tiles to the thread that counts them, its addition publishes them
 * and acquires those of others, and the next barrier hands these to the block. */
template <class T, int NB, class R>
static __device__ __forceinline__ void fused_heads(const struct fused_args<R> &p, const struct qkv_row *rows)
{
    __shared__ uint32_t whole, first; /* a bit for each head of the tiles at hand, and the number of the first */
    const uint32_t      each = ROWS_WARPS / p.rows.cut.side, n_tile = p.rows.n / ROWS_TILE;
    const uint32_t      of_head = p.heads.head_dim / ROWS_TILE;
    for (uint32_t from = blockIdx.x * each; from < n_tile; from += gridDim.x * each) {
        __syncthreads();
        if (threadIdx.x < WARP) {
            uint32_t head = from / of_head + threadIdx.x, to = min(min(from + each, n_tile), (head + 1) * of_head);
            uint32_t begin = max(from, head * of_head);
            bool     last = begin < to && atom_add_acq_rel_gpu(p.tiles + head, to - begin) + to - begin == of_head;
            if (last) p.tiles[head] = 0;
            uint32_t mask = __ballot_sync(0xffffffffu, last);
            if (threadIdx.x == 0) whole = mask, first = head;
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t i = 0; i < WARP && whole >> i; i++) /* read anew: registers are dear here */
            if (whole >> i & 1) fused_head<T, NB>(p, rows, first + i);
    }
}

/* ---------------------------------------------------------------- host */

/* May two blocks of an SM have normalised rows of their own? part: what else lies in shared memory. */
static inline bool fused_has_room(const struct cuda_dev *d, uint32_t m, uint32_t k)
{
    const size_t part = sizeof(float) * 2 * ROWS_WARPS * 4 * WARP + (FUSED_NORM + 1) * sizeof(struct qkv_row);
    const size_t system = 1024; /* of each block */
    return m <= FUSED_NORM && 2 * (fused_smem(m, k) + part + system) <= cuda_attn_smem(d->arch) + system;
}

/* Fills in what QKV takes. false: the heads are none that it finishes. */
template <class R> static bool fused_qkv(struct cuda_dev *d, const struct op_fused *o, struct fused_args<R> *p)
{
    const struct op_qkv *q = o->heads;
    CHECK(q->qkv == o->out && o->b->n_row == o->m && o->w->n == (q->n_head + 2 * q->n_kv_head) * q->head_dim);
    CHECK(!q->square); /* which is made of the product */
    p->heads = qkv_args_of(&d->impl.dev, q, o->b, o->kv);
    p->lanes = qkv_lanes(p->heads);
    p->tiles = d->blas->tiles;
    return p->lanes && q->n_head + 2 * q->n_kv_head <= GEMM_HEADS_MAX;
}

/* Is there a kernel for this product, whose matrix lies at w? */
static inline bool fused_takes(const struct cuda_dev *d, const struct op_fused *o, const void *w)
{
    if (o->m > GEMM_FUSED_ROWS || !vec_fits(o->w->k, o->x, w, o->x)) return false;
    CHECK(o->m && o->w->n && (o->end != OP_END_GLU || o->w->n % 2 == 0));
    if (!o->norm) return true;
    return o->end != OP_END_ADD && ((uintptr_t)o->norm & 15) == 0 && fused_has_room(d, o->m, o->w->k);
}

/* All but QKV's own, which fused_qkv fills in. */
template <class R> static struct fused_args<R> fused_args_of(const struct op_fused *o, const R &rows) {
    struct fused_args<R> p = {
    };
    p.rows = rows;
    p.bias = o->bias, p.norm = o->norm, p.eps = o->eps;
    p.act = o->act, p.end = o->end;
    p.pitch = fused_pitch(o->w->k);
    return p;
}

/* The product with what stands ahead of it, and op qkv by itself. */
static inline bool
fused_then_qkv(struct cuda_dev *d, struct op_fused o, bool (*fused)(struct cuda_dev *, const struct op_fused *))
{
    o.end = OP_END_STORE;
    if (!fused(d, &o)) return false;
    cuda_qkv(&d->impl.dev, o.heads, o.b, o.kv);
    return true;
}
