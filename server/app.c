/* app: loads the model in a thread of its own, so that probes are answered and SIGTERM works meanwhile; then the main
 * thread only waits for signals and watches. */
#include "server/app.h"
#include "base/awake.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/health.h"
#include "server/metrics.h"
#include "server/routes.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    TICK_US = 500000,
    TICK_BUSY_US = 20000, /* while loading or draining */
    ENGINE_LINE_US = 10000000,
};

sigset_t app_signals(void)
{
    static const int sigs[] = { SIGTERM, SIGINT, SIGQUIT, SIGPWR, SIGXCPU, SIGHUP, SIGUSR1 };
    sigset_t         set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) sigaddset(&set, sigs[i]);
    return set;
}

static bool bar_open; /* a bar of progress stands on stderr's last line */

int app_say_error(int code, const char *err)
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

/* From here on the next server may take over from this one. */
static void wait_for_next(struct app *a)
{
    a->hand = (struct boot_hand){ .boot = &a->boot, .srv = a->srv };
    struct takeover_ops ops = boot_hand_ops(&a->hand);
    takeover_serve(a->takeover, a->srv->listen_fd, auth_secret(a->auth), &ops);
}

static void use_tiers(struct app *a)
{
    if (!boot_helps(&a->boot)) eng_tiers_hand(a->boot.engine, KV_SERVES);
}

/* One that follows another server serves in its place. 0, or the exit code of one that may not serve. */
static int take_over(struct app *a)
{
    char err[400];
    int  code = takeover_commit(a->takeover, err, sizeof err);
    if (code) return app_say_error(code, err);
    use_tiers(a);
    server_accept(a->srv, true);
    wait_for_next(a);
    return 0;
}

/* /ready is 200 from here on. Whoever waited for that may start the next server, whose socket is there before. 0, or
 * the exit code of one that may not serve. */
static int begin_serving(struct app *a)
{
    const bool              follows = takeover_follows(a->takeover);
    const struct gen_engine eng = boot_gen_engine(&a->boot);
    if (a->takeover && !follows) {
        use_tiers(a);
        wait_for_next(a);
        server_accept(a->srv, true);
    }
    server_ready(a->srv, &a->boot.model, &eng);
    return follows ? take_over(a) : 0;
}

static int loaded(struct app *a)
{
    struct boot *b = &a->boot;
    double       s = (double)(clock_us() - a->t_start_us) / 1e6;
    const char  *scheme = a->tls ? "https" : "http";
    pthread_join(a->loader, NULL);
    a->joined = true;
    struct metrics_load ml = { .load_seconds = s,
                               .weight_bytes = rank_team_weight_bytes(b->team),
                               .work_bytes = rank_team_work_bytes(b->team),
                               .kv_bytes = (uint64_t)b->n_block * b->block_bytes * boot_ranks_here(b),
                               .window_bytes = b->windows.n_block * b->windows.block_bytes * boot_ranks_here(b),
                               .cache_info = b->cache_info };
    metrics_loaded(a->srv->metrics, &ml);
    struct dev_place place;
    for (uint32_t i = 0; rank_team_place(b->team, i, &place); i++) gpu_watch_own(&a->gpus, &place);
    a->gpus.lone = a->cfg.tensor_parallel == 1;
    int code = begin_serving(a);
    if (code) return code;
    notify_say(&a->notify, "READY=1\nSTATUS=%s at %s://%s", boot_helps(b) ? "helps" : "serves", scheme,
               a->srv->address);
    if (boot_helps(b)) {
        LOG_INFO("ready: node %u of %u helps %s, %s://%s is for probes, in %.1f s", b->cluster.node, b->cluster.n_node,
                 b->cluster.master, scheme, a->srv->address, s);
        return 0;
    }
    LOG_INFO("ready: %s://%s model %s, context %u, %u sequences, %u KV blocks of %u tokens, %s, in %.1f s", scheme,
             a->srv->address, b->model.served_name[0], b->model.context, b->seqs, b->n_block, a->cfg.block_size,
             auth_enabled(a->auth) ? "keys needed" : "no keys", s);
    return 0;
}

