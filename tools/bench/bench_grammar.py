#!/usr/bin/env python3
"""Masks of grammars beside other engines: the same schemas, texts and vocabulary for bench_grammar and for the Python packages
llguidance and xgrammar, where they are installed.

    bench_grammar.py --tokens TEKKEN.json [--program build/release/tools/bench_grammar] [--schemas 300] [--json FILE]

TEKKEN.json is a vocabulary as the package mistral-common carries it (mistral_common/data/tekken_*.json, 131,072 tokens). Schemas come
from the generator of tests/e2e/structured.py; each has texts that it allows and texts that it forbids (both by jsonschema). Every
engine walks the allowed texts token by token. Times are the thread's own on its core; those of the packages hold one call from Python
each, about half a microsecond."""

import argparse
import base64
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))

SAMPLES = {
    "^[a-z]{2,5}$": ["ab", "hello"], "^(ab|cd)+$": ["ab", "cdabcd"], "^\\d{3}-\\d{2}$": ["123-45"], "^[^\"\\\\]{1,8}$": ["a b", "größe"],
    "^.{3}$": ["abc", "x z"], "date": ["2024-02-29", "1999-12-31"], "date-time": ["2024-01-02T03:04:05Z"], "time": ["03:04:05Z"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "ipv4": ["192.168.0.1"], "email": ["a.b@example.com"], "duration": ["P1DT2H", "P3W"],
}
WORDS = "the quick brown fox jumps over a lazy dog and größe matters, says Ann".split()


def instance(r, s):
    """A value that the schema allows, of the generator's keywords."""
    if s is True or s == {}:
        return r.choice([1, "a", None])
    if "const" in s:
        return s["const"]
    if "enum" in s:
        return r.choice(s["enum"])
    if "anyOf" in s:
        return instance(r, r.choice(s["anyOf"]))
    t = s["type"]
    if t == "string":
        if "pattern" in s or "format" in s:
            return r.choice(SAMPLES[s.get("pattern") or s["format"]])
        text = " ".join(r.choice(WORDS) for _ in range(6))
        return text[: r.randint(s.get("minLength", 0), s.get("maxLength", 30))].ljust(s.get("minLength", 0), "x")
    if t in ("integer", "number"):
        lo = s.get("minimum", s.get("exclusiveMinimum", s.get("maximum", s.get("exclusiveMaximum", 50)) - 40) )
        hi = s.get("maximum", s.get("exclusiveMaximum", lo + 40))
        lo, hi = lo + ("exclusiveMinimum" in s), hi - ("exclusiveMaximum" in s)
        v = r.randint(lo, max(lo, hi))
        return v + 0.5 if t == "number" and v < hi else v
    if t == "array":
        n = r.randint(s.get("minItems", 0), s.get("maxItems", 3))
        parts = s.get("prefixItems", [])
        return [instance(r, parts[i] if i < len(parts) else s["items"]) for i in range(n)]
    if t == "object":
        return {k: instance(r, v) for k, v in s["properties"].items() if k in s["required"] or r.random() < 0.7}
    return {"boolean": True, "null": None}[t]


def damaged(r, v):
    """A value near v that the schema may forbid."""
    if isinstance(v, dict) and v and r.random() < 0.7:
        k = r.choice(list(v))
        return {**v, k: damaged(r, v[k])} if r.random() < 0.6 else {x: y for x, y in v.items() if x != k}
    if isinstance(v, list) and v and r.random() < 0.7:
        i = r.randrange(len(v))
        return v[:i] + [damaged(r, v[i])] + v[i + 1:] if r.random() < 0.6 else v + [v[i]] * 4
    if isinstance(v, str):
        return r.choice([v + "xyzxyzxyzxyz", 7, ""])
    return r.choice(["a", -99999, None, 1e6, [v]])


class Vocabulary:
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            d = json.load(f)
        special = d["config"]["default_num_special_tokens"]
        n = d["config"]["default_vocab_size"]
        self.tokens = [b""] * special + [base64.b64decode(t["token_bytes"]) for t in d["vocab"][: n - special]]
        self.eos = 2
        self.unused = 100  # special tokens from here on stand for markers
        self.id = {}
        for i, t in enumerate(self.tokens):
            self.id.setdefault(t, i)
        self.longest = max(map(len, self.tokens))

    def encode(self, text):
        """The longest token at each place."""
        b, out = text.encode(), []
        while b:
            n = next(n for n in range(min(self.longest, len(b)), 0, -1) if b[:n] in self.id)
            out.append(self.id[b[:n]])
            b = b[n:]
        return out


def cases(n, vocabulary):
    import jsonschema
    from structured import schema
    out, seed = [], 0
    while len(out) < n:
        r = random.Random(seed)
        seed += 1
        s = schema(r, 3)
        if s.get("type") not in ("object", "array"):
            continue
        check = jsonschema.Draft202012Validator(s)
        good = [v for v in (instance(r, s) for _ in range(6)) if check.is_valid(v)][:3]
        bad = [v for v in (damaged(r, g) for g in good for _ in range(4)) if not check.is_valid(v)][:4]
        if good:
            spell = lambda v: vocabulary.encode(json.dumps(v, ensure_ascii=False))  # noqa: E731
            out.append({"schema": s, "texts": [spell(v) for v in good], "wrong": [spell(v) for v in bad]})
    return out


def spelled(v):
    return json.dumps(v, ensure_ascii=False)


# Of each notation: how it writes a call of "f" with these arguments, and which of its markers are tokens.
CALLS = {
    "hermes": (lambda v: 'Let me see.\n<tool_call>\n{"name": "f", "arguments": %s}\n</tool_call>' % spelled(v), ["<tool_call>", "</tool_call>"]),
    "llama_json": (lambda v: 'Let me see.\n{"name": "f", "parameters": %s}' % spelled(v), []),
    "pythonic": (lambda v: "[f(%s)]" % ", ".join("%s=%s" % (k, spelled(x)) for k, x in v.items()), []),
    "harmony": (lambda v: "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
                "<|constrain|>json<|message|>%s<|call|>" % spelled(v),
                ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"]),
    "qwen_xml": (lambda v: "Let me see.\n<tool_call>\n<function=f>\n%s</function>\n</tool_call>" % "".join(
        "<parameter=%s>\n%s\n</parameter>\n" % (k, x if isinstance(x, str) else spelled(x)) for k, x in v.items()),
        ["<tool_call>", "</tool_call>"]),
}


def cases_of_calls(row, work, vocabulary):
    """The same schemas as those of a strict tool that the model may call, behind free text."""
    write, markers = CALLS[row]
    marks = {m: vocabulary.unused + i for i, m in enumerate(markers)}
    out = []
    for c in work:
        if c["schema"]["type"] != "object":
            continue
        texts = []
        for ids in c["texts"]:
            text, parts = write(json.loads(b"".join(vocabulary.tokens[i] for i in ids))), []
            for part in re.split("(%s)" % "|".join(map(re.escape, markers)), text) if markers else [text]:
                parts += [marks[part]] if part in marks else vocabulary.encode(part)
            texts.append(parts)
        out.append({"schema": c["schema"], "row": row, "marks": marks, "texts": texts})
    return out


def run_own(program, vocabulary, work):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as f:
        f.write(json.dumps({"tokens": [t.hex() for t in vocabulary.tokens]}) + "\n")
        for c in work:
            f.write(json.dumps(c) + "\n")
    try:
        return [json.loads(x) for x in subprocess.run([program, f.name], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()]
    finally:
        os.unlink(f.name)


def walk(case, make, mask, accept, ended):
    """One schema in a package: the same loop as bench_grammar.c."""
    clock = time.thread_time
    begin = clock()
    try:
        new = make(case["schema"])
    except Exception as e:  # noqa: BLE001 - whatever the package says
        return {"error": str(e)[:200]}
    row = {"compile_us": (clock() - begin) * 1e6, "mask_us": [], "accept_us": [], "refused": 0, "taken": 0}
    for i, text in enumerate(case["texts"]):
        m, good = new(), True
        for k, token in enumerate(text):
            begin = clock()
            mask(m)
            us = (clock() - begin) * 1e6
            if i == 0 and k == 0:
                row["first_us"] = us
            else:
                row["mask_us"].append(us)
            begin = clock()
            good = accept(m, token)
            row["accept_us"].append((clock() - begin) * 1e6)
            if not good:
                break
        row["refused"] += not (good and ended(m))
    for text in case["wrong"]:
        m = new()
        row["taken"] += all(accept(m, t) for t in text) and ended(m)
    return row


def llguidance_rows(vocabulary, work):
    import llguidance
    import llguidance.numpy

    class Wrapped:
        eos_token_id = vocabulary.eos
        bos_token_id = None
        tokens = [t or b"\xff<special %d>" % i for i, t in enumerate(vocabulary.tokens)]
        special_token_ids = [i for i, t in enumerate(vocabulary.tokens) if not t]

        def __call__(self, text):
            return vocabulary.encode(text if isinstance(text, str) else text.decode())

    tok = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))
    bits = llguidance.numpy.allocate_token_bitmask(1, tok.vocab_size)

    def make(schema):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        first = llguidance.LLMatcher(tok, grammar, log_level=0)
        if first.get_error():
            raise ValueError(first.get_error())
        return lambda: first.deep_copy()

    return [walk(c, make, lambda m: llguidance.numpy.fill_next_token_bitmask(m, bits, 0), lambda m, t: m.consume_token(t),
                 lambda m: m.is_accepting()) for c in work]


def xgrammar_rows(vocabulary, work):
    import xgrammar
    info = xgrammar.TokenizerInfo([t or b"<special>" for t in vocabulary.tokens], vocab_type=xgrammar.VocabType.RAW,
                                  vocab_size=len(vocabulary.tokens), stop_token_ids=[vocabulary.eos])
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, len(vocabulary.tokens))

    def make(schema):
        g = compiler.compile_json_schema(json.dumps(schema))
        return lambda: xgrammar.GrammarMatcher(g)

    return [walk(c, make, lambda m: m.fill_next_token_bitmask(bits, 0), lambda m, t: m.accept_token(t),
                 lambda m: m.accept_token(vocabulary.eos)) for c in work]


