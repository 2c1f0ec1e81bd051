"""Layer B of the fault table: JSON and API parameters, through the socket."""

import json
import os
import threading
import time

from harness import PATIENCE, Server, eventually, post_bytes, row, slower

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
MSG = [{"role": "user", "content": "Hi"}]


def chat(**f):
    return {"messages": MSG, "max_tokens": 2, **f}


def comp(**f):
    return {"prompt": "Hi", "max_tokens": 2, **f}


def bad(s, path, body, param=None, status=400):
    r = s.post(path, body)
    want = (status,) if isinstance(status, int) else status
    assert r.status in want, "%d, want %s for %.200r: %.200r" % (r.status, want, body, r.body)
    e = r.error
    if param:
        params = (param,) if isinstance(param, str) else param
        assert e["param"] in params, "param %r, want %r for %.200r (%s)" % (e["param"], params, body, e["message"])
    return e


def good(s, path, body):
    r = s.post(path, body)
    assert r.status == 200, "%d for %.200r: %.300r" % (r.status, body, r.body)
    return r.json


@row("B1", "empty, blank, truncated JSON; trailing bytes")
def b1(s):
    for body in (b"", b"   ", b'{"prompt":', b'{"prompt":"Hi"', b'{"prompt":"Hi"} x', b'{"prompt":"Hi"}{}', b"{", b"nul", b'"'):
        e = bad(s, COMP, body)
        assert not body.strip() or any(c.isdigit() for c in e["message"]), "no offset in %r" % e["message"]


@row("B2", "JSON that is not JSON")
def b2(s):
    for v in (b"NaN", b"Infinity", b"-Infinity", b"+1", b"01", b".5", b"1.", b"0x1", b"/* c */ 1", b"'1'", b"1_000", b"True"):
        bad(s, COMP, b'{"prompt":"Hi","max_tokens":2,"temperature":' + v + b"}")
    bad(s, COMP, b"{'prompt':'Hi'}")
    bad(s, COMP, b'{"prompt":"Hi",}')


@row("B3", "numbers at the edges")
def b3(s):
    for v in (b"1e400", b"99999999999999999999", b"-99999999999999999999"):
        bad(s, COMP, b'{"prompt":"Hi","max_tokens":' + v + b"}")
    good(s, COMP, b'{"prompt":"Hi","max_tokens":2.0}')
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":2.5}', "max_tokens")
    good(s, COMP, b'{"prompt":"Hi","max_tokens":2,"temperature":-0}')
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":2,"seed":1e300}', "seed")


@row("B4", "10^5 nested brackets")
def b4(s):
    for o in (b"[", b'{"a":'):
        bad(s, COMP, o * 100000)
        bad(s, COMP, b'{"prompt":' + o * 100000 + b"}")
        bad(s, COMP, b'{"prompt":"Hi","x":' + b"[" * 65 + b"]" * 65 + b"}")


def members(n):
    return b",".join(b'"k%x":1' % i for i in range(n))


@row("B5", "10^6 keys")
def b5(s):
    n = 10**6
    t0 = time.monotonic()
    e = bad(s, COMP, b'{"prompt":"Hi","max_tokens":1,' + members(n) + b"}")
    assert "1000002 fields" in e["message"] and "at most 1024" in e["message"], e
    e = bad(s, COMP, b'{"prompt":"Hi","max_tokens":1,"logit_bias":{' + members(n) + b"}}")
    assert "1000003 members" in e["message"] and "at most" in e["message"], e
    r = s.post(COMP, b'{"prompt":"Hi","max_tokens":1,"of_no_route":{' + members(n) + b"}}")  # nobody reads it
    assert r.status == 200, r
    assert time.monotonic() - t0 < 20 * slower()
    assert s.get("/health").status == 200


