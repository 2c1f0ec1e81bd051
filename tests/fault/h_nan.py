"""Row H7: NaN of one client costs that client; NaN of the device or of the weights ends the server. On any device."""

import json
import os
import shutil
import struct
import tempfile
import threading

import d_weights
from h_gpu import emulated
from harness import PATIENCE, ROOT, Server, eventually, row

GOLDEN = os.path.join(ROOT, "tests", "data", "golden", "llama2")  # its head is not its embedding

def poisoned(name, row_of=None, with_nan=True):
    """A copy of a tiny checkpoint whose tensor `name` is NaN, in one row or everywhere."""
    d = tempfile.mkdtemp(prefix="spillway-nan-")
    for f in os.listdir(GOLDEN):
        shutil.copyfile(os.path.join(GOLDEN, f), os.path.join(d, f))
    with open(os.path.join(d, "tokenizer.json"), "w") as f:
        json.dump(d_weights.byte_tokenizer(), f)
    path = os.path.join(d, "model.safetensors")
    with open(path, "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        t = json.loads(f.read(n))[name]
        begin, end = t["data_offsets"]
        width = {"BF16": 2, "F16": 2, "F32": 4}[t["dtype"]]
        if row_of is not None:
            row_bytes = t["shape"][-1] * width
            begin, end = begin + row_of * row_bytes, begin + (row_of + 1) * row_bytes
        if not with_nan:
            return d
        one = {"BF16": b"\xc0\x7f", "F16": b"\x00\x7e", "F32": b"\x00\x00\xc0\x7f"}[t["dtype"]]
        f.seek(8 + n + begin)
        f.write(one * ((end - begin) // width))
    return d


def serve(model):
    args = ["--model", model, "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--kv-cache-bytes", "8MiB"]
    return Server(*args, *(["--device", "cuda"] if emulated() else []))


@row("H7", "NaN: a hundred requests that bring it end alone and the rest is exact; weights that are NaN end the server", own=True)
def h7(_):
    d = poisoned("model.embed_tokens.weight", row_of=ord("~"))
    s = serve(d)
    try:
        ask = lambda text, n=12: s.complete(text, max_tokens=n, temperature=0, ignore_eos=True, logit_bias={str(ord("~")): -100})
        want = ask("Once upon a time").json["choices"][0]["text"]
        wrong, lock = [], threading.Lock()

        def bad():
            for i in range(25):
                r = ask("A ~ in a text that is longer than a block of the cache" if i % 2 else "~", 3)
                if r.status != 500 or not r.error["message"]:
                    with lock:
                        wrong.append(r)

        def good():
            for _ in range(10):
                r = ask("Once upon a time")
                if r.status != 200 or r.json["choices"][0]["text"] != want:
                    with lock:
                        wrong.append(r)

        threads = [threading.Thread(target=f) for f in (bad, bad, bad, bad, good, good)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not wrong, wrong[:3]
        n = s.metric("spillway:nan_requests_total")
        assert n == 100, "%d counted\n%s" % (n, s.tail())
        eventually(lambda: s.metric("vllm:num_requests_running") == 0, "the probe ends")
        assert s.proc.poll() is None and s.get("/health").status == 200 and not s.error_lines(), s.error_lines()
        assert ask("Once upon a time").json["choices"][0]["text"] == want
        assert s.metric("spillway:kv_cache_bytes") > 0
        eventually(lambda: s.metric("vllm:kv_cache_usage_perc") == 0, "its blocks are back")  # the answer may be here before
    finally:
        s.stop()
        shutil.rmtree(d)

    d = poisoned("model.norm.weight")  # NaN from the first step on: nobody is told that it is ready
    s = Server("--model", d, *(["--device", "cuda"] if emulated() else []), wait=False)
    try:
        while s.proc.poll() is None:
            try:
                assert s.get("/ping").status == 503
            except OSError:
                pass
        assert s.proc.returncode == 70, (s.proc.returncode, s.tail())
        assert "the self-test fails: a plain prompt gives NaN 3 times in a row" in s.tail() and "damaged" in s.tail(), s.tail()
    finally:
        s.stop()
        shutil.rmtree(d)
    if not emulated():
        damaged_while_it_serves()


def damaged_while_it_serves():
    """Weights that are mapped from a file become NaN under a server that has answered before."""
    d, packed = poisoned("model.norm.weight", with_nan=False), tempfile.mkdtemp(prefix="spillway-packed-")
    args = ["--model", d, "--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--kv-cache-bytes", "8MiB", "--packed-cache", packed]
    try:
        Server(*args).stop()
        s = Server(*args)
        try:
            assert s.complete("Once upon a time", max_tokens=4, temperature=0).status == 200
            for name in os.listdir(packed):
                path = os.path.join(packed, name)
                os.chmod(path, 0o600)
                with open(path, "r+b") as f:
                    f.write(b"\xff" * os.path.getsize(path))
            r = s.complete("Once upon a time", max_tokens=4, temperature=0)
            assert r.status == 500 and r.error["message"], r
            assert s.proc.wait(PATIENCE) == 70, (s.proc.returncode, s.tail())
            with open(s.log_path, "rb") as f:
                log = f.read()
            assert log.count(b"a plain prompt gives NaN 3 times in a row") == 1 and b"damaged" in log, s.tail()
        finally:
            s.stop()
    finally:
        shutil.rmtree(d)
        shutil.rmtree(packed)


@row("F3", "blocks that held NaN are given to others: not a bit of it reaches them", own=True)
def f3(_):
    d = poisoned("model.embed_tokens.weight", row_of=ord("~"))
    cuda = ["--device", "cuda"] if emulated() else []
    small = ["--model", d, "--max-model-len", "64", "--max-num-batched-tokens", "64", *cuda]
    prompts = ["a", "Of a length that is no multiple", "The capital of France is", "Once upon a time there was"]
    try:
        s = Server(*small, "--max-num-seqs", "1", "--kv-cache-bytes", "1MiB")
        try:
            block = s.metric("spillway:kv_cache_bytes") / s.metric("spillway:kv_blocks")
            answer = lambda: [s.complete(p, max_tokens=30, temperature=0, ignore_eos=True, logit_bias={str(ord("~")): -100}).json["choices"][0] for p in prompts]
            want = [c["text"] for c in answer()]
        finally:
            s.stop()
        s = Server(*small, "--max-num-seqs", "1", "--kv-cache-bytes", "%d" % (5 * block))
        try:
            assert s.metric("spillway:kv_blocks") == 5  # the least there may be; such a prompt has four of them
            for _ in range(3):
                assert s.complete("~" * 62, max_tokens=2).status == 500
                assert [c["text"] for c in answer()] == want
        finally:
            s.stop()
    finally:
        shutil.rmtree(d)
