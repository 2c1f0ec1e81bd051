#!/usr/bin/env python3
"""A coding agent's session of twenty turns in each of the three dialects, and in the form that Codex gives to one of them: from the second turn on at least 95 % of the prompt comes from
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
CALLED = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'
PATCHED = "*** Begin Patch\n*** Update File: lib/main.c\n-return 1;\n+exit 0;\n*** End Patch"
EDITS = {"@edit": "<think>\nAnother line is wrong.</think>\n\n" + CALLED % ("shell", json.dumps({"command": ["cat", "x.h"]})) + "\n"
                  + CALLED % ("apply_patch", json.dumps({"input": PATCHED})),
         "@done": "No more of it."}
SCRIPTS = {"@read": 'Reading on.\n<tool_call>\n{"name": "read_file", "arguments": {"path": "src/engine.c"}}\n</tool_call>', "@done": "All of it is read."}
RULES = "You are a coding agent. " + " ".join("Rule %d: look at the file before you change it." % i for i in range(40))
# the grammar that Codex sends with its tool
PATCHES = """start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
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


def streamed_items(s, body):
    """The items of a stream as Codex takes them, from the events of their ends, and its last event."""
    r = s.post("/v1/responses", dict(body, model="m", stream=True))
    assert r.status == 200, r
    events = [json.loads(f.split("\n")[1][6:]) for f in r.body.decode().split("\n\n") if f.startswith("event: ")]
    items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert events[-1]["type"] == "response.completed" and events[-1]["response"]["output"] == items, events[-1]
    return items, events[-1]["response"]


@test
def twenty_turns_of_codex_are_cached(_):
    """Its form: nothing is stored, a stream, reasoning sent back encrypted, a patch as the text of a custom tool beside another call."""
    from harness import Server

    # no token holds the end of a call and the beginning of the next: models have tokens for these markers
    folder = scripted.make(os.path.join(tempfile.mkdtemp(prefix="spillway-agent-"), "m"), EDITS, markers=list(scripted.MARKERS))
    s = Server("--model", folder, "--served-model-name", "m", "--device", "cpu")
    shell = {"type": "function", "name": "shell", "description": "Runs a command.", "strict": False, "parameters": {
        "type": "object", "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"], "additionalProperties": False}}
    patch = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "grammar", "syntax": "lark", "definition": PATCHES}}
    body = {"instructions": "Codex. " + " ".join("%d. %s" % (i, RULES) for i in range(3)), "tools": [shell, patch, {"type": "web_search"}], "tool_choice": "auto",
            "parallel_tool_calls": True, "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "0197-a", "text": {"verbosity": "low"}}

    def said(role, text):
        return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}

    turns = 4 if "san/" in os.environ["SPILLWAY"] else TURNS  # masks of a grammar take a sanitizer long
    items, prompts = [said("developer", "Sandbox: read-only."), said("user", "<cwd>/src</cwd>"), said("user", "Mend it. @edit")], []
    for turn in range(turns + 1):
        new, d = streamed_items(s, dict(body, input=items))
        judge(turn, d["usage"]["input_tokens"], d["usage"]["input_tokens_details"]["cached_tokens"], prompts)
        if turn == turns:
            break
        thought, call, edit = new
        assert thought["type"] == "reasoning" and call["type"] == "function_call" and edit["type"] == "custom_tool_call", (turn, new)
        assert json.loads(call["arguments"]) == {"command": ["cat", "x.h"]} and edit["input"] == PATCHED and edit["name"] == "apply_patch", (turn, new)
        items.append({"type": "reasoning", "summary": thought["summary"], "encrypted_content": thought["encrypted_content"]})
        items.append({k: call[k] for k in ("type", "name", "arguments", "call_id")})
        items.append({k: edit[k] for k in ("type", "status", "call_id", "name", "input")})
        items.append({"type": "function_call_output", "call_id": call["call_id"], "output": "line %d" % turn})
        items.append({"type": "custom_tool_call_output", "call_id": edit["call_id"], "output": "Done. @%s" % ("done" if turn == turns - 1 else "edit")})
    assert new[-1]["content"][0]["text"] == EDITS["@done"], new
    s.stop()


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
