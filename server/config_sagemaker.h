/* config_sagemaker: reads options from SageMaker's folders and variables, and from those of other serving images.
 * Thread: main.
 * This server's own options win over all of these. Among them, from weak to strong: the defaults for SageMaker,
 * HF_MODEL_ID, serving.properties, OPTION_* and SERVING_*, the model's folder, SAGEMAKER_*, SM_LLAMA_CPP_*,
 * SM_SGLANG_*, SM_VLLM_*, SM_SPILLWAY_*. Each variable without effect here gets one line of the log, with what to use
 * instead. */
#pragma once
#include "server/config.h"

/* Whether this process is a SageMaker container. --sagemaker decides; if it is auto: the process is number 1, its first
 * word is "serve", and the platform's folder or a variable SAGEMAKER_* exists. c: all options are read. */
bool config_sagemaker_is_meant(const struct config *c, int argc, char *const *argv, char *const *env);
/* Stores the values in c, which has only the defaults before. folder: --sagemaker-folder. Returns 0, or EXIT_USAGE with
 * one line in err. */
int config_sagemaker_read(struct config *c, const char *folder, char *const *env, char *err, size_t err_bytes);
/* Call it after all sources are read: settles what depends on several of them. */
void config_sagemaker_finish(struct config *c);
