/* grammar: turns rules into arrays, and removes the symbols that match nothing. */
#include "base/check.h"
#include "engine/grammar/grammar_impl.h"
#include "engine/grammar/grow.h"
#include "engine/grammar/mask.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct gr_limits gr_limits_default = {
    .rx = { .node_max = 1000000, .fuel = 20000000, .depth_max = 1000 },
    .symbol_max = 1500000,
    .lex_state_max = 100000,
    .lex_bytes_max = 16u << 20,
    .lex_fuel_max = 20000000,
};

enum { ROWS_FUEL = 5000000 }; /* places that rows_fit looks at */

/* A growing array of numbers. */
struct numbers {
    uint32_t *at;
    uint32_t  n, room;
};

struct gr_rules {
    struct gr_limits limits;
    enum status      st;
    struct rx       *rx;
    uint32_t         n_rule;
    struct numbers   text;     /* alternatives as given: rule, n, symbols ... */
    struct numbers   terminal; /* their expressions */
    struct numbers   by_rx;    /* [expression] its symbol + 1 */
    struct numbers   token;
    uint32_t         n_symbol;
    bool             counts; /* gr_more or gr_counted was asked for */
};

static bool add(struct gr_rules *r, struct numbers *a, uint32_t v)
{
    if (r->st) return false;
    if (!array_grow((void **)&a->at, a->n, 1, &a->room, sizeof *a->at)) {
        r->st = ST_NOMEM;
        return false;
    }
    a->at[a->n++] = v;
    return true;
}

struct gr_rules *gr_rules_create(const struct gr_limits *limits)
{
    struct gr_rules *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->limits = *limits;
    r->rx = rx_create(&limits->rx);
    if (r->rx) return r;
    free(r);
    return NULL;
}

void gr_rules_free(struct gr_rules *r)
{
    if (!r) return;
    rx_free(r->rx);
    free(r->text.at);
    free(r->terminal.at);
    free(r->by_rx.at);
    free(r->token.at);
    free(r);
}

struct rx  *gr_rx(struct gr_rules *r) { return r->rx; }
enum status gr_rules_status(const struct gr_rules *r) { return r->st ? r->st : rx_status(r->rx); }

static bool symbol_fits(struct gr_rules *r, uint32_t n)
{
    if (r->st) return false;
    if (r->n_symbol + n > r->limits.symbol_max) {
        r->st = ST_TOO_LARGE;
        return false;
    }
    r->n_symbol += n;
    return true;
}

uint32_t gr_rule(struct gr_rules *r)
{
    if (!symbol_fits(r, 1)) return gr_symbol(GR_RULE, 0);
    return gr_symbol(GR_RULE, r->n_rule++);
}

uint32_t gr_terminal(struct gr_rules *r, uint32_t rx)
{
    while (r->by_rx.n <= rx)
        if (!add(r, &r->by_rx, 0)) return gr_symbol(GR_TERMINAL, 0);
    if (r->by_rx.at[rx]) return r->by_rx.at[rx] - 1;
    uint32_t symbol = gr_symbol(GR_TERMINAL, r->terminal.n);
    if (!add(r, &r->terminal, rx)) return symbol;
    if (rx_nullable(r->rx, rx)) { /* terminals have at least a byte: the empty text is an alternative beside it */
        uint32_t rule = gr_rule(r);
        gr_alt(r, rule, NULL, 0);
        if (rx != RX_EMPTY) gr_alt(r, rule, &symbol, 1);
        symbol = rule;
    }
    r->by_rx.at[rx] = symbol + 1;
    return symbol;
}

uint32_t gr_token(struct gr_rules *r, uint32_t token)
{
    uint32_t i = 0;
    while (i < r->token.n && r->token.at[i] != token) i++;
    if (i == r->token.n) add(r, &r->token, token);
    return gr_symbol(GR_TOKEN, i);
}

void gr_alt(struct gr_rules *r, uint32_t rule, const uint32_t *symbol, uint32_t n)
{
    if (!symbol_fits(r, n + 1)) return;
    add(r, &r->text, gr_number(rule));
    add(r, &r->text, n);
    for (uint32_t i = 0; i < n; i++) add(r, &r->text, symbol[i]);
}

