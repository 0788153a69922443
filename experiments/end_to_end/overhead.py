#!/usr/bin/env python3
"""Overhead of recording or of memory placement: a program with hither against the program alone,
in pairs, as ratios of wall time and CPU time.

The two run in turn, so a drift of the machine affects both. Quote the median of the ratios. The
time of writing the trace and finding symbols after the end of the program is listed separately:
it does not slow the program.

    python3 overhead.py --hither target/release/hither --pairs 9 -- cscope -d -f /tmp/cscope.out \\
        -L0 vfs_read
    python3 overhead.py --hither target/release/hither --memory cache-aware -- \\
        gcc -O2 -c memory.c
    python3 overhead.py --hither target/release/hither --memory majority -- sh loads/redis.sh

loads/ has servers and a Java heap under load.

With --memory the run is a dry one on any machine: accesses are sampled and decisions made, but
no page moves. With --wet it is what a user gets: on one node nothing is sampled. The wall time
includes the agent's start and end, and the CPU time includes the agent's.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command with its children. It has to succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    if code != 0:
        sys.exit(f"overhead: {' '.join(command)} ended with {code}")
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--memory", metavar="POLICY", help="place pages rather than record")
    parser.add_argument("--wet", action="store_true", help="with --memory: no dry run")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    hither = arguments.hither.resolve()
    work = Path(tempfile.mkdtemp(prefix="overhead-"))
    runs = {"plain": [], "hither": []}
    agent = []

    def recorded(number: int) -> tuple[float, float]:
        trace = work / f"{number}.hither"
        record = [str(hither), "--quiet", "record", "--seen-by=library", "-o", str(trace), "--"]
        wall, cpu = timed([*record, *arguments.command])
        ran = json.loads((trace / "meta.json").read_text())["more"]["ran_ns"] / 1e9
        agent.append(wall - ran)
        return ran, cpu

    def placed(_: int) -> tuple[float, float]:
        dry = [] if arguments.wet else ["--dry-run"]
        return timed(
            [
                str(hither),
                "run",
                "--quiet",
                *dry,
                f"--memory={arguments.memory}",
                "--",
                *arguments.command,
            ]
        )

    ways = {
        "plain": lambda _: timed(arguments.command),
        "hither": placed if arguments.memory else recorded,
    }
    timed(arguments.command)
    for number in range(arguments.pairs):
        # The order alternates: the second run of a pair finds warmer caches.
        for way in sorted(ways, reverse=number % 2 == 1):
            runs[way].append(ways[way](number))
    print(f"command: {' '.join(arguments.command)}")
    print(f"machine: {os.uname().release}, {os.cpu_count()} CPUs")
    for which, name in enumerate(["wall", "CPU"]):
        plain, under = ([run[which] for run in runs[way]] for way in ("plain", "hither"))
        ratios = [other / alone for alone, other in zip(plain, under)]
        print(f"{name}, plain s:  " + " ".join(f"{run:.3f}" for run in plain))
        print(f"{name}, hither s: " + " ".join(f"{run:.3f}" for run in under))
        print(
            f"{name}, ratio: min {min(ratios):.3f}  median {statistics.median(ratios):.3f}  "
            f"max {max(ratios):.3f}"
        )
    if agent:
        print(
            f"before and after the program (symbols, writing): median "
            f"{statistics.median(agent):.2f} s"
        )
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
