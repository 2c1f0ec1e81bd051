/* lora: what adapters add to a product of rows: t = A x (shrink), then out += scale * B t (expand).   truth:
 * kernels/ref/lora.c
 *   x [n_row, k], A [rank, k], B [n, rank], out [n_row, out_dim] act   t [n_row, rank] F32, never rounded to act
 * Rows are taken LORA_ROWS at a time, where they stand. A block goes over the slots that its rows use: a run of rows
 * with one adapter, as a prompt has, reads that adapter once for LORA_ROWS rows, and a block of rows without adapters
 * ends at once. Products of rows that have another slot are made with the others and left out.
 * Exact: t[i, p] is the sum over LORA_WARPS warps, in their order, of chains of mma steps along k; which part of k is
 * whose follows from k alone. out[i, j] is one chain of fma along the rank. So a row has the same bits in every
 * batch. */
#include "base/check.h"
#include "kernels/cuda/vec.cuh"

enum {
    LORA_ROWS = 16,
    LORA_RANKS = 16, /* of t that a block of shrink makes, and that one of expand reads at a time */
    LORA_WARPS = 8,  /* of shrink */
    LORA_SHRINK = LORA_WARPS * WARP,
    LORA_K = 32, /* of k that a warp takes at a time: 8 neighbours for each of 4 lanes */
    LORA_TURN = LORA_WARPS * LORA_K,
    LORA_AHEAD = 4,   /* turns whose loads are under way together */
    LORA_EXPAND = 128 /* threads of expand: a column each */
};

struct lora_job {
    const uint32_t    *adapter, *row; /* as in struct op_lora */
    const void *const *at;            /* dev_lora.at */
    const float       *scale;
    float             *t;
    uint32_t           n_row, n_slot, rank, n, k, out_dim, first;
};

/* The slots of a block's rows. */
struct lora_rows {
    uint32_t slot[LORA_ROWS]; /* 1 + slot; 0: nothing is added to the row */
    bool     lead[LORA_ROWS]; /* no row before it has this slot */
};

static __device__ __forceinline__ void lora_rows_take(struct lora_rows *r, const struct lora_job &o, uint32_t r0)
{
    if (threadIdx.x < LORA_ROWS) {
        uint32_t i = r0 + threadIdx.x, at = UINT32_MAX, slot = 0;
        if (i < o.n_row) at = o.row ? o.row[i] : i;
        if (at != UINT32_MAX) slot = o.adapter[at];
        if (slot > o.n_slot || (slot && o.scale[slot - 1] == 0.0f)) slot = 0;
        r->slot[threadIdx.x] = slot;
    }
    __syncthreads();
    if (threadIdx.x < LORA_ROWS) {
        uint32_t slot = r->slot[threadIdx.x];
        bool     lead = slot != 0;
        for (uint32_t i = 0; i < threadIdx.x; i++) lead = lead && r->slot[i] != slot;
        r->lead[threadIdx.x] = lead;
    }
    __syncthreads();
}

/* Eight neighbours of row i of x [n, k], from c on; zeros outside. ONCE: nobody reads them again. */
template <class T, bool VECTOR, bool ONCE>
static __device__ __forceinline__ uint4 lora_load8(const T *x, uint32_t i, uint32_t n, uint32_t k, uint32_t c)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (VECTOR) {
        const T *at = x + (size_t)i * k + c;
        if (i < n && c < k) v = ONCE ? ld_stream16(at) : *(const uint4 *)at;
    } else {
        uint16_t h[VEC] = {};
#pragma unroll
        for (uint32_t j = 0; j < VEC; j++)
            if (i < n && c + j < k) memcpy(&h[j], x + (size_t)i * k + c + j, sizeof *h);
        memcpy(&v, h, sizeof v);
    }
    return v;
}

static __device__ __forceinline__ void lora_mma(float c[4], const uint32_t a[4], const uint32_t b[2], __nv_bfloat16)
{
    mma_m16n8k16_bf16(c, a, b, c);
}
static __device__ __forceinline__ void lora_mma(float c[4], const uint32_t a[4], const uint32_t b[2], __half)
{
    mma_m16n8k16_f16(c, a, b, c);
}

