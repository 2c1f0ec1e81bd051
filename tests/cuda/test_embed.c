/* Vectors on the CUDA device, with --deterministic: tests/model/test_embed.c. Activations of 16 bits are rounded after
 * every op: with bfloat16 transformers itself has a cosine of 0.99981 to its float32 on these small checkpoints. */
#define EMBED_DEVICES \
    {                 \
        DEV_CUDA      \
    }
#define EMBED_COSINE 0.9997
#include "model/test_embed.c"
