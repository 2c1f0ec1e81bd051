#!/usr/bin/env python3
"""Servers that read each other's KV (--kv-peer): what one computed the others pull, and nobody depends on anybody.

    peers.py [--preset check]

Every answer is compared, token ids and logprobs bit for bit, with that of a server that caches nothing. A peer is killed, stopped,
started again at its address, has another key, and is sent garbage. PEER_ROUNDS=N: longer (default 3). PEER_REQUESTS=N: requests over
three servers, of which one after the other is killed or stopped (default 180; 10000 for all of it). PEER_SERVERS=2: over two. One line each, then
`N passed, N failed, N skipped`."""

import http.client
import itertools
import os
import random
import signal
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from harness import free_port, slower  # noqa: E402
from tiers import BASE, World, arguments, ask, metric, run_named, settle, start  # noqa: E402

ROUNDS = int(os.environ.get("PEER_ROUNDS", "3"))
SANITIZED = bool(os.environ.get("SANITIZED_BUILD"))  # each start and each token takes ten times as long
N_SERVERS = int(os.environ.get("PEER_SERVERS", "3"))
REQUESTS = int(os.environ.get("PEER_REQUESTS", "60" if SANITIZED else "180"))
PROMPTS, EVENTS = 21 if SANITIZED else 45, 3  # of the requests over three servers, and at least so many times is one killed or stopped
BLOCKED_S = 2  # no survivor's request waits longer for a peer that is gone
HOST = BASE + ["--kv-cache-bytes", "8MiB", "--kv-host-gib", "0.05"]
TIGHT = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.02"]  # less than all prompts: blocks go and are pulled again
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def ports(n):
    return [free_port() for _ in range(n)]


def peer(own, *others, transport="tcp"):
    args = ["--kv-peer-listen", "127.0.0.1:%d" % own, "--kv-peer-transport", transport]
    for o in others:
        args += ["--kv-peer", "127.0.0.1:%d" % o]
    return args


def lines(s, text):
    with open(s.log_path, "rb") as f:
        return f.read().decode("utf-8", "replace").count(text)


def connected(s, times=1):
    settle(s, "connecting to a peer", lambda: lines(s, " is connected over ") >= times)


def hits(s):
    return metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="peer"')


def lent_is_back(s):
    """Nothing is held for anybody: the slots of all leases are free to go."""
    settle(s, "giving blocks back", lambda: metric(s, "spillway:kv_tier_blocks", 'tier="peer"') == 0)


def in_host(s, n):
    settle(s, "blocks going to the host", lambda: metric(s, "spillway:kv_tier_blocks", 'tier="host"') >= n)


def pair(w, transport="tcp"):
    p, q = ports(2)
    a, b = start(w, *HOST, *peer(p, q, transport=transport)), start(w, *HOST, *peer(q, p, transport=transport))
    connected(a), connected(b)
    return a, b, p, q


@test
def a_prefix_that_one_computed_the_other_pulls(w):
    for transport in ("tcp", "shm"):
        a, b, _, _ = pair(w, transport)
        rounds, six = itertools.count(0, 6), []

        def pulled():
            """Six prompts of two families, the first of each family too. b waits for an answer no longer than a quarter of computing takes."""
            first = next(rounds)
            six[:] = range(first, first + 6)
            held = metric(a, "spillway:kv_tier_blocks", 'tier="host"')
            for k in six:
                ask(w, a, k)
            in_host(a, held + 40)
            return min(ask(w, b, k)[0] for k in six) >= 320

        settle(b, "pulling all of them", pulled)
        assert hits(b) >= 40 and hits(a) == 0
        assert metric(b, "vllm:prompt_tokens_cached_by_source_total", 'source="p2p"') >= 320
        assert metric(b, "vllm:prompt_tokens_cached_by_source_total", 'source="disk"') == 0
        assert metric(b, "spillway:kv_verify_failures_total") == 0
        before = hits(b)
        assert [ask(w, b, k)[0] >= 320 for k in six] == [True] * 6
        assert hits(b) == before  # now it has them itself
        lent_is_back(b)
        a.stop(), b.stop()


