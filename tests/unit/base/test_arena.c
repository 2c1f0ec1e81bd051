#include "test.h"
#include "base/arena.h"

static void memory_is_aligned_and_does_not_overlap(void **state)
{
    (void)state;
    struct arena   a;
    unsigned char *p[500];
    arena_init(&a, 1 << 20);
    for (size_t i = 0; i < ARRAY_N(p); i++) {
        p[i] = arena_alloc(&a, i);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        memset(p[i], (int)(i & 0xff), i);
    }
    for (size_t i = 0; i < ARRAY_N(p); i++)
        for (size_t k = 0; k < i; k++) assert_int_equal(p[i][k], i & 0xff);
    arena_free(&a);
    assert_int_equal(a.bytes, 0);
}

static void the_bound_of_an_arena_holds_and_smaller_requests_succeed(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 100000);
    assert_null(arena_alloc(&a, 100000)); /* its header counts too */
    assert_int_equal(a.bytes, 0);
    assert_non_null(arena_alloc(&a, 90000));
    assert_true(a.bytes <= 100000);
    size_t n = 0;
    while (arena_alloc(&a, 64)) n++;
    assert_in_range(n, 140, 160);
    assert_true(a.bytes <= 100000);
    arena_free(&a);
}

static void absurd_sizes_give_null(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, SIZE_MAX);
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 20));
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_strndup(&a, "x", SIZE_MAX));
    arena_free(&a);
}

static void calloc_is_zero_even_after_a_reset(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 16);
    memset(arena_alloc(&a, 2000), 0xee, 2000);
    arena_reset(&a);
    unsigned char *p = arena_calloc(&a, 500, 4);
    for (int i = 0; i < 2000; i++) assert_int_equal(p[i], 0);
    arena_free(&a);
}

static void a_reset_keeps_one_chunk_and_gives_the_same_place_again(void **state)
{
    (void)state;
    struct arena a;
    arena_init(&a, 1 << 22);
    void  *first = arena_alloc(&a, 100);
    size_t bytes = a.bytes;
    for (int i = 0; i < 1000; i++) assert_non_null(arena_alloc(&a, 1000));
    assert_true(a.bytes > bytes);
    arena_reset(&a);
    assert_int_equal(a.bytes, bytes);
    assert_ptr_equal(arena_alloc(&a, 100), first);
    arena_reset(&a);
    arena_free(&a);
    arena_reset(&a); /* of an empty one */
    assert_int_equal(a.bytes, 0);
}

static void strings_are_copied_and_terminated(void **state)
{
    (void)state;
    struct arena a;
    char         src[] = "spill";
    arena_init(&a, 1 << 16);
    char *s = arena_strdup(&a, src), *t = arena_strndup(&a, src, 3), *u = arena_strndup(&a, "a\0b", 3),
         *none = arena_strndup(&a, NULL, 0);
    src[0] = 'X';
    assert_string_equal(s, "spill");
    assert_memory_equal(t, "spi\0", 4);
    assert_memory_equal(u, "a\0b\0", 4);
    assert_string_equal(none, "");
    assert_null(arena_strdup(&a, NULL));
    arena_free(&a);
}

/* There where AddressSanitizer is linked in, whatever the compiler's macros say. */
int __asan_address_is_poisoned(void const volatile *p) __attribute__((weak));

static void address_sanitizer_is_told_what_is_free(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    assert_true(__asan_address_is_poisoned != NULL);
#endif
    if (!__asan_address_is_poisoned) return; /* there is nobody to tell */
    struct arena a;
    arena_init(&a, 1 << 16);
    unsigned char *p = arena_alloc(&a, 24);
    assert_false(__asan_address_is_poisoned(p + 23));
    assert_true(__asan_address_is_poisoned(p + 24));
    arena_reset(&a);
    assert_true(__asan_address_is_poisoned(p));
    assert_ptr_equal(arena_alloc(&a, 24), p);
    assert_false(__asan_address_is_poisoned(p));
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_does_not_overlap),
        cmocka_unit_test(the_bound_of_an_arena_holds_and_smaller_requests_succeed),
        cmocka_unit_test(absurd_sizes_give_null),
        cmocka_unit_test(calloc_is_zero_even_after_a_reset),
        cmocka_unit_test(a_reset_keeps_one_chunk_and_gives_the_same_place_again),
        cmocka_unit_test(strings_are_copied_and_terminated),
        cmocka_unit_test(address_sanitizer_is_told_what_is_free),
    };
    return cmocka_run_group_tests_name("base/arena", tests, NULL, NULL);
}
