#include "base/chain.h"
#include "base/check.h"
#include <stdlib.h>
#include <string.h>

enum { BUCKETS_MIN = 16, BUCKETS_PER_ROW = 4 }; /* each other row of a bucket is a miss of the cache */

enum status chain_init(struct chain *c, uint64_t n_row, int32_t *link, size_t row_bytes)
{
    CHECK(n_row <= INT32_MAX);
    *c = (struct chain){ .n_bucket = BUCKETS_MIN, .link = (char *)link, .row_bytes = row_bytes };
    while (c->n_bucket < BUCKETS_PER_ROW * n_row && c->n_bucket < 1u << 31) c->n_bucket *= 2;
    c->bucket = malloc(c->n_bucket * sizeof *c->bucket);
    if (!c->bucket) return ST_NOMEM;
    memset(c->bucket, 0xff, c->n_bucket * sizeof *c->bucket); /* CHAIN_NONE */
    return ST_OK;
}

void chain_free(struct chain *c)
{
    free(c->bucket);
    *c = (struct chain){ 0 };
}

void chain_remove(struct chain *c, uint64_t hash, int32_t row)
{
    int32_t *at = &c->bucket[chain_bucket(c, hash)];
    while (*at != row) {
        CHECK(*at != CHAIN_NONE);
        at = chain_link(c, *at);
    }
    *at = *chain_link(c, row);
}

uint32_t chain_count(const struct chain *c, uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t b = 0; b < c->n_bucket; b++)
        for (int32_t i = c->bucket[b]; i != CHAIN_NONE && n <= max; i = chain_next(c, i)) n++;
    return n;
}
