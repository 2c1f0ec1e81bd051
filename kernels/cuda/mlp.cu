/* mlp: what is done to rows one element at a time: embed, gather, multipliers, gates, bias; patches.   truth:
 * kernels/ref/mlp.c, gemm.c, host.c A block does MLP_THREADS units of one row (grid: rows, pieces of a row). A unit is
 * 16 bytes of output where rows and addresses allow it, else one element. */
#include "base/check.h"
#include "kernels/cuda/codes.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/vec.cuh"

enum { MLP_THREADS = 128 };

static dim3 mlp_grid(uint32_t n, uint32_t n_unit) { return dim3(n, (n_unit + MLP_THREADS - 1) / MLP_THREADS); }

/* ---------------------------------------------------------------- rows by number */

/* out[i] = x[id[i]] bit by bit; 0 where there is no such row. U: a unit, n_unit of them in a row, n_x rows in x */
template <class U>
__global__ void __launch_bounds__(MLP_THREADS)
    k_mlp_rows(U *out, const U *x, const uint32_t *id, uint32_t n_x, uint32_t n_unit)
{
    uint32_t i = blockIdx.y * MLP_THREADS + threadIdx.x;
    pdl_wait();
    uint32_t from = id[blockIdx.x];
    if (i >= n_unit) return;
    U v = {};
    if (from < n_x) v = x[(size_t)from * n_unit + i];
    pdl_launch();
    out[(size_t)blockIdx.x * n_unit + i] = v;
}

static void rows(struct cuda_dev *d, void *out, const void *x, const uint32_t *id, uint32_t n, uint32_t n_x,
                 uint32_t dim)
{
    if (vec_fits(dim, out, x, x))
        LAUNCH(k_mlp_rows<uint4>, mlp_grid(n, dim / VEC), MLP_THREADS, 0, d, (uint4 *)out, (const uint4 *)x, id, n_x,
               dim / VEC);
    else
        LAUNCH(k_mlp_rows<uint16_t>, mlp_grid(n, dim), MLP_THREADS, 0, d, (uint16_t *)out, (const uint16_t *)x, id, n_x,
               dim);
}

/* An id that is not in the vocabulary (padding, or a client's that nobody refused) gives a row of zeros, never a wild
 * read. */
extern "C" void cuda_embed(struct device *dev, void *out, const uint32_t *id, const struct dev_weight *w, uint32_t n)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !w->k) return;
    if (dev_weight_is_quant(w)) {
        cuda_embed_codes(dev, out, id, w, n);
        return;
    }
    CHECK(w->dtype == dev->act); /* as cuda_weight_alloc has it */
    rows(d, out, w->data, id, n, w->n, w->k);
    cuda_launched(d, "embed");
}

extern "C" void cuda_gather(struct device *dev, void *out, const void *x, const uint32_t *row, uint32_t n, uint32_t dim)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !dim) return;
    rows(d, out, x, row, n, UINT32_MAX, dim);
    cuda_launched(d, "gather");
}

/* out[i, j] = x[i, column[j]], bit by bit. */
__global__ void __launch_bounds__(MLP_THREADS)
    k_columns(uint16_t *out, const uint16_t *x, const uint32_t *column, uint32_t k)
{
    uint32_t j = blockIdx.y * MLP_THREADS + threadIdx.x;
    uint32_t from = j < k ? column[j] : 0; /* no kernel writes it */
    pdl_wait();
    if (j >= k) return;
    uint16_t v = x[(size_t)blockIdx.x * k + from];
    pdl_launch();
    out[(size_t)blockIdx.x * k + j] = v;
}

extern "C" void cuda_columns(struct device *dev, void *out, const void *x, const uint32_t *column, uint32_t n,
                             uint32_t k)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !k) return;
    LAUNCH(k_columns, mlp_grid(n, k), MLP_THREADS, 0, d, (uint16_t *)out, (const uint16_t *)x, column, k);
    cuda_launched(d, "columns");
}

/* ---------------------------------------------------------------- multipliers and soft caps */

template <class T, bool VECTOR> __global__ void __launch_bounds__(MLP_THREADS) k_scale(T *x, size_t n, float by)
{
    size_t i = ((size_t)blockIdx.x * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= n) return;
    if (VECTOR) {
        float f[VEC];
        uint4 a = *(const uint4 *)(x + i);
        pdl_launch();
        act_load8<T>(f, a);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] = __fmul_rn(f[j], by);
        *(uint4 *)(x + i) = act_store8<T>(f);
    } else {
        float f = act_load(x[i]);
        pdl_launch();
        x[i] = act_store<T>(__fmul_rn(f, by));
    }
}

static uint32_t scale_blocks(size_t n_unit) { return (uint32_t)((n_unit + MLP_THREADS - 1) / MLP_THREADS); }

