#!/usr/bin/env python3
"""plot_fleet: draws what sim_fleet has written: hit rate, time to the first token and answers/s against the size of the host tier.

    sim_fleet --csv a.csv ...; sim_fleet --csv b.csv ...
    plot_fleet.py --out docs/fleet.svg "24 agents a GPU=a.csv" "the same, random routing=b.csv"

One line per file and size of the folder (nvme_gib). Needs matplotlib."""

import argparse
import csv

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PANELS = [
    ("hit", 100, "prompt tokens not computed, %", False),
    ("ttft_p50_s", 1, "time to first token, s (p50; dotted p99)", True),
    ("answers_s", 1, "answers per second and GPU", False),
]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", nargs="+", help="LABEL=CSV")
    p.add_argument("--out", required=True, help="SVG or PNG")
    p.add_argument("--title", default="")
    o = p.parse_args()
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "fleet", "svg.fonttype": "none", "axes.spines.top": False, "axes.spines.right": False})
    fig, axes = plt.subplots(1, len(PANELS), figsize=(11, 3.6), constrained_layout=True)
    marks = "osv^D<>"
    n = 0
    for arg in o.file:
        label, _, path = arg.partition("=")
        with open(path) as f:
            rows = list(csv.DictReader(f))
        base = [r for r in rows if float(r["dram_gib"]) == 0]
        for nvme in sorted({float(r["nvme_gib"]) for r in rows}):
            mine = sorted(base + [r for r in rows if float(r["nvme_gib"]) == nvme and r not in base], key=lambda r: float(r["dram_gib"]))
            if len(mine) < 2:
                continue
            name = label + (", NVMe %g TiB" % (nvme / 1024) if nvme else "")
            x = [float(r["dram_gib"]) for r in mine]
            for ax, (key, scale, _, _) in zip(axes, PANELS):
                line = ax.plot(x, [scale * float(r[key]) for r in mine], marker=marks[n % len(marks)], ms=4, lw=1.4, color="C%d" % n, label=name)
                if key == "ttft_p50_s":
                    ax.plot(x, [float(r["ttft_p99_s"]) for r in mine], ls=":", lw=1, color=line[0].get_color())
                if key == "hit":
                    ax.set_ylim(0, 100)
            n += 1
    most = max(100 * float(r["could_hit"]) for r in rows)
    axes[0].axhline(most, color="0.6", lw=0.8, ls="--")
    axes[0].annotate("all that was asked before", (0, most), xytext=(2, 3), textcoords="offset points", fontsize=7, color="0.4")
    for ax, (_, _, name, log) in zip(axes, PANELS):
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("host tier, GiB per GPU")
        ax.set_yscale("log" if log else "linear")
        ax.grid(True, lw=0.3)
    axes[2].set_ylim(bottom=0)
    axes[2].legend(fontsize=7, loc="lower right", frameon=False)
    if o.title:
        fig.suptitle(o.title, fontsize=10)
    fig.savefig(o.out, metadata={"Date": None} if o.out.endswith(".svg") else None, dpi=110)


if __name__ == "__main__":
    main()
