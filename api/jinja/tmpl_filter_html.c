#include "api/jinja/tmpl_entities.h"
#include "base/hex.h"
#include "api/jinja/tmpl_eval.h"
#include "api/jinja/tmpl_str.h"
#include <stdlib.h>
#include <string.h>

/* Filters of markup: escape, forceescape, striptags, urlencode, xmlattr. */

static bool escaped(struct tmpl_eval *e, const struct tv *s, struct tv *out)
{
    size_t mark = tmpl_mark(e);
    tmpl_put_escaped(e->out, s->u.s, s->n);
    if (!tmpl_take(e, mark, out)) return false;
    out->flag = TV_SAFE;
    return true;
}

static bool f_escape(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    (void)a;
    if (!tv_to_str(e, v, &s)) return false;
    if (v->kind == TV_STR && (s.flag & TV_SAFE)) {
        *out = s;
        return true;
    }
    return escaped(e, &s, out);
}

static bool f_forceescape(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    (void)a;
    return tv_to_str(e, v, &s) && escaped(e, &s, out);
}

/* ---------------------------------------------------------------- striptags */

/* Comments and tags are taken out, up to one that has no end. */
static bool without_tags(struct tmpl_eval *e, struct tv *s)
{
    size_t mark = tmpl_mark(e), at = 0;
    for (;;) {
        size_t begin = text_find(s->u.s, s->n, at, "<", 1), end;
        if (begin >= s->n) break;
        bool comment = s->n - begin >= 4 && !memcmp(s->u.s + begin, "<!--", 4);
        end = comment ? text_find(s->u.s, s->n, begin + 4, "-->", 3) : text_find(s->u.s, s->n, begin, ">", 1);
        if (end >= s->n) break;
        buf_put(e->out, s->u.s + at, begin - at);
        at = end + (comment ? 3 : 1);
    }
    buf_put(e->out, s->u.s + at, s->n - at);
    return tmpl_take(e, mark, s);
}

static int by_name(const char *s, size_t n, size_t i)
{
    const char *name = tmpl_entities[i].name;
    size_t      n_name = strlen(name);
    int         c = memcmp(s, name, n < n_name ? n : n_name);
    return c ? c : (n > n_name) - (n < n_name);
}

