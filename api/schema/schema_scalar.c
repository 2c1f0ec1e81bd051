/* schema_scalar: strings and numbers of a schema. */
#include "api/schema/chars.h"
#include "api/schema/regex.h"
#include "api/schema/schema_impl.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- strings */

#define HOUR "([01][0-9]|2[0-3])"
#define TIME HOUR ":[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]" HOUR ":[0-5][0-9])"
#define DATE                                                                                                                 \
    "((([0-9]{4})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8])))|" \
    "((([0-9]{2}(0[48]|[2468][048]|[13579][26]))|(([02468][048]|[13579][26])00))-02-29))"
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

/* Formats that are enforced (RFC 3339, 4122, 2673, 1123, 5321's dot-string); others are annotations. */
static const struct {
    const char *name, *regex;
} formats[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "T" TIME },
    { "uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}" },
    { "ipv4", OCTET "(\\." OCTET "){3}" },
    { "hostname", LABEL "(\\." LABEL "){0,3}" },
    { "email", "[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" LABEL "(\\." LABEL "){1,3}" },
    { "duration", "P([0-9]{1,9}W|(([0-9]{1,9}Y)([0-9]{1,9}M)?([0-9]{1,9}D)?|([0-9]{1,9}M)([0-9]{1,9}D)?|[0-9]{1,9}D)"
                  "(T(([0-9]{1,9}H)([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))?|"
                  "T(([0-9]{1,9}H)([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S))" },
};

const char *schema_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name)) return formats[i].regex;
    return NULL;
}

static uint32_t of_regex(struct schema *s, const char *key, const char *text, size_t n, bool search)
{
    char              why[REGEX_ERR];
    uint32_t          r = RX_NONE;
    struct regex_form form = { .search = search, .json = true };
    if (regex_rx(s->x, text, n, form, &r, why)) schema_fail(s, key, "%s", why);
    return r;
}

uint32_t schema_string(struct schema *s, const json_t *node)
{
    uint32_t      min = 0, max = RX_MANY;
    const json_t *pattern = json_object_get(node, "pattern"), *format = json_object_get(node, "format");
    schema_count(s, node, "minLength", &min);
    schema_count(s, node, "maxLength", &max);
    bool plain = !pattern && !format && min == 0 && max == RX_MANY;
    if (plain && s->string) return s->string;
    if (max < min) return schema_fail(s, "maxLength", "it is less than minLength");
    uint32_t inner = rx_repeat(s->x, chars_any(s->x, true), min, max);
    if (pattern && !json_is_string(pattern)) return schema_fail(s, "pattern", "a string is needed");
    if (pattern)
        inner =
            rx_and2(s->x, inner, of_regex(s, "pattern", json_string_value(pattern), json_string_length(pattern), true));
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (json_str_is(format, formats[i].name))
            inner = rx_and2(s->x, inner, of_regex(s, "format", formats[i].regex, strlen(formats[i].regex), false));
    uint32_t symbol = gr_terminal(s->r, schema_string_rx(s, inner));
    if (plain) s->string = symbol;
    return symbol;
}

/* ---------------------------------------------------------------- whole numbers within bounds */

static uint32_t digit(struct schema *s, unsigned from, unsigned to)
{
    struct rx_class c = { { 0 } };
    if (from > to) return RX_NONE;
    rx_class_add(&c, '0' + from, '0' + to);
    return rx_of_class(s->x, &c);
}

/* Texts of exactly n digits from low to high. */
static uint32_t digits_between(struct schema *s, const char *low, const char *high, size_t n)
{
    char nines[24], zeros[24];
    memset(nines, '9', n);
    memset(zeros, '0', n);
    if (!memcmp(low, zeros, n) && !memcmp(high, nines, n))
        return rx_repeat(s->x, digit(s, 0, 9), (uint32_t)n, (uint32_t)n);
    unsigned a = (unsigned)(*low - '0'), b = (unsigned)(*high - '0');
    if (a == b) return rx_cat(s->x, digit(s, a, a), digits_between(s, low + 1, high + 1, n - 1));
    uint32_t rest = rx_repeat(s->x, digit(s, 0, 9), (uint32_t)n - 1, (uint32_t)n - 1);
    uint32_t part[3] = { rx_cat(s->x, digit(s, a, a), digits_between(s, low + 1, nines, n - 1)),
                         rx_cat(s->x, digit(s, b, b), digits_between(s, zeros, high + 1, n - 1)), RX_NONE };
    if (b > a + 1) part[2] = rx_cat(s->x, digit(s, a + 1, b - 1), rest);
    return rx_or(s->x, part, 3);
}

