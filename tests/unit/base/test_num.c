#include "test.h"
#include "base/num.h"
#include <float.h>
#include <math.h>

static void digits_and_point_are_the_shortest_that_read_back(void **state)
{
    (void)state;
    static const struct {
        double      v;
        const char *digits;
        int         point;
    } rows[] = { { 1, "1", 1 },
                 { -1, "1", 1 },
                 { 1200, "12", 4 },
                 { 0.001, "1", -2 },
                 { 0.1, "1", 0 },
                 { 123.456, "123456", 3 },
                 { 1.0 / 3, "3333333333333333", 0 },
                 { 0.1 + 0.2, "30000000000000004", 0 },
                 { 5e-324, "5", -323 },
                 { DBL_MIN, "22250738585072014", -307 },
                 { DBL_MAX, "17976931348623157", 309 } };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char digits[NUM_DIGITS_MAX + 1];
        int  point, n = num_digits(rows[i].v, digits, &point);
        assert_string_equal(digits, rows[i].digits);
        assert_int_equal(n, strlen(digits));
        assert_int_equal(point, rows[i].point);
    }
}

static void every_power_of_two_reads_back(void **state)
{
    (void)state;
    for (int e = -1074; e < 1024; e++) {
        char   digits[NUM_DIGITS_MAX + 1], text[64];
        int    point;
        double v = ldexp(1, e);
        num_digits(v, digits, &point);
        snprintf(text, sizeof text, "0.%se%d", digits, point);
        assert_true(strtod(text, NULL) == v);
    }
}

/* As every number was made before the short way was there. */
static void the_short_way_gives_the_same_digits(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u, n_short = 0;
    for (int i = 0; i < test_size(300000, 30000); i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        static const double scale[] = { 1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 3 };
        double              v = (double)(x >> (11 + x % 50)) / scale[x % ARRAY_N(scale)];
        char                digits[NUM_DIGITS_MAX + 1], text[64], slow[40];
        int                 point, n = num_digits(v, digits, &point), precision = 14;
        if (v == 0) continue;
        do snprintf(slow, sizeof slow, "%.*e", precision, v);
        while (strtod(slow, NULL) != v && precision++ < 16);
        char want[40];
        int  k = 0, exponent = (int)strtol(strchr(slow, 'e') + 1, NULL, 10);
        for (char *p = slow; *p != 'e'; p++)
            if (*p != '.') want[k++] = *p;
        while (k > 1 && want[k - 1] == '0') k--;
        want[k] = 0;
        assert_string_equal(digits, want);
        assert_int_equal(point, exponent + 1);
        assert_int_equal(n, k);
        n_short += v * 1e6 < 1e15 && precision == 14;
        snprintf(text, sizeof text, "0.%se%d", digits, point);
        assert_true(strtod(text, NULL) == v);
    }
    assert_true(n_short > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_and_point_are_the_shortest_that_read_back),
        cmocka_unit_test(the_short_way_gives_the_same_digits),
        cmocka_unit_test(every_power_of_two_reads_back),
    };
    return cmocka_run_group_tests_name("base/num", tests, NULL, NULL);
}
