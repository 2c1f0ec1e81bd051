#!/usr/bin/env python3
"""The vectors of a golden checkpoint's prompts, pooled as sentence-transformers does: tests/data/golden/NAME/pooled.f32.

    make_pooled_golden.py tests/data/golden NAME ...

The file has [prompts][3][hidden] float32: the last token's state behind the final norm, the mean of all tokens' states, and
the first token's state, each divided by its length (Pooling with pooling_mode_lasttoken, pooling_mode_mean_tokens or
pooling_mode_cls_token, then Normalize)."""

import json
import os
import sys

import torch
from transformers import AutoModel


def vectors(model, prompt):
    with torch.no_grad():
        states = model(torch.tensor([prompt])).last_hidden_state[0]
    kinds = torch.stack([states[-1], states.sum(0) / len(prompt), states[0]])
    return torch.nn.functional.normalize(kinds, dim=1)


def make(path):
    with open(os.path.join(path, "golden.json")) as f:
        prompts = json.load(f)["prompts"]
    model = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    out = torch.stack([vectors(model, p) for p in prompts])
    with open(os.path.join(path, "pooled.f32"), "wb") as f:
        f.write(out.to(torch.float32).numpy().astype("<f4").tobytes())
    print(path, tuple(out.shape))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        make(os.path.join(sys.argv[1], name))
