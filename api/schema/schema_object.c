/* schema_object: objects of a schema. Members come in the order in which the schemas name them. */
#include "api/lang/repeat.h"
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema_impl.h"
#include "base/hash.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS_MAX = 5, MEMBERS_MAX = 20000, NAMES_FEW = 128 };

struct member {
    const char *name;
    size_t      n_name;
    uint64_t    hash;
    uint32_t    rule; /* "name": value */
    bool        required;
};

struct object {
    struct schema           *s;
    const struct schema_all *all;
    struct member           *member;
    uint32_t                *table; /* [2 * room] numbers of members + 1, by the hash of their names; 0: free */
    uint32_t                 n, room;
    uint32_t                 min, max; /* members; max RX_MANY: any number */
    const char              *pattern[PATTERNS_MAX];
    uint32_t                 pattern_rx[PATTERNS_MAX]; /* of a name, with its quotes */
    uint32_t                 n_pattern;
    uint32_t                 names;  /* expression that every name matches, with its quotes */
    bool                     named;  /* a schema of the request names members */
    bool                     others; /* members that no schema names may come */
};

static uint32_t terminal(struct schema *s, uint32_t before, const char *text, uint32_t after)
{
    return gr_terminal(s->r, rx_cat(s->x, before, rx_cat(s->x, rx_of_bytes(s->x, text, strlen(text)), after)));
}

static uint32_t any_name(struct schema *s)
{
    return schema_string_rx(s, rx_repeat(s->x, chars_any(s->x, true), 0, RX_MANY));
}

/* ---------------------------------------------------------------- what the parts say */

static void add_pattern(struct object *o, const char *text)
{
    struct schema    *s = o->s;
    struct regex_form form = { .search = true, .json = true };
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    for (uint32_t i = 0; i < o->n_pattern; i++)
        if (!strcmp(o->pattern[i], text)) return;
    if (o->n_pattern == PATTERNS_MAX) {
        schema_fail(s, "patternProperties", "more than %d patterns", PATTERNS_MAX);
        return;
    }
    if (regex_rx(s->x, text, strlen(text), form, &r, why)) {
        schema_fail(s, "patternProperties", "'%.40s': %s", text, why);
        return;
    }
    o->pattern[o->n_pattern] = text;
    o->pattern_rx[o->n_pattern++] = schema_string_rx(s, r);
}

/* Where a name is in o->table, or would be. */
static uint32_t *place(const struct object *o, const char *name, size_t n, uint64_t hash)
{
    for (uint64_t at = hash;; at++) {
        uint32_t            *i = &o->table[at & (2 * o->room - 1)];
        const struct member *m = *i ? &o->member[*i - 1] : NULL;
        if (!m || (m->hash == hash && m->n_name == n && memcmp(m->name, name, n) == 0)) return i;
    }
}

static bool members_grow(struct object *o)
{
    uint32_t       room = o->room ? 2 * o->room : 16;
    struct member *member = o->n < MEMBERS_MAX ? arena_calloc(&o->s->arena, room, sizeof *member) : NULL;
    uint32_t      *table = member ? arena_calloc(&o->s->arena, 2 * (size_t)room, sizeof *table) : NULL;
    if (!table) return false;
    if (o->n) memcpy(member, o->member, o->n * sizeof *member);
    o->member = member;
    o->table = table;
    o->room = room;
    for (uint32_t i = 0; i < o->n; i++) *place(o, member[i].name, member[i].n_name, member[i].hash) = i + 1;
    return true;
}

static void add_member(struct object *o, const char *name, size_t n, bool required)
{
    if (o->n == o->room && !members_grow(o)) {
        schema_fail(o->s, required ? "required" : "properties", "more members than are allowed");
        return;
    }
    uint64_t  hash = hash_bytes(name, n, o->s->seed);
    uint32_t *i = place(o, name, n, hash);
    if (!*i) {
        o->member[o->n++] = (struct member){ name, n, hash, 0, false };
        *i = o->n;
    }
    o->member[*i - 1].required = o->member[*i - 1].required || required;
}

