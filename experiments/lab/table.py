#!/usr/bin/env python3
"""The lab's results as the tables of docs/results: one row per case, with medians over its runs.

`±` is half the distance between the smallest and the largest run. `time` is the modelled time,
relative to the first row of the case on the same machine. `last half` is the same for the last
half of the iterations.

    cargo run --release -p lab -- lab/scenarios/placement.toml --output /tmp/placement
    python3 experiments/lab/table.py /tmp/placement/results.jsonl
"""

import argparse
import json

HEAD = [
    "case",
    "machine",
    "placement",
    "policy",
    "local share",
    "by arithmetic",
    "misses, millions",
    "modelled ms",
    "time",
    "last half",
    "kernel",
    "pages migrated",
    "runs",
]


def cells(row, first):
    runs, spread = row["runs"], row["spread"]
    half = lambda key, figure: f" ±{figure}" if len(runs) > 1 and key in spread else ""
    moved = [run["migrations"] for run in runs]
    expected = row["expected_local_share"]
    return [
        row["case"],
        row["machine"],
        row["placement"],
        row["policy"],
        f"{100 * row['local_share']:.1f} %"
        + half("local_share", f"{50 * spread['local_share']:.1f}"),
        "" if expected is None else f"{100 * expected:.1f} %",
        f"{row['misses'] / 1e6:.2f}" + half("misses", f"{50 * spread['misses']:.1f} %"),
        f"{row['modelled_time_ms']:.1f}"
        + half("modelled_time_ms", f"{50 * spread['modelled_time_ms']:.1f} %"),
        f"{row['modelled_time_ms'] / first['modelled_time_ms']:.2f}",
        f"{row['last_half_ms'] / first['last_half_ms']:.2f}"
        if "last_half_ms" in row and "last_half_ms" in first
        else "",
        f"{100 * row['kernel_share']:.1f} %",
        f"{row['migrations']:.0f}"
        + (f" ({min(moved)} to {max(moved)})" if min(moved) != max(moved) else ""),
        str(row["repetitions"]),
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", help="results.jsonl of the lab")
    for path in parser.parse_args().results:
        with open(path, encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        first = {}
        print("| " + " | ".join(HEAD) + " |\n|" + "---|" * 4 + "--:|" * (len(HEAD) - 4))
        for row in rows:
            reference = first.setdefault((row["case"], row["machine"]), row)
            print("| " + " | ".join(cells(row, reference)) + " |")


if __name__ == "__main__":
    main()
