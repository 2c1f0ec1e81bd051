#!/usr/bin/env python3
"""make_random_model: a model of a well-known shape with random weights, so that two servers can be compared on the very same weights.

    python3 tools/make_random_model.py --shape tiny|llama-3.2-1b|qwen3-8b --out DIR [--gguf] [--dtype bfloat16|float16|float32] [--seed N] [--repeat]

DIR gets config.json, tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json and model.safetensors; with
--gguf also model.gguf with the same weights and the same tokenizer for llama.cpp. Needs numpy; --gguf needs the package gguf
(pip install numpy gguf). Memory stays under 500 MB: tensors are drawn and written in pieces, and the GGUF is copied from the mapped
safetensors.

Each tensor is drawn by a generator of its own, seeded by --seed and its name, so its values depend on neither order nor machine.
Standard deviation is 1/sqrt(columns), norms are 1 + N(0, 0.1): signals keep their size through the layers and the logits are of order
one. Rows of the output that belong to the upper half of the bytes and to special tokens are damped, so that greedy text is made of
whole words of ASCII, and never ends by itself.
--repeat draws four million numbers once and repeats them through all matrices: as fast as the disk, for measuring how a model is loaded.
The tokenizer is byte-level BPE of exactly the vocabulary wanted: bytes, then merges of lower-case letters by their frequency, longer
ones last, then special tokens; ChatML is the chat template.
"""
import argparse
import json
import math
import os
import sys
import zlib

import numpy as np

# name: vocab, special, dim, layers, heads, kv heads, head dim, ffn, context, theta, eps, tied, family
SHAPES = {
    "tiny": dict(vocab=4096, special=16, dim=256, layers=6, heads=8, kv=4, head_dim=32, ffn=704, context=8192, theta=10000.0, eps=1e-5,
                 tied=True, family="llama"),
    "llama-3.2-1b": dict(vocab=128256, special=256, dim=2048, layers=16, heads=32, kv=8, head_dim=64, ffn=8192, context=131072,
                         theta=500000.0, eps=1e-5, tied=True, family="llama",
                         rope=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=8192)),
    "qwen3-8b": dict(vocab=151936, special=293, dim=4096, layers=36, heads=32, kv=8, head_dim=128, ffn=12288, context=40960,
                     theta=1000000.0, eps=1e-6, tied=False, family="qwen3"),
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
            "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}")
# how Llama 3 and Qwen 2 cut text before merging; llama.cpp knows them as llama-bpe and qwen2
CUT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LETTERS = "etaoinshrdlcumwfgypbvkjxqz"
PIECE = 1 << 22  # values drawn at a time


