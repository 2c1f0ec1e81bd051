/* mask: which tokens may come next. */
#include "engine/grammar/mask.h"
#include "engine/grammar/match_impl.h"
#include <string.h>

static void allow(uint32_t *bits, uint32_t token) { bits[token / 32] |= 1u << (token % 32); }
static bool allowed(const uint32_t *bits, uint32_t token) { return bits[token / 32] >> (token % 32) & 1; }

/* Tokens of a tree that the rules allow behind one reading. */
static void walk(struct gr_match *m, const struct trie *t, struct gr_thread from, uint32_t *bits)
{
    uint32_t first[TRIE_DEPTH_MAX + 2],
        row[TRIE_DEPTH_MAX + 2]; /* by depth: threads in m->walk; rows that are in use */
    uint32_t fuel = WALK_FUEL, depth_before = 0;
    m->walk[0] = from;
    first[0] = 0;
    first[1] = 1;
    row[0] = m->n_row;
    for (uint32_t i = 0; i < t->n;) {
        struct trie_node node = t->node[i];
        uint32_t         d = trie_depth(node), token = trie_token(node);
        /* Rows of a subtree that has been left may be needed again, and stay until room is short. */
        if (d <= depth_before && (m->n_row > ROWS_MAX / 8 * 7 || m->n_item > ITEMS_MAX / 8 * 7))
            rows_cut(m, row[d - 1]);
        uint32_t room = WALK_THREADS - first[d];
        uint32_t n = match_step(m, m->walk + first[d - 1], first[d] - first[d - 1], trie_byte(node), m->walk + first[d],
                                room < THREADS_MAX ? room : THREADS_MAX);
        if (fuel-- == 0) m->st = ST_TOO_LARGE;
        if (m->st) return;
        if (n == 0) {
            i += trie_size(node);
            depth_before = d;
            continue;
        }
        first[d + 1] = first[d] + n;
        row[d] = m->n_row;
        depth_before = d;
        if (token != TRIE_NONE) allow(bits, token);
        i++;
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
    walk(m, &p->across, t, bits);
    mask_release(m->g->cache, p);
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
    for (uint32_t i = 0; i < m->v->n_alias; i++)
        if (allowed(bits, m->v->alias[i].first)) allow(bits, m->v->alias[i].second);
    return ST_OK;
}
