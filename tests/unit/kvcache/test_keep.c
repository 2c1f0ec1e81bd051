/* What prefixes are worth: ends, priorities and pins, and the order of eviction on the device. One letter is one token,
 * a block two. */
#include "test.h"
#include "base/hash.h"
#include "base/log.h"
#include "kvcache/device/seq.h"

enum { N_BLOCK = 16, N_SEQ = 8 + KV_PINS_MAX, TOKENS_MAX = 16 };
static const struct kv_salt none;
static const uint64_t       second = 1000000;

static struct kv *make(uint32_t n_block, uint32_t percent)
{
    struct kv_cfg cfg = { .n_block = n_block,
                          .block_tokens = 2,
                          .n_seq_max = N_SEQ,
                          .seq_tokens_max = TOKENS_MAX,
                          .prefix_cache = true,
                          .pin_percent = percent };
    struct kv    *kv;
    assert_int_equal(kv_create(&cfg, &kv), ST_OK);
    kv_tick(kv, 100 * second);
    return kv;
}

static const uint32_t *ids(const char *text)
{
    static uint32_t buf[4][TOKENS_MAX + 2], at;
    at = (at + 1) % 4;
    for (uint32_t i = 0; i < strlen(text); i++) buf[at][i] = (unsigned char)text[i];
    return buf[at];
}
static uint32_t len(const char *text) { return (uint32_t)strlen(text); }

static void begin(struct kv *kv, struct kv_seq *s, const char *text)
{
    struct kv_copy copy[1];
    uint32_t       n_copy = 0;
    assert_int_equal(kv_seq_open(kv, none, s), ST_OK);
    kv_seq_match(kv, s, ids(text), len(text));
    assert_int_equal(kv_seq_reserve(kv, s, len(text), copy, &n_copy), ST_OK);
    kv_seq_commit(kv, s, ids(text), len(text));
}

/* A sequence with this text comes, says what it is worth, and goes. */
static void put(struct kv *kv, const char *text, struct kv_keep keep)
{
    struct kv_seq s;
    begin(kv, &s, text);
    kv_seq_keep(kv, &s, &keep);
    kv_seq_release(kv, &s);
    assert_int_equal(kv_check(kv), ST_OK);
}

static bool cached(struct kv *kv, const char *text)
{
    char more[TOKENS_MAX + 2];
    snprintf(more, sizeof more, "%s?", text);
    return kv_peek(kv, none, ids(more), len(more)) == len(text);
}

static void evict(struct kv *kv, const char *gone)
{
    assert_true(cached(kv, gone));
    kv_evict_one(kv);
    assert_false(cached(kv, gone));
    assert_int_equal(kv_check(kv), ST_OK);
}

static void lower_priority_goes_first_and_the_least_recent_within_one(void **state)
{
    (void)state;
    struct kv *kv = make(N_BLOCK, 0);
    put(kv, "aa", (struct kv_keep){ .priority = 2 });
    put(kv, "bb", (struct kv_keep){ 0 });
    put(kv, "cc", (struct kv_keep){ .priority = -1 });
    put(kv, "dd", (struct kv_keep){ 0 });
    put(kv, "ee", (struct kv_keep){ .priority = -1 });
    put(kv, "cc", (struct kv_keep){ .priority = -3 }); /* the highest that anyone said counts; and it was used again */
    evict(kv, "ee");
    evict(kv, "cc");
    evict(kv, "bb");
    evict(kv, "dd");
    evict(kv, "aa");
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.evicted[KV_EVICT_PRIORITY], 2);
    assert_int_equal(st.evicted[KV_EVICT_LRU], 2);
    assert_int_equal(st.evicted[KV_EVICT_PRESSURE], 1);
    assert_int_equal(st.evicted[KV_EVICT_TTL], 0);
    assert_int_equal(st.n_evicted, 5);
    kv_free(kv);
}

