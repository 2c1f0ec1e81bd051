/* probe: is it the device that computes NaN, or what it was asked?   Thread: one, whoever watches the engine; not the engine's own.
 *
 * A row of NaN costs the request that has it, and nothing else: it ends with an error and nothing that it computed stays in the cache
 * (flight.c). Requests that do so may be one client's: text that overflows f16, a hundred times over. So no number of them says that the
 * device is ill, and none ends the server. What tells is a question that nobody sent. When a request has ended so, a short plain prompt
 * is asked, of a tenant and a salt of its own, too short to be cached, and computed as any other request beside the others: by the exact promise what
 * they contain cannot reach it. If that is NaN three times in a row, each time computed anew, then weights, kernels or
 * the device are not to be trusted for anybody: PROBE_SICK. Three, because one bit that flips once is gone the next time.
 * A client costs the server one such prompt a second at most. */
#pragma once
#include "engine/engine.h"

enum { PROBE_IDS_MAX = 8, PROBE_TOKENS = 2, PROBE_BAD_MAX = 3, PROBE_EVERY_US = 1000000 };
enum probe_says { PROBE_WELL, PROBE_ASKS, PROBE_SICK }; /* ASKS: an answer is on its way, look again soon */
struct probe;

/* ids: plain text, 1 .. PROBE_IDS_MAX are used; copied. e: until probe_free. */
enum status     probe_create(struct engine *e, const uint32_t *ids, uint32_t n, struct probe **p_out);
enum probe_says probe_turn(struct probe *p, uint64_t now_us);
void            probe_free(struct probe *p); /* after eng_stop */
