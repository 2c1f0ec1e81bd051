#include "base/json_scan.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/json_load.h"
#include "base/utf8.h"
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS_PLAIN = 18 /* of a number that fits 64 bits */ };

/* Where the pass is. Each function below leaves `at` behind what it took, or fills *err and returns false. */
struct scan {
    const char        *text, *at, *end;
    uint32_t           depth, depth_max;
    struct json_cost   cost;
    struct json_error *err;
};

static bool wrong_at(struct scan *s, const char *where, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool wrong_at(struct scan *s, const char *where, const char *fmt, ...)
{
    va_list ap;
    s->err->offset = (size_t)(where - s->text);
    va_start(ap, fmt);
    vsnprintf(s->err->text, sizeof s->err->text, fmt, ap);
    va_end(ap);
    return false;
}

static bool wrong(struct scan *s, const char *what)
{
    if (s->at >= s->end) return wrong_at(s, s->end, "%s expected, but the text ends here", what);
    return wrong_at(s, s->at, "%s expected", what);
}

static void skip_blanks(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\n' || *s->at == '\r' || *s->at == '\t')) s->at++;
}

static bool is_digit(const struct scan *s) { return s->at < s->end && *s->at >= '0' && *s->at <= '9'; }

/* ---- strings ---- */

static bool hex4(struct scan *s, uint32_t *out)
{
    uint32_t v = 0;
    if (s->end - s->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        char c = *s->at++, lower = (char)(c | 0x20);
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (lower >= 'a' && lower <= 'f')
            v = v << 4 | (uint32_t)(lower - 'a' + 10);
        else
            return false;
    }
    *out = v;
    return true;
}

/* Behind a backslash. */
static bool escape(struct scan *s, bool in_name)
{
    const char *where = s->at - 1;
    uint32_t    unit, low;
    if (s->at == s->end) return wrong(s, "an escape");
    char c = *s->at++;
    if (c != 'u') return c && strchr("\"\\/bfnrt", c) ? true : wrong_at(s, where, "invalid escape");
    if (!hex4(s, &unit)) return wrong_at(s, where, "invalid escape");
    if (!unit && in_name) return wrong_at(s, where, "a name holds \\u0000");
    if (unit >= 0xdc00 && unit <= 0xdfff) return wrong_at(s, where, "a surrogate without its first half");
    if (unit < 0xd800 || unit > 0xdbff) return true;
    bool pair = s->end - s->at >= 6 && s->at[0] == '\\' && s->at[1] == 'u';
    if (pair) s->at += 2;
    if (!pair || !hex4(s, &low) || low < 0xdc00 || low > 0xdfff)
        return wrong_at(s, where, "a surrogate without its second half");
    return true;
}

/* At the opening quote. */
static bool string(struct scan *s, bool in_name)
{
    const char *begin = ++s->at;
    while (s->at < s->end) {
        unsigned char c = (unsigned char)*s->at;
        if (c == '"') {
            s->cost.string_bytes += (uint64_t)(s->at - begin);
            s->at++;
            return true;
        }
        if (c == '\\') {
            s->at++;
            if (!escape(s, in_name)) return false;
        } else if (c < 0x20) {
            return wrong_at(s, s->at, "a control character in a string");
        } else if (c < 0x80) {
            s->at++;
        } else {
            uint32_t cp, len = utf8_decode(s->at, (size_t)(s->end - s->at), &cp);
            if (!len) return wrong_at(s, s->at, "invalid UTF-8");
            s->at += len;
        }
    }
    return wrong_at(s, begin - 1, "a string without its end");
}

/* ---- values ---- */

static bool number(struct scan *s)
{
    const char *begin = s->at;
    if (*s->at == '-') s->at++;
    if (!is_digit(s)) return wrong(s, "a digit");
    if (*s->at == '0')
        s->at++;
    else
        while (is_digit(s)) s->at++;
    if (is_digit(s)) return wrong_at(s, s->at, "a number with a leading zero");
    if (s->at < s->end && *s->at == '.') {
        s->at++;
        if (!is_digit(s)) return wrong(s, "a digit");
        while (is_digit(s)) s->at++;
    }
    if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
        s->at++;
        if (s->at < s->end && (*s->at == '+' || *s->at == '-')) s->at++;
        if (!is_digit(s)) return wrong(s, "a digit");
        while (is_digit(s)) s->at++;
    }
    s->cost.tree_bytes += JSON_BYTES_NUMBER;
    if (s->at - begin <= DIGITS_PLAIN) return true;
    s->cost.tree_bytes += JSON_BYTES_ITEM + JSON_BYTES_STRING; /* it may stand in JSON_BIG too */
    s->cost.string_bytes += (uint64_t)(s->at - begin);
    return true;
}

