#include "api/jinja/tmpl_big.h"
#include "api/jinja/tmpl_eval.h"
#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- kinds of numbers */

bool tv_integer(const struct tv *v, int64_t *out)
{
    if (v->kind == TV_INT) {
        *out = v->u.i;
        return true;
    }
    if (v->kind == TV_BOOL) {
        *out = v->u.b;
        return true;
    }
    return false;
}

bool tv_number(const struct tv *v, double *out)
{
    int64_t i;
    if (v->kind == TV_FLOAT) {
        *out = v->u.f;
        return true;
    }
    if (v->kind == TV_BIG) {
        *out = big_to_double(v);
        return true;
    }
    if (!tv_integer(v, &i)) return false;
    *out = (double)i;
    return true;
}

bool tv_whole(const struct tv *v) { return v->kind == TV_INT || v->kind == TV_BOOL || v->kind == TV_BIG; }

/* ---------------------------------------------------------------- limbs */

/* A number taken apart: its limbs, least significant first, or where it is small the space for them. */
struct whole {
    bool            neg;
    uint32_t        n;
    const uint32_t *limb;
    uint32_t        own[2];
};
enum { ROOM = 2 * BIG_LIMBS_MAX + 4 }; /* limbs of any intermediate result */

static void take_apart(const struct tv *v, struct whole *w)
{
    if (v->kind == TV_BIG) {
        *w = (struct whole){ .neg = v->u.big->neg, .n = v->u.big->n, .limb = v->u.big->limb };
        return;
    }
    int64_t  i = 0;
    uint64_t u;
    tv_integer(v, &i);
    u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    *w = (struct whole){ .neg = i<0, .n = u> UINT32_MAX ? 2 : u > 0, .own = { (uint32_t)u, (uint32_t)(u >> 32) } };
    w->limb = w->own;
}

static uint32_t trimmed(const uint32_t *limb, uint32_t n)
{
    while (n && !limb[n - 1]) n--;
    return n;
}

static uint64_t bits_of(const uint32_t *limb, uint32_t n)
{
    return n ? 32ull * n - (unsigned)__builtin_clz(limb[n - 1]) : 0;
}

/* A value of these limbs: TV_INT where it fits. NULL space: no memory. */
static bool make(struct arena *a, bool neg, const uint32_t *limb, uint32_t n, struct tv *out)
{
    n = trimmed(limb, n);
    if (n <= 2) {
        uint64_t u = n ? limb[0] : 0;
        if (n > 1) u |= (uint64_t)limb[1] << 32;
        if (u <= INT64_MAX || (neg && u == 1ull << 63)) {
            *out = tv_int((int64_t)(neg ? 0 - u : u));
            return true;
        }
    }
    struct tv_big *b = arena_alloc(a, sizeof *b + n * sizeof *limb);
    if (!b) return false;
    b->neg = neg;
    b->n = n;
    memcpy(b->limb, limb, n * sizeof *limb);
    *out = (struct tv){ .kind = TV_BIG, .u.big = b };
    return true;
}

static bool result(struct tmpl_eval *e, bool neg, const uint32_t *limb, uint32_t n, struct tv *out)
{
    n = trimmed(limb, n);
    if (bits_of(limb, n) > BIG_BITS_MAX) return tmpl_fail(e, "integer too large: more than %d bits", BIG_BITS_MAX);
    if (!tmpl_steps(e, n / 16)) return false;
    return make(&e->arena, neg, limb, n, out) || tmpl_over(e, "too much memory");
}

static int compare_limbs(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
    if (na != nb) return na < nb ? -1 : 1;
    while (na--)
        if (a[na] != b[na]) return a[na] < b[na] ? -1 : 1;
    return 0;
}

/* r = a + b; r has room for the longer one and one more. Returns its limbs. */
static uint32_t add_limbs(uint32_t *r, const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
    uint64_t carry = 0;
    uint32_t n = na > nb ? na : nb;
    for (uint32_t i = 0; i < n; i++) {
        carry += (uint64_t)(i < na ? a[i] : 0) + (i < nb ? b[i] : 0);
        r[i] = (uint32_t)carry;
        carry >>= 32;
    }
    r[n] = (uint32_t)carry;
    return trimmed(r, n + 1);
}

/* r = a - b, where a is not less. */
static uint32_t sub_limbs(uint32_t *r, const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
    int64_t borrow = 0;
    for (uint32_t i = 0; i < na; i++) {
        int64_t d = (int64_t)a[i] - (i < nb ? b[i] : 0) - borrow;
        borrow = d < 0;
        r[i] = (uint32_t)(d + (borrow << 32));
    }
    return trimmed(r, na);
}

