#!/usr/bin/env python3
"""A coding agent's session of twenty turns in each of the three dialects: from the second turn on at least 95 % of the prompt comes from
the prefix cache, whatever the dialect makes of calls, results and reasoning. The checkpoint says what a test wants (scripted.py).

    agent.py [--preset check] [name ...]

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

TURNS = 20
CACHED = 0.95
SCRIPTS = {"@read": 'Reading on.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "src/engine.c"}}\n</tool_call>', "@done": "All of it is read."}
RULES = "You are a coding agent. " + " ".join("Rule %d: look at the file before you change it." % i for i in range(40))
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TASK = "Read the sources. @read"
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def result(turn):
    """What a tool says: another text each turn, and the trigger of the next reply."""
    return "line %d of the file\n@%s" % (turn, "done" if turn == TURNS - 1 else "read")


def post(s, path, body):
    r = s.post(path, dict(body, model="m"))
    assert r.status == 200, (path, r)
    return r.json


def judge(turn, prompt, cached, prompts):
    """Prompts grow, and what is new of each is little."""
    assert not prompts or prompt > prompts[-1], (turn, prompt, prompts)
    prompts.append(prompt)
    assert turn == 0 or cached >= CACHED * prompt, "turn %d: %d of %d tokens are cached" % (turn + 1, cached, prompt)


@test
def twenty_turns_of_chat_are_cached(s):
    tool = {"type": "function", "function": {"name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}}
    messages, prompts = [{"role": "system", "content": "Chat. " + RULES}, {"role": "user", "content": TASK}], []
    for turn in range(TURNS + 1):
        d = post(s, "/v1/chat/completions", {"messages": messages, "tools": [tool], "max_tokens": 200})
        judge(turn, d["usage"]["prompt_tokens"], d["usage"]["prompt_tokens_details"]["cached_tokens"], prompts)
        reply = d["choices"][0]["message"]
        messages.append({k: v for k, v in reply.items() if v is not None})
        if not reply.get("tool_calls"):
            break
        messages.append({"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": result(turn)})
    assert turn == TURNS and reply["content"] == SCRIPTS["@done"], (turn, reply)


@test
def twenty_turns_of_responses_are_cached(s):
    tool = {"type": "function", "name": "read_file", "description": "Reads a file.", "parameters": SCHEMA}
    items, prompts = [{"role": "user", "content": TASK}], []
    for turn in range(TURNS + 1):
        d = post(s, "/v1/responses", {"instructions": "Responses. " + RULES, "input": items, "tools": [tool], "max_output_tokens": 200})
        judge(turn, d["usage"]["input_tokens"], d["usage"]["input_tokens_details"]["cached_tokens"], prompts)
        items += d["output"]
        calls = [x for x in d["output"] if x["type"] == "function_call"]
        if not calls:
            break
        items.append({"type": "function_call_output", "call_id": calls[0]["call_id"], "output": result(turn)})
    assert turn == TURNS and d["output"][-1]["content"][0]["text"] == SCRIPTS["@done"], (turn, d["output"])


@test
def twenty_turns_of_messages_are_cached(s):
    """With the block that a coding agent puts first and that says something else each time."""
    tool = {"name": "read_file", "description": "Reads a file.", "input_schema": SCHEMA}
    messages, prompts = [{"role": "user", "content": TASK}], []
    for turn in range(TURNS + 1):
        system = [{"type": "text", "text": "x-anthropic-billing-header: turn %d" % turn}, {"type": "text", "text": "Messages. " + RULES}]
        d = post(s, "/v1/messages", {"system": system, "messages": messages, "tools": [tool], "max_tokens": 200})
        cached = d["usage"]["cache_read_input_tokens"]
        judge(turn, d["usage"]["input_tokens"] + cached, cached, prompts)
        messages.append({"role": "assistant", "content": d["content"]})
        calls = [b for b in d["content"] if b["type"] == "tool_use"]
        if not calls:
            break
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": calls[0]["id"], "content": result(turn)}]})
    assert turn == TURNS and d["content"][-1]["text"] == SCRIPTS["@done"], (turn, d)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", args.preset, "spillway"))
    from harness import Server, run_tests

    s = Server("--model", scripted.make(os.path.join(tempfile.mkdtemp(prefix="spillway-agent-"), "m"), SCRIPTS), "--served-model-name", "m", "--device", "cpu")
    try:
        return run_tests([t for t in TESTS if not args.names or t.__name__ in args.names], s)
    finally:
        s.stop()


if __name__ == "__main__":
    scratch.run(main)
