#include "test.h"
#include "engine/fair.h"

enum { N = 600 };
struct fixture {
    struct fair        f;
    struct eng_request r[N];
    struct eng_choice  c[N];
    struct req         q[N];
    struct seq         s[N];
    uint32_t           n;
    uint64_t           step;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof *x);
    fair_init(&x->f);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    free(*state);
    return 0;
}

static struct seq *push(struct fixture *x, uint64_t tenant, int32_t priority, uint64_t now_us)
{
    uint32_t i = x->n++;
    x->r[i] = (struct eng_request){
        .id = i, .tenant = tenant, .priority = priority, .n_choice = 1, .choice = &x->c[i], .n_prompt = 10
    };
    x->q[i] = (struct req){ .r = &x->r[i], .arrival = i };
    list_init(&x->q[i].seqs);
    x->q[i].tenant = fair_enter(&x->f, tenant);
    seq_init(&x->s[i], &x->q[i], 0);
    fair_push(&x->f, &x->s[i], now_us);
    return &x->s[i];
}

/* Admits who is next, who then costs so many tokens. */
static struct seq *serve(struct fixture *x, uint32_t cost, uint64_t now_us)
{
    struct tenant *t = fair_next(&x->f, ++x->step, now_us);
    if (!t) return NULL;
    struct seq *s = LIST_ENTRY(t->waiting.next, struct seq, link);
    fair_remove(&x->f, s);
    fair_served(&x->f, s, cost, now_us);
    return s;
}

static void one_tenant_is_served_in_order_of_arrival(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 5; i++) push(x, 7, 0, 1000 + i);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(serve(x, 10, 2000)->r->id, i);
    assert_null(serve(x, 10, 2000));
}

static void two_tenants_share_by_tokens_not_by_requests(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 200; i++) push(x, 1, 0, 1);
    for (uint32_t i = 0; i < 200; i++) push(x, 2, 0, 1);
    uint32_t n[3] = { 0 };
    for (uint32_t i = 0; i < 80; i++) {
        struct tenant *t = fair_next(&x->f, ++x->step, 1);
        struct seq    *s = LIST_ENTRY(t->waiting.next, struct seq, link);
        fair_remove(&x->f, s);
        fair_served(&x->f, s, t->id == 1 ? 30 : 10, 1); /* the first tenant's prompts are three times as long */
        n[t->id]++;
    }
    assert_in_range(n[1], 19, 21);
    assert_in_range(n[2], 59, 61);
}

static void output_is_charged_too(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 10; i++) push(x, 1 + i % 2, 0, 1);
    fair_charge(x->q[0].tenant, 100); /* tenant 1 */
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(serve(x, 10, 1)->r->tenant, 2);
    assert_int_equal(serve(x, 10, 1)->r->tenant, 1);
}

static void idling_saves_up_no_credit(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 100; i++) push(x, 1, 0, 1);
    for (uint32_t i = 0; i < 50; i++) serve(x, 1000, 1);
    for (uint32_t i = 0; i < 20; i++) push(x, 2, 0, 1); /* comes late, with a counter of zero */
    uint32_t n2 = 0;
    for (uint32_t i = 0; i < 10; i++) n2 += serve(x, 1000, 1)->r->tenant == 2;
    assert_in_range(n2, 4, 6); /* half of them, not all */
}

static void the_queue_emptied_in_between_makes_no_difference(void **state)
{
    struct fixture *x = *state;
    push(x, 1, 0, 1);
    serve(x, 5000, 1); /* nobody waits now */
    push(x, 2, 0, 1);
    assert_int_equal(x->q[1].tenant->counter, 5000);
}

static void priority_comes_before_the_counter(void **state)
{
    struct fixture *x = *state;
    push(x, 1, 0, 1);
    push(x, 2, -1, 1);
    push(x, 2, -1, 1);
    push(x, 1, 1, 1);
    fair_charge(x->q[1].tenant, 1000);
    assert_int_equal(serve(x, 10, 1)->r->id, 1);
    assert_int_equal(serve(x, 10, 1)->r->id, 2);
    assert_int_equal(serve(x, 10, 1)->r->id, 0);
    assert_int_equal(serve(x, 10, 1)->r->id, 3);
}

static void within_a_tenant_waiting_makes_up_for_priority(void **state)
{
    struct fixture *x = *state;
    push(x, 1, 1, 1);
    push(x, 1, 0, 1);
    push(x, 1, 0, 2ull * FAIR_AGING_US);
    assert_int_equal(serve(x, 10, 2ull * FAIR_AGING_US)->r->id, 1);
    assert_int_equal(serve(x, 10, 2ull * FAIR_AGING_US)->r->id, 0); /* has waited for more than one level */
    assert_int_equal(serve(x, 10, 2ull * FAIR_AGING_US)->r->id, 2);
}

static void a_tenant_that_is_passed_over_is_served_at_last_and_once(void **state)
{
    struct fixture *x = *state;
    push(x, 9, 2, 1);
    push(x, 9, 2, 1);
    uint64_t now = 1;
    uint32_t first = 0;
    for (uint32_t i = 1; i <= 300; i++) {
        push(x, 1, 0, now);
        now += FAIR_AGING_US / 10;
        if (serve(x, 10, now)->r->tenant == 9 && !first) first = i;
    }
    assert_in_range(first, 20, 32); /* two levels of priority, ten requests each */
}

static void age_belongs_to_the_tenant_so_a_flood_does_not_outrank(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < 100; i++) push(x, 1, 0, 1);
    uint64_t now = 100ull * FAIR_AGING_US; /* all of them are very old */
    serve(x, 10, now);
    push(x, 2, 0, now);
    uint32_t i = 0;
    while (serve(x, 10, now)->r->tenant != 2) i++;
    assert_true(i <= 1);
}

static void more_tenants_than_counters_share_them(void **state)
{
    struct fixture *x = *state;
    for (uint32_t i = 0; i < N; i++) push(x, 1000 + i, 0, 1);
    uint32_t n = 0;
    while (serve(x, 10, 1)) n++;
    assert_int_equal(n, N);
    for (uint32_t i = 0; i < N; i++) fair_leave(&x->f, x->q[i].tenant);
    for (uint32_t i = 0; i < FAIR_TENANTS_MAX; i++) assert_int_equal(x->f.tenant[i].n_live, 0);
}

static void extreme_priorities_do_not_overflow(void **state)
{
    struct fixture *x = *state;
    push(x, 1, INT32_MAX, UINT64_MAX / 4);
    push(x, 1, INT32_MIN, UINT64_MAX / 4);
    push(x, 2, INT32_MAX, 0);
    push(x, 3, INT32_MIN, 0);
    uint32_t n = 0;
    while (serve(x, 10, UINT64_MAX / 4)) n++;
    assert_int_equal(n, 4);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_tenant_is_served_in_order_of_arrival),
        TEST(two_tenants_share_by_tokens_not_by_requests),
        TEST(output_is_charged_too),
        TEST(idling_saves_up_no_credit),
        TEST(the_queue_emptied_in_between_makes_no_difference),
        TEST(priority_comes_before_the_counter),
        TEST(within_a_tenant_waiting_makes_up_for_priority),
        TEST(a_tenant_that_is_passed_over_is_served_at_last_and_once),
        TEST(age_belongs_to_the_tenant_so_a_flood_does_not_outrank),
        TEST(more_tenants_than_counters_share_them),
        TEST(extreme_priorities_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
