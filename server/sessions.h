/* sessions: the sessions of SageMaker's sticky routing.   Thread: any; the lock is held for one look-up.
 * A session is an id and the time at which it expires. It holds no text: SageMaker sends all requests of a session to
 * one instance, where they find the prefix of their conversation in the KV cache. sessions_create allocates all
 * memory. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;
enum { SESSION_ID_BYTES = 37 }; /* a UUID and its NUL */

/* n_max: most sessions that are open at one time. seconds: a session expires so long after it was opened. ST_NOMEM. */
enum status sessions_create(uint32_t n_max, uint32_t seconds, struct sessions **s_out);
/* Opens a session with a random id. now_us: of clock_us. ST_AGAIN: n_max are open. ST_IO: there are no random bytes. */
enum status sessions_open(struct sessions *s, uint64_t now_us, char id_out[SESSION_ID_BYTES]);
/* Whether the session with the id of n bytes is open. */
bool sessions_has(struct sessions *s, const char *id, size_t n, uint64_t now_us);
/* False: the session was not open. */
bool     sessions_close(struct sessions *s, const char *id, size_t n, uint64_t now_us);
uint32_t sessions_seconds(const struct sessions *s); /* as given to sessions_create */
void     sessions_free(struct sessions *s);          /* NULL is allowed */
