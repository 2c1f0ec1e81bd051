#!/usr/bin/env python3
"""bench_peers: time to the first token of a prompt that a peer has, beside computing one of the same length, by turns.

    bench_peers.py [--spillway BIN] [--model DIR] [--tokens 1900] [--pairs 5] [--transport tcp|shm]

Two servers on loopback. A prompt is computed by the first, which copies it to its host; the second, which has never seen it, is asked
for one token of it, and for one of a prompt that nobody has. --model DIR is served with --load-format dummy (its config.json is enough).
A prompt that did not come from the peer is counted apart."""

import argparse
import os
import random
import socket
import statistics
import time

from bench_hits import HERE, Server, block_bytes, prompt


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--spillway", default=os.path.join(HERE, "..", "..", "build", "check", "spillway"))
    ap.add_argument("--model", default="")
    ap.add_argument("--tokens", type=int, default=1900)
    ap.add_argument("--pairs", type=int, default=5)
    ap.add_argument("--transport", default="tcp")
    o = ap.parse_args()
    rng = random.Random(7)
    port, blocks = free_port(), o.tokens // 16 + 2
    gib = "%.4f" % ((2 * o.pairs + 4) * blocks * (block_bytes(o.model) + 8192) / 2**30)
    args = ["--max-model-len", str(o.tokens + 64), "--max-num-seqs", "2", "--kv-cache-bytes", str(block_bytes(o.model) * blocks * 3),
            "--kv-host-gib", gib, "--kv-peer-transport", o.transport]
    a = Server(o, *args, "--kv-peer-listen", "127.0.0.1:%d" % port)
    b = Server(o, *args, "--kv-peer", "127.0.0.1:%d" % port)
    time.sleep(1.5)
    pulled, computed, ratio, missed = [], [], [], 0
    for _ in range(o.pairs + 1):  # the first is of no account: nothing is known of any speed yet
        known, new = prompt(rng, o.tokens), prompt(rng, o.tokens)
        a.ask(known)
        time.sleep(1)
        p, n_cached, tiers = b.ask(known)
        c, none, _ = b.ask(new)
        assert none < 64, none
        if n_cached < o.tokens - 64:
            missed += 1
            continue
        pulled.append(p)
        computed.append(c)
        ratio.append(p / c)
    a.stop(), b.stop()
    pulled, computed, ratio = pulled[1:], computed[1:], ratio[1:]
    if not ratio:
        raise SystemExit("nothing came from the peer")
    print("%s, %d tokens, %d pairs: pulled %.0f ms, computed %.0f ms, ratio %.3f (%.3f .. %.3f); %d did not come from the peer"
          % (o.transport, o.tokens, len(ratio), 1e3 * statistics.median(pulled), 1e3 * statistics.median(computed), statistics.median(ratio),
             min(ratio), max(ratio), missed))


if __name__ == "__main__":
    main()
