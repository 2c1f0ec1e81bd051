#include "kvcache/device/due.h"
#include "base/check.h"
#include "base/heap.h"
#include <stdlib.h>

enum status kv_due_init(struct kv_due *d, uint32_t n)
{
    *d = (struct kv_due){ .n = n };
    d->heap = calloc(n, sizeof *d->heap);
    d->pos = calloc(n, sizeof *d->pos);
    d->at = calloc(n, sizeof *d->at);
    if (d->heap && d->pos && d->at) return ST_OK;
    kv_due_close(d);
    return ST_NOMEM;
}

void kv_due_close(struct kv_due *d)
{
    free(d->heap);
    free(d->pos);
    free(d->at);
    *d = (struct kv_due){ 0 };
}

/* By time, then by number, so that a run can be repeated. */
static bool before(const void *ctx, uint64_t a, uint64_t b)
{
    const struct kv_due *d = ctx;
    return d->at[a] != d->at[b] ? d->at[a] < d->at[b] : a < b;
}

static void put(void *ctx, uint64_t i, size_t at)
{
    struct kv_due *d = ctx;
    d->pos[i] = (uint32_t)at + 1;
}

static struct heap_order order(struct kv_due *d) { return (struct heap_order){ before, put, d }; }

void kv_due_set(struct kv_due *d, uint32_t i, uint32_t at)
{
    CHECK(i < d->n);
    if (d->pos[i] && d->at[i] == at) return;
    d->at[i] = at;
    if (d->pos[i])
        heap_settle(d->heap, d->n_heap, d->pos[i] - 1, i, order(d));
    else
        heap_push(d->heap, &d->n_heap, i, order(d));
}

void kv_due_clear(struct kv_due *d, uint32_t i)
{
    CHECK(i < d->n);
    if (!d->pos[i]) return;
    heap_take(d->heap, &d->n_heap, d->pos[i] - 1, order(d));
    d->pos[i] = 0;
}

uint32_t kv_due_pop(struct kv_due *d, uint32_t now)
{
    if (!d->n_heap || d->at[d->heap[0]] > now) return KV_DUE_NONE;
    uint32_t i = (uint32_t)d->heap[0];
    kv_due_clear(d, i);
    return i;
}

bool kv_due_check(const struct kv_due *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++) {
        if (!d->pos[i]) continue;
        n++;
        if (d->pos[i] > d->n_heap || d->heap[d->pos[i] - 1] != i) return false;
        if (d->pos[i] > 1 && before(d, i, d->heap[heap_parent(d->pos[i] - 1)])) return false;
    }
    return n == d->n_heap;
}
