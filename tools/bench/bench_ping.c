/* bench_ping: how long a probe waits while a server is under load, and how much memory it keeps afterwards. --help
 * lists the options.
 *
 * Probe    one connection asks GET /ping, waits for the answer, rests --rest-us, and asks again Load     --streams
 * clients of streamed completions without an end; --bodies clients that send bodies of --body-mib MiB, each with as
 *          many keys as fit, of --kinds in turn: "fields" (of the body itself), "unread" (of an object that no route
 *          knows), "values"
 *          (of logit_bias, which is read), "ids" (a prompt of that many token ids); --unread N clients that send 60
 *          times GET / each
 *          and read nothing
 * Control  the same exchange over a socket between two threads of this program, at the same time: what the machine
 * itself adds Net      with --pid: the exchange without the time for which the server's first io thread, or this
 * program, was ready to run and
 *          had no CPU (/proc/.../schedstat): what is left is the server's, whatever else the machine does
 * Phases   warm (streams alone: what the first requests touch stays), quiet, loaded, and after, --seconds each. With
 * --pid the resident
 *          memory of the server is read at their ends.
 * The last line is JSON. */
#include "load.h"
#include "base/buf.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 16, PIPELINED = 60, KINDS_MAX = 8, SETTLE_S = 5 };

struct opts {
    char     host[128], port[8], kinds[128];
    uint32_t streams, bodies, unread, body_mib, seconds, rest_us;
    int      pid, nice;
};
static struct opts      o = { "127.0.0.1", "8080", "fields,unread,values,ids", 64, 4, 0, 30, 20, 500, 0, 10 };
static struct addrinfo *address;
static _Atomic bool     loading, loading_streams, ending; /* loading: bodies and what is not read */
static _Atomic uint64_t n_body, n_token, n_status[6];

static int dial(void)
{
    int one = 1, fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, address->ai_addr, address->ai_addrlen)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool send_all(int fd, const char *p, size_t n)
{
    while (n && !atomic_load(&ending)) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return !n;
}

/* ---- the probe and its control ---- */

struct probe {
    int            fd;
    uint32_t       n_asked;
    bool           is_control;
    int            io_stat, own_stat; /* schedstat of the server's io thread and of ours; -1: not read */
    struct samples us, net_us;
};
enum { REDIAL = 5000 }; /* requests of one connection: servers close one that had very many */

static const char ask[] = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";

/* One exchange; the answer to /ping has no body, so it ends with its head. */
static bool exchange(int fd)
{
    char   head[2048];
    size_t n = 0;
    if (!send_all(fd, ask, sizeof ask - 1)) return false;
    for (;;) {
        ssize_t k = recv(fd, head + n, sizeof head - n, 0);
        if (k <= 0) return false;
        n += (size_t)k;
        if (n >= 4 && !memcmp(head + n - 4, "\r\n\r\n", 4)) return !memcmp(head, "HTTP/1.1 200", 12);
        if (n == sizeof head) return false;
    }
}

/* Microseconds for which a thread was ready and waited for a CPU, since it began. */
static double waited_us(int fd)
{
    char    text[128];
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    char *second = strchr(text, ' ');
    return second ? strtod(second, NULL) / 1e3 : 0;
}

