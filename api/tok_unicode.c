#include "api/tok_unicode.h"
#include <assert.h>
#include <pthread.h>
#include <string.h>
#include <utf8proc.h>

static_assert(CAT_CO == (int)UTF8PROC_CATEGORY_CO && CAT_CN == (int)UTF8PROC_CATEGORY_CN && CAT_ZS == (int)UTF8PROC_CATEGORY_ZS,
              "categories are numbered as utf8proc does");

unsigned char tok_class[0x110000];

/* Where code points are assigned one by one; the planes between are empty, the last two are private. */
static const struct {
    uint32_t from, to;
} assigned[] = { { 0, 0x34000 }, { 0xe0000, 0xe1000 } };

/* Blocks whose characters neither decompose nor combine (Hangul syllables decompose, but compose to themselves). */
static bool is_plain_block(uint32_t cp)
{
    return (cp >= 0x3400 && cp < 0xa000) || (cp >= 0xac00 && cp < 0xd7a4) || (cp >= 0xd800 && cp < 0xf900) ||
           (cp >= 0x20000 && cp < 0x2f800) || cp >= 0x30000;
}

static bool is_word(uint32_t cp, uint32_t cat)
{
    if (tok_class_in(cat, CATS_LETTER | CATS_MARK | CAT_BIT(CAT_ND) | CAT_BIT(CAT_NL) | CAT_BIT(CAT_PC))) return true;
    return cp == 0x200c || cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) || (cp >= 0x1f130 && cp <= 0x1f149) ||
           (cp >= 0x1f150 && cp <= 0x1f169) || (cp >= 0x1f170 && cp <= 0x1f189); /* Other_Alphabetic that is no mark */
}

/* Canonical decomposition of cp: what follows its first character can join a character before it. */
static void mark_decomposition(uint32_t cp)
{
    utf8proc_int32_t d[18];
    int              bound = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)cp, d, 18, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &bound);
    if (n < 1 || n > 18 || (n == 1 && d[0] == (utf8proc_int32_t)cp)) return;
    for (utf8proc_ssize_t i = 1; i < n; i++) tok_class[d[i]] |= TOK_CLASS_JOINS;
    n = utf8proc_normalize_utf32(d, n, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    if (n != 1 || d[0] != (utf8proc_int32_t)cp) tok_class[cp] |= TOK_CLASS_CHANGES;
}

static void build(void)
{
    memset(tok_class, CAT_CN, sizeof tok_class);
    memset(tok_class + 0xf0000, CAT_CO, 0xfffe);
    memset(tok_class + 0x100000, CAT_CO, 0xfffe);
    for (size_t r = 0; r < sizeof assigned / sizeof *assigned; r++) {
        for (uint32_t cp = assigned[r].from; cp < assigned[r].to; cp++) {
            const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
            uint32_t                   c = (uint32_t)p->category & TOK_CLASS_CAT;
            if (is_word(cp, c)) c |= TOK_CLASS_WORD;
            if (p->combining_class) c |= TOK_CLASS_JOINS;
            tok_class[cp] |= (unsigned char)c;
        }
        for (uint32_t cp = assigned[r].from; cp < assigned[r].to; cp++)
            if (!is_plain_block(cp) && (tok_class[cp] & TOK_CLASS_CAT) != CAT_CN) mark_decomposition(cp);
    }
    for (uint32_t cp = 0x1161; cp <= 0x1175; cp++) tok_class[cp] |= TOK_CLASS_JOINS; /* Hangul vowels  */
    for (uint32_t cp = 0x11a8; cp <= 0x11c2; cp++) tok_class[cp] |= TOK_CLASS_JOINS; /* and final ones */
    static const unsigned char spaces[] = { '\t', 0x0b, 0x0c, 0x85 };
    for (size_t i = 0; i < sizeof spaces; i++) tok_class[spaces[i]] = CAT_CC_SPACE;
    tok_class['\n'] = tok_class['\r'] = CAT_CC_LINE;
}

void tok_unicode_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
}

bool tok_utf8_valid(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= 8 && (memcpy(&eight, s + i, 8), !(eight & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        uint32_t cp, len = utf8_decode(s + i, n - i, &cp);
        if (!len) return false;
        i += len;
    }
    return true;
}
