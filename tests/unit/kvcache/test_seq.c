/* Block tables over pool and tree, with texts for tokens: one letter is one token, a block is two.
 * Over 500 lines: one struct; a test for each function, and random runs over all of them. */
#include "test.h"
#include "base/log.h"
#include "kvcache/device/seq.h"

enum { N_BLOCK = 12, N_SEQ = 4, TOKENS_MAX = 24 };
static const struct kv_salt none, red = { 7, 0 };

static struct kv *make(uint32_t n_block, bool prefix_cache)
{
    struct kv_cfg cfg = { .n_block = n_block,
                          .block_tokens = 2,
                          .n_seq_max = N_SEQ,
                          .seq_tokens_max = TOKENS_MAX,
                          .prefix_cache = prefix_cache };
    struct kv    *kv;
    assert_int_equal(kv_create(&cfg, &kv), ST_OK);
    return kv;
}

static int setup(void **state)
{
    *state = make(N_BLOCK, true);
    return 0;
}

static int teardown(void **state)
{
    assert_int_equal(kv_check(*state), ST_OK);
    kv_free(*state);
    return 0;
}

static const uint32_t *ids(const char *text)
{
    static uint32_t buf[4][TOKENS_MAX + 1], at;
    at = (at + 1) % 4;
    for (uint32_t i = 0; i < strlen(text); i++) buf[at][i] = (unsigned char)text[i];
    return buf[at];
}
static uint32_t len(const char *text) { return (uint32_t)strlen(text); }

/* Opens s, matches, reserves and commits all of text. Returns what the match gave. */
static uint32_t run(struct kv *kv, struct kv_seq *s, struct kv_salt salt, const char *text)
{
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    assert_int_equal(kv_seq_open(kv, salt, s), ST_OK);
    uint32_t hit = kv_seq_match(kv, s, ids(text), len(text));
    assert_int_equal(kv_seq_reserve(kv, s, len(text), copy, &n_copy), ST_OK);
    kv_seq_commit(kv, s, ids(text), len(text));
    assert_int_equal(n_copy, 0);
    assert_int_equal(kv_check(kv), ST_OK);
    return hit;
}

static void put(struct kv *kv, const char *text)
{
    struct kv_seq s;
    run(kv, &s, none, text);
    kv_seq_release(kv, &s);
}

static uint32_t match_len(struct kv *kv, const char *text)
{
    struct kv_seq s;
    assert_int_equal(kv_seq_open(kv, none, &s), ST_OK);
    uint32_t n = kv_seq_match(kv, &s, ids(text), len(text));
    assert_int_equal(n, kv_peek(kv, none, ids(text), len(text)));
    kv_seq_release(kv, &s);
    return n;
}

static void a_split_keeps_both_suffixes(void **state)
{
    struct kv *kv = *state;
    put(kv, "aabb");
    put(kv, "aacc");
    assert_int_equal(match_len(kv, "aacd"), 2);
    assert_int_equal(match_len(kv, "aaccx"), 4);
    assert_int_equal(match_len(kv, "aabbx"), 4);
}

static void a_match_leaves_one_token_to_compute(void **state)
{
    struct kv *kv = *state;
    put(kv, "aabb");
    assert_int_equal(match_len(kv, "aabb"), 2);
    assert_int_equal(match_len(kv, "aabbc"), 4);
    assert_int_equal(match_len(kv, "aa"), 0);
    assert_int_equal(match_len(kv, "a"), 0);
}

static void F27_only_full_blocks_enter_the_tree(void **state)
{
    struct kv *kv = *state;
    put(kv, "aab");
    assert_int_equal(match_len(kv, "aabbb"), 2);
    struct kv_stats k;
    kv_stats(kv, &k);
    assert_int_equal(k.n_tree, 1);
    assert_int_equal(k.n_free, N_BLOCK - 1);
}

