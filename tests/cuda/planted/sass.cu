/* Kernels that the gate of tests/cuda/sass must find, one for each kind of condition, and one that it must let pass. */
#include <stdint.h>

/* As the merge of attention once was: each load of a part stands behind a test of its own. */
__global__ void k_planted_serial(const float *part, float *out, uint32_t n, uint32_t dim, uint32_t step)
{
    float    m = -1e30f, o[2] = { 0, 0 };
    uint32_t e = threadIdx.x * 2;
#pragma unroll 4
    for (uint32_t i = 0; i < n; i++, part += step) {
        float to = fmaxf(m, __ldcg(part)), was = exp2f(m - to);
        m = to;
        for (uint32_t j = 0; j < 2; j++) {
            float x = 0;
            if (e + j * 64 < dim)
                x = dim % 2 == 0 ? __ldcg((const float2 *)(part + 2 + e + j * 64)).x : __ldcg(part + 2 + e + j * 64);
            o[j] = o[j] * was + x;
        }
    }
    out[threadIdx.x] = o[0] + o[1];
}
/* Each load waits for the power that the one before it went into. */
__global__ void k_planted_chain(const float *x, float *out, uint32_t n)
{
    float a = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < n; i++) a = exp2f(x[(uint32_t)a]);
    out[threadIdx.x] = a;
}
__global__ void k_planted_fence(uint32_t *x)
{
    x[threadIdx.x] = 1;
    __threadfence();
    asm volatile("fence.sc.gpu;" ::: "memory");
    x[threadIdx.x + 64] = 2;
}
/* Its array is addressed by a number that nobody knows: it lies in local memory. */
__global__ void k_planted_local(const uint32_t *x, uint32_t *out, uint32_t n)
{
    uint32_t a[32];
    for (uint32_t i = 0; i < 32; i++) a[i] = x[i * 32 + threadIdx.x];
    for (uint32_t i = 0; i < n; i++) a[x[i] % 32] += i;
    out[threadIdx.x] = a[x[n] % 32];
}
__global__ void k_planted_narrow(const uint16_t *x, uint32_t *out, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i * 32 + threadIdx.x];
    out[threadIdx.x] = sum;
}
__global__ void k_planted_right(const uint4 *x, uint4 *out, uint32_t n)
{
    uint4 sum = make_uint4(0, 0, 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint4 v = x[(size_t)i * 32 + threadIdx.x];
        sum = make_uint4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    }
    out[threadIdx.x] = sum;
}
