"""Rows of layer G that need more than one machine, played in network namespaces."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from harness import eventually, post_bytes, row, slower

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import peers  # noqa: E402
import roles  # noqa: E402
from tiers import ask, metric, settle, start  # noqa: E402

from f_tiers import world  # noqa: E402

IN_ENGINE = ("vllm:num_requests_running", "vllm:num_requests_waiting")
CLONE_NEWNET, CLONE_NEWNS, MS_REC, MS_SLAVE = 0x40000000, 0x20000, 0x4000, 0x80000
SECONDS = float(os.environ.get("PARTITION_SECONDS", "3"))  # 60 for all of it
FAILING_REQUESTS = int(os.environ.get("G6_REQUESTS", "0"))  # 100000 for all of it


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

    def slow(self, bytes_per_s):
        """Both directions; False: this kernel cannot."""
        for space, end in ((None, self.here), (self.space, self.there)):
            words = ["tc", *(["-n", space] if space else []), "qdisc", "replace", "dev", end, "root", "tbf", "rate", "%dbps" % bytes_per_s,
                     "burst", "16kb", "latency", "500ms"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                print("%s: %s" % (" ".join(words), done.stderr.strip()))
                return False
        return True

    def quick(self):
        for space, end in ((None, self.here), (self.space, self.there)):
            subprocess.run(["tc", *(["-n", space] if space else []), "qdisc", "del", "dev", end, "root"], capture_output=True, check=True)

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

    def slow(self, bytes_per_s):
        return False

    def remove(self):
        pass


def apart():
    try:
        return Cable()
    except (AssertionError, OSError) as e:
        print("without a network namespace: %s" % e)
        return Pause()


@row("G8", "a decode server refuses: the prefill server hears of it at once, and keeps nothing", own=True)
def g8(_):
    w = world()
    w.running.clear()
    p, d, _ = roles.pair(w, d_more=["--max-queue-requests", "1", "--max-num-seqs", "1"])
    path = "/v1/completions"
    try:
        for k in range(20):
            b = roles.body(200 + k, max_tokens=800)  # with the prompt above the context, but for the first leg, where it is 1
            leg = Leg(p)
            params = roles.prefill(p, path, b)
            r = d.post(path, {**b, "kv_transfer_params": params})
            assert r.status == 400, r
            if leg.told():
                break
        assert leg.in_time
        n_refused = k + 1

        # the queue is full: one runs, one waits, and the one that pulls is refused. Where the first two have ended before it comes, again.
        n_pulled, long = 0, {"prompt": [5], "max_tokens": 1000, "ignore_eos": True, "stream": True}
        for k in range(20):
            b = roles.body(100 + k)
            leg = Leg(p)
            params = roles.prefill(p, path, b)
            before = metric(d, "vllm:generation_tokens_total")
            busy = [d.conn().send(post_bytes(path, json.dumps({**long, "seed": seed}).encode())) for seed in (2, 3)]
            settle(d, "a full queue, or one that was", lambda: metric(d, IN_ENGINE) == 2
                   or metric(d, "vllm:generation_tokens_total") >= before + 1000)
            r = d.post(path, {**b, "kv_transfer_params": params})
            if r.status == 429:
                n_refused += 1
                leg.told()
            for c in busy:
                c.close()
            settle(d, "room", lambda: metric(d, IN_ENGINE) == 0)
            if r.status == 429 and leg.in_time:
                break
            assert r.status in (200, 429), r
            if r.status == 200:
                n_pulled += 1  # the next leg begins when that parcel has been counted
                settle(p, "the end of what was pulled", lambda: metric(p, "spillway:pd_kept_blocks") == 0)
        assert r.status == 429 and leg.in_time, r
        b = roles.body(5)
        roles.check(w, d, path, b, roles.prefill(p, path, b))
        # what came too late for its parcel was computed
        assert roles.pulls(d, "pulled") <= 1 + n_pulled and roles.pulls(d, "unused") == n_refused
        assert not p.error_lines() and not d.error_lines()
    finally:
        for s in w.running:
            s.stop()
        w.running.clear()


class Leg:
    """One prompt that is kept, from before it was asked for."""

    def __init__(self, p):
        self.p, self.began, self.in_time = p, time.monotonic(), False
        self.before = {what: roles.parcels(p, what) for what in ("taken", "lapsed")}

    def told(self):
        """The prefill server heard that nobody comes. A parcel that nobody claims ends by itself, but not within 4 s (KV_PARCEL_US): what is
        over before that was told. False: the machine was so busy that it may have been either."""
        settle(self.p, "the end of what is kept", lambda: metric(self.p, "spillway:pd_kept_blocks") == 0)
        self.in_time = time.monotonic() - self.began < 4
        taken, lapsed = (roles.parcels(self.p, what) - n for what, n in self.before.items())
        assert (taken, lapsed) == (1, 0) or (not self.in_time and taken + lapsed == 1), (taken, lapsed, self.in_time)
        return self.in_time


@row("G9", "a prefill server cannot keep or hand over a prompt: its answer says so, and the decode server computes", own=True)
def g9(_):
    w = world()
    w.running.clear()
    path = "/v1/completions"
    # A host of few blocks, of which at most half are kept: of many prompts at a time most are refused.
    p, d, _ = roles.pair(w, p_more=["--kv-host-gib", "0.002"])
    try:
        legs = [(b, roles.prefill(p, path, b)) for b in (roles.body(10 + k) for k in range(6))]
        none = [params for _, params in legs if not params["remote_block_ids"]]
        assert none and roles.parcels(p, "refused") >= len(none), (len(none), roles.parcels(p, "refused"))
        for b, params in legs:
            roles.check(w, d, path, b, params)
        assert roles.pulls(d, "pulled") + roles.pulls(d, "here") + roles.pulls(d, "missing") + roles.pulls(d, "lost") == len(legs)
        roles.freed(p, d)
        p.stop(), d.stop()

        # The process that moves its blocks dies between the legs.
        p, d, _ = roles.pair(w)
        b = roles.body(20)
        params = roles.prefill(p, path, b)
        for pid in peers.children(p.proc.pid):
            os.kill(pid, signal.SIGKILL)
        roles.check(w, d, path, b, params)
        roles.freed(p, d)
        peers.connected(d, 2)
        b = roles.body(21)
        roles.check(w, d, path, b, roles.prefill(p, path, b))
        assert roles.pulls(d, "pulled") >= 1
        assert p.get("/health").status == 200 and d.get("/health").status == 200
        p.stop(), d.stop()
    finally:
        for s in w.running:
            if s.proc.poll() is None:
                s.stop()
        w.running.clear()


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


def library(folder, mode):
    """The environment of a server whose UCX is tests/fault/fake_ucp.c before the machine's own."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"libucp\.so\.0 .*=> (\S+)", listed)
    assert found, "package libucx0 is not there"
    with open(found.group(1), "rb") as f:
        data = f.read()
    name, other = b"\0libucp.so.0\0", b"\0libucq.so.0\0"  # what the library calls itself: two of one name would be one
    assert data.count(name) == 1
    os.makedirs(folder)
    with open(os.path.join(folder, "libucq.so.0"), "wb") as f:
        f.write(data.replace(name, other))
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_ucp.c")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-Wall", "-Werror", "-o", os.path.join(folder, "libucp.so.0"), source,
                    "-Wl,--no-as-needed", os.path.join(folder, "libucq.so.0")], check=True)
    return {"LD_LIBRARY_PATH": folder, "FAKE_UCP": mode}


