"""Layer C of the fault table: texts, ids and tokenizers made to hurt."""

import json
import os
import random
import re
import time

from d_weights import Model, byte_tokenizer, loads, refuses
from harness import PATIENCE, row

KIB, MIB = 1 << 10, 1 << 20

# What each is a run of. The last one is a word that many merges of a byte-level BPE begin with.
RUNS = {"letters": "a", "digits": "7", "spaces": " ", "newlines": "\n", "CJK": "\u4e2d", "combining marks": "\u0301", "emoji ZWJ": "\U0001F469\u200d", "us": "us "}


def post(s, path, body):
    """The reply, and how long it took."""
    data = json.dumps(body, ensure_ascii=False).encode()
    begin = time.monotonic()
    r = s.post(path, data, timeout=PATIENCE)
    return r, time.monotonic() - begin


def tokens_of(s, text):
    r, seconds = post(s, "/tokenize", {"prompt": text, "add_special_tokens": False})
    assert r.status == 200, r
    return r.json["tokens"], seconds


def text_of(s, ids):
    r, _ = post(s, "/detokenize", {"tokens": ids})
    assert r.status == 200, r
    return r.json["prompt"]


def check_linear(s, what, make, small, times):
    """Tokenizes make(bytes) at two sizes. What is linear takes `times` as long; what is quadratic takes the square of that."""
    short, long = make(small), make(small * times)
    t_short = min(tokens_of(s, short)[1] for _ in range(3))
    t_long = min(tokens_of(s, long)[1] for _ in range(2))
    assert t_long < 4 * times * t_short + 1, "%s: %d bytes take %.3f s, %d times as many %.3f s" % (what, small, t_short, times, t_long)
    assert text_of(s, tokens_of(s, short)[0]) == short, "%s comes back as another text" % what


@row("C1", "10 MB of one class of characters: refused where it cannot fit, tokenized in linear time, and the same text again")
def c1(s):
    for name, c in RUNS.items():
        check_linear(s, name, lambda n, c=c: c * (n // len(c.encode())), 128 * KIB, 8)
        r, _ = post(s, "/v1/completions", {"prompt": c * (10 * MIB // len(c.encode())), "max_tokens": 1})
        assert r.status == 400 and r.error["code"] == "context_length_exceeded", r
    assert s.complete("Hi", max_tokens=1).status == 200


@row("C2", "a word of 1 MB with no boundary: merges cost no square")
def c2(s):
    rng = random.Random(2)
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=MIB))
    check_linear(s, "a word", lambda n: word[:n], 64 * KIB, 16)


@row("C7", "random ids detokenized are valid UTF-8 (DETOKENIZED_IDS=10000000 is the whole row)")
def c7(s):
    total, at_once, rng = int(os.environ.get("DETOKENIZED_IDS", "1000000")), 250000, random.Random(7)
    n_vocab = int(re.search(r"below (\d+)", s.post("/detokenize", {"tokens": [1 << 30]}).error["message"]).group(1))
    for _ in range(0, total, at_once):
        ids = [rng.randrange(n_vocab) for _ in range(at_once)]
        r, _ = post(s, "/detokenize", {"tokens": ids})
        assert r.status == 200, r
        text = json.loads(r.body.decode("utf-8"))["prompt"]
        text.encode("utf-8")  # no half of a pair stands alone
        assert len(text) > at_once
    for wrong in (n_vocab + (1 << 20), -1, 1 << 31, 1 << 32, 1 << 63):
        r, _ = post(s, "/detokenize", {"tokens": [0, wrong]})
        assert r.status == 400 and r.error["param"].startswith("tokens"), (wrong, r)


def with_tokenizer(change):
    """What a start says of a model whose tokenizer.json was changed; it ends with 78."""
    with Model() as m:
        loads(m)
        t = byte_tokenizer()
        change(t)
        with open(os.path.join(m.dir, "tokenizer.json"), "w") as f:
            json.dump(t, f)
        return refuses(m, "tokenizer.json")


@row("C8", "tokenizer.json with ids that occur twice or are too large, merges of what is no token, patterns that are none: exit 78 with the field", own=True)
def c8(_):
    def set_vocab(token, i):
        return lambda t: t["model"]["vocab"].__setitem__(token, i)

    def split_by(pattern):
        return lambda t: t.__setitem__("pre_tokenizer", {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})

    for change, word in (
        (set_vocab("twice", 65), "vocab"),
        (set_vocab("huge", 1 << 40), "vocab"),
        (set_vocab("negative", -1), "vocab"),
        (set_vocab("text", "7"), "vocab"),
        (lambda t: t["model"]["merges"].append("a \u4e2d"), "merges"),
        (lambda t: t["model"]["merges"].append(["a"]), "merges"),
        (split_by("(?<=a)(b"), "pre_tokenizer"),
        (split_by("(a)\\1"), "pre_tokenizer"),
        (lambda t: t["pre_tokenizer"].__setitem__("type", "Nobody"), "pre_tokenizer"),
        (lambda t: t.__setitem__("model", 7), "model"),
    ):
        said = with_tokenizer(change)
        assert word in said, "%r is not in %r" % (word, said)