template <class T> static void scale(struct cuda_dev *d, void *x, size_t n, float by)
{
    if (vec_fits(n, x, x, x))
        LAUNCH((k_scale<T, true>), scale_blocks(n / VEC), MLP_THREADS, 0, d, (T *)x, n, by);
    else
        LAUNCH((k_scale<T, false>), scale_blocks(n), MLP_THREADS, 0, d, (T *)x, n, by);
}

extern "C" void cuda_scale(struct device *dev, void *x, size_t n, float by)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n) return;
    if (dev->act == DT_F16)
        scale<__half>(d, x, n, by);
    else
        scale<__nv_bfloat16>(d, x, n, by);
    cuda_launched(d, "scale");
}

/* x[i] += sigmoid(gate[i]) * y[i]; gate NULL: x += y */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(MLP_THREADS) k_add_gated(T *x, const T *y, const T *gate, uint32_t dim)
{
    uint32_t i = (blockIdx.y * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= dim) return;
    float  weight = gate ? 1.0f / (1.0f + expf(-act_load(gate[blockIdx.x]))) : 1.0f;
    size_t at = (size_t)blockIdx.x * dim + i;
    if (VECTOR) {
        uint4 a = *(const uint4 *)(x + at), b = *(const uint4 *)(y + at);
        float f[VEC], g[VEC];
        pdl_launch();
        act_load8<T>(f, a);
        act_load8<T>(g, b);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] = __fadd_rn(f[j], __fmul_rn(weight, g[j]));
        *(uint4 *)(x + at) = act_store8<T>(f);
    } else {
        float f = act_load(x[at]), g = act_load(y[at]);
        pdl_launch();
        x[at] = act_store<T>(__fadd_rn(f, __fmul_rn(weight, g)));
    }
}

template <class T>
static void add_gated(struct cuda_dev *d, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim)
{
    if (vec_fits(dim, x, y, x))
        LAUNCH((k_add_gated<T, true>), mlp_grid(n, dim / VEC), MLP_THREADS, 0, d, (T *)x, (const T *)y, (const T *)gate,
               dim);
    else
        LAUNCH((k_add_gated<T, false>), mlp_grid(n, dim), MLP_THREADS, 0, d, (T *)x, (const T *)y, (const T *)gate,
               dim);
}

extern "C" void cuda_add_gated(struct device *dev, void *x, const void *y, const void *gate, uint32_t n, uint32_t dim)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !dim) return;
    if (dev->act == DT_F16)
        add_gated<__half>(d, x, y, gate, n, dim);
    else
        add_gated<__nv_bfloat16>(d, x, y, gate, n, dim);
    cuda_launched(d, "add_gated");
}

__global__ void __launch_bounds__(MLP_THREADS) k_cap(float *x, size_t n, float by, float cap)
{
    size_t i = (size_t)blockIdx.x * MLP_THREADS + threadIdx.x;
    pdl_wait();
    if (i >= n) return;
    float f = __fmul_rn(x[i], by);
    pdl_launch();
    x[i] = cap != 0.0f ? __fmul_rn(cap, tanhf(f / cap)) : f;
}

extern "C" void cuda_cap(struct device *dev, float *x, size_t n, float by, float cap)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n) return;
    LAUNCH(k_cap, scale_blocks(n), MLP_THREADS, 0, d, x, n, by, cap);
    cuda_launched(d, "cap");
}

/* ---------------------------------------------------------------- states as results */

template <class T> __global__ void __launch_bounds__(MLP_THREADS) k_state(float *out, const T *x, size_t n)
{
    size_t i = (size_t)blockIdx.x * MLP_THREADS + threadIdx.x;
    pdl_wait();
    if (i >= n) return;
    float f = act_load(x[i]);
    pdl_launch();
    out[i] = f;
}

extern "C" void cuda_state(struct device *dev, float *out, const void *x, size_t n)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n) return;
    if (dev->act == DT_F16)
        LAUNCH((k_state<__half>), scale_blocks(n), MLP_THREADS, 0, d, out, (const __half *)x, n);
    else
        LAUNCH((k_state<__nv_bfloat16>), scale_blocks(n), MLP_THREADS, 0, d, out, (const __nv_bfloat16 *)x, n);
    cuda_launched(d, "state");
}

/* ---------------------------------------------------------------- gates */

/* Gates as types: the kernel of the one that most models use holds no other. */
struct gate_silu {
    __device__ __forceinline__ float operator()(float x) const { return act_silu(x); }
};
struct gate_other {
    enum op_act act;

    __device__ __forceinline__ float operator()(float x) const { return act_gate(x, act); }
};

