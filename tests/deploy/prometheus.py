#!/usr/bin/env python3
"""What operators import (deploy/prometheus, deploy/grafana) against a real Prometheus that scrapes a real server under load.

    prometheus.py [--plot FILE]      --plot: draw every panel of the board from what was scraped (needs matplotlib)

PROMETHEUS names the folder that tools/prometheus_root made. One line each, then `N passed, N failed, N skipped`."""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "e2e"), os.path.join(ROOT, "tests", "fault")]

from a_tls import TlsServer  # noqa: E402
from harness import PATIENCE, Server, fake_nvml, free_port, run_tests  # noqa: E402
from tiers import BASE, World  # noqa: E402

BIN = os.path.join(os.environ.get("PROMETHEUS", os.path.join(ROOT, "build", "prometheus")), "usr", "bin")
RULES = os.path.join(ROOT, "deploy", "prometheus", "spillway.rules.yaml")
BOARD = os.path.join(ROOT, "deploy", "grafana", "spillway.json")
TIGHT = ["--kv-cache-bytes", "5MiB", "--kv-host-gib", "0.005"]  # blocks leave the device and the host while it serves
WINDOW = 15  # seconds of [$__rate_interval]


def promtool(*args, stdin=None):
    return subprocess.run([os.path.join(BIN, "promtool"), *args], input=stdin, capture_output=True, text=True)


def queries():
    """(panel, expression) of all panels, for all servers."""
    with open(BOARD) as f:
        board = json.load(f)
    for p in board["panels"]:
        for t in p.get("targets", []):
            expr = t["expr"].replace("$__rate_interval", "%ds" % WINDOW)
            for name in ("job", "instance"):
                expr = expr.replace("$" + name, ".*")
            assert "$" not in expr, expr
            yield p["title"], expr


def names_in(text):
    return set(re.findall(r"\b(?:vllm|spillway):\w+|\b(?:http|process)_\w+", text))


class Scraped:
    """A server whose tiers are used and whose machine has GPUs, what asks it, and the Prometheus that scrapes it."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="spillway-deploy-")
        self.tiers = World(7)
        driver, self.xids = os.path.join(self.folder, "driver"), os.path.join(self.folder, "xids")
        fake_nvml(driver)  # so that the panels of GPUs have numbers; the server computes on the CPU
        self.server = Server(*BASE, *TIGHT, *self.tiers.store(), env={"LD_LIBRARY_PATH": driver, "FAKE_NVML_EVENTS": self.xids})
        self.stop = threading.Event()
        self.askers = [threading.Thread(target=self.ask, args=(i,), daemon=True) for i in range(4)]
        self.port = free_port()
        config = os.path.join(self.folder, "prometheus.yml")
        with open(config, "w") as f:
            json.dump({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [RULES], "scrape_configs": [
                {"job_name": "spillway", "static_configs": [{"targets": ["127.0.0.1:%d" % self.server.port]}]}]}, f)
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.prometheus = subprocess.Popen(
            [os.path.join(BIN, "prometheus"), "--config.file", config, "--storage.tsdb.path", os.path.join(self.folder, "data"),
             "--web.listen-address", "127.0.0.1:%d" % self.port], stdout=self.log, stderr=self.log)
        for a in self.askers:
            a.start()

    def ask(self, i):
        """Prompts whose beginnings are shared, more than the device holds, so that blocks go down and come up again."""
        k = i
        while not self.stop.is_set():
            body = self.tiers.body(k % 18)
            body["stream"] = k % 3 == 0
            try:
                self.server.post("/v1/completions", body)
            except OSError:
                pass  # the test ends
            k += 5

    def api(self, path, **params):
        url = "http://127.0.0.1:%d/api/v1/%s?%s" % (self.port, path, urllib.parse.urlencode(params))
        with urllib.request.urlopen(url, timeout=30) as r:
            answer = json.load(r)
        assert answer["status"] == "success", answer
        return answer["data"]

    def values(self, expr):
        return [float(r["value"][1]) for r in self.api("query", query=expr)["result"]]

    def settled(self, expr):
        """Waits until the expression has numbers; returns whether."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.prometheus.poll() is None, "prometheus ended: " + open(self.log.name).read()[-500:]
            try:
                v = self.values(expr)
                if v and not any(math.isnan(x) for x in v):
                    return True
            except OSError:
                pass  # it does not listen yet
            time.sleep(0.5)
        return False

    def close(self):
        self.stop.set()
        for a in self.askers:
            a.join()
        self.prometheus.terminate()
        self.prometheus.wait()
        self.log.close()
        if self.server.proc.poll() is None:
            self.server.stop()
        self.tiers.close()
        shutil.rmtree(self.folder)


def the_rules_are_sound_and_each_alert_fires_where_it_should(_):
    r = promtool("check", "rules", RULES)
    assert r.returncode == 0, r
    r = promtool("test", "rules", RULES.replace(".rules.yaml", ".rules.test.yaml"))
    assert r.returncode == 0, r.stdout + r.stderr
    with open(RULES) as f, open(RULES.replace(".rules.yaml", ".rules.test.yaml")) as g:
        alerts, tested = re.findall(r"- alert: (\w+)", f.read()), g.read()
    assert alerts and [a for a in alerts if "alertname: %s\n" % a not in tested] == [], "an alert has no test"
    with open(os.path.join(ROOT, "docs/OPERATIONS.md")) as f:
        page = f.read()
    assert [a for a in alerts if "`%s`" % a not in page] == [], "an alert has no line in docs/OPERATIONS.md"


