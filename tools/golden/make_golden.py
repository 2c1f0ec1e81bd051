#!/usr/bin/env python3
"""Golden checkpoints: a tiny random model of every family, and what transformers computes with it in float32.

    pip install torch transformers safetensors compressed-tensors        # made with 5.23, torch 2.15, compressed-tensors 0.20
    tools/golden/make_golden.py [tests/data/golden] [name ...]

rope.json holds configurations and the inverse frequencies that they mean. Per checkpoint NAME: config.json, the weights, golden.json {prompts, rows, greedy, min_gap, bf16} and logits.f32, the float32 logits
[rows, vocab] of the listed (prompt, row) pairs. bf16: how far transformers itself is from them in bfloat16, of the largest logit. The seed is the first for which no greedy step has its two best logits closer
than GAP, so that tokens must be equal wherever sums are taken in another order. CI reads the files and needs none of this. Over 500 lines: one recipe; a
row for each family, and the tools that write codes.
"""
import copy
import json
import os
import re
import shutil
import sys

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file, save_file
from transformers import (
    Cohere2Config, Cohere2ForCausalLM, CohereConfig, CohereForCausalLM, Starcoder2Config, Starcoder2ForCausalLM,
    Ernie4_5Config, Ernie4_5ForCausalLM, Exaone4Config, Exaone4ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig,
    Glm4Config, Glm4ForCausalLM, GlmConfig, GlmForCausalLM, GptOssConfig, GptOssForCausalLM, GraniteConfig, GraniteForCausalLM, HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM, LlamaConfig, LlamaForCausalLM, Ministral3Config,
    Ministral3ForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Olmo3Config,
    GraniteMoeConfig, GraniteMoeForCausalLM, Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM, MiniMaxM2Config, MiniMaxM2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM,
    Dots1Config, Dots1ForCausalLM, ExaoneMoeConfig, ExaoneMoeForCausalLM, MellumConfig, MellumForCausalLM, OlmoeConfig, OlmoeForCausalLM, SolarOpenConfig, SolarOpenForCausalLM,
    Olmo3ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM,
    Gemma4ForCausalLM, Gemma4TextConfig, Gemma4UnifiedConfig, Gemma4UnifiedForConditionalGeneration, Llama4Config, Llama4ForCausalLM, Llama4ForConditionalGeneration, Llama4TextConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, SeedOssConfig, SeedOssForCausalLM, SmolLM3Config, SmolLM3ForCausalLM,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

GAP = 4e-3
N_GREEDY = 64
PROMPT_LENGTHS = (5, 23, 80)
BASE = dict(hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            vocab_size=320, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)

LONG = ([1.0, 1.05, 1.1, 1.3, 1.5, 1.75, 2.0, 2.5], [1.25, 1.5, 2.5, 4.0, 7.0, 11.0, 16.0, 24.0])
SMALL = dict(hidden_size=32, intermediate_size=48)
TINY = dict(hidden_size=32, head_dim=8, vocab_size=128)
# Keys of config.json as published checkpoints have them, where the configuration that made the logits writes other ones ("drop": none).
# The root of the hidden size, of ple's and their inverses are exact in every type.
GEMMA4 = dict(hidden_size=16, intermediate_size=32, head_dim=8, vocab_size=128, global_head_dim=16, sliding_window=16, tie_word_embeddings=True, final_logit_softcapping=5.0,
              hidden_size_per_layer_input=0)
GEMMA4_ROPE = dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                   full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=5000.0))
PATCHES = {"gemma4": dict(per_layer_config="drop", global_head_dim=16, num_global_key_value_heads=1), "gemma4-small": dict(rope_parameters="drop"),
           "llama-untied": dict(tie_word_embeddings=True), "seed-oss": dict(attention_bias="drop"),
           "smollm3": dict(no_rope_layers="drop", layer_types="drop", tie_word_embeddings="drop"),
           "smollm3-window": dict(layer_types="drop"), "ernie4-5-tied": dict(tie_word_embeddings="drop"),
           "starcoder2": dict(hidden_act="drop", use_bias="drop"),
           "glm4": dict(attention_bias="drop", rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
           "exaone-moe": dict(routed_scaling_factor="drop"),
           "minimax-m2": dict(rope_parameters="drop", rope_theta=10000.0, rotary_dim=8, scoring_func="sigmoid", use_routing_bias=True, shared_intermediate_size=0,
                              attn_type_list=[1, 1])}
# Where the seed must also be one with which rounding changes no choice of experts.
STEADY = {"gemma4-moe", "llama4", "llama4-wrapped", "qwen3-vl-moe", "qwen3-vl-moe-rows", "gpt-oss", "granite-moe", "qwen2-moe", "glm4-moe", "glm4-moe-air", "ernie4-5-moe", "minimax-m2",
          "olmoe", "dots1", "solar-open", "exaone-moe", "mellum"}
# Tensors of layers that predict further tokens, which published files hold beside the model.
EXTRA = {"glm4-moe": {"model.layers.3.eh_proj.weight": (48, 96), "model.layers.3.input_layernorm.weight": (48,), "model.layers.3.mlp.gate.weight": (12, 48),
                      "model.layers.3.shared_head.norm.weight": (48,)}}


# Whose tensors of all experts have an output in a column, as published files do; transformers tells by the shape and writes rows.
COLUMNS = {"qwen3-vl-moe"}


def qwen3_vl_config(tie_word_embeddings, **text):
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=text["hidden_size"], num_position_embeddings=4,
                  deepstack_visual_indexes=[0])
    return Qwen3VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tie_word_embeddings)


