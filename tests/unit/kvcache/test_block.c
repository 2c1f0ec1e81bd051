#include "kvcache/device/block.h"
#include "kvcache/device/pin.h"
#include "test.h"

enum { BT = 4, N = 16 };

static struct kv *make_kv(void)
{
    struct kv    *kv;
    struct kv_cfg c = {
        .n_block = N, .block_tokens = BT, .n_seq_max = 4 + KV_PINS_MAX, .seq_tokens_max = 32, .pin_percent = 50
    };
    c.prefix_cache = true;
    assert_int_equal(kv_create(&c, &kv), ST_OK);
    return kv;
}

/* Computes ids[0..n) in a table of its own. */
static void compute(struct kv *kv, struct kv_salt salt, const uint32_t *ids, uint32_t n, struct kv_seq *s)
{
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    assert_int_equal(kv_seq_open(kv, salt, s), ST_OK);
    kv_seq_match(kv, s, ids, n);
    assert_int_equal(kv_seq_reserve(kv, s, n, copy, &n_copy), ST_OK);
    kv_seq_commit(kv, s, ids, n);
}

static void a_block_of_the_tree_says_what_it_is(void **state)
{
    (void)state;
    struct kv     *kv = make_kv();
    struct kv_salt salt = { 5, 6 };
    uint32_t       ids[10] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    struct kv_seq  s;
    compute(kv, salt, ids, 10, &s);
    uint32_t first = s.block[0], second = s.block[1], unfinished = s.block[2];
    assert_int_equal(kv_block_parent(kv, first), KV_NONE);
    assert_int_equal(kv_block_parent(kv, second), first);
    assert_memory_equal(kv_block_ids(kv, second), ids + BT, BT * sizeof *ids);
    assert_int_equal(kv_block_salt(kv, second).lo, 5);
    assert_false(kv_block_is_leaf(kv, first));
    assert_true(kv_block_is_leaf(kv, second));
    assert_int_equal(kv_block_gen(kv, unfinished), 0); /* only full blocks are in the tree */
    uint64_t gen = kv_block_gen(kv, second);
    assert_int_not_equal(gen, 0);
    assert_int_not_equal(gen, kv_block_gen(kv, first));

    kv_seq_release(kv, &s);
    kv_evict_all(kv);
    assert_int_equal(kv_block_gen(kv, second), 0);
    compute(kv, salt, ids, 10, &s);
    for (uint32_t i = 0; i < 2; i++)
        assert_true(kv_block_gen(kv, s.block[i]) > gen); /* the same tokens, another insertion */
    kv_seq_release(kv, &s);
    kv_free(kv);
}

static void the_hold_of_a_loaded_block_joins_the_hold_on_the_device(void **state)
{
    (void)state;
    struct kv    *kv = make_kv();
    uint32_t      ids[5] = { 1, 2, 3, 4, 5 };
    struct kv_seq s;
    kv_tick(kv, 7 * (uint64_t)1000000);
    assert_int_equal(kv_now_s(kv), 7);
    compute(kv, (struct kv_salt){ 0 }, ids, 5, &s);
    uint32_t b = s.block[0];
    assert_false(kv_block_hold(kv, b).used);
    kv_block_join(kv, b, (struct kv_hold){ .until_s = 20, .priority = -2, .used = true });
    kv_block_join(kv, b, (struct kv_hold){ .until_s = 10, .priority = 3, .used = true });
    struct kv_hold h = kv_block_hold(kv, b);
    assert_true(h.used);
    assert_int_equal(h.until_s, 20);
    assert_int_equal(h.priority, 3);
    kv_seq_release(kv, &s);
    assert_int_equal(kv_check(kv), ST_OK); /* the end that was joined is known to the order of eviction */
    kv_tick(kv, 21 * (uint64_t)1000000);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_free(kv);
}

static void a_pin_is_live_until_its_end(void **state)
{
    (void)state;
    struct kv     *kv = make_kv();
    uint32_t       ids[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    struct kv_seq  s;
    struct kv_mark m;
    kv_pins_set_host(kv, 30);
    assert_int_equal(kv_pins_host_max(kv), 15); /* half of them, as pin_percent says */
    compute(kv, (struct kv_salt){ 0 }, ids, 9, &s);
    assert_int_equal(kv_pin(kv, &s, 8, 0, 5000000, &m), 8);
    assert_true(kv_pin_live(kv, m.number, m.gen));
    assert_false(kv_pin_live(kv, m.number, m.gen + 1)); /* the mark of another use of the same number */
    assert_false(kv_pin_live(kv, 0, 0));
    assert_int_equal(kv_pin_until_us(kv, m.number), 5000000);
    uint64_t n_ended = kv_pins_ended(kv);
    kv_seq_release(kv, &s);
    kv_tick(kv, 5000000);
    assert_false(kv_pin_live(kv, m.number, m.gen));
    assert_int_equal(kv_pins_ended(kv), n_ended + 1);
    kv_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_of_the_tree_says_what_it_is),
        cmocka_unit_test(the_hold_of_a_loaded_block_joins_the_hold_on_the_device),
        cmocka_unit_test(a_pin_is_live_until_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
