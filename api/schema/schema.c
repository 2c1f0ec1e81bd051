#include "api/schema/schema.h"
#include "api/schema/schema_impl.h"
#include "api/schema/value_set.h"
#include "base/hash.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES_MAX = 32 << 20, ONE_OF_EXACT = 8, GATHERED_MIN = 16 };

/* ---------------------------------------------------------------- alternatives */

/* The parts without number i, and with it if something is left of it once `done` is seen to. */
static struct schema_all without(struct schema *s, const struct schema_all *all, uint32_t i, uint32_t done)
{
    struct schema_all rest = { 0 };
    for (uint32_t k = 0; k < all->n; k++) {
        struct schema_part p = all->part[k];
        if (k == i) p.done |= done;
        if (!schema_is_spent(p)) schema_part_add(s, &rest, p);
    }
    return rest;
}

/* One alternative of a rule: the rest, and these schemas (NULL: none). */
static void add_branch(struct schema *s, uint32_t rule, const struct schema_all *rest, const json_t *a, const json_t *b)
{
    struct schema_all all = { 0 };
    if (s->failed) return;
    if (++s->n_branch > SCHEMA_BRANCHES_MAX) {
        s->node = a;
        schema_fail(s, "", "more than %d alternatives", SCHEMA_BRANCHES_MAX);
        return;
    }
    for (uint32_t i = 0; i < rest->n; i++) schema_part_add(s, &all, rest->part[i]);
    if (a) schema_add(s, &all, a);
    if (b) schema_add(s, &all, b);
    uint32_t one = schema_compile(s, &all);
    gr_alt(s->r, rule, &one, 1);
}

/* One alternative for each schema of a list. */
static uint32_t each_of(struct schema *s, const struct schema_all *rest, const json_t *list)
{
    uint32_t rule = gr_rule(s->r);
    for (size_t i = 0; i < json_array_size(list); i++) add_branch(s, rule, rest, json_array_get(list, i), NULL);
    return rule;
}

/* oneOf whose schemas overlap: one of them, and none of the others. false: that cannot be said. */
static bool exactly_one(struct schema *s, const struct schema_all *rest, const json_t *list, uint32_t *rule)
{
    size_t n = json_array_size(list);
    if (n > ONE_OF_EXACT) return false;
    for (size_t i = 0; i < n; i++)
        if (!schema_negate(s, json_array_get(list, i))) return false;
    *rule = gr_rule(s->r);
    for (size_t i = 0; i < n; i++) {
        json_t *others = json_array();
        for (size_t k = 0; k < n; k++)
            if (k != i) json_array_append_new(others, json_pack("{s:O}", "not", json_array_get(list, k)));
        add_branch(s, *rule, rest, json_array_get(list, i), schema_keep(s, json_pack("{s:o}", "allOf", others)));
    }
    return true;
}

