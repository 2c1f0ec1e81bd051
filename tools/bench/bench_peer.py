#!/usr/bin/env python3
"""bench_peer: Spillway and llama.cpp alternately on the same weights and the same work; prints the ratios. Run by bench_peer.sh.

Rows are named as in --rows; each is run --rounds times, ours and the peer's by turns, each round gives one ratio, and the median ratio
and its quartiles are printed, with both medians. The ratio per second of CPU time is printed too: on a shared machine it counts what the
two took, not what their neighbours left them. With --threads 1 that is sound; more threads wait for each other at barriers, spinning.

  prefill:N        one prompt of N tokens, tok/s          bench_engine | llama-bench -p N -n 0
  decode:B         B sequences at once, tok/s of all      bench_engine | llama-batched-bench -npp .. -ntg .. -npl B
  chat1            chat, max_tokens 1, 64 keep-alive clients, requests/s
  streams16        16 clients, 256 tokens in, 64 out, output tok/s, TTFT, ITL
  sse1000          1,000 streams begun at once, --sse-tokens each: how many receive at one time, and when all have begun
"""
import argparse
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")
N_CPU = os.cpu_count()


def busy_seconds():
    with open("/proc/stat") as f:
        v = [int(x) for x in f.readline().split()[1:9]]
    return (v[0] + v[1] + v[2] + v[5] + v[6] + v[7]) / TICK


def child_seconds():
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def process_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        v = f.read().rsplit(")", 1)[1].split()
    return (int(v[11]) + int(v[12])) / TICK


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmHWM:\s+(\d+)", f.read())[1]) / 1e3


def run(args):
    """Standard output and CPU seconds."""
    cpu = child_seconds()
    r = subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if r.returncode not in (0, 1) or not (r.stdout.strip() or r.returncode == 0):
        sys.exit(f"bench_peer: {' '.join(args)}\nended with {r.returncode}: {r.stderr[-800:]}")
    return r.stdout, child_seconds() - cpu


class Watch:
    """What others took of the machine between enter and exit, as a share of all its CPUs."""

    def __enter__(self):
        self.t, self.busy, self.own = time.time(), busy_seconds(), child_seconds()
        return self

    def __exit__(self, *_):
        wall = max(time.time() - self.t, 1e-3)
        self.cpu = child_seconds() - self.own
        self.others = max(0.0, busy_seconds() - self.busy - self.cpu) / wall / N_CPU


