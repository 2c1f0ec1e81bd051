#!/usr/bin/env python3
"""`spillway batch` end to end: its answers are those of a server, byte for byte, and it continues after whatever ended it.

    batch.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`. Kills at random points: row I32 of tests/fault/i_batch.py."""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402

PATIENCE = 180
ENGINE = ["--device", "cpu", "--threads", "1"]
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Lima", "Oslo"]}}, "required": ["city"]}}}
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class Files:
    """A folder with the files of one batch."""

    def __init__(self, lines=()):
        self.folder = tempfile.mkdtemp(prefix="spillway-batch-")
        self.input, self.output, self.errors = (os.path.join(self.folder, n) for n in ("in.jsonl", "out.jsonl", "err.jsonl"))
        self.write(lines)

    def write(self, lines):
        with open(self.input, "wb") as f:
            f.write(b"".join((x if isinstance(x, bytes) else json.dumps(x).encode()) + b"\n" for x in lines))

    def command(self, *more):
        return [os.environ["SPILLWAY"], "batch", "--input", self.input, "--output", self.output, *ENGINE, *more]

    def run(self, *more, code=0):
        p = subprocess.run(self.command(*more), stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
        assert p.returncode == code, (p.returncode, p.stderr.decode())
        return p.stderr.decode()


def answers(path):
    """Each line by its number, in the order of the file."""
    with open(path, "rb") as f:
        data = f.read()
    assert not data or data.endswith(b"\n"), data[-200:]
    out = {}
    for raw in data.split(b"\n")[:-1]:
        d = json.loads(raw)
        assert list(d) == ["id", "custom_id", "response", "error"], d
        n = int(d["id"].rsplit("-", 1)[1])
        assert n not in out, "line %d is answered twice" % n
        out[n] = d
        d["raw"] = raw
    return out


def body_of(answer):
    """The bytes of an answer's body, as they stand in its line."""
    at = answer["raw"].index(b',"body":') + len(b',"body":')
    end = answer["raw"].rindex(b'},"error":null}')
    return answer["raw"][at:end]


def without_ids(body, own):
    """Ids and times are drawn for each request."""
    body = body.replace(own.encode(), b"OWN")
    body = re.sub(rb'("(?:id|call_id)": ?")[A-Za-z]+[_-][A-Za-z0-9_-]+"', rb'\1ID"', body)
    return re.sub(rb'("(?:created|created_at|completed_at)": ?)\d+', rb"\g<1>0", body)


def post(url, custom_id, **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def chat(i, **more):
    return post("/v1/chat/completions", "chat %d" % i,
                **{"messages": [{"role": "user", "content": "Tell story %d." % i}], "max_tokens": 24, "temperature": 0, **more})


def every_form():
    """A line of each kind that the routes know: answers and refusals."""
    user = [{"role": "user", "content": "What is the weather in Oslo?"}]
    lines = [chat(i) for i in range(6)]
    lines += [
        chat(10, temperature=1, seed=7, n=2), chat(11, logprobs=True, top_logprobs=2, max_tokens=4),
        post("/v1/chat/completions", "tools", messages=user, tools=[WEATHER], tool_choice="required", temperature=0),
        post("/v1/chat/completions", "form", messages=user, temperature=0,
             response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["a", "b"]}}}),
        post("/v1/completions", "prompts", prompt=["Once", "The sea"], n=2, seed=3, max_tokens=9, logprobs=1),
        post("/v1/completions", "echo", prompt="Once upon a time", echo=True, max_tokens=5, stop=["."], temperature=0),
        post("/v1/responses", "response", input="Say hi.", max_output_tokens=9, temperature=0),
        post("/v1/messages", "message", model="pebble", messages=user, max_tokens=9, temperature=0),
        post("/v1/messages/count_tokens", "count", model="pebble", messages=user),
        post("/invocations", "lmi", inputs="Once", parameters={"max_new_tokens": 5, "do_sample": False}),
        post("/tokenize", "tokenize", prompt="hällo\n"),
        post("/detokenize", "detokenize", tokens=[300, 301]),
        # large enough for a text thread
        post("/v1/completions", "large", prompt="word " * 300, max_tokens=4, temperature=0, user="u" * 20000),
        post("/v1/chat/completions", "no messages"),
        post("/v1/completions", "wrong", prompt="x", max_tokens=-1),
        post("/v1/completions", "too long", prompt="word " * 9000, max_tokens=4),
        post("/v1/messages", "anthropic's error", model="pebble", messages=[]),
        post("/v1/chat/completions", "no such model", model="none", messages=user),
        {"url": "/v1/completions", "body": {"prompt": "names in another order", "max_tokens": 3, "temperature": 0}, "custom_id": "order \"", "method": "POST"},
        b'  { "custom_id" : "blanks", "method":"POST","url":"/v1/completions",  "body" : { "prompt" : "a" , "max_tokens":2,"temperature":0 } } \r',
    ]
    return lines


