#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_format.h"
#include "api/jinja/tmpl_str.h"
#include "api/jinja/tmpl_text.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Python's "Format Specification Mini-Language": [[fill]align][sign][z][#][0][width][grouping][.precision][type] */

static bool is_align(char c) { return c && strchr("<>^=", c); }

static size_t parse_count(const char *s, size_t n, size_t i, int32_t *out)
{
    *out = 0;
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++)
        if (*out <= FORMAT_WIDTH_MAX) *out = *out * 10 + (s[i] - '0');
    return i;
}

bool format_parse(struct tmpl_eval *e, const char *s, size_t n, struct format_spec *out)
{
    struct format_spec f = { .precision = -1 };
    size_t             i = 0, first = n ? text_step(s) : 0;
    if (n > first && is_align(s[first])) {
        f.fill = tv_str(s, first);
        f.align = s[first];
        i = first + 1;
    } else if (n && is_align(s[0])) {
        f.align = s[0];
        i = 1;
    }
    if (i < n && (s[i] == '+' || s[i] == '-' || s[i] == ' ')) f.sign = s[i++];
    if (f.sign == '-') f.sign = 0;
    if (i < n && s[i] == 'z') f.no_minus_zero = i++ < n;
    if (i < n && s[i] == '#') f.alt = i++ < n;
    if (i < n && s[i] == '0' && f.fill.kind == TV_ABSENT) f.zero = i++ < n;
    i = parse_count(s, n, i, &f.width);
    if (i < n && (s[i] == ',' || s[i] == '_')) f.group = s[i++];
    if (i < n && (s[i] == ',' || s[i] == '_')) return tmpl_fail(e, "format: cannot specify both ',' and '_'");
    if (i < n && s[i] == '.') {
        size_t from = i + 1;
        i = parse_count(s, n, from, &f.precision);
        if (i == from) return tmpl_fail(e, "format: the precision is missing");
    }
    if (i < n) f.type = s[i++];
    if (i != n) return tmpl_fail(e, "format: a spec that is not understood");
    if (f.width > FORMAT_WIDTH_MAX || f.precision > FORMAT_PRECISION_MAX) return tmpl_over(e, "too much output");
    *out = f;
    return true;
}

/* ---------------------------------------------------------------- padding */

static void put_fill(struct buf *b, const struct tv *fill, int64_t times)
{
    for (; times > 0 && !b->failed; times--) buf_put(b, fill->u.s, fill->n);
}

/* head: sign and prefix, which '=' keeps in front of the padding. width counts characters. */
static bool put_padded(struct tmpl_eval *e, const struct format_spec *f, char align, const struct tv *fill,
                       const char *head, const char *s, size_t n)
{
    int64_t gap = (int64_t)f->width - (int64_t)strlen(head) - (int64_t)text_count(s, n);
    int64_t left = 0, inner = align == '=' ? gap : 0;
    if (gap > 0 && align == '>') left = gap;
    if (gap > 0 && align == '^') left = gap / 2;
    put_fill(e->out, fill, left);
    buf_puts(e->out, head);
    put_fill(e->out, fill, inner);
    buf_put(e->out, s, n);
    put_fill(e->out, fill, gap - left - (inner > 0 ? inner : 0));
    if (e->out->failed) return tmpl_over(e, "too much output");
    return tmpl_bytes(e, n) && tmpl_steps(e, (uint64_t)f->width / 64);
}

static struct tv fill_of(const struct format_spec *f)
{
    if (f->fill.kind != TV_ABSENT) return f->fill;
    return f->zero ? TV_LIT("0") : TV_LIT(" ");
}

bool format_text(struct tmpl_eval *e, const struct format_spec *f, const char *s, size_t n)
{
    struct tv fill = fill_of(f);
    if (f->precision >= 0) n = text_offset(s, n, (size_t)f->precision);
    return put_padded(e, f, f->align ? f->align : '<', &fill, "", s, n);
}

