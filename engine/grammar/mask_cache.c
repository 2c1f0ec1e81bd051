/* mask_cache: caches the parts of masks that depend only on a state of the automaton. */
#include "engine/grammar/mask_impl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_BYTES_MAX = 2048, FEW_BYTES = 2 << 20 };
enum { ENTRIES = 64, BYTES_MAX = 2 << 20, SEEN_MIN = 1000, SHARED = 4096, SHARED_BYTES_MAX = 32 << 20 };

struct slot {
    struct mask_entry *e;
    uint32_t           state;
    bool               apart;
    bool               used; /* since the hand came by: second chance */
};

struct mask_cache {
    pthread_mutex_t    lock;
    struct slot        slot[ENTRIES];
    uint32_t           hand;
    size_t             bytes;
    struct mask_entry *few; /* that stay with their states */
    size_t             few_bytes;
};

/* The parts of all grammars over one vocabulary, by what their states say (lex_state.sign): most schemas have the same
 * strings and numbers. A newer part takes the place of an older one. */
struct mask_shared {
    pthread_mutex_t    lock;
    struct mask_entry *entry[SHARED];
    uint32_t           hand;
    size_t             bytes;
};

static struct mask_entry *entry_keep(struct mask_entry *e)
{
    atomic_fetch_add_explicit(&e->n_user, 1, memory_order_relaxed);
    return e;
}

/* ---------------------------------------------------------------- of all grammars */

struct mask_shared *mask_shared_create(void)
{
    struct mask_shared *m = calloc(1, sizeof *m);
    if (m) pthread_mutex_init(&m->lock, NULL);
    return m;
}

void mask_shared_free(struct mask_shared *m)
{
    if (!m) return;
    for (int i = 0; i < SHARED; i++) mask_entry_free(m->entry[i]);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static struct mask_entry *shared_get(struct mask_shared *m, const uint64_t sign[2])
{
    struct mask_entry *found = NULL;
    pthread_mutex_lock(&m->lock);
    struct mask_entry *e = m->entry[sign[0] % SHARED];
    if (e && e->sign[0] == sign[0] && e->sign[1] == sign[1]) found = entry_keep(e);
    pthread_mutex_unlock(&m->lock);
    return found;
}

static void shared_drop(struct mask_shared *m, uint32_t i)
{
    if (!m->entry[i]) return;
    m->bytes -= m->entry[i]->bytes;
    mask_entry_free(m->entry[i]);
    m->entry[i] = NULL;
}

static void shared_put(struct mask_shared *m, struct mask_entry *e)
{
    if (e->n_seen < SEEN_MIN || e->bytes > BYTES_MAX) return;
    pthread_mutex_lock(&m->lock);
    shared_drop(m, e->sign[0] % SHARED);
    for (; m->bytes + e->bytes > SHARED_BYTES_MAX; m->hand = (m->hand + 1) % SHARED) shared_drop(m, m->hand);
    m->entry[e->sign[0] % SHARED] = entry_keep(e);
    m->bytes += e->bytes;
    pthread_mutex_unlock(&m->lock);
}

/* ---------------------------------------------------------------- of one grammar */

enum status mask_cache_create(struct mask_cache **c_out)
{
    struct mask_cache *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    *c_out = c;
    return ST_OK;
}

void mask_cache_free(struct mask_cache *c)
{
    if (!c) return;
    for (int i = 0; i < ENTRIES; i++) mask_entry_free(c->slot[i].e);
    for (struct mask_entry *e = c->few, *next; e; e = next) {
        next = e->next;
        e->stays = false;
        mask_entry_free(e);
    }
    pthread_mutex_destroy(&c->lock);
    free(c);
}

size_t mask_cache_bytes(struct mask_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t bytes = c->bytes + c->few_bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

/* ---------------------------------------------------------------- all of them */

/* Under the lock. Takes one entry out that was not asked for lately. */
static void give_way(struct mask_cache *c)
{
    for (uint32_t i = 0; i < 2 * ENTRIES; i++) {
        struct slot *at = &c->slot[c->hand];
        c->hand = (c->hand + 1) % ENTRIES;
        if (!at->e) continue;
        if (at->used) {
            at->used = false;
            continue;
        }
        c->bytes -= at->e->bytes;
        mask_entry_free(at->e);
        at->e = NULL;
        return;
    }
}

static struct slot *find(struct mask_cache *c, uint32_t state, bool apart)
{
    for (int i = 0; i < ENTRIES; i++)
        if (c->slot[i].e && c->slot[i].state == state && c->slot[i].apart == apart) return &c->slot[i];
    return NULL;
}

/* Under the lock: keeps an entry, with a reference of the cache's. One that was made in no time is not worth it. */
static void keep(struct mask_cache *c, struct mask_entry *e, uint32_t state)
{
    if (e->bytes > BYTES_MAX / 2 || e->n_seen < SEEN_MIN || find(c, state, e->apart)) return;
    while (c->bytes + e->bytes > BYTES_MAX) give_way(c);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ENTRIES; i++) {
            if (c->slot[i].e) continue;
            c->slot[i] = (struct slot){ entry_keep(e), state, e->apart, true };
            c->bytes += e->bytes;
            return;
        }
        give_way(c);
    }
}

/* Keeps a new entry with its state, if it says little and was made in no time. */
static void keep_few(struct mask_cache *c, struct lex_state *s, struct mask_entry *e)
{
    if (e->apart || e->part.inside || e->bytes > FEW_BYTES_MAX || e->n_seen >= SEEN_MIN) return;
    for (uint32_t i = 0; i < e->part.n_walk; i++) mask_trim(&e->part.walk[i]);
    pthread_mutex_lock(&c->lock);
    if (c->few_bytes + e->bytes <= FEW_BYTES && !atomic_load_explicit(&s->few, memory_order_relaxed)) {
        c->few_bytes += e->bytes;
        e->stays = true;
        e->next = c->few;
        c->few = e;
        atomic_store_explicit(&s->few, e, memory_order_release);
    }
    pthread_mutex_unlock(&c->lock);
}

const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state,
                                 bool apart)
{
    struct lex_state        *s = l->state[state];
    const struct mask_entry *few = apart ? NULL : atomic_load_explicit(&s->few, memory_order_acquire);
    struct mask_entry       *e = NULL;
    uint64_t                 sign[2];
    if (few) return &few->part;
    pthread_mutex_lock(&c->lock);
    struct slot *at = find(c, state, apart);
    if (at) {
        at->used = true;
        e = entry_keep(at->e);
    }
    pthread_mutex_unlock(&c->lock);
    if (e) return &e->part;
    mask_sign(l, state, apart, sign);
    e = shared_get(v->shared, sign);
    if (!e) { /* several threads may make the same one */
        e = mask_entry_make(l, v, state, apart);
        if (!e) return NULL;
        shared_put(v->shared, e);
        keep_few(c, s, e);
        if (e->stays) return &e->part;
    }
    pthread_mutex_lock(&c->lock);
    keep(c, e, state);
    pthread_mutex_unlock(&c->lock);
    return &e->part;
}

void mask_release(const struct mask_part *p) { mask_entry_free((struct mask_entry *)(uintptr_t)p); }
