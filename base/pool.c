#include "base/pool.h"
#include "base/asan.h"
#include "base/check.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { POOL_AHEAD = 3, POOL_ALIGN = 64 }; /* a cache line: two objects never share one */

/* free_idx[0..n) is the stack; free_idx[n + i] tells whether object i is out. */

enum status pool_init(struct pool *p, const char *name, uint32_t n, size_t object_bytes)
{
    size_t size, bytes;
    if (__builtin_add_overflow(object_bytes, (size_t)POOL_ALIGN - 1, &size)) return ST_NOMEM;
    size -= size % POOL_ALIGN;
    if (!size) size = POOL_ALIGN;
    if (__builtin_mul_overflow(size, (size_t)n, &bytes)) return ST_NOMEM;
    unsigned char *mem = aligned_alloc(POOL_ALIGN, bytes ? bytes : POOL_ALIGN);
    uint32_t      *idx = calloc(n ? (size_t)n * 2 : 1, sizeof *idx);
    if (!mem || !idx) {
        LOG_ERROR("pool: no memory for %u %s of %zu bytes", n, name, object_bytes);
        free(mem);
        free(idx);
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < n; i++) idx[i] = n - 1 - i; /* the lowest comes first */
    memset(mem, 0, bytes);                               /* touched now: no page fault later */
    ASAN_POISON(mem, bytes);
    *p = (struct pool){ .mem = mem, .free_idx = idx, .n = n, .n_free = n, .size = size, .name = name };
    return ST_OK;
}

void *pool_get(struct pool *p)
{
    if (!p->n_free) return NULL;
    uint32_t i = p->free_idx[--p->n_free];
    void    *obj = p->mem + i * p->size;
    if (p->n_free >= POOL_AHEAD) { /* the next but two: another core may have written it last */
        const unsigned char *then = p->mem + p->free_idx[p->n_free - POOL_AHEAD] * p->size;
        __builtin_prefetch(then, 1);
        if (p->size > POOL_ALIGN) __builtin_prefetch(then + POOL_ALIGN, 1);
    }
    p->free_idx[p->n + i] = 1;
    ASAN_UNPOISON(obj, p->size);
    return memset(obj, 0, p->size);
}

uint32_t pool_index(const struct pool *p, const void *obj)
{
    uintptr_t at = (uintptr_t)obj, first = (uintptr_t)p->mem;
    CHECK(at >= first);
    CHECK(at < first + p->n * p->size);
    CHECK((at - first) % p->size == 0);
    return (uint32_t)((at - first) / p->size);
}

void pool_put(struct pool *p, void *obj)
{
    uint32_t i = pool_index(p, obj);
    CHECK(p->free_idx[p->n + i] == 1); /* else: put twice */
    p->free_idx[p->n + i] = 0;
    p->free_idx[p->n_free++] = i;
    ASAN_POISON(obj, p->size);
}

uint32_t pool_used(const struct pool *p) { return p->n - p->n_free; }

void pool_free(struct pool *p)
{
    if (!p->mem) return;
    if (pool_used(p)) {
        uint32_t first = 0;
        while (!p->free_idx[p->n + first]) first++;
        LOG_WARN("pool: %u of %u %s are still out, the first is number %u", pool_used(p), p->n, p->name, first);
    }
    ASAN_UNPOISON(p->mem, p->n * p->size);
    free(p->mem);
    free(p->free_idx);
    *p = (struct pool){ 0 };
}
