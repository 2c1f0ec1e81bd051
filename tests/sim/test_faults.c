/* Layer E of the fault table, one named story per row (story.h): each ends with every answer verified, kv_check and all
 * ledgers.
 * Over 500 lines: a list of stories, one for each row. */
#include "base/clock.h"
#include "sim/story.h"

static struct client *submitted(uint32_t kind, uint32_t n, uint32_t n_choice, uint32_t max_tokens)
{
    struct client *c = client(kind, n, n_choice, max_tokens);
    assert_int_equal(world_submit(w, c), ST_OK);
    return c;
}

static void steps(uint32_t n)
{
    while (n-- > 0) step();
}

static uint64_t n_preempted(void)
{
    struct eng_stats s;
    eng_stats(w->e, &s);
    return s.n_preempted;
}

/* ---- */

static void E1_a_prompt_up_to_the_context_works_and_one_over_is_refused(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct client *fits = submitted(1, 255, 1, 1), *longest = submitted(2, 1, 1, 255);
    assert_int_equal(world_submit(w, client(3, 256, 1, 1)), ST_TOO_LARGE);
    assert_int_equal(world_submit(w, client(4, 257, 1, 1)), ST_TOO_LARGE);
    assert_int_equal(world_submit(w, client(5, 255, 1, 1000)), ST_TOO_LARGE);
    assert_int_equal(world_submit(w, client(6, 0, 1, 1)), ST_INVALID);
    finish();
    assert_int_equal(ended(fits, 0), ENG_LENGTH);
    assert_int_equal(ended(longest, 0), ENG_LENGTH);
    assert_int_equal(n_out(longest, 0), 255);
    close_world();
}

static void E2_a_request_larger_than_the_pool_is_refused_at_once(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.n_block = 10; /* 40 tokens */
    open_world(cfg);
    assert_int_equal(world_submit(w, client(1, 30, 1, 12)), ST_TOO_LARGE);
    struct client *fits = submitted(2, 30, 1, 11); /* the last token is never computed */
    finish();
    assert_int_equal(ended(fits, 0), ENG_LENGTH);
    close_world();
}

static void E3_all_running_need_a_block_one_is_preempted(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.n_block = 12;
    cfg.prefix_cache = false;
    open_world(cfg);
    for (uint32_t i = 0; i < 4; i++) submitted(i, 8, 1, 24);
    finish();
    assert_true(n_preempted() >= 1);
    assert_int_equal(all[0]->r.n_preempted, 0);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(ended(all[i], 0), ENG_LENGTH);
    close_world();
}

static void E4_nobody_is_preempted_more_than_three_times_and_the_oldest_never(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.n_block = 33;
    cfg.block_tokens = 2;
    open_world(cfg);
    for (uint32_t i = 0; i < 40; i++) submitted(i, 3 + i % 7, 1, 40 + i % 17);
    finish();
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 40; i++) {
        assert_true(all[i]->r.n_preempted <= 3);
        sum += all[i]->r.n_preempted;
    }
    assert_int_equal(all[0]->r.n_preempted, 0);
    assert_true(sum > 10); /* there was something to bound */
    close_world();
}

static struct client *hook_target;
static uint32_t       n_hook;
static void           hook_cancel(void)
{
    n_hook++;
    eng_cancel(w->e, &hook_target->r);
}

static void E5_a_cancel_in_the_step_of_the_finish_gives_one_final_message(void **state)
{
    (void)state;
    open_world(cfg_small());
    for (uint32_t late = 0; late < 8;
         late++) { /* the cancel falls into step 0, 1, ... of a request of 4 steps, and after it */
        struct client *c = hook_target = submitted(late, 8, 1, 4);
        submitted(100 + late, 8, 2, 6);
        for (uint32_t i = 0; i < late; i++) step();
        w->fake.delay = hook_cancel; /* while the batch runs */
        for (n_hook = 0; !n_hook && !c->done;) step();
        w->fake.delay = NULL;
        steps(3);
        assert_int_equal(c->n_final, 1);
        if (late < 2 + depth) assert_int_equal(ended(c, 0), ENG_CANCELED);
        if (late == 2 + depth)
            assert_int_equal(ended(c, 0), ENG_LENGTH); /* it had its last token before the cancel was seen */
    }
    finish();
    close_world();
}

