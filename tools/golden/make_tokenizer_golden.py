#!/usr/bin/env python3
"""Makes tests/data/tokenizer: small models trained with the `tokenizers` library, tokenizer kinds around them, and what the library
makes of 10,000 strings and 10,000 id sequences with each, and of every code point of Unicode.

    pip install tokenizers sentencepiece && python3 tools/golden/make_tokenizer_golden.py [--out FOLDER] [KIND..]

The strings are not stored: tests/model/test_tokenizer_parity.c makes the same ones from alphabet.json with the same generator. Stored
are hashes: <kind>.bin holds 1000 of the ids (10 strings each), then 1000 of the decoded texts (10 id sequences each), then those
of the ids of PAGES of 4,096 code points each (unicode_strings).

Over 500 lines: a list of kinds of tokenizers, one function or row each."""
import argparse, base64, hashlib, json, os, struct, tempfile, unicodedata
from tokenizers import Tokenizer, models, trainers, pre_tokenizers, normalizers, Regex, AddedToken

N, BLOCK = 10000, 10
M64 = (1 << 64) - 1


class Rng:
    """splitmix64"""

    def __init__(self, seed):
        self.x = seed

    def next(self):
        self.x = (self.x + 0x9E3779B97F4A7C15) & M64
        z = self.x
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n


# ---------------------------------------------------------------- strings

# Blocks that all Unicode versions in play know alike: the library's parts are of Unicode 9 to 16, utf8proc of 15.
RANGES = [
    (0x01, 0x1F), (0x20, 0x7E), (0x20, 0x7E), (0x20, 0x7E), (0x7F, 0x9F), (0xA0, 0xFF), (0xC0, 0x17F), (0x180, 0x24F), (0x250, 0x2FF),
    (0x300, 0x345), (0x300, 0x345), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x400, 0x4FF), (0x5B0, 0x5BD), (0x5D0, 0x5EA), (0x621, 0x652), (0x660, 0x669),
    (0x904, 0x94D), (0x966, 0x96F), (0x9BE, 0x9BE), (0x9C7, 0x9C7), (0xE01, 0xE3A), (0xE40, 0xE4E), (0xF71, 0xF7D), (0x1100, 0x1112), (0x1161, 0x1175),
    (0x11A8, 0x11C2), (0x1E00, 0x1EFF), (0x1F00, 0x1F15), (0x2000, 0x2064), (0x20A0, 0x20BE), (0x20D0, 0x20F0), (0x2100, 0x214F), (0x2150, 0x2188),
    (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2460, 0x24FF), (0x2500, 0x257F), (0x2581, 0x2581), (0x2700, 0x27BF), (0x2E80, 0x2E99), (0x3000, 0x303F),
    (0x3041, 0x3096), (0x3099, 0x30FF), (0x4E00, 0x9FA5), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0xF900, 0xFA2D), (0xFB00, 0xFB06),
    (0xFB1D, 0xFB36), (0xFE00, 0xFE0F), (0xFF01, 0xFF5E), (0xFF66, 0xFF9F), (0xFFFD, 0xFFFD), (0x10400, 0x1044F), (0x1D15E, 0x1D164), (0x1D400, 0x1D454),
    (0x1F1E6, 0x1F1FF), (0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6C5), (0x20000, 0x20100), (0x2A000, 0x2A6D6), (0x2F800, 0x2FA1D), (0xE0100, 0xE010F),
    (0, 0),
]

