#!/usr/bin/env python3
"""An object store below the host (--kv-object): what one server computed another one serves, whatever the store does.

    objects.py [--preset check] [name ...]

The store is moto's server of S3, with a proxy before it that fails in every way that a store can. Every answer is compared, token
ids and logprobs bit for bit, with that of a server that caches nothing. One line each, then `N passed, N failed, N skipped`.

Over 500 lines: one kind of place; the tests share the store, the proxy and its failures."""
# Under sanitizers: in ./check all, where it takes a quarter of an hour. Packs and their tables have unit tests that always run there.

import http.client
import http.server
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from store_peer import KEYS, PATIENCE, Moto, Proxy, free_port  # noqa: E402
from tiers import BASE, World, arguments, ask, metric, run_named, settle, start  # noqa: E402

HOST = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.05"]
TIGHT = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.002"]  # it reads the same blocks again and again
TESTS = []
BUCKET = "spillway-test"


def test(fn):
    TESTS.append(fn)
    return fn


class Store:
    """A bucket behind a proxy, and the options of a server that uses a fresh prefix of it."""
    moto = None
    base = None
    n = 0

    def __init__(self, w, gib="0.25"):
        if not Store.moto:
            Store.moto = Moto().bucket(BUCKET)
        Store.n += 1
        self.gib, self.prefix = gib, "kv%d" % Store.n
        self.mac = os.path.join(w.folder, "mac")
        if not os.path.exists(self.mac):
            with open(self.mac, "wb") as f:
                f.write(os.urandom(32).hex().encode())
        self.again()

    def again(self):
        self.proxy = Proxy(Store.moto.port)
        self.args = ["--kv-object", "s3://%s/%s" % (BUCKET, self.prefix), "--kv-object-gib", self.gib, "--object-endpoint",
                     self.proxy.url(), "--kv-mac-key-file", self.mac]
        return self

    def objects(self):
        return [(k, n) for k, n in Store.moto.keys(BUCKET) if k.startswith(self.prefix + "/")]


def serve(w, st, *extra, host=HOST):
    os.environ.update(KEYS)
    return start(w, *host, *st.args, *extra)


def sweep(w, s, n=18):
    """Every prompt once; how many tokens came from below the host."""
    return sum(ask(w, s, k)[2] for k in range(n))


def filled(w, st):
    """A server whose blocks are in the store."""
    a = serve(w, st)
    for _ in range(2):
        sweep(w, a)
    settle(a, "objects", lambda: sum(n for _, n in st.objects()) > 2 << 20 and quiet(a, st))
    return a


RECORD = 45056  # bytes of a block of this model with its head


def serves(w, s, blocks=32):
    """It reads from below the host, and what it reads is right. A server whose computing is quicker than this store tries the store
    now and then all the same, 16 blocks at a time."""
    def read():
        return metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="object"')

    want = read() + blocks
    settle(s, "reading from the store", lambda: sweep(w, s) >= 0 and read() >= want)


def quiet(s, st):
    """All that the server holds below the host is in the store."""
    used = metric(s, "spillway:kv_tier_used_bytes", 'tier="object"')
    return used > 0 and used == sum(n for _, n in st.objects()) and used >= RECORD * metric(s, "spillway:kv_tier_blocks", 'tier="object"')


def finds(s, n=100):
    settle(s, "the other's blocks", lambda: metric(s, "spillway:kv_tier_blocks", 'tier="object"') > n)


def prepared(w):
    """A store that holds the blocks of all prompts, filled once; every call has a proxy of its own before it."""
    if not Store.base:
        Store.base = Store(w)
        filled(w, Store.base).stop()
    return Store.base.again()


@test
def two_zones_share_and_one_is_killed(w):
    """Item by item: what A computed B serves, also when A is killed, and a server that starts then finds it too."""
    st = Store(w)
    b = serve(w, st, host=TIGHT)
    a = filled(w, st)
    finds(b)
    a.proc.send_signal(signal.SIGKILL)
    a.proc.wait()
    serves(w, b)
    assert metric(b, "spillway:kv_verify_failures_total") == 0
    b.stop()
    c = serve(w, st, host=TIGHT)
    finds(c)
    serves(w, c)
    assert not c.error_lines()
    c.stop()
    st.proxy.stop()


