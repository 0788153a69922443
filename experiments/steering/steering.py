#!/usr/bin/env python3
"""Bytes read from storage and wall time of programs whose loops are larger than their memory cgroup: by the kernel's own page
cache, and steered by hither run --files with each policy; beside the optimum by hither sim.

Three programs: passes over a file of twice the limit, queries in one cscope session over an index of a kernel source tree, and
scans of a table by sqlite. Each run starts with none of their files cached, in a cgroup of its own (version 1 or 2; needs root).
All ways take turns within a round, and rounds begin with another way each. Prints Markdown.

Needs Debian's gcc, cscope, sqlite3 and linux-source-6.1 (some 5 GB of disk); what is missing is installed by apt-get.

    python3 steering.py --hither target/release/hither --work /tmp/steering --rounds 3
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
POLICIES = ["lru", "ubm", "arc", "pcc"]
FOLDERS = ["block", "drivers", "fs", "include", "ipc", "kernel", "lib", "mm", "net", "sound"]
QUERIES = "0vfs_read\n1kmalloc\n3schedule\n0page_cache_alloc\n3mutex_lock\n0EXPORT_SYMBOL_GPL\n2tcp_sendmsg\n0readahead\nq\n"
PASSES = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
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


@dataclass
class Workload:
    name: str
    command: str
    files: list[Path]
    limit_mib: int


def install(programs: dict[str, str]) -> None:
    missing = [package for program, package in programs.items() if not (shutil.which(program) or Path(program).exists())]
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


def passes(work: Path) -> Workload:
    install({"gcc": "gcc"})
    data, program = work / "passes.data", work / "passes"
    if not data.exists():
        with data.open("wb") as file:
            for _ in range(512):
                file.write(os.urandom(MIB))
    subprocess.run(["gcc", "-O1", "-x", "c", "-o", str(program), "-"], input=PASSES, text=True, check=True)
    return Workload("passes", f"{program} {data} 6 65536", [data], 256)


def cscope(work: Path) -> Workload:
    install({"cscope": "cscope"})
    index, names, queries = work / "cscope.out", work / "cscope.files", work / "queries"
    queries.write_text(QUERIES)
    if not index.exists():
        source = tree(work)
        sources = [str(path) for folder in FOLDERS for path in sorted((source / folder).rglob("*.[chS]"))]
        names.write_text("\n".join(sources) + "\n")
        subprocess.run(["cscope", "-b", "-k", "-i", str(names), "-f", str(index)], check=True, stderr=subprocess.DEVNULL)
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
    return Workload("sqlite", f'sqlite3 {data} "{scans}" > /dev/null', [data], data.stat().st_size // 2 // MIB)


def uncache(files: list[Path]) -> None:
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Group:
    """A memory cgroup, for as long as it is entered."""

    def __init__(self, limit_mib: int) -> None:
        first = Path("/sys/fs/cgroup/memory")
        parent, limit = (first, "memory.limit_in_bytes") if first.exists() else (first.parent, "memory.max")
        self.folder = Path(tempfile.mkdtemp(prefix="steering-", dir=parent))
        (self.folder / limit).write_text(str(limit_mib * MIB))

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, *_: object) -> None:
        self.folder.rmdir()


def measured(workload: Workload, limit_mib: int, hither: list[str]) -> tuple[float, float, float]:
    """MiB read from storage, wall seconds, CPU seconds."""
    uncache(workload.files)
    with Group(limit_mib) as group:
        script = f"echo $$ > {group}/cgroup.procs; exec \"$@\""
        command = ["sh", "-c", script, "sh", *hither, "sh", "-c", workload.command]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (after.ru_inblock - before.ru_inblock) * 512 / MIB, wall, cpu


def simulated(workload: Workload, hither: Path, work: Path) -> dict[str, float]:
    """MiB missed in a cache of the limit's size, by policy."""
    trace = work / f"{workload.name}.hither"
    record = [str(hither), "-q", "record", "--force", "-o", str(trace), "--", "sh", "-c", workload.command]
    subprocess.run(record, check=True, stdout=subprocess.DEVNULL)
    policies = ",".join([*POLICIES, "opt"])
    size = f"{workload.limit_mib}MiB"
    sim = [str(hither), "-q", "sim", str(trace), "--policy", policies, "--size", size, "--block", "16KiB", "--json"]
    found = json.loads(subprocess.run(sim, check=True, capture_output=True, text=True).stdout)
    return {row["policy"]: row["misses"] * 16 / 1024 for row in found["results"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", help="only these of passes, cscope, sqlite")
    arguments = parser.parse_args()
    hither, work = arguments.hither.resolve(), arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    os.environ["LC_ALL"] = "C"
    print(f"machine: {os.uname().release}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of {arguments.rounds} rounds\n")
    print("| program | limit, MiB | way | read, MiB | of plain | of opt | simulated, MiB | time, s | of plain | CPU, s |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    raw = []
    for make in (passes, cscope, sqlite):
        if arguments.only and make.__name__ not in arguments.only:
            continue
        workload = make(work)
        misses = simulated(workload, hither, work)
        ways: dict[str, list[str]] = {"plain": []}
        ways |= {policy: [str(hither), "-q", "run", "--files", policy, "--"] for policy in POLICIES}
        sites = work / f"{workload.name}.sites"
        sites.unlink(missing_ok=True)
        known = [str(hither), "-q", "run", "--files", "pcc", "--sites", str(sites), "--"]
        measured(workload, workload.limit_mib, known)
        ways["pcc, sites known"] = [word if word != "--sites" else "--apply" for word in known]
        runs: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        for number in range(arguments.rounds):
            names = list(ways)
            turn = number % len(names)
            for way in names[turn:] + names[:turn]:
                runs[way].append(measured(workload, workload.limit_mib, ways[way]))
        of_plain = [statistics.median(run[which] for run in runs["plain"]) for which in range(3)]
        opt = misses["opt"]
        for way, of_way in runs.items():
            read, wall, cpu = (statistics.median(run[which] for run in of_way) for which in range(3))
            expected = misses.get(way.split(",")[0])
            expected = f"{expected:.0f}" if expected and "known" not in way else ""
            print(
                f"| {workload.name} | {workload.limit_mib} | {way} | {read:.0f} | {read / of_plain[0]:.3f} | {read / opt:.3f} |"
                f" {expected} | {wall:.2f} | {wall / of_plain[1]:.3f} | {cpu:.2f} |"
            )
            raw.append(f"{workload.name}, {way}: " + " ".join(f"{read:.0f}/{wall:.2f}" for read, wall, _ in of_way))
        print(f"| {workload.name} | {workload.limit_mib} | opt | | | 1.000 | {opt:.0f} | | | |", flush=True)
    print("\nRaw runs, MiB read / seconds:\n")
    print("\n".join(f"- {line}" for line in raw))


if __name__ == "__main__":
    main()