/* The type that an alternative of constants alone names, "" if it names none; NULL: it is none of these. */
static const char *constants_of(const json_t *node)
{
    static const char *const type_of[] = {
        [JSON_STRING] = "string", [JSON_INTEGER] = "integer", [JSON_REAL] = "number", [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean", [JSON_NULL] = "null",       [JSON_OBJECT] = "",     [JSON_ARRAY] = ""
    };
    const json_t *one = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    const json_t *type = json_object_get(node, "type");
    const char   *key, *name = type ? json_string_value(type) : "";
    json_t       *value;
    if (!name || !one == !json_is_array(list)) return NULL;
    json_object_foreach((json_t *)(uintptr_t)node, key, value)
    {
        (void)value;
        if (strcmp(key, "const") != 0 && strcmp(key, "enum") != 0 && strcmp(key, "type") != 0 &&
            !schema_is_annotation(key))
            return NULL;
    }
    for (size_t i = 0; i < (one ? 1 : json_array_size(list)) && *name; i++) /* else the type leaves some of them out */
        if (strcmp(type_of[json_typeof(one ? one : json_array_get(list, i))], name) != 0) return NULL;
    return name;
}

/* Constants of one type, which stand for their alternatives. */
static bool gather(struct schema *s, json_t *out, const char *name, const json_t *node, struct value_set *seen)
{
    const json_t *one = json_object_get(node, "const"), *list = json_object_get(node, "enum");
    json_t       *into = NULL;
    bool          apart = true;
    for (size_t i = 0; i < json_array_size(out) && !into; i++) {
        const json_t *made = json_array_get(out, i), *type = json_object_get(made, "type");
        if (json_object_get(made, SCHEMA_OWN) && (type ? json_str_is(type, name) : !*name))
            into = json_object_get(made, "enum");
    }
    if (!into) {
        json_t *made = json_pack("{s:b,s:[]}", SCHEMA_OWN, 1, "enum");
        if (*name) json_object_set_new(made, "type", json_string(name));
        into = json_object_get(made, "enum");
        if (json_array_insert_new(out, 0, made)) schema_fail(s, "", "no memory");
    }
    for (size_t i = 0; i < (one ? 1 : json_array_size(list)); i++) {
        const json_t *v = one ? one : json_array_get(list, i);
        if (value_set_add(seen, v))
            json_array_append(into, (json_t *)(uintptr_t)v);
        else
            apart = false;
    }
    return apart;
}

/* A list of alternatives in which those that are constants are one list of values for each type: thousands of them
 * would else stand beside each other wherever one may begin. once: no value may be in two of them. */
static const json_t *gathered(struct schema *s, const json_t *list, bool once)
{
    size_t           n = json_array_size(list);
    json_t          *out = n < GATHERED_MIN ? NULL : json_array();
    struct value_set seen;
    bool             apart = true;
    if (!out) return list;
    value_set_init(&seen);
    for (size_t i = 0; i < n; i++) {
        json_t     *one = json_array_get(list, i);
        const char *name = json_is_object(one) ? constants_of(one) : NULL;
        if (name)
            apart = gather(s, out, name, one, &seen) && apart;
        else
            json_array_append(out, one);
    }
    if (seen.failed) schema_fail(s, "", "no memory");
    value_set_free(&seen);
    if (apart || !once) return schema_keep(s, out);
    json_decref(out);
    return list;
}

/* Which of the given alternatives this is; of those that were gathered, the first. */
static size_t number_of(const json_t *given, const json_t *node)
{
    size_t n = json_array_size(given), i = 0;
    while (i < n && json_array_get(given, i) != node) i++;
    if (i < n) return i;
    for (i = 0; i < n && !constants_of(json_array_get(given, i));) i++;
    return i;
}

static uint32_t one_of(struct schema *s, const struct schema_all *rest, const json_t *list, const json_t *given)
{
    size_t   n = json_array_size(list), a = 0, b = 0;
    uint32_t rule;
    bool     apart = true;
    char     why[120];
    for (size_t i = 0; i < n && apart && n <= 256; i++)
        for (size_t k = 0; k < i && apart; k++) {
            apart = schema_disjoint(s, json_array_get(list, i), json_array_get(list, k));
            a = k;
            b = i;
        }
    if (n <= 256 && apart) return each_of(s, rest, list);
    if (exactly_one(s, rest, list, &rule)) return rule;
    a = number_of(given, json_array_get(list, a));
    b = number_of(given, json_array_get(list, b));
    snprintf(why, sizeof why, "%zu and %zu are not told apart by a type or by a constant of a required member", a, b);
    schema_beyond(s, "oneOf", why);
    return each_of(s, rest, list);
}

static uint32_t if_then(struct schema *s, const struct schema_all *rest, const json_t *node)
{
    const json_t *yes = json_object_get(node, "then"), *no = json_object_get(node, "else");
    const json_t *cond = json_object_get(node, "if"), *list = schema_negate(s, cond);
    uint32_t      rule = gr_rule(s->r);
    if (!list) {
        schema_beyond_not(s, "if");
        add_branch(s, rule, rest, NULL, NULL);
        return rule;
    }
    add_branch(s, rule, rest, cond, yes);
    add_branch(s, rule, rest, schema_keep(s, json_pack("{s:O}", "not", cond)), no);
    return rule;
}

/* Where a member is there, others must be, or a schema holds: the first of them is taken out. */
static uint32_t needs(struct schema *s, const struct schema_all *all, uint32_t i)
{
    static const char *const key[] = { "dependentRequired", "dependentSchemas", "dependencies" };
    const json_t            *node = all->part[i].node;
    json_t                  *branches = json_array();
    for (int k = 0; k < 3; k++) {
        json_t     *map = json_object_get(node, key[k]), *then;
        const char *name;
        json_object_foreach(map, name, then)
        {
            json_t *absent = json_pack("{s:{s:b},s:b}", "properties", name, 0, SCHEMA_OWN, 1), *present;
            if (json_is_array(then)) {
                present = json_pack("{s:O}", "required", then);
                present = json_pack("{s:[o,{s:[s]}]}", "allOf", present, "required", name);
            } else {
                present = json_pack("{s:[O,{s:[s]}]}", "allOf", then, "required", name);
            }
            json_array_append_new(branches, json_pack("{s:[o,o]}", "anyOf", absent, present));
        }
    }
    struct schema_all rest = without(s, all, i, DONE_NEEDS);
    uint32_t          rule = gr_rule(s->r);
    if (json_array_size(branches) > 8) schema_fail(s, "dependentRequired", "more than 8 members");
    add_branch(s, rule, &rest, schema_keep(s, json_pack("{s:o}", "allOf", branches)), NULL);
    return rule;
}

static uint32_t not_of(struct schema *s, const struct schema_all *rest, const json_t *node)
{
    const json_t *list = schema_negate(s, json_object_get(node, "not"));
    if (list) return each_of(s, rest, list);
    schema_beyond_not(s, "not");
    uint32_t rule = gr_rule(s->r);
    add_branch(s, rule, rest, NULL, NULL);
    return rule;
}

/* ---------------------------------------------------------------- one set of parts */

/* The first part that leaves a choice, and which. */
static uint32_t choice_of(const struct schema_all *all, uint32_t *done)
{
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *node = all->part[i].node, *neg = json_object_get(node, "not");
        uint32_t      open = ~all->part[i].done;
        bool needed = json_object_get(node, "dependentRequired") || json_object_get(node, "dependentSchemas") ||
                      json_object_get(node, "dependencies");
        *done = 0;
        if (neg && open & DONE_NOT && !schema_not_is_plain(neg)) *done = DONE_NOT;
        if (needed && open & DONE_NEEDS) *done = DONE_NEEDS;
        if (json_object_get(node, "if") && open & DONE_IF) *done = DONE_IF;
        if (json_object_get(node, "oneOf") && open & DONE_ONE) *done = DONE_ONE;
        if (json_object_get(node, "anyOf") && open & DONE_ANY) *done = DONE_ANY;
        if (*done) return i;
    }
    return all->n;
}

