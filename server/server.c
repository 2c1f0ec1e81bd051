#include "server/server.h"
#include "base/log.h"
#include "base/memory.h"
#include "server/listen.h"
#include "server/loop.h"
#include "server/metrics.h"
#include "server/nvml.h"
#include "server/sessions.h"
#include "server/trace.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define BODIES_MAX ((uint64_t)1 << 30)

/* Descriptors that connections cannot have: log, listen, epoll and eventfds, files being read. */
static uint32_t connections_allowed(const struct config *cfg)
{
    enum { OWN = 24 };
    struct rlimit r;
    uint32_t      n = cfg->max_connections;
    if (getrlimit(RLIMIT_NOFILE, &r)) return n;
    rlim_t want = (rlim_t)n + OWN + 8 * cfg->io_threads;
    if (r.rlim_cur < want) { /* as far as the hard limit lets us */
        struct rlimit up = { .rlim_cur = want < r.rlim_max ? want : r.rlim_max, .rlim_max = r.rlim_max };
        if (!setrlimit(RLIMIT_NOFILE, &up)) r = up;
    }
    if (r.rlim_cur >= want) return n;
    uint32_t room = r.rlim_cur > OWN + 8 * cfg->io_threads + 8 ? (uint32_t)r.rlim_cur - OWN - 8 * cfg->io_threads : 8;
    LOG_AT(room < 1000 ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG,
           "loop: %u open files are allowed, so at most %u connections (--max-connections %u)", (uint32_t)r.rlim_cur,
           room, n);
    return room;
}

enum status server_create(const struct config *cfg, struct auth *auth, const struct routes *routes,
                          struct server **s_out)
{
    struct server *s = calloc(1, sizeof *s);
    if (!s) return ST_NOMEM;
    s->cfg = cfg;
    s->auth = auth;
    s->routes = routes;
    s->listen_fd = s->reserve_fd = -1;
    s->half_close_serve = cfg->half_close == HALF_CLOSE_SERVE;
    s->loopback = config_is_loopback(cfg->host);
    s->body_max = (uint64_t)cfg->max_body_mib << 20;
    uint64_t eighth = memory_limit_bytes() / 8;
    s->bodies.bytes_max = eighth < BODIES_MAX ? eighth : BODIES_MAX;
    if (s->bodies.bytes_max < 4 * s->body_max) s->bodies.bytes_max = 4 * s->body_max;
    s->n_io = cfg->io_threads;
    uint32_t per_io = connections_allowed(cfg) / s->n_io;
    s->conns_per_io = per_io ? per_io : 1;
    s->io = calloc(s->n_io, sizeof *s->io);
    for (uint32_t i = 0; s->io && i < s->n_io; i++) s->io[i].hangup_fd = -1;
    enum status st = s->io ? metrics_create(routes, cfg->old_metrics, &s->metrics) : ST_NOMEM;
    for (uint32_t i = 0; st == ST_OK && i < s->n_io; i++) st = loop_create(s, &s->io[i], i);
    if (st == ST_OK) st = strikes_create(cfg->max_key_failures, &s->strikes);
    if (gethostname(s->host_name, sizeof s->host_name - 1)) s->host_name[0] = 0;
    if (st == ST_OK && cfg->max_connections_address) st = crowd_create(cfg->max_connections_address, &s->crowd);
    if (st == ST_OK && cfg->stateful_sessions) st = sessions_create(cfg->max_sessions, cfg->session_s, &s->sessions);
    if (st == ST_OK) {
        uint32_t n = thread_cpu_count() >= 8 ? 2 : 1;
        if (cfg->text_threads) n = cfg->text_threads;
        st = text_create(n, 1024, &s->text);
    }
    if (st) {
        server_free(s);
        return st;
    }
    *s_out = s;
    return ST_OK;
}

