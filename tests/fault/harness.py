"""What every fault row needs: a server, raw bytes, a canary, ledgers.

A row is a function `@row("A1", "both Content-Length and Transfer-Encoding")` that takes a Server and raises
AssertionError when the expected reply did not come. Around each row (or each batch of slow rows, which run side by
by side) the runner checks the scoring rule: same process, canary transcripts byte-identical, ledgers back to baseline
within 5 seconds, no error line in the log.

No row depends on how fast or busy the machine is: what must come is waited for (PATIENCE), and a time that is promised is
counted in what the machine has left for us (slower).
"""

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARY = os.environ.get("SPILLWAY", os.path.join(ROOT, "build", "dev", "spillway"))

ROWS = []
PATIENCE = 180  # seconds: nothing but a hang lasts as long


def slower():
    """How many times a promised time may take here and now: a machine of a third of the speed, and what wants to run for each CPU."""
    with open("/proc/loadavg") as f:
        a = f.read().split()
    return 3 * max(1.0, max(float(a[0]), int(a[3].split("/")[0])) / len(os.sched_getaffinity(0)))


def shown(text, head=800, lines=25, tail=3000):
    """What is worth reading of a long message: how it begins, which is the assertion, and its last lines, which are the log's."""
    if len(text) <= head + tail and text.count("\n") <= lines:
        return text
    end = "\n".join(text.split("\n")[-lines:])[-tail:]
    begin = text[: max(0, min(head, len(text) - len(end)))]
    return end if not begin else begin + ("\n  [...]\n" if len(begin) + len(end) < len(text) else "") + end


def why_failed(e):
    """The line of the row that failed, and what it said."""
    folder = os.path.dirname(os.path.abspath(__file__))
    at = [x for x in traceback.extract_tb(e.__traceback__) if x.filename.startswith(folder) and "harness" not in x.filename]
    where = "line %d of %s: " % (at[-1].lineno, os.path.basename(at[-1].filename)) if at else ""
    return where + (shown(str(e)) or repr(e))


class Row:
    def __init__(self, rid, title, fn, slow, own):
        self.id, self.title, self.fn, self.slow, self.own = rid, title, fn, slow, own


def row(rid, title, slow=False, own=False):
    """slow: waits on the server's clock, runs beside other slow rows. own: starts processes of its own, gets no server."""

    def register(fn):
        ROWS.append(Row(rid, title, fn, slow, own))
        return fn

    return register


PORTS = set()  # that were given away


