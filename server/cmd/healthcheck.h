/* healthcheck: `spillway --healthcheck`: asks the server on --host and --port for /health.   Thread: main. */
#pragma once
#include "server/config.h"

/* 0: the server is well; 1: it is not, and err has one line. */
int healthcheck_main(const struct config *c, char *err, size_t err_bytes);
