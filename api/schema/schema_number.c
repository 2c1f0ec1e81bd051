/* schema_number: numbers of a schema. Bounds are compared digit by digit, as text, so that none is rounded. */
#include "api/schema/schema_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_DIGITS = 19,    /* of a number that no bound ends */
    FRACTION_DIGITS = 15, /* behind what a bound decides */
    DECIMAL_DIGITS = 700, /* of a bound: 10^308 and 10^-324 fit */
    MULTIPLE_MAX = 10000,
};

/* A decimal number: digits without leading and trailing zeros, n_whole of which stand before the point. */
struct decimal {
    bool     minus;
    uint32_t n_whole, n_fraction;
    char     whole[DECIMAL_DIGITS], fraction[DECIMAL_DIGITS]; /* '0' .. '9'; whole is at least "0" */
};

/* ---------------------------------------------------------------- decimal numbers */

static void trim(struct decimal *d)
{
    uint32_t zeros = 0;
    while (zeros + 1 < d->n_whole && d->whole[zeros] == '0') zeros++;
    memmove(d->whole, d->whole + zeros, d->n_whole - zeros);
    d->n_whole -= zeros;
    while (d->n_fraction && d->fraction[d->n_fraction - 1] == '0') d->n_fraction--;
    if (d->n_whole == 1 && d->whole[0] == '0' && !d->n_fraction) d->minus = false;
}

/* A number as a text. false: more digits than fit. */
static bool read_digits(const char *text, struct decimal *d)
{
    char digit[400];
    int  n = 0, point = -1, power = 0;
    bool fits = true;
    *d = (struct decimal){ .minus = *text == '-' };
    for (const char *p = text + d->minus; *p; p++) {
        if (*p == '.') {
            point = n;
        } else if (*p == 'e' || *p == 'E') {
            power = (int)strtol(p + 1, NULL, 10); /* the compiler's own spelling */
            break;
        } else if (n == sizeof digit) {
            return false;
        } else {
            digit[n++] = *p;
        }
    }
    point = (point < 0 ? n : point) + power; /* digits before the point; below 0: zeros behind it */
    for (int i = point < 0 ? point : 0; i < n || i < point; i++) {
        char c = i >= 0 && i < n ? digit[i] : '0';
        fits = fits && d->n_whole < DECIMAL_DIGITS - 2 && d->n_fraction < DECIMAL_DIGITS - 2;
        if (!fits) return false;
        if (i < point)
            d->whole[d->n_whole++] = c;
        else
            d->fraction[d->n_fraction++] = c;
    }
    if (!d->n_whole) d->whole[d->n_whole++] = '0';
    trim(d);
    return true;
}

/* A number, of whole ones beyond 64 bits what the client wrote. false: more digits than fit. *one_out false: it cannot be
 * told which number was written (schema_big_text), and d is the nearest float. */
static bool read_decimal(const struct schema *s, const json_t *v, struct decimal *d, bool *one_out)
{
    struct buf  b;
    const char *text = json_is_real(v) ? schema_big_text(s, json_real_value(v), one_out) : NULL;
    if (!json_is_real(v)) *one_out = true;
    if (text && *one_out) return read_digits(text, d);
    buf_init(&b, 400);
    if (json_is_integer(v))
        json_put_int(&b, json_integer_value(v));
    else
        json_put_num(&b, json_real_value(v));
    buf_putc(&b, 0);
    bool fits = read_digits(b.data, d);
    buf_free(&b);
    return fits;
}

static const char too_near[] = "numbers beyond 64 bits are too near each other to be told apart";

static int compare_whole(const struct decimal *a, const struct decimal *b)
{
    if (a->n_whole != b->n_whole) return a->n_whole < b->n_whole ? -1 : 1;
    return memcmp(a->whole, b->whole, a->n_whole);
}

/* Of the magnitudes. */
static int compare(const struct decimal *a, const struct decimal *b)
{
    int      c = compare_whole(a, b);
    uint32_t n = a->n_fraction < b->n_fraction ? a->n_fraction : b->n_fraction;
    if (c) return c;
    c = memcmp(a->fraction, b->fraction, n);
    return c ? c : (a->n_fraction > b->n_fraction) - (a->n_fraction < b->n_fraction);
}

static int compare_signed(const struct decimal *a, const struct decimal *b)
{
    if (a->minus != b->minus) return a->minus ? -1 : 1;
    return a->minus ? compare(b, a) : compare(a, b);
}

