/* num: the shortest decimal digits of a double, whatever the locale.   Thread: any. */
#pragma once

enum { NUM_DIGITS_MAX = 17 };

/* v finite and not 0: |v| is 0.DIGITS * 10^point with the fewest digits that read back equal; NUL-terminated, no
 * trailing zero. Returns how many digits. */
int num_digits(double v, char digits_out[NUM_DIGITS_MAX + 1], int *point_out);
