/* tier_hand: the host's KV goes from one process to the next: its slab (a memfd) as it lies, and beside it a second memfd, sealed, that
 * says what is in it.
 *
 *   the old  SERVES --freeze--> (what is on its way ends) --> FROZEN --give--> GIVEN
 *               ^                                               |                |
 *               +---------------------- thaw -------------------+----------------+   the next one is gone, and could not have come back
 *   the new  opened with the slab, it is FROZEN: nothing is written before it has the right to --thaw--> SERVES
 *
 * FROZEN: nothing goes down, nothing comes up, no byte of the slab changes; the device's own tree goes on. GIVEN: so for good, and the
 * stores are closed, so that the next process can open them. Who may write is not settled here: whoever holds the right to serve
 * (server/takeover.h). After a thaw of what was given, slots may hold what another wrote: like every block, they are checked before use.
 *
 * The index is trusted no more than a file of a store: its digest is under the key of the blocks' own, its shape must be ours to the bit,
 * and what it says of a slot is a hint: the record in the slab and the digest of the payload decide when the block is first wanted. */
#pragma once
#include "kvcache/tier.h"

enum { KV_HAND_VERSION = 1 };

/* What must agree for a slab to be of use to another process. Compared byte by byte. */
struct kv_hand_shape {
    struct kv_key fingerprint;
    struct digest key; /* of nothing but a name, under the key of the blocks: equal where the keys are */
    uint64_t      n_slot, stride, block_bytes;
    uint32_t      block_tokens, version;
};
struct kv_hand_row {
    struct kv_key key;
    struct digest payload;
    uint64_t      until_s; /* wall time of its end (keep.h); 0: none */
    uint32_t      slot;
    uint8_t       store; /* 1 + which store holds it as well, where both know the same stores */
    int8_t        priority;
    uint8_t       used, memory_only;
};

void kv_hand_shape_of(const struct kv_tiers_cfg *cfg, struct kv_hand_shape *out);
/* Why b is of no use to a: a few words; NULL: it is. */
const char *kv_hand_differs(const struct kv_hand_shape *a, const struct kv_hand_shape *b);

/* Any bytes as an index: rows_out, in order of use, the oldest first, point into data. ST_INVALID and why (one line): refused whole.
 * Every slot is below n_slot and named once; that keys differ is for the caller to see. stores: digest of which there are. */
enum status kv_hand_read(const void *data, size_t bytes, const struct kv_hand_shape *shape, const struct digest_key *key,
                         struct digest stores, const struct kv_hand_row **rows_out, uint32_t *n_out, bool *same_stores_out, char *why,
                         size_t why_bytes);
uint64_t    kv_hand_bytes(uint32_t n_row);
/* Writes kv_hand_bytes(n_row), whose rows [head, ...) are in place already: kv_hand_rows. */
struct kv_hand_row *kv_hand_rows(void *data);
void kv_hand_finish(void *data, uint32_t n_row, const struct kv_hand_shape *shape, const struct digest_key *key, struct digest stores);

/* ---- of running tiers.   Thread: any; the engine's acts on it in kv_tiers_turn. */
enum kv_hand { KV_SERVES, KV_FROZEN, KV_GIVEN };
void kv_tiers_shape(const struct kv_tiers *t, struct kv_hand_shape *out);
void kv_tiers_hand(struct kv_tiers *t, enum kv_hand want); /* SERVES <-> FROZEN -> GIVEN -> SERVES */
/* What it has come to. FROZEN: the fds of slab and index, still the tiers' own; index -1: there was no memory for it. */
enum kv_hand kv_tiers_hand_is(const struct kv_tiers *t, int *slab_fd_out, int *index_fd_out);
