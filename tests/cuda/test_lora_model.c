/* Adapters of whole models on the CUDA device: model/test_lora.c within the roundings of 16-bit activations. */
#define LORA_DEVICE DEV_CUDA
#define LORA_ERROR \
    (16 * 0x1p-9) /* four roundings more than a model alone has (test_model.c): of A, B and what they add */
#define LORA_TYPE DT_BF16
#include "model/test_lora.c"
