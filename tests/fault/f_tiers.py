"""Layer F of the fault table: KV that left the device. Every answer is compared, ids and logprobs, with a server without a cache.

Over 500 lines: a list of rows, one function each, with the damage that they do."""

import email.utils
import errno
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

from harness import BINARY, PATIENCE, Server, eventually, row, slower

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from tiers import BASE, SMALL, World, ask, metric, result, segments  # noqa: E402

TIGHT = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.005"]  # a host of 119 blocks: it spills while it serves
WORLD = []


def world():
    """One for all rows: the answers without a cache are asked for once."""
    if not WORLD:
        import atexit
        WORLD.append(World(7))
        WORLD[0].cycles = 4
        atexit.register(WORLD[0].close)
    w = WORLD[0]
    shutil.rmtree(w.folder, ignore_errors=True)
    os.makedirs(w.folder)
    return w


def sweep(w, s, n=18):
    return [ask(w, s, k) for k in range(n)]


def keys_on_disk(w):
    """The keys of all blocks in the folder, read by no server."""
    r = subprocess.run([BINARY, "kv", "ls", os.path.join(w.folder, "kv"), "--blocks"], capture_output=True, text=True)
    assert r.returncode == 0, r
    return set(re.findall(r"^ +\d+  ([0-9a-f]{16})  after", r.stdout, re.M))


def folder_events(s, event):
    return metric(s, "spillway:kv_folder_events_total", 'event="%s"' % event)


def folder_segments(s, state):
    return metric(s, "spillway:kv_folder_segments", 'state="%s"' % state)


def doubts(s):
    """How many blocks were doubted; the log has a line of it, and never more lines than doubts."""
    n = metric(s, "spillway:kv_verify_failures_total")
    said = log_of(s).count(" is in doubt (")
    assert said >= 1 or n == 0, "%d doubts and no line" % n
    eventually(lambda: metric(s, "spillway:kv_verify_failures_total") >= said, "%d lines are of as many doubts" % said)
    return n


def fill(w, *extra, stop=True):
    s = Server(*SMALL, *w.store(), *extra)
    for _ in range(2):
        sweep(w, s)
    if stop:
        s.stop()
    return s


def recovered(s, least=20):
    eventually(lambda: metric(s, "spillway:kv_tier_blocks", 'tier="nvme"') >= least, "reading the folder back")


def known(s):
    """What lies in the folder is known, whatever it is."""
    def said():
        with open(s.log_path, "rb") as f:
            return b" blocks found in " in f.read()

    eventually(said, "reading the folder")


def head(path):
    """Whether the header of a segment is written."""
    with open(path, "rb") as f:
        return any(f.read(8))


def shim(words):
    folder = tempfile.mkdtemp(prefix="spillway-shim-")
    out, ctl = os.path.join(folder, "shim_kv.so"), os.path.join(folder, "ctl")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", "shim_kv.c"), "-ldl"], check=True)
    control(ctl, words)
    preload = os.environ.get("LD_PRELOAD", "")
    return ctl, {"LD_PRELOAD": (preload + " " + out).strip(), "SHIM_CTL": ctl}


def control(ctl, words):
    with open(ctl + ".new", "w") as f:
        f.write(words)
    os.rename(ctl + ".new", ctl)


