#!/usr/bin/env python3
"""plot_peers: draws what sim_peers has written: hit rate and time to the first token against the number of servers.

    sim_peers --csv peers.csv; plot_peers.py peers.csv --out docs/peers.svg

One line for each way of routing and kind of link. Needs matplotlib."""

import argparse
import csv

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file")
    p.add_argument("--out", required=True, help="SVG or PNG")
    o = p.parse_args()
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "peers", "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})
    with open(o.file) as f:
        rows = list(csv.DictReader(f))
    ways = list(dict.fromkeys(r["way"] for r in rows))
    fig, (hit, ttft) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    marks = "osv^D<>"
    for i, way in enumerate(ways):
        mine = [r for r in rows if r["way"] == way]
        x = [float(r["replicas"]) for r in mine]
        style = dict(marker=marks[i % len(marks)], ms=4, lw=1.4, color="C%d" % i, ls="-" if way.startswith("by prefix") else "--")
        hit.plot(x, [100 * (float(r["hit_here"]) + float(r["hit_peer"])) for r in mine], label=way, **style)
        ttft.plot(x, [float(r["ttft_p50_s"]) for r in mine], **style)
        ttft.plot(x, [float(r["ttft_p99_s"]) for r in mine], lw=1, color="C%d" % i, ls=":")
    most = max(100 * float(r["could_hit"]) for r in rows)
    hit.axhline(most, color="0.6", lw=0.8)
    hit.annotate("all that was asked before", (1, most), xytext=(2, 3), textcoords="offset points", fontsize=7, color="0.4")
    hit.set_ylim(0, 105)
    hit.set_title("prompt tokens not computed, %")
    ttft.set_title("time to first token, s (p50; dotted p99)")
    ttft.set_yscale("log")
    for ax in (hit, ttft):
        ax.set_xscale("log")
        ax.set_xlabel("servers")
        ax.grid(True, lw=0.3)
    hit.legend(fontsize=7, loc="lower left", frameon=False)
    fig.savefig(o.out, metadata={"Date": None} if o.out.endswith(".svg") else None, dpi=110)


if __name__ == "__main__":
    main()
