"""Layer H of the fault table: what a GPU can do to a server, on the emulated device (a build of preset emu): there errors are planned by
EMU_FAIL (tests/emu/cudart.cc). With another build these rows are not there. What needs a real GPU waits in tests/gpu."""

import json
import os
import re
import subprocess
import time

from harness import BINARY, Server, eventually, post_bytes, row

SHAPE = ["--device", "cuda", "--kv-cache-bytes", "16MiB", "--max-model-len", "256", "--max-num-seqs", "8", "--max-num-batched-tokens", "64"]
PROMPTS = ["The capital of France is", "Monday, Tuesday,", "Count: one, two,"]
TOO_MUCH, ILLEGAL, ECC, CAPTURE, NO_MEMORY, MPS = 701, 700, 214, 900, 2, 805  # cudaErrorLaunchOutOfResources, ...


def emulated():
    try:
        return b"mulated" in subprocess.run([BINARY, "--list-devices"], capture_output=True, timeout=30).stdout
    except OSError:
        return False


def answers(s):
    out = []
    for p in PROMPTS:
        r = s.complete(p, max_tokens=12, temperature=0)
        assert r.status == 200, r
        out.append(r.json["choices"][0]["text"])
    return out


WANT = []


def want():
    """What the same server answers with no fault; asked once."""
    if not WANT:
        s = Server(*SHAPE)
        try:
            WANT.extend(answers(s))
        finally:
            s.stop()
    return WANT


def log_of(s):
    with open(s.log_path, "rb") as f:
        return f.read().decode("utf-8", "replace")


def launches_until_ready():
    """How many kernels loading takes: a fault behind them falls into a step."""
    for skip in (400, 1500, 5000):
        s = Server(*SHAPE, env={"EMU_FAIL": "launch:%d:%d" % (skip, ILLEGAL)}, wait=False)
        try:
            s.wait_ready()
            return skip
        except AssertionError:
            pass
        finally:
            s.stop()
    raise AssertionError("loading takes more than 5000 launches")


