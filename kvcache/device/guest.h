/* guest: blocks that lie outside the device's pool, where the device reads them in place: slots of the host tier that
 * an operation of the device can address.   Thread: engine.
 *
 * Guest g is named n_block + g in page tables and in the tree. It is shared and never written, like every block of the
 * tree. Its owner vouches for its bytes from kv_guest_add until kv_guest_left has named it and every step that was
 * enqueued before is done.
 *
 *   out --kv_guest_add--> in the tree, held by tables or by children --(nobody needs it)--> left --kv_guest_left--> out
 *                                                                    --kv_guests_up-->
 *
 * A guest is never evicted, because that would free no block of the pool. It leaves the tree as soon as no table names
 * it and no child hangs on it; so a path of guests lasts as long as a block of the pool behind it. */
#pragma once
#include "kvcache/device/kv.h"

/* The next block of s is guest, with the tokens ids[block_tokens]. s: a table of shared blocks only. false: the tree
 * has this block already, s holds that one, and the guest stays out. */
bool     kv_guest_add(struct kv *kv, struct kv_seq *s, const uint32_t *ids, uint32_t guest);
uint32_t kv_guest_left(struct kv *kv);        /* a guest that has left the tree; each is told once. KV_NONE: no more */
uint32_t kv_guests_left(const struct kv *kv); /* number of those */
/* Tables that name the guest; 0: none, or it is not in the tree. */
uint32_t kv_guest_tables(const struct kv *kv, uint32_t guest);
/* Blocks of the pool take the place of guests, in the tree and in every table. s: private blocks only, whose bytes are
 * those of guest[s->n_block]; KV_NONE: of none. A guest that is no longer in the tree, or is about to be copied from,
 * stays what it is. Blocks that moved go from s to the tree. Returns their number. */
uint32_t kv_guests_up(struct kv *kv, struct kv_seq *s, const uint32_t *guest);
bool     kv_guest_in(const struct kv *kv, uint32_t guest); /* it is in the tree */
