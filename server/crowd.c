#include "server/crowd.h"
#include "base/hash.h"
#include <stdatomic.h>
#include <stdlib.h>

enum { ROWS = 2, COLUMNS = 16384 };

struct crowd {
    uint64_t         seed;
    uint32_t         connections_max;
    _Atomic uint32_t count[ROWS][COLUMNS];
};

enum status crowd_create(uint32_t connections_max, struct crowd **out)
{
    struct crowd *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    c->connections_max = connections_max;
    c->seed = hash_seed();
    *out = c;
    return ST_OK;
}

void crowd_free(struct crowd *c) { free(c); }

static _Atomic uint32_t *counter(struct crowd *c, uint64_t key, uint32_t row)
{
    return &c->count[row][hash_u64(key + row) % COLUMNS];
}

bool crowd_enter(struct crowd *c, struct peer p)
{
    if (!c) return true;
    uint64_t key = peer_hash(peer_net(p), c->seed);
    uint32_t least = UINT32_MAX;
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t now = atomic_fetch_add_explicit(counter(c, key, row), 1, memory_order_relaxed) + 1;
        if (now < least) least = now;
    }
    if (least <= c->connections_max) return true;
    crowd_leave(c, p);
    return false;
}

void crowd_leave(struct crowd *c, struct peer p)
{
    if (!c) return;
    uint64_t key = peer_hash(peer_net(p), c->seed);
    for (uint32_t row = 0; row < ROWS; row++) atomic_fetch_sub_explicit(counter(c, key, row), 1, memory_order_relaxed);
}
