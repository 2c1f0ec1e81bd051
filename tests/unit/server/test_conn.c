#include "serve.h"

static int setup(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    serve_down();
    return 0;
}
#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"

static void small_routes_answer(void **state)
{
    (void)state;
    assert_int_equal(status_of(ASK(GET("/health"))), 200);
    assert_non_null(strstr(got, "Content-Length: 0\r\n"));
    assert_non_null(strstr(got, "x-request-id: "));
    assert_non_null(strstr(got, "Date: "));
    assert_null(strstr(got, "Server:"));
    assert_false(got_eof);
    assert_int_equal(status_of(ASK(GET("/ready"))), 200);
    assert_int_equal(status_of(ASK(GET("/livez"))), 200);
    assert_int_equal(status_of(ASK(GET("/ping"))), 200);
    assert_int_equal(status_of(ASK("POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK("POST /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK(GET("/version"))), 200);
    assert_int_equal(status_of(ASK(GET("/v1/models"))), 200);
    assert_int_equal(status_of(ASK(GET("/"))), 200);
    assert_non_null(strstr(got, "text/html"));
    assert_non_null(strstr(got, "Content-Security-Policy"));
    assert_null(strstr(got, "unsafe-inline"));
    assert_int_equal(status_of(ASK(GET("/playground/app.js"))), 200);
    assert_non_null(strstr(got, "Content-Type: text/javascript"));
    assert_int_equal(status_of(ASK(GET("/playground/style.css"))), 200);
    assert_non_null(strstr(got, "Content-Type: text/css"));
    assert_int_equal(status_of(ASK(GET("/playground/..%2findex.html"))), 404);
    assert_int_equal(status_of(ASK(GET("/playground/app"))), 404);
    assert_int_equal(status_of(ASK(GET("/metrics"))), 200);
}

static void A17_A18_A50_wrong_methods_and_paths(void **state)
{
    (void)state;
    assert_int_equal(status_of(ASK(GET("/nope"))), 404);
    assert_non_null(strstr(got, "\"error\""));
    assert_int_equal(status_of(ASK(GET("/v1/chat/completions"))), 405);
    assert_non_null(strstr(got, "Allow: POST\r\n"));
    assert_int_equal(status_of(ASK("PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")), 405);
    assert_non_null(strstr(got, "Allow: GET, HEAD\r\n"));
    assert_int_equal(status_of(ASK("HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")), 200);
    assert_non_null(strstr(got, "Content-Type: application/json"));
    assert_true(!memcmp(got + n_got - 4, "\r\n\r\n", 4));
    assert_int_equal(status_of(ASK("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a\r\n\r\n")), 405);
    assert_null(strstr(got, "Access-Control"));
    assert_int_equal(status_of(ASK("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n")), 501);
    assert_true(got_eof);
}

static void J9_another_host_is_403(void **state)
{
    (void)state;
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")), 403);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: [::1]:1\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.0\r\n\r\n")), 200);
}

