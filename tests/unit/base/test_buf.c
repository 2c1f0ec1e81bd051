#include "test.h"
#include "base/buf.h"

static void bytes_are_appended_and_grow(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_string_equal(buf_cstr(&b), "");
    for (int i = 0; i < 10000; i++) {
        buf_puts(&b, "ab");
        buf_putc(&b, 'c');
    }
    assert_false(b.failed);
    assert_int_equal(b.n, 30000);
    for (int i = 0; i < 30000; i++) assert_int_equal(b.data[i], "abc"[i % 3]);
    assert_int_equal(strlen(buf_cstr(&b)), 30000);
    assert_int_equal(b.n, 30000);
    buf_free(&b);
    assert_int_equal(b.n, 0);
    buf_puts(&b, "again"); /* a freed buf is an empty one */
    assert_string_equal(buf_cstr(&b), "again");
    buf_free(&b);
}

static void the_ceiling_is_exact_and_the_terminator_is_beyond_it(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1000);
    for (int i = 0; i < 1000; i++) buf_putc(&b, 'x');
    assert_false(b.failed);
    assert_int_equal(strlen(buf_cstr(&b)), 1000);
    assert_false(b.failed);
    buf_putc(&b, 'y');
    assert_true(b.failed);
    assert_int_equal(b.n, 1000);
    buf_free(&b);
}

static void failure_sticks_until_it_is_cleared(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 4);
    buf_puts(&b, "12345");
    assert_true(b.failed);
    buf_puts(&b, "1"); /* would fit, but the text would have a hole */
    assert_int_equal(b.n, 0);
    assert_null(buf_reserve(&b, 1));
    assert_string_equal(buf_cstr(&b), "");
    buf_clear(&b);
    buf_puts(&b, "1234");
    assert_false(b.failed);
    assert_string_equal(buf_cstr(&b), "1234");
    buf_free(&b);
}

static void printf_writes_short_long_and_too_long_text(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 2000);
    buf_printf(&b, "%d-%s", 42, "x");
    assert_string_equal(buf_cstr(&b), "42-x");
    buf_printf(&b, "%0999d", 7);
    assert_int_equal(b.n, 1003);
    assert_int_equal(b.data[1002], '7');
    buf_printf(&b, "%0997d", 8);
    assert_false(b.failed);
    assert_int_equal(b.n, 2000);
    assert_int_equal(strlen(buf_cstr(&b)), 2000);
    buf_printf(&b, "%s", "");
    assert_false(b.failed);
    buf_printf(&b, "%01000d", 9);
    assert_true(b.failed);
    buf_free(&b);
}

static void reserve_gives_room_that_the_caller_fills(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 16);
    char *p = buf_reserve(&b, 5000);
    assert_non_null(p);
    memset(p, 'z', 5000);
    b.n += 3; /* less than reserved is fine */
    assert_string_equal(buf_cstr(&b), "zzz");
    assert_null(buf_reserve(&b, SIZE_MAX));
    assert_true(b.failed);
    buf_free(&b);
}

static void a_ceiling_of_nothing_and_of_everything_work(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 0);
    buf_put(&b, NULL, 0);
    assert_false(b.failed);
    assert_string_equal(buf_cstr(&b), "");
    buf_putc(&b, 'x');
    assert_true(b.failed);
    buf_free(&b);
    buf_init(&b, SIZE_MAX);
    buf_puts(&b, "x");
    assert_string_equal(buf_cstr(&b), "x");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_appended_and_grow),
        cmocka_unit_test(the_ceiling_is_exact_and_the_terminator_is_beyond_it),
        cmocka_unit_test(failure_sticks_until_it_is_cleared),
        cmocka_unit_test(printf_writes_short_long_and_too_long_text),
        cmocka_unit_test(reserve_gives_room_that_the_caller_fills),
        cmocka_unit_test(a_ceiling_of_nothing_and_of_everything_work),
    };
    return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