@test
def a_line_is_answered_as_a_post_is():
    from harness import Server

    f = Files(every_form())
    plain = ["--no-enable-prefix-caching"]  # how much of a prompt was cached is of who came before
    f.run(*plain, code=1)
    got = answers(f.output)
    s = Server(*ENGINE, *plain)
    try:
        for n, line in enumerate(every_form(), 1):
            if isinstance(line, bytes):
                whole = json.loads(line)
                body = line[line.index(b"{", 3) : line.rindex(b"}")].strip()
            else:
                whole, body = line, json.dumps(line["body"]).encode()
            r = s.request("POST", whole["url"], body, {"Content-Type": "application/json"})
            mine = got.pop(n)
            assert mine["custom_id"] == whole["custom_id"] and mine["error"] is None, mine
            assert mine["response"]["status_code"] == r.status, (mine, r)
            a, b = without_ids(body_of(mine), mine["response"]["request_id"]), without_ids(r.body, r.header("x-request-id"))
            assert a == b.replace(b"\n", b" "), "%s:\n%r\n%r" % (whole["custom_id"], a, b)
        assert not got, got
    finally:
        s.stop()


@test
def a_bad_line_costs_that_line_alone():
    bad = {
        1: (b"{oops", "invalid_json", None),
        2: (b"[]", "invalid_json", None),
        3: ({"method": "POST", "url": "/tokenize", "body": {}}, "missing_custom_id", "custom_id"),
        5: (chat(4), "duplicate_custom_id", "custom_id"),
        6: (post("/nowhere", "url"), "invalid_url", "url"),
        7: (post("/v1/models", "get"), "invalid_url", "url"),
        8: (post("/v1/completions", "stream", prompt="a", stream=True), "invalid_stream", "body.stream"),
        9: (post("/v1/completions", "long", prompt="a" * (1 << 20) + "a" * 5000), "line_too_long", None),
        10: ({"custom_id": "method", "method": "GET", "url": "/tokenize", "body": {}}, "invalid_method", "method"),
        11: ({"custom_id": "body", "method": "POST", "url": "/tokenize", "body": []}, "invalid_body", "body"),
    }
    good = {4: chat(4), 12: b"", 13: chat(13)}
    lines = [bad[n][0] if n in bad else good[n] for n in range(1, 14)]
    f = Files(lines)
    report = f.run("--max-body-mib", "1", "--errors", f.errors, code=1)
    assert "12 lines answered, 10 failed" in report, report
    assert sorted(answers(f.output)) == [4, 13]
    got = answers(f.errors)
    assert sorted(got) == sorted(bad), sorted(got)
    for n, (_, code, param) in bad.items():
        e = got[n]["error"]
        assert (e["code"], e["param"], e["line"]) == (code, param, n) and e["message"].startswith("line %d: " % n), e
    assert "which line 4 has" in got[5]["error"]["message"] and "/v1/chat/completions" in got[6]["error"]["message"]
    # what is over in another way is the server's to refuse
    f = Files([post("/v1/completions", "a", prompt="a" * (1 << 20))])
    f.run("--max-body-mib", "1", code=1)
    assert answers(f.output)[1]["response"]["status_code"] == 413


@test
def a_full_queue_loses_no_line():
    f = Files([post("/v1/completions", "n%d" % i, prompt=["a", "b", "c"], max_tokens=3, temperature=0) for i in range(8)])
    f.run("--max-num-seqs", "2", "--max-queue-requests", "3")
    got = answers(f.output)
    assert sorted(got) == list(range(1, 9)) and all(a["response"]["status_code"] == 200 for a in got.values()), got
    assert len({without_ids(body_of(a), a["response"]["request_id"]) for a in got.values()}) == 1
    # what never fits is refused, once it is alone
    f = Files([post("/v1/completions", "never", prompt=["a"] * 90, max_tokens=3)] + [chat(i) for i in range(4)])
    f.run("--max-num-seqs", "2", "--max-queue-requests", "3", code=1)
    got = answers(f.output)
    assert [got[n]["response"]["status_code"] for n in range(1, 6)] == [429, 200, 200, 200, 200], got


def read_lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except FileNotFoundError:
        return 0


