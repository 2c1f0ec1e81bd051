/* mask_make: computes the parts of masks that depend only on a state of the automaton. */
#include "engine/grammar/grow.h"
#include "engine/grammar/mask_impl.h"
#include <stdlib.h>
#include <string.h>

enum { SETTLED_ITEMS = 8, SETTLED_ASKS = 64, FEW_BRANCHES = 8 };

/* ---------------------------------------------------------------- arrays */

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
    if (!array_grow((void **)&p->root, p->n_root, 1, &rooms->root, sizeof *p->root)) return false;
    if (!array_grow((void **)&p->path, p->n_path, n, &rooms->path, 1)) return false;
    p->root[p->n_root++] = r;
    memcpy(p->path + p->n_path, path + r.n_same, n);
    p->n_path += n;
    return true;
}

/* ---------------------------------------------------------------- what is settled */

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

/* Bits instead of a list of tokens. false: no memory. */
static bool make_bits(const struct gr_vocab *v, struct mask_entry *e)
{
    if (e->part.inside) return true;
    e->part.inside = calloc(gr_words(v->n) + 1, sizeof *e->part.inside);
    if (!e->part.inside) return false;
    e->bytes += gr_words(v->n) * sizeof *e->part.inside;
    for (uint32_t i = 0; i < e->part.n_few; i++) e->part.inside[e->few[i] / 32] |= 1u << (e->few[i] % 32);
    e->part.n_few = 0;
    return true;
}

static inline bool allow_token(const struct gr_vocab *v, struct mask_entry *e, uint32_t token)
{
    if (!e->part.inside && e->part.n_few < FEW_TOKENS) {
        e->few[e->part.n_few++] = token;
        return true;
    }
    if (!e->part.inside && !make_bits(v, e)) return false;
    e->part.inside[token / 32] |= 1u << (token % 32);
    return true;
}

/* The tokens from a node on, all of plain characters, of which `chars` have come and up to `most` may still come. */
static bool allow_plain(const struct gr_vocab *v, uint32_t node, uint32_t chars, uint32_t most, struct mask_entry *e)
{
    uint32_t end = node + trie_size(v->all.node[node]);
    bool     good = true;
    for (uint32_t i = node; i < end && good; i++) {
        uint32_t token = trie_token(v->all.node[i]);
        if (token != TRIE_NONE && v->n_plain[token] - chars <= most) good = allow_token(v, e, token);
    }
    return good;
}

/* Does a node stand at the end of a character? All tokens below are well-formed. */
static bool ends_char(const struct trie *t, uint32_t i)
{
    return trie_size(t->node[i]) == 1 || (trie_byte(t->node[i + 1]) & 0xC0) != 0x80;
}

/* ---------------------------------------------------------------- a walk */

/* A walk through a tree by the automaton alone, which counts characters where they can be counted in v's own tree. By
 * depth: the states, the bytes, and how many characters they are. */
struct walker {
    struct lex            *l;
    const struct gr_vocab *v;
    struct mask_entry     *e;
    struct mask_walk      *p;
    const bool            *plain; /* of v's tree; NULL: nothing is counted */
    struct rooms           rooms;
    uint32_t               n_ask, n_same; /* n_same: since the last root */
    uint32_t               chars[TRIE_DEPTH_MAX + 1], state[TRIE_DEPTH_MAX + 1];
    unsigned char          path[TRIE_DEPTH_MAX];
};

/* The nodes from i on, before `end`, and what is below those to which the automaton goes on as far as it is before `end`
 * too. *next_out: the node that comes next. false: no memory, or over the lexer's bounds. */
static bool visit(struct walker *w, uint32_t i, uint32_t end, uint32_t *next_out)
{
    const struct trie *t = w->p->tree;
    struct lex        *l = w->l;
    struct mask_entry *e = w->e;
    for (; i < end; ++e->n_seen) {
        struct trie_node node = t->node[i];
        uint32_t         depth = trie_depth(node), token = trie_token(node);
        uint32_t         to = lex_step(l, w->state[depth - 1], trie_byte(node));
        if (to == LEX_UNKNOWN) return false;
        if (to == LEX_DEAD) {
            i += trie_size(node);
            continue;
        }
        w->state[depth] = to;
        w->path[depth - 1] = trie_byte(node);
        w->chars[depth] = w->chars[depth - 1] + ((trie_byte(node) & 0xC0) != 0x80);
        if (depth - 1 < w->n_same) w->n_same = depth - 1;
        uint32_t most = w->plain && w->plain[i] && ends_char(t, i) ? settled_at(l, to, e->apart, &w->n_ask) : 0;
        if (most) {
            if (!allow_plain(w->v, i, w->chars[depth], most, e)) return false;
            i += trie_size(node);
            continue;
        }
        if (token != TRIE_NONE && !allow_token(w->v, e, token)) return false;
        struct mask_root r = { 0, i, w->n_same };
        if (l->state[to]->n_accept) r.follow = bytes_below(t, i, e->apart);
        if (r.follow) {
            if (!add_root(w->p, &w->rooms, r, w->path)) return false;
            w->n_same = depth;
        }
        i++;
    }
    *next_out = i;
    return true;
}

/* Writes the bytes that may follow a state, in order, if they are few. false: they are many. */
static bool few_branches(struct lex *l, uint32_t state, unsigned char out[FEW_BRANCHES], uint32_t *n_out)
{
    uint32_t n = 0;
    lex_open(l, state);
    for (unsigned byte = 0; byte < 256; byte++) {
        if (lex_ends(l, state, (uint8_t)byte)) continue;
        if (n == FEW_BRANCHES) return false;
        out[n++] = (unsigned char)byte;
    }
    *n_out = n;
    return true;
}