/* c += LORA_K of k, of 16 rows and 8 ranks. lo, hi: a lane's eight of x, of rows lane / 4 and 8 below; b: of A, of rank
 * lane / 4. An mma wants pairs of k that lie eight apart from a lane: which ones the pairs are does not matter, as long
 * as they are the same in x and A. So a lane gives its neighbours. */
template <class T>
static __device__ __forceinline__ void lora_step(float c[4], const uint4 &lo, const uint4 &hi, const uint4 &b)
{
    const uint32_t a0[4] = { lo.x, hi.x, lo.y, hi.y }, b0[2] = { b.x, b.y };
    const uint32_t a1[4] = { lo.z, hi.z, lo.w, hi.w }, b1[2] = { b.z, b.w };
    lora_mma(c, a0, b0, T());
    lora_mma(c, a1, b1, T());
}

/* t of LORA_ROWS rows and LORA_RANKS ranks.   grid: ranks, rows */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(LORA_SHRINK, 2) k_lora_shrink(const T *x, const struct lora_job o)
{
    __shared__ struct lora_rows rows;
    __shared__ float            part[LORA_WARPS][LORA_ROWS][LORA_RANKS + 1];
    const uint32_t              lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const uint32_t              r0 = blockIdx.y * LORA_ROWS, p0 = blockIdx.x * LORA_RANKS;
    const uint32_t              r = lane / 4, c = lane % 4 * VEC;
    pdl_wait();
    lora_rows_take(&rows, o, r0);
#pragma unroll 1
    for (uint32_t lead = 0; lead < LORA_ROWS; lead++) {
        if (!rows.lead[lead]) continue;
        const uint32_t slot = rows.slot[lead];
        const T       *a = (const T *)o.at[slot - 1];
        float          acc[2][4] = {};
        for (uint32_t k0 = warp * LORA_K; k0 < o.k; k0 += LORA_AHEAD * LORA_TURN) {
            uint4 lo[LORA_AHEAD], hi[LORA_AHEAD], b0[LORA_AHEAD], b1[LORA_AHEAD];
#pragma unroll
            for (uint32_t u = 0; u < LORA_AHEAD; u++) { /* zeros behind the end add nothing */
                const uint32_t at = k0 + u * LORA_TURN + c;
                lo[u] = lora_load8<T, VECTOR, false>(x, r0 + r, o.n_row, o.k, at);
                hi[u] = lora_load8<T, VECTOR, false>(x, r0 + r + 8, o.n_row, o.k, at);
                b0[u] = lora_load8<T, VECTOR, true>(a, p0 + r, o.rank, o.k, at);
                b1[u] = lora_load8<T, VECTOR, true>(a, p0 + r + 8, o.rank, o.k, at);
            }
#pragma unroll
            for (uint32_t u = 0; u < LORA_AHEAD; u++) {
                lora_step<T>(acc[0], lo[u], hi[u], b0[u]);
                lora_step<T>(acc[1], lo[u], hi[u], b1[u]);
            }
        }
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            part[warp][r + e / 2 * 8][lane % 4 * 2 + e % 2] = acc[0][e];
            part[warp][r + e / 2 * 8][8 + lane % 4 * 2 + e % 2] = acc[1][e];
        }
        __syncthreads();
        const uint32_t i = threadIdx.x / LORA_RANKS, p = threadIdx.x % LORA_RANKS;
        if (rows.slot[i] == slot && p0 + p < o.rank) {
            float sum = part[0][i][p];
            for (uint32_t w = 1; w < LORA_WARPS; w++) sum += part[w][i][p];
            o.t[(size_t)(r0 + i) * o.rank + p0 + p] = sum;
        }
        __syncthreads();
    }
    pdl_launch();
}
static_assert(LORA_SHRINK == LORA_ROWS * LORA_RANKS, "a thread of shrink adds up one number of t");

