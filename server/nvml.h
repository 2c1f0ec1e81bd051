/* nvml: what the driver says of the machine's NVIDIA GPUs: use, memory, errors, throttling, XID events.
 * nvml_open -> nvml_get (any thread) -> nvml_close.   Thread: its own: libnvidia-ml.so.1 is opened there and nowhere else
 * called, so a driver that hangs stops nothing but these numbers, whose age shows it. Without the library there is
 * nothing, which is no error. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct nvml;

enum { NVML_GPUS_MAX = 16, NVML_THROTTLES = 7, NVML_EVERY_US = 1000000 };

/* A number that could not be had, or that cannot be true, stays as it was. */
struct nvml_gpu {
    double   utilization, memory_utilization; /* 0 .. 1 */
    uint64_t memory_total, memory_used;       /* bytes */
    double   power_w, temperature_c;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint32_t rows_remapped, rows_pending, rows_failed;
    uint32_t throttle;        /* bits in the order of throttle_bit (nvml.c) */
    uint64_t n_xid, last_xid; /* since this start */
    bool     lost;            /* the driver does not reach it any more */
    uint32_t n_odd;           /* answers that could not be believed */
};
struct nvml_sample {
    uint32_t        n_gpu;
    uint64_t        at_us; /* clock_us of the last whole round */
    struct nvml_gpu gpu[NVML_GPUS_MAX];
};

enum status nvml_open(struct nvml **n_out); /* ST_NOMEM */
/* False: there is no GPU, or nothing is known yet. */
bool nvml_get(const struct nvml *n, struct nvml_sample *out);
void nvml_close(struct nvml *n); /* waits for a moment; NULL is allowed */

/* What an XID means for whoever serves on that GPU: the words of the log. NULL: nothing that needs anybody. */
const char *nvml_xid_meaning(uint64_t xid);
