#include "base/rng.h"
#include "kernels/cpu/gemm.h"
#include "kernels/weigh.h"
#include "tests/test.h"

static uint64_t random64(uint64_t i)
{
    struct rng_block b = rng_philox(3, 1, i);
    return (uint64_t)b.x[0] << 32 | b.x[1];
}

static void a_weight_is_the_nearest_integer(void **state)
{
    (void)state;
    assert_int_equal(weigh(0), 0);
    assert_int_equal(weigh(1), 1ull << 42);
    assert_int_equal(weigh(0x1p-43f), 0); /* ties to even */
    assert_int_equal(weigh(0x1.8p-42f), 2);
    assert_int_equal(weigh(0x1.000002p-43f), 1);
    for (uint64_t i = 0; i < 100000; i++) {
        float e = ldexpf(rng_unit((uint32_t)random64(i)), -(int)(i % 50));
        assert_int_equal(weigh(e), (uint64_t)llrint(ldexp((double)e, 42)));
    }
}

static void the_lanes_sum_the_same_integers(void **state)
{
    (void)state;
    static const char *const name[] = { "scalar", "avx2", "avx512", "neon" };
    for (int v = 0; v < 4; v++) {
        const struct cpu_isa *isa = cpu_isa_pick(name[v]);
        const struct simd    *simd = isa ? isa->v : NULL;
        for (uint32_t n = 1; simd && n <= SIMD_WEIGH_MAX; n++) {
            float    x[SIMD_WEIGH_MAX], e[SIMD_WEIGH_MAX], min = n % 3 ? 0 : 0.01f;
            uint64_t want = 0;
            for (uint32_t i = 0; i < n; i++) {
                float spread = i % 5 ? 40.0f : 2.0f;
                x[i] = n % 7 == 0 ? 2 : 2 + spread * log2f(rng_unit((uint32_t)random64(n * 256 + i)));
            }
            if (n > 9) x[9] = -INFINITY;
            uint64_t got = simd->weigh(e, x, 2, min, n);
            for (uint32_t i = 0; i < n; i++) {
                want += weigh(e[i]);
                if (e[i] > 0) assert_true(e[i] >= min && fabs(log((double)e[i]) - ((double)x[i] - 2)) < 1e-5);
            }
            assert_int_equal(got, want);
            assert_int_equal(simd->weigh(NULL, x, 2, min, n), want);
        }
    }
}

__extension__ typedef unsigned __int128 u128;

static void shares_are_exact(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t total = (random64(2 * i) >> (1 + i % 22)) | 1;
        uint32_t x = (uint32_t)random64(2 * i + 1);
        float    p = ldexpf(rng_unit(x), -(int)(i % 40));
        u128     part = ((u128)total * (uint64_t)ldexp((double)p, 32) + 0xffffffffu) >> 32;
        assert_int_equal(weigh_part(total, p), part ? (uint64_t)part : 1);
        assert_true(weigh_part(total, p) <= total);
        assert_int_equal(weigh_place(total, x),
                         (uint64_t)((u128)total * (uint64_t)ldexp((double)rng_unit(x), 24) >> 24));
        assert_true(weigh_place(total, x) < total);
    }
    assert_int_equal(weigh_part(1000, 0), 1);
    assert_int_equal(weigh_part(1000, -3), 1);
    assert_int_equal(weigh_part(1ull << 62, 0.5f), 1ull << 61);
    assert_int_equal(weigh_place(1, UINT32_MAX), 0);
}

static void the_logarithm_is_right(void **state)
{
    (void)state;
    assert_true(weigh_log(1ull << 42) == 0);
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t total = (random64(i) >> (1 + i % 63)) | 1;
        double   want = (double)logl((long double)total / 0x1p42L);
        assert_true(fabs(weigh_log(total) - want) <= 4e-16 * (2 + fabs(want)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_is_the_nearest_integer),
        cmocka_unit_test(the_lanes_sum_the_same_integers),
        cmocka_unit_test(shares_are_exact),
        cmocka_unit_test(the_logarithm_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
