#include "test.h"
#include "engine/grammar/rx_texts.h"
#include "rx_world.h"

static const struct rx_limits limits = { .node_max = 200000, .fuel = 5000000, .depth_max = 500 };

static struct rx *set(void)
{
    struct rx *x = rx_create(&limits);
    assert_non_null(x);
    return x;
}

/* What is left of an expression after some bytes. */
static uint32_t after(struct rx *x, uint32_t a, const uint8_t *kind, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) a = rx_derive(x, a, kind[(unsigned char)text[i]]);
    return a;
}

static bool matches(struct rx *x, uint32_t a, const char *text)
{
    uint8_t kind[256];
    rx_kinds(x, kind);
    return rx_nullable(x, after(x, a, kind, text, strlen(text)));
}

static void a_text_matches_what_its_expression_means(void **state)
{
    (void)state;
    struct rx      *x = set();
    struct rx_class digit = { { 0 } };
    rx_class_add(&digit, '0', '9');
    uint32_t d = rx_of_class(x, &digit), number = rx_cat(x, rx_of_byte(x, '-'), rx_repeat(x, d, 1, 3));
    assert_true(matches(x, number, "-1"));
    assert_true(matches(x, number, "-123"));
    assert_false(matches(x, number, "-1234"));
    assert_false(matches(x, number, "-"));
    assert_false(matches(x, number, "1"));
    assert_true(matches(x, rx_and2(x, number, rx_not(x, rx_of_bytes(x, "-12", 3))), "-13"));
    assert_false(matches(x, rx_and2(x, number, rx_not(x, rx_of_bytes(x, "-12", 3))), "-12"));
    rx_free(x);
}

static void equal_expressions_have_equal_numbers(void **state)
{
    (void)state;
    struct rx *x = set();
    uint32_t   a = rx_of_bytes(x, "ab", 2), b = rx_of_bytes(x, "cd", 2), c = rx_of_byte(x, 'e');
    uint32_t   one[] = { a, b, c, a }, other[] = { c, rx_or2(x, b, a) };
    assert_int_equal(rx_or(x, one, 4), rx_or(x, other, 2));
    assert_int_equal(rx_and(x, one, 4), rx_and(x, other, 0) == RX_ALL ? rx_and(x, (uint32_t[]){ b, c, a }, 3) : 0);
    assert_int_equal(rx_not(x, rx_not(x, a)), a);
    assert_int_equal(rx_or2(x, rx_of_byte(x, 'x'), rx_of_byte(x, 'y')),
                     rx_or2(x, rx_of_byte(x, 'y'), rx_of_byte(x, 'x')));
    assert_int_equal(rx_and2(x, rx_of_byte(x, 'x'), rx_of_byte(x, 'y')), RX_NONE);
    assert_int_equal(rx_cat(x, RX_ALL, rx_repeat(x, c, 0, RX_MANY)), RX_ALL);
    assert_int_equal(rx_cat(x, rx_repeat(x, c, 0, 1), RX_ALL), RX_ALL);
    assert_int_equal(rx_repeat(x, a, 1, 1), a);
    assert_int_equal(rx_repeat(x, RX_NONE, 0, 5), RX_EMPTY);
    assert_int_equal(rx_repeat(x, RX_NONE, 1, 5), RX_NONE);
    rx_free(x);
}

/* The oracle: all texts of up to TEXT_MAX letters. */
static void random_expressions_match_as_their_languages_say(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct rx      *x = set();
        struct dice     dice = { .seed = seed };
        struct language l;
        uint8_t         kind[256];
        uint32_t        a = rx_random(x, &dice, 4, seed % 2, &l), at[TEXTS] = { 0, a };
        assert_int_equal(rx_status(x), ST_OK);
        rx_kinds(x, kind);
        bool can[TEXTS + 1] = { 0 }; /* a text of the language begins so */
        for (uint32_t t = TEXTS; t-- > 1;) {
            can[t] = can[t] || l.has[t];
            if (can[t]) can[t / 2] = true;
        }
        for (uint32_t t = 1; t < TEXTS; t++) {
            if (t > 1) at[t] = rx_derive(x, at[t / 2], kind['a' + t % 2]);
            if (rx_nullable(x, at[t]) != l.has[t]) fail_msg("seed %d, text %x", (int)seed, t);
            if (can[t] && rx_is_void(x, at[t])) fail_msg("seed %d, text %x: void, but it goes on", (int)seed, t);
        }
        rx_free(x);
    }
}

