"""The servers of databases.py: how each is started, loaded, checked, stopped and killed.

A server runs in a cgroup of its own, as the database's own user. What loads and checks it runs
outside of the cgroup, as root.
"""

import argparse
import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from machine import Group, read, uncache
from workloads import SERVERS

# Transactions a second, and seconds between two scans, of each server.
RATE, SCANS_EVERY_S = 30, 20
# Rows of the table of point reads: in units of pgbench, and of MariaDB's table.
SCALE, POINTS = 12, 200_000
KINDS = ("read", "write", "scan")
# No command and no start or stop of a server takes longer.
PATIENCE_S = 300
STOP = threading.Event()


# Milliseconds by kind of transaction, from when it was due.
Latencies = dict[str, list[float]]


class Stopped(Exception):
    """Ctrl-C."""


def user(name: str) -> list[str]:
    """What runs a command as this user, in the same process."""
    return ["setpriv", "--reuid", name, "--regid", name, "--clear-groups", "--"]


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
        steered = options.hither and way in ("hither", "killed")
        self.hither = self.work / "hither" if steered else None
        self.restarts = way in ("restarted", "killed")
        self.data = self.work / f"{self.name}-{way}"
        self.log = self.work / f"{self.name}-{way}.log"
        self.log.write_bytes(b"")
        self.scratch = self.work / f"{self.name}-{way}.scratch"
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
        self.latencies: Latencies = {kind: [] for kind in KINDS}
        self.read_bytes = self.kills = self.recoveries = self.status = 0

    # What a database does in its own way.
    def command(self) -> list[str]: ...
    def ready(self) -> bool: ...
    def sql(self, text: str) -> str: ...
    def load(self, seconds: float, seed: int) -> Latencies: ...
    def look(self) -> dict[str, str]: ...
    def check(self) -> None: ...
    def check_stopped(self) -> None: ...
    def commits(self) -> tuple[list[object], str]: ...

    def run(self, what: str, command: list[object], polite: bool = True, **more: object) -> str:
        """Runs a tool outside of the cgroup. Returns what it prints; a failure is an error.
        `polite` is for what is not timed."""
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
        run = [self.hither, "run", "--"] if self.hither and not alone else []
        enter = ["sh", "-c", f'{self.group.enter()}exec "$@"', "sh"]
        self.log_start = self.log.stat().st_size
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*map(str, [*enter, *user(self.user), *run]), *self.command()],
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

    @contextlib.contextmanager
    def agent_killed(self, delay_s: float) -> Iterator[None]:
        """Kills the agent of `killed` after that time. The server has to live on."""

        def kill() -> None:
            if STOP.wait(delay_s):
                return
            os.kill(self.agent, signal.SIGKILL)
            self.process.wait()
            self.agent, self.kills = 0, self.kills + 1
            time.sleep(0.5)
            if not (self.server() and self.ready()):
                self.errors.append("the server did not outlive its agent")

        if self.way != "killed" or not self.agent:
            yield
            return
        killer = threading.Thread(target=kill)
        killer.start()
        try:
            yield
        finally:
            killer.join()

    def stop(self, how: str, committing: bool = False) -> None:
        """Stops it. With `committing`, a client inserts rows until then, one a transaction."""
        client, server = None, self.server()
        if not server:
            raise Stopped if STOP.is_set() else RuntimeError("the server is gone")
        if committing:
            command, script = self.commits()
            source, self.committed = self.scratch / "commits.sql", self.scratch / "committed"
            source.write_text(script)
            with source.open() as rows, self.committed.open("w") as out:
                client = subprocess.Popen(
                    list(map(str, command)), stdin=rows, stdout=out, stderr=subprocess.DEVNULL
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
    programs = max(SERVERS.glob("*/bin"), default=SERVERS, key=lambda path: float(path.parent.name))
    settings = ("listen_addresses=", "shared_buffers=16MB", "jit=off", "max_wal_size=192MB")

    @classmethod
    def make(cls, data: Path, scale: float) -> None:
        data.mkdir(mode=0o700)
        shutil.chown(data, cls.user)
        initdb = [*user(cls.user), str(cls.programs / "initdb"), "-D", str(data), "-A", "trust"]
        subprocess.run([*initdb, "--data-checksums"], check=True, stdout=subprocess.DEVNULL)
        tables = (
            "create table big as select l id, repeat(md5(l::text), 6) word "
            f"from generate_series(1, {int(800_000 * scale)}) l;"
            "create index on big (md5(word)); create table acked (n int primary key);"
            "create extension amcheck; vacuum analyze; checkpoint;"
        )
        settings = (f"unix_socket_directories={data}", *cls.settings)
        options = " ".join(f"-c {one}" for one in settings)
        control = [*user(cls.user), str(cls.programs / "pg_ctl"), "-w", "-s", "-D", str(data)]
        subprocess.run([*control, "-o", options, "-l", f"{data}/log", "start"], check=True)
        here = ["-h", str(data), "-U", "postgres"]
        init = [str(cls.programs / "pgbench"), *here, "-i", "-q", "-s", str(int(SCALE * scale))]
        try:
            subprocess.run([*init, "postgres"], check=True, capture_output=True)
            psql = [cls.programs / "psql", *here, "-q"]
            subprocess.run(psql, input=tables.encode(), check=True)
        finally:
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

    def load(self, seconds: float, seed: int) -> Latencies:
        """Each client has its own thread, so that its transactions depend on the seed alone."""
        folder = self.scratch / "pgbench"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        accounts = int(SCALE * self.scale) * 100_000
        (folder / "point.sql").write_text(
            f"\\set aid random_exponential(1, {accounts}, 5)\n"
            "select abalance from pgbench_accounts where aid = :aid;\n"
        )
        (folder / "scan.sql").write_text("select count(*) from big where word like '%abcde%';\n")
        common = self.program("pgbench", "-n", "-l", "--random-seed", seed)
        latencies: Latencies = {kind: [] for kind in KINDS}

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
        for file in folder.glob("*.[0-9]*"):
            for line in file.read_text().splitlines():
                _, _, latency_us, script, *_ = line.split()
                kind = "scan" if file.name.startswith("scan") else ("read", "write")[int(script)]
                latencies[kind].append(int(latency_us) / 1000)
        return latencies

    def look(self) -> dict[str, str]:
        columns = {f"pgbench_{name}": "t" for name in ("accounts", "branches", "tellers")}
        columns |= {"big": "t", "pgbench_history": "(tid, bid, aid, delta)", "acked": "t"}
        query = "select count(*), sum(hashtextextended({}::text, 0)) from {} t"
        return {name: self.sql(query.format(what, name)) for name, what in columns.items()}

    def check(self) -> None:
        options = ["--heapallindexed", "--parent-check", "postgres"]
        self.run("pg_amcheck", self.program("pg_amcheck", *options))
        backup = self.scratch / "backup"
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
        install = [*user(cls.user), "mariadb-install-db", "--no-defaults", f"--datadir={data}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        tables = (
            "create database test; use test; create table points (id int primary key, "
            "word char(120) not null, more varchar(400), balance int, key (word(16)));"
            "insert into points select seq, rpad(md5(seq), 120, 'x'), repeat(md5(seq), 12), 0 "
            f"from seq_1_to_{int(POINTS * scale)};"
            "create table big (id int primary key, word varchar(200));"
            f"insert into big select seq, repeat(md5(seq), 6) from seq_1_to_{int(700_000 * scale)};"
            "create table history (id int primary key, point int, delta int);"
            "create table acked (n int primary key);"
        )
        with (data / "log").open("w") as log:
            words = [*user(cls.user), *cls.arguments(data)]
            server = subprocess.Popen(words, stdout=log, stderr=log, cwd=data)
        client = ["mariadb", "--no-defaults", "-u", "root", "-S", f"{data}/socket"]
        up = lambda: subprocess.run(client, input=b"", capture_output=True).returncode == 0
        try:
            wait("mariadb", up)
            subprocess.run(client, input=tables.encode(), check=True)
        finally:
            server.terminate()
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

    def load(self, seconds: float, seed: int) -> Latencies:
        rows = int(POINTS * self.scale)
        latencies: Latencies = {kind: [] for kind in KINDS}

        def client(kind: str, rate: float) -> list[str]:
            count = max(int(seconds * rate), 1)
            words = [sys.executable, __file__, self.data / "socket", kind]
            command = [*words, seed, count, rate, rows]
            said = self.run(f"client {kind}", command, polite=False).splitlines()
            if len(said) != count + 1:
                self.errors.append(f"client {kind}: {len(said) - 1} of {count} transactions")
            return said

        with ThreadPoolExecutor(2) as pool:
            for said in pool.map(client, ("mixed", "scan"), (RATE, 1 / SCANS_EVERY_S)):
                for line in said:
                    kind, value = line.split()
                    if kind == "answers":
                        self.answers.update(value.encode())
                    else:
                        latencies[kind].append(float(value))
        return latencies

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


if __name__ == "__main__":
    client(*sys.argv[1:])
