/* batch_seen: which custom_ids were seen and which lines are answered, in 32 to 64 bytes a line.   Thread: one
 * owner. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BATCH_LINES_MAX = 1 << 26 };

/* A custom_id by 96 bits of its hash, under seeds that no input can know. */
struct batch_seen_id {
    uint64_t hash;
    uint32_t more, line; /* line 0: a free place */
};
struct batch_seen {
    struct batch_seen_id *id;
    uint32_t              n_id, cap; /* cap: a power of two, or 0 */
    uint64_t              seed[2];
    uint8_t              *done; /* a bit for each line */
    uint64_t              n_done_bytes;
};

/* Takes no memory yet. */
void batch_seen_init(struct batch_seen *s);
/* Notes that `line` has this custom_id. *first_out: the line that had it before, or 0. ST_NOMEM. line: 1 to
 * BATCH_LINES_MAX. */
enum status batch_seen_id(struct batch_seen *s, const char *id, size_t n, uint32_t line, uint32_t *first_out);
/* Notes that a line is answered; ST_NOMEM, ST_TOO_LARGE. False of batch_seen_done: it is not. */
enum status batch_seen_set_done(struct batch_seen *s, uint64_t line);
bool        batch_seen_done(const struct batch_seen *s, uint64_t line);
void        batch_seen_free(struct batch_seen *s);
