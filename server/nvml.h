/* nvml: samples the driver's data on the machine's NVIDIA GPUs: use, memory, errors, throttling, XID events.
 * nvml_open -> nvml_get (any thread) -> nvml_close.   Thread: one of its own, which alone opens and calls
 * libnvidia-ml.so.1. If the driver hangs, only these samples stop, and their age shows it. Without the library there
 * are no samples, which is no error. */
#pragma once
#include "kernels/device.h"
#include "server/xid.h"

struct nvml;

enum { NVML_GPUS_MAX = 16, NVML_THROTTLES = 7, NVML_EVERY_US = 1000000 };

struct nvml_events_of { /* XIDs that ask for the same */
    uint32_t n;         /* since this start */
    uint64_t xid;       /* the last of them */
};

/* A value keeps its last sample if the driver does not give it, or gives one that cannot be true. */
struct nvml_gpu {
    double   utilization, memory_utilization; /* 0 .. 1 */
    uint64_t memory_total, memory_used;       /* bytes */
    double   power_w, temperature_c;
    uint64_t ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint32_t rows_remapped, rows_pending, rows_failed;
    uint32_t throttle;        /* bits in the order of throttle_bit (nvml.c) */
    uint64_t n_xid, last_xid; /* since this start */
    bool     lost;            /* the driver cannot reach the GPU any more */
    uint32_t n_odd;           /* answers of the driver that cannot be true */

    struct nvml_events_of act[XID_ACTS];
    struct dev_place      place;
    bool                  placed; /* false: the library does not tell where the GPU is */
};
struct nvml_sample {
    uint32_t        n_gpu;
    uint64_t        at_us; /* clock_us of the last whole round */
    struct nvml_gpu gpu[NVML_GPUS_MAX];
};

enum status nvml_open(struct nvml **n_out); /* ST_NOMEM */
/* Copies the last sample. False: there is no GPU, or no sample yet. */
bool nvml_get(const struct nvml *n, struct nvml_sample *out);
void nvml_close(struct nvml *n); /* waits a short time for the thread; NULL is allowed */
