/* The tiers of kvcache/tier*.c in the world of tier_world.h.
 * Over 500 lines: the tiers as a whole; the files of each part have tests of their own. */
#include "unit/kvcache/tier_world.h"

static uint32_t damaged_seen;

static void what_left_the_device_comes_back_from_the_host(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    open_world(&w, 1, false);
    run_alone(&w, 1, 60, &u);
    assert_int_equal(u.n_hit, 0);
    kv_evict_all(w.kv);
    run_alone(&w, 1, 60, &u);
    assert_int_equal(u.n_hit, 56); /* all but the last, which must be computed */
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_HOST].hit_blocks, 14);
    assert_int_equal(u.want.n_from[KV_TIER_HOST], 56);
    assert_int_equal(u.want.n_from[KV_TIER_STORE], 0);
    /* another tenant's: the same tokens, another salt */
    kv_evict_all(w.kv);
    ask_for(&u, 1, 60, 100);
    u.salt.lo ^= 1;
    assert_true(try_admit(&w, &u));
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    close_world(&w, false);
}

static void F26_a_slow_lane_is_not_waited_for_and_its_blocks_may_come_twice(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    open_world(&w, 2, false);
    run_alone(&w, 1, 60, &u);
    /* stalled: given up at the deadline, then computed; what comes late harms nobody */
    lane.stall_us = 5000000;
    kv_evict_all(w.kv);
    ask_for(&u, 1, 60, 100);
    uint64_t begin = w.now;
    while (!try_admit(&w, &u)) turn(&w, 100);
    assert_true(w.now - begin <= 60 * 100 + 2000);
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.n_abandoned, 1);
    for (int i = 0; i < 100; i++) turn(&w, 100000);
    assert_false(kv_tiers_busy(w.t));
    /* now known to be slow: not even asked for */
    kv_evict_all(w.kv);
    ask_for(&u, 1, 60, 100);
    assert_true(try_admit(&w, &u));
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.n_recompute, 1);
    close_world(&w, false);
}

/* Blocks that came after their load was given up, and before the prompt was admitted, are of the tier that they came
 * from. */
static void blocks_that_arrive_late_and_are_used_are_credited(void **state)
{
    (void)state;
    struct world     w;
    struct user      u;
    struct kv_cursor hit = { 0 };
    open_world(&w, 2, false);
    run_alone(&w, 1, 60, &u);
    lane.stall_us = 10000;
    kv_evict_all(w.kv);
    ask_for(&u, 1, 60, 100);
    while (!kv_tiers_ask(w.t, &u.want, u.salt, u.ids, u.n, &hit, 100)) turn(&w, 100);
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.n_abandoned, 1);
    assert_int_equal(u.want.n_from[KV_TIER_HOST], 0);
    for (int i = 0; i < 100; i++) turn(&w, 100); /* the device has no room for the prompt meanwhile, say */
    assert_true(try_admit(&w, &u));
    assert_int_equal(u.n_hit, 56);
    assert_int_equal(u.want.n_from[KV_TIER_HOST], 56);
    finish_user(&w, &u);
    close_world(&w, false);
}

static void F4_a_prompt_that_leaves_lets_go_of_its_load(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_world(&w, 5, false);
    run_alone(&w, 1, 60, &u);
    kv_evict_all(w.kv);
    uint32_t free = kv_free_count(w.kv);
    assert_int_equal(free, N_BLOCK);
    lane.stall_us = 1000;
    ask_for(&u, 1, 60, 1000);
    assert_false(try_admit(&w, &u)); /* its blocks are taken */
    turn(&w, 100);
    assert_true(kv_free_count(w.kv) < free);
    kv_tiers_forget(w.t, &u.want);
    for (int i = 0; i < 30; i++) turn(&w, 1000);
    assert_false(kv_tiers_busy(w.t));
    kv_evict_all(w.kv);
    assert_int_equal(kv_free_count(w.kv), free);
    close_world(&w, false);
}

