#include "test.h"
#include "kernels/cpu/copy.h"

static void every_place_and_length_is_copied_and_nothing_beside_it(void **state)
{
    (void)state;
    enum { N = 400 };
    _Alignas(64) unsigned char from[N], to[N], want[N];
    for (int i = 0; i < N; i++) from[i] = (unsigned char)(i * 7 + 1);
    for (size_t dst = 0; dst < 70; dst++)
        for (size_t n = 0; n < 260; n += n < 140 ? 1 : 17) {
            size_t src = (dst * 5 + n) % 67;
            memset(to, 0xee, N);
            memset(want, 0xee, N);
            memcpy(want + dst, from + src, n);
            copy_stream(to + dst, from + src, n);
            assert_memory_equal(to, want, N);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_place_and_length_is_copied_and_nothing_beside_it) };
    return cmocka_run_group_tests_name("base/copy", tests, NULL, NULL);
}
