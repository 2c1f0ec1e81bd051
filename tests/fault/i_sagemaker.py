"""Layer I of the fault table where the server is process 1 of a container."""

import os
import signal
import subprocess
import tempfile
import time

from harness import BINARY, PATIENCE, Server, eventually, free_port, row, slower


def unset():
    """This process's environment without what would configure a server: it comes before what a platform says."""
    return {k: v for k, v in os.environ.items() if not k.startswith("SPILLWAY_")}


class First(Server):
    """Process 1 of a namespace of processes. proc is what made the namespace, and ends as the server does."""

    def __init__(self, *args, env=None, wait=True):
        self.port = free_port()
        self.log_path = tempfile.mktemp(prefix="spillway-first-", suffix=".log")
        self.log = open(self.log_path, "wb")
        alone = ["unshare", "--pid", "--fork", "--kill-child"] + ([] if os.getuid() == 0 else ["--user", "--map-root-user"])
        argv = [*alone, BINARY, "serve", *args]
        told = dict(unset(), SAGEMAKER_BIND_TO_PORT=str(self.port), **(env or {}))
        self.proc = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=told)
        self.pid = eventually(self._inside, "it starts")
        if wait:
            self.wait_ready()

    def _inside(self):
        with open("/proc/%d/task/%d/children" % (self.proc.pid, self.proc.pid)) as f:
            pids = f.read().split()
        return int(pids[0]) if pids and os.path.realpath("/proc/%s/exe" % pids[0]) == os.path.realpath(BINARY) else None

    def send(self, sig):
        os.kill(self.pid, sig)

    def children(self):
        out = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/stat" % pid) as f:
                    state, parent = f.read().rsplit(") ", 1)[1].split()[:2]
                if int(parent) == self.pid:
                    out.append(state)
            except OSError:
                pass
        return out

    def stop(self):
        if self.proc.poll() is None:
            self.send(signal.SIGTERM)
            try:
                self.proc.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.kill(self.pid, signal.SIGKILL)
                self.proc.wait()
        self.log.close()
        os.unlink(self.log_path)


@row("I1", "process 1 of a container ends at once and with 0 by SIGTERM, and knows its platform by itself", own=True)
def i1_first(_):
    s = First()
    try:
        with open(s.log_path) as f:
            assert "0.0.0.0:%d" % s.port in f.read(), s.tail()
        t0 = time.monotonic()
        s.send(signal.SIGTERM)
        assert s.proc.wait(PATIENCE) == 0, s.tail()
        assert time.monotonic() - t0 < 3 * slower()
    finally:
        s.stop()


@row("I3", "a SIGTERM that reaches process 1 while it still reads its options is not lost", own=True)
def i3_first(_):
    with tempfile.TemporaryDirectory() as d:
        fifo = os.path.join(d, "config")
        os.mkfifo(fifo)
        s = First(env={"SPILLWAY_CONFIG": fifo}, wait=False)
        try:
            out = os.open(fifo, os.O_WRONLY)  # waits until the server reads it, which it does before anything else
            s.send(signal.SIGTERM)
            os.write(out, b"max-model-len = 512\n")
            os.close(out)
            assert s.proc.wait(PATIENCE) == 0, s.tail()
        finally:
            s.stop()


@row("I4", "process 1 does not end by signals that mean nothing, and keeps no dead orphan", own=True)
def i4_first(_):
    s = First()
    try:
        for sig in (signal.SIGPIPE, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD, signal.SIGIO, signal.SIGRTMIN):
            for _ in range(20):
                s.send(sig)
        within = ["nsenter", "--target", str(s.pid), "--pid"] + ([] if os.getuid() == 0 else ["--user", "--preserve-credentials"])
        for _ in range(5):  # its parent ends first, so the server becomes the parent
            subprocess.run([*within, "sh", "-c", "sleep 0.2 &"], check=True, stdin=subprocess.DEVNULL)
        eventually(lambda: not s.children(), "orphans are taken away: %s" % s.children())
        assert s.proc.poll() is None and s.complete("Hi", max_tokens=1).status == 200
        assert s.post("/invocations", {"inputs": "Hi", "parameters": {"max_new_tokens": 1}}).status == 200
        s.send(signal.SIGINT)
        assert s.proc.wait(PATIENCE) == 0, s.tail()
    finally:
        s.stop()
