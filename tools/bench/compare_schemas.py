#!/usr/bin/env python3
"""Which documents the grammars of JSON schemas accept, beside the Python packages llguidance and xgrammar, where they are installed.

    compare_schemas.py [--preset check] [--random 300] [--list FILE]

Schemas: the groups of the JSON Schema Test Suite (draft 2020-12, tests/e2e/schema_suite.py fetches it), whose documents the suite
judges, and random ones of any keywords (schema_suite.py) and of the usual ones (structured.py), whose documents are walks through the
grammar, values near them, and values of a list, judged by jsonschema and its formats. All keywords are enforced or refused, objects are
closed where the random schema says so (`additionalProperties` is put where it is missing), and members come in the schema's order. A
valid document that is refused counts as one of another type if no schema would allow it that had the type that its keywords are about.
FILE takes every document that an engine judges wrongly, a line of JSON each."""

import argparse
import collections
import json
import os
import random
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tests", "fault"), os.path.dirname(os.path.abspath(__file__))]

import schema_suite  # noqa: E402
import structured  # noqa: E402
from bench_grammar import damaged  # noqa: E402

VALUES = [None, True, False, 0, 1, -3, 2, 6, 7, 2.5, 0.5, 10, 12.5, 1000, "", "a", "b", "ab", "xyy", "größe", "a1", "ab cd", [], [1], ["a", 1], [None],
          {}, {"a": 1}, {"a": "a"}, {"b": 2}, {"a": 1, "b": 1}, {"x1": "a", "größe": 3}, {"a": [1]}, "2024-02-29", "a@b.de", "::1", "http://a.b/c"]


ABOUT = {"string": "minLength maxLength pattern format", "array": "items prefixItems minItems maxItems uniqueItems contains",
         "number": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
         "object": "properties required additionalProperties patternProperties propertyNames minProperties maxProperties dependentRequired dependentSchemas"}


def each(s, change):
    """A schema with a change to each schema in it."""
    if isinstance(s, list):
        return [each(x, change) for x in s]
    if not isinstance(s, dict):
        return s
    s = {k: {n: each(v, change) for n, v in x.items()} if k in ("properties", "patternProperties", "$defs", "dependentSchemas") and isinstance(x, dict)
         else x if k in ("enum", "const", "default", "examples") else each(x, change) for k, x in s.items()}
    return change(s)


def opened(s):
    return {**s, "additionalProperties": True} if "properties" in s and "additionalProperties" not in s else s


def typed(s):
    types = [t for t, keys in ABOUT.items() if set(keys.split()) & set(s)]
    return {**s, "type": types} if types and not {"type", "const", "enum"} & set(s) else s


def suite_cases():
    for name, group in schema_suite.groups():
        if not name.startswith(("format ", "vocabulary ", "refRemote ")):  # annotations, and other documents
            order = schema_suite.names_of(group["schema"], {})
            yield name, group["schema"], [(schema_suite.spell(t["data"], order), t["valid"]) for t in group["tests"]]


def random_cases(n, own):
    for seed in range(n):
        r = random.Random(seed)
        s = each(structured.schema(r, 3) if seed % 3 == 0 else schema_suite.any_keyword(r, 2), opened)
        check = schema_suite.validator(s)
        walks = own.ask(s, walks=8, seed=seed).get("walks", [])
        values = [damaged(r, json.loads(t)) for t in walks] + r.sample(VALUES, 12)
        yield "random %d" % seed, s, [(t, check.is_valid(json.loads(t))) for t in walks + [json.dumps(v, ensure_ascii=False) for v in values]]


def followed(texts, new, step, ended):
    """Of each text: is it one of the grammar?"""
    at = [(new(), t.encode()) for t in texts]
    return [all(step(m, b) for b in t) and ended(m) for m, t in at]


class LlGuidance:
    def __init__(self):
        import llguidance
        self.api = llguidance
        class Bytes:
            eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
            tokens = [bytes([i]) for i in range(256)] + [b"<eos>"]

            def __call__(self, text):
                return list(text if isinstance(text, bytes) else text.encode())

        self.tok = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()))

    def judge(self, schema, texts):
        first = self.api.LLMatcher(self.tok, self.api.LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        if first.get_error():
            return None
        return followed(texts, first.deep_copy, lambda m, b: m.consume_token(b), lambda m: m.is_accepting())


class XGrammar:
    def __init__(self):
        import xgrammar
        self.api = xgrammar
        info = xgrammar.TokenizerInfo([bytes([i]) for i in range(256)] + [b"<eos>"], vocab_type=xgrammar.VocabType.RAW, vocab_size=257, stop_token_ids=[256])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def judge(self, schema, texts):
        try:
            g = self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
        except Exception:  # noqa: BLE001 - whatever the package says
            return None
        return followed(texts, lambda: self.api.GrammarMatcher(g), lambda m, b: m.accept_token(b), lambda m: m.accept_token(256))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--preset", default="check")
    ap.add_argument("--random", type=int, default=300)
    ap.add_argument("--list")
    a = ap.parse_args()
    own = schema_suite.Grammars(a.preset)
    engines = {"spillway": lambda schema, texts: own.ask(schema, texts).get("accepted"),
               "spillway, `--json-schema-open`": lambda schema, texts: own.ask(schema, texts, is_open=True).get("accepted")}
    for name, make in (("llguidance", LlGuidance), ("xgrammar", XGrammar)):
        try:
            engines[name] = make().judge
        except ImportError as e:
            print("%s is not installed: %s" % (name, e))
    out = open(a.list or os.devnull, "w", encoding="utf-8")
    print("| schemas | engine | refused | valid refused | of another type | invalid accepted | all documents right |\n|---|---|---|---|---|---|---|")
    for kind, cases in (("suite", list(suite_cases())), ("random", list(random_cases(a.random, own)))):
        count = {e: collections.Counter() for e in engines}
        for name, schema, docs in cases:
            texts, narrow = [t for t, _ in docs], schema_suite.validator(each(schema, typed))
            for e, judge in engines.items():
                said = judge(schema, texts)
                count[e]["refused"] += said is None
                wrong = [(t, valid) for t, (_, valid), yes in zip(texts, docs, said or ()) if yes != valid]
                count[e]["right"] += said is not None and not wrong
                for t, valid in wrong:
                    what = "invalid" if not valid else "valid" if narrow.is_valid(json.loads(t)) else "type"
                    count[e][what] += 1
                    print(json.dumps({"engine": e, "case": name, "what": what, "text": t, "schema": schema}, ensure_ascii=False), file=out)
        n = sum(len(docs) for _, _, docs in cases)
        for e, c in count.items():
            print("| %s: %d, %d documents | %s | %d | %d | %d | %d | %d |" % (
                kind, len(cases), n, e, c["refused"], c["valid"], c["type"], c["invalid"], c["right"]))
    own.close()


if __name__ == "__main__":
    main()
