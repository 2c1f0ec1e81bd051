/* mask_cache: computes and caches the parts of masks that depend only on a state of the automaton. */
#include "engine/grammar/mask.h"
#include "engine/grammar/vocab_impl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64, BYTES_MAX = 2 << 20, SEEN_MIN = 1000, SHARED = 4096, SHARED_BYTES_MAX = 32 << 20 };

/* A part, and who knows it: the caches, and those who read it. It goes with the last of them. */
struct entry {
    struct mask_part part; /* first: mask_release finds the entry by it */
    uint64_t         sign[2];
    uint32_t         n_seen;
    size_t           bytes;
    _Atomic uint32_t n_user;
};

struct slot {
    struct entry *e;
    uint32_t      state;
    bool          used; /* since the hand came by: second chance */
};

struct mask_cache {
    pthread_mutex_t lock;
    struct slot     slot[ENTRIES];
    uint32_t        hand;
    size_t          bytes;
};

/* The parts of all grammars over one vocabulary, by what their states say (lex_state.sign): most schemas have the same
 * strings and numbers. A newer part takes the place of an older one. */
struct mask_shared {
    pthread_mutex_t lock;
    struct entry   *entry[SHARED];
    uint32_t        hand;
    size_t          bytes;
};

static struct entry *entry_keep(struct entry *e)
{
    atomic_fetch_add_explicit(&e->n_user, 1, memory_order_relaxed);
    return e;
}

static void entry_free(struct entry *e)
{
    if (!e || atomic_fetch_sub_explicit(&e->n_user, 1, memory_order_acq_rel) > 1) return;
    free(e->part.inside);
    free(e->part.root);
    free(e->part.path);
    free(e);
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
    for (int i = 0; i < SHARED; i++) entry_free(m->entry[i]);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static struct entry *shared_get(struct mask_shared *m, const uint64_t sign[2])
{
    struct entry *found = NULL;
    pthread_mutex_lock(&m->lock);
    struct entry *e = m->entry[sign[0] % SHARED];
    if (e && e->sign[0] == sign[0] && e->sign[1] == sign[1]) found = entry_keep(e);
    pthread_mutex_unlock(&m->lock);
    return found;
}

static void shared_drop(struct mask_shared *m, uint32_t i)
{
    if (!m->entry[i]) return;
    m->bytes -= m->entry[i]->bytes;
    entry_free(m->entry[i]);
    m->entry[i] = NULL;
}

static void shared_put(struct mask_shared *m, struct entry *e)
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
    for (int i = 0; i < ENTRIES; i++) entry_free(c->slot[i].e);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

size_t mask_cache_bytes(struct mask_cache *c)
{
    pthread_mutex_lock(&c->lock);
    size_t bytes = c->bytes;
    pthread_mutex_unlock(&c->lock);
    return bytes;
}

/* ---------------------------------------------------------------- one state */

/* Room for n more in an array that doubles. */
static bool grow(void **array, uint32_t n_used, uint32_t n, uint32_t *n_room, size_t bytes)
{
    if (n_used + n <= *n_room) return true;
    uint32_t want = *n_room ? 2 * *n_room : 64;
    while (want < n_used + n) want *= 2;
    void *p = realloc(*array, want * bytes);
    if (!p) return false;
    *array = p;
    *n_room = want;
    return true;
}

struct rooms {
    uint32_t root, path;
};

static bool add_root(struct mask_part *p, struct rooms *rooms, uint32_t node, const unsigned char *path, uint32_t depth)
{
    if (!grow((void **)&p->root, p->n_root, 1, &rooms->root, sizeof *p->root)) return false;
    if (!grow((void **)&p->path, p->n_path, depth, &rooms->path, 1)) return false;
    p->root[p->n_root++] = (struct mask_root){ node, p->n_path };
    memcpy(p->path + p->n_path, path, depth);
    p->n_path += depth;
    return true;
}

/* Walks the tree by the automaton alone. Returns how many nodes it has seen; UINT32_MAX: no memory, or over the lexer's
 * bounds. */
static uint32_t walk(struct lex *l, struct mask_part *p, uint32_t from)
{
    const struct trie *t = p->tree;
    uint32_t           state[TRIE_DEPTH_MAX + 1] = { from }, n_seen = 0,
                                    covered = 0; /* covered: to where the last root reaches */
    unsigned char path[TRIE_DEPTH_MAX];
    struct rooms  rooms = { 0, 0 };
    for (uint32_t i = 0; i < t->n; n_seen++) {
        struct trie_node node = t->node[i];
        uint32_t         depth = trie_depth(node), token = trie_token(node);
        uint32_t         to = lex_step(l, state[depth - 1], trie_byte(node));
        if (to == LEX_UNKNOWN) return UINT32_MAX;
        if (to == LEX_DEAD) {
            i += trie_size(node);
            continue;
        }
        state[depth] = to;
        path[depth - 1] = trie_byte(node);
        if (token != TRIE_NONE) p->inside[token / 32] |= 1u << (token % 32);
        if (l->state[to]->n_accept && trie_size(node) > 1 && i >= covered) {
            if (!add_root(p, &rooms, i, path, depth)) return UINT32_MAX;
            covered = i + trie_size(node);
        }
        i++;
    }
    return n_seen;
}

/* The largest slice of which every token may stand at the state; NULL: none. */
static const struct vocab_slice *slice_at(struct lex *l, const struct gr_vocab *v, uint32_t state)
{
    const struct lex_state   *s = l->state[state];
    const struct vocab_slice *found = NULL;
    uint32_t                  chars_max = 0;
    lex_lock(l);
    for (uint32_t i = 0; i < s->n_item; i++) {
        uint32_t operand, max;
        if (!rx_leads(lex_rx(l), s->item[i].rest, &operand, &max) || max <= chars_max) continue;
        if (rx_covers(lex_rx(l), operand, lex_plain(l))) chars_max = max;
    }
    lex_unlock(l);
    for (int i = SLICES; i-- > 0;)
        if (v->slice[i].chars_max <= chars_max) found = &v->slice[i];
    return found;
}

/* How many plain characters may still come where the state says just that: a counted repetition of them, and a tail
 * that none of them begins. 0: it says more, or something else. */
static uint32_t plain_left(struct lex *l, uint32_t state)
{
    const struct lex_state *s = l->state[state];
    struct rx              *x = lex_rx(l);
    uint32_t                operand, max = 0, tail;
    lex_lock(l);
    bool counted = s->n_item == 1 && rx_counts(x, s->item[0].rest, &operand, &max, &tail) && max != RX_MANY &&
                   rx_covers(x, operand, lex_plain(l)) && rx_begin_apart(x, tail, lex_plain(l));
    lex_unlock(l);
    return counted ? max : 0;
}

/* Then tokens of so many plain characters may stand there, and of plain ones no others. */
static void allow_plain(const struct gr_vocab *v, uint32_t chars_max, uint32_t *inside)
{
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t in = v->n_plain[i] - 1u < chars_max; /* 0 is none */
        inside[i / 32] |= in << (i % 32);
    }
}

