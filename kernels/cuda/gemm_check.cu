/* gemm_check: is a product right, without computing it a second time: sampled elements against their own dot product,
 * and a look at every element for NaN (what was never written). For loading and tuning, not for steps.
 *   out [m, n] act or F32   x [m, k], w [n, k] act */
#include "kernels/cuda/common.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vec.cuh"

enum { CHECK_THREADS = 128 };
#ifdef CUDA_EMU
enum { CHECK_BLOCKS = 16, CHECK_EACH = 1 };
#else
enum { CHECK_BLOCKS = 512, CHECK_EACH = 4 }; /* per warp: 8192 elements */
#endif

static __device__ __forceinline__ uint64_t check_mix(uint64_t x)
{
    x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* worst: the largest |out - dot| / (|dot| + sqrt(sum of squared products)); +inf where out is not finite. Floats from 0
 * up rise as their bits do, so an integer maximum serves. */
template <class T, class O>
__global__ void __launch_bounds__(CHECK_THREADS)
    k_gemm_check(uint32_t *worst, const O *out, const T *x, const T *w, uint32_t m, uint32_t n, uint32_t k)
{
    pdl_wait();
    const size_t   total = (size_t)m * n;
    const uint32_t lane = threadIdx.x & 31, warp = blockIdx.x * (CHECK_THREADS / 32) + (threadIdx.x >> 5);
    float          bad = 0.0f;
    for (uint32_t e = 0; e < CHECK_EACH; e++) {
        uint64_t id = (uint64_t)warp * CHECK_EACH + e;
        size_t   at = (size_t)(check_mix(id) % total);
        if (id == 0) at = 0; /* corners first */
        if (id == 1) at = total - 1;
        if (id == 2) at = n - 1;
        if (id == 3) at = total - n;
        size_t r = at / n, c = at - r * n;
        float  dot = 0.0f, square = 0.0f;
        for (uint32_t j = lane; j < k; j += 32) {
            float p = act_load(x[r * k + j]) * act_load(w[c * k + j]);
            dot += p, square = __fmaf_rn(p, p, square);
        }
        for (int s = 16; s; s >>= 1)
            dot += __shfl_xor_sync(0xffffffffu, dot, s), square += __shfl_xor_sync(0xffffffffu, square, s);
        float err = fabsf(act_load(out[at]) - dot) / (fabsf(dot) + sqrtf(square) + 1e-30f);
        bad = err >= 0.0f ? fmaxf(bad, err) : __uint_as_float(0x7f800000u);
    }
    for (size_t i = (size_t)blockIdx.x * CHECK_THREADS + threadIdx.x; i < total; i += (size_t)gridDim.x * CHECK_THREADS)
        if (!(fabsf(act_load(out[i])) < 3.0e38f)) bad = __uint_as_float(0x7f800000u);
    if (bad > 0.0f) atomicMax(worst, __float_as_uint(bad));
    pdl_launch();
}

/* more than eight: as cuda_gemm_check. */
template <class T>
static void check_launch(struct cuda_dev *d, uint32_t *worst, const void *out, enum dtype out_t, const void *x,
                         const void *w, uint32_t m, uint32_t n, uint32_t k)
{
    if (out_t == DT_F32)
        LAUNCH((k_gemm_check<T, float>), CHECK_BLOCKS, CHECK_THREADS, 0, d, worst, (const float *)out, (const T *)x,
               (const T *)w, m, n, k);
    else
        LAUNCH((k_gemm_check<T, T>), CHECK_BLOCKS, CHECK_THREADS, 0, d, worst, (const T *)out, (const T *)x,
               (const T *)w, m, n, k);
}

extern "C" void cuda_gemm_check(struct cuda_dev *d, float *worst, const void *out, enum dtype out_t, const void *x,
                                const void *w, uint32_t m, uint32_t n, uint32_t k)
{
    if (d->impl.dev.act == DT_F16)
        check_launch<__half>(d, (uint32_t *)worst, out, out_t, x, w, m, n, k);
    else
        check_launch<__nv_bfloat16>(d, (uint32_t *)worst, out, out_t, x, w, m, n, k);
    cuda_launched(d, "gemm check");
}
