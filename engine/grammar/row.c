/* row: makes the rows of Earley's table, finds rows made before, and forgets rows. */
#include "base/hash.h"
#include "engine/grammar/match_impl.h"
#include <stdlib.h>
#include <string.h>

static uint32_t memo_at(uint32_t row, uint32_t state) { return (uint32_t)hash_combine(row, state) % MEMO; }

static bool put_seen(struct gr_match *m, struct gr_item item)
{
    uint64_t where = (uint64_t)item.count << 32 | item.dot, whose = (uint64_t)item.origin << 32 | item.rule;
    uint32_t at = (uint32_t)hash_combine(where, whose) & (SEEN - 1);
    for (; m->seen[at].stamp == m->stamp; at = (at + 1) & (SEEN - 1))
        if (gr_same(m->seen[at].item, item)) return false;
    m->seen[at].item = item;
    m->seen[at].stamp = m->stamp;
    return true;
}

/* Is it the first time that this row gets this item? A table is used where there are more than a few. */
static bool is_new(struct gr_match *m, const struct gr_row *r, struct gr_item item)
{
    enum { FEW = 24 };
    const struct gr_item *has = m->item + r->item;
    if (r->n_item > FEW) return put_seen(m, item);
    for (uint32_t i = 0; i < r->n_item; i++)
        if (gr_same(has[i], item)) return false;
    for (uint32_t i = 0; i < r->n_item && r->n_item == FEW; i++) put_seen(m, has[i]);
    if (r->n_item == FEW) put_seen(m, item);
    return true;
}

static struct gr_row *row_begin(struct gr_match *m)
{
    if (m->n_row == ROWS_MAX) {
        m->st = ST_TOO_LARGE;
        return NULL;
    }
    struct gr_row *r = &m->row[m->n_row];
    *r = (struct gr_row){ .item = m->n_item, .key_row = ROW_NONE };
    m->stamp++;
    if (m->stamp == 0) { /* once in 2^32 rows */
        memset(m->seen, 0, sizeof m->seen);
        m->stamp = 1;
    }
    return r;
}

static void put(struct gr_match *m, struct gr_row *r, struct gr_item item)
{
    if (m->st || !is_new(m, r, item)) return;
    if (r->item + r->n_item == ITEMS_MAX || r->n_item == ROW_ITEMS_MAX) {
        m->st = ST_TOO_LARGE;
        return;
    }
    m->item[r->item + r->n_item++] = item;
}

/* An item goes past the symbol at its dot. */
static void put_next(struct gr_match *m, struct gr_row *r, struct gr_item item)
{
    item.dot++;
    put(m, r, item);
}

/* All alternatives of a rule that can be ended. as: whose end theirs is. */
static void put_rule(struct gr_match *m, struct gr_row *r, uint32_t rule, struct gr_item as)
{
    const struct grammar *g = m->g;
    for (uint32_t a = g->alt_first[rule]; a < g->alt_first[rule + 1]; a++) {
        if (g->range && !gr_range_has(g->range[a], as.count)) continue;
        as.dot = g->alt[a] & (GR_SYMBOLS_MAX - 1);
        put(m, r, as);
    }
}

static struct gr_item begins(uint32_t rule, uint32_t row)
{
    return (struct gr_item){ .origin = row & (ROWS_MAX - 1), .rule = rule & (GR_RULES_MAX - 1) };
}

/* A rule that began at row `origin` has ended: what waits for it there goes on. */
static void complete(struct gr_match *m, struct gr_row *r, uint32_t rule, uint32_t origin)
{
    const struct grammar *g = m->g;
    uint32_t              self = (uint32_t)(r - m->row), want = gr_symbol(GR_RULE, rule);
    if (origin == self) return; /* it was nothing, and predict() has gone past it */
    const struct gr_row *o = &m->row[origin];
    for (uint32_t i = 0; i < o->n_item; i++) {
        struct gr_item it = m->item[o->item + i];
        if (g->symbol[it.dot] == want) put_next(m, r, it);
    }
}

static void predict(struct gr_match *m, struct gr_row *r, uint32_t rule, struct gr_item item)
{
    bool tail = gr_kind_of(m->g->symbol[item.dot]) == GR_TAIL;
    put_rule(m, r, rule, tail ? item : begins(rule, (uint32_t)(r - m->row)));
    if (m->g->nullable[rule]) put_next(m, r, item);
}