/* The names of one part: its members, and what it requires and nothing else is said of. */
static void add_names(struct object *o, const json_t *node)
{
    json_t *properties = json_object_get(node, "properties"), *patterns = json_object_get(node, "patternProperties");
    const json_t *required = json_object_get(node, "required");
    if (properties && !json_is_object(properties)) schema_fail(o->s, "properties", "an object is needed");
    if (patterns && !json_is_object(patterns)) schema_fail(o->s, "patternProperties", "an object is needed");
    if (required && !json_is_array(required) && !json_is_boolean(required))
        schema_fail(o->s, "required", "a list of names is needed");
    for (void *it = json_object_iter(properties); it && !o->s->failed; it = json_object_iter_next(properties, it))
        add_member(o, json_object_iter_key(it), json_object_iter_key_len(it), false);
    for (size_t i = 0; i < json_array_size(required) && !o->s->failed; i++) {
        const json_t *name = json_array_get(required, i);
        if (!json_is_string(name)) schema_fail(o->s, "required", "a list of names is needed");
        if (json_is_string(name)) add_member(o, json_string_value(name), json_string_length(name), true);
    }
    for (void *it = json_object_iter(patterns); it && !o->s->failed; it = json_object_iter_next(patterns, it))
        add_pattern(o, json_object_iter_key(it));
}

/* The names that propertyNames of one part allows, as strings: its type does not matter. */
static uint32_t names_of(struct object *o, const json_t *schema)
{
    struct schema    *s = o->s;
    struct schema_all all = { 0 };
    if (json_is_true(schema)) return RX_ALL;
    schema_add(s, &all, schema);
    if (all.nothing) return RX_NONE;
    for (uint32_t i = 0; i < all.n; i++) {
        const json_t *node = all.part[i].node, *no = json_object_get(node, "not");
        if (!json_object_get(node, "anyOf") && !json_object_get(node, "oneOf") && !json_object_get(node, "if") &&
            (!no || schema_not_is_plain(no)))
            continue;
        schema_beyond(s, "propertyNames", "a choice in it cannot be enforced");
        return RX_ALL;
    }
    json_t *values = schema_values(s, &all);
    if (!(schema_types(s, &all) >> TYPE_STRING & 1)) {
        json_decref(values);
        return RX_NONE;
    }
    if (!values) return schema_string(s, &all);
    struct rx_texts t;
    rx_texts_init(&t, s->x);
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_is_string(json_array_get(values, i))) schema_put(s, &t, json_array_get(values, i));
    json_decref(values);
    uint32_t r = rx_texts_within(&t, schema_string(s, &all));
    rx_texts_free(&t);
    return r;
}

static void read_parts(struct object *o)
{
    struct schema *s = o->s;
    o->max = RX_MANY;
    o->names = RX_ALL;
    for (uint32_t i = 0; i < o->all->n && !s->failed; i++) {
        const json_t *node = o->all->part[i].node, *names = json_object_get(node, "propertyNames");
        uint32_t      min = 0, max = RX_MANY;
        s->node = node;
        add_names(o, node);
        s->node = node;
        if (schema_count(s, node, "minProperties", &min) && min > o->min) o->min = min;
        if (schema_count(s, node, "maxProperties", &max) && max < o->max) o->max = max;
        if (names) o->names = rx_and2(s->x, o->names, names_of(o, names));
        bool own = json_object_get(node, SCHEMA_OWN) != NULL;
        o->named = o->named || (!own && json_object_get(node, "properties"));
    }
    s->node = NULL;
}

/* ---------------------------------------------------------------- one member */

/* Of each part what it says of a member: by name (NULL: it has none of the given), by the patterns that the name
 * matches (a set of bits), or else as of any other. false: such a member is not allowed. */
