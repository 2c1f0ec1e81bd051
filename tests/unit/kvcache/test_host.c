#include "kvcache/host.h"
#include "test.h"

enum { SLOTS = 64 };

struct world {
    struct kv     *kv;
    struct kv_host h;
};

static struct kv_key key_of(uint32_t n)
{
    struct kv_key k = { { 0 } };
    memcpy(k.b, &n, sizeof n);
    return k;
}

static int32_t take(struct world *w, uint32_t n)
{
    struct kv_key k = key_of(n);
    int32_t       i = slot_take(&w->h, &k);
    assert_int_not_equal(i, SLOT_NONE);
    slot_ready(&w->h, i, (struct digest){ 0 });
    return i;
}

/* Slots 0 .. SLOTS - 1 with the keys of these numbers, the first one the oldest. */
static void open_world(struct world *w)
{
    struct kv_cfg c = { .n_block = 8, .block_tokens = 16, .n_seq_max = 2, .seq_tokens_max = 64, .prefix_cache = true };
    assert_int_equal(kv_create(&c, &w->kv), ST_OK);
    assert_int_equal(kv_host_init(&w->h, w->kv, SLOTS, 8192, 4), ST_OK);
    for (int32_t i = 0; i < SLOTS; i++) assert_int_equal(take(w, (uint32_t)i), i);
}

static void close_world(struct world *w)
{
    kv_host_close(&w->h);
    kv_free(w->kv);
}

static void the_oldest_slot_that_nobody_reads_goes(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    assert_int_equal(slot_victim(&w.h), 0);
    w.h.slot[0].readers = w.h.slot[1].readers = 1;
    assert_int_equal(slot_victim(&w.h), 2);
    slot_touch(&w.h, 2);
    assert_int_equal(slot_victim(&w.h), 3);
    slot_unread(&w.h, 0);
    assert_int_equal(slot_victim(&w.h), 0);
    for (int32_t i = 0; i < SLOTS; i++) w.h.slot[i].readers = 1;
    assert_int_equal(slot_victim(&w.h), SLOT_NONE);
    close_world(&w);
}

static void of_the_oldest_slots_one_that_a_store_holds_goes_first(void **state)
{
    (void)state;
    enum { FAR = 50 }; /* more than are looked at */
    struct world w;
    open_world(&w);
    slot_below(&w.h, 5, 1);
    slot_below(&w.h, 5, 0); /* counted once */
    slot_below(&w.h, 9, 0);
    assert_true(kv_host_check(&w.h));
    assert_int_equal(slot_victim(&w.h), 5);
    assert_int_equal(take(&w, 100), 5);
    assert_int_equal(slot_victim(&w.h), 9);
    slot_touch(&w.h, 9);
    assert_true(kv_host_check(&w.h));
    assert_int_equal(slot_victim(&w.h), 0); /* 9 is the newest now */
    slot_below(&w.h, FAR, 0);
    assert_int_equal(slot_victim(&w.h), 0);
    slot_hold(&w.h, 20, (struct kv_hold){ .until_s = KV_NO_END, .priority = KV_PRIORITY_MIN, .used = true });
    assert_int_equal(slot_victim(&w.h), 20); /* a class of its own, without a store */
    slot_below(&w.h, 20, 0);
    slot_drop(&w.h, 20);
    slot_drop(&w.h, FAR);
    assert_true(kv_host_check(&w.h));
    assert_int_equal(slot_victim(&w.h), 0);
    close_world(&w);
}

/* A block that comes from a store is known to be there before its slot is READY, or behind that. */
static void a_slot_may_be_held_by_a_store_before_it_is_ready(void **state)
{
    (void)state;
    struct world  w;
    struct kv_key k = key_of(100);
    open_world(&w);
    int32_t i = slot_take(&w.h, &k);
    assert_int_equal(i, 0);
    slot_below(&w.h, i, 0);
    assert_true(kv_host_check(&w.h));
    slot_ready(&w.h, i, (struct digest){ 0 });
    assert_true(kv_host_check(&w.h));
    slot_drop(&w.h, i);
    assert_true(kv_host_check(&w.h));
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_slot_that_nobody_reads_goes),
        cmocka_unit_test(of_the_oldest_slots_one_that_a_store_holds_goes_first),
        cmocka_unit_test(a_slot_may_be_held_by_a_store_before_it_is_ready),
    };
    return cmocka_run_group_tests_name("kvcache/host", tests, NULL, NULL);
}