static void two_prompts_wait_for_one_load(void **state)
{
    (void)state;
    struct world w;
    struct user  u, v;
    open_world(&w, 3, false);
    run_alone(&w, 1, 60, &u);
    kv_evict_all(w.kv);
    lane.stall_us = 300;
    ask_for(&u, 1, 60, 1000);
    ask_for(&v, 1, 60, 1000);
    assert_false(try_admit(&w, &u));
    assert_false(try_admit(&w, &v));
    uint32_t moved = lane.n_moved;
    for (int i = 0; i < 20; i++) turn(&w, 100);
    assert_true(try_admit(&w, &u) && try_admit(&w, &v));
    assert_int_equal(lane.n_moved - moved, 14);
    assert_int_equal(u.n_hit, 56);
    assert_int_equal(v.n_hit, 56);
    finish_user(&w, &u);
    finish_user(&w, &v);
    close_world(&w, false);
}

static void F5_a_storm_over_the_host_serves_no_wrong_block(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 108; seed++) storm(seed, false);
}
static void a_storm_over_host_and_store_serves_no_wrong_block(void **state)
{
    (void)state;
    for (uint64_t seed = 200; seed < 202; seed++) storm(seed, true);
}

static void run_unchecked(struct world *w, uint32_t family,
                          struct user *u) /* kv_tiers_check would find the damage first */
{
    ask_for(u, family, 28, 100);
    while (!try_admit(w, u)) {
        w->now += 100;
        kv_tiers_turn(w->t);
    }
    finish_user(w, u); /* try_admit has compared every block */
    for (int k = 0; k < 50; k++) {
        w->now += 100;
        kv_tiers_turn(w->t);
    }
    kv_evict_all(w->kv);
}
/* Every kind of damage to what lies on the host: none of it is served, all of it is counted. */
static void damage_on_the_host_is_doubted(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_world(&w, 9, false);
    uint32_t n_damaged = 0;
    for (uint32_t round = 0; round < 400; round++) {
        run_unchecked(&w, round % 3, &u);
        int32_t        i = (int32_t)draw(&w, HOST_SLOTS), j = (int32_t)draw(&w, HOST_SLOTS);
        unsigned char *p = slot_page(&w.t->host, i), *q = slot_page(&w.t->host, j);
        if (w.t->host.slot[i].state != SLOT_READY || w.t->host.slot[j].state != SLOT_READY || i == j) continue;
        switch (round % 5) {
        case 0: p[KV_RECORD_HEAD + draw(&w, BLOCK)] ^= (unsigned char)(1 << draw(&w, 8)); break; /* a flipped bit */
        case 1: p[draw(&w, 1000)] ^= 0x40; break;                                                /* in the head */
        case 2: /* two blocks change places, heads and all */
            for (uint32_t k = 0; k < w.t->host.stride; k++) {
                unsigned char b = p[k];
                p[k] = q[k];
                q[k] = b;
            }
            break;
        case 3: memcpy(p + KV_RECORD_HEAD, q + KV_RECORD_HEAD, BLOCK); break; /* the bytes of another */
        case 4: { /* a record that is whole, and says that it is another prefix's */
            const struct kv_record *r = kv_record_of(q);
            kv_record_make(p, &w.t->cfg.key,
                           &(struct kv_record_facts){ .fingerprint = &w.t->fingerprint,
                                                      .key = &r->key,
                                                      .parent = &r->parent,
                                                      .ids = r->ids,
                                                      .block_tokens = BT,
                                                      .payload_bytes = BLOCK,
                                                      .payload = r->payload });
            memcpy(p + KV_RECORD_HEAD, q + KV_RECORD_HEAD, BLOCK);
            break;
        }
        }
        n_damaged++;
        for (uint32_t f = 0; f < 3; f++) {
            run_unchecked(&w, f, &u);
        }
    }
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    uint64_t n = 0;
    for (int k = 1; k < KV_DOUBTS; k++) n += st.doubt[k];
    print_message("%u damaged, %u noticed\n", n_damaged, (unsigned)n);
    assert_true(n_damaged > 200 && n >= n_damaged * 3 / 4); /* the last block of a prompt is not asked for */
    assert_true(st.doubt[KV_DOUBT_HEAD] && st.doubt[KV_DOUBT_KEY] && st.doubt[KV_DOUBT_PAYLOAD]);
    close_world(&w, false);
}

