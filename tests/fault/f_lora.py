"""Adapters: other contents under the same name, here, on a peer and before a takeover, files that are damaged, paths that lead out of the folder, and an adapter that goes while it is used."""

import json
import os
import random
import shutil
import struct
import sys
import tempfile
import threading

from harness import PATIENCE, Server, eventually, free_port, row

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
from tiers import metric  # noqa: E402

LAYERS, HIDDEN, KV, INTER = 5, 256, 128, 768  # of the embedded model
MATRICES = {"self_attn.v_proj": (KV, HIDDEN), "mlp.down_proj": (HIDDEN, INTER)}
PROMPT = "The quick brown fox jumps over the lazy dog. " * 12


def adapter(folder, seed, rank=4, alpha=8):
    """A PEFT folder for the embedded model, whose numbers follow from the seed."""
    draw = random.Random(seed)
    header, parts, at = {}, [], 0
    for layer in range(LAYERS):
        for module, (n, k) in MATRICES.items():
            for ab, rows, cols, size in (("A", rank, k, k ** -0.5), ("B", n, rank, 0.2)):
                name = "base_model.model.model.layers.%d.%s.lora_%s.weight" % (layer, module, ab)
                data = struct.pack("<%df" % (rows * cols), *(draw.gauss(0, size) for _ in range(rows * cols)))
                header[name] = {"dtype": "F32", "shape": [rows, cols], "data_offsets": [at, at + len(data)]}
                parts.append(data)
                at += len(data)
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))
    config(folder, r=rank, lora_alpha=alpha)
    return folder


def config(folder, **keys):
    with open(os.path.join(folder, "adapter_config.json"), "w") as f:
        json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": [m.split(".")[1] for m in MATRICES], **keys}, f)


