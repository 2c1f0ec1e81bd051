"""Layer C of the fault table: grammars, patterns and schemas made to hurt."""

import json
import os
import threading
import time

from harness import PATIENCE, Server, eventually, post_bytes, row, slower

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20


def resident(s):
    with open("/proc/%d/status" % s.proc.pid) as f:
        return next(int(x.split()[1]) << 10 for x in f if x.startswith("VmRSS"))


def guided(s, form, status, **more):
    """One completion with this form, at most a second long for four tokens; statuses that are right."""
    begin = time.monotonic()
    r = s.post(COMP, {"prompt": "Hi", "max_tokens": 4, "structured_outputs": form, **more})
    seconds = time.monotonic() - begin
    assert r.status in status, "%d, want %s for %.120r: %.300r" % (r.status, status, form, r.body)
    assert r.status == 200 or r.error["param"] == "structured_outputs", r
    assert seconds < slower(), "%.2f s for %.120r" % (seconds, form)
    return r


@row("C14", "grammars 10,000 deep, left-recursive, with 10^9 repetitions, 10^5 alternatives, or without any text: served or 400, quickly and in little memory")
def c14(s):
    guided(s, {"grammar": 'root ::= "a"'}, (200,))
    before = resident(s)
    guided(s, {"grammar": "root ::= " + "(" * 10000 + '"a"' + ")" * 10000}, (400,))
    rules = "\n".join('r%d ::= "a" r%d' % (i, i + 1) for i in range(10000))
    guided(s, {"grammar": "root ::= r0\n%s\nr10000 ::= \"b\"" % rules}, (200, 400))
    assert guided(s, {"grammar": 'root ::= root "a" | "b"'}, (200,)).json["choices"][0]["text"][0] == "b"
    assert guided(s, {"grammar": 'root ::= x "a"\nx ::= y | "c"\ny ::= root'}, (200,)).json["choices"][0]["text"][0] == "c"
    guided(s, {"grammar": 'root ::= "a"{0,1000000000}'}, (400,))
    guided(s, {"grammar": 'root ::= (("a"{0,1000}){0,1000}){0,1000}'}, (200, 400))
    guided(s, {"grammar": "root ::= " + " | ".join('"w%d"' % i for i in range(100000))}, (200, 400))
    guided(s, {"grammar": 'root ::= ("" | "a"*)*'}, (200,))
    for nothing in ('root ::= "a" root', "root ::= x\nx ::= y\ny ::= x", "root ::= [^\\x00-\\U0010ffff]"):
        assert "no text" in guided(s, {"grammar": nothing}, (400,)).error["message"], nothing
    guided(s, {"grammar": "root ::= nobody"}, (400,))
    assert resident(s) < before + 64 * MIB, "%d MiB before, %d after" % (before / MIB, resident(s) / MIB)


@row("C15", "patterns that make others go back and forth: no more time than others, or 400")
def c15(s):
    for pattern in ("(a+)+b", "(.*)*", "(a|a)*b", "(x+x+)+y", "(a|aa)+c", "(a{0,1000}){0,1000}", "[a-z]" * 1024, "(?:" + "a?" * 2500 + ")" + "a" * 2500):
        guided(s, {"regex": pattern}, (200, 400), max_tokens=24)
    for pattern in ("a{0,1000000000}", "(" * 5000 + "a" + ")" * 5000, "(a)\\1", "(?<n>a)\\k<n>", "[z-a]", "(", "a{2,1}", "[^\\s\\S]"):
        guided(s, {"regex": pattern}, (400,))


# Schemas that are none, or that no value satisfies; and what the error says of the place.
WRONG = (
    ({"type": "nope"}, "/type"),
    ({"type": ["string", "x"]}, "/type"),
    ({"enum": []}, "/enum"),
    ({"type": "string", "minLength": -1}, "/minLength"),
    ({"type": "number", "minimum": "1"}, "/minimum"),
    ({"type": "number", "multipleOf": 0}, "/multipleOf"),
    ({"type": "string", "minLength": 5, "maxLength": 2}, "/maxLength"),
    ({"properties": []}, "/properties"),
    ({"type": "object", "required": "a"}, "/required"),
    ({"$ref": "#/nowhere"}, "/$ref"),
    ({"$ref": "http://127.0.0.1/x"}, "/$ref"),
    ({"type": "array", "items": 5}, "/items"),
    ({"anyOf": []}, "/anyOf"),
    ({"type": "object", "properties": {"a": {"properties": {"b": {"type": "x"}}}}}, "/properties/a/properties/b/type"),
    ({"allOf": [{"type": "string"}, {"type": "number"}]}, "no text"),
    ({"not": {}}, "no text"),
    (False, "no text"),
    (5, "schema"),
    ([], "schema"),
)
# Keywords that cannot be enforced: wrong where the form is strict, and left out where nobody has asked for that.
STRICT = (({"type": "string", "pattern": "("}, "/pattern"), ({"type": "object", "unevaluatedProperties": False}, "/unevaluatedProperties"))


@row("C16", "schemas and patterns that are wrong: a 400 with their place on each way in, never an answer without them")
def c16(s):
    message = [{"role": "user", "content": "Hi"}]
    for schema, place in WRONG + STRICT:
        form = {"name": "n", "strict": True, "schema": schema}
        ways = [
            (CHAT, {"messages": message, "max_tokens": 2, "response_format": {"type": "json_schema", "json_schema": form}}),
            ("/v1/responses", {"input": "Hi", "max_output_tokens": 16, "text": {"format": {"type": "json_schema", **form}}}),
        ]
        if (schema, place) in WRONG:
            ways.append((COMP, {"prompt": "Hi", "max_tokens": 2, "structured_outputs": {"json": schema}}))
        for path, body in ways:
            for stream in (False, True):
                r = s.post(path, {**body, "stream": stream})
                assert r.status == 400, "%d for %r on %s: %.200r" % (r.status, schema, path, r.body)
                assert place in r.error["message"], "%r is not in %r" % (place, r.error["message"])


