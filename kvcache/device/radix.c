#include "kvcache/device/radix.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

enum { NEAR_LOOK = 32 }; /* children that kv_radix_near compares: some 100 ns each */

enum status kv_radix_init(struct kv_radix *t, uint32_t n_pool, uint32_t n_guest, uint32_t block_tokens,
                          uint32_t stem_tokens, uint32_t hash_bits)
{
    uint32_t n_block = n_pool + n_guest;
    *t = (struct kv_radix){
        .n_block = n_block, .n_pool = n_pool, .block_tokens = block_tokens, .stem_tokens = stem_tokens
    };
    t->hash_mask = hash_bits && hash_bits < 64 ? ((uint64_t)1 << hash_bits) - 1 : ~(uint64_t)0;
    t->n_bucket = 16;
    while (t->n_bucket / 4 < n_block && t->n_bucket < 1u << 31)
        t->n_bucket *= 2; /* a second node in a bucket is a miss of its own */
    t->n_stem = t->n_bucket / 4;
    t->node = calloc(n_block, sizeof *t->node);
    t->token = calloc((size_t)n_block * block_tokens, sizeof *t->token);
    t->bucket = malloc(t->n_bucket * sizeof *t->bucket);
    t->stem = malloc(t->n_stem * sizeof *t->stem);
    t->heap = calloc(n_block, sizeof *t->heap);
    if (n_guest) t->kin = malloc(n_block * sizeof *t->kin);
    if (!t->node || !t->token || !t->bucket || !t->stem || !t->heap || (n_guest && !t->kin)) {
        kv_radix_close(t);
        return ST_NOMEM;
    }
    memset(t->bucket, 0xff, t->n_bucket * sizeof *t->bucket); /* KV_NONE */
    memset(t->stem, 0xff, t->n_stem * sizeof *t->stem);
    if (t->kin) memset(t->kin, 0xff, n_block * sizeof *t->kin);
    for (uint32_t i = 0; i < n_block; i++) t->node[i].heap_pos = KV_NONE;
    /* Prompts come from outside: an unknown seed keeps anyone from building one long bucket. Nothing but speed depends
     * on it. */
    t->seed = hash_seed();
    return ST_OK;
}

void kv_radix_close(struct kv_radix *t)
{
    free(t->node);
    free(t->token);
    free(t->bucket);
    free(t->stem);
    free(t->heap);
    free(t->kin);
    *t = (struct kv_radix){ 0 };
}

static uint64_t hash_above(const struct kv_radix *t, struct kv_salt salt, uint32_t parent)
{
    return parent == KV_NONE ? hash_combine(salt.lo, salt.hi) : t->node[parent].hash;
}
static uint64_t hash_next(const struct kv_radix *t, uint64_t above, const uint32_t *ids)
{
    return hash_bytes(ids, t->block_tokens * sizeof *ids, t->seed ^ hash_u64(above)) & t->hash_mask;
}
static uint64_t node_hash(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids)
{
    return hash_next(t, hash_above(t, salt, parent), ids);
}

static uint32_t find_hashed(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids,
                            uint64_t h)
{
    for (uint32_t i = t->bucket[h & (t->n_bucket - 1)]; i != KV_NONE; i = t->node[i].next) {
        const struct kv_node *n = &t->node[i];
        if (n->hash != h || n->parent != parent) continue;
        if (n->salt.lo != salt.lo || n->salt.hi != salt.hi) continue;
        if (!memcmp(&t->token[(size_t)i * t->block_tokens], ids, t->block_tokens * sizeof *ids)) return i;
    }
    return KV_NONE;
}

uint32_t kv_radix_find(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids)
{
    return find_hashed(t, salt, parent, ids, node_hash(t, salt, parent, ids));
}

static uint32_t *stem_below(const struct kv_radix *t, uint64_t above, const uint32_t *ids)
{
    uint64_t h = hash_bytes(ids, t->stem_tokens * sizeof *ids, t->seed + hash_u64(above));
    return &t->stem[h & t->hash_mask & (t->n_stem - 1)];
}
static uint32_t *stem_of(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids)
{
    return stem_below(t, hash_above(t, salt, parent), ids);
}

void kv_radix_spots(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids, uint32_t n,
                    struct kv_spot *spot_out)
{
    uint64_t above = hash_above(t, salt, parent);
    for (uint32_t i = 0; i < n; i++, ids += t->block_tokens) {
        spot_out[i].stem = stem_below(t, above, ids);
        above = spot_out[i].hash = hash_next(t, above, ids);
        __builtin_prefetch(spot_out[i].stem, 1);
        __builtin_prefetch(&t->bucket[above & (t->n_bucket - 1)], 1);
    }
}

