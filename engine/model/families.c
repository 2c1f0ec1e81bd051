/* families: the table of architectures, and what keys of config.json mean that are not there. Over 500 lines: one
 * table; a row for each family. */
#include "engine/model/model.h"
#include "engine/model/names.h"
#include <stdio.h>
#include <string.h>

/* Defaults: transformers 5.23 configuration_<model_type>.py; the values of 4.x are the same. */
static const struct model_defaults def_llama = {
    .context = 2048, .rms_eps = 1e-6f, .rope_theta = 1e4, .bos_id = 1, .eos_id = 2
};
static const struct model_defaults def_mistral = {
    .n_kv_head = 8, .context = 131072, .window = 4096, .rms_eps = 1e-6f, .rope_theta = 1e4, .bos_id = 1, .eos_id = 2
};
static const struct model_defaults def_mixtral = { .n_kv_head = 8,
                                                   .context = 131072,
                                                   .n_expert = 8,
                                                   .top_k_expert = 2,
                                                   .rms_eps = 1e-5f,
                                                   .rope_theta = 1e6,
                                                   .bos_id = 1,
                                                   .eos_id = 2 };
static const struct model_defaults def_qwen2 = { .n_kv_head = 32,
                                                 .context = 32768,
                                                 .window = 4096,
                                                 .max_window_layers = 28,
                                                 .rms_eps = 1e-6f,
                                                 .rope_theta = 1e4,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = UINT32_MAX };
static const struct model_defaults def_qwen3 = { .n_kv_head = 32,
                                                 .head_dim = 128,
                                                 .context = 32768,
                                                 .window = 4096,
                                                 .max_window_layers = 28,
                                                 .rms_eps = 1e-6f,
                                                 .rope_theta = 1e4,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = UINT32_MAX };
static const struct model_defaults def_qwen3_moe = { .n_kv_head = 4,
                                                     .context = 32768,
                                                     .window = 4096,
                                                     .n_expert = 128,
                                                     .top_k_expert = 8,
                                                     .moe_inter = 768,
                                                     .rms_eps = 1e-6f,
                                                     .rope_theta = 1e4,
                                                     .bos_id = UINT32_MAX,
                                                     .eos_id = UINT32_MAX };

static const struct model_defaults def_seed_oss = {
    .n_kv_head = 8, .head_dim = 128, .context = 524288, .rms_eps = 1e-6f, .rope_theta = 1e4, .bos_id = 0, .eos_id = 2
};

static const struct model_defaults def_qwen3_vl = { .n_kv_head = 32,
                                                    .head_dim = 128,
                                                    .context = 128000,
                                                    .rms_eps = 1e-6f,
                                                    .rope_theta = 5e5,
                                                    .bos_id = UINT32_MAX,
                                                    .eos_id = UINT32_MAX };

static const struct model_defaults def_qwen3_vl_moe = { .n_kv_head = 16,
                                                        .context = 128000,
                                                        .n_expert = 60,
                                                        .top_k_expert = 4,
                                                        .moe_inter = 1408,
                                                        .rms_eps = 1e-6f,
                                                        .rope_theta = 5e5,
                                                        .bos_id = UINT32_MAX,
                                                        .eos_id = UINT32_MAX };

static const struct model_defaults def_smollm3 = { .n_kv_head = 4,
                                                   .context = 32768,
                                                   .rms_eps = 1e-6f,
                                                   .rope_theta = 2e6,
                                                   .bos_id = 128000,
                                                   .eos_id = 128001,
                                                   .tied = true };

static const struct model_defaults def_ministral3 = {
    .n_kv_head = 8,
    .head_dim = 128,
    .context = 262144,
    .rms_eps = 1e-5f,
    .rope_theta = 1e6,
    .bos_id = 1,
    .eos_id = 2,
    .rope =
        "{\"rope_type\": \"yarn\", \"rope_theta\": 1e6, \"factor\": 16, \"original_max_position_embeddings\": 16384,"
        "\"mscale\": 1, \"mscale_all_dim\": 1, \"llama_4_scaling_beta\": 0.1}"
};

static const struct model_defaults def_ernie4_5 = { .n_kv_head = 2,
                                                    .head_dim = 128,
                                                    .context = 131072,
                                                    .rms_eps = 1e-5f,
                                                    .rope_theta = 5e5,
                                                    .bos_id = 1,
                                                    .eos_id = 2,
                                                    .tied = true };

static const struct model_defaults def_phi3 = {
    .context = 4096, .rms_eps = 1e-5f, .rope_theta = 1e4, .bos_id = 1, .eos_id = 32000
};

static const struct model_defaults def_olmo2 = {
    .context = 2048, .rms_eps = 1e-5f, .rope_theta = 1e4, .bos_id = UINT32_MAX, .eos_id = 50279
};
static const struct model_defaults def_hunyuan = {
    .context = 2048, .rms_eps = 1e-5f, .rope_theta = 1e4, .bos_id = 1, .eos_id = 2
};

