#!/usr/bin/env python3
"""Answers of a form that the request gives (response_format, structured_outputs, guided_*), by a real server.

    structured.py [--preset check] [test ...]      SCHEMAS=N: how many random schemas (default 60)

Random schemas are asked for at a high temperature, so that the grammar and not the model decides, and every answer that came to
its end is validated by the package jsonschema. The same seeds alone, in a crowd, with small batches and short of memory
must give the same bits. One line for each test, then `N passed, N failed, N skipped`."""

import json
import os
import random
import re
import sys
import threading
import unicodedata

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402
from tiers import arguments, run_named  # noqa: E402

N_SCHEMA = int(os.environ.get("SCHEMAS", "20" if os.environ.get("SANITIZED_BUILD") else "60"))
CHAT = "/v1/chat/completions"
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


# ---- random schemas over the keywords that are enforced

NAMES = ["a", "b", "name", "an odd \"name\"", "größe", "x\ny", "id"]


def scalar(r):
    k = r.randrange(9)
    if k == 0:
        lo = r.randint(0, 6)
        return {"type": "string", "minLength": lo, "maxLength": lo + r.randint(0, 12)}
    if k == 1:
        return {"type": "string", "pattern": r.choice(["^[a-z]{2,5}$", "^(ab|cd)+$", "^\\d{3}-\\d{2}$", "^[^\"\\\\]{1,8}$", "^.{3}$"])}
    if k == 2:
        return {"type": "string", "format": r.choice(["date", "date-time", "time", "uuid", "ipv4", "email", "duration"])}
    if k == 3:
        lo = r.randint(-1200, 1200)
        return {"type": "integer", "minimum": lo, "maximum": lo + r.randint(0, 300)}
    if k == 4:
        return {"type": "integer", r.choice(["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"]): r.randint(-99, 99)}
    if k == 5:
        lo = r.randint(-20, 20)
        return {"type": "number", r.choice(["minimum", "exclusiveMinimum"]): lo, r.choice(["maximum", "exclusiveMaximum"]): lo + r.randint(1, 9)}
    if k == 6:
        return {"enum": r.sample(["red", "a\"b", 1, 2.5, None, True, [1, "x"], {"k": []}, "ü"], r.randint(1, 5))}
    if k == 7:
        return {"const": r.choice(["only", 7, None, {"a": [1, 2]}])}
    return {"type": r.choice(["boolean", "null", "integer"])}


def schema(r, depth):
    k = r.randrange(10) if depth else 0
    if k < 3:
        return scalar(r)
    if k < 5:
        lo = r.randint(0, 2)
        s = {"type": "array", "items": schema(r, depth - 1), "minItems": lo, "maxItems": lo + r.randint(0, 3)}
        if r.random() < 0.3:
            s["prefixItems"] = [schema(r, depth - 1) for _ in range(r.randint(1, 2))]
        return s
    if k < 9:
        names = r.sample(NAMES, r.randint(0, 4))
        s = {"type": "object", "properties": {n: schema(r, depth - 1) for n in names},
             "required": r.sample(names, r.randint(0, len(names))), "additionalProperties": False}
        if r.random() < 0.2:
            s["additionalProperties"] = scalar(r)
        return s
    return {"anyOf": [schema(r, depth - 1) for _ in range(r.randint(1, 3))]}


# ---- asking

def ask(s, content, fields, **more):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 120, "temperature": 1.6, "seed": 5, "logprobs": True,
            "return_token_ids": True, **more, **fields}
    r = s.post(CHAT, body)
    assert r.status == 200, (fields, r.json)
    c = r.json["choices"][0]
    return c["message"]["content"], c["finish_reason"], (c["token_ids"], [t["logprob"] for t in c["logprobs"]["content"]])


def as_schema(value, name="answer"):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": value, "strict": True}}}


