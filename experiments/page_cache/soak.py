#!/usr/bin/env python3
"""Whether hither, attached for hours and killed again and again, harms a server or leaves anything.

A PostgreSQL server with a low load runs in a memory cgroup: lookups by key with pauses, and a scan
of a table that is larger than the cgroup's limit. `hither run --cgroup --page-cache` is attached to
it, killed with SIGKILL after some minutes, and started again, until the time is over. The last
agent is ended with SIGINT.

A sample has the agent's resident memory, descriptors and CPU time, the BPF programs and maps that
it holds and how many the machine has, and how many of the server's answers were right. After each
kill, what is left is looked up: BPF objects that the agent held (by their numbers, so that other
users of BPF do not matter), its processes, files in its temporary and runtime folders and in
/dev/shm, probes in tracefs, and settings of the cgroup and of vm.* that differ from before.

Needs root, a memory cgroup of version 1, PostgreSQL and bpftool. Appends JSON lines to --raw, and
prints Markdown; --summarize prints it of an earlier run.

    python3 soak.py --hither target/release/hither --work /var/tmp/soak --for 120 \\
        --kill-every 5 --raw soak.jsonl
"""

import argparse
import glob
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import threading
import time
from pathlib import Path

MIB = 1 << 20
GROUP_MIB, ROWS = 128, 2_500_000
LOOKUPS_HZ, LOOK_S, PAUSE_S, SCAN_EVERY_S = 20, 10, 5, 20
LEAVE_S = 3
TICKS_HZ = os.sysconf("SC_CLK_TCK")
OBJECTS = {"prog_id": "prog", "map_id": "map", "link_id": "link"}


def output(*words):
    found = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return found.stdout if found.returncode == 0 else ""


def bpf_ids(kind):
    return {entry["id"] for entry in json.loads(output("bpftool", kind, "list", "-j") or "[]")}


class Group:
    """A memory cgroup of version 1."""

    def __init__(self, mib):
        self.path = Path("/sys/fs/cgroup/memory") / f"soak-{os.getpid()}"
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(mib * MIB))

    def enter(self, pid):
        try:
            (self.path / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            pass

    def remove(self):
        for _ in range(100):
            try:
                (self.path / "memory.force_empty").write_text("0")
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)

    def settings(self):
        names = ["limit_in_bytes", "memsw.limit_in_bytes", "soft_limit_in_bytes", "swappiness"]
        names += ["use_hierarchy", "move_charge_at_immigrate", "oom_control"]
        found = {}
        for name in names:
            path = self.path / f"memory.{name}"
            if path.exists():
                found[str(path)] = path.read_text()
        return found


class Session:
    """A psql that stays connected, and whose answers have one line each."""

    def __init__(self, server):
        words = server.psql("-A", "-t")
        pipe = subprocess.PIPE
        self.psql = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd="/")
        self.backend = int(self.ask("select pg_backend_pid();"))

    def ask(self, text):
        self.psql.stdin.write(text + "\n")
        self.psql.stdin.flush()
        return self.psql.stdout.readline().strip()

    def read_bytes(self):
        text = Path(f"/proc/{self.backend}/io").read_text()
        return int(text.split("\nread_bytes: ")[1].split()[0])

    def close(self):
        self.psql.stdin.close()
        self.psql.wait()