/* low <= number <= high, without a sign. */
static uint32_t between(struct schema *s, uint64_t low, uint64_t high)
{
    uint32_t r = RX_NONE;
    for (uint32_t n = 1; n <= 20 && low <= high; n++) {
        uint64_t top = 9;
        for (uint32_t i = 1; i < n; i++) top = top > UINT64_MAX / 10 ? UINT64_MAX : top * 10 + 9;
        if (low > top) continue;
        uint64_t end = high < top ? high : top;
        char     a[24], b[24];
        snprintf(a, sizeof a, "%" PRIu64, low);
        snprintf(b, sizeof b, "%" PRIu64, end);
        r = rx_or2(s->x, r, digits_between(s, a, b, n));
        if (end == high) break;
        low = end + 1;
    }
    return r;
}

enum { DIGITS_MAX = 19 }; /* beyond a bound on one side alone */

/* A bound as a whole number: the least (the greatest) that it allows. */
static int64_t whole_bound(double v, bool least, bool exclusive)
{
    double w = least ? ceil(v) : floor(v);
    if (exclusive && w == v) w += least ? 1 : -1;
    if (w > 9e17) return (int64_t)9e17;
    if (w < -9e17) return -(int64_t)9e17;
    return (int64_t)w;
}

struct bounds {
    bool   has_low, has_high, low_open, high_open;
    double low, high;
};

static void add_bound(struct schema *s, const json_t *node, const char *key, bool low, bool open, struct bounds *b)
{
    const json_t *v = json_object_get(node, key);
    if (!v || json_is_boolean(v)) return; /* draft 4: a flag of minimum and maximum, looked at there */
    if (!json_is_number(v)) {
        schema_fail(s, key, "a number is needed");
        return;
    }
    double n = json_number_value(v);
    if (json_is_integer(v) && (json_integer_value(v) > 9007199254740992 || json_integer_value(v) < -9007199254740992))
        schema_fail(s, key, "whole numbers up to 2^53 can be enforced");
    bool   *has = low ? &b->has_low : &b->has_high, *is_open = low ? &b->low_open : &b->high_open;
    double *at = low ? &b->low : &b->high;
    bool    tighter = !*has || (low ? n > *at : n < *at) || (n == *at && open);
    if (!tighter) return;
    *has = true;
    *at = n;
    *is_open = open;
}

static struct bounds bounds_of(struct schema *s, const json_t *node)
{
    struct bounds b = { false, false, false, false, 0, 0 };
    add_bound(s, node, "minimum", true, json_is_true(json_object_get(node, "exclusiveMinimum")), &b);
    add_bound(s, node, "maximum", false, json_is_true(json_object_get(node, "exclusiveMaximum")), &b);
    add_bound(s, node, "exclusiveMinimum", true, true, &b);
    add_bound(s, node, "exclusiveMaximum", false, true, &b);
    return b;
}

/* Without a sign: from `low` on, as many digits as are allowed. */
static uint32_t from_on(struct schema *s, uint64_t low)
{
    uint64_t top = 9;
    for (int i = 1; i < DIGITS_MAX; i++) top = top * 10 + 9;
    return between(s, low, top);
}

static uint32_t whole_number(struct schema *s, struct bounds b)
{
    uint32_t minus = rx_of_byte(s->x, '-'), r = RX_NONE;
    int64_t  low = b.has_low ? whole_bound(b.low, true, b.low_open) : INT64_MIN;
    int64_t  high = b.has_high ? whole_bound(b.high, false, b.high_open) : INT64_MAX;
    if (low > high) return schema_fail(s, "maximum", "no whole number lies between the bounds");
    if (high >= 0) {
        uint64_t from = low > 0 ? (uint64_t)low : 0;
        r = b.has_high ? between(s, from, (uint64_t)high) : from_on(s, from);
    }
    if (low < 0) {
        uint64_t from = high < 0 ? (uint64_t)-high : 1;
        uint32_t n = b.has_low ? between(s, from, (uint64_t)-low) : from_on(s, from);
        r = rx_or2(s->x, r, rx_cat(s->x, minus, n));
    }
    return gr_terminal(s->r, r);
}

/* ---------------------------------------------------------------- numbers */

/* Digits behind a point: any, or such that the number is not zero. */
static uint32_t fraction(struct schema *s, bool not_zero)
{
    uint32_t any = rx_repeat(s->x, digit(s, 0, 9), 1, 15);
    if (not_zero) any = rx_and2(s->x, any, rx_not(s->x, rx_repeat(s->x, digit(s, 0, 0), 0, RX_MANY)));
    return rx_cat(s->x, rx_of_byte(s->x, '.'), any);
}