def qwen3_vl_moe_config(tie_word_embeddings, **text):
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4, out_hidden_size=text["hidden_size"], num_position_embeddings=4,
                  deepstack_visual_indexes=[0])
    return Qwen3VLMoeConfig(text_config=text, vision_config=vision, tie_word_embeddings=tie_word_embeddings)


def llama4_config(tie_word_embeddings, **text):
    vision = dict(num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, vision_output_dim=16, image_size=8, patch_size=4,
                  projector_input_dim=16, projector_output_dim=16)
    return Llama4Config(text_config=text, vision_config=vision, tie_word_embeddings=tie_word_embeddings)


def gemma4_unified_config(tie_word_embeddings, **text):
    vision = dict(patch_size=2, pooling_kernel_size=1, mm_embed_dim=16, mm_posemb_size=4, output_proj_dims=16)
    return Gemma4UnifiedConfig(text_config=text, vision_config=vision, audio_config=dict(audio_embed_dim=16), tie_word_embeddings=tie_word_embeddings)


# name: (config class, model class, config, dtype of the file, "v4" keys, shards)
MODELS = {
    "llama3": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=LLAMA3), torch.float32, False, 1),
    "llama2": (LlamaConfig, LlamaForCausalLM, dict(num_key_value_heads=4, head_dim=None, intermediate_size=80, rms_norm_eps=1e-5), torch.float16, True, 1),
    "llama-linear": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=10000.0)), torch.bfloat16, True, 3),
    "llama-yarn": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=YARN, max_position_embeddings=256), torch.bfloat16, False, 1),
    "llama-bias": (LlamaConfig, LlamaForCausalLM, dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True), torch.bfloat16, True, 1),
    # dynamic is plain up to max_position_embeddings, and a head that differs from the embedding is used although the flag says tied
    "llama-dynamic": (LlamaConfig, LlamaForCausalLM, dict(rope_parameters=dict(rope_type="dynamic", factor=4.0, rope_theta=10000.0),
                      max_position_embeddings=256), torch.bfloat16, True, 1),
    "llama-untied": (LlamaConfig, LlamaForCausalLM, dict(SMALL), torch.bfloat16, False, 1),
    # what rotates where config.json says that a part of the head does: all of it (PATCHES adds the keys that a configuration drops)
    "llama-partial": (LlamaConfig, LlamaForCausalLM, dict(SMALL, partial_rotary_factor=0.5), torch.bfloat16, True, 1),
    "mistral-partial": (MistralConfig, MistralForCausalLM, dict(SMALL, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                        partial_rotary_factor=0.5)), torch.bfloat16, False, 1),
    "qwen3-partial": (Qwen3Config, Qwen3ForCausalLM, dict(SMALL, partial_rotary_factor=0.25), torch.bfloat16, False, 1),
    # gates other than silu: by tanh, by erf, without a curve; of experts too
    "llama-gelu": (LlamaConfig, LlamaForCausalLM, dict(SMALL, hidden_act="gelu_new"), torch.bfloat16, False, 1),
    "mistral-gelu": (MistralConfig, MistralForCausalLM, dict(SMALL, hidden_act="gelu"), torch.bfloat16, False, 1),
    "qwen3-relu": (Qwen3Config, Qwen3ForCausalLM, dict(SMALL, hidden_act="relu"), torch.bfloat16, False, 1),
    "mixtral-gelu": (MixtralConfig, MixtralForCausalLM, dict(SMALL, num_local_experts=4, num_experts_per_tok=2, hidden_act="gelu_pytorch_tanh"),
                     torch.bfloat16, False, 1),
    "mistral": (MistralConfig, MistralForCausalLM, dict(sliding_window=16), torch.float32, False, 1),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(head_dim="drop", hidden_size=64, num_hidden_layers=3, use_sliding_window=True, sliding_window=24,
              max_window_layers=1, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), torch.bfloat16, True, 1),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=32, tie_word_embeddings=True, max_position_embeddings=256,
              rope_parameters=dict(YARN, rope_theta=1000000.0, beta_fast=16.0, attention_factor=1.25, truncate=False)), torch.bfloat16, False, 1),
    "mixtral": (MixtralConfig, MixtralForCausalLM, dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=48), torch.bfloat16, False, 1),
    "granite": (GraniteConfig, GraniteForCausalLM, dict(embedding_multiplier=3.0, attention_multiplier=0.125, residual_multiplier=0.375,
                logits_scaling=2.5, attention_bias=True), torch.bfloat16, True, 1),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM, dict(head_dim="drop", hidden_size=64), torch.bfloat16, False, 1),
    "hunyuan": (HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM, dict(attention_bias=True,
                rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=1.0, alpha=50.0)), torch.bfloat16, False, 1),
    "olmo3": (Olmo3Config, Olmo3ForCausalLM, dict(head_dim="drop", hidden_size=64, num_hidden_layers=4, sliding_window=16, max_position_embeddings=256,
              rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0), full_attention=dict(YARN))), torch.bfloat16, False, 1),
    # 64: the root of the hidden size is exact in every type
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, dict(hidden_size=64, num_hidden_layers=4, sliding_window=16, query_pre_attn_scalar=40,
               attn_logit_softcapping=3.0, final_logit_softcapping=5.0), torch.bfloat16, True, 1),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, dict(hidden_size=64, num_hidden_layers=4, sliding_window=16, query_pre_attn_scalar=24,
               layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
               rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=100.0),
                                    full_attention=dict(rope_type="linear", factor=4.0, rope_theta=5000.0))), torch.bfloat16, False, 1),
    "exaone4": (Exaone4Config, Exaone4ForCausalLM, dict(num_hidden_layers=4, sliding_window=16), torch.bfloat16, True, 1),
    # windows by turns, sinks, biases everywhere, gates that clamp (the last gate and up are made large); 32 inputs a block of MXFP4
    "gpt-oss": (GptOssConfig, GptOssForCausalLM, dict(hidden_size=64, intermediate_size=32, num_local_experts=4,
                num_experts_per_tok=2, sliding_window=16, max_position_embeddings=256, rope_parameters=dict(rope_type="yarn", rope_theta=150000.0,
                factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False, original_max_position_embeddings=32)), torch.bfloat16, False, 1),
    "qwen3-moe": (Qwen3MoeConfig, Qwen3MoeForCausalLM, dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                  decoder_sparse_step=2), torch.bfloat16, False, 1),
    "qwen3-moe-raw": (Qwen3MoeConfig, Qwen3MoeForCausalLM, dict(num_experts=8, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=False,
                      mlp_only_layers=[0], num_hidden_layers=2), torch.bfloat16, True, 2),
    # an expert that all rows share, as much of it as a gate says; a window in every second layer before max_window_layers
    "qwen2-moe": (Qwen2MoeConfig, Qwen2MoeForCausalLM, dict(head_dim="drop", hidden_size=64, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=32,
                  shared_expert_intermediate_size=80, num_hidden_layers=4, mlp_only_layers=[1], use_sliding_window=True, sliding_window=16,
                  max_window_layers=3), torch.bfloat16, False, 1),
    # sigmoids, a bias that chooses experts and does not weigh them, groups, a shared expert, a first layer without experts, half of a head rotates
    "glm4-moe": (Glm4MoeConfig, Glm4MoeForCausalLM, dict(num_hidden_layers=3, n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=16, n_group=4,
                 topk_group=2, routed_scaling_factor=2.5, n_shared_experts=2, use_qk_norm=True, attention_bias=True), torch.bfloat16, False, 1),
    "glm4-moe-air": (Glm4MoeConfig, Glm4MoeForCausalLM, dict(SMALL, num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16,
                     norm_topk_prob=False, first_k_dense_replace=2), torch.bfloat16, True, 1),
    "ernie4-5-moe": (Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, dict(head_dim="drop", hidden_size=64, num_hidden_layers=4, moe_num_experts=8, moe_k=3, moe_intermediate_size=16,
                     moe_num_shared_experts=2, moe_layer_end_index=1, moe_layer_interval=2, tie_word_embeddings=False, pad_token_id=0), torch.bfloat16, False, 1),
    # the matrices of all experts in one tensor
    "granite-moe": (GraniteMoeConfig, GraniteMoeForCausalLM, dict(head_dim="drop", hidden_size=64, num_local_experts=6, num_experts_per_tok=3, intermediate_size=32,
                    embedding_multiplier=3.0, attention_multiplier=0.125, residual_multiplier=0.375, logits_scaling=2.5, attention_bias=True),
                    torch.bfloat16, False, 1),
    "minimax-m2": (MiniMaxM2Config, MiniMaxM2ForCausalLM, dict(num_local_experts=8, num_experts_per_tok=3, intermediate_size=32,
                   rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), torch.bfloat16, False, 1),
    # norms over all heads beside weights of experts that are not divided by their sum
    "olmoe": (OlmoeConfig, OlmoeForCausalLM, dict(head_dim="drop", hidden_size=32, num_experts=8, num_experts_per_tok=3, intermediate_size=16, vocab_size=256,
              attention_bias=True), torch.bfloat16, False, 1),
    # norms of each head, groups, a shared expert of two, a window from layer 2 on
    "dots1": (Dots1Config, Dots1ForCausalLM, dict(SMALL, num_hidden_layers=3, n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=16, n_group=4,
              topk_group=2, routed_scaling_factor=1.5, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, sliding_window=16, max_window_layers=2),
              torch.bfloat16, False, 1),
    # experts in every layer: there is no intermediate_size; biases of q, k and v
    "solar-open": (SolarOpenConfig, SolarOpenForCausalLM, dict(hidden_size=32, intermediate_size="drop", n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16,
                   routed_scaling_factor=2.0, attention_bias=True), torch.bfloat16, False, 1),
    # layers that do not rotate see all tokens; experts by a list; the scale of their sum is a default
    "exaone-moe": (ExaoneMoeConfig, ExaoneMoeForCausalLM, dict(SMALL, num_hidden_layers=4, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, num_shared_experts=2,
                   mlp_layer_types=["dense", "sparse", "dense", "sparse"], sliding_window=16, sliding_window_pattern=4), torch.bfloat16, False, 1),
    # a base of rope for each type of layer, and layers without experts, both by lists
    "mellum": (MellumConfig, MellumForCausalLM, dict(num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, attention_bias=True,
               layer_types=["sliding_attention", "full_attention", "sliding_attention"], mlp_layer_types=["sparse", "dense", "sparse"], sliding_window=16,
               rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=1000.0), full_attention=dict(YARN))), torch.bfloat16, False, 1),
    # attention_bias is left out of the file and means q, k and v alone
    "seed-oss": (SeedOssConfig, SeedOssForCausalLM, dict(attention_bias=True, attention_out_bias=False, mlp_bias=True), torch.bfloat16, False, 1),
    "seed-oss-out": (SeedOssConfig, SeedOssForCausalLM, dict(SMALL, attention_bias=False, attention_out_bias=True), torch.bfloat16, True, 1),
    # every second layer does not rotate, the file has no list; the tied head is a default; with a list and a window
    "smollm3": (SmolLM3Config, SmolLM3ForCausalLM, dict(hidden_size=64, head_dim="drop", no_rope_layer_interval=2, tie_word_embeddings=True), torch.bfloat16, False, 1),
    "smollm3-window": (SmolLM3Config, SmolLM3ForCausalLM, dict(SMALL, num_hidden_layers=3, tie_word_embeddings=False, attention_bias=True,
                       mlp_bias=True, no_rope_layers=[0, 1, 0], use_sliding_window=True, sliding_window=16), torch.bfloat16, False, 1),
    # queries grow after every 32 tokens; with a window
    "ministral3": (Ministral3Config, Ministral3ForCausalLM, dict(max_position_embeddings=256, rope_parameters=dict(type="yarn", rope_type="yarn",
                   rope_theta=1000000.0, factor=8.0, original_max_position_embeddings=32, max_position_embeddings=256, beta_fast=32.0, beta_slow=1.0,
                   mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)), torch.bfloat16, False, 1),
    "ministral3-window": (Ministral3Config, Ministral3ForCausalLM, dict(SMALL, sliding_window=24, tie_word_embeddings=True, max_position_embeddings=256,
                          rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64,
                          llama_4_scaling_beta=0.1)), torch.bfloat16, False, 1),
    # q and k rotate in pairs of neighbours
    "ernie4-5": (Ernie4_5Config, Ernie4_5ForCausalLM, dict(use_bias=True, tie_word_embeddings=False), torch.bfloat16, False, 1),
    "ernie4-5-tied": (Ernie4_5Config, Ernie4_5ForCausalLM, dict(SMALL, tie_word_embeddings=True), torch.bfloat16, True, 1),
    # q, k and v in one tensor, gate and up in another; a part of each head rotates; a window
    "phi3": (Phi3Config, Phi3ForCausalLM, dict(hidden_size=64, head_dim="drop", pad_token_id=0, rope_parameters=dict(rope_type="default", rope_theta=250000.0,
             partial_rotary_factor=1.0)), torch.bfloat16, False, 1),
    "phi3-partial": (Phi3Config, Phi3ForCausalLM, dict(SMALL, head_dim="drop", hidden_size=64, pad_token_id=0, sliding_window=16,
                     rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75)), torch.bfloat16, True, 2),
    # frequencies by lists: the short ones, for the context is not stretched, and the long ones, for each prompt is longer than the original context
    "phi3-short": (Phi3Config, Phi3ForCausalLM, dict(SMALL, hidden_size=64, head_dim="drop", pad_token_id=0, original_max_position_embeddings=512,
                   rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, factor=4.0, short_factor=LONG[0], long_factor=LONG[1])),
                   torch.bfloat16, False, 1),
    "phi3-long": (Phi3Config, Phi3ForCausalLM, dict(SMALL, hidden_size=64, head_dim="drop", pad_token_id=0, original_max_position_embeddings=4,
                  tie_word_embeddings=True, rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, factor=2.0, partial_rotary_factor=0.75,
                  short_factor=LONG[0][:6], long_factor=LONG[1][:6])), torch.bfloat16, True, 1),
    # half of each head rotates, in pairs of neighbours; biases by default, and without them; norms behind the parts, and without them
    "glm4": (Glm4Config, Glm4ForCausalLM, dict(hidden_size=64, rope_parameters=dict(rope_type="default", rope_theta=10000.0,
             partial_rotary_factor=0.5)), torch.bfloat16, False, 1),
    "glm": (GlmConfig, GlmForCausalLM, dict(SMALL, attention_bias=False, tie_word_embeddings=True, rope_parameters=dict(rope_type="default",
            rope_theta=10000.0, partial_rotary_factor=0.25)), torch.bfloat16, True, 1),
    # norms without the mean, both parts of a layer beside each other, pairs of neighbours
    "cohere": (CohereConfig, CohereForCausalLM, dict(hidden_size=64, head_dim="drop", logit_scale=0.375, attention_bias=True,
               tie_word_embeddings=True), torch.bfloat16, False, 1),
    "cohere2": (Cohere2Config, Cohere2ForCausalLM, dict(hidden_size=64, head_dim="drop", num_hidden_layers=4, sliding_window=16, logit_scale=0.5,
                tie_word_embeddings=False), torch.bfloat16, True, 1),
    # norms with biases, a feed-forward without a gate
    "starcoder2": (Starcoder2Config, Starcoder2ForCausalLM, dict(hidden_size=64, head_dim="drop", tie_word_embeddings=False,
                   hidden_act="gelu_pytorch_tanh"), torch.bfloat16, False, 1),
    "starcoder2-window": (Starcoder2Config, Starcoder2ForCausalLM, dict(SMALL, hidden_size=64, head_dim="drop", use_bias=False, sliding_window=16,
                          tie_word_embeddings=True, hidden_act="silu"), torch.bfloat16, True, 1),
    # norms of q and k that take the mean of a head off, with weights for each head
    "cohere-qk-norm": (CohereConfig, CohereForCausalLM, dict(head_dim="drop", hidden_size=64, num_hidden_layers=2, use_qk_norm=True, logit_scale=0.5,
                       tie_word_embeddings=True), torch.bfloat16, True, 1),
    # a wrapper: its vision tower lies in the file too
    "qwen3-vl": (qwen3_vl_config, Qwen3VLForConditionalGeneration, dict(tie_word_embeddings=False, rope_parameters=dict(rope_type="default",
                 rope_theta=5000000.0, mrope_section=[3, 3, 2], mrope_interleaved=True)), torch.bfloat16, False, 1),
    "qwen3-vl-tied": (qwen3_vl_config, Qwen3VLForConditionalGeneration, dict(SMALL, tie_word_embeddings=True, attention_bias=True,
                      rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2])), torch.bfloat16, False, 1),
    # experts of a layer in one tensor, an output being a column or a row; a dense layer among them
    "qwen3-vl-moe": (qwen3_vl_moe_config, Qwen3VLMoeForConditionalGeneration, dict(tie_word_embeddings=False, hidden_size=64, num_experts=6, num_experts_per_tok=3,
                     moe_intermediate_size=24, num_hidden_layers=3, mlp_only_layers=[1], rope_parameters=dict(rope_type="default",
                     rope_theta=5000000.0, mrope_section=[3, 3, 2], mrope_interleaved=True)), torch.bfloat16, False, 1),
    "qwen3-vl-moe-rows": (qwen3_vl_moe_config, Qwen3VLMoeForConditionalGeneration, dict(SMALL, tie_word_embeddings=True, num_experts=4, num_experts_per_tok=2,
                          moe_intermediate_size=24, rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2])),
                          torch.bfloat16, False, 1),
    # chunks, norms without weights, queries that grow where nothing rotates, weights of what experts read; frequencies as Scout has them
    "llama4": (Llama4TextConfig, Llama4ForCausalLM, dict(TINY, num_hidden_layers=3, no_rope_layers=[1, 1, 0], attention_chunk_size=16, floor_scale=8, attn_scale=0.5,
               num_local_experts=3, intermediate_size=16, intermediate_size_mlp=32, interleave_moe_layer_step=2, rope_parameters=dict(rope_type="llama3",
               rope_theta=10000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0, original_max_position_embeddings=64)), torch.bfloat16, False, 1),
    "llama4-wrapped": (llama4_config, Llama4ForConditionalGeneration, dict(TINY, tie_word_embeddings=False, num_hidden_layers=2, no_rope_layers=[0, 1], attention_chunk_size=24,
                       floor_scale=16, use_qk_norm=False, attention_bias=True, num_local_experts=4, num_experts_per_tok=2, moe_layers=[0], intermediate_size=16,
                       intermediate_size_mlp=32, rope_parameters=dict(rope_type="default", rope_theta=10000.0)), torch.bfloat16, False, 1),
    # two sizes of heads, values of what keys are made of, a scalar behind each layer; keys as published files have them
    "gemma4": (Gemma4TextConfig, Gemma4ForCausalLM, dict(GEMMA4, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "full_attention"],
               attention_k_eq_v=True, num_global_key_value_heads=1, rope_parameters=GEMMA4_ROPE), torch.bfloat16, False, 1),
    # layers with inputs of their own, of which the last two read the KV of others and are twice as wide; per_layer_config
    "gemma4-small": (Gemma4TextConfig, Gemma4ForCausalLM, dict(GEMMA4, num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2,
                     hidden_size_per_layer_input=16, vocab_size_per_layer_input=136, num_kv_shared_layers=2, use_double_wide_mlp=True), torch.bfloat16, False, 1),
    # experts beside the feed-forward
    "gemma4-moe": (Gemma4TextConfig, Gemma4ForCausalLM, dict(GEMMA4, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"], attention_k_eq_v=True,
                   num_global_key_value_heads=1, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=16), torch.bfloat16, False, 1),
    # layers enough for numbers of two digits in per_layer_config, within a model that takes images and sounds without an encoder
    "gemma4-unified": (gemma4_unified_config, Gemma4UnifiedForConditionalGeneration, dict({k: v for k, v in GEMMA4.items() if k != "hidden_size_per_layer_input"},
                       num_hidden_layers=12, pad_token_id=0, attention_k_eq_v=True, num_global_key_value_heads=1, rope_parameters=GEMMA4_ROPE), torch.bfloat16, False, 1),
}


