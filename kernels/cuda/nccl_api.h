/* nccl_api: the part of NCCL that we call, found at run time.   Thread: any after nccl_api_get.   Private to
 * kernels/cuda/. Declared here and not by nccl.h, so that the build needs no NCCL and the program starts without one.
 * Names, values and the layout of the configuration are those of nccl.h since 2.14, which later versions keep (they
 * read `size` and `version` first); tests/cuda/test_nccl_abi.c compares with the nccl.h that there is. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ncclComm   *nccl_comm;
typedef struct nccl_win_s *nccl_window;
enum { NCCL_OK = 0, NCCL_IN_PROGRESS = 7, NCCL_MIN_VERSION = 21400, NCCL_ID_BYTES = 128 };
enum { NCCL_WINDOWS_VERSION = 22700, NCCL_WINDOW_SYMMETRIC = 1, NCCL_WINDOW_ALIGN = 4096 };
enum { NCCL_SUM = 0 };
enum { NCCL_INT8 = 0, NCCL_F16 = 6, NCCL_F32 = 7, NCCL_BF16 = 9 };
struct nccl_id {
    unsigned char b[NCCL_ID_BYTES];
};
struct nccl_config {
    size_t   size;
    unsigned magic, version;
    int      blocking; /* 0: calls return before they are done, and say NCCL_IN_PROGRESS */
};
#define NCCL_CONFIG ((struct nccl_config){ sizeof(struct nccl_config), 0xcafebeefu, NCCL_MIN_VERSION, 0 })

struct nccl_api {
    int version; /* 22809 is 2.28.9 */
    int (*GetVersion)(int *version);
    int (*GetUniqueId)(struct nccl_id *id);
    int (*CommInitRankConfig)(nccl_comm *comm, int n_rank, struct nccl_id id, int rank, struct nccl_config *config);
    int (*CommGetAsyncError)(nccl_comm comm, int *error);
    int (*CommAbort)(nccl_comm comm);
    const char *(*GetErrorString)(int result);
    const char *(*GetLastError)(nccl_comm comm);
    int (*AllReduce)(const void *send, void *recv, size_t count, int type, int op, nccl_comm comm, cudaStream_t stream);
    int (*AllGather)(const void *send, void *recv, size_t count, int type, nccl_comm comm, cudaStream_t stream);
    int (*Broadcast)(const void *send, void *recv, size_t count, int type, int root, nccl_comm comm,
                     cudaStream_t stream);
    /* since 2.27 (MemAlloc: 2.19); NULL before */
    int (*MemAlloc)(void **p, size_t bytes);
    int (*MemFree)(void *p);
    /* Collective. OK and *win NULL when it is done: the communicator cannot have windows. */
    int (*CommWindowRegister)(nccl_comm comm, void *p, size_t bytes, nccl_window *win, int flags);
    int (*CommWindowDeregister)(nccl_comm comm, nccl_window win);
};
/* NULL: not found, or too old; why says so in one line. Loaded once per process and never unloaded. */
const struct nccl_api *nccl_api_get(char *why, size_t why_bytes);
/* A version whose graphs hang when they are replayed on several nodes (2.28.9, fixed in 2.30.4; the versions between
 * count too). */
static inline bool nccl_graphs_hang(int version) { return version >= 22800 && version < 23004; }
/* False, with one line in why: what was found and what is needed. */
bool nccl_has_windows(const struct nccl_api *api, char *why, size_t why_bytes);
/* Two ranks that gather between registered buffers may hang in the copy engines' way of doing it (NCCL#2241, seen in
 * 2.29.7, fixed in 2.31.2; those ways came with 2.28). */
static inline bool nccl_gather_hangs(int version, uint32_t n_rank)
{
    return n_rank == 2 && version >= 22800 && version < 23102;
}
#ifdef CUDA_EMU
const struct nccl_api *emu_nccl(void); /* tests/emu/nccl.cc */
#endif
#ifdef __cplusplus
}
#endif
