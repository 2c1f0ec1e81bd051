/* schema_names: members of an object with many names. In a row of rules, one for each member, a place where any of ten
 * thousand optional members may come would have as many alternatives. Here the names that may come are a tree of their
 * beginnings, so that a place has those of one branch. Members are added from the last to the first: each adds rules for
 * the branches on the way to its name, and the rules that were made for the members behind it stay as they are. */
#include "api/schema/schema_impl.h"
#include <stdlib.h>
#include <string.h>

/* Names lo .. hi - 1 in the order of their bytes; with more than one, halves of them. */
struct branch {
    uint32_t lo, hi, half[2], upper;
    uint32_t n_common; /* bytes with which all of them begin */
    uint32_t turn;     /* is some of them there? if it is that of the tree */
    uint32_t as;       /* the branch that has the same of them, below which both halves have some */
    uint32_t rule;     /* of `as` branches: what follows the common bytes */
};

struct tree {
    struct schema            *s;
    const struct schema_name *name;
    uint32_t                  n;
    uint32_t                 *order; /* [n] names by their bytes */
    uint32_t                 *leaf;  /* [n] the branch of each name alone */
    uint32_t                 *alike; /* [n] bytes that a name in order has in common with the one before it */
    struct branch            *branch;
    uint32_t                  n_branch, turn;
    bool                      counted;
};

#define NO_BRANCH UINT32_MAX

static int by_bytes(const void *a, const void *b)
{
    const struct schema_name *x = *(const struct schema_name *const *)a, *y = *(const struct schema_name *const *)b;
    uint32_t                  n = x->n < y->n ? x->n : y->n;
    int                       c = memcmp(x->text, y->text, n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static uint32_t alike(const struct schema_name *a, const struct schema_name *b)
{
    uint32_t i = 0;
    while (i < a->n && i < b->n && a->text[i] == b->text[i]) i++;
    return i;
}

static bool sort(struct tree *t)
{
    const struct schema_name **all = malloc(t->n * sizeof *all);
    if (!all) return false;
    for (uint32_t i = 0; i < t->n; i++) all[i] = &t->name[i];
    qsort(all, t->n, sizeof *all, by_bytes);
    for (uint32_t i = 0; i < t->n; i++) {
        t->order[i] = (uint32_t)(all[i] - t->name);
        t->alike[i] = i ? alike(all[i - 1], all[i]) : 0;
    }
    free(all);
    return true;
}

/* ---------------------------------------------------------------- the tree */

/* Where lo .. hi - 1 are divided: in the middle half, where neighbours have least in common. So the tree is not deep, and
 * mostly its branches differ in their first bytes; where they do not, both are followed. */
static uint32_t divide(const struct tree *t, uint32_t lo, uint32_t hi)
{
    uint32_t quarter = (hi - lo) / 4, best = lo + (hi - lo) / 2;
    for (uint32_t i = lo + quarter + !quarter; i <= hi - quarter - !quarter; i++)
        if (t->alike[i] < t->alike[best]) best = i;
    return best;
}

/* The recursion is as deep as the tree: below 50 for 20,000 names. */
static uint32_t grow(struct tree *t, uint32_t lo, uint32_t hi, uint32_t upper)
{
    uint32_t       at = t->n_branch++, mid = divide(t, lo, hi);
    struct branch *b = &t->branch[at];
    *b = (struct branch){ .lo = lo, .hi = hi, .upper = upper };
    b->n_common = alike(&t->name[t->order[lo]], &t->name[t->order[hi - 1]]);
    if (hi - lo == 1) {
        t->leaf[t->order[lo]] = at;
        b->as = at;
        return at;
    }
    b->half[0] = grow(t, lo, mid, at);
    b->half[1] = grow(t, mid, hi, at);
    return at;
}

static void tree_free(struct tree *t)
{
    free(t->order);
    free(t->leaf);
    free(t->alike);
    free(t->branch);
}

static bool tree_make(struct tree *t)
{
    t->order = malloc(t->n * sizeof *t->order);
    t->leaf = malloc(t->n * sizeof *t->leaf);
    t->alike = malloc(t->n * sizeof *t->alike);
    t->branch = malloc(2 * (size_t)t->n * sizeof *t->branch);
    if (!t->order || !t->leaf || !t->alike || !t->branch || !sort(t)) return false;
    grow(t, 0, t->n, NO_BRANCH);
    return true;
}

/* ---------------------------------------------------------------- rules */

/* Adds an alternative: `before` (UINT32_MAX: nothing), the bytes of a branch's names from `from` on, and its rule. */
static void add_way(struct tree *t, uint32_t rule, uint32_t before, const struct branch *b, uint32_t from)
{
    const struct schema_name *name = &t->name[t->order[b->lo]];
    uint32_t                  symbol[3], n = 0;
    if (before != UINT32_MAX) symbol[n++] = before;
    if (b->n_common > from)
        symbol[n++] = gr_terminal(t->s->r, rx_of_bytes(t->s->x, name->text + from, b->n_common - from));
    symbol[n++] = b->rule;
    gr_alt_tail(t->s->r, rule, symbol, n);
}

/* The name is there from now on, with what follows it. */
static void add_name(struct tree *t, uint32_t i, uint32_t next)
{
    struct branch *leaf = &t->branch[t->leaf[i]];
    leaf->rule = gr_rule(t->s->r);
    leaf->turn = t->turn;
    if (t->counted)
        gr_alt_tail(t->s->r, leaf->rule, (uint32_t[]){ gr_more(t->s->r), t->name[i].value, next }, 3);
    else
        gr_alt_tail(t->s->r, leaf->rule, (uint32_t[]){ t->name[i].value, next }, 2);
    for (uint32_t at = leaf->upper; at != NO_BRANCH; at = t->branch[at].upper) {
        struct branch *b = &t->branch[at], *half[] = { &t->branch[b->half[0]], &t->branch[b->half[1]] };
        b->turn = t->turn;
        if (half[0]->turn != t->turn || half[1]->turn != t->turn) {
            b->as = half[half[0]->turn != t->turn]->as;
            continue;
        }
        b->as = at;
        b->rule = gr_rule(t->s->r);
        for (int k = 0; k < 2; k++) add_way(t, b->rule, UINT32_MAX, &t->branch[half[k]->as], b->n_common);
    }
}

uint32_t schema_names(struct schema *s, const struct schema_name *name, uint32_t n, uint32_t sep,
                      const uint32_t last[2], bool counted)
{
    struct tree t = { .s = s, .name = name, .n = n, .turn = 1, .counted = counted };
    uint32_t    next = last[1], first = gr_rule(s->r);
    bool        optional = true; /* all members from here on */
    if (!tree_make(&t)) {
        tree_free(&t);
        return schema_fail(s, "properties", "no memory");
    }
    for (uint32_t i = n; i-- > 0 && !gr_rules_status(s->r);) {
        if (name[i].required) { /* nothing behind it may come before it */
            t.turn++;
            optional = false;
        }
        add_name(&t, i, next);
        const struct branch *all = &t.branch[t.branch[0].as];
        next = gr_rule(s->r);
        add_way(&t, next, sep, all, 0);
        if (optional) gr_alt_tail(s->r, next, &last[1], 1);
        if (i == 0) add_way(&t, first, UINT32_MAX, all, 0);
    }
    if (optional) gr_alt_tail(s->r, first, &last[0], 1);
    tree_free(&t);
    return first;
}
