/* qkv: RMSNorm of q and k heads (optional), RoPE, K and V to the pool: one pass over the fused projection.   truth:
 * kernels/ref/rope.c
 *   qkv act [n_row, (n_head + 2 * n_kv_head) * head_dim], in place
 *   pool bf16, or f16 as act is, of a layer [k,v][kv_head][token][head_dim], or rows of kv8.h; none (encoders): V stays
 *   where it is
 *
 * A block has one row and some of its heads. Cosines and sines of the row are computed once per block, before the wait
 * for the product that comes before: they need positions alone. Everything between is fp32; q and k are rounded once to
 * act, K and V once to what the pool holds. A head's numbers go in pairs (i, i + rot / 2); what partial rotary leaves
 * alone goes in pairs too, turned by nothing. */
#include "base/check.h"
#include "kernels/cuda/rope_kv.cuh"

enum {
    QKV_THREADS = 128,
    QKV_HALF_MAX = 256 /* pairs of a head */
};

/* Of k_qkv. Without a number of blocks ptxas keeps to 40 registers on a B200, and spills there. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 == 10
#define QKV_BOUNDS __launch_bounds__(QKV_THREADS, 10)
#else
#define QKV_BOUNDS __launch_bounds__(QKV_THREADS)
#endif

/* cos and sin of all pairs of the row, for the block */
static __device__ __forceinline__ void qkv_angles(const struct qkv_args &a, uint32_t pos, float *cosine, float *sine)
{
    for (uint32_t i = threadIdx.x; i < a.half; i += QKV_THREADS) qkv_angle(a, pos, i, cosine[i], sine[i]);
}

/* Heads whose pairs come eight at a time, 16-byte aligned. LANES: of a head, each with at most one group of eight
 * pairs. MEAN: norm_mean. */
template <class T, int LANES, bool MEAN> __global__ void QKV_BOUNDS k_qkv(const struct qkv_args a)
{
    __shared__ float     cosine[QKV_HALF_MAX], sine[QKV_HALF_MAX];
    const struct qkv_row r = qkv_row_of(a, blockIdx.x);
    if (!r.there) {
        pdl_wait();
        pdl_launch();
        return;
    }
    qkv_angles(a, r.pos, cosine, sine);
    uint32_t        n_head = a.n_head + 2 * a.n_kv_head;
    uint32_t        head = blockIdx.y * (QKV_THREADS / LANES) + threadIdx.x / LANES;
    struct qkv_lane l = qkv_lane_of(a, head, threadIdx.x % LANES, LANES, MEAN);
    T              *x = (T *)a.qkv + ((size_t)r.row * n_head + head) * a.head_dim;
    l.in = l.in && head < n_head;
    __syncthreads();
    pdl_wait();
    uint4 u = make_uint4(0, 0, 0, 0), v = u;
    if (l.in) {
        u = *(const uint4 *)(x + l.i);
        v = *(const uint4 *)(x + l.j);
    }
    pdl_launch();
    qkv_head<T>(a, r, l, x, u, v, [&](int k, float &c, float &s) {
        c = cosine[l.i + k];
        s = sine[l.i + k];
    });
}

