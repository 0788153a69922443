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
import hashlib
import json
import os
import pwd
import random
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import machine
from machine import MIB, Group, read, say, uncache
from workloads import SERVERS

# Which way is measured against which.
BESIDE = {"hither": "plain", "killed": "restarted"}
RATE, SCANS_EVERY_S = 30, 20
KINDS = ("read", "write", "scan")
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
# No command and no start or stop of a server takes longer.
PATIENCE_S = 300
STOP = threading.Event()


class Stopped(Exception):
    """Ctrl-C."""


def wait(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if STOP.is_set():
            raise Stopped
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE_S} s")
        time.sleep(0.05)


class Server:
    """A server in a cgroup of its own, what it took, and what was wrong with it."""

    name = user = expected = ""
    suspect = "ERROR|FATAL|PANIC|[Cc]orrupt|[Cc]hecksum|Warning\\]|could not|signal|reinitializ"
    limit_mib = 0
    stops: dict[str, int] = {}

    def __init__(self, options: argparse.Namespace, way: str) -> None:
        self.way, self.work = way, options.work
        self.hither = options.work / "hither" if options.hither and way in BESIDE else None
        self.kills_agent = way == "killed"
        self.restarts = way in ("restarted", "killed")
        self.data = self.work / f"{self.name}-{way}"
        self.log = self.work / f"{self.name}-{way}.log"
        self.log.write_bytes(b"")
        self.group = Group(self.limit_mib, f"{self.name}-{way}")
        self.process: subprocess.Popen | None = None
        self.scale = 0.25 if options.quick else 1
        # Of the results of queries that the load made, and of the tables at the last look.
        self.answers = hashlib.sha256()
        self.content: dict[str, str] = {}
        self.begin_cycle()

    def begin_cycle(self) -> None:
        self.errors: list[str] = []
        self.differences: list[str] = []
        self.checks: list[str] = []
        self.summary: list[str] = []
        self.cycle_latencies: dict[str, list[float]] = {kind: [] for kind in KINDS}
        self.read_bytes = self.kills = self.recoveries = self.status = 0

    # What a database does in its own way.
    def command(self) -> list[str]: ...
    def ready(self) -> bool: ...
    def sql(self, text: str) -> str: ...
    def load(self, seconds: float, seed: int) -> None: ...
    def look(self) -> dict[str, str]: ...
    def check(self) -> None: ...
    def check_stopped(self) -> None: ...
    def commits(self) -> tuple[list[object], str]: ...

    def run(self, what: str, command: list[object], polite: bool = True, **more: object) -> str:
        """Runs a tool outside of the cgroup. Returns what it prints; a failure is an error."""
        if STOP.is_set():
            raise Stopped
        ran = subprocess.run(
            ["nice", *map(str, command)][0 if polite else 1 :],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PATIENCE_S,
            text=True,
            env=os.environ | {"LC_ALL": "C"},
            start_new_session=True,
            **more,
        )
        self.checks.append(what)
        if ran.returncode and not STOP.is_set():
            said = (ran.stdout + ran.stderr)[-800:]
            self.errors.append(f"{what}: exit status {ran.returncode}: {said}")
        return ran.stdout

    def server(self) -> int:
        """The server's process, or 0."""
        words = read(self.data / "pid").split() or read(self.data / "postmaster.pid").split()
        pid = int(words[0]) if words else 0
        return pid if pid in self.group.members() else 0

    def start(self, alone: bool) -> None:
        """Starts it, with nothing cached, as hither steers only what it sees read."""
        uncache([self.data])
        user = ["setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", "--"]
        run = [self.hither, "run", "--"] if self.hither and not alone else []
        enter = ["sh", "-c", f'{self.group.enter()}exec "$@"', "sh"]
        self.log_start = self.log.stat().st_size
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*map(str, [*enter, *user, *run]), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
                env={"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(self.data)},
                start_new_session=True,
            )

        def ready() -> bool:
            if self.process.poll() is not None:
                said = self.log.read_text(errors="replace")[-1500:]
                raise RuntimeError(f"the server did not start: {said}")
            return bool(self.server()) and self.ready()

        wait(f"{self.name} {self.way}: start", ready)
        self.agent = self.process.pid if run else 0
        if run and "--page-cache" not in self.log.read_text(errors="replace")[self.log_start :]:
            self.errors.append("hither did not switch the page cache on")

    def kill_agent(self, delay_s: float) -> None:
        """Kills the agent. The server has to live on."""
        if not self.agent or STOP.wait(delay_s):
            return
        os.kill(self.agent, signal.SIGKILL)
        self.process.wait()
        self.agent, self.kills = 0, self.kills + 1
        time.sleep(0.5)
        if not (self.server() and self.ready()):
            self.errors.append("the server did not outlive its agent")

    def stop(self, how: str, committing: bool = False) -> None:
        """Stops it. With `committing`, a client inserts rows until then, one a transaction."""
        client, server = None, self.server()
        if not server:
            raise Stopped if STOP.is_set() else RuntimeError("the server is gone")
        if committing:
            command, script = self.commits()
            (self.work / f"{self.data.name}.sql").write_text(script)
            self.committed = self.work / f"{self.data.name}.committed"
            with (self.work / f"{self.data.name}.sql").open() as source:
                out = self.committed.open("w")
                client = subprocess.Popen(
                    list(map(str, command)), stdin=source, stdout=out, stderr=subprocess.DEVNULL
                )
            STOP.wait(1.5)
        if self.agent and self.process.poll() is not None:
            self.errors.append(f"the agent ended by itself: status {self.process.returncode}")
            self.agent = 0
        members = self.group.members()
        os.kill(server, self.stops[how])
        wait(f"{self.name} {self.way}: {how} stop", lambda: not self.group.members())
        if client:
            client.wait(PATIENCE_S)
        if server == self.process.pid or self.agent:
            self.status = self.process.wait(PATIENCE_S)
        else:
            # Its parent was the agent. This script has adopted it.
            self.status = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        # As a shell tells it, and hither.
        self.status = 128 - self.status if self.status < 0 else self.status
        for pid in members - {server, self.process.pid}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        self.scan_log(how)

    def scan_log(self, how: str) -> None:
        for line in self.log.read_text(errors="replace")[self.log_start :].splitlines():
            if line.startswith("hither:"):
                self.summary.append(line.removeprefix("hither: "))
            elif re.search(self.suspect, line) and not re.search(self.expected, line):
                self.errors.append(f"log, before the {how} stop: {line}")

    def count_reads(self) -> int:
        """Bytes that living members and those that they have waited for read from storage."""
        texts = [read(Path(f"/proc/{pid}/io")) for pid in self.group.members()]
        return sum(int(n) for text in texts for n in re.findall(r"^read_bytes: (\d+)", text, re.M))

    def recovered(self) -> None:
        """What a client was told to be committed before the crash has to be there, and at most the
        next row, of which it was not told."""
        told = len(self.committed.read_text().split())
        count, last = self.sql("select count(*), coalesce(max(n), 0) from acked").split()
        if count != last or not told <= int(count) <= told + 1:
            self.errors.append(f"{told} rows were committed, {count} are there, the last is {last}")
        self.sql("truncate table acked")
        self.recoveries += 1
        self.checks.append("commits")