static const struct model_defaults def_olmo3 = { .context = 2048,
                                                 .window = 4096,
                                                 .window_pattern = 4,
                                                 .rms_eps = 1e-5f,
                                                 .rope_theta = 5e5,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = 50279 };
static const struct model_defaults def_exaone4 = { .n_kv_head = 32,
                                                   .context = 2048,
                                                   .window = 4096,
                                                   .window_pattern = 4,
                                                   .rms_eps = 1e-5f,
                                                   .rope_theta = 1e4,
                                                   .bos_id = 0,
                                                   .eos_id = 2 };
static const struct model_defaults def_gemma2 = { .n_kv_head = 4,
                                                  .head_dim = 256,
                                                  .context = 8192,
                                                  .window = 4096,
                                                  .window_pattern = 2,
                                                  .rms_eps = 1e-6f,
                                                  .rope_theta = 1e4,
                                                  .bos_id = 2,
                                                  .eos_id = 1,
                                                  .tied = true,
                                                  .attn_cap = 50,
                                                  .logit_cap = 30,
                                                  .query_scalar = 256 };
static const struct model_defaults def_gemma3 = { .n_kv_head = 4,
                                                  .head_dim = 256,
                                                  .context = 131072,
                                                  .window = 4096,
                                                  .window_pattern = 6,
                                                  .rms_eps = 1e-6f,
                                                  .rope_theta = 1e6,
                                                  .rope_local_theta = 1e4,
                                                  .bos_id = 2,
                                                  .eos_id = 1,
                                                  .tied = true,
                                                  .query_scalar = 256 };

/* GlmConfig and Glm4Config say the same. */
static const struct model_defaults def_glm4 = { .n_kv_head = 2,
                                                .head_dim = 128,
                                                .context = 131072,
                                                .rms_eps = 1.5625e-7f,
                                                .rope_theta = 1e4,
                                                .rope_part = 0.5,
                                                .bos_id = UINT32_MAX,
                                                .eos_id = 151329,
                                                .eos_more = { 151336, 151338 } };

static const struct model_defaults def_cohere = {
    .context = 8192, .rms_eps = 1e-5f, .rope_theta = 5e5, .bos_id = 5, .eos_id = 255001, .tied = true
};
static const struct model_defaults def_cohere2 = { .context = 8192,
                                                   .window = 4096,
                                                   .window_pattern = 4,
                                                   .rms_eps = 1e-5f,
                                                   .rope_theta = 1e4,
                                                   .bos_id = 5,
                                                   .eos_id = 255001,
                                                   .tied = true };
static const struct model_defaults def_starcoder2 = { .n_kv_head = 2,
                                                      .context = 4096,
                                                      .rms_eps = 1e-5f,
                                                      .rope_theta = 1e4,
                                                      .bos_id = 50256,
                                                      .eos_id = 50256,
                                                      .tied = true,
                                                      .act = OP_GELU_TANH };

static const struct model_defaults def_qwen2_moe = { .n_kv_head = 16,
                                                     .context = 32768,
                                                     .window = 4096,
                                                     .window_pattern = 2,
                                                     .max_window_layers = 28,
                                                     .n_expert = 60,
                                                     .top_k_expert = 4,
                                                     .moe_inter = 1408,
                                                     .shared_inter = 5632,
                                                     .rms_eps = 1e-6f,
                                                     .rope_theta = 1e4,
                                                     .bos_id = UINT32_MAX,
                                                     .eos_id = UINT32_MAX };
static const struct model_defaults def_glm4_moe = { .n_kv_head = 8,
                                                    .context = 131072,
                                                    .n_expert = 128,
                                                    .top_k_expert = 8,
                                                    .moe_inter = 1408,
                                                    .n_shared = 1,
                                                    .first_dense = 1,
                                                    .norm_topk = true,
                                                    .n_extra_layer = 1,
                                                    .rms_eps = 1e-5f,
                                                    .rope_theta = 1e4,
                                                    .rope_part = 0.5,
                                                    .bos_id = UINT32_MAX,
                                                    .eos_id = UINT32_MAX };
static const struct model_defaults def_ernie_moe = { .n_kv_head = 4,
                                                     .context = 131072,
                                                     .n_expert = 64,
                                                     .top_k_expert = 6,
                                                     .moe_inter = 1536,
                                                     .n_shared = 2,
                                                     .first_dense = 1,
                                                     .rms_eps = 1e-5f,
                                                     .rope_theta = 5e5,
                                                     .bos_id = 1,
                                                     .eos_id = 2,
                                                     .tied = true };
static const struct model_defaults def_minimax_m2 = { .n_kv_head = 8,
                                                      .head_dim = 128,
                                                      .context = 196608,
                                                      .n_expert = 256,
                                                      .top_k_expert = 8,
                                                      .rms_eps = 1e-6f,
                                                      .rope_theta = 5e6,
                                                      .bos_id = 200034,
                                                      .eos_id = 200020 };

