#include "api/responses/store.h"
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>

/* The store of responses: shares of keys, eviction, conversations. */

enum { LIFE_US = 1000, BLOCKS = 64 };
static struct responses_store *s;

static int up(void **state)
{
    (void)state;
    return responses_store_create(BLOCKS * STORED_BLOCK_BYTES, 2, LIFE_US, &s);
}
static int down(void **state)
{
    (void)state;
    responses_store_free(s);
    return 0;
}

static const char *id_of(unsigned n)
{
    static _Thread_local char id[4][STORED_ID_BYTES + 1];
    static _Thread_local int  turn;
    char                     *to = id[turn++ % 4];
    snprintf(to, STORED_ID_BYTES + 1, "resp_%032u", n);
    return to;
}

/* Response n says its own number, `bytes` long. */
static enum status put_at(uint64_t key, unsigned n, const char *previous, size_t bytes, uint64_t now_us)
{
    char  in[40], out[40];
    char *tail = malloc(bytes + 1);
    snprintf(in, sizeof in, "in_%u {\"n\":%u}\n", n, n);
    snprintf(out, sizeof out, "out_%u {\"n\":%u}\n", n, n);
    memset(tail, 'a' + (int)(n % 26), bytes);
    const struct stored parts = { .part = { in, out, "head", tail }, .n = { strlen(in), strlen(out), 4, bytes } };
    enum status         st = responses_store_put(s, key, id_of(n), previous, &parts, now_us);
    free(tail);
    return st;
}
static enum status put(uint64_t key, unsigned n, const char *previous) { return put_at(key, n, previous, 10, 1); }

static bool has(uint64_t key, unsigned n)
{
    return responses_store_past_bytes(s, key, id_of(n), STORED_ID_BYTES, 1) > 0;
}

static void past_is(uint64_t key, unsigned n, bool output, const char *want)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    assert_int_equal(responses_store_past(s, key, id_of(n), STORED_ID_BYTES, output, 1, &b), ST_OK);
    assert_string_equal(buf_cstr(&b), want);
    buf_free(&b);
}

static uint64_t used(void)
{
    struct responses_store_stats c;
    responses_store_count(s, &c);
    assert_true(c.bytes_used <= c.bytes);
    return c.bytes_used;
}

static void what_is_stored_comes_back(void **state)
{
    (void)state;
    struct buf          part[STORED_PARTS];
    static const size_t sizes[] = { 0, 1, 700, 1020, 1021, 5000, 40000 };
    for (unsigned n = 0; n < ARRAY_N(sizes); n++) {
        assert_int_equal(put_at(7, n, NULL, sizes[n], 1), ST_OK);
        for (int k = 0; k < STORED_PARTS; k++) buf_init(&part[k], 1 << 20);
        assert_int_equal(responses_store_get(s, 7, id_of(n), STORED_ID_BYTES, 1, part), ST_OK);
        assert_string_equal(buf_cstr(&part[STORED_HEAD]), "head");
        assert_int_equal(part[STORED_TAIL].n, sizes[n]);
        for (size_t i = 0; i < sizes[n]; i++) assert_int_equal(part[STORED_TAIL].data[i], 'a' + n);
        for (int k = 0; k < STORED_PARTS; k++) buf_free(&part[k]);
    }
    assert_int_equal(put(7, 0, NULL), ST_INVALID); /* a second one of that id */
}

static void a_key_finds_its_own_responses_alone(void **state)
{
    (void)state;
    assert_int_equal(put(7, 1, NULL), ST_OK);
    assert_int_equal(put(8, 2, NULL), ST_OK);
    assert_true(has(7, 1) && has(8, 2));
    assert_false(has(8, 1) || has(7, 2) || has(9, 1) || has(0, 1));
    assert_int_equal(put(8, 3, id_of(1)), ST_NOT_FOUND);
    assert_false(responses_store_delete(s, 8, id_of(1), STORED_ID_BYTES, 1));
    assert_false(responses_store_delete(s, 7, id_of(1), STORED_ID_BYTES - 1, 1));
    assert_true(responses_store_delete(s, 7, id_of(1), STORED_ID_BYTES, 1));
    assert_false(responses_store_delete(s, 7, id_of(1), STORED_ID_BYTES, 1));
    assert_false(has(7, 1));
    assert_true(has(8, 2));
}

