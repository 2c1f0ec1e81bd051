/* How long a wrong key takes must not tell how much of it is right (row J4), by the method of dudect (Reparaz, Balasch,
 * Verbauwhede: "Dude, is my code constant time?", 2017): calls of two classes in random order, Welch's t of their
 * times, |t| below 4.5. What the machine does meanwhile falls on both classes alike. So does what it takes longer for,
 * which is why the longest times are cut off at several quantiles, as there.
 * KEY_TIMINGS is how many calls of each class are timed, 40,000 unless it is set (100,000 where tests do all of their
 * work); the whole row is KEY_TIMINGS=1000000. */
#include "base/rng.h"
#include "server/auth.h"
#include "test.h"
#include <math.h>
#include <time.h>

enum { KEY_BYTES = 40, CROPS = 8, TRIES = 3 };
#define LIMIT 4.5

static const char right[KEY_BYTES + 1] = "sk-0123456789abcdefghijklmnopqrstuvwxyz!";

/* One class: what the key of call i is. */
typedef void make_key(uint64_t i, char key[KEY_BYTES]);

static void wrong_from_the_first_byte(uint64_t i, char key[KEY_BYTES])
{
    (void)i;
    memset(key, '-', KEY_BYTES);
}

static void right_up_to_the_last_byte(uint64_t i, char key[KEY_BYTES])
{
    (void)i;
    memcpy(key, right, KEY_BYTES);
    key[KEY_BYTES - 1] = '-';
}

static void wrong_everywhere(uint64_t i, char key[KEY_BYTES])
{
    for (uint32_t k = 0; k < KEY_BYTES; k++) key[k] = (char)('!' + rng_philox(7, i, k).x[0] % 90);
}

typedef bool check(struct auth *a, const char key[KEY_BYTES]);

static bool real_check(struct auth *a, const char key[KEY_BYTES])
{
    struct http_head head = { .n_key = 1, .api_key = { key, KEY_BYTES } };
    uint64_t         tenant;
    return auth_check(a, &head, &tenant);
}

/* The mistake that is looked for, ahead of the same work: bytes are compared until one differs. */
static bool leaking_check(struct auth *a, const char key[KEY_BYTES])
{
    volatile int same = 0;
    while (same < KEY_BYTES && key[same] == right[same]) same++;
    return real_check(a, key) && same == KEY_BYTES;
}

struct welch {
    double n, mean, m2;
};

static void take(struct welch *w, double x)
{
    double d = x - w->mean;
    w->n++;
    w->mean += d / w->n;
    w->m2 += d * (x - w->mean);
}

static double t_of(const struct welch *a, const struct welch *b)
{
    if (a->n < 1000 || b->n < 1000) return 0; /* so little is left that nothing follows from it */
    double var = a->m2 / (a->n - 1) / a->n + b->m2 / (b->n - 1) / b->n;
    return var > 0 ? fabs(a->mean - b->mean) / sqrt(var) : 0;
}

static uint32_t ns_of(check *fn, struct auth *a, const char key[KEY_BYTES])
{
    struct timespec t0, t1;
    clock_gettime(CLOCK_MONOTONIC, &t0);
    bool passed = fn(a, key);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_false(passed);
    return (uint32_t)((t1.tv_sec - t0.tv_sec) * 1000000000L + t1.tv_nsec - t0.tv_nsec);
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The largest |t| over all cuts. */
static double measure(check *fn, struct auth *a, make_key *const of[2], uint64_t seed)
{
    static const double keep[CROPS] = { 1, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5, 0.35 };
    const char         *told = getenv("KEY_TIMINGS");
    size_t              n = 2 * (told ? (size_t)strtoul(told, NULL, 10) : (size_t)test_size(100000, 40000));
    uint32_t           *ns = malloc(n * sizeof *ns), *sorted = malloc(n * sizeof *sorted);
    uint8_t *class = malloc(n);
    char  *key = malloc(n * KEY_BYTES);
    double worst = 0;
    assert_true(ns && sorted && class && key);
    for (size_t i = 0; i < n; i++) { /* all of them first, so that nothing of it is between the calls */
        class[i] = rng_philox(seed, 0, i).x[0] & 1;
        of[class[i]](i, key + i * KEY_BYTES);
    }
    for (size_t i = 0; i < n; i++) ns[i] = ns_of(fn, a, key + i * KEY_BYTES);
    memcpy(sorted, ns, n * sizeof *ns);
    qsort(sorted, n, sizeof *sorted, by_size);
    for (int c = 0; c < CROPS; c++) {
        uint32_t     most = sorted[(size_t)((double)(n - 1) * keep[c])];
        struct welch w[2] = { { .n = 0 }, { .n = 0 } };
        for (size_t i = 0; i < n; i++)
            if (ns[i] <= most) take(&w[class[i]], ns[i]);
        worst = fmax(worst, t_of(&w[0], &w[1]));
    }
    free(ns);
    free(sorted);
    free(class);
    free(key);
    return worst;
}

/* A leak is there in each try; chance is not. */
static double least_of_tries(check *fn, make_key *one, make_key *two)
{
    static const char *const keys[] = { right, "another-key-that-is-long-enough" };
    make_key *const          of[2] = { one, two };
    struct config            c = { .api_key = { (const char **)(uintptr_t)keys, 2 }, .api_key_file = "" };
    struct auth             *a;
    char                     err[300];
    double                   least = INFINITY;
    assert_int_equal(auth_create(&c, &a, err, sizeof err), ST_OK);
    for (uint64_t i = 0; i < TRIES && least >= LIMIT; i++) least = fmin(least, measure(fn, a, of, 1 + i));
    auth_free(a);
    return least;
}

static void J4_the_time_of_a_wrong_key_tells_nothing_of_the_right_one(void **state)
{
    (void)state;
    double prefix = least_of_tries(real_check, wrong_from_the_first_byte, right_up_to_the_last_byte);
    double random = least_of_tries(real_check, right_up_to_the_last_byte, wrong_everywhere);
    print_message("|t| %.2f by a common beginning, %.2f by random keys\n", prefix, random);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) /* what they put in has times of its own: there it only must run */
    assert_true(prefix < LIMIT && random < LIMIT);
#endif
}

static void J4_a_comparison_that_stops_early_would_be_seen(void **state)
{
    (void)state;
    double t = least_of_tries(leaking_check, wrong_from_the_first_byte, right_up_to_the_last_byte);
    print_message("|t| %.2f\n", t);
    assert_true(t >= LIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J4_the_time_of_a_wrong_key_tells_nothing_of_the_right_one),
        cmocka_unit_test(J4_a_comparison_that_stops_early_would_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
