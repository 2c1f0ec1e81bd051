/* tmpl_big: whole numbers beyond 64 bits, as Python has them, up to BIG_BITS_MAX.   Thread: the renderer's (literals:
 * the parser's). A TV_BIG never fits an int64_t: whatever does is a TV_INT. Results come from the render's arena and
 * are charged as steps. */
#pragma once
#include "api/jinja/tmpl_value.h"

enum {
    BIG_BITS_MAX = 16384, /* a result beyond is an error that says so */
    BIG_LIMBS_MAX = BIG_BITS_MAX / 32,
    BIG_DIGITS_MAX = 4300, /* of a decimal text, in and out: Python's own limit */
};
struct tv_big {
    bool     neg;
    uint32_t n; /* limbs, the last one not 0 */
    uint32_t limb[];
};

/* + - * // % **. a, b: TV_INT, TV_BOOL or TV_BIG. */
bool big_op(struct tmpl_eval *e, uint8_t op, const struct tv *a, const struct tv *b, struct tv *out);
bool big_negate(struct tmpl_eval *e, const struct tv *v, struct tv *out);
bool big_true_div(struct tmpl_eval *e, const struct tv *a, const struct tv *b, struct tv *out);
/* -1, 0, 1. big_compare_float: y is no NaN. */
int big_compare(const struct tv *a, const struct tv *b);
int big_compare_float(const struct tv *a, double y);
/* Rounded half to even; infinite where no double is as large. */
double big_to_double(const struct tv *v);
bool   big_from_double(struct tmpl_eval *e, double f, struct tv *out); /* f is finite; towards zero */
/* The digits without sign; base 2, 8, 10 or 16, lower case. Decimal digits beyond BIG_DIGITS_MAX: an error. */
bool big_put_digits(struct tmpl_eval *e, const struct tv *v, uint32_t base, struct buf *b);
/* n digits of the base 2 to 36, no sign, no underscores. a: where a TV_BIG comes from. false: too many digits. */
bool big_parse(struct arena *a, const char *s, size_t n, uint32_t base, bool neg, struct tv *out);
