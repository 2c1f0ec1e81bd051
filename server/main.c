/* main: options, commands, hardening; app.c serves. Floors go up, and down again at the end. */
#include "base/clock.h"
#include "base/crash.h"
#include "base/memory.h"
#include "base/stacks.h"
#include "server/app.h"
#include "server/cmd/batch.h"
#include "server/cmd/devices.h"
#include "server/cmd/families.h"
#include "server/cmd/doctor.h"
#include "server/cmd/healthcheck.h"
#include "server/cmd/kv_cmd.h"
#include "server/cmd/plan.h"
#include "server/cmd/tune.h"
#include "server/options.h"
#include "transfer/peer/room.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/prctl.h>
#include <unistd.h>

static void harden(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
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

/* Process 1 of a container. The kernel drops a signal that process 1 neither handles nor blocks, so a SIGTERM that
 * comes before app_serve() would be lost and a kill would follow it. It also becomes the parent of orphans. The server
 * asks none of its own children how it ended, so the kernel may take all of them away. */
static void be_process_one(void)
{
    if (getpid() != 1) return;
    sigset_t wanted = app_signals();
    sigprocmask(SIG_BLOCK, &wanted, NULL);
    signal(SIGCHLD, SIG_IGN);
}

extern char **environ;

/* The first words that are no option: what serves nobody. */
static const struct {
    const char *name;
    int (*run)(int argc, char **argv); /* argv[0] is the name; returns an exit code */
} commands[] = {
    { "kv", kv_main }, { "batch", batch_main }, { "tune", tune_main }, { "doctor", doctor_main }, { "plan", plan_main }
};

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
    if (code) return app_say_error(code, err);
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
    } else if (a.cfg.list_families) {
        code = families_main();
    } else if (a.cfg.healthcheck) {
        code = healthcheck_main(&a.cfg, err, sizeof err);
        if (code) app_say_error(code, err);
    } else if ((code = config_check(&a.cfg, err, sizeof err)) ||
               (code = cluster_resolve(&a.cfg, environ, &a.boot.cluster, err, sizeof err))) {
        app_say_error(code, err);
    } else {
        config_wipe_keys(argc, argv, environ);
        code = app_serve(&a);
    }
    takeover_close(a.takeover);
    server_free(a.srv);
    boot_free(&a.boot);
    tls_free(a.tls);
    auth_free(a.auth);
    config_free(&a.cfg);
    return code;
}