struct gate_clamped {
};
template <class GATE> __device__ __forceinline__ float gated(GATE act, float gate, float up) { return act(gate) * up; }
template <> __device__ __forceinline__ float           gated<gate_clamped>(gate_clamped, float gate, float up)
{
    return act_clamped(gate, up);
}

template <class T, class GATE, bool VECTOR>
__global__ void __launch_bounds__(MLP_THREADS) k_glu(T *out, const T *gate_up, uint32_t inter, GATE act)
{
    uint32_t i = (blockIdx.y * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= inter) return;
    const T *gate = gate_up + (size_t)blockIdx.x * 2 * inter + i, *up = gate + inter;
    T       *y = out + (size_t)blockIdx.x * inter + i;
    if (VECTOR) {
        uint4 a = *(const uint4 *)gate, b = *(const uint4 *)up;
        float g[VEC], u[VEC];
        pdl_launch();
        act_load8<T>(g, a);
        act_load8<T>(u, b);
#pragma unroll
        for (int j = 0; j < VEC; j++) g[j] = gated(act, g[j], u[j]);
        *(uint4 *)y = act_store8<T>(g);
    } else {
        float g = act_load(*gate), u = act_load(*up);
        pdl_launch();
        *y = act_store<T>(gated(act, g, u));
    }
}

template <class T, class GATE>
static void glu(struct cuda_dev *d, void *out, const void *gate_up, uint32_t n, uint32_t inter, GATE act)
{
    if (vec_fits(inter, out, gate_up, gate_up))
        LAUNCH((k_glu<T, GATE, true>), mlp_grid(n, inter / VEC), MLP_THREADS, 0, d, (T *)out, (const T *)gate_up, inter,
               act);
    else
        LAUNCH((k_glu<T, GATE, false>), mlp_grid(n, inter), MLP_THREADS, 0, d, (T *)out, (const T *)gate_up, inter,
               act);
}

extern "C" void cuda_glu(struct device *dev, void *out, const void *gate_up, uint32_t n, uint32_t inter,
                         enum op_act act)
{
    struct cuda_dev *d = cuda_of(dev);
    bool             half = dev->act == DT_F16;
    if (!n || !inter) return;
    if (act == OP_SILU && half)
        glu<__half>(d, out, gate_up, n, inter, gate_silu{});
    else if (act == OP_SILU)
        glu<__nv_bfloat16>(d, out, gate_up, n, inter, gate_silu{});
    else if (act == OP_CLAMPED && half)
        glu<__half>(d, out, gate_up, n, inter, gate_clamped{});
    else if (act == OP_CLAMPED)
        glu<__nv_bfloat16>(d, out, gate_up, n, inter, gate_clamped{});
    else if (half)
        glu<__half>(d, out, gate_up, n, inter, gate_other{ act });
    else
        glu<__nv_bfloat16>(d, out, gate_up, n, inter, gate_other{ act });
    cuda_launched(d, "glu");
}

template <class T, class GATE, bool VECTOR>
__global__ void __launch_bounds__(MLP_THREADS) k_act(T *x, size_t n, GATE act)
{
    size_t i = ((size_t)blockIdx.x * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= n) return;
    if (VECTOR) {
        float f[VEC];
        uint4 a = *(const uint4 *)(x + i);
        pdl_launch();
        act_load8<T>(f, a);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] = act(f[j]);
        *(uint4 *)(x + i) = act_store8<T>(f);
    } else {
        float f = act_load(x[i]);
        pdl_launch();
        x[i] = act_store<T>(act(f));
    }
}

template <class T, class GATE> static void act_on(struct cuda_dev *d, void *x, size_t n, GATE act)
{
    size_t units = MLP_THREADS * VEC;
    if (vec_fits(n, x, x, x))
        LAUNCH((k_act<T, GATE, true>), (uint32_t)((n + units - 1) / units), MLP_THREADS, 0, d, (T *)x, n, act);
    else
        LAUNCH((k_act<T, GATE, false>), (uint32_t)((n + MLP_THREADS - 1) / MLP_THREADS), MLP_THREADS, 0, d, (T *)x, n,
               act);
}

/* x[i] = act(x[i]) * y[row[i]], or 0. */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(MLP_THREADS)
    k_act_mul(T *x, const T *y, size_t y_stride, const uint32_t *row, uint32_t dim, enum op_act act)
{
    uint32_t i = (blockIdx.y * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= dim) return;
    uint32_t from = row ? row[blockIdx.x] : blockIdx.x;
    T       *at = x + (size_t)blockIdx.x * dim + i;
    const T *by = y + (from == UINT32_MAX ? 0 : from) * y_stride + i;
    if (VECTOR) {
        uint4 a = *(const uint4 *)at, b = *(const uint4 *)by;
        float f[VEC], g[VEC];
        pdl_launch();
        act_load8<T>(f, a);
        act_load8<T>(g, b);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] = from == UINT32_MAX ? 0.0f : __fmul_rn(act_any(f[j], act), g[j]);
        *(uint4 *)at = act_store8<T>(f);
    } else {
        float f = act_load(*at), g = act_load(*by);
        pdl_launch();
        *at = act_store<T>(from == UINT32_MAX ? 0.0f : __fmul_rn(act_any(f, act), g));
    }
}

