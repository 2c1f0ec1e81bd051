#!/usr/bin/env python3
"""Grammars of JSON schemas beside a validator: the JSON Schema Test Suite, and random walks through the grammars.

    schema_suite.py [--preset check] [--write]      WALKS=N: walks for each schema (default 3; 1000 is the whole proof)

The suite (draft 2020-12) comes with the source of the package jsonschema. Each group of its tests has one of four ends: it passes,
its schema is refused, the grammar rejects a valid text (its spelling or the order of its members may be another one), or
the grammar accepts an invalid text. The last must never be; of the others tests/data/schema_suite.txt says what each group has
reached, and none may fall behind (--write brings the file up to date). All of it once more with `--json-schema-open`, where a group may
not end worse. Every text that a walk puts together must be valid by the
package. One line for each test, then `N passed, N failed, N skipped`."""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tarfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REACHED = os.path.join(ROOT, "tests", "data", "schema_suite.txt")
PACKAGE = "jsonschema==4.26.0"
WALKS = int(os.environ.get("WALKS", "3"))
CLASSES = ["pass", "reject", "refused"]  # from the best
OPEN = "open: "  # before the names of groups under --json-schema-open
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"]


def suite():
    """Folder of the suite, from the package's source."""
    folder = os.path.join(ROOT, "build", "schema-suite")
    found = os.path.join(folder, PACKAGE.replace("==", "-"), "json", "tests", "draft2020-12")
    if not os.path.isdir(found):
        os.makedirs(folder, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary",
                        "jsonschema", "--dest", folder, PACKAGE], check=True)
        with tarfile.open(os.path.join(folder, PACKAGE.replace("==", "-") + ".tar.gz")) as t:
            t.extraction_filter = getattr(tarfile, "data_filter", None)  # Python before 3.11.4 has none
            t.extractall(folder)
    return found


def names_of(schema, out):
    """Names of members in the order in which a schema has them."""
    if isinstance(schema, dict):
        for name in schema.get("properties", {}) if isinstance(schema.get("properties"), dict) else ():
            out.setdefault(name, len(out))
        for v in schema.values():
            names_of(v, out)
    elif isinstance(schema, list):
        for v in schema:
            names_of(v, out)
    return out


def ordered(value, order):
    if isinstance(value, dict):
        return {k: ordered(value[k], order) for k in sorted(value, key=lambda k: order.get(k, len(order)))}
    return [ordered(v, order) for v in value] if isinstance(value, list) else value


def spell(value, order):
    return json.dumps(ordered(value, order), ensure_ascii=False)


class Grammars:
    def __init__(self, preset):
        program = os.path.join(ROOT, "build", preset, "tools", "schema_check")
        self.p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, schema, texts=(), walks=0, strict=True, seed=1, is_open=False):
        line = {"schema": schema, "texts": list(texts), "walks": walks, "strict": strict, "seed": seed, "open": is_open}
        self.p.stdin.write(json.dumps(line) + "\n")
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def close(self):
        self.p.stdin.close()
        assert self.p.wait() == 0


def validator(schema):
    import jsonschema
    known = jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers
    formats = jsonschema.FormatChecker(formats=())
    formats.checkers = {k: known[k] for k in FORMATS if k in known}  # those that are enforced; others are annotations
    schema = json.loads(json.dumps(schema).replace("\\\\d", "[0-9]"))  # as in ECMA-262; Python's \d has the digits of all scripts
    return jsonschema.Draft202012Validator(schema, format_checker=formats)


def walks_hold(answer, schema):
    """The first walk that is not valid, with the reason; None: all are."""
    check = validator(schema)
    for text in answer["walks"]:
        wrong = next(iter(check.iter_errors(json.loads(text))), None)
        if wrong:
            return text, wrong.message
    return None


def class_of(group, answer, order):
    """pass, reject, refused, or a message about an invalid text that is accepted."""
    if "error" in answer:
        return "refused"
    worst = "pass"
    for test, accepted in zip(group["tests"], answer["accepted"]):
        if accepted and not test["valid"]:
            return "accepted %s, which is invalid" % spell(test["data"], order)
        if not accepted and test["valid"]:
            worst = "reject"
    return worst


def groups():
    folder = suite()
    files = [f for f in sorted(os.listdir(folder)) if f.endswith(".json")]
    for name in files + ["optional/format/%s.json" % f for f in FORMATS]:
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            for i, group in enumerate(json.load(f)):
                yield "%s %d %s" % (name[:-5], i, group["description"].replace("\n", " ")), group


def read_reached():
    if not os.path.exists(REACHED):
        return {}
    with open(REACHED, encoding="utf-8") as f:
        rows = [line.rstrip("\n").split(" | ", 1) for line in f if " | " in line]
    return {name: reached for reached, name in rows}


def the_suite_accepts_nothing_invalid(g, write):
    reached, now = read_reached(), {}
    for (name, group), is_open in itertools.product(groups(), (False, True)):
        schema = group["schema"]
        order = names_of(schema, {})
        answer = g.ask(schema, [spell(t["data"], order) for t in group["tests"]], walks=WALKS, is_open=is_open)
        row = OPEN + name if is_open else name
        now[row] = class_of(group, answer, order)
        assert now[row] in CLASSES, (row, schema, now[row])
        assert CLASSES.index(now[row]) <= CLASSES.index(now[name]), "%s: %s, closed %s" % (row, now[row], now[name])
        if "walks" not in answer or "ref" in name.lower() or "dynamic" in name or "anchor" in name or "vocabulary" in name:
            continue
        assert not answer["dead"], (name, schema)
        wrong = walks_hold(answer, schema)
        # Multiples of decimals are exact here, and of binary floating point in the package.
        assert not wrong or name.startswith("multipleOf"), (name, schema, wrong)
    for name, what in now.items():
        was = reached.get(name, "refused")
        assert write or CLASSES.index(what) <= CLASSES.index(was), "%s: %s, it was %s" % (name, what, was)
    if write:
        with open(REACHED, "w", encoding="utf-8") as f:
            f.write("# what tests/e2e/schema_suite.py has reached for each group of the JSON Schema Test Suite; --write renews it\n")
            f.writelines("%s | %s\n" % (what, name) for name, what in now.items())
    for kind, is_open in (("closed", False), ("open", True)):
        found = [what for name, what in now.items() if name.startswith(OPEN) == is_open]
        print("       of %d groups, %s: %s" % (len(found), kind, ", ".join("%d %s" % (found.count(c), c) for c in CLASSES)))


