/* pack_format: the name of an object of blocks, and the table of its blocks at its end. Pure functions.   Thread: any.
 *
 *   [record 0][record 1] ... [record n - 1][table: head, n rows, zeros up to 4096]
 *
 * A record has the form that blocks have everywhere outside the device (record.h). The name has the fingerprint of the
 * model (so two models never share an object), the time of writing, and a random number, which is also the seq of each
 * record. The table has a digest under the key of the tiers: without that key nobody can forge a table. */
#pragma once
#include "kvcache/record.h"

enum { PACK_NAME = 80, PACK_RECORDS_MAX = 4096, PACK_PAGE = 4096, PACK_VERSION = 1, PACK_MODEL = 33 };

struct pack_id {
    uint64_t time_ms; /* Unix time by the writer's clock; the oldest objects are removed first */
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

/* Bytes of the table of n blocks, whole pages; and of an object of n records with its table. */
static inline uint64_t pack_table_bytes(uint32_t n)
{
    return (128 + (uint64_t)n * sizeof(struct pack_row) + PACK_PAGE - 1) / PACK_PAGE * PACK_PAGE;
}
static inline uint64_t pack_bytes(uint64_t record_bytes, uint32_t n) { return n * record_bytes + pack_table_bytes(n); }
/* How many records an object of `bytes` has; 0: no object of ours has that size. */
uint32_t pack_records(uint64_t record_bytes, uint64_t bytes);

/* Writes the part of a name that stands for the model. */
void pack_model(const struct kv_key *fingerprint, char out[PACK_MODEL]);
void pack_name(const struct kv_key *fingerprint, struct pack_id id, char out[PACK_NAME]);
/* Whether `name` is the name of an object of blocks, of any model; model_out: its model's part. */
bool pack_name_parse(const char *name, char model_out[PACK_MODEL], struct pack_id *id_out);

/* Fills table [pack_table_bytes(n)]; row [n_row], at most n: the records that are complete. */
void pack_table_make(void *table, const struct digest_key *dk, const struct pack_shape *shape, uint64_t seq, uint32_t n,
                     const struct pack_row *row, uint32_t n_row);
/* Checks a table and returns its rows [*n_row_out], which lie inside it. NULL: the table is not one of that object and
 * shape under this key. */
const struct pack_row *pack_table_open(const void *table, const struct digest_key *dk, const struct pack_shape *shape,
                                       uint64_t seq, uint32_t n, uint32_t *n_row_out);
