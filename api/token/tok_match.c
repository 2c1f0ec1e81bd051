#include "api/token/tok_match.h"
#include "api/token/tok_unicode.h"
#include <string.h>

/* Alternatives are tried in the pattern's order and the first that matches wins. A step is the class of the character
 * at i. */
static inline uint32_t class_at(const char *s, size_t i, size_t *next)
{
    *next = i;
    return tok_class[tok_next(s, next)];
}

static inline size_t run(const char *s, size_t n, size_t i, uint32_t mask)
{
    for (size_t next; i < n && tok_class_in(class_at(s, i, &next), mask); i = next) {}
    return i;
}

/* \s*[\r\n]+ | \s+(?!\S) | \s+   at the first of a run of white space: up to its last line end; else all but its last
 * character when something follows; else that one character. */
static size_t spaces(const char *s, size_t n, size_t at, bool lines)
{
    size_t line = 0, last = at, i = at;
    for (size_t next; i < n; i = next) {
        uint32_t c = class_at(s, i, &next);
        if (!tok_class_in(c, CATS_SPACE)) break;
        if (tok_class_in(c, CATS_LINE)) line = next;
        last = i;
    }
    if (lines && line) return line;
    return i < n && last > at ? last : i;
}

/* 's 't 're 've 'm 'll 'd; any: in either case, where U+017F is an s too. */
static size_t contraction(const char *s, size_t n, size_t at, bool any)
{
    if (s[at] != '\'' || at + 1 >= n) return at;
    char fold = any ? 0x20 : 0, a = (char)(s[at + 1] | fold), b = at + 2 < n ? (char)(s[at + 2] | fold) : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return any && at + 2 < n && !memcmp(s + at + 1, "\xc5\xbf", 2) ? at + 3 : at;
}

/* [^\r\n\p{L}\p{N}]?LETTERS+ : class c stands at `at`, next is behind it */
static inline size_t word(const char *s, size_t n, size_t at, uint32_t c, size_t next, uint32_t letters)
{
    if (tok_class_in(c, letters)) return run(s, n, next, letters);
    if (next >= n || tok_class_in(c, CATS_LINE | CATS_LETTER | CATS_NUMBER)) return at;
    size_t end = run(s, n, next, letters);
    return end > next ? end : at;
}

/*  ?[^\s\p{L}\p{N}]+ : not: white space and what words are made of */
static inline size_t symbols(const char *s, size_t n, size_t at, uint32_t not )
{
    size_t from = s[at] == ' ' ? at + 1 : at, end = run(s, n, from, ~not );
    return end > from ? end : at;
}

static size_t lines_after(const char *s, size_t n, size_t i, bool slash)
{
    while (i < n && (s[i] == '\r' || s[i] == '\n' || (slash && s[i] == '/'))) i++;
    return i;
}

static size_t digits(const char *s, size_t n, size_t i, int max)
{
    for (size_t next; max-- > 0 && i < n && tok_class_in(class_at(s, i, &next), CATS_NUMBER); i = next) {}
    return i;
}

#define NOT_SYMBOL (CATS_SPACE | CATS_LETTER | CATS_NUMBER)

size_t tok_match_gpt2(const char *s, size_t n, size_t at)
{
    size_t end = contraction(s, n, at, false), next;
    if (end > at) return end;
    size_t   from = s[at] == ' ' && at + 1 < n ? at + 1 : at;
    uint32_t c = class_at(s, from, &next);
    if (tok_class_in(c, CATS_LETTER)) return run(s, n, next, CATS_LETTER);
    if (tok_class_in(c, CATS_NUMBER)) return run(s, n, next, CATS_NUMBER);
    if (!tok_class_in(c, CATS_SPACE)) return run(s, n, next, ~NOT_SYMBOL);
    return spaces(s, n, at, false);
}

/* CL1, CL3 and QWEN35 and Seed differ in these three. */
static inline size_t cl(const char *s, size_t n, size_t at, int n_digit, uint32_t letters, bool lines)
{
    size_t next, end;
    if (s[at] == '\'' && (end = contraction(s, n, at, true)) > at) return end;
    uint32_t c = class_at(s, at, &next);
    if ((end = word(s, n, at, c, next, letters)) > at) return end;
    if (tok_class_in(c, CATS_NUMBER)) return digits(s, n, at, n_digit);
    if ((end = symbols(s, n, at, NOT_SYMBOL | letters)) > at) return lines ? lines_after(s, n, end, false) : end;
    return tok_class_in(c, CATS_SPACE) ? spaces(s, n, at, true) : at;
}

static size_t cl1(const char *s, size_t n, size_t at) { return cl(s, n, at, 1, CATS_LETTER, true); }
static size_t cl3(const char *s, size_t n, size_t at) { return cl(s, n, at, 3, CATS_LETTER, true); }
static size_t qwen35(const char *s, size_t n, size_t at) { return cl(s, n, at, 1, CATS_LETTER | CATS_MARK, true); }
static size_t seed(const char *s, size_t n, size_t at) { return cl(s, n, at, 1, CATS_LETTER, false); }

