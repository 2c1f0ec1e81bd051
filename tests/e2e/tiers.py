#!/usr/bin/env python3
"""KV tiers through the real server: what comes back from the host and from a folder is what was computed, or is computed again.

    tiers.py [--preset check] [--cycles 6] [--seed 1]

Every answer is compared, token ids and logprobs bit for bit, with that of a server that caches nothing. Then: a restart, a kill
in the middle of work (cycles of it), files with flipped bits and cut ends, a second server on the same folder, a full folder's cap.
One line each, then `N passed, N failed, N skipped`.

Over 500 lines: one way of blocks down and up; the other files of tiers take its World."""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch

BASE = ["--device", "cpu", "--max-model-len", "1024"]
SMALL = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.012"]  # 128 blocks on the device, 280 on the host
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class World:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.folder = tempfile.mkdtemp(prefix="spillway-tiers-")
        self.want = {}
        self.plain = None
        self.running = []

    def store(self, gib="0.05"):
        return ["--kv-nvme", "%s/kv:%s" % (self.folder, gib)]

    def prompt(self, k):
        """Prompt k: families of three share their first 320 tokens."""
        rng = random.Random(k // 3)
        ids = [rng.randrange(300, 3000) for _ in range(320)]
        rng = random.Random(1000 + k)
        return ids + [rng.randrange(300, 3000) for _ in range(40 + 7 * (k % 5))]

    def body(self, k):
        return {"prompt": self.prompt(k), "max_tokens": 6, "temperature": 0, "ignore_eos": True, "return_token_ids": True, "logprobs": 1}

    def expect(self, k):
        if k not in self.want:
            if not self.plain:
                from harness import Server
                self.plain = Server(*BASE, "--enable-prefix-caching=false")
            self.want[k] = result(self.plain.post("/v1/completions", self.body(k)).json)
        return self.want[k]

    def close(self):
        if self.plain:
            self.plain.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def result(d):
    c = d["choices"][0]
    return c["token_ids"], c["logprobs"]["token_logprobs"]


def ask(w, s, k):
    """Asks and compares; returns tokens cached in all, on the host, and below it."""
    r = s.post("/v1/completions", w.body(k))
    assert r.status == 200, r
    assert result(r.json) == w.expect(k), "prompt %d has another answer than without a cache" % k
    d = r.json["usage"]["prompt_tokens_details"]
    tier = d.get("cached_tokens_by_tier", {})
    return d["cached_tokens"], tier.get("host", 0), sum(tier.get(t, 0) for t in ("nvme", "peer", "object"))


def leave(s, body):
    """Asks, reads the beginning of the answer, and hangs up."""
    from harness import post_bytes
    c = s.conn()
    c.send(post_bytes("/v1/completions", json.dumps(body).encode()))
    assert b" 200 " in c.sock.recv(4096)
    c.close()


def metric(s, name, label=""):
    """The sum of all series of that name, or of those names, on one page."""
    names, total = name if isinstance(name, tuple) else (name,), 0.0
    for line in s.get("/metrics").body.decode().splitlines():
        if line.split("{")[0].split(" ")[0] in names and label in line:
            total += float(line.rsplit(" ", 1)[1])
    return total


def start(w, *args):
    from harness import Server
    w.running.append(Server(*args))
    return w.running[-1]


def settle(s, what, enough, seconds=180):
    end = time.time() + seconds
    while time.time() < end:
        if enough():
            return
        time.sleep(0.05)
    raise AssertionError("%s did not happen in %d s" % (what, seconds))


def known(s):
    """What lies in the folder is known, whatever it is."""
    def said():
        with open(s.log_path, "rb") as f:
            return b" blocks found in " in f.read()

    settle(s, "reading the folder", said)


def proven(s):
    """And one of its blocks was computed again: until then prompts wait for what lies there no longer than computing them takes."""
    def said():
        with open(s.log_path, "rb") as f:
            return b" is the same to the bit" in f.read()

    settle(s, "proving what lies there", said)


def too_slow(s):
    """Prompts that were computed because a load was slower, as on a busy machine it may be: what they had is no loss."""
    return metric(s, "spillway:kv_load_decisions_total", 'decision="compute"') + metric(s, "spillway:kv_loads_abandoned_total")


@test
def prefixes_come_back_from_the_host(w):
    s = start(w, *SMALL)
    try:
        hits = [ask(w, s, k) for rnd in range(3) for k in range(18)]
        assert sum(h[1] for h in hits) + 320 * too_slow(s) > 1000, hits
        assert metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="host"') + 20 * too_slow(s) > 50
        host = sum(h[1] for h in hits)
        assert metric(s, "vllm:external_prefix_cache_hits_total") == host <= metric(s, "vllm:external_prefix_cache_queries_total")
        assert metric(s, "vllm:prompt_tokens_by_source_total", 'source="external_kv_transfer"') == host
        assert metric(s, "vllm:prompt_tokens_cached_by_source_total", 'source="host"') == host
        assert metric(s, "vllm:prompt_tokens_cached_total") == sum(h[0] for h in hits)
        assert 0 < metric(s, "spillway:arena_used_bytes", 'arena="kv_host"') <= metric(s, "spillway:arena_reserved_bytes", 'arena="kv_host"')
        assert 'kv_offloading_backend="native"' in s.get("/metrics").body.decode()
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


@test
def the_host_is_read_in_place(w):
    """By many at once, some of whom hang up."""
    s = start(w, *SMALL, "--kv-host-in-place", "on", "--kv-audit-every", "3")
    try:
        for k in range(18):
            w.expect(k)

        def enough():  # few: a shared beginning stays readable while any block of the device lies behind it
            for k in range(18):
                ask(w, s, k)
            return metric(s, "spillway:kv_in_place_blocks_total") >= 20

        settle(s, "reading in place", enough)
        bad = []

        def work(i):
            rng = random.Random(i)
            for n in range(10):
                try:
                    if n % 4 == 3:
                        leave(s, {**w.body(rng.randrange(18)), "max_tokens": 200, "stream": True})
                    else:
                        ask(w, s, rng.randrange(18))
                except AssertionError as e:
                    bad.append(str(e))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not bad, bad[0]
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


@test
def many_at_once(w):
    s = start(w, *SMALL, *w.store())
    try:
        for k in range(18):
            w.expect(k)
        bad = []

        def work(i):
            rng = random.Random(i)
            for _ in range(12):
                try:
                    ask(w, s, rng.randrange(18))
                except AssertionError as e:
                    bad.append(str(e))

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not bad, bad[0]
    finally:
        s.stop()


@test
def a_restart_finds_them(w):
    s = start(w, *SMALL, *w.store())
    settle(s, "recovery", lambda: True)
    for rnd in range(2):
        for k in range(6):
            ask(w, s, k)
    s.stop()

    def found():
        """By the next start; on a disk that is busy with other things computing may be quicker, as it was measured."""
        s = start(w, *SMALL, *w.store())
        proven(s)
        n = sum(ask(w, s, k)[2] for k in range(6))
        s.stop()
        return n > 300

    settle(s, "finding what lies in the folder", found)


@test
def killed_in_the_middle_of_work(w):
    for cycle in range(w.cycles):
        s = start(w, *SMALL, *w.store())
        stop = threading.Event()

        def work(i):
            rng = random.Random(cycle * 100 + i)
            while not stop.is_set():
                try:
                    ask(w, s, rng.randrange(18))
                except AssertionError as e:
                    if "another answer" in str(e):
                        w.bad = str(e)
                    return
                except Exception:
                    return

        for k in range(18):
            w.expect(k)
        w.bad = None
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        time.sleep(0.1 + w.rng.random() * 0.7)
        s.proc.send_signal(signal.SIGKILL)
        s.proc.wait()
        stop.set()
        for t in threads:
            t.join()
        assert not w.bad, w.bad
    s = start(w, *SMALL, *w.store())
    try:
        for k in range(18):
            ask(w, s, k)
    finally:
        s.stop()


def segments(w):
    """Of all models."""
    out = []
    for folder, _, names in os.walk(os.path.join(w.folder, "kv")):
        out += [os.path.join(folder, f) for f in names if f.startswith("seg-")]
    return sorted(out)


@test
def damaged_files_are_misses(w):
    doubts = 0
    for cycle in range(max(2, w.cycles // 2)):
        files = segments(w)
        assert files
        for f in files:
            size = os.path.getsize(f)
            with open(f, "r+b") as h:
                for _ in range(200):
                    at = w.rng.randrange(size)
                    h.seek(at)
                    b = h.read(1)
                    h.seek(at)
                    h.write(bytes([b[0] ^ (1 << w.rng.randrange(8))]))
            if cycle % 2:
                os.truncate(f, w.rng.randrange(size))
        s = start(w, *SMALL, *w.store())
        try:
            known(s)
            for k in range(18):
                ask(w, s, k)
            doubts += metric(s, "spillway:kv_verify_failures_total") + metric(s, "spillway:kv_transfer_errors_total")
            for k in range(18):
                ask(w, s, k)
        finally:
            s.stop()
    assert doubts > 0, "nothing was noticed"


@test
def the_tool_lists_the_stored_blocks(w):
    import subprocess

    shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)  # what was damaged before and not asked for is still in it
    s = start(w, *SMALL, *w.store())
    for _ in range(2):
        for k in range(18):
            ask(w, s, k)
    s.stop()

    def kv(*args):
        return subprocess.run([os.environ["SPILLWAY"], "kv", *args], capture_output=True, text=True)

    folder = os.path.join(w.folder, "kv")
    r = kv("ls", folder, "--blocks")
    assert r.returncode == 0 and "sealed" in r.stdout and "tokens" in r.stdout, r
    assert kv("verify", folder).returncode == 0
    f = segments(w)[0]
    with open(f, "r+b") as h:
        h.seek(4096 + 4096 + 100)
        b = h.read(1)
        h.seek(4096 + 4096 + 100)
        h.write(bytes([b[0] ^ 1]))
    r = kv("verify", folder)
    assert r.returncode == 1 and "in doubt: payload" in r.stdout, r
    dump = os.path.join(os.path.dirname(os.environ["SPILLWAY"]), "tools", "kvdump")
    r = subprocess.run([dump, f], capture_output=True, text=True)
    assert r.returncode == 1 and "wrong at byte 8192: the digest of the payload" in r.stdout and r.stdout.count("wrong at") == 1, r
    assert "footer at byte" in r.stdout and "record 1 at byte" in r.stdout, r
    cut = f + ".cut"
    with open(f, "rb") as a, open(cut, "wb") as b:
        b.write(bytes(4096) + a.read()[4096:200000])
    r = subprocess.run([dump, cut, "--wrong"], capture_output=True, text=True)
    assert r.returncode == 1 and "no segment" in r.stdout and "3 records are whole" in r.stdout, r.stdout  # found without the header
    os.unlink(cut)
    s = start(w, *SMALL, *w.store())
    assert kv("gc", folder).returncode == 78, "gc beside a running server"
    s.stop()
    with open(f, "r+b") as h:
        h.write(bytes(100))  # its header: the next server puts it away
    s = start(w, *SMALL, *w.store())
    settle(s, "a damaged segment is put away", lambda: "in quarantine" in kv("ls", folder).stdout)
    s.stop()
    r = kv("ls", folder)
    assert "quarantine  1 damaged segments" in r.stdout and ", 1 damaged files in quarantine" in r.stdout, r
    r = kv("gc", folder)
    assert r.returncode == 0 and "quarantine  1 damaged" in r.stdout and "1 files removed" in r.stdout, r
    assert "quarantine" not in kv("ls", folder).stdout and segments(w)
    assert kv("gc", folder, "--all").returncode == 0 and not segments(w)


@test
def a_request_that_just_ended_survives_a_restart(w):
    args = [*BASE, "--kv-host-gib", "0.012", *w.store()]  # the device has room for all of it
    shutil.rmtree(os.path.join(w.folder, "kv"))
    w.expect(900), w.expect(903)
    s = start(w, *args)
    for _ in range(2):
        ask(w, s, 900)
    ask(w, s, 903)  # once: only the device holds it
    s.stop()
    s = start(w, *args)
    try:
        proven(s)
        for k in (900, 903):
            assert ask(w, s, k)[2] > 300 or too_slow(s), k
    finally:
        s.stop()


@test
def an_encrypted_folder_tells_nothing_and_opens_by_its_key(w):
    import struct
    import subprocess

    folder = os.path.join(w.folder, "kv")
    shutil.rmtree(folder, ignore_errors=True)
    keys = [os.path.join(w.folder, n) for n in ("key-a", "key-b")]
    for k in keys:
        with open(k, "wb") as f:
            f.write(os.urandom(32).hex().encode() + b"\n" if k.endswith("a") else os.urandom(32))

    def run(args, least, most=None):
        s = start(w, *SMALL, *w.store(), *args)
        known(s)
        hits = sum(ask(w, s, k)[2] for _ in range(2) for k in range(18))
        doubts = metric(s, "spillway:kv_verify_failures_total")
        excused = 320 * too_slow(s)
        s.stop()
        assert doubts == 0 and hits + excused >= least and (most is None or hits <= most), (args, hits, doubts)

    run(["--kv-encrypt-key-file", keys[0]], 0)
    data = b"".join(open(f, "rb").read() for f in segments(w))
    assert len(data) > 1 << 20
    for k in (0, 3, 6):
        for i in (0, 160):
            assert struct.pack("<16I", *w.prompt(k)[i : i + 16]) not in data, "token ids lie there to be read"
    run(["--kv-encrypt-key-file", keys[0]], 1000)

    def kv(*args):
        return subprocess.run([os.environ["SPILLWAY"], "kv", *args], capture_output=True, text=True)

    assert kv("verify", folder, "--encrypt-key-file", keys[0]).returncode == 0
    r = kv("verify", folder, "--encrypt-key-file", keys[1])
    assert r.returncode == 1 and "not under this key" in r.stdout, r
    assert kv("ls", folder).returncode == 0 and "no --encrypt-key-file was given" in kv("ls", folder).stdout
    with open(segments(w)[0], "r+b") as h:
        h.seek(4096 + 4096 + 100)
        b = h.read(1)
        h.seek(4096 + 4096 + 100)
        h.write(bytes([b[0] ^ 1]))
    assert "in doubt: payload" in kv("verify", folder, "--encrypt-key-file", keys[0]).stdout
    s = start(w, *SMALL, *w.store(), "--kv-encrypt-key-file", keys[1])
    settle(s, "one line about the key", lambda: "under another key" in s.tail(50))
    assert sum(ask(w, s, k)[2] for k in range(6)) == 0
    s.stop()
    before = set(segments(w))
    run(["--kv-encrypt"], 0)
    assert set(segments(w)) <= before, "a key that is gone keeps no file"
    from harness import Server
    bad = Server(*SMALL, *w.store(), "--kv-encrypt-key-file", os.path.join(w.folder, "none"), wait=False)
    assert bad.proc.wait(180) == 78 and "--kv-encrypt-key-file" in bad.tail()
    bad = Server(*SMALL, "--kv-encrypt", wait=False)
    assert bad.proc.wait(180) == 64 and "need --kv-nvme" in bad.tail()


@test
def two_ranks_survive_a_restart_and_one_is_another_model(w):
    two = [*SMALL, *w.store(), "--tensor-parallel-size", "2", "--kv-cache-bytes", "2MiB"]  # of each rank
    from harness import Server
    shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)
    plain = Server(*BASE, "--enable-prefix-caching=false", "--tensor-parallel-size", "2")  # sums in another order than one rank
    want = {k: result(plain.post("/v1/completions", w.body(k)).json) for k in range(18)}
    plain.stop()
    w.want, one = want, w.want
    try:
        s = start(w, *two)
        hits = [ask(w, s, k) for rnd in range(3) for k in range(18)]
        assert sum(h[1] for h in hits) + 320 * too_slow(s) > 300, hits
        s.stop()
        s = start(w, *two)
        proven(s)
        hits = [ask(w, s, k) for k in range(18)]
        assert sum(h[2] for h in hits) + 320 * too_slow(s) > 300, hits
        assert metric(s, "spillway:kv_verify_failures_total") == 0
        s.stop()
    finally:
        w.want = one
    s = start(w, *SMALL, *w.store())
    try:
        assert sum(h[1] + h[2] for h in [ask(w, s, k) for k in range(6)]) == 0, "a block of two ranks was taken for one's"
    finally:
        s.stop()


@test
def keys_and_values_of_8_bits_come_back_and_are_no_other_model_s(w):
    """--kv-cache-dtype fp8, as vLLM spells it too: half the bytes, the same answers from every tier, and bf16 takes none of it."""
    from harness import Server
    fp8 = [*SMALL, *w.store(), "--kv-cache-bytes", "2MiB", "--kv-cache-dtype", "fp8"]
    shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)
    plain = Server(*BASE, "--enable-prefix-caching=false", "--kv-cache-dtype", "fp8_e4m3")
    want = {k: result(plain.post("/v1/completions", w.body(k)).json) for k in range(18)}
    plain.stop()
    assert want != {k: w.expect(k) for k in range(18)}, "they are rounded"
    w.want, bf16 = want, w.want
    try:
        s = start(w, *fp8)
        with open(s.log_path, "rb") as f:
            assert b" bytes a token (f8e4m3), " in f.read()
        assert 'cache_dtype="fp8"' in s.get("/metrics").body.decode()
        block = metric(s, "spillway:kv_cache_bytes") / metric(s, "spillway:kv_blocks")
        hits = [ask(w, s, k) for rnd in range(3) for k in range(18)]
        assert sum(h[1] for h in hits) + 320 * too_slow(s) > 300, hits
        s.stop()
        s = start(w, *fp8)
        proven(s)
        hits = [ask(w, s, k) for k in range(18)]
        assert sum(h[2] for h in hits) + 320 * too_slow(s) > 300, hits
        assert metric(s, "spillway:kv_verify_failures_total") == 0
        s.stop()
    finally:
        w.want = bf16
    s = start(w, *SMALL, *w.store())
    try:
        wide = metric(s, "spillway:kv_cache_bytes") / metric(s, "spillway:kv_blocks")
        assert wide / 2 < block < wide * 0.55, (block, wide)
        assert sum(h[1] + h[2] for h in [ask(w, s, k) for k in range(6)]) == 0, "a block of 8 bits was taken for one of 16"
    finally:
        s.stop()


