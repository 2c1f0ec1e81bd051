#!/usr/bin/env python3
"""One server takes over from another (--takeover), by real processes: nobody is refused, what lay in host memory is found again, and
whoever dies, and whenever, one server goes on.

    takeover.py [--preset check] [--seconds 3] [name ...]

Answers are compared, token ids and logprobs bit for bit, with those of a server that caches nothing. Deaths are placed by a relay
between the two: it passes their packets and descriptors on, and kills one of them before the packet that it was told.
One line each, then `N passed, N failed, N skipped`.

Over 500 lines: one protocol between two processes; the tests share the relay."""

import fcntl
import http.client
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from tiers import arguments, metric, proven, run_named, too_slow  # noqa: E402

KINDS = ["HELLO", "WELCOME", "REFUSED", "ASK", "SLAB", "NO", "READY", "GO", "TAKEN", "BYE"]
ORDER = ["HELLO", "WELCOME", "ASK", "SLAB", "READY", "GO", "TAKEN"]
MAGIC, PACKET = b"SPWTAKE\0", 328
SLOW = os.environ.get("SANITIZED_BUILD")  # a token takes thirty times as long
BASE = ["--device", "cpu", "--max-model-len", "512" if SLOW else "1024", "--drain-seconds", "100"]
TIER = BASE + ["--kv-cache-bytes", "1400KiB" if SLOW else "2750KiB", "--kv-host-gib", "0.01"]  # 68 blocks on the device, 238 on the host
MANY = 6 if SLOW else 12  # prompts that the device does not hold together
LONG = 150 if SLOW else 750  # tokens of an answer that outlasts a takeover
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def quick(fn):
    """In a sanitized build only when asked for by name, or --all: what it runs the others run too."""
    if not SLOW or "--all" in sys.argv or fn.__name__ in sys.argv:
        TESTS.append(fn)
    return fn


class World:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="spillway-take-")
        self.want, self.running, self.n, self.plain = {}, [], 0, None

    def path(self):
        self.n += 1
        return os.path.join(self.folder, "s%d" % self.n)

    def start(self, *args, **kw):
        from harness import Server

        s = Server(*args, **kw)
        self.running.append(s)
        return s

    def next(self, path, old, *args, wait=True):
        """A server on the same port; wait: until it is the one that serves."""
        s = self.start(*args, "--takeover", path, wait=False, port=old.port)
        if wait:
            logged(s, "ready: ")
        return s

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def log(s):
    with open(s.log_path) as f:
        return f.read()


