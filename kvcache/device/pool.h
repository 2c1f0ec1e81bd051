/* pool: the free blocks, and for each other block the number of page tables that name it.   Thread: engine.
 * init -> (take -> ref* -> unref*)* -> free. The pool does not free a block whose count falls to zero: the block may
 * stay in the tree as cache, and only kvcache/device/seq.c knows that. */
#pragma once
#include "base/status.h"
#include <stdint.h>

#define KV_NONE UINT32_MAX /* no block, no node */

struct kv_pool {
    uint32_t *ref;     /* [n_block + n_guest] page tables (and pending copies) that name it */
    uint32_t *free_id; /* stack [n_free] */
    uint32_t  n_block, n_free;
};

/* All blocks free. ST_NOMEM, and nothing is held then. */
enum status kv_pool_init(struct kv_pool *p, uint32_t n_block,
                         uint32_t n_guest); /* n_guest: counted here, never free here */
void        kv_pool_close(struct kv_pool *p);
uint32_t    kv_pool_take(struct kv_pool *p);             /* with ref 1; KV_NONE: none is free */
void        kv_pool_put(struct kv_pool *p, uint32_t id); /* ref must be 0 */
