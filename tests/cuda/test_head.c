/* Labels of models that classify, from states of the CUDA device: tests/model/test_head.c. The states have 16 bits. */
#define HEAD_DEVICES \
    {                \
        DEV_CUDA     \
    }
#define HEAD_ERROR 0.25
#include "model/test_head.c"
