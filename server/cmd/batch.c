#include "server/cmd/batch.h"
#include "base/awake.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/app.h"
#include "server/cmd/batch_identity.h"
#include "server/cmd/batch_run.h"
#include "server/options.h"
#include "server/routes.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TURN_US = 500000,   /* longest wait; also how often a terminal is told */
    LINE_US = 10000000, /* how often a log is told */
    SYNC_US = 5000000,
};

struct batch_cmd {
    struct config     cfg;
    struct boot       boot;
    struct auth      *auth;
    struct server    *srv;
    struct batch_book book;
    struct batch_read in;
    struct batch_run  run;
    json_t           *made_from;
    struct stat       input; /* at the start */
    int               in_fd, signal_fd, wait_fd;
    uint64_t          n_line; /* of the input; 0: not known */
    pthread_t         loader;
    _Atomic int       loaded; /* 0: loading; 1: done; 2: refused with boot_code */
    int               boot_code;
    struct eng_stats  first; /* before the first line */
    uint64_t          t_start_us, t_said_us, t_sync_us, t_stop_us, t_stuck_us;
    bool              tty, line_open; /* line_open: of progress, on a terminal */
};

extern char **environ;

static int say(struct batch_cmd *a, int code, const char *why)
{
    fprintf(stderr, "%sspillway batch: %s\n", a->line_open ? "\n" : "", why);
    a->line_open = false;
    return code;
}

/* ---- before the first line ---- */

static int open_input(struct batch_cmd *a)
{
    char        hex[65] = "", why[500];
    const char *path = a->cfg.batch_input;
    bool        stdin_is_meant = !strcmp(path, "-");
    a->in_fd = stdin_is_meant ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (a->in_fd < 0 || fstat(a->in_fd, &a->input)) {
        snprintf(why, sizeof why, "--input: %s cannot be opened: %s", path, strerror(errno));
        return say(a, errno == EACCES ? EXIT_PERM : EXIT_IO, why);
    }
    if (S_ISDIR(a->input.st_mode)) return say(a, EXIT_USAGE, "--input: found a folder, needed is a file");
    bool file = S_ISREG(a->input.st_mode) && !stdin_is_meant;
    int  error = file ? batch_identity_file(a->in_fd, hex, &a->n_line) : 0;
    if (error) {
        snprintf(why, sizeof why, "--input: %s cannot be read: %s", path, strerror(error));
        return say(a, EXIT_IO, why);
    }
    a->made_from = batch_identity(&a->cfg, hex);
    if (!a->made_from) return say(a, EXIT_SOFTWARE, "out of memory");
    int code = batch_book_open(&a->book, a->cfg.batch_output, a->cfg.batch_errors, a->cfg.batch_restart, file);
    if (!code) code = batch_book_begin(&a->book, a->made_from, false);
    return code ? say(a, code, a->book.why) : 0;
}

static void *load_main(void *arg)
{
    struct batch_cmd *a = arg;
    a->boot_code = boot_text(&a->boot, &a->cfg);
    if (!a->boot_code) a->boot_code = boot_engine(&a->boot, NULL, NULL);
    atomic_store(&a->loaded, a->boot_code ? 2 : 1);
    return NULL;
}

static bool is_end(uint32_t sig) { return sig != SIGHUP && sig != SIGUSR1; }

/* The next signal that has come; 0: none. */
static uint32_t next_signal(const struct batch_cmd *a)
{
    struct signalfd_siginfo s;
    return read(a->signal_fd, &s, sizeof s) == (ssize_t)sizeof s ? s.ssi_signo : 0;
}

static int load(struct batch_cmd *a)
{
    if (thread_start(&a->loader, THREAD_ANY, "loader", load_main, a))
        return say(a, EXIT_SOFTWARE, "cannot start the loader");
    while (!atomic_load(&a->loaded)) {
        struct pollfd p = { .fd = a->signal_fd, .events = POLLIN };
        poll(&p, 1, 20);
        uint32_t sig = next_signal(a);
        if (sig && is_end(sig)) _exit(BATCH_EXIT_STOPPED); /* nothing is written yet */
    }
    pthread_join(a->loader, NULL);
    if (a->boot_code) return say(a, a->boot_code, *a->boot.err ? a->boot.err : "cannot start; the log says why");
    return 0;
}

static bool engine_idle(void *e) { return eng_idle(e); }