static const struct model_defaults def_granite_moe = {
    .context = 2048, .n_expert = 8, .top_k_expert = 2, .rms_eps = 1e-6f, .rope_theta = 1e4, .bos_id = 1, .eos_id = 2
};

static const struct model_defaults def_olmoe = { .context = 4096,
                                                 .n_expert = 64,
                                                 .top_k_expert = 8,
                                                 .rms_eps = 1e-5f,
                                                 .rope_theta = 1e4,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = 50279 };
static const struct model_defaults def_dots1 = { .n_kv_head = 32,
                                                 .context = 2048,
                                                 .window = 4096,
                                                 .max_window_layers = 62,
                                                 .moe_inter = 1408,
                                                 .rms_eps = 1e-6f,
                                                 .rope_theta = 1e4,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = UINT32_MAX };
static const struct model_defaults def_solar_open = { .n_kv_head = 8,
                                                      .head_dim = 128,
                                                      .context = 131072,
                                                      .n_expert = 128,
                                                      .top_k_expert = 8,
                                                      .inter = 1280,
                                                      .moe_inter = 1280,
                                                      .n_shared = 1,
                                                      .norm_topk = true,
                                                      .rms_eps = 1e-5f,
                                                      .rope_theta = 1e6,
                                                      .bos_id = UINT32_MAX,
                                                      .eos_id = UINT32_MAX };
static const struct model_defaults def_exaone_moe = { .n_kv_head = 32,
                                                      .context = 2048,
                                                      .window = 4096,
                                                      .window_pattern = 4,
                                                      .n_expert = 64,
                                                      .top_k_expert = 8,
                                                      .moe_inter = 1024,
                                                      .n_shared = 1,
                                                      .first_dense = 1,
                                                      .norm_topk = true,
                                                      .route_scale = 2.5,
                                                      .rms_eps = 1e-5f,
                                                      .rope_theta = 1e4,
                                                      .bos_id = 1,
                                                      .eos_id = 53 };

static const struct model_defaults def_mellum = { .n_kv_head = 4,
                                                  .context = 131072,
                                                  .window = 1024,
                                                  .window_pattern = 1, /* without layer_types no layer has one */
                                                  .head_dim = 128,
                                                  .n_expert = 64,
                                                  .top_k_expert = 8,
                                                  .moe_inter = 896,
                                                  .norm_topk = true,
                                                  .rms_eps = 1e-6f,
                                                  .rope_theta = 5e5,
                                                  .rope_local_theta = 1e4,
                                                  .bos_id = UINT32_MAX,
                                                  .eos_id = UINT32_MAX };

static const struct model_moe_keys moe_qwen2 = { .shared_inter = "shared_expert_intermediate_size" };
static const struct model_moe_keys moe_glm = { .score = OP_ROUTE_SIGMOID,
                                               .bias = true,
                                               .f32 = true,
                                               .groups = true,
                                               .sum_add = 1e-20f,
                                               .n_expert = "n_routed_experts",
                                               .n_shared = "n_shared_experts",
                                               .first = "first_k_dense_replace" };
static const struct model_moe_keys moe_exaone = { .score = OP_ROUTE_SIGMOID,
                                                  .bias = true,
                                                  .f32 = true,
                                                  .groups = true,
                                                  .sum_add = 1e-20f,
                                                  .n_shared = "num_shared_experts",
                                                  .first = "first_k_dense_replace" };
static const struct model_moe_keys moe_ernie = { .bias = true,
                                                 .f32 = true,
                                                 .renorm = true,
                                                 .sum_min = 1e-12f,
                                                 .sum_min_key = "moe_norm_min",
                                                 .n_expert = "moe_num_experts",
                                                 .top_k = "moe_k",
                                                 .n_shared = "moe_num_shared_experts",
                                                 .first = "moe_layer_start_index",
                                                 .last = "moe_layer_end_index",
                                                 .every = "moe_layer_interval" };
static const struct model_moe_keys moe_minimax = { .score = OP_ROUTE_SIGMOID, .bias = true, .renorm = true };

static const struct model_defaults def_llama4 = { .n_kv_head = 8,
                                                  .head_dim = 128,
                                                  .context = 131072,
                                                  .n_expert = 16,
                                                  .top_k_expert = 1,
                                                  .dense_inter = 16384,
                                                  .shared_inter = 8192,
                                                  .rms_eps = 1e-5f,
                                                  .rope_theta = 5e5,
                                                  .bos_id = 1,
                                                  .eos_id = 2 };
static const struct model_moe_keys moe_llama4 = { .score = OP_ROUTE_SIGMOID,
                                                  .weigh_input = true,
                                                  .shared_inter = "intermediate_size",
                                                  .dense_inter = "intermediate_size_mlp",
                                                  .layers = "moe_layers",
                                                  .every = "interleave_moe_layer_step" };

