#include "test.h"
#include "base/hash.h"
#include "base/log.h"
#include "kvcache/device/radix.h"

enum { N = 64, BT = 2 };
static const struct kv_salt none, red = { 1, 2 }, blue = { 1, 3 };
static uint32_t             ref[N];

static int setup(void **state)
{
    struct kv_radix *t = malloc(sizeof *t);
    memset(ref, 0, sizeof ref);
    *state = t;
    return kv_radix_init(t, N, 0, BT, 1, 0);
}

static int teardown(void **state)
{
    kv_radix_close(*state);
    free(*state);
    return 0;
}

static const uint32_t *ab(uint32_t a, uint32_t b)
{
    static uint32_t ids[4][2], at;
    at = (at + 1) % 4;
    ids[at][0] = a;
    ids[at][1] = b;
    return ids[at];
}

static void a_block_is_found_under_its_parent_only(void **state)
{
    struct kv_radix *t = *state;
    ref[5] = ref[6] = 1;
    kv_radix_insert(t, 5, none, KV_NONE, ab(1, 2));
    kv_radix_insert(t, 6, none, 5, ab(1, 2));
    assert_int_equal(kv_radix_find(t, none, KV_NONE, ab(1, 2)), 5);
    assert_int_equal(kv_radix_find(t, none, 5, ab(1, 2)), 6);
    assert_int_equal(kv_radix_find(t, none, 6, ab(1, 2)), KV_NONE);
    assert_int_equal(kv_radix_find(t, none, KV_NONE, ab(2, 1)), KV_NONE);
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
}

static void each_salt_has_its_own_root(void **state)
{
    struct kv_radix *t = *state;
    ref[1] = ref[2] = 1;
    kv_radix_insert(t, 1, red, KV_NONE, ab(1, 2));
    kv_radix_insert(t, 2, blue, KV_NONE, ab(1, 2));
    assert_int_equal(kv_radix_find(t, red, KV_NONE, ab(1, 2)), 1);
    assert_int_equal(kv_radix_find(t, blue, KV_NONE, ab(1, 2)), 2);
    assert_int_equal(kv_radix_find(t, none, KV_NONE, ab(1, 2)), KV_NONE);
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
}

static void F1_a_forced_hash_collision_is_a_miss(void **state)
{
    (void)state;
    struct kv_radix t;
    assert_int_equal(kv_radix_init(&t, N, 0, BT, 1, 1), ST_OK); /* all hashes are 0 or 1 */
    for (uint32_t i = 0; i < 20; i++) {
        ref[i] = 1;
        kv_radix_insert(&t, i, i % 2 ? red : blue, KV_NONE, ab(i, 9));
    }
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(kv_radix_find(&t, i % 2 ? red : blue, KV_NONE, ab(i, 9)), i);
        assert_int_equal(kv_radix_find(&t, i % 2 ? blue : red, KV_NONE, ab(i, 9)), KV_NONE);
        assert_int_equal(kv_radix_find(&t, i % 2 ? red : blue, KV_NONE, ab(i, 8)), KV_NONE);
    }
    assert_int_equal(kv_radix_check(&t, ref), ST_OK);
    kv_radix_close(&t);
}

static void removing_from_a_crowded_bucket_keeps_the_others(void **state)
{
    (void)state;
    struct kv_radix t;
    assert_int_equal(kv_radix_init(&t, N, 0, BT, 1, 1), ST_OK);
    memset(ref, 0, sizeof ref);
    for (uint32_t i = 0; i < 12; i++) kv_radix_insert(&t, i, none, KV_NONE, ab(i, 1));
    for (uint32_t i = 0; i < 12; i += 3) kv_radix_remove(&t, i);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(kv_radix_find(&t, none, KV_NONE, ab(i, 1)), i % 3 ? i : KV_NONE);
    kv_radix_close(&t);
}

static void the_oldest_leaf_is_evicted_first_for_every_order_of_use(void **state)
{
    struct kv_radix *t = *state;
    for (uint32_t i = 0; i < N; i++) {
        kv_radix_insert(t, i, none, KV_NONE, ab(i, 0));
        kv_radix_idle(t, i, hash_u64(i) % 1000);
    }
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    for (uint32_t i = 0; i < N; i += 5) kv_radix_busy(t, i); /* some are locked again */
    for (uint32_t i = 0; i < N; i += 5) ref[i] = 1;
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    uint64_t last = 0;
    uint32_t n = 0;
    for (uint32_t b; (b = kv_radix_oldest(t)) != KV_NONE; n++) {
        assert_true(t->node[b].use >= last);
        assert_int_not_equal(b % 5, 0);
        last = t->node[b].use;
        kv_radix_busy(t, b);
        kv_radix_remove(t, b);
        assert_int_equal(kv_radix_check(t, ref), ST_OK);
    }
    assert_int_equal(n, N - (N + 4) / 5);
}

static void remove_inner(void *arg) { kv_radix_remove(arg, 0); }

static void only_a_leaf_can_be_removed(void **state)
{
    struct kv_radix *t = *state;
    kv_radix_insert(t, 0, none, KV_NONE, ab(1, 2));
    kv_radix_insert(t, 1, none, 0, ab(3, 4));
    assert_int_equal(test_exit_of(remove_inner, t), 70);
}

