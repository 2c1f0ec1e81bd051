/* main: options, hardening, and the order of things: floors up, signals, floors down.
 * The main thread only waits for signals and watches; the model is loaded by a thread of its own, so that probes are
 * answered and SIGTERM works meanwhile. */
#include "base/asan.h"
#include "base/awake.h"
#include "base/clock.h"
#include "base/crash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stacks.h"
#include "server/boot.h"
#include "server/cmd/devices.h"
#include "server/cmd/doctor.h"
#include "server/cmd/dump.h"
#include "server/cmd/healthcheck.h"
#include "server/cmd/kv_cmd.h"
#include "server/cmd/plan.h"
#include "server/cmd/tune.h"
#include "server/gpu_watch.h"
#include "server/health.h"
#include "server/metrics.h"
#include "server/notify.h"
#include "server/options.h"
#include "server/routes.h"
#include "transfer/peer/room.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    TICK_US = 500000,
    TICK_BUSY_US = 20000, /* while loading or draining */
    ENGINE_LINE_US = 10000000,
    FAIL_US = 2000000, /* for error events to leave */
    IDLE_US = 5000000, /* handed over: for connections to be used once more, as long as client libraries keep them */
};

struct app {
    struct config    cfg;
    struct auth     *auth;
    struct server   *srv;
    struct boot      boot;
    pthread_t        loader;
    _Atomic int      loaded; /* 0: loading; 1: done; 2: refused with boot_code */
    int              boot_code;
    uint64_t         t_start_us, t_stuck_us, t_line_us, t_process_us;
    uint64_t         t_term_us; /* when the drain begins or began; 0: it is to go on */
    bool             leaving;   /* told to end, and takes requests until t_term_us */
    struct eng_stats last;
    bool             joined, tty, failing;
    struct takeover *takeover; /* or NULL */
    struct boot_hand hand;
    bool             handed, shut_idle; /* another serves now; its idle connections were closed */
    uint32_t         shown;             /* tenths of the load that were told */
    enum probe_says  probes;
    pid_t            parent; /* at the start */
    struct gpu_watch gpus;
    int              end_code; /* of a drain that nobody asked for; 0: an ordinary one */
    struct notify    notify;
};

static void harden(void)
{
#if !defined(ASAN_ON) && !defined(__SANITIZE_THREAD__)
    /* a core or a debugger would show prompts and keys */
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0);
    crash_init(); /* sanitizers have their own */
#endif
    /* A write over RLIMIT_FSIZE then fails with EFBIG, which whoever writes deals with; the others mean nothing here,
     * and would end the process without a drain. */
    static const int ignored[] = { SIGPIPE, SIGXFSZ, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT };
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
    for (int sig = SIGRTMIN; sig <= SIGRTMAX; sig++) signal(sig, SIG_IGN);
}

/* What on_signal hears of: all but the last two drain. */
static sigset_t wanted_signals(void)
{
    static const int sigs[] = { SIGTERM, SIGINT, SIGQUIT, SIGPWR, SIGXCPU, SIGHUP, SIGUSR1 };
    sigset_t         set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) sigaddset(&set, sigs[i]);
    return set;
}

/* Process 1 of a container. The kernel drops a signal that process 1 neither handles nor blocks, so a SIGTERM that
 * comes before serve() would be lost and a kill would follow it. It also becomes the parent of orphans. The server asks
 * none of its own children how it ended, so the kernel may take all of them away. */
static void be_process_one(void)
{
    if (getpid() != 1) return;
    sigset_t wanted = wanted_signals();
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGCHLD, SIG_IGN);
}

static bool bar_open; /* a bar of progress stands on stderr's last line */

/* The last line on stderr is the reason. */
static int say_error(int code, const char *err)
{
    fprintf(stderr, "%sspillway: %s\n", bar_open ? "\n" : "",
            *err ? err : "cannot start; the last lines of the log say why");
    return code;
}

/* ---- loading ---- */

static void progress(void *ctx, uint64_t done, uint64_t total)
{
    struct app *a = ctx;
    if (!total) return;
    uint32_t tenth = (uint32_t)(done * 10 / total);
    if (a->tty) {
        uint32_t n = (uint32_t)(done * 40 / total);
        fprintf(stderr, "\rloading [%.*s%*s] %3" PRIu64 " %%%s", (int)n, "########################################",
                (int)(40 - n), "", done * 100 / total, done == total ? "\n" : "");
        bar_open = done != total;
    } else if (tenth > a->shown && tenth < 10 && total > (uint64_t)256 << 20) {
        LOG_INFO("boot: loaded %u %% of %" PRIu64 " MiB", tenth * 10, total >> 20);
    }
    a->shown = tenth;
}

