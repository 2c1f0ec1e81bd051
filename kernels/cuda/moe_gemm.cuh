/* moe_gemm: rows sorted by expert times the weights of their experts, over a work list that only the device
 * knows.   For moe.cu.
 *
 * Two products, both D = W * X^T in fp32, with weights as the 16 rows of mma.m16n8k16 and tokens as its 8 columns:
 *   gate_up  x[row, hidden] of each place -> h[place, inter] = act(gate) * up, or OP_CLAMPED.  16 rows of a
 *            fragment are 8 gate rows and the same 8 up rows, so that both meet in one thread
 *   down     h[place, inter] -> y[slot, hidden] = weight of the slot * product
 * A place is a slot (row * top_k + k) in order of expert; start[e]: first place of expert e. A tile is up to TOKENS
 * places of one expert.
 *
 * Exact: a token is a column, and a column of D depends on that column of X alone. K is walked 16 at a time from 0 in
 * one fixed order, whichever kernel and tile it is, so a row's bits depend neither on the tokens beside it nor on how
 * many there are. The order of k: a thread takes 8 consecutive k of a row with one 16-byte load, k = 32c + 8t .. + 7
 * (t: its number in the group of four), and declares the first four of them its share of one mma, the other four of the
 * next. Weights and tokens are read alike, so this is only another order of summation, and neither needs ldmatrix nor a
 * packed form.
 *
 *   k_moe_stream  few tokens per expert: a warp streams 16 weight rows from memory through its registers and keeps
 *                 no company; tokens come from L1. Bound by the weights' bytes, each used expert is read once
 *   k_moe_block   many: 128 weight rows x TOKENS tokens per block, both through shared memory by cp.async */
#pragma once
#include "kernels/cuda/vec.cuh"

struct moe_args {
    const void     *x;                           /* act [n_row, hidden] */
    const char     *gate_up, *down;              /* expert 0; the others follow at equal strides */
    size_t          gate_up_stride, down_stride; /* bytes */
    const uint32_t *start, *order;               /* [n_expert + 1], [n_slot] place -> slot */
    const float    *weight;                      /* [n_slot] */
    void           *h, *y;                       /* act [n_slot, inter], [n_slot, hidden] */
    uint32_t        n_expert, top_k, hidden, inter;
    const float    *gate_up_bias, *down_bias; /* [n_expert, 2 inter], [n_expert, hidden]; or NULL */
    enum op_act     act;
    bool            weigh_input; /* as in op_moe; weight is then 1 for the product `down` */
};

/* moe_codes.cu: the product of gate_up, or of down, where its matrices are codes. w: of expert 0; stride: bytes to the
 * next expert's. vector: tokens are whole, aligned 16-byte vectors. */
void cuda_moe_codes(struct cuda_dev *d, const struct moe_args &p, const struct dev_weight *w, size_t stride,
                    uint32_t n_row, bool gate_up, bool vector);
/* moe_hopper.cu: either product by wgmma. For devices with d->wgmma, and tokens and weights that are whole, aligned
 * 16-byte vectors. */
void cuda_moe_hopper(struct cuda_dev *d, const struct moe_args &p, uint32_t n_row, bool gate_up);

/* One part of the work: row tile `rt` of the weights of `expert` times the places [place, end). */
struct moe_item {
    uint32_t expert, rt, place, end;
};

/* Row r of h from the products of its gate and its up row; of y before the slot's weight. Rows past the last are
 * computed like the last. MORE: with biases, another gate, or weights of inputs; a template, because kernels without
 * them need their registers. */
template <bool MORE>
__device__ __forceinline__ float moe_h(const struct moe_args &p, const struct moe_item &it, uint32_t place, uint32_t r,
                                       float gate, float up)
{
    if (!MORE) return act_silu(gate) * up;
    if (p.weigh_input) {
        float weight = p.weight[p.order[min(place, it.end - 1)]];
        gate = __fmul_rn(gate, weight), up = __fmul_rn(up, weight);
    }
    if (p.gate_up_bias) {
        const float *bias = p.gate_up_bias + (size_t)it.expert * 2 * p.inter + min(r, p.inter - 1);
        gate += bias[0], up += bias[p.inter];
    }
    return p.act == OP_CLAMPED ? act_clamped(gate, up) : act_any(gate, p.act) * up;
}
/* The weight of what a slot's expert made. */
template <bool MORE> __device__ __forceinline__ float moe_weight(const struct moe_args &p, uint32_t slot)
{
    return MORE && p.weigh_input ? 1.0f : p.weight[slot];
}
template <bool MORE>
__device__ __forceinline__ float moe_y(const struct moe_args &p, uint32_t expert, uint32_t r, float sum)
{
    return MORE && p.down_bias ? sum + p.down_bias[(size_t)expert * p.hidden + min(r, p.hidden - 1)] : sum;
}

