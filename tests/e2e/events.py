#!/usr/bin/env python3
"""KV events (--kv-events-config): a router that reads them knows which blocks the server holds.

    events.py [--preset check] [name ...]

The router here is an independent one: its messages come through pyzmq, are decoded by msgpack, and become a set of blocks for
each tier. What it predicts is compared with what the server then does and counts. EVENTS_REQUESTS sets the number of requests.
Over 500 lines: one router, and everything that it must get right.
One line each, then `N passed, N failed, N skipped`."""
# Under sanitizers: in ./check all. What is published has unit tests that always run there.

import json
import os
import random
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from tiers import BASE, World, arguments, ask, metric, run_named, settle, start  # noqa: E402

DEVICE = BASE + ["--kv-cache-bytes", "3MiB"]
TIERS = BASE + ["--kv-cache-bytes", "3MiB", "--kv-host-gib", "0.006"]
END = (1 << 64) - 1
BLOCK = 16
SLOW = os.environ.get("SANITIZED_BUILD")
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def plain(fn):
    """In a sanitized build only when asked for by name: what it runs the others run too."""
    return fn if SLOW and fn.__name__ not in sys.argv else test(fn)


class Wire:
    """The two addresses of one server, and its option."""

    def __init__(self, **more):
        from harness import free_port

        self.pub, self.rep = free_port(), free_port()
        self.topic = "kv@pod-1@pebble"
        self.config = {"enable_kv_cache_events": True, "endpoint": "tcp://*:%d" % self.pub, "replay_endpoint": "tcp://*:%d" % self.rep,
                       "topic": self.topic, **more}
        self.args = ["--kv-events-config", json.dumps(self.config)]


def event_fields(e):
    """Both forms of an event as one dict."""
    if isinstance(e, dict):
        return e
    names = {"BlockStored": ["block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys"],
             "BlockRemoved": ["block_hashes", "medium"], "AllBlocksCleared": []}[e[0]]
    assert len(e) <= len(names) + 1, e
    return {"type": e[0], **dict(zip(names, e[1:]))}


HEAD = {}  # the first 8 bytes of a hash of 32, which tools print, by the number


def number(h):
    if isinstance(h, int):
        return h
    assert len(h) == 32
    n = int.from_bytes(h[-8:], "big")
    HEAD[n] = h[:8].hex()
    return n


def time_of(body):
    import msgpack

    return msgpack.unpackb(body, strict_map_key=False)[0]


