#!/usr/bin/env python3
"""All placements of file blocks, on meshes, a torus and a tree: hit latency, access latency, the
slowest node's time and moves; and what each part of cost-benefit pays.

The workloads are in two sets. On the *tuning* set cost-benefit was designed: four applications of
`hither gen shared-files`. The *judging* set was run once, after that: the other two applications,
popularity by racks, popularity that moves between nodes, and scans with a popular part.

Each run is a row of raw.csv in --output. A run that is there already is not repeated, so an
interrupted experiment goes on where it was. tables.md is made from all rows.

    python3 placement.py --hither target/release/hither --work /tmp/placement --output \\
        experiments/placement/results
"""

import argparse
import csv
import json
import platform
import random
import subprocess
import sys
import time
from bisect import bisect
from math import exp, log
from pathlib import Path

SIX = ["ammp", "fma3d", "wupwise", "oltp", "specjbb", "specweb"]
TUNING = ["ammp", "wupwise", "oltp", "specweb"]
JUDGING = ["fma3d", "specjbb", "racks", "moving", "scans"]
TOPOLOGIES = {"mesh:5x5": 25, "mesh:8x8": 64, "torus:5x5": 25, "tree:5x5": 25}
OURS = "cost-benefit"
BASE = "first-and-forever"
RIVALS = [BASE, "always-migrate", "one-step", "post-office", "rendezvous"]
PLACEMENTS = [*RIVALS, "local-only", OURS]
EVERY_VICTIM = f"{OURS}{{trial=1}}"
PARTS = {
    "all parts": OURS,
    "median: blocks never move": f"{OURS}{{confidence=10}}",
    "confidence: every gain": f"{OURS}{{confidence=0}}",
    "confidence: after 50 accesses": f"{OURS}{{trigger=50}}",
    "no load": f"{OURS}{{load=no}}",
    "no replicas": f"{OURS}{{replicas=no}}",
    "no forwarding": f"{OURS}{{forward=no}}",
    "no exchange": f"{OURS}{{exchange=no}}",
    "every victim": EVERY_VICTIM,
}
# Of all blocks, what the caches hold together.
PART = 0.8
# As in ../post_office: a flat disk access of table 1, and 1 ms between the accesses of a node.
COSTS = "compute_ns=1000000,disk_ns=8200000"
LATE = ",split_directory=true,report_ns=100000000"
SMALL = {"10 %": 0.1, "25 %": 0.25, "50 %": 0.5}
CASES = {"": (PART, COSTS), "late": (PART, COSTS + LATE)} | {
    case: (part, COSTS) for case, part in SMALL.items()
}
MEASURES = {
    "hit_ms": lambda result: result["hit_latency_ns"] / 1e6,
    "access_ms": lambda result: result["access_latency_ns"] / 1e6,
    "slowest_s": lambda result: result["modelled_time_ns"] / 1e9,
    "misses": lambda result: result["misses"] / result["accesses"],
    "migrations": lambda result: result["migrations"],
    "forwarded": lambda result: result["forwarded"],
    "replications": lambda result: result["replications"],
    "imbalance": lambda result: result["node_imbalance"],
}
KEYS = ["case", "workload", "nodes", "policy", "placement"]


class Zipf:
    """Ranks from 0, the k-th in proportion to (k+1)^-skew."""

    def __init__(self, blocks: int, skew: float):
        self.blocks = blocks
        sums, whole = [], 0.0
        for rank in range(blocks):
            whole += (rank + 1) ** -skew
            sums.append(whole)
        self.sums = sums

    def draw(self, source: random.Random) -> int:
        return bisect(self.sums, source.random() * self.sums[-1])


