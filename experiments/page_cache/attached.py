#!/usr/bin/env python3
"""What hither saves where it is attached to programs that run already.

Loads in a memory cgroup that is smaller than their files: a static program that reads a file again
and again, by calls or through a mapping; lookups at random in an LMDB database, which is mapped,
too; and a PostgreSQL server whose clients scan one table again and again beside lookups by key in
another. Two ways take turns: alone, and with `hither run --cgroup` attached to what runs.

Of each run: the bytes that the programs read from storage (/proc/PID/io of the parent, with the
children that it has waited for), the time, for PostgreSQL the lookups' 99th percentile, and the
agent's CPU time.

Needs root, a memory cgroup of version 1, gcc, liblmdb, and PostgreSQL. Prints Markdown; appends all
runs as JSON lines to --raw.

    python3 attached.py --hither target/release/hither --work /var/tmp/attached --rounds 3 \\
        --raw runs.jsonl
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

MIB = 1 << 20
WAYS = ["alone", "attached"]
FILE_MIB, FILE_GROUP_MIB, PASSES = 384, 256, 6
SERVER_GROUP_MIB, ROWS, SCANS, LOOKUPS_S = 256, 4_000_000, 8, 5

READER = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
static char buffer[1 << 16];
int main(int count, char **words) {
    for (int pass = 0; pass < atoi(words[2]); pass++) {
        int file = open(words[1], O_RDONLY);
        while (read(file, buffer, sizeof buffer) > 0) {}
        close(file);
    }
    return 0;
}
"""

