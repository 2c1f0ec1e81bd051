/* folder: what a folder or file holds that cannot be served, for the one line that says so.   Thread: any while
 * starting. Names are looked at, and of files adapter_config.json alone is read. Texts are phrases whose subject is the
 * path:
 * "holds a PEFT adapter (adapter_config.json) ...; needed is ...". */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* A path that is given as a model and has no config.json: an adapter, .gguf, params.json, one model a level below,
 * nothing at all. false: config.json is there, or the path cannot be looked at; text is "". */
bool folder_no_model(const char *path, char *text, size_t text_bytes);
/* A folder without model.safetensors and its index: what it has instead. Always a phrase. */
void folder_no_weights(const char *path, char *text, size_t text_bytes);
/* A folder without tokenizer.json: what it has instead. Always a phrase. */
void folder_no_tokenizer(const char *path, char *text, size_t text_bytes);
/* Does the folder hold an adapter beside what else is there? */
bool folder_has_adapter(const char *path);