static const struct model_defaults def_gemma4 = {
    .n_kv_head = 4,
    .head_dim = 256,
    .context = 131072,
    .window = 512,
    .window_pattern = 6,
    .rms_eps = 1e-6f,
    .rope_theta = 1e4,
    .rope_local_theta = 1e4,
    .bos_id = 2,
    .eos_id = 1,
    .tied = true,
    .top_k_expert = 1,
    .ple_dim = 256,
    .rope = "{\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}"
};
static const struct model_defaults def_gemma4_unified = {
    .n_kv_head = 4,
    .head_dim = 256,
    .context = 262144,
    .window = 1024,
    .window_pattern = 6,
    .rms_eps = 1e-6f,
    .rope_theta = 1e4,
    .rope_local_theta = 1e4,
    .bos_id = 2,
    .eos_id = 1,
    .tied = true,
    .rope = "{\"rope_type\": \"proportional\", \"partial_rotary_factor\": 0.25, \"rope_theta\": 1e6}"
};
static const struct model_moe_keys moe_gemma4 = { .renorm = true, .top_k = "top_k_experts" };

static const struct model_bias_keys bias_qkv = { .qkv = "qkv_bias", .qkv_default = true };
static const struct model_bias_keys bias_attention_qkv = { .qkv = "attention_bias" };
static const struct model_defaults  def_gpt_oss = {
     .n_kv_head = 8,
     .head_dim = 64,
     .context = 131072,
     .window = 128,
     .window_pattern = 2,
     .n_expert = 128,
     .top_k_expert = 4,
     .rms_eps = 1e-5f,
     .rope_theta = 150000,
     .bos_id = UINT32_MAX,
     .eos_id = UINT32_MAX,
     .rope = "{\"rope_type\": \"yarn\", \"factor\": 32, \"beta_fast\": 32, \"beta_slow\": 1, \"truncate\": false,"
              "\"original_max_position_embeddings\": 4096}"
};

static const struct model_bias_keys bias_gpt_oss = {
    .qkv = "attention_bias", .qkv_default = true, .o = "attention_bias", .o_default = true
};
static const struct model_bias_keys bias_use = { .qkv = "use_bias", .o = "use_bias", .mlp = "use_bias" };
static const struct model_bias_keys bias_attention = { .qkv = "attention_bias", .o = "attention_bias" };
static const struct model_bias_keys bias_seed_oss = {
    .qkv = "attention_bias", .qkv_default = true, .o = "attention_out_bias", .mlp = "mlp_bias"
};

static const struct model_bias_keys bias_starcoder2 = {
    .qkv = "use_bias", .o = "use_bias", .mlp = "use_bias", .qkv_default = true, .o_default = true, .mlp_default = true
};
static const struct model_bias_keys bias_glm4 = { .qkv = "attention_bias", .qkv_default = true };

/* Configurations of encoders have no keys of biases, which are everywhere. */
static const struct model_bias_keys bias_everywhere = { .qkv_default = true, .o_default = true, .mlp_default = true };
static const struct model_defaults  def_bert = { .context = 512,
                                                 .rms_eps = 1e-12f,
                                                 .rope_theta = 1e4,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = UINT32_MAX,
                                                 .tied = true,
                                                 .n_type = 2,
                                                 .act = OP_GELU };
static const struct model_defaults  def_roberta = { .context = 512,
                                                    .rms_eps = 1e-12f,
                                                    .rope_theta = 1e4,
                                                    .bos_id = 0,
                                                    .eos_id = 2,
                                                    .tied = true,
                                                    .pad_id = 1,
                                                    .n_type = 2,
                                                    .act = OP_GELU };

static const struct model_defaults def_modernbert = { .context = 8192,
                                                      .window_pattern = 3,
                                                      .rms_eps = 1e-5f,
                                                      .rope_theta = 160000,
                                                      .rope_local_theta = 1e4,
                                                      .bos_id = 50281,
                                                      .eos_id = 50282,
                                                      .tied = true,
                                                      .act = OP_GELU };
static const struct model_defaults def_nomic = { .context = 2048,
                                                 .rms_eps = 1e-12f,
                                                 .rope_theta = 1000,
                                                 .bos_id = UINT32_MAX,
                                                 .eos_id = UINT32_MAX,
                                                 .tied = true,
                                                 .n_type = 2,
                                                 .act = OP_SILU };
static const struct model_defaults def_gte = { .context = 8192,
                                               .rms_eps = 1e-12f,
                                               .rope_theta = 160000,
                                               .bos_id = UINT32_MAX,
                                               .eos_id = UINT32_MAX,
                                               .tied = true,
                                               .n_type = 1,
                                               .act = OP_GELU };