@row("B43", "10^6 keys that no route reads, in a body whose answer streams", own=True)
def b43(_):
    s = Server("--kv-cache-bytes", "16MiB")
    try:
        unread = b'"of_no_route":{' + members(10**6) + b'},"metadata":{' + members(10**6) + b"}"
        body = b'{"prompt":"Once upon a time","max_tokens":300,"ignore_eos":true,"stream":true,' + unread + b"}"
        assert s.post(COMP, comp()).status == 200
        before = s.rss_kib()
        conns = [s.conn() for _ in range(4)]
        for c in conns:
            c.send(post_bytes(COMP, body))
        for c in conns:
            while b"data: " not in c.data:  # the answer streams
                c.sock.settimeout(PATIENCE)
                d = c.sock.recv(1 << 16)
                assert d, "closed: %r" % c.data[:300]
                c.data += d
        eventually(lambda: s.rss_kib() - before < 60 << 10, "the four trees (130 MiB each) and bodies are given back")
        for c in conns:
            c.close()
    finally:
        s.stop()


@row("B44", "bodies of 30 MB and 3.6 million keys beside /ping and other clients' prompts", own=True)
def b44(_):
    """What is counted is the io thread's own time, not the clock: on a busy machine a /ping may wait for its turn."""
    s = Server("--kv-cache-bytes", "16MiB", "--max-body-mib", "64")
    try:
        n = 3_600_000
        heavy = b'{"prompt":"Hi","max_tokens":1,"logit_bias":{' + members(250_000) + b'},"of_no_route":{' + members(n) + b"}}"
        medium = comp(max_tokens=1, user="x" * 40000)  # large enough for a text thread
        assert s.post(COMP, medium).status == 200
        done = []

        def flood():
            for _ in range(2):
                done.append(s.post(COMP, heavy).status)

        threads = [threading.Thread(target=flood) for _ in range(4)]
        for t in threads:
            t.start()
        worst, n_medium = 0.0, 0
        while any(t.is_alive() for t in threads):
            before = io_cpu(s)
            assert s.get("/ping").status == 200
            worst = max(worst, io_cpu(s) - before)
            assert s.post(COMP, medium).status == 200
            n_medium += 1
        for t in threads:
            t.join()
        assert done == [400] * 8, done  # logit_bias may not have so many
        assert n_medium >= 1 and worst < 0.5, (n_medium, worst)
    finally:
        s.stop()


def io_cpu(s):
    """Seconds of CPU that the first io thread has used."""
    task = "/proc/%d/task" % s.proc.pid
    for tid in os.listdir(task):
        with open("%s/%s/stat" % (task, tid)) as f:
            text = f.read()
        if "(io0)" in text:
            fields = text.rsplit(")", 1)[1].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise AssertionError("no thread io0")


@row("B6", "duplicate keys")
def b6(s):
    bad(s, COMP, b'{"prompt":"Hi","prompt":"Ho"}')
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":1,"max_tokens":2}')