FRAGMENTS = """the|of|and|a|to|in|is|that|it|was|for|on|are|as|with|his|they|be|at|one|have|this|from|or|had|by|word|but|what|some|we|can|out|other|were|all|
there|when|up|use|your|how|said|an|each|she|which|do|their|time|if|will|way|about|many|then|them|write|would|like|so|these|her|long|make|thing|see|him|two|
has|look|more|day|could|go|come|did|number|sound|no|most|people|my|over|know|water|than|call|first|who|may|down|side|been|now|find|Any|New|Work|Part|Take|
Get|Place|Made|Live|Where|After|Back|Little|Only|Round|Man|Year|Came|Show|Every|Good|Me|GIVE|OUR|UNDER|NAME|VERY|THROUGH|JUST|camelCase|PascalCase|XMLHttpRequest|
iPhone|McDonald|HELLOworld|helloWORLD|I'm|you're|don't|it's|we've|they'll|he'd|I'M|YOU'RE|DON'T|IT'S|'s|'t|'re|'ve|'m|'ll|'d|'S|'LL|'ſ|''|'x|o'clock|
0|1|12|123|1234|12345|3.14|1,000,000|2024-05-06|0x1F|1e-9|½|²|٣|५|Ⅷ|①|def |return |import |for (int i = 0; i < n; i++) {|}|\t|\t\t|    |        |if (x == y)|
printf("%d\\n", x);|#include <stdio.h>|//|/* */|->|::|!=|<=|>=|&&|+=|{{|}}|[0]|()|(){|=> {|$x|@y|#z|a_b|__init__|self.|.py|https://x.org/a?b=c&d=e|a@b.com|\\u0041|
.|,|;|:|!|?|...|…|—|-|–|"|'|`|“|”|‘|’|«|»|(|)|[|]|{|}|<|>|/|\\|%|^|&|*|~|_|=|+|#|$|@|€|£|¥|§|°|©|®|™|¿|¡|
\x20|\x20\x20|\x20\x20\x20|\n|\n\n|\r\n|\r\n\r\n|\n\x20|\x20\n|\x20\n\x20|\r|\x20\t|\u00a0|\u3000|\u2003|\u200b|\u200c|\u200d|\u2028|\u0085|\x0b|\x0c|\ufeff|\x00|\x01|\x7f|
é|e\u0301|ñ|n\u0303|Å|A\u030a|ö|ß|ẞ|İ|ı|ǅ|ﬁ|ﬀ|Ω|K|ſ|straße|naïve|café|cafe\u0301|Ünïcödé|Łódź|žluťoučký|đường|tiếng Việt|a\u0301\u0323|a\u0323\u0301|q\u0307\u0323|
Привет|мир|Как|дела|ёлка|Ελλάδα|αθήνα|ΚΑΛΗΜΕΡΑ|שלום|עולם|مرحبا|بالعالم|السَّلَامُ|नमस्ते|दुनिया|हिन्दी|বাংলা|தமிழ்|ไทย|สวัสดี|ภาษาไทย|
你好|世界|中文|今天天气很好|我们|的|是|在|。|，|！|「|」|日本語|こんにちは|カタカナ|ひらがな|テスト|東京|한국어|안녕하세요|세계|각|가\u11a8|한|ㄱ|𠮷|𩸽|
😀|😂|❤️|❤|👍🏽|👩‍👩‍👧‍👦|🏳️‍🌈|🇩🇪|🇯🇵🇺🇸|1️⃣|🤷🏻‍♀️|☃|★|→|∑|√|≠|∞|▁|▁▁|▁the|Ġ|Ċ|ÿ|�|
<|im_start\\|>|<|im_end\\|>|<|endoftext\\|>|<|im_|<|im|<|<|im_start|<s>|</s>|<unk>|<0x0A>|<0x41>|<bos>|<eos>|<tool_call>|</tool_call>|[MASK]|[mask]|[MASK|<pad>| <mask> |<mask>|
Day|DAY|yesterday|day|foo|Foo|foobar|foo foo|<lr>|\x20\x20<lr>\x20\x20|<sw>|a<sw>b|<n>|<N>|\n<n>\n|user|assistant|system|ab|abab|ababab|aaaa|aaaaaaaa|AAAA|zzzz|----|====|####|....|~~~~"""


def fragments():
    """Split at | (a literal one is written \\|, as in the special tokens: <|x\\|>), newlines of the source dropped, escapes read."""
    text, out, cur, i = FRAGMENTS.replace("|\n", "|"), [], "", 0
    while i < len(text):
        if text[i] == "\\" and text[i + 1] == "|":
            cur, i = cur + "|", i + 2
        elif text[i] == "|" and not cur.endswith("<"):
            out, cur, i = out + [cur], "", i + 1
        else:
            cur, i = cur + text[i], i + 1
    return [f for f in out + [cur] if f]


def char(rng):
    a, b = RANGES[rng.below(len(RANGES))]
    return chr(a + rng.below(b - a + 1))


def piece(rng, frag):
    k = rng.below(10)
    if k < 6:
        return frag[rng.below(len(frag))]
    if k == 6:
        return char(rng)
    if k == 7:
        f = frag[rng.below(len(frag))]
        return f * (2 + rng.below(20))
    if k == 8:
        return "".join(chr((65 if rng.below(8) == 0 else 97) + rng.below(26)) for _ in range(1 + rng.below(12)))
    c = char(rng)
    return c * (1 + rng.below(6))


def string(i, frag):
    rng = Rng(i)
    k = rng.below(100)
    if k == 99:
        return frag[rng.below(len(frag))] * (100 + rng.below(400))
    n = 1 + rng.below(6 if k < 50 else 24 if k < 90 else 100)
    space = rng.below(2)
    out = []
    for _ in range(n):
        out.append(piece(rng, frag))
        if space and rng.below(2):
            out.append(" ")
    return "".join(out)


