/* shapes: well-known models by name, as their config.json says it, for measuring without a checkpoint. */
#include "engine/model/model.h"
#include <string.h>

/* clang-format off */
static const char qwen3_8b[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 4096, \"intermediate_size\": 12288,"
    " \"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, \"vocab_size\": 151936,"
    " \"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000, \"tie_word_embeddings\": false,"
    " \"attention_bias\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 151643, \"eos_token_id\": 151645}";
static const char qwen3_30b_a3b[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_size\": 2048, \"intermediate_size\": 6144,"
    " \"moe_intermediate_size\": 768, \"num_experts\": 128, \"num_experts_per_tok\": 8, \"norm_topk_prob\": true, \"num_hidden_layers\": 48,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128, \"vocab_size\": 151936,"
    " \"max_position_embeddings\": 40960, \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000, \"tie_word_embeddings\": false,"
    " \"attention_bias\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 151643, \"eos_token_id\": 151645}";
static const char llama_3_1_8b[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336,"
    " \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"vocab_size\": 128256,"
    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\","
    " \"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192},"
    " \"tie_word_embeddings\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 128000, \"eos_token_id\": 128001}";
static const char llama_3_2_1b[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 2048, \"intermediate_size\": 8192,"
    " \"num_hidden_layers\": 16, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 64, \"vocab_size\": 128256,"
    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"rope_scaling\": {\"rope_type\": \"llama3\","
    " \"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192},"
    " \"tie_word_embeddings\": true, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 128000, \"eos_token_id\": 128001}";
/* large enough that every op has work, small enough for an emulated device */
static const char tiny[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 96,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 331,"
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"tie_word_embeddings\": false,"
    " \"attention_bias\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 1, \"eos_token_id\": 2}";
static const char tiny_moe[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"intermediate_size\": 96,"
    " \"moe_intermediate_size\": 48, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"norm_topk_prob\": true, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 331,"
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000, \"tie_word_embeddings\": false,"
    " \"attention_bias\": false, \"hidden_act\": \"silu\", \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 1, \"eos_token_id\": 2}";
/* clang-format on */

#define SHAPE(shape, text)                                                     \
    {                                                                          \
        shape, { "config.json", (const unsigned char *)text, sizeof text - 1 } \
    }
static const struct {
    const char         *name;
    struct source_embed file;
} shapes[] = { SHAPE("qwen3-8b", qwen3_8b),
               SHAPE("qwen3-30b-a3b", qwen3_30b_a3b),
               SHAPE("llama-3.1-8b", llama_3_1_8b),
               SHAPE("llama-3.2-1b", llama_3_2_1b),
               SHAPE("tiny", tiny),
               SHAPE("tiny-moe", tiny_moe) };

bool model_shape(const char *name, struct source *src_out)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, name)) {
            *src_out = (struct source){ .embed = &shapes[i].file, .n_embed = 1, .dummy = true };
            return true;
        }
    return false;
}

const char *model_shape_names(void) { return "qwen3-8b, qwen3-30b-a3b, llama-3.1-8b, llama-3.2-1b, tiny, tiny-moe"; }
