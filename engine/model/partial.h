/* partial: what was fetched of one file of a model that lies far away, kept on disk until the model is loaded. A start
 * that was killed at any moment is continued by the next one.
 *   partial_open -> partial_read ... -> partial_close; partial_remove when the model is loaded
 * Thread: partial_read: any; the others: the one that loads.   Private to engine/model/.
 *
 * The file, <hash of its source>.partial, consists of a head, a table with the digest of each chunk of 1 MiB, and the
 * chunks in their places. The head names the version (ETag, length) of what was fetched: of another version nothing is
 * used, and the file begins anew. A digest is written after its chunk, and a chunk counts only if it agrees with its
 * digest, so a torn, cut or damaged file costs fetching the chunks in doubt. It is used only if nobody but this user
 * and root could have written it. One process holds it at a time, by a lock. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct partial;
struct partial_of {
    const char *where, *name; /* the store and the file in it */
    const char *version;      /* never "": without a version nothing can be continued */
    uint64_t    bytes;
};
/* Fetches bytes [offset, offset + n) of that version to dst. Called by partial_read, on its thread. It tells of pieces
 * that have come before it returns, on the same thread, in any order: they are kept at once, whatever becomes of the
 * others. A piece begins at a multiple of PARTIAL_PIECE behind offset and ends at one, or with the read. */
enum { PARTIAL_PIECE = 1 << 20 };
typedef void        partial_come(void *told, uint64_t offset, size_t n);
typedef enum status partial_fetch(void *ctx, uint64_t offset, void *dst, size_t n, partial_come *come, void *told);

/* NULL: nothing is kept of this file in this start; the reason was logged. dir is made if its parent is there. */
struct partial *partial_open(const char *dir, const struct partial_of *of);
void            partial_close(struct partial *p); /* NULL: nothing */
/* All n bytes at offset, from disk or by fetch. What is fetched is kept; if that fails it is logged once, and only
 * later starts suffer. A chunk that another thread fetches is waited for. Errors: those of fetch, with its errno;
 * ST_NOMEM. */
enum status partial_read(struct partial *p, uint64_t offset, void *dst, size_t n, partial_fetch *fetch, void *ctx);
uint64_t    partial_bytes_kept(const struct partial *p); /* how much of the file an earlier start had fetched */

/* Removes the partial file of this source, whatever its version. */
void partial_remove(const char *dir, const struct partial_of *of);
/* Room: the bytes that dir's file system has for this user, and those that partial files there have taken already. 0:
 * unknown or no such folder. Also removes partial files that nobody has touched for a week. */
uint64_t partial_room(const char *dir);
