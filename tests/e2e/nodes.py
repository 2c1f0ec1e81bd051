#!/usr/bin/env python3
"""Two nodes on one machine: two servers that share every layer, over loopback, on emulated GPUs. And KV tiers below two such GPUs.

    nodes.py            with SPILLWAY=path/to/spillway of a build whose cuda device is emulated (preset emu)

Each test is a function `test_*`; one line each, then `N passed, N failed, N skipped`."""

# Run by: section emu-e2e alone of ./check (it needs a build of preset emu).

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fault"))
from harness import eventually, free_port, run_tests, slower  # noqa: E402

SPILLWAY = os.environ.get("SPILLWAY", "build/emu/spillway")
SHAPE = ["--max-num-seqs", "8", "--max-num-batched-tokens", "64", "--max-model-len", "256", "--kv-cache-bytes", "16MiB"]
PROMPTS = ["What is the capital of France?", "Count from one to five.", "Say hello."]


class Server:
    def __init__(self, *args, env=None):
        self.port = free_port()
        self.log = tempfile.TemporaryFile()
        full = dict(os.environ, **(env or {}))
        self.p = subprocess.Popen([SPILLWAY, "--port", str(self.port), *SHAPE, *args], stdout=self.log, stderr=subprocess.STDOUT, env=full)

    def text(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")

    def get(self, path):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.port, path), timeout=60) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, ""

    def ready(self, seconds=300):
        end = time.time() + seconds
        while time.time() < end:
            assert self.p.poll() is None, "ended with %d\n%s" % (self.p.returncode, self.text())
            if self.get("/ready")[0] == 200:
                return self
            time.sleep(0.05)
        raise AssertionError("not ready\n" + self.text())

    def chat(self, prompt, **kw):
        body = dict({"messages": [{"role": "user", "content": prompt}], "max_tokens": 24, "temperature": 0}, **kw)
        req = urllib.request.Request(
            "http://127.0.0.1:%d/v1/chat/completions" % self.port, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(req, timeout=300) as r:
                return r.status, json.loads(r.read())["choices"][0]["message"]["content"]
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError as e:
            return 0, str(e)

    def wait(self, seconds):
        try:
            return self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError("still there after %d s\n%s" % (seconds, self.text()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        self.log.close()


def node(rank, port, *args, env=None):
    return Server("--device", "cuda", "--tensor-parallel-size", "2", "--nnodes", "2", "--node-rank", str(rank), "--master-addr",
                  "127.0.0.1:%d" % port, *args, env=env)


def answers(s):
    """Alone, then all at once with sampling: what a seed gives does not depend on the company."""
    out = [s.chat(p) for p in PROMPTS]
    got = {}

    def ask(i):
        got[i] = s.chat(PROMPTS[i % 3], temperature=0.8, seed=i, top_p=0.9, frequency_penalty=0.3, logit_bias={"5": -1})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out + [got[i] for i in range(8)]


def test_two_nodes_answer_as_one_process_does():
    with Server("--device", "cuda", "--tensor-parallel-size", "2", "--deterministic") as one:
        want = answers(one.ready())
    assert all(status == 200 for status, _ in want), want
    port = free_port()
    with node(0, port, "--deterministic") as a, node(1, port, "--deterministic") as b:
        a.ready(), b.ready()
        assert answers(a) == want, (answers(a), want)
        assert b.get("/health")[0] == 200 and "spillway" in b.get("/metrics")[1]
        assert b.chat("hi")[0] == 503
        b.p.send_signal(signal.SIGTERM)  # all pods are told to end at the same time: the helper stays until node 0 has drained
        assert a.chat(PROMPTS[0])[0] == 200
        a.p.send_signal(signal.SIGTERM)
        assert a.wait(180) == 0, a.text()
        assert b.wait(180) == 0, b.text()


def lost(kill_helper):
    port = free_port()
    with node(0, port) as a, node(1, port) as b:
        a.ready(), b.ready()
        got = []
        t = threading.Thread(target=lambda: got.append(a.chat("Tell me a long story.", max_tokens=200, ignore_eos=True)))
        t.start()
        time.sleep(0.5)
        (b if kill_helper else a).p.kill()
        began = time.time()
        stays = a if kill_helper else b
        code = stays.wait(180)
        assert code == 70, (code, stays.text())
        assert time.time() - began < 6 * slower(), time.time() - began
        lines = [x for x in stays.text().splitlines() if " is lost after step " in x]
        assert len(lines) == 1, stays.text()
        t.join()
        assert got[0][0] != 200, got


def test_a_helper_that_dies_ends_node_0():
    lost(True)


def test_node_0_that_dies_ends_the_helper():
    lost(False)


def test_an_idle_server_notices_too():
    port = free_port()
    with node(0, port) as a, node(1, port) as b:
        a.ready(), b.ready()
        b.p.kill()
        assert a.wait(180) == 70, a.text()


def test_a_frozen_helper_is_lost():
    port = free_port()
    with node(0, port) as a, node(1, port) as b:
        a.ready(), b.ready()
        b.p.send_signal(signal.SIGSTOP)
        assert a.wait(180) == 70, a.text()
        assert "it is silent" in a.text()


def test_a_node_with_other_options_is_refused():
    port = free_port()
    with node(0, port, env={"SPILLWAY_CLUSTER_KEY": "one"}) as a:
        with node(1, port, env={"SPILLWAY_CLUSTER_KEY": "two"}) as b:  # it cannot tell who says no, so it asks on
            eventually(lambda: "--cluster-key differs" in b.text() and "asking again" in b.text(), "a line about the key")
            assert b.p.poll() is None, b.text()
        for args, env, word in (
            (["--block-size", "32"], {"SPILLWAY_CLUSTER_KEY": "one"}, "--block-size"),
            (["--node-rank", "0"], {"SPILLWAY_CLUSTER_KEY": "one"}, "cannot listen"),
        ):
            with node(1, port, *args, env=env) as b:
                assert b.wait(180) == 78, b.text()
                assert word in b.text(), b.text()
        with node(1, port, env={"SPILLWAY_CLUSTER_KEY": "one"}) as b:
            a.ready(), b.ready()
            assert a.chat(PROMPTS[0])[0] == 200


def test_the_environment_of_lws_is_enough():
    port = free_port()
    env = lambda i: {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(i), "LWS_LEADER_ADDRESS": "127.0.0.1"}
    args = ["--device", "cuda", "--tensor-parallel-size", "2", "--master-addr", "127.0.0.1:%d" % port]
    with Server(*args, env=env(0)) as a, Server(*args, env=env(1)) as b:
        a.ready(), b.ready()
        assert a.chat(PROMPTS[0])[0] == 200


def test_an_old_nccl_runs_without_graphs():
    port = free_port()
    env = {"EMU_NCCL_VERSION": "22809"}
    with node(0, port, env=env) as a, node(1, port, env=env) as b:
        a.ready(), b.ready()
        assert a.chat(PROMPTS[0])[0] == 200
        for s in (a, b):
            assert "graphs are off" in s.text() and "graphs on" not in s.text(), s.text()


WINDOW = "lies in a symmetric window"
NO_WINDOW = "no symmetric windows"


def test_windows_of_two_nodes():
    port = free_port()
    with node(0, port, "--nccl-symmetric", "on") as a, node(1, port, "--nccl-symmetric", "on") as b:
        a.ready(), b.ready()
        want = [a.chat(p) for p in PROMPTS]
        assert all(s.text().count(WINDOW) == 1 for s in (a, b)), a.text() + b.text()
    assert all(status == 200 for status, _ in want), want
    # registering, or the memory for it, fails on one node: none has a window, and the answers are the same
    for fail, who in (("ncclCommWindowRegister:0:2", 1), ("ncclCommWindowRegister:0:2", 0), ("ncclMemAlloc:0:2", 1)):
        port, env = free_port(), [None, None]
        env[who] = {"EMU_FAIL": fail}
        with node(0, port, env=env[0]) as a, node(1, port, env=env[1]) as b:
            a.ready(), b.ready()
            assert [a.chat(p) for p in PROMPTS] == want, (fail, who)
            for s in (a, b):
                assert s.text().count(NO_WINDOW) == 1 and WINDOW not in s.text(), s.text()
    # each node was told something else
    port = free_port()
    with node(0, port, "--nccl-symmetric", "off") as a, node(1, port) as b:
        assert b.wait(180) == 78 and "--nccl-symmetric" in b.text(), b.text()


def test_windows_are_refused_in_one_line():
    args = ["--device", "cuda", "--tensor-parallel-size", "2", "--nccl-symmetric", "on"]
    nccl = ["--collectives", "nccl"]
    for more, env, words in (
        (nccl, {"EMU_NCCL_VERSION": "22605"}, "NCCL 22605 is found, 22700 (2.27) or newer is needed"),
        (nccl, {"EMU_NCCL_WINDOWS": "0"}, "NCCL says that these GPUs cannot"),
        (nccl, {"EMU_FAIL": "ncclCommWindowRegister:1:2"}, NO_WINDOW),
        (["--deterministic"], {}, "NCCL carries nothing here"),
        (["--device", "cpu"], {}, "the device is cpu"),
    ):
        with Server(*args, *more, env=dict({"EMU_DEVICES": "2"}, **env)) as s:
            assert s.wait(180) == 78, s.text()
            lines = [x for x in s.text().splitlines() if words in x]
            assert len(lines) == 1 and "--nccl-symmetric on" in lines[0], s.text()


def test_devices_without_a_network_are_refused():
    for device in ("cpu", "ref"):
        with Server("--device", device, "--tensor-parallel-size", "2", "--nnodes", "2", "--master-addr", "127.0.0.1:1") as s:
            assert s.wait(180) == 64 and "--device" in s.text(), s.text()


def test_tiers_of_two_gpus_survive_a_restart():
    words = " ".join("%s fox number %d" % (w, i) for i, w in enumerate(["red", "old", "shy", "wet"] * 7))
    body = {"prompt": words, "max_tokens": 4, "temperature": 0, "logprobs": 1, "return_token_ids": True}
    with tempfile.TemporaryDirectory() as d:
        args = ["--device", "cuda", "--tensor-parallel-size", "2", "--deterministic", "--kv-host-gib", "0.02", "--kv-nvme", d + "/kv:0.05"]
        said = []
        for rnd in range(2):
            with Server(*args) as s:
                s.ready()
                for _ in range(2 - rnd):
                    req = urllib.request.Request(
                        "http://127.0.0.1:%d/v1/completions" % s.port, json.dumps(body).encode(), {"Content-Type": "application/json"}
                    )
                    if rnd:
                        end = time.time() + 180  # the folder is read back in the background
                        while 'kv_tier_blocks{tier="nvme"} 0' in s.get("/metrics")[1] and time.time() < end:
                            time.sleep(0.05)
                    with urllib.request.urlopen(req, timeout=300) as r:
                        a = json.loads(r.read())
                    c = a["choices"][0]
                    said.append((c["token_ids"], c["logprobs"]["token_logprobs"]))
                    tier = a["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier", {})
                s.p.terminate()
                assert s.wait(180) == 0, s.text()
        assert said[0] == said[1] == said[2], said
        assert tier.get("nvme", 0) >= 64, tier


def main():
    devices = subprocess.run([SPILLWAY, "--list-devices"], capture_output=True, text=True).stdout
    if not re.search("[Ee]mulated", devices):
        print("needs a build with emulated GPUs")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    return run_tests([fn for name, fn in sorted(globals().items()) if name.startswith("test_")])


if __name__ == "__main__":
    sys.exit(main())
