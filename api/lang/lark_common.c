/* lark_common: expressions in a grammar of Lark's, and the terminals that it imports from the module common. */
#include "api/lang/lark_impl.h"
#include "api/schema/regex.h"
#include <string.h>

#define INT     "[0-9]+"
#define EXP     "[eE][+-]?[0-9]+"
#define DECIMAL "([0-9]+\\.[0-9]*|\\.[0-9]+)"
#define FLOAT   "([0-9]+" EXP "|" DECIMAL "(" EXP ")?)"

static const struct {
    const char *name, *regex;
} common[] = {
    { "DIGIT", "[0-9]" },
    { "HEXDIGIT", "[0-9a-fA-F]" },
    { "INT", INT },
    { "SIGNED_INT", "[+-]?" INT },
    { "DECIMAL", DECIMAL },
    { "FLOAT", FLOAT },
    { "SIGNED_FLOAT", "[+-]?" FLOAT },
    { "NUMBER", "(" FLOAT "|" INT ")" },
    { "SIGNED_NUMBER", "[+-]?(" FLOAT "|" INT ")" },
    { "ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\"" },
    { "LCASE_LETTER", "[a-z]" },
    { "UCASE_LETTER", "[A-Z]" },
    { "LETTER", "[A-Za-z]" },
    { "WORD", "[A-Za-z]+" },
    { "CNAME", "[A-Za-z_][A-Za-z0-9_]*" },
    { "WS_INLINE", "[ \\t]+" },
    { "WS", "[ \\t\\f\\r\\n]+" },
    { "CR", "\\r" },
    { "LF", "\\n" },
    { "NEWLINE", "(\\r?\\n)+" },
    { "SH_COMMENT", "#[^\\n]*" },
    { "CPP_COMMENT", "//[^\\n]*" },
    { "SQL_COMMENT", "--[^\\n]*" },
};

uint32_t lark_regex(struct lark *l, const char *text, size_t n, const char *flags, size_t at)
{
    struct regex_form form = { .search = false, .json = l->e.json };
    struct buf        b;
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    buf_init(&b, REGEX_BYTES_MAX + 64);
    for (; *flags; flags++)
        if (*flags == 'i' || *flags == 's') buf_printf(&b, "(?%c)", *flags);
    buf_put(&b, text, n);
    if (b.failed)
        ebnf_fail(&l->e, at, "an expression of more than %d bytes", REGEX_BYTES_MAX);
    else if (regex_rx(l->e.x, b.data ? b.data : "", b.n, form, &r, why))
        ebnf_fail(&l->e, at, "in the expression, %s", why);
    buf_free(&b);
    return r;
}

/* Defines `as` by the terminal of this name. */
static void import_one(struct lark *l, size_t at, size_t n, size_t as, size_t n_as)
{
    struct ebnf *e = &l->e;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) {
        if (strlen(common[i].name) != n || memcmp(common[i].name, e->text + at, n) != 0) continue;
        if (n == n_as && ebnf_defined(e, e->text + as, n_as)) return; /* imported before */
        uint32_t rx = lark_regex(l, common[i].regex, strlen(common[i].regex), "", at);
        ebnf_define(e, e->text + as, n_as, as, ebnf_rx(e, rx), true);
        return;
    }
    ebnf_fail(e, at, "'%.*s' is no terminal of the module common", (int)(n < 60 ? n : 60), e->text + at);
}

void lark_import(struct lark *l)
{
    struct ebnf *e = &l->e;
    reader_skip(e, true);
    size_t at = e->at, n, as, n_as;
    if (!reader_take(e, "common")) {
        ebnf_fail(e, at, "terminals of the module common can be imported, no others");
        return;
    }
    if (reader_take(e, ".")) {
        as = at = e->at;
        n_as = n = reader_name(e, at, false);
        e->at += n;
        reader_skip(e, true);
        if (reader_take(e, "->")) {
            reader_skip(e, true);
            as = e->at;
            n_as = reader_name(e, as, false);
            e->at += n_as;
        }
        if (n_as == 0) ebnf_fail(e, e->at, "a name is needed");
        import_one(l, at, n, as, n_as);
        return;
    }
    reader_skip(e, true);
    if (!reader_take(e, "(")) ebnf_fail(e, e->at, "'.NAME' or '(NAME, ..)' is needed behind 'common'");
    while (reader_more(e) && !reader_take(e, ")")) {
        reader_skip(e, true);
        at = e->at;
        n = reader_name(e, at, false);
        e->at += n;
        if (n == 0) ebnf_fail(e, at, "a name is needed");
        import_one(l, at, n, at, n);
        reader_skip(e, true);
        if (!reader_take(e, ",") && !reader_is(e, ")")) ebnf_fail(e, e->at, "',' or ')' is needed");
        reader_skip(e, true);
    }
}
