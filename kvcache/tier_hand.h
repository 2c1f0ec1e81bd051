/* tier_hand: hands the host's KV from one process to the next: its slab (a memfd), unchanged, and a second, sealed
 * memfd with an index of its content.
 *
 *   the old  SERVES --freeze--> (copies in flight end) --> FROZEN --give--> GIVEN
 *               ^                                            |                |
 *               +--------------------- thaw -----------------+----------------+   the next process has died
 *   the new  begins FROZEN with the old one's slab; it writes nothing until it may serve --thaw--> SERVES
 *
 * FROZEN: no block goes down or comes up, and no byte of the slab changes; the device's own tree works on. GIVEN: the
 * same, and the stores are closed, so that the next process can open them. This file does not decide which process may
 * write: the holder of the lease may (server/takeover.h). After a thaw from GIVEN, slots may hold blocks that the other
 * process wrote. Like all blocks they are checked before use.
 *
 * The index is not trusted more than a file of a store. Its digest uses the key of the blocks' digests, and its shape
 * must equal ours. Its entry for a slot is a hint: the record in the slab and the digest of the payload are checked
 * when the block is first used. */
#pragma once
#include "kvcache/tier.h"

enum { KV_HAND_VERSION = 1 };

/* The properties that two processes must share to hand over a slab. Compared byte by byte. */
struct kv_hand_shape {
    struct kv_key fingerprint;
    struct digest key; /* digest of a fixed name under the key of the blocks: equal if the keys are equal */
    uint64_t      n_slot, stride, block_bytes;
    uint32_t      block_tokens, version;
};
struct kv_hand_row {
    struct kv_key key;
    struct digest payload;
    uint64_t      until_s; /* wall time of its end (keep.h); 0: none */
    uint32_t      slot;
    uint8_t       store; /* 1 + index of a store that also holds the block, if both processes have the same stores */
    int8_t        priority;
    uint8_t       used, memory_only;
};

/* The shape of the slab that tiers of this configuration would have. */
void kv_hand_shape_of(const struct kv_tiers_cfg *cfg, struct kv_hand_shape *out);
/* A short reason why b does not fit a; NULL if it fits. */
const char *kv_hand_differs(const struct kv_hand_shape *a, const struct kv_hand_shape *b);

/* An index that was read. */
struct kv_hand_index {
    const struct kv_hand_row *row; /* [n] in the bytes that were read, in order of use, the oldest first */
    uint32_t                  n;
    bool                      same_stores; /* both processes have the same list of stores */
};
/* Checks untrusted bytes as an index. ST_INVALID with one line in why: the index is refused as a whole. Each slot is
 * below n_slot and appears once; the caller must check for equal keys. stores: digest of the list of stores. */
enum status kv_hand_read(const void *data, size_t bytes, const struct kv_hand_shape *shape,
                         const struct digest_key *key, struct digest stores, struct kv_hand_index *out, char *why,
                         size_t why_bytes);
uint64_t    kv_hand_bytes(uint32_t n_row);
/* The rows of an index of kv_hand_bytes(n_row) bytes. The caller fills them, then kv_hand_finish writes head and
 * digest. */
struct kv_hand_row *kv_hand_rows(void *data);
void kv_hand_finish(void *data, uint32_t n_row, const struct kv_hand_shape *shape, const struct digest_key *key,
                    struct digest stores);

/* ---- of running tiers.   Thread: any; the engine thread acts on a request in kv_tiers_turn. */
enum kv_hand { KV_SERVES, KV_FROZEN, KV_GIVEN };
void kv_tiers_shape(const struct kv_tiers *t, struct kv_hand_shape *out);
void kv_tiers_hand(struct kv_tiers *t, enum kv_hand want); /* SERVES <-> FROZEN -> GIVEN -> SERVES */
/* The current state. FROZEN: also returns the fds of slab and index, which the tiers still own; index -1: there was no
 * memory for it. */
enum kv_hand kv_tiers_hand_is(const struct kv_tiers *t, int *slab_fd_out, int *index_fd_out);
