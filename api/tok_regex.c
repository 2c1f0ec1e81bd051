#include "api/tok_regex.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A match of a sane pattern takes a few steps per byte; a pattern that explodes ends its request instead of a thread. The JIT's stack is
 * address space until it is used. */
enum { PATTERN_MAX = 1 << 16, STEPS_MIN = 10000000, STEPS_PER_BYTE = 8, HEAP_LIMIT_KIB = 65536, JIT_STACK_MAX = 64 << 20 };

struct tok_regex {
    pcre2_code *code;
};

/* ---- Oniguruma (Ruby syntax) to PCRE2 */

static bool is(const char *p, const char *end, const char *s) { return (size_t)(end - p) >= strlen(s) && !memcmp(p, s, strlen(s)); }

/* What Oniguruma's classes hold where PCRE2's of the same name hold something else. */
#define WORD_MEMBERS \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}\\p{Pc}"
static const struct {
    const char *name, *members;
} classes[] = {
    { "\\h", "0-9A-Fa-f" },            /* a hexadecimal digit; PCRE2: horizontal space */
    { "\\s", "\\t-\\r\\x{85}\\p{Z}" }, /* PCRE2: U+180E too */
    { "\\w", WORD_MEMBERS },           /* PCRE2: no marks */
    { "\\p{Han}", "\\p{sc:Han}" },     /* the script alone, not its extensions */
    { "[:punct:]", "\\p{P}\\p{S}" },   /* inside of a class only; PCRE2: symbols of ASCII alone */
};

/* The class that begins at *p: its members, in brackets where inside is false. Anything else: as it is. */
static void put_escape(struct buf *b, const char **p, const char *end, bool inside)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i].name);
        char   negated[16];
        snprintf(negated, sizeof negated, "%s", classes[i].name);
        negated[1] = (char)(negated[1] & ~0x20); /* \W \S \H \P */
        bool is_not = !inside && **p == '\\' && is(*p, end, negated);
        if (!is_not && !is(*p, end, classes[i].name)) continue;
        buf_printf(b, inside ? "%s%s%s" : "[%s%s%s", is_not ? "^" : "", classes[i].members, inside ? "" : "]");
        *p += n;
        return;
    }
    size_t n = *p + 1 < end ? 2 : 1;
    buf_put(b, *p, n);
    *p += n;
}

/* The members of a class up to its closing bracket or "&&". */
static const char *put_members(struct buf *b, const char **p, const char *end)
{
    const char *first = *p;
    while (*p < end) {
        if (**p == '\\' || is(*p, end, "[:punct:]")) {
            put_escape(b, p, end, true);
        } else if (is(*p, end, "[:")) {
            const char *close = memmem(*p, (size_t)(end - *p), ":]", 2);
            if (!close) return "a class without its end";
            buf_put(b, *p, (size_t)(close + 2 - *p));
            *p = close + 2;
        } else if (**p == '[') {
            return "a class inside a class";
        } else if (is(*p, end, "&&") || (**p == ']' && *p > first)) {
            return NULL;
        } else {
            buf_putc(b, *(*p)++);
        }
    }
    return "a class without its end";
}

/* [A&&[^B]] is (?:(?=[A])[^B]). */
static const char *put_class(struct buf *b, const char **p, const char *end, int depth)
{
    struct buf  members;
    const char *why;
    if (depth > 4) return "classes nested too deeply";
    bool negated = is(++*p, end, "^");
    if (negated) ++*p;
    buf_init(&members, PATTERN_MAX);
    if (!(why = put_members(&members, p, end)) && **p == ']') {
        buf_puts(b, negated ? "[^" : "[");
        buf_put(b, members.data, members.n);
        buf_putc(b, ']');
        ++*p;
    } else if (!why && negated) {
        why = "&& in a negated class";
    } else if (!why) {
        buf_puts(b, "(?:(?=[");
        buf_put(b, members.data, members.n);
        buf_puts(b, "])");
        *p += 2;
        bool bracket = is(*p, end, "[");
        buf_clear(&members);
        if (bracket) {
            why = put_class(&members, p, end, depth + 1);
        } else {
            buf_putc(&members, '[');
            why = put_members(&members, p, end);
            buf_putc(&members, ']');
        }
        buf_put(b, members.data, members.n);
        buf_putc(b, ')');
        if (!why && !is(*p, end, "]")) why = "more than one && in a class";
        if (!why) ++*p;
    }
    buf_free(&members);
    return why;
}

