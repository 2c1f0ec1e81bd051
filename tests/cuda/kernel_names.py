"""What registers, sass and covered call a kernel, and the kernels that there are: those of registers.txt."""

import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(ROOT, "tests/cuda/registers.txt")
SHORT = (("__nv_bfloat16", "bf16"), ("__half", "f16"), ("unsigned char", "kv8"), (", ", ","), (" ", "_"))


def short(names):
    """{mangled: name with its template's arguments, without those of the function}"""
    out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    result = {}
    for name, full in zip(names, out):
        full = re.sub(r"\((bool|int|unsigned int)\)", "", full)
        full = re.sub(r"^(void|float) ", "", full)
        depth = 0
        for i, c in enumerate(full):  # up to the argument list
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0 and i:
                full = full[:i]
                break
        for long, to in SHORT:
            full = full.replace(long, to)
        result[name] = full
    return result


def table():
    """{(file, kernel): {architecture: registers}}, and the version of nvcc that they are of"""
    rows, version = {}, None
    if os.path.exists(TABLE):
        with open(TABLE, encoding="utf-8") as f:
            for line in f:
                if m := re.match(r"# nvcc (\S+)", line):
                    version = m.group(1)
                elif not line.startswith("#"):
                    file, kernel, *cells = line.split()
                    rows[(file, kernel)] = {c.split("=")[0]: int(c.split("=")[1]) for c in cells}
    return rows, version