static void expired_blocks_are_evicted_before_all_others(void **state)
{
    (void)state;
    struct kv *kv = make(N_BLOCK, 0);
    put(kv, "aa", (struct kv_keep){ .priority = -5 });
    put(kv, "bb", (struct kv_keep){ .priority = 4, .ttl_s = 10 });
    put(kv, "ccdd", (struct kv_keep){ .ttl_s = 20 });
    put(kv, "cc", (struct kv_keep){ 0 }); /* no end for the part that others use without one */
    kv_tick(kv, 109 * second);
    assert_int_equal(kv_check(kv), ST_OK);
    put(kv, "ccdd", (struct kv_keep){ .ttl_s = 20 }); /* used again: 20 seconds from now */
    kv_tick(kv, 110 * second);
    assert_int_equal(kv_check(kv), ST_OK);
    evict(kv, "bb");
    kv_tick(kv, 128 * second);
    kv_tick(kv, 129 * second);
    assert_int_equal(kv_check(kv), ST_OK);
    evict(kv, "ccdd");
    evict(kv, "aa");
    evict(kv, "cc");
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.evicted[KV_EVICT_TTL], 2);
    kv_free(kv);
}

static void a_block_that_expires_while_it_is_used_is_expired_after_its_release(void **state)
{
    (void)state;
    struct kv    *kv = make(N_BLOCK, 0);
    struct kv_seq s;
    put(kv, "aa", (struct kv_keep){ .ttl_s = 5 });
    put(kv, "bb", (struct kv_keep){ .priority = -5 });
    begin(kv, &s, "aa?");
    kv_tick(kv, 120 * second);
    assert_int_equal(kv_check(kv), ST_OK);
    kv_seq_release(kv, &s); /* canceled: it says nothing */
    assert_int_equal(kv_check(kv), ST_OK);
    evict(kv, "aa");
    kv_free(kv);
}

/* ---- pins */

static uint32_t pin(struct kv *kv, const char *text, uint64_t tenant, uint64_t until_s, struct kv_mark *m)
{
    struct kv_seq  s;
    struct kv_mark none_wanted;
    begin(kv, &s, text);
    uint32_t n = kv_pin(kv, &s, len(text), tenant, until_s * second, m ? m : &none_wanted);
    kv_seq_release(kv, &s);
    assert_int_equal(kv_check(kv), ST_OK);
    return n;
}

static void pinned_blocks_stay_until_the_pin_ends(void **state)
{
    (void)state;
    struct kv *kv = make(32, 50);
    assert_int_equal(pin(kv, "aabbc", 0, 110, NULL), 4); /* whole blocks */
    put(kv, "dd", (struct kv_keep){ .priority = 4 });
    kv_evict_all(kv);
    assert_true(cached(kv, "aabb"));
    assert_false(cached(kv, "dd"));
    assert_int_equal(kv_available_count(kv), 30); /* nobody counts on them */
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.n_pinned, 2);
    kv_tick(kv, 109 * second);
    kv_evict_all(kv);
    assert_true(cached(kv, "aabb"));
    kv_tick(kv, 110 * second);
    assert_int_equal(kv_available_count(kv), 32);
    assert_true(cached(kv, "aabb")); /* as anything else now */
    kv_evict_all(kv);
    assert_int_equal(kv_free_count(kv), 32);
    kv_free(kv);
}

static void pins_have_a_bound_for_all_and_one_for_each_tenant(void **state)
{
    (void)state;
    struct kv *kv = make(32, 50); /* 16 blocks; 8 for a tenant */
    assert_int_equal(pin(kv, "aabbccddeeff", 7, 200, NULL), 12);
    assert_int_equal(pin(kv, "gghhii", 7, 200, NULL), 0); /* 3 more would be 9 */
    assert_int_equal(pin(kv, "gghh", 7, 200, NULL), 4);
    assert_int_equal(pin(kv, "gghh", 8, 200, NULL), 4); /* the same blocks: counted once on the device */
    assert_int_equal(pin(kv, "iijjkkllmmnn", 8, 200, NULL), 12);
    assert_int_equal(pin(kv, "ooppqq", 9, 200, NULL), 0); /* 14 + 3 */
    assert_int_equal(pin(kv, "oopp", 9, 200, NULL), 4);
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.n_pinned, 16);
    assert_int_equal(st.n_pin_refused, 2);
    kv_free(kv); /* with all of them held */
    kv = make(32, 50);
    assert_int_equal(pin(kv, "aabbccddeeffgg", 0, 200, NULL), 14); /* the only tenant may have all of it */
    assert_int_equal(pin(kv, "hhiijjkkllmmnnoo", 0, 200, NULL), 16);
    assert_int_equal(pin(kv, "ppqq", 0, 200, NULL), 0);
    assert_int_equal(pin(kv, "pp", 0, 200, NULL), 2);
    kv_free(kv);
}

