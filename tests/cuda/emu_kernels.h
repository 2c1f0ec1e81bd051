/* emu_kernels: launchers of emu_kernels.cu. Device pointers; the default stream unless one is named. */
#pragma once
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum emu_bug {
    EMU_NO_BUG,
    EMU_NO_SYNC,        /* sum: no barrier between a warp's result and its reader    */
    EMU_DIVERGENT_SYNC, /* sum: a barrier that one warp does not reach               */
    EMU_STATIC_RACE,    /* sum: the total is read before it is written               */
    EMU_MASK,           /* sum: lanes of a warp meet with different masks            */
    EMU_MIXED,          /* sum: lanes of a warp meet in different collectives        */
    EMU_WAIT_COUNT,     /* gemm: waits for one copy too few                          */
    EMU_NO_LAST_SYNC,   /* gemm: the next copy may overwrite what a warp still reads */
    EMU_OUT_OF_BOUNDS,  /* gemm: rows past the end are read                          */
    EMU_TAIL,           /* tail: rows that were never written are multiplied by zero */
    EMU_EARLY,          /* after: reads what the kernel ahead writes before its wait */
    EMU_EARLY_WRITE,    /* after: writes what the kernel ahead reads before its wait */
    EMU_LAUNCH_FIRST    /* after: lets the next kernel begin before its own wait     */
};
void emu_sum(enum emu_bug bug, float *out, const float *x, int rows, int n);
void emu_gemm(enum emu_bug bug, float *out, const void *a, const void *b, int m, int n, int k);
void emu_tail(enum emu_bug bug, float *o, const void *p, const void *v, int len); /* o[16, 8] = p[16, 16] * v[16, 8] */
void emu_meet(cudaStream_t s, uint32_t *out, uint32_t *arrived, uint32_t *value, int mine, int blocks, int n);
void emu_halves(uint32_t *out); /* out[32] */
void emu_add(cudaStream_t s, float *out, float by);
/* Two dependent launches on a stream of their own, waited for: x[i] = i + in[0], then out[i] = 2 x[i]; in[0] is 1. */
void emu_after(enum emu_bug bug, float *out, float *x, float *in, int n);
void emu_no_wait(float *out); /* dependent launch of a kernel that never waits */
void emu_static(float *out);  /* 32 floats of shared memory that nobody wrote  */
void emu_size(unsigned grid, unsigned block, size_t smem,
              float *out); /* any size, to be refused                       */
/* the conversions of emu_types.h */
float    emu_half_to_float(uint16_t h);
uint16_t emu_float_to_half(float f);
float    emu_bf16_to_float(uint16_t h);
uint16_t emu_float_to_bf16(float f);
#ifdef __cplusplus
}
#endif
