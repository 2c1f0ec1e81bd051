/* moe_route_few: all that stands ahead of the experts of few rows, in one launch: the router's product, the choice of
 * each row, the lists by expert.   truth: kernels/ref/moe.c
 *   x [m, k], w [n_expert, k] act   bias F32 [n_expert]   logits [m, n_expert] act or F32   lists: struct moe_lists
 * The same bits as by the kernels one after another, so that each step may choose by its number of rows alone: the
 * product is that of rows_few.cuh in the slices of k_gemm_rows, what goes through memory as act is rounded here too,
 * and a row is routed by the functions of moe_route.cuh that k_moe_route calls.
 *
 * Logits are made by all blocks. The block that is done last has seen those of the others, and routes: a warp a row,
 * so 8 rows at a time. More than FEW_ROWS would wait there for longer than the two launches that are saved. An expert
 * gets each row at most once, so a word of bits for the rows says which have chosen it: what it counts and what lies
 * below a row's own bit is the place of a slot in the list. */
#include "base/check.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/moe_route.cuh"
#include "kernels/cuda/rows_few.cuh"

enum {
    FEW_ROWS = 16,
    FEW_BLOCKS = 1 /* of an SM: a router has few tiles, one for each 16 experts */
};
static_assert(FEW_ROWS <= 32, "the rows of an expert are bits of a word");

struct few_args {
    struct rows_args  rows;
    const float      *bias;
    struct route_args route;
    struct moe_lists  to;
    const uint32_t   *row_seq; /* [m], or NULL where there is no padding */
    uint32_t         *arrived; /* blocks that are done; 0 between launches */
    uint32_t          first_here, n_here;
    bool              softmax; /* route_softmax routes, not route_biased */
};

/* What the last block works on, in shared memory. */
struct few_room {
    uint32_t *expert; /* [n_slot] */
    float    *weight; /* [n_slot] */
    uint32_t *rows;   /* [n_here] a bit for each row that has chosen the expert */
    uint32_t *start;  /* [n_here] */
};
static __host__ __device__ __forceinline__ size_t few_words(uint32_t n_slot, uint32_t n_here)
{
    return 2 * ((size_t)n_slot + n_here);
}
static __device__ __forceinline__ struct few_room few_room(uint32_t *smem, uint32_t n_slot, uint32_t n_here)
{
    uint32_t *rows = smem + 2 * (size_t)n_slot;
    return { smem, (float *)(smem + n_slot), rows, rows + n_here };
}

/* Is this the last block to be done? All threads. What the others wrote before is seen then: a thread publishes what its
 * block wrote ahead of the barrier, and the block sees behind the other what that thread has acquired. */
static __device__ __forceinline__ bool few_last(uint32_t *arrived)
{
    __shared__ uint32_t before;
    __syncthreads();
    if (threadIdx.x == 0) {
        before = atom_add_acq_rel_gpu(arrived, 1u);
        if (before == gridDim.x - 1) *arrived = 0;
    }
    __syncthreads();
    return before == gridDim.x - 1;
}

/* A warp per row. L: type of the logits. */
template <class L>
static __device__ __forceinline__ void few_route(const struct few_args &p, const struct few_room &room)
{
    const uint32_t n_expert = p.route.n_expert, top_k = p.route.top_k;
    for (uint32_t row = threadIdx.x / WARP; row < p.rows.m; row += ROWS_WARPS) {
        uint32_t *expert = room.expert + row * top_k;
        float    *weight = room.weight + row * top_k;
        const L  *logits = (const L *)p.rows.out + (size_t)row * n_expert;
        if (p.row_seq && p.row_seq[row] == UINT32_MAX)
            route_none(expert, weight, n_expert, top_k);
        else if (sizeof(L) == 2 && p.softmax) /* floats never are */
            route_softmax(expert, weight, logits, n_expert, top_k, p.route.renorm);
        else
            route_biased(expert, weight, logits, p.route);
    }
}

/* The sum of v over the threads before this one. All threads. */
static __device__ __forceinline__ uint32_t few_before(uint32_t v)
{
    __shared__ uint32_t part[ROWS_WARPS];
    const uint32_t      lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint32_t            at = v;
#pragma unroll
    for (int m = 1; m < WARP; m *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffffu, at, m);
        if (lane >= (uint32_t)m) at += left;
    }
    if (lane == WARP - 1) part[warp] = at;
    __syncthreads();
#pragma unroll
    for (uint32_t w = 0; w < ROWS_WARPS; w++)
        if (w < warp) at += part[w];
    return at - v;
}

/* The lists: as k_moe_sort makes them. */
static __device__ __forceinline__ void few_sort(const struct few_args &p, const struct few_room &room)
{
    const uint32_t top_k = p.route.top_k, n_slot = p.rows.m * top_k;
    const uint32_t each = (p.n_here + ROWS_THREADS - 1) / ROWS_THREADS, e0 = min(threadIdx.x * each, p.n_here),
                   e1 = min(e0 + each, p.n_here);
    for (uint32_t s = threadIdx.x; s < n_slot; s += ROWS_THREADS) {
        uint32_t e = room.expert[s] - p.first_here; /* an id below first_here is a very large number then */
        p.to.expert[s] = room.expert[s];
        p.to.weight[s] = room.weight[s];
        if (e < p.n_here) atomicOr(&room.rows[e], 1u << s / top_k);
    }
    __syncthreads();
    uint32_t mine = 0;
    for (uint32_t e = e0; e < e1; e++) mine += (uint32_t)__popc(room.rows[e]);
    uint32_t at = few_before(mine);
    for (uint32_t e = e0; e < e1; e++) {
        room.start[e] = p.to.start[e] = at;
        at += (uint32_t)__popc(room.rows[e]);
    }
    if (threadIdx.x == ROWS_THREADS - 1) p.to.start[p.n_here] = at; /* its experts are the last, or none */
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < n_slot; s += ROWS_THREADS) {
        uint32_t e = room.expert[s] - p.first_here, below = (1u << s / top_k) - 1;
        if (e < p.n_here) p.to.order[room.start[e] + (uint32_t)__popc(room.rows[e] & below)] = s;
    }
}

