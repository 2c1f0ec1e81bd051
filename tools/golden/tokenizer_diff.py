#!/usr/bin/env python3
"""Where Spillway's ids differ from those of the `tokenizers` library.

    pip install tokenizers && ninja -C build/check tokenize
    python3 tools/golden/tokenizer_diff.py [--unicode] [--strings N] [--tokenize PROGRAM] [--show N] KIND|FOLDER..

KIND is one of tests/data/tokenizer, FOLDER a folder with a tokenizer.json; without any, all kinds. --unicode: every code point alone,
between letters, after a space, and before a combining mark; --strings: the first N strings of tools/golden/make_tokenizer_golden.py, 10,000 if
neither is said, and id sequences back to text. Prints what differs, and how many of how many; the exit status says whether any did."""
import argparse, json, os, subprocess, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from tokenizers import Tokenizer

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_tokenizer_golden as golden

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
DATA = os.path.join(ROOT, "tests", "data", "tokenizer")
CONTEXTS = ["%s", "a%sb", " %s", "%s\u0301"]
PLANE = 1 << 16


def load(name):
    """The tokenizer.json of a kind or folder."""
    if os.path.isdir(name):
        return json.load(open(os.path.join(name, "tokenizer.json"), encoding="utf-8"))
    kind = json.load(open(os.path.join(DATA, "kinds.json"), encoding="utf-8"))[name]
    model = json.load(open(os.path.join(DATA, "model_%s.json" % kind["model"]["file"]), encoding="utf-8"))
    return dict(kind, model=dict(model, **kind["model"]["set"]))


def ours(program, folder, lines, *options):
    """Threads, because the program is one."""
    def some(part):
        text = "".join(x + "\n" for x in part)
        return subprocess.run([program, "--lines", *options, folder], input=text, capture_output=True, text=True).stdout.split("\n")[:-1]

    size = 1 + len(lines) // 4
    with ThreadPoolExecutor(4) as pool:
        return [x for part in pool.map(some, [lines[i : i + size] for i in range(0, len(lines), size)]) for x in part]


def compare(program, folder, tok, reference, strings, plain, special, show):
    """How many of the strings differ. reference: what the library is to be asked, which is another tokenizer for plain text."""
    options = ["--plain"] * plain + ["--special"] * special
    got = ours(program, folder, [json.dumps(s) for s in strings], *options)
    lib = reference if plain else tok
    lib.encode_special_tokens = plain
    bad = 0
    for i in range(0, len(strings), PLANE):
        for s, e, g in zip(strings[i : i + PLANE], lib.encode_batch(strings[i : i + PLANE], add_special_tokens=special), got[i : i + PLANE]):
            want = " ".join(map(str, e.ids))
            if want != g:
                bad += 1
                if bad <= show:
                    print("  %s %s: %s, not %s" % (json.dumps(s)[:200], options, g[:200], want[:200]))
    assert len(got) == len(strings)
    return bad


def decode(program, folder, tok, full, strings, show):
    bad, n_vocab = 0, tok.get_vocab_size()
    frag = golden.fragments()
    byte_id = golden.byte_ids(tok)
    special = sorted(t["id"] for t in full["added_tokens"] if t["special"])
    seqs = [golden.ids(i, frag, n_vocab, byte_id, special) for i in range(strings)]
    got = ours(program, folder, [" ".join(map(str, s)) for s in seqs], "--decode")
    for s, g in zip(seqs, got):
        want = tok.decode(s, skip_special_tokens=False) if s else ""
        if json.loads(g) != want:
            bad += 1
            if bad <= show:
                print("  %s: %s, not %s" % (s[:40], g[:200], json.dumps(want)[:200]))
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--unicode", action="store_true")
    p.add_argument("--strings", type=int, default=0)
    p.add_argument("--tokenize", default=os.path.join(ROOT, "build", "check", "tools", "tokenize"))
    p.add_argument("--show", type=int, default=10)
    p.add_argument("names", nargs="*")
    a = p.parse_args()
    if not a.unicode and not a.strings:
        a.strings = golden.N
    frag, total = golden.fragments(), 0
    strings = [golden.string(i, frag) for i in range(a.strings)]
    chars = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000] if a.unicode else []
    for name in a.names or sorted(json.load(open(os.path.join(DATA, "kinds.json"), encoding="utf-8"))):
        full = load(name)
        tok, reference = Tokenizer.from_str(json.dumps(full)), Tokenizer.from_str(json.dumps(golden.without_special(full)))
        with tempfile.TemporaryDirectory() as folder:
            json.dump(full, open(os.path.join(folder, "tokenizer.json"), "w"))
            bad, n = 0, 0
            for context in CONTEXTS if a.unicode else []:
                bad += compare(a.tokenize, folder, tok, reference, [context % c for c in chars], False, False, a.show)
                n += len(chars)
            if strings:
                bad += sum(compare(a.tokenize, folder, tok, reference, strings, plain, special, a.show) for plain in (False, True) for special in (False, True))
                bad += decode(a.tokenize, folder, tok, full, len(strings), a.show)
                n += 5 * len(strings)
        total += bad
        print("%s: %d of %d differ" % (name, bad, n), flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
