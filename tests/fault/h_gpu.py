"""Layer H of the fault table: what a GPU can do to a server, on the emulated device (a build of preset emu): there errors are planned by
EMU_FAIL (tests/emu/cudart.cc). With another build these rows are not there. What needs a real GPU waits in tests/gpu.

Over 500 lines: a list of rows, one function each."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

from harness import BINARY, PATIENCE, Server, eventually, fake_nvml, post_bytes, row, slower

SHAPE = ["--device", "cuda", "--kv-cache-bytes", "16MiB", "--max-model-len", "256", "--max-num-seqs", "8", "--max-num-batched-tokens", "64"]
PROMPTS = ["The capital of France is", "Monday, Tuesday,", "Count: one, two,"]
TOO_MUCH, ILLEGAL, ECC, CAPTURE, NO_MEMORY, MPS = 701, 700, 214, 900, 2, 805  # cudaErrorLaunchOutOfResources, ...
STALL = 100000  # EMU_STALL


def emulated():
    try:
        return b"mulated" in subprocess.run([BINARY, "--list-devices"], capture_output=True, timeout=PATIENCE).stdout
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


def library_fails(n):
    """A server whose cuBLASLt says n times that it has no memory, in a step."""
    for skip in (300, 1000, 3000, 10000):
        s = Server(*SHAPE, env={"EMU_FAIL": ",".join(["cublasLtMatmul:%d:3" % skip] + ["cublasLtMatmul:0:3"] * (n - 1))}, wait=False)
        try:
            s.wait_ready()
        except AssertionError:
            pass
        log = log_of(s)
        if " ready: " in log and "our own kernels compute it" not in log:
            return s
        s.stop()
    raise AssertionError("loading multiplies more than 10000 times")


def until_error(s, prompt, n, whole):
    """Streams, n at a time, until one ends with an error event, which no [DONE] follows: when that was. whole: nobody is cut off in
    silence, and nobody ends well after one with an error."""
    body = json.dumps({"prompt": prompt, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
    ended = None
    while s.proc.poll() is None and not ended:
        conns = [s.conn() for _ in range(n)]
        for c in conns:
            c.send(post_bytes("/v1/completions", body, ("Connection: close",)))
        for c in conns:
            r = c.read_all()
            assert r or not whole, s.tail()
            if r and b'"error"' in r[-1].body:
                assert b"[DONE]" not in r[-1].body, r[-1].body[-200:]
                ended = time.monotonic()
            elif whole:
                assert b"[DONE]" in r[-1].body and not ended, r[-1].body[-200:]
            c.close()
    assert ended, s.tail()
    return ended


def rows():
    @row("H1", "no allocation after ready, whatever is asked; a library that has no memory for once costs nobody an answer", own=True)
    def h1(_):
        base = want()
        s = Server(*SHAPE, "--kv-host-gib", "0.05", env={"EMU_TRACE_ALLOC": "1"})
        try:
            def client(i):
                for n in (1, 5):
                    r = s.complete(PROMPTS[i % 3] * (1 + i), max_tokens=2 * n, n=1 + i % 3, temperature=0.5 * (i % 3), logprobs=i % 4, stream=False)
                    assert r.status == 200, r

            assert answers(s) == base
            for _ in range(2):
                threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
                for t in threads:
                    t.start()
                for t in threads:
                    t.join()
                for sig in (signal.SIGHUP, signal.SIGUSR1):
                    s.proc.send_signal(sig)
                assert s.get("/metrics").status == 200
            assert s.complete("x" * 200, max_tokens=40, temperature=0).status == 200
            assert answers(s) == base
            before, after = log_of(s).split(" ready: ")
            assert "emu: cudaMalloc of" in before  # it is counted
            assert "6 of 6 sizes of decode steps are recorded" in before, before[-600:]
            assert "emu: " not in after, [x for x in after.split("\n") if x.startswith("emu: ")]
        finally:
            s.stop()
        s, words = library_fails(1), "our own kernels compute it"
        try:
            for _ in range(40):
                answers(s)
                if words in log_of(s):
                    break
            assert words in log_of(s), s.tail()
            assert s.get("/health").status == 200 and not s.error_lines(), s.error_lines()
        finally:
            s.stop()

    def hangs(fault, words, args=()):
        """Three streams, then the fault: /health 503, the dump, error events, exit 70."""
        s = Server(*SHAPE, "--stuck-seconds", "1", *args, env={"EMU_FAIL": fault})
        seen, stop = set(), threading.Event()

        def poll():
            while not stop.is_set():
                try:
                    seen.add(s.get("/health", timeout=5).status)
                except (OSError, http.client.HTTPException):
                    pass
                time.sleep(0.05)

        t = threading.Thread(target=poll)
        t.start()
        try:
            until_error(s, "My secret is", 3, whole=True)
            assert s.proc.wait(PATIENCE) == 70, (s.proc.returncode, s.tail())
            log = log_of(s)
            assert log.count("no progress since step") == 1 and log.count("---- engine dump ----") == 1, s.tail()
            block = log[log.index("---- engine dump ----") : log.index("---- end of dump ----")]
            for w in ("submitted", "rows of", "request ", "rank 0: ", "ops enqueued", "thread engine (", *words):
                assert w in block, (w, block)
            assert "secret" not in log
            stop.set()
            t.join()
            assert 503 in seen and 200 in seen, seen
        finally:
            stop.set()
            t.join()
            s.stop()

    @row("H5", "a kernel that never returns: 503, what was computed where, the stacks, error events, exit 70", own=True)
    def h5(_):
        skip = launches_until_ready()
        hangs("kernel:%d:%d" % (skip + 1500, STALL), ["a step has been waited for", "cuda_step_wait"])
        hangs("kernel:%d:%d" % (6000, STALL), ["rank 1: ", "calls done", "thread rank0 (", "thread rank1 ("], ["--tensor-parallel-size", "2"])
        base = want()
        s = Server(*SHAPE, env={"EMU_FAIL": "kernel:%d:%d" % (skip + 300, STALL + 2000)})  # it comes back
        try:
            for _ in range(3):
                assert answers(s) == base and s.get("/health").status == 200
            assert not s.error_lines(), s.error_lines()
        finally:
            s.stop()

    @row("I8", "an engine thread that stands in a call of the driver: as a kernel that hangs", own=True)
    def i8(_):
        hangs("launch:%d:%d" % (launches_until_ready() + 300, STALL), ["step_run"], ["--enforce-eager"])

    @row("H6", "a GPU that is five times slower: a metric shows it, nothing else happens", own=True)
    def h6(_):
        base = want()
        s = Server(*SHAPE, env={"EMU_SLOW": "6000:5"})
        try:
            ratio = 0
            for _ in range(200):
                assert answers(s) == base and s.get("/health").status == 200
                ratio = s.metric("spillway:step_slowdown_ratio")
                n_step = s.metric("spillway:step_seconds_count")
                if ratio > 2.5 and n_step > 100:  # a busy machine may make the first steps slow already
                    break
            assert ratio > 2.5 and n_step > 100, (ratio, n_step)
            assert s.metric("spillway:step_seconds_sum") > 0
            assert not s.error_lines(), s.error_lines()
        finally:
            s.stop()

    @row("H10", "another process takes GPU memory: before the start found and needed, while loading the same, later no effect", own=True)
    def h10(_):
        base = want()
        path = tempfile.mktemp(prefix="spillway-others-")

        def others(n):
            with open(path + ".new", "w") as f:
                f.write(str(n))
            os.rename(path + ".new", path)

        def refused(env, code, *words):
            p = subprocess.run([BINARY, "--port", "0", *SHAPE], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, env=dict(os.environ, **env))
            out = (p.stdout + p.stderr).decode("utf-8", "replace")
            assert p.returncode == code, (p.returncode, out)
            for w in words:
                assert w in out, (w, out)

        try:
            others((2 << 30) - (20 << 20))
            refused({"EMU_OTHERS": path}, 78, "nothing is left", "%d are used, by other processes" % ((2 << 30) - (20 << 20)))
            others(1740 << 20)  # of 0.9 * 2048 MiB, 64 of them kept free: some 40 are left
            refused({"EMU_OTHERS": path}, 78, "needed", "available are")
            refused({"EMU_FAIL": "cudaMalloc:0:%d" % NO_MEMORY}, 70, "needed", "free")  # between the plan and the reservation
            others(1 << 30)
            s = Server(*SHAPE, env={"EMU_OTHERS": path})
            try:
                assert answers(s) == base
                others(4 << 30)  # all there is, and more
                for _ in range(3):
                    assert answers(s) == base
                    assert s.complete("y" * 100, max_tokens=30, n=4, temperature=1).status == 200
                assert s.get("/health").status == 200 and not s.error_lines(), s.error_lines()
            finally:
                s.stop()
        finally:
            os.unlink(path)

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
        ranks = [*eager, "--tensor-parallel-size", "2"]
        s = Server(*ranks)
        try:
            base = answers(s)
        finally:
            s.stop()
        s = Server(*ranks, env={"EMU_FAIL": "launch:9000:%d,launch:2000:%d" % (TOO_MUCH, TOO_MUCH)})
        try:
            for _ in range(60):
                assert answers(s) == base
                if log_of(s).count("launched once more") == 2:
                    break
            assert log_of(s).count("launched once more") == 2, s.tail()
            assert s.get("/health").status == 200 and not s.error_lines(), s.error_lines()
        finally:
            s.stop()

    def lost(code, error):
        """Four streams, then the fault: error events, /health 503, one line, this exit code; a new server serves."""
        skip = launches_until_ready()
        s = Server(*SHAPE, env={"EMU_FAIL": "kernel:%d:%d" % (skip + 1500, error)})
        try:
            began = until_error(s, "Once", 4, whole=False)
            assert s.proc.wait(PATIENCE) == code, (s.proc.returncode, s.tail())
            assert time.monotonic() - began < 5 * slower()
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

    def stream(s, max_tokens):
        """A connection whose answer has begun."""
        c = s.conn()
        body = {"prompt": "Once", "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        c.send(post_bytes("/v1/completions", json.dumps(body).encode(), ("Connection: close",)))
        while b"data: " not in c.data:
            c.data += c.sock.recv(1 << 16)
        return c

    class Driver:
        """A server on the emulated GPUs whose driver has news of them."""

        def __init__(self, mode, *args):
            self.folder = tempfile.TemporaryDirectory(prefix="spillway-nvml-")
            self.events, self.go = os.path.join(self.folder.name, "events"), os.path.join(self.folder.name, "go")
            library = os.path.join(self.folder.name, "lib")
            fake_nvml(library)
            self.s = Server(*SHAPE, *args, env={"LD_LIBRARY_PATH": library, "FAKE_NVML": mode, "FAKE_NVML_EVENTS": self.events, "FAKE_NVML_GO": self.go,
                                                "EMU_DEVICES": "2"})
            self.n = 0
            eventually(lambda: b"spillway:gpu_lost" in self.s.get("/metrics").body, "a sample of the driver")

        def xid(self, gpu, number):
            with open(self.events, "a") as f:
                f.write("%d %d;" % (gpu, number))
            self.n += 1

        def heard(self):
            eventually(lambda: self.s.metric("spillway:gpu_xid_errors_total") == self.n, "the XID")

        def still_serves(self, base):
            for _ in range(3):  # as long as the watch needs to look twice
                assert answers(self.s) == base and self.s.get("/ready").status == 200, self.s.tail()
                time.sleep(0.4)

        def stop(self):
            self.s.stop()
            self.folder.cleanup()

    def ends(mode, number, code, *args, gpu=0, lost=False):
        """A stream runs and the driver tells: /health is 503 or gone, the stream hears an error, this exit code, within seconds."""
        d = Driver(mode, *args)
        try:
            c = stream(d.s, 200)
            began = time.monotonic()
            if lost:
                open(d.go, "w").close()
            else:
                d.xid(gpu, number)
            r = c.read_all()
            c.close()
            assert d.s.proc.wait(PATIENCE) == code, (number, d.s.proc.returncode, d.s.tail())
            assert time.monotonic() - began < 6 * slower()
            assert r and (b'"error"' in r[-1].body or b"[DONE]" in r[-1].body), "cut off in silence"
            assert ("XID %d" % number if not lost else "is lost") in log_of(d.s), d.s.tail()
        finally:
            d.stop()

    @row("H3", "XIDs of a program that failed, perhaps another one's: a prompt of our own finds out, and nothing else happens", own=True)
    def h3_asks(_):
        base = want()
        d = Driver("plain")
        try:
            for number in (13, 31, 43, 45):
                asked = log_of(d.s).count("a plain prompt finds out")
                steps = d.s.metric("spillway:engine_steps_total")
                d.xid(0, number)
                d.heard()
                eventually(lambda: log_of(d.s).count("a plain prompt finds out") == asked + 1, "the question")
                eventually(lambda: d.s.metric("spillway:engine_steps_total") > steps, "its step")
            d.still_serves(base)
            assert not d.s.error_lines(), d.s.error_lines()
        finally:
            d.stop()

    @row("H4", "XIDs: what is no harm, or of another GPU, or of a link that nobody uses, costs nothing", own=True)
    def h4_nothing(_):
        base = want()
        d = Driver("plain")
        try:
            for gpu, number in ((0, 63), (0, 92), (0, 154), (0, 160), (0, 171), (0, 9999), (0, 74), (1, 48), (1, 79), (1, 94), (1, 95), (1, 64), (1, 119)):
                d.xid(gpu, number)
            d.heard()
            d.still_serves(base)
            assert not d.s.error_lines(), d.s.error_lines()
        finally:
            d.stop()
        d = Driver("no places")  # which GPU is ours cannot be told: said once, and nothing is done
        try:
            d.xid(0, 95)
            d.heard()
            d.still_serves(base)
            assert log_of(d.s).count("tells nothing of the GPU at 0000:01:00.0") == 1, d.s.tail()
        finally:
            d.stop()

    @row("H4", "XIDs: a GPU of ours that is broken ends the process with 71, a contained error with 70", own=True)
    def h4_ends(_):
        ends("plain", 94, 70)
        ends("plain", 95, 71)
        ends("plain", 79, 71)
        ends("plain", 74, 71, "--tensor-parallel-size", "2", gpu=1)
        ends("lost", 0, 71, "--cuda-device", "1", lost=True)

    @row("H4", "XID 64: the GPU is to be replaced; what runs finishes, then 71", own=True)
    def h4_drains(_):
        d = Driver("plain")
        try:
            c = stream(d.s, 200)
            d.xid(0, 64)
            eventually(lambda: "what runs may finish" in log_of(d.s), "the drain")
            r = c.read_all()
            c.close()
            assert b"[DONE]" in r[-1].body and b'"error"' not in r[-1].body, r[-1].body[-200:]
            assert d.s.proc.wait(PATIENCE) == 71, (d.s.proc.returncode, d.s.tail())
            assert "main: done" in log_of(d.s), d.s.tail()
        finally:
            d.stop()

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
            p = subprocess.run([BINARY, "--port", "0", *SHAPE], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL, env=e)
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
            assert s.proc.wait(PATIENCE) == 70, (s.proc.returncode, s.tail())
            assert time.monotonic() - began < 5 * slower()
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
