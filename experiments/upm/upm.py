#!/usr/bin/env python3
"""User-level dynamic page migration (Nikolopoulos et al., ICS 2000) on a modelled Origin2000:
figures 2 to 4 and table 1, with the paper's values beside ours; and what it leaves open: the
effect of each parameter, cache-aware placement as the start, periods instead of iterations,
record-replay.

Programs are those of `hither gen`: cfd for BT and SP (alternating directions on a cube), cg for
CG, and also multigrid and stencil, which the paper does not have. Like the paper's programs they
iterate, and their first iteration is not counted. They are scaled: about as many pages as the
paper's resident sets, but of 4 KiB instead of 16 KiB, and caches of 64 KiB instead of 4 MiB.
Costs per page are a quarter of the Origin's: a migration takes 275 us instead of 1.1 ms (section
5.4), both in the criterion and on the modelled machine. As in the paper, upm migrates pages in
parallel to the program. `--hidden` is the share of that time that the program does not notice,
which the paper does not give. Migrations by the kernel's engines delay the thread whose access
caused them. autonuma's periods are a hundredth of Linux's, because runs take a second and not
minutes.

16 processors are 8 nodes and 32 are 16, as in the paper. Every node has room for all pages, so
single-node is possible. Writes placements.csv, remote.csv, migrations.csv, threads.csv,
sensitivity.csv, start.csv, charts (SVG) and upm.md to --output. Takes about seven minutes on two
cores.

    python3 upm.py --hither target/release/hither --work /tmp/upm --output results
"""

import argparse
import csv
import json
import math
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
import plot

MIGRATION_NS = 275_000
COSTS = f"call_ns=0,page_ns={MIGRATION_NS},shootdown_ns=10000,batched=false,line_bytes=128"
UPM = f"migration_ns={MIGRATION_NS},cold=10"
# The paper's memory manager may respect `ml` or not (section 3.1). Its statistics do not say which
# was measured.
OPTIMISTIC = "optimistic=1"
KERNEL = ""
LINUX = "delay_ms=10,min_ms=10,max_ms=600"

# Program, its spec for gen, and whether the paper measured a similar one.
PROGRAMS = {
    "cfd": ("cfd{iterations=60}", "BT, SP"),
    "cg": ("cg{rows=7000,nonzeros=9,l2_kib=128,steps=25,iterations=15}", "CG"),
    "multigrid": ("multigrid{iterations=20}", None),
    "stencil": ("stencil{iterations=40}", None),
}
STARTS = {"ft": "first-touch", "rr": "round-robin", "sn": "single-node"}
ENGINES = {
    "none": None,
    "threshold": KERNEL,
    "autonuma": LINUX,
    "upm": UPM,
    "upm, optimistic": f"{UPM},{OPTIMISTIC}",
}
NAMED = {"threshold": "threshold", "autonuma": "autonuma", "upm": "upm", "upm, optimistic": "upm"}
EIGHT_NODES = 'shape = "hypercube:2x2"\nlocal_ns = 300\nhop_ns = 100\ncpus = 2\n'


def placement(engine: str, start: str, *more: str) -> str:
    """`engine` with the placement `start`, in the form of `--placement`."""
    if engine == "none":
        return STARTS.get(start, start)
    params = [
        f"initial={STARTS.get(start, start)}",
        *filter(None, ENGINES[engine].split(",")),
        *filter(None, more),
    ]
    # Later settings win.
    named = dict(param.split("=") for param in params)
    return f"{NAMED[engine]}{{{','.join(f'{name}={value}' for name, value in named.items())}}}"


