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

/* Assigned by Unicode 15.1 and 16: the library's regex engine knows them, an older utf8proc does not. */
static const struct {
    uint32_t from, to;
    uint8_t  cat;
} later[] = {
    { 0x897, 0x897, CAT_MN },     { 0x1b4e, 0x1b4f, CAT_PO },   { 0x1b7f, 0x1b7f, CAT_PO },   { 0x1c89, 0x1c89, CAT_LU },
    { 0x1c8a, 0x1c8a, CAT_LL },   { 0x2427, 0x2429, CAT_SO },   { 0x2ffc, 0x2fff, CAT_SO },   { 0x31e4, 0x31e5, CAT_SO },
    { 0x31ef, 0x31ef, CAT_SO },   { 0xa7cb, 0xa7cc, CAT_LU },   { 0xa7cd, 0xa7cd, CAT_LL },   { 0xa7da, 0xa7da, CAT_LU },
    { 0xa7db, 0xa7db, CAT_LL },   { 0xa7dc, 0xa7dc, CAT_LU },   { 0x105c0, 0x105f3, CAT_LO }, { 0x10d40, 0x10d49, CAT_ND },
    { 0x10d4a, 0x10d4d, CAT_LO }, { 0x10d4e, 0x10d4e, CAT_LM }, { 0x10d4f, 0x10d4f, CAT_LO }, { 0x10d50, 0x10d65, CAT_LU },
    { 0x10d69, 0x10d6d, CAT_MN }, { 0x10d6e, 0x10d6e, CAT_PD }, { 0x10d6f, 0x10d6f, CAT_LM }, { 0x10d70, 0x10d85, CAT_LL },
    { 0x10d8e, 0x10d8f, CAT_SM }, { 0x10ec2, 0x10ec4, CAT_LO }, { 0x10efc, 0x10efc, CAT_MN }, { 0x11380, 0x11389, CAT_LO },
    { 0x1138b, 0x1138b, CAT_LO }, { 0x1138e, 0x1138e, CAT_LO }, { 0x11390, 0x113b5, CAT_LO }, { 0x113b7, 0x113b7, CAT_LO },
    { 0x113b8, 0x113ba, CAT_MC }, { 0x113bb, 0x113c0, CAT_MN }, { 0x113c2, 0x113c2, CAT_MC }, { 0x113c5, 0x113c5, CAT_MC },
    { 0x113c7, 0x113ca, CAT_MC }, { 0x113cc, 0x113cd, CAT_MC }, { 0x113ce, 0x113ce, CAT_MN }, { 0x113cf, 0x113cf, CAT_MC },
    { 0x113d0, 0x113d0, CAT_MN }, { 0x113d1, 0x113d1, CAT_LO }, { 0x113d2, 0x113d2, CAT_MN }, { 0x113d3, 0x113d3, CAT_LO },
    { 0x113d4, 0x113d5, CAT_PO }, { 0x113d7, 0x113d8, CAT_PO }, { 0x113e1, 0x113e2, CAT_MN }, { 0x116d0, 0x116e3, CAT_ND },
    { 0x11bc0, 0x11be0, CAT_LO }, { 0x11be1, 0x11be1, CAT_PO }, { 0x11bf0, 0x11bf9, CAT_ND }, { 0x11f5a, 0x11f5a, CAT_MN },
    { 0x13460, 0x143fa, CAT_LO }, { 0x16100, 0x1611d, CAT_LO }, { 0x1611e, 0x16129, CAT_MN }, { 0x1612a, 0x1612c, CAT_MC },
    { 0x1612d, 0x1612f, CAT_MN }, { 0x16130, 0x16139, CAT_ND }, { 0x16d40, 0x16d42, CAT_LM }, { 0x16d43, 0x16d6a, CAT_LO },
    { 0x16d6b, 0x16d6c, CAT_LM }, { 0x16d6d, 0x16d6f, CAT_PO }, { 0x16d70, 0x16d79, CAT_ND }, { 0x18cff, 0x18cff, CAT_LO },
    { 0x1cc00, 0x1ccef, CAT_SO }, { 0x1ccf0, 0x1ccf9, CAT_ND }, { 0x1cd00, 0x1ceb3, CAT_SO }, { 0x1e5d0, 0x1e5ed, CAT_LO },
    { 0x1e5ee, 0x1e5ef, CAT_MN }, { 0x1e5f0, 0x1e5f0, CAT_LO }, { 0x1e5f1, 0x1e5fa, CAT_ND }, { 0x1e5ff, 0x1e5ff, CAT_PO },
    { 0x1f8b2, 0x1f8bb, CAT_SO }, { 0x1f8c0, 0x1f8c1, CAT_SO }, { 0x1fa89, 0x1fa89, CAT_SO }, { 0x1fa8f, 0x1fa8f, CAT_SO },
    { 0x1fabe, 0x1fabe, CAT_SO }, { 0x1fac6, 0x1fac6, CAT_SO }, { 0x1fadc, 0x1fadc, CAT_SO }, { 0x1fadf, 0x1fadf, CAT_SO },
    { 0x1fae9, 0x1fae9, CAT_SO }, { 0x1fbcb, 0x1fbef, CAT_SO }, { 0x2ebf0, 0x2ee5d, CAT_LO },
};

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
    for (size_t r = 0, l = 0; r < sizeof assigned / sizeof *assigned; r++) {
        for (uint32_t cp = assigned[r].from; cp < assigned[r].to; cp++) {
            const utf8proc_property_t *p = utf8proc_get_property((utf8proc_int32_t)cp);
            uint32_t                   c = (uint32_t)p->category & TOK_CLASS_CAT;
            while (l < sizeof later / sizeof *later && later[l].to < cp) l++;
            if (c == CAT_CN && l < sizeof later / sizeof *later && cp >= later[l].from) c = later[l].cat;
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