static void a_full_share_takes_the_least_used_of_its_own_key(void **state)
{
    (void)state;
    assert_int_equal(put(8, 1000, NULL), ST_OK);
    for (unsigned n = 0; n < BLOCKS; n++) assert_int_equal(put(7, n, NULL), ST_OK);
    assert_true(has(7, 0)); /* and it is used now */
    assert_int_equal(put(7, BLOCKS, NULL), ST_OK);
    assert_false(has(7, 1));
    assert_true(has(7, 0) && has(7, 2));
    for (unsigned n = 0; n < 10000; n++) assert_int_equal(put(7, 2000 + n, NULL), ST_OK);
    assert_true(has(8, 1000));
    assert_false(has(7, 0));
    assert_true(has(7, 11999) && !has(7, 11999 - BLOCKS));
    assert_int_equal(used(), (BLOCKS + 1) * STORED_BLOCK_BYTES);
}

static void a_conversation_stays_whole(void **state)
{
    (void)state;
    assert_int_equal(put(7, 1, NULL), ST_OK);
    assert_int_equal(put(7, 2, id_of(1)), ST_OK);
    assert_int_equal(put(7, 3, id_of(2)), ST_OK);
    assert_int_equal(put(7, 4, id_of(2)), ST_OK); /* another branch */
    past_is(7, 3, true,
            "in_1 {\"n\":1}\nout_1 {\"n\":1}\nin_2 {\"n\":2}\nout_2 {\"n\":2}\nin_3 {\"n\":3}\nout_3 {\"n\":3}\n");
    past_is(7, 2, false, "in_1 {\"n\":1}\nout_1 {\"n\":1}\nin_2 {\"n\":2}\n");
    assert_true(responses_store_delete(s, 7, id_of(1), STORED_ID_BYTES, 1));
    assert_true(responses_store_delete(s, 7, id_of(2), STORED_ID_BYTES, 1));
    assert_false(has(7, 1) || has(7, 2));
    past_is(7, 4, false, "in_1 {\"n\":1}\nout_1 {\"n\":1}\nin_2 {\"n\":2}\nout_2 {\"n\":2}\nin_4 {\"n\":4}\n");
    assert_true(responses_store_delete(s, 7, id_of(4), STORED_ID_BYTES, 1));
    assert_int_equal(used(), 3 * STORED_BLOCK_BYTES);
    assert_true(responses_store_delete(s, 7, id_of(3), STORED_ID_BYTES, 1));
    assert_int_equal(used(), 0); /* and with the last one that refers to them all are gone */
}

static void what_a_new_one_goes_on_from_is_not_evicted_for_it(void **state)
{
    (void)state;
    assert_int_equal(put_at(7, 1, NULL, 30000, 1), ST_OK);
    assert_int_equal(put_at(7, 2, NULL, 30000, 1), ST_OK);
    assert_int_equal(put_at(7, 3, id_of(1), 20000, 1), ST_OK); /* 1 is the older one, but 3 refers to it */
    past_is(7, 3, false, "in_1 {\"n\":1}\nout_1 {\"n\":1}\nin_3 {\"n\":3}\n");
    assert_false(has(7, 2));
    assert_true(has(7, 3));
}

static void one_that_is_too_large_evicts_nothing(void **state)
{
    (void)state;
    assert_int_equal(put_at(7, 1, NULL, 30000, 1), ST_OK);
    assert_int_equal(put_at(7, 2, NULL, BLOCKS * STORED_BLOCK_BYTES, 1), ST_TOO_LARGE);
    assert_int_equal(put_at(7, 3, id_of(1), 40000, 1), ST_TOO_LARGE);
    assert_true(has(7, 1));
    assert_int_equal(put_at(7, 3, NULL, 40000, 1), ST_OK); /* it fits alone */
    assert_false(has(7, 1));
}

static void a_long_conversation_ends_as_a_whole(void **state)
{
    (void)state;
    assert_int_equal(put(7, 0, NULL), ST_OK);
    for (unsigned n = 1; n < BLOCKS; n++) assert_int_equal(put(7, n, id_of(n - 1)), ST_OK);
    assert_int_equal(put(7, BLOCKS, id_of(BLOCKS - 1)), ST_TOO_LARGE);
    assert_int_equal(put(7, 100, NULL), ST_OK); /* no block is free before the last of the conversation has left */
    assert_false(has(7, BLOCKS - 1));
    assert_true(has(7, 100));
    assert_int_equal(used(), STORED_BLOCK_BYTES);
}