static const struct model_defaults def_jina = { .context = 8194,
                                                .rms_eps = 1e-5f,
                                                .rope_theta = 20000,
                                                .bos_id = 0,
                                                .eos_id = 2,
                                                .tied = true,
                                                .n_type = 1,
                                                .act = OP_GELU };

/* A new family: one row here, its names in names.c, a golden checkpoint in tools/golden/make_golden.py. */
static const struct model_family families[] = {
    { "LlamaForCausalLM", "llama", NORM_RMS, MIX_GQA, FFN_GLU, .bias_keys = true, .served = "Llama 2/3.x",
      .variants = "Llama 2, 3, 3.1, 3.2 (text), 3.3, and what was distilled into them", .def = &def_llama,
      .names = &names_llama },
    { "MistralForCausalLM", "mistral", NORM_RMS, MIX_GQA, FFN_GLU, .window = true, .served = "Mistral",
      .variants = "Mistral 7B, Nemo, Small 3.x, Magistral, Devstral; the text part of Mistral3ForConditionalGeneration",
      .def = &def_mistral, .names = &names_llama },
    { "Qwen2ForCausalLM", "qwen2", NORM_RMS, MIX_GQA, FFN_GLU, .qkv_bias = true, .window = true, .window_gate = true,
      .window_layers = true, .served = "Qwen2/2.5", .variants = "Qwen2 and Qwen2.5, Coder, Math, R1 distills, QwQ",
      .def = &def_qwen2, .names = &names_llama },
    { "Qwen3ForCausalLM", "qwen3", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true, .bias_keys = true, .window = true,
      .window_gate = true, .window_layers = true, .served = "Qwen3", .variants = "Qwen3 0.6B to 32B", .def = &def_qwen3,
      .names = &names_llama },
    { "MixtralForCausalLM", "mixtral", NORM_RMS, MIX_GQA, FFN_MOE, .window = true, .norm_topk = true,
      .served = "Mixtral", .variants = "Mixtral 8x7B, 8x22B", .def = &def_mixtral, .names = &names_mixtral },
    { "Qwen3MoeForCausalLM", "qwen3_moe", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .bias_keys = true,
      .window = true, .window_gate = true, .served = "Qwen3-MoE", .variants = "Qwen3 30B-A3B, 235B-A22B, Coder",
      .def = &def_qwen3_moe, .names = &names_qwen_moe },
    { "SeedOssForCausalLM", "seed_oss", NORM_RMS, MIX_GQA, FFN_GLU, .bias = &bias_seed_oss, .served = "Seed-OSS",
      .variants = "Seed-OSS 36B", .def = &def_seed_oss, .names = &names_llama },
    { "Qwen3VLForConditionalGeneration", "qwen3_vl_text", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true,
      .bias = &bias_attention, .wrapper = true, .mrope = true, .served = "the text part of Qwen3-VL",
      .variants = "Qwen3-VL 2B to 32B, dense, without images", .def = &def_qwen3_vl, .names = &names_llama },
    { "SmolLM3ForCausalLM", "smollm3", NORM_RMS, MIX_GQA, FFN_GLU, .bias_keys = true, .window = true,
      .window_gate = true, .window_nope = true, .nope = true, .served = "SmolLM3", .variants = "SmolLM3 3B",
      .def = &def_smollm3, .names = &names_llama },
    { "Ministral3ForCausalLM", "ministral3", NORM_RMS, MIX_GQA, FFN_GLU, .window = true, .q_scale = true,
      .served = "Ministral 3", .variants = "Ministral 3 3B, 8B, 14B; the text part of Mistral3ForConditionalGeneration",
      .def = &def_ministral3, .names = &names_llama },
    { "Ernie4_5ForCausalLM", "ernie4_5", NORM_RMS, MIX_GQA, FFN_GLU, .bias = &bias_use, .rope_pairs = true,
      .served = "ERNIE 4.5", .variants = "ERNIE 4.5 0.3B", .def = &def_ernie4_5, .names = &names_llama },
    { "Phi3ForCausalLM", "phi3", NORM_RMS, MIX_GQA, FFN_GLU, .window = true, .rope_part = true, .longrope = true,
      .served = "Phi-3/3.5/4", .variants = "Phi-3 and 3.5 mini and medium, Phi-4 14B, Phi-4-mini; 4k and long",
      .def = &def_phi3, .names = &names_phi3 },
    { "GraniteForCausalLM", "granite", NORM_RMS, MIX_GQA, FFN_GLU, .bias_keys = true, .scales = true,
      .served = "Granite 3", .variants = "Granite 3.0 to 3.3, dense", .def = &def_llama, .names = &names_llama },
    { "Olmo2ForCausalLM", "olmo2", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true, .qk_norm_whole = true,
      .no_pre_norm = true, .post_norm = true, .bias_keys = true, .served = "OLMo 2", .variants = "OLMo 2 1B to 32B",
      .def = &def_olmo2, .names = &names_olmo },
    { "HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true,
      .qk_norm_late = true, .rope_alpha = true, .bias_keys = true, .served = "Hunyuan (dense)",
      .variants = "Hunyuan 0.5B to 7B, dense", .def = &def_hunyuan, .names = &names_hunyuan },
    { "Gemma2ForCausalLM", "gemma2", NORM_RMS, MIX_GQA, FFN_GLU, .post_norm = true, .norm_plus_1 = true, .gemma = true,
      .bias_keys = true, .window = true, .served = "Gemma 2", .variants = "Gemma 2 2B, 9B, 27B", .def = &def_gemma2,
      .names = &names_gemma },
    { "Gemma3ForCausalLM", "gemma3_text", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true, .post_norm = true,
      .norm_plus_1 = true, .gemma = true, .bias_keys = true, .window = true, .window_key = true, .rope_local = true,
      .arch_other = "Gemma3TextModel", .served = "Gemma 3 (text)",
      .variants = "Gemma 3 270M to 27B; the text part of Gemma3ForConditionalGeneration", .def = &def_gemma3,
      .names = &names_gemma },
    { "Olmo3ForCausalLM", "olmo3", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true, .qk_norm_whole = true,
      .no_pre_norm = true, .post_norm = true, .bias_keys = true, .window = true, .rope_local = true, .served = "OLMo 3",
      .variants = "OLMo 3 7B, 32B", .def = &def_olmo3, .names = &names_olmo },
    { "Exaone4ForCausalLM", "exaone4", NORM_RMS, MIX_GQA, FFN_GLU, .qk_norm = true, .no_pre_norm = true,
      .post_norm = true, .window = true, .window_key = true, .nope_full = true, .served = "EXAONE 4",
      .variants = "EXAONE 4.0 1.2B, 32B", .def = &def_exaone4, .names = &names_olmo },
    { "Glm4ForCausalLM", "glm4", NORM_RMS, MIX_GQA, FFN_GLU, .post_norm = true, .bias = &bias_glm4, .rope_part = true,
      .rope_pairs = true, .served = "GLM-4-0414", .variants = "GLM-4-0414 9B and 32B, GLM-Z1", .def = &def_glm4,
      .names = &names_glm4 },
    { "GlmForCausalLM", "glm", NORM_RMS, MIX_GQA, FFN_GLU, .bias = &bias_glm4, .rope_part = true, .rope_pairs = true,
      .served = "GLM-4", .variants = "glm-4-9b in the layout of transformers (-hf)", .def = &def_glm4,
      .names = &names_glm },
    { "CohereForCausalLM", "cohere", NORM_LAYER, MIX_GQA, FFN_GLU, .parallel = true, .bias = &bias_attention,
      .rope_pairs = true, .logit_scale = true, .qk_norm_key = "use_qk_norm", .qk_norm_mean = true,
      .served = "Command R", .variants = "Command R 35B, 32B, Command R+ 104B, Aya 23 and Expanse", .def = &def_cohere,
      .names = &names_llama },
    { "Cohere2ForCausalLM", "cohere2", NORM_LAYER, MIX_GQA, FFN_GLU, .parallel = true, .bias = &bias_attention,
      .rope_pairs = true, .window = true, .window_key = true, .nope_rest = true, .logit_scale = true,
      .served = "Command R7B and A", .variants = "Command R7B, Command A 111B", .def = &def_cohere2,
      .names = &names_llama },
    { "Starcoder2ForCausalLM", "starcoder2", NORM_LAYER_BIAS, MIX_GQA, FFN_MLP, .bias = &bias_starcoder2,
      .window = true, .served = "StarCoder2", .variants = "StarCoder2 3B, 7B, 15B", .def = &def_starcoder2,
      .names = &names_starcoder2 },
    { "Qwen2MoeForCausalLM", "qwen2_moe", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_qkv, .window = true,
      .window_gate = true, .window_below = true, .moe = &moe_qwen2, .shared_gate = true, .served = "Qwen2-MoE",
      .variants = "Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B", .def = &def_qwen2_moe, .names = &names_qwen2_moe },
    { "Glm4MoeForCausalLM", "glm4_moe", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm_key = "use_qk_norm",
      .bias = &bias_attention_qkv, .rope_part = true, .moe = &moe_glm, .served = "GLM-4.5/4.6/4.7",
      .variants = "GLM-4.5, 4.5-Air, 4.6, 4.7", .def = &def_glm4_moe, .names = &names_glm_moe },
    { "Ernie4_5_MoeForCausalLM", "ernie4_5_moe", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_use, .rope_pairs = true,
      .moe = &moe_ernie, .served = "ERNIE 4.5 MoE", .variants = "ERNIE 4.5 21B-A3B and 300B-A47B, text",
      .def = &def_ernie_moe, .names = &names_ernie_moe },
    { "MiniMaxM2ForCausalLM", "minimax_m2", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .qk_norm_whole = true,
      .rope_part = true, .moe = &moe_minimax, .served = "MiniMax M2", .variants = "MiniMax M2, M2.1, M2.5",
      .def = &def_minimax_m2, .names = &names_minimax },
    { "GraniteMoeForCausalLM", "granitemoe", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_attention, .norm_topk = true,
      .scales = true, .served = "Granite 3 MoE", .variants = "Granite 3.0 and 3.1 1B-A400M, 3B-A800M",
      .def = &def_granite_moe, .names = &names_granite_moe },
    { "OlmoeForCausalLM", "olmoe", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .qk_norm_whole = true,
      .bias = &bias_attention, .served = "OLMoE", .variants = "OLMoE 1B-7B", .def = &def_olmoe,
      .names = &names_qwen_moe },
    { "Dots1ForCausalLM", "dots1", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .bias = &bias_attention, .window = true,
      .window_layers = true, .moe = &moe_glm, .served = "dots.llm1",
      .variants = "dots.llm1 142B-A14B, base and instruct", .def = &def_dots1, .names = &names_glm_moe },
    { "SolarOpenForCausalLM", "solar_open", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_attention_qkv, .moe = &moe_glm,
      .served = "Solar Open", .variants = "Solar Open 100B", .def = &def_solar_open, .names = &names_glm_moe },
    { "ExaoneMoeForCausalLM", "exaone_moe", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .window = true,
      .window_key = true, .nope_full = true, .moe = &moe_exaone, .served = "K-EXAONE", .variants = "K-EXAONE 236B-A23B",
      .def = &def_exaone_moe, .names = &names_exaone_moe },
    { "MellumForCausalLM", "mellum", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true, .bias = &bias_attention,
      .window = true, .rope_local = true, .served = "Mellum 2", .variants = "Mellum 2 12B-A2.5B", .def = &def_mellum,
      .names = &names_mellum },
    { "GptOssForCausalLM", "gpt_oss", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_gpt_oss, .window = true,
      .norm_topk = true, .sinks = true, .expert_bias = true, .clamped = true, .mxfp4 = true, .served = "gpt-oss",
      .variants = "gpt-oss 20b and 120b, MXFP4 or BF16", .def = &def_gpt_oss, .names = &names_gpt_oss },
    { "Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", NORM_RMS, MIX_GQA, FFN_MOE, .qk_norm = true,
      .bias = &bias_attention, .wrapper = true, .mrope = true, .norm_topk = true,
      .served = "the text part of Qwen3-VL-MoE", .variants = "Qwen3-VL 30B-A3B, 235B-A22B, without images",
      .def = &def_qwen3_vl_moe, .names = &names_qwen_vl_moe },
    { "Gemma4ForCausalLM", "gemma4_text", NORM_RMS, MIX_GQA, FFN_GLU, .bias = &bias_attention, .qk_norm = true,
      .post_norm = true, .gemma = true, .gemma4 = true, .window = true, .rope_local = true, .moe = &moe_gemma4,
      .served = "Gemma 4 (text)",
      .variants = "Gemma 4 E2B, E4B, 26B-A4B, 31B; the text part of Gemma4ForConditionalGeneration", .def = &def_gemma4,
      .names = &names_gemma4 },
    { "Gemma4UnifiedForCausalLM", "gemma4_unified_text", NORM_RMS, MIX_GQA, FFN_GLU, .bias = &bias_attention,
      .qk_norm = true, .post_norm = true, .gemma = true, .gemma4 = true, .window = true, .rope_local = true,
      .served = "Gemma 4 unified (text)",
      .variants = "Gemma 4 12B; the text part of Gemma4UnifiedForConditionalGeneration", .def = &def_gemma4_unified,
      .names = &names_gemma4 },
    { "Llama4ForCausalLM", "llama4_text", NORM_RMS, MIX_GQA, FFN_MOE, .bias = &bias_attention, .rope_pairs = true,
      .nope = true, .chunks = true, .q_scale_nope = true, .qk_norm_unit = true, .qk_norm_late = true,
      .moe = &moe_llama4, .served = "Llama 4 (text)",
      .variants = "Scout 17B-16E, Maverick 17B-128E; the text part of Llama4ForConditionalGeneration",
      .def = &def_llama4, .names = &names_llama4 },
    { "BertModel", "bert", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_MLP, .bias = &bias_everywhere, .norm_stream = true,
      .embed_norm = true, .learned_pos = true, .typed = true, .dense_head = true, .served = "BERT",
      .variants = "BERT, MiniLM, BGE, E5 and GTE of BERT's form", .def = &def_bert, .names = &names_bert },
    { "XLMRobertaModel", "xlm-roberta", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_MLP, .bias = &bias_everywhere,
      .norm_stream = true, .embed_norm = true, .learned_pos = true, .pos_after_pad = true, .typed = true,
      .dense_head = true, .served = "XLM-RoBERTa", .variants = "XLM-RoBERTa, BGE-M3, multilingual E5",
      .def = &def_roberta, .names = &names_roberta },
    { "RobertaModel", "roberta", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_MLP, .bias = &bias_everywhere, .norm_stream = true,
      .embed_norm = true, .learned_pos = true, .pos_after_pad = true, .typed = true, .dense_head = true,
      .served = "RoBERTa", .variants = "RoBERTa, DistilRoBERTa", .def = &def_roberta, .names = &names_roberta },
    { "ModernBertModel", "modernbert", NORM_LAYER, MIX_MUTUAL, FFN_GLU, .embed_norm = true, .local = true,
      .rope_local = true, .served = "ModernBERT", .variants = "ModernBERT, GTE and Nomic embedders of its form",
      .def = &def_modernbert, .names = &names_modernbert },
    { "NomicBertModel", "nomic_bert", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_GLU, .norm_stream = true, .embed_norm = true,
      .typed = true, .published = true, .dense_head = true, .served = "nomic-bert",
      .variants = "nomic-embed-text v1 and v1.5", .def = &def_nomic, .names = &names_nomic },
    { "GteModel", "gte", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_GLU, .arch_old = "NewModel", .bias = &bias_everywhere,
      .down_bias = true, .norm_stream = true, .embed_norm = true, .typed = true, .gte = true, .token_weights = true,
      .dense_head = true, .served = "GTE",
      .variants = "gte-multilingual-base, gte-en v1.5, their rerankers, Arctic Embed M v2; as published (NewModel) too",
      .def = &def_gte, .names = &names_gte },
    { "JinaEmbeddingsV3Model", "jina_embeddings_v3", NORM_LAYER_BIAS, MIX_MUTUAL, FFN_MLP, .bias = &bias_everywhere,
      .norm_stream = true, .embed_norm = true, .typed = true, .dense_head = true, .served = "Jina v3",
      .variants = "jina-embeddings-v3 in the layout of transformers (-hf), without the adapters of its tasks",
      .def = &def_jina, .names = &names_jina },
    /* of one model_type with Gemma 3: use_bidirectional_attention tells them apart, whatever the architecture says */
    { "Gemma3TextModel", "gemma3_text", NORM_RMS, MIX_MUTUAL, FFN_GLU, .qk_norm = true, .post_norm = true,
      .norm_plus_1 = true, .gemma = true, .bias_keys = true, .window = true, .window_key = true, .rope_local = true,
      .arch_other = "Gemma3ForCausalLM", .served = "EmbeddingGemma",
      .variants = "EmbeddingGemma 300M and what was tuned from it", .def = &def_gemma3, .names = &names_gemma },
};
enum { N_FAMILY = sizeof families / sizeof *families };