template <class T> __device__ __forceinline__ void moe_mma(float d[4], const uint32_t a[4], const uint32_t b[2]);
template <> __device__ __forceinline__ void moe_mma<__nv_bfloat16>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_m16n8k16_bf16(d, a, b, d);
}
template <> __device__ __forceinline__ void moe_mma<__half>(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma_m16n8k16_f16(d, a, b, d);
}
/* 32 k of 16 weight rows (top: row g, low: row g + 8) and of token g */
template <class T> __device__ __forceinline__ void moe_mma32(float d[4], uint4 top, uint4 low, uint4 token)
{
    const uint32_t a0[4] = { top.x, low.x, top.y, low.y }, b0[2] = { token.x, token.y };
    const uint32_t a1[4] = { top.z, low.z, top.w, low.w }, b1[2] = { token.z, token.w };
    moe_mma<T>(d, a0, b0);
    moe_mma<T>(d, a1, b1);
}

/* ---------------------------------------------------------------- the work list */

/* Every block makes the list for itself: first[e] = tiles before expert e, [n_expert + 1] in shared memory. All
 * threads. */
__device__ __forceinline__ void moe_list(uint32_t *first, const uint32_t *start, uint32_t n_expert, uint32_t tokens)
{
    __shared__ uint32_t part[32];
    uint32_t            lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n_warp = blockDim.x / 32;
    uint32_t            each = (n_expert + blockDim.x - 1) / blockDim.x, e0 = min(threadIdx.x * each, n_expert);
    uint32_t            e1 = min(e0 + each, n_expert), mine = 0, at;
    for (uint32_t e = e0; e < e1; e++) mine += (start[e + 1] - start[e] + tokens - 1) / tokens;
    at = mine;
#pragma unroll
    for (int m = 1; m < 32; m *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffffu, at, m);
        if (lane >= (uint32_t)m) at += left;
    }
    if (lane == 31) part[warp] = at;
    __syncthreads();
    for (uint32_t w = 0; w < n_warp; w++)
        if (w < warp) at += part[w];
    at -= mine;
    for (uint32_t e = e0; e < e1; e++) {
        first[e] = at;
        at += (start[e + 1] - start[e] + tokens - 1) / tokens;
    }
    if (threadIdx.x == blockDim.x - 1) first[n_expert] = at; /* its experts are the last, or none */
    __syncthreads();
}

/* The row tiles of one tile follow each other: its tokens stay in cache, and so do weights whose expert has several
 * tiles. */
__device__ __forceinline__ struct moe_item moe_at(const uint32_t *first, const uint32_t *start, uint32_t n_expert,
                                                  uint32_t tokens, uint32_t item, uint32_t n_rt)
{
    uint32_t tile = item / n_rt, lo = 0, hi = n_expert; /* first[lo] <= tile < first[hi] */
    while (hi - lo > 1) {
        uint32_t mid = (lo + hi) / 2;
        if (first[mid] <= tile)
            lo = mid;
        else
            hi = mid;
    }
    struct moe_item it;
    it.expert = lo, it.rt = item % n_rt;
    it.place = start[lo] + (tile - first[lo]) * tokens;
    it.end = min(it.place + tokens, start[lo + 1]);
    return it;
}

/* ---------------------------------------------------------------- few tokens per expert */

enum { MOE_STREAM_THREADS = 128 };

/* NB: groups of 8 tokens in a tile. DEEP: steps of 32 k that are in flight. VECTOR: rows are whole, aligned 16-byte
 * vectors. */
