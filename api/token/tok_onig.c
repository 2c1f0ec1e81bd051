/* Over 500 lines: the reader of one grammar, Oniguruma's; its functions call one another. */
#include "api/token/tok_onig.h"
#include "base/hex.h"
#include "api/token/tok_decompose.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_unicode_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GROUPS_MAX = 128,
    CLASS_DEPTH_MAX = 16,
    TEXT_MAX = 1 << 20,
    REPEAT_MAX = 65535,
    FOLD_RUN_MAX = 24,
    FOLD_WAYS_MAX = 256
};

struct options {
    bool fold, dot_all, extended;
};
struct group {
    struct options options; /* of what is around it */
    uint32_t       closes;  /* brackets that options without a group opened in it */
    size_t         begin;   /* in text */
    bool           looks;   /* it is an assertion: nothing to repeat */
};
struct reader {
    struct tok_onig *x;
    const char      *p, *end;
    struct options   options;
    struct group     group[GROUPS_MAX];
    uint32_t         n_group;
    size_t           unit; /* where what a quantifier would repeat begins in text; SIZE_MAX: nothing to repeat */
    bool             quantified;
    bool             failed;
};

/* ---- small parts */

static void fail(struct reader *r, const char *why)
{
    if (!r->failed) snprintf(r->x->why, sizeof r->x->why, "%s", why);
    r->failed = true;
}

static bool takes(struct reader *r, const char *s)
{
    size_t n = strlen(s);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, s, n)) return false;
    r->p += n;
    return true;
}

static bool sees(const struct reader *r, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(r->end - r->p) >= n && !memcmp(r->p, s, n);
}

static bool is_one_of(char c, const char *list) { return c && strchr(list, c); }

static uint32_t take_char(struct reader *r)
{
    size_t   n = 0;
    uint32_t cp = tok_next(r->p, &n);
    r->p += n;
    return cp;
}

static void put(struct reader *r, const char *s) { buf_puts(&r->x->text, s); }

/* A set of its own, which the structure names here; sorted by whoever fills it before the next one. NULL: failed. */
static struct tok_set *put_set(struct reader *r)
{
    struct tok_onig *x = r->x;
    if (x->n_set >= ONIG_SETS_MAX) {
        fail(r, "more than 1024 characters and classes");
        return NULL;
    }
    struct tok_set *set = realloc(x->set, (x->n_set + 1) * sizeof *set);
    if (!set) {
        fail(r, "out of memory");
        return NULL;
    }
    x->set = set;
    set[x->n_set] = (struct tok_set){ 0 };
    buf_putc(&x->text, ONIG_SET);
    buf_putc(&x->text, (char)(x->n_set & 255));
    buf_putc(&x->text, (char)(x->n_set >> 8));
    return &set[x->n_set++];
}

static void put_named(struct reader *r, char letter, bool negated)
{
    struct tok_set *s = put_set(r);
    if (!s) return;
    tok_set_add_escape(s, letter);
    tok_set_sort(s);
    if (negated) tok_set_invert(s);
}

static void put_char(struct reader *r, uint32_t cp)
{
    struct tok_set *s = put_set(r);
    if (!s) return;
    tok_set_add(s, cp, cp);
    if (r->options.fold) tok_set_fold(s);
}

static void begin_unit(struct reader *r)
{
    r->unit = r->x->text.n;
    r->quantified = false;
}

/* ---- escapes of one character, in classes and outside */

static bool digits(struct reader *r, int base, int most, uint32_t *value)
{
    const char *first = r->p;
    *value = 0;
    for (; r->p < r->end && r->p - first < most; r->p++) {
        int d = hex_value(*r->p);
        if (d < 0 || d >= base) break;
        *value = *value * (uint32_t)base + (uint32_t)d;
    }
    return r->p > first;
}

static uint32_t checked(struct reader *r, bool ok, uint32_t cp, bool raw)
{
    if (!ok || cp > TOK_CODE_MAX || (cp >= 0xd800 && cp < 0xe000)) fail(r, "an escape that is no code point");
    if (raw && cp > 0x7f) fail(r, "a byte above \\x7f; \\x{..} is supported");
    return cp;
}

