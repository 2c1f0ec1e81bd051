/* regex_chars: characters, classes and properties of expressions. */
#include "api/schema/chars.h"
#include "api/schema/regex_impl.h"
#include "api/token/tok_set.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { PROPERTY_RANGES_MAX = 1 << 16 };

uint32_t regex_fail(struct regex_parser *p, const char *fmt, ...)
{
    char    what[120];
    va_list args;
    if (p->failed) return RX_NONE;
    p->failed = true;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    snprintf(p->err, REGEX_ERR, "at byte %zu: %s", p->at + 1, what);
    return RX_NONE;
}

static uint32_t take_char(struct regex_parser *p)
{
    uint32_t cp, len = utf8_decode(p->s + p->at, p->n - p->at, &cp);
    if (len == 0) {
        regex_fail(p, "not UTF-8");
        return 0;
    }
    p->at += len;
    return cp;
}

static const struct {
    uint32_t from, to;
} spaces[] = { { 9, 13 },          { ' ', ' ' },       { 0xA0, 0xA0 },     { 0x1680, 0x1680 }, { 0x2000, 0x200A },
               { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 }, { 0xFEFF, 0xFEFF } };

/* \d \w \s and their opposites. */
static void add_kind(struct chars *c, char kind)
{
    struct chars k = { .n = 0 };
    switch (kind | 0x20) {
    case 'd': chars_add(&k, '0', '9'); break;
    case 'w':
        chars_add(&k, '0', '9');
        chars_add(&k, 'A', 'Z');
        chars_add(&k, '_', '_');
        chars_add(&k, 'a', 'z');
        break;
    default:
        for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) chars_add(&k, spaces[i].from, spaces[i].to);
        break;
    }
    if (kind < 'a') chars_invert(&k);
    chars_join(c, &k);
}

static uint32_t take_hex(struct regex_parser *p, uint32_t digits_min, uint32_t digits_max)
{
    uint32_t v = 0, n = 0;
    for (; n < digits_max && regex_more(p); n++) {
        int c = regex_peek(p), low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint32_t)(low - 'a' + 10);
        else
            break;
        p->at++;
    }
    if (n < digits_min) regex_fail(p, "hexadecimal digits are missing");
    return v;
}

