"""Rows of layers F and J that a folder of several servers, and one that others can write to, bring with them."""

import os
import shutil
import stat
import sys

from harness import Server, eventually, row

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import shared  # noqa: E402
from tiers import SMALL, ask, metric, segments  # noqa: E402

from f_tiers import degraded, fill, known, log_of, sweep, world  # noqa: E402


def case(fn):
    w = world()
    w.running.clear()
    try:
        fn(w)
    finally:
        for s in w.running:
            if s.proc.poll() is None:  # the others were stopped by the case itself
                s.stop()
        w.running.clear()


@row("F11", "bytes of a shared folder are changed by somebody: a miss and a count, on every server", own=True)
def f11_shared(_):
    case(shared.a_third_party_writes_into_them)


@row("F14", "files of a shared folder vanish while another server reads them", own=True)
def f14_shared(_):
    case(shared.files_vanish_while_they_are_read)


@row("J11", "files of a tier: folder 0700, files 0600, whatever the umask", own=True)
def j11(_):
    w = world()
    old = os.umask(0)
    try:
        s = fill(w, stop=False)
    finally:
        os.umask(old)
    try:
        folder = os.path.join(w.folder, "kv")
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        n_file = 0
        for at, folders, names in os.walk(folder):
            for n in folders:
                assert stat.S_IMODE(os.lstat(os.path.join(at, n)).st_mode) == 0o700, n
            for n in names:
                assert stat.S_IMODE(os.lstat(os.path.join(at, n)).st_mode) == 0o600, n
            n_file += len(names)
        assert n_file >= 4, n_file
    finally:
        s.stop()


@row("J12", "records of a writer without the MAC key are misses", own=True)
def j12(_):
    w = world()
    fill(w)  # whole, with sound checksums, and no MAC
    assert segments(w)
    key = os.path.join(w.folder, "mac")
    with open(key, "wb") as f:
        f.write(os.urandom(32))
    s = Server(*SMALL, *w.store(), "--kv-mac-key-file", key)
    try:
        known(s)
        assert sum(h[2] for h in sweep(w, s)) == 0
        assert "under another key" in log_of(s), s.tail()  # said once; not a failed load for each block
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


@row("J13", "links, pipes and folders with the names of segments, put there before the start", own=True)
def j13(_):
    w = world()
    fill(w)
    folder = os.path.dirname(segments(w)[0])  # of this model
    for path in segments(w):
        os.unlink(path)
    secret = os.path.join(w.folder, "secret")
    with open(secret, "wb") as f:
        f.write(b"not a segment" * 1000)
    name = lambda n: os.path.join(folder, "seg-%016x.kv" % n)
    os.symlink(secret, name(1))
    os.link(secret, name(2))
    os.mkfifo(name(3))
    os.mkdir(name(4))
    os.symlink("/nowhere/at/all", name(5))
    s = Server(*shared.TIGHT, *w.store())
    try:
        known(s)
        eventually(lambda: sweep(w, s) and metric(s, "spillway:kv_tier_stored_blocks_total", 'tier="nvme"') > 0, "the store works beside them")
    finally:
        s.stop()
    with open(secret, "rb") as f:
        assert f.read() == b"not a segment" * 1000
    assert not os.path.exists("/nowhere")
    folder = os.path.join(w.folder, "kv")
    shutil.rmtree(folder)
    os.makedirs(folder, 0o700)
    os.symlink(secret, os.path.join(folder, "LOCK"))
    s = Server(*SMALL, *w.store())
    try:
        degraded(s, "LOCK cannot be opened")  # a lock that is a link
        sweep(w, s, 6)
    finally:
        s.stop()
    with open(secret, "rb") as f:
        assert f.read() == b"not a segment" * 1000


@row("F33", "a server of a shared folder that is killed 24 times: one budget for all its starts", own=True)
def f33(_):
    w = world()
    key = os.path.join(w.folder, "mac")
    with open(key, "wb") as f:
        f.write(os.urandom(32))
    gib = 0.03
    folder = os.path.join(w.folder, "shared")
    args = ["--kv-shared", "%s:%s" % (folder, gib), "--kv-shared-name", "one", "--kv-mac-key-file", key]

    def on_disk():
        return sum(os.path.getsize(os.path.join(d, f)) for d, _, names in os.walk(folder) for f in names)

    most = 0
    for life in range(24):
        s = Server(*shared.TIGHT, *args)
        for k in range(6 * (life % 3), 6 * (life % 3) + 6):
            ask(w, s, k)
        s.proc.kill()
        s.proc.wait()
        s.stop()
        most = max(most, on_disk())
    assert 0 < most <= gib * (1 << 30) + 24 * 64, most  # and a lease each
