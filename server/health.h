/* health: what probes are told. Alive means that the engine makes progress, never that the process exists; and no probe waits for
 * anything.   Thread: any. */
#pragma once
#include <stdbool.h>

struct conn;
struct server;

bool health_ok(const struct server *s);    /* /health, /ping: serving or draining, and the engine makes progress */
bool health_ready(const struct server *s); /* /ready: and takes new requests; handed over: those of who is connected */

void health_handle_health(struct conn *c);
void health_handle_ready(struct conn *c); /* what is degraded is in the body; the status says only whether requests are taken */
void health_handle_livez(struct conn *c);