/* O200K words. UPPER* LOWER+ first, then UPPER+ LOWER*; letters without case and marks are in both classes. From `at`:
 * greedy UPPER*, then a LOWER if one follows; else back to the last that is in both, which then ends the word. */
#define BOTH  (CAT_BIT(CAT_LM) | CAT_BIT(CAT_LO) | CATS_MARK)
#define UPPER (BOTH | CAT_BIT(CAT_LU) | CAT_BIT(CAT_LT))
#define LOWER (BOTH | CAT_BIT(CAT_LL))

static size_t lower_word(const char *s, size_t n, size_t at)
{
    size_t i = at, next, both = at;
    for (uint32_t c; i < n && tok_class_in(c = class_at(s, i, &next), UPPER); i = next)
        if (tok_class_in(c, BOTH)) both = next;
    size_t end = run(s, n, i, LOWER);
    return end > i ? end : both;
}

static inline size_t o200k(const char *s, size_t n, size_t at, bool contractions, int n_digit)
{
    size_t   next, end = at;
    uint32_t c = class_at(s, at, &next);
    bool     prefix = next < n && !tok_class_in(c, CATS_LINE | CATS_LETTER | CATS_NUMBER),
         letter = tok_class_in(c, UPPER | LOWER);
    if (prefix && (end = lower_word(s, n, next)) == next) end = at;
    if (end == at && letter) end = lower_word(s, n, at);
    if (end == at && prefix && (end = run(s, n, next, UPPER)) == next) end = at;
    if (end == at && letter) end = run(s, n, at, UPPER);
    if (end > at) return contractions && end < n ? contraction(s, n, end, true) : end;
    if (tok_class_in(c, CATS_NUMBER)) return digits(s, n, at, n_digit);
    if ((end = symbols(s, n, at, NOT_SYMBOL)) > at) return lines_after(s, n, end, true);
    return tok_class_in(c, CATS_SPACE) ? spaces(s, n, at, true) : at;
}

static size_t gpt4o(const char *s, size_t n, size_t at) { return o200k(s, n, at, true, 3); }
static size_t tekken(const char *s, size_t n, size_t at) { return o200k(s, n, at, false, 1); }

/* DeepSeek V3: three Splits. */
static size_t number3(const char *s, size_t n, size_t at) { return digits(s, n, at, 3); }
static size_t number1(const char *s, size_t n, size_t at) { return digits(s, n, at, 1); }

static size_t han_kana(const char *s, size_t n, size_t at)
{
    for (size_t next = at; at < n; at = next) {
        uint32_t cp = tok_next(s, &next);
        if (!((cp >= 0x4e00 && cp <= 0x9fa5) || (cp >= 0x3040 && cp <= 0x30ff))) break;
    }
    return at;
}

static inline bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

static size_t dsv3(const char *s, size_t n, size_t at)
{
    const uint32_t SIGN = CATS_PUNCT | CATS_SYMBOL, LETTERS = CATS_LETTER | CATS_MARK;
    size_t         next, end;
    uint32_t       c = class_at(s, at, &next);
    bool           sign = tok_class_in(c, SIGN);
    if (sign && next == at + 1 && next < n && is_ascii_letter(s[next])) {
        while (next < n && is_ascii_letter(s[next])) next++;
        return next;
    }
    if (tok_class_in(c, LETTERS)) return run(s, n, next, LETTERS);
    if (!sign && !tok_class_in(c, CATS_LINE) && (end = run(s, n, next, LETTERS)) > next) return end;
    size_t from = s[at] == ' ' ? next : at;
    if ((end = run(s, n, from, SIGN)) > from) return lines_after(s, n, end, false);
    return tok_class_in(c, CATS_SPACE) ? spaces(s, n, at, true) : at;
}

#define TAIL        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPERS      "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWERS      "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
    const char  *pattern;
    tok_match_fn match;
} known[] = {
    { CONTRACTION "|" WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL, cl3 },
    { CONTRACTION "|" WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" TAIL, cl1 },
    { CONTRACTION "|" WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" TAIL, qwen35 },
    { WORD UPPERS "*" LOWERS "+" CONTRACTION "?|" WORD UPPERS "+" LOWERS "*" CONTRACTION
                  "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL,
      gpt4o },
    { WORD UPPERS "*" LOWERS "+|" WORD UPPERS "+" LOWERS "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" TAIL, tekken },
    { "\\p{N}{1,3}", number3 },
    { "\\p{N}", number1 },
    { "[一-龥぀-ゟ゠-ヿ]+", han_kana },
    { "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" TAIL,
      dsv3 },
    /* tiktoken's cl100k, and Bailing: the possessive marks and the single [\r\n] change nothing */
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      cl3 },
    { "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
      cl1 },
    { CONTRACTION "|" WORD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" TAIL, seed },
    { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", tok_match_gpt2 },
    { "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", tok_match_gpt2 },
};

tok_match_fn tok_match_find(const char *pattern, size_t n)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && !memcmp(known[i].pattern, pattern, n)) return known[i].match;
    return NULL;
}