static void ids_expire_and_shares_change_hands(void **state)
{
    (void)state;
    assert_int_equal(put_at(7, 1, NULL, 10, 0), ST_OK);
    assert_int_equal(put_at(8, 2, NULL, 10, 0), ST_OK);
    assert_int_equal(put_at(9, 3, NULL, 10, LIFE_US / 2), ST_AGAIN);
    assert_int_equal(responses_store_past_bytes(s, 7, id_of(1), STORED_ID_BYTES, LIFE_US - 1) > 0, 1); /* used */
    assert_int_equal(put_at(9, 3, NULL, 10, LIFE_US), ST_OK); /* the share of 8 is empty now */
    assert_int_equal(responses_store_past_bytes(s, 7, id_of(1), STORED_ID_BYTES, LIFE_US) > 0, 1);
    assert_int_equal(put_at(8, 4, NULL, 10, LIFE_US), ST_AGAIN);
    assert_int_equal(responses_store_past_bytes(s, 8, id_of(3), STORED_ID_BYTES, LIFE_US), 0);
    assert_int_equal(responses_store_past_bytes(s, 7, id_of(1), STORED_ID_BYTES, 3 * LIFE_US), 0);
}

/* ---------------------------------------------------------------- threads */

enum { THREADS = 4, TURNS = 3000 };
static _Atomic unsigned newest[2];

/* Whatever is found is whole: lines of numbers that belong together, and the bytes of one response. */
static void check_past(const struct buf *b)
{
    unsigned n, m;
    for (const char *p = b->data, *end = p ? p + b->n : p; p < end; p = strchr(p, '\n') + 1) {
        bool in = sscanf(p, "in_%u {\"n\":%u}", &n, &m) == 2;
        assert_true((in || sscanf(p, "out_%u {\"n\":%u}", &n, &m) == 2) && n == m);
    }
}

static void *work(void *arg)
{
    unsigned me = *(unsigned *)arg, key = me % 2;
    for (unsigned i = 1; i <= TURNS; i++) {
        unsigned   n = me * TURNS + i, other = newest[i % 7 ? key : 1 - key];
        struct buf b, part[STORED_PARTS];
        buf_init(&b, 1 << 20);
        for (int k = 0; k < STORED_PARTS; k++) buf_init(&part[k], 1 << 20);
        enum status st = put_at(key, n, i % 3 && newest[key] ? id_of(newest[key]) : NULL, i % 2000, i);
        assert_true(st == ST_OK || st == ST_NOT_FOUND || st == ST_TOO_LARGE);
        if (!st) newest[key] = n;
        if (!responses_store_past(s, key, id_of(other), STORED_ID_BYTES, true, i, &b)) {
            buf_cstr(&b);
            check_past(&b);
        }
        if (!responses_store_get(s, key, id_of(other), STORED_ID_BYTES, i, part))
            for (size_t k = 0; k < part[STORED_TAIL].n; k++)
                assert_int_equal(part[STORED_TAIL].data[k], 'a' + other % 26);
        if (i % 5 == 0) responses_store_delete(s, key, id_of(other), STORED_ID_BYTES, i);
        buf_free(&b);
        for (int k = 0; k < STORED_PARTS; k++) buf_free(&part[k]);
    }
    return NULL;
}

static void threads_find_whole_responses(void **state)
{
    (void)state;
    pthread_t t[THREADS];
    unsigned  me[THREADS];
    newest[0] = newest[1] = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        me[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, work, &me[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    assert_true(used() <= 2 * BLOCKS * STORED_BLOCK_BYTES);
    for (unsigned n = 0; n <= (THREADS + 1) * TURNS; n++)
        for (unsigned key = 0; key < 2; key++) responses_store_delete(s, key, id_of(n), STORED_ID_BYTES, TURNS);
    assert_int_equal(used(), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)
    const struct CMUnitTest tests[] = {
        TEST(what_is_stored_comes_back),
        TEST(a_key_finds_its_own_responses_alone),
        TEST(a_full_share_takes_the_least_used_of_its_own_key),
        TEST(a_conversation_stays_whole),
        TEST(what_a_new_one_goes_on_from_is_not_evicted_for_it),
        TEST(one_that_is_too_large_evicts_nothing),
        TEST(a_long_conversation_ends_as_a_whole),
        TEST(ids_expire_and_shares_change_hands),
        TEST(threads_find_whole_responses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
