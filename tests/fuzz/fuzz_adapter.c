/* fuzz_adapter: any bytes as an adapter's configuration beside good weights, and as weights beside a good
 * configuration. What is taken has both halves of every part, and a rank that fits. */
#include "base/check.h"
#include "base/log.h"
#include "engine/model/adapter.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { RANK_MAX = 4 };
static const char model[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 2, \"intermediate_size\": 4,"
    "\"num_attention_heads\": 1, \"num_key_value_heads\": 1, \"num_hidden_layers\": 2, \"vocab_size\": 4,"
    "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"torch_dtype\": \"float32\"}";
static const char head[] =
    "{\"base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
    "\"base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[8,16]}}";
static const char        config[] = "{\"r\": 1, \"lora_alpha\": 2, \"target_modules\": [\"o_proj\"]}";
static struct model_spec spec;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const struct source_embed file = { "config.json", (const unsigned char *)model, sizeof model - 1 };
    const struct source       src = { .embed = &file, .n_embed = 1, .dummy = true };
    char                      err[300];
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    CHECK(model_spec_load(&src, &spec, err, sizeof err) == ST_OK);
    return 0;
}

static void look(const char *text, size_t n_text, const void *weights, size_t n_weights)
{
    struct adapter      *a = NULL;
    char                 err[400] = "";
    struct adapter_files f = { text, n_text, malloc(n_weights + 1), n_weights };
    CHECK(f.weights);
    memcpy(f.weights, weights, n_weights);
    if (adapter_make(&spec, &f, "fuzz", RANK_MAX, &a, err, sizeof err)) {
        CHECK(err[0] && !strchr(err, '\n'));
        return;
    }
    for (uint32_t l = 0; l < a->n_layer; l++)
        for (int t = 0; t < LORA_TARGETS; t++) {
            const struct adapter_part *p = &a->part[l][t];
            CHECK(!p->a == !p->b);
            CHECK(!p->a || (p->rank >= 1 && p->rank <= RANK_MAX));
        }
    adapter_drop(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char good[8 + sizeof head - 1 + 16] = { 0 };
    for (int i = 0; i < 8; i++) good[i] = (char)((sizeof head - 1) >> 8 * i);
    memcpy(good + 8, head, sizeof head - 1);
    look((const char *)data, n, good, sizeof good);
    look(config, sizeof config - 1, data, n);
    return 0;
}
