/* health: the answers to probes. "Alive" means that the engine makes progress, not that the process exists. A probe is
 * answered without waiting.   Thread: any. */
#pragma once
struct conn;

void health_handle_health(struct conn *c); /* /health, /ping: serving or draining, and the engine makes progress */
void health_handle_ready(
    struct conn *
        c); /* /ready: the same, and new requests are accepted. The body lists degraded parts; they do not change the status */
void health_handle_livez(struct conn *c);