MAPPED = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
int main(int count, char **words) {
    struct stat about;
    int file = open(words[1], O_RDONLY);
    fstat(file, &about);
    volatile char *all = mmap(0, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    for (int pass = 0; pass < atoi(words[2]); pass++) {
        for (long at = 0; at < about.st_size; at += 4096) (void)all[at];
    }
    return 0;
}
"""

# The first argument is the folder; without another one, entries are written.
LMDB = """
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
static char value[1000];
int main(int count, char **words) {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi db;
    int is_new = count == 2;
    mdb_env_create(&env);
    mdb_env_set_mapsize(env, 2l << 30);
    if (mdb_env_open(env, words[1], is_new ? MDB_NOSYNC : MDB_RDONLY, 0600)) return 1;
    if (mdb_txn_begin(env, 0, is_new ? 0 : MDB_RDONLY, &txn)) return 1;
    if (mdb_dbi_open(txn, 0, MDB_INTEGERKEY, &db)) return 1;
    srandom(1);
    for (unsigned i = 0; i < (is_new ? ENTRIES : atoi(words[2])); i++) {
        unsigned key = is_new ? i : random() % ENTRIES;
        MDB_val k = {sizeof key, &key}, v = {sizeof value, value};
        if (is_new ? mdb_put(txn, db, &k, &v, MDB_APPEND) : mdb_get(txn, db, &k, &v)) return 1;
    }
    if (is_new) {
        if (mdb_txn_commit(txn)) return 1;
        mdb_env_sync(env, 1);
    }
    return 0;
}
"""
ENTRIES, GETS = 300_000, 4_000


def quiet(*words, **options):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, **options)


def stored(pid):
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split("\nread_bytes: ")[1].split()[0])


class Group:
    """A memory cgroup of version 1."""

    def __init__(self, mib):
        self.path = Path("/sys/fs/cgroup/memory") / f"attached-{os.getpid()}"
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(mib * MIB))

    def enter(self, pid=None):
        (self.path / "cgroup.procs").write_text(str(pid or os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                (self.path / "memory.force_empty").write_text("0")
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def attach(arguments, group):
    """Attaches hither, and returns it once it has begun."""
    told = arguments.work / "notify"
    told.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(told))
        words = [arguments.hither, "run", "--json", "--cgroup", group.path]
        agent = subprocess.Popen(
            [str(word) for word in words],
            env=dict(os.environ, NOTIFY_SOCKET=str(told)),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert notified.recv(100) == b"READY=1"
    return agent


def detach(agent):
    agent.send_signal(signal.SIGINT)
    figures = json.loads(agent.communicate()[1].splitlines()[-1])
    assert agent.returncode == 0
    return {
        "agent_s": round(figures["agent_ns"] / 1e9, 2),
        "told_mib": round(figures["storage_bytes"] / MIB),
        "stopped": figures["times_stopped"],
        "lost": figures["accesses_lost"],
    }


def compiled(work, name, source, *flags):
    program = work / name
    if not program.exists():
        (work / f"{name}.c").write_text(source)
        quiet("gcc", "-O1", "-o", program, work / f"{name}.c", *flags)
    return program


def reader(arguments, way):
    return passes(arguments, way, compiled(arguments.work, "reader", READER, "-static"))


def mapped(arguments, way):
    return passes(arguments, way, compiled(arguments.work, "mapped", MAPPED, "-static"))


def passes(arguments, way, program):
    data = arguments.work / "data"
    if not data.exists():
        data.write_bytes(os.urandom(FILE_MIB * MIB))
        os.sync()
    return ran(arguments, way, data, [program, data, PASSES])


def lmdb(arguments, way):
    flags = [f"-DENTRIES={ENTRIES}", "-llmdb"]
    program = compiled(arguments.work, "lookups", LMDB, *flags)
    folder = arguments.work / "lmdb"
    if not folder.exists():
        folder.mkdir()
        quiet(program, folder)
    return ran(arguments, way, folder / "data.mdb", [program, folder, GETS])


def ran(arguments, way, data, command):
    """What a command reads of a file that is not cached before."""
    descriptor = os.open(data, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    group = Group(FILE_GROUP_MIB)
    stopped = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *command]
    before = stored("self")
    child = subprocess.Popen([str(word) for word in stopped], preexec_fn=group.enter)
    os.waitpid(child.pid, os.WUNTRACED)
    agent = attach(arguments, group) if way == "attached" else None
    start = time.monotonic()
    child.send_signal(signal.SIGCONT)
    assert child.wait() == 0
    wall = time.monotonic() - start
    # The agent is a child, too, and has read its program before.
    run = {"read_mib": round((stored("self") - before) / MIB), "wall_s": round(wall, 2)}
    if agent:
        run |= detach(agent)
    group.remove()
    return run


class Server:
    """PostgreSQL with two tables of ROWS rows."""

    def __init__(self, work):
        self.folder = work / "postgres"
        self.binaries = sorted(Path("/usr/lib/postgresql").iterdir())[-1] / "bin"
        self.port = 20000 + os.getpid() % 20000
        is_new = not self.folder.exists()
        if is_new:
            self.folder.mkdir()
            shutil.chown(self.folder, "postgres", "postgres")
            self.as_user(self.binaries / "initdb", "-D", self.folder / "data", "-A", "trust")
        # Few, and small: all that matters is the page cache.
        options = f"-p {self.port} -c shared_buffers=16MB -k {self.folder} -c listen_addresses="
        options += " -c autovacuum=off -c max_parallel_workers_per_gather=0"
        pg_ctl = [self.binaries / "pg_ctl", "-D", self.folder / "data", "-w", "-l"]
        self.as_user(*pg_ctl, self.folder / "log", "-o", options, "start")
        if is_new:
            rows = f"generate_series(1, {ROWS}) i"
            for table in ["scanned", "looked_up"]:
                self.sql(f"create table {table} as select i, md5(i::text) as a from {rows}")
                self.sql(f"vacuum analyze {table}")
            self.sql("create unique index on looked_up (i)")
            self.sql("checkpoint")
        self.pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])

    def as_user(self, *words):
        quiet("runuser", "-u", "postgres", "--", *words, cwd="/")

    def psql(self, *words):
        psql = ["psql", "-h", self.folder, "-p", self.port, "-q", "-d", "postgres", *words]
        return ["runuser", "-u", "postgres", "--", *[str(word) for word in psql]]

    def sql(self, text):
        quiet(*self.psql("-c", text), cwd="/")

    def stop(self):
        pg_ctl = [self.binaries / "pg_ctl", "-D", self.folder / "data", "-w", "-m", "fast"]
        self.as_user(*pg_ctl, "stop")


def server(arguments, way):
    running, group = Server(arguments.work), Group(SERVER_GROUP_MIB)
    try:
        return served(arguments, way, running, group)
    finally:
        running.stop()
        group.remove()


def served(arguments, way, running, group):
    work = arguments.work
    quiet("sh", "-c", "sync; echo 1 > /proc/sys/vm/drop_caches")
    for pid in [running.pid, *children(running.pid)]:
        group.enter(pid)
    agent = attach(arguments, group) if way == "attached" else None
    before, start = stored(running.pid), time.monotonic()
    script = work / "lookup.sql"
    script.write_text(
        f"\\set key random(1, {ROWS // 8})\nselect a from looked_up where i = :key;\n"
    )
    logs = work / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    shutil.chown(logs, "postgres", "postgres")
    bench = [running.binaries / "pgbench", "-n", "-f", script, "-R", 200, "-T", LOOKUPS_S, "-l"]
    bench += ["--log-prefix", logs / "log", "-h", running.folder, "-p", running.port, "postgres"]
    bench = ["runuser", "-u", "postgres", "--", *[str(word) for word in bench]]
    beside = subprocess.Popen(
        bench, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    for _ in range(SCANS):
        running.sql("select count(*) from scanned where a like '%abcdef'")
    wall = time.monotonic() - start
    assert beside.wait() == 0
    # The backends have ended when the server has waited for them.
    time.sleep(0.5)
    run = {"read_mib": round((stored(running.pid) - before) / MIB), "wall_s": round(wall, 2)}
    took = []
    for log in logs.iterdir():
        took += [int(line.split()[2]) for line in log.read_text().splitlines()]
    took.sort()
    run["p99_us"] = took[len(took) * 99 // 100] if took else None
    if agent:
        run |= detach(agent)
    return run


def children(pid):
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in found.split()]


LOADS = {"reader": reader, "mapped": mapped, "lmdb": lmdb, "postgres": server}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    runs = []
    loads = arguments.loads.split(",")
    for _ in range(arguments.rounds):
        for load in loads:
            for way in WAYS:
                run = {"load": load, "way": way, **LOADS[load](arguments, way)}
                runs.append(run)
                print(run, file=sys.stderr, flush=True)
                if arguments.raw:
                    with open(arguments.raw, "a") as raw:
                        raw.write(json.dumps(run) + "\n")
    print("| load | way | read, MiB | wall, s | p99 of lookups, us | agent, s of CPU |")
    print("|---|---|--:|--:|--:|--:|")
    for load in loads:
        for way in WAYS:
            of = [run for run in runs if (run["load"], run["way"]) == (load, way)]

            def middle(name):
                found = [run[name] for run in of if run.get(name) is not None]
                return statistics.median(found) if found else ""

            print(
                f"| {load} | {way} | {middle('read_mib')} | {middle('wall_s')} "
                f"| {middle('p99_us')} | {middle('agent_s')} |"
            )


if __name__ == "__main__":
    main()
