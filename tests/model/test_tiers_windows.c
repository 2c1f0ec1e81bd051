/* Models whose layers with a window have a pool of their own: model/test_tiers.c on them, where what is free in either
 * pool is not a number at every step. Without tiers all layers keep all tokens in one pool, so the answers that are
 * compared have nothing in common with these pools. */
#define TIERS_GOLDS                    \
    {                                  \
        "gemma3", "gpt-oss", "cohere2" \
    }
#define TIERS_WINDOWS  40
#define TIERS_POISON   1
#define TIERS_REQUESTS 1200
#include "model/test_tiers.c"
