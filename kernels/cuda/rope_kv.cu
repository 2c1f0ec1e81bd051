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
#include "kernels/cuda/kv8.cuh"
#include "kernels/cuda/vec.cuh"

enum {
    QKV_THREADS = 128,
    QKV_HALF_MAX = 256 /* pairs of a head */,
    QKV_EACH = 8 /* pairs of a lane of the fast kernel */
};

struct qkv_args {
    void           *qkv;
    const float    *q_norm, *k_norm, *v_norm, *inv_freq;
    float           eps, rope_scale, q_beta;
    uint32_t        n_head, n_kv_head, head_dim, half; /* half: pairs that are turned */
    char           *pool;      /* K of head 0, token 0 of block 0 in this layer; NULL: nothing is kept */
    bool            half_pool; /* the pool is f16; act is too */
    bool            kv8;       /* the pool has rows of kv8.h */
    size_t          block_stride, head_stride, v_offset; /* bytes */
    uint32_t        each;                                /* bytes of a number of the pool */
    uint32_t        block_tokens, q_period, q_shift;
    const uint32_t *pos, *row_seq, *page_start, *page;
    const uint64_t *tree;   /* or NULL */
    const float    *square; /* as in op_qkv */
    uint32_t        n_square;
    bool            norm_late, norm_mean;
};

/* sin and cos of x >= 0: reduction by pi / 2 in three parts (Cody & Waite), then polynomials (minimax over +-pi / 4,
 * Cephes sinf and cosf). n * part is exact in the fused step for n below 2^22, so it holds for positions up to 4
 * million. sincosf of CUDA has a slow path for large x that works in a frame on the stack. */
static __device__ __forceinline__ void qkv_sincos(float x, float *sin_out, float *cos_out)
{
    float n = rintf(__fmul_rn(x, 0.636619772f));
    float r = __fmaf_rn(n, -1.57079637f, x);
    r = __fmaf_rn(n, 4.37113883e-8f, r);
    r = __fmaf_rn(n, 1.71512449e-15f, r);
    float r2 = __fmul_rn(r, r);
    float s = __fmaf_rn(r2, -1.9515295891e-4f, 8.3321608736e-3f);
    s = __fmaf_rn(s, r2, -1.6666654611e-1f);
    s = __fmaf_rn(__fmul_rn(s, r2), r, r);
    float c = __fmaf_rn(r2, 2.443315711809948e-5f, -1.388731625493765e-3f);
    c = __fmaf_rn(c, r2, 4.166664568298827e-2f);
    c = __fmaf_rn(__fmul_rn(c, r2), r2, __fmaf_rn(r2, -0.5f, 1.0f));
    uint32_t quadrant = (uint32_t)(int)n;
    float    s_out = quadrant & 1 ? c : s, c_out = quadrant & 1 ? s : c;
    *sin_out = quadrant & 2 ? -s_out : s_out;
    *cos_out = (quadrant + 1) & 2 ? -c_out : c_out;
}

/* cos and sin of all pairs of the row, times rope_scale, for the block */
static __device__ __forceinline__ void qkv_angles(const struct qkv_args &a, uint32_t pos, float *cosine, float *sine)
{
    for (uint32_t i = threadIdx.x; i < a.half; i += QKV_THREADS) {
        float s, c;
        qkv_sincos(__fmul_rn((float)pos, a.inv_freq[i]), &s, &c); /* in float32, as the checkpoints were trained */
        cosine[i] = __fmul_rn(c, a.rope_scale);
        sine[i] = __fmul_rn(s, a.rope_scale);
    }
}

/* The factor on q of the row, for the block; the host's is qkv_q_scale. */
static __device__ __forceinline__ void qkv_scale(const struct qkv_args &a, uint32_t pos, float *q_scale)
{
    if (threadIdx.x == 0)
        *q_scale =
            a.q_beta != 0.0f ? __fmaf_rn(a.q_beta, logf((float)(1 + (pos + a.q_shift) / a.q_period)), 1.0f) : 1.0f;
}

