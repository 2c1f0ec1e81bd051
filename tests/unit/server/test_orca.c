#include "serve.h"
#include "server/conn.h"

static uint32_t waiting, kv_blocks, kv_used;
static void     stats(void *ctx, struct eng_stats *out)
{
    (void)ctx;
    *out = (struct eng_stats){ .n_waiting = waiting, .kv_blocks = kv_blocks, .kv_used = kv_used };
}

static const char *ask_for(const char *format, const char *more)
{
    char text[1000], headers[200];
    snprintf(headers, sizeof headers, "Connection: close\r\n%s%s%s", format ? "endpoint-load-metrics-format: " : "",
             format ? format : "", format ? "\r\n" : "");
    char body[200];
    snprintf(body, sizeof body, "{\"prompt\":\"Hi\",\"max_tokens\":3,\"ignore_eos\":true%s}", more);
    post(text, sizeof text, "/v1/completions", headers, body);
    return ask_bytes(text, strlen(text));
}

static void set(uint32_t n_waiting, uint32_t used, uint32_t blocks)
{
    waiting = n_waiting;
    kv_used = used;
    kv_blocks = blocks;
}

static void each_form_has_its_header(void **state)
{
    (void)state;
    set(3, 4, 10);
    const char *r = ask_for("TEXT", "");
    assert_int_equal(status_of(r), 200);
    assert_non_null(strstr(r, "\r\nendpoint-load-metrics: TEXT named_metrics.kv_cache_usage_perc=0.4, "
                              "named_metrics.num_requests_waiting=3\r\n"));
    r = ask_for("json", "");
    assert_non_null(strstr(r, "\r\nendpoint-load-metrics: JSON "
                              "{\"named_metrics\":{\"kv_cache_usage_perc\":0.4,\"num_requests_waiting\":3}}\r\n"));
}

static void a_stream_has_it_before_its_body(void **state)
{
    (void)state;
    set(0, 0, 10);
    const char *r = ask_for("TEXT", ",\"stream\":true"), *header = strstr(r, "\r\nendpoint-load-metrics: TEXT ");
    assert_non_null(header);
    assert_true(header < strstr(r, "\r\n\r\n"));
    assert_non_null(strstr(r, "usage_perc=0, named"));
    assert_non_null(strstr(r, "data: [DONE]"));
}

static void who_does_not_ask_or_asks_for_another_form_gets_none(void **state)
{
    (void)state;
    static const char *const other[] = { NULL, "", "BIN", "TEXTS", "TEXT, JSON" };
    for (size_t i = 0; i < ARRAY_N(other); i++) {
        const char *r = ask_for(other[i], "");
        assert_int_equal(status_of(r), 200);
        assert_null(strstr(r, "endpoint-load-metrics:"));
    }
    assert_null(strstr(ASK("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nendpoint-load-metrics-format: TEXT\r\n\r\n"),
                       "endpoint-load-metrics:"));
}

static void the_share_is_printed_without_rounding_up(void **state)
{
    (void)state;
    static const struct {
        uint32_t    used, blocks;
        const char *share;
    } row[] = { { 1, 3, "0.3333" },        { 1, 100000, "0" }, { 99999, 100000, "0.9999" }, { 7, 7, "1" },
                { 8, 7, "1" /* raced */ }, { 1, 0, "0" },      { 1, 20, "0.05" },           { 1, 2, "0.5" } };
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        char want[60];
        set(0, row[i].used, row[i].blocks);
        snprintf(want, sizeof want, "usage_perc=%s, ", row[i].share);
        assert_non_null(strstr(ask_for("TEXT", ""), want));
    }
}

static int up(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    S.srv->eng.stats = stats; /* before the first request */
    return 0;
}
static int down(void **state)
{
    (void)state;
    serve_down();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_has_its_header),
        cmocka_unit_test(a_stream_has_it_before_its_body),
        cmocka_unit_test(who_does_not_ask_or_asks_for_another_form_gets_none),
        cmocka_unit_test(the_share_is_printed_without_rounding_up),
    };
    return cmocka_run_group_tests(tests, up, down);
}