def with_fault(w, fault):
    st = prepared(w)
    b = serve(w, st)
    finds(b)
    st.proxy.fault = lambda n, method, path: fault if method == "GET" and "list-type" not in path and n % 2 else None
    sweep(w, b, 9)
    st.proxy.fault = lambda n, method, path: fault
    sweep(w, b)
    st.proxy.fault = None
    assert not b.error_lines()
    assert b.get("/health").status == 200
    return st, b


@test
def wrong_bytes_are_computed_again(w):
    for fault in ("flip", "short", "long", "cut"):
        st, b = with_fault(w, fault)
        b.stop()
        st.proxy.stop()


@test
def a_store_that_fails_costs_nothing_but_time(w):
    for fault in ("500", "refuse", "expired"):
        st, b = with_fault(w, fault)
        settle(b, "serving again", lambda: st.proxy.n and metric(b, "spillway:kv_tier_blocks", 'tier="object"') > 0)
        b.stop()
        st.proxy.stop()


@test
def a_slow_or_silent_store_stalls_nobody(w):
    from harness import slower
    for fault in ("slow", "silent"):
        st = prepared(w)
        b = serve(w, st)
        finds(b)
        st.proxy.fault = lambda n, method, path: fault
        begin = time.monotonic()
        sweep(w, b)
        took = time.monotonic() - begin
        assert took < 20 * slower(), "18 requests took %.1f s with a %s store" % (took, fault)
        assert b.get("/health").status == 200 and not b.error_lines()
        begin = time.monotonic()
        b.stop()
        assert time.monotonic() - begin < 20 * slower(), "the end waits for a %s store" % fault
        st.proxy.stop()


@test
def a_store_that_is_away_at_the_start_is_found_later(w):
    st = Store(w)
    st.proxy.fault = lambda n, method, path: "500"
    s = serve(w, st)
    sweep(w, s), sweep(w, s)
    assert not st.objects()
    st.proxy.fault = None
    settle(s, "objects", lambda: len(st.objects()) > 0)
    s.stop()
    st.proxy.stop()


@test
def what_others_put_under_the_prefix_is_never_believed(w):
    st = Store(w)
    filled(w, st).stop()
    rng = random.Random(7)
    objects = st.objects()
    for key, n in objects:
        data = bytearray(Store.moto.get(BUCKET, key))
        assert len(data) == n
        for _ in range(200):
            data[rng.randrange(n - 4096)] ^= 1 << rng.randrange(8)
        Store.moto.put(BUCKET, key, bytes(data))
    model, name = objects[0][0].split("/")[1:]
    whole = Store.moto.get(BUCKET, objects[0][0])
    forged = "%s/%s/%012x-%016x.kv" % (st.prefix, model, int(name[:12], 16) + 5, rng.getrandbits(64))
    Store.moto.put(BUCKET, forged, whole)  # under another name: its table says otherwise
    Store.moto.put(BUCKET, "%s/%s/%s" % (st.prefix, "0" * 32, name), whole)  # as of another model
    Store.moto.put(BUCKET, "%s/%s/000000000001-0000000000000001.kv" % (st.prefix, model), b"")
    Store.moto.put(BUCKET, "%s/notes.txt" % st.prefix, b"keep me")
    b = serve(w, st, host=TIGHT)
    finds(b, 10)
    settle(b, "a doubt", lambda: sweep(w, b) >= 0 and metric(b, "spillway:kv_verify_failures_total") > 0)
    b.stop()
    assert Store.moto.get(BUCKET, "%s/notes.txt" % st.prefix) == b"keep me"
    st.proxy.stop()