class Folder:
    """A root of adapters, and servers that load from it; both go at the end."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="spillway-lora-")
        self.root = os.path.join(self.path, "root")
        os.mkdir(self.root)
        self.servers = []

    def serve(self, *args):
        s = Server("--enable-lora", "--lora-root", self.root, "--max-loras", "2", "--max-cpu-loras", "4", *args)
        self.servers.append(s)
        return s

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.servers:
            s.stop()
        shutil.rmtree(self.path, ignore_errors=True)


def load(s, name, path, **more):
    return s.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})


def unload(s, name):
    return s.post("/v1/unload_lora_adapter", {"lora_name": name})


def ask(s, model):
    """Text and logprobs of the answer, which tell what computed them, and how many tokens came from the cache."""
    r = s.post("/v1/completions", {"model": model, "prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 1})
    assert r.status == 200, r
    d = r.json
    assert d["model"] == model, d
    c = d["choices"][0]
    return (c["text"], c["logprobs"]["token_logprobs"]), d["usage"]["prompt_tokens_details"]["cached_tokens"]


def base_of(s):
    return s.get("/v1/models").json["data"][0]["id"]


@row("F60", "an adapter with other contents under the same name: no KV of the old one is met, on the device, the host and the disk", own=True)
def f60(_):
    with Folder() as f:
        one, two = adapter(os.path.join(f.root, "one"), 1), adapter(os.path.join(f.root, "two"), 2)
        store = ("--kv-host-gib", "0.05", "--kv-nvme", os.path.join(f.path, "kv") + ":1", "--block-size", "16")
        os.mkdir(os.path.join(f.path, "kv"))
        s = f.serve(*store)
        base = base_of(s)
        plain = ask(s, base)[0]
        assert load(s, "mine", "one").status == 200
        first = ask(s, "mine")
        assert first[1] == 0 and first[0] != plain, first
        assert ask(s, "mine")[1] > 0
        assert load(s, "mine", "two").status == 400  # the name is taken
        assert load(s, "mine", two, load_inplace=True).status == 200
        second = ask(s, "mine")
        assert second[1] == 0 and second[0] not in (first[0], plain), (first, second)
        assert unload(s, "mine").status == 200 and load(s, "other", one).status == 200
        again = ask(s, "other")
        assert again[0] == first[0] and again[1] > 0, again  # the same bytes under another name
        assert ask(s, base)[0] == plain
        s.stop()
        f.servers.remove(s)
        shutil.rmtree(one)
        adapter(one, 3)  # other contents in the same place
        s = f.serve(*store, "--lora-modules", "mine=" + one, "two=" + two)
        third, was = ask(s, "mine"), ask(s, "two")
        assert third[1] == 0 and third[0] not in (first[0], second[0], plain), third
        assert was[0] == second[0], was
        assert ask(s, base)[0] == plain
        assert s.metric("spillway:kv_verify_failures_total") == 0 and s.metric("spillway:kv_audit_mismatch_total") == 0
        assert 'lora_requests_info{max_lora="2",running_lora_adapters="",waiting_lora_adapters=""}' in s.get("/metrics").body.decode()


def served(models):
    """The option that serves adapters, as a dict has their folders by name."""
    return ["--enable-lora", "--lora-modules", *("%s=%s" % m for m in models.items())]


def only_their_own(s, want, fresh):
    """want: what each name answered before, and its blocks are there; fresh: what it must say, and nothing of it is there."""
    for name, (text, least) in {**want, **{k: (v, 0) for k, v in fresh.items()}}.items():
        got, cached = ask(s, name)
        assert got == text, "%s answers as another: %s" % (name, (got, text))
        assert cached >= least if least else cached == 0, (name, cached, least)
    assert s.metric("spillway:kv_verify_failures_total") == 0


def truth(one, two):
    """What the model and both adapters answer on a server that has no KV of anybody."""
    s = Server(*served({"one": one, "two": two}), "--enable-prefix-caching=false")
    try:
        return {name: ask(s, name)[0] for name in (base_of(s), "one", "two")}
    finally:
        s.stop()


@row("F61", "adapters on two peers, one name with other contents on each: a block of one adapter never serves another", own=True)
def f61(_):
    with Folder() as f:
        one, two = adapter(os.path.join(f.root, "one"), 1), adapter(os.path.join(f.root, "two"), 2)
        p, q = free_port(), free_port()
        tiers = ("--kv-cache-bytes", "8MiB", "--kv-host-gib", "0.05", "--block-size", "16")
        base, first, second = truth(one, two).items()

        def peer(own, other, models):
            s = Server(*tiers, *served(models), "--kv-peer-listen", "127.0.0.1:%d" % own, "--kv-peer", "127.0.0.1:%d" % other)
            f.servers.append(s)
            return s

        a, b = peer(p, q, {"mine": one}), peer(q, p, {"mine": two, "other": one})
        eventually(lambda: " is connected over " in b.tail(200), "b reaches a")
        for _ in range(3):  # what is asked for again goes to the host, where a peer finds it
            assert ask(a, "mine")[0] == first[1] and ask(a, base[0])[0] == base[1]
        least = ask(a, "mine")[1]
        eventually(lambda: metric(a, "spillway:kv_tier_blocks", 'tier="host"') >= 2 * (least // 16), "a's blocks go to its host")
        only_their_own(b, {}, {"mine": second[1]})
        assert metric(b, "spillway:kv_tier_hit_blocks_total", 'tier="peer"') == 0
        # What is the same on both may cross: the model's blocks, and those of equal bytes under another name.
        only_their_own(b, {base[0]: (base[1], 16), "other": (first[1], 16)}, {})
        assert metric(b, "spillway:kv_tier_hit_blocks_total", 'tier="peer"') > 0
        only_their_own(b, {"mine": (second[1], 16)}, {})


@row("F62", "a server takes over from one whose name for an adapter meant other contents: each adapter meets its own KV alone", own=True)
def f62(_):
    with Folder() as f:
        one, two = adapter(os.path.join(f.root, "one"), 1), adapter(os.path.join(f.root, "two"), 2)
        path = os.path.join(f.path, "takeover")
        tiers = ("--kv-cache-bytes", "8MiB", "--kv-host-gib", "0.05", "--block-size", "16", "--takeover", path)
        base, first, second = truth(one, two).items()
        old = Server(*tiers, *served({"mine": one}))
        f.servers.append(old)
        for _ in range(3):
            assert ask(old, "mine")[0] == first[1] and ask(old, base[0])[0] == base[1]
        least = ask(old, "mine")[1]
        eventually(lambda: metric(old, "spillway:kv_tier_blocks", 'tier="host"') >= 2 * (least // 16), "blocks go to the host")
        new = Server(*tiers, *served({"mine": two, "other": one}), wait=False, port=old.port)
        f.servers.append(new)
        eventually(lambda: old.proc.poll() is not None, "the first one ends")
        new.wait_ready()
        only_their_own(new, {}, {"mine": second[1]})
        only_their_own(new, {base[0]: (base[1], 16), "other": (first[1], 16)}, {})


@row("D19", "an adapter's file is truncated, of another shape, pickle, or has what is not served: a clear line, and the server goes on", own=True)
def d19(_):
    with Folder() as f:
        s = f.serve()
        base = base_of(s)
        plain = ask(s, base)[0]
        whole = adapter(os.path.join(f.root, "whole"), 1)
        data = open(os.path.join(whole, "adapter_model.safetensors"), "rb").read()

        def refused(name, says, status=400):
            r = load(s, "x", name)
            assert r.status == status and says in r.error["message"], (name, r)
            assert ask(s, base)[0] == plain

        for cut in (0, 5, 8, 100, len(data) // 2, len(data) - 1):
            folder = adapter(os.path.join(f.root, "cut%d" % cut), 1)
            with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as out:
                out.write(data[:cut])
            refused("cut%d" % cut, "adapter_model.safetensors")
        adapter(os.path.join(f.root, "wide"), 1, rank=17)
        refused("wide", "--max-lora-rank is 16")
        folder = adapter(os.path.join(f.root, "dora"), 1)
        config(folder, use_dora=True)
        refused("dora", "use_dora")
        config(folder, modules_to_save=["lm_head"])
        refused("dora", "modules_to_save")
        os.unlink(os.path.join(folder, "adapter_model.safetensors"))
        open(os.path.join(folder, "adapter_model.bin"), "wb").close()
        refused("dora", "pickle")
        folder = adapter(os.path.join(f.root, "nan"), 1)
        with open(os.path.join(folder, "adapter_model.safetensors"), "r+b") as out:
            out.seek(-4, 2)
            out.write(struct.pack("<f", float("nan")))
        refused("nan", "not finite")
        folder = os.path.join(f.root, "fifo")
        os.mkdir(folder)
        config(folder)
        os.mkfifo(os.path.join(folder, "adapter_model.safetensors"))
        refused("fifo", "adapter_model.safetensors")
        for body in ({}, {"lora_name": "a b", "lora_path": "whole"}, {"lora_name": "a", "lora_path": 7}, {"lora_name": "a", "lora_path": ""},
                     {"lora_name": "a", "lora_path": "whole", "load_inplace": 1}, {"lora_name": base, "lora_path": "whole"}):
            assert s.post("/v1/load_lora_adapter", body).status == 400, body
        assert unload(s, "nobody").status == 404
        assert len(s.get("/v1/models").json["data"]) == 1
        assert load(s, "x", "whole").status == 200
        cards = s.get("/v1/models").json["data"]
        assert [c["id"] for c in cards] == [base, "x"] and cards[1]["parent"] == base and cards[1]["root"] == whole, cards
        assert s.get("/v1/models/x").json["parent"] == base
        assert ask(s, "x")[0] != plain
        assert s.post("/v1/completions", {"model": "y", "prompt": "a"}).status == 404


@row("J27", "an adapter's path that leads out of its root: '..', an absolute one, a link to a folder, a link to a file; without the option there is no route", own=True)
def j27(_):
    with Folder() as f:
        outside = adapter(os.path.join(f.path, "outside"), 1)
        adapter(os.path.join(f.path, "root-not"), 1)  # its name begins as the root's
        os.symlink(outside, os.path.join(f.root, "link"))
        inner = adapter(os.path.join(f.root, "inner"), 1)
        os.unlink(os.path.join(inner, "adapter_model.safetensors"))
        os.symlink(os.path.join(outside, "adapter_model.safetensors"), os.path.join(inner, "adapter_model.safetensors"))
        s = f.serve()
        for path in ("../outside", outside, "link", "inner", "../root-not", f.path + "/root-not", "/etc", "..", "/proc/self/cwd", "inner/../../outside"):
            r = load(s, "x", path)
            assert r.status == 404 and r.error["code"] == "adapter_not_found", (path, r)
        assert len(s.get("/v1/models").json["data"]) == 1
        os.symlink(adapter(os.path.join(f.root, "real"), 1), os.path.join(f.root, "alias"))
        assert load(s, "x", "alias").status == 200  # a link that stays inside
        bare = Server("--enable-lora")
        f.servers.append(bare)
        assert load(bare, "x", f.root).status == 404 and unload(bare, "x").status == 404


@row("E22", "an adapter is unloaded while streams run with it, and adapters come and go under load: each stream ends as it would alone", own=True)
def e22(_):
    with Folder() as f:
        names = ["a%d" % i for i in range(4)]
        for i, name in enumerate(names):
            adapter(os.path.join(f.root, name), 10 + i, rank=4 + 4 * i)
        s = f.serve("--enable-prefix-caching=false")
        base = base_of(s)
        body = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "logprobs": 0}

        def told(choices):
            return "".join(c["text"] for c in choices), [p for c in choices for p in (c["logprobs"] or {}).get("token_logprobs", [])]

        want = {base: told(s.post("/v1/completions", {**body, "model": base}).json["choices"])}
        for name in names:
            assert load(s, name, name).status == 200
            want[name] = told(s.post("/v1/completions", {**body, "model": name}).json["choices"])
        assert len({repr(x) for x in want.values()}) == 5
        wrong = []

        def stream(model):
            r = s.post("/v1/completions", {**body, "model": model, "stream": True})
            if r.status == 404:
                return  # it came while the adapter was away
            lines = [x[6:] for x in r.body.decode().split("\n\n") if x.startswith("data: ")]
            text = told([c for x in lines[:-1] for c in json.loads(x)["choices"]])
            if r.status != 200 or lines[-1] != "[DONE]" or text != want[model]:
                wrong.append((model, r.status, text))

        for _ in range(3):
            threads = [threading.Thread(target=stream, args=(m,)) for m in [*names, base] * 4]
            for t in threads:
                t.start()
            for name in names:
                assert unload(s, name).status == 200
                assert name not in [c["id"] for c in s.get("/v1/models").json["data"]]
                r = load(s, name, name)
                assert r.status in (200, 429), r
                while r.status == 429:  # too many that were unloaded are still in use
                    r = load(s, name, name)
            for t in threads:
                t.join(PATIENCE)
        assert not wrong, wrong
        page = s.get("/metrics").body.decode()
        assert 'running_lora_adapters="",waiting_lora_adapters=""' in page, page[:600]
