/* rx_texts: the tree of the texts' beginnings, folded into an expression from its leaves. Equal ends are one expression
 * by themselves (rx.h), so what comes out is the smallest automaton of the texts (Daciuk and others 2000). */
#include "engine/grammar/rx_texts.h"
#include "engine/grammar/rx_impl.h"
#include <stdlib.h>

enum { FILTERED = 64 };

void rx_texts_init(struct rx_texts *t, struct rx *x) { *t = (struct rx_texts){ .x = x }; }

void rx_texts_free(struct rx_texts *t)
{
    free(t->unit);
    free(t->end);
}

static void add(struct rx_texts *t, uint32_t unit)
{
    if (unit == RX_EMPTY || !rx_burn(t->x, 1)) return;
    if (!rx_grow(t->x, (void **)&t->unit, t->n_unit, 1, &t->unit_room, sizeof *t->unit)) return;
    t->unit[t->n_unit++] = unit;
}

void rx_texts_bytes(struct rx_texts *t, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) {
        if (t->byte[p[i]] == RX_NONE) t->byte[p[i]] = rx_of_byte(t->x, p[i]);
        add(t, t->byte[p[i]]);
    }
}

void rx_texts_rx(struct rx_texts *t, uint32_t rx)
{
    for (; t->x->node[rx].kind == RX_K_CAT; rx = t->x->node[rx].b) add(t, t->x->node[rx].a);
    add(t, rx);
}

void rx_texts_end(struct rx_texts *t)
{
    if (!rx_grow(t->x, (void **)&t->end, t->n, 1, &t->end_room, sizeof *t->end)) return;
    t->end[t->n++] = t->n_unit;
}

/* ---------------------------------------------------------------- any of them */

struct text {
    const uint32_t *unit;
    size_t          n;
};

static size_t alike(struct text a, struct text b)
{
    size_t n = a.n < b.n ? a.n : b.n, i = 0;
    while (i < n && a.unit[i] == b.unit[i]) i++;
    return i;
}

static int by_units(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    size_t             i = alike(*x, *y);
    if (i == x->n || i == y->n) return (x->n > y->n) - (x->n < y->n);
    return x->unit[i] < y->unit[i] ? -1 : 1;
}

/* The branches of all nodes on the way to the text that was added last, those of the deepest node last. */
struct fold {
    struct rx *x;
    uint32_t  *branch;
    uint32_t   n, room;
    uint32_t  *n_at; /* [units of the longest text + 1] branches of each node */
};

static void fold_add(struct fold *f, size_t depth, uint32_t branch)
{
    if (!rx_grow(f->x, (void **)&f->branch, f->n, 1, &f->room, sizeof *f->branch)) return;
    f->branch[f->n++] = branch;
    f->n_at[depth]++;
}

/* The node at this depth, which gets no more branches. */
static uint32_t fold_take(struct fold *f, size_t depth)
{
    if (rx_status(f->x)) return RX_NONE;
    f->n -= f->n_at[depth];
    uint32_t r = rx_or(f->x, f->branch + f->n, f->n_at[depth]);
    f->n_at[depth] = 0;
    return r;
}

static uint32_t fold_all(struct fold *f, const struct text *text, size_t n)
{
    struct text last = { .n = 0 };
    if (n == 0) return RX_NONE;
    for (size_t i = 0; i <= n && !rx_status(f->x); i++) {
        size_t same = i < n ? alike(last, text[i]) : 0;
        for (size_t d = last.n; d > same; d--) fold_add(f, d - 1, rx_cat(f->x, last.unit[d - 1], fold_take(f, d)));
        if (i == n) break;
        fold_add(f, text[i].n, RX_EMPTY);
        last = text[i];
    }
    return fold_take(f, 0);
}

/* Texts of which an expression says whether they stay. */
struct filter {
    uint32_t whole;
    uint8_t  kind[256];
};

/* Does the expression match this text? Its units are bytes, or it is said to. */
static bool stays(struct rx *x, const struct filter *f, struct text text)
{
    uint32_t a = f->whole;
    for (size_t i = 0; i < text.n && a != RX_NONE; i++) {
        const struct rx_node *n = &x->node[text.unit[i]];
        unsigned              byte = 0;
        if (n->kind != RX_K_CLASS) return true;
        while (!rx_class_has(&x->class[n->a], byte)) byte++;
        a = rx_derive(x, a, f->kind[byte]);
    }
    return rx_nullable(x, a);
}

static uint32_t some(const struct rx_texts *t, const struct filter *f)
{
    struct text *text = malloc((t->n + 1) * sizeof *text);
    struct fold  fold = { .x = t->x };
    size_t       longest = 0, n = 0;
    uint32_t     r = RX_NONE;
    for (size_t i = 0; text && i < t->n; i++) {
        size_t begin = i ? t->end[i - 1] : 0;
        text[n].n = t->end[i] - begin;
        text[n].unit = text[n].n ? t->unit + begin : NULL;
        if (text[n].n > longest) longest = text[n].n;
        n += !f || stays(t->x, f, text[n]);
    }
    fold.n_at = calloc(longest + 1, sizeof *fold.n_at);
    if (text && fold.n_at) {
        qsort(text, n, sizeof *text, by_units);
        r = fold_all(&fold, text, n);
    } else {
        rx_fail(t->x, ST_NOMEM);
    }
    free(text);
    free(fold.n_at);
    free(fold.branch);
    return r;
}

uint32_t rx_texts_any(const struct rx_texts *t) { return some(t, NULL); }

uint32_t rx_texts_within(const struct rx_texts *t, uint32_t whole)
{
    struct filter f = { .whole = whole };
    if (t->n >= FILTERED) { /* an intersection of so many costs a search at every step */
        rx_kinds(t->x, f.kind);
        whole = some(t, &f);
        return rx_status(t->x) ? (uint32_t)RX_NONE : whole;
    }
    return rx_and2(t->x, some(t, NULL), whole);
}