/* One more or one less than the whole part; less than 0 is not asked for. */
static void step(struct decimal *d, bool up)
{
    uint32_t i = d->n_whole;
    char     last = up ? '9' : '0', first = up ? '0' : '9';
    while (i > 0 && d->whole[i - 1] == last) d->whole[--i] = first;
    if (i > 0) {
        d->whole[i - 1] = (char)(d->whole[i - 1] + (up ? 1 : -1));
    } else {
        memmove(d->whole + 1, d->whole, d->n_whole++);
        d->whole[0] = '1';
    }
    d->n_fraction = 0;
    trim(d);
}

/* ---------------------------------------------------------------- digits */

static uint32_t digit(struct schema *s, unsigned from, unsigned to)
{
    struct rx_class c = { { 0 } };
    if (from > to) return RX_NONE;
    rx_class_add(&c, '0' + from, '0' + to);
    return rx_of_class(s->x, &c);
}

static uint32_t digits(struct schema *s, uint32_t min, uint32_t max)
{
    return rx_repeat(s->x, digit(s, 0, 9), min, max);
}

/* Texts of n digits that are not below low (not above high), from digit i on. */
static uint32_t at_least(struct schema *s, const char *low, uint32_t n)
{
    uint32_t r = RX_EMPTY;
    for (uint32_t i = n; i-- > 0;) {
        unsigned a = (unsigned)(low[i] - '0');
        uint32_t more = rx_cat(s->x, digit(s, a + 1, 9), digits(s, n - 1 - i, n - 1 - i));
        r = rx_or2(s->x, rx_cat(s->x, digit(s, a, a), r), a < 9 ? more : (uint32_t)RX_NONE);
    }
    return r;
}

static uint32_t at_most(struct schema *s, const char *high, uint32_t n)
{
    uint32_t r = RX_EMPTY;
    for (uint32_t i = n; i-- > 0;) {
        unsigned b = (unsigned)(high[i] - '0');
        uint32_t less = b ? rx_cat(s->x, digit(s, 0, b - 1), digits(s, n - 1 - i, n - 1 - i)) : (uint32_t)RX_NONE;
        r = rx_or2(s->x, rx_cat(s->x, digit(s, b, b), r), less);
    }
    return r;
}

/* Texts of exactly n digits from low to high. */
static uint32_t between(struct schema *s, const char *low, const char *high, uint32_t n)
{
    uint32_t same = 0, r;
    while (same < n && low[same] == high[same]) same++;
    if (same == n) {
        r = RX_EMPTY;
    } else {
        unsigned a = (unsigned)(low[same] - '0'), b = (unsigned)(high[same] - '0');
        uint32_t rest = n - same - 1;
        uint32_t part[3] = { rx_cat(s->x, digit(s, a, a), at_least(s, low + same + 1, rest)),
                             rx_cat(s->x, digit(s, b, b), at_most(s, high + same + 1, rest)),
                             a + 1 < b ? rx_cat(s->x, digit(s, a + 1, b - 1), digits(s, rest, rest))
                                       : (uint32_t)RX_NONE };
        r = rx_or(s->x, part, 3);
    }
    while (same > 0) {
        unsigned a = (unsigned)(low[--same] - '0');
        r = rx_cat(s->x, digit(s, a, a), r);
    }
    return r;
}

/* Whole numbers without a sign from low to high (NULL: as many digits as are allowed), without leading zeros. */
static uint32_t wholes(struct schema *s, const struct decimal *low, const struct decimal *high)
{
    char     nines[DECIMAL_DIGITS], first[DECIMAL_DIGITS];
    uint32_t top = low->n_whole > WHOLE_DIGITS ? low->n_whole : (uint32_t)WHOLE_DIGITS, r;
    if (high && compare_whole(low, high) > 0) return RX_NONE;
    memset(nines, '9', sizeof nines);
    memset(first, '0', sizeof first);
    if (high && high->n_whole == low->n_whole) return between(s, low->whole, high->whole, low->n_whole);
    r = between(s, low->whole, nines, low->n_whole);
    first[0] = '1';
    if (high) r = rx_or2(s->x, r, between(s, first, high->whole, high->n_whole));
    if (high) top = high->n_whole - 1;
    if (top > low->n_whole) /* all numbers with a number of digits in between */
        r = rx_or2(s->x, r, rx_cat(s->x, digit(s, 1, 9), digits(s, low->n_whole, top - 1)));
    return r;
}