template <class T>
static void act_mul(struct cuda_dev *d, void *x, const void *y, size_t y_stride, const uint32_t *row, uint32_t n,
                    uint32_t dim, enum op_act act)
{
    if (vec_fits(dim, x, y, x) && y_stride % VEC == 0)
        LAUNCH((k_act_mul<T, true>), mlp_grid(n, dim / VEC), MLP_THREADS, 0, d, (T *)x, (const T *)y, y_stride, row,
               dim, act);
    else
        LAUNCH((k_act_mul<T, false>), mlp_grid(n, dim), MLP_THREADS, 0, d, (T *)x, (const T *)y, y_stride, row, dim,
               act);
}

extern "C" void cuda_act_mul(struct device *dev, void *x, const void *y, size_t y_stride, const uint32_t *row,
                             uint32_t n, uint32_t dim, enum op_act act)
{
    struct cuda_dev *d = cuda_of(dev);
    CHECK(act != OP_CLAMPED);
    if (!n || !dim) return;
    if (dev->act == DT_F16)
        act_mul<__half>(d, x, y, y_stride, row, n, dim, act);
    else
        act_mul<__nv_bfloat16>(d, x, y, y_stride, row, n, dim, act);
    cuda_launched(d, "act_mul");
}

extern "C" void cuda_ungated(struct device *dev, void *x, size_t n, enum op_act act)
{
    struct cuda_dev *d = cuda_of(dev);
    bool             half = dev->act == DT_F16;
    if (!n) return;
    if (act == OP_SILU && half)
        act_on<__half>(d, x, n, gate_silu{});
    else if (act == OP_SILU)
        act_on<__nv_bfloat16>(d, x, n, gate_silu{});
    else if (half)
        act_on<__half>(d, x, n, gate_other{ act });
    else
        act_on<__nv_bfloat16>(d, x, n, gate_other{ act });
    cuda_launched(d, "ungated");
}

/* ---------------------------------------------------------------- bias and patches */

template <class T, bool VECTOR>
__global__ void __launch_bounds__(MLP_THREADS) k_add_bias(T *x, const float *bias, uint32_t n)
{
    uint32_t i = (blockIdx.y * MLP_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= n) return;
    T *y = x + (size_t)blockIdx.x * n + i;
    if (VECTOR) {
        float f[VEC];
        uint4 a = *(const uint4 *)y;
        pdl_launch();
        act_load8<T>(f, a);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] += bias[i + j];
        *(uint4 *)y = act_store8<T>(f);
    } else {
        float f = act_load(*y);
        pdl_launch();
        *y = act_store<T>(f + bias[i]);
    }
}

template <class T> static void add_bias(struct cuda_dev *d, void *x, const float *bias, uint32_t m, uint32_t n)
{
    if (vec_fits(n, x, x, x))
        LAUNCH((k_add_bias<T, true>), mlp_grid(m, n / VEC), MLP_THREADS, 0, d, (T *)x, bias, n);
    else
        LAUNCH((k_add_bias<T, false>), mlp_grid(m, n), MLP_THREADS, 0, d, (T *)x, bias, n);
}

extern "C" void cuda_add_bias(struct cuda_dev *d, void *x, const float *bias, uint32_t m, uint32_t n)
{
    if (!m || !n) return;
    if (d->impl.dev.act == DT_F16)
        add_bias<__half>(d, x, bias, m, n);
    else
        add_bias<__nv_bfloat16>(d, x, bias, m, n);
    cuda_launched(d, "add_bias");
}

__global__ void __launch_bounds__(MLP_THREADS)
    k_patch(uint32_t *x, const struct dev_patch *p, const uint32_t *from, uint32_t n)
{
    uint32_t i = blockIdx.x * MLP_THREADS + threadIdx.x;
    pdl_wait();
    if (i < n && p[i].at != UINT32_MAX) x[p[i].at] = from[p[i].from] == UINT32_MAX ? 0 : from[p[i].from];
    pdl_launch();
}

extern "C" void cuda_patch(struct cuda_dev *d, uint32_t *x, const struct dev_patch *p, const uint32_t *from, uint32_t n)
{
    if (!n) return;
    LAUNCH(k_patch, (n + MLP_THREADS - 1) / MLP_THREADS, MLP_THREADS, 0, d, x, p, from, n);
    cuda_launched(d, "patch");
}