/* The slot of a row. */
static __device__ __forceinline__ uint32_t qkv_slot_of(const struct qkv_args &a, uint32_t row, uint32_t pos)
{
    return a.tree ? tree_slot(pos, a.tree[row]) : pos;
}
/* Where K of this slot lies for KV head 0 (V is v_offset behind); NULL: nowhere. */
static __device__ __forceinline__ char *qkv_slot(const struct qkv_args &a, uint32_t seq, uint32_t at)
{
    if (!a.pool) return NULL;
    uint32_t block = a.page[a.page_start[seq] + at / a.block_tokens];
    if (block == UINT32_MAX) return NULL;
    return a.pool + (size_t)block * a.block_stride + (size_t)(at % a.block_tokens) * a.head_dim * a.each;
}
/* The row of one head there. */
static __device__ __forceinline__ char *qkv_row(const struct qkv_args &a, char *slot, uint32_t head, bool is_v)
{
    head -= a.n_head + (is_v ? a.n_kv_head : 0);
    return slot + head * a.head_stride + (is_v ? a.v_offset : 0);
}

static __device__ __forceinline__ void qkv_turn(float &x, float &y, float c, float s)
{
    float x1 = __fmaf_rn(x, c, -__fmul_rn(y, s));
    y = __fmaf_rn(y, c, __fmul_rn(x, s));
    x = x1;
}

/* The norm's factor of a row of q or k. own: where the head has a norm of its own, its mean of squares. */
static __device__ __forceinline__ float qkv_norm_scale(const struct qkv_args &a, uint32_t row, bool is_q, float own)
{
    if (a.square) {
        const float *square = a.square + (size_t)row * a.n_square * 2 + !is_q;
        float        sum = 0.0f;
        for (uint32_t i = 0; i < a.n_square; i++) sum = __fadd_rn(sum, square[2 * i]); /* in order of the ranks */
        own = sum / (float)(a.n_square * (is_q ? a.n_head : a.n_kv_head) * a.head_dim);
    }
    return 1.0f / sqrtf(__fadd_rn(own, a.eps));
}

/* Where the weights of a head's norm begin; NULL: none. */
static __device__ __forceinline__ const float *qkv_norm(const struct qkv_args &a, uint32_t head, bool is_q, bool is_v)
{
    const float *norm = is_q ? a.q_norm : a.k_norm;
    if (is_v) return a.v_norm;
    if (!norm) return NULL;
    if (!a.square && !a.norm_mean) return norm; /* one for all heads */
    if (!is_q) head -= a.n_head;
    return norm + (size_t)head * a.head_dim;
}

/* Numbers as the pool has them. The choice is act's to make: no other has an f16 pool. */
template <class T> static __device__ __forceinline__ bool qkv_half_pool(const struct qkv_args &a);
template <> __device__ __forceinline__ bool qkv_half_pool<__nv_bfloat16>(const struct qkv_args &) { return false; }
template <> __device__ __forceinline__ bool qkv_half_pool<__half>(const struct qkv_args &a) { return a.half_pool; }
template <class T> static __device__ __forceinline__ uint4 qkv_store8(const struct qkv_args &a, const float *f)
{
    return qkv_half_pool<T>(a) ? act_store8<__half>(f) : act_store8<__nv_bfloat16>(f);
}
template <class T>
static __device__ __forceinline__ void qkv_store1(const struct qkv_args &a, char *row, uint32_t i, float f)
{
    if (qkv_half_pool<T>(a))
        ((__half *)row)[i] = __float2half_rn(f);
    else
        ((__nv_bfloat16 *)row)[i] = __float2bfloat16_rn(f);
}

/* The same for a pool of kv8.h. */
static __device__ __forceinline__ uint2 qkv_codes8(const float *f, uint32_t scale)
{
    uint32_t code[2] = { 0, 0 };
#pragma unroll
    for (int k = 0; k < 8; k++) code[k / 4] |= kv8_code(f[k], scale) << k % 4 * 8;
    return make_uint2(code[0], code[1]);
}
static __device__ __forceinline__ void qkv_scale_store(const struct qkv_args &a, char *row, uint32_t at, uint32_t scale)
{
    row[kv8_scale_at(a.block_tokens, at % a.block_tokens, a.head_dim)] = (char)scale;
}

/* Heads whose pairs come eight at a time, 16-byte aligned. LANES: of a head, each with at most one group of eight
 * pairs. MEAN: norm_mean. */
