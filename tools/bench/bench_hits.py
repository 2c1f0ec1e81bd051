#!/usr/bin/env python3
"""bench_hits: what the KV tiers cost a server that never hits, and what a hit on each of them is worth.

    bench_hits.py ttft [--spillway BIN] [--model DIR] [--tokens 512] [--hits 200] [--dir DIR] [--json FILE]
        time to the first token of a prompt that is computed, found on the device, on the host (and copied, or read in place), in a folder
        on disk; they take turns
    bench_hits.py loss [--spillway BIN] [--rounds 20] [--requests 32] [--concurrency 4] [--dir DIR]
        requests/s and the server's CPU time with tiers, against the same server without; prompts are never the same; the two take turns

--model DIR is served with --load-format dummy; without it the embedded model is. Prompts are token ids, one token is asked for, and
the answer's cached_tokens_by_tier says what it was: what was asked for from a tier and did not come from it is counted apart."""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))


class Server:
    def __init__(self, o, *args):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        model = ["--model", o.model, "--load-format", "dummy"] if o.model else []
        self.log = tempfile.TemporaryFile()
        self.p = subprocess.Popen([o.spillway, *model, "--device", "cpu", "--port", str(self.port), *args], stdout=self.log, stderr=self.log)
        self.local = threading.local()
        for _ in range(1200):
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/ready")
                if c.getresponse().status == 200:
                    return
            except OSError:
                pass
            if self.p.poll() is not None:
                break
            time.sleep(0.1)
        self.log.seek(0)
        sys.exit("the server does not start: " + self.log.read().decode()[-600:])

    def ask(self, ids, n=1):
        """Seconds until the answer, and where its prompt's tokens came from."""
        if not getattr(self.local, "c", None):
            self.local.c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
            self.local.c.connect()
            self.local.c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"prompt": ids, "max_tokens": n, "temperature": 0, "ignore_eos": True})
        begin = time.perf_counter()
        self.local.c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        r = self.local.c.getresponse()
        text = r.read()
        took = time.perf_counter() - begin
        assert r.status == 200, text
        d = json.loads(text)["usage"]["prompt_tokens_details"]
        return took, d.get("cached_tokens", 0), d.get("cached_tokens_by_tier", {})

    def cpu_s(self):
        total = 0
        for task in os.listdir("/proc/%d/task" % self.p.pid):
            with open("/proc/%d/task/%s/schedstat" % (self.p.pid, task)) as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        self.p.wait(60)


def block_bytes(model):
    """Of 16 tokens, all layers, keys and values, two bytes each; the embedded model: 36 KiB."""
    if not model:
        return 36864
    with open(os.path.join(model, "config.json")) as f:
        c = json.load(f)
    dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    return c["num_hidden_layers"] * 2 * c["num_key_value_heads"] * dim * 16 * 2


def percentile(v, p):
    return sorted(v)[min(len(v) - 1, int(p * len(v)))]


def prompt(rng, n):
    return [rng.randrange(300, 2900) for _ in range(n)]