/* ---------------------------------------------------------------- fractions */

static uint32_t point(struct schema *s, uint32_t behind) { return rx_cat(s->x, rx_of_byte(s->x, '.'), behind); }

/* Behind the whole part: any fraction, or none. */
static uint32_t any_fraction(struct schema *s)
{
    return rx_or2(s->x, RX_EMPTY, point(s, digits(s, 1, FRACTION_DIGITS)));
}

/* Digits of which one is not zero. */
static uint32_t not_zero(struct schema *s, uint32_t max)
{
    uint32_t any = digits(s, 1, max);
    return rx_and2(s->x, any, rx_not(s->x, rx_repeat(s->x, digit(s, 0, 0), 0, RX_MANY)));
}

/* Fractions, with their point, that are at least that of d, or above it (open). */
static uint32_t fraction_from(struct schema *s, const struct decimal *d, bool open)
{
    uint32_t r = open ? not_zero(s, FRACTION_DIGITS) : digits(s, 0, FRACTION_DIGITS);
    if (!d->n_fraction) return open ? point(s, r) : any_fraction(s);
    for (uint32_t i = d->n_fraction; i-- > 0;) {
        unsigned a = (unsigned)(d->fraction[i] - '0');
        uint32_t more = a < 9 ? rx_cat(s->x, digit(s, a + 1, 9), digits(s, 0, FRACTION_DIGITS)) : (uint32_t)RX_NONE;
        r = rx_or2(s->x, rx_cat(s->x, digit(s, a, a), r), more);
    }
    return point(s, r);
}

/* Fractions that are at most that of d, or below it; none counts as zero. */
static uint32_t fraction_to(struct schema *s, const struct decimal *d, bool open)
{
    uint32_t zeros = rx_repeat(s->x, digit(s, 0, 0), 1, FRACTION_DIGITS), r;
    if (!d->n_fraction) return open ? (uint32_t)RX_NONE : rx_or2(s->x, RX_EMPTY, point(s, zeros));
    r = open ? (uint32_t)RX_NONE : rx_repeat(s->x, digit(s, 0, 0), 0, FRACTION_DIGITS);
    for (uint32_t i = d->n_fraction; i-- > 0;) {
        unsigned b = (unsigned)(d->fraction[i] - '0');
        uint32_t less = b ? rx_cat(s->x, digit(s, 0, b - 1), digits(s, 0, FRACTION_DIGITS)) : (uint32_t)RX_NONE;
        r = rx_or2(s->x, rx_cat(s->x, digit(s, b, b), r), less);
        if (i) r = rx_or2(s->x, r, RX_EMPTY); /* it may end before the last digit, and is less then */
    }
    return rx_or2(s->x, RX_EMPTY, point(s, r));
}

/* ---------------------------------------------------------------- bounds */

struct bounds {
    bool           has_low, has_high, low_open, high_open;
    struct decimal low, high;
};

/* Numbers without sign and exponent from low to high (NULL: without end). whole: integers. */
static uint32_t magnitude(struct schema *s, const struct decimal *low, bool low_open, const struct decimal *high,
                          bool high_open, bool whole)
{
    struct decimal from = *low, to;
    if (high) to = *high;
    if (high && (compare(low, high) > 0 || (compare(low, high) == 0 && (low_open || high_open)))) return RX_NONE;
    if (whole) {
        if (from.n_fraction || low_open) step(&from, true);
        if (high && !to.n_fraction && high_open) {
            if (to.n_whole == 1 && to.whole[0] == '0') return RX_NONE;
            step(&to, false);
        }
        return wholes(s, &from, high ? &to : NULL);
    }
    uint32_t at_low = fraction_from(s, low, low_open), r;
    if (high && compare_whole(low, high) == 0)
        return rx_cat(s->x, wholes(s, low, low), rx_and2(s->x, at_low, fraction_to(s, high, high_open)));
    r = rx_cat(s->x, wholes(s, low, low), at_low);
    step(&from, true);
    if (!high) return rx_or2(s->x, r, rx_cat(s->x, wholes(s, &from, NULL), any_fraction(s)));
    r = rx_or2(s->x, r, rx_cat(s->x, wholes(s, high, high), fraction_to(s, high, high_open)));
    step(&to, false);
    return rx_or2(s->x, r, rx_cat(s->x, wholes(s, &from, &to), any_fraction(s)));
}

