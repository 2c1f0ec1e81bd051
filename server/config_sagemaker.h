/* config_sagemaker: what SageMaker's folders and variables say, and those of the images that people come from.
 * Thread: main.
 * All of it lies below this server's own options. From weak to strong: what holds on SageMaker, HF_MODEL_ID,
 * serving.properties, OPTION_* and SERVING_*, the model's folder, SAGEMAKER_*, SM_LLAMA_CPP_*, SM_SGLANG_*, SM_VLLM_*,
 * SM_SPILLWAY_*. A variable that says nothing here is told once, with what to use instead. */
#pragma once
#include "server/config.h"

/* Whether this process is a SageMaker container: as --sagemaker says; auto: it is process 1, its first word is
 * "serve", and the platform's folder or one of its variables is there. c: with all options read. */
bool config_sagemaker_is_meant(const struct config *c, int argc, char *const *argv, char *const *env);
/* Stores what they say into c, which has the defaults so far. folder: of --sagemaker-folder. 0, or EXIT_USAGE with one
 * line in err. */
int config_sagemaker_read(struct config *c, const char *folder, char *const *env, char *err, size_t err_bytes);
/* After all sources: what depends on several of them. */
void config_sagemaker_finish(struct config *c);
