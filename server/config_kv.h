/* config_kv: what is wrong with the options of the KV tiers, said before anything is loaded.   Thread: main. */
#pragma once
#include "server/config.h"

/* 0 or an exit code with one line in err. What the machine does not allow just now (a full disk, a folder of another
 * server) is no fault of the options: the server serves without that tier. */
int config_kv_check(const struct config *c, char *err, size_t err_bytes);
