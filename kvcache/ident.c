#include "kvcache/ident.h"
#include "base/check.h"
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

enum { IDS_MAX = 256 }; /* tokens of a block */

/* little-endian, whatever the machine: keys are compared between machines */
static unsigned char *put(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) *p++ = (unsigned char)(v >> 8 * i);
    return p;
}

/* Fetched once: SHA256() of OpenSSL 3 looks it up each time, which takes longer than the hash. */
static EVP_MD *sha256;
static void    sha_fetch(void) { sha256 = EVP_MD_fetch(NULL, "SHA256", NULL); }

static struct kv_key sha(const unsigned char *p, size_t n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct kv_key         k;
    unsigned int          bytes = 0;
    pthread_once(&once, sha_fetch);
    CHECK(sha256 && EVP_Digest(p, n, k.b, &bytes, sha256, NULL) && bytes == sizeof k.b);
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
