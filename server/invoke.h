/* invoke: the handler of POST /invocations: requests of SageMaker to open or close a session, and generations.
 * Thread: the connection's io thread. */
#pragma once
#include "server/conn.h"

void invoke_handle(struct conn *c);
