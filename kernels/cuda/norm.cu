/* norm: RMSNorm, alone and behind the residual sum, and LayerNorm.   truth: kernels/ref/norm.c
 *   x, delta, out act [n, dim]   w F32 [dim]
 * One row per block: mean of squares in fp32, out = x * scale * w rounded once. The shape of the sum depends on dim
 * alone, so a row gives the same bits in every batch. The residual x + delta is rounded to act first and the norm is of
 * the rounded value, as transformers has it and as the next layer will read it; transformers rounds x * scale too
 * before it multiplies by w, we do not. */
#include "kernels/cuda/norm.cuh"

template <class T, bool ADD>
__global__ void __launch_bounds__(NORM_THREADS)
    k_norm(T *out, T *x, const T *delta, const float *w, uint32_t dim, float eps)
{
    size_t   row = (size_t)blockIdx.x * dim;
    uint32_t step = blockDim.x * VEC, first = threadIdx.x * VEC;
    float    f[NORM_KEEP][VEC], v[NORM_KEEP][VEC], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++)
        if (first + k * step < dim) norm_load_w(v[k], w + first + k * step);
    pdl_wait();
    uint4 a[NORM_KEEP], b[NORM_KEEP];
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        uint32_t i = first + k * step;
        if (i >= dim) continue;
        a[k] = *(const uint4 *)(x + row + i);
        b[k] = ADD ? *(const uint4 *)(delta + row + i) : a[k];
    }
    pdl_launch();
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        uint32_t i = first + k * step;
        if (i < dim) sum += norm_take<T, ADD>(f[k], a[k], b[k], x + row + i);
    }
    for (uint32_t i = first + NORM_KEEP * step; i < dim; i += step) { /* very long rows */
        float g[VEC];
        uint4 c = *(const uint4 *)(x + row + i);
        sum += norm_take<T, ADD>(g, c, ADD ? *(const uint4 *)(delta + row + i) : c, x + row + i);
    }
    float scale = norm_scale(norm_sum(sum), dim, eps);
#pragma unroll
    for (int k = 0; k < NORM_KEEP; k++) {
        uint32_t i = first + k * step;
        if (i < dim) norm_put(out + row + i, f[k], v[k], scale);
    }
    for (uint32_t i = first + NORM_KEEP * step; i < dim; i += step) {
        float g[VEC], u[VEC];
        act_load8<T>(g, *(const uint4 *)(x + row + i)); /* this thread wrote it */
        norm_load_w(u, w + i);
        norm_put(out + row + i, g, u, scale);
    }
}

/* Rows that 16 bytes do not divide, or that begin anywhere. */
template <class T, bool ADD>
__global__ void __launch_bounds__(NORM_THREADS)
    k_norm_odd(T *out, T *x, const T *delta, const float *w, uint32_t dim, float eps)
{
    size_t row = (size_t)blockIdx.x * dim;
    float  sum = 0.0f;
    pdl_wait();
    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        if (ADD) x[row + i] = act_store<T>(act_load(x[row + i]) + act_load(delta[row + i]));
        float f = act_load(x[row + i]);
        sum = __fmaf_rn(f, f, sum);
    }
    pdl_launch();
    float scale = norm_scale(norm_sum(sum), dim, eps);
    for (uint32_t i = threadIdx.x; i < dim; i += blockDim.x)
        out[row + i] = act_store<T>(act_load(x[row + i]) * scale * w[i]);
}

template <class T, bool ADD>
static void norm(struct cuda_dev *d, void *out, void *x, const void *delta, const float *w, uint32_t n, uint32_t dim,
                 float eps)
{
    if (vec_fits(dim, out, x, ADD ? delta : x) && vec_fits(VEC, w, w, w))
        LAUNCH((k_norm<T, ADD>), n, norm_threads(dim), 0, d, (T *)out, (T *)x, (const T *)delta, w, dim, eps);
    else
        LAUNCH((k_norm_odd<T, ADD>), n, norm_threads(dim), 0, d, (T *)out, (T *)x, (const T *)delta, w, dim, eps);
}

/* x += delta; out = x: where no norm follows */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(NORM_THREADS) k_norm_none(T *out, T *x, const T *delta, size_t n)
{
    size_t i = ((size_t)blockIdx.x * NORM_THREADS + threadIdx.x) * (VECTOR ? VEC : 1);
    pdl_wait();
    if (i >= n) return;
    if (VECTOR) {
        float f[VEC], g[VEC];
        uint4 a = *(const uint4 *)(x + i), b = *(const uint4 *)(delta + i);
        pdl_launch();
        act_load8<T>(f, a);
        act_load8<T>(g, b);
#pragma unroll
        for (int j = 0; j < VEC; j++) f[j] = __fadd_rn(f[j], g[j]);
        a = act_store8<T>(f);
        *(uint4 *)(x + i) = a;
        *(uint4 *)(out + i) = a;
    } else {
        T sum = act_store<T>(__fadd_rn(act_load(x[i]), act_load(delta[i])));
        pdl_launch();
        x[i] = sum;
        out[i] = sum;
    }
}

