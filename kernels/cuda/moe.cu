/* moe: scores of the experts, the top_k best, their SwiGLU, the weighted sum.   truth: kernels/ref/moe.c
 *   x, out act [n_row, hidden]   router_logits act [n_row, n_expert]
 * (or F32)   route: a list of top_k (expert, weight) per row; sort: slots (row, k) in order of expert, then row; two
 * grouped products over the experts that have rows (moe_gemm.cuh); combine: the sum over k = 0, 1, ... All in fp32,
 * rounded to act where a product is stored: h after SwiGLU, and each expert's share of the output after its weight. The
 * host knows how many rows there are and nothing else: launches can be captured, and everything that routing decides
 * is read on the device. What a row gets does not depend on the kernels that were chosen for it, except with `wgmma`
 * (moe_hopper.cu), which many rows of an expert are given to. Many rows go MOE_ROWS at a time. Rows of padding get no
 * experts and zeros: a graph's empty rows would else have weights read for them. Where some of the experts are
 * elsewhere, the list is sorted without them: the products never hear of them, and `combine` leaves them out. Of few
 * rows moe_route_few.cu makes the lists, and the logits ahead of them. */
#include "base/check.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/moe.h"
#include "kernels/cuda/moe_gemm.cuh"
#include "kernels/cuda/moe_route.cuh"
#include "kernels/quant.h"

enum {
    MOE_ROWS = 4096, /* at a time: scratch is top_k * (hidden + inter) activations for each */
    ROUTE_THREADS = 128,
    SORT_THREADS = 256,
    COMBINE_THREADS = 128,
};

/* A warp per row: expert[row, k], weight[row, k], best first; expert n_expert: none, the row is padding.
 * row_seq: [n_row], or NULL where there is no padding */
template <class T>
__global__ void __launch_bounds__(ROUTE_THREADS)
    k_moe_route(uint32_t *expert, float *weight, const T *logits, const uint32_t *row_seq, uint32_t n_row,
                uint32_t n_expert, uint32_t top_k, bool renorm)
{
    const uint32_t row = blockIdx.x * (ROUTE_THREADS / 32) + (threadIdx.x >> 5);
    pdl_wait();
    pdl_launch();
    if (row >= n_row) return;
    expert += (size_t)row * top_k, weight += (size_t)row * top_k;
    if (row_seq && row_seq[row] == UINT32_MAX)
        route_none(expert, weight, n_expert, top_k);
    else
        route_softmax(expert, weight, logits + (size_t)row * n_expert, n_expert, top_k, renorm);
}

/* As k_moe_route, by routers that are no plain softmax. L: type of the logits. */
template <class L>
__global__ void __launch_bounds__(ROUTE_THREADS)
    k_moe_route_biased(uint32_t *expert, float *weight, const L *logits, const uint32_t *row_seq, uint32_t n_row,
                       struct route_args a)
{
    const uint32_t row = blockIdx.x * (ROUTE_THREADS / 32) + (threadIdx.x >> 5);
    pdl_wait();
    pdl_launch();
    if (row >= n_row) return;
    expert += (size_t)row * a.top_k, weight += (size_t)row * a.top_k;
    if (row_seq && row_seq[row] == UINT32_MAX)
        route_none(expert, weight, a.n_expert, a.top_k);
    else
        route_biased(expert, weight, logits + (size_t)row * a.n_expert, a);
}

/* A block per expert here, of which the 0th has the id first_here: start[e] = slots of the experts before it, and its
 * own slots from there on in order[], rising. Each thread looks at a stretch of the slots; expert[] may be read up to 3
 * elements past n_slot. */
