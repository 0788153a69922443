#!/usr/bin/env python3
"""PostgreSQL and MariaDB for hours under the automatic `hither run`, beside the same servers alone.

A database must not notice that somebody steers its page cache: no error, no difference, no read
that waits longer. Files.py measures what steering saves; this looks for what it breaks. So it does
what hurts: crashes, agents that are killed, and every check of its files that a server has.

Six servers run side by side, each in a memory cgroup that does not hold its data:

- PostgreSQL `plain` and `hither`: restarted once a cycle;
- PostgreSQL `restarted` and `killed`: also restarted after each minute of load. The agent of
  `killed` gets SIGKILL in each of these minutes, and the server runs on without it;
- MariaDB `plain` and `hither`.

All servers of a database get the same transactions with the same seeds at the same time, at a low
rate, so what else the machine does meets all alike. A latency counts from when the transaction was
due. A cycle is:

1. start with nothing cached; after a crash this is the recovery. What was committed is there, and
   all tables of all ways are equal;
2. load: point reads, writes, and now and then a scan. PostgreSQL's is by pgbench. MariaDB's is by
   a client of this script, which also compares all rows that it reads;
3. pg_amcheck, pg_basebackup and pg_verifybackup; CHECK TABLE EXTENDED and mariadb-dump;
4. a stop: a clean one, an immediate one, or SIGKILL to the server while a client commits rows;
5. pg_checksums and innochecksum.

One cycle in five is without hither in all ways: its ratios show the noise of the machine.

Needs root, PostgreSQL 15 or newer with its contrib modules, and MariaDB. Takes 5 GB in --work. One
line of JSON a cycle and server goes to --results, a Markdown table to stdout. The exit status is 1
if there was an error or a difference.

    python3 experiments/files/databases.py --hither target/release/hither --work /tmp/databases \\
        --minutes 120 --results /tmp/databases.jsonl
"""

import argparse
import contextlib
import json
import os
import pwd
import random
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machine
from machine import MIB, read, say
from servers import KINDS, STOP, Mariadb, Postgres, Server, Stopped, user

# Which way is measured against which.
BESIDE = {"hither": "plain", "killed": "restarted"}
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}


