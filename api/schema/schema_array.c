/* schema_array: arrays of a schema. */
#include "api/lang/repeat.h"
#include "api/schema/schema_impl.h"
#include <stdlib.h>
#include <string.h>

enum { PREFIX_MAX = 1000, CONTAINS_MAX = 64, UNIQUE_MAX = 8, ITEMS_MAX = 100000000 };

struct array {
    struct schema           *s;
    const struct schema_all *all;
    uint32_t                 min, max; /* elements; max RX_MANY: any number */
    uint32_t                 n_prefix;
    uint32_t                 sep, open, close;
};

static uint32_t terminal(struct schema *s, uint32_t before, const char *text, uint32_t after)
{
    return gr_terminal(s->r, rx_cat(s->x, before, rx_cat(s->x, rx_of_bytes(s->x, text, strlen(text)), after)));
}

/* The schemas of the first elements, in either spelling. */
static const json_t *prefix_of(const json_t *node)
{
    const json_t *prefix = json_object_get(node, "prefixItems"), *items = json_object_get(node, "items");
    return !prefix && json_is_array(items) ? items : prefix;
}

/* What holds for element i: of each part the schema at that place. */
static struct schema_all element(struct array *a, uint32_t i)
{
    struct schema_all all = { 0 };
    for (uint32_t k = 0; k < a->all->n; k++) {
        const json_t *node = a->all->part[k].node, *prefix = prefix_of(node), *items = json_object_get(node, "items");
        const json_t *rest = prefix == items ? json_object_get(node, "additionalItems") : items;
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : rest;
        if (one) schema_add(a->s, &all, one);
    }
    return all;
}

static uint32_t element_symbol(struct array *a, uint32_t i)
{
    struct schema_all all = element(a, i);
    return schema_compile(a->s, &all);
}

/* A comma and an element. */
static uint32_t behind(struct array *a, uint32_t item)
{
    uint32_t rule = gr_rule(a->s->r);
    gr_alt(a->s->r, rule, (uint32_t[]){ a->sep, item }, 2);
    return rule;
}

static uint32_t less(uint32_t n, uint32_t by)
{
    if (n == RX_MANY) return n;
    return n > by ? n - by : 0;
}

/* ---------------------------------------------------------------- bodies: the elements of an array that has some */

/* Elements by their place, then any number of further ones. */
static uint32_t in_order(struct array *a)
{
    struct gr_rules *r = a->s->r;
    uint32_t         n = a->n_prefix < a->max ? a->n_prefix : a->max, tail = gr_rule(r), item;
    if (n == 0) {
        item = element_symbol(a, 0);
        gr_alt(r, tail, (uint32_t[]){ item, repeat_symbol(r, behind(a, item), less(a->min, 1), less(a->max, 1)) }, 2);
        return tail;
    }
    if (a->max == n) {
        gr_alt(r, tail, NULL, 0);
    } else {
        item = repeat_symbol(r, behind(a, element_symbol(a, n)), less(a->min, n), less(a->max, n));
        gr_alt(r, tail, &item, 1);
        if (a->min <= n) gr_alt(r, tail, NULL, 0); /* the further ones may be impossible */
    }
    for (uint32_t i = n; i-- > 0;) {
        uint32_t rule = gr_rule(r);
        item = element_symbol(a, i);
        if (i) item = behind(a, item);
        gr_alt(r, rule, (uint32_t[]){ item, tail }, 2);
        if (i && i >= a->min) gr_alt(r, rule, NULL, 0);
        tail = rule;
    }
    return tail;
}

/* At least one element is of a schema: the alternatives are its places. */
static uint32_t with_one(struct array *a, uint32_t item, uint32_t wanted)
{
    struct gr_rules *r = a->s->r;
    uint32_t         body = gr_rule(r), unit = behind(a, item), wanted_unit = behind(a, wanted);
    uint32_t         places = a->max == RX_MANY ? a->min + 1 : a->max;
    for (uint32_t at = 0; at < places; at++) {
        bool     last = a->max == RX_MANY && at + 1 == places; /* this place, or any behind it */
        uint32_t rest = repeat_symbol(r, unit, less(a->min, at + 1), less(a->max, at + 1));
        if (at == 0) gr_alt(r, body, (uint32_t[]){ wanted, rest }, 2);
        if (at == 0 && !last) continue;
        uint32_t before = repeat_symbol(r, unit, at ? at - 1 : 0, last ? RX_MANY : at - 1);
        gr_alt(r, body, (uint32_t[]){ item, before, wanted_unit, rest }, 4);
    }
    return body;
}

/* Every element is another one of a few values: the rules are the sets of those that are left. */
static uint32_t all_different(struct array *a, const json_t *values)
{
    struct gr_rules *r = a->s->r;
    uint32_t n = (uint32_t)json_array_size(values), rule[1 << UNIQUE_MAX], one[UNIQUE_MAX], full = (1u << n) - 1;
    for (uint32_t i = 0; i < n; i++) one[i] = gr_terminal(r, schema_literal(a->s, json_array_get(values, i)));
    for (uint32_t set = 0; set <= full; set++) rule[set] = gr_rule(r);
    for (uint32_t set = 0; set <= full; set++) { /* set: those that stand there already */
        uint32_t used = (uint32_t)__builtin_popcount(set);
        if (set && used >= a->min) gr_alt(r, rule[set], NULL, 0);
        for (uint32_t i = 0; i < n && used < a->max; i++) {
            if (set >> i & 1) continue;
            if (set)
                gr_alt(r, rule[set], (uint32_t[]){ a->sep, one[i], rule[set | 1u << i] }, 3);
            else
                gr_alt(r, rule[set], (uint32_t[]){ one[i], rule[set | 1u << i] }, 2);
        }
    }
    return rule[0];
}

