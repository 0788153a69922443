#!/usr/bin/env python3
"""Does `hither run` read as little from storage as `hither advise` promises?

Each program runs in a memory cgroup that does not hold its data. There it is recorded once, and
`hither advise` says what `hither run` would read with the advised policy, and the kernel alone.
Then the program runs without hither and under `hither run --plan` in turn, with none of its data
cached, and the kernel counts what the whole tree reads from the disk.

Three more columns show where a promise and the truth part: the budget that the promise is for and
the one that the run had, and what the policy missed in the run by its own count.

Needs root. Debian packages are installed where missing; the Python that runs this needs the
packages duckdb and numpy. Prints Markdown; writes all runs as JSON to --results.

    python3 promise.py --hither target/release/hither --work /tmp/promise --rounds 5
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "files"), str(HERE.parent / "end_to_end")]

import by_program
import machine
import page_cache
import strangers_programs
import workloads
from machine import MIB, Run, measure, say
from workloads import Kit, Workload

# A promise is kept if what was read is within this share of it.
GOAL = 0.1


def sqlite(kit: Kit) -> Workload:
    """Five scans of a table."""
    found = page_cache.sqlite(kit.work)
    return Workload(found.command.replace("> /dev/null", "| cksum"), found.files, found.limit_mib)


def rocksdb(kit: Kit) -> Workload:
    """Random reads of a database, and scans of it."""
    page_cache.install({"db_bench": "rocksdb-tools"})
    keys = kit.mib(2_000_000)
    always = f"--num={keys} --seed=1 --compression_type=none --value_size=200"

    def make(path: Path) -> None:
        what = "--benchmarks=fillrandom,compact"
        strangers_programs.quiet("db_bench", f"--db={path}", what, *always.split())

    data = kit.made("rocksdb", make)
    reads = f"--use_existing_db=1 --readonly=1 --reads={keys} --cache_size=8388608"
    scans = ",".join(["readseq"] * 5)
    command = f"db_bench --db={data} --benchmarks={scans} {always} {reads} 2>&1 | grep -c readseq"
    size_mib = sum(path.stat().st_size for path in data.iterdir()) // MIB
    return Workload(command, [data], size_mib // 2 + 32)


def duckdb(kit: Kit) -> Workload:
    """Queries of a table of CSV."""
    import duckdb as module

    def make(path: Path) -> None:
        rows = kit.mib(448) * MIB // 39
        words = f"select i, i % 7 as g, md5(i::varchar) as word from range({rows}) r(i)"
        module.execute(f"copy ({words}) to '{path}' (format csv, header)")

    table = kit.made("table.csv", make)
    script = (
        "import duckdb; database = duckdb.connect(); database.execute('set threads = 2'); "
        "database.execute('set enable_progress_bar = false'); "
        "database.execute('set memory_limit = \\\"128MiB\\\"'); "
        f'query = \'select g, count(*), sum(length(word)) from read_csv(\\"{table}\\") '
        "where i > ? group by g order by g'; "
        "[print(database.execute(query, [n]).fetchall()) for n in range(5)]"
    )
    return Workload(f'{sys.executable} -c "{script}"', [table], 128 + kit.mib(256))


PROGRAMS: dict[str, Callable[[Kit], Workload]] = {
    "duckdb": duckdb,
    "rocksdb": rocksdb,
    "sqlite3": sqlite,
    "ripgrep": workloads.ripgrep,
    "zstd": workloads.zstd,
    "rsync": workloads.rsync,
    "numpy": workloads.numpy,
}


class Promise:
    """One invocation."""

    def __init__(self, arguments: argparse.Namespace, kit: Kit, hither: Path) -> None:
        self.rounds, self.kit, self.hither = arguments.rounds, kit, hither
        self.trace, self.plan = kit.work / "trace.hither", kit.work / "plan.toml"

    def said(self, *words: object) -> dict:
        asked = [str(word) for word in (self.hither, "-q", *words)]
        return json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)

    def run(self, workload: Workload, before: list[str]) -> dict:
        """In its cgroup. hither's own file is cached, in another cgroup: its reading is no part
        of a promise."""
        self.hither.read_bytes()
        command = [*before, "sh", "-c", workload.command]
        found = measure(Run(command, workload.limit_mib, workload.files))
        errors = found.pop("errors")
        if found["status"] != 0:
            sys.exit(f"{command}: {errors[-2000:]}")
        found["hither"] = next(
            (json.loads(line) for line in errors.splitlines() if line.startswith("{")), None
        )
        return found

    def measure(self, name: str) -> dict:
        workload = PROGRAMS[name](self.kit)
        record = [str(self.hither), "-q", "record", "--seen-by=library", "--force"]
        record += ["-o", str(self.trace), "--"]
        recorded = self.run(workload, record)
        told = self.said("advise", "--json", "--save", self.plan, self.trace)
        advice, memory = told["advice"], told["trace"]["memory"]
        found = {
            "program": name,
            "command": workload.command.replace(str(self.kit.work), "WORK"),
            "limit_mib": workload.limit_mib,
            "recorded": recorded,
            "advice": advice,
            "memory": memory,
            "plan": self.plan.read_text(),
        }
        if not advice["expected"]:
            return found
        steer = [str(self.hither), "-q", "run", "--json", "--plan", str(self.plan), "--"]
        runs: dict[str, list[dict]] = {"plain": [], "steered": []}
        for number in range(self.rounds):
            for way in list(runs)[:: -1 if number % 2 else 1]:
                ran = self.run(workload, [] if way == "plain" else steer)
                runs[way].append(ran)
                say(f"{name}, round {number + 1}, {way}: {ran['read_bytes'] / MIB:.0f} MiB")
        if len({ran["output"] for way in runs.values() for ran in way}) > 1:
            sys.exit(f"{name}: the outputs differ")
        shutil.rmtree(self.trace)
        return found | runs


def row(found: dict) -> str:
    name, limit = found["program"], found["limit_mib"]
    expected = found["advice"]["expected"]
    if not expected:
        return f"| {name} | {limit} | no policy: {found['advice']['change']} |{' |' * 11}"
    mib = lambda value: f"{value / MIB:.0f}"
    plain, steered = ([ran["read_bytes"] for ran in found[way]] for way in ("plain", "steered"))
    middle_plain, middle = statistics.median(plain), statistics.median(steered)
    in_run = lambda key: statistics.median(ran["hither"][key] for ran in found["steered"])

    def of(value: float, promised: float) -> str:
        ratio = f"{value / promised:.2f}"
        return ratio if abs(value / promised - 1) <= GOAL else f"**{ratio}**"

    cells = [
        name,
        limit,
        found["advice"]["policy"],
        mib(expected["alone_bytes"]),
        f"{mib(middle_plain)} ({mib(min(plain))}-{mib(max(plain))})",
        of(middle_plain, expected["alone_bytes"]),
        mib(expected["read_bytes"]),
        f"{mib(middle)} ({mib(min(steered))}-{mib(max(steered))})",
        of(middle, expected["read_bytes"]),
        f"{middle / middle_plain:.2f}",
        mib(expected["budget_bytes"]),
        mib(in_run("budget_bytes")),
        mib(in_run("missed_bytes")),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def heading() -> str:
    columns = (
        "program | limit | advised | plain promised | plain read | of promised | promised "
        "| steered read | of promised | of plain | budget promised | budget | missed in the run"
    )
    return f"| {columns} |\n|---|--:|---|{'--:|' * 10}"


def main() -> int:
    arguments = by_program.parse(__doc__, PROGRAMS, "rounds")
    if not arguments.table:
        if not machine.cgroup_version():
            say("skipped: no memory cgroup can be made here (root, and the memory controller)")
            return 0
        machine.prepare()
    by_program.run(arguments, Promise, heading(), row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
