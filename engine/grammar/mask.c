/* mask: computes gr_mask: the tokens that may come next. */
#include "engine/grammar/mask.h"
#include "engine/grammar/match_impl.h"
#include <string.h>

static void allow(uint32_t *bits, uint32_t token) { bits[token / 32] |= 1u << (token % 32); }

enum {
    ROOTS_A_STEP = 8, /* looking at a root costs less than a step of the rules */
    FEW_ROOTS = 64,   /* then it does not pay to know what may follow them */
    SPLIT_ITEMS = 64, /* more items of a state are not told apart */
};

/* The way from a reading down a tree. By depth: where its threads end in m->walk, and the rows that are in use. */
struct descent {
    uint32_t end[TRIE_DEPTH_MAX + 1], row[TRIE_DEPTH_MAX + 1];
    uint32_t fuel;
};

static void burn(struct gr_match *m, struct descent *w)
{
    if (w->fuel-- == 0) m->st = ST_TOO_LARGE;
}

/* Rows from n on are of places that have been left. They may be needed again, and stay until room is short. */
static void spare_rows(struct gr_match *m, uint32_t n)
{
    if (m->n_row > ROWS_MAX / 8 * 7 || m->n_item > ITEMS_MAX / 8 * 7) rows_cut(m, n);
}

