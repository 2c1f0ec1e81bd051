/* serve: a whole server floor in a test: loopback port, one io thread, the embedded model's text side, a mock engine;
 * and a raw client. serve_up -> raw_* -> serve_down. */
#pragma once
#include "test.h"

#include "../../../tools/bench/mock_engine.h"
#include "base/log.h"
#include "server/boot.h"
#include "server/metrics.h"
#include "server/routes.h"
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

struct serve {
    struct config  cfg;
    struct auth   *auth;
    struct server *srv;
    struct boot    boot;
    struct mock    mock;
    uint32_t       ids[64];
    bool           ready;
};
static struct serve S;

static void serve_up(bool ready, const char *option, const char *value)
{
    char  err[400] = "";
    char *argv[] = { "test", "--port", "0", "--log-level", "error", (char *)(uintptr_t)option, (char *)(uintptr_t)value,
                     NULL };
    memset(&S, 0, sizeof S);
    log_init(LOG_LEVEL_ERROR, 2, false);
    int n_arg = 5 + (option != NULL) + (option && value);
    assert_int_equal(config_parse(&S.cfg, n_arg, argv, NULL, err, sizeof err), 0);
    assert_int_equal(boot_text(&S.boot, &S.cfg), 0);
    assert_int_equal(auth_create(&S.cfg, &S.auth, err, sizeof err), ST_OK);
    assert_int_equal(server_create(&S.cfg, S.auth, routes_served(true), &S.srv), ST_OK);
    assert_int_equal(server_listen(S.srv, -1, err, sizeof err), ST_OK);
    for (uint32_t i = 0; i < 64; i++) S.ids[i] = 300 + i;
    S.mock.id = S.ids;
    S.mock.n_id = 64;
    S.mock.burst = 4;
    S.ready = ready;
}
static void serve_ready(void)
{
    assert_int_equal(mock_start(&S.mock), ST_OK);
    struct gen_engine eng = mock_engine_ops(&S.mock);
    server_ready(S.srv, &S.boot.model, &eng);
    S.ready = true;
}
static void serve_down(void)
{
    server_fail_all(S.srv);
    server_stop(S.srv);
    if (S.ready) mock_stop(&S.mock);
    server_free(S.srv);
    boot_free(&S.boot);
    auth_free(S.auth);
    config_free(&S.cfg);
}
static inline void serve_start(const char *option, const char *value)
{
    serve_up(false, option, value);
    serve_ready();
}

/* ---- a raw client ---- */

static int raw_connect(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(S.srv->port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int                fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}
static void raw_send(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return; /* closed by the server: what it said is read next */
        p += k;
        n -= (size_t)k;
    }
}
static char   got[1 << 22];
static size_t n_got;
static bool   got_eof;
/* Reads until `until` is in what came, the server closes, or ms pass. */
static inline char *raw_read_ms(int fd, const char *until, int ms)
{
    uint64_t end = clock_us() + (uint64_t)ms * 1000;
    n_got = 0;
    got[0] = 0;
    got_eof = false;
    while (!until || !strstr(got, until)) {
        uint64_t      now = clock_us();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (now >= end || poll(&p, 1, (int)((end - now) / 1000) + 1) <= 0) break;
        ssize_t k = recv(fd, got + n_got, sizeof got - 1 - n_got, 0);
        if (k <= 0) {
            got_eof = true;
            break;
        }
        n_got += (size_t)k;
        got[n_got] = 0;
    }
    return got;
}
static inline char *raw_read(int fd, const char *until)
{
    return raw_read_ms(fd, until, PATIENCE_S * 1000);
} /* NULL: all, to the close */
/* The whole first reply is there: by its length, its last chunk, or the close that it announces. */
static bool reply_is_whole(bool head)
{
    const char *body = strstr(got, "\r\n\r\n"), *n = strstr(got, "Content-Length: ");
    if (!body || got_eof) return got_eof;
    if (strstr(got, "Connection: close")) return false;
    if (head) return true;
    if (n && n < body) return n_got >= (size_t)(body + 4 - got) + strtoul(n + 16, NULL, 10);
    return !strstr(got, "Transfer-Encoding: chunked") || strstr(body, "\r\n0\r\n\r\n");
}
/* One request on its own connection, and what the server says to it. */
static char *ask_bytes(const char *p, size_t n)
{
    bool     head = n > 5 && !memcmp(p, "HEAD ", 5);
    uint64_t end = clock_us() + PATIENCE_S * 1000000u;
    int      fd = raw_connect();
    raw_send(fd, p, n);
    n_got = 0;
    got[0] = 0;
    got_eof = false;
    while (!reply_is_whole(head) && clock_us() < end) {
        struct pollfd in = { .fd = fd, .events = POLLIN };
        if (poll(&in, 1, PATIENCE_S * 1000) <= 0) break;
        ssize_t k = recv(fd, got + n_got, sizeof got - 1 - n_got, 0);
        if (k <= 0)
            got_eof = true;
        else
            n_got += (size_t)k;
        got[n_got] = 0;
    }
    close(fd);
    return got;
}
#define ASK(text) ask_bytes(text, sizeof text - 1)
static int status_of(const char *reply)
{
    return strncmp(reply, "HTTP/1.1 ", 9) ? -1 : (int)strtol(reply + 9, NULL, 10);
}

static inline char *post(char *out, size_t n_out, const char *path, const char *fields, const char *body)
{
    snprintf(out, n_out,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s\r\n%s",
             path, strlen(body), fields, body);
    return out;
}
static inline bool eventually(bool (*check)(void))
{
    for (int i = 0; i < PATIENCE_S * 1000 && !check(); i++) usleep(1000);
    return check();
}
static inline bool no_connection(void) { return atomic_load(&S.srv->io[0].n_conn) == 0; }
static inline bool no_generation(void) { return atomic_load(&S.srv->n_gen) == 0 && atomic_load(&S.mock.n_live) == 0; }
