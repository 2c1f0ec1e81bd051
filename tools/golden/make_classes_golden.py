#!/usr/bin/env python3
"""Checkpoints that classify, of golden checkpoints that generate: tests/data/golden/NAME.

    make_classes_golden.py tests/data/golden [NAME ...]     needs torch, transformers

Each has score.weight with numbers that are drawn, and classes.json: prompts, two of which end in padding, and the logits that
transformers gives in float32, alone and as one padded batch."""

import json
import os
import shutil
import sys

import torch
from transformers import AutoModelForSequenceClassification

PAD = 3
# name: (base, what config.json says of the classes)
MODELS = {
    "qwen3-classes": ("qwen3", dict(id2label={0: "calm", 1: "angry \U0001f620", 2: "glad"}, problem_type="single_label_classification")),
    "phi3-regression": ("phi3", dict(num_labels=1)),
}


def make(root, name):
    base, config = MODELS[name]
    path = os.path.join(root, name)
    with open(os.path.join(root, base, "golden.json")) as f:
        prompts = json.load(f)["prompts"]
    prompts += [prompts[0] + [PAD, PAD], [PAD]]
    torch.manual_seed(sum(name.encode()))
    model = AutoModelForSequenceClassification.from_pretrained(os.path.join(root, base), dtype=torch.bfloat16, pad_token_id=PAD,
                                                               attn_implementation="eager", **config).eval()
    model.score.weight.data = torch.randn(model.score.weight.shape).to(torch.bfloat16)
    shutil.rmtree(path, ignore_errors=True)
    model.save_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = [model(torch.tensor([p])).logits[0] for p in prompts]
        longest = max(map(len, prompts))
        batch = torch.tensor([p + [PAD] * (longest - len(p)) for p in prompts])
        padded = model(batch, attention_mask=(torch.arange(longest) < torch.tensor([[len(p)] for p in prompts])).long()).logits
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(logits, padded)), "padding changes the logits"
    with open(os.path.join(path, "classes.json"), "w") as f:
        json.dump({"prompts": prompts, "logits": [[float(x) for x in row] for row in logits]}, f)
        f.write("\n")
    print(path, len(prompts), "prompts,", len(logits[0]), "labels")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in sys.argv[2:] or MODELS:
        make(sys.argv[1], one)