@row("B7", "invalid UTF-8")
def b7(s):
    for b in (b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xff", b"\x80"):
        bad(s, COMP, b'{"prompt":"' + b + b'"}')


@row("B8", "lone surrogate escapes")
def b8(s):
    for b in (b"\\ud800", b"\\udc00", b"\\udc00\\ud800", b"\\ud800x"):
        bad(s, COMP, b'{"prompt":"' + b + b'"}')


@row("B9", "\\u0000 is data in content, refused in names")
def b9(s):
    good(s, COMP, b'{"prompt":"a\\u0000b","max_tokens":1}')
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":1,"model":"peb\\u0000ble"}', "model", (400, 404))


@row("B10", "BOM, UTF-16, GBK")
def b10(s):
    good_body = '{"prompt":"\u4f60\u597d","max_tokens":1}'
    bad(s, COMP, b"\xef\xbb\xbf" + good_body.encode())
    bad(s, COMP, good_body.encode("utf-16"))
    bad(s, COMP, good_body.encode("gbk"))
    good(s, COMP, good_body.encode())


@row("B11", "a body that is not an object")
def b11(s):
    for body in (b"[]", b"null", b'"x"', b"5", b"true"):
        bad(s, COMP, body)
        bad(s, CHAT, body)


INT, NUM, BOOL, STR, LIST, OBJ = "int", "num", "bool", "str", "list", "obj"
FIELDS = {  # field: the JSON types that may be valid for it
    "max_tokens": {INT}, "temperature": {INT, NUM}, "top_p": {INT, NUM}, "n": {INT}, "stream": {BOOL}, "stop": {STR, LIST},
    "presence_penalty": {INT, NUM}, "frequency_penalty": {INT, NUM}, "seed": {INT}, "logit_bias": {OBJ}, "top_k": {INT}, "min_p": {INT, NUM},
    "repetition_penalty": {INT, NUM}, "stop_token_ids": {LIST}, "ignore_eos": {BOOL}, "min_tokens": {INT}, "skip_special_tokens": {BOOL},
    "include_stop_str_in_output": {BOOL}, "truncate_prompt_tokens": {INT}, "allowed_token_ids": {LIST}, "bad_words": {LIST}, "echo": {BOOL},
    "priority": {INT}, "return_token_ids": {BOOL}, "cache_salt": {STR}, "request_id": {STR}, "return_tokens_as_token_ids": {BOOL},
    "stream_options": {OBJ}, "spaces_between_special_tokens": {BOOL}, "prompt_logprobs": {INT}, "add_special_tokens": {BOOL},
}
VALUES = [(BOOL, True), (INT, -7), (NUM, 0.123), (STR, "x"), (LIST, [{}]), (OBJ, {"a": {"b": 1}}), (INT, 2**63 - 1), (NUM, 1e308)]


@row("B12", "every field with every type")
def b12(s):
    for field, types in FIELDS.items():
        for path, base in ((CHAT, chat()), (COMP, comp())):
            r = s.post(path, {**base, field: None})
            assert r.status == 200, "%s: null is not its default: %r" % (field, r.body[:200])
            for t, v in VALUES:
                r = s.post(path, {**base, field: v})
                assert r.status in (200, 400), (field, v, r)
                if t not in types and not (t == NUM and INT in types and float(v).is_integer() and v < 2**53):
                    assert r.status == 400, "%s accepted %r: %r" % (field, v, r.body[:100])
                if r.status == 400:
                    p = r.error["param"]
                    assert p and (p.startswith(field) or field == "stream_options"), "%s=%r gives param %r: %s" % (field, v, p, r.error["message"])
    for v in (True, 5, "Hi", {}, [5], [[]], [{}]):
        bad(s, CHAT, {"messages": v, "max_tokens": 1})
    for v in (True, 5, {}, [{}], [True], [[True]]):
        bad(s, COMP, {"prompt": v, "max_tokens": 1})


@row("B13", "unknown fields are ignored and counted")
def b13(s):
    before = s.metric("spillway:unknown_fields_total")
    good(s, CHAT, chat(some_vendor_field={"a": [1, 2]}, another=1))
    assert s.metric("spillway:unknown_fields_total") == before + 2


@row("B14", "a 30 MB string")
def b14(s):
    body = json.dumps(chat(messages=[{"role": "user", "content": "all work and no play " * 1_400_000}])).encode()
    slow = []

    def ping():
        while not done:
            t = time.monotonic()
            assert s.get("/ping").status == 200
            slow.append(time.monotonic() - t)
            time.sleep(0.01)

    done = []
    t = threading.Thread(target=ping)
    t.start()
    e = bad(s, CHAT, body)
    done.append(1)
    t.join()
    assert e["code"] == "context_length_exceeded", e
    assert slow and max(slow) < 2.0 * slower(), "ping took %.2f s" % max(slow)


@row("B15", "10^5 messages, 10^5 parts")
def b15(s):
    bad(s, CHAT, chat(messages=MSG * 100000), "messages")
    bad(s, CHAT, chat(messages=[{"role": "user", "content": [{"type": "text", "text": "x"}] * 100000}]))


@row("B16", "unknown model")
def b16(s):
    e = bad(s, CHAT, chat(model="no-such-model"), "model", 404)
    assert e["code"] in ("model_not_found", 404), e
    bad(s, COMP, comp(model="no-such-model"), "model", 404)
    bad(s, CHAT, chat(model=5), "model")
    name = s.get("/v1/models").json["data"][0]["id"]
    good(s, CHAT, chat(model=name))


@row("B17", "messages that are not messages")
def b17(s):
    for m in ([], [{}], [{"role": "wizard", "content": "x"}], [{"content": "x"}], [{"role": "user"}], [{"role": "user", "content": None}],
              [{"role": "tool", "content": "x"}], [{"role": "user", "content": 5}], [{"role": 5, "content": "x"}], ["x"], [None],
              [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "what", "text": "x"}]}]):
        bad(s, CHAT, chat(messages=m))
    bad(s, CHAT, {"max_tokens": 1}, "messages")