static uint32_t compile(struct schema *s, const struct schema_all *all)
{
    uint32_t done, i = choice_of(all, &done);
    if (all->nothing) return schema_nothing(s);
    if (all->n == 0) return schema_any(s);
    if (i == all->n) return schema_by_types(s, all);
    if (done == DONE_NEEDS) return needs(s, all, i);
    const json_t     *node = all->part[i].node;
    struct schema_all rest = without(s, all, i, done);
    const char       *key = done == DONE_ANY ? "anyOf" : "oneOf";
    const json_t     *list = json_object_get(node, key);
    if (done == DONE_NOT) return not_of(s, &rest, node);
    if (done == DONE_IF) return if_then(s, &rest, node);
    if (!json_is_array(list) || !json_array_size(list)) return schema_fail(s, key, "a list of schemas is needed");
    const json_t *all_of_it = gathered(s, list, done == DONE_ONE);
    return done == DONE_ANY ? each_of(s, &rest, all_of_it) : one_of(s, &rest, all_of_it, list);
}

/* ---------------------------------------------------------------- each set once */

static int by_node(const void *a, const void *b)
{
    const struct schema_part *x = a, *y = b;
    if (x->node != y->node) return (uintptr_t)x->node < (uintptr_t)y->node ? -1 : 1;
    return (x->done > y->done) - (x->done < y->done);
}

static struct schema_seen *seen_at(struct schema *s, const struct schema_part *key, uint32_t n, uint64_t hash)
{
    for (uint64_t at = hash;; at++) {
        struct schema_seen *e = &s->seen[at & (s->seen_room - 1)];
        if (!e->key) return e;
        if (e->hash == hash && e->n == n && memcmp(e->key, key, n * sizeof *key) == 0) return e;
    }
}

