#!/usr/bin/env python3
"""Tool calls and reasoning end to end: the official `openai` client against a checkpoint that writes them (scripted.py).

    tools.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import argparse  # noqa: E402
import traceback  # noqa: E402

import scratch  # noqa: E402
import scripted  # noqa: E402

WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
SCRIPTS = {
    "@weather": "<think>\nThe user asks for Rome.</think>\n\n" + CALL % "Rome",
    "@sunny": "It is sunny in the city, 24 degrees.",
    "@both": "Looking both up.\n" + CALL % "Oslo" + "\n" + CALL % "Lima",
    "@wrong": '<tool_call>\n{"name": 5}\n</tool_call> was no call',
    "@story": "Once there was END of it",
}
XML = {"@weather": "Ivory thoughts</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nSao \"P\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
                   "</function>\n</tool_call>",
       "@swans": "Mute swans sing</think>\n\nA poem came out of it."}
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def client(s):
    import openai

    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % s.port, api_key="none", max_retries=0, timeout=300)


def ask(s, text, **more):
    more.setdefault("tools", [WEATHER])
    return client(s).chat.completions.create(model="", messages=[{"role": "user", "content": text}], **more)


@test
def an_agents_loop_runs_to_its_end(s, x):
    c = client(s)
    messages = [{"role": "user", "content": "How is it there? @weather"}]
    first = c.chat.completions.create(model="", messages=messages, tools=[WEATHER]).choices[0]
    assert first.finish_reason == "tool_calls" and first.message.content is None, first
    assert first.message.reasoning_content == first.message.reasoning == "\nThe user asks for Rome.", first
    call = first.message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Rome"} and call.function.name == "get_weather" and call.id.startswith("call_"), call
    messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "@sunny"}]
    last = c.chat.completions.create(model="", messages=messages, tools=[WEATHER])
    assert last.choices[0].finish_reason == "stop" and last.choices[0].message.content == SCRIPTS["@sunny"], last
    assert last.choices[0].message.tool_calls is None


@test
def a_stream_comes_to_the_same_as_the_whole(s, x):
    for server, text in ((s, "@weather"), (s, "@both"), (s, "@sunny"), (s, "@wrong"), (x, "@weather")):
        whole = ask(server, text).choices[0]
        with client(server).chat.completions.stream(model="", messages=[{"role": "user", "content": text}], tools=[WEATHER]) as events:
            reason = "".join(getattr(e.chunk.choices[0].delta, "reasoning", None) or "" for e in events if e.type == "chunk" and e.chunk.choices)
            streamed = events.get_final_completion().choices[0]
        assert streamed.finish_reason == whole.finish_reason, (text, streamed)
        assert (streamed.message.content or None) == (whole.message.content or None), (text, streamed, whole)
        assert reason == (getattr(whole.message, "reasoning", None) or ""), (text, reason)
        a, b = [[(t.function.name, t.function.arguments) for t in m.message.tool_calls or []] for m in (whole, streamed)]
        assert a == b, (text, a, b)


@test
def two_calls_have_two_ids_and_the_text_before_them_stays(s, x):
    m = ask(s, "@both").choices[0].message
    assert m.content == "Looking both up.\n" and [json.loads(t.function.arguments)["city"] for t in m.tool_calls] == ["Oslo", "Lima"], m
    assert len({t.id for t in m.tool_calls}) == 2
    one = ask(s, "@both", parallel_tool_calls=False)
    assert len(one.choices[0].message.tool_calls) == 1 and one.choices[0].finish_reason == "tool_calls", one
    assert one.usage.completion_tokens < ask(s, "@both").usage.completion_tokens  # the rest was not computed for nobody


@test
def what_is_no_call_is_text(s, x):
    assert ask(s, "@wrong").choices[0].message.content == SCRIPTS["@wrong"]
    for more in ({"tools": [], "tool_choice": "none"}, {"tool_choice": "none"}):
        m = ask(s, "@both", **more).choices[0]
        assert m.message.content == SCRIPTS["@both"] and m.finish_reason == "stop", (more, m)


@test
def arguments_in_markup_become_typed_json(s, x):
    c = ask(x, "@weather").choices[0]
    assert json.loads(c.message.tool_calls[0].function.arguments) == {"city": 'Sao "P"', "days": 3}, c
    assert c.message.reasoning == "Ivory thoughts" and c.finish_reason == "tool_calls", c  # the prompt had opened it


@test
def a_cut_inside_a_call_says_length(s, x):
    whole = ask(s, "@weather")
    n = whole.usage.completion_tokens
    seen = set()
    for limit in range(1, n):
        c = ask(s, "@weather", max_tokens=limit)
        assert c.choices[0].finish_reason in ("length", "tool_calls") and c.usage.completion_tokens <= limit, c
        args = "".join(t.function.arguments for t in c.choices[0].message.tool_calls or [])
        assert whole.choices[0].message.tool_calls[0].function.arguments.startswith(args), args
        seen.add(args)
    assert len(seen) > 3, seen


@test
def usage_counts_reasoning_and_stop_strings_end_text(s, x):
    u = ask(s, "@weather").usage
    assert 0 < u.completion_tokens_details.reasoning_tokens < u.completion_tokens, u
    c = ask(s, "@story", stop=["END"]).choices[0]
    assert c.message.content == "Once there was " and c.finish_reason == "stop", c
    assert ask(s, "@weather", stop=["Rome"]).choices[0].finish_reason == "tool_calls"


@test
def what_cannot_be_bound_is_refused_by_name(s, x):
    import openai

    odd = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"not": {"format": "date"}}}}}}
    strict = {"type": "function", "function": dict(odd["function"], strict=True)}
    for more, param, word in (({"tools": [strict]}, "tools[0].function.parameters", "/properties/a/not"),
                              ({"tools": [WEATHER, odd], "tool_choice": "required"}, "tools[1].function.parameters", "/properties/a/not")):
        try:
            ask(s, "@weather", **more)
        except openai.BadRequestError as e:
            assert e.param == param and word in e.message, (more, e)
        else:
            raise AssertionError(more)


def valid(choice, tools, n_max=1000):
    """The calls of an answer that ended, checked against their tools' schemas."""
    import jsonschema

    calls = choice["message"]["tool_calls"]
    assert 1 <= len(calls) <= n_max and choice["message"]["content"] is None, choice
    for c in calls:
        schema = next(t["function"]["parameters"] for t in tools if t["function"]["name"] == c["function"]["name"])
        jsonschema.Draft202012Validator(schema).validate(json.loads(c["function"]["arguments"]))
    return calls


