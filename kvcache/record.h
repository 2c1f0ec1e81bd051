/* record: a block outside the device: a page that says what it is, then its bytes. The same on the host and on disk, so that a
 * block goes down and up in one piece: [KV_RECORD_HEAD][payload, rounded up to 4096].   Thread: any. */
#pragma once
#include "kvcache/ident.h"
#include "kvcache/device/keep.h"
#include "transfer/digest.h"
#include "transfer/seal.h"

enum { KV_RECORD_HEAD = 4096, KV_RECORD_VERSION = 3, KV_RECORD_TOKENS_MAX = 256 };

struct kv_record {
    unsigned char magic[8]; /* "SPWKVREC" */
    uint32_t      version, block_tokens;
    uint64_t      payload_bytes, seq;       /* seq: of the segment that it lies in, 0 on the host: a record of a reused file is none */
    struct kv_key fingerprint, key, parent; /* parent: zeros in the first block of a prompt */
    struct digest payload;
    uint64_t      until_s;  /* wall time from which it is no longer wanted; 0: no end */
    int64_t       priority; /* kv_hold */
    uint32_t      ids[KV_RECORD_TOKENS_MAX];
    struct digest head; /* of everything before it, under the same key as the payload's, so a forged head fails the check */
};

static inline uint64_t kv_record_bytes(uint64_t payload_bytes) { return KV_RECORD_HEAD + (payload_bytes + 4095) / 4096 * 4096; }

/* It is the first block of a prompt: its ids are all that its bytes depend on. */
bool kv_record_begins(const struct kv_record *r);
/* Fills page [KV_RECORD_HEAD], zeros behind. */
void kv_record_make(void *page, const struct digest_key *dk, const struct kv_key *fingerprint, const struct kv_key *key,
                    const struct kv_key *parent, const uint32_t *ids, uint32_t block_tokens, uint64_t payload_bytes, uint64_t seq,
                    struct digest payload);
/* The same record under another key, whose digest of the payload is this. */
void kv_record_rekey(void *page, const struct digest_key *dk, struct digest payload);
/* The record as it goes into a file: which segment it is written to (seq), and what its users say of it now (until_s, priority as in struct
 * kv_record). Nothing else of it changes; the digest of the head is made anew, once. */
void kv_record_seal(void *page, const struct digest_key *dk, uint64_t seq, uint64_t until_s, int priority);
/* Its time is over, or the clock has been set back so far that nobody can tell: no end lies further ahead than that. */
bool kv_record_ended(const struct kv_record *r, uint64_t wall_s);
#define KV_SEQ_ANY UINT64_MAX /* for kv_record_check */
/* What is wrong with it, in the order in which it is asked. */
enum kv_doubt {
    KV_SURE,
    KV_DOUBT_HEAD,        /* no record, torn, another version, a wrong digest of the head */
    KV_DOUBT_FINGERPRINT, /* of another model, dtype, layout */
    KV_DOUBT_KEY,         /* another block */
    KV_DOUBT_TOKENS,      /* the same key and other tokens */
    KV_DOUBT_SEQ,         /* left over from what the file was before */
    KV_DOUBT_PAYLOAD,     /* its bytes are not those that left */
    KV_DOUBTS
};
extern const char *const kv_doubt_name[KV_DOUBTS];
/* Without the payload. ids NULL: not compared (recovery); key NULL: any. */
enum kv_doubt kv_record_check(const void *page, const struct digest_key *dk, const struct kv_key *fingerprint, const struct kv_key *key,
                              const uint32_t *ids, uint32_t block_tokens, uint64_t payload_bytes, uint64_t seq);
static inline const struct kv_record *kv_record_of(const void *page) { return page; }
