/* Generations through the server, with an engine that answers as it is told (serve.h). Over 500 lines: one way of a
 * generation through the server, from a bad body to a client that goes away. */
#include "serve.h"

static int down(void **state)
{
    (void)state;
    serve_down();
    return 0;
}
static int up(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    return 0;
}
#define BODY(fields) "{\"prompt\":\"Once\",\"temperature\":0,\"ignore_eos\":true," fields "}"
static char text[65536];

static char *complete(const char *body)
{
    post(text, sizeof text, "/v1/completions", "Connection: close\r\n", body);
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    raw_read(fd, NULL);
    close(fd);
    return got;
}
static unsigned count(const char *s, const char *what)
{
    unsigned n = 0;
    for (; (s = strstr(s, what)); s += strlen(what)) n++;
    return n;
}

static void an_answer_comes_whole(void **state)
{
    (void)state;
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":20"))), 200);
    assert_non_null(strstr(got, "\"completion_tokens\":20"));
    assert_non_null(strstr(got, "Content-Length: "));
    assert_true(eventually(no_generation));
}

static void a_stream_has_one_event_per_token_and_an_end(void **state)
{
    (void)state;
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":50,\"stream\":true"))), 200);
    assert_non_null(strstr(got, "Content-Type: text/event-stream; charset=utf-8\r\n"));
    assert_non_null(strstr(got, "data: [DONE]\n\n"));
    assert_non_null(strstr(got, "\r\n0\r\n\r\n"));
    assert_in_range(count(got, "data: {"), 50, 53);
    assert_true(eventually(no_generation));
}

static void A23_a_client_of_http_1_0_gets_no_chunks(void **state)
{
    (void)state;
    const char *body = BODY("\"max_tokens\":5,\"stream\":true");
    snprintf(text, sizeof text,
             "POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    raw_read(fd, NULL);
    assert_true(got_eof);
    assert_null(strstr(got, "chunked"));
    assert_string_equal(strstr(got, "data: [DONE]"), "data: [DONE]\n\n");
    close(fd);
}

static void a_large_prompt_goes_through_a_text_thread(void **state)
{
    (void)state;
    char *big = malloc(40000);
    int   n = snprintf(big, 40000, "{\"max_tokens\":3,\"user\":\"");
    memset(big + n, 'x', 30000);
    snprintf(big + n + 30000, 100, "\",\"prompt\":\"Hi\"}");
    assert_int_equal(status_of(complete(big)), 200);
    free(big);
    assert_true(eventually(no_generation));
}

static bool all_canceled(void) { return atomic_load(&S.mock.n_canceled) >= 1 && no_generation(); }

static void A41_a_client_that_leaves_is_canceled(void **state)
{
    (void)state;
    S.mock.first_only = 2;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":1000,\"stream\":true"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    raw_read(fd, "data: {");
    assert_non_null(strstr(got, "data: {"));
    close(fd);
    assert_true(eventually(all_canceled));
    S.mock.first_only = 0;
}

static bool one_is_live(void) { return atomic_load(&S.mock.n_live) == 1; }

static void A40_a_half_closed_client_is_gone(void **state)
{
    (void)state;
    uint64_t before = atomic_load(&S.mock.n_canceled);
    S.mock.hold = true;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":1000"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    assert_true(eventually(one_is_live));
    shutdown(fd, SHUT_WR);
    raw_read(fd, NULL);
    assert_true(got_eof && n_got == 0);
    close(fd);
    assert_true(eventually(no_generation));
    assert_true(atomic_load(&S.mock.n_canceled) > before);
    S.mock.hold = false;
}

/* A whole request and then as much of further ones as the server holds, and the socket besides. */
static int pipeline_behind_one(size_t n_behind)
{
    static char behind[256 << 10];
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":1000"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    assert_true(eventually(one_is_live));
    for (size_t i = 0; i < n_behind; i++) behind[i] = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n"[i % 39];
    raw_send(fd, behind, n_behind);
    return fd;
}
static uint64_t canceled_before;
static bool     one_more_canceled(void)
{
    return atomic_load(&S.mock.n_canceled) == canceled_before + 1 && no_generation();
}

static void A53_a_client_that_hangs_up_is_noticed_behind_its_pipelined_requests(void **state)
{
    (void)state;
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    S.mock.hold = true;
    for (int how = 0; how < 3; how++) {
        canceled_before = atomic_load(&S.mock.n_canceled);
        int fd = pipeline_behind_one(IN_MAX + 20000);
        usleep(20000); /* the server has read what it reads, nearly always; where not, the plain way is tested */
        if (how == 0) shutdown(fd, SHUT_WR);
        if (how == 1) setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now); /* a reset */
        if (how) close(fd);
        assert_true(eventually(one_more_canceled));
        if (!how) close(fd);
        assert_true(eventually(no_connection));
    }
    S.mock.hold = false;
}

