/* bench_sse: what the server floor alone can carry: sockets, HTTP, JSON and SSE, with an engine that computes nothing.
 *   bench_sse [--connections 256] [--seconds 5] [--burst 32]
 *       this process serves, one io thread; a child reads: SSE events per second
 *   bench_sse --idle 1000
 *       so many streams that are silent after their first token: the server's growth in resident memory
 * The last line is JSON. Load for a whole server: bench_serve. */
#include "mock_engine.h"
#include "base/log.h"
#include "server/boot.h"
#include "server/routes.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct opts {
    uint16_t port;
    uint32_t connections, burst, idle;
    double   seconds;
};
enum { PROMPT_WORDS = 8, OUTPUT_TOKENS = 1900 };

/* ---- one connection that asks, counts events, and asks again ---- */

struct client {
    int      fd;
    bool     busy, keep, body;
    char     last; /* byte before this read, for "\n\n" over its edge */
    char     head[512];
    uint32_t n_head, status;
    char     tail[16]; /* of the answer: to see its end */
    uint64_t n_event;
};
struct load {
    const struct opts *o;
    int                epoll;
    struct client     *client;
    uint32_t           n_client, n_started, n_done, n_error;
    uint64_t           n_event, n_byte;
    uint32_t           to_start; /* requests left to send */
};

static char *request_text(uint32_t index, size_t *n_out)
{
    struct buf body, all;
    buf_init(&body, 1 << 16);
    buf_init(&all, 1 << 16);
    buf_puts(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (uint32_t i = 0; i < PROMPT_WORDS; i++)
        buf_printf(&body, "%s%s", i ? " " : "", (index + i) % 7 ? "the" : "word");
    buf_printf(&body, "\"}],\"max_tokens\":%d,\"ignore_eos\":true,\"stream\":true,\"temperature\":0}", OUTPUT_TOKENS);
    buf_printf(
        &all,
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        body.n);
    buf_put(&all, body.data, body.n);
    buf_free(&body);
    *n_out = all.n;
    return all.data;
}

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int                one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a)) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void client_start(struct load *l, struct client *c)
{
    if (!l->to_start) {
        c->busy = false;
        return;
    }
    if (c->fd < 0) {
        c->fd = connect_to(l->o->port);
        if (c->fd < 0) {
            l->n_error++;
            l->to_start--;
            l->n_done++;
            c->busy = false;
            return;
        }
        struct epoll_event ev = { .events = EPOLLIN, .data.u32 = (uint32_t)(c - l->client) };
        epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &ev);
    }
    size_t n;
    char  *text = request_text(l->n_started, &n);
    for (size_t at = 0; at < n;) { /* the server reads at once: a short wait at most */
        ssize_t got = send(c->fd, text + at, n - at, MSG_NOSIGNAL);
        if (got > 0)
            at += (size_t)got;
        else if (got < 0 && errno != EAGAIN)
            break;
    }
    free(text);
    l->n_started++;
    l->to_start--;
    c->busy = true;
    c->body = false;
    c->keep = true;
    c->n_head = c->status = 0;
    c->n_event = 0;
    c->last = 0;
    memset(c->tail, 0, sizeof c->tail);
}

static void client_done(struct load *l, struct client *c, bool ok)
{
    l->n_done++;
    if (!ok) l->n_error++;
    if (!ok || !c->keep) {
        close(c->fd);
        c->fd = -1;
    }
    client_start(l, c);
}

static uint64_t count_events(const char *p, size_t n, char *last)
{
    uint64_t    k = 0;
    const char *end = p + n;
    if (n && *last == '\n' && *p == '\n') k++;
    for (const char *q = p; (q = memchr(q, '\n', (size_t)(end - q))); q++) {
        if (q + 1 < end && q[1] == '\n') {
            k++;
            q++;
        }
        if (q + 1 >= end) break;
    }
    *last = n ? end[-1] : *last;
    return k;
}

/* Bytes of an answer: the head until its empty line, then events until the last chunk. */
static void client_bytes(struct load *l, struct client *c, const char *p, size_t n)
{
    l->n_byte += n;
    if (!c->body) {
        while (n && !c->body) {
            if (c->n_head + 1 < sizeof c->head) c->head[c->n_head++] = *p;
            p++;
            n--;
            c->body = c->n_head >= 4 && !memcmp(c->head + c->n_head - 4, "\r\n\r\n", 4);
            if (!c->body && c->n_head + 1 == sizeof c->head) {
                memmove(c->head + 16, c->head + c->n_head - 8, 8);
                c->n_head = 24;
            }
        }
        if (!c->status && c->n_head > 12) c->status = (uint32_t)strtoul(c->head + 9, NULL, 10);
        if (c->body && c->status != 200) {
            c->keep = false;
            client_done(l, c, false);
            return;
        }
    }
    if (!n) return;
    uint64_t k = count_events(p, n, &c->last);
    l->n_event += k;
    c->n_event += k;
    size_t take = n < 7 ? n : 7;
    memmove(c->tail, c->tail + take, 7 - take);
    memcpy(c->tail + 7 - take, p + n - take, take);
    if (!memcmp(c->tail, "\r\n0\r\n\r\n", 7)) client_done(l, c, true);
}

