/* The array of rows below the host, with rows that are no folder. */
#include "tier_world.h"
#include "memory_row.h"

/* Three full blocks each: as many as are written ahead between two of them. Together twice what the host holds. */
enum { FAMILIES = 16, TOKENS = 13 };

/* Prompts that the host has not room for all together come and go, and the device forgets them. */
static void fill(struct world *w)
{
    struct user u;
    for (int round = 0; round < 2; round++) /* what is offered twice is worth a write */
        for (uint32_t f = 0; f < FAMILIES; f++) {
            run_alone(w, f, TOKENS, &u);
            kv_evict_all(w->kv);
        }
}

static void a_row_that_is_no_folder_serves_what_the_host_let_go(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    assert_true(m->n_write > HOST_SLOTS);
    uint32_t n_read = m->n_read;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u); /* which compares every block that was found */
        kv_evict_all(w.kv);
    }
    assert_true(m->n_read > n_read);
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(st.tier[KV_TIER_STORE].hit_blocks > 0);
    assert_int_equal(st.tier[KV_TIER_STORE].n_block, m->n_write);
    assert_int_equal(st.tier[KV_TIER_STORE].n_doubt, 0);
    close_world(&w, false);
    below_rows[0] = NULL;
}

static void what_a_row_gives_back_wrong_is_a_miss(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    uint32_t       n_read = m->n_read;
    for (uint32_t i = 0; i < m->n_used; i++) m->bytes[i * m->record_bytes + KV_RECORD_HEAD + 5] ^= 1;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(m->n_read > n_read);
    assert_int_equal(m->n_bad, m->n_read - n_read); /* all of them, and the row was told */
    assert_int_equal(st.doubt[KV_DOUBT_PAYLOAD], m->n_bad);
    close_world(&w, false);
    below_rows[0] = NULL;
}

static void a_row_that_takes_nothing_is_passed_over(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &empty_row;
    below_rows[1] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    uint32_t       n_read = m->n_read;
    assert_true(m->n_write > HOST_SLOTS); /* all go to the one that takes them, whatever their key */
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    assert_true(m->n_read > n_read);
    close_world(&w, false);

    below_rows[1] = NULL; /* nothing but the empty one: the host alone serves, and closing waits for nobody */
    open_world(&w, 3, false);
    fill(&w);
    assert_false(below_any_takes(w.t));
    close_world(&w, false);
    below_rows[0] = NULL;
}

/* What the first holds is not asked of the second. */
static void the_first_row_that_has_a_block_is_read(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    below_rows[1] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *a = (struct memory *)w.t->below[0], *b = (struct memory *)w.t->below[1];
    assert_true(a->n_write > 0);
    assert_true(b->n_write > 0);               /* by key: none is favoured */
    for (uint32_t i = 0; i < b->n_used; i++) { /* the first comes to hold what the second holds as well */
        uint32_t to = a->n_used++;
        memcpy(a->bytes + to * a->record_bytes, b->bytes + i * b->record_bytes, a->record_bytes);
        a->record[to] = b->record[i];
        assert_false(b->record[i].gone);
    }
    uint32_t n_read = b->n_read;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    assert_true(a->n_read > 0);
    assert_int_equal(b->n_read, n_read);
    close_world(&w, false);
    below_rows[0] = below_rows[1] = NULL;
}

/* ---- a row that has to ask others */

static struct {
    bool     asks; /* false: it finds as the memory does */
    bool     answered;
    uint64_t answer_us;
    uint32_t n_seek, n_key;
} asker;

static void asker_turn(struct kv_below *b)
{
    (void)b;
    if (asker.n_seek && now_of->now >= asker.answer_us) asker.answered = true;
}

static bool asker_find(struct kv_below *b, const struct kv_key *key, struct kv_place *place_out)
{
    return (!asker.asks || asker.answered) && memory_find(b, key, place_out);
}

static bool asker_seek(struct kv_below *b, const struct kv_claim *claim, const struct kv_key *key, uint32_t n,
                       uint64_t *ticket_out)
{
    (void)claim;
    (void)b;
    (void)key;
    if (!asker.asks) return false;
    asker.n_key = n;
    *ticket_out = ++asker.n_seek;
    return true;
}

static bool asker_sought(const struct kv_below *b, uint64_t ticket)
{
    (void)b;
    assert_int_equal(ticket, asker.n_seek);
    return asker.answered;
}

static bool asker_seeking(const struct kv_below *b)
{
    (void)b;
    return asker.n_seek && !asker.answered;
}

