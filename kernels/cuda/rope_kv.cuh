/* rope_kv: what op qkv does to one head of one row: RMSNorm of q and k (optional), RoPE, K and V to the pool. rope_kv.cu
 * does it to what lies in memory, fused.cuh to what a product of its kernel has just made; the bits are the same.
 * Everything between is fp32; q and k are rounded once to act, K and V once to what the pool holds. A head's numbers go in
 * pairs (i, i + rot / 2); what partial rotary leaves alone goes in pairs too, turned by nothing.   Device code of those
 * two. */
#pragma once
#include "kernels/cuda/kv8.cuh"
#include "kernels/cuda/vec.cuh"

enum {
    QKV_EACH = 8 /* pairs of a lane */
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

/* cos and sin of pair i at a position, times rope_scale. */
static __device__ __forceinline__ void qkv_angle(const struct qkv_args &a, uint32_t pos, uint32_t i, float &cosine,
                                                 float &sine)
{
    float s, c;
    qkv_sincos(__fmul_rn((float)pos, a.inv_freq[i]), &s, &c); /* in float32, as the checkpoints were trained */
    cosine = __fmul_rn(c, a.rope_scale);
    sine = __fmul_rn(s, a.rope_scale);
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
/* A row as all its heads need it. It comes of arrays that no kernel changes, so nobody waits for it. */
struct qkv_row {
    char    *slot; /* where K of KV head 0 goes; NULL: nowhere */
    uint32_t row, pos, at;
    float    factor; /* on q; the host's is qkv_q_scale */
    bool     there;  /* false: padding */
};
static __device__ __forceinline__ struct qkv_row qkv_row_of(const struct qkv_args &a, uint32_t row)
{
    struct qkv_row r = { NULL, row, 0, 0, 1.0f, false };
    uint32_t       seq = a.row_seq[row];
    if (seq == UINT32_MAX) return r;
    r.there = true;
    r.pos = a.pos[row];
    r.at = qkv_slot_of(a, row, r.pos);
    r.slot = qkv_slot(a, seq, r.at);
    if (a.q_beta != 0.0f) r.factor = __fmaf_rn(a.q_beta, logf((float)(1 + (r.pos + a.q_shift) / a.q_period)), 1.0f);
    return r;
}
/* The row of one head at a slot. */
static __device__ __forceinline__ char *qkv_at(const struct qkv_args &a, char *slot, uint32_t head, bool is_v)
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

/* A lane's eight pairs of a head, which has `lanes` neighbouring lanes of a warp, a power of two. */
struct qkv_lane {
    uint32_t head, lanes, i, j;   /* i, j: where the two numbers of the first pair lie in the head */
    bool     in, is_turned, mean; /* in: it has pairs at all; mean: norm_mean */
};
static __device__ __forceinline__ struct qkv_lane qkv_lane_of(const struct qkv_args &a, uint32_t head, uint32_t group,
                                                              uint32_t lanes, bool mean)
{
    uint32_t turned = a.half / QKV_EACH, plain = (a.head_dim / 2 - a.half) / QKV_EACH;
    bool     is_turned = group < turned;
    uint32_t i = is_turned ? group * QKV_EACH : 2 * a.half + (group - turned) * QKV_EACH;
    return { head, lanes, i, i + (is_turned ? a.half : plain * QKV_EACH), group < turned + plain, is_turned, mean };
}

/* What op qkv does to a head of a row. u, v: what lies at its pairs in x, the head's numbers; zeros where the lane has
 * none. angle(k, c, s): cosine and sine of its pair k. By whole warps. */
template <class T, class ANGLE>
static __device__ __forceinline__ void qkv_head(const struct qkv_args &a, const struct qkv_row &r,
                                                const struct qkv_lane &l, T *x, const uint4 &u, const uint4 &v,
                                                ANGLE angle)
{
    float f[QKV_EACH], g[QKV_EACH];
    act_load8<T>(f, u);
    act_load8<T>(g, v);
    const bool is_v = l.head >= a.n_head + a.n_kv_head, is_q = l.head < a.n_head;
    auto       turn = [&] {
        float c, s;
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            angle(k, c, s);
            qkv_turn(f[k], g[k], c, s);
        }
    };
    const float *norm = qkv_norm(a, l.head, is_q, is_v);
    if (a.norm_late && !is_v && l.is_turned) turn();
    float sum = 0.0f;
    if (l.mean) {
        for (int k = 0; k < QKV_EACH; k++) sum = __fadd_rn(sum, __fadd_rn(f[k], g[k]));
        for (uint32_t m = l.lanes / 2; m; m >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, m));
        float mean = l.in && norm ? sum / (float)a.head_dim : 0.0f; /* V keeps its own */
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
    for (uint32_t m = l.lanes / 2; m; m >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, m));
    if (norm && l.in) {
        float scale = qkv_norm_scale(a, r.row, is_q, sum / (float)a.head_dim);
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            f[k] = __fmul_rn(__fmul_rn(f[k], scale), norm[l.i + k]);
            g[k] = __fmul_rn(__fmul_rn(g[k], scale), norm[l.j + k]);
        }
    }
    if (!is_v && l.is_turned && !a.norm_late) turn();
    if (is_q) {
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) {
            f[k] = __fmul_rn(f[k], r.factor);
            g[k] = __fmul_rn(g[k], r.factor);
        }
    }
    if (!is_v && l.in) {
        *(uint4 *)(x + l.i) = act_store8<T>(f);
        *(uint4 *)(x + l.j) = act_store8<T>(g);
    }
    uint32_t most = 0;
    if (a.kv8) { /* lanes behind the head have zeros */
#pragma unroll
        for (int k = 0; k < QKV_EACH; k++) most = max(most, max(kv8_size(f[k]), kv8_size(g[k])));
#pragma unroll
        for (uint32_t m = l.lanes / 2; m; m >>= 1) most = max(most, __shfl_xor_sync(0xffffffffu, most, m));
    }
    if (is_q || !l.in || !r.slot) return;
    char *to = qkv_at(a, r.slot, l.head, is_v);
    if (a.kv8) {
        uint32_t scale = kv8_scale_of(most);
        *(uint2 *)(to + l.i) = qkv_codes8(f, scale);
        *(uint2 *)(to + l.j) = qkv_codes8(g, scale);
        if (l.i == 0) qkv_scale_store(a, to, r.at, scale);
        return;
    }
    *(uint4 *)(to + l.i * sizeof(uint16_t)) = qkv_store8<T>(a, f);
    *(uint4 *)(to + l.j * sizeof(uint16_t)) = qkv_store8<T>(a, g);
}

/* Host, rope_kv.cu: what a kernel needs of the op; n_kv_head is 0 where there are none. */
struct qkv_args qkv_args_of(const struct device *dev, const struct op_qkv *o, const struct dev_batch *b,
                            const struct dev_kv *kv);
/* Lanes of a head for qkv_head; 0: its pairs do not come eight at a time, 16-byte aligned. */
uint32_t qkv_lanes(const struct qkv_args &a);
