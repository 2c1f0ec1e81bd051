"""Layer I of the fault table, as far as one process on one machine can show it: life cycle, signals, limits."""

import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time

from harness import BINARY, PATIENCE, Server, eventually, free_port, post_bytes, row, slower, sse_text


@row("I1", "SIGTERM while idle", own=True)
def i1(_):
    s = Server()
    t0 = time.monotonic()
    s.proc.send_signal(signal.SIGTERM)
    assert s.proc.wait(PATIENCE) == 0
    assert time.monotonic() - t0 < 3 * slower()
    s.stop()


@row("I2", "SIGTERM under load: new requests 503, running ones finish, at the drain limit error events", own=True)
def i2(_):
    long = {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True, "temperature": 0}
    s = Server()
    got = []
    t = threading.Thread(target=lambda: got.append(s.post("/v1/completions", long)))
    keep = s.conn()
    keep.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    keep.read_reply()
    t.start()
    eventually(lambda: got or s.metric("vllm:num_requests_running") > 0, "started")
    s.proc.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    keep.send(post_bytes("/v1/completions", b'{"prompt":"Hi","max_tokens":1}'))
    r = keep.read_all()
    assert (not r and keep.closed) or r[0].status == 503, r
    t.join()
    assert got[0].status == 200 and got[0].json["usage"]["completion_tokens"] == 1500, got
    assert s.proc.wait(PATIENCE) == 0
    s.stop()
    s = Server("--drain-seconds", "1", "--max-num-seqs", "4")
    conns = []
    for _ in range(40):
        c = s.conn()
        c.send(post_bytes("/v1/completions", json.dumps({**long, "stream": True}).encode()))
        conns.append(c)
    eventually(lambda: s.metric("vllm:num_requests_running") > 0, "started")
    s.proc.send_signal(signal.SIGTERM)
    ended = 0
    for c in conns:
        r = c.read_all()
        if r and r[0].status == 200:
            ended += b'"error"' in r[0].body
            assert b'"error"' in r[0].body or b"[DONE]" in r[0].body, "silent end: %r" % r[0].body[-100:]
        c.close()
    assert ended, "no stream was told"
    assert s.proc.wait(PATIENCE) == 0
    s.stop()