@row("F2", "another tenant's salt, another model's folder: a miss", own=True)
def f2(_):
    w = world()
    s = fill(w, stop=False)
    try:
        body = w.body(0)
        body["cache_salt"] = "somebody-else"
        r = s.post("/v1/completions", body).json
        assert result(r) == w.expect(0)
        assert r["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, r["usage"]
    finally:
        s.stop()
    # the same folder under another layout: blocks of 32 tokens
    s = Server(*SMALL, *w.store(), "--block-size", "32")
    try:
        known(s)
        hits = sweep(w, s, 6)
        assert sum(h[2] for h in hits) == 0, hits
    finally:
        s.stop()


@row("F6", "a store that fails leaves its key invisible", own=True)
def f6(_):
    w = world()
    ctl, env = shim("")
    s = Server(*TIGHT, *w.store(), env=env)
    try:
        eventually(lambda: any(head(f) for f in segments(w)), "a segment is prepared")
        control(ctl, "eio_write")
        eventually(lambda: sweep(w, s) and metric(s, "spillway:kv_transfer_errors_total") > 0, "a write fails")
        sweep(w, s)
        assert metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="nvme"') == 0
    finally:
        s.stop()


@row("F7", "ENOSPC in the middle: the tier pauses, requests go on, it resumes by itself", own=True)
def f7(_):
    w = world()
    ctl, env = shim("enospc")
    s = Server(*TIGHT, *w.store(), env=env)
    try:
        for _ in range(2):
            sweep(w, s)
        assert metric(s, "spillway:kv_tier_stored_blocks_total", 'tier="nvme"') == 0
        eventually(lambda: sweep(w, s, 2) and metric(s, "spillway:kv_folders_paused") == 1, "the metric says that it pauses")
        control(ctl, "")
        end = time.time() + PATIENCE
        while time.time() < end and metric(s, "spillway:kv_tier_stored_blocks_total", 'tier="nvme"') == 0:
            sweep(w, s)
        assert metric(s, "spillway:kv_tier_stored_blocks_total", 'tier="nvme"') > 0, "did not resume"
        eventually(lambda: metric(s, "spillway:kv_folders_paused") == 0, "the metric says that it goes on")
        eventually(lambda: "writes work again" in log_of(s), "the log says that it goes on")
        said = log_of(s).count("fails (no space left), nothing is written there for ")
        assert said >= 1
        eventually(lambda: folder_events(s, "pause") == said, "a pause for each of %d lines" % said)
    finally:
        s.stop()


@row("F8", "EIO on reads: entries are dropped and computed again", own=True)
def f8(_):
    w = world()
    fill(w)
    ctl, env = shim("")
    s = Server(*SMALL, *w.store(), env=env)
    try:
        recovered(s)
        eventually(lambda: metric(s, "spillway:kv_folder_recovered_blocks_total") >= 20, "the metric says what was found")
        control(ctl, "eio_read")
        sweep(w, s)
        assert metric(s, "spillway:kv_transfer_errors_total") > 0
        control(ctl, "")
        sweep(w, s)
    finally:
        s.stop()


@row("F9", "short transfers and EINTR are gone on with", own=True)
def f9(_):
    w = world()
    ctl, env = shim("short")
    for words in ("short", "eintr"):
        control(ctl, words)
        s = Server(*SMALL, *w.store(), env=env)
        for _ in range(2):
            sweep(w, s)
        assert metric(s, "spillway:kv_transfer_errors_total") == 0
        s.stop()
    s = Server(*SMALL, *w.store(), env=env)
    try:
        recovered(s)
        hits = sweep(w, s)
        assert sum(h[2] for h in hits) > 300, hits
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


def kill_cycle(w, seed, *extra):
    s = Server(*SMALL, *extra)
    stop, bad = threading.Event(), []

    def work(i):
        rng = random.Random(seed * 31 + i)
        while not stop.is_set():
            try:
                ask(w, s, rng.randrange(18))
            except AssertionError as e:
                if "another answer" in str(e):
                    bad.append(str(e))
                return
            except Exception:
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    time.sleep(0.05 + random.Random(seed).random() * 0.5)
    s.proc.kill()
    s.proc.wait()
    stop.set()
    for t in threads:
        t.join()
    s.stop()
    assert not bad, bad[0]


@row("F10", "kill -9 while blocks are written: no bad block, every start succeeds", own=True, slow=True)
def f10(_):
    w = world()
    for k in range(18):
        w.expect(k)
    for cycle in range(int(os.environ.get("F10_CYCLES", "12"))):
        kill_cycle(w, cycle, *w.store())
    s = Server(*SMALL, *w.store())
    try:
        sweep(w, s)
    finally:
        s.stop()


def damage(path, rng, n):
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        for _ in range(n):
            at = rng.randrange(size)
            f.seek(at)
            b = f.read(1)
            f.seek(at)
            f.write(bytes([b[0] ^ (1 << rng.randrange(8))]))


@row("F11", "flipped bits in payload, head, footer: a miss and a count", own=True)
def f11(_):
    w = world()
    rng = random.Random(3)
    noticed = 0
    for _ in range(3):
        fill(w)
        for path in segments(w):
            damage(path, rng, 300)
        s = Server(*SMALL, *w.store())
        known(s)
        sweep(w, s)
        noticed += doubts(s)
        s.stop()
    assert noticed > 0


@row("F12", "two files change places: their records are not where they say", own=True)
def f12(_):
    w = world()
    fill(w)
    files = segments(w)
    assert len(files) >= 2
    with open(files[0], "rb") as a, open(files[1], "rb") as b:
        x, y = a.read(), b.read()
    with open(files[0], "r+b") as a, open(files[1], "r+b") as b:
        a.write(y)
        b.write(x)
    s = Server(*SMALL, *w.store())
    try:
        known(s)
        sweep(w, s)
    finally:
        s.stop()


@row("F13", "files of another format version or of nobody: ignored or collected, never fatal", own=True)
def f13(_):
    w = world()
    fill(w)
    path = segments(w)[0]
    with open(path, "r+b") as f:
        f.seek(8)
        f.write(b"\x63\0\0\0")
    for name in ("seg-zzz.kv", "notes", "seg-00000000000000ff.kv"):
        for folder in (os.path.join(w.folder, "kv"), os.path.dirname(path)):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(os.urandom(10000))
    s = Server(*SMALL, *w.store())
    try:
        known(s)
        sweep(w, s)
        eventually(lambda: folder_events(s, "segment_removed") == 1, "the one of another version goes")
        assert " 1 segments removed that are not ours" in log_of(s), s.tail()
        eventually(lambda: folder_segments(s, "damaged") == 1, "the one that has the name of a segment, and is none")
        for folder in (os.path.join(w.folder, "kv"), os.path.dirname(path)):
            assert os.path.exists(os.path.join(folder, "notes")), "what is not ours was removed"
        assert os.path.exists(os.path.join(w.folder, "kv", "seg-00000000000000ff.kv")), "what is not ours was removed"
    finally:
        s.stop()


@row("F14", "files deleted, cut, made unreadable while they are in use", own=True)
def f14(_):
    w = world()
    s = fill(w, stop=False)
    try:
        files = segments(w)
        os.truncate(files[0], 100000)
        for f in files[1:]:
            os.chmod(f, 0)
        for f in files[2:]:
            os.unlink(f)
        for _ in range(2):
            sweep(w, s)
    finally:
        s.stop()


@row("F15", "the folder goes away under the server", own=True)
def f15(_):
    w = world()
    s = fill(w, stop=False)
    try:
        os.rename(os.path.join(w.folder, "kv"), os.path.join(w.folder, "gone"))
        for _ in range(2):
            sweep(w, s)
        assert s.get("/health").status == 200
    finally:
        s.stop()


@row("F16", "a disk that stalls or crawls: loads are given up, decoding never waits", own=True)
def f16(_):
    w = world()
    fill(w)
    ctl, env = shim("")
    s = Server(*SMALL, *w.store(), env=env)
    try:
        recovered(s)
        control(ctl, "stall=2000000")
        t0 = time.monotonic()
        for k in range(3):
            ask(w, s, 3 * k)
        took = time.monotonic() - t0
        assert took < 3 * slower(), "three prompts took %.1f s behind a disk that stalls for 2 s a block" % took
        control(ctl, "")
        sweep(w, s)
    finally:
        s.stop()


@row("F17", "never more on disk than was allowed", own=True)
def f17(_):
    w = world()
    gib = 0.012
    s = Server(*SMALL, *w.store(str(gib)))
    try:
        most = 0
        for _ in range(2):
            for k in range(36):
                ask(w, s, k)
                most = max(most, sum(os.path.getsize(f) for f in segments(w) if os.path.exists(f)))
        assert 0 < most <= gib * (1 << 30), most
    finally:
        s.stop()


@row("F40", "another block size on the folder of a server, and back: every block is still there, within one budget", own=True)
def f40(_):
    w = world()
    s = fill(w)
    s = Server(*SMALL, *w.store())
    recovered(s)
    hits = sweep(w, s)
    s.stop()
    assert sum(h[2] for h in hits) > 300, hits
    before = keys_on_disk(w)
    assert len(before) > 100, before
    room = 0.05 * (1 << 30)
    for args in (["--block-size", "32"], ["--kv-cache-dtype", "float16"], ["--kv-cache-dtype", "fp8"]):
        other = Server(*SMALL, *w.store(), *args)
        try:
            known(other)
            for k in range(6):
                hit = other.post("/v1/completions", w.body(k)).json["usage"]["prompt_tokens_details"]
                assert hit.get("cached_tokens_by_tier", {}).get("nvme", 0) == 0, hit
            assert sum(os.path.getsize(f) for f in segments(w)) <= room
        finally:
            other.stop()
    assert len({os.path.dirname(f) for f in segments(w)}) >= 2, segments(w)
    assert before <= keys_on_disk(w), "blocks are gone"
    s = Server(*SMALL, *w.store())
    try:
        known(s)
        hits = sweep(w, s)  # which of them are loaded and which computed, the machine's load decides
        assert sum(h[2] for h in hits) > 300, hits
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


@row("F18", "an index that is gone: heads are read in the background, serving meanwhile", own=True)
def f18(_):
    w = world()
    fill(w)
    for path in segments(w):
        size = os.path.getsize(path)
        with open(path, "r+b") as f:
            f.seek(size - 4096)
            f.write(bytes(4096))  # no footer
    s = Server(*SMALL, *w.store())
    try:
        ask(w, s, 0)
        recovered(s)
        hits = sweep(w, s)
        assert sum(h[2] for h in hits) > 300, hits
    finally:
        s.stop()


@row("F19", "two servers on one folder: the second serves without it, says why, and has it when the first has ended", own=True)
def f19(_):
    w = world()
    s = Server(*SMALL, *w.store())
    for _ in range(2):
        sweep(w, s)
    other = Server(*SMALL, *w.store())
    try:
        degraded(other, "another server uses it")
        ask(w, other, 0)
        s.stop()
        sound(other)
        recovered(other)
        assert sum(h[2] for h in sweep(w, other)) > 300
    finally:
        other.stop()


@row("F22", "kill -9, then a start with less room: consistent, within the cap", own=True)
def f22(_):
    w = world()
    for k in range(18):
        w.expect(k)
    fill(w)
    kill_cycle(w, 5, *w.store())
    gib = 0.02
    s = Server(*SMALL, *w.store(str(gib)))
    try:
        known(s)
        sweep(w, s)
        assert sum(os.path.getsize(f) for f in segments(w)) <= gib * (1 << 30)
    finally:
        s.stop()


@row("F23", "the wall clock jumps by a day, there and back: hits, timeouts, streams and the drain do not notice", own=True)
def f23(_):
    w = world()
    folder = tempfile.mkdtemp(prefix="spillway-shim-")
    out, ctl = os.path.join(folder, "shim_clock.so"), os.path.join(folder, "clock")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", "shim_clock.c"), "-ldl"], check=True)
    with open(ctl, "wb") as f:
        f.write(struct.pack("q", 0))

    def jump(seconds):
        with open(ctl, "r+b") as f:
            f.write(struct.pack("q", seconds))

    preload = os.environ.get("LD_PRELOAD", "")
    s = Server(*SMALL, *w.store(), "--request-timeout", "60", env={"LD_PRELOAD": (preload + " " + out).strip(), "SHIM_CLOCK": ctl})
    try:
        for _ in range(2):
            sweep(w, s)
        keep = s.conn()
        keep.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert keep.read_reply().status == 200
        long = {"prompt": "Once", "max_tokens": 400, "ignore_eos": True, "temperature": 0}
        want = s.post("/v1/completions", long).json["choices"][0]["text"]
        for day in (86400, -86400, 0):
            got = []
            t = threading.Thread(target=lambda: got.append(s.post("/v1/completions", long)))
            t.start()
            time.sleep(0.05)
            jump(day)
            date = s.get("/health").header("date")
            if date:  # the shim is at work: the server's own word for the time has moved
                said = email.utils.parsedate_to_datetime(date).timestamp()
                assert abs(said - time.time() - day) < 60, (date, day)
            hits = sweep(w, s)
            assert sum(h[0] for h in hits) > 3000 and sum(h[1] + h[2] for h in hits) > 300, hits
            keep.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert keep.read_reply().status == 200, "an idle connection was closed"
            t.join(PATIENCE)
            assert got and got[0].status == 200 and got[0].json["choices"][0]["text"] == want, got
            stamp = s.post("/v1/completions", {**long, "max_tokens": 1}).json["created"]
            assert abs(stamp - time.time() - day) < 60, "the shim is not at work: %s" % stamp
        assert metric(s, "spillway:kv_verify_failures_total") == 0
        jump(86400)
        t0 = time.monotonic()
        s.proc.send_signal(signal.SIGTERM)
        assert s.proc.wait(PATIENCE) == 0 and time.monotonic() - t0 < 10 * slower()
    finally:
        s.stop()
    s = Server(*SMALL, *w.store())
    try:
        recovered(s)
        assert sum(h[2] for h in sweep(w, s)) > 300, "what was written a day ahead was lost"
    finally:
        s.stop()


@row("F24", "a file system without O_DIRECT", own=True)
def f24(_):
    w = world()
    folder = tempfile.mkdtemp(prefix="spillway-tmpfs-", dir="/dev/shm")
    store = ["--kv-nvme", "%s/kv:0.05" % folder]
    try:
        for least in (0, 300):
            s = Server(*SMALL, *store)
            known(s)
            hits = [h for _ in range(2) for h in sweep(w, s)]
            assert sum(h[2] for h in hits[:18]) >= least, hits
            s.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@row("F25", "io_uring refused: threads read and write instead, said once", own=True)
def f25(_):
    w = world()
    _, env = shim("")
    s = Server(*SMALL, *w.store(), env=env)
    for _ in range(2):
        sweep(w, s)
    with open(s.log_path) as f:
        assert f.read().count("no io_uring") == 1
    s.stop()
    s = Server(*SMALL, *w.store(), env=env)
    try:
        recovered(s)
        assert sum(h[2] for h in sweep(w, s)) > 300
    finally:
        s.stop()


@row("F27", "a hit whose tail block is partial: whole blocks alone", own=True)
def f27(_):
    w = world()
    s = fill(w, stop=False)
    try:
        for k in range(18):
            cached, host, nvme = ask(w, s, k)
            assert cached % 16 == 0 and host % 16 == 0 and nvme % 16 == 0
            assert cached < len(w.prompt(k))
    finally:
        s.stop()


@row("F28", "random spilling and restoring under load: equal to a server without a cache", own=True, slow=True)
def f28(_):
    w = world()
    for k in range(24):
        w.expect(k)
    s = Server(*BASE, "--kv-cache-bytes", "3MiB", "--kv-host-gib", "0.008", *w.store("0.02"), "--max-num-seqs", "8")
    bad = []

    def work(i):
        rng = random.Random(i)
        for _ in range(int(os.environ.get("F28_REQUESTS", "40"))):
            try:
                ask(w, s, rng.randrange(24))
            except AssertionError as e:
                bad.append(str(e))
                return

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    try:
        assert not bad, bad[0]
        assert metric(s, "spillway:kv_tier_hit_blocks_total") > 100
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


def log_of(s):
    with open(s.log_path, errors="replace") as f:
        return f.read()


def degraded(s, words):
    """It serves, and says in the log, in /ready and in a metric what it serves without."""
    eventually(lambda: metric(s, "spillway:kv_tier_degraded") == 1, "the metric says so")
    r = s.get("/ready")
    assert r.status == 200 and r.json["status"] == "degraded", r
    assert words in r.json["reasons"][0]["reason"], r.json
    assert "kv: degraded: " in log_of(s) and words in log_of(s), s.tail()


def sound(s):
    eventually(lambda: metric(s, "spillway:kv_tier_degraded") == 0, "the tier is back")
    r = s.get("/ready")
    assert r.status == 200 and not r.body, r


@row("F30", "segments that cannot be opened, read or listed stay, and are served when they can be", own=True)
def f30_stay(_):
    w = world()
    ctl, env = shim("")
    for words in ("open=%d" % errno.EMFILE, "open=%d" % errno.EIO, "open=%d" % errno.EACCES, "open=%d" % errno.ENFILE,
                  "open=%d" % errno.ENOMEM, "eio_read"):
        shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)
        fill(w)
        before = set(segments(w))
        assert len(before) >= 2
        control(ctl, words)
        s = Server(*SMALL, *w.store(), env=env)
        try:
            eventually(lambda: "could not be read" in log_of(s), "the log says so under " + words)
            eventually(lambda: folder_segments(s, "unread") == len(before), "the metric says so under " + words)
            assert metric(s, "spillway:kv_folder_recovered_blocks_total") == 0
            assert sum(h[2] for h in sweep(w, s, 3)) == 0
            assert before <= set(segments(w)), "gone under " + words
            control(ctl, "")
            recovered(s)
            eventually(lambda: folder_segments(s, "unread") == 0, "all are read after " + words)
            if words == "open=%d" % errno.EMFILE:
                eventually(lambda: metric(s, "spillway:kv_tier_blocks", 'tier="nvme"') >= 100, "all of it is read")
                assert sum(h[1] + h[2] for h in sweep(w, s)) > 300
        finally:
            s.stop()
        for path in set(segments(w)) - before:  # and takes no room from what is looked for
            os.unlink(path)