/* Behind the backslash: the code point of \n, \x41, \u00e9 and the like, or the character itself. */
static uint32_t escaped_char(struct reader *r)
{
    static const char from[] = "tnrfvae", to[] = "\t\n\r\f\v\a\x1b";
    uint32_t          cp;
    bool              ok;
    if (is_one_of(*r->p, from)) {
        char c = to[strchr(from, *r->p) - from];
        r->p++;
        return (uint32_t)c;
    }
    if (takes(r, "x{") || takes(r, "o{")) {
        ok = digits(r, r->p[-2] == 'x' ? 16 : 8, 11, &cp);
        return checked(r, ok && takes(r, "}"), cp, false);
    }
    if (takes(r, "x")) {
        ok = digits(r, 16, 2, &cp);
        return checked(r, ok, cp, true);
    }
    if (takes(r, "u")) {
        const char *first = r->p;
        ok = digits(r, 16, 4, &cp);
        return checked(r, ok && r->p - first == 4, cp, false);
    }
    if (*r->p >= '0' && *r->p <= '7') {
        ok = digits(r, 8, 3, &cp);
        return checked(r, ok, cp, true);
    }
    if (*r->p == 'c' || sees(r, "C-") || sees(r, "M-")) fail(r, "a control escape (\\c, \\C-, \\M-)");
    return take_char(r);
}

/* {Name} or {^Name} of \p and \P. */
static void add_property(struct reader *r, struct tok_set *s, bool negated, bool in_class)
{
    if (!takes(r, "{")) {
        fail(r, "\\p without {name}");
        return;
    }
    if (takes(r, "^")) negated = !negated;
    const char *close = memchr(r->p, '}', (size_t)(r->end - r->p));
    bool        word = close && in_class && tok_set_is_word(r->p, (size_t)(close - r->p));
    if (word) tok_set_add_class_word(s);
    if (!word && (!close || !tok_set_add_property(s, r->p, (size_t)(close - r->p)))) {
        snprintf(r->x->why, sizeof r->x->why, "the property \\p{%.*s} is not known",
                 close && close - r->p < 40 ? (int)(close - r->p) : 0, r->p);
        r->failed = true;
        return;
    }
    r->p = close + 1;
    tok_set_sort(s);
    if (negated) tok_set_invert(s);
}

/* ---- classes */

static void read_class(struct reader *r, struct tok_set *out, int depth);

static bool add_posix(struct tok_set *s, const char *name, size_t n)
{
    if (!tok_set_is_word(name, n)) return tok_set_add_posix(s, name, n);
    tok_set_add_class_word(s);
    return true;
}

/* A set of several characters at r->p: an escape, [:posix:] or a class. False: there is a single character. */
static bool class_part(struct reader *r, struct tok_set *to, int depth)
{
    struct tok_set part = { 0 };
    bool           is_part = true;
    if (sees(r, "[:")) {
        const char *name = r->p + 2, *close = memmem(name, (size_t)(r->end - name), ":]", 2);
        bool        negated = close && *name == '^';
        name += negated;
        if (close && add_posix(&part, name, (size_t)(close - name))) {
            r->p = close + 2;
            tok_set_sort(&part);
            if (negated) tok_set_invert(&part);
        } else {
            fail(r, "a class [:name:] that is not known");
        }
    } else if (takes(r, "[")) {
        read_class(r, &part, depth + 1);
    } else if (*r->p == '\\' && r->p + 1 < r->end && is_one_of(r->p[1], "wWsSdDhH")) {
        char c = r->p[1];
        r->p += 2;
        if ((c | 0x20) == 'w')
            tok_set_add_class_word(&part);
        else
            tok_set_add_escape(&part, (char)(c | 0x20));
        tok_set_sort(&part);
        if (!(c & 0x20)) tok_set_invert(&part);
    } else if (sees(r, "\\p{") || sees(r, "\\P{")) {
        bool negated = r->p[1] == 'P';
        r->p += 2;
        add_property(r, &part, negated, true);
    } else {
        is_part = false;
    }
    tok_set_add_set(to, &part);
    tok_set_free(&part);
    return is_part;
}

static uint32_t class_char(struct reader *r)
{
    if (r->p >= r->end) {
        fail(r, "a class without its end");
        return 0;
    }
    if (!takes(r, "\\")) return take_char(r);
    if (r->p >= r->end) {
        fail(r, "a backslash at the end");
        return 0;
    }
    if (takes(r, "b")) return '\b';
    return escaped_char(r);
}

