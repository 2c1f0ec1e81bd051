/* pool: n fixed objects taken at start, a free list, a leak report.   Thread: one owner. */
#pragma once
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

struct pool {
    unsigned char *mem;
    uint32_t      *free_idx; /* stack of free indices */
    uint32_t       n, n_free;
    size_t         size; /* of one object, rounded up to 64 */
    const char    *name;
};

/* object_bytes: of one. name: for the leak report; it must stay. ST_NOMEM. */
enum status pool_init(struct pool *p, const char *name, uint32_t n, size_t object_bytes);
void       *pool_get(struct pool *p);            /* zeroed; NULL: all in use */
void        pool_put(struct pool *p, void *obj); /* CHECKs that obj is of this pool */
/* How many are out; the number 0 .. n - 1 of an object of this pool. */
uint32_t pool_used(const struct pool *p);
uint32_t pool_index(const struct pool *p, const void *obj);
void     pool_free(struct pool *p); /* logs a warning when objects are still out */
