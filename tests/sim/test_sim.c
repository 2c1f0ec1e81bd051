/* The scheduler and the KV cache under random load: test_sim [seed0 n]. Each seed draws a configuration and a story of
 * arrivals, cancels, deadlines, evictions, slow readers and failures; world.h checks every step and every answer.
 * A seed is the whole story: the same seed gives the same steps. */
#include "test.h"
#include "sim/world.h"
#include <fcntl.h>
#include <time.h>

enum { CLIENTS_MAX = 150, STEPS_MAX = 20000, VOCAB = 48 };

struct dice {
    uint64_t x;
};
static uint64_t roll(struct dice *d) { return hash_u64(d->x++); }
static uint32_t below(struct dice *d, uint32_t n) { return (uint32_t)(roll(d) % n); }
static uint32_t between(struct dice *d, uint32_t lo, uint32_t hi) { return lo + below(d, hi - lo + 1); }
static bool     one_in(struct dice *d, uint32_t n) { return below(d, n) == 0; }

static const uint32_t eos_ids[] = { 1, 7 };

static struct eng_cfg draw_cfg(struct dice *d)
{
    struct eng_cfg c = { .vocab = VOCAB, .eos_id = eos_ids };
    c.block_tokens = between(d, 1, 8);
    c.context_max = between(d, 16, 64);
    c.seqs_max = one_in(d, 8) ? 1 : between(d, 2, 12);
    c.batch_tokens_max = one_in(d, 8) ? between(d, 1, 4) : between(d, 4, 48);
    c.prefill_chunk_max = one_in(d, 3) ? 0 : between(d, 1, 24);
    c.queue_requests_max = between(d, 1, 24);
    c.queue_tokens_max = one_in(d, 3) ? between(d, 20, 200) : 100000;
    uint32_t one = (c.context_max + c.block_tokens - 1) / c.block_tokens; /* blocks of the longest sequence */
    c.n_block = one_in(d, 4) ? between(d, one / 2 + 1, one) : between(d, one, one * (1 + below(d, 6)) + 4);
    c.prefix_cache = !one_in(d, 5);
    c.preempt_max = between(d, 1, 4);
    c.n_eos = below(d, 3);
    if (one_in(d, 64)) { /* a large one now and then */
        c.seqs_max = between(d, 17, 64);
        c.batch_tokens_max = between(d, 40, 400);
        c.n_block = one * (1 + below(d, 32));
        c.queue_requests_max = 100;
        c.queue_tokens_max = 0;
    }
    c.kv_hash_bits = one_in(d, 3) ? between(d, 1, 4) : 0;
    c.kv_borrow_min = below(d, 6);
    c.kv_pin_percent = one_in(d, 2) ? between(d, 1, 90) : 0;
    c.preempt_every = one_in(d, 8) ? between(d, 1, 20) : 0;
    if (one_in(d, 2)) { /* layers with a window, and a pool for them that is just large enough, or has some room */
        c.window = between(d, 1, 24);
        c.n_window = one_in(d, 2) ? eng_windows_min(&c, c.window) : kv_window_least(c.window, c.block_tokens);
        c.n_window += one_in(d, 2) ? 0 : below(d, 80);
    }
    return c;
}

struct stem {
    uint32_t id[64];
}; /* prompts share their beginnings */

static void draw_sampling(struct dice *d, struct client *c)
{
    struct eng_sampling *s = &c->r.s;
    s->temperature = one_in(d, 3) ? 0 : 1;
    s->seed = roll(d) >> 16 & 0xffffffff;
    s->ignore_eos = one_in(d, 3);
    s->logprobs = one_in(d, 2);
    s->n_top = s->logprobs ? below(d, 3) : 0;
    if (one_in(d, 4)) s->min_tokens = between(d, 1, 6);
    if (one_in(d, 4)) {
        c->stop_id[0] = below(d, VOCAB);
        c->stop_id[1] = below(d, VOCAB);
        s->stop_id = c->stop_id;
        s->n_stop_id = between(d, 1, 2);
    }
    if (one_in(d, 4)) s->repetition = 1.5f;
    if (one_in(d, 6)) s->presence = 0.5f;
    if (one_in(d, 6)) s->frequency = 0.5f;
    if (one_in(d, 6)) {
        c->bad_word[0] = below(d, 4);
        c->bad_word[1] = below(d, VOCAB);
        c->bad_word[2] = below(d, VOCAB);
        c->bad_word_start[0] = 0;
        c->bad_word_start[1] = 1;
        c->bad_word_start[2] = 3;
        s->bad_word = c->bad_word;
        s->bad_word_start = c->bad_word_start;
        s->n_bad_word = 2;
    }
    if (one_in(d, 8)) {
        for (uint32_t i = 0; i < 8; i++) c->allowed[i] = below(d, VOCAB);
        s->allowed_id = c->allowed;
        s->n_allowed = between(d, 2, 8);
    }
    if (one_in(d, 8)) {
        for (uint32_t i = 0; i < 2; i++) c->bias[i] = (struct eng_bias){ below(d, VOCAB), 1 };
        s->bias = c->bias;
        s->n_bias = 2;
    }
    s->prompt_logprobs = one_in(d, 8);
}