/* NB: groups of 8 rows of x, which are all of them. O: type of the logits. */
template <class T, class O, int NB>
__global__ void __launch_bounds__(ROWS_THREADS, FEW_BLOCKS) k_moe_route_few(const __grid_constant__ struct few_args p)
{
    DYN_SMEM(uint32_t, smem);
    const uint32_t  lane = threadIdx.x % WARP, g = lane >> 2, t = lane & 3, m = p.rows.m, n = p.rows.n;
    const uint16_t *row[NB];
#pragma unroll
    for (int i = 0; i < NB; i++) row[i] = p.rows.x + (size_t)min(i * 8 + g, m - 1) * p.rows.k;
    auto begin = [] { pdl_wait(); };
    auto take = [&](int i, uint32_t k, uint32_t end) { return vec_load8<true, false>(row[i], k, end); };
    auto ahead = [](float(&)[NB][4], uint32_t) {};
    auto put = [&](const float(&sum)[NB][4], const float(&)[NB][4], uint32_t tile) {
#pragma unroll
        for (int i = 0; i < NB; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                uint32_t r = tile * ROWS_TILE + g + (e >> 1) * 8, at = i * 8 + t * 2 + (e & 1);
                O       *to = (O *)p.rows.out + (size_t)at * n + r;
                if (r >= n || at >= m) continue;
                if constexpr (sizeof(O) == 4)
                    *to = sum[i][e];
                else
                    *to = act_store<T>(rows_end<T>(sum[i][e], p.bias, r));
            }
    };
    rows_few<T, NB, NB == 1 ? 8 : 6, true, false>(p.rows, begin, take, ahead, put);
    if (!few_last(p.arrived)) return;
    struct few_room room = few_room(smem, m * p.route.top_k, p.n_here);
    for (uint32_t e = threadIdx.x; e < p.n_here; e += ROWS_THREADS) room.rows[e] = 0;
    few_route<O>(p, room);
    __syncthreads();
    few_sort(p, room);
}

/* ---------------------------------------------------------------- host */

template <class T, class O, int NB> static void few_launch(struct cuda_dev *d, const struct few_args &p)
{
    uint32_t tiles = rows_tiles<false>(p.rows.n);
    size_t   smem = few_words(p.rows.m * p.route.top_k, p.n_here) * sizeof(uint32_t);
    LAUNCH((k_moe_route_few<T, O, NB>), rows_grid(d, tiles, p.rows.cut.side, FEW_BLOCKS), ROWS_THREADS, smem, d, p);
}

template <class T, class O> static void few_rows(struct cuda_dev *d, const struct few_args &p)
{
    if (p.rows.m <= 8)
        few_launch<T, O, 1>(d, p);
    else
        few_launch<T, O, 2>(d, p);
}

template <class T> static void few_choose(struct cuda_dev *d, const struct few_args &p, bool f32)
{
    if (f32)
        few_rows<T, float>(d, p);
    else
        few_rows<T, T>(d, p);
}

extern "C" bool cuda_moe_route_few(struct cuda_dev *d, const struct op_moe *o, const struct op_router *r,
                                   const struct moe_lists *to)
{
    const uint32_t n = r->w->n, k = r->w->k, m = o->n_row;
    const size_t part = sizeof(float) * 2 * ROWS_WARPS * 4 * WARP * (FEW_ROWS / 8), other = 256; /* of rows_few, ours */
    if (r->w->q.code != DT_F32 || m > FEW_ROWS || !vec_fits(k, r->x, r->w->data, r->x)) return false;
    if (few_words(m * o->top_k, op_moe_here(o)) * sizeof(uint32_t) + part + other > SMEM_PLAIN) return false;
    CHECK(m && n == o->n_expert && r->w->dtype == d->impl.dev.act && d->moe_arrived && !(r->bias && o->router_f32));
    struct few_args p = { .rows = { r->out, (const uint16_t *)r->x, (const uint16_t *)r->w->data, m, n, k,
                                    rows_cut(n, k, 2 * ROWS_STEP) },
                          .bias = r->bias,
                          .route = route_args_of(o),
                          .to = *to,
                          .row_seq = d->row_seq,
                          .arrived = d->moe_arrived,
                          .first_here = o->first_here,
                          .n_here = op_moe_here(o),
                          .softmax = route_is_plain(o) };
    if (d->impl.dev.act == DT_F16)
        few_choose<__half>(d, p, o->router_f32);
    else
        few_choose<__nv_bfloat16>(d, p, o->router_f32);
    cuda_launched(d, "moe");
    return true;
}