@test
def what_comes_is_what_the_schema_says(w):
    import jsonschema
    s = w.server()
    ended = 0
    for seed in range(N_SCHEMA):
        r = random.Random(seed)
        value = schema(r, 3)
        checker = jsonschema.Draft202012Validator(value, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for k in range(3):
            text, finish, _ = ask(s, "Tell me something.", as_schema(value), seed=seed * 10 + k)
            if finish != "stop":
                continue
            ended += 1
            found = [e.message for e in checker.iter_errors(json.loads(text))]
            assert not found, (seed, value, text, found)
    assert ended > N_SCHEMA, "%d of %d answers came to their end" % (ended, 3 * N_SCHEMA)


PARSERS = [p for p in os.environ.get("PARSERS", "hermes,qwen_xml,pythonic").split(",") if p]


@test
def calls_that_are_required_are_valid(w):
    """Of any model, in the notation of any family: a random schema is what the arguments follow."""
    import jsonschema
    ended = 0
    for parser in PARSERS:
        s = w.start("--tool-call-parser", parser)
        for seed in range(max(3, N_SCHEMA // 20)):
            r = random.Random(seed)
            names = ["find_it", "other-1"]
            tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object", "properties": {"k%d" % i: schema(r, 2) for i in range(3)},
                      "required": ["k0"], "additionalProperties": False}}} for n in names]
            for choice in ("required", {"type": "function", "function": {"name": names[1]}}):
                body = {"messages": [{"role": "user", "content": "Find it."}], "tools": tools, "tool_choice": choice, "max_tokens": 250, "temperature": 1.4,
                        "seed": seed, "parallel_tool_calls": bool(seed % 2)}
                c = s.post(CHAT, body)
                assert c.status == 200, (parser, tools, c.json)
                c = c.json["choices"][0]
                if c["finish_reason"] == "length":
                    continue
                ended += 1
                calls = c["message"]["tool_calls"]
                assert calls and not c["message"]["content"], (parser, c)
                for call in calls:
                    f = next(t["function"] for t in tools if t["function"]["name"] == call["function"]["name"])
                    assert choice == "required" or f["name"] == names[1], c
                    jsonschema.Draft202012Validator(f["parameters"]).validate(json.loads(call["function"]["arguments"]))
    assert ended > len(PARSERS), ended


@test
def regular_expressions_and_choices_hold(w):
    s = w.server()
    for regex in ("[0-9]{3}-[a-f]{2}", "(yes|no)( please)?", "(?i)abc[^x]{2,4}z", "\\w+@\\w+\\.com", "é{2,3}|ß+x"):
        for seed in range(6):
            text, finish, _ = ask(s, "Hello", {"structured_outputs": {"regex": regex}}, seed=seed)
            if finish == "stop":
                assert re.fullmatch(regex, text), (regex, text)
    for seed in range(12):
        choices = ["yes", "yes, please", "no", "ja \"so\"", "ü"]
        text, finish, _ = ask(s, "Hello", {"guided_choice": choices}, seed=seed)
        assert finish == "stop" and text in choices, (text, finish)
    gbnf = 'root ::= item ("," item){1,2}\nitem ::= [a-c]+ | "(" root ")"'
    lark = "start: INT (op INT)~2\nop: \"+\" | \"*\"\n%import common (INT, WS_INLINE)\n%ignore WS_INLINE"
    for seed in range(4):
        text, finish, _ = ask(s, "Hello", {"structured_outputs": {"grammar": gbnf}}, seed=seed)
        if finish == "stop":
            assert re.fullmatch(r"[a-c(),]+", text) and 1 < text.count(",") + 1 and text.count("(") == text.count(")"), text
        text, finish, _ = ask(s, "Hello", {"guided_grammar": lark}, seed=seed)
        if finish == "stop":
            assert re.fullmatch(r"[ \t]*\d+[ \t]*([+*][ \t]*\d+[ \t]*){2}", text), text
    for seed in range(6):
        text, finish, _ = ask(s, "Hello", {"response_format": {"type": "json_object"}}, seed=seed)
        if finish == "stop":
            assert isinstance(json.loads(text), dict)
    text, finish, _ = ask(s, "Hello", {"structured_outputs": {"json": {"type": "object", "required": ["a"], "properties": {"a": {"const": [1, {"b": 2}]}}},
                                                             "disable_any_whitespace": True}})
    assert text == '{"a":[1,{"b":2}]}' and finish == "stop", (text, finish)
    for pattern, want in (("\\t", '{\t"a"\t:\t[\t1\t,\t2\t]\t}'), ("", '{"a":[1,2]}')):
        value = {"type": "object", "required": ["a"], "properties": {"a": {"const": [1, 2]}}}
        for fields in ({"structured_outputs": {"json": value, "whitespace_pattern": pattern}}, {"guided_json": value, "guided_whitespace_pattern": pattern}):
            text, finish, _ = ask(s, "Hello", fields)
            assert text == want and finish == "stop", (pattern, text, finish)
    text, finish, _ = ask(s, "Hello", {"guided_regex": "\\p{Lu}\\p{Ll}{2,4}[^\\P{Nd}0-8]"})
    assert finish != "stop" or (text[0].isupper() and text[1:-1].islower() and unicodedata.category(text[-1]) == "Nd"), text