/* The same for any head: a warp each, number by number. A lane changes only pairs of its own. */
template <class T> __global__ void __launch_bounds__(QKV_THREADS) k_qkv_odd(const struct qkv_args a)
{
    __shared__ float     cosine[QKV_HALF_MAX], sine[QKV_HALF_MAX];
    const struct qkv_row r = qkv_row_of(a, blockIdx.x);
    uint32_t             n_head = a.n_head + 2 * a.n_kv_head, lane = threadIdx.x % WARP;
    uint32_t             head = blockIdx.y * (QKV_THREADS / WARP) + threadIdx.x / WARP;
    if (!r.there) {
        pdl_wait();
        pdl_launch();
        return;
    }
    qkv_angles(a, r.pos, cosine, sine);
    __syncthreads();
    pdl_wait();
    pdl_launch();
    if (head >= n_head) return;
    bool         is_v = head >= a.n_head + a.n_kv_head, is_q = head < a.n_head;
    T           *x = (T *)a.qkv + ((size_t)r.row * n_head + head) * a.head_dim;
    const float *norm = qkv_norm(a, head, is_q, is_v);
    float        scale = 1.0f, sum = 0.0f, mean = 0.0f;
    if (norm && a.norm_mean) {
        for (uint32_t i = lane; i < a.head_dim; i += WARP) mean = __fadd_rn(mean, act_load(x[i]));
        mean = warp_sum(mean) / (float)a.head_dim;
    }
    if (norm) { /* turning a pair changes its length by the factor of cosine and sine alone */
        float longer = a.norm_late ? a.rope_scale : 1.0f;
        for (uint32_t i = lane; i < a.head_dim; i += WARP) {
            float f = __fsub_rn(act_load(x[i]), mean);
            if (i < 2 * a.half) f = __fmul_rn(f, longer);
            sum = __fmaf_rn(f, f, sum);
        }
        scale = qkv_norm_scale(a, r.row, is_q, warp_sum(sum) / (float)a.head_dim);
    }
    char    *to = is_q || !r.slot ? NULL : qkv_at(a, r.slot, head, is_v);
    uint32_t n = a.head_dim - a.half, most = 0, kv_scale = 0; /* pairs (i, i + half), then what is left alone */
    /* A row in 8 bits is gone over twice: its scale comes from all of it. */
    for (int last = to && a.kv8 ? 0 : 1; last < 2; last++) {
        for (uint32_t i = lane; i < n; i += WARP) {
            uint32_t p = i < a.half ? i : i + a.half, q = p + a.half;
            bool     pair = i < a.half;
            float    f = act_load(x[p]), g = pair ? act_load(x[q]) : 0.0f;
            if (a.norm_late && pair && !is_v) qkv_turn(f, g, cosine[i], sine[i]);
            if (norm) {
                f = __fsub_rn(f, mean);
                g = __fsub_rn(g, mean);
                f = __fmul_rn(__fmul_rn(f, scale), norm[p]);
                g = pair ? __fmul_rn(__fmul_rn(g, scale), norm[q]) : 0.0f;
            }
            if (!a.norm_late && pair && !is_v) qkv_turn(f, g, cosine[i], sine[i]);
            if (is_q) {
                f = __fmul_rn(f, r.factor);
                g = __fmul_rn(g, r.factor);
            }
            if (!last) {
                most = max(most, max(kv8_size(f), kv8_size(g)));
                continue;
            }
            if (!is_v) {
                x[p] = act_store<T>(f);
                if (pair) x[q] = act_store<T>(g);
            }
            if (!to) continue;
            if (a.kv8) {
                to[p] = (char)kv8_code(f, kv_scale);
                if (pair) to[q] = (char)kv8_code(g, kv_scale);
            } else {
                qkv_store1<T>(a, to, p, f);
                if (pair) qkv_store1<T>(a, to, q, g);
            }
        }
        if (last) break;
        for (int m = WARP / 2; m; m >>= 1) most = max(most, __shfl_xor_sync(0xffffffffu, most, m));
        kv_scale = kv8_scale_of(most);
        if (lane == 0) qkv_scale_store(a, to, r.at, kv_scale);
    }
}

uint32_t qkv_lanes(const struct qkv_args &a)
{
    uint32_t plain = a.head_dim - 2 * a.half, groups = a.head_dim / (2 * QKV_EACH), lanes = a.norm_mean ? 8 : 4;
    if (a.half % QKV_EACH || plain % (2 * QKV_EACH) || groups > WARP) return 0;
    if (((uintptr_t)a.qkv | (uintptr_t)a.pool) & 15) return 0;
    if (a.kv8 && (a.block_tokens % 8 || a.head_dim % 8)) return 0; /* codes are stored eight at a time */
    if (a.norm_mean && groups > 8) return 0;                       /* it has one instance, for heads of up to 128 */
    while (lanes < groups) lanes *= 2;
    return lanes;
}

template <class T> static void qkv_launch(struct cuda_dev *d, const struct qkv_args &a, uint32_t n_row)
{
    uint32_t n_head = a.n_head + (a.pool ? 2 : 1) * a.n_kv_head; /* that change or are kept */
    uint32_t fit = qkv_lanes(a), lanes = fit ? fit : (uint32_t)WARP;
    dim3     grid(n_row, (n_head * lanes + QKV_THREADS - 1) / QKV_THREADS);
    if (!fit)
        LAUNCH(k_qkv_odd<T>, grid, QKV_THREADS, 0, d, a);
    else if (a.norm_mean)
        LAUNCH((k_qkv<T, 8, true>), grid, QKV_THREADS, 0, d, a);
    else if (lanes == 4)
        LAUNCH((k_qkv<T, 4, false>), grid, QKV_THREADS, 0, d, a);
    else if (lanes == 8)
        LAUNCH((k_qkv<T, 8, false>), grid, QKV_THREADS, 0, d, a);
    else if (lanes == 16)
        LAUNCH((k_qkv<T, 16, false>), grid, QKV_THREADS, 0, d, a);
    else
        LAUNCH((k_qkv<T, 32, false>), grid, QKV_THREADS, 0, d, a);
}

