#include "kvcache/device/pool.h"
#include "base/check.h"
#include <stdlib.h>

enum status kv_pool_init(struct kv_pool *p, uint32_t n_block, uint32_t n_guest)
{
    *p = (struct kv_pool){ .n_block = n_block, .n_free = n_block };
    p->ref = calloc((size_t)n_block + n_guest, sizeof *p->ref);
    p->free_id = calloc(n_block, sizeof *p->free_id);
    if (!p->ref || !p->free_id) {
        kv_pool_close(p);
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < n_block; i++) p->free_id[i] = n_block - 1 - i; /* the first take gets block 0 */
    return ST_OK;
}

void kv_pool_close(struct kv_pool *p)
{
    free(p->ref);
    free(p->free_id);
    *p = (struct kv_pool){ 0 };
}

uint32_t kv_pool_take(struct kv_pool *p)
{
    if (!p->n_free) return KV_NONE;
    uint32_t id = p->free_id[--p->n_free];
    CHECK(p->ref[id] == 0);
    p->ref[id] = 1;
    return id;
}

void kv_pool_put(struct kv_pool *p, uint32_t id)
{
    CHECK(id < p->n_block);
    CHECK(p->ref[id] == 0);
    CHECK(p->n_free < p->n_block);
    p->free_id[p->n_free++] = id;
}
