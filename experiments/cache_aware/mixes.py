"""Mixes of programs on one station: figure 5.12 and table 5.4, with the thesis' method.

Each trial has two lists of programs, of one random length from 5 to 10, drawn at random with
repetition. The lists run on two processors of one station, the second one a little later. A
program counts if it ran while both processors were busy. Programs compete for the memory of the
station, which a program frees when it ends.
"""

import json
import math
import random
import shutil
import statistics

import plot
from bench import BY_NAME, COSTS, NAMES, PROGRAMS, Bench, local_part, percent, table

# Table 5.4: mean seconds with first-touch and with cache-aware placement, and whether the
# difference is significant.
THESIS = {
    "applu": (733, 727, "no"),
    "apsi": (1040, 918, "yes"),
    "buk": (832, 534, "yes"),
    "hydro2d": (789, 646, "no"),
    "mgrid": (1226, 1158, "no"),
    "mxm": (666, 542, "yes"),
    "swim": (259, 239, "yes"),
    "tomcatv": (522, 465, "yes"),
    "turb3d": (448, 396, "yes"),
    "wave": (2147, 2166, "no"),
}
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
T_95 |= {10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 30: 2.04, 60: 2.00}
# What a list begins with: the second one is later, while the first one's program fills memory.
BEGIN = {
    "at once": "sweeps{like=working-set,kib=64,iterations=1}",
    "later": "sweeps{like=working-set,kib=64,iterations=100}",
}


def interval(first: list[float], second: list[float]) -> float:
    """Half of the 95 % confidence interval of the difference of two means (Welch)."""
    parts = [statistics.variance(times) / len(times) for times in (first, second)]
    if not sum(parts):
        return 0.0
    degrees = sum(parts) ** 2 / sum(
        part**2 / (len(times) - 1) for part, times in zip(parts, (first, second))
    )
    known = max((of for of in T_95 if of <= degrees), default=1)
    return T_95[known] * math.sqrt(sum(parts))


def lists(bench: Bench, trial: int) -> list[str]:
    """The programs of both lists by turns: those of the first at even places."""
    draw = random.Random(trial)
    length = 2 if bench.quick else draw.randint(5, 10)
    return [draw.choice(PROGRAMS).thesis for _ in range(2 * length)]


def mixes(bench: Bench) -> list[str]:
    rows = []
    for trial in range(2 if bench.quick else 8):
        rows += trial_rows(bench, trial)
    bench.csv("mixes.csv", rows)
    return report(bench, rows)


def trial_rows(bench: Bench, trial: int) -> list[dict]:
    """The runs of a trial, which are kept: its trace is large, and used once."""
    kept = bench.work / f"{'quick-' * bench.quick}lists-{trial}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    names = [*BEGIN, *lists(bench, trial)]
    specs = [BEGIN.get(name) or BY_NAME[name].spec(bench.mixed) for name in names]
    trace = bench.trace(f"lists-{trial}", specs, 1, "--nodes", "1", "--queues", "2")
    rows = []
    for costs in ("network cache", "no network cache"):
        # All programs together have more pages than frames; those that ended have freed theirs.
        prices = COSTS[costs] + ",refault_ns=10000"
        results = bench.simulate(trace, bench.placements, bench.frames, costs=prices)
        for placement, result in zip(NAMES, results):
            ends = [of["end_ns"] for of in result["processes"]]
            both_ns = min(max(ends[0::2]), max(ends[1::2]))
            for name, of in zip(names, result["processes"]):
                if name in BEGIN or of["end_ns"] > both_ns:
                    continue
                rows.append(
                    {
                        "trial": trial,
                        "costs": costs,
                        "placement": placement,
                        "program": name,
                        "time_ns": of["end_ns"] - of["start_ns"],
                        "local_part": round(local_part(of), 4),
                        "reclaimed": result["evictions"],
                    }
                )
    shutil.rmtree(trace)
    kept.write_text(json.dumps(rows))
    return rows


