/* A peer that has blocks of the window's pool, or a part of them, for layers with a window that have one. */
#include "peer_world.h"

static void open_windows_world(struct world *w, uint32_t n_has, uint32_t win_from, uint32_t win_to)
{
    world_window = 10; /* the first row of a block sees parts of the three before it */
    open_peers_world(w);
    fake.n_has = n_has;
    fake.win_from = win_from;
    fake.win_to = win_to;
}
static void close_windows_world(struct world *w)
{
    close_peers_world(w);
    world_window = 0;
}

static void windows_are_asked_for_when_the_path_is_known(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    open_windows_world(&w, BLOCKS - 2, BLOCKS - 5, BLOCKS - 2); /* the peer's prompt ended two blocks before */
    assert_int_equal(come(&w, 1, HONEST, &u), (BLOCKS - 2) * BT);
    assert_int_equal(fake.n_ask, 2);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.n_window_loaded, 3);
    assert_int_equal(st.tier[KV_TIER_PEER].hit_blocks, BLOCKS - 2 + 3 * PIECES);
    idle(&w, 50, 100);
    assert_int_equal(fake.n_give_back, 2);
    assert_int_equal(fake.n_taken, BLOCKS - 2 + 3 * PIECES);
    finish_user(&w, &u);
    close_windows_world(&w);
}

/* Of the three blocks that the next row sees the peer lacks the first. */
static void a_path_is_used_up_to_the_last_window_that_the_peer_has(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_windows_world(&w, BLOCKS, BLOCKS - 2, BLOCKS);
    assert_int_equal(come(&w, 1, HONEST, &u), 0);
    assert_int_equal(fake.n_ask, 2);
    finish_user(&w, &u);
    idle(&w, 50, 100);
    fake.win_from = 1;
    fake.win_to = 6; /* others left the path there */
    assert_int_equal(come(&w, 2, HONEST, &u), 6 * BT);
    finish_user(&w, &u);
    close_windows_world(&w);
}

static void a_peer_that_does_not_answer_of_windows_is_waited_for_once(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_windows_world(&w, BLOCKS, 0, BLOCKS);
    ask_for(&u, 1, TOKENS, 1000); /* 41 ms to compute: a quarter of that is the wait for both */
    asked_by = &u;
    fill_slab(&w, &u, HONEST);
    uint64_t begin = w.now;
    while (!try_admit(&w, &u)) {
        if (fake.n_ask == 1) fake.lie = SILENT;
        turn(&w, 100);
        assert_true(w.now - begin < 12000);
    }
    assert_int_equal(fake.n_ask, 2);
    assert_int_equal(u.n_hit, 0);
    finish_user(&w, &u);
    close_windows_world(&w);
}

/* A step takes longer than the wait for answers: they are there behind it, and what follows from them is asked. */
static void windows_are_asked_for_by_an_engine_of_long_steps_too(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    open_windows_world(&w, BLOCKS, 0, BLOCKS);
    ask_for(&u, 1, TOKENS, 1000);
    asked_by = &u;
    fill_slab(&w, &u, HONEST);
    while (!try_admit(&w, &u)) turn(&w, fake.n_ask < 2 ? 15000 : 100);
    assert_int_equal(fake.n_ask, 2);
    assert_int_equal(u.n_hit, BLOCKS * BT);
    finish_user(&w, &u);
    close_windows_world(&w);
}

/* The device has the path of a prompt that was computed here, and lost its windows. */
static void windows_alone_are_asked_for_where_the_path_is_here(void **state)
{
    (void)state;
    struct world          w;
    struct user           u;
    struct kv_tiers_stats st;
    open_windows_world(&w, 0, 0, BLOCKS);
    assert_int_equal(come(&w, 1, HONEST, &u), 0);
    kv_seq_release(w.kv, &u.s);
    kv_window_evict_all(w.kv);
    fake.n_has = BLOCKS;
    fake.n_ask = 0;
    assert_int_equal(come(&w, 1, HONEST, &u), BLOCKS * BT);
    assert_int_equal(fake.n_ask, 1);
    kv_tiers_stats(w.t, &st);
    assert_int_equal(st.n_window_loaded, 3);
    assert_int_equal(st.tier[KV_TIER_PEER].hit_blocks, 3 * PIECES);
    finish_user(&w, &u);
    close_windows_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_asked_for_when_the_path_is_known),
        cmocka_unit_test(a_path_is_used_up_to_the_last_window_that_the_peer_has),
        cmocka_unit_test(a_peer_that_does_not_answer_of_windows_is_waited_for_once),
        cmocka_unit_test(windows_are_asked_for_by_an_engine_of_long_steps_too),
        cmocka_unit_test(windows_alone_are_asked_for_where_the_path_is_here),
    };
    return cmocka_run_group_tests_name("kvcache/peers_windows", tests, NULL, NULL);
}