def fill(model, seed, dtype):
    """Values that keep the stream near unit size, every norm and bias different from its neutral value, exact in `dtype`."""
    g = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    gemma = model.config.model_type.startswith("gemma")
    offset = 1 if gemma and not model.config.model_type.startswith("gemma4") else 0  # norms that multiply by 1 + weight
    with torch.no_grad():
        corrections = [(name, b) for name, b in model.named_buffers() if name.endswith(("e_score_correction_bias", "layer_scalar"))]
        for name, p in [*model.named_parameters(), *corrections]:
            r = torch.randn(p.shape, generator=g)
            if name in ("model.norm.weight", "model.language_model.norm.weight"):
                r = (3.0 if tied else 1.0) * (1 + 0.2 * r) - offset
            elif name.endswith("router.scale"):
                r = 4 * (1 + 0.2 * r)
            elif name.endswith(("layer_scalar", "per_expert_scale")):
                r = 1 + 0.2 * r
            elif name.endswith("norm.weight") or "layernorm" in name:
                r = 1 + 0.2 * r - offset
                if gemma and not offset and name.endswith(("q_norm.weight", "k_norm.weight")):
                    r = 0.35 * r  # scores have no other factor
                if name.endswith("post_per_layer_input_norm.weight"):
                    r = 0.4 * r
            elif name.endswith("e_score_correction_bias"):
                p.copy_((0.03 if "ernie" in model.config.model_type else 0.2) * r)  # as files have it: float32, whatever the others are
                continue
            elif name.endswith("experts.gate_up_proj") and model.config.model_type == "gpt_oss":
                r = r * 4.0 / p.shape[-2] ** 0.5  # some gates and ups are beyond 7
            elif name.endswith("experts.down_proj") and model.config.model_type == "gpt_oss":
                r = r * 0.15 / p.shape[-2] ** 0.5
            elif name.endswith("experts.down_proj") and model.config.model_type == "qwen3_vl_moe":
                r = r * 0.3 / p.shape[-1] ** 0.5  # small: another choice of experts in one layer would else change that of the next
            elif "feed_forward.experts" in name:
                r = r * 1.2 / p.shape[-2] ** 0.5
            elif name.endswith("bias"):
                r = (1.0 if "router" in name else 0.3) * r
            elif name.endswith("sinks"):
                r = 1.5 * r
            elif "embed_tokens" in name:
                r = (0.5 if "per_layer" in name else 0.1 if gemma else 0.2 if tied else 1.0) * r  # small: a tied head would else only repeat what it reads
            elif "lm_head" in name:
                r = r * 3.0 / p.shape[-1] ** 0.5
            else:
                r = r * 1.2 / p.shape[-1] ** 0.5
            p.copy_(r.to(dtype).to(torch.float32))


