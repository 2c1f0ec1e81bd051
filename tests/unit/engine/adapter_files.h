/* adapter_files: a small model, and adapters for it in memory, for tests of what is read. */
#pragma once
#include "base/log.h"
#include "engine/model/adapter.h"
#include "test.h"
#include <string.h>

static const char small_model[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 24,"
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"num_hidden_layers\": 2, \"vocab_size\": 32,"
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"torch_dtype\": \"float32\"}";

static inline void small_spec(struct model_spec *out)
{
    static const struct source_embed file = { "config.json", (const unsigned char *)small_model,
                                              sizeof small_model - 1 };
    static const struct source       src = { .embed = &file, .n_embed = 1, .dummy = true };
    char                             err[300] = "";
    if (model_spec_load(&src, out, err, sizeof err)) fail_msg("%s", err);
}

struct small_tensor {
    const char *name, *dtype;
    uint32_t    rows, cols;
    float       first; /* of F32; the others are 0.5 */
};
#define Q0(ab) "base_model.model.model.layers.0.self_attn.q_proj.lora_" ab ".weight"

/* A file of these tensors, malloc'd. */
static inline char *small_file(const struct small_tensor *t, size_t n, size_t *n_out)
{
    char   head[4096] = "{";
    size_t at = 1, data = 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)t[i].rows * t[i].cols * (strcmp(t[i].dtype, "F32") == 0 ? 4 : 2);
        at += (size_t)snprintf(head + at, sizeof head - at,
                               "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [%u, %u], \"data_offsets\": [%zu, %zu]}",
                               i ? ", " : "", t[i].name, t[i].dtype, t[i].rows, t[i].cols, data, data + bytes);
        data += bytes;
    }
    at += (size_t)snprintf(head + at, sizeof head - at, "}");
    char *file = calloc(1, 8 + at + data);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (char)(at >> 8 * i);
    memcpy(file + 8, head, at);
    char *to = file + 8 + at;
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < t[i].rows * t[i].cols; k++) {
            float    v = k ? 0.5f : t[i].first;
            uint16_t half = 0x3800; /* 0.5 as f16 */
            bool     wide = strcmp(t[i].dtype, "F32") == 0;
            memcpy(to, wide ? (const void *)&v : (const void *)&half, wide ? 4 : 2);
            to += wide ? 4 : 2;
        }
    *n_out = 8 + at + data;
    return file;
}

/* The adapter of this configuration and these tensors; NULL with a line in err. */
static inline struct adapter *small_make(const char *config, const struct small_tensor *t, size_t n, uint32_t rank_max,
                                         char *err, size_t err_bytes)
{
    struct model_spec    spec;
    struct adapter      *a = NULL;
    struct adapter_files f = { .config = config, .n_config = strlen(config) };
    small_spec(&spec);
    f.weights = small_file(t, n, &f.n_weights);
    *err = 0;
    enum status st = adapter_make(&spec, &f, "small", rank_max, &a, err, err_bytes);
    assert_int_equal(st != ST_OK, a == NULL);
    model_spec_free(&spec);
    return a;
}