template <class T, bool GATE_UP, int NB, int DEEP, bool VECTOR, bool MORE>
__global__ void __launch_bounds__(MOE_STREAM_THREADS, 4) k_moe_stream(const __grid_constant__ struct moe_args p)
{
    DYN_SMEM(uint32_t, first);
    pdl_wait();
    moe_list(first, p.start, p.n_expert, NB * 8);
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const uint32_t n_k = GATE_UP ? p.hidden : p.inter, n_out = GATE_UP ? p.inter : p.hidden,
                   out_tile = GATE_UP ? 8 : 16;
    const uint32_t n_rt = (n_out + out_tile - 1) / out_tile, n_item = first[p.n_expert] * n_rt, n_c = (n_k + 31) / 32;
    /* neighbours in the list go to different SMs */
    for (uint32_t item = (threadIdx.x >> 5) * gridDim.x + blockIdx.x; item < n_item;
         item += gridDim.x * (MOE_STREAM_THREADS / 32)) {
        const struct moe_item it = moe_at(first, p.start, p.n_expert, NB * 8, item, n_rt);
        const char    *w = GATE_UP ? p.gate_up + it.expert * p.gate_up_stride : p.down + it.expert * p.down_stride;
        const uint32_t r0 = it.rt * out_tile + g, r1 = GATE_UP ? r0 : r0 + 8, nb = (it.end - it.place + 7) / 8;
        /* rows past the last are computed from the last and not stored */
        const uint16_t *top = (const uint16_t *)w + (size_t)min(r0, n_out - 1) * n_k;
        const uint16_t *low =
            (const uint16_t *)w + (size_t)(GATE_UP ? n_out + min(r0, n_out - 1) : min(r1, n_out - 1)) * n_k;
        const uint16_t *token[NB];
        uint32_t        token_k[NB]; /* n_k, or 0 for a column without a token: all zeros */
#pragma unroll
        for (int b = 0; b < NB; b++) {
            uint32_t at = it.place + b * 8 + g;
            token_k[b] = at < it.end ? n_k : 0;
            at = min(at, it.end - 1);
            token[b] = GATE_UP ? (const uint16_t *)p.x + (size_t)(p.order[at] / p.top_k) * n_k
                               : (const uint16_t *)p.h + (size_t)at * n_k;
        }
        uint4 a0[DEEP], a1[DEEP], bt[DEEP][NB];
        float acc[NB][4] = {};
#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            uint32_t k = u * 32 + t * 8;
            a0[u] = vec_load8<VECTOR, true>(top, k, n_k), a1[u] = vec_load8<VECTOR, true>(low, k, n_k);
#pragma unroll
            for (int b = 0; b < NB; b++) bt[u][b] = vec_load8<VECTOR, false>(token[b], k, token_k[b]);
        }
        for (uint32_t c = 0; c < n_c; c += DEEP) {
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
                if (c + u >= n_c) break;
#pragma unroll
                for (int b = 0; b < NB; b++)
                    if (b == 0 || b < (int)nb) moe_mma32<T>(acc[b], a0[u], a1[u], bt[u][b]);
                uint32_t k = (c + u + DEEP) * 32 + t * 8;
                a0[u] = vec_load8<VECTOR, true>(top, k, n_k), a1[u] = vec_load8<VECTOR, true>(low, k, n_k);
#pragma unroll
                for (int b = 0; b < NB; b++) bt[u][b] = vec_load8<VECTOR, false>(token[b], k, token_k[b]);
            }
        }
#pragma unroll
        for (int b = 0; b < NB; b++)
#pragma unroll
            for (int j = 0; j < 2; j++) { /* c0, c2: rows g and g + 8 of token 2t; c1, c3: of token 2t + 1 */
                uint32_t at = it.place + b * 8 + t * 2 + j;
                if (at >= it.end) continue;
                if (GATE_UP) {
                    if (r0 < n_out)
                        ((T *)p.h)[(size_t)at * n_out + r0] =
                            act_store<T>(moe_h<MORE>(p, it, at, r0, acc[b][j], acc[b][j + 2]));
                } else {
                    uint32_t slot = p.order[at];
                    float    weight = moe_weight<MORE>(p, slot);
                    T       *y = (T *)p.y + (size_t)slot * n_out;
                    if (r0 < n_out) y[r0] = act_store<T>(weight * moe_y<MORE>(p, it.expert, r0, acc[b][j]));
                    if (r1 < n_out) y[r1] = act_store<T>(weight * moe_y<MORE>(p, it.expert, r1, acc[b][j + 2]));
                }
            }
    }
    pdl_launch();
}