static void F2_another_salt_is_another_tree(void **state)
{
    struct kv *kv = *state;
    put(kv, "aabbcc");
    assert_int_equal(kv_peek(kv, red, ids("aabbccd"), 7), 0);
    struct kv_seq s;
    assert_int_equal(run(kv, &s, red, "aabbccd"), 0);
    assert_int_equal(kv_peek(kv, red, ids("aabbccd"), 7), 6);
    kv_seq_release(kv, &s);
}

static void a_duplicate_prefix_is_remapped(void **state)
{
    struct kv     *kv = *state;
    struct kv_seq  a, b;
    struct kv_copy copy[2];
    uint32_t       n_copy = 0;
    assert_int_equal(kv_seq_open(kv, none, &a), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    kv_seq_match(kv, &a, ids("aabb"), 4);
    kv_seq_match(kv, &b, ids("aabb"), 4); /* neither is computed yet: both compute it */
    assert_int_equal(kv_seq_reserve(kv, &a, 4, copy, &n_copy), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &b, 4, copy, &n_copy), ST_OK);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 4);
    kv_seq_commit(kv, &a, ids("aabb"), 4);
    kv_seq_commit(kv, &b, ids("aabb"), 4);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 2);
    assert_int_equal(a.block[0], b.block[0]);
    assert_int_equal(a.block[1], b.block[1]);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &b);
}

static void a_lock_covers_the_path_to_the_root(void **state)
{
    struct kv    *kv = *state;
    struct kv_seq a;
    put(kv, "aabbcc");
    put(kv, "ddee");
    assert_int_equal(kv_seq_open(kv, none, &a), ST_OK);
    assert_int_equal(kv_seq_match(kv, &a, ids("aabbx"), 5), 4);
    kv_evict_all(kv);
    assert_int_equal(kv_peek(kv, none, ids("aabbccx"), 7), 4);
    assert_int_equal(kv_peek(kv, none, ids("ddeex"), 5), 0);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 2);
    kv_seq_release(kv, &a);
    kv_evict_all(kv);
    assert_int_equal(kv_free_count(kv), N_BLOCK);
}

static void the_least_recently_used_leaf_goes_first(void **state)
{
    struct kv    *kv = *state;
    struct kv_seq s;
    put(kv, "aabbcc");
    put(kv, "ddeeff");
    put(kv, "aabbg"); /* aabb was used again, its cc was not */
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    assert_int_equal(kv_seq_open(kv, none, &s), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &s, 2 * (N_BLOCK - 6) + 2, copy, &n_copy), ST_OK); /* one more than is free */
    assert_int_equal(kv_peek(kv, none, ids("aabbccx"), 7), 4);
    assert_int_equal(kv_peek(kv, none, ids("ddeeffx"), 7), 6);
    assert_int_equal(kv_seq_reserve(kv, &s, 2 * (N_BLOCK - 6) + 4, copy, &n_copy), ST_OK);
    assert_int_equal(kv_peek(kv, none, ids("ddeeffx"), 7), 4); /* then the leaf of the other */
    kv_seq_release(kv, &s);
}

static void a_reserve_that_does_not_fit_changes_nothing(void **state)
{
    struct kv     *kv = *state;
    struct kv_seq  a, b;
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    run(kv, &a, none, "aabbccddeeffgghhii"); /* 9 blocks */
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &b, 8, copy, &n_copy), ST_AGAIN);
    assert_int_equal(b.n_block, 0);
    assert_int_equal(kv_free_count(kv), 3);
    assert_int_equal(kv_seq_reserve(kv, &b, 6, copy, &n_copy), ST_OK);
    assert_int_equal(kv_available_count(kv), 0);
    kv_seq_drop(kv, &a); /* preempted: what it computed is cache now */
    assert_int_equal(kv_available_count(kv), 9);
    assert_int_equal(kv_seq_reserve(kv, &b, 8, copy, &n_copy), ST_OK);
    assert_int_equal(kv_seq_match(kv, &a, ids("aabbccddeeffgghhii"), 18), 16);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
}

