/* due: a set of deadlines of n things; it returns the earliest.   Thread: one owner.
 * A heap (base/heap.h) over numbers 0..n-1; setting, moving and clearing one cost O(log n). Untouched memory costs
 * nothing. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_DUE_NONE UINT32_MAX

struct kv_due {
    uint64_t *heap; /* [n_heap] things, a heap by deadline            */
    uint32_t *pos;  /* [n] 1 + the thing's place in heap; 0: no deadline */
    uint32_t *at;   /* [n] the thing's deadline                       */
    uint32_t  n;
    size_t    n_heap;
};

/* n things, none with a deadline. ST_NOMEM, and nothing is held then. */
enum status kv_due_init(struct kv_due *d, uint32_t n);
void        kv_due_close(struct kv_due *d);
void        kv_due_set(struct kv_due *d, uint32_t i, uint32_t at); /* sets or changes its deadline */
void        kv_due_clear(struct kv_due *d, uint32_t i);            /* no-op without a deadline */
uint32_t    kv_due_pop(struct kv_due *d,
                       uint32_t       now); /* removes and returns a thing whose deadline is <= now; KV_DUE_NONE: none */
bool        kv_due_check(const struct kv_due *d); /* every link and the order: O(n) */
/* True if thing i has a deadline. */
static inline bool kv_due_has(const struct kv_due *d, uint32_t i) { return d->pos[i] != 0; }
