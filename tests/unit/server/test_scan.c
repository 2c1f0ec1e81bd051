#include "server/scan.h"
#include "test.h"

static int head(const char *text, size_t n)
{
    struct scan_head s = { 0 };
    size_t           used = 0;
    int              got = scan_head(&s, text, n, &used);
    if (got == 1) assert_int_equal(used, n);
    return got;
}
#define HEAD(text) head(text, sizeof text - 1)

static void a_plain_head_is_taken(void **state)
{
    (void)state;
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1);
    assert_int_equal(HEAD("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1);
    assert_int_equal(HEAD("GET / HTTP/1.0\r\n\r\n"), 1);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nX: \xff\t\r\n\r\n"), 1);
}

static void A8_a_head_with_odd_bytes_is_refused(void **state)
{
    (void)state;
    assert_int_equal(HEAD("GET / HTTP/1.1\nHost: a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\nHost\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1\r\n: a\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET  / HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/1.1 \r\n\r\n"), 400);
    assert_int_equal(HEAD("GET /\t HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET /\x80 HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("GET /\\ HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("\r\n\r\nGET / HTTP/1.1\r\n\r\n"), 400);
    assert_int_equal(HEAD("\x16\x03\x01\x02\x00\x01"), 400);
    assert_int_equal(HEAD("GET /\r\n"), 400);
    assert_int_equal(HEAD("GET / HTTP/2.0\r\n"), 505);
    assert_int_equal(HEAD("GET / HTTP/1.2\r\n"), 505);
    assert_int_equal(HEAD("PRI * HTTP/2.0\r\n"), 505);
}

static void A16_a_head_without_end_is_refused_early(void **state)
{
    (void)state;
    char            *text = malloc(1 << 20);
    struct scan_head s = { 0 };
    size_t           used, at = (size_t)snprintf(text, 100, "GET / HTTP/1.1\r\nX: ");
    int              got = 0;
    for (memset(text + at, 'x', (1 << 20) - at); got == 0; at += 1000) got = scan_head(&s, text, at, &used);
    assert_int_equal(got, 431);
    assert_true(at < 12000);

    struct scan_head many = { 0 };
    at = (size_t)snprintf(text, 100, "GET / HTTP/1.1\r\n");
    for (int i = 0; i < 101; i++) at += (size_t)snprintf(text + at, 100, "a: b\r\n");
    assert_int_equal(scan_head(&many, text, at, &used), 431);
    struct scan_head url = { 0 };
    memset(text, 'a', 4000);
    memcpy(text, "GET /", 5);
    assert_int_equal(scan_head(&url, text, 4000, &used), 414);
    free(text);
}

static void a_head_is_the_same_in_pieces(void **state)
{
    (void)state;
    struct scan_head bad = { 0 };
    size_t           none;
    for (size_t n = 1; n < 3; n++) assert_int_equal(scan_head(&bad, "\r\n\xc2x", n, &none), 0);
    assert_int_equal(scan_head(&bad, "\r\n\xc2x", 3, &none), 400);
    static const char text[] = "\r\nPOST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    struct scan_head  s = { 0 };
    size_t            used = 0;
    for (size_t n = 1; n < sizeof text - 1; n++) assert_int_equal(scan_head(&s, text, n, &used), 0);
    assert_int_equal(scan_head(&s, text, sizeof text - 1, &used), 1);
    assert_int_equal(used, sizeof text - 1);
    assert_int_equal(s.n_line, 3);
}

/* Feeds in pieces of `step` bytes; *payload_out counts. */
static int chunks(const char *text, size_t n, uint64_t max, size_t step, uint64_t *payload_out)
{
    struct scan_chunk s = { 0 };
    int               got = 0;
    size_t            at = 0;
    while (at < n && got == 0) {
        size_t piece = n - at < step ? n - at : step, used = 0, feed;
        for (size_t done = 0; done < piece && got == 0; done += used) {
            got = scan_chunk(&s, text + at + done, piece - done, max, &used, &feed);
            assert_true(feed <= used && used <= piece - done);
        }
        at += piece;
    }
    *payload_out = s.payload;
    return got;
}
static int chunked(const char *text, size_t n)
{
    uint64_t a, b, c;
    int      whole = chunks(text, n, 1000, n, &a), bytes = chunks(text, n, 1000, 1, &b),
        threes = chunks(text, n, 1000, 3, &c);
    assert_int_equal(whole, bytes);
    assert_int_equal(whole, threes);
    if (whole == 1) assert_true(a == b && b == c);
    return whole;
}
#define CHUNKED(text) chunked(text, sizeof text - 1)

static void chunks_are_walked(void **state)
{
    (void)state;
    assert_int_equal(CHUNKED("5\r\nhello\r\n0\r\n\r\n"), 1);
    assert_int_equal(CHUNKED("5;a=b;c;d=\"x\\\"y\"\r\nhello\r\n000\r\nA: b\r\nC:\r\n\r\n"), 1);
    assert_int_equal(CHUNKED("5\r\nhello\r\n"), 0);
}

static void A9_A10_odd_chunk_lines_are_refused(void **state)
{
    (void)state;
    assert_int_equal(CHUNKED("0x5\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED(" 5\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5 \r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("-1\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("00000000000000005\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("ffffffffffffffff\r\n"), 413);
    assert_int_equal(CHUNKED("3e9\r\n"), 413);
    assert_int_equal(CHUNKED("5\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5\r\nhelloXX0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5\r\nhello\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5;\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5;a b\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5;a\0\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("5;a=\"b\nc\"\r\nhello\r\n0\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("0\r\nA : b\r\n\r\n"), 400);
    assert_int_equal(CHUNKED("0\r\n\n"), 400);
}

static void A11_framing_may_not_outweigh_the_data(void **state)
{
    (void)state;
    size_t   cap = 8u << 20, n = 0;
    char    *text = malloc(cap);
    uint64_t payload;
    for (int i = 0; i < 1000000; i++) {
        memcpy(text + n, "1\r\nx\r\n", 6);
        n += 6;
    }
    assert_int_equal(chunks(text, n, 1 << 25, 65536, &payload), 400);
    n = 0;
    for (int i = 0; i < 100000; i++) {
        memcpy(text + n, "a\r\n0123456789\r\n", 15);
        n += 15;
    }
    memcpy(text + n, "0\r\n\r\n", 5);
    n += 5;
    assert_int_equal(chunks(text, n, 1 << 25, 65536, &payload), 1);
    assert_int_equal(payload, 1000000);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_head_is_taken),
        cmocka_unit_test(A8_a_head_with_odd_bytes_is_refused),
        cmocka_unit_test(A16_a_head_without_end_is_refused_early),
        cmocka_unit_test(a_head_is_the_same_in_pieces),
        cmocka_unit_test(chunks_are_walked),
        cmocka_unit_test(A9_A10_odd_chunk_lines_are_refused),
        cmocka_unit_test(A11_framing_may_not_outweigh_the_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
