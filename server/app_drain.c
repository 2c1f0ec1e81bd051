/* app_drain: the end of the service, in time: who asks is served for a while, what runs may finish, and what is left
 * then is failed. */
#include "base/log.h"
#include "server/app.h"
#include "server/server.h"

enum {
    IDLE_US = 5000000
}; /* handed over: for connections to be used once more, as long as client libraries keep them */

static void begin_drain(struct app *a)
{
    a->leaving = false;
    server_drain(a->srv);
    LOG_INFO("main: draining, %u requests have %u s to finish; a second signal ends at once",
             atomic_load(&a->srv->n_gen), a->cfg.drain_s);
}

void app_begin_end(struct app *a, uint64_t now)
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

bool app_drained(struct app *a, uint64_t now)
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
    return now >= limit + APP_FAIL_US / 2;
}
