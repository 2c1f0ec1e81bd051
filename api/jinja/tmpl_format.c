#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_format.h"
#include "api/jinja/tmpl_str.h"
#include <math.h>
#include <string.h>

/* The two ways in: "..." % values, and "...".format(values). */

/* repr(v), or with ascii what ascii() makes of it. */
static bool repr_of(struct tmpl_eval *e, const struct tv *v, bool ascii, struct tv *out)
{
    size_t mark = tmpl_mark(e);
    if (!tv_repr(e, v) || !tmpl_take(e, mark, out) || !ascii) return !e->st;
    mark = tmpl_mark(e);
    for (size_t i = 0; i < out->n; i += text_step(out->u.s + i)) {
        uint32_t c = text_cp(out->u.s + i);
        if (c < 0x80)
            buf_putc(e->out, (char)c);
        else
            text_put_escape(e->out, c);
    }
    return tmpl_take(e, mark, out);
}

/* ---------------------------------------------------------------- % */

struct percent {
    const char      *s;
    size_t           n, i;
    const struct tv *args;
    uint32_t         n_arg, used;
};

/* A number of the spec, or the next argument where it is "*". */
static bool percent_count(struct tmpl_eval *e, struct percent *p, int32_t *out)
{
    int64_t v;
    if (p->i < p->n && p->s[p->i] == '*') {
        p->i++;
        if (p->used >= p->n_arg) return tmpl_fail(e, "not enough arguments for format string");
        if (!tv_integer(&p->args[p->used++], &v)) return tmpl_fail(e, "* wants int");
        if (v > FORMAT_WIDTH_MAX || v < -FORMAT_WIDTH_MAX) return tmpl_over(e, "too much output");
        *out = (int32_t)v;
        return true;
    }
    *out = 0;
    for (; p->i < p->n && p->s[p->i] >= '0' && p->s[p->i] <= '9'; p->i++)
        if (*out <= FORMAT_WIDTH_MAX) *out = *out * 10 + (p->s[p->i] - '0');
    return *out <= FORMAT_WIDTH_MAX || tmpl_over(e, "too much output");
}

static bool percent_spec(struct tmpl_eval *e, struct percent *p, struct format_spec *f)
{
    bool left = false;
    *f = (struct format_spec){ .precision = -1 };
    for (; p->i < p->n && p->s[p->i] && strchr("-+ 0#", p->s[p->i]); p->i++) {
        switch (p->s[p->i]) {
        case '-': left = true; break;
        case '+': f->sign = '+'; break;
        case ' ':
            if (!f->sign) f->sign = ' ';
            break;
        case '0': f->zero = true; break;
        default: f->alt = true; break;
        }
    }
    if (!percent_count(e, p, &f->width)) return false;
    if (f->width < 0) {
        f->width = -f->width;
        left = true;
    }
    if (p->i < p->n && p->s[p->i] == '.') {
        p->i++;
        if (!percent_count(e, p, &f->precision)) return false;
        if (f->precision < 0) f->precision = 0;
        if (f->precision > FORMAT_PRECISION_MAX) return tmpl_over(e, "too much output");
    }
    while (p->i < p->n && p->s[p->i] && strchr("hlL", p->s[p->i])) p->i++; /* C's lengths mean nothing to Python */
    if (p->i >= p->n) return tmpl_fail(e, "incomplete format");
    f->type = p->s[p->i++];
    if (left) {
        f->align = '<';
        f->zero = false;
    }
    return true;
}

static bool percent_whole(struct tmpl_eval *e, struct format_spec *f, const struct tv *v)
{
    struct tv i = *v;
    uint32_t  digits = f->precision > 0 ? (uint32_t)f->precision : 0;
    if (strchr("diu", f->type)) {
        if (v->kind == TV_FLOAT && !isfinite(v->u.f)) return tmpl_fail(e, "cannot convert float to integer");
        if (v->kind == TV_FLOAT && !big_from_double(e, v->u.f, &i)) return false;
        f->type = 'd';
    }
    if (!tv_whole(&i)) return tmpl_fail(e, "%%%c format: a number is required, not %s", f->type, tv_type_name(v));
    return format_whole(e, f, &i, digits);
}