enum status server_listen(struct server *s, int listen_fd, char *err, size_t err_bytes)
{
    enum status st = listen_open(s, listen_fd, err, err_bytes);
    if (st) return st;
    if (nvml_open(&s->nvml)) LOG_WARN("nvml: no memory or no thread, /metrics tells nothing of GPUs");
    if (*s->cfg->otlp_endpoint) st = trace_open(s->cfg, s->host_name, s->port, &s->trace, err, err_bytes);
    if (st) return st;
    s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(err, err_bytes, "cannot start the io threads");
    st = loop_accept(&s->io[0]);
    atomic_store(&s->accepting, listen_fd < 0);
    return st ? st : server_start_inner(s);
}

enum status server_start_inner(struct server *s)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; st == ST_OK && i < s->n_io; i++) st = loop_start(&s->io[i]);
    return st;
}

static void wake_all(struct server *s)
{
    for (uint32_t i = 0; i < s->n_io; i++) loop_wake(&s->io[i]);
}

static void set_state(struct server *s, enum server_state st)
{
    atomic_store_explicit(&s->state, st, memory_order_release);
    wake_all(s);
}

void server_ready(struct server *s, const struct api_model *model, const struct gen_engine *eng)
{
    s->model = model;
    s->eng = *eng;
    metrics_model(s->metrics, model->served_name[0], model->context);
    set_state(s, SRV_READY);
}

void server_accept(struct server *s, bool on)
{
    atomic_store(&s->accepting, on);
    wake_all(s);
}

void server_hand(struct server *s, bool away)
{
    atomic_store(&s->accepting, !away);
    atomic_store(&s->shut_idle, false);
    int now = away ? SRV_READY : SRV_HANDED;
    atomic_compare_exchange_strong(&s->state, &now, away ? SRV_HANDED : SRV_READY); /* not when it ends anyway */
    wake_all(s);
}

void server_shut_idle(struct server *s)
{
    atomic_store(&s->shut_idle, true);
    wake_all(s);
}

bool server_told(const struct server *s)
{
    bool told = server_idle(s);
    for (uint32_t i = 0; i < s->n_io; i++) told &= atomic_load(&s->io[i].n_conn) == 0;
    return told;
}

bool server_quiet(const struct server *s)
{
    return !atomic_load(&s->listening) && !atomic_load(&s->n_moving) && server_told(s);
}

void server_leave(struct server *s) { set_state(s, SRV_LEAVING); }

void server_drain(struct server *s) { set_state(s, SRV_DRAINING); }

void server_fail_all(struct server *s)
{
    atomic_store(&s->fail_all, true);
    wake_all(s);
}

/* In this order: a body that is complete is counted as a generation before it is no body any more. */
bool server_idle(const struct server *s) { return atomic_load(&s->n_body) == 0 && atomic_load(&s->n_gen) == 0; }

void server_stop(struct server *s)
{
    set_state(s, SRV_STOPPING);
    for (uint32_t i = 0; i < s->n_io; i++) loop_join(&s->io[i]);
    text_stop(s->text);
    for (uint32_t i = 0; i < s->n_io; i++) loop_clear(&s->io[i]);
}

void server_give_back(struct server *s, uint64_t now_us)
{
    if (atomic_load_explicit(&s->n_freed, memory_order_relaxed) < GIVE_BACK_BYTES ||
        now_us - s->t_given_back_us < GIVE_BACK_US)
        return;
    s->t_given_back_us = now_us;
    atomic_store_explicit(&s->n_freed, 0, memory_order_relaxed);
    memory_give_back();
}

void server_free(struct server *s)
{
    if (!s) return;
    text_stop(s->text); /* never listened: nobody has stopped it */
    text_free(s->text);
    for (uint32_t i = 0; s->io && i < s->n_io; i++) loop_free(&s->io[i]);
    free(s->io);
    if (s->listen_fd >= 0) close(s->listen_fd);
    if (s->reserve_fd >= 0) close(s->reserve_fd);
    crowd_free(s->crowd);
    strikes_free(s->strikes);
    sessions_free(s->sessions);
    trace_close(s->trace);
    nvml_close(s->nvml);
    metrics_free(s->metrics);
    free(s);
}