static bool holds(struct object *o, const char *name, uint32_t patterns, struct schema_all *all)
{
    bool said = name != NULL;
    for (uint32_t i = 0; i < o->all->n; i++) {
        const json_t *node = o->all->part[i].node, *map = json_object_get(node, "patternProperties");
        const json_t *own = name ? json_object_get(json_object_get(node, "properties"), name) : NULL;
        const json_t *other = json_object_get(node, "additionalProperties");
        bool          met = own != NULL;
        if (own) schema_add(o->s, all, own);
        for (uint32_t p = 0; p < o->n_pattern; p++) {
            const json_t *one = patterns >> p & 1 ? json_object_get(map, o->pattern[p]) : NULL;
            if (!one) continue;
            schema_add(o->s, all, one);
            met = true;
        }
        said = said || met;
        if (met || !other) continue;
        said = true;
        schema_add(o->s, all, other);
    }
    /* Objects whose members are named are closed, unless they or the form say otherwise. */
    if (!said && ((o->named && !o->s->form.open) || o->s->form.closed)) return false;
    return !all->nothing;
}

/* "name": value, for names of an expression and values of these schemas; added to a rule. */
static void add_pair(struct object *o, uint32_t rule, uint32_t name, const struct schema_all *all)
{
    struct schema *s = o->s;
    uint32_t       space = schema_space(s), value = schema_compile(s, all);
    uint32_t       head =
        gr_terminal(s->r, rx_cat(s->x, name, rx_cat(s->x, space, rx_cat(s->x, rx_of_byte(s->x, ':'), space))));
    gr_alt(s->r, rule, (uint32_t[]){ head, value }, 2);
}

/* The names that match just these patterns. */
static uint32_t just(struct object *o, uint32_t name, uint32_t patterns)
{
    for (uint32_t p = 0; p < o->n_pattern; p++) {
        uint32_t rx = o->pattern_rx[p];
        name = rx_and2(o->s->x, name, patterns >> p & 1 ? rx : rx_not(o->s->x, rx));
    }
    return o->names == RX_ALL ? name : rx_and2(o->s->x, name, o->names);
}

/* One member. Which patterns its name matches is left to the expressions: of the sets of patterns one is possible. */
static uint32_t member_rule(struct object *o, const char *name, uint32_t rx)
{
    uint32_t rule = gr_rule(o->s->r);
    for (uint32_t patterns = 0; patterns < 1u << o->n_pattern && !o->s->failed; patterns++) {
        struct schema_all all = { 0 };
        uint32_t          these = just(o, rx, patterns);
        if (these == RX_NONE) continue;
        if (!holds(o, name, patterns, &all)) continue;
        o->others = o->others || !name;
        add_pair(o, rule, these, &all);
    }
    return rule;
}

/* A member that no schema names. */
static uint32_t other_rule(struct object *o)
{
    struct schema  *s = o->s;
    uint32_t        any = o->names == RX_ALL ? any_name(s) : o->names;
    struct rx_texts t;
    rx_texts_init(&t, s->x);
    for (uint32_t i = 0; i < o->n; i++) schema_put_string(&t, o->member[i].name, o->member[i].n_name);
    if (o->n) any = rx_and2(s->x, any, rx_not(s->x, rx_texts_any(&t)));
    rx_texts_free(&t);
    return member_rule(o, NULL, any);
}

/* ---------------------------------------------------------------- all members */

/* What follows once the named members are through and `count` of all are written: others, and the end. Other members may
 * repeat a name, so that they count as one for minProperties. */
static uint32_t tail(struct object *o, uint32_t count, uint32_t other, uint32_t sep)
{
    struct schema *s = o->s;
    uint32_t       rule = gr_rule(s->r), end = terminal(s, count ? schema_space(s) : RX_EMPTY, "}", RX_EMPTY),
             unit = gr_rule(s->r);
    uint32_t close = terminal(s, schema_space(s), "}", RX_EMPTY);
    gr_alt(s->r, unit, (uint32_t[]){ sep, other }, 2);
    if (count >= o->min) gr_alt(s->r, rule, &end, 1);
    if (count + 1 < o->min || count + 1 > o->max) return rule;
    uint32_t more = repeat_symbol(s->r, unit, 0, o->max == RX_MANY ? RX_MANY : o->max - count - 1);
    gr_alt(s->r, rule, (uint32_t[]){ count ? unit : other, more, close }, 3);
    return rule;
}

