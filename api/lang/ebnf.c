/* ebnf: names, nodes, and their translation into rules. */
#include "api/lang/ebnf.h"
#include "api/lang/repeat.h"
#include "base/hash.h"
#include "engine/grammar/rx_texts.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHAIN_MAX = 500,  /* parts within parts, by name or in place, that one expression may hold */
    WHOLE_MAX = 64,   /* nodes of a rule that becomes one expression */
    JOINED_MAX = 16,  /* nodes of a part that joins the parts beside it */
    HEAVY = 1u << 30, /* weight of what is no expression */
    WORDS_MIN = 64,   /* so many alternatives are a list of words */
};
enum { NAME_NEW, NAME_OPEN, NAME_DONE }; /* ebnf_name.state: of rx and weight */

uint32_t ebnf_fail(struct ebnf *e, size_t at, const char *fmt, ...)
{
    char    what[EBNF_ERR - 50];
    va_list args;
    size_t  line = 1, column = 1;
    if (e->failed) return 0;
    e->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    for (size_t i = 0; i < at && i < e->n_text; i++) {
        bool is_end = e->text[i] == '\n';
        line += is_end;
        column = is_end ? 1 : column + (((unsigned char)e->text[i] & 0xC0) != 0x80);
    }
    snprintf(e->err, EBNF_ERR, "line %zu, column %zu: %s", line, column, what);
    return 0;
}

/* ---------------------------------------------------------------- nodes */

static bool room(struct ebnf *e, void **array, uint32_t n, uint32_t *n_room, size_t bytes)
{
    if (e->failed) return false;
    if (n < *n_room) return true;
    uint32_t want = *n_room ? 2 * *n_room : 256;
    void    *p = realloc(*array, want * bytes);
    if (!p) {
        ebnf_fail(e, e->at, "no memory");
        return false;
    }
    *array = p;
    *n_room = want;
    return true;
}

enum status ebnf_init(struct ebnf *e, struct gr_rules *r, const char *text, size_t n_text, char err[EBNF_ERR])
{
    *e = (struct ebnf){
        .r = r, .x = gr_rx(r), .text = text, .n_text = n_text, .err = err, .ignore = UINT32_MAX, .within = RX_ALL
    };
    e->table_n = 256;
    e->table = calloc(e->table_n, sizeof *e->table);
    if (!e->table || !room(e, (void **)&e->node, 0, &e->node_room, sizeof *e->node)) {
        ebnf_free(e);
        return ST_NOMEM;
    }
    e->node[e->n_node++] = (struct ebnf_node){ .kind = EBNF_NONE };
    if (n_text > EBNF_BYTES_MAX) ebnf_fail(e, 0, "%zu bytes, allowed are %d", n_text, EBNF_BYTES_MAX);
    return ST_OK;
}

void ebnf_free(struct ebnf *e)
{
    free(e->node);
    free(e->name);
    free(e->table);
    e->node = NULL;
    e->name = NULL;
    e->table = NULL;
}

static uint32_t node_new(struct ebnf *e, enum ebnf_kind kind, uint32_t a, uint32_t min, uint32_t max)
{
    if (e->n_node == EBNF_NODES_MAX) return ebnf_fail(e, e->at, "more than %d parts", EBNF_NODES_MAX);
    if (!room(e, (void **)&e->node, e->n_node, &e->node_room, sizeof *e->node)) return 0;
    e->node[e->n_node] = (struct ebnf_node){ (uint8_t)kind, a, 0, min, max };
    return e->n_node++;
}

uint32_t ebnf_rx(struct ebnf *e, uint32_t rx) { return node_new(e, EBNF_RX, rx, 0, 0); }
uint32_t ebnf_symbol(struct ebnf *e, uint32_t symbol) { return node_new(e, EBNF_SYMBOL, symbol, 0, 0); }
uint32_t ebnf_repeat(struct ebnf *e, uint32_t of, uint32_t min, uint32_t max)
{
    return node_new(e, EBNF_REPEAT, of, min, max);
}

void ebnf_push(struct ebnf *e, struct ebnf_list *list, uint32_t node)
{
    if (!node) return;
    if (list->last)
        e->node[list->last].next = node;
    else
        list->first = node;
    list->last = node;
    list->n++;
}

uint32_t ebnf_cat(struct ebnf *e, const struct ebnf_list *list)
{
    return list->n == 1 ? list->first : node_new(e, EBNF_CAT, list->first, 0, 0);
}

uint32_t ebnf_or(struct ebnf *e, const struct ebnf_list *list)
{
    return list->n == 1 ? list->first : node_new(e, EBNF_OR, list->first, 0, 0);
}

/* ---------------------------------------------------------------- names */

