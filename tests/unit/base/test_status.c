#include "test.h"
#include "base/status.h"

static const enum status all[] = { ST_OK,        ST_AGAIN, ST_INVALID,   ST_TOO_LARGE, ST_CANCELED, ST_TIMEOUT,
                                   ST_NOT_FOUND, ST_IO,    ST_PEER_LOST, ST_NOMEM,     ST_DEVICE,   ST_CONFIG };

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(all); i++) {
        assert_string_not_equal(status_name(all[i]), "unknown");
        for (size_t k = 0; k < i; k++) assert_string_not_equal(status_name(all[i]), status_name(all[k]));
    }
}

static void an_unknown_status_has_the_name_unknown(void **state)
{
    (void)state;
    assert_string_equal(status_name((enum status) - 999), "unknown");
    assert_string_equal(status_name((enum status)77), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_a_name_of_its_own),
        cmocka_unit_test(an_unknown_status_has_the_name_unknown),
    };
    return cmocka_run_group_tests_name("base/status", tests, NULL, NULL);
}
