#!/usr/bin/env python3
"""Writes api/jinja/tmpl_entities.h: the names of HTML's characters (html.entities.html5), for the filter striptags.

    make_entities.py [--check]"""
import html.entities
import pathlib
import sys

PATH = pathlib.Path(__file__).resolve().parent.parent / "api" / "jinja" / "tmpl_entities.h"
HEAD = """/* tmpl_entities: HTML's named characters, sorted by name; a name without ";" counts without one.   Thread: any.
 * Written by tools/make_entities.py. */
#pragma once

/* clang-format off */
static const struct {
    const char *name, *text;
} tmpl_entities[] = {
"""


def escaped(text):
    return "".join("\\x%02x" % b for b in text.encode())


def main():
    lines, line = [], ""
    for name, text in sorted(html.entities.html5.items(), key=lambda x: x[0].encode()):
        row = '{"%s","%s"},' % (name, escaped(text))
        if len(line) + len(row) > 132:
            lines.append(line)
            line = ""
        line += row
    text = HEAD + "\n".join(lines + [line]) + "\n};\n/* clang-format on */\n"
    if "--check" not in sys.argv:
        PATH.write_text(text, encoding="utf-8")
    elif PATH.read_text(encoding="utf-8") != text:
        sys.exit(f"{PATH} is not what this script writes")


if __name__ == "__main__":
    main()
