#!/usr/bin/env python3
"""Renders tests/data/templates/*.jinja over recorded conversations with Jinja2, in the environment that transformers uses, into
tests/data/templates/golden.json, and the small templates of template_snippets.py into snippets.json: what tests/unit/api/test_template.c
compares api/jinja/template.c with, byte for byte. special.json, with --special: which special tokens transformers passes (special_cases.py).

    make_template_golden.py [--check] [--special]      needs jinja2 >= 3.1.6, for --special transformers >= 5; with --check nothing is
                                                       written, differences are an error
"""
import argparse
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

import special_cases
import template_docs_snippets
import template_snippets

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = ROOT / "tests" / "data" / "templates"
NOW = 1750000000  # 2025-06-15 15:06:40 UTC

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city.\nToday only.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "Name, e.g. \"Paris\""},
        "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        "days": {"type": "integer"}}, "required": ["city"]}}}
SEARCH = {"type": "function", "function": {
    "name": "search", "description": "Sucht Dinge: <b>überall</b> & schnell",
    "parameters": {"type": "object", "properties": {
        "words": {"type": "array", "items": {"type": "string"}, "description": " What for "},
        "filter": {"type": "object", "properties": {"from": {"type": ["string", "null"]}, "deep": {"type": "array", "items": {
            "type": "object", "properties": {"a": {"type": "number", "nullable": True}, "b": {"type": "boolean"}}}}}},
        "mode": {"oneOf": [{"type": "string", "description": "by name"}, {"type": "integer"}]}}}}}
NOARGS = {"type": "function", "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}}}
CALL1 = {"id": "abc123XYZ", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "unit": "C"}}}
CALL2 = {"id": "zzz999qqq", "type": "function", "function": {"name": "search", "arguments": {"words": ["a", "b\"c"], "n": 3, "x": None, "f": 1.0}}}


def user(text, **more): return {"role": "user", "content": text, **more}
def assistant(text, **more): return {"role": "assistant", "content": text, **more}
def system(text): return {"role": "system", "content": text}
def tool(text, call): return {"role": "tool", "content": text, "tool_call_id": call["id"], "name": call["function"]["name"]}


TALK = [user("Hi!"), assistant("Hello, what is it?"), user("  Tell me a joke.\n")]
TOOLS = [system("Be brief."), user("Weather in Köln?"), assistant("", tool_calls=[CALL1]), tool("12 °C, \"rain\"", CALL1)]
CONVERSATIONS = {
    "one": {"messages": [user("Hello")]},
    "one_closed": {"messages": [user("Hello")], "add_generation_prompt": False},
    "system": {"messages": [system("You are <b>terse</b>.\n"), user("Hi & bye")]},
    "talk": {"messages": TALK},
    "talk_system": {"messages": [system("Sys \u4f60\u597d")] + TALK, "add_generation_prompt": False},
    "ends_with_assistant": {"messages": TALK[:2], "add_generation_prompt": False},
    "unicode": {"messages": [user("日本語 😀 é \u0301 \u00a0x\u2028y"), assistant("🙂\ufe0f ok\u3000"), user("\u00a0trim me\u3000 ")]},
    "markup_in_content": {"messages": [user("{{ 7 * 7 }} {% raw %} {# no #} <|im_end|> \\n \"q\" 'a'")]},
    "empty_text": {"messages": [user(""), assistant(""), user("   ")]},
    "two_users": {"messages": [user("a"), user("b")]},
    "assistant_first": {"messages": [assistant("me first"), user("ok")]},
    "system_late": {"messages": [user("a"), system("late"), user("b")]},
    "strange_role": {"messages": [{"role": "critic", "content": "boo"}]},
    "developer": {"messages": [{"role": "developer", "content": "Dev note"}, user("go")]},
    "tools_given": {"messages": [user("Weather?")], "tools": [WEATHER, SEARCH, NOARGS]},
    "tools_system": {"messages": [system("Be brief."), user("Weather?")], "tools": [WEATHER]},
    "tools_called": {"messages": TOOLS, "tools": [WEATHER]},
    "tools_called_no_list": {"messages": TOOLS},
    "tools_two_calls": {"messages": [user("both"), assistant("Let me see.", tool_calls=[CALL1, CALL2]), tool("12", CALL1), tool("{\"hits\": []}", CALL2),
                                     assistant("Done: 12."), user("thanks")], "tools": [WEATHER, SEARCH]},
    "tools_none_content": {"messages": [user("x"), assistant(None, tool_calls=[CALL2]), tool("y", CALL2)], "tools": [SEARCH]},
    "tools_bad_id": {"messages": [user("x"), assistant("", tool_calls=[{**CALL1, "id": "short"}]), tool("y", {**CALL1, "id": "short"})], "tools": [WEATHER]},
    "tool_unasked": {"messages": [user("x"), tool("y", CALL1)]},
    "thoughts": {"messages": [user("2+2?"), assistant("4", reasoning_content="two and two"), user("and 3?"),
                              assistant("<think>\nhm\n</think>\n\n7"), user("sure?")]},
    "thoughts_last": {"messages": [user("2+2?"), assistant("<think>\nadd them\n</think>\n\n4")], "add_generation_prompt": False},
    "thoughts_with_call": {"messages": [user("q"), assistant("", reasoning_content="need weather", tool_calls=[CALL1]), tool("wet", CALL1)], "tools": [WEATHER]},
    "thinking_off": {"messages": [user("q")], "enable_thinking": False},
    "thinking_on": {"messages": [user("q")], "enable_thinking": True},
    "effort": {"messages": [system("s"), user("q")], "reasoning_effort": "high", "model_identity": "I am X."},
    "parts": {"messages": [system([{"type": "text", "text": "Sys"}]), user([{"type": "text", "text": " one "}, {"type": "text", "text": "two"}])]},
    "parts_image": {"messages": [user([{"type": "image"}, {"type": "text", "text": "what?"}])]},
    "names": {"messages": [user("hi", name="bob"), assistant("yo", name="bot"), user("again")]},
    "documents": {"messages": [user("read")], "documents": [{"title": "T1", "text": "first"}, {"title": "T2", "text": "zweitens"}]},
    "date": {"messages": [user("q")], "date_string": "26 Jul 2024"},
    "builtin": {"messages": [user("q"), assistant("", tool_calls=[{**CALL1, "function": {"name": "wolfram", "arguments": {"query": "1+1"}}}]), {"role": "ipython", "content": {"out": 2}}],
                "builtin_tools": ["wolfram", "code_interpreter"]},
    "tools_with_system": {"messages": [system("S"), user("q")], "tools": [WEATHER], "tools_in_user_message": False},
    "message_tools": {"messages": [{"role": "system", "content": "S", "tools": "[{\"name\": \"f\"}]"}, user("q")]},
    "dated_system": {"messages": [{"role": "system", "content": "S", "current_date": "2025-01-01"}, user("q")]},
    "many": {"messages": [user("m%d" % i) if i % 2 == 0 else assistant("r%d" % i) for i in range(9)]},
}
BASE = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "tools": None, "documents": None}


