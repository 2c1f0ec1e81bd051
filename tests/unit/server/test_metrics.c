#include "serve.h"
#include "server/conn.h"

static struct buf page;

static const char *print_page(void)
{
    buf_clear(&page);
    metrics_print(S.srv, &page);
    return buf_cstr(&page);
}
static double value(const char *series)
{
    const char *p = print_page();
    do {
        p = strstr(p + 1, series);
        assert_non_null(p);
    } while (!strncmp(p - 7, "# ", 2)); /* not the HELP or TYPE line */
    return strtod(p + strlen(series), NULL);
}

static void every_name_of_the_contract_is_there_from_the_start(void **state)
{
    (void)state;
    static const char *const name[] = {
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:num_requests_waiting_by_reason",
        "vllm:kv_cache_usage_perc",
        "vllm:engine_sleep_state",
        "vllm:lora_requests_info",
        "vllm:cache_config_info",
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_by_source_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:generation_tokens_total",
        "vllm:request_success_total",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:external_prefix_cache_queries_total",
        "vllm:external_prefix_cache_hits_total",
        "vllm:mm_cache_queries_total",
        "vllm:mm_cache_hits_total",
        "vllm:spec_decode_num_drafts_total",
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:request_inference_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_prefill_kv_computed_tokens",
        "vllm:iteration_tokens_total",
        "vllm:request_params_n",
        "http_requests_total",
        "http_request_duration_seconds",
        "http_request_duration_highr_seconds",
        "http_request_size_bytes",
        "http_response_size_bytes",
        "vllm:prompt_tokens_cached_by_source_total",
        "vllm:corrupted_requests_total",
        "vllm:gpu_cache_usage_perc",
        "vllm:gpu_prefix_cache_queries_total",
        "vllm:gpu_prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hit_rate",
        "process_virtual_memory_bytes",
        "spillway:build_info",
        "spillway:step_phase_seconds_total",
        "spillway:step_host_seconds",
        "spillway:step_gap_seconds",
        "spillway:arena_reserved_bytes",
        "spillway:arena_used_bytes",
        "spillway:queue_requests",
        "spillway:requests_ended_total",
        "spillway:text_seconds",
        "spillway:text_jobs_waiting",
        "spillway:unread_bytes",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_max_fds",
        "process_start_time_seconds",
    };
    const char *text = print_page();
    for (size_t i = 0; i < ARRAY_N(name); i++) {
        char type[120];
        snprintf(type, sizeof type, "# TYPE %s ", name[i]);
        assert_non_null(strstr(text, type));
    }
    assert_non_null(strstr(
        text, "vllm:request_success_total{engine=\"0\",model_name=\"pebble\",finished_reason=\"repetition\"} 0.0\n"));
    assert_non_null(
        strstr(text, "vllm:time_to_first_token_seconds_bucket{engine=\"0\",model_name=\"pebble\",le=\"1.0\"} 0.0\n"));
    assert_non_null(strstr(text, "le=\"0.001\""));
    assert_non_null(strstr(text, "le=\"2560.0\""));
    assert_non_null(strstr(text, "le=\"+Inf\""));
    assert_non_null(
        strstr(text, "vllm:request_prompt_tokens_bucket{engine=\"0\",model_name=\"pebble\",le=\"2000.0\"}"));
    assert_null(strstr(text, "vllm:request_prompt_tokens_bucket{engine=\"0\",model_name=\"pebble\",le=\"5000.0\"}"));
}

/* The bounds as the contract's dashboards select them: text, in order, +Inf at the end. */
static void buckets_are_as_the_contract_has_them(void **state)
{
    (void)state;
    static const char
        ttft[] = "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 "
                 "160.0 640.0 2560.0 +Inf ",
        itl[] = "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 +Inf ",
        e2e[] = "0.3 0.5 0.8 1.0 1.5 2.0 2.5 5.0 10.0 15.0 20.0 30.0 40.0 50.0 60.0 120.0 240.0 480.0 960.0 "
                "1920.0 7680.0 +Inf ",
        tokens[] = "1.0 2.0 5.0 10.0 20.0 50.0 100.0 200.0 500.0 1000.0 2000.0 +Inf ",
        step[] = "1.0 8.0 16.0 32.0 64.0 128.0 256.0 512.0 1024.0 2048.0 4096.0 8192.0 16384.0 +Inf ",
        n[] = "1.0 2.0 5.0 10.0 20.0 +Inf ";
    static const struct {
        const char *name, *bounds;
    } row[] = { { "vllm:time_to_first_token_seconds", ttft },
                { "vllm:inter_token_latency_seconds", itl },
                { "vllm:request_time_per_output_token_seconds", itl },
                { "vllm:e2e_request_latency_seconds", e2e },
                { "vllm:request_queue_time_seconds", e2e },
                { "vllm:request_inference_time_seconds", e2e },
                { "vllm:request_prefill_time_seconds", e2e },
                { "vllm:request_decode_time_seconds", e2e },
                { "vllm:request_prompt_tokens", tokens },
                { "vllm:request_generation_tokens", tokens },
                { "vllm:request_max_num_generation_tokens", tokens },
                { "vllm:request_params_max_tokens", tokens },
                { "vllm:request_prefill_kv_computed_tokens", tokens },
                { "vllm:iteration_tokens_total", step },
                { "vllm:request_params_n", n } };
    const char *text = print_page();
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        char type[120], series[120], found[600] = "";
        snprintf(type, sizeof type, "# TYPE %s histogram\n", row[i].name);
        assert_non_null(strstr(text, type));
        snprintf(series, sizeof series, "\n%s_bucket{engine=\"0\",model_name=\"pebble\",le=\"", row[i].name);
        for (const char *p = text; (p = strstr(p, series));) {
            p += strlen(series);
            snprintf(found + strlen(found), sizeof found - strlen(found), "%.*s ", (int)strcspn(p, "\""), p);
        }
        assert_string_equal(found, row[i].bounds);
    }
}

