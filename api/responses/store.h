/* store: responses that are kept for the key that asked for them, so that its next request can go on from one by its
 * id. responses_store_create takes all memory; nothing is written to disk, so a restart loses what is stored. Thread:
 * any. Each key has a lock, which is held while one response is copied.
 *
 * Each key has a share of its own, and nothing that one key does is seen in the share of another:
 *   1. A response is found under the key that stored it, by its whole id, and under no other.
 *   2. Where a share is full, those of its own responses leave that have not been used for longest.
 *   3. A response that goes on from another one refers to it. The text of the other one stays for as long as something
 *      refers to it, also when its id has left or was deleted: what can be found is complete.
 *   4. An id leaves when it was not used for the life of the store.
 * A share belongs to the first key that stores something. When it is empty, another key may have it. */
#pragma once
#include "base/buf.h"
#include "base/status.h"

struct responses_store;

enum { STORED_ID_BYTES = 37, STORED_BLOCK_BYTES = 1024 }; /* "resp_", and 32 digits; the unit of a share */

/* The parts of a response. Lines: each is the id of an item, a blank, and the item as JSON. */
enum stored_part {
    STORED_INPUT,  /* lines of its own input, without that of the response it goes on from */
    STORED_OUTPUT, /* lines of its output */
    STORED_HEAD,   /* the response object up to the items of its output */
    STORED_TAIL,   /* and behind them */
    STORED_PARTS,
};
struct stored {
    const char *part[STORED_PARTS];
    size_t      n[STORED_PARTS];
};

/* share_bytes: memory of each key, in whole blocks. n_share: keys that can have one at a time. ST_NOMEM. */
enum status responses_store_create(uint64_t share_bytes, uint32_t n_share, uint64_t life_us,
                                   struct responses_store **s_out);
void        responses_store_free(struct responses_store *s); /* NULL: nothing */

/* id, previous: STORED_ID_BYTES characters each; previous NULL: it goes on from none. ST_TOO_LARGE: with what it goes
 * on from it is larger than a share; nothing has left. ST_NOT_FOUND: previous is not there any more. ST_AGAIN: all
 * shares are of other keys. */
enum status responses_store_put(struct responses_store *s, uint64_t key, const char *id, const char *previous,
                                const struct stored *parts, uint64_t now_us);
/* Appends the parts of a response, each to one buf of out [STORED_PARTS]. ST_NOT_FOUND, ST_NOMEM. */
enum status responses_store_get(struct responses_store *s, uint64_t key, const char *id, size_t n_id, uint64_t now_us,
                                struct buf *out);
/* Appends the lines of a conversation, from the first response that this one goes on from up to its own input, and,
 * with output, up to its own output. ST_NOT_FOUND, ST_NOMEM. */
enum status responses_store_past(struct responses_store *s, uint64_t key, const char *id, size_t n_id, bool output,
                                 uint64_t now_us, struct buf *out);
/* Whether the line of the item with this id is asked for. *last_out, false before: no further one is. */
typedef bool responses_want(void *ctx, const char *id, size_t n_id, bool *last_out);
/* Appends the lines of items that are wanted, of this key's responses that can be found, from the one that was used
 * last on. They do not count as used. want is called with the share locked. ST_NOMEM. */
enum status responses_store_items(struct responses_store *s, uint64_t key, responses_want *want, void *ctx,
                                  uint64_t now_us, struct buf *out);
/* Bytes of those lines with the output, or 0. */
uint64_t responses_store_past_bytes(struct responses_store *s, uint64_t key, const char *id, size_t n_id,
                                    uint64_t now_us);
/* False: it is not there. */
bool responses_store_delete(struct responses_store *s, uint64_t key, const char *id, size_t n_id, uint64_t now_us);

struct responses_store_stats {
    uint64_t bytes, bytes_used; /* of all shares; in blocks that hold something */
    uint32_t n_stored, n_share, n_share_used;
};
/* Counts over all shares. */
void responses_store_count(struct responses_store *s, struct responses_store_stats *out);
