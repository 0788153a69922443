#!/usr/bin/env python3
"""The experiments of the PCC paper with today's programs (Gniady, Butt and Hu, OSDI 2004,
section 5): records workloads, simulates them, and writes its tables and figures 1, 2 and 7 to 11
as tables, with the paper's numbers where it prints them.

    python3 experiments/pcc/pcc.py --hither target/release/hither --work /tmp/pcc --output \\
        experiments/pcc/results
    python3 experiments/pcc/pcc.py --hither target/debug/hither --work /tmp/pcc --quick

--quick is what CI runs: everything once, at a small size. The workloads, the paper's and ours:

- cscope over Linux 2.4.20: cscope over as many sources of Debian's Linux. Six words in every field,
  in one session. Searches for text and patterns read every source; the others scan the index.
- glimpse over 550 MB of text: glimpse over 540 MB of the kernel's. Nine single-word queries.
- gcc, Linux 2.4.20: make mm/ lib/ of a tinyconfig kernel; with --quick, of generated files.
- tpc-h on PostgreSQL: TPC-H's queries 3, 4, 6 and 14, one client each, on a server with TPC-H's
  tables and indexes at scale factor 0.15 (see tpch.py).
- viewperf (SPEC's, not free): gnuplot draws surfaces from data sets of 8, 4, 1, 4 and 3 files and
  from 269 small files. Each is drawn by three invocations in a row, the four largest by two.
- epochs (not in the paper): a reader that reads its files in another order in each epoch, as
  machine learning does.
- multi1, multi2, multi3: cscope and gcc at the same time; these with viewperf; glimpse and
  tpc-h.

Then the switches: a workload with one thing changed, to see what a result hangs on.

As root on Debian it installs the packages it needs. A workload without its programs is skipped
with a message.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import plot  # noqa: E402
import workloads  # noqa: E402

# What is simulated, by its name in the tables.
POLICIES = {
    "lru": "lru",
    "arc": "arc",
    "ubm, paper": "ubm{as=paper}",
    "ubm": "ubm",
    "pcc, paper": "pcc{as=paper}",
    "pcc": "pcc",
    "opt": "opt",
}
# Whose hit ratios are subtracted, and the paper's mean and greatest of the maxima by workload.
LEADS = [
    ("pcc, paper", "ubm, paper", "13.8, at most 29.3"),
    ("pcc", "ubm, paper", ""),
    ("pcc", "ubm", ""),
    ("pcc, paper", "arc", "35.2, at most 63.4"),
]
# What the paper leaves open of UBM's cache: whether sequential blocks leave before the cache is
# full, and whether blocks of a loop that has ended (it has not returned for two periods) leave
# first.
READINGS = {
    "paper mode": "as=paper",
    "sequential blocks leave at once": "as=paper,sequential=discard",
    "ended loops leave first": "as=paper,expire=2",
    "both": "as=paper,sequential=discard,expire=2",
}
# Recordings of programs that run at the same time, to see how much chance there is in one.
RECORDINGS = 5
SIZES = ["1%", "2%", "5%", "10%", "15%", "25%", "35%", "50%", "65%", "75%", "90%"]
SAMPLES = [1, 5, 20, 100, 1000]
THRESHOLDS = [5, 50, 100, 200, 400]
# References, MB, files and signature PCs: the paper's table 1.
PAPER = {
    "cscope": (1119161, 260, 10635, 107),
    "glimpse": (519382, 669, 43649, 25),
    "gcc": (158667, 41, 2098, 334),
    "viewperf": (303123, 495, 289, 179),
    "tpc-h": (121307, 196, 80, 242),
    "multi1": (1278135, 297, 12246, 442),
    "multi2": (1580908, 792, 12514, 605),
    "multi3": (640467, 865, 43738, 268),
}
# The caches of its figures 9 and 12, in MB.
CACHES = {
    "cscope": 128,
    "glimpse": 512,
    "gcc": 2,
    "viewperf": 32,
    "tpc-h": 128,
    "multi1": 128,
    "multi2": 128,
    "multi3": 512,
}
CLASSES = ("sequential", "looping", "other")


class Lab:
    """Runs hither."""

    def __init__(self, hither: Path, work: Path):
        work.mkdir(parents=True, exist_ok=True)
        self.work = work
        # A program that the owner of the database can run, and a folder in which it can write.
        self.hither = Path(shutil.copy(hither.resolve(), work / "hither"))
        self.traces = work / "traces"
        self.traces.mkdir(exist_ok=True)
        self.traces.chmod(0o1777)

    def json(self, *words) -> dict:
        return json.loads(
            subprocess.run(
                [self.hither, "-q", *map(str, words), "--json"], check=True, stdout=subprocess.PIPE
            ).stdout
        )

    def simulated(self, trace: Path, specs: list[str], sizes: list[str]) -> list[list[dict]]:
        """The results by policy and size."""
        rows = self.json("sim", trace, "-p", ",".join(specs), "-s", ",".join(sizes))["results"]
        assert len(rows) == len(specs) * len(sizes), "sizes that are the same in blocks"
        return [rows[len(sizes) * at :][: len(sizes)] for at in range(len(specs))]


def paper_share(name: str) -> str:
    """The paper's cache of figures 9 and 12, as a share of the data."""
    return f"{100 * CACHES[name] / PAPER[name][1]:.0f}%" if name in PAPER else "25%"


