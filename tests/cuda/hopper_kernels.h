/* hopper_kernels: launchers of hopper_kernels.cu and emu_hopper_kernels.cu. Device pointers. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
enum hopper_bug { /* of k_hop_gemm; from HOP_NOT_SHOWN on of k_hop_cluster */
                  HOP_RIGHT,
                  HOP_NO_WAIT,         /* reads a stage without waiting for it                          */
                  HOP_PARITY,          /* waits for the phase before                                    */
                  HOP_REUSE,           /* fills a stage that is not released                            */
                  HOP_RELEASE,         /* releases a stage that products under way still read           */
                  HOP_BYTES_MORE,      /* announces more bytes than are copied                          */
                  HOP_BYTES_LESS,      /* announces fewer                                               */
                  HOP_COUNT_MORE,      /* a barrier of more arrivals than come                          */
                  HOP_COUNT_LESS,      /* of fewer                                                      */
                  HOP_NO_INIT_FENCE,   /* bulk copies on a barrier that the async proxy does not see    */
                  HOP_ALIGN,           /* copies from an address that is no multiple of 16              */
                  HOP_NO_PROXY,        /* no fence between stores and the products that read them       */
                  HOP_OPERAND_WRITE,   /* writes an operand of a product under way                      */
                  HOP_NO_FENCE,        /* no wgmma_fence ahead of the products                          */
                  HOP_EARLY_READ,      /* reads accumulators ahead of the wait                          */
                  HOP_WAIT_LEFT,       /* waits for all groups but the one that it reads                */
                  HOP_ACC_WRITE,       /* writes accumulators of a product under way                    */
                  HOP_NO_COMMIT,       /* never commits                                                 */
                  HOP_DIVERGE,         /* a warp leaves out a product                                   */
                  HOP_SWIZZLE,         /* descriptors of another swizzle                                */
                  HOP_STRIDE,          /* descriptors of another stride                                 */
                  HOP_UNALIGNED,       /* shared memory that does not begin at a multiple of 1024       */
                  HOP_PART_COUNT,      /* warps give a barrier different counts                         */
                  HOP_NOT_SHOWN,       /* barriers of which only their own block knows that they are set up */
                  HOP_NOT_MET,         /* comes to barriers of others that may not be set up yet        */
                  HOP_ONLY_OWN,        /* brings a share to its own block alone                         */
                  HOP_RELEASE_OWN,     /* fills stages of other blocks that are not released            */
                  HOP_CLUSTER_COUNT,   /* a barrier of more arrivals than the cluster has blocks        */
                  HOP_NO_SUCH_RANK,    /* arrives at a barrier of a block that there is not             */
                  HOP_NO_LAST_MEETING, /* a block ends while others still come to its barriers          */
                  HOP_BUGS
};
enum { HOPPER_SHARE = 256 /* bytes */ };
void hopper_gemm(cudaStream_t s, float *out, const uint16_t *a, const void *b, int n_k);
void hopper_gemm_bug(enum hopper_bug bug, float *out, const uint16_t *a, const void *b, int n_k); /* default stream */

/* out[i] = 3 in[i] + 1 for n_piece pieces of `bytes` (a multiple of 32, at most 2048) by way of three stages */
void hopper_ring(cudaStream_t s, uint32_t *out, const uint32_t *in, uint32_t bytes, uint32_t n_piece);
/* out[64, 16 bytes]: in, of whose piece t the first t % 17 bytes count, by cp.async and a barrier */
void hopper_async(cudaStream_t s, uint8_t *out, const uint8_t *in);
/* out[n_cluster][n blocks][n_piece][n shares]: 3 in[n_cluster][n_piece][n shares] + the block's rank, as words. n: 1..8. */
void hopper_cluster(cudaStream_t s, uint32_t *out, const uint32_t *in, uint32_t n, uint32_t n_cluster,
                    uint32_t n_piece);
void hopper_cluster_bug(enum hopper_bug bug, uint32_t *out, const uint32_t *in, uint32_t n,
                        uint32_t n_piece); /* default
                                                                                                     stream */
/* A matrix of 16-bit numbers [rows, cols], cols a multiple of 8. out[2 blocks][32 rows][64]: its box at (col, row) as it
 * lies in the shared memory of both blocks of a cluster, of which the second asked for it. */
enum { HOPPER_BOX = 32 };
void hopper_tensor(cudaStream_t s, uint16_t *out, const uint16_t *in, uint32_t rows, uint32_t cols, int32_t col,
                   int32_t row);
void hopper_parts(cudaStream_t s, uint32_t *out, int turns); /* out[turn][32]: turn * 32 + i */
void hopper_regs(cudaStream_t s, uint32_t *out);             /* out[384]: i */
/* d[64, n] = a[64, 64] b[n, 64]^T (+ c), of E4M3 a[64, 128] b[n, 128]^T. swizzle: of enum swizzle. */
enum hopper_number { HOPPER_F16, HOPPER_BF16, HOPPER_E4M3 };
enum hopper_a { HOPPER_A_ROWS, HOPPER_A_TRANS, HOPPER_A_REGS };
struct hopper_product {
    enum hopper_number number;
    bool               trans_b, add;
    enum hopper_a      a;
    int                n; /* 64, 128, 256 */
    int                swizzle;
};
/* false: there is no such instance */
bool hopper_wgmma(cudaStream_t s, struct hopper_product p, float *d, const uint16_t *a, const uint16_t *b,
                  const float *c);
/* one product of 16 steps of k from registers and the same by mma_m16n8k16: d[2][64, 64] of a[64, 256], b[64, 256] */
void hopper_both(cudaStream_t s, float *d, const uint16_t *a, const uint16_t *b);
#ifdef __cplusplus
}
#endif
