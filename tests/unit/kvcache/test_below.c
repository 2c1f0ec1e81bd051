/* The array of rows below the host, with rows that are no folder. */
#include "tier_world.h"
#include "memory_row.h"

/* Three full blocks each: as many as are written ahead between two of them. Together twice what the host holds. */
enum { FAMILIES = 16, TOKENS = 13 };

/* Prompts that the host has not room for all together come and go, and the device forgets them. */
static void fill(struct world *w)
{
    struct user u;
    for (int round = 0; round < 2; round++) /* what is offered twice is worth a write */
        for (uint32_t f = 0; f < FAMILIES; f++) {
            run_alone(w, f, TOKENS, &u);
            kv_evict_all(w->kv);
        }
}

static void a_row_that_is_no_folder_serves_what_the_host_let_go(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    assert_true(m->n_write > HOST_SLOTS);
    uint32_t n_read = m->n_read;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u); /* which compares every block that was found */
        kv_evict_all(w.kv);
    }
    assert_true(m->n_read > n_read);
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(st.tier[KV_TIER_STORE].hit_blocks > 0);
    assert_int_equal(st.tier[KV_TIER_STORE].n_block, m->n_write);
    assert_int_equal(st.tier[KV_TIER_STORE].n_doubt, 0);
    close_world(&w, false);
    below_rows[0] = NULL;
}

static void what_a_row_gives_back_wrong_is_a_miss(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    uint32_t       n_read = m->n_read;
    for (uint32_t i = 0; i < m->n_used; i++) m->bytes[i * m->record_bytes + KV_RECORD_HEAD + 5] ^= 1;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    struct kv_tiers_stats st;
    kv_tiers_stats(w.t, &st);
    assert_true(m->n_read > n_read);
    assert_int_equal(m->n_bad, m->n_read - n_read); /* all of them, and the row was told */
    assert_int_equal(st.doubt[KV_DOUBT_PAYLOAD], m->n_bad);
    close_world(&w, false);
    below_rows[0] = NULL;
}

static void a_row_that_takes_nothing_is_passed_over(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &empty_row;
    below_rows[1] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *m = memory_open_last;
    uint32_t       n_read = m->n_read;
    assert_true(m->n_write > HOST_SLOTS); /* all go to the one that takes them, whatever their key */
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    assert_true(m->n_read > n_read);
    close_world(&w, false);

    below_rows[1] = NULL; /* nothing but the empty one: the host alone serves, and closing waits for nobody */
    open_world(&w, 3, false);
    fill(&w);
    assert_false(below_any_takes(w.t));
    close_world(&w, false);
    below_rows[0] = NULL;
}

/* What the first holds is not asked of the second. */
static void the_first_row_that_has_a_block_is_read(void **state)
{
    (void)state;
    struct world w;
    struct user  u;
    below_rows[0] = &memory_row;
    below_rows[1] = &memory_row;
    open_world(&w, 3, false);
    fill(&w);
    struct memory *a = (struct memory *)w.t->below[0], *b = (struct memory *)w.t->below[1];
    assert_true(a->n_write > 0);
    assert_true(b->n_write > 0);               /* by key: none is favoured */
    for (uint32_t i = 0; i < b->n_used; i++) { /* the first comes to hold what the second holds as well */
        uint32_t to = a->n_used++;
        memcpy(a->bytes + to * a->record_bytes, b->bytes + i * b->record_bytes, a->record_bytes);
        a->record[to] = b->record[i];
        assert_false(b->record[i].gone);
    }
    uint32_t n_read = b->n_read;
    for (uint32_t f = 0; f < FAMILIES; f++) {
        run_alone(&w, f, TOKENS, &u);
        kv_evict_all(w.kv);
    }
    assert_true(a->n_read > 0);
    assert_int_equal(b->n_read, n_read);
    close_world(&w, false);
    below_rows[0] = below_rows[1] = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_that_is_no_folder_serves_what_the_host_let_go),
        cmocka_unit_test(what_a_row_gives_back_wrong_is_a_miss),
        cmocka_unit_test(a_row_that_takes_nothing_is_passed_over),
        cmocka_unit_test(the_first_row_that_has_a_block_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