CHUNK, PAGE = 16, 4096
# Every page with characters; of the planes without, one page of each. tools/golden/tokenizer_diff.py --unicode looks at all.
PAGES = [*range(0x34), 0xE0, *range(0x3F, 0x110, 16)]


def unicode_strings(first):
    """The code points of a page: each one alone, between letters, after a space, before a mark, CHUNK of them in a string."""
    out = []
    for a in range(first, first + PAGE, CHUNK):
        out.append("".join("%sa%sb %s\u0301\n" % (c, c, c) for c in map(chr, range(a, a + CHUNK))) if not 0xD800 <= a < 0xE000 else "")
    return out


def ids(i, frag, n_vocab, byte_id, special):
    """An id sequence: any id, bytes of a text (whole or broken), special ids, repeats."""
    rng = Rng(i + (1 << 32))
    out = []
    for _ in range(1 + rng.below(24)):
        k = rng.below(8)
        if k < 4:
            out.append(rng.below(n_vocab + 2))
        elif k < 6 and byte_id:
            b = (frag[rng.below(len(frag))] if rng.below(2) else char(rng)).encode()
            if rng.below(3) == 0:
                b = b[rng.below(len(b)):]
            if rng.below(3) == 0:
                b = b[: 1 + rng.below(len(b))] if b else b
            out += [byte_id[x] for x in b[:40]]
        elif k == 6 and special:
            out.append(special[rng.below(len(special))])
        elif out:
            out += [out[-1]] * (1 + rng.below(3))
    return out


# ---------------------------------------------------------------- models

TEXTS = """The quick brown fox jumps over the lazy dog. It was the best of times, it was the worst of times; we had everything before us.
In the beginning there was nothing, and then there were many things: numbers like 123 and 4567, names, places and years such as 1984 or 2024.
"What is that?" she said. "I don't know, but we'll see," he answered. They're here, aren't they? It's what I've been told, and I'd believe it.
def main(argc, argv):\n    for i in range(0, 100):\n        if i % 2 == 0:\n            print("even", i)\n        else:\n            return None\n\n
#include <stdio.h>\nint main(void)\n{\n\tfor (int i = 0; i < n; i++) {\n\t\tprintf("%d\\n", x[i]);\n\t}\n\treturn 0;\n}\n
Привет, мир! Как дела? Это просто небольшой текст на русском языке. Καλημέρα κόσμε, αυτό είναι ένα κείμενο. Straße, naïve, café, Łódź, đường.
你好，世界！今天天气很好，我们去公园散步。日本語のテキストです。こんにちは世界。カタカナとひらがな。안녕하세요 세계. 한국어 텍스트입니다.
שלום עולם. مرحبا بالعالم. नमस्ते दुनिया। สวัสดีชาวโลก ภาษาไทย. 😀😂❤️👍🏽👩‍👩‍👧‍👦🇩🇪 ½ ² ① Ⅷ … — “quotes” «x» €5 £3 100% a@b.com https://x.org/a?b=c\n\n\n"""


def corpus(frag):
    rng, out = Rng(7), []
    words = TEXTS.split(" ")
    plain = [f for f in frag if "\0" not in f]
    for _ in range(6000):
        n = 3 + rng.below(12)
        out.append(" ".join(words[rng.below(len(words))] if rng.below(3) else plain[rng.below(len(plain))] for _ in range(n)))
    return out + TEXTS.split("\n") * 20


def as_json(tok):
    return json.loads(tok.to_str())["model"]


