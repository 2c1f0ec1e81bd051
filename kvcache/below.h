/* below: what lies below the host: where a block is there, and what a read and a write of it say.   Thread: engine. */
#pragma once
#include "kvcache/record.h"
#include "transfer/xfer.h"

/* Where a block lies. gen changes when the place is given to another block. */
struct kv_place {
    uint32_t segment, index;
    uint64_t gen, seq; /* seq: that a record read from there bears */
    bool     old_key;  /* it is under the key before this one: xfer_done has the payload's digest under this one */
};

/* A record is to come into the host: kv_record_bytes of the payload at host_off of the segment host_seg. */
struct kv_read {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    enum xfer_prio       prio;
    uint64_t             deadline_us; /* as in xfer_job */
    uint64_t             cookie;      /* of the completion by xfer_poll */
};

/* A record is to leave the host; it lies at host_off of the segment host_seg, and page is its head in memory. */
struct kv_write {
    const struct kv_key *key;
    uint32_t             host_seg;
    uint64_t             host_off;
    void                *page;
    uint64_t             until_s;  /* what its users say of it now, as in struct kv_record */
    int                  priority; /* likewise */
    uint64_t             cookie;   /* of the completion by xfer_poll */
};
