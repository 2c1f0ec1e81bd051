/* Block tables with a second pool, for layers that see a window. One letter is one token, a block is two, a row sees
 * four. */
#include "test.h"
#include "base/log.h"
#include "kvcache/device/seq.h"

enum { N_BLOCK = 64, N_SEQ = 6, TOKENS_MAX = 40, BT = 2, WINDOW = 4, AHEAD = 4 };
static const struct kv_salt none;

static struct kv *make(uint32_t n_window, bool prefix_cache)
{
    struct kv_cfg cfg = { .n_block = N_BLOCK,
                          .block_tokens = BT,
                          .n_seq_max = N_SEQ,
                          .seq_tokens_max = TOKENS_MAX,
                          .prefix_cache = prefix_cache,
                          .borrow_min = 1,
                          .n_window = n_window,
                          .window = WINDOW,
                          .window_ahead = AHEAD,
                          .pin_percent = 50 };
    struct kv    *kv;
    assert_int_equal(kv_create(&cfg, &kv), ST_OK);
    assert_int_equal(kv->win.seq_max, n_window < 8 ? n_window - 2 : 6);
    return kv;
}

static const uint32_t *ids(const char *text)
{
    static uint32_t buf[4][TOKENS_MAX + 1], at;
    at = (at + 1) % 4;
    for (uint32_t i = 0; i < strlen(text); i++) buf[at][i] = (unsigned char)text[i];
    return buf[at];
}
static uint32_t len(const char *text) { return (uint32_t)strlen(text); }

static enum status reserve(struct kv *kv, struct kv_seq *s, uint32_t n)
{
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    enum status    st = kv_seq_reserve(kv, s, n, copy, &n_copy);
    assert_int_equal(n_copy, 0);
    assert_int_equal(kv_check(kv), ST_OK);
    return st;
}

/* Computes s from its n-th token on to the end of text, `step` tokens at a time. */
static void compute(struct kv *kv, struct kv_seq *s, uint32_t n, const char *text, uint32_t step)
{
    while (n < len(text)) {
        uint32_t to = n + step < len(text) ? n + step : len(text);
        assert_int_equal(reserve(kv, s, to), ST_OK);
        kv_seq_commit(kv, s, ids(text), to);
        assert_int_equal(kv_check(kv), ST_OK);
        n = to;
    }
}

static uint32_t run(struct kv *kv, struct kv_seq *s, const char *text)
{
    assert_int_equal(kv_seq_open(kv, none, s), ST_OK);
    uint32_t hit = kv_seq_match(kv, s, ids(text), len(text));
    compute(kv, s, hit, text, 2);
    return hit;
}

static uint32_t put(struct kv *kv, const char *text)
{
    struct kv_seq s;
    uint32_t      hit = run(kv, &s, text);
    kv_seq_release(kv, &s);
    return hit;
}

/* Without a trace: a match marks what it finds. */
static uint32_t peek(struct kv *kv, const char *text) { return kv_peek(kv, none, ids(text), len(text)); }

static uint32_t used(const struct kv *kv)
{
    struct kv_stats st;
    kv_stats(kv, &st);
    return kv->cfg.n_window - st.n_window_free - st.n_window_idle;
}

static void a_long_sequence_holds_its_window_and_no_more(void **state)
{
    (void)state;
    for (int cached = 0; cached < 2; cached++) {
        struct kv    *kv = make(7, cached);
        struct kv_seq s;
        const char   *text = "abcdefghijklmnopqrstuvwxyzabcdefghij";
        run(kv, &s, text);
        assert_int_equal(s.n_block, 18);
        assert_int_equal(s.n_win, 18);
        assert_int_equal(s.win_first, (36 + 1 - WINDOW) / BT); /* row 36 sees tokens 33 to 36 */
        assert_int_equal(s.win[15], KV_NONE);
        assert_int_equal(used(kv), 2);
        struct kv_stats st;
        kv_stats(kv, &st);
        assert_int_equal(st.n_window_passed, 16);
        assert_int_equal(st.n_window_free, cached ? 0 : 5);
        kv_seq_release(kv, &s);
        assert_int_equal(used(kv), 0);
        kv_evict_all(kv);
        kv_stats(kv, &st);
        assert_int_equal(st.n_window_free, 7);
        kv_free(kv);
    }
}

static void rows_in_flight_still_have_what_they_see(void **state)
{
    (void)state;
    struct kv    *kv = make(8, false);
    struct kv_seq s;
    assert_int_equal(kv_seq_open(kv, none, &s), ST_OK);
    assert_int_equal(reserve(kv, &s, 8), ST_OK); /* four rows of one step, and four of the next */
    kv_seq_commit(kv, &s, ids("abcd"), 4);
    assert_int_equal(s.win_first, 0); /* row 4 sees tokens 1 to 4 */
    kv_seq_commit(kv, &s, ids("abcdefg"), 7);
    assert_int_equal(s.win_first, 1); /* row 7 sees 4 to 7; a prompt that continues at 6 sees 3 to 6 */
    assert_int_equal(s.n_win, 4);
    kv_seq_release(kv, &s);
    kv_free(kv);
}