@row("B18", "prompts that are not prompts")
def b18(s):
    for p in ([], [[]], ["a", 5], [5, "a"], [["a"]], [[5], "a"], ["x"] * 129, None):
        bad(s, COMP, comp(prompt=p), "prompt")
    bad(s, COMP, {"max_tokens": 1}, "prompt")
    r = s.post(COMP, comp(prompt=""))
    assert r.status in (200, 400), r  # 200 only for a model with a BOS id


@row("B19", "token ids out of range")
def b19(s):
    for v in (-1, 2**24, 2**31, 2**53 + 1, 1.5, 1e300):
        bad(s, COMP, comp(prompt=[5, v]), "prompt")
        bad(s, COMP, comp(prompt=[[5, v]]), "prompt")


@row("B20", "max_tokens")
def b20(s):
    for v in (0, -1, 2**31, 2**63 - 1):
        bad(s, CHAT, chat(max_tokens=v))
        bad(s, CHAT, {"messages": MSG, "max_completion_tokens": v})
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":9223372036854775808}')
    bad(s, COMP, comp(max_tokens=2048), None)
    r = s.post(CHAT, {"messages": MSG, "max_tokens": None, "stop": [".", "!", "?", " "]})
    assert r.status == 200, r


@row("B21", "n and best_of")
def b21(s):
    for v in (0, -1, 17, 10**6, 2**31, 2**62):
        bad(s, CHAT, chat(n=v, temperature=1), "n")
    for v in (-1, 10**6):
        bad(s, COMP, comp(best_of=v), "best_of")


@row("B22", "the product n x max_tokens x top_logprobs")
def b22(s):
    e = bad(s, COMP, {"prompt": ["Hi"] * 128, "n": 16, "temperature": 1, "max_tokens": 2000, "logprobs": 20})
    assert "budget" in e["message"] or "too" in e["message"], e


@row("B23", "top_logprobs and logprobs out of range")
def b23(s):
    for v in (21, 10**6, -2, 2**40):
        bad(s, CHAT, chat(logprobs=True, top_logprobs=v), "top_logprobs")
        bad(s, COMP, comp(logprobs=v), "logprobs")
    bad(s, CHAT, chat(top_logprobs=2), ("top_logprobs", "logprobs"))


