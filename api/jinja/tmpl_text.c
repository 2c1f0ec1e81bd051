#include "api/jinja/tmpl_text.h"
#include "base/utf8.h"
#include <string.h>
#include <utf8proc.h>

bool text_is_space(uint32_t c)
{
    if (c <= 0x20) return c == 0x20 || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

uint32_t text_cp(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xe0) return (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3fu);
    if (p[0] < 0xf0) return (uint32_t)(p[0] & 0x0f) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3fu);
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3f) << 12 | (uint32_t)(p[2] & 0x3f) << 6 |
           (p[3] & 0x3fu);
}

size_t text_put_cp(char *d, uint32_t c) { return utf8_encode(c, d); }

void text_put_escape(struct buf *b, uint32_t c)
{
    if (c < 0x100)
        buf_printf(b, "\\x%02x", c);
    else
        buf_printf(b, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

size_t text_lstrip_len(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && text_is_space(text_cp(s + i))) i += text_step(s + i);
    return n - i;
}

static size_t text_back(const char *s, size_t n)
{
    do n--;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80);
    return n;
}

size_t text_rstrip_len(const char *s, size_t n)
{
    while (n) {
        size_t i = text_back(s, n);
        if (!text_is_space(text_cp(s + i))) break;
        n = i;
    }
    return n;
}

size_t text_count(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) k += ((unsigned char)s[i] & 0xc0) != 0x80;
    return k;
}

size_t text_offset(const char *s, size_t n, size_t i)
{
    size_t at = 0;
    while (i-- && at < n) at += text_step(s + at);
    return at < n ? at : n;
}

size_t text_find(const char *s, size_t n, size_t from, const char *what, size_t n_what)
{
    if (from > n) return n;
    if (!n_what) return from;
    const char *p = memmem(s + from, n - from, what, n_what); /* two-way: linear */
    return p ? (size_t)(p - s) : n;
}

size_t text_rfind(const char *s, size_t n, const char *what, size_t n_what)
{
    size_t last = n;
    if (!n_what) return n;
    for (size_t at = 0; (at = text_find(s, n, at, what, n_what)) < n; at++) last = at;
    return last;
}

bool text_is_alpha(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool text_is_decimal(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_ND; }

bool text_is_alnum(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return text_is_alpha(cp) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool text_is_upper(uint32_t cp) { return utf8proc_isupper((utf8proc_int32_t)cp); }
bool text_is_lower(uint32_t cp) { return utf8proc_islower((utf8proc_int32_t)cp); }

static bool text_is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

bool text_is_printable(uint32_t cp)
{
    if (cp == ' ') return true;
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

/* One character to one or, for the sharp s, two: the other special casings of Unicode do not occur in prompts'
 * markup. */
static void text_put_mapped(struct buf *b, uint32_t cp, bool up, bool title)
{
    char d[4];
    if (cp == 0xdf && up) {
        buf_puts(b, title ? "Ss" : "SS");
        return;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (!up)
        c = utf8proc_tolower(c);
    else
        c = title ? utf8proc_totitle(c) : utf8proc_toupper(c);
    buf_put(b, d, text_put_cp(d, (uint32_t)c));
}

void text_put_case(struct buf *b, const char *s, size_t n, enum text_case how)
{
    bool in_word = false;
    for (size_t i = 0; i < n; i += text_step(s + i)) {
        uint32_t cp = text_cp(s + i);
        bool     first = how == TEXT_CAPITALIZE ? i == 0 : !in_word;
        bool     up = how == TEXT_UPPER || (how != TEXT_LOWER && first);
        if (cp < 0x80) {
            bool letter = (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
            if (letter) cp = up ? cp & ~0x20u : cp | 0x20u;
            buf_putc(b, (char)cp);
            in_word = letter;
        } else {
            text_put_mapped(b, cp, up, how == TEXT_CAPITALIZE || how == TEXT_TITLE);
            in_word = text_is_cased(cp);
        }
    }
}
