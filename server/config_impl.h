/* config_impl: one value of one option; private to config.c and config_value.c.   Thread: main. */
#pragma once
#include "server/config.h"
#include "server/options.h"

/* Stores the text v, or adds it to a list. origin: where it came from, for the error line: "--port", "SPILLWAY_PORT",
 * "spillway.conf line 3: port". 0, or EXIT_USAGE with one line in err. */
int config_set(struct config *c, const struct opt *o, const char *v, const char *origin, char *err, size_t err_bytes);