/* Its text follows a grammar; nothing else may ban or allow tokens then. */
static void draw_guides(struct dice *d, const struct eng_cfg *cfg, struct client *c)
{
    struct eng_sampling *s = &c->r.s;
    if (!one_in(d, 4)) return;
    s->min_tokens = s->n_stop_id = s->n_bad_word = s->n_allowed = 0;
    for (uint32_t i = 0; i < c->r.n_choice; i++)
        c->choice[i].guide = guided_guide(cfg->eos_id, s->ignore_eos ? 0 : cfg->n_eos, guided_gated(s->seed));
}

static struct client *draw_client(struct dice *d, struct world *w, const struct stem *stem)
{
    uint32_t prompt[80], ctx = w->cfg.context_max;
    uint32_t shared = below(d, 40), n = shared + between(d, shared ? 0 : 1, 12);
    if (n >= ctx && !one_in(d, 8)) n = between(d, 1, ctx - 1);
    const struct stem *from = &stem[below(d, 3)];
    for (uint32_t i = 0; i < n; i++) prompt[i] = i < shared ? from->id[i] : below(d, VOCAB);
    uint32_t max = one_in(d, 6) ? ctx : between(d, 1, 20);
    if (n + max > ctx && n < ctx && !one_in(d, 16)) max = ctx - n;
    uint32_t       n_choice = one_in(d, 4) ? between(d, 2, 5) : 1;
    struct client *c = client_new(w, prompt, n, n_choice, max);
    draw_sampling(d, c);
    draw_guides(d, &w->cfg, c);
    if (one_in(d, 20)) { /* fake.h: the highest byte is the output position of a NaN, the next its choice */
        c->r.s.seed |= (uint64_t)between(d, 1, 8) << 56 | (uint64_t)below(d, n_choice) << 48;
        c->expect_nan = true;
    }
    c->r.priority = one_in(d, 4) ? (int32_t)below(d, 5) - 2 : 0;
    c->r.tenant = below(d, 4);
    c->r.salt.lo = one_in(d, 4) ? below(d, 3) : 0;
    if (one_in(d, 3)) c->r.keep.priority = (int8_t)((int)below(d, 10) - 5);
    if (one_in(d, 3)) c->r.keep.ttl_s = between(d, 1, 3);
    if (one_in(d, 5)) c->r.keep.pin_s = between(d, 1, 4);
    c->r.keep.memory_only = one_in(d, 6);
    if (one_in(d, 8)) c->r.hit_share = (double)below(d, 5) / 4;
    if (one_in(d, 10)) c->r.deadline_us = w->now_us + below(d, 200000);
    return c;
}

static void disturb(struct dice *d, struct world *w, struct client **c, uint32_t n)
{
    struct client *x = c[below(d, n)];
    if (!x->submitted || x->done || x->n_disturbed++ == 2)
        return; /* a request that hangs must not be saved by its cancel */
    if (one_in(d, 3))
        eng_cancel(w->e, &x->r);
    else
        atomic_store(&x->choice[below(d, x->r.n_choice)].canceled, true);
}

static int null_fd = 2;

