"""Rows of layer G that need more than one machine, played in network namespaces."""

import os
import signal
import subprocess
import sys
import time

from harness import eventually, row

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import peers  # noqa: E402
from tiers import ask, metric, start  # noqa: E402

from f_tiers import world  # noqa: E402

CLONE_NEWNET, CLONE_NEWNS, MS_REC, MS_SLAVE = 0x40000000, 0x20000, 0x4000, 0x80000
SECONDS = float(os.environ.get("PARTITION_SECONDS", "3"))  # 60 for all of it


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, "ip %s (package iproute2, as root): %s" % (" ".join(words), done.stderr)


class Cable:
    """A second machine: a network namespace behind a cable that can be cut. Both ends stay up, and packets are lost without a word."""

    def __init__(self):
        n = os.getpid() % 200 + 10
        self.space, self.here, self.there = "spillway-%d" % os.getpid(), "sw%dh" % os.getpid(), "sw%dt" % os.getpid()
        self.near, self.far = "10.213.%d.1" % n, "10.213.%d.2" % n
        ip("netns", "add", self.space)
        try:
            ip("link", "add", self.here, "type", "veth", "peer", "name", self.there)
            ip("link", "set", self.there, "netns", self.space)
            ip("addr", "add", self.near + "/24", "dev", self.here)
            ip("link", "set", self.here, "up")
            self.inside("addr", "add", self.far + "/24", "dev", self.there)
            self.inside("link", "set", "lo", "up")
            self.join()
        except AssertionError:
            self.remove()
            raise

    def inside(self, *words):
        ip("-n", self.space, *words)

    def cut(self):
        self.inside("link", "set", self.there, "down")

    def join(self):
        self.inside("link", "set", self.there, "up")

    def enter(self):
        """For a process that is about to become a program there: its /sys is that of the namespace too, where UCX looks for networks."""
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)

        def call(name, *words):
            if getattr(libc, name)(*words):
                raise OSError(ctypes.get_errno(), name)

        fd = os.open("/run/netns/" + self.space, os.O_RDONLY)
        call("setns", fd, CLONE_NEWNET)
        os.close(fd)
        call("unshare", CLONE_NEWNS)
        call("mount", b"", b"/", None, MS_REC | MS_SLAVE, None)
        call("mount", b"spillway", b"/sys", b"sysfs", 0, None)

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.space], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.here], capture_output=True, check=False)


class Pause:
    """Where no namespace can be made: the other server and its room say nothing for as long, on this machine."""
    near = far = "127.0.0.1"
    enter = None

    def __init__(self):
        self.proc = None

    def say(self, what):
        with open("/proc/%d/task/%d/children" % (self.proc.pid, self.proc.pid), encoding="ascii") as f:
            for pid in [self.proc.pid, *map(int, f.read().split())]:
                os.kill(pid, what)

    def cut(self):
        self.say(signal.SIGSTOP)

    def join(self):
        self.say(signal.SIGCONT)

    def remove(self):
        pass


def apart():
    try:
        return Cable()
    except (AssertionError, OSError) as e:
        print("G13 without a network namespace: %s" % e)
        return Pause()


@row("G13", "the network between two servers is cut, and joined again: served throughout, exact, used again without a restart", own=True)
def g13(_):
    """The server here is read by the one behind the cable, which nobody can ask while the cable is cut: so the server here is the
    one that pulls, and its peer's prompts come before and after."""
    from harness import Server
    w = world()
    w.running.clear()
    cable = apart()
    key = os.path.join(w.folder, "peer-key")
    with open(key, "wb") as f:
        f.write(b"a secret of both servers, long enough")
    at = "%s:%d" % (cable.far, peers.ports(1)[0])
    both = [*peers.HOST, "--kv-peer-key-file", key, "--kv-mac-key-file", key]
    try:
        a = Server(*both, "--host", "0.0.0.0", "--allow-anonymous", "--kv-peer-listen", at, wait=False, preexec=cable.enter)
        w.running.append(a)
        a.host, cable.proc = cable.far, a.proc
        a.wait_ready()
        b = start(w, *both, "--kv-peer", at)
        peers.connected(b)
        for k in (0, 3, 6):
            ask(w, a, k)
        peers.in_host(a, 60)
        eventually(lambda: pulls(w, a, b), "pulling before the cut")
        cable.cut()
        end, k, n = time.monotonic() + SECONDS, 9, 0
        while time.monotonic() < end:  # of what a has, of what nobody has, and of what is cached
            ask(w, b, (3, 6, k)[n % 3])
            k, n = k + 1, n + 1
        eventually(lambda: peers.lines(b, " is lost: ") > 0, "losing it")
        peers.lent_is_back(b)
        assert b.get("/health").status == 200
        cable.join()
        peers.connected(b, 2)
        eventually(lambda: pulls(w, a, b), "pulling again")
        eventually(lambda: peers.lines(a, " asks no more: ") > 0, "giving up who was cut off")
        assert not a.error_lines() and not b.error_lines(), (a.error_lines(), b.error_lines())
        assert metric(b, "spillway:kv_verify_failures_total") == 0
    finally:
        for s in w.running:
            s.stop()
        w.running.clear()
        cable.remove()


def pulls(w, a, b):
    return peers.again(w, a, b)