/* ---------------------------------------------------------------- all of it */

/* uniqueItems of arrays with more than one element: a body if there is one, else 0 and the keyword is beyond. */
static uint32_t unique(struct array *a)
{
    struct schema_all all = element(a, 0);
    json_t           *values = a->n_prefix ? NULL : schema_values(a->s, &all);
    bool              bare = all.n == 1;
    const char       *key;
    json_t           *v;
    uint32_t          body = 0;
    if (bare) json_object_foreach((json_t *)(uintptr_t)all.part[0].node, key, v)
        {
            (void)v;
            bare = bare &&
                   (!strcmp(key, "enum") || !strcmp(key, "const") || schema_is_annotation(key) || !strcmp(key, "type"));
        }
    if (bare && json_object_get(all.part[0].node, "type")) { /* only what is a string for sure */
        for (size_t i = 0; i < json_array_size(values); i++) bare = bare && json_is_string(json_array_get(values, i));
        bare = bare && json_str_is(json_object_get(all.part[0].node, "type"), "string");
    }
    if (values && bare && json_array_size(values) <= UNIQUE_MAX)
        body = all_different(a, values);
    else
        schema_beyond(a->s, "uniqueItems", "elements cannot be compared, but for up to 8 given values");
    json_decref(values);
    return body;
}

/* contains: the body where it can be had, else 0. */
static uint32_t contains(struct array *a, const json_t *node)
{
    uint32_t          min = 1, most = RX_MANY;
    struct schema_all all;
    schema_count(a->s, node, "minContains", &min);
    if (schema_count(a->s, node, "maxContains", &most))
        schema_beyond(a->s, "maxContains", "this keyword cannot be enforced");
    if (min == 0) return 0;
    if (a->min == 0) a->min = 1;
    if (a->max == 0) return 0; /* there is no array with an element */
    bool counted = a->max == RX_MANY ? a->min <= CONTAINS_MAX : a->max <= CONTAINS_MAX;
    if (min > 1 || a->n_prefix || !counted) {
        schema_beyond(a->s, min > 1 ? "minContains" : "contains",
                      min > 1 ? "more than 1 cannot be enforced"
                              : "beside prefixItems or with many elements it cannot be enforced");
        return 0;
    }
    uint32_t item = element_symbol(a, 0);
    all = element(a, 0);
    schema_add(a->s, &all, json_object_get(node, "contains"));
    return with_one(a, item, schema_compile(a->s, &all));
}

/* A keyword that only a way of its own enforces; 0: the elements in order do. */
static uint32_t special(struct array *a)
{
    uint32_t body = 0;
    for (uint32_t i = 0; i < a->all->n; i++) {
        const json_t *node = a->all->part[i].node;
        bool          want_unique = json_is_true(json_object_get(node, "uniqueItems")) && a->max > 1;
        bool          want_one = json_object_get(node, "contains") != NULL;
        a->s->node = node;
        if (body && (want_unique || want_one)) {
            schema_beyond(a->s, want_one ? "contains" : "uniqueItems",
                          "another such keyword beside it cannot be enforced");
            continue;
        }
        if (want_one) body = contains(a, node);
        if (want_unique && body)
            schema_beyond(a->s, "uniqueItems", "'contains' beside it cannot be enforced");
        else if (want_unique)
            body = unique(a);
    }
    a->s->node = NULL;
    return body;
}

uint32_t schema_array(struct schema *s, const struct schema_all *all)
{
    uint32_t     space = schema_space(s), array = gr_rule(s->r);
    struct array a = { .s = s, .all = all, .max = RX_MANY, .sep = terminal(s, space, ",", space) };
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *node = all->part[i].node;
        uint32_t      min = 0, max = RX_MANY, n = (uint32_t)json_array_size(prefix_of(node));
        s->node = node;
        schema_count(s, node, "minItems", &min);
        if (schema_count(s, node, "maxItems", &max) && max < a.max) a.max = max;
        if (min > a.min) a.min = min;
        if (n > a.n_prefix) a.n_prefix = n;
    }
    s->node = NULL;
    if (a.n_prefix > PREFIX_MAX) return schema_fail(s, "prefixItems", "more than %d", PREFIX_MAX);
    if (a.min > ITEMS_MAX) return schema_fail(s, "minItems", "more than %d", ITEMS_MAX);
    if (a.max != RX_MANY && a.max > ITEMS_MAX) a.max = RX_MANY; /* no answer is as long as that */
    uint32_t min = a.min, body = special(&a);
    if (a.max < a.min && min <= a.max) return schema_nothing(s);
    if (a.max < a.min) return all->n == 1 ? schema_fail(s, "maxItems", "it is less than minItems") : schema_nothing(s);
    if (a.min == 0) {
        uint32_t empty = rx_cat(s->x, rx_of_byte(s->x, '['), rx_cat(s->x, space, rx_of_byte(s->x, ']')));
        gr_alt(s->r, array, (uint32_t[]){ gr_terminal(s->r, empty) }, 1);
    }
    if (a.max == 0) return array;
    if (!body) body = in_order(&a);
    a.open = terminal(s, RX_EMPTY, "[", space);
    a.close = terminal(s, space, "]", RX_EMPTY);
    gr_alt(s->r, array, (uint32_t[]){ a.open, body, a.close }, 3);
    return array;
}