static uint32_t mul_limbs(uint32_t *r, const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
    memset(r, 0, (na + nb) * sizeof *r);
    for (uint32_t i = 0; i < na; i++) {
        uint64_t carry = 0;
        for (uint32_t k = 0; k < nb; k++) {
            carry += (uint64_t)a[i] * b[k] + r[i + k];
            r[i + k] = (uint32_t)carry;
            carry >>= 32;
        }
        r[i + nb] = (uint32_t)carry;
    }
    return trimmed(r, na + nb);
}

/* a by a small number, in place; the remainder. */
static uint32_t div_small(uint32_t *a, uint32_t n, uint32_t by)
{
    uint64_t rest = 0;
    while (n--) {
        rest = rest << 32 | a[n];
        a[n] = (uint32_t)(rest / by);
        rest %= by;
    }
    return (uint32_t)rest;
}

/* r = a << by. */
static uint32_t shift_left(uint32_t *r, const uint32_t *a, uint32_t n, uint32_t by)
{
    uint32_t limbs = by / 32, bits = by % 32;
    memset(r, 0, (n + limbs + 1) * sizeof *r);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)a[i] << bits;
        r[i + limbs] |= (uint32_t)x;
        r[i + limbs + 1] = (uint32_t)(x >> 32);
    }
    return trimmed(r, n + limbs + 1);
}

/* Knuth, The Art of Computer Programming 2, 4.3.1, algorithm D: q = a / b, rest in rem; b is not 0. */
static void div_limbs(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb, uint32_t *q, uint32_t *nq,
                      uint32_t *rem, uint32_t *nrem)
{
    uint32_t u[ROOM], v[ROOM];
    *nq = 0;
    if (compare_limbs(a, na, b, nb) < 0) {
        memcpy(rem, a, na * sizeof *a);
        *nrem = na;
        return;
    }
    if (nb == 1) {
        memcpy(q, a, na * sizeof *a);
        rem[0] = div_small(q, na, b[0]);
        *nq = trimmed(q, na);
        *nrem = rem[0] != 0;
        return;
    }
    uint32_t shift = (uint32_t)__builtin_clz(b[nb - 1]), m = na - nb;
    shift_left(v, b, nb, shift);
    shift_left(u, a, na, shift); /* u[na] is set, if to 0 */
    for (uint32_t j = m + 1; j-- > 0;) {
        uint64_t top = (uint64_t)u[j + nb] << 32 | u[j + nb - 1], guess = top / v[nb - 1], left = top % v[nb - 1];
        while (guess > UINT32_MAX || guess * v[nb - 2] > (left << 32 | u[j + nb - 2])) {
            guess--;
            left += v[nb - 1];
            if (left > UINT32_MAX) break;
        }
        int64_t  borrow = 0;
        uint64_t carry = 0;
        for (uint32_t i = 0; i < nb; i++) {
            carry += guess * v[i];
            int64_t d = (int64_t)u[i + j] - borrow - (int64_t)(uint32_t)carry;
            borrow = d < 0;
            u[i + j] = (uint32_t)d;
            carry >>= 32;
        }
        int64_t d = (int64_t)u[j + nb] - borrow - (int64_t)carry;
        u[j + nb] = (uint32_t)d;
        if (d < 0) { /* the guess was one too many */
            guess--;
            uint64_t c = 0;
            for (uint32_t i = 0; i < nb; i++) {
                c += (uint64_t)u[i + j] + v[i];
                u[i + j] = (uint32_t)c;
                c >>= 32;
            }
            u[j + nb] += (uint32_t)c;
        }
        q[j] = (uint32_t)guess;
    }
    *nq = trimmed(q, m + 1);
    for (uint32_t i = 0; i < nb; i++)
        rem[i] = shift ? u[i] >> shift | (uint32_t)((uint64_t)u[i + 1] << (32 - shift)) : u[i];
    *nrem = trimmed(rem, nb);
}

/* ---------------------------------------------------------------- operators */

static bool add_signed(struct tmpl_eval *e, const struct whole *a, const struct whole *b, bool b_neg, struct tv *out)
{
    uint32_t r[ROOM];
    if (a->neg == b_neg) return result(e, b_neg, r, add_limbs(r, a->limb, a->n, b->limb, b->n), out);
    if (compare_limbs(a->limb, a->n, b->limb, b->n) >= 0)
        return result(e, a->neg, r, sub_limbs(r, a->limb, a->n, b->limb, b->n), out);
    return result(e, b_neg, r, sub_limbs(r, b->limb, b->n, a->limb, a->n), out);
}

