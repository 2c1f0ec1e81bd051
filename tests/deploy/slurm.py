#!/usr/bin/env python3
"""The files of deploy/slurm, run for real: a Slurm of this machine alone, with daemons, keys and folders of the test's own.

# Run by: section slurm alone: it needs Slurm, and the server on the emulated GPU for several nodes.

SPILLWAY is the server; EMU_SERVER the one on the emulated GPU. One line each, then `N passed, N failed, N skipped`."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "fault"))

import scratch  # noqa: E402
from harness import BINARY, PATIENCE, PORTS, Server, eventually, free_port, post_bytes, run_tests  # noqa: E402

SLURM = os.path.join(ROOT, "deploy", "slurm")
EMU = os.environ.get("EMU_SERVER", os.path.join(ROOT, "build", "emu", "spillway"))
KEY = "a-key-of-the-slurm-test"
KILL_WAIT = 30  # Slurm's default: scancel's SIGKILL comes so long after its SIGTERM
CONF = """
ClusterName=test
SlurmctldHost=%(host)s(127.0.0.1)
SlurmUser=%(user)s
SlurmdUser=%(user)s
AuthType=auth/munge
AuthInfo=socket=%(folder)s/munge.sock
CredType=cred/munge
SlurmctldPort=%(port)d
StateSaveLocation=%(folder)s/state
SlurmdSpoolDir=%(folder)s/spool-%%n
SlurmctldPidFile=%(folder)s/slurmctld.pid
SlurmdPidFile=%(folder)s/slurmd-%%n.pid
SlurmctldLogFile=%(folder)s/slurmctld.log
SlurmdLogFile=%(folder)s/slurmd-%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=%(kill_wait)d
NodeName=one NodeHostname=%(host)s NodeAddr=127.0.0.1 Port=%(one)d CPUs=2 State=UNKNOWN
NodeName=two NodeHostname=%(host)s NodeAddr=127.0.0.1 Port=%(two)d CPUs=2 State=UNKNOWN
PartitionName=test Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""

# slurmd looks for control groups even where no plugin uses them, and ends where none are mounted, as in a chroot. The plugin of
# version 1 does nothing until it is asked.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\n"

PORTS.update(range(20000, 20100))  # of one-node.sbatch, by the number of the job