/* Characters and ranges up to the class's end or "&&". */
static void read_members(struct reader *r, struct tok_set *to, bool first, int depth)
{
    for (bool begins = first; !r->failed; begins = false) {
        if (r->p >= r->end) {
            fail(r, "a class without its end");
            return;
        }
        if (sees(r, "&&") || (*r->p == ']' && !begins)) return;
        bool escape = *r->p == '\\';
        if (class_part(r, to, depth)) {
            if (escape && sees(r, "-") && !sees(r, "-]") && !sees(r, "-&&"))
                fail(r, "a class at the beginning of a range");
            continue;
        }
        bool     dash = *r->p == '-';
        uint32_t from = class_char(r), upto = from;
        if (!dash && sees(r, "-") && !sees(r, "-]") && !sees(r, "-&&")) {
            r->p++;
            struct tok_set none = { 0 };
            if (class_part(r, &none, depth)) fail(r, "a class at the end of a range");
            tok_set_free(&none);
            if (r->failed) return;
            upto = class_char(r);
            if (upto < from) fail(r, "an empty range in a class");
        }
        tok_set_add(to, from, upto);
    }
}

/* Behind the opening bracket, up to and with the closing one. */
static void read_class(struct reader *r, struct tok_set *out, int depth)
{
    struct tok_set all = { 0 };
    bool           negated = takes(r, "^"), any = false;
    if (depth >= CLASS_DEPTH_MAX) {
        fail(r, "classes nested too deeply");
        return;
    }
    bool bracket =
        sees(r, "]") && memchr(r->p + 1, ']', (size_t)(r->end - r->p - 1)); /* "[]a]": the first one is a member */
    if (sees(r, "]") && !bracket) fail(r, "an empty class");
    do {
        struct tok_set part = { 0 };
        read_members(r, &part, bracket && !any, depth);
        tok_set_sort(&part);
        if (any)
            tok_set_intersect(&all, &part);
        else
            tok_set_add_set(&all, &part);
        any = true;
        tok_set_free(&part);
    } while (!r->failed && takes(r, "&&"));
    r->p += !r->failed;
    if (r->options.fold) tok_set_fold(&all);
    tok_set_sort(&all);
    if (negated) tok_set_invert(&all);
    tok_set_add_set(out, &all);
    tok_set_free(&all);
}

/* What stands from the unit on becomes one unit. */
static void wrap(struct reader *r)
{
    struct buf *b = &r->x->text;
    put(r, "   ");
    if (b->failed) return;
    memmove(b->data + r->unit + 3, b->data + r->unit, b->n - 3 - r->unit);
    memcpy(b->data + r->unit, "(?:", 3);
    put(r, ")");
    r->quantified = false;
}

/* ---- literals without regard to case: some sequences are one character to Oniguruma ("ss" and U+00DF) */

struct fold_run {
    uint32_t cp[FOLD_RUN_MAX];
    uint32_t n, ways;
};

/* As a set of one that is folded and asked for the other, without making one: a pattern asks this thousands of times.
 * The smaller one is looked for, because most letters of patterns stand at the table's beginning. */
static bool equal_but_for_case(uint32_t a, uint32_t b)
{
    uint32_t low = a < b ? a : b, high = a < b ? b : a;
    bool     found = a == b;
    for (size_t i = 0; i < n_tok_fold && (tok_fold[i] & 0xffffff) <= low; i += 1 + (tok_fold[i] >> 24)) {
        if ((tok_fold[i] & 0xffffff) != low) continue;
        for (uint32_t k = 1; k <= tok_fold[i] >> 24; k++) found = found || tok_fold[i + k] == high;
    }
    return found;
}

/* A character without regard to case, and the sequences that are the same to Oniguruma. */
static void put_folded_char(struct reader *r, uint32_t cp)
{
    size_t first = r->x->text.n;
    bool   any = false;
    put_char(r, cp);
    for (size_t i = 0; i < n_tok_fold_many && !r->failed; i += 1 + (tok_fold_many[i] >> 24)) {
        if (!equal_but_for_case(tok_fold_many[i] & 0xffffff, cp)) continue;
        put(r, "|");
        for (uint32_t k = 1; k <= tok_fold_many[i] >> 24; k++) put_char(r, tok_fold_many[i + k]);
        any = true;
    }
    if (!any) return;
    size_t unit = r->unit;
    r->unit = first;
    wrap(r);
    r->unit = unit;
}