static uint32_t *name_at(struct ebnf *e, const char *text, size_t n)
{
    uint64_t at = hash_bytes(text, n, 1);
    for (;; at++) {
        uint32_t               *slot = &e->table[at & (e->table_n - 1)];
        const struct ebnf_name *m = *slot ? &e->name[*slot - 1] : NULL;
        if (!m || (m->n_text == n && memcmp(m->text, text, n) == 0)) return slot;
    }
}

static bool table_grow(struct ebnf *e)
{
    uint32_t *old = e->table;
    e->table = calloc(2 * (size_t)e->table_n, sizeof *e->table);
    if (!e->table) {
        e->table = old;
        ebnf_fail(e, e->at, "no memory");
        return false;
    }
    e->table_n *= 2;
    free(old);
    for (uint32_t i = 0; i < e->n_name; i++) *name_at(e, e->name[i].text, e->name[i].n_text) = i + 1;
    return true;
}

static uint32_t name_of(struct ebnf *e, const char *text, size_t n, size_t at)
{
    uint32_t *slot = name_at(e, text, n);
    if (*slot) return *slot - 1;
    if (2 * e->n_name >= e->table_n) {
        if (!table_grow(e)) return 0;
        slot = name_at(e, text, n);
    }
    if (!room(e, (void **)&e->name, e->n_name, &e->name_room, sizeof *e->name)) return 0;
    e->name[e->n_name] = (struct ebnf_name){ .text = text, .n_text = (uint32_t)n, .at = at };
    *slot = ++e->n_name;
    return e->n_name - 1;
}

uint32_t ebnf_ref(struct ebnf *e, const char *name, size_t n, size_t at)
{
    uint32_t i = name_of(e, name, n, at);
    return e->failed ? 0 : node_new(e, EBNF_REF, i, 0, 0);
}

void ebnf_define(struct ebnf *e, const char *name, size_t n, size_t at, uint32_t node, bool terminal)
{
    uint32_t i = name_of(e, name, n, at);
    if (e->failed) return;
    if (e->name[i].def) {
        ebnf_fail(e, at, "'%.*s' is defined twice", (int)(n < 60 ? n : 60), name);
        return;
    }
    e->name[i].def = node;
    e->name[i].terminal = terminal;
}

bool ebnf_defined(struct ebnf *e, const char *name, size_t n)
{
    uint32_t slot = *name_at(e, name, n);
    return slot && e->name[slot - 1].def;
}

/* ---------------------------------------------------------------- expressions */

/* What is one expression over bytes. */
struct part {
    uint32_t rx, weight; /* HEAVY: it is none */
};
static const struct part no_part = { RX_NONE, HEAVY };

static struct part part_of(struct ebnf *e, uint32_t node);

static struct part part_of_name(struct ebnf *e, uint32_t i)
{
    struct ebnf_name *m = &e->name[i];
    if (m->state == NAME_OPEN || !m->def) return no_part;
    if (m->state == NAME_NEW) {
        m->state = NAME_OPEN;
        struct part p = part_of(e, m->def);
        m->rx = p.rx;
        m->weight = p.weight;
        m->state = NAME_DONE;
    }
    return (struct part){ m->rx, m->weight };
}

/* Words that begin alike share their beginning. */
static uint32_t any_of(struct ebnf *e, const uint32_t *rx, uint32_t n)
{
    struct rx_texts t;
    if (n < WORDS_MIN) return rx_or(e->x, rx, n);
    rx_texts_init(&t, e->x);
    for (uint32_t i = 0; i < n; i++) {
        if (rx[i] == RX_NONE) continue;
        rx_texts_rx(&t, rx[i]);
        rx_texts_end(&t);
    }
    uint32_t r = rx_texts_any(&t);
    rx_texts_free(&t);
    return r;
}

static struct part part_of_list(struct ebnf *e, const struct ebnf_node *n)
{
    uint32_t    few[16] = { 0 }, count = 0;
    struct part all = { RX_NONE, 1 };
    for (uint32_t c = n->a; c; c = e->node[c].next) count++;
    uint32_t *rx = count <= 16 ? few : malloc(count * sizeof *rx);
    if (!rx) return no_part;
    count = 0;
    for (uint32_t c = n->a; c && all.weight < HEAVY; c = e->node[c].next) {
        struct part p = part_of(e, c);
        rx[count++] = p.rx;
        all.weight = p.weight < HEAVY && all.weight + p.weight < HEAVY ? all.weight + p.weight : (uint32_t)HEAVY;
    }
    if (all.weight < HEAVY && n->kind == EBNF_OR) all.rx = any_of(e, rx, count);
    if (all.weight < HEAVY && n->kind == EBNF_CAT) {
        all.rx = RX_EMPTY;
        while (count-- > 0) all.rx = rx_cat(e->x, rx[count], all.rx);
    }
    if (rx != few) free(rx);
    return all.weight < HEAVY ? all : no_part;
}

