"""Layer I of the fault table: `spillway batch` is killed, and started again with the same arguments."""

import json
import os
import random
import re
import subprocess
import tempfile
import threading

from harness import BINARY, PATIENCE, row

N_LINE = 160
N_KILL = 20


def command(folder, output):
    return [BINARY, "batch", "--input", os.path.join(folder, "in"), "--output", os.path.join(folder, output), "--errors",
            os.path.join(folder, output + ".err"), "--device", "cpu", "--threads", "1", "--max-num-seqs", "2"]


def write_input(folder):
    with open(os.path.join(folder, "in"), "w") as f:
        for i in range(N_LINE):
            body = {"prompt": "Story %d." % i, "max_tokens": 60, "ignore_eos": True, "temperature": 0}
            if i % 7 == 3:
                body["max_tokens"] = -1  # goes to the errors
            f.write(json.dumps({"custom_id": "id %d" % i, "method": "POST", "url": "/v1/completions", "body": body}) + "\n")
            if i % 50 == 9:
                f.write("no JSON\n")


def read(folder, name):
    try:
        with open(os.path.join(folder, name), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return b""


def whole_lines(folder, output):
    return [x for name in (output, output + ".err") for x in read(folder, name).split(b"\n")[:-1]]


def answers(folder, output):
    """By number of line: what was answered, without what is drawn for each request."""
    out = {}
    for raw in whole_lines(folder, output):
        d = json.loads(raw)
        n = int(d["id"].rsplit("-", 1)[1])
        assert n not in out, "line %d is answered twice" % n
        text = json.dumps([d["custom_id"], d["response"], d["error"]])
        out[n] = re.sub(r'"created": \d+', "", text.replace((d["response"] or {}).get("request_id", "?"), "ID"))
        # which prefixes were cached depends on what ran before
        out[n] = re.sub(r'"prompt_tokens_details": (null|\{[^}]*\})', "", out[n])
    return out


@row("I32", "spillway batch is killed at random points: started again, it answers every line once", own=True)
def i32(_):
    seed = random.randrange(1 << 30)
    draw = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="spillway-batch-kill-")
    write_input(folder)
    subprocess.run(command(folder, "calm"), stderr=subprocess.DEVNULL, timeout=PATIENCE)
    want = answers(folder, "calm")
    assert len(want) == N_LINE + 4, len(want)
    for k in range(N_KILL):
        before = whole_lines(folder, "out")
        p = subprocess.Popen(command(folder, "out"), stderr=subprocess.DEVNULL)
        if k % 3 == 1:  # at any time of the start or of the run
            try:
                p.wait(draw.uniform(0, 0.5))
            except subprocess.TimeoutExpired:
                pass
        else:  # so many bytes later, wherever that is in a line
            size = len(read(folder, "out")) + draw.randrange(1, 6000)
            while p.poll() is None and len(read(folder, "out")) < size:
                threading.Event().wait(0.001)
        p.kill()
        p.wait()
        now = whole_lines(folder, "out")
        assert set(before) <= set(now), "seed %d: answers were lost" % seed
    # a kill within a write: the last line is torn
    with open(os.path.join(folder, "out"), "r+b") as f:
        n = f.seek(0, 2)
        f.truncate(max(0, n - draw.randrange(1, 200)))
    end = subprocess.run(command(folder, "out"), stderr=subprocess.PIPE, timeout=PATIENCE)
    assert end.returncode == 1, (seed, end)  # some lines are wrong, and it says so
    assert answers(folder, "out") == want, "seed %d" % seed
