/* pack: the row of below.h that keeps blocks in an object store (transfer/object/object.h).   Thread: engine; a thread
 * of its own uploads, removes and lists (pack_thread.c), and the lane of objects reads blocks.
 *
 * Blocks are gathered in memory into objects of 8 to 16 MiB, and each object is written once, whole. It ends with a
 * table of its blocks. Every server of the same store reads that table: at its start, and later when it lists the
 * store, which it does every few seconds. No object changes after it is written, none has an owner, and nothing is
 * locked. When the budget is used up, a server that writes removes the oldest objects that it has not read lately. */
#pragma once
#include "kvcache/below.h"
#include "transfer/object/object.h"

extern const struct kv_below_row kv_objects;
/* Whether a budget of cap_bytes holds enough objects to be of use. false: err says how much is needed. Any thread. */
bool pack_fits(uint64_t cap_bytes, uint64_t payload_bytes, const struct object_store *store, char *err,
               size_t err_bytes);
