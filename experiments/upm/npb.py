#!/usr/bin/env python3
"""User-level dynamic page migration (Nikolopoulos et al., ICS 2000) on the access patterns of its
own programs: BT, SP and CG of the NAS parallel benchmarks, class A, on 16 and 32 processors.

The programs are those of `lab/programs`, written to the benchmarks' specification. `lab trace` runs
them with a modelled cache for each processor (4 MiB, 2 ways, lines of 128 bytes, coherent) and
writes the exact counts of misses by page and thread, which `hither place` replays on an Origin2000:
pages of 16 KiB, 300 ns and 100 ns for each router on the way, 1.1 ms for a migration (sections 3.1
and 5.4). Iterations cost the same misses, so the last of four stands for the others of the
benchmark's 200, 400 and 15.

Two things are not in the paper, so results are stated for several values of each: how much of a
migration's time the program notices (`--hidden`), and how long programs compute between misses.
There are three models of the latter:

- `misses alone`: no computation, and memories that are hardly ever busy. The gain by shorter
  latencies cannot be larger than here.
- `Origin`: the benchmarks' own counts of operations (NPB 2.3) at 100 million a second for BT and SP
  and 30 for CG, and memories that deliver 800 MB/s a node (160 ns a line).
- `calibrated`: the same with 0.35 of the computation. Then a single-node start without migration
  costs what it costs in the paper, 79 % in the mean. All other figures are predictions.

Arrays lie in memory as in NPB 2.3: rows are padded to 65 points, SP's components lie apart. The
paper's 2688 hot pages are exactly 21 arrays of 64^3 values without padding. Such arrays are
multiples of a way of the cache, and with pages coloured as IRIX does they evict each other: the
part `unpadded` has what that means.

Writes CSV files, charts (SVG) and npb.md to --output. Takes some ten minutes on two cores.

    python3 npb.py --hither target/release/hither --work /tmp/npb --output results
"""

import argparse
import csv
import json
import platform
import subprocess
import sys
import textwrap
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
import plot
from upm import EIGHT_NODES, mean, percent, table

MIGRATION_NS = 1_100_000
COSTS = f"call_ns=0,page_ns={MIGRATION_NS},shootdown_ns=10000,batched=false,line_bytes=128"
PAGE_BYTES = 16 << 10
PROGRAMS = ("bt", "sp", "cg")
ITERATIONS = {"bt": 200, "sp": 400, "cg": 15}
# Operations of an iteration, by the formulas with which NPB 2.3 prints its rates, and how many a
# processor does in a microsecond.
OPERATIONS = {
    "bt": 3478.8 * 64**3 - 17655.7 * 64**2 + 28023.7 * 64,
    "sp": 881.174 * 64**3 - 4683.91 * 64**2 + 11484.5 * 64 - 19272.4,
    "cg": 2 * 14000 * (3 + 11 * 12 + 25 * (5 + 11 * 12) + 3),
}
RATE = {"bt": 100, "sp": 100, "cg": 30}
STARTS = {"ft": "first-touch", "rr": "round-robin", "sn": "single-node"}
ENGINES = {
    "none": "{start}",
    "threshold": "threshold{{initial={start}}}",
    "upm": f"upm{{{{initial={{start}},migration_ns={MIGRATION_NS}}}}}",
    "optimistic": "upm{{initial={start},optimistic=1}}",
}
# Each model with its share of the Origin's computation; 0 is without busy memories, too.
MODELS = {"misses alone": 0, "Origin": 1, "calibrated": 0.35}
ALONE = "misses alone"


def placement(engine: str, start: str, *more: str) -> str:
    """`engine` with the placement `start`, in the form of `--placement`."""
    text = ENGINES[engine].format(start=STARTS[start])
    return f"{text[:-1]},{','.join(more)}}}" if more else text