/* Past a symbol that counts, or nowhere. */
static void count(struct gr_match *m, struct gr_row *r, uint32_t number, struct gr_item item)
{
    if (number && !gr_range_has(gr_range_of(number), item.count)) return;
    if (!number) item.count = gr_count_more(item.count) & GR_COUNT_MANY;
    put_next(m, r, item);
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_numbers(uint32_t *t, uint32_t n)
{
    enum { FEW = 16 };
    if (n > FEW) qsort(t, n, sizeof *t, by_number);
    for (uint32_t i = 1; i < n && n <= FEW; i++) {
        uint32_t v = t[i], k = i;
        for (; k > 0 && t[k - 1] > v; k--) t[k] = t[k - 1];
        t[k] = v;
    }
}

/* The state in which the terminals begin. */
static void set_start(struct gr_match *m, struct gr_row *r, uint32_t n_terminal)
{
    uint32_t *t = m->terminal, kept = 0;
    sort_numbers(t, n_terminal);
    for (uint32_t i = 0; i < n_terminal; i++)
        if (!kept || t[kept - 1] != t[i]) t[kept++] = t[i];
    r->start = lex_start(m->g->lex, t, kept);
    if (r->start == LEX_UNKNOWN) m->st = ST_TOO_LARGE;
}

/* Follows the items of a row to their end, and closes it. Ended rules have done their work and are left out, as are those
 * in whose place others go on, and those that have counted. */
static uint32_t row_end(struct gr_match *m, struct gr_row *r)
{
    const struct grammar *g = m->g;
    uint32_t              n_terminal = 0, kept = 0;
    for (uint32_t i = 0; i < r->n_item && !m->st; i++) {
        struct gr_item item = m->item[r->item + i];
        uint32_t       symbol = g->symbol[item.dot], number = gr_number(symbol);
        switch (gr_kind_of(symbol)) {
        case GR_RULE:
        case GR_TAIL: predict(m, r, number, item); break;
        case GR_TERMINAL: m->terminal[n_terminal++] = number; break;
        case GR_TOKEN: r->tokens = true; break;
        case GR_COUNT: count(m, r, number, item); break;
        case GR_END:
            if (item.rule == g->start && item.origin == 0) r->end = true;
            complete(m, r, item.rule, item.origin);
            break;
        }
    }
    for (uint32_t i = 0; i < r->n_item && !m->st; i++) {
        struct gr_item item = m->item[r->item + i];
        enum gr_kind   kind = gr_kind_of(g->symbol[item.dot]);
        if (kind != GR_END && kind != GR_TAIL && kind != GR_COUNT) m->item[r->item + kept++] = item;
    }
    if (!m->st) set_start(m, r, n_terminal);
    if (m->st) return ROW_NONE;
    r->n_item = kept;
    m->n_item = r->item + kept;
    return m->n_row++;
}

uint32_t row_first(struct gr_match *m)
{
    const struct grammar *g = m->g;
    struct gr_row        *r = row_begin(m);
    if (!r) return ROW_NONE;
    put_rule(m, r, g->start, begins(g->start, 0));
    return row_end(m, r);
}

static bool is_among(const uint32_t *sorted, uint32_t n, uint32_t v)
{
    uint32_t from = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (sorted[from + half] == v) return true;
        if (sorted[from + half] < v) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return false;
}

/* Items of a row go past the terminals that end in this state. */
static void scan(struct gr_match *m, struct gr_row *r, struct gr_thread t)
{
    const struct gr_row    *from = &m->row[t.row];
    const struct lex_state *s = m->g->lex->state[t.state];
    for (uint32_t i = 0; i < from->n_item; i++) {
        struct gr_item item = m->item[from->item + i];
        uint32_t       symbol = m->g->symbol[item.dot];
        if (gr_kind_of(symbol) == GR_TERMINAL && is_among(s->accept, s->n_accept, gr_number(symbol)))
            put_next(m, r, item);
    }
}

uint32_t row_after(struct gr_match *m, const struct gr_thread *ended, uint32_t n)
{
    uint32_t at = 0;
    if (n == 1) { /* nearly always: then the row may be there already */
        at = memo_at(ended->row, ended->state);
        uint32_t k = m->memo[at];
        if (k < m->n_row && m->row[k].key_row == ended->row && m->row[k].key_state == ended->state) return k;
    }
    struct gr_row *r = row_begin(m);
    if (!r) return ROW_NONE;
    for (uint32_t i = 0; i < n; i++) scan(m, r, ended[i]);
    uint32_t id = row_end(m, r);
    if (id == ROW_NONE || n > 1) return id;
    r->key_row = ended->row;
    r->key_state = ended->state;
    m->memo[at] = id;
    return id;
}

static bool has_terminal(const struct lex_state *s, uint32_t terminal)
{
    for (uint32_t i = 0; i < s->n_item; i++)
        if (s->item[i].terminal == terminal) return true;
    return false;
}

uint32_t row_start_behind(struct gr_match *m, struct gr_thread t)
{
    const struct gr_row    *from = &m->row[t.row];
    const struct lex_state *s = m->g->lex->state[t.state];
    uint32_t                n_row = m->n_row, start = LEX_DEAD;
    struct gr_row          *r = row_begin(m);
    for (uint32_t i = 0; r && i < from->n_item; i++) {
        struct gr_item item = m->item[from->item + i];
        uint32_t       symbol = m->g->symbol[item.dot];
        if (gr_kind_of(symbol) == GR_TERMINAL && has_terminal(s, gr_number(symbol))) put_next(m, r, item);
    }
    if (r && row_end(m, r) != ROW_NONE) start = m->row[n_row].start;
    rows_cut(m, n_row);
    return start;
}

uint32_t row_after_token(struct gr_match *m, const struct gr_thread *at, uint32_t n, uint32_t token)
{
    const struct grammar *g = m->g;
    struct gr_row        *r = row_begin(m);
    if (!r) return ROW_NONE;
    for (uint32_t t = 0; t < n; t++) {
        if (!at[t].fresh) continue;
        const struct gr_row *from = &m->row[at[t].row];
        for (uint32_t i = 0; i < from->n_item; i++) {
            struct gr_item item = m->item[from->item + i];
            uint32_t       symbol = g->symbol[item.dot];
            if (gr_kind_of(symbol) == GR_TOKEN && g->token[gr_number(symbol)] == token) put_next(m, r, item);
        }
    }
    if (!m->st && r->n_item == 0) m->st = ST_INVALID;
    return m->st ? ROW_NONE : row_end(m, r);
}

/* ---------------------------------------------------------------- forgetting */

static void mark(bool *keep, const struct gr_config *c)
{
    for (uint32_t i = 0; i < c->n; i++) keep[c->thread[i].row] = true;
}

static void move(const uint32_t *to, struct gr_config *c)
{
    for (uint32_t i = 0; i < c->n; i++) c->thread[i].row = to[c->thread[i].row];
}

static struct gr_config *remembered(struct gr_match *m, uint32_t i)
{
    return &m->back[(m->back_at + GR_BACK - 1 - i) % GR_BACK];
}

void rows_collect(struct gr_match *m)
{
    bool     keep[ROWS_MAX] = { [0] = true }; /* the first row is where the whole text began */
    uint32_t to[ROWS_MAX], n_row = 0, n_item = 0;
    mark(keep, &m->now);
    for (uint32_t i = 0; i < m->n_back; i++) mark(keep, remembered(m, i));
    for (uint32_t r = m->n_row; r-- > 0;) /* a row's items began in rows before it */
        for (uint32_t i = 0; keep[r] && i < m->row[r].n_item; i++) keep[m->item[m->row[r].item + i].origin] = true;
    for (uint32_t r = 0; r < m->n_row; r++) {
        if (!keep[r]) continue;
        struct gr_row row = m->row[r];
        to[r] = n_row;
        for (uint32_t i = 0; i < row.n_item; i++) {
            struct gr_item item = m->item[row.item + i];
            item.origin = to[item.origin] & (ROWS_MAX - 1);
            m->item[n_item + i] = item;
        }
        row.item = n_item;
        if (row.key_row != ROW_NONE) row.key_row = keep[row.key_row] ? to[row.key_row] : ROW_NONE;
        m->row[n_row++] = row;
        n_item += row.n_item;
    }
    move(to, &m->now);
    for (uint32_t i = 0; i < m->n_back; i++) move(to, remembered(m, i));
    m->n_row = n_row;
    m->n_item = n_item;
    memset(m->memo, 0xff, sizeof m->memo);
}

void rows_cut(struct gr_match *m, uint32_t n)
{
    if (n >= m->n_row) return;
    m->n_item = m->row[n].item;
    m->n_row = n;
}