/* Runs until all are done, the time is over (0: no limit), or *stop. */
static void load_run(struct load *l, double seconds)
{
    static char        bytes[1 << 18];
    struct epoll_event ev[256];
    uint64_t           t0 = clock_us(), n_total = l->to_start;
    for (uint32_t i = 0; i < l->n_client; i++) client_start(l, &l->client[i]);
    while (l->n_done < n_total) {
        int      n = epoll_wait(l->epoll, ev, 256, 100);
        uint64_t now = clock_us();
        if (seconds > 0 && (double)(now - t0) / 1e6 >= seconds) break;
        for (int i = 0; i < n; i++) {
            struct client *c = &l->client[ev[i].data.u32];
            ssize_t        got = c->fd >= 0 ? recv(c->fd, bytes, sizeof bytes, 0) : -1;
            if (got > 0 && c->busy)
                client_bytes(l, c, bytes, (size_t)got);
            else if (got == 0 || (got < 0 && errno != EAGAIN && c->fd >= 0)) {
                c->keep = false;
                if (c->busy)
                    client_done(l, c, false);
                else {
                    close(c->fd);
                    c->fd = -1;
                }
            }
        }
    }
}

static void load_init(struct load *l, const struct opts *o, uint32_t n_client, uint32_t n_request)
{
    memset(l, 0, sizeof *l);
    l->o = o;
    l->n_client = n_client;
    l->to_start = n_request;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->client = calloc(n_client, sizeof *l->client);
    if (l->epoll < 0 || !l->client) exit(70);
    for (uint32_t i = 0; i < n_client; i++) l->client[i].fd = -1;
}

/* ---- against the server floor in this process ---- */

static const char sample_text[] =
    "Once upon a time there was a small stream that ran down a hill and over a spillway into the "
    "valley, where the mill turned slowly, and the miller counted the turns: one, two, three.";

struct bench_server {
    struct config  cfg;
    struct auth   *auth;
    struct server *srv;
    struct boot    boot;
    struct mock    mock;
    struct arena   arena;
};

static void server_up(struct bench_server *b, const struct opts *o)
{
    char  port[] = "0", err[400] = "";
    char *argv[] = { "bench_sse", "--port", port, "--max-queue-requests", "16384", "--log-level", "warn", NULL };
    if (config_parse(&b->cfg, 7, argv, NULL, err, sizeof err) || boot_text(&b->boot, &b->cfg) ||
        auth_create(&b->cfg, &b->auth, err, sizeof err) ||
        server_create(&b->cfg, b->auth, routes_served(false), &b->srv) || server_listen(b->srv, -1, err, sizeof err)) {
        fprintf(stderr, "bench_sse: the server cannot start: %s%s\n", err, b->boot.err);
        exit(70);
    }
    log_init(LOG_LEVEL_WARN, 2, false);
    struct tok_ids ids = { 0 };
    arena_init(&b->arena, 1 << 20);
    if (tok_encode(b->boot.tok, sample_text, sizeof sample_text - 1, 0, 4096, &b->arena, &ids)) exit(70);
    b->mock.id = ids.id;
    b->mock.n_id = (uint32_t)ids.n;
    b->mock.burst = o->burst;
    if (o->idle) b->mock.first_only = 1;
    if (mock_start(&b->mock)) exit(70);
    struct gen_engine eng = mock_engine_ops(&b->mock);
    server_ready(b->srv, &b->boot.model, &eng);
}

static void server_down(struct bench_server *b)
{
    server_fail_all(b->srv);
    server_stop(b->srv);
    mock_stop(&b->mock);
    server_free(b->srv);
    boot_free(&b->boot);
    auth_free(b->auth);
    arena_free(&b->arena);
    config_free(&b->cfg);
}

static long rss_kib(void)
{
    char  line[200];
    long  kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
    if (f) fclose(f);
    return kib;
}