static void A53_half_close_serve_answers_what_was_pipelined(void **state)
{
    (void)state;
    serve_start("--half-close", "serve");
    S.mock.hold = true;
    int fd = pipeline_behind_one(39 * 1900);
    shutdown(fd, SHUT_WR);
    usleep(50000);
    assert_int_equal(atomic_load(&S.srv->n_gen), 1); /* it still reads */
    struct linger now = { .l_onoff = 1, .l_linger = 0 };
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
    assert_true(eventually(no_generation)); /* and now it is gone */
    S.mock.hold = false;
    serve_down();
}

static uint64_t unread_bytes(void) { return S.srv->io[0].unread[UNREAD_OPEN].bytes; }
static bool     nothing_is_held(void) { return no_connection() && !unread_bytes(); }

static bool some_were_dropped(void)
{
    ASK("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return strstr(got, "\nspillway:unread_dropped_total ") && !strstr(got, "\nspillway:unread_dropped_total 0.0\n");
}

/* Clients that read are served meanwhile. */
static void A54_answers_that_nobody_reads_are_bounded(void **state)
{
    (void)state;
    enum { CLIENTS = 300, PIPELINED = 60 };
    static int     fd[CLIENTS];
    struct buf     b;
    uint64_t       most = 0;
    int            small = 4096, n = 0;
    struct unread *open = &S.srv->io[0].unread[UNREAD_OPEN];
    const uint64_t whole = open->bytes_max, budget = 512 << 10;
    open->bytes_max = budget; /* the whole one depends on the machine's memory */
    buf_init(&b, 1 << 20);
    for (int i = 0; i < PIPELINED; i++) buf_puts(&b, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (; n < CLIENTS; n++) {
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_port = htons(S.srv->port),
                                 .sin_addr = { htonl(INADDR_LOOPBACK) } };
        if ((fd[n] = socket(AF_INET, SOCK_STREAM, 0)) < 0) break; /* as many as this machine lets a process have */
        setsockopt(fd[n], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        assert_int_equal(connect(fd[n], (struct sockaddr *)&a, sizeof a), 0);
        raw_send(fd[n], b.data, b.n);
        if (n % 20) continue;
        assert_int_equal(status_of(ASK("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
        if (unread_bytes() > most) most = unread_bytes();
    }
    assert_true(most > 0);
    assert_true(most <= budget + OUT_UNTRIED);
    assert_true(eventually(some_were_dropped)); /* there was more than the budget */
    for (int i = 0; i < n; i++) close(fd[i]);
    assert_true(eventually(nothing_is_held));
    open->bytes_max = whole;
    buf_free(&b);
}

static bool one_is_parked(void)
{
    ASK("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return strstr(got, "\nspillway:slow_reader_pauses_total ") &&
           !strstr(got, "\nspillway:slow_reader_pauses_total 0.0\n");
}

static void A38_a_slow_reader_is_parked_and_loses_nothing(void **state)
{
    (void)state;
    int small = 32768, fd = raw_connect();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    post(text, sizeof text, "/v1/completions", "Connection: close\r\n",
         BODY("\"max_tokens\":1900,\"stream\":true,\"logprobs\":5,\"n\":1"));
    raw_send(fd, text, strlen(text));
    assert_true(eventually(one_is_parked));
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":5"))), 200); /* others go on */
    raw_read(fd, "data: [DONE]");
    assert_non_null(strstr(got, "data: [DONE]"));
    assert_in_range(count(got, "data: {"), 1900, 1903);
    close(fd);
    assert_true(eventually(no_generation));
}

static void A49_an_error_in_a_stream_is_an_event_and_the_end(void **state)
{
    (void)state;
    S.mock.fail = true;
    complete(BODY("\"max_tokens\":100,\"stream\":true"));
    assert_int_equal(status_of(got), 200);
    assert_non_null(strstr(got, "data: {\"error\":"));
    assert_null(strstr(got, "[DONE]"));
    assert_true(got_eof);
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":100"))), 500);
    S.mock.fail = false;
    assert_true(eventually(no_generation));
}

