#!/usr/bin/env python3
"""Two replicas behind HAProxy, under load, replaced one after the other: no request is lost. And SIGTERM under 64 streams.

# Run by: section rolling alone: it needs haproxy, and its load is for no sanitizer.

    rolling.py [--seconds N]     N: how long the load runs at least (default 8)

One line each, then `N passed, N failed, N skipped`."""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

import scratch  # noqa: E402
from harness import BINARY, PATIENCE, Server, eventually, free_port, post_bytes, run_tests  # noqa: E402

DELAY = 2  # --drain-delay-seconds
CHECK_MS = 200  # between two questions of the balancer; no request is tried twice: retries 0
seconds = 8.0  # of load, at least
HAPROXY = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
CONFIG = """
global
    log stdout format raw local0
    maxconn 2000
defaults
    mode http
    log global
    retries 0
    timeout connect 2s
    timeout client 120s
    timeout server 120s
frontend clients
    bind 127.0.0.1:%(port)d
    default_backend replicas
backend replicas
    balance leastconn
    option httpchk GET /ready
    http-check expect status 200
    default-server check inter %(check)dms fall 1 rise 1
    server a 127.0.0.1:%(a)d
    server b 127.0.0.1:%(b)d
"""


class Balancer:
    def __init__(self, folder, a, b):
        self.port = free_port()
        path = os.path.join(folder, "haproxy.cfg")
        with open(path, "w") as f:
            f.write(CONFIG % {"port": self.port, "check": CHECK_MS, "a": a, "b": b})
        self.log_path = os.path.join(folder, "haproxy.log")
        self.log = open(self.log_path, "wb")
        self.proc = subprocess.Popen([HAPROXY, "-db", "-f", path], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)

    def stop(self):
        self.proc.terminate()
        self.proc.wait(PATIENCE)
        self.log.close()


class Load:
    """Clients that keep their connections, as client libraries do: half of them stream, half ask short questions; one in eight opens a
    connection for each request. Every answer is judged; nothing is asked twice."""

    def __init__(self, port, n):
        self.port, self.ending = port, threading.Event()
        self.lock, self.done, self.lost = threading.Lock(), 0, []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(n)]
        for t in self.threads:
            t.start()

    def note(self, why=None):
        with self.lock:
            self.done += why is None
            if why:
                self.lost.append("%.1f s: %s" % (time.monotonic() % 1000, why))

    def ask(self, c, i):
        stream = i % 2 == 0
        body = {"prompt": "Once upon a time %d" % i, "max_tokens": 200 if stream else 4, "temperature": 0, "ignore_eos": True, "stream": stream}
        c.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        if r.status != 200:
            self.note("status %d: %r" % (r.status, data[:120]))
        elif stream and (b"data: [DONE]" not in data or b'"error"' in data):
            self.note("a stream that ends with %r" % data[-120:])
        elif not stream and json.loads(data)["usage"]["completion_tokens"] != 4:
            self.note("a short answer: %r" % data[:200])
        else:
            self.note()
        return r.will_close

    def client(self, i):
        c = None
        while not self.ending.is_set():
            fresh = c is None
            c = c or http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                if self.ask(c, i) or i % 8 == 0:
                    c.close()
                    c = None
            except (OSError, http.client.HTTPException) as e:
                self.note("%s connection: %r" % ("a fresh" if fresh else "a kept", e))
                c.close()
                c = None
            time.sleep(0.002 * (i % 5))

    def end(self):
        self.ending.set()
        for t in self.threads:
            t.join()


def replica(port):
    return Server("--drain-delay-seconds", str(DELAY), port=port)


def a_rolling_update_loses_no_request():
    ports = [free_port(), free_port()]
    servers = [replica(p) for p in ports]
    with tempfile.TemporaryDirectory() as d:
        balancer = Balancer(d, *ports)
        wait_for_port(balancer.port)
        load = Load(balancer.port, 24)
        try:
            began = time.monotonic()
            time.sleep(1)
            for i in (0, 1):
                before = load.done
                servers[i].proc.send_signal(signal.SIGTERM)
                assert servers[i].proc.wait(PATIENCE) == 0, servers[i].tail()
                servers[i].stop()
                servers[i] = replica(ports[i])
                time.sleep(5 * CHECK_MS / 1000)  # until the balancer has seen the new one
                assert load.done > before, "nothing was answered meanwhile"
            while time.monotonic() - began < seconds:
                time.sleep(0.1)
        finally:
            load.end()
            balancer.stop()
            for s in servers:
                s.stop()
        print("       %d requests, %d lost" % (load.done, len(load.lost)))
        assert not load.lost, "%d of %d lost:\n  %s" % (len(load.lost), load.done + len(load.lost), "\n  ".join(load.lost[:8]))
        assert load.done > 100


def wait_for_port(port):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("nobody listens on port %d" % port)


def sigterm_under_64_streams(drain_seconds, max_tokens, cut):
    """All end with [DONE], or each of the others with one error event; none in silence. Then exit 0 within the limit."""
    s = Server("--drain-seconds", str(drain_seconds), "--max-num-seqs", "64")
    conns = []
    try:
        body = {"prompt": "Once", "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
        for _ in range(64):
            c = s.conn()
            c.send(post_bytes("/v1/completions", json.dumps(body).encode()))
            conns.append(c)
        for c in conns:
            while b"data: " not in c.data:
                part = c.sock.recv(1 << 16)
                assert part, "a stream ended before SIGTERM"
                c.data += part
        ended = sum(b"[DONE]" in c.data for c in conns)
        assert ended < 32, "%d streams ended before SIGTERM" % ended
        s.proc.send_signal(signal.SIGTERM)
        done = errors = 0
        for c in conns:
            r = c.read_all()
            assert len(r) == 1 and r[0].status == 200 and c.closed, r
            events = [x for x in r[0].body.split(b"\n\n") if x]
            n_error = sum(b'"error"' in x for x in events)
            assert (events[-1] == b"data: [DONE]") + (n_error > 0) >= 1 and n_error <= 1, "it ends with %r" % events[-2:]
            done += n_error == 0
            errors += n_error
        assert s.proc.wait(PATIENCE) == 0, s.tail()
        print("       %d finished, %d ended by one error event" % (done, errors))
        assert done + errors == 64 and (errors > 0) == cut, (done, errors)
    finally:
        for c in conns:
            c.close()
        s.stop()


def sigterm_lets_64_streams_finish():
    sigterm_under_64_streams(120, 1000, False)


def sigterm_tells_64_streams_that_are_too_long():
    sigterm_under_64_streams(1, 1900, True)


TESTS = [a_rolling_update_loses_no_request, sigterm_lets_64_streams_finish, sigterm_tells_64_streams_that_are_too_long]


def main():
    global seconds
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=seconds)
    a = ap.parse_args()
    assert HAPROXY, "haproxy is missing (Debian's package haproxy)"
    seconds = a.seconds
    return run_tests(TESTS)


if __name__ == "__main__":
    scratch.run(main)