@test
def a_call_that_is_required_comes(s, x):
    """Whatever the model would say: here it says no call, or one of another tool."""
    add = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 99}, "to": {"enum": ["x", "y"]}}, "required": ["a", "to"], "additionalProperties": False}}}
    tools = [WEATHER, add]
    base = {"tools": tools, "max_tokens": 250, "temperature": 1.3}
    n_ended = 0
    for text in ("@sunny", "@wrong"):
        for seed in range(3):
            for more, n_max in (({"tool_choice": "required"}, 128), ({"tool_choice": "required", "parallel_tool_calls": False}, 1),
                                ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, 1),
                                ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                                    {"type": "function", "function": {"name": "add"}}]}}}, 128)):
                body = {"messages": [{"role": "user", "content": text}], "seed": seed, **base, **more}
                c = s.post("/v1/chat/completions", body).json["choices"][0]
                if c["finish_reason"] == "length":
                    continue
                n_ended += 1
                named = more["tool_choice"] != "required"
                calls = valid(c, [add] if named else tools, n_max)
                assert c["finish_reason"] == ("stop" if more["tool_choice"] != "required" and "function" in more["tool_choice"] else "tool_calls"), c
                assert not named or {k["function"]["name"] for k in calls} == {"add"}, calls
    assert n_ended > 10, n_ended
    call = ask(s, "@weather", tool_choice="required", temperature=0).choices[0].message
    assert call.tool_calls[0].function.name == "get_weather" and json.loads(call.tool_calls[0].function.arguments)["city"], call
    assert call.reasoning == "\nThe user asks for Rome.", call
    with client(s).chat.completions.stream(model="", messages=[{"role": "user", "content": "@sunny"}], tools=[add], tool_choice="required", seed=1,
                                           temperature=1.3, max_tokens=400) as events:
        streamed = events.get_final_completion().choices[0].message
    whole = ask(s, "@sunny", tools=[add], tool_choice="required", seed=1, temperature=1.3, max_tokens=400).choices[0].message
    a, b = ([(t.function.name, t.function.arguments) for t in m.tool_calls or []] for m in (streamed, whole))
    assert a == b and a, (a, b)