class Database:
    """The servers of a database, in step."""

    def __init__(self, kind: type[Server], ways: list[str], options: argparse.Namespace) -> None:
        self.kind, self.options = kind, options
        self.servers = [kind(options, way) for way in ways]
        self.stops = ["kill", "fast", "kill", "immediate"]
        self.stops = [how for how in self.stops if how in kind.stops]
        self.crashed = False

    def make(self, stack: contextlib.ExitStack) -> None:
        template = self.options.work / f"{self.kind.name}-template"
        shutil.rmtree(template, ignore_errors=True)
        self.kind.make(template, self.servers[0].scale)
        for server in self.servers:
            shutil.rmtree(server.data, ignore_errors=True)
            subprocess.run(["cp", "-a", template, server.data], check=True)
            for folder in (server.data, server.scratch):
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            server.scratch.mkdir(exist_ok=True)
            stack.enter_context(server.group)
        shutil.rmtree(template)

    def each(self, act: Callable[[Server], None], in_turn: bool = False) -> None:
        """For all servers at once, or in turn: what takes CPU must not take both."""

        def guarded(server: Server) -> bool:
            try:
                act(server)
            except Stopped:
                return False
            except Exception as error:
                server.errors.append(f"{type(error).__name__}: {error}")
                say(f"{server.data.name}: {server.errors[-1]}")
                return False
            return True

        with ThreadPoolExecutor(1 if in_turn else len(self.servers)) as pool:
            if not all(pool.map(guarded, self.servers)):
                raise Stopped

    def compare(self, what: str, values: Callable[[Server], dict]) -> None:
        expected = values(self.servers[0])
        for server in self.servers[1:]:
            for name, value in values(server).items():
                if value != expected[name]:
                    text = f"{what}: {name}: {value}, but {expected[name]}"
                    server.differences.append(text)
                    say(f"{server.data.name}: {text}")

    def cycle(self, number: int, alone: bool, how: str) -> None:
        self.each(lambda server: server.start(alone))
        if self.crashed:
            self.each(Server.recovered)
        self.each(lambda server: server.content.update(server.look()), in_turn=True)
        self.compare("tables", lambda server: server.content)
        if self.crashed:
            # The checks of a stopped server's files want a clean stop.
            self.each(lambda server: server.stop("fast"))
            self.each(lambda server: server.check_stopped(), in_turn=True)
            self.each(lambda server: server.start(alone))

        def load(server: Server, seed: int) -> None:
            delay_s = random.Random(seed).uniform(0.3, 0.8) * self.options.load_s
            before = server.count_reads()
            with server.agent_killed(delay_s):
                latencies = server.load(self.options.load_s, seed)
            server.read_bytes += server.count_reads() - before
            for kind, values in latencies.items():
                server.latencies[kind] += values
            if server.restarts:
                server.stop("fast")
                server.start(alone)

        for part in range(self.options.loads):
            self.each(lambda server: load(server, number * 100 + part))

        def check(server: Server) -> None:
            with server.agent_killed(1):
                server.check()

        self.each(check, in_turn=True)
        self.compare("after the load", lambda server: server.content)
        # Something to recover: the backup made a checkpoint.
        self.each(lambda server: server.load(3, number * 100 + 99))
        self.crashed = how != "fast"
        self.each(lambda server: server.stop(how, committing=self.crashed))
        self.compare("exit status", lambda server: {how: server.status})
        if not self.crashed:
            self.each(lambda server: server.check_stopped(), in_turn=True)

    def run(self, deadline: float) -> list[dict]:
        """Cycles until then, at least one."""
        records, number, last_s = [], 0, 0.0
        while True:
            begun = time.monotonic()
            # The last one ends with a clean stop, so that nothing is left to recover.
            last = begun + 2 * last_s > deadline and (number > 0 or self.options.quick)
            how = "fast" if last else self.stops[number % len(self.stops)]
            alone = number % 5 == 4 or not self.options.hither
            for server in self.servers:
                server.begin_cycle()
            finished = False
            with contextlib.suppress(Stopped):
                self.cycle(number, alone, how)
                finished = True
            last_s = time.monotonic() - begun
            for server in self.servers:
                record = self.record(server, number, alone, how, finished, last_s)
                records.append(record)
                if self.options.results and not STOP.is_set():
                    with self.options.results.open("a") as file:
                        file.write(json.dumps(record) + "\n")
            if last or not finished:
                return records
            number += 1

    def record(self, server: Server, number: int, alone: bool, how: str, *rest: object) -> dict:
        finished, seconds = rest
        say(f"cycle {number}, {server.data.name}: {len(server.errors)} errors")
        return {
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "database": self.kind.name,
            "way": server.way,
            "cycle": number,
            "hither": bool(server.hither) and not alone,
            "stop": how,
            "finished": finished,
            "seconds": round(seconds),
            "latency_ms": {kind: spread(of) for kind, of in server.latencies.items()},
            "read_mib": round(server.read_bytes / MIB),
            "kills": server.kills,
            "recoveries": server.recoveries,
            "checks": dict(Counter(server.checks)),
            "errors": server.errors,
            "differences": server.differences,
            "summary": server.summary,
            "load": round(os.getloadavg()[0], 2),
            **self.options.header,
        }


def spread(latencies: list[float]) -> dict:
    """How many there are, and what share of them was at most how long."""
    values = sorted(latencies)
    if not values:
        return {"count": 0}
    at = {name: values[int(share * (len(values) - 1))] for name, share in SHARES.items()}
    return {"count": len(values), **{name: round(value, 3) for name, value in at.items()}}


