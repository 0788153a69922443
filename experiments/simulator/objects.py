#!/usr/bin/env python3
"""Misses of caches in hither and in libCacheSim, on traces whose objects have sizes.

Each policy that both have runs at each size, by blocks (all objects alike) and by bytes. Counts are
of objects. Prints a Markdown table of misses, ours / theirs, and with --output a CSV of all.

Needs a Python with libcachesim==0.3.5, and traces in the format oracle-general, such as
libCacheSim's sample cloudPhysicsIO.oracleGeneral.bin; `hither export --format oracle-general` makes
one of any other. A run of libCacheSim that takes over --limit seconds is ended and has no result.

    venv/bin/python experiments/simulator/objects.py --hither target/release/hither \\
        --size 1% --size 10% traces/libcachesim/cloudPhysicsIO.oracleGeneral.bin
"""

import argparse
import csv
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

#: hither's policy, and libCacheSim's class and its parameters.
POLICIES = {
    "lru": ("LRU", {}),
    "fifo": ("FIFO", {}),
    "clock": ("Clock", {}),
    "sieve": ("Sieve", {}),
    "lfu": ("LFU", {}),
    "opt": ("Belady", {}),
    "s3-fifo": ("S3FIFO", {}),
    "s3-fifo{as=qd-lp}": ("S3FIFO", {"move_to_main_threshold": 1}),
    "s3-fifo{as=clock2q+}": ("Clock2QPlus", {}),
    "2q": ("TwoQ", {}),
    "arc": ("ARC", {}),
    "slru": ("SLRU", {}),
    "gdsf": ("GDSF", {}),
    "hyperbolic{sizes=0}": ("Hyperbolic", {}),
    "lhd": ("LHD", {}),
    "lecar": ("LeCaR", {}),
    "clock-pro": ("ClockPro", {}),
}


def ours(hither: str, trace: Path, size: str, by_bytes: bool) -> dict[str, dict[str, int]]:
    """The results of all policies, by policy as it was asked for."""
    arguments = [hither, "sim", trace, "--json", "--size", size, "--policy", ",".join(POLICIES)]
    if by_bytes:
        arguments.append("--objects")
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    results = json.loads(done.stdout)["results"]
    return dict(zip(POLICIES, results, strict=True))


def miss_ratio(policy: str, trace: Path, size: int, by_bytes: bool) -> float:
    """libCacheSim's miss ratio by objects."""
    import libcachesim

    name, parameters = POLICIES[policy]
    options = libcachesim.ReaderInitParam(ignore_obj_size=not by_bytes)
    kind = libcachesim.TraceType.ORACLE_GENERAL_TRACE
    reader = libcachesim.TraceReader(str(trace), kind, options)
    cache = getattr(libcachesim, name)(size, **parameters)
    return float(cache.process_trace(reader)[0])


def theirs(arguments: tuple[str, Path, int, bool], limit: float) -> float | None:
    """The same in a process of its own: some policies crash, and some take hours."""
    with multiprocessing.Pool(1) as pool:
        try:
            return pool.apply_async(miss_ratio, arguments).get(limit)
        except multiprocessing.TimeoutError:
            return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hither", default="hither")
    parser.add_argument("--size", action="append", help="parts of all blocks or bytes [1%% 10%%]")
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--output", type=Path)
    parser.add_argument("traces", type=Path, nargs="+")
    options = parser.parse_args()
    columns = ["trace", "by", "size", "policy", "references", "ours", "theirs"]
    rows = []
    for trace in options.traces:
        for by_bytes in [False, True]:
            for size in options.size or ["1%", "10%"]:
                for policy, found in ours(options.hither, trace, size, by_bytes).items():
                    capacity = found["cache_bytes"] if by_bytes else found["cache_blocks"]
                    asked = (policy, trace, capacity, by_bytes)
                    ratio = theirs(asked, options.limit)
                    misses = None if ratio is None else round(ratio * found["accesses"])
                    by = "bytes" if by_bytes else "blocks"
                    row = [trace.name, by, size, policy, found["accesses"], found["misses"], misses]
                    rows.append(row)
                    print(*row, sep=",", file=sys.stderr)
    if options.output:
        with options.output.open("w", newline="") as file:
            csv.writer(file).writerows([columns, *rows])
    cells: dict[str, dict[tuple[str, str, str], str]] = {policy: {} for policy in POLICIES}
    for name, by, size, policy, _, mine, other in rows:
        text = f"**{mine}**" if mine == other else f"{mine} / {'-' if other is None else other}"
        cells[policy][name, by, size] = text
    heads = list(dict.fromkeys((row[0], row[1], row[2]) for row in rows))
    print("| policy |", " | ".join(f"{name} {size} of {by}" for name, by, size in heads), "|")
    print("|---|" + "--:|" * len(heads))
    for policy, found_cells in cells.items():
        print(f"| `{policy}` |", " | ".join(found_cells[head] for head in heads), "|")


if __name__ == "__main__":
    main()
