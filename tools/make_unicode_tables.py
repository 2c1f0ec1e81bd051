#!/usr/bin/env python3
"""Makes api/token/tok_unicode_data.c: what the `tokenizers` library knows about each code point, found out by asking the library itself.

    pip install tokenizers && python3 tools/make_unicode_tables.py [FILE]

The library's parts come with Unicode tables of different versions: its regex engine (Oniguruma), Rust's own characters, Rust's regex,
the crate of normal forms, the one of categories for punctuation, the one of scripts, the one of grapheme clusters. So nothing here is
read from a Unicode database: every code point goes through each part, and what comes out is the table."""
import base64, os, struct, sys
from tokenizers import Regex, __version__, normalizers, pre_tokenizers

LAST = 0x110000
CODES = [c for c in range(LAST) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, CODES))  # a set of the regex engine is one search through it

CATEGORIES = "Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co".split()
CC_SPACE, CC_LINE = 30, 31  # controls that are white space; line ends

# Sets of the regex engine that are a trait each (enum tok_trait has the same order).
ONIG = [r"\w", r"\s", r"\p{Alphabetic}", r"\p{Uppercase}", r"\p{Lowercase}", r"[[:punct:]]", r"[[:graph:]]", r"[[:print:]]", r"[[:blank:]]", r"\p{Emoji}",
        r"\p{Emoji_Presentation}", r"\p{Emoji_Modifier}", r"\p{Emoji_Modifier_Base}", r"\p{Extended_Pictographic}", r"\p{Ideographic}", r"\p{Unified_Ideograph}",
        r"\p{ID_Start}", r"\p{ID_Continue}", r"\p{Math}", r"\p{Dash}"]

SCRIPTS = """adlam ahom anatolianhieroglyphs arabic armenian avestan balinese bamum bassavah batak bengali bhaiksuki bopomofo brahmi braille buginese buhid
canadianaboriginal carian caucasianalbanian chakma cham cherokee chorasmian common coptic cuneiform cypriot cyprominoan cyrillic deseret devanagari divesakuru
dogra duployan egyptianhieroglyphs elbasan elymaic ethiopic garay georgian glagolitic gothic grantha greek gujarati gunjalagondi gurmukhi gurungkhema han hangul
hanifirohingya hanunoo hatran hebrew hiragana imperialaramaic inherited inscriptionalpahlavi inscriptionalparthian javanese kaithi kannada katakana kawi kayahli
kharoshthi khitansmallscript khmer khojki khudawadi kiratrai lao latin lepcha limbu lineara linearb lisu lycian lydian mahajani makasar malayalam mandaic
manichaean marchen masaramgondi medefaidrin meeteimayek mendekikakui meroiticcursive meroitichieroglyphs miao modi mongolian mro multani myanmar nabataean
nagmundari nandinagari newa newtailue nko nushu nyiakengpuachuehmong ogham olchiki oldhungarian olditalic oldnortharabian oldpermic oldpersian oldsogdian
oldsoutharabian oldturkic olduyghur olonal oriya osage osmanya pahawhhmong palmyrene paucinhau phagspa phoenician psalterpahlavi rejang runic samaritan saurashtra
sharada shavian siddham signwriting sinhala sogdian sorasompeng soyombo sundanese sunuwar sylotinagri syriac tagalog tagbanwa taile taitham taiviet takri tamil
tangsa tangut telugu thaana thai tibetan tifinagh tirhuta todhri toto tulutigalari ugaritic vai vithkuqi wancho warangciti yezidi yi zanabazarsquare""".split()


def members(pattern):
    """Code points of a set of the regex engine."""
    out = set()
    for _, (a, b) in pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(TEXT):
        out.update(CODES[a:b])
    return out


def pieces(pre, text):
    return [a for a, _ in pre.pre_tokenize_str(text)]


def each(test):
    return {c for c in CODES if test(chr(c))}


# ---------------------------------------------------------------- grapheme clusters

def charsmap_of_lead_bytes():
    """A charsmap that makes X of everything: keys are the lead bytes alone, and the shortest key wins. So a cluster of up to 5 bytes is
    one X, and any other text one X for each character."""
    keys = [b for b in range(1, 256) if not 0x80 <= b < 0xC2 and b < 0xF5]
    units = [0] * 1024
    units[0] = 256 << 10  # root: its children are at 256 ^ byte
    for b in keys:
        units[256 ^ b] = b | 1 << 8 | ((256 ^ b) ^ 768) << 10  # has a leaf, at 768
    units[768] = 1 << 31  # leaf: offset 0 of the texts
    trie = struct.pack("<%dI" % len(units), *units)
    return struct.pack("<I", len(trie)) + trie + b"X\0"