static void E5_a_cancel_of_a_preempted_sequence_gives_its_blocks_back(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.n_block = 12;
    cfg.prefix_cache = false;
    open_world(cfg);
    for (uint32_t i = 0; i < 4; i++) submitted(i, 8, 2, 24);
    while (!n_preempted()) step();
    for (uint32_t i = 0; i < 4; i++)
        if (all[i]->r.n_preempted) eng_cancel(w->e, &all[i]->r);
    step();
    for (uint32_t i = 0; i < 4; i++)
        if (all[i]->r.n_preempted) assert_int_equal(all[i]->n_final, 1);
    finish();
    close_world();
}

static void E6_a_batch_of_exactly_the_maximum_does_not_deadlock(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.batch_tokens_max = cfg.seqs_max;
    open_world(cfg);
    for (uint32_t i = 0; i < 3 * cfg.seqs_max; i++) submitted(i, 20, 1, 60);
    finish();
    assert_int_equal(w->fake.most_seqs, cfg.seqs_max);
    assert_int_equal(w->fake.most_rows, cfg.seqs_max);
    close_world();
}

static void E7_an_idle_engine_gets_on_at_once(void **state)
{
    (void)state;
    open_world(cfg_small());
    for (uint32_t i = 0; i < 20; i++) {
        steps(3);
        assert_true(eng_idle(w->e));
        struct client *c = submitted(i, 9, 1, 1);
        steps(depth); /* with two: nothing else can be planned, so the second one waits for it */
        assert_int_equal(c->n_final, 1);
    }
    finish();
    close_world();
}

static void E9_a_deadline_in_the_queue_ends_it_before_any_work(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.seqs_max = 1;
    open_world(cfg);
    submitted(1, 8, 1, 60);
    steps(2);
    struct client *late = client(2, 8, 3, 10);
    late->r.deadline_us = w->now_us + 10000;
    assert_int_equal(world_submit(w, late), ST_OK);
    steps(9);
    assert_int_equal(late->n_final, 0);
    steps(1);
    assert_int_equal(late->n_final, 1);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(ended(late, i), ENG_TIMEOUT);
        assert_int_equal(n_out(late, i), 0);
    }
    assert_int_equal(late->r.t_sched_us, 0);
    finish();
    assert_int_equal(w->fake.n_row, 8 + 59); /* the first one's and nothing else */
    close_world();
}

static void E9_a_deadline_while_running_ends_it_in_time(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct client *c = client(1, 8, 2, 100);
    c->r.deadline_us = w->now_us + 20000;
    assert_int_equal(world_submit(w, c), ST_OK);
    finish();
    assert_int_equal(ended(c, 0), ENG_TIMEOUT);
    assert_int_equal(ended(c, 1), ENG_TIMEOUT);
    assert_in_range(n_out(c, 0), 15, 20);
    close_world();
}

/* The simulator's share of E11; how long the others wait in milliseconds is the device's. */
static void E11_a_long_prompt_is_computed_in_chunks_beside_the_others(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.context_max = 20000;
    cfg.n_block = 6000;
    cfg.prefill_chunk_max = 32;
    open_world(cfg);
    for (uint32_t i = 0; i < 4; i++) submitted(i, 8, 1, 250);
    steps(2);
    struct client *c = submitted(10, 19000, 1, 4);
    uint32_t       before = n_out(all[0], 0);
    for (uint32_t i = 1; i <= 200; i++) {
        step();
        for (uint32_t k = 0; k < 4; k++)
            assert_int_equal(n_out(all[k], 0), before + i); /* none of them missed a step */
    }
    assert_true(w->fake.most_rows <= 64);
    assert_int_equal(n_out(c, 0), 0);
    finish();
    close_world();
}

static void E12_a_thousand_identical_prompts_cost_one_prefill(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.seqs_max = 64;
    cfg.queue_requests_max = 1000;
    cfg.batch_tokens_max = 128;
    cfg.n_block = 400;
    open_world(cfg);
    for (uint32_t i = 0; i < 1000; i++) submitted(7, 202, 1, 3)->r.s.temperature = 0;
    uint32_t most = 0;
    while (w->n_open) {
        step();
        struct kv_stats k;
        kv_stats(eng_kv(w->e), &k);
        if (k.n_private + k.n_tree > most) most = k.n_private + k.n_tree;
    }
    finish();
    struct kv_stats k;
    kv_stats(eng_kv(w->e), &k);
    assert_int_equal(k.n_hit_tokens, 999 * 200);
    assert_true(w->fake.n_prefill_row <= 202 + 999); /* all others: their last two tokens, one of which samples */
    assert_true(most <= 50 + 2 * cfg.seqs_max + 2);  /* the prompt's 50 blocks once, and the running ones' tails */
    close_world();
}