uint32_t kv_radix_find_at(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids,
                          const struct kv_spot *spot)
{
    return find_hashed(t, salt, parent, ids, spot->hash);
}

uint32_t kv_radix_near(const struct kv_radix *t, struct kv_salt salt, uint32_t parent, const uint32_t *ids, uint32_t n,
                       uint32_t *block_out)
{
    uint32_t best = 0, look = 0;
    if (n > t->block_tokens) n = t->block_tokens;
    if (n < t->stem_tokens) return 0;
    for (uint32_t i = *stem_of(t, salt, parent, ids); i != KV_NONE && best < n && look < NEAR_LOOK;
         i = t->node[i].stem_next) {
        const struct kv_node *c = &t->node[i];
        const uint32_t       *tok = &t->token[(size_t)i * t->block_tokens];
        uint32_t              k = 0;
        if (c->parent != parent || c->salt.lo != salt.lo || c->salt.hi != salt.hi) continue;
        while (k < n && tok[k] == ids[k]) k++;
        look += k >= t->stem_tokens; /* others are here by a collision: rare, and they must not depend on the seed */
        if (k >= t->stem_tokens && k > best) {
            best = k;
            *block_out = i;
        }
    }
    return best;
}

/* What a probe of this hash will read. */
static void fetch_node(const struct kv_radix *t, uint64_t h)
{
    uint32_t i = t->bucket[h & (t->n_bucket - 1)];
    if (i == KV_NONE) return;
    __builtin_prefetch(&t->node[i].hash);
    __builtin_prefetch(&t->node[i].next);
    __builtin_prefetch(&t->token[(size_t)i * t->block_tokens]);
}

uint32_t kv_radix_walk(const struct kv_radix *t, struct kv_salt salt, uint32_t *at, const uint32_t *ids, uint32_t n,
                       uint32_t *path_out)
{
    enum { BUCKETS = 32, NODES = 16 }; /* fetched ahead */
    uint64_t h[BUCKETS], above = hash_above(t, salt, *at);
    uint32_t i = 0, n_hash = 0, n_node = 0;
    for (; i < n; i++) {
        /* The further it has come, the further it looks: a walk that ends at once has hashed one block. */
        for (; n_hash < n && n_hash < i + BUCKETS && n_hash <= 2 * i; n_hash++) {
            above = h[n_hash % BUCKETS] = hash_next(t, above, ids + (size_t)n_hash * t->block_tokens);
            __builtin_prefetch(&t->bucket[above & (t->n_bucket - 1)]);
        }
        for (; n_node < n_hash && n_node < i + NODES; n_node++) fetch_node(t, h[n_node % BUCKETS]);
        uint32_t b = find_hashed(t, salt, *at, ids + (size_t)i * t->block_tokens, h[i % BUCKETS]);
        if (b == KV_NONE) break;
        *at = b;
        if (path_out) path_out[i] = b;
    }
    return i;
}

static bool has_list(const struct kv_radix *t, uint32_t parent) { return parent != KV_NONE && parent >= t->n_pool; }

static void kin_add(struct kv_radix *t, uint32_t block, uint32_t parent)
{
    if (!has_list(t, parent)) return;
    uint32_t *first = &t->kin[parent].first;
    t->kin[block].prev = KV_NONE;
    t->kin[block].next = *first;
    if (*first != KV_NONE) t->kin[*first].prev = block;
    *first = block;
}

static void kin_remove(struct kv_radix *t, uint32_t block, uint32_t parent)
{
    if (!has_list(t, parent)) return;
    struct kv_kin *k = &t->kin[block];
    if (k->next != KV_NONE) t->kin[k->next].prev = k->prev;
    if (k->prev != KV_NONE)
        t->kin[k->prev].next = k->next;
    else
        t->kin[parent].first = k->next;
}

/* Into the chains of its bucket and its stem. */
static void link_in(struct kv_radix *t, uint32_t block, uint32_t *stem)
{
    struct kv_node *n = &t->node[block];
    uint32_t       *head = &t->bucket[n->hash & (t->n_bucket - 1)];
    n->next = *head;
    *head = block;
    n->stem_prev = KV_NONE;
    n->stem_next = *stem;
    if (*stem != KV_NONE) t->node[*stem].stem_prev = block;
    *stem = block;
}

