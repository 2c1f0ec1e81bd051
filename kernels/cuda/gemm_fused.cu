/* gemm_fused: a product of few rows together with what stands before and behind it (struct op_fused), in one launch.
 *   x [m, k], w [n, k] act   bias F32 [n], norm F32 [k]   out [m, n], of GLU [m, n / 2], act
 * The same bits as by the kernels one after another, so that each step may choose by its number of rows alone: the
 * frame, the slices of K and their order are those of k_gemm_rows, a row's norm is made by the tree of k_norm, and
 * whatever those kernels round to act on its way through memory is rounded here too.
 *
 *   norm   each block makes the normalised rows for itself and keeps them in shared memory: that is k numbers a row to
 *          read, from L2, while the first weights are on their way. With more than FUSED_NORM rows a launch of k_norm
 *          is cheaper, and with rows so long that only one block of an SM has room for them.
 *   GLU    a tile has 8 rows of gate and the same 8 of up, so a thread has both sums of an output. The matrix lies as
 *          ever, gate before up.
 *   ADD    out is the residual stream: each of its numbers is read and written by one thread, so nobody reads what
 *          another has written.
 *   QKV    a head's numbers come from tiles of several blocks, and a norm of it, or its scale in 8 bits, needs all of
 *          them. So the tiles of a head are counted, and the block that has written the last of them does to the head
 *          what k_qkv does, by the same code, for all rows, which it reads from L2. Nobody waits. What a row is (its
 *          position, where its keys go) is found while weights are under way. Heads that k_qkv does not take are left
 *          to k_qkv_odd, in a launch of its own. */
#include "base/check.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/rope_kv.cuh"
#include "kernels/cuda/rows_few.cuh"

enum {
    FUSED_NORM = 8, /* most rows with a norm */
    NORM_WARPS = NORM_THREADS / WARP
};

struct fused_args {
    struct rows_args rows;
    const float     *bias, *norm;
    float            eps;
    enum op_act      act;
    uint32_t         pitch; /* numbers from one normalised row to the next */
    struct qkv_args  heads; /* of QKV, as the next two */
    uint32_t         lanes; /* of a head */
    uint32_t        *tiles; /* of each head, that have been written; zero between launches */
};

/* Half a row of all banks beyond a multiple of them, so that 8 lanes which read 64 bytes of two rows meet all banks. */
static uint32_t fused_pitch(uint32_t k) { return (k + 63) / 64 * 64 + 32; }
/* Normalised rows, weights of the norm, sums of squares. */
static size_t fused_smem(uint32_t m, uint32_t k)
{
    return (size_t)m * fused_pitch(k) * 2 + (size_t)k * 4 + (size_t)m * NORM_WARPS * 4;
}

/* Waits for the kernel ahead and puts x's rows, normalised, to smem. A warp here does the work of norm_threads(k) / 32
 * warps of k_norm, one after another. */
template <class T> static __device__ __forceinline__ void fused_norm(const struct fused_args &p, T *smem)
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

static __device__ __forceinline__ float fused_glu(float gate, float up, enum op_act act)
{
    return act == OP_CLAMPED ? act_clamped(gate, up) : act_any(gate, act) * up;
}

/* Op qkv of a head whose tiles are all written, for all rows: by lanes of the block's warps, each with eight pairs. */
template <class T>
static __device__ __forceinline__ void fused_head(const struct fused_args &p, const struct qkv_row *rows, uint32_t head)
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
    }
}

/* Behind all tiles of a block: counts them for their heads, and finishes those that are whole now. What other blocks
 * wrote of these is seen: the barrier hands a block's tiles to the thread that counts them, its addition publishes them
 * and acquires those of others, and the next barrier hands these to the block. */
