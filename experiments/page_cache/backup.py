#!/usr/bin/env python3
"""What a backup does to the page cache of a database beside it.

A victim reads blocks of 8 KiB at random from its file, all of which is cached when it starts. A
backup runs beside it in the same memory cgroup, which holds the victim's file and some more, but
not what the backup reads and writes. Five ways take turns: plain; under nocache; under
`hither run --no-cache`, by the library in the backup and by the kernel's events; and with
`hither run --no-cache -p` attached to a backup that was started without hither.

Of each run: the share of the victim's reads that storage did not serve (by /proc/PID/io), the time
that 99 in 100 of them take at most, what is cached afterwards of the victim's file, of the source
and of the target (fincore), and the backup's time and CPU time, the agent's included.

Needs root, a memory cgroup of version 1, and what it runs: tar, rsync, cp, restic, PostgreSQL,
nocache, fincore. Prints Markdown; appends all runs as JSON lines to --raw.

    python3 backup.py --hither target/release/hither --work /tmp/backup --rounds 3 --raw runs.jsonl
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

MIB = 1 << 20
BLOCK = 8192
LARGE_FILES, LARGE_MIB = 12, 64
SMALL_FILES, SMALL_BYTES = 3000, 16384
VICTIM_MIB = 192
GROUP_MIB = 448
TABLE_ROWS = 2_500_000
WAYS = ["plain", "nocache", "library", "kernel", "attached"]


def quiet(*words, **options):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, **options)


def files_below(path):
    if path.is_file():
        return [path]
    return sorted(found for found in path.rglob("*") if found.is_file()) if path.exists() else []


def drop(path):
    for file in files_below(path):
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            continue  # The server removes files of its own.
        os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def cached_mib(path):
    files = files_below(path)
    total = 0
    for start in range(0, len(files), 500):
        words = [
            "fincore",
            "--bytes",
            "--noheadings",
            "--output",
            "RES",
            *files[start : start + 500],
        ]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        total += sum(int(line) for line in told.split())
    return round(total / MIB, 1)


def make_source(path):
    if path.exists():
        return
    path.mkdir()
    for number in range(LARGE_FILES):
        with open(path / f"large-{number}", "wb") as file:
            for _ in range(LARGE_MIB):
                file.write(os.urandom(MIB))
    for number in range(SMALL_FILES):
        folder = path / f"small-{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / str(number)).write_bytes(os.urandom(SMALL_BYTES))
    os.sync()


class Group:
    """A memory cgroup of version 1."""

    def __init__(self, mib):
        self.path = Path("/sys/fs/cgroup/memory") / f"backup-{os.getpid()}"
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(mib * MIB))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        (self.path / "memory.force_empty").write_text("0")
        self.path.rmdir()


def victim(path, stop, reads_each_second):
    """Reads blocks at random until there is a file `stop`. Prints how many, and the bytes that
    storage served."""
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    blocks = os.fstat(descriptor).st_size // BLOCK
    for block in range(blocks):
        os.pread(descriptor, BLOCK, block * BLOCK)
    chance = random.Random(1)

    def stored():
        text = Path("/proc/self/io").read_text()
        return int(text.split("\nread_bytes: ")[1].split()[0])

    before = stored()
    print("cached", flush=True)
    took = []
    while not stop.exists():
        for _ in range(reads_each_second // 50):
            block = chance.randrange(blocks)
            start = time.perf_counter_ns()
            os.pread(descriptor, BLOCK, block * BLOCK)
            took.append(time.perf_counter_ns() - start)
        time.sleep(0.02)
    took.sort()
    told = {
        "reads": len(took),
        "stored": stored() - before,
        "p99_us": round(took[len(took) * 99 // 100] / 1000, 1),
        "p999_us": round(took[len(took) * 999 // 1000] / 1000, 1),
    }
    print(json.dumps(told), flush=True)


def postgres(work):
    """A server with a table; its folder, the user's environment and the port."""
    folder = work / "postgres"
    binaries = sorted(Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
    if not folder.exists():
        folder.mkdir()
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
        quiet(*as_user, binaries / "initdb", "-D", folder / "data", "-A", "trust", cwd="/")
    port = 20000 + os.getpid() % 20000
    start = f"-p {port} -c shared_buffers=16MB -k {folder} -c listen_addresses="
    quiet(
        "runuser",
        "-u",
        "postgres",
        "--",
        binaries / "pg_ctl",
        "-D",
        folder / "data",
        "-w",
        "-l",
        folder / "log",
        "-o",
        start,
        "start",
        cwd="/",
    )
    psql = ["runuser", "-u", "postgres", "--", "psql", "-h", folder, "-p", port, "-q", "-c"]
    rows = f"generate_series(1, {TABLE_ROWS})"
    quiet(
        *psql,
        "set client_min_messages = error; create table if not exists t as select i, md5(i::text)"
        f" || md5((-i)::text) as a from {rows} i",
        cwd="/",
    )
    quiet(*psql, "vacuum t", cwd="/")
    stop = [
        "runuser",
        "-u",
        "postgres",
        "--",
        binaries / "pg_ctl",
        "-D",
        folder / "data",
        "-w",
        "-m",
        "fast",
        "stop",
    ]
    return folder, port, [str(word) for word in stop]


def under(way, hither, command):
    return {
        "plain": [],
        "nocache": ["nocache"],
        "library": [str(hither), "-q", "run", "--no-cache", "--seen-by=library", "--"],
        "kernel": [str(hither), "-q", "run", "--no-cache", "--seen-by=kernel", "--"],
        # It goes on once hither is attached.
        "attached": ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"],
    }[way] + command


def attach(hither, pid, work):
    """Attaches hither, and returns it once it has begun."""
    told = work / "notify"
    told.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(told))
        words = [str(hither), "-q", "run", "--no-cache", "-p", str(pid)]
        agent = subprocess.Popen(words, env=dict(os.environ, NOTIFY_SOCKET=str(told)))
        assert notified.recv(100) == b"READY=1"
    return agent