static void a_restart_finds_prefixes_in_the_store(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    open_world(&w, 4, true);
    wait_for_store(&w);
    for (int i = 0; i < 3; i++) {
        ask_for(&u, 1, 60, 100);
        admit(&w, &u);
        finish_user(&w, &u);
        for (int k = 0; k < 20; k++) {
            turn(&w, 10);
            usleep(100);
        }
    }
    w.now += 1000000;
    uint64_t flush = 3600000000u; /* of a clock that stands: until all is written */
    kv_tiers_close(w.t, flush);
    kv_evict_all(w.kv);
    open_tiers(&w, 1);
    wait_for_store(&w);
    ask_for(&u, 1, 60, 100000);
    admit(&w, &u);
    assert_int_equal(u.n_hit, 56);
    assert_int_equal(u.want.n_from[KV_TIER_STORE], 56);
    finish_user(&w, &u);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_STORE].hit_blocks, 14);
    assert_int_equal(st.tier[KV_TIER_HOST].hit_blocks, 0); /* on their way to the device they are not counted again */
    close_world(&w, true);
}

/* Asked for once, on a device with room for it: only the device holds it when the server ends, and the host holds less
 * at a time. */
static void blocks_that_only_the_device_holds_are_kept_at_the_end(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_world(&w, 5, true);
    wait_for_store(&w);
    for (uint32_t family = 1; family <= 3; family++) {
        ask_for(&u, family, 60, 100);
        admit(&w, &u);
        kv_seq_release(w.kv, &u.s); /* no offer: it was not worth it yet */
    }
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_HOST].n_block, 0);
    kv_tiers_close(w.t, 3600000000u);
    kv_evict_all(w.kv);
    open_tiers(&w, 1);
    wait_for_store(&w);
    for (uint32_t family = 1; family <= 3; family++) {
        ask_for(&u, family, 60, 100000);
        admit(&w, &u);
        assert_int_equal(u.n_hit, 56);
        assert_int_equal(u.want.n_from[KV_TIER_STORE], 56);
        finish_user(&w, &u);
        for (int k = 0; k < 20; k++) {
            turn(&w, 10);
            usleep(100);
        }
    }
    close_world(&w, true);
}

static void a_paused_store_is_not_waited_for_at_the_end(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_world(&w, 6, true);
    wait_for_store(&w);                           /* which would make the folder again */
    nftw(w.dir, rm_one, 8, FTW_DEPTH | FTW_PHYS); /* no file can be made any more */
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !kv_store_paused(kv_store_of(w.t->below[0])); usleep(500)) {
        assert_true(clock_us() < end);
        if (!access(w.dir, F_OK))
            nftw(w.dir, rm_one, 8, FTW_DEPTH | FTW_PHYS); /* a file that was being made kept the folder */
        turn(&w, 10);
    }
    run_alone(&w, 1, 60, &u);
    kv_tiers_close(w.t, 3600000000u); /* an hour of a clock that stands */
    open_tiers(&w, 1);
    close_world(&w, true);
}

/* ---- to the next process (tier_hand.h) */

static void freeze(struct world *w, int *slab, int *index)
{
    kv_tiers_hand(w->t, KV_FROZEN);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; kv_tiers_hand_is(w->t, slab, index) != KV_FROZEN;
         usleep(100)) {
        assert_true(clock_us() < end);
        turn(w, 100);
    }
    assert_true(*slab >= 0 && *index >= 0);
    *slab = dup(*slab);
    *index = dup(*index); /* as they come out of a socket */
}
/* The old tiers give up what they have and end; others open with it. */
static void hand_over(struct world *w, int slab, int index)
{
    kv_tiers_hand(w->t, KV_GIVEN);
    kv_tiers_turn(w->t);
    kv_tiers_close(w->t, 0);
    kv_evict_all(w->kv);
    hand_slab = slab;
    hand_index = index;
    open_tiers(w, 0);
    hand_slab = hand_index = -1;
}

