#!/usr/bin/env python3
"""The rules for tools and forms of answers, row by row, by the embedded model: what is taken and what is refused, what each choice of tools
binds, how deltas look, and where an answer is cut.

    contract.py [--preset check] [test ...]

One line for each test, then `N passed, N failed, N skipped`."""
# Under sanitizers: in ./check all

import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402
from tiers import arguments, run_named  # noqa: E402

CHAT = "/v1/chat/completions"
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def function(name, parameters=None, **more):
    return {"type": "function", "function": {"name": name, **({} if parameters is None else {"parameters": parameters}), **more}}


CITIES = ["Rome", "Oslo", "Lima"]
WEATHER = function("get_weather", {"type": "object", "required": ["city", "days"],
                                   "properties": {"city": {"enum": CITIES}, "days": {"type": "integer", "minimum": 1, "maximum": 7}}})
NOTE = function("add_note", {"type": "object", "properties": {"text": {"type": "string", "maxLength": 12}}, "required": ["text"]})
RUN = {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "(ls|cat) [a-z]{1,6}"}}}}
UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "required": ["q"], "properties": {"q": {"enum": ["yes", "no"]}}}}}


def named(name, kind="function"):
    return {"type": kind, kind: {"name": name}}


def only(mode, *refs):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(refs)}}


def body(**fields):
    return {"messages": [{"role": "user", "content": "How is the weather in Oslo?"}], "max_tokens": 120, "temperature": 1.2, "seed": 7, **fields}


def text_of(call):
    inner = call[call["type"]]
    return inner["arguments"] if call["type"] == "function" else inner["input"]


def is_valid(call):
    name, text = call[call["type"]]["name"], text_of(call)
    if call["type"] == "custom":
        return re.fullmatch("(ls|cat) [a-z]{1,6}", text) is not None
    a = json.loads(text)
    if name == "add_note":
        return set(a) == {"text"} and len(a["text"]) <= 12
    return set(a) == {"city", "days"} and a["city"] in CITIES and 1 <= a["days"] <= 7


# ---- what is refused, with its place

def form_of(schema, strict=True):
    return {"type": "json_schema", "json_schema": {"name": "x", "strict": strict, "schema": schema}}


REFUSED = [
    *[({"tools": [WEATHER, function(name)]}, "tools[1].function.name", "") for name in ("", "a b", "x" * 65, "ä", "a/b")],
    ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", ""),
    ({"tools": [function("f", [1])]}, "tools[0].function.parameters", ""),
    ({"tools": [function("f%d" % i) for i in range(129)]}, "tools", "129"),
    ({"tools": [function("f", {"type": "object", "description": "x" * (1 << 20)})]}, "tools", "bytes"),
    ({"tools": [{"type": "retrieval"}]}, "tools[0]", ""),
    ({"tools": [WEATHER], "parallel_tool_calls": "yes"}, "parallel_tool_calls", ""),
    ({"functions": [{"name": "f"}]}, "functions", "tools"),
    ({"function_call": "auto"}, "function_call", "tools"),
    *[({"tool_choice": choice}, "tool_choice", "") for choice in ("auto", "required", named("f"))],
    *[({"tools": [WEATHER], "tool_choice": choice}, "tool_choice", "")
      for choice in (named("nope"), "always", {"type": "x"}, 5, named("get_weather", "custom"))],
    ({"tools": [RUN], "tool_choice": named("run")}, "tool_choice", ""),
    *[({"tools": [WEATHER], "tool_choice": choice}, "tool_choice.allowed_tools", "")
      for choice in (only("auto"), only("auto", named("nope")), only("x", named("get_weather")), only("auto", named("get_weather", "custom")))],
    ({"tools": [function("f", UNIQUE, strict=True)]}, "tools[0].function.parameters", "'/properties/a/uniqueItems'"),
    ({"tools": [WEATHER, function("f", UNIQUE)], "tool_choice": "required"}, "tools[1].function.parameters", "'/properties/a/uniqueItems'"),
    ({"thinking_token_budget": 3}, "thinking_token_budget", ""),
    *[({"response_format": {"type": "json_schema", "json_schema": {"name": name, "schema": {}}}}, "response_format", "name")
      for name in ("", "a b", "x" * 65, 5)],
    ({"response_format": {"type": "xml"}}, "response_format", ""),
    *[({"structured_outputs": form}, "structured_outputs", "")
      for form in ({}, {"json": {}, "regex": "a"}, {"choice": []}, {"choice": ["a", ""]}, {"choice": ["c%d" % i for i in range(8193)]},
                   {"json": {}, "whitespace_pattern": "a"}, {"regex": "(a)\\1"}, {"regex": "a\\b"}, {"regex": "a{1,70000}"}, {"regex": "(a"},
                   {"grammar": "root ::= x"}, {"grammar": "%declare A\nstart: A"}, {"json": {"$ref": "http://x/y"}})],
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "structured_outputs", "both"),
    ({"guided_regex": "a", "structured_outputs": {"regex": "a"}}, "guided_regex", "both"),
    ({"structured_outputs": {"json": {"type": "object", "required": ["a"], "properties": {"a": False}}}}, "structured_outputs", "no text at all"),
]
BEYOND = {"/uniqueItems": {"type": "array", "uniqueItems": True},
          "/properties/a~1b/unevaluatedProperties": {"properties": {"a/b": {"unevaluatedProperties": False}}},
          "/$dynamicRef": {"$dynamicRef": "#x"},
          "/minContains": {"type": "array", "contains": {}, "minContains": 3},
          "/not/anyOf/1/format": {"not": {"anyOf": [{"type": "string"}, {"format": "date"}]}},
          "/if/multipleOf": {"if": {"multipleOf": 7}, "then": {"type": "string"}},
          "/oneOf": {"oneOf": [{"type": "integer"}, {"type": "number", "format": "x"}]},
          "/allOf/1/items/uniqueItems": {"type": "array", "allOf": [{"items": {}}, {"items": {"type": "array", "uniqueItems": True}}]},
          "/$defs/d/multipleOf": {"type": "number", "$ref": "#/$defs/d", "$defs": {"d": {"multipleOf": 0.30001}}},
          "/pattern": {"type": "string", "pattern": "(?<=a)b"}}


