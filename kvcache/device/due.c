#include "kvcache/device/due.h"
#include "base/check.h"
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
static bool before(const struct kv_due *d, uint32_t a, uint32_t b) { return d->at[a] != d->at[b] ? d->at[a] < d->at[b] : a < b; }

static void put(struct kv_due *d, uint32_t pos, uint32_t i)
{
    d->heap[pos] = i;
    d->pos[i] = pos + 1;
}

static void settle(struct kv_due *d, uint32_t pos, uint32_t i)
{
    for (; pos > 0 && before(d, i, d->heap[(pos - 1) / 2]); pos = (pos - 1) / 2) put(d, pos, d->heap[(pos - 1) / 2]);
    for (uint32_t kid; (kid = 2 * pos + 1) < d->n_heap; pos = kid) {
        if (kid + 1 < d->n_heap && before(d, d->heap[kid + 1], d->heap[kid])) kid++;
        if (!before(d, d->heap[kid], i)) break;
        put(d, pos, d->heap[kid]);
    }
    put(d, pos, i);
}

void kv_due_set(struct kv_due *d, uint32_t i, uint32_t at)
{
    CHECK(i < d->n);
    if (d->pos[i] && d->at[i] == at) return;
    d->at[i] = at;
    settle(d, d->pos[i] ? d->pos[i] - 1 : d->n_heap++, i);
}

void kv_due_clear(struct kv_due *d, uint32_t i)
{
    CHECK(i < d->n);
    if (!d->pos[i]) return;
    uint32_t pos = d->pos[i] - 1, last = d->heap[--d->n_heap];
    d->pos[i] = 0;
    if (last != i) settle(d, pos, last);
}

uint32_t kv_due_pop(struct kv_due *d, uint32_t now)
{
    if (!d->n_heap || d->at[d->heap[0]] > now) return KV_DUE_NONE;
    uint32_t i = d->heap[0];
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
        if (d->pos[i] > 1 && before(d, i, d->heap[(d->pos[i] - 2) / 2])) return false;
    }
    return n == d->n_heap;
}