class Server:
    def __init__(self, args, path):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        begin = time.time()
        self.p = subprocess.Popen([*args, "--port", str(self.port)], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        while time.time() < begin + 600:
            if self.p.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as s:
                    s.settimeout(5)
                    s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                    if s.recv(64).split()[1:2] == [b"200"]:
                        self.start_s = time.time() - begin
                        return
            except OSError:
                pass
            time.sleep(0.02)
        self.log.seek(0)
        self.p.kill()
        sys.exit(f"bench_peer: {args[0]} does not start: {self.log.read().decode(errors='replace')[-800:]}")

    def stop(self):
        self.p.send_signal(signal.SIGTERM)
        try:
            self.p.wait(60)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


class Bench:
    def __init__(self, o):
        self.o = o
        self.seed = 0

    # ------------------------------------------------------------------ the engine alone
    # CPU time of what is measured: ours says it; the peer's is what a longer run of the same takes more than a short one.
    def ours_engine(self, tokens, *args):
        out, _ = run([f"{self.o.ours}/tools/bench_engine", "--model", self.o.model, "--load-format", "auto", "--device", "cpu", "--threads",
                      str(self.o.threads), *self.o.ours_engine, "--json", "-", *args])
        row = json.loads(out)["rows"][0]
        return {"tok_s": row["tok_s"], "tok_cpu_s": tokens / row["cpu_ms"] * 1e3}

    def prefill(self, side, n):
        if side == "ours":
            return self.ours_engine(int(n), "--prefill", n, "--batch", "", "--runs", str(self.o.runs), "--batch-tokens", "512")

        def bench(runs):
            out, cpu = run([f"{self.o.peer}/llama-bench", "-m", self.o.gguf, "-t", str(self.o.threads), "-p", n, "-n", "0", "-r", str(runs),
                            "-o", "json"])
            return statistics.median(json.loads(out)[0]["samples_ts"]), cpu

        (_, short), (tok_s, long) = bench(1), bench(1 + self.o.runs)
        return {"tok_s": tok_s, "tok_cpu_s": int(n) * self.o.runs / max(long - short, 1e-2)}

    def decode(self, side, n):
        if side == "ours":
            return self.ours_engine(int(n), "--prefill", "", "--batch", n, "--ctx", str(self.o.context + self.o.steps // 2), "--steps",
                                    str(self.o.steps))

        def bench(steps):
            for _ in range(5):  # it ends without waiting for the thread that prints, so now and then nothing is printed
                out, cpu = run([f"{self.o.peer}/llama-batched-bench", "-m", self.o.gguf, "-t", str(self.o.threads), "-tb", str(self.o.threads),
                                "-npp", str(self.o.context), "-ntg", str(steps), "-npl", n, "-c",
                                str((self.o.context + self.o.steps + 16) * int(n)), "--output-format", "jsonl", "--log-verbosity", "4"])
                rows = [json.loads(x) for x in out.splitlines() if x.startswith("{")]
                if rows:
                    return rows[-1]["speed_tg"], cpu
            sys.exit("bench_peer: llama-batched-bench prints nothing")

        few = max(1, self.o.steps // 16)
        (_, short), (tok_s, long) = bench(few), bench(self.o.steps)
        return {"tok_s": tok_s, "tok_cpu_s": int(n) * (self.o.steps - few) / max(long - short, 1e-2)}

    # ------------------------------------------------------------------ servers
    def server(self, side, *more):
        if side == "ours":
            return Server([f"{self.o.ours}/spillway", "--model", self.o.model, "--threads", str(self.o.threads), "--log-level", "warn",
                           *self.o.ours_server, *more], "/ready")
        slots = self.o.slots
        return Server([f"{self.o.peer}/llama-server", "-m", self.o.gguf, "-t", str(self.o.threads), "-np", str(slots), "-c",
                       str(512 * slots), "--host", "127.0.0.1", "--cache-ram", "0", "--offline", *self.o.peer_server], "/health")

    def load(self, side, work, *server_args):
        s = self.server(side, *server_args)
        self.seed += 1
        begin = process_seconds(s.p.pid)
        out, _ = run([f"{self.o.ours}/tools/bench_serve", "--url", f"http://127.0.0.1:{s.port}", "--extra", '"cache_prompt":false', "--seed",
                   str(self.seed), *work])
        r = json.loads(out.strip().splitlines()[-1])
        cpu, rss = process_seconds(s.p.pid) - begin, rss_mb(s.p.pid)
        s.stop()
        if r["errors"] or r["refused"]:
            print(f"  {side}: {out.splitlines()[0]}; {out.splitlines()[1]}", file=sys.stderr)
        return {"req_s": r["requests_per_s"], "tok_s": r["output_tokens_per_s"], "ttft_p50": r["ttft_ms"]["p50"], "ttft_p99": r["ttft_ms"]["p99"],
                "ttft_max": r["ttft_ms"]["max"], "itl_p50": r["itl_ms"]["p50"], "itl_p99": r["itl_ms"]["p99"], "receiving": r["receiving_max"],
                "receiving_s": r["receiving_max_s"], "req_cpu_s": r["ok"] / max(cpu, 1e-2), "tok_cpu_s": r["output_tokens"] / max(cpu, 1e-2),
                "rss_mb": rss, "start_s": s.start_s, "prompt": r["prompt_tokens"] / max(r["ok"], 1), "errors": r["errors"] + r["refused"]}

    def chat1(self, side, _):
        return self.load(side, ["--chat", "--concurrency", "64", "--requests", str(self.o.requests), "--prompt-tokens", "26", "--output-tokens",
                                "1", "--warmup", "64"])

    def streams16(self, side, _):
        return self.load(side, ["--chat", "--concurrency", "16", "--requests", str(self.o.streams), "--prompt-tokens", "256",
                                "--output-tokens", "64"])

    def sse1000(self, side, _):
        ours = ["--max-num-seqs", "1000", "--max-num-batched-tokens", "4096"] if not self.o.defaults else []
        return self.load(side, ["--chat", "--concurrency", "1000", "--requests", "1000", "--prompt-tokens", "16", "--output-tokens",
                                str(self.o.sse_tokens)],
                         *(ours if side == "ours" else []))

    ENGINE = [("tok_s", "tok/s", 1), ("tok_cpu_s", "tokens per CPU second", 1)]
    METRIC = {"prefill": ENGINE, "decode": ENGINE,
              "chat1": [("req_s", "requests/s", 1), ("req_cpu_s", "requests per CPU second", 1), ("ttft_p50", "ms p50", -1), ("ttft_p99", "ms p99", -1)],
              "streams16": [("tok_s", "output tok/s", 1), ("tok_cpu_s", "output tokens per CPU second", 1), ("ttft_p50", "TTFT ms p50", -1),
                            ("ttft_p99", "TTFT ms p99", -1), ("itl_p50", "ITL ms p50", -1), ("itl_p99", "ITL ms p99", -1), ("rss_mb", "MB resident", -1)],
              "sse1000": [("receiving", "receive at one time", 1), ("ttft_max", "ms until all have begun", -1), ("tok_s", "output tok/s", 1),
                          ("tok_cpu_s", "output tokens per CPU second", 1), ("rss_mb", "MB resident", -1)]}

    def row(self, text):
        name, _, arg = text.partition(":")
        rounds = []
        for i in range(self.o.rounds):
            pair = {"load": os.getloadavg()[0]}
            for side in ("ours", "peer") if i % 2 == 0 else ("peer", "ours"):
                with Watch() as w:
                    pair[side] = getattr(self, name)(side, arg)
                pair[side]["others"] = w.others
            rounds.append(pair)
        others = statistics.median(p[s]["others"] for p in rounds for s in ("ours", "peer"))
        print(f"{text}: {len(rounds)} rounds, load {min(p['load'] for p in rounds):.1f}-{max(p['load'] for p in rounds):.1f}, "
              f"others took {100 * others:.0f} % of the machine")
        result = {"row": text, "rounds": rounds, "ratio": {}}
        for key, unit, sign in self.METRIC[name]:
            ours, peer = ([p[s][key] for p in rounds] for s in ("ours", "peer"))
            ratio = sorted((a / b) ** sign if a and b else 0.0 for a, b in zip(ours, peer))
            q = statistics.quantiles(ratio, n=4, method="inclusive") if len(ratio) > 1 else [ratio[0]] * 3
            print(f"  {unit:28} ours {statistics.median(ours):10.4g}   peer {statistics.median(peer):10.4g}   "
                  f"ours is {statistics.median(ratio):7.2f} times as good ({q[0]:.2f} .. {q[2]:.2f})")
            result["ratio"][key] = {"median": statistics.median(ratio), "q1": q[0], "q3": q[2], "ours": statistics.median(ours),
                                    "peer": statistics.median(peer), "unit": unit}
        sys.stdout.flush()
        return result


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ours", default="build/release", help="build folder with spillway, tools/bench_engine and tools/bench_serve")
    p.add_argument("--peer", required=True, help="folder with llama-server, llama-bench and llama-batched-bench")
    p.add_argument("--model", required=True, help="safetensors folder")
    p.add_argument("--gguf", help="the same weights for the peer (MODEL/model.gguf)")
    p.add_argument("--rows", default="prefill:512,prefill:2048,decode:1,decode:8,decode:32,chat1,streams16,sse1000")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--runs", type=int, default=3, help="prefills per process")
    p.add_argument("--context", type=int, default=64, help="tokens ahead of the decode that is measured")
    p.add_argument("--steps", type=int, default=32, help="decode steps")
    p.add_argument("--requests", type=int, default=2000, help="of chat1")
    p.add_argument("--streams", type=int, default=64, help="requests of streams16")
    p.add_argument("--sse-tokens", type=int, default=64, help="output tokens of each stream of sse1000")
    p.add_argument("--slots", type=int, default=16, help="-np of llama-server")
    p.add_argument("--defaults", action="store_true", help="sse1000 without --max-num-seqs 1000")
    p.add_argument("--ours-server", default="", help="more options of spillway")
    p.add_argument("--ours-engine", default="", help="more options of bench_engine")
    p.add_argument("--peer-server", default="", help="more options of llama-server")
    p.add_argument("--json", help="file for all that was measured; rows of an earlier run with the same name are replaced")
    p.add_argument("--label", default="", help="name of this series in the file, such as '1B bf16'")
    o = p.parse_args()
    for key in ("ours_server", "ours_engine", "peer_server"):
        setattr(o, key, getattr(o, key).split())
    o.gguf = o.gguf or os.path.join(o.model, "model.gguf")
    bench, known = Bench(o), {}
    if o.json and os.path.exists(o.json):
        with open(o.json) as f:
            known = json.load(f)
    series = known.setdefault(o.label or os.path.basename(o.gguf), {})
    for text in o.rows.split(","):
        if text.partition(":")[0] not in bench.METRIC:
            sys.exit(f"bench_peer: --rows: found '{text}', allowed are {', '.join(bench.METRIC)}")
        series[text] = bench.row(text)
        if o.json:
            with open(o.json, "w") as f:
                json.dump(known, f, indent=1)


if __name__ == "__main__":
    main()
