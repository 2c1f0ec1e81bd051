#include "transfer/digest.h"
#include "base/check.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <xxhash.h>

enum { MAC_KEY_MIN = 16 };

struct digest digest_of(const struct digest_key *k, const void *data, size_t bytes)
{
    struct digest d;
    if (!k->mac) {
        XXH128_hash_t h = XXH3_128bits_withSeed(data, bytes, k->seed);
        return (struct digest){ h.low64, h.high64 };
    }
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int  n = 0;
    CHECK(HMAC(EVP_sha256(), k->key, sizeof k->key, data, bytes, mac, &n));
    CHECK(n >= sizeof d);
    memcpy(&d, mac, sizeof d);
    return d;
}

bool digest_equal(struct digest a, struct digest b) { return ((a.lo ^ b.lo) | (a.hi ^ b.hi)) == 0; }

enum status digest_key_init(struct digest_key *k_out, const void *secret, size_t bytes, uint64_t seed)
{
    *k_out = (struct digest_key){ .seed = seed };
    if (!secret) return ST_OK;
    if (bytes < MAC_KEY_MIN) return ST_CONFIG;
    unsigned int n = 0;
    CHECK(EVP_Digest(secret, bytes, k_out->key, &n, EVP_sha256(), NULL));
    CHECK(n == sizeof k_out->key);
    k_out->mac = true;
    return ST_OK;
}
