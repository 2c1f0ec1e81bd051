#!/usr/bin/env python3
"""Models whose layers with a sliding window have a pool of their own (docs/design/kv-groups.md), by real servers.

    windows.py [--preset check] [test ...]

The model is Gemma 3 in small: one layer of four sees all tokens, the others see 16. The same requests are asked of servers with two
pools and of one whose pool holds all layers (its tier is read in place), roomy and short of memory; with tiers below two pools
they are asked of a server without a cache. One line for each test, then `N passed, N failed, N skipped`."""
# Under sanitizers: in ./check all, where it takes minutes. Windows below the device have unit tests that always run there.

import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch
from events import Router, Wire  # noqa: E402
from objects import Redis  # noqa: E402
from peers import connected, peer, ports  # noqa: E402
from roles import ends  # noqa: E402
from tiers import arguments, metric, result, run_named  # noqa: E402

PEBBLE = os.path.join(ROOT, "models", "pebble")
GEMMA3 = os.path.join(ROOT, "tests", "data", "golden", "gemma3")
CONTEXT, WINDOW, BLOCK = 512, 16, 16
ONE_POOL = ["--kv-host-gib", "0.01", "--kv-host-in-place", "on"]
TIERS = ["--kv-cache-bytes", "400KiB", "--kv-host-gib", "0.02"]
TIGHT = ["--kv-cache-bytes", "400KiB", "--kv-host-gib", "0.001"]  # the host holds a part of what is asked for
ARGS = ["--device", "cpu", "--load-format", "dummy", "--prefill-chunk", "32", "--max-num-seqs", "16"]
WORDS = "the sea was calm and a small boat went out to look for the island that nobody had seen since winter".split()
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