static struct entry *entry_make(struct lex *l, const struct gr_vocab *v, uint32_t state)
{
    struct entry             *e = calloc(1, sizeof *e);
    uint32_t                  left = plain_left(l, state);
    const struct vocab_slice *slice = left ? &v->slice[0] : slice_at(l, v, state);
    if (!e) return NULL;
    atomic_init(&e->n_user, 1);
    memcpy(e->sign, l->state[state]->sign, sizeof e->sign);
    e->part.tree = slice ? &slice->rest : &v->all;
    e->part.inside = calloc(gr_words(v->n) + 1, sizeof *e->part.inside);
    if (e->part.inside) {
        if (left)
            allow_plain(v, left, e->part.inside);
        else if (slice)
            memcpy(e->part.inside, slice->inside, gr_words(v->n) * sizeof *slice->inside);
        e->n_seen = walk(l, &e->part, state);
    }
    if (!e->part.inside || e->n_seen == UINT32_MAX) {
        entry_free(e);
        return NULL;
    }
    e->bytes =
        sizeof *e + gr_words(v->n) * sizeof *e->part.inside + e->part.n_root * sizeof *e->part.root + e->part.n_path;
    return e;
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
        entry_free(at->e);
        at->e = NULL;
        return;
    }
}

static struct slot *find(struct mask_cache *c, uint32_t state)
{
    for (int i = 0; i < ENTRIES; i++)
        if (c->slot[i].e && c->slot[i].state == state) return &c->slot[i];
    return NULL;
}

/* Under the lock: keeps an entry, with a reference of the cache's. One that was made in no time is not worth it. */
static void keep(struct mask_cache *c, struct entry *e, uint32_t state)
{
    if (e->bytes > BYTES_MAX / 2 || e->n_seen < SEEN_MIN || find(c, state)) return;
    while (c->bytes + e->bytes > BYTES_MAX) give_way(c);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ENTRIES; i++) {
            if (c->slot[i].e) continue;
            c->slot[i] = (struct slot){ entry_keep(e), state, true };
            c->bytes += e->bytes;
            return;
        }
        give_way(c);
    }
}

const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state)
{
    struct entry *e = NULL;
    pthread_mutex_lock(&c->lock);
    struct slot *at = find(c, state);
    if (at) {
        at->used = true;
        e = entry_keep(at->e);
    }
    pthread_mutex_unlock(&c->lock);
    if (e) return &e->part;
    e = shared_get(v->shared, l->state[state]->sign);
    if (!e) { /* several threads may make the same one */
        e = entry_make(l, v, state);
        if (!e) return NULL;
        shared_put(v->shared, e);
    }
    pthread_mutex_lock(&c->lock);
    keep(c, e, state);
    pthread_mutex_unlock(&c->lock);
    return &e->part;
}

void mask_release(const struct mask_part *p) { entry_free((struct entry *)(uintptr_t)p); }
