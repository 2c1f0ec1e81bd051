#!/usr/bin/env python3
"""Ranks with whole experts (--enable-expert-parallel): real servers of small mixtures of experts, beside the same without the option.

    experts.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
import scripted
import world
from tiers import arguments, run_named  # noqa: E402

TWO = ["--tensor-parallel-size", "2"]
WHOLE = [*TWO, "--enable-expert-parallel"]
PROMPTS = ["The sea was calm, and number %d of the boats went out" % i for i in range(8)]
TESTS, test = world.tests()


class World(world.World):
    prefix = "spillway-experts-"

    def checkpoint(self, name):
        """A golden checkpoint with a tokenizer of bytes."""
        folder = os.path.join(tempfile.mkdtemp(dir=self.folder), "model")
        shutil.copytree(os.path.join(ROOT, "tests", "data", "golden", name), folder)
        with open(os.path.join(folder, "tokenizer.json"), "w") as f:
            json.dump(scripted.tokenizer(["<a>"], ["<|end|>"])[1], f)
        return folder

    def moe(self, folder, *args):
        return self.server("--model", folder, "--max-model-len", "256", *args)


def answer(s, prompt):
    r = s.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 32, "ignore_eos": True, "logprobs": 1, "return_token_ids": True})
    assert r.status == 200, r
    c = r.json["choices"][0]
    return c["token_ids"], c["logprobs"]["token_logprobs"], c["text"]


def answers(s):
    """To all prompts at once."""
    out = [None] * len(PROMPTS)

    def one(i):
        out[i] = answer(s, PROMPTS[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(PROMPTS))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


@test
def whole_experts_answer_as_slices_do(w):
    """The same text; log-probabilities within the rounding of another order of sums. Alone and in company: the same bits."""
    for name, part in (("qwen3-moe", "4 of 8"), ("gpt-oss-mxfp4", "2 of 4"), ("glm4-moe", "6 of 12")):
        folder = w.checkpoint(name)
        plain = w.moe(folder, "--dtype", "float32", *TWO)
        want = answers(plain)
        assert "experts:" not in plain.tail(200).replace("model: experts are MXFP4", ""), plain.tail(200)
        plain.stop()
        whole = w.moe(folder, "--dtype", "float32", *WHOLE)
        assert "model: experts: %s on each rank" % part in whole.tail(200), whole.tail(200)
        got = answers(whole)
        for p, a, b in zip(PROMPTS, want, got):
            assert a[0] == b[0] and a[2] == b[2], (name, p, a, b)
            assert all(abs(x - y) < 1e-3 for x, y in zip(a[1], b[1])), (name, p, a, b)
            assert answer(whole, p) == b, "other bits alone"
        whole.stop()


@test
def a_folder_keeps_the_blocks_of_both_apart(w):
    folder, kv = w.checkpoint("qwen3-moe"), os.path.join(w.folder, "kv")
    seen = []
    for args in (TWO, WHOLE, TWO, WHOLE):
        s = w.moe(folder, "--kv-host-gib", "0.01", "--kv-nvme", kv + ":0.05", *args)
        answers(s)
        s.stop()
        seen.append({d for d in os.listdir(kv) if os.path.isdir(os.path.join(kv, d))})
    assert len(seen[0]) == 1 and len(seen[1]) == 2 and seen[3] == seen[1], seen


@test
def what_cannot_be_divided_is_refused_in_one_line(w):
    from harness import BINARY

    moe = w.checkpoint("qwen2-moe")
    cases = [
        (["--device", "cpu", *WHOLE], "--enable-expert-parallel: config.json makes a model without experts (Qwen3ForCausalLM)"),
        (["--device", "cpu", "--model", moe, "--tensor-parallel-size", "4", "--enable-expert-parallel"],
         "config.json: num_experts is 6, and --enable-expert-parallel gives each of 4 tensor-parallel ranks as many whole experts"),
    ]
    for args, why in cases:
        for command in ([], ["plan"]):
            options = args[2:] if command else ["--port", "0", *args]
            r = subprocess.run([BINARY, *command, *options], capture_output=True, text=True, timeout=180)
            last = r.stderr.strip().split("\n")[-1]
            assert r.returncode == 78 and last.startswith("spillway") and why in last, (args, r.returncode, r.stderr)
    for args, why in ((["--shape", "tiny", *WHOLE], cases[0][1].split(" (")[0]), (cases[1][0][2:], cases[1][1])):
        r = subprocess.run([BINARY, "tune", *args], capture_output=True, text=True, timeout=60)
        assert r.returncode == 78 and r.stderr.startswith("spillway tune: " + why), (args, r.returncode, r.stderr)
    r = subprocess.run([BINARY, "tune", "--model", moe, "--enable-expert-parallel=no"], capture_output=True, text=True, timeout=60)
    assert r.returncode == 64 and "no value is allowed" in r.stderr, r
    r = subprocess.run([BINARY, "plan", "--model", moe, *WHOLE], capture_output=True, text=True, timeout=60)
    assert "  experts                 3 of 6 on each\n" in r.stdout, r
    s = w.moe(moe, "--enable-expert-parallel")
    assert "--enable-expert-parallel changes nothing on one rank" in s.tail(200), s.tail(200)
    assert len(answer(s, PROMPTS[0])[0]) == 32
    s.stop()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
