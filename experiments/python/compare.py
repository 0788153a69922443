#!/usr/bin/env python3
"""The package `hither` against the package `libcachesim`: five tasks that a user of either has.

1. read: how many references and distinct blocks a trace has;
   numbers: all blocks of a trace as a numpy array;
2. one: one policy at one size;
3. curve: the miss ratio over sizes;
4. own: a policy that is written in Python (LRU);
5. sweep: policies x sizes x traces, with all processors.

Each task is a function for each package (`TASKS`), written as the package's own documents show it,
with libcachesim's own defaults. Each run is a process of its own: wall time from its start to its
end, the most memory that it had (ru_maxrss; of a process that starts others, that of the largest),
and the lines of the function without blank lines, comments and its documentation. The packages take
turns, and each pair turns the order around. All is medians over the pairs; ratios are within pairs.

Both read the same files, in the format oracle-general. Objects have one size (`ignore_obj_size`
there, one block here). Where a file has another format, it is written anew first.

Needs a Python with hither, libcachesim==0.3.5 and numpy; runs under it. `--traces` is a folder with
the traces of docs/results/simulator.md; without it, only a generated one is used. Prints Markdown;
raw runs are added to --output.

    python experiments/python/compare.py --work /tmp/compare --traces traces --output runs.jsonl
    python experiments/python/compare.py --table runs.jsonl [--hashpower 20]
"""

import argparse
import csv
import inspect
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any

POLICIES = {"lru": "LRU", "s3-fifo": "S3FIFO", "arc": "ARC", "sieve": "Sieve"}
SHARES = [0.01, 0.05, 0.1, 0.25]
#: Sizes of a curve. hither's LRU has up to 1000 from one pass, whatever is asked for.
POINTS = 20


def import_hither() -> Any:
    import hither

    return hither.__version__


def import_libcachesim() -> Any:
    import libcachesim

    return libcachesim.__version__


def read_hither(path: str) -> Any:
    import hither

    trace = hither.open(path)
    return [trace.references, trace.blocks]


def read_libcachesim(path: str) -> Any:
    import libcachesim as lcs

    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
    return [reader.get_num_of_req(), reader.get_working_set_size()[0]]


def numbers_hither(path: str) -> Any:
    import hither
    import pyarrow

    return pyarrow.table(hither.open(path).accesses)["block"].to_numpy().size


def numbers_libcachesim(path: str) -> Any:
    import libcachesim as lcs
    import numpy

    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
    return numpy.fromiter((request.obj_id for request in reader), numpy.uint64).size


def one_hither(path: str, policy: str, size: int) -> Any:
    import hither

    trace = hither.open(path)
    return [1 - hither.simulate(trace, policy, size)[0].hit_ratio]


def one_libcachesim(path: str, policy: str, size: int, **options: Any) -> Any:
    import libcachesim as lcs

    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
    cache = getattr(lcs, policy)(size, **options)
    return [cache.process_trace(reader)[0]]


def curve_hither(path: str, policy: str, sizes: list[int]) -> Any:
    import hither

    trace = hither.open(path)
    points = hither.curve(trace, policy, points=len(sizes))
    return [[point.cache_blocks, point.miss_ratio] for point in points]


def curve_libcachesim(path: str, policy: str, sizes: list[int], **options: Any) -> Any:
    import libcachesim as lcs

    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
    points = []
    for size in sizes:
        reader.reset()
        cache = getattr(lcs, policy)(size, **options)
        points.append([size, cache.process_trace(reader)[0]])
    return points


def own_hither(path: str, size: int) -> Any:
    from collections import OrderedDict

    import hither

    class Lru(hither.Replacement):
        def __init__(self, capacity: int) -> None:
            self.order: OrderedDict[int, None] = OrderedDict()

        def hit(self, block: int) -> None:
            self.order.move_to_end(block)

        def victim(self, incoming: int) -> int:
            return self.order.popitem(last=False)[0]

        def inserted(self, block: int) -> None:
            self.order[block] = None

    trace = hither.open(path)
    return [1 - hither.simulate(trace, Lru, size)[0].hit_ratio]


def own_libcachesim(path: str, size: int, **options: Any) -> Any:
    from collections import OrderedDict

    import libcachesim as lcs

    def on_hit(order: Any, request: Any) -> None:
        order.move_to_end(request.obj_id)

    def on_miss(order: Any, request: Any) -> None:
        order[request.obj_id] = None

    def victim(order: Any, request: Any) -> Any:
        return order.popitem(last=False)[0]

    def removed(order: Any, block: int) -> None:
        order.pop(block, None)

    params = lcs.ReaderInitParam(ignore_obj_size=True)
    reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)
    cache = lcs.PluginCache(
        cache_size=size,
        cache_init_hook=lambda params: OrderedDict(),
        cache_hit_hook=on_hit,
        cache_miss_hook=on_miss,
        cache_eviction_hook=victim,
        cache_remove_hook=removed,
        # It may be left out by its documentation, and may not by 0.3.5.
        cache_free_hook=lambda order: None,
        **options,
    )
    return [cache.process_trace(reader)[0]]


