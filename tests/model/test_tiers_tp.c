/* Two ranks whose slices make one block below: model/test_tiers.c, fewer requests. */
#define TIERS_RANKS    2
#define TIERS_REQUESTS 600
#include "model/test_tiers.c"
