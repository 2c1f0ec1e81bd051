/* invoke: POST /invocations: SageMaker's verbs for sessions, and generations.   Thread: the connection's io thread. */
#pragma once
#include "server/conn.h"

void invoke_handle(struct conn *c);
