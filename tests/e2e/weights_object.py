#!/usr/bin/env python3
"""A model in an object store (--model s3://BUCKET/PREFIX): the same answers as from the binary itself, whatever the store does, or a
clear error.

    weights_object.py [--preset check] [name ...]

The store is moto's server of S3 with the files of the embedded model, and a proxy before it. One line each, then `N passed, N failed,
N skipped`."""
# Under sanitizers: in ./check all. The lane and the source of weights have unit tests that always run there.

import os
import shutil
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from store_peer import KEYS, Moto, Proxy  # noqa: E402
from tiers import BASE, World, arguments, result, run_named, settle  # noqa: E402

TESTS = []
BUCKET = "spillway-models"
PEBBLE = os.path.join(ROOT, "models", "pebble")
FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


def test(fn):
    TESTS.append(fn)
    return fn


class Models:
    moto = None


def proxy():
    if not Models.moto:
        Models.moto = Moto().bucket(BUCKET)
        for name in FILES:
            path = os.path.join(PEBBLE, name)
            if os.path.exists(path):
                with open(path, "rb") as f:
                    Models.moto.put(BUCKET, "models/pebble/" + name, f.read())
        Models.moto.put(BUCKET, "models/pebble/more/notes.txt", b"below the prefix: none of the model's")
    return Proxy(Models.moto.port)


def args(p, url="s3://%s/models/pebble" % BUCKET):
    os.environ.update(KEYS)
    return BASE + ["--model", url, "--object-endpoint", p.url()]


def served(w, p, *extra):
    from harness import Server
    s = Server(*args(p), *extra)
    w.running.append(s)
    for k in (0, 4, 8):
        r = s.post("/v1/completions", w.body(k))
        assert r.status == 200 and result(r.json) == w.expect(k), "another answer than the embedded model's"
    return s


def refused(w, p, word, *extra, code=(74, 78), argv=None):
    from harness import Server
    s = Server(*(argv or args(p)), *extra, wait=False)
    w.running.append(s)
    assert s.proc.wait(180) in code, (s.proc.returncode, s.tail())
    assert word in s.tail(), s.tail()


@test
def the_model_is_the_one_that_was_put_there(w):
    p = proxy()
    s = served(w, p)
    assert s.get("/v1/models").json["data"][0]["id"].endswith("pebble")
    assert all("/models/pebble/" in path or "list-type" in path for _, path, _ in p.seen), "something else was asked for"
    assert not any("more/" in path for _, path, _ in p.seen)
    s.stop()
    p.stop()


@test
def a_store_that_fails_now_and_then_costs_time(w):
    """At most five times, so that no request fails as often as it is tried (S3_TRIES_MAX), whatever the order of those in flight."""
    for fault, every in (("500", 3), ("cut", 3), ("slow", 9)):
        p, met = proxy(), []

        def now_and_then(n, method, path):
            if n % every or "list-type" in path or len(met) == 5:
                return None
            met.append(path)
            return fault

        p.fault = now_and_then
        served(w, p).stop()
        p.stop()
        assert met, fault


@test
def wrong_lengths_and_refusals_are_clear_errors(w):
    weights = lambda fault: lambda n, method, path: fault if "safetensors" in path and "index" not in path else None  # noqa: E731
    for fault, word in (("long", "other bytes than those"), ("short", "shorter than"), ("refuse", "AccessDenied"), ("expired", "expired")):
        p = proxy()
        p.fault = weights(fault)
        refused(w, p, word)
        p.stop()


@test
def what_is_not_there_is_said(w):
    p = proxy()
    for url, word in (("s3://%s/models/none" % BUCKET, "nothing lies in"), ("s3://no-such-bucket/x", "NoSuchBucket"),
                      ("s3://%s/models" % BUCKET, "nothing lies in"), ("s3://A/x", "bucket's name")):
        refused(w, p, word, argv=args(p, url))
    p.fault = lambda n, method, path: "refuse"
    refused(w, p, "AccessDenied")
    p.stop()


@test
def weights_that_change_while_they_are_read_are_no_mixture(w):
    p = proxy()
    path = os.path.join(PEBBLE, "model.safetensors")
    with open(path, "rb") as f:
        data = f.read()
    changed = bytearray(data)
    changed[-5] ^= 1
    state = {"n": 0}

    def fault(n, method, path):
        if "safetensors" in path and "index" not in path:
            state["n"] += 1
            if state["n"] == 2:  # its head was read, its tensors were not
                Models.moto.put(BUCKET, "models/pebble/model.safetensors", bytes(changed))

    p.fault = fault
    try:
        refused(w, p, "changed while it was read")
    finally:
        Models.moto.put(BUCKET, "models/pebble/model.safetensors", data)
        p.stop()


def fetched(p):
    """Bytes of weights that were asked for through the proxy."""
    total = 0
    for method, path, headers in list(p.seen):
        low = {k.lower(): v for k, v in headers.items()}
        if method == "GET" and "safetensors" in path and "range" in low:
            a, b = low["range"].split("=")[1].split("-")
            total += int(b) - int(a) + 1
    return total