/* One byte down, from depth d - 1. false: not allowed, or m->st. */
static bool descend(struct gr_match *m, struct descent *w, uint32_t d, uint8_t byte)
{
    uint32_t first = d > 1 ? w->end[d - 2] : 0, n = w->end[d - 1] - first, room = WALK_THREADS - w->end[d - 1];
    spare_rows(m, w->row[d - 1]);
    n = match_step(m, m->walk + first, n, byte, m->walk + w->end[d - 1], room < THREADS_MAX ? room : THREADS_MAX);
    burn(m, w);
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

/* ---------------------------------------------------------------- past the end of a terminal */

/* Tokens that stay within a reading's terminals are known (mask.h). Others go past the end of one at one of the roots.
 * Of the bytes below a root few begin what may follow there. Only behind those the rules are followed, with the
 * terminals that go on beside them, until nothing is left but these; further roots are there again. */
struct crossing {
    struct descent          way;
    struct gr_match        *m;
    const struct mask_walk *p;
    struct gr_thread        from;
    uint32_t               *bits;
    uint32_t                next, at;                  /* root[next] and its bytes path[at ..] are to come */
    uint32_t                n_state;                   /* levels of the way to the last root whose state is known */
    uint32_t                state[TRIE_DEPTH_MAX + 1]; /* [n_state + 1] */
    unsigned char           path[TRIE_DEPTH_MAX];
};

static struct mask_root take_root(struct crossing *c)
{
    struct mask_root r = c->p->root[c->next++];
    uint32_t         n = trie_depth(c->p->tree->node[r.node]) - r.n_same;
    memcpy(c->path + r.n_same, c->p->path + c->at, n);
    c->at += n;
    if (r.n_same < c->n_state) c->n_state = r.n_same;
    return r;
}

/* The automaton's state at a root that was taken just now. */
static uint32_t state_at(struct crossing *c, uint32_t depth)
{
    for (; c->n_state < depth && !c->m->st; c->n_state++) {
        c->state[c->n_state + 1] = lex_step(c->m->g->lex, c->state[c->n_state], c->path[c->n_state]);
        if (c->state[c->n_state + 1] == LEX_UNKNOWN) c->m->st = ST_TOO_LARGE;
    }
    return c->state[depth];
}

/* Bytes with which something may follow at a row. */
static uint64_t first_bytes(struct gr_match *m, struct gr_row *r)
{
    if (r->first || r->start == LEX_DEAD) return r->first;
    for (unsigned byte = 0; byte < 256; byte++)
        if (lex_step(m->g->lex, r->start, (uint8_t)byte) != LEX_DEAD) r->first |= mask_bit((uint8_t)byte);
    return r->first;
}

/* Has the reading gone on past the end of a terminal, at this depth? */
static bool has_crossed(const struct crossing *c, uint32_t d)
{
    for (uint32_t i = c->way.end[d - 1]; i < c->way.end[d]; i++)
        if (c->m->walk[i].row != c->from.row) return true;
    return false;
}

static void cross_roots(struct crossing *c, uint32_t before, uint32_t top, uint32_t row);

/* Tokens below a node that is below a root, and those of further roots there. */
static void cross_below(struct crossing *c, uint32_t node)
{
    const struct trie *t = c->p->tree;
    uint32_t           end = node + trie_size(t->node[node]);
    for (uint32_t i = node; i < end && !c->m->st;) {
        uint32_t d = trie_depth(t->node[i]);
        bool     there = descend(c->m, &c->way, d, trie_byte(t->node[i]));
        if (c->m->st) return;
        if (!there || !has_crossed(c, d)) {
            cross_roots(c, i + trie_size(t->node[i]), c->way.end[d - 1], c->way.row[d - 1]);
            i += trie_size(t->node[i]);
            continue;
        }
        if (trie_token(t->node[i]) != TRIE_NONE) allow(c->bits, trie_token(t->node[i]));
        while (c->next < c->p->n_root && c->p->root[c->next].node <= i) take_root(c);
        i++;
    }
}

/* top, row: threads and rows that must stay. */
static void cross_root(struct crossing *c, struct mask_root r, uint32_t top, uint32_t row)
{
    struct gr_match   *m = c->m;
    const struct trie *t = c->p->tree;
    uint32_t           depth = trie_depth(t->node[r.node]), end = r.node + trie_size(t->node[r.node]);
    struct gr_thread   ended = { c->from.row, state_at(c, depth), false };
    if (c->next % ROOTS_A_STEP == 0) burn(m, &c->way);
    if (m->st) return;
    spare_rows(m, row);
    uint32_t behind = row_after(m, &ended, 1);
    if (behind == ROW_NONE) return;
    if (c->p->n_root > FEW_ROOTS && !(first_bytes(m, &m->row[behind]) & r.follow)) return;
    if (top + 2 > WALK_THREADS) {
        m->st = ST_TOO_LARGE;
        return;
    }
    uint32_t start = m->row[behind].start;
    c->way.end[depth - 1] = top;
    c->way.row[depth - 1] = row;
    if (m->g->lex->state[ended.state]->more) m->walk[top++] = ended;
    m->walk[top++] = (struct gr_thread){ behind, start, true };
    c->way.end[depth] = top;
    c->way.row[depth] = m->n_row;
    for (uint32_t i = r.node + 1; i < end && !m->st; i += trie_size(t->node[i])) {
        if (lex_step(m->g->lex, start, trie_byte(t->node[i])) == LEX_DEAD)
            cross_roots(c, i + trie_size(t->node[i]), top, c->way.row[depth]);
        else
            cross_below(c, i);
    }
}

/* The roots that are to come, up to this node. */
static void cross_roots(struct crossing *c, uint32_t before, uint32_t top, uint32_t row)
{
    while (!c->m->st && c->next < c->p->n_root && c->p->root[c->next].node < before)
        cross_root(c, take_root(c), top, row);
}

static void cross(struct gr_match *m, const struct mask_walk *p, struct gr_thread from, uint32_t n_row, uint32_t *bits)
{
    struct crossing c; /* its arrays are filled as far as they are read */
    c.way.fuel = WALK_FUEL;
    c.m = m;
    c.p = p;
    c.from = from;
    c.bits = bits;
    c.next = 0;
    c.at = 0;
    c.n_state = 0;
    c.state[0] = from.state;
    cross_roots(&c, UINT32_MAX, 0, n_row);
}

/* The bits of a mask in which nothing is set yet are cleared when the first is to be set: where that is a part's bits,
 * they are copied instead. */
static void clear_bits(struct gr_match *m, uint32_t *bits)
{
    if (m->blank) memset(bits, 0, gr_words(m->v->n) * sizeof *bits);
    m->blank = false;
}

static void allow_tokens(struct gr_match *m, struct gr_thread t, uint32_t *bits)
{
    const struct grammar *g = m->g;
    const struct gr_row  *r = &m->row[t.row];
    if (!t.fresh || !r->tokens) return;
    clear_bits(m, bits);
    for (uint32_t i = 0; i < r->n_item; i++) {
        uint32_t symbol = g->symbol[m->item[r->item + i].dot];
        if (gr_kind_of(symbol) != GR_TOKEN) continue;
        uint32_t token = g->token[gr_number(symbol)];
        if (token < m->v->n && m->v->token[token].n == 0) allow(bits, token);
    }
}

/* Can no plain character follow where a terminal of the reading ends? n_row: rows that must stay. */
static bool ends_apart(struct gr_match *m, struct gr_thread t, uint32_t n_row)
{
    spare_rows(m, n_row);
    uint32_t start = row_start_behind(m, t);
    for (unsigned byte = 0; byte < 256 && !m->st; byte++)
        if (mask_plain((uint8_t)byte) && lex_step(m->g->lex, start, (uint8_t)byte) != LEX_DEAD) return false;
    return true;
}

static void add_bits(uint32_t *restrict bits, const uint32_t *restrict more, uint32_t n)
{
    for (uint32_t w = 0; w < n; w++) bits[w] |= more[w];
}

static void allow_inside(struct gr_match *m, const struct mask_part *p, uint32_t *bits)
{
    uint32_t n = gr_words(m->v->n);
    if (p->inside && m->blank) {
        memcpy(bits, p->inside, n * sizeof *bits);
        m->blank = false;
        return;
    }
    clear_bits(m, bits);
    if (p->inside) add_bits(bits, p->inside, n);
    for (uint32_t i = 0; i < p->n_few; i++) allow(bits, p->few[i]);
}

static void mask_of_some(struct gr_match *m, struct gr_thread t, bool apart, uint32_t n_row, uint32_t *bits)
{
    const struct mask_part *p = m->st ? NULL : mask_get(m->g->cache, m->g->lex, m->v, t.state, apart);
    if (!p) {
        if (!m->st) m->st = ST_TOO_LARGE;
        return;
    }
    allow_inside(m, p, bits);
    for (uint32_t i = 0; i < p->n_walk && !m->st; i++) cross(m, &p->walk[i], t, n_row, bits);
    mask_release(p);
}

/* Terminals behind which no plain character follows, and the others, each as a reading of its own. */
static void mask_by_what_follows(struct gr_match *m, struct gr_thread t, uint32_t n_row, uint32_t *bits)
{
    struct lex *l = m->g->lex;
    bool        apart[SPLIT_ITEMS], alone[SPLIT_ITEMS] = { false };
    uint32_t    n = l->state[t.state]->n_item, n_apart = 0;
    for (uint32_t i = 0; i < n && n <= SPLIT_ITEMS && !m->st; i++) {
        alone[i] = true;
        struct gr_thread one = { t.row, lex_some(l, t.state, alone, true), t.fresh };
        alone[i] = false;
        apart[i] = one.state != LEX_UNKNOWN && ends_apart(m, one, n_row);
        n_apart += apart[i];
    }
    if (n_apart == 0 || n_apart == n) {
        mask_of_some(m, t, n_apart == n, n_row, bits);
        return;
    }
    for (int side = 0; side < 2 && !m->st; side++) {
        struct gr_thread some = { t.row, lex_some(l, t.state, apart, side), t.fresh };
        if (some.state == LEX_UNKNOWN) m->st = ST_TOO_LARGE;
        mask_of_some(m, some, side, n_row, bits);
    }
}

static void mask_of(struct gr_match *m, struct gr_thread t, uint32_t n_row, uint32_t *bits)
{
    allow_tokens(m, t, bits);
    if (t.state == LEX_DEAD) return;
    if (!mask_asks(m->g->lex, t.state))
        mask_of_some(m, t, false, n_row, bits);
    else if (ends_apart(m, t, n_row))
        mask_of_some(m, t, true, n_row, bits);
    else
        mask_by_what_follows(m, t, n_row, bits);
}

enum status gr_mask_behind(struct gr_match *m, const void *bytes, size_t n, uint32_t *bits)
{
    const struct trie *t = &m->v->all;
    uint32_t           root = trie_find(t, bytes, n);
    m->st = ST_OK;
    lex_allow(m->g->lex);
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
    m->st = ST_OK;
    m->blank = true;
    lex_allow(m->g->lex);
    if (m->n_row > ROWS_MAX / 2 || m->n_item > ITEMS_MAX / 2) rows_collect(m);
    uint32_t n_row = m->n_row;
    for (uint32_t i = 0; i < m->now.n && !m->st; i++) mask_of(m, m->now.thread[i], n_row, bits);
    if (m->st) m->blank = true;
    clear_bits(m, bits);
    if (m->st) return m->st;
    vocab_equal_bits(m->v, bits);
    return ST_OK;
}