class Generation(jinja2.ext.Extension):
    """{% generation %}: renders its body, as transformers' tracker does when nobody tracks."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class TemplateDict:
    """dict as transformers 5 gives it to templates."""

    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    """namespace as transformers 5 gives it to templates: no name that begins with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attrs = dict(*args, **kwargs)
        for name in attrs:
            TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__init__(self, attrs)

    def __setitem__(self, name, value):
        TemplateNamespace._check_name(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check_name(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"no name with an underscore in front: {name!r}")


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


def render(template, variables):
    """{"out": text}, {"raise": message} for raise_exception, or {"error": what} for whatever else goes wrong."""
    try:
        return {"out": template.render(**BASE, **variables) if not set(BASE) & set(variables) else template.render(**{**BASE, **variables})}
    except jinja2.exceptions.TemplateError as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"raise": str(e)}
        return {"error": type(e).__name__}
    except (TypeError, ValueError, KeyError, OverflowError, ZeroDivisionError) as e:
        return {"error": type(e).__name__}


def render_snippet(env, text, variables):
    try:
        template = env.from_string(text)
    except (jinja2.exceptions.TemplateSyntaxError, SyntaxError):
        return {"syntax": True}
    try:
        return {"out": template.render(**variables)}
    except jinja2.exceptions.TemplateError as e:
        return {"raise": str(e)} if type(e) is jinja2.exceptions.TemplateError else {"error": type(e).__name__}
    except (TypeError, ValueError, KeyError, OverflowError, ZeroDivisionError, AttributeError, IndexError, RuntimeError, AssertionError) as e:
        return {"error": type(e).__name__}


def write(path, value, check):
    text = json.dumps(value, ensure_ascii=False, indent=0) + "\n"
    if not check:
        path.write_text(text, encoding="utf-8")
        return len(text)
    if path.read_text(encoding="utf-8") != text:
        sys.exit(f"{path} is not what this script writes")
    return len(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--special", action="store_true")
    args = parser.parse_args()
    if args.special:
        special = special_cases.golden()
        print(f"{len(special['cases'])} model folders, {write(DATA / 'special.json', special, args.check)} bytes")
        return
    env = environment()
    golden = {"now": NOW, "base": BASE, "conversations": CONVERSATIONS, "templates": {}}
    files = sorted(DATA.glob("*.jinja")) + sorted((ROOT / "models").glob("*/chat_template.jinja"))
    for path in files:
        template = env.from_string(path.read_text(encoding="utf-8"))
        golden["templates"][str(path.relative_to(ROOT))] = {name: render(template, v) for name, v in CONVERSATIONS.items()}
    n_bytes = write(DATA / "golden.json", golden, args.check)
    kinds = (("{{ %s }}", template_snippets.EXPRESSIONS, template_snippets.EXPRESSION_VARS),
             ("%s", template_snippets.STATEMENTS, template_snippets.STATEMENT_VARS),
             ("%s", template_docs_snippets.TEXTS, template_docs_snippets.VARS))
    snippets = {"now": NOW, "groups": [{"vars": v, "cases": [{"t": form % text, **render_snippet(env, form % text, v)} for text in texts]}
                                       for form, texts, v in kinds]}
    n_bytes += write(DATA / "snippets.json", snippets, args.check)
    total = sum(len(t) for t in golden["templates"].values())
    by_kind = {k: sum(k in c for t in golden["templates"].values() for c in t.values()) for k in ("out", "raise", "error")}
    print(f"{len(files)} templates, {total} renderings {by_kind}, {sum(len(g['cases']) for g in snippets['groups'])} snippets, {n_bytes} bytes")


if __name__ == "__main__":
    main()
