/* lanes: the ways of moving bytes that there are. Each constructor makes one lane for xfer_lane_add, which takes it over; NULL: no memory.
 * Thread: the one that creates the xfer. A lane of one's own is made of lane.h. */
#pragma once
#include "transfer/xfer.h"

/* DEVICE <-> HOST, HOST <-> HOST. One thread for the devices of all ranks. What devices copy by themselves is on its way for several
 * jobs at a time, within bounds. */
struct xfer_lane *lane_dev_create(void);
/* The same with so many threads for digests (0: the lane's own makes them); lane_dev_create counts cores. */
struct xfer_lane *lane_dev_create_with(uint32_t n_digest);
/* HOST <-> FILE. io_uring with so many requests in flight where the kernel allows it, else positioned reads and writes by n_thread
 * threads; the reason is logged once. no_uring: never io_uring. */
struct xfer_lane *lane_nvme_create(uint32_t depth, uint32_t n_thread, bool no_uring);
/* Before the lane is added: its files may be sealed, in blobs of at most so many bytes. Takes the memory that sealing needs. ST_NOMEM. */
enum status lane_nvme_seals(struct xfer_lane *lane, uint32_t bytes);
