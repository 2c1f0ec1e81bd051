#include "server/sessions.h"
#include "test.h"
#include <ctype.h>

enum { LIFE_S = 10, MAX = 3 };
#define SECOND 1000000u

static struct sessions *s;

static int up(void **state)
{
    (void)state;
    return sessions_create(MAX, LIFE_S, &s);
}
static int down(void **state)
{
    (void)state;
    sessions_free(s);
    return 0;
}
static bool has(const char *id, uint64_t now_us) { return sessions_has(s, id, strlen(id), now_us); }
static void open_at(uint64_t now_us, char id[SESSION_ID_BYTES])
{
    assert_int_equal(sessions_open(s, now_us, id), ST_OK);
}

static void a_session_is_open_until_it_is_closed(void **state)
{
    (void)state;
    char a[SESSION_ID_BYTES], b[SESSION_ID_BYTES];
    open_at(1, a);
    open_at(1, b);
    assert_string_not_equal(a, b);
    assert_true(has(a, 2) && has(b, 2));
    assert_true(sessions_close(s, a, strlen(a), 2));
    assert_false(sessions_close(s, a, strlen(a), 2));
    assert_false(has(a, 2));
    assert_true(has(b, 2));
    assert_int_equal(sessions_seconds(s), LIFE_S);
}

static void an_id_has_the_form_that_the_platform_asks_for(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES];
    open_at(1, id);
    assert_int_equal(strlen(id), 36);
    for (size_t i = 0; i < 36; i++)
        assert_true(isalnum((unsigned char)id[i]) || (id[i] == '-' && isalnum((unsigned char)id[i + 1])));
    assert_int_equal(id[14], '4');
}

static void a_session_ends_with_its_life(void **state)
{
    (void)state;
    char a[SESSION_ID_BYTES], b[SESSION_ID_BYTES];
    open_at(0, a);
    open_at(5 * SECOND, b);
    assert_true(has(a, LIFE_S * SECOND - 1)); /* use does not prolong it */
    assert_false(has(a, LIFE_S * SECOND));
    assert_true(has(b, LIFE_S * SECOND));
    assert_false(sessions_close(s, b, strlen(b), 15 * SECOND));
}

static void no_more_are_open_than_the_bound_allows(void **state)
{
    (void)state;
    char id[MAX + 2][SESSION_ID_BYTES];
    for (int i = 0; i < MAX; i++) open_at((uint64_t)i * SECOND, id[i]);
    assert_int_equal(sessions_open(s, 3 * SECOND, id[MAX]), ST_AGAIN);
    assert_true(sessions_close(s, id[1], 36, 3 * SECOND));
    open_at(3 * SECOND, id[MAX]);
    assert_int_equal(sessions_open(s, 4 * SECOND, id[MAX + 1]), ST_AGAIN);
    open_at(LIFE_S * SECOND, id[MAX + 1]); /* the first has ended by itself */
    assert_false(has(id[0], LIFE_S * SECOND));
    assert_true(has(id[2], LIFE_S * SECOND) && has(id[MAX], LIFE_S * SECOND) && has(id[MAX + 1], LIFE_S * SECOND));
}

static void thousands_come_and_go(void **state)
{
    (void)state;
    enum { MANY = 5000 };
    static char      id[MANY][SESSION_ID_BYTES];
    struct sessions *all;
    assert_int_equal(sessions_create(MANY, LIFE_S, &all), ST_OK);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++) assert_int_equal(sessions_open(all, 1, id[i]), ST_OK);
        for (int i = 0; i < MANY; i += 2) assert_true(sessions_close(all, id[i], 36, 1));
        for (int i = 0; i < MANY; i++) assert_int_equal(sessions_has(all, id[i], 36, 1), i % 2);
        for (int i = 1; i < MANY; i += 2) assert_true(sessions_close(all, id[i], 36, 1));
    }
    sessions_free(all);
}

static void what_is_no_id_is_nobodys(void **state)
{
    (void)state;
    char id[SESSION_ID_BYTES], other[SESSION_ID_BYTES];
    open_at(1, id);
    memcpy(other, id, sizeof other);
    other[0] = other[0] == '0' ? '1' : '0';
    assert_false(has(other, 1));
    assert_false(has("", 1));
    assert_false(has("NEW_SESSION", 1));
    memcpy(other, id, sizeof other);
    other[8] = '0';
    assert_false(has(other, 1));
    memcpy(other, id, sizeof other);
    other[35] = 'g';
    assert_false(has(other, 1));
    assert_false(sessions_has(s, id, 35, 1));
    assert_false(sessions_has(s, "\0\0\0\0\0\0\0\0-\0\0\0\0-\0\0\0\0-\0\0\0\0-\0\0\0\0\0\0\0\0\0\0\0", 36, 1));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)
    const struct CMUnitTest tests[] = {
        TEST(a_session_is_open_until_it_is_closed),
        TEST(an_id_has_the_form_that_the_platform_asks_for),
        TEST(a_session_ends_with_its_life),
        TEST(no_more_are_open_than_the_bound_allows),
        TEST(thousands_come_and_go),
        TEST(what_is_no_id_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
