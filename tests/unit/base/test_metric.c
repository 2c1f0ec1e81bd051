#include "test.h"
#include "base/metric.h"
#include <math.h>
#include <pthread.h>

static struct buf b;

static const char *print(const struct metric_family *f, const char *common)
{
    buf_clear(&b);
    metric_print(&b, f, common);
    return buf_cstr(&b);
}

static int start(void **state)
{
    (void)state;
    buf_init(&b, 1 << 16);
    return 0;
}
static int stop(void **state)
{
    (void)state;
    buf_free(&b);
    return 0;
}

static void a_counter_prints_help_type_and_labelled_samples(void **state)
{
    (void)state;
    struct metric        m[] = { { .labels = "finished_reason=\"stop\"" }, { .labels = "finished_reason=\"length\"" } };
    struct metric_family f = { .name = "vllm:request_success_total",
                               .help = "Requests\\done,\nby reason.",
                               .type = METRIC_COUNTER,
                               .common_labels = 1,
                               .n_metric = 2,
                               .metric = m };
    metric_add(&m[0], 3);
    assert_string_equal(print(&f, "model_name=\"m\",engine=\"0\""),
                        "# HELP vllm:request_success_total Requests\\\\done,\\nby reason.\n"
                        "# TYPE vllm:request_success_total counter\n"
                        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"stop\"} 3.0\n"
                        "vllm:request_success_total{model_name=\"m\",engine=\"0\",finished_reason=\"length\"} 0.0\n");
}

static void a_sample_without_labels_has_no_braces(void **state)
{
    (void)state;
    struct metric        m = { 0 };
    struct metric_family f = { .name = "up", .help = "h", .type = METRIC_GAUGE, .n_metric = 1, .metric = &m };
    assert_string_equal(print(&f, "ignored=\"1\""), "# HELP up h\n# TYPE up gauge\nup 0.0\n");
    f.common_labels = 1;
    assert_string_equal(print(&f, NULL), "# HELP up h\n# TYPE up gauge\nup 0.0\n");
    assert_string_equal(print(&f, "a=\"1\""), "# HELP up h\n# TYPE up gauge\nup{a=\"1\"} 0.0\n");
}

static void numbers_look_as_python_prints_them(void **state)
{
    (void)state;
    static const struct {
        double      v;
        const char *text;
    } rows[] = { { 1, "1.0" },
                 { 0.5, "0.5" },
                 { -1, "-1.0" },
                 { 100, "100.0" },
                 { 999999, "999999.0" },
                 { 1000000, "1e+06" },
                 { 1234567, "1.234567e+06" },
                 { 1234567.5, "1.2345675e+06" },
                 { 12345678901.0, "1.2345678901e+10" },
                 { -1234567, "-1234567.0" },
                 { 1e16, "1e+16" },
                 { 1e100, "1e+100" },
                 { 0.001, "0.001" },
                 { 0.0001, "0.0001" },
                 { 0.00012, "0.00012" },
                 { 1e-5, "1e-05" },
                 { 1.5e-10, "1.5e-10" },
                 { 1e-100, "1e-100" },
                 { 0.1 + 0.2, "0.30000000000000004" },
                 { 3.25, "3.25" },
                 { 10.5, "10.5" },
                 { INFINITY, "+Inf" },
                 { -INFINITY, "-Inf" },
                 { NAN, "NaN" } };
    struct metric        m = { 0 };
    struct metric_family f = { .name = "g", .help = "h", .type = METRIC_GAUGE, .n_metric = 1, .metric = &m };
    for (size_t i = 0; i < ARRAY_N(rows); i++) {
        char want[128];
        metric_set(&m, rows[i].v);
        snprintf(want, sizeof want, "# HELP g h\n# TYPE g gauge\ng %s\n", rows[i].text);
        assert_string_equal(print(&f, NULL), want);
        if (!isnan(rows[i].v)) assert_true(metric_get(&m) == rows[i].v);
    }
}

static void a_histogram_prints_cumulative_buckets_count_and_sum(void **state)
{
    (void)state;
    static const double  bound[] = { 0.5, 1, 2e6 };
    struct metric        m = { .labels = "k=\"v\"" };
    struct metric_family f = { .name = "lat",
                               .help = "h",
                               .type = METRIC_HISTOGRAM,
                               .common_labels = 1,
                               .bound = bound,
                               .n_bound = 3,
                               .n_metric = 1,
                               .metric = &m };
    metric_observe(&f, &m, 0.5); /* a bound belongs to its bucket */
    metric_observe(&f, &m, 0.25);
    metric_observe(&f, &m, 0.75);
    metric_observe(&f, &m, 1e7);
    metric_observe(&f, &m, NAN); /* not counted */
    assert_string_equal(print(&f, "e=\"0\""), "# HELP lat h\n"
                                              "# TYPE lat histogram\n"
                                              "lat_bucket{e=\"0\",k=\"v\",le=\"0.5\"} 2.0\n"
                                              "lat_bucket{e=\"0\",k=\"v\",le=\"1.0\"} 3.0\n"
                                              "lat_bucket{e=\"0\",k=\"v\",le=\"2e+06\"} 3.0\n"
                                              "lat_bucket{e=\"0\",k=\"v\",le=\"+Inf\"} 4.0\n"
                                              "lat_count{e=\"0\",k=\"v\"} 4.0\n"
                                              "lat_sum{e=\"0\",k=\"v\"} 1.00000015e+07\n");
}

enum { N_EACH = 20000 };
static const double         one_bound[] = { 1 };
static struct metric        shared;
static struct metric_family shared_f = { .name = "s",
                                         .help = "h",
                                         .type = METRIC_HISTOGRAM,
                                         .bound = one_bound,
                                         .n_bound = 1,
                                         .n_metric = 1,
                                         .metric = &shared };

static void *observe(void *arg)
{
    (void)arg;
    for (int i = 0; i < N_EACH; i++) {
        metric_observe(&shared_f, &shared, i % 2 ? 0.5 : 1.5);
        metric_add(&shared, 1);
    }
    return NULL;
}

static void threads_lose_no_observation(void **state)
{
    (void)state;
    pthread_t t[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, observe, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    assert_int_equal(shared.value, 4 * N_EACH);
    assert_string_equal(
        print(&shared_f, NULL),
        "# HELP s h\n# TYPE s histogram\ns_bucket{le=\"1.0\"} 40000.0\ns_bucket{le=\"+Inf\"} 80000.0\ns_count 80000.0\ns_sum 80000.0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_prints_help_type_and_labelled_samples),
        cmocka_unit_test(a_sample_without_labels_has_no_braces),
        cmocka_unit_test(numbers_look_as_python_prints_them),
        cmocka_unit_test(a_histogram_prints_cumulative_buckets_count_and_sum),
        cmocka_unit_test(threads_lose_no_observation),
    };
    return cmocka_run_group_tests_name("base/metric", tests, start, stop);
}
