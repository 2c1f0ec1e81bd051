/* pack: an object store as a place below the host: the row of below.h over transfer/object/.   Thread: engine; a thread
 * of its own speaks to the store (pack_thread.c), and the lane of objects reads blocks.
 *
 * Blocks are gathered in memory into objects of 8 to 16 MiB, and each object is written once, whole. It ends with a
 * table of its blocks, which every server of the same store reads: one that starts, and those that run beside (they list
 * the store every few seconds). No object changes after it is written, none has an owner, and nothing is locked. When the
 * budget is used up, whoever writes removes the oldest objects that it has not read lately. */
#pragma once
#include "kvcache/below.h"
#include "transfer/object/object.h"

extern const struct kv_below_row kv_objects;
/* Whether a budget holds enough objects to be of use. false: err says how much is needed. */
bool pack_fits(uint64_t cap_bytes, uint64_t payload_bytes, const struct object_store *store, char *err,
               size_t err_bytes);