@row("I3", "SIGTERM while loading, and twice", own=True)
def i3(_):
    for delay in (0.0, 0.01, 0.03, 0.1):
        s = Server(wait=False)
        time.sleep(delay)
        s.proc.send_signal(signal.SIGTERM)
        assert s.proc.wait(PATIENCE) in (0, -signal.SIGTERM), s.proc.returncode
        s.stop()
    s = Server()
    c = s.conn()
    c.send(post_bytes("/v1/completions", json.dumps({"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "n": 8, "temperature": 1}).encode()))
    eventually(lambda: s.metric("vllm:num_requests_running") > 0, "started")
    s.proc.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    s.proc.send_signal(signal.SIGTERM)
    s.proc.wait(PATIENCE)
    c.close()
    s.stop()


@row("I4", "storms of SIGPIPE, SIGHUP, SIGUSR1", own=True)
def i4(_):
    s = Server()
    want = s.complete("Once upon a time", max_tokens=64, temperature=0, ignore_eos=True).json["choices"][0]["text"]
    got = []
    t = threading.Thread(target=lambda: got.append(s.complete("Once upon a time", max_tokens=64, temperature=0, ignore_eos=True).json["choices"][0]["text"]))
    t.start()
    for _ in range(300):
        for sig in (signal.SIGPIPE, signal.SIGHUP, signal.SIGUSR1):
            s.proc.send_signal(sig)
    t.join()
    assert got == [want] and s.proc.poll() is None
    s.proc.send_signal(signal.SIGINT)
    assert s.proc.wait(PATIENCE) == 0
    s.stop()


@row("I5", "kill -9 and start again at once on the same port", own=True)
def i5(_):
    s = Server()
    c = s.conn()
    c.send(post_bytes("/v1/completions", b'{"prompt":"Once","max_tokens":1900,"ignore_eos":true,"stream":true}'))
    c.sock.recv(100)
    s.proc.kill()
    s.proc.wait()
    p = subprocess.Popen([BINARY, "--port", str(s.port)], stdout=s.log, stderr=s.log, stdin=subprocess.DEVNULL)
    s.proc = p
    s.wait_ready()
    assert s.complete("Hi", max_tokens=1).status == 200
    c.close()
    s.stop()


@row("I5", "kill -9 of one that others could take over from: its socket is left behind and in nobody's way", own=True)
def i5_takeover(_):
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "take")
        s = Server("--takeover", path)
        s.proc.kill()
        s.proc.wait()
        assert os.path.exists(path)
        t = Server("--takeover", path, port=s.port)
        u = Server("--takeover", path, port=s.port, wait=False)  # and it is the new one's now
        assert t.proc.wait(PATIENCE) == 0, t.tail()
        u.wait_ready()
        assert u.complete("Hi", max_tokens=1).status == 200
        for x in (s, t, u):
            x.stop()
        assert not os.path.exists(path)


def parent_of(s):
    """Waits for the server that a parent of its own started: s.proc is that parent."""
    def child():
        with open("/proc/%d/task/%d/children" % (s.proc.pid, s.proc.pid)) as f:
            return f.read().split()

    return int(eventually(child, "a child")[0])


def is_there(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@row("I6", "the process that started it dies: with --die-with-parent what runs finishes and it ends, without it serves on", own=True)
def i6(_):
    with tempfile.TemporaryDirectory() as d:
        parent = os.path.join(d, "parent")
        with open(parent, "w") as f:
            f.write('#!/bin/sh\n"%s" "$@"\nexit $?\n' % BINARY)  # a shell that waits
        os.chmod(parent, 0o700)
        s = Server("--die-with-parent", binary=parent)
        pid = parent_of(s)
        c = s.conn()
        body = {"prompt": "Once", "max_tokens": 1200, "ignore_eos": True, "temperature": 0, "stream": True}
        c.send(post_bytes("/v1/completions", json.dumps(body).encode(), ["Connection: close"]))
        while b"data: " not in c.data:
            c.data += c.sock.recv(1 << 16)
        s.proc.kill()
        s.proc.wait()
        r = c.read_all()
        c.close()
        assert b"[DONE]" in r[0].body and b'"error"' not in r[0].body, r[0].body[-200:]
        eventually(lambda: not is_there(pid), "the end")
        with open(s.log_path) as f:
            log = f.read()
        assert "main: draining" in log and "main: done" in log, log[-1000:]
        s.stop()
        s = Server(binary=parent)
        pid = parent_of(s)
        s.proc.kill()
        s.proc.wait()
        try:
            assert s.complete("Hi", max_tokens=2).status == 200
        finally:
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: not is_there(pid), "the end")
            s.stop()


@row("I6", "the server dies: the process in which it has UCX ends too; that one dies: the server starts another one", own=True)
def i6_room(_):
    def rooms(pid):
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            mine = set(f.read().split())
        for tid in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, tid)) as f:
                mine |= set(f.read().split())
        return sorted(int(x) for x in mine if is_there(int(x)))

    s = Server("--kv-host-gib", "0.05", "--kv-peer-listen", "127.0.0.1:%d" % free_port())
    try:
        first = eventually(lambda: rooms(s.proc.pid), "a room")
        os.kill(first[0], signal.SIGKILL)
        eventually(lambda: rooms(s.proc.pid) not in ([], first), "another one")
        assert s.complete("Hi", max_tokens=2).status == 200
        second = rooms(s.proc.pid)
        s.proc.kill()
        s.proc.wait()
        eventually(lambda: not any(is_there(x) for x in second), "its end")
    finally:
        s.stop()


def ping_beside_load(s):
    """What bench_ping measured beside 64 streams and bodies of 30 MB, and all that it printed."""
    bench = os.path.join(os.path.dirname(BINARY), "tools", "bench_ping")
    assert os.access(bench, os.X_OK), "there is no %s: build the target tools/bench_ping" % bench
    seconds = os.environ.get("PING_SECONDS", "2")
    command = [bench, "--port", str(s.port), "--pid", str(s.proc.pid), "--streams", "64", "--bodies", "2", "--nice", "0", "--seconds", seconds]
    p = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE + 5 * int(seconds))
    assert p.returncode == 0, p.stdout + p.stderr
    return json.loads(p.stdout.strip().split("\n")[-1])["loaded"], p.stdout