static struct part part_of(struct ebnf *e, uint32_t node)
{
    struct ebnf_node n = e->node[node];
    struct part      p = no_part;
    if (n.kind == EBNF_RX) return (struct part){ n.a, 1 };
    if (e->depth >= CHAIN_MAX) return no_part;
    e->depth++;
    switch (n.kind) {
    case EBNF_REF:
        /* Where something may be ignored between terminals, rules are more than their expressions. */
        if (e->ignore == UINT32_MAX || e->name[n.a].terminal) p = part_of_name(e, n.a);
        break;
    case EBNF_CAT:
    case EBNF_OR: p = part_of_list(e, &n); break;
    case EBNF_REPEAT:
        p = part_of(e, n.a);
        if (p.weight < HEAVY) p = (struct part){ rx_repeat(e->x, p.rx, n.min, n.max), p.weight + 1 };
        break;
    default: break;
    }
    e->depth--;
    return p;
}

static int shown(const struct ebnf_name *m) { return (int)(m->n_text < 60 ? m->n_text : 60); }

/* Terminals are made of terminals. */
static void refuse_rules(struct ebnf *e, uint32_t node)
{
    struct ebnf_node n = e->node[node];
    if (n.kind == EBNF_REPEAT) refuse_rules(e, n.a);
    if (n.kind == EBNF_CAT || n.kind == EBNF_OR)
        for (uint32_t c = n.a; c; c = e->node[c].next) refuse_rules(e, c);
    if (n.kind == EBNF_SYMBOL) ebnf_fail(e, 0, "a special token or a schema stands in a terminal");
    if (n.kind != EBNF_REF) return;
    const struct ebnf_name *m = &e->name[n.a];
    if (!m->def)
        ebnf_fail(e, m->at, "'%.*s' is not defined", shown(m), m->text);
    else if (!m->terminal)
        ebnf_fail(e, m->at, "the rule '%.*s' stands in a terminal", shown(m), m->text);
}

uint32_t ebnf_terminal_rx(struct ebnf *e, uint32_t node, size_t at)
{
    if (node) refuse_rules(e, node);
    struct part p = node && !e->failed ? part_of(e, node) : no_part;
    if (p.weight >= HEAVY) ebnf_fail(e, at, "a terminal is made of strings, expressions and terminals");
    return p.rx;
}

/* ---------------------------------------------------------------- rules */

static uint32_t symbol_of(struct ebnf *e, uint32_t node);

static uint32_t name_symbol(struct ebnf *e, uint32_t i)
{
    struct ebnf_name *m = &e->name[i];
    if (!m->def) {
        ebnf_fail(e, m->at, "'%.*s' is not defined", shown(m), m->text);
        return 0;
    }
    if (!m->symbol) m->symbol = gr_rule(e->r) + 1; /* its alternatives come later */
    return m->symbol - 1;
}

/* A symbol, and what may be ignored behind it. */
static uint32_t and_ignored(struct ebnf *e, uint32_t symbol)
{
    if (e->ignore == UINT32_MAX) return symbol;
    uint32_t rule = gr_rule(e->r);
    gr_alt(e->r, rule, (uint32_t[]){ symbol, e->ignore }, 2);
    return rule;
}

static bool is_joined(const struct ebnf *e, struct part p) { return e->ignore == UINT32_MAX && p.weight <= JOINED_MAX; }

uint32_t ebnf_terminal(struct ebnf *e, uint32_t rx)
{
    return gr_terminal(e->r, e->within == RX_ALL ? rx : rx_and2(e->x, rx, e->within));
}

/* One terminal of expressions in a row, nested to the right, so that its depth is that of its parts. */
static uint32_t joined(struct ebnf *e, const uint32_t *rx, uint32_t n)
{
    uint32_t all = RX_EMPTY;
    while (n-- > 0) all = rx_cat(e->x, rx[n], all);
    return ebnf_terminal(e, all);
}

/* Adds a row of nodes to a rule as one alternative; light neighbours become one terminal. */
static void add_row(struct ebnf *e, uint32_t rule, uint32_t first, bool whole_list)
{
    uint32_t n = 0, n_open = 0, count = 0;
    for (uint32_t c = first; c; c = whole_list ? e->node[c].next : 0) count++;
    uint32_t *symbol = malloc((2 * count + 2) * sizeof *symbol), *open = symbol + count + 1;
    if (!symbol) {
        ebnf_fail(e, e->at, "no memory");
        return;
    }
    for (uint32_t c = first; c && !e->failed; c = whole_list ? e->node[c].next : 0) {
        struct part p = part_of(e, c);
        if (is_joined(e, p)) {
            open[n_open++] = p.rx;
            continue;
        }
        if (n_open) symbol[n++] = joined(e, open, n_open);
        n_open = 0;
        symbol[n++] = symbol_of(e, c);
    }
    if (n_open) symbol[n++] = joined(e, open, n_open);
    gr_alt(e->r, rule, symbol, n);
    free(symbol);
}

