#include "test.h"
#include "base/clock.h"
#include "engine/guide.h"
#include "sim/guided.h"
#include <time.h>

/* Letters of the vocabulary: token 0 "aa", 2 "c", 4 "e", 13 "d", 11 "b"; 1, 3 and 7 are no text (sim/guided.h). */
enum { AA = 0, C = 2, E = 4, B = 11, D = 13, EOS = 1, OTHER_EOS = 7, PLENTY = 64 };

static bool allowed(const struct guide *u, uint32_t token)
{
    uint32_t        n;
    const uint32_t *mask = guide_mask(u, &n);
    return token / 32 < n && mask[token / 32] >> (token % 32) & 1;
}

static struct guides *guides(uint32_t n_thread, struct ring *wake)
{
    struct guides *g = NULL;
    assert_int_equal(ring_init(wake, 4), ST_OK);
    assert_int_equal(guides_create(n_thread, PLENTY, wake, &g), ST_OK);
    return g;
}

static void await(struct guide *u, struct ring *wake)
{
    uint64_t end = clock_us() + PATIENCE_S * 1000000ull;
    while (guide_state(u) == GUIDE_BUSY) {
        ring_wait(wake, 100000);
        if (clock_us() > end) fail_msg("the mask never came");
    }
}

static void the_end_is_allowed_where_the_text_may_end(void **state)
{
    (void)state;
    for (uint32_t n_thread = 0; n_thread < 3; n_thread++) {
        struct ring    wake;
        struct guides *g = guides(n_thread, &wake);
        struct guide  *u = guided_guide((uint32_t[]){ EOS, OTHER_EOS }, 2, false);
        assert_int_equal(guide_state(u), GUIDE_READY);
        assert_true(allowed(u, EOS) && allowed(u, OTHER_EOS) && allowed(u, AA) && allowed(u, C));
        assert_false(allowed(u, E) || allowed(u, D) || allowed(u, 3));
        guide_post(g, u, C);
        await(u, &wake);
        assert_int_equal(guide_state(u), GUIDE_READY);
        assert_false(allowed(u, EOS) || allowed(u, OTHER_EOS));
        assert_true(allowed(u, D));
        guide_post(g, u, D);
        await(u, &wake);
        assert_true(allowed(u, EOS));
        guide_drop(u);
        guides_free(g);
        ring_free(&wake);
    }
}

static void a_token_that_was_not_allowed_fails_the_guide_alone(void **state)
{
    (void)state;
    struct ring    wake;
    struct guides *g = guides(1, &wake);
    struct guide  *u = guided_guide(NULL, 0, false), *other = guide_fork(u);
    assert_non_null(other);
    guide_post(g, u, E);
    guide_post(g, other, C);
    await(u, &wake);
    await(other, &wake);
    assert_int_equal(guide_state(u), GUIDE_FAILED);
    assert_int_equal(guide_state(other), GUIDE_READY);
    assert_true(allowed(other, D));
    guide_drop(u);
    guide_drop(other);
    guides_free(g);
    ring_free(&wake);
}

/* A client that goes away leaves guides with the threads; more of them than there is room for are worked on at once. */
static void guides_that_are_dropped_while_they_are_busy_are_freed_later(void **state)
{
    (void)state;
    struct ring    wake;
    struct guides *g = guides(2, &wake);
    for (int i = 0; i < test_size(2000, 300); i++) {
        struct guide *u = guided_guide(NULL, 0, false);
        guide_post(g, u, C);
        guide_drop(u);
    }
    guides_free(g);
    ring_free(&wake);
}

static uint32_t n_busy(struct guide *const *u, uint32_t n)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < n; i++) busy += guide_state(u[i]) == GUIDE_BUSY;
    return busy;
}

static void masks_are_awaited_until_few_are_missing(void **state)
{
    (void)state;
    enum { N = 20, ROUNDS = 50 };
    struct ring    wake;
    struct guides *g = guides(2, &wake);
    struct guide  *u[N];
    for (int i = 0; i < N; i++) u[i] = guided_guide(NULL, 0, false);
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t enough = (uint32_t)round % 4;
        for (int i = 0; i < N; i++) guide_post(g, u[i], round % 2 ? D : C);
        guides_await(g, enough, PATIENCE_S * 1000000ull, clock_us);
        assert_true(n_busy(u, N) <= enough);
        guides_await(g, 0, PATIENCE_S * 1000000ull, clock_us);
        assert_int_equal(n_busy(u, N), 0);
    }
    for (int i = 0; i < N; i++) guide_drop(u[i]);
    guides_free(g);
    ring_free(&wake);
}

/* A clock that goes on by itself, so that no time of this machine decides. */
static uint64_t ticks(void)
{
    static uint64_t now;
    return now += 10;
}

static void masks_are_not_awaited_for_long_nor_beside_a_message(void **state)
{
    (void)state;
    struct ring    wake;
    struct guides *g = guides(1, &wake);
    struct guide  *u = guided_guide(NULL, 0, false);
    guides_await(g, 0, PATIENCE_S * 1000000ull, clock_us); /* nothing is busy */
    guide_post(g, u, C);
    guides_await(g, 0, 0, clock_us);
    guides_await(g, 0, 30, ticks);
    assert_true(ring_push(&wake, u));
    guides_await(g, 0, UINT64_MAX / 2, ticks); /* whoever comes is seen to first */
    assert_ptr_equal(ring_pop(&wake), u);
    await(u, &wake);
    guide_drop(u);
    guides_free(g);
    ring_free(&wake);
}

/* "xyz" is made of letters that no token has. */
static void a_grammar_that_no_token_begins_is_refused(void **state)
{
    (void)state;
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    struct grammar  *g = NULL;
    struct guide    *u = NULL;
    char             err[GR_ERR];
    assert_int_equal(gr_build(r, gr_terminal(r, rx_of_bytes(gr_rx(r), "xyz", 3)), &g, err), ST_OK);
    assert_int_equal(guide_create(g, guided_vocab(), NULL, 0, NULL, &u), ST_INVALID);
    gr_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_is_allowed_where_the_text_may_end),
        cmocka_unit_test(a_token_that_was_not_allowed_fails_the_guide_alone),
        cmocka_unit_test(guides_that_are_dropped_while_they_are_busy_are_freed_later),
        cmocka_unit_test(masks_are_awaited_until_few_are_missing),
        cmocka_unit_test(masks_are_not_awaited_for_long_nor_beside_a_message),
        cmocka_unit_test(a_grammar_that_no_token_begins_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