/* How many characters from `at` on the record's sequence takes; 0: it is not there. */
static uint32_t fits(const struct fold_run *x, uint32_t at, const uint32_t *record)
{
    uint32_t n = record[0] >> 24;
    if (at + n > x->n) return 0;
    for (uint32_t i = 0; i < n; i++)
        if (!equal_but_for_case(record[1 + i], x->cp[at + i])) return 0;
    return n;
}

/* The run from `at` on, in every way: character by character, or a sequence as one character. */
static void put_ways(struct reader *r, struct fold_run *x, uint32_t at)
{
    while (at < x->n && !r->failed) {
        struct tok_set one[4] = { { 0 } }; /* by length of the sequence */
        bool           any = false;
        for (size_t i = 0; i < n_tok_fold_many; i += 1 + (tok_fold_many[i] >> 24)) {
            uint32_t n = fits(x, at, &tok_fold_many[i]);
            if (n < 2 || n > 3) continue;
            tok_set_add(&one[n], tok_fold_many[i] & 0xffffff, tok_fold_many[i] & 0xffffff);
            any = true;
        }
        if (any && ++x->ways > FOLD_WAYS_MAX) fail(r, "too many ways to fold the case of a text");
        if (any) put(r, "(?:");
        for (uint32_t n = 3; any && n >= 2; n--) {
            struct tok_set *s = one[n].n ? put_set(r) : NULL;
            if (!s) continue;
            tok_set_add_set(s, &one[n]);
            tok_set_sort(s);
            put_ways(r, x, at + n);
            put(r, "|");
        }
        for (int n = 0; n < 4; n++) tok_set_free(&one[n]);
        put_folded_char(r, x->cp[at++]);
        if (!any) continue;
        put_ways(r, x, at);
        put(r, ")");
        return;
    }
}

static bool is_plain(const struct reader *r)
{
    if (r->p >= r->end || is_one_of(*r->p, "\\[](){}.*+?|^$")) return false;
    return !r->options.extended || !is_one_of(*r->p, " \t\n\r\f\v#");
}

/* The letters from `first` on as far as they stand without a quantifier. The last of them may be quantified: it stays
 * alone. */
static void put_folded(struct reader *r, uint32_t first)
{
    struct fold_run x = { { first }, 1, 0 };
    while (is_plain(r) && x.n < FOLD_RUN_MAX) {
        const char *at = r->p;
        uint32_t    cp = take_char(r);
        if (r->p < r->end && is_one_of(*r->p, "*+?{")) {
            r->p = at;
            break;
        }
        x.cp[x.n++] = cp;
    }
    put_ways(r, &x, 0);
    if (x.n > 1) r->unit = SIZE_MAX; /* nothing follows that would repeat it */
}

/* A class; without regard to case it takes sequences too, those that are the same as one of its members. */
static void put_class(struct reader *r)
{
    struct tok_set set = { 0 };
    bool           negated = sees(r, "^"), any = false;
    read_class(r, &set, 0);
    tok_set_sort(&set);
    struct tok_set *to = r->failed ? NULL : put_set(r);
    if (to) tok_set_add_set(to, &set);
    for (size_t i = 0; i < n_tok_fold_many && r->options.fold && !negated && to && !r->failed;
         i += 1 + (tok_fold_many[i] >> 24)) {
        if (!tok_set_has(&set, tok_fold_many[i] & 0xffffff)) continue;
        put(r, "|");
        for (uint32_t k = 1; k <= tok_fold_many[i] >> 24; k++) put_char(r, tok_fold_many[i + k]);
        any = true;
    }
    if (any) wrap(r);
    tok_set_free(&set);
}

/* ---- groups and options */

static void open_group(struct reader *r, const char *as, bool looks)
{
    if (r->n_group >= GROUPS_MAX) {
        fail(r, "groups nested too deeply");
        return;
    }
    r->group[r->n_group++] = (struct group){ r->options, 0, r->x->text.n, looks };
    put(r, as);
    r->unit = SIZE_MAX;
}

/* Behind "(?": letters up to ':' or ')'. */
static void read_options(struct reader *r)
{
    struct options now = r->options;
    bool           on = true;
    for (; r->p < r->end && *r->p != ':' && *r->p != ')'; r->p++) {
        switch (*r->p) {
        case '-': on = false; break;
        case 'i': now.fold = on; break;
        case 'm': now.dot_all = on; break;
        case 'x': now.extended = on; break;
        default: fail(r, "a group or option that is not supported"); return;
        }
    }
    if (takes(r, ":")) {
        open_group(r, "(?:", false);
    } else if (takes(r, ")")) { /* up to the end of the group around it, alternatives and all */
        put(r, "(?:");
        r->unit = SIZE_MAX;
        r->group[r->n_group - 1].closes++;
    } else {
        fail(r, "a group without its end");
    }
    r->options = now;
}

