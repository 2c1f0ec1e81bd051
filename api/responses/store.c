#include "api/responses/store.h"
#include "base/check.h"
#include "base/hash.h"
#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A share is an array of blocks. A response is a chain of blocks, and the first one begins with its struct node. Blocks
 * have numbers, so links are numbers too: that of a node is the number of its first block. */

#define NONE UINT32_MAX /* no block */
enum { BLOCKS_MAX = INT32_MAX };

struct node {
    char     id[STORED_ID_BYTES];
    bool     named;           /* its id can be found; else it is there for what refers to it */
    uint32_t previous;        /* the node that it goes on from */
    uint32_t n_ref;           /* nodes that go on from it, puts that are about to, and one if it is named */
    uint32_t next_in_bucket;  /* of a named one */
    uint32_t older, newer;    /* of a named one: the order of use */
    uint32_t last;            /* its last block */
    uint32_t n_block;         /* of it and all that it goes on from */
    uint32_t n[STORED_PARTS]; /* bytes of its parts, which follow each other */
    uint32_t on_path;         /* scratch: the node behind it on the way to the one that was asked for */
    uint64_t past_bytes;      /* lines of it and all that it goes on from */
    uint64_t used_us;
};

struct block {
    uint32_t next;
    char     bytes[STORED_BLOCK_BYTES - sizeof(uint32_t)];
};

struct share {
    pthread_mutex_t lock;
    uint64_t        key;
    bool            taken;
    uint32_t        n_named, n_free, free; /* free: the first block of the free ones */
    uint32_t        oldest, newest;
    uint32_t       *bucket;
    struct block   *block;
};

struct responses_store {
    pthread_mutex_t lock; /* of which key has which share; taken before that of a share */
    uint64_t        life_us, seed;
    uint32_t        n_share, n_block, n_bucket; /* of each share; n_bucket: a power of two */
    struct share   *share;
    void           *map;
    size_t          map_bytes;
};

static struct node *node_of(struct share *h, uint32_t i)
{
    static_assert(sizeof(struct node) % 8 == 0 && sizeof(struct node) < sizeof(struct block) / 2, "it leaves room");
    return (struct node *)(void *)((char *)&h->block[i] + 8);
}

/* The first byte of a block that is for text. */
static size_t text_at(bool first) { return first ? 8 - sizeof(uint32_t) + sizeof(struct node) : 0; }

/* ---------------------------------------------------------------- life */

static void share_init(const struct responses_store *s, struct share *h)
{
    h->oldest = h->newest = NONE;
    h->free = 0;
    h->n_free = s->n_block;
    for (uint32_t i = 0; i < s->n_block; i++) h->block[i].next = i + 1 < s->n_block ? i + 1 : NONE;
    for (uint32_t i = 0; i < s->n_bucket; i++) h->bucket[i] = NONE;
}

enum status responses_store_create(uint64_t share_bytes, uint32_t n_share, uint64_t life_us,
                                   struct responses_store **s_out)
{
    struct responses_store *s = calloc(1, sizeof *s);
    uint64_t                n_block = share_bytes / STORED_BLOCK_BYTES;
    if (!s) return ST_NOMEM;
    CHECK(n_block && n_block < BLOCKS_MAX && n_share);
    pthread_mutex_init(&s->lock, NULL);
    s->life_us = life_us;
    s->seed = hash_seed();
    s->n_block = (uint32_t)n_block;
    s->n_bucket = 1;
    while (s->n_bucket < s->n_block / 2) s->n_bucket *= 2;
    size_t one = s->n_block * sizeof(struct block) + s->n_bucket * sizeof(uint32_t);
    one = (one + 63) / 64 * 64;
    s->map_bytes = one * n_share;
    s->map = mmap(NULL, s->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    s->share = calloc(n_share, sizeof *s->share);
    if (s->map == MAP_FAILED) s->map = NULL;
    if (!s->map || !s->share) {
        responses_store_free(s);
        return ST_NOMEM;
    }
    for (; s->n_share < n_share; s->n_share++) {
        struct share *h = &s->share[s->n_share];
        pthread_mutex_init(&h->lock, NULL);
        h->block = (struct block *)(void *)((char *)s->map + one * s->n_share);
        h->bucket = (uint32_t *)(void *)(h->block + s->n_block);
        share_init(s, h);
    }
    *s_out = s;
    return ST_OK;
}

void responses_store_free(struct responses_store *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n_share; i++) pthread_mutex_destroy(&s->share[i].lock);
    pthread_mutex_destroy(&s->lock);
    if (s->map) munmap(s->map, s->map_bytes);
    free(s->share);
    free(s);
}

