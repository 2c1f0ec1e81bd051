#!/usr/bin/env python3
"""The Responses API end to end: the official `openai` client against a checkpoint that says what a test wants (scripted.py).

    responses_api.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import argparse
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402
import scripted  # noqa: E402

CALL = '<tool_call>\n{"name": "%s", "arguments": {"%s": "%s"}}\n</tool_call>'
ANSWER = "It is sunny in the city, 24 degrees."
SCRIPTS = {
    "@weather": "<think>\nThe user asks for Rome.</think>\n\n" + CALL % ("get_weather", "city", "Rome"),
    "@both": "Looking both up.\n" + CALL % ("get_weather", "city", "Oslo") + "\n" + CALL % ("get_weather", "city", "Lima"),
    "@patch": "Editing.\n" + CALL % ("apply_patch", "input", "*** Begin Patch"),
    "@sunny": ANSWER,
    "@form": '{"town":"Bergen","n":7}',
}
WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
KEYS = ["sk-of-the-first-tenant", "sk-of-the-second-tenant"]
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def client(s, key=KEYS[0]):
    import openai

    return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % s.port, api_key=key, max_retries=0, timeout=300)


def plain(response):
    """What a response says, without what is drawn for each."""
    d = response.to_dict() if hasattr(response, "to_dict") else dict(response)
    d = json.loads(json.dumps(d))
    for item in d["output"]:
        item.pop("id", None)
        item.pop("call_id", None)
        item.pop("parsed_arguments", None)  # the client's own
        for part in item.get("content", []):
            part.pop("parsed", None)
    return {k: v for k, v in d.items() if k not in ("id", "created_at", "usage", "completed_at")}


ORDER = {
    "message": ["response.output_item.added", "response.content_part.added", "response.output_text.delta*", "response.output_text.done",
                "response.content_part.done", "response.output_item.done"],
    "reasoning": ["response.output_item.added", "response.content_part.added", "response.reasoning_text.delta*", "response.reasoning_text.done",
                  "response.content_part.done", "response.output_item.done"],
    "function_call": ["response.output_item.added", "response.function_call_arguments.delta*", "response.function_call_arguments.done",
                      "response.output_item.done"],
    "custom_tool_call": ["response.output_item.added", "response.custom_tool_call_input.delta*", "response.custom_tool_call_input.done",
                         "response.output_item.done"],
}


def events_of(s, body):
    """The events of a stream as they come; order, numbers and ids are checked, and that the pieces are the whole. The last response."""
    r = s.post("/v1/responses", dict(body, stream=True), headers={"Authorization": "Bearer " + KEYS[0]})
    assert r.status == 200, r
    events = []
    for frame in r.body.decode().split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        events.append(json.loads(data[6:]))
        assert name == "event: " + events[-1]["type"], frame
        assert events[-1]["sequence_number"] == len(events) - 1, frame
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"], events
    last = events[-1]
    assert last["type"] in ("response.completed", "response.incomplete") and last["response"]["status"] == last["type"].split(".")[1], last
    for e in events[:2]:
        assert e["response"]["status"] == "in_progress" and e["response"]["output"] == [] and e["response"]["usage"] is None
        assert e["response"]["id"] == last["response"]["id"]
    at, items = 2, []
    while at < len(events) - 1:
        added = events[at]
        kind, id, pieces = added["item"]["type"], added["item"]["id"], ""
        for step in ORDER[kind]:
            while step.endswith("*") and events[at]["type"] == step[:-1]:
                pieces += events[at]["delta"]
                assert events[at]["item_id"] == id and events[at]["output_index"] == len(items), events[at]
                if "output_text" in step:
                    assert events[at]["logprobs"] is not None
                at += 1
            if step.endswith("*"):
                continue
            e = events[at]
            assert e["type"] == step and e["output_index"] == len(items) and e.get("item_id", id) == id, (step, e)
            if step.endswith("_text.done"):
                assert e["text"] == pieces
            if step.endswith("arguments.done"):
                assert e["arguments"] == pieces and e["name"]
            if step.endswith("input.done"):
                assert e["input"] == pieces
            at += 1
        items.append(events[at - 1]["item"])
        assert items[-1]["id"] == id
    assert items == last["response"]["output"], (items, last)
    return last["response"]


@test
def an_agents_loop_runs_to_its_end(s):
    c = client(s)
    for streamed in (False, True):
        items = [{"role": "user", "content": "How is it there? @weather"}]
        for _ in range(3):
            if streamed:
                with c.responses.stream(model="m", input=items, tools=[WEATHER]) as st:
                    for _ in st:
                        pass
                    r = st.get_final_response()
            else:
                r = c.responses.create(model="m", input=items, tools=[WEATHER], include=["reasoning.encrypted_content"])
            items += [o.to_dict() for o in r.output]
            calls = [o for o in r.output if o.type == "function_call"]
            if not calls:
                break
            assert [o.type for o in r.output] == ["reasoning", "function_call"], r.output
            assert json.loads(calls[0].arguments) == {"city": "Rome"} and calls[0].call_id.startswith("call_"), calls
            if not streamed:  # the next turn sends reasoning back in this form alone
                assert items[-2].pop("content")[0]["text"].strip() == "The user asks for Rome." and items[-2]["encrypted_content"]
            items.append({"type": "function_call_output", "call_id": calls[0].call_id, "output": "@sunny"})
        assert r.output_text == ANSWER and r.status == "completed" and len(items) == 5, items


@test
def a_stream_comes_to_the_same_as_the_whole(s):
    for text, more in (("@both", {"tools": [WEATHER]}), ("@both", {}), ("@patch", {"tools": [PATCH]}), ("@weather", {"tools": [WEATHER]}),
                       ("@sunny", {"max_output_tokens": 3}), ("@weather", {"tools": [WEATHER], "max_output_tokens": 12}),
                       ("@sunny", {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "temperature": 0, "metadata": {"a": "b"}})):
        whole = client(s).responses.create(model="m", input=text, **more)
        with client(s).responses.stream(model="m", input=text, **more) as st:
            for event in st:  # get_final_response knows a completed one alone
                streamed = getattr(event, "response", None)
        raw = events_of(s, dict(more, model="m", input=text))
        assert plain(whole) == plain(streamed), (plain(whole), plain(streamed))
        assert plain(whole) == plain(raw), (plain(whole), plain(raw))
        assert whole.usage.output_tokens == raw["usage"]["output_tokens"] > 0
    assert len(whole.output[0].content[0].logprobs) > 3 and len(whole.output[0].content[0].logprobs[0].top_logprobs) == 2, whole


@test
def why_an_answer_ended_is_told(s):
    r = client(s).responses.create(model="m", input="@sunny", max_output_tokens=2)
    assert r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens" and r.output[0].status == "incomplete", r
    r = client(s).responses.create(model="m", input="@weather", tools=[WEATHER], max_output_tokens=28)
    assert r.status == "incomplete" and r.output[-1].status == "incomplete", r


@test
def a_custom_tool_takes_text(s):
    r = client(s).responses.create(model="m", input="@patch", tools=[PATCH, {"type": "web_search"}])
    assert [o.type for o in r.output] == ["message", "custom_tool_call"] and r.output[1].input == "*** Begin Patch", r
    items = [{"role": "user", "content": "@patch"}] + [o.to_dict() for o in r.output] + [
        {"type": "custom_tool_call_output", "call_id": r.output[1].call_id, "output": [{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": "x"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "@sunny"}]}]
    assert client(s).responses.create(model="m", input=items, tools=[PATCH]).output_text == ANSWER
    # its grammar binds no other tool, and the calls of that one come as without it, though a token ends one and begins a line
    rome = dict(WEATHER, parameters=dict(WEATHER["parameters"], properties={"city": {"enum": ["Rome"]}}))
    r = client(s).responses.create(model="m", input="@both", tools=[rome, PATCH], temperature=0)
    assert [json.loads(o.arguments)["city"] for o in r.output if o.type == "function_call"] == ["Oslo", "Lima"], r


@test
def a_call_that_is_demanded_comes(s):
    rome = dict(WEATHER, strict=True, parameters={"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]})
    for choice in ("required", {"type": "function", "name": "get_weather"}, {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_weather"}]}):
        r = client(s).responses.create(model="m", input="@weather", tools=[rome], tool_choice=choice, temperature=0)
        calls = [o for o in r.output if o.type == "function_call"]
        assert json.loads(calls[0].arguments) == {"city": "Rome"}, (choice, r)


@test
def an_answer_in_a_schema_is_parsed(s):
    from pydantic import BaseModel

    class Answer(BaseModel):
        town: str
        n: int

    r = client(s).responses.parse(model="m", input="@form", text_format=Answer, temperature=0)
    assert r.output_parsed == Answer(town="Bergen", n=7), r


@test
def turns_stay_cached(s):
    items, before = [], 0
    for turn in range(8):
        items.append({"role": "user", "content": "Turn %d: go on, please. @sunny" % turn})
        r = client(s).responses.create(model="m", input=items, instructions="You are a coding agent. " * 60, tools=[WEATHER])
        assert r.output_text == ANSWER, (turn, r)
        items += [o.to_dict() for o in r.output]
        assert r.usage.input_tokens_details.cached_tokens >= 0.95 * before, (turn, r.usage)
        before = r.usage.input_tokens


@test
def a_loop_goes_on_by_ids_alone(s):
    c = client(s)
    system = "You are a coding agent. " * 60
    for streamed in (False, True):
        previous, say, before, spoken = None, "How is it there? @weather", 0, []
        for turn in range(6):
            given = [{"role": "user", "content": say}] if isinstance(say, str) else say
            more = dict(model="m", input=say, tools=[WEATHER], instructions=system)
            if previous:
                more["previous_response_id"] = previous
            counted = c.responses.input_tokens.count(**{k: v for k, v in more.items()})
            if streamed:
                with c.responses.stream(**more) as st:
                    for _ in st:
                        pass
                    r = st.get_final_response()
            else:
                r = c.responses.create(**more)
            assert r.store if hasattr(r, "store") else r.to_dict()["store"], r
            assert r.previous_response_id == previous and counted.input_tokens == r.usage.input_tokens, (counted, r)
            assert r.usage.input_tokens_details.cached_tokens >= 0.95 * before, (turn, r.usage)
            spoken += given + [o.to_dict() for o in r.output]
            again = c.responses.retrieve(r.id)
            assert plain(again) == plain(r) and again.id == r.id and again.output[0].id == r.output[0].id, (again, r)
            before, previous = r.usage.input_tokens, r.id
            calls = [o for o in r.output if o.type == "function_call"]
            assert bool(calls) == (turn % 3 == 0), (turn, r)
            say = "And again: %s" % ("@weather" if turn % 3 == 2 else "@sunny")
            if calls:
                say = [{"type": "function_call_output", "call_id": calls[0].call_id, "output": "@sunny"}]
        whole = c.responses.create(model="m", input=spoken + [{"role": "user", "content": say}], tools=[WEATHER], instructions=system, store=False)
        r = c.responses.create(model="m", input=say, tools=[WEATHER], instructions=system, previous_response_id=previous)
        assert whole.usage.input_tokens == r.usage.input_tokens, (whole.usage, r.usage)  # the same prompt as with all items sent again
        for order in ("asc", "desc"):
            items = [i for i in c.responses.input_items.list(r.id, order=order, limit=2)]  # page by page
            assert [i.type for i in items] == ([x.get("type", "message") for x in spoken] + ["message"])[:: 1 if order == "asc" else -1], items
            assert len({i.id for i in items}) == len(items)


@test
def references_stand_for_the_items_that_they_name(s):
    c, other = client(s), client(s, KEYS[1])
    user = {"id": "msg_mine", "role": "user", "content": "How is it in Rome? @weather"}
    first = c.responses.create(model="m", input=[user], tools=[WEATHER])
    thought, call = first.output
    assert (thought.type, call.type) == ("reasoning", "function_call"), first
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "@sunny"}

    def refer(*ids):
        return [{"type": "item_reference", "id": i} for i in ids]

    whole = [user, thought.to_dict(), call.to_dict(), result]
    want = c.responses.create(model="m", input=whole, tools=[WEATHER], store=False)
    assert want.output_text == ANSWER, want
    named = refer("msg_mine", thought.id, call.id) + [result]
    for ask in (named, [user] + named[1:], refer("nobody") + named):  # one that names nothing is left out
        got = c.responses.create(model="m", input=ask, tools=[WEATHER], store=False)
        assert plain(got) == plain(want) and got.usage.input_tokens == want.usage.input_tokens, (ask, got, want)
        assert c.responses.input_tokens.count(model="m", input=ask, tools=[WEATHER]).input_tokens == want.usage.input_tokens, ask
    with c.responses.stream(model="m", input=named, tools=[WEATHER]) as stream:
        streamed = stream.get_final_response()
    assert streamed.output_text == ANSWER and streamed.usage.input_tokens == want.usage.input_tokens, streamed
    kept = [i.to_dict() for i in c.responses.input_items.list(streamed.id, order="asc")]  # the items, not their names
    assert [i["type"] for i in kept] == ["message", "reasoning", "function_call", "function_call_output"], kept
    # for another key they name nothing: what is left is its own message
    own = [{"role": "user", "content": "@sunny"}]
    alone = other.responses.create(model="m", input=own, store=False)
    stolen = other.responses.create(model="m", input=refer("msg_mine", thought.id, call.id) + own, store=False)
    assert stolen.usage.input_tokens == alone.usage.input_tokens and plain(stolen) == plain(alone), (stolen, alone)
    # the second response has the items themselves, so they stay when the first one goes
    c.responses.delete(first.id)
    assert c.responses.create(model="m", input=named, tools=[WEATHER], store=False).usage.input_tokens == want.usage.input_tokens
    c.responses.delete(streamed.id)
    assert c.responses.create(model="m", input=refer("msg_mine", thought.id) + own, store=False).usage.input_tokens == alone.usage.input_tokens


@test
def what_is_deleted_or_anothers_is_not_there(s):
    import openai

    c, other = client(s), client(s, KEYS[1])
    first = c.responses.create(model="m", input="@sunny")
    second = c.responses.create(model="m", input="@sunny", previous_response_id=first.id)
    unstored = c.responses.create(model="m", input="@sunny", store=False)
    assert unstored.to_dict()["store"] is False

    def missing(who, id):
        for ask in (lambda: who.responses.retrieve(id), lambda: who.responses.delete(id), lambda: who.responses.cancel(id),
                    lambda: who.responses.input_items.list(id), lambda: who.responses.create(model="m", input="x", previous_response_id=id),
                    lambda: who.responses.input_tokens.count(model="m", input="x", previous_response_id=id)):
            try:
                ask()
            except openai.NotFoundError as e:
                assert id in e.body["message"], e
            else:
                raise AssertionError(id)

    missing(other, first.id)
    missing(c, unstored.id)
    missing(c, "resp_" + "0" * 32)
    c.responses.delete(first.id)
    missing(c, first.id)
    third = c.responses.create(model="m", input="@sunny", previous_response_id=second.id)  # what went on from it stays whole
    assert len(list(c.responses.input_items.list(third.id))) == 5
    try:
        c.responses.cancel(second.id)
        raise AssertionError("cancelled")
    except openai.BadRequestError as e:
        assert "background" in e.body["message"], e
    key = {"Authorization": "Bearer " + KEYS[0]}
    for path, wrong in (("?stream=true", "stream"), ("/input_items?limit=0", "limit"), ("/input_items?limit=101", "limit"), ("/input_items?order=up", "order"),
                        ("/input_items?after=none", "after")):
        r = s.get("/v1/responses/" + second.id + path, headers=key)
        assert r.status == 400 and json.loads(r.body)["error"]["param"] == wrong, (path, r)
    assert s.get("/v1/responses/" + second.id).status == 401
    assert s.get("/v1/responses/" + second.id + "/else", headers=key).status == 404
    assert s.request("POST", "/v1/responses/" + second.id, b"", headers=key).status == 405


@test
def a_store_that_is_full_forgets_the_oldest_and_grows_no_more(s):
    """Responses of 8 KiB, several times as many as the store holds."""
    headers = {"Authorization": "Bearer " + KEYS[1]}
    body = {"model": "m", "input": "@sunny", "metadata": {"k%d" % i: "v" * 512 for i in range(16)}}

    def fill(n):
        return [s.post("/v1/responses", body, headers=headers).json["id"] for _ in range(n)]

    def found(id):
        return s.get("/v1/responses/" + id, headers=headers).status == 200

    kept = client(s).responses.create(model="m", input="@sunny").id  # another key has a share of its own
    sanitized = "san/" in os.environ["SPILLWAY"]  # sanitizers keep what is freed, and take their time
    fill(0 if sanitized else 130)
    before = s.rss_kib()
    ids = fill(150 if sanitized else 400)
    grown = s.rss_kib() - before
    assert not found(ids[0]) and not found(ids[-150]) and found(ids[-1]) and found(ids[-20])
    assert client(s).responses.retrieve(kept).id == kept
    assert sanitized or grown < 2048, "grew by %d KiB" % grown


@test
def a_stream_that_is_too_long_says_so_in_its_events(s):
    r = s.post("/v1/responses", {"input": "word " * 20000, "stream": True}, headers={"Authorization": "Bearer " + KEYS[0]})
    events = [json.loads(x[6:]) for x in r.body.decode().split("\n") if x.startswith("data: ")]
    assert r.status == 200 and [e["type"] for e in events] == ["response.created", "response.in_progress", "response.failed"], r
    assert [e["sequence_number"] for e in events] == [0, 1, 2]
    last = events[-1]["response"]
    assert last["status"] == "failed" and last["error"]["code"] == "context_length_exceeded" and last["id"] == events[0]["response"]["id"], last
    with client(s).responses.create(model="m", input="word " * 20000, stream=True) as st:
        assert [e.type for e in st][-1] == "response.failed"


@test
def old_items_are_left_out_where_that_is_asked_for(s):
    c = client(s)
    items = []
    for n in range(60):
        items += [{"role": "user", "content": "Question %d. " % n + "word " * 100},
                  {"type": "function_call", "call_id": "c%d" % n, "name": "get_weather", "arguments": '{"city": "Oslo"}'},
                  {"type": "function_call_output", "call_id": "c%d" % n, "output": "rain"}, {"role": "assistant", "content": "It rains."}]
    items.append({"role": "user", "content": "@sunny"})
    r = c.responses.create(model="m", input=items, instructions="Be short.", tools=[WEATHER], truncation="auto")
    assert r.output_text == ANSWER and r.truncation == "auto" and r.usage.input_tokens > 1000, r
    events = events_of(s, {"model": "m", "input": items, "tools": [WEATHER], "truncation": "auto"})
    assert events["output"][0]["content"][0]["text"] == ANSWER
    again = c.responses.create(model="m", input="@sunny", previous_response_id=r.id, truncation="auto")  # and what is stored is whole
    assert again.output_text == ANSWER and len(list(c.responses.input_items.list(again.id, limit=100))) == len(items) + 2


@test
def errors_name_what_is_wrong(s):
    import openai

    def fails(kind, param, **body):
        try:
            client(s).responses.create(**dict({"model": "m", "input": "x"}, **body))
        except kind as e:
            assert e.body["param"] == param, (e.body, param)
            return e
        raise AssertionError((kind, body))

    fails(openai.BadRequestError, "input", input=[])
    fails(openai.BadRequestError, "input[1].content[0]", input=[{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])
    fails(openai.BadRequestError, "input[0]", input=[{"type": "function_call", "name": "a"}])
    fails(openai.BadRequestError, "background", background=True)
    fails(openai.BadRequestError, "conversation", conversation="c")
    fails(openai.BadRequestError, "truncation", truncation="left")
    fails(openai.BadRequestError, "metadata", metadata={"k": "v" * 513})
    fails(openai.BadRequestError, "tools[0].function.name", tools=[{"type": "function", "parameters": {}}])
    fails(openai.BadRequestError, "text.format.type", text={"format": {"type": "xml"}})
    assert fails(openai.NotFoundError, "previous_response_id", previous_response_id="resp_1").code == "previous_response_not_found"
    fails(openai.BadRequestError, "conversation", previous_response_id="resp_1", conversation="c")
    assert fails(openai.NotFoundError, "model", model="other").code == "model_not_found"
    assert fails(openai.BadRequestError, "input_tokens", input="word " * 20000).code == "context_length_exceeded"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", args.preset, "spillway"))
    from harness import Server, run_tests

    s = Server("--model", scripted.make(os.path.join(tempfile.mkdtemp(prefix="spillway-responses-"), "m"), SCRIPTS), "--served-model-name", "m",
               "--device", "cpu", "--response-store-mib", "1", "--api-key", KEYS[0], "--api-key", KEYS[1])
    try:
        return run_tests([t for t in TESTS if not args.names or t.__name__ in args.names], s)
    finally:
        s.stop()


if __name__ == "__main__":
    scratch.run(main)
