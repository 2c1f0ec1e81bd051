/* config_sagemaker: settings from SageMaker's folders and variables, and from the variables of other servers' images.
 * Thread: main.
 * This server's own options override all of them. From weak to strong: the defaults on SageMaker, HF_MODEL_ID,
 * serving.properties, OPTION_* and SERVING_*, the model's folder, SAGEMAKER_*, SM_LLAMA_CPP_*, SM_SGLANG_*, SM_VLLM_*,
 * SM_SPILLWAY_*. A variable that has no effect here is logged once, with its replacement. */
#pragma once
#include "server/config.h"

/* Whether this process runs in a SageMaker container: the value of --sagemaker; for auto: whether it is process 1, its
 * first argument is "serve", and the platform's folder or one of its variables exists. c has all options. */
bool config_sagemaker_is_meant(const struct config *c, int argc, char *const *argv, char *const *env);
/* Writes these settings into c, which has only the defaults so far. folder: the value of --sagemaker-folder. Returns
 * 0, or EXIT_USAGE with one line in err. */
int config_sagemaker_read(struct config *c, const char *folder, char *const *env, char *err, size_t err_bytes);
/* Call after all sources are read: sets the options that depend on several of them. */
void config_sagemaker_finish(struct config *c);
