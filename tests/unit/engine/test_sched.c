/* The scheduler over a real pool, without an engine: a step plans, "computes" and samples token 1 for whoever is to
 * sample.
 * Over 500 lines: one scheduler; a test for each rule of who runs. */
#include "test.h"
#include "engine/sched.h"

enum { N = 64, CONTEXT = 128 };
struct fixture {
    struct kv         *kv;
    struct batch       b;
    struct sched       sc;
    struct eng_request r[N];
    struct eng_choice  c[N];
    struct req         q[N];
    struct seq         s[N];
    uint32_t           prompt[N][CONTEXT], out[N][CONTEXT];
    uint32_t           n;
    uint64_t           step, now_us;
};

static struct fixture *make(uint32_t n_block, uint32_t seqs_max, uint32_t tokens_max, uint32_t chunk_max)
{
    struct fixture *x = calloc(1, sizeof *x);
    struct kv_cfg   kc = {
          .n_block = n_block, .block_tokens = 4, .n_seq_max = seqs_max, .seq_tokens_max = CONTEXT, .prefix_cache = true
    };
    struct batch_cfg bc = { .rows_max = tokens_max,
                            .seqs_max = seqs_max,
                            .pages_max = seqs_max * 32,
                            .hist_max = 200,
                            .ban_max = 8,
                            .allow_max = 8,
                            .mask_max = 8,
                            .bias_max = 8 };
    struct sched_cfg sc = { .seqs_max = seqs_max,
                            .tokens_max = tokens_max,
                            .chunk_max = chunk_max,
                            .preempt_max = 2,
                            .block_tokens = 4,
                            .n_block = n_block,
                            .context_max = CONTEXT };
    assert_int_equal(kv_create(&kc, &x->kv), ST_OK);
    assert_int_equal(batch_init(&x->b, &bc), ST_OK);
    assert_int_equal(sched_init(&x->sc, &sc, x->kv, &x->b), ST_OK);
    x->now_us = 1000;
    return x;
}

static void drop(struct fixture *x)
{
    sched_check(&x->sc);
    assert_int_equal(kv_check(x->kv), ST_OK);
    sched_close(&x->sc);
    batch_free(&x->b);
    kv_free(x->kv);
    free(x);
}

static struct seq *add_as(struct fixture *x, uint64_t tenant, uint32_t kind, uint32_t n_prompt, uint32_t max_tokens)
{
    uint32_t i = x->n++;
    for (uint32_t k = 0; k < n_prompt; k++) x->prompt[i][k] = kind * 1000 + k;
    x->c[i].id = x->out[i];
    x->r[i] = (struct eng_request){
        .id = i, .prompt = x->prompt[i], .n_prompt = n_prompt, .n_choice = 1, .choice = &x->c[i], .tenant = tenant
    };
    x->r[i].s.max_tokens = max_tokens;
    x->q[i] = (struct req){ .r = &x->r[i], .arrival = i, .tenant = fair_enter(&x->sc.fair, tenant) };
    list_init(&x->q[i].seqs);
    seq_init(&x->s[i], &x->q[i], 0);
    x->s[i].lead = true;
    sched_enqueue(&x->sc, &x->s[i], x->now_us);
    return &x->s[i];
}
static struct seq *add(struct fixture *x, uint32_t kind, uint32_t n_prompt, uint32_t max_tokens)
{
    return add_as(x, 0, kind, n_prompt, max_tokens);
}

/* Two steps at a time: a plan is sent, the next one is made, and only then the first one lands. */
struct sent {
    struct seq *s[N];
    uint32_t    n_row[N], n;
    bool        samples[N];
};

static struct sent send(struct fixture *x)
{
    struct sent t = { .n = x->sc.n_plan };
    for (uint32_t i = 0; i < t.n; i++) {
        struct seq *s = t.s[i] = x->sc.plan[i];
        t.n_row[i] = s->n_step;
        t.samples[i] = s->samples;
        sched_sent(&x->sc, s, i);
    }
    sched_check(&x->sc);
    return t;
}

