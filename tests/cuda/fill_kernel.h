/* fill_kernel: the launchers of fill_kernel.cu. Both enqueue a kernel and do not wait for it.   Thread: the device's.
 * Under a schedule that begins the next kernel early, what that one writes ahead of its pdl_wait is written over, and
 * what it reads is not there yet. d: of the cuda device. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif
struct device;
enum { CT_LATE_MAX = 2048 };
void ct_fill_ff(struct device *d, void *p, size_t bytes);                        /* 0xff */
void ct_put_late(struct device *d, void *p, const void *host, uint32_t n_bytes); /* at most CT_LATE_MAX */
#ifdef __cplusplus
}
#endif