template <class T>
static __device__ __forceinline__ void fused_heads(const struct fused_args &p, const struct qkv_row *rows)
{
    __shared__ uint32_t whole; /* a bit for each head of the tiles at hand */
    const uint32_t      each = ROWS_WARPS / p.rows.cut.side, n_tile = p.rows.n / ROWS_TILE;
    const uint32_t      of_head = p.heads.head_dim / ROWS_TILE;
    for (uint32_t from = blockIdx.x * each; from < n_tile; from += gridDim.x * each) {
        const uint32_t first = from / of_head;
        __syncthreads();
        if (threadIdx.x < WARP) {
            uint32_t head = first + threadIdx.x, to = min(min(from + each, n_tile), (head + 1) * of_head);
            uint32_t begin = max(from, head * of_head);
            bool     last = begin < to && atom_add_acq_rel_gpu(p.tiles + head, to - begin) + to - begin == of_head;
            if (last) p.tiles[head] = 0;
            uint32_t mask = __ballot_sync(0xffffffffu, last);
            if (threadIdx.x == 0) whole = mask;
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t mask = whole; mask; mask &= mask - 1) fused_head<T>(p, rows, first + __ffs((int)mask) - 1);
    }
}

/* Loads that a warp has under way: as many as fit into registers beside what the end needs. */
template <int NB, int END> static __device__ __forceinline__ constexpr int fused_deep()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    if (NB == 2 && END == OP_END_ADD) return 4;
#endif
    return NB == 4 || (NB == 2 && END == OP_END_QKV) ? 4 : 6;
}

/* NB: groups of 8 rows of x, which are all of them. */
template <class T, int NB, int END, bool NORM>
__global__ void __launch_bounds__(ROWS_THREADS, rows_blocks(NB, true))
    k_gemm_fused(const __grid_constant__ struct fused_args p)
{
    enum { GLU = END == OP_END_GLU, QKV = END == OP_END_QKV };
    DYN_SMEM(T, smem);
    __shared__ struct qkv_row heads[QKV ? NB * 8 : 1];
    const uint32_t  lane = threadIdx.x % WARP, g = lane >> 2, t = lane & 3, m = p.rows.m, n = p.rows.n, k = p.rows.k;
    const uint16_t *row[NB];
    T              *out = (T *)p.rows.out;
    float           old[NB][4];
#pragma unroll
    for (int i = 0; i < NB; i++) {
        uint32_t r = min(i * 8 + g, m - 1);
        row[i] = NORM ? (const uint16_t *)smem + r * p.pitch : p.rows.x + (size_t)r * k;
    }
    auto begin = [&] {
        if (QKV && threadIdx.x < m) heads[threadIdx.x] = qkv_row_of(p.heads, threadIdx.x);
        if constexpr (NORM)
            fused_norm<T>(p, smem);
        else
            pdl_wait();
    };
    auto take = [&](int i, uint32_t at, uint32_t end) { return vec_load8<true, false>(row[i], at, end); };
    /* where number e of group i belongs; false: nowhere */
    auto place = [&](int i, int e, uint32_t tile, uint32_t *r_out, uint32_t *at_out) {
        *r_out = GLU ? tile * (ROWS_TILE / 2) + g : tile * ROWS_TILE + g + (e >> 1) * 8;
        *at_out = i * 8 + t * 2 + (e & 1);
        return *r_out < (GLU ? n / 2 : n) && *at_out < m;
    };
    auto ahead = [&](uint32_t tile) {
        uint32_t r, at;
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (END == OP_END_ADD && place(i, e, tile, &r, &at)) old[i][e] = act_load(out[(size_t)at * n + r]);
    };
    auto put = [&](const float(&sum)[NB][4], uint32_t tile) {
        uint32_t r, at;
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < (GLU ? 2 : 4); e++) {
                if (!place(i, e, tile, &r, &at)) continue;
                float y = rows_end<T>(sum[i][e], p.bias, r);
                if (END == OP_END_ADD) y += old[i][e];
                if (GLU) y = fused_glu(y, rows_end<T>(sum[i][e + 2 * GLU], p.bias, n / 2 + r), p.act);
                out[(size_t)at * (GLU ? n / 2 : n) + r] = act_store<T>(y);
            }
    };
    rows_few<T, NB, fused_deep<NB, END>(), true, GLU>(p.rows, begin, take, ahead, put);
    if constexpr (QKV) fused_heads<T>(p, heads);
}

template <class T, int NB, int END, bool NORM> static void fused_launch(struct cuda_dev *d, const struct fused_args &p)
{
    uint32_t tiles = rows_tiles<END == OP_END_GLU>(p.rows.n);
    size_t   smem = NORM ? fused_smem(p.rows.m, p.rows.k) : 0;
    LAUNCH((k_gemm_fused<T, NB, END, NORM>), rows_grid(d, tiles, p.rows.cut.side, rows_blocks(NB, true)), ROWS_THREADS,
           smem, d, p);
}