static void the_host_goes_to_the_next_process(void **state)
{
    (void)state;
    struct world          w;
    struct user           u, v;
    struct kv_tiers_stats st;
    int                   slab, index;
    open_world(&w, 11, false);
    run_alone(&w, 1, 60, &u);
    run_alone(&w, 2, 28, &u);
    uint32_t n_ready = w.t->host.n_ready;
    assert_int_equal(n_ready, 15 + 7);
    kv_evict_all(w.kv);
    int32_t kept = slot_oldest(&w.t->host); /* what its users said of it goes along */
    w.t->host.slot[kept].hold = (struct kv_hold){ 0 };
    slot_hold(&w.t->host, kept,
              (struct kv_hold){ .until_s = w.kv->now_s + 100, .priority = 3, .used = true, .memory_only = true });

    lane.stall_us = 3000; /* a load in flight ends before anything freezes, and its prompt is computed */
    ask_for(&u, 1, 60, 1e6);
    assert_false(try_admit(&w, &u));
    freeze(&w, &slab, &index);
    lane.stall_us = 0;
    int32_t oldest = slot_oldest(&w.t->host), newest = slot_newest(&w.t->host);
    assert_true(try_admit(&w, &u));
    finish_user(&w, &u);

    ask_for(&v, 3, 60, 1e6); /* frozen: computed at once, and nothing goes down */
    assert_true(try_admit(&w, &v));
    assert_int_equal(v.n_hit, 0);
    finish_user(&w, &v);
    for (int i = 0; i < 50; i++) turn(&w, 100);
    assert_int_equal(w.t->host.n_ready, n_ready);
    assert_int_equal(slot_oldest(&w.t->host), oldest);

    hand_over(&w, slab, index);
    assert_int_equal(kv_tiers_check(w.t), ST_OK);
    assert_int_equal(w.t->host.n_ready, n_ready);
    assert_int_equal(slot_oldest(&w.t->host), oldest); /* and the order of use */
    assert_int_equal(slot_newest(&w.t->host), newest);
    const struct kv_hold *h = &w.t->host.slot[kept].hold;
    uint32_t              rest = h->until_s - (uint32_t)(w.now / 1000000);
    assert_true(h->used && h->memory_only && h->priority == 3 && rest >= 98 && rest <= 101);
    run_alone(&w, 4, 28, &u); /* it is not the one that serves yet: nothing is written */
    assert_int_equal(w.t->host.n_ready, n_ready);
    kv_tiers_hand(w.t, KV_SERVES);
    turn(&w, 100);
    kv_evict_all(w.kv);
    run_alone(&w, 1, 60, &u);
    assert_int_equal(u.n_hit, 56);
    run_alone(&w, 2, 28, &u);
    assert_int_equal(u.n_hit, 24);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.tier[KV_TIER_HOST].hit_blocks, 14 + 6);
    run_alone(&w, 5, 60, &u); /* it takes new ones, and gives room as before */
    assert_true(w.t->host.n_ready > n_ready);
    close_world(&w, false);
}

