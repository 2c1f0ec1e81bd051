"""A server in the image's file tree, started by box.py, for tests: a harness.Server whose process is box.py's child."""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

from harness import BINARY, PATIENCE, Server, free_port  # noqa: E402

SPILLWAY = "/usr/local/bin/spillway"
UID = 54321  # of nobody: a platform may pick any


def assemble(folder, **env):
    """Makes the tree of the server under test. Returns what rootfs.sh said."""
    r = subprocess.run([os.path.join(ROOT, "deploy", "rootfs.sh"), BINARY, folder], capture_output=True, text=True, env=dict(os.environ, **env))
    assert r.returncode == 0, r.stdout + r.stderr
    return r.stdout.strip()


class Boxed(Server):
    """box: options of box.py; args: the words after `serve`. As root the user inside is uid, else this user under that number."""

    def __init__(self, tree, *args, box=(), uid=UID, env=None, wait=True, preexec=None):
        self.port = free_port()
        self.log_path = tempfile.mktemp(prefix="spillway-box-", suffix=".log")
        self.log = open(self.log_path, "wb")
        argv = [sys.executable, os.path.join(HERE, "box.py"), "--uid", str(uid), *box, tree, SPILLWAY, "serve", "--port", str(self.port), *args]
        self.proc = subprocess.Popen(argv, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=dict(os.environ, **(env or {})),
                                     preexec_fn=preexec)
        if wait:
            self.wait_ready()

    def children(self):
        with open("/proc/%d/task/%d/children" % (self.proc.pid, self.proc.pid)) as f:
            return [int(pid) for pid in f.read().split()]

    def has_begun(self):
        return len(self.children()) > 0

    def pid(self):
        return self.children()[0]

    def status(self):
        with open("/proc/%d/status" % self.pid()) as f:
            return dict(re.findall(r"^(\w+):\s*(.*)$", f.read(), re.M))

    def mounts(self):
        """{place: its options} as the server sees them."""
        with open("/proc/%d/mountinfo" % self.pid()) as f:
            return {line.split()[4]: line.split()[5].split(",") for line in f}

    def assert_has_no_rights(self, writable=()):
        """No capability, none to gain, a seccomp filter, process 1, and no place to write but /dev/shm and those named."""
        st = self.status()
        assert st["NoNewPrivs"] == "1" and st["Seccomp"] == "2" and int(st["CapEff"], 16) == int(st["CapBnd"], 16) == 0, st
        assert st["NSpid"].split()[-1] == "1", "process %s of its container" % st["NSpid"]
        devices = {"/dev/" + n for n in ("null", "zero", "full", "random", "urandom")}
        places = {place for place, how in self.mounts().items() if "rw" in how} - devices
        assert places == {"/dev/shm", "/proc", *writable}, places


def run_boxed(tree, *command, box=()):
    """Exit code and output of a program in the tree."""
    argv = [sys.executable, os.path.join(HERE, "box.py"), "--uid", str(UID), *box, tree, *command]
    r = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    return r.returncode, r.stdout + r.stderr
