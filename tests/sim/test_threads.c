/* The engine on its own thread, with delays at every hand-off: submit, cancel, notification, drain and stop. The
 * answers are known in closed form as in the simulator; the order of events is the machine's. Worth most under
 * ThreadSanitizer.
 * Once with one step in flight, and once with two, on a device with a thread of its own. */
#include "test.h"
#include "base/clock.h"
#include "base/log.h"
#include "sim/late.h"
#include <pthread.h>
#include <time.h>

enum { VOCAB = 500, USERS = 4, PER_USER = 40, DELAY_US_MAX = 3000 };

static const uint32_t eos_ids[] = { 3 };

static _Atomic uint64_t delay_dice;
static bool             overlap;

static void nap(uint32_t us_max)
{
    uint64_t x = hash_u64(atomic_fetch_add(&delay_dice, 1));
    if (x & 1) return; /* half of them at once */
    nanosleep(&(struct timespec){ .tv_nsec = (long)(x >> 8) % (us_max * 1000L) }, NULL);
}
static void nap_run(void) { nap(DELAY_US_MAX); }

static struct eng_cfg config(void)
{
    return (struct eng_cfg){ .seqs_max = 6,
                             .batch_tokens_max = 40,
                             .prefill_chunk_max = 16,
                             .queue_requests_max = 12,
                             .context_max = 128,
                             .vocab = VOCAB,
                             .n_block = 60,
                             .block_tokens = 4,
                             .prefix_cache = true,
                             .eos_id = eos_ids,
                             .n_eos = 1,
                             .n_guide_thread = 2 };
}

struct request { /* and its answer's arrays */
    struct eng_request r;
    struct eng_choice  choice[3];
    uint32_t           prompt[60], ids[3][40];
    uint32_t           n_seen;
};

static void request_init(struct request *q, uint64_t seed, struct ring *outbox)
{
    memset(q, 0, sizeof *q);
    q->r.prompt = q->prompt;
    q->r.n_prompt = 1 + (uint32_t)(hash_u64(seed) % 60);
    for (uint32_t i = 0; i < q->r.n_prompt; i++) q->prompt[i] = (uint32_t)(hash_u64(seed % 3 * 1000 + i) % VOCAB);
    q->r.choice = q->choice;
    q->r.n_choice = 1 + (uint32_t)(hash_u64(seed + 1) % 3);
    for (uint32_t i = 0; i < 3; i++) q->choice[i].id = q->ids[i];
    q->r.s = (struct eng_sampling){ .temperature = 1,
                                    .top_p = 1,
                                    .repetition = 1,
                                    .seed = seed & 0xffff,
                                    .max_tokens = 1 + (uint32_t)(hash_u64(seed + 2) % 40) };
    q->r.tenant = seed % 5;
    q->r.id = seed;
    q->r.outbox = outbox;
}

static void drop_guides(struct request *q)
{
    for (uint32_t k = 0; k < 3; k++) {
        guide_drop(q->choice[k].guide);
        q->choice[k].guide = NULL;
    }
}

static bool answer_ok(const struct request *q, const struct eng_cfg *cfg)
{
    for (uint32_t i = 0; i < q->r.n_choice; i++) {
        uint32_t           want[40], n = atomic_load(&q->choice[i].n_out);
        int                finish = atomic_load(&q->choice[i].finish);
        struct fake_answer a = { .id = want };
        fake_expect(&q->r, i, cfg, &a);
        bool whole = finish == ENG_STOP || finish == ENG_LENGTH;
        if (finish == ENG_NONE || n > a.n || (whole && n != a.n) || memcmp(q->ids[i], want, n * sizeof *want))
            return false;
        if (!whole && !atomic_load(&q->r.canceled) && !atomic_load(&q->choice[i].canceled)) return false;
    }
    return true;
}

struct user {
    struct engine *e;
    struct eng_cfg cfg;
    uint32_t       number, n_done, n_wrong, n_late, n_lost;
};