class Postgres(Server):
    name, user, limit_mib = "postgres", "postgres", 256
    stops = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
    # Of stops, and of looks whether it is ready.
    expected = "starting up|shutting down|in recovery|not yet accepting|terminating"
    expected += " (connection|background|walreceiver)|reset by peer|Broken pipe"
    programs = max(SERVERS.glob("*/bin"), default=SERVERS, key=lambda path: path.parent.name)
    settings = (
        "listen_addresses=",
        "shared_buffers=16MB",
        "jit=off",
        "max_wal_size=192MB",
    )

    @classmethod
    def make(cls, data: Path, scale: float) -> None:
        user = ["runuser", "-u", cls.user, "--"]
        data.mkdir(mode=0o700)
        shutil.chown(data, cls.user)
        initdb = [*user, str(cls.programs / "initdb"), "-D", str(data), "-A", "trust"]
        subprocess.run([*initdb, "--data-checksums"], check=True, stdout=subprocess.DEVNULL)
        tables = (
            "create table big as select l id, repeat(md5(l::text), 6) word "
            f"from generate_series(1, {int(800_000 * scale)}) l;"
            "create index on big (md5(word)); create table acked (n int primary key);"
            "create extension amcheck; vacuum analyze; checkpoint;"
        )
        settings = (f"unix_socket_directories={data}", *cls.settings)
        options = " ".join(f"-c {one}" for one in settings)
        control = [*user, str(cls.programs / "pg_ctl"), "-w", "-s", "-D", str(data)]
        subprocess.run([*control, "-o", options, "-l", f"{data}/log", "start"], check=True)
        here = ["-h", str(data), "-U", "postgres"]
        init = [str(cls.programs / "pgbench"), *here, "-i", "-q", "-s", str(int(12 * scale))]
        subprocess.run([*init, "postgres"], check=True, capture_output=True)
        psql = [cls.programs / "psql", *here, "-q"]
        subprocess.run(psql, input=tables.encode(), check=True)
        subprocess.run([*control, "-m", "fast", "stop"], check=True)

    def program(self, name: str, *words: object) -> list[object]:
        return [self.programs / name, "-h", self.data, "-U", "postgres", *words]

    def command(self) -> list[str]:
        settings = [f"unix_socket_directories={self.data}", *self.settings]
        words = [word for one in settings for word in ("-c", one)]
        return [str(self.programs / "postgres"), "-D", str(self.data), *words]

    def ready(self) -> bool:
        return subprocess.run(self.program("pg_isready", "-q")).returncode == 0

    def sql(self, text: str) -> str:
        psql = self.program("psql", "-X", "-q", "-t", "-A", "-F", " ", "-v", "ON_ERROR_STOP=1")
        return self.run("sql", [*psql, "-c", text]).strip()

    def load(self, seconds: float, seed: int) -> None:
        """Each client has its own thread, so that its transactions depend on the seed alone."""
        folder = self.work / f"{self.data.name}.pgbench"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        accounts = int(12 * self.scale) * 100_000
        (folder / "point.sql").write_text(
            f"\\set aid random_exponential(1, {accounts}, 5)\n"
            "select abalance from pgbench_accounts where aid = :aid;\n"
        )
        (folder / "scan.sql").write_text("select count(*) from big where word like '%abcde%';\n")
        common = self.program("pgbench", "-n", "-l", "--random-seed", seed)
        before = self.count_reads()

        def bench(name: str, clients: int, rate: float, *scripts: object) -> None:
            count = max(int(seconds * rate / clients), 1)
            words = ["--log-prefix", name, "-c", clients, "-j", clients, "-t", count, "-R", rate]
            command = [*common, *words, *scripts, "postgres"]
            said = self.run(f"pgbench {name}", command, polite=False, cwd=folder)
            done = f"processed: {count * clients}/{count * clients}"
            if done not in said or "failed transactions: 0 " not in said:
                self.errors.append(f"pgbench {name}: {said[-800:]}")

        words = ("scan", 1, 1 / SCANS_EVERY_S, "-f", "scan.sql")
        scans = threading.Thread(target=bench, args=words)
        scans.start()
        bench("mixed", 2, RATE, "-f", "point.sql@7", "-b", "tpcb-like@3")
        scans.join()
        self.read_bytes += self.count_reads() - before
        for file in folder.glob("*.[0-9]*"):
            for line in file.read_text().splitlines():
                _, _, latency_us, script, *_ = line.split()
                kind = "scan" if file.name.startswith("scan") else ("read", "write")[int(script)]
                self.cycle_latencies[kind].append(int(latency_us) / 1000)

    def look(self) -> dict[str, str]:
        columns = {f"pgbench_{name}": "t" for name in ("accounts", "branches", "tellers")}
        columns |= {"big": "t", "pgbench_history": "(tid, bid, aid, delta)", "acked": "t"}
        query = "select count(*), sum(hashtextextended({}::text, 0)) from {} t"
        return {name: self.sql(query.format(what, name)) for name, what in columns.items()}

    def check(self) -> None:
        options = ["--heapallindexed", "--parent-check", "postgres"]
        self.run("pg_amcheck", self.program("pg_amcheck", *options))
        backup = self.work / f"{self.data.name}.backup"
        shutil.rmtree(backup, ignore_errors=True)
        self.run("pg_basebackup", self.program("pg_basebackup", "-c", "fast", "-D", backup))
        self.run("pg_verifybackup", [self.programs / "pg_verifybackup", "-q", backup])
        shutil.rmtree(backup, ignore_errors=True)

    def check_stopped(self) -> None:
        self.run("pg_checksums", [self.programs / "pg_checksums", "--check", "-D", self.data])

    def commits(self) -> tuple[list[object], str]:
        script = "".join(f"insert into acked values ({n}) returning n;\n" for n in range(1, 50_000))
        return self.program("psql", "-X", "-q", "-t", "-A"), script


