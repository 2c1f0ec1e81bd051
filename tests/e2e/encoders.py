#!/usr/bin/env python3
"""Encoders behind /v1/embeddings: BERT and XLM-RoBERTa against the vectors of transformers, texts through WordPiece with the tokens that
the post-processor adds, the same bits in any company, and what an encoder refuses.

    encoders.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import json
import math
import os
import shutil
import string
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from embeddings import cosine, embed, floats, refused, with_dense, write  # noqa: E402
from tiers import arguments, metric, run_named, settle  # noqa: E402

GOLDEN = os.path.join(ROOT, "tests", "data", "golden")
DIM = 48
CLS, SEP, UNKNOWN = 2, 3, 1
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *string.ascii_lowercase, *("##" + c for c in string.ascii_lowercase), "sea", "##side"]
BASE = ["--device", "cpu", "--threads", "2"]
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def word_piece():
    vocab = {p: i for i, p in enumerate(PIECES)}
    added = [{"id": vocab[t], "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for t in PIECES[:4]]
    special = {t: {"id": t, "ids": [vocab[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")}
    one = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    two = one + [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": one, "pair": two, "special_tokens": special},
            "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocab}}


class World:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="spillway-encoders-")
        self.running = []

    def server(self, *args, wait=True):
        from harness import Server

        self.running.append(Server(*BASE, *args, wait=wait))
        return self.running[-1]

    def encoder(self, name, pooling=None, **config):
        """The golden checkpoint with a tokenizer; with pooling: as sentence-transformers would have saved it, without Normalize."""
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), name)
        shutil.copytree(os.path.join(GOLDEN, name), folder)
        write(folder, "tokenizer.json", word_piece())
        write(folder, "tokenizer_config.json", {"cls_token": "[CLS]", "sep_token": "[SEP]"})
        with open(os.path.join(folder, "config.json")) as f:
            write(folder, "config.json", {**json.load(f), **config})
        if pooling:
            kinds = [("", "Transformer"), ("1_Pooling", "Pooling")]
            write(folder, "modules.json", [{"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
                                           for i, (path, kind) in enumerate(kinds)])
            os.mkdir(os.path.join(folder, "1_Pooling"))
            write(folder, "1_Pooling/config.json", {"word_embedding_dimension": DIM, "pooling_mode_" + pooling: True})
        return folder

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def golden(name):
    with open(os.path.join(GOLDEN, name, "golden.json")) as f:
        g = json.load(f)
    with open(os.path.join(GOLDEN, name, "vectors.f32"), "rb") as f:
        v = floats(f.read())
    return [(i, p) for i, (p, t) in enumerate(zip(g["prompts"], g["types"])) if t is None], v


@test
def a_folder_gives_the_vectors_of_transformers(w):
    for name in ("bert", "xlm-roberta", "modernbert", "nomic-bert"):
        texts, vectors = golden(name)
        for kind, pooling in enumerate(("cls_token", "mean_tokens")):
            s = w.server("--model", w.encoder(name, pooling), "--dtype", "float32", "--tensor-parallel-size", str(1 + kind))
            for (i, _), got in zip(texts, embed(s, [p for _, p in texts])):
                want = vectors[(2 * i + kind) * DIM:(2 * i + kind + 1) * DIM]
                assert cosine(floats(got), want) >= 0.9999, (name, pooling, i)
                assert max(abs(a - b) for a, b in zip(floats(got), want)) <= 1e-4, (name, pooling, i)
            s.stop()


@test
def a_dense_module_follows_the_first_token(w):
    """The form of LaBSE: the first token, Dense with Tanh, Normalize."""
    texts, vectors = golden("bert")
    folder = w.encoder("bert", "cls_token")
    through = with_dense(folder, (DIM, 32, "activation.Tanh", True, False))
    s = w.server("--model", folder, "--dtype", "float32")
    for (i, _), v in zip(texts, embed(s, [p for _, p in texts])):
        want = through(vectors[2 * i * DIM:(2 * i + 1) * DIM])
        assert len(v) == 4 * 32 and max(abs(a - b) for a, b in zip(floats(v), want)) < 1e-5, (i, floats(v), want)


@test
def embedding_gemma_gives_the_vectors_of_sentence_transformers(w):
    """The mean of tokens that look both ways, two Dense modules, Normalize: the folder as it is saved."""
    texts, _ = golden("embedding-gemma")
    with open(os.path.join(GOLDEN, "embedding-gemma", "embeddings.f32"), "rb") as f:
        vectors = floats(f.read())
    dim = len(vectors) // len(texts)
    s = w.server("--model", w.encoder("embedding-gemma"), "--dtype", "float32", "--matryoshka")
    got = [floats(v) for v in embed(s, [p for _, p in texts])]
    for i, v in enumerate(got):
        assert len(v) == dim and cosine(v, vectors[i * dim:(i + 1) * dim]) >= 0.9999, (i, v)
    short = s.post("/v1/embeddings", {"input": texts[1][1], "dimensions": 8}).json["data"][0]["embedding"]
    assert len(short) == 8 and cosine(short, got[1][:8]) >= 0.9999 and abs(sum(x * x for x in short) - 1) < 1e-5, short
    assert s.get("/v1/models").json["data"][0]["task"] == "embed"


@test
def a_text_gets_the_tokens_of_its_post_processor(w):
    s = w.server("--model", w.encoder("bert"))  # no modules.json: an encoder all the same, its first token, of length 1
    ids = [CLS, PIECES.index("sea"), PIECES.index("##side"), PIECES.index("a"), PIECES.index("##b"), UNKNOWN, SEP]
    assert embed(s, "Seaside  AB !") == embed(s, ids)
    assert abs(sum(x * x for x in floats(embed(s, ids)[0])) - 1) < 1e-5
    assert s.post("/v1/embeddings", {"input": "seaside"}).json["usage"]["prompt_tokens"] == 4
    assert s.post("/v1/embeddings", {"input": ""}).status in (200, 400)
    assert s.get("/v1/models").json["data"][0]["task"] == "embed"
    r = s.post("/rerank", {"query": "sea", "documents": ["a b", "sea", "side"]})
    assert r.status == 200 and r.json["results"][0]["index"] == 1, r


@test
def a_text_has_the_same_bits_in_any_company(w):
    s = w.server("--model", w.encoder("bert", "mean_tokens"), "--max-num-batched-tokens", "130", "--max-num-seqs", "9")
    texts = [[4 + (i * 7 + k * 3) % 300 for k in range(1 + i * 29 % 130)] for i in range(60)]
    one = [embed(s, t)[0] for t in texts]
    assert embed(s, texts) == one, "alone and among 60"
    got, errors = [], []

    def work(i):
        try:
            got.append(embed(s, texts[i::6] + [texts[7]]) == one[i::6] + [one[7]])
        except Exception as e:
            errors.append(repr(e))

    threads = [threading.Thread(target=work, args=(i % 6,)) for i in range(18)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and got == [True] * 18, (errors, got)
    settle(s, "nobody", lambda: metric(s, "vllm:num_requests_running") == 0 and metric(s, "vllm:kv_cache_usage_perc") == 0)


@test
def a_text_that_is_too_long_or_empty_costs_that_request_alone(w):
    s = w.server("--model", w.encoder("bert"))
    want = embed(s, [[5] * 130])
    refused(s.post("/v1/embeddings", {"input": [5] * 131}), 400, "130 tokens")
    refused(s.post("/v1/embeddings", {"input": [[5], [5] * 100000]}), 400, "130 tokens")
    refused(s.post("/v1/embeddings", {"input": "a " * 200}), 400, "truncate_prompt_tokens", "input")
    refused(s.post("/v1/embeddings", {"input": []}), 400, "input", "input")
    refused(s.post("/v1/embeddings", {"input": [[]]}), 400, "input", "input")
    refused(s.post("/v1/embeddings", {"input": [320]}), 400, "320")
    assert s.post("/v1/embeddings", {"input": "a " * 200, "truncate_prompt_tokens": -1}).json["usage"]["prompt_tokens"] == 130
    small = w.server("--model", w.encoder("bert"), "--max-num-batched-tokens", "40")  # a step has fewer rows than the model positions
    refused(small.post("/v1/embeddings", {"input": [5] * 41}), 400, "40 tokens")
    assert len(embed(small, [[5] * 40] * 3)) == 3
    assert embed(s, [[5] * 130]) == want


def pair_of(prompt, second):
    """The two texts of [CLS] letters [SEP] letters [SEP], as words of a letter."""
    return " ".join(PIECES[i] for i in prompt[1:second - 1]), " ".join(PIECES[i] for i in prompt[second:-1])


def scores_of(name):
    with open(os.path.join(GOLDEN, name, "golden.json")) as f:
        return json.load(f)


@test
def a_cross_encoder_scores_pairs_as_transformers_does(w):
    for name, ranks in (("bert-pairs", "1"), ("bert-pairs", "2"), ("gte-pairs", "1")):
        g = scores_of(name)
        pairs = [pair_of(p, t) for p, t in zip(g["prompts"], g["types"])]
        s = w.server("--model", w.encoder(name), "--dtype", "float32", "--tensor-parallel-size", ranks)
        r = s.post("/score", {"queries": [q for q, _ in pairs], "documents": [d for _, d in pairs], "use_activation": False})
        assert r.status == 200 and r.json["usage"]["prompt_tokens"] == sum(map(len, g["prompts"])), r
        for got, want in zip(r.json["data"], g["scores"]):
            assert abs(got["score"] - want[0]) <= 1e-4, (got, want)
        q, d = pairs[1]
        alone = s.post("/score", {"text_1": q, "text_2": d}).json["data"][0]["score"]
        assert abs(alone - 1 / (1 + math.exp(-g["scores"][1][0]))) <= 1e-5, alone
        r = s.post("/rerank", {"query": q, "documents": [d] + [x for _, x in pairs]})
        ranked = {x["index"]: x["relevance_score"] for x in r.json["results"]}
        assert ranked[0] == ranked[2] == alone, (ranked, alone)
        swapped = s.post("/score", {"text_1": d, "text_2": q}).json["data"][0]["score"]
        assert swapped != alone, "the order of a pair says nothing"
        refused(s.post("/v1/embeddings", {"input": "a"}), 400, "/score")
        refused(s.post("/score", {"text_1": "a " * 100, "text_2": "b " * 100}), 400, "130 tokens")
        s.stop()


@test
def a_hundred_documents_are_ranked_as_by_transformers(w):
    with open(os.path.join(GOLDEN, "bert-pairs", "rerank.json")) as f:
        g = json.load(f)
    query, *documents = (" ".join(PIECES[i] for i in ids) for ids in [g["query"], *g["documents"]])
    s = w.server("--model", w.encoder("bert-pairs"), "--dtype", "float32")
    r = s.post("/v1/rerank", {"query": query, "documents": documents})
    assert r.status == 200, r
    want = sorted(range(len(documents)), key=lambda i: -g["scores"][i])
    assert len(want) == 100 and [x["index"] for x in r.json["results"]] == want, (want, r)
    for x in r.json["results"]:
        assert abs(x["relevance_score"] - 1 / (1 + math.exp(-g["scores"][x["index"]]))) <= 1e-5, x
    few = s.post("/v2/rerank", {"query": query, "documents": documents, "top_n": 7}).json["results"]
    assert few == r.json["results"][:7], few


@test
def an_encoder_classifies_as_transformers_does(w):
    for name in ("xlm-roberta-labels", "nomic-labels"):
        g = scores_of(name)
        s = w.server("--model", w.encoder(name), "--dtype", "float32")
        r = s.post("/classify", {"input": g["prompts"], "use_activation": False})
        assert r.status == 200, r
        for got, want in zip(r.json["data"], g["scores"]):
            assert got["num_classes"] == 3 and got["label"] == "LABEL_%d" % want.index(max(want)), got
            assert all(abs(a - b) <= 1e-4 for a, b in zip(got["probs"], want)), (got, want)
        one = [s.post("/classify", {"input": p}).json["data"][0]["probs"] for p in g["prompts"]]
        assert [d["probs"] for d in s.post("/classify", {"input": g["prompts"]}).json["data"]] == one, "alone and together"
        assert all(abs(sum(p) - 1) < 1e-6 for p in one)
        refused(s.post("/score", {"text_1": "a", "text_2": "b"}), 400, "/classify")
        s.stop()


@test
def an_encoder_does_not_generate_and_says_so(w):
    folder = w.encoder("bert")
    s = w.server("--model", folder)
    for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}), ("/v1/completions", {"prompt": "Hi"}),
                       ("/v1/responses", {"input": "Hi"})):
        r = s.post(path, body)
        assert r.status == 400 and "/v1/embeddings" in json.dumps(r.json), (path, r)
    for args, word in ((["--task", "generate"], "encoder"), (["--kv-host-gib", "1"], "--kv-host-gib"), (["--kv-cache-bytes", "1GiB"], "--kv-cache-bytes")):
        s = w.server("--model", folder, *args, wait=False)
        assert s.proc.wait(180) == 78 and word in s.tail() and "BertModel" in s.tail(), (args, s.proc.returncode, s.tail())
    other = w.encoder("bert", is_decoder=True)
    s = w.server("--model", other, wait=False)
    assert s.proc.wait(180) == 78 and "is_decoder" in s.tail(), s.tail()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
