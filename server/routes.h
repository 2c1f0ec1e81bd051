/* routes: the table of all paths that are served, with their handlers.   Thread: any, it is constant. */
#pragma once
#include "server/router.h"

const struct routes *routes_served(void);
