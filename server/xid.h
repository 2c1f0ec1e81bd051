/* xid: NVIDIA's numbers of GPU errors, and what a server that computes on the GPU does about each.
 * Source: NVIDIA's catalogue of XIDs, and its pages on memory errors since the A100.   Thread: any. */
#pragma once
#include <stdint.h>

/* What an XID costs. Each row costs the least that keeps answers right, from nothing to the machine. */
enum xid_act {
    XID_LOG,     /* nothing: a line in the log and the counters */
    XID_ASK,     /* a program on the GPU failed, perhaps this one: the server tests itself with a prompt of its own */
    XID_RESTART, /* the process must be started again, on the same GPU */
    XID_DRAIN,   /* the GPU must be replaced, and running answers are right: finish them, then end with exit code 71 */
    XID_LINK,    /* a link between GPUs is broken: several ranks end with 71, one rank goes on */
    XID_BROKEN,  /* the GPU is not to be used any more: end at once with 71 */
    XID_ACTS
};

struct xid {
    uint64_t     number;
    enum xid_act act;
    const char  *meaning; /* static text for the log */
};

/* Never NULL: an unknown XID has a row with XID_LOG. */
const struct xid *xid_find(uint64_t number);
