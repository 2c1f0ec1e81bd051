"""Layer A of the fault table, connections: who holds a place, who makes room, and who still hears an answer."""

import json
import re
import signal
import socket
import time

from harness import PATIENCE, Conn, Server, eventually, post_bytes, row

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
PAGE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


@row("A60", "HEAD on every GET route: the head of the answer, and no body")
def a60(s):
    for path in (b"/", b"/health", b"/ready", b"/livez", b"/ping", b"/v1/models", b"/v1/models/pebble", b"/version", b"/metrics"):
        want, _ = s.one(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got, closed = s.one(b"HEAD " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", head=True)
        assert got.status == want.status == 200 and not got.body and closed, (path, got, want)
        assert got.header("content-type") == want.header("content-type"), (path, got, want)
        if path != b"/metrics":  # its figures change
            assert got.header("content-length") == want.header("content-length"), (path, got, want)
    # no body is left in the way of the next request
    replies, _ = s.raw(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", head=True)
    assert [r.status for r in replies] == [200, 405] and replies[1].header("allow") == "POST", replies
    r, _ = s.one(b"PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
    assert r.status == 405 and r.header("allow") == "GET, HEAD", r


@row("A61", "a body over the limit from a client that stops at a write error: it sends all of it and reads the 413")
def a61(s):
    c = Conn(s)
    n = 100 << 20
    c.sock.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % n)
    piece = b" " * (1 << 20)
    for _ in range(n >> 20):
        c.sock.sendall(piece)  # raises where the server has closed
    r = c.read_reply()
    assert r.status == 413, r
    c.close()


@row("A62", "--half-close serve: what was sent before the half-close is answered, whatever waits before it", own=True)
def a62(_):
    s = Server("--half-close", "serve")
    try:
        n_page = 400  # more than the sockets and the server hold: the rest is read from the input when the client has taken some
        ask = post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 3}).encode())
        for first in (b"", ask):  # the half-close is seen while answers wait for the client, or while a generation runs
            c = Conn(s, rcvbuf=4096)
            c.sock.sendall(first + PAGE * n_page + ask)
            c.sock.shutdown(socket.SHUT_WR)
            time.sleep(0.5)
            replies = c.read_all()
            assert len(replies) == n_page + 1 + bool(first), len(replies)
            assert all(r.status == 200 for r in replies) and c.closed
            assert b"choices" in replies[-1].body
            c.close()
    finally:
        s.stop()


@row("A63", "half-open connections make room at the cap", own=True)
def a63(_):
    s = Server("--max-connections", "64")
    try:
        held = []
        for i in range(64):  # silent ones, and heads that never end
            c = Conn(s)
            if i % 2:
                c.send(b"GET /health HTTP/1.1\r\nX-A: ")
            held.append(c)
        time.sleep(1.5)  # newer ones might be about to send
        for _ in range(30):
            assert s.get("/health").status == 200
        for c in held:
            c.close()
    finally:
        s.stop()


@row("A64", "--max-connections-per-address: one address does not hold all places", own=True)
def a64(_):
    s = Server("--max-connections-per-address", "8")

    def from_address(host):
        c = socket.socket()
        c.bind((host, 0))
        c.settimeout(PATIENCE)
        c.connect(("127.0.0.1", s.port))
        return c

    try:
        # wait_ready's connections have been noticed as closed
        eventually(lambda: ask_from(from_address, "127.0.0.2") == 200, "a place")
        held = [from_address("127.0.0.2") for _ in range(8)]
        for c in held:
            c.sendall(HEALTH)
            assert b" 200 " in c.recv(4096)
        c = from_address("127.0.0.2")
        c.sendall(HEALTH)
        said = c.recv(4096)
        assert b" 503 " in said and b"Retry-After" in said, said
        c.close()
        for _ in range(20):
            assert ask_from(from_address, "127.0.0.3") == 200
        held.pop().close()
        eventually(lambda: ask_from(from_address, "127.0.0.2") == 200, "a place that was given back")
        for c in held:
            c.close()
    finally:
        s.stop()


def ask_from(from_address, host):
    c = from_address(host)
    c.sendall(HEALTH)
    status = int(c.recv(4096)[9:12])
    c.close()
    return status


@row("I30", "SIGSTOP and SIGCONT while it generates: no 503, and the answers are the same", own=True)
def i30(_):
    s = Server()
    try:
        fields = {"prompt": "Once upon a time", "max_tokens": 1500, "temperature": 0, "ignore_eos": True, "stream": True}
        plain = b"".join(re.findall(rb'"text":"((?:[^"\\]|\\.)*)"', s.post("/v1/completions", fields).body))
        c = Conn(s)
        c.sock.sendall(post_bytes("/v1/completions", json.dumps(fields).encode()))
        got = c.sock.recv(100)
        assert got
        s.proc.send_signal(signal.SIGSTOP)
        time.sleep(8)  # longer than the 5 s after which an engine that does no step is not alive
        probe = Conn(s)  # its question waits in the kernel, and is the first that is read
        probe.sock.sendall(HEALTH)
        late = Conn(s)
        late.sock.sendall(post_bytes("/v1/completions", b'{"prompt": "Hi", "max_tokens": 2}'))
        s.proc.send_signal(signal.SIGCONT)
        assert probe.read_reply().status == 200
        assert late.read_reply().status == 200
        for _ in range(20):
            assert s.get("/health").status == 200
        replies = c.read_reply() if not got.startswith(b"HTTP") else None
        assert replies is None
        c.data = got
        r = c.read_reply()
        assert b"".join(re.findall(rb'"text":"((?:[^"\\]|\\.)*)"', r.body)) == plain
        assert not s.error_lines()
    finally:
        s.stop()


@row("I31", "signals that mean nothing here do not end it; those that ask it to end let it drain", own=True)
def i31(_):
    s = Server()
    try:
        names = ["SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGIO", "SIGXFSZ", "SIGPIPE"]
        for sig in [getattr(signal, n) for n in names] + [16, signal.SIGRTMIN, signal.SIGRTMIN + 5, signal.SIGRTMAX]:
            s.proc.send_signal(sig)
        for _ in range(5):
            assert s.get("/health").status == 200 and s.proc.poll() is None
    finally:
        s.stop()
    for sig in (signal.SIGQUIT, signal.SIGPWR, signal.SIGXCPU):
        s = Server("--drain-seconds", "600")
        try:
            c = Conn(s)
            c.sock.sendall(post_bytes("/v1/completions", b'{"prompt": "Once", "max_tokens": 1900, "n": 4, "ignore_eos": true}'))
            eventually(lambda: s.metric("vllm:num_requests_running") > 0, "started")
            s.proc.send_signal(sig)
            r = c.read_reply()
            assert r.status == 200 and r.json["usage"]["completion_tokens"] == 7600, (sig, r)
            assert s.proc.wait(PATIENCE) == 0, sig
            c.close()
        finally:
            s.stop()
