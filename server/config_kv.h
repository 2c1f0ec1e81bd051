/* config_kv: checks the options of the KV tiers before anything is loaded.   Thread: main. */
#pragma once
#include "server/config.h"

/* Returns 0, or an exit code with one line in err. A state of the machine (a full disk, a folder that another server
 * uses) is no error here: the server then serves without that tier. */
int config_kv_check(const struct config *c, char *err, size_t err_bytes);
