#include "server/http.h"
#include "test.h"

/* One head as it is; 1, or the http code it is refused with. */
static int parse(const char *text, size_t n, struct http_head *d, struct http *h)
{
    struct api_error e = { 0 };
    size_t           used = 0;
    http_begin(h);
    int got = http_head(h, text, n, d, &used, &e);
    if (got == 1) assert_int_equal(used, n);
    return got < 0 ? e.http : got;
}
static struct http_head D;
static struct http      H;
#define HEAD(text)   parse(text, sizeof text - 1, &D, &H)
#define POST(fields) HEAD("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" fields "\r\n")

static void fields_are_found(void **state)
{
    (void)state;
    assert_int_equal(
        POST("Content-Type:application/json \r\nAuthorization: Bearer k\r\nX-Request-Id: r1\r\nContent-Length: 12\r\n"),
        1);
    assert_true(D.method == M_POST && D.minor == 1 && D.keep_alive && D.has_length && D.length == 12 && !D.chunked);
    assert_true(slice_is(D.path, "/v1/completions") && slice_is(D.content_type, "application/json"));
    assert_true(slice_is(D.authorization, "Bearer k") && D.n_auth == 1 && slice_is(D.request_id, "r1"));
    assert_true(http_has_body(&H));
    assert_int_equal(HEAD("GET /a?b=c HTTP/1.1\r\nHost: x:80\r\nConnection: close\r\n\r\n"), 1);
    assert_true(slice_is(D.path, "/a") && slice_is(D.query, "b=c") && slice_is(D.host, "x") && !D.keep_alive &&
                !http_has_body(&H));
    assert_int_equal(HEAD("GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n"), 1);
    assert_true(slice_is(D.path, "/a"));
    assert_int_equal(HEAD("GET / HTTP/1.0\r\n\r\n"), 1);
    assert_true(!D.keep_alive);
    assert_int_equal(HEAD("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 1);
    assert_true(D.keep_alive);
}

static void tls_on_a_plain_port_is_named(void **state)
{
    (void)state;
    static const char first[] = { 22, 3, 1, 2, 0, 1, 0, 1, (char)0xfc, 3, 3 };
    struct api_error  e = { 0 };
    size_t            used;
    http_begin(&H);
    assert_int_equal(http_head(&H, first, sizeof first, &D, &used, &e), -1);
    assert_int_equal(e.http, 400);
    assert_non_null(strstr(e.message, "ask http://"));
    http_begin(&H);
    assert_int_equal(http_head(&H, "\x01", 1, &D, &used, &e), -1);
    assert_string_equal(e.message, "the request head is not HTTP");
}

static void A24_upgrade_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(HEAD("GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), 1);
    assert_true(!http_has_body(&H) && D.keep_alive);
    assert_int_equal(POST("Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n"), 1);
    struct buf       b;
    struct api_error e;
    size_t           used;
    buf_init(&b, 100);
    assert_int_equal(http_body(&H, "{}", 2, 100, &b, &used, &e), 1);
    assert_int_equal(b.n, 2);
    buf_free(&b);
}

static void A1_to_A7_doubtful_lengths_are_refused(void **state)
{
    (void)state;
    assert_int_equal(POST("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_int_equal(POST("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400);
    static const char *const te[] = { "chunked, chunked", "chunkedchunked", "gzip, chunked", "identity", "xchunked",
                                      "chunked;a=b",      ",chunked",       "chunked,",      "" };
    static const char *const cl[] = { "+5",
                                      "-0",
                                      "0x5",
                                      "5 5",
                                      "",
                                      "00005",
                                      "5, 5",
                                      "99999999999999999999",
                                      "18446744073709551616",
                                      "9223372036854775808",
                                      "5a" };
    char                     text[300];
    for (size_t i = 0; i < ARRAY_N(te); i++) {
        int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: %s\r\n\r\n", te[i]);
        assert_int_equal(parse(text, (size_t)n, &D, &H), 400);
    }
    for (size_t i = 0; i < ARRAY_N(cl); i++) {
        int n = snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n", cl[i]);
        assert_int_equal(parse(text, (size_t)n, &D, &H), 400);
    }
    assert_int_equal(POST("Content-Length: 5\r\nContent-Length: 5\r\n"), 400);
    assert_int_equal(POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400);
    assert_int_equal(HEAD("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_int_equal(POST("Transfer-Encoding: Chunked\r\n"), 1);
    assert_true(D.chunked);
}

static void A17_A20_A21_A25_targets_hosts_and_methods(void **state)
{
    (void)state;
    assert_int_equal(HEAD("GET / HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"), 1);
    assert_true(slice_is(D.host, "[::1]"));
    assert_int_equal(HEAD("GET http://evil/health HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
    assert_int_equal(HEAD("BREW / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    assert_int_equal(HEAD("PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    assert_int_equal(HEAD("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    assert_int_equal(HEAD("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"), 501);
    assert_int_equal(HEAD("GET a HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

static void expect_is_read(void **state)
{
    (void)state;
    assert_int_equal(POST("Expect: 100-Continue\r\nContent-Length: 1\r\n"), 1);
    assert_true(D.expect && !D.expect_unknown);
    assert_int_equal(POST("Expect: tea\r\nContent-Length: 1\r\n"), 1);
    assert_true(D.expect_unknown);
    assert_int_equal(HEAD("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n"), 1);
    assert_true(!D.expect);
}

/* The whole body in pieces of `step`; 1, 0 or the http code. */
static int body(const char *head, const char *text, size_t n, size_t step, uint64_t max, struct buf *out)
{
    struct api_error e = { 0 };
    int              got = parse(head, strlen(head), &D, &H);
    assert_int_equal(got, 1);
    got = 0;
    for (size_t at = 0; at < n && got == 0;) {
        size_t used = 0, piece = n - at < step ? n - at : step;
        got = http_body(&H, text + at, piece, max, out, &used, &e);
        at += used;
        if (got == 0) assert_int_equal(used, piece);
    }
    return got < 0 ? e.http : got;
}

static void a_chunked_body_is_the_same_in_pieces(void **state)
{
    (void)state;
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char text[] =
        "5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nContent-Length: 3\r\nTransfer-Encoding: gzip\r\nHost: evil\r\n\r\nGET ";
    for (size_t step = 1; step < sizeof text; step++) {
        struct buf b;
        buf_init(&b, 1000);
        assert_int_equal(body(head, text, sizeof text - 1, step, 1000, &b), 1);
        assert_int_equal(b.n, 11);
        assert_memory_equal(b.data, "hello world", 11);
        buf_free(&b);
    }
}

static void chunk_extensions_with_quoted_pairs_are_dropped(void **state)
{
    (void)state;
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char text[] = "5;a=\"b\\\"c\\\\\";d\r\nhello\r\n6;x=\"\t;y=\"\r\n world\r\n0;last=\"\\\"\"\r\n\r\n";
    for (size_t step = 1; step < sizeof text; step++) {
        struct buf b;
        buf_init(&b, 1000);
        assert_int_equal(body(head, text, sizeof text - 1, step, 1000, &b), 1);
        assert_int_equal(b.n, 11);
        assert_memory_equal(b.data, "hello world", 11);
        buf_free(&b);
    }
    static const char *const bad[] = { "5;a=\"b\r\nhello\r\n0\r\n\r\n", "5;a=\"b\"c\r\nhello\r\n0\r\n\r\n",
                                       "5;\r\nhello\r\n0\r\n\r\n" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        struct buf b;
        buf_init(&b, 1000);
        assert_int_equal(body(head, bad[i], strlen(bad[i]), 1000, 1000, &b), 400);
        buf_free(&b);
    }
}

static void blanks_around_a_value_are_no_part_of_it(void **state)
{
    (void)state;
    assert_int_equal(POST("Content-Length: \t12\t\r\nContent-Type:\tapplication/json \t \r\nX-Request-Id: a\tb\t\r\n"),
                     1);
    assert_true(D.length == 12 && slice_is(D.content_type, "application/json") && slice_is(D.request_id, "a\tb"));
    assert_int_equal(POST("Transfer-Encoding: chunked\t\r\nX-Empty: \t \r\n"), 1);
    assert_true(D.chunked && D.n_field == 3 && D.field[2].value.n == 0);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\t\r\nConnection: close\t\r\n\r\n"), 1);
    assert_true(slice_is(D.host, "a") && !D.keep_alive);
    assert_int_equal(POST("Content-Length: 5\t5\r\n"), 400);
    assert_int_equal(POST("Content-Length: 5\t\r\nTransfer-Encoding: chunked\t\r\n"), 400);
    assert_int_equal(POST("Content-Encoding: identity\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n"), 1);
    assert_int_equal(D.n_content_encoding, 2);
}

static void A28_a_body_over_the_limit_is_413(void **state)
{
    (void)state;
    static const char head[] = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    struct buf        b;
    buf_init(&b, 10);
    assert_int_equal(body(head, "6\r\n012345\r\n5\r\n", 14, 100, 10, &b), 413);
    buf_free(&b);
    buf_init(&b, 10);
    assert_int_equal(body(head, "6\r\n012345\r\n4\r\n0123\r\n0\r\n\r\n", 25, 100, 10, &b), 1);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_found),
        cmocka_unit_test(tls_on_a_plain_port_is_named),
        cmocka_unit_test(A24_upgrade_is_ignored),
        cmocka_unit_test(A1_to_A7_doubtful_lengths_are_refused),
        cmocka_unit_test(A17_A20_A21_A25_targets_hosts_and_methods),
        cmocka_unit_test(expect_is_read),
        cmocka_unit_test(a_chunked_body_is_the_same_in_pieces),
        cmocka_unit_test(chunk_extensions_with_quoted_pairs_are_dropped),
        cmocka_unit_test(blanks_around_a_value_are_no_part_of_it),
        cmocka_unit_test(A28_a_body_over_the_limit_is_413),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
