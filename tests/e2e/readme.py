"""The snippets of README.md and docs/OPERATIONS.md, letter by letter. Only ports, folders of this machine and the path of the model are replaced.

    run(binary, folder): starts the servers that the pages start, and compares each output with the one that the page shows, except for ids, times
    and counts."""

import json
import os
import re
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE = 300


def blocks(page):
    """(section, language, text) of every fenced block of a page."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    section, out = "", []
    for part in re.finditer(r"^##+ ([^\n]*)$|^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        if part.group(1):
            section = part.group(1)
        else:
            out.append((section, part.group(2), part.group(3)))
    return out


def plain(text):
    """Without what differs from run to run."""
    text = re.sub(r"cmpl-\w+", "ID", text)
    text = re.sub(r"\"created\":\d+", "CREATED", text)
    text = re.sub(r"_ms=[\d.]+", "_ms=N", text)
    # Whether a block is fetched or computed again is decided by what either costs, here and now.
    text = re.sub(r"\"cached_tokens\":\d+(,\"cached_tokens_by_tier\":\{[^}]*\})?", "CACHED", text)
    text = re.sub(r"^\"prompt_tokens_details\":\{CACHED\}?\n", "", text, flags=re.M)
    text = re.sub(r"cached=\d+", "cached=N", re.sub(r"took over \d+ blocks", "took over N blocks", text))
    text = re.sub(r"^ +\d+ ok$", "N ok", text, flags=re.M)
    return re.sub(r"^\d{4}-\S+Z ", "", text, flags=re.M)


class Shell:
    def __init__(self, binary, folder, ports):
        self.folder, self.ports = folder, ports
        serve = os.path.join(folder, "serve")
        with open(serve, "w") as f:
            f.write('#!/bin/sh\nexec "%s" "$@"\n' % os.path.abspath(binary))
        os.chmod(serve, 0o755)
        self.env = dict(os.environ, HOME=folder)

    def local(self, text):
        """The text with the ports, the folder and the model of this run; in one pass, for the new paths may lie below /tmp/ too."""
        instead = {"127.0.0.1:8080": "127.0.0.1:%d" % self.ports[0], "127.0.0.1:9000": "127.0.0.1:%d" % self.ports[1],
                   "--port 9000": "--port %d" % self.ports[1], "/path/to/folder": os.path.join(ROOT, "models", "pebble"),
                   "/tmp/": self.folder + "/"}
        text = re.sub("|".join(map(re.escape, instead)), lambda found: instead[found.group()], text)
        if "./serve" in text and "--port" not in text:
            text = text.replace("./serve", "./serve --port %d" % self.ports[0])
        return text

    def bash(self, text):
        r = subprocess.run(["bash", "-c", text], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE)
        return r.stdout, r.stderr

    def in_background(self, text, port):
        """A block that is one server in the foreground."""
        p = subprocess.Popen(["bash", "-c", "exec " + text], cwd=self.folder, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        ready = ["curl", "-sfo", "/dev/null", "http://127.0.0.1:%d/ready" % port]
        end = time.monotonic() + PATIENCE
        while subprocess.run(ready).returncode:
            assert p.poll() is None, p.stderr.read()
            assert time.monotonic() < end, "not ready"
            time.sleep(0.05)
        return p


def of(section, language="sh"):
    return [t for s, l, t in blocks("README.md") if s == section and l == language]


def first_token(sh):
    serve, ask = of("First token")[0], of("First token")[1]
    p = sh.in_background(sh.local(serve), sh.ports[0])
    out, err = sh.bash(sh.local(ask))
    p.terminate()
    p.wait(PATIENCE)
    assert "Paris" in out, (out, err)


def own_model(sh, python):
    serve, = of("Your own model")
    p = sh.in_background(sh.local(serve), sh.ports[1])
    code, = of("Your own model", "python")
    r = subprocess.run([python, "-c", sh.local(code)], capture_output=True, text=True, timeout=PATIENCE) if python else None
    p.terminate()
    p.wait(PATIENCE)
    assert not r or (r.returncode == 0 and len(r.stdout) > 20), (r.stdout, r.stderr)


def forms(sh):
    """Calls and answers in a form. Numbers that the model is free to choose may differ with the instructions of the processor."""
    def shape(choice):
        for call in choice["message"].get("tool_calls", []):
            assert len(call.pop("id")) == 29, call
        return re.sub(r"\d+", "N", json.dumps(choice, sort_keys=True))

    p = sh.in_background(sh.local(of("First token")[0]), sh.ports[0])
    sections = ("Tools", "An answer in a form")
    asked = [text for section in sections for text in of(section)]
    shown = [text for section in sections for text in of(section, "json")]
    assert len(asked) == len(shown) == 3, (asked, shown)
    for ask, want in zip(asked, shown):
        out, err = sh.bash(sh.local(ask))
        want, got = json.loads(want), json.loads(out)["choices"][0]
        assert shape({k: got[k] for k in want}) == shape(want), "README.md says\n%s\nand it gave\n%s\n%s" % (want, got, err)
    p.terminate()
    p.wait(PATIENCE)


def cache_folder(sh):
    make, serve = of("A cache that survives a restart")[0].splitlines()
    sh.bash(make)
    p = sh.in_background(sh.local(serve), sh.ports[0])
    p.terminate()
    p.wait(PATIENCE)
    assert os.path.isdir(os.path.join(sh.folder, ".cache", "spillway", "kv")), "no folder was made"


def tiers_and_upgrade(sh):
    """The snippets of docs/OPERATIONS.md are one session: a snippet asks the server that the one before it started."""
    names = ["A prefix that survives a restart", "What a prefix is worth", "An upgrade that refuses nobody"]
    session, want = [], []
    for section, language, text in blocks("docs/OPERATIONS.md"):
        if section in names:
            (session if language == "sh" else want).append(text)
    mark = "--- end of a block ---"
    script = ("\necho '%s'\n" % mark).join(sh.local(t) for t in session)
    out, err = sh.bash(script + "\nkill $(jobs -p) 2>/dev/null; wait\n")
    got = out.split(mark + "\n")
    assert len(got) == len(want) == len(session), (out, err)
    for g, w in zip(got, want):
        g, w = plain(g).replace(sh.folder + "/", "/tmp/"), plain(w)
        assert sorted(g.strip().split("\n")) == sorted(w.strip().split("\n")), "docs/OPERATIONS.md says\n%s\nand it gave\n%s\n%s" % (w, g, err)


def run(binary, folder, ports, python):
    sh = Shell(binary, folder, ports)
    first_token(sh)
    own_model(sh, python)
    forms(sh)
    cache_folder(sh)
    tiers_and_upgrade(sh)
