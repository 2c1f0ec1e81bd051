#!/usr/bin/env python3
"""gpt-oss with experts as published, MXFP4, and what transformers computes with it:  tools/golden/make_mxfp4_golden.py [FOLDER]

The model of make_golden.py's row gpt-oss, with experts of two blocks, so that two ranks have a block each, which are rounded to blocks of
4-bit floats. The logits are of the floats that transformers
makes of the blocks. Needs what make_golden.py needs."""
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make_golden import BASE, MODELS, add_quantization, answers_of, fill, save, write_golden

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def mxfp4(w):
    """A stack [experts, inputs, outputs] as the blocks and scales of published checkpoints."""
    x = w.to(torch.float32).transpose(1, 2)
    x = x.reshape(*x.shape[:-1], -1, 32)
    power = torch.floor(torch.log2(x.abs().amax(-1))).clamp(-100, 100) - 2
    y = x / torch.exp2(power)[..., None]
    code = (y.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (y < 0)
    return (code[..., 0::2] | code[..., 1::2] << 4).to(torch.uint8).contiguous(), (power + 127).to(torch.uint8).contiguous()


def make_mxfp4(root, name):
    """gpt-oss with experts as published, the logits of what transformers makes of them in float32."""
    path = os.path.join(root, name)
    config_cls, model_cls, over, dtype, _, _ = MODELS["gpt-oss"]
    kw = dict(BASE, **dict(over, intermediate_size=64))
    for seed in range(1, 400):
        model = model_cls._from_config(config_cls(**kw), attn_implementation="eager").to(torch.float32).eval()
        fill(model, seed, dtype)
        stacks, parts = {}, dict(model.named_parameters())
        for full in [n for n in parts if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
            stacks[full + "_blocks"], stacks[full + "_scales"] = mxfp4(parts[full])
            with torch.no_grad():
                parts[full].copy_(convert_moe_packed_tensors(stacks[full + "_blocks"], stacks[full + "_scales"], dtype=torch.float32))
        answers = answers_of(model, seed, kw["vocab_size"], True)
        if answers:
            break
    else:
        raise SystemExit(f"{name}: no seed without a near-tie")
    save(model, path, dtype, True, 1)
    file = os.path.join(path, "model.safetensors")
    plain = {n: t for n, t in load_file(file).items() if n + "_blocks" not in stacks}
    save_file(dict(plain, **stacks), file, metadata={"format": "pt"})
    add_quantization(path, {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]})
    write_golden(path, name, seed, model, *answers)


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_mxfp4(sys.argv[1] if len(sys.argv) > 1 else "tests/data/golden", "gpt-oss-mxfp4")