void gr_alt_tail(struct gr_rules *r, uint32_t rule, const uint32_t *symbol, uint32_t n)
{
    gr_alt(r, rule, symbol, n);
    uint32_t last = symbol[n - 1];
    if (!r->st && gr_kind_of(last) == GR_RULE) r->text.at[r->text.n - 1] = gr_symbol(GR_TAIL, gr_number(last));
}

uint32_t gr_more(struct gr_rules *r)
{
    r->counts = true;
    return gr_symbol(GR_COUNT, 0);
}

uint32_t gr_counted(struct gr_rules *r, uint32_t min, uint32_t max)
{
    CHECK(min <= GR_COUNT_MAX && (max <= GR_COUNT_MAX || max == RX_MANY));
    r->counts = true;
    uint32_t hi = max == RX_MANY ? GR_COUNT_MANY : max;
    return gr_symbol(GR_COUNT, 1u << 2 * GR_COUNT_BITS | min << GR_COUNT_BITS | hi);
}

/* ---------------------------------------------------------------- what matches nothing */

/* Alternatives that wait for their rules to become true. */
struct waiting {
    uint32_t *first; /* [rule] list of places in alternatives; 0 ends it */
    uint32_t *next, *alt;
    uint32_t *lhs;     /* [alternative] */
    uint32_t *missing; /* [alternative] symbols that are not true yet; NEVER: one will not be */
    uint32_t *stack;   /* rules that became true, and whose list is to be gone through */
    uint32_t  n_alt, n_link, n_stack;
};
#define NEVER UINT32_MAX

static void become(struct waiting *w, uint32_t alt, bool *truth)
{
    uint32_t rule = w->lhs[alt];
    if (w->missing[alt] || truth[rule]) return;
    truth[rule] = true;
    w->stack[w->n_stack++] = rule;
}

/* truth: [n_rule] a rule is true as soon as all symbols of one of its alternatives are. terminal: which terminals are;
 * NULL: none of them, no token, and no count. Every symbol is looked at once, so rules made to hurt cost their length (Dowling and
 * Gallier 1984). ST_NOMEM. */
static enum status spread(const struct gr_rules *r, const bool *terminal, bool *truth)
{
    size_t         n = r->n_symbol + 1;
    uint32_t      *all = calloc(6 * n, sizeof *all);
    struct waiting w = { all, all + n, all + 2 * n, all + 3 * n, all + 4 * n, all + 5 * n, 0, 0, 0 };
    if (!all) return ST_NOMEM;
    for (uint32_t at = 0; at < r->text.n; at += 2 + r->text.at[at + 1]) {
        const uint32_t *symbol = r->text.at + at + 2;
        uint32_t        alt = w.n_alt++;
        w.lhs[alt] = r->text.at[at];
        for (uint32_t i = 0; i < r->text.at[at + 1]; i++) {
            enum gr_kind kind = gr_kind_of(symbol[i]);
            uint32_t     k = gr_number(symbol[i]);
            if (kind == GR_TERMINAL ? !(terminal && terminal[k]) : !gr_is_rule(symbol[i]) && !terminal)
                w.missing[alt] = NEVER;
            if (!gr_is_rule(symbol[i]) || w.missing[alt] == NEVER) continue;
            w.missing[alt]++;
            w.n_link++;
            w.alt[w.n_link] = alt;
            w.next[w.n_link] = w.first[k];
            w.first[k] = w.n_link;
        }
    }
    for (uint32_t a = 0; a < w.n_alt; a++) become(&w, a, truth);
    while (w.n_stack > 0) {
        uint32_t rule = w.stack[--w.n_stack];
        for (uint32_t l = w.first[rule]; l; l = w.next[l]) {
            if (w.missing[w.alt[l]] == NEVER) continue;
            w.missing[w.alt[l]]--;
            become(&w, w.alt[l], truth);
        }
    }
    free(all);
    return ST_OK;
}

/* ---------------------------------------------------------------- arrays */

struct facts {
    bool *terminal; /* [n_terminal] it matches something */
    bool *live;     /* [n_rule] it can be ended */
    bool  crowded;  /* more may begin at a place than a row holds */
};

static bool alt_lives(const struct facts *f, const uint32_t *symbol, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = gr_number(symbol[i]);
        if (gr_is_rule(symbol[i]) && !f->live[k]) return false;
        if (gr_kind_of(symbol[i]) == GR_TERMINAL && !f->terminal[k]) return false;
    }
    return true;
}

