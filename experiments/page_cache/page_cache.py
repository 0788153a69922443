#!/usr/bin/env python3
"""Bytes read from storage and wall time of programs whose loops are larger than their memory
cgroup: with the kernel's page cache alone, with hither run --page-cache and each policy, and the
optimum by hither sim.

Programs with loops: passes over a file of twice the limit; queries in one cscope session over the
index of a kernel source tree; table scans by sqlite and by PostgreSQL; a reader that shuffles the
records of a file anew in each epoch; cscope and g++ at the same time. Programs without a gain, run
plain and with pcc only: g++, and random reads of 4 KiB by Zipf's law.

Each run has its own cgroup (version 1 or 2; needs root) and starts with none of its files cached.
All modes take turns within a round, and each round begins with another mode. The optimum is for the
budget of the runs with pcc at their end, in blocks of 16 KiB. Prints Markdown.

Needs Debian's g++, cscope, sqlite3, postgresql and linux-source-6.1 (some 6 GB of disk). Missing
packages are installed by apt-get.

    python3 page_cache.py --hither target/release/hither --work /tmp/page_cache --rounds 3
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
# The kernel writes back within 35 s (vm.dirty_expire_centisecs, and 5 s).
WRITTEN_BACK_S = 60
POLICIES = ["lru", "ubm", "arc", "pcc"]
FOLDERS = ["block", "drivers", "fs", "include", "ipc", "kernel", "lib", "mm", "net", "sound"]
QUERIES = (
    "0vfs_read\n1kmalloc\n3schedule\n0page_cache_alloc\n3mutex_lock\n"
    "0EXPORT_SYMBOL_GPL\n2tcp_sendmsg\n0readahead\nq\n"
)
PASSES = """
# include <fcntl.h>
# include <stdlib.h>
# include <unistd.h>
int main(int count, char **words) {
    size_t size = atol(words[3]);
    char *buffer = malloc(size);
    int file = open(words[1], O_RDONLY);
    for (int pass = 0; pass < atoi(words[2]); pass++) {
        off_t offset = 0;
        for (ssize_t got; (got = pread(file, buffer, size, offset)) > 0; offset += got) {}
    }
    return 0;
}
"""


# Reads of one size at offsets that are shuffled anew each epoch, or drawn by Zipf's law.
JUMPS = """
# include <fcntl.h>
# include <math.h>
# include <stdint.h>
# include <stdlib.h>
# include <string.h>
# include <unistd.h>
static uint64_t state = 88172645463325252u;
static uint64_t next(void) {
    state ^= state << 13; state ^= state >> 7; state ^= state << 17;
    return state;
}
int main(int count, char **words) {
    long size = atol(words[3]), times = atol(words[4]);
    int file = open(words[1], O_RDONLY);
    long records = lseek(file, 0, SEEK_END) / size;
    long *order = malloc(records * sizeof *order);
    char *buffer = malloc(size);
    for (long at = 0; at < records; at++) order[at] = at;
    int epochs = !strcmp(words[2], "epochs");
    for (long epoch = 0; epoch < (epochs ? times : 1); epoch++) {
        for (long at = records - 1; at > 0; at--) {
            long other = next() % (at + 1), swapped = order[at];
            order[at] = order[other]; order[other] = swapped;
        }
        for (long at = 0; epochs && at < records; at++) pread(file, buffer, size, order[at] * size);
    }
    for (long draw = 0; !epochs && draw < times; draw++) {
        long rank = pow(records + 1, (next() >> 11) * 0x1p-53) - 1;
        pread(file, buffer, size, order[rank] * size);
    }
    return 0;
}
"""
HEADERS = "#include <bits/stdc++.h>\nint main() {}\n"


@dataclass
class Workload:
    name: str
    command: str
    files: list[Path]
    limit_mib: int
    loops: bool = True
    # What a command begins with that is to run as another user.
    user: tuple[str, ...] = ()


def install(programs: dict[str, str]) -> None:
    missing = [
        package
        for program, package in programs.items()
        if not (shutil.which(program) or Path(program).exists())
    ]
    if missing:
        subprocess.run(["apt-get", "update", "-q"], check=True, stdout=sys.stderr)
        subprocess.run(["apt-get", "install", "-qy", *missing], check=True, stdout=sys.stderr)


def tree(work: Path) -> Path:
    """The kernel's source, unpacked from Debian's package."""
    package = Path("/usr/src/linux-source-6.1.tar.xz")
    install({str(package): "linux-source-6.1"})
    unpacked = work / "linux-source-6.1"
    if not unpacked.exists():
        subprocess.run(["tar", "xf", str(package), "-C", str(work)], check=True)
    return unpacked


def big(work: Path) -> Path:
    """A file of 512 MiB."""
    data = work / "passes.data"
    if not data.exists():
        with data.open("wb") as file:
            for _ in range(512):
                file.write(os.urandom(MIB))
    return data


def built(work: Path, name: str, source: str) -> Path:
    install({"gcc": "gcc"})
    program = work / name
    subprocess.run(
        ["gcc", "-O1", "-x", "c", "-o", str(program), "-", "-lm"],
        input=source,
        text=True,
        check=True,
    )
    return program


def passes(work: Path) -> Workload:
    data = big(work)
    return Workload("passes", f"{built(work, 'passes', PASSES)} {data} 6 65536", [data], 256)


def epochs(work: Path) -> Workload:
    data = big(work)
    return Workload("epochs", f"{built(work, 'jumps', JUMPS)} {data} epochs 131072 6", [data], 256)


def zipf(work: Path) -> Workload:
    data = big(work)
    return Workload(
        "zipf", f"{built(work, 'jumps', JUMPS)} {data} zipf 4096 400000", [data], 256, loops=False
    )


def gcc(work: Path) -> Workload:
    install({"g++": "g++"})
    source = work / "headers.cc"
    source.write_text(HEADERS)
    headers = [path for path in Path("/usr/include/c++").rglob("*") if path.is_file()]
    command = "for time in 1 2 3 4 5 6; do g++ -fsyntax-only " + str(source) + "; done"
    return Workload("gcc", command, headers, 256, loops=False)


def both(work: Path) -> Workload:
    one, other = cscope(work), gcc(work)
    command = "{ " + one.command + "; } & { " + other.command + "; } & wait"
    return Workload(
        "cscope and gcc", command, one.files + other.files, one.limit_mib + other.limit_mib
    )


def cscope(work: Path) -> Workload:
    install({"cscope": "cscope"})
    index, names, queries = work / "cscope.out", work / "cscope.files", work / "queries"
    queries.write_text(QUERIES)
    if not index.exists():
        source = tree(work)
        sources = [
            str(path) for folder in FOLDERS for path in sorted((source / folder).rglob("*.[chS]"))
        ]
        names.write_text("\n".join(sources) + "\n")
        subprocess.run(
            ["cscope", "-b", "-k", "-i", str(names), "-f", str(index)],
            check=True,
            stderr=subprocess.DEVNULL,
        )
    half = index.stat().st_size // 2 // MIB
    return Workload("cscope", f"cscope -dl -f {index} < {queries} > /dev/null", [index], half)


def sqlite(work: Path) -> Workload:
    install({"sqlite3": "sqlite3"})
    data = work / "table.db"
    if not data.exists():
        script = (
            "create table t(id integer primary key, word text, number integer); begin;"
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000000)"
            "insert into t select i, hex(randomblob(90)), random() from n; commit;"
        )
        subprocess.run(["sqlite3", str(data), script], check=True)
    scan = "select count(*) from t where word like '%ABCDE%' and number > "
    scans = "; ".join(scan + str(number) for number in range(5))
    return Workload(
        "sqlite", f'sqlite3 {data} "{scans}" > /dev/null', [data], data.stat().st_size // 2 // MIB
    )


def postgres(work: Path) -> Workload:
    """In single-user mode, which is one process; its own buffers are small, so that reads are the
    kernel's."""
    if not list(Path("/usr/lib/postgresql").glob("*/bin")):
        install({"postgres-is-not-on-the-path": "postgresql"})
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    data, queries = work / "postgres", work / "queries.sql"
    user = ("runuser", "-u", "postgres", "--")
    settings = (
        "-c shared_buffers=1MB -c autovacuum=off -c jit=off -c max_parallel_workers_per_gather=0"
    )
    single = f"{programs}/postgres --single {settings} -D {data} postgres"
    if not data.exists():
        data.mkdir()
        shutil.chown(data, "postgres")
        subprocess.run(
            [*user, programs / "initdb", "-D", data], check=True, stdout=subprocess.DEVNULL
        )
        made = (
            "create table t as select l id, l % 50 number, repeat(md5(l::text), 3) word "
            "from generate_series(1, 3000000) l\nvacuum freeze t\n"
        )
        load = subprocess.run(
            [*user, "sh", "-c", single], input=made, text=True, capture_output=True
        )
        # In this mode it goes on after a mistake and ends well.
        assert "ERROR" not in load.stderr + load.stdout, load.stderr
    queries.write_text(
        "".join(
            f"select count(*) from t where word like '%abcdef%' and number > {number}\n"
            for number in range(5)
        )
    )
    files = [path for path in (data / "base").rglob("*") if path.is_file()]
    half = max(path.stat().st_size for path in files) // 2 // MIB
    return Workload("postgres", f"{single} < {queries} > /dev/null 2>&1", files, half, user=user)


