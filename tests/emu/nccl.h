/* nccl: the emulated library, what a test may look at and set.   C17 and C++17. Thread: set while there is no
 * communicator; read: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* What it has done since emu_nccl_forget. A call is "in the window" when all that it reads and writes lies in one that
 * is registered. */
struct emu_nccl_counts {
    uint64_t reduce_in, reduce_out, gather_in, gather_out; /* collectives run, one per rank; replayed ones too */
    uint64_t misuse;                  /* what NCCL's documentation forbids; each is told on stderr */
    uint64_t bytes;                   /* of MemAlloc, not given back */
    uint32_t windows;                 /* registered on a rank and not deregistered */
    uint32_t memories, communicators; /* of MemAlloc not given back; begun and neither aborted */
};
struct emu_nccl_counts emu_nccl_counts(void);
void                   emu_nccl_forget(void); /* what it has done; what is held stays */
/* As which version it presents itself (below 2.27 the calls for windows are missing), and whether its communicators can
 * have windows (else registering is OK and gives none). 0: the environment's EMU_NCCL_VERSION, or 2.32.
 * EMU_NCCL_WINDOWS=0: false.
 * One rank's registering fails by emu_fail_after("ncclCommWindowRegister", ...), its memory by "ncclMemAlloc"; in
 * EMU_FAIL too. */
void emu_nccl_be(int version, bool windows);

#ifdef __cplusplus
}
#endif
