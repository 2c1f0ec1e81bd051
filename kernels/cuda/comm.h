/* comm: how ranks exchange, as comm.c and allreduce.cu see it.   Thread: its rank thread; aborting: any.   Private to
 * kernels/cuda/.
 *
 * Own kernels, for ranks that are threads of this process and reach each other's memory. A message is cut into tiles;
 * block b of every rank takes the same tiles, one after another. For one tile, an exchange: each rank writes its part
 * into its slot in the memory of every peer (reads over NVLink cost a round trip, writes do not), then raises its flag
 * there to the number of the exchange; when all flags of the peers are up it reads the slots, in rank order. Numbers
 * lie on the device, one per block, and advance by themselves, so a replayed graph needs nothing from the host. Slots
 * come twice, used in turn: who writes exchange e + 2 has seen this rank's flag of e + 1, so this rank has read e. No
 * barrier at the end, then. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#include "kernels/cuda/cuda.h"

enum {
    COMM_RANKS_MAX = 16, /* of the own kernels */
    COMM_BLOCKS = 32,
    COMM_THREADS = 512,
    COMM_VECS = 2, /* 16-byte vectors of a tile per thread, in registers between writing and summing */
    COMM_TILE = COMM_THREADS * COMM_VECS * 16,
};
struct comm_view {
    char *slot[COMM_RANKS_MAX]; /* in the memory of each rank: [2][n_rank: from whom][COMM_BLOCKS][COMM_TILE] bytes */
    uint32_t       *flag[COMM_RANKS_MAX]; /* in the memory of each rank: [COMM_BLOCKS][COMM_RANKS_MAX: from whom] */
    uint32_t       *count;                /* [COMM_BLOCKS] exchanges done, own */
    const uint32_t *abort;                /* in host memory: not 0, nobody waits any more */
    uint32_t        rank, n_rank;
    uint32_t        blocks; /* of a launch at most: all must run at once on every GPU; the same on all ranks */
};

/* Could NCCL be asked to add here? Any thread. */
bool cuda_comm_may_nccl(const struct dev_cfg *cfg);

/* allreduce.cu. Whether writes reach the peers is asked with data, not with a capability: rank r fills its slots of
 * exchange e in the memory of all peers with words that tell r, e and their place, and raises its flags; behind the end
 * of that everywhere, each rank counts in *n_wrong which of its own slots and flags are not so. Nobody waits on the
 * device. Behind exchanges 1 and 2 the counts of the view's rank stand at 2. */
void comm_prove_write(struct cuda_dev *d, const struct comm_view *v, uint32_t e);
void comm_prove_read(struct cuda_dev *d, const struct comm_view *v, uint32_t e, uint32_t *n_wrong);
/* x: act [n]; bytes: any address, any size. One launch each, on d->stream. */
void comm_allreduce(struct cuda_dev *d, const struct comm_view *v, void *x, size_t n);
void comm_broadcast(struct cuda_dev *d, const struct comm_view *v, void *x, size_t bytes);
void comm_allgather(struct cuda_dev *d, const struct comm_view *v, float *out, const float *x, uint32_t m,
                    uint32_t n_local);
/* x[i] = sum over r of all[r][i], in rank order, rounded once; act [n_rank, n] -> act [n] */
void comm_sum(struct cuda_dev *d, void *x, const void *all, uint32_t n_rank, size_t n);
/* all F32 [n_rank, n]: elements [at, at + n) of each rank's [m, n_local], to their places in out [m, n_rank *
 * n_local] */
void comm_spread(struct cuda_dev *d, float *out, const float *all, uint32_t n_rank, size_t at, size_t n,
                 uint32_t n_local);

#ifdef __cplusplus
}
#endif