template <class T, int LANES, bool MEAN> __global__ void __launch_bounds__(QKV_THREADS) k_qkv(const struct qkv_args a)
{
    __shared__ float cosine[QKV_HALF_MAX], sine[QKV_HALF_MAX], q_scale;
    uint32_t         row = blockIdx.x, seq = a.row_seq[row], n_head = a.n_head + 2 * a.n_kv_head;
    if (seq == UINT32_MAX) { /* padding */
        pdl_wait();
        pdl_launch();
        return;
    }
    uint32_t pos = a.pos[row], at = qkv_slot_of(a, row, pos);
    qkv_angles(a, pos, cosine, sine);
    qkv_scale(a, pos, &q_scale);
    uint32_t head = blockIdx.y * (QKV_THREADS / LANES) + threadIdx.x / LANES, group = threadIdx.x % LANES;
    char    *slot = qkv_slot(a, seq, at);
    uint32_t turned = a.half / QKV_EACH, plain = (a.head_dim / 2 - a.half) / QKV_EACH;
    bool     in = head < n_head && group < turned + plain, is_turned = group < turned;
    /* where the two elements of the first pair of this lane lie */
    uint32_t i = is_turned ? group * QKV_EACH : 2 * a.half + (group - turned) * QKV_EACH;
    uint32_t j = i + (is_turned ? a.half : plain * QKV_EACH);
    bool     is_v = head >= a.n_head + a.n_kv_head, is_q = head < a.n_head;
    T       *x = (T *)a.qkv + ((size_t)row * n_head + head) * a.head_dim;
    __syncthreads();
    pdl_wait();
    uint4 u = make_uint4(0, 0, 0, 0), v = u;
    if (in) {
        u = *(const uint4 *)(x + i);
        v = *(const uint4 *)(x + j);
    }
    pdl_launch();
    float f[QKV_EACH], g[QKV_EACH];
    act_load8<T>(f, u);
    act_load8<T>(g, v);
    const float *norm = qkv_norm(a, head, is_q, is_v);
    if (a.norm_late && !is_v && is_turned) {
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) qkv_turn(f[k], g[k], cosine[i + k], sine[i + k]);
    }
    float sum = 0.0f;
    if (MEAN) {
        for (int k = 0; k < QKV_EACH; k++) sum = __fadd_rn(sum, __fadd_rn(f[k], g[k]));
        for (int m = LANES / 2; m; m >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, m));
        float mean = in && norm ? sum / (float)a.head_dim : 0.0f; /* V keeps its own */
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            f[k] = __fsub_rn(f[k], mean);
            g[k] = __fsub_rn(g[k], mean);
        }
        sum = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < QKV_EACH; k++) sum = __fmaf_rn(f[k], f[k], __fmaf_rn(g[k], g[k], sum));
#pragma unroll
    for (int m = LANES / 2; m; m >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, m));
    if (norm && in) {
        float scale = qkv_norm_scale(a, row, is_q, sum / (float)a.head_dim);
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            f[k] = __fmul_rn(__fmul_rn(f[k], scale), norm[i + k]);
            g[k] = __fmul_rn(__fmul_rn(g[k], scale), norm[j + k]);
        }
    }
    if (!is_v && is_turned && !a.norm_late) {
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) qkv_turn(f[k], g[k], cosine[i + k], sine[i + k]);
    }
    if (is_q) {
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            f[k] = __fmul_rn(f[k], q_scale);
            g[k] = __fmul_rn(g[k], q_scale);
        }
    }
    if (!is_v && in) {
        *(uint4 *)(x + i) = act_store8<T>(f);
        *(uint4 *)(x + j) = act_store8<T>(g);
    }
    if (!slot) return; /* all lanes */
    uint32_t most = 0;
    if (a.kv8) { /* lanes behind the head have zeros */
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) most = max(most, max(kv8_size(f[k]), kv8_size(g[k])));
#pragma unroll
        for (int m = LANES / 2; m; m >>= 1) most = max(most, __shfl_xor_sync(0xffffffffu, most, m));
    }
    if (is_q || !in) return;
    char *to = qkv_row(a, slot, head, is_v);
    if (a.kv8) {
        uint32_t scale = kv8_scale_of(most);
        *(uint2 *)(to + i) = qkv_codes8(f, scale);
        *(uint2 *)(to + j) = qkv_codes8(g, scale);
        if (group == 0) qkv_scale_store(a, to, at, scale);
        return;
    }
    *(uint4 *)(to + i * sizeof(uint16_t)) = qkv_store8<T>(a, f);
    *(uint4 *)(to + j * sizeof(uint16_t)) = qkv_store8<T>(a, g);
}