def until(what, fn, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        v = fn()
        if v:
            return v
        time.sleep(0.01)
    raise AssertionError("not in %d s: %s" % (seconds, what))


def logged(s, text, seconds=180):
    def look():
        assert text in log(s) or s.proc.poll() is None, "ended with %s: %s" % (s.proc.returncode, s.tail())
        return text in log(s)

    until(text + "\n" + s.tail(), look, seconds)


def ended(s, code, seconds=180):
    until("it ends\n" + s.tail(), lambda: s.proc.poll() is not None, seconds)
    got = s.proc.returncode
    assert got == code, "ended with %s, not %s: %s" % (got, code, s.tail())


def body(k, **more):
    rng = random.Random(k)
    return {"prompt": [rng.randrange(300, 3000) for _ in range(112)], "max_tokens": 4, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, "logprobs": 1, **more}


def result(d):
    c = d["choices"][0]
    return c["token_ids"], c["logprobs"]["token_logprobs"]


def ask(w, s, k, **kw):
    """Asks and compares. Tokens that came from the host and from a folder."""
    r = s.post("/v1/completions", body(k), **kw)
    assert r.status == 200, r
    assert result(r.json) == w.want[k], "prompt %d has another answer than without a cache" % k
    tier = r.json["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier", {})
    return tier.get("host", 0), tier.get("nvme", 0)


def fill(w, s, n, **kw):
    """Prompts 0 to n go to the host: they are asked for twice, and the device has room for half of them."""
    for _ in range(2):
        for k in range(n):
            ask(w, s, k, **kw)


def host_hits(w, s):
    """Of a server that has run for a while: on a busy machine it may think for many rounds that computing is quicker. Four rounds; more while
    it computes for that reason."""
    most, n, end = 0, 0, time.monotonic() + 180
    while True:
        before = too_slow(s)
        most = max(most, sum(ask(w, s, k)[0] for k in range(MANY)))
        n += 1
        if most > 40 * MANY or (n >= 4 and too_slow(s) == before) or time.monotonic() > end:
            return most


class Relay:
    """Between the new one (which comes to front) and the old one (at back). hook(kind, fds) sees each packet before it goes on; what it
    returns: None: pass; False: pass nothing more, and stay; a list: other descriptors instead."""

    def __init__(self, front, back, hook=None):
        self.back, self.hook, self.seen, self.trouble = back, hook, [], None
        self.listen = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listen.bind(front)
        self.listen.listen(1)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        new, _ = self.listen.accept()
        old = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            old.connect(self.back)
            while True:
                for a in select.select([new, old], [], [])[0]:
                    data, fds, _, _ = socket.recv_fds(a, 4096, 8)
                    if not data:
                        return
                    kind = KINDS[struct.unpack("=8sII", data[:16])[2] - 1]
                    self.seen.append(kind)
                    out = self.hook(kind, fds) if self.hook else None
                    if out is False:
                        for fd in fds:
                            os.close(fd)
                        while select.select([new, old], [], [])[0]:  # silent, until one of them closes
                            for b in (new, old):
                                if b in select.select([b], [], [], 0)[0] and not b.recv(4096):
                                    return
                    try:
                        socket.send_fds(old if a is new else new, [data], fds if out is None else out)
                    finally:
                        for fd in fds:
                            os.close(fd)
        except OSError:
            pass
        except Exception as e:
            self.trouble = e
        finally:
            self.listen.close()  # first: whoever notices the rest finds nobody here
            new.close()
            old.close()


class Load:
    """Clients that ask without a pause: even ones on a connection each time, odd ones on one that they keep. Whatever is not the right
    answer is kept."""

    def __init__(self, w, s, n=4, prompts=MANY):
        self.bad, self.n, self.stop, self.hits = [], 0, False, 0
        self.threads = [threading.Thread(target=self.work, args=(w, s, i, prompts)) for i in range(n)]
        for t in self.threads:
            t.start()

    def work(self, w, s, i, prompts):
        rng, c = random.Random(i), None
        while not self.stop:
            k = rng.randrange(prompts)
            try:
                if i % 2 == 0:
                    self.hits += ask(w, s, k)[0]
                else:
                    c = c or http.client.HTTPConnection("127.0.0.1", s.port, timeout=180)
                    c.request("POST", "/v1/completions", json.dumps(body(k)).encode(), {"Content-Type": "application/json"})
                    r = c.getresponse()
                    d = json.loads(r.read())
                    assert r.status == 200 and result(d) == w.want[k], (r.status, d)
                    if r.getheader("connection") == "close":
                        c.close()
                        c = None
                self.n += 1
            except Exception as e:
                self.bad.append("client %d: %r" % (i, e))
                c = None

    def end(self):
        self.stop = True
        for t in self.threads:
            t.join()
        assert not self.bad, "%d of %d failed: %s" % (len(self.bad), self.n, self.bad[0])
        return self.n


@test
def two_upgrades_under_load_fail_nobody(w):
    path = w.path()
    s = w.start(*TIER, "--io-threads", "2", "--takeover", path)
    fill(w, s, MANY)
    whole = []
    long = body(0, max_tokens=LONG, stream=True)
    want = "".join(json.loads(x[6:])["choices"][0]["text"] for x in s.post("/v1/completions", long).body.decode().split("\n\n")
                   if x.startswith("data: {"))
    t = threading.Thread(target=lambda: whole.append(s.post("/v1/completions", long)))
    load = Load(w, s)
    time.sleep(w.seconds / 6)
    t.start()  # a stream in flight: it ends on the old one
    until("the stream runs", lambda: whole or metric(s, "vllm:num_requests_running") > 0)
    for _ in range(2):
        new = w.next(path, s, *TIER, "--io-threads", "2")
        time.sleep(w.seconds / 3)
        ended(s, 0)
        assert "took over" in log(new), new.tail()
        s = new
    t.join()
    n = load.end()
    text = "".join(json.loads(x[6:])["choices"][0]["text"] for x in whole[0].body.decode().split("\n\n") if x.startswith("data: {"))
    assert text == want and b"[DONE]" in whole[0].body, "the stream was cut"
    assert load.hits > 0 and metric(s, "spillway:kv_verify_failures_total") == 0
    assert not s.error_lines(), s.error_lines()
    print("       %d requests, none failed" % n)
    s.stop()
    assert not os.path.exists(path), "the socket was left behind"


@quick
def blocks_on_the_host_are_found_again(w):
    """Also for a client with a key: the salt of its prefixes is new at every start, but goes over."""
    path, keys = w.path(), {"Authorization": "Bearer a-key-for-this-test"}
    args = [*TIER, "--api-key", "a-key-for-this-test"]
    s = w.start(*args, "--takeover", path)
    fill(w, s, MANY, headers=keys)
    assert os.stat(path).st_mode & 0o777 == 0o600
    new = w.next(path, s, *args)
    ended(s, 0)
    proven(new)
    hits = [ask(w, new, k, headers=keys)[0] for k in range(MANY)]
    assert sum(h >= 96 for h in hits) + too_slow(new) >= MANY - 2, hits
    fill(w, new, MANY, headers=keys)  # and it goes on as its own
    new.stop()


@quick
def nobody_reads_a_slab_in_place_that_the_next_one_may_write(w):
    """An answer whose prefix is read in place outlasts the takeover, while the next server takes the slab and fills it with other prompts."""
    path, args = w.path(), [*TIER, "--kv-host-in-place", "on"]
    s = w.start(*args, "--takeover", path)
    fill(w, s, MANY)
    long = {**body(0), "max_tokens": LONG}
    plain = w.start(*BASE, "--enable-prefix-caching=false")
    want = result(plain.post("/v1/completions", long).json)
    plain.stop()
    fill(w, s, MANY)
    assert metric(s, "spillway:kv_in_place_blocks_total") > 0 or too_slow(s)
    got = []
    t = threading.Thread(target=lambda: got.append(result(s.post("/v1/completions", long).json)))
    t.start()
    until("it runs", lambda: metric(s, "vllm:num_requests_running") == 1)
    new = w.next(path, s, *args)
    fill(w, new, MANY)
    for k in range(MANY):
        new.post("/v1/completions", body(1000 + k))
    t.join()
    assert got == [want], "the answer that outlasted the takeover is another one"
    ended(s, 0)
    fill(w, new, MANY)
    new.stop()


@quick
def blocks_that_only_the_device_held_come_along(w):
    path, args = w.path(), [*BASE, "--kv-cache-bytes", "10MiB", "--kv-host-gib", "0.01"]
    s = w.start(*args, "--takeover", path)
    for k in range(MANY):
        ask(w, s, k)  # once: not worth a copy yet
    assert metric(s, "spillway:kv_tier_blocks", 'tier="host"') == 0
    new = w.next(path, s, *args)
    ended(s, 0)
    proven(new)
    hits = [ask(w, new, k)[0] for k in range(MANY)]
    assert sum(h == 96 for h in hits) + too_slow(new) >= MANY, hits
    new.stop()


@test
def a_death_at_any_packet_leaves_one_server(w):
    back, alone = w.path(), 0
    s = w.start(*TIER, "--takeover", back, "--takeover-seconds", "300")
    fill(w, s, MANY)
    for victim in ("new", "old"):
        for kind in ("SLAB", "GO") if SLOW else ORDER:
            front, new = w.path(), []

            def hook(k, fds):
                if k == kind:
                    dead = until("it is started", lambda: new)[0] if victim == "new" else s
                    dead.proc.kill()
                    dead.proc.wait()
                    return False

            r = Relay(front, back, hook)
            new.append(w.start(*TIER, "--takeover", front, "--takeover-seconds", "300", wait=False, port=s.port))
            r.thread.join(180)
            assert not r.trouble and r.seen and r.seen[-1] == kind, (victim, kind, r.seen, r.trouble, new[0].tail())
            if victim == "old":
                alone += 1
                s, back = new[0], front
                logged(s, "ready: ")
            until("%s killed at %s: no answer: %s" % (victim, kind, s.tail()), lambda: quiet(lambda: ask(w, s, 1) is not None))
            if victim == "new" and kind != "HELLO":
                logged(s, "going on without")
            hits = host_hits(w, s)
            assert hits > 40 * MANY or (victim == "old" and kind in ("HELLO", "WELCOME", "ASK", "SLAB")), (victim, kind, hits, s.tail(40))
            if not hits:
                fill(w, s, MANY)
            assert s.proc.poll() is None and metric(s, "spillway:kv_verify_failures_total") == 0, (victim, kind, hits, s.tail())
    new = w.next(back, s, *TIER)  # and the last one still gives way
    ended(s, 0)
    assert sum(ask(w, new, k)[0] for k in range(MANY)) > 0
    new.stop()


def quiet(fn):
    try:
        return fn()
    except OSError:
        return False


@test
def the_old_one_serves_again_if_the_new_one_dies_while_it_drains(w):
    path = w.path()
    s = w.start(*TIER, "--takeover", path)
    fill(w, s, MANY)
    got = []
    t = threading.Thread(target=lambda: got.append(s.post("/v1/completions", body(0, max_tokens=LONG))))
    t.start()
    until("it runs", lambda: got or metric(s, "vllm:num_requests_running") > 0)
    new = w.next(path, s, *TIER)
    new.proc.kill()
    new.proc.wait()
    logged(s, "serving again")
    for k in range(MANY):
        ask(w, s, k)
    t.join()
    assert got[0].status == 200
    time.sleep(0.7)
    assert s.proc.poll() is None, s.tail()
    new = w.next(path, s, *TIER)  # and the next one is welcome
    ended(s, 0)
    ask(w, new, 1)
    new.stop()


class Crowd:
    """Requests that keep a server busy for a while: the device has room for one of them at a time."""

    def __init__(self, s, n=8):
        self.status = []  # of those that are over; None: its server went away
        self.threads = [threading.Thread(target=self.work, args=(s, k % MANY)) for k in range(n)]
        for t in self.threads:
            t.start()
        # whoever ends between the two counts is in neither
        until("they are here", lambda: len(self.status) + metric(s, ("vllm:num_requests_running", "vllm:num_requests_waiting")) >= n)

    def work(self, s, k):
        try:
            self.status.append(s.post("/v1/completions", body(k, max_tokens=LONG)).status)
        except (OSError, http.client.HTTPException):
            self.status.append(None)

    def end(self):
        for t in self.threads:
            t.join()
        return self.status

    def all_served(self):
        return self.end() == [200] * len(self.threads)


def during_a_takeover(w):
    """The old one, which drains for the new one and has much to do; the new one, which serves."""
    back, front, crowd = w.path(), w.path(), []
    old = w.start(*TIER, "--takeover", back)

    def hook(kind, fds):
        if kind == "READY":  # however long the new one took to load, they begin now
            crowd.append(Crowd(old))

    relay = Relay(front, back, hook)
    new = w.next(front, old, *TIER)
    logged(old, "main: draining")
    assert crowd and not relay.trouble and old.proc.poll() is None, (relay.seen, relay.trouble, old.tail())
    return old, new, crowd[0]


def nobody_serves(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return True
    return False


@test
def sigterm_to_the_new_one_ends_both_and_it_says_so(w):
    old, new, crowd = during_a_takeover(w)
    new.proc.send_signal(signal.SIGTERM)
    ended(new, 0)
    assert "that one ends too, and nobody serves then" in log(new), new.tail()
    assert crowd.all_served()
    ended(old, 0)
    assert "serving again" not in log(old), old.tail()
    assert nobody_serves(old.port)


@test
def two_sigterms_to_the_new_one_end_it_at_once_and_the_old_one_finishes(w):
    old, new, crowd = during_a_takeover(w)
    own = Crowd(new)  # what runs there is lost: that is what the second one asks for
    new.proc.send_signal(signal.SIGTERM)
    logged(new, "a second signal ends at once")
    new.proc.send_signal(signal.SIGTERM)
    ended(new, 0)
    assert "asked again, exiting at once" in log(new), new.tail()
    assert crowd.all_served()
    ended(old, 0)
    assert "serving again" not in log(old), old.tail()
    assert nobody_serves(old.port)
    own.end()


@test
def sigterm_to_the_old_one_takes_its_way_back_and_two_end_it_at_once(w):
    old, new, crowd = during_a_takeover(w)
    old.proc.send_signal(signal.SIGTERM)
    logged(old, "this one will not serve again")
    new.proc.kill()
    new.proc.wait()
    assert crowd.all_served()
    ended(old, 0)
    assert "serving again" not in log(old), old.tail()
    assert nobody_serves(old.port)

    old, new, crowd = during_a_takeover(w)
    old.proc.send_signal(signal.SIGTERM)
    logged(old, "this one will not serve again")
    old.proc.send_signal(signal.SIGTERM)
    ended(old, 0)
    assert "asked again, exiting at once" in log(old), old.tail()
    ask(w, new, 1)  # which is the only one, and serves
    new.stop()
    crowd.end()


@quick
def a_slab_that_changed_on_the_way_is_computed_again(w):
    back, front = w.path(), w.path()
    s = w.start(*TIER, "--takeover", back)
    fill(w, s, MANY)

    def hook(kind, fds):
        if kind == "SLAB":  # a bit of every slot: the payload of most, the head of some
            n = os.fstat(fds[0]).st_size
            stride = 4096 + 40 * 1024
            for i, at in enumerate(range(0, n, stride)):
                at += 100 if i % 5 == 0 else 4096 + 37 * i % 40000
                b = os.pread(fds[0], 1, at)
                os.pwrite(fds[0], bytes([b[0] ^ 8]), at)

    Relay(front, back, hook)
    new = w.next(front, s, *TIER)
    ended(s, 0)
    hits = [ask(w, new, k)[0] for k in range(MANY)]
    assert sum(hits) == 0, hits
    assert metric(new, "spillway:kv_verify_failures_total") >= MANY - 2, metric(new, "spillway:kv_verify_failures_total")
    fill(w, new, MANY)
    new.stop()


def memfd(data, seal):
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(fd, data)
    if seal:
        fcntl.fcntl(fd, 1033, 0xF)  # F_ADD_SEALS: all of them
    return fd


@quick
def an_index_in_doubt_is_no_index(w):
    def flip(data):
        return data[:130] + bytes([data[130] ^ 1]) + data[131:]

    path = w.path()
    s = w.start(*TIER, "--takeover", path)
    fill(w, s, MANY)
    for change, seal, says in ((flip, True, "wrong digest"), (lambda d: d[:-40], True, "another length"), (lambda d: d, False, "not sealed")):
        front = w.path()

        def hook(kind, fds):
            if kind == "SLAB":
                return [fds[0], memfd(change(os.pread(fds[1], 1 << 20, 0)), seal)]

        Relay(front, path, hook)
        new = w.next(front, s, *TIER)
        ended(s, 0)
        assert says in log(new) and "starting empty" in log(new), new.tail()
        assert sum(ask(w, new, k)[0] for k in range(MANY)) == 0
        fill(w, new, MANY)
        s, path = new, front
    s.stop()


@quick
def another_size_or_model_starts_empty(w):
    path = w.path()
    s = w.start(*TIER, "--takeover", path)
    fill(w, s, MANY)
    for args, says in (([*BASE, "--kv-host-gib", "0.02"], "another size"), ([*BASE, "--kv-host-gib", "0.02", "--kv-cache-dtype", "float32"], "another model"),
                       (BASE, "took nothing")):
        new = w.next(path, s, *args)
        ended(s, 0)
        assert says in log(new) or (says == "took nothing" and "took over" not in log(new)), new.tail()
        assert quiet(lambda: new.post("/v1/completions", body(3)).status) == 200
        s = new
    s.stop()


@quick
def a_folder_passes_on(w):
    path, kv = w.path(), os.path.join(w.folder, "kv")
    key = os.path.join(w.folder, "mac")
    with open(key, "w") as f:
        f.write("a secret of more than 16 bytes")
    args = [*TIER, "--kv-nvme", kv + ":0.05", "--kv-mac-key-file", key, "--takeover-seconds", "300"]
    s = w.start(*args, "--takeover", path)
    fill(w, s, MANY)
    new = w.next(path, s, *args)
    logged(new, "in use now, after")
    ended(s, 0)
    assert sum(ask(w, new, k)[0] for k in range(MANY)) > 40 * MANY
    new.stop()  # what came over reaches the folder
    s = w.start(*args, "--takeover", path)
    until("the folder is read", lambda: metric(s, "spillway:kv_tier_blocks", 'tier="nvme"') > 0)
    assert sum(ask(w, s, k)[1] for k in range(MANY)) > 40 * MANY
    # without the key what came over is of no use; the folder's blocks neither, and it says so
    new = w.next(path, s, *[a for a in args if a not in ("--kv-mac-key-file", key)])
    ended(s, 0)
    assert "under another key" in log(new), new.tail()
    for k in range(MANY):
        ask(w, new, k)
    new.stop()


@quick
def a_new_one_that_cannot_serve_is_forgotten(w):
    from harness import freeze
    path = w.path()
    s = w.start(*TIER, "--takeover", path, "--takeover-seconds", "8")
    fill(w, s, MANY)
    new = w.next(path, s, *TIER, "--model", "/nonexistent", wait=False)
    ended(new, 78)
    logged(s, "going on without the new server: it has gone")
    # one that hangs, and wakes up when its time is over, with the slab in its hands
    front, stopped = w.path(), []

    def hook(kind, fds):
        if kind == "READY":
            freeze(stopped[0].proc.pid)
            return False

    Relay(front, path, hook)
    stopped.append(w.next(front, s, *TIER, wait=False))
    logged(s, "its time has passed")
    fill(w, s, MANY)
    stopped[0].proc.send_signal(signal.SIGCONT)
    ended(stopped[0], 70)
    assert "serves on" in log(stopped[0]), stopped[0].tail()
    assert host_hits(w, s) > 0, s.tail(80)
    s.stop()
    # another port, a second one at the same time
    s = w.start(*TIER, "--takeover", path)
    bad = w.start(*TIER, "--takeover", path, wait=False)
    ended(bad, 78)
    assert "the running server listens on" in log(bad), bad.tail()
    c = fake(path, 1)
    assert struct.unpack("=8sII", socket.recv_fds(c, 4096, 2)[0][:16])[2] == 2
    second = w.next(path, s, *TIER, wait=False)
    ended(second, 78)
    assert "another takeover is under way" in log(second), second.tail()
    c.close()
    s.stop()


def fake(path, version):
    c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    c.connect(path)
    c.send(struct.pack("=8sII", MAGIC, version, 1).ljust(PACKET, b"\0"))
    return c


@test
def versions_that_differ_part_with_one_line(w):
    path = w.path()
    s = w.start(*TIER, "--takeover", path)
    c = fake(path, 2)
    d = c.recv(4096)
    assert struct.unpack("=8sII", d[:16])[1:] == (1, 3) and b"version 2" in d, d
    logged(s, "a new server was refused: it speaks version 2")
    for junk in (b"", b"x", b"y" * 328, b"z" * 4096):
        c = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        c.connect(path)
        if junk:
            c.send(junk)
        c.close()
    ask_once = s.post("/v1/completions", body(1))
    assert ask_once.status == 200

    other = w.path()
    old = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    old.bind(other)
    old.listen(1)
    new = w.start(*TIER, "--takeover", other, wait=False)
    c, _ = old.accept()
    c.recv(4096)
    c.send(struct.pack("=8sII", MAGIC, 7, 2).ljust(100, b"\0"))
    ended(new, 78)
    assert "speaks version 7 of the handover, this one 1" in log(new), new.tail()
    assert len(log(new).strip().split("\n")) == 1, new.tail()
    s.stop()


@test
def a_server_without_the_option_is_named(w):
    s = w.start(*TIER)
    path = w.path()
    new = w.next(path, s, *TIER, wait=False)
    ended(new, 78)
    assert "without --takeover" in log(new), new.tail()
    with open(path, "w") as f:  # no socket
        f.write("mine")
    new = w.next(path, s, *TIER, wait=False)
    ended(new, 78)
    with open(path) as f:
        assert f.read() == "mine"
    s.proc.kill()
    s.proc.wait()
    path = w.path()
    s = w.start(*TIER, "--takeover", path)
    s.proc.kill()  # leaves its socket behind
    s.proc.wait()
    new = w.start(*TIER, "--takeover", path, port=s.port)
    assert new.complete("Hi", max_tokens=1).status == 200
    third = w.next(path, new, *TIER)
    ended(new, 0)
    third.stop()


def main():
    a = arguments(__doc__, ("--seconds", {"type": float, "default": 1 if SLOW else 3, "help": "how long the load lasts"}),
                  ("--all", {"action": "store_true", "help": "in a sanitized build too"}))
    w = World()
    w.seconds = a.seconds
    plain = w.start(*BASE, "--enable-prefix-caching=false")
    for k in range(MANY):
        w.want[k] = result(plain.post("/v1/completions", body(k)).json)
    plain.stop()
    return run_named(TESTS, w, a.names)


if __name__ == "__main__":
    scratch.run(main)
