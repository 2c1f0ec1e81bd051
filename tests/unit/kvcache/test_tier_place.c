/* Blocks that the device reads where the host keeps them: leases, what ends them, damage, the bound, the hand-over. */
#include "unit/kvcache/tier_world.h"
#include "base/log.h"
#include "kvcache/tier_hand.h"

static uint32_t n_guest(const struct world *w)
{
    struct kv_stats s;
    kv_stats(w->kv, &s);
    return s.n_guest;
}
static uint32_t n_in_place(const struct world *w)
{
    struct kv_tiers_stats s;
    kv_tiers_stats(w->t, &s);
    return (uint32_t)s.n_in_place;
}
static void turns(struct world *w, uint32_t n)
{
    while (n-- > 0) turn(w, 100);
}

/* A prompt of 40 tokens, ten blocks, is on the host alone. */
static void open_with_one(struct world *w)
{
    struct user u;
    reads_in_place = true;
    open_world(w, 1, false);
    run_alone(w, 1, 41, &u);
    kv_evict_all(w->kv);
    assert_int_equal(w->t->host.n_ready, 10);
}
static void close_one(struct world *w)
{
    close_world(w, false);
    reads_in_place = false;
    reads_before_copy = 0;
}

/* A world whose host holds one prompt, and a user of n tokens of it that reads the blocks as guests. They go up after
 * `reads` steps. */
static void open_with_guests(struct world *w, struct user *u, uint32_t n, uint32_t reads)
{
    reads_before_copy = reads;
    open_with_one(w);
    ask_for(u, 1, n, 100);
    admit(w, u);
}

static void a_hit_is_read_in_its_slot_and_takes_no_block_of_the_pool(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_one(&w);
    uint32_t moved = lane.n_moved;
    ask_for(&u, 1, 45, 100);
    admit(&w, &u);
    assert_int_equal(u.n_hit, 40);
    assert_int_equal(n_guest(&w), 10);
    assert_int_equal(n_in_place(&w), 10);
    for (uint32_t b = 0; b < 10; b++) assert_true(u.s.block[b] >= N_BLOCK);
    assert_true(u.s.block[10] < N_BLOCK && u.s.block[11] < N_BLOCK);
    assert_int_equal(kv_free_count(w.kv), N_BLOCK - 2);
    assert_true(lane.n_moved > moved); /* checked, by the lane */
    finish_user(&w, &u);
    turns(&w, 20);
    /* the block behind them keeps them, for the next turn of this talk */
    assert_int_equal(n_guest(&w), 10);
    kv_evict_all(w.kv);
    turns(&w, 1);
    assert_int_equal(n_guest(&w), 0);
    assert_int_equal(w.t->host.n_lease, 0);
    close_one(&w);
}

static void F35_a_lease_lasts_until_the_steps_that_may_read_are_done(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_one(&w);
    ask_for(&u, 1, 41, 100);
    kv_tiers_steps(w.t, 7, 6);
    admit(&w, &u);
    finish_user(&w, &u);
    turns(&w, 5);
    assert_int_equal(n_guest(&w), 0);
    assert_int_equal(w.t->host.n_lease, 10); /* step 7 may still read */
    struct user again;
    ask_for(&again, 1, 41, 100);
    for (int i = 0; i < 5; i++) { /* and nobody takes a lease of a slot that is on its way out */
        assert_false(try_admit(&w, &again));
        turn(&w, 10);
    }
    kv_tiers_steps(w.t, 7, 7);
    turns(&w, 1);
    admit(&w, &again);
    assert_int_equal(again.n_hit, 40);
    finish_user(&w, &again);
    turns(&w, 5);
    assert_int_equal(w.t->host.n_lease, 0);
    close_one(&w);
}

static void F35_slots_that_are_read_are_not_reused_and_half_of_them_is_the_most(void **state)
{
    (void)state;
    struct world w;
    struct user  held, u;
    open_with_one(&w);
    ask_for(&held, 1, 41, 100);
    admit(&w, &held);
    for (uint32_t family = 2; family < 8; family++) { /* many more than the host holds go down */
        run_alone(&w, family, 37, &u);
        kv_evict_all(w.kv);
        for (uint32_t b = 0; b < 10; b++) assert_block(&w, &held.s, held.ids, b);
    }
    assert_int_equal(n_guest(&w), 10);
    ask_for(&u, 7, 38, 100); /* 9 blocks: 19 of 24 slots would be leased */
    admit(&w, &u);
    assert_int_equal(u.n_hit, 36);
    assert_int_equal(n_guest(&w), 10);
    for (uint32_t b = 0; b < 9; b++) assert_true(u.s.block[b] < N_BLOCK);
    finish_user(&w, &held);
    finish_user(&w, &u);
    close_one(&w);
}

