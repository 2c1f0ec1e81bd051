/* The first promise on the CUDA device, with --deterministic and with graphs: tests/model/test_exact.c, fewer mixes. */
#define EXACT_OTHER_DEVICE
#define EXACT_DEVICE DEV_CUDA
#ifdef CUDA_EMU
#define EXACT_MIXES 4
#define EXACT_OUT   12 /* the emulator draws a token as long as it computes one */
#endif
#include "model/test_exact.c"
