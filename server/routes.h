/* routes: the table of all served paths and their handlers.   Thread: any, the table is constant. */
#pragma once
#include "server/router.h"

const struct routes *routes_served(void);
