/* invoke: the handler of POST /invocations: requests of SageMaker to open or close a session, and generations.
 * Thread: the connection's io thread. */
#pragma once
#include "server/conn.h"

/* A handler of a route (routes.c): io thread, must not wait, answers once. */
void invoke_handle(struct conn *c);