static void E13_a_nan_ends_its_own_request_and_no_other(void **state)
{
    (void)state;
    open_world(cfg_small());
    for (uint32_t i = 0; i < 6; i++) {
        struct client *c = client(i, 8 + i, i == 2 ? 3 : 1, 12);
        if (i == 2 || i == 4) expect_nan(c, i + 1);
        assert_int_equal(world_submit(w, c), ST_OK);
    }
    finish();
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(ended(all[i], 0), i == 2 || i == 4 ? ENG_ERROR : ENG_LENGTH);
    assert_int_equal(ended(all[2], 1), ENG_ERROR);
    assert_int_equal(all[4]->r.status, ST_INVALID);
    close_world();
}

static void E13_blocks_of_a_request_with_nan_are_not_served_from_the_cache(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct client *bad = client(1, 40, 1, 4);
    expect_nan(bad, 2);
    assert_int_equal(world_submit(w, bad), ST_OK);
    finish();
    struct client *again = submitted(1, 40, 1, 4);
    finish();
    assert_int_equal(again->r.n_cached, 0);
    assert_int_equal(ended(again, 0), ENG_LENGTH);
    close_world();
}

static void E14_a_flood_of_one_tenant_does_not_delay_another(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.queue_requests_max = 11000;
    open_world(cfg);
    for (uint32_t i = 0; i < 10000; i++) {
        struct client *c = client(i, 6, 1, 8);
        c->r.tenant = 1;
        assert_int_equal(world_submit(w, c), ST_OK);
    }
    uint64_t worst = 0;
    for (uint32_t i = 0; i < 50; i++) {
        steps(20);
        struct client *c = client(20000 + i, 6, 1, 8);
        c->r.tenant = 2 + i % 2;
        assert_int_equal(world_submit(w, c), ST_OK);
        while (!c->n_final) step();
        if (c->step_first - c->step_submit > worst) worst = c->step_first - c->step_submit;
    }
    /* 8 running of 8 steps each: a place is free after 8 steps at the latest, and the next but one is the other
     * tenant's */
    assert_true(worst <= 10);
    finish();
    close_world();
}

static void E14_a_low_priority_is_not_starved_by_a_stream_of_higher_ones(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.seqs_max = 2;
    open_world(cfg);
    struct client *low = client(1, 6, 1, 4);
    low->r.priority = 3;
    low->r.tenant = 9;
    steps(1);
    for (uint32_t i = 0; i < 8; i++) submitted(10 + i, 6, 1, 4)->r.tenant = 1;
    assert_int_equal(world_submit(w, low), ST_OK);
    for (uint32_t i = 0; i < 400 && !low->n_final; i++) {
        if (w->n_open < 8) submitted(100 + i, 6, 1, 4)->r.tenant = 1;
        w->now_us += 200000;
        step();
    }
    assert_int_equal(low->n_final, 1);
    assert_true(low->step_submit + 20 < low->step_final); /* it did wait */
    finish();
    close_world();
}

static void E15_equal_request_ids_do_not_mix(void **state)
{
    (void)state;
    open_world(cfg_small());
    for (uint32_t i = 0; i < 16; i++) {
        struct client *c = client(i, 10 + i, 1 + i % 3, 9);
        assert_int_equal(world_submit(w, c), ST_OK);
        c->r.id = 77;
    }
    steps(3);
    eng_cancel(w->e, &all[5]->r);
    finish();
    for (uint32_t i = 0; i < 16; i++) assert_int_equal(ended(all[i], 0), i == 5 ? ENG_CANCELED : ENG_LENGTH);
    close_world();
}