/* Below node i of the first level. */
static bool visit_second(struct walker *w, uint32_t i)
{
    const struct trie *t = w->p->tree;
    unsigned char      byte[FEW_BRANCHES];
    uint32_t           n, next, end = i + trie_size(t->node[i]);
    if (!few_branches(w->l, w->state[1], byte, &n)) return visit(w, i + 1, end, &next);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t child = t->index->two[trie_byte(t->node[i])][byte[k]];
        if (child != TRIE_NONE && !visit(w, child, child + trie_size(t->node[child]), &next)) return false;
    }
    return true;
}

static bool walk(struct walker *w)
{
    const struct trie *t = w->p->tree;
    unsigned char      byte[FEW_BRANCHES];
    uint32_t           n, next;
    if (!t->index || !few_branches(w->l, w->state[0], byte, &n)) return visit(w, 0, t->n, &next);
    for (uint32_t k = 0; k < n; k++) {
        uint32_t i = t->index->one[byte[k]];
        if (i == TRIE_NONE) continue;
        if (!visit(w, i, i + 1, &next)) return false;
        bool below = next == i + 1 && trie_size(t->node[i]) > 1;
        if (below && !visit_second(w, i)) return false;
    }
    return true;
}

/* ---------------------------------------------------------------- a state */

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
    if (wide) lex_lock(l);
    for (uint32_t i = 0; i < s->n_item && wide && !ends; i++) {
        struct rx_run run = rx_run(lex_rx(l), s->item[i].rest, lex_plain(l));
        ends = run.most && run.alone;
    }
    if (wide) lex_unlock(l);
    ends = wide && (ends || ends_soon(l, state));
    atomic_store_explicit(&s->plain, ends ? YES : NO, memory_order_relaxed);
    return ends;
}

/* A walk of some of the state's items. slice: its tokens are settled; NULL: none are. */
static bool walk_some(struct lex *l, const struct gr_vocab *v, uint32_t some, const struct vocab_slice *slice,
                      struct mask_entry *e)
{
    struct mask_walk *p = &e->part.walk[e->part.n_walk++];
    struct walker     w = { .l = l, .v = v, .e = e, .p = p, .n_ask = SETTLED_ASKS };
    p->tree = slice ? &slice->rest : &v->all;
    w.state[0] = some;
    if (p->tree == &v->all && is_wide(l, some)) w.plain = v->plain_below;
    if (!walk(&w)) return false;
    e->bytes += p->n_root * sizeof *p->root + p->n_path;
    return true;
}

/* Items that are counted have no plain tokens but those that are settled. The others may have longer ones. */
static bool walk_all(struct lex *l, const struct gr_vocab *v, uint32_t state, const struct plain *p,
                     struct mask_entry *e)
{
    const struct vocab_slice *slice = NULL;
    for (int i = SLICES; i-- > 0;)
        if (v->slice[i].chars_max <= p->settled) slice = &v->slice[i];
    if (p->settled && !make_bits(v, e)) return false;
    if (p->settled) vocab_plain_bits(v, p->settled, e->part.inside);
    if (p->n_counted == l->state[state]->n_item) slice = &v->slice[0];
    if (slice == &v->slice[0] || p->n_counted == 0) return walk_some(l, v, state, slice, e);
    uint32_t counted = lex_some(l, state, p->counted, true), others = lex_some(l, state, p->counted, false);
    if (counted == LEX_UNKNOWN || others == LEX_UNKNOWN) return false;
    return walk_some(l, v, counted, &v->slice[0], e) && walk_some(l, v, others, slice, e);
}

void mask_sign(struct lex *l, uint32_t state, bool apart, uint64_t sign_out[2])
{
    memcpy(sign_out, l->state[state]->sign, 2 * sizeof *sign_out);
    sign_out[0] += apart;
}

struct mask_entry *mask_entry_make(struct lex *l, const struct gr_vocab *v, uint32_t state, bool apart)
{
    struct mask_entry *e = calloc(1, sizeof *e);
    bool               few[SETTLED_ITEMS], made = false;
    uint32_t           n = l->state[state]->n_item;
    struct plain       p = { .counted = n <= SETTLED_ITEMS ? few : calloc(n, sizeof *p.counted) };
    if (e && p.counted) {
        atomic_init(&e->n_user, 1);
        mask_sign(l, state, apart, e->sign);
        e->apart = apart;
        e->bytes = sizeof *e;
        e->part.few = e->few;
        if (is_wide(l, state)) plain_at(l, state, apart, &p);
        made = walk_all(l, v, state, &p, e);
    }
    if (p.counted != few) free(p.counted);
    if (made) return e;
    mask_entry_free(e);
    return NULL;
}

void mask_trim(struct mask_walk *w)
{
    void *root = w->n_root ? realloc(w->root, w->n_root * sizeof *w->root) : NULL;
    void *path = w->n_path ? realloc(w->path, w->n_path) : NULL;
    if (root) w->root = root;
    if (path) w->path = path;
}

void mask_entry_free(struct mask_entry *e)
{
    if (!e || e->stays || atomic_fetch_sub_explicit(&e->n_user, 1, memory_order_acq_rel) > 1) return;
    free(e->part.inside);
    for (int i = 0; i < MASK_WALKS; i++) {
        free(e->part.walk[i].root);
        free(e->part.walk[i].path);
    }
    free(e);
}