def sweep_hither(paths: list[str], output: str) -> Any:
    import hither

    sizes = [f"{share:.0%}" for share in SHARES]
    hither.sweep(traces=paths, policies=POLICIES, sizes=sizes, output=output, force=True)


def sweep_libcachesim(paths: list[str], output: str, **options: Any) -> Any:
    import csv
    import os
    from concurrent.futures import ThreadPoolExecutor

    import libcachesim as lcs

    def opened(path: str) -> Any:
        params = lcs.ReaderInitParam(ignore_obj_size=True)
        return lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE, params)

    def row(cell: tuple[str, str, int]) -> list[Any]:
        path, policy, size = cell
        cache = getattr(lcs, policy)(size, **options)
        return [*cell, cache.process_trace(opened(path))[0]]

    cells = []
    for path in paths:
        distinct = opened(path).get_working_set_size()[0]
        for policy in POLICIES.values():
            cells += [(path, policy, round(share * distinct)) for share in SHARES]
    with open(output, "w", newline="") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = csv.writer(file)
        rows.writerow(["trace", "policy", "cache_blocks", "miss_ratio"])
        rows.writerows(pool.map(row, cells))


#: Tasks whose caches have a hash table, with libcachesim of a size that its user gives.
HAVE_TABLES = ("one", "curve", "own", "sweep")

#: The functions of a task, by package.
TASKS = {
    name: {package: globals()[f"{name}_{package}"] for package in ("hither", "libcachesim")}
    for name in ("import", "read", "numbers", "one", "curve", "own", "sweep")
}


def lines(task: str, package: str) -> int:
    """Lines of a task's function that are code."""
    text = inspect.getsource(TASKS[task][package]).splitlines()
    # Options are for --hashpower alone.
    return sum(line.strip() not in ("", "**options,") and "# " not in line for line in text)


