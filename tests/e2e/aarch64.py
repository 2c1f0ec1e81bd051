#!/usr/bin/env python3
"""The server built for 64-bit ARM, under qemu-user, answers over HTTP as the one of this machine does, to the last bit of every logprob:
NEON's sums are those of AVX2 and AVX-512 (kernels/cpu/simd.h), and everything above them is the same C.

    aarch64.py          with SPILLWAY=path of the native program, AARCH64='qemu-aarch64 -L ROOT path of the other'

Each test is a function `test_*`; one line each, then `N passed, N failed, N skipped`."""

# Run by: section aarch64 alone of ./check (it needs a build of preset aarch64).

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fault"))
from harness import free_port, run_tests  # noqa: E402

NATIVE = os.environ.get("SPILLWAY", "build/check/spillway")
OTHER = shlex.split(os.environ.get("AARCH64", "qemu-aarch64 -L build/aarch64-root build/aarch64/spillway"))
SHAPE = ["--max-num-seqs", "8", "--max-model-len", "256", "--kv-cache-bytes", "16MiB", "--threads", "2"]
PROMPTS = ["What is a KV cache?", "Write a JSON object with name and age", "Which metrics are there?"]


class Server:
    def __init__(self, command, isa):
        self.url = "http://127.0.0.1:%d" % free_port()
        self.log = tempfile.TemporaryFile()
        args = [*command, "--port", self.url.rsplit(":", 1)[1], "--cpu-isa", isa, *SHAPE]
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(3000):
            try:
                urllib.request.urlopen(self.url + "/ready", timeout=60)
                return self
            except (OSError, urllib.error.URLError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.__exit__()
        raise AssertionError("not ready:\n" + self.said())

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(180)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, prompt):
        body = {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 16, "logprobs": True, "top_logprobs": 3}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        choice = json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]
        return choice["message"]["content"], choice["logprobs"], choice["finish_reason"]


def test_neon_answers_as_avx_does():
    with Server([NATIVE], "avx2") as native:
        want = [native.ask(p) for p in PROMPTS]
    assert all(text for text, _, _ in want), want
    with Server(OTHER, "neon") as s:
        alone = [s.ask(p) for p in PROMPTS]
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
            together = list(pool.map(s.ask, PROMPTS))
    assert alone == want, "%s\nnot\n%s" % (alone, want)
    assert together == want, "together: %s\nnot\n%s" % (together, want)
    assert s.process.returncode == 0, "ended with %s:\n%s" % (s.process.returncode, s.said())


def test_the_instruction_set_of_the_processor_is_found():
    """qemu's default processor has both; another instruction set's name is refused with those that there are."""
    out = subprocess.run([*OTHER, "--cpu-isa", "avx2"], capture_output=True, text=True, timeout=180)
    assert out.returncode == 64 and "this machine has neon-bf16, neon, scalar" in out.stderr, (out.returncode, out.stderr)


def main():
    return run_tests([fn for name, fn in globals().items() if name.startswith("test_")])


if __name__ == "__main__":
    sys.exit(main())