def clusters():
    """What the charsmap normalizer can tell: which characters continue a cluster, and so on. Whether a cluster has more than 5 bytes is
    all that matters, so characters of 4 bytes need no class but the pictographs, behind which others are told to join."""
    n = normalizers.Precompiled(charsmap_of_lead_bytes())

    def those(make, expect, among=range(1, LAST)):
        out, among = set(), [c for c in among if not 0xD800 <= c < 0xE000]
        for i in range(0, len(among), 2048):
            part = among[i : i + 2048]
            for c, x in zip(part, n.normalize_str("\0".join(make(chr(c)) for c in part)).split("\0")):
                if x == expect:
                    out.add(c)
        return out

    three = range(0x800, 0x10000)
    mark = "\u0300"  # 2 bytes: behind a character of 3 it makes a cluster of 5, one X
    extend = those(lambda x: "a" + x, "X")
    prepend = those(lambda x: x + "a", "X")
    control = those(lambda x: x + mark, "XX", range(1, 0x10000))
    joined = lambda left, right, among: those(lambda x: left + x + right + mark, "X" * len(left + "x" + right + mark), among) - extend - prepend
    t = joined("\uac01", "", three)
    v = joined("\uac00", "", three) - t
    lead = joined("", "\u1161", three) & joined("\u1100", "", three)
    lead -= v | t | set(range(0xAC00, 0xD7A4))
    picture = those(lambda x: "\u00a9\u200d" + x, "XXX") - extend
    consonant = joined("", "\u094d\u0915", three)
    linker = those(lambda x: "\u0915" + x + "\u0915" + mark, "XXXX", three) & extend
    links = those(lambda x: "\u0915" + x + "\u094d\u0915" + mark, "XXXXX") & extend
    picture_extend = those(lambda x: "\u00a9" + x + "\u200d\u00a9" + mark, "XXXXX") & extend
    return [extend, prepend, control | {0}, lead, v, t, picture, consonant, linker, links, picture_extend]


# ---------------------------------------------------------------- what Rust's side says of one character

def by_pieces():
    word, space = set(), set()
    whites, digits, punct = pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Punctuation()
    words = pre_tokenizers.Whitespace()
    white, numeric, mark = set(), set(), set()
    for c in CODES:
        x = chr(c)
        if len(pieces(whites, "a" + x + "a")) == 2:
            white.add(c)
        if len(pieces(digits, "a" + x + "a")) == 3:
            numeric.add(c)
        if len(pieces(punct, "a" + x + "a")) == 3:
            mark.add(c)
        w = pieces(words, "a" + x)
        if w == ["a" + x]:
            word.add(c)
        elif w == ["a"]:
            space.add(c)
    assert space == white, "Rust's regex and Rust's char differ about white space"
    return [word, white, numeric, mark]


def by_normalizers(nfd):
    """StripAccents, the three parts of BertNormalizer, Nmt."""
    bert = lambda **on: normalizers.BertNormalizer(**dict(dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **on))
    accents, clean, han, nmt, marks = normalizers.StripAccents(), bert(clean_text=True), bert(handle_chinese_chars=True), normalizers.Nmt(), bert(strip_accents=True)
    s = {k: set() for k in ("accent", "clean_gone", "clean_space", "han", "nmt_gone", "nmt_space", "mn")}

    def sort(c, y, gone, space=None):
        if y == "" and gone:
            s[gone].add(c)
        elif y == " " and c != 32 and space:
            s[space].add(c)
        else:
            assert y == chr(c), (hex(c), y, gone)

    for c in CODES:
        x = chr(c)
        sort(c, accents.normalize_str(x), "accent")
        sort(c, clean.normalize_str(x), "clean_gone", "clean_space")
        sort(c, nmt.normalize_str(x), "nmt_gone", "nmt_space")
        y = han.normalize_str(x)
        if y == " " + x + " ":
            s["han"].add(c)
        else:
            assert y == x, hex(c)
        if nfd.get(c) is None and marks.normalize_str(x) == "":
            s["mn"].add(c)
    for c in CODES:
        if 0xAC00 <= c < 0xD7A4:
            continue  # Hangul syllables have no accents
        want = "".join(ch for ch in map(chr, nfd.get(c) or [c]) if ord(ch) not in s["mn"])
        assert marks.normalize_str(chr(c)) == want, hex(c)
    return list(s.values())