def ttft(o):
    rng = random.Random(o.seed)
    blocks, bb = o.tokens // 16, block_bytes(o.model)
    # A device of four prompts, a host of 24 or of 12, a folder of 96.
    small = ["--max-model-len", str(2 * o.tokens), "--max-num-seqs", "4", "--kv-cache-bytes", str(bb * blocks * 4)]
    stride = bb + 4096
    gib = lambda prompts: str(prompts * blocks * stride / 2**30)
    names = ["host", "in place"] + (["disk"] if o.disk else [])
    servers = {
        "host": Server(o, *small, "--kv-host-gib", gib(24)),
        "in place": Server(o, *small, "--kv-host-gib", gib(24), "--kv-host-in-place", "on"),
    }
    if o.computed:
        servers["computed"] = Server(o, *small, "--enable-prefix-caching=false")
    if o.disk:
        servers["disk"] = Server(o, *small, "--kv-host-gib", gib(12), "--kv-nvme", "%s/kv:%s" % (o.folder, gib(96)))
    try:
        sets = {name: [prompt(rng, o.tokens + 1) for _ in range(36 if name == "disk" else o.prompts)] for name in names}
        for name, ps in sets.items():
            for _ in range(3):
                for ids in ps:
                    servers[name].ask(ids)
        took = {"computed": [], "device": [], "host": [], "in place": [], "disk": []}
        other = {"device": 0, "host": 0, "in place": 0, "disk": 0}
        all_disk, host_pair, device_pair = [], [], []
        i = 0
        while min(len(took[name]) for name in names) < o.hits and i < 3 * o.hits:
            if o.computed:
                took["computed"].append(servers["computed"].ask(prompt(rng, o.tokens + 1))[0])
            for name in names:
                ids = sets[name][i % len(sets[name])]
                s, cached, tier = servers[name].ask(ids)
                if name == "disk":
                    all_disk.append(s)
                if cached == o.tokens and (tier.get("nvme", 0) >= o.tokens - 64 if name == "disk" else tier.get("host", 0) == o.tokens):
                    took[name].append(s)
                else:
                    other[name] += 1
                if name == "host":
                    first = s
                    s, cached, tier = servers[name].ask(ids)
                    if cached == o.tokens and not tier.get("host", 0):
                        took["device"].append(s)
                        host_pair.append(first)
                        device_pair.append(s)
                    else:
                        other["device"] += 1
            i += 1
        print("%d tokens, %.1f MiB of KV, load %.1f" % (o.tokens, blocks * bb / 2**20, os.getloadavg()[0]))
        print("%-10s %6s %9s %9s %9s %7s" % ("prefix", "n", "p50 ms", "p90 ms", "p99 ms", "other"))
        out = {}
        for name, v in took.items():
            if not v:
                continue
            out[name] = {"n": len(v), **{"p%d_ms" % p: 1e3 * percentile(v, p / 100) for p in (50, 90, 99)}, "other": other.get(name, 0)}
            print("%-10s %6d %9.2f %9.2f %9.2f %7d" % (name, len(v), *(out[name]["p%d_ms" % p] for p in (50, 90, 99)), other.get(name, 0)))
        pairs = [h - d for h, d in zip(host_pair, device_pair)]
        if pairs:
            out["host_over_device_ms"] = 1e3 * statistics.median(pairs)
            print("host over device, pair by pair: %.2f ms (median)" % out["host_over_device_ms"])
        if all_disk:
            print("disk, whatever was decided: p99 %.2f ms over %d" % (1e3 * percentile(all_disk, 0.99), len(all_disk)))
        if o.json:
            with open(o.json, "w") as f:
                json.dump(out, f, indent=1)
    finally:
        for s in servers.values():
            s.stop()


def batch(s, prompts, n_out, concurrency):
    """Wall and CPU seconds of all of them."""
    todo = list(prompts)
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                if not todo:
                    return
                ids = todo.pop()
            s.ask(ids, n_out)

    cpu, begin = s.cpu_s(), time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - begin, s.cpu_s() - cpu


def loss(o):
    rng = random.Random(o.seed)
    base = ["--kv-cache-bytes", "64MiB"]
    tiers = ["--kv-host-gib", "0.25", "--kv-nvme", "%s/kv:1" % o.folder]
    servers = [Server(o, *base), Server(o, *base, *tiers)]
    try:
        wall, cpu = [], []
        for r in range(-16, o.rounds):  # the first fill device and host
            got = {}
            for k in (0, 1) if r % 2 else (1, 0):
                got[k] = batch(servers[k], [prompt(rng, 256) for _ in range(o.requests)], 64, o.concurrency)
            if r >= 0:
                wall.append(got[1][0] / got[0][0])
                cpu.append(got[1][1] / got[0][1])
        q = lambda v: (100 * (statistics.median(v) - 1), 100 * (percentile(v, 0.25) - 1), 100 * (percentile(v, 0.75) - 1))
        print("%d rounds of %d requests, 256 + 64 tokens, %d at a time, load %.1f" % (o.rounds, o.requests, o.concurrency, os.getloadavg()[0]))
        print("time with tiers:     %+.1f %% (quartiles %+.1f .. %+.1f)" % q(wall))
        print("CPU time with tiers: %+.1f %% (quartiles %+.1f .. %+.1f)" % q(cpu))
    finally:
        for s in servers:
            s.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["ttft", "loss"])
    p.add_argument("--spillway", default=os.path.join(HERE, "..", "..", "build", "release", "spillway"))
    p.add_argument("--model", default="")
    p.add_argument("--tokens", type=int, default=512)
    p.add_argument("--prompts", type=int, default=12, help="that take turns on the host: more than 4")
    p.add_argument("--no-computed", dest="computed", action="store_false")
    p.add_argument("--no-disk", dest="disk", action="store_false")
    p.add_argument("--hits", type=int, default=200)
    p.add_argument("--rounds", type=int, default=60)
    p.add_argument("--requests", type=int, default=8)
    p.add_argument("--concurrency", type=int, default=4)
    p.add_argument("--dir", default=".")
    p.add_argument("--json", default="")
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    o.folder = tempfile.mkdtemp(prefix="bench-hits-", dir=o.dir)
    try:
        ttft(o) if o.what == "ttft" else loss(o)
    finally:
        shutil.rmtree(o.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