class Server:
    """PostgreSQL with a table to scan and one for lookups."""

    def __init__(self, work):
        self.folder = work / "postgres"
        self.binaries = sorted(Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        self.port = 20000 + os.getpid() % 20000
        is_new = not self.folder.exists()
        if is_new:
            self.folder.mkdir()
            shutil.chown(self.folder, "postgres", "postgres")
            self.as_user(self.binaries / "initdb", "-D", self.folder / "data", "-A", "trust")
        options = f"-p {self.port} -c shared_buffers=16MB -k {self.folder} -c listen_addresses="
        options += " -c autovacuum=off -c max_parallel_workers_per_gather=0"
        self.pg_ctl = [self.binaries / "pg_ctl", "-D", self.folder / "data", "-w"]
        self.as_user(*self.pg_ctl, "-l", self.folder / "log", "-o", options, "start")
        if is_new:
            rows = f"generate_series(1, {ROWS}) i"
            for table in ["scanned", "looked_up"]:
                self.sql(f"create table {table} as select i, md5(i::text) as a from {rows}")
                self.sql(f"vacuum analyze {table}")
            self.sql("create unique index on looked_up (i)")
            self.sql("checkpoint")
        self.pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def as_user(self, *words):
        words = ["runuser", "-u", "postgres", "--", *[str(word) for word in words]]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd="/")

    def psql(self, *words):
        psql = ["psql", "-X", "-h", self.folder, "-p", self.port, "-q", "-d", "postgres", *words]
        return ["runuser", "-u", "postgres", "--", *[str(word) for word in psql]]

    def sql(self, text):
        subprocess.run(self.psql("-c", text), check=True, stdout=subprocess.DEVNULL, cwd="/")

    def stop(self):
        self.as_user(*self.pg_ctl, "-m", "fast", "stop")


