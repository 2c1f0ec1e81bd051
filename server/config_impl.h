/* config_impl: functions that store options; private to the files that read sources of options.   Thread: main. */
#pragma once
#include "server/config.h"
#include "server/options.h"

/* Stores the value v of option o, or adds it to a list. origin: the place of the value, for the error line: "--port",
 * "SPILLWAY_PORT", "spillway.conf line 3: port". Returns 0, or EXIT_USAGE with one line in err. */
int config_set(struct config *c, const struct opt *o, const char *v, const char *origin, char *err, size_t err_bytes);

/* Empties the list of option o at the first value that a source has for it, because it replaces the list of the source
 * before. fresh: [option_index] whether this source's values have begun; all false at its beginning. */
void config_clear_list(struct config *c, const struct opt *o, bool fresh[OPTIONS_MAX]);
/* Adds a line to c->told. */
void config_tell(struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads the words after argv[0]. only_config: stores --config alone. Returns 0, or EXIT_USAGE with one line in err. */
int config_read_flags(struct config *c, int argc, char *const *argv, bool only_config, char *err, size_t err_bytes);