/* Python rounds a quotient down, and the remainder has the divisor's sign. */
static bool divide(struct tmpl_eval *e, const struct whole *a, const struct whole *b, bool rest, struct tv *out)
{
    static const uint32_t one = 1;
    uint32_t              q[ROOM], rem[ROOM], fixed[ROOM], nq, nrem;
    if (!b->n) return tmpl_fail(e, "division by zero");
    if (!tmpl_steps(e, (uint64_t)a->n * b->n / 256)) return false;
    div_limbs(a->limb, a->n, b->limb, b->n, q, &nq, rem, &nrem);
    bool inexact = nrem && a->neg != b->neg;
    if (rest && inexact) return result(e, b->neg, fixed, sub_limbs(fixed, b->limb, b->n, rem, nrem), out);
    if (rest) return result(e, b->neg, rem, nrem, out);
    if (inexact) return result(e, true, fixed, add_limbs(fixed, q, nq, &one, 1), out);
    return result(e, a->neg != b->neg, q, nq, out);
}

static bool power(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out)
{
    int64_t   times;
    struct tv base = *a, r = tv_int(1);
    double    x;
    if (!tv_integer(b, &times)) return tmpl_fail(e, "integer too large: more than %d bits", BIG_BITS_MAX);
    if (times < 0) {
        tv_number(a, &x);
        *out = tv_float(pow(x, (double)times));
        return true;
    }
    for (; times; times >>= 1) {
        if ((times & 1) && !big_op(e, OP_MUL, &r, &base, &r)) return false;
        if (times > 1 && !big_op(e, OP_MUL, &base, &base, &base)) return false;
    }
    *out = r;
    return true;
}

bool big_op(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out)
{
    struct whole x, y;
    uint32_t     r[ROOM];
    take_apart(a, &x);
    take_apart(b, &y);
    switch (op) {
    case OP_ADD: return add_signed(e, &x, &y, y.neg, out);
    case OP_SUB: return add_signed(e, &x, &y, !y.neg, out);
    case OP_MUL:
        if (!tmpl_steps(e, (uint64_t)x.n * y.n / 256)) return false;
        return result(e, x.neg != y.neg, r, mul_limbs(r, x.limb, x.n, y.limb, y.n), out);
    case OP_FLOORDIV: return divide(e, &x, &y, false, out);
    case OP_MOD: return divide(e, &x, &y, true, out);
    default: return power(e, a, b, out);
    }
}

bool big_negate(struct tmpl_eval *e, const struct tv *v, struct tv *out)
{
    struct whole w;
    take_apart(v, &w);
    return result(e, !w.neg, w.limb, w.n, out);
}

int big_compare(const struct tv *a, const struct tv *b)
{
    struct whole x, y;
    take_apart(a, &x);
    take_apart(b, &y);
    if (x.neg != y.neg) return x.neg ? -1 : 1;
    int c = compare_limbs(x.limb, x.n, y.limb, y.n);
    return x.neg ? -c : c;
}

/* ---------------------------------------------------------------- doubles */

/* 64 leading bits, the last one set too where anything behind them is, times 2 to the power of *up. */
static uint64_t leading(const uint32_t *limb, uint32_t n, int *up)
{
    uint64_t bits = bits_of(limb, n), m = 0;
    *up = bits > 64 ? (int)(bits - 64) : 0;
    uint32_t drop = (uint32_t)*up, from = drop / 32, shift = drop % 32;
    for (uint32_t i = 0; i < 3 && from + i < n; i++) {
        uint64_t x = limb[from + i];
        int      at = (int)(32 * i) - (int)shift;
        if (at < 0)
            m |= x >> -at;
        else if (at < 64)
            m |= x << at;
    }
    bool rest = shift && from < n && (limb[from] & ((1u << shift) - 1));
    for (uint32_t i = 0; i < from && !rest; i++) rest = limb[i] != 0;
    return m | rest;
}

/* m * 2^up, rounded once. The conversion of 64 bits rounds half to even; the sticky bit keeps halves apart from what is
 * above them. */
static double scaled(uint64_t m, int up) { return ldexp((double)m, up); }

double big_to_double(const struct tv *v)
{
    struct whole w;
    int          up;
    take_apart(v, &w);
    double d = scaled(leading(w.limb, w.n, &up), 0);
    d = ldexp(d, up);
    return w.neg ? -d : d;
}

bool big_from_double(struct tmpl_eval *e, double f, struct tv *out)
{
    int      up;
    double   m = frexp(fabs(trunc(f)), &up);
    uint32_t r[ROOM];
    uint64_t whole = (uint64_t)ldexp(m, 53);
    uint32_t limb[2] = { (uint32_t)whole, (uint32_t)(whole >> 32) };
    up -= 53;
    if (up <= 0) {
        *out = tv_int((int64_t)f);
        return true;
    }
    return result(e, f < 0, r, shift_left(r, limb, trimmed(limb, 2), (uint32_t)up), out);
}

