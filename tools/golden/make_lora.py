#!/usr/bin/env python3
"""Writes adapters as PEFT saves them, and the logits of the models that PEFT merges them into, below tests/data/golden.

usage: make_lora.py ROOT [NAME...]     needs torch, transformers, peft

Per adapter NAME: adapter_config.json, adapter_model.safetensors, and logits.f32, the float32 logits of the rows that the golden file of
its base model lists, for the same prompts. Numbers are drawn so that the adapter moves the logits far more than rounding does.
"""
import json
import os
import shutil
import sys

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: (base, arguments of LoraConfig, type of the file)
ADAPTERS = {
    "lora-r4": ("llama3", dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"]), torch.float32),
    "lora-r8": ("llama3", dict(r=8, lora_alpha=16, target_modules=ALL), torch.bfloat16),
    "lora-r12": ("llama3", dict(r=12, lora_alpha=12, target_modules=["k_proj", "o_proj"]), torch.float16),
    "lora-r16": ("llama3", dict(r=16, lora_alpha=8, target_modules=["gate_proj", "up_proj", "down_proj"]), torch.bfloat16),
    "lora-r20": ("llama3", dict(r=20, lora_alpha=10, use_rslora=True, target_modules=r".*layers\.1\..*(q|o|down)_proj"), torch.bfloat16),
    "lora-r32": ("llama3", dict(r=32, lora_alpha=16, target_modules=["v_proj", "down_proj"], layers_to_transform=[0]), torch.bfloat16),
    "lora-r48": ("llama3", dict(r=8, lora_alpha=8, rank_pattern={"o_proj": 48, "model.layers.0.self_attn.q_proj": 5},
                                alpha_pattern={"o_proj": 24, "layers.1.self_attn.q_proj": 3.5}, target_modules=["q_proj", "o_proj"]), torch.bfloat16),
    "lora-r64": ("llama3", dict(r=64, lora_alpha=16, target_modules=["up_proj"]), torch.bfloat16),
    "lora-phi3": ("phi3", dict(r=6, lora_alpha=12, target_modules="all-linear"), torch.float32),  # fused q, k, v and gate, up
    "lora-glm4": ("glm4", dict(r=8, lora_alpha=8, target_modules="all-linear"), torch.bfloat16),  # rows of q and k change places
    "lora-cohere": ("cohere", dict(r=8, lora_alpha=16, target_modules="all-linear"), torch.bfloat16),
    "lora-starcoder2": ("starcoder2", dict(r=8, lora_alpha=16, target_modules="all-linear"), torch.bfloat16),  # no gate
    "lora-gemma3": ("gemma3", dict(r=8, lora_alpha=16, target_modules=ALL), torch.bfloat16),
}


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].to(torch.float32)


def make(root, name):
    base, args, dtype = ADAPTERS[name]
    path = os.path.join(root, name)
    with open(os.path.join(root, base, "golden.json")) as f:
        golden = json.load(f)
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForCausalLM.from_pretrained(os.path.join(root, base), dtype=torch.float32)
    plain = [logits_of(model, p) for p in golden["prompts"]]
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **args), autocast_adapter_dtype=False)
    for key, p in model.named_parameters():
        if ".lora_A." in key:
            p.data = (torch.randn(p.shape) / p.shape[1] ** 0.5).to(dtype)
        if ".lora_B." in key:
            p.data = (torch.randn(p.shape) * 0.25 / p.shape[1] ** 0.5).to(dtype)
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    for extra in ("README.md",):
        if os.path.exists(os.path.join(path, extra)):
            os.remove(os.path.join(path, extra))
    config = json.load(open(os.path.join(path, "adapter_config.json")))
    config["base_model_name_or_path"] = base
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    json.dump(config, open(os.path.join(path, "adapter_config.json"), "w"), indent=1, sort_keys=True)
    again = AutoModelForCausalLM.from_pretrained(os.path.join(root, base), dtype=torch.float32)
    merged = PeftModel.from_pretrained(again, path, autocast_adapter_dtype=True).to(torch.float32).merge_and_unload()
    rows, far = [], 0.0
    for p, r in golden["rows"]:
        rows.append(logits_of(merged, golden["prompts"][p])[r].numpy())
        far = max(far, float(np.abs(rows[-1] - plain[p][r].numpy()).max()))
    np.stack(rows).astype("<f4").tofile(os.path.join(path, "logits.f32"))
    size = sum(os.path.getsize(os.path.join(path, x)) for x in os.listdir(path))
    print(f"{name}: of {base}, moves the logits by up to {far:.3f} of {np.abs(rows).max():.2f}, {size >> 10} KiB", flush=True)
    assert far > 0.02 * float(np.abs(rows).max())


if __name__ == "__main__":
    for adapter in sys.argv[2:] or ADAPTERS:
        make(sys.argv[1], adapter)