def child(
    task: str, package: str, arguments: list[Any], options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Runs a task in a process of its own, and says what it took."""
    job = json.dumps([task, package, arguments, options or {}])
    started = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, __file__, "--child", job]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            sys.exit(f"{task} by {package} failed: {errors.read().decode()[-2000:]}")
    return {
        "wall_s": round(wall_s, 4),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 4),
        # A child's is at least that of its parent, which is small here: it imports no package.
        "peak_bytes": usage.ru_maxrss * 1024,
        "result": json.loads(out.splitlines()[-1]),
    }


def run_child(job: str) -> None:
    task, package, arguments, options = json.loads(job)
    # What a package prints is not the result.
    print("\n" + json.dumps(TASKS[task][package](*arguments, **options)))


def traces(arguments: argparse.Namespace) -> dict[str, str]:
    command = Path(sysconfig.get_path("scripts"), "hither")

    def made(name: str, words: list[str]) -> Path:
        """A file of hither's command, in the format that both packages read."""
        path: Path = arguments.work / f"{name}.oracleGeneral"
        if not path.exists():
            words = [str(command), *words, "--quiet", "--format", "oracle-general"]
            subprocess.run([*words, "--output", str(path)], check=True)
        return path

    spec = f"zipf{{blocks={arguments.references // 10},skew=1}}"
    found = {"zipf": made("zipf", ["gen", spec, "-n", str(arguments.references)])}
    if arguments.traces:
        found["cloud-physics"] = arguments.traces / "libcachesim/cloudPhysicsIO.oracleGeneral.bin"
        found["oltp"] = made("oltp", ["export", str(arguments.traces / "arc/OLTP.lis.zst")])
    return {name: str(path) for name, path in found.items()}


def cases(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What is measured: the arguments of each package's function."""
    found: list[dict[str, Any]] = [{"task": "import", "on": "", "hither": [], "libcachesim": []}]
    paths = traces(arguments)
    for name, path in paths.items():
        distinct = child("read", "hither", [path])["result"][1]
        tenth = round(distinct / 10)

        def add(task: str, on: str, ours: list[Any], theirs: list[Any] | None = None) -> None:
            both = {"hither": ours, "libcachesim": ours if theirs is None else theirs}
            found.append({"task": task, "on": on, **both})

        add("read", name, [path])
        add("numbers", name, [path])
        for policy in ("lru", "s3-fifo"):
            add("one", f"{name}, {policy}", [path, policy, tenth], [path, POLICIES[policy], tenth])
        for policy in ("lru", "s3-fifo"):
            # At sizes that hither has too. libcachesim's S3-FIFO crashes below 10 blocks.
            curve = child("curve", "hither", [path, policy, [0] * POINTS])["result"]
            sizes = [size for size, _ in curve if size >= 20]
            sizes = sizes[:: max(1, len(sizes) // POINTS)][:POINTS]
            ours, theirs = [path, policy, [0] * POINTS], [path, POLICIES[policy], sizes]
            add("curve", f"{name}, {policy}", ours, theirs)
        add("own", name, [path, tenth])
    outputs = [str(arguments.work / f"{package}.csv") for package in ("hither", "libcachesim")]
    both = [[list(paths.values()), output] for output in outputs]
    count = len(POLICIES) * len(SHARES) * len(paths)
    on = f"{count} caches on {len(paths)} traces"
    found.append({"task": "sweep", "on": on, "hither": both[0], "libcachesim": both[1]})
    return found


def by_cell(output: str) -> dict[tuple[str, ...], float]:
    """The miss ratios of a sweep, by trace, policy and size."""
    names = {theirs: ours for ours, theirs in POLICIES.items()}
    with open(output, newline="") as file:
        return {
            (row["trace"], names.get(row["policy"], row["policy"]), row["cache_blocks"]): float(
                row["miss_ratio"]
            )
            for row in csv.DictReader(file)
        }


def difference(case: dict[str, Any], results: dict[str, Any]) -> tuple[float, int]:
    """The largest difference of results, and how many were compared."""
    ours, theirs = results["hither"], results["libcachesim"]
    if case["task"] == "import":
        return 0.0, 0
    if case["task"] == "sweep":
        left, right = by_cell(case["hither"][1]), by_cell(case["libcachesim"][1])
        assert left.keys() == right.keys(), set(left) ^ set(right)
        return max(abs(left[cell] - right[cell]) for cell in left), len(left)
    if case["task"] == "curve":
        known = dict(map(tuple, ours))
        return max(abs(known[size] - ratio) for size, ratio in theirs), len(theirs)
    pairs = list(zip(ours, theirs)) if isinstance(ours, list) else [(ours, theirs)]
    return max(abs(left - right) for left, right in pairs), len(pairs)


def measure(case: dict[str, Any], pairs: int, hashpower: int | None) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {"hither": [], "libcachesim": []}
    results = {}
    for number in range(pairs):
        for package in sorted(runs, reverse=number % 2 == 1):
            has_table = package == "libcachesim" and case["task"] in HAVE_TABLES
            options = {"hashpower": hashpower} if hashpower and has_table else {}
            run = child(case["task"], package, case[package], options)
            results[package] = run.pop("result")
            runs[package].append(run)
    largest, compared = difference(case, results)
    return {
        "task": case["task"],
        "on": case["on"],
        "hashpower": hashpower,
        "lines": {package: lines(case["task"], package) for package in runs},
        "points": len(results["hither"]) if case["task"] == "curve" else None,
        "difference": largest,
        "compared": compared,
        "runs": runs,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios are libcachesim's figure by hither's: above 1, hither is faster or smaller."""
    head = ["task", "on", "hither s", "libcachesim s", "time", "CPU time"]
    head += ["hither MB", "libcachesim MB", "memory", "hither lines", "libcachesim lines"]
    head += ["largest difference"]
    text = ["| " + " | ".join(head) + " |", "|---|---|" + "--:|" * (len(head) - 2)]
    for row in rows:
        runs, cells = row["runs"], [row["task"], row["on"]]
        for key, unit, digits in (("wall_s", 1, 2), ("cpu_s", 1, None), ("peak_bytes", 1e6, 0)):
            values = {name: [run[key] / unit for run in its] for name, its in runs.items()}
            ratios = [a / b for a, b in zip(values["libcachesim"], values["hither"])]
            if digits is not None:
                cells += [f"{statistics.median(values[name]):.{digits}f}" for name in values]
            cells.append(f"{statistics.median(ratios):.1f}")
        cells += [str(row["lines"][name]) for name in runs]
        equal = "equal" if row["difference"] < 1e-9 else f"{row['difference']:.4f}"
        cells.append(f"{equal} ({row['compared']})" if row["compared"] else "")
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help="print the table of earlier runs")
    parser.add_argument("--work", type=Path, help="a folder for traces and outputs")
    parser.add_argument("--traces", type=Path, help="a folder with real traces")
    parser.add_argument("--references", type=int, default=5_000_000, help="of the generated trace")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", metavar="TASK,...", help="these tasks")
    parser.add_argument("--hashpower", type=int, help="of libcachesim's tables [its default: 24]")
    parser.add_argument("--output", type=Path, help="adds raw runs to this file, a line for a row")
    arguments = parser.parse_args()
    if arguments.child:
        return run_child(arguments.child)
    if arguments.table:
        rows = [json.loads(line) for line in arguments.table.read_text().splitlines()]
        print(table([row for row in rows if row["hashpower"] == arguments.hashpower]))
        return None
    if arguments.work is None:
        parser.error("--work is needed")
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows, power = [], arguments.hashpower
    for case in cases(arguments):
        if arguments.only and case["task"] not in arguments.only.split(","):
            continue
        rows.append({"python": platform.python_version(), **measure(case, arguments.pairs, power)})
        print(table(rows[-1:]).splitlines()[-1], file=sys.stderr)
        if arguments.output:
            with open(arguments.output, "a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(table(rows))
    return None


if __name__ == "__main__":
    main()
