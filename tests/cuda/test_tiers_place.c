/* Blocks that the CUDA device reads where the host keeps them, two ranks: model/test_tiers.c. Elsewhere than on the
 * emulator the slab is pinned, and kernels read it over the bus. */
#include "cuda/cuda_test.h"
#define TIERS_DEVICE   DEV_CUDA
#define TIERS_RANKS    2
#define TIERS_REQUESTS 16
#define TIERS_SMALL    1
#define TIERS_IN_PLACE 1
#define TIERS_KV_TYPES      \
    {                       \
        DT_COUNT, DT_F8E4M3 \
    }
#include "model/test_tiers.c"