__global__ void __launch_bounds__(SORT_THREADS)
    k_moe_sort(uint32_t *start, uint32_t *order, const uint32_t *expert, uint32_t n_slot, uint32_t first_here)
{
    __shared__ uint32_t part[2][SORT_THREADS / 32];
    const uint32_t      e = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const uint32_t      each = ((n_slot + SORT_THREADS - 1) / SORT_THREADS + 3) / 4 * 4;
    const uint32_t      s0 = min(threadIdx.x * each, n_slot), s1 = min(s0 + each, n_slot);
    uint32_t            before = 0, mine = 0;
    pdl_wait();
    pdl_launch();
#pragma unroll 1 /* a thread has few */
    for (uint32_t s = s0; s < s1; s += 4) {
        uint4    v = *(const uint4 *)(expert + s);
        uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (s + j < s1) /* an id below first_here is a very large number then */
                before += u[j] - first_here < e, mine += u[j] - first_here == e;
    }
    uint32_t at = mine;
#pragma unroll
    for (int m = 1; m < 32; m *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffffu, at, m);
        if (lane >= (uint32_t)m) at += left;
    }
    before = __reduce_add_sync(0xffffffffu, before);
    if (lane == 31) part[0][warp] = at;
    if (lane == 0) part[1][warp] = before;
    __syncthreads();
    uint32_t base = 0, total = 0;
#pragma unroll
    for (uint32_t w = 0; w < SORT_THREADS / 32; w++) {
        base += part[1][w];
        if (w < warp) at += part[0][w];
        total += part[0][w];
    }
    if (threadIdx.x == 0) start[e] = base;
    if (threadIdx.x == 0 && e == gridDim.x - 1) start[e + 1] = base + total;
    at += base - mine;
    if (!mine) return;
#pragma unroll 1 /* a thread has few */
    for (uint32_t s = s0; s < s1; s += 4) {
        uint4    v = *(const uint4 *)(expert + s);
        uint32_t u[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            if (s + j < s1 && u[j] - first_here == e) order[at++] = s + j;
    }
}

/* grid: rows, pieces of a row. SOME: not all experts are here, but [first_here, + n_here). Else n_here is that of all,
 * and a row has all of its experts or, as padding, none. */