/* The character behind a backslash that is not a kind. */
static uint32_t take_escape(struct regex_parser *p)
{
    static const char controls[] = "n\nr\rt\tf\fv\v";
    int               c = regex_peek(p);
    if (c < 0) return regex_fail(p, "a backslash stands at the end");
    for (size_t i = 0; i + 1 < sizeof controls; i += 2) {
        if (controls[i] != c) continue;
        p->at++;
        return (unsigned char)controls[i + 1];
    }
    if (regex_take(p, "x")) return take_hex(p, 2, 2);
    if (regex_take(p, "u{")) {
        uint32_t cp = take_hex(p, 1, 6);
        if (!regex_take(p, "}") || cp > RX_CODE_POINT_MAX) regex_fail(p, "\\u{} needs a code point");
        return cp;
    }
    if (regex_take(p, "u")) {
        uint32_t high = take_hex(p, 4, 4);
        if (high < 0xD800 || high > 0xDBFF || !regex_take(p, "\\u")) return high;
        return 0x10000 + ((high - 0xD800) << 10) + ((take_hex(p, 4, 4) - 0xDC00) & 0x3FF);
    }
    if (regex_take(p, "0")) return 0;
    if ((c >= '1' && c <= '9') || c == 'k') return regex_fail(p, "back-references are not supported");
    if (c == 'b' || c == 'B') return regex_fail(p, "\\%c is not supported", c);
    if (c == 'p' || c == 'P') return regex_fail(p, "a range cannot end in \\%c{..}", c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return regex_fail(p, "\\%c is unknown", c);
    return take_char(p);
}

/* With the i flag both cases of the letters of ASCII. */
static void add_range(struct regex_parser *p, struct chars *c, uint32_t from, uint32_t to)
{
    chars_add(c, from, to);
    for (uint32_t l = 'a'; p->fold && l <= 'z'; l++) {
        uint32_t upper = l - 32;
        if (l >= from && l <= to) chars_add(c, upper, upper);
        if (upper >= from && upper <= to) chars_add(c, l, l);
    }
}

static bool is_kind(int c) { return c > 0 && strchr("dDwWsS", c) != NULL; }
static bool is_property(int c) { return c == 'p' || c == 'P'; }

/* p{Name} or P{Name}, the backslash taken: adds the characters with that property of Unicode, or without it. */
static void take_property(struct regex_parser *p, struct tok_set *set)
{
    static const char *const before[] = { "gc=", "General_Category=", "sc=", "Script=" };
    size_t                   from = p->at;
    bool                     inverted = p->s[p->at++] == 'P';
    const char              *end = memchr(p->s + p->at, '}', p->n - p->at);
    struct tok_set           one = { 0 };
    if (!regex_take(p, "{") || !end) {
        regex_fail(p, "\\%c needs the name of a property in braces", inverted ? 'P' : 'p');
        return;
    }
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (regex_take(p, before[i])) break;
    const char *name = p->s + p->at;
    size_t      n = (size_t)(end - p->s) - p->at;
    if (n == 3 && !memcmp(name, "Any", 3)) {
        tok_set_add(&one, 0, TOK_CODE_MAX);
    } else if (!n || name[0] == '^' || !tok_set_add_property(&one, name, n)) {
        p->at = from;
        regex_fail(p, "no property is called '%.*s'", n < 40 ? (int)n : 40, name);
    }
    p->at = p->failed ? p->at : (size_t)(end - p->s) + 1;
    tok_set_sort(&one);
    if (p->fold) tok_set_fold(&one);
    if (inverted) tok_set_invert(&one);
    p->n_range += one.n;
    if (p->n_range > PROPERTY_RANGES_MAX)
        regex_fail(p, "properties of more than %d ranges in all", PROPERTY_RANGES_MAX);
    tok_set_add_set(set, &one);
    tok_set_free(&one);
}

/* Expression of one character of a set, which is freed. */
static uint32_t finish_set(struct regex_parser *p, struct tok_set *set, bool inverted)
{
    tok_set_sort(set);
    if (inverted) tok_set_invert(set);
    uint32_t *one = malloc((set->n + 1) * sizeof *one), r = RX_NONE;
    for (uint32_t i = 0; one && !p->failed && i < set->n; i++)
        one[i] = chars_range_rx(p->x, set->range[i].from, set->range[i].to, p->form.json);
    if (one && !set->failed && !p->failed)
        r = rx_or(p->x, one, set->n);
    else
        regex_fail(p, "out of memory");
    free(one);
    tok_set_free(set);
    return r;
}

/* A class or one character of it: true with *cp, false if it was a kind or a property, which was added. */
static bool take_member(struct regex_parser *p, struct chars *c, struct tok_set *set, uint32_t *cp)
{
    if (!regex_take(p, "\\")) {
        *cp = take_char(p);
        return true;
    }
    if (is_kind(regex_peek(p))) {
        add_kind(c, p->s[p->at++]);
        return false;
    }
    if (is_property(regex_peek(p))) {
        take_property(p, set);
        return false;
    }
    *cp = regex_take(p, "b") ? 8 : take_escape(p);
    return true;
}

static uint32_t finish_class(struct regex_parser *p, struct chars *c)
{
    if (c->full) return regex_fail(p, "a class of more than %d ranges", CHARS_RANGES);
    return chars_rx(p->x, c, p->form.json);
}

/* Its members, up to the bracket. */
static void take_members(struct regex_parser *p, struct chars *c, struct tok_set *set)
{
    while (regex_more(p) && regex_peek(p) != ']') {
        uint32_t from, to;
        if (!take_member(p, c, set, &from)) continue;
        to = from;
        if (regex_peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']') {
            p->at++;
            if (!take_member(p, c, set, &to)) regex_fail(p, "a range ends in a class");
            if (to < from) regex_fail(p, "a range runs backwards");
        }
        add_range(p, c, from, to);
    }
    if (!regex_take(p, "]")) regex_fail(p, "']' is missing");
}

static uint32_t parse_class(struct regex_parser *p)
{
    struct chars   c = { .n = 0 };
    struct tok_set set = { 0 };
    bool           inverted = regex_take(p, "^");
    take_members(p, &c, &set);
    if (set.n == 0) {
        tok_set_free(&set);
        if (inverted) chars_invert(&c);
        return finish_class(p, &c);
    }
    if (c.full) regex_fail(p, "a class of more than %d ranges", CHARS_RANGES);
    for (uint32_t i = 0; i < c.n; i++) tok_set_add(&set, c.range[i].from, c.range[i].to);
    return finish_set(p, &set, inverted);
}

static uint32_t parse_dot(struct regex_parser *p)
{
    struct chars c = { .n = 0 };
    if (!p->dot_all) {
        chars_add(&c, '\n', '\n');
        chars_add(&c, '\r', '\r');
        chars_add(&c, 0x2028, 0x2029);
    }
    chars_invert(&c);
    return finish_class(p, &c);
}

static uint32_t one_char(struct regex_parser *p, uint32_t cp)
{
    struct chars c = { .n = 0 };
    add_range(p, &c, cp, cp);
    return finish_class(p, &c);
}

uint32_t regex_char(struct regex_parser *p)
{
    if (regex_take(p, "[")) return parse_class(p);
    if (regex_take(p, ".")) return parse_dot(p);
    if (regex_peek(p) == '*' || regex_peek(p) == '+' || regex_peek(p) == '?')
        return regex_fail(p, "nothing stands before the repetition");
    if (regex_peek(p) == '^' || regex_peek(p) == '$')
        return regex_fail(p, "'^' and '$' are supported at the ends of the whole expression");
    if (!regex_take(p, "\\")) return one_char(p, take_char(p));
    if (is_kind(regex_peek(p))) {
        struct chars c = { .n = 0 };
        add_kind(&c, p->s[p->at++]);
        return finish_class(p, &c);
    }
    if (is_property(regex_peek(p))) {
        struct tok_set set = { 0 };
        take_property(p, &set);
        return finish_set(p, &set, false);
    }
    uint32_t cp = take_escape(p);
    return p->failed ? (uint32_t)RX_NONE : one_char(p, cp);
}