/* The schedstat of the thread with this name of a process; -1: there is none. */
static int schedstat_of(int pid, const char *name)
{
    char           path[600], comm[32];
    struct dirent *e;
    int            fd = -1;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *d = opendir(path);
    while (d && fd < 0 && (e = readdir(d))) {
        snprintf(path, sizeof path, "/proc/%d/task/%.200s/comm", pid, e->d_name);
        FILE *f = fopen(path, "re");
        bool  is = f && fgets(comm, sizeof comm, f) && !strncmp(comm, name, strlen(name)) && comm[strlen(name)] == '\n';
        if (f) fclose(f);
        snprintf(path, sizeof path, "/proc/%d/task/%.200s/schedstat", pid, e->d_name);
        if (is) fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (d) closedir(d);
    return fd;
}

static void probe_for(struct probe *p, double seconds)
{
    uint64_t end = clock_us() + (uint64_t)(seconds * 1e6);
    p->io_stat = !p->is_control && o.pid ? schedstat_of(o.pid, "io0") : -1;
    p->own_stat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    for (uint64_t now; (now = clock_us()) < end; usleep(o.rest_us)) {
        if (++p->n_asked % REDIAL == 0 && !p->is_control) {
            close(p->fd);
            p->fd = dial();
            continue;
        }
        double waited = waited_us(p->io_stat) + waited_us(p->own_stat);
        now = clock_us();
        if (!exchange(p->fd)) {
            fprintf(stderr, "bench_ping: /ping was not answered with 200\n");
            exit(EXIT_SOFTWARE);
        }
        double us = (double)(clock_us() - now), net = us - (waited_us(p->io_stat) + waited_us(p->own_stat) - waited);
        sample_add(&p->us, us);
        sample_add(&p->net_us, net > 0 ? net : 0);
    }
    if (p->io_stat >= 0) close(p->io_stat);
    if (p->own_stat >= 0) close(p->own_stat);
}

static void *echo_main(void *arg)
{
    static const char pong[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    int               fd = *(int *)arg;
    char              in[256];
    while (recv(fd, in, sizeof in, 0) > 0)
        if (send(fd, pong, sizeof pong - 1, MSG_NOSIGNAL) < 0) break;
    return NULL;
}

struct control {
    struct probe probe;
    double       seconds;
};
static void *control_main(void *arg)
{
    struct control *c = arg;
    probe_for(&c->probe, c->seconds);
    return NULL;
}

/* ---- load ---- */

/* Members with short names that all differ, up to so many bytes. */
static size_t put_members(struct buf *b, size_t bytes)
{
    size_t n = 0;
    for (; b->n < bytes; n++) buf_printf(b, "%s\"%zx\":1", n ? "," : "", n);
    return n;
}

static size_t put_ids(struct buf *b, size_t bytes)
{
    size_t n = 0;
    for (; b->n < bytes; n++) buf_puts(b, n ? ",7" : "7");
    return n;
}

static void make_body(struct buf *b, const char *kind)
{
    size_t bytes = ((size_t)o.body_mib << 20) - 64, n = 0;
    buf_init(b, ((size_t)o.body_mib << 20) + 4096);
    buf_puts(b, "{\"max_tokens\":1,");
    if (!strcmp(kind, "ids")) {
        buf_puts(b, "\"prompt\":[");
        n = put_ids(b, bytes);
        buf_puts(b, "]}");
    } else if (!strcmp(kind, "fields")) {
        buf_puts(b, "\"prompt\":\"Hi\",");
        n = put_members(b, bytes);
        buf_puts(b, "}");
    } else {
        buf_printf(b, "\"prompt\":\"Hi\",\"%s\":{", !strcmp(kind, "values") ? "logit_bias" : "of_no_route");
        n = put_members(b, bytes);
        buf_puts(b, "}}");
    }
    printf("body \"%s\": %zu bytes, %zu values\n", kind, b->n, n);
}

static struct buf body[KINDS_MAX];
static uint32_t   n_kind;

/* Reads one answer with a length, whatever it is; false: the connection is of no more use. */
static bool read_answer(int fd)
{
    char   in[READ_BYTES];
    size_t n = 0;
    for (;;) {
        ssize_t k = recv(fd, in + n, sizeof in - 1 - n, 0);
        if (k <= 0) return false;
        n += (size_t)k;
        in[n] = 0;
        const char *end = strstr(in, "\r\n\r\n"), *length = strstr(in, "Content-Length: ");
        if (!end) continue;
        if (in[9] >= '1' && in[9] <= '5') atomic_fetch_add(&n_status[in[9] - '0'], 1);
        size_t want = (size_t)(end + 4 - in) + (length && length < end ? strtoul(length + 16, NULL, 10) : 0);
        bool   closes = strstr(in, "Connection: close") != NULL;
        while (n < want) {
            if ((k = recv(fd, in, sizeof in, 0)) <= 0) return false;
            n += (size_t)k;
        }
        return !closes;
    }
}

static void *body_main(void *arg)
{
    uint32_t at = (uint32_t)(uintptr_t)arg;
    int      fd = -1;
    setpriority(PRIO_PROCESS, 0, o.nice);
    while (!atomic_load(&ending)) {
        if (!atomic_load(&loading)) {
            if (fd >= 0) close(fd);
            fd = -1;
            usleep(10000);
            continue;
        }
        const struct buf *b = &body[at++ % n_kind];
        char              head[256];
        int               n = snprintf(head, sizeof head,
                                       "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                                     "Content-Length: %zu\r\n\r\n",
                                       b->n);
        if (fd < 0) fd = dial();
        if (fd >= 0 && send_all(fd, head, (size_t)n) && send_all(fd, b->data, b->n) && read_answer(fd)) {
            atomic_fetch_add(&n_body, 1);
            continue;
        }
        if (fd >= 0) atomic_fetch_add(&n_body, 1);
        if (fd >= 0) close(fd);
        fd = -1;
    }
    if (fd >= 0) close(fd);
    return NULL;
}

static void *stream_main(void *arg)
{
    static const char text[] =
        "{\"prompt\":\"Once upon a time\",\"max_tokens\":1500,\"ignore_eos\":true,\"temperature\":1,\"stream\":true}";
    char head[256], in[READ_BYTES];
    (void)arg;
    setpriority(PRIO_PROCESS, 0, o.nice);
    int n = snprintf(
        head, sizeof head,
        "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
        sizeof text - 1);
    while (!atomic_load(&ending)) {
        int fd = atomic_load(&loading_streams) ? dial() : -1;
        if (fd < 0) {
            usleep(10000);
            continue;
        }
        if (send_all(fd, head, (size_t)n) && send_all(fd, text, sizeof text - 1))
            for (ssize_t k; atomic_load(&loading_streams) && (k = recv(fd, in, sizeof in, 0)) > 0;) {
                const char *p = in;
                while ((p = memmem(p, (size_t)(in + k - p), "data: ", 6))) {
                    p += 6;
                    atomic_fetch_add(&n_token, 1);
                }
            }
        close(fd);
    }
    return NULL;
}

/* Those that ask and read nothing: as many sockets, held until the load ends. */
static void *unread_main(void *arg)
{
    int       *fd = calloc(o.unread, sizeof *fd);
    struct buf b;
    (void)arg;
    buf_init(&b, 1 << 20);
    for (int i = 0; i < PIPELINED; i++) buf_puts(&b, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!atomic_load(&ending)) {
        if (!atomic_load(&loading)) {
            usleep(10000);
            continue;
        }
        for (uint32_t i = 0; i < o.unread; i++) {
            fd[i] = dial();
            if (fd[i] >= 0) (void)!send(fd[i], b.data, b.n, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        while (atomic_load(&loading) && !atomic_load(&ending)) usleep(10000);
        for (uint32_t i = 0; i < o.unread; i++)
            if (fd[i] >= 0) close(fd[i]);
    }
    buf_free(&b);
    free(fd);
    return NULL;
}

/* ---- report ---- */

/* VmRSS in MiB; 0: not asked, or gone. */
static double resident(void)
{
    char   path[64], line[256];
    double kib = 0;
    if (!o.pid) return 0;
    snprintf(path, sizeof path, "/proc/%d/status", o.pid);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6)) kib = strtod(line + 6, NULL);
    if (f) fclose(f);
    return kib / 1024;
}

struct phase {
    const char    *name;
    double         rss_mib, load;
    struct probe   ping;
    struct control control;
};

static void run_phase(struct phase *p, int *ping_fd, int control_fd)
{
    pthread_t t;
    double    load[1] = { 0 };
    close(*ping_fd);
    p->ping.fd = dial();
    p->control = (struct control){ .probe = { .fd = control_fd, .is_control = true }, .seconds = o.seconds };
    if (pthread_create(&t, NULL, control_main, &p->control)) exit(EXIT_SOFTWARE);
    probe_for(&p->ping, o.seconds);
    pthread_join(t, NULL);
    *ping_fd = p->ping.fd;
    p->rss_mib = resident();
    if (getloadavg(load, 1) == 1) p->load = load[0];
    printf(
        "%-8s ping ms: p50 %.2f p99 %.2f p99.9 %.2f max %.2f of %zu; net p99.9 %.2f max %.2f; control p99.9 %.2f; RSS %.1f MiB; load %.1f\n",
        p->name, sample_at(&p->ping.us, .5) / 1e3, sample_at(&p->ping.us, .99) / 1e3,
        sample_at(&p->ping.us, .999) / 1e3, sample_at(&p->ping.us, 1) / 1e3, p->ping.us.n,
        sample_at(&p->ping.net_us, .999) / 1e3, sample_at(&p->ping.net_us, 1) / 1e3,
        sample_at(&p->control.probe.us, .999) / 1e3, p->rss_mib, p->load);
    fflush(stdout);
}

static const char help[] =
    "usage: bench_ping [--host H] [--port P] [--pid PID] [--streams N] [--bodies N] [--unread N] [--body-mib N] [--kinds A,B]\n"
    "                  [--seconds N] [--rest-us N] [--nice N]\n";

static void parse(int argc, char **argv)
{
    static const struct {
        const char *name;
        uint32_t   *to;
    } number[] = { { "--streams", &o.streams },   { "--bodies", &o.bodies },   { "--unread", &o.unread },
                   { "--body-mib", &o.body_mib }, { "--seconds", &o.seconds }, { "--rest-us", &o.rest_us } };
    for (int i = 1; i < argc; i += 2) {
        const char *v = i + 1 < argc ? argv[i + 1] : NULL;
        bool        known = false;
        if (!strcmp(argv[i], "--help") || !v) {
            fputs(help, stdout);
            exit(strcmp(argv[i], "--help") ? EXIT_USAGE : 0);
        }
        for (size_t k = 0; k < sizeof number / sizeof *number; k++)
            if (!strcmp(argv[i], number[k].name)) {
                *number[k].to = (uint32_t)strtoul(v, NULL, 10);
                known = true;
            }
        if (!strcmp(argv[i], "--host")) {
            snprintf(o.host, sizeof o.host, "%s", v);
            known = true;
        }
        if (!strcmp(argv[i], "--port")) {
            snprintf(o.port, sizeof o.port, "%s", v);
            known = true;
        }
        if (!strcmp(argv[i], "--kinds")) {
            snprintf(o.kinds, sizeof o.kinds, "%s", v);
            known = true;
        }
        if (!strcmp(argv[i], "--pid")) {
            o.pid = (int)strtol(v, NULL, 10);
            known = true;
        }
        if (!strcmp(argv[i], "--nice")) {
            o.nice = (int)strtol(v, NULL, 10);
            known = true;
        }
        if (known) continue;
        fprintf(stderr, "bench_ping: unknown option '%s'\n%s", argv[i], help);
        exit(EXIT_USAGE);
    }
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    if (!pthread_create(t, NULL, fn, arg)) return;
    fprintf(stderr, "bench_ping: cannot start a thread: %s\n", strerror(errno));
    exit(EXIT_SOFTWARE);
}

int main(int argc, char **argv)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct phase    phase[4] = { { .name = "warm" }, { .name = "quiet" }, { .name = "loaded" }, { .name = "after" } };
    int             pair[2], fd;
    pthread_t       echo;
    parse(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    if (getaddrinfo(o.host, o.port, &hints, &address) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) ||
        (fd = dial()) < 0) {
        fprintf(stderr, "bench_ping: cannot reach %s port %s\n", o.host, o.port);
        return EXIT_SOFTWARE;
    }
    for (char *save = NULL, *k = strtok_r(o.kinds, ",", &save); k && n_kind < KINDS_MAX && o.bodies;
         k = strtok_r(NULL, ",", &save))
        make_body(&body[n_kind++], k);
    uint32_t   n_thread = o.streams + (n_kind ? o.bodies : 0) + (o.unread > 0), at = 0;
    pthread_t *thread = calloc(n_thread + 1, sizeof *thread);
    start(&echo, echo_main, &pair[1]);
    for (uint32_t i = 0; i < o.streams; i++) start(&thread[at++], stream_main, NULL);
    for (uint32_t i = 0; n_kind && i < o.bodies; i++) start(&thread[at++], body_main, (void *)(uintptr_t)i);
    if (o.unread) start(&thread[at++], unread_main, NULL);

    atomic_store(&loading_streams, true);
    run_phase(&phase[0], &fd, pair[0]);
    atomic_store(&loading_streams, false);
    sleep(SETTLE_S);
    run_phase(&phase[1], &fd, pair[0]);
    atomic_store(&loading_streams, true);
    atomic_store(&loading, true);
    usleep(500000);
    run_phase(&phase[2], &fd, pair[0]);
    atomic_store(&loading, false);
    atomic_store(&loading_streams, false);
    sleep(SETTLE_S);
    run_phase(&phase[3], &fd, pair[0]);
    atomic_store(&ending, true);
    for (uint32_t i = 0; i < n_thread; i++) pthread_join(thread[i], NULL);
    shutdown(pair[0], SHUT_RDWR);
    pthread_join(echo, NULL);
    printf("answers: 2xx %llu, 4xx %llu, 5xx %llu; %llu bodies, %llu events\n", (unsigned long long)n_status[2],
           (unsigned long long)n_status[4], (unsigned long long)n_status[5], (unsigned long long)n_body,
           (unsigned long long)n_token);
    putchar('{');
    for (size_t i = 0; i < sizeof phase / sizeof *phase; i++) {
        struct phase *p = &phase[i];
        printf(
            "\"%s\":{\"p999_ms\":%.3f,\"max_ms\":%.3f,\"net_p999_ms\":%.3f,\"net_max_ms\":%.3f,\"control_p999_ms\":%.3f,\"rss_mib\":%.1f,"
            "\"load\":%.2f},",
            p->name, sample_at(&p->ping.us, .999) / 1e3, sample_at(&p->ping.us, 1) / 1e3,
            sample_at(&p->ping.net_us, .999) / 1e3, sample_at(&p->ping.net_us, 1) / 1e3,
            sample_at(&p->control.probe.us, .999) / 1e3, p->rss_mib, p->load);
    }
    printf("\"bodies\":%llu,\"events\":%llu}\n", (unsigned long long)n_body, (unsigned long long)n_token);
    return 0;
}
