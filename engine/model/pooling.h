/* pooling: what a model folder says of vectors: sentence-transformers' modules.json and the files that it names.
 *   Thread: any, while loading. */
#pragma once
#include "engine/model/dense.h"
#include "engine/model/model.h"

struct model_pooling {
    bool                found;     /* modules.json is there and has a Pooling module */
    enum model_pool     pool;      /* where nothing says otherwise LAST, and CLS of encoders */
    bool                skips;     /* include_prompt is false: tokens of a prompt do not count */
    bool                normalize; /* vectors have length 1: there is a Normalize module, or no modules.json */
    struct model_dense *dense;     /* the Dense modules, the caller's to free; NULL: there are none */
    bool shortens; /* config.json: is_matryoshka, or matryoshka_dimensions: a vector's beginning is a vector */
};
/* spec: of the same folder. wanted: vectors are asked for, whatever the folder says. ST_CONFIG: a module, a kind of
 * pooling or an attention that is not served; ST_IO. err: one line with the file, the key and what is allowed. */
enum status model_pooling_load(const struct source *src, const struct model_spec *spec, bool wanted,
                               struct model_pooling *p_out, char *err, size_t err_bytes);
/* Some decoders that embed or classify look both ways. Computed as causal ones they would give other states. ST_CONFIG:
 * the folder is of such a one; ST_IO. err as above. */
enum status model_causal_check(const struct source *src, char *err, size_t err_bytes);
