/* probe: finds out whether NaN comes from the device or from a request.   Thread: one that watches the engine, not the
 * engine's own.
 *
 * A row of NaN costs only its own request: the request ends with an error, and none of its blocks stays in the cache
 * (flight.c). One client can send many such requests (text that overflows f16). So no number of them proves that the
 * device is damaged, and none ends the server. The proof is a prompt of our own. After a request has ended with NaN,
 * the probe submits a short plain prompt with its own tenant and salt, too short to be cached. It is computed beside
 * the other requests, and by the exact promise their content cannot reach it. If its result is NaN three times in a
 * row, each computed anew, then weights, kernels or the device are damaged for everybody: PROBE_SICK. Three times,
 * because a bit that flipped once is right the next time.
 * A client can cause at most one such prompt per second. probe_ask causes one too, after news of the driver. */
#pragma once
#include "engine/engine.h"

enum { PROBE_IDS_MAX = 8, PROBE_TOKENS = 2, PROBE_BAD_MAX = 3, PROBE_EVERY_US = 1000000 };
enum probe_says { PROBE_WELL, PROBE_ASKS, PROBE_SICK }; /* ASKS: an answer is pending, call probe_turn again soon */
struct probe;

/* ids: plain text, 1 .. PROBE_IDS_MAX are used; copied. e: until probe_free. */
enum status probe_create(struct engine *e, const uint32_t *ids, uint32_t n, struct probe **p_out);
/* The first request of a started engine, before clients are served: the same prompt. Waits for its end. ST_INVALID: NaN
 * PROBE_BAD_MAX times. ST_DEVICE: the engine ended it otherwise. ST_TIMEOUT: no progress for stuck_us. Logged by the
 * caller. */
enum status     probe_first(struct probe *p, uint64_t stuck_us);
enum probe_says probe_turn(struct probe *p, uint64_t now_us);
/* The next turn asks the prompt though no request gave NaN. A device that is lost fails in that step. */
void probe_ask(struct probe *p);
void probe_free(struct probe *p); /* after eng_stop */