static void land(struct fixture *x, const struct sent *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        struct seq *s = t->s[i];
        sched_commit(&x->sc, s, t->n_row[i]);
        if (!t->samples[i]) continue;
        s->fly_token--;
        s->c->id[seq_n_out(s)] = 1;
        s->id[s->n_token++] = 1;
        if (s->n_token == s->n_max) sched_remove(&x->sc, s, false);
    }
    sched_check(&x->sc);
    assert_int_equal(kv_check(x->kv), ST_OK);
}

static bool plan_ahead(struct fixture *x)
{
    bool ok = sched_plan(&x->sc, ++x->step, x->now_us += 1000, true);
    assert_int_equal(kv_check(x->kv), ST_OK);
    return ok;
}

/* Rows of the step that was planned. */
static uint32_t plan(struct fixture *x)
{
    uint32_t n = 0;
    assert_true(sched_plan(&x->sc, ++x->step, x->now_us += 1000, false));
    for (uint32_t i = 0; i < x->sc.n_plan; i++) n += x->sc.plan[i]->n_step;
    assert_int_equal(n + x->sc.budget, x->sc.cfg.tokens_max);
    assert_int_equal(kv_check(x->kv), ST_OK);
    return n;
}

static void compute(struct fixture *x)
{
    struct sent t = send(x);
    land(x, &t);
}

static uint32_t step(struct fixture *x)
{
    uint32_t n = plan(x);
    compute(x);
    return n;
}

static void decoding_rows_come_first_and_prompts_fill_the_budget(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 16, 16);
    struct seq     *a = add(x, 1, 5, 20), *b = add(x, 2, 6, 20);
    assert_int_equal(step(x), 11);
    struct seq *c = add(x, 3, 40, 20);
    assert_int_equal(plan(x), 16);
    assert_ptr_equal(x->sc.plan[0], a);
    assert_ptr_equal(x->sc.plan[1], b);
    assert_ptr_equal(x->sc.plan[2], c);
    assert_int_equal(c->n_step, 14);
    assert_false(c->samples);
    drop(x);
}

static void a_chunk_is_never_longer_than_its_bound(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 32, 10);
    struct seq     *a = add(x, 1, 25, 4), *b = add(x, 2, 25, 4);
    assert_int_equal(plan(x), 20);
    assert_int_equal(a->n_step, 10);
    assert_int_equal(b->n_step, 10);
    compute(x);
    step(x);
    assert_int_equal(plan(x), 10);
    assert_true(a->samples && b->samples);
    drop(x);
}

static void a_long_prompt_leaves_half_of_a_step_to_short_ones_and_takes_the_rest_of_their_half(void **state)
{
    (void)state;
    struct fixture *x = make(200, 8, 32, 32);
    struct seq     *a = add(x, 1, 120, 4);
    assert_int_equal(step(x), 32);
    struct seq *b = add(x, 2, 5, 4), *c = add(x, 3, 40, 4);
    assert_int_equal(plan(x), 32);
    assert_int_equal(a->n_step, 16);
    assert_true(b->samples); /* short ones are not cut */
    assert_int_equal(c->n_step, 11);
    compute(x);
    sched_remove(&x->sc, c, false);
    assert_int_equal(plan(x), 32); /* b has its row, a all others */
    assert_int_equal(a->n_step, 31);
    compute(x);
    drop(x);
}

static void the_number_of_running_is_bounded(void **state)
{
    (void)state;
    struct fixture *x = make(100, 3, 32, 32);
    for (uint32_t i = 0; i < 10; i++) add(x, i, 4, 3);
    step(x);
    assert_int_equal(x->sc.n_running, 3);
    assert_int_equal(x->sc.fair.n_waiting, 7);
    for (uint32_t i = 0; i < 20; i++) {
        step(x);
        assert_true(x->sc.n_running <= 3);
    }
    assert_int_equal(x->sc.fair.n_waiting + x->sc.n_running, 0);
    drop(x);
}