/* Reads as a server does: clear the flag, then look; every token that is there by then has been seen. */
static void *use(void *arg)
{
    struct user    *u = arg;
    struct ring     outbox;
    struct request *q = calloc(PER_USER, sizeof *q);
    uint32_t        n_sent = 0;
    uint64_t        dice = u->number * 1000003u;
    if (ring_init(&outbox, 2 * PER_USER)) abort();
    while (u->n_done < PER_USER) {
        if (n_sent < PER_USER && n_sent - u->n_done < 5) {
            drop_guides(&q[n_sent]); /* of a time before, when the queue was full */
            request_init(&q[n_sent], u->number * 977 + n_sent, &outbox);
            for (uint32_t i = 0; n_sent % 3 == 0 && i < q[n_sent].r.n_choice; i++)
                q[n_sent].choice[i].guide = guided_guide(eos_ids, 1, guided_gated(q[n_sent].r.s.seed));
            nap(DELAY_US_MAX);
            if (eng_submit(u->e, &q[n_sent].r) == ST_OK) n_sent++;
        }
        dice = hash_u64(dice);
        if (n_sent > u->n_done && dice % 7 == 0) { /* of one that is still ours to touch: not final yet */
            struct request *x = &q[dice / 7 % n_sent];
            if (!(x->r.user)) {
                if (dice & 1 << 20)
                    eng_cancel(u->e, &x->r);
                else
                    atomic_store(&x->choice[0].canceled, true);
            }
        }
        for (void *msg; (msg = ring_pop(&outbox));) {
            nap(DELAY_US_MAX / 4);
            struct request *x = (struct request *)eng_msg_request(msg); /* r is the first member */
            if (!eng_msg_is_final(msg)) {
                atomic_store(&x->r.notified, false);
                x->n_seen++;
                continue;
            }
            if (x->r.user) u->n_wrong++; /* final twice */
            x->r.user = x;
            u->n_done++;
            if (!answer_ok(x, &u->cfg)) u->n_wrong++;
        }
        if (!eng_alive(u->e, clock_us())) { /* the engine's thread may not have been on; it is when it is let */
            uint64_t end = clock_us() + PATIENCE_S * 1000000u;
            while (!eng_alive(u->e, clock_us()) && clock_us() < end) nap(1000);
            u->n_late += !eng_alive(u->e, clock_us());
        }
        if (u->n_done < n_sent && (n_sent == PER_USER || n_sent - u->n_done == 5)) {
            uint64_t start = clock_us();
            ring_wait(&outbox, PATIENCE_S * 1000000);
            if (clock_us() - start >= PATIENCE_S * 1000000u) u->n_lost++;
        }
    }
    ring_free(&outbox);
    for (uint32_t i = 0; i < PER_USER; i++) drop_guides(&q[i]);
    free(q);
    return NULL;
}

static void E18_random_delays_at_every_hand_off_lose_nothing(void **state)
{
    (void)state;
    struct eng_cfg cfg = config();
    struct fake    fake;
    struct late    late;
    struct engine *e;
    fake_init(&fake, cfg.n_block, cfg.block_tokens, VOCAB);
    fake.delay = nap_run;
    if (overlap) late_open(&late, &fake);
    struct eng_runner run = overlap ? late_runner(&late) : fake_runner(&fake, 1);
    assert_int_equal(eng_create(&cfg, &run, &e), ST_OK);
    fake.kv = eng_kv(e);
    assert_int_equal(eng_start(e), ST_OK);
    pthread_t   thread[USERS];
    struct user user[USERS];
    for (uint32_t i = 0; i < USERS; i++) {
        user[i] = (struct user){ .e = e, .cfg = cfg, .number = i };
        assert_int_equal(pthread_create(&thread[i], NULL, use, &user[i]), 0);
    }
    for (uint32_t i = 0; i < USERS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(user[i].n_done, PER_USER);
        assert_int_equal(user[i].n_wrong, 0);
        assert_int_equal(user[i].n_lost, 0); /* wake-ups */
        assert_int_equal(user[i].n_late, 0); /* the watchdog had nothing to say */
    }
    eng_stop(e);
    assert_null(fake.fault);
    assert_int_equal(kv_check(eng_kv(e)), ST_OK);
    assert_true(eng_idle(e));
    eng_free(e);
    if (overlap) {
        late_close(&late);
        assert_true(fake.n_patch > 0);
    }
    fake_free(&fake);
}

struct house {
    struct eng_cfg cfg;
    struct fake    fake;
    struct late    late;
    struct engine *e;
    struct ring    outbox;
};

static void house_open(struct house *h)
{
    h->cfg = config();
    fake_init(&h->fake, h->cfg.n_block, h->cfg.block_tokens, VOCAB);
    if (overlap) late_open(&h->late, &h->fake);
    struct eng_runner run = overlap ? late_runner(&h->late) : fake_runner(&h->fake, 1);
    assert_int_equal(eng_create(&h->cfg, &run, &h->e), ST_OK);
    h->fake.kv = eng_kv(h->e);
    assert_int_equal(ring_init(&h->outbox, 64), ST_OK);
    assert_int_equal(eng_start(h->e), ST_OK);
}

static void house_close(struct house *h)
{
    eng_free(h->e);
    if (overlap) late_close(&h->late);
    fake_free(&h->fake);
    ring_free(&h->outbox);
}

/* The next final message, or NULL: there is none. */
static struct request *next_final(struct house *h)
{
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; clock_us() < end;) {
        void *msg = ring_pop(&h->outbox);
        if (!msg) {
            ring_wait(&h->outbox, 100000);
            continue;
        }
        struct request *q = (struct request *)eng_msg_request(msg);
        if (eng_msg_is_final(msg)) return q;
        atomic_store(&q->r.notified, false);
    }
    return NULL;
}

