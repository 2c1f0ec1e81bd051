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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_and_point_are_the_shortest_that_read_back),
        cmocka_unit_test(every_power_of_two_reads_back),
    };
    return cmocka_run_group_tests_name("base/num", tests, NULL, NULL);
}
