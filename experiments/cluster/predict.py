#!/usr/bin/env python3
"""What the simulator says of runs of run.py, beside what was measured.

    predict.py --hither PATH --results DIR --work DIR [--accesses 6000] [--blocks 800]
               [--rate 1200]

For each run in raw.jsonl of --results that was not thrown away, simulates the same lists of
accesses, taken in turn, on the same topology with the same memory and replacement, and with what a
cluster does not know at once: a directory in parts, and reports every 100 ms. Writes predicted.md
there: shares of reads in per cent, predicted / measured, and how many are within two points.

--accesses, --blocks and --rate are those of the runs. Left out are the rewriter, since the
simulator knows no versions, runs with an event, and what are no nodes of hither.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import workloads
from placement import write_strace  # noqa: E402, found by workloads

BLOCK = 16 << 10
POINTS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("hither", "results", "work"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    parser.add_argument("--accesses", type=int, default=6000, help="of a node [default: 6000]")
    parser.add_argument("--blocks", type=int, default=800, help="for each node [default: 800]")
    parser.add_argument("--rate", type=float, default=1200, help="reads a second, of all nodes "
                        "together [default: 1200]")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    with (arguments.results / "raw.jsonl").open() as file:
        rows = [row for row in map(json.loads, file) if is_of_use(row)]
    lines, near = [], 0
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        traces = Traces(arguments, pathlib.Path(work))
        for row in rows:
            found = predict(row, arguments, traces)
            pairs = {name: (100 * found[name], 100 * row["share"][name])
                     for name in ("local", "source")}
            near += all(abs(one - other) <= POINTS for one, other in pairs.values())
            cells = [f"{one:.1f} / {other:.1f}" for one, other in pairs.values()]
            lines.append([row["nodes"], row["workload"], f"{row['cache']} %", f"{row['seed']}",
                          row["policy"], row["placement"], *cells])
            print(*lines[-1], flush=True)
    head = ["nodes", "workload", "cache", "seed", "policy", "placement", "local", "source"]
    rule = ["---"] * 6 + ["--:"] * 2
    text = "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])
    verdict = f"{near} of {len(rows)} runs are within {POINTS} points in both shares.\n\n"
    (arguments.results / "predicted.md").write_text(f"{verdict}{text}\n")
    print(verdict.strip())


def is_of_use(row):
    return (not row["thrown_away"] and row["machine"] and row["workload"] != "rewriter"
            and row.get("event") in (None, "none"))


class Traces:
    """The trace of each workload, made once."""

    def __init__(self, arguments, work):
        self.arguments, self.work, self.made = arguments, work, {}

    def of(self, row, nodes):
        key = (row["nodes"], row["workload"], row["seed"])
        if key not in self.made:
            load = workloads.make(row["workload"], self.arguments.hither, self.work, nodes,
                                  self.arguments.blocks * nodes, self.arguments.accesses,
                                  row["seed"])
            trace = self.work / f"{len(self.made)}.hither"
            text = trace.with_suffix(".strace")
            with text.open("w") as file:
                write_strace(file, in_turn(load))
            call(self.arguments.hither, "import", "-q", "--format", "strace", text, "-o", trace)
            text.unlink()
            warm = self.arguments.accesses // 3
            self.made[key] = trace, load.blocks(), sum(min(len(it), warm) for it in load.lists)
        return self.made[key]


def in_turn(load):
    """All nodes' accesses, the first ones of all first; blocks are numbered through all files."""
    first, sum_ = [], 0
    for _, blocks in load.files:
        first.append(sum_)
        sum_ += blocks
    for turn in range(max(map(len, load.lists))):
        for node, accesses in enumerate(load.lists):
            if turn < len(accesses):
                file, block = accesses[turn]
                yield node, first[file] + int(block), False


def predict(row, arguments, traces):
    nodes = nodes_of(arguments.hither, row["nodes"])
    trace, blocks, warm_up = traces.of(row, nodes)
    each = max(1, round(blocks * row["cache"] / 100 / nodes))
    costs = {"disk_ns": row["latency_ms"] * 1_000_000, "split_directory": "true",
             "compute_ns": int(1e9 * nodes / arguments.rate), "report_ns": 100_000_000}
    answer = call(
        *(arguments.hither, "place", "-q", "--json", "--nodes", row["nodes"]),
        *("--placement", row["placement"], "--size", each, "--policy", row["policy"]),
        *("--bind", "threads", "--warm-up", warm_up),
        *("--costs", ",".join(f"{name}={value}" for name, value in costs.items())),
        trace,
    )
    result = json.loads(answer)["results"][0]
    return {"local": result["local"] / result["accesses"],
            "source": result["misses"] / result["accesses"]}


def nodes_of(hither, shape):
    topology = json.loads(call(hither, "topo", "--json", shape))
    return len(topology["nodes"])


def call(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