@test
def another_mac_key_or_another_model_finds_nothing(w):
    st = prepared(w)
    n = len(st.objects())
    other = os.path.join(w.folder, "mac-other")
    with open(other, "wb") as f:
        f.write(b"another secret of 16 bytes and more")
    d = start(w, *HOST, *st.args[:-1], other)
    assert sweep(w, d, 6) == 0
    d.stop()
    e = start(w, *HOST, "--kv-cache-bytes", "12MiB", *st.args, "--kv-cache-dtype", "float32")
    for k in range(3):
        assert e.post("/v1/completions", w.body(k)).status == 200
    assert metric(e, "spillway:kv_tier_hit_blocks_total", 'tier="object"') == 0
    e.stop()
    assert len(st.objects()) >= n, "objects of others were removed"
    st.proxy.stop()


@test
def the_budget_holds_and_the_oldest_go(w):
    st = Store(w, gib="0.0627")  # four objects of 16 MiB
    s = serve(w, st, host=BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.02"])
    cap, biggest = 0.0627 * (1 << 30), 0
    for k in range(240):
        for _ in range(2):
            assert s.post("/v1/completions", w.body(k)).status == 200
        if k % 20 == 0:
            biggest = max(biggest, sum(n for _, n in st.objects()))
            assert biggest <= cap, biggest

    def evicts():  # more prompts where a slow store has not taken the blocks of all
        nonlocal k
        k += 1
        return s.post("/v1/completions", w.body(k)).status == 200 and metric(s, "spillway:kv_tier_evicted_blocks_total", 'tier="object"') > 100

    settle(s, "an eviction", evicts)
    assert cap / 2 < sum(n for _, n in st.objects()) <= cap
    for k in range(230, 240):
        ask(w, s, k)
    s.stop()
    assert sum(n for _, n in st.objects()) <= cap
    st.proxy.stop()


@test
def a_folder_and_an_object_store_hold_the_same_blocks(w):
    st = Store(w)
    a = serve(w, st, *w.store("0.2"), host=BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.006"])
    for _ in range(4):
        sweep(w, a)

    def enough():
        return metric(a, "spillway:kv_tier_blocks", 'tier="nvme"') > 20 and metric(a, "spillway:kv_tier_blocks", 'tier="object"') > 150

    settle(a, "both", lambda: enough() or (sweep(w, a) >= 0 and enough()))
    settle(a, "all objects", lambda: enough() and quiet(a, st))
    a.proc.send_signal(signal.SIGKILL)
    a.proc.wait()
    b = serve(w, st, host=TIGHT)  # without the folder
    finds(b, 150)
    serves(w, b)
    b.stop()
    st.proxy.stop()


class Endpoint:
    """What gives credentials: a container's endpoint, instance metadata and STS, by path."""

    def __init__(self, seconds):
        self.n, self.seconds, self.tokens = 0, seconds, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *a):
                pass

            def say(self, text):
                data = text.encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_PUT(self):
                self.say("metadata-token")

            def fresh(self):
                outer.n += 1
                end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + outer.seconds))
                return "KEY%d" % outer.n, "secret", "token-%d" % outer.n, end

            def do_GET(self):
                outer.tokens.append(self.headers.get("authorization") or self.headers.get("x-aws-ec2-metadata-token"))
                if self.path.endswith("security-credentials/"):
                    return self.say("a-role")
                i, s, t, e = self.fresh()
                return self.say(json.dumps({"AccessKeyId": i, "SecretAccessKey": s, "Token": t, "Expiration": e}))

            def do_POST(self):
                outer.tokens.append(self.rfile.read(int(self.headers["content-length"])).decode())
                i, s, t, e = self.fresh()
                self.say("<R><Result><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s"
                         "</SessionToken><Expiration>%s</Expiration></Credentials></Result></R>" % (i, s, t, e))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@test