/* The same where the grammar counts what is written. last: where none was, and where some was. */
static void counted_tails(struct object *o, uint32_t other, uint32_t sep, uint32_t last[2])
{
    struct schema *s = o->s;
    uint32_t       end = terminal(s, RX_EMPTY, "}", RX_EMPTY), close = terminal(s, schema_space(s), "}", RX_EMPTY);
    uint32_t       enough = gr_counted(s->r, o->min, o->max), more = gr_more(s->r);
    uint32_t       but_one = gr_counted(s->r, o->min ? o->min - 1 : 0, RX_MANY), others = gr_rule(s->r);
    gr_alt(s->r, others, (uint32_t[]){ enough, close }, 2);
    gr_alt_tail(s->r, others, (uint32_t[]){ sep, more, other, others }, 4);
    for (int some = 0; some < 2; some++) {
        last[some] = gr_rule(s->r);
        gr_alt(s->r, last[some], (uint32_t[]){ enough, some ? close : end }, 2);
    }
    gr_alt_tail(s->r, last[0], (uint32_t[]){ but_one, more, other, others }, 4);
    gr_alt_tail(s->r, last[1], (uint32_t[]){ but_one, sep, more, other, others }, 5);
}

/* The patterns that a name in its spelling matches. false: propertyNames does not allow it. */
static bool matched(const struct object *o, const uint8_t kind[256], const struct schema_name *name, uint32_t *out)
{
    uint32_t set = 0;
    for (uint32_t p = 0; p < o->n_pattern; p++)
        set |= (uint32_t)rx_matches(o->s->x, o->pattern_rx[p], kind, name->text, name->n) << p;
    *out = set;
    return o->names == RX_ALL || rx_matches(o->s->x, o->names, kind, name->text, name->n);
}

/* The only spelling of a name, in the compiler's arena. false: no memory. */
static bool spell(struct schema *s, const struct member *m, struct schema_name *out)
{
    unsigned char *text = arena_alloc(&s->arena, 6 * m->n_name + 2);
    uint32_t       n = 0;
    if (!text) return false;
    text[n++] = '"';
    for (size_t i = 0; i < m->n_name; i++) {
        char        room[8];
        const char *escape = chars_escape((unsigned char)m->name[i], room);
        for (const char *c = escape; c && *c; c++) text[n++] = (unsigned char)*c;
        if (!escape) text[n++] = (unsigned char)m->name[i];
    }
    text[n++] = '"';
    *out = (struct schema_name){ .text = text, .n = n, .required = m->required };
    return true;
}

/* The rule of a colon and the value of member i, whose name matches these patterns; 0: it is not allowed. */
static uint32_t value_rule(struct object *o, uint32_t i, uint32_t patterns)
{
    struct schema    *s = o->s;
    struct schema_all all = { 0 };
    uint32_t          space = schema_space(s);
    if (!holds(o, o->member[i].name, patterns, &all)) return 0;
    uint32_t value = schema_compile(s, &all), rule = gr_rule(s->r);
    gr_alt_tail(s->r, rule, (uint32_t[]){ terminal(s, space, ":", space), value }, 2);
    return rule;
}

/* Many members in their order, counted where more is asked of their number than whether there are some. */
static uint32_t many_members(struct object *o, uint32_t other)
{
    struct schema      *s = o->s;
    uint32_t            space = schema_space(s), sep = terminal(s, space, ",", space), rule = gr_rule(s->r), n = 0;
    uint32_t            last[2];
    bool                counted = o->min > 1 || o->max != RX_MANY;
    struct schema_name *name = arena_calloc(&s->arena, o->n, sizeof *name);
    uint32_t           *patterns = arena_calloc(&s->arena, o->n, sizeof *patterns);
    uint8_t             kind[256];
    bool                good = name && patterns, *allowed = arena_calloc(&s->arena, o->n, sizeof *allowed);
    for (uint32_t i = 0; i < o->n && good; i++) good = allowed && spell(s, &o->member[i], &name[i]);
    if (!good) return schema_fail(s, "properties", "no memory");
    if (counted)
        counted_tails(o, other, sep, last);
    else
        for (uint32_t c = 0; c < 2; c++) last[c] = tail(o, c, other, sep);
    rx_kinds(s->x, kind); /* values are compiled behind it, as they make classes of bytes */
    for (uint32_t i = 0; i < o->n; i++) allowed[i] = matched(o, kind, &name[i], &patterns[i]);
    for (uint32_t i = 0; i < o->n && !s->failed; i++) {
        uint32_t value = allowed[i] ? value_rule(o, i, patterns[i]) : 0;
        if (!value && o->member[i].required) return schema_nothing(s);
        if (!value) continue;
        name[i].value = value;
        name[n++] = name[i];
    }
    uint32_t rest = n ? schema_names(s, name, n, sep, last, counted) : last[0];
    gr_alt_tail(s->r, rule, (uint32_t[]){ terminal(s, RX_EMPTY, "{", space), rest }, 2);
    return rule;
}

