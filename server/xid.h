/* xid: NVIDIA's numbers for what went wrong on a GPU, and what each of them asks of a server that computes there.
 * Source: NVIDIA's catalogue of XIDs, and its pages on memory errors since the A100.   Thread: any. */
#pragma once
#include <stdint.h>

/* What an XID costs. Each row costs the least that keeps answers right, from nothing to the machine. */
enum xid_act {
    XID_LOG,     /* nothing: a line in the log and the counters */
    XID_ASK,     /* a program on the GPU failed, perhaps ours: a prompt of our own finds out */
    XID_RESTART, /* the process must be started again, on the same GPU */
    XID_DRAIN,   /* the GPU must be replaced, and what runs is right: finish it, then end with exit code 71 */
    XID_LINK,    /* a link between GPUs is broken: several ranks end with 71, one rank goes on */
    XID_BROKEN,  /* the GPU is not to be used any more: end at once with 71 */
    XID_ACTS
};

struct xid {
    uint64_t     number;
    enum xid_act act;
    const char  *meaning; /* static text for the log */
};

/* Never NULL: an XID that is not known asks for nothing. */
const struct xid *xid_find(uint64_t number);
