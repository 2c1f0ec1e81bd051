/* sessions: the sessions of SageMaker's sticky routing.   Thread: any; the lock is held for one look-up.
 * A session is an id with an end. It holds no text: SageMaker sends all requests of a session to one instance, and there
 * they find the prefix of their conversation in the KV cache. All memory is taken at the start. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sessions;
enum { SESSION_ID_BYTES = 37 }; /* a UUID with its end */

/* n_max: open at one time. seconds: the life of each, from its opening on. */
enum status sessions_create(uint32_t n_max, uint32_t seconds, struct sessions **s_out);
/* A new one, whose id nobody can guess. now_us: as clock_us. ST_AGAIN: n_max are open. ST_IO: no random bytes. */
enum status sessions_open(struct sessions *s, uint64_t now_us, char id_out[SESSION_ID_BYTES]);
/* Whether id [n] is open. */
bool sessions_has(struct sessions *s, const char *id, size_t n, uint64_t now_us);
/* False: it was not open. */
bool     sessions_close(struct sessions *s, const char *id, size_t n, uint64_t now_us);
uint32_t sessions_seconds(const struct sessions *s);
void     sessions_free(struct sessions *s); /* NULL: nothing */