@row("F30", "a server with 24 descriptors loses no segment", own=True)
def f30_descriptors(_):
    w = world()
    fill(w)
    before = segments(w)
    s = Server(*SMALL, *w.store(), wait=False, preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24)))
    eventually(lambda: s.proc.poll() is not None or "ready:" in log_of(s), "it starts or says why not")
    time.sleep(0.5)
    s.proc.kill()
    s.stop()
    assert set(before) <= set(segments(w)), "segments are gone"
    s = Server(*SMALL, *w.store())
    try:
        recovered(s)
        assert sum(h[2] for h in sweep(w, s)) > 300
    finally:
        s.stop()


@row("F30", "a damaged segment goes into quarantine, with file and byte in the log", own=True)
def f30_quarantine(_):
    w = world()
    fill(w)
    path = segments(w)[0]
    with open(path, "r+b") as f:
        f.seek(50)
        f.write(b"damage")
    s = Server(*SMALL, *w.store())
    try:
        known(s)
        assert os.path.basename(path) in log_of(s) and "damaged at byte" in log_of(s), s.tail()
        assert os.listdir(os.path.join(w.folder, "kv", "quarantine")) == [os.path.basename(path)]
        eventually(lambda: folder_segments(s, "damaged") == 1, "the metric says so")
        assert folder_events(s, "segment_removed") == 0
        sweep(w, s)
    finally:
        s.stop()


