#include "test.h"
#include "base/heap.h"
#include "base/rng.h"

enum { N = 500 };

static bool less(const void *ctx, uint64_t a, uint64_t b)
{
    (void)ctx;
    return a < b;
}
static const struct heap_order by_value = { .before = less };

/* Items 0 .. N-1, each with a time that can change, and where each stands. */
struct timed {
    uint64_t heap[N];
    size_t   n;
    uint32_t time[N];
    size_t   at[N];
};

static bool sooner(const void *ctx, uint64_t a, uint64_t b)
{
    const struct timed *t = ctx;
    return t->time[a] != t->time[b] ? t->time[a] < t->time[b] : a < b;
}
static void stands_at(void *ctx, uint64_t item, size_t at) { ((struct timed *)ctx)->at[item] = at; }

static struct heap_order by_time(struct timed *t) { return (struct heap_order){ sooner, stands_at, t }; }

static uint32_t draw(uint64_t i, uint32_t n) { return rng_philox(3, 0, i).x[0] % n; }

static void values_come_out_in_order_however_they_went_in(void **state)
{
    (void)state;
    uint64_t heap[N];
    for (size_t n = 0; n < 40; n++) {
        size_t   n_heap = 0;
        uint64_t last = 0;
        for (size_t i = 0; i < n; i++) heap_push(heap, &n_heap, draw(1000 * n + i, 20), by_value);
        while (n_heap) {
            uint64_t v = heap_take(heap, &n_heap, 0, by_value);
            assert_true(v >= last);
            last = v;
        }
        for (size_t i = 0; i < n; i++) heap[i] = draw(1000 * n + i, 20);
        heap_make(heap, n, by_value);
        for (size_t i = 1; i < n; i++) assert_true(heap[heap_parent(i)] <= heap[i]);
    }
}

/* The lowest of all that are in it, by looking at each. */
static uint64_t first_of(const struct timed *t, const bool *in)
{
    uint64_t best = N;
    for (uint64_t i = 0; i < N; i++)
        if (in[i] && (best == N || sooner(t, i, best))) best = i;
    return best;
}

static void items_that_change_or_leave_anywhere_keep_the_order_and_their_places(void **state)
{
    (void)state;
    static struct timed t;
    bool                in[N] = { false };
    for (uint64_t k = 0; k < 20000; k++) {
        uint32_t i = draw(2 * k, N), time = draw(2 * k + 1, 100);
        if (!in[i]) {
            t.time[i] = time;
            heap_push(t.heap, &t.n, i, by_time(&t));
            in[i] = true;
        } else if (time < 50) {
            t.time[i] = time;
            heap_settle(t.heap, t.n, t.at[i], i, by_time(&t));
        } else {
            assert_int_equal(heap_take(t.heap, &t.n, t.at[i], by_time(&t)), i);
            in[i] = false;
        }
        if (k % 50) continue;
        size_t n = 0;
        for (uint64_t j = 0; j < N; j++) {
            if (!in[j]) continue;
            n++;
            assert_int_equal(t.heap[t.at[j]], j);
        }
        assert_int_equal(n, t.n);
        if (n) assert_int_equal(t.heap[0], first_of(&t, in));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_out_in_order_however_they_went_in),
        cmocka_unit_test(items_that_change_or_leave_anywhere_keep_the_order_and_their_places),
    };
    return cmocka_run_group_tests_name("base/heap", tests, NULL, NULL);
}