@row("B24", "echo with logprobs on a long prompt")
def b24(s):
    ids = s.post("/tokenize", {"prompt": "once upon a time there was a fox " * 300}).json["tokens"][:2000]
    r = good(s, COMP, {"prompt": ids, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0})
    lp = r["choices"][0]["logprobs"]
    assert len(lp["tokens"]) == len(ids) + 1 and lp["token_logprobs"][0] is None
    short = good(s, COMP, {"prompt": ids[:40], "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0})["choices"][0]["logprobs"]
    assert short["token_logprobs"][:40] == lp["token_logprobs"][:40], "a prefix's logprobs depend on what follows"


@row("B25", "temperature")
def b25(s):
    for v in (-1, 2.1, 1e9, 1e308, -1e-300):
        bad(s, CHAT, chat(temperature=v), "temperature")
    a = good(s, CHAT, chat(temperature=1e-300, max_tokens=8))
    b = good(s, CHAT, chat(temperature=0, max_tokens=8))
    assert a["choices"][0]["message"]["content"] == b["choices"][0]["message"]["content"]


@row("B26", "top_p, top_k, min_p, penalties")
def b26(s):
    for f, vs in {"top_p": (0, 2, -0.1), "top_k": (-5, 2**31, 2**40), "min_p": (-0.1, 1.1), "presence_penalty": (-2.1, 2.1, 1e9, -1e9),
                  "frequency_penalty": (-2.1, 2.1, 1e9), "repetition_penalty": (0, -1, 1e9)}.items():
        for v in vs:
            bad(s, CHAT, chat(**{f: v}), f)
    good(s, CHAT, chat(top_p=1e-9, top_k=1, min_p=1, presence_penalty=2, frequency_penalty=-2, repetition_penalty=1.5, temperature=2))


@row("B27", "seed")
def b27(s):
    bad(s, COMP, b'{"prompt":"Hi","max_tokens":1,"seed":9223372036854775808}')
    bad(s, CHAT, chat(seed=1.5), "seed")
    for v in (0, -1, 2**63 - 1, -(2**63)):
        good(s, CHAT, chat(seed=v))


@row("B28", "logit_bias")
def b28(s):
    for v in ({"AI": 1}, {"99999999": 1}, {"-1": 1}, {"5": "x"}, {"5": 1e308}, {"5": None}, {str(i): 1 for i in range(1025)}, {"5.5": 1}, {"": 1}):
        if v == {"5": 1e308}:
            r = s.post(CHAT, chat(logit_bias=v))
            assert r.status in (200, 400), r
            continue
        bad(s, CHAT, chat(logit_bias=v), "logit_bias")
    bad(s, CHAT, json.dumps(chat()).encode()[:-1] + b',"logit_bias":{' + b",".join(b'"%d":1' % i for i in range(10**5)) + b"}}", "logit_bias")
    good(s, CHAT, chat(logit_bias={"5": -100}))


@row("B29", "stop")
def b29(s):
    for v in ("", [""], ["x"] * 17, ["x"] * 10**4, ["x" * 257], ["x" * 10**6], [5]):
        bad(s, CHAT, chat(stop=v), "stop")
    good(s, CHAT, chat(stop=["x" * 256] * 16))


@row("B30", "stop_token_ids")
def b30(s):
    for v in ([-1], [2**24], [2**31], [1.5], ["a"]):
        bad(s, CHAT, chat(stop_token_ids=v), "stop_token_ids")


@row("B31", "integers that are negative or huge")
def b31(s):
    for f in ("max_tokens", "n", "top_k", "min_tokens", "top_logprobs", "truncate_prompt_tokens", "prompt_logprobs"):
        for v in (-(2**31), -(2**63), 2**31, 2**53 + 1):
            bad(s, CHAT, chat(**{f: v}), f)


@row("B32", "stream_options without stream; stream with what cannot stream")
def b32(s):
    bad(s, CHAT, chat(stream_options={"include_usage": True}), "stream_options")
    bad(s, CHAT, chat(stream=False, stream_options={"include_usage": True}), "stream_options")
    bad(s, CHAT, chat(stream=True, prompt_logprobs=1), "prompt_logprobs")


@row("B33", "response_format of a wrong shape")
def b33(s):
    for v in (5, "json", {}, {"type": "x"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "#"}}},
              {"type": "json_schema", "json_schema": {"name": "a", "schema": {"$ref": "http://localhost/x"}}}):
        bad(s, CHAT, chat(response_format=v), "response_format")
    good(s, CHAT, chat(response_format={"type": "text"}))


