/* mutual: attention without KV, both ways: the rows of a text see each other.
 *   truth: kernels/ref/mutual.c   arithmetic: attn.cuh
 *   out act [n_row, n_head * head_dim]   qkv act [n_row, (n_head + 2 * n_kv_head) * head_dim], keys and values too
 *
 * A block has one head and 64 rows of one text, 16 rows a warp, and walks the rows that any of them sees: a tile of the
 * step's plan, or a text of one row, which the plan has among those to decode. A text stands in one step, and tiles
 * begin with its first row, so a row's bits depend on its text alone. */
#include "base/check.h"
#include "kernels/cuda/attn.cuh"

enum { MUTUAL_DIM_MAX = 256, MUTUAL_WARPS = CUDA_ATTN_ROWS / 16 };

/* Rows [lo, hi) of one text as keys and values of one head. */
struct mutual_feed {
    typedef __nv_bfloat16 element;
    char                 *ring;
    const __nv_bfloat16  *head; /* the key of the text's first row */
    uint32_t              lo, hi, t, slot;
    size_t                step; /* numbers from one row to the next */
};

static __device__ __forceinline__ void attn_seek(const struct attn_args &, struct mutual_feed &) {}

/* The tile at f.t: where a.fast says so 16 bytes at a time, else number by number. What is not seen is zero. */
template <int HD, int WARPS>
static __device__ __forceinline__ void attn_load(const struct attn_args &a, const struct mutual_feed &f,
                                                 const __nv_bfloat16 *head)
{
    enum { PIECES = HD / 8, EACH = attn_dim<HD>::KV * PIECES / (WARPS * 32), STRIDE = attn_dim<HD>::STRIDE };
    char *slot = f.ring + f.slot * attn_ring<__nv_bfloat16, HD>::SLOT;
    if (a.fast) {
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            uint32_t i = j * WARPS * 32 + threadIdx.x, row = i / PIECES, at = i % PIECES * 8, t = f.t + row;
            bool     in = t >= f.lo && t < f.hi && at < a.head_dim;
            cp_async16(slot + row * STRIDE + at * 2, in ? head + t * f.step + at : head, in ? 16 : 0);
        }
    } else {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < attn_dim<HD>::KV * HD; i += WARPS * 32) {
            uint32_t row = i / HD, at = i % HD, t = f.t + row;
            bool     in = t >= f.lo && t < f.hi && at < a.head_dim;
            ((__nv_bfloat16 *)(slot + row * STRIDE))[at] = in ? head[t * f.step + at] : __ushort_as_bfloat16(0);
        }
    }
}

/* What row t of a text of n rows sees. */
static __device__ __forceinline__ uint32_t mutual_first(const struct attn_args &a, uint32_t t)
{
    return a.window && t >= a.window ? t - a.window + 1 : 0;
}
static __device__ __forceinline__ uint32_t mutual_last(const struct attn_args &a, uint32_t t, uint32_t n)
{
    return a.window && a.window < n - t ? t + a.window - 1 : n - 1;
}
/* The warp has rows [t, t + 16) of the text, as far as they are before `end`. */
template <int HD>
static __device__ __forceinline__ void mutual_sees(const struct attn_args &a, struct attn_rows<HD, 1> &r, uint32_t t,
                                                   uint32_t end, uint32_t n)
{
    uint32_t g = (threadIdx.x & 31) / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        bool in = t + g + 8 * h < end;
        r.first[h] = in ? mutual_first(a, t + g + 8 * h) : 1;
        r.last[h] = in ? mutual_last(a, t + g + 8 * h, n) : 0;
    }
    r.seen_first = r.all_first = UINT32_MAX, r.seen_last = r.all_last = 0;
    if (t >= end) return;
    uint32_t last = min(t + 16, end) - 1;
    r.seen_first = mutual_first(a, t), r.seen_last = mutual_last(a, last, n);
    r.all_first = mutual_first(a, last), r.all_last = mutual_last(a, t, n);
}

/* The sequence of tile i of the step, and its first row in the batch; UINT32_MAX: padding. */
static __device__ __forceinline__ uint32_t mutual_tile(const struct attn_args &a, uint32_t i, uint32_t *row_out)
{
    uint32_t n = a.plan.n_run + a.plan.n_decode; /* one of them is 0 */
    if (i >= n) {
        *row_out = a.plan.tile_row[i - n];
        return a.plan.tile_seq[i - n];
    }
    if (a.plan.n_run) { /* of few rows: one tile, for its first run */
        *row_out = a.plan.run[i].row;
        return a.row_start[a.plan.run[i].seq] == *row_out ? a.plan.run[i].seq : UINT32_MAX;
    }
    *row_out = a.row_start[i];
    return a.plan.seq_item[i] == a.plan.seq_item[i + 1] ? UINT32_MAX : i;
}

