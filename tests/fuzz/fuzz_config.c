/* fuzz_config: any bytes as config.json, or as generation_config.json beside a good one. What is taken is within its
 * bounds. */
#include "base/check.h"
#include "base/log.h"
#include "engine/model/model.h"
#include <math.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    log_init(LOG_LEVEL_ERROR, -1, false);
    return 0;
}

static void look(const struct source_embed *files, uint32_t n_file)
{
    struct source     src = { .embed = files, .n_embed = n_file };
    struct model_spec s;
    char              err[256] = "";
    if (model_spec_load(&src, &s, err, sizeof err)) {
        CHECK(err[0]);
        return;
    }
    static float inv_freq[4096];
    CHECK(s.n_layer > 0);
    CHECK(s.n_head % s.n_kv_head == 0);
    CHECK(s.rot >= 2 && s.rot <= s.head_dim && s.rot % 2 == 0);
    CHECK(s.context > 0);
    CHECK(s.rms_eps > 0);
    CHECK(s.n_eos <= sizeof s.eos_id / sizeof *s.eos_id);
    CHECK(s.n_expert == 0 || s.top_k_expert <= s.n_expert);
    CHECK(isfinite(model_rope(&s, inv_freq)));
    for (uint32_t i = 0; i < s.rot / 2; i++) CHECK(isfinite(inv_freq[i]));
    for (uint32_t l = 0; l < s.n_layer; l++) CHECK(!s.layer_windowed[l] || s.window > 0);
    model_spec_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char good[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"intermediate_size\":96,\"vocab_size\":320,\"torch_dtype\":\"float32\"}";
    struct source_embed config[] = { { "config.json", data, n } };
    struct source_embed generation[] = { { "config.json", (const unsigned char *)good, sizeof good - 1 },
                                         { "generation_config.json", data, n } };
    look(config, 1);
    look(generation, 2);
    return 0;
}