/* "Qwen3Model" is Qwen3ForCausalLM without its head: what an embedder's folder may say.
 * "Qwen3ForSequenceClassification" has classes instead. "BertForMaskedLM" is BertModel with a head that vectors do not
 * need. */
static bool is_kin(const struct model_family *f, const char *arch, const char *other)
{
    const struct {
        const char *row, *other;
        bool        known;
    } ends[] = { { "ForCausalLM", "Model", true },
                 { "ForCausalLM", "ForSequenceClassification", true },
                 { "Model", "ForMaskedLM", true },
                 { "Model", "ForSequenceClassification", f->dense_head },
                 { "Model", "ForTokenClassification", f->token_weights } };
    size_t n = strlen(arch);
    if (!strcmp(arch, other)) return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t end = strlen(ends[i].row);
        if (n <= end || strcmp(arch + n - end, ends[i].row) || strncmp(arch, other, n - end)) continue;
        if (!strcmp(other + n - end, ends[i].other)) return ends[i].known;
    }
    return false;
}

const struct model_family *model_family_find(const char *arch, const char *model_type)
{
    for (uint32_t i = 0; arch && i < N_FAMILY; i++) {
        const struct model_family *f = &families[i];
        if (is_kin(f, f->arch, arch) || (f->arch_old && is_kin(f, f->arch_old, arch))) return f;
    }
    for (uint32_t i = 0; model_type && i < N_FAMILY; i++)
        if (!strcmp(families[i].model_type, model_type)) return &families[i];
    return NULL;
}

const struct model_family *model_family_facing(const struct model_family *f, bool mutual)
{
    return f->arch_other && mutual != (f->mix == MIX_MUTUAL) ? model_family_find(f->arch_other, NULL) : f;
}

const struct model_family *model_family_at(uint32_t i) { return i < N_FAMILY ? &families[i] : NULL; }

const char *model_family_list(char *text, size_t text_bytes)
{
    size_t n = 0;
    if (text_bytes) text[0] = 0;
    for (uint32_t i = 0; i < N_FAMILY && n < text_bytes; i++)
        n += (size_t)snprintf(text + n, text_bytes - n, "%s%s", i ? ", " : "", families[i].arch);
    return text;
}