static void check_finds_each_broken_invariant(void **state)
{
    struct kv_radix *t = *state;
    log_init(LOG_LEVEL_ERROR, -1, false);
    kv_radix_insert(t, 0, none, KV_NONE, ab(1, 2));
    kv_radix_insert(t, 1, none, 0, ab(3, 4));
    ref[0] = 2;
    ref[1] = 2;
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    ref[0] = 1; /* a lock that does not cover the path */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    ref[0] = 2;
    ref[1] = 0; /* an idle leaf that eviction cannot see */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    ref[1] = 2;
    t->token[2]++; /* a block whose tokens are not those of its hash */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->token[2]--;
    t->node[0].n_child = 0;
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->node[0].n_child = 1;
    t->node[1].salt = red;
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->node[1].salt = none;
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    log_init(LOG_LEVEL_ERROR, 2, false);
}

/* ---- what begins like a block */

enum { LONG = 8 };
static const uint32_t *of(const char *text)
{
    static uint32_t ids[4][LONG], at;
    at = (at + 1) % 4;
    for (uint32_t i = 0; i < LONG && text[i]; i++) ids[at][i] = (unsigned char)text[i];
    return ids[at];
}

static void the_child_that_begins_most_alike_is_found(void **state)
{
    (void)state;
    struct kv_radix t;
    uint32_t        b = KV_NONE;
    memset(ref, 0, sizeof ref);
    assert_int_equal(kv_radix_init(&t, N, 0, LONG, 3, 0), ST_OK);
    ref[0] = ref[1] = ref[2] = ref[3] = ref[4] = ref[5] = 1;
    kv_radix_insert(&t, 0, none, KV_NONE, of("system__"));
    kv_radix_insert(&t, 1, none, 0, of("abcdefgh"));
    kv_radix_insert(&t, 2, none, 0, of("abcdXXXX"));
    kv_radix_insert(&t, 3, none, 0, of("abXXXXXX"));
    kv_radix_insert(&t, 4, none, KV_NONE, of("abcdefgX"));
    kv_radix_insert(&t, 5, red, KV_NONE, of("system__"));
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcdefXX"), LONG, &b), 6);
    assert_int_equal(b, 1);
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcdXYZZ"), LONG, &b), 5);
    assert_int_equal(b, 2);
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcdefgh"), 5, &b), 5); /* no more than asked for */
    assert_int_equal(b, 1);
    assert_int_equal(kv_radix_near(&t, none, 0, of("abXXXXXX"), LONG, &b), 8);
    b = KV_NONE;
    assert_int_equal(kv_radix_near(&t, none, 0, of("abYYYYYY"), LONG, &b), 0); /* two tokens are below the stem */
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcd"), 2, &b), 0);
    assert_int_equal(kv_radix_near(&t, none, 1, of("abcdefgh"), LONG, &b), 0);      /* nothing below that node */
    assert_int_equal(kv_radix_near(&t, red, KV_NONE, of("abcdefgX"), LONG, &b), 0); /* another salt's */
    assert_int_equal(b, KV_NONE);
    assert_int_equal(kv_radix_near(&t, red, KV_NONE, of("systemXX"), LONG, &b), 6);
    assert_int_equal(b, 5);
    assert_int_equal(kv_radix_check(&t, ref), ST_OK);
    ref[2] = 0; /* from the middle of its chain */
    kv_radix_remove(&t, 2);
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcdXYZZ"), LONG, &b), 4);
    assert_int_equal(b, 1);
    ref[1] = 0;
    kv_radix_remove(&t, 1);
    assert_int_equal(kv_radix_near(&t, none, 0, of("abcdXYZZ"), LONG, &b), 0);
    ref[0] = 0;
    ref[3] = 0;
    kv_radix_remove(&t, 3);
    kv_radix_remove(&t, 0);
    ref[4] = ref[5] = 0;
    kv_radix_idle(&t, 4, 1);
    kv_radix_idle(&t, 5, 2);
    assert_int_equal(kv_radix_check(&t, ref), ST_OK);
    kv_radix_close(&t);
}

/* Ten thousand children that begin alike: a search looks at the newest of them and no further. */
static void a_long_chain_is_not_walked_to_its_end(void **state)
{
    (void)state;
    enum { MANY = 10000 };
    struct kv_radix t;
    uint32_t        b = KV_NONE, ids[LONG] = { 1, 2, 3, 4 };
    assert_int_equal(kv_radix_init(&t, MANY, 0, LONG, 4, 0), ST_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        ids[4] = 100 + i;
        ids[5] = 7;
        kv_radix_insert(&t, i, none, KV_NONE, ids);
    }
    ids[4] = 100 + MANY - 1;
    ids[5] = 8; /* the newest */
    assert_int_equal(kv_radix_near(&t, none, KV_NONE, ids, LONG, &b), 5);
    assert_int_equal(b, MANY - 1);
    ids[4] = 100; /* the oldest is out of sight */
    assert_int_equal(kv_radix_near(&t, none, KV_NONE, ids, LONG, &b), 4);
    assert_int_equal(b, MANY - 1);
    kv_radix_close(&t);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = { TEST(a_block_is_found_under_its_parent_only),
                                        TEST(each_salt_has_its_own_root),
                                        TEST(F1_a_forced_hash_collision_is_a_miss),
                                        TEST(removing_from_a_crowded_bucket_keeps_the_others),
                                        TEST(the_oldest_leaf_is_evicted_first_for_every_order_of_use),
                                        TEST(only_a_leaf_can_be_removed),
                                        TEST(check_finds_each_broken_invariant),
                                        cmocka_unit_test(the_child_that_begins_most_alike_is_found),
                                        cmocka_unit_test(a_long_chain_is_not_walked_to_its_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