static void opening_one_table_too_many_gives_again(void **state)
{
    struct kv    *kv = *state;
    struct kv_seq s[N_SEQ], one_more;
    for (uint32_t i = 0; i < N_SEQ; i++) assert_int_equal(kv_seq_open(kv, none, &s[i]), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &one_more), ST_AGAIN);
    kv_seq_release(kv, &s[2]);
    assert_int_equal(kv_seq_open(kv, none, &one_more), ST_OK);
    kv_seq_release(kv, &one_more);
    for (uint32_t i = 0; i < N_SEQ; i++)
        if (i != 2) kv_seq_release(kv, &s[i]);
}

static void forks_copy_the_tail_when_they_write_and_the_last_keeps_it(void **state)
{
    struct kv     *kv = *state;
    struct kv_seq  a, b, c;
    struct kv_copy copy[4];
    uint32_t       n_copy = 0;
    run(kv, &a, none, "aabbc");
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_open(kv, none, &c), ST_OK);
    assert_int_equal(kv_seq_fork(kv, &a, &b, 5), ST_OK);
    assert_int_equal(kv_seq_fork(kv, &a, &c, 5), ST_OK);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 3);
    uint32_t tail = a.block[2];
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &b, 6, copy, &n_copy), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &a, 6, copy, &n_copy), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &c, 6, copy, &n_copy), ST_OK);
    assert_int_equal(n_copy, 2);
    assert_int_equal(copy[0].src, tail);
    assert_int_equal(copy[0].dst, b.block[2]);
    assert_int_equal(copy[1].src, tail);
    assert_int_equal(copy[1].dst, a.block[2]);
    assert_int_equal(c.block[2], tail);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_commit(kv, &a, ids("aabbcx"), 6);
    kv_seq_commit(kv, &b, ids("aabbcy"), 6);
    kv_seq_commit(kv, &c, ids("aabbcx"), 6); /* the same draw as a: one block for both */
    assert_int_equal(a.block[2], c.block[2]);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 4);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
    kv_seq_release(kv, &c);
}

static void the_source_of_a_copy_is_held_until_the_commit(void **state)
{
    struct kv     *kv = *state;
    struct kv_seq  a, b;
    struct kv_copy copy[2];
    uint32_t       n_copy = 0;
    run(kv, &a, none, "aab");
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_fork(kv, &a, &b, 3), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &a, 4, copy, &n_copy), ST_OK);
    kv_seq_drop(kv, &b); /* preempted in the same step, after a's copy was planned */
    assert_int_equal(kv->pool.ref[copy[0].src], 1);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_commit(kv, &a, ids("aabb"), 4);
    assert_int_equal(kv->pool.ref[copy[0].src], 0);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
}

static void a_fork_at_a_block_border_copies_nothing(void **state)
{
    struct kv     *kv = *state;
    struct kv_seq  a, b;
    struct kv_copy copy[2];
    uint32_t       n_copy = 0;
    run(kv, &a, none, "aabb");
    assert_int_equal(kv_seq_open(kv, none, &b), ST_OK);
    assert_int_equal(kv_seq_fork(kv, &a, &b, 5), ST_INVALID); /* the fifth is not computed */
    assert_int_equal(kv_seq_fork(kv, &a, &b, 4), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &b, 5, copy, &n_copy), ST_OK);
    assert_int_equal(kv_seq_reserve(kv, &a, 5, copy, &n_copy), ST_OK);
    assert_int_equal(n_copy, 0);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 4);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
}

static void without_the_cache_nothing_is_shared_but_forks_are(void **state)
{
    (void)state;
    struct kv    *kv = make(N_BLOCK, false);
    struct kv_seq a, b;
    assert_int_equal(run(kv, &a, none, "aabbc"), 0);
    assert_int_equal(run(kv, &b, none, "aabbc"), 0);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 6);
    kv_seq_drop(kv, &b);
    assert_int_equal(kv_seq_fork(kv, &a, &b, 5), ST_OK);
    assert_int_equal(kv_free_count(kv), N_BLOCK - 3);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
    assert_int_equal(kv_free_count(kv), N_BLOCK);
    kv_free(kv);
}

