/* Tiers below the CUDA device, two ranks: model/test_tiers.c, fewer and shorter requests. */
#include "cuda/cuda_test.h"
#define TIERS_DEVICE   DEV_CUDA
#define TIERS_RANKS    2
#define TIERS_REQUESTS 24
#define TIERS_SMALL    1
#include "model/test_tiers.c"
