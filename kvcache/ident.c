/* OpenSSL's plain SHA-256, which its version 3 calls deprecated: of the 170 ns that EVP_Digest takes for a block of 16
 * tokens, 70 are the making and clearing of a context. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include "kvcache/ident.h"
#include "base/check.h"
#include <openssl/sha.h>
#include <string.h>

enum { IDS_MAX = 256 }; /* tokens of a block */

/* little-endian, whatever the machine: keys are compared between machines */
static unsigned char *put(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) *p++ = (unsigned char)(v >> 8 * i);
    return p;
}

static struct kv_key sha(const unsigned char *p, size_t n)
{
    struct kv_key k;
    SHA256_CTX    c;
    _Static_assert(sizeof k.b == SHA256_DIGEST_LENGTH, "a key is a whole digest");
    CHECK(SHA256_Init(&c) && SHA256_Update(&c, p, n) && SHA256_Final(k.b, &c));
    return k;
}

struct kv_key kv_fingerprint(const struct kv_identity *id)
{
    unsigned char  text[128] = "spillway kv fingerprint 1", *p = text + 32;
    const uint32_t n[] = { id->dtype,     id->layout,   id->block_tokens, id->n_layer,
                           id->n_kv_head, id->head_dim, id->tp_size };
    memcpy(p, id->model, sizeof id->model);
    p += sizeof id->model;
    for (size_t i = 0; i < sizeof n / sizeof *n; i++) p = put(p, n[i], 4);
    p = put(p, id->block_bytes, 8);
    if (id->window_bytes) p = put(put(p, id->window, 4), id->window_bytes, 8);
    return sha(text, (size_t)(p - text));
}

struct kv_key kv_key_root(const struct kv_key *fingerprint, struct kv_salt salt)
{
    unsigned char text[96] = "spillway kv 1", *p = text + 32;
    memcpy(p, fingerprint, sizeof *fingerprint);
    p = put(p + sizeof *fingerprint, salt.lo, 8);
    p = put(p, salt.hi, 8);
    return sha(text, (size_t)(p - text));
}

struct kv_key kv_key_next(const struct kv_key *before, const uint32_t *ids, uint32_t block_tokens)
{
    unsigned char text[sizeof *before + 4 + 4 * IDS_MAX], *p = text;
    CHECK(block_tokens <= IDS_MAX);
    memcpy(p, before, sizeof *before);
    p = put(p + sizeof *before, block_tokens, 4);
    for (uint32_t i = 0; i < block_tokens; i++) p = put(p, ids[i], 4);
    return sha(text, (size_t)(p - text));
}

static const unsigned char PIECE[4] = { 0xfe, 'W', 'I', 'N' };

struct kv_key kv_key_window(const struct kv_key *block, uint32_t piece)
{
    unsigned char text[32 + sizeof *block + 4] = "spillway kv window 1", *p = text + 32;
    memcpy(p, block, sizeof *block);
    p = put(p + sizeof *block, piece, 4);
    struct kv_key k = sha(text, (size_t)(p - text));
    memcpy(k.b + KV_KEY_MARK, PIECE, sizeof PIECE);
    return k;
}

bool kv_key_is_piece(const struct kv_key *k) { return !memcmp(k->b + KV_KEY_MARK, PIECE, sizeof PIECE); }