def train_bytes(texts, vocab, regex):
    t = Tokenizer(models.BPE())
    pre = [pre_tokenizers.Split(Regex(regex), "isolated")] if regex else []
    t.pre_tokenizer = pre_tokenizers.Sequence(pre + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return as_json(t)


def train_chars(texts, vocab, prepare, head, limit, **bpe):
    t = Tokenizer(models.BPE(**bpe))
    t.pre_tokenizer = pre_tokenizers.Split(Regex(r"(?<=▁)(?=[^▁])|\n"), "isolated") if "unk_token" not in bpe else pre_tokenizers.WhitespaceSplit()
    extra = {k: v for k, v in bpe.items() if k in ("continuing_subword_prefix", "end_of_word_suffix")}
    t.train_from_iterator([prepare(x) for x in texts], trainers.BpeTrainer(vocab_size=vocab, special_tokens=head, limit_alphabet=limit, show_progress=False, **extra))
    return as_json(t)


def charsmap():
    """A precompiled charsmap as sentencepiece makes it, of rules that are fewer than its own: compatibility forms, marks that compose,
    what goes altogether, keys that begin like others, and texts longer than their keys."""
    import sentencepiece
    rules = {}
    for a, b in [(0xA0, 0x17F), (0x2000, 0x206F), (0x2100, 0x2188), (0x2460, 0x24FF), (0x3000, 0x303F), (0x30A0, 0x30FF), (0x3300, 0x33FF), (0xFB00, 0xFB4F), (0xFF01, 0xFFEF), (0x1D400, 0x1D454)]:
        for c in range(a, b + 1):
            to = unicodedata.normalize("NFKC", chr(c))
            if to != chr(c):
                rules[chr(c)] = to
    for base in "aeiouAEIOUnNcC\u0438\u0418":
        for mark in "\u0300\u0301\u0302\u0303\u0308\u0306\u0327":
            to = unicodedata.normalize("NFKC", base + mark)
            if len(to) == 1:
                rules[base + mark] = to
    for base in range(0x304B, 0x3070):
        to = unicodedata.normalize("NFKC", chr(base) + "\u3099")
        if len(to) == 1:
            rules[chr(base) + "\u3099"] = to
    rules.update({c: "" for c in "\x01\x02\x1f\x7f\u200b\ufeff\u00ad"})
    rules.update({c: " " for c in "\t\n\r\u0085\u00a0\u2003\u3000"})
    rules.update({"\u1e9e": "SS", "\U0001f600": ":-D", "\u00df": "ss", "\u0915": "\u0916\u093c", "\u2764": "<3", "\u00a9": "(c)", "\uac00": "\u1100\u1161"})
    with tempfile.TemporaryDirectory() as d:
        with open(d + "/rules.tsv", "w") as f:
            for k, v in sorted(rules.items()):
                f.write(" ".join("%X" % ord(c) for c in k) + "\t" + " ".join("%X" % ord(c) for c in v) + "\n")
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g h"] * 20), model_prefix=d + "/m", vocab_size=12, hard_vocab_limit=False, minloglevel=2,
                                                 normalization_rule_tsv=d + "/rules.tsv")
        proto = open(d + "/m.model", "rb").read()
    return base64.b64encode(field(field(proto, 3), 2)).decode()


def field(proto, number):
    """The bytes of a field of a message of protobuf."""
    at = 0

    def varint():
        nonlocal at
        v, shift = 0, 0
        while True:
            b, at = proto[at], at + 1
            v, shift = v | (b & 127) << shift, shift + 7
            if b < 128:
                return v

    while at < len(proto):
        key = varint()
        if key & 7 == 2:
            n = varint()
            if key >> 3 == number:
                return proto[at : at + n]
            at += n
        elif key & 7 == 0:
            varint()
        else:
            at += 4 if key & 7 == 5 else 8
    raise KeyError(number)


def train_unigram(texts, vocab, head, unk, pre=None):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre or pre_tokenizers.Metaspace()
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=vocab, special_tokens=head, unk_token=unk, show_progress=False, max_piece_length=12))
    return as_json(t)


def train_wordpiece(texts, vocab, head):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=head, limit_alphabet=200, show_progress=False))
    return as_json(t)


def ties():
    """Scores that are equal, and sums that differ in their last bits alone: of ways that score the same, the first found counts."""
    texts = ["<unk>", "a", "b", "ab", "ba", "aba", "bab", "e", "t", "th", "he", "the", "\u2581", "\u2581t", "\u2581th", "\u2581the", "o", "n", "on", "no", "ono", "non", "\u4e16", "\u754c", "\u4e16\u754c",
             "\u00e9", "e\u0301", "aa", "aaa", "aaaa", "0", "1", "01", "10", "\u2581a", "ing", "in", "g", "i", "ng", "xy", "\u0451\u043b"]
    score = lambda t: -0.1 * len(t) - (0.3 if len(t) % 2 else 0.1 + 0.2) if len(t) < 3 else -0.7 * len(t)
    return {"type": "Unigram", "unk_id": 0, "vocab": [[t, -30.0 if t in ("xy", "<unk>") else score(t)] for t in texts], "byte_fallback": False}


def drop_merges(m, every):
    """Tokens that no merge makes: only ignore_merges reaches them."""
    keep, gone = [], set()
    for i, (a, b) in enumerate(m["merges"]):
        if (i % every == every - 1 and i > 100) or a in gone or b in gone:
            gone.add(a + b)
        else:
            keep.append([a, b])
    return dict(m, merges=keep)


def old_merges(m):
    return dict(m, merges=[" ".join(p) for p in m["merges"]])


BYTES = ["<0x%02X>" % b for b in range(256)]


# ---------------------------------------------------------------- kinds

