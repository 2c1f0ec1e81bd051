#include "transfer/digest.h"
#include "base/check.h"
#include "base/file.h"
#include "base/hash.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

enum { MAC_KEY_MIN = 16 };

struct digest digest_of(const struct digest_key *k, const void *data, size_t bytes)
{
    struct digest d;
    if (!k->mac) {
        struct hash128 h = hash128_bytes(data, bytes, k->seed);
        return (struct digest){ h.lo, h.hi };
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

ssize_t digest_secret_read(const char *path, char out[DIGEST_SECRET_MAX])
{
    size_t n = 0;
    int    error = file_read_first(path, out, DIGEST_SECRET_MAX, &n);
    errno = error;
    return error ? -1 : (ssize_t)file_without_line_end(out, n);
}

enum status digest_key_read(struct digest_key *k_out, const char *path)
{
    char    text[DIGEST_SECRET_MAX];
    ssize_t n = digest_secret_read(path, text);
    if (n < 0) return ST_IO;
    enum status st = digest_key_init(k_out, text, (size_t)n, 0);
    OPENSSL_cleanse(text, sizeof text);
    return st;
}