static double cpu_s(int who)
{
    struct rusage r;
    getrusage(who, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static double user_s(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)r.ru_utime.tv_sec + (double)r.ru_utime.tv_usec / 1e6;
}

struct child_result {
    uint64_t n_event, n_byte;
    uint32_t n_done, n_error;
    double   seconds;
};

static int bench(struct opts *o)
{
    static struct bench_server b;
    int                        to_child[2], to_parent[2];
    if (pipe(to_child) || pipe(to_parent)) return 70;
    /* The child is made before any thread runs; it waits for the port. */
    pid_t pid = fork();
    if (pid < 0) return 70;
    if (!pid) {
        struct child_result res = { 0 };
        if (read(to_child[0], &o->port, sizeof o->port) != sizeof o->port) _exit(1);
        struct load l;
        load_init(&l, o, o->idle ? o->idle : o->connections, o->idle ? o->idle : 1u << 30);
        uint64_t t0 = clock_us();
        if (o->idle) {
            for (uint32_t i = 0; i < l.n_client; i++) client_start(&l, &l.client[i]);
            char     bytes[4096];
            uint32_t spoke = 0;
            for (uint32_t i = 0; i < l.n_client; i++) { /* every one has had its first token */
                ssize_t got;
                while ((got = recv(l.client[i].fd, bytes, sizeof bytes, 0)) < 0 && errno == EAGAIN) usleep(200);
                if (got > 0) spoke++;
            }
            res.n_event = spoke;
            if (write(to_parent[1], &res, sizeof res) != (ssize_t)sizeof res) _exit(1);
            if (read(to_child[0], bytes, 1) != 1) _exit(1); /* held until the parent has looked */
            _exit(0);
        }
        load_run(&l, o->seconds);
        res = (struct child_result){ l.n_event, l.n_byte, l.n_done, l.n_error, (double)(clock_us() - t0) / 1e6 };
        if (write(to_parent[1], &res, sizeof res) != (ssize_t)sizeof res) _exit(1);
        _exit(0);
    }
    server_up(&b, o);
    long   before = rss_kib();
    double cpu0 = cpu_s(RUSAGE_SELF), user0 = user_s();
    if (write(to_child[1], &b.srv->port, sizeof b.srv->port) != sizeof b.srv->port) return 70;
    struct child_result res;
    if (read(to_parent[0], &res, sizeof res) != sizeof res) {
        fprintf(stderr, "bench_sse: the client failed\n");
        return 1;
    }
    if (o->idle) {
        usleep(300000);
        long after = rss_kib();
        printf("idle streams  %u open, %llu answered, resident memory %ld KiB -> %ld KiB, %.1f KiB a stream\n", o->idle,
               (unsigned long long)res.n_event, before, after, (double)(after - before) / o->idle);
        printf("{\"idle_streams\":%u,\"rss_delta_kib\":%ld,\"kib_per_stream\":%.2f}\n", o->idle, after - before,
               (double)(after - before) / o->idle);
    } else {
        double cpu = cpu_s(RUSAGE_SELF) - cpu0, user = user_s() - user0, rate = (double)res.n_event / res.seconds;
        double tokens = (double)res.n_event - 3.0 * res.n_done; /* role, last and [DONE] are no tokens */
        printf("streams       %u connections, %u requests done, %u failed, %.2f s\n", o->connections, res.n_done,
               res.n_error, res.seconds);
        printf("output        %.0f tokens/s, %.0f SSE events/s, %.1f MB/s, %.1f bytes an event\n", tokens / res.seconds,
               rate, (double)res.n_byte / res.seconds / 1e6,
               (double)res.n_byte / (double)(res.n_event ? res.n_event : 1));
        double per = 1e6 / (tokens > 0 ? tokens : 1);
        printf(
            "server        %.2f CPU seconds (io thread and mock engine); per token %.3f us: ours (detokenizer, JSON, SSE, requests) %.3f, "
            "kernel (sockets, loopback) %.3f\n",
            cpu, cpu * per, user * per, (cpu - user) * per);
        printf(
            "{\"connections\":%u,\"seconds\":%.2f,\"output_tokens_per_s\":%.0f,\"events_per_s\":%.0f,\"mb_per_s\":%.1f,\"errors\":%u,\"server_cpu_s\":%.2f}\n",
            o->connections, res.seconds, tokens / res.seconds, rate, (double)res.n_byte / res.seconds / 1e6,
            res.n_error, cpu);
    }
    char go = 1;
    if (write(to_child[1], &go, 1) != 1) return 70;
    waitpid(pid, NULL, 0);
    server_down(&b);
    return res.n_error ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct opts o = { .connections = 256, .burst = 32, .seconds = 5 };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
            puts(
                "bench_sse [--connections 256] [--seconds 5] [--burst 32]   the server floor alone: SSE events/s; burst: tokens told of at once\n"
                "bench_sse --idle 1000                                      memory of streams that are silent");
            return 0;
        } else if (!strcmp(a, "--connections")) {
            o.connections = (uint32_t)strtoul(v, NULL, 10);
            i++;
        } else if (!strcmp(a, "--burst")) {
            o.burst = (uint32_t)strtoul(v, NULL, 10);
            i++;
        } else if (!strcmp(a, "--idle")) {
            o.idle = (uint32_t)strtoul(v, NULL, 10);
            i++;
        } else if (!strcmp(a, "--seconds")) {
            o.seconds = strtod(v, NULL);
            i++;
        } else {
            fprintf(stderr, "bench_sse: unknown option %s\n", a);
            return EXIT_USAGE;
        }
    }
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    signal(SIGPIPE, SIG_IGN);
    return bench(&o);
}
