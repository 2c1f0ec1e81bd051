/* seal: encrypts bytes at rest with AES-256-GCM. A person who has the disk learns nothing, and changes to it are
 * detected.   Thread: any; a sealer belongs to one thread.
 *
 *   secret (--kv-encrypt-key-file, or random for this boot)
 *     -> file key = HMAC-SHA256(secret, label | the file's header page with its 256 random bits)     one for each file
 *       -> each piece: nonce = its place in the file (64 bits) | which part of it (32 bits)
 *
 * No nonce is used twice under one key, and the number of records needs no bound for that. Each file has its own key,
 * and each place of a file is sealed once: the store appends; a full file, or a file of an earlier start, is never
 * written again; a short write continues with the bytes that are already sealed. Two files share a key only if their
 * 256 random bits agree. For 2^40 files (2^68 bytes) the odds are 2^-177. Random nonces under one key would stop at
 * 2^32 records (NIST SP 800-38D, 8.3), which is 9 PB for a key that many servers share for years. A piece has at most
 * 2^31 bytes of GCM's 2^36.
 * The header is part of the key, so a file with a changed header does not open. One way to a repeated nonce remains: a
 * hypervisor or the kernel takes a snapshot of a running process and runs it twice. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SEAL_SECRET = 32, SEAL_TAG = 16, SEAL_CLEAR = 64 }; /* SEAL_CLEAR: unencrypted bytes in front of a sealed blob */

struct seal_key { /* of a file; in memory of seal_take */
    unsigned char b[32];
};
/* Zeroed memory that is never swapped and not part of core dumps; seal_give wipes it. If RLIMIT_MEMLOCK forbids to lock
 * it, it stays unlocked, and one line is logged. NULL: no memory. */
void *seal_take(size_t bytes);
void  seal_give(void *p, size_t bytes); /* NULL: nothing */

/* The key of one file: derived from the secret and from the file's header, so that no two files share one. */
void seal_key_make(const unsigned char secret[SEAL_SECRET], const void *header, size_t bytes, struct seal_key *key_out);
/* The secret of FILE: 32 bytes, or 64 hex digits with or without a line end. ST_CONFIG with one line in err. */
enum status seal_secret_read(const char *path, unsigned char secret_out[SEAL_SECRET], char *err, size_t err_bytes);
void        seal_secret_random(unsigned char secret_out[SEAL_SECRET]);

struct sealer;                                /* a cipher's context */
enum status seal_open(struct sealer **s_out); /* ST_NOMEM */
void        seal_close(struct sealer *s);     /* NULL: nothing */

/* Seals one piece: in [n] -> out [n], which may be the same memory. aad is authenticated and not encrypted. more than
 * eight: key, nonce (place and part), associated data, text and tag, as every authenticated cipher takes them. */
void seal_piece(struct sealer *s, const struct seal_key *k, uint64_t place, uint32_t part, const void *aad,
                size_t n_aad, const void *in, size_t n, void *out, unsigned char tag_out[SEAL_TAG]);
/* false: these are not the bytes that were sealed at this place under this key; out is then zeros. more than eight: as
 * seal_piece. */
bool seal_piece_open(struct sealer *s, const struct seal_key *k, uint64_t place, uint32_t part, const void *aad,
                     size_t n_aad, const void *in, size_t n, void *out, const unsigned char tag[SEAL_TAG]);

/* A blob of a head and a body: [SEAL_CLEAR: magic, place, tags][head but its last SEAL_CLEAR bytes, which must be
 * zeros][body]. The head can be opened without the body. place: the blob's in its file. in, out [bytes]; seal_blob: not
 * the same memory. */
void seal_blob(struct sealer *s, const struct seal_key *k, uint64_t place, const void *in, size_t head, size_t bytes,
               void *out);
bool seal_head_open(struct sealer *s, const struct seal_key *k, uint64_t place, void *blob, size_t head);
bool seal_blob_open(struct sealer *s, const struct seal_key *k, uint64_t place, void *blob, size_t head, size_t bytes);