static void names_of_earlier_versions_follow_the_option(void **state)
{
    (void)state;
    static const struct {
        enum old_metrics old;
        bool             gpu, tpot;
    } row[] = { { OLD_METRICS_AUTO, true, false },
                { OLD_METRICS_ALL, true, true },
                { OLD_METRICS_NONE, false, false } };
    struct metrics *served = S.srv->metrics;
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        struct metrics *m;
        assert_int_equal(metrics_create(routes_served(true), row[i].old, &m), ST_OK);
        metrics_model(m, "pebble", 2048);
        metrics_next_token(m, 30000);
        S.srv->metrics = m;
        const char *text = print_page();
        assert_int_equal(strstr(text, "vllm:gpu_cache_usage_perc{") != NULL, row[i].gpu);
        assert_int_equal(strstr(text, "vllm:gpu_prefix_cache_hit_rate{") != NULL, row[i].gpu);
        assert_int_equal(
            strstr(text, "vllm:time_per_output_token_seconds_count{engine=\"0\",model_name=\"pebble\"} 1.0\n") != NULL,
            row[i].tpot);
        assert_non_null(
            strstr(text, "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"pebble\"} 1.0\n"));
        metrics_free(m);
    }
    S.srv->metrics = served;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void no_series_is_there_twice_and_every_line_is_well_formed(void **state)
{
    (void)state;
    char  *text = strdup(print_page()), *line[4000];
    size_t n = 0;
    for (char *p = text, *next; *p; p = next) {
        next = strchr(p, '\n');
        assert_non_null(next);
        *next++ = 0;
        if (*p == '#') {
            assert_true(!strncmp(p, "# HELP ", 7) || !strncmp(p, "# TYPE ", 7));
            continue;
        }
        char *space = strrchr(p, ' ');
        assert_non_null(space);
        char *end;
        strtod(space + 1, &end);
        assert_true(*end == 0);
        *space = 0;
        assert_true(n < ARRAY_N(line));
        line[n++] = p;
    }
    qsort(line, n, sizeof *line, by_text);
    for (size_t i = 1; i < n; i++) assert_string_not_equal(line[i], line[i - 1]);
    free(text);
}

static void a_request_is_counted_once_everywhere(void **state)
{
    (void)state;
    char text[1000];
    post(text, sizeof text, "/v1/completions", "Connection: close\r\n",
         "{\"prompt\":\"Hi\",\"max_tokens\":9,\"ignore_eos\":true,\"frobnicate\":1}");
    assert_int_equal(status_of(ask_bytes(text, strlen(text))), 200);
    assert_true(eventually(no_generation));
    assert_true(value("finished_reason=\"length\"} ") == 1);
    assert_true(value("vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"pebble\"} ") == 1);
    assert_true(value("vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"pebble\"} ") == 9);
    assert_true(value("vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"pebble\"} ") == 1);
    assert_true(value("spillway:unknown_fields_total ") == 1);
    assert_true(value("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"2xx\"} ") == 1);
    post(text, sizeof text, "/v1/completions", "Connection: close\r\n", "{\"prompt\":1.5}");
    assert_int_equal(status_of(ask_bytes(text, strlen(text))), 400);
    assert_true(value("http_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"4xx\"} ") == 1);
    ASK("GET /nope HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(value("http_requests_total{handler=\"none\",method=\"\",status=\"4xx\"} ") == 1);
    assert_true(value("http_request_size_bytes_count{handler=\"/v1/completions\"} ") == 2);
    assert_true(value("http_request_size_bytes_sum{handler=\"/v1/completions\"} ") == 63 + 14);
    assert_true(value("http_response_size_bytes_sum{handler=\"/v1/completions\"} ") > 400);
    assert_true(value("http_request_duration_highr_seconds_count ") == 3);
    assert_true(value("spillway:requests_ended_total{how=\"finished\"} ") == 1);
    assert_true(value("spillway:requests_ended_total{how=\"invalid\"} ") == 1);
    assert_true(value("spillway:text_seconds_count ") == 2);
    assert_true(value("process_resident_memory_bytes ") > 1e6);
    assert_true(value("process_cpu_seconds_total ") > 0);
    assert_true(value("spillway:generations ") == 0);
}

static void a_hostile_model_name_stays_in_its_quotes(void **state)
{
    (void)state;
    metrics_model(S.srv->metrics, "a\"b\\c\nd", 2048);
    assert_non_null(strstr(print_page(), "model_name=\"a\\\"b\\\\c d\"} "));
}

static int up(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    buf_init(&page, 8u << 20);
    return 0;
}
static int down(void **state)
{
    (void)state;
    buf_free(&page);
    serve_down();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_of_the_contract_is_there_from_the_start),
        cmocka_unit_test(no_series_is_there_twice_and_every_line_is_well_formed),
        cmocka_unit_test(a_request_is_counted_once_everywhere),
        cmocka_unit_test(buckets_are_as_the_contract_has_them),
        cmocka_unit_test(names_of_earlier_versions_follow_the_option),
        cmocka_unit_test(a_hostile_model_name_stays_in_its_quotes),
    };
    return cmocka_run_group_tests(tests, up, down);
}