static int begin(struct batch_cmd *a)
{
    uint32_t          rows = a->boot.seqs;
    struct gen_engine eng = boot_gen_engine(&a->boot);
    if (!batch_identity_model(a->made_from, &a->boot)) return say(a, EXIT_SOFTWARE, "the model's files cannot be read");
    int code = batch_book_begin(&a->book, a->made_from, true);
    if (code) return say(a, code, a->book.why);
    server_ready(a->srv, &a->boot.model, &eng);
    batch_read_init(&a->in, a->in_fd, (size_t)a->srv->body_max + BATCH_ENVELOPE_BYTES);
    if (a->in.waits) { /* a plain file can always be read, and epoll takes none */
        struct epoll_event e = { .events = EPOLLIN };
        if (epoll_ctl(a->wait_fd, EPOLL_CTL_ADD, a->in_fd, &e)) return say(a, EXIT_IO, "--input: cannot be waited for");
    }
    uint32_t most = a->cfg.queue_requests + rows;
    if (batch_run_init(&a->run, a->srv, &a->book, &a->in, 2 * rows < most ? 2 * rows : most))
        return say(a, EXIT_SOFTWARE, "out of memory");
    a->run.idle = engine_idle;
    a->run.idle_ctx = a->boot.engine;
    if (server_start_inner(a->srv)) return say(a, EXIT_SOFTWARE, "cannot start the io threads");
    a->t_start_us = a->t_said_us = a->t_sync_us = clock_us();
    eng_stats(a->boot.engine, &a->first);
    return 0;
}

/* ---- progress and report ---- */

struct progress {
    uint64_t n_done, n_failed, n_in, n_out, n_cached;
    double   s, rate; /* seconds; tokens of prompts and answers per second */
};

static struct progress progress_of(const struct batch_cmd *a, uint64_t now)
{
    struct eng_stats e;
    struct progress  p;
    eng_stats(a->boot.engine, &e);
    p.n_done = a->run.n_good + a->run.n_failed;
    p.n_failed = a->run.n_failed + a->book.n_before_failed;
    p.n_in = e.n_prompt_tokens - a->first.n_prompt_tokens;
    p.n_cached = e.n_cached_tokens - a->first.n_cached_tokens;
    p.n_out = e.n_generated - a->first.n_generated;
    if (p.n_cached > p.n_in) p.n_cached = p.n_in; /* a preempted prompt is found again */
    p.s = (double)(now - a->t_start_us + 1) / 1e6;
    p.rate = (double)(p.n_in + p.n_out) / p.s;
    return p;
}

/* Blank lines and a run so far that says nothing of what follows: the time is an estimate. */
static void say_progress(struct batch_cmd *a, uint64_t now)
{
    if (now - a->t_said_us < (a->tty ? (uint64_t)TURN_US : (uint64_t)LINE_US)) return;
    struct progress p = progress_of(a, now);
    uint64_t        n = p.n_done + a->book.n_before;
    char            of[40] = "", left[60] = "";
    a->t_said_us = now;
    if (a->n_line) snprintf(of, sizeof of, " of %" PRIu64, a->n_line);
    if (a->n_line > n && p.n_done)
        snprintf(left, sizeof left, ", %.0f s left", p.s / (double)p.n_done * (double)(a->n_line - n));
    fprintf(stderr, "%sspillway batch: %" PRIu64 "%s lines, %" PRIu64 " failed, %.1f tokens/s%s%s", a->tty ? "\r" : "",
            n, of, p.n_failed, p.rate, left, a->tty ? "    " : "\n");
    a->line_open = a->tty;
}

static void say_report(struct batch_cmd *a)
{
    struct progress p = progress_of(a, clock_us());
    char            text[400], before[80] = "";
    if (a->book.n_before) snprintf(before, sizeof before, ", %" PRIu64 " of an earlier start", a->book.n_before);
    snprintf(text, sizeof text,
             "%" PRIu64 " lines answered%s, %" PRIu64 " failed; tokens: %" PRIu64 " in (%.1f %% cached), %" PRIu64
             " out, %.1f/s in %.1f s",
             p.n_done + a->book.n_before, before, p.n_failed, p.n_in,
             p.n_in ? 100.0 * (double)p.n_cached / (double)p.n_in : 0.0, p.n_out, p.rate, p.s);
    say(a, 0, text);
}

/* ---- running ---- */

static void hear_signals(struct batch_cmd *a, uint64_t now)
{
    for (uint32_t sig; (sig = next_signal(a));) {
        if (!is_end(sig)) continue;
        if (a->run.stops) {
            a->t_stop_us = now; /* a second one: at once */
            continue;
        }
        a->run.stops = true;
        a->t_stop_us = now + (uint64_t)a->cfg.drain_s * 1000000u;
        say(a, 0, "stopping: what runs is finished; a second signal ends at once");
    }
}

/* Ends the process if the engine is lost: it cannot be joined. What is written stays, and the next start continues. */
static void watch_engine(struct batch_cmd *a, uint64_t now)
{
    struct eng_stats e;
    eng_stats(a->boot.engine, &e);
    if (!e.dead && eng_alive(a->boot.engine, now)) {
        a->t_stuck_us = 0;
        return;
    }
    if (!a->t_stuck_us) a->t_stuck_us = now;
    if (!e.dead && now - a->t_stuck_us < (uint64_t)a->cfg.stuck_s * 1000000u) return;
    batch_run_turn(&a->run);
    (void)batch_book_sync(&a->book);
    _exit(say(a, e.broken ? EXIT_HARDWARE : EXIT_SOFTWARE, "the engine has failed; the same command continues"));
}