class Bench:
    """Generates traces and simulates them."""

    def __init__(self, options: argparse.Namespace):
        self.hither, self.work, self.output = options.hither, options.work, options.output
        self.hidden, self.quick = options.hidden, options.quick
        self.work.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        (self.work / "origin2000-8.toml").write_text(EIGHT_NODES)

    def run(self, *command) -> bytes:
        return subprocess.run(
            [str(part) for part in (self.hither, *command)], check=True, stdout=subprocess.PIPE
        ).stdout

    def trace(self, specs: list[str], processors: int, *more) -> Path:
        """Generates the trace, unless it exists."""
        if self.quick:
            specs = [re.sub("iterations=[0-9]+", "iterations=6", spec) for spec in specs]
        name = "-".join([*specs, str(processors), *map(str, more)])
        path = self.work / "".join(letter if letter.isalnum() else "-" for letter in name)
        if not path.exists():
            self.run(
                "gen",
                "-q",
                *specs,
                "--threads",
                processors,
                "--nodes",
                processors // 2,
                "-o",
                path,
                *more,
            )
        return path

    def simulate(
        self, trace: Path, processors: int, placements: list[str], costs: str = ""
    ) -> list[dict]:
        nodes = "origin2000-16" if processors == 32 else self.work / "origin2000-8.toml"
        costs = ",".join(filter(None, [COSTS, costs or f"hidden={self.hidden}"]))
        command = [
            "place",
            trace,
            "-q",
            "--json",
            "--nodes",
            nodes,
            "--size",
            "100%",
            "--costs",
            costs,
        ]
        return json.loads(self.run(*command, "--placement", ",".join(placements)))["results"]

    def csv(self, name: str, rows: list[dict]) -> None:
        with open(self.output / name, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def ends_ns(result: dict) -> list[int]:
    return [interval["end_ns"] for interval in result["iterations"]]


def loop_ns(result: dict) -> int:
    """The main loop, without the first iteration: it initialises, and the paper's times exclude
    it (section 5)."""
    ends = ends_ns(result)
    return ends[-1] - ends[0]


def end_ns(result: dict) -> float:
    """The end of a program; for a mix, the mean over its programs."""
    ends = [process["end_ns"] for process in result.get("processes", [])]
    return sum(ends) / len(ends) if ends else result["modelled_time_ns"]


def last_half_ns(result: dict) -> int:
    ends = ends_ns(result)
    return ends[-1] - ends[len(ends) // 2]


def local_percent(result: dict) -> float:
    return 100 * result["local"] / max(1, result["local"] + result["remote"])


def mean(values) -> float:
    values = list(values)
    return math.prod(values) ** (1 / len(values))


def table(head: list[str], rows: list[list]) -> str:
    lines = [" | ".join(head), " | ".join(["---"] + ["--:"] * (len(head) - 1))]
    lines += [" | ".join(str(cell) for cell in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def figure_2(bench: Bench) -> str:
    """Execution times by start and engine."""
    rows, slowdowns, halves, groups = [], {}, {}, {}
    for program, (spec, _) in PROGRAMS.items():
        for processors in (16, 32):
            trace = bench.trace([spec], processors)
            cases = [(start, engine) for start in STARTS for engine in ENGINES]
            results = bench.simulate(
                trace,
                processors,
                [placement(engine, start) for start, engine in cases] + ["a-priori"],
            )
            by_case = dict(zip(cases, results))
            base = by_case["ft", "none"]
            groups[f"{program} {processors}"] = [
                loop_ns(by_case[case]) / loop_ns(base) for case in cases
            ]
            for case, result in [*by_case.items(), (("best", "a-priori"), results[-1])]:
                slowdowns[program, processors, *case] = loop_ns(result) / loop_ns(base)
                halves[program, processors, *case] = last_half_ns(result) / last_half_ns(base)
                rows.append(
                    {
                        "program": program,
                        "processors": processors,
                        "start": case[0],
                        "engine": case[1],
                        "loop_ms": round(loop_ns(result) / 1e6, 3),
                        "by_first_touch": round(loop_ns(result) / loop_ns(base), 4),
                        "last_half_by_first_touch": round(
                            last_half_ns(result) / last_half_ns(base), 4
                        ),
                        "local_percent": round(local_percent(result), 2),
                        "migrations": result["migrations"],
                        "overhead_ms": round(result["overhead_ns"] / 1e6, 3),
                    }
                )
    bench.csv("placements.csv", rows)
    chosen = [(start, engine) for start in STARTS for engine in ("none", "threshold", "upm")]
    everything = [(start, engine) for start in STARTS for engine in ENGINES]
    plot.bars(
        bench.output / "placements.svg",
        "Time of the main loop, first-touch without migration = 1 (figure 2)",
        "",
        {
            name: [values[everything.index(case)] for case in chosen]
            for name, values in groups.items()
        },
        [f"{start} {engine}" for start, engine in chosen],
    )

    def over(
        start: str,
        engine: str,
        base_start: str = "ft",
        base_engine: str = "",
        programs=("cfd", "cg"),
        of=slowdowns,
    ) -> float:
        base_engine = base_engine or engine
        keys = [(program, processors) for program in programs for processors in (16, 32)]
        return mean(of[*key, start, engine] / of[*key, base_start, base_engine] for key in keys)

    def all_over(*arguments, **more) -> str:
        return (
            f"{over(*arguments, **more):.2f} "
            f"({over(*arguments, programs=tuple(PROGRAMS), **more):.2f})"
        )

    claims = [
        [
            "single-node, no migration, by first-touch",
            "1.79 (1.26 to 2.47)",
            all_over("sn", "none"),
        ],
        [
            "single-node by first-touch, both with the kernel's engine",
            "1.76",
            all_over("sn", "threshold"),
        ],
        ["single-node by first-touch, both with upm", "1.12", all_over("sn", "upm")],
        ["the same, optimistic", "", all_over("sn", "upm, optimistic")],
        ["the same, last half of the iterations, upm", "1.03", all_over("sn", "upm", of=halves)],
        [
            "the same, last half of the iterations, optimistic",
            "1.03",
            all_over("sn", "upm, optimistic", of=halves),
        ],
        ["single-node with autonuma by first-touch with it", "", all_over("sn", "autonuma")],
        ["round-robin, no migration, by first-touch", "1.27", all_over("rr", "none")],
        [
            "round-robin by first-touch, both with upm",
            "as single-node, modest",
            all_over("rr", "upm"),
        ],
        [
            "first-touch with the kernel's engine by first-touch",
            "0.94 (at best 0.83)",
            all_over("ft", "threshold", base_engine="none"),
        ],
        [
            "first-touch with upm by first-touch",
            "0.81 (at best 0.72)",
            all_over("ft", "upm", base_engine="none"),
        ],
        [
            "single-node with upm by first-touch without",
            "below 1 in all cases",
            all_over("sn", "upm", base_engine="none"),
        ],
    ]
    by_program = []
    for program, processors in (key[:2] for key in slowdowns if key[2:] == ("ft", "none")):
        of = lambda start, engine: f"{slowdowns[program, processors, start, engine]:.2f}"
        cells = [
            of(start, engine)
            for start in STARTS
            for engine in ("none", "threshold", "autonuma", "upm", "upm, optimistic")
        ]
        by_program.append([f"{program} {processors}", *cells, of("best", "a-priori")])
    head = (
        ["program, processors"]
        + [
            f"{start} {engine}"
            for start in STARTS
            for engine in ("none", "thr.", "auton.", "upm", "opt.")
        ]
        + ["a-priori"]
    )
    return "\n\n".join(
        [
            "## Starts and engines (figure 2, sections 5.2 and 5.3)",
            "Geometric means over cfd and cg on 16 and 32 processors, the paper's over BT, SP "
            "and CG; in brackets ours with multigrid and stencil, too.",
            table(["time of the main loop", "paper", "ours"], claims),
            "By program, first-touch without migration = 1:",
            table(head, by_program),
        ]
    )


def figure_3(bench: Bench) -> str:
    """Remote accesses over the run."""
    rows, drawn = [], {}
    for program in ("cfd", "cg"):
        trace = bench.trace([PROGRAMS[program][0]], 32)
        for start in ("ft", "sn"):
            (result,) = bench.simulate(trace, 32, [placement("upm, optimistic", start)])
            remote = [interval["totals"]["remote"] for interval in result["iterations"]][1:]
            drawn[f"{program}, {start}"] = [
                (at, count / max(remote)) for at, count in enumerate(remote, 1)
            ][:15]
            rows += [
                {"program": program, "start": start, "iteration": at, "remote": count}
                for at, count in enumerate(remote, 1)
            ]
    bench.csv("remote.csv", rows)
    plot.lines(
        bench.output / "remote.svg",
        "Remote accesses by iteration, with upm (figure 3)",
        "part of the most",
        "iteration",
        drawn,
    )
    falls = [
        [name, *(f"{points[at][1]:.2f}" for at in (0, 1, 2, 3))] for name, points in drawn.items()
    ]
    text = (
        "Remote accesses of the first iterations of the main loop, the most being 1. As in "
        "the paper they fall to their final level at once."
    )
    return "\n\n".join(
        [
            "## Remote accesses over time (figure 3)",
            text,
            table(["program, start", "1st", "2nd", "3rd", "4th"], falls),
        ]
    )


# Table 1 on 32 processors: migrated over eligible pages for IRIX and for UPMlib, and the share in
# the first two iterations.
TABLE_1 = {
    "ft": (
        "BT 255/1052 (24 %), SP 258/1010 (25 %)",
        "BT 1002/1233 (81 %), SP 818/1014 (81 %)",
        "83 %, 88 %",
    ),
    "sn": (
        "BT 466/2607 (18 %), SP 743/2670 (27 %)",
        "BT 2405/2759 (87 %), SP 2260/2641 (86 %)",
        "73 %, 78 %",
    ),
}


def table_1(bench: Bench) -> str:
    rows, lines = [], []
    for start, (irix, upmlib, early) in TABLE_1.items():
        lines.append([f"paper, {STARTS[start]}", irix, upmlib, early])
        for program in PROGRAMS:
            trace = bench.trace([PROGRAMS[program][0]], 32)
            kernel, *ours = bench.simulate(
                trace,
                32,
                [placement(engine, start) for engine in ("threshold", "upm", "upm, optimistic")],
            )
            of = kernel["statistics"]
            first = (
                f"{of['migrated']}/{of['candidates']} ({percent(of['migrated'], of['candidates'])})"
            )
            for variant, result in zip(("with ml", "optimistic"), ours):
                of = result["statistics"]
                lines.append(
                    [
                        f"{program}, {STARTS[start]}, {variant}",
                        first,
                        f"{of['migrated']}/{of['candidates']} "
                        f"({percent(of['migrated'], of['candidates'])})",
                        percent(of["migrated_in_first_two"], of["migrated"]),
                    ]
                )
                rows.append(
                    {
                        "program": program,
                        "start": start,
                        "variant": variant,
                        **of,
                        **{f"kernel_{name}": count for name, count in kernel["statistics"].items()},
                    }
                )
    bench.csv("migrations.csv", rows)
    return "\n\n".join(
        [
            "## Migrations (table 1, 32 processors)",
            table(
                [
                    "",
                    "kernel: migrated/eligible",
                    "upm: migrated/eligible",
                    "in the first two iterations",
                ],
                lines,
            ),
        ]
    )


def threads(bench: Bench) -> str:
    """Figure 4, and single programs with moving threads."""
    cfd, cg = PROGRAMS["cfd"][0], PROGRAMS["cg"][0].replace("iterations=15", "iterations=30")
    cases = {
        "cfd, threads stay": ([cfd], 0, ""),
        "cfd, swaps every 20 iterations": ([cfd], 20, ""),
        "cfd, swaps every 5 iterations": ([cfd], 5, ""),
        "cfd and cfd, swaps every 20 (w1-1, w1-2)": ([cfd, cfd], 20, "28 % to 49 %"),
        "cfd and cg, swaps every 20 (as w1-3)": ([cfd, cg], 20, "28 % to 49 %"),
    }
    engines = {
        "none": placement("none", "ft"),
        "threshold": placement("threshold", "ft"),
        "autonuma": placement("autonuma", "ft"),
        "competitive": placement("upm", "ft", "predictive=0"),
        "competitive, never cold": placement("upm", "ft", "predictive=0", "cold=0"),
        "upm": placement("upm", "ft"),
        "upm, optimistic": placement("upm, optimistic", "ft"),
    }
    rows, lines, drawn = [], [], {}
    for name, (specs, every, theirs) in cases.items():
        trace = bench.trace(specs, 32, *(["--migrate-every", every] if every else []))
        results = bench.simulate(trace, 32, list(engines.values()))
        kernel_ns = end_ns(results[1])
        drawn[name.split(" (")[0].replace(" iterations", "")] = [
            end_ns(result) / kernel_ns for result in results
        ]
        lines.append(
            [
                name,
                theirs,
                *(f"{100 * (1 - end_ns(result) / kernel_ns):.1f} %" for result in results),
            ]
        )
        for engine, result in zip(engines, results):
            of = result["statistics"]
            rows.append(
                {
                    "case": name,
                    "engine": engine,
                    "time_ms": round(end_ns(result) / 1e6, 3),
                    "local_percent": round(local_percent(result), 2),
                    "migrations": result["migrations"],
                    "predictive": of.get("migrated_predictively", 0),
                }
            )
    bench.csv("threads.csv", rows)
    plot.bars(
        bench.output / "threads.svg",
        "Threads that move, and mixes: time, the kernel's engine = 1 (figure 4)",
        "",
        drawn,
        list(engines),
    )
    text = (
        "How much shorter runs are than with first-touch and the kernel's engine "
        "(`threshold`), in the mean over the programs of a mix; first-touch everywhere. A "
        "swap exchanges the threads of two nodes, all nodes at once."
    )
    return "\n\n".join(
        [
            "## Threads that move, and mixes (figure 4, section 5.5)",
            text,
            table(["", "paper", *engines], lines),
        ]
    )


SENSITIVITY = {
    "migration_ns": [0, 27_500, 110_000, 275_000, 550_000, 1_100_000, 2_750_000],
    "contention_ns": [0, 25, 50, 100, 200],
    "freeze": [0, 1],
    "tune": [1, 1.1, 1.5, 3],
    "cold": [0, 1, 2, 3, 5, 10],
    "history": [0, 1],
    "skip": [0, 1, 2, 5],
    "replay": [0, 20, 100, 400],
    "period_ms": [0, 5, 10, 20, 50],
}


def sensitivity(bench: Bench) -> str:
    rows, lines = [], []
    for program in ("cfd", "cg"):
        trace = bench.trace([PROGRAMS[program][0]], 32)
        for start in ("sn", "ft"):
            bases = bench.simulate(trace, 32, [placement("none", "ft")])
            for base in ("upm", "upm, optimistic"):
                if base != "upm" and start == "ft":
                    continue
                for name, values in SENSITIVITY.items():
                    if name == "migration_ns" and base != "upm":
                        continue
                    # A period examines all pages, so only its time differs.
                    more = ["visit=100000"] if name == "period_ms" else []
                    results = bench.simulate(
                        trace,
                        32,
                        [placement(base, start, f"{name}={value}", *more) for value in values],
                    )
                    cells = []
                    for value, result in zip(values, results):
                        by = loop_ns(result) / loop_ns(bases[0])
                        cells.append(f"{value:g}: {by:.3f}, {result['migrations']}")
                        rows.append(
                            {
                                "program": program,
                                "start": start,
                                "base": base,
                                "parameter": name,
                                "value": value,
                                "by_first_touch": round(by, 4),
                                "local_percent": round(local_percent(result), 2),
                                "migrations": result["migrations"],
                                "frozen": result["statistics"]["frozen"],
                            }
                        )
                    lines.append([f"{program}, {start}, {base}", name, "; ".join(cells)])
    for name in ("migration_ns", "period_ms"):
        drawn = {}
        for row in rows:
            if row["parameter"] == name and row["value"] and row["base"] == "upm":
                at = math.log10(row["value"])
                drawn.setdefault(f"{row['program']}, {row['start']}", []).append(
                    (round(at, 2), row["by_first_touch"])
                )
        unit = "ml" if name == "migration_ns" else "period"
        plot.lines(
            bench.output / f"sensitivity_{unit}.svg",
            f"Time of the main loop by {name}, first-touch without migration = 1",
            "",
            f"log10({name})",
            drawn,
        )
    kernel = []
    cases = {
        "default": "",
        "dampening=1": "dampening=1",
        "dampening=10": "dampening=10",
        "dampening=30": "dampening=30",
        "threshold=256": "threshold=256",
        "threshold=1900": "threshold=1900",
        "walk_ms=0.1": "walk_ms=0.1",
        "walk_ms=0.01": "walk_ms=0.01",
    }
    for program in ("cfd", "cg"):
        trace = bench.trace([PROGRAMS[program][0]], 32)
        texts = [placement("threshold", "sn", more) for more in cases.values()]
        base, *results = bench.simulate(trace, 32, [placement("none", "ft"), *texts])
        for name, result in zip(cases, results):
            of = result["statistics"]
            by = loop_ns(result) / loop_ns(base)
            kernel.append(
                [
                    f"{program}, sn",
                    name,
                    f"{by:.2f}",
                    f"{of['migrated']}/{of['candidates']}",
                    of["interrupts"],
                ]
            )
            rows.append(
                {
                    "program": program,
                    "start": "sn",
                    "base": "threshold",
                    "parameter": name,
                    "value": "",
                    "by_first_touch": round(by, 4),
                    "local_percent": round(local_percent(result), 2),
                    "migrations": result["migrations"],
                    "frozen": of["frozen"],
                }
            )
    bench.csv("sensitivity.csv", rows)
    hidden = []
    for part in (0, 0.5, 0.9, 0.95, 1):
        cells = []
        for program in ("cfd", "cg"):
            trace = bench.trace([PROGRAMS[program][0]], 32)
            results = bench.simulate(
                trace,
                32,
                [
                    placement("none", "ft"),
                    placement("upm", "sn"),
                    placement("upm, optimistic", "sn"),
                ],
                f"hidden={part}",
            )
            cells += [f"{loop_ns(result) / loop_ns(results[0]):.2f}" for result in results[1:]]
        hidden.append([part, *cells])
    return "\n\n".join(
        [
            "## What each parameter matters",
            "Value: time of the main loop (first-touch without migration = 1), migrations. "
            "`migration_ns` is `ml` alone, not what a migration takes on the machine.",
            table(["program, start", "parameter", "values"], lines),
            "The kernel's engine:",
            table(["program, start", "", "time", "migrated/eligible", "interrupts"], kernel),
            "How much of the migrations' time is hidden behind the program, single-node start:",
            table(["hidden", "cfd upm", "cfd optimistic", "cg upm", "cg optimistic"], hidden),
        ]
    )


def start_from(bench: Bench) -> str:
    """Cache-aware placement and page migration together."""
    rows, lines = [], []
    aware = "cache-aware{region=65536}"
    for program in PROGRAMS:
        trace = bench.trace([PROGRAMS[program][0]], 32)
        cases = {
            "first-touch": "first-touch",
            "cache-aware": aware,
            "upm from first-touch": placement("upm", "ft"),
            "upm from cache-aware": placement("upm", "cache-aware"),
            "a-priori": "a-priori",
        }
        results = bench.simulate(trace, 32, list(cases.values()))
        lines.append(
            [
                program,
                *(
                    f"{loop_ns(result) / loop_ns(results[0]):.3f} ({local_percent(result):.0f} %)"
                    for result in results
                ),
            ]
        )
        rows += [
            {
                "program": program,
                "placement": name,
                "by_first_touch": round(loop_ns(result) / loop_ns(results[0]), 4),
                "local_percent": round(local_percent(result), 2),
                "migrations": result["migrations"],
            }
            for name, result in zip(cases, results)
        ]
    bench.csv("start.csv", rows)
    text = (
        "Time of the main loop by first-touch's, and the local part of accesses. 32 "
        "processors, no memory pressure, which is what cache-aware placement is made for; "
        "as a start of upm it has its default region of 1 MiB."
    )
    return "\n\n".join(
        ["## Cache-aware placement and upm together", text, table(["program", *cases], lines)]
    )


PARTS = {
    "placements": figure_2,
    "remote": figure_3,
    "migrations": table_1,
    "threads": threads,
    "sensitivity": sensitivity,
    "start": start_from,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for traces; kept")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument(
        "--hidden",
        type=float,
        default=0.95,
        help="part of migrations' time that the program does not notice",
    )
    parser.add_argument(
        "--part",
        action="append",
        choices=PARTS,
        help="only these; upm.md has the others as they were found last",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few iterations, to see whether everything works"
    )
    options = parser.parse_args()
    bench = Bench(options)
    started = time.monotonic()
    version = bench.run("--version").decode().strip()
    head = (
        f"# User-level page migration: ours beside the paper's\n\n{version}, "
        f"{time.strftime('%Y-%m')}, {platform.machine()}; modelled times, the same on every "
        f"machine. "
        f"`python3 upm.py --hidden {bench.hidden}`; costs `{COSTS}`.\n"
    )
    for name in options.part or PARTS:
        section = PARTS[name](bench)
        (bench.work / f"{name}.md").write_text(section)
        print(f"{section}\n", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    sections = [bench.work / f"{name}.md" for name in PARTS]
    notes = Path(__file__).parent / "notes.md"
    whole = [head, *(section.read_text() for section in [notes, *sections] if section.exists())]
    (bench.output / "upm.md").write_text("\n\n".join(text.strip() for text in whole) + "\n")


if __name__ == "__main__":
    main()
