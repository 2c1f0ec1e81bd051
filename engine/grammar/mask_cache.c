/* mask_cache: computes and caches the parts of masks that depend only on a state of the automaton. */
#include "engine/grammar/mask.h"
#include "engine/grammar/vocab_impl.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SETTLED_ITEMS = 8, SETTLED_ASKS = 64 };
enum { ENTRIES = 64, BYTES_MAX = 2 << 20, SEEN_MIN = 1000, SHARED = 4096, SHARED_BYTES_MAX = 32 << 20 };

/* A part, and who knows it: the caches, and those who read it. It goes with the last of them. */
struct entry {
    struct mask_part part; /* first: mask_release finds the entry by it */
    uint64_t         sign[2];
    uint32_t         n_seen;
    bool             apart;
    size_t           bytes;
    _Atomic uint32_t n_user;
};

struct slot {
    struct entry *e;
    uint32_t      state;
    bool          apart;
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
    for (int i = 0; i < MASK_WALKS; i++) {
        free(e->part.walk[i].root);
        free(e->part.walk[i].path);
    }
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

static uint64_t bytes_below(const struct trie *t, uint32_t node, bool apart)
{
    uint64_t bits = 0;
    uint32_t end = node + trie_size(t->node[node]);
    for (uint32_t i = node + 1; i < end; i += trie_size(t->node[i]))
        if (!apart || !mask_plain(trie_byte(t->node[i]))) bits |= mask_bit(trie_byte(t->node[i]));
    return bits;
}

static bool add_root(struct mask_walk *p, struct rooms *rooms, struct mask_root r, const unsigned char *path)
{
    uint32_t n = trie_depth(p->tree->node[r.node]) - r.n_same;
    if (!grow((void **)&p->root, p->n_root, 1, &rooms->root, sizeof *p->root)) return false;
    if (!grow((void **)&p->path, p->n_path, n, &rooms->path, 1)) return false;
    p->root[p->n_root++] = r;
    memcpy(p->path + p->n_path, path + r.n_same, n);
    p->n_path += n;
    return true;
}

/* What the items of a state say of the tokens that are plain characters alone. */
struct plain {
    bool    *counted;            /* [n_item] so many of them may stand there, and of plain tokens no others */
    uint32_t n_counted, settled; /* settled: so many may stand there, by one item or another */
};

static void plain_at(struct lex *l, uint32_t state, bool apart, struct plain *p)
{
    const struct lex_state *s = l->state[state];
    lex_lock(l);
    for (uint32_t i = 0; i < s->n_item; i++) {
        struct rx_run run = rx_run(lex_rx(l), s->item[i].rest, lex_plain(l));
        p->counted[i] = run.most && run.bound && (!run.alone || apart || run.most == RX_MANY);
        p->n_counted += p->counted[i];
        if (run.most > p->settled) p->settled = run.most;
    }
    lex_unlock(l);
}

/* Plain characters that stand for all: a state at which one of them is refused takes none of them for a run. */
static const char some_plain[] = " (aQ7";

static bool is_wide(struct lex *l, uint32_t state)
{
    for (const char *c = some_plain; *c; c++)
        if (lex_step(l, state, (uint8_t)*c) == LEX_DEAD) return false;
    return true;
}

/* How many plain characters may stand at this state, and no more of them; 0: that is not known of all its items. It is
 * asked for few states of a walk, as it may cost a search. */
static uint32_t settled_at(struct lex *l, uint32_t state, bool apart, uint32_t *n_ask)
{
    enum { UNKNOWN, NONE };
    _Atomic uint32_t *memo = &l->state[state]->settled[apart];
    uint32_t          known = atomic_load_explicit(memo, memory_order_relaxed);
    bool              counted[SETTLED_ITEMS];
    struct plain      p = { .counted = counted };
    if (known != UNKNOWN) return known == RX_MANY ? known : known - NONE;
    if (*n_ask == 0 || l->state[state]->n_item > SETTLED_ITEMS) return 0;
    --*n_ask;
    plain_at(l, state, apart, &p);
    if (p.n_counted < l->state[state]->n_item) p.settled = 0;
    known = p.settled == RX_MANY ? p.settled : p.settled + NONE;
    atomic_store_explicit(memo, known, memory_order_relaxed);
    return p.settled;
}

/* The tokens from a node on, all of plain characters, of which `chars` have come and up to `most` may still come. */
static void allow_plain(const struct gr_vocab *v, uint32_t node, uint32_t chars, uint32_t most, uint32_t *inside)
{
    uint32_t end = node + trie_size(v->all.node[node]);
    for (uint32_t i = node; i < end; i++) {
        uint32_t token = trie_token(v->all.node[i]);
        if (token != TRIE_NONE && v->n_plain[token] - chars <= most) inside[token / 32] |= 1u << (token % 32);
    }
}

/* Does a node stand at the end of a character? All tokens below are well-formed. */
static bool ends_char(const struct trie *t, uint32_t i)
{
    return trie_size(t->node[i]) == 1 || (trie_byte(t->node[i + 1]) & 0xC0) != 0x80;
}

/* Walks the tree by the automaton alone, and where it is v's own counts characters where they can be counted. Adds to
 * *n_seen how many nodes it has stepped to; false: no memory, or over the lexer's bounds. */
static bool walk(struct lex *l, const struct gr_vocab *v, struct mask_walk *p, uint32_t from, bool apart,
                 uint32_t *inside, uint32_t *n_seen)
{
    const struct trie *t = p->tree;
    const bool        *plain = t == &v->all && is_wide(l, from) ? v->plain_below : NULL;
    uint32_t           chars[TRIE_DEPTH_MAX + 1] = { 0 }, n_ask = SETTLED_ASKS;
    uint32_t           state[TRIE_DEPTH_MAX + 1] = { from }, n_same = 0; /* n_same: since the last root */
    unsigned char      path[TRIE_DEPTH_MAX];
    struct rooms       rooms = { 0, 0 };
    for (uint32_t i = 0; i < t->n; ++*n_seen) {
        struct trie_node node = t->node[i];
        uint32_t         depth = trie_depth(node), token = trie_token(node);
        uint32_t         to = lex_step(l, state[depth - 1], trie_byte(node));
        if (to == LEX_UNKNOWN) return false;
        if (to == LEX_DEAD) {
            i += trie_size(node);
            continue;
        }
        state[depth] = to;
        path[depth - 1] = trie_byte(node);
        chars[depth] = chars[depth - 1] + ((trie_byte(node) & 0xC0) != 0x80);
        if (depth - 1 < n_same) n_same = depth - 1;
        uint32_t most = plain && plain[i] && ends_char(t, i) ? settled_at(l, to, apart, &n_ask) : 0;
        if (most) {
            allow_plain(v, i, chars[depth], most, inside);
            i += trie_size(node);
            continue;
        }
        if (token != TRIE_NONE) inside[token / 32] |= 1u << (token % 32);
        struct mask_root r = { 0, i, n_same };
        if (l->state[to]->n_accept) r.follow = bytes_below(t, i, apart);
        if (r.follow) {
            if (!add_root(p, &rooms, r, path)) return false;
            n_same = depth;
        }
        i++;
    }
    return true;
}

/* Whether a text that stands here may end behind one plain character or two. */
static bool ends_soon(struct lex *l, uint32_t state)
{
    for (const char *c = some_plain; *c; c++) {
        uint32_t one = lex_step(l, state, (uint8_t)*c);
        if (one == LEX_UNKNOWN || l->state[one]->n_accept) return one != LEX_UNKNOWN;
        uint32_t two = lex_step(l, one, (uint8_t)*c);
        if (two == LEX_UNKNOWN || l->state[two]->n_accept) return two != LEX_UNKNOWN;
    }
    return false;
}

bool mask_asks(struct lex *l, uint32_t state)
{
    enum { UNKNOWN, NO, YES };
    struct lex_state *s = l->state[state];
    int               known = atomic_load_explicit(&s->plain, memory_order_relaxed);
    if (known != UNKNOWN) return known == YES;
    bool wide = is_wide(l, state), ends = s->n_accept > 0;
    lex_lock(l);
    for (uint32_t i = 0; i < s->n_item && wide && !ends; i++) {
        struct rx_run run = rx_run(lex_rx(l), s->item[i].rest, lex_plain(l));
        ends = run.most && run.alone;
    }
    lex_unlock(l);
    ends = wide && (ends || ends_soon(l, state));
    atomic_store_explicit(&s->plain, ends ? YES : NO, memory_order_relaxed);
    return ends;
}

/* A walk of some of the state's items. slice: its tokens are settled; NULL: none are. */
static bool walk_some(struct lex *l, const struct gr_vocab *v, uint32_t some, const struct vocab_slice *slice,
                      struct entry *e)
{
    struct mask_walk *w = &e->part.walk[e->part.n_walk++];
    w->tree = slice ? &slice->rest : &v->all;
    if (!walk(l, v, w, some, e->apart, e->part.inside, &e->n_seen)) return false;
    e->bytes += w->n_root * sizeof *w->root + w->n_path;
    return true;
}

/* Items that are counted have no plain tokens but those that are settled. The others may have longer ones. */
static bool walk_all(struct lex *l, const struct gr_vocab *v, uint32_t state, const struct plain *p, struct entry *e)
{
    const struct vocab_slice *slice = NULL;
    for (int i = SLICES; i-- > 0;)
        if (v->slice[i].chars_max <= p->settled) slice = &v->slice[i];
    if (p->settled) vocab_plain_bits(v, p->settled, e->part.inside);
    if (p->n_counted == l->state[state]->n_item) slice = &v->slice[0];
    if (slice == &v->slice[0] || p->n_counted == 0) return walk_some(l, v, state, slice, e);
    uint32_t counted = lex_some(l, state, p->counted, true), others = lex_some(l, state, p->counted, false);
    if (counted == LEX_UNKNOWN || others == LEX_UNKNOWN) return false;
    return walk_some(l, v, counted, &v->slice[0], e) && walk_some(l, v, others, slice, e);
}

/* What a part says, as lex_state.sign. */
static void sign_of(struct lex *l, uint32_t state, bool apart, uint64_t sign_out[2])
{
    memcpy(sign_out, l->state[state]->sign, 2 * sizeof *sign_out);
    sign_out[0] += apart;
}

static struct entry *entry_make(struct lex *l, const struct gr_vocab *v, uint32_t state, bool apart)
{
    struct entry *e = calloc(1, sizeof *e);
    struct plain  p = { .counted = calloc(l->state[state]->n_item + 1, sizeof *p.counted) };
    bool          made = false;
    if (e) e->part.inside = calloc(gr_words(v->n) + 1, sizeof *e->part.inside);
    if (e && e->part.inside && p.counted) {
        atomic_init(&e->n_user, 1);
        sign_of(l, state, apart, e->sign);
        e->apart = apart;
        e->bytes = sizeof *e + gr_words(v->n) * sizeof *e->part.inside;
        plain_at(l, state, apart, &p);
        made = walk_all(l, v, state, &p, e);
    }
    free(p.counted);
    if (made) return e;
    entry_free(e);
    return NULL;
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

static struct slot *find(struct mask_cache *c, uint32_t state, bool apart)
{
    for (int i = 0; i < ENTRIES; i++)
        if (c->slot[i].e && c->slot[i].state == state && c->slot[i].apart == apart) return &c->slot[i];
    return NULL;
}

/* Under the lock: keeps an entry, with a reference of the cache's. One that was made in no time is not worth it. */
static void keep(struct mask_cache *c, struct entry *e, uint32_t state)
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

const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state,
                                 bool apart)
{
    struct entry *e = NULL;
    uint64_t      sign[2];
    pthread_mutex_lock(&c->lock);
    struct slot *at = find(c, state, apart);
    if (at) {
        at->used = true;
        e = entry_keep(at->e);
    }
    pthread_mutex_unlock(&c->lock);
    if (e) return &e->part;
    sign_of(l, state, apart, sign);
    e = shared_get(v->shared, sign);
    if (!e) { /* several threads may make the same one */
        e = entry_make(l, v, state, apart);
        if (!e) return NULL;
        shared_put(v->shared, e);
    }
    pthread_mutex_lock(&c->lock);
    keep(c, e, state);
    pthread_mutex_unlock(&c->lock);
    return &e->part;
}

void mask_release(const struct mask_part *p) { entry_free((struct entry *)(uintptr_t)p); }
