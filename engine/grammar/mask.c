/* mask: computes gr_mask: the tokens that may come next. */
#include "engine/grammar/mask.h"
#include "engine/grammar/match_impl.h"
#include <string.h>

static void allow(uint32_t *bits, uint32_t token) { bits[token / 32] |= 1u << (token % 32); }

/* The way from a reading down a tree. By depth: where its threads end in m->walk, and the rows that are in use. */
struct descent {
    uint32_t end[TRIE_DEPTH_MAX + 1], row[TRIE_DEPTH_MAX + 1];
    uint32_t fuel;
};

/* One byte down, from depth d - 1. false: not allowed, or m->st. */
static bool descend(struct gr_match *m, struct descent *w, uint32_t d, uint8_t byte)
{
    uint32_t first = d > 1 ? w->end[d - 2] : 0, n = w->end[d - 1] - first, room = WALK_THREADS - w->end[d - 1];
    /* Rows of places that have been left may be needed again, and stay until room is short. */
    if (m->n_row > ROWS_MAX / 8 * 7 || m->n_item > ITEMS_MAX / 8 * 7) rows_cut(m, w->row[d - 1]);
    n = match_step(m, m->walk + first, n, byte, m->walk + w->end[d - 1], room < THREADS_MAX ? room : THREADS_MAX);
    if (w->fuel-- == 0) m->st = ST_TOO_LARGE;
    if (m->st || n == 0) return false;
    w->end[d] = w->end[d - 1] + n;
    w->row[d] = m->n_row;
    return true;
}

/* Tokens below one node, to which the first `depth` levels of the way lead. */
static void below(struct gr_match *m, struct descent *w, const struct trie *t, uint32_t root, uint32_t *bits)
{
    uint32_t end = root + trie_size(t->node[root]);
    for (uint32_t i = root + 1; i < end;) {
        struct trie_node node = t->node[i];
        if (!descend(m, w, trie_depth(node), trie_byte(node))) {
            if (m->st) return;
            i += trie_size(node);
            continue;
        }
        if (trie_token(node) != TRIE_NONE) allow(bits, trie_token(node));
        i++;
    }
}

/* Tokens that go past the end of a terminal, where the rules allow them behind one reading. */
static void walk(struct gr_match *m, const struct mask_part *p, struct gr_thread from, uint32_t *bits)
{
    struct descent       w = { .end = { 1 }, .row = { m->n_row }, .fuel = WALK_FUEL };
    const unsigned char *before = NULL;
    uint32_t             n_before = 0; /* levels of the way to the root before, which this one may share */
    m->walk[0] = from;
    for (uint32_t i = 0; i < p->n_root; i++) {
        const unsigned char *path = p->path + p->root[i].path;
        uint32_t             depth = trie_depth(p->tree->node[p->root[i].node]), d = 0;
        while (d < depth && d < n_before && path[d] == before[d]) d++;
        while (d < depth && descend(m, &w, d + 1, path[d])) d++;
        if (m->st) return;
        before = path;
        n_before = d;
        if (d == depth) below(m, &w, p->tree, p->root[i].node, bits);
        if (m->st) return;
    }
}

static void allow_tokens(const struct gr_match *m, struct gr_thread t, uint32_t *bits)
{
    const struct grammar *g = m->g;
    const struct gr_row  *r = &m->row[t.row];
    if (!t.fresh || !r->tokens) return;
    for (uint32_t i = 0; i < r->n_item; i++) {
        uint32_t symbol = g->symbol[m->item[r->item + i].dot];
        if (gr_kind_of(symbol) != GR_TOKEN) continue;
        uint32_t token = g->token[gr_number(symbol)];
        if (token < m->v->n && m->v->token[token].n == 0) allow(bits, token);
    }
}

static void mask_of(struct gr_match *m, struct gr_thread t, uint32_t *bits)
{
    allow_tokens(m, t, bits);
    if (t.state == LEX_DEAD) return;
    const struct mask_part *p = mask_get(m->g->cache, m->g->lex, m->v, t.state);
    if (!p) {
        m->st = ST_TOO_LARGE;
        return;
    }
    for (uint32_t w = 0; w < gr_words(m->v->n); w++) bits[w] |= p->inside[w];
    walk(m, p, t, bits);
    mask_release(p);
}

enum status gr_mask_behind(struct gr_match *m, const void *bytes, size_t n, uint32_t *bits)
{
    const struct trie *t = &m->v->all;
    uint32_t           root = trie_find(t, bytes, n);
    m->st = ST_OK;
    if (root == TRIE_NONE) return ST_OK;
    struct descent w = { .fuel = WALK_FUEL };
    w.end[n] = m->now.n;
    w.row[n] = m->n_row;
    memcpy(m->walk, m->now.thread, m->now.n * sizeof *m->walk);
    gr_vocab_forbid(m->v, bytes, n, bits);
    below(m, &w, t, root, bits);
    if (trie_token(t->node[root]) != TRIE_NONE) allow(bits, trie_token(t->node[root]));
    vocab_equal_bits(m->v, bits);
    return m->st;
}

enum status gr_mask(struct gr_match *m, uint32_t *bits)
{
    size_t bytes = gr_words(m->v->n) * sizeof *bits;
    memset(bits, 0, bytes);
    m->st = ST_OK;
    if (m->n_row > ROWS_MAX / 2 || m->n_item > ITEMS_MAX / 2) rows_collect(m);
    for (uint32_t i = 0; i < m->now.n && !m->st; i++) mask_of(m, m->now.thread[i], bits);
    if (m->st) {
        memset(bits, 0, bytes);
        return m->st;
    }
    vocab_equal_bits(m->v, bits);
    return ST_OK;
}
