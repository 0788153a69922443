#!/usr/bin/env python3
"""What each departure from the papers is worth to pcc, ubm and dear.

Simulates recorded traces at five cache sizes: each policy by default and as the papers have it
(`as=paper`), with one departure at a time taken back from the default, and with one at a time made
in paper mode. Which departures there are is read from the policies. Writes the hit ratios, what
each departure is worth, and the lead of PCC over UBM.

    python3 experiments/pcc/pcc.py --hither target/release/hither --work /tmp/pcc  # records
    python3 experiments/pcc/departures.py --hither target/release/hither --traces /tmp/pcc/traces \\
        --output experiments/pcc/results/departures.md
    python3 experiments/pcc/departures.py --hither target/debug/hither --quick --output quick.md

--quick generates four small traces with `hither gen` instead of reading recorded ones. Of those it
reads the PCC paper's workloads and epochs, which is not in the paper and counts in no mean.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean

SIZES = ["5%", "10%", "25%", "50%", "75%"]
POLICIES = ["pcc", "ubm", "dear"]
PAPER = ["cscope", "glimpse", "gcc", "viewperf", "tpc-h", "multi1", "multi2", "multi3"]
# Where the papers can be read in several ways: what the other readings give.
READINGS = {
    "pcc": ["counters=samples", "counters=literal", "sample=1", "sequential=discard"],
    "ubm": ["sequential=discard"],
    "dear": ["sequential=discard"],
}
EXPIRES = [0, 1, 2, 4, 8, 16]
QUICK = {
    "compile": "compile{sources=40,source_mib=1,headers=30,header_mib=1,includes=10}",
    "grep": "parallel-grep{runs=8,files=60,size_mib=1}",
    "iozone": "iozone{size_mib=1}",
    "web": "web-server{requests=8,size_mib=2}",
}


def run(hither: Path, *words) -> dict:
    command = [hither, "-q", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def written(policy: str, *settings: str) -> str:
    return f"{policy}{{{','.join(settings)}}}" if settings else policy


class Departures:
    """The parameters of a policy that differ in paper mode."""

    def __init__(self, hither: Path, trace: Path, policy: str):
        specs = ",".join([policy, written(policy, "as=paper")])
        rows = run(hither, "sim", trace, "-p", specs, "-s", SIZES[0])["results"]
        ours, papers = (row["params"] for row in rows)
        text = lambda name, value: f"{name}={value:g}" if name == "expire" else f"{name}={value}"
        self.policy = policy
        self.names = [name for name in ours if ours[name] != papers[name] and name != "as"]
        self.ours = {name: text(name, ours[name]) for name in self.names}
        self.papers = {name: text(name, papers[name]) for name in self.names}

    def specs(self) -> list[str]:
        policy, paper = self.policy, "as=paper"
        specs = [written(policy), written(policy, paper)]
        specs += [written(policy, self.papers[name]) for name in self.names]
        specs += [written(policy, paper, self.ours[name]) for name in self.names]
        specs += [written(policy, reading) for reading in READINGS[policy]]
        specs += [written(policy, paper, reading) for reading in READINGS[policy]]
        specs += [written(policy, f"expire={value}") for value in EXPIRES]
        return list(dict.fromkeys(specs))


def simulate(hither: Path, trace: Path, specs: list[str]) -> tuple[dict, dict[str, list[float]]]:
    """What the trace is, and the hit ratio in percent of each policy at each size."""
    document = run(hither, "sim", trace, "-p", ",".join(specs), "-s", ",".join(SIZES))
    rows = document["results"]
    assert len(rows) == len(specs) * len(SIZES)
    ratios = [100 * row["hit_ratio"] for row in rows]
    steps = range(0, len(ratios), len(SIZES))
    return document["trace"], {
        spec: ratios[at : at + len(SIZES)] for spec, at in zip(specs, steps)
    }


def table(heads: list[str], rows: list[list], words: int = 1) -> str:
    """In Markdown; the first columns hold words, the others numbers."""
    rule = "|" + "---|" * words + "--:|" * (len(heads) - words)
    lines = ["| " + " | ".join(heads) + " |", rule]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def signed(points: float) -> str:
    text = f"{points:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


class Results:
    def __init__(self, ratios: dict[str, dict[str, list[float]]], counted: list[str]):
        self.ratios, self.counted = ratios, counted

    def gains(self, spec: str, over: str) -> dict[tuple[str, str], float]:
        """By workload and size, the points that one policy has over another."""
        return {
            (workload, size): ours - theirs
            for workload in self.counted
            for size, ours, theirs in zip(
                SIZES, self.ratios[workload][spec], self.ratios[workload][over]
            )
        }

    def summary(self, spec: str, over: str) -> list[str]:
        """The mean of these, the worst and the best."""
        gains = self.gains(spec, over)
        named = lambda at: f"{signed(gains[at])} ({at[0]}, {at[1].replace('%', ' %')})"
        worst, best = min(gains, key=gains.get), max(gains, key=gains.get)
        return [signed(mean(gains.values())), named(worst), named(best)]

    def by_workload(self, spec: str, over: str) -> list[str]:
        """The mean over the sizes, for each workload and for all that count."""
        means = {
            workload: mean(found[spec]) - mean(found[over])
            for workload, found in self.ratios.items()
        }
        every = mean(means[workload] for workload in self.counted)
        return [*(signed(points) for points in means.values()), signed(every)]

    def mean(self, spec: str) -> float:
        return mean(mean(self.ratios[workload][spec]) for workload in self.counted)


def report(results: Results, of: dict[str, Departures]) -> str:
    workloads = list(results.ratios)
    paper = lambda policy: written(policy, "as=paper")
    summary, each = [], []
    for policy, departures in of.items():
        rows = []
        for name in departures.names:
            ours, papers = departures.ours[name], departures.papers[name]
            back, made = written(policy, papers), written(policy, "as=paper", ours)
            summary.append(
                [
                    policy,
                    f"`{ours}`",
                    f"`{papers}`",
                    *results.summary(policy, back),
                    *results.summary(made, paper(policy)),
                ]
            )
            rows.append([f"`{ours}` over `{papers}`", *results.by_workload(policy, back)])
            rows.append(["the same, in paper mode", *results.by_workload(made, paper(policy))])
        summary.append(
            [policy, "all", "`as=paper`", *results.summary(policy, paper(policy)), "", "", ""]
        )
        rows.append(["all", *results.by_workload(policy, paper(policy))])
        each += [f"**{policy}**\n", table(["", *workloads, "mean"], rows)]

    leads = []
    for label, ours, theirs in [
        ("paper mode", paper("pcc"), paper("ubm")),
        ("default", "pcc", "ubm"),
        ("pcc by default, ubm as in its paper", "pcc", paper("ubm")),
    ]:
        most = {
            workload: max(a - b for a, b in zip(found[ours], found[theirs]))
            for workload, found in results.ratios.items()
        }
        leads.append([f"{label}: mean of the sizes", *results.by_workload(ours, theirs)])
        every = mean(most[workload] for workload in results.counted)
        leads.append(
            [f"{label}: the most", *(signed(points) for points in most.values()), signed(every)]
        )

    readings = [
        [f"`{spec}`", *results.summary(spec, written(policy, *mode))]
        for policy in of
        for mode in ([], ["as=paper"])
        for spec in (written(policy, *mode, reading) for reading in READINGS[policy])
    ]
    expires = [
        [policy, *(f"{results.mean(written(policy, f'expire={e}')):.1f}" for e in EXPIRES)]
        for policy in of
    ]
    shown = ["lru", *(spec for policy in of for spec in (paper(policy), policy)), "opt"]
    ratios = [
        table(
            [f"**{workload}**", *(size.replace("%", " %") for size in SIZES)],
            [[f"`{spec}`", *(f"{ratio:.1f}" for ratio in found[spec])] for spec in shown],
        )
        for workload, found in results.ratios.items()
    ]
    return "\n".join(
        [
            "### What each departure is worth\n",
            "Points of hit ratio that the policy has with the departure over what it has without "
            "it, all else being the default, and all else being as in the paper. Mean, worst and "
            "best over the workloads and sizes.\n",
            table(
                ["policy", "departure", "the paper's", "mean", "worst", "best"]
                + ["in paper mode: mean", "worst", "best"],
                summary,
                3,
            ),
            "### The same by workload, mean of the sizes\n",
            *each,
            "### The lead of PCC over UBM, in points\n",
            "The paper's simulations: 13.8 on average over its eight workloads at the size where "
            "the lead is largest, 29.3 at most; on cscope 7.1 at most.\n",
            table(["", *workloads, "mean"], leads),
            "### Other readings of the papers\n",
            "Points over the policy without the reading.\n",
            table(["reading", "mean", "worst", "best"], readings),
            "### When a loop has ended: mean hit ratio by `expire`\n",
            table(["", *map(str, EXPIRES)], expires),
            "### Hit ratios, percent\n",
            *ratios,
        ]
    )


def generated(hither: Path, folder: Path) -> dict[str, Path]:
    traces = {name: folder / f"{name}.hither" for name in QUICK}
    for name, trace in traces.items():
        subprocess.run([hither, "-q", "gen", QUICK[name], "-o", trace], check=True)
    return traces


def recorded(folder: Path) -> dict[str, Path]:
    traces = {name: folder / f"{name}.hither" for name in [*PAPER, "epochs"]}
    for name, trace in traces.items():
        if not trace.exists():
            print(f"left out: {name}, which is not recorded ({trace})", file=sys.stderr)
    return {name: trace for name, trace in traces.items() if trace.exists()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--traces", type=Path, help="the folder of traces that pcc.py recorded")
    source.add_argument("--quick", action="store_true", help="small generated traces")
    parser.add_argument("--output", type=Path, help="the file to write; else it is printed")
    parser.add_argument(
        "--build", default="", help="which build this is, to be named in the results"
    )
    arguments = parser.parse_args()
    hither = arguments.hither.resolve()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.quick:
            traces = generated(hither, Path(folder))
        else:
            traces = recorded(arguments.traces)
        if not traces:
            parser.error(f"no traces in {arguments.traces}")
        first = next(iter(traces.values()))
        of = {policy: Departures(hither, first, policy) for policy in POLICIES}
        specs = ["lru", "opt", *(spec for departures in of.values() for spec in departures.specs())]
        ratios, about = {}, []
        for name, trace in traces.items():
            stats, ratios[name] = simulate(hither, trace, specs)
            about.append([name, f"{stats['references']:,}", f"{stats['distinct_blocks']:,}"])
            print(f"{name}: {stats['references']:,} references", flush=True)
    counted = [name for name in traces if arguments.quick or name in PAPER] or list(traces)
    build = f" {arguments.build}" if arguments.build else ""
    source = "`hither gen`" if arguments.quick else "`experiments/pcc/pcc.py`"
    head = [
        f"hither {stats['hither']}{build}, Linux {os.uname().release}; "
        f"`experiments/pcc/departures.py` wrote this, of traces by {source}.\n",
        table(["workload", "references", "blocks of 4 KiB"], about),
    ]
    out = sorted(set(traces) - set(counted))
    if out:
        head.append(f"Not in the paper, and in no mean: {', '.join(out)}.\n")
    text = "\n".join([*head, report(Results(ratios, counted), of)])
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