static void of_equals_the_longest_cached_prefix_goes_first(void **state)
{
    (void)state;
    struct fixture *x = make(100, 1, 64, 64);
    add(x, 7, 21, 1);
    step(x);
    struct seq *busy = add(x, 1, 4, 3);
    step(x);
    add(x, 2, 21, 1);
    add(x, 3, 21, 1);
    struct seq *warm = add(x, 7, 22, 2);
    while (busy->state == SEQ_RUNNING) step(x);
    step(x);
    assert_int_equal(warm->state, SEQ_RUNNING);
    assert_int_equal(warm->n_cached, 20);
    assert_int_equal(warm->r->n_cached, 20);
    drop(x);
}

static void a_cold_prompt_is_passed_over_only_so_often(void **state)
{
    (void)state;
    struct fixture *x = make(100, 1, 64, 64);
    add(x, 7, 21, 1);
    step(x);
    struct seq *cold = add(x, 2, 21, 1);
    uint32_t    n = 0;
    for (; cold->state == SEQ_WAITING && n < 40; n++) {
        add(x, 7, 22, 1);
        step(x);
    }
    assert_in_range(n, 10, 20);
    drop(x);
}

static void a_prompt_that_another_computes_right_now_waits_for_it(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 64, 8);
    struct seq     *a = add(x, 1, 40, 4), *b = add(x, 1, 41, 4), *other = add(x, 2, 12, 4);
    step(x);
    assert_int_equal(a->state, SEQ_RUNNING);
    assert_int_equal(b->state, SEQ_WAITING);
    assert_int_equal(other->state, SEQ_RUNNING); /* it holds up nobody else */
    for (uint32_t i = 0; i < 4; i++) step(x);
    assert_int_equal(a->n_computed, 40);
    step(x);
    assert_int_equal(b->state, SEQ_RUNNING);
    assert_int_equal(b->n_cached, 40);
    drop(x);
}

static void other_salts_do_not_wait_for_each_other(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 64, 8);
    add(x, 1, 40, 4);
    struct seq *b = add(x, 1, 41, 4);
    b->r->salt.lo = 5;
    step(x);
    assert_int_equal(b->state, SEQ_RUNNING);
    for (uint32_t i = 0; i < 8; i++) step(x);
    assert_int_equal(b->n_cached, 0);
    drop(x);
}

static void the_youngest_gives_way_and_comes_back_in_front(void **state)
{
    (void)state;
    struct fixture *x = make(9, 8, 64, 64);
    struct seq     *a = add(x, 1, 8, 16), *b = add(x, 2, 8, 16), *c = add(x, 3, 8, 16); /* 6 blocks each in the end */
    step(x);
    assert_int_equal(x->sc.n_running, 3);
    while (!x->sc.n_preempted) step(x);
    assert_int_equal(c->state, SEQ_WAITING);
    assert_int_equal(c->n_preempted, 1);
    assert_int_equal(c->n_computed, 0);
    assert_int_equal(a->n_preempted + b->n_preempted, 0);
    struct seq *d = add(x, 4, 4, 4);
    while (a->state == SEQ_RUNNING) step(x);
    while (c->state == SEQ_WAITING) {
        assert_int_equal(d->state, SEQ_WAITING);
        step(x);
    }
    for (uint32_t i = 0; i < 60; i++) step(x);
    assert_int_equal(b->state + c->state + d->state, 3 * SEQ_DONE);
    drop(x);
}

static void lower_priority_gives_way_to_higher_even_when_older(void **state)
{
    (void)state;
    struct fixture *x = make(6, 8, 64, 64);
    struct seq     *low = add(x, 1, 8, 12);
    low->r->priority = 1;
    step(x);
    struct seq *high = add(x, 2, 8, 12);
    high->r->priority = -1;
    for (uint32_t i = 0; i < 8; i++) step(x);
    assert_int_equal(low->n_preempted, 1);
    assert_int_equal(high->n_preempted, 0);
    drop(x);
}