def at(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def report(name, rows):
    good = [r for r in rows if "error" not in r]
    mask = [x for r in good for x in r["mask_us"]]
    both = [r["compile_us"] + r["first_us"] for r in good if "first_us" in r]
    step = [x for r in good for x in r["accept_us"]]
    print("| %s | %.1f / %.0f / %.0f / %.0f | %.2f / %.1f | %.2f | %d | %d | %d |" % (
        name, at(mask, 0.5), at(mask, 0.99), at(mask, 0.999), max(mask), at(both, 0.5) / 1e3, at(both, 0.99) / 1e3, at(step, 0.5),
        len(rows) - len(good), sum(r["refused"] for r in good), sum(r["taken"] for r in good)))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--program", default=os.path.join(ROOT, "build", "release", "tools", "bench_grammar"))
    ap.add_argument("--schemas", type=int, default=300)
    ap.add_argument("--calls", choices=sorted(CALLS), help="calls of a strict tool in this notation, by this engine alone")
    ap.add_argument("--json")
    a = ap.parse_args()
    vocabulary = Vocabulary(a.tokens)
    work = cases(a.schemas, vocabulary)
    work = cases_of_calls(a.calls, work, vocabulary) if a.calls else work
    print("%d schemas, %d allowed texts, %d forbidden ones, %d tokens of text, %d of vocabulary" % (
        len(work), sum(len(c["texts"]) for c in work), sum(len(c.get("wrong", [])) for c in work), sum(len(t) for c in work for t in c["texts"]),
        len(vocabulary.tokens)))
    print("| engine | mask us p50 / p99 / p99.9 / max | compile + first mask ms p50 / p99 | step us p50 | schemas refused | "
          "allowed texts refused | forbidden texts taken |\n|---|---|---|---|---|---|---|")
    all_rows = {"spillway": run_own(a.program, vocabulary, work)}
    report("spillway", all_rows["spillway"])
    for name, run in (() if a.calls else (("llguidance", llguidance_rows), ("xgrammar", xgrammar_rows))):
        try:
            all_rows[name] = run(vocabulary, work)
        except ImportError as e:
            print("| %s | not installed: %s |" % (name, e))
            continue
        report(name, all_rows[name])
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"cases": work, "rows": all_rows}, f)


if __name__ == "__main__":
    main()