static void a_prefix_is_found_to_where_its_window_is(void **state)
{
    (void)state;
    struct kv *kv = make(20, true);
    put(kv, "abcdefghijklmnop");
    assert_int_equal(peek(kv, "abcdefghijklmnopZ"), 16);
    assert_int_equal(peek(kv, "abcdefgZ"), 6);
    put(kv,
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123"); /* takes what is free, then what was passed in the first one, oldest first */
    assert_int_equal(peek(kv, "abcdefghijklmnopZ"), 16);
    assert_int_equal(peek(kv, "abcdZ"), 0);
    /* Nodes 0 and 1 have nothing left; one that needs only 2 and 3 is as before. */
    struct kv_seq s;
    assert_int_equal(kv_seq_open(kv, none, &s), ST_OK);
    uint32_t want = peek(kv, "abcdefghijklZ");
    assert_int_equal(kv_seq_match(kv, &s, ids("abcdefghijklZ"), 13), want);
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(s.n_win, s.n_block);
    kv_seq_release(kv, &s);
    kv_free(kv);
}

static void what_was_looked_for_and_was_not_there_is_kept_the_next_time(void **state)
{
    (void)state;
    struct kv *kv = make(14, true);
    put(kv, "abcdefghijklmnopqrst");
    put(kv, "ABCDEFGHIJKLMNOPQRST");
    assert_int_equal(peek(kv, "abcdefgh1"), 0);
    assert_int_equal(put(kv, "abcdefgh123456789012"),
                     0); /* found in the tree, but without the window: computed again */
    put(kv, "0BCDEFGHIJKLMNOPQRST");
    assert_int_equal(peek(kv, "abcdefgh2"), 8);
    assert_int_equal(put(kv, "abcdefgh22345678"), 8);
    put(kv, "1BCDEFGHIJKLMNOPQRST");
    assert_int_equal(peek(kv, "abcdefgh3"), 8);
    kv_free(kv);
}

static void the_end_of_a_pin_is_kept_longest(void **state)
{
    (void)state;
    struct kv     *kv = make(12, true);
    struct kv_seq  s;
    struct kv_mark mark;
    run(kv, &s, "abcdefghij");
    assert_int_equal(kv_pin(kv, &s, 10, 0, UINT64_MAX, &mark), 10);
    assert_int_equal(kv_check(kv), ST_OK);
    compute(kv, &s, 10, "abcdefghijklmnopqrstuvwxyz", 2);
    kv_seq_release(kv, &s);
    for (char c = '0'; c < '6'; c++) {
        char text[] = "?BCDEFGHIJKLMNOPQRST";
        text[0] = c;
        put(kv, text);
    }
    assert_int_equal(peek(kv, "abcdefghijZ"), 10);
    assert_int_equal(peek(kv, "abcdefghij"), 8);
    kv_unpin(kv, UINT64_MAX);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_free(kv);
}

static void a_fork_and_a_borrowed_block_are_copied_in_both_pools(void **state)
{
    (void)state;
    struct kv     *kv = make(16, true);
    struct kv_seq  a, b;
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    run(kv, &a, "abcdefg");
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_fork(kv, &a, &b, 7), ST_OK);
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(b.win_first, a.win_first);
    assert_int_equal(kv_seq_reserve(kv, &b, 8, copy, &n_copy), ST_OK);
    assert_int_equal(n_copy, 1);
    assert_int_equal(copy[0].win_src, a.win[3]);
    assert_int_equal(copy[0].win_dst, b.win[3]);
    kv_seq_commit(kv, &b, ids("abcdefgX"), 8);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);

    assert_int_equal(kv_seq_open(kv, none, &a), ST_OK);
    assert_int_equal(kv_seq_match(kv, &a, ids("abcdefgYZ"), 9), 6);
    n_copy = 0;
    assert_int_equal(kv_seq_borrow(kv, &a, ids("abcdefgYZ"), 9, copy, &n_copy), 1);
    assert_int_equal(n_copy, 1);
    assert_int_not_equal(copy[0].win_src, KV_NONE);
    assert_int_equal(copy[0].win_dst, a.win[3]);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    assert_int_equal(used(kv), 0);
    kv_free(kv);
}