/* A number: digits, then tail (fraction and exponent). Grouped zeros fill the width where '=' pads with 0. */
static bool put_number(struct tmpl_eval *e, const struct format_spec *f, const char *head, const char *digits,
                       size_t n_digit, const char *tail, size_t n_tail)
{
    struct tv fill = fill_of(f);
    char      align = f->zero ? '=' : '>';
    if (f->align) align = f->align;
    size_t    mark = tmpl_mark(e), every = f->group && f->type && strchr("xXob", f->type) ? 4 : 3, want = n_digit;
    struct tv text;
    if (f->group && align == '=' && tv_str_is(&fill, "0")) {
        int64_t room = (int64_t)f->width - (int64_t)strlen(head) - (int64_t)n_tail;
        while ((int64_t)(want + (want - 1) / every) < room) want++;
    }
    for (size_t i = 0; i < want; i++) {
        if (f->group && i && (want - i) % every == 0) buf_putc(e->out, f->group);
        buf_putc(e->out, i < want - n_digit ? '0' : digits[i - (want - n_digit)]);
    }
    buf_put(e->out, tail, n_tail);
    return tmpl_take(e, mark, &text) && put_padded(e, f, align, &fill, head, text.u.s, text.n);
}

/* ---------------------------------------------------------------- numbers */

static uint32_t base_of(char type)
{
    switch (type) {
    case 'x':
    case 'X': return 16;
    case 'o': return 8;
    case 'b': return 2;
    default: return 10;
    }
}

bool format_whole(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v, uint32_t min_digits)
{
    char      head[8] = "", type = f->type ? f->type : 'd';
    uint32_t  base = base_of(type);
    size_t    mark = tmpl_mark(e);
    struct tv digits, zero = tv_int(0);
    int       c = 0;
    if (!tv_compare(e, v, &zero, &c)) return false;
    for (uint32_t i = 0; i < min_digits && i < FORMAT_PRECISION_MAX; i++) buf_putc(e->out, '0');
    size_t padded = tmpl_mark(e);
    if (!big_put_digits(e, v, base, e->out)) return false;
    size_t n = e->out->n - padded, surplus = n < min_digits ? n : min_digits;
    if (!tmpl_take(e, mark, &digits)) return false;
    if (type == 'X' && !tmpl_case(e, &digits, TEXT_UPPER, &digits)) return false;
    size_t k = 0;
    if (c < 0)
        head[k++] = '-';
    else if (f->sign)
        head[k++] = f->sign;
    if (f->alt && base != 10) {
        head[k++] = '0';
        head[k++] = type;
    }
    return put_number(e, f, head, digits.u.s + surplus, digits.n - surplus, "", 0);
}

/* A float with a precision and no type: as 'g', but with an exponent one digit earlier, and with a digit behind the
 * point. */
static int put_short(char *text, size_t bytes, double x, int precision, bool alt)
{
    if (!precision) precision = 1;
    int   n = snprintf(text, bytes, "%.*e", precision - 1, x);
    char *mark = strchr(text, 'e');
    if (mark && strtol(mark + 1, NULL, 10) + 1 == precision) {
        char   exponent[8];
        size_t digits = (size_t)(mark - text);
        snprintf(exponent, sizeof exponent, "%s", mark);
        while (!alt && memchr(text, '.', digits) && (text[digits - 1] == '0' || text[digits - 1] == '.')) {
            bool point = text[--digits] == '.';
            if (point) break;
        }
        if (alt && !memchr(text, '.', digits)) text[digits++] = '.';
        memcpy(text + digits, exponent, strlen(exponent) + 1);
        return (int)(digits + strlen(exponent));
    }
    n = alt ? snprintf(text, bytes, "%#.*g", precision, x) : snprintf(text, bytes, "%.*g", precision, x);
    if (n > 0 && strspn(text, "0123456789") == (size_t)n && (size_t)n + 3 <= bytes) {
        text[n++] = '.';
        text[n++] = '0';
        text[n] = 0;
    }
    return n;
}

