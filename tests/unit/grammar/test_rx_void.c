#include "test.h"
#include "engine/grammar/rx.h"
#include "engine/grammar/rx_utf8.h"

/* A twentieth of what a step of the automaton may cost (lex.c). */
static const struct rx_limits limits = { .node_max = 200000, .fuel = 200000, .depth_max = 500 };

/* A JSON string of at least min characters in which each of these bytes stands. */
static uint32_t password(struct rx *x, uint32_t min, const char *with)
{
    uint32_t quote = rx_of_byte(x, '"'),
             one = rx_or(x, (uint32_t[]){ rx_json_plain(x), rx_of_byte(x, '<'), rx_of_bytes(x, "\\n", 2) }, 3);
    uint32_t any = rx_repeat(x, one, 0, RX_MANY), all = rx_repeat(x, one, min, RX_MANY);
    for (; *with; with++) all = rx_and2(x, all, rx_cat(x, any, rx_cat(x, rx_of_byte(x, (unsigned char)*with), any)));
    return rx_cat(x, quote, rx_cat(x, all, quote));
}

static void a_long_text_with_some_letters_is_found_in_few_steps(void **state)
{
    (void)state;
    static const struct {
        uint32_t    min;
        const char *with;
    } row[] = { { 9, "x" }, { 12, "aA0" }, { 400, "x" }, { 0, "aA0!#" } };
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        struct rx *x = rx_create(&limits);
        uint8_t    kind[256];
        uint32_t   a = password(x, row[i].min, row[i].with);
        rx_kinds(x, kind);
        if (rx_is_void(x, a) || rx_status(x)) fail_msg("%u with %s: %d", row[i].min, row[i].with, (int)rx_status(x));
        /* and those behind its beginning, with what is known by now */
        static const char begin[] = "\"b\xc3\xa9";
        for (const char *c = begin; *c; c++) {
            rx_refuel(x, 20000);
            a = rx_derive(x, a, kind[(unsigned char)*c]);
            assert_false(rx_is_void(x, a));
            assert_int_equal(rx_status(x), ST_OK);
        }
        rx_free(x);
    }
}

/* The measure says that there is one near: the search still ends with the truth. */
static void a_text_that_only_seems_near_is_none(void **state)
{
    (void)state;
    struct rx *x = rx_create(&limits);
    uint8_t    kind[256];
    uint32_t   a = rx_of_byte(x, 'a'), b = rx_of_byte(x, 'b'), any = rx_repeat(x, rx_or2(x, a, b), 0, RX_MANY);
    uint32_t odd = rx_cat(x, a, rx_repeat(x, rx_cat(x, a, a), 0, RX_MANY)), even = rx_repeat(x, rx_cat(x, a, a), 1, 90);
    uint32_t no_b = rx_not(x, rx_cat(x, any, rx_cat(x, b, any)));
    rx_kinds(x, kind);
    assert_true(rx_is_void(x, rx_and2(x, odd, even)));
    assert_true(rx_is_void(x, rx_and(x, (uint32_t[]){ any, no_b, rx_cat(x, rx_repeat(x, a, 30, 60), b) }, 3)));
    assert_false(rx_is_void(x, rx_and(x, (uint32_t[]){ any, no_b, rx_repeat(x, a, 30, 60) }, 3)));
    assert_int_equal(rx_status(x), ST_OK);
    rx_free(x);
}

static void what_has_no_end_in_sight_runs_out_of_fuel(void **state)
{
    (void)state;
    struct rx *x = rx_create(&limits);
    uint8_t    kind[256];
    uint32_t   any = rx_or2(x, rx_of_byte(x, 'a'), rx_of_byte(x, 'b'));
    uint32_t   one = rx_cat(x, rx_repeat(x, any, 0, RX_MANY), rx_cat(x, rx_of_byte(x, 'a'), rx_repeat(x, any, 24, 24)));
    rx_kinds(x, kind);
    uint32_t a = rx_and2(x, one, rx_not(x, one)); /* 2^24 sets of places */
    if (!rx_status(x) && a != RX_NONE) (void)rx_is_void(x, a);
    assert_int_equal(rx_status(x), ST_TOO_LARGE);
    rx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_text_with_some_letters_is_found_in_few_steps),
        cmocka_unit_test(a_text_that_only_seems_near_is_none),
        cmocka_unit_test(what_has_no_end_in_sight_runs_out_of_fuel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