class Router:
    """Mirrors the blocks of one server. A gap in the sequence is asked for again; what cannot be had again is mended by the clearing
    that follows it."""

    def __init__(self, wire, subscribe=b"kv@"):
        import zmq

        self.wire, self.held = wire, {"GPU": set(), "CPU": set(), "STORAGE": set()}
        self.parent, self.tokens, self.extra = {}, {}, {}
        self.lora, self.lora_id = {}, {None: None}  # names of adapters by block; numbers by name
        self.gaps, self.replayed, self.cleared, self.kinds = 0, 0, 0, set()
        self.begin()
        self.unknown_parent, self.doubled, self.stray = 0, 0, 0
        self.last = 0.0
        self.ctx, self.subscribe = zmq.Context(), subscribe
        self.come()

    def come(self):
        import zmq

        self.sub = self.ctx.socket(zmq.SUB)
        self.ends = self.sub.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self.sub.setsockopt(zmq.SUBSCRIBE, self.subscribe)
        self.sub.connect("tcp://127.0.0.1:%d" % self.wire.pub)

    def go(self):
        self.sub.disable_monitor()
        self.ends.close(0)
        self.sub.close(0)

    def begin(self):
        """At the first batch of a process: seen batches, events by block."""
        self.next = self.seen = self.events = 0

    def replay(self, first):
        import zmq

        s = self.ctx.socket(zmq.DEALER)
        s.setsockopt(zmq.LINGER, 0)
        s.connect("tcp://127.0.0.1:%d" % self.wire.rep)
        s.send_multipart([b"", first.to_bytes(8, "big")])
        out = []
        while s.poll(60000):
            empty, seq, body = s.recv_multipart()
            assert empty == b""
            if int.from_bytes(seq, "big") == END:
                assert body == b""
                s.close()
                return out
            out.append((int.from_bytes(seq, "big"), body))
        raise AssertionError("a replay without an end")

    def read(self, wait_ms=0):
        """What has come; True: there was something."""
        any_yet = False
        while self.sub.poll(wait_ms if not any_yet else 0):
            topic, seq, body = self.sub.recv_multipart()
            assert topic.decode() == self.wire.topic, topic
            self.take(int.from_bytes(seq, "big"), body)
            any_yet = True
        return any_yet

    def read_to_the_end(self):
        """All that a server sent that has ended: it is there once the connection is known to be gone."""
        assert self.ends.poll(180000), "the connection is still there"
        self.ends.recv_multipart()
        self.read()

    def ask_again(self):
        for seq, body in self.replay(self.next):
            self.take(seq, body)

    def take(self, seq, body):
        if seq < self.next:
            if time_of(body) <= self.last:
                return  # replayed before
            self.begin()  # another process: its sequence begins anew
        if seq > self.next:
            for s, b in self.replay(self.next):
                if self.next <= s < seq:
                    self.replayed += 1
                    self.gaps += s - self.next
                    self.next = s + 1
                    self.apply(b)
            self.gaps += seq - self.next
        self.next = seq + 1
        self.apply(body)

    def apply(self, body):
        import msgpack

        ts, events, rank = msgpack.unpackb(body, strict_map_key=False)
        assert isinstance(ts, float) and abs(ts - time.time()) < 3600 and rank == 0, (ts, rank)
        self.last = ts
        self.seen += 1
        for e in map(event_fields, events):
            self.kinds.add(e["type"])
            getattr(self, e["type"])(e)

    def AllBlocksCleared(self, e):
        self.cleared += 1
        self.events += 1
        for s in self.held.values():
            s.clear()
        self.parent, self.tokens = {}, {}

    def BlockStored(self, e):
        hashes, ids, medium = [number(h) for h in e["block_hashes"]], e["token_ids"], e["medium"]
        assert e["block_size"] == BLOCK and (e["lora_id"] is None) == (e["lora_name"] is None), e
        assert self.lora_id.setdefault(e["lora_name"], e["lora_id"]) == e["lora_id"], "one name, two ids"
        assert hashes and (len(ids) == BLOCK * len(hashes) or (medium == "STORAGE" and not ids)), e
        before = e["parent_block_hash"]
        before = None if before is None else number(before)
        if ids and before is not None and (before not in self.tokens or not any(before in held for held in self.held.values())):
            self.unknown_parent += 1  # never told, or told to be gone from every tier: the tokens lead nowhere
        self.events += len(hashes)
        for i, h in enumerate(hashes):
            self.doubled += h in self.held[medium]
            self.held[medium].add(h)
            assert not ids or self.lora.setdefault(h, e["lora_name"]) == e["lora_name"], "one block, two adapters"
            if ids:
                said = (before, tuple(ids[i * BLOCK:i * BLOCK + BLOCK]))
                assert self.tokens.get(h, said) == said, "one hash, two blocks"
                self.tokens[h] = said
                self.parent[said] = h
            before = h
        for i, x in enumerate(e.get("extra_keys") or []):
            if x is not None:
                self.extra[hashes[i]] = x

    def BlockRemoved(self, e):
        self.events += len(e["block_hashes"])
        for h in map(number, e["block_hashes"]):
            self.stray += h not in self.held[e["medium"]]
            self.held[e["medium"]].discard(h)

    def cached(self, ids, medium="GPU"):
        """How many blocks of a prompt the server has there, from its beginning."""
        before, n = None, 0
        for i in range(0, len(ids) - 1 - (len(ids) - 1) % BLOCK, BLOCK):
            before = self.parent.get((before, tuple(ids[i:i + BLOCK])))
            if before is None or before not in self.held[medium]:
                break
            n += 1
        return n

    def caught_up(self, s):
        """All events that the server has counted have come."""
        def is_so():
            self.read(20)
            if self.seen < metric(s, "spillway:kv_event_batches_total"):
                self.ask_again()  # what was sent before the subscription was heard of
            told = metric(s, "spillway:kv_events_total")
            return self.events >= told > 0

        settle(s, "all events", is_so)

    def close(self):
        self.go()
        self.ctx.term()


