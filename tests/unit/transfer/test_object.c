/* Requests are signed as AWS publishes it, and what servers answer is read strictly. */
#include "transfer/object/creds.h"
#include "transfer/object/object.h"
#include "transfer/object/s3_answer.h"
#include "transfer/object/sigv4.h"
#include "transfer/object/xml.h"
#include "base/clock.h"
#include "test.h"
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static const char EMPTY[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

static const char *signature(const struct sigv4_scope *s, const struct sigv4_request *r, char out[65])
{
    struct buf b;
    buf_init(&b, 4096);
    assert_int_equal(sigv4_sign(s, r, &b), ST_OK);
    const char *at = strstr(buf_cstr(&b), "Signature=");
    assert_non_null(at);
    assert_int_equal(strlen(at + 10), 64);
    memcpy(out, at + 10, 65);
    buf_free(&b);
    return out;
}

/* "get-vanilla" of the Signature Version 4 test suite. */
static void the_suites_plain_get_has_the_published_signature(void **state)
{
    (void)state;
    char                       sig[65];
    const struct sigv4_scope   scope = { "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1",
                                         "service", "20150830T123600Z" };
    const struct sigv4_header  h[] = { { "host", "example.amazonaws.com" }, { "x-amz-date", "20150830T123600Z" } };
    const struct sigv4_request r = { "GET", "/", "", h, 2, EMPTY };
    assert_string_equal(signature(&scope, &r, sig), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
}

/* The four examples of "Authenticating Requests: Using the Authorization Header" in S3's API reference. */
static void the_examples_of_s3_have_their_published_signatures(void **state)
{
    (void)state;
    char                      sig[65];
    const char               *host = "examplebucket.s3.amazonaws.com", *date = "20130524T000000Z";
    const struct sigv4_scope  scope = { "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1",
                                        "s3", "20130524T000000Z" };
    const struct sigv4_header get[] = {
        { "host", host }, { "range", "bytes=0-9" }, { "x-amz-content-sha256", EMPTY }, { "x-amz-date", date }
    };
    const struct sigv4_request get_r = { "GET", "/test.txt", "", get, 4, EMPTY };
    assert_string_equal(signature(&scope, &get_r, sig),
                        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    char sum[SIGV4_HEX];
    sigv4_sha256("Welcome to Amazon S3.", 21, sum);
    const struct sigv4_header  put[] = { { "date", "Fri, 24 May 2013 00:00:00 GMT" },
                                         { "host", host },
                                         { "x-amz-content-sha256", sum },
                                         { "x-amz-date", date },
                                         { "x-amz-storage-class", "REDUCED_REDUNDANCY" } };
    const struct sigv4_request put_r = { "PUT", "/test%24file.text", "", put, 5, sum };
    assert_string_equal(signature(&scope, &put_r, sig),
                        "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    const struct sigv4_header plain[] = { { "host", host }, { "x-amz-content-sha256", EMPTY }, { "x-amz-date", date } };
    const struct sigv4_request life = { "GET", "/", "lifecycle=", plain, 3, EMPTY };
    assert_string_equal(signature(&scope, &life, sig),
                        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    const struct sigv4_request list = { "GET", "/", "max-keys=2&prefix=J", plain, 3, EMPTY };
    assert_string_equal(signature(&scope, &list, sig),
                        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void paths_and_dates_are_written_as_the_signature_wants_them(void **state)
{
    (void)state;
    struct buf b;
    char       date[SIGV4_DATE];
    buf_init(&b, 100);
    sigv4_encode("a b/c~d+\xc3\xa4", true, &b);
    assert_string_equal(buf_cstr(&b), "a%20b/c~d%2B%C3%A4");
    buf_clear(&b);
    sigv4_encode("a/b", false, &b);
    assert_string_equal(buf_cstr(&b), "a%2Fb");
    buf_free(&b);
    sigv4_date(1369353600, date);
    assert_string_equal(date, "20130524T000000Z");
}

/* ---- answers */

struct seen {
    uint32_t n;
    char     name[4][OBJECT_NAME];
    uint64_t bytes[4];
};
static void see(void *ctx, const char *name, uint64_t bytes, const char *etag)
{
    struct seen *s = ctx;
    (void)etag;
    assert_true(s->n < 4);
    snprintf(s->name[s->n], OBJECT_NAME, "%s", name);
    s->bytes[s->n++] = bytes;
}

static bool list(const char *text, struct seen *s, struct object_req *r)
{
    *s = (struct seen){ .n = 0 };
    *r = (struct object_req){ .op = OBJECT_LIST, .each = see, .ctx = s };
    return s3_list_parse(text, strlen(text), "kv/", r);
}

static void a_list_gives_the_names_behind_the_prefix(void **state)
{
    (void)state;
    struct seen       s;
    struct object_req r;
    assert_true(list("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                     "<Name>b</Name><Prefix>kv/</Prefix><IsTruncated>true</IsTruncated>"
                     "<Contents><Key>kv/a&amp;b</Key><Size>12</Size><ETag>&quot;x&quot;</ETag>"
                     "<Owner><ID>1</ID><Key>kv/no</Key></Owner></Contents>"
                     "<Contents><Size>7</Size><Key>kv/c</Key></Contents>"
                     "<Contents><Key>other/d</Key><Size>1</Size></Contents>"
                     "<CommonPrefixes><Prefix>kv/e/</Prefix></CommonPrefixes></ListBucketResult>",
                     &s, &r));
    assert_int_equal(s.n, 2);
    assert_string_equal(s.name[0], "a&b");
    assert_int_equal(s.bytes[0], 12);
    assert_string_equal(s.name[1], "c");
    assert_string_equal(r.last, "c");
    assert_true(r.more);
}

static void what_is_no_list_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "<html><body>hello</body></html>",
                                       "<ListBucketResult>",
                                       "<ListBucketResult></ListBucketResult",
                                       "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult></ListBucketResult>",
                                       "</ListBucketResult>",
                                       "{\"a\": 1}" };
    struct seen              s;
    struct object_req        r;
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(list(bad[i], &s, &r));
    /* sizes that are none, and keys that do not fit: nobody's */
    assert_true(list("<ListBucketResult><Contents><Key>kv/a</Key><Size>-1</Size></Contents>"
                     "<Contents><Key>kv/b</Key><Size>99999999999999999999999</Size></Contents>"
                     "<Contents><Key>kv/&#0;</Key><Size>1</Size></Contents></ListBucketResult>",
                     &s, &r));
    assert_int_equal(s.n, 0);
}

static void errors_are_read_with_their_code(void **state)
{
    (void)state;
    const char     *text = "<Error><Code>SlowDown</Code><Message>Reduce &lt;it&gt;</Message></Error>";
    struct s3_error e;
    s3_error_parse(text, strlen(text), &e);
    assert_string_equal(e.code, "SlowDown");
    assert_string_equal(e.message, "Reduce <it>");
    s3_error_parse("not xml", 7, &e);
    assert_string_equal(e.code, "");
}

static void a_range_is_the_one_that_was_asked_for_or_none(void **state)
{
    (void)state;
    uint64_t total;
    assert_true(s3_range_is("bytes 10-19/100", 10, 10, &total));
    assert_int_equal(total, 100);
    static const char *const bad[] = { "bytes 10-18/100", "bytes 11-19/100", "bytes 10-19/19", "bytes 10-19/*",
                                       "bytes */100",     "10-19/100",       "bytes 10-19",    "",
                                       "bytes 19-10/100", "bytes 10-19/-1",  "bytes x-19/100", "bytes 10/19-100" };
    for (size_t i = 0; i < ARRAY_N(bad); i++) assert_false(s3_range_is(bad[i], 10, 10, &total));
}

static void dates_of_headers_and_of_credentials_are_read(void **state)
{
    (void)state;
    uint64_t s;
    assert_true(s3_date_parse("Sun, 06 Nov 1994 08:49:37 GMT", &s));
    assert_int_equal(s, 784111777);
    assert_false(s3_date_parse("Sun, 06 Foo 1994 08:49:37 GMT", &s));
    assert_false(s3_date_parse("Sun, 06 anF 1994 08:49:37 GMT", &s));
    assert_false(s3_date_parse("Sunday, 06-Nov-94 08:49:37 GMT", &s));
    assert_false(s3_date_parse("Sun, 06 Nov 1994 25:49:37 GMT", &s));
    assert_true(creds_parse_time("2013-05-24T00:00:00Z", &s));
    assert_int_equal(s, 1369353600);
    assert_true(creds_parse_time("2013-05-24T00:00:00.123Z", &s));
    assert_int_equal(s, 1369353600);
    assert_false(creds_parse_time("2013-05-24 00:00:00Z", &s));
    assert_false(creds_parse_time("2013-05-24T00:00:00", &s));
    assert_false(creds_parse_time("2013-05-24T00:00:00+02:00", &s));
}

static void credentials_are_whole_or_refused(void **state)
{
    (void)state;
    struct creds c;
    char         why[200];
    const char  *good = "{\"Code\": \"Success\", \"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Token\": \"T\", "
                        "\"Expiration\": \"2013-05-24T00:00:00Z\"}";
    assert_true(creds_parse_json(good, strlen(good), &c, why, sizeof why));
    assert_string_equal(c.id, "A");
    assert_string_equal(c.token, "T");
    assert_int_equal(c.ends_s, 1369353600);
    static const char *const bad[] = {
        "",
        "[]",
        "{\"AccessKeyId\": \"A\"}",
        "{\"AccessKeyId\": 1, \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"A\\r\\nX: y\", \"SecretAccessKey\": \"S\"}",
        "{\"AccessKeyId\": \"A\", \"SecretAccessKey\": \"S\", \"Expiration\": \"soon\"}"
    };
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        *why = 0;
        assert_false(creds_parse_json(bad[i], strlen(bad[i]), &c, why, sizeof why));
        assert_true(*why);
    }
    const char *sts = "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
                      "<AccessKeyId>A</AccessKeyId><SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>"
                      "<Expiration>2013-05-24T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>"
                      "</AssumeRoleWithWebIdentityResponse>";
    assert_true(creds_parse_sts(sts, strlen(sts), &c, why, sizeof why));
    assert_string_equal(c.secret, "S");
    const char *no = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
    assert_false(creds_parse_sts(no, strlen(no), &c, why, sizeof why));
    assert_non_null(strstr(why, "AccessDenied"));
}

/* The token that goes there is a secret. */
static void a_containers_endpoint_is_on_this_machine_or_encrypted(void **state)
{
    (void)state;
    assert_true(creds_url_is_safe("https://example.com/c"));
    assert_true(creds_url_is_safe("http://127.0.0.1:8000/c"));
    assert_true(creds_url_is_safe("http://169.254.170.23/v1/credentials"));
    assert_false(creds_url_is_safe("http://example.com/c"));
    assert_false(creds_url_is_safe("http://127.0.0.1.example.com/c"));
    assert_false(creds_url_is_safe("http://127.0.0.1:80@example.com/c"));
    assert_false(creds_url_is_safe("file:///etc/passwd"));
}

/* ---- where */

static void urls_that_name_no_bucket_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const char *const bad[] = { "s3://",      "s3://Ab/x",  "s3://a",       "s3://a..b/x",
                                       "s3://-abc/", "http://x/y", "s3://abc/a b", "s3://abc/a?b" };
    struct object_store     *s;
    for (size_t i = 0; i < ARRAY_N(bad); i++) {
        char              err[400] = "";
        struct object_cfg cfg = { .url = bad[i], .endpoint = "http://127.0.0.1:1", .region = "us-east-1" };
        assert_int_equal(object_open(&cfg, &s, err, sizeof err), ST_CONFIG);
        assert_true(*err);
    }
    static const char *const endpoints[] = { "ftp://x", "http://", "127.0.0.1:1", "http://a/b", "http://u@h" };
    for (size_t i = 0; i < ARRAY_N(endpoints); i++) {
        char              err[400] = "";
        struct object_cfg cfg = { .url = "s3://bucket/x", .endpoint = endpoints[i] };
        assert_int_equal(object_open(&cfg, &s, err, sizeof err), ST_CONFIG);
        assert_non_null(strstr(err, "endpoint"));
    }
}

/* Nobody listens there: the request ends by its deadline, with a line, and the store is left alone for a while. */
static void a_store_that_is_not_there_is_an_error_with_a_line(void **state)
{
    (void)state;
    char                  err[400];
    struct object_store  *s;
    struct object_client *c;
    unsigned char         byte[4];
    struct object_piece   piece = { byte, sizeof byte };
    struct object_cfg     cfg = { .url = "s3://bucket/p", .endpoint = "http://127.0.0.1:1", .region = "us-east-1" };
    setenv("AWS_ACCESS_KEY_ID", "A", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
    assert_int_equal(object_open(&cfg, &s, err, sizeof err), ST_OK);
    assert_int_equal(object_client(s, &c), ST_OK);
    struct object_req r = { .op = OBJECT_GET, .name = "x", .bytes = 4, .piece = &piece, .n_piece = 1 };
    r.deadline_us = clock_us() + 300000; /* pauses of 50, 100, 200 ms, halved by chance: not all attempts */
    enum status st = object_do(c, &r);
    assert_true(st == ST_PEER_LOST || st == ST_TIMEOUT);
    assert_non_null(strstr(r.why, "s3://bucket/p: GET x"));
    assert_true(atomic_load(&s->n_retried) > 0);
    assert_int_equal(atomic_load(&s->n_failed), 1);
    assert_true(object_is_down(s, 0));
    object_client_free(c);
    object_close(s);
}

/* Three loads in a row that nobody could wait for: that store is slower than computing; one that comes in time clears
 * that. */
static void a_slow_store_is_left_alone_for_a_while(void **state)
{
    (void)state;
    struct object_store s = { .shown = "x" };
    object_was_late(&s);
    object_was_late(&s);
    assert_false(object_is_down(&s, 0));
    object_went(&s, ST_OK, true);
    object_was_late(&s);
    object_was_late(&s);
    assert_false(object_is_down(&s, 0));
    object_was_late(&s);
    assert_true(object_is_down(&s, 0));
    object_went(&s, ST_OK, false); /* a list that comes says nothing about loads */
    assert_true(object_is_down(&s, 0));
}

/* ---- stores of another kind */

static struct {
    uint32_t n_put, n_other;
    uint64_t bytes;
} plain;
static struct object_req *plain_done;

static void plain_begin(struct object_client *c, struct object_req *r)
{
    (void)c;
    plain.n_put += r->op == OBJECT_PUT;
    plain.n_other += r->op != OBJECT_PUT;
    plain.bytes = r->bytes;
    r->st = r->op == OBJECT_PUT ? ST_OK : ST_CONFIG;
    plain_done = r;
}

static uint32_t plain_run(struct object_client *c, int fd, int64_t wait_us, struct object_req **done, uint32_t max)
{
    (void)c;
    (void)fd;
    (void)wait_us;
    (void)max;
    *done = plain_done;
    return 1;
}

/* What S3 gets in parts, a store that knows no parts gets whole. */
static void a_store_without_parts_gets_a_long_object_whole(void **state)
{
    (void)state;
    static const struct object_ops ops = { .name = "plain", .begin = plain_begin, .run = plain_run };
    struct object_store            s = { .ops = &ops, .shown = "plain" };
    struct object_client           c = { .store = &s };
    char                           err[OBJECT_WHY] = "";
    assert_int_equal(object_put(&c, "x", "0123456789", 10, 4, 0, err, sizeof err), ST_OK);
    assert_int_equal(plain.n_put, 1);
    assert_int_equal(plain.n_other, 0);
    assert_int_equal(plain.bytes, 10);
}

static void a_range_of_nothing_needs_no_store(void **state)
{
    static const char *const urls[] = { "redis://127.0.0.1:1/0", "s3://bucket/p" };
    (void)state;
    for (size_t i = 0; i < ARRAY_N(urls); i++) {
        struct object_cfg     cfg = { .url = urls[i], .endpoint = "http://127.0.0.1:1", .region = "us-east-1" };
        struct object_req     r = { .op = OBJECT_GET, .name = "x" };
        struct object_store  *s;
        struct object_client *c;
        char                  err[400];
        assert_int_equal(object_open(&cfg, &s, err, sizeof err), ST_OK);
        assert_int_equal(object_client(s, &c), ST_OK);
        assert_int_equal(object_do(c, &r), ST_OK);
        object_client_free(c);
        object_close(s);
    }
}

/* A port that takes no connection, because as many wait there as may: a request to it begins at once, and ends when
 * connecting has taken too long. */
static void a_redis_that_does_not_answer_holds_nobody_up(void **state)
{
    (void)state;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t          n = sizeof a;
    int                listener = socket(AF_INET, SOCK_STREAM, 0), waiting[4];
    assert_int_equal(bind(listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(listener, 0), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &n), 0);
    for (size_t i = 0; i < ARRAY_N(waiting); i++) {
        waiting[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (struct sockaddr *)&a, sizeof a);
    }
    char                  url[64], err[400];
    struct object_store  *s;
    struct object_client *c;
    struct object_req    *done[1];
    unsigned char         byte[4];
    struct object_piece   piece = { byte, sizeof byte };
    struct object_req     r = { .op = OBJECT_GET, .name = "x", .bytes = 4, .piece = &piece, .n_piece = 1 };
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/3", ntohs(a.sin_port));
    assert_int_equal(object_open(&(struct object_cfg){ .url = url }, &s, err, sizeof err), ST_OK);
    assert_int_equal(object_client(s, &c), ST_OK);
    object_begin(c, &r);
    assert_int_equal(r.st, ST_AGAIN); /* it waits; the caller did not */
    assert_int_equal(object_run(c, -1, 0, done, 1), 0);
    while (!object_run(c, -1, 1000000, done, 1)) continue;
    assert_ptr_equal(done[0], &r);
    assert_int_equal(r.st, ST_TIMEOUT);
    assert_non_null(strstr(r.why, "no connection in time"));
    object_client_free(c);
    object_close(s);
    for (size_t i = 0; i < ARRAY_N(waiting); i++) close(waiting[i]);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_suites_plain_get_has_the_published_signature),
        cmocka_unit_test(the_examples_of_s3_have_their_published_signatures),
        cmocka_unit_test(paths_and_dates_are_written_as_the_signature_wants_them),
        cmocka_unit_test(a_list_gives_the_names_behind_the_prefix),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(errors_are_read_with_their_code),
        cmocka_unit_test(a_range_is_the_one_that_was_asked_for_or_none),
        cmocka_unit_test(dates_of_headers_and_of_credentials_are_read),
        cmocka_unit_test(credentials_are_whole_or_refused),
        cmocka_unit_test(a_containers_endpoint_is_on_this_machine_or_encrypted),
        cmocka_unit_test(urls_that_name_no_bucket_are_refused_with_a_reason),
        cmocka_unit_test(a_store_that_is_not_there_is_an_error_with_a_line),
        cmocka_unit_test(a_slow_store_is_left_alone_for_a_while),
        cmocka_unit_test(a_store_without_parts_gets_a_long_object_whole),
        cmocka_unit_test(a_range_of_nothing_needs_no_store),
        cmocka_unit_test(a_redis_that_does_not_answer_holds_nobody_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
