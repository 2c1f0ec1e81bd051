"""Layer J of the fault table, as far as the server without TLS and peers can show it."""

import http.client
import json
import os
import signal
import tempfile
import subprocess
import time

from harness import BINARY, PATIENCE, SMALL, Server, eventually, free_port, post_bytes, row


@row("J1", "every route with no key, a wrong one, a prefix, an empty one, a huge one, Basic, two headers, in the query", own=True)
def j1(_):
    key = "sk-0123456789abcdef0123456789abcdef"
    s = Server("--api-key", key, "--max-key-failures", "0")
    try:
        guarded = (("POST", "/v1/chat/completions"), ("POST", "/v1/completions"), ("GET", "/v1/models"), ("GET", "/v1/models/pebble"), ("POST", "/tokenize"),
                   ("POST", "/detokenize"), ("POST", "/invocations"), ("POST", "/v1/responses"), ("POST", "/v1/responses/input_tokens"),
                   ("GET", "/v1/responses/resp_1"), ("GET", "/v1/responses/resp_1/input_items"))
        for method, path in guarded:
            body = SMALL if method == "POST" else b""
            for extra in ([], ["Authorization: Bearer wrong"], ["Authorization: Bearer " + key[:-1]], ["Authorization: Bearer " + key + "x"], ["Authorization: Bearer "],
                          ["Authorization: Basic " + key], ["Authorization: " + key], ["Authorization: Bearer " + "x" * 7000],
                          ["Authorization: Bearer wrong", "Authorization: Bearer " + key], ["x-api-key: wrong"]):
                head = "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (method, path, len(body))
                r, _ = s.one((head + "".join(x + "\r\n" for x in extra) + "\r\n").encode() + body)
                assert r.status in ((400, 401) if len(extra) == 2 else (401,)), (path, extra, r)
            r, _ = s.one(("%s %s?api_key=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % (method, path, key)).encode())
            assert r.status == 401, (path, r)
        for path in ("/ping", "/livez", "/health"):
            assert s.get(path).status == 200
        ok = s.request("POST", "/v1/completions", SMALL, {"Authorization": "Bearer " + key})
        assert ok.status == 200
    finally:
        s.stop()


@row("J26", "stored responses: another key asks for an id in each way, a body refers to a deleted one, and a key fills its share", own=True)
def j26(_):
    keys = ["sk-of-the-victim-0123456789", "sk-of-the-twin-0123456789"]
    s = Server("--api-key", keys[0], "--api-key", keys[1], "--response-store-mib", "1")
    bulk = {"k%d" % i: "v" * 512 for i in range(16)}  # 8 KiB of a share of 1 MiB

    def ask(who, method, path, body=None):
        r = s.request(method, path, body, {"Authorization": "Bearer " + keys[who]})
        return r.status, json.loads(r.body)

    def create(who, text, **more):
        return ask(who, "POST", "/v1/responses", dict({"input": text, "max_output_tokens": 1, "temperature": 0}, **more))

    def arena(name):
        return float(next(x.split()[-1] for x in s.get("/metrics").body.decode().split("\n") if x.startswith("spillway:arena_%s_bytes{" % name) and '"responses"' in x))

    try:
        status, mine = create(0, "a secret: 4711")
        assert status == 200 and mine["store"] is True, mine
        id = mine["id"]
        for wrong in (id, id[:-1], id + "0", "resp_" + "0" * 32, "resp_%00", "x" * 1500):
            for method, tail in (("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")):
                status, got = ask(1, method, "/v1/responses/" + wrong + tail)
                assert status == 404 and "4711" not in json.dumps(got), (method, wrong[:50], status)
            for form in ({"previous_response_id": wrong}, {"previous_response_id": wrong, "stream": True}):
                status, got = create(1, "x", **form)
                assert status == 404 and got["error"]["code"] == "previous_response_not_found", got
        # the twin fills its own share many times over; the victim's response stays, and nothing grows
        reserved = arena("reserved")
        assert reserved == 2 << 20
        ids = []
        for _ in range(300):
            status, got = create(1, "x", metadata=bulk)
            assert status == 200 and got["store"] is True, got
            ids.append(got["id"])
        assert 1 << 19 < arena("used") <= reserved == arena("reserved")
        assert ask(1, "GET", "/v1/responses/" + ids[-1])[0] == 200 and ask(1, "GET", "/v1/responses/" + ids[0])[0] == 404
        assert ask(0, "GET", "/v1/responses/" + id)[1] == mine
        # a conversation that outgrows the share is answered, and says that it is not stored
        status, got = create(0, "x", previous_response_id=id)
        for _ in range(200):
            before = got["id"]
            status, got = create(0, "x", metadata=bulk, previous_response_id=before)
            assert status == 200, got
            if not got["store"]:
                break
        assert got["store"] is False and ask(0, "GET", "/v1/responses/" + got["id"])[0] == 404
        status, deleted = ask(0, "DELETE", "/v1/responses/" + before)
        assert status == 200 and deleted == {"id": before, "object": "response.deleted", "deleted": True}
        assert create(0, "x", previous_response_id=before)[0] == 404
        assert ask(0, "GET", "/v1/responses/" + id)[1] == mine
    finally:
        s.stop()


@row("J5", "brute force: after ten wrong keys an address has one try a second, others and keys that worked are not touched", own=True)
def j5(_):
    key = "sk-0123456789abcdef0123456789abcdef"
    s = Server("--api-key", key)

    def ask(sent, source="127.0.0.1"):
        c = http.client.HTTPConnection("127.0.0.1", s.port, timeout=PATIENCE, source_address=(source, 0))
        c.request("GET", "/v1/models", None, {"x-api-key": sent})
        status = c.getresponse().status
        c.close()
        return status

    try:
        began = time.monotonic()
        got = [ask("wrong-%d" % i) for i in range(60)]
        allowed = 10 + int(time.monotonic() - began) + 1
        assert got[:10] == [401] * 10 and set(got) == {401, 429} and got.count(401) <= allowed, got
        assert ask(key, "127.0.0.2") == 200  # another address
        assert ask("wrong", "127.0.0.2") == 401
        eventually(lambda: ask(key) == 200, "a try comes back")
        assert 429 in [ask("wrong") for _ in range(20)]
        assert ask(key) == 200  # it was right from here, so it passes at once
        assert s.metric("spillway:auth_failures_total") >= 60
        with open(s.log_path) as f:
            log = f.read()
        assert "a wrong key from 127.0.0.1" in log and "wrong-" not in log and key not in log
    finally:
        s.stop()


@row("J6", "keys are exchanged without a restart", own=True)
def j6(_):
    import signal
    import tempfile

    fd, path = tempfile.mkstemp()
    os.write(fd, b"sk-old-0123456789abcdef0123456789\n")
    os.close(fd)
    s = Server("--api-key-file", path)
    try:
        ask = lambda k: s.request("POST", "/v1/completions", SMALL, {"Authorization": "Bearer " + k}).status
        assert ask("sk-old-0123456789abcdef0123456789") == 200
        with open(path, "w") as f:
            f.write("sk-new-0123456789abcdef0123456789\n")
        s.proc.send_signal(signal.SIGHUP)
        eventually(lambda: ask("sk-new-0123456789abcdef0123456789") == 200, "the new key works")
        assert ask("sk-old-0123456789abcdef0123456789") == 401
    finally:
        s.stop()
        os.unlink(path)


@row("J7", "admin verbs are not there")
def j7(s):
    for path in ("/pause", "/resume", "/sleep", "/wake_up", "/collective_rpc", "/update_weights", "/server_info", "/reset_prefix_cache", "/v1/load_lora_adapter",
                 "/shutdown", "/admin", "/start_profile"):
        for method in ("GET", "POST"):
            assert s.request(method, path, b"{}" if method == "POST" else None).status == 404, path


@row("J8", "an address beyond loopback needs a key", own=True)
def j8(_):
    p = subprocess.run([BINARY, "--host", "0.0.0.0", "--port", str(free_port())], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
    out = (p.stdout + p.stderr).decode()
    assert p.returncode in (64, 78) and "api-key" in out, (p.returncode, out)
    s = Server("--host", "0.0.0.0", "--api-key", "sk-0123456789abcdef0123456789")
    s.stop()


@row("J9", "foreign Host on a loopback bind; Origin")
def j9(s):
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "169.254.169.254"):
        r, _ = s.one(b"GET /v1/models HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n")
        assert r.status in (403, 421), (host, r)
    for host in ("localhost", "127.0.0.1", "localhost:%d" % s.port, "[::1]"):
        r, _ = s.one(b"GET /v1/models HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n")
        assert r.status == 200, (host, r)
    r, _ = s.one(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\r\n")
    assert not r.header("access-control-allow-origin")


@row("J14", "errors show no pointer, path or symbol")
def j14(s):
    import re

    for path, body in (("/v1/completions", b"{"), ("/v1/completions", b'{"prompt":5}'), ("/v1/chat/completions", b'{"messages":[{}]}'), ("/nope", b"{}"),
                       ("/v1/chat/completions", b'{"messages":[{"role":"user","content":"x"}],"model":"../../etc/passwd"}'), ("/tokenize", b'{"prompt":5}')):
        r = s.request("POST", path, body)
        text = r.body.decode()
        assert not re.search(r"0x[0-9a-f]{6,}|/usr/|/home/|/root/|\.c:\d+|/build/", text), text
        assert r.status < 500


@row("J16", "keys, prompts and completions are not in the log or the metrics", own=True)
def j16(_):
    s = Server("--api-key", "sk-CANARYKEY0123456789abcdef", "--log-level", "trace")
    try:
        h = {"Authorization": "Bearer sk-CANARYKEY0123456789abcdef"}
        r = s.request("POST", "/v1/completions", json.dumps({"prompt": "CANARYPROMPT CANARYPROMPT", "max_tokens": 30, "temperature": 0, "echo": True}).encode(), h)
        assert r.status == 200 and "CANARYPROMPT" in r.body.decode()
        s.request("POST", "/v1/completions", b'{"prompt":"CANARYPROMPT","max_tokens":"CANARYVALUE"}', h)
        s.request("POST", "/v1/completions", b'{"prompt":"CANARYPROMPT"', h)
        said = s.get("/metrics", headers=h).body
        with open(s.log_path, "rb") as f:
            said += f.read()
        with open("/proc/%d/cmdline" % s.proc.pid, "rb") as f:
            pass
        for word in (b"CANARYKEY", b"CANARYPROMPT", b"CANARYVALUE"):
            assert word not in said, "%r is in %r" % (word, said[max(0, said.find(word) - 100) : said.find(word) + 50])
    finally:
        s.stop()


@row("J19", "X-Forwarded-For is not believed")
def j19(s):
    r = s.request("POST", "/v1/completions", SMALL, {"X-Forwarded-For": "10.0.0.1"})
    assert r.status == 200
    with open(s.log_path, "rb") as f:
        assert b"10.0.0.1" not in f.read()


@row("J23", "/metrics beyond loopback wants a key, unless --open-metrics", own=True)
def j23(_):
    key = "sk-0123456789abcdef"
    for more, want in (([], 401), (["--open-metrics"], 200)):
        s = Server("--host", "0.0.0.0", "--api-key", key, *more)
        try:
            assert s.get("/metrics").status == want
            assert s.get("/metrics", headers={"Authorization": "Bearer " + key}).status == 200
            assert s.get("/ping").status == 200
        finally:
            s.stop()


@row("J24", "the key file is emptied or deleted: with --api-key-file-empty deny no key is valid, and the log says so", own=True)
def j24(_):
    for mode, after in (("keep", 200), ("deny", 401)):
        fd, path = tempfile.mkstemp()
        os.write(fd, b"sk-0123456789abcdef\n")
        os.close(fd)
        s = Server("--api-key-file", path, "--api-key-file-empty", mode)
        try:
            ask = lambda: s.request("POST", "/v1/completions", SMALL, {"Authorization": "Bearer sk-0123456789abcdef"}).status
            assert ask() == 200
            for empty in (lambda: open(path, "w").close(), lambda: os.unlink(path)):
                size = os.path.getsize(s.log_path)
                empty()
                s.proc.send_signal(signal.SIGHUP)

                def said():
                    with open(s.log_path) as f:
                        f.seek(size)
                        return ("no key of it is valid" if mode == "deny" else "the old keys stay") in f.read()

                eventually(said, "the log says what it means")
                assert ask() == after, (mode, ask())
        finally:
            s.stop()


@row("J25", "a key of fewer than 16 bytes is refused on a public address", own=True)
def j25(_):
    fd, path = tempfile.mkstemp()
    os.write(fd, b"# keys\nsk-0123456789abc\n\nfifteen-bytes-1\n")
    os.close(fd)
    for args, code in ((["--api-key", "fifteen-bytes-1"], 64), (["--api-key-file", path], 78)):
        p = subprocess.run([BINARY, "--host", "0.0.0.0", "--port", str(free_port()), *args], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        out = (p.stdout + p.stderr).decode()
        assert p.returncode == code and "15 bytes" in out and "fifteen" not in out, (p.returncode, out)
    os.unlink(path)