static void E16_a_canceled_branch_leaves_the_others_going(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct client *c = submitted(1, 22, 4, 30); /* 22 tokens: the tail block is forked and copied */
    steps(5);
    atomic_store(&c->choice[2].canceled, true);
    steps(1);
    assert_int_equal(ended(c, 2), ENG_CANCELED);
    assert_int_equal(c->n_final, 0);
    atomic_store(&c->choice[0].canceled, true); /* the one that computed the prompt */
    finish();
    assert_int_equal(ended(c, 0), ENG_CANCELED);
    assert_int_equal(ended(c, 1), ENG_LENGTH);
    assert_int_equal(ended(c, 3), ENG_LENGTH);
    assert_int_equal(n_out(c, 3), 30);
    close_world();
}

static void E16_a_canceled_lead_hands_the_prompt_to_its_sibling(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.prefill_chunk_max = 8;
    open_world(cfg);
    struct client *c = submitted(1, 60, 3, 5);
    steps(3);
    atomic_store(&c->choice[0].canceled, true);
    finish();
    assert_int_equal(ended(c, 0), ENG_CANCELED);
    assert_int_equal(ended(c, 1), ENG_LENGTH);
    assert_int_equal(ended(c, 2), ENG_LENGTH);
    close_world();
}

static void E16_siblings_share_the_prompt_blocks(void **state)
{
    (void)state;
    open_world(cfg_small());
    submitted(1, 41, 8, 2); /* 10 full blocks and one token */
    step();
    struct kv_stats k;
    kv_stats(eng_kv(w->e), &k);
    assert_int_equal(k.n_tree + k.n_private, 11);
    steps(depth); /* with two: they sit out the step after the prompt's, which is when they fork */
    assert_int_equal(world_batch(w)->n_copy, 7); /* the last of eight keeps the tail */
    finish();
    assert_int_equal(w->fake.n_row, 41 + 8);
    close_world();
}

static void E17_a_client_that_does_not_read_holds_up_nobody(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct ring stuck;
    assert_int_equal(ring_init(&stuck, 2), ST_OK);
    static int dummy;
    while (ring_push(&stuck, &dummy)) continue; /* its outbox is full from the start */
    struct client *slow = client(1, 9, 1, 30);
    slow->r.outbox = &stuck;
    assert_int_equal(eng_submit(w->e, &slow->r), ST_OK);
    for (uint32_t i = 2; i < 8; i++) submitted(i, 9, 1, 20);
    while (w->n_open) {
        bool did_work;
        eng_step(w->e, w->now_us += 1000, &did_work);
        world_read(w);
        assert_true(w->n_step++ < 100);
    }
    bool did_work;
    for (uint32_t i = 0; i < 40; i++) eng_step(w->e, w->now_us += 1000, &did_work);
    assert_int_equal(n_out(slow, 0), 30); /* it got on as well, only nobody was told */
    while (ring_pop(&stuck) == &dummy) continue;
    eng_step(w->e, w->now_us += 1000, &did_work);
    void *msg = ring_pop(&stuck);
    while (msg && !eng_msg_is_final(msg)) msg = ring_pop(&stuck);
    assert_ptr_equal(eng_msg_request(msg), &slow->r);
    assert_null(ring_pop(&stuck));
    finish();
    close_world();
    ring_free(&stuck);
}

static void E19_one_and_many_blocks_tokens_and_sequences(void **state)
{
    (void)state;
    static const uint32_t block[] = { 1, 16, 256 }, seqs[] = { 1, 8, 512 }, budget[] = { 1, 64, 4096 };
    for (uint32_t i = 0; i < 27; i++) {
        struct eng_cfg cfg = cfg_small();
        cfg.block_tokens = block[i % 3];
        cfg.seqs_max = seqs[i / 3 % 3];
        cfg.batch_tokens_max = budget[i / 9];
        cfg.n_block = 3 * (256 / cfg.block_tokens); /* room for three of the longest */
        open_world(cfg);
        for (uint32_t k = 0; k < 20; k++) submitted(k % 5, 30 + k, 1 + k % 3, 20);
        submitted(99, 200, 1, 56);
        finish();
        close_world();
    }
}

static void corrupt_and_step(void *arg)
{
    (void)arg;
    const struct kv *kv = eng_kv(w->e);
    kv->pool.ref[w->e->sched.running[0]->kv.block[0]] = 0;
    bool did_work;
    for (uint32_t i = 0; i < 50; i++) eng_step(w->e, w->now_us += 1000, &did_work);
}