static void *load_main(void *arg)
{
    struct app *a = arg;
    a->boot_code = boot_text(&a->boot, &a->cfg);
    if (!a->boot_code) a->boot_code = boot_engine(&a->boot, progress, a);
    atomic_store(&a->loaded, a->boot_code ? 2 : 1);
    return NULL;
}

/* 0, or the exit code of one that may not serve. */
static int begin_serving(struct app *a)
{
    char err[400];
    if (!a->takeover) return 0;
    int code = takeover_commit(a->takeover, err, sizeof err);
    if (code) return say_error(code, err);
    if (!boot_helps(&a->boot)) eng_tiers_hand(a->boot.engine, KV_SERVES);
    server_accept(a->srv, true);
    a->hand = (struct boot_hand){ .boot = &a->boot, .srv = a->srv };
    struct takeover_ops ops = boot_hand_ops(&a->hand);
    takeover_serve(a->takeover, a->srv->listen_fd, auth_secret(a->auth), &ops);
    return 0;
}

static int loaded(struct app *a)
{
    struct boot *b = &a->boot;
    double       s = (double)(clock_us() - a->t_start_us) / 1e6;
    pthread_join(a->loader, NULL);
    a->joined = true;
    struct metrics_load ml = { .load_seconds = s,
                               .weight_bytes = rank_team_weight_bytes(b->team),
                               .work_bytes = rank_team_work_bytes(b->team),
                               .kv_bytes = (uint64_t)b->n_block * b->block_bytes * boot_ranks_here(b),
                               .cache_info = b->cache_info };
    metrics_loaded(a->srv->metrics, &ml);
    struct dev_place place;
    for (uint32_t i = 0; rank_team_place(b->team, i, &place); i++) gpu_watch_own(&a->gpus, &place);
    a->gpus.lone = a->cfg.tensor_parallel == 1;
    struct gen_engine eng = boot_gen_engine(b);
    server_ready(a->srv, &b->model, &eng);
    int code = begin_serving(a);
    if (code) return code;
    notify_say(&a->notify, "READY=1\nSTATUS=%s at http://%s", boot_helps(b) ? "helps" : "serves", a->srv->address);
    if (boot_helps(b)) {
        LOG_INFO("ready: node %u of %u helps %s, http://%s is for probes, in %.1f s", b->cluster.node,
                 b->cluster.n_node, b->cluster.master, a->srv->address, s);
        return 0;
    }
    LOG_INFO("ready: http://%s model %s, context %u, %u sequences, %u KV blocks of %u tokens, %s, in %.1f s",
             a->srv->address, b->model.served_name[0], b->model.context, b->seqs, b->n_block, a->cfg.block_size,
             auth_enabled(a->auth) ? "keys needed" : "no keys", s);
    return 0;
}

/* ---- watching ---- */

static void engine_line(struct app *a, uint64_t now)
{
    struct eng_stats e;
    eng_stats(a->boot.engine, &e);
    double   dt = (double)(now - a->t_line_us) / 1e6;
    uint64_t prompt = e.n_prompt_tokens - a->last.n_prompt_tokens, out = e.n_generated - a->last.n_generated;
    uint64_t asked = e.n_query_tokens - a->last.n_query_tokens, hit = e.n_hit_tokens - a->last.n_hit_tokens;
    if (prompt || out || e.n_running || e.n_waiting)
        LOG_INFO(
            "engine: prompt %.1f tok/s, output %.1f tok/s, running %u, waiting %u, kv %.1f %%, prefix hits %.1f %%",
            (double)prompt / dt, (double)out / dt, e.n_running, e.n_waiting,
            e.kv_blocks ? 100.0 * e.kv_used / e.kv_blocks : 0.0, asked ? 100.0 * (double)hit / (double)asked : 0.0);
    a->last = e;
    a->t_line_us = now;
}

static void begin_drain(struct app *a)
{
    a->leaving = false;
    server_drain(a->srv);
    LOG_INFO("main: draining, %u requests have %u s to finish; a second signal ends at once",
             atomic_load(&a->srv->n_gen), a->cfg.drain_s);
}