static void blocks_that_only_the_device_holds_go_to_the_next_process_too(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    int          slab, index;
    open_world(&w, 13, false);
    run_alone(&w, 2, 28, &u);
    uint32_t had = w.t->host.n_ready;
    int32_t  its = slot_oldest(&w.t->host);
    for (uint32_t family = 3; family <= 4; family++) {
        ask_for(&u, family, 60, 100);
        assert_true(try_admit(&w, &u));
        kv_seq_release(w.kv, &u.s); /* no offer: it was not worth it yet */
    }
    kv_tiers_hand(w.t, KV_FROZEN); /* told so, and at once that not */
    turn(&w, 10);
    kv_tiers_hand(w.t, KV_SERVES);
    for (int i = 0; i < 50; i++) turn(&w, 100);
    assert_int_equal(w.t->hand.is, KV_SERVES);
    freeze(&w, &slab, &index);
    assert_int_equal(w.t->host.n_ready, HOST_SLOTS); /* as much as there was room for */
    assert_int_equal(w.t->host.slot[its].state, SLOT_READY);
    assert_int_equal(w.t->host.n_evicted, 0); /* and nothing made room */
    hand_over(&w, slab, index);
    kv_tiers_hand(w.t, KV_SERVES);
    turn(&w, 100);
    uint32_t n_hit = 0;
    for (uint32_t family = 2; family <= 4; family++) {
        ask_for(&u, family, family == 2 ? 28 : 60, 1e6);
        for (int i = 0; !try_admit(&w, &u); i++) {
            assert_true(i < 10000);
            turn(&w, 100);
        }
        n_hit += u.n_hit;
        kv_seq_release(w.kv, &u.s);
    }
    assert_true(n_hit > (had + 8) * BT);
    close_world(&w, false);
}

static void a_next_process_that_never_came_is_no_loss(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    int          slab, index;
    open_world(&w, 12, false);
    run_alone(&w, 1, 60, &u);
    kv_evict_all(w.kv);
    freeze(&w, &slab, &index);
    close(slab);
    close(index);
    kv_tiers_hand(w.t, KV_SERVES);
    turn(&w, 100);
    run_alone(&w, 1, 60, &u);
    assert_int_equal(u.n_hit, 56);
    run_alone(&w, 2, 28, &u); /* and goes down again */
    assert_int_equal(w.t->host.n_ready, 15 + 7);
    close_world(&w, false);
}

/* What came over is checked like anything else: whatever changed on the way is a miss, and counted. */
static void damage_on_the_way_to_the_next_is_doubted(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        struct world          w;
        struct user           u;
        struct kv_tiers_stats st;
        int                   slab, index;
        open_world(&w, 100 + round, false);
        for (uint32_t f = 0; f < 3; f++) run_alone(&w, f, 28, &u);
        freeze(&w, &slab, &index);
        unsigned char *p = slot_page(&w.t->host, (int32_t)draw(&w, 21)); /* 3 * 7 blocks: the first slots */
        switch (round % 3) {
        case 0: p[KV_RECORD_HEAD + draw(&w, BLOCK)] ^= (unsigned char)(1 << draw(&w, 8)); break;
        case 1: p[draw(&w, 1000)] ^= 0x40; break;
        case 2: memset(p, 0, KV_RECORD_HEAD + BLOCK); break;
        }
        hand_over(&w, slab, index);
        kv_tiers_hand(w.t, KV_SERVES);
        kv_tiers_turn(w.t);
        for (uint32_t f = 0; f < 3; f++) run_unchecked(&w, f, &u);
        kv_tiers_stats(w.t, &st);
        uint64_t n = 0;
        for (int k = 1; k < KV_DOUBTS; k++) n += st.doubt[k];
        assert_true(n <= 1); /* the last block of a prompt is not asked for */
        if (n) damaged_seen++;
        close_world(&w, false);
    }
    assert_true(damaged_seen > 40);
}

static void a_slab_or_an_index_of_another_kind_is_left(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct world w;
        struct user  u;
        int          slab, index;
        open_world(&w, 14, false);
        run_alone(&w, 1, 60, &u);
        freeze(&w, &slab, &index);
        int other = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_true(other >= 0);
        assert_int_equal(ftruncate(other, what == 1 ? HOST_SLOTS * 8192 : 4096), 0);
        if (what == 2) assert_int_equal(fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE), 0);
        int *gone = what == 2 ? &index : &slab; /* too small; not sealed; sealed and empty */
        close(*gone);
        *gone = other;
        hand_over(&w, slab, index);
        assert_int_equal(w.t->host.n_ready, 0);
        run_alone(&w, 1, 60, &u);
        assert_int_equal(u.n_hit, 0);
        kv_evict_all(w.kv);
        run_alone(&w, 1, 60, &u);
        assert_int_equal(u.n_hit, 56);
        close_world(&w, false);
    }
}