@row("I9", "/ping beside 64 streams and bodies of 30 MB, with tiers: p99.9 of at most 10 ms (PING_SECONDS=3600 is the whole row)", own=True)
def i9(_):
    # In two seconds p99.9 is the slowest answer, so one hitch of the machine decides. What the machine itself adds is what the
    # control waits, an exchange between two threads of the bench at the same time; and a server that holds its loop up does so
    # in each of three tries.
    with tempfile.TemporaryDirectory() as d:
        s = Server("--kv-cache-bytes", "96MiB", "--max-num-seqs", "96", "--kv-host-gib", "0.1", "--kv-nvme", d + "/kv:1")
        try:
            for last in (False, False, True):
                loaded, said = ping_beside_load(s)
                if loaded["net_p999_ms"] <= 10 + loaded["control_p999_ms"] and loaded["p999_ms"] <= 10 * slower():
                    break
                assert not last, "three times: %s" % said
            assert not s.error_lines(), s.error_lines()
        finally:
            s.stop()


@row("I20", "an upgrade under load by --takeover: 0 failed requests", own=True)
def i20(_):
    with tempfile.TemporaryDirectory() as d:
        path, bad, n = os.path.join(d, "take"), [], [0]
        s = Server("--takeover", path, "--io-threads", "2")
        ending = threading.Event()

        def client(i):
            while not ending.is_set():
                try:
                    r = s.complete("Once upon a time", max_tokens=3, temperature=0)
                    n[0] += r.status == 200
                    if r.status != 200:
                        bad.append(r)
                except OSError as e:
                    bad.append(e)

        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        old = s
        for _ in range(2):
            new = Server("--takeover", path, "--io-threads", "2", port=s.port, wait=False)
            assert old.proc.wait(PATIENCE) == 0, old.tail()
            old.stop()
            old = new
        ending.set()
        for t in threads:
            t.join()
        assert not bad, "%d of %d failed: %r" % (len(bad), n[0], bad[0])
        assert n[0] > 20 and not new.error_lines(), new.tail()
        new.stop()


def thread_named(s, name):
    for tid in os.listdir("/proc/%d/task" % s.proc.pid):
        with open("/proc/%d/task/%s/comm" % (s.proc.pid, tid)) as f:
            if f.read().strip() == name:
                return int(tid)
    raise AssertionError("no thread is called " + name)


@row("I7", "SIGSEGV in the engine: exit 70, and a report of where, without prompts and keys; a new start serves", own=True)
def i7(_):
    if os.environ.get("SANITIZED_BUILD"):
        return
    key, port = "key-of-the-crash-test", free_port()
    s = Server("--api-key", key, port=port)
    c = s.conn()
    body = json.dumps({"prompt": "SECRETPROMPT", "max_tokens": 1900, "ignore_eos": True, "stream": True}).encode()
    c.send(post_bytes("/v1/completions", body, ["Authorization: Bearer " + key]))
    while b"data: " not in c.data:
        c.data += c.sock.recv(1 << 16)
    ctypes.CDLL(None).tgkill(s.proc.pid, thread_named(s, "engine"), signal.SIGSEGV)
    assert s.proc.wait(PATIENCE) == 70, s.tail()
    c.close()
    with open(s.log_path) as f:
        log = f.read()
    assert re.search(r"^spillway: crashed: SIGSEGV sent by process %d in thread engine \(\d+\); its calls:$" % os.getpid(), log, re.M), log[-2000:]
    assert re.search(r"spillway\(\+0x[0-9a-f]+\)", log), "no call of ours: " + log[-2000:]
    assert "SECRETPROMPT" not in log and key not in log
    s.stop()
    s = Server(port=port)
    assert s.complete("Hi", max_tokens=1).status == 200
    s.stop()


@row("I19", "a start and a stop, again and again: none fails, nothing is left behind (START_STOPS=10000 is the whole row)", own=True)
def i19(_):
    with tempfile.TemporaryDirectory() as d:
        port, env, left = free_port(), {"HOME": d, "TMPDIR": d, "XDG_CACHE_HOME": d}, None
        for i in range(int(os.environ.get("START_STOPS", "25"))):
            s = Server("--kv-host-gib", "0.1", "--kv-nvme", d + "/kv:1", port=port, env=env, preexec=lambda: os.chdir(d))
            if i % 5 == 0:
                assert s.complete("Hi", max_tokens=2).status == 200
            s.proc.send_signal(signal.SIGTERM)
            assert s.proc.wait(PATIENCE) == 0, "start %d: %s" % (i, s.tail())
            assert not s.error_lines(), s.tail()
            s.stop()
            now = sorted(os.path.relpath(os.path.join(folder, x), d) for folder, _, names in os.walk(d) for x in names)
            left = left if left is not None else now
            assert now == left, "start %d left %s behind" % (i, set(now) ^ set(left))


