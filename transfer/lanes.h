/* lanes: constructors of the existing lanes. Each makes one lane for xfer_lane_add, which takes ownership; NULL: no
 * memory. Thread: the one that creates the xfer. To write a new lane include lane.h. */
#pragma once
#include "transfer/xfer.h"

/* DEVICE <-> HOST, HOST <-> HOST. One thread for the devices of all ranks. A device that copies by itself (a GPU) has
 * several jobs in flight, up to a bound. */
struct xfer_lane *lane_dev_create(void);
/* The same with n_digest threads for digests (0: the lane's own thread); lane_dev_create chooses the number by the
 * number of cores. */
struct xfer_lane *lane_dev_create_with(uint32_t n_digest);
/* HOST <-> FILE. It uses io_uring with `depth` requests in flight. Where the kernel refuses io_uring it uses positioned
 * reads and writes on n_thread threads, and logs the reason once. no_uring: never io_uring. */
struct xfer_lane *lane_nvme_create(uint32_t depth, uint32_t n_thread, bool no_uring);
/* Does the kernel let this process have an io_uring? why: the reason if not. */
bool lane_uring_works(char *why, size_t why_bytes);
/* Call it before the lane is added if its files may be sealed. It allocates the memory for sealed blobs of at most
 * `bytes` bytes. ST_NOMEM. */
enum status lane_nvme_seals(struct xfer_lane *lane, uint32_t bytes);
/* OBJECT -> HOST, from one store, which outlives the lane. Many requests are in flight; jobs on adjacent bytes of an
 * object become one request. */
struct object_store;
struct xfer_lane *lane_object_create(struct object_store *store);