class Counts:
    """The counts of a page-counts file, of its last kind of iteration."""

    def __init__(self, path: Path):
        self.objects, self.iterations = [], 0
        self.homes = {}
        nodes, pages, slowest = {}, defaultdict(Counter), 0
        threads = Counter()
        for line in path.read_text().splitlines():
            kind, *of = line.split()
            if kind in "ls":
                thread, page, count = int(of[0]), (int(of[1]), int(of[2])), int(of[3])
                self.homes.setdefault(page, nodes[thread])
                pages[page][nodes[thread]] += count
                threads[thread] += count
            elif kind == "object":
                self.objects.append((of[0], int(of[1])))
            elif kind == "thread":
                nodes[int(of[0])] = int(of[1])
            elif kind == "end":
                slowest += max(threads.values(), default=0)
                threads.clear()
            elif kind == "iteration":
                self.pages, self.slowest = pages, slowest
                pages, slowest = defaultdict(Counter), 0
        self.misses = sum(sum(page.values()) for page in self.pages.values())

    def misplaced(self) -> int:
        """Pages that first touch puts elsewhere than where most of their misses are from."""
        used = self.pages.items()
        return sum(max(page.values()) > page[self.homes[at]] for at, page in used)

    def local(self, best: bool) -> float:
        """The part of the misses that is local after first touch, or at best for fixed pages."""
        used = self.pages.items()
        return (
            sum(max(page.values()) if best else page[self.homes[at]] for at, page in used)
            / self.misses
        )


