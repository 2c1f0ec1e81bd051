#include "server/health.h"
#include "base/clock.h"
#include "base/json.h"
#include "server/conn.h"
#include <string.h>

static bool is_alive(const struct server *s)
{
    return server_state(s) != SRV_LOADING && s->eng.alive(s->eng.ctx, clock_us());
}

/* Handed over, it still takes requests of those who are connected. */
static bool is_ready(const struct server *s)
{
    return (server_state(s) == SRV_READY || server_state(s) == SRV_HANDED) && is_alive(s);
}

static void answer(struct conn *c, bool ok)
{
    conn_respond_with(c, ok ? 200 : 503, NULL, ok ? NULL : "Retry-After: 1\r\n", NULL, 0);
}

void health_handle_health(struct conn *c) { answer(c, is_alive(c->io->srv)); }

/* Ready, and why it is less than it could be. Anybody may ask, so no folder is named. */
static void answer_degraded(struct conn *c, const struct kv_tiers_stats *t)
{
    struct buf b;
    buf_init(&b, 4096);
    buf_puts(&b, "{\"status\":\"degraded\",\"reasons\":[{\"part\":\"kv_store\",\"folders\":");
    json_put_int(&b, t->n_degraded);
    buf_puts(&b, ",\"reason\":");
    json_put_str(&b, t->degraded, strlen(t->degraded));
    buf_puts(&b, "}]}\n");
    conn_respond_with(c, 200, "application/json", NULL, buf_cstr(&b), b.n);
    buf_free(&b);
}

void health_handle_ready(struct conn *c)
{
    const struct server  *s = c->io->srv;
    struct kv_tiers_stats t = { .n_degraded = 0 };
    bool                  ready = is_ready(s);
    if (ready && s->eng.tiers && s->eng.tiers(s->eng.ctx, &t) && t.n_degraded)
        answer_degraded(c, &t);
    else
        answer(c, ready);
}
void health_handle_livez(struct conn *c) { answer(c, true); }
