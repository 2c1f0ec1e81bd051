/* Tiers below the CUDA device, two ranks: model/test_tiers.c, fewer and shorter requests. On the emulator some copies
 * fail. */
#include "cuda/cuda_test.h"
#define TIERS_DEVICE   DEV_CUDA
#define TIERS_RANKS    2
#define TIERS_REQUESTS 24
#define TIERS_SMALL    1
#ifdef CUDA_EMU
#define TIERS_TROUBLE() emu_fail_after("cudaMemcpy2DAsync", draw(3), cudaErrorInvalidValue)
#define TIERS_FAILS     1
#endif
#include "model/test_tiers.c"
