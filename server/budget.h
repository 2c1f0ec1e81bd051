/* budget: a common bound on the bytes of many connections.   Thread: any. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct budget {
    uint64_t         bytes_max;
    _Atomic uint64_t bytes; /* taken */
};

/* Takes n bytes. False: they would exceed the bound; none are taken. */
static inline bool budget_take(struct budget *b, uint64_t n)
{
    if (atomic_fetch_add_explicit(&b->bytes, n, memory_order_relaxed) + n <= b->bytes_max) return true;
    atomic_fetch_sub_explicit(&b->bytes, n, memory_order_relaxed);
    return false;
}
static inline void budget_give(struct budget *b, uint64_t n)
{
    atomic_fetch_sub_explicit(&b->bytes, n, memory_order_relaxed);
}