static void a_cursor_goes_on_where_it_stopped_and_notices_an_eviction(void **state)
{
    struct kv       *kv = *state;
    struct kv_cursor c = { 0 };
    assert_int_equal(kv_peek_more(kv, none, ids("aabbccd"), 7, &c), 0);
    put(kv, "aabb");
    assert_int_equal(kv_peek_more(kv, none, ids("aabbccd"), 7, &c), 4);
    put(kv, "aabbcc");
    assert_int_equal(kv_peek_more(kv, none, ids("aabbccd"), 7, &c), 6);
    assert_int_equal(kv_cursor_idle(kv, &c), 3);
    struct kv_seq s;
    assert_int_equal(kv_seq_open(kv, none, &s), ST_OK);
    kv_seq_match(kv, &s, ids("aabbx"), 5);
    assert_int_equal(kv_cursor_idle(kv, &c), 1); /* two of the three are locked */
    kv_seq_release(kv, &s);
    kv_evict_all(kv);
    put(kv, "aaxxyy"); /* takes the same block numbers */
    assert_int_equal(kv_peek_more(kv, none, ids("aabbccd"), 7, &c), 2);
}

static void a_discard_takes_its_blocks_out_of_the_cache_but_not_those_of_others(void **state)
{
    struct kv    *kv = *state;
    struct kv_seq a, b;
    run(kv, &a, none, "aabbcc");
    run(kv, &b, none, "aadd");
    kv_seq_discard(kv, &a);
    kv_seq_release(kv, &a);
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(kv_peek(kv, none, ids("aabbccx"), 7), 2);
    assert_int_equal(kv_peek(kv, none, ids("aaddx"), 5), 4);
    kv_seq_release(kv, &b);
}

static void nonsense_configurations_are_refused(void **state)
{
    (void)state;
    struct kv    *kv;
    struct kv_cfg ok = { .n_block = 4, .block_tokens = 16, .n_seq_max = 1, .seq_tokens_max = 64 }, c;
    c = ok;
    c.n_block = 0;
    assert_int_equal(kv_create(&c, &kv), ST_INVALID);
    c = ok;
    c.block_tokens = 0;
    assert_int_equal(kv_create(&c, &kv), ST_INVALID);
    c = ok;
    c.block_tokens = 257;
    assert_int_equal(kv_create(&c, &kv), ST_INVALID);
    c = ok;
    c.n_seq_max = 0;
    assert_int_equal(kv_create(&c, &kv), ST_INVALID);
    c = ok;
    c.seq_tokens_max = 0;
    assert_int_equal(kv_create(&c, &kv), ST_INVALID);
}

static void check_finds_each_broken_invariant(void **state)
{
    struct kv    *kv = *state;
    struct kv_seq a, b;
    run(kv, &a, none, "aabbc");
    run(kv, &b, red, "aab");
    log_init(LOG_LEVEL_ERROR, -1, false);
    kv->pool.ref[a.block[0]]++;
    assert_int_equal(kv_check(kv), ST_INVALID);
    kv->pool.ref[a.block[0]]--;
    uint32_t own = a.block[2];
    a.block[2] = a.block[1]; /* a table that names a block twice */
    assert_int_equal(kv_check(kv), ST_INVALID);
    a.block[2] = kv->pool.free_id[0]; /* and a free one */
    assert_int_equal(kv_check(kv), ST_INVALID);
    a.block[2] = own;
    uint32_t theirs = b.block[0];
    b.block[0] = a.block[0]; /* and another tenant's */
    assert_int_equal(kv_check(kv), ST_INVALID);
    b.block[0] = theirs;
    a.n_shared = 1;
    assert_int_equal(kv_check(kv), ST_INVALID);
    a.n_shared = 2;
    kv->pool.n_free--; /* a lost block */
    assert_int_equal(kv_check(kv), ST_INVALID);
    kv->pool.n_free++;
    assert_int_equal(kv_check(kv), ST_OK);
    log_init(LOG_LEVEL_ERROR, 2, false);
    kv_seq_release(kv, &a);
    kv_seq_release(kv, &b);
}