static void link_out(struct kv_radix *t, uint32_t block)
{
    struct kv_node *n = &t->node[block];
    uint32_t       *at = &t->bucket[n->hash & (t->n_bucket - 1)];
    while (*at != block) {
        CHECK(*at != KV_NONE);
        at = &t->node[*at].next;
    }
    *at = n->next;
    if (n->stem_next != KV_NONE) t->node[n->stem_next].stem_prev = n->stem_prev;
    if (n->stem_prev != KV_NONE)
        t->node[n->stem_prev].stem_next = n->stem_next;
    else
        *stem_of(t, n->salt, n->parent, &t->token[(size_t)block * t->block_tokens]) = n->stem_next;
}

void kv_radix_insert(struct kv_radix *t, uint32_t block, struct kv_salt salt, uint32_t parent, const uint32_t *ids)
{
    struct kv_spot spot;
    kv_radix_spots(t, salt, parent, ids, 1, &spot);
    kv_radix_insert_at(t, block, salt, parent, ids, &spot);
}

void kv_radix_insert_at(struct kv_radix *t, uint32_t block, struct kv_salt salt, uint32_t parent, const uint32_t *ids,
                        const struct kv_spot *spot)
{
    struct kv_node *n = &t->node[block];
    CHECK(n->gen == 0);
    *n = (struct kv_node){ .hash = spot->hash, .gen = ++t->gen, .salt = salt, .parent = parent, .heap_pos = KV_NONE };
    memcpy(&t->token[(size_t)block * t->block_tokens], ids, t->block_tokens * sizeof *ids);
    if (parent != KV_NONE) {
        CHECK(t->node[parent].gen != 0);
        CHECK(t->node[parent].heap_pos == KV_NONE);
        t->node[parent].n_child++;
    }
    link_in(t, block, spot->stem);
    kin_add(t, block, parent);
    t->n_node++;
}

void kv_radix_remove(struct kv_radix *t, uint32_t block)
{
    struct kv_node *n = &t->node[block];
    CHECK(n->gen != 0);
    CHECK(n->n_child == 0);
    CHECK(n->heap_pos == KV_NONE);
    link_out(t, block);
    kin_remove(t, block, n->parent);
    if (n->parent != KV_NONE) t->node[n->parent].n_child--;
    n->gen = 0;
    t->n_node--;
}

void kv_radix_replace(struct kv_radix *t, uint32_t from, uint32_t to)
{
    struct kv_node *n = &t->node[from];
    CHECK(n->gen != 0 && from >= t->n_pool && t->node[to].gen == 0 && t->node[to].heap_pos == KV_NONE);
    link_out(t, from);
    kin_remove(t, from, n->parent);
    t->node[to] = *n;
    n->gen = 0;
    n->n_child = 0;
    memcpy(&t->token[(size_t)to * t->block_tokens], &t->token[(size_t)from * t->block_tokens],
           t->block_tokens * sizeof *t->token);
    for (uint32_t c = t->kin[from].first, next; c != KV_NONE; c = next) {
        next = t->kin[c].next;
        t->node[c].parent = to;
        kin_add(t, c, to);
    }
    t->kin[from].first = KV_NONE;
    n = &t->node[to];
    link_in(t, to, stem_of(t, n->salt, n->parent, &t->token[(size_t)to * t->block_tokens]));
    kin_add(t, to, t->node[to].parent);
}

/* ---- the heap: least recent use first, ties by block id so that a run can be repeated */

static bool older(const void *ctx, uint64_t a, uint64_t b)
{
    const struct kv_radix *t = ctx;
    uint64_t               ua = t->node[a].use, ub = t->node[b].use;
    return ua != ub ? ua < ub : a < b;
}

static void stands_at(void *ctx, uint64_t block, size_t at)
{
    struct kv_radix *t = ctx;
    t->node[block].heap_pos = (uint32_t)at;
}

static struct heap_order by_use(struct kv_radix *t) { return (struct heap_order){ older, stands_at, t }; }

void kv_radix_idle(struct kv_radix *t, uint32_t block, uint64_t use)
{
    struct kv_node *n = &t->node[block];
    CHECK(n->gen != 0);
    CHECK(n->n_child == 0);
    CHECK(n->heap_pos == KV_NONE && block < t->n_pool);
    n->use = use;
    __builtin_prefetch(&t->bucket[n->hash & (t->n_bucket - 1)]); /* it may be the next to leave, and then its parent */
    if (n->parent != KV_NONE) __builtin_prefetch(&t->node[n->parent]);
    heap_push(t->heap, &t->n_heap, block, by_use(t));
}