static void story(struct dice *d, struct world *w)
{
    struct stem    stem[3];
    struct client *c[CLIENTS_MAX];
    uint32_t       n = 0, n_client = w->cfg.seqs_max > 16 ? CLIENTS_MAX : between(d, 1, 28), burst = between(d, 2, 8),
             trouble = between(d, 3, 40), reader = between(d, 1, 4);
    bool evicts = one_in(d, 3), drains = one_in(d, 12);
    if (one_in(d, 3)) { /* little room for what sampling needs: some must wait a step */
        struct batch *b = &w->e->flight[0].batch, *other = &w->e->flight[1].batch;
        b->max.hist_max = w->cfg.context_max + below(d, 2 * w->cfg.context_max);
        b->max.ban_max = between(d, 6, 20);
        b->max.allow_max = between(d, 8, 20);
        b->max.bias_max = between(d, 2, 6);
        b->max.mask_max = gr_words(VOCAB) * between(d, 1, 3);
        if (w->depth > 1) other->max = b->max;
    }
    if (one_in(d, 25)) w->fake.fail_at = between(d, 1, 60);
    if (!w->fake.fail_at && one_in(d, 25)) w->fake.refuse_every = between(d, 2, 60);
    log_init(LOG_LEVEL_ERROR, w->fake.fail_at ? null_fd : 2, false); /* a lost device is an error, and here no news */
    for (uint32_t s = 0; s < 3; s++)
        for (uint32_t i = 0; i < 64; i++) stem[s].id[i] = s && i < 10 ? stem[0].id[i] : below(d, VOCAB);
    while (n < n_client || w->n_open) {
        while (n < n_client && !one_in(d, burst)) {
            c[n] = draw_client(d, w, stem);
            enum status st = world_submit(w, c[n++]);
            if (st == ST_INVALID) WORLD_FAULT(w, "a valid request was refused");
            if (st == ST_OK && one_in(d, 16))
                atomic_store(&c[n - 1]->choice[0].canceled, true); /* before its prompt is computed */
        }
        if (n && one_in(d, trouble)) disturb(d, w, c, n);
        if (evicts && one_in(d, 8)) kv_evict_all(eng_kv(w->e));
        if (drains && n == n_client && one_in(d, 20)) eng_drain(w->e, w->now_us + 50000);
        w->reads = one_in(d, reader);
        w->now_us += below(d, 4000) + (one_in(d, 50) ? 1000000 : 0); /* some come to their end */
        world_step(w);
        if (w->fault[0]) break;
        if (w->n_step > STEPS_MAX) WORLD_FAULT(w, "no end after %d steps, %u requests are open", STEPS_MAX, w->n_open);
    }
    if (!w->fault[0]) world_step(w); /* lets go of what the last final message freed */
    for (uint32_t i = 0; i < n && !w->fault[0]; i++)
        if (c[i]->submitted) world_verify(w, c[i]);
    if (!w->fault[0]) world_ledger(w);
    if (w->fault[0]) eng_stop(w->e); /* the requests go after the engine */
    for (uint32_t i = 0; i < n; i++) client_free(c[i]);
}

struct totals {
    uint64_t n_step, n_row, n_preempted, n_hit, n_borrowed, n_evicted, n_pinned, n_pin_refused, why[KV_EVICT_WHYS],
        n_done, n_patch, n_late, n_passed, n_window_evicted, digest;
};

static bool run_seed(uint64_t seed, uint32_t depth, struct totals *t)
{
    struct dice         d = { hash_u64(seed) };
    static struct world w; /* large */
    struct eng_cfg      cfg = draw_cfg(&d);
    world_prepare(&w, &cfg, depth, seed & 1);
    w.waits = seed >> 1 & 1;
    world_begin(&w, one_in(&d, 4) ? 2 : 64);
    if (w.e) story(&d, &w);
    if (w.e) {
        struct eng_stats s;
        struct kv_stats  k;
        eng_stats(w.e, &s);
        kv_stats(eng_kv(w.e), &k);
        t->n_step += s.n_step;
        t->n_row += w.fake.n_row;
        t->n_preempted += s.n_preempted;
        t->n_hit += s.n_hit_tokens;
        t->n_borrowed += k.n_borrowed;
        t->n_evicted += k.n_evicted;
        for (int i = 0; i < KV_EVICT_WHYS; i++) t->why[i] += k.evicted[i];
        t->n_passed += k.n_window_passed;
        t->n_window_evicted += k.n_window_evicted;
        t->n_pinned += eng_kv(w.e)->pins.n_ended;
        t->n_pin_refused += k.n_pin_refused;
        for (int i = 0; i < ENG_FINISHES; i++) t->n_done += s.n_finished[i];
        t->n_patch += w.fake.n_patch;
        t->n_late += w.fake.n_late;
        t->digest = hash_combine(t->digest, w.fake.digest);
    }
    bool ok = !w.fault[0];
    if (!ok) fprintf(stderr, "depth %u, seed %llu: %s\n", depth, (unsigned long long)seed, w.fault);
    world_close(&w);
    return ok;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEEDS = 2000 }; /* slow there, and of one thread: that it runs at all is enough */