static void F34_a_slot_that_was_damaged_is_found_before_it_is_read(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_one(&w);
    for (uint32_t i = 0; i < HOST_SLOTS; i++)
        if (w.t->host.slot[i].state == SLOT_READY) slot_page(&w.t->host, (int32_t)i)[KV_RECORD_HEAD + 17] ^= 4;
    ask_for(&u, 1, 41, 100);
    admit(&w, &u);
    assert_int_equal(u.n_hit, 0);
    assert_int_equal(n_guest(&w), 0);
    struct kv_tiers_stats s;
    kv_tiers_stats(w.t, &s);
    assert_true(s.doubt[KV_DOUBT_PAYLOAD] > 0);
    finish_user(&w, &u);
    turns(&w, 5);
    assert_int_equal(w.t->host.n_lease, 0);
    close_one(&w);
}

static void F35_whoever_goes_while_blocks_are_checked_leaves_no_lease(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_one(&w);
    lane.stall_us = 500;
    ask_for(&u, 1, 41, 100);
    assert_false(try_admit(&w, &u));
    turn(&w, 10);
    assert_int_equal(w.t->host.n_lease, 10);
    kv_tiers_forget(w.t, &u.want);
    turns(&w, 20);
    assert_int_equal(w.t->host.n_lease, 0);
    assert_int_equal(n_guest(&w), 0);
    close_one(&w);
}

static void F36_before_the_slab_is_handed_over_nobody_reads_it(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    int          slab, index;
    open_with_one(&w);
    ask_for(&u, 1, 45, 100);
    admit(&w, &u);
    kv_tiers_hand(w.t, KV_FROZEN);
    for (int i = 0; i < 50; i++) {
        turn(&w, 100);
        assert_int_equal(kv_tiers_hand_is(w.t, &slab, &index), KV_SERVES); /* it is still read */
    }
    assert_true(kv_tiers_purges(w.t));
    struct user other;
    ask_for(&other, 1, 41, 100);
    assert_false(try_admit(&w, &other)); /* and nobody joins */
    kv_tiers_forget(w.t, &other.want);
    kv_seq_discard(w.kv, &u.s);
    kv_seq_release(w.kv, &u.s);
    kv_tiers_all_gave_way(w.t);
    turns(&w, 3);
    assert_int_equal(kv_tiers_hand_is(w.t, &slab, &index), KV_FROZEN);
    assert_int_equal(w.t->host.n_lease, 0);
    assert_false(kv_tiers_purges(w.t));
    ask_for(&other, 1, 41, 100);
    assert_true(try_admit(&w, &other)); /* computed: frozen */
    assert_int_equal(other.n_hit, 0);
    finish_user(&w, &other);
    kv_tiers_hand(w.t, KV_SERVES);
    turns(&w, 3);
    ask_for(&u, 1, 41, 100);
    kv_evict_all(w.kv);
    admit(&w, &u);
    assert_int_equal(n_guest(&w), 10);
    finish_user(&w, &u);
    close_one(&w);
}

/* Its blocks are read again and again: they move, and what runs goes on with them. */
static void what_is_read_often_goes_up_under_the_running_sequence(void **state)
{
    (void)state;
    struct world w;
    struct user  u, other;
    reads_before_copy = 5;
    open_with_one(&w);
    kv_tiers_steps(w.t, 1, 1);
    ask_for(&u, 1, 45, 100);
    admit(&w, &u);
    ask_for(&other, 1, 41, 100);
    admit(&w, &other);
    assert_int_equal(n_guest(&w), 10);
    kv_tiers_steps(w.t, 3, 3); /* two tables, two steps */
    turns(&w, 5);
    assert_int_equal(n_guest(&w), 10);
    kv_tiers_steps(w.t, 5, 4); /* a fifth read, and a sixth */
    turns(&w, 5);
    assert_int_equal(n_guest(&w), 10); /* its blocks may still belong to step 5 */
    kv_tiers_steps(w.t, 5, 5);
    turns(&w, 5);
    assert_int_equal(n_guest(&w), 0);
    for (uint32_t b = 0; b < 11; b++) assert_true(u.s.block[b] < N_BLOCK);
    for (uint32_t b = 0; b < 10; b++) {
        assert_int_equal(u.s.block[b], other.s.block[b]);
        assert_block(&w, &u.s, u.ids, b);
    }
    assert_int_equal(w.t->host.n_lease, 0);
    assert_int_equal(w.t->host.n_ready, 10); /* and they are on the host as before */
    struct kv_tiers_stats s;
    kv_tiers_stats(w.t, &s);
    assert_int_equal(s.n_moved, 10);
    finish_user(&w, &u);
    finish_user(&w, &other);
    close_one(&w);
}

