/* constraint: the form that a request asks of its answer (response_format, structured_outputs and the older guided_* fields),
 * as a grammar and a guide for each choice.   Thread: the call's owner, of call_prepare. */
#pragma once
#include "api/call.h"

/* Before the tree of the body is dropped, and after choices are made. Fills c->grammar and the choices' guides, or leaves them NULL
 * where nothing is asked. ST_INVALID or ST_NOMEM with *e. */
enum status constraint_prepare(struct call *c, struct api_error *e);
void        constraint_free(struct call *c);