@test
def a_signal_ends_it_and_the_next_start_continues():
    few = ["--max-num-seqs", "2"]
    for _ in range(10):  # until the signal comes before the end
        f = Files([chat(i, max_tokens=40, ignore_eos=True) for i in range(40)])
        p = subprocess.Popen(f.command(*few), stderr=subprocess.PIPE)
        while read_lines(f.output) < 3:
            assert p.poll() is None or read_lines(f.output) >= 3, p.stderr.read()
            threading.Event().wait(0.005)
        p.send_signal(signal.SIGTERM)
        said = p.communicate(timeout=PATIENCE)[1].decode()
        if p.returncode == 75 and read_lines(f.output) < 40:
            break
    assert p.returncode == 75 and "the same command continues" in said, (p.returncode, said)
    before = answers(f.output)
    assert 3 <= len(before) < 40, len(before)
    assert "%d lines answered" % len(before) in said, said
    said = f.run(*few)
    assert "40 lines answered, %d of an earlier start, 0 failed" % len(before) in said, said
    after = answers(f.output)
    assert sorted(after) == list(range(1, 41))
    assert all(after[n]["raw"] == a["raw"] for n, a in before.items())
    with open(f.output, "rb") as h:
        whole = h.read()
    f.run(*few)  # there is nothing left
    with open(f.output, "rb") as h:
        assert h.read() == whole


@test
def a_full_disk_ends_it_and_the_next_start_continues():
    f = Files([chat(i) for i in range(60)])
    full = 12000  # bytes that a file may have: some answers, and the header beside them
    p = subprocess.run(f.command(), capture_output=True, timeout=PATIENCE,
                       preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (full, full)))
    assert p.returncode == 74 and b"cannot be written: File too large" in p.stderr, (p.returncode, p.stderr)
    assert os.path.getsize(f.output) == full and 0 < read_lines(f.output) < 60
    f.run()
    assert sorted(answers(f.output)) == list(range(1, 61))


@test
def another_batch_or_model_is_refused():
    f = Files([chat(i) for i in range(3)])
    f.run()
    with open(f.output, "rb") as h:
        whole = h.read()
    said = f.run("--quantization", "int8", code=78)
    assert "another option quantization: auto, now it is int8" in said and "--restart" in said, said
    said = f.run("--errors", f.errors, code=78)
    assert "--errors" in said, said
    f.write([chat(i) for i in range(4)])
    said = f.run(code=78)
    assert "another input" in said, said
    with open(f.output, "rb") as h:
        assert h.read() == whole
    f.run("--restart")
    assert sorted(answers(f.output)) == [1, 2, 3, 4]
    for more, says in (["--output", f.input], "--input"), (["--takeover", "x"], "--takeover"), (["--output", ""], "--output"):
        said = f.run(*more, code=64)
        assert says in said, said
    assert "no such file" in f.run("--input", f.input + "x", code=74).lower()
    p = subprocess.run([os.environ["SPILLWAY"], "--input", f.input], capture_output=True, timeout=PATIENCE)
    assert p.returncode == 64 and b"spillway batch" in p.stderr, p


@test
def pipes_are_read_and_written():
    f = Files()
    lines = [chat(i) for i in range(5)]
    p = subprocess.Popen([os.environ["SPILLWAY"], "batch", "--input", "-", "--output", "-", *ENGINE], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # an answer comes while the input is open
    p.stdin.write(json.dumps(lines[0]).encode() + b"\n")
    p.stdin.flush()
    first = p.stdout.readline()
    rest, said = p.communicate(b"".join(json.dumps(x).encode() + b"\n" for x in lines[1:]), timeout=PATIENCE)
    assert p.returncode == 0 and b"5 lines answered, 0 failed" in said, (p.returncode, said)
    ids = [json.loads(x)["custom_id"] for x in (first + rest).decode().splitlines()]
    assert sorted(ids) == ["chat %d" % i for i in range(5)], ids
    # an output of a pipe is not continued
    for code in 0, 78:
        p = subprocess.run(f.command("--input", "-"), input=json.dumps(lines[0]).encode(), capture_output=True, timeout=PATIENCE)
        assert p.returncode == code, (p.returncode, p.stderr)
    assert sorted(answers(f.output)) == [1] and not os.path.exists(f.output + ".batch")


@test
def prefixes_are_found_again():
    long = "The lighthouse keeper writes to his daughter. " * 30
    f = Files([post("/v1/completions", "p%d" % i, prompt=long + str(i), max_tokens=4, temperature=0) for i in range(12)])
    said = f.run("--max-num-seqs", "1", "--kv-host-gib", "0.1")
    share = float(re.search(r"\((\d+\.\d) % cached\)", said).group(1))
    assert share > 80, said


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--preset", default="dev")
    ap.add_argument("names", nargs="*")
    args = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", args.preset, "spillway"))
    from harness import run_tests

    return run_tests([t for t in TESTS if not args.names or t.__name__ in args.names])


if __name__ == "__main__":
    scratch.run(main)
