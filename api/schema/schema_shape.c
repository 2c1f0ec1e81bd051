/* schema_shape: arrays and objects of a schema. */
#include "api/schema/chars.h"
#include "api/schema/schema_impl.h"
#include <stdlib.h>
#include <string.h>

enum { ITEMS_MAX = 10000 }; /* that minItems or maxItems may count */

static uint32_t terminal(struct schema *s, uint32_t before, const char *text, uint32_t after)
{
    return gr_terminal(s->r, rx_cat(s->x, before, rx_cat(s->x, rx_of_bytes(s->x, text, strlen(text)), after)));
}

static uint32_t comma(struct schema *s) { return terminal(s, schema_space(s), ",", schema_space(s)); }

/* ---------------------------------------------------------------- arrays */

/* min to max more elements, each with a comma before it. The list grows to the left, so a long one costs no stack. */
static uint32_t more_items(struct schema *s, uint32_t item, uint32_t min, uint32_t max)
{
    uint32_t list = gr_rule(s->r), sep = comma(s);
    gr_alt(s->r, list, NULL, 0);
    if (max == RX_MANY && min == 0) {
        gr_alt(s->r, list, (uint32_t[]){ list, sep, item }, 3);
        return list;
    }
    uint32_t at = list; /* exactly i elements, then up to max */
    uint32_t last = max == RX_MANY ? min : max;
    uint32_t result = gr_rule(s->r);
    for (uint32_t i = 0; i <= last; i++) {
        if (i >= min) gr_alt(s->r, result, &at, 1);
        if (i == last) break;
        uint32_t next = gr_rule(s->r);
        gr_alt(s->r, next, (uint32_t[]){ at, sep, item }, 3);
        at = next;
    }
    if (max == RX_MANY) gr_alt(s->r, result, (uint32_t[]){ result, sep, item }, 3);
    return result;
}

static uint32_t items_schema(struct schema *s, const json_t *node, const char *key, bool *closed)
{
    const json_t *items = json_object_get(node, key);
    *closed = json_is_false(items);
    if (!items || *closed) return schema_any(s);
    size_t   was = schema_enter(s, key, 0);
    uint32_t r = schema_compile(s, items);
    schema_leave(s, was);
    return r;
}

/* One alternative for arrays of n elements, all of them of the prefix, n >= 1; open_end: more of `item` may follow. */
static void prefix_alt(struct schema *s, uint32_t body, const uint32_t *prefix, uint32_t n, uint32_t tail)
{
    uint32_t *row = malloc((2 * n + 1) * sizeof *row), k = 0;
    if (!row) {
        schema_fail(s, "prefixItems", "no memory");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (i) row[k++] = comma(s);
        row[k++] = prefix[i];
    }
    if (tail != UINT32_MAX) row[k++] = tail;
    gr_alt(s->r, body, row, k);
    free(row);
}

static uint32_t array_body(struct schema *s, const json_t *node, uint32_t body, uint32_t min, uint32_t max)
{
    const json_t *prefix = json_object_get(node, "prefixItems");
    const char   *rest = "items";
    bool          closed;
    if (!prefix && json_is_array(json_object_get(node, "items"))) { /* before 2020 */
        prefix = json_object_get(node, "items");
        rest = "additionalItems";
    }
    uint32_t n = (uint32_t)json_array_size(prefix), item = items_schema(s, node, rest, &closed);
    if (n > ITEMS_MAX) return schema_fail(s, "prefixItems", "more than %d", ITEMS_MAX);
    uint32_t *first = calloc(n + 1, sizeof *first);
    if (!first) return schema_fail(s, "prefixItems", "no memory");
    size_t was = schema_enter(s, "prefixItems", 0);
    for (uint32_t i = 0; i < n; i++) first[i] = schema_compile(s, json_array_get(prefix, i));
    schema_leave(s, was);
    for (uint32_t i = 1; i <= n && i <= max; i++) /* arrays that end within the prefix */
        if (i >= min) prefix_alt(s, body, first, i, UINT32_MAX);
    if (!closed && max > n) {
        uint32_t whole = n ? n : 1, left = max == RX_MANY ? RX_MANY : max - whole;
        uint32_t tail = more_items(s, item, min > whole ? min - whole : 0, left);
        if (n == 0) first[0] = item;
        prefix_alt(s, body, first, whole, tail);
    }
    free(first);
    return body;
}

