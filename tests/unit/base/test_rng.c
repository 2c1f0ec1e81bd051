#include "test.h"
#include "base/rng.h"

static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    /* Known answers of Random123, philox4x32 10. Its counter is (c0 c1 c2 c3), its key (k0 k1). */
    struct rng_block r = rng_philox(0, 0, 0);
    assert_true(r.x[0] == 0x6627e8d5 && r.x[1] == 0xe169c58d && r.x[2] == 0xbc57ac4c && r.x[3] == 0x9b00dbd8);
    r = rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_true(r.x[0] == 0x408f276d && r.x[1] == 0x41c83b0e && r.x[2] == 0xa20bc7c6 && r.x[3] == 0x6d5451fd);
    r = rng_philox(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_true(r.x[0] == 0xd16cfe09 && r.x[1] == 0x94fdcceb && r.x[2] == 0x5001e420 && r.x[3] == 0x24126ea1);
}

static void units_lie_strictly_between_zero_and_one(void **state)
{
    (void)state;
    assert_true(rng_unit(0) > 0);
    assert_true(rng_unit(UINT32_MAX) < 1);
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++) sum += (double)rng_unit(rng_philox(7, 1, i).x[2]);
    assert_true(sum > 4900 && sum < 5100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(units_lie_strictly_between_zero_and_one),
    };
    return cmocka_run_group_tests_name("base/rng", tests, NULL, NULL);
}
