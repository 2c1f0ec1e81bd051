"""SASS of the kernels as nvdisasm prints it: functions, basic blocks, loops.   Used by tests/cuda/sass."""

import os
import re
import struct
import subprocess
import tempfile

import kernel_names

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[0-9T]+)\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")


class Instruction:
    def __init__(self, at, predicate, op, operands):
        self.at, self.predicate, self.op, self.operands = at, predicate, op, operands

    def is_op(self, name):
        """name: an opcode with modifiers that it must have or (!) must not have, as LDG.128 for LDG.E.128.STRONG.GPU."""
        want, have = name.split("."), self.op.split(".")
        return want[0] == have[0] and all((w[1:] not in have) if w[0] == "!" else (w in have) for w in want[1:])


class Function:
    def __init__(self, name):
        self.name, self.code, self.label, self.threads = name, [], {}, 0

    def bytes(self):
        return 16 * len(self.code)

    def count(self, op, begin=0, end=None):
        return sum(i.is_op(op) for i in self.code[begin:end])

    def blocks(self):
        """(begin, end) of every run of instructions that no branch leaves or enters."""
        cuts = set(self.label.values()) | {0, len(self.code)}
        for n, i in enumerate(self.code):
            if i.op.split(".")[0] in ("BRA", "BRX", "EXIT", "RET", "CALL", "BSYNC"):
                cuts.add(n + 1)
        cuts = sorted(cuts)
        return list(zip(cuts, cuts[1:]))

    def loops(self):
        """(begin, end) of what lies between the target of a branch backwards and that branch."""
        found = []
        for n, i in enumerate(self.code):
            m = re.search(r"\.L_x_\d+", i.operands) if i.op.split(".")[0] == "BRA" else None
            if m and self.label.get(m.group(0), n + 1) <= n and not i.op.startswith("BRA.DIV"):
                if self.label[m.group(0)] < n:  # the branch to itself behind the last EXIT is none
                    found.append((self.label[m.group(0)], n + 1))
        return found

    def hot_loop(self, op):
        """The shortest of the loops that have the most of `op` among those without a loop in them that has any; None."""
        loops = [(b, e, self.count(op, b, e)) for b, e in self.loops()]
        loops = [x for x in loops if x[2]]
        inner = [x for x in loops if not any(y != x and x[0] <= y[0] and y[1] <= x[1] and (y[0], y[1]) != (x[0], x[1]) for y in loops)]
        return min(inner, key=lambda x: (-x[2], x[1] - x[0]))[:2] if inner else None


def parse(text):
    functions, f, pending = {}, None, []
    for line in text.splitlines():
        if m := re.match(r"^\.text\.(\S+):", line):
            f = functions[m.group(1)] = Function(m.group(1))
            pending = []
        elif f is None:
            continue
        elif line.startswith("\t.section") or line.startswith(".section"):
            f = None
        elif m := LABEL.match(line):
            pending.append(m.group(1))
        elif m := INSTRUCTION.match(line):
            for name in pending:
                f.label[name] = len(f.code)
            pending = []
            f.code.append(Instruction(int(m.group(1), 16), m.group(2), m.group(3), m.group(4)))
    return functions


def threads_of(cubin):
    """Most threads of a block, by mangled name: attribute 5 of each .nv.info section of the ELF file."""
    with open(cubin, "rb") as f:
        b = f.read()
    table, size, n, names = *struct.unpack_from("<Q", b, 0x28), *struct.unpack_from("<HHH", b, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", b, table + i * size) for i in range(n)]
    found = {}
    for name, _, _, _, at, length in sections:
        begin = sections[names][4] + name
        text = b[begin : b.index(b"\0", begin)].decode()
        end = at + length
        while text.startswith(".nv.info.") and at + 4 <= end:
            form, attribute, value = struct.unpack_from("<BBH", b, at)
            at += 4
            if form == 4:  # the value is a length
                if attribute == 5:
                    x, y, z = struct.unpack_from("<III", b, at)
                    found[text[len(".nv.info.") :]] = x * y * z
                at += value
    return found


def read(tools, objects, arch):
    """{(file, kernel): Function} of what nvcc made of kernels/cuda/*.cu for one architecture. objects: their files, by name of the source."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for source, path in sorted(objects.items()):
            where = os.path.join(folder, source)
            os.mkdir(where)
            if not path.endswith(".cubin"):
                subprocess.run([os.path.join(tools, "cuobjdump"), "-xelf", "all", os.path.abspath(path)], cwd=where, check=True, capture_output=True)
            cubins = [path] if path.endswith(".cubin") else [os.path.join(where, x) for x in os.listdir(where) if ".%s." % arch in x]
            for cubin in cubins:
                text = subprocess.run([os.path.join(tools, "nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
                functions, threads = parse(text), threads_of(cubin)
                names = kernel_names.short(list(functions))
                for mangled, f in functions.items():
                    f.threads = threads.get(mangled, 0)
                    result[(source, names[mangled])] = f
    return result