/* ---------------------------------------------------------------- names; the share's lock is held */

static uint32_t *bucket_of(const struct responses_store *s, struct share *h, const char *id)
{
    return &h->bucket[hash_bytes(id, STORED_ID_BYTES, s->seed) & (s->n_bucket - 1)];
}

static uint32_t find(const struct responses_store *s, struct share *h, const char *id, size_t n_id)
{
    if (n_id != STORED_ID_BYTES) return NONE;
    uint32_t i = *bucket_of(s, h, id);
    while (i != NONE && memcmp(node_of(h, i)->id, id, STORED_ID_BYTES) != 0) i = node_of(h, i)->next_in_bucket;
    return i;
}

static void order_out(struct share *h, uint32_t i)
{
    const struct node *n = node_of(h, i);
    if (n->older == NONE)
        h->oldest = n->newer;
    else
        node_of(h, n->older)->newer = n->newer;
    if (n->newer == NONE)
        h->newest = n->older;
    else
        node_of(h, n->newer)->older = n->older;
}

static void order_in(struct share *h, uint32_t i, uint64_t now_us)
{
    struct node *n = node_of(h, i);
    n->used_us = now_us;
    n->newer = NONE;
    n->older = h->newest;
    if (h->newest == NONE)
        h->oldest = i;
    else
        node_of(h, h->newest)->newer = i;
    h->newest = i;
}

/* One reference less. What nothing refers to is freed, and then refers to nothing itself. */
static void unref(struct share *h, uint32_t i)
{
    while (i != NONE && --node_of(h, i)->n_ref == 0) {
        uint32_t previous = node_of(h, i)->previous, last = node_of(h, i)->last;
        for (uint32_t b = i; b != last; b = h->block[b].next) h->n_free++;
        h->n_free++;
        h->block[last].next = h->free;
        h->free = i;
        i = previous;
    }
}

static void unname(const struct responses_store *s, struct share *h, uint32_t i)
{
    struct node *n = node_of(h, i);
    uint32_t    *at = bucket_of(s, h, n->id);
    while (*at != i) at = &node_of(h, *at)->next_in_bucket;
    *at = n->next_in_bucket;
    order_out(h, i);
    n->named = false;
    h->n_named--;
    unref(h, i);
}

static void expire(const struct responses_store *s, struct share *h, uint64_t now_us)
{
    while (h->oldest != NONE && node_of(h, h->oldest)->used_us + s->life_us <= now_us) unname(s, h, h->oldest);
}

/* ---------------------------------------------------------------- shares */

/* The share of a key, locked. NULL: it has none, and with take: nor can it have one. */
static struct share *share_lock(struct responses_store *s, uint64_t key, bool take, uint64_t now_us)
{
    struct share *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; !found && i < s->n_share; i++)
        if (s->share[i].taken && s->share[i].key == key) found = &s->share[i];
    if (found) pthread_mutex_lock(&found->lock);
    for (uint32_t i = 0; !found && take && i < s->n_share; i++) {
        struct share *h = &s->share[i];
        pthread_mutex_lock(&h->lock);
        expire(s, h, now_us);
        /* where no id is left, nothing is: a put is over when it unlocks the share */
        if (h->taken && h->n_named) {
            pthread_mutex_unlock(&h->lock);
            continue;
        }
        CHECK(h->n_free == s->n_block);
        h->taken = true;
        h->key = key;
        found = h;
    }
    pthread_mutex_unlock(&s->lock);
    if (found) expire(s, found, now_us);
    return found;
}

/* The same, and the node of id, which counts as used now. NULL: either is not there. */
static struct share *node_lock(struct responses_store *s, uint64_t key, const char *id, size_t n_id, uint64_t now_us,
                               uint32_t *i_out)
{
    struct share *h = share_lock(s, key, false, now_us);
    if (!h) return NULL;
    uint32_t i = find(s, h, id, n_id);
    if (i == NONE) {
        pthread_mutex_unlock(&h->lock);
        return NULL;
    }
    order_out(h, i);
    order_in(h, i, now_us);
    *i_out = i;
    return h;
}

