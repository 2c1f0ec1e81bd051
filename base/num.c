#include "base/num.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int num_digits(double v, char digits_out[NUM_DIGITS_MAX + 1], int *point_out)
{
    /* 15 digits survive decimal -> double -> decimal, unless the double is subnormal; 17 always survive the other way
     * round (IEEE 754-2008, 5.12.2). */
    char text[40];
    v = fabs(v);
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