static bool percent_value(struct tmpl_eval *e, struct format_spec *f, const struct tv *v)
{
    struct tv s;
    double    x;
    int64_t   i;
    char      text[4];
    if (strchr("sra", f->type)) {
        if (!(f->type == 's' ? tv_to_str(e, v, &s) : repr_of(e, v, f->type == 'a', &s))) return false;
        f->zero = false;
        if (!f->align) f->align = '>';
        return format_text(e, f, s.u.s, s.n);
    }
    if (f->type == 'c') {
        f->zero = false;
        f->precision = -1;
        if (!f->align) f->align = '>';
        if (v->kind == TV_STR && v->n && v->n == text_step(v->u.s)) return format_text(e, f, v->u.s, v->n);
        if (!tv_integer(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
            return tmpl_fail(e, "%%c requires int or char");
        return format_text(e, f, text, text_put_cp(text, (uint32_t)i));
    }
    if (strchr("diuxXo", f->type)) return percent_whole(e, f, v);
    if (!strchr("fFeEgG", f->type)) return tmpl_fail(e, "unsupported format character '%c'", f->type);
    if (!tv_number(v, &x)) return tmpl_fail(e, "must be real number, not %s", tv_type_name(v));
    if (v->kind == TV_BIG && isinf(x)) return tmpl_fail(e, "int too large to convert to float");
    return format_double(e, f, x);
}

/* %(name): that member of the one argument, a dict. */
static bool percent_named(struct tmpl_eval *e, struct percent *p, const struct tv **out)
{
    const char *from = p->s + p->i + 1, *end = memchr(from, ')', p->n - p->i - 1);
    if (!end || !p->n_arg || p->args[0].kind != TV_DICT) return tmpl_fail(e, "format requires a mapping");
    if (!(*out = tv_dict_find(p->args[0].u.dict, from, (size_t)(end - from))))
        return tmpl_fail(e, "format: no such key");
    p->i = (size_t)(end - p->s) + 1;
    p->used = p->n_arg;
    return true;
}

bool tmpl_percent(struct tmpl_eval *e, const struct tv *fmt, const struct tv *args, uint32_t n_arg, struct tv *out)
{
    struct percent p = { .s = fmt->u.s, .n = fmt->n, .args = args, .n_arg = n_arg };
    size_t         mark = tmpl_mark(e);
    while (p.i < p.n) {
        const char *next = memchr(p.s + p.i, '%', p.n - p.i);
        size_t      at = next ? (size_t)(next - p.s) : p.n;
        buf_put(e->out, p.s + p.i, at - p.i);
        if (!next) break;
        p.i = at + 1;
        struct format_spec f;
        const struct tv   *named = NULL;
        if (p.i < p.n && p.s[p.i] == '(' && !percent_named(e, &p, &named)) return false;
        if (!percent_spec(e, &p, &f)) return false;
        if (f.type == '%') {
            buf_putc(e->out, '%');
            continue;
        }
        if (!named && p.used >= n_arg) return tmpl_fail(e, "not enough arguments for format string");
        if (!f.type || (unsigned char)f.type >= 0x80) return tmpl_fail(e, "unsupported format character");
        if (!percent_value(e, &f, named ? named : &args[p.used++])) return false;
    }
    /* Python lets a single argument pass unused when it can be subscripted. */
    bool box = n_arg == 1 && (args[0].kind == TV_DICT || args[0].kind == TV_UNDEF ||
                              (args[0].kind == TV_SEQ && args[0].u.seq->type <= SEQ_RANGE));
    if (p.used < n_arg && !box) return tmpl_fail(e, "not all arguments converted during string formatting");
    return tmpl_take(e, mark, out);
}

/* ---------------------------------------------------------------- str.format */

struct fields {
    const struct tmpl_args *a;
    const struct tv        *map; /* format_map: the names; else NULL */
    uint32_t                next;
    bool                    counted, numbered; /* "{}" and "{0}" exclude each other */
};
enum { FIELDS_NEST_MAX = 2 };

static bool put_fields(struct tmpl_eval *e, struct fields *p, const char *s, size_t n, uint32_t nested);

/* Digits alone: *out is the number. */
static bool index_of(const char *s, size_t n, uint32_t *out)
{
    uint32_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || v > 1000000) return false;
        v = v * 10 + (uint32_t)(s[i] - '0');
    }
    *out = v;
    return n > 0;
}

static bool by_name(struct tmpl_eval *e, const struct fields *p, const char *s, size_t n, struct tv *out)
{
    const struct tv *v = p->map && p->map->kind == TV_DICT ? tv_dict_find(p->map->u.dict, s, n) : NULL;
    for (uint32_t k = 0; !p->map && k < p->a->n_kw && !v; k++)
        if (p->a->kw[k].n == n && !memcmp(p->a->kw[k].name, s, n)) v = &p->a->kw_val[k];
    if (!v) return tmpl_fail(e, "format(): no argument '%.*s'", n < 40 ? (int)n : 40, s);
    *out = *v;
    return true;
}