static void the_longest_sequence_always_fits_beside_the_pins(void **state)
{
    (void)state;
    struct kv    *kv = make(10, 90); /* the longest needs 8 */
    struct kv_seq s;
    assert_int_equal(pin(kv, "aabbcc", 0, 200, NULL), 0);
    assert_int_equal(pin(kv, "aabb", 0, 200, NULL), 4);
    begin(kv, &s, "0123456789abcdef");
    assert_int_equal(s.n_block, 8);
    kv_seq_release(kv, &s);
    kv_free(kv);
    kv = make(8, 90);
    assert_int_equal(pin(kv, "aa", 0, 200, NULL), 0); /* a pool of one sequence has no room for pins */
    kv_free(kv);
}

static void a_conversation_moves_its_pin(void **state)
{
    (void)state;
    struct kv     *kv = make(32, 50);
    struct kv_mark m, again;
    assert_int_equal(pin(kv, "aabb", 7, 150, &m), 4);
    assert_int_equal(pin(kv, "aabbccdd", 7, 120, &again), 8); /* one pin, to the later of the ends */
    assert_false(kv_pins_live(&kv->pins, m.number, m.gen));
    assert_true(kv_pins_live(&kv->pins, again.number, again.gen));
    kv_tick(kv, 130 * second);
    kv_evict_all(kv);
    assert_true(cached(kv, "aabbccdd"));
    assert_int_equal(pin(kv, "aab", 7, 140, &m), 2); /* held already */
    assert_int_equal(m.number, again.number);
    assert_int_equal(pin(kv, "aabbccddeeffgghh", 7, 200, &m), 16);
    put(kv, "zz", (struct kv_keep){ 0 });
    assert_int_equal(pin(kv, "yyzz", 7, 200, NULL), 0); /* the tenant has its eight */
    kv_evict_all(kv);
    assert_true(cached(kv, "aabbccddeeffgghh"));
    struct kv_stats st;
    kv_stats(kv, &st);
    assert_int_equal(st.n_pinned, 8);
    kv_unpin(kv, UINT64_MAX);
    kv_evict_all(kv);
    assert_int_equal(kv_free_count(kv), 32);
    kv_free(kv);
    /* one that has grown too long keeps what it had */
    kv = make(32, 25);
    assert_int_equal(pin(kv, "aabb", 0, 150, NULL), 4);
    assert_int_equal(pin(kv, "gghhii", 0, 150, NULL), 6);
    assert_int_equal(pin(kv, "aabbccddee", 0, 180, NULL), 10);
    assert_int_equal(pin(kv, "gghhiijjkk", 0, 180, NULL), 6);
    kv_evict_all(kv);
    assert_true(cached(kv, "gghhii") && !cached(kv, "gghhiijj"));
    kv_free(kv);
}

/* ---- ends */

static void ends_come_in_their_order(void **state)
{
    (void)state;
    enum { N = 200 };
    struct kv_due d;
    uint32_t      at[N] = { 0 }; /* 0: none */
    uint64_t      x = 1;
    assert_int_equal(kv_due_init(&d, N), ST_OK);
    for (int round = 0; round < 20000; round++) {
        uint32_t i = (uint32_t)(hash_u64(x++) % N);
        if (hash_u64(x++) % 4) {
            at[i] = 1 + (uint32_t)(hash_u64(x++) % 1000);
            kv_due_set(&d, i, at[i]);
        } else {
            at[i] = 0;
            kv_due_clear(&d, i);
        }
        if (round % 64 == 0) assert_true(kv_due_check(&d));
    }
    for (uint32_t now = 0; now <= 1001; now++)
        for (uint32_t i; (i = kv_due_pop(&d, now)) != KV_DUE_NONE; at[i] = 0) assert_int_equal(at[i], now);
    for (int i = 0; i < N; i++) assert_int_equal(at[i], 0);
    kv_due_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lower_priority_goes_first_and_the_least_recent_within_one),
        cmocka_unit_test(expired_blocks_are_evicted_before_all_others),
        cmocka_unit_test(a_block_that_expires_while_it_is_used_is_expired_after_its_release),
        cmocka_unit_test(pinned_blocks_stay_until_the_pin_ends),
        cmocka_unit_test(pins_have_a_bound_for_all_and_one_for_each_tenant),
        cmocka_unit_test(the_longest_sequence_always_fits_beside_the_pins),
        cmocka_unit_test(a_conversation_moves_its_pin),
        cmocka_unit_test(ends_come_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