def cache(w):
    folder = tempfile.mkdtemp(dir=w.folder)
    os.chmod(folder, 0o700)
    return folder


def partials(folder):
    return [os.path.join(folder, x) for x in os.listdir(folder) if x.endswith(".partial")]


@test
def packed_weights_are_not_fetched_again(w):
    p = proxy()
    folder = cache(w)
    served(w, p, "--packed-cache", folder).stop()
    first = fetched(p)
    assert first >= os.path.getsize(os.path.join(PEBBLE, "model.safetensors")) * 9 // 10, first
    p.seen.clear()
    served(w, p, "--packed-cache", folder).stop()
    assert fetched(p) < first // 10, (fetched(p), first)
    assert not partials(folder)
    p.stop()


WEIGHTS = os.path.join(PEBBLE, "model.safetensors")


def ended(s):
    assert s.proc.poll() is None, s.tail()


def pieces(folder):
    """MiB of weights that count as kept: each has its digest, which is written after it, in the table at 4096."""
    count = 0
    for path in partials(folder):
        with open(path, "rb") as f:
            f.seek(4096)
            table = f.read((os.path.getsize(WEIGHTS) + (1 << 20) - 1 >> 20) * 16)
        count += sum(any(table[i : i + 16]) for i in range(0, len(table), 16))
    return count


def killed(w, folder, mib):
    """A start that is killed when so many MiB of the weights are kept."""
    from harness import Server
    p = proxy()

    def fault(n, method, path):  # what lies behind the fifth MiB never comes
        range_of = {k.lower(): v for k, v in p.seen[n - 1][2].items()}.get("range", "bytes=0-")
        return "silent" if "safetensors" in path and int(range_of[6:].split("-")[0]) >= 5 << 20 else None

    p.fault = fault
    s = Server(*args(p), "--packed-cache", folder, wait=False)
    w.running.append(s)
    settle(s, "keeping the first pieces", lambda: pieces(folder) >= mib or ended(s))
    s.proc.kill()
    s.proc.wait()
    p.stop()


@test
def a_start_that_was_killed_is_continued(w):
    size, folder = os.path.getsize(WEIGHTS), cache(w)
    killed(w, folder, 1)
    p = proxy()
    s = served(w, p, "--packed-cache", folder)
    assert fetched(p) <= size - (1 << 20) + 65536, (fetched(p), size)  # and the head again
    assert " the rest is fetched" in log(s) and not partials(folder)
    s.stop()
    p.stop()


def log(s):
    with open(s.log_path, "rb") as f:
        return f.read().decode("utf-8", "replace")


@test
def of_an_object_that_changed_between_two_starts_nothing_is_kept(w):
    """The other weights differ in every tensor, so a mixture would answer otherwise than they do from a folder."""
    with open(WEIGHTS, "rb") as f:
        data = f.read()
    head = 8 + int.from_bytes(data[:8], "little")
    changed = bytearray(data)
    for at in range(head + 1, len(data), 1998):  # the sign of one number in 999 of 2 bytes
        changed[at] ^= 0x80
    other = os.path.join(w.folder, "other")
    os.makedirs(other)
    for name in FILES:
        if name != "model.safetensors" and os.path.exists(os.path.join(PEBBLE, name)):
            shutil.copy(os.path.join(PEBBLE, name), other)
    with open(os.path.join(other, "model.safetensors"), "wb") as f:
        f.write(changed)
    from harness import Server
    folder = cache(w)
    killed(w, folder, 1)
    Models.moto.put(BUCKET, "models/pebble/model.safetensors", bytes(changed))
    p = proxy()
    try:
        local = Server(*BASE, "--model", other)
        w.running.append(local)
        want = [result(local.post("/v1/completions", w.body(k)).json) for k in (0, 4)]
        assert want[0] != w.expect(0)
        s = Server(*args(p), "--packed-cache", folder)
        w.running.append(s)
        assert [result(s.post("/v1/completions", w.body(k)).json) for k in (0, 4)] == want, "a mixture"
        assert fetched(p) >= len(data) - 8 - head, (fetched(p), len(data))
        assert "is of another version of" in log(s)
        s.stop()
        local.stop()
    finally:
        Models.moto.put(BUCKET, "models/pebble/model.safetensors", data)
        p.stop()


@test
def what_was_kept_and_is_cut_or_damaged_is_fetched_again(w):
    for how in ("cut", "damaged"):
        folder = cache(w)
        killed(w, folder, 1)
        for path in partials(folder):
            with open(path, "r+b") as f:
                if how == "cut":
                    f.truncate(os.path.getsize(path) // 3)
                else:
                    size = os.path.getsize(path)
                    for at in range(1 << 20, size, 1 << 20):
                        f.seek(at + 77)
                        f.write(b"something else")
        p = proxy()
        s = served(w, p, "--packed-cache", folder)
        assert how == "cut" or "is not what was fetched, and is fetched again" in log(s), log(s)
        s.stop()
        p.stop()


def main():
    a = arguments(__doc__)
    try:
        return run_named(TESTS, World(1), a.names)
    finally:
        if Models.moto:
            Models.moto.stop()


if __name__ == "__main__":
    scratch.run(main)