/* Behind any other byte there is no text. */
static void a_text_begins_with_a_first_byte(void **state)
{
    (void)state;
    uint32_t n_left_out = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct rx      *x = set();
        struct dice     dice = { .seed = seed };
        struct language l;
        uint8_t         kind[256];
        uint32_t        a = rx_random(x, &dice, 4, seed % 2, &l);
        struct rx_class first = { { 0 } };
        rx_kinds(x, kind);
        rx_first(x, a, &first);
        for (unsigned byte = 0; byte < 256; byte++) {
            if (rx_class_has(&first, byte)) continue;
            assert_true(rx_is_void(x, rx_derive(x, a, kind[byte])));
            n_left_out++;
        }
        rx_free(x);
    }
    assert_in_range(n_left_out, 400 * 64, 400 * 256);
    struct rx *x = set();
    uint32_t   r = rx_of_bytes(x, "end", 3);
    for (unsigned i = 0; i < 40; i++) { /* its beginning may be met in more than a million ways */
        uint32_t may = rx_repeat(x, r, 0, 1);
        r = rx_cat(x, rx_or2(x, may, rx_cat(x, may, rx_of_byte(x, i))), r);
    }
    struct rx_class first = { { 0 } };
    rx_first(x, r, &first);
    assert_true(rx_class_has(&first, 'e'));
    rx_free(x);
}

static void an_expression_without_texts_is_found(void **state)
{
    (void)state;
    struct rx *x = set();
    uint8_t    kind[256];
    uint32_t   a = rx_repeat(x, rx_of_bytes(x, "ab", 2), 1, RX_MANY),
             b = rx_repeat(x, rx_of_bytes(x, "aba", 3), 1, RX_MANY);
    uint32_t none = rx_and2(x, a, b); /* ends in b; ends in a */
    uint32_t some = rx_and2(x, rx_repeat(x, rx_of_bytes(x, "aa", 2), 1, RX_MANY),
                            rx_repeat(x, rx_of_bytes(x, "aaa", 3), 1, RX_MANY));
    rx_kinds(x, kind);
    assert_true(rx_is_void(x, none));
    assert_false(rx_is_void(x, some));
    assert_true(rx_is_void(x, rx_and2(x, rx_not(x, a), a)));
    assert_int_equal(rx_status(x), ST_OK);
    rx_free(x);
}

static void a_repetition_of_a_million_costs_a_counter(void **state)
{
    (void)state;
    struct rx *x = set();
    uint8_t    kind[256];
    uint32_t   a = rx_cat(x, rx_repeat(x, rx_of_byte(x, 'a'), 0, 1000000), rx_of_byte(x, 'b'));
    rx_kinds(x, kind);
    for (int i = 0; i < 1000; i++) a = rx_derive(x, a, kind['a']);
    assert_true(rx_nullable(x, rx_derive(x, a, kind['b'])));
    assert_int_equal(rx_status(x), ST_OK);
    struct rx_run run = rx_run(x, a, rx_of_byte(x, 'a'));
    assert_int_equal(run.most, 999000);
    assert_true(run.bound && !run.alone);
    rx_free(x);
}

