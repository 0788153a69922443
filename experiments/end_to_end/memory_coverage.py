#!/usr/bin/env python3
"""How much of the memory that a program uses is known to hither.

Runs the program under a dry run of `hither run --memory`. Twice a second (--period), the kernel is
asked which pages each of its processes has used in a fifth of a second: it forgets what was used
(/proc/PID/clear_refs), and then counts by mapping (Referenced in /proc/PID/smaps). The log of the
run says which allocations were reported by then, and which mappings were read. A mapping that is
known in part counts in proportion. What hither then leaves alone is not left out.

    python3 memory_coverage.py --hither target/release/hither -- python3 linear_algebra.py

Prints, for all samples together, the pages used, the share of them in memory that a process writes
to (the rest are programs and libraries, which have one copy for all), and the share of that which
is known, with the largest mappings that are not.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

PAGE = 4096


class Used(NamedTuple):
    """Pages of a mapping that were used by a certain time of the run."""

    time_ns: int
    pid: int
    start: int
    end: int
    pages: int
    writable: bool
    name: str


def descendants(pid: int) -> list[int]:
    """A process's children, their children and so on."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, read(children).split()):
            found += [child, *descendants(child)]
    return found


def read(path: Path) -> str:
    """A file of /proc, empty if its process is gone."""
    try:
        return path.read_text()
    except OSError:
        return ""


def used(pid: int, time_ns: int) -> list[Used]:
    """What a process has used since its marks were cleared."""
    found = []
    for line in read(Path(f"/proc/{pid}/smaps")).splitlines():
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            start, end = (int(word, 16) for word in words[0].split("-"))
            writable = "w" in words[1]
            name = words[5] if len(words) > 5 else "anonymous"
        elif words[0] == "Referenced:" and int(words[1]) > 0:
            pages = int(words[1]) * 1024 // PAGE
            found.append(Used(time_ns, pid, start, end, pages, writable, name))
    return found


def sample(run: subprocess.Popen, began_ns: int, period_s: float) -> list[Used]:
    """Samples until the run ends."""
    found = []
    while run.poll() is None:
        time.sleep(period_s)
        pids = descendants(run.pid)
        for pid in pids:
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("1")
            except OSError:
                pass
        time.sleep(0.2)
        for pid in pids:
            found += used(pid, time.monotonic_ns() - began_ns)
    return found


def regions(log: Path) -> dict[int, list[tuple[int, int, int, int]]]:
    """By process: start, end, and the time from when to when there was a region."""
    found: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    forever = 1 << 62
    for text in log.open():
        line = json.loads(text)
        kind, pid = line.get("input"), line.get("pid")
        if kind in ("started", "ended"):
            found[pid] = [
                (start, end, since, min(until, line["time_ns"]))
                for start, end, since, until in found[pid]
            ]
        elif kind in ("region", "memory"):
            ranges = line.get("ranges", [line])
            found[pid] += [
                (start, start + of["length"], line["time_ns"], forever)
                for of in ranges
                for start in [int(of["start"], 16)]
            ]
        elif kind == "region_end":
            start = int(line["start"], 16)
            end = start + line["length"]
            found[pid] = [
                (first, last, since, min(until, line["time_ns"]))
                if start <= first and last <= end
                else (first, last, since, until)
                for first, last, since, until in found[pid]
            ]
    return found


def covered(of: Used, known: list[tuple[int, int, int, int]]) -> float:
    """The share of a mapping that is in regions."""
    there = sorted(
        (max(start, of.start), min(end, of.end))
        for start, end, since, until in known
        if since <= of.time_ns < until and start < of.end and of.start < end
    )
    total, reached = 0, of.start
    for start, end in there:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total / (of.end - of.start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--period", type=float, default=0.5, help="seconds between two samples")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coverage-") as work:
        log = Path(work) / "memory.jsonl"
        began_ns = time.monotonic_ns()
        run = subprocess.Popen(
            [
                str(arguments.hither.resolve()), "--quiet", "run", "--memory", "--dry-run",
                "--log", str(log), "--", *arguments.command,
            ],
            stdout=subprocess.DEVNULL,
        )
        samples = sample(run, began_ns, arguments.period)
        known = regions(log)
    pages, writable, inside = 0, 0, 0.0
    missing: Counter[str] = Counter()
    for of in samples:
        pages += of.pages
        if of.writable:
            share = covered(of, known[of.pid])
            writable += of.pages
            inside += share * of.pages
            missing[of.name] += round((1 - share) * of.pages)
    if writable == 0:
        raise SystemExit("the program used no memory when it was sampled: is it too short?")
    print(f"{pages} pages used, {writable / pages:.1%} of them writable")
    print(f"{inside / writable:.1%} of these known to hither")
    for name, count in missing.most_common(5):
        if count > 0:
            print(f"  {count} pages not: {name}")


if __name__ == "__main__":
    main()
