#!/usr/bin/env python3
"""The dual-layered file cache against plain first touch: figures 3 and 4 and tables 1 to 6 of
Zhou, Meng and Ma, "Dual-layered file cache on cc-NUMA system", with the paper's values beside
ours; and what the paper leaves open: memory pressure, more nodes, its parameters, and each of
its three extensions.

The paper's machine has two Opteron nodes with 1 GiB each (`--nodes opteron2 --size 1GiB`). Its
workloads are `hither gen parallel-grep`, `compile`, `iozone` and `web-server` with the paper's
sizes. First touch of file blocks is the placement `first-and-forever` with LRU on each node.
*Local* is the share of accesses to cached blocks that the accessing node served. The paper also
counts pages just read from the disk as local; here they are not.

Writes results.csv (every run), README.md (the tables, and notes.md of this folder) and *.svg to
--output. Takes about a minute on two cores. --quick does a tenth of the work, for changes to
this script.

    python3 dual_layer.py --hither target/release/hither --work /tmp/dual_layer --output \\
        experiments/dual_layer/results
"""

import argparse
import csv
import platform
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
import explanations
import plot
from common import COLUMNS, COMPILE_LOCAL, DUAL, FIRST, GREP_S, IOZONE, IOZONE_MB_S, SHELLS
from common import WEB_LOCAL, Lab, local, local_as_counted, more, table

def grep(lab: Lab, out: Path) -> str:
    rows, groups = [], {}
    for shells in SHELLS:
        trace = lab.trace(f"parallel-grep{{runs={lab.scaled(120)}}}", shells, 2)
        first, dual = lab.place("grep", trace, "opteron2", "1GiB", [FIRST, DUAL])
        less = -more(first["hit_latency_ns"], dual["hit_latency_ns"])
        paper_s = GREP_S[shells]
        faster = -more(*paper_s)
        rows.append(
            [
                shells,
                local(first),
                "50",
                local(dual),
                "98.8",
                first["hit_latency_ns"],
                dual["hit_latency_ns"],
                less,
                faster,
            ]
        )
        groups[f"{shells} shells"] = [local(first), local(dual)]
    plot.bars(
        out / "grep.svg",
        "Parallel grep: accesses served by the node itself",
        "% of hits",
        groups,
        ["first touch", "dual-layer"],
    )
    head = [
        "shells",
        "local, first touch %",
        "paper",
        "local, dual-layer %",
        "paper",
        "hit, first touch ns",
        "hit, dual-layer ns",
        "less %",
        "paper: run time less %",
    ]
    return "## Parallel grep (table 1, figure 3)\n\n" + table(head, rows) + "\n![](grep.svg)\n"


def building(lab: Lab, out: Path) -> str:
    """tar, gcc and cscope, each alone and together, with generated sources."""
    size = f"sources={lab.scaled(1000)},source_mib={lab.scaled(16)}"
    parts = {
        "tar": "gcc=0,cscope=0",
        "cscope": "tar=0,gcc=0",
        "gcc": "tar=0,cscope=0",
        "tar, gcc and cscope": "tar=1",
    }
    rows = []
    for name, switches in parts.items():
        for jobs in (1, 8) if "gcc" in name else (1,):
            for sticky in (0, explanations.STICKY) if "gcc" in name else (0,):
                workload = f"compile{{{size},{switches},sticky={sticky}}}"
                rows.append(build_row(lab, name, workload, jobs, sticky))
    head = [
        "programs",
        "sticky",
        "local, first touch %",
        "dual-layer %",
        "more local hits %",
        "more, as the paper counts %",
        "paper: more %",
        "replicas",
    ]
    return (
        "## tar, gcc and cscope (table 2)\n\nMeans over seeds where compilers run. *As the paper "
        "counts*: blocks that were just read from the disk are local hits.\n\n"
        + table(head, rows)
    )


def build_row(lab: Lab, name: str, workload: str, jobs: int, sticky: float) -> list:
    """Means over seeds: where make runs, and tar before it, is drawn."""
    seeds = range(1, 2) if "gcc" not in name else explanations.seeds(lab)
    runs = [
        lab.place("compile", lab.trace(workload, jobs, 2, seed), "opteron2", "1GiB", [FIRST, DUAL])
        for seed in seeds
    ]

    def mean(value, which: int) -> float:
        return sum(value(run[which]) for run in runs) / len(runs)

    def gain(value) -> float:
        return more(max(mean(value, 0), 1), max(mean(value, 1), 1))

    return [
        f"{name}, {jobs} at a time" if "gcc" in name else name,
        str(sticky),
        mean(local, 0),
        mean(local, 1),
        gain(lambda result: result["local"]),
        gain(local_as_counted),
        more(*COMPILE_LOCAL[name]) if jobs == 1 else "-",
        round(mean(lambda result: result["replications"], 1)),
    ]