template <class T, int HD>
__global__ void __launch_bounds__(MUTUAL_WARPS * 32, HD > 128 ? 1 : 3) k_mutual(const struct attn_args a)
{
    DYN_SMEM(char, smem);
    uint32_t warp = threadIdx.x / 32, g = (threadIdx.x & 31) / 4, head = blockIdx.x % a.n_head, row0;
    uint32_t seq = mutual_tile(a, blockIdx.x / a.n_head, &row0);
    if (seq == UINT32_MAX) {
        pdl_wait();
        pdl_launch();
        return;
    }
    uint32_t begin = a.row_start[seq], n = a.row_start[seq + 1] - begin, t0 = row0 - begin, t = t0 + warp * 16;
    uint32_t end = min(n, t0 + CUDA_ATTN_ROWS);

    struct attn_rows<HD, 1> r;
    mutual_sees(a, r, t, end, n);
    struct mutual_feed f;
    f.ring = smem;
    f.lo = mutual_first(a, t0), f.hi = mutual_last(a, end - 1, n) + 1;
    f.step = (size_t)a.width * a.head_dim;
    f.head = (const __nv_bfloat16 *)attn_q_row(a, begin, a.n_head + head / a.group);
    pdl_wait();
    attn_feed_begin<HD, MUTUAL_WARPS>(a, f);
    pdl_launch();

    struct attn_query<HD, 1, MUTUAL_WARPS> q;
    /* as in k_attn_tile: a slot that nobody has asked for yet holds the rows while fragments are made of them */
    char *q_warp = smem + warp * 16 * attn_dim<HD>::STRIDE;
    q_warp += attn_query<HD, 1, MUTUAL_WARPS>::IN_REGISTERS ? attn_ring<__nv_bfloat16, HD>::FREE
                                                            : attn_ring<__nv_bfloat16, HD>::BYTES;
    q.smem = q_warp;
    uint32_t from = min(t, end - 1);
    attn_q_rows<T, HD>(a, q_warp, attn_q_even{ attn_q_row(a, begin + from, head), f.step }, end - from);
    attn_q_take<HD, 1, MUTUAL_WARPS>(q, q_warp);
    attn_walk<T, HD, 1, MUTUAL_WARPS>(a, f, q, r, NULL);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (t + g + 8 * h < end) attn_put_rows<HD, 1>(a, r, 0, h, begin + t + g + 8 * h, head);
}

template <class T, int HD> static void mutual_launch(struct cuda_dev *d, struct attn_args a)
{
    typedef attn_smem<__nv_bfloat16, HD, 1, MUTUAL_WARPS> parts;
    size_t                                                smem = parts::RING + parts::Q;
    CHECK(smem <= cuda_attn_smem(d->arch)); /* 256 numbers a head need more than 100 KB */
    a.wide_q = a.head_dim == HD && (uintptr_t)a.qkv % 16 == 0;
    LAUNCH((k_mutual<T, HD>), (a.plan.n_run + a.plan.n_decode + a.plan.n_tile) * a.n_head, MUTUAL_WARPS * 32, smem, d,
           a);
}

/* The dims that encoders have, and those above them. */
template <class T> static void mutual_launch_as(struct cuda_dev *d, const struct attn_args &a)
{
    if (a.head_dim <= 32)
        mutual_launch<T, 32>(d, a);
    else if (a.head_dim <= 64)
        mutual_launch<T, 64>(d, a);
    else if (a.head_dim <= 128)
        mutual_launch<T, 128>(d, a);
    else
        mutual_launch<T, 256>(d, a);
}

extern "C" void cuda_mutual(struct device *dev, const struct op_attn *o, const struct dev_batch *b)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(o->head_dim > 0 && o->head_dim <= MUTUAL_DIM_MAX && o->n_head % o->n_kv_head == 0 && o->scale > 0.0f);
    CHECK(!o->sinks && !o->q_only && !o->chunked);
    struct attn_args a = attn_args_of(d, o, b);
    if (a.plan.n_run + a.plan.n_decode + a.plan.n_tile == 0) return;
    a.fast = o->head_dim % 8 == 0 && (uintptr_t)o->qkv % 16 == 0;
    a.v_offset = (size_t)o->n_kv_head * o->head_dim;
    if (dev->act == DT_F16)
        mutual_launch_as<__half>(d, a);
    else
        mutual_launch_as<__nv_bfloat16>(d, a);
    cuda_launched(d, "mutual");
}
