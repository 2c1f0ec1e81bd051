/* peek: what only the tensors of a checkpoint say, and config.json does not or not truly.   Private to engine/model/.
 * Thread: any. Heads are read, and of tensors only those that a question needs. */
#pragma once
#include "engine/model/model.h"
#include "engine/model/safetensors.h"

/* Called once config.json is in spec. Sets dtype where that is DT_COUNT (the embedding's), and clears tied where
 * lm_head.weight has other numbers than the embedding, and fills layer_codes. A checkpoint that cannot be opened is
 * left to loading, which says why. ST_CONFIG, ST_IO, ST_NOMEM: one line in err. */
/* Part of it: layer_codes of a quantised checkpoint. */
enum status peek_codes(struct model_spec *spec, const struct st_set *set, char *err, size_t err_bytes);
enum status peek_spec(struct model_spec *spec, const struct source *src, char *err, size_t err_bytes);