static const char *translate(struct buf *b, const char *p, const char *end)
{
    while (p < end) {
        const char *why = NULL;
        if (*p == '\\') {
            put_escape(b, &p, end, false);
        } else if (*p == '[') {
            why = put_class(b, &p, end, 0);
        } else {
            buf_putc(b, *p++);
        }
        if (why) return why;
    }
    return b->failed ? "too long" : NULL;
}

enum status tok_regex_new(struct tok_regex **re_out, const char *pattern, size_t n, const char *field, const struct tok_err *e)
{
    struct tok_regex *re = calloc(1, sizeof *re);
    struct buf        b;
    const char       *why = n > PATTERN_MAX ? "too long" : NULL;
    buf_init(&b, 4 * PATTERN_MAX);
    if (!re) why = "out of memory";
    if (!why) why = translate(&b, pattern, pattern + n);
    if (!why) {
        int        code;
        PCRE2_SIZE at;
        /* Ruby: ^ and $ are of lines always */
        uint32_t options = PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        re->code = pcre2_compile((PCRE2_SPTR)(b.data ? b.data : ""), b.n, options, &code, &at, NULL);
        if (!re->code) {
            unsigned char text[120];
            pcre2_get_error_message(code, text, sizeof text);
            tok_fail(e, "%s: pattern not supported, at byte %zu: %s", field, (size_t)at, (const char *)text);
            free(re);
            buf_free(&b);
            return ST_CONFIG;
        }
        pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does it */
        *re_out = re;
    } else {
        tok_fail(e, "%s: pattern not supported: %s", field, why);
        free(re);
    }
    buf_free(&b);
    return why ? ST_CONFIG : ST_OK;
}

void tok_regex_free(struct tok_regex *re)
{
    if (re) pcre2_code_free(re->code);
    free(re);
}

struct scratch {
    pcre2_match_data    *data;
    pcre2_match_context *context;
    pcre2_jit_stack     *stack;
};

static struct scratch *scratch_of(struct tok_work *w)
{
    struct scratch *x = w->match_data;
    if (x) return x;
    x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->data = pcre2_match_data_create(1, NULL);
    x->context = pcre2_match_context_create(NULL);
    x->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, NULL);
    w->match_data = x;
    if (!x->data || !x->context || !x->stack) return NULL;
    pcre2_set_heap_limit(x->context, HEAP_LIMIT_KIB);
    pcre2_jit_stack_assign(x->context, NULL, x->stack);
    return x;
}

enum status tok_regex_find(const struct tok_regex *re, struct tok_work *w, const char *s, size_t n, size_t from, size_t *begin, size_t *end)
{
    struct scratch *x = scratch_of(w);
    if (!x) return ST_TOO_LARGE;
    pcre2_set_match_limit(
        x->context, n - from < (UINT32_MAX - STEPS_MIN) / STEPS_PER_BYTE ? STEPS_MIN + STEPS_PER_BYTE * (uint32_t)(n - from) : UINT32_MAX);
    int rc = pcre2_match(re->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, x->data, x->context);
    *begin = *end = n + 1;
    if (rc == PCRE2_ERROR_NOMATCH) return ST_OK;
    if (rc < 0) return ST_TOO_LARGE;
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(x->data);
    *begin = v[0], *end = v[1] > v[0] ? v[1] : v[0]; /* \K in a look-ahead can turn them round */
    return ST_OK;
}

void tok_regex_done(struct tok_work *w)
{
    struct scratch *x = w->match_data;
    if (!x) return;
    pcre2_jit_stack_free(x->stack);
    pcre2_match_context_free(x->context);
    pcre2_match_data_free(x->data);
    free(x);
    w->match_data = NULL;
}
