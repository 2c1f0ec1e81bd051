#include "kvcache/record.h"
#include "base/check.h"
#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(struct kv_record) <= KV_RECORD_HEAD, "a record's head is one page");

static const unsigned char MAGIC[2][8] = { { 'S', 'P', 'W', 'K', 'V', 'R', 'E', 'C' },
                                           { 'S', 'P', 'W', 'K', 'V', 'W', 'I', 'N' } }; /* by pool */

const char *const kv_doubt_name[KV_DOUBTS] = { [KV_SURE] = "none",
                                               [KV_DOUBT_HEAD] = "head",
                                               [KV_DOUBT_FINGERPRINT] = "fingerprint",
                                               [KV_DOUBT_KEY] = "key",
                                               [KV_DOUBT_TOKENS] = "tokens",
                                               [KV_DOUBT_SEQ] = "stale",
                                               [KV_DOUBT_PAYLOAD] = "payload" };

static struct digest head_digest(const struct kv_record *r, const struct digest_key *dk)
{
    return digest_of(dk, r, offsetof(struct kv_record, head));
}

void kv_record_make(void *page, const struct digest_key *dk, const struct kv_record_facts *facts)
{
    CHECK(facts->block_tokens <= KV_RECORD_TOKENS_MAX);
    struct kv_record *r = page;
    memset(page, 0, KV_RECORD_HEAD);
    memcpy(r->magic, MAGIC[facts->window], sizeof r->magic);
    r->version = KV_RECORD_VERSION;
    r->block_tokens = facts->block_tokens;
    r->payload_bytes = facts->payload_bytes;
    r->seq = facts->seq;
    r->fingerprint = *facts->fingerprint;
    r->key = *facts->key;
    r->parent = *facts->parent;
    r->payload = facts->payload;
    memcpy(r->ids, facts->ids, facts->block_tokens * sizeof *facts->ids);
    r->head = head_digest(r, dk);
}

enum kv_doubt kv_record_check(const void *page, const struct digest_key *dk, const struct kv_key *fingerprint,
                              const struct kv_key *key, const uint32_t *ids, uint32_t block_tokens,
                              uint64_t payload_bytes, uint64_t seq)
{
    if (!digest_equal(kv_record_of(page)->head, head_digest(page, dk))) return KV_DOUBT_HEAD;
    return kv_record_match(page, fingerprint, key, ids, block_tokens, payload_bytes, seq);
}

enum kv_doubt kv_record_match(const void *page, const struct kv_key *fingerprint, const struct kv_key *key,
                              const uint32_t *ids, uint32_t block_tokens, uint64_t payload_bytes, uint64_t seq)
{
    const struct kv_record *r = page;
    bool                    window; /* of no matter: the key follows from the pool */
    if (!kv_record_named(r, &window) || r->version != KV_RECORD_VERSION) return KV_DOUBT_HEAD;
    if (!kv_key_equal(&r->fingerprint, fingerprint) || r->block_tokens != block_tokens ||
        r->payload_bytes != payload_bytes)
        return KV_DOUBT_FINGERPRINT;
    if (key && !kv_key_equal(&r->key, key)) return KV_DOUBT_KEY;
    if (ids && memcmp(r->ids, ids, block_tokens * sizeof *ids)) return KV_DOUBT_TOKENS;
    if (seq != KV_SEQ_ANY && r->seq != seq) return KV_DOUBT_SEQ;
    return KV_SURE;
}

bool kv_record_named(const struct kv_record *r, bool *window_out)
{
    *window_out = !memcmp(r->magic, MAGIC[true], sizeof r->magic);
    return *window_out || !memcmp(r->magic, MAGIC[false], sizeof r->magic);
}

bool kv_record_begins(const struct kv_record *r)
{
    static const struct kv_key none;
    return kv_key_equal(&r->parent, &none);
}

void kv_record_rekey(void *page, const struct digest_key *dk, struct digest payload)
{
    struct kv_record *r = page;
    r->payload = payload;
    r->head = head_digest(r, dk);
}

void kv_record_seal(void *page, const struct digest_key *dk, uint64_t seq, uint64_t until_s, int priority)
{
    struct kv_record *r = page;
    r->seq = seq;
    r->until_s = until_s;
    r->priority = priority;
    r->head = head_digest(r, dk);
}

bool kv_record_ended(const struct kv_record *r, uint64_t wall_s)
{
    return r->until_s && (r->until_s <= wall_s || r->until_s - wall_s > KV_TTL_MAX_S);
}
