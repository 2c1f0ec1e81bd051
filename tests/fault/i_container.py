"""Rows of the layers I and J that are about containers: what an engine gives a server there, and what it takes away."""

import glob
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import PATIENCE, ROOT, Server, eventually, post_bytes, row, slower, sse_text

sys.path.insert(0, os.path.join(ROOT, "tests", "deploy"))

from boxed import SPILLWAY, Boxed, assemble  # noqa: E402

made = []


def tree():
    """The image's file tree of the server under test, made when it is first asked for."""
    if not made:
        folder = os.path.join(tempfile.mkdtemp(prefix="spillway-tree-"), "tree")
        assemble(folder)
        made.append(folder)
    return made[0]


@row("I14", "read-only root, any user, no HOME, 64 MB of /dev/shm: starts and serves, tiers too", own=True)
def i14(_):
    for uid in (54321, 10001, 0):
        if uid == 0 and os.getuid() != 0:
            continue  # a user's own namespace: the number inside says nothing
        with tempfile.TemporaryDirectory() as d:
            os.chmod(d, 0o777)
            s = Boxed(tree(), "--kv-host-gib", "0.25", "--kv-nvme", "/tmp/kv:1", uid=uid, box=["--shm", "64", "--mount", d + ":/tmp"])
            try:
                r = s.chat("What is the capital of France?", temperature=0, max_tokens=16)
                assert r.status == 200 and "Paris" in r.json["choices"][0]["message"]["content"], r
                body = s.complete("Once upon a time", stream=True, max_tokens=200, ignore_eos=True).body
                assert sse_text(body)
                assert not s.error_lines(), s.tail()
            finally:
                s.proc.send_signal(signal.SIGTERM)
                assert s.proc.wait(PATIENCE) == 0, s.tail()
                s.stop()


@row("J21", "a container without rights: no capability, none to gain, a seccomp filter, a read-only root without setuid files", own=True)
def j21(_):
    for folder, _, names in os.walk(tree()):
        for name in names:
            st = os.lstat(os.path.join(folder, name))
            assert not st.st_mode & (stat.S_ISUID | stat.S_ISGID), name
            assert stat.S_ISLNK(st.st_mode) or not st.st_mode & (stat.S_IWGRP | stat.S_IWOTH), name
    assert [p for p in glob.glob(tree() + "/**/bin/*", recursive=True)] == [tree() + SPILLWAY], "no program but the server"
    s = Boxed(tree())
    try:
        s.assert_has_no_rights()
        assert s.chat("Hi", max_tokens=4).status == 200
        s.assert_has_no_rights()
        assert not s.error_lines(), s.tail()
    finally:
        s.stop()


class TenthOfACpu:
    """A CPU quota of 10 ms in each 100 ms. With a cgroup where this user may make one; else the process is stopped for the rest of each
    period, which is what a quota looks like from inside."""

    PERIOD_S, SHARE = 0.1, 0.1

    def __init__(self):
        self.folder, self.procs, self.pid, self.ending = None, None, None, threading.Event()
        for top, limits in (("/sys/fs/cgroup/cpu", [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "10000")]), ("/sys/fs/cgroup", [("cpu.max", "10000 100000")])):
            folder = os.path.join(top, "spillway-test-%d" % os.getpid())
            try:
                os.mkdir(folder)
            except OSError:
                continue
            try:
                for name, text in limits:
                    with open(os.path.join(folder, name), "w") as f:
                        f.write(text)
                self.folder, self.procs = folder, os.path.join(folder, "cgroup.procs")
                return
            except OSError:
                os.rmdir(folder)

    def enter(self):
        """In the child, before the server."""
        if self.procs:
            with open(self.procs, "w") as f:
                f.write("0")

    def hold(self, pid):
        if self.procs:
            return
        self.pid = pid

        def turns():
            while not self.ending.is_set():
                try:
                    os.kill(pid, signal.SIGSTOP)
                    time.sleep(self.PERIOD_S * (1 - self.SHARE))
                    os.kill(pid, signal.SIGCONT)
                except OSError:
                    return
                time.sleep(self.PERIOD_S * self.SHARE)

        threading.Thread(target=turns, daemon=True).start()

    def throttled(self):
        """Whether the server was held back."""
        if not self.folder:
            return self.pid is not None
        with open(os.path.join(self.folder, "cpu.stat")) as f:
            return int(dict(line.split() for line in f)["nr_throttled"]) > 0

    def end(self):
        self.ending.set()
        if self.pid:
            try:
                os.kill(self.pid, signal.SIGCONT)
            except OSError:
                pass
        if self.folder:
            eventually(lambda: not open(self.procs).read(), "the quota's group is empty")
            os.rmdir(self.folder)


