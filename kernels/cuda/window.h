/* window: memory beside the arena for what ranks add up or gather, at the same offset on every rank.   Thread: its rank
 * thread.   Private to kernels/cuda/.
 *
 * Registered with NCCL as a symmetric window, NCCL's kernels read and write it in place on all ranks (loads and stores
 * over NVLink, sums in the switch), where it would otherwise go through NCCL's own buffers piece by piece. That asks
 * for memory of ncclMemAlloc, of one size, and for calls that name the same offset on every rank: so what is added up
 * is made there (alloc_reduced), nothing is copied in or out. Its bytes are the same whether it is registered or not,
 * so the memory plan needs no NCCL. It is one allocation and one window: versions before 2.31.2 mix up several windows
 * of one allocation (NCCL#2198). */
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/nccl_api.h"

enum { WINDOW_STAGE = 4 << 20 }; /* its first bytes: what NCCL gathers, before it is put in its place */
struct cuda_window {
    char                  *base; /* [bytes] WINDOW_STAGE, then what alloc_reduced gives */
    size_t                 bytes;
    size_t                 size, used; /* of alloc_reduced */
    const struct nccl_api *from;       /* whose MemAlloc it is; NULL: cudaMalloc's */
    nccl_window            win;        /* NULL: not registered */
    char                   why[200];   /* from NULL: why it cannot be */
};

/* Bytes that it takes beside the arena, of what the process was given; 0: no NCCL will add here, or windows are off.
 * Any thread. */
uint64_t cuda_window_bytes(const struct dev_cfg *cfg);
/* d->window, with memory unless cfg->plan_only. No memory of NCCL's is no failure. ST_NOMEM has been logged. */
enum status cuda_window_open(struct cuda_dev *d, const struct dev_cfg *cfg);
void        cuda_window_close(struct cuda_dev *d); /* after the communicator that it was registered with */