static void a_full_engine_is_429_at_once(void **state)
{
    (void)state;
    S.mock.refuse_above = 1;
    S.mock.hold = true;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":10"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    assert_true(eventually(one_is_live));
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":10"))), 429);
    assert_non_null(strstr(got, "Retry-After: "));
    assert_int_equal(status_of(complete("{\"prompt\":[\"a\",\"b\"],\"max_tokens\":4}")), 429);
    S.mock.refuse_above = 0;
    S.mock.hold = false;
    assert_int_equal(status_of(raw_read(fd, "\r\n\r\n")), 200);
    close(fd);
    assert_true(eventually(no_generation));
}

static void many_prompts_and_choices_come_back_in_one_answer(void **state)
{
    (void)state;
    assert_int_equal(
        status_of(complete(
            "{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":2,\"max_tokens\":7,\"temperature\":0.5,\"ignore_eos\":true}")),
        200);
    assert_non_null(strstr(got, "\"completion_tokens\":42"));
    assert_non_null(strstr(got, "\"index\":5"));
    assert_true(eventually(no_generation));
}

static void a_draining_server_finishes_and_refuses(void **state)
{
    (void)state;
    S.mock.first_only = 2;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":100,\"stream\":true"));
    int fd = raw_connect(), idle = raw_connect();
    raw_send(fd, text, strlen(text));
    raw_send(idle, "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n", 40);
    raw_read(idle, "\r\n\r\n");
    assert_int_equal(status_of(got), 200);
    raw_read(fd, "data: {");
    server_drain(S.srv);
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":5"))), 503);
    assert_non_null(strstr(got, "Connection: close\r\n"));
    assert_non_null(strstr(got, "Retry-After: "));
    assert_int_equal(status_of(ASK("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    raw_read(idle, NULL);
    assert_true(got_eof);
    S.mock.first_only = 0; /* it goes on */
    raw_read(fd, "0\r\n\r\n");
    assert_non_null(strstr(got, "[DONE]"));
    close(fd);
    close(idle);
    assert_true(eventually(no_generation));
}

static bool body_on_its_way(void) { return atomic_load(&S.srv->n_body) == 1; }
static bool idle(void) { return server_idle(S.srv); }

static void a_leaving_server_takes_requests_and_tells_balancers(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    int kept = raw_connect();
    raw_send(kept, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 41);
    raw_read(kept, "\r\n\r\n");
    server_leave(S.srv);
    assert_int_equal(status_of(ASK("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":5"))), 200);
    assert_non_null(strstr(got, "Connection: close\r\n"));
    /* A connection that was there before is not closed under its client: its next answer says so. */
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":5"));
    raw_send(kept, text, strlen(text));
    raw_read(kept, NULL);
    assert_int_equal(status_of(got), 200);
    assert_non_null(strstr(got, "Connection: close\r\n"));
    assert_true(got_eof);
    close(kept);
    serve_down();
}

static void a_drain_waits_for_a_body_that_is_on_its_way(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":5"));
    int    fd = raw_connect();
    size_t half = strlen(text) - 10;
    raw_send(fd, text, half);
    assert_true(eventually(body_on_its_way));
    server_drain(S.srv);
    assert_false(server_idle(S.srv));
    raw_send(fd, text + half, strlen(text) - half);
    raw_read(fd, NULL);
    assert_int_equal(status_of(got), 200);
    close(fd);
    assert_true(eventually(idle));
    serve_down();
}

static void a_body_that_never_ends_is_forgotten_with_its_connection(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":5"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text) - 10);
    assert_true(eventually(body_on_its_way));
    close(fd);
    assert_true(eventually(idle));
    fd = raw_connect();
    raw_send(fd, text, strlen(text) - 1);
    raw_send(fd, "]", 1); /* no JSON: refused */
    raw_read(fd, "\r\n\r\n");
    assert_int_equal(status_of(got), 400);
    assert_true(eventually(idle));
    close(fd);
    serve_down();
}

static void a_request_that_still_runs_at_the_drain_limit_gets_an_error(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    S.mock.first_only = 2;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":1000,\"stream\":true"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    raw_read(fd, "data: {");
    server_drain(S.srv);
    server_fail_all(S.srv);
    raw_read(fd, NULL);
    assert_true(got_eof);
    assert_non_null(strstr(got, "data: {\"error\":"));
    assert_null(strstr(got, "[DONE]"));
    close(fd);
    assert_true(eventually(no_generation));
    serve_down();
}

