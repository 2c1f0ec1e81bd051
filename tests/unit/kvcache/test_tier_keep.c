/* What prefixes are worth, below the device: the order in which the host gives way, pins there, and what a folder
 * remembers. */
#include "unit/kvcache/tier_world.h"

/* One prompt of n tokens comes, says what it is worth, and goes down. */
static void ask_with(struct world *w, uint32_t family, uint32_t n, struct kv_keep keep)
{
    struct user u;
    ask_for(&u, family, n, 100);
    u.keep = keep;
    admit(w, &u);
    if (keep.pin_s) kv_pin(w->kv, &u.s, n, 0, w->now + keep.pin_s * 1000000u, &u.s.mark);
    finish_user(w, &u);
    for (int i = 0; i < 50; i++) turn(w, 100);
}

static uint32_t on_host(struct world *w, uint32_t family, uint32_t n)
{
    struct user   u;
    struct kv_key key;
    uint32_t      found = 0;
    ask_for(&u, family, n, 100);
    key = kv_key_root(&w->t->fingerprint, u.salt);
    for (uint32_t b = 0; b < n / BT; b++) {
        key = kv_key_next(&key, u.ids + b * BT, BT);
        int32_t s = slot_find(&w->t->host, &key);
        found += s != SLOT_NONE && w->t->host.slot[s].state == SLOT_READY;
    }
    return found;
}

/* 24 slots; each prompt is 6 blocks of its own. */
static void the_host_gives_way_by_end_then_priority_then_use(void **state)
{
    (void)state;
    struct world          w;
    struct kv_tiers_stats st;
    open_world(&w, 21, false);
    ask_with(&w, 1, 24, (struct kv_keep){ .priority = 1 });
    ask_with(&w, 2, 24, (struct kv_keep){ .priority = 4, .ttl_s = 5 });
    ask_with(&w, 3, 24, (struct kv_keep){ .priority = -1 });
    ask_with(&w, 4, 24, (struct kv_keep){ 0 });
    assert_int_equal(w.t->host.n_free, 0);
    w.now += 5000000;
    turn(&w, 1);
    ask_with(&w, 5, 24, (struct kv_keep){ 0 });
    assert_int_equal(on_host(&w, 2, 24), 0);
    ask_with(&w, 6, 24, (struct kv_keep){ 0 });
    assert_int_equal(on_host(&w, 3, 24), 0);
    ask_with(&w, 4, 24, (struct kv_keep){ 0 }); /* used again: newer than 5 */
    ask_with(&w, 7, 24, (struct kv_keep){ 0 });
    assert_int_equal(on_host(&w, 5, 24), 0);
    assert_int_equal(on_host(&w, 4, 24), 6);
    assert_int_equal(on_host(&w, 1, 24), 6);
    ask_with(&w, 6, 24, (struct kv_keep){ .priority = 3 });
    ask_with(&w, 4, 24, (struct kv_keep){ .priority = 3 });
    ask_with(&w, 7, 24, (struct kv_keep){ .priority = 3 });
    ask_with(&w, 8, 24, (struct kv_keep){ 0 }); /* nothing ordinary is left: the lowest above it */
    assert_int_equal(on_host(&w, 1, 24), 0);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_HOST].evicted_why[KV_EVICT_TTL], 6);
    assert_int_equal(st.tier[KV_TIER_HOST].evicted_why[KV_EVICT_PRIORITY], 6);
    assert_int_equal(st.tier[KV_TIER_HOST].evicted_why[KV_EVICT_LRU], 6);
    assert_int_equal(st.tier[KV_TIER_HOST].evicted_why[KV_EVICT_PRESSURE], 6);
    assert_int_equal(st.tier[KV_TIER_HOST].evicted, 24);
    close_world(&w, false);
}

static void pinned_blocks_stay_on_the_host_until_the_pin_ends(void **state)
{
    (void)state;
    struct world          w;
    struct kv_tiers_stats st;
    open_world(&w, 22, false);
    w.kv->pins.device_max = 16; /* the pool of this world is as long as its longest sequence and a half */
    ask_with(&w, 1, 24, (struct kv_keep){ .pin_s = 100 });
    assert_int_equal(w.t->host.n_class[KV_CLASS_PINNED], 6);
    for (uint32_t f = 2; f < 12; f++) ask_with(&w, f, 24, (struct kv_keep){ .priority = 4 });
    assert_int_equal(on_host(&w, 1, 24), 6);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_HOST].pinned_bytes, 6 * w.t->host.stride);
    /* a conversation goes on: the pin moves, and marks what comes down later */
    ask_with(&w, 1, 32, (struct kv_keep){ .pin_s = 100 });
    assert_int_equal(w.t->host.n_class[KV_CLASS_PINNED], 8);
    for (uint32_t f = 2; f < 12; f++) ask_with(&w, f, 24, (struct kv_keep){ .priority = 4 });
    assert_int_equal(on_host(&w, 1, 32), 8);
    w.now += 101000000;
    kv_tick(w.kv, w.now);
    turn(&w, 1);
    assert_int_equal(w.t->host.n_class[KV_CLASS_PINNED], 0);
    for (uint32_t f = 2; f < 12; f++) ask_with(&w, f, 24, (struct kv_keep){ .priority = 4 });
    assert_int_equal(on_host(&w, 1, 32), 0);
    /* more than the host's share: pinned on the device alone */
    w.kv->pins.host_max = 5;
    ask_with(&w, 1, 24, (struct kv_keep){ .pin_s = 100 });
    assert_int_equal(w.t->host.n_class[KV_CLASS_PINNED], 0);
    assert_int_equal(w.kv->pins.n_device, 6);
    close_world(&w, false);
}

