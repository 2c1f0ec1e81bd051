/* mask_cache: computes and caches the parts of masks that depend only on a state of the automaton. */
#include "engine/grammar/mask.h"
#include "engine/grammar/vocab_impl.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 64, BYTES_MAX = 2 << 20, SEEN_MIN = 1000 };

struct entry {
    struct mask_part part; /* first: mask_release finds the entry by it */
    uint32_t         state;
    uint32_t         n_user, n_seen;
    size_t           bytes;
    bool             kept; /* by the cache; one that is not goes with its last user */
    bool             used; /* since the hand came by: second chance */
};

struct mask_cache {
    pthread_mutex_t        lock;
    struct entry          *entry[ENTRIES];
    uint32_t               hand;
    size_t                 bytes;
    const struct gr_vocab *v; /* of all entries */
};

enum status mask_cache_create(struct mask_cache **c_out)
{
    struct mask_cache *c = calloc(1, sizeof *c);
    if (!c) return ST_NOMEM;
    pthread_mutex_init(&c->lock, NULL);
    *c_out = c;
    return ST_OK;
}

static void entry_free(struct entry *e)
{
    if (!e) return;
    free(e->part.inside);
    free(e->part.root);
    free(e->part.path);
    free(e);
}

void mask_cache_free(struct mask_cache *c)
{
    if (!c) return;
    for (int i = 0; i < ENTRIES; i++) entry_free(c->entry[i]);
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

/* How many plain characters may still come where the state says just that: a counted repetition of them, and a tail that none of
 * them begins. 0: it says more, or something else. */
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
    e->state = state;
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

/* Under the lock. Takes one entry out that nobody uses and that was not asked for lately. false: there is none. */
static bool give_way(struct mask_cache *c)
{
    for (uint32_t i = 0; i < 2 * ENTRIES; i++) {
        struct entry **at = &c->entry[c->hand];
        c->hand = (c->hand + 1) % ENTRIES;
        if (!*at || (*at)->n_user) continue;
        if ((*at)->used) {
            (*at)->used = false;
            continue;
        }
        c->bytes -= (*at)->bytes;
        entry_free(*at);
        *at = NULL;
        return true;
    }
    return false;
}

/* Under the lock: keeps an entry if there is room, or room can be made. One that was made in no time is not worth it. */
static void keep(struct mask_cache *c, struct entry *e)
{
    if (e->bytes > BYTES_MAX / 2 || e->n_seen < SEEN_MIN) return;
    while (c->bytes + e->bytes > BYTES_MAX)
        if (!give_way(c)) return;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < ENTRIES; i++) {
            if (c->entry[i]) continue;
            c->entry[i] = e;
            c->bytes += e->bytes;
            e->kept = true;
            return;
        }
        if (!give_way(c)) return;
    }
}

static struct entry *find(struct mask_cache *c, uint32_t state)
{
    for (int i = 0; i < ENTRIES; i++)
        if (c->entry[i] && c->entry[i]->state == state) return c->entry[i];
    return NULL;
}

const struct mask_part *mask_get(struct mask_cache *c, struct lex *l, const struct gr_vocab *v, uint32_t state)
{
    pthread_mutex_lock(&c->lock);
    struct entry *e = find(c, state);
    if (!e) {
        pthread_mutex_unlock(&c->lock); /* several threads may make the same one: the first to end keeps it */
        struct entry *made = entry_make(l, v, state);
        if (!made) return NULL;
        pthread_mutex_lock(&c->lock);
        e = find(c, state);
        if (e) {
            entry_free(made);
        } else {
            e = made;
            keep(c, e);
        }
    }
    e->n_user++;
    e->used = true;
    pthread_mutex_unlock(&c->lock);
    return &e->part;
}

void mask_release(struct mask_cache *c, const struct mask_part *p)
{
    struct entry *e = (struct entry *)(uintptr_t)p;
    pthread_mutex_lock(&c->lock);
    e->n_user--;
    bool last = e->n_user == 0 && !e->kept;
    pthread_mutex_unlock(&c->lock);
    if (last) entry_free(e);
}
