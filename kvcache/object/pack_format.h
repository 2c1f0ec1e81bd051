/* pack_format: an object of blocks: its name, and the table at its end that says which blocks it holds.   Thread: any.
 *
 *   [record 0][record 1] ... [record n - 1][table: head, n rows, zeros up to 4096]
 *
 * A record is as everywhere outside the device (record.h). The name says which model computed it (its fingerprint, so
 * two models never meet), when it was written, and a random number that every record of it bears as its seq. The table
 * carries a digest under the key of the tiers: without the key nobody makes one. */
#pragma once
#include "kvcache/record.h"

enum { PACK_NAME = 80, PACK_RECORDS_MAX = 4096, PACK_PAGE = 4096, PACK_VERSION = 1, PACK_MODEL = 33 };

struct pack_id {
    uint64_t time_ms; /* of the writer's wall clock: the oldest go first */
    uint64_t seq;     /* random */
};
struct pack_row {
    struct kv_key key;
    struct digest payload;
    uint32_t      index;
    uint32_t      begins; /* 1: the first block of a prompt, 0: not */
    uint64_t      unused;
};
_Static_assert(sizeof(struct pack_row) == 64, "rows of a table");
struct pack_shape {
    struct kv_key fingerprint;
    uint64_t      payload_bytes;
    uint32_t      block_tokens;
};

static inline uint64_t pack_table_bytes(uint32_t n)
{
    return (128 + (uint64_t)n * sizeof(struct pack_row) + PACK_PAGE - 1) / PACK_PAGE * PACK_PAGE;
}
static inline uint64_t pack_bytes(uint64_t record_bytes, uint32_t n) { return n * record_bytes + pack_table_bytes(n); }
/* How many records an object of so many bytes has; 0: it is none of ours. */
uint32_t pack_records(uint64_t record_bytes, uint64_t bytes);

void pack_model(const struct kv_key *fingerprint, char out[PACK_MODEL]);
void pack_name(const struct kv_key *fingerprint, struct pack_id id, char out[PACK_NAME]);
/* Whether it is such a name; model_out: which model's. */
bool pack_name_parse(const char *name, char model_out[PACK_MODEL], struct pack_id *id_out);

/* Fills table [pack_table_bytes(n)]; rows are of the records that are whole, at most n. */
void pack_table_make(void *table, const struct digest_key *dk, const struct pack_shape *shape, uint64_t seq, uint32_t n,
                     const struct pack_row *row, uint32_t n_row);
/* The rows [n_row] inside the table; NULL: no table of that object and shape under this key. */
const struct pack_row *pack_table_open(const void *table, const struct digest_key *dk, const struct pack_shape *shape,
                                       uint64_t seq, uint32_t n, uint32_t *n_row_out);