/* ---- a block shared in part: four tokens a block, two are worth a copy */

static struct kv *make_long(uint32_t n_block)
{
    struct kv_cfg cfg = { .n_block = n_block,
                          .block_tokens = 4,
                          .n_seq_max = N_SEQ,
                          .seq_tokens_max = TOKENS_MAX,
                          .prefix_cache = true,
                          .borrow_min = 2 };
    struct kv    *kv;
    assert_int_equal(kv_create(&cfg, &kv), ST_OK);
    return kv;
}

struct lent {
    struct kv_copy copy[1];
    uint32_t       n_copy, n_match, n_borrow;
};
static struct lent begin(struct kv *kv, struct kv_seq *s, struct kv_salt salt, const char *text)
{
    struct lent l = { 0 };
    assert_int_equal(kv_seq_open(kv, salt, s), ST_OK);
    l.n_match = kv_seq_match(kv, s, ids(text), len(text));
    l.n_borrow = kv_seq_borrow(kv, s, ids(text), len(text), l.copy, &l.n_copy);
    assert_int_equal(l.n_copy, l.n_borrow > 0);
    assert_int_equal(s->n_cached, l.n_match + l.n_borrow);
    assert_int_equal(kv_check(kv), ST_OK);
    return l;
}

static void a_prompt_goes_on_inside_a_block_by_a_copy_of_it(void **state)
{
    (void)state;
    struct kv    *kv = make_long(8);
    struct kv_seq a, b;
    put(kv, "aaaabcde");
    struct lent l = begin(kv, &a, none, "aaaabcXYZ");
    assert_int_equal(l.n_match, 4);
    assert_int_equal(l.n_borrow, 2);
    assert_int_equal(a.n_block, 2);
    assert_int_equal(a.n_shared, 1);
    assert_int_equal(l.copy[0].dst, a.block[1]);
    assert_int_equal(kv->tree.token[l.copy[0].src * 4], 'b');
    assert_int_equal(kv->pool.ref[l.copy[0].src], 1); /* until the copy is surely made */
    kv_evict_all(kv);
    assert_true(kv_in_tree(kv, l.copy[0].src));
    assert_int_equal(kv_seq_reserve(kv, &a, 9, l.copy, &l.n_copy), ST_OK);
    assert_int_equal(l.n_copy, 1); /* its own copy is not copied again */
    kv_seq_commit(kv, &a, ids("aaaabcXYZ"), 9);
    assert_int_equal(kv->pool.ref[l.copy[0].src], 0);
    assert_int_equal(a.n_shared, 2);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    l = begin(kv, &b, none, "aaaabcXYQ"); /* now both are there, and a whole block is better than a part */
    assert_int_equal(l.n_match, 8);
    assert_int_equal(l.n_borrow, 0);
    kv_seq_release(kv, &b);
    l = begin(kv, &b, none, "aaaabcdXX"); /* the one that has more in common */
    assert_int_equal(l.n_borrow, 3);
    kv_seq_release(kv, &b);
    l = begin(kv, &b, red, "aaaabcdXX"); /* another salt borrows nothing */
    assert_int_equal(l.n_match + l.n_borrow, 0);
    kv_seq_release(kv, &b);
    l = begin(kv, &b, none, "aaaabXXXX"); /* one token is not worth it */
    assert_int_equal(l.n_borrow, 0);
    kv_seq_release(kv, &b);
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.n_borrowed, 2);
    assert_int_equal(st.n_borrowed_tokens, 5);
    kv_evict_all(kv);
    assert_int_equal(kv_free_count(kv), 8);
    kv_free(kv);
}