/* Both signs. */
static uint32_t within(struct schema *s, const struct bounds *b, bool whole)
{
    struct decimal zero = { .n_whole = 1, .whole = "0" };
    uint32_t       r = RX_NONE, minus = rx_of_byte(s->x, '-');
    if (!b->has_high || !b->high.minus) {
        bool low = b->has_low && !b->low.minus;
        r = magnitude(s, low ? &b->low : &zero, low && b->low_open, b->has_high ? &b->high : NULL, b->high_open, whole);
    }
    if (!b->has_low || b->low.minus) { /* -n: the bounds change sides; -0 is left to the other half */
        bool     high = b->has_high && b->high.minus;
        uint32_t n = magnitude(s, high ? &b->high : &zero, high ? b->high_open : true, b->has_low ? &b->low : NULL,
                               b->low_open, whole);
        r = rx_or2(s->x, r, rx_cat(s->x, minus, n));
    }
    return r;
}

static void add_bound(struct schema *s, const json_t *node, const char *key, bool low, bool open, struct bounds *b)
{
    const json_t  *v = json_object_get(node, key);
    bool          *has = low ? &b->has_low : &b->has_high, *is_open = low ? &b->low_open : &b->high_open;
    struct decimal d, *at = low ? &b->low : &b->high;
    bool           one;
    if (!v || json_is_boolean(v)) return; /* draft 4: a flag of minimum and maximum, looked at there */
    if (!json_is_number(v) || !read_decimal(s, v, &d, &one)) {
        schema_fail(s, key, "a number is needed");
        return;
    }
    if (!one) {
        schema_beyond(s, key, too_near);
        return;
    }
    int  c = *has ? compare_signed(&d, at) : 0;
    bool tighter = !*has || (low ? c > 0 : c < 0) || (c == 0 && open);
    if (!tighter) return;
    *has = true;
    *at = d;
    *is_open = open;
}

static void add_bounds(struct schema *s, const json_t *node, struct bounds *b)
{
    add_bound(s, node, "minimum", true, json_is_true(json_object_get(node, "exclusiveMinimum")), b);
    add_bound(s, node, "maximum", false, json_is_true(json_object_get(node, "exclusiveMaximum")), b);
    add_bound(s, node, "exclusiveMinimum", true, true, b);
    add_bound(s, node, "exclusiveMaximum", false, true, b);
}

/* ---------------------------------------------------------------- multiples */

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Numbers, with a sign or without, that are a multiple of v, spelled with at most as many decimals as v has. */
static uint32_t multiples(struct schema *s, const json_t *v, bool whole)
{
    struct decimal d;
    uint32_t       m = 0, r = RX_NONE, power = 1;
    uint32_t       sign = rx_or2(s->x, RX_EMPTY, rx_of_byte(s->x, '-'));
    bool           one;
    if (!json_is_number(v) || json_number_value(v) <= 0 || !read_decimal(s, v, &d, &one)) {
        schema_fail(s, "multipleOf", "a number above 0 is needed");
        return RX_NONE;
    }
    for (uint32_t i = 0; i < d.n_whole + d.n_fraction && m <= 1u << 24; i++)
        m = m * 10 + (uint32_t)((i < d.n_whole ? d.whole[i] : d.fraction[i - d.n_whole]) - '0');
    bool ten = d.n_whole == 1 && d.whole[0] == '0' && m == 1; /* 0.01: a number of decimals, as many as one likes */
    if ((m > MULTIPLE_MAX || d.n_fraction > 4) && !ten) {
        schema_beyond(s, "multipleOf", "multiples of up to 10000, or of a power of ten, can be enforced");
        return RX_ALL;
    }
    if (ten && whole) return RX_ALL;
    if (ten)
        return rx_cat(
            s->x, sign,
            rx_cat(s->x, digits(s, 1, RX_MANY), rx_or2(s->x, RX_EMPTY, point(s, digits(s, 1, d.n_fraction)))));
    for (uint32_t t = d.n_fraction + 1; t-- > 0;
         power *= 10) { /* t decimals, as they stand, are so many of its units */
        uint32_t all = rx_multiple(s->x, m / gcd(m, power));
        uint32_t shape = t ? point(s, digits(s, t, t)) : (uint32_t)RX_EMPTY;
        if (whole && t) continue;
        r = rx_or2(
            s->x, r,
            rx_and2(s->x, rx_cat(s->x, sign, all), rx_cat(s->x, sign, rx_cat(s->x, digits(s, 1, RX_MANY), shape))));
    }
    return r;
}

