#!/usr/bin/env python3
"""What recording costs: programs recorded against not recorded, in pairs, as ratios of wall time and CPU time.

The two are run in turn, so that a machine that drifts drifts for both; the median of the ratios is what to quote. The time
of writing the trace and finding symbols, after the program has ended, is listed apart: it is no cost to the program.

    python3 overhead.py --hither target/release/hither --pairs 9 -- cscope -d -f /tmp/cscope.out -L0 vfs_read
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    hither = arguments.hither.resolve()
    work = Path(tempfile.mkdtemp(prefix="overhead-"))
    ratios, plain_runs, recorded_runs, agent = [], [], [], []
    timed(arguments.command)
    for number in range(arguments.pairs):
        trace = work / f"{number}.hither"
        # Alternate which goes first: the second of a pair finds warmer caches.
        plain = timed(arguments.command) if number % 2 else None
        whole = timed([str(hither), "--quiet", "record", "-o", str(trace), "--", *arguments.command])
        plain = plain or timed(arguments.command)
        meta = json.loads((trace / "meta.json").read_text())
        ran = meta["more"]["ran_ns"] / 1e9
        ratios.append(ran / plain[0])
        plain_runs.append(plain[0])
        recorded_runs.append(ran)
        agent.append(whole[0] - ran)
    print(f"command: {' '.join(arguments.command)}")
    print(f"machine: {os.uname().release}, {os.cpu_count()} CPUs")
    print("plain s:    " + " ".join(f"{run:.3f}" for run in plain_runs))
    print("recorded s: " + " ".join(f"{run:.3f}" for run in recorded_runs))
    print(f"ratio: min {min(ratios):.3f}  median {statistics.median(ratios):.3f}  max {max(ratios):.3f}")
    print(f"before and after the program (symbols, writing): median {statistics.median(agent):.2f} s")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
