/* tok_unicode: properties of code points: general category, white space, word character, normal forms.
 * The parts of the `tokenizers` library use tables of different Unicode versions, so each table is a trait of its own
 * here; the data lies in tok_unicode_data.c. tok_unicode_init comes first.   Thread: any; then const and shared. */
#pragma once
#include "base/utf8.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Low 5 bits of a class: the category in the regex engine's table. Cc is split, so that \s and [\r\n] are masks of
 * categories too. */
enum tok_cat {
    CAT_CN,
    CAT_LU,
    CAT_LL,
    CAT_LT,
    CAT_LM,
    CAT_LO,
    CAT_MN,
    CAT_MC,
    CAT_ME,
    CAT_ND,
    CAT_NL,
    CAT_NO,
    CAT_PC,
    CAT_PD,
    CAT_PS,
    CAT_PE,
    CAT_PI,
    CAT_PF,
    CAT_PO,
    CAT_SM,
    CAT_SC,
    CAT_SK,
    CAT_SO,
    CAT_ZS,
    CAT_ZL,
    CAT_ZP,
    CAT_CC,
    CAT_CF,
    CAT_CS,
    CAT_CO,
    CAT_CC_SPACE, /* TAB VT FF NEL */
    CAT_CC_LINE,  /* LF CR */
};
#define CAT_BIT(c)  (1u << (c))
#define CATS_LETTER (CAT_BIT(CAT_LU) | CAT_BIT(CAT_LL) | CAT_BIT(CAT_LT) | CAT_BIT(CAT_LM) | CAT_BIT(CAT_LO))
#define CATS_MARK   (CAT_BIT(CAT_MN) | CAT_BIT(CAT_MC) | CAT_BIT(CAT_ME))
#define CATS_NUMBER (CAT_BIT(CAT_ND) | CAT_BIT(CAT_NL) | CAT_BIT(CAT_NO))
#define CATS_PUNCT                                                                                               \
    (CAT_BIT(CAT_PC) | CAT_BIT(CAT_PD) | CAT_BIT(CAT_PS) | CAT_BIT(CAT_PE) | CAT_BIT(CAT_PI) | CAT_BIT(CAT_PF) | \
     CAT_BIT(CAT_PO))
#define CATS_SYMBOL (CAT_BIT(CAT_SM) | CAT_BIT(CAT_SC) | CAT_BIT(CAT_SK) | CAT_BIT(CAT_SO))
#define CATS_LINE   CAT_BIT(CAT_CC_LINE)
#define CATS_SPACE  (CAT_BIT(CAT_ZS) | CAT_BIT(CAT_ZL) | CAT_BIT(CAT_ZP) | CAT_BIT(CAT_CC_SPACE) | CATS_LINE)
enum tok_class_bit {
    TOK_CLASS_CAT = 31,
    TOK_CLASS_JOINS = 32,   /* combining class not 0, or the second half of a canonical composition */
    TOK_CLASS_CHANGES = 64, /* its NFC, alone, differs from it */
};

/* Bits of a tok_trait, in the order of tools/make_unicode_tables.py. The bits below 8 hold the class. */
enum tok_trait_bit {
    /* sets of the regex engine of patterns (Oniguruma) */
    TRAIT_RE_WORD = 8,
    TRAIT_RE_SPACE,
    TRAIT_RE_ALPHABETIC,
    TRAIT_RE_UPPERCASE,
    TRAIT_RE_LOWERCASE,
    TRAIT_RE_PUNCT,
    TRAIT_RE_GRAPH,
    TRAIT_RE_PRINT,
    TRAIT_RE_BLANK,
    TRAIT_RE_EMOJI,
    TRAIT_RE_EMOJI_PRESENTATION,
    TRAIT_RE_EMOJI_MODIFIER,
    TRAIT_RE_EMOJI_MODIFIER_BASE,
    TRAIT_RE_PICTOGRAPHIC,
    TRAIT_RE_IDEOGRAPHIC,
    TRAIT_RE_UNIFIED_IDEOGRAPH,
    TRAIT_RE_ID_START,
    TRAIT_RE_ID_CONTINUE,
    TRAIT_RE_MATH,
    TRAIT_RE_DASH,
    /* the pre-tokenizers Whitespace (and words beside added tokens), WhitespaceSplit (and Strip), Digits,
     * Punctuation */
    TRAIT_WORD,
    TRAIT_SPACE,
    TRAIT_NUMERIC,
    TRAIT_PUNCT,
    /* the normalizers StripAccents, BertNormalizer's clean_text and handle_chinese_chars, Nmt, BertNormalizer's
     * strip_accents */
    TRAIT_ACCENT,
    TRAIT_CLEAN_GONE,
    TRAIT_CLEAN_SPACE,
    TRAIT_HAN,
    TRAIT_NMT_GONE,
    TRAIT_NMT_SPACE,
    TRAIT_BERT_ACCENT,
    /* grapheme clusters, as far as tok_charsmap.c needs them */
    TRAIT_EXTEND,
    TRAIT_PREPEND,
    TRAIT_CONTROL,
    TRAIT_HANGUL_L,
    TRAIT_HANGUL_V,
    TRAIT_HANGUL_T,
    TRAIT_PICTURE,
    TRAIT_CONSONANT,
    TRAIT_LINKER,
    TRAIT_LINKS,          /* stands between a consonant and its linker */
    TRAIT_PICTURE_EXTEND, /* stands between a pictograph and the joiner to the next */
    TRAIT_END,
};

extern unsigned char  tok_class[0x110000];
extern unsigned char  tok_row[0x110000]; /* index into tok_trait */
extern const uint64_t tok_trait[];

/* Fills tok_row, once for the process, before anybody asks for a property. Any thread; the others wait for the
 * first. */
void tok_unicode_init(void);

/* True if the code point (below 0x110000) has the trait. */
static inline bool tok_is(uint32_t cp, enum tok_trait_bit t) { return tok_trait[tok_row[cp]] >> t & 1; }
uint32_t           tok_script(uint32_t cp); /* as the pre-tokenizer UnicodeScripts sees it; 0: any */

/* Whether the category of class c is in mask (CAT_BIT). */
static inline bool tok_class_in(uint32_t c, uint32_t mask) { return (mask >> (c & TOK_CLASS_CAT) & 1u) != 0; }

/* Returns the code point at s[*i] and moves *i past it. The text is well-formed, and *i is not at its end. */
static inline uint32_t tok_next(const char *s, size_t *i)
{
    const unsigned char *p = (const unsigned char *)s + *i;
    uint32_t             c = p[0];
    if (c < 0x80) {
        *i += 1;
        return c;
    }
    if (c < 0xe0) {
        *i += 2;
        return (c & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (c < 0xf0) {
        *i += 3;
        return (c & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *i += 4;
    return (c & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}
/* Returns the code point that ends before s[*i], *i > 0, and moves *i to its first byte. */
static inline uint32_t tok_prev(const char *s, size_t *i)
{
    size_t at = *i - 1;
    while (at && ((unsigned char)s[at] & 0xc0) == 0x80) at--;
    *i = at;
    return tok_next(s, &at);
}
static inline size_t tok_utf8_put(char *to, uint32_t cp) /* returns bytes written, 1..4 */
{
    return utf8_encode(cp, to);
}
