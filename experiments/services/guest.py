#!/usr/bin/env python3
"""What services.py has its guest do: a Debian service under its own unit, with and without
hither-run@, under load. Prints a line of JSON for each result.

    guest.py SERVICE bytes ROUNDS      what is read from storage, by turns without and with hither
    guest.py SERVICE lifecycle         start, reload, log rotation, crashes, restart, stop, purge

The loads are synthetic, and made to show the mechanism at work: data of more than the memory limit,
read in a loop, beside requests for a part that fits.
"""

import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

MIB = 1 << 20
# By when a unit has started or ended. An emulated processor is slow.
START_S = 180
UNIT_FOLDER = Path("/etc/systemd/system")
# What a unit may restrict, and must after hither has come as before.
HARDENING = (
    "ProtectSystem ProtectHome NoNewPrivileges SystemCallFilter MemoryDenyWriteExecute PrivateTmp "
    "PrivateDevices RestrictNamespaces RestrictAddressFamilies CapabilityBoundingSet Type User "
    "ReadWritePaths ExecStart ExecReload Environment Restart"
).split()


def say(**fields) -> None:
    print(json.dumps(fields), flush=True)


def run(*words, check=True, user=None, **options) -> str:
    """The output of a command."""
    if user:
        words = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *words)
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    if check and done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}")
    return done.stdout


def show(unit: str, name: str) -> str:
    return run("systemctl", "show", "--value", "-p", name, unit).strip()


def wait_for(what, seconds: float) -> float | None:
    """How long it took until `what` was so. None if it was not so in time."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if what():
            return round(time.monotonic() - began, 2)
        time.sleep(0.05)
    return None


def is_container() -> bool:
    return Path("/job/host").exists()


def ask(what: str, text: str) -> str:
    """Has the host do something, and gives its answer."""
    answer = Path(f"/job/{what}.done")
    answer.unlink(missing_ok=True)
    # Whole, or not there.
    Path("/job/partial").write_text(text)
    Path("/job/partial").rename(f"/job/{what}")
    if wait_for(answer.exists, START_S) is None:
        raise SystemExit(f"the host does not {what}")
    return answer.read_text()


def evict(*folders: str) -> None:
    """Drops the files of these folders from the page cache, and no other's."""
    os.sync()
    for folder in folders:
        for path in [Path(folder), *Path(folder).rglob("*")]:
            if path.is_file() and not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)


def fill(path: Path, mib: int, skip_mib: int = 0) -> None:
    """Makes a file of bytes that nothing compresses: those of the third disk, from some MiB on. An
    emulated processor would make them slowly."""
    source = "/job/random.img" if is_container() else "/dev/vdc"
    run("dd", f"if={source}", f"of={path}", "bs=1M", "iflag=direct", f"count={mib}",
        f"skip={skip_mib}")


def read(path: Path) -> None:
    """Reads a file, and keeps nothing of it."""
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


def disk() -> tuple[int, int]:
    """The disk with the root: major and minor."""
    device = os.stat("/").st_dev
    return os.major(device), os.minor(device)