void kv_radix_busy(struct kv_radix *t, uint32_t block)
{
    uint32_t pos = t->node[block].heap_pos;
    if (pos == KV_NONE) return;
    heap_take(t->heap, &t->n_heap, pos, by_use(t));
    t->node[block].heap_pos = KV_NONE;
}

uint32_t kv_radix_oldest(const struct kv_radix *t) { return t->n_heap ? (uint32_t)t->heap[0] : KV_NONE; }

/* ---- check */

#define FAULT(...)              \
    do {                        \
        LOG_ERROR(__VA_ARGS__); \
        return ST_INVALID;      \
    } while (0)

enum status kv_radix_check(const struct kv_radix *t, const uint32_t *ref)
{
    uint32_t n_node = 0, n_linked = 0, n_stem = 0, n_child = 0, n_inner = 0, n_idle = 0;
    for (uint32_t i = 0; i < t->n_block; i++) {
        const struct kv_node *n = &t->node[i];
        if (!n->gen) {
            if (n->heap_pos != KV_NONE) FAULT("kv: block %u is in the heap but not in the tree", i);
            continue;
        }
        n_node++;
        n_child += n->n_child;
        if (n->parent != KV_NONE) {
            const struct kv_node *p = n->parent < t->n_block ? &t->node[n->parent] : NULL;
            if (!p || !p->gen || p->gen > n->gen)
                FAULT("kv: node %u hangs on %u, which is not in the tree", i, n->parent);
            if (p->salt.lo != n->salt.lo || p->salt.hi != n->salt.hi)
                FAULT("kv: node %u has another salt than its parent", i);
            if (ref[n->parent] < ref[i])
                FAULT("kv: node %u has %u locks, its parent %u only %u", i, ref[i], n->parent, ref[n->parent]);
            n_inner++;
        }
        if (n->hash != node_hash(t, n->salt, n->parent, &t->token[(size_t)i * t->block_tokens]))
            FAULT("kv: node %u was changed", i);
        bool     leaf = n->n_child == 0 && ref[i] == 0;
        uint32_t n_kin = 0;
        for (uint32_t c = i < t->n_pool ? KV_NONE : t->kin[i].first; c != KV_NONE && n_kin <= n->n_child;
             c = t->kin[c].next)
            n_kin += t->node[c].gen && t->node[c].parent == i;
        if (i >= t->n_pool && n_kin != n->n_child)
            FAULT("kv: guest %u has %u children, %u in its list", i, n->n_child, n_kin);
        if (leaf && i >= t->n_pool) FAULT("kv: guest %u is in the tree, and nobody needs it", i);
        if (leaf != (n->heap_pos != KV_NONE))
            FAULT("kv: node %u: %u children, %u locks, heap %u", i, n->n_child, ref[i], n->heap_pos);
        if (leaf) {
            n_idle++;
            if (n->heap_pos >= t->n_heap || t->heap[n->heap_pos] != i)
                FAULT("kv: node %u is not at its place in the heap", i);
            if (n->heap_pos && older(t, i, t->heap[heap_parent(n->heap_pos)]))
                FAULT("kv: heap order broken at node %u", i);
        }
    }
    for (uint32_t b = 0; b < t->n_bucket; b++)
        for (uint32_t i = t->bucket[b]; i != KV_NONE; i = t->node[i].next) {
            if (i >= t->n_block || !t->node[i].gen || ++n_linked > n_node) FAULT("kv: bucket %u is corrupt", b);
            if ((t->node[i].hash & (t->n_bucket - 1)) != b) FAULT("kv: node %u is in the wrong bucket", i);
        }
    for (uint32_t b = 0; b < t->n_stem; b++)
        for (uint32_t i = t->stem[b], prev = KV_NONE; i != KV_NONE; prev = i, i = t->node[i].stem_next) {
            const struct kv_node *n = &t->node[i];
            if (i >= t->n_block || !n->gen || n->stem_prev != prev || ++n_stem > n_node)
                FAULT("kv: stem %u is corrupt", b);
            if (stem_of(t, n->salt, n->parent, &t->token[(size_t)i * t->block_tokens]) != &t->stem[b])
                FAULT("kv: node %u is in the wrong stem", i);
        }
    if (n_node != t->n_node || n_linked != n_node || n_stem != n_node || n_child != n_inner || n_idle != t->n_heap)
        FAULT("kv: tree counts differ: %u nodes, %u known, %u linked, %u of %u children, %u of %zu idle leaves", n_node,
              t->n_node, n_linked, n_child, n_inner, n_idle, t->n_heap);
    return ST_OK;
}