/* The drain that ends the service begins, now or after --drain-delay-seconds. */
static void begin_end(struct app *a, uint64_t now)
{
    a->t_term_us = now + (uint64_t)a->cfg.drain_delay_s * 1000000u;
    notify_say(&a->notify, "STOPPING=1\nSTATUS=ends, %u requests run", atomic_load(&a->srv->n_gen));
    (void)takeover_bye(a->takeover);
    if (boot_helps(&a->boot)) {
        LOG_INFO("main: waiting for node 0 to end, at most %u s", a->cfg.drain_delay_s + a->cfg.drain_s + 2);
    } else if (a->cfg.drain_delay_s) {
        a->leaving = true;
        server_leave(a->srv);
        LOG_INFO("main: leaving, /ready is 503 and requests are taken for %u s more; a second signal ends at once",
                 a->cfg.drain_delay_s);
    } else {
        begin_drain(a);
    }
}

/* What the driver says of our GPUs. GPU_WELL also where there are none. */
static enum gpu_says hear_gpus(struct app *a, const char **why_out)
{
    struct nvml_sample s;
    if (!a->gpus.n_own || !nvml_get(a->srv->nvml, &s)) return GPU_WELL;
    return gpu_watch_turn(&a->gpus, &s, why_out);
}

/* A node that helps. -1: go on; else the exit code: 0 when node 0 has said goodbye. */
static int watch_node(struct app *a, uint64_t now)
{
    const char *why;
    switch (hear_gpus(a, &why)) {
    case GPU_RESTART: LOG_ERROR("main: %s, exiting", why); return EXIT_SOFTWARE;
    case GPU_DRAIN: /* node 0 cannot be told to drain, and would lose its requests with this node */
        if (!a->end_code) LOG_ERROR("main: %s; helping until node 0 ends", why);
        a->end_code = EXIT_HARDWARE;
        break;
    case GPU_BROKEN: LOG_ERROR("main: %s, exiting", why); return EXIT_HARDWARE;
    default: break;
    }
    switch (boot_nodes_state(&a->boot)) {
    case NODES_DONE: LOG_INFO("main: node 0 has ended"); return a->end_code;
    case NODES_LOST: return a->t_term_us ? 0 : EXIT_SOFTWARE; /* the line above says why */
    case NODES_OK: break;
    }
    /* node 0 drains, and needs us until then */
    return a->t_term_us && now > a->t_term_us + (uint64_t)a->cfg.drain_s * 1000000u + FAIL_US ? 0 : -1;
}

/* The least that keeps answers right (server/xid.h). */
static void watch_gpus(struct app *a, uint64_t now, bool dead)
{
    const char *why;
    switch (hear_gpus(a, &why)) {
    case GPU_WELL: break;
    case GPU_ASK:
        LOG_INFO("main: %s; a plain prompt finds out whether it was this one", why);
        probe_ask(a->boot.probe);
        break;
    case GPU_DRAIN:
        if (a->end_code) break;
        a->end_code = EXIT_HARDWARE;
        LOG_ERROR("main: %s; what runs may finish, then this ends", why);
        if (!a->t_term_us) begin_end(a, now);
        break;
    case GPU_RESTART:
        if (!dead) eng_condemn(a->boot.engine, why, ST_DEVICE);
        break;
    case GPU_BROKEN:
        if (!dead) eng_condemn(a->boot.engine, why, ST_BROKEN);
        break;
    }
}

/* 0: go on. Else the exit code of an engine that is lost: its clients have heard so. */
static int watch_engine(struct app *a, uint64_t now)
{
    struct eng_stats e;
    eng_stats(a->boot.engine, &e);
    watch_gpus(a, now, e.dead);
    bool alive = eng_alive(a->boot.engine, now);
    a->probes = probe_turn(a->boot.probe, now);
    if (a->probes == PROBE_SICK && !e.dead) eng_condemn(a->boot.engine, "a plain prompt gives NaN", ST_DEVICE);
    if (boot_nodes_state(&a->boot) == NODES_LOST) e.dead = true; /* idle, it has not noticed yet */
    if (alive && !e.dead) {
        a->t_stuck_us = 0;
        return 0;
    }
    if (!a->t_stuck_us) {
        a->t_stuck_us = now;
        if (e.dead)
            LOG_ERROR("engine: dead after step %" PRIu64 ", failing %u requests, exiting", e.n_step,
                      e.n_running + e.n_waiting);
        else
            LOG_ERROR("engine: no progress since step %" PRIu64
                      ", /health is 503, exiting in %u s unless it comes back",
                      e.n_step, a->cfg.stuck_s);
        if (!e.dead) dump_log(&a->boot);
    }
    if (!e.dead && now - a->t_stuck_us < (uint64_t)a->cfg.stuck_s * 1000000u) return 0;
    if (!a->failing) {
        if (!e.dead) dump_all(&a->boot);
        a->failing = true;
        a->t_term_us = now;
        server_drain(a->srv);
        server_fail_all(a->srv);
    }
    if (!server_told(a->srv) && now - a->t_term_us <= FAIL_US) return 0;
    return e.broken ? EXIT_HARDWARE : EXIT_SOFTWARE;
}

