#!/usr/bin/env python3
"""Spans of requests (--otlp-traces-endpoint) at a collector of the test, which checks every body against OpenTelemetry's protocol.

    traces.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import base64
import http.server
import json
import os
import re
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402
from tiers import BASE, SMALL, World, arguments, run_named, too_slow  # noqa: E402

TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def check_protocol(body):
    """An ExportTraceServiceRequest and nothing else: field names and types by protobuf, ids as OTLP's JSON has them."""
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    d = json.loads(body)
    for rs in d["resourceSpans"]:
        for ss in rs["scopeSpans"]:
            for s in ss["spans"]:
                for name, n in (("traceId", 32), ("spanId", 16), ("parentSpanId", 16)):
                    if name in s:
                        assert re.fullmatch("[0-9a-f]{%d}" % n, s[name]) and set(s[name]) != {"0"}, s
                        s[name] = base64.b64encode(bytes.fromhex(s[name])).decode()  # as protobuf's own JSON has bytes
    return json_format.Parse(json.dumps(d), ExportTraceServiceRequest())


class Collector:
    """mode: 200, another status, or "hang"."""

    def __init__(self, mode=200):
        self.mode, self.spans, self.resource, self.faults, self.headers, self.lock = mode, [], {}, [], [], threading.Lock()
        self.release = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.mode == "hang":
                    outer.release.wait(60)
                    return
                try:
                    assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json", self.path
                    outer.take(check_protocol(body), dict(self.headers))
                except Exception as e:  # told at the end
                    outer.faults.append(repr(e))
                self.send_response(outer.mode)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.http.server_port
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def take(self, request, headers):
        if self.mode != 200:
            return
        with self.lock:
            self.headers.append(headers)
            for rs in request.resource_spans:
                self.resource = {a.key: a.value.string_value for a in rs.resource.attributes}
                for ss in rs.scope_spans:
                    self.spans += ss.spans

    def wait(self, enough, what):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with self.lock:
                if enough(self.spans):
                    return list(self.spans)
            assert not self.faults, self.faults
            time.sleep(0.02)
        raise AssertionError("%s did not come: %d spans, faults %r" % (what, len(self.spans), self.faults))

    def close(self):
        self.release.set()
        self.http.shutdown()
        self.http.server_close()


def start(w, *args):
    from harness import Server

    w.running.append(Server(*args))
    return w.running[-1]


def attributes(span):
    value = lambda v: getattr(v, v.WhichOneof("value"))
    return {a.key: value(a.value) for a in span.attributes}


def ask(s, path="/v1/completions", body=None, **headers):
    body = dict({"prompt": "Tell me", "max_tokens": 5, "temperature": 0, "ignore_eos": True}, **(body or {}))
    headers = dict({"Content-Type": "application/json"}, **{k.replace("_", "-"): v for k, v in headers.items()})
    return s.request("POST", path, json.dumps(body).encode(), headers)


@test
def a_request_is_a_span_with_its_parts(w):
    from harness import eventually

    c = Collector()
    os.environ.update(OTEL_SERVICE_NAME="checkout", OTEL_RESOURCE_ATTRIBUTES="zone=a,deployment.environment=test", OTEL_EXPORTER_OTLP_HEADERS="x-team=blue")
    try:
        s = start(w, *BASE, "--otlp-traces-endpoint", c.url + "/")
    finally:
        for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_EXPORTER_OTLP_HEADERS"):
            del os.environ[name]
    try:
        before = time.time()
        assert ask(s).status == 200
        chat = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "top_k": 7, "seed": 11}
        assert ask(s, "/v1/chat/completions", chat).status == 200
        assert ask(s, body={"max_tokens": -4}).status == 400
        spans = c.wait(lambda x: len(x) >= 9, "three requests, the parts of two")
        assert len(spans) == 9, [x.name for x in spans]
        assert c.resource["service.name"] == "checkout" and c.resource["zone"] == "a" and c.resource["deployment.environment"] == "test", c.resource
        assert c.headers[0]["x-team"] == "blue"
        roots = [x for x in spans if not x.parent_span_id]
        assert [x.name.split(" ")[0] for x in roots] == ["text_completion", "chat", "text_completion"], roots
        assert len({x.trace_id for x in roots}) == 3 and len({x.span_id for x in spans}) == 9
        for r in roots[:2]:
            parts = [x for x in spans if x.parent_span_id == r.span_id]
            assert [x.name for x in parts] == ["queue", "prefill", "decode"], parts
            assert all(x.trace_id == r.trace_id and x.kind == 1 for x in parts) and r.kind == 2
            times = [t for x in parts for t in (x.start_time_unix_nano, x.end_time_unix_nano)]
            assert times == sorted(times) and r.start_time_unix_nano <= times[0] and times[-1] <= r.end_time_unix_nano, times
            assert abs(r.start_time_unix_nano / 1e9 - before) < 600, "spans are in wall time"
        a = attributes(roots[0])
        assert a["gen_ai.operation.name"] == "text_completion" and a["gen_ai.provider.name"] == "spillway" and a["http.response.status_code"] == 200
        assert a["gen_ai.usage.output_tokens"] == 5 and a["gen_ai.usage.input_tokens"] > 0 and a["gen_ai.request.max_tokens"] == 5, a
        assert [v.string_value for v in a["gen_ai.response.finish_reasons"].values] == ["length"] and a["server.port"] == s.port
        assert 0 < a["gen_ai.latency.time_to_first_token"] <= a["gen_ai.latency.e2e"], a
        b = attributes(roots[1])
        assert b["gen_ai.request.stream"] is True and b["gen_ai.request.top_k"] == 7 and b["gen_ai.request.seed"] == 11, b
        bad = attributes(roots[2])
        assert bad["error.type"] == "400" and "gen_ai.usage.input_tokens" not in bad and roots[2].status.code == 0
        eventually(lambda: s.metric("spillway:traces_total") == 3, "the server has heard that they were taken")
    finally:
        s.stop()
        c.close()
    assert not c.faults, c.faults