static bool seen_grow(struct schema *s)
{
    struct schema_seen *old = s->seen;
    uint32_t            n = s->seen_room;
    s->seen_room = n ? 2 * n : 256;
    s->seen = calloc(s->seen_room, sizeof *s->seen);
    if (!s->seen) {
        s->seen = old;
        s->seen_room = n;
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (old[i].key) *seen_at(s, old[i].key, old[i].n, old[i].hash) = old[i];
    free(old);
    return true;
}

/* The parts in order, each once; NULL: no memory. */
static struct schema_part *key_of(struct schema *s, const struct schema_all *all, uint32_t *n_out)
{
    struct schema_part *key = arena_calloc(&s->arena, all->n + 1, sizeof *key);
    uint32_t            n = 0;
    if (!key) return NULL;
    for (uint32_t i = 0; i < all->n; i++) { /* padding must be equal too */
        key[i].node = all->part[i].node;
        key[i].done = all->part[i].done;
    }
    qsort(key, all->n, sizeof *key, by_node);
    for (uint32_t i = 0; i < all->n; i++)
        if (!n || by_node(&key[n - 1], &key[i])) key[n++] = key[i];
    *n_out = n;
    return key;
}

/* Each set of parts becomes one rule, which exists before its inside is looked at: recursion ends there. */
uint32_t schema_compile(struct schema *s, const struct schema_all *all)
{
    if (s->failed || all->nothing) return schema_nothing(s);
    if (all->n == 0) return schema_any(s);
    uint32_t            n;
    struct schema_part *key = key_of(s, all, &n);
    if (!key || (2 * s->n_seen >= s->seen_room && !seen_grow(s)))
        return schema_fail(s, "", "it takes more memory than is allowed");
    uint64_t            hash = hash_bytes(key, n * sizeof *key, n);
    struct schema_seen *e = seen_at(s, key, n, hash);
    if (e->key) return e->symbol;
    if (++s->n_node > SCHEMA_NODES_MAX) return schema_fail(s, "", "more than %d schemas", SCHEMA_NODES_MAX);
    if (s->depth == SCHEMA_DEPTH_MAX) return schema_fail(s, "", "nested deeper than %d", SCHEMA_DEPTH_MAX);
    uint32_t rule = gr_rule(s->r);
    *e = (struct schema_seen){ hash, key, n, rule };
    s->n_seen++;
    s->depth++;
    const struct schema_frame frame = { all, s->node, s->frame };
    s->frame = &frame;
    s->node = NULL;
    uint32_t one = compile(s, all);
    s->frame = frame.up;
    s->node = frame.node;
    s->depth--;
    gr_alt(s->r, rule, &one, 1);
    return rule;
}

static void begin(struct schema *s, struct gr_rules *r, struct schema_form form, char *err)
{
    *s = (struct schema){ .r = r, .x = gr_rx(r), .seed = hash_seed(), .form = form, .err = err };
    arena_init(&s->arena, ARENA_BYTES_MAX);
    schema_big_begin(s);
}

static void end(struct schema *s)
{
    for (uint32_t i = 0; i < s->n_negated; i++) json_decref(s->negated[i].list);
    free(s->negated);
    free(s->seen);
    arena_free(&s->arena);
}

enum status schema_rules(struct gr_rules *r, const json_t *schema, struct schema_form form, uint32_t *symbol_out,
                         char err[SCHEMA_ERR])
{
    struct schema     s;
    struct schema_all all = { 0 };
    begin(&s, r, form, err);
    s.root = schema;
    s.moved = schema_moves(schema);
    schema_add(&s, &all, schema);
    *symbol_out = schema_compile(&s, &all);
    end(&s);
    return s.failed ? ST_INVALID : ST_OK;
}

uint32_t schema_any_object(struct gr_rules *r, struct schema_form form)
{
    char              err[SCHEMA_ERR];
    struct schema     s;
    struct schema_all none = { 0 };
    begin(&s, r, form, err);
    uint32_t symbol = schema_object(&s, &none);
    end(&s);
    return symbol;
}