def racks(threads: int, blocks: int, accesses: int, seed: int = 1):
    """Nodes in a row of a square are a rack. 70 % of the accesses go to the rack's own file, the
    others to one for all, both by popularity; 2 % write."""
    source = random.Random(seed)
    side = round(threads**0.5)
    own, of_all = Zipf(blocks * 8 // 10 // side, 0.9), Zipf(blocks * 2 // 10, 0.9)
    for _ in range(accesses // threads):
        for thread in range(threads):
            write = source.random() < 0.02
            if source.random() < 0.7:
                yield thread, thread // side * own.blocks + own.draw(source), write
            else:
                yield thread, side * own.blocks + of_all.draw(source), write


def moving(threads: int, blocks: int, accesses: int, seed: int = 2):
    """A file for each node, by popularity, which another node takes over in each of eight phases.
    30 % of the accesses go to any block of any file; 5 % write."""
    source = random.Random(seed)
    own = Zipf(blocks // threads, 0.7)
    files = list(range(threads))
    rounds = accesses // threads
    for at in range(rounds):
        if at % (rounds // 8) == 0:
            source.shuffle(files)
        for thread in range(threads):
            write = source.random() < 0.05
            if source.random() < 0.7:
                yield thread, files[thread] * own.blocks + own.draw(source), write
            else:
                yield thread, source.randrange(threads * own.blocks), write


def scans(threads: int, blocks: int, accesses: int, seed: int = 3):
    """Half of the accesses scan the node's own file again and again, in runs of eight; the others
    go to one file for all, by popularity. Nobody writes."""
    source = random.Random(seed)
    own, of_all = blocks * 8 // 10 // threads, Zipf(blocks * 2 // 10, 0.8)
    order = list(range(of_all.blocks))
    source.shuffle(order)
    at = [source.randrange(own) for _ in range(threads)]
    for _ in range(accesses // threads // 16):
        for thread in range(threads):
            for _ in range(8):
                yield thread, thread * own + at[thread], False
                at[thread] = (at[thread] + 1) % own
        for _ in range(8):
            for thread in range(threads):
                yield thread, threads * own + order[of_all.draw(source)], False


OWN = {"racks": racks, "moving": moving, "scans": scans}


def write_strace(file, accesses) -> None:
    """What strace would have seen, one thread a process."""
    for at, (thread, block, write) in enumerate(accesses):
        call = "pwrite64" if write else "pread64"
        time_s = f"{at // 1_000_000}.{at % 1_000_000:06}"
        request = f'{call}(3</data>, ""..., 4096, {4096 * block}) = 4096'
        file.write(f"{1000 + thread} {time_s} {request}\n")


class Lab:
    """Makes each trace once, and simulates it."""

    def __init__(self, hither: Path, work: Path):
        self.hither, self.work = hither, work
        work.mkdir(parents=True, exist_ok=True)

    def call(self, *arguments: object) -> str:
        command = [str(argument) for argument in (self.hither, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def trace(self, workload: str, threads: int) -> Path:
        path = self.work / f"{workload}-{threads}.hither"
        if path.exists():
            return path
        blocks, reuse = (10_000, 100) if threads == 25 else (20_000, 60)
        if workload in OWN:
            text = self.work / f"{workload}-{threads}.strace"
            with text.open("w") as file:
                write_strace(file, OWN[workload](threads, blocks, blocks * reuse))
            self.call("import", "-q", "--force", "--format", "strace", text, "-o", path)
            text.unlink()
        else:
            spec = f"shared-files{{like={workload},blocks={blocks},reuse={reuse}}}"
            self.call("gen", "-q", "--force", spec, "--threads", threads, "-o", path)
        return path

    def simulate(self, case: str, workload: str, nodes: str, policy: str, placements: list) -> list:
        threads = TOPOLOGIES[nodes]
        part, costs = CASES[case]
        answer = self.call(
            *("place", "-q", "--json", "--nodes", nodes, "--placement", ",".join(placements)),
            *("--size", f"{100 * part / threads:.4f}%", "--policy", policy),
            *("--bind", "threads", "--costs", costs),
            self.trace(workload, threads),
        )
        keys = (case, workload, nodes, policy)
        return [
            dict(zip(KEYS, (*keys, placement)))
            | {name: f"{measure(result):.6g}" for name, measure in MEASURES.items()}
            for placement, result in zip(placements, json.loads(answer)["results"])
        ]


def geometric(values: list[float]) -> float:
    return exp(sum(log(value) for value in values) / len(values))


def table(head: list[str], rows: list[list]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def compared(rows: list[dict], names: dict[str, str]) -> str:
    """A row for each topology and placement: geometric means over the workloads of what each takes
    against first-and-forever, and arithmetic means of moves, in thousands."""
    lines = []
    at = {(row["workload"], row["nodes"], row["placement"]): row for row in rows}
    for nodes in TOPOLOGIES:
        workloads = sorted({row["workload"] for row in rows if row["nodes"] == nodes})
        for name, placement in names.items():
            if not workloads or (workloads[0], nodes, placement) not in at:
                continue
            of = [at[workload, nodes, placement] for workload in workloads]
            base = [at[workload, nodes, BASE] for workload in workloads]

            def against(measure: str) -> str:
                ratios = [float(one[measure]) / float(two[measure]) for one, two in zip(of, base)]
                return f"{geometric(ratios):.3f}"

            def mean(measure: str) -> float:
                return sum(float(row[measure]) for row in of) / len(of)

            lines.append(
                [
                    nodes if name == next(iter(names)) else "",
                    name,
                    *(against(measure) for measure in ("hit_ms", "access_ms", "slowest_s")),
                    f"{100 * mean('misses'):.2f} %",
                    *(
                        f"{mean(measure) / 1000:.1f}"
                        for measure in ("migrations", "forwarded", "replications")
                    ),
                    f"{mean('imbalance'):.2f}",
                ]
            )
    head = ["nodes", "placement", "hit", "access", "slowest node", "misses"]
    return table([*head, "migrations", "forwarded", "replicas", "imbalance"], lines)


def each(rows: list[dict]) -> str:
    """For each workload and topology: what cost-benefit takes against the best of the rivals."""
    lines = []
    at = {(row["workload"], row["nodes"], row["placement"]): row for row in rows}
    for workload, nodes in dict.fromkeys((row["workload"], row["nodes"]) for row in rows):
        cells = []
        for measure in ("hit_ms", "access_ms", "slowest_s"):
            rival = min(RIVALS, key=lambda name: float(at[workload, nodes, name][measure]))
            best = float(at[workload, nodes, rival][measure])
            cells.append(f"{float(at[workload, nodes, OURS][measure]) / best:.3f} ({rival})")
        lines.append([workload, nodes, *cells])
    return table(["workload", "nodes", "hit", "access", "slowest node"], lines)


def small(rows: list[dict], workloads: list[str]) -> str:
    """For smaller caches: geometric means over the workloads of what each placement takes against
    first-and-forever, the workload where it fares worst by access, and its misses, in points, there
    and on average."""
    lines = []
    at = {
        (row["case"], row["policy"], row["workload"], row["placement"]): row
        for row in rows
        if row["nodes"] == "mesh:5x5"
    }
    for case, policy in [(case, policy) for policy in ("lru", "s3-fifo") for case in SMALL]:
        for placement in [*PLACEMENTS, EVERY_VICTIM]:
            pairs = {
                workload: (at[case, policy, workload, placement], at[case, policy, workload, BASE])
                for workload in workloads
            }

            def ratio(workload: str, measure: str) -> float:
                own, base = pairs[workload]
                return float(own[measure]) / float(base[measure])

            def points(workload: str) -> float:
                own, base = pairs[workload]
                return 100 * (float(own["misses"]) - float(base["misses"]))

            worst = max(workloads, key=lambda workload: ratio(workload, "access_ms"))
            lines.append(
                [
                    f"{case}, {policy}" if placement == PLACEMENTS[0] else "",
                    placement,
                    *(
                        f"{geometric([ratio(workload, measure) for workload in workloads]):.3f}"
                        for measure in ("hit_ms", "access_ms")
                    ),
                    f"{ratio(worst, 'access_ms'):.3f} ({worst})",
                    f"{sum(map(points, workloads)) / len(workloads):+.1f}",
                ]
            )
    return table(["caches", "placement", "hit", "access", "worst access", "misses"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the traces")
    parser.add_argument("--output", type=Path, required=True, help="where raw.csv and tables.md go")
    parser.add_argument("--tuning-only", action="store_true", help="leave the judging set alone")
    arguments = parser.parse_args()
    lab = Lab(arguments.hither.resolve(), arguments.work.resolve())
    arguments.output.mkdir(parents=True, exist_ok=True)
    raw = arguments.output / "raw.csv"
    rows = list(csv.DictReader(raw.open())) if raw.exists() else []
    done = {tuple(row[key] for key in KEYS) for row in rows}

    everything = [*PLACEMENTS, *(part for part in PARTS.values() if part != OURS)]
    judging = [] if arguments.tuning_only else JUDGING
    asked = [
        ("", workload, nodes, "lru", everything)
        for workload in [*TUNING, *judging]
        for nodes in TOPOLOGIES
    ]
    for workload in [*TUNING, *judging]:
        asked.append(("late", workload, "mesh:5x5", "lru", PLACEMENTS))
        asked.append(("", workload, "mesh:5x5", "s3-fifo", PLACEMENTS))
        for case in SMALL:
            for policy in ("lru", "s3-fifo"):
                asked.append((case, workload, "mesh:5x5", policy, [*PLACEMENTS, EVERY_VICTIM]))
    jobs = []
    for case, workload, nodes, policy, placements in asked:
        missing = [one for one in placements if (case, workload, nodes, policy, one) not in done]
        if missing:
            lab.trace(workload, TOPOLOGIES[nodes])
            jobs.append((case, workload, nodes, policy, missing))
    with raw.open("a", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *MEASURES], lineterminator="\n")
        if not rows:
            writer.writeheader()
        # One at a time: each run uses all processors.
        for job in jobs:
            new = lab.simulate(*job)
            writer.writerows(new)
            file.flush()
            rows += new

    def of(case: str, policy: str, workloads: list[str]) -> list[dict]:
        return [
            row
            for row in rows
            if (row["case"], row["policy"]) == (case, policy) and row["workload"] in workloads
        ]

    names = {placement: placement for placement in PLACEMENTS}
    parts = {BASE: BASE} | PARTS
    text = [
        "# Placements of file blocks\n",
        f"{lab.call('--version').strip()}, {time.strftime('%Y-%m')}, Linux {platform.release()}.",
        f"Geometric means over the workloads, against {BASE}; thousands of moves.\n",
    ]
    if judging:
        text += [
            f"## The six applications\n\n{', '.join(SIX)}.\n",
            compared(of("", "lru", SIX), names),
        ]
    sets = {"Tuning set": TUNING, "Judging set": judging}
    for title, workloads in sets.items():
        if workloads:
            text += [
                f"## {title}\n\n{', '.join(workloads)}.\n",
                compared(of("", "lru", workloads), names),
                f"### {title}: cost-benefit against the best of the rivals\n",
                each(of("", "lru", workloads)),
                f"### {title}: parts of cost-benefit\n",
                compared(of("", "lru", workloads), parts),
                f"### {title}: a split directory, and counts that come 0.1 s late\n",
                compared(of("late", "lru", workloads), names),
                f"### {title}: nodes that keep by s3-fifo\n",
                compared(of("", "s3-fifo", workloads), names),
                f"### {title}: smaller caches, on the mesh 5x5\n",
                small(rows, workloads),
            ]
    (arguments.output / "tables.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
