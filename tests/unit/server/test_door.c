#include "serve.h"
#include "server/door.h"

static bool local(const char *host)
{
    return door_name_is_local((struct slice){ host, strlen(host) }, "gpu7.example.org");
}

static void J9_names_that_nobody_can_register_are_local(void **state)
{
    (void)state;
    static const char *const yes[] = { "10.0.0.7",
                                       "169.254.169.254",
                                       "[::1]",
                                       "[2001:db8::1]",
                                       "localhost",
                                       "gpu7",
                                       "spillway",
                                       "gpu7.",
                                       "box.local",
                                       "a.b.svc.cluster.local",
                                       "ip-10-0-0-7.ec2.internal",
                                       "x.localhost",
                                       "llm.ns.svc",
                                       "GPU7.example.ORG" };
    static const char *const no[] = {
        "evil.example", "local.evil.example", "gpu7.example.org.evil", "10.0.0.7.evil.example", ".local",
        "1.2.3",        "[::1].evil",         "evil.svc.example"
    };
    for (size_t i = 0; i < ARRAY_N(yes); i++)
        if (!local(yes[i])) fail_msg("%s is refused", yes[i]);
    for (size_t i = 0; i < ARRAY_N(no); i++)
        if (local(no[i])) fail_msg("%s is taken", no[i]);
}

static int get(const char *path, const char *host, const char *more)
{
    char text[1000];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, host, more);
    return status_of(ask_bytes(text, strlen(text)));
}

static void J9_which_hosts_are_taken(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    assert_int_equal(get("/health", "evil.example", ""), 403);
    assert_non_null(strstr(got, "--allowed-host"));
    assert_int_equal(get("/health", "gpu7", ""), 403); /* on loopback it is not asked for by such names */
    assert_int_equal(get("/health", "10.0.0.7", ""), 403);
    assert_int_equal(get("/health", "127.0.0.53:80", ""), 200);
    assert_int_equal(get("/health", "[::1]", ""), 200);
    S.srv->loopback = false; /* as if it were bound to 0.0.0.0, for anyone */
    assert_int_equal(get("/health", "evil.example", ""), 403);
    assert_int_equal(get("/health", "10.0.0.7:8080", ""), 200);
    assert_int_equal(get("/health", "gpu7", ""), 200);
    serve_down();
    serve_start("--api-key", "0123456789abcdef");
    S.srv->loopback = false;
    assert_int_equal(get("/health", "any.example", ""), 200); /* a page has no key */
    serve_down();
    serve_start("--allowed-host", "llm.example");
    assert_int_equal(get("/health", "llm.example", ""), 200);
    assert_int_equal(get("/health", "evil.example", ""), 403);
    S.srv->loopback = false;
    assert_int_equal(get("/health", "llm.example", ""), 200);
    assert_int_equal(get("/health", "10.0.0.7", ""), 200);
    assert_int_equal(get("/health", "evil.example", ""), 403);
    serve_down();
    serve_start("--allowed-host", "*");
    assert_int_equal(get("/health", "evil.example", ""), 200);
    serve_down();
}

#define KEY "x-api-key: 0123456789abcdef\r\n"

static void J23_metrics_beyond_loopback_need_a_key(void **state)
{
    (void)state;
    serve_start("--api-key", "0123456789abcdef");
    assert_int_equal(get("/metrics", "localhost", ""), 200);
    S.srv->loopback = false;
    assert_int_equal(get("/metrics", "localhost", ""), 401);
    assert_int_equal(get("/metrics", "localhost", KEY), 200);
    S.cfg.open_metrics = true;
    assert_int_equal(get("/metrics", "localhost", ""), 200);
    S.cfg.open_metrics = false;
    S.srv->loopback = true;
    S.cfg.protect_metrics = true;
    assert_int_equal(get("/metrics", "localhost", ""), 401);
    serve_down();
    serve_start(NULL, NULL); /* for anyone: there is no key to ask for */
    S.srv->loopback = false;
    assert_int_equal(get("/metrics", "localhost", ""), 200);
    serve_down();
}

static void J5_guessing_is_slowed_and_counted(void **state)
{
    (void)state;
    serve_start("--api-key", "0123456789abcdef");
    assert_int_equal(get("/v1/models", "localhost", KEY), 200);
    assert_int_equal(get("/v1/models", "localhost", ""), 401);
    int n401 = 0, n429 = 0;
    for (int i = 0; i < 40; i++) {
        int status = get("/v1/models", "localhost", "x-api-key: wrong\r\n");
        n401 += status == 401;
        n429 += status == 429;
    }
    assert_int_equal(n401 + n429, 40);
    assert_in_range(n401, 10, 39);                              /* ten, and one more for each second that this took */
    assert_int_equal(get("/v1/models", "localhost", KEY), 200); /* it was right from here before */
    assert_int_equal(get("/v1/models", "localhost", ""), 401);  /* no key is no guess */
    assert_int_equal(get("/metrics", "localhost", ""), 200);
    assert_non_null(strstr(got, "spillway:auth_failures_total{reason=\"missing\"} 2"));
    char want[100];
    snprintf(want, sizeof want, "spillway:auth_failures_total{reason=\"wrong\"} %d", n401);
    assert_non_null(strstr(got, want));
    snprintf(want, sizeof want, "spillway:auth_failures_total{reason=\"slowed\"} %d", n429);
    assert_non_null(strstr(got, want));
    serve_down();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(J9_names_that_nobody_can_register_are_local),
        cmocka_unit_test(J9_which_hosts_are_taken),
        cmocka_unit_test(J23_metrics_beyond_loopback_need_a_key),
        cmocka_unit_test(J5_guessing_is_slowed_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
