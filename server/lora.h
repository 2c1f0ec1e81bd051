/* lora: POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them, and POST /adapters and DELETE
 * /adapters/NAME, by which SageMaker loads and unloads adapters. They are routes only with --lora-root: adapters are
 * read from below that folder alone.   Thread: the connection's io thread; files are read by a text thread. */
#pragma once

struct conn;

/* {"lora_name", "lora_path", "load_inplace"}; {"lora_name"}. */
void lora_load(struct conn *c);
void lora_unload(struct conn *c);
/* {"name", "src", "preload", "pin"}; the name is the rest of the path. */
void lora_platform_load(struct conn *c);
void lora_platform_unload(struct conn *c);
