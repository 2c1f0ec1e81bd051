"""A checkpoint that says what a test wants: real weights, a real tokenizer and a real template, served as any model is.

    folder = scripted.make({"@weather": "<tool_call>...", "@sunny": "It is sunny."}, template_tail="<think>\\n")

The weights are a table: a token's embedding is a unit vector, attention and MLP add nothing, and the head maps each token to the
one that follows it in a script. So the last token of the prompt decides, and what comes is the script of the trigger that the last
message holds. Scripts are cut into pieces of which none occurs twice; each piece is a token, and a marker is a token of its own
where it stands for the first time. Bytes are tokens, so any prompt can be read."""

import json
import os
import re
import struct

HIDDEN = 1024
MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]


def byte_chars():
    """GPT-2's table: each byte as one printable character."""
    shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table, n = {}, 0
    for b in range(256):
        table[b] = chr(b if b in shown else 256 + n)
        n += b not in shown
    return table


def pieces_between(text, taken, markers):
    """As pieces_of, but no piece holds the beginning of a marker."""
    out = []
    for part in re.split("(%s)" % "|".join(map(re.escape, markers)), text):
        out += pieces_of(part, taken, markers) if part else []
    return out


def pieces_of(text, taken, markers=MARKERS):
    """text as tokens that nobody has: markers, then the shortest pieces of 3 or more characters that are new."""
    out = []
    while text:
        piece = next((m for m in markers if text.startswith(m) and m not in taken), None)
        n = 3
        while piece is None:
            # a character above ASCII in a piece without a blank would be read as a byte of GPT-2's table
            good = text[:n] not in taken and text[:n] not in markers and (text[:n].isascii() or " " in text[:n])
            rest = len(text) - n
            if n >= len(text) or (good and rest not in (1, 2)):
                piece = text[:n]
            n += 1
        assert piece not in taken, "the script ends with %r, which is a token of an earlier place" % piece
        taken.add(piece)
        out.append(piece)
        text = text[len(piece):]
    return out


def tokenizer(added, special):
    vocab = {c: b for b, c in byte_chars().items()}
    ids = {}
    for i, content in enumerate(special + added):
        ids[content] = 256 + i
    return ids, {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": c in special}
                         for c, i in ids.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []},
    }


def write_weights(path, vocab, follows):
    """Llama of one layer in float32. follows: {id: the next id}."""
    kv, ff = 64, 64
    shapes = {
        "model.embed_tokens.weight": (vocab, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (vocab, HIDDEN),
        "model.layers.0.input_layernorm.weight": (HIDDEN,), "model.layers.0.post_attention_layernorm.weight": (HIDDEN,),
        "model.layers.0.self_attn.q_proj.weight": (kv, HIDDEN), "model.layers.0.self_attn.k_proj.weight": (kv, HIDDEN),
        "model.layers.0.self_attn.v_proj.weight": (kv, HIDDEN), "model.layers.0.self_attn.o_proj.weight": (HIDDEN, kv),
        "model.layers.0.mlp.gate_proj.weight": (ff, HIDDEN), "model.layers.0.mlp.up_proj.weight": (ff, HIDDEN),
        "model.layers.0.mlp.down_proj.weight": (HIDDEN, ff),
    }
    one = struct.pack("<f", 1.0)
    header, blobs, at = {}, [], 0
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        blob = bytearray(one * n if "norm" in name else 4 * n)
        cells = []
        if "embed" in name:
            cells = [(i, i) for i in range(vocab)]
        elif "lm_head" in name:
            cells = [(b, a) for a, b in follows.items()]
        for row, column in cells:
            blob[4 * (row * HIDDEN + column):4 * (row * HIDDEN + column) + 4] = one
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs:
            f.write(blob)


TEMPLATE = """{%- if tools %}<|im_start|>system
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content or '' }}
{%- for call in m.tool_calls or [] %}<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
TAIL{% endif %}
{%- for trigger in TRIGGERS %}{% if trigger in (messages[-1].content or '') %}{{ trigger }}{% endif %}{% endfor %}
{#- <think> and </think> are known to it #}"""


def make(folder, scripts, template_tail="", markers=MARKERS, context=16384):
    """Writes the checkpoint of {trigger: script} into folder."""
    special = ["<|im_start|>", "<|im_end|>"]
    taken, cut = set(scripts), {}
    for trigger, text in scripts.items():
        cut[trigger] = pieces_of(text, taken) if markers is MARKERS else pieces_between(text, taken, markers)
    added = sorted(taken | set(markers))
    ids, tok = tokenizer(added, special)
    end = ids["<|im_end|>"]
    follows = {i: end for i in range(256 + len(ids))}
    for trigger, pieces in cut.items():
        chain = [trigger, *pieces]
        for a, b in zip(chain, chain[1:]):
            follows[ids[a]] = ids[b]
    vocab = 256 + len(ids)
    assert vocab <= HIDDEN, vocab
    os.makedirs(folder, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 2,
              "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": 64, "vocab_size": vocab, "max_position_embeddings": context,
              "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
              "bos_token_id": end, "eos_token_id": end}
    template = TEMPLATE.replace("TAIL", template_tail).replace("TRIGGERS", json.dumps(sorted(scripts)))
    for name, value in (("config.json", config), ("tokenizer.json", tok), ("tokenizer_config.json", {"eos_token": "<|im_end|>"})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    with open(os.path.join(folder, "chat_template.jinja"), "w") as f:
        f.write(template)
    write_weights(os.path.join(folder, "model.safetensors"), vocab, follows)
    return folder
