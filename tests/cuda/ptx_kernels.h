/* ptx_kernels: launchers of ptx_kernels.cu. Device pointers. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
void ptx_mma(cudaStream_t s, bool bf16, float *d, const uint16_t *a, const uint16_t *b,
             const float *c); /* d[16, 8] = a[16, 16] b[8, 16]^T + c */
void ptx_ldmatrix(cudaStream_t s, int n, bool trans, uint32_t *out, const uint16_t *in); /* out[32, n], in[n, 8, 8] */
void ptx_cp_async(cudaStream_t s, uint8_t *out,
                  const uint8_t *in); /* [3, 64, 16]; thread t of group g: (t + g) % 17 valid */
void ptx_stream(cudaStream_t s, void *out, const void *in, int n);          /* n times 16 bytes: x += w, y += z */
void ptx_chain(cudaStream_t s, bool pdl, uint32_t *x, int n, int launches); /* x = 3 x + 1, n numbers, so many times */
void ptx_relay(cudaStream_t s, bool sys, uint32_t *flag, uint32_t *message,
               int blocks); /* message[b] = (b + 1)(b + 2) / 2; flags begin as 0 */
void ptx_reduce(cudaStream_t s, float *sum, float *most, const float *x); /* [256] each, the same in all */
void ptx_ex2(cudaStream_t s, float *out, const float *x, int n);          /* out[i] = 2^x[i] */
void ptx_rcp(cudaStream_t s, float *out, const float *x, int n);          /* out[i] = 1 / x[i] */
void ptx_fma2(cudaStream_t s, bool bf16, uint32_t *out, const uint32_t *x,
              int n); /* out[i] = x[i] * x[n + i] + x[2 n + i], two 16-bit floats a word */
void ptx_smem(cudaStream_t s, uint32_t *out, int n); /* out[i] = 7 * (n - 1 - i) by way of shared memory */
#ifdef __cplusplus
}
#endif