static void on_signal(struct app *a, int sig, uint64_t now)
{
    char err[400];
    switch (sig) {
    case SIGHUP:
        if (auth_reload(a->auth, err, sizeof err))
            LOG_ERROR("auth: %s; the old keys stay", err);
        else
            LOG_INFO("auth: %u keys", auth_count(a->auth));
        break;
    case SIGUSR1:
        if (a->joined && !boot_helps(&a->boot) && now - a->t_line_us > 1000000) engine_line(a, now);
        break;
    default:
        if (a->handed && !takeover_bye(a->takeover)) { /* it drains already; now without a way back */
            server_drain(a->srv);
            LOG_INFO(
                "main: told to end while draining for the server that follows; this one will not serve again, and a "
                "second signal ends it at once");
            break;
        }
        if (a->t_term_us || atomic_load(&a->loaded) != 1) {
            LOG_INFO("main: %s, exiting at once", a->t_term_us ? "asked again" : "still loading");
            _exit(0);
        }
        begin_end(a, now);
        if (a->tty && sig == SIGINT && !boot_helps(&a->boot))
            fputs("\nspillway: draining; a second Ctrl-C ends at once\n", stderr);
    }
}

/* True: everything has ended, or its time has passed. */
static bool drained(struct app *a, uint64_t now)
{
    if (a->leaving) {
        if (now < a->t_term_us) return false;
        begin_drain(a);
    }
    if (a->handed ? server_quiet(a->srv) : server_idle(a->srv)) return true;
    if (a->handed && !a->shut_idle && now - a->t_term_us > IDLE_US) {
        a->shut_idle = true;
        server_shut_idle(a->srv);
    }
    uint64_t limit = a->t_term_us + (uint64_t)a->cfg.drain_s * 1000000u;
    if (now < limit) return false;
    if (!a->failing) {
        a->failing = true;
        LOG_WARN("main: the drain limit has passed, failing %u requests", atomic_load(&a->srv->n_gen));
        server_drain(a->srv);
        server_fail_all(a->srv);
    }
    return now >= limit + FAIL_US / 2;
}

/* The server that this one follows has died, or another follows this one. 0, or the exit code of one that is not wanted
 * any more. */
static int watch_takeover(struct app *a, uint64_t now)
{
    char err[400];
    if (!a->joined) {
        int code = takeover_watch(a->takeover, err, sizeof err);
        if (code == 1) server_accept(a->srv, true); /* as any server that loads */
        return code > 1 ? say_error(code, err) : 0;
    }
    bool given = takeover_given(a->takeover);
    if (given && !a->t_term_us) {
        a->handed = true;
        a->shut_idle = false;
        a->t_term_us = now;
        LOG_INFO("main: draining, %u requests have %u s to finish", atomic_load(&a->srv->n_gen), a->cfg.drain_s);
    } else if (!given && a->handed && !a->failing) {
        a->handed = false;
        a->t_term_us = 0;
    }
    return 0;
}

static int run(struct app *a, const sigset_t *wanted)
{
    for (;;) {
        bool            busy = !a->joined || a->t_term_us || a->probes != PROBE_WELL;
        struct timespec t = { .tv_nsec = (busy ? TICK_BUSY_US : TICK_US) * 1000L };
        int             sig = sigtimedwait(wanted, NULL, &t);
        uint64_t        now = clock_us();
        awake_tick(now);
        if (sig > 0) on_signal(a, sig, now);
        notify_tick(&a->notify, now);
        server_give_back(a->srv, now);
        if (now - a->t_process_us >= TICK_US) {
            a->t_process_us = now;
            metrics_process(a->srv->metrics);
        }
        int code = watch_takeover(a, now);
        if (code) _exit(code); /* the loader may be long yet */
        if (!a->joined && atomic_load(&a->loaded) == 1 && (code = loaded(a))) return code;
        if (atomic_load(&a->loaded) == 2) return say_error(a->boot_code, a->boot.err);
        if (!a->joined && boot_nodes_state(&a->boot) == NODES_LOST)
            _exit(EXIT_SOFTWARE); /* loading may take long yet */
        if (!a->joined) continue;
        if (boot_helps(&a->boot)) {
            int end = watch_node(a, now);
            if (end >= 0) return end;
            continue;
        }
        code = watch_engine(a, now);
        if (code) return code;
        if (a->t_term_us && !a->t_stuck_us && drained(a, now)) return 0;
        if (now - a->t_line_us >= ENGINE_LINE_US) engine_line(a, now);
    }
}