/* How many x may begin a text, and whether that is all of them. */
static void a_run_counts_what_may_stand_at_the_beginning(void **state)
{
    (void)state;
    struct rx      *x = set();
    uint8_t         kind[256];
    struct rx_class wide = { { 0 } };
    rx_class_add(&wide, 'a', 'z');
    uint32_t letter = rx_of_class(x, &wide), two = rx_of_bytes(x, "\xc3\xa9", 2);
    uint32_t any = rx_repeat(x, letter, 0, RX_MANY), one = rx_of_byte(x, 'x'), end = rx_of_byte(x, '"');
    uint32_t five = rx_repeat(x, rx_of_class(x, &wide), 0, 5), quoted = rx_cat(x, any, end);
    uint32_t names = rx_or2(x, rx_of_bytes(x, "xx\"", 3), rx_of_bytes(x, "b\"", 2));
    uint32_t no_stop = rx_not(x, rx_cat(x, RX_ALL, rx_cat(x, rx_of_bytes(x, "<<", 2), RX_ALL)));
    uint32_t xs = rx_cat(x, rx_repeat(x, one, 0, RX_MANY), end);
    enum { BOUND = 1, ALONE = 2 };
    const struct {
        uint32_t rx, most;
        int      facts;
    } row[] = {
        { rx_cat(x, five, end), 5, BOUND },
        { five, 5, BOUND | ALONE },
        { rx_cat(x, five, rx_repeat(x, end, 0, 1)), 5, BOUND | ALONE },
        { rx_cat(x, rx_cat(x, five, rx_repeat(x, end, 0, 1)), one), 5, ALONE }, /* a sixth may come */
        { rx_cat(x, five, rx_or2(x, end, one)), 5, 0 },
        { quoted, RX_MANY, BOUND },
        { rx_and2(x, quoted, rx_not(x, names)), RX_MANY, BOUND },
        { rx_cat(x, rx_and2(x, quoted, rx_not(x, names)), five), RX_MANY, BOUND },
        { rx_and2(x, quoted, rx_not(x, xs)), 0, 0 }, /* all texts of x and a quote are taken out */
        { rx_and2(x, quoted, rx_not(x, rx_cat(x, one, any))), 0, 0 },
        { rx_and2(x, quoted, rx_cat(x, any, rx_of_bytes(x, "b\"", 2))), 0, 0 },
        { rx_cat(x, rx_repeat(x, rx_of_byte(x, 'b'), 0, 9), end), 0, 0 },
        { end, 0, 0 },
        { rx_and2(x, quoted, no_stop), RX_MANY, BOUND },
        { rx_and2(x, five, no_stop), 5, BOUND | ALONE },
        { rx_cat(x, rx_and2(x, five, no_stop), one), 5, ALONE },
        { rx_and2(x, rx_cat(x, five, end), no_stop), 5, BOUND },
        { rx_and2(x, rx_cat(x, five, rx_of_bytes(x, "<<", 2)), no_stop), 0, 0 }, /* no text is left */
        { rx_and(x, (uint32_t[]){ quoted, no_stop, rx_not(x, names) }, 3), RX_MANY, BOUND },
        { rx_cat(x, rx_repeat(x, rx_or2(x, letter, rx_of_bytes(x, "xx", 2)), 0, 5), end), 5, 0 }, /* or of two */
        { rx_cat(x, rx_repeat(x, rx_or2(x, letter, rx_of_bytes(x, "\\x", 2)), 0, 5), end), 5, BOUND },
        { rx_cat(x, rx_repeat(x, rx_or2(x, letter, two), 0, 5), end), 5, BOUND },
    };
    rx_kinds(x, kind);
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        struct rx_run run = rx_run(x, row[i].rx, one);
        int           facts = run.most ? run.bound * BOUND | run.alone * ALONE : 0;
        if (run.most != row[i].most || facts != row[i].facts) fail_msg("row %d: %u, %d", (int)i, run.most, facts);
    }
    assert_int_equal(rx_status(x), ST_OK);
    uint32_t none = rx_and2(x, rx_cat(x, five, rx_of_bytes(x, "<<<", 3)), no_stop);
    for (uint64_t fuel = 1; fuel < 200; fuel++) { /* what cannot be looked at is not known */
        rx_refuel(x, fuel);
        assert_int_equal(rx_run(x, none, one).most, 0);
    }
    rx_free(x);
}

/* .*a.{24}: 2^24 sets of places */
static void what_explodes_runs_out_of_fuel(void **state)
{
    (void)state;
    struct rx_limits small = { .node_max = 20000, .fuel = 100000, .depth_max = 100 };
    struct rx       *x = rx_create(&small);
    struct rx_class  both = { { 0 } };
    uint8_t          kind[256];
    rx_class_add(&both, 'a', 'b');
    uint32_t any = rx_of_class(x, &both);
    uint32_t a = rx_cat(x, rx_repeat(x, any, 0, RX_MANY), rx_cat(x, rx_of_byte(x, 'a'), rx_repeat(x, any, 24, 24)));
    rx_kinds(x, kind);
    struct dice dice = { .seed = 1 };
    for (int i = 0; i < 100000 && !rx_status(x); i++) a = rx_derive(x, a, kind['a' + dice_below(&dice, 2)]);
    assert_int_equal(rx_status(x), ST_TOO_LARGE);
    uint32_t deep = rx_of_byte(x, 'a');
    rx_refuel(x, 1000000);
    for (int i = 0; i < 1000; i++) deep = rx_repeat(x, rx_or2(x, deep, RX_EMPTY), 2, 3);
    assert_int_equal(rx_status(x), ST_TOO_LARGE); /* nested deeper than the recursion may go */
    rx_free(x);
}

