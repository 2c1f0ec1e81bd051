/* gen: a generation: passes its requests to the engine and their tokens to the socket.   Thread: its io thread; a text
 * thread has the call while it parses and tokenises the body.
 * A gen outlives its connection until the engine has finished all requests of the gen. */
#pragma once
#include "server/conn.h"

void gen_handle(struct conn *c); /* the handler of a ROUTE_GEN route, in the route's dialect */

void gen_message(struct io *io, void *msg); /* handles one message of io.outbox */
void gen_fail_all(struct io *io);           /* shutdown or a dead engine: ends each generation with an error now */