/* "name.attr[key]": the value it leads to. */
static bool field_value(struct tmpl_eval *e, struct fields *p, const char *s, size_t n, struct tv *out)
{
    size_t   i = 0;
    uint32_t index;
    while (i < n && s[i] != '.' && s[i] != '[') i++;
    bool number = index_of(s, i, &index);
    if (!i || number) {
        if (p->map) return tmpl_fail(e, "Format string contains positional fields");
        if (i ? p->counted : p->numbered)
            return tmpl_fail(e, "cannot switch between automatic and manual field numbering");
        if (!i) index = p->next++;
        *(i ? &p->numbered : &p->counted) = true;
        if (index >= p->a->n) return tmpl_fail(e, "Replacement index %u out of range for positional args tuple", index);
        *out = p->a->pos[index];
    } else if (!by_name(e, p, s, i, out)) {
        return false;
    }
    while (i < n) {
        struct tv v = *out, key;
        if (s[i] == '.') {
            size_t from = ++i;
            while (i < n && s[i] != '.' && s[i] != '[') i++;
            if (i == from) return tmpl_fail(e, "Empty attribute in format string");
            if (!tmpl_get_attr(e, &v, s + from, i - from, out)) return false;
            continue;
        }
        const char *end = s[i] == '[' ? memchr(s + i, ']', n - i) : NULL;
        if (!end || end == s + i + 1) return tmpl_fail(e, "format(): a field that is not understood");
        size_t len = (size_t)(end - s) - i - 1;
        key = index_of(s + i + 1, len, &index) ? tv_int(index) : tv_str(s + i + 1, len);
        if (!tmpl_get_item(e, &v, &key, out)) return false;
        i += len + 2;
    }
    return true;
}

/* What stands between { and }. */
static bool put_field(struct tmpl_eval *e, struct fields *p, const char *s, size_t n, uint32_t nested)
{
    struct tv          v, spec = TV_LIT("");
    struct format_spec f;
    size_t             i = 0;
    while (i < n && s[i] != '!' && s[i] != ':') {
        const char *end = s[i] == '[' ? memchr(s + i, ']', n - i) : NULL;
        i = end ? (size_t)(end - s) + 1 : i + 1;
    }
    if (!field_value(e, p, s, i, &v)) return false;
    if (i < n && s[i] == '!') {
        char how = i + 1 < n ? s[i + 1] : 0;
        i += 2;
        if (!how || !strchr("rsa", how) || (i < n && s[i] != ':')) return tmpl_fail(e, "format(): unknown conversion");
        if (!(how == 's' ? tv_to_str(e, &v, &v) : repr_of(e, &v, how == 'a', &v))) return false;
    }
    if (i < n && s[i] == ':') {
        size_t mark = tmpl_mark(e);
        if (!put_fields(e, p, s + i + 1, n - i - 1, nested + 1) || !tmpl_take(e, mark, &spec)) return false;
    }
    return format_parse(e, spec.u.s, spec.n, &f) && format_value(e, &f, &v);
}

/* The } that ends the field whose { is at i; n: there is none. */
static size_t field_end(const char *s, size_t n, size_t i)
{
    uint32_t depth = 0;
    for (; i < n; i++) {
        if (s[i] == '{') depth++;
        if (s[i] == '}' && !--depth) return i;
    }
    return n;
}

static bool put_fields(struct tmpl_eval *e, struct fields *p, const char *s, size_t n, uint32_t nested)
{
    if (nested > FIELDS_NEST_MAX) return tmpl_fail(e, "Max string recursion exceeded");
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '{' && s[i] != '}') {
            buf_putc(e->out, s[i]);
            continue;
        }
        if (i + 1 < n && s[i + 1] == s[i] && !nested) {
            buf_putc(e->out, s[i++]);
            continue;
        }
        size_t end = s[i] == '{' ? field_end(s, n, i) : n;
        if (end == n) return tmpl_fail(e, "Single '%c' encountered in format string", s[i]);
        if (!tmpl_steps(e, 1) || !put_field(e, p, s + i + 1, end - i - 1, nested)) return false;
        i = end;
    }
    return true;
}

bool tmpl_str_format(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct fields p = { .a = a };
    size_t        mark = tmpl_mark(e);
    return tmpl_bytes(e, self->n) && put_fields(e, &p, self->u.s, self->n, 0) && tmpl_take(e, mark, out);
}

bool tmpl_str_format_map(struct tmpl_eval *e, const struct tv *self, const struct tmpl_args *a, struct tv *out)
{
    struct fields p = { .a = a, .map = &a->pos[0] };
    size_t        mark = tmpl_mark(e);
    if (a->pos[0].kind != TV_DICT)
        return tmpl_fail(e, "format_map() takes a mapping, not %s", tv_type_name(&a->pos[0]));
    return tmpl_bytes(e, self->n) && put_fields(e, &p, self->u.s, self->n, 0) && tmpl_take(e, mark, out);
}