uint32_t schema_array(struct schema *s, const json_t *node)
{
    static const char *const beyond[] = { "uniqueItems", "contains", "minContains", "maxContains", "unevaluatedItems" };
    uint32_t                 min = 0, max = RX_MANY, array = gr_rule(s->r);
    if (!json_is_false(json_object_get(node, "uniqueItems")) && schema_refuse(s, node, beyond, 1))
        return schema_nothing(s);
    if (schema_refuse(s, node, beyond + 1, 4)) return schema_nothing(s);
    schema_count(s, node, "minItems", &min);
    schema_count(s, node, "maxItems", &max);
    if (min > ITEMS_MAX || (max != RX_MANY && max > ITEMS_MAX))
        return schema_fail(s, min > ITEMS_MAX ? "minItems" : "maxItems", "more than %d", ITEMS_MAX);
    if (max < min) return schema_fail(s, "maxItems", "it is less than minItems");
    uint32_t space = schema_space(s);
    if (min == 0) {
        uint32_t empty =
            gr_terminal(s->r, rx_cat(s->x, rx_of_byte(s->x, '['), rx_cat(s->x, space, rx_of_byte(s->x, ']'))));
        gr_alt(s->r, array, &empty, 1);
    }
    if (max == 0) return array;
    uint32_t body = gr_rule(s->r);
    array_body(s, node, body, min, max);
    gr_alt(s->r, array, (uint32_t[]){ terminal(s, RX_EMPTY, "[", space), body, terminal(s, space, "]", RX_EMPTY) }, 3);
    return array;
}

/* ---------------------------------------------------------------- objects */

struct member {
    const char   *name;
    size_t        n_name;
    const json_t *schema; /* NULL: any value */
    bool          required;
};

static uint32_t name_rx(struct schema *s, const struct member *m)
{
    return schema_string_rx(s, chars_text(s->x, m->name, m->n_name, true));
}

/* "name": value */
static uint32_t member_rule(struct schema *s, uint32_t name, const json_t *schema)
{
    uint32_t space = schema_space(s), rule = gr_rule(s->r);
    uint32_t value = schema ? schema_compile(s, schema) : schema_any(s);
    uint32_t head =
        gr_terminal(s->r, rx_cat(s->x, name, rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ':'), space))));
    gr_alt(s->r, rule, (uint32_t[]){ head, value }, 2);
    return rule;
}

/* Members in their order; extra: a rule for one more, UINT32_MAX: there are none. Rules i: what may follow when members before i
 * are done, with and without one of them written. */
static uint32_t members(struct schema *s, const struct member *m, uint32_t n, uint32_t extra)
{
    uint32_t space = schema_space(s), sep = comma(s), close = terminal(s, space, "}", RX_EMPTY);
    uint32_t bare = terminal(s, RX_EMPTY, "}", RX_EMPTY), begun = gr_rule(s->r), fresh = gr_rule(s->r);
    if (extra == UINT32_MAX) {
        gr_alt(s->r, begun, &close, 1);
    } else {
        uint32_t list = gr_rule(s->r);
        gr_alt(s->r, list, NULL, 0);
        gr_alt(s->r, list, (uint32_t[]){ list, sep, extra }, 3);
        gr_alt(s->r, begun, (uint32_t[]){ list, close }, 2);
        gr_alt(s->r, fresh, (uint32_t[]){ extra, list, close }, 3);
    }
    gr_alt(s->r, fresh, &bare, 1);
    size_t was = schema_enter(s, "properties", 0);
    for (uint32_t i = n; i-- > 0;) {
        size_t   inner = schema_enter(s, m[i].name, 0);
        uint32_t one = member_rule(s, name_rx(s, &m[i]), m[i].schema), b = gr_rule(s->r), f = gr_rule(s->r);
        schema_leave(s, inner);
        gr_alt(s->r, b, (uint32_t[]){ sep, one, begun }, 3);
        gr_alt(s->r, f, (uint32_t[]){ one, begun }, 2);
        if (!m[i].required) {
            gr_alt(s->r, b, &begun, 1);
            gr_alt(s->r, f, &fresh, 1);
        }
        begun = b;
        fresh = f;
    }
    schema_leave(s, was);
    uint32_t rule = gr_rule(s->r);
    gr_alt(s->r, rule, (uint32_t[]){ terminal(s, RX_EMPTY, "{", space), fresh }, 2);
    return rule;
}