static void E7_a_sleeping_engine_wakes_for_each_request(void **state)
{
    (void)state;
    struct house h;
    house_open(&h);
    struct request *q = malloc(sizeof *q);
    for (uint32_t i = 0; i < 200; i++) {
        request_init(q, i, &h.outbox);
        assert_int_equal(eng_submit(h.e, &q->r), ST_OK);
        assert_ptr_equal(next_final(&h), q);
        assert_true(answer_ok(q, &h.cfg));
        if (i % 4 == 0) nap(2000);
    }
    eng_stop(h.e);
    house_close(&h);
    free(q);
}

/* Who has an answer and asks for the counters at once finds it in them. */
static void an_answer_comes_behind_the_counters_of_its_turn(void **state)
{
    (void)state;
    struct house h;
    uint64_t     n_prompt = 0, n_late = 0;
    house_open(&h);
    struct request *q = malloc(sizeof *q);
    for (uint32_t i = 0; i < 1000; i++) {
        struct eng_stats st;
        request_init(q, i, &h.outbox);
        q->r.s.max_tokens = 1;
        n_prompt += q->r.n_prompt;
        assert_int_equal(eng_submit(h.e, &q->r), ST_OK);
        assert_ptr_equal(next_final(&h), q);
        eng_stats(h.e, &st);
        n_late += st.n_running || st.n_prompt_tokens != n_prompt;
    }
    assert_int_equal(n_late, 0);
    eng_stop(h.e);
    house_close(&h);
    free(q);
}

static void a_stop_gives_everyone_a_final_message(void **state)
{
    (void)state;
    struct house h;
    house_open(&h);
    h.fake.delay = nap_run;
    struct request *q = calloc(10, sizeof *q);
    uint32_t        n = 0;
    for (uint32_t i = 0; i < 10; i++) {
        request_init(&q[i], 50 + i, &h.outbox);
        n += eng_submit(h.e, &q[i].r) == ST_OK;
    }
    eng_stop(h.e);
    for (uint32_t i = 0; i < n; i++) assert_non_null(next_final(&h));
    assert_null(ring_pop(&h.outbox));
    request_init(&q[0], 99, &h.outbox);
    assert_int_equal(eng_submit(h.e, &q[0].r), ST_AGAIN);
    house_close(&h);
    free(q);
}

static void a_drain_lets_them_end_and_takes_no_more(void **state)
{
    (void)state;
    struct house h;
    house_open(&h);
    struct request *q = calloc(6, sizeof *q);
    for (uint32_t i = 0; i < 5; i++) {
        request_init(&q[i], 70 + i, &h.outbox);
        assert_int_equal(eng_submit(h.e, &q[i].r), ST_OK);
    }
    eng_drain(h.e, clock_us() + 60000000);
    request_init(&q[5], 75, &h.outbox);
    assert_int_equal(eng_submit(h.e, &q[5].r), ST_AGAIN);
    for (uint32_t i = 0; i < 5; i++) {
        struct request *x = next_final(&h);
        assert_non_null(x);
        assert_true(answer_ok(x, &h.cfg)); /* which says that nobody was canceled */
    }
    eng_stop(h.e);
    house_close(&h);
    free(q);
}

static void slow_run(void) { nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL); }

static void a_drain_cancels_the_rest_at_its_deadline(void **state)
{
    (void)state;
    struct house h;
    house_open(&h);
    h.fake.delay = slow_run;
    struct request *q = calloc(5, sizeof *q);
    for (uint32_t i = 0; i < 5; i++) {
        request_init(&q[i], 80 + i, &h.outbox);
        q[i].r.s.max_tokens = 40;
        q[i].r.s.ignore_eos = true;
        assert_int_equal(eng_submit(h.e, &q[i].r), ST_OK);
    }
    eng_drain(h.e, clock_us() + 100000);
    uint32_t n_canceled = 0;
    for (uint32_t i = 0; i < 5; i++) {
        struct request *x = next_final(&h);
        assert_non_null(x);
        n_canceled += atomic_load(&x->choice[0].finish) == ENG_CANCELED;
    }
    assert_int_equal(n_canceled, 5); /* their 40 steps take 800 ms at least */
    eng_stop(h.e);
    house_close(&h);
    free(q);
}

static int one_step(void **state)
{
    (void)state;
    overlap = false;
    return 0;
}
static int two_steps(void **state)
{
    (void)state;
    overlap = true;
    return 0;
}

int main(void)
{
    for (int gated = 0; gated < 2; gated++) /* grammars and their vocabulary, before there are threads */
        guide_drop(guided_guide(eos_ids, 1, gated));
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E18_random_delays_at_every_hand_off_lose_nothing),
        cmocka_unit_test(E7_a_sleeping_engine_wakes_for_each_request),
        cmocka_unit_test(an_answer_comes_behind_the_counters_of_its_turn),
        cmocka_unit_test(a_stop_gives_everyone_a_final_message),
        cmocka_unit_test(a_drain_lets_them_end_and_takes_no_more),
        cmocka_unit_test(a_drain_cancels_the_rest_at_its_deadline),
    };
    int bad = cmocka_run_group_tests_name("one step in flight", tests, one_step, NULL);
    return bad + cmocka_run_group_tests_name("two steps in flight", tests, two_steps, NULL);
}
