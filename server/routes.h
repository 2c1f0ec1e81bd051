/* routes: the table of all served paths and their handlers.   Thread: any, the table is constant. */
#pragma once
#include "server/router.h"

/* Constant, and valid for ever. adapters: with the routes that load and unload them. */
const struct routes *routes_served(bool adapters);