@test
def calls_of_a_strict_tool_are_bound_wherever_they_come(s, x):
    """In `auto` the text is free, and a call is bound from its first marker to its last: what would be none becomes one."""
    only = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": {"type": "object", "properties": {
        "city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}
    for server, text, cities in ((s, "@weather", ["Rome"]), (s, "@sunny", []), (x, "@weather", None), (s, "@both", None), (s, "@wrong", None)):
        for more in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
            body = {"messages": [{"role": "user", "content": text}], "tools": [only], "max_tokens": 300, **more}
            c = server.post("/v1/chat/completions", body).json["choices"][0]
            if more["temperature"] == 0 and text == "@sunny":
                assert c["message"]["content"] == SCRIPTS["@sunny"] and c["finish_reason"] == "stop", c
            if c["finish_reason"] != "tool_calls":
                continue
            calls = [json.loads(k["function"]["arguments"]) for k in c["message"]["tool_calls"]]
            assert all(a in ({"city": "Rome"}, {"city": "Paris"}) for a in calls), c
            assert more["temperature"] or cities is None or [a["city"] for a in calls] == cities, c
    both = [s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": t}], "tools": [only], "temperature": 0}).json["choices"][0]
            for t in ("@both", "@wrong")]
    assert all(c["finish_reason"] == "tool_calls" for c in both) and both[0]["message"]["content"].startswith("Looking both up."), both
    # a tool beside it that is not strict takes any object, and a call may end within a token
    tools = [{"type": "function", "function": dict(only["function"], **more)} for more in ({"strict": False}, {"name": "add_note"})]
    free = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "@both"}], "tools": tools, "temperature": 0}).json["choices"][0]
    assert [json.loads(k["function"]["arguments"]) for k in free["message"]["tool_calls"]] == [{"city": "Oslo"}, {"city": "Lima"}], free
    # exact beside others and alone
    import threading
    bodies = [{"messages": [{"role": "user", "content": t}], "tools": [only], "max_tokens": 120, "temperature": 1, "seed": i, "return_token_ids": True}
              for i, t in enumerate(("@weather", "@both", "@wrong", "@sunny") * 2)]
    want = [s.post("/v1/chat/completions", b).json["choices"][0]["token_ids"] for b in bodies]
    got = [None] * len(bodies)
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, s.post("/v1/chat/completions", bodies[i]).json["choices"][0]["token_ids"]))
               for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == want, (got, want)


UNMARKED = {
    "llama3_json": {"@right": '{"name": "get_weather", "parameters": {"city": "Rome"}}', "@wrong": 'So:\n{"name": "get_weather", "arguments": {"place": 5}}',
                    "@plain": 'Thus {"name": 1}\n{"city": "Oslo"} is JSON'},
    "pythonic": {"@right": '[get_weather(city="Rome")]', "@wrong": '[get_weather(city="Oslo")]', "@plain": "[get_weather] is a list"},
    "openai": {"@right": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
               "@wrong": '<|start|>assistant to=functions.get_weather<|channel|>commentary<|message|>{"place": 5}', "@plain": "no header at all"},
}
HARMONY = ["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"]