@row("F31", "a folder that cannot be used: served without it, and used as soon as it can be", own=True)
def f31(_):
    w = world()
    folder = os.path.join(w.folder, "kv")

    def lock_is_a_folder():
        os.makedirs(os.path.join(folder, "LOCK"))
        return "LOCK cannot be opened", lambda: os.rmdir(os.path.join(folder, "LOCK"))

    def open_to_all():
        os.makedirs(folder)
        os.chmod(folder, 0o777)
        return "others may write to the folder", lambda: os.chmod(folder, 0o700)

    def a_file():
        with open(folder, "w"):
            pass
        return "cannot be opened: Not a directory", lambda: os.unlink(folder)

    def secret_is_a_folder():
        os.makedirs(os.path.join(folder, "SECRET"))
        return None, lambda: None

    for make in (lock_is_a_folder, open_to_all, a_file, secret_is_a_folder):
        shutil.rmtree(folder, ignore_errors=True)
        words, undo = make()
        if words is None:
            os.chmod(folder, 0o700)
        s = Server(*TIGHT, *w.store())
        try:
            if words:
                degraded(s, words)
            for _ in range(2):
                sweep(w, s, 6)
            undo()
            sound(s)
            eventually(lambda: sweep(w, s) and metric(s, "spillway:kv_tier_stored_blocks_total", 'tier="nvme"') > 0, "the store works")
        finally:
            s.stop()


