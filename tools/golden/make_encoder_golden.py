#!/usr/bin/env python3
"""Golden encoders: a tiny random model of each family, and the vectors that transformers makes of some prompts in float32.

    tools/golden/make_encoder_golden.py tests/data/golden [NAME ...]

Per NAME: config.json, model.safetensors, golden.json {prompts, types} and vectors.f32 [prompts][2][hidden]: the first token's state, and
the mean of all tokens' states. Of embedding-gemma also the folders of its modules, and embeddings.f32 [prompts][numbers]: what the modules
of sentence-transformers make of the states. Of a model that classifies golden.json has scores [prompts][labels] instead, before any activation; the
texts of its pairs are ids of letters (4 to 29), between 2 and 3. types says where the second text of a pair begins (null: there is none)."""

import json
import os
import sys

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sentence_transformers.base.modules import Dense, Normalize
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import (BertConfig, BertForSequenceClassification, BertModel, Gemma3TextConfig, Gemma3TextModel, GteConfig, GteForSequenceClassification, GteModel, JinaEmbeddingsV3Config, JinaEmbeddingsV3Model,
                          ModernBertConfig, ModernBertForMaskedLM, NomicBertConfig, NomicBertForSequenceClassification, NomicBertModel, RobertaConfig, RobertaForMaskedLM, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification, XLMRobertaModel)

LENGTHS = (1, 5, 23, 90, 130)
BASE = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, vocab_size=320)
ROBERTA = dict(max_position_embeddings=132, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=160)
MODERN = dict(max_position_embeddings=160, local_attention=24, num_hidden_layers=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
# A window of 24 is 12 tokens before and 12 behind; one layer of three sees all.
GEMMA = dict(hidden_size=64, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=24, vocab_size=96, max_position_embeddings=140,
             sliding_window=24, sliding_window_pattern=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"], query_pre_attn_scalar=20, use_bidirectional_attention=True,
             rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0}, "full_attention": {"rope_type": "default", "rope_theta": 5000.0}})
GEMMA_DENSE = ((64, 40), (40, 24))
# name: (configuration, class, keys, type of the file, keys of config.json to be left out)
MODELS = {
    "bert": (BertConfig, BertModel, dict(max_position_embeddings=130), torch.float32, ["hidden_act", "layer_norm_eps"]),
    "xlm-roberta": (XLMRobertaConfig, XLMRobertaModel, ROBERTA, torch.float16, ["pad_token_id"]),
    "modernbert": (ModernBertConfig, ModernBertForMaskedLM, MODERN, torch.float16, []),
    "nomic-bert": (NomicBertConfig, NomicBertModel, dict(max_position_embeddings=140), torch.float16, ["hidden_act"]),
    "nomic-bert-old": (NomicBertConfig, NomicBertModel, dict(max_position_embeddings=140), torch.float16, []),
    "roberta": (RobertaConfig, RobertaForMaskedLM, ROBERTA, torch.float32, []),
    "gte": (GteConfig, GteModel, dict(**SMALL, max_position_embeddings=140), torch.float16, ["hidden_act", "rope_parameters", "type_vocab_size"]),
    "gte-old": (GteConfig, GteModel, dict(**SMALL, max_position_embeddings=140, type_vocab_size=0), torch.float16, []),
    "embedding-gemma": (Gemma3TextConfig, Gemma3TextModel, GEMMA, torch.bfloat16, []),
    "jina-v3": (JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, dict(**SMALL, max_position_embeddings=142), torch.float16, ["rope_parameters"]),
}
# Tensors get the names that transformers' classes give them; else those of the first files, as it writes them.
OWN_NAMES = ("nomic-bert", "gte")
NTK = 8.0

CLASSIFIERS = {
    "bert-pairs": (BertConfig, BertForSequenceClassification, dict(max_position_embeddings=130, num_labels=1, num_hidden_layers=2), torch.float32, []),
    "gte-pairs": (GteConfig, GteForSequenceClassification, dict(**SMALL, max_position_embeddings=130, type_vocab_size=2, num_labels=1), torch.float16, []),
    "nomic-labels": (NomicBertConfig, NomicBertForSequenceClassification, dict(**SMALL, max_position_embeddings=130, type_vocab_size=1, num_labels=3), torch.float16, []),
    "xlm-roberta-labels": (XLMRobertaConfig, XLMRobertaForSequenceClassification, dict(**ROBERTA, num_labels=3, num_hidden_layers=2), torch.float16, []),
}


