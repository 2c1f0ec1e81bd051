"""Layer A of the fault table: HTTP and connections (A43-A46 are TLS and wait for it).

Over 500 lines: a list of rows, one function each."""

import json
import os
import re
import resource
import socket
import struct
import threading
import time

from harness import PATIENCE, SMALL, Server, eventually, post_bytes, row, small_post, sse_text

REQ = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def refused(s, data, status=400, closed=True, timeout=PATIENCE):
    """Exactly one reply with that status, an error object, and the connection closed."""
    want = (status,) if isinstance(status, int) else status
    r, was_closed = s.one(data, timeout)
    assert r.status in want, "%r, want %s for %r" % (r, want, data[:120])
    assert r.error["message"], "no message"
    assert was_closed or not closed, "connection left open after %d for %r" % (r.status, data[:120])
    return r


def framed(headers, body=SMALL, version="1.1"):
    head = ("POST /v1/completions HTTP/%s\r\nHost: localhost\r\nContent-Type: application/json\r\n" % version).encode()
    return head + headers + b"\r\n" + body


def chunked(*chunks, last=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + last


def still_serves(s):
    assert s.request("POST", "/v1/completions", SMALL).status == 200


@row("A1", "both Content-Length and Transfer-Encoding")
def a1(s):
    n = b"Content-Length: %d\r\n" % len(SMALL)
    te = b"Transfer-Encoding: chunked\r\n"
    refused(s, framed(n + te, chunked(SMALL)))
    refused(s, framed(te + n, chunked(SMALL)))


@row("A2", "Transfer-Encoding twice")
def a2(s):
    for te in (b"chunked, chunked", b"chunkedchunked", b"chunked\r\nTransfer-Encoding: chunked"):
        refused(s, framed(b"Transfer-Encoding: " + te + b"\r\n", chunked(SMALL)))


@row("A3", "unknown Transfer-Encoding")
def a3(s):
    for te in (b"gzip, chunked", b"identity", b"xchunked", b"chunked;ext=1", b"gzip"):
        refused(s, framed(b"Transfer-Encoding: " + te + b"\r\n", chunked(SMALL)))


@row("A4", "Transfer-Encoding with odd bytes")
def a4(s):
    for line in (
        b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding: \x0bchunked",
        b"Transfer-Encoding: chunked\x0b",
        b"Transfer-Encoding: \x0cchunked",
        b"Transfer-Encoding: chunked\x00",
        b"Transfer-Encoding: ,chunked",
        b"Transfer-Encoding: chunked,",
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding:",
    ):
        refused(s, framed(line + b"\r\n", chunked(SMALL)))


@row("A5", "Transfer-Encoding on HTTP/1.0")
def a5(s):
    refused(s, framed(b"Transfer-Encoding: chunked\r\n", chunked(SMALL), "1.0"))


@row("A6", "duplicate Content-Length")
def a6(s):
    n = len(SMALL)
    for line in (b"Content-Length: %d, %d" % (n, n), b"Content-Length: %d\r\nContent-Length: %d" % (n, n),
                 b"Content-Length: %d\r\nContent-Length: %d" % (n, n + 1)):
        refused(s, framed(line + b"\r\n"))


@row("A7", "Content-Length that is not plain digits")
def a7(s):
    for v in (b"+5", b"-0", b"0x5", b"5 5", b"", b"00005", b"9" * 25, b"18446744073709551616", b"-1", b"5a", b"1e3"):
        refused(s, framed(b"Content-Length: " + v + b"\r\n", b"{\"a\":"), (400,))
    refused(s, framed(b"Content-Length: 9000000000000000000\r\n"), 413)


@row("A8", "bare CR, bare LF, NUL, space before colon, folding")
def a8(s):
    n = b"Content-Length: %d\r\n" % len(SMALL)
    for line in (b"X-A: a\rb\r\n", b"X-A: a\nX-B: b\r\n", b"X-\x00A: a\r\n", b"X-A: a\x00b\r\n", b"X-A : a\r\n", b" X-A: a\r\n",
                 b"X-A: a\r\n b\r\n", b"X-A: a\r\n\tb\r\n", b"X A: a\r\n", b": a\r\n", b"X-A\r\n"):
        refused(s, framed(line + n))
    refused(s, b"POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Length: 2\n\n{}")


@row("A9", "chunk sizes that are not plain hex")
def a9(s):
    te = b"Transfer-Encoding: chunked\r\n"
    for size in (b"0x5", b"+5", b"-1", b"_5", b" 5", b"5 ", b"1" * 17, b"g", b""):
        refused(s, framed(te, size + b"\r\nhello\r\n0\r\n\r\n"), (400, 413))
    refused(s, framed(te, b"7fffffff\r\nhello"), 413)


@row("A10", "chunk extensions")
def a10(s):
    te = b"Transfer-Encoding: chunked\r\n"
    size = b"%x" % len(SMALL)
    for ext in (b";", b";a\x00b", b";a\rb", b";a\nb", b";\x7f=1"):
        refused(s, framed(te, size + ext + b"\r\n" + SMALL + b"\r\n0\r\n\r\n"))
    refused(s, framed(te, size + b";a=" + b"x" * 5000 + b"\r\n" + SMALL + b"\r\n0\r\n\r\n"))


@row("A11", "many tiny chunks, chunk overhead")
def a11(s):
    te = b"Transfer-Encoding: chunked\r\n"
    body = b'{"prompt":"Hi","max_tokens":2,"user":"' + b"x" * (10**6 - 41) + b'"}'
    refused(s, framed(te, b"".join(b"1\r\n%c\r\n" % c for c in body) + b"0\r\n\r\n"))
    pieces = [body[i : i + 10] for i in range(0, len(body), 10)]
    r, _ = s.one(framed(te, chunked(*pieces)))
    assert r.status == 200, r
    ext = b"64;a=" + b"x" * 1024 + b"\r\n" + b"y" * 100 + b"\r\n"
    refused(s, framed(te, ext * 8 + b"0\r\n\r\n"))


@row("A12", "broken chunked body", slow=True)
def a12(s):
    te = b"Transfer-Encoding: chunked\r\n"
    before = s.metric("vllm:prompt_tokens_total")
    refused(s, framed(te, b"5\r\nhelloXX0\r\n\r\n"))
    for body in (b"5\r\nhel", b"5\r\nhello\r\n", b"5\r\nhello\r\n0\r\n"):
        c = s.conn()
        c.send(framed(te, body))
        c.sock.shutdown(socket.SHUT_WR)
        r = c.read_all(5)
        assert not r or r[0].status == 400, r
        assert c.closed
        c.close()
    assert s.metric("vllm:prompt_tokens_total") >= before


@row("A13", "trailers are dropped, and bounded")
def a13(s):
    te = b"Transfer-Encoding: chunked\r\n"
    for t in (b"Content-Length: 3", b"Transfer-Encoding: gzip", b"Host: evil", b"Authorization: Bearer x", b"X-A: b"):
        r, _ = s.one(framed(te, chunked(SMALL, last=b"0\r\n" + t + b"\r\n\r\n")))
        assert r.status == 200, (t, r)
    refused(s, framed(te, chunked(SMALL, last=b"0\r\n" + b"X-A: " + b"b" * 9000 + b"\r\n\r\n")), 431)


@row("A14", "100 pipelined POSTs are answered in order")
def a14(s):
    bodies = [json.dumps({"prompt": "Hi", "max_tokens": 1, "temperature": 0, "n": 1, "request_id": "pipe%d" % i}).encode() for i in range(100)]
    c = s.conn()
    c.send(b"".join(post_bytes("/v1/completions", b) for b in bodies))
    for i in range(100):
        r = c.read_reply(30)
        assert r.status == 200, r
        assert r.json["id"].endswith("pipe%d" % i), (i, r.json["id"])
    c.close()


@row("A15", "a request line of 1 MiB")
def a15(s):
    refused(s, b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414)
    refused(s, b"GET /" + b"a" * 2100 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414)


@row("A16", "a header without end, and endless headers")
def a16(s):
    before = s.rss_kib()
    for piece in (b"x" * 65536, b"X-A: b\r\n" * 8192):
        c = s.conn()
        c.sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        sent = 0
        try:
            for _ in range(200):
                c.sock.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        r = c.read_all(5)
        assert r and r[0].status == 431, r
        c.close()
    assert s.rss_kib() - before < 2048, "memory grew by %d KiB" % (s.rss_kib() - before)


@row("A17", "unknown method, known method on the wrong route")
def a17(s):
    r, _ = s.one(b"BREW /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert r.status in (400, 501), r
    r, _ = s.one(b"PUT /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    assert r.status == 405 and "GET" in r.header("allow"), r
    r, _ = s.one(b"GET /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert r.status == 405 and "POST" in r.header("allow"), r
    r, _ = s.one(b"PROPFIND /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert r.status == 501, r


@row("A18", "paths that are not routes")
def a18(s):
    for path in ("/nope", "/v1//models", "/v1/models/", "/V1/models", "/health/", "//health", "/v1"):
        r = s.get(path)
        assert r.status == 404, (path, r)
        assert r.error["message"]


@row("A19", "hostile URLs")
def a19(s):
    for path in (b"/../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/%00", b"/a\\b", b"/%c0%ae%c0%ae/", b"/%0d%0aX-A:b", b"/v1/models/../../health",
                 b"/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd"):
        r, _ = s.one(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert r.status in (400, 404), (path, r)
        assert b"root:" not in r.body and not r.header("x-a")
    for f in os.listdir("/proc/%d/fd" % s.proc.pid):
        try:
            assert "passwd" not in os.readlink("/proc/%d/fd/%s" % (s.proc.pid, f))
        except FileNotFoundError:
            pass  # a connection's, closed since the folder was read


@row("A20", "Host missing, twice, or bad")
def a20(s):
    for h in (b"", b"Host: localhost\r\nHost: localhost\r\n", b"Host: a b\r\n", b"Host: a/b\r\n", b"Host: loc@alhost\r\n"):
        refused(s, b"GET /health HTTP/1.1\r\n" + h + b"\r\n", 400)


@row("A21", "absolute-form URI with another Host")
def a21(s):
    refused(s, b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)


@row("A22", "versions that are not 1.0 or 1.1")
def a22(s):
    for line in (b"GET /health HTTP/1.2\r\n", b"GET /health HTTP/3.0\r\n", b"GET /health HTTP/0.9\r\n", b"GET /health HTTP/2.0\r\n"):
        refused(s, line + b"Host: localhost\r\n\r\n", (400, 505))
    refused(s, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 505))
    r, closed = s.raw(b"GET /health\r\n\r\n", 3)
    assert closed and (not r or r[0].status in (400, 505)), r


@row("A23", "HTTP/1.0 client that streams")
def a23(s):
    body = json.dumps({"prompt": "Hi", "max_tokens": 4, "temperature": 0, "stream": True}).encode()
    c = s.conn()
    c.send(post_bytes("/v1/completions", body, version="1.0"))
    r = c.read_all(10)[0]
    assert r.status == 200 and c.closed and not r.header("transfer-encoding"), r
    sse_text(r.body)
    c.close()


@row("A24", "Upgrade is ignored")
def a24(s):
    for up in (b"h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__", b"websocket\r\nSec-WebSocket-Key: x"):
        r, _ = s.one(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + up + b"\r\n\r\n")
        assert r.status == 200, r


@row("A25", "CONNECT and TRACE")
def a25(s):
    for line in (b"CONNECT localhost:80 HTTP/1.1", b"TRACE /health HTTP/1.1"):
        r, _ = s.one(line + b"\r\nHost: localhost\r\n\r\n")
        assert r.status in (405, 501), r


@row("A26", "Expect: 100-continue", own=True)
def a26(_):
    s = Server("--api-key", "sk-right")
    try:
        auth = "Authorization: Bearer sk-right"
        c = s.conn()
        c.send(post_bytes("/v1/completions", SMALL, [auth, "Expect: 100-continue"])[: -len(SMALL)])
        c.sock.settimeout(5)
        assert c.sock.recv(1000).startswith(b"HTTP/1.1 100"), "no 100 Continue"
        c.send(SMALL)
        assert c.read_reply().status == 200
        c.close()
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s"
        for extra, status in ((auth + "\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n", 413),
                              ("Expect: 100-continue\r\nContent-Length: 10\r\n\r\n", 401),
                              (auth + "\r\nExpect: tea\r\nContent-Length: 10\r\n\r\n", 417)):
            c = s.conn()
            c.send((head % extra).encode())
            r = c.read_reply()
            assert r.status == status, (status, r)
            c.close()
    finally:
        s.stop()


@row("A27", "Content-Length over the limit is refused from the headers")
def a27(s):
    c = s.conn()
    c.send(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 100000)
    r = c.read_all(5)
    assert r and r[0].status == 413, r
    assert c.closed
    c.close()


@row("A28", "a chunked body that crosses the limit")
def a28(s):
    c = s.conn()
    piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    c.send(REQ + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(34):
        c.send(piece)
    r = c.read_all(5)
    assert r and r[0].status == 413 and c.closed, r
    c.close()


@row("A29", "POST without a body")
def a29(s):
    r, _ = s.one(REQ + b"\r\n")
    assert r.status == 400 and "body" in r.error["message"], r


@row("A30", "a body shorter than promised", slow=True)
def a30(s):
    before = s.metric("vllm:prompt_tokens_total")
    c = s.conn()
    c.send(REQ + b"Content-Length: 100\r\n\r\n{}")
    c.sock.shutdown(socket.SHUT_WR)
    r = c.read_all(5)
    assert (not r or r[0].status == 400) and c.closed, r
    c.close()
    c = s.conn()
    c.send(REQ + b"Content-Length: 100\r\n\r\n{}")
    r = c.read_all(25)
    assert r and r[0].status == 408 and c.closed, r
    c.close()
    assert before >= 0


def raise_nofile(n):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(n, hard)
    if soft < n:
        resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
    return n


@row("A31", "slowloris: thousands of connections that drip a header", own=True)
def a31(_):
    room = raise_nofile(12000) - 500
    n = min(10000, room)
    s = Server(preexec=lambda: raise_nofile(12000))
    try:
        want = s.complete("The capital of France is", max_tokens=16, temperature=0).json["choices"][0]["text"]
        conns = []
        for _ in range(n):
            k = socket.socket()
            k.connect(("127.0.0.1", s.port))
            k.sendall(b"GET /health HTTP/1.1\r\nX-A: ")
            conns.append(k)
        t0 = time.monotonic()
        open_conns = conns
        while open_conns and time.monotonic() - t0 < PATIENCE:
            got = s.complete("The capital of France is", max_tokens=16, temperature=0).json["choices"][0]["text"]
            assert got == want
            left = []
            for k in open_conns:
                try:
                    k.send(b"x")
                    k.setblocking(False)
                    d = k.recv(4096)
                    if d:
                        assert b" 408 " in d.split(b"\r\n")[0], d[:60]
                except BlockingIOError:
                    left.append(k)
                except OSError:
                    pass
                finally:
                    k.setblocking(True)
            open_conns = left
            time.sleep(1.0)
        assert not open_conns, "%d of %d still open" % (len(open_conns), n)
        for k in conns:
            k.close()
    finally:
        s.stop()


@row("A32", "a body of one byte a second", slow=True)
def a32(s):
    c = s.conn()
    c.send(REQ + b"Content-Length: 5000\r\n\r\n")
    t0 = time.monotonic()
    c.sock.settimeout(1.0)
    got = b""
    while time.monotonic() - t0 < PATIENCE:
        try:
            c.sock.send(b" ")
            d = c.sock.recv(4096)
            got += d
            if got or not d:
                break
        except socket.timeout:
            continue
        except OSError:
            break
    assert b" 408 " in got[:20], (got[:100], time.monotonic() - t0)
    c.close()


@row("A33", "10,000 connections that say nothing", own=True)
def a33(_):
    n = min(10000, raise_nofile(12000) - 500)
    s = Server(preexec=lambda: raise_nofile(12000))
    try:
        still_serves(s)
        before = s.rss_kib()
        conns = []
        for _ in range(n):
            k = socket.socket()
            k.connect(("127.0.0.1", s.port))
            conns.append(k)
        still_serves(s)
        grew = (s.rss_kib() - before) / n
        assert grew <= 16, "%.1f KiB a connection" % grew
        eventually(lambda: len(os.listdir("/proc/%d/fd" % s.proc.pid)) < 100, "silent connections closed")
        for k in conns:
            k.close()
    finally:
        s.stop()


@row("A34", "more connections than the cap", own=True)
def a34(_):
    s = Server("--max-connections", "64")
    try:
        idle = []
        for _ in range(60):
            k = s.conn()
            k.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            k.read_reply()
            idle.append(k)
        for _ in range(30):  # past the cap: the oldest idle ones make room
            still_serves(s)
        busy = []
        for _ in range(100):  # none of these is idle: the hard cap answers 503
            k = s.conn()
            k.send(b"GET /health HTTP/1.1\r\nX-A: ")
            busy.append(k)
        last = s.conn()
        r = last.read_all()
        assert last.closed and (not r or r[0].status == 503), r
        for k in idle + busy:
            k.close()
        eventually(lambda: s.get("/health").status == 200, "serves again")
        still_serves(s)
    finally:
        s.stop()


@row("A35", "accept fails for want of file descriptors", own=True)
def a35(_):
    s = Server(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    try:
        stream = s.conn()
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
        stream.send(post_bytes("/v1/completions", body))
        held = []
        for _ in range(200):
            k = socket.socket()
            k.settimeout(PATIENCE)
            k.connect(("127.0.0.1", s.port))
            held.append(k)
        time.sleep(0.5)
        with open("/proc/%d/stat" % s.proc.pid) as f:
            assert f.read().split()[2] != "Z"
        for k in held:
            k.close()
        r = stream.read_reply()
        assert r.status == 200
        sse_text(r.body)
        stream.close()
        eventually(lambda: s.get("/health").status == 200, "serves again")
    finally:
        s.stop()


@row("A36", "a storm of connect and reset")
def a36(s):
    before = len(os.listdir("/proc/%d/fd" % s.proc.pid))
    log0 = os.path.getsize(s.log_path)
    for _ in range(5000):
        k = socket.socket()
        k.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        k.connect(("127.0.0.1", s.port))
        k.close()
    eventually(lambda: len(os.listdir("/proc/%d/fd" % s.proc.pid)) <= before + 8, "no fd is left")
    assert os.path.getsize(s.log_path) - log0 < 20000, "the log is not rate-limited"


@row("A37", "connect and abort, thousands of times")
def a37(s):
    for _ in range(1000):
        k = socket.socket()
        k.connect(("127.0.0.1", s.port))
        k.send(small_post()[:60])
        k.close()
    rss = s.rss_kib()
    fds = len(os.listdir("/proc/%d/fd" % s.proc.pid))
    for _ in range(4000):
        k = socket.socket()
        k.connect(("127.0.0.1", s.port))
        k.send(small_post()[:60])
        k.close()
    eventually(lambda: len(os.listdir("/proc/%d/fd" % s.proc.pid)) <= fds + 8, "fds back")
    assert s.rss_kib() - rss < 4096, "grew by %d KiB" % (s.rss_kib() - rss)


LONG = json.dumps({"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 0, "ignore_eos": True, "stream": True, "logprobs": 5}).encode()


# the same of the other dialects: each has a writer of its own
STREAMS = [("/v1/completions", LONG),
           ("/v1/responses", json.dumps({"input": "Once upon a time", "max_output_tokens": 1900, "temperature": 0, "stream": True, "top_logprobs": 5,
                                         "include": ["message.output_text.logprobs"]}).encode()),
           ("/v1/messages", json.dumps({"messages": [{"role": "user", "content": "Once upon a time"}], "max_tokens": 1900, "temperature": 0, "stream": True}).encode())]


@row("A38", "a slow SSE reader loses nothing and holds up nobody", slow=True)
def a38(s):
    want, conns = [s.request("POST", path, body).body for path, body in STREAMS], []
    for path, body in STREAMS:
        conns.append(s.conn(rcvbuf=4096))
        conns[-1].send(post_bytes(path, body))
    time.sleep(3)
    strip = lambda b: re.sub(rb'"(id|item_id|created|created_at|cached_tokens|input_tokens|cache_read_input_tokens)":("[^"]*"|\d+)', b"", b)
    for c, (path, _), whole in zip(conns, STREAMS, want):
        got = c.read_reply()
        assert got.status == 200 and len(whole) > 8192, (path, got.status, len(whole))
        assert strip(got.body) == strip(whole), "the slow reader's text differs: " + path
        c.close()


@row("A39", "a reader that never reads", slow=True)
def a39(s):
    c = s.conn(rcvbuf=2048)
    body = json.dumps({"prompt": ["Once upon a time"] * 16, "max_tokens": 1900, "temperature": 0.5, "seed": 1, "ignore_eos": True, "stream": True,
                       "logprobs": 5, "n": 4}).encode()
    c.send(post_bytes("/v1/completions", body))
    eventually(lambda: s.metric("vllm:num_requests_running") > 0, "started")
    time.sleep(2)
    eventually(lambda: _is_gone(c), "the connection is cut")
    c.close()


def _is_gone(c):
    """The peer reset or closed: poll says HUP/ERR although we never read what it sent."""
    import select

    p = select.poll()
    p.register(c.sock, select.POLLERR | select.POLLHUP | getattr(select, "POLLRDHUP", 0x2000))
    return bool(p.poll(0))


@row("A40", "a client that half-closes while it waits is gone", slow=True)
def a40(s):
    before = s.metric("vllm:request_success_total")
    c = s.conn()
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 16}).encode()))
    eventually(lambda: s.metric("vllm:num_requests_running") > 0, "started")
    c.sock.shutdown(socket.SHUT_WR)
    r = c.read_all()
    assert not any(x.status == 200 for x in r), "a gone client was answered"
    c.close()
    eventually(lambda: s.metric("vllm:request_success_total") > before, "its end is counted")


@row("A41", "disconnect in each state")
def a41(s):
    long_prompt = "word " * 1200
    for prompt, wait, stream in (("Once", 0.0, False), ("Once", 0.15, True), (long_prompt, 0.0, True), (long_prompt, 0.02, False), ("Once", 0.4, True)):
        c = s.conn()
        c.send(post_bytes("/v1/completions", json.dumps({"prompt": prompt, "max_tokens": 600, "ignore_eos": True, "stream": stream}).encode()))
        time.sleep(wait)
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
    for path, body in STREAMS[1:]:
        for wait in (0.0, 0.05, 0.2):
            c = s.conn()
            c.send(post_bytes(path, body))
            time.sleep(wait)
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
    eventually(lambda: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") <= 4, "all but the canary ended")


@row("A42", "many clients vanish at once while one prefills")
def a42(s):
    conns = []
    for i in range(200):
        c = s.conn()
        c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Tale %d" % i, "max_tokens": 1000, "ignore_eos": True, "stream": True}).encode()))
        conns.append(c)
    prompt = "the quick brown fox jumps over the lazy dog " * 40
    want = s.complete(prompt, max_tokens=8, temperature=0)
    for c in conns:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
    got = s.complete(prompt, max_tokens=8, temperature=0)
    assert got.json["choices"][0]["text"] == want.json["choices"][0]["text"]
    eventually(lambda: s.metric("vllm:num_requests_running") + s.metric("vllm:num_requests_waiting") <= 4, "all ended")


@row("A47", "SSE text with line breaks and 'data:' is escaped")
def a47(s):
    text = "data: x\n\ndata: [DONE]\n\r\u2028\u2029\x01"
    r = s.post("/v1/completions", {"prompt": text, "max_tokens": 3, "temperature": 0, "stream": True, "echo": True})
    assert r.status == 200, r
    assert all(line == b"" or line.startswith((b"data: ", b":")) for line in r.body.split(b"\n")), r.body
    assert b"\r" not in r.body
    assert sse_text(r.body).startswith(text)


@row("A48", "a comment keeps a waiting stream alive", own=True)
def a48(_):
    s = Server("--max-num-seqs", "1", "--threads", "1")
    try:
        stop = []

        def hog():
            while not stop:
                s.complete("Once", max_tokens=1900, ignore_eos=True, priority=0)

        # enough long requests in front of ours that it waits for longer than 15 s
        n = 0
        hogs = []
        for _ in range(40):
            c = s.conn()
            c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 1}).encode()))
            hogs.append(c)
            n += 1
        c = s.conn()
        c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Hi", "max_tokens": 1, "stream": True}).encode()))
        c.sock.settimeout(PATIENCE)
        got = c.sock.recv(4096)
        assert got.startswith(b"HTTP/1.1 200"), got[:60]
        end = time.monotonic() + PATIENCE
        while b": keep-alive" not in got and b'"choices"' not in got and time.monotonic() < end:
            got += c.sock.recv(4096)
        assert b": keep-alive" in got, "no comment every 15 s: %r" % got[:300]
        for h in hogs:
            h.close()
        c.close()
    finally:
        s.stop()


@row("A49", "a failure after the headers is an error event, never a silent end", slow=True)
def a49(s):
    c = s.conn()
    body = json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 1}).encode()
    s2 = Server("--request-timeout", "1")
    try:
        # a deadline that passes in the middle of the stream: sixteen long streams take longer than a second
        conns = []
        for _ in range(48):
            k = s2.conn()
            k.send(post_bytes("/v1/completions", body))
            conns.append(k)
        failed = 0
        for k in conns:
            r = k.read_reply()
            if r.status == 200 and b'"error"' in r.body:
                failed += 1
                assert b"[DONE]" not in r.body, "[DONE] after an error"
            elif r.status == 200:
                assert b"[DONE]" in r.body, "silent end: %r" % r.body[-200:]
            else:
                assert r.status in (408, 503, 504), r
            k.close()
        assert failed, "no stream met its deadline"
    finally:
        s2.stop()
    c.close()


