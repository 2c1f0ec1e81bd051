#include "test.h"
#include "base/hash.h"
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <stdbool.h>
#endif

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
        for (int bit = 0; bit < 64; bit++)
            flips += (uint32_t)__builtin_popcountll(hash_u64(x * 977) ^ hash_u64((x * 977) ^ 1ull << bit));
    assert_in_range(flips, 64 * 64 * 31, 64 * 64 * 33);
}

static void combining_depends_on_order(void **state)
{
    (void)state;
    assert_true(hash_combine(hash_combine(0, 1), 2) != hash_combine(hash_combine(0, 2), 1));
    assert_true(hash_combine(0, 0) != 0);
}

#ifdef __x86_64__
/* Which parts of the vector registers the CPU calls in use, as far as it tells (XGETBV with ECX 1). */
__attribute__((target("avx,xsave"))) static uint64_t registers_in_use(bool clear)
{
    if (clear) _mm256_zeroupper();
    return _xgetbv(1);
}

/* Code of the oldest instruction set runs at half its speed while the upper halves are in use. */
static void no_hash_leaves_the_upper_halves_of_registers_in_use(void **state)
{
    (void)state;
    uint32_t eax = 0, ebx, ecx, edx;
    if (!__builtin_cpu_supports("avx") || !__get_cpuid_count(0xd, 1, &eax, &ebx, &ecx, &edx) || !(eax & 4))
        return; /* it cannot be asked */
    char    *bytes = test_malloc(1 << 16);
    uint64_t clear = registers_in_use(true);
    memset(bytes, 7, 1 << 16);
    (void)hash128_bytes(bytes, 1 << 16, 1);
    assert_int_equal(registers_in_use(false) & ~clear, 0);
    (void)registers_in_use(true);
    (void)hash_bytes(bytes, 1 << 16, 1);
    assert_int_equal(registers_in_use(false) & ~clear, 0);
    test_free(bytes);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_hash_by_content_length_and_seed),
        cmocka_unit_test(the_hash_is_xxh3_with_seed),
        cmocka_unit_test(one_flipped_bit_flips_about_half_of_the_hash),
#ifdef __x86_64__
        cmocka_unit_test(no_hash_leaves_the_upper_halves_of_registers_in_use),
#endif
        cmocka_unit_test(combining_depends_on_order),
    };
    return cmocka_run_group_tests_name("base/hash", tests, NULL, NULL);
}
