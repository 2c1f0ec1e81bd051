#include "test.h"
#include "base/hash.h"

static void bytes_hash_by_content_length_and_seed(void **state)
{
    (void)state;
    const char a[] = "the same bytes", b[] = "the same bytes";
    assert_true(hash_bytes(a, 14, 1) == hash_bytes(b, 14, 1));
    assert_true(hash_bytes(a, 14, 1) != hash_bytes(a, 14, 2));
    assert_true(hash_bytes(a, 14, 1) != hash_bytes(a, 13, 1));
    assert_true(hash_bytes("", 0, 1) != hash_bytes("", 0, 2));
}

static void the_hash_is_xxh3_with_seed(void **state)
{
    (void)state;
    /* xxHash's own value for the empty input and seed 0 */
    assert_true(hash_bytes("", 0, 0) == 0x2d06800538d394c2u);
}

static void one_flipped_bit_flips_about_half_of_the_hash(void **state)
{
    (void)state;
    uint32_t flips = 0;
    for (uint64_t x = 0; x < 64; x++)
        for (int bit = 0; bit < 64; bit++) flips += (uint32_t)__builtin_popcountll(hash_u64(x * 977) ^ hash_u64((x * 977) ^ 1ull << bit));
    assert_in_range(flips, 64 * 64 * 31, 64 * 64 * 33);
}

static void combining_depends_on_order(void **state)
{
    (void)state;
    assert_true(hash_combine(hash_combine(0, 1), 2) != hash_combine(hash_combine(0, 2), 1));
    assert_true(hash_combine(0, 0) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_hash_by_content_length_and_seed),
        cmocka_unit_test(the_hash_is_xxh3_with_seed),
        cmocka_unit_test(one_flipped_bit_flips_about_half_of_the_hash),
        cmocka_unit_test(combining_depends_on_order),
    };
    return cmocka_run_group_tests_name("base/hash", tests, NULL, NULL);
}