@row("A50", "HEAD and OPTIONS on the API")
def a50(s):
    for m in (b"HEAD", b"OPTIONS"):
        r, _ = s.one(m + b" /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", head=m == b"HEAD")
        assert r.status == 405 and "POST" in r.header("allow"), r
        assert m != b"HEAD" or not r.body
        assert not r.header("access-control-allow-origin")


@row("A51", "compressed or mistyped bodies")
def a51(s):
    for enc in ("gzip", "br", "deflate", "identity, gzip"):
        r, _ = s.one(small_post(["Content-Encoding: " + enc]))
        assert r.status == 415, r
    for pair in (["gzip", "identity"], ["identity", "gzip"], ["identity", "identity"]):  # lines of one name are a list
        r, _ = s.one(small_post(["Content-Encoding: " + enc for enc in pair]))
        assert r.status == 415, (pair, r)
    for ct in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonx"):
        r = s.request("POST", "/v1/completions", SMALL, {"Content-Type": ct})
        assert r.status == 415, (ct, r)
    assert s.request("POST", "/v1/completions", SMALL, {"Content-Type": "application/json; charset=utf-8"}).status == 200


@row("A52", "hostile X-Request-Id")
def a52(s):
    for v in ("x" * 10000, "a b<script>", "\u00e9", "a\tb"):
        r, _ = s.one(small_post(["X-Request-Id: " + v]))
        if len(v) > 8000:
            assert r.status in (200, 431), r
            continue
        assert r.status == 200, r
        assert v not in (r.header("x-request-id") or "") and v not in r.json["id"]
    r, _ = s.one(small_post(["X-Request-Id: a\rX-Evil: 1"]))
    assert r.status == 400 and not r.header("x-evil"), r
    r = s.request("POST", "/v1/completions", SMALL, {"X-Request-Id": "clean-id.1"})
    assert r.header("x-request-id") == "clean-id.1" and "clean-id.1" in r.json["id"], r