@row("I11", "64 file descriptors", own=True)
def i11(_):
    s = Server(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    try:
        assert s.complete("Hi", max_tokens=2).status == 200
    finally:
        s.stop()


@row("I13", "a log sink that nobody reads", own=True)
def i13(_):
    r, w = os.pipe()
    port = free_port()
    p = subprocess.Popen([BINARY, "--port", str(port), "--log-level", "debug"], stdout=w, stderr=w, stdin=subprocess.DEVNULL)
    os.close(w)
    s = Server.__new__(Server)
    s.port, s.proc, s.log_path = port, p, "/dev/null"
    try:
        s.wait_ready()
        for _ in range(20):
            threads = [threading.Thread(target=lambda: s.complete("Hi", max_tokens=8)) for _ in range(16)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        assert s.complete("Hi", max_tokens=2).status == 200
    finally:
        p.send_signal(signal.SIGTERM)
        assert p.wait(PATIENCE) == 0
        os.close(r)


@row("I15", "another locale and time zone", own=True)
def i15(_):
    s = Server(env={"LC_ALL": "de_DE.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"})
    try:
        r = s.complete("Hi", max_tokens=4, temperature=0.5, seed=1, logprobs=2)
        assert r.status == 200
        assert all(isinstance(x, (int, float)) for x in r.json["choices"][0]["logprobs"]["token_logprobs"])
        assert s.metric("vllm:kv_cache_usage_perc") >= 0
    finally:
        s.stop()


def run(*args, env=None):
    e = dict(os.environ)
    e.update(env or {})
    p = subprocess.run([BINARY, *args], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, env=e)
    return p.returncode, (p.stdout + p.stderr).decode("utf-8", "replace")


@row("I17", "port in use, bad flag, bad value, bad file", own=True)
def i17(_):
    s = Server()
    try:
        rc, out = run("--port", str(s.port))
        assert rc in (64, 74, 77, 78) and str(s.port) in out, (rc, out)
    finally:
        s.stop()
    for args, word in ((("--prot", "1"), "--port"), (("--port", "abc"), "abc"), (("--port", "70000"), "70000"), (("--max-num-seqs", "-1"), "max-num-seqs"),
                       (("--config", "/no/such/file"), "/no/such/file"), (("--model",), "model")):
        rc, out = run(*args)
        assert rc in (64, 78), (args, rc, out)
        assert word in out, (args, out)
        assert len([x for x in out.strip().split("\n") if x]) <= 2, "more than a line and a hint: %s" % out
    rc, out = run("--help")
    assert rc == 0 and "--model" in out and "--port" in out


@row("I24", "control characters in what users send never reach the log raw", own=True)
def i24(_):
    s = Server("--log-level", "debug")
    try:
        s.post("/v1/chat/completions", {"model": "x\r\n2026 error forged\x1b[31m", "messages": []})
        s.post("/v1/completions", {"prompt": "SECRETPROMPT \x1b[31m\n", "max_tokens": 2, "request_id": "a\nb"})
        s.one(b"GET /no%1b/such\x7fpath HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with open(s.log_path, "rb") as f:
            log = f.read()
        assert b"\x1b" not in log and b"\r" not in log and b"SECRETPROMPT" not in log
        assert not any(line.startswith(b"2026 error forged") for line in log.split(b"\n"))
    finally:
        s.stop()


@row("I25", "many distinct user and model strings do not grow the metrics")
def i25(s):
    before = len(s.get("/metrics").body)
    for i in range(300):
        s.post("/v1/completions", {"model": "m%d" % i, "user": "u%d" % i, "prompt": "x", "max_tokens": 1})
        s.get("/path%d" % i)
    assert len(s.get("/metrics").body) < before + 2000


@row("I26", "core dumps are off", own=True)
def i26(_):
    if os.environ.get("SANITIZED_BUILD"):
        return
    s = Server(preexec=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)) if resource.getrlimit(resource.RLIMIT_CORE)[1] == resource.RLIM_INFINITY else None)
    try:
        with open("/proc/%d/limits" % s.proc.pid) as f:
            line = [x for x in f if x.startswith("Max core file size")][0]
        assert line.split()[4] == "0", line
    finally:
        s.stop()