static bool literal(struct scan *s)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->at) < n || memcmp(s->at, words[i], n) != 0) continue;
        s->at += n;
        return true;
    }
    return wrong(s, "a value");
}

/* A string, a number or a literal. */
static bool scalar(struct scan *s)
{
    if (s->at == s->end) return wrong(s, "a value");
    if (*s->at == '"') {
        s->cost.tree_bytes += JSON_BYTES_STRING;
        return string(s, false);
    }
    return *s->at == '-' || is_digit(s) ? number(s) : literal(s);
}

/* A member's name and its colon; `at` is then at the value. The name without quotes in [*name_out, *name_out +
 * *n_out). */
static bool name(struct scan *s, const char **name_out, size_t *n_out)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != '"') return wrong(s, "a name in quotes");
    *name_out = s->at + 1;
    if (!string(s, true)) return false;
    *n_out = (size_t)(s->at - 1 - *name_out);
    skip_blanks(s);
    if (s->at == s->end || *s->at != ':') return wrong(s, "':'");
    s->at++;
    skip_blanks(s);
    s->cost.n_member++;
    s->cost.tree_bytes += JSON_BYTES_MEMBER;
    return true;
}

static bool at_char(struct scan *s, char c)
{
    skip_blanks(s);
    if (s->at == s->end || *s->at != c) return false;
    s->at++;
    return true;
}

static bool open_container(struct scan *s, bool object)
{
    if (s->depth == s->depth_max) return wrong_at(s, s->at, "nested too deeply");
    s->depth++;
    s->at++;
    s->cost.tree_bytes += object ? JSON_BYTES_OBJECT : JSON_BYTES_ARRAY;
    return true;
}

/* One value with all that it holds. Which levels are objects is kept as bits, so that depth costs no stack. */
static bool value(struct scan *s)
{
    uint64_t    objects = 0;
    uint32_t    outer = s->depth;
    const char *ignored;
    size_t      n_ignored;
    static_assert(JSON_DEPTH_MAX <= 64, "a bit for each level");
    for (;;) {
        skip_blanks(s);
        bool object = s->at < s->end && *s->at == '{', array = s->at < s->end && *s->at == '[';
        bool whole = false; /* a value has just ended */
        if (object || array) {
            if (!open_container(s, object)) return false;
            objects = objects << 1 | object;
            if (at_char(s, object ? '}' : ']')) {
                s->depth--;
                objects >>= 1;
                whole = true;
            }
        } else {
            if (!scalar(s)) return false;
            whole = true;
        }
        while (whole) {
            if (s->depth == outer) return true;
            bool in_object = objects & 1;
            if (!in_object) s->cost.tree_bytes += JSON_BYTES_ITEM;
            if (at_char(s, ',')) {
                whole = false;
            } else if (at_char(s, in_object ? '}' : ']')) {
                s->depth--;
                objects >>= 1;
            } else {
                return wrong(s, in_object ? "',' or '}'" : "',' or ']'");
            }
        }
        if (s->depth > outer && (objects & 1) && !name(s, &ignored, &n_ignored)) return false;
    }
}

/* ---- bounds ---- */

static bool begins_well(struct scan *s)
{
    const unsigned char *p = (const unsigned char *)s->text;
    size_t               n = (size_t)(s->end - s->text);
    if (!n) return wrong_at(s, s->text, "empty");
    if (n >= 3 && p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf)
        return wrong_at(s, s->text, "begins with a byte order mark");
    if (n >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff) || !p[0] || !p[1]))
        return wrong_at(s, s->text, "not UTF-8 (UTF-16 or UTF-32?)");
    return true;
}

