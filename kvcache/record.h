/* record: a block outside the device: a head page with its identity, then its bytes. The layout is the same on the host
 * and on disk, so a block moves between them in one piece: [KV_RECORD_HEAD][payload, rounded up to 4096].   Thread:
 * any. */
#pragma once
#include "kvcache/ident.h"
#include "kvcache/device/keep.h"
#include "transfer/digest.h"
#include "transfer/seal.h"
#include <stddef.h>

enum { KV_RECORD_HEAD = 4096, KV_RECORD_VERSION = 3, KV_RECORD_TOKENS_MAX = 256 };

struct kv_record {
    unsigned char
        magic[8]; /* "SPWKVREC"; "SPWKVWIN": a piece of a block of the window's pool, `parent` is the block's key */
    uint32_t version, block_tokens;
    uint64_t payload_bytes,
        seq; /* seq: number of the segment, 0 on the host; so an old record in a reused file fails the check */
    struct kv_key fingerprint, key, parent; /* parent: zeros in the first block of a prompt */
    struct digest payload;
    uint64_t      until_s;  /* expiry in wall time; 0: none */
    int64_t       priority; /* kv_hold */
    uint32_t      ids[KV_RECORD_TOKENS_MAX];
    struct digest
        head; /* of everything before it, under the same key as the payload's, so a forged head fails the check */
};

/* Bytes of a record: the head, and the payload in whole pages of 4 KiB. */
static inline uint64_t kv_record_bytes(uint64_t payload_bytes)
{
    return KV_RECORD_HEAD + (payload_bytes + 4095) / 4096 * 4096;
}

/* True for the first block of a prompt: its bytes depend on its own ids only. False where an adapter computed it. */
bool kv_record_begins(const struct kv_record *r);
/* The pool that the record names; false: neither. */
bool kv_record_named(const struct kv_record *r, bool *window_out);
/* What a record says of its block, as in struct kv_record. ids [block_tokens]. */
struct kv_record_facts {
    const struct kv_key *fingerprint, *key, *parent;
    const uint32_t      *ids;
    uint32_t             block_tokens;
    uint64_t             payload_bytes, seq;
    struct digest        payload;
    bool                 window; /* of the window's pool */
};
/* Fills page [KV_RECORD_HEAD], zeros behind. */
void kv_record_make(void *page, const struct digest_key *dk, const struct kv_record_facts *facts);
/* Changes the record to another digest key. payload: the payload's digest under that key. */
void kv_record_rekey(void *page, const struct digest_key *dk, struct digest payload);
/* Prepares the record for a file: sets the segment's number, expiry and priority (as in struct kv_record) and computes
 * the digest of the head, once. Nothing else of the record changes. */
void kv_record_seal(void *page, const struct digest_key *dk, uint64_t seq, uint64_t until_s, int priority);
/* True if the record has expired. A record whose expiry lies further ahead than any request can ask for counts as
 * expired: the clock was set back. */
bool kv_record_ended(const struct kv_record *r, uint64_t wall_s);
#define KV_SEQ_ANY UINT64_MAX /* for kv_record_check */
/* Why a record is not used, in the order of the checks. */
enum kv_doubt {
    KV_SURE,
    KV_DOUBT_HEAD,        /* no record, torn, another version, a wrong digest of the head */
    KV_DOUBT_FINGERPRINT, /* of another model, dtype, layout */
    KV_DOUBT_KEY,         /* another block */
    KV_DOUBT_TOKENS,      /* the same key and other tokens */
    KV_DOUBT_SEQ,         /* left over from an earlier use of the file */
    KV_DOUBT_PAYLOAD,     /* the payload's digest differs */
    KV_DOUBTS
};
extern const char *const kv_doubt_name[KV_DOUBTS];
/* Checks the head, not the payload. ids NULL: not compared (recovery); key NULL: any. */
enum kv_doubt kv_record_check(const void *page, const struct digest_key *dk, const struct kv_key *fingerprint,
                              const struct kv_key *key, const uint32_t *ids, uint32_t block_tokens,
                              uint64_t payload_bytes, uint64_t seq);
/* The same, of a head whose digest was checked already (xfer_job.head is KV_RECORD_SEALED). */
enum { KV_RECORD_SEALED = offsetof(struct kv_record, head) };
enum kv_doubt kv_record_match(const void *page, const struct kv_key *fingerprint, const struct kv_key *key,
                              const uint32_t *ids, uint32_t block_tokens, uint64_t payload_bytes, uint64_t seq);
static inline const struct kv_record *kv_record_of(const void *page) { return page; }
