/* Two ranks: a piece of a window's block is made of as many pieces of their slices. And again with KV of 8 bits. */
#define TIERS_GOLDS                    \
    {                                  \
        "gemma3", "gpt-oss", "exaone4" \
    }
#define TIERS_KV_TYPES      \
    {                       \
        DT_COUNT, DT_F8E4M3 \
    }
#define TIERS_WINDOWS  40
#define TIERS_POISON   1
#define TIERS_RANKS    2
#define TIERS_REQUESTS 200
#include "model/test_tiers.c"