static void the_same_prompt_again_computes_one_token(void **state)
{
    (void)state;
    struct kv    *kv = make_long(8);
    struct kv_seq a;
    put(kv, "aaaabcde");
    struct lent l = begin(kv, &a, none, "aaaabcde");
    assert_int_equal(l.n_match + l.n_borrow, 7);
    uint32_t dup = a.block[1];
    assert_int_equal(kv_seq_reserve(kv, &a, 8, l.copy, &l.n_copy), ST_OK);
    kv_seq_commit(kv, &a, ids("aaaabcde"), 8); /* the copy has become the same block: it is given back */
    assert_int_equal(a.block[1], l.copy[0].src);
    assert_int_not_equal(a.block[1], dup);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_discard(kv, &a); /* in doubt: the path and what was borrowed go, once */
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &a);
    assert_int_equal(kv_free_count(kv), 8);
    l = begin(kv, &a, none, "aaaab"); /* four of five tokens would be a whole block: nothing there any more */
    assert_int_equal(l.n_match + l.n_borrow, 0);
    kv_seq_release(kv, &a);
    kv_free(kv);
}

static void the_source_of_a_borrowed_block_is_dropped_with_a_table_in_doubt(void **state)
{
    (void)state;
    struct kv    *kv = make_long(8);
    struct kv_seq a;
    put(kv, "aaaabcde");
    struct lent l = begin(kv, &a, none, "aaaabcXY");
    kv_seq_discard(kv, &a);
    assert_false(kv_in_tree(kv, l.copy[0].src));
    kv_seq_release(kv, &a);
    assert_int_equal(kv_check(kv), ST_OK);
    assert_int_equal(kv_free_count(kv), 8);
    kv_free(kv);
}

static void without_a_block_for_it_nothing_is_borrowed(void **state)
{
    (void)state;
    struct kv    *kv = make_long(2);
    struct kv_seq a;
    put(kv, "aaaabcde");
    struct lent l = begin(kv, &a, none, "aaaabcXY"); /* both blocks are locked by the match and the part */
    assert_int_equal(l.n_match, 4);
    assert_int_equal(l.n_borrow, 0);
    uint32_t n_copy = 0;
    assert_int_equal(kv_seq_reserve(kv, &a, 8, l.copy, &n_copy), ST_OK);
    kv_seq_release(kv, &a);
    kv_free(kv);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { TEST(a_split_keeps_both_suffixes),
                                        TEST(a_match_leaves_one_token_to_compute),
                                        TEST(F27_only_full_blocks_enter_the_tree),
                                        TEST(F2_another_salt_is_another_tree),
                                        TEST(a_duplicate_prefix_is_remapped),
                                        TEST(a_lock_covers_the_path_to_the_root),
                                        TEST(the_least_recently_used_leaf_goes_first),
                                        TEST(a_reserve_that_does_not_fit_changes_nothing),
                                        TEST(opening_one_table_too_many_gives_again),
                                        TEST(forks_copy_the_tail_when_they_write_and_the_last_keeps_it),
                                        TEST(the_source_of_a_copy_is_held_until_the_commit),
                                        TEST(a_fork_at_a_block_border_copies_nothing),
                                        TEST(without_the_cache_nothing_is_shared_but_forks_are),
                                        TEST(a_cursor_goes_on_where_it_stopped_and_notices_an_eviction),
                                        TEST(a_discard_takes_its_blocks_out_of_the_cache_but_not_those_of_others),
                                        TEST(nonsense_configurations_are_refused),
                                        TEST(check_finds_each_broken_invariant),
                                        cmocka_unit_test(a_prompt_goes_on_inside_a_block_by_a_copy_of_it),
                                        cmocka_unit_test(the_same_prompt_again_computes_one_token),
                                        cmocka_unit_test(
                                            the_source_of_a_borrowed_block_is_dropped_with_a_table_in_doubt),
                                        cmocka_unit_test(without_a_block_for_it_nothing_is_borrowed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
