/* shard: a part of a long test's items, so that ctest runs several processes of one program beside each other (CMakeLists.txt
 * says how many). SHARD=2/4 asks for the second of four parts; without it a program does everything. */
#pragma once
#include "test.h"
#include <stdbool.h>

/* Is item number `item` in the part that shard names ("i/n", 1 <= i <= n)? NULL: there is one part. */
static inline bool shard_has(const char *shard, uint32_t item)
{
    unsigned i, n;
    char     rest;
    if (!shard) return true;
    if (sscanf(shard, "%3u/%3u%c", &i, &n, &rest) != 2 || i < 1 || i > n) fail_msg("SHARD is %s, not i/n", shard);
    return item % n == i - 1;
}

/* Is the next item one of this process? Every process asks for all items, in the same order. */
static inline bool shard_next(void)
{
    static uint32_t next;
    return shard_has(getenv("SHARD"), next++);
}