/* Members in their order. Rules c of a row: what follows where c members are written; the last stands for more, too. */
static uint32_t members(struct object *o, uint32_t other)
{
    struct schema *s = o->s;
    uint32_t       space = schema_space(s), sep = terminal(s, space, ",", space), last = o->max;
    if (o->max == RX_MANY) last = o->min ? o->min : 1;
    if (last > o->n + 1) last = o->max == RX_MANY || o->max > o->n + 1 ? o->n + 1 : last;
    uint32_t *row = malloc((last + 1) * sizeof *row);
    if (!row) return schema_fail(s, "properties", "no memory");
    for (uint32_t c = 0; c <= last; c++) row[c] = tail(o, c, other, sep);
    for (uint32_t i = o->n; i-- > 0;) {
        const struct member *m = &o->member[i];
        for (uint32_t c = 0; c <= last; c++) { /* row[c + 1] is still that of the member behind */
            uint32_t rule = gr_rule(s->r), next = row[c < last ? c + 1 : last];
            bool     full = o->max != RX_MANY && c >= o->max;
            if (!full)
                gr_alt_tail(s->r, rule, c ? (uint32_t[]){ sep, m->rule, next } : (uint32_t[]){ m->rule, next, 0 },
                            c ? 3 : 2);
            if (!m->required) gr_alt_tail(s->r, rule, &row[c], 1);
            row[c] = rule;
        }
    }
    uint32_t rule = gr_rule(s->r);
    gr_alt_tail(s->r, rule, (uint32_t[]){ terminal(s, RX_EMPTY, "{", space), row[0] }, 2);
    free(row);
    return rule;
}

/* Counts of many members that a grammar cannot keep are left out. */
static void check_counts(struct object *o)
{
    static const char why[] = "of more than 128 members up to 2046 can be counted";
    static_assert(NAMES_FEW == 128 && GR_COUNT_MAX == 2046, "the text says so");
    if (!o->others && o->max >= o->n) o->max = RX_MANY;
    if (o->min > GR_COUNT_MAX) {
        schema_beyond(o->s, "minProperties", why);
        o->min = 0;
    }
    if (o->max != RX_MANY && o->max > GR_COUNT_MAX) {
        schema_beyond(o->s, "maxProperties", why);
        o->max = RX_MANY;
    }
}

uint32_t schema_object(struct schema *s, const struct schema_all *all)
{
    struct object o = { .s = s, .all = all };
    read_parts(&o);
    if (s->failed) return schema_nothing(s);
    if (o.min > o.n + 1) {
        schema_beyond(s, "minProperties", "members that no schema names may repeat, so that they cannot be counted");
        o.min = 0;
    }
    if (o.min > o.max)
        return all->n == 1 ? schema_fail(s, "maxProperties", "it is less than minProperties") : schema_nothing(s);
    if (o.n > NAMES_FEW) {
        uint32_t other = other_rule(&o);
        check_counts(&o);
        return s->failed ? schema_nothing(s) : many_members(&o, other);
    }
    for (uint32_t i = 0; i < o.n && !s->failed; i++) {
        struct member *m = &o.member[i];
        uint32_t       rx = schema_string_rx(s, chars_text(s->x, m->name, m->n_name, true));
        m->rule = member_rule(&o, m->name, rx);
    }
    if (s->failed) return schema_nothing(s);
    return members(&o, other_rule(&o));
}
