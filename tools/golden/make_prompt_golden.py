#!/usr/bin/env python3
"""Golden vectors of texts behind prompts: what sentence-transformers makes of small checkpoints of tests/data/golden in float32.

    tools/golden/make_prompt_golden.py

Per checkpoint prompts.json: the prompts, the one of texts without a name, texts, and cases of pooling, include_prompt, and what was asked for: a
name of encode (null: none), or "encode_query" and "encode_document"; with the number of tokens of each text, and its vector. Folders and their
tokenizers are those of the end-to-end tests."""

import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for part in ("e2e", "fault"):
    sys.path.insert(0, os.path.join(ROOT, "tests", part))

import torch
from sentence_transformers import SentenceTransformer

import embeddings
import encoders
from prompts import with_prompts

# "se" and the text behind it become one token, which is then the prompt's and no text's.
PROMPTS = {"query": "find this: ", "document": "the text ", "look": "look at ", "tight": "se", "none": ""}
DEFAULT = "look"
TEXTS = ["a", "seaside town and a sea", "the quick brown fox jumps over the lazy dog"]
ASKED = [None, "query", "tight", "none", "encode_document"]
CLASS = {"tokenizer_class": "PreTrainedTokenizerFast"}  # reads tokenizer.json as it is
PAD = {"bert": "[PAD]", "qwen3": "<|end|>"}
POOLED = {"bert": [("mean_tokens", True), ("mean_tokens", False), ("cls_token", False)], "qwen3": [("mean_tokens", False), ("lasttoken", False)]}


def folder_of(world, name, pooling, include):
    make = world.encoder if name == "bert" else lambda _, p: world.embedder(p, normalize=False)
    return with_prompts(make(name, pooling), PROMPTS, DEFAULT, include)


def vectors_of(model, asked):
    if asked and asked.startswith("encode_"):
        return getattr(model, asked)(TEXTS)
    return model.encode(TEXTS, prompt_name=asked)


def tokens_of(model, asked):
    name = asked[len("encode_"):] if asked and asked.startswith("encode_") else asked or DEFAULT
    return [len(model.tokenizer(PROMPTS[name] + t)["input_ids"]) for t in TEXTS]


def main():
    torch.set_num_threads(1)
    for name, kinds in POOLED.items():
        world, cases = (encoders if name == "bert" else embeddings).World(), []
        for pooling, include in kinds:
            folder = folder_of(world, name, pooling, include)
            with open(os.path.join(folder, "tokenizer_config.json")) as f:
                embeddings.write(folder, "tokenizer_config.json", {**json.load(f), **CLASS, "pad_token": PAD[name]})
            model = SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
            for asked in ASKED:
                cases.append(dict(pooling=pooling, include=include, asked=asked, tokens=tokens_of(model, asked),
                                  vectors=[[float("%.6g" % x) for x in v.tolist()] for v in vectors_of(model, asked)]))
        with open(os.path.join(ROOT, "tests", "data", "golden", name, "prompts.json"), "w") as f:
            json.dump(dict(prompts=PROMPTS, default=DEFAULT, texts=TEXTS, cases=cases), f, separators=(",", ":"))
            f.write("\n")
        world.close()
        print(name, len(cases))


if __name__ == "__main__":
    main()