/* ---------------------------------------------------------------- text */

/* A place in a chain of blocks. */
struct place {
    uint32_t block;
    size_t   at;
};

static struct place text_begin(uint32_t i) { return (struct place){ i, text_at(true) }; }

/* Moves n bytes on from a place: into it (from), or out of it (to), or past them. */
static void move(struct share *h, struct place *p, size_t n, const char *from, struct buf *to)
{
    while (n) {
        if (p->at == sizeof h->block->bytes) *p = (struct place){ h->block[p->block].next, text_at(false) };
        size_t room = sizeof h->block->bytes - p->at, k = n < room ? n : room;
        char  *here = h->block[p->block].bytes + p->at;
        if (from) {
            memcpy(here, from, k);
            from += k;
        }
        if (to) buf_put(to, here, k);
        p->at += k;
        n -= k;
    }
}

static uint32_t blocks_of(const struct responses_store *s, const struct stored *parts)
{
    const size_t each = sizeof(((struct block *)0)->bytes);
    uint64_t     n = text_at(true);
    for (int k = 0; k < STORED_PARTS; k++) {
        if (parts->n[k] > (uint64_t)s->n_block * each) return NONE;
        n += parts->n[k];
    }
    n = (n + each - 1) / each;
    return n > s->n_block ? NONE : (uint32_t)n;
}

/* ---------------------------------------------------------------- what callers do */

/* There is room for it once all others have left. The new node has one reference, and holds one of previous, which is
 * given to it. */
static void put(const struct responses_store *s, struct share *h, const char *id, uint32_t previous,
                const struct stored *parts, uint32_t n_block, uint64_t now_us)
{
    while (h->n_free < n_block) unname(s, h, h->oldest);
    uint32_t     i = h->free, last = i;
    struct node *n = node_of(h, i);
    for (uint32_t k = 1; k < n_block; k++) last = h->block[last].next;
    h->free = h->block[last].next;
    h->n_free -= n_block;
    h->block[last].next = NONE;
    *n = (struct node){ .named = true, .previous = previous, .n_ref = 1, .last = last, .n_block = n_block };
    memcpy(n->id, id, STORED_ID_BYTES);
    n->past_bytes = parts->n[STORED_INPUT] + parts->n[STORED_OUTPUT];
    if (previous != NONE) {
        n->n_block += node_of(h, previous)->n_block;
        n->past_bytes += node_of(h, previous)->past_bytes;
    }
    struct place p = text_begin(i);
    for (int k = 0; k < STORED_PARTS; k++) {
        n->n[k] = (uint32_t)parts->n[k];
        move(h, &p, parts->n[k], parts->part[k], NULL);
    }
    uint32_t *at = bucket_of(s, h, id);
    n->next_in_bucket = *at;
    *at = i;
    order_in(h, i, now_us);
    h->n_named++;
}

enum status responses_store_put(struct responses_store *s, uint64_t key, const char *id, const char *previous,
                                const struct stored *parts, uint64_t now_us)
{
    uint32_t      n_block = blocks_of(s, parts), before = NONE;
    struct share *h = n_block == NONE ? NULL : share_lock(s, key, true, now_us);
    enum status   st = ST_OK;
    if (n_block == NONE) return ST_TOO_LARGE;
    if (!h) return ST_AGAIN;
    if (previous) before = find(s, h, previous, STORED_ID_BYTES);
    if (previous && before == NONE)
        st = ST_NOT_FOUND;
    else if (before != NONE && node_of(h, before)->n_block + n_block > s->n_block)
        st = ST_TOO_LARGE;
    else if (find(s, h, id, STORED_ID_BYTES) != NONE)
        st = ST_INVALID; /* ids are drawn: it cannot be */
    if (!st && before != NONE) node_of(h, before)->n_ref++;
    if (!st) put(s, h, id, before, parts, n_block, now_us);
    pthread_mutex_unlock(&h->lock);
    return st;
}