static enum status flatten(const struct gr_rules *r, const struct facts *f, struct grammar *g)
{
    size_t n = r->n_symbol + 1;
    g->n_rule = r->n_rule;
    g->symbol = calloc(n, sizeof *g->symbol);
    g->alt = calloc(n, sizeof *g->alt);
    g->alt_first = calloc(g->n_rule + 2, sizeof *g->alt_first);
    uint32_t *fill = calloc(g->n_rule + 1, sizeof *fill);
    if (!g->symbol || !g->alt || !g->alt_first || !fill) {
        free(fill);
        return ST_NOMEM;
    }
    for (int pass = 0; pass < 2; pass++) { /* counts, then places */
        for (uint32_t at = 0; at < r->text.n; at += 2 + r->text.at[at + 1]) {
            uint32_t        rule = r->text.at[at], m = r->text.at[at + 1];
            const uint32_t *symbol = r->text.at + at + 2;
            if (!f->live[rule] || !alt_lives(f, symbol, m)) continue;
            if (pass == 0) {
                g->alt_first[rule + 1]++;
                continue;
            }
            g->alt[g->alt_first[rule] + fill[rule]++] = g->n_symbol;
            memcpy(g->symbol + g->n_symbol, symbol, m * sizeof *symbol);
            g->n_symbol += m;
            g->symbol[g->n_symbol++] = gr_symbol(GR_END, rule);
        }
        for (uint32_t i = 0; pass == 0 && i < g->n_rule; i++) g->alt_first[i + 1] += g->alt_first[i];
    }
    free(fill);
    return ST_OK;
}

static enum status terminals_that_match(struct gr_rules *r, bool *terminal)
{
    uint8_t kind[256];
    rx_kinds(r->rx, kind);
    for (uint32_t t = 0; t < r->terminal.n; t++) terminal[t] = !rx_is_void(r->rx, r->terminal.at[t]);
    return rx_status(r->rx);
}

/* ---------------------------------------------------------------- rows */

/* A search for what rows hold. */
struct rows {
    const struct grammar *g;
    uint32_t             *stamp; /* [n_symbol] the last search that met this place */
    uint32_t              now, n, place[ROW_ITEMS_MAX];
    bool                  fits;
};

static void rows_add(struct rows *w, uint32_t place)
{
    if (w->stamp[place] == w->now) return;
    w->stamp[place] = w->now;
    w->fits = w->n < ROW_ITEMS_MAX;
    if (w->fits) w->place[w->n++] = place;
}

static void rows_add_rule(struct rows *w, uint32_t rule)
{
    for (uint32_t a = w->g->alt_first[rule]; a < w->g->alt_first[rule + 1] && w->fits; a++) rows_add(w, w->g->alt[a]);
}

/* Whether a row where this rule may begin has room for what begins there (as predict() of row.c adds it). */
static bool row_fits(struct rows *w, uint32_t rule)
{
    const struct grammar *g = w->g;
    w->now++;
    w->n = 0;
    w->fits = true;
    rows_add_rule(w, rule);
    for (uint32_t i = 0; i < w->n && w->fits; i++) {
        uint32_t symbol = g->symbol[w->place[i]], number = gr_number(symbol);
        if (gr_kind_of(symbol) == GR_COUNT) rows_add(w, w->place[i] + 1);
        if (!gr_is_rule(symbol)) continue;
        rows_add_rule(w, number);
        if (g->nullable[number]) rows_add(w, w->place[i] + 1);
    }
    return w->fits;
}

/* Every rule that a text may come to. A text that came to one without room would end there, so that such a grammar is
 * refused at once; if the search takes too long, that is left to the text. */
static enum status rows_fit(const struct grammar *g)
{
    struct rows *w = calloc(1, sizeof *w);
    uint32_t    *stamp = calloc(g->n_symbol + 1, sizeof *stamp), *rule = calloc(g->n_rule + 1, sizeof *rule), n = 0;
    bool        *seen = calloc(g->n_rule + 1, sizeof *seen), fits = true;
    uint64_t     looked = 0;
    enum status  st = w && stamp && rule && seen ? ST_OK : ST_NOMEM;
    if (!st) {
        *w = (struct rows){ .g = g, .stamp = stamp };
        seen[g->start] = true;
        rule[n++] = g->start;
    }
    for (uint32_t i = 0; i < n && fits && looked < ROWS_FUEL; i++) {
        fits = row_fits(w, rule[i]);
        looked += w->n;
        for (uint32_t a = g->alt_first[rule[i]]; a < g->alt_first[rule[i] + 1]; a++) {
            for (uint32_t at = g->alt[a]; gr_kind_of(g->symbol[at]) != GR_END; at++, looked++) {
                uint32_t number = gr_number(g->symbol[at]);
                if (!gr_is_rule(g->symbol[at]) || seen[number]) continue;
                seen[number] = true;
                rule[n++] = number;
            }
        }
    }
    free(w);
    free(stamp);
    free(rule);
    free(seen);
    return fits ? st : ST_TOO_LARGE;
}

