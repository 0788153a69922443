#!/usr/bin/env python3
"""Cost of placements: processor time of `hither place` for up to ten million references
and for 4 to 256 nodes. Placements: post-office and dual-layer on files (`hither gen
shared-files`), upm and first-touch on pages (`hither gen stencil`).

To exclude the time of reading the trace, the placement runs once and four times over the same
trace. The cost is a third of the difference: the minimum and the median of several runs. All
threads count, on one core, since another thread decodes during a run of files. Prints a Markdown
table and writes every run as JSON. Takes about five minutes; --quick uses a tenth of the
references.

    python3 placement_speed.py --hither target/release/hither --work /tmp/speed --output \\
        placement_speed.json
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

PAGES = ["upm", "first-touch"]
NODES = {4: "mesh:2x2", 16: "mesh:4x4", 64: "mesh:8x8", 256: "mesh:16x16"}
TIMES = 4


def cpu_s(command: list[str]) -> tuple[float, str]:
    """The processor time of a process, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {command}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


class Bench:
    def __init__(self, hither: Path, work: Path, pairs: int):
        self.hither, self.work, self.pairs, self.rows = str(hither), work, pairs, []

    def trace(self, workload: str, threads: int) -> Path:
        path = self.work / (
            "".join(c if c.isalnum() else "-" for c in f"{workload}-{threads}") + ".hither"
        )
        if not path.exists():
            cpu_s(
                [
                    self.hither,
                    "gen",
                    "-q",
                    workload,
                    "--threads",
                    str(threads),
                    "--nodes",
                    str(threads),
                    "-o",
                    str(path),
                ]
            )
        return path

    def run(
        self, grows: str, trace: Path, placement: str, nodes: int, topology: str, size: str
    ) -> None:
        def once(times: int) -> tuple[float, dict]:
            placements = ",".join([placement] * times)
            command = [
                self.hither,
                "place",
                "-q",
                "--json",
                "--nodes",
                topology,
                "-s",
                size,
                "--placement",
                placements,
                str(trace),
            ]
            seconds, out = cpu_s(command)
            return seconds, json.loads(out)

        costs = []
        for _ in range(self.pairs):
            alone, document = once(1)
            several, _ = once(TIMES)
            costs.append((several - alone) / (TIMES - 1))
        cost_s, median_s = (max(of(costs), 1e-9) for of in (min, statistics.median))
        references = document["trace"]["references"]
        row = {
            "grows": grows,
            "placement": placement,
            "nodes": nodes,
            "topology": topology,
            "size": size,
            "references": references,
            "accesses": document["results"][0]["accesses"],
            "blocks": document["trace"]["distinct_blocks"],
            "cpu_s": round(cost_s, 4),
            "cpu_s_runs": [round(cost, 4) for cost in costs],
        }
        self.rows.append(row)
        speed = references / cost_s / 1e6
        print(
            f"| {placement} | {topology} | {references:,} | {row['blocks']:,} | {cost_s:.3f} "
            f"| {speed:.1f} | {1e9 * cost_s / references:.0f} | "
            f"{1e9 * median_s / references:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for the traces, which are kept and used again",
    )
    parser.add_argument("--output", type=Path, help="every run, as JSON")
    parser.add_argument(
        "--pairs",
        type=int,
        default=5,
        help="runs of each; the least is taken, the median printed beside it",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the references")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {0})
    arguments.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments.hither.resolve(), arguments.work, arguments.pairs)
    scale = 10 if arguments.quick else 1
    version = subprocess.run(
        [bench.hither, "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "hither": version,
    }
    print(
        f"{about}\n\n| placement | nodes | references | blocks | processor, s | M "
        f"references/s | ns a reference | median, ns |\n|---|---|--:|--:|--:|--:|--:|--:|"
    )
    # The number of accesses grows, with the same number of blocks. Each node holds 2 % of the
    # blocks; 25 nodes hold half of them.
    for reuse in (10, 30, 100):
        trace = bench.trace(f"shared-files{{blocks={100_000 // scale},reuse={reuse}}}", 25)
        for placement, nodes, topology, size in (
            ("post-office", 25, "mesh:5x5", "2%"),
            ("dual-layer", 2, "2", "40%"),
        ):
            bench.run("accesses", trace, placement, nodes, topology, size)
    # The number of blocks grows, with the same number of accesses.
    for blocks, reuse in ((10_000, 300), (40_000, 75)):
        trace = bench.trace(f"shared-files{{blocks={blocks // scale},reuse={reuse}}}", 25)
        bench.run("blocks", trace, "post-office", 25, "mesh:5x5", "2%")
    for iterations in (10, 30, 90):
        trace = bench.trace(f"stencil{{iterations={max(iterations // scale, 3)}}}", 16)
        for placement in PAGES:
            bench.run("accesses", trace, placement, 16, "16", "100%")
    # The number of nodes grows, with the same number of accesses. Together they hold half of the
    # blocks.
    for nodes, topology in NODES.items():
        trace = bench.trace(f"shared-files{{blocks={100_000 // scale},reuse=30}}", nodes)
        bench.run("nodes", trace, "post-office", nodes, topology, f"{50 / nodes}%")
    for nodes in NODES:
        trace = bench.trace(f"stencil{{iterations={max(30 // scale, 3)}}}", 16)
        bench.run("nodes", trace, "upm", nodes, str(nodes), "100%")
    if arguments.output:
        arguments.output.write_text(
            json.dumps({"machine": about, "command": sys.argv, "runs": bench.rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