static void read_group(struct reader *r)
{
    static const struct {
        const char *from;
        bool        looks;
    } same[] = { { "?:", false }, { "?>", false }, { "?=", true }, { "?!", true }, { "?<=", true }, { "?<!", true } };
    if (!sees(r, "?")) {
        open_group(r, "(?:", false); /* nothing refers to what it caught */
        return;
    }
    if (takes(r, "?#")) {
        const char *close = memchr(r->p, ')', (size_t)(r->end - r->p));
        if (!close) fail(r, "a comment without its end");
        if (close) r->p = close + 1;
        return;
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (!takes(r, same[i].from)) continue;
        char as[8];
        snprintf(as, sizeof as, "(%s", same[i].from);
        open_group(r, as, same[i].looks);
        return;
    }
    if (sees(r, "?<") || sees(r, "?'")) { /* a name */
        char        close = r->p[1] == '<' ? '>' : '\'';
        const char *end = memchr(r->p + 2, close, (size_t)(r->end - r->p - 2));
        if (!end || end == r->p + 2) {
            fail(r, "a group's name without its end");
            return;
        }
        r->p = end + 1;
        open_group(r, "(?:", false);
        return;
    }
    r->p++;
    read_options(r);
}

static void close_group(struct reader *r)
{
    if (r->n_group < 2) {
        fail(r, "a closing bracket without its group");
        return;
    }
    struct group g = r->group[--r->n_group];
    for (uint32_t i = 0; i <= g.closes; i++) put(r, ")");
    r->options = g.options;
    r->unit = g.looks ? SIZE_MAX : g.begin;
    r->quantified = false;
}

/* ---- quantifiers */

/* {n}, {n,}, {,m}, {n,m}; what is none of them is text. */
static bool read_interval(struct reader *r, uint32_t *least, uint32_t *most, bool *exact)
{
    const char *back = r->p;
    if (!takes(r, "{")) return false;
    bool low = digits(r, 10, 6, least), comma = takes(r, ","), high = comma && digits(r, 10, 6, most);
    *exact = !comma;
    if (!low) *least = 0;
    if (!high) *most = comma ? UINT32_MAX : *least;
    if ((low || high) && takes(r, "}")) return true;
    r->p = back;
    return false;
}

static bool read_quantifier(struct reader *r)
{
    uint32_t least = 0, most = UINT32_MAX;
    bool     interval = false, exact = false;
    if (takes(r, "*")) {
    } else if (takes(r, "+")) {
        least = 1;
    } else if (takes(r, "?")) {
        most = 1;
    } else if (read_interval(r, &least, &most, &exact)) {
        interval = true;
    } else {
        return false;
    }
    if (r->unit == SIZE_MAX) {
        fail(r, "a quantifier with nothing to repeat");
        return true;
    }
    if (least > REPEAT_MAX || (most != UINT32_MAX && (most > REPEAT_MAX || most < least))) {
        fail(r, "a quantifier out of range");
        return true;
    }
    if (r->quantified) wrap(r);
    if (most == UINT32_MAX)
        buf_printf(&r->x->text, "{%u,}", least);
    else
        buf_printf(&r->x->text, "{%u,%u}", least, most);
    r->quantified = true;
    if (interval && exact) { /* {n}? is one that may be missing */
        if (!takes(r, "?")) return true;
        wrap(r);
        put(r, "?");
        r->quantified = true;
    } else if (takes(r, "?")) {
        put(r, "?");
    } else if (!interval && takes(r, "+")) {
        put(r, "+");
    }
    return true;
}

/* ---- the rest */

/* Between a word character and none. */
static void put_boundary(struct reader *r, bool is)
{
    put(r, "(?:(?<=");
    put_named(r, 'w', false);
    put(r, is ? ")(?!" : ")(?=");
    put_named(r, 'w', false);
    put(r, ")|(?<!");
    put_named(r, 'w', false);
    put(r, is ? ")(?=" : ")(?!");
    put_named(r, 'w', false);
    put(r, "))");
    r->unit = SIZE_MAX;
}

