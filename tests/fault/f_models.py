"""Rows of layer F about which model KV is of: two checkpoints that look alike, on one folder and in one take-over."""

import json
import os
import shutil
import struct
import sys

from harness import Server, eventually, row

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from tiers import BASE, SMALL, ask, metric, result  # noqa: E402

from f_tiers import known, recovered, world  # noqa: E402

PEBBLE = os.path.join(ROOT, "models", "pebble")
PROMPTS = 12


def read_weights():
    """The header of Pebble's weights, and its bytes."""
    with open(os.path.join(PEBBLE, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        header.pop("__metadata__", None)
        return header, f.read()


def write_shard(path, header, data, names):
    table, parts, at = {}, [], 0
    for name in names:
        begin, end = header[name]["data_offsets"]
        table[name] = {**header[name], "data_offsets": [at, at + end - begin]}
        parts.append(data[begin:end])
        at += end - begin
    text = json.dumps(table).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def change(header, data):
    """A few rows of three tensors: what a merged adapter of small rank does to a checkpoint."""
    out = bytearray(data)
    for name, row_at in (("model.layers.0.self_attn.v_proj.weight", 3), ("model.layers.1.self_attn.k_proj.weight", 5),
                         ("model.layers.2.mlp.down_proj.weight", 7)):
        begin, _ = header[name]["data_offsets"]
        size = 2 * header[name]["shape"][1]
        for i in range(begin + row_at * size + 1, begin + (row_at + 1) * size, 2):
            out[i] ^= 0x80  # the sign of a bfloat16
    return bytes(out)


def checkpoint(folder, header, data, stale=None):
    """Pebble in two files that no tool names so, with the index that says what is where; stale: a model.safetensors beside them."""
    os.makedirs(folder)
    for name in os.listdir(PEBBLE):
        if name.endswith((".json", ".jinja")):
            shutil.copy(os.path.join(PEBBLE, name), folder)
    names = sorted(header)
    files = {"weights-a.safetensors": names[::2], "weights-b.safetensors": names[1::2]}
    for file, part in files.items():
        write_shard(os.path.join(folder, file), header, data, part)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"weight_map": {name: file for file, part in files.items() for name in part}}, f)
    if stale:
        write_shard(os.path.join(folder, "model.safetensors"), header, stale, names)


class Pair:
    """Two checkpoints that differ in three tensors and in nothing else, and what the second one answers."""

    def __init__(self, w):
        header, data = read_weights()
        self.a, self.b = os.path.join(w.folder, "model-a"), os.path.join(w.folder, "model-b")
        checkpoint(self.a, header, data, stale=data)
        checkpoint(self.b, header, change(header, data), stale=data)
        s = Server("--model", self.b, *BASE, "--enable-prefix-caching=false")
        try:
            self.want_b = [result(s.post("/v1/completions", w.body(k)).json) for k in range(PROMPTS)]
        finally:
            s.stop()
        assert any(self.want_b[k] != w.expect(k) for k in range(PROMPTS)), "the change changes no answer, so this shows nothing"

    def ask_b(self, w, s):
        """Every answer is the second model's own. Tokens that came from below the device."""
        below = 0
        for k in range(PROMPTS):
            r = s.post("/v1/completions", w.body(k)).json
            assert result(r) == self.want_b[k], "prompt %d has the answer of another model" % k
            tier = r["usage"]["prompt_tokens_details"].get("cached_tokens_by_tier", {})
            below += tier.get("host", 0) + tier.get("nvme", 0)
        return below


def serve_a(w, pair, *args):
    s = Server("--model", pair.a, *SMALL, *args)
    for _ in range(2):
        for k in range(PROMPTS):
            ask(w, s, k)
    return s


@row("F50", "a checkpoint that differs in three tensors, on the folder of the first: nothing is shared", own=True)
def f50(_):
    w = world()
    pair = Pair(w)
    serve_a(w, pair, *w.store()).stop()
    s = Server("--model", pair.a, *SMALL, *w.store())
    try:
        recovered(s)
        assert sum(ask(w, s, k)[2] for k in range(PROMPTS)) > 500, "the first model does not find its own blocks"
    finally:
        s.stop()
    s = Server("--model", pair.b, *SMALL, *w.store())
    try:
        known(s)
        for _ in range(2):
            got = pair.ask_b(w, s)
            assert _ or got == 0, "%d tokens of the first model's cache were taken" % got
        assert metric(s, "spillway:kv_verify_failures_total") == 0
    finally:
        s.stop()


@row("F51", "a checkpoint that differs in three tensors takes over from the first: nothing in host memory is shared", own=True)
def f51(_):
    w = world()
    pair = Pair(w)
    path = os.path.join(w.folder, "takeover")
    old = serve_a(w, pair, "--takeover", path)
    new = None
    try:
        assert metric(old, "spillway:kv_tier_blocks", 'tier="host"') > 50, old.tail()
        new = Server("--model", pair.b, *SMALL, "--takeover", path, wait=False, port=old.port)
        eventually(lambda: old.proc.poll() is not None, "the first one ends")
        new.wait_ready()
        got = pair.ask_b(w, new)
        assert got == 0, "%d tokens of the first model's cache were taken" % got
    finally:
        if new:
            new.stop()
        old.stop()
