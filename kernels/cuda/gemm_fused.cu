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
 *          another has written. */
#include "base/check.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/norm.cuh"
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

/* A sum as the product leaves it, and then with its bias, as the next kernel reads them. */
template <class T> static __device__ __forceinline__ float fused_end(float sum, const float *bias, uint32_t r)
{
    float y = act_load(act_store<T>(sum));
    if (bias) y = act_load(act_store<T>(y + bias[r]));
    return y;
}

static __device__ __forceinline__ float fused_glu(float gate, float up, enum op_act act)
{
    return act == OP_CLAMPED ? act_clamped(gate, up) : act_any(gate, act) * up;
}

/* NB: groups of 8 rows of x, which are all of them. */
template <class T, int NB, int DEEP, int END, bool NORM>
__global__ void __launch_bounds__(ROWS_THREADS, rows_blocks(NB, true))
    k_gemm_fused(const __grid_constant__ struct fused_args p)
{
    enum { GLU = END == OP_END_GLU };
    DYN_SMEM(T, smem);
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
                float y = fused_end<T>(sum[i][e], p.bias, r);
                if (END == OP_END_ADD) y += old[i][e];
                if (GLU) y = fused_glu(y, fused_end<T>(sum[i][e + 2 * GLU], p.bias, n / 2 + r), p.act);
                out[(size_t)at * (GLU ? n / 2 : n) + r] = act_store<T>(y);
            }
    };
    rows_few<T, NB, DEEP, true, GLU>(p.rows, begin, take, ahead, put);
}

template <class T, int NB, int DEEP, int END, bool NORM>
static void fused_launch(struct cuda_dev *d, const struct fused_args &p)
{
    uint32_t tiles = rows_tiles<END == OP_END_GLU>(p.rows.n);
    size_t   smem = NORM ? fused_smem(p.rows.m, p.rows.k) : 0;
    LAUNCH((k_gemm_fused<T, NB, DEEP, END, NORM>), rows_grid(d, tiles, p.rows.cut.side, rows_blocks(NB, true)),
           ROWS_THREADS, smem, d, p);
}

template <class T, int END> static void fused_rows(struct cuda_dev *d, const struct fused_args &p)
{
    if (p.rows.m <= 8)
        fused_launch<T, 1, 6, END, false>(d, p);
    else if (p.rows.m <= 16)
        fused_launch<T, 2, 6, END, false>(d, p);
    else
        fused_launch<T, 4, 4, END, false>(d, p);
}

template <class T> static void fused_choose(struct cuda_dev *d, const struct fused_args &p, enum op_end end)
{
    if (p.norm && end == OP_END_GLU)
        fused_launch<T, 1, 6, OP_END_GLU, true>(d, p);
    else if (p.norm)
        fused_launch<T, 1, 6, OP_END_STORE, true>(d, p);
    else if (end == OP_END_GLU)
        fused_rows<T, OP_END_GLU>(d, p);
    else if (end == OP_END_ADD)
        fused_rows<T, OP_END_ADD>(d, p);
    else
        fused_rows<T, OP_END_STORE>(d, p);
}

/* May two blocks of an SM have normalised rows of their own? part: what else lies in shared memory. */
static bool fused_has_room(const struct cuda_dev *d, uint32_t m, uint32_t k)
{
    const size_t part = sizeof(float) * 2 * ROWS_WARPS * 4 * WARP, system = 1024; /* the latter of each block */
    return m <= FUSED_NORM && 2 * (fused_smem(m, k) + part + system) <= cuda_attn_smem(d->arch) + system;
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
    if (d->impl.dev.act == DT_F16)
        fused_choose<__half>(d, p, o->end);
    else
        fused_choose<__nv_bfloat16>(d, p, o->end);
    cuda_launched(d, "fused");
    return true;
}
