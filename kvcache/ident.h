/* ident: which KV a block holds: a chain of SHA-256 over everything that its bytes depend on.   Thread: any.
 *   key(0)     = SHA-256("spillway kv 1" | fingerprint | salt)
 *   key(i + 1) = SHA-256(key(i) | block_tokens | ids of block i)
 *   piece p of block i of the window's pool: SHA-256("spillway kv window 1" | key of block i | p), but for bytes 24 to
 *   27, which say that it is one: fe 'W' 'I' 'N'
 * Every field has a fixed length, so no two inputs give the same bytes. Same key, same KV: on any tier, in any process,
 * and for no other tenant, for the salt is part of it. The key is never trusted alone: token ids are stored and
 * compared too. */
#pragma once
#include "kvcache/device/kv.h"

struct kv_key {
    unsigned char b[32];
};
/* What the bytes of a block depend on beside tokens and salt. */
struct kv_identity {
    unsigned char model[32]; /* hash of weights, configuration, and what computes with them in which types */
    uint32_t      dtype, layout, block_tokens, n_layer, n_kv_head, head_dim;
    uint32_t      tp_size;     /* ranks: a block is their slices, one behind the other */
    uint64_t      block_bytes; /* of all ranks together */
    /* Layers with a window have a pool of their own: tokens that they see, and bytes of its blocks; 0: there is none,
     * and the fingerprint does not speak of it. */
    uint32_t window;
    uint64_t window_bytes;
};
enum { KV_LAYOUT = 1 }; /* rises when the order of bytes in a block changes */

/* The hash of all members. kv_key_root, kv_key_next: key(0) and key(i + 1) above; ids [block_tokens]. */
struct kv_key kv_fingerprint(const struct kv_identity *id);
struct kv_key kv_key_root(const struct kv_key *fingerprint, struct kv_salt salt);
struct kv_key kv_key_next(const struct kv_key *before, const uint32_t *ids, uint32_t block_tokens);
enum { KV_KEY_MARK = 24 }; /* tables and places look at the bytes before and behind it */
struct kv_key kv_key_window(const struct kv_key *block, uint32_t piece);
/* One of 4 billion other keys looks like a piece's: who asks may treat a block as a piece, and never the reverse. */
bool                   kv_key_is_piece(const struct kv_key *k);
static inline uint64_t kv_key_hash(const struct kv_key *k) /* for tables: the key is as random as a hash can be */
{
    uint64_t h;
    __builtin_memcpy(&h, k->b, sizeof h);
    return h;
}
/* Not in constant time: keys are no secrets. */
static inline bool kv_key_equal(const struct kv_key *a, const struct kv_key *b)
{
    return !__builtin_memcmp(a, b, sizeof *a);
}
