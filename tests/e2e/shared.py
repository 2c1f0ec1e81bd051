#!/usr/bin/env python3
"""A folder that two real servers share (--kv-shared): what one computed the other serves, and nobody trusts what lies there.

    shared.py [--preset check]

Every answer is compared, token ids and logprobs bit for bit, with that of a server that caches nothing. One line each, then
`N passed, N failed, N skipped`. What happens to the files under a server (rows F11 and F14) is run by tests/fault/f_shared.py."""
# Under sanitizers: in ./check all. Folders have unit tests that always run there.

import os
import random
import shutil
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from tiers import BASE, World, arguments, ask, known, metric, run_named, settle, start, too_slow  # noqa: E402

TIGHT = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.005"]  # it spills while it serves
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def share(w, key="a", gib="0.016"):
    path = os.path.join(w.folder, "mac-" + key)
    if not os.path.exists(path):
        with open(path, "wb") as f:
            f.write(os.urandom(32).hex().encode())
    return ["--kv-shared", "%s/shared:%s" % (w.folder, gib), "--kv-mac-key-file", path]


def files(w):
    out = []
    for folder, _, names in os.walk(os.path.join(w.folder, "shared")):
        out += [os.path.join(folder, n) for n in names if n.startswith("seg-")]
    return sorted(out)


def sweep(w, s, n=18):
    return sum(ask(w, s, k)[2] for k in range(n))


def filled(w, *extra):
    shutil.rmtree(os.path.join(w.folder, "shared"), ignore_errors=True)
    a = start(w, *TIGHT, *share(w), *extra)
    # two that are whole, one that is filled, one that is prepared
    settle(a, "whole segments", lambda: sweep(w, a) >= 0 and len(files(w)) >= 4)
    return a


@test
def one_server_serves_blocks_that_the_other_computed(w):
    a = filled(w)
    b = start(w, *TIGHT, *share(w))
    settle(b, "the other's blocks", lambda: metric(b, "spillway:kv_tier_blocks", 'tier="nvme"') > 60)
    assert metric(b, "spillway:kv_folder_segments", 'state="foreign"') >= 1
    assert sweep(w, b) + 320 * too_slow(b) > 600
    a.proc.send_signal(signal.SIGKILL)  # b reads on, and writes what it computes into its own
    a.proc.wait()
    for _ in range(2):
        sweep(w, b)
    assert metric(b, "spillway:kv_verify_failures_total") == 0
    b.stop()
    c = start(w, *TIGHT, *share(w))  # b left in order: its blocks are c's, a's can be read
    settle(c, "what both left", lambda: metric(c, "spillway:kv_tier_blocks", 'tier="nvme"') > 60)
    settle(c, "a segment that b left", lambda: metric(c, "spillway:kv_folder_events_total", 'event="segment_claimed"') >= 1)
    assert sweep(w, c) + 320 * too_slow(c) > 600
    c.stop()


def files_vanish_while_they_are_read(w):
    a = filled(w)
    b = start(w, *TIGHT, *share(w))
    settle(b, "the other's blocks", lambda: metric(b, "spillway:kv_tier_blocks", 'tier="nvme"') > 60)
    bad, stop = [], threading.Event()

    def work(i):
        rng = random.Random(i)
        while not stop.is_set() and not bad:
            try:
                ask(w, b, rng.randrange(18))
            except AssertionError as e:
                bad.append(str(e))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    time.sleep(0.3)
    for f in files(w):
        os.unlink(f)
        time.sleep(0.05)
    time.sleep(0.5)
    stop.set()
    for t in threads:
        t.join()
    assert not bad, bad[0]
    sweep(w, a), sweep(w, b)
    a.stop(), b.stop()


def a_third_party_writes_into_them(w):
    a = filled(w)
    rng = random.Random(5)
    for f in files(w)[:-1]:
        size = os.path.getsize(f)
        with open(f, "r+b") as h:
            for _ in range(400):
                at = rng.randrange(4096, size)
                h.seek(at)
                h.write(bytes([rng.randrange(256)]))
    b = start(w, *TIGHT, *share(w))
    known(b)
    for s in (a, b, a):
        sweep(w, s)
    assert metric(a, "spillway:kv_verify_failures_total") + metric(b, "spillway:kv_verify_failures_total") > 0
    a.stop(), b.stop()


@test
def another_mac_key_believes_nothing(w):
    a = filled(w)
    d = start(w, *TIGHT, *share(w, "d"))
    known(d)
    n = len(files(w))
    assert sweep(w, d, 6) == 0
    assert len(files(w)) >= n, "another server's files were removed"
    a.stop(), d.stop()


@test
def impossible_options_are_reported(w):
    from harness import Server
    path = "%s/shared:0.016" % w.folder
    for extra, word in ((["--kv-shared", path], "--kv-mac-key-file"),
                        ([*share(w), "--kv-encrypt"], "--kv-encrypt-key-file"),
                        ([*share(w), *w.store()], "one of them"),
                        ([*share(w)[2:], "--kv-shared", w.folder + "/shared:-3"], "DIR:GIB")):
        s = Server(*TIGHT, *extra, wait=False)
        code = s.proc.wait(180)
        assert code == 64 and word in s.tail(), (extra, code, s.tail())
        s.stop()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(1), a.names)


if __name__ == "__main__":
    scratch.run(main)
