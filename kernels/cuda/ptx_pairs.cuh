/* ptx_pairs: arithmetic of two 16-bit floats in a word, as ptx.cuh has the rest: here what runs on a GPU; what runs on
 * the emulator is in tests/emu/include/emu_pairs.h. tests/cuda/test_ptx.c compares them.   Device code. */
#pragma once
#include <stdint.h>
#ifdef CUDA_EMU
#include <emu_pairs.h>
#else
#include <cuda_runtime.h>

/* a * b + c of the two 16-bit floats in each word, rounded once to nearest even; subnormal numbers stay. 9.7.4.4,
 * 9.7.5.3 */
__device__ __forceinline__ uint32_t fma2_bf16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.bf16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ uint32_t fma2_f16(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0,%1,%2,%3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#endif