def by_test(result: dict, tests: int) -> list[tuple[int, int]]:
    """Local hits and hits in each of `parts` parts of equal length, from the intervals that lie
    completely in one part."""
    sums = [[0, 0] for _ in range(tests)]
    last = result["timeline"][-1]["end"]
    start = 0
    for interval in result["timeline"]:
        test = start * tests // last
        if (interval["end"] - 1) * tests // last == test:
            totals = interval["totals"]
            sums[test][0] += totals["local"]
            sums[test][1] += totals["local"] + totals["remote"]
        start = interval["end"]
    return [(sum[0], sum[1]) for sum in sums]


def iozone(lab: Lab, out: Path) -> str:
    """Means over several seeds: the nodes of a test's threads are random, and few threads vary
    much."""
    rows, groups = [], {}
    table_rows, bandwidth = {test: [] for test in IOZONE}, {test: [] for test in IOZONE}
    for at, threads in enumerate(SHELLS):
        runs = []
        for seed in range(1, 9):
            trace = lab.trace(f"iozone{{size_mib={lab.scaled(32)}}}", threads, 2, seed)
            runs.append(
                lab.place("iozone", trace, "opteron2", f"{lab.scaled(256)}MiB", [FIRST, DUAL])
            )

        def mean(value, which: int) -> float:
            return sum(value(run[which]) for run in runs) / len(runs)

        def of_test(test: int):
            def percent(result: dict) -> float:
                found, hits = by_test(result, len(IOZONE))[test]
                return 100 * found / max(hits, 1)

            return percent

        hits = [mean(lambda result: result["local"], which) for which in (0, 1)]
        misses = [
            100 * mean(lambda result: result["misses"] / result["accesses"], which)
            for which in (0, 1)
        ]
        rows.append([threads, mean(local, 0), mean(local, 1), more(*hits), *misses])
        groups[f"{threads} threads"] = [mean(local, 0), mean(local, 1)]
        for number, test in enumerate(IOZONE):
            gain = mean(of_test(number), 1) - mean(of_test(number), 0)
            table_rows[test].append(f"{gain:+.0f} ({IOZONE[test][at]:+.1f})")
            bandwidth[test].append(bandwidth_cell(test, at, gain))
    plot.bars(
        out / "iozone.svg",
        "iozone: accesses served by the node itself",
        "% of hits",
        groups,
        ["first touch", "dual-layer"],
    )
    head = [
        "threads",
        "local, first touch %",
        "dual-layer %",
        "more local hits %",
        "misses %",
        "dual-layer %",
    ]
    text = (
        "## iozone (tables 3 to 5, figure 4)\n\nFiles and memory are a quarter of the "
        "paper's; means over 8 seeds.\n\n" + table(head, rows)
    )
    text += (
        "\nMore local hits, in points of percent of the test's hits; in brackets the "
        "paper's percent of more bandwidth:\n\n"
    )
    text += table(
        ["test", *(f"{threads} threads" for threads in SHELLS)],
        [[test, *cells] for test, cells in table_rows.items()],
    )
    text += (
        "\nModelled bandwidth, in percent more: the paper's time of a record (table 3) less what "
        "these local hits save in copying 4 KiB, with ten cache lines in flight / with one line at "
        "a time; in brackets the paper's percent (table 5):\n\n"
    )
    text += table(
        ["test", *(f"{threads} threads" for threads in SHELLS)],
        [[test, *cells] for test, cells in bandwidth.items()],
    )
    return text + "\n![](iozone.svg)\n"


def bandwidth_cell(test: str, at: int, points: float) -> str:
    """From points of percent more local hits: two processors share the records of all threads."""
    record_ns = 2 * 4096 / (IOZONE_MB_S[test][at] * 1e6) * 1e9
    gains = []
    for lines_in_flight in (10, 1):
        hop_ns = 34 * 64 / lines_in_flight
        saved_ns = points / 100 * hop_ns
        gains.append(100 * saved_ns / (record_ns - saved_ns))
    return f"{gains[0]:+.1f} / {gains[1]:+.1f} ({IOZONE[test][at]:+.1f})"


def web(lab: Lab, out: Path) -> str:
    rows = []
    for name, workload in {
        "the large file alone": "web-server{small=0}",
        "with small files": "web-server",
    }.items():
        workers = 8
        trace = lab.trace(workload, workers, 2)
        first, dual = lab.place("web", trace, "opteron2", "1GiB", [FIRST, DUAL])
        rows.append(
            [
                name,
                local(first),
                local(dual),
                first["local"],
                dual["local"],
                more(first["local"], dual["local"]),
                more(*WEB_LOCAL),
            ]
        )
    head = [
        "requests",
        "local, first touch %",
        "dual-layer %",
        "local hits",
        "dual-layer",
        "more %",
        "paper: more %",
    ]
    return "## Web server (table 6)\n\n" + table(head, rows)


