#!/usr/bin/env python3
"""The Messages API end to end: the official `anthropic` client against a checkpoint that says what a test wants (scripted.py).

    messages_api.py [--preset check] [name ...]

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

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
ANSWER = "It is sunny in the city, 24 degrees."
SCRIPTS = {
    "@weather": "<think>\nThe user asks for Rome.</think>\n\n" + CALL % "Rome",
    "@both": "Looking both up.\n" + CALL % "Oslo" + "\n" + CALL % "Lima",
    "@sunny": ANSWER,
    "@story": "Once there was END of it",
    "@form": '{"town":"Bergen","n":7}',
}
WEATHER = {"name": "get_weather", "description": "The weather of a city.",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
KEY = "sk-messages-0123456789abcdef"
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def client(s, **more):
    import anthropic

    return anthropic.Anthropic(base_url="http://127.0.0.1:%d" % s.port, api_key=more.pop("api_key", KEY), max_retries=0, timeout=300, **more)


def ask(s, content, **more):
    more.setdefault("max_tokens", 400)
    return client(s).messages.create(model="m", messages=[{"role": "user", "content": content}], **more)


def without_ids(message):
    """What a message says, without what is drawn for each."""
    return [{k: v for k, v in b.to_dict().items() if k != "id"} for b in message.content], message.stop_reason, message.stop_sequence


def events_of(s, body):
    """The events of a stream as they come, [(name, data)]; their order is checked."""
    r = s.post("/v1/messages", dict(body, stream=True), headers={"x-api-key": KEY})
    assert r.status == 200 and r.header("request-id"), r
    events = []
    for frame in r.body.decode().split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        assert name.startswith("event: ") and data.startswith("data: "), frame
        events.append((name[7:], json.loads(data[6:])))
        assert events[-1][1]["type"] == events[-1][0], frame
    events = [e for e in events if e[0] != "ping"]
    assert [n for n, _ in events][0] == "message_start" and [n for n, _ in events][-2:] == ["message_delta", "message_stop"], events
    opened, n_block = None, 0
    for name, data in events[1:-2]:
        if name == "content_block_start":
            assert opened is None and data["index"] == n_block, (data, opened)
            opened, n_block = n_block, n_block + 1
        else:
            assert name in ("content_block_delta", "content_block_stop") and data["index"] == opened, (name, data, opened)
            opened = None if name == "content_block_stop" else opened
    assert opened is None
    return events


@test
def an_agents_loop_runs_to_its_end(s):
    c = client(s)
    for streamed in (False, True):
        messages = [{"role": "user", "content": "How is it there? @weather"}]
        for _ in range(3):
            if streamed:
                with c.messages.stream(model="m", max_tokens=400, messages=messages, tools=[WEATHER]) as st:
                    m = st.get_final_message()
            else:
                m = c.messages.create(model="m", max_tokens=400, messages=messages, tools=[WEATHER])
            messages.append({"role": "assistant", "content": m.content})
            if m.stop_reason != "tool_use":
                break
            kinds = [b.type for b in m.content]
            assert kinds == ["thinking", "tool_use"], kinds
            assert m.content[0].thinking.strip() == "The user asks for Rome." and m.content[0].signature, m
            assert m.content[1].name == "get_weather" and m.content[1].input == {"city": "Rome"} and m.content[1].id.startswith("toolu_"), m
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": m.content[1].id, "content": [{"type": "text", "text": "@sunny"}]}]})
        assert m.stop_reason == "end_turn" and m.content[0].text == ANSWER and len(messages) == 4, messages


@test
def the_clients_own_tool_runner_runs(s):
    """It opens a thread on the server first, is refused by name, and then sends the whole conversation again."""
    from anthropic import beta_tool

    asked = []

    @beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "@sunny"

    runner = client(s).beta.messages.tool_runner(model="m", max_tokens=400, tools=[get_weather], messages=[{"role": "user", "content": "How is it? @weather"}])
    last = runner.until_done()
    assert asked == ["Rome"] and last.content[0].text == ANSWER, (asked, last)


@test
def a_stream_comes_to_the_same_as_the_whole(s):
    for content, more in (("@both", {"tools": [WEATHER]}), ("@both", {}), ("@story", {"stop_sequences": ["zz", "END"]}), ("@weather", {"max_tokens": 12, "tools": [WEATHER]}),
                          ("@weather", {"tools": [WEATHER], "thinking": {"type": "enabled", "budget_tokens": 200}})):
        more.setdefault("max_tokens", 400)
        whole = ask(s, content, **more)
        with client(s).messages.stream(model="m", messages=[{"role": "user", "content": content}], **more) as st:
            streamed = st.get_final_message()
        assert without_ids(whole) == without_ids(streamed), (whole, streamed)
        events_of(s, dict(more, messages=[{"role": "user", "content": content}]))
    assert whole.usage.output_tokens == streamed.usage.output_tokens


@test
def why_an_answer_ended_is_told(s):
    m = ask(s, "@story", stop_sequences=["zz", "END"])
    assert (m.stop_reason, m.stop_sequence, m.content[0].text) == ("stop_sequence", "END", "Once there was "), m
    m = ask(s, "@story", max_tokens=2)
    assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 2, m
    m = ask(s, "@both", tools=[WEATHER])
    assert m.stop_reason == "tool_use" and [b.type for b in m.content] == ["text", "tool_use", "tool_use"], m
    m = ask(s, "@both", tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [b.type for b in m.content] == ["text", "tool_use"], m
    m = ask(s, "@both", tools=[WEATHER], tool_choice={"type": "none"})
    assert [b.type for b in m.content] == ["text"] and m.stop_reason == "end_turn", m


@test
def a_call_that_is_demanded_comes(s):
    # the model's own spelling of a call is not the one that is required, so the schema must lead it
    rome = dict(WEATHER, strict=True, input_schema={"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]})
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        m = ask(s, "@weather", tools=[rome], tool_choice=choice, extra_body={"temperature": 0})
        calls = [b for b in m.content if b.type == "tool_use"]
        assert m.stop_reason == "tool_use" and calls[0].input == {"city": "Rome"}, (choice, m)


@test
def an_answer_in_a_schema_is_parsed(s):
    from pydantic import BaseModel

    class Answer(BaseModel):
        town: str
        n: int

    m = client(s).messages.parse(model="m", max_tokens=400, messages=[{"role": "user", "content": "@form"}], output_format=Answer, extra_body={"temperature": 0})
    assert m.parsed_output == Answer(town="Bergen", n=7), m


@test
def an_answer_that_was_begun_is_continued(s):
    whole = ask(s, "@story").content[0].text
    m = client(s).messages.create(model="m", max_tokens=400, messages=[{"role": "user", "content": "q"}, {"role": "assistant", "content": "I say: @story"}])
    assert m.content[0].text == whole, m


@test
def tokens_are_counted_as_a_request_uses_them(s):
    body = {"model": "m", "system": [{"type": "text", "text": "You help."}], "tools": [WEATHER],
            "messages": [{"role": "user", "content": "How is it in Rome? @weather"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "get_weather", "input": {"city": "Rome"}}]},
                         {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "@sunny"}]}]}
    n = client(s).messages.count_tokens(**body).input_tokens
    m = client(s).messages.create(max_tokens=5, **body)
    assert n == m.usage.input_tokens + m.usage.cache_read_input_tokens > 50, (n, m.usage)
    start = events_of(s, dict(body, max_tokens=5))[0][1]["message"]["usage"]
    assert n == start["input_tokens"] + start["cache_read_input_tokens"], (n, start)


@test
def a_coding_agents_turns_stay_cached(s):
    """Its first block of the system changes with every request, and must not make each prefix a new one."""
    messages = []
    for turn in range(20):
        messages.append({"role": "user", "content": [{"type": "text", "text": "Turn %d: do the next step, please. @sunny" % turn}]})
        if turn == 9:
            messages.append({"role": "system", "content": "A note from the client, between two turns. @sunny"})
        body = {"model": "m", "max_tokens": 32000, "tools": [WEATHER], "metadata": {"user_id": "u"}, "messages": messages,
                "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=%06d" % turn},
                           {"type": "text", "text": "You are a coding agent. " * 60, "cache_control": {"type": "ephemeral"}}]}
        with client(s).messages.stream(**body) as st:
            m = st.get_final_message()
        assert m.content[0].text == ANSWER, (turn, m)
        messages.append({"role": "assistant", "content": m.content})
        if turn:
            cached, fresh = m.usage.cache_read_input_tokens, m.usage.input_tokens
            assert cached >= 0.95 * before, (turn, cached, fresh, before)
        before = m.usage.cache_read_input_tokens + m.usage.input_tokens


@test
def a_picture_from_a_tool_ends_no_session(s):
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    turns = [{"role": "user", "content": "look"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "get_weather", "input": {}}]},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [picture, {"type": "text", "text": "@sunny"}]}]}]
    m = client(s).messages.create(model="m", max_tokens=400, messages=turns, tools=[WEATHER])
    assert m.content[0].text == ANSWER, m


@test
def errors_are_those_that_the_client_knows(s):
    import anthropic

    def fails(kind, fn, *words):
        try:
            fn()
        except kind as e:
            assert e.request_id and all(w in str(e) for w in words), e
            return
        raise AssertionError("no %s" % kind.__name__)

    fails(anthropic.BadRequestError, lambda: ask(s, [{"type": "image", "source": {}}]), "invalid_request_error", "messages.0.content.0")
    fails(anthropic.BadRequestError, lambda: ask(s, "word " * 20000), "prompt is too long: ", " tokens > ", " maximum")
    fails(anthropic.NotFoundError, lambda: client(s).messages.create(model="other", max_tokens=5, messages=[{"role": "user", "content": "x"}]), "not_found_error")
    fails(anthropic.AuthenticationError, lambda: client(s, api_key="sk-wrong-0123456789abcdef").messages.create(model="m", max_tokens=5, messages=[]), "authentication_error")
    fails(anthropic.BadRequestError, lambda: client(s).messages.count_tokens(model="m", messages=[]), "invalid_request_error")
    assert [m.id for m in client(s).models.list().data] == ["m"]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", args.preset, "spillway"))
    from harness import Server, run_tests

    s = Server("--model", scripted.make(os.path.join(tempfile.mkdtemp(prefix="spillway-messages-"), "m"), SCRIPTS), "--served-model-name", "m",
               "--device", "cpu", "--api-key", KEY)
    try:
        return run_tests([t for t in TESTS if not args.names or t.__name__ in args.names], s)
    finally:
        s.stop()


if __name__ == "__main__":
    scratch.run(main)