def any_keyword(r, depth):
    """A random schema of keywords in any company, some of which contradict each other."""
    s = {}
    names = ["a", "b", "ab", "x1", "größe"]

    def inner():
        return any_keyword(r, depth - 1) if depth else r.choice([True, {"type": "integer"}, {"type": "string", "maxLength": 3}, {"const": r.choice(["a", 1, None])}])

    choices = {
        "type": lambda: r.choice(["object", "array", "string", "integer", "number", ["object", "null"], ["string", "integer"]]),
        "enum": lambda: r.sample(["a", 1, 2.5, None, True, "größe", -3, 1e3], r.randint(1, 5)),
        "properties": lambda: {n: inner() for n in r.sample(names, r.randint(1, 3))},
        "required": lambda: r.sample(names, r.randint(1, 2)),
        "additionalProperties": lambda: r.choice([True, False, inner()]),
        "patternProperties": lambda: {p: inner() for p in r.sample(["^a", "b$", "[0-9]", "^.{2}$"], r.randint(1, 2))},
        "propertyNames": lambda: r.choice([{"maxLength": 2}, {"pattern": "^[a-c]"}, {"enum": ["a", "b"]}]),
        "minProperties": lambda: r.randint(0, 2), "maxProperties": lambda: r.randint(1, 3),
        "dependentRequired": lambda: {"a": ["b"]}, "dependentSchemas": lambda: {"b": inner()},
        "items": inner, "prefixItems": lambda: [inner() for _ in range(r.randint(1, 2))],
        "minItems": lambda: r.randint(0, 2), "maxItems": lambda: r.randint(1, 4), "contains": inner, "uniqueItems": lambda: True,
        "minLength": lambda: r.randint(0, 3), "maxLength": lambda: r.randint(2, 6),
        "pattern": lambda: r.choice(["a", "^[a-z]*$", "^x?y+$", "\\d"]), "format": lambda: r.choice(FORMATS),
        "minimum": lambda: r.choice([-5, 0, 0.5, 2.25]), "maximum": lambda: r.choice([3, 7.75, 100]),
        "exclusiveMinimum": lambda: r.choice([-1, 0.25, 10]), "exclusiveMaximum": lambda: r.choice([1, 12.5]),
        "multipleOf": lambda: r.choice([2, 3, 0.5, 7]),
        "anyOf": lambda: [inner() for _ in range(2)], "oneOf": lambda: [inner() for _ in range(2)],
        "allOf": lambda: [inner() for _ in range(2)], "not": inner, "if": inner, "then": inner, "else": inner, "const": lambda: r.choice(["a", 1, {"a": [1]}]),
    }
    for key in r.sample(sorted(choices), r.randint(1, 4)):
        s[key] = choices[key]()
    return s


def many_names(r):
    """More names than an object has rows of rules for, with counts."""
    names = ["%s%d" % (r.choice("ab"), i) for i in range(r.randint(129, 180))]
    low = r.randint(0, 4)
    s = {"type": "object", "properties": {n: r.choice([True, {"type": "null"}, {"enum": [1, 2]}]) for n in names}}
    s.update({"required": r.sample(names, r.randint(0, 2)), "minProperties": low, "maxProperties": low + r.randint(0, 3)})
    s.update(r.choice([{}, {"additionalProperties": True}, {"patternProperties": {"^a": {"type": "integer"}}}]))
    return s


def random_walks_are_valid(g, _write):
    from structured import schema as tidy_schema
    served, texts = 0, 0
    for seed in range(int(os.environ.get("SCHEMAS", "150"))):
        r = random.Random(seed)
        s = tidy_schema(r, 3) if seed % 3 == 0 else any_keyword(r, 2)
        s = many_names(r) if seed % 25 == 7 else s
        for is_open in (False, True):
            answer = g.ask(s, walks=WALKS, seed=seed, is_open=is_open)
            if "error" in answer:
                continue
            assert not answer["dead"], (seed, s, is_open)
            served += 1
            texts += len(answer["walks"])
            wrong = walks_hold(answer, s)
            assert not wrong, (seed, s, is_open, wrong)
    assert served > 20 and texts > served, (served, texts)
    print("       %d schemas served, %d texts" % (served, texts))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--preset", default=os.path.basename(os.path.dirname(os.environ.get("SPILLWAY", "build/check/spillway"))))
    ap.add_argument("--write", action="store_true")
    a = ap.parse_args()
    sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "fault")]
    failed = 0
    tests = [the_suite_accepts_nothing_invalid, random_walks_are_valid]
    for test in tests:
        g = Grammars(a.preset)
        try:
            test(g, a.write)
            g.close()
            print("ok     %s" % test.__name__)
        except AssertionError as e:
            failed += 1
            print("FAILED %s: %s" % (test.__name__, str(e)[:2000]))
    print("%d passed, %d failed, 0 skipped" % (len(tests) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