static void after_the_last_preemption_it_holds_all_it_may_need(void **state)
{
    (void)state;
    struct fixture *x = make(12, 8, 64, 64);
    for (uint32_t i = 0; i < 6; i++) add(x, i, 7, 30);
    bool seen = false;
    for (uint32_t i = 0; i < 600; i++) {
        step(x);
        for (uint32_t k = 0; k < x->sc.n_running; k++) {
            const struct seq *s = x->sc.running[k];
            assert_true(s->n_preempted <= 2);
            if (!s->reserved) continue;
            seen = true;
            assert_true(s->kv.n_block >= (s->n_max - 1 + 3) / 4);
        }
    }
    assert_true(seen);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(x->s[i].state, SEQ_DONE);
    drop(x);
}

static void a_prompt_waits_until_its_blocks_are_there_and_preempts_nobody(void **state)
{
    (void)state;
    struct fixture *x = make(20, 8, 64, 8);
    add(x, 1, 24, 20);
    step(x);
    struct seq *big = add(x, 2, 64, 4); /* 16 of 20 blocks, 6 are promised to the first */
    for (uint32_t i = 0; i < 10; i++) step(x);
    assert_int_equal(big->state, SEQ_WAITING);
    assert_int_equal(x->sc.n_preempted, 0);
    for (uint32_t i = 0; i < 40; i++) step(x);
    assert_int_equal(big->state, SEQ_DONE);
    drop(x);
}

static void a_sequence_that_exceeds_the_sampling_arrays_sits_out_a_step(void **state)
{
    (void)state;
    struct fixture *x = make(200, 8, 64, 64);
    for (uint32_t i = 0; i < 3; i++) add(x, i, 60, 20)->r->s.repetition = 1.5f; /* hist_max is 200 */
    for (uint32_t i = 0; i < 6; i++) step(x);
    bool sat_out = false;
    for (uint32_t i = 0; i < 20; i++) {
        plan(x);
        uint32_t n_hist = 0, n_sample = 0;
        for (uint32_t k = 0; k < x->sc.n_plan; k++)
            if (x->sc.plan[k]->samples) {
                n_hist += x->sc.plan[k]->n_token;
                n_sample++;
            }
        assert_true(n_hist <= 200);
        sat_out |= n_sample < x->sc.n_running;
        compute(x);
    }
    assert_true(sat_out);
    for (uint32_t i = 0; i < 60; i++) step(x);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(x->s[i].state, SEQ_DONE);
    drop(x);
}

static void siblings_fork_in_the_step_after_the_prompt(void **state)
{
    (void)state;
    struct fixture *x = make(20, 2, 64, 64);
    struct seq     *lead = add(x, 1, 10, 4);
    plan(x);
    struct seq kid[2];
    seq_init(&kid[0], lead->q, 0);
    kid[0].choice = 1;
    seq_init(&kid[1], lead->q, 0);
    kid[1].choice = 2;
    assert_true(sched_sibling(&x->sc, &kid[0], lead));
    assert_false(sched_sibling(&x->sc, &kid[1], lead)); /* two may run */
    compute(x);
    sched_fork(&x->sc, lead, &kid[0]);
    assert_int_equal(kid[0].n_computed, 10);
    assert_int_equal(kid[0].kv.block[2], lead->kv.block[2]);
    assert_int_equal(kv_check(x->kv), ST_OK);
    sched_remove(&x->sc, &kid[0], false);
    sched_remove(&x->sc, lead, false);
    drop(x);
}

static void a_token_in_flight_counts_and_its_row_is_next(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 16, 16);
    struct seq     *a = add(x, 1, 5, 20);
    plan(x);
    struct sent first = send(x);
    assert_int_equal(seq_next(a), 5);
    assert_int_equal(seq_n_ahead(a), 6);
    assert_int_equal(a->id[5], SEQ_PENDING);
    assert_true(plan_ahead(x));
    assert_int_equal(x->sc.n_plan, 1);
    assert_int_equal(a->n_step, 1);
    assert_true(a->samples);
    struct sent second = send(x);
    land(x, &first);
    assert_int_equal(a->n_computed, 5);
    assert_int_equal(a->n_token, 6);
    assert_int_equal(a->id[6], SEQ_PENDING);
    land(x, &second);
    assert_int_equal(a->n_computed, 6);
    assert_int_equal(a->fly_row + a->fly_token, 0);
    drop(x);
}