/* ---- running ---- */

static void on_signal(struct app *a, int sig, uint64_t now)
{
    char err[400];
    switch (sig) {
    case SIGHUP:
        if (auth_reload(a->auth, err, sizeof err))
            LOG_ERROR("auth: %s; the old keys stay", err);
        else
            LOG_INFO("auth: %u keys", auth_count(a->auth));
        if (tls_reload(a->tls, err, sizeof err)) LOG_ERROR("tls: %s; the certificate before stays", err);
        break;
    case SIGUSR1:
        if (a->joined && !boot_helps(&a->boot) && now - a->t_line_us > 1000000) app_engine_line(a, now);
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
        app_begin_end(a, now);
        if (a->tty && sig == SIGINT && !boot_helps(&a->boot))
            fputs("\nspillway: draining; a second Ctrl-C ends at once\n", stderr);
    }
}

/* The server that this one follows has died, or another follows this one. 0, or the exit code of one that is not wanted
 * any more. */
static int watch_takeover(struct app *a, uint64_t now)
{
    char err[400];
    if (!a->joined) {
        int code = takeover_watch(a->takeover, err, sizeof err);
        if (code == 1) server_accept(a->srv, true); /* as any server that loads */
        return code > 1 ? app_say_error(code, err) : 0;
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
        if (atomic_load(&a->loaded) == 2) return app_say_error(a->boot_code, a->boot.err);
        if (!a->joined && boot_nodes_state(&a->boot) == NODES_LOST)
            _exit(EXIT_SOFTWARE); /* loading may take long yet */
        if (!a->joined) continue;
        if (boot_helps(&a->boot)) {
            int end = app_watch_node(a, now);
            if (end >= 0) return end;
            continue;
        }
        code = app_watch_engine(a, now);
        if (code) return code;
        if (a->t_term_us && !a->t_stuck_us && app_drained(a, now)) return 0;
        if (now - a->t_line_us >= ENGINE_LINE_US) app_engine_line(a, now);
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

int app_serve(struct app *a)
{
    char     err[400];
    sigset_t wanted = app_signals();
    log_init(a->cfg.log_level, STDOUT_FILENO, a->cfg.log_json);
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    follow_parent(a);
    notify_open(&a->notify);
    notify_say(&a->notify, "STATUS=loads");

    if (auth_create(&a->cfg, &a->auth, err, sizeof err)) {
        bool hidden = *a->cfg.api_key_file && access(a->cfg.api_key_file, R_OK) && errno == EACCES;
        return app_say_error(hidden ? EXIT_PERM : EXIT_CONFIG, err);
    }
    int code = tls_create(&a->cfg, &a->tls, err, sizeof err);
    if (code) return app_say_error(code, err);
    code = *a->cfg.takeover ? takeover_open(a->cfg.takeover, a->cfg.takeover_s, &a->takeover, err, sizeof err) : 0;
    if (code) return app_say_error(code, err);
    a->boot.takeover = a->takeover;
    a->boot.auth = a->auth;
    if (server_create(&a->cfg, a->auth, routes_served(*a->cfg.lora_root), &a->srv))
        return app_say_error(EXIT_SOFTWARE, "out of memory at start");
    a->srv->tls = a->tls;
    if (server_listen(a->srv, takeover_listener(a->takeover), err, sizeof err))
        return app_say_error(errno == EACCES ? EXIT_PERM : EXIT_CONFIG, err);
    if (!config_is_loopback(a->cfg.host) && !auth_enabled(a->auth))
        LOG_WARN("main: %s is open to anyone who can reach it (--allow-anonymous)", a->srv->address);
    for (uint32_t i = 0; i < a->cfg.told.n; i++) LOG_INFO("main: %s", a->cfg.told.s[i]);
    if (a->cfg.port_from_env_ignored)
        LOG_INFO("main: SPILLWAY_PORT is a Kubernetes service address, not used as --port");
    if (thread_start(&a->loader, THREAD_ANY, "loader", load_main, a)) {
        server_stop(a->srv);
        return app_say_error(EXIT_SOFTWARE, "cannot start the loader");
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