@test
def a_peer_dies_stops_and_comes_back(w):
    a, b, p, q = pair(w)
    for k in range(0, 18, 3):
        ask(w, a, k)
    in_host(a, 60)
    bad = []

    def work(seed):
        rng = random.Random(seed)
        for _ in range(6):
            try:
                ask(w, b, rng.randrange(18))
            except Exception as e:  # noqa: BLE001: whatever it is, it is told
                bad.append(str(e))

    for k in range(18):
        w.expect(k)
    for rnd in range(ROUNDS):
        threads = [threading.Thread(target=work, args=(rnd * 10 + i,)) for i in range(3)]
        for t in threads:
            t.start()
        time.sleep(0.05 * rnd)
        if rnd % 3 == 1:
            a.proc.send_signal(signal.SIGSTOP)
            time.sleep(2.5)
            a.proc.send_signal(signal.SIGCONT)
        else:
            a.proc.kill()
            a.proc.wait()
            a = start(w, *HOST, *peer(p, q))
        for t in threads:
            t.join()
        assert not bad, bad
        assert b.get("/health").status == 200
    connected(b, 2)
    settle(b, "pulling again", lambda: again(w, a, b))
    assert not b.error_lines(), b.error_lines()
    a.stop(), b.stop()


def again(w, a, b):
    """A prompt that b has not seen is pulled from a."""
    again.k = getattr(again, "k", 100) + 3
    before = hits(b)
    ask(w, a, again.k)
    ask(w, b, again.k)
    return hits(b) > before