static uint32_t unbounded(struct schema *s, bool sign)
{
    uint32_t        minus = rx_or2(s->x, RX_EMPTY, rx_of_byte(s->x, '-'));
    uint32_t        many = rx_repeat(s->x, digit(s, 0, 9), 0, 18), first = rx_cat(s->x, digit(s, 1, 9), many);
    uint32_t        whole = rx_or2(s->x, digit(s, 0, 0), first);
    uint32_t        plus[] = { RX_EMPTY, rx_of_byte(s->x, '+'), rx_of_byte(s->x, '-') };
    struct rx_class e = { { 0 } };
    rx_class_add(&e, 'e', 'e');
    rx_class_add(&e, 'E', 'E');
    uint32_t power =
        rx_cat(s->x, rx_of_class(s->x, &e), rx_cat(s->x, rx_or(s->x, plus, 3), rx_repeat(s->x, digit(s, 0, 9), 1, 2)));
    uint32_t r =
        rx_cat(s->x, whole, rx_cat(s->x, rx_or2(s->x, RX_EMPTY, fraction(s, false)), rx_or2(s->x, RX_EMPTY, power)));
    return sign ? rx_cat(s->x, minus, r) : r;
}

/* Numbers of at least low (above it) and at most high (below it), without a sign and without an exponent: whole ones, and for
 * each with a fraction behind it that stays within. The bounds are whole. */
static uint32_t decimal(struct schema *s, uint64_t low, bool low_open, bool has_high, uint64_t high, bool high_open)
{
    uint32_t r = RX_NONE, zeros = rx_cat(s->x, rx_of_byte(s->x, '.'), rx_repeat(s->x, digit(s, 0, 0), 1, 15));
    /* n and n.f lie within for low < n < high; n = low needs a fraction if it is open; n = high takes .000 alone */
    uint64_t from = low + 1;
    uint32_t middle = RX_NONE;
    if (!has_high)
        middle = from_on(s, from);
    else if (high > 0 && from <= high - 1)
        middle = between(s, from, high - 1);
    r = rx_cat(s->x, middle, rx_or2(s->x, RX_EMPTY, fraction(s, false)));
    uint32_t at_low = between(s, low, low);
    if (!has_high || low < high) {
        uint32_t tail = low_open ? fraction(s, true) : rx_or2(s->x, RX_EMPTY, fraction(s, false));
        r = rx_or2(s->x, r, rx_cat(s->x, at_low, tail));
    } else if (low == high && !low_open && !high_open) {
        return rx_cat(s->x, at_low, rx_or2(s->x, RX_EMPTY, zeros));
    }
    if (has_high && high > low && !high_open)
        r = rx_or2(s->x, r, rx_cat(s->x, between(s, high, high), rx_or2(s->x, RX_EMPTY, zeros)));
    return r;
}

static uint32_t real_number(struct schema *s, struct bounds b)
{
    if (!b.has_low && !b.has_high) return gr_terminal(s->r, unbounded(s, true));
    if ((b.has_low && b.low != floor(b.low)) || (b.has_high && b.high != floor(b.high)))
        return schema_fail(s, b.has_low && b.low != floor(b.low) ? "minimum" : "maximum",
                           "bounds of a number can be enforced where they are whole");
    if (fabs(b.low) > 1e15 || fabs(b.high) > 1e15) return schema_fail(s, "", "bounds up to 1e15 can be enforced");
    if (b.has_low && b.has_high && (b.low > b.high || (b.low == b.high && (b.low_open || b.high_open))))
        return schema_fail(s, "maximum", "no number lies between the bounds");
    uint32_t minus = rx_of_byte(s->x, '-'), r = RX_NONE;
    if (!b.has_high || b.high > 0 || (b.high == 0 && !b.high_open)) {
        bool from_zero = !b.has_low || b.low < 0;
        r = decimal(s, from_zero ? 0 : (uint64_t)b.low, !from_zero && b.low_open, b.has_high,
                    (uint64_t)(b.high > 0 ? b.high : 0), b.high_open);
    }
    if (!b.has_low || b.low < 0) { /* -n: the bounds change sides; -0 is left to the other half */
        bool to_zero = !b.has_high || b.high >= 0;
        r = rx_or2(s->x, r,
                   rx_cat(s->x, minus,
                          decimal(s, to_zero ? 0 : (uint64_t)-b.high, to_zero || b.high_open, b.has_low,
                                  (uint64_t)(b.low < 0 ? -b.low : 0), b.low_open)));
    }
    return gr_terminal(s->r, r);
}

uint32_t schema_number(struct schema *s, const json_t *node, bool whole)
{
    static const char *const key[] = { "multipleOf" };
    if (schema_refuse(s, node, key, 1)) return schema_nothing(s);
    struct bounds b = bounds_of(s, node);
    if (s->failed) return schema_nothing(s);
    return whole ? whole_number(s, b) : real_number(s, b);
}