@test
def a_form_costs_no_bit_of_exactness(w):
    """Answers with a form and without one, alone, then all at once where batches are small and sequences are preempted."""
    r = random.Random(1)
    asks = [("Question %d?" % i, as_schema(schema(r, 2)) if i % 3 else {}) for i in range(24)]
    alone = w.server()
    want = [ask(alone, c, f, seed=i) for i, (c, f) in enumerate(asks)]
    tight = w.start("--kv-cache-bytes", "2MiB", "--max-num-seqs", "6", "--max-num-batched-tokens", "32", "--max-model-len", "512")
    got = [None] * len(asks)

    def one(i):
        got[i] = ask(tight, asks[i][0], asks[i][1], seed=i)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asks))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, (a, b) in enumerate(zip(want, got)):
        assert a == b, (i, asks[i], a, b)


@test
def several_choices_and_a_stream_follow_it(w):
    s = w.server()
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, "temperature": 1.5, "seed": 3, "n": 4,
            "guided_regex": "[a-d]{5}"}
    r = s.post(CHAT, body)
    texts = [c["message"]["content"] for c in r.json["choices"]]
    assert all(re.fullmatch("[a-d]{5}", t) for t in texts) and len(set(texts)) > 1, texts
    r = s.post(CHAT, {**body, "n": 1, "stream": True})
    text = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content", "") for line in r.body.decode().splitlines()
                   if line.startswith("data: {") and json.loads(line[6:])["choices"])
    assert re.fullmatch("[a-d]{5}", text), text


@test
def a_list_of_fifty_thousand_values_is_served(w):
    s = w.server()
    words = ["SKU-%08d" % (i * 1999 + i % 7) for i in range(50000)]
    for values in (words, [{"sku": word} for word in words]):
        text, finish, _ = ask(s, "Pick one.", as_schema({"type": "object", "required": ["a"], "properties": {"a": {"enum": values}}}))
        assert finish == "stop" and json.loads(text)["a"] in values, (text, finish)


@test
def an_object_of_ten_thousand_optional_members_is_served(w):
    names = ["field_%05d" % (i * 7919 % 99991) for i in range(10000)]
    schema = {"type": "object", "properties": {n: {"enum": ["a", "b"]} for n in names}, "required": names[77:10000:4000]}
    value = json.loads(ask(w.server(), "Fill it.", as_schema(schema), max_tokens=900)[0])
    assert set(names[77:10000:4000]) <= set(value) <= set(names) and set(value.values()) <= {"a", "b"}, value


@test
def a_long_text_without_a_letter_is_served(w):
    """Whether a text of so many characters is left is looked for in one step of the automaton."""
    text, finish, _ = ask(w.server(), "Say something long.", as_schema({"type": "string", "not": {"pattern": "x"}, "minLength": 100, "maxLength": 110}))
    assert finish == "stop" and 100 <= len(json.loads(text)) <= 110 and "x" not in json.loads(text), (text, finish)


