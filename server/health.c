#include "server/health.h"
#include "base/clock.h"
#include "server/conn.h"

bool health_ok(const struct server *s) { return server_state(s) != SRV_LOADING && s->eng.alive(s->eng.ctx, clock_us()); }

bool health_ready(const struct server *s) { return (server_state(s) == SRV_READY || server_state(s) == SRV_HANDED) && health_ok(s); }

static void answer(struct conn *c, bool ok) { conn_respond_with(c, ok ? 200 : 503, NULL, ok ? NULL : "Retry-After: 1\r\n", NULL, 0); }

void health_handle_health(struct conn *c) { answer(c, health_ok(c->io->srv)); }
void health_handle_ready(struct conn *c) { answer(c, health_ready(c->io->srv)); }
void health_handle_livez(struct conn *c) { answer(c, true); }