static void a_sequence_that_surely_ends_in_flight_is_left_out(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 16, 16);
    struct seq     *a = add(x, 1, 5, 1), *b = add(x, 2, 5, 2);
    plan(x);
    struct sent first = send(x);
    assert_true(plan_ahead(x));
    assert_int_equal(x->sc.n_plan, 1);
    assert_ptr_equal(x->sc.plan[0], b);
    struct sent second = send(x);
    land(x, &first);
    assert_int_equal(a->state, SEQ_DONE);
    assert_true(plan_ahead(x));
    assert_int_equal(x->sc.n_plan, 0);
    land(x, &second);
    assert_int_equal(b->state, SEQ_DONE);
    drop(x);
}

static void a_shortage_gives_the_plan_up_while_a_step_is_in_flight(void **state)
{
    (void)state;
    struct fixture *x = make(6, 8, 64, 64); /* blocks of 4 */
    struct seq     *a = add(x, 1, 11, 8), *b = add(x, 2, 8, 8);
    step(x);
    plan(x);
    struct sent t = send(x); /* 12 and 9 tokens: 3 + 3 blocks, the next row of a needs another */
    assert_false(plan_ahead(x));
    assert_int_equal(x->sc.n_preempted, 0);
    land(x, &t);
    plan(x);
    assert_int_equal(x->sc.n_preempted, 1);
    assert_int_equal(b->state, SEQ_WAITING);
    assert_int_equal(a->n_step, 1);
    drop(x);
}

static void a_row_that_needs_its_last_id_on_the_host_waits_for_it(void **state)
{
    (void)state;
    static const uint32_t word[] = { 7, 8 }, start[] = { 0, 2 }, start_one[] = { 0, 1 };
    struct fixture       *x = make(100, 8, 64, 64);
    for (uint32_t len = 1; len <= 2; len++) {
        struct seq *a = add(x, len, 5, 4);
        a->r->s.bad_word = word;
        a->r->s.bad_word_start = len == 2 ? start : start_one;
        a->r->s.n_bad_word = 1;
        a->on_host = sample_on_host(&a->r->s);
        plan(x);
        struct sent t = send(x);
        assert_int_equal(plan_ahead(x), len == 1); /* a single id is banned always */
        land(x, &t);
        while (a->state != SEQ_DONE) step(x);
    }
    drop(x);
}

static void a_prompt_in_flight_is_waited_for_by_its_like(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 64, 64);
    add(x, 1, 40, 4);
    plan(x);
    struct sent t = send(x);
    struct seq *b = add(x, 1, 40, 4);
    assert_true(plan_ahead(x));
    assert_int_equal(b->state, SEQ_WAITING);
    struct sent u = send(x);
    land(x, &t);
    assert_true(plan_ahead(x));
    assert_int_equal(b->n_cached, 36);
    land(x, &u);
    drop(x);
}

static void prompt_logprobs_match_nothing_that_has_not_given_its_own(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 64, 64);
    add(x, 1, 40, 1);
    step(x);
    struct seq *a = add(x, 1, 40, 4), *b = add(x, 1, 41, 4);
    a->r->s.prompt_logprobs = b->r->s.prompt_logprobs = true;
    b->q->n_lp = 13;
    step(x);
    assert_int_equal(a->n_cached, 0);
    assert_int_equal(b->n_cached, 12);
    drop(x);
}

static struct seq *add_share(struct fixture *x, uint32_t kind, uint32_t n_prompt, double share)
{
    struct seq *q = add(x, kind, n_prompt, 4);
    q->r->hit_share = share;
    return q;
}

