#!/usr/bin/env python3
"""Prompts by name before texts of /v1/embeddings, /rerank and /score, against the vectors that sentence-transformers makes of the same folders
(tools/golden/make_prompt_golden.py), and what is refused.

    prompts.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import embeddings
import encoders
import scratch
import world
from embeddings import cosine, embed, floats, refused, write
from tiers import arguments, run_named  # noqa: E402

TESTS, test = world.tests()


def golden(name):
    with open(os.path.join(encoders.GOLDEN, name, "prompts.json")) as f:
        return json.load(f)


def with_prompts(folder, prompts, default, include=True):
    """The folder as sentence-transformers saves it with prompts."""
    write(folder, "config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": default})
    with open(os.path.join(folder, "1_Pooling", "config.json")) as f:
        write(folder, "1_Pooling/config.json", {**json.load(f), "include_prompt": include})
    return folder


class World(encoders.World):
    """Servers of both kinds of model; a decoder's is that of embeddings.py."""

    def __init__(self):
        super().__init__()
        self.decoders = embeddings.World()

    def start(self, name, g, pooling, include, *args):
        make = self.encoder if name == "bert" else lambda _, p: self.decoders.embedder(p, normalize=False)
        return self.server("--model", with_prompts(make(name, pooling), g["prompts"], g["default"], include), "--dtype", "float32",
                           "--max-model-len", "130", *args)

    def close(self):
        self.decoders.close()
        super().close()


def close_to(got, want):
    return max(abs(a - b) for a, b in zip(got, want)) <= 2e-4 and (not any(want) and not any(got) or cosine(got, want) >= 0.99999)


def vectors_of(w, name, *args):
    """The vectors of a golden folder's texts, however their prompt is asked for."""
    g = golden(name)
    kinds = sorted({(c["pooling"], c["include"]) for c in g["cases"]})
    for pooling, include in kinds:
        s = w.start(name, g, pooling, include, *args)
        for c in (c for c in g["cases"] if (c["pooling"], c["include"]) == (pooling, include)):
            asked = {"encode_document": "document"}.get(c["asked"], c["asked"])
            r = s.post("/v1/embeddings", {"input": g["texts"], **({"prompt_name": asked} if asked else {})})
            assert r.status == 200 and r.json["usage"]["prompt_tokens"] == sum(c["tokens"]), (c["asked"], r)
            for i, (d, want) in enumerate(zip(r.json["data"], c["vectors"])):
                assert close_to(d["embedding"], want), (pooling, include, c["asked"], i, d["embedding"], want)
            few = embed(s, g["texts"][1], **({"prompt_name": asked} if asked else {}))
            assert floats(few[0])[:3] == floats(embed(s, g["texts"], **({"prompt_name": asked} if asked else {}))[1])[:3], "alone and together"
        yield s, g, pooling, include
        s.stop()


@test
def an_encoder_gives_the_vectors_of_sentence_transformers_with_each_prompt(w):
    for s, g, pooling, include in vectors_of(w, "bert"):
        card = s.get("/v1/models").json["data"][0]
        assert card["prompts"] == list(g["prompts"]) and card["default_prompt_name"] == g["default"], card


@test
def a_decoder_does_so_in_chunks_too(w):
    for args in ((), ("--prefill-chunk", "7")):
        for _ in vectors_of(w, "qwen3", *args):
            pass


@test
def a_query_and_documents_get_theirs(w):
    g = golden("bert")
    s = w.start("bert", g, "mean_tokens", False)
    of = {n: {c["asked"]: c["vectors"] for c in g["cases"] if (c["pooling"], c["include"]) == ("mean_tokens", False)}[n]
          for n in (None, "query", "encode_document")}
    want = [cosine(of["query"][1], d) for d in of["encode_document"]]
    r = s.post("/rerank", {"query": g["texts"][1], "documents": g["texts"]}).json
    got = {x["index"]: x["relevance_score"] for x in r["results"]}
    assert all(abs(got[i] - x) < 1e-4 for i, x in enumerate(want)) and r["results"][0]["document"]["text"] in g["texts"], (got, want)
    pairs = lambda a, b, **more: [x["score"] for x in s.post("/score", {a: g["texts"][1], b: g["texts"], **more}).json["data"]]
    assert all(abs(a - b) < 1e-4 for a, b in zip(pairs("queries", "documents"), want)), (pairs("queries", "documents"), want)
    same = [cosine(of[None][1], d) for d in of[None]]  # texts that are neither have the default
    assert all(abs(a - b) < 1e-4 for a, b in zip(pairs("text_1", "text_2"), same)), (pairs("text_1", "text_2"), same)
    assert all(abs(a - b) < 1e-6 for a, b in zip(pairs("queries", "documents", prompt_name=g["default"]), same)), "a name is for both sides"


