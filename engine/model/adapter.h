/* adapter: a low-rank adapter (LoRA) as PEFT writes it, in host memory: which matrices of a model it changes, and by
 * what.   adapter_load -> adapter_keep, adapter_drop; the last drop frees it. Thread: any; its bytes never change.
 *
 * Its identity is a digest of both files, byte by byte. It goes into the salt of every prompt that the adapter
 * computes, and with it into each key of KV: two adapters, or an adapter and the model alone, never share a block,
 * whatever their names are. docs/design/lora.md has the reasons. */
#pragma once
#include "base/json.h"
#include "engine/model/model.h"
#include "kvcache/device/kv.h"
#include <stdatomic.h>

/* The matrices that an adapter can change. */
enum lora_target { LORA_Q, LORA_K, LORA_V, LORA_O, LORA_GATE, LORA_UP, LORA_DOWN, LORA_TARGETS };
enum {
    LORA_SLOTS_MAX = 64, /* adapters on a device at once */
    LORA_RANK_MAX = 512,
    LORA_NAME_MAX = 256, /* bytes of a name, with its end */
};

/* What an adapter has for one matrix: rows of A [rank, k], and rows [row, + n) of B [., rank]. */
struct adapter_part {
    const unsigned char *a, *b; /* unaligned; NULL: it does not change this matrix */
    enum dtype           a_dtype, b_dtype;
    uint32_t             rank, row;
    float                scale;
};

struct adapter {
    char          name[LORA_NAME_MAX];
    char         *path;       /* as /v1/models shows it */
    unsigned char digest[32]; /* of all its bytes */
    uint64_t      serial;     /* of no other adapter of this process */
    uint32_t      n_layer, rank_max;
    struct adapter_part (*part)[LORA_TARGETS]; /* [n_layer] */
    char            *bytes;                    /* its weights' file */
    _Atomic uint32_t n_keep;
    _Atomic uint32_t n_live, n_begun; /* requests with the engine, and those of them that have run: for metrics */
};

/* Reads the folder's adapter_config.json and adapter_model.safetensors, and checks them against the model. err: one
 * line with file, key or tensor, what was found, what is allowed. ST_NOT_FOUND: no such folder or file; ST_CONFIG: an
 * adapter that is not served; ST_IO; ST_NOMEM. The caller has one keep of *out. */
enum status adapter_load(const struct model_spec *spec, const char *dir, const char *name, uint32_t rank_max,
                         struct adapter **out, char *err, size_t err_bytes);
/* The same of files in memory. config [n_config] is borrowed; weights [n_weights], malloc'd, is the function's, in any
 * case. */
struct adapter_files {
    const char *config;
    size_t      n_config;
    char       *weights;
    size_t      n_weights;
};
enum status     adapter_make(const struct model_spec *spec, const struct adapter_files *files, const char *name,
                             uint32_t rank_max, struct adapter **out, char *err, size_t err_bytes);
struct adapter *adapter_keep(struct adapter *a); /* NULL stays NULL; returns a */
void            adapter_drop(struct adapter *a); /* of NULL: nothing */
/* The salt of a prompt that this adapter computes, from the salt that it would have without. NULL: salt. */
struct kv_salt adapter_salt(const struct adapter *a, struct kv_salt salt);

/* adapter_config.c: what adapter_config.json says. */
struct adapter_config {
    double   alpha;
    uint32_t rank;
    bool     rs;             /* the scale is alpha / sqrt(rank) */
    json_t  *root, *targets; /* targets: part of root; a list of names, or one text */
    json_t  *alphas, *ranks; /* alpha_pattern, rank_pattern; part of root, or NULL */
};
/* ST_CONFIG with a line in err; on ST_OK adapter_config_free ends it. */
enum status adapter_config_read(const char *text, size_t n, struct adapter_config *out, char *err, size_t err_bytes);
void        adapter_config_free(struct adapter_config *c);
/* The scale of a module ("model.layers.0.self_attn.q_proj") whose matrices have this rank. ST_CONFIG: the file says
 * another rank, or that the module is none of the targets; a line in err. */
enum status adapter_config_scale(const struct adapter_config *c, const char *module, uint32_t rank, float *scale_out,
                                 char *err, size_t err_bytes);