@test
def calls_without_a_marker_are_bound_where_their_arguments_begin(s, x):
    from harness import Server

    only = {"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": {"type": "object", "properties": {
        "city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}}}
    free = {"type": "function", "function": dict(only["function"], strict=False)}
    for row, scripts in UNMARKED.items():
        # a marker is a token that only one script can hold
        for name, script in scripts.items():
            folder = os.path.join(s.folder, row + name)
            scripted.make(folder, {name: script}, markers=HARMONY if row == "openai" else scripted.MARKERS)
            server = Server("--model", folder, "--device", "cpu", "--tool-call-parser", row)
            try:
                body = {"messages": [{"role": "user", "content": name}], "max_tokens": 200, "temperature": 0, "return_token_ids": True}
                beside = [free, {"type": "function", "function": dict(only["function"], name="add_note")}]
                a, b, c = (server.post("/v1/chat/completions", dict(body, tools=tools)).json["choices"][0] for tools in ([only], [free], beside))
            finally:
                server.stop()
            assert b["token_ids"] == c["token_ids"], (row, b, c)  # what is not strict is as if no other tool were
            if name == "@wrong":
                assert a["finish_reason"] == "tool_calls", (row, a)
                (call,) = a["message"]["tool_calls"]
                assert json.loads(call["function"]["arguments"]) in ({"city": "Rome"}, {"city": "Paris"}), a
                if row == "pythonic":
                    assert json.loads(b["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}, b
                continue
            assert a["token_ids"] == b["token_ids"], (a, b)
            assert a["finish_reason"] == ("stop" if name == "@plain" else "tool_calls"), a
            if name == "@right":
                assert json.loads(a["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}, a
            else:
                assert a["message"]["content"] == script, a


@test
def a_form_and_tools_are_text_of_the_form_or_calls(s, x):
    """In `auto` the model may answer in the form, or call; where a call is required the form is none."""
    kinds = set()
    for text in ("@sunny", "@both"):
        for seed in range(6):
            body = {"messages": [{"role": "user", "content": text}], "seed": seed, "tools": [WEATHER], "response_format": FORM, "max_tokens": 250,
                    "temperature": 1}
            c = s.post("/v1/chat/completions", body).json["choices"][0]
            if c["finish_reason"] == "length":
                continue
            kinds.add(c["finish_reason"])
            if c["finish_reason"] == "tool_calls":
                valid(c, [WEATHER])
            else:
                assert set(json.loads(c["message"]["content"])) == {"ok", "n"}, c
    assert kinds, kinds
    c = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "@weather"}], "tools": [WEATHER], "response_format": FORM,
                                        "tool_choice": "required", "temperature": 0}).json["choices"][0]
    valid(c, [WEATHER])


FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {
    "type": "object", "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 999}}, "required": ["ok", "n"]}}}


def formed(s, seed, **more):
    """An answer of that form: its reasoning, text, ids and end, for each choice."""
    body = {"messages": [{"role": "user", "content": "@weather"}], "response_format": FORM, "max_tokens": 300, "temperature": 1.2, "seed": seed,
            "return_token_ids": True, **more}
    r = s.post("/v1/chat/completions", body)
    assert r.status == 200, r.json
    return [(c["message"].get("reasoning"), c["message"]["content"], c["finish_reason"], c["token_ids"]) for c in r.json["choices"]]


@test
def a_form_begins_behind_the_reasoning(s, x):
    """One model begins its reasoning itself, the other finds it open in the prompt. Alone, streamed, and in a crowd that is
    short of memory the bits are the same."""
    import threading

    from harness import Server

    for server, thought in ((s, "\nThe user asks for Rome."), (x, "Ivory thoughts")):
        (reason, content, finish, _), = formed(server, 1, temperature=0)
        value = json.loads(content)
        assert reason == thought and finish == "stop" and isinstance(value["ok"], bool) and 0 <= value["n"] <= 999, (reason, content)
    asks = [(server, seed, {"n": 1 + seed % 3}) for server in (s, x) for seed in range(8)]
    want = [formed(server, seed, **more) for server, seed, more in asks]
    n_whole = 0
    for c in (c for choices in want for c in choices if c[2] == "stop"):
        assert set(json.loads(c[1])) == {"ok", "n"}, c
        n_whole += 1
    assert n_whole > 8, n_whole
    for folder, server in (("hermes", s), ("xml", x)):
        tight = Server("--model", os.path.join(s.folder, folder), "--device", "cpu", "--kv-cache-bytes", "1MiB", "--max-num-seqs", "6",
                       "--max-num-batched-tokens", "32", "--max-model-len", "512")
        try:
            mine = [i for i, a in enumerate(asks) if a[0] is server]
            got = {}
            threads = [threading.Thread(target=lambda i=i: got.update({i: formed(tight, asks[i][1], **asks[i][2])})) for i in mine]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert got == {i: want[i] for i in mine}, (got, want)
        finally:
            tight.stop()
    body = {"messages": [{"role": "user", "content": "@weather"}], "response_format": FORM, "max_tokens": 300, "temperature": 1.2, "seed": 3, "stream": True}
    for server in (s, x):
        frames = [json.loads(f[6:])["choices"][0]["delta"] for f in server.post("/v1/chat/completions", body).body.decode().splitlines()
                  if f.startswith("data: {") and json.loads(f[6:])["choices"]]
        (reason, content, _, _), = formed(server, 3)
        assert "".join(d.get("reasoning", "") for d in frames) == (reason or "")
        assert "".join(d.get("content") or "" for d in frames) == (content or "")


@test
def parts_of_a_free_text_have_a_form(s, x):
    """Structural tags in both spellings, and as text: the model's own call is bound where it begins, and other text is free."""
    value = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}}, "required": ["city"]}
    begin, end = '<tool_call>\n{"name": "get_weather", "arguments": ', "}\n</tool_call>"
    new = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"],
                                                "tags": [{"type": "tag", "begin": begin, "content": {"type": "json_schema", "json_schema": value}, "end": end}]}}
    old = {"type": "structural_tag", "triggers": ["<tool_call>"], "structures": [{"begin": begin, "schema": value, "end": end}]}
    n_tag = 0
    for fields in ({"response_format": new}, {"response_format": old}, {"structured_outputs": {"structural_tag": json.dumps(new)}}):
        for text, seed in [("@both", 0)] + [(t, k) for t in ("@both", "@wrong", "@sunny") for k in range(4)]:
            r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "temperature": 0.4 if seed else 0, "seed": seed,
                                                "max_tokens": 300, "skip_special_tokens": False, **fields})
            assert r.status == 200, r.json
            (c,) = r.json["choices"]
            assert text != "@sunny" or seed or c["message"]["content"] == SCRIPTS[text], c
            parts = (c["message"]["content"] or "").split("<tool_call>")[1:]
            for part in parts if c["finish_reason"] == "stop" else parts[:-1]:
                assert "<tool_call>" + part[:len(begin) - 11] == begin and end in part, (fields, part)
                assert json.loads(part[len(begin) - 11:part.index(end)])["city"] in ("Oslo", "Lima"), part
                n_tag += 1
    assert n_tag >= 6, n_tag
    r = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "@both"}],
                                        "response_format": {"type": "structural_tag", "format": {"type": "tag", "begin": "a", "content": {"type": "odd"}, "end": ""}}})
    assert r.status == 400 and r.json["error"]["param"] == "response_format" and "at '/format/content'" in r.json["error"]["message"], r.json