def report(bench: Bench, rows: list[dict]) -> list[str]:
    def of(costs: str, name: str, placement: str, what: str) -> list[float]:
        return [
            row[what]
            for row in rows
            if (row["costs"], row["program"], row["placement"]) == (costs, name, placement)
        ]

    body, drawn, spread = [], {}, {}
    for program in PROGRAMS:
        name = program.thesis
        times = {
            placement: of("network cache", name, placement, "time_ns") for placement in NAMES
        }
        if min(len(of) for of in times.values()) < 2:
            continue
        first, aware = times["first-touch"], times["cache-aware"]
        mean = statistics.mean(first)
        drawn[name] = []
        for number, placement in enumerate(("first-touch", "cache-aware", "a-priori")):
            shares = [100 * time / mean for time in times[placement]]
            drawn[name].append(statistics.mean(shares))
            spread[name, number] = (min(shares), max(shares))
        difference = (mean - statistics.mean(aware)) / mean
        half = interval(first, aware) / mean
        bare = [
            statistics.mean(of("no network cache", name, placement, "time_ns") or [math.nan])
            for placement in ("first-touch", "cache-aware")
        ]
        parts = [
            percent(statistics.mean(of("network cache", name, placement, "local_part")))
            for placement in ("first-touch", "cache-aware")
        ]
        theirs = THESIS[name]
        body.append(
            [
                name,
                len(first),
                *(
                    f"{drawn[name][number]:.0f} ({spread[name, number][0]:.0f} - "
                    f"{spread[name, number][1]:.0f})"
                    for number in range(3)
                ),
                f"{100 * theirs[1] / theirs[0]:.0f}",
                f"{100 * difference:.0f} ± {100 * half:.0f}",
                "yes" if abs(difference) > half else "no",
                theirs[2],
                percent(bare[1] / bare[0]),
                *parts,
            ]
        )
    plot.bars(
        bench.output / "mixes.svg",
        "Mixes: time over all trials, first-touch's mean = 100 (figure 5.12)",
        "%",
        drawn,
        ["first-touch", "cache-aware", "a-priori"],
        spread,
    )
    head = ["program", "runs", "first-touch", "cache-aware", "a-priori", "thesis: cache-aware"]
    head += ["difference", "significant", "thesis", "no network cache", "local: first-touch"]
    head += ["cache-aware"]
    return [
        "",
        "## Mixes on one station (figure 5.12 and table 5.4)",
        "",
        "Two lists of 5 to 10 programs, drawn at random, on two processors of one station of "
        f"{4 * bench.frames // 1024} MiB: mean time of each program as a part of first-touch's in "
        "% (the least and the most in brackets), the difference with its 95 % confidence interval "
        "(t-test, as in the thesis), and the mean local part of memory accesses in %.",
        *table(head, body),
    ]


def scheduling(bench: Bench) -> list[str]:
    """Section 6.1: a scheduler that knows the nodes' memory. Pairs of programs on one station, and
    each on its own, as a scheduler would that looks for free memory."""
    pairs = [("buk", "tomcatv"), ("hydro2d", "turb3d"), ("mxm", "wave"), ("apsi", "swim")]
    body = []
    for pair in pairs[: 1 if bench.quick else None]:
        specs = [BY_NAME[name].spec(bench.mixed) for name in pair]
        trace = bench.trace("-".join(pair), specs, 1, "--nodes", "1")
        placements = ["first-touch", bench.cache_aware]
        times = []
        for bind in ("trace", "processes"):
            results = bench.simulate(trace, placements, bench.frames, bind=bind)
            times += [[of["end_ns"] for of in result["processes"]] for result in results]
        for number, name in enumerate(pair):
            base = times[0][number]
            cells = [percent(time[number] / base) for time in times]
            body.append([name, pair[1 - number], *cells])
    head = ["program", "with", "one station: first-touch", "cache-aware"]
    head += ["two stations: first-touch", "cache-aware"]
    return [
        "",
        "## A scheduler that knows memory (section 6.1)",
        "",
        "Pairs that begin together, on one station, and dealt to two stations, as by a scheduler "
        "that chooses the station with most free memory. Modelled time as a part of that with "
        "first-touch on one station in %.",
        *table(head, body, 2),
    ]