# As nomic-bert's first files were published. transformers writes tensors with those names; a file with its own names is made below.
OLD_KEYS = {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "intermediate_size": "n_inner",
            "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon"}


def publish(written):
    written = {OLD_KEYS.get(k, k): v for k, v in written.items() if k not in ("head_dim", "hidden_act", "rope_parameters")}
    written.update(activation_function="swiglu", rotary_emb_base=1000, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_scaling_factor=None, prenorm=False,
                   qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False, use_rms_norm=False, auto_map={"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"})
    return written


def publish_gte(path, written, dtype):
    """As Alibaba's first files are: a prefix, weights of tokens that vectors do not need, and frequencies of rope_scaling ntk."""
    with safe_open(os.path.join(path, "model.safetensors"), "pt") as f:
        tensors = {"new." + k: f.get_tensor(k) for k in f.keys()}
    save_file({**tensors, "classifier.weight": torch.ones(1, SMALL["hidden_size"], dtype=dtype)}, os.path.join(path, "model.safetensors"), {"format": "pt"})
    written = {k: v for k, v in written.items() if k not in ("head_dim", "rope_parameters")}
    written.update(architectures=["NewForTokenClassification"], model_type="new", layer_norm_type="layer_norm", position_embedding_type="rope", rope_theta=1000.0,
                   rope_scaling={"type": "ntk", "factor": NTK}, pack_qkv=True, logn_attention_scale=False, auto_map={"AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"})
    return written


def ntk(model, base):
    """transformers has no such frequencies. As https://kexue.fm/archives/9706 (6) has them, and the code beside the first files."""
    dim = model.config.hidden_size // model.config.num_attention_heads
    model.rotary_emb.inv_freq = 1.0 / ((base * NTK) ** (torch.arange(0, dim, 2).float() / dim)) / NTK ** (2 / dim)


def fill(model, seed):
    """Numbers as large as those of trained models, so that a fault shows: norms beside 1, biases beside 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = torch.randn(p.shape, generator=g)
            if "norm" in name.lower() and name.endswith("weight"):
                p.copy_((not isinstance(model, Gemma3TextModel)) + 0.2 * spread)  # which adds 1 itself
            elif p.dim() == 1:
                p.copy_(0.2 * spread)
            elif "embeddings" in name:
                p.copy_(spread)
            else:
                p.copy_(spread * 1.5 / p.shape[1] ** 0.5)


def prompts_of(seed, vocab, pairs):
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(4, vocab, n).tolist() for n in LENGTHS]
    types = [n // 2 if pairs and i % 2 else None for i, n in enumerate(LENGTHS)]
    return prompts, types


def states_of(model, prompt, second):
    ids = torch.tensor([prompt])
    kinds = torch.zeros_like(ids)
    if second is not None:
        kinds[0, second:] = 1
    with torch.no_grad():
        more = {} if isinstance(model.config, (ModernBertConfig, Gemma3TextConfig)) else dict(token_type_ids=kinds)
        return model(input_ids=ids, attention_mask=torch.ones_like(ids), **more).last_hidden_state[0]


def modules(path, states):
    """The folder as sentence-transformers saves EmbeddingGemma's: the mean, two layers without bias or activation, length 1."""
    chain = [Pooling(GEMMA["hidden_size"], "mean"), *(Dense(a, b, bias=False, activation_function=torch.nn.Identity()) for a, b in GEMMA_DENSE), Normalize()]
    rows = [dict(idx=0, name="0", path="", type="sentence_transformers.models.Transformer")]
    for i, module in enumerate(chain, 1):
        kind = type(module).__name__
        rows.append(dict(idx=i, name=str(i), path="%d_%s" % (i, kind), type="sentence_transformers.models." + kind))
        if isinstance(module, Dense):
            g = torch.Generator().manual_seed(i)
            with torch.no_grad():
                module.linear.weight.copy_((torch.randn(module.linear.weight.shape, generator=g) * 0.2).bfloat16())
            module.bfloat16()
        os.makedirs(os.path.join(path, rows[-1]["path"]), exist_ok=True)
        module.save(os.path.join(path, rows[-1]["path"]))
        module.float()
        if isinstance(module, Dense):
            os.chmod(os.path.join(path, rows[-1]["path"], "model.safetensors"), 0o644)
    with open(os.path.join(path, "modules.json"), "w") as f:
        json.dump(rows, f, indent=1)
        f.write("\n")
    out = []
    for s in states:
        features = dict(token_embeddings=s[None], attention_mask=torch.ones(1, len(s), dtype=torch.long))
        for module in chain:
            features = module(features)
        out.append(features["sentence_embedding"][0])
    with open(os.path.join(path, "embeddings.f32"), "wb") as f:
        f.write(torch.stack(out).detach().numpy().astype("<f4").tobytes())