@row("I18", "a CPU quota of a tenth of a core: slow, but no watchdog, and /ping within a second", own=True)
def i18(_):
    quota = TenthOfACpu()
    s = Server("--max-num-seqs", "4", preexec=quota.enter, wait=False)
    try:
        quota.hold(s.proc.pid)
        s.wait_ready()
        got, slowest = [], 0.0
        t = threading.Thread(target=lambda: got.append(s.complete("Once upon a time", max_tokens=100, temperature=0, ignore_eos=True)))
        t.start()
        n = 0
        while t.is_alive() or n < 10:
            began = time.monotonic()
            assert s.get("/ping").status == 200 and s.get("/livez").status == 200
            slowest = max(slowest, time.monotonic() - began)
            n += 2
            time.sleep(0.05)
        t.join()
        assert got and got[0].status == 200 and got[0].json["usage"]["completion_tokens"] == 100, got
        assert slowest < 2 * slower(), "two probes took %.2f s" % slowest
        assert quota.throttled(), "the quota was not at work"
        with open(s.log_path) as f:
            log = f.read()
        assert " error " not in log and "no progress" not in log, s.tail()
    finally:
        s.proc.send_signal(signal.SIGTERM)
        code = s.proc.wait(PATIENCE)
        quota.end()
        s.stop()
    assert code == 0, code


@row("I16", "a machine that slept: the wall clock is elsewhere, nothing ran meanwhile, and no request times out", own=True)
def i16(_):
    folder = tempfile.mkdtemp(prefix="spillway-shim-")
    out, ctl = os.path.join(folder, "shim_clock.so"), os.path.join(folder, "clock")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", "shim_clock.c"), "-ldl"], check=True)

    def jump(seconds):
        with open(ctl, "wb" if not os.path.exists(ctl) else "r+b") as f:
            f.write(struct.pack("q", seconds))

    jump(0)
    s = Server("--request-timeout", "120", env={"LD_PRELOAD": (os.environ.get("LD_PRELOAD", "") + " " + out).strip(), "SHIM_CLOCK": ctl})
    try:
        ask = {"prompt": "Once", "max_tokens": 600, "ignore_eos": True, "temperature": 0, "stream": True}
        want = sse_text(s.complete(**ask).body)
        idle = s.conn()
        idle.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.read_reply().status == 200
        for seconds in (8 * 3600, -8 * 3600, 0):
            conns = [s.conn() for _ in range(16)]
            for c in conns:
                c.send(post_bytes("/v1/completions", json.dumps(ask).encode()))
            eventually(lambda: s.metric("vllm:num_requests_running") >= 8, "streams run")
            s.proc.send_signal(signal.SIGSTOP)
            jump(seconds)
            time.sleep(0.5)
            s.proc.send_signal(signal.SIGCONT)
            for c in conns:
                r = c.read_reply()
                assert r.status == 200 and sse_text(r.body) == want, r
                c.close()
            idle.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.read_reply().status == 200, "the connection that was idle is gone"
            date = s.get("/health").header("date")
            made_at = s.complete("Hi", max_tokens=1).json["created"]
            assert abs(made_at - time.time() - seconds) < 120, "the shim is not at work: %s, %s" % (made_at, date)
        idle.close()
        assert not s.error_lines(), s.tail()
    finally:
        s.stop()
