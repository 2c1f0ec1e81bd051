/* emu_hopper_kernels: k_hop_gemm and k_hop_cluster with each of their mistakes, for test_emu_hopper.c. Only on the emulator. */
#ifdef CUDA_EMU
#include "cuda/hopper_cluster.cuh"
#include "cuda/hopper_gemm.cuh"

#define EH_BUG(B) \
    case B: LAUNCH(k_hop_gemm<B>, 1, HG_THREADS, smem, (cudaStream_t)NULL, out, a, (const uint8_t *)b, n_k); break
extern "C" void hopper_gemm_bug(enum hopper_bug bug, float *out, const uint16_t *a, const void *b, int n_k)
{
    size_t smem = (size_t)n_k * HG_A + 2 * HG_STAGE + sizeof(struct hg_bars);
    switch (bug) {
        EH_BUG(HOP_RIGHT);
        EH_BUG(HOP_NO_WAIT);
        EH_BUG(HOP_PARITY);
        EH_BUG(HOP_REUSE);
        EH_BUG(HOP_RELEASE);
        EH_BUG(HOP_BYTES_MORE);
        EH_BUG(HOP_BYTES_LESS);
        EH_BUG(HOP_COUNT_MORE);
        EH_BUG(HOP_COUNT_LESS);
        EH_BUG(HOP_NO_INIT_FENCE);
        EH_BUG(HOP_ALIGN);
        EH_BUG(HOP_NO_PROXY);
        EH_BUG(HOP_OPERAND_WRITE);
        EH_BUG(HOP_NO_FENCE);
        EH_BUG(HOP_EARLY_READ);
        EH_BUG(HOP_WAIT_LEFT);
        EH_BUG(HOP_ACC_WRITE);
        EH_BUG(HOP_NO_COMMIT);
        EH_BUG(HOP_DIVERGE);
        EH_BUG(HOP_SWIZZLE);
        EH_BUG(HOP_STRIDE);
        EH_BUG(HOP_UNALIGNED);
        EH_BUG(HOP_PART_COUNT);
    default: break;
    }
}

#define EC_BUG(B) \
    case B: hopper_cluster_launch(k_hop_cluster<B>, (cudaStream_t)NULL, out, in, n, 1, n_piece); break
extern "C" void hopper_cluster_bug(enum hopper_bug bug, uint32_t *out, const uint32_t *in, uint32_t n, uint32_t n_piece)
{
    switch (bug) {
        EC_BUG(HOP_RIGHT);
        EC_BUG(HOP_NOT_SHOWN);
        EC_BUG(HOP_NOT_MET);
        EC_BUG(HOP_ONLY_OWN);
        EC_BUG(HOP_RELEASE_OWN);
        EC_BUG(HOP_CLUSTER_COUNT);
        EC_BUG(HOP_NO_SUCH_RANK);
        EC_BUG(HOP_NO_LAST_MEETING);
    default: break;
    }
}
#endif