int big_compare_float(const struct tv *a, double y)
{
    struct whole w;
    take_apart(a, &w);
    if (isinf(y)) return y > 0 ? -1 : 1;
    if (fabs(y) < 9223372036854775808.0) return w.neg ? -1 : 1;
    if ((y < 0) != w.neg) return w.neg ? -1 : 1;
    int      up;
    uint32_t r[64]; /* the largest double has 1024 bits */
    uint64_t whole = (uint64_t)ldexp(frexp(fabs(y), &up), 53);
    uint32_t limb[2] = { (uint32_t)whole, (uint32_t)(whole >> 32) };
    uint32_t n = shift_left(r, limb, trimmed(limb, 2), (uint32_t)(up - 53));
    int      c = compare_limbs(w.limb, w.n, r, n);
    return w.neg ? -c : c;
}

/* Correctly rounded, as Python's: a quotient of 64 bits and more, whose last bit tells of a remainder. */
bool big_true_div(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out)
{
    struct whole x, y;
    uint32_t     u[ROOM], v[ROOM], q[ROOM], rem[ROOM], nq, nrem;
    take_apart(a, &x);
    take_apart(b, &y);
    if (!y.n) return tmpl_fail(e, "division by zero");
    if (!tmpl_steps(e, (uint64_t)x.n * y.n / 256)) return false;
    int64_t gap = (int64_t)bits_of(x.limb, x.n) - (int64_t)bits_of(y.limb, y.n), shift = gap < 66 ? 66 - gap : 0;
    if (gap < -1100) {
        *out = tv_float(x.neg != y.neg ? -0.0 : 0.0);
        return true;
    }
    uint32_t nu = shift_left(u, x.limb, x.n, (uint32_t)shift);
    memcpy(v, y.limb, y.n * sizeof *v);
    div_limbs(u, nu, v, y.n, q, &nq, rem, &nrem);
    int      up = 0;
    uint64_t m = leading(q, nq, &up) | (nrem != 0);
    double   d = ldexp((double)m, up - (int)shift);
    if (isinf(d)) return tmpl_fail(e, "integer division result too large for a float");
    *out = tv_float(x.neg != y.neg ? -d : d);
    return true;
}

/* ---------------------------------------------------------------- text */

bool big_put_digits(struct tmpl_eval *e, const struct tv *v, uint32_t base, struct buf *b)
{
    struct whole w;
    uint32_t     r[BIG_LIMBS_MAX + 2];
    char         text[BIG_BITS_MAX + 64];
    size_t       at = sizeof text;
    uint32_t     chunk = 1u << 28, digits = 28; /* the largest power of the base that fits a limb, and its exponent */
    if (base == 10) {
        chunk = 1000000000;
        digits = 9;
    } else if (base == 8) {
        chunk = 1u << 30;
        digits = 10;
    } else if (base == 16) {
        digits = 7;
    }
    take_apart(v, &w);
    memcpy(r, w.limb, w.n * sizeof *r);
    if (!tmpl_steps(e, (uint64_t)w.n * w.n / 64)) return false;
    for (uint32_t n = w.n; n;) {
        uint32_t part = div_small(r, n, chunk);
        n = trimmed(r, n);
        for (uint32_t i = 0; i < digits && (n || part); i++) {
            text[--at] = "0123456789abcdef"[part % base];
            part /= base;
        }
    }
    if (at == sizeof text) text[--at] = '0';
    if (base == 10 && sizeof text - at > BIG_DIGITS_MAX)
        return tmpl_fail(e, "an integer of more than %d digits as text", BIG_DIGITS_MAX);
    buf_put(b, text + at, sizeof text - at);
    return true;
}

static uint32_t digit_of(char c)
{
    if (c >= '0' && c <= '9') return (uint32_t)(c - '0');
    if (c >= 'a' && c <= 'z') return (uint32_t)(c - 'a') + 10;
    return c >= 'A' && c <= 'Z' ? (uint32_t)(c - 'A') + 10 : 99;
}

bool big_parse(struct arena *a, const char *s, size_t n, uint32_t base, bool neg, struct tv *out)
{
    uint32_t r[ROOM], k = 0;
    if (n > (base > 8 ? BIG_DIGITS_MAX : BIG_BITS_MAX)) return false;
    for (size_t i = 0; i < n; i++) {
        uint64_t carry = digit_of(s[i]);
        for (uint32_t j = 0; j < k; j++) {
            carry += (uint64_t)r[j] * base;
            r[j] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry && k == BIG_LIMBS_MAX) return false;
        if (carry) r[k++] = (uint32_t)carry;
    }
    return make(a, neg, r, k, out);
}