@row("G6", "every 16th GET over UCX fails: all is answered, exact, counted, and the others are pulled", own=True)
def g6(_):
    from harness import Server
    w = world()
    w.running.clear()
    p, q = peers.ports(2)
    try:
        a = start(w, *peers.HOST, *peers.peer(p, q))
        kept = peers.TIGHT if FAILING_REQUESTS else peers.HOST
        b = Server(*kept, *peers.peer(q, p), env=library(os.path.join(w.folder, "lib"), "fail:16"))
        w.running.append(b)
        peers.connected(b)
        for k in range(0, 36, 3):
            ask(w, a, k)
        peers.in_host(a, 200)
        for k in range(36):  # of a's prompts, and of those that begin as they do
            ask(w, b, k)
        eventually(lambda: pulls(w, a, b) and metric(b, "spillway:kv_transfer_errors_total") >= 3 and peers.hits(b) > 40,
                   "GETs that fail, are counted, and others that are used")
        if FAILING_REQUESTS:  # more prompts than b keeps, so that it asks a for them again and again
            for k in range(330):
                ask(w, a, k)
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(lambda i: ask(w, b if i % 8 else a, i * 7919 % 330), range(FAILING_REQUESTS)))
        if FAILING_REQUESTS:
            print("%d GETs failed, %d blocks came" % (metric(b, "spillway:kv_transfer_errors_total"), peers.hits(b)))
        assert metric(b, "spillway:kv_verify_failures_total") == 0
        peers.lent_is_back(b)
        assert not a.error_lines() and not b.error_lines(), (a.error_lines(), b.error_lines())
    finally:
        for s in w.running:
            s.stop()
        w.running.clear()


@row("G14", "a link of 1 MB/s: prompts are computed in time, it is told, and blocks come again when the link is quick", own=True)
def g14(_):
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
        shaped = cable.slow(1000000)
        # Without a qdisc for it UCX's GETs are slow instead.
        env = {} if shaped else library(os.path.join(w.folder, "lib"), "slow:1000000")
        a = Server(*both, "--host", "0.0.0.0", "--allow-anonymous", "--kv-peer-listen", at, wait=False, preexec=cable.enter)
        w.running.append(a)
        a.host, cable.proc = cable.far, a.proc
        a.wait_ready()
        b = Server(*both, "--kv-peer", at, env=env)
        w.running.append(b)
        peers.connected(b)
        for k in range(0, 45, 3):
            ask(w, a, k)
        peers.in_host(a, 200)
        longest = 0.0
        for k in range(0, 45, 3):
            began = time.monotonic()
            ask(w, b, k)
            longest = max(longest, time.monotonic() - began)
        pulled, given_up = peers.hits(b), metric(b, "spillway:kv_tier_loads_abandoned_total", 'tier="peer"')
        computed = metric(b, "spillway:kv_load_decisions_total", 'decision="compute"')
        print("G14 %s: %d blocks pulled, %d loads given up, %d times computing was quicker, the longest answer %.2f s"
              % ("tbf" if shaped else "slow GETs", pulled, given_up, computed, longest))
        # Its blocks take 0.8 s over that link, computing a tenth of that. Once that is known the peer is rarely asked.
        assert given_up + computed >= 1, (pulled, given_up, computed)
        assert pulled < 15 * 20 / 2, pulled
        assert longest < 1 * slower(), longest
        assert metric(b, "spillway:kv_verify_failures_total") == 0
        peers.lent_is_back(b)
        if shaped:
            cable.quick()
            eventually(lambda: pulls(w, a, b), "pulling over a quick link")
        assert not a.error_lines() and not b.error_lines(), (a.error_lines(), b.error_lines())
    finally:
        for s in w.running:
            s.stop()
        w.running.clear()
        cable.remove()


def pulls(w, a, b):
    return peers.again(w, a, b)
