#include "api/pointer.h"
#include "test.h"

/* JSON pointers of errors. RFC 6901, section 5, has the names. */

static const char *after(const char *key)
{
    static struct pointer p;
    p = (struct pointer){ .text = "/a" };
    pointer_key(&p, key);
    return p.text;
}

static void a_name_is_one_step_whatever_it_holds(void **state)
{
    (void)state;
    assert_string_equal(after("foo"), "/a/foo");
    assert_string_equal(after(""), "/a/");
    assert_string_equal(after("a/b"), "/a/a~1b");
    assert_string_equal(after("m~n"), "/a/m~0n");
    assert_string_equal(after("~1"), "/a/~01");
    assert_string_equal(after("~/~"), "/a/~0~1~0");
    assert_string_equal(after("c%d e\"\\"), "/a/c%d e\"\\");
}

static void steps_are_taken_back(void **state)
{
    (void)state;
    struct pointer p = { .text = "" };
    size_t         first = pointer_key(&p, "a/b"), second = pointer_index(&p, 12);
    assert_string_equal(p.text, "/a~1b/12");
    pointer_leave(&p, second);
    assert_string_equal(p.text, "/a~1b");
    pointer_leave(&p, first);
    assert_string_equal(p.text, "");
}

/* Nested names until none fits, and back: what is shown is a whole beginning, and every step back finds its place. */
static void a_pointer_that_is_too_long_says_so(void **state)
{
    (void)state;
    static const char name[] = "~long/name~";
    struct pointer    p = { .text = "" };
    size_t            was[40];
    char              seen[40][POINTER_BYTES];
    for (int i = 0; i < 40; i++) {
        strcpy(seen[i], p.text);
        was[i] = pointer_key(&p, name);
        assert_true(strlen(p.text) < sizeof p.text);
    }
    assert_string_equal(p.text + strlen(p.text) - strlen("~0long~1name~0/..."), "~0long~1name~0/...");
    for (int i = 39; i >= 0; i--) {
        pointer_leave(&p, was[i]);
        assert_string_equal(p.text, seen[i]);
    }
    char wide[3 * POINTER_BYTES];
    memset(wide, '/', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    assert_string_equal(after(wide), "/a/...");
    size_t fits = (POINTER_BYTES - strlen("/a/") - sizeof "/...") / 2;
    wide[fits] = 0;
    assert_string_equal(after(wide) + strlen(after(wide)) - 4, "~1~1");
    memcpy(wide + fits, "/", sizeof "/");
    assert_string_equal(after(wide), "/a/...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_one_step_whatever_it_holds),
        cmocka_unit_test(steps_are_taken_back),
        cmocka_unit_test(a_pointer_that_is_too_long_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
