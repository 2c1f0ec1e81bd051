/* bench_metrics: how long GET /metrics takes to render, in a process that holds a server floor with an engine that
 * computes nothing: every family has its series, and a thread writes histograms meanwhile.
 *   bench_metrics [--runs 2000]
 * The last line is JSON. */
#include "mock_engine.h"
#include "base/log.h"
#include "server/boot.h"
#include "server/metrics.h"
#include "server/routes.h"
#include "server/server.h"
#include <stdio.h>
#include <unistd.h>

static struct server   *srv;
static _Atomic bool     ending;
static _Atomic uint64_t n_written;

static void *write_main(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; !atomic_load(&ending); i++) {
        struct metrics_gen g = { .finish = ENG_STOP,
                                 .n_prompt = 300,
                                 .n_output = 20,
                                 .n_output_max = 20,
                                 .n = 1,
                                 .max_tokens = 100,
                                 .e2e_us = 900000 + i % 9973,
                                 .ttft_us = 31007 + i % 997,
                                 .decode_us = 800000 + i % 991 };
        metrics_gen_end(srv->metrics, &g);
        metrics_next_token(srv->metrics, 20000 + i % 983);
        atomic_fetch_add(&n_written, 1);
        usleep(100);
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static struct boot boot;
    struct config      cfg;
    struct auth       *auth;
    struct mock        mock = { .n_id = 1, .burst = 1 };
    uint32_t           id = 300;
    char               err[400] = "";
    char              *args[] = { argv[0], (char[]){ "--port" }, (char[]){ "0" }, NULL };
    long               runs = argc == 1 ? 2000 : 0;
    if (argc == 3 && !strcmp(argv[1], "--runs")) runs = strtol(argv[2], NULL, 10);
    if (runs < 10 || runs > 1000000) {
        fprintf(stderr, "usage: bench_metrics [--runs 10 .. 1000000]\n");
        return EXIT_USAGE;
    }
    log_init(LOG_LEVEL_ERROR, 2, false);
    mock.id = &id;
    if (config_parse(&cfg, 3, args, NULL, err, sizeof err) || boot_text(&boot, &cfg) ||
        auth_create(&cfg, &auth, err, sizeof err) || server_create(&cfg, auth, routes_served(false), &srv) ||
        mock_start(&mock)) {
        fprintf(stderr, "bench_metrics: cannot start: %s%s\n", err, boot.err);
        return EXIT_SOFTWARE;
    }
    struct gen_engine   eng = mock_engine_ops(&mock);
    struct metrics_load loaded = { .load_seconds = 1.25, .weight_bytes = 9437184, .cache_info = "block_size=\"16\"" };
    metrics_loaded(srv->metrics, &loaded);
    server_ready(srv, &boot.model, &eng);
    pthread_t writer;
    double   *us = calloc((size_t)runs, sizeof *us);
    if (!us || pthread_create(&writer, NULL, write_main, NULL)) return EXIT_SOFTWARE;
    size_t bytes = 0, lines = 0;
    for (long i = 0; i < runs; i++) {
        struct buf b;
        uint64_t   begin = clock_us();
        buf_init(&b, 8u << 20);
        metrics_print(srv, &b);
        us[i] = (double)(clock_us() - begin);
        bytes = b.n;
        lines = 0;
        for (size_t k = 0; k < b.n; k++) lines += b.data[k] == '\n';
        buf_free(&b);
    }
    atomic_store(&ending, true);
    pthread_join(writer, NULL);
    qsort(us, (size_t)runs, sizeof *us, by_value);
    double p50 = us[runs / 2], p99 = us[runs * 99 / 100];
    printf("GET /metrics: %zu lines, %zu bytes; %.0f us at the median, %.0f at p99 of %ld; must: 1000\n", lines, bytes,
           p50, p99, runs);
    printf("{\"lines\": %zu, \"bytes\": %zu, \"us_p50\": %.0f, \"us_p99\": %.0f}\n", lines, bytes, p50, p99);
    mock_stop(&mock);
    return 0;
}