def lower():
    n = normalizers.Lowercase()
    return {c: [ord(y) for y in n.normalize_str(chr(c))] for c in CODES if n.normalize_str(chr(c)) != chr(c)}


def folds():
    """What the regex engine takes for one character but for its case: others of one character each, and sequences that are one character."""
    cased = {y for c in CODES for y in {chr(c).lower(), chr(c).upper(), chr(c).casefold(), chr(c)} if len(y) == 1 and (chr(c).lower() != chr(c) or chr(c).upper() != chr(c))}
    for c, low in lower().items():
        cased |= {chr(c)} | ({chr(low[0])} if len(low) == 1 else set())
    cased = sorted(cased)
    text, others = "\n".join(cased), {}
    for x in cased:
        mates = [y for y, _ in pre_tokenizers.Split(Regex("(?i:\\x{%x})" % ord(x)), "removed", invert=True).pre_tokenize_str(text) if y != x]
        if mates:
            others[ord(x)] = sorted(ord(y) for y in mates if len(y) == 1)
    many = {}
    for c in CODES:
        x = chr(c)
        for seq in {x.casefold(), x.lower(), x.upper().casefold()}:
            if len(seq) > 1 and pieces(pre_tokenizers.Split(Regex("(?i:%s)" % "".join("\\x{%x}" % ord(y) for y in seq)), "removed", invert=True), x) == [x]:
                many[c] = [ord(y) for y in seq]
    return others, many


# ---------------------------------------------------------------- normal forms

def decompositions():
    d, k = normalizers.NFD(), normalizers.NFKD()
    nfd, nfkd = {}, {}
    for c in CODES:
        if 0xAC00 <= c < 0xD7A4:
            continue  # Hangul by arithmetic
        x = chr(c)
        a, b = d.normalize_str(x), k.normalize_str(x)
        if a != x:
            nfd[c] = [ord(y) for y in a]
        if b != a:
            nfkd[c] = [ord(y) for y in b]
    return nfd, nfkd


def combining_classes(nfd):
    """Only their order can be seen, and only their order counts: marks sort by it. So classes are numbered 1, 2, .. ."""
    d = normalizers.NFD()
    before = lambda a, b: a != b and d.normalize_str("a" + chr(b) + chr(a)) == "a" + chr(a) + chr(b)  # a sorts in front of b: its class is lower
    top, rest = 0x345, [c for c in CODES if c not in nfd and not 0xAC00 <= c < 0xD7A4]
    marks = [top] + [c for c in rest if before(c, top)]
    reps = []  # one of each class, in order
    at = {}
    for c in marks:
        lo, hi = 0, len(reps)
        while lo < hi:
            mid = (lo + hi) // 2
            if before(reps[mid], c):
                lo = mid + 1
            else:
                hi = mid
        if lo == len(reps) or before(c, reps[lo]):
            reps.insert(lo, c)
        at[c] = None
    for c in marks:
        at[c] = 1 + sum(before(r, c) for r in reps)
    return at


def compositions(nfd):
    n = normalizers.NFC()
    out = []
    for c, d in sorted(nfd.items()):
        if len(d) < 2 or n.normalize_str("".join(map(chr, d))) != chr(c):
            continue
        first = n.normalize_str("".join(map(chr, d[:-1])))
        assert len(first) == 1, hex(c)
        out.append((ord(first), d[-1], c))
    return out


def changed_by_nfc(nfd):
    n = normalizers.NFC()
    return {c for c in nfd if n.normalize_str(chr(c)) != chr(c)}


# ---------------------------------------------------------------- scripts

def scripts_of_pretokenizer():
    """UnicodeScripts cuts between characters of two scripts; one that is of any script is never cut off. Scripts are numbered as met,
    0 is any script."""
    p = pre_tokenizers.UnicodeScripts()
    cut = lambda a, b: len(pieces(p, a + b)) == 2
    out, reps, known, before = {}, [], 0, ""
    for c in CODES:
        x = chr(c)
        if not cut(x, "a") and not cut(x, "\u0431"):  # neither Latin nor Cyrillic is another one
            known = 0
        elif not known or cut(before, x):
            known = next((i for i, r in enumerate(reps, 1) if not cut(r, x)), 0)
            if not known:
                reps.append(x)
                known = len(reps)
        out[c], before = known, x
    return out


