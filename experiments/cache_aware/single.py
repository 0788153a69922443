"""One program at a time: figures 3.2, 5.10 and 5.11, and how the gain depends on what is modelled
and on how much of the program fits."""

import plot
from bench import (
    BY_NAME,
    COSTS,
    NAMES,
    NETWORK_CACHE,
    PROGRAMS,
    REFERENCE_NS,
    Bench,
    local_part,
    percent,
    table,
)
from regions import THESIS_RATES, rate, regions

# What the text of section 5.4 says of each program: the local share with first-touch and with
# cache-aware placement (figure 5.11), and the time with cache-aware placement (figure 5.10), in %.
THESIS = {
    "applu": ("a little less local", "no appreciable difference"),
    "apsi": ("the same", "no appreciable difference"),
    "buk": ("about 50, over 95", "down by up to 27"),
    "hydro2d": ("29, 71", "down by 6 or more"),
    "mgrid": ("very slightly less local", "no appreciable difference"),
    "mxm": ("about 50, over 95", "down by up to 27"),
    "swim": ("a little less local", "no appreciable difference"),
    "tomcatv": ("the same", "no appreciable difference"),
    "turb3d": ("the same", "no appreciable difference"),
    "wave": ("all, about half", "no appreciable difference"),
}


def single(bench: Bench) -> list[str]:
    rows, local, times, body = [], {}, {}, []
    for program in PROGRAMS:
        trace, frames = bench.alone(program), bench.frames_alone(program)
        of = {}
        for costs, text in COSTS.items():
            results = bench.simulate(trace, bench.placements, frames, costs=text)
            base = results[0]["modelled_time_ns"]
            for name, result in zip(NAMES, results):
                of[costs, name] = result["modelled_time_ns"] / base
                rows.append(
                    {
                        "program": program.thesis,
                        "costs": costs,
                        "placement": name,
                        "frames": frames,
                        "local_part": round(local_part(result), 4),
                        "time_by_first_touch": round(of[costs, name], 4),
                        "remote_regions": result["statistics"].get("remote_regions", ""),
                        "local_regions": result["statistics"].get("local_regions", ""),
                        "limited": result["statistics"].get("limited_applications", ""),
                    }
                )
            if costs == "network cache":
                parts = [local_part(result) for result in results]
                aware = results[2]["statistics"]
        local[program.thesis] = [100 * part for part in parts]
        times[program.thesis] = [100 * of["network cache", name] for name in NAMES]
        body.append(
            [
                program.thesis,
                program.name,
                *(percent(part) for part in parts),
                THESIS[program.thesis][0],
                *(percent(of[costs, "cache-aware"]) for costs in COSTS),
                percent(of["network cache", "a-priori"]),
                THESIS[program.thesis][1],
                f"{aware['remote_regions']}, {aware['local_regions']}",
                "yes" if aware["limited_applications"] else "no",
            ]
        )
    bench.csv("single.csv", rows)
    plot.bars(
        bench.output / "single_local.svg",
        "One program: local part of memory accesses (figure 5.11)",
        "%",
        local,
        NAMES,
    )
    plot.bars(
        bench.output / "single_time.svg",
        "One program: modelled time, first-touch = 100 (figures 3.2, 5.10)",
        "%",
        times,
        NAMES,
    )
    head = ["for", "program", "first-touch", "round-robin", "cache-aware", "a-priori"]
    head += ["thesis: local", "time, %", "no network cache", "500 ns a miss", "a-priori: time, %"]
    head += ["thesis: time", "regions remote, local", "limit reached"]
    return [
        "",
        "## One program (figures 3.2, 5.10 and 5.11)",
        "",
        "Local part of memory accesses in %, and modelled time with cache-aware placement as a "
        "part of first-touch's in %: with network caches as on NUMAchine, without them, and "
        "without them and with a constant 500 ns of computation a miss. Computation otherwise "
        "follows the miss rate. The thesis gives numbers in its text only; its best static "
        "placement is faster than first-touch for 5 of the 10 programs, by up to 30 %.",
        *table(head, body, 2),
    ]


