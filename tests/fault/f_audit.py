"""Layer F of the fault table: KV that was computed by another arithmetic under the same identity. Its digests are right, so nothing but
computing it again can tell."""

import os
import subprocess
import sys
import tempfile

from f_tiers import known, log_of, recovered, segments, sweep, world
from harness import PATIENCE, Server, eventually, row

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from tiers import BASE, SMALL, metric, result  # noqa: E402

ROOMY = BASE + ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.05"]  # the host holds all that is asked for
N = 18


def other_arithmetic():
    out = os.path.join(tempfile.mkdtemp(prefix="spillway-shim-"), "shim_math.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", "shim_math.c"), "-ldl"], check=True)
    return {"LD_PRELOAD": (os.environ.get("LD_PRELOAD", "") + " " + out).strip()}


def ask_all(w, s):
    """Answers are the other arithmetic's own, and compared with nothing. Returns how many differ from what they should be."""
    got = [result(s.post("/v1/completions", w.body(k)).json) for k in range(N)]
    return sum(got[k] != w.expect(k) for k in range(N))


def mismatches(s):
    return metric(s, "spillway:kv_audit_mismatch_total")


@row("F41", "a folder by another arithmetic under this identity, with right digests: dropped before a token of it is used", own=True)
def f41_folder(_):
    w = world()
    other = Server(*SMALL, *w.store(), env=other_arithmetic())
    try:
        for _ in range(2):
            wrong = ask_all(w, other)
        assert wrong > 0, "the shim changes nothing"
    finally:
        other.stop()
    bad = set(segments(w))
    assert bad
    s = Server(*SMALL, *w.store())
    try:
        known(s)
        assert sum(h[2] for h in sweep(w, s)) == 0  # and every answer is right
        models = [d for d in os.listdir(os.path.join(w.folder, "kv")) if d.startswith("model-")]
        assert len(models) == 1, "the identity tells them apart, so no canary is asked: shim_math.c has to bend what it does not sample"
        eventually(lambda: mismatches(s) == 1, "the canary says so")
        assert log_of(s).count("has other bytes") == 1, log_of(s)
        assert s.get("/ready").status == 200
        eventually(lambda: not bad & set(segments(w)), "its segments go")
        for _ in range(2):
            sweep(w, s)
        assert mismatches(s) == 1
    finally:
        s.stop()
    s = Server(*SMALL, *w.store())  # what was written since is right
    try:
        recovered(s)
        assert sum(h[2] for h in sweep(w, s)) > 1000
        assert mismatches(s) == 0 and metric(s, "spillway:kv_audits_total") >= 1
    finally:
        s.stop()


@row("F41", "the same by a takeover of host memory", own=True)
def f41_slab(_):
    w = world()
    for k in range(N):
        w.expect(k)
    path = os.path.join(w.folder, "take")
    for env, wrong in ((other_arithmetic(), 1), (None, 0)):
        old = Server(*ROOMY, "--takeover", path, env=env)
        for _ in range(2):
            ask_all(w, old)
        new = Server(*ROOMY, "--takeover", path, wait=False, port=old.port)
        try:
            eventually(lambda: "ready: " in log_of(new), "it takes over")
            assert old.proc.wait(PATIENCE) == 0
            assert "kv: took over " in log_of(new), log_of(new)
            hits = sum(h[1] for h in sweep(w, new))
            eventually(lambda: metric(new, "spillway:kv_audits_total") >= 1, "a block is computed again")
            assert mismatches(new) == wrong, log_of(new)
            assert log_of(new).count("has other bytes") == wrong, log_of(new)
            assert (hits == 0) if wrong else (hits > 1000), hits
        finally:
            old.stop()
            new.stop()


@row("F41", "every block that comes up is computed again, on one rank and on two: all are the same to the bit", own=True)
def f41_sound(_):
    for args in ([], ["--tensor-parallel-size", "2", "--kv-cache-bytes", "2MiB"]):
        w = world()
        first = Server(*SMALL, *w.store(), *args)
        for _ in range(2):
            ask_all(w, first)
        first.stop()
        s = Server(*SMALL, *w.store(), *args, "--kv-audit-every", "1")
        try:
            recovered(s)
            for _ in range(2):
                ask_all(w, s)
            eventually(lambda: metric(s, "spillway:kv_audits_total") >= 5, "blocks are computed again")
            assert mismatches(s) == 0
            assert metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="nvme"') > 50
        finally:
            s.stop()