class Mariadb(Server):
    """With InnoDB through the page cache rather than by direct I/O, which is the default."""

    name, user, limit_mib = "mariadb", "mysql", 288
    stops = {"fast": signal.SIGTERM, "kill": signal.SIGKILL}
    expected = "Aborted connection|max_open_files"

    @classmethod
    def arguments(cls, data: Path) -> list[str]:
        return [
            str(shutil.which("mariadbd")),
            "--no-defaults",
            f"--datadir={data}",
            f"--socket={data}/socket",
            f"--pid-file={data}/pid",
            "--skip-networking",
            "--innodb-buffer-pool-size=16M",
            "--innodb-flush-method=fsync",
            "--innodb-log-file-size=32M",
        ]

    @classmethod
    def make(cls, data: Path, scale: float) -> None:
        data.mkdir(mode=0o700)
        shutil.chown(data, cls.user)
        user = ["runuser", "-u", cls.user, "--"]
        install = [*user, "mariadb-install-db", "--no-defaults", f"--datadir={data}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        tables = (
            "create database test; use test; create table points "
            "(id int primary key, word char(120) not null, more varchar(400), balance int, key (word(16)));"
            "insert into points select seq, rpad(md5(seq), 120, 'x'), repeat(md5(seq), 12), 0 "
            f"from seq_1_to_{int(200_000 * scale)};"
            "create table big (id int primary key, word varchar(200));"
            f"insert into big select seq, repeat(md5(seq), 6) from seq_1_to_{int(700_000 * scale)};"
            "create table history (id int primary key, point int, delta int);"
            "create table acked (n int primary key);"
        )
        with (data / "log").open("w") as log:
            words = [*user, *cls.arguments(data)]
            server = subprocess.Popen(words, stdout=log, stderr=log, cwd=data)
        client = ["mariadb", "--no-defaults", "-u", "root", "-S", f"{data}/socket"]
        up = lambda: subprocess.run(client, input=b"", capture_output=True).returncode == 0
        wait("mariadb", up)
        subprocess.run(client, input=tables.encode(), check=True)
        subprocess.run(["mariadb-admin", *client[1:], "shutdown"], check=True)
        server.wait(PATIENCE_S)

    def program(self, name: str, *words: object) -> list[object]:
        return [name, "--no-defaults", "-u", "root", "-S", self.data / "socket", *words]

    def command(self) -> list[str]:
        return self.arguments(self.data)

    def ready(self) -> bool:
        client = self.program("mariadb", "-e", "select 1")
        return subprocess.run(client, capture_output=True).returncode == 0

    def sql(self, text: str) -> str:
        return self.run("sql", self.program("mariadb", "-N", "-B", "test", "-e", text)).strip()

    def load(self, seconds: float, seed: int) -> None:
        before = self.count_reads()
        rows = int(200_000 * self.scale)

        def client(kind: str, rate: float) -> list[str]:
            count = max(int(seconds * rate), 1)
            words = [sys.executable, __file__, "client", self.data / "socket", kind]
            command = [*words, seed, count, rate, rows]
            return self.run(f"client {kind}", command, polite=False).splitlines()

        with ThreadPoolExecutor(2) as pool:
            for said in pool.map(client, ("mixed", "scan"), (RATE, 1 / SCANS_EVERY_S)):
                for line in said:
                    kind, value = line.split()
                    if kind == "answers":
                        self.answers.update(value.encode())
                    else:
                        self.cycle_latencies[kind].append(float(value))
        self.read_bytes += self.count_reads() - before

    def look(self) -> dict[str, str]:
        sums = self.sql("checksum table points, big, history, acked extended")
        content = dict(line.split("\t") for line in sums.splitlines())
        return content | {"answers": self.answers.hexdigest()[:16]}

    def check(self) -> None:
        for line in self.sql("check table points, big, history, acked extended").splitlines():
            if not line.endswith("\tOK"):
                self.errors.append(f"check table: {line}")
        words = ["--order-by-primary", "--skip-dump-date", "--single-transaction", "test"]
        dump = self.run("mariadb-dump", self.program("mariadb-dump", *words))
        self.content["dump"] = hashlib.sha256(dump.encode()).hexdigest()[:16]

    def check_stopped(self) -> None:
        # Not ibdata1: after a crash its doublewrite pages are no pages, with or without hither.
        for file in sorted(self.data.glob("*/*.ibd")):
            self.run("innochecksum", ["innochecksum", file])

    def commits(self) -> tuple[list[object], str]:
        script = "".join(
            f"insert into acked values ({n}); select {n};\n" for n in range(1, 50_000)
        )
        return self.program("mariadb", "-N", "-B", "-n", "test"), script