@test
def a_large_number_has_the_digits_of_its_schema(w):
    """Python's json has whole numbers of any size, so that what comes back is compared exactly."""
    s = w.server()
    for n in (12345678901234567890, 12345678901234567891, -98765432109876543210987654321, 2 ** 64 - 1, 10 ** 19 + 1, 7):  # the first two are one float
        value = {"type": "object", "properties": {"n": {"const": n}}, "required": ["n"], "additionalProperties": False}
        text = ask(s, "A number.", as_schema(value))[0]
        assert json.loads(text) == {"n": n} and str(n) in text, (n, text)
        for fields in ({"structured_outputs": {"json": json.dumps({"enum": [n]})}}, {"guided_json": {"enum": [n]}},
                       {"structured_outputs": {"grammar": 'start: %json {"const": ' + str(n) + "}"}}):
            assert ask(s, "A number.", fields)[0] == str(n), (n, fields)
        tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": value}}
        r = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "tools": [tool], "tool_choice": "required", "max_tokens": 120, "temperature": 0})
        call = r.json["choices"][0]["message"]["tool_calls"][0]["function"]
        assert json.loads(call["arguments"]) == {"n": n}, (n, r.json)
    near = {"enum": [12345678901234567890, 12345678901234567891]}
    r = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], **as_schema(near)})
    assert r.status == 400 and "too near each other" in r.json["error"]["message"], r.json
    for n in ("1" * 400, "1e400", "-1e999"):  # beyond floats
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], **as_schema({"const": 0})}).replace('"const": 0', '"const": ' + n)
        r = s.post(CHAT, body.encode())
        assert r.status == 400 and r.json["error"]["message"], r


@test
def a_form_that_cannot_be_served_is_a_400_with_its_place(w):
    s = w.server()
    for fields, param, word in (
            (as_schema({"type": "object", "properties": {"a": {"not": {"format": "date"}}}}), "response_format", "/properties/a/not"),
            (as_schema({"type": "array", "uniqueItems": True}), "response_format", "/uniqueItems"),
            ({"guided_regex": "(a)\\1"}, "guided_regex", "back-references"),
            ({"guided_json": {"type": "object", "required": ["a"], "properties": {"a": False}}}, "guided_json", "no text at all"),
            ({"guided_grammar": "root ::= a"}, "guided_grammar", "line 1, column 10: 'a' is not defined"),
            (as_schema({"$ref": "#"}), "response_format", "refers to itself"),
            ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "both ask")):
        r = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], **fields})
        assert r.status == 400 and r.json["error"]["param"] == param and word in r.json["error"]["message"], (fields, r.json)
    assert ask(s, "Hi", {})[1] in ("stop", "length")


@test
def what_is_not_promised_is_said(w):
    s = w.server()
    value = {"type": "array", "uniqueItems": True, "items": {"type": "integer", "minimum": 1}, "maxItems": 3}
    for fields in ({"guided_json": value}, {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": value}}}):
        r = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 30, **fields})
        assert r.status == 200 and dict(r.headers).get("x-schema-ignored") == "uniqueItems", (r.status, r.headers)
    counts = dict(line.split() for line in s.get("/metrics").body.decode().splitlines() if line.startswith("spillway:grammar"))
    assert float(counts["spillway:grammars"]) >= 1 and float(counts["spillway:grammars_compiled_total"]) >= 1, counts
    r = s.post(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "guided_json": {"type": "integer"}})
    assert r.status == 200 and "x-schema-ignored" not in dict(r.headers), r.headers


class World:
    def __init__(self):
        self.running, self.plain = [], None

    def start(self, *args):
        from harness import Server
        self.running.append(Server(*args))
        return self.running[-1]

    def server(self):
        if not self.plain or self.plain not in self.running:
            self.plain = self.start()
        return self.plain

    def close(self):
        """What run_named calls at the end; servers are stopped after each test."""


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