template <class T> static void norm_none(struct cuda_dev *d, void *out, void *x, const void *delta, size_t n)
{
    uint32_t units = NORM_THREADS * VEC;
    if (vec_fits(n, out, x, delta))
        LAUNCH((k_norm_none<T, true>), (uint32_t)((n + units - 1) / units), NORM_THREADS, 0, d, (T *)out, (T *)x,
               (const T *)delta, n);
    else
        LAUNCH((k_norm_none<T, false>), (uint32_t)((n + NORM_THREADS - 1) / NORM_THREADS), NORM_THREADS, 0, d, (T *)out,
               (T *)x, (const T *)delta, n);
}

extern "C" void cuda_rmsnorm(struct device *dev, void *out, const void *x, const float *w, uint32_t n, uint32_t dim,
                             float eps)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !dim) return;
    if (dev->act == DT_F16)
        norm<__half, false>(d, out, (void *)x, NULL, w, n, dim, eps); /* not written: ADD is false */
    else
        norm<__nv_bfloat16, false>(d, out, (void *)x, NULL, w, n, dim, eps);
    cuda_launched(d, "rmsnorm");
}

extern "C" void cuda_add_rmsnorm(struct device *dev, void *out, void *x, const void *delta, const float *w, uint32_t n,
                                 uint32_t dim, float eps)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !dim) return;
    if (!w && dev->act == DT_F16)
        norm_none<__half>(d, out, x, delta, (size_t)n * dim);
    else if (!w)
        norm_none<__nv_bfloat16>(d, out, x, delta, (size_t)n * dim);
    else if (dev->act == DT_F16)
        norm<__half, true>(d, out, x, delta, w, n, dim, eps);
    else
        norm<__nv_bfloat16, true>(d, out, x, delta, w, n, dim, eps);
    cuda_launched(d, "add_rmsnorm");
}

/* Numbers [i, i + VEC) of a row, or number i alone. */
template <class T, bool VECTOR> __device__ __forceinline__ void layernorm_load(float f[VEC], const T *x)
{
    if (VECTOR)
        act_load8<T>(f, *(const uint4 *)x);
    else
        f[0] = act_load(*x);
}

/* One row per block, read three times: after the first they lie in the cache. Deviations from the mean are squared, so
 * that nothing is lost where the mean is large. */
template <class T, bool VECTOR>
__global__ void __launch_bounds__(NORM_THREADS)
    k_layernorm(T *out, const T *x, const float *w, const float *bias, uint32_t dim, float eps)
{
    const int N = VECTOR ? VEC : 1;
    size_t    row = (size_t)blockIdx.x * dim;
    uint32_t  step = blockDim.x * N, first = threadIdx.x * N;
    float     f[VEC], sum = 0.0f, squares = 0.0f;
    pdl_wait();
    for (uint32_t i = first; i < dim; i += step) {
        layernorm_load<T, VECTOR>(f, x + row + i);
#pragma unroll
        for (int j = 0; j < N; j++) sum += f[j];
    }
    pdl_launch();
    float mean = norm_sum(sum) / (float)dim;
    for (uint32_t i = first; i < dim; i += step) {
        layernorm_load<T, VECTOR>(f, x + row + i);
#pragma unroll
        for (int j = 0; j < N; j++) squares = __fmaf_rn(f[j] - mean, f[j] - mean, squares);
    }
    __syncthreads(); /* all have read the first sum */
    float scale = 1.0f / sqrtf(norm_sum(squares) / (float)dim + eps);
    for (uint32_t i = first; i < dim; i += step) {
        layernorm_load<T, VECTOR>(f, x + row + i);
#pragma unroll
        for (int j = 0; j < N; j++) {
            f[j] = (f[j] - mean) * scale * w[i + j];
            if (bias) f[j] += bias[i + j];
        }
        if (VECTOR)
            *(uint4 *)(out + row + i) = act_store8<T>(f);
        else
            out[row + i] = act_store<T>(f[0]);
    }
}

/* more than eight: the arguments of the op, and its device */
template <class T>
static void layernorm(struct cuda_dev *d, void *out, const void *x, const float *w, const float *bias, uint32_t n,
                      uint32_t dim, float eps)
{
    bool     vector = vec_fits(dim, out, x, x);
    uint32_t units = vector ? dim / VEC : dim, threads = (units + 31) / 32 * 32;
    if (threads > NORM_THREADS) threads = NORM_THREADS;
    if (vector)
        LAUNCH((k_layernorm<T, true>), n, threads, 0, d, (T *)out, (const T *)x, w, bias, dim, eps);
    else
        LAUNCH((k_layernorm<T, false>), n, threads, 0, d, (T *)out, (const T *)x, w, bias, dim, eps);
}

extern "C" void cuda_layernorm(struct device *dev, void *out, const void *x, const float *w, const float *bias,
                               uint32_t n, uint32_t dim, float eps)
{
    struct cuda_dev *d = cuda_of(dev);
    if (!n || !dim) return;
    if (dev->act == DT_F16)
        layernorm<__half>(d, out, x, w, bias, n, dim, eps);
    else
        layernorm<__nv_bfloat16>(d, out, x, w, bias, n, dim, eps);
    cuda_launched(d, "layernorm");
}
