#!/usr/bin/env python3
"""The systemd unit: its lines by systemd-analyze, and its command with the test as the service manager. No systemd runs here.

One line each, then `N passed, N failed, N skipped`."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

import scratch  # noqa: E402
from harness import BINARY, PATIENCE, Server, eventually, free_port, run_tests  # noqa: E402

SYSTEMD = os.path.join(ROOT, "deploy", "systemd")
UNIT = os.path.join(SYSTEMD, "spillway.service")
PROGRAM = "/usr/local/bin/spillway"


def unit():
    """{name: [its values, in order]} of all sections."""
    out = {}
    with open(UNIT) as f:
        for line in f:
            m = re.match(r"(\w+)=(.*)$", line)
            if m:
                out.setdefault(m.group(1), []).append(m.group(2))
    return out


def analyze(*args):
    """systemd-analyze over a copy whose program is the one under test: that of the unit need not be installed here."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "spillway.service")
        with open(UNIT) as f, open(path, "w") as g:
            g.write(f.read().replace(PROGRAM, BINARY))
        r = subprocess.run(["systemd-analyze", *args, path], capture_output=True, text=True, timeout=PATIENCE)
        return r.returncode, r.stdout + r.stderr


def every_line_is_understood():
    rc, out = analyze("verify", "--man=no", "--recursive-errors=no")
    assert rc == 0 and "spillway.service" not in out, out
    with tempfile.TemporaryDirectory() as d:  # and it would be said
        path = os.path.join(d, "x.service")
        with open(UNIT) as f, open(path, "w") as g:
            g.write(f.read().replace(PROGRAM, BINARY).replace("ProtectHome=", "ProtectHouse="))
        r = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)
        assert "ProtectHouse" in r.stderr, r


def the_sandbox_is_tight():
    """The exposure that systemd-analyze computes, from 0 to 10; a service without any of these lines has 9.6."""
    rc, out = analyze("security", "--offline=true", "--threshold=25", "--no-pager")
    said = re.search(r"Overall exposure level for spillway.service: (\S+) (\S+)", out)
    print("       " + said.group(0))
    assert rc == 0, out[-400:]


def the_users_file_is_understood():
    with tempfile.TemporaryDirectory() as d:
        os.mkdir(d + "/etc")
        r = subprocess.run(["systemd-sysusers", "--root=" + d, os.path.join(SYSTEMD, "spillway.sysusers")], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        with open(os.path.join(d, "etc/passwd")) as f:
            assert re.search(r"^spillway:.*:/var/lib/spillway:/usr/sbin/nologin$", f.read(), re.M)


def the_times_fit_the_drain():
    with open(os.path.join(SYSTEMD, "spillway.conf")) as f:
        conf = dict(line.split(" = ") for line in f.read().split("\n") if line and not line.startswith("#"))
    u = unit()
    assert int(u["TimeoutStopSec"][0]) >= 1.5 * int(conf["drain-seconds"]) + int(conf.get("drain-delay-seconds", 0)), conf
    assert int(u["WatchdogSec"][0]) >= 4, "main looks around twice a second"
    assert u["CacheDirectory"] == ["spillway"] and conf["kv-nvme"].startswith("/var/cache/spillway/"), conf
    assert set(u["RestartPreventExitStatus"][0].split()) == {"64", "71", "77", "78"}


def the_commands_of_the_page_install_it():
    """Into an empty folder, as a user who need not be root; systemd itself is not asked."""
    with open(os.path.join(ROOT, "docs/OPERATIONS.md")) as f:
        block = re.search(r"^## systemd\n```sh\n(.*?)^```$", f.read(), re.M | re.S).group(1)
    with tempfile.TemporaryDirectory() as d:
        os.makedirs(d + "/usr/local/bin")
        text = re.sub(r" (/etc/|/usr/)", " %s\\1" % d, block).replace("build/release/spillway", BINARY).replace("-o spillway -g spillway ", "")
        lines = [x for x in text.strip().split("\n") if not x.startswith(("systemctl ", "systemd-sysusers"))]
        assert len(lines) == 5, lines
        r = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
        conf = unit()["ExecStart"][0].split("--config ")[1]
        for path in (PROGRAM, conf, "/etc/systemd/system/spillway.service", "/etc/sysusers.d/spillway.conf", "/etc/spillway/keys"):
            assert os.path.exists(d + path), path
        with open(d + "/etc/spillway/keys") as f:
            assert len(f.read().strip()) >= 16


class Manager:
    """A service manager's end: the socket, and what was heard."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.settimeout(PATIENCE)
        self.sock.bind(path)
        self.heard = []

    def until(self, word):
        while word not in self.heard:
            self.heard += self.sock.recv(4096).decode().split("\n")


def the_command_of_the_unit_tells_its_manager():
    """With the configuration that is shipped, its folders elsewhere: READY=1 is heard once it serves, signs of life come, STOPPING=1 on SIGTERM."""
    with tempfile.TemporaryDirectory() as d:
        port = free_port()
        with open(os.path.join(SYSTEMD, "spillway.conf")) as f:
            text = f.read().replace("/etc/spillway/", d + "/").replace("/var/cache/spillway/", d + "/").replace("8080", str(port))
        with open(d + "/spillway.conf", "w") as f:
            f.write(text)
        with open(d + "/keys", "w") as f:
            f.write("a-key-of-this-test\n")
        os.chmod(d + "/keys", 0o600)
        manager = Manager(d + "/notify")
        argv = unit()["ExecStart"][0].replace(PROGRAM, BINARY).replace("/etc/spillway/", d + "/").split()
        log = open(d + "/log", "wb")
        p = subprocess.Popen(argv, stdout=log, stderr=log, env={"PATH": "/usr/bin:/bin", "HOME": d, "NOTIFY_SOCKET": d + "/notify", "WATCHDOG_USEC": "2000000"})
        s = Server.__new__(Server)
        s.port, s.proc, s.log_path = port, p, d + "/log"
        try:
            manager.until("READY=1")
            assert manager.heard[0] == "STATUS=loads" and "STOPPING=1" not in manager.heard, manager.heard
            assert s.get("/ready").status == 200, "it said READY=1 too early"
            key = {"Authorization": "Bearer a-key-of-this-test"}
            assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, headers=key).status == 200
            for _ in range(2):
                manager.heard.clear()
                manager.until("WATCHDOG=1")
            with open(d + "/keys", "w") as f:
                f.write("another-key-of-this-test\n")
            assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]
            p.send_signal(signal.SIGHUP)
            other = {"Authorization": "Bearer another-key-of-this-test"}
            eventually(lambda: " auth: 1 keys" in s.tail(), "the keys are read again")
            assert s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 2}, headers=other).status == 200
            p.send_signal(signal.SIGTERM)
            manager.until("STOPPING=1")
            assert p.wait(PATIENCE) == 0
        finally:
            p.kill()
            p.wait()
            log.close()
            manager.sock.close()
        with open(d + "/log") as f:
            assert " error " not in f.read()


TESTS = [every_line_is_understood, the_sandbox_is_tight, the_users_file_is_understood, the_times_fit_the_drain, the_commands_of_the_page_install_it,
         the_command_of_the_unit_tells_its_manager]


def main():
    assert shutil.which("systemd-analyze"), "systemd-analyze is missing (Debian's package systemd)"
    return run_tests(TESTS)


if __name__ == "__main__":
    scratch.run(main)
