#include "server/strikes.h"
#include "test.h"

enum { S = 1000000 };

static struct peer at(const char *v6_bytes) /* 16 bytes */
{
    struct peer p;
    memcpy(p.address, v6_bytes, sizeof p.address);
    return p;
}
static struct peer v4(unsigned char last)
{
    return at((const char[]){ 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (char)0xff, (char)0xff, 10, 0, 0, (char)last });
}

static void J5_wrong_keys_of_an_address_are_slowed(void **state)
{
    (void)state;
    struct strikes *s;
    uint64_t        now = 100 * S;
    assert_int_equal(strikes_create(10, &s), ST_OK);
    for (uint32_t i = 0; i < 10; i++) {
        assert_false(strikes_slowed(s, v4(1), 0, now));
        assert_int_equal(strikes_wrong(s, v4(1), now), i + 1);
    }
    assert_true(strikes_slowed(s, v4(1), 0, now));
    assert_true(strikes_slowed(s, v4(1), 77, now)); /* a right key that was never seen from there may be a guess */
    assert_false(strikes_slowed(s, v4(2), 0, now)); /* others are not touched */
    now += S;
    assert_false(strikes_slowed(s, v4(1), 0, now)); /* one more try */
    strikes_wrong(s, v4(1), now);
    assert_true(strikes_slowed(s, v4(1), 0, now + S / 2));
    now += 20 * S;
    for (int i = 0; i < 10; i++) {
        assert_false(strikes_slowed(s, v4(1), 0, now));
        strikes_wrong(s, v4(1), now);
    }
    assert_true(strikes_slowed(s, v4(1), 0, now));
    strikes_free(s);
}

static void J5_keys_that_were_right_from_there_pass_meanwhile(void **state)
{
    (void)state;
    struct strikes *s;
    uint64_t        now = 100 * S;
    assert_int_equal(strikes_create(3, &s), ST_OK);
    for (uint64_t tenant = 1; tenant <= 16; tenant++) strikes_right(s, v4(1), tenant, now);
    for (int i = 0; i < 5; i++) strikes_wrong(s, v4(1), now);
    for (uint64_t tenant = 1; tenant <= 16; tenant++) assert_false(strikes_slowed(s, v4(1), tenant, now));
    assert_true(strikes_slowed(s, v4(1), 17, now));
    assert_true(strikes_slowed(s, v4(1), 0, now));
    strikes_free(s);
}

static void an_ipv6_address_counts_by_its_first_half(void **state)
{
    (void)state;
    struct strikes *s;
    struct peer     a = at("\x20\x01\x0d\xb8\0\0\0\1aaaaaaaa"), b = at("\x20\x01\x0d\xb8\0\0\0\1bbbbbbbb"),
                c = at("\x20\x01\x0d\xb8\0\0\0\2aaaaaaaa");
    assert_int_equal(strikes_create(2, &s), ST_OK);
    strikes_wrong(s, a, S);
    strikes_wrong(s, b, S);
    assert_true(strikes_slowed(s, a, 0, S));
    assert_true(strikes_slowed(s, b, 0, S));
    assert_false(strikes_slowed(s, c, 0, S));
    strikes_free(s);
}

static void many_addresses_take_no_more_memory_and_the_newest_are_known(void **state)
{
    (void)state;
    struct strikes *s;
    assert_int_equal(strikes_create(2, &s), ST_OK);
    struct peer p = v4(0);
    for (uint32_t i = 0; i < 200000; i++) {
        memcpy(p.address + 12, &i, sizeof i);
        strikes_wrong(s, p, S + i);
        strikes_wrong(s, p, S + i);
        assert_true(strikes_slowed(s, p, 0, S + i));
    }
    strikes_free(s);
}

static void zero_slows_nobody(void **state)
{
    (void)state;
    struct strikes *s;
    assert_int_equal(strikes_create(0, &s), ST_OK);
    for (int i = 0; i < 100; i++) {
        strikes_wrong(s, v4(1), S);
        assert_false(strikes_slowed(s, v4(1), 0, S));
    }
    strikes_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J5_wrong_keys_of_an_address_are_slowed),
        cmocka_unit_test(J5_keys_that_were_right_from_there_pass_meanwhile),
        cmocka_unit_test(an_ipv6_address_counts_by_its_first_half),
        cmocka_unit_test(many_addresses_take_no_more_memory_and_the_newest_are_known),
        cmocka_unit_test(zero_slows_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