def group_file(unit: str, controller: str, name: str) -> str:
    """The content of a file of a unit's cgroup, of version 2 or 1. Empty if it has none."""
    group = show(unit, "ControlGroup").lstrip("/")
    for root in (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup"):
        try:
            return (Path(root) / group / name).read_text() if group else ""
        except OSError:
            continue
    return ""


def read_bytes(unit: str) -> int:
    """What the kernel has read from the disk for a unit since it was started."""
    major, minor = disk()
    text = group_file(unit, "", "io.stat")
    found = re.search(rf"^{major}:{minor} .*?rbytes=(\d+)", text, re.M)
    if not found:
        text = group_file(unit, "blkio", "blkio.throttle.io_service_bytes")
        found = re.search(rf"^{major}:{minor} Read (\d+)", text, re.M)
    return int(found[1]) if found else 0


def memory_peak_bytes(unit: str) -> int:
    """The most memory that a unit has had, page cache included."""
    return int(
        group_file(unit, "", "memory.peak")
        or group_file(unit, "memory", "memory.max_usage_in_bytes")
        or 0
    )


def disk_bytes() -> int:
    """What all of the machine has read from its disk."""
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        if (int(words[0]), int(words[1])) == disk():
            return int(words[5]) * 512
    raise SystemExit("the disk is not in /proc/diskstats")


class Service:
    """One service. `unit` is the one with the processes."""

    unit: str
    limit_mib: int
    folders: tuple[str, ...]
    options = ""
    rotation: str | None = None
    log: str | None = None

    def prepare(self) -> None:
        """Makes its data. The service runs, without a limit."""

    def few(self) -> None:
        """Less data, where no bytes are counted."""

    def load(self) -> dict:
        """The load whose bytes count."""
        raise NotImplementedError

    def request(self) -> bool:
        """One request, and whether its answer was right. An error is an answer that was not."""
        raise NotImplementedError

    @property
    def agent(self) -> str:
        return f"hither-run@{self.unit.removesuffix('.service')}.service"

    def limit(self) -> None:
        """Gives it a memory limit, and counts what it reads."""
        folder = UNIT_FOLDER / f"{self.unit}.d"
        folder.mkdir(parents=True, exist_ok=True)
        text = f"[Service]\nMemoryMax={self.limit_mib}M\nIOAccounting=yes\n"
        (folder / "limit.conf").write_text(text)
        folder = UNIT_FOLDER / "hither-run@.service.d"
        folder.mkdir(exist_ok=True)
        (folder / "count.conf").write_text("[Service]\nIOAccounting=yes\nMemoryAccounting=yes\n")
        run("systemctl", "daemon-reload")

    def answers(self) -> bool:
        try:
            return self.request()
        except (Exception, SystemExit):
            return False

    def is_steered(self) -> bool:
        return show(self.agent, "ActiveState") == "active"

    def start(self) -> None:
        run("systemctl", "start", self.unit)
        if wait_for(self.answers, START_S) is None:
            raise SystemExit(run("journalctl", "-n", "40", "-u", self.unit))

    def steer(self, on: bool) -> None:
        """As docs/services has it."""
        environment = Path(f"/etc/hither/run-{self.unit.removesuffix('.service')}.env")
        environment.unlink(missing_ok=True)
        if self.options:
            environment.write_text(f'HITHER_OPTIONS="{self.options}"\n')
        run("systemctl", "enable" if on else "disable", self.agent)

    def attach(self) -> None:
        """By its unit; in a container by the host, which the kernel's events are for."""
        if is_container():
            ask("attach", f"{show(self.unit, 'ControlGroup')} {self.options}")
        elif wait_for(self.is_steered, START_S) is None:
            raise SystemExit(run("journalctl", "-n", "40", "-u", self.agent))

    def detach(self) -> dict:
        """What the agent took, and what it says at its end."""
        if is_container():
            return json.loads(ask("detach", "now"))
        took = {
            "agent_bytes": read_bytes(self.agent),
            "agent_cpu_ms": int(show(self.agent, "CPUUsageNSec") or 0) // 1_000_000,
            "agent_memory_bytes": memory_peak_bytes(self.agent),
        }
        run("systemctl", "stop", self.agent)
        said = run("journalctl", "-o", "cat", "-n", "8", "-u", self.agent)
        return took | {"said": said.splitlines()}

    def measure(self, way: str) -> None:
        run("systemctl", "stop", self.unit)
        self.steer(way == "hither" and not is_container())
        evict(*self.folders)
        self.start()
        if way == "hither":
            self.attach()
        service, disk = read_bytes(self.unit), disk_bytes()
        began = time.monotonic()
        figures = self.load()
        seconds = time.monotonic() - began
        figures["service_bytes"] = read_bytes(self.unit) - service
        figures["disk_bytes"] = disk_bytes() - disk
        figures |= self.detach() if way == "hither" else {}
        say(service=type(self).__name__.lower(), way=way, seconds=round(seconds, 2), **figures)


class Nginx(Service):
    """Files of 1 MiB: a crawler fetches all of them in turn, visitors a tenth of them."""

    unit = "nginx.service"
    folders = ("/var/www",)
    limit_mib = 192
    rotation = "/etc/logrotate.d/nginx"
    log = "/var/log/nginx/access.log"
    files = 320
    passes = 5

    def prepare(self) -> None:
        folder = Path("/var/www/html/data")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(self.files):
            fill(folder / str(number), 1, number)
            with (folder / str(number)).open("r+b") as file:
                file.write(f"{number:08}".encode())

    def fetch(self, server, number: int) -> bool:
        server.request("GET", f"/data/{number}")
        body = server.getresponse().read()
        return len(body) == MIB and body.startswith(f"{number:08}".encode())

    def load(self) -> dict:
        wrong = []
        visits = 0
        over = threading.Event()

        def visit() -> None:
            nonlocal visits
            draw = random.Random(1)
            server = http.client.HTTPConnection("127.0.0.1", timeout=60)
            while not over.is_set():
                if not self.fetch(server, draw.randrange(self.files // 10)):
                    wrong.append("visitor")
                visits += 1
                time.sleep(0.02)

        visitor = threading.Thread(target=visit)
        visitor.start()
        server = http.client.HTTPConnection("127.0.0.1", timeout=60)
        for _ in range(self.passes):
            for number in range(self.files):
                if not self.fetch(server, number):
                    wrong.append(number)
        over.set()
        visitor.join()
        return {"wrong": len(wrong), "visits": visits}

    def request(self) -> bool:
        server = http.client.HTTPConnection("127.0.0.1", timeout=10)
        return self.fetch(server, random.randrange(self.files))


class PostgreSQL(Service):
    """A table that is scanned again and again, beside lookups by key in another."""

    limit_mib = 320
    folders = ("/var/lib/postgresql",)
    rotation = "/etc/logrotate.d/postgresql-common"
    scans = 6

    def __init__(self) -> None:
        version = max(path.name for path in Path("/etc/postgresql").iterdir())
        self.unit = f"postgresql@{version}-main.service"
        self.log = f"/var/log/postgresql/postgresql-{version}-main.log"

    def sql(self, text: str) -> str:
        return run("psql", "-qAtX", "-c", text, user="postgres", cwd="/")

    def prepare(self) -> None:
        run("pgbench", "-iq", "-s", "30", user="postgres", cwd="/")
        self.sql("create table hot as select * from pgbench_accounts where aid <= 200000")
        self.sql("create index on hot (aid)")
        self.sql("vacuum analyze")
        self.sql("checkpoint")

    def load(self) -> dict:
        wrong = 0
        Path("/tmp/lookup.sql").write_text(
            "\\set aid random(1, 200000)\nselect abalance from hot where aid = :aid;\n"
        )
        words = "setpriv --reuid=postgres --regid=postgres --init-groups pgbench -n -c 1 -T 600"
        lookups = subprocess.Popen(
            [*words.split(), "-R", "200", "-f", "/tmp/lookup.sql"], cwd="/",
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for _ in range(self.scans):
            said = self.sql(
                "set max_parallel_workers_per_gather = 0; set jit = off;"
                "select count(*), sum(aid), sum(abalance) from pgbench_accounts"
            )
            wrong += said.strip() != "3000000|4500001500000|0"
        is_alive = lookups.poll() is None
        lookups.terminate()
        lookups.wait()
        return {"wrong": wrong + (not is_alive)}

    def request(self) -> bool:
        aid = random.randrange(1, 3000000)
        return self.sql(f"select aid from pgbench_accounts where aid = {aid}").strip() == str(aid)


class MariaDB(Service):
    """InnoDB as Debian sets it up, which reads its files past the page cache (O_DIRECT)."""

    unit = "mariadb.service"
    folders = ("/var/lib/mysql",)
    limit_mib = 320
    rotation = "/etc/logrotate.d/mariadb"
    log = "/var/log/mysql/error.log"
    engine = "InnoDB"
    rows = 1 << 19
    scans = 6

    def sql(self, text: str, database="test") -> str:
        return run("mariadb", "-NB", "-e", text, database)

    def few(self) -> None:
        self.rows = 1 << 15

    def prepare(self) -> None:
        # Debian's goes to the journal, where there is nothing to rotate.
        log = f"[mariadbd]\nlog_error={self.log}\n"
        Path("/etc/mysql/mariadb.conf.d/99-log.cnf").write_text(log)
        self.sql("create database if not exists test", "mysql")
        self.sql(
            "create table data (id int primary key, pad varbinary(800) not null)"
            f" engine={self.engine}"
        )
        self.sql(
            f"insert into data select seq, repeat(random_bytes(40), 16) from seq_1_to_{self.rows}"
        )
        self.sql("flush tables")

    def load(self) -> dict:
        wrong = 0
        for _ in range(self.scans):
            said = self.sql("select count(*), sum(length(pad)) from data where pad <> ''")
            wrong += said.split() != [str(self.rows), str(self.rows * 640)]
        return {"wrong": wrong}

    def request(self) -> bool:
        key = random.randrange(1, self.rows)
        return self.sql(f"select id from data where id = {key}").strip() == str(key)


class Aria(MariaDB):
    """A table of MariaDB's engine that reads by the page cache."""

    engine = "Aria"


class Redis(Service):
    """Snapshots of 300 MB of values, beside a program whose file is cached."""

    unit = "redis-server.service"
    folders = ("/var/lib/redis", "/var/tmp/neighbour")
    limit_mib = 900
    options = "--no-cache"
    rotation = "/etc/logrotate.d/redis-server"
    log = "/var/log/redis/redis-server.log"
    keys = 300_000
    snapshots = 3
    neighbour = Path("/var/tmp/neighbour")
    neighbour_mib = 768

    def few(self) -> None:
        self.keys, self.neighbour_mib = 50_000, 1

    def redis(self, *words) -> str:
        return run("redis-cli", *words).strip()

    def prepare(self) -> None:
        fill(self.neighbour, self.neighbour_mib)
        self.redis("config", "set", "save", "")
        with socket.create_connection(("127.0.0.1", 6379)) as server:
            replies = threading.Thread(target=self.replies, args=(server,))
            replies.start()
            for first in range(1, self.keys + 1, 1000):
                server.sendall(b"".join(
                    b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$1000\r\n%s\r\n"
                    % (len(key), key, os.urandom(8) * 125)
                    for key in (f"key:{number}".encode() for number in range(first, first + 1000))
                ))
            replies.join()
        self.redis("config", "set", "rdbcompression", "no")
        self.redis("save")

    def replies(self, server: socket.socket) -> None:
        """Takes the `+OK` of each key."""
        left = self.keys * len("+OK\r\n")
        while left:
            left -= len(server.recv(1 << 16))

    def load(self) -> dict:
        """Snapshots, as clients ask for them. Then the neighbour reads its file anew."""
        self.redis("config", "set", "save", "")
        self.redis("config", "set", "rdbcompression", "no")
        read(self.neighbour)
        for _ in range(self.snapshots):
            self.redis("bgsave")
            while "rdb_bgsave_in_progress:1" in self.redis("info", "persistence"):
                time.sleep(0.05)
        os.sync()
        before = disk_bytes()
        read(self.neighbour)
        wrong = self.redis("dbsize") != str(self.keys)
        return {"wrong": int(wrong), "neighbour_bytes": disk_bytes() - before}

    def request(self) -> bool:
        return self.redis("strlen", f"key:{random.randrange(1, self.keys)}") == "1000"


SERVICES = {one.__name__.lower(): one for one in (Nginx, PostgreSQL, MariaDB, Aria, Redis)}


class Load(threading.Thread):
    """Requests, one after the other, until `end`."""

    def __init__(self, service: Service) -> None:
        super().__init__()
        self.service = service
        self.over = threading.Event()
        self.answered = 0
        self.failed: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            try:
                if not self.service.request():
                    self.failed.append("a wrong answer")
            except (Exception, SystemExit) as error:
                self.failed.append(str(error)[:200])
            self.answered += 1
            time.sleep(0.005)

    def end(self) -> dict:
        self.over.set()
        self.join()
        return {"requests": self.answered, "failed": len(self.failed), "why": self.failed[:1]}


def lifecycle(service: Service) -> None:
    unit, agent = service.unit, service.agent
    name = type(service).__name__.lower()
    plain = settings(unit)
    plain_process = process(unit)

    def pid() -> str:
        return show(unit, "MainPID")

    def agent_pid() -> str:
        return show(agent, "MainPID")

    def step(what: str, is_right, **fields) -> None:
        say(service=name, step=what, ok=bool(is_right), **fields)

    def under_load(what: str, action, is_right) -> None:
        """Requests go on before, during and after it, and all of them are answered."""
        load = Load(service)
        load.start()
        time.sleep(1)
        fields = action() or {}
        time.sleep(1)
        fields |= load.end()
        step(what, is_right() and not fields["failed"] and fields["requests"], **fields)

    service.steer(True)
    run("systemctl", "restart", unit)
    steered = wait_for(service.is_steered, START_S)
    step("start", steered is not None and service.answers(), agent_is_there_s=steered)
    if steered is None:
        raise SystemExit(run("journalctl", "-u", agent))
    step(
        "the unit's own settings are as before",
        settings(unit) == plain and process(unit) == plain_process,
        settings={key: value[:60] for key, value in plain.items() if value not in ("", "no")},
        process=plain_process,
    )

    was = pid(), agent_pid()

    def same() -> bool:
        return (pid(), agent_pid()) == was and service.is_steered()

    if show(unit, "CanReload") == "yes":
        under_load("reload", lambda: run("systemctl", "reload", unit) and None, same)
    else:
        step("reload", True, why="the unit has none")

    def rotate() -> dict:
        log = Path(service.log) if service.log else None
        before = log.stat().st_ino if log and log.exists() else None
        run("logrotate", "-f", service.rotation)
        after = log.stat().st_ino if log and log.exists() else None
        return {"log_before": before, "log_after": after}

    under_load("log rotation", rotate, same)

    was = pid(), agent_pid()

    def kill_agent() -> dict:
        run("systemctl", "kill", "-s", "KILL", agent)
        back = wait_for(lambda: service.is_steered() and agent_pid() not in ("0", was[1]), START_S)
        return {"agent_is_back_s": back}

    under_load(
        "kill -9 of the agent", kill_agent,
        lambda: pid() == was[0] and service.is_steered() and agent_pid() != was[1],
    )

    was = pid(), agent_pid()
    os.kill(int(was[0]), signal.SIGKILL)
    by_itself = wait_for(lambda: pid() not in ("0", was[0]) and service.answers(), 15)
    if by_itself is None:
        run("systemctl", "start", unit)
        wait_for(service.answers, START_S)
    back = wait_for(lambda: service.is_steered() and agent_pid() not in ("0", was[1]), START_S)
    step(
        "kill -9 of the service", back is not None and service.answers(),
        unit_starts_it_again_s=by_itself, agent_is_back_s=back,
    )

    was = pid(), agent_pid()
    run("systemctl", "restart", unit)
    back = wait_for(lambda: service.is_steered() and agent_pid() not in ("0", was[1]), START_S)
    step("restart", back is not None and wait_for(service.answers, START_S) is not None,
         agent_is_back_s=back)

    was = pid(), agent_pid()
    under_load(
        "stop of the agent alone", lambda: run("systemctl", "stop", agent) and None,
        lambda: pid() == was[0] and show(agent, "ActiveState") == "inactive",
    )
    run("systemctl", "start", agent)
    run("systemctl", "stop", unit)
    gone = wait_for(lambda: show(agent, "ActiveState") == "inactive", START_S)
    step("stop", gone is not None and show(agent, "Result") == "success", agent_ends_s=gone)

    # What enabling has left, and a purge while the service runs.
    service.start()
    wait_for(service.is_steered, START_S)
    was = pid(), agent_pid()

    def purge() -> dict:
        run("dpkg", "--purge", "hither")
        return {"left": run("find", "/etc/systemd/system", "/etc/hither", "-name", "*hither*",
                            "-not", "-name", "hither-run@.service.d", check=False).split()}

    under_load("purge of the package", purge,
               lambda: pid() == was[0] and not Path(f"/proc/{was[1]}").exists())
    run("dpkg", "-i", "/job/hither.deb")
    said = run("journalctl", "-o", "cat", "-u", agent)
    say(service=name, said=said.splitlines()[-60:])


def settings(unit: str) -> dict:
    """Without what ExecStart= and its like say of the last run."""
    return {key: show(unit, key).split(" ; start_time")[0] for key in HARDENING}


def process(unit: str) -> dict:
    """What the kernel says of how the unit's main process is restricted."""
    pid = show(unit, "MainPID")
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(NoNewPrivs|Seccomp|CapBnd|Uid):\s+(.*)$", status, re.M))
    found["hither"] = "hither" in Path(f"/proc/{pid}/maps").read_text()
    return found


def refusals() -> None:
    """A service without a limit, and one without processes: hither-run@ says why it does nothing,
    and the service goes on."""
    for unit in ("cron", "postgresql"):
        run("systemctl", "start", unit)
        agent = f"hither-run@{unit}"
        run("systemctl", "start", agent, check=False)
        wait_for(lambda: show(agent, "ActiveState") in ("failed", "inactive"), START_S)
        is_right = show(agent, "ActiveState") == "failed" and show(unit, "ActiveState") == "active"
        said = run("journalctl", "-o", "cat", "-u", agent).splitlines()
        say(service=unit, step="refused", ok=is_right, said=said)
        run("systemctl", "stop", unit, agent)


def main() -> None:
    name, what, *more = sys.argv[1:]
    run("dpkg", "-i", "/job/hither.deb")
    if name == "refusals":
        return refusals()
    if name == "restic":
        import restic

        return restic.main(what, *more)
    if name == "mounts":
        import mounts

        return mounts.main()
    service = SERVICES[name]()
    run("systemctl", "start", service.unit)
    wait_for(lambda: show(service.unit, "ActiveState") == "active", START_S)
    time.sleep(1)
    if what == "lifecycle":
        service.few()
    service.prepare()
    service.limit()
    run("systemctl", "restart", service.unit)
    wait_for(service.answers, START_S)
    if what == "lifecycle":
        return lifecycle(service)
    for round_ in range(int(more[0])):
        for way in ("plain", "hither") if round_ % 2 == 0 else ("hither", "plain"):
            service.measure(way)
    undo = UNIT_FOLDER / f"{service.unit}.wants"
    service.steer(False)
    say(service=name, step="disabled, nothing is left", ok=not undo.exists())


if __name__ == "__main__":
    main()
