#!/usr/bin/env python3
"""Golden Dense modules of sentence-transformers: each activation that engine/model/dense.c names, saved and computed by the library itself.

    tools/golden/make_dense_golden.py > tests/data/dense.json

A list of {config, weights, x, y}: the text of config.json, the bytes of model.safetensors in hexadecimal, states, and the vectors that the
module makes of them in float64. Some states reach where an activation is flat."""

import json
import os
import sys
import tempfile

import torch
from sentence_transformers.base.modules import Dense

INPUTS, OUTPUTS = 6, 4
# activation (None: what the constructor takes), bias, type of the file
MODULES = ((None, True, torch.float32), (torch.nn.Tanh(), True, torch.float16), (torch.nn.Identity(), False, torch.bfloat16), (torch.nn.ReLU(), True, torch.float32),
           (torch.nn.Sigmoid(), True, torch.float32), (torch.nn.GELU(), True, torch.float32), (torch.nn.SiLU(), False, torch.float32))


def row(i, activation, bias, dtype):
    torch.manual_seed(i)
    more = {} if activation is None else dict(activation_function=activation)
    module = Dense(INPUTS, OUTPUTS, bias=bias, **more).to(dtype)
    with tempfile.TemporaryDirectory() as folder:
        module.save(folder)
        with open(os.path.join(folder, "config.json")) as f:
            config = f.read()
        with open(os.path.join(folder, "model.safetensors"), "rb") as f:
            weights = f.read().hex()
    x = torch.randn(4, INPUTS, dtype=torch.float64) * torch.tensor([[0.3], [1.0], [5.0], [60.0]], dtype=torch.float64)
    with torch.no_grad():
        y = module.double()({"sentence_embedding": x})["sentence_embedding"]
    return dict(config=config, weights=weights, x=x.tolist(), y=y.tolist())


if __name__ == "__main__":
    rows = [row(i, *m) for i, m in enumerate(MODULES)]
    sys.stdout.write("[" + ",\n".join(json.dumps(r) for r in rows) + "]\n")