def prompts_of(seed, vocab):
    rng = np.random.default_rng(seed)
    return [[int(x) for x in rng.integers(3, vocab, n)] for n in PROMPT_LENGTHS]


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].to(torch.float32)


def steady(model, prompts):
    """Do the recorded rows choose the same experts where activations are rounded, by chance and by transformers in bfloat16? With two experts nearly alike, a rounding
    would swap them."""
    routers = [m for name, m in model.named_modules() if type(m).__name__.lower().endswith(("topkrouter", "llama4router", "gemma4textrouter"))]
    if not routers:
        return True
    g = torch.Generator().manual_seed(1)
    exact = [logits_of(model, p) for p in prompts]
    hooks = [m.register_forward_pre_hook(lambda _, args: (args[0] * (1 + 2**-7 * torch.randn(args[0].shape, generator=g)), *args[1:])) for m in routers]
    good = True
    for _ in range(8):
        for want, p in zip(exact, prompts):
            rows = [0, len(p) // 2, len(p) - 1]
            good = good and float((logits_of(model, p)[rows] - want[rows]).abs().max()) < 6e-3 * float(want.abs().max())
    for h in hooks:
        h.remove()
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    for want, p in zip(exact, prompts):
        rows = [0, len(p) // 2, len(p) - 1]
        good = good and float((logits_of(rounded, p)[rows] - want[rows]).abs().max()) < 25e-3 * float(want.abs().max())
    return good


def greedy(model, prompt):
    ids, gap = list(prompt), float("inf")
    for _ in range(N_GREEDY):
        top = logits_of(model, ids)[-1].topk(2)
        gap = min(gap, float(top.values[0] - top.values[1]))
        if gap < GAP:
            return None, gap
        ids.append(int(top.indices[0]))
    return ids[len(prompt):], gap


def config_v4(c):
    """The same configuration under the keys of transformers 4."""
    rp = c.pop("rope_parameters", None) or {}
    c["rope_theta"] = rp.pop("rope_theta", 10000.0)
    kind = rp.pop("rope_type", "default")
    if "partial_rotary_factor" in rp:
        c["partial_rotary_factor"] = rp.pop("partial_rotary_factor")
    c["rope_scaling"] = None if kind == "default" else dict(rp, type=kind)
    c["torch_dtype"] = c.pop("dtype")
    c.pop("layer_types", None)
    c["transformers_version"] = "4.40.0"
    return c


def save(model, path, dtype, v4, shards):
    shutil.rmtree(path, ignore_errors=True)
    buffers = {name: b.clone() for name, b in model.named_buffers()}  # RoPE's frequencies: no weights, and float32 in every type of them
    exact = {name: p.detach().clone() for name, p in model.named_parameters() if name.endswith("e_score_correction_bias")} | buffers
    model.to(dtype)
    for name, p in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith("e_score_correction_bias"):
            p.data = exact[name]  # files keep it in float32
    model.save_pretrained(path)
    model.to(torch.float32)
    for name, b in model.named_buffers():
        b.copy_(buffers[name])
    for f in os.listdir(path):
        os.chmod(os.path.join(path, f), 0o644)
    os.unlink(os.path.join(path, "generation_config.json"))
    with open(os.path.join(path, "config.json")) as f:
        c = json.load(f)
    c["dtype"] = str(dtype).removeprefix("torch.")
    c.update(PATCHES.get(os.path.basename(path), {}))
    c = {key: value for key, value in c.items() if value != "drop"}
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config_v4(c) if v4 else c, f, indent=1, sort_keys=True)
        f.write("\n")
    if os.path.basename(path) in EXTRA:
        single = os.path.join(path, "model.safetensors")
        more = {key: torch.ones(shape, dtype=dtype) for key, shape in EXTRA[os.path.basename(path)].items()}
        save_file(load_file(single) | more, single, metadata={"format": "pt"})
    if os.path.basename(path) in COLUMNS:
        single = os.path.join(path, "model.safetensors")
        turned = {key: t.transpose(1, 2).contiguous() if t.dim() == 3 else t for key, t in load_file(single).items()}
        save_file(turned, single, metadata={"format": "pt"})
    if shards > 1:
        single = os.path.join(path, "model.safetensors")
        tensors = load_file(single)
        os.unlink(single)
        names, index = sorted(tensors), {}
        for s in range(shards):
            part = names[s::shards]
            file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
            save_file({n: tensors[n] for n in part}, os.path.join(path, file), metadata={"format": "pt"})
            os.chmod(os.path.join(path, file), 0o644)
            index.update({n: file for n in part})
        total = sum(t.numel() * t.element_size() for t in tensors.values())
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": index}, f, indent=0, sort_keys=True)
            f.write("\n")


def answers_of(model, seed, n_vocab, is_steady):
    """The prompts of a seed, their greedy tokens and least gaps; None: some token is nearly tied, or what `steady` asks is not so."""
    prompts, tokens, gaps = prompts_of(seed, n_vocab), [], []
    if is_steady and not steady(model, prompts):
        return None
    for p in prompts:
        t, gap = greedy(model, p)
        if t is None:
            return None
        tokens.append(t)
        gaps.append(gap)
    return prompts, tokens, gaps


def add_quantization(path, quantization):
    """Puts quantization_config into the config.json of the folder."""
    with open(os.path.join(path, "config.json")) as f:
        c = json.load(f)
    c["quantization_config"] = quantization
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(c, f, indent=1, sort_keys=True)
        f.write("\n")


def make(root, name):
    config_cls, model_cls, over, dtype, v4, shards = MODELS[name]
    kw = {key: value for key, value in dict(BASE, **over).items() if value != "drop"}
    for seed in range(1, 400):
        model = model_cls._from_config(config_cls(**kw), attn_implementation="eager").to(torch.float32).eval()
        fill(model, seed, dtype)
        answers = answers_of(model, seed, kw["vocab_size"], name in STEADY)
        if answers:
            break
    else:
        raise SystemExit(f"{name}: no seed without a near-tie")
    path = os.path.join(root, name)
    save(model, path, dtype, v4, shards)
    again = model_cls.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    assert torch.equal(logits_of(again, answers[0][0]), logits_of(model, answers[0][0])), "what was saved is another model"
    write_golden(path, name, seed, model, *answers, model_cls.from_pretrained(path, dtype=torch.bfloat16, attn_implementation="eager").eval())


def write_golden(path, name, seed, model, prompts, tokens, gaps, rounded=None):
    rows, logits = [], []
    for i, p in enumerate(prompts):
        all_rows = logits_of(model, p)
        for r in sorted({0, len(p) // 2, len(p) - 1}):
            rows.append([i, r])
            logits.append(all_rows[r].numpy())
    np.stack(logits).astype("<f4").tofile(os.path.join(path, "logits.f32"))
    with open(os.path.join(path, "golden.json"), "w") as f:
        golden = {"seed": seed, "prompts": prompts, "rows": rows, "greedy": tokens, "min_gap": round(min(gaps), 6)}
        if rounded:
            away = max(float((logits_of(rounded, prompts[i])[r] - torch.from_numpy(want)).abs().max()) for (i, r), want in zip(rows, logits))
            golden["bf16"] = float(f"{away / np.abs(logits).max():.3g}")
        json.dump(golden, f)
        f.write("\n")
    size = sum(os.path.getsize(os.path.join(path, x)) for x in os.listdir(path))
    distinct = len({t for ts in tokens for t in ts})
    print(f"{name}: seed {seed}, min gap {min(gaps):.4f}, {distinct} distinct tokens, max |logit| {np.abs(logits).max():.2f}, {size >> 10} KiB", flush=True)


# Codes as compressed-tensors writes them: name: (format, arguments of the weights, of the activations, modules that are left out).
# The logits are those of the folder as transformers loads it, in float32; with zeros, which 5.23 does not load, those of the floats that
# compressed-tensors makes of it.
CODES = {
    "ct-pack": ("pack-quantized", dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), None,
                ["lm_head", "re:.*layers.0.self_attn.[qv]_proj", "model.layers.1.mlp.down_proj"]),
    "ct-pack-sym": ("pack-quantized", dict(num_bits=4, type="int", strategy="channel", symmetric=True), None, ["lm_head"]),
    "ct-pack8": ("pack-quantized", dict(num_bits=8, type="int", strategy="group", group_size=32, symmetric=True), None, ["lm_head"]),
    "ct-w8a8": ("int-quantized", dict(num_bits=8, type="int", strategy="channel", symmetric=True),
                dict(num_bits=8, type="int", strategy="token", dynamic=True, symmetric=True), ["lm_head"]),
}

# The family of such a checkpoint; others are Llama's. Rows of codes change places where pairs of neighbours rotate.
CODES["ernie-pack"] = CODES["ct-pack"]
CODES["ernie-w8"] = CODES["ct-pack8"]
CODE_MODELS = {"ernie-pack": (Ernie4_5Config, Ernie4_5ForCausalLM), "ernie-w8": (Ernie4_5Config, Ernie4_5ForCausalLM)}


def left_out(name, patterns):
    return any(re.match(p[3:], name) if p.startswith("re:") else name == p or name.endswith("." + p) for p in patterns)


def quantise(tensors, scheme, patterns, compressor):
    """The tensors of a checkpoint with the matrices of its layers as codes."""
    out, args = {}, scheme.weights
    for name, w in tensors.items():
        module = name.removesuffix(".weight")
        if not name.endswith("_proj.weight") or left_out(module, patterns):
            out[name] = w
            continue
        w = w.to(torch.float32)
        grouped = w.reshape(w.shape[0], -1, args.group_size or w.shape[1])
        scale, zero = calculate_qparams(grouped.amin(-1), grouped.amax(-1), args)
        state = {"weight": w, "weight_scale": scale.to(torch.bfloat16).to(torch.float32), "weight_zero_point": zero}
        for part, t in compressor.compress(state, scheme).items():
            out[f"{module}.{part}"] = t.to(torch.bfloat16) if t.dtype == torch.float32 else t
    return out


def floats(tensors, scheme, compressor):
    """The numbers that such tensors mean."""
    out = {}
    for name, t in tensors.items():
        module, _, part = name.rpartition(".")
        if part == "weight_packed":
            state = {k.removeprefix(module + "."): v.to(torch.float32) if v.is_floating_point() else v
                     for k, v in tensors.items() if k.startswith(module + ".")}
            t, name = compressor.decompress(state, scheme)["weight"], module + ".weight"
        if name.endswith(("weight", "bias")):
            out[name] = t.to(torch.float32)
    return out


def make_codes(root, name):
    form, weights, activations, patterns = CODES[name]
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights),
                                input_activations=QuantizationArgs(**activations) if activations else None)
    path = os.path.join(root, name)
    config_cls, model_cls = CODE_MODELS.get(name, (LlamaConfig, LlamaForCausalLM))
    kw = dict(BASE, **dict(hidden_size=64, intermediate_size=96, vocab_size=256, tie_word_embeddings=False))
    for seed in range(1, 400):
        model = model_cls._from_config(config_cls(**kw), attn_implementation="eager").to(torch.float32).eval()
        fill(model, seed, torch.bfloat16)
        save(model, path, torch.bfloat16, False, 1)
        file = os.path.join(path, "model.safetensors")
        compressor = BaseCompressor.get_value_from_registry(form)
        save_file(quantise(load_file(file), scheme, patterns, compressor), file, metadata={"format": "pt"})
        add_quantization(path, {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": patterns,
                                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": activations}}})
        if weights["symmetric"]:
            loaded = model_cls.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        else:
            loaded = model
            loaded.load_state_dict(floats(load_file(file), scheme, compressor))
        answers = answers_of(loaded, seed, kw["vocab_size"], False)
        if answers:
            break
    else:
        raise SystemExit(f"{name}: no seed without a near-tie")
    write_golden(path, name, seed, loaded, *answers)


GPTQ = dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False, checkpoint_format="gptq")


def gptq_pack(values, dim):
    """4-bit numbers into words along a dimension, the first in the lowest bits."""
    values = values.to(torch.int64).movedim(dim, -1).reshape(*values.movedim(dim, -1).shape[:-1], -1, 8)
    words = (values << torch.arange(0, 32, 4)).sum(-1)
    return words.movedim(-1, dim).to(torch.int32).contiguous()


def gptq(tensors, orders):
    """The tensors of a checkpoint as GPTQModel writes them with desc_act: groups of inputs in the order of their importance. -> codes, floats"""
    out, plain = {}, {}
    for name, w in tensors.items():
        plain[name] = w.to(torch.float32)
        if not name.endswith("_proj.weight"):
            out[name] = w
            continue
        w, module = w.to(torch.float32), name.removesuffix(".weight")
        n, k = w.shape
        g_idx = orders.setdefault(k, torch.randperm(k, generator=torch.Generator().manual_seed(k)) // GPTQ["group_size"])
        by_group = torch.stack([w[:, g_idx == g] for g in range(k // GPTQ["group_size"])], 1)  # [n, groups, group_size]
        low, high = by_group.amin(-1).clamp(max=0), by_group.amax(-1).clamp(min=0)
        scale = ((high - low) / 15).to(torch.float16).to(torch.float32)
        zero = (-low / scale).round().clamp(1, 15)
        code = (w / scale[:, g_idx] + zero[:, g_idx]).round().clamp(0, 15)
        plain[name] = (code - zero[:, g_idx]) * scale[:, g_idx]
        out[module + ".qweight"] = gptq_pack(code.T, 0)
        out[module + ".qzeros"] = gptq_pack(zero.T - 1, 1)
        out[module + ".scales"] = scale.T.to(torch.float16).contiguous()
        out[module + ".g_idx"] = g_idx.to(torch.int32)
        out[module + ".bias"] = torch.zeros(n, dtype=torch.float16)
    return out, plain


def make_gptq(root, name):
    path = os.path.join(root, name)
    kw = dict(BASE, **dict(hidden_size=64, intermediate_size=96, vocab_size=256))
    for seed in range(1, 400):
        model = LlamaForCausalLM._from_config(LlamaConfig(**kw), attn_implementation="eager").to(torch.float32).eval()
        fill(model, seed, torch.float16)
        save(model, path, torch.float16, False, 1)
        file = os.path.join(path, "model.safetensors")
        codes, plain = gptq(load_file(file), {})
        save_file(codes, file, metadata={"format": "pt"})
        add_quantization(path, GPTQ)
        model.load_state_dict(plain)
        answers = answers_of(model, seed, kw["vocab_size"], False)
        if answers:
            break
    else:
        raise SystemExit(f"{name}: no seed without a near-tie")
    write_golden(path, name, seed, model, *answers)


# head_dim, max_position_embeddings, RoPE parameters: of published models, and the corners of each type
ROPES = [
    (128, 4096, dict(rope_type="default", rope_theta=10000.0)),
    (64, 131072, dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=8192)),  # Llama 3.2
    (128, 131072, dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                       original_max_position_embeddings=8192)),  # Llama 3.1
    (128, 16384, dict(rope_type="linear", rope_theta=10000.0, factor=8.0)),
    (32, 2048, dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
    (128, 131072, dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768)),  # Qwen2.5, Qwen3
    (128, 131072, dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0)),
    (64, 163840, dict(rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1,
                      mscale=1.0, mscale_all_dim=0.7)),
    (64, 131072, dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, original_max_position_embeddings=4096, beta_fast=32.0, beta_slow=1.0,
                      truncate=False)),
    (16, 256, dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32, attention_factor=1.5)),
    (64, 8192, dict(rope_type="yarn", rope_theta=10000.0, factor=None, original_max_position_embeddings=2048, beta_fast=0, beta_slow=None)),
]


def make_rope(root):
    out = []
    for head_dim, context, params in ROPES:
        config = LlamaConfig(head_dim=head_dim, max_position_embeddings=context, rope_parameters=dict(params))
        if params["rope_type"] == "default":
            inv_freq, scale = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
        else:
            inv_freq, scale = ROPE_INIT_FUNCTIONS[params["rope_type"]](config)
        out.append({"head_dim": head_dim, "max_position_embeddings": context, "rope_parameters": params, "scale": scale,
                    "inv_freq": [float(f"{x:.9g}") for x in inv_freq.tolist()]})
    with open(os.path.join(root, "rope.json"), "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden"
    for n in sys.argv[2:] or [*MODELS, *CODES, "gptq-order", "rope"]:
        how = {"rope": lambda root, n: make_rope(root), "gptq-order": make_gptq}.get(n, make_codes if n in CODES else make)
        how(root, n)
