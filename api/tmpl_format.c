#include "api/tmpl_str.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH_MAX = 200 };

struct spec {
    char flags[8], conv;
    int  width, precision;
    bool has_precision;
};

static size_t parse_number(const char *s, size_t n, size_t i, int *out)
{
    *out = 0;
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        if (*out <= WIDTH_MAX) *out = *out * 10 + (s[i] - '0');
    return i;
}

static void put_padded(struct buf *b, const char *s, size_t n, int width, bool left)
{
    int gap = width > (int)(n < WIDTH_MAX ? n : WIDTH_MAX) ? width - (int)n : 0;
    for (int i = 0; !left && i < gap; i++) buf_putc(b, ' ');
    buf_put(b, s, n);
    for (int i = 0; left && i < gap; i++) buf_putc(b, ' ');
}

static bool put_one(struct tmpl_eval *e, const struct spec *p, const struct tv *v)
{
    char    fmt[24], text[WIDTH_MAX + 340];
    int64_t i;
    double  f;
    int     n = -1;
    bool    left = strchr(p->flags, '-') != NULL;
    if (p->conv == 's' || p->conv == 'r') {
        struct tv s;
        size_t    mark = tmpl_mark(e);
        if (!(p->conv == 's' ? tv_print(e, v) : tv_repr(e, v)) || !tmpl_take(e, mark, &s)) return false;
        put_padded(e->out, s.u.s, p->has_precision && (uint32_t)p->precision < s.n ? (size_t)p->precision : s.n, p->width, left);
        return true;
    }
    if (strchr("diuxXo", p->conv)) {
        if (v->kind == TV_FLOAT && strchr("diu", p->conv) && fabs(v->u.f) < 9e18)
            i = (int64_t)v->u.f;
        else if (!tv_integer(v, &i))
            return tmpl_fail(e, "%%%c format: a number is required, not %s", p->conv, tv_type_name(v));
        bool hex = strchr("xXo", p->conv) != NULL;
        if (hex && i < 0) return tmpl_fail(e, "%%%c format of a negative number", p->conv);
        snprintf(fmt, sizeof fmt, "%%%s*" PRId64, p->flags);
        if (hex) snprintf(fmt, sizeof fmt, "%%%s*l%c", p->flags, p->conv);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = snprintf(text, sizeof text, fmt, p->width, i);
    } else if (strchr("fFeEgG", p->conv)) {
        if (!tv_number(v, &f)) return tmpl_fail(e, "must be real number, not %s", tv_type_name(v));
        snprintf(fmt, sizeof fmt, "%%%s*.*%c", p->flags, p->conv);
        n = snprintf(text, sizeof text, fmt, p->width, p->has_precision ? p->precision : 6, f);
#pragma GCC diagnostic pop
    } else {
        return tmpl_fail(e, "unsupported format character '%c'", p->conv);
    }
    if (n < 0 || (size_t)n >= sizeof text) return tmpl_over(e, "too much output");
    buf_put(e->out, text, (size_t)n);
    return true;
}

