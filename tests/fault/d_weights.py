"""Layer D of the fault table: weights and configuration, by starting the server on damaged copies of a tiny model."""

import http.client
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time

from harness import BINARY, PATIENCE, ROOT, Server, free_port, row, shown

GOLDEN = os.path.join(ROOT, "tests", "data", "golden")


def base_model(want_index=False):
    """A committed tiny checkpoint (single file, or indexed shards), with pebble's tokenizer files."""
    for name in sorted(os.listdir(GOLDEN)):
        d = os.path.join(GOLDEN, name)
        if not os.path.exists(os.path.join(d, "config.json")) or os.path.exists(os.path.join(d, "model.safetensors.index.json")) != want_index:
            continue
        with open(os.path.join(d, "config.json"), encoding="utf-8") as f:
            if json.load(f)["architectures"][0].endswith("ForCausalLM"):  # it generates
                return d
    raise AssertionError("no golden checkpoint (indexed: %s)" % want_index)


def byte_tokenizer():
    """One id a byte: the smallest byte-level tokenizer, fit for every tiny vocabulary."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [b for b in range(256) if b not in plain]
    char = {b: chr(b) for b in plain} | {b: chr(0x100 + i) for i, b in enumerate(shifted)}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": {char[b]: b for b in range(256)}, "merges": []}}


class Model:
    """A scratch copy that a row damages."""

    def __init__(self, want_index=False, name=None):
        self.dir = tempfile.mkdtemp(prefix="spillway-model-")
        src = os.path.join(GOLDEN, name) if name else base_model(want_index)
        for f in os.listdir(src):
            shutil.copyfile(os.path.join(src, f), os.path.join(self.dir, f))
        with open(os.path.join(self.dir, "tokenizer.json"), "w") as f:
            json.dump(byte_tokenizer(), f)
        self.shards = sorted(f for f in os.listdir(self.dir) if f.endswith(".safetensors"))
        self.file = os.path.join(self.dir, self.shards[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.chmod(self.dir, 0o700)
        shutil.rmtree(self.dir, ignore_errors=True)

    def header(self, path=None):
        with open(path or self.file, "rb") as f:
            n = struct.unpack("<Q", f.read(8))[0]
            return json.loads(f.read(n)), f.read()

    def write(self, header, data, raw=None, path=None):
        h = raw if raw is not None else json.dumps(header).encode()
        with open(path or self.file, "wb") as f:
            f.write(struct.pack("<Q", len(h)) + h + data)

    def config(self, **changes):
        p = os.path.join(self.dir, "config.json")
        with open(p) as f:
            c = json.load(f)
        for k, v in changes.items():
            c[k] = v
            if v is DELETE:
                del c[k]
        with open(p, "w") as f:
            json.dump(c, f)


DELETE = object()


def limit():
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


def start(model, preexec=None):
    """Starts until it ends by itself or serves, which is its end too: exit status (0: it served) and what it said."""
    path = model if isinstance(model, str) else model.dir
    limited = preexec or (None if os.environ.get("SANITIZED_BUILD") else limit)
    s = Server("--model", path, "--kv-cache-gib", "0.02", wait=False, preexec=limited)
    try:
        served = False
        end = time.monotonic() + PATIENCE
        while s.proc.poll() is None and not served:
            assert time.monotonic() < end, "it neither ends nor serves: " + s.tail()
            try:
                served = s.get("/ready").status == 200
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.01)
        if served:
            s.proc.send_signal(signal.SIGTERM)
        code = s.proc.wait(PATIENCE)
        with open(s.log_path, "rb") as f:
            out = f.read().decode("utf-8", "replace")
        return code, "it serves the damaged model\n" + out if served else out
    finally:
        s.stop()


def refuses(model, *words, code=(78,), **kw):
    rc, out = start(model, **kw)
    codes = (code,) if isinstance(code, int) else code
    assert rc in codes, "exit %d, want %s: %s" % (rc, codes, shown(out))
    errors = [x for x in out.split("\n") if x.startswith("spillway: ") or " error " in x[:48]]
    assert len(errors) == 1, "%d error lines: %s" % (len(errors), shown(out))
    for w in words:
        assert any(x in errors[0] for x in ([w] if isinstance(w, str) else w)), "%r not in %r" % (w, errors[0])
    return errors[0]


def loads(m):
    s = Server("--model", m.dir, "--kv-cache-gib", "0.02")
    r = s.complete([5, 6, 7], max_tokens=2, temperature=0)
    s.stop()
    assert r.status == 200, r


@row("D1", "safetensors header length", own=True)
def d1(_):
    with Model() as m:
        loads(m)
        size = os.path.getsize(m.file)
        with open(m.file, "rb") as f:
            data = f.read()
        for n in (0, 1, size, size * 2, 100_000_001, 2**63, 2**64 - 1, 2**64 - 8):
            with open(m.file, "wb") as f:
                f.write(struct.pack("<Q", n) + data[8:])
            refuses(m, m.shards[0])
        for short in (b"", b"\0\0\0"):
            with open(m.file, "wb") as f:
                f.write(short)
            refuses(m, m.shards[0])


@row("D2", "safetensors header that is not a proper object", own=True)
def d2(_):
    with Model() as m:
        h, data = m.header()
        name = next(k for k in h if k != "__metadata__")
        dup = json.dumps(h).encode()
        dup = b'{"%s":%s,' % (name.encode(), json.dumps(h[name]).encode()) + dup[1:]
        for raw in (b"[" * 100000, b"[]", b"null", b'{"a":\xff}', dup, b"{" + b'"a":{' * 1000, b"{}x", b'{"__metadata__":{"a":5}}'):
            m.write(None, data, raw)
            refuses(m, m.shards[0])


def damage(m, h, data, **fields):
    name = sorted(k for k in h if k != "__metadata__")[1]
    h2 = json.loads(json.dumps(h))
    h2[name].update(fields)
    m.write(h2, data)
    return name


@row("D3", "tensor offsets that overlap, leave gaps, end past the file, or wrap", own=True)
def d3(_):
    with Model() as m:
        h, data = m.header()
        name = sorted(k for k in h if k != "__metadata__")[1]
        b, e = h[name]["data_offsets"]
        for off in ([e, b], [b - 4, e - 4] if b else [b + 4, e + 4], [b, len(data) + 64], [len(data), len(data) + (e - b)], [2**64 - 8, 2**64 - 8 + (e - b)],
                    [-1, e], [b], [b, e, e], [b + 0.5, e], "x", [2**63, 2**63 + (e - b)]):
            damage(m, h, data, data_offsets=off)
            refuses(m, m.shards[0])
        m.write(h, data + b"\0" * 16)
        refuses(m, m.shards[0])


@row("D4", "tensor shapes and types that do not match their bytes", own=True)
def d4(_):
    with Model() as m:
        h, data = m.header()
        for fields in ({"shape": [2**32, 2**32]}, {"shape": [10**6] * 3}, {"shape": [0, 5]}, {"shape": [-1, 5]}, {"shape": "x"}, {"shape": [1.5]}, {"shape": [3, 3]},
                       {"dtype": "F128"}, {"dtype": 5}, {"dtype": "I64"}, {"shape": [2**63, 2]}, {"dtype": "F8_E4M3"}):
            damage(m, h, data, **fields)
            refuses(m, m.shards[0])


@row("D5", "truncated, missing and extra shards; an index that disagrees", own=True)
def d5(_):
    with Model(True) as m:
        loads(m)
        last = os.path.join(m.dir, m.shards[-1])
        with open(last, "rb") as f:
            data = f.read()
        with open(last, "wb") as f:
            f.write(data[: len(data) // 2])
        refuses(m, m.shards[-1])
        os.unlink(last)
        refuses(m, m.shards[-1], code=(78, 74))
        with open(last, "wb") as f:
            f.write(data)
        shutil.copyfile(last, os.path.join(m.dir, "consolidated.safetensors"))
        loads(m)  # a file that the index does not name is not read
        p = os.path.join(m.dir, "model.safetensors.index.json")
        with open(p) as f:
            index = json.load(f)
        name = sorted(index["weight_map"])[0]
        for change in (lambda w: w.update({name: "../" + m.shards[0]}), lambda w: w.update({name: "/etc/passwd"}), lambda w: w.update({"no.such.tensor": m.shards[0]}),
                       lambda w: w.update({name: next(x for x in m.shards if x != w[name])}), lambda w: w.update({name: 5})):
            i2 = json.loads(json.dumps(index))
            change(i2["weight_map"])
            with open(p, "w") as f:
                json.dump(i2, f)
            refuses(m)
        with open(p, "w") as f:
            f.write("{")
        refuses(m, "index")


@row("D6", "a git-lfs pointer instead of weights", own=True)
def d6(_):
    with Model() as m:
        with open(m.file, "w") as f:
            f.write("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 4976698672\n" % ("a" * 64))
        refuses(m, "git-lfs pointer")


@row("D9", "config.json with impossible sizes", own=True)
def d9(_):
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size", "max_position_embeddings"):
        for v in (0, -1, 10**12, "x", 1.5, None if key == "hidden_size" else []):
            with Model() as m:
                m.config(**{key: v})
                try:
                    refuses(m, key)
                except AssertionError as e:
                    raise AssertionError("%s = %r: %s" % (key, v, e))
    for changes, word in (({"num_attention_heads": 3, "head_dim": DELETE}, ("num_attention_heads", "hidden_size", "head")), ({"num_key_value_heads": 3}, "num_key_value_heads"),
                          ({"vocab_size": 77}, ("vocab", "embed")), ({"rms_norm_eps": "x"}, "rms_norm_eps"), ({"rms_norm_eps": -1}, "rms_norm_eps"),
                          ({"architectures": ["NoSuchForCausalLM"]}, "LlamaForCausalLM"), ({"architectures": [], "model_type": DELETE}, "architectures"),
                          ({"hidden_act": "tanh"}, "hidden_act"), ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config")):
        with Model() as m:
            try:
                m.config(**changes)
            except KeyError:
                m.config(**{k: v for k, v in changes.items() if v is not DELETE})
            try:
                refuses(m, word)
            except AssertionError as e:
                raise AssertionError("%r: %s" % (changes, e))
    with Model() as m:
        p = os.path.join(m.dir, "config.json")
        text = open(p).read().rstrip().rstrip("}") + ', "rope_theta": NaN}'
        open(p, "w").write(text)
        refuses(m, "config.json")
        open(p, "w").write("{")
        refuses(m, "config.json")
        os.unlink(p)
        refuses(m, "config.json")


@row("D10", "pickle, Python files and auto_map are never opened", own=True)
def d10(_):
    with Model() as m:
        m.config(auto_map={"AutoModel": "evil.Evil"})
        for f in ("pytorch_model.bin", "evil.py"):
            os.mkfifo(os.path.join(m.dir, f))  # whoever opens it hangs
        loads(m)


@row("D11", "weights replaced or cut while they are read", own=True)
def d11(_):
    with Model() as m:
        size = os.path.getsize(m.file)
        for at in (0.2, 0.5, 0.9):
            with open(m.file, "rb") as f:
                data = f.read()
            p = subprocess.Popen([BINARY, "--port", str(free_port()), "--model", m.dir, "--kv-cache-gib", "0.02"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            time.sleep(at * 0.01)
            os.truncate(m.file, int(size * at))
            time.sleep(1.0)
            p.send_signal(signal.SIGTERM)
            out = p.communicate(timeout=PATIENCE)[0].decode("utf-8", "replace")
            assert p.returncode in (0, 78, 74), "ended with %s: %s" % (p.returncode, shown(out))  # never a signal
            with open(m.file, "wb") as f:
                f.write(data)


def shim():
    out = os.path.join(tempfile.mkdtemp(prefix="spillway-shim-"), "shim_io.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", out, os.path.join(ROOT, "tests", "fault", "shim_io.c"), "-ldl"], check=True)
    return out


@row("D12", "EIO and a slow disk while loading", own=True)
def d12(_):
    lib = shim()
    preload = (os.environ.get("LD_PRELOAD", "") + " " + lib).strip()
    with Model() as m:
        for after in (1, 2, 3, 4):
            p = subprocess.run([BINARY, "--port", str(free_port()), "--model", m.dir, "--kv-cache-gib", "0.02"], capture_output=True, timeout=PATIENCE,
                               stdin=subprocess.DEVNULL, env={**os.environ, "LD_PRELOAD": preload, "SHIM_EIO_AFTER": str(after)})
            out = (p.stderr + p.stdout).decode("utf-8", "replace")
            assert p.returncode == 74, "read %d: exit %d: %s" % (after, p.returncode, shown(out))
            assert m.shards[0] in out and "Input/output error" in out, shown(out)
        s = Server("--model", m.dir, "--kv-cache-gib", "0.02", env={"LD_PRELOAD": preload, "SHIM_READ_US": "300000"}, wait=False)
        seen = set()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and 503 not in seen:
            try:
                seen.add(s.get("/ping").status)
                assert s.get("/livez").status == 200
                r = s.complete([5, 6], max_tokens=1)
                assert r.status == 200 or (r.status == 503 and r.header("retry-after")), r
            except OSError:
                pass
            time.sleep(0.02)
        assert 503 in seen, "never saw /ping 503 while loading: %s" % seen
        s.proc.send_signal(signal.SIGTERM)
        assert s.proc.wait(PATIENCE) in (0, -signal.SIGTERM)
        s.stop()
    shutil.rmtree(os.path.dirname(lib))


@row("D13", "model folder: missing, empty, a file, unreadable, a link", own=True)
def d13(_):
    codes = (78, 77, 74)
    refuses("/no/such/folder", "/no/such/folder", code=codes)
    with Model() as m:
        refuses(m.file, code=codes)
        link = m.dir + "-link"
        os.symlink(m.dir, link)
        try:
            s = Server("--model", link, "--kv-cache-gib", "0.02")
            s.stop()
        finally:
            os.unlink(link)
        for f in os.listdir(m.dir):
            os.unlink(os.path.join(m.dir, f))
        refuses(m, "config.json", code=codes)
    with Model() as m:
        os.unlink(os.path.join(m.dir, "tokenizer.json"))
        refuses(m, "tokenizer.json", code=codes)


@row("D14", "a device too small for the KV cache asked, or for one sequence", own=True)
def d14(_):
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE") // 10 * 6  # fits once, not on two ranks
    for args, words in ((("--kv-cache-gib", "100000"), ("107374182400000 bytes needed", "available are")),
                        (("--kv-cache-bytes", str(most), "--tensor-parallel-size", "2"), ("%d bytes needed" % most, "available are")),
                        (("--kv-cache-bytes", "40960", "--max-model-len", "2048"), ("--kv-cache-bytes", "needs"))):
        p = subprocess.run([BINARY, "--port", str(free_port()), *args], capture_output=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)
        out = (p.stderr + p.stdout).decode("utf-8", "replace")
        assert p.returncode == 78, "%s: exit %d: %s" % (args, p.returncode, shown(out))
        assert all(w in out for w in words), "%s: %s" % (args, shown(out))


# Bits of numbers in each type that scales have. In MXFP4's exponents all bits stand for NaN, and there is no infinity and no zero.
SCALE_BITS = {"BF16": ("<H", {"NaN": 0x7FC0, "Inf": 0x7F80, "0": 0}), "F16": ("<H", {"NaN": 0x7E00, "Inf": 0xFC00, "0": 0}),
              "F32": ("<I", {"NaN": 0x7FC00000, "Inf": 0xFF800000, "0": 0}), "U8": ("<B", {"NaN": 0xFF})}


@row("D15", "scales of coded weights that are NaN or infinite: exit 78 with the tensor; of 0: weights of 0", own=True)
def d15(_):
    for name in ("ct-pack", "ct-w8a8", "phi3-awq", "gptq-order", "glm4-fp8", "gpt-oss-mxfp4"):
        with Model(name=name) as m:
            header, data = m.header()
            tensor = sorted(k for k in header if "down_proj" in k and "scale" in k)[-1]
            layout, values = SCALE_BITS[header[tensor]["dtype"]]
            at = header[tensor]["data_offsets"][1] - struct.calcsize(layout)
            for value, bits in values.items():
                m.write(header, data[:at] + struct.pack(layout, bits) + data[at + struct.calcsize(layout):])
                if value == "0":
                    loads(m)
                else:
                    refuses(m, tensor, ("finite", "no number"))


@row("D16", "random bytes over the header area", own=True)
def d16(_):
    rnd = random.Random(16)
    with Model() as m:
        with open(m.file, "rb") as f:
            data = f.read()
        n = struct.unpack("<Q", data[:8])[0]
        refused = 0
        for i in range(60):
            b = bytearray(data)
            for _ in range(rnd.randint(1, 50)):
                b[rnd.randrange(8 + n)] = rnd.randrange(256)
            with open(m.file, "wb") as f:
                f.write(b)
            rc, out = start(m)
            assert rc in (0, 78, 74), "seed %d: exit %d: %s" % (i, rc, shown(out))
            refused += rc != 0
        assert refused > 40, "only %d of 60 refused" % refused


def large_model(folder):
    """A qwen3 of 1024 x 2 layers with numbers of chance, 79 MB, and pebble's tokenizer."""
    hidden, inner, vocab = 1024, 4096, 3072
    pebble = os.path.join(ROOT, "models", "pebble")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(pebble, name), folder)
    with open(os.path.join(pebble, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config.update(hidden_size=hidden, intermediate_size=inner, num_hidden_layers=2, num_attention_heads=16, num_key_value_heads=16, vocab_size=vocab)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for i in range(2):
        at = "model.layers.%d." % i
        shapes.update({at + "input_layernorm.weight": [hidden], at + "post_attention_layernorm.weight": [hidden],
                       at + "self_attn.q_norm.weight": [64], at + "self_attn.k_norm.weight": [64],
                       at + "mlp.gate_proj.weight": [inner, hidden], at + "mlp.up_proj.weight": [inner, hidden],
                       at + "mlp.down_proj.weight": [hidden, inner]})
        shapes.update({at + "self_attn.%s_proj.weight" % x: [hidden, hidden] for x in "qkvo"})
    header, end = {}, 0
    for name in sorted(shapes):
        n = 2
        for d in shapes[name]:
            n *= d
        header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [end, end + n]}
        end += n
    rng = random.Random(3)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    numbers = bytearray(end)
    numbers[0::2] = rng.randbytes(end // 2)
    numbers[1::2] = rng.randbytes(end // 2).translate(bytes(0x3C | (i & 1) << 7 for i in range(256)))  # +- 0.008 to 0.03
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + numbers)
    return end


@row("D18", "weights on a file system of a network: large reads one behind the other, each byte once, nothing mapped", own=True)
def d18(_):
    mib, nfs = 1 << 20, "0x6969"
    folder = tempfile.mkdtemp(prefix="spillway-far-")
    trace, packed = os.path.join(folder, "trace"), os.path.join(folder, "packed")
    env = {"LD_PRELOAD": (os.environ.get("LD_PRELOAD", "") + " " + shim()).strip(), "SHIM_FS": nfs, "SHIM_TRACE": trace}
    args = ["--model", folder, "--device", "cpu", "--kv-cache-gib", "0.05", "--max-model-len", "256"]

    def calls():
        with open(trace, encoding="utf-8") as f:
            rows = [line.split() for line in f]
        os.unlink(trace)
        return [(call, int(at), int(n), name.rsplit(".", 1)[1], thread) for call, thread, at, n, name in rows]

    try:
        size = large_model(folder)
        s = Server(*args)
        want = s.complete("Once upon a time", max_tokens=8, temperature=0).json["choices"][0]["text"]
        s.stop()

        s = Server(*args, env=env)
        assert s.complete("Once upon a time", max_tokens=8, temperature=0).json["choices"][0]["text"] == want
        s.stop()
        seen = calls()
        reads = [(at, n) for call, at, n, *_ in seen if call == "pread"]
        total, large = sum(n for _, n in reads), sum(n for _, n in reads if n >= 2 * mib)
        assert size <= total <= size + mib, (size, total)
        assert large >= 0.95 * total and len(reads) < 60, (large, total, len(reads))
        assert max(n for _, n in reads) == 8 * mib, reads
        assert not any(call == "mmap" for call, *_ in seen), "weights were mapped"
        told = [(at, n) for call, at, n, *_ in seen if call == "fadvise"]
        assert told and all(at % mib == 0 and n % mib == 0 for at, n in told), told
        # Threads take pieces in order of offset: each reads ever further on, and no two read the same. The main thread reads the head before.
        front = {}
        for call, at, n, _, thread in seen:
            if call == "pread" and n > 65536:
                assert at >= front.get(thread, 0), (at, thread, front)
                front[thread] = at + n
        weights = sorted(x for x in reads if x[1] > 65536)
        assert all(a + n <= b for (a, n), (b, _) in zip(weights, weights[1:])), weights

        # Packed weights there are read as well.
        s = Server(*args, "--packed-cache", packed, env=env)
        s.stop()
        calls()
        s = Server(*args, "--packed-cache", packed, env=env)
        assert s.complete("Once upon a time", max_tokens=8, temperature=0).json["choices"][0]["text"] == want
        s.stop()
        seen = [x for x in calls() if x[3] == "packed"]
        assert seen and not any(call == "mmap" for call, *_ in seen), "packed weights were mapped"
        assert max(n for call, _, n, *_ in seen if call == "pread") == 4 * mib, seen
        assert sum(n for call, _, n, *_ in seen if call == "pread") >= size
    finally:
        shutil.rmtree(folder, ignore_errors=True)
