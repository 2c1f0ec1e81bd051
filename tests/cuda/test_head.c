/* Labels of models that classify, from states of the CUDA device: tests/model/test_head.c. The states have 16 bits, and
 * the logits are up to 40. */
#define HEAD_DEVICES \
    {                \
        DEV_CUDA     \
    }
#define HEAD_ERROR 0.4
#include "model/test_head.c"