/* ---------------------------------------------------------------- all of it */

/* Any number, with an exponent or without. */
static uint32_t unbounded(struct schema *s)
{
    struct bounds   none = { .has_low = false };
    uint32_t        plus[] = { RX_EMPTY, rx_of_byte(s->x, '+'), rx_of_byte(s->x, '-') };
    struct rx_class e = { { 0 } };
    rx_class_add(&e, 'e', 'e');
    rx_class_add(&e, 'E', 'E');
    uint32_t power = rx_cat(s->x, rx_of_class(s->x, &e), rx_cat(s->x, rx_or(s->x, plus, 3), digits(s, 1, 2)));
    return rx_cat(s->x, within(s, &none, false), rx_or2(s->x, RX_EMPTY, power));
}

/* Takes all spellings of a number that `not` names out of r, which has no exponents. */
static uint32_t leave_out(struct schema *s, uint32_t r, const json_t *v)
{
    struct bounds b = { .has_low = true, .has_high = true };
    bool          one;
    if (!json_is_number(v) || !read_decimal(s, v, &b.low, &one)) return r;
    if (!one) schema_beyond(s, "not", too_near);
    b.high = b.low;
    return rx_and2(s->x, r, rx_not(s->x, within(s, &b, false)));
}

/* Numbers of up to 15 digits, or as many as the bounds have: those keep their order and stay apart where a reader takes
 * them for binary floating point. */
static uint32_t told_apart(struct schema *s, uint32_t r, const struct bounds *b)
{
    uint32_t        low = b->low.n_whole + b->low.n_fraction, high = b->high.n_whole + b->high.n_fraction, n = 15;
    struct rx_class c = { { 0 } };
    if (b->has_low && low > n) n = low;
    if (b->has_high && high > n) n = high;
    rx_class_add(&c, '0', '9');
    rx_class_add(&c, '.', '.');
    uint32_t sign = rx_or2(s->x, RX_EMPTY, rx_of_byte(s->x, '-'));
    return rx_and2(s->x, r, rx_cat(s->x, sign, rx_repeat(s->x, rx_of_class(s->x, &c), 1, n + 1)));
}

uint32_t schema_number(struct schema *s, const struct schema_all *all, bool whole, bool broken)
{
    struct bounds b = { .has_low = false };
    bool          plain = !broken;
    uint32_t      r;
    for (uint32_t i = 0; i < all->n; i++) {
        const json_t *node = all->part[i].node,
                     *no = all->part[i].done & DONE_NOT ? NULL : json_object_get(node, "not");
        s->node = node;
        add_bounds(s, node, &b);
        plain = plain && !json_object_get(node, "multipleOf") && !json_object_get(no, "const") &&
                !json_object_get(no, "enum");
    }
    if (s->failed) return RX_NONE;
    plain = plain && !b.has_low && !b.has_high && !whole;
    r = plain ? unbounded(s) : within(s, &b, whole);
    if (!plain && !whole) r = told_apart(s, r, &b);
    for (uint32_t i = 0; i < all->n && !s->failed; i++) {
        const json_t *node = all->part[i].node,
                     *no = all->part[i].done & DONE_NOT ? NULL : json_object_get(node, "not");
        const json_t *list = json_object_get(no, "enum"), *multiple = json_object_get(node, "multipleOf");
        s->node = node;
        if (multiple) r = rx_and2(s->x, r, multiples(s, multiple, whole));
        r = leave_out(s, r, json_object_get(no, "const"));
        for (size_t k = 0; k < json_array_size(list); k++) r = leave_out(s, r, json_array_get(list, k));
    }
    s->node = NULL;
    if (!broken) return r;
    uint32_t any = rx_repeat(s->x, rx_or2(s->x, digit(s, 0, 9), rx_of_byte(s->x, '-')), 1, RX_MANY);
    return rx_and2(s->x, r, rx_cat(s->x, any, point(s, not_zero(s, RX_MANY))));
}
