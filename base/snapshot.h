/* snapshot: the latest version of a struct that one thread writes and others read, without a lock.   Thread: put: one;
 * get: any.
 * There are two copies. A put writes the older one and then counts up, so a reader has the whole time of the next put
 * to read the newer one. A reader that was slower than that sees by the count that its copy may be torn, and reads
 * again. The writer never waits. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct snapshot {
    size_t            bytes, n_word;
    _Atomic uint64_t *word;  /* [2, n_word] */
    _Atomic uint64_t  n_put; /* the newest copy is (n_put - 1) % 2 */
};

/* Of structs of so many bytes. False: no memory. */
static inline bool snapshot_init(struct snapshot *s, size_t bytes)
{
    s->bytes = bytes;
    s->n_word = (bytes + 7) / 8;
    s->word = calloc(2 * s->n_word, sizeof *s->word);
    atomic_init(&s->n_put, 0);
    return s->word != NULL;
}
static inline void snapshot_free(struct snapshot *s) { free(s->word); }

/* Makes *from, of the size given to snapshot_init, the latest version. One thread alone; it never waits. */
static inline void snapshot_put(struct snapshot *s, const void *from)
{
    uint64_t          n = atomic_load_explicit(&s->n_put, memory_order_relaxed);
    _Atomic uint64_t *to = s->word + (n % 2) * s->n_word;
    for (size_t i = 0; i < s->n_word; i++) {
        uint64_t v = 0;
        size_t   left = s->bytes - 8 * i;
        memcpy(&v, (const char *)from + 8 * i, left < 8 ? left : 8);
        atomic_store_explicit(&to[i], v, memory_order_release); /* whoever sees it sees the count of the put before */
    }
    atomic_store_explicit(&s->n_put, n + 1, memory_order_release);
}

/* False: nothing was put yet, and out is left as it is. */
static inline bool snapshot_get(const struct snapshot *s, void *out)
{
    uint64_t n = atomic_load_explicit(&s->n_put, memory_order_acquire), before;
    if (!n) return false;
    do {
        const _Atomic uint64_t *from = s->word + ((n - 1) % 2) * s->n_word;
        for (size_t i = 0; i < s->n_word; i++) {
            uint64_t v = atomic_load_explicit(&from[i], memory_order_acquire);
            size_t   left = s->bytes - 8 * i;
            memcpy((char *)out + 8 * i, &v, left < 8 ? left : 8);
        }
        before = n;
        n = atomic_load_explicit(&s->n_put, memory_order_acquire);
    } while (n != before);
    return true;
}