/* The kernel sends SIGTERM when the parent dies; one that died before it was asked to is told from by its place, which
 * another process has taken. */
static void follow_parent(const struct app *a)
{
    if (!a->cfg.die_with_parent) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != a->parent) kill(getpid(), SIGTERM);
}

static int serve(struct app *a)
{
    char     err[400];
    sigset_t wanted = wanted_signals();
    log_init(a->cfg.log_level, STDOUT_FILENO, a->cfg.log_json);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    follow_parent(a);
    notify_open(&a->notify);
    notify_say(&a->notify, "STATUS=loads");

    if (auth_create(&a->cfg, &a->auth, err, sizeof err)) {
        bool hidden = *a->cfg.api_key_file && access(a->cfg.api_key_file, R_OK) && errno == EACCES;
        return say_error(hidden ? EXIT_PERM : EXIT_CONFIG, err);
    }
    int code = *a->cfg.takeover ? takeover_open(a->cfg.takeover, a->cfg.takeover_s, &a->takeover, err, sizeof err) : 0;
    if (code) return say_error(code, err);
    a->boot.takeover = a->takeover;
    a->boot.auth = a->auth;
    if (server_create(&a->cfg, a->auth, routes_served(), &a->srv))
        return say_error(EXIT_SOFTWARE, "out of memory at start");
    if (server_listen(a->srv, takeover_listener(a->takeover), err, sizeof err))
        return say_error(errno == EACCES ? EXIT_PERM : EXIT_CONFIG, err);
    if (!config_is_loopback(a->cfg.host) && !auth_enabled(a->auth))
        LOG_WARN("main: %s is open to anyone who can reach it (--allow-anonymous)", a->srv->address);
    for (uint32_t i = 0; i < a->cfg.told.n; i++) LOG_INFO("main: %s", a->cfg.told.s[i]);
    if (a->cfg.port_from_env_ignored)
        LOG_INFO("main: SPILLWAY_PORT is a Kubernetes service address, not used as --port");
    if (thread_start(&a->loader, THREAD_ANY, "loader", load_main, a)) {
        server_stop(a->srv);
        return say_error(EXIT_SOFTWARE, "cannot start the loader");
    }
    code = run(a, &wanted);
    if (a->joined && code) _exit(code);            /* an engine that is lost cannot be joined */
    if (code && a->boot.engine) _exit(code);       /* nor can one that failed its self-test */
    if (!a->joined) pthread_join(a->loader, NULL); /* it has refused the model */
    takeover_bye(a->takeover);
    server_stop(a->srv);
    takeover_close(a->takeover);
    a->takeover = NULL;
    if (a->boot.engine) eng_stop(a->boot.engine);
    if (!code) LOG_INFO("main: done");
    notify_close(&a->notify);
    return code ? code : a->end_code;
}

extern char **environ;

/* The first words that are no option: what serves nobody. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns an exit code */
} commands[] = { { "kv", kv_main }, { "tune", tune_main }, { "doctor", doctor_main }, { "plan", plan_main } };

int main(int argc, char **argv)
{
    static struct app a;
    char              err[400];
    a.t_start_us = a.t_line_us = clock_us();
    a.parent = getppid();
    a.tty = isatty(STDERR_FILENO);
    harden();
    int code;
    if (room_main(argc, argv, &code)) return code; /* the process of a server in which UCX runs */
    be_process_one();
    memory_setup();
    stacks_init();
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    code = config_parse(&a.cfg, argc, argv, environ, err, sizeof err);
    if (code) return say_error(code, err);
    if (a.cfg.help) {
        struct buf b;
        buf_init(&b, 1 << 20);
        options_help(&b);
        fputs(buf_cstr(&b), stdout);
        buf_free(&b);
    } else if (a.cfg.version) {
        puts("spillway " SPILLWAY_VERSION);
    } else if (a.cfg.list_devices) {
        code = devices_main();
    } else if (a.cfg.healthcheck) {
        code = healthcheck_main(&a.cfg, err, sizeof err);
        if (code) say_error(code, err);
    } else if ((code = config_check(&a.cfg, err, sizeof err)) ||
               (code = cluster_resolve(&a.cfg, environ, &a.boot.cluster, err, sizeof err))) {
        say_error(code, err);
    } else {
        config_wipe_keys(argc, argv, environ);
        code = serve(&a);
    }
    takeover_close(a.takeover);
    server_free(a.srv);
    boot_free(&a.boot);
    auth_free(a.auth);
    config_free(&a.cfg);
    return code;
}