static void I21_a_loading_server_says_so(void **state)
{
    (void)state;
    serve_up(false, NULL, NULL);
    assert_int_equal(status_of(ASK("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_non_null(strstr(got, "Retry-After: "));
    assert_int_equal(status_of(complete("{}")), 503);
    assert_int_equal(status_of(ASK("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    serve_ready();
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":5"))), 200);
    serve_down();
}

static void a_dead_engine_is_told_to_probes_and_clients(void **state)
{
    (void)state;
    serve_start(NULL, NULL);
    atomic_store(&S.mock.dead, true);
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_int_equal(status_of(ASK("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    assert_int_equal(status_of(complete(BODY("\"max_tokens\":5"))), 503);
    serve_down();
}

static void J1_every_guarded_route_wants_a_key(void **state)
{
    (void)state;
    static const char *const guarded[] = { "GET /v1/models",       "GET /v1/models/x",          "GET /version",
                                           "POST /v1/completions", "POST /v1/chat/completions", "POST /tokenize",
                                           "POST /detokenize",     "POST /invocations" };
    static const char *const bad[] = { "",
                                       "Authorization: Bearer wrong\r\n",
                                       "Authorization: Bearer sk-righ\r\n",
                                       "Authorization: Basic sk-right\r\n",
                                       "Authorization: Bearer sk-right\r\nAuthorization: Bearer sk-right\r\n",
                                       "Authorization: Bearer\r\n",
                                       "x-api-key: wrong\r\n" };
    serve_start("--api-key", "sk-right");
    strikes_free(S.srv->strikes);
    assert_int_equal(strikes_create(0, &S.srv->strikes), ST_OK); /* --max-key-failures 0 */
    for (size_t i = 0; i < ARRAY_N(guarded); i++) {
        for (size_t k = 0; k < ARRAY_N(bad); k++) {
            snprintf(
                text, sizeof text,
                "%s?key=sk-right HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n%s\r\n{}",
                guarded[i], bad[k]);
            assert_int_equal(status_of(ask_bytes(text, strlen(text))), 401);
            assert_non_null(strstr(got, "WWW-Authenticate: Bearer\r\n"));
            assert_null(strstr(got, "sk-right"));
        }
    }
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    assert_int_equal(
        status_of(ASK("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk-right\r\n\r\n")), 200);
    assert_int_equal(status_of(ASK("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: sk-right\r\n\r\n")), 200);
    post(text, sizeof text, "/v1/completions", "Authorization: Bearer sk-right\r\n", BODY("\"max_tokens\":5"));
    assert_int_equal(status_of(ask_bytes(text, strlen(text))), 200);
    serve_down();
}

static void A34_the_oldest_idle_connection_makes_room(void **state)
{
    (void)state;
    serve_start("--max-connections", "8");
    int fd[8], busy[30];
    for (int i = 0; i < 8; i++) {
        fd[i] = raw_connect();
        raw_send(fd[i], "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 41);
        assert_int_equal(status_of(raw_read(fd[i], "\r\n\r\n")), 200);
    }
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    raw_read(fd[0], NULL);
    assert_true(got_eof);
    raw_read_ms(fd[7], NULL, 50);
    assert_false(got_eof);
    for (int i = 0; i < 30; i++) {
        busy[i] = raw_connect();
        raw_send(busy[i], "GET /", 5);
    }
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 503);
    assert_true(got_eof);
    for (int i = 0; i < 30; i++) close(busy[i]);
    for (int i = 0; i < 8; i++) close(fd[i]);
    assert_true(eventually(no_connection));
    assert_int_equal(status_of(ASK("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")), 200);
    serve_down();
}

static void J9_cors_only_for_the_origins_given(void **state)
{
    (void)state;
    serve_start("--cors-origin", "http://app.example");
    ASK("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n");
    assert_int_equal(status_of(got), 204);
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: http://app.example\r\n"));
    static const char *const of_clients[] = { "authorization", "anthropic-version",
                                              "anthropic-dangerous-direct-browser-access", "openai-organization",
                                              "x-stainless-lang" };
    for (size_t i = 0; i < sizeof of_clients / sizeof *of_clients; i++) {
        const char *list = strstr(got, "Access-Control-Allow-Headers: ");
        const char *at = list ? strstr(list, of_clients[i]) : NULL;
        assert_true(at && at < strstr(list, "\r\n"));
    }
    ASK("OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n");
    assert_int_equal(status_of(got), 405);
    assert_null(strstr(got, "Access-Control"));
    ASK("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.example\r\n\r\n");
    assert_non_null(strstr(got, "Access-Control-Allow-Origin: http://app.example\r\n"));
    serve_down();
}

static bool no_connection_anywhere(void)
{
    for (uint32_t i = 0; i < S.srv->n_io; i++)
        if (atomic_load(&S.srv->io[i].n_conn)) return false;
    return true;
}

static void three_io_threads_share_the_work(void **state)
{
    (void)state;
    serve_start("--io-threads", "3");
    int fd[60];
    post(text, sizeof text, "/v1/completions", "Connection: close\r\n", BODY("\"max_tokens\":40,\"stream\":true"));
    for (int i = 0; i < 60; i++) {
        fd[i] = raw_connect();
        raw_send(fd[i], text, strlen(text));
    }
    for (int i = 0; i < 60; i++) {
        raw_read(fd[i], NULL);
        assert_int_equal(status_of(got), 200);
        assert_non_null(strstr(got, "data: [DONE]"));
        close(fd[i]);
    }
    assert_true(eventually(no_connection_anywhere));
    assert_true(eventually(no_generation));
    serve_down();
}

static void half_close_serve_delivers_the_whole_answer(void **state)
{
    (void)state;
    serve_start("--half-close", "serve");
    S.mock.pause_us = 1000;
    post(text, sizeof text, "/v1/completions", "", BODY("\"max_tokens\":50"));
    int fd = raw_connect();
    raw_send(fd, text, strlen(text));
    shutdown(fd, SHUT_WR);
    assert_int_equal(status_of(raw_read(fd, NULL)), 200);
    assert_true(got_eof);
    assert_non_null(strstr(got, "\"completion_tokens\":50"));
    close(fd);
    serve_down();
}

int main(void)
{
    const struct CMUnitTest one[] = {
        cmocka_unit_test(an_answer_comes_whole),
        cmocka_unit_test(a_stream_has_one_event_per_token_and_an_end),
        cmocka_unit_test(A23_a_client_of_http_1_0_gets_no_chunks),
        cmocka_unit_test(a_large_prompt_goes_through_a_text_thread),
        cmocka_unit_test(A41_a_client_that_leaves_is_canceled),
        cmocka_unit_test(A40_a_half_closed_client_is_gone),
        cmocka_unit_test(A53_a_client_that_hangs_up_is_noticed_behind_its_pipelined_requests),
        cmocka_unit_test(A54_answers_that_nobody_reads_are_bounded),
        cmocka_unit_test(A38_a_slow_reader_is_parked_and_loses_nothing),
        cmocka_unit_test(A49_an_error_in_a_stream_is_an_event_and_the_end),
        cmocka_unit_test(a_full_engine_is_429_at_once),
        cmocka_unit_test(many_prompts_and_choices_come_back_in_one_answer),
        cmocka_unit_test(a_draining_server_finishes_and_refuses),
    };
    const struct CMUnitTest own[] = {
        cmocka_unit_test(a_leaving_server_takes_requests_and_tells_balancers),
        cmocka_unit_test(a_drain_waits_for_a_body_that_is_on_its_way),
        cmocka_unit_test(a_body_that_never_ends_is_forgotten_with_its_connection),
        cmocka_unit_test(a_request_that_still_runs_at_the_drain_limit_gets_an_error),
        cmocka_unit_test(I21_a_loading_server_says_so),
        cmocka_unit_test(a_dead_engine_is_told_to_probes_and_clients),
        cmocka_unit_test(J1_every_guarded_route_wants_a_key),
        cmocka_unit_test(A34_the_oldest_idle_connection_makes_room),
        cmocka_unit_test(J9_cors_only_for_the_origins_given),
        cmocka_unit_test(three_io_threads_share_the_work),
        cmocka_unit_test(A53_half_close_serve_answers_what_was_pipelined),
        cmocka_unit_test(half_close_serve_delivers_the_whole_answer),
    };
    return cmocka_run_group_tests(one, up, down) + cmocka_run_group_tests(own, NULL, NULL);
}
