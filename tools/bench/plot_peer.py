#!/usr/bin/env python3
"""plot_peer: speed over the batch and over the length of the prompt, ours and llama.cpp's, from files of bench_peer.py.

    python3 tools/bench/plot_peer.py MEASURED.json... --out OUT.svg [--per cpu|second] [--title TEXT]

One row of panels per series of the file that has three points: decode on the left, prefill on the right; medians, and all rounds as dots behind them."""
import argparse
import json
import math

WIDE, HIGH, LEFT, TOP, GAP = 380, 230, 62, 58, 92
OURS, PEER, INK, FAINT = "#0b6e99", "#c2571a", "#222222", "#dddddd"


def nice(lo, hi):
    """Values for a logarithmic axis: 1, 2, 5 times powers of ten that lie within."""
    out = [m * 10.0**e for e in range(math.floor(math.log10(lo)) - 1, math.ceil(math.log10(hi)) + 1) for m in (1, 2, 5)]
    return [v for v in out if lo <= v <= hi]


def short(v):
    return f"{v / 1000:g}k" if v >= 1000 else f"{v:g}"


def panel(out, x0, y0, title, x_name, y_name, points):
    """points: [(x, [ours], [peer])]"""
    ys = [v for _, a, b in points for v in a + b]
    lo, hi = min(ys) / 1.4, max(ys) * 1.4
    a, b = math.log(points[0][0]), math.log(points[-1][0])
    px = lambda x: x0 + 14 + (math.log(x) - a) / ((b - a) or 1) * (WIDE - 28)
    py = lambda y: y0 + HIGH - (math.log(y) - math.log(lo)) / (math.log(hi) - math.log(lo)) * HIGH
    out.append(f'<text x="{x0}" y="{y0 - 12}" class="t">{title}</text>')
    for v in nice(lo, hi):
        out.append(f'<line x1="{x0}" x2="{x0 + WIDE}" y1="{py(v):.1f}" y2="{py(v):.1f}" stroke="{FAINT}"/>'
                   f'<text x="{x0 - 8}" y="{py(v) + 4:.1f}" text-anchor="end">{short(v)}</text>')
    for x, _, _ in points:
        out.append(f'<line x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{y0 + HIGH}" y2="{y0 + HIGH + 4}" stroke="{INK}"/>'
                   f'<text x="{px(x):.1f}" y="{y0 + HIGH + 18}" text-anchor="middle">{short(x) if x < 1000 else x}</text>')
    out.append(f'<text x="{x0 + WIDE / 2}" y="{y0 + HIGH + 36}" text-anchor="middle">{x_name}</text>')
    out.append(f'<text x="{x0 - 46}" y="{y0 + HIGH / 2}" text-anchor="middle" transform="rotate(-90 {x0 - 46} {y0 + HIGH / 2})">{y_name}</text>')
    middle = lambda v: sorted(v)[len(v) // 2] if len(v) % 2 else sum(sorted(v)[len(v) // 2 - 1:len(v) // 2 + 1]) / 2
    for side, color, name in ((1, OURS, "Spillway"), (2, PEER, "llama.cpp")):
        line = [(px(p[0]), py(middle(p[side]))) for p in points]
        for p in points:
            out += [f'<circle cx="{px(p[0]):.1f}" cy="{py(v):.1f}" r="1.8" fill="{color}" opacity="0.35"/>' for v in p[side]]
        out.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in line) + '"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.4" fill="{color}"/>' for x, y in line]
        # the upper line's name above its higher end, the lower one's below its lower end: there the line leads away from it
        below = middle(points[-1][side]) < middle(points[-1][3 - side])
        at, anchor = (0, "start") if (line[0][1] < line[-1][1]) != below else (-1, "end")
        out.append(f'<text x="{line[at][0]:.1f}" y="{line[at][1] + (20 if below else -10):.1f}" text-anchor="{anchor}" fill="{color}">{name}</text>')


def series_points(rows, kind, key):
    found = []
    for name, row in rows.items():
        if name.startswith(kind + ":"):
            found.append((int(name.split(":")[1]), *([r[side][key] for r in row["rounds"]] for side in ("ours", "peer"))))
    return sorted(found)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("measured", nargs="+")
    p.add_argument("--out", required=True)
    p.add_argument("--per", choices=("cpu", "second"), default="second", help="tokens a second of CPU time, or of time")
    p.add_argument("--title", default="Spillway and llama.cpp on one machine, the same weights, by turns")
    o = p.parse_args()
    known, panels = {}, []
    for path in o.measured:
        with open(path) as f:
            for name, rows in json.load(f).items():
                known.setdefault(name, {}).update(rows)
    key, y_name = ("tok_cpu_s", "tokens per CPU second") if o.per == "cpu" else ("tok_s", "tokens per second")
    for name, rows in known.items():
        panels.append((name, series_points(rows, "decode", key), series_points(rows, "prefill", key)))
    panels = [x for x in panels if len(x[1]) > 2 or len(x[2]) > 2]
    wide, high = LEFT + 2 * WIDE + GAP + 20, TOP + 26 + len(panels) * (HIGH + 92)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
           f'font-family="sans-serif" font-size="12" fill="{INK}"><style>.t{{font-size:13px;font-weight:600}}</style>'
           f'<rect width="100%" height="100%" fill="white"/><text x="{LEFT}" y="24" font-size="15" font-weight="600">{o.title}</text>']
    for i, (name, decode, prefill) in enumerate(panels):
        y = TOP + 20 + i * (HIGH + 92)
        if len(decode) > 2:
            panel(out, LEFT, y, f"{name}: decode, all sequences", "sequences at once", y_name, decode)
        if len(prefill) > 2:
            panel(out, LEFT + WIDE + GAP, y, f"{name}: prefill", "tokens of the prompt", y_name, prefill)
    out.append("</svg>")
    with open(o.out, "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
