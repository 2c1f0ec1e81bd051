/* app_watch: what the main thread sees of the engine, of its GPUs and of other nodes, and what it does about it. */
#include "base/log.h"
#include "server/app.h"
#include "server/cmd/dump.h"
#include "server/metrics.h"
#include "server/server.h"
#include <inttypes.h>

void app_engine_line(struct app *a, uint64_t now)
{
    struct eng_stats e;
    eng_stats(a->boot.engine, &e);
    double   dt = (double)(now - a->t_line_us) / 1e6;
    uint64_t prompt = e.n_prompt_tokens - a->last.n_prompt_tokens, out = e.n_generated - a->last.n_generated;
    uint64_t asked = e.n_query_tokens - a->last.n_query_tokens, hit = e.n_hit_tokens - a->last.n_hit_tokens;
    if (prompt || out || e.n_running || e.n_waiting)
        LOG_INFO(
            "engine: prompt %.1f tok/s, output %.1f tok/s, running %u, waiting %u, kv %.1f %%, prefix hits %.1f %%",
            (double)prompt / dt, (double)out / dt, e.n_running, e.n_waiting, 100.0 * eng_kv_use(&e),
            asked ? 100.0 * (double)hit / (double)asked : 0.0);
    a->last = e;
    a->t_line_us = now;
}

/* What the driver says of our GPUs. GPU_WELL also where there are none. */
static enum gpu_says hear_gpus(struct app *a, const char **why_out)
{
    struct nvml_sample s;
    if (!a->gpus.n_own || !nvml_get(a->srv->nvml, &s)) return GPU_WELL;
    return gpu_watch_turn(&a->gpus, &s, why_out);
}

int app_watch_node(struct app *a, uint64_t now)
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
    return a->t_term_us && now > a->t_term_us + (uint64_t)a->cfg.drain_s * 1000000u + APP_FAIL_US ? 0 : -1;
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
        if (!a->t_term_us) app_begin_end(a, now);
        break;
    case GPU_RESTART:
        if (!dead) eng_condemn(a->boot.engine, why, ST_DEVICE);
        break;
    case GPU_BROKEN:
        if (!dead) eng_condemn(a->boot.engine, why, ST_BROKEN);
        break;
    }
}

int app_watch_engine(struct app *a, uint64_t now)
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
    if (!server_told(a->srv) && now - a->t_term_us <= APP_FAIL_US) return 0;
    return e.broken ? EXIT_HARDWARE : EXIT_SOFTWARE;
}
