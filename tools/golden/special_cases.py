"""Model folders whose special tokens stand in one file or another, for make_template_golden.py: what transformers passes to a chat
template becomes tests/data/templates/special.json."""
import json
import pathlib
import tempfile

NAMES = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "image_token", "sound_token",
         "additional_special_tokens", "extra_special_tokens"]
TEMPLATE = "{% for m in messages %}{{ bos_token }}{{ m.content }}{{ eos_token }}{% endfor %}" + "".join(
    "|%s={%% if %s is defined %%}{{ %s }}{%% else %%}-{%% endif %%}" % (n, n, n) for n in NAMES)
WORDS = ["<unk>", "<s>", "</s>", "<pad>", "<|endoftext|>", "<bos>", "<eos>", "<mask>", "<img>", "<snd>", "<x>", "<y>"]


def added(text):
    return {"__type": "AddedToken", "content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}


def mapped(text):
    return {"content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}


def tokenizer(byte_level):
    vocab = {w: i for i, w in enumerate(WORDS + ["a", "\u2581"])}
    split = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    words = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    if byte_level:
        shown = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
        letters = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
        vocab = {w: i for i, w in enumerate(WORDS + letters)}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": i, "content": w, **flags} for i, w in enumerate(WORDS)],
            "normalizer": None, "pre_tokenizer": split if byte_level else words, "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True} if byte_level else None,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}


FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
FULL = {"bos_token": "<s>", "eos_token": "</s>"}
DECODER = {"added_tokens_decoder": {"1": mapped("<s>")}}
# name: (model_type, tokenizer_config.json, special_tokens_map.json); None: no such file
CASES = {
    "nothing": ("llama", None, None),
    "map_alone": ("llama", None, FULL),
    "map_beside_a_bare_config": ("llama", FAST, {"bos_token": "<s>", "eos_token": mapped("</s>"), "pad_token": "<pad>"}),
    "config_alone": ("llama", {**FAST, **FULL}, None),
    "config_objects": ("llama", {**FAST, "bos_token": added("<s>"), "eos_token": added("</s>")}, None),
    "map_wins_for_standard_names": ("llama", {**FAST, "bos_token": "<x>", "eos_token": "</s>"}, {"bos_token": "<s>"}),
    "map_null_takes_away": ("llama", {**FAST, **FULL}, {"bos_token": None}),
    "config_null": ("llama", {**FAST, "bos_token": None, "eos_token": "</s>", "pad_token": None}, None),
    "map_fills_a_null": ("llama", {**FAST, "bos_token": None}, {"bos_token": "<s>"}),
    "decoder_silences_the_map": ("llama", {**FAST, **DECODER, "eos_token": "</s>"}, {"bos_token": "<s>", "eos_token": "<x>"}),
    "own_token_in_config": ("llama", {**FAST, **FULL, "image_token": "<img>"}, None),
    "own_token_object_in_config": ("llama", {**FAST, **FULL, "image_token": added("<img>")}, None),
    "own_token_in_map": ("llama", FAST, {**FULL, "image_token": "<img>", "sound_token": mapped("<snd>")}),
    "own_token_in_both": ("llama", {**FAST, "image_token": "<img>"}, {"image_token": "<x>"}),
    "own_object_in_config_string_in_map": ("llama", {**FAST, "image_token": added("<img>")}, {"image_token": "<x>"}),
    "no_token_at_all": ("llama", {**FAST, "add_bos_token": True, "image_token": 7, "sound_token": None}, None),
    "extra_object": ("llama", {**FAST, "extra_special_tokens": {"image_token": "<img>", "sound_token": added("<snd>")}}, None),
    "extra_object_beats_the_plain_key": ("llama", {**FAST, "image_token": "<x>", "extra_special_tokens": {"image_token": "<img>"}}, None),
    "extra_object_names_a_standard_one": ("llama", {**FAST, "bos_token": "<s>", "extra_special_tokens": {"bos_token": "<x>"}}, None),
    "extra_object_in_map": ("llama", {**FAST, "extra_special_tokens": {"image_token": "<x>"}}, {"extra_special_tokens": {"image_token": "<img>"}}),
    "extra_list": ("llama", {**FAST, **FULL, "extra_special_tokens": ["<x>", "<y>"]}, None),
    "additional_list": ("llama", {**FAST, **FULL, "additional_special_tokens": ["<x>", "<y>"]}, {"additional_special_tokens": ["<y>"]}),
    "saved_by_version_5": ("llama", {**FAST, **FULL, "image_token": "<img>", "model_specific_special_tokens": {"image_token": "<img>"}}, None),
    "llama_class": ("llama", {"tokenizer_class": "LlamaTokenizerFast"}, None),
    "llama_class_null": ("llama", {"tokenizer_class": "LlamaTokenizer", "bos_token": None}, None),
    "llama_class_with_a_map": ("llama", {"tokenizer_class": "LlamaTokenizer"}, {"eos_token": "<x>"}),
    "llama_class_of_mistral": ("mistral", {"tokenizer_class": "LlamaTokenizer"}, None),
    "llama_class_of_mixtral": ("mixtral", {"tokenizer_class": "LlamaTokenizerFast", "eos_token": "</s>"}, None),
    "qwen2_whatever_it_says": ("qwen2", FAST, None),
    "qwen2_own_end": ("qwen2", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<x>", "bos_token": None}, None),
    "qwen3": ("qwen3", {"tokenizer_class": "Qwen2Tokenizer", "pad_token": None}, None),
    "qwen3_bare": ("qwen3", None, None),
    "qwen3_moe_bare": ("qwen3_moe", {}, {"eos_token": "<y>"}),
    "qwen3_fast": ("qwen3", FAST, None),
    "gemma_class": ("llama", {"tokenizer_class": "GemmaTokenizer"}, None),
    "gpt2_class": ("llama", {"tokenizer_class": "GPT2Tokenizer"}, None),
}


def render(folder, model_type, config, special_map, tokens):
    import transformers

    for name, value in (("config", {"model_type": model_type}), ("tokenizer", tokens), ("tokenizer_config", config), ("special_tokens_map", special_map)):
        if value is not None:
            (folder / (name + ".json")).write_text(json.dumps(value), encoding="utf-8")
    tok = transformers.AutoTokenizer.from_pretrained(str(folder))
    return tok.apply_chat_template([{"role": "user", "content": "Hi"}], chat_template=TEMPLATE, tokenize=False)


def golden():
    out = {"template": TEMPLATE, "tokenizers": {"words": tokenizer(False), "bytes": tokenizer(True)}, "cases": []}
    for name, (model_type, config, special_map) in CASES.items():
        for kind, tokens in out["tokenizers"].items():
            with tempfile.TemporaryDirectory() as folder:
                text = render(pathlib.Path(folder), model_type, config, special_map, tokens)
            out["cases"].append({"name": name, "tokenizer": kind, "config": {"model_type": model_type}, "tokenizer_config": config,
                                 "special_tokens_map": special_map, "out": text})
    return out
