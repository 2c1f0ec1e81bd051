/* due: which of n things comes to its time first.   Thread: one owner.
 * A heap (base/heap.h) over numbers 0..n-1; setting, moving and clearing one cost O(log n). Untouched memory costs nothing. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_DUE_NONE UINT32_MAX

struct kv_due {
    uint64_t *heap; /* [n_heap] things, the first one first           */
    uint32_t *pos;  /* [n] 1 + where it stands in heap; 0: has no time */
    uint32_t *at;   /* [n] its time                                   */
    uint32_t  n;
    size_t    n_heap;
};

enum status        kv_due_init(struct kv_due *d, uint32_t n);
void               kv_due_close(struct kv_due *d);
void               kv_due_set(struct kv_due *d, uint32_t i, uint32_t at); /* gives it a time, or another one */
void               kv_due_clear(struct kv_due *d, uint32_t i);            /* no-op when it has none */
uint32_t           kv_due_pop(struct kv_due *d, uint32_t now);            /* one whose time is now or was before; KV_DUE_NONE: none */
bool               kv_due_check(const struct kv_due *d);                  /* every link and the order: O(n) */
static inline bool kv_due_has(const struct kv_due *d, uint32_t i) { return d->pos[i] != 0; }
