#include "api/token/tok_set.h"
#include "api/token/tok_decompose.h"
#include "api/token/tok_unicode.h"
#include "api/token/tok_unicode_data.h"
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void tok_set_free(struct tok_set *s)
{
    free(s->range);
    *s = (struct tok_set){ 0 };
}

void tok_set_add(struct tok_set *s, uint32_t from, uint32_t to)
{
    if (s->n == s->cap) {
        uint32_t          cap = s->cap ? 2 * s->cap : 16;
        struct tok_range *range = realloc(s->range, cap * sizeof *range);
        if (!range) {
            s->failed = true;
            return;
        }
        s->range = range;
        s->cap = cap;
    }
    s->range[s->n++] = (struct tok_range){ from, to };
}

void tok_set_add_set(struct tok_set *s, const struct tok_set *other)
{
    s->failed |= other->failed;
    for (uint32_t i = 0; i < other->n; i++) tok_set_add(s, other->range[i].from, other->range[i].to);
}

static int by_place(const void *a, const void *b)
{
    const struct tok_range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

void tok_set_sort(struct tok_set *s)
{
    uint32_t k = 0;
    if (s->n) qsort(s->range, s->n, sizeof *s->range, by_place);
    for (uint32_t i = 0; i < s->n; i++) {
        struct tok_range r = s->range[i];
        if (k && r.from <= s->range[k - 1].to + 1) {
            if (r.to > s->range[k - 1].to) s->range[k - 1].to = r.to;
        } else {
            s->range[k++] = r;
        }
    }
    s->n = k;
}

void tok_set_invert(struct tok_set *s)
{
    struct tok_set out = { .failed = s->failed };
    uint32_t       next = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->range[i].from > next) tok_set_add(&out, next, s->range[i].from - 1);
        next = s->range[i].to + 1;
    }
    if (next <= TOK_CODE_MAX) tok_set_add(&out, next, TOK_CODE_MAX);
    tok_set_free(s);
    *s = out;
}

void tok_set_intersect(struct tok_set *s, const struct tok_set *other)
{
    struct tok_set out = { .failed = s->failed || other->failed };
    for (uint32_t i = 0, j = 0; i < s->n && j < other->n;) {
        struct tok_range a = s->range[i], b = other->range[j];
        uint32_t         from = a.from > b.from ? a.from : b.from, to = a.to < b.to ? a.to : b.to;
        if (from <= to) tok_set_add(&out, from, to);
        if (a.to < b.to)
            i++;
        else
            j++;
    }
    tok_set_free(s);
    *s = out;
}