class Wire:
    """MariaDB's protocol, as far as the load needs it: Python has no client of its own."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.stream = self.socket.makefile("rb")
        self.packet()
        # Protocol 4.1, a database, authentication by plugin; utf8; no password.
        flags = 0x200 | 0x8 | 0x8000 | 0x80000
        hello = struct.pack("<IIB23x", flags, 1 << 24, 33) + b"root\0\0test\0"
        self.send(1, hello + b"mysql_native_password\0")
        self.packet()

    def send(self, number: int, body: bytes) -> None:
        self.socket.sendall(struct.pack("<I", len(body) | number << 24) + body)

    def packet(self) -> bytes:
        length = struct.unpack("<I", self.stream.read(4))[0] & 0xFFFFFF
        body = self.stream.read(length)
        if body[:1] == b"\xff":
            raise RuntimeError(body[3:].decode(errors="replace"))
        return body

    def query(self, text: str) -> bytes:
        """The rows of the result, as they are sent."""
        self.send(0, b"\x03" + text.encode())
        if self.packet()[:1] == b"\0":
            return b""
        rows = [b"", b""]
        for part in (0, 1):
            while (body := self.packet())[:1] != b"\xfe" or len(body) >= 9:
                rows[part] += body
        return rows[1]


def client(path: str, kind: str, seed: str, count: str, rate: str, rows: str) -> None:
    """Runs transactions at random times that the seed decides, and prints their latencies."""
    server, source, answers = Wire(path), random.Random(f"{kind} {seed}"), hashlib.sha256()
    due, last = time.monotonic(), int(rows)
    for number in range(int(count)):
        due += source.expovariate(float(rate))
        point = min(int(source.expovariate(5) * last) + 1, last)
        writes = source.random() < 0.3
        time.sleep(max(due - time.monotonic(), 0))
        if kind == "scan":
            answers.update(server.query("select count(*) from big where word like '%abcde%'"))
        elif writes:
            delta = source.randint(-5000, 5000)
            server.query("begin")
            server.query(f"update points set balance = balance + {delta} where id = {point}")
            answers.update(server.query(f"select balance from points where id = {point}"))
            key = int(seed) * 10_000 + number
            server.query(f"insert into history values ({key}, {point}, {delta})")
            server.query("commit")
        else:
            answers.update(server.query(f"select * from points where id = {point}"))
        took = (time.monotonic() - due) * 1000
        print("scan" if kind == "scan" else "write" if writes else "read", f"{took:.3f}")
    print("answers", answers.hexdigest())


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
            stack.callback(shutil.rmtree, server.data, ignore_errors=True)
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
        options = self.options
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
            delay = random.Random(seed).uniform(0.3, 0.8) * options.load_s
            kill = threading.Thread(target=server.kill_agent, args=(delay,))
            if server.kills_agent:
                kill.start()
            server.load(options.load_s, seed)
            if server.kills_agent:
                kill.join()
            if server.restarts:
                server.stop("fast")
                server.start(alone)

        for part in range(options.loads):
            seed = number * 100 + part
            self.each(lambda server: load(server, seed))

        def check(server: Server) -> None:
            kill = threading.Thread(target=server.kill_agent, args=(1.0,))
            if server.kills_agent:
                kill.start()
            server.check()
            if server.kills_agent:
                kill.join()

        self.each(check, in_turn=True)
        self.compare("after the load", lambda server: server.content)
        latencies = [server.cycle_latencies for server in self.servers]
        for server in self.servers:
            server.cycle_latencies = {kind: [] for kind in KINDS}
        # Something to recover: the backup made a checkpoint.
        self.each(lambda server: server.load(3, number * 100 + 99))
        for server, before in zip(self.servers, latencies):
            server.cycle_latencies = before
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
            "latency_ms": {kind: spread(of) for kind, of in server.cycle_latencies.items()},
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
                counts = [one["latency_ms"][kind]["count"] for one in both for kind in KINDS]
                cells = [
                    f"{database}: {way} beside {other}{'' if hither else ', both without hither'}",
                    len(ours),
                    sum(counts),
                    sum(sum(one["checks"].values()) for one in both),
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
    # Files in /dev/shm, as an empty folder of hither's stays for the next run.
    places = [Path("/dev/shm"), *Path("/dev/shm").glob("hither-runs-*"), Path("/proc"), Path("/sys/fs/cgroup/memory"), machine.CGROUPS]
    paths = [path for place in places if place.exists() for path in place.iterdir()]
    found = {str(path) for path in paths if re.search(r"/(postgres|mariadb)-\w+-\d+$", str(path))}
    for path in paths:
        with contextlib.suppress(OSError):
            if path.stat().st_uid in users and path.parent.name + path.name != "shm":
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
        user = ["setpriv", "--reuid", kind.user, "--regid", kind.user, "--clear-groups"]
        run = [str(hither), "-q", "run", "--page-cache", "--cache", "64MiB", "--", "true"]
        environment = {"PATH": os.environ["PATH"], "HOME": "/"}
        subprocess.run([*user, *run], check=True, env=environment)


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
    if sys.argv[1:2] == ["client"]:
        client(*sys.argv[2:])
        sys.exit(0)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
