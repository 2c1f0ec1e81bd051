#include "test.h"
#include "base/dtype.h"
#include <math.h>

static uint32_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void every_f16_goes_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 65536; x++) {
        float f = f16_to_f32((f16)x);
        f16   y = f32_to_f16(f);
        if ((x & 0x7fff) > 0x7c00) {
            assert_true(isnan(f));
            assert_int_equal(y, x | 0x200); /* quiet, otherwise kept */
        } else {
            assert_int_equal(y, x);
        }
    }
}

/* The value of a finite f16 by its definition. */
static double f16_value(uint32_t x)
{
    uint32_t exp = x >> 10 & 0x1f, frac = x & 0x3ff;
    double   v = exp ? ldexp(1024 + frac, (int)exp - 25) : ldexp(frac, -24);
    return x & 0x8000 ? -v : v;
}

static void f16_values_follow_the_format(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 65536; x++)
        if ((x >> 10 & 0x1f) != 0x1f) assert_true(f16_to_f32((f16)x) == f16_value(x));
    assert_true(f16_to_f32(0x7c00) == INFINITY);
    assert_true(f16_to_f32(0xfc00) == -INFINITY);
    assert_int_equal(bits(f16_to_f32(0x8000)), 0x80000000u);
}

static void f16_rounds_to_nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 0x7bff; x++) { /* every gap between two neighbours, subnormals too */
        double lo = f16_value(x), hi = f16_value(x + 1);
        float  mid = (float)((lo + hi) / 2); /* exact: 12 bits */
        assert_int_equal(f32_to_f16(mid), x & 1 ? x + 1 : x);
        assert_int_equal(f32_to_f16(nextafterf(mid, -1)), x);
        assert_int_equal(f32_to_f16(nextafterf(mid, INFINITY)), x + 1);
        assert_int_equal(f32_to_f16(-nextafterf(mid, INFINITY)), (x + 1) | 0x8000);
    }
    assert_int_equal(f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(f32_to_f16(1e-30f), 0);
    assert_int_equal(f32_to_f16(-1e-30f), 0x8000);
    assert_int_equal(f32_to_f16(0x1p-25f), 0); /* the tie with zero */
    assert_int_equal(f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
}

static void every_bf16_goes_to_f32_and_back(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 65536; x++) {
        float f = bf16_to_f32((bf16)x);
        assert_int_equal(bits(f), x << 16);
        assert_int_equal(f32_to_bf16(f), isnan(f) ? x | 0x40 : x);
    }
}

static void bf16_rounds_to_nearest_and_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 0x7f80; x++) {
        assert_int_equal(f32_to_bf16(from_bits(x << 16 | 0x8000)), x & 1 ? x + 1 : x);
        assert_int_equal(f32_to_bf16(from_bits(x << 16 | 0x7fff)), x);
        assert_int_equal(f32_to_bf16(from_bits(x << 16 | 0x8001)), x + 1);
    }
    assert_int_equal(f32_to_bf16(from_bits(0x7f7fffff)), 0x7f80); /* the largest float is nearer to infinity */
    assert_int_equal(f32_to_bf16(from_bits(0x7f800001)), 0x7fc0); /* a NaN whose payload would be cut off stays one */
    assert_int_equal(f32_to_bf16(from_bits(0xffffffff)), 0xffff);
}

static void scales_of_a_byte_are_powers_of_two(void **state)
{
    (void)state;
    for (uint32_t x = 0; x < 255; x++) {
        assert_true(f8e8m0_to_f32((uint8_t)x) == ldexpf(1, (int)x - 127));
        assert_int_equal(f32_to_f8e8m0(ldexpf(1, (int)x - 127)), x);
    }
    assert_false(isfinite(f8e8m0_to_f32(255)));
}