def pressure(lab: Lab, out: Path) -> str:
    """40 MiB of files on two nodes with 10 to 45 MiB each. From 40 MiB on all originals and all
    replicas fit."""
    trace = lab.trace(f"parallel-grep{{runs={lab.scaled(120)}}}", 8, 2)
    variants = {
        "first touch": FIRST,
        "dual-layer": DUAL,
        "no gate": "dual-layer{free=0}",
        "no gate, 1:1": "dual-layer{free=0,ratio=1}",
        "no gate, replicas first": "dual-layer{free=0,ratio=1000000}",
        "no gate, switching roles": "dual-layer{free=0,switch=1}",
    }
    rows, lines, missed = [], {name: [] for name in variants}, {name: [] for name in variants}
    for mib in (10, 15, 20, 21, 22, 25, 30, 35, 40, 45):
        results = lab.place("pressure", trace, "opteron2", f"{mib}MiB", list(variants.values()))
        rows.append(
            [
                mib,
                *(
                    f"{local(result):.1f} / {100 * result['misses'] / result['accesses']:.1f}"
                    for result in results
                ),
            ]
        )
        for name, result in zip(variants, results):
            lines[name].append((mib, 100 * result["local"] / result["accesses"]))
            missed[name].append((mib, 100 * result["misses"] / result["accesses"]))
    plot.lines(
        out / "pressure_local.svg",
        "Parallel grep over 40 MiB by memory: served by the node itself",
        "% of accesses",
        "MiB on each of two nodes",
        lines,
    )
    plot.lines(
        out / "pressure_misses.svg",
        "Parallel grep over 40 MiB by memory: read from the disk",
        "% of accesses",
        "MiB on each of two nodes",
        missed,
    )
    head = ["MiB a node", *variants]
    return (
        "## Memory pressure\n\nPercent of hits that are local / percent of accesses that miss:\n\n"
        + table(head, rows)
        + "\n![](pressure_local.svg)\n![](pressure_misses.svg)\n"
    )


def more_nodes(lab: Lab, out: Path) -> str:
    rows, lines = [], {"first touch": [], "1/n": [], "dual-layer": []}
    for nodes in (2, 3, 4, 6, 8, 12, 16):
        trace = lab.trace(f"parallel-grep{{runs={lab.scaled(480)}}}", 16, nodes)
        first, dual = lab.place("nodes", trace, str(nodes), "1GiB", [FIRST, DUAL])
        rows.append([nodes, local(first), 100 / nodes, local(dual), dual["replications"]])
        for name, value in zip(lines, (local(first), 100 / nodes, local(dual))):
            lines[name].append((nodes, value))
    plot.lines(
        out / "nodes.svg",
        "Parallel grep, 16 shells, by number of nodes: served by the node itself",
        "% of hits",
        "nodes",
        lines,
    )
    head = [
        "nodes",
        "local, first touch %",
        "the paper's opinion: 1/n",
        "local, dual-layer %",
        "replicas",
    ]
    return "## More nodes\n\n480 runs in 16 shells.\n\n" + table(head, rows) + "\n![](nodes.svg)\n"


def parameters(lab: Lab, out: Path) -> str:
    text = "## Parameters\n\n"
    size = f"sources={lab.scaled(1000)},source_mib={lab.scaled(16)}"
    traces = {
        "grep, 8 shells": lab.trace(f"parallel-grep{{runs={lab.scaled(120)}}}", 8, 2),
        "tar, gcc and cscope": lab.trace(f"compile{{{size}}}", 8, 2),
        "web server": lab.trace("web-server", 8, 2),
    }
    thresholds = [1, 2, 3, 4, 8, 16]
    rows = []
    for name, trace in traces.items():
        results = lab.place(
            "threshold",
            trace,
            "opteron2",
            "1GiB",
            [f"dual-layer{{threshold={count}}}" for count in thresholds],
        )
        rows.append(
            [name, *(f"{local(result):.1f} / {result['replications']:,}" for result in results)]
        )
    text += "Percent of hits that are local / replicas made, by threshold (the paper's is 2):\n\n"
    text += table(["", *map(str, thresholds)], rows)
    tight = {"web server": "40MiB", "tar, gcc and cscope": "20MiB"}
    variants = {
        "lru (1 queue)": "queues=1",
        "8 queues": "queues=8",
        "no decay": "refill=1000000",
        "decay x 10": "refill=0.0333",
    }
    rows = []
    for name, size in tight.items():
        placements = [f"dual-layer{{free=0,{values}}}" for values in variants.values()]
        results = lab.place("ranking", traces[name], "opteron2", size, placements)
        rows.append(
            [
                f"{name}, {size} a node",
                *(
                    f"{local(result):.1f} / {100 * result['misses'] / result['accesses']:.2f}"
                    for result in results
                ),
            ]
        )
    text += (
        "\nRanking of replicas where memory is scarce and generation is not gated; "
        "percent of hits that are local / of accesses that miss:\n\n"
    )
    return text + table(["", *variants], rows)