def requests(n):
    return int(os.environ.get("EVENTS_REQUESTS", n // 8 if SLOW else n))


def agrees(r, s):
    """The mirror has as many blocks on each tier as the server counts there."""
    r.caught_up(s)

    def same():
        r.read(20)
        have = (len(r.held["CPU"]), len(r.held["STORAGE"]))
        return have == (metric(s, "spillway:kv_tier_blocks", 'tier="host"'), metric(s, "spillway:kv_tier_blocks", 'tier="nvme"'))

    settle(s, "the mirror of %s" % {k: len(v) for k, v in r.held.items()}, same)


def predicted(w, r, s, k):
    """Asks for prompt k; the device had what the router said."""
    r.caught_up(s)
    guess = r.cached(w.prompt(k))
    cached, host, nvme = ask(w, s, k)
    assert (cached - host - nvme) // BLOCK == guess, "prompt %d: predicted %d blocks, found %s" % (k, guess, (cached, host, nvme))
    return guess


@plain
def a_router_knows_what_the_device_holds(w):
    for more in ({}, {"encoding": "array"}, {"block_hashes": "bytes"}):
        wire = Wire(**more)
        s = start(w, *DEVICE, *wire.args)
        r = Router(wire)
        try:
            rng, total = random.Random(5), 0
            for _ in range(requests(60)):
                total += predicted(w, r, s, rng.randrange(18))
            r.caught_up(s)
            assert total > 0 and r.kinds == {"BlockStored", "BlockRemoved", "AllBlocksCleared"}, (total, r.kinds)
            assert r.cleared == 1 and not r.unknown_parent and not r.stray and not r.doubled, vars(r)
            assert len(r.held["GPU"]) > 20 and not r.held["CPU"]
            assert metric(s, "spillway:kv_events_total", 'kind="stored"') - metric(s, "spillway:kv_events_total", 'kind="removed"') == len(r.held["GPU"])
            assert metric(s, "spillway:kv_events_dropped_total") == 0
        finally:
            r.close()
            s.stop()


@plain
def a_prompt_has_the_same_hashes_in_every_start(w):
    """Without any tier: a router may know a prompt's blocks from another server of the same weights."""
    held = []
    for _ in range(2):
        wire = Wire(block_hashes="bytes")
        s = start(w, *DEVICE, *wire.args)
        r = Router(wire)
        try:
            ask(w, s, 0)
            r.caught_up(s)
            held.append(set(r.held["GPU"]))
        finally:
            r.close()
            s.stop()
    assert held[0] and held[0] == held[1], held


def hammer(w, s, n, seed=0, threads=4):
    bad = []

    def work(i):
        rng = random.Random(seed * 100 + i)
        for _ in range(n // threads):
            try:
                ask(w, s, rng.randrange(18))
            except Exception as e:
                bad.append(str(e))

    for k in range(18):
        w.expect(k)
    ts = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for t in ts:
        t.start()
    return ts, bad


@test
def all_tiers_and_a_restart(w):
    wire = Wire(block_hashes="bytes")
    s = start(w, *TIERS, *w.store(), *wire.args)
    r = Router(wire)
    for turn in range(1 if SLOW else 2):
        ts, bad = hammer(w, s, requests(240), turn)
        while any(t.is_alive() for t in ts):
            r.read(20)
        assert not bad, bad[0]
        agrees(r, s)
        assert len(r.held["CPU"]) > 20 and len(r.held["STORAGE"]) > 20, {k: len(v) for k, v in r.held.items()}
        assert not r.stray and not r.doubled and r.gaps == 0, vars(r)
        for k in range(18):
            predicted(w, r, s, k)
        agrees(r, s)
        s.stop()
        r.read_to_the_end()
        told, in_folder = {HEAD[h] for h in r.held["STORAGE"]}, folder_keys(w)
        assert told and in_folder >= told, (len(in_folder), len(told))
        s = start(w, *TIERS, *w.store(), *wire.args)  # the same address: the router connects again
        r.begin()
        r.caught_up(s)
        assert r.cleared == turn + 2
        settle(s, "the folder's blocks", lambda: not r.read(50) and {HEAD[h] for h in r.held["STORAGE"]} == in_folder)
    agrees(r, s)
    r.close()
    s.stop()


def folder_keys(w):
    """What lies in the folder by the tool that reads it."""
    out = subprocess.run([os.environ["SPILLWAY"], "kv", "ls", os.path.join(w.folder, "kv"), "--blocks"], capture_output=True, text=True)
    assert out.returncode == 0, out
    return set(re.findall(r"^ +[0-9]+  ([0-9a-f]{16})  after ", out.stdout, re.M))


@plain
def a_router_that_was_away_catches_up_by_replay(w):
    wire = Wire(buffer_steps=50)
    s = start(w, *DEVICE, *wire.args)
    r = Router(wire)
    for k in range(9):
        predicted(w, r, s, k)
    r.go()
    for k in range(9, 18):
        ask(w, s, k)
    r.come()
    for k in range(6):
        predicted(w, r, s, k)
    assert r.gaps == 0 and r.cleared == 1 and not r.stray and not r.unknown_parent, vars(r)
    for n in range(60):  # longer than the buffer: what is lost shows as a gap
        ask(w, s, n % 18)
    have = r.replay(0)
    assert len(have) <= 50 and have[0][0] > 0, (len(have), have[0][0])
    assert [q for q, _ in have] == list(range(have[0][0], have[-1][0] + 1))
    assert r.replay(have[-1][0] + 1) == [] and r.replay(END - 1) == []
    assert metric(s, "spillway:kv_event_replays_total") >= 4
    r.close()
    s.stop()


@plain
def blocks_of_adapters_are_told_with_their_names(w):
    from f_lora import adapter

    names = {None: None, "one": 1, "two": 2}
    folders = [adapter(os.path.join(w.folder, name), seed) for name, seed in names.items() if name]
    for more in ({}, {"encoding": "array", "block_hashes": "bytes"}):
        wire = Wire(**more)
        s = start(w, *DEVICE, "--kv-host-gib", "0.05", *wire.args, "--enable-lora", "--lora-modules", *("%s=%s" % (os.path.basename(f), f) for f in folders))
        r = Router(wire)
        try:
            for name in (*names, *names):  # what is asked for twice goes down
                answer = s.post("/v1/completions", {**w.body(0), **({"model": name} if name else {})})
                assert answer.status == 200, answer
            r.caught_up(s)
            settle(s, "the host's blocks", lambda: not r.read(20) and len(r.held["CPU"]) >= 3 * (len(w.prompt(0)) // BLOCK))
            for medium in ("GPU", "CPU"):
                each = {name: sum(r.lora[h] == name for h in r.held[medium]) for name in names}
                assert min(each.values()) >= len(w.prompt(0)) // BLOCK and len(set(each.values())) == 1, (medium, each)
            assert set(r.lora_id) == set(names) and len(set(r.lora_id.values())) == 3, r.lora_id
            assert not r.unknown_parent and not r.stray and not r.doubled, vars(r)
        finally:
            r.close()
            s.stop()


@test
def garbage_at_the_sockets_hurts_nobody(w):
    import socket

    import zmq

    wire = Wire()
    s = start(w, *DEVICE, *wire.args)
    rng = random.Random(11)
    for port in (wire.pub, wire.rep):
        for i in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as c:
                if i % 2:
                    c.sendall(b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(48))  # a greeting of the library's protocol
                c.sendall(rng.randbytes(rng.randrange(1, 3000)))
    ctx = zmq.Context()
    for frames in ([b""], [b"x"], [b"", b""], [b"", b"1234567"], [b"", b"12345678", b"more"], [b"a", b"12345678"], [b"", bytes(9)], [b"", bytes(1000)]):
        d = ctx.socket(zmq.DEALER)
        d.setsockopt(zmq.LINGER, 1000)
        d.connect("tcp://127.0.0.1:%d" % wire.rep)
        d.send_multipart(frames)
        assert not d.poll(30), frames
        d.close()
    sub = ctx.socket(zmq.XSUB)
    sub.setsockopt(zmq.LINGER, 0)
    sub.connect("tcp://127.0.0.1:%d" % wire.pub)
    sub.send(b"\x01" + bytes(5000))  # a topic longer than any
    r = Router(wire)
    for k in range(6):
        predicted(w, r, s, k)
    assert not s.error_lines() and s.get("/health").status == 200
    sub.close(0)
    ctx.term()
    r.close()
    s.stop()


@plain
def a_subscriber_that_does_not_read_holds_nobody(w):
    import zmq

    wire = Wire(hwm=1)
    s = start(w, *DEVICE, *wire.args)
    r = Router(wire)
    r.caught_up(s)
    ctx = zmq.Context()
    deaf = ctx.socket(zmq.SUB)
    deaf.setsockopt(zmq.RCVHWM, 1)
    deaf.setsockopt(zmq.RCVBUF, 4096)
    deaf.setsockopt(zmq.SUBSCRIBE, b"")
    deaf.connect("tcp://127.0.0.1:%d" % wire.pub)
    k = [0]

    def slow():
        for _ in range(20):
            k[0] += 1
            ask(w, s, k[0] % 18)
            r.read()
        return metric(s, "spillway:kv_events_dropped_total", 'why="subscriber"') > 0

    settle(s, "a batch that was left out", slow)
    for k in range(6):
        predicted(w, r, s, k)
    assert metric(s, "spillway:kv_events_dropped_total", 'why="queue"') == 0
    deaf.close(0)
    ctx.term()
    r.close()
    s.stop()


@plain
def a_takeover_leaves_the_router_with_the_truth(w):
    from harness import Server

    wire = Wire()
    path = os.path.join(w.folder, "take")
    args = [*TIERS, "--drain-seconds", "100", *wire.args]
    a = start(w, *args, "--takeover", path)
    r = Router(wire)
    for k in range(18):
        predicted(w, r, a, k)
    agrees(r, a)
    host = set(r.held["CPU"])
    b = Server(*args, "--takeover", path, wait=False, port=a.port)
    w.running.append(b)
    a.proc.wait(120)
    b.wait_ready()
    r.begin()
    r.caught_up(b)
    agrees(r, b)
    assert len(r.held["CPU"] & host) > len(host) // 2, (len(r.held["CPU"]), len(host))  # handed over, and told by the new one
    for k in range(18):
        predicted(w, r, b, k)
    agrees(r, b)
    assert not r.stray, vars(r)
    r.close()
    b.stop()
    a.stop()


@test
def wrong_options_are_told_at_start(w):
    def says(text, *args):
        p = subprocess.run([os.environ["SPILLWAY"], "--port", "0", *args], capture_output=True, text=True, timeout=60)
        assert p.returncode == 64 and text in p.stderr, (p.returncode, p.stderr)

    says("needed is a JSON object", "--kv-events-config", "yes")
    says('found "enable"', "--kv-events-config", '{"enable": true}')
    says('"hwm": found 0', "--kv-events-config", '{"hwm": 0}')
    says("begins with tcp://", "--kv-events-config", '{"endpoint": "5557"}')
    says('"encoding": found "json", allowed is "map" or "array"', "--kv-events-config", '{"encoding": "json"}')
    says("needs prefix caching", "--kv-events-config", '{"enable_kv_cache_events": true}', "--enable-prefix-caching=false")


def main():
    a = arguments(__doc__)
    # libzmq is not built for ThreadSanitizer, which does not see how its threads hand over
    os.environ["TSAN_OPTIONS"] = os.environ.get("TSAN_OPTIONS", "") + ":ignore_noninstrumented_modules=1"
    return run_named(TESTS, World(1), a.names)


if __name__ == "__main__":
    scratch.run(main)
