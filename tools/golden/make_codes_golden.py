#!/usr/bin/env python3
"""Golden checkpoints of families whose matrices or layers are special, with these matrices as codes:

    tools/golden/make_codes_golden.py [tests/data/golden] [name ...]

The codes are those of AWQ (gemm), of GPTQ with desc_act, of FP8 in blocks, and of NVFP4, in the names and shapes that AutoAWQ, GPTQModel, transformers,
compressed-tensors (which packs them itself) and ModelOpt write.
The logits are those of the floats that the codes mean. Needs what make_golden.py needs."""
import json
import os
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

from make_golden import BASE, GPTQ, MODELS, add_quantization, answers_of, fill, gptq, gptq_pack, save, write_golden

GROUP = 32
AWQ = dict(quant_method="awq", bits=4, group_size=GROUP, zero_point=True, version="gemm")
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the outputs of a word, low bits first
FP8 = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[48, GROUP])  # 48: a block may lie on a border of two matrices


def awq_pack(values):
    """[.., n] into words [.., n / 8]."""
    return gptq_pack(values.reshape(-1, values.shape[-1] // 8, 8)[..., AWQ_ORDER].reshape(values.shape), -1)


def awq(module, w):
    """-> tensors of a matrix [n, k], the floats that they mean"""
    n, k = w.shape
    grouped = w.reshape(n, k // GROUP, GROUP)
    low, high = grouped.amin(-1).clamp(max=0), grouped.amax(-1).clamp(min=0)
    scale = ((high - low) / 15).to(torch.float16).to(torch.float32)
    zero = (-low / scale).round().clamp(0, 15)
    code = (grouped / scale[..., None] + zero[..., None]).round().clamp(0, 15)
    plain = ((code - zero[..., None]) * scale[..., None]).reshape(n, k)
    return {module + ".qweight": awq_pack(code.reshape(n, k).T.contiguous()), module + ".qzeros": awq_pack(zero.T.contiguous()),
            module + ".scales": scale.T.to(torch.float16).contiguous()}, plain


def fp8(module, w):
    n, k = w.shape
    rows = FP8["weight_block_size"][0]
    padded = torch.zeros((n + rows - 1) // rows * rows, k)
    padded[:n] = w
    blocks = padded.reshape(-1, rows, k // GROUP, GROUP)
    scale = blocks.abs().amax((1, 3)) / 448
    code = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    plain = (code.to(torch.float32) * scale[:, None, :, None]).reshape(-1, k)[:n]
    return {module + ".weight": code.reshape(-1, k)[:n].contiguous(), module + ".weight_scale_inv": scale.contiguous()}, plain


# Activations would be rounded to 4 bits too; the logits are those of weights alone.
NVFP4 = dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True, dynamic=False, scale_dtype="torch.float8_e4m3fn")
COMPRESSED_NVFP4 = dict(quant_method="compressed-tensors", format="nvfp4-pack-quantized", quantization_status="compressed", ignore=["lm_head"], config_groups={
    "group_0": dict(format="nvfp4-pack-quantized", targets=["Linear"], weights=NVFP4,
                    input_activations=dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True, dynamic="local"))})
MODELOPT_NVFP4 = {"producer": {"name": "modelopt", "version": "0.39.0"}, "quantization": dict(
    quant_algo="NVFP4", kv_cache_quant_algo="FP8", group_size=16, exclude_modules=["lm_head", "model.layers.*.mlp.gate"])}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def nvfp4_scales(w, factor):
    return (w.reshape(w.shape[0], -1, 16).abs().amax(-1) / 6 / factor).clamp(max=448).to(torch.float8_e4m3fn)


def nvfp4_floats(packed, scale, factor):
    """What packed codes mean, rounded once."""
    code = torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1, 16).to(torch.int64)
    return (E2M1[code] * (scale.to(torch.float64) * factor)[..., None]).reshape(packed.shape[0], -1).to(torch.float32)


def compressed_nvfp4(module, w):
    divisor = (6 * 448 / w.abs().amax()).to(torch.float32).reshape(1)
    scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**NVFP4))
    compressor = BaseCompressor.get_value_from_registry("nvfp4-pack-quantized")
    state = {"weight": w, "weight_scale": nvfp4_scales(w, 1 / divisor).to(torch.float32), "weight_global_scale": divisor}
    parts = compressor.compress(state, scheme)
    plain = nvfp4_floats(parts["weight_packed"], parts["weight_scale"], 1 / divisor.to(torch.float64))
    theirs = compressor.decompress(parts, scheme)["weight"].to(torch.float32)
    assert (plain - theirs).abs().amax() <= plain.abs().amax() / 128, "compressed-tensors' own numbers, in bfloat16, are others"
    tensors = {f"{module}.{part}": t.contiguous() for part, t in parts.items()}
    return tensors | {module + ".input_global_scale": torch.tensor([448.0 * 6])}, plain


def modelopt_nvfp4(module, w):
    factor = (w.abs().amax() / (6 * 448)).to(torch.float32)
    scale = nvfp4_scales(w, factor)
    by = (scale.to(torch.float64) * factor.to(torch.float64))[..., None]
    code = (w.reshape(w.shape[0], -1, 16, 1) - E2M1 * by[..., None]).abs().argmin(-1).to(torch.uint8).reshape(w.shape[0], -1)
    packed = code[:, ::2] | code[:, 1::2] << 4
    return {module + ".weight": packed.contiguous(), module + ".weight_scale": scale.contiguous(), module + ".weight_scale_2": factor,
            module + ".input_scale": torch.tensor(1 / 2688.0)}, nvfp4_floats(packed, scale, factor.to(torch.float64))