static bool ends_well(struct scan *s)
{
    skip_blanks(s);
    return s->at == s->end || wrong_at(s, s->at, "more text behind the value");
}

static bool within(struct scan *s, const struct json_cost *cost, const struct json_bounds *b)
{
    s->err->wrong = JSON_OVER;
    if (cost->n_member > b->members_max)
        return wrong_at(s, s->text, "%" PRIu64 " members of objects were found, at most %" PRIu64 " are allowed",
                        cost->n_member, b->members_max);
    if (cost->tree_bytes > b->tree_bytes_max)
        return wrong_at(s, s->text,
                        "too many values: they would take %" PRIu64 " bytes of memory, at most %" PRIu64 " are allowed",
                        cost->tree_bytes, b->tree_bytes_max);
    return true;
}

static void begin(struct scan *s, const char *text, size_t n, const struct json_bounds *b, struct json_error *err)
{
    *s = (struct scan){ .text = text, .at = text, .end = text + n, .err = err };
    err->wrong = JSON_MALFORMED;
    s->depth_max = b->depth_max && b->depth_max < JSON_DEPTH_MAX ? b->depth_max : JSON_DEPTH_MAX;
}

bool json_scan(const char *text, size_t n, const struct json_bounds *bounds, struct json_cost *cost_out,
               struct json_error *err)
{
    struct scan s;
    begin(&s, text, n, bounds, err);
    if (!begins_well(&s) || !value(&s) || !ends_well(&s) || !within(&s, &s.cost, bounds)) return false;
    *cost_out = s.cost;
    return true;
}

/* ---- fields ---- */

/* Names of the outermost object that were seen, as hashes: open addressing, never more than half full. */
enum { NAME_SLOTS = 2 * JSON_FIELDS_MAX };
struct names {
    uint64_t slot[NAME_SLOTS];
    uint64_t n;
};

/* False: it is there already. */
static bool add_name(struct names *t, const char *p, size_t n)
{
    uint64_t h = hash_bytes(p, n, 0) | 1; /* 0 is a free slot */
    size_t   i = h % NAME_SLOTS;
    for (; t->slot[i]; i = (i + 1) % NAME_SLOTS)
        if (t->slot[i] == h) return false;
    t->slot[i] = h;
    return true;
}

static void add_cost(struct json_cost *to, const struct json_cost *before, const struct json_cost *after)
{
    to->n_member += after->n_member - before->n_member;
    to->tree_bytes += after->tree_bytes - before->tree_bytes;
    to->string_bytes += after->string_bytes - before->string_bytes;
}

/* A name with escapes as it reads; NULL: no memory. */
static json_t *plain_name(const char *p, size_t n) { return json_loadb(p - 1, n + 2, JSON_DECODE_ANY, NULL); }

/* One member of the outermost object; `at` is before its name. */
static bool field(struct scan *s, struct names *seen, json_want_fn *want, void *ctx, struct json_fields *out)
{
    struct json_cost before = s->cost;
    struct json_cost nothing = { 0 };
    const char      *p, *begin;
    size_t           n;
    if (!name(s, &p, &n)) return false;
    begin = s->at;
    if (!value(s)) return false;
    if (++seen->n > JSON_FIELDS_MAX) return true; /* refused at the end, with their number */

    json_t        *escaped = memchr(p, '\\', n) ? plain_name(p, n) : NULL;
    const char    *plain = escaped ? json_string_value(escaped) : p;
    size_t         n_plain = escaped ? json_string_length(escaped) : n;
    bool           is_new = add_name(seen, plain, n_plain);
    enum json_want w = is_new ? want(ctx, plain, n_plain) : JSON_SKIP;
    json_decref(escaped);
    if (!is_new) return wrong_at(s, p, "duplicate object key");
    if (w == JSON_SKIP) {
        out->n_skipped++;
        return true;
    }
    if (w == JSON_SCALAR) w = *begin == '{' || *begin == '[' ? JSON_TYPE : JSON_BUILD;
    CHECK(out->n_field < JSON_WANTED_MAX);
    out->field[out->n_field++] = (struct json_field){
        .name = (size_t)(p - s->text),
        .n_name = n,
        .value = (size_t)(begin - s->text),
        .n_value = (size_t)(s->at - begin),
        .want = w,
    };
    if (w == JSON_BUILD)
        add_cost(&out->cost, &before, &s->cost);
    else
        add_cost(&out->cost, &nothing, &(struct json_cost){ 1, JSON_BYTES_MEMBER + JSON_BYTES_OBJECT, n });
    return true;
}