static enum status build(struct gr_rules *r, uint32_t start, struct facts *f, struct grammar *g)
{
    if (r->n_rule > GR_RULES_MAX || r->n_symbol > GR_SYMBOLS_MAX) return ST_TOO_LARGE;
    enum status st = terminals_that_match(r, f->terminal);
    if (!st) st = spread(r, f->terminal, f->live);
    if (!st && !f->live[gr_number(start)]) st = ST_INVALID;
    if (!st) st = spread(r, NULL, g->nullable);
    if (!st) st = flatten(r, f, g);
    if (st) return st;
    g->start = gr_number(start);
    if (r->counts) st = count_ranges(g);
    if (st) return st;
    st = rows_fit(g);
    f->crowded = st == ST_TOO_LARGE;
    if (st) return st;
    struct lex_limits limits = { r->limits.lex_state_max, r->limits.lex_bytes_max, r->limits.lex_fuel_max };
    struct rx        *rx = r->rx;
    r->rx = NULL;
    st = lex_create(rx, r->terminal.at, r->terminal.n, &limits, &g->lex);
    g->token = r->token.at;
    g->n_token = r->token.n;
    r->token.at = NULL;
    return st ? st : mask_cache_create(&g->cache);
}

enum status gr_build(struct gr_rules *r, uint32_t start, struct grammar **g_out, char err[GR_ERR])
{
    if (gr_kind_of(start) != GR_RULE) {
        uint32_t rule = gr_rule(r);
        gr_alt(r, rule, &start, 1);
        start = rule;
    }
    enum status     st = gr_rules_status(r);
    struct grammar *g = calloc(1, sizeof *g);
    struct facts    f = { calloc(r->terminal.n + 1, 1), calloc(r->n_rule + 1, 1), false };
    if (g) atomic_init(&g->n_user, 1);
    if (g) g->nullable = calloc(r->n_rule + 1, 1);
    if (!g || !g->nullable || !f.terminal || !f.live) st = ST_NOMEM;
    if (!st) st = build(r, start, &f, g);
    free(f.terminal);
    free(f.live);
    gr_rules_free(r);
    switch (st) {
    case ST_OK: *g_out = g; return ST_OK;
    case ST_INVALID: snprintf(err, GR_ERR, "no text at all satisfies it"); break;
    case ST_TOO_LARGE:
        if (f.crowded)
            snprintf(err, GR_ERR, "more than %d alternatives meet at one place of it", ROW_ITEMS_MAX);
        else
            snprintf(err, GR_ERR, "it is too large or too costly to compile");
        break;
    default: snprintf(err, GR_ERR, "no memory"); break;
    }
    gr_free(g);
    return st;
}

struct grammar *gr_keep(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->n_user, 1, memory_order_relaxed);
    return g;
}

void gr_free(struct grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->n_user, 1, memory_order_acq_rel) > 1) return;
    mask_cache_free(g->cache);
    lex_free(g->lex);
    free(g->symbol);
    free(g->alt);
    free(g->alt_first);
    free(g->range);
    free(g->token);
    free(g->nullable);
    free(g);
}

bool gr_in_use(const struct grammar *g) { return atomic_load_explicit(&g->n_user, memory_order_relaxed) > 1; }

bool gr_is_worn(struct grammar *g) { return lex_is_worn(g->lex); }

size_t gr_bytes(struct grammar *g)
{
    size_t ranges = g->range ? g->alt_first[g->n_rule] * sizeof *g->range : 0;
    return sizeof *g + (g->n_symbol * 2 + g->n_rule * 2) * sizeof(uint32_t) + ranges + lex_bytes(g->lex) +
           mask_cache_bytes(g->cache);
}
