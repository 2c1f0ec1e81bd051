/* Encoders on the CUDA device, with --deterministic: tests/model/test_encoder.c. Activations of 16 bits are rounded
 * after every op. */
#define ENCODER_DEVICE DEV_CUDA
#define ENCODER_WAYS \
    { DEV_CUDA, 1, DT_F16, 1, 0.9999 }, { DEV_CUDA, 2, DT_F16, 1, 0.9999 }, { DEV_CUDA, 1, DT_BF16, 1, 0.998 }
#include "model/test_encoder.c"