def table(records: list[dict]) -> str:
    """A row for each pair of ways: one beside the other, and the same without hither."""
    titles = "pair | cycles | transactions | checks | recoveries | kills | errors | differences"
    titles += " | read from storage | p99 of reads | p99 of writes | p99 of scans"
    lines = [f"| {titles} |", f"|---|{'--:|' * titles.count('|')}"]
    for database in dict.fromkeys(record["database"] for record in records):
        of = [one for one in records if one["database"] == database]
        for way, other in BESIDE.items():
            for hither in (True, False):
                base = {one["cycle"]: one for one in of if one["way"] == other}
                ours = [one for one in of if one["way"] == way and one["hither"] == hither]
                if not ours:
                    continue

                def ratio(value: Callable[[dict], float]) -> str:
                    pairs = [(value(one), value(base[one["cycle"]])) for one in ours]
                    found = [one / two for one, two in pairs if two]
                    if not found:
                        return ""
                    middle = statistics.median(found)
                    return f"{middle:.3f} ({min(found):.2f} to {max(found):.2f})"

                p99 = lambda kind: ratio(lambda one: one["latency_ms"][kind].get("p99", 0))
                both = [*ours, *(base[one["cycle"]] for one in ours)]
                done = [one["latency_ms"][kind]["count"] for one in both for kind in KINDS]
                counts = lambda check: not re.match("sql|pgbench|client", check)
                cells = [
                    f"{database}: {way} beside {other}{'' if hither else ', both without hither'}",
                    len(ours),
                    sum(done),
                    sum(n for one in both for name, n in one["checks"].items() if counts(name)),
                    sum(one["recoveries"] for one in both),
                    sum(one["kills"] for one in both),
                    sum(len(one["errors"]) for one in both),
                    sum(len(one["differences"]) for one in both),
                    ratio(lambda one: one["read_mib"]),
                    *map(p99, KINDS),
                ]
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def left_over() -> set[str]:
    """Processes, shared memory and cgroups of the servers."""
    users = {pwd.getpwnam(kind.user).pw_uid for kind in (Postgres, Mariadb)}
    shared = Path("/dev/shm")
    # An empty folder of hither's stays for the next run.
    runs = list(shared.glob("hither-runs-*"))
    places = [shared, *runs, Path("/proc"), machine.CGROUPS, machine.CGROUPS / "memory"]
    paths = {path for place in places if place.exists() for path in place.iterdir()}
    found = {str(path) for path in paths if re.search(r"/(postgres|mariadb)-\w+-\d+$", str(path))}
    for path in paths.difference(runs):
        with contextlib.suppress(OSError):
            if path.stat().st_uid in users:
                found.add(f"{path} {read(path / 'comm')}".strip())
    segments = [line.split() for line in read(Path("/proc/sysvipc/shm")).splitlines()[1:]]
    return found | {f"segment {line[1]}" for line in segments if int(line[7]) in users}


def end(servers: Iterable[Server]) -> None:
    """Stops what still runs. Killed servers would leave shared memory behind."""
    for server in servers:
        if pid := server.server():
            os.kill(pid, server.stops["fast"])
        deadline = time.monotonic() + 20
        while server.group.members() and time.monotonic() < deadline:
            time.sleep(0.1)


def clean(hither: Path) -> None:
    """The next run of a user removes what agents left that were killed."""
    for kind in (Postgres, Mariadb):
        run = [str(hither), "-q", "run", "--page-cache", "--cache", "64MiB", "--", "true"]
        environment = {"PATH": os.environ["PATH"], "HOME": "/"}
        subprocess.run([*user(kind.user), *run], check=True, env=environment)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, help="without it all servers run alone")
    parser.add_argument("--work", type=Path, default=Path("/tmp/databases"))
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--results", type=Path, help="the file that a line a cycle is added to")
    parser.add_argument("--quick", action="store_true", help="small data, short loads, 2 minutes")
    parser.add_argument("--table", type=Path, help="print the table of such a file")
    options = parser.parse_args()
    options.loads, options.load_s = (2, 8) if options.quick else (4, 50)
    options.minutes = min(options.minutes, 2) if options.quick else options.minutes
    return options


def main() -> int:
    options = parsed()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return 0
    if not machine.cgroup_version():
        say("skipped: no memory cgroup can be made here (root, and the memory controller)")
        return 0
    needed = [shutil.which("mariadbd"), shutil.which("setpriv"), Postgres.programs / "postgres"]
    if not all(program and Path(program).exists() for program in needed):
        say("skipped: this needs PostgreSQL, MariaDB and setpriv (Debian: util-linux)")
        return 0
    machine.prepare()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    options.work.chmod(0o755)
    if options.hither:
        shutil.copy(options.hither, options.work / "hither")
    options.header = {"machine": machine.machine(options.work), "argv": sys.argv[1:]}
    if options.hither:
        version = [str(options.hither), "--version"]
        options.header["build"] = subprocess.check_output(version, text=True).strip()
    before = left_over()
    databases = [
        Database(Postgres, ["plain", "hither", "restarted", "killed"], options),
        Database(Mariadb, ["plain", "hither"], options),
    ]
    records: list[dict] = []
    with contextlib.ExitStack() as stack:
        if options.hither:
            stack.callback(clean, options.work / "hither")
        for database in databases:
            database.make(stack)
        deadline = time.monotonic() + options.minutes * 60
        with ThreadPoolExecutor(len(databases)) as pool:
            running = [pool.submit(database.run, deadline) for database in databases]
            try:
                for one in running:
                    records += one.result()
            finally:
                STOP.set()
                end(server for database in databases for server in database.servers)
    print(table(records))
    left = sorted(left_over() - before)
    bad = [one for record in records for one in record["errors"] + record["differences"]]
    unfinished = sum(not record["finished"] for record in records)
    print(f"\nLeft over: {', '.join(left) or 'nothing'}. Unfinished: {unfinished}.")
    print("".join(f"\n- {one}" for one in bad))
    return 1 if bad or left or unfinished else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