@row("F31", "a folder where nothing can be made, and one that is not there", own=True)
def f31_nowhere(_):
    w = world()
    for where, words in (("/proc/spillway-kv:1", "cannot be made"), (os.path.join(w.folder, "no", "such:1"), os.path.join(w.folder, "no") + " is not there")):
        s = Server(*SMALL, "--kv-nvme", where)
        try:
            degraded(s, words)
            sweep(w, s, 6)
        finally:
            s.stop()


@row("F31", "a full disk and a fresh folder, and a folder that cannot be listed", own=True)
def f31_full(_):
    w = world()
    ctl, env = shim("open=%d" % errno.ENOSPC)
    for words, said in (("enospc", "no space left"), ("list=%d" % errno.EMFILE, "Too many open files"), ("list=%d" % errno.EIO, "Input/output error")):
        shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)
        fill(w)
        control(ctl, words)
        if words == "enospc":
            shutil.rmtree(os.path.join(w.folder, "kv"))
        before = set(segments(w)) if words != "enospc" else set()
        s = Server(*TIGHT, *w.store(), env=env)
        try:
            sweep(w, s)
            degraded(s, said)
            if words == "enospc":
                eventually(lambda: sweep(w, s, 2) and metric(s, "spillway:kv_folders_paused") == 1, "the metric says that it pauses")
                assert folder_events(s, "pause") >= 1
            assert before <= set(segments(w)), "gone under " + words
            control(ctl, "")
            eventually(lambda: sweep(w, s, 6) and metric(s, "spillway:kv_tier_degraded") == 0, "it is used again")
            sound(s)
        finally:
            s.stop()