/* ---- a folder */

static void restart(struct world *w)
{
    w->now += 1000000;
    kv_tiers_close(w->t, 3600000000u); /* of a clock that stands: until all is written */
    kv_evict_all(w->kv);
    open_tiers(w, 1);
    wait_for_store(w);
}

/* What comes back of a prompt of 60 tokens that was asked with keep, when a restart took as long as that. */
static uint32_t after_restart(struct kv_keep keep, int64_t wall_s, struct kv_hold *hold_out, struct kv_tiers_stats *st)
{
    struct world w;
    struct user  u;
    open_world(&w, 23, true);
    wait_for_store(&w);
    ask_with(&w, 1, 60, keep);
    restart(&w);
    w.wall = (uint64_t)((int64_t)w.wall + wall_s);
    ask_for(&u, 1, 60, 100000);
    admit(&w, &u);
    *hold_out = w.kv->hold[u.s.block[0]];
    finish_user(&w, &u);
    kv_tiers_stats(w.t, st);
    for (int i = 0; i < KV_DOUBTS; i++) assert_int_equal(st->doubt[i], 0);
    close_world(&w, true);
    return u.n_hit;
}

static void F23_a_folder_remembers_ends_and_priorities_whatever_the_clock_says(void **state)
{
    (void)state;
    struct kv_hold        h;
    struct kv_tiers_stats st;
    assert_int_equal(after_restart((struct kv_keep){ 0 }, 0, &h, &st), 56);
    assert_true(h.used && h.until_s == KV_NO_END && h.priority == 0);
    assert_int_equal(after_restart((struct kv_keep){ .priority = 3, .ttl_s = 3600 }, 600, &h, &st), 56);
    assert_int_equal(h.priority, 3);
    assert_in_range(h.until_s, 2990, 3010); /* of the clock of this process, which is near its beginning */
    assert_int_equal(after_restart((struct kv_keep){ .ttl_s = 3600 }, 3601, &h, &st), 0); /* its time is over: a miss */
    assert_true(st.tier[KV_TIER_STORE].evicted_why[KV_EVICT_TTL] > 0);
    assert_int_equal(after_restart((struct kv_keep){ .ttl_s = 3600 }, -1000, &h, &st),
                     56); /* a small step back: longer */
    assert_int_equal(after_restart((struct kv_keep){ .ttl_s = 3600 }, -30 * 86400, &h, &st),
                     0); /* a large one: nobody can tell */
    assert_int_equal(after_restart((struct kv_keep){ .ttl_s = 3600 }, 3000 * 86400ll, &h, &st), 0); /* forward: over */
    assert_int_equal(after_restart((struct kv_keep){ 0 }, -30 * 86400, &h, &st), 56); /* no end, no clock */
}

static void blocks_for_memory_only_are_on_no_disk(void **state)
{
    (void)state;
    struct kv_hold        h;
    struct kv_tiers_stats st;
    assert_int_equal(after_restart((struct kv_keep){ .memory_only = true, .ttl_s = 3600 }, 0, &h, &st), 0);
    assert_int_equal(st.tier[KV_TIER_STORE].evicted_why[KV_EVICT_TTL], 0);
    struct world w;
    open_world(&w, 24, true);
    wait_for_store(&w);
    for (uint32_t f = 3; f < 7; f++) ask_with(&w, f, 24, (struct kv_keep){ .memory_only = f != 5 });
    restart(&w);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u;
         kv_tiers_stats(w.t, &st), st.tier[KV_TIER_STORE].n_block < 6;) {
        assert_true(clock_us() < end);
        turn(&w, 1);
        usleep(100);
    }
    assert_int_equal(st.tier[KV_TIER_STORE].n_block, 6);
    close_world(&w, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_gives_way_by_end_then_priority_then_use),
        cmocka_unit_test(pinned_blocks_stay_on_the_host_until_the_pin_ends),
        cmocka_unit_test(F23_a_folder_remembers_ends_and_priorities_whatever_the_clock_says),
        cmocka_unit_test(blocks_for_memory_only_are_on_no_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