@row("B34", "too many tools, too long descriptions")
def b34(s):
    t = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}}
    bad(s, CHAT, chat(tools=[t] * 10**4), "tools")
    bad(s, CHAT, chat(tools=[{"type": "function", "function": {"name": "f", "description": "d" * 2 * 10**6}}]), "tools")
    bad(s, CHAT, chat(tools=[{"type": "function", "function": {"name": "f", "description": "d" * 10**6}}]))
    # one bad pattern does not take the tools from an agent that has a hundred: nothing is enforced, so nothing is compiled
    good(s, CHAT, chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "foo", "pattern": "("}}}]))


@row("B35", "tool_choice without tools")
def b35(s):
    for v in ("required", "auto", {"type": "function", "function": {"name": "f"}}):
        bad(s, CHAT, chat(tool_choice=v), "tool_choice")


@row("B36", "images, audio and files on a text model; no socket is opened")
def b36(s):
    for part in ({"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}, {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
                 {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, {"type": "file", "file": {"file_id": "x"}},
                 {"type": "video_url", "video_url": {"url": "http://127.0.0.1:1/"}}):
        bad(s, CHAT, chat(messages=[{"role": "user", "content": [part]}]))
    with open("/proc/%d/net/tcp" % s.proc.pid) as f:
        out = [x.split() for x in f.read().split("\n")[1:] if x]
    assert not any(x[3] == "02" for x in out if x[2].endswith(":0001")), "a connection was tried"


@row("B37", "chat_template and its kwargs from the client")
def b37(s):
    bad(s, CHAT, chat(chat_template="{{ 1 }}"), "chat_template")
    for k in ("tokenize", "chat_template", "__class__", "messages", "add_generation_prompt"):
        bad(s, CHAT, chat(chat_template_kwargs={k: True}), "chat_template_kwargs")
    bad(s, CHAT, chat(chat_template_kwargs={"enable_thinking": {"a": 1}}), "chat_template_kwargs")
    good(s, CHAT, chat(chat_template_kwargs={"enable_thinking": False}))
    good(s, CHAT, chat(chat_template_kwargs={"enable_thinking": "x" * 100000}))


@row("B38", "prompt_embeds and serialized tensors")
def b38(s):
    bad(s, COMP, comp(prompt_embeds="AAAA"), "prompt_embeds")
    bad(s, CHAT, chat(messages=[{"role": "user", "content": [{"type": "prompt_embeds", "prompt_embeds": "AAAA"}]}]))


@row("B39", "cache_salt")
def b39(s):
    for v in ("", "a\x00b", "x" * 257, "x" * 10**6):
        bad(s, CHAT, chat(cache_salt=v), "cache_salt")
    good(s, CHAT, chat(cache_salt="tenant-1"))


@row("B40", "min_tokens over max_tokens; ignore_eos without a limit")
def b40(s):
    bad(s, CHAT, chat(min_tokens=5, max_tokens=2), "min_tokens")
    r = good(s, COMP, {"prompt": "word " * 900, "ignore_eos": True, "max_tokens": None, "temperature": 0})
    assert r["choices"][0]["finish_reason"] == "length"
    assert r["usage"]["total_tokens"] <= 2048


@row("B41", "/tokenize and /detokenize with too much or ids out of range")
def b41(s):
    c = s.conn()  # the refusal comes before the body is sent: read it all the same
    c.send(post_bytes("/tokenize", json.dumps({"prompt": "x " * 15_000_000}).encode()))
    assert c.read_reply().status in (400, 413)
    c.close()
    for v in ([-1], [2**24], [2**31], [1.5], ["a"], "x"):
        bad(s, "/detokenize", {"tokens": v}, "tokens")
    assert s.post("/detokenize", {"tokens": s.post("/tokenize", {"prompt": "Hello"}).json["tokens"]}).json["prompt"] == "Hello"


@row("B42", "priority and deadline out of range")
def b42(s):
    for v in (2**31, -(2**40), 1.5, "high"):
        bad(s, CHAT, chat(priority=v), "priority")
    bad(s, CHAT, chat(priority=1), "priority")  # priority scheduling is off by default
