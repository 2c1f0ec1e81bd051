/* nvml: the driver's figures of the machine's NVIDIA GPUs: use, memory, errors, throttling, XID events.
 * nvml_open -> nvml_get (any thread) -> nvml_close.   Thread: its own, the only one that calls libnvidia-ml.so.1. So a
 * driver that hangs stops these figures only, and their age shows it. Without the library there are no figures, which
 * is no error. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

struct nvml;

enum { NVML_GPUS_MAX = 16, NVML_THROTTLES = 7, NVML_EVERY_US = 1000000 };

/* A figure that the driver does not give, or that cannot be true, keeps its last value. */
struct nvml_gpu {
    double   utilization, memory_utilization; /* 0 .. 1 */
    uint64_t memory_total, memory_used;       /* bytes */
    double   power_w, temperature_c;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint32_t rows_remapped, rows_pending, rows_failed;
    uint32_t throttle;        /* bits in the order of throttle_bit (nvml.c) */
    uint64_t n_xid, last_xid; /* since this start */
    bool     lost;            /* the driver no longer reaches the GPU */
    uint32_t n_odd;           /* number of figures that could not be true */
};
struct nvml_sample {
    uint32_t        n_gpu;
    uint64_t        at_us; /* clock_us when all GPUs were read last */
    struct nvml_gpu gpu[NVML_GPUS_MAX];
};

enum status nvml_open(struct nvml **n_out); /* ST_NOMEM */
/* False: there is no GPU, or no figure yet. */
bool nvml_get(const struct nvml *n, struct nvml_sample *out);
void nvml_close(struct nvml *n); /* waits for the thread for less than a second; NULL is allowed */

/* The meaning of an XID for a server on that GPU, as the log words it. NULL: this XID has no entry. */
const char *nvml_xid_meaning(uint64_t xid);