def credentials_come_from_where_the_environment_says_and_are_renewed(w):
    web = os.path.join(w.folder, "web-token")
    with open(web, "w") as f:
        f.write("a.web.identity\n")
    ends = Endpoint(301)  # renewed 300 seconds before their end: a second after they came
    kinds = (
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": ends.url + "/c", "AWS_CONTAINER_AUTHORIZATION_TOKEN": "container-secret"}, "container-secret"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": web, "AWS_ROLE_ARN": "arn:aws:iam::1:role/r", "AWS_ENDPOINT_URL_STS": ends.url}, "a.web.identity"),
        ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": ends.url}, "metadata-token"),
    )
    from harness import Server
    for extra, word in kinds:
        st = Store(w)
        for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            os.environ.pop(k, None)
        ends.tokens.clear()
        s = Server(*HOST, *st.args, env=extra)
        w.running.append(s)
        sweep(w, s), sweep(w, s)
        seen = lambda: {h.get("x-amz-security-token") for _, _, h in st.proxy.seen}  # noqa: E731
        settle(s, "two sets of credentials", lambda: len(seen()) >= 2)
        assert any(word in (t or "") for t in ends.tokens), ends.tokens
        assert all(t and t.startswith("token-") for t in seen())
        s.stop()
        st.proxy.stop()
    os.environ.update(KEYS)


@test
def an_expired_token_is_renewed_at_once(w):
    ends = Endpoint(3600)
    st = Store(w)
    for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        os.environ.pop(k, None)
    from harness import Server
    st.proxy.fault = lambda n, method, path: "expired" if st.proxy.seen[-1][2].get("x-amz-security-token") == "token-1" else None
    s = Server(*HOST, *st.args, env={"AWS_CONTAINER_CREDENTIALS_FULL_URI": ends.url + "/c"})
    w.running.append(s)
    settle(s, "new credentials", lambda: any(h.get("x-amz-security-token") == "token-2" for _, _, h in list(st.proxy.seen)))
    sweep(w, s), sweep(w, s)
    settle(s, "objects", lambda: len(st.objects()) > 0)
    s.stop()
    st.proxy.stop()
    os.environ.update(KEYS)


@test
def impossible_options_are_reported(w):
    from harness import Server
    st = Store(w)
    for extra, word in ((st.args[:-2], "--kv-mac-key-file"),
                        (st.args + ["--kv-encrypt"], "one of them"),
                        (["--kv-object", "s3://A/x"] + st.args[2:], "bucket's name"),
                        (["--kv-object", "ftp://x"] + st.args[2:], "s3://BUCKET/PREFIX"),
                        (st.args[:2] + ["--kv-object-gib", "0.01"] + st.args[4:], "hold fewer than"),
                        (st.args[:4] + ["--object-endpoint", "127.0.0.1"] + st.args[6:], "http://host:port")):
        s = Server(*HOST, *extra, wait=False)
        w.running.append(s)
        assert s.proc.wait(60) in (64, 78), extra
        assert word in s.tail(), (extra, s.tail())
    s = Server(*BASE, *st.args, wait=False)
    w.running.append(s)
    assert s.proc.wait(60) == 64 and "--kv-host-gib" in s.tail()
    st.proxy.stop()


