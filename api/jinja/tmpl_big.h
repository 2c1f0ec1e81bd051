/* tmpl_big: Python's integers beyond 64 bits, up to BIG_BITS_MAX.   Thread: the renderer's; for literals the parser's.
 * A TV_BIG never fits an int64_t: a number that fits is a TV_INT. Results lie in the render's arena, and each operation
 * costs steps. A function that takes e returns false after an error, which tmpl_fail or tmpl_over has recorded. */
#pragma once
#include "api/jinja/tmpl_value.h"

enum {
    BIG_BITS_MAX = 16384, /* a larger result is an error */
    BIG_LIMBS_MAX = BIG_BITS_MAX / 32,
    BIG_DIGITS_MAX = 4300, /* of a decimal text that is read or written: Python's own limit */
};
struct tv_big {
    bool     neg;
    uint32_t n;      /* limbs, the last one not 0 */
    uint32_t limb[]; /* [n], the lowest first */
};

/* op: + - * // % **. a, b: TV_INT, TV_BOOL or TV_BIG. */
bool big_op(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out);
bool big_negate(struct tmpl_eval *e, const struct tv *v, struct tv *out);
bool big_true_div(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out);
/* Return -1, 0 or 1. big_compare_float: a is a TV_BIG, y is no NaN. */
int big_compare(const struct tv *a, const struct tv *b);
int big_compare_float(const struct tv *a, double y);
/* Rounds half to even; infinite if no double is as large. */
double big_to_double(const struct tv *v);
bool   big_from_double(struct tmpl_eval *e, double f, struct tv *out); /* f is finite; rounds towards zero */
/* Appends the digits to b without sign, in lower case. base: 2, 8, 10 or 16. More than BIG_DIGITS_MAX decimal digits
 * are an error. */
bool big_put_digits(struct tmpl_eval *e, const struct tv *v, uint32_t base, struct buf *b);
/* s: n digits, without sign and underscores. base: 2 to 36. a: gets the TV_BIG. False: there are too many digits. */
bool big_parse(struct arena *a, const char *s, size_t n, uint32_t base, bool neg, struct tv *out);