/* Prompt 0 comes when the host holds nothing of it, and the answer comes answer_us after it was asked for. */
static uint32_t found_when_answered_in(uint64_t answer_us, uint64_t *waited_us_out)
{
    struct kv_below_row row = memory_row;
    struct world        w;
    struct user         u;
    row.seek = asker_seek;
    row.sought = asker_sought;
    row.seeking = asker_seeking;
    row.find = asker_find;
    row.turn = asker_turn;
    memset(&asker, 0, sizeof asker);
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    w.t->below[0]->row = &row;
    fill(&w);
    uint32_t f = 0; /* one that the host let go of: the memory alone has it */
    for (;; f++) {
        ask_for(&u, f, TOKENS, 1000);
        struct kv_key root = kv_key_root(&w.t->fingerprint, u.salt), key = kv_key_next(&root, u.ids, BT);
        if (slot_find(&w.t->host, &key) == SLOT_NONE && memory_has(w.t->below[0], &key)) break;
        assert_true(f < FAMILIES);
    }
    asker.asks = true;
    uint64_t begin = w.now;
    asker.answer_us = w.now + answer_us;
    while (!try_admit(&w, &u)) {
        assert_true(asker.answered || kv_tiers_busy(w.t)); /* else nobody would come back to it */
        turn(&w, 100);
        assert_true(w.now < begin + 10000000);
    }
    *waited_us_out = w.now - begin;
    assert_int_equal(asker.n_seek, 1); /* once for all its blocks */
    assert_int_equal(asker.n_key, (TOKENS - 1) / BT);
    uint32_t n_hit = u.n_hit;
    asker.answered = true;
    finish_user(&w, &u);
    close_world(&w, false);
    below_rows[0] = NULL;
    return n_hit;
}

static void a_row_that_has_to_ask_is_waited_for(void **state)
{
    uint64_t waited_us;
    (void)state;
    assert_int_equal(found_when_answered_in(1500, &waited_us), (TOKENS - 1) / BT * BT);
    assert_true(waited_us >= 1500);
}

static void it_is_not_waited_for_longer_than_a_quarter_of_computing(void **state)
{
    uint64_t waited_us;
    (void)state;
    assert_int_equal(found_when_answered_in(1000000, &waited_us), 0);
    assert_true(waited_us <= (TOKENS - 1) / BT * BT * 1000 / 4 + 200);
}

/* ---- a price that was too high once */

/* One read that took long, and the price of the place is too high; from then on it is quick. Its blocks are asked for
 * for so many seconds. Returns how many were read. */
static uint32_t read_after_a_slow_one(uint32_t seconds, uint64_t *waited_us_out)
{
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    const struct memory *m = memory_open_last;
    lane.stall_us = 300000; /* within what computing takes, so it is not given up */
    for (uint32_t f = 0, n_read = m->n_read; m->n_read == n_read; f++) {
        assert_true(f < FAMILIES);
        ask_for(&u, f, TOKENS, 1000000);
        while (!try_admit(&w, &u)) turn(&w, 100000);
        finish_user(&w, &u);
        for (int i = 0; i < 20; i++) turn(&w, 100000);
        kv_evict_all(w.kv);
    }
    lane.stall_us = 0;
    uint32_t n_read = m->n_read;
    *waited_us_out = 0;
    for (uint32_t i = 0; i < seconds * 10; i++) {
        ask_for(&u, i % FAMILIES, TOKENS, 1000);
        for (uint64_t begin = w.now; !try_admit(&w, &u); turn(&w, 100))
            if (w.now - begin > *waited_us_out) *waited_us_out = w.now - begin;
        finish_user(&w, &u);
        for (int k = 0; k < 10; k++) turn(&w, 10000);
        kv_evict_all(w.kv);
    }
    n_read = m->n_read - n_read;
    close_world(&w, false);
    below_rows[0] = NULL;
    return n_read;
}

static void a_price_that_was_too_high_is_tried_again(void **state)
{
    uint64_t waited_us;
    (void)state;
    uint32_t few = read_after_a_slow_one(1, &waited_us), many = read_after_a_slow_one(40, &waited_us);
    assert_true(few <= 6);   /* a trial or two of the three blocks of a prompt */
    assert_true(many > 100); /* the price is right again, and blocks are read whenever they are asked for */
    assert_true(waited_us < (TOKENS - 1) * 1000);
}

/* A place that stays too slow is tried ever less often, and nobody waits for it. */
static void a_place_that_stays_slow_costs_few_trials(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    const struct memory *m = memory_open_last;
    lane.stall_us = 300000;
    uint32_t n_read = m->n_read, n_run = 0;
    uint64_t waited = 0, end = w.now + 120000000;
    for (; w.now < end; n_run++) {
        uint64_t begin = w.now;
        ask_for(&u, n_run % FAMILIES, TOKENS, 1000);
        while (!try_admit(&w, &u)) turn(&w, 1000);
        waited += w.now - begin;
        finish_user(&w, &u);
        for (int k = 0; k < 10; k++) turn(&w, 100000);
        kv_evict_all(w.kv);
    }
    assert_true(n_run > 90);
    assert_in_range(m->n_read - n_read, 3,
                    60); /* at 0, 1, 3, 7, 15, 31, 63 s, and what was asked for before the price was known */
    assert_true(waited < n_run * 12000 / 2);
    close_world(&w, false);
    below_rows[0] = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_that_is_no_folder_serves_what_the_host_let_go),
        cmocka_unit_test(what_a_row_gives_back_wrong_is_a_miss),
        cmocka_unit_test(a_row_that_takes_nothing_is_passed_over),
        cmocka_unit_test(the_first_row_that_has_a_block_is_read),
        cmocka_unit_test(a_row_that_has_to_ask_is_waited_for),
        cmocka_unit_test(it_is_not_waited_for_longer_than_a_quarter_of_computing),
        cmocka_unit_test(a_price_that_was_too_high_is_tried_again),
        cmocka_unit_test(a_place_that_stays_slow_costs_few_trials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
