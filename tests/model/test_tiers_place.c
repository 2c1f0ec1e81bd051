/* Blocks that the device reads where the host keeps them: model/test_tiers.c on two ranks, with every type of KV. */
#define TIERS_RANKS    2
#define TIERS_REQUESTS 400
#define TIERS_IN_PLACE 1
#define TIERS_KV_TYPES                     \
    {                                      \
        DT_F32, DT_BF16, DT_F16, DT_F8E4M3 \
    }
#include "model/test_tiers.c"