/* 0, or the code of a failure that is said already. */
static int sync_now_and_then(struct batch_cmd *a, uint64_t now)
{
    if (now - a->t_sync_us < SYNC_US) return 0;
    a->t_sync_us = now;
    int code = batch_book_sync(&a->book);
    return code ? say(a, code, a->book.why) : 0;
}

static int run(struct batch_cmd *a)
{
    while (!batch_run_over(&a->run)) {
        uint64_t now = clock_us();
        awake_tick(now);
        batch_run_turn(&a->run);
        if (batch_run_over(&a->run)) break;
        /* A pipe that can be read wakes only who wants to read it. */
        batch_run_wait(&a->run, batch_run_wants(&a->run) ? a->wait_fd : a->signal_fd, TURN_US);
        now = clock_us();
        hear_signals(a, now);
        watch_engine(a, now);
        say_progress(a, now);
        server_give_back(a->srv, now);
        int code = sync_now_and_then(a, now);
        if (code) return code;
        if (a->run.stops && now >= a->t_stop_us) {
            batch_run_turn(&a->run); /* what has been answered already */
            a->run.cut = true;
        }
    }
    if (a->run.code) return say(a, a->run.code, a->run.why);
    int code = batch_book_sync(&a->book);
    return code ? say(a, code, a->book.why) : 0;
}

static int end(struct batch_cmd *a)
{
    struct stat now;
    say_report(a);
    if (a->run.stops) return say(a, BATCH_EXIT_STOPPED, "stopped by a signal; the same command continues");
    if (a->n_line && (fstat(a->in_fd, &now) || now.st_size != a->input.st_size ||
                      now.st_mtim.tv_sec != a->input.st_mtim.tv_sec || now.st_mtim.tv_nsec != a->input.st_mtim.tv_nsec))
        return say(a, EXIT_CONFIG, "--input: was changed while it was read; the output may be of both");
    return a->run.n_failed + a->book.n_before_failed ? BATCH_EXIT_FAILED : 0;
}

static void close_all(struct batch_cmd *a)
{
    if (a->srv) server_fail_all(a->srv); /* nothing, unless the run was cut */
    if (a->srv) server_stop(a->srv);
    if (a->boot.engine) eng_stop(a->boot.engine);
    server_free(a->srv);
    if (a->run.srv) batch_run_free(&a->run);
    boot_free(&a->boot);
    auth_free(a->auth);
    batch_read_free(&a->in);
    batch_book_close(&a->book);
    json_decref(a->made_from);
    if (a->in_fd > STDIN_FILENO) close(a->in_fd);
}

static int work(struct batch_cmd *a, const sigset_t *wanted)
{
    char err[400];
    a->signal_fd = signalfd(-1, wanted, SFD_NONBLOCK | SFD_CLOEXEC);
    a->wait_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = { .events = EPOLLIN };
    if (a->signal_fd < 0 || a->wait_fd < 0 || epoll_ctl(a->wait_fd, EPOLL_CTL_ADD, a->signal_fd, &e))
        return say(a, EXIT_SOFTWARE, "no descriptor for signals");
    int code = open_input(a);
    if (code) return code;
    if (auth_create(&a->cfg, &a->auth, err, sizeof err)) return say(a, EXIT_CONFIG, err);
    a->boot.auth = a->auth;
    if (server_create(&a->cfg, a->auth, routes_served(false), &a->srv))
        return say(a, EXIT_SOFTWARE, "out of memory at start");
    code = load(a);
    if (!code) code = begin(a);
    if (!code) code = run(a);
    return code ? code : end(a);
}

int batch_main(int argc, char **argv)
{
    static struct batch_cmd a;
    char                    err[400];
    sigset_t                wanted = app_signals();
    a.in_fd = a.signal_fd = a.wait_fd = a.book.out = a.book.err = -1;
    a.tty = isatty(STDERR_FILENO);
    int code = config_parse(&a.cfg, argc, argv, environ, err, sizeof err);
    a.cfg.batch = true;
    if (!code && a.cfg.help) {
        struct buf b;
        buf_init(&b, 1 << 20);
        options_help(&b);
        fputs(buf_cstr(&b), stdout);
        buf_free(&b);
        config_free(&a.cfg);
        return 0;
    }
    if (!code) code = config_check(&a.cfg, err, sizeof err);
    if (!code) code = cluster_resolve(&a.cfg, environ, &a.boot.cluster, err, sizeof err);
    if (!code && a.boot.cluster.n_node > 1 && a.boot.cluster.node) {
        snprintf(err, sizeof err, "--node-rank: a batch runs on node 0, the others are started without 'batch'");
        code = EXIT_USAGE;
    }
    if (code) return say(&a, code, err);
    config_wipe_keys(argc, argv, environ);
    /* Life cycle lines say nothing that the report does not. */
    log_init(a.cfg.log_level == LOG_LEVEL_INFO ? LOG_LEVEL_WARN : a.cfg.log_level, STDERR_FILENO, a.cfg.log_json);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    code = work(&a, &wanted);
    close_all(&a);
    config_free(&a.cfg);
    return code;
}