static void E20_broken_accounting_ends_the_process_with_70(void **state)
{
    (void)state;
    open_world(cfg_small());
    submitted(1, 20, 1, 8);
    steps(2);
    assert_int_equal(test_exit_of(corrupt_and_step, NULL), EXIT_SOFTWARE);
    finish();
    close_world();
}

static void a_lost_device_fails_everyone_once(void **state)
{
    (void)state;
    open_world(cfg_small());
    w->fake.fail_at = 5;
    for (uint32_t i = 0; i < 20; i++) submitted(i, 30, 1 + i % 2, 10);
    steps(3 + depth);
    assert_true(eng_alive(w->e, w->now_us));
    log_init(LOG_LEVEL_ERROR, -1, false);
    step();
    assert_int_equal(w->n_open, 0);
    assert_false(eng_alive(w->e, w->now_us));
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(all[i]->n_final, 1);
        if (ended(all[i], 0) == ENG_ERROR) assert_int_equal(all[i]->r.status, ST_DEVICE);
    }
    assert_int_equal(world_submit(w, client(50, 8, 1, 1)), ST_DEVICE);
    finish();
    close_world();
    log_init(LOG_LEVEL_ERROR, 2, false);
}

static void H2_a_step_that_cannot_be_run_ends_its_own_requests(void **state)
{
    (void)state;
    for (uint64_t every = 3; every < 40; every += 6) {
        uint32_t n_error = 0, n_whole = 0;
        open_world(cfg_small());
        w->fake.refuse_every = every;
        log_init(LOG_LEVEL_ERROR, 2, false);
        for (uint32_t i = 0; i < 24; i++) {
            submitted(i % 6, 5 + i, 1 + i % 3, 6); /* with common prefixes and several choices */
            steps(2);
        }
        finish(); /* texts, kv_check, what the tree holds: as ever */
        assert_true(eng_alive(w->e, w->now_us));
        for (uint32_t i = 0; i < 24; i++) {
            bool error = ended(all[i], 0) == ENG_ERROR;
            assert_int_equal(all[i]->n_final, 1);
            if (error) assert_int_equal(all[i]->r.status, ST_STEP);
            n_error += error;
            n_whole += !error;
        }
        assert_true(n_error > 0);
        assert_true(every < 9 || n_whole > 0);
        close_world();
    }
}

/* ---- with two steps in flight alone */

static void a_sequence_that_ended_in_flight_leaves_no_trace(void **state)
{
    (void)state;
    if (depth < 2) return;
    open_world(cfg_small());
    struct client     *c = client(1, 9, 1, 20), *other = submitted(2, 9, 1, 40);
    uint32_t           id[20];
    struct fake_answer a = { .id = id };
    fake_expect(&c->r, 0, &w->cfg, &a);
    c->stop_id[0] = id[4]; /* the fifth token ends it */
    c->r.s.stop_id = c->stop_id;
    c->r.s.n_stop_id = 1;
    assert_int_equal(world_submit(w, c), ST_OK);
    while (!c->n_final) step();
    struct eng_stats s;
    eng_stats(w->e, &s);
    assert_int_equal(n_out(c, 0), 5);
    assert_int_equal(s.n_generated, 5 + n_out(other, 0));
    assert_int_equal(w->fake.flight[0]->n_seq, 2); /* it sits once more */
    struct client *again = submitted(1, 9, 1, 5);  /* takes what it has left in the cache */
    finish();
    eng_stats(w->e, &s);
    assert_int_equal(s.n_generated, 5 + 40 + 5);
    assert_int_equal(again->r.n_cached, 8);
    close_world();
}

static void a_bad_word_is_seen_in_time(void **state)
{
    (void)state;
    open_world(cfg_small());
    struct client *plain = submitted(5, 9, 1, 12);
    finish();
    struct client *c = client(5, 9, 1, 12);
    memcpy(c->bad_word, plain->ids + 3,
           3 * sizeof *c->bad_word); /* the fourth to the sixth token must not follow each other */
    c->bad_word_start[1] = 3;
    c->r.s.bad_word = c->bad_word;
    c->r.s.bad_word_start = c->bad_word_start;
    c->r.s.n_bad_word = 1;
    submitted(6, 9, 1, 30); /* in company */
    assert_int_equal(world_submit(w, c), ST_OK);
    finish();
    assert_memory_equal(c->ids, plain->ids, 5 * sizeof *c->ids);
    assert_int_not_equal(c->ids[5], plain->ids[5]);
    assert_int_equal(n_out(c, 0), 12);
    close_world();
}