bool tok_set_has(const struct tok_set *s, uint32_t cp)
{
    uint32_t lo = 0, hi = s->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (s->range[mid].to < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < s->n && s->range[lo].from <= cp;
}

void tok_set_fold(struct tok_set *s)
{
    struct tok_set more = { 0 };
    tok_set_sort(s);
    for (size_t i = 0; i < n_tok_fold; i += 1 + (tok_fold[i] >> 24)) {
        if (!tok_set_has(s, tok_fold[i] & 0xffffff)) continue;
        for (uint32_t k = 1; k <= tok_fold[i] >> 24; k++) tok_set_add(&more, tok_fold[i + k], tok_fold[i + k]);
    }
    tok_set_add_set(s, &more);
    tok_set_free(&more);
    tok_set_sort(s);
}

/* ---- by name */

static void add_traits(struct tok_set *s, uint32_t categories, uint64_t traits)
{
    for (size_t i = 0; i < n_tok_trait_run; i++) {
        uint64_t t = tok_trait[tok_trait_run[i] & 0xff];
        if (!(t & traits) && !(categories >> (t & TOK_CLASS_CAT) & 1)) continue;
        tok_set_add(s, tok_trait_run[i] >> 8, i + 1 < n_tok_trait_run ? (tok_trait_run[i + 1] >> 8) - 1 : TOK_CODE_MAX);
    }
}

static void add_script(struct tok_set *s, uint32_t script)
{
    for (size_t i = 0; i < n_tok_script_run; i++)
        if ((tok_script_run[i] & 0xff) == script)
            tok_set_add(s, tok_script_run[i] >> 8,
                        i + 1 < n_tok_script_run ? (tok_script_run[i + 1] >> 8) - 1 : TOK_CODE_MAX);
}

#define CATS_CONTROL (CAT_BIT(CAT_CC) | CAT_BIT(CAT_CC_SPACE) | CAT_BIT(CAT_CC_LINE))
#define CATS_CASED   (CAT_BIT(CAT_LU) | CAT_BIT(CAT_LL) | CAT_BIT(CAT_LT))
#define CATS_OTHER   (CATS_CONTROL | CAT_BIT(CAT_CF) | CAT_BIT(CAT_CN) | CAT_BIT(CAT_CO) | CAT_BIT(CAT_CS))
#define CATS_LINES   (CAT_BIT(CAT_ZS) | CAT_BIT(CAT_ZL) | CAT_BIT(CAT_ZP))
#define TRAIT(t)     ((uint64_t)1 << TRAIT_RE_##t)

static const struct {
    const char *name, *other;
    uint32_t    categories;
    uint64_t    traits;
} property[] = {
    { "l", "letter", CATS_LETTER, 0 },
    { "lu", "uppercaseletter", CAT_BIT(CAT_LU), 0 },
    { "ll", "lowercaseletter", CAT_BIT(CAT_LL), 0 },
    { "lt", "titlecaseletter", CAT_BIT(CAT_LT), 0 },
    { "lc", "casedletter", CATS_CASED, 0 },
    { "lm", "modifierletter", CAT_BIT(CAT_LM), 0 },
    { "lo", "otherletter", CAT_BIT(CAT_LO), 0 },
    { "m", "mark", CATS_MARK, 0 },
    { "combiningmark", "combiningmark", CATS_MARK, 0 },
    { "mn", "nonspacingmark", CAT_BIT(CAT_MN), 0 },
    { "mc", "spacingmark", CAT_BIT(CAT_MC), 0 },
    { "me", "enclosingmark", CAT_BIT(CAT_ME), 0 },
    { "n", "number", CATS_NUMBER, 0 },
    { "nd", "decimalnumber", CAT_BIT(CAT_ND), 0 },
    { "nl", "letternumber", CAT_BIT(CAT_NL), 0 },
    { "no", "othernumber", CAT_BIT(CAT_NO), 0 },
    { "p", "punctuation", CATS_PUNCT, 0 },
    { "punct", "punct", CATS_PUNCT, 0 }, /* [[:punct:]] has symbols too */
    { "pc", "connectorpunctuation", CAT_BIT(CAT_PC), 0 },
    { "pd", "dashpunctuation", CAT_BIT(CAT_PD), 0 },
    { "ps", "openpunctuation", CAT_BIT(CAT_PS), 0 },
    { "pe", "closepunctuation", CAT_BIT(CAT_PE), 0 },
    { "pi", "initialpunctuation", CAT_BIT(CAT_PI), 0 },
    { "pf", "finalpunctuation", CAT_BIT(CAT_PF), 0 },
    { "po", "otherpunctuation", CAT_BIT(CAT_PO), 0 },
    { "s", "symbol", CATS_SYMBOL, 0 },
    { "sm", "mathsymbol", CAT_BIT(CAT_SM), 0 },
    { "sc", "currencysymbol", CAT_BIT(CAT_SC), 0 },
    { "sk", "modifiersymbol", CAT_BIT(CAT_SK), 0 },
    { "so", "othersymbol", CAT_BIT(CAT_SO), 0 },
    { "z", "separator", CATS_LINES, 0 },
    { "zs", "spaceseparator", CAT_BIT(CAT_ZS), 0 },
    { "zl", "lineseparator", CAT_BIT(CAT_ZL), 0 },
    { "zp", "paragraphseparator", CAT_BIT(CAT_ZP), 0 },
    { "c", "other", CATS_OTHER, 0 },
    { "cc", "control", CATS_CONTROL, 0 },
    { "cf", "format", CAT_BIT(CAT_CF), 0 },
    { "cn", "unassigned", CAT_BIT(CAT_CN), 0 },
    { "co", "privateuse", CAT_BIT(CAT_CO), 0 },
    { "any", "any", UINT32_MAX, 0 },
    { "assigned", "assigned", ~CAT_BIT(CAT_CN), 0 },
    { "alphabetic", "alpha", 0, TRAIT(ALPHABETIC) },
    { "alnum", "alnum", CAT_BIT(CAT_ND), TRAIT(ALPHABETIC) },
    { "uppercase", "upper", 0, TRAIT(UPPERCASE) },
    { "lowercase", "lower", 0, TRAIT(LOWERCASE) },
    { "whitespace", "space", 0, TRAIT(SPACE) },
    { "wspace", "wspace", 0, TRAIT(SPACE) },
    { "word", "word", 0, TRAIT(WORD) },
    { "digit", "digit", CAT_BIT(CAT_ND), 0 },
    { "cntrl", "cntrl", CATS_CONTROL, 0 },
    { "posixpunct", "posixpunct", 0, TRAIT(PUNCT) },
    { "graph", "graph", 0, TRAIT(GRAPH) },
    { "print", "print", 0, TRAIT(PRINT) },
    { "blank", "blank", 0, TRAIT(BLANK) },
    { "emoji", "emoji", 0, TRAIT(EMOJI) },
    { "emojipresentation", "epres", 0, TRAIT(EMOJI_PRESENTATION) },
    { "emojimodifier", "emod", 0, TRAIT(EMOJI_MODIFIER) },
    { "emojimodifierbase", "ebase", 0, TRAIT(EMOJI_MODIFIER_BASE) },
    { "extendedpictographic", "extpict", 0, TRAIT(PICTOGRAPHIC) },
    { "ideographic", "ideo", 0, TRAIT(IDEOGRAPHIC) },
    { "unifiedideograph", "uideo", 0, TRAIT(UNIFIED_IDEOGRAPH) },
    { "idstart", "ids", 0, TRAIT(ID_START) },
    { "idcontinue", "idc", 0, TRAIT(ID_CONTINUE) },
    { "math", "math", 0, TRAIT(MATH) },
    { "dash", "dash", 0, TRAIT(DASH) },
};

bool tok_set_add_property(struct tok_set *s, const char *name, size_t n)
{
    char   plain[48];
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (c == ' ' || c == '-' || c == '_') continue;
        if (k + 1 >= sizeof plain) return false;
        plain[k++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    plain[k] = 0;
    for (size_t i = 0; i < sizeof property / sizeof *property; i++) {
        if (strcmp(plain, property[i].name) && strcmp(plain, property[i].other)) continue;
        add_traits(s, property[i].categories, property[i].traits);
        return true;
    }
    for (uint32_t i = 1; i < n_tok_script_name; i++) {
        if (strcmp(plain, tok_script_name[i])) continue;
        add_script(s, i);
        return true;
    }
    if (strcmp(plain, "ascii") && strcmp(plain, "xdigit")) return false;
    return tok_set_add_posix(s, plain, k);
}

bool tok_set_add_posix(struct tok_set *s, const char *name, size_t n)
{
    static const char *const names[] = { "alnum", "alpha", "blank", "cntrl", "digit", "graph",
                                         "lower", "print", "space", "upper", "word" };
    if (n == 5 && !memcmp(name, "ascii", 5)) {
        tok_set_add(s, 0, 0x7f);
        return true;
    }
    if (n == 6 && !memcmp(name, "xdigit", 6)) {
        tok_set_add_escape(s, 'h');
        return true;
    }
    if (n == 5 && !memcmp(name, "punct", 5)) return tok_set_add_property(s, "posixpunct", 10);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == n && !memcmp(name, names[i], n)) return tok_set_add_property(s, name, n);
    return false;
}

void tok_set_add_escape(struct tok_set *s, char letter)
{
    switch (letter) {
    case 'w': add_traits(s, 0, TRAIT(WORD)); break;
    case 's': add_traits(s, 0, TRAIT(SPACE)); break;
    case 'd': add_traits(s, CAT_BIT(CAT_ND), 0); break;
    default:
        tok_set_add(s, '0', '9');
        tok_set_add(s, 'A', 'F');
        tok_set_add(s, 'a', 'f');
        break;
    }
}

bool tok_set_is_word(const char *name, size_t n) { return n == 4 && !strncasecmp(name, "word", 4); }

void tok_set_add_class_word(struct tok_set *s)
{
    static const unsigned char number[] = { 0xb2, 0xb3, 0xb9, 0xbc, 0xbd, 0xbe };
    struct tok_set             word = { 0 }, gone = { 0 };
    add_traits(&word, 0, TRAIT(WORD));
    for (size_t i = 0; i < sizeof number; i++) tok_set_add(&gone, number[i], number[i]);
    tok_set_sort(&word);
    tok_set_sort(&gone);
    tok_set_invert(&gone);
    tok_set_intersect(&word, &gone);
    tok_set_add_set(s, &word);
    tok_set_free(&word);
    tok_set_free(&gone);
}
