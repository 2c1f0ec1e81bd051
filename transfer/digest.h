/* digest: tells whether the bytes of a block that returns are the bytes that left.   Thread: any.
 * Without an operator's key it is XXH3-128 with a seed. That finds accidents: a torn write, a flipped bit, a block in
 * another block's place. With a key (--kv-mac-key-file) it is HMAC-SHA256, cut to 128 bits. That also finds deliberate
 * changes by a person with access to the folder. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct digest {
    uint64_t lo, hi;
};
struct digest_key {
    bool          mac;
    unsigned char key[32]; /* MAC */
    uint64_t      seed;    /* XXH3 */
};

/* Of `bytes` bytes of data: XXH3 with the seed, or with k->mac the first 16 bytes of HMAC-SHA256 under the key. */
struct digest digest_of(const struct digest_key *k, const void *data, size_t bytes);
bool          digest_equal(struct digest a, struct digest b); /* in constant time */
/* Derives the MAC key from the operator's secret by SHA-256. A secret of fewer than 16 bytes gives ST_CONFIG. */
enum status digest_key_init(struct digest_key *k_out, const void *secret, size_t bytes,
                            uint64_t seed); /* secret NULL: no MAC */
/* Reads the operator's secret from a file, without its line end, at most DIGEST_SECRET_MAX bytes. Returns its length;
 * -1: errno. The caller wipes `out` after use. */
enum { DIGEST_SECRET_MAX = 4096 };
ssize_t digest_secret_read(const char *path, char out[DIGEST_SECRET_MAX]);
/* Both in one: the MAC key from such a file. ST_IO: errno; ST_CONFIG: fewer than 16 bytes. */
enum status digest_key_read(struct digest_key *k_out, const char *path);