class World:
    def __init__(self):
        self.running = []
        self.folder = tempfile.mkdtemp(prefix="spillway-windows-")
        shutil.copy(os.path.join(PEBBLE, "tokenizer.json"), self.folder)
        with open(os.path.join(PEBBLE, "config.json"), encoding="utf-8") as f:
            pebble = json.load(f)
        with open(os.path.join(GEMMA3, "config.json"), encoding="utf-8") as f:
            self.config = {**json.load(f), **{k: pebble[k] for k in ("vocab_size", "bos_token_id", "eos_token_id") if k in pebble}}
        with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as f:
            json.dump(self.config, f)
        layer = 2 * self.config["num_key_value_heads"] * self.config["head_dim"] * 2  # bytes of a token
        windowed = self.config["layer_types"].count("sliding_attention")
        self.all, self.windows = (len(self.config["layer_types"]) - windowed) * layer, windowed * layer
        self.want = None
        self.want_talks = []
        self.slow = os.path.join(self.folder, "slow")  # of more arithmetic: a load is worth its price
        os.mkdir(self.slow)
        shutil.copy(os.path.join(PEBBLE, "tokenizer.json"), self.slow)
        with open(os.path.join(self.slow, "config.json"), "w", encoding="utf-8") as f:
            json.dump({**self.config, "hidden_size": 256, "intermediate_size": 2048}, f)

    def server(self, *args, context=CONTEXT, model=None, **more):
        from harness import Server

        self.running.append(Server("--model", model or self.folder, "--max-model-len", str(context), *ARGS, *args, **more))
        return self.running[-1]

    def talk(self, k):
        """Prompt k of 24: threes share their first 200 tokens."""
        ids = [random.Random(k // 3).randrange(10, 300) for _ in range(200)]
        rng = random.Random(1000 + k)
        return {"prompt": ids + [rng.randrange(10, 300) for _ in range(60 + 7 * (k % 5))], "max_tokens": 6, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, "logprobs": 1}

    def talks(self, s):
        """Asks all of them, and compares; the tokens that came from the host and from below it."""
        if not self.want_talks:
            plain = self.server("--no-enable-prefix-caching", model=self.slow)
            assert metric(plain, "spillway:kv_window_blocks") > 0
            self.want_talks = [result(plain.post("/v1/completions", self.talk(k)).json) for k in range(24)]
            plain.stop()
        host = nvme = 0
        for k, want in enumerate(self.want_talks):
            r = s.post("/v1/completions", self.talk(k))
            assert r.status == 200, r
            assert result(r.json) == want, "prompt %d has another answer than without a cache" % k
            tier = r.json["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier", {})
            host, nvme = host + tier.get("host", 0), nvme + tier.get("nvme", 0)
        return host, nvme

    def some(self, s, tier):
        """The same until that tier has served some: on a busy machine loads are given up, or not worth their price."""
        for _ in range(20):
            if self.talks(s)[tier]:
                return
        raise AssertionError("nothing came back: " + s.tail(100))

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def bodies(n=12):
    """Long answers, some of prompts that begin alike."""
    out = []
    for i in range(n):
        prompt = " ".join(WORDS[(i % 3 + j * (1 + i % 2)) % len(WORDS)] for j in range(20 + 6 * (i % 4)))
        out.append({"prompt": prompt, "max_tokens": 260, "temperature": 1, "seed": i, "ignore_eos": True, "logprobs": 1})
    return out


def answer(s, body):
    r = s.post("/v1/completions", body)
    assert r.status == 200, r
    c = r.json["choices"][0]
    return c["text"], c["logprobs"]["token_logprobs"]


def ask_all(s, asked):
    """All at once; the answers in order."""
    got = [None] * len(asked)

    def work(i):
        got[i] = answer(s, asked[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(asked))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(got), got
    return got


def wanted(w):
    """The answers of one at a time, by a pool that holds all layers."""
    if not w.want:
        s = w.server("--kv-cache-bytes", "64MiB", *ONE_POOL)
        assert metric(s, "spillway:kv_window_blocks") == 0 and "with --kv-host-in-place, layers" in s.tail(200), s.tail(200)
        w.want = [answer(s, b) for b in bodies()]
        s.stop()
    return w.want


@test
def long_answers_fit_where_one_pool_could_not_hold_them(w):
    from harness import eventually

    room = 12 * (CONTEXT * w.all) + 12 * (WINDOW + 4 * BLOCK) * w.windows + 40 * BLOCK * w.windows
    s = w.server("--kv-cache-bytes", str(room), "--kv-window-share", "0.5")
    assert ask_all(s, bodies()) == wanted(w)
    assert metric(s, "vllm:num_preemptions_total") == 0, s.tail(100)
    assert metric(s, "spillway:kv_window_freed_blocks_total") > 12 * 200 / BLOCK
    assert 0 < metric(s, "spillway:kv_window_blocks") < 12 * 300 / BLOCK, "all of it would fit without freeing"
    eventually(lambda: metric(s, "spillway:kv_window_used_blocks") == 0, "the last answer's blocks are given back")
    s.stop()
    s = w.server("--kv-cache-bytes", str(room), *ONE_POOL)
    for _ in range(10):  # where requests begin far apart, fewer of them run at once
        assert ask_all(s, bodies()) == wanted(w)
        if metric(s, "vllm:num_preemptions_total"):
            return
    raise AssertionError("one pool of these bytes was large enough")


@test
def preempted_and_cached_answers_are_the_same(w):
    small = CONTEXT * w.all * 2 + 20 * BLOCK * w.windows
    preempted = []
    for share in ("0.1", "0.5", "0.9"):
        s = w.server("--kv-cache-bytes", str(small), "--kv-window-share", share)
        for _ in range(2):
            assert ask_all(s, bodies()) == wanted(w), share
        preempted.append(metric(s, "vllm:num_preemptions_total"))
        s.stop()
    assert sum(preempted) > 0, preempted
    s = w.server("--kv-cache-bytes", "8MiB", "--no-enable-prefix-caching")
    assert ask_all(s, bodies()) == wanted(w)


@test
def a_prefix_is_found_while_its_window_is_there(w):
    s = w.server("--kv-cache-bytes", "16MiB")
    body = {"prompt": " ".join(WORDS * 4), "max_tokens": 4, "seed": 1, "temperature": 1}
    first = s.post("/v1/completions", body).json
    again = s.post("/v1/completions", body).json
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > again["usage"]["prompt_tokens"] - 2 * BLOCK, again["usage"]
    assert again["choices"][0]["text"] == first["choices"][0]["text"]


@test
def the_start_and_a_plan_say_what_sequences_need(w):
    from harness import BINARY

    s = w.server("--kv-cache-bytes", "4MiB")
    log = s.tail(200)
    assert "KV of %d bytes a token" % w.all in log and "%d bytes a token of the last %d" % (w.windows, WINDOW) in log, log
    total = metric(s, "spillway:kv_cache_bytes") + metric(s, "spillway:kv_window_bytes")
    assert (4 << 20) - BLOCK * (w.all + w.windows) < total <= 4 << 20, total
    assert metric(s, "spillway:kv_window_bytes") == metric(s, "spillway:kv_window_blocks") * w.windows * BLOCK
    p = subprocess.run([BINARY, "plan", "--json", "--model", w.folder, "--load-format", "dummy", "--context", str(CONTEXT)], capture_output=True, text=True,
                       timeout=60)
    plan = json.loads(p.stdout)
    assert [plan["token_bytes"], plan["window_block_bytes"]] == [w.all, w.windows * BLOCK], plan
    assert plan["sequence_bytes"] == CONTEXT * w.all + (WINDOW + 2 * BLOCK) * w.windows, plan


@test
def a_context_within_the_window_has_one_pool(w):
    s = w.server("--kv-cache-bytes", "1MiB", context=WINDOW + BLOCK)
    assert metric(s, "spillway:kv_window_blocks") == 0
    assert s.post("/v1/completions", {"prompt": "the", "max_tokens": 8}).status == 200


@test
def prefixes_come_back_from_the_host_and_the_folder(w):
    folder = ["--kv-nvme", os.path.join(w.folder, "kv") + ":0.05"]
    s = w.server(*TIERS, *folder, model=w.slow)
    assert metric(s, "spillway:kv_window_blocks") > 0 and "blocks of windows go below the device too" in s.tail(200), s.tail(200)
    w.some(s, 0)
    assert metric(s, "spillway:kv_window_loaded_blocks_total") > 0
    s.stop()  # what the host holds goes to the folder
    s = w.server(*TIERS, *folder, model=w.slow)
    w.some(s, 1)
    assert metric(s, "spillway:kv_window_loaded_blocks_total") > 0
    assert metric(s, "spillway:kv_audits_total") > 0 and metric(s, "spillway:kv_audit_mismatch_total") == 0
    assert metric(s, "spillway:kv_verify_failures_total") == 0


@test
def the_next_server_takes_both_pools_over(w):
    from harness import eventually

    path = os.path.join(w.folder, "take.sock")
    old = w.server(*TIERS, "--takeover", path, model=w.slow)
    w.talks(old)
    new = w.server(*TIERS, "--takeover", path, model=w.slow, wait=False, port=old.port)
    old.proc.wait(300)
    new.wait_ready()
    eventually(lambda: "took over" in new.tail(400), "the host's blocks are handed over")
    w.some(new, 0)
    assert metric(new, "spillway:kv_window_loaded_blocks_total") > 0
    assert metric(new, "spillway:kv_verify_failures_total") == 0


@test
def where_blocks_are_read_in_place_one_pool_holds_all_layers_and_that_is_said(w):
    s = w.server(*TIERS, "--kv-host-in-place", "on", model=w.slow)
    assert metric(s, "spillway:kv_window_blocks") == 0 and "with --kv-host-in-place, layers" in s.tail(200), s.tail(200)


# ---- windows that another server computed


def mac_key(w):
    path = os.path.join(w.folder, "mac")
    with open(path, "wb") as f:
        f.write(bytes(range(32)))
    os.chmod(path, 0o600)
    return path


def shared(w):
    """Options of each of two servers: what they share is a folder."""
    folder = tempfile.mkdtemp(dir=w.folder)
    return [["--kv-shared", folder + ":0.05", "--kv-mac-key-file", mac_key(w), "--kv-shared-name", name] for name in "ab"], lambda: None


def objects(w):
    """A store of objects."""
    r = Redis()
    return [["--kv-object", "redis://127.0.0.1:%d/0/kv" % r.port, "--kv-object-gib", "0.25", "--kv-mac-key-file", mac_key(w)]] * 2, r.stop


def peers(w):
    a, b = ports(2)
    return [peer(a, b), peer(b, a)], lambda: None


SHARED = (shared, "nvme", True), (objects, "object", True), (peers, "peer", False)  # whether what the first one left is read


@test
def a_server_goes_on_with_windows_that_another_one_computed(w):
    for place, tier, left in SHARED:
        (args_a, args_b), stop = place(w)
        a = w.server(*TIERS, *args_a, model=w.slow)
        w.talks(a)
        if left:
            a.stop()
        for _ in range(20):  # on a busy machine loads are given up, or not worth their price
            b = w.server(*TIERS, *args_b, model=w.slow)
            assert metric(b, "spillway:kv_window_blocks") > 0, b.tail(200)
            if not left:
                connected(b)
            w.talks(b)
            done = loaded(b, tier)
            assert metric(b, "spillway:kv_verify_failures_total") == 0 and not b.error_lines()
            b.proc.kill()
            b.proc.wait()
            if done:
                break
        stop()
        assert done, tier


def one_talk(w, servers, lock, rng):
    """A random talk, of a few, of a random server. The server's end is no fault, if it was killed; another answer is. What was wrong, or None."""
    k = rng.randrange(12)
    with lock:
        s = rng.choice(servers)
    try:
        r = s.post("/v1/completions", w.talk(k))
    except (OSError, http.client.HTTPException):
        with lock:
            return "a server that nobody killed does not answer" if s in servers else None
    return None if r.status == 200 and result(r.json) == w.want_talks[k] else "talk %d has another answer: %s" % (k, r)


@test
def random_talks_over_two_servers_of_which_one_is_killed(w):
    """WINDOWS_REQUESTS=N: so many for each kind of place (default 40)."""
    if not w.want_talks:
        s = w.server(*TIERS, model=w.slow)
        w.talks(s)
        s.stop()
    n = int(os.environ.get("WINDOWS_REQUESTS", "40"))
    for place, tier, _ in SHARED:
        args, stop = place(w)
        rng, lock, bad, left = random.Random(n), threading.Lock(), [], [n]
        servers = [w.server(*TIGHT, *a, model=w.slow) for a in args]

        def work(seed):
            mine = random.Random(seed)
            while not bad:
                with lock:
                    left[0] -= 1
                    if left[0] < 0:
                        return
                wrong = one_talk(w, servers, lock, mine)
                if wrong:
                    bad.append(wrong)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        last, n_loaded, n_hit, n_kill = n, 0, 0, 0
        while any(t.is_alive() for t in threads):
            time.sleep(0.05)
            if last - left[0] < max(n // 100, 15) or left[0] <= 0:
                continue
            last, i = left[0], rng.randrange(2)
            n_loaded += metric(servers[i], "spillway:kv_window_loaded_blocks_total")
            n_hit += metric(servers[i], "spillway:kv_tier_hit_blocks_total", 'tier="%s"' % tier)
            with lock:
                gone, servers[i] = servers[i], None
                servers[i] = servers[1 - i]  # the other one is asked meanwhile
            gone.proc.kill()
            gone.proc.wait()
            fresh = w.server(*TIGHT, *args[i], model=w.slow)
            with lock:
                servers[i] = fresh
            n_kill += 1
        for t in threads:
            t.join()
        assert not bad, (tier, bad[0])
        for s in servers:
            n_loaded += metric(s, "spillway:kv_window_loaded_blocks_total")
            n_hit += metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="%s"' % tier)
            assert metric(s, "spillway:kv_verify_failures_total") == 0 and not s.error_lines()
            s.stop()
        print("%d talks, %d kills, %d blocks of tier %s, %d blocks of windows loaded" % (n, n_kill, n_hit, tier, n_loaded), flush=True)
        stop()


@test
def a_router_is_told_of_the_blocks_of_the_first_pool(w):
    """On each tier, and of no piece of a window: those are in no path that it could know."""
    wire = Wire()
    args = [*TIERS, "--kv-nvme", tempfile.mkdtemp(dir=w.folder) + ":0.05", *wire.args]
    s = w.server(*args, model=w.slow)
    assert metric(s, "spillway:kv_window_blocks") > 0
    r = Router(wire)
    w.talks(s)
    r.caught_up(s)
    on_host = metric(s, "spillway:kv_tier_blocks", 'tier="host"')
    assert 20 < len(r.held["CPU"]) < on_host, (len(r.held["CPU"]), on_host)
    assert all(r.cached(w.talk(k)["prompt"], "CPU") >= 200 // BLOCK for k in range(24)), {k: len(v) for k, v in r.held.items()}
    assert not r.unknown_parent, r.unknown_parent
    s.stop()
    r.close()
    s = w.server(*args, model=w.slow)
    r = Router(wire)
    w.some(s, 1)
    r.caught_up(s)
    in_folder = metric(s, "spillway:kv_tier_blocks", 'tier="nvme"')
    assert 20 < len(r.held["STORAGE"]) < in_folder, (len(r.held["STORAGE"]), in_folder)
    assert not r.stray and not r.doubled and not r.unknown_parent, (r.stray, r.doubled, r.unknown_parent)
    r.close()


@test
def a_decode_server_pulls_windows_with_the_prompt(w):
    """Prompts of whole blocks, too: of those it computes the last token, a block before the end of what was kept."""
    at = ports(1)[0]
    p = w.server(*TIERS, "--role", "prefill", "--kv-peer-listen", "127.0.0.1:%d" % at, model=w.slow)
    d = w.server(*TIERS, "--role", "decode", "--kv-peer", "127.0.0.1:%d" % at, model=w.slow)
    plain = w.server("--no-enable-prefix-caching", model=w.slow)
    connected(d)
    for k in range(12):
        rng = random.Random(k)
        body = {"prompt": [rng.randrange(10, 300) for _ in range(192 + k % 4 * 16 + (k % 3 == 0) * 5)], "max_tokens": 30, "temperature": 0,
                "ignore_eos": True, "return_token_ids": True, "logprobs": 1}
        want = result(plain.post("/v1/completions", body).json)
        leg = {**body, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
        params = p.post("/v1/completions", leg).json["kv_transfer_params"]
        assert len(params["remote_block_ids"]) == len(body["prompt"]) // BLOCK, params
        r = d.post("/v1/completions", {**body, "kv_transfer_params": params})
        assert r.status == 200 and result(r.json) == want, k
    assert metric(d, "spillway:pd_pulls_total", 'result="pulled"') > 8, ends(d)
    assert metric(d, "spillway:kv_window_loaded_blocks_total") > 8, ends(d)
    assert metric(d, "spillway:kv_verify_failures_total") == 0
    assert not d.error_lines() and not p.error_lines()


def loaded(s, tier):
    """It has read another's blocks, and windows among them."""
    return metric(s, "spillway:kv_tier_hit_blocks_total", 'tier="%s"' % tier) > 0 and metric(s, "spillway:kv_window_loaded_blocks_total") > 0


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