static void prompts_that_are_colder_than_they_ask_are_refused_at_their_turn(void **state)
{
    (void)state;
    struct fixture *x = make(100, 8, 200, 64);
    add(x, 7, 41, 1);
    step(x); /* 40 tokens of kind 7 are cached */
    struct seq *more = add_share(x, 7, 80, 0.51), *half = add_share(x, 7, 80, 0.5), *none = add_share(x, 8, 20, 0.001),
               *all = add_share(x, 7, 41, 1), *brief = add_share(x, 9, 4, 1), *free_of = add_share(x, 10, 20, 0);
    step(x);
    assert_true(half->state == SEQ_RUNNING && half->n_cached == 40);
    assert_int_equal(all->state, SEQ_RUNNING); /* what cannot be cached is not asked for */
    assert_int_equal(brief->state, SEQ_RUNNING);
    assert_int_equal(free_of->state, SEQ_RUNNING);
    assert_true(more->cold && none->cold);
    assert_int_equal(x->sc.fair.n_waiting, 0);
    sched_remove(&x->sc, more, false);
    sched_remove(&x->sc, none, false);
    assert_true(list_empty(&x->sc.cold));
    drop(x);
}

static void a_preempted_one_is_not_asked_again_how_much_of_it_is_cached(void **state)
{
    (void)state;
    struct fixture *x = make(12, 4, 64, 64);
    add(x, 1, 17, 1);
    step(x);
    struct seq *old = add(x, 1, 17, 20), *young = add_share(x, 1, 18, 0.8);
    old->r->priority = -1;
    step(x);
    assert_int_equal(young->state, SEQ_RUNNING);
    x->sc.cfg.preempt_every = 1; /* each step takes the youngest's place */
    step(x);
    x->sc.cfg.preempt_every = 0;
    assert_true(young->resumed && young->n_preempted == 1);
    for (uint32_t i = 0; i < 40 && young->state != SEQ_DONE; i++) {
        step(x);
        assert_false(young->cold);
    }
    assert_int_equal(young->state, SEQ_DONE);
    drop(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_rows_come_first_and_prompts_fill_the_budget),
        cmocka_unit_test(a_chunk_is_never_longer_than_its_bound),
        cmocka_unit_test(prompts_that_are_colder_than_they_ask_are_refused_at_their_turn),
        cmocka_unit_test(a_preempted_one_is_not_asked_again_how_much_of_it_is_cached),
        cmocka_unit_test(a_long_prompt_leaves_half_of_a_step_to_short_ones_and_takes_the_rest_of_their_half),
        cmocka_unit_test(the_number_of_running_is_bounded),
        cmocka_unit_test(of_equals_the_longest_cached_prefix_goes_first),
        cmocka_unit_test(a_cold_prompt_is_passed_over_only_so_often),
        cmocka_unit_test(a_prompt_that_another_computes_right_now_waits_for_it),
        cmocka_unit_test(other_salts_do_not_wait_for_each_other),
        cmocka_unit_test(the_youngest_gives_way_and_comes_back_in_front),
        cmocka_unit_test(lower_priority_gives_way_to_higher_even_when_older),
        cmocka_unit_test(after_the_last_preemption_it_holds_all_it_may_need),
        cmocka_unit_test(a_prompt_waits_until_its_blocks_are_there_and_preempts_nobody),
        cmocka_unit_test(a_sequence_that_exceeds_the_sampling_arrays_sits_out_a_step),
        cmocka_unit_test(siblings_fork_in_the_step_after_the_prompt),
        cmocka_unit_test(a_token_in_flight_counts_and_its_row_is_next),
        cmocka_unit_test(a_sequence_that_surely_ends_in_flight_is_left_out),
        cmocka_unit_test(a_shortage_gives_the_plan_up_while_a_step_is_in_flight),
        cmocka_unit_test(a_row_that_needs_its_last_id_on_the_host_waits_for_it),
        cmocka_unit_test(a_prompt_in_flight_is_waited_for_by_its_like),
        cmocka_unit_test(prompt_logprobs_match_nothing_that_has_not_given_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
