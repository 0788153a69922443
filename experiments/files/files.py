#!/usr/bin/env python3
"""What `hither run --page-cache` is worth to programs whose memory is short, beside what a user
could do instead.

Runs each workload (workloads.py; --list shows them) in a new memory cgroup, mostly of half its
data, with none of its data cached, in these ways:

- plain: the kernel's LRU lists;
- mglru: the multi-generational LRU, where the kernel has it;
- damos-lru: DAMON schemes that prefer hot pages and give up cold ones first, as
  CONFIG_DAMON_LRU_SORT does; damos-pageout: a DAMON scheme that gives up pages that were not used
  for 2 s. Both on the pages of the cgroup only. Not where somebody else uses DAMON;
- hither: with `hither run --page-cache`. --policy adds ways with other policies, --hither2 one
  with another build.

Neither is hither's own file cached when a run starts (--warm-binary), so that reading it counts.

All ways take turns within a pair, and each pair turns the order around. Counted are, for the whole
tree of processes with the agent: bytes from the disk, refaults, wall time, CPU time. Ratios are
within a pair; the table has their medians. `opt` is the least that any policy would read with the
budget that hither had, and with the whole limit, by `hither record` and `hither sim`. The outputs
of all runs of a workload must be equal.

Needs root, and the programs: a workload whose program is missing is skipped with a message. The
Debian packages are git, mariadb-server, postgresql, ripgrep, rsync and zstd; from PyPI duckdb and
numpy, for the Python that runs this. Data take some 5 GB. Prints Markdown on stdout; raw runs are
added to --results.

    python3 experiments/files/files.py --hither target/release/hither --work /tmp/files --pairs 5 \\
        --results /tmp/files-results
    python3 experiments/files/files.py --table /tmp/files-results/*.jsonl
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import machine
from machine import MIB, Run, measure, say
from workloads import WORKLOADS, Kit, Missing, Workload, role

HERE = Path(__file__).resolve().parent


class Files:
    """One invocation: its ways, and where its runs are written."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.kit = Kit(arguments.work.resolve(), arguments.quick)
        self.kit.work.mkdir(parents=True, exist_ok=True)
        # Servers run as users of their own.
        self.kit.work.chmod(0o755)
        self.shared = self.kit.work / "shared"
        self.shared.mkdir(exist_ok=True)
        self.shared.chmod(0o1777)
        self.builds = {}
        for name in ("hither", "hither2"):
            if given := getattr(arguments, name):
                self.builds[name] = Path(shutil.copy(given.resolve(), self.kit.work / name))
        self.ways = self.choose_ways()
        self.header = {
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine.machine(self.kit.work),
            "commit": said("git", "-C", str(HERE), "rev-parse", "HEAD"),
            "builds": {name: said(str(path), "--version") for name, path in self.builds.items()},
            "argv": sys.argv[1:],
        }
        self.failed = False

    def choose_ways(self) -> dict[str, list[str]]:
        """What comes before the command, by way."""
        ways: dict[str, list[str]] = {"plain": []}
        if machine.read(machine.LRU_GEN):
            ways["mglru"] = []
        without = machine.without_damon()
        if without:
            say(f"no DAMON schemes: {without}")
        else:
            ways |= {name: [] for name in machine.SCHEMES}
        for name, path in self.builds.items():
            run = [str(path), "-q", "run", "--json"]
            ways[name] = [*run, "--page-cache"]
            for policy in self.arguments.policy:
                ways[f"{name} {policy}"] = [*run, f"--page-cache={policy}"]
        if self.arguments.way:
            chosen = ["plain", *self.arguments.way]
            if unknown := set(chosen) - set(ways):
                sys.exit(f"no such way: {', '.join(sorted(unknown))}; there are {', '.join(ways)}")
            ways = {name: way for name, way in ways.items() if name in chosen}
        return ways

    def run(self, name: str, workload: Workload, way: str) -> dict:
        before = self.ways[way]
        if before and self.arguments.log:
            log = self.shared / f"{name}.{way.replace(' ', '-')}.log"
            before = [*before, "--log", str(log)]
        command = [*before, *(["--"] if before else []), "sh", "-c", workload.command]
        if workload.user:
            command = ["runuser", "-u", workload.user, "--", *command]
        binary = [Path(word) for word in before[:1]]
        if self.arguments.warm_binary:
            # Read here, the kernel charges it to this script's cgroup.
            [path.read_bytes() for path in binary]
            binary = []
        files = [*workload.files, *binary]
        found = measure(Run(command, workload.limit_mib, files, scheme=way))
        errors = found.pop("errors")
        if found["status"] != 0:
            found["errors"] = errors[-2000:]
            self.failed = True
            say(f"{name}, {way}: exit status {found['status']}: {errors[-2000:]}")
        for line in errors.splitlines():
            if line.startswith("{"):
                summary = json.loads(line)
                found["hither"] = {
                    key: value for key, value in summary.items() if not key.startswith("busiest")
                }
        return found

    def optimum(self, name: str, workload: Workload, budgets: list[int]) -> dict[int, dict]:
        """MiB that the best possible policy and LRU miss, by cache size."""
        hither = str(self.builds["hither"])
        trace = self.shared / f"{name}.trace"
        record = [hither, "-q", "record", "--seen-by=library", "--force", "-o", str(trace), "--"]
        ran = ["sh", "-c", workload.command]
        subprocess.run([*record, *ran], check=True, stdout=subprocess.DEVNULL)
        sizes = ",".join(f"{budget // MIB}MiB" for budget in sorted(set(budgets)))
        sim = [hither, "-q", "sim", str(trace), "--policy", "lru,opt", "--size", sizes]
        sim += ["--block", "16KiB", "--json"]
        text = subprocess.run(sim, check=True, capture_output=True, text=True).stdout
        shutil.rmtree(trace, ignore_errors=True)
        found: dict[int, dict] = {}
        for row in json.loads(text)["results"]:
            size = row["cache_blocks"] * 16 // 1024
            found.setdefault(size, {})[row["policy"]] = round(row["misses"] * 16 / 1024)
        return found

    def workload(self, name: str) -> list[dict]:
        """All runs of a workload."""
        workload = WORKLOADS[name](self.kit)
        runs = []
        for pair in range(self.arguments.pairs):
            order = list(self.ways)[:: -1 if pair % 2 else 1]
            for way in order:
                found = self.run(name, workload, way)
                say(
                    f"{name}, pair {pair + 1}, {way}: {found['read_bytes'] / MIB:.0f} MiB, "
                    f"{found['wall_s']:.2f} s, {found['cpu_s']:.2f} s of CPU"
                )
                what = {
                    "workload": name,
                    "set": role(name),
                    "quick": self.arguments.quick,
                    "way": way,
                    "pair": pair,
                    "limit_mib": workload.limit_mib,
                    "version": workload.version,
                    "command": workload.command.replace(str(self.kit.work), "WORK"),
                }
                runs.append(what | found)
        if len({run["output"] for run in runs}) > 1:
            self.failed = True
            say(f"{name}: THE OUTPUTS DIFFER: { {run['way']: run['output'] for run in runs} }")
        budgets = [run["hither"]["budget_bytes"] for run in runs if run.get("hither")]
        if budgets and workload.optimum and not self.arguments.no_optimum:
            sizes = [int(statistics.median(budgets)), workload.limit_mib * MIB]
            best = self.optimum(name, workload, sizes)
            for run in runs:
                run["simulated_mib"] = best
        if self.arguments.results:
            self.arguments.results.mkdir(parents=True, exist_ok=True)
            with (self.arguments.results / f"{name}.jsonl").open("a") as file:
                file.writelines(json.dumps(run | self.header) + "\n" for run in runs)
        return runs


