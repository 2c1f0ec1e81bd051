/* sessions: the sessions of SageMaker's sticky routing.   Thread: any; the lock is held for one look-up.
 * A session is an id with an expiry. It holds no text: SageMaker sends all requests of a session to one instance,
 * where the KV cache has the prefix of their conversation. All memory is allocated by sessions_create. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;
enum { SESSION_ID_BYTES = 37 }; /* a UUID and its NUL */

/* n_max: most sessions open at one time. seconds: the life of a session, from its opening on. ST_NOMEM. */
enum status sessions_create(uint32_t n_max, uint32_t seconds, struct sessions **s_out);
/* Opens a session with a random id, which nobody can guess. now_us: of clock_us. ST_AGAIN: n_max sessions are open.
 * ST_IO:
 * no random bytes. */
enum status sessions_open(struct sessions *s, uint64_t now_us, char id_out[SESSION_ID_BYTES]);
/* Whether a session with id [n] is open. */
bool sessions_has(struct sessions *s, const char *id, size_t n, uint64_t now_us);
/* Closes a session. False: it was not open. */
bool     sessions_close(struct sessions *s, const char *id, size_t n, uint64_t now_us);
uint32_t sessions_seconds(const struct sessions *s);
void     sessions_free(struct sessions *s); /* NULL: nothing */