@test
def what_cannot_be_served_is_a_400_with_its_place(s):
    for fields, param, word in REFUSED:
        r = s.post(CHAT, body(**fields))
        assert r.status == 400, (str(fields)[:200], r.status, r.json)
        e = r.json["error"]
        assert str(e["param"]).startswith(param) and word in e["message"], (str(fields)[:200], e)
    for place, schema in BEYOND.items():
        r = s.post(CHAT, body(response_format=form_of(schema)))
        assert r.status == 400 and "'%s'" % place in r.json["error"]["message"], (schema, r.json)
        r = s.post(CHAT, body(response_format=form_of(schema, strict=False), max_tokens=2))
        assert r.status == 200 and dict(r.headers).get("x-schema-ignored"), (schema, r.status, r.headers)


@test
def what_clients_send_is_taken(s):
    made = {"id": "x1", "type": "function", "function": {"name": "get_weather"}}
    for arguments_ in ('{"city": "Rome"', "", "{}"):
        for content in (None, ""):
            for result in ({"tool_call_id": "x1", "content": "@"}, {"tool_call_id": "other", "content": [{"type": "text", "text": "@"}]}):
                call = dict(made, function=dict(made["function"], arguments=arguments_))
                messages = body()["messages"] + [{"role": "assistant", "content": content, "tool_calls": [call]}, {"role": "tool", **result}]
                r = s.post(CHAT, body(messages=messages, tools=[WEATHER], max_tokens=1))
                assert r.status == 200, (messages, r.json)
    for fields in ({"tools": []}, {"tool_choice": "none"}, {"tools": [function("mcp.server:a-b_c"), function("x" * 64)]}, {"tools": [function("f", UNIQUE)]},
                   {"guided_regex": "ab", "guided_decoding_backend": "x"}, {"structured_outputs": {"regex": "ab", "_backend": "x"}},
                   {"structured_outputs": {"choices": ["a", "b"]}}, {"structured_outputs": {"json": '{"type": "integer"}'}}):
        r = s.post(CHAT, body(max_tokens=1, **fields))
        assert r.status == 200, (fields, r.json)


# ---- choices

def one(s, **fields):
    r = s.post(CHAT, body(**fields))
    assert r.status == 200, (fields, r.json)
    c = r.json["choices"][0]
    return c, c["message"].get("tool_calls") or [], c["finish_reason"] == "length"


@test
def a_choice_of_tools_binds_the_answer(s):
    both = [WEATHER, NOTE]
    for seed in range(3):
        c, calls, cut = one(s, tools=both, tool_choice="required", seed=seed)
        assert cut or (calls and all(map(is_valid, calls)) and c["message"]["content"] is None and c["finish_reason"] == "tool_calls"), c
        c, calls, cut = one(s, tools=both, tool_choice="required", parallel_tool_calls=False, seed=seed)
        assert cut or (len(calls) == 1 and is_valid(calls[0]) and c["finish_reason"] == "tool_calls"), c
        c, calls, cut = one(s, tools=both, tool_choice=named("add_note"), seed=seed)
        assert cut or (len(calls) == 1 and calls[0]["function"]["name"] == "add_note" and is_valid(calls[0]) and c["finish_reason"] == "stop"), c
        c, calls, cut = one(s, tools=[RUN, WEATHER], tool_choice=named("run", "custom"), seed=seed)
        assert cut or (len(calls) == 1 and calls[0]["type"] == "custom" and is_valid(calls[0]) and c["finish_reason"] == "stop"), c
        for mode in ("required", "auto"):
            c, calls, cut = one(s, tools=both, tool_choice=only(mode, named("add_note")), seed=seed)
            assert cut or (all(k["function"]["name"] == "add_note" for k in calls) and (calls or mode == "auto")), c
        c, calls, cut = one(s, tools=both, tool_choice="none", seed=seed)
        assert not calls and (cut or c["finish_reason"] == "stop"), c
        c, calls, cut = one(s, tools=both, response_format=FORM, seed=seed)
        assert cut or (all(map(is_valid, calls)) if calls else json.loads(c["message"]["content"])["q"] in ("yes", "no")), c
        c, calls, cut = one(s, tools=both, response_format=FORM, tool_choice="required", seed=seed)
        assert cut or (calls and all(map(is_valid, calls))), c
    c, calls, cut = one(s, tools=[function("now", strict=True)], tool_choice="required", parallel_tool_calls=False)
    assert [text_of(k) for k in calls] == ["{}"], c