@row("F31", "wrong options are refused before the weights are loaded", own=True)
def f31_options(_):
    w = world()
    short = os.path.join(w.folder, "short")
    with open(short, "wb") as f:
        f.write(b"short")
    for args, code, words in (
        (["--kv-nvme", w.folder + "/kv:1"], 64, "needs --kv-host-gib"),
        ([*SMALL, "--kv-encrypt"], 64, "need --kv-nvme"),
        ([*SMALL, "--kv-shared", w.folder + "/kv:1"], 64, "needs --kv-mac-key-file"),
        ([*SMALL, *w.store(), "--kv-mac-key-file", short], 78, "at least 16 bytes"),
        ([*SMALL, *w.store(), "--kv-encrypt-key-file", short], 78, "32 bytes or 64 hex digits"),
        ([*SMALL, *w.store("0.00001")], 78, "are too few"),
        ([*BASE, "--kv-host-gib", "1000000"], 78, "asked for"),
    ):
        s = Server(*args, wait=False)
        assert s.proc.wait(PATIENCE) == code, s.tail()
        assert words in s.tail() and "model:" not in log_of(s), s.tail()
        s.stop()


@row("F32", "a wrong or missing MAC key, and changing one, both ways", own=True)
def f32(_):
    w = world()
    keys = []
    for name in ("one", "two"):
        keys.append(os.path.join(w.folder, name))
        with open(keys[-1], "wb") as f:
            f.write(os.urandom(32))
        os.chmod(keys[-1], 0o600)
    one, two = (["--kv-mac-key-file", k] for k in keys)
    seal_one, seal_two = (["--kv-encrypt-key-file", k] for k in keys)

    def served(args, least):
        s = Server(*SMALL, *w.store(), *args)
        try:
            known(s)
            n = sum(h[2] for h in sweep(w, s))
            assert n >= least, (args, n)
            assert metric(s, "spillway:kv_verify_failures_total") == 0
        finally:
            s.stop()

    for first, second in ((one, two), ([*one, *seal_one], [*two, *seal_two])):
        shutil.rmtree(os.path.join(w.folder, "kv"), ignore_errors=True)
        fill(w, *first)
        before = set(segments(w))
        for args in (second, []):  # another key, none
            there = len(segments(w))  # of the server of the other key, too
            s = Server(*SMALL, *w.store(), *args)
            known(s)
            assert "under another key" in log_of(s), s.tail()
            eventually(lambda: len(before) <= folder_segments(s, "locked") <= there, "the metric says so")
            assert sweep(w, s, 1)[0][2] == 0
            assert before <= set(segments(w)), "gone under another key"
            s.proc.kill()
            s.stop()
        served([*second, *first], 300)  # written with the second, read with both
        served([*first, *second], 300)  # and back
        served(first, 300)


@row("F32", "the tool says which key is missing", own=True)
def f32_tool(_):
    w = world()
    key = os.path.join(w.folder, "key")
    with open(key, "wb") as f:
        f.write(os.urandom(32))
    fill(w, "--kv-mac-key-file", key)
    folder = os.path.join(w.folder, "kv")
    kv = lambda *a: subprocess.run([BINARY, "kv", *a], capture_output=True, text=True)
    r = kv("ls", folder)
    assert r.returncode == 0 and "with a MAC, and no --mac-key-file was given" in r.stdout, r
    assert kv("verify", folder).returncode == 1
    r = kv("verify", folder, "--mac-key-file", key)
    assert r.returncode == 0 and "0 blocks in doubt" in r.stdout, r