def rows():
    @row("H2", "a launch that is refused is made again; refused twice, its request ends alone", own=True)
    def h2(_):
        base = want()
        skip = launches_until_ready()
        eager = [*SHAPE, "--enforce-eager"]  # else a fault may fall into a capture, which is another matter (H8)
        s = Server(*eager, env={"EMU_FAIL": "launch:%d:%d" % (skip, TOO_MUCH)})
        try:
            for _ in range(40):
                assert answers(s) == base
                if "run once more" in log_of(s):
                    break
            assert "run once more" in log_of(s), s.tail()
            assert s.get("/health").status == 200
        finally:
            s.stop()
        s = Server(*eager, env={"EMU_FAIL": "launch:%d:%d,launch:3:%d" % (skip, TOO_MUCH, TOO_MUCH)})
        try:
            codes = []
            for _ in range(120):
                codes.append(s.complete(PROMPTS[0], max_tokens=12, temperature=0))
                if codes[-1].status != 200:
                    break
            assert codes[-1].status == 500 and codes[-1].error["message"], codes[-1]
            assert answers(s) == base and s.get("/health").status == 200
            assert len([x for x in s.error_lines()]) == 0, s.error_lines()
        finally:
            s.stop()

    def lost(code, error):
        """Four streams, then the fault: error events, /health 503, one line, this exit code; a new server serves."""
        skip = launches_until_ready()
        s = Server(*SHAPE, env={"EMU_FAIL": "kernel:%d:%d" % (skip + 1500, error)})
        conns = []
        try:
            body = json.dumps({"prompt": "Once", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
            began = None
            while s.proc.poll() is None and not began:
                conns = [s.conn(timeout=30) for _ in range(4)]
                for c in conns:
                    c.send(post_bytes("/v1/completions", body, ("Connection: close",)))
                for c in conns:
                    r = c.read_all(30)
                    if r and b'"error"' in r[-1].body:
                        assert b"[DONE]" not in r[-1].body, r[-1].body[-200:]
                        began = time.monotonic()
                    c.close()
            assert began, s.tail()
            assert s.proc.wait(6) == code, (s.proc.returncode, s.tail())
            assert time.monotonic() - began < 5
            assert len(re.findall("the device is given up, all requests fail", log_of(s))) == 1, s.tail()
        finally:
            s.stop()
        s = Server(*SHAPE)
        try:
            assert answers(s) == want()
        finally:
            s.stop()

    @row("H3", "an error that sticks: error events, exit 70, and the next start serves", own=True)
    def h3(_):
        lost(70, ILLEGAL)

    @row("H4", "a GPU that is broken: the same, with an exit code of its own", own=True)
    def h4(_):
        lost(71, ECC)

    @row("H8", "a graph that cannot be captured: one warning, the same answers", own=True)
    def h8(_):
        base = want()
        for call in ("cudaStreamEndCapture", "cudaGraphInstantiate", "cudaStreamBeginCapture"):
            s = Server(*SHAPE, env={"EMU_FAIL": "%s:0:%d" % (call, CAPTURE)})
            try:
                assert answers(s) == base and answers(s) == base
                assert len(re.findall("cannot be captured", log_of(s))) == 1, s.tail()
                assert s.get("/health").status == 200 and not s.error_lines()
            finally:
                s.stop()

    @row("H9", "no GPU, an old driver, an old GPU, a slice that is too small, no MPS server: exit 78, found and needed", own=True)
    def h9(_):
        for env, words in (({"EMU_DEVICES": "0"}, ["no GPU"]), ({"EMU_DRIVER": "0"}, ["no NVIDIA driver", "needed"]),
                           ({"EMU_DRIVER": "11040", "EMU_FAIL": "cudaGetDeviceCount:0:35,cudaGetDeviceCount:0:35,cudaGetDeviceCount:0:35"}, ["11.4", "needed"]),
                           ({"EMU_ARCH": "75"}, ["sm_75", "sm_80"]), ({"EMU_BYTES": str(24 << 20)}, ["needed", "left in the arena"]),
                           ({"EMU_FAIL": ",".join(["cudaGetDeviceCount:0:%d" % MPS] * 3)}, ["MPS"])):
            e = dict(os.environ, **env)
            p = subprocess.run([BINARY, "--port", "0", *SHAPE], capture_output=True, timeout=60, stdin=subprocess.DEVNULL, env=e)
            out = (p.stdout + p.stderr).decode("utf-8", "replace")
            assert p.returncode == 78, (env, p.returncode, out)
            for w in words:
                assert w in out, (env, w, out)

    @row("H13", "one rank of several is lost: all end within 5 s, with one line that says why", own=True)
    def h13(_):
        args = [*SHAPE, "--tensor-parallel-size", "2"]
        s = Server(*args)
        try:
            base = answers(s)
        finally:
            s.stop()
        s = Server(*args, env={"EMU_FAIL": "kernel:9000:%d" % ILLEGAL})
        try:
            r = None
            for _ in range(200):
                try:
                    r = s.complete(PROMPTS[0], max_tokens=12, temperature=0)
                except OSError:
                    break
                if r.status != 200:
                    break
                assert r.json["choices"][0]["text"] == base[0]
            began = time.monotonic()
            assert s.proc.wait(6) == 70, (s.proc.returncode, s.tail())
            assert time.monotonic() - began < 5
            assert len(re.findall("the device is given up, all requests fail", log_of(s))) == 1, s.tail()
        finally:
            s.stop()

    @row("H14", "memory that cannot be pinned: a warning, slower, the same answers", own=True)
    def h14(_):
        base = want()
        s = Server(*SHAPE, env={"EMU_FAIL": ",".join(["cudaHostAlloc:0:%d" % NO_MEMORY] * 12)})
        try:
            assert answers(s) == base
            assert "cannot be pinned" in log_of(s), s.tail()
            assert s.get("/health").status == 200 and not s.error_lines()
        finally:
            s.stop()


if emulated():
    rows()