def program(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    assert found, "%s is missing (Debian's packages slurm-wlm and munge)" % name
    return found


class Cluster:
    """Two nodes of one machine: munged, slurmctld and two slurmd, in the foreground, in one folder."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        os.chmod(folder, 0o755)  # munged wants to be reached by all
        os.mkdir(folder + "/state")
        ports = [free_port() for _ in range(3)]
        with open(folder + "/slurm.conf", "w") as f:
            f.write(CONF % {"folder": folder, "host": socket.gethostname().split(".")[0], "port": ports[0], "one": ports[1], "two": ports[2],
                            "user": subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip(), "kill_wait": KILL_WAIT})
        with open(folder + "/cgroup.conf", "w") as f:
            f.write(CGROUP_CONF)
        with open(folder + "/munge.key", "wb") as f:
            f.write(os.urandom(128))
        os.chmod(folder + "/munge.key", 0o600)
        self.env = dict(os.environ, SLURM_CONF=folder + "/slurm.conf", SPILLWAY=BINARY)
        self.start("munged", "--foreground", "--force", "--key-file=" + folder + "/munge.key", "--socket=" + folder + "/munge.sock",
                   "--pid-file=" + folder + "/munged.pid", "--log-file=" + folder + "/munged.log", "--seed-file=" + folder + "/munge.seed")
        eventually(lambda: os.path.exists(folder + "/munge.sock"), "munged listens")
        conf = ("-D", "-f", folder + "/slurm.conf")
        self.start("slurmctld", "-i", *conf)
        for name in ("one", "two"):
            self.start("slurmd", "-N", name, *conf)
        try:
            eventually(lambda: self.run("sinfo", "-h", "-o", "%T %D") == "idle 2", "both nodes are idle")
        except AssertionError as e:
            self.stop()
            raise AssertionError("%s; %s\n%s" % (e, self.run("sinfo", "-h", "-o", "%T %D %E"), self.said())) from None

    def start(self, name, *args):
        out = open("%s/%s-%d.out" % (self.folder, name, len(self.daemons)), "wb")
        self.daemons.append(subprocess.Popen([program(name), *args], stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=getattr(self, "env", None)))
        out.close()

    def said(self):
        """The last lines of what each daemon wrote."""
        names = sorted(n for n in os.listdir(self.folder) if n.endswith((".log", ".out")))
        texts = [(n, open(os.path.join(self.folder, n), errors="replace").read().splitlines()[-12:]) for n in names]
        return "\n".join("%s: %s" % (n, line) for n, text in texts for line in text)

    def run(self, *argv, env=None):
        r = subprocess.run(argv, capture_output=True, text=True, env=dict(self.env, **(env or {})), cwd=self.folder, timeout=PATIENCE)
        return r.stdout.strip() if r.returncode == 0 else "failed: " + r.stdout + r.stderr

    def stop(self):
        for p in reversed(self.daemons):
            p.terminate()
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()


class Job:
    """A job of one of the files, whose server is asked over HTTP where its log says that it is."""

    def __init__(self, cluster, script, *words, sbatch=(), env=None):
        self.cluster = cluster
        with open(cluster.folder + "/keys", "w") as f:
            f.write(KEY + "\n")
        os.chmod(cluster.folder + "/keys", 0o600)
        env = dict({"SPILLWAY_API_KEY_FILE": cluster.folder + "/keys"}, **(env or {}))
        said = cluster.run("sbatch", "--parsable", *sbatch, os.path.join(SLURM, script), *words, env=env)
        assert said.isdigit(), said
        self.id, self.log_path = said, "%s/spillway-%s.log" % (cluster.folder, said)
        url = eventually(lambda: re.search(r"^spillway: http://\S+:(\d+)$", self.text(), re.M), "the job says where it is")
        self.server = Server.__new__(Server)
        self.server.port = int(url.group(1))
        eventually(self.ready, "it is ready")

    def text(self):
        try:
            with open(self.log_path) as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def state(self):
        return self.cluster.run("squeue", "-h", "-t", "all", "-j", self.id, "-o", "%T")

    def ready(self):
        assert self.state() in ("PENDING", "CONFIGURING", "RUNNING"), "%s: %s" % (self.state(), self.text()[-2000:])
        try:
            return self.server.get("/ready").status == 200
        except OSError:
            return False

    def ask(self, **fields):
        return self.server.post("/v1/completions", {"prompt": "The capital of France is", "temperature": 0, **fields}, headers={"Authorization": "Bearer " + KEY})

    def unread_stream(self):
        """A stream that has begun and cannot end: it is of more bytes than the kernel takes for a client that does not read on."""
        stream = self.server.conn()
        body = b'{"prompt":"Once","max_tokens":1500,"ignore_eos":true,"stream":true,"n":4,"logprobs":20}'
        stream.send(post_bytes("/v1/completions", body, ["Authorization: Bearer " + KEY]))
        while b"data: " not in stream.data:
            stream.data += stream.sock.recv(1 << 16)
        return stream

    def ended(self):
        eventually(lambda: self.state() not in ("RUNNING", "COMPLETING"), "the job has ended")
        return self.state()


cluster = None


def one_node_serves_and_scancel_drains_it():
    job = Job(cluster, "one-node.sbatch", "--max-num-seqs", "4", sbatch=("--cpus-per-task=2",))
    r = job.ask(max_tokens=8)
    assert r.status == 200 and "Paris" in r.json["choices"][0]["text"], r
    assert job.server.complete("Hi").status == 401
    stream = job.unread_stream()
    assert cluster.run("scancel", job.id) == ""
    eventually(lambda: " main: draining, " in job.text(), "it drains")
    body = stream.read_all()[0].body
    assert b"data: [DONE]" in body and b'"error"' not in body, body[-200:]
    assert job.ended() == "CANCELLED"
    assert " main: done" in job.text() and " draining, 1 requests have 25 s" in job.text(), job.text()[-800:]


def the_end_of_the_time_drains_it_first():
    """Slurm's clock has minutes, so the signal of the file is sent by hand, as it would be: to the steps, not to the script."""
    with open(os.path.join(SLURM, "one-node.sbatch")) as f:
        assert re.search(r"^#SBATCH --signal=TERM@\d+$", f.read(), re.M), "B: would tell the script alone, which is srun"
    job = Job(cluster, "one-node.sbatch")
    assert cluster.run("scancel", "--signal=TERM", job.id) == ""
    assert job.ended() == "COMPLETED", job.text()[-800:]
    assert " main: done" in job.text()


def what_is_missing_is_said():
    env = {"SPILLWAY_API_KEY_FILE": ""}
    said = cluster.run("sbatch", "--parsable", os.path.join(SLURM, "one-node.sbatch"), env=env)
    log = "%s/spillway-%s.log" % (cluster.folder, said)
    eventually(lambda: os.path.exists(log) and "SPILLWAY_API_KEY_FILE" in open(log).read(), "it says which variable")
    eventually(lambda: cluster.run("squeue", "-h", "-t", "all", "-j", said, "-o", "%T") == "FAILED", "the job has failed")


def two_nodes_share_a_model():
    """Both on this machine, so each has a port of its own; the rest is what Slurm says in the step's environment."""
    base = free_port()
    wrapper = cluster.folder + "/spillway-emu"
    with open(wrapper, "w") as f:
        f.write('#!/bin/sh\nport=%d\n[ "$SLURM_NODEID" = 0 ] || port=%d\nexec "%s" "$@" --port "$port"\n' % (base, free_port(), EMU))
    os.chmod(wrapper, 0o755)
    env = {"SPILLWAY": wrapper, "SPILLWAY_PORT": str(base), "MASTER_ADDR": "127.0.0.1:%d" % free_port()}
    job = Job(cluster, "nodes.sbatch", "--tensor-parallel-size", "2", "--kv-cache-bytes", "64MiB", "--max-model-len", "512", sbatch=("--nodes=2",), env=env)
    r = job.ask(max_tokens=4)
    assert r.status == 200 and "Paris" in r.json["choices"][0]["text"], r
    assert " helps 127.0.0.1" in job.text(), job.text()[-1500:]
    assert cluster.run("scancel", job.id) == ""
    assert job.ended() == "CANCELLED"
    assert job.text().count(" main: done") == 2, job.text()[-1500:]


TESTS = [one_node_serves_and_scancel_drains_it, the_end_of_the_time_drains_it_first, what_is_missing_is_said, two_nodes_share_a_model]


def main():
    global cluster
    with tempfile.TemporaryDirectory(prefix="slurm-") as d:
        os.environ.pop("MASTER_ADDR", None)
        began = time.monotonic()
        cluster = Cluster(d)
        print("       two nodes are idle after %.1f s" % (time.monotonic() - began))
        try:
            return run_tests(TESTS)
        finally:
            cluster.run("scancel", "--signal=KILL", "--full", "--user", cluster.run("id", "-un"))
            cluster.stop()


if __name__ == "__main__":
    scratch.run(main)
