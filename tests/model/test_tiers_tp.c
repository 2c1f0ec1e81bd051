/* Two ranks whose slices make one block below: model/test_tiers.c, fewer requests, and again with KV of 8 bits. */
#define TIERS_RANKS    2
#define TIERS_REQUESTS 400
#define TIERS_KV_TYPES      \
    {                       \
        DT_COUNT, DT_F8E4M3 \
    }
#include "model/test_tiers.c"