def with_parameter(spec: str, name: str, value: int) -> str:
    return spec[:-1] + f",{name}={value}}}" if spec.endswith("}") else f"{spec}{{{name}={value}}}"


def table(heads: list[str], rows: list[list]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def needed(distribution: dict, share: float) -> str:
    """The number of rows that make up that share of the references."""
    rows, sums = distribution["rows"], distribution["references"]
    return f"{next((row for row, sum in zip(rows, sums) if sum >= share * sums[-1]), 0):,}"


def advised(advice: dict) -> list[str]:
    """The table cells of one workload's advice."""
    size = lambda blocks: f"{blocks * 4096 / 2**20:.1f} MiB"
    sure = advice["confidence"]
    if not sure:
        return ["no verdict", *[""] * 7]
    change = {"policy": advice["policy"], "size": "more room", "nothing": "nothing"}[
        advice["change"]
    ]
    others = [
        f"{other['policy'] or 'lru'} in {size(other['cache_blocks'])}: {100 * other['gain']:.1f}"
        for other in advice["alternatives"]
    ]
    return [
        change,
        size(advice["cache_blocks"]) if advice["cache_blocks"] else "",
        f"{100 * advice['gain']:.1f}",
        f"{100 * advice['gain_max']:.1f}",
        " to ".join(f"{100 * end:.1f}" for end in sure["interval"] or []),
        f"{sure['gaining']} of {len(sure['gains']) - sure['warm_up']}",
        "; ".join([sure["level"], *sure["doubts"]]),
        ", ".join(others),
    ]


def shares(result: dict) -> list[float]:
    """Of the classes, in %."""
    total = max(1, sum(result["classes"].values()))
    return [100 * result["classes"][name] / total for name in CLASSES]


def table_1(reports: dict) -> str:
    rows = []
    for name, run in reports.items():
        stats = run["stats"]
        ours = [stats["references"], round(stats["footprint_bytes"] / 1e6), stats["objects"]]
        paper = [f"{number:,}" for number in PAPER.get(name, ())] or [""] * 4
        rows.append([name, *(f"{number:,}" for number in ours), stats["sites"], *paper])
    heads = ["", "references", "data, MB", "files", "call sites"]
    return table([*heads, "in the paper: references", "MB", "files", "PCs"], rows)


def figures_1_and_2(reports: dict) -> str:
    rows = []
    if run := reports.get("gcc"):
        headers = [row for row in run["stats"]["by_object"] if row["name"].endswith(".h")]
        references = sum(row["references"] for row in headers)
        again = references - sum(row["blocks"] for row in headers)
        all_of_it, busiest = run["stats"]["references"], run["stats"]["by_site"][0]["share"]
        rows += [
            ["gcc: references to headers", percent(references / all_of_it), "67 %"],
            ["of these, again", percent(again / max(1, references)), "99 %"],
            ["references by the busiest call site", percent(busiest), "67 %"],
        ]
    if run := reports.get("tpc-h"):
        of = sorted((row["share"] for row in run["stats"]["by_object"]), reverse=True)
        rows += [
            ["tpc-h: references to the three busiest files", percent(sum(of[:3])), "88 %"],
            ["to one that several call sites loop over", percent(of[1]), "19 %"],
        ]
    return table(["", "ours", "the paper"], rows)


def figures_7_and_8(reports: dict) -> str:
    of = [(kind, share) for kind in ("objects", "sites") for share in (0.5, 0.9, 0.99)]
    return table(
        ["", "files: 50 %", "90 %", "99 %", "call sites: 50 %", "90 %", "99 %"],
        [
            [name, *(needed(run["distributions"][kind], share) for kind, share in of)]
            for name, run in reports.items()
        ],
    )


def figure_10(grids: dict) -> str:
    chosen = ["ubm, paper", "pcc, paper", "pcc"]
    rows = {
        name: [part for policy in chosen for part in shares(grid[policy][0])]
        for name, grid in grids.items()
    }
    paper = [column for name, column in rows.items() if name in PAPER]
    mean = [sum(parts) / len(paper) for parts in zip(*paper)] if paper else []
    lines = [[name, *(f"{part:.1f}" for part in row)] for name, row in rows.items()]
    lines += [["mean of the paper's workloads", *(f"{part:.1f}" for part in mean)]] if paper else []
    lines.append(["the paper", 15, 46, 39, 13, 80, 7, "", "", ""])
    heads = [f"{policy}: sequential" for policy in chosen]
    return table(["", *(part for head in heads for part in (head, "looping", "other"))], lines)


def figure_11(grids: dict) -> list[str]:
    tables = []
    for name, grid in grids.items():
        sizes = [
            f"{size} ({row['cache_blocks'] * 4096 / 2**20:.1f} MiB)"
            for size, row in zip(SIZES, grid["lru"])
        ]
        rows = [
            [policy, *(f"{100 * row['hit_ratio']:.1f}" for row in found)]
            for policy, found in grid.items()
        ]
        tables.append(table([f"**{name}**", *sizes], rows))
    return tables


def lead(grid: dict, policy: str, other: str) -> list[float]:
    """By size, in points."""
    ratios = zip(grid[policy], grid[other])
    return [100 * (ours["hit_ratio"] - theirs["hit_ratio"]) for ours, theirs in ratios]


def leads(grids: dict) -> list[str]:
    """PCC minus the others, by workload and size."""
    tables = []
    for policy, other, paper in LEADS:
        by_name = {name: lead(grid, policy, other) for name, grid in grids.items()}
        rows = [
            [name, *(f"{points:+.1f}" for points in row), f"{max(row):+.1f}"]
            for name, row in by_name.items()
        ]
        most = [max(row) for name, row in by_name.items() if name in PAPER]
        if most:
            blank, mean = [""] * len(SIZES), sum(most) / len(most)
            rows.append(["**mean of the paper's workloads**", *blank, f"{mean:+.1f}"])
            if paper:
                rows.append(["the paper: mean of these maxima", *blank, paper])
        tables.append(table([f"**({policy}) - ({other})**", *SIZES, "most"], rows))
    return tables


def readings(lab: Lab, traces: dict) -> str:
    """The greatest lead of PCC over UBM with each reading of the paper, and its cache size."""
    rows = []
    traces = {name: trace for name, trace in traces.items() if name in PAPER}
    for reading, parameters in READINGS.items():
        most = []
        for trace in traces.values():
            specs = [f"ubm{{{parameters}}}", f"pcc{{{parameters}}}"]
            points = lead(dict(zip(specs, lab.simulated(trace, specs, SIZES))), *specs[::-1])
            most.append((max(points), SIZES[points.index(max(points))]))
        mean = sum(points for points, _ in most) / max(1, len(most))
        rows.append([reading, *(f"{points:+.1f} at {at}" for points, at in most), f"{mean:+.1f}"])
    return table(["", *traces, "mean"], rows)


def switches(lab: Lab, data, grids: dict) -> str:
    """The workloads with one thing changed."""
    rows, chosen = [], ["ubm, paper", "pcc, paper"]
    for name, (change, command) in data.switched().items():
        trace = data.record(lab.hither, lab.traces, name, command)
        specs = [POLICIES[policy] for policy in chosen]
        grid = dict(zip(chosen, lab.simulated(trace, specs, SIZES)))
        whole = name.split(", ")[0]
        for label, found in ((whole, grids[whole]), (change, grid)):
            if label != whole or not rows or whole not in [row[0] for row in rows]:
                points = lead(found, "pcc, paper", "ubm, paper")
                classes = [part for policy in chosen for part in shares(found[policy][0])[1:]]
                rows.append(
                    [label, *(f"{part:.1f}" for part in classes), f"{max(points):+.1f}"]
                    + [f"{points[SIZES.index('25%')]:+.1f}", f"{min(points):+.1f}"]
                )
    heads = ["", "ubm: looping, %", "other", "pcc: looping, %", "other"]
    return table([*heads, "lead of pcc, most", "at 25 %", "least"], rows)


def repeated(lab: Lab, data, commands: dict) -> str:
    """UBM's share of other references and PCC's greatest lead over several recordings."""
    rows = []
    switched = {name: command for name, (_, command) in data.switched().items()}
    named = {
        "tpc-h": commands.get("tpc-h"),
        "tpc-h, reads 0.1 ms longer": switched.get("tpc-h, disk"),
        "multi3": commands.get("multi3"),
    }
    for name, command in named.items():
        if not command:
            continue
        others, most = [], []
        for turn in range(2 if data.quick else RECORDINGS):
            trace = data.record(lab.hither, lab.traces, f"{name} {turn}", command)
            specs = [POLICIES["ubm, paper"], POLICIES["pcc, paper"]]
            ubm, pcc = lab.simulated(trace, specs, SIZES)
            others.append(shares(ubm[0])[2])
            most.append(max(lead({"pcc": pcc, "ubm": ubm}, "pcc", "ubm")))
        for found in (others, most):
            found.sort()
        span = lambda found, form: " to ".join(form.format(end) for end in (found[0], found[-1]))
        rows.append(
            [name, span(others, "{:.1f}"), span(most, "{:+.1f}"), f"{most[len(most) // 2]:+.1f}"]
        )
    return table(["", "ubm: other, %", "greatest lead of pcc", "its median"], rows)


def draw(folder: Path, reports: dict, grids: dict) -> None:
    """The charts."""
    quarter = SIZES.index("25%")
    plot.bars(
        folder / "hit_ratios.svg",
        "Hit ratio in a cache of a quarter of the data",
        "%",
        {
            name: [100 * rows[quarter]["hit_ratio"] for rows in grid.values()]
            for name, grid in grids.items()
        },
        list(POLICIES),
    )
    for of, noun in (("objects", "files"), ("sites", "call sites")):
        sums = {name: run["distributions"][of] for name, run in reports.items()}
        plot.lines(
            folder / f"{noun.replace(' ', '_')}.svg",
            f"Share of the references by number of {noun}",
            "%",
            f"{noun}, the most referenced first",
            {
                name: [
                    (row, 100 * total / found["references"][-1])
                    for row, total in zip(found["rows"], found["references"])
                ]
                for name, found in sums.items()
            },
            log=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for sources, data and traces"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        help="a Linux source tree that may be built in, instead of unpacking Debian's",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="folder to write the tables and charts to; else they are printed",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="size of the data; 1 is about the paper's (gcc and epochs are not scaled)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="everything once, small, installing nothing"
    )
    arguments = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    begun = time.monotonic()
    if not arguments.quick:
        workloads.install()
    lab = Lab(arguments.hither, arguments.work.resolve())
    scale = min(arguments.scale, 0.02) if arguments.quick else arguments.scale
    data = workloads.Workloads(lab.work, arguments.tree, scale, arguments.quick)
    commands = data.commands()
    if left_out := [name for name in PAPER if name not in commands]:
        print(f"left out, as their programs are missing: {', '.join(left_out)}", file=sys.stderr)
    traces, reports, grids, sampled, thresholds = {}, {}, {}, {}, {}
    for name, command in commands.items():
        trace = data.record(lab.hither, lab.traces, name, command)
        run = lab.json("report", trace, "--points", 8)["runs"][0]
        assert run["stats"]["references"] > 0, f"{name} read nothing"
        traces[name], reports[name] = trace, run
        grids[name] = dict(zip(POLICIES, lab.simulated(trace, list(POLICIES.values()), SIZES)))
        ratios = lambda parameter, values: [
            rows[0]["hit_ratio"]
            for rows in lab.simulated(
                trace,
                [with_parameter(POLICIES["pcc, paper"], parameter, value) for value in values],
                [paper_share(name)],
            )
        ]
        sampled[name] = ratios("sample", SAMPLES)
        thresholds[name] = ratios("threshold", THRESHOLDS)
        print(
            f"{name}: {run['stats']['references']:,} references, {time.monotonic() - begun:.0f} s",
            file=sys.stderr,
        )
    rows = lambda found: [
        [f"{name} ({paper_share(name)})", *map(percent, row)] for name, row in found.items()
    ]
    advice = ["", "change", "cache", "gain, points", "the most that there is", "95 % interval"]
    advice += ["stretches with a gain", "how sure", "else"]
    parts = [
        "### Table 1: the workloads\n",
        table_1(reports),
        "### Figures 1 and 2: who reads what\n",
        figures_1_and_2(reports),
        "### Figures 7 and 8: how many files and call sites make 50, 90, 99 % of the references\n",
        figures_7_and_8(reports),
        "### Figure 9: hit ratio of PCC in the paper's cache, by sampling period\n",
        table(["", *(f"T = {sample}" for sample in SAMPLES)], rows(sampled)),
        "### Section 5.3.1: by threshold\n",
        table(["", *map(str, THRESHOLDS)], rows(thresholds)),
        "### Figure 10: classes of references, in %\n",
        figure_10(grids),
        "### Figure 11: PCC's lead by cache size, in points of hit ratio\n",
        *leads(grids),
        "### The same by what the paper leaves open: the greatest lead, and its cache size\n",
        readings(lab, traces),
        "### One thing changed\n",
        switches(lab, data, grids),
        f"### From recording to recording ({RECORDINGS} each)\n",
        repeated(lab, data, commands),
        "### Figure 11: hit ratios by cache size, in %\n",
        *figure_11(grids),
        "### What `hither advise` says of them\n",
        table(advice, [[name, *advised(run["advice"])] for name, run in reports.items()]),
    ]
    text = "\n".join(parts)
    if not arguments.output:
        print(text)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    trace = next(iter(reports.values()))["trace"]
    about = (
        f"hither {trace['hither']}, Linux {os.uname().release}, {os.cpu_count()} CPUs; "
        f"`experiments/pcc/pcc.py` wrote this. What the figures mean: "
        f"[discussion.md](discussion.md). Paper modes: "
        + "; ".join(f"{name}: `{spec}`" for name, spec in POLICIES.items() if "paper" in name)
        + "."
    )
    (arguments.output / "pcc.md").write_text(f"{textwrap.fill(about, 100)}\n\n{text}")
    draw(arguments.output, reports, grids)


if __name__ == "__main__":
    main()
