#include "api/token/tok_regex.h"
#include "api/token/tok_onig.h"
#include "api/token/tok_unicode.h"
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A match of a sane pattern takes a few steps per byte; a pattern that explodes ends its request instead of a thread.
 * The JIT's stack is address space until it is used. */
enum {
    PATTERN_MAX = 1 << 16,
    STEPS_MIN = 10000000,
    STEPS_PER_BYTE = 8,
    HEAP_LIMIT_KIB = 65536,
    JIT_STACK_MAX = 64 << 20
};
/* PCRE2 must know the end of a line, for ^ and $; one byte is nobody's atom, for classes without members. */
enum {
    ATOM_LINE = '\n',
    ATOM_NONE = 255,
    ATOMS_MAX = 255,
    WORDS = (ONIG_SETS_MAX + 1 + 63) / 64,
    BLOCKS = 0x110000 >> 8
};

struct tok_regex {
    pcre2_code *code;
    uint16_t    block[BLOCKS];
    unsigned char (*cell)[256]; /* atoms of 256 code points; equal ones are one */
};

/* ---- atoms: where some set begins or ends, the sets that hold what follows change */

struct edge {
    uint32_t at, set;
};
struct atoms {
    uint64_t      in[ATOMS_MAX][WORDS]; /* which sets hold the i-th atom */
    unsigned char code[ATOMS_MAX];
    uint32_t      n;
};

static int by_place(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* The edges of all sets and, as the last one, of the line end. A set begins and ends in turns. */
static struct edge *edges_of(const struct tok_onig *o, size_t *n_out)
{
    size_t n = 2, k = 0;
    for (uint32_t i = 0; i < o->n_set; i++) n += 2 * (size_t)o->set[i].n;
    struct edge *edge = malloc(n * sizeof *edge);
    if (!edge) return NULL;
    for (uint32_t i = 0; i < o->n_set; i++)
        for (uint32_t j = 0; j < o->set[i].n; j++) {
            edge[k++] = (struct edge){ o->set[i].range[j].from, i };
            edge[k++] = (struct edge){ o->set[i].range[j].to + 1, i };
        }
    edge[k++] = (struct edge){ '\n', o->n_set };
    edge[k++] = (struct edge){ '\n' + 1, o->n_set };
    qsort(edge, n, sizeof *edge, by_place);
    *n_out = n;
    return edge;
}

/* The atom that lies in these sets; ATOMS_MAX: there are too many. */
static uint32_t atom_of(struct atoms *a, const uint64_t in[WORDS], uint32_t line)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (!memcmp(a->in[i], in, sizeof a->in[i])) return i;
    if (a->n >= ATOMS_MAX - 1) return ATOMS_MAX;
    memcpy(a->in[a->n], in, sizeof a->in[a->n]);
    bool is_line = in[line / 64] >> (line % 64) & 1;
    a->code[a->n] =
        is_line ? ATOM_LINE : (unsigned char)(a->n + (a->n >= ATOM_LINE)); /* the line end's own number stays free */
    return a->n++;
}

/* of: [0x110000], gets the atom of every code point. */
static const char *spread(const struct tok_onig *o, struct atoms *a, unsigned char *of)
{
    size_t       n = 0;
    uint64_t     in[WORDS] = { 0 };
    struct edge *edge = edges_of(o, &n);
    uint32_t     last = 0;
    const char  *why = edge ? NULL : "out of memory";
    for (size_t i = 0; i <= n && !why; i++) {
        uint32_t at = i < n ? edge[i].at : 0x110000;
        if (at > last) {
            uint32_t atom = atom_of(a, in, o->n_set);
            if (atom == ATOMS_MAX)
                why = "more than 253 kinds of characters";
            else
                memset(of + last, a->code[atom], at - last);
            last = at;
        }
        if (i < n) in[edge[i].set / 64] ^= (uint64_t)1 << (edge[i].set % 64);
    }
    free(edge);
    return why;
}

static const char *pack(struct tok_regex *re, const unsigned char *of)
{
    uint32_t n = 0, cap = 0;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t i = 0;
        while (i < n && memcmp(re->cell[i], of + 256 * (size_t)b, 256)) i++;
        if (i == cap) {
            cap = cap ? 2 * cap : 64;
            void *cell = realloc(re->cell, cap * sizeof *re->cell);
            if (!cell) return "out of memory";
            re->cell = cell;
        }
        if (i == n) memcpy(re->cell[n++], of + 256 * (size_t)b, 256);
        re->block[b] = (uint16_t)i;
    }
    return NULL;
}