def the_board_is_what_its_script_writes(_):
    assert subprocess.run([sys.executable, os.path.join(ROOT, "deploy", "grafana", "make_board.py"), "--check"]).returncode == 0


def every_metric_named_is_exported(w):
    text = w.server.get("/metrics").body.decode()
    secure = TlsServer(folder=w.folder)  # the metrics of certificates are those of a server that has one
    text += secure.get("/metrics").body.decode()
    secure.stop()
    have = {m for m in re.findall(r"^([\w:]+)[{ ]", text, re.M)}
    with open(RULES) as f:
        wanted = names_in(f.read())
    for _, expr in queries():
        wanted |= names_in(expr)
    assert len(wanted) > 30 and wanted <= have, "not exported: %s" % sorted(wanted - have)


def promtool_reads_the_page(w):
    r = promtool("check", "metrics", stdin=w.server.get("/metrics").body.decode())
    lint = [x for x in r.stderr.splitlines() if "should not contain ':'" not in x]  # the colon is in the names that the field uses
    assert r.returncode in (0, 3) and not any("rror" in x for x in lint), r.stderr
    print("       lint:", "; ".join(lint)[:300] or "nothing")


def every_query_of_the_board_has_data(w):
    missing = [(title, expr) for title, expr in queries() if not w.settled(expr)]
    assert not missing, "no data: %s" % missing


def a_healthy_server_fires_no_critical_alert(w):
    assert w.settled("count(ALERTS) or vector(0)")
    # A scrape or a step that comes late on a busy machine makes two of them pending; they fire after a minute of it.
    late = 'ALERTS{alertname=~"SpillwayDown|SpillwayEngineStuck", alertstate="pending"}'
    firing = w.api("query", query='ALERTS{severity="critical"} unless ' + late)["result"]
    assert firing == [], firing
    loaded = [r["name"] for g in w.api("rules")["groups"] for r in g["rules"]]
    assert len(loaded) >= 15 and all(r["health"] == "ok" for g in w.api("rules")["groups"] for r in g["rules"]), loaded


def an_xid_fires_its_alert(w):
    with open(w.xids, "w") as f:
        f.write("1 63;")
    assert w.settled('ALERTS{alertname="SpillwayGpuXid"}')
    firing = w.api("query", query='ALERTS{alertname="SpillwayGpuXid"}')["result"]
    assert [r["metric"]["gpu"] for r in firing] == ["1"], firing
    assert w.settled('ALERTS{alertname="SpillwayGpuRowsPending"}')  # which the driver says from the beginning


def a_server_that_is_gone_is_seen(w):
    w.stop.set()
    w.server.stop()
    assert w.settled('min(up{job="spillway"})')
    end = time.monotonic() + PATIENCE
    while w.values('min(up{job="spillway"})') != [0.0]:
        assert time.monotonic() < end, "up stays 1"
        time.sleep(0.5)
    while not w.api("query", query='ALERTS{alertname="SpillwayDown"}')["result"]:
        assert time.monotonic() < end, "SpillwayDown is not even pending"
        time.sleep(0.5)


def plot(w, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    with open(BOARD) as f:
        panels = [p for p in json.load(f)["panels"] if p["type"] == "timeseries"]
    end = time.time()
    cols = 3
    fig, axes = plt.subplots(-(-len(panels) // cols), cols, figsize=(16, 2.5 * -(-len(panels) // cols)))
    for ax in axes.flat[len(panels):]:
        ax.axis("off")
    for ax, p in zip(axes.flat, panels):
        for t in p["targets"]:
            expr = t["expr"].replace("$__rate_interval", "%ds" % WINDOW).replace("$job", ".*").replace("$instance", ".*")
            for r in w.api("query_range", query=expr, start=end - 60, end=end, step=1)["result"]:
                label = re.sub(r"{{(\w+)}}", lambda m: r["metric"].get(m.group(1), ""), t["legendFormat"])
                label = re.sub(r"127\.0\.0\.1:\d+", "server", label)
                ax.plot([float(x) - end for x, _ in r["values"]], [float(y) for _, y in r["values"]], label=label, linewidth=1)
        ax.set_title("%s (%s)" % (p["title"], p["fieldConfig"]["defaults"]["unit"]), fontsize=9)
        top = max([y for line in ax.lines for y in line.get_ydata()], default=0)
        ax.set_ylim(0, 1.4 * top or 1)  # room for the legend
        ax.tick_params(labelsize=7)
        if len(ax.lines) > 0:
            ax.legend(fontsize=6, loc="upper left", ncol=1 + len(ax.lines) // 6)
    fig.tight_layout()
    fig.savefig(path, dpi=70)


TESTS = [the_rules_are_sound_and_each_alert_fires_where_it_should, the_board_is_what_its_script_writes, every_metric_named_is_exported,
         promtool_reads_the_page, every_query_of_the_board_has_data, a_healthy_server_fires_no_critical_alert, an_xid_fires_its_alert, a_server_that_is_gone_is_seen]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--plot", metavar="FILE")
    o = p.parse_args()
    w = Scraped()
    try:
        if o.plot:
            time.sleep(45)
            with open(w.xids, "w") as f:
                f.write("1 63;")
            time.sleep(30)
            plot(w, o.plot)
            return 0
        return run_tests(TESTS, w)
    finally:
        w.close()


if __name__ == "__main__":
    sys.exit(main())