/* Sums of squares of q (blockIdx.y 0) and of k (1), a warp each. */
template <class T>
__global__ void __launch_bounds__(WARP) k_qkv_squares(float *out, const T *qkv, uint32_t q, uint32_t k)
{
    size_t   row = blockIdx.x;
    uint32_t n = blockIdx.y ? k : q;
    const T *x = qkv + row * (q + 2 * k) + (blockIdx.y ? q : 0);
    float    sum = 0.0f;
    pdl_wait();
    for (uint32_t i = threadIdx.x; i < n; i += WARP) sum = __fmaf_rn(act_load(x[i]), act_load(x[i]), sum);
    pdl_launch();
    sum = warp_sum(sum);
    if (threadIdx.x == 0) out[row * 2 + blockIdx.y] = sum;
}

extern "C" void cuda_squares(struct device *dev, float *out, const struct op_qkv *o, uint32_t n)
{
    struct cuda_dev *d = cuda_of(dev);
    uint32_t         q = o->n_head * o->head_dim, k = o->n_kv_head * o->head_dim;
    if (!n) return;
    if (dev->act == DT_F16)
        LAUNCH(k_qkv_squares<__half>, dim3(n, 2), WARP, 0, d, out, (const __half *)o->qkv, q, k);
    else
        LAUNCH(k_qkv_squares<__nv_bfloat16>, dim3(n, 2), WARP, 0, d, out, (const __nv_bfloat16 *)o->qkv, q, k);
    cuda_launched(d, "squares");
}

struct qkv_args qkv_args_of(const struct device *dev, const struct op_qkv *o, const struct dev_batch *b,
                            const struct dev_kv *kv)
{
    CHECK(!kv || (kv_holds_heads(kv, o->layer, o->n_kv_head, o->head_dim) && cuda_holds_kv(dev, kv->dtype)));
    CHECK(o->rot <= o->head_dim && o->rot / 2 <= QKV_HALF_MAX);
    CHECK(o->norm_late + o->norm_mean + (o->square != NULL) <= 1);
    CHECK(o->q_beta == 0.0f || o->q_period > 0);
    CHECK(!o->v_norm || !(o->norm_late || o->norm_mean || o->square));
    struct qkv_args a;
    memset(&a, 0, sizeof a);
    a.qkv = o->qkv, a.q_norm = o->q_norm, a.k_norm = o->k_norm, a.v_norm = o->v_norm, a.inv_freq = o->inv_freq;
    a.eps = o->eps, a.rope_scale = o->rope_scale, a.q_beta = o->q_beta, a.q_period = o->q_period;
    a.q_shift = o->q_shift;
    a.n_head = o->n_head, a.n_kv_head = o->n_kv_head, a.head_dim = o->head_dim, a.half = o->inv_freq ? o->rot / 2 : 0;
    if (kv) {
        a.v_offset = kv->layer[o->layer].bytes / 2;
        a.head_stride =
            kv->block_tokens * dev_kv_heads_bytes(kv->dtype, 1, o->head_dim) / 2; /* a layer may have none */
        a.block_stride = kv->block_bytes;
        a.pool = (char *)kv->base + kv->layer[o->layer].offset;
        a.each = (uint32_t)dtype_bytes(kv->dtype);
        a.block_tokens = kv->block_tokens, a.half_pool = kv->dtype == DT_F16, a.kv8 = kv->dtype == DT_F8E4M3;
    }
    a.square = o->square, a.n_square = o->n_square, a.norm_late = o->norm_late;
    a.norm_mean = o->norm_mean;
    a.pos = b->pos, a.row_seq = b->row_seq, a.page_start = b->page_start, a.page = b->page;
    a.tree = b->tree;
    return a;
}

extern "C" void cuda_qkv(struct device *dev, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cuda_dev      *d = cuda_of(dev);
    const struct qkv_args a = qkv_args_of(dev, o, b, kv);
    if (!b->n_row) return;
    if (dev->act == DT_F16)
        qkv_launch<__half>(d, a, b->n_row);
    else
        qkv_launch<__nv_bfloat16>(d, a, b->n_row);
    cuda_launched(d, "qkv");
}