def extensions(lab: Lab, out: Path) -> str:
    size = f"sources={lab.scaled(1000)},source_mib={lab.scaled(16)}"
    compiling = lab.trace(f"compile{{{size}}}", 8, 2)
    traces = {"tar, gcc and cscope": compiling, "web server": lab.trace("web-server", 8, 2)}
    text = (
        "## Delayed generation\n\nReplicas made, percent of hits that are local, and time "
        "of copying replicas in ms, by delay:\n\n"
    )
    delays = [0, 100, 1_000, 10_000, 100_000, 1_000_000]
    rows = []
    for name, trace in traces.items():
        results = lab.place(
            "delay",
            trace,
            "opteron2",
            "1GiB",
            [f"dual-layer{{delay_us={delay}}}" for delay in delays],
        )
        rows.append(
            [
                name,
                *(
                    f"{result['replications']:,} / {local(result):.1f} / "
                    f"{result['overhead_ns'] / 1e6:.1f}"
                    for result in results
                ),
            ]
        )
    text += table(["", *(f"{delay:,} us" for delay in delays)], rows)

    text += (
        "\n## Switching roles\n\nPercent of accesses that miss / of hits that are local, "
        "without the gate:\n\n"
    )
    rows = []
    for name, trace in traces.items():
        for mib in (10, 15, 20, 30, 40):
            placements = [FIRST, "dual-layer{free=0}", "dual-layer{free=0,switch=1}"]
            results = lab.place("switch", trace, "opteron2", f"{mib}MiB", placements)
            rows.append(
                [
                    f"{name}, {mib} MiB a node",
                    *(
                        f"{100 * result['misses'] / result['accesses']:.2f} / {local(result):.1f}"
                        for result in results
                    ),
                ]
            )
    text += table(["", "first touch", "dropped with the original", "switched"], rows)

    trace = mapped_libraries(lab)
    placements = [FIRST, DUAL, "dual-layer{mapped=1}"]
    results = lab.place(
        "mapped",
        trace,
        "opteron2",
        "1GiB",
        placements,
        "--format",
        "strace",
        "--maps",
        "--bind",
        "processes",
    )
    text += (
        "\n## Mapped files\n\n400 processes on two nodes map libraries (20 of 2 MiB, "
        "Zipf) and read a shared file of 8 MiB:\n\n"
    )
    rows = [
        [placement, local(result), result["replications"]]
        for placement, result in zip(placements, results)
    ]
    return text + table(["placement", "local %", "replicas"], rows)


def mapped_libraries(lab: Lab) -> Path:
    """A log in the format of strace -f -y, since no generator maps files."""
    path = lab.work / "libraries.strace"
    state = 1
    with path.open("w") as log:
        for process in range(lab.scaled(400)):
            pid = 1000 + process
            for rank in range(1, 21):
                state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
                if (state >> 33) % rank == 0:
                    log.write(
                        f"{pid} mmap(NULL, 2097152, PROT_READ, MAP_PRIVATE, "
                        f"3</usr/lib/lib{rank}.so>, 0) = 0x7f0000000000\n"
                    )
            for offset in range(0, 8 << 20, 131072):
                log.write(f'{pid} pread64(4</srv/shared>, "", 131072, {offset}) = 131072\n')
    return path


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
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--tree",
        type=Path,
        default=Path("/usr/include"),
        help="sources that tar and cscope are recorded over [default: /usr/include]",
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    lab = Lab(arguments.hither.resolve(), arguments.work, arguments.quick)
    lab.tree = arguments.tree.resolve()
    version = lab.run(["--version"]).strip()
    sections = []
    parts = [grep, building, iozone, web, pressure, more_nodes, parameters, extensions]
    for part in [*parts, *explanations.PARTS]:
        started = time.monotonic()
        sections.append(part(lab, arguments.output))
        print(f"{part.__name__}: {time.monotonic() - started:.0f} s", file=sys.stderr)
    with (arguments.output / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lab.rows)
    quick = " --quick" if arguments.quick else ""
    head = (
        f"# Dual-layered file cache: ours beside the paper's\n\nWritten by "
        f"`dual_layer.py{quick}` with {version}, Linux {platform.release()}; every run is "
        f"in results.csv.\n"
    )
    notes = Path(__file__).with_name("notes.md")
    text = [head, *sections, *([notes.read_text()] if notes.exists() else [])]
    (arguments.output / "README.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
