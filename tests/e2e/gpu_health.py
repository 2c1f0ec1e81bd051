#!/usr/bin/env python3
"""What /metrics tells of GPUs, by a libnvidia-ml.so.1 of the tests' own (tests/fault/fake_nvml.c). What the server does about its own GPUs is in
tests/fault/h_gpu.py.

    gpu_health.py [--preset check] [name ...]

One line each, then `N passed, N failed, N skipped`."""

import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "fault"))

import scratch  # noqa: E402
import world  # noqa: E402
from harness import fake_nvml  # noqa: E402
from tiers import arguments, run_named  # noqa: E402

TESTS, test = world.tests()


class World(world.World):
    prefix = "spillway-nvml-"

    def __init__(self):
        super().__init__()
        for name, flags in (("new", []), ("old", ["-DOLD"])):
            fake_nvml(os.path.join(self.folder, name), *flags)

    def start(self, mode, library="new"):
        self.go = os.path.join(self.folder, "go-" + mode.replace(" ", "-"))
        env = {"LD_LIBRARY_PATH": os.path.join(self.folder, library), "FAKE_NVML": mode, "FAKE_NVML_GO": self.go, "FAKE_NVML_EVENTS": self.go + "-events"}
        return self.server(env=env)

    def event(self):
        open(self.go, "w").close()

    def xid(self, gpu, number):
        with open(self.go + "-events", "a") as f:
            f.write("%d %d;" % (gpu, number))


def gpus(s):
    """{(name, labels): value}"""
    found = re.findall(r"^spillway:(gpu_\w+)\{(.*?)\} (\S+)$", s.get("/metrics").body.decode(), re.M)
    return {(name, labels): float(v) for name, labels, v in found}


def wait(s, enough, what):
    end = time.monotonic() + 120
    while time.monotonic() < end:
        g = gpus(s)
        if enough(g):
            return g
        time.sleep(0.05)
    raise AssertionError("%s did not come: %r" % (what, g))


def serves(s):
    r = s.post("/v1/completions", {"prompt": "Hi", "max_tokens": 3})
    assert r.status == 200 and s.get("/health").status == 200


def log(s):
    with open(s.log_path) as f:
        return f.read()


@test
def what_the_driver_says_is_on_the_page(w):
    s = w.start("plain")
    g = wait(s, lambda g: ("gpu_utilization", 'gpu="1"') in g, "a sample")
    assert g["gpu_utilization", 'gpu="0"'] == 0.41 and g["gpu_utilization", 'gpu="1"'] == 0.42 and g["gpu_memory_utilization", 'gpu="0"'] == 0.07
    assert g["gpu_memory_total_bytes", 'gpu="1"'] == 85899345920 and g["gpu_memory_used_bytes", 'gpu="1"'] == 12345678
    assert g["gpu_power_watts", 'gpu="0"'] == 312.5 and g["gpu_temperature_celsius", 'gpu="0"'] == 61
    assert g["gpu_ecc_errors_total", 'gpu="0",kind="corrected"'] == 17 and g["gpu_ecc_errors_total", 'gpu="0",kind="uncorrected"'] == 3
    assert g["gpu_remapped_rows", 'gpu="0",state="remapped"'] == 3 and g["gpu_remapped_rows", 'gpu="0",state="pending"'] == 1
    on = {k[1] for k, v in g.items() if k[0] == "gpu_throttled" and v}
    assert on == {'gpu="%d",reason="%s"' % (i, r) for i in (0, 1) for r in ("sw_power_cap", "hw_thermal")}, on
    assert not any('gpu="2"' in labels for _, labels in g)
    serves(s)
    s.stop()


@test
def an_xid_is_counted_and_explained_and_costs_nothing_where_the_gpu_is_not_ours(w):
    s = w.start("plain")
    wait(s, lambda g: g, "a sample")
    w.xid(1, 94)
    g = wait(s, lambda g: g.get(("gpu_xid_errors_total", 'gpu="1"')) == 1, "the event")
    assert g["gpu_last_xid", 'gpu="1"'] == 94 and g["gpu_xid_errors_total", 'gpu="0"'] == 0
    assert "gpu 1 reports XID 94 (contained memory error" in log(s)
    for number in (95, 79, 64, 13, 7777):
        w.xid(0, number)
    g = wait(s, lambda g: g.get(("gpu_xid_errors_total", 'gpu="0"')) == 5, "the others")
    assert g["gpu_last_xid", 'gpu="0"'] == 7777
    serves(s)
    s.stop()


@test
def what_cannot_be_true_is_not_taken(w):
    s = w.start("lies")
    g = wait(s, lambda g: g.get(("gpu_odd_answers_total", 'gpu="0"'), 0) >= 2, "odd answers")
    assert g["gpu_utilization", 'gpu="0"'] == 0 and g["gpu_memory_used_bytes", 'gpu="0"'] == 0 and g["gpu_power_watts", 'gpu="0"'] == 312.5
    serves(s)
    s.stop()


@test
def a_gpu_that_is_lost_says_so_and_the_other_goes_on(w):
    s = w.start("lost")
    wait(s, lambda g: g.get(("gpu_lost", 'gpu="1"')) == 0, "a sample")
    w.event()
    g = wait(s, lambda g: g.get(("gpu_lost", 'gpu="1"')) == 1, "the loss")
    assert g["gpu_lost", 'gpu="0"'] == 0 and log(s).count("gpu 1 is lost") == 1
    serves(s)
    s.stop()


@test
def a_driver_that_hangs_stops_nothing_else(w):
    s = w.start("hang")
    wait(s, lambda g: g, "a sample")
    w.event()
    wait(s, lambda g: g["gpu_sample_age_seconds", 'gpu="0"'] > 3, "old numbers")
    serves(s)
    s.stop()  # exit code 0
    for mode in ("stuck", "no driver"):  # at the start
        s = w.start(mode)
        serves(s)
        assert not gpus(s)
        s.stop()


@test
def an_old_library_and_many_gpus(w):
    s = w.start("plain", "old")  # no events, no second memory call, no rows
    g = wait(s, lambda g: g, "a sample")
    assert g["gpu_memory_total_bytes", 'gpu="0"'] == 1000 and g["gpu_memory_used_bytes", 'gpu="0"'] == 400
    s.stop()
    s = w.start("many")
    g = wait(s, lambda g: g, "a sample")
    assert len([1 for name, _ in g if name == "gpu_lost"]) == 16
    s.stop()


@test
def events_that_return_at_once_do_not_make_it_spin(w):
    s = w.start("spin")
    wait(s, lambda g: g, "a sample")

    def ticks():
        for task in os.listdir("/proc/%d/task" % s.proc.pid):
            with open("/proc/%d/task/%s/stat" % (s.proc.pid, task)) as f:
                text = f.read()
            if "(nvml)" in text:
                return sum(int(x) for x in text.rsplit(")", 1)[1].split()[11:13])

    before = ticks()
    time.sleep(2)
    assert ticks() - before < 50, "a quarter of a CPU"
    s.stop()


def main():
    a = arguments(__doc__)
    return run_named(TESTS, World(), a.names)


if __name__ == "__main__":
    scratch.run(main)
