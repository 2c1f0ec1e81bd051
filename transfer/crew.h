/* crew: threads that compute and check digests for a lane. One core makes 8 to 19 GB/s, a GPU's link carries 50.
 * Thread: the lane's. crew_open -> give, take ... -> crew_close.   Private to transfer/. */
#pragma once
#include "transfer/lane.h"

struct crew;
enum { CREW_MAX = 8 };
enum status crew_open(uint32_t n_thread, struct crew **c_out);           /* 1 .. CREW_MAX */
void crew_give(struct crew *c, struct xfer_item *it, const void *bytes); /* at most LANE_BATCH_MAX items may be out */
struct xfer_item *crew_take(
    struct crew *c);             /* done.st: ST_OK, or ST_INVALID where CHECK has failed. NULL: none is ready */
void crew_close(struct crew *c); /* all items must have been taken back; NULL is allowed */
