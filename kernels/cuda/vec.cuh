/* vec: activations as floats, one and eight at a time.   Device code of the kernels.
 * T is __nv_bfloat16 or __half. Loads are exact; stores round once, to nearest even. */
#pragma once
#include "kernels/cuda/common.cuh"
#include <cuda_fp16.h>

enum { VEC = 8 }; /* activations in 16 bytes */

__device__ __forceinline__ float                     act_load(float x) { return x; }
__device__ __forceinline__ float                     act_load(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float                     act_load(__half x) { return __half2float(x); }
template <class T> __device__ __forceinline__ T      act_store(float x);
template <> __device__ __forceinline__ __nv_bfloat16 act_store(float x) { return __float2bfloat16_rn(x); }
template <> __device__ __forceinline__ __half        act_store(float x) { return __float2half_rn(x); }

/* Two to a word, the lower address in the lower half. */
template <class T> __device__ __forceinline__ float2 act_load2(uint32_t w)
{
    T x[2];
    memcpy(x, &w, sizeof w);
    return make_float2(act_load(x[0]), act_load(x[1]));
}
template <class T> __device__ __forceinline__ uint32_t act_store2(float lo, float hi)
{
    T        x[2] = { act_store<T>(lo), act_store<T>(hi) };
    uint32_t w;
    memcpy(&w, x, sizeof w);
    return w;
}
template <class T> __device__ __forceinline__ void act_load8(float f[VEC], uint4 v)
{
    float2 a = act_load2<T>(v.x), b = act_load2<T>(v.y), c = act_load2<T>(v.z), d = act_load2<T>(v.w);
    f[0] = a.x, f[1] = a.y, f[2] = b.x, f[3] = b.y, f[4] = c.x, f[5] = c.y, f[6] = d.x, f[7] = d.y;
}
template <class T> __device__ __forceinline__ uint4 act_store8(const float f[VEC])
{
    return make_uint4(act_store2<T>(f[0], f[1]), act_store2<T>(f[2], f[3]), act_store2<T>(f[4], f[5]),
                      act_store2<T>(f[6], f[7]));
}

/* 8 consecutive k of a row, zeros from `end` on. VECTOR: end is a multiple of 8 and the row is aligned. STREAM: read
 * once. */
template <bool VECTOR, bool STREAM>
__device__ __forceinline__ uint4 vec_load8(const uint16_t *row, uint32_t k, uint32_t end)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    if (VECTOR) {
        if (k < end) v = STREAM ? ld_stream16(row + k) : *(const uint4 *)(row + k);
    } else {
        uint32_t e[VEC];
#pragma unroll
        for (uint32_t j = 0; j < VEC; j++) e[j] = k + j < end ? row[k + j] : 0;
        v = make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
    }
    return v;
}

/* x / (1 + exp(-x)): 0 for the far negative, where exp is infinite */
__device__ __forceinline__ float act_silu(float x) { return x / (1.0f + expf(-x)); }
/* All but SiLU, told apart as they run: no model of today's catalogue uses them much. */
__device__ __forceinline__ float act_gate(float x, enum op_act act)
{
    if (act == OP_RELU || act == OP_RELU2) {
        float r = x < 0.0f ? 0.0f : x; /* NaN stays */
        return act == OP_RELU ? r : r * r;
    }
    if (act == OP_GELU) return 0.5f * x * (1.0f + erff(x * 0.707106781f));
    float t = act == OP_QUICK_GELU ? 1.702f * x
                                   : x * fmaf(x * x, 0.0713548163f, 1.59576912f); /* tanh(u) = 2 / (1 + exp(-2u)) - 1 */
    return x / (1.0f + expf(-t));
}
__device__ __forceinline__ float act_any(float x, enum op_act act)
{
    return act == OP_SILU ? act_silu(x) : act_gate(x, act);
}
/* OP_CLAMPED; NaN stays in both. */
__device__ __forceinline__ float act_clamped(float gate, float up)
{
    gate = gate > 7.0f ? 7.0f : gate;
    up = up > 7.0f ? 7.0f : up;
    up = up < -7.0f ? -7.0f : up;
    return (up + 1.0f) * (gate / (1.0f + expf(-1.702f * gate)));
}

/* Host: may rows of n elements of 2 bytes at these addresses be read 16 bytes at a time? */
static inline bool vec_fits(uint64_t n, const void *a, const void *b, const void *c)
{
    return n % VEC == 0 && (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15) == 0;
}
