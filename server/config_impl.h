/* config_impl: one value of one option; private to the files that read sources.   Thread: main. */
#pragma once
#include "server/config.h"
#include "server/options.h"

/* Stores the text v, or adds it to a list. origin: where it came from, for the error line: "--port", "SPILLWAY_PORT",
 * "spillway.conf line 3: port". 0, or EXIT_USAGE with one line in err. */
int config_set(struct config *c, const struct opt *o, const char *v, const char *origin, char *err, size_t err_bytes);

/* A list that a source gives replaces that of the source before: emptied at the first value. fresh: of this source. */
void config_clear_list(struct config *c, const struct opt *o, bool fresh[OPTIONS_MAX]);
/* One line more in c->told. */
void config_tell(struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The words behind argv[0]. only_config: nothing but --config is stored. 0, or EXIT_USAGE with one line in err. */
int config_read_flags(struct config *c, int argc, char *const *argv, bool only_config, char *err, size_t err_bytes);
