#include "test.h"
#include "base/chain.h"
#include "base/rng.h"
#include <stdbool.h>

enum { N = 100 };

struct row {
    uint64_t key;
    int32_t  next;
    bool     in;
};

static int32_t find(const struct chain *c, const struct row *row, uint64_t hash, uint64_t key)
{
    int32_t i = chain_first(c, hash);
    while (i != CHAIN_NONE && row[i].key != key) i = chain_next(c, i);
    return i;
}

/* spread: keys differ in the bits that choose a bucket; without, all rows are in one chain. */
static void add_find_and_remove(bool spread)
{
    struct row   row[N] = { { 0 } };
    struct chain c;
    uint32_t     n = 0;
    assert_int_equal(chain_init(&c, N, &row[0].next, sizeof *row), ST_OK);
    assert_true(c.n_bucket >= N);
    for (uint64_t k = 0; k < 5000; k++) {
        uint32_t i = rng_philox(5, 0, k).x[0] % N;
        uint64_t hash = spread ? i * 7919u : 3;
        if (row[i].in) {
            chain_remove(&c, hash, (int32_t)i);
            n--;
        } else {
            row[i].key = i;
            chain_add(&c, hash, (int32_t)i);
            n++;
        }
        row[i].in = !row[i].in;
        assert_int_equal(find(&c, row, hash, i), row[i].in ? (int32_t)i : CHAIN_NONE);
        assert_int_equal(chain_count(&c, N), n);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(find(&c, row, spread ? i * 7919u : 3, i), row[i].in ? (int32_t)i : CHAIN_NONE);
    chain_free(&c);
}

static void rows_are_found_from_when_they_are_added_until_they_are_removed(void **state)
{
    (void)state;
    add_find_and_remove(true);
    add_find_and_remove(false);
}

static void a_row_that_was_added_last_is_found_first(void **state)
{
    (void)state;
    struct row   row[2] = { { .key = 1 }, { .key = 1 } };
    struct chain c;
    assert_int_equal(chain_init(&c, 2, &row[0].next, sizeof *row), ST_OK);
    chain_add(&c, 9, 0);
    chain_add(&c, 9, 1);
    assert_int_equal(find(&c, row, 9, 1), 1);
    chain_remove(&c, 9, 1);
    assert_int_equal(find(&c, row, 9, 1), 0);
    chain_free(&c);
}

static void counting_ends_in_a_circle(void **state)
{
    (void)state;
    struct row   row[2] = { { 0 } };
    struct chain c;
    assert_int_equal(chain_init(&c, 2, &row[0].next, sizeof *row), ST_OK);
    chain_add(&c, 0, 0);
    chain_add(&c, 0, 1);
    row[0].next = 1; /* damaged */
    assert_int_equal(chain_count(&c, 2), 3);
    chain_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_found_from_when_they_are_added_until_they_are_removed),
        cmocka_unit_test(a_row_that_was_added_last_is_found_first),
        cmocka_unit_test(counting_ends_in_a_circle),
    };
    return cmocka_run_group_tests_name("base/chain", tests, NULL, NULL);
}