template <class T, bool VECTOR, bool SOME>
__global__ void __launch_bounds__(COMBINE_THREADS)
    k_moe_combine(T *out, const T *y, const uint32_t *expert, uint32_t first_here, uint32_t n_here, uint32_t top_k,
                  uint32_t hidden)
{
    const uint32_t i = (blockIdx.y * COMBINE_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    const size_t   slot = (size_t)blockIdx.x * top_k;
    float          sum[VECTOR ? VEC : 1] = {};
    pdl_wait();
    if (i >= hidden) return;
    if (SOME || expert[slot] < n_here) {
#pragma unroll 4
        for (uint32_t k = 0; k < top_k; k++) {
            if (SOME && expert[slot + k] - first_here >= n_here) continue;
            const T *from = y + (slot + k) * hidden + i;
            if (VECTOR) {
                float f[VEC];
                act_load8<T>(f, *(const uint4 *)from);
#pragma unroll
                for (int j = 0; j < VEC; j++) sum[j] += f[j];
            } else {
                sum[0] += act_load(*from);
            }
        }
    }
    pdl_launch();
    T *to = out + (size_t)blockIdx.x * hidden + i;
    if (VECTOR)
        *(uint4 *)to = act_store8<T>(sum);
    else
        *to = act_store<T>(sum[0]);
}

/* ---------------------------------------------------------------- host */

struct moe_work {
    struct moe_lists list;
    void            *h, *y;
    uint64_t         bytes;
};

static struct moe_work moe_layout(char *base, uint64_t n_slot, uint32_t n_expert, uint32_t hidden, uint32_t inter)
{
    struct moe_work w;
    uint64_t        at = 0;
    auto            take = [&](uint64_t bytes) {
        char *p = base + at; /* base is NULL where only the size is wanted */
        at += (bytes + 255) / 256 * 256;
        return p;
    };
    w.list.expert = (uint32_t *)take((n_slot + 3) * 4);
    w.list.order = (uint32_t *)take(n_slot * 4);
    w.list.start = (uint32_t *)take((n_expert + UINT64_C(1)) * 4);
    w.list.weight = (float *)take(n_slot * 4);
    w.h = take(n_slot * inter * 2);
    w.y = take(n_slot * hidden * 2);
    w.bytes = at;
    return w;
}

extern "C" uint64_t cuda_moe_work_bytes(const struct cuda_dev *d, const struct dev_limits *lim)
{
    (void)d;
    uint64_t n_row = lim->rows_max < MOE_ROWS ? lim->rows_max : (uint32_t)MOE_ROWS;
    return lim->n_expert ? moe_layout(NULL, n_row * lim->top_k, lim->n_expert, lim->hidden, lim->inter).bytes : 0;
}

/* The experts of a layer lie at equal distances in the arena, as the loader takes them: base and stride say it all, no
 * table of pointers is needed. */
static size_t moe_stride(const struct dev_weight *w, uint32_t n_expert, enum dtype act, uint32_t n, uint32_t k)
{
    size_t stride = n_expert > 1 ? (size_t)((const char *)w[1].data - (const char *)w[0].data) : 0;
    bool   codes = dev_weight_is_quant(&w[0]);
    for (uint32_t e = 0; e < n_expert; e++) {
        CHECK(w[e].dtype == (codes ? w[0].dtype : act) && w[e].q.code == w[0].q.code && w[e].q.group == w[0].q.group);
        CHECK(w[e].n == n && w[e].k == k);
        CHECK((const char *)w[e].data == (const char *)w[0].data + e * stride);
        CHECK(!codes || (const char *)w[e].scale == (const char *)w[0].scale + e * stride);
        CHECK(!w[0].factor || (const char *)w[e].factor == (const char *)w[0].factor + e * stride);
    }
    return stride;
}

template <class T, bool GATE_UP, bool MORE, int NB, int DEEP, bool VECTOR>
static void moe_stream(struct cuda_dev *d, const struct moe_args *p, uint32_t n_slot)
{
    uint32_t n_out = GATE_UP ? p->inter : p->hidden, n_rt = GATE_UP ? (n_out + 7) / 8 : (n_out + 15) / 16,
             warps = MOE_STREAM_THREADS / 32;
    uint64_t tiles = n_slot / (NB * 8) + (n_slot < p->n_expert ? n_slot : p->n_expert),
             blocks = (tiles * n_rt + warps - 1) / warps;
    uint64_t all = (uint64_t)d->n_sm * 4; /* as many as can be there at once: each does its share of the list */
    LAUNCH((k_moe_stream<T, GATE_UP, NB, DEEP, VECTOR, MORE>), (uint32_t)(blocks < all ? blocks : all),
           MOE_STREAM_THREADS, (p->n_expert + 1) * sizeof(uint32_t), d, *p);
    cuda_launched(d, "moe");
}

template <class T, bool GATE_UP, bool MORE, int TOKENS>
static void moe_block(struct cuda_dev *d, const struct moe_args *p, uint32_t n_slot)
{
    uint32_t n_out = GATE_UP ? p->inter : p->hidden, out_tile = GATE_UP ? 64 : 128;
    uint64_t tiles = n_slot / TOKENS + (n_slot < p->n_expert ? n_slot : p->n_expert),
             blocks = tiles * ((n_out + out_tile - 1) / out_tile);
    uint64_t all = (uint64_t)d->n_sm * (TOKENS == 64 ? 3 : 2);
    size_t   smem = moe_block_smem<TOKENS>(p->n_expert);
    LAUNCH((k_moe_block<T, GATE_UP, TOKENS, MORE>), (uint32_t)(blocks < all ? blocks : all), MOE_BLOCK_THREADS, smem, d,
           *p);
    cuda_launched(d, "moe");
}

/* By the rows alone. An expert gets each row at most once, so 8 rows never make more than one tile of 8. each: rows of
 * an expert, on average. */
template <class T, bool GATE_UP, bool MORE>
static void moe_product_of(struct cuda_dev *d, const struct moe_args *p, uint32_t n_row, uint32_t each, bool vector)
{
    uint32_t n_slot = n_row * p->top_k; /* here at most */
    if (!vector)
        moe_stream<T, GATE_UP, MORE, 4, 1, false>(d, p, n_slot);
    else if (n_row <= 8)
        moe_stream<T, GATE_UP, MORE, 1, 6, true>(d, p, n_slot);
    else if (n_row <= 16)
        moe_stream<T, GATE_UP, MORE, 2, 4, true>(d, p, n_slot);
    else if (each <= 32)
        moe_stream<T, GATE_UP, MORE, 4, 2, true>(d, p, n_slot);
    else if (each <= 96)
        moe_block<T, GATE_UP, MORE, 64>(d, p, n_slot);
    else
        moe_block<T, GATE_UP, MORE, 128>(d, p, n_slot);
}

template <class T, bool GATE_UP>
static void moe_product(struct cuda_dev *d, const struct moe_args *p, const struct dev_weight *w, uint32_t n_row,
                        uint32_t each, bool vector)
{
    if (dev_weight_is_quant(w))
        cuda_moe_codes(d, *p, w, GATE_UP ? p->gate_up_stride : p->down_stride, n_row, GATE_UP, vector);
    else if (vector && d->wgmma && each >= d->wgmma_moe)
        cuda_moe_hopper(d, *p, n_row, GATE_UP);
    else if (p->gate_up_bias || p->down_bias || p->act != OP_SILU || p->weigh_input)
        moe_product_of<T, GATE_UP, true>(d, p, n_row, each, vector);
    else
        moe_product_of<T, GATE_UP, false>(d, p, n_row, each, vector);
}

/* The lists of rows [row0, + n_row). */
template <class T>
static void moe_route(struct cuda_dev *d, const struct op_moe *o, const struct moe_lists *w, uint32_t row0,
                      uint32_t n_row)
{
    const uint32_t *row_seq = d->row_seq ? d->row_seq + row0 : NULL;
    uint32_t        blocks = (n_row + ROUTE_THREADS / 32 - 1) / (ROUTE_THREADS / 32);
    size_t          at = (size_t)row0 * o->n_expert;
    if (route_is_plain(o))
        LAUNCH(k_moe_route<T>, blocks, ROUTE_THREADS, 0, d, w->expert, w->weight, (const T *)o->router_logits + at,
               row_seq, n_row, o->n_expert, o->top_k, o->renorm);
    else if (o->router_f32)
        LAUNCH(k_moe_route_biased<float>, blocks, ROUTE_THREADS, 0, d, w->expert, w->weight,
               (const float *)o->router_logits + at, row_seq, n_row, route_args_of(o));
    else
        LAUNCH(k_moe_route_biased<T>, blocks, ROUTE_THREADS, 0, d, w->expert, w->weight,
               (const T *)o->router_logits + at, row_seq, n_row, route_args_of(o));
    cuda_launched(d, "moe");
    LAUNCH(k_moe_sort, op_moe_here(o), SORT_THREADS, 0, d, w->start, w->order, w->expert, n_row * o->top_k,
           o->first_here);
    cuda_launched(d, "moe");
}

extern "C" void cuda_moe_lists(struct cuda_dev *d, const struct op_moe *o, const struct moe_lists *to, uint32_t row0,
                               uint32_t n_row)
{
    if (d->impl.dev.act == DT_F16)
        moe_route<__half>(d, o, to, row0, n_row);
    else
        moe_route<__nv_bfloat16>(d, o, to, row0, n_row);
}

template <class T, bool VECTOR>
static void moe_combine(struct cuda_dev *d, const struct op_moe *o, const struct moe_work *w, T *out, uint32_t n_row)
{
    uint32_t at_once = COMBINE_THREADS * (VECTOR ? VEC : 1), n_here = op_moe_here(o);
    dim3     grid(n_row, (o->hidden + at_once - 1) / at_once);
    if (n_here < o->n_expert)
        LAUNCH((k_moe_combine<T, VECTOR, true>), grid, COMBINE_THREADS, 0, d, out, (const T *)w->y, w->list.expert,
               o->first_here, n_here, o->top_k, o->hidden);
    else
        LAUNCH((k_moe_combine<T, VECTOR, false>), grid, COMBINE_THREADS, 0, d, out, (const T *)w->y, w->list.expert, 0u,
               n_here, o->top_k, o->hidden);
    cuda_launched(d, "moe");
}

/* r: the product whose result routes, of all rows; NULL: that result is there. false: nothing is done. */
template <class T>
static bool moe_rows(struct cuda_dev *d, const struct op_moe *o, const struct op_router *r, uint32_t row0,
                     uint32_t n_row)
{
    uint32_t        n_slot = n_row * o->top_k, n_here = op_moe_here(o), each = n_slot / o->n_expert;
    struct moe_work w = moe_layout(d->work, n_slot, o->n_expert, o->hidden, o->inter);
    const T        *x = (const T *)o->x + (size_t)row0 * o->hidden;
    T              *out = (T *)o->out + (size_t)row0 * o->hidden;
    struct moe_args p = { x,
                          (const char *)o->gate_up[0].data,
                          (const char *)o->down[0].data,
                          0,
                          0,
                          w.list.start,
                          w.list.order,
                          w.list.weight,
                          w.h,
                          w.y,
                          n_here,
                          o->top_k,
                          o->hidden,
                          o->inter,
                          o->gate_up_bias,
                          o->down_bias,
                          o->act,
                          o->weigh_input };
    bool vector = vec_fits(o->hidden, o->x, o->out, p.gate_up) && vec_fits(o->inter, p.down, d->work, d->work);
    CHECK(w.bytes <= d->work_bytes);
    p.gate_up_stride = moe_stride(o->gate_up, n_here, d->impl.dev.act, 2 * o->inter, o->hidden);
    p.down_stride = moe_stride(o->down, n_here, d->impl.dev.act, o->hidden, o->inter);
    vector = vector && p.gate_up_stride % 16 == 0 && p.down_stride % 16 == 0;
    if (r && !cuda_moe_route_few(d, o, r, &w.list)) return false;
    if (!r) cuda_moe_lists(d, o, &w.list, row0, n_row);
    moe_product<T, true>(d, &p, o->gate_up, n_row, each, vector);
    moe_product<T, false>(d, &p, o->down, n_row, each, vector);
    if (vector)
        moe_combine<T, true>(d, o, &w, out, n_row);
    else
        moe_combine<T, false>(d, o, &w, out, n_row);
    return true;
}

static void moe_check(const struct op_moe *o)
{
    CHECK(o->top_k >= 1 && o->top_k <= o->n_expert && o->n_group <= OP_ROUTE_GROUPS_MAX);
    CHECK(o->first_here + op_moe_here(o) <= o->n_expert);
}

extern "C" void cuda_moe(struct device *dev, const struct op_moe *o)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!o->n_row) return;
    moe_check(o);
    uint32_t n_part = (o->n_row + MOE_ROWS - 1) / MOE_ROWS, rows = (o->n_row + n_part - 1) / n_part; /* even parts */
    for (uint32_t r = 0; r < o->n_row; r += rows) {
        uint32_t n = o->n_row - r < rows ? o->n_row - r : rows;
        if (dev->act == DT_F16)
            moe_rows<__half>(d, o, NULL, r, n);
        else
            moe_rows<__nv_bfloat16>(d, o, NULL, r, n);
    }
}

extern "C" bool cuda_routed(struct device *dev, const struct op_router *r, const struct op_moe *o)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!o->n_row || o->n_row > MOE_ROWS) return false;
    moe_check(o);
    if (!cuda_gemm_joins(d, r->w, o->router_f32 ? DT_F32 : dev->act, o->n_row)) return false;
    if (dev->act == DT_F16) return moe_rows<__half>(d, o, r, 0, o->n_row);
    return moe_rows<__nv_bfloat16>(d, o, r, 0, o->n_row);
}