@test
def one_server_a_folder(w):
    s = start(w, *SMALL, *w.store())
    try:
        other = start(w, *SMALL, *w.store())
        settle(other, "the second says that it serves without", lambda: "another server uses it" in other.tail(50))
        ask(w, other, 0)
        ask(w, s, 0)
        s.stop()
        settle(other, "the second has the folder", lambda: metric(other, "spillway:kv_tier_degraded") == 0)
        other.stop()
    finally:
        s.stop() if s.proc.poll() is None else None


@test
def the_cap_holds_on_disk(w):
    gib = 0.02
    s = start(w, *SMALL, *w.store(str(gib)))
    try:
        most = 0
        for rnd in range(3):
            for k in range(24):
                ask(w, s, k)
                most = max(most, sum(os.path.getsize(f) for f in segments(w) if os.path.exists(f)))
        assert most <= gib * (1 << 30), most
    finally:
        s.stop()


def arguments(doc, *more):
    """The command line of a file of tests: --preset, options of its own (name and what argparse says of it), and tests by name.
    $SPILLWAY is the server of the preset from here on, if nobody has set it."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--preset", default="check")
    for name, what in more:
        ap.add_argument(name, **what)
    ap.add_argument("names", nargs="*")
    a = ap.parse_args()
    os.environ.setdefault("SPILLWAY", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build", a.preset, "spillway"))
    return a


def run_named(tests, w, names):
    """Those of the tests that are named, or all, with no server left over after each. The exit status."""
    from harness import run_tests  # which reads $SPILLWAY: main has set it

    def stop_all():
        for s in w.running:
            if s.proc.poll() is None:
                s.proc.kill()
                s.proc.wait()
        w.running.clear()

    try:
        return run_tests([fn for fn in tests if not names or fn.__name__ in names], w, after=stop_all)
    finally:
        w.close()


def main():
    a = arguments(__doc__, ("--cycles", {"type": int, "default": 6}), ("--seed", {"type": int, "default": 1}))
    w = World(a.seed)
    w.cycles = a.cycles
    return run_named(TESTS, w, a.names)


if __name__ == "__main__":
    scratch.run(main)