def uncache(files: list[Path]) -> None:
    """Files that were written lately are written back first: dirty pages stay cached."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        if time.time() - os.fstat(descriptor).st_mtime < WRITTEN_BACK_S:
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Group:
    """A memory cgroup, for as long as it is entered."""

    def __init__(self, limit_mib: int) -> None:
        first = Path("/sys/fs/cgroup/memory")
        parent, limit = (
            (first, "memory.limit_in_bytes") if first.exists() else (first.parent, "memory.max")
        )
        self.folder = Path(tempfile.mkdtemp(prefix="page_cache-", dir=parent))
        # Its limit is to be read by programs of other users.
        self.folder.chmod(0o755)
        (self.folder / limit).write_text(str(limit_mib * MIB))

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.folder.rmdir()


def measured(workload: Workload, hither: list[str]) -> tuple[float, float, float, dict]:
    """MiB read from storage, wall seconds, CPU seconds, and what hither says."""
    uncache(workload.files)
    with Group(workload.limit_mib) as group:
        script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        command = ["sh", "-c", script, "sh", *workload.user, *hither, "sh", "-c", workload.command]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        ran = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        assert ran.returncode == 0, ran
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = [line for line in ran.stderr.splitlines() if line.startswith("{")]
    return (
        (after.ru_inblock - before.ru_inblock) * 512 / MIB,
        wall,
        cpu,
        json.loads(said[-1]) if said else {},
    )


def simulated(workload: Workload, hither: Path, folder: Path, budget: int) -> dict[str, float]:
    """MiB missed in a cache of this size, by policy."""
    trace = folder / f"{workload.name}.hither"
    record = [
        *workload.user,
        str(hither),
        "-q",
        "record",
        "--seen-by=library",
        "--force",
        "-o",
        str(trace),
        "--",
        "sh",
        "-c",
        workload.command,
    ]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL)
    policies = ",".join([*POLICIES, "opt"])
    size = f"{budget // MIB}MiB"
    sim = [
        str(hither),
        "-q",
        "sim",
        str(trace),
        "--policy",
        policies,
        "--size",
        size,
        "--block",
        "16KiB",
        "--json",
    ]
    found = json.loads(subprocess.run(sim, check=True, capture_output=True, text=True).stdout)
    return {row["policy"]: row["misses"] * 16 / 1024 for row in found["results"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="only these of " + ", ".join(WORKLOADS))
    parser.add_argument("--way", action="append", help="only these ways besides plain")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    # Where another user can run hither, and keep what it learns.
    work.chmod(0o755)
    kept = work / "kept"
    kept.mkdir(exist_ok=True)
    kept.chmod(0o1777)
    hither = Path(shutil.copy(arguments.hither.resolve(), work / "hither"))
    os.environ["LC_ALL"] = "C"
    print(
        f"machine: {os.uname().release}, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; medians of {arguments.rounds} rounds\n"
    )
    print(
        "| program | limit, MiB | way | budget, MiB | read, MiB | of plain | of opt | "
        "simulated, MiB | time, s | of plain | CPU, s |"
    )
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    raw = []
    for name in arguments.only or WORKLOADS:
        workload = WORKLOADS[name](work)
        with_hither = [str(hither), "-q", "run", "--json"]
        profile = kept / f"{name}.profile"
        profile.unlink(missing_ok=True)
        pcc = [*with_hither, "--page-cache=pcc"]
        *_, said = measured(workload, [*pcc, "--profile", str(profile), "--"])
        ways: dict[str, list[str]] = {
            policy: [*with_hither, f"--page-cache={policy}", "--"]
            for policy in (POLICIES if workload.loops else ["pcc"])
        }
        ways["pcc, sites known"] = [*pcc, "--read-only-profile", str(profile), "--"]
        ways = {"plain": []} | {way: ways[way] for way in arguments.way or ways if way in ways}
        runs: dict[str, list[tuple[float, float, float, dict]]] = {way: [] for way in ways}
        for number in range(arguments.rounds):
            names = list(ways)
            turn = number % len(names)
            for way in names[turn:] + names[:turn]:
                runs[way].append(measured(workload, ways[way]))
        budget = said["budget_bytes"]
        misses = simulated(workload, hither, kept, budget)
        of_plain = [statistics.median(run[which] for run in runs["plain"]) for which in range(3)]
        opt = misses["opt"]
        first = f"| {workload.name} | {workload.limit_mib} |"
        for way, of_way in runs.items():
            read, wall, cpu = (
                statistics.median(run[which] for run in of_way) for which in range(3)
            )
            expected, had = misses.get(way.split(",")[0]), of_way[-1][3].get("budget_bytes")
            expected = f"{expected:.0f}" if expected and "known" not in way else ""
            print(
                f"{first} {way} | {had // MIB if had else ''} | {read:.0f} | "
                f"{read / of_plain[0]:.3f} | {read / opt:.3f} |"
                f" {expected} | {wall:.2f} | {wall / of_plain[1]:.3f} | {cpu:.2f} |"
            )
            raw.append(
                f"{workload.name}, {way}: "
                + " ".join(f"{read:.0f}/{wall:.2f}" for read, wall, *_ in of_way)
            )
        print(f"{first} opt | {budget // MIB} | | | 1.000 | {opt:.0f} | | | |", flush=True)
    print("\nRaw runs, MiB read / seconds:\n")
    print("\n".join(f"- {line}" for line in raw))


WORKLOADS = {
    "passes": passes,
    "cscope": cscope,
    "sqlite": sqlite,
    "postgres": postgres,
    "epochs": epochs,
    "both": both,
    "gcc": gcc,
    "zipf": zipf,
}

if __name__ == "__main__":
    main()