bool json_fields_scan(const char *text, size_t n, const struct json_bounds *bounds, json_want_fn *want, void *ctx,
                      struct json_fields *out, struct json_error *err)
{
    struct scan  s;
    struct names seen = { .n = 0 };
    begin(&s, text, n, bounds, err);
    out->n_field = 0;
    out->n_skipped = 0;
    out->cost = (struct json_cost){ .tree_bytes = JSON_BYTES_OBJECT };
    if (!begins_well(&s)) return false;
    skip_blanks(&s);
    if (s.at == s.end || *s.at != '{') {
        if (!value(&s) || !ends_well(&s)) return false;
        err->wrong = JSON_NO_OBJECT;
        return wrong_at(&s, text, "an object is needed");
    }
    if (!open_container(&s, true)) return false;
    if (!at_char(&s, '}')) {
        do {
            if (!field(&s, &seen, want, ctx, out)) return false;
        } while (at_char(&s, ','));
        if (!at_char(&s, '}')) return wrong(&s, "',' or '}'");
    }
    if (!ends_well(&s)) return false;
    err->wrong = JSON_OVER;
    if (seen.n > JSON_FIELDS_MAX)
        return wrong_at(&s, text, "%" PRIu64 " fields were found, at most %d are allowed", seen.n, JSON_FIELDS_MAX);
    return within(&s, &out->cost, bounds);
}

/* ---- building ---- */

static json_t *value_of(const char *text, const struct json_field *f, bool *big_out, struct json_error *err)
{
    char         first = text[f->value];
    json_error_t e;
    if (f->want == JSON_TYPE && first == '{') return json_object();
    if (f->want == JSON_TYPE && first == '[') return json_array();
    if (f->want == JSON_TYPE && first == '"') return json_string("");
    json_t *v = json_load(text + f->value, f->n_value, &e, big_out);
    if (v) return v;
    err->offset = f->value + (e.position < 0 ? 0 : (size_t)e.position);
    snprintf(err->text, sizeof err->text, "%s", e.text);
    return NULL;
}

json_t *json_big_numbers(const char *text, size_t n)
{
    json_t *list = json_array();
    if (list && json_load_big(text, n, list) && json_array_size(list)) return list;
    json_decref(list);
    return NULL;
}

/* Adds those of what was built. false: no memory. */
static bool add_big(json_t *root, const char *text, const struct json_fields *f)
{
    json_t *list = json_array();
    bool    ok = list != NULL;
    for (uint32_t i = 0; ok && i < f->n_field; i++)
        if (f->field[i].want == JSON_BUILD) ok = json_load_big(text + f->field[i].value, f->field[i].n_value, list);
    if (ok && json_array_size(list)) return !json_object_set_new_nocheck(root, JSON_BIG, list);
    json_decref(list);
    return ok;
}

json_t *json_fields_build(const char *text, const struct json_fields *f, struct json_error *err)
{
    json_t *root = json_object();
    bool    big = false;
    *err = (struct json_error){ .text = "out of memory" };
    for (uint32_t i = 0; root && i < f->n_field; i++) {
        const struct json_field *x = &f->field[i];
        const char              *p = text + x->name;
        json_t                  *escaped = memchr(p, '\\', x->n_name) ? plain_name(p, x->n_name) : NULL;
        json_t                  *v = value_of(text, x, &big, err);
        int                      bad = !v;
        if (v && escaped)
            bad = json_object_setn_new_nocheck(root, json_string_value(escaped), json_string_length(escaped), v);
        else if (v)
            bad = json_object_setn_new_nocheck(root, p, x->n_name, v);
        json_decref(escaped);
        if (!bad) continue;
        json_decref(root);
        return NULL;
    }
    if (!root || !big || add_big(root, text, f)) return root;
    json_decref(root);
    return NULL;
}
