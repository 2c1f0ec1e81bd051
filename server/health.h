/* health: what probes are told. Alive means that the engine makes progress, never that the process exists; and no probe waits for
 * anything.   Thread: any. */
#pragma once
struct conn;

void health_handle_health(struct conn *c); /* /health, /ping: serving or draining, and the engine makes progress */
void health_handle_ready(struct conn *c);  /* /ready: and takes new requests. What is degraded is in the body, not in the status */
void health_handle_livez(struct conn *c);