@test
def what_a_prompt_is_not_for_is_refused(w):
    g = golden("bert")
    s = w.start("bert", g, "mean_tokens", True)
    refused(s.post("/v1/embeddings", {"input": "a", "prompt_name": "Query"}), 400, "'Query', which is no prompt of this model; allowed are 'query', 'document'",
            "prompt_name")
    refused(s.post("/rerank", {"query": "a", "documents": ["b"], "prompt_name": "corpus"}), 400, "'look'", "prompt_name")
    refused(s.post("/v1/embeddings", {"input": [2, 5, 3], "prompt_name": "query"}), 400, "token ids", "prompt_name")
    refused(s.post("/v1/embeddings", {"input": "a", "prompt_name": 5}), 400, "string", "prompt_name")
    plain = w.server("--model", w.encoder("bert", "mean_tokens"), "--dtype", "float32", "--max-model-len", "130")
    refused(plain.post("/v1/embeddings", {"input": "a", "prompt_name": "query"}), 400, "no prompts", "prompt_name")
    ids = [2, *(encoders.PIECES.index(x) for x in ("sea", "##side")), 3]
    assert embed(s, ids) == embed(plain, "seaside"), "ids are as they are sent"
    assert embed(s, "seaside", prompt_name="none") == embed(plain, "seaside")
    assert embed(s, "seaside", prompt_name=None) == embed(plain, "look at seaside")
    cut = s.post("/v1/embeddings", {"input": "a b c d e f", "truncate_prompt_tokens": 11, "truncation_side": "left", "encoding_format": "base64"}).json
    assert cut["data"] == plain.post("/v1/embeddings", {"input": "look at d e f", "encoding_format": "base64"}).json["data"], cut
    refused(s.post("/v1/embeddings", {"input": "a b c", "truncate_prompt_tokens": 8}), 400, "and the prompt", "truncate_prompt_tokens")


@test
def a_batch_and_an_invocation_take_a_name(w):
    g = golden("bert")
    folder = with_prompts(w.encoder("bert", "mean_tokens"), g["prompts"], g["default"])
    args = ["--model", folder, "--dtype", "float32", "--max-model-len", "130"]
    s = w.server(*args)
    body = {"input": "seaside", "prompt_name": "query"}
    want = s.post("/v1/embeddings", body).json["data"]
    assert s.post("/invocations", body).json["data"] == want
    lines, out = os.path.join(w.folder, "in.jsonl"), os.path.join(w.folder, "out.jsonl")
    with open(lines, "w") as f:
        f.write(json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": body}) + "\n")
    p = subprocess.run([os.environ["SPILLWAY"], "batch", "--input", lines, "--output", out, *encoders.BASE, *args], capture_output=True, timeout=180)
    with open(out) as f:
        assert json.loads(f.readline())["response"]["body"]["data"] == want, p.stderr


@test
def a_folder_whose_prompts_are_none_ends_the_start(w):
    for file, word in (({"prompts": ["a"]}, "prompts is no object"), ({"prompts": {"query": 5}}, "prompts['query'] is no string"),
                       ({"prompts": {"q": "a"}, "default_prompt_name": "r"}, "default_prompt_name is 'r', allowed are the names of prompts: 'q'")):
        folder = w.encoder("bert", "mean_tokens")
        write(folder, "config_sentence_transformers.json", file)
        s = w.server("--model", folder, wait=False)
        assert s.proc.wait(180) == 78 and word in s.tail(), (s.proc.returncode, s.tail())


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
