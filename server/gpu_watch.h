/* gpu_watch: what the driver's news of GPUs (nvml.h) ask of this process. Only GPUs count whose devices this process
 * opened; what happens on the others of the machine is a line in the log and a number in /metrics.
 * gpu_watch_own for each GPU of ours -> gpu_watch_turn again and again.   Thread: the one that watches the engine. */
#pragma once
#include "server/nvml.h"

enum gpu_says {
    GPU_WELL,
    GPU_ASK,     /* once for each event: let a prompt of our own find out whether this process was hit */
    GPU_DRAIN,   /* finish what runs, take nothing new, end with EXIT_HARDWARE */
    GPU_RESTART, /* end at once with EXIT_SOFTWARE */
    GPU_BROKEN,  /* end at once with EXIT_HARDWARE */
};

struct gpu_watch {
    struct dev_place own[NVML_GPUS_MAX];
    uint32_t         n_own;
    uint32_t         n_asked; /* events of XID_ASK that were answered with GPU_ASK */
    bool             lone;    /* this process has all ranks, and one alone: links between GPUs do not matter */
    bool             warned;
};

/* Adds a GPU that this process computes on; several ranks may share one. */
void gpu_watch_own(struct gpu_watch *w, const struct dev_place *place);
/* The gravest of all that was heard since the start. why: static text for the log, of the event that decided; it is not
 * set with GPU_WELL. */
enum gpu_says gpu_watch_turn(struct gpu_watch *w, const struct nvml_sample *s, const char **why_out);
