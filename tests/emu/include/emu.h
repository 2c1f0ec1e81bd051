/* emu: CUDA kernels and the CUDA runtime on the CPU, what a test may set.   Thread: set before work is given to the
 * devices.
 *
 * One fiber per CUDA thread, one block after another on the OS thread that launches; several OS threads may run kernels
 * at once. A schedule decides in which order fibers and blocks run, so one kernel is run under several: what depends on
 * the order shows. Device memory and dynamic shared memory begin as NaN (0xff bytes). */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
#include <cuda_runtime_api.h>

enum emu_order { EMU_IN_ORDER, EMU_REVERSED, EMU_RANDOM, EMU_ORDERS };
struct emu_schedule {
    enum emu_order order;  /* of the threads of a block and of the blocks of a grid               */
    bool           greedy; /* a warp runs as far as it can before the next; else threads take turns */
    /* cp.async and bulk copies copy at once, and wgmma reads its operands at the wait (shows write after read); else they
     * copy as late as can be, and it reads at its commit (shows a missing wait) */
    bool     eager;
    uint32_t seed; /* of EMU_RANDOM                                                        */
    /* A kernel that may begin early (PDL) runs up to its pdl_wait before the kernel ahead of it on the stream has
     * begun: one that reads what that one writes ahead of its own wait reads what was there before. Work runs when the
     * next is given to the stream, or when somebody waits, on one OS thread. */
    bool early;
};
enum { EMU_SCHEDULES = 15 };
void                emu_set_schedule(const struct emu_schedule *s); /* NULL: as emu_set_turns has it */
struct emu_schedule emu_schedule_at(uint32_t i);                    /* i < EMU_SCHEDULES: every
                                                                     combination of the first three once, then early */
const char         *emu_schedule_name(const struct emu_schedule *s);
/* What holds where no schedule is set. EMU_TURNS: each launch of a kernel has another one, so that four launches of it
 * on an OS thread have been lazy, eager, reversed, random, greedy and, with EMU_TURNS_EARLY, early where what is ahead of
 * them lets them: in an order that is as good as random and the same in every run. Early is not for a program whose work
 * is given by one OS thread and waited for by another. */
enum emu_turns { EMU_STILL /* the default: in order, lockstep, lazy */, EMU_TURNS, EMU_TURNS_EARLY };
void emu_set_turns(enum emu_turns t);

/* The devices. Set while none of their memory is held; 0 devices: none found. Defaults: 1 device, 2 GiB, sm_90, 8
 * SMs. */
struct emu_device {
    size_t bytes;
    int    arch; /* 90 for sm_90 */
    int    n_sm;
};
void emu_set_devices(int n);
void emu_set_device(int ordinal, const struct emu_device *d);
/* Devices that read the host's memory through the host's page tables, as GH200 does; EMU_COHERENT=1 at start. */
void emu_set_coherent(bool on);
/* What becomes of 16 bytes that a kernel writes into another device's memory; altered: one bit of one in a thousand.
 * And whether links between devices say that they have atomics of their own, as NVLink does and PCIe does not. */
enum emu_peer { EMU_PEER_RIGHT, EMU_PEER_LOST, EMU_PEER_ALTERED };
void emu_set_peer(enum emu_peer writes, bool native_atomics);
/* How many blocks of any kernel an SM says that it runs at a time; 0: 32. */
void emu_set_occupancy(int blocks);
/* what cudaDriverGetVersion says; 0: no driver, every call fails with cudaErrorInsufficientDriver */
void   emu_set_driver(int version);
size_t emu_bytes_held(void); /* device and pinned host memory not yet given back, all devices */

/* true: work is queued and runs when somebody waits for it (each query runs one piece), so a buffer that is reused too
 * early shows. false, the default: work runs within the call that enqueues it. Both in the order of the stream. */
void emu_set_lazy(bool on);

/* The next call of that name ("cudaMalloc"; "launch" for a kernel) fails with this error; where CUDA's documentation
 * says that the error ends the context (illegal address, launch failure, uncorrectable ECC error, ...) all later calls
 * return it too. */
void emu_fail_next(const char *call, cudaError_t e);
void emu_fail_after(const char *call, uint32_t skip, cudaError_t e); /* the one after `skip` more calls of that name */
/* Not an error: the call, or "kernel" for a kernel that was launched, stands still so many milliseconds (EMU_STALL
 * itself: for ever). The device's other streams go on; what asks whether the work is done hears "not ready", and what
 * waits for it waits. */
enum { EMU_STALL = 100000 };
/* Kernels take `factor` times as long, from the one after `skip` more. */
void     emu_set_slow(uint64_t skip, double factor);
void     emu_reset(void);    /* no faults planned, no error kept, defaults of all the above */
uint64_t emu_launches(void); /* kernels run so far by this process (replayed ones too) */

#ifdef __cplusplus
}
#endif