CON = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
CL3 = CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
CL1 = CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL
QWEN35 = CON + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL
UP, LO = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
HEAD = r"[^\r\n\p{L}\p{N}]?"
O200K = HEAD + UP + "*" + LO + "+" + CON + "?|" + HEAD + UP + "+" + LO + "*" + CON + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
TEKKEN = HEAD + UP + "*" + LO + "+|" + HEAD + UP + "+" + LO + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + TAIL
DSV3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*".replace('\\"', '"') + TAIL]
BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED = CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + TAIL
KIMI = (r"[\p{Han}]+|" + HEAD + UP[:-1] + r"&&[^\p{Han}]]*" + LO[:-1] + r"&&[^\p{Han}]]+" + CON + "?|" + HEAD + UP[:-1] + r"&&[^\p{Han}]]+" + LO[:-1]
        + r"&&[^\p{Han}]]*" + CON + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL)
CL2 = CON + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL  # known to nobody: through PCRE2


def split(regex, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}


def text_split(text, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"String": text}, "behavior": behavior, "invert": invert}


def seq(*p):
    return {"type": "Sequence", "pretokenizers": list(p)}


def norms(*p):
    return {"type": "Sequence", "normalizers": list(p)}


def byte_level(regex=False, prefix=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def replace(a, b, regex=False):
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": a}, "content": b}


def decoders(*p):
    return {"type": "Sequence", "decoders": list(p)}


def meta(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def template(before, after=()):
    names = list(before) + list(after)
    return {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": n, "type_id": 0}} for n in before] + [{"Sequence": {"id": "A", "type_id": 0}}]
            + [{"SpecialToken": {"id": n, "type_id": 0}} for n in after],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {n: {"id": n, "ids": [None], "tokens": [n]} for n in names}}  # ids are filled in below


def added(content, special=False, normalized=None, **flags):
    d = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special if normalized is None else normalized, "special": special}
    return dict(d, **flags)


CHATML = [added("<|endoftext|>", True), added("<|im_start|>", True), added("<|im_end|>", True), added("<tool_call>", normalized=False), added("</tool_call>", normalized=False)]
SPM_HEAD = [added("<unk>", True), added("<s>", True), added("</s>", True)]
SPM_DECODER = decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0})
GEMMA_DECODER = decoders(replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"})
BL = byte_level()
LOWER, STRIP = {"type": "Lowercase"}, {"type": "Strip", "strip_left": True, "strip_right": True}
VARIANTS = [added("<lr>", True, lstrip=True, rstrip=True), added("<sw>", single_word=True), added("[MASK]", True, lstrip=True, normalized=True), added("Day"),
            added("foo", single_word=True, rstrip=True), added("foobar", normalized=False), added("<n>", rstrip=True), added("\n\n", normalized=False, lstrip=True),
            added("<|im_start|>", True), added("<|im_", normalized=False), added("the", normalized=False, single_word=True), added("ﬁ"), added("  ", normalized=False, rstrip=True)]


CHARSMAP = ""  # made once, then kept in kinds.json


def kinds():
    k = {}

    def kind(name, model, pre=None, norm=None, dec=BL, post=None, tokens=CHATML, **model_set):
        k[name] = {"model": model, "set": model_set, "added_tokens": tokens, "normalizer": norm, "pre_tokenizer": pre, "post_processor": post, "decoder": dec}

    nfc = {"type": "NFC"}
    kind("cl1", "bytes", seq(split(CL1), BL), nfc)
    kind("cl1_words", "words", seq(split(CL1), BL), nfc)
    kind("cl3", "bytes_cut", seq(split(CL3), BL), post={"type": "Sequence", "processors": [BL, template(["<|endoftext|>"])]}, ignore_merges=True)
    kind("qwen35", "bytes", seq(split(QWEN35), BL), nfc)
    kind("o200k", "bytes", seq(split(O200K), BL))
    kind("tekken", "bytes_cut", seq(split(TEKKEN), BL), ignore_merges=True, post=template(["<|im_start|>"], ["<|im_end|>"]))
    kind("dsv3", "bytes", seq(*[split(r) for r in DSV3], BL), post=template(["<|endoftext|>"]))
    kind("gpt2", "bytes", byte_level(True), dec=byte_level(True))
    kind("gpt2_prefix", "bytes", byte_level(True, True), post=BL, dec=byte_level(True, True))
    kind("two_step", "bytes", seq({"type": "Digits", "individual_digits": True}, byte_level(True)))
    kind("two_step_split", "bytes", seq(split(r"\p{N}"), byte_level(True)))
    kind("bailing", "bytes", seq(split(BAILING), BL), nfc)
    kind("cl100k", "bytes", seq(split(BAILING.replace(r"\p{N}|", r"\p{N}{1,3}|"), "Removed", True), BL))
    kind("seed", "bytes", seq(split(SEED), BL))
    kind("kimi", "bytes", seq(split(KIMI), BL))
    kind("pcre", "bytes", seq(split(CL2), BL), nfc)
    kind("llama2", "spm", norm=norms({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), dec=SPM_DECODER, tokens=SPM_HEAD, post=template(["<s>"]))
    kind("mistral", "spm", meta("first", False), dec=SPM_DECODER, tokens=SPM_HEAD, post=template(["<s>"], ["</s>"]))
    kind("metaspace", "spm", meta(), dec=meta(), tokens=SPM_HEAD)
    kind("gemma", "spm", text_split(" ", "MergedWithPrevious"), replace(" ", "▁"), dec=GEMMA_DECODER, tokens=SPM_HEAD + [added("\n\n", normalized=False), added("▁▁", normalized=False)])
    kind("gemma_whole", "spm", None, replace(" ", "▁"), dec=GEMMA_DECODER, tokens=SPM_HEAD)
    kind("spm_no_bytes", "spm_plain", meta("never"), norm={"type": "NFKC"}, dec=meta("never"), tokens=SPM_HEAD[:1])
    kind("added", "bytes", byte_level(True), LOWER, tokens=VARIANTS)
    kind("added_raw", "bytes", seq(split(CL1), BL), tokens=VARIANTS)
    kind("added_spm", "spm", None, norms({"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")), dec=SPM_DECODER,
         tokens=SPM_HEAD[:1] + [added("<s>", True), added("</s>", False), added("user"), added("<mask>", True, lstrip=True, normalized=False)])
    kind("nfkc_lower", "chars", {"type": "WhitespaceSplit"}, norms({"type": "NFKC"}, LOWER, STRIP, replace(r"[ \t]{2,}", " ", True)), dec=None, tokens=[added("<unk>", True)])
    kind("nfd_accents", "chars", {"type": "Whitespace"}, norms({"type": "NFD"}, {"type": "StripAccents"}, LOWER), dec={"type": "Fuse"}, tokens=[added("<unk>", True)], fuse_unk=True)
    kind("nfkd_nmt", "chars", seq({"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Contiguous"}), norms({"type": "Nmt"}, {"type": "NFKD"}), dec={"type": "Fuse"},
         tokens=[added("<unk>", True)])
    kind("bert", "chars", {"type": "BertPreTokenizer"}, {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
         dec=None, tokens=[added("<unk>", True), added("[MASK]", True)], post={"type": "BertProcessing", "sep": ["[MASK]", None], "cls": ["<unk>", 0]})
    kind("delimiter", "chars", seq({"type": "CharDelimiterSplit", "delimiter": "e"}, {"type": "FixedLength", "length": 3}), dec=None, tokens=[added("<unk>", True)])
    kind("behaviors", "bytes", seq({"type": "Punctuation", "behavior": "MergedWithNext"}, split(r"\d+", "Contiguous"), split(r"[aeiou]+", "MergedWithPrevious", True),
                                   split(r"(?=[A-Z])", "Isolated"), text_split("ab", "Removed"), {"type": "Digits", "individual_digits": False}, BL))
    kind("regex_classes", "bytes", seq(split(r"\w+", "Isolated"), split(r"[\s[:punct:]]+", "MergedWithNext"), split(r"\h\S?|\W\d", "Isolated"), BL))
    kind("regex_nested", "bytes", seq(split(r"\b\p{Lu}|[[:upper:]]+\B", "MergedWithNext"), split(r"[\w&&[^[:digit:]_]&&[^\p{M}]]+|[[^\s]&&[\W]]{2,3}+", "Isolated"),
                                      split(r"(?i)straße|ﬁ|[k-mſ]+|the\b", "Contiguous"), split(r"\R|[[:blank:]]|(?<=[[:alpha:]])\p{^L}", "MergedWithPrevious"), BL))
    kind("norm_bytes", "bytes", split(r"Ġ?\p{L}+|.", "Isolated"), {"type": "ByteLevel"})
    kind("words_suffix", "suffix", byte_level(True), LOWER, dec={"type": "BPEDecoder", "suffix": "</w>"}, tokens=CHATML[:2])
    unigram_head = [added("<s>", True), added("<pad>", True), added("</s>", True), added("<unk>", True)]
    mask = [added("<mask>", True, lstrip=True, normalized=False)]
    charsmap = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
    kind("xlmr", "unigram", seq({"type": "WhitespaceSplit"}, meta()), norms(charsmap, replace(" {2,}", " ", True)), dec=meta(), tokens=unigram_head + mask, post=template(["<s>"], ["</s>"]))
    kind("t5", "unigram", meta(), charsmap, dec=meta(), tokens=unigram_head[1:] + [added("<extra_id_0>", True), added("<extra_id_1>", True, lstrip=True, rstrip=True)], post=template([], ["</s>"]))
    kind("albert", "unigram", seq({"type": "WhitespaceSplit"}, meta()), norms(replace("``", '"'), replace("\'\'", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, LOWER, charsmap), dec=meta(),
         tokens=unigram_head + mask, post=template(["<s>"], ["</s>"]))
    kind("unigram_whole", "unigram_bytes", None, replace(" ", "▁"), dec=GEMMA_DECODER, tokens=SPM_HEAD)
    kind("unigram_first", "unigram_bytes", meta("first", False), {"type": "NFC"}, dec=SPM_DECODER, tokens=SPM_HEAD, post=template(["<s>"]))
    kind("unigram_ties", "ties", meta("always"), dec=meta(), tokens=SPM_HEAD[:1])
    words_head = [added(t, True) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")]
    bert_post = template(["[CLS]"], ["[SEP]"])
    bert_norm = lambda lower, accents, clean=True, han=True: {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": han, "strip_accents": accents, "lowercase": lower}
    word_piece = lambda cleanup: {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}
    kind("bert_uncased", "wordpiece", {"type": "BertPreTokenizer"}, bert_norm(True, None), dec=word_piece(True), tokens=words_head, post=bert_post)
    kind("bert_cased", "wordpiece", {"type": "BertPreTokenizer"}, bert_norm(False, None), dec=word_piece(False), tokens=words_head, post=bert_post)
    kind("bert_accents", "wordpiece", {"type": "Whitespace"}, bert_norm(False, True, False, False), dec=word_piece(True), tokens=words_head, max_input_chars_per_word=12)
    kind("scripts", "wordpiece", seq({"type": "UnicodeScripts"}, {"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "MergedWithPrevious"}), STRIP, dec=word_piece(False), tokens=words_head[:2])
    kind("dropped", "chars", {"type": "WhitespaceSplit"}, dec=None, tokens=[added("<unk>", True)], unk_token=None)
    kind("words_prefix", "prefix", {"type": "Whitespace"}, dec={"type": "Fuse"}, tokens=[added("<unk>", True)])
    return k


MODELS = {
    "unigram": lambda texts: train_unigram(texts, 1400, ["<s>", "<pad>", "</s>", "<unk>"], "<unk>"),
    "unigram_bytes": lambda texts: dict(train_unigram(texts, 1100, ["<unk>", "<s>", "</s>"] + BYTES, "<unk>"), byte_fallback=True),
    "ties": lambda texts: ties(),
    "wordpiece": lambda texts: train_wordpiece(texts, 1200, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]),
}


def build_models(frag):
    texts = corpus(frag)
    m = {"bytes": train_bytes(texts, 1600, None), "words": old_merges(train_bytes(texts, 900, CL1))}
    m["bytes_cut"] = drop_merges(m["bytes"], 5)
    spm = train_chars(texts, 1100, lambda s: "▁" + s.replace(" ", "▁"), ["<unk>", "<s>", "</s>"] + BYTES, 220)
    m["spm"] = dict(spm, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    plain = train_chars(texts, 700, lambda s: "▁" + s.replace(" ", "▁"), ["<unk>"], 150)
    m["spm_plain"] = dict(plain, unk_token="<unk>", fuse_unk=False, byte_fallback=False)
    m["chars"] = train_chars([unicodedata.normalize("NFKC", t).lower() for t in texts], 600, str, ["<unk>"], 120, unk_token="<unk>")
    m["prefix"] = train_chars(texts, 600, str, ["<unk>"], 120, unk_token="<unk>", continuing_subword_prefix="##")
    t = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator([x.lower() for x in texts], trainers.BpeTrainer(vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), end_of_word_suffix="</w>", show_progress=False))
    m["suffix"] = as_json(t)
    return m


def ids_of(model):
    """token -> id"""
    return model["vocab"] if isinstance(model["vocab"], dict) else {t: i for i, (t, _) in enumerate(model["vocab"])}


def whole(kind, m):
    """tokenizer.json of a kind; the C test puts it together the same way."""
    model = m[kind["model"]]
    vocab, next_id, tokens = ids_of(model), len(model["vocab"]), []
    for a in kind["added_tokens"]:
        known = a["content"] in vocab
        tokens.append(dict(id=vocab[a["content"]] if known else next_id, **a))
        next_id += not known
    by_name = dict(vocab, **{t["content"]: t["id"] for t in tokens})

    def fill(p):
        for q in p.get("processors", []) if p else []:
            fill(q)
        for n, s in (p or {}).get("special_tokens", {}).items():
            s["ids"] = [by_name[n]]
        for n in ("sep", "cls"):
            if p and n in p:
                p[n][1] = by_name[p[n][0]]

    fill(kind["post_processor"])
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": kind["normalizer"], "pre_tokenizer": kind["pre_tokenizer"],
            "post_processor": kind["post_processor"], "decoder": kind["decoder"], "model": dict(model, **kind["set"])}


def digest(parts):
    h = hashlib.sha256()
    for p in parts:
        h.update(p)
    return h.digest()[:8]


def byte_ids(tok):
    """The token of each byte, or nothing where the vocabulary does not have them all."""
    for names in (BYTES, byte_chars()):
        found = [tok.token_to_id(x) for x in names]
        if None not in found:
            return found
    return []


def without_special(full):
    """For plain text: where the model itself knows special tokens, no text may reach them."""
    model, gone = full["model"], {t["content"] for t in full["added_tokens"] if t["special"]}
    name = lambda t: "\U0010ffff" + t if t in gone else t
    if model["type"] == "Unigram":
        model = dict(model, vocab=[[name(t), s] for t, s in model["vocab"]])
    elif model["type"] == "WordPiece":
        model = dict(model, vocab={name(t): i for t, i in model["vocab"].items()}, unk_token=name(model["unk_token"]))
    else:
        return full
    return dict(full, model=model, added_tokens=[dict(t, content=name(t["content"])) for t in full["added_tokens"]])


def golden(full, frag, strings):
    out = [None] * N
    for plain in (True, False):
        tok = Tokenizer.from_str(json.dumps(without_special(full) if plain else full))
        tok.encode_special_tokens = plain
        for special in (False, True):
            mine = [i for i in range(N) if (i % 5 == 0) == plain and (i % 2 == 1) == special]
            for i, e in zip(mine, tok.encode_batch([strings[i] for i in mine], add_special_tokens=special)):
                out[i] = struct.pack("<%dI" % (len(e.ids) + 1), len(e.ids), *e.ids)
    tok.encode_special_tokens = False
    byte_id = byte_ids(tok)
    special = sorted(t["id"] for t in full["added_tokens"] if t["special"])
    n_vocab = 1 + max(max(ids_of(full["model"]).values()), max(t["id"] for t in full["added_tokens"]))
    texts = []
    for i in range(N):
        seq_ids = ids(i, frag, n_vocab, byte_id, special)
        if i % 2 == 0:  # by id: the library (0.23) compares texts, and misses special tokens that its normalizer changes
            seq_ids = [x for x in seq_ids if x not in special]
        s = (tok.decode(seq_ids, skip_special_tokens=False) if seq_ids else "").encode()
        texts.append(struct.pack("<I", len(s)) + s)
    pages = []
    for page in PAGES:
        pages.append(digest(struct.pack("<%dI" % (len(e.ids) + 1), len(e.ids), *e.ids) for e in tok.encode_batch(unicode_strings(page * PAGE), add_special_tokens=False)))
    return [digest(x[b : b + BLOCK]) for x in (out, texts) for b in range(0, N, BLOCK)] + pages


def byte_chars():
    keep = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) if b in keep else chr(256 + rest.index(b)) for b in range(256)]


def dump(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def main():
    global CHARSMAP
    p = argparse.ArgumentParser()
    p.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "..", "tests", "data", "tokenizer"))
    p.add_argument("kinds", nargs="*", help="whose hashes are made; without any: all")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    in_out = lambda name: os.path.join(a.out, name)
    frag = fragments()
    # Training breaks ties as it likes: models, and the charsmap, stay until they are removed.
    old = load(in_out("kinds.json")) if os.path.exists(in_out("kinds.json")) else {}
    CHARSMAP = old["t5"]["normalizer"]["precompiled_charsmap"] if "t5" in old else charsmap()
    ks, m = kinds(), {}
    for name in {k["model"] for k in ks.values()}:
        if os.path.exists(in_out("model_%s.json" % name)):
            m[name] = load(in_out("model_%s.json" % name))
        else:
            m[name] = MODELS[name](corpus(frag)) if name in MODELS else build_models(frag)[name]
            dump(in_out("model_%s.json" % name), m[name])
    strings = [string(i, frag) for i in range(N)]
    dump(in_out("alphabet.json"), {"fragments": frag, "ranges": RANGES})
    listed = {}
    for name, kind in ks.items():
        full = whole(kind, m)
        listed[name] = dict(full, model={"file": kind["model"], "set": kind["set"]})
        if a.kinds and name not in a.kinds:
            continue
        with open(in_out(name + ".bin"), "wb") as f:
            f.write(b"".join(golden(full, frag, strings)))
        print(name, flush=True)
    dump(in_out("kinds.json"), listed)


if __name__ == "__main__":
    main()
