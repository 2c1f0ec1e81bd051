/* constraint: turns the form that a request demands of its answer (response_format, structured_outputs and the older
 * guided_* fields) into a grammar, and a guide for each choice.   Thread: the one that runs call_prepare. */
#pragma once
#include "api/call.h"

/* Call after the choices are made and before the body's JSON tree is dropped. Fills c->grammar and the choices'
 * guides, or leaves them NULL if the request demands no form. ST_INVALID or ST_NOMEM with *e. */
enum status constraint_prepare(struct call *c, struct api_error *e);
void        constraint_free(struct call *c);