@row("C17", "a place where no token is allowed: that request alone ends, with what excludes what, and nobody takes the model for broken")
def c17(s):
    def nan():
        lines = [x.split() for x in s.get("/metrics").body.decode().split("\n") if x.startswith("vllm:corrupted_requests")]
        assert lines
        return sum(float(x[-1]) for x in lines)

    before = nan()
    for more in ({"allowed_token_ids": [5]}, {"bad_words": ["a"], "structured_outputs": {"regex": "a"}}, {"allowed_token_ids": [5], "stream": True}, {"allowed_token_ids": [5], "n": 3}):
        body = {"prompt": "Hi", "max_tokens": 8, "structured_outputs": {"regex": "ab"}, **more}
        for _ in range(4):
            r = s.post(COMP, body)
            assert r.status == 400 and "leaves no token" in r.error["message"], r
    body = {"prompt": "Hi", "max_tokens": 8, "structured_outputs": {"regex": "a(ca){4}"}, "bad_words": ["c", "ca", "aca", "ac"], "stream": True}
    c = s.conn()  # "a" comes, and nothing behind it: the stream says so and breaks off
    c.send(post_bytes(COMP, json.dumps(body).encode(), ["Connection: close"]))
    c.read_all()
    c.close()
    assert b" 200 " in c.data and b'"text":"a"' in c.data and b"leaves no token" in c.data and b"[DONE]" not in c.data, c.data
    assert s.complete("Hi", max_tokens=2).status == 200
    assert s.get("/livez").status == 200 and nan() == before
    eventually(lambda: not any(x.startswith("vllm:num_requests_running{") and not x.endswith(" 0.0") for x in s.get("/metrics").body.decode().split("\n")), "no request runs")


def schema_number(i):
    """The i-th of many schemas, none like another."""
    kinds = ({"type": "string", "maxLength": 20}, {"type": "integer"}, {"type": "boolean"}, {"type": "array", "items": {"type": "number"}, "maxItems": 3})
    names = {"field_%d_%d" % (i, k): kinds[(i + k) % len(kinds)] for k in range(2 + i % 6)}
    return {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}


@row("C18", "very many different schemas: what is kept of them has a bound, and nothing is on the disk (SCHEMAS=100000 is the whole row)", own=True)
def c18(_):
    s = Server("--kv-cache-bytes", "64MiB")
    total = int(os.environ.get("SCHEMAS", "400"))
    try:
        files = lambda: sorted(os.readlink("/proc/%d/fd/%s" % (s.proc.pid, fd)) for fd in os.listdir("/proc/%d/fd" % s.proc.pid) if os.path.exists("/proc/%d/fd/%s" % (s.proc.pid, fd)))
        guided(s, {"json": schema_number(total)}, (200,))
        before, open_before = resident(s), [x for x in files() if x.startswith("/") and not x.startswith("/proc")]
        wrong = []

        def client(first):
            for i in range(first, total, 4):
                r = s.post(COMP, {"prompt": "Hi", "max_tokens": 40, "structured_outputs": {"json": schema_number(i)}})
                if r.status != 200:
                    wrong.append(r)

        threads = [threading.Thread(target=client, args=(k,)) for k in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[0]
        kept = resident(s) - before
        assert kept < min(512 * MIB, 256 * MIB + total * 96 << 10), "%d MiB are kept after %d schemas" % (kept / MIB, total)
        assert [x for x in files() if x.startswith("/") and not x.startswith("/proc")] == open_before
        assert not s.error_lines(), s.error_lines()
    finally:
        s.stop()


@row("C19", "a hundred large schemas at once are compiled beside the steps: a stream goes on, /ping answers", own=True)
def c19(_):
    s = Server("--kv-cache-bytes", "64MiB")
    try:
        c = s.conn()
        body = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "temperature": 0, "stream": True}
        c.send(post_bytes(COMP, json.dumps(body).encode(), ["Connection: close"]))
        while b"data: " not in c.data:
            c.data += c.sock.recv(1 << 16)
        done = []

        def client(i):
            names = {"name_%d_of_%d" % (k, i): {"type": "string", "maxLength": 8} for k in range(600)}
            schema = {"type": "object", "properties": names, "required": ["name_0_of_%d" % i]}
            done.append(s.post(COMP, {"prompt": "Hi", "max_tokens": 1, "structured_outputs": {"json": schema}}).status)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(100)]
        for t in threads:
            t.start()
        longest, last, seen = 0.0, time.monotonic(), 0
        c.sock.settimeout(PATIENCE)
        while any(t.is_alive() for t in threads) and b"[DONE]" not in c.data:
            c.data += c.sock.recv(1 << 16)
            now = time.monotonic()
            if c.data.count(b"data: ") > seen:
                seen, longest, last = c.data.count(b"data: "), max(longest, now - last), now
        assert s.get("/ping").status == 200
        for t in threads:
            t.join()
        assert sorted(set(done)) == [200] or set(done) <= {200, 429, 503}, sorted(set(done))
        assert 200 in done and seen > 10, (done[:5], seen)
        assert longest < slower(), "the stream waited for %.2f s" % longest
        c.close()
        assert not s.error_lines(), s.error_lines()
    finally:
        s.stop()