@test
def the_callers_trace_goes_on_and_its_choice_is_kept(w):
    c = Collector()
    s = start(w, *BASE, "--otlp-traces-endpoint", c.url + "/v1/traces", "--otlp-traces-ratio", "0")
    trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    try:
        ask(s)  # no traceparent: its share is 0
        ask(s, traceparent="00-%s-%s-00" % (trace, parent))  # not sampled
        for bad in ("00-%s-%s-01-x" % (trace, parent), "00-%s-%s-1" % (trace, parent), "ff-%s-%s-01" % (trace, parent), "00-%s-%s-01" % ("0" * 32, parent),
                    "00-%s-%s-01" % (trace, "0" * 16), "00-%s-%s-01" % (trace.upper(), parent), "junk", ""):
            assert ask(s, traceparent=bad).status == 200, bad
        assert ask(s, traceparent="00-%s-%s-01" % (trace, parent), tracestate='rojo=1,"quoted\\"=2').status == 200
        assert ask(s, traceparent="cc-%s-%s-01-later" % (trace, parent)).status == 200  # a version to come
        spans = c.wait(lambda x: len(x) >= 8, "two requests with their parts")
        assert len(spans) == 8 and all(x.trace_id.hex() == trace for x in spans), [x.name for x in spans]
        roots = [x for x in spans if x.parent_span_id.hex() == parent]
        assert len(roots) == 2 and roots[0].trace_state == 'rojo=1,"quoted\\"=2' and not roots[1].trace_state
    finally:
        s.stop()
        c.close()
    assert not c.faults, c.faults


@test
def a_load_from_below_is_a_part(w):
    c = Collector()
    s = start(w, *SMALL, "--otlp-traces-endpoint", c.url)
    try:
        for k in list(range(18)) * 3:
            s.post("/v1/completions", w.body(k))
        spans = c.wait(lambda x: len([y for y in x if y.name == "queue"]) == 54, "all requests")
        loads = [x for x in spans if x.name == "load"]
        assert loads or too_slow(s), "no prompt waited for a tier"
        cached = {x.span_id: attributes(x).get("gen_ai.usage.cache_read.input_tokens", 0) for x in spans if x.kind == 2}
        assert too_slow(s) or max(cached[x.parent_span_id] for x in loads) > 0
    finally:
        s.stop()
        c.close()
    assert not c.faults, c.faults


@test
def a_collector_that_hangs_or_fails_holds_nobody_up(w):
    c = Collector("hang")
    s = start(w, *BASE, "--otlp-traces-endpoint", c.url)
    try:
        many, n = [], 1300  # more than queue and batch hold
        asker = lambda k: [many.append(s.request("POST", "/v1/completions", b'{"prompt":5}', {"Content-Type": "application/json"}).status) for _ in range(k)]
        threads = [threading.Thread(target=asker, args=(n // 4,)) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert len(many) == n and set(many) == {400}
        assert ask(s).status == 200
        dropped = s.metric("spillway:traces_total")
        assert dropped > 0, "the queue has a bound, and what is over it is counted"
        began = time.monotonic()
        s.stop()  # exit code 0
        assert time.monotonic() - began < 60
    finally:
        c.close()
    c = Collector(400)
    s = start(w, *BASE, "--otlp-traces-endpoint", c.url)
    try:
        for _ in range(3):
            assert ask(s).status == 200
        end = time.monotonic() + 120
        while s.metric("spillway:traces_total") < 3 and time.monotonic() < end:
            time.sleep(0.05)
        page = s.get("/metrics").body.decode()
        assert 'spillway:traces_total{result="failed"} 3.0' in page and 'result="sent"} 0.0' in page, [x for x in page.split("\n") if "traces" in x]
    finally:
        s.stop()
        c.close()


@test
def nothing_is_sent_unless_it_is_asked_for(w):
    from harness import BINARY
    import subprocess

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(0.2)
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:%d" % listener.getsockname()[1]
        s = start(w, *BASE)
        del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        assert ask(s, traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").status == 200
        s.stop()
        try:
            listener.accept()
            raise AssertionError("somebody called the collector")
        except socket.timeout:
            pass
    for bad in ("collector:4318", "ftp://x", "http://", "http:///v1", "http://a b"):
        p = subprocess.run([BINARY, "--otlp-traces-endpoint", bad], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert p.returncode == 64 and "--otlp-traces-endpoint" in p.stderr, (bad, p)


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(7), a.names)


if __name__ == "__main__":
    scratch.run(main)