/* out += scale * B t for LORA_ROWS rows, a column of each thread.   grid: columns, rows */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(LORA_EXPAND) k_lora_expand(T *out, const struct lora_job o)
{
    __shared__ struct lora_rows rows;
    __shared__ float            t[LORA_ROWS][LORA_RANKS];
    const uint32_t              r0 = blockIdx.y * LORA_ROWS, j = blockIdx.x * LORA_EXPAND + threadIdx.x;
    float                       acc[LORA_ROWS] = {};
    pdl_wait();
    lora_rows_take(&rows, o, r0);
    bool any = false;
#pragma unroll
    for (uint32_t i = 0; i < LORA_ROWS; i++) any = any || rows.lead[i];
    if (!any) return;
    for (uint32_t p0 = 0; p0 < o.rank; p0 += LORA_RANKS) {
        for (uint32_t at = threadIdx.x; at < LORA_ROWS * LORA_RANKS; at += LORA_EXPAND) {
            uint32_t i = at / LORA_RANKS, p = p0 + at % LORA_RANKS;
            t[i][at % LORA_RANKS] = rows.slot[i] && p < o.rank ? o.t[(size_t)(r0 + i) * o.rank + p] : 0.0f;
        }
        __syncthreads();
#pragma unroll 1
        for (uint32_t lead = 0; lead < LORA_ROWS; lead++) {
            if (!rows.lead[lead]) continue;
            const uint32_t slot = rows.slot[lead];
            const T       *b = (const T *)o.at[o.n_slot + slot - 1];
            float          f[LORA_RANKS];
            act_load8<T>(f, lora_load8<T, VECTOR, false>(b, j, o.n, o.rank, p0));
            act_load8<T>(f + VEC, lora_load8<T, VECTOR, false>(b, j, o.n, o.rank, p0 + VEC));
            asm volatile("" ::: "memory"); /* t is read here: all of it in registers ahead of the loop would spill */
#pragma unroll
            for (uint32_t i = 0; i < LORA_ROWS; i++) {
                if (rows.slot[i] != slot) continue;
#pragma unroll
                for (uint32_t p = 0; p < LORA_RANKS; p++) acc[i] = fmaf(f[p], t[i][p], acc[i]);
            }
        }
        __syncthreads(); /* the next ranks overwrite t */
    }
    pdl_launch();
    if (j >= o.n) return;
#pragma unroll
    for (uint32_t i = 0; i < LORA_ROWS; i++) {
        if (!rows.slot[i]) continue;
        T *at = out + (size_t)(r0 + i) * o.out_dim + o.first + j;
        *at = act_store<T>(fmaf(o.scale[rows.slot[i] - 1], acc[i], act_load(*at)));
    }
}

template <class T> static void lora(struct cuda_dev *d, const struct op_lora *o, const struct lora_job &job)
{
    const uint32_t tiles = (job.n_row + LORA_ROWS - 1) / LORA_ROWS;
    const dim3     shrink((job.rank + LORA_RANKS - 1) / LORA_RANKS, tiles);
    const dim3     expand((job.n + LORA_EXPAND - 1) / LORA_EXPAND, tiles);
    if (vec_fits(job.k, o->x, o->x, o->x)) /* slots lie at whole sectors (CUDA_ALIGN) */
        LAUNCH((k_lora_shrink<T, true>), shrink, LORA_SHRINK, 0, d, (const T *)o->x, job);
    else
        LAUNCH((k_lora_shrink<T, false>), shrink, LORA_SHRINK, 0, d, (const T *)o->x, job);
    if (job.rank % VEC == 0)
        LAUNCH((k_lora_expand<T, true>), expand, LORA_EXPAND, 0, d, (T *)o->out, job);
    else
        LAUNCH((k_lora_expand<T, false>), expand, LORA_EXPAND, 0, d, (T *)o->out, job);
}

extern "C" void cuda_lora(struct device *dev, const struct op_lora *o)
{
    struct cuda_dev       *d = cuda_of(dev);
    const struct dev_lora *w = o->w;
    const struct lora_job  job = { o->adapter, o->row,     (const void *const *)w->at,
                                   w->scale,   o->mid,     o->n_row,
                                   w->n_slot,  w->rank,    w->n,
                                   w->k,       o->out_dim, o->first };
    if (!o->n_row || !w->n) return;
    CHECK(o->n_row <= 65535u * LORA_ROWS && o->first + w->n <= o->out_dim);
    if (dev->act == DT_F16)
        lora<__half>(d, o, job);
    else
        lora<__nv_bfloat16>(d, o, job);
    cuda_launched(d, "lora");
}