/* Against all codes, in doubles: the nearest, of two the even one, at most 448. */
static uint8_t nearest_f8(float x)
{
    double  size = fabs((double)x), best = 1e300;
    uint8_t code = 0;
    for (uint8_t c = 0; c < 0x7f; c++) {
        double d = fabs((double)f8e4m3_to_f32(c) - size);
        if (d < best || (d == best && c % 2 == 0)) code = c;
        if (d < best) best = d;
    }
    return (uint8_t)(code | (signbit(x) ? 0x80 : 0));
}
static void e4m3_rounds_to_nearest_and_ties_to_even_and_has_no_more_than_448(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 256; c++) {
        float x = f8e4m3_to_f32((uint8_t)c);
        if ((c & 0x7f) == 0x7f) {
            assert_true(isnan(x) && (f32_to_f8e4m3(x) & 0x7f) == 0x7f);
            continue;
        }
        assert_int_equal(f32_to_f8e4m3(x), c);
        float next = (c & 0x7f) == 0x7e ? 2 * x : f8e4m3_to_f32((uint8_t)(c + 1)), half = (x + next) / 2;
        float near[] = { half, nextafterf(half, x), nextafterf(half, next), nextafterf(x, next), nextafterf(x, -next) };
        for (size_t i = 0; i < sizeof near / sizeof *near; i++)
            assert_int_equal(f32_to_f8e4m3(near[i]), nearest_f8(near[i]));
    }
    for (uint32_t u = 0; u < 0x7f800000u; u += 9973) {
        float x;
        memcpy(&x, &u, 4);
        assert_int_equal(f32_to_f8e4m3(x), nearest_f8(x));
        assert_int_equal(f32_to_f8e4m3(-x), nearest_f8(-x));
    }
    assert_int_equal(f32_to_f8e4m3(INFINITY), 0x7e);
    assert_int_equal(f32_to_f8e4m3(-INFINITY), 0xfe);
}

static void numbers_of_4_bits_are_halves_below_2_and_coarser_above(void **state)
{
    (void)state;
    static const float size[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    for (uint32_t x = 0; x < 8; x++) {
        assert_true(f4e2m1_to_f32(x) == size[x] && f4e2m1_to_f32(x | 8) == -size[x]);
        assert_int_equal(bits(f4e2m1_to_f32(x | 8)), bits(f4e2m1_to_f32(x)) | 0x80000000u);
    }
}

static void names_and_sizes_are_known(void **state)
{
    (void)state;
    assert_string_equal(dtype_name(DT_F32), "f32");
    assert_string_equal(dtype_name(DT_I4), "i4");
    assert_string_equal(dtype_name((enum dtype)99), "unknown");
    assert_string_equal(dtype_name((enum dtype) - 1), "unknown");
    for (int t = 0; t < DT_COUNT; t++) assert_non_null(dtype_name((enum dtype)t));
    assert_int_equal(dtype_bytes(DT_F32), 4);
    assert_int_equal(dtype_bytes(DT_BF16), 2);
    assert_int_equal(dtype_bytes(DT_F8E4M3), 1);
    assert_int_equal(dtype_bytes(DT_F4E2M1), 1);
    for (int t = 0; t < DT_COUNT; t++) assert_true(dtype_is_half_byte((enum dtype)t) == (t == DT_I4 || t == DT_F4E2M1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_goes_to_f32_and_back),
        cmocka_unit_test(f16_values_follow_the_format),
        cmocka_unit_test(f16_rounds_to_nearest_and_ties_to_even),
        cmocka_unit_test(every_bf16_goes_to_f32_and_back),
        cmocka_unit_test(bf16_rounds_to_nearest_and_ties_to_even),
        cmocka_unit_test(names_and_sizes_are_known),
        cmocka_unit_test(scales_of_a_byte_are_powers_of_two),
        cmocka_unit_test(e4m3_rounds_to_nearest_and_ties_to_even_and_has_no_more_than_448),
        cmocka_unit_test(numbers_of_4_bits_are_halves_below_2_and_coarser_above),
    };
    return cmocka_run_group_tests_name("base/dtype", tests, NULL, NULL);
}