@test
def reasoning_ends_where_its_budget_ends(s, x):
    """Of a model that begins its reasoning itself, and of one that finds it open in the prompt: as many tokens as the budget
    allows, then the marker, then what the model goes on with. A larger budget changes nothing."""
    def asked(server, budget, **more):
        text = "@weather" if server is s else "@swans"
        r = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "tools": [WEATHER], "temperature": 0,
                                                 "max_tokens": 300, "return_token_ids": True, "thinking_token_budget": budget, **more})
        assert r.status == 200, r.json
        got = r.json
        for call in (t for c in got["choices"] for t in c["message"].get("tool_calls") or []):
            del call["id"]
        return got["choices"], got["usage"]

    def rest(c):
        return c["message"]["content"], c["message"].get("tool_calls"), c["finish_reason"]

    strict = {"type": "function", "function": dict(WEATHER["function"], strict=True)}
    for server, begins in ((s, 1), (x, 0)):
        (free,), usage = asked(server, -1)
        n_reason = usage["completion_tokens_details"]["reasoning_tokens"] - begins - 1
        assert n_reason > 3 and asked(server, n_reason)[0] == [free], (n_reason, free)
        for budget in range(n_reason):
            (c,), usage = asked(server, budget)
            assert free["message"]["reasoning"].startswith(c["message"].get("reasoning", "")), (budget, c)
            assert usage["completion_tokens_details"]["reasoning_tokens"] == budget + begins + 1, (budget, usage)
            assert rest(c) == rest(free), (budget, c)
            keep = budget + begins
            assert c["token_ids"] == free["token_ids"][:keep] + free["token_ids"][n_reason + begins:], (budget, c, free)
        (c,), _ = asked(server, 2, response_format=FORM, tools=None, temperature=1.2, seed=5)
        assert c["finish_reason"] == "length" or set(json.loads(c["message"]["content"])) == {"ok", "n"}, c
        for more in ({"tools": [strict]}, {"tool_choice": "required"}):
            (c,), usage = asked(server, 2, seed=5, temperature=1.2, **more)
            assert usage["completion_tokens_details"]["reasoning_tokens"] <= 2 + begins + 1, (more, usage)
        two, usage = asked(server, 1, n=2, temperature=0.3, seed=7)
        assert len(two) == 2 and usage["completion_tokens_details"]["reasoning_tokens"] <= 2 * (1 + begins + 1), (two, usage)
    r = s.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "thinking_token_budget": 4})
    assert r.status == 400 and r.json["error"]["param"] == "thinking_token_budget", r.json