def roulette(w, args_of, n):
    """n random requests over three servers (or OBJECTS_SERVERS) of one store, four at a time, and a kill -9 after about every eighty."""
    rng = random.Random(11)
    n_servers = int(os.environ.get("OBJECTS_SERVERS", "3"))
    for k in range(60):
        w.expect(k)
    servers = [start(w, *TIGHT, *args_of()) for _ in range(n_servers)]
    lock, bad, left = threading.Lock(), [], [n]

    def work(seed):
        mine = random.Random(seed)
        while not bad:
            with lock:
                left[0] -= 1
                if left[0] < 0:
                    return
                s = servers[mine.randrange(n_servers)]
            try:
                ask(w, s, mine.randrange(60))
            except AssertionError as e:
                bad.append(str(e))
            except (OSError, http.client.HTTPException):
                with lock:
                    if s in servers and s.proc.poll() is None:
                        bad.append("a server that runs does not answer")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    last = n
    while any(t.is_alive() for t in threads):
        time.sleep(0.05)
        if last - left[0] >= 80 and left[0] > 0:
            last = left[0]
            with lock:
                i = rng.randrange(n_servers)
                servers[i].proc.kill()
                servers[i].proc.wait()
                servers[i] = start(w, *TIGHT, *args_of())
    for t in threads:
        t.join()
    assert not bad, bad[0]
    from_store = sum(metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="object"') for s in servers)
    doubts = sum(metric(s, "spillway:kv_verify_failures_total") for s in servers)
    for s in servers:
        assert not s.error_lines()
    assert doubts == 0, doubts
    if not from_store:  # those that read it were killed, or computing was quicker
        serves(w, servers[0], 1)
    for s in servers:
        s.stop()


@test
def random_requests_over_three_servers_with_kills(w):
    """OBJECTS_REQUESTS=10000 for all of it."""
    n = int(os.environ.get("OBJECTS_REQUESTS", "200"))
    st = Store(w)
    os.environ.update(KEYS)
    roulette(w, lambda: st.args, n)
    st.proxy.stop()
    r = Redis()
    roulette(w, lambda: redis_args(w, r), n)
    r.stop()


class Redis:
    """A real server of Redis, or of Valkey by REDIS_SERVER=valkey-server, and enough of its protocol."""

    def __init__(self, *more):
        self.port = free_port()
        program = os.environ.get("REDIS_SERVER", "redis-server")
        argv = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", *more]
        self.proc = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                self.call("PING")
                return
            except OSError:
                assert self.proc.poll() is None and time.monotonic() < end, program + " does not start"
                time.sleep(0.05)

    def call(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            f = s.makefile("rb")
            words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
            s.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
            return self.reply(f)

    def reply(self, f):
        line = f.readline().rstrip()
        kind, rest = line[:1], line[1:]
        assert kind != b"-", line
        if kind == b"$":
            return f.read(int(rest) + 2)[:-2] if int(rest) >= 0 else None
        if kind == b"*":
            return [self.reply(f) for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest

    def names(self):
        return self.call("ZRANGE", "kv:index", 0, -1)

    def stop(self):
        self.proc.kill()
        self.proc.wait()


def redis_args(w, r):
    Store(w).proxy.stop()  # for its MAC key
    return ["--kv-object", "redis://127.0.0.1:%d/0/kv" % r.port, "--kv-object-gib", "0.25", "--kv-mac-key-file", os.path.join(w.folder, "mac")]


@test
def redis_is_a_store_like_any_other(w):
    """Shared by two servers; then bytes change in it, then it is killed."""
    r = Redis()
    b = start(w, *TIGHT, *redis_args(w, r))
    a = start(w, *HOST, *redis_args(w, r))
    sweep(w, a), sweep(w, a)
    settle(a, "objects", lambda: sum(r.call("STRLEN", b"kv:" + n) for n in r.names()) > 2 << 20)
    finds(b)
    a.proc.send_signal(signal.SIGKILL)
    a.proc.wait()
    serves(w, b)
    assert metric(b, "spillway:kv_verify_failures_total") == 0
    for n in r.names():
        size = r.call("STRLEN", b"kv:" + n)
        for at in range(5000, size - 20000, 9000):
            r.call("SETRANGE", b"kv:" + n, at, b"wrong")
    settle(b, "a doubt", lambda: sweep(w, b) >= 0 and metric(b, "spillway:kv_verify_failures_total") > 0)
    r.stop()
    sweep(w, b)
    assert b.get("/health").status == 200 and not b.error_lines()
    b.stop()


@test
def what_redis_evicts_is_a_miss(w):
    r = Redis("--maxmemory", "6mb", "--maxmemory-policy", "allkeys-random")
    a = start(w, *TIGHT, *redis_args(w, r))
    for _ in range(4):
        sweep(w, a, 36)
    assert a.get("/health").status == 200 and not a.error_lines()
    a.stop()
    r.stop()


def main():
    a = arguments(__doc__)
    try:
        return run_named(TESTS, World(1), a.names)
    finally:
        if Store.moto:
            Store.moto.stop()


if __name__ == "__main__":
    scratch.run(main)