# ---- streams

def joined(chunks, i):
    """One choice of a stream; every delta is looked at on the way."""
    text, calls, finish, n_role = "", [], None, 0
    for k, choice in enumerate(x for c in chunks for x in c["choices"] if x["index"] == i):
        d = choice["delta"]
        assert k or (d.get("role") == "assistant" and d.get("content") == ""), d
        n_role += "role" in d
        assert sum(bool(d.get(x)) for x in ("content", "reasoning", "tool_calls")) <= 1, d
        text += d.get("content") or ""
        for call in d.get("tool_calls") or []:
            assert len(d["tool_calls"]) == 1, d
            if call["index"] == len(calls):  # it is opened once, with all but its text
                kind = call["type"]
                key = "arguments" if kind == "function" else "input"
                assert call["id"] and call[kind]["name"] and call[kind][key] == "", call
                calls.append([kind, call["id"], call[kind]["name"], ""])
            else:
                kind = calls[-1][0]
                key = "arguments" if kind == "function" else "input"
                assert call["index"] == len(calls) - 1 and "id" not in call and set(call[kind]) == {key}, call
                calls[-1][3] += call[kind][key]
        assert not (finish and choice["finish_reason"]), choice
        finish = finish or choice["finish_reason"]
    assert n_role == 1 and len({c[1] for c in calls}) == len(calls), (n_role, calls)
    return text, [(c[0], c[2], c[3]) for c in calls], finish


def whole_and_stream(s, **fields):
    """The answer in one piece, which its stream comes to."""
    r = s.post(CHAT, body(**fields))
    lines = s.post(CHAT, body(stream=True, **fields)).body.decode().splitlines()
    chunks = [json.loads(x[6:]) for x in lines if x.startswith("data: {")]
    for c in r.json["choices"]:
        calls = [(k["type"], k[k["type"]]["name"], text_of(k)) for k in c["message"].get("tool_calls") or []]
        want = c["message"]["content"] or "", calls, c["finish_reason"]
        got = joined(chunks, c["index"])
        assert got == want, (fields, got, want)
    return r.json


@test
def a_stream_of_calls_comes_to_the_whole(s):
    for tools in ([WEATHER, NOTE], [RUN, WEATHER]):
        for choice in ("auto", "required"):
            whole_and_stream(s, tools=tools, tool_choice=choice)
    whole_and_stream(s, tools=[WEATHER, NOTE], tool_choice=named("get_weather"))
    whole_and_stream(s, tools=[WEATHER, NOTE], tool_choice="required", n=3)
    whole_and_stream(s, tools=[WEATHER, NOTE], tool_choice="required", stop=["city", '"'])
    whole_and_stream(s, tools=[function("get_weather", WEATHER["function"]["parameters"], strict=True), NOTE], temperature=0)


@test
def a_call_that_is_cut_anywhere_is_the_beginning_of_the_whole(s):
    for tools, choice in (([WEATHER, NOTE], "required"), ([RUN], "required"), ([WEATHER], named("get_weather"))):
        fields = {"tools": tools, "tool_choice": choice, "temperature": 0}
        whole = whole_and_stream(s, **fields)
        calls = whole["choices"][0]["message"]["tool_calls"]
        n = whole["usage"]["completion_tokens"]
        for limit in range(1, min(n, 20)):
            r = whole_and_stream(s, max_tokens=limit, **fields)
            c = r["choices"][0]
            assert c["finish_reason"] == "length" and r["usage"]["completion_tokens"] == limit, (limit, n, c)
            for a, b in zip(c["message"].get("tool_calls") or [], calls):
                assert text_of(b).startswith(text_of(a)), (limit, a, b)


class World:
    def __init__(self):
        self.running = []

    def post(self, *args):
        if not self.running:
            from harness import Server  # after main has named the program
            self.running.append(Server("--kv-cache-bytes", "64MiB"))
        return self.running[0].post(*args)

    def close(self):
        """What run_named calls at the end; the server is stopped after each test."""


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