class Bench:
    """Makes traces and simulates them."""

    def __init__(self, options: argparse.Namespace):
        self.hither, self.lab = options.hither, options.lab
        self.work, self.output = options.work, options.output
        self.hidden, self.quick = options.hidden, options.quick
        self.work.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        (self.work / "origin2000-8.toml").write_text(EIGHT_NODES)
        self.counted = {}

    def iterations(self, program: str) -> int:
        return 6 if self.quick else ITERATIONS[program]

    def trace(self, program: str, processors: int, *more) -> Path:
        """Makes the trace, unless it exists."""
        options = [
            "--class",
            "W" if self.quick else "A",
            "--threads",
            processors,
            "--iterations",
            self.iterations(program),
            *more,
        ]
        name = "-".join(str(part).lstrip("-") for part in [program, *options])
        path = self.work / f"{name}.counts"
        if not path.exists():
            made = path.with_suffix(".new")
            command = [*self.lab, "trace", "--output", made, program, *options]
            subprocess.run(
                [str(part) for part in command], check=True, stdout=subprocess.DEVNULL
            )
            made.rename(path)
        return path

    def counts(self, path: Path) -> Counts:
        if path not in self.counted:
            self.counted[path] = Counts(path)
        return self.counted[path]

    def compute_ns(self, path: Path, program: str, processors: int) -> int:
        """What a program computes for each miss: an iteration's operations, shared out among the
        processors, over the misses of the slowest thread of each loop."""
        seconds = OPERATIONS[program] / processors / RATE[program] / 1e6
        return round(seconds * 1e9 / max(1, self.counts(path).slowest))

    def costs(self, model: str, path: Path, program: str, processors: int, scale=None) -> str:
        scale = scale or MODELS[model]
        if not scale:
            return "compute_ns=0,service_ns=5"
        compute_ns = round(scale * self.compute_ns(path, program, processors))
        return f"compute_ns={compute_ns},service_ns=160"

    def simulate(
        self, path: Path, processors: int, costs: str, placements: list[str], hidden=None
    ) -> list[dict]:
        nodes = "origin2000-16" if processors == 32 else self.work / "origin2000-8.toml"
        hidden = self.hidden if hidden is None else hidden
        costs = f"{COSTS},{costs},hidden={hidden}"
        command = [self.hither, "place", path, "-q", "--json", "--block", "16KiB"]
        command += ["--nodes", nodes, "--size", "100%", "--costs", costs]
        command += ["--placement", ",".join(placements)]
        run = subprocess.run(
            [str(part) for part in command], check=True, stdout=subprocess.PIPE
        )
        return json.loads(run.stdout)["results"]

    def csv(self, name: str, rows: list[dict]) -> None:
        with open(self.output / name, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def ends_ns(result: dict) -> list[int]:
    return [interval["end_ns"] for interval in result["iterations"]]


def loop_ns(result: dict) -> int:
    """The main loop, without the initialisation and the first iteration (section 5)."""
    ends = ends_ns(result)
    return ends[-1] - ends[0]


def half_ns(result: dict) -> int:
    ends = ends_ns(result)
    return ends[-1] - ends[len(ends) // 2]


CASES = [(start, engine) for start in STARTS for engine in ENGINES]


def figure_2(bench: Bench) -> str:
    """Execution times by start and engine."""
    rows, sections = [], []
    for model in MODELS:
        times, halves, by_program, drawn = {}, {}, [], {}
        for program in PROGRAMS:
            for processors in (16, 32):
                path = bench.trace(program, processors)
                costs = bench.costs(model, path, program, processors)
                placements = [placement(engine, start) for start, engine in CASES]
                results = bench.simulate(path, processors, costs, [*placements, "a-priori"])
                base = results[0]
                for case, result in zip([*CASES, ("best", "a-priori")], results):
                    times[program, processors, *case] = loop_ns(result) / loop_ns(base)
                    halves[program, processors, *case] = half_ns(result) / half_ns(base)
                    rows.append(
                        {
                            "model": model,
                            "program": program,
                            "processors": processors,
                            "start": case[0],
                            "engine": case[1],
                            "loop_ms": round(loop_ns(result) / 1e6, 3),
                            "by_first_touch": round(loop_ns(result) / loop_ns(base), 4),
                            "last_half_by_first_touch": round(
                                half_ns(result) / half_ns(base), 4
                            ),
                            "local": result["local"],
                            "remote": result["remote"],
                            "migrations": result["migrations"],
                        }
                    )
                cells = [times[program, processors, *case] for case in CASES]
                drawn[f"{program} {processors}"] = cells
                best = times[program, processors, "best", "a-priori"]
                by_program.append(
                    [f"{program} {processors}", *(f"{cell:.2f}" for cell in [*cells, best])]
                )

        def over(start, engine, base_start="ft", base_engine=None, of=times) -> list[float]:
            base = (base_start, base_engine or engine)
            keys = [(program, processors) for program in PROGRAMS for processors in (16, 32)]
            return [of[*key, start, engine] / of[*key, *base] for key in keys]

        def cell(values: list[float]) -> str:
            return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"

        claims = [
            ["single-node by first-touch", "1.79 (1.26 to 2.47)", over("sn", "none")],
            ["the same, both with the kernel's engine", "1.76", over("sn", "threshold")],
            ["the same, both with upm", "1.12", over("sn", "optimistic")],
            ["the same, both with upm and `ml`", "1.12", over("sn", "upm")],
            ["the same, last half, upm", "1.03", over("sn", "optimistic", of=halves)],
            ["round-robin by first-touch", "1.27", over("rr", "none")],
            ["the same, both with upm", "modest", over("rr", "optimistic")],
            [
                "first-touch: the kernel's engine by none",
                "0.94 (at best 0.83)",
                over("ft", "threshold", base_engine="none"),
            ],
            [
                "first-touch: upm by none",
                "0.81 (at best 0.72)",
                over("ft", "optimistic", base_engine="none"),
            ],
            [
                "the same, last half",
                "",
                over("ft", "optimistic", base_engine="none", of=halves),
            ],
            [
                "single-node with upm by first-touch without",
                "below 1 in all cases",
                over("sn", "optimistic", base_engine="none"),
            ],
            ["best static placement by first-touch", "", over("best", "a-priori", "ft", "none")],
        ]
        sections += [
            f"### Model: {model}",
            "Geometric means over BT, SP and CG on 16 and 32 processors, and the "
            "least and the most; upm is the optimistic one except where `ml` is named.",
            table(
                ["time of the main loop", "paper", "ours"],
                [[name, theirs, cell(values)] for name, theirs, values in claims],
            ),
            table(
                ["program, processors"]
                + [f"{start} {engine}" for start, engine in CASES]
                + ["a-priori"],
                by_program,
            ),
        ]
        plot.bars(
            bench.output / f"npb_{model.split()[0].lower()}.svg",
            f"Time of the main loop, first-touch without migration = 1 ({model}; figure 2)",
            "",
            {
                name: [values[CASES.index(case)] for case in CASES if case[1] != "upm"]
                for name, values in drawn.items()
            },
            [f"{start} {engine}" for start, engine in CASES if engine != "upm"],
        )
    bench.csv("npb_placements.csv", rows)
    return "\n\n".join(["## Starts and engines (figure 2, sections 5.2 and 5.3)", *sections])


def only_objects(path: Path, names: tuple[str, ...]) -> Path:
    """The trace with the accesses to these objects alone."""
    other = path.with_name(f"{path.stem}-{'-'.join(names)}.counts")
    objects, lines = [], []
    for line in path.read_text().splitlines():
        kind, *of = line.split()
        if kind == "object":
            objects.append(of[0])
        if kind not in "ls" or objects[int(of[1])] in names:
            lines.append(line)
    other.write_text("\n".join(lines) + "\n")
    return other


def figure_3(bench: Bench) -> str:
    """Remote accesses to u and rhs over the run, first touch and upm on 32 processors."""
    rows, lines, drawn = [], [], {}
    for program, interval in (("bt", 20), ("sp", 40)):
        interval = 2 if bench.quick else interval
        for name in ("u", "rhs"):
            path = only_objects(bench.trace(program, 32), (name,))
            costs = bench.costs(ALONE, path, program, 32)
            placements = ["first-touch", placement("optimistic", "ft")]
            none, ours = bench.simulate(path, 32, costs, placements)
            remote = [
                [iteration["totals"]["remote"] for iteration in result["iterations"][1:]]
                for result in (none, ours)
            ]
            summed = [
                sum(remote[1][at : at + interval]) for at in range(0, len(remote[1]), interval)
            ]
            before = interval * remote[0][-1]
            drawn[f"{program} {name}"] = [
                (at, count / max(1, before)) for at, count in enumerate(summed)
            ]
            rows += [
                {"program": program, "array": name, "interval": at, "remote": count}
                for at, count in enumerate(summed)
            ]
            lines.append(
                [
                    f"{program}, {name}",
                    f"{before:,}",
                    *(f"{summed[at]:,}" for at in (0, 1, -1)),
                    f"{summed[-1] / max(1, before):.2f}",
                ]
            )
    bench.csv("npb_remote.csv", rows)
    plot.lines(
        bench.output / "npb_remote.svg",
        "Remote accesses to an array, first-touch without migration = 1 (figure 3)",
        "",
        "interval of 20 (BT) or 40 (SP) iterations",
        drawn,
    )
    head = ["program, array", "first-touch alone", "1st interval", "2nd", "last", "last, part"]
    return "\n\n".join(
        [
            "## Remote accesses over time (figure 3)",
            "First-touch with upm (optimistic) on 32 processors: remote accesses of an interval of "
            "20 (BT) or 40 (SP) iterations.",
            table(head, lines),
        ]
    )


TABLE_1 = {
    ("bt", "ft"): ("255/1052 (24 %)", "1002/1233 (81 %)", "83 %"),
    ("bt", "sn"): ("466/2607 (18 %)", "2405/2759 (87 %)", "73 %"),
    ("sp", "ft"): ("258/1010 (25 %)", "818/1014 (81 %)", "88 %"),
    ("sp", "sn"): ("743/2670 (27 %)", "2260/2641 (86 %)", "78 %"),
}


def table_1(bench: Bench) -> str:
    """Migration statistics on 32 processors, and how many pages first touch misplaces."""
    rows, lines, places = [], [], []
    for program in PROGRAMS:
        for processors in (16, 32):
            path = bench.trace(program, processors)
            counts = bench.counts(path)
            hot = sum(-(-size // PAGE_BYTES) for _, size in counts.objects)
            theirs = {"bt": "2688; at least 1000", "sp": "2688; at least 1000", "cg": "10 to 20"}
            places.append(
                [
                    f"{program} {processors}",
                    theirs[program] if processors == 32 else "",
                    hot,
                    len(counts.pages),
                    counts.misplaced(),
                    f"{counts.misses:,}",
                    f"{100 * counts.local(False):.0f} %",
                    f"{100 * counts.local(True):.0f} %",
                ]
            )
    for program, start in TABLE_1:
        path = bench.trace(program, 32)
        costs = bench.costs(ALONE, path, program, 32)
        engines = ("threshold", "upm", "optimistic")
        results = bench.simulate(
            path, 32, costs, [placement(engine, start) for engine in engines]
        )
        irix, upmlib, early = TABLE_1[program, start]
        lines.append([f"paper: {program}, {STARTS[start]}", irix, upmlib, early])
        statistics = [result["statistics"] for result in results]
        moved = [
            f"{of['migrated']}/{of['candidates']} ({percent(of['migrated'], of['candidates'])})"
            for of in statistics
        ]
        for variant, of, text in zip(("with `ml`", "optimistic"), statistics[1:], moved[1:]):
            first_two = percent(of["migrated_in_first_two"], of["migrated"])
            name = f"{program}, {STARTS[start]}, {variant}"
            lines.append([name, moved[0], text, first_two])
            rows.append({"program": program, "start": start, "variant": variant, **of})
    bench.csv("npb_migrations.csv", rows)
    place_head = [
        "program, processors",
        "paper: hot pages; misplaced",
        "pages of the arrays",
        "with misses in an iteration",
        "misplaced",
        "misses an iteration",
        "local, first touch",
        "local, best static",
    ]
    move_head = [
        "",
        "kernel: migrated/eligible",
        "upm: migrated/eligible",
        "in the first two iterations",
    ]
    return "\n\n".join(
        [
            "## Misplaced pages and migrations (table 1, section 5.4)",
            "Misplaced: another node than the home has more of a page's misses in an iteration.",
            table(place_head, places),
            "32 processors:",
            table(move_head, lines),
        ]
    )


def assumptions(bench: Bench) -> str:
    """By what the paper does not give: hidden migrations, and computation between misses."""
    hidden_lines, scale_lines, rows = [], [], []
    pairs = [(program, processors) for program in PROGRAMS for processors in (16, 32)]
    names = ["first-touch", *(placement("optimistic", start) for start in ("ft", "sn"))]

    def run(model: str, hidden: float, scale=None) -> list[list[float]]:
        found = []
        for program, processors in pairs:
            path = bench.trace(program, processors)
            costs = bench.costs(model, path, program, processors, scale)
            results = bench.simulate(
                path, processors, costs, [*names, "single-node"], hidden
            )
            none, ours, single, worst = (loop_ns(result) for result in results)
            found.append([worst / none, single / ours, ours / none])
        for (program, processors), values in zip(pairs, found):
            share = scale or MODELS[model]
            row = {"model": model, "hidden": hidden, "computation": share, "program": program}
            labels = ("single_by_first", "the_same_with_upm", "upm_by_none")
            row |= {"processors": processors}
            rows.append(row | {name: round(v, 4) for name, v in zip(labels, values)})
        return found

    def cells(found: list[list[float]]) -> list[str]:
        return [f"{mean(of[at] for of in found):.2f}" for at in range(3)]

    for hidden in (1, 0.95, 0.9, 0.5, 0):
        found = [cells(run(model, hidden))[1:] for model in MODELS]
        hidden_lines.append([hidden, *(cell for of in found for cell in of)])
    for scale in (0.05, 0.1, 0.2, 0.35, 0.5, 1, 2):
        scale_lines.append([scale, *cells(run("Origin", bench.hidden, scale))])
    bench.csv("npb_assumptions.csv", rows)
    return "\n\n".join(
        [
            "## By what is assumed",
            "The part of the migrations' time that is hidden behind the program; geometric means "
            "of the six cases. *Single-node*: its time by first-touch's, both with upm (the "
            "paper: 1.12). *Gain*: first-touch with upm by first-touch alone (0.81).",
            table(
                ["hidden"]
                + [f"{name}: {what}" for name in MODELS for what in ("single-node", "gain")],
                hidden_lines,
            ),
            f"The Origin with so many times the computation, `hidden={bench.hidden}`. First "
            "column: single-node by first-touch without migration (1.79).",
            table(["computation", "single-node, none", "single-node, upm", "gain"], scale_lines),
        ]
    )


VARIANTS = {
    "as above": [],
    "upgrades are counted": ["--upgrades", 1],
    "no padding of rows": ["--padding", 0],
    "pages are not coloured": ["--colours", "no"],
    "cache 16 ways": ["--cache-ways", 16],
    "cache 2 MiB": ["--cache-kib", 2048],
    "cache 1 MiB": ["--cache-kib", 1024],
    "cache 512 KiB": ["--cache-kib", 512],
}


def patterns(bench: Bench) -> str:
    """What of the patterns decides the gain on top of first touch."""
    rows, lines = [], []
    for name, options in VARIANTS.items():
        for program in ("bt", "sp"):
            path = bench.trace(program, 32, *options)
            counts = bench.counts(path)
            results = bench.simulate(
                path,
                32,
                bench.costs(ALONE, path, program, 32),
                ["first-touch", placement("optimistic", "ft"), "a-priori"],
            )
            gains = [loop_ns(result) / loop_ns(results[0]) for result in results[1:]]
            rows.append(
                {
                    "variant": name,
                    "program": program,
                    "misses": counts.misses,
                    "misplaced": counts.misplaced(),
                    "local_first_touch": round(counts.local(False), 4),
                    "local_best": round(counts.local(True), 4),
                    "upm_by_first_touch": round(gains[0], 4),
                    "best_static_by_first_touch": round(gains[1], 4),
                }
            )
            lines.append(
                [
                    f"{program}, {name}",
                    f"{counts.misses:,}",
                    counts.misplaced(),
                    f"{100 * counts.local(False):.0f} %",
                    f"{100 * counts.local(True):.0f} %",
                    *(f"{gain:.2f}" for gain in gains),
                ]
            )
    bench.csv("npb_patterns.csv", rows)
    head = [
        "32 processors",
        "misses an iteration",
        "misplaced",
        "local, first touch",
        "local, best static",
        "upm by first touch",
        "best static by first touch",
    ]
    return "\n\n".join(
        [
            "## What of the pattern decides the gain on first touch",
            "No computation. Where arrays collide in the cache, or it is small, a thread misses "
            "its own data; else what it misses is what others wrote, and no placement is right.",
            table(head, lines),
        ]
    )


def unpadded(bench: Bench) -> str:
    """Arrays whose sizes are multiples of a way of the cache."""
    rows, lines = [], []
    placements = ["first-touch", *(placement("optimistic", start) for start in STARTS)]
    placements += ["round-robin", "single-node"]
    for program, processors in [(of, count) for of in ("bt", "sp") for count in (16, 32)]:
        together = ["--components", "together"] if program == "sp" else []
        path = bench.trace(program, processors, "--padding", 0, *together)
        counts = bench.counts(path)
        results = bench.simulate(
            path, processors, bench.costs(ALONE, path, program, processors), placements
        )
        none, ours, _, single, dealt, worst = (loop_ns(result) for result in results)
        of = results[1]["statistics"]
        times = {"single_node": worst, "round_robin": dealt, "upm": ours, "single_upm": single}
        rows.append(
            {"program": program, "processors": processors, "misses": counts.misses}
            | {"misplaced": counts.misplaced()}
            | {name: round(part / none, 4) for name, part in times.items()}
            | of
        )
        moved = percent(of["migrated"], of["candidates"])
        lines.append(
            [
                f"{program} {processors}",
                f"{counts.misses:,}",
                counts.misplaced(),
                *(f"{part / none:.2f}" for part in times.values()),
                f"{of['migrated']}/{of['candidates']} ({moved})",
                percent(of["migrated_in_first_two"], of["migrated"]),
            ]
        )
    bench.csv("npb_unpadded.csv", rows)
    head = (
        "|misses an iteration|misplaced|single-node|round-robin|upm|single-node with upm|"
        "migrated/eligible|in the first two iterations"
    )
    paper = (
        "paper, BT, SP and CG||at least 1000|1.79 (1.26 to 2.47)|1.27|0.81 (at best 0.72)|"
        "below 1|81 % (BT and SP, 32)|83 %, 88 %"
    )
    return "\n\n".join(
        [
            "## Arrays without padding",
            "2688 hot pages of BT, as in the paper; SP with the components side by side. Times by "
            "first-touch's, no computation, upm optimistic. Most misses are of a thread's own "
            "data, which other arrays have evicted.",
            table(head.split("|"), [paper.split("|"), *lines]),
        ]
    )


MIXES = {
    "w1-1: BT and BT": ("bt", "bt"),
    "w1-2: SP and SP": ("sp", "sp"),
    "w1-3: BT and SP": ("bt", "sp"),
}


# The caches of processors while two programs share them.
CACHES = {"": [], ", caches halved": ["--shared-ways", 1]}


def figure_4(bench: Bench) -> str:
    """Two programs on one machine: they share the processors, then each has half of them."""
    engines = {
        "none": "first-touch",
        "threshold": placement("threshold", "ft"),
        "competitive": placement("upm", "ft", "predictive=0"),
        "upm": placement("upm", "ft"),
        "upm, optimistic": placement("optimistic", "ft"),
    }
    rows, lines = [], []
    cases = [(model, "") for model in MODELS] + [(ALONE, ", caches halved")]
    for model, cache in cases:
        for name, programs in MIXES.items():
            paths = []
            for half, program in enumerate(programs):
                shared = max(1, bench.iterations(program) // 10)
                more = ["--halve-after", shared, "--half", half, *CACHES[cache]]
                paths.append(bench.trace(program, 32, *more))
            both = bench.work / "mix.counts"
            both.write_bytes(b"".join(path.read_bytes() for path in paths))
            compute = [bench.compute_ns(*of, 16) for of in zip(paths, programs)]
            compute = [round(MODELS[model] * ns) for ns in compute]
            costs = f"concurrent=true,processors=2,service_ns={160 if MODELS[model] else 5}"
            costs += f",process_compute_ns={':'.join(map(str, compute))}"
            results = bench.simulate(both, 32, costs, list(engines.values()))
            times = [[of["end_ns"] for of in result["processes"]] for result in results]
            kernel = sum(times[1])
            cuts = [100 * (1 - sum(of) / kernel) for of in times]
            cells = [f"{cut:.1f} %" for cut in cuts]
            lines.append([f"{name}; {model}{cache}", "28 % to 49 %", *cells])
            rows += [
                {
                    "mix": name,
                    "model": f"{model}{cache}",
                    "engine": engine,
                    "first_ms": round(first / 1e6, 3),
                    "second_ms": round(second / 1e6, 3),
                    "shorter_percent": round(cut, 2),
                }
                for engine, (first, second), cut in zip(engines, times, cuts)
            ]
    bench.csv("npb_mixes.csv", rows)
    return "\n\n".join(
        [
            "## Multiprogrammed workloads (figure 4, section 5.5)",
            "Both programs run on one machine, from the same moment on (`concurrent`). Each has 32 "
            "threads on 32 processors for a tenth of its iterations; while both do, two threads "
            "share a processor (`processors=2`). Then it has 16 threads on half of the processors, "
            "the other program on the other half. How much shorter than with first-touch and the "
            "kernel's engine, mean of the programs, from start to end. *Caches halved*: a thread "
            "has one of the two ways of its cache until it has half of the processors.",
            table(["", "paper", *engines], lines),
        ]
    )


def periods(bench: Bench) -> str:
    """The periodic mode (section 4), with periods by hand and tuned automatically."""
    rows, lines = [], []
    cases = [f"period_ms={period},visit=100000" for period in (5, 20, 100)]
    cases = ["", *cases, *(f"{case},adapt=1" for case in cases)]
    for program in PROGRAMS:
        path = bench.trace(program, 32)
        costs = bench.costs(ALONE, path, program, 32)
        placements = [placement("optimistic", "sn", *filter(None, [case])) for case in cases]
        base, *results = bench.simulate(path, 32, costs, ["first-touch", *placements])
        cells = []
        for case, result in zip(cases, results):
            by, of = loop_ns(result) / loop_ns(base), result["statistics"]
            cells.append(f"{by:.3f}, {of['invocations']}, {of['migrated']}")
            rows.append(
                {
                    "program": program,
                    "mode": case or "iterations",
                    "by_first_touch": round(by, 4),
                    "invocations": of["invocations"],
                    "migrated": of["migrated"],
                }
            )
        lines.append([f"{program} 32, single-node", *cells])
    bench.csv("npb_periods.csv", rows)
    heads = [case.replace(",visit=100000", "").replace("_ms=", " ms ") for case in cases]
    heads = [head.replace("adapt=1", "tuned").replace("period ms ", "") for head in heads]
    return "\n\n".join(
        [
            "## Periods in place of iterations (section 4)",
            "Time of the main loop by first-touch's, invocations, migrations; optimistic, no "
            "computation. A tuned period (`adapt=1`) doubles while it finds nothing.",
            table(["", *(head or "iterations" for head in heads)], lines),
        ]
    )


PARTS = {
    "placements": figure_2,
    "remote": figure_3,
    "migrations": table_1,
    "assumptions": assumptions,
    "patterns": patterns,
    "unpadded": unpadded,
    "mixes": figure_4,
    "periods": periods,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--lab", type=Path, help="the lab; else beside hither, else built by cargo"
    )
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
        help="only these; npb.md has the others as they were found last",
    )
    parser.add_argument(
        "--quick", action="store_true", help="class W and six iterations, to see that all works"
    )
    options = parser.parse_args()
    beside = options.hither.with_name("lab")
    cargo = ["cargo", "run", "--quiet", "--package", "lab", "--"]
    options.lab = [options.lab or beside] if options.lab or beside.exists() else cargo
    bench = Bench(options)
    started = time.monotonic()
    head = (
        "# User-level page migration on BT, SP and CG\n\n"
        f"{time.strftime('%Y-%m')}, {platform.machine()}; modelled times, the same on every "
        f"machine. `python3 npb.py --hidden {bench.hidden}`; costs `{COSTS}`. What it means: "
        "[papers.md](../../../docs/results/papers.md).\n"
    )
    for name in options.part or PARTS:
        section = PARTS[name](bench)
        (bench.work / f"npb-{name}.md").write_text(section)
        print(f"{section}\n", flush=True)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    sections = [bench.work / f"npb-{name}.md" for name in PARTS]
    whole = [head, *(section.read_text() for section in sections if section.exists())]
    lines = "\n\n".join(text.strip() for text in whole).splitlines()
    fill = lambda line: textwrap.fill(line, 100, break_long_words=False, break_on_hyphens=False)
    lines = [line if line[:1] in "|#" else fill(line) for line in lines]
    (bench.output / "npb.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