# ---------------------------------------------------------------------------------------------- tokenizer
def byte_letters():
    """GPT-2's printable stand-in for each byte, in the order of its vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


def vocabulary(shape):
    """Tokens in the order of their ids, and merges in the order of their ranks."""
    letter = byte_letters()
    tokens, merges, space = [letter[b] for b in letter], [], letter[32]
    room = shape["vocab"] - shape["special"] - len(tokens)

    def merge(lefts, rights):
        """All pairs, those of frequent letters first."""
        pairs = sorted(((i + j, i, j) for i in range(len(lefts)) for j in range(len(rights))))
        for _, i, j in pairs[:room - len(merges)]:
            merges.append((lefts[i], rights[j]))
            tokens.append(lefts[i] + rights[j])

    one = list(LETTERS)
    two = [a + b for a in one for b in one]
    merge(one, one)
    two = tokens[256:]
    merge([space], two + one)
    if len(merges) < room:
        begin = len(tokens)
        merge(two, one)
        three = tokens[begin:]
        merge([space], three)
        merge(two, two)
    special = SPECIAL + [f"<|reserved_{i}|>" for i in range(shape["special"] - len(SPECIAL))]
    assert len(tokens) + len(special) == shape["vocab"] and len(set(tokens)) == len(tokens)
    return tokens, merges, special


def write_tokenizer(out, shape, tokens, merges, special):
    digits = "{1,3}" if shape["family"] == "llama" else ""
    added = [dict(id=len(tokens) + i, content=s, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
             for i, s in enumerate(special)]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    tok = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
               pre_tokenizer=dict(type="Sequence", pretokenizers=[
                   dict(type="Split", pattern=dict(Regex=CUT % digits), behavior="Isolated", invert=False), level]),
               post_processor=None, decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
               model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False,
                          byte_fallback=False, ignore_merges=shape["family"] == "llama",
                          vocab={t: i for i, t in enumerate(tokens)}, merges=[list(m) for m in merges]))
    put_json(out, "tokenizer.json", tok)
    put_json(out, "tokenizer_config.json", dict(
        tokenizer_class="PreTrainedTokenizerFast", model_max_length=shape["context"], bos_token=None, eos_token="<|im_end|>",
        pad_token="<|endoftext|>", unk_token=None, add_bos_token=False, clean_up_tokenization_spaces=False,
        added_tokens_decoder={str(a["id"]): {k: v for k, v in a.items() if k != "id"} for a in added}))
    with open(os.path.join(out, "chat_template.jinja"), "w") as f:
        f.write(TEMPLATE)


def put_json(out, name, value):
    with open(os.path.join(out, name), "w") as f:
        json.dump(value, f, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)


def write_config(out, shape, dtype, n_token):
    family = shape["family"]
    config = dict(architectures=["LlamaForCausalLM" if family == "llama" else "Qwen3ForCausalLM"], model_type=family,
                  vocab_size=shape["vocab"], hidden_size=shape["dim"], num_hidden_layers=shape["layers"],
                  num_attention_heads=shape["heads"], num_key_value_heads=shape["kv"], head_dim=shape["head_dim"],
                  intermediate_size=shape["ffn"], hidden_act="silu", max_position_embeddings=shape["context"], rope_theta=shape["theta"],
                  rms_norm_eps=shape["eps"], tie_word_embeddings=shape["tied"], attention_bias=False, bos_token_id=None,
                  eos_token_id=n_token + SPECIAL.index("<|im_end|>"), torch_dtype=dtype)
    if "rope" in shape:
        config["rope_scaling"] = shape["rope"]
    put_json(out, "config.json", config)
    put_json(out, "generation_config.json", dict(eos_token_id=config["eos_token_id"], pad_token_id=n_token))


# ---------------------------------------------------------------------------------------------- weights
def tensors(shape):
    """(name, GGUF's name, shape) of every tensor in the order of the file."""
    d, q, k, f = shape["dim"], shape["heads"] * shape["head_dim"], shape["kv"] * shape["head_dim"], shape["ffn"]
    yield "model.embed_tokens.weight", "token_embd.weight", (shape["vocab"], d)
    for i in range(shape["layers"]):
        a, b = f"model.layers.{i}.", f"blk.{i}."
        yield a + "input_layernorm.weight", b + "attn_norm.weight", (d,)
        yield a + "self_attn.q_proj.weight", b + "attn_q.weight", (q, d)
        yield a + "self_attn.k_proj.weight", b + "attn_k.weight", (k, d)
        yield a + "self_attn.v_proj.weight", b + "attn_v.weight", (k, d)
        if shape["family"] == "qwen3":
            yield a + "self_attn.q_norm.weight", b + "attn_q_norm.weight", (shape["head_dim"],)
            yield a + "self_attn.k_norm.weight", b + "attn_k_norm.weight", (shape["head_dim"],)
        yield a + "self_attn.o_proj.weight", b + "attn_output.weight", (d, q)
        yield a + "post_attention_layernorm.weight", b + "ffn_norm.weight", (d,)
        yield a + "mlp.gate_proj.weight", b + "ffn_gate.weight", (f, d)
        yield a + "mlp.up_proj.weight", b + "ffn_up.weight", (f, d)
        yield a + "mlp.down_proj.weight", b + "ffn_down.weight", (d, f)
    yield "model.norm.weight", "output_norm.weight", (d,)
    if not shape["tied"]:
        yield "lm_head.weight", "output.weight", (shape["vocab"], d)


def encode(x, dtype):
    if dtype == "float32":
        return x
    if dtype == "float16":
        return x.astype(np.float16)
    bits = x.view(np.uint32)  # bfloat16: to nearest, ties to even
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def draw(name, dims, seed, loud):
    """Pieces of a tensor, float32. loud: rows of the output that may win; others are damped."""
    rng = np.random.Generator(np.random.Philox(key=[seed, zlib.crc32(name.encode())]))
    if len(dims) == 1:
        yield 1 + 0.1 * rng.standard_normal(dims[0], dtype=np.float32)
        return
    rows, columns = dims
    scale, step = np.float32(1 / math.sqrt(columns)), max(1, PIECE // columns)
    head = name in ("model.embed_tokens.weight", "lm_head.weight")
    for at in range(0, rows, step):
        x = rng.standard_normal((min(step, rows - at), columns), dtype=np.float32) * scale
        if head:
            x[~loud[at:at + len(x)]] *= np.float32(1 / 16)
        yield x


NUMPY = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


def write_again(f, block, n):
    """The first n values of an endless row of blocks."""
    for at in range(0, n, len(block)):
        block[:n - at].tofile(f)


def write_safetensors(path, shape, dtype, seed, loud, repeat):
    """Returns {name: (offset, dims)}."""
    name_of = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    width, at, head, where = np.dtype(NUMPY[dtype]).itemsize, 0, {"__metadata__": {"format": "pt"}}, {}
    for name, _, dims in tensors(shape):
        n = math.prod(dims) * width
        head[name] = dict(dtype=name_of[dtype], shape=list(dims), data_offsets=[at, at + n])
        where[name] = (at, dims)
        at += n
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64)
    block = None
    if repeat:
        block = encode(np.random.Generator(np.random.Philox(seed)).standard_normal(PIECE, dtype=np.float32) * np.float32(0.02), dtype)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i, (name, _, dims) in enumerate(tensors(shape)):
            if repeat and len(dims) > 1:
                write_again(f, block, math.prod(dims))
            else:
                for x in draw(name, dims, seed, loud):
                    encode(x, dtype).tofile(f)
            if sys.stderr.isatty():
                print(f"\r{i + 1} of {len(where)} tensors, {f.tell() / 1e9:.2f} of {at / 1e9:.2f} GB", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return {name: (8 + len(text) + offset, dims) for name, (offset, dims) in where.items()}, at


def rope_factors(shape):
    """What llama.cpp divides each frequency by: Llama 3's scaling."""
    r, out = shape["rope"], []
    for i in range(0, shape["head_dim"], 2):
        length = 2 * math.pi * shape["theta"] ** (i / shape["head_dim"])
        low, high = (r["original_max_position_embeddings"] / r[k] for k in ("low_freq_factor", "high_freq_factor"))
        smooth = (r["original_max_position_embeddings"] / length - r["low_freq_factor"]) / (r["high_freq_factor"] - r["low_freq_factor"])
        out.append(1 if length < high else r["factor"] if length > low else 1 / ((1 - smooth) / r["factor"] + smooth))
    return np.array(out, dtype=np.float32)


def write_gguf(path, source, where, shape, dtype, tokens, merges, special):
    import gguf

    w = gguf.GGUFWriter(path, shape["family"])
    w.add_name("random")
    w.add_file_type({"float32": gguf.LlamaFileType.ALL_F32, "float16": gguf.LlamaFileType.MOSTLY_F16,
                     "bfloat16": gguf.LlamaFileType.MOSTLY_BF16}[dtype])
    w.add_context_length(shape["context"])
    w.add_embedding_length(shape["dim"])
    w.add_block_count(shape["layers"])
    w.add_feed_forward_length(shape["ffn"])
    w.add_head_count(shape["heads"])
    w.add_head_count_kv(shape["kv"])
    w.add_key_length(shape["head_dim"])
    w.add_value_length(shape["head_dim"])
    w.add_rope_dimension_count(shape["head_dim"])
    w.add_rope_freq_base(shape["theta"])
    w.add_layer_norm_rms_eps(shape["eps"])
    w.add_vocab_size(shape["vocab"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe" if shape["family"] == "llama" else "qwen2")
    w.add_token_list(tokens + special)
    w.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(special))
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_eos_token_id(len(tokens) + SPECIAL.index("<|im_end|>"))
    w.add_pad_token_id(len(tokens))
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)

    raw = {"float32": gguf.GGMLQuantizationType.F32, "float16": gguf.GGMLQuantizationType.F16,
           "bfloat16": gguf.GGMLQuantizationType.BF16}[dtype]
    width = np.dtype(NUMPY[dtype]).itemsize
    f32 = gguf.GGMLQuantizationType.F32
    if "rope" in shape:
        w.add_tensor_info("rope_freqs.weight", (shape["head_dim"] // 2,), np.float32, shape["head_dim"] * 2, f32)
    for _, name, dims in tensors(shape):
        one = len(dims) == 1  # llama.cpp wants norms in float32
        w.add_tensor_info(name, dims, np.float32 if one else NUMPY[dtype], math.prod(dims) * (4 if one else width), f32 if one else raw)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    if "rope" in shape:
        w.write_tensor_data(rope_factors(shape))
    for hf, name, dims in tensors(shape):
        x = np.memmap(source, dtype=NUMPY[dtype], mode="r", offset=where[hf][0], shape=dims)
        if len(dims) == 1:
            x = (x.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else x.astype(np.float32)
        elif shape["family"] == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            # llama.cpp turns neighbouring pairs, the safetensors form turns halves
            n = shape["heads"] if name.endswith("attn_q.weight") else shape["kv"]
            x = np.ascontiguousarray(x.reshape(n, 2, dims[0] // n // 2, dims[1]).swapaxes(1, 2).reshape(dims))
        w.write_tensor_data(x)
    w.close()


def main():
    p = argparse.ArgumentParser(description="a model of a well-known shape with random weights")
    p.add_argument("--shape", required=True, choices=SHAPES)
    p.add_argument("--out", required=True, metavar="DIR")
    p.add_argument("--dtype", default="bfloat16", choices=NUMPY)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--repeat", action="store_true", help="the same numbers in every matrix: made quickly")
    p.add_argument("--gguf", action="store_true", help="also DIR/model.gguf, for llama.cpp")
    o = p.parse_args()
    if o.gguf:
        try:
            import gguf  # noqa: F401
        except ImportError:
            sys.exit("make_random_model: --gguf needs the package gguf: pip install gguf")
    shape = SHAPES[o.shape]
    os.makedirs(o.out, exist_ok=True)
    tokens, merges, special = vocabulary(shape)
    letter = byte_letters()
    loud = np.ones(shape["vocab"], dtype=bool)
    loud[len(tokens):] = False
    ascii_text = {letter[b] for b in range(32, 127)}
    for i in range(256):
        loud[i] = tokens[i] in ascii_text
    write_config(o.out, shape, o.dtype, len(tokens))
    write_tokenizer(o.out, shape, tokens, merges, special)
    path = os.path.join(o.out, "model.safetensors")
    where, n = write_safetensors(path, shape, o.dtype, o.seed, loud, o.repeat)
    count = sum(math.prod(dims) for _, _, dims in tensors(shape))
    print(f"{path}: {count:,} parameters, {n / 1e6:.1f} MB of {o.dtype}")
    if o.gguf:
        gguf_path = os.path.join(o.out, "model.gguf")
        write_gguf(gguf_path, path, where, shape, o.dtype, tokens, merges, special)
        print(f"{gguf_path}: {os.path.getsize(gguf_path) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