#else
enum { SEEDS = 10000 };
#endif
static uint64_t seed_first = 1, seed_n = SEEDS;

static void run_seeds(uint32_t depth)
{
    struct totals   t = { 0 };
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint32_t n_bad = 0;
    for (uint64_t s = seed_first; s < seed_first + seed_n && n_bad < 10; s++) n_bad += !run_seed(s, depth, &t);
    clock_gettime(CLOCK_MONOTONIC, &b);
    double sec = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
    fprintf(
        stderr,
        "depth %u: %llu seeds in %.1f s (%.0f/s): %llu steps, %llu rows, %llu choices, %llu preemptions, %llu tokens from the cache, "
        "%llu blocks borrowed, %llu evictions, %llu ids patched\n",
        depth, (unsigned long long)seed_n, sec, (double)seed_n / sec, (unsigned long long)t.n_step,
        (unsigned long long)t.n_row, (unsigned long long)t.n_done, (unsigned long long)t.n_preempted,
        (unsigned long long)t.n_hit, (unsigned long long)t.n_borrowed, (unsigned long long)t.n_evicted,
        (unsigned long long)t.n_patch);
    assert_int_equal(n_bad, 0);
    if (seed_n >= 100) {
        assert_true((t.n_patch > 0) == (depth > 1));
        assert_true((t.n_late > 0) == (depth > 1)); /* with one step in flight masks are ready when it is planned */
    }
    fprintf(
        stderr,
        "    %llu pins, %llu refused; evicted: %llu oldest, %llu at their end, %llu of low and %llu of high priority; of windows: %llu passed, %llu evicted\n",
        (unsigned long long)t.n_pinned, (unsigned long long)t.n_pin_refused, (unsigned long long)t.why[KV_EVICT_LRU],
        (unsigned long long)t.why[KV_EVICT_TTL], (unsigned long long)t.why[KV_EVICT_PRIORITY],
        (unsigned long long)t.why[KV_EVICT_PRESSURE], (unsigned long long)t.n_passed,
        (unsigned long long)t.n_window_evicted);
    if (seed_n >= 100) assert_true(t.n_passed && t.n_window_evicted);
    if (seed_n >= 100) assert_true(t.n_borrowed > seed_n / 2 && t.n_pinned && t.n_pin_refused);
    for (int i = 0; i < KV_EVICT_WHYS; i++) assert_true(seed_n < 100 || t.why[i]);
}

static void E21_no_seed_loses_a_block_a_token_or_a_request(void **state)
{
    (void)state;
    run_seeds(1);
}
static void E21_nor_does_one_with_two_steps_in_flight(void **state)
{
    (void)state;
    run_seeds(2);
}

static void the_same_seed_gives_the_same_steps(void **state)
{
    (void)state;
    for (uint64_t s = seed_first; s < seed_first + 200 && s < seed_first + seed_n; s++) {
        struct totals a = { 0 }, b = { 0 };
        assert_true(run_seed(s, 1 + s % 2, &a) && run_seed(s, 1 + s % 2, &b));
        assert_memory_equal(&a, &b, sizeof a);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        seed_first = strtoull(argv[1], NULL, 10);
        seed_n = strtoull(argv[2], NULL, 10);
    }
    null_fd = open("/dev/null", O_WRONLY);
    const struct CMUnitTest tests[] = { cmocka_unit_test(E21_no_seed_loses_a_block_a_token_or_a_request),
                                        cmocka_unit_test(E21_nor_does_one_with_two_steps_in_flight),
                                        cmocka_unit_test(the_same_seed_gives_the_same_steps) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
