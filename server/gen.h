/* gen: a generation: text down to the engine once, tokens up to the socket once.   Thread: its io thread (the call is
 * lent to a text thread while it is parsed and tokenised).
 * A gen outlives its connection until the engine has let go of every request of it. */
#pragma once
#include "server/conn.h"

void gen_handle(struct conn *c); /* of every ROUTE_GEN, in the route's dialect */

void gen_message(struct io *io, void *msg); /* from the outbox */
void gen_fail_all(struct io *io);           /* shutdown or a dead engine: every client hears it now */
