/* app: the running server as main.c starts it: its parts, and what its main thread does with them: app.c loads, hears
 * signals and ends; app_watch.c looks at the engine, the GPUs and other nodes; app_drain.c ends requests in time.
 * Thread: main, except `loaded`. */
#pragma once
#include "server/boot.h"
#include "server/gpu_watch.h"
#include "server/notify.h"
#include "server/tls.h"
#include <signal.h>

enum { APP_FAIL_US = 2000000 }; /* for error events to leave */

struct app {
    struct config    cfg;
    struct auth     *auth;
    struct tls      *tls; /* NULL: plain HTTP */
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

/* Serves until the end: reads keys, listens, loads, watches. a->cfg and a->boot.cluster are set and were checked.
 * Returns an exit code; the last line on stderr is the reason where that is not 0. The caller frees the parts. */
int app_serve(struct app *a);
/* The signals that the main thread hears of: all but the last two, SIGHUP and SIGUSR1, drain. */
sigset_t app_signals(void);
/* Writes err as the last line on stderr, below a bar of progress; "": the log says why. Returns code. */
int app_say_error(int code, const char *err);

/* ---- app_drain.c */
/* The drain that ends the service begins, now or after --drain-delay-seconds. */
void app_begin_end(struct app *a, uint64_t now);
/* True: everything has ended, or its time has passed. */
bool app_drained(struct app *a, uint64_t now);

/* ---- app_watch.c */
/* Logs the rates since the last line, if there was any work. */
void app_engine_line(struct app *a, uint64_t now);
/* A node that helps. -1: go on; else the exit code: 0 when node 0 has said goodbye. */
int app_watch_node(struct app *a, uint64_t now);
/* 0: go on. Else the exit code of an engine that is lost: its clients have heard so. */
int app_watch_engine(struct app *a, uint64_t now);