def run(program, way, arguments, group):
    work, source, target = arguments.work, arguments.work / "source", arguments.work / "target"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    environment = dict(
        os.environ,
        RESTIC_PASSWORD="x",
        RESTIC_REPOSITORY=str(target / "repository"),
        RESTIC_CACHE_DIR=str(work / "restic-cache"),
    )
    if program == "restic":
        shutil.rmtree(work / "restic-cache", ignore_errors=True)
        quiet("restic", "init", env=environment)
    if program == "pg_dump":
        shutil.chown(target, "postgres", "postgres")
    drop(source)
    drop(work / "postgres" / "data" / "base")
    drop(work / "victim")
    words = {
        "tar": ["tar", "cf", target / "a.tar", source],
        "rsync": ["rsync", "-a", f"{source}/", target / "copy/"],
        "cp": ["cp", "-r", source, target / "copy"],
        "restic": ["restic", "backup", "-q", source],
        "pg_dump": [
            "pg_dump",
            "-h",
            work / "postgres",
            "-p",
            arguments.port,
            "-U",
            "postgres",
            "-f",
            target / "a.sql",
            "postgres",
        ],
    }[program]
    command = under(way, arguments.hither, [str(word) for word in words])
    if program == "pg_dump":
        command = ["runuser", "-u", "postgres", "--", *command]
    stop = work / "stop"
    stop.unlink(missing_ok=True)
    me = [sys.executable, __file__, "--victim", work / "victim", "--stop", stop]
    beside = subprocess.Popen(
        [str(word) for word in me], stdout=subprocess.PIPE, text=True, preexec_fn=group.enter
    )
    assert beside.stdout.readline() == "cached\n"
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    backup = subprocess.Popen(
        command, env=environment, cwd="/", preexec_fn=group.enter, stdout=subprocess.DEVNULL
    )
    agent = None
    if way == "attached":
        agent = attach(arguments.hither, backup.pid, work)
        start = time.monotonic()
        backup.send_signal(signal.SIGCONT)
    assert backup.wait() == 0
    if agent:
        assert agent.wait() == 0
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    left = {
        "victim_mib": cached_mib(work / "victim"),
        "source_mib": cached_mib(
            work / "postgres" / "data" / "base" if program == "pg_dump" else source
        ),
        "target_mib": cached_mib(target),
    }
    # What was evicted is missed from here on, too.
    time.sleep(2)
    stop.touch()
    told = json.loads(beside.stdout.readline())
    beside.wait()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    hits = 1 - told["stored"] / max(told["reads"] * BLOCK, 1)
    return {
        "program": program,
        "way": way,
        "hits": round(hits, 4),
        **left,
        "wall": round(wall, 2),
        "cpu": round(cpu, 2),
        **told,
        "load": round(os.getloadavg()[0], 1),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", default="tar,rsync,cp,restic,pg_dump")
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--victim", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--stop", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.victim:
        victim(arguments.victim, arguments.stop, 1000)
        return
    arguments.hither = arguments.hither.resolve()
    arguments.work = work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    programs = arguments.programs.split(",")
    make_source(work / "source")
    if not (work / "victim").exists():
        (work / "victim").write_bytes(os.urandom(VICTIM_MIB * MIB))
    arguments.port, stop_server = None, None
    if "pg_dump" in programs:
        _, arguments.port, stop_server = postgres(work)
    group = Group(GROUP_MIB)
    runs = []
    try:
        for _ in range(arguments.rounds):
            for program in programs:
                for way in WAYS:
                    runs.append(run(program, way, arguments, group))
                    print(runs[-1], file=sys.stderr, flush=True)
                    if arguments.raw:
                        with open(arguments.raw, "a") as raw:
                            raw.write(json.dumps(runs[-1]) + "\n")
    finally:
        if stop_server:
            quiet(*stop_server, cwd="/")
        group.remove()
    print(
        "| program | way | victim's hits | p99, us | p99.9, us | victim, MiB | source, MiB "
        "| target, MiB | wall, s | CPU, s |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for program in programs:
        for way in WAYS:
            of = [run for run in runs if (run["program"], run["way"]) == (program, way)]

            def middle(name):
                return statistics.median(run[name] for run in of)

            print(
                f"| {program} | {way} | {middle('hits'):.3f} | {middle('p99_us'):.0f} "
                f"| {middle('p999_us'):.0f} | {middle('victim_mib'):.0f} "
                f"| {middle('source_mib'):.0f} | {middle('target_mib'):.0f} "
                f"| {middle('wall'):.1f} | {middle('cpu'):.1f} |"
            )


if __name__ == "__main__":
    main()