template <class T, int END> static void fused_rows(struct cuda_dev *d, const struct fused_args &p)
{
    if (p.rows.m <= 8)
        fused_launch<T, 1, END, false>(d, p);
    else if (p.rows.m <= 16)
        fused_launch<T, 2, END, false>(d, p);
    else
        fused_launch<T, 4, END, false>(d, p);
}

template <class T> static void fused_choose(struct cuda_dev *d, const struct fused_args &p, enum op_end end)
{
    if (p.norm && end == OP_END_GLU)
        fused_launch<T, 1, OP_END_GLU, true>(d, p);
    else if (p.norm && end == OP_END_QKV)
        fused_launch<T, 1, OP_END_QKV, true>(d, p);
    else if (p.norm)
        fused_launch<T, 1, OP_END_STORE, true>(d, p);
    else if (end == OP_END_GLU)
        fused_rows<T, OP_END_GLU>(d, p);
    else if (end == OP_END_ADD)
        fused_rows<T, OP_END_ADD>(d, p);
    else if (end == OP_END_QKV)
        fused_rows<T, OP_END_QKV>(d, p);
    else
        fused_rows<T, OP_END_STORE>(d, p);
}

/* May two blocks of an SM have normalised rows of their own? part: what else lies in shared memory. */
static bool fused_has_room(const struct cuda_dev *d, uint32_t m, uint32_t k)
{
    const size_t part = sizeof(float) * 2 * ROWS_WARPS * 4 * WARP + (FUSED_NORM + 1) * sizeof(struct qkv_row);
    const size_t system = 1024; /* of each block */
    return m <= FUSED_NORM && 2 * (fused_smem(m, k) + part + system) <= cuda_attn_smem(d->arch) + system;
}

/* Fills in what QKV takes. false: the heads are none that it finishes. */
static bool fused_qkv(struct cuda_dev *d, const struct op_fused *o, struct fused_args *p)
{
    const struct op_qkv *q = o->heads;
    CHECK(q->qkv == o->out && o->b->n_row == o->m && o->w->n == (q->n_head + 2 * q->n_kv_head) * q->head_dim);
    CHECK(!q->square); /* which is made of the product */
    p->heads = qkv_args_of(&d->impl.dev, q, o->b, o->kv);
    p->lanes = qkv_lanes(p->heads);
    p->tiles = d->blas->tiles;
    return p->lanes && q->n_head + 2 * q->n_kv_head <= GEMM_HEADS_MAX;
}

/* The product with what stands ahead of it, and op qkv by itself. */
static bool fused_then_qkv(struct cuda_dev *d, struct op_fused o)
{
    o.end = OP_END_STORE;
    if (!cuda_gemm_fused(d, &o)) return false;
    cuda_qkv(&d->impl.dev, o.heads, o.b, o.kv);
    return true;
}

extern "C" bool cuda_gemm_fused(struct cuda_dev *d, const struct op_fused *o)
{
    const uint32_t n = o->w->n, k = o->w->k;
    if (o->w->q.code != DT_F32 || o->m > GEMM_FUSED_ROWS || !vec_fits(k, o->x, o->w->data, o->x)) return false;
    if (o->norm && (o->end == OP_END_ADD || ((uintptr_t)o->norm & 15) || !fused_has_room(d, o->m, k))) return false;
    CHECK(o->m && n && (o->end != OP_END_GLU || n % 2 == 0));
    struct fused_args p = { .rows = { o->out, (const uint16_t *)o->x, (const uint16_t *)o->w->data, o->m, n, k,
                                      rows_cut(n, k, 2 * ROWS_STEP) },
                            .bias = o->bias,
                            .norm = o->norm,
                            .eps = o->eps,
                            .act = o->act,
                            .pitch = fused_pitch(k) };
    if (o->end == OP_END_QKV && !fused_qkv(d, o, &p)) return fused_then_qkv(d, *o);
    if (d->impl.dev.act == DT_F16)
        fused_choose<__half>(d, p, o->end);
    else
        fused_choose<__nv_bfloat16>(d, p, o->end);
    cuda_launched(d, "fused");
    return true;
}
