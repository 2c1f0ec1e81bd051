/* health: the answers to probes: 200 or 503. /health and /ready test whether the engine makes progress. The answer
 * never waits for the engine.   Thread: any. */
#pragma once
struct conn;

/* /health and /ping: 200 if the model is loaded and the engine makes progress, also while the server drains. */
void health_handle_health(struct conn *c);
/* /ready: 200 if the engine makes progress and the state is SRV_READY or SRV_HANDED. The body lists degraded parts,
 * which do not change the status. */
void health_handle_ready(struct conn *c);
void health_handle_livez(struct conn *c); /* /livez: always 200 */
