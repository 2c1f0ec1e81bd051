/* digest: whether the bytes that came back are the bytes that left.   Thread: any.
 * Without a key of the operator: XXH3-128, seeded: it finds accidents (a torn write, a flipped bit, a block in another's place).
 * With one (--kv-mac-key): HMAC-SHA256 cut to 128 bits: it also finds what somebody with access to the folder changed on purpose. */
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

struct digest digest_of(const struct digest_key *k, const void *data, size_t bytes);
bool          digest_equal(struct digest a, struct digest b); /* in constant time */
/* The key of a MAC out of what the operator gave (any length, at least 16 bytes: ST_CONFIG), by SHA-256. */
enum status digest_key_init(struct digest_key *k_out, const void *secret, size_t bytes, uint64_t seed); /* secret NULL: no MAC */
/* What the operator gave in a file: its bytes without the end of its line, at most DIGEST_SECRET_MAX. -1: errno. Wipe it after use. */
enum { DIGEST_SECRET_MAX = 4096 };
ssize_t digest_secret_read(const char *path, char out[DIGEST_SECRET_MAX]);
/* The key of a MAC out of such a file. ST_IO: errno; ST_CONFIG: less than 16 bytes. */
enum status digest_key_read(struct digest_key *k_out, const char *path);
