#!/usr/bin/env python3
"""Does `hither run` read as little from storage as `hither advise` promises?

Each program runs in a memory cgroup that does not hold its data. There it is recorded once, and
`hither advise` gives its verdict: what `hither run` would read with the advised policy, and the
kernel alone, and how sure that is. Then the program runs without hither and under `hither run
--plan` in turn, with none of its data cached, and the kernel counts what the whole tree reads from
the disk. Where the verdict is to change nothing, it runs without hither alone.

The first seven programs are those that the forecast was built with. The others
(promise_strangers.py) were named by nobody before it was done.

With --ordinary the programs, the recorder and the agent run as a user without any rights; root
makes the cgroup around them.

Needs root. Debian packages are installed where missing; the Python that runs this needs the
packages duckdb, h5py and numpy. Prints Markdown; writes all runs as JSON to --results.

    python3 promise.py --hither target/release/hither --work /var/tmp/promise --rounds 3
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
import promise_strangers
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
    **promise_strangers.STRANGERS,
}

# As a user that has nothing, not even groups.
ORDINARY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]


class Promise:
    """One invocation."""

    def __init__(self, arguments: argparse.Namespace, kit: Kit, hither: Path) -> None:
        self.rounds, self.kit, self.hither = arguments.rounds, kit, hither
        self.plan = kit.work / "plan.toml"
        self.user = ORDINARY if arguments.ordinary else []
        self.traces = kit.work / "traces"
        self.traces.mkdir(exist_ok=True)
        self.traces.chmod(0o777)

    def said(self, *words: object) -> dict:
        asked = [str(word) for word in (self.hither, "-q", *words)]
        return json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)

    def run(self, workload: Workload, before: list[str]) -> dict:
        """In its cgroup. hither's own file is cached, in another cgroup: its reading is no part
        of a promise."""
        self.hither.read_bytes()
        command = [*self.user, *before, "sh", "-c", workload.command]
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
        trace = self.traces / f"{name}.hither"
        shutil.rmtree(trace, ignore_errors=True)
        record = [str(self.hither), "-q", "record", "-o", str(trace), "--"]
        recorded = self.run(workload, record)
        told = self.said("advise", "--json", "--save", self.plan, trace)
        asked = [str(self.hither), "-q", "advise", str(trace)]
        verdict = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
        advice, memory = told["advice"], told["trace"]["memory"]
        found = {
            "program": name,
            "command": workload.command.replace(str(self.kit.work), "WORK"),
            "limit_mib": workload.limit_mib,
            "recorded": recorded,
            "advice": advice,
            "memory": memory,
            "plan": self.plan.read_text(),
            "verdict": verdict.splitlines(),
        }
        say("\n".join(found["verdict"]))
        steers = any(line and line[0] != "#" for line in found["plan"].splitlines())
        steer = [str(self.hither), "-q", "run", "--json", "--plan", str(self.plan), "--"]
        ways = ("plain", "steered") if steers else ("plain",)
        runs: dict[str, list[dict]] = {way: [] for way in ways}
        for number in range(self.rounds):
            for way in list(runs)[:: -1 if number % 2 else 1]:
                ran = self.run(workload, [] if way == "plain" else steer)
                runs[way].append(ran)
                say(f"{name}, round {number + 1}, {way}: {ran['read_bytes'] / MIB:.0f} MiB")
        if len({ran["output"] for way in runs.values() for ran in way}) > 1:
            sys.exit(f"{name}: the outputs differ")
        shutil.rmtree(trace)
        return found | runs


def row(found: dict) -> str:
    """A line of the table: of each way the forecast, its range, what was read, and how that is to
    the forecast; bold where neither the goal nor the range holds it."""
    expected = found["advice"]["expected"]
    mib = lambda value: f"{value / MIB:.0f}"
    cells = [found["program"], found["limit_mib"], found["advice"]["policy"] or "", sure(found)]
    for way, name in (("plain", "alone"), ("steered", "run")):
        forecast = expected and expected[name]
        read = [ran["read_bytes"] for ran in found.get(way, [])]
        middle = statistics.median(read) if read else 0
        low, high = (forecast[f"{end}_bytes"] for end in ("low", "high")) if forecast else (0, 0)
        cells.append(f"{mib(forecast['bytes'])} ({mib(low)}-{mib(high)})" if forecast else "")
        cells.append(f"{mib(middle)} ({mib(min(read))}-{mib(max(read))})" if read else "")
        if not (forecast and read):
            cells.append("")
            continue
        ratio = f"{middle / forecast['bytes']:.2f}"
        is_held = abs(middle / forecast["bytes"] - 1) <= GOAL or low <= middle <= high
        cells.append(ratio if is_held else f"**{ratio}**")
    return f"| {' | '.join(map(str, cells))} |"


def sure(found: dict) -> str:
    """The word of the verdict's line that says how sure it is."""
    words = ("Sure", "Likely", "Unsure")
    return next(
        (word.lower() for line in found["verdict"] for word in words if line.startswith(word)), ""
    )


def heading() -> str:
    columns = (
        "program | limit | advised | verdict | plain: promised | read | of promised "
        "| steered: promised | read | of promised"
    )
    return f"| {columns} |\n|---|--:|---|---|{'--:|' * 6}"


def main() -> int:
    flags = {"ordinary": "as a user without rights"}
    arguments = by_program.parse(__doc__, PROGRAMS, "rounds", flags)
    if not arguments.table:
        if not machine.cgroup_version():
            say("skipped: no memory cgroup can be made here (root, and the memory controller)")
            return 0
        machine.prepare()
    by_program.run(arguments, Promise, heading(), row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