static void put_any_line_end(struct reader *r)
{
    put(r, "(?>");
    put_char(r, '\r');
    put_char(r, '\n');
    put(r, "|");
    struct tok_set *s = put_set(r);
    if (s) {
        tok_set_add(s, '\n', '\r');
        tok_set_add(s, 0x85, 0x85);
        tok_set_add(s, 0x2028, 0x2029);
        tok_set_sort(s);
    }
    put(r, ")");
}

static void put_dot(struct reader *r, bool line_ends_too)
{
    struct tok_set *s = put_set(r);
    if (!s) return;
    tok_set_add(s, 0, line_ends_too ? TOK_CODE_MAX : '\n' - 1);
    if (!line_ends_too) tok_set_add(s, '\n' + 1, TOK_CODE_MAX);
}

static void read_escape(struct reader *r)
{
    if (r->p >= r->end) {
        fail(r, "a backslash at the end");
        return;
    }
    char c = *r->p;
    begin_unit(r);
    if (is_one_of(c, "wWsSdDhH")) {
        r->p++;
        put_named(r, (char)(c | 0x20), !(c & 0x20));
    } else if (c == 'p' || c == 'P') {
        r->p++;
        struct tok_set *s = put_set(r);
        if (s) add_property(r, s, c == 'P', false);
    } else if (c == 'b' || c == 'B') {
        r->p++;
        put_boundary(r, c == 'b');
    } else if (c == 'R') {
        r->p++;
        put_any_line_end(r);
    } else if (c == 'N' || c == 'O') {
        r->p++;
        put_dot(r, c == 'O');
    } else if (is_one_of(c, "AzZGK")) {
        r->p++;
        buf_printf(&r->x->text, "\\%c", c);
        r->unit = SIZE_MAX;
    } else if (c >= '1' && c <= '9') {
        fail(r, "a reference to a group");
    } else if (is_one_of(c, "kgXyYQE")) {
        fail(r, "one of \\k \\g \\X \\y \\Y \\Q \\E");
    } else {
        put_char(r, escaped_char(r));
    }
}

static void skip_extended(struct reader *r)
{
    while (r->p < r->end && r->options.extended) {
        if (is_one_of(*r->p, " \t\n\r\f\v")) {
            r->p++;
        } else if (*r->p == '#') {
            const char *line = memchr(r->p, '\n', (size_t)(r->end - r->p));
            r->p = line ? line + 1 : r->end;
        } else {
            return;
        }
    }
}

static void read_one(struct reader *r)
{
    if (read_quantifier(r)) return;
    if (takes(r, "\\")) {
        read_escape(r);
    } else if (takes(r, "(")) {
        read_group(r);
    } else if (takes(r, ")")) {
        close_group(r);
    } else if (takes(r, "|")) {
        put(r, "|");
        r->unit = SIZE_MAX;
    } else if (sees(r, "^") || sees(r, "$")) {
        buf_putc(&r->x->text, *r->p++);
        r->unit = SIZE_MAX;
    } else if (takes(r, "[")) {
        begin_unit(r);
        put_class(r);
    } else if (takes(r, ".")) {
        begin_unit(r);
        put_dot(r, r->options.dot_all);
    } else {
        begin_unit(r);
        uint32_t cp = take_char(r);
        if (r->options.fold)
            put_folded(r, cp);
        else
            put_char(r, cp);
    }
}

bool tok_onig_read(struct tok_onig *x, const char *pattern, size_t n)
{
    struct reader r = { .x = x, .p = pattern, .end = pattern + n, .unit = SIZE_MAX, .n_group = 1 };
    *x = (struct tok_onig){ 0 };
    buf_init(&x->text, TEXT_MAX);
    for (skip_extended(&r); r.p < r.end && !r.failed; skip_extended(&r)) read_one(&r);
    if (!r.failed && r.n_group > 1) fail(&r, "a group without its end");
    for (uint32_t i = 0; i < r.group[0].closes; i++) put(&r, ")");
    for (uint32_t i = 0; i < x->n_set; i++)
        if (x->set[i].failed) fail(&r, "out of memory");
    if (x->text.failed) fail(&r, "too long");
    return !r.failed;
}

void tok_onig_free(struct tok_onig *x)
{
    for (uint32_t i = 0; i < x->n_set; i++) tok_set_free(&x->set[i]);
    free(x->set);
    buf_free(&x->text);
    *x = (struct tok_onig){ 0 };
}