/* A step in flight was told the slots' names before the move. */
static void F35_a_slot_whose_block_went_up_is_kept_for_the_step_in_flight(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_guests(&w, &u, 41, 1);
    kv_tiers_steps(w.t, 1, 1);
    turns(&w, 1); /* chosen, their copies are posted */
    kv_tiers_steps(w.t, 2, 1);
    turns(&w, 5);
    assert_int_equal(n_guest(&w), 0);
    assert_int_equal(w.t->host.n_lease, 10);
    kv_tiers_steps(w.t, 2, 2);
    turns(&w, 1);
    assert_int_equal(w.t->host.n_lease, 0);
    finish_user(&w, &u);
    close_one(&w);
}

static void what_is_moved_gives_way_to_those_who_run(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_guests(&w, &u, 41, 1);
    kv_tiers_steps(w.t, 2, 1);
    turns(&w, 1); /* the blocks are taken; step 2 may have had them */
    assert_int_equal(kv_available_count(w.kv), N_BLOCK - 1 - 10);
    assert_true(kv_tiers_yield(w.t, 5));
    assert_int_equal(kv_available_count(w.kv), N_BLOCK - 1);
    assert_int_equal(n_guest(&w), 10);
    finish_user(&w, &u);
    close_one(&w);
}

/* Bits of the slab flip while it is read. The move finds that, and nothing that was computed meanwhile is believed. */
static void F34_damage_while_it_is_read_is_found_by_the_move_and_all_is_computed_again(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_with_guests(&w, &u, 45, 3);
    int32_t slot = (int32_t)(u.s.block[4] - N_BLOCK);
    slot_page(&w.t->host, slot)[KV_RECORD_HEAD + 99] ^= 1;
    kv_tiers_steps(w.t, 4, 4);
    for (int i = 0; i < 5 && !kv_tiers_purges(w.t); i++) turn(&w, 100);
    assert_true(kv_tiers_purges(w.t)); /* who runs gives its blocks back */
    kv_seq_discard(w.kv, &u.s);
    kv_seq_release(w.kv, &u.s);
    kv_tiers_all_gave_way(w.t);
    turns(&w, 5);
    assert_false(kv_tiers_purges(w.t));
    assert_int_equal(w.t->host.n_ready, 0);
    assert_int_equal(w.t->host.n_lease, 0);
    struct kv_tiers_stats s;
    kv_tiers_stats(w.t, &s);
    assert_int_equal(s.doubt[KV_DOUBT_PAYLOAD], 1);
    ask_for(&u, 1, 45, 100);
    admit(&w, &u);
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    close_one(&w);
}

/* Near the limit of memory all other slots go back to the system, for as long as the limit is near. */
static void F36_memory_that_is_read_is_not_given_back(void **state)
{
    (void)state;
    struct world   w;
    struct user    u;
    char           dir[64];
    const uint64_t mib = 1 << 20;
    snprintf(dir, sizeof dir, "/tmp/spillway-group-XXXXXX");
    assert_non_null(mkdtemp(dir));
    group_says(dir, 500 * mib, 0);
    group_dir = dir;
    open_with_guests(&w, &u, 45, 0);
    assert_int_equal(n_guest(&w), 10);
    group_says(dir, 990 * mib, 0);
    for (int i = 0; i < 30; i++) {
        w.now += 250000; /* the next look */
        turns(&w, 2);
        for (uint32_t b = 0; b < 10; b++) assert_block(&w, &u.s, u.ids, b);
    }
    assert_true(w.t->host.n_away > 0);
    assert_int_equal(w.t->host.n_lease, 10);
    assert_int_equal(w.t->host.n_ready, 10);
    finish_user(&w, &u);
    close_one(&w);
    group_dir = NULL;
    nftw(dir, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void storms_pass(void **state)
{
    (void)state;
    reads_in_place = true;
    const uint64_t n_seed = (uint64_t)test_size(60, 18);
    for (uint64_t seed = 1; seed <= n_seed; seed++) {
        reads_before_copy = seed % 3;
        storm(seed, false);
    }
    reads_in_place = false;
    reads_before_copy = 0;
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hit_is_read_in_its_slot_and_takes_no_block_of_the_pool),
        cmocka_unit_test(F35_a_lease_lasts_until_the_steps_that_may_read_are_done),
        cmocka_unit_test(F35_slots_that_are_read_are_not_reused_and_half_of_them_is_the_most),
        cmocka_unit_test(F34_a_slot_that_was_damaged_is_found_before_it_is_read),
        cmocka_unit_test(F35_whoever_goes_while_blocks_are_checked_leaves_no_lease),
        cmocka_unit_test(F36_before_the_slab_is_handed_over_nobody_reads_it),
        cmocka_unit_test(what_is_read_often_goes_up_under_the_running_sequence),
        cmocka_unit_test(F35_a_slot_whose_block_went_up_is_kept_for_the_step_in_flight),
        cmocka_unit_test(what_is_moved_gives_way_to_those_who_run),
        cmocka_unit_test(F34_damage_while_it_is_read_is_found_by_the_move_and_all_is_computed_again),
        cmocka_unit_test(F36_memory_that_is_read_is_not_given_back),
        cmocka_unit_test(storms_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
