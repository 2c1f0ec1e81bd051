#include "base/num.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 6 }; /* decimals of the short way */

/* Most numbers that are printed have few decimals. The integer i of at most 15 digits with i / 10^6 == v gives the
 * decimal that is v, and no other of 15 digits or fewer is. Returns the number of digits, or 0 where there is no i. */
static int short_digits(double v, char *digits_out, int *point_out)
{
    double x = v * 1e6;
    if (!(x >= 1 && x < 1e15)) return 0;
    uint64_t i = (uint64_t)(x + 0.5);
    if (i >= 1000000000000000u || (double)i / 1e6 != v) return 0;
    char text[20];
    int  n = 0, first = sizeof text;
    for (uint64_t left = i; left; left /= 10) text[--first] = (char)('0' + left % 10);
    n = (int)sizeof text - first;
    *point_out = n - PLACES;
    while (n > 1 && text[first + n - 1] == '0') n--;
    memcpy(digits_out, text + first, (size_t)n);
    digits_out[n] = 0;
    return n;
}

int num_digits(double v, char digits_out[NUM_DIGITS_MAX + 1], int *point_out)
{
    /* 15 digits survive decimal -> double -> decimal, unless the double is subnormal; 17 always survive the other way
     * round (IEEE 754-2008, 5.12.2). */
    char text[40];
    v = fabs(v);
    int short_n = short_digits(v, digits_out, point_out);
    if (short_n) return short_n;
    for (int precision = v < DBL_MIN ? 0 : 14; precision <= 16; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, v);
        if (strtod(text, NULL) == v) break;
    }
    int   n = 0;
    char *p = text;
    for (; *p && *p != 'e'; p++) /* skips the decimal point, which the locale may have chosen */
        if (*p >= '0' && *p <= '9' && n < NUM_DIGITS_MAX) digits_out[n++] = *p;
    *point_out = (*p == 'e' ? (int)strtol(p + 1, NULL, 10) : 0) + 1;
    while (n > 1 && digits_out[n - 1] == '0') n--;
    digits_out[n] = 0;
    return n;
}
