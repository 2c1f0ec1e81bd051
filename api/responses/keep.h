/* keep: what is stored of a response: its input items, its output items, and the object around them.   Thread: the
 * call's owner. Without responses_call.stores the functions do nothing. */
#pragma once
#include "api/responses/responses.h"
#include "api/responses/store.h"

enum { KEEP_BYTES_MAX = 1 << 30 };

/* Keeps the request's own input. ST_NOMEM. */
enum status responses_keep_input(struct call *c, const json_t *input);
/* Keeps the item that has just ended, which begins at byte from of the output. */
void responses_keep_output(struct call *c, size_t from);
/* Stores the response, which has ended. Where that fails, `stores` is false from then on. */
void responses_keep(struct call *c, const char *status);