bool format_double(struct tmpl_eval *e, const struct format_spec *f, double x)
{
    char   text[FORMAT_PRECISION_MAX + 400], pattern[8], head[4] = "", type = f->type == 'n' ? 'g' : f->type;
    int    precision = f->precision >= 0 ? f->precision : 6, n;
    bool   percent = type == '%', minus = signbit(x) && !isnan(x);
    double size = fabs(x) * (percent ? 100 : 1);
    if (percent) type = 'f';
    if (!type && f->precision < 0) {
        struct buf b;
        buf_init(&b, sizeof text);
        tv_print_float(&b, size);
        n = (int)b.n;
        memcpy(text, b.data, b.n);
        text[n] = 0;
        buf_free(&b);
    } else if (!type) {
        n = put_short(text, sizeof text, size, precision, f->alt);
    } else {
        snprintf(pattern, sizeof pattern, "%%%s.*%c", f->alt ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        n = snprintf(text, sizeof text, pattern, precision, size);
#pragma GCC diagnostic pop
    }
    if (n < 0 || (size_t)n + 2 > sizeof text) return tmpl_over(e, "too much output");
    if (percent) {
        text[n++] = '%';
        text[n] = 0;
    }
    if (f->no_minus_zero && strspn(text, "0.%") == (size_t)n) minus = false;
    if (minus)
        head[0] = '-';
    else if (f->sign)
        head[0] = f->sign;
    size_t digits = strspn(text, "0123456789");
    if (!digits)
        return put_number(
            e, &(struct format_spec){ .fill = f->fill, .align = f->align, .zero = f->zero, .width = f->width }, head,
            text, (size_t)n, "", 0);
    return put_number(e, f, head, text, digits, text + digits, (size_t)n - digits);
}

/* ---------------------------------------------------------------- a value by its spec */

static bool wrong_type(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v)
{
    return tmpl_fail(e, "Unknown format code '%c' for object of type '%s'", f->type, tv_type_name(v));
}

static bool format_number(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v)
{
    double  x = 0;
    int64_t i;
    bool    whole = tv_whole(v);
    if (f->type && !strchr(whole ? "bcdoxXneEfFgG%" : "eEfFgGn%", f->type)) return wrong_type(e, f, v);
    if (f->group && f->type && strchr(f->group == ',' ? "bcoxXn" : "cn", f->type))
        return tmpl_fail(e, "Cannot specify '%c' with '%c'.", f->group, f->type);
    bool as_float = !whole || (f->type && strchr("eEfFgG%", f->type));
    if (as_float) {
        tv_number(v, &x);
        if (whole && isinf(x)) return tmpl_fail(e, "int too large to convert to float");
        return format_double(e, f, x);
    }
    if (f->precision >= 0) return tmpl_fail(e, "Precision not allowed in integer format specifier");
    if (f->no_minus_zero)
        return tmpl_fail(e, "Negative zero coercion (z) not allowed in format specifier with integer format code");
    if (f->type != 'c') return format_whole(e, f, v, 0);
    char text[4];
    if (!tv_integer(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
        return tmpl_fail(e, "%%c arg not in range(0x110000)");
    struct format_spec as_text = *f;
    if (!as_text.align) as_text.align = '>';
    return format_text(e, &as_text, text, text_put_cp(text, (uint32_t)i));
}

bool format_value(struct tmpl_eval *e, const struct format_spec *f, const struct tv *v)
{
    bool plain = !f->align && !f->sign && !f->alt && !f->zero && !f->group && !f->type && !f->width &&
                 f->precision < 0 && !f->no_minus_zero;
    if (plain) return tv_print(e, v);
    if (v->kind == TV_FLOAT || tv_whole(v)) return format_number(e, f, v);
    if (v->kind != TV_STR) return tmpl_fail(e, "unsupported format string passed to %s.__format__", tv_type_name(v));
    if (f->type && f->type != 's') return wrong_type(e, f, v);
    if (f->sign || f->alt || f->group || f->align == '=' || f->no_minus_zero)
        return tmpl_fail(e, "format: a spec for numbers, given to a string");
    return format_text(e, f, v->u.s, v->n);
}