/* The beginning of a block whose window is gone is not copied. */
static void a_block_without_a_window_is_not_borrowed(void **state)
{
    (void)state;
    struct kv     *kv = make(16, true);
    struct kv_seq  a;
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    put(kv, "abcdefgh");
    kv_window_evict_all(kv);
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &a), ST_OK);
    assert_int_equal(kv_seq_match(kv, &a, ids("abcdefgYZ"), 9), 0);
    assert_int_equal(kv_seq_borrow(kv, &a, ids("aYYYY"), 5, copy, &n_copy), 0);
    compute(kv, &a, 0, "abcdefgYZ", 2); /* the nodes get their blocks back */
    kv_seq_release(kv, &a);
    assert_int_equal(peek(kv, "abcdefgY"), 6);
    kv_free(kv);
}

static void a_promise_is_kept_for_whoever_was_given_it(void **state)
{
    (void)state;
    struct kv    *kv = make(12, false);
    struct kv_seq a, b, c;
    assert_int_equal(kv_seq_open(kv, none, &a), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &c), ST_OK);
    assert_int_equal(reserve(kv, &a, TOKENS_MAX), ST_OK); /* to its end */
    assert_int_equal(a.n_block, TOKENS_MAX / BT);
    assert_int_equal(a.n_win, 6);
    assert_int_equal(kv_seq_covers(kv, &a), 12);
    kv_seq_promise(kv, &a);
    assert_int_equal(kv_window_available(kv), 6);
    kv_seq_commit(kv, &a, ids("abcdefghij"), 10); /* passes some: they stay its own */
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(a.win_first, 3);
    assert_int_equal(kv_window_available(kv), 6);
    assert_int_equal(reserve(kv, &b, 8), ST_OK);
    assert_int_equal(kv_seq_room(kv, &b), 12); /* four that it holds, and two */
    assert_int_equal(reserve(kv, &b, 12), ST_OK);
    kv_seq_commit(kv, &b, ids("ABCDEFGH"), 8);
    assert_int_equal(b.win_first, 2);
    assert_int_equal(reserve(kv, &c, 8), ST_AGAIN); /* five are free, and three of them are a's */
    assert_int_equal(reserve(kv, &c, 4), ST_OK);
    assert_int_equal(reserve(kv, &a, TOKENS_MAX), ST_OK);
    assert_int_equal(a.n_win - a.win_first, 6);
    kv_seq_release(kv, &a);
    assert_int_equal(reserve(kv, &c, 8), ST_OK);
    kv_seq_release(kv, &b);
    kv_seq_release(kv, &c);
    assert_int_equal(kv->win.n_kept, 0);
    kv_free(kv);
}

static void the_need_of_a_sequence_ends_at_its_window(void **state)
{
    (void)state;
    struct kv *kv = make(12, true), *plain;
    assert_int_equal(kv_window_need(kv, NULL, 0, 6), 3);
    assert_int_equal(kv_window_need(kv, NULL, 0, TOKENS_MAX), 6);
    assert_int_equal(kv_window_need(kv, NULL, 10, 12), 3); /* row 10 sees tokens 7 to 10 */
    struct kv_cfg cfg = kv->cfg;
    cfg.n_window = 0;
    assert_int_equal(kv_create(&cfg, &plain), ST_OK);
    assert_int_equal(kv_window_need(plain, NULL, 0, TOKENS_MAX), 0);
    kv_free(plain);
    cfg.n_window = 4;
    cfg.n_guest = 1;
    assert_int_equal(kv_create(&cfg, &plain), ST_INVALID);
    kv_free(kv);
}

static void the_check_finds_what_is_wrong(void **state)
{
    (void)state;
    struct kv    *kv = make(12, true);
    struct kv_seq s;
    run(kv, &s, "abcdefghij");
    log_init(LOG_LEVEL_ERROR, -1, false);
    uint32_t *wrong[] = {
        &kv->win.pool.ref[s.win[4]], &kv->win.node[s.win[4]], &kv->win.of[s.block[0]], &s.win_first, &s.n_win, &s.win[0]
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint32_t was = *wrong[i];
        *wrong[i] = was + 1;
        if (kv_check(kv) == ST_OK) fail_msg("fault %zu is not found", i);
        *wrong[i] = was;
        assert_int_equal(kv_check(kv), ST_OK);
    }
    log_init(LOG_LEVEL_ERROR, 2, false);
    kv_seq_release(kv, &s);
    kv_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_sequence_holds_its_window_and_no_more),
        cmocka_unit_test(rows_in_flight_still_have_what_they_see),
        cmocka_unit_test(a_prefix_is_found_to_where_its_window_is),
        cmocka_unit_test(what_was_looked_for_and_was_not_there_is_kept_the_next_time),
        cmocka_unit_test(the_end_of_a_pin_is_kept_longest),
        cmocka_unit_test(a_fork_and_a_borrowed_block_are_copied_in_both_pools),
        cmocka_unit_test(a_block_without_a_window_is_not_borrowed),
        cmocka_unit_test(a_promise_is_kept_for_whoever_was_given_it),
        cmocka_unit_test(the_need_of_a_sequence_ends_at_its_window),
        cmocka_unit_test(the_check_finds_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