@test
def a_parser_can_be_named_and_switched_off(s, x):
    from harness import Server

    folder = os.path.join(s.folder, "hermes")
    off = Server("--model", folder, "--device", "cpu", "--tool-call-parser", "none", "--reasoning-parser", "none")
    try:
        r = off.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "@weather"}], "tools": [WEATHER]})
        assert r.status == 400 and r.json["error"]["param"] == "tools" and "--tool-call-parser" in r.json["error"]["message"], r
        r = off.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "@weather"}]})
        assert r.json["choices"][0]["message"]["content"] == SCRIPTS["@weather"], r
    finally:
        off.stop()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    root = os.path.dirname(os.path.dirname(HERE))
    os.environ.setdefault("SPILLWAY", os.path.join(root, "build", args.preset, "spillway"))
    from harness import Server

    folder = tempfile.mkdtemp(prefix="spillway-tools-")
    scripted.make(os.path.join(folder, "hermes"), SCRIPTS)
    scripted.make(os.path.join(folder, "xml"), XML, template_tail="<think>\n")
    s = Server("--model", os.path.join(folder, "hermes"), "--device", "cpu")
    x = Server("--model", os.path.join(folder, "xml"), "--device", "cpu", "--tool-call-parser", "qwen3_coder")
    s.folder = folder
    n_passed = n_failed = 0
    try:
        for fn in TESTS:
            if args.names and fn.__name__ not in args.names:
                continue
            try:
                fn(s, x)
                n_passed += 1
                print("ok     %s" % fn.__name__)
            except Exception:
                n_failed += 1
                print("FAILED %s\n%s" % (fn.__name__, traceback.format_exc()))
    finally:
        s.stop()
        x.stop()
    print("%d passed, %d failed, 0 skipped" % (n_passed, n_failed))
    return 1 if n_failed else 0


if __name__ == "__main__":
    scratch.run(main)