/* ---------------------------------------------------------------- many tokens per expert */

enum { MOE_BLOCK_THREADS = 128, MOE_BLOCK_ROWS = 128, MOE_BLOCK_K = 64, MOE_BLOCK_STAGES = 3 };
/* Shared memory of k_moe_block: stages of weights and tokens; afterwards the results lie there; and the list. */
template <int TOKENS> static inline size_t moe_block_smem(uint32_t n_expert)
{
    return (size_t)MOE_BLOCK_STAGES * (MOE_BLOCK_ROWS + TOKENS) * MOE_BLOCK_K * 2 + (n_expert + 1) * sizeof(uint32_t);
}

/* n_k and n_out are multiples of 8, all rows are aligned. 4 warps: two halves of the weight rows, even and odd groups
 * of 8 tokens. */
template <class T, bool GATE_UP, int TOKENS, bool MORE>
__global__ void __launch_bounds__(MOE_BLOCK_THREADS, TOKENS == 64 ? 3 : 2)
    k_moe_block(const __grid_constant__ struct moe_args p)
{
    enum {
        ROW_BYTES = MOE_BLOCK_K * 2,
        STAGE = (MOE_BLOCK_ROWS + TOKENS) * ROW_BYTES,
        LOADS = TOKENS / 16,
        GROUPS = TOKENS / 16
    };
    enum { OUT = GATE_UP ? 64 : 128, PITCH = OUT + 8 }; /* of the results in shared memory, elements */
    static_assert(TOKENS * PITCH * 2 <= MOE_BLOCK_STAGES * STAGE, "the results fit where the stages were");
    DYN_SMEM(char, smem);
    uint32_t *first = (uint32_t *)(smem + MOE_BLOCK_STAGES * STAGE);
    pdl_wait();
    moe_list(first, p.start, p.n_expert, TOKENS);
    const uint32_t tid = threadIdx.x, lane = tid & 31, g = lane >> 2, t = lane & 3, half = tid >> 6, odd = tid >> 5 & 1;
    const uint32_t n_k = GATE_UP ? p.hidden : p.inter, n_out = GATE_UP ? p.inter : p.hidden;
    const uint32_t n_rt = (n_out + OUT - 1) / OUT, n_item = first[p.n_expert] * n_rt,
                   n_step = (n_k + MOE_BLOCK_K - 1) / MOE_BLOCK_K;
    /* Rows of 128 bytes; every other row has its halves exchanged, so that 8 lanes that read 64 bytes of two rows meet
     * all banks. */
    const uint32_t load_row = tid >> 3, load_chunk = tid & 7;
    const uint32_t put = load_row * ROW_BYTES + ((load_chunk ^ (load_row & 1) << 2) << 4);
    const uint32_t get0 = g * ROW_BYTES + t * 16 + ((g & 1) << 6), get1 = get0 ^ 64;
    for (uint32_t item = blockIdx.x; item < n_item; item += gridDim.x) {
        const struct moe_item it = moe_at(first, p.start, p.n_expert, TOKENS, item, n_rt);
        const uint16_t       *w =
            (const uint16_t *)(GATE_UP ? p.gate_up + it.expert * p.gate_up_stride : p.down + it.expert * p.down_stride);
        /* groups of 8 tokens of this warp: odd, odd + 2, ... */
        const int nb = (int)((it.end - it.place + 7) / 8 + 1 - odd) / 2;
        uint32_t  from[LOADS]; /* row of x or h of the tokens that this thread loads */
#pragma unroll
        for (int j = 0; j < LOADS; j++) {
            uint32_t at = min(it.place + load_row + j * 16, it.end - 1);
            from[j] = GATE_UP ? p.order[at] / p.top_k : at;
        }
        auto load = [&](uint32_t step) {
            const uint32_t k = step * MOE_BLOCK_K + load_chunk * VEC;
            const bool     in = k < n_k;
            char          *to = smem + step % MOE_BLOCK_STAGES * STAGE + put;
#pragma unroll
            for (int j = 0; j < MOE_BLOCK_ROWS / 16; j++) {
                /* row load_row of fragment j: gate rows, then up rows; rows past the last: the last, not stored */
                uint32_t r = it.rt * OUT + j * (GATE_UP ? 8 : 16) + (GATE_UP ? load_row & 7 : load_row);
                r = min(r, n_out - 1) + (GATE_UP && load_row >= 8 ? n_out : 0);
                cp_async16(to + j * 16 * ROW_BYTES, w + (in ? (size_t)r * n_k + k : 0), in ? 16 : 0);
            }
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                const bool here = in && it.place + load_row + j * 16 < it.end;
                cp_async16(to + (MOE_BLOCK_ROWS + j * 16) * ROW_BYTES,
                           (const uint16_t *)(GATE_UP ? p.x : p.h) + (here ? (size_t)from[j] * n_k + k : 0),
                           here ? 16 : 0);
            }
        };
        float acc[4][GROUPS][4] = {};
#pragma unroll
        for (uint32_t s = 0; s < MOE_BLOCK_STAGES - 1; s++) {
            if (s < n_step) load(s);
            cp_async_commit();
        }
        for (uint32_t s = 0; s < n_step; s++) {
            cp_async_wait<MOE_BLOCK_STAGES - 2>();
            __syncthreads(); /* step s is there for all, and step s - 1 has been used by all: its stage is free */
            if (s + MOE_BLOCK_STAGES - 1 < n_step) load(s + MOE_BLOCK_STAGES - 1);
            cp_async_commit();
            const char *rows = smem + s % MOE_BLOCK_STAGES * STAGE + half * 64 * ROW_BYTES;
            const char *tokens = smem + s % MOE_BLOCK_STAGES * STAGE + (MOE_BLOCK_ROWS + odd * 8) * ROW_BYTES;
#pragma unroll
            for (int c = 0; c < 2; c++) {
                if (s * MOE_BLOCK_K + c * 32 >= n_k) break; /* as k_moe_stream: not a step more */
                const uint32_t get = c ? get1 : get0;
                uint4          a[4][2];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    a[i][0] = *(const uint4 *)(rows + i * 16 * ROW_BYTES + get);
                    a[i][1] = *(const uint4 *)(rows + (i * 16 + 8) * ROW_BYTES + get);
                }
#pragma unroll
                for (int b = 0; b < GROUPS; b++) {
                    if (b >= nb) break;
                    uint4 token = *(const uint4 *)(tokens + b * 16 * ROW_BYTES + get);
#pragma unroll
                    for (int i = 0; i < 4; i++) moe_mma32<T>(acc[i][b], a[i][0], a[i][1], token);
                }
            }
        }
        cp_async_wait<0>();
        __syncthreads(); /* the stages are free: results as rows of tokens, so that they leave 16 bytes at a time */
        T *result = (T *)smem;
