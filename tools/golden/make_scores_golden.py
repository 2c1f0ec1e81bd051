#!/usr/bin/env python3
"""Scores of pairs by transformers and sentence-transformers, of golden checkpoints: tests/data/golden/scores.json.

    make_scores_golden.py tests/data/golden     needs torch, transformers, sentence-transformers

The tokenizer is that of the end-to-end tests (tests/e2e/scripted.py), with "yes" and "no" as tokens. Cases:
  original    Qwen3ForCausalLM, prompts and scores as Qwen3-Reranker's model card makes them, before the sigmoid
  instructed  the same with an instruction
  logits      what sentence-transformers saves of such a model (modules.json with LogitScore), its chat template and no activation
  plain       the same with one token and no template
  joined      a ...ForSequenceClassification with one label and no template, by CrossEncoder
"files" are what the folder of a case has beside the checkpoint."""

import json
import os
import shutil
import sys
import tempfile

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "e2e"))
import scripted  # noqa: E402

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|end|>"]
ADDED = ["<think>", "</think>", "yes", "no"]
CONFIG = {"max_position_embeddings": 4096, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}
DEFAULT = "Given a web search query, retrieve relevant passages that answer the query"
OWN = "Find the town of a sentence"
TEMPLATE = """{{ bos_token }}{%- for m in messages if m.role == 'system' %}<|im_start|>system
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>user
Query: {{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first | trim }}
Document: {{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first | trim }}<|im_end|>
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
PAIRS = [["Where is the sea?", "The sea is west of the town."], ["Where is the sea?", "Cats sleep."], ["Where is the sea?", "I say yes \U0001f30a, it is."],
         ["Who sleeps?", "  Cats sleep.\n"], ["a", "b"]]


def folder(root, name, where, **config):
    path = os.path.join(where, name + str(len(os.listdir(where))))
    shutil.copytree(os.path.join(root, name), path)
    _, tok = scripted.tokenizer(ADDED, SPECIAL)
    with open(os.path.join(path, "config.json")) as f:
        config = {**json.load(f), **CONFIG, **config}
    for file, value in (("tokenizer.json", tok), ("config.json", config),
                        ("tokenizer_config.json", {"eos_token": "<|end|>", "pad_token": "<|end|>", "tokenizer_class": "PreTrainedTokenizerFast"})):
        with open(os.path.join(path, file), "w") as f:
            json.dump(value, f)
    return path


def card(path, instruction):
    """As on Qwen3-Reranker's page, one pair at a time."""
    tok = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    yes, no = tok.convert_tokens_to_ids("yes"), tok.convert_tokens_to_ids("no")
    before = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that "
              "the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
    after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    scores = []
    for q, d in PAIRS:
        ids = tok.encode(before) + tok.encode("<Instruct>: %s\n<Query>: %s\n<Document>: %s" % (instruction, q, d)) + tok.encode(after)
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        scores.append(float(logits[yes] - logits[no]))  # of which the page's softmax is the sigmoid
    return scores


def saved(path):
    found = {}
    for base, _, names in os.walk(path):
        for n in names:
            file = os.path.relpath(os.path.join(base, n), path)
            if file in ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "chat_template.jinja") or file.startswith("1_"):
                with open(os.path.join(path, file)) as f:
                    found[file] = f.read()
    return found


def encoder(model, where, name):
    path = os.path.join(where, name)
    model.save_pretrained(path)
    again = CrossEncoder(path, device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
    return {"files": saved(path), "scores": [float(again.predict([p])[0]) for p in PAIRS]}


def main(root):
    with tempfile.TemporaryDirectory() as where:
        base, speaking = folder(root, "qwen3", where), folder(root, "qwen3", where)
        with open(os.path.join(speaking, "chat_template.jinja"), "w") as f:
            f.write(TEMPLATE)
        cases = {"original": {"scores": card(base, DEFAULT)}, "instructed": {"scores": card(base, OWN), "instruction": OWN}}

        def logits(path, no, act, instruction, **kwargs):
            transformer = Transformer(path, transformer_task="text-generation", model_kwargs={"dtype": torch.float32}, **kwargs)
            score = LogitScore(transformer.tokenizer.convert_tokens_to_ids("yes"), transformer.tokenizer.convert_tokens_to_ids("no") if no else None)
            prompts = dict(prompts={"own": instruction}, default_prompt_name="own") if instruction else {}
            return CrossEncoder(modules=[transformer, score], device="cpu", activation_fn=act, **prompts)

        cases["logits"] = encoder(logits(speaking, True, torch.nn.Identity(), OWN, processing_kwargs={"chat_template": {"add_generation_prompt": True}}), where, "logits")
        cases["plain"] = encoder(logits(base, False, torch.nn.Sigmoid(), None), where, "plain")
        cases["joined"] = encoder(CrossEncoder(folder(root, "phi3-regression", where), device="cpu", model_kwargs={"dtype": torch.float32}), where, "joined")
    for name, case in cases.items():
        print(name, ["%.4f" % s for s in case["scores"]], sorted(case.get("files", [])))
    with open(os.path.join(root, "scores.json"), "w") as f:
        json.dump({"special": SPECIAL, "added": ADDED, "config": CONFIG, "pairs": PAIRS, "cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
