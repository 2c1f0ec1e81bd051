#include "api/schema/regex.h"
#include "api/schema/chars.h"
#include "api/token/tok_set.h"
#include "base/utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPERTY_RANGES_MAX = 1 << 16 };

struct parser {
    struct rx        *x;
    const char       *s;
    size_t            n, at;
    struct regex_form form;
    uint32_t          depth, n_range; /* n_range: of characters, that properties have named */
    bool              fold, dot_all;  /* flags i and s */
    bool              failed;
    char             *err;
};

static uint32_t fail(struct parser *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static uint32_t fail(struct parser *p, const char *fmt, ...)
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

static bool more(const struct parser *p) { return p->at < p->n && !p->failed; }
static int  peek(const struct parser *p) { return more(p) ? (unsigned char)p->s[p->at] : -1; }
static bool take(struct parser *p, const char *word)
{
    size_t n = strlen(word);
    if (p->n - p->at < n || memcmp(p->s + p->at, word, n) != 0 || p->failed) return false;
    p->at += n;
    return true;
}

static uint32_t take_char(struct parser *p)
{
    uint32_t cp, len = utf8_decode(p->s + p->at, p->n - p->at, &cp);
    if (len == 0) {
        fail(p, "not UTF-8");
        return 0;
    }
    p->at += len;
    return cp;
}

/* ---------------------------------------------------------------- characters */

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

static uint32_t take_hex(struct parser *p, uint32_t digits_min, uint32_t digits_max)
{
    uint32_t v = 0, n = 0;
    for (; n < digits_max && more(p); n++) {
        int c = peek(p), low = c | 0x20;
        if (c >= '0' && c <= '9')
            v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (uint32_t)(low - 'a' + 10);
        else
            break;
        p->at++;
    }
    if (n < digits_min) fail(p, "hexadecimal digits are missing");
    return v;
}

/* The character behind a backslash that is not a kind. */
static uint32_t take_escape(struct parser *p)
{
    static const char controls[] = "n\nr\rt\tf\fv\v";
    int               c = peek(p);
    if (c < 0) return fail(p, "a backslash stands at the end");
    for (size_t i = 0; i + 1 < sizeof controls; i += 2) {
        if (controls[i] != c) continue;
        p->at++;
        return (unsigned char)controls[i + 1];
    }
    if (take(p, "x")) return take_hex(p, 2, 2);
    if (take(p, "u{")) {
        uint32_t cp = take_hex(p, 1, 6);
        if (!take(p, "}") || cp > RX_CODE_POINT_MAX) fail(p, "\\u{} needs a code point");
        return cp;
    }
    if (take(p, "u")) {
        uint32_t high = take_hex(p, 4, 4);
        if (high < 0xD800 || high > 0xDBFF || !take(p, "\\u")) return high;
        return 0x10000 + ((high - 0xD800) << 10) + ((take_hex(p, 4, 4) - 0xDC00) & 0x3FF);
    }
    if (take(p, "0")) return 0;
    if ((c >= '1' && c <= '9') || c == 'k') return fail(p, "back-references are not supported");
    if (c == 'b' || c == 'B') return fail(p, "\\%c is not supported", c);
    if (c == 'p' || c == 'P') return fail(p, "a range cannot end in \\%c{..}", c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return fail(p, "\\%c is unknown", c);
    return take_char(p);
}

/* With the i flag both cases of the letters of ASCII. */
static void add_range(struct parser *p, struct chars *c, uint32_t from, uint32_t to)
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
static void take_property(struct parser *p, struct tok_set *set)
{
    static const char *const before[] = { "gc=", "General_Category=", "sc=", "Script=" };
    size_t                   from = p->at;
    bool                     inverted = p->s[p->at++] == 'P';
    const char              *end = memchr(p->s + p->at, '}', p->n - p->at);
    struct tok_set           one = { 0 };
    if (!take(p, "{") || !end) {
        fail(p, "\\%c needs the name of a property in braces", inverted ? 'P' : 'p');
        return;
    }
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (take(p, before[i])) break;
    const char *name = p->s + p->at;
    size_t      n = (size_t)(end - p->s) - p->at;
    if (n == 3 && !memcmp(name, "Any", 3)) {
        tok_set_add(&one, 0, TOK_CODE_MAX);
    } else if (!n || name[0] == '^' || !tok_set_add_property(&one, name, n)) {
        p->at = from;
        fail(p, "no property is called '%.*s'", n < 40 ? (int)n : 40, name);
    }
    p->at = p->failed ? p->at : (size_t)(end - p->s) + 1;
    tok_set_sort(&one);
    if (p->fold) tok_set_fold(&one);
    if (inverted) tok_set_invert(&one);
    p->n_range += one.n;
    if (p->n_range > PROPERTY_RANGES_MAX) fail(p, "properties of more than %d ranges in all", PROPERTY_RANGES_MAX);
    tok_set_add_set(set, &one);
    tok_set_free(&one);
}

/* Expression of one character of a set, which is freed. */
static uint32_t finish_set(struct parser *p, struct tok_set *set, bool inverted)
{
    tok_set_sort(set);
    if (inverted) tok_set_invert(set);
    uint32_t *one = malloc((set->n + 1) * sizeof *one), r = RX_NONE;
    for (uint32_t i = 0; one && !p->failed && i < set->n; i++)
        one[i] = chars_range_rx(p->x, set->range[i].from, set->range[i].to, p->form.json);
    if (one && !set->failed && !p->failed)
        r = rx_or(p->x, one, set->n);
    else
        fail(p, "out of memory");
    free(one);
    tok_set_free(set);
    return r;
}

/* A class or one character of it: true with *cp, false if it was a kind or a property, which was added. */
static bool take_member(struct parser *p, struct chars *c, struct tok_set *set, uint32_t *cp)
{
    if (!take(p, "\\")) {
        *cp = take_char(p);
        return true;
    }
    if (is_kind(peek(p))) {
        add_kind(c, p->s[p->at++]);
        return false;
    }
    if (is_property(peek(p))) {
        take_property(p, set);
        return false;
    }
    *cp = take(p, "b") ? 8 : take_escape(p);
    return true;
}

static uint32_t finish_class(struct parser *p, struct chars *c)
{
    if (c->full) return fail(p, "a class of more than %d ranges", CHARS_RANGES);
    return chars_rx(p->x, c, p->form.json);
}

/* Its members, up to the bracket. */
static void take_members(struct parser *p, struct chars *c, struct tok_set *set)
{
    while (more(p) && peek(p) != ']') {
        uint32_t from, to;
        if (!take_member(p, c, set, &from)) continue;
        to = from;
        if (peek(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']') {
            p->at++;
            if (!take_member(p, c, set, &to)) fail(p, "a range ends in a class");
            if (to < from) fail(p, "a range runs backwards");
        }
        add_range(p, c, from, to);
    }
    if (!take(p, "]")) fail(p, "']' is missing");
}

static uint32_t parse_class(struct parser *p)
{
    struct chars   c = { .n = 0 };
    struct tok_set set = { 0 };
    bool           inverted = take(p, "^");
    take_members(p, &c, &set);
    if (set.n == 0) {
        tok_set_free(&set);
        if (inverted) chars_invert(&c);
        return finish_class(p, &c);
    }
    if (c.full) fail(p, "a class of more than %d ranges", CHARS_RANGES);
    for (uint32_t i = 0; i < c.n; i++) tok_set_add(&set, c.range[i].from, c.range[i].to);
    return finish_set(p, &set, inverted);
}

static uint32_t parse_dot(struct parser *p)
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

static uint32_t one_char(struct parser *p, uint32_t cp)
{
    struct chars c = { .n = 0 };
    add_range(p, &c, cp, cp);
    return finish_class(p, &c);
}

/* ---------------------------------------------------------------- structure */

static uint32_t parse_choices(struct parser *p);

static void parse_flags(struct parser *p)
{
    for (; more(p) && peek(p) != ')'; p->at++) {
        p->fold = p->fold || peek(p) == 'i';
        p->dot_all = p->dot_all || peek(p) == 's';
        if (peek(p) != 'i' && peek(p) != 's') fail(p, "of flags, (?i) and (?s) are supported");
    }
}

static uint32_t parse_group(struct parser *p)
{
    if (take(p, "?P<") ||
        (p->n - p->at > 2 && memcmp(p->s + p->at, "?<", 2) == 0 && !strchr("=!", p->s[p->at + 2]) && take(p, "?<"))) {
        while (more(p) && peek(p) != '>') p->at++;
        if (!take(p, ">")) return fail(p, "'>' is missing");
    } else if (take(p, "?:")) {
        /* nothing: no group is ever captured */
    } else if (take(p, "?=") || take(p, "?!")) {
        return fail(p, "a look-ahead is supported at the beginning alone");
    } else if (take(p, "?<")) {
        return fail(p, "look-behind is not supported");
    } else if (take(p, "?")) {
        parse_flags(p);
        if (!take(p, ")")) return fail(p, "')' is missing");
        return RX_EMPTY;
    }
    if (++p->depth > REGEX_DEPTH_MAX) return fail(p, "groups are nested deeper than %d", REGEX_DEPTH_MAX);
    bool     fold = p->fold, dot_all = p->dot_all;
    uint32_t r = parse_choices(p);
    p->fold = fold;
    p->dot_all = dot_all;
    p->depth--;
    if (!take(p, ")")) return fail(p, "')' is missing");
    return r;
}

static uint32_t parse_atom(struct parser *p)
{
    if (take(p, "(")) return parse_group(p);
    if (take(p, "[")) return parse_class(p);
    if (take(p, ".")) return parse_dot(p);
    if (peek(p) == '*' || peek(p) == '+' || peek(p) == '?') return fail(p, "nothing stands before the repetition");
    if (peek(p) == '^' || peek(p) == '$')
        return fail(p, "'^' and '$' are supported at the ends of the whole expression");
    if (!take(p, "\\")) return one_char(p, take_char(p));
    if (is_kind(peek(p))) {
        struct chars c = { .n = 0 };
        add_kind(&c, p->s[p->at++]);
        return finish_class(p, &c);
    }
    if (is_property(peek(p))) {
        struct tok_set set = { 0 };
        take_property(p, &set);
        return finish_set(p, &set, false);
    }
    uint32_t cp = take_escape(p);
    return p->failed ? (uint32_t)RX_NONE : one_char(p, cp);
}

static bool take_number(struct parser *p, uint32_t *v)
{
    size_t from = p->at;
    *v = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if (*v <= REGEX_REPEAT_MAX) *v = *v * 10 + (uint32_t)(peek(p) - '0');
    return p->at > from;
}

/* {m}, {m,}, {m,n}; what is none of them stands for itself. */
static bool take_counts(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t from = p->at;
    if (!take(p, "{")) return false;
    if (take_number(p, min)) {
        *max = *min;
        if (take(p, ",") && !take_number(p, max)) *max = RX_MANY;
        if (take(p, "}")) return true;
    }
    p->at = from;
    return false;
}

static uint32_t parse_repeated(struct parser *p)
{
    uint32_t r = parse_atom(p);
    while (more(p)) {
        uint32_t min, max = RX_MANY;
        if (take(p, "?")) {
            min = 0;
            max = 1;
        } else if (take(p, "*")) {
            min = 0;
        } else if (take(p, "+")) {
            min = 1;
        } else if (!take_counts(p, &min, &max)) {
            break;
        }
        if (min > REGEX_REPEAT_MAX || (max != RX_MANY && max > REGEX_REPEAT_MAX))
            return fail(p, "a repetition of more than %d", REGEX_REPEAT_MAX);
        if (min > max) return fail(p, "a repetition from more to less");
        take(p, "?"); /* lazy: the same texts */
        r = rx_repeat(p->x, r, min, max);
    }
    return r;
}

static bool at_end_of_choice(const struct parser *p) { return !more(p) || peek(p) == '|' || peek(p) == ')'; }

/* Atoms one after the other. to_dollar: a '$' at the end of the alternative is left to the caller. */
static uint32_t parse_row(struct parser *p, bool to_dollar)
{
    uint32_t part[64], n = 0, r = RX_EMPTY;
    while (!at_end_of_choice(p)) {
        bool last = p->at + 1 == p->n || p->s[p->at + 1] == '|' || p->s[p->at + 1] == ')';
        if (to_dollar && peek(p) == '$' && last) break;
        if (n < 64) {
            part[n++] = parse_repeated(p);
            continue;
        }
        r = rx_cat(p->x, r, parse_row(p, to_dollar)); /* what is left, nested to the right */
    }
    while (n-- > 0) r = rx_cat(p->x, part[n], r);
    return r;
}

static uint32_t parse_choices(struct parser *p)
{
    uint32_t r = parse_row(p, false);
    while (take(p, "|")) r = rx_or2(p->x, r, parse_row(p, false));
    return r;
}

/* One alternative of the whole: look-aheads at its beginning, anchors at its ends. */
static uint32_t parse_outermost(struct parser *p)
{
    uint32_t any = rx_repeat(p->x, chars_any(p->x, p->form.json), 0, RX_MANY), condition = RX_ALL;
    bool     anchored = take(p, "^") || !p->form.search;
    while (anchored && p->n - p->at > 2 && (!memcmp(p->s + p->at, "(?=", 3) || !memcmp(p->s + p->at, "(?!", 3))) {
        bool inverse = p->s[p->at + 2] == '!', to_end;
        p->at += 3;
        uint32_t r = parse_row(p, true);
        to_end = take(p, "$");
        if (!take(p, ")")) return fail(p, "a look-ahead of one alternative, without '$' inside, is supported");
        if (!to_end) r = rx_cat(p->x, r, any);
        condition = rx_and2(p->x, condition, inverse ? rx_not(p->x, r) : r);
    }
    uint32_t r = parse_row(p, true);
    if (!take(p, "$") && p->form.search) r = rx_cat(p->x, r, any);
    if (!anchored) r = rx_cat(p->x, any, r);
    return rx_and2(p->x, r, condition);
}

enum status regex_rx(struct rx *x, const char *s, size_t n, struct regex_form form, uint32_t *rx_out,
                     char err[REGEX_ERR])
{
    struct parser p = { .x = x, .s = s, .n = n, .form = form, .err = err };
    if (n > REGEX_BYTES_MAX) {
        fail(&p, "%zu bytes, allowed are %d", n, REGEX_BYTES_MAX);
        return ST_INVALID;
    }
    uint32_t r = parse_outermost(&p);
    while (take(&p, "|")) r = rx_or2(x, r, parse_outermost(&p));
    if (more(&p)) fail(&p, "')' without '('");
    if (p.failed) return ST_INVALID;
    *rx_out = r;
    return ST_OK;
}

enum status regex_is_blank(const char *s, size_t n, char err[REGEX_ERR])
{
    const struct rx_limits  limits = { .node_max = 10000, .fuel = 100000, .depth_max = 500 };
    const struct regex_form whole = { .search = false };
    struct rx              *x = rx_create(&limits);
    struct rx_class         blank = { { 0 } };
    uint8_t                 kind[256];
    uint32_t                r = RX_NONE;
    if (!x) return ST_NOMEM;
    enum status st = regex_rx(x, s, n, whole, &r, err);
    for (const char *c = " \t\r\n"; *c; c++) rx_class_add(&blank, (unsigned char)*c, (unsigned char)*c);
    uint32_t other = rx_and2(x, r, rx_not(x, rx_repeat(x, rx_of_class(x, &blank), 0, RX_MANY)));
    rx_kinds(x, kind);
    bool good = !st && r != RX_NONE && rx_is_void(x, other);
    if (rx_status(x) == ST_TOO_LARGE) snprintf(err, REGEX_ERR, "it is too large");
    if (!st && !good && !rx_status(x)) snprintf(err, REGEX_ERR, "it matches more than blanks, tabs and line breaks");
    if (rx_status(x) == ST_NOMEM)
        st = ST_NOMEM;
    else if (!good || rx_status(x))
        st = ST_INVALID;
    rx_free(x);
    return st;
}
