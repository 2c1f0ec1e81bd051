/* chain: finds rows of the caller's table by a hash of theirs: four buckets for every row or more, and a link in each row
 * to the next one of its bucket. Numbers of rows and links are int32_t; CHAIN_NONE ends a chain.   Thread: one owner.
 * To look for a key:  int32_t i = chain_first(c, hash); while (i != CHAIN_NONE && !equal(i)) i = chain_next(c, i); */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { CHAIN_NONE = -1 };

struct chain {
    int32_t *bucket;   /* [n_bucket] the first row of each; its own */
    uint32_t n_bucket; /* a power of two */
    char    *link;     /* of row 0; the table is the caller's */
    size_t   row_bytes;
};

/* link: the int32_t of the table's row 0 that chains may use while the row is in one. n_row: how many the table has, at
 * most INT32_MAX (CHECKed). */
enum status chain_init(struct chain *c, uint64_t n_row, int32_t *link, size_t row_bytes);
void        chain_free(struct chain *c);

/* The link within a row; the bucket of a hash; the first row of that bucket, and the row behind a row (CHAIN_NONE:
 * there is none): */
static inline int32_t *chain_link(const struct chain *c, int32_t row)
{
    return (int32_t *)(void *)(c->link + (size_t)row * c->row_bytes);
}
static inline uint32_t chain_bucket(const struct chain *c, uint64_t hash) { return (uint32_t)hash & (c->n_bucket - 1); }
static inline int32_t  chain_first(const struct chain *c, uint64_t hash) { return c->bucket[chain_bucket(c, hash)]; }
static inline int32_t  chain_next(const struct chain *c, int32_t row) { return *chain_link(c, row); }
/* Asks for the bucket of a hash that will soon be looked at. */
static inline void chain_fetch(const struct chain *c, uint64_t hash)
{
    __builtin_prefetch(&c->bucket[chain_bucket(c, hash)]);
}
/* Before all others of its bucket. The row is in no chain. */
static inline void chain_add(struct chain *c, uint64_t hash, int32_t row)
{
    int32_t *head = &c->bucket[chain_bucket(c, hash)];
    *chain_link(c, row) = *head;
    *head = row;
}
/* The row is in the chain of that hash (CHECKed). Its link is what it was. */
void chain_remove(struct chain *c, uint64_t hash, int32_t row);
/* How many rows all chains have together, at most max + 1: a check stops there when they run in a circle. */
uint32_t chain_count(const struct chain *c, uint32_t max);
