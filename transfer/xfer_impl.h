/* xfer_impl: the inside of struct xfer.   Private to transfer/. */
#pragma once
#include "base/pool.h"
#include "transfer/lane.h"

enum { SEGS_MAX = 4096 };
struct xfer {
    struct xfer_cfg   cfg;
    struct pool       items; /* the owner's */
    struct ring       done;
    struct xfer_lane *lane[XFER_LANES_MAX];
    uint32_t          n_lane;
    uint64_t         *ticket; /* [jobs_max] of the items that are out; 0 */
    uint64_t          n_posted;
    bool              gathers; /* lanes are told of several jobs at once */
    struct xfer_seg   seg[SEGS_MAX];
    bool              used[SEGS_MAX];
    uint32_t          refs[SEGS_MAX]; /* jobs that name it */
};

enum status lane_start(struct xfer_lane *l);
void        lane_pump(struct xfer_lane *l); /* pumped: does the work of the lane's thread, without sleeping */
void        lane_stop(struct xfer_lane *l); /* queued items complete as canceled */