static void a_class_covers_its_parts(void **state)
{
    (void)state;
    struct rx      *x = set();
    struct rx_class wide = { { 0 } }, narrow = { { 0 } };
    rx_class_add(&wide, 32, 126);
    rx_class_add(&narrow, 'a', 'z');
    uint32_t high = rx_of_bytes(x, "\xc3\xa9", 2), escape = rx_of_bytes(x, "\\n", 2);
    uint32_t w = rx_or(x, (uint32_t[]){ rx_of_class(x, &wide), high, escape }, 3);
    uint32_t n = rx_or2(x, rx_of_class(x, &narrow), high);
    assert_true(rx_covers(x, w, n));
    assert_false(rx_covers(x, n, w));
    assert_true(rx_covers(x, n, n));
    uint32_t pairs = rx_cat(x, rx_of_class(x, &wide), n), pair = rx_cat(x, rx_of_byte(x, 'a'), rx_of_byte(x, 'b'));
    assert_true(rx_covers(x, pairs, pair)); /* part by part */
    assert_false(rx_covers(x, pair, pairs));
    rx_free(x);
}

/* Texts of letters and of expressions, against their languages; the empty text and equal ones are among them. */
static void texts_that_begin_alike_are_each_allowed(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (uint64_t)test_size(3000, 600); seed++) {
        struct dice     d = { seed, 0 };
        struct rx      *x = set();
        struct rx_texts t;
        struct language all = { { 0 } }, whole, within = { { 0 } };
        uint32_t        n = dice_below(&d, 100);
        rx_texts_init(&t, x);
        for (uint32_t i = 0; i < n; i++) {
            struct language one = { .has[1] = 1 }, more;
            for (uint32_t k = dice_below(&d, 7); k > 0; k--) {
                uint32_t letter = dice_below(&d, 2), rx = RX_NONE;
                memset(&more, 0, sizeof more);
                if (n < 64 && dice_below(&d, 5) == 0) rx = rx_random(x, &d, 1, false, &more);
                if (rx != RX_NONE) {
                    rx_texts_rx(&t, rx);
                } else {
                    memset(&more, 0, sizeof more);
                    more.has[2 + letter] = 1;
                    rx_texts_bytes(&t, letter ? "b" : "a", 1);
                }
                language_cat(&one, &more, &one);
            }
            rx_texts_end(&t);
            language_join(&one, &all);
        }
        uint32_t any = rx_texts_any(&t), some = rx_texts_within(&t, rx_random(x, &d, 3, true, &whole));
        for (int i = 1; i < TEXTS; i++) within.has[i] = all.has[i] && whole.has[i];
        assert_int_equal(rx_status(x), ST_OK);
        uint8_t kind[256];
        rx_kinds(x, kind);
        for (uint32_t text = 1; text < TEXTS; text++) {
            char letters[TEXT_MAX];
            int  len = text_len(text);
            for (int i = 0; i < len; i++) letters[i] = text_letter(text, i);
            assert_int_equal(rx_nullable(x, after(x, any, kind, letters, (size_t)len)), all.has[text]);
            assert_int_equal(rx_nullable(x, after(x, some, kind, letters, (size_t)len)), within.has[text]);
        }
        rx_texts_free(&t);
        rx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_matches_what_its_expression_means),
        cmocka_unit_test(equal_expressions_have_equal_numbers),
        cmocka_unit_test(random_expressions_match_as_their_languages_say),
        cmocka_unit_test(a_text_begins_with_a_first_byte),
        cmocka_unit_test(an_expression_without_texts_is_found),
        cmocka_unit_test(a_repetition_of_a_million_costs_a_counter),
        cmocka_unit_test(a_run_counts_what_may_stand_at_the_beginning),
        cmocka_unit_test(what_explodes_runs_out_of_fuel),
        cmocka_unit_test(a_class_covers_its_parts),
        cmocka_unit_test(texts_that_begin_alike_are_each_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