#pragma unroll
        for (int b = 0; b < GROUPS; b++) {
            if (b >= nb) break;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                uint32_t row = (b * 2 + odd) * 8 + t * 2 + j;
                float    weight = 0;
                if (!GATE_UP && it.place + row < it.end) weight = moe_weight<MORE>(p, p.order[it.place + row]);
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t column = (half * 4 + i) * (GATE_UP ? 8 : 16) + g, r = it.rt * OUT + column;
                    T       *to = result + row * PITCH + column;
                    if (GATE_UP) {
                        to[0] = act_store<T>(moe_h<MORE>(p, it, it.place + row, r, acc[i][b][j], acc[i][b][j + 2]));
                    } else {
                        to[0] = act_store<T>(weight * moe_y<MORE>(p, it.expert, r, acc[i][b][j]));
                        to[8] = act_store<T>(weight * moe_y<MORE>(p, it.expert, r + 8, acc[i][b][j + 2]));
                    }
                }
            }
        }
        __syncthreads();
        for (uint32_t v = tid; v < TOKENS * (OUT / VEC); v += MOE_BLOCK_THREADS) {
            uint32_t at = it.place + v / (OUT / VEC), col = v % (OUT / VEC) * VEC;
            if (at >= it.end || it.rt * OUT + col >= n_out) continue;
            uint4 value = *(const uint4 *)(result + v / (OUT / VEC) * PITCH + col);
            T    *to = GATE_UP ? (T *)p.h + (size_t)at * n_out : (T *)p.y + (size_t)p.order[at] * n_out;
            *(uint4 *)(to + it.rt * OUT + col) = value;
        }
        __syncthreads(); /* before the next item's loads */
    }
    pdl_launch();
}