def free_port():
    """A port that nobody listens at, and another one each time. The kernel gives none of these to a connection or to a socket that
    asks for any port, so it is still free when the server binds it, and free again when a server is started a second time."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        first = int(f.read().split()[0])
    for port in random.SystemRandom().sample(range(10000, max(first, 20000)), 1000):
        with socket.socket() as s:
            try:
                s.bind(("0.0.0.0", port))
            except OSError:
                continue
        if port not in PORTS:
            PORTS.add(port)
            return port
    raise AssertionError("no port is free")


def fake_nvml(folder, *flags):
    """Makes the folder, and in it the libnvidia-ml.so.1 of fake_nvml.c, for LD_LIBRARY_PATH."""
    os.mkdir(folder)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_nvml.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Werror", "-o", os.path.join(folder, "libnvidia-ml.so.1"), source, *flags], check=True)


class Reply:
    def __init__(self, status, reason, headers, body, version):
        self.status, self.reason, self.headers, self.body, self.version = status, reason, headers, body, version

    def header(self, name):
        values = [v for k, v in self.headers if k == name.lower()]
        return values[0] if values else None

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        e = self.json["error"]
        assert set(e) >= {"message", "type", "param", "code"}, "error object lacks keys: %r" % e
        return e

    def __repr__(self):
        return "<%s %s %r>" % (self.status, self.headers, self.body[:200])


def parse_replies(data, head=False):
    """Splits a byte stream into replies; a truncated last one is returned with what came."""
    out = []
    while data:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            break
        lines = data[:end].split(b"\r\n")
        m = re.match(rb"HTTP/(\d\.\d) (\d{3}) ?(.*)", lines[0])
        assert m, "not a status line: %r" % lines[0][:80]
        headers = []
        for line in lines[1:]:
            k, v = line.split(b":", 1)
            headers.append((k.decode().lower(), v.strip().decode("latin-1")))
        data = data[end + 4 :]
        status = int(m.group(2))
        h = dict(headers)
        body = b""
        if status < 200 or status == 204 or head:
            pass
        elif h.get("transfer-encoding") == "chunked":
            while True:
                eol = data.find(b"\r\n")
                if eol < 0:
                    break
                size = int(data[:eol].split(b";")[0], 16)
                chunk = data[eol + 2 : eol + 2 + size]
                body += chunk
                data = data[eol + 2 + size + 2 :]
                if size == 0:
                    break
        elif "content-length" in h:
            n = int(h["content-length"])
            body, data = data[:n], data[n:]
        else:
            body, data = data, b""
        out.append(Reply(status, m.group(3).decode(), headers, body, m.group(1).decode()))
    return out


class Conn:
    """A raw connection: send bytes, read replies, know whether the server closed."""

    def __init__(self, server, timeout=PATIENCE, rcvbuf=None):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(timeout)
        self.sock.connect((server.host, server.port))
        self.data = b""
        self.closed = False

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError:
            pass  # the server may have closed already: what it said is read below
        return self

    def read_all(self, timeout=PATIENCE, head=False):
        """Reads until the server closes or the time is over."""
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            if left <= 0:
                break
            self.sock.settimeout(left)
            try:
                d = self.sock.recv(1 << 16)
            except socket.timeout:
                break
            except OSError:
                self.closed = True
                break
            if not d:
                self.closed = True
                break
            self.data += d
        return parse_replies(self.data, head)

    def read_reply(self, timeout=PATIENCE, head=False):
        """Reads until one final reply is complete (or the time is over). Interim replies are skipped."""
        end = time.monotonic() + timeout
        while True:
            r = self._complete(head)
            if r:
                return r
            left = end - time.monotonic()
            assert left > 0, "no reply within %.1f s, got %r" % (timeout, self.data[:200])
            self.sock.settimeout(left)
            try:
                d = self.sock.recv(1 << 16)
            except socket.timeout:
                continue
            except OSError:
                d = b""
            if not d:
                self.closed = True
                replies = [x for x in parse_replies(self.data, head) if x.status >= 200]
                assert replies, "closed without a reply, got %r" % self.data[:200]
                self.data = b""
                return replies[0]
            self.data += d

    def _complete(self, head):
        data = self.data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return None
        status = int(data[9:12])
        if status < 200:
            self.data = data[end + 4 :]
            return self._complete(head)
        h = data[:end].lower()
        if head:
            n = end + 4
        elif b"transfer-encoding: chunked" in h:
            p = data.find(b"\r\n0\r\n\r\n", end)
            if p < 0:
                return None
            n = p + 7
        else:
            m = re.search(rb"content-length: (\d+)", h)
            if not m:
                return None
            n = end + 4 + int(m.group(1))
            if len(data) < n:
                return None
        r = parse_replies(data[:n], head)[0]
        self.data = data[n:]
        return r

    def close(self):
        self.sock.close()


class Server:
    host = "127.0.0.1"  # where the tests reach it

    def __init__(self, *args, env=None, wait=True, preexec=None, binary=None, port=None):
        self.port = port or free_port()
        self.log_path = tempfile.mktemp(prefix="spillway-fault-", suffix=".log")
        self.log = open(self.log_path, "wb")
        argv = [binary or os.environ.get("SPILLWAY", BINARY), "--port", str(self.port), *args]
        e = dict(os.environ)
        e.update(env or {})
        self.proc = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=e, preexec_fn=preexec)
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout=PATIENCE):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            assert self.proc.poll() is None, "server ended with %s: %s" % (self.proc.returncode, self.tail())
            try:
                if self.get("/ready").status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("server not ready in %d s: %s" % (timeout, self.tail()))

    def tail(self, n=25):
        with open(self.log_path, "rb") as f:
            return b"\n".join(f.read().split(b"\n")[-n:]).decode("utf-8", "replace")

    def error_lines(self, since=0):
        """From that byte of the log on; but not that no step was done in 5 s where four or more want each CPU: that may be so, and the server is still to answer."""
        with open(self.log_path, "rb") as f:
            f.seek(since)
            lines = [x for x in f.read().decode("utf-8", "replace").split("\n") if re.match(r"\S+ error |spillway( peer room)?: ", x)]
        return [x for x in lines if slower() < 12 or " engine: no progress since step " not in x]

    def stop(self):
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(PATIENCE)  # what it has to write, it writes
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.log.close()
        os.unlink(self.log_path)

    def conn(self, **kw):
        return Conn(self, **kw)

    def raw(self, data, timeout=PATIENCE, head=False):
        """Sends bytes on a new connection, which the server then closes; returns (replies, closed)."""
        c = Conn(self)
        c.send(data)
        r = c.read_all(timeout, head)
        c.close()
        return r, c.closed

    def one(self, data, timeout=PATIENCE, head=False):
        """One reply and whether the connection was closed after it (a close that was announced is waited for)."""
        c = Conn(self)
        c.send(data)
        r = c.read_reply(timeout, head)
        if not c.closed:
            c.read_all(0.3)
        if not c.closed and r.header("connection") == "close":
            c.read_all()
        c.close()
        return r, c.closed

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE):
        c = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        h = dict(headers or {})
        if body is not None and not isinstance(body, (bytes, bytearray)):
            body = json.dumps(body).encode()
        if body is not None and "Content-Type" not in h:
            h["Content-Type"] = "application/json"
        try:
            c.request(method, path, body, h)
            r = c.getresponse()
            data = r.read()
            return Reply(r.status, r.reason, [(k.lower(), v) for k, v in r.getheaders()], data, "1.1")
        finally:
            c.close()

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def chat(self, text="Hi", **fields):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def complete(self, prompt="Once upon a time", **fields):
        return self.post("/v1/completions", {"prompt": prompt, **fields})

    def metric(self, name):
        """Sum of all series of that name."""
        total, seen = 0.0, False
        for line in self.get("/metrics").body.decode().split("\n"):
            if line.startswith(name) and (line[len(name)] in "{ "):
                total += float(line.rsplit(" ", 1)[1])
                seen = True
        assert seen, "no metric " + name
        return total

    def ledger(self):
        return {
            "running": self.metric("vllm:num_requests_running"),
            "waiting": self.metric("vllm:num_requests_waiting"),
            "kv": self.metric("vllm:kv_cache_usage_perc"),
            "fds": len(os.listdir("/proc/%d/fd" % self.proc.pid)),
        }

    def rss_kib(self):
        with open("/proc/%d/status" % self.proc.pid) as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


CANARY_PROMPTS = ["Once upon a time there was a", "The capital of France is", "Count from one to ten: one, two,", "Monday, Tuesday,"]


def sse_text(body):
    text, done = "", False
    for line in body.decode().split("\n"):
        if line == "data: [DONE]":
            done = True
        elif line.startswith("data: "):
            d = json.loads(line[6:])
            assert "error" not in d, d
            for ch in d["choices"]:
                text += ch.get("text") or ch.get("delta", {}).get("content") or ""
    assert done, "stream without [DONE]"
    return text


class Canary:
    """Four greedy streams beside the fault; their text must be what it is without the fault."""

    def __init__(self, server):
        self.server = server
        self.want = [self._one(p) for p in CANARY_PROMPTS]

    def _one(self, prompt):
        r = self.server.complete(prompt, max_tokens=64, temperature=0, stream=True, ignore_eos=True)
        assert r.status == 200, "canary: %r" % r
        return sse_text(r.body)

    def start(self):
        self.got = [None] * len(CANARY_PROMPTS)
        self.threads = []
        for i, p in enumerate(CANARY_PROMPTS):
            def work(i=i, p=p):
                try:
                    self.got[i] = self._one(p)
                except Exception as e:  # reported by finish()
                    self.got[i] = "failed: %r" % e
            t = threading.Thread(target=work)
            t.start()
            self.threads.append(t)

    def finish(self):
        for t in self.threads:
            t.join()
        for p, want, got in zip(CANARY_PROMPTS, self.want, self.got):
            assert got == want, "canary %r differs: %r, want %r" % (p, got, want)


def post_bytes(path, body, extra=(), version="1.1", host="localhost", length=True):
    """A POST as bytes, headers in full control of the row."""
    lines = ["POST %s HTTP/%s" % (path, version), "Host: " + host, "Content-Type: application/json"]
    if length:
        lines.append("Content-Length: %d" % len(body))
    lines += list(extra)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


SMALL = json.dumps({"prompt": "Hi", "max_tokens": 4, "temperature": 0}).encode()


def small_post(extra=(), **kw):
    return post_bytes("/v1/completions", SMALL, extra, **kw)


def run_tests(tests, *args, after=None):
    """Calls each test with args, and after() behind each; prints a line for each and the counts. The exit status of the script."""
    passed = failed = 0
    for fn in tests:
        began = time.monotonic()
        try:
            fn(*args)
            passed += 1
            print("ok     %s (%.1f s)" % (fn.__name__, time.monotonic() - began), flush=True)
        except Exception as e:  # noqa: BLE001 - every failure is reported
            failed += 1
            print("FAILED %s: %s" % (fn.__name__, shown(str(e) or repr(e))), flush=True)
            traceback.print_exc(limit=-3)
        if after:
            after()
    print("%d passed, %d failed, 0 skipped" % (passed, failed))
    return 1 if failed else 0


def eventually(check, what, seconds=None):
    """seconds: promised, so times slower(); without, what must come is waited for."""
    began = time.monotonic()
    while True:
        ok = check()
        if ok:
            return ok
        limit = min(PATIENCE, seconds * slower()) if seconds else PATIENCE
        if time.monotonic() - began > limit:
            raise AssertionError("not within %.0f s: %s" % (limit, what))
        time.sleep(0.05)


def freeze(pid):
    """SIGSTOP, until each thread stands: the signal itself stops none that runs, and one may still answer a question."""
    def stands():
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8") as f:
                if f.read().rsplit(")", 1)[1].split()[0] not in "Tt":
                    return False
        return True

    os.kill(pid, signal.SIGSTOP)
    eventually(stands, "all threads of %d stand" % pid)