def said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def heading() -> str:
    columns = (
        "workload, set | limit, MiB | way | pairs | read, MiB | of plain | of opt | refaults | "
        "wall, s | of plain | CPU, s | of plain | agent, s | budget, MiB"
    ).split(" | ")
    return f"| {' | '.join(columns)} |\n|---|--:|---|{'--:|' * (len(columns) - 3)}"


def rows(runs: list[dict]) -> str:
    """A workload's part of the table."""
    ways = dict.fromkeys(run["way"] for run in runs)
    # A pair is one of one invocation.
    key = lambda run: (run.get("when"), run["pair"])
    plain = {key(run): run for run in runs if run["way"] == "plain"}
    lines = []
    for way in ways:
        of_way = [run for run in runs if run["way"] == way]

        def median(values: list[float]) -> float:
            return statistics.median(values) if values else float("nan")

        def middle(name: str) -> float:
            return median([run[name] for run in of_way])

        def ratio(name: str) -> str:
            pairs = [(run[name], plain[key(run)][name]) for run in of_way if key(run) in plain]
            return f"{median([run / base for run, base in pairs if base]):.3f}"

        read_mib, first = middle("read_bytes") / MIB, of_way[0]
        hither = [run["hither"] for run in of_way if run.get("hither")]
        budget = median([found["budget_bytes"] / MIB for found in hither])
        agent = median([found["agent_ns"] / 1e9 for found in hither])
        best = {int(size): row["opt"] for size, row in first.get("simulated_mib", {}).items()}
        # The smaller size is hither's budget; the larger the limit, which is the kernel's.
        of_opt = best and best[min(best) if hither else max(best)]
        cells = [
            f"{first['workload']}, {first['set']}",
            first["limit_mib"],
            way,
            len(of_way),
            f"{read_mib:.0f}",
            ratio("read_bytes"),
            f"{read_mib / of_opt:.3f}" if of_opt else "",
            f"{middle('refaults'):.0f}",
            f"{middle('wall_s'):.2f}",
            ratio("wall_s"),
            f"{middle('cpu_s'):.2f}",
            ratio("cpu_s"),
            f"{agent:.2f}" if hither else "",
            f"{budget:.0f}" if hither else "",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    for size, row in first.get("simulated_mib", {}).items():
        what = f"simulated with {size} MiB: opt {row['opt']} MiB, lru {row['lru']} MiB"
        lines.append(f"| {first['workload']} | | {what} |{' |' * 11}")
    return "\n".join(lines)


def table(files: list[Path]) -> None:
    """Prints the table of runs that were written before."""
    runs: dict[str, list[dict]] = {}
    for file in files:
        for line in file.read_text().splitlines():
            run = json.loads(line)
            runs.setdefault(run["workload"], []).append(run)
    print(heading())
    for name in WORKLOADS:
        if name in runs:
            print(rows(runs[name]))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, help="the command to measure")
    parser.add_argument("--hither2", type=Path, help="another build, to compare with")
    parser.add_argument("--work", type=Path, help="where data are made and kept")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--set", choices=["tune", "judge", "all"], default="tune")
    parser.add_argument("--only", action="append", metavar="NAME", help="only these workloads")
    parser.add_argument("--way", action="append", metavar="WAY", help="only plain and these ways")
    parser.add_argument("--policy", action="append", default=[], help="also with this policy")
    parser.add_argument("--no-optimum", action="store_true", help="do not simulate the optimum")
    parser.add_argument(
        "--warm-binary", action="store_true", help="hither's own file is cached when a run starts"
    )
    parser.add_argument("--log", action="store_true", help="keep hither's logs in WORK/shared")
    parser.add_argument("--results", type=Path, help="the folder that raw runs are added to")
    parser.add_argument("--quick", action="store_true", help="data and limits of a quarter, once")
    parser.add_argument("--list", action="store_true", help="list the workloads")
    parser.add_argument("--table", type=Path, nargs="+", help="print the table of such raw runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.only or []) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}; see --list")
    if not (arguments.list or arguments.table or arguments.work):
        parser.error("--work is needed")
    if arguments.quick:
        arguments.pairs = 1
    return arguments


def main() -> int:
    arguments = options()
    if arguments.list:
        print("\n".join(f"{name:12} {role(name)}" for name in WORKLOADS))
        return 0
    if arguments.table:
        table(arguments.table)
        return 0
    if not machine.cgroup_version():
        # CI runs this where it can.
        say("skipped: no memory cgroup can be made here (root, and the memory controller)")
        return 0
    machine.prepare()
    files = Files(arguments)
    chosen = arguments.only or [
        name for name in WORKLOADS if arguments.set in ("all", role(name))
    ]
    print(heading())
    for name in chosen:
        try:
            print(rows(files.workload(name)), flush=True)
        except Missing as missing:
            say(f"{name}: skipped: {missing}")
    return 1 if files.failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