def matrices(tensors, one):
    """The tensors of a checkpoint with the matrices of its layers as codes; experts that lie in one tensor get a tensor each."""
    out, plain = {}, {}
    for name, t in tensors.items():
        plain[name] = t.to(torch.float32)
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # [experts, rows, columns]
            turned = "feed_forward" in name  # [experts, columns, rows]
            for e in range(t.shape[0]):
                rows = t[e].T if turned else t[e]
                half = rows.shape[0] // 2
                parts = {"gate_proj": rows[:half], "up_proj": rows[half:]} if "gate_up" in name else {"down_proj": rows}
                floats = []
                for part, w in parts.items():
                    codes, p = one(f"{name.rpartition('.')[0]}.{e}.{part}", w.to(torch.float32))
                    out.update(codes)
                    floats.append(p)
                plain[name][e] = torch.cat(floats).T if turned else torch.cat(floats)
        elif ".layers." in name and name.endswith("_proj.weight"):
            codes, plain[name] = one(name.removesuffix(".weight"), t.to(torch.float32))
            out.update(codes)
        else:
            out[name] = t
    return out, plain


WIDE = dict(hidden_size=32, intermediate_size=64, vocab_size=128, num_attention_heads=4, head_dim=8)
EVEN = WIDE | dict(hidden_size=64, intermediate_size=32)  # whose root is exact
# name: the row of make_golden.py, what differs, quantization_config, how a checkpoint's tensors become codes
CODES = {
    "phi3-gptq-order": ("phi3", {}, GPTQ, lambda tensors: gptq(tensors, {})),
    "phi3-awq": ("phi3", {}, AWQ, lambda tensors: matrices(tensors, awq)),
    "glm4-fp8": ("glm4", {}, FP8, lambda tensors: matrices(tensors, fp8)),
    # experts whose file has columns; rows that change places in blocks that share a scale; layers without keys, or whose values are keys
    "llama4-fp8": ("llama4", WIDE | dict(intermediate_size=32, intermediate_size_mlp=64, num_local_experts=2), FP8, lambda tensors: matrices(tensors, fp8)),
    "gemma4-awq": ("gemma4", EVEN, AWQ, lambda tensors: matrices(tensors, awq)),
    "gemma4-small-awq": ("gemma4-small", EVEN | dict(vocab_size=96, hidden_size_per_layer_input=4), AWQ, lambda tensors: matrices(tensors, awq)),
    "gemma3-awq": ("gemma3", EVEN | dict(num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"]), AWQ, lambda tensors: matrices(tensors, awq)),
    "cohere2-gptq-order": ("cohere2", WIDE | dict(num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"]), GPTQ, lambda tensors: gptq(tensors, {})),
    "llama3-nvfp4": ("llama3", WIDE, COMPRESSED_NVFP4, lambda tensors: matrices(tensors, compressed_nvfp4)),
    "qwen3-moe-nvfp4": ("qwen3-moe", WIDE | dict(num_experts=4, moe_intermediate_size=32), MODELOPT_NVFP4, lambda tensors: matrices(tensors, modelopt_nvfp4)),
    "qwen3-vl-moe-awq": ("qwen3-vl-moe-rows", dict(hidden_size=64, moe_intermediate_size=64, tie_word_embeddings=False), AWQ, lambda tensors: matrices(tensors, awq)),
}


def make_codes(root, name):
    row, differs, quantization, codes_of = CODES[name]
    path = os.path.join(root, name)
    config_cls, model_cls, over, _, _, _ = MODELS[row]
    kw = dict(BASE, **over) | dict(intermediate_size=128, vocab_size=256) | differs
    if kw.get("head_dim") == "drop":
        del kw["head_dim"]
    dtype = torch.float16 if quantization in (AWQ, GPTQ) else torch.bfloat16
    for seed in range(1, 400):
        model = model_cls._from_config(config_cls(**kw), attn_implementation="eager").to(torch.float32).eval()
        fill(model, seed, dtype)
        save(model, path, dtype, False, 1)
        file = os.path.join(path, "model.safetensors")
        tensors, plain = codes_of(load_file(file))
        if "nvfp4" in name:  # a file's names of experts are not the model's
            save_file(plain, file, metadata={"format": "pt"})
            model = model_cls.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        save_file(tensors, file, metadata={"format": "pt"})
        if quantization is MODELOPT_NVFP4:
            with open(os.path.join(path, "hf_quant_config.json"), "w") as f:
                json.dump(quantization, f, indent=1)
                f.write("\n")
        else:
            add_quantization(path, quantization)
        if "nvfp4" not in name:
            model.load_state_dict(plain, strict=False)
        answers = answers_of(model, seed, kw["vocab_size"], "moe" in name)
        if answers:
            break
    else:
        raise SystemExit(f"{name}: no seed without a near-tie")
    write_golden(path, name, seed, model, *answers)


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden"
    for n in sys.argv[2:] or CODES:
        make_codes(root, n)
