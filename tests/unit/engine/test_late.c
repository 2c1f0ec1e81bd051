/* Guided requests and their steps: who takes part in which, and what becomes of a mask that is late. */
#include "test.h"
#include "base/log.h"
#include "unit/engine/small_world.h"
#include <pthread.h>
#include <sched.h>

/* Guided requests come one after the other, so that with two steps in flight they begin in different ones. All of them
 * are in each step all the same: it takes as many steps as the longest has tokens, and those before the last came. */
static void guided_requests_share_their_steps(void **state)
{
    (void)state;
    enum { N = 4, TOKENS = 20, APART = 3 };
    struct eng_cfg cfg = config_of(GUIDED_VOCAB);
    for (uint32_t way = 0; way < 4; way++) {
        struct world   w;
        struct client *c[N];
        uint32_t       depth = 1 + way % 2;
        world_prepare(&w, &cfg, depth, false);
        w.waits = way >= 2;
        world_begin(&w, 256);
        for (uint32_t i = 0; i < N; i++) {
            c[i] = client(&w, 8, TOKENS);
            c[i]->choice[0].guide = guided_guide(cfg.eos_id, 0, false);
            assert_int_equal(world_submit(&w, c[i]), ST_OK);
            for (uint32_t k = 0; k < APART; k++) {
                w.now_us += 1000;
                world_step(&w);
            }
        }
        run(&w);
        struct eng_stats stats;
        eng_stats(w.e, &stats);
        assert_int_equal(stats.n_generated, N * TOKENS);
        if (stats.n_step > APART * N + TOKENS + N) fail_msg("%u in flight: %u steps", depth, (unsigned)stats.n_step);
        world_close(&w);
        for (uint32_t i = 0; i < N; i++) client_free(c[i]);
    }
}

/* With two steps in flight the mask comes while the second one runs. */
static void a_guided_request_takes_every_step_beside_free_ones(void **state)
{
    (void)state;
    enum { N = 4, TOKENS = 20 };
    struct eng_cfg cfg = config_of(GUIDED_VOCAB);
    struct world   w;
    struct client *c[N];
    world_open_deep(&w, &cfg, 256, 2, true);
    for (uint32_t i = 0; i < N; i++) {
        c[i] = client(&w, 8, TOKENS);
        if (!i) c[i]->choice[0].guide = guided_guide(cfg.eos_id, 0, false);
        assert_int_equal(world_submit(&w, c[i]), ST_OK);
    }
    run(&w);
    struct eng_stats stats;
    eng_stats(w.e, &stats);
    assert_int_equal(stats.n_generated, N * TOKENS);
    assert_in_range(stats.n_step, TOKENS, TOKENS + 2);
    assert_int_equal(stats.n_undrawn, 0);
    world_close(&w);
    for (uint32_t i = 0; i < N; i++) client_free(c[i]);
}

/* A gate whose thread stands still while the lock is taken. */
struct barrier {
    struct gate      base;
    pthread_mutex_t *lock;
};

static enum gate_phase barrier_push(struct gate *g, uint32_t token, struct gate_open *open_out)
{
    pthread_mutex_t *lock = ((struct barrier *)g)->lock;
    (void)token;
    (void)open_out;
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return GATE_FREE;
}

static bool barrier_forced(const struct gate *g, uint32_t *token_out)
{
    (void)g;
    (void)token_out;
    return false;
}

static uint32_t barrier_marks(const struct gate *g, struct gate_mark *out)
{
    (void)g;
    (void)out;
    return 0;
}

static void barrier_drop(struct gate *g) { (void)g; }

static void await_mask(const struct client *c)
{
    while (guide_state(c->choice[0].guide) == GUIDE_BUSY) (void)sched_yield();
}

static void step_when_masks_are_ready(struct world *w, const struct client *c)
{
    await_mask(c);
    w->now_us += 1000;
    world_step(w);
}

/* The thread that makes masks stands still: the guided row is computed once and draws nothing, then it sits out, and
 * the free request goes on in every step. Both get what they get alone (world.h looks at that). */
static void a_row_whose_mask_is_late_draws_nothing_and_is_computed_again(void **state)
{
    (void)state;
    enum { TOKENS = 40, LATE = 8 };
    static const struct gate_ops ops = { barrier_push, NULL, barrier_forced, barrier_marks, NULL, barrier_drop };
    static const uint32_t        odd[] = { 9 };
    for (uint32_t depth = 1; depth <= 2; depth++) {
        struct eng_cfg  cfg = config_of(GUIDED_VOCAB);
        struct world    w;
        struct guide   *stopper;
        pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        struct barrier  b = { { .ops = &ops, .first = GATE_FREE, .odd = odd, .n_odd = 1 }, &lock };
        cfg.n_guide_thread = 1;
        world_open_deep(&w, &cfg, 256, depth, false);
        struct client *free_one = client(&w, 8, TOKENS), *guided = client(&w, 8, TOKENS / 2);
        guided->choice[0].guide = guided_guide(cfg.eos_id, 0, false);
        assert_int_equal(guide_create(NULL, guided_vocab(), NULL, 0, &b.base, &stopper), ST_OK);
        assert_int_equal(world_submit(&w, free_one), ST_OK);
        assert_int_equal(world_submit(&w, guided), ST_OK);
        for (uint32_t i = 0; i < 6; i++) step_when_masks_are_ready(&w, guided);
        await_mask(guided);

        struct eng_stats before, after;
        eng_stats(w.e, &before);
        uint32_t n_free = atomic_load(&free_one->choice[0].n_out), n_guided = atomic_load(&guided->choice[0].n_out);
        assert_in_range(n_guided, 1, 6);
        pthread_mutex_lock(&lock);
        guide_post(w.e->guides, stopper, 5);
        for (uint32_t i = 0; i < LATE; i++) {
            w.now_us += 1000;
            world_step(&w);
        }
        eng_stats(w.e, &after);
        assert_int_equal(atomic_load(&free_one->choice[0].n_out), n_free + LATE);
        assert_in_range(atomic_load(&guided->choice[0].n_out), n_guided, n_guided + depth);
        assert_int_equal(after.n_undrawn, before.n_undrawn + 1);
        pthread_mutex_unlock(&lock);

        while (w.n_open) step_when_masks_are_ready(&w, guided);
        run(&w);
        world_close(&w);
        guide_drop(stopper);
        client_free(free_one);
        client_free(guided);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guided_requests_share_their_steps),
        cmocka_unit_test(a_guided_request_takes_every_step_beside_free_ones),
        cmocka_unit_test(a_row_whose_mask_is_late_draws_nothing_and_is_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