static const char *named(const char *s, size_t n)
{
    size_t lo = 0, hi = sizeof tmpl_entities / sizeof *tmpl_entities;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int    c = by_name(s, n, mid);
        if (!c) return tmpl_entities[mid].text;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

/* What HTML makes of numbers that no character has: those of Windows-1252, and U+FFFD. Python drops what is invalid. */
static void put_number(struct buf *b, uint32_t c)
{
    static const uint16_t windows[32] = { 0x20ac, 0x81,   0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                          0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8d,   0x017d, 0x8f,
                                          0x90,   0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                          0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0x9d,   0x017e, 0x0178 };
    char                  d[4];
    if (c >= 0x80 && c < 0xa0) c = windows[c - 0x80];
    bool low = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || (c >= 0x7f && c <= 0x9f);
    bool none = (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
    if (c == 0x81 || c == 0x8d || c == 0x8f || c == 0x90 || c == 0x9d) low = false; /* the table says themselves */
    if (!c || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        buf_puts(b, "\xef\xbf\xbd");
    else if (!low && !none)
        buf_put(b, d, text_put_cp(d, c));
}

/* "#65" or "#x41" and a ";" that may be missing, behind "&": its length, or 0. */
static size_t numbered(const char *s, size_t n, struct buf *b)
{
    size_t   i = 1, from;
    bool     hex = n > 1 && (s[1] | 0x20) == 'x';
    uint32_t c = 0;
    for (from = i += hex; i < n; i++) {
        int d = hex_value(s[i]);
        if (d < 0 || (d > 9 && !hex)) break;
        if (c < 0x1000000) c = c * (hex ? 16 : 10) + (uint32_t)d;
    }
    if (i == from) return 0;
    put_number(b, c);
    return i + (i < n && s[i] == ';');
}

/* A name of up to 32 characters: as a whole, else the longest beginning that needs no ";". Its length behind "&",
 * or 0. */
static size_t put_named(const char *s, size_t n, struct buf *b)
{
    size_t len = 0, most = n < 32 ? n : 32;
    while (len < most && !strchr("\t\n\f <&#;", s[len])) len++;
    if (!len) return 0;
    size_t      whole = len + (len < n && s[len] == ';');
    const char *text = named(s, whole);
    for (size_t k = whole; !text && k > 2;) {
        k--;
        text = named(s, k);
        if (text) whole = k;
    }
    if (!text) return 0;
    buf_puts(b, text);
    return whole;
}

static bool unescape(struct tmpl_eval *e, struct tv *s)
{
    size_t mark = tmpl_mark(e);
    for (size_t i = 0; i < s->n;) {
        const char *p = memchr(s->u.s + i, '&', s->n - i);
        size_t      at = p ? (size_t)(p - s->u.s) : s->n, left = s->n - at;
        buf_put(e->out, s->u.s + i, at - i);
        if (!p) break;
        size_t len = 0;
        if (left > 1) len = p[1] == '#' ? numbered(p + 1, left - 1, e->out) : put_named(p + 1, left - 1, e->out);
        if (!len) buf_putc(e->out, '&');
        i = at + 1 + len;
        if (!tmpl_steps(e, 1)) return false;
    }
    return tmpl_take(e, mark, s);
}

static bool f_striptags(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    struct tv s;
    (void)a;
    if (!tv_to_str(e, v, &s) || !without_tags(e, &s)) return false;
    size_t mark = tmpl_mark(e);
    for (size_t i = 0; (i = s.n - text_lstrip_len(s.u.s + i, s.n - i)) < s.n;) {
        if (e->out->n > mark) buf_putc(e->out, ' ');
        size_t from = i;
        while (i < s.n && !text_is_space(text_cp(s.u.s + i))) i += text_step(s.u.s + i);
        buf_put(e->out, s.u.s + from, i - from);
    }
    return tmpl_take(e, mark, &s) && unescape(e, &s) && (*out = s, true);
}

/* ---------------------------------------------------------------- urlencode, xmlattr */

static bool put_quoted(struct tmpl_eval *e, const struct tv *v, bool query)
{
    struct tv s;
    if (!tv_to_str(e, v, &s) || !tmpl_bytes(e, 4 * (size_t)s.n)) return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.u.s[i];
        bool plain = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9') || (c && strchr("_.-~", c)) ||
                     (c == '/' && !query);
        if (plain && c < 0x80)
            buf_putc(e->out, (char)c);
        else if (c == ' ' && query)
            buf_putc(e->out, '+');
        else
            buf_printf(e->out, "%%%02X", c);
    }
    return true;
}

static bool f_urlencode(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    size_t         mark = tmpl_mark(e);
    struct tv_seq *q, *pair;
    struct tv      items = *v;
    if (v->kind == TV_DICT && !tmpl_find_method(v, "items", 5)->fn(e, v, a, &items)) return false;
    if (items.kind != TV_SEQ) return put_quoted(e, v, false) && tmpl_take(e, mark, out);
    if (!tv_iter(e, &items, &q)) return false;
    for (uint32_t i = 0; i < q->n; i++) {
        if (!tv_iter(e, &q->v[i], &pair)) return false;
        if (pair->n != 2) return tmpl_fail(e, "urlencode takes pairs");
        if (i) buf_putc(e->out, '&');
        if (!put_quoted(e, &pair->v[0], true)) return false;
        buf_putc(e->out, '=');
        if (!put_quoted(e, &pair->v[1], true)) return false;
    }
    return tmpl_take(e, mark, out);
}

static bool put_attr(struct tmpl_eval *e, const struct tv *v)
{
    struct tv s;
    if (!tv_to_str(e, v, &s)) return false;
    if (v->kind == TV_STR && (v->flag & TV_SAFE))
        buf_put(e->out, s.u.s, s.n);
    else
        tmpl_put_escaped(e->out, s.u.s, s.n);
    return tmpl_bytes(e, s.n);
}

static bool f_xmlattr(struct tmpl_eval *e, const struct tv *v, const struct tmpl_args *a, struct tv *out)
{
    size_t mark = tmpl_mark(e);
    bool   space = a->pos[0].kind == TV_ABSENT || tv_truth(&a->pos[0]);
    if (v->kind != TV_DICT) return tmpl_fail(e, "xmlattr takes a mapping, not %s", tv_type_name(v));
    for (uint32_t i = 0; i < v->u.dict->n; i++) {
        const struct tv_pair *p = &v->u.dict->v[i];
        if (p->v.kind == TV_NONE || p->v.kind == TV_UNDEF) continue;
        if (p->k.kind != TV_STR) return tmpl_fail(e, "xmlattr: a name is a string, not %s", tv_type_name(&p->k));
        for (size_t k = 0; k < p->k.n; k++)
            if (strchr(" \t\n\r\f\v/>=", p->k.u.s[k])) return tmpl_fail(e, "Invalid character in attribute name");
        if (e->out->n > mark || space) buf_putc(e->out, ' ');
        if (!put_attr(e, &p->k)) return false;
        buf_puts(e->out, "=\"");
        if (!put_attr(e, &p->v)) return false;
        buf_putc(e->out, '"');
    }
    return tmpl_take(e, mark, out);
}

const struct tmpl_func tmpl_filters_html[] = {
    { "escape", f_escape, "", 0, 0 },
    { "e", f_escape, "", 0, 0 },
    { "forceescape", f_forceescape, "", 0, 0 },
    { "striptags", f_striptags, "", 0, 0 },
    { "urlencode", f_urlencode, "", 0, 0 },
    { "xmlattr", f_xmlattr, "autospace", 0, 0 },
    { NULL, NULL, NULL, 0, 0 },
};
