#include "base/json.h"
#include "base/json_load.h"
#include "base/json_scan.h"
#include "base/num.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What an operator's file may hold: the index of a large mixture of experts has some hundred thousand members. */
static const struct json_bounds of_files = { .members_max = 4 << 20, .tree_bytes_max = (uint64_t)512 << 20 };

json_t *json_parse_bounded(const char *text, size_t n, const struct json_bounds *bounds, struct json_error *err)
{
    struct json_error unused;
    struct json_cost  cost;
    json_error_t      e;
    bool              big;
    if (!err) err = &unused;
    if (!json_scan(text, n, bounds, &cost, err)) return NULL;
    json_t *v = json_load(text, n, &e, &big);
    if (v) return v;
    err->offset = e.position < 0 ? 0 : (size_t)e.position;
    snprintf(err->text, sizeof err->text, "%s", e.text);
    return NULL;
}

json_t *json_parse(const char *text, size_t n, uint32_t depth_max, struct json_error *err)
{
    struct json_bounds bounds = of_files;
    bounds.depth_max = depth_max;
    return json_parse_bounded(text, n, &bounds, err);
}

enum status json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max, int64_t *out)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) return ST_NOT_FOUND;
    int64_t i;
    if (json_is_integer(v)) {
        i = json_integer_value(v);
    } else if (json_is_real(v)) {
        double d = json_real_value(v); /* both bounds are powers of two, so exact as doubles */
        if (!(d >= -0x1p63 && d < 0x1p63) || d != floor(d)) return ST_INVALID;
        i = (int64_t)d;
    } else {
        return ST_INVALID;
    }
    if (i < min || i > max) return ST_INVALID;
    *out = i;
    return ST_OK;
}

enum status json_get_num(const json_t *obj, const char *key, double min, double max, double *out)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) return ST_NOT_FOUND;
    if (!json_is_number(v)) return ST_INVALID;
    double d = json_number_value(v);
    if (!isfinite(d) || d < min || d > max) return ST_INVALID;
    *out = d;
    return ST_OK;
}

enum status json_get_bool(const json_t *obj, const char *key, bool *out)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) return ST_NOT_FOUND;
    if (!json_is_boolean(v)) return ST_INVALID;
    *out = json_is_true(v);
    return ST_OK;
}

enum status json_get_str(const json_t *obj, const char *key, const char **s_out, size_t *n_out)
{
    const json_t *v = json_object_get(obj, key);
    if (!v || json_is_null(v)) return ST_NOT_FOUND;
    if (!json_is_string(v)) return ST_INVALID;
    *s_out = json_string_value(v);
    *n_out = json_string_length(v);
    return ST_OK;
}

bool json_str_is(const json_t *v, const char *s)
{
    size_t n = strlen(s);
    return json_is_string(v) && json_string_length(v) == n && !memcmp(json_string_value(v), s, n);
}

/* May this byte stand for itself? All of 0x20..0x7e but quote and backslash; the rest takes the slow path. */
static bool json_plain(unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

/* The escape of two characters that JSON has for cp, or NULL. */
static const char *short_escape(uint32_t cp)
{
    switch (cp) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return NULL;
    }
}

void json_put_str_body(struct buf *b, const char *s, size_t n)
{
    size_t run = 0; /* s[run..i) is copied as it is */
    for (size_t i = 0; i < n;) {
        if (json_plain((unsigned char)s[i])) {
            i++;
            continue;
        }
        uint32_t cp = 0, len = utf8_decode(s + i, n - i, &cp);
        /* NEL, LS and PS are line ends to clients that split a stream with Unicode's idea of a line. */
        if (len > 1 && cp >= 0xa0 && cp != 0x2028 && cp != 0x2029) {
            i += len;
            continue;
        }
        buf_put(b, s + run, i - run);
        if (!len) {
            buf_put(b, "\xef\xbf\xbd", 3);
            len = utf8_bad(s + i, n - i);
        } else {
            const char *two = short_escape(cp);
            if (two)
                buf_put(b, two, 2);
            else
                buf_printf(b, "\\u%04x", cp);
        }
        i += len;
        run = i;
    }
    buf_put(b, s + run, n - run);
}

void json_put_str(struct buf *b, const char *s, size_t n)
{
    buf_putc(b, '"');
    json_put_str_body(b, s, n);
    buf_putc(b, '"');
}

void json_put_int(struct buf *b, int64_t v)
{
    char     text[20], *p = text + sizeof text;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do *--p = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0) *--p = '-';
    buf_put(b, p, (size_t)(text + sizeof text - p));
}

void json_put_num(struct buf *b, double v)
{
    if (!isfinite(v)) {
        buf_put(b, "null", 4);
        return;
    }
    if (v == 0) {
        buf_puts(b, signbit(v) ? "-0.0" : "0");
        return;
    }
    if (fabs(v) < 0x1p53 && v == floor(v)) {
        json_put_int(b, (int64_t)v);
        return;
    }
    char digits[NUM_DIGITS_MAX + 1];
    int  point, n = num_digits(v, digits, &point);
    if (v < 0) buf_putc(b, '-');
    if (point > 0 && point <= 17) {
        if (n <= point) {
            buf_put(b, digits, (size_t)n);
            for (int i = n; i < point; i++) buf_putc(b, '0');
        } else {
            buf_put(b, digits, (size_t)point);
            buf_putc(b, '.');
            buf_put(b, digits + point, (size_t)(n - point));
        }
    } else if (point > -6 && point <= 0) {
        buf_puts(b, "0.");
        for (int i = point; i < 0; i++) buf_putc(b, '0');
        buf_put(b, digits, (size_t)n);
    } else {
        buf_putc(b, digits[0]);
        if (n > 1) {
            buf_putc(b, '.');
            buf_put(b, digits + 1, (size_t)(n - 1));
        }
        buf_printf(b, "e%d", point - 1);
    }
}