/* The same for any head: a warp each, number by number. A lane changes only pairs of its own. */
template <class T> __global__ void __launch_bounds__(QKV_THREADS) k_qkv_odd(const struct qkv_args a)
{
    __shared__ float cosine[QKV_HALF_MAX], sine[QKV_HALF_MAX], q_scale;
    uint32_t row = blockIdx.x, seq = a.row_seq[row], n_head = a.n_head + 2 * a.n_kv_head, lane = threadIdx.x % WARP;
    uint32_t head = blockIdx.y * (QKV_THREADS / WARP) + threadIdx.x / WARP;
    if (seq == UINT32_MAX) {
        pdl_wait();
        pdl_launch();
        return;
    }
    uint32_t pos = a.pos[row], at = qkv_slot_of(a, row, pos);
    qkv_angles(a, pos, cosine, sine);
    qkv_scale(a, pos, &q_scale);
    __syncthreads();
    pdl_wait();
    pdl_launch();
    if (head >= n_head) return;
    bool         is_v = head >= a.n_head + a.n_kv_head, is_q = head < a.n_head;
    T           *x = (T *)a.qkv + ((size_t)row * n_head + head) * a.head_dim;
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
        scale = qkv_norm_scale(a, row, is_q, warp_sum(sum) / (float)a.head_dim);
    }
    char *to = is_q ? NULL : qkv_slot(a, seq, at);
    if (to) to = qkv_row(a, to, head, is_v);
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
                f = __fmul_rn(f, q_scale);
                g = __fmul_rn(g, q_scale);
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
        if (lane == 0) qkv_scale_store(a, to, at, kv_scale);
    }
}

template <class T> static void qkv_launch(struct cuda_dev *d, const struct qkv_args &a, uint32_t n_row)
{
    uint32_t n_head = a.n_head + (a.pool ? 2 : 1) * a.n_kv_head; /* that change or are kept */
    uint32_t plain = a.head_dim - 2 * a.half, groups = a.head_dim / (2 * QKV_EACH);
    bool     fast = a.half % QKV_EACH == 0 && plain % (2 * QKV_EACH) == 0 && groups <= WARP &&
                ((uintptr_t)a.qkv & 15) == 0 && ((uintptr_t)a.pool & 15) == 0;
    if (a.kv8 && (a.block_tokens % 8 || a.head_dim % 8)) fast = false; /* codes are stored eight at a time */
    if (a.norm_mean && groups > 8) fast = false;                       /* it has one instance, for heads of up to 128 */
    uint32_t lanes = WARP;
    if (fast) lanes = a.norm_mean ? 8 : 4;
    while (fast && lanes < groups) lanes *= 2;
    dim3 grid(n_row, (n_head * lanes + QKV_THREADS - 1) / QKV_THREADS);
    if (!fast)
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

extern "C" void cuda_qkv(struct device *dev, const struct op_qkv *o, const struct dev_batch *b, const struct dev_kv *kv)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(!kv || (kv_holds_heads(kv, o->layer, o->n_kv_head, o->head_dim) && cuda_holds_kv(dev, kv->dtype)));
    CHECK(o->rot <= o->head_dim && o->rot / 2 <= QKV_HALF_MAX);
    CHECK(o->norm_late + o->norm_mean + (o->square != NULL) <= 1);
    if (!b->n_row) return;
    struct qkv_args a;
    memset(&a, 0, sizeof a);
    a.qkv = o->qkv, a.q_norm = o->q_norm, a.k_norm = o->k_norm, a.v_norm = o->v_norm, a.inv_freq = o->inv_freq;
    a.eps = o->eps, a.rope_scale = o->rope_scale, a.q_beta = o->q_beta, a.q_period = o->q_period;
    a.q_shift = o->q_shift;
    CHECK(o->q_beta == 0.0f || o->q_period > 0);
    CHECK(!o->v_norm || !(o->norm_late || o->norm_mean || o->square));
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
    if (dev->act == DT_F16)
        qkv_launch<__half>(d, a, b->n_row);
    else
        qkv_launch<__nv_bfloat16>(d, a, b->n_row);
    cuda_launched(d, "qkv");
}