class Circle:
    """Servers, each a peer of all others, under requests of four clients, while one after the other is killed or stopped."""

    def __init__(self, w, n):
        self.w, self.left, self.bad, self.lock = w, n, [], threading.Lock()
        self.at = ports(N_SERVERS)
        self.servers = [self.begin(i) for i in range(N_SERVERS)]
        self.hurt = set()  # the numbers of those that are stopped or dead now
        self.times = [0] * N_SERVERS  # how often each was
        self.longest = 0.0  # of a request to a server that was well from its beginning to its end
        self.n_hit = self.n_doubt = 0  # of servers that are gone, too
        self.events = 0  # how often one was killed or stopped, and went on

    def begin(self, i):
        return start(self.w, *TIGHT, *peer(self.at[i], *(p for p in self.at if p != self.at[i])))

    def one(self, rng):
        with self.lock:
            i = rng.choice([i for i in range(N_SERVERS) if i not in self.hurt])
            s, before = self.servers[i], self.times[i]
        began = time.monotonic()
        try:
            ask(self.w, s, rng.randrange(PROMPTS))
        except (OSError, http.client.HTTPException) as e:
            with self.lock:
                if self.times[i] == before:
                    self.bad.append("a server that nobody killed does not answer: %r" % e)
            return
        with self.lock:
            if self.times[i] == before:
                self.longest = max(self.longest, time.monotonic() - began)

    def client(self, seed):
        rng = random.Random(seed)
        while not self.bad:
            with self.lock:
                self.left -= 1
                if self.left < 0 and self.events >= EVENTS:
                    return
            try:
                self.one(rng)
            except AssertionError as e:
                self.bad.append(str(e))

    def count(self, s):
        self.n_hit += hits(s)
        self.n_doubt += metric(s, "spillway:kv_verify_failures_total")

    def hurt_one(self, i, how):
        with self.lock:
            self.hurt.add(i)
            self.times[i] += 1
            s = self.servers[i]
        if how == "killed":
            self.count(s)
            s.proc.kill()
            s.proc.wait()
            s = self.begin(i)
        else:  # the server alone, or its room (the process in which UCX runs) as well
            every = [s.proc.pid] + (children(s.proc.pid) if how == "stopped whole" else [])
            for pid in every:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(2.5)  # longer than a silent peer is waited for
            for pid in every:
                os.kill(pid, signal.SIGCONT)
        with self.lock:
            self.servers[i] = s
            self.times[i] += 1
            self.hurt.discard(i)

    def run(self, every):
        rng = random.Random(7)
        threads = [threading.Thread(target=self.client, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        last = self.left
        while any(t.is_alive() for t in threads):
            time.sleep(0.02)
            if last - self.left < every or (self.left <= 0 and self.events >= EVENTS) or self.bad:
                continue
            last = self.left
            self.hurt_one(rng.randrange(N_SERVERS), ("killed", "stopped", "stopped whole")[self.events % 3])
            self.events += 1
        for t in threads:
            t.join()


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
        return [int(x) for x in f.read().split()]


@test
def three_share_while_one_after_the_other_is_killed_or_stopped(w):
    for k in range(PROMPTS):
        w.expect(k)
    t = Circle(w, REQUESTS)
    for s in t.servers:
        connected(s, N_SERVERS - 1)
    t.run(min(80, REQUESTS // EVENTS))
    assert not t.bad, t.bad[0]
    for s in t.servers:
        t.count(s)
        lent_is_back(s)
        assert not s.error_lines(), s.error_lines()
    print("%d requests, %d times one was killed or stopped, %d blocks of peers, the longest wait at another one %.2f s"
          % (REQUESTS - t.left, t.events, t.n_hit, t.longest), flush=True)
    assert t.n_hit > 0 and t.n_doubt == 0, (t.n_hit, t.n_doubt)
    assert t.longest <= BLOCKED_S * slower(), "a request at a server that was well took %.1f s" % t.longest
    for s in t.servers:
        s.stop()


@test
def a_peer_that_lies_is_found_out(w):
    """It has the key and speaks the protocol (hostile_peer.py). Whatever it answers, no token is wrong and nobody waits for it."""
    import hostile_peer as h
    at = ports(1)[0]
    a = start(w, *HOST, *peer(at))
    for k in range(12):
        ask(w, a, k)
    in_host(a, 60)
    lies = ["no", h.swapped, h.other_slots, h.other_digests, h.beyond_the_slab, h.all_is_here, h.for_ever, "old", "cut", "forged", "shifted"]
    for lie in lies[:1] + lies[4:6] if SANITIZED else lies:  # there, those that name what is not there
        here = ports(1)[0]
        liar = h.Liar(here, at, lie)
        b = start(w, *HOST, "--kv-peer", "127.0.0.1:%d" % here)
        connected(b)
        for k in range(15):  # the last three are nobody's
            ask(w, b, k)
        name = getattr(lie, "__name__", lie)

        def came():
            if lie in ("no", h.for_ever):
                return hits(b) >= 20
            doubtful = lie in (h.swapped, h.other_slots, h.other_digests, "shifted")
            return liar.told > 0 and (not doubtful or metric(b, "spillway:kv_verify_failures_total") > 0)

        def comes():
            """By further prompts, where b, which waits for a peer no longer than a part of computing takes, has pulled too little yet."""
            if not came():
                again(w, a, b)
            return came()

        settle(b, "what %s brings" % name, comes)
        found, doubts = hits(b), metric(b, "spillway:kv_verify_failures_total")
        if lie in ("no", h.for_ever):
            assert doubts == 0, (name, found, doubts)
        else:
            assert found == 0 or lie == "old", (name, found)  # the first answer is true, and kept for the lies
        assert b.get("/health").status == 200 and a.get("/health").status == 200
        assert not b.error_lines(), (name, b.error_lines())
        b.stop()
        liar.stop()
    # A liar that goes away while a connects to it may end UCX, whose process another one follows (docs/design/peers.md).
    errors = [x for x in a.error_lines() if not x.startswith("spillway peer room: crashed: SIGABRT ")]
    assert not errors, errors
    a.stop()


@test
def garbage_and_strangers_at_the_port(w):
    a, b, p, _ = pair(w)
    rng = random.Random(5)
    for i in range(120):
        s = socket.create_connection(("127.0.0.1", p))
        head = [b"", b"SPVP\x01\x00\x01\x00\x30\x00\x00\x00", b"SPVP\x01\x00\x05\x00\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"][i % 4]
        try:
            s.sendall(head + rng.randbytes(rng.randrange(3000)))
        except OSError:
            pass
        s.close()
    key = os.path.join(w.folder, "stranger")
    with open(key, "wb") as f:
        f.write(b"another secret of enough bytes")
    c = start(w, *HOST, "--kv-peer", "127.0.0.1:%d" % p, "--kv-peer-key-file", key)
    ask(w, a, 0)
    in_host(a, 20)
    ask(w, c, 0)
    assert hits(c) == 0 and lines(c, " is connected over ") == 0
    settle(c, "being refused", lambda: lines(c, "is its key another one?") > 0 or lines(c, "its key is another one") > 0)
    assert hits(c) == 0 and lines(c, " is connected over ") == 0
    ask(w, b, 0)
    settle(b, "pulling", lambda: hits(b) > 0 or again(w, a, b))
    assert a.get("/health").status == 200
    a.stop(), b.stop(), c.stop()


@test
def options_that_cannot_be(w):
    from harness import Server
    for extra, word in ((["--kv-peer", "127.0.0.1:9000"], "--kv-host-gib"),
                        ([*HOST[-2:], "--kv-peer", "nowhere"], "HOST:PORT"),
                        ([*HOST[-2:], "--kv-peer-listen", "0.0.0.0:9000"], "--kv-peer-key-file"),
                        ([*HOST[-2:], "--kv-peer-key-file", "/dev/null"], "needs --kv-peer")):
        s = Server(*BASE, *extra, wait=False)
        code = s.proc.wait(180)
        assert code == 64 and word in s.tail(), (extra, code, s.tail())
        s.stop()
    s = Server(*HOST, "--kv-peer", "127.0.0.1:9000", "--kv-peer-transport", "rdma", wait=False)
    if not os.path.exists("/sys/class/infiniband"):
        assert s.proc.wait(180) == 78 and "rdma" in s.tail(), s.tail()
    s.stop()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(1), a.names)


if __name__ == "__main__":
    scratch.run(main)
