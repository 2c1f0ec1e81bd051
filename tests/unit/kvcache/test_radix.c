#include "test.h"
#include "base/hash.h"
#include "base/log.h"
#include "kvcache/radix.h"

enum { N = 64, BT = 2 };
static const struct kv_salt none, red = { 1, 2 }, blue = { 1, 3 };
static uint32_t             ref[N];

static int setup(void **state)
{
    struct kv_radix *t = malloc(sizeof *t);
    memset(ref, 0, sizeof ref);
    *state = t;
    return kv_radix_init(t, N, BT, 0);
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
    ids[at][0] = a, ids[at][1] = b;
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
    assert_int_equal(kv_radix_init(&t, N, BT, 1), ST_OK); /* all hashes are 0 or 1 */
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
    assert_int_equal(kv_radix_init(&t, N, BT, 1), ST_OK);
    memset(ref, 0, sizeof ref);
    for (uint32_t i = 0; i < 12; i++) kv_radix_insert(&t, i, none, KV_NONE, ab(i, 1));
    for (uint32_t i = 0; i < 12; i += 3) kv_radix_remove(&t, i);
    for (uint32_t i = 0; i < 12; i++) assert_int_equal(kv_radix_find(&t, none, KV_NONE, ab(i, 1)), i % 3 ? i : KV_NONE);
    kv_radix_close(&t);
}

static void the_oldest_leaf_goes_first_whatever_the_order_of_use(void **state)
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

static void check_sees_what_is_broken(void **state)
{
    struct kv_radix *t = *state;
    log_init(LOG_LEVEL_ERROR, -1, false);
    kv_radix_insert(t, 0, none, KV_NONE, ab(1, 2));
    kv_radix_insert(t, 1, none, 0, ab(3, 4));
    ref[0] = 2, ref[1] = 2;
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    ref[0] = 1; /* a lock that does not cover the path */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    ref[0] = 2, ref[1] = 0; /* an idle leaf that eviction cannot see */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    ref[1] = 2, t->token[2]++; /* a block whose tokens are not those of its hash */
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->token[2]--, t->node[0].n_child = 0;
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->node[0].n_child = 1, t->node[1].salt = red;
    assert_int_equal(kv_radix_check(t, ref), ST_INVALID);
    t->node[1].salt = none;
    assert_int_equal(kv_radix_check(t, ref), ST_OK);
    log_init(LOG_LEVEL_ERROR, 2, false);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_block_is_found_under_its_parent_only),
        TEST(each_salt_has_its_own_root),
        TEST(F1_a_forced_hash_collision_is_a_miss),
        TEST(removing_from_a_crowded_bucket_keeps_the_others),
        TEST(the_oldest_leaf_goes_first_whatever_the_order_of_use),
        TEST(only_a_leaf_can_be_removed),
        TEST(check_sees_what_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