/* The structure with a list of atoms for each set. */
static void put_pattern(struct buf *b, const struct tok_onig *o, const struct atoms *a)
{
    if (!o->text.n) return;
    const char *p = o->text.data, *end = p + o->text.n;
    for (; p < end; p++) {
        if (*p != ONIG_SET) {
            buf_putc(b, *p);
            continue;
        }
        uint32_t set = (unsigned char)p[1] | (uint32_t)(unsigned char)p[2] << 8;
        bool     any = false;
        buf_putc(b, '[');
        for (uint32_t i = 0; i < a->n; i++) {
            if (!(a->in[i][set / 64] >> (set % 64) & 1)) continue;
            buf_printf(b, "\\x%02x", a->code[i]);
            any = true;
        }
        if (!any) buf_printf(b, "\\x%02x", ATOM_NONE);
        buf_putc(b, ']');
        p += 2;
    }
}

static bool compile(struct tok_regex *re, const struct buf *b, char *why, size_t why_bytes)
{
    int                    code;
    PCRE2_SIZE             at;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) {
        snprintf(why, why_bytes, "out of memory");
        return false;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    /* ^ and $ are of lines always */
    re->code = pcre2_compile((PCRE2_SPTR)(b->data ? b->data : ""), b->n, PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re->code) {
        pcre2_get_error_message(code, (unsigned char *)why, why_bytes);
        return false;
    }
    pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter does it */
    return true;
}

/* why: gets the reason of a failure. */
static bool build(struct tok_regex *re, const char *pattern, size_t n, char *why, size_t why_bytes)
{
    struct tok_onig o = { 0 };
    struct atoms   *a = calloc(1, sizeof *a);
    unsigned char  *of = malloc(0x110000);
    struct buf      b;
    const char     *bad = a && of ? NULL : "out of memory";
    bool            ok = false;
    buf_init(&b, 64 * PATTERN_MAX);
    if (!bad && !tok_onig_read(&o, pattern, n)) bad = o.why;
    if (!bad) bad = spread(&o, a, of);
    if (!bad) bad = pack(re, of);
    if (!bad) {
        put_pattern(&b, &o, a);
        if (b.failed) bad = "too long";
    }
    if (bad)
        snprintf(why, why_bytes, "%s", bad);
    else
        ok = compile(re, &b, why, why_bytes);
    buf_free(&b);
    tok_onig_free(&o);
    free(of);
    free(a);
    return ok;
}

enum status tok_regex_new(struct tok_regex **re_out, const char *pattern, size_t n, const char *field,
                          const struct tok_err *e)
{
    struct tok_regex *re = calloc(1, sizeof *re);
    char              why[160] = "out of memory";
    bool              fits = n <= PATTERN_MAX;
    if (!fits) snprintf(why, sizeof why, "too long");
    tok_unicode_init();
    if (re && fits && build(re, pattern, n, why, sizeof why)) {
        *re_out = re;
        return ST_OK;
    }
    tok_regex_free(re);
    return tok_fail(e, "%s: pattern not supported: %s", field, why);
}

void tok_regex_free(struct tok_regex *re)
{
    if (!re) return;
    pcre2_code_free(re->code);
    free(re->cell);
    free(re);
}

/* ---- matching */

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

enum status tok_regex_subject(const struct tok_regex *re, struct tok_work *w, struct tok_scratch *scratch,
                              const char *s, size_t n, struct tok_subject *x_out)
{
    unsigned char *atom = (unsigned char *)tok_scratch(w, scratch, n + 1);
    size_t         k = 0;
    if (!atom) return ST_TOO_LARGE;
    for (size_t i = 0; i < n;) {
        uint32_t cp = tok_next(s, &i);
        atom[k++] = re->cell[re->block[cp >> 8]][cp & 255];
    }
    *x_out = (struct tok_subject){ .s = s, .atom = atom, .n = n, .n_atom = k };
    return ST_OK;
}

size_t tok_subject_byte(struct tok_subject *x, size_t atom)
{
    if (x->n == x->n_atom) return atom; /* ASCII */
    if (atom < x->at_atom) x->at_atom = x->at_byte = 0;
    for (; x->at_atom < atom && x->at_byte < x->n; x->at_atom++) tok_next(x->s, &x->at_byte);
    return x->at_byte;
}

enum status tok_regex_find(const struct tok_regex *re, struct tok_work *w, const struct tok_subject *x, size_t from,
                           size_t *begin, size_t *end)
{
    struct scratch *m = scratch_of(w);
    size_t          left = x->n_atom - from, most = (UINT32_MAX - STEPS_MIN) / STEPS_PER_BYTE;
    if (!m) return ST_TOO_LARGE;
    pcre2_set_match_limit(m->context, left < most ? STEPS_MIN + STEPS_PER_BYTE * (uint32_t)left : UINT32_MAX);
    int rc = pcre2_match(re->code, x->atom, x->n_atom, from, 0, m->data, m->context);
    *begin = *end = x->n_atom + 1;
    if (rc == PCRE2_ERROR_NOMATCH) return ST_OK;
    if (rc < 0) return ST_TOO_LARGE;
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
    *begin = v[0];
    *end = v[1] > v[0] ? v[1] : v[0]; /* \K in a look-ahead can turn them round */
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