static bool is_required(const json_t *required, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *r = json_array_get(required, i);
        if (json_string_length(r) == n && !memcmp(json_string_value(r), name, n)) return true;
    }
    return false;
}

/* Members by name, then names that are required and nothing else is said of. Returns how many. */
static uint32_t collect(struct schema *s, const json_t *node, struct member *m, uint32_t room)
{
    json_t       *properties = json_object_get(node, "properties");
    const json_t *required = json_object_get(node, "required");
    uint32_t      n = 0;
    if (required && !json_is_array(required)) schema_fail(s, "required", "a list of names is needed");
    for (void *it = json_object_iter(properties); it && n < room; it = json_object_iter_next(properties, it)) {
        const char *name = json_object_iter_key(it);
        size_t      len = json_object_iter_key_len(it);
        m[n++] = (struct member){ name, len, json_object_iter_value(it), is_required(required, name, len) };
    }
    for (size_t i = 0; i < json_array_size(required) && n < room; i++) {
        const json_t *r = json_array_get(required, i);
        if (!json_is_string(r)) schema_fail(s, "required", "a list of names is needed");
        bool known = false;
        for (uint32_t k = 0; k < n && json_is_string(r); k++)
            known = known ||
                    (m[k].n_name == json_string_length(r) && !memcmp(m[k].name, json_string_value(r), m[k].n_name));
        if (json_is_string(r) && !known)
            m[n++] = (struct member){ json_string_value(r), json_string_length(r), NULL, true };
    }
    return n;
}

/* The rule of one additional member: any name that is not among those. */
static uint32_t extra_rule(struct schema *s, const struct member *m, uint32_t n, const json_t *schema)
{
    uint32_t  any = schema_string_rx(s, rx_repeat(s->x, chars_any(s->x, true), 0, RX_MANY));
    uint32_t *name = malloc((n + 1) * sizeof *name);
    if (!name) {
        schema_fail(s, "properties", "no memory");
        return schema_nothing(s);
    }
    for (uint32_t i = 0; i < n; i++) name[i] = name_rx(s, &m[i]);
    if (n) any = rx_and2(s->x, any, rx_not(s->x, rx_or(s->x, name, n)));
    free(name);
    size_t   was = schema_enter(s, "additionalProperties", 0);
    uint32_t r = member_rule(s, any, schema);
    schema_leave(s, was);
    return r;
}

uint32_t schema_object_of_any(struct schema *s) { return members(s, NULL, 0, extra_rule(s, NULL, 0, NULL)); }

uint32_t schema_object(struct schema *s, const json_t *node)
{
    static const char *const beyond[] = { "patternProperties", "propertyNames",     "minProperties",
                                          "maxProperties",     "dependentRequired", "dependencies" };
    const json_t            *additional = json_object_get(node, "additionalProperties"),
                 *properties = json_object_get(node, "properties");
    if (schema_refuse(s, node, beyond, sizeof beyond / sizeof *beyond)) return schema_nothing(s);
    if (properties && !json_is_object(properties)) return schema_fail(s, "properties", "an object is needed");
    uint32_t       room = (uint32_t)(json_object_size(properties) + json_array_size(json_object_get(node, "required")));
    struct member *m = calloc(room + 1, sizeof *m);
    if (!m) return schema_fail(s, "properties", "no memory");
    uint32_t      n = collect(s, node, m, room);
    bool          open = additional ? !json_is_false(additional) : !properties && !s->form.closed;
    const json_t *others = json_is_object(additional) ? additional : NULL;
    uint32_t      extra = open ? extra_rule(s, m, n, others) : UINT32_MAX;
    uint32_t      r = members(s, m, n, extra);
    free(m);
    return r;
}