enum status responses_store_get(struct responses_store *s, uint64_t key, const char *id, size_t n_id, uint64_t now_us,
                                struct buf *out)
{
    uint32_t      i;
    struct share *h = node_lock(s, key, id, n_id, now_us, &i);
    bool          failed = false;
    if (!h) return ST_NOT_FOUND;
    struct place p = text_begin(i);
    for (int k = 0; k < STORED_PARTS; k++) {
        move(h, &p, node_of(h, i)->n[k], NULL, &out[k]);
        failed |= out[k].failed;
    }
    pthread_mutex_unlock(&h->lock);
    return failed ? ST_NOMEM : ST_OK;
}

enum status responses_store_past(struct responses_store *s, uint64_t key, const char *id, size_t n_id, bool output,
                                 uint64_t now_us, struct buf *out)
{
    uint32_t      i, first;
    struct share *h = node_lock(s, key, id, n_id, now_us, &i);
    if (!h) return ST_NOT_FOUND;
    node_of(h, i)->on_path = NONE;
    for (first = i; node_of(h, first)->previous != NONE; first = node_of(h, first)->previous)
        node_of(h, node_of(h, first)->previous)->on_path = first;
    for (; first != NONE; first = node_of(h, first)->on_path) {
        struct place       p = text_begin(first);
        const struct node *n = node_of(h, first);
        bool               both = output || first != i;
        move(h, &p, n->n[STORED_INPUT] + (both ? (size_t)n->n[STORED_OUTPUT] : 0), NULL, out);
    }
    pthread_mutex_unlock(&h->lock);
    return out->failed ? ST_NOMEM : ST_OK;
}

/* Adds those of these lines that are wanted. False: no more are. */
static bool add_wanted(const struct buf *lines, responses_want *want, void *ctx, struct buf *out)
{
    const char *p = lines->data, *end = p + lines->n;
    bool        last = false;
    while (p < end && !last) {
        const char *blank = memchr(p, ' ', (size_t)(end - p)), *next = memchr(p, '\n', (size_t)(end - p));
        if (want(ctx, p, (size_t)(blank - p), &last)) buf_put(out, p, (size_t)(next + 1 - p));
        p = next + 1;
    }
    return !last;
}

enum status responses_store_items(struct responses_store *s, uint64_t key, responses_want *want, void *ctx,
                                  uint64_t now_us, struct buf *out)
{
    struct share *h = share_lock(s, key, false, now_us);
    struct buf    lines;
    bool          more = true;
    if (!h) return ST_OK;
    buf_init(&lines, (size_t)s->n_block * sizeof(struct block));
    for (uint32_t i = h->newest; i != NONE && more && !lines.failed; i = node_of(h, i)->older) {
        const struct node *n = node_of(h, i);
        struct place       p = text_begin(i);
        buf_clear(&lines);
        move(h, &p, (size_t)n->n[STORED_INPUT] + n->n[STORED_OUTPUT], NULL, &lines);
        if (!lines.failed) more = add_wanted(&lines, want, ctx, out);
    }
    pthread_mutex_unlock(&h->lock);
    bool failed = lines.failed || out->failed;
    buf_free(&lines);
    return failed ? ST_NOMEM : ST_OK;
}

uint64_t responses_store_past_bytes(struct responses_store *s, uint64_t key, const char *id, size_t n_id,
                                    uint64_t now_us)
{
    uint32_t      i;
    struct share *h = node_lock(s, key, id, n_id, now_us, &i);
    if (!h) return 0;
    uint64_t n = node_of(h, i)->past_bytes;
    pthread_mutex_unlock(&h->lock);
    return n;
}

bool responses_store_delete(struct responses_store *s, uint64_t key, const char *id, size_t n_id, uint64_t now_us)
{
    uint32_t      i;
    struct share *h = node_lock(s, key, id, n_id, now_us, &i);
    if (!h) return false;
    unname(s, h, i);
    pthread_mutex_unlock(&h->lock);
    return true;
}

void responses_store_count(struct responses_store *s, struct responses_store_stats *out)
{
    *out = (struct responses_store_stats){ .bytes = (uint64_t)s->n_share * s->n_block * STORED_BLOCK_BYTES,
                                           .n_share = s->n_share };
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->n_share; i++) {
        struct share *h = &s->share[i];
        pthread_mutex_lock(&h->lock);
        out->bytes_used += (uint64_t)(s->n_block - h->n_free) * STORED_BLOCK_BYTES;
        out->n_stored += h->n_named;
        out->n_share_used += h->taken;
        pthread_mutex_unlock(&h->lock);
    }
    pthread_mutex_unlock(&s->lock);
}