def make(root, name):
    config_class, model_class, keys, dtype, left_out = MODELS[name]
    path = os.path.join(root, name)
    config = config_class(**{**BASE, **keys})
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    fill(model, 1)
    model.to(dtype).save_pretrained(path)
    os.chmod(os.path.join(path, "model.safetensors"), 0o644)
    model = model_class.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()  # whose frequencies were never rounded
    with open(os.path.join(path, "config.json")) as f:
        written = json.load(f)
    if name == "nomic-bert-old":
        written = publish(written)
    if name == "gte-old":
        written = publish_gte(path, written, dtype)
        ntk(model, 1000.0)
    if name in OWN_NAMES:
        save_file({k: t.to(dtype).contiguous() for k, t in model.named_parameters()}, os.path.join(path, "model.safetensors"), {"format": "pt"})
    for key in left_out:
        written.pop(key, None)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(written, f, indent=1)
        f.write("\n")
    prompts, types = prompts_of(2, config.vocab_size, (getattr(config, "type_vocab_size", 0) or 0) > 1)
    base = getattr(model, model.base_model_prefix, model)
    states = [states_of(base, p, t) for p, t in zip(prompts, types)]
    vectors = torch.stack([torch.stack([s[0], s.mean(0)]) for s in states])
    if name == "embedding-gemma":
        modules(path, states)
    with open(os.path.join(path, "golden.json"), "w") as f:
        json.dump(dict(prompts=prompts, types=types), f)
        f.write("\n")
    with open(os.path.join(path, "vectors.f32"), "wb") as f:
        f.write(vectors.numpy().astype("<f4").tobytes())
    print(name, tuple(vectors.shape), vectors.abs().max().item())


def classify(root, name):
    config_class, model_class, keys, dtype, _ = CLASSIFIERS[name]
    path = os.path.join(root, name)
    model = model_class(config_class(**{**BASE, **keys}))
    fill(model, 1)
    model.to(dtype).save_pretrained(path)
    os.chmod(os.path.join(path, "model.safetensors"), 0o644)
    model = model_class.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    rng = np.random.default_rng(3)
    golden = dict(prompts=[], types=[], scores=[])
    for n, m in ((1, 1), (3, 20), (12, 4), (5, 100)):
        first, second = (rng.integers(4, 30, k).tolist() for k in (n, m))
        ids = torch.tensor([[2, *first, 3, *second, 3]])
        kinds = torch.zeros_like(ids)
        if keys.get("type_vocab_size") != 1:
            kinds[0, n + 2:] = 1
        with torch.no_grad():
            scores = model(input_ids=ids, token_type_ids=kinds, attention_mask=torch.ones_like(ids)).logits[0]
        for key, value in zip(golden, (ids[0].tolist(), n + 2, scores.tolist())):
            golden[key].append(value)
    with open(os.path.join(path, "golden.json"), "w") as f:
        json.dump(golden, f)
        f.write("\n")
    print(name, golden["scores"])
    if name == "bert-pairs":
        rerank(path, model)


def rerank(path, model):
    """rerank.json: ids of a query and of 100 documents, of letters, and the score of each pair. No two scores are near each other."""
    for seed in range(100):
        rng = np.random.default_rng(seed)
        query, *documents = (rng.integers(4, 30, n).tolist() for n in [6, *rng.integers(1, 40, 100)])
        scores = []
        for d in documents:
            ids = torch.tensor([[2, *query, 3, *d, 3]])
            kinds = torch.zeros_like(ids)
            kinds[0, len(query) + 2:] = 1
            with torch.no_grad():
                scores.append(model(input_ids=ids, token_type_ids=kinds, attention_mask=torch.ones_like(ids)).logits[0, 0].item())
        if np.diff(np.sort(scores)).min() > 5e-5:
            break
    with open(os.path.join(path, "rerank.json"), "w") as f:
        json.dump(dict(query=query, documents=documents, scores=scores), f)
        f.write("\n")
    print("rerank", seed, min(scores), max(scores), np.diff(np.sort(scores)).min())


if __name__ == "__main__":
    torch.set_num_threads(1)
    for one in sys.argv[2:] or [*MODELS, *CLASSIFIERS]:
        (make if one in MODELS else classify)(sys.argv[1], one)