bool tmpl_percent(struct tmpl_eval *e, const struct tv *fmt, const struct tv *args, uint32_t n_arg, struct tv *out)
{
    const char *s = fmt->u.s;
    size_t      n = fmt->n, mark = tmpl_mark(e), i = 0;
    uint32_t    used = 0;
    while (i < n) {
        const char *p = memchr(s + i, '%', n - i);
        size_t      at = p ? (size_t)(p - s) : n;
        buf_put(e->out, s + i, at - i);
        if (!p) break;
        i = at + 1;
        struct spec      sp = { .width = 0 };
        size_t           n_flag = 0;
        const struct tv *named = NULL;
        if (i < n && s[i] == '(') {
            const char *end = memchr(s + i, ')', n - i);
            if (!end || !n_arg || args[0].kind != TV_DICT) return tmpl_fail(e, "format requires a mapping");
            if (!(named = tv_dict_find(args[0].u.dict, s + i + 1, (size_t)(end - s) - i - 1))) return tmpl_fail(e, "format: no such key");
            i = (size_t)(end - s) + 1;
            used = n_arg;
        }
        for (; i < n && s[i] && strchr("-+ 0#", s[i]); i++)
            if (n_flag + 1 < sizeof sp.flags) sp.flags[n_flag++] = s[i];
        i = parse_number(s, n, i, &sp.width);
        if (i < n && s[i] == '.') sp.has_precision = true, i = parse_number(s, n, i + 1, &sp.precision);
        if (sp.width > WIDTH_MAX || sp.precision > WIDTH_MAX) return tmpl_over(e, "too much output");
        if (i >= n) return tmpl_fail(e, "incomplete format");
        sp.conv = s[i++];
        if (sp.conv == '%') {
            buf_putc(e->out, '%');
            continue;
        }
        if (!named && used >= n_arg) return tmpl_fail(e, "not enough arguments for format string");
        if (!sp.conv || !put_one(e, &sp, named ? named : &args[used++])) return tmpl_fail(e, "unsupported format character");
    }
    /* Python lets a single argument pass unused when it can be subscripted */
    bool box =
        n_arg == 1 && (args[0].kind == TV_DICT || args[0].kind == TV_UNDEF || (args[0].kind == TV_SEQ && args[0].u.seq->type <= SEQ_RANGE));
    if (used < n_arg && !box) return tmpl_fail(e, "not all arguments converted during string formatting");
    return tmpl_take(e, mark, out);
}

/* "{}", "{0}", "{name}" with "!r" or "!s"; of the format specs after ":" those that % knows too. */
static bool put_field(struct tmpl_eval *e, const struct tmpl_args *a, const char *s, size_t n, uint32_t *next)
{
    size_t           n_name = 0;
    const struct tv *v = NULL;
    while (n_name < n && s[n_name] != '!' && s[n_name] != ':') n_name++;
    int    index;
    size_t digits = parse_number(s, n_name, 0, &index);
    if (!n_name) index = (int)(*next)++;
    if (digits == n_name) {
        if ((uint32_t)index < a->n) v = &a->pos[index];
    } else {
        for (uint32_t k = 0; k < a->n_kw && !v; k++)
            if (a->kw[k].n == n_name && !memcmp(a->kw[k].name, s, n_name)) v = &a->kw_val[k];
    }
    if (!v) return tmpl_fail(e, "format(): no value for a field");
    size_t      i = n_name;
    struct spec p = { .conv = 's' };
    if (i + 1 < n && s[i] == '!') p.conv = s[i + 1], i += 2;
    if (p.conv != 's' && p.conv != 'r') return tmpl_fail(e, "format(): unknown conversion");
    if (i < n && s[i] == ':') {
        bool numeric = v->kind != TV_STR;
        i++;
        if (i < n && (s[i] == '<' || s[i] == '>')) {
            if ((s[i] == '<') != !numeric) p.flags[0] = s[i] == '<' ? '-' : 0;
            if (s[i] == '<') p.flags[0] = '-';
            i++;
        } else if (!numeric) {
            p.flags[0] = '-';
        }
        if (i < n && s[i] == '0') p.flags[0] = '0';
        i = parse_number(s, n, i, &p.width);
        if (i < n && s[i] == '.') p.has_precision = true, i = parse_number(s, n, i + 1, &p.precision);
        if (i < n && s[i] && strchr("sdxXofeEgG", s[i])) p.conv = s[i++];
        if (p.width > WIDTH_MAX || p.precision > WIDTH_MAX) return tmpl_over(e, "too much output");
    }
    if (i != n) return tmpl_fail(e, "format(): a field that is not understood");
    return put_one(e, &p, v);
}

bool s_format(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    const char *s = self->u.s;
    size_t      mark = tmpl_mark(e), n = self->n;
    uint32_t    next = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '{' && s[i] != '}') {
            buf_putc(e->out, s[i]);
        } else if (i + 1 < n && s[i + 1] == s[i]) {
            buf_putc(e->out, s[i++]);
        } else {
            const char *end = s[i] == '{' ? memchr(s + i, '}', n - i) : NULL;
            if (!end) return tmpl_fail(e, "single '%c' encountered in format string", s[i]);
            size_t len = (size_t)(end - s) - i - 1;
            if (!put_field(e, a, s + i + 1, len, &next)) return false;
            i += len + 1;
        }
    }
    return tmpl_bytes(e, n) && tmpl_take(e, mark, out);
}