/* Two tiers on the lanes of one: what comes is for the one that asked, so that one waits for it. */
static void rest(struct world *w)
{
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; kv_tiers_busy(w->t);) {
        assert_true(clock_us() < end);
        turn(w, 1);
        if (kv_tiers_busy(w->t)) usleep(20);
    }
}

static bool degraded(const struct kv_tiers *t, const char *why)
{
    struct kv_tiers_stats st;
    kv_tiers_stats(t, &st);
    return st.n_degraded && strstr(st.degraded, why);
}

/* A folder that another server has is waited for. */
static void a_store_that_is_not_free_yet_is_opened_when_it_is(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    int          slab, index;
    open_world(&w, 15, true);
    wait_for_store(&w); /* it has the lock */
    struct kv_tiers *old = w.t;
    open_tiers(&w, 1);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !degraded(w.t, "another server uses it"); usleep(100)) {
        assert_true(clock_us() < end);
        turn(&w, 1000);
    }
    run_alone(&w, 1, 60, &u); /* it serves without */
    rest(&w);
    struct kv_tiers *next = w.t;
    w.t = old;
    freeze(&w, &slab, &index);
    close(slab);
    close(index);
    kv_tiers_hand(old, KV_GIVEN);
    turn(&w, 100);
    w.t = next;
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; degraded(w.t, ""); usleep(100)) {
        assert_true(clock_us() < end);
        turn(&w, 50000);
    }
    rest(&w);
    /* the old one comes back, and waits in its turn */
    w.t = old;
    kv_tiers_hand(old, KV_SERVES);
    for (int i = 0; i < 10; i++) turn(&w, 100000);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; !degraded(old, "another server uses it"); usleep(100)) {
        assert_true(clock_us() < end);
        turn(&w, 50000);
    }
    kv_tiers_close(next, 0);
    for (uint64_t end = clock_us() + PATIENCE_S * 1000000u; degraded(old, ""); usleep(100)) {
        assert_true(clock_us() < end);
        turn(&w, 50000);
    }
    close_world(&w, true);
}

/* As on a machine that others keep busy: what a load costs is not known in most of a minute. It was the end of the
 * server after one second. */
static void a_lane_that_begins_late_is_waited_for(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    nap_us = 50000000;
    open_world(&w, 16, false);
    assert_int_equal(nap_us, 0);
    run_alone(&w, 1, 60, &u);
    close_world(&w, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_that_begins_late_is_waited_for),
        cmocka_unit_test(the_host_goes_to_the_next_process),
        cmocka_unit_test(blocks_that_only_the_device_holds_go_to_the_next_process_too),
        cmocka_unit_test(a_next_process_that_never_came_is_no_loss),
        cmocka_unit_test(damage_on_the_way_to_the_next_is_doubted),
        cmocka_unit_test(a_slab_or_an_index_of_another_kind_is_left),
        cmocka_unit_test(a_store_that_is_not_free_yet_is_opened_when_it_is),
        cmocka_unit_test(what_left_the_device_comes_back_from_the_host),
        cmocka_unit_test(F26_a_slow_lane_is_not_waited_for_and_its_blocks_may_come_twice),
        cmocka_unit_test(blocks_that_arrive_late_and_are_used_are_credited),
        cmocka_unit_test(F4_a_prompt_that_leaves_lets_go_of_its_load),
        cmocka_unit_test(two_prompts_wait_for_one_load),
        cmocka_unit_test(damage_on_the_host_is_doubted),
        cmocka_unit_test(a_restart_finds_prefixes_in_the_store),
        cmocka_unit_test(blocks_that_only_the_device_holds_are_kept_at_the_end),
        cmocka_unit_test(a_paused_store_is_not_waited_for_at_the_end),
        cmocka_unit_test(F5_a_storm_over_the_host_serves_no_wrong_block),
        cmocka_unit_test(a_storm_over_host_and_store_serves_no_wrong_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