static void a_shortage_waits_for_the_step_in_flight(void **state)
{
    (void)state;
    struct eng_cfg cfg = cfg_small();
    cfg.n_block = 8;
    cfg.prefix_cache = false;
    open_world(cfg);
    submitted(1, 8, 1, 10);                   /* 5 blocks at its end */
    struct client *c = submitted(2, 9, 1, 4); /* 3 blocks; ends when the other needs its fourth */
    finish();
    assert_int_equal(n_preempted(), 0);
    assert_int_equal(ended(c, 0), ENG_LENGTH);
    close_world();
}

static void a_stop_with_two_in_flight_gives_one_final_message_each(void **state)
{
    (void)state;
    open_world(cfg_small());
    for (uint32_t i = 0; i < 12; i++) submitted(i, 20 + i, 1 + i % 3, 30);
    steps(5);
    assert_int_equal(w->fake.n_flight, depth - 1);
    eng_stop(w->e);
    assert_int_equal(w->fake.n_flight, 0);
    world_read(w);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(all[i]->n_final, 1);
    assert_int_equal(w->n_open, 0);
    close_world();
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E1_a_prompt_up_to_the_context_works_and_one_over_is_refused),
        cmocka_unit_test(E2_a_request_larger_than_the_pool_is_refused_at_once),
        cmocka_unit_test(E3_all_running_need_a_block_one_is_preempted),
        cmocka_unit_test(E4_nobody_is_preempted_more_than_three_times_and_the_oldest_never),
        cmocka_unit_test(E5_a_cancel_in_the_step_of_the_finish_gives_one_final_message),
        cmocka_unit_test(E5_a_cancel_of_a_preempted_sequence_gives_its_blocks_back),
        cmocka_unit_test(E6_a_batch_of_exactly_the_maximum_does_not_deadlock),
        cmocka_unit_test(E7_an_idle_engine_gets_on_at_once),
        cmocka_unit_test(E9_a_deadline_in_the_queue_ends_it_before_any_work),
        cmocka_unit_test(E9_a_deadline_while_running_ends_it_in_time),
        cmocka_unit_test(E11_a_long_prompt_is_computed_in_chunks_beside_the_others),
        cmocka_unit_test(E12_a_thousand_identical_prompts_cost_one_prefill),
        cmocka_unit_test(E13_a_nan_ends_its_own_request_and_no_other),
        cmocka_unit_test(E13_blocks_of_a_request_with_nan_are_not_served_from_the_cache),
        cmocka_unit_test(E14_a_flood_of_one_tenant_does_not_delay_another),
        cmocka_unit_test(E14_a_low_priority_is_not_starved_by_a_stream_of_higher_ones),
        cmocka_unit_test(E15_equal_request_ids_do_not_mix),
        cmocka_unit_test(E16_a_canceled_branch_leaves_the_others_going),
        cmocka_unit_test(E16_a_canceled_lead_hands_the_prompt_to_its_sibling),
        cmocka_unit_test(E16_siblings_share_the_prompt_blocks),
        cmocka_unit_test(E17_a_client_that_does_not_read_holds_up_nobody),
        cmocka_unit_test(E19_one_and_many_blocks_tokens_and_sequences),
        cmocka_unit_test(E20_broken_accounting_ends_the_process_with_70),
        cmocka_unit_test(a_lost_device_fails_everyone_once),
        cmocka_unit_test(H2_a_step_that_cannot_be_run_ends_its_own_requests),
        cmocka_unit_test(a_sequence_that_ended_in_flight_leaves_no_trace),
        cmocka_unit_test(a_bad_word_is_seen_in_time),
        cmocka_unit_test(a_shortage_waits_for_the_step_in_flight),
        cmocka_unit_test(a_stop_with_two_in_flight_gives_one_final_message_each),
    };
    int bad = 0;
    for (int i = 0; i < STORY_WAYS; i++) bad += cmocka_run_group_tests_name(story_way(i), tests, NULL, NULL);
    return bad;
}