@row("A53", "64 KiB pipelined behind a request that waits, then the client goes")
def a53(s):
    def aborted():
        text = s.get("/metrics").body.decode()
        return float(re.search(r'^vllm:request_success_total\{[^}]*finished_reason="abort"[^}]*\} (\S+)$', text, re.M).group(1))

    long = json.dumps({"prompt": "Once upon a time", "max_tokens": 1900, "n": 16, "temperature": 1, "ignore_eos": True}).encode()
    for how in ("close", "reset", "half"):
        before = aborted()
        c = s.conn()
        c.send(post_bytes("/v1/completions", long))
        eventually(lambda: s.metric("vllm:num_requests_running") >= 1, "it runs")
        c.send(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2200)  # 84 KiB
        if how == "half":
            c.sock.shutdown(socket.SHUT_WR)
        elif how == "reset":
            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how != "half":
            c.close()
        eventually(lambda: s.metric("vllm:num_requests_running") == 0, "its request is given up")
        assert aborted() == before + 1, how
        c.close()


@row("A54", "3,000 connections with 60 pipelined requests each whose answers nobody reads", own=True)
def a54(_):
    s = Server("--kv-cache-bytes", "16MiB")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        n = min(3000, min(hard, 8192) - 200)
        assert s.request("POST", "/v1/completions", SMALL).status == 200
        before, most, conns = s.rss_kib(), 0, []
        for i in range(n):
            c = s.conn(rcvbuf=4096)
            c.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60)
            conns.append(c)
            if i % 100 == 0:
                most = max(most, s.rss_kib())
                assert s.get("/ping").status == 200  # and who reads is answered
        most = max(most, s.rss_kib())
        assert most - before < 100 << 10, "%d MiB for answers that nobody reads" % ((most - before) >> 10)
        for c in conns:
            c.close()
        eventually(lambda: s.rss_kib() < before * 1.05 + 4096, "memory is given back: %d KiB before" % before)
    finally:
        s.stop()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