# ---------------------------------------------------------------- the file

def rows(values):
    """(from, value) where it changes; values: code point -> value, surrogates take what is before them."""
    out, last = [], None
    for c in range(LAST):
        v = values.get(c, last)
        if v != last:
            out.append((c, v))
            last = v
    return out


def array(kind, name, values, fmt="0x%x"):
    lines, line = [], "   "
    for v in values:
        x = " " + fmt % v + ","
        if len(line) + len(x) > 138:
            lines, line = lines + [line], "   "
        line += x
    return "const %s %s[] = {\n%s\n};\nconst size_t n_%s = sizeof %s / sizeof *%s;\n" % (kind, name, "\n".join(lines + [line]), name, name, name)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "api", "token", "tok_unicode_data.c")
    nfd, nfkd = decompositions()
    rank = combining_classes(nfd)
    pairs = compositions(nfd)
    traits = [members(p) for p in ONIG] + by_pieces() + by_normalizers(nfd) + clusters()
    category = {}
    for i, name in enumerate(CATEGORIES[1:], 1):
        if name != "Cs":
            category.update(dict.fromkeys(members(r"\p{%s}" % name), i))
    for c in (0x9, 0xB, 0xC, 0x85):
        category[c] = CC_SPACE
    category[0xA] = category[0xD] = CC_LINE
    script = {}
    for i, name in enumerate(SCRIPTS, 1):
        mine = members(r"\p{%s}" % name)
        assert mine and not mine & script.keys(), name
        script.update(dict.fromkeys(mine, i))
    kinds, row = {}, {}
    for c in CODES:
        bits = category.get(c, 0)
        for i, s in enumerate(traits):
            bits |= (c in s) << (8 + i)
        row[c] = kinds.setdefault(bits, len(kinds))
    assert len(kinds) <= 256 and 8 + len(traits) <= 64, (len(kinds), len(traits))
    joins = {c for _, c, _ in pairs} | {x for d in nfd.values() for x in d[1:]} | set(rank) | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    changes = changed_by_nfc(nfd)
    flat = lambda d: [x for c, v in sorted(d.items()) for x in [c | len(v) << 24] + v]
    with open(out, "w") as f:
        f.write("/* Made by tools/make_unicode_tables.py out of what the `tokenizers` library %s does with each code point. */\n" % __version__)
        f.write('#include "api/token/tok_unicode_data.h"\n\n/* clang-format off */\n')
        f.write(array("uint64_t", "tok_trait", list(kinds)))
        f.write(array("uint32_t", "tok_trait_run", [a << 8 | v for a, v in rows(row)]))
        f.write(array("uint32_t", "tok_script_run", [a << 8 | v for a, v in rows({c: script.get(c, 0) for c in CODES})]))
        f.write(array("uint32_t", "tok_cut_run", [a << 8 | v for a, v in rows(scripts_of_pretokenizer())]))
        f.write(array("char *const", "tok_script_name", [""] + SCRIPTS, '"%s"'))
        f.write(array("uint32_t", "tok_joins_run", [a << 8 | v for a, v in rows({c: (c in joins) | (c in changes) << 1 for c in CODES})]))
        f.write(array("uint32_t", "tok_mark_run", [a << 8 | v for a, v in rows({c: rank.get(c, 0) for c in CODES})]))
        f.write(array("uint32_t", "tok_canonical", flat(nfd)))
        f.write(array("uint32_t", "tok_compatible", flat(nfkd)))
        f.write(array("uint32_t", "tok_compose", [x for p in pairs for x in p]))
        f.write(array("uint32_t", "tok_lower", flat(lower())))
        fold, fold_many = folds()
        f.write(array("uint32_t", "tok_fold", flat(fold)))
        f.write(array("uint32_t", "tok_fold_many", flat(fold_many)))
        f.write("/* clang-format on */\n")
    print("%d kinds of code points, %d runs, %d decompose, %d classes of marks" % (len(kinds), len(rows(row)), len(nfd), max(rank.values())))


if __name__ == "__main__":
    main()