/* Is this node one terminal of the grammar? Where something may be ignored, only what is written as one is. */
static bool is_one(const struct ebnf *e, struct ebnf_node n, struct part p)
{
    if (e->ignore == UINT32_MAX) return p.weight <= WHOLE_MAX;
    return n.kind == EBNF_RX || (n.kind == EBNF_REF && p.weight < HEAVY);
}

static void add_alternatives(struct ebnf *e, uint32_t rule, uint32_t node);

/* Alternatives that are terminals become one, so that a long list of words is stepped through at once. */
static void add_choices(struct ebnf *e, uint32_t rule, uint32_t first)
{
    uint32_t count = 0, n = 0;
    for (uint32_t c = first; c; c = e->node[c].next) count++;
    uint32_t *rx = malloc((count + 1) * sizeof *rx);
    if (!rx) {
        ebnf_fail(e, e->at, "no memory");
        return;
    }
    for (uint32_t c = first; c && !e->failed; c = e->node[c].next) {
        struct part p = part_of(e, c);
        if (is_one(e, e->node[c], p))
            rx[n++] = p.rx;
        else
            add_alternatives(e, rule, c);
    }
    uint32_t one = n ? and_ignored(e, ebnf_terminal(e, any_of(e, rx, n))) : 0;
    if (n) gr_alt(e->r, rule, &one, 1);
    free(rx);
}

static void add_alternatives(struct ebnf *e, uint32_t rule, uint32_t node)
{
    struct ebnf_node n = e->node[node];
    switch (n.kind) {
    case EBNF_OR: add_choices(e, rule, n.a); break;
    case EBNF_CAT: add_row(e, rule, n.a, true); break;
    default: add_row(e, rule, node, false); break;
    }
}

static uint32_t symbol_of(struct ebnf *e, uint32_t node)
{
    struct ebnf_node n = e->node[node];
    struct part      p = part_of(e, node);
    uint32_t         rule;
    if (n.kind == EBNF_REF && !e->name[n.a].terminal) return name_symbol(e, n.a);
    if (n.kind == EBNF_SYMBOL) return and_ignored(e, n.a);
    if (is_one(e, n, p) || (n.kind == EBNF_REF && p.weight < HEAVY)) return and_ignored(e, ebnf_terminal(e, p.rx));
    if (n.kind == EBNF_REF)
        return ebnf_fail(e, e->name[n.a].at, "the terminal '%.*s' contains itself, or is nested too deep",
                         shown(&e->name[n.a]), e->name[n.a].text);
    if (n.kind == EBNF_REPEAT) return repeat_symbol(e->r, symbol_of(e, n.a), n.min, n.max);
    rule = gr_rule(e->r);
    add_alternatives(e, rule, node);
    return rule;
}

/* The alternatives of one name, once. true: it had none. */
static bool name_rules(struct ebnf *e, uint32_t i, bool *done)
{
    if (done[i] || !e->name[i].symbol) return false;
    done[i] = true;
    uint32_t    rule = e->name[i].symbol - 1;
    struct part p = e->ignore == UINT32_MAX ? part_of_name(e, i) : no_part;
    if (p.weight <= WHOLE_MAX) {
        uint32_t t = ebnf_terminal(e, p.rx);
        gr_alt(e->r, rule, &t, 1);
    } else {
        add_alternatives(e, rule, e->name[i].def);
    }
    return true;
}

enum status ebnf_rules(struct ebnf *e, const char *start, uint32_t *symbol_out)
{
    size_t n = strlen(start);
    if (!e->failed && !ebnf_defined(e, start, n))
        ebnf_fail(e, 0, "the rule '%s' is missing, where a text begins", start);
    for (uint32_t i = 0; i < e->n_name && !e->failed; i++)
        if (!e->name[i].def)
            name_symbol(e, i);
        else if (e->name[i].terminal)
            refuse_rules(e, e->name[i].def);
    if (e->failed) return ST_INVALID;
    bool *done = calloc(e->n_name + 1, sizeof *done);
    if (!done) return ST_NOMEM;
    uint32_t first = name_symbol(e, name_of(e, start, n, 0)), row[2] = { e->ignore, first };
    bool     again = true;
    while (again && !e->failed) {
        again = false;
        for (uint32_t i = 0; i < e->n_name && !e->failed; i++) again = name_rules(e, i, done) || again;
    }
    free(done);
    if (e->failed) return ST_INVALID;
    *symbol_out = first;
    if (e->ignore != UINT32_MAX) {
        *symbol_out = gr_rule(e->r);
        gr_alt(e->r, *symbol_out, row, 2);
    }
    return ST_OK;
}