def pressure(bench: Bench) -> list[str]:
    """The gain as a function of the share of memory that fits."""
    rows, drawn, body = [], {}, []
    shares = (0.5, 1.0) if bench.quick else (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
    for program in PROGRAMS:
        trace = bench.alone(program)
        blocks = bench.blocks(trace)
        cells = []
        for part in shares:
            results = bench.simulate(trace, bench.placements, int(blocks * part))
            base = results[0]["modelled_time_ns"]
            of = {name: result["modelled_time_ns"] / base for name, result in zip(NAMES, results)}
            for name, result in zip(NAMES, results):
                rows.append(
                    {
                        "program": program.thesis,
                        "frames_by_footprint": part,
                        "placement": name,
                        "local_part": round(local_part(result), 4),
                        "time_by_first_touch": round(of[name], 4),
                    }
                )
            drawn.setdefault(program.thesis, []).append((part, 100 * of["cache-aware"]))
            cells.append(f"{percent(of['cache-aware'])} ({percent(of['a-priori'])})")
        body.append([program.thesis, *cells])
    bench.csv("pressure.csv", rows)
    plot.lines(
        bench.output / "pressure.svg",
        "Time with cache-aware placement against how much fits on the node, first-touch = 100",
        "%",
        "frames of a node / pages of the program",
        drawn,
    )
    return [
        "",
        "## How much fits",
        "",
        "Modelled time with cache-aware (a-priori) placement as a part of first-touch's in %, by "
        "the part of the program's pages that a node holds.",
        *table(["program", *(f"{part:g}" for part in shares)], body),
    ]


def computation(bench: Bench) -> list[str]:
    """The same placement against what a thread computes between two misses: a constant, or what
    the references take that hit the caches. Programs that the limit of 50 % sends away although
    their node holds most of them, and the kernels at the thesis' miss rates."""
    each = [f"compute_ns={ns}" for ns in (500, 5000)]
    each += [f"reference_ns={ns}" for ns in (REFERENCE_NS, 4 * REFERENCE_NS, 16 * REFERENCE_NS)]
    cases = [(program, bench.frames_alone(program), "") for program in PROGRAMS]
    fits = [BY_NAME[name] for name in ("mgrid", "wave", "tomcatv")]
    cases += [(program, bench.blocks(bench.alone(program)), ", fits") for program in fits]
    body = []
    for program, frames, how in cases:
        trace = bench.alone(program)
        found = regions(bench, program)
        ours = rate([of for of in found if of["sequential"]])
        theirs = THESIS_RATES[program.thesis][0]
        of_thesis, cells, costs = "", [], list(each)
        if program.name != "sweeps" and ours and theirs:
            of_thesis = f"{REFERENCE_NS * ours / theirs:.0f}"
            costs.append(f"reference_ns={of_thesis}")
        for text in costs:
            text = f"fault_ns=0,{NETWORK_CACHE},{text}"
            placements = ["first-touch", bench.cache_aware]
            first, aware = bench.simulate(trace, placements, frames, costs=text)
            cells.append(percent(aware["modelled_time_ns"] / first["modelled_time_ns"]))
        if of_thesis:
            cells[-1] += f" ({of_thesis} ns)"
        else:
            cells.append("–")
        body.append([program.thesis + how, *cells])
    head = ["program", "500 ns a miss", "5 µs a miss"]
    head += [f"{part * REFERENCE_NS} ns a reference" for part in (1, 4, 16)]
    return [
        "",
        "## Computation between misses",
        "",
        "Modelled time with cache-aware placement as a part of first-touch's in %, by what a "
        "thread computes. The last column has as much computation a miss as the thesis' miss "
        "rates give at 27 ns a reference, for the kernels, whose rates are higher than the "
        "thesis'. *fits*: the node holds all of the program.",
        *table([*head, "at the thesis' rate"], body),
    ]


WORKING_SETS = [20, 90, 50, 10, 70, 30]


def sampling(bench: Bench) -> list[str]:
    """Figure 5.13: memory in use by a sample of 1 % of the pages, against what is in use. A trace
    that ends after an iteration has the same beginning, so the policy's last estimate is the one
    that it had then. One node; with all pages in memory as in the thesis, and under pressure:
    frames for half of the pages, so that pages are reclaimed."""
    kib, drawn, rows = 8192, {}, []
    iterations = range(1, 3 if bench.quick else 2 * len(WORKING_SETS) + 1)
    # The sample is of pages, so a smaller memory needs a larger one: as many pages as 1 % of 96 MB.
    sample = min(1.0, 0.01 * 24576 / (kib / 4))
    placement = f"cache-aware{{sample={sample},period_ms=100}}"
    for iteration in iterations:
        used = WORKING_SETS[(iteration - 1) % len(WORKING_SETS)]
        spec = f"sweeps{{like=working-set,kib={kib},iterations={iteration}}}"
        trace = bench.trace(f"working-set-{iteration}", [spec], 1, "--nodes", "1")
        blocks = bench.blocks(trace)
        for pressure, share in (("all fits", 1.0), ("half fits", 0.5)):
            costs = COSTS["no network cache"] + ",refault_ns=1000"
            frames = int(blocks * share)
            [result] = bench.simulate(trace, [placement], frames, nodes="1", costs=costs)
            estimate = result["statistics"]["sampled_in_use_permille"] / 10
            # Of the pages that are allocated, which under pressure are those in memory.
            actual = min(100.0, used / share)
            rows.append(
                {
                    "iteration": iteration,
                    "memory": pressure,
                    "in_use": actual,
                    "estimate": estimate,
                    "reclaimed": result["evictions"],
                }
            )
            drawn.setdefault(f"in use, {pressure}", []).append((iteration, actual))
            drawn.setdefault(f"estimate, {pressure}", []).append((iteration, estimate))
    bench.csv("sampling.csv", rows)
    plot.lines(
        bench.output / "sampling.svg",
        "Memory in use and its estimate by a sample of pages (figure 5.13)",
        "% of allocated pages",
        "iteration",
        drawn,
    )
    body = []
    for pressure in ("all fits", "half fits"):
        of = [row for row in rows if row["memory"] == pressure]
        off = [abs(row["estimate"] - row["in_use"]) for row in of]
        cells = [f"{row['estimate']:.0f} ({row['in_use']:.0f})" for row in of]
        body.append([pressure, *cells, f"{sum(off) / len(off):.1f}", of[-1]["reclaimed"]])
    return [
        "",
        "## Memory in use by sampling (figure 5.13)",
        "",
        "What a sample of pages that are unmapped finds in use at the end of each iteration, in % "
        "of allocated pages, and in brackets what is in use. The sample has as many pages as 1 % "
        "of 96 MB.",
        *table(
            ["memory", *(str(number) for number in iterations), "mean error, points", "reclaimed"],
            body,
        ),
        "",
        *sampled_placement(bench, sample),
    ]


def sampled_placement(bench: Bench, sample: float) -> list[str]:
    """What a measured usage is worth where memory is short: programs beside one whose memory is
    idle, on a machine that does not hold both."""
    rows = []
    idle = f"sweeps{{like=working-set,kib={2048 if bench.quick else 16384},iterations=4}}"
    for name in ("buk", "hydro2d", "tomcatv"):
        program = next(program for program in PROGRAMS if program.thesis == name)
        trace = bench.trace(f"{name}-idle", [program.spec(bench.mixed), idle], 1, "--nodes", "1")
        frames = int(bench.blocks(trace) * 0.8 / 4)
        placements = ["first-touch", bench.cache_aware]
        region = f"region={bench.region_bytes}"
        placements.append(f"cache-aware{{{region},sample={sample},period_ms=100}}")
        costs = COSTS["network cache"] + ",refault_ns=10000"
        results = bench.simulate(trace, placements, frames, costs=costs)
        base = results[0]["processes"][0]["end_ns"]
        cells = [percent(result["processes"][0]["end_ns"] / base) for result in results[1:]]
        reclaimed = [result["evictions"] for result in results]
        rows.append([name, *cells, *reclaimed])
    head = ["program", "by allocation", "by sample"]
    head += ["reclaimed: first-touch", "by allocation", "by sample"]
    return [
        "A program beside one that uses 10 to 90 % of its memory, on a machine that holds 80 % of "
        "both: time with cache-aware placement by the usage that it goes by, as a part of "
        "first-touch's in %, and pages reclaimed.",
        *table(head, rows),
    ]