static void bytes_that_are_no_http_are_refused_and_the_connection_is_closed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int         status;
    } row[] = {
        { "GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400 },
        { "GET /health HTTP/1.1\r\n\r\n", 400 },
        { "GET /health HTTP/2.0\r\n\r\n", 505 },
        { "GET /health\r\n\r\n", 400 },
        { "\x16\x03\x01\x02", 400 },
        { "POST /ping HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
    };
    for (size_t i = 0; i < ARRAY_N(row); i++) {
        assert_int_equal(status_of(ask_bytes(row[i].text, strlen(row[i].text))), row[i].status);
        assert_true(got_eof);
        assert_non_null(strstr(got, "Connection: close\r\n"));
    }
}

static void bodies_are_checked_before_they_are_read(void **state)
{
    (void)state;
    char t[1000];
    assert_int_equal(
        status_of(ASK(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n")),
        413);
    assert_int_equal(
        status_of(ASK(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n")),
        413);
    assert_int_equal(
        status_of(ASK("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n")),
        400);
    assert_non_null(strstr(got, "body"));
    assert_int_equal(
        status_of(ASK(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n")),
        400);
    assert_int_equal(
        status_of(ASK(
            "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}")),
        415);
    post(t, sizeof t, "/v1/completions", "Content-Encoding: gzip\r\n", "{}");
    assert_int_equal(status_of(ask_bytes(t, strlen(t))), 415);
    post(t, sizeof t, "/v1/completions", "", "[]");
    assert_int_equal(status_of(ask_bytes(t, strlen(t))), 400);
    assert_false(got_eof); /* the framing was fine: the connection stays */
}

static void A26_expect_is_answered_before_the_body(void **state)
{
    (void)state;
    int fd = raw_connect();
    raw_send(
        fd,
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\nExpect: 100-continue\r\n\r\n",
        118);
    raw_read(fd, "\r\n\r\n");
    assert_true(!strncmp(got, "HTTP/1.1 100 Continue\r\n\r\n", 25));
    raw_send(fd, "{\"prompt\":\"hi\"}", 15);
    assert_int_equal(status_of(raw_read(fd, "\r\n\r\n")), 200);
    close(fd);
    assert_int_equal(
        status_of(ASK(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 15\r\nExpect: tea\r\n\r\n")),
        417);
    assert_int_equal(
        status_of(ASK(
            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")),
        413);
}

static void A14_pipelined_requests_are_answered_in_order(void **state)
{
    (void)state;
    static char text[64000];
    size_t      n = 0;
    for (int i = 0; i < 100; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: r%03d\r\n\r\n", i);
    int fd = raw_connect();
    raw_send(fd, text, n);
    raw_read(fd, "x-request-id: r099");
    const char *p = got;
    for (int i = 0; i < 100; i++) {
        char want[40];
        snprintf(want, sizeof want, "x-request-id: r%03d\r\n", i);
        p = strstr(p, want);
        assert_non_null(p);
    }
    close(fd);
}

static void A52_only_a_clean_request_id_comes_back(void **state)
{
    (void)state;
    ASK("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: clean-id_1.2\r\n\r\n");
    assert_non_null(strstr(got, "x-request-id: clean-id_1.2\r\n"));
    ASK("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a b\r\n\r\n");
    assert_null(strstr(got, "a b"));
    ASK("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: a\r\nX-Request-Id: b\r\n\r\n");
    assert_null(strstr(got, "x-request-id: a\r\n"));
}

static void a_client_that_half_closes_after_a_small_request_is_answered(void **state)
{
    (void)state;
    int fd = raw_connect();
    raw_send(fd, GET("/health") GET("/livez"), sizeof GET("/health") GET("/livez") - 1);
    shutdown(fd, SHUT_WR);
    raw_read(fd, NULL);
    assert_true(got_eof);
    const char *first = strstr(got, "HTTP/1.1 200");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "HTTP/1.1 200"));
    close(fd);
    assert_true(eventually(no_connection));
}

static void A16_an_endless_header_costs_little(void **state)
{
    (void)state;
    int   fd = raw_connect();
    char *x = malloc(1 << 20);
    memset(x, 'x', 1 << 20);
    raw_send(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ", 43);
    raw_send(fd, x, 1 << 20);
    assert_int_equal(status_of(raw_read(fd, NULL)), 431);
    assert_true(got_eof);
    free(x);
    close(fd);
}

static void A24_upgrade_is_ignored_on_a_connection(void **state)
{
    (void)state;
    static const char up[] = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    int               fd = raw_connect();
    for (int i = 0; i < 2; i++) {
        raw_send(fd, up, sizeof up - 1);
        assert_int_equal(status_of(raw_read(fd, "\r\n\r\n")), 200);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_routes_answer),
        cmocka_unit_test(A17_A18_A50_wrong_methods_and_paths),
        cmocka_unit_test(J9_another_host_is_403),
        cmocka_unit_test(bytes_that_are_no_http_are_refused_and_the_connection_is_closed),
        cmocka_unit_test(bodies_are_checked_before_they_are_read),
        cmocka_unit_test(A26_expect_is_answered_before_the_body),
        cmocka_unit_test(A14_pipelined_requests_are_answered_in_order),
        cmocka_unit_test(A52_only_a_clean_request_id_comes_back),
        cmocka_unit_test(a_client_that_half_closes_after_a_small_request_is_answered),
        cmocka_unit_test(A16_an_endless_header_costs_little),
        cmocka_unit_test(A24_upgrade_is_ignored_on_a_connection),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