class Load(threading.Thread):
    """Lookups with pauses and scans, each answer compared with the one that is right."""

    SCAN = "select count(*) || ' ' || sum(hashtext(a)::bigint) from scanned;"

    def __init__(self, server):
        super().__init__(daemon=True)
        self.lookups, self.scans = Session(server), Session(server)
        self.right = self.scans.ask(self.SCAN)
        self.size = int(self.scans.ask("select pg_relation_size('scanned');"))
        self.is_over = threading.Event()
        self.lock = threading.Lock()
        self.fresh()

    def fresh(self):
        self.counts = {"lookups": 0, "scans": 0, "wrong": 0}
        self.took_us, self.scan_s, self.scan_mib = [], [], []

    def take(self):
        """What was counted since the last call."""
        with self.lock:
            took = sorted(self.took_us)
            p99 = {"p99_us": took[len(took) * 99 // 100]} if took else {}
            found = {**self.counts, **p99, "scan_s": self.scan_s, "scan_read_mib": self.scan_mib}
            self.fresh()
        return found

    def run(self):
        scanner = threading.Thread(target=self.scan, daemon=True)
        scanner.start()
        keys, start = random.Random(1), time.monotonic()
        while not self.is_over.wait(1 / LOOKUPS_HZ):
            if (time.monotonic() - start) % (LOOK_S + PAUSE_S) > LOOK_S:
                continue
            key = keys.randint(1, ROWS // 8)
            before = time.monotonic()
            answer = self.lookups.ask(f"select a from looked_up where i = {key};")
            took_us = round((time.monotonic() - before) * 1e6)
            is_right = answer == hashlib.md5(str(key).encode()).hexdigest()
            with self.lock:
                self.counts["lookups"] += 1
                self.counts["wrong"] += not is_right
                self.took_us.append(took_us)
        scanner.join()
        self.lookups.close()
        self.scans.close()

    def scan(self):
        while not self.is_over.wait(SCAN_EVERY_S):
            before, read = time.monotonic(), self.scans.read_bytes()
            answer = self.scans.ask(self.SCAN)
            with self.lock:
                self.counts["scans"] += 1
                self.counts["wrong"] += answer != self.right
                self.scan_s.append(round(time.monotonic() - before, 2))
                self.scan_mib.append(round((self.scans.read_bytes() - read) / MIB))


class Agent:
    """hither, attached to the server's cgroup."""

    def __init__(self, arguments, group):
        work = arguments.work
        told = work / "notify"
        told.unlink(missing_ok=True)
        self.held = {kind: set() for kind in OBJECTS.values()}
        self.processes = set()
        environment = dict(os.environ, NOTIFY_SOCKET=str(told))
        environment |= {"XDG_RUNTIME_DIR": str(work / "runtime"), "TMPDIR": str(work / "tmp")}
        words = [arguments.hither, "run", "--page-cache", "--json", "--cgroup", group.path]
        self.log = open(work / "agent.log", "w+")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
            notified.bind(str(told))
            notified.settimeout(60)
            words = [str(word) for word in words]
            self.process = subprocess.Popen(words, env=environment, stderr=self.log)
            before = time.monotonic()
            assert notified.recv(100) == b"READY=1"
            self.ready_s = round(time.monotonic() - before, 2)
        self.pid = self.process.pid

    def sample(self):
        if self.process.poll() is not None:
            return {"ended": self.process.returncode, "says": self.says()[-500:]}
        proc = Path(f"/proc/{self.pid}")
        status = (proc / "status").read_text()
        rss_kib = int(status.split("VmRSS:")[1].split()[0])
        stat = (proc / "stat").read_text().rsplit(")", 1)[1].split()
        descriptors = os.listdir(proc / "fd")
        now = {kind: set() for kind in OBJECTS.values()}
        for info in glob.glob(f"{proc}/fdinfo/*"):
            try:
                lines = Path(info).read_text().splitlines()
            except FileNotFoundError:
                continue
            for line in lines:
                name, _, value = line.partition(":")
                if name in OBJECTS:
                    now[OBJECTS[name]].add(int(value))
        for kind, ids in now.items():
            self.held[kind] |= ids
        self.processes |= {self.pid, *descendants(self.pid)}
        return {
            "rss_kib": rss_kib,
            "fds": len(descriptors),
            "cpu_s": round((int(stat[11]) + int(stat[12])) / TICKS_HZ, 2),
            "threads": int(status.split("Threads:")[1].split()[0]),
            **{f"held_{kind}s": len(ids) for kind, ids in now.items()},
        }

    def says(self):
        self.log.seek(0)
        return self.log.read()

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait()
        said = self.says()
        self.log.close()
        return said

    def left(self):
        """What is left of it now that it has ended."""
        found = {}
        for kind, ids in self.held.items():
            found[f"{kind}s"] = len(ids & bpf_ids(kind))
        found["processes"] = sum(Path(f"/proc/{pid}").exists() for pid in self.processes)
        return found


def forget(path):
    """Drops what is cached of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def descendants(pid):
    found = set()
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        for child in Path(path).read_text().split():
            found |= {int(child), *descendants(int(child))}
    return found


class World:
    """What an agent could change outside of itself."""

    def __init__(self, arguments, group):
        self.arguments, self.group = arguments, group
        self.before = self.state()

    def state(self):
        """Settings by name, and files whose names say that they are hither's."""
        settings = self.group.settings()
        # Who mounts an image changes its loop device.
        readahead = glob.glob("/sys/block/[!l]*/queue/read_ahead_kb")
        for path in [*glob.glob("/proc/sys/vm/*"), *readahead]:
            try:
                settings[path] = Path(path).read_text()
            except OSError:
                continue
        for name in ["kprobe_events", "uprobe_events"]:
            path = Path("/sys/kernel/tracing") / name
            settings[str(path)] = path.read_text() if path.exists() else ""
        work = self.arguments.work
        files = []
        for root in [work / "runtime", work / "tmp"]:
            files += [str(path.relative_to(work)) for path in root.rglob("*")]
        for folder in ["/dev/shm", "/sys/fs/bpf"]:
            files += [f"{folder}/{name}" for name in sorted(os.listdir(folder))]
        return settings, sorted(files)

    def changed(self):
        settings, files = self.state()
        changes = [
            f"{name}: {self.before[0].get(name)!r} -> {value!r}"
            for name, value in settings.items()
            if value != self.before[0].get(name)
        ]
        return {"settings": changes, "files": sorted(set(files) - set(self.before[1]))}


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.start = time.monotonic()
        for name in ["runtime", "tmp"]:
            shutil.rmtree(arguments.work / name, ignore_errors=True)
            (arguments.work / name).mkdir(mode=0o700)
        self.server = Server(arguments.work)
        self.group = Group(arguments.group_mib)
        for pid in [self.server.pid, *descendants(self.server.pid)]:
            self.group.enter(pid)
        # What is cached now was charged to another cgroup, and would not count in this one.
        os.sync()
        for path in (arguments.work / "postgres" / "data" / "base").rglob("*"):
            if path.is_file():
                forget(path)

    def note(self, what, **fields):
        line = {"t_s": round(time.monotonic() - self.start, 1), "what": what, **fields}
        if self.arguments.raw:
            with open(self.arguments.raw, "a") as raw:
                raw.write(json.dumps(line) + "\n")
        return line

    def machine(self):
        """How many BPF programs and maps the machine has more than before."""
        kinds = ["prog", "map"]
        return {f"more_{kind}s": len(bpf_ids(kind)) - self.counted[kind] for kind in kinds}

    def run(self):
        arguments = self.arguments
        load = Load(self.server)
        self.world = World(arguments, self.group)
        self.counted = {kind: len(bpf_ids(kind)) for kind in OBJECTS.values()}
        version = output(arguments.hither, "--version").strip()
        self.note(
            "start",
            hither=version,
            kernel=os.uname().release,
            group_mib=arguments.group_mib,
            table_mib=round(load.size / MIB),
            bpf=self.counted,
            at=time.strftime("%H:%M:%S"),
        )
        load.start()
        end = self.start + arguments.minutes * 60
        while time.monotonic() < end:
            agent = Agent(arguments, self.group)
            self.note("attached", ready_s=agent.ready_s, **agent.sample(), **load.take())
            killed_at = min(time.monotonic() + arguments.kill_every * 60, end)
            while (rest := killed_at - time.monotonic()) > 0:
                time.sleep(min(rest, arguments.every))
                self.note("sample", **agent.sample(), **self.machine(), **load.take())
            is_last = time.monotonic() + 1 >= end
            said = agent.end(signal.SIGINT if is_last else signal.SIGKILL)
            before = time.monotonic()
            left = agent.left()
            while any(left.values()) and time.monotonic() < before + LEAVE_S:
                time.sleep(0.1)
                left = agent.left()
            gone_s = round(time.monotonic() - before, 2)
            changed = self.world.changed()
            self.note(
                "ended" if is_last else "killed",
                left=left,
                gone_s=gone_s,
                **changed,
                **({"says": said} if is_last else {}),
            )
        time.sleep(SCAN_EVERY_S + 2)
        self.note("alone", **self.machine(), **load.take())
        load.is_over.set()
        load.join()
        log = (self.server.folder / "log").read_text()
        errors = [line for line in log.splitlines() if "ERROR" in line or "PANIC" in line]
        self.note("end", at=time.strftime("%H:%M:%S"), errors=errors[:5], **self.world.changed())

    def close(self):
        self.server.stop()
        self.group.remove()


def summarize(path):
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    attached = [n for n, line in enumerate(lines) if line["what"] == "attached"]
    first = [lines[n + 1] for n in attached if n + 1 < len(lines)]
    samples = [line for line in lines if line["what"] == "sample"]
    killed = [line for line in lines if line["what"] == "killed"]
    ended = [line for line in lines if line["what"] in ("killed", "ended")]
    last = [lines[n - 1] for n, line in enumerate(lines) if line["what"] in ("killed", "ended")]

    def span(of, name, unit=None):
        found = [line[name] / unit if unit else line[name] for line in of if name in line]
        if not found:
            return "none"
        digits = 2 if isinstance(found[0], float) else 0
        return f"{min(found):.{digits}f} to {max(found):.{digits}f}"

    def total(name):
        return sum(line.get(name, 0) for line in lines)

    scans = [mib for line in lines for mib in line.get("scan_read_mib", [])]
    start = lines[0]
    left = [sum(line["left"].values()) for line in ended]
    settings = [[name for name in line["settings"] if "/loop" not in name] for line in ended]
    # What its users see of it, which the next run removes. In /dev/shm are those of other runs.
    seen = [sum(name.endswith(".json") for name in line["files"]) for line in ended]
    others = [
        sum(not re.match("runtime/hither|/dev/shm/hither-runs", name) for name in line["files"])
        for line in ended
    ]
    cpu = [line["cpu_s"] for line in last if "cpu_s" in line]
    rows = [
        ("time, min", round(lines[-1]["t_s"] / 60, 1)),
        ("agents started; killed", f"{len(attached)}; {len(killed)}"),
        ("samples; of these, agent had ended by itself", f"{len(samples)}; "
         f"{sum('ended' in line for line in samples)}"),
        ("agent ready after, s", span([lines[n] for n in attached], "ready_s")),
        ("agent's memory in its first sample, MiB", span(first, "rss_kib", 1024)),
        ("agent's memory in its last sample, MiB", span(last, "rss_kib", 1024)),
        ("agent's descriptors, first; last", f"{span(first, 'fds')}; {span(last, 'fds')}"),
        ("agent's CPU time, all, s", round(sum(cpu), 1)),
        ("BPF programs; maps; links that it holds",
         "; ".join(span(samples, f"held_{kind}s") for kind in OBJECTS.values())),
        ("most BPF programs; maps of the machine beyond those before",
         "; ".join(str(max([line[f"more_{kind}s"] for line in samples], default=0))
                   for kind in ["prog", "map"])),
        ("lookups; scans; wrong answers",
         f"{total('lookups')}; {total('scans')}; {total('wrong')}"),
        ("read from storage by a scan, median, MiB of " + str(start["table_mib"]),
         statistics.median(scans) if scans else "none"),
        ("ends after which BPF objects or processes were left", sum(n > 0 for n in left)),
        ("until they were gone, s", span(ended, "gone_s")),
        ("ends after which a setting of the cgroup, of vm.* or of a disk differed",
         sum(map(bool, settings))),
        ("files of `hither top` in the runtime folder: most after a kill; after the last end",
         f"{max(seen)}; {seen[-1]}"),
        ("other files in its runtime and temporary folders, /dev/shm, /sys/fs/bpf, most",
         max(others)),
        ("errors in the server's log", len(lines[-1].get("errors", []))),
    ]
    print("| what | found |\n|---|--:|")
    for name, value in rows:
        print(f"| {name} | {value} |")
    differ = {name for line in ended for name in line["files"] + line["settings"]}
    differ = {name for name in differ if not re.search(r"hither/\d+[.]json", name)}
    print("\nDiffered after an end: " + (", ".join(sorted(differ)) or "nothing"))


def shorten(path, target):
    """Leaves out what is empty, and what the table does not need."""
    with open(target, "w") as out:
        for line in Path(path).read_text().splitlines():
            line = json.loads(line)
            if line["what"] == "sample":
                for name in ["threads", "scan_s", "p99_us"]:
                    line.pop(name, None)
                shown = lambda name, value: name == "ended" or value not in (0, [])
                line = {name: value for name, value in line.items() if shown(name, value)}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--for", "--minutes", dest="minutes", type=float, default=120)
    parser.add_argument("--kill-every", type=float, default=5, help="minutes")
    parser.add_argument("--every", type=float, default=10, help="seconds between samples")
    parser.add_argument("--group-mib", type=int, default=GROUP_MIB)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--summarize", type=Path, help="an earlier run's --raw")
    parser.add_argument("--shorten", type=Path, help="writes its lines, shorter, to this file")
    arguments = parser.parse_args()
    if arguments.summarize:
        summarize(arguments.summarize)
        if arguments.shorten:
            shorten(arguments.summarize, arguments.shorten)
        return
    if not (arguments.hither and arguments.work and arguments.raw):
        parser.error("--hither, --work and --raw are needed")
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    soak = Soak(arguments)
    try:
        soak.run()
    finally:
        soak.close()
    summarize(arguments.raw)


if __name__ == "__main__":
    main()
