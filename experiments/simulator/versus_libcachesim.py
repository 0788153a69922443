#!/usr/bin/env python3
"""hither against libCacheSim on the same traces: references per CPU second, wall time, peak
memory and miss counts.

Each run is a whole process that reads a trace from disk, simulates it and ends. The two programs
take turns on one core (taskset, RAYON_NUM_THREADS=1), and the order alternates between pairs.
There are two cases per trace and policy: one cache of 10 % of the distinct blocks, and eight
sizes at once. libCacheSim runs through its Python package. The package has no call for several
sizes, and its threads gain nothing on one core, so eight sizes are a loop over caches with one
reader, and each cache is freed before the next. hither runs as `hither sim --size a,b,c,...`.

By default libCacheSim starts with a hash table of 2^24 buckets (128 MB), which is expensive for
small traces and for the TLB. `--hashpower 20` gives its caches a table for a million objects.
Report both.

CPU time is that of the process (wait4). `work` excludes the cost of a process that does nothing
(`import libcachesim`, `hither --version`). Peak memory is from GNU time. Ratios are medians over
the pairs. Prints Markdown; --output keeps every run as JSON.

Needs: GNU time, zstd; a Python with libcachesim (pip install libcachesim==0.3.5); the traces of
`--traces` (of the LIRS authors, of ARC, and libCacheSim's samples; without them only the
generated zipf trace is run).

Takes about 30 minutes with 5 pairs, half of it for libCacheSim's eight sizes of the zipf trace.

    python3 versus_libcachesim.py --hither target/release/hither --python venv/bin/python \\
        --traces traces \\
        --work /tmp/versus --output versus.json
"""

import argparse
import gzip
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# hither's name, libCacheSim's class, and whether both define the policy alike, so that miss counts
# must be equal.
POLICIES = {
    "lru": ("LRU", True),
    "arc": ("ARC", True),
    "lirs": ("LIRS", False),
    "sieve": ("Sieve", True),
    "s3-fifo": ("S3FIFO", False),
    "lfu": ("LFU", True),
    "opt": ("Belady", True),
}
ONE = [0.1]
# From 20 blocks of the smallest trace on: libCacheSim's S3-FIFO crashes below 10 and admits nothing
# below 20.
EIGHT = [0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4]

# libCacheSim's side of a run: argv is a JSON document, and the misses go to stdout.
LIBCACHESIM = """
import json, sys
import libcachesim as lcs
job = json.loads(sys.argv[1])
more = {"hashpower": job["hashpower"]} if job["hashpower"] else {}
params = lcs.ReaderInitParam(ignore_obj_size=True, **job["reader"])
for name, value in job["fields"].items():
    setattr(params, name, value)
reader = lcs.TraceReader(job["path"], getattr(lcs.TraceType, job["type"]), params)
ratios = []
for size in job["sizes"]:
    reader.reset()
    cache = getattr(lcs, job["policy"])(size, **more)
    ratios.append(cache.process_trace(reader)[0])
    del cache
print(json.dumps(ratios))
"""


class Trace:
    """A file that both programs read, and how each is told its format."""

    def __init__(
        self,
        path: Path,
        references: int,
        distinct: int,
        format: str,
        type: str,
        fields=None,
        reader=None,
        future=True,
    ):
        self.path, self.references, self.distinct = path, references, distinct
        self.format, self.type, self.fields, self.reader = format, type, fields or {}, reader or {}
        self.future = future


def write_oracle_general(keys: list[int], path: Path) -> None:
    """libCacheSim's binary format. Next accesses count references from 1, as in its own files."""
    upcoming: dict[int, int] = {}
    following = [-1] * len(keys)
    for at in range(len(keys) - 1, -1, -1):
        following[at] = upcoming.get(keys[at], -1)
        upcoming[keys[at]] = at + 1
    record = struct.Struct("<IQIq")
    with open(path, "wb") as out:
        for at, (key, next_access) in enumerate(zip(keys, following)):
            out.write(record.pack(at & 0xFFFFFFFF, key, 4096, next_access))


def oracle_general(path: Path, keys: list[int]) -> Trace:
    if not path.exists():
        partial = path.with_suffix(".partial")
        write_oracle_general(keys, partial)
        partial.rename(path)
    return Trace(path, len(keys), len(set(keys)), "oracle-general", "ORACLE_GENERAL_TRACE")


def zstd_lines(path: Path) -> list[str]:
    return subprocess.run(
        ["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()


def zipf(arguments) -> Trace:
    path = arguments.work / f"zipf-{arguments.references}.oracleGeneral"
    blocks = max(arguments.references // 10, 10)
    if not path.exists():
        spec = f"zipf{{blocks={blocks},skew=1}}"
        subprocess.run(
            [
                arguments.hither,
                "gen",
                "-q",
                spec,
                "-n",
                str(arguments.references),
                "--format",
                "oracle-general",
                "-o",
                path,
            ],
            check=True,
        )
    about = subprocess.run(
        [arguments.hither, "sim", "-q", "--json", "-p", "fifo", "-s", "1", path],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    distinct = json.loads(about)["trace"]["distinct_blocks"]
    return Trace(path, arguments.references, distinct, "oracle-general", "ORACLE_GENERAL_TRACE")


def loop(arguments) -> Trace:
    text = gzip.decompress((arguments.traces / "lirs/loop.trace.gz").read_bytes()).decode()
    keys = [int(line) for line in text.split() if line != "*"]
    return oracle_general(arguments.work / "loop.oracleGeneral", keys)


def oltp(arguments) -> Trace:
    keys = []
    for line in zstd_lines(arguments.traces / "arc/OLTP.lis.zst"):
        first, count, *_ = (int(word) for word in line.split())
        keys.extend(range(first, first + count))
    return oracle_general(arguments.work / "oltp.oracleGeneral", keys)


def twitter_keys(arguments) -> tuple[Path, list[int]]:
    path = arguments.work / "twitter.csv"
    if not path.exists():
        subprocess.run(
            [
                "zstd",
                "-dqf",
                arguments.traces / "libcachesim/twitter_cluster52.csv.zst",
                "-o",
                path,
            ],
            check=True,
        )
    with open(path) as lines:
        return path, [int(line.split(",")[1]) for line in lines if not line.startswith("#")]


def twitter(arguments) -> Trace:
    return oracle_general(arguments.work / "twitter.oracleGeneral", twitter_keys(arguments)[1])


def twitter_csv(arguments) -> Trace:
    path, keys = twitter_keys(arguments)
    fields = {"time_field": 1, "obj_id_field": 2, "obj_size_field": 3}
    reader = {"has_header": True, "has_header_set": True, "delimiter": ","}
    # Its next accesses are those of the whole trace, of which the file is only the beginning, so
    # opt must not use it.
    return Trace(
        path,
        len(keys),
        len(set(keys)),
        "libcachesim-csv",
        "CSV_TRACE",
        fields,
        reader,
        future=False,
    )


def cloud_physics(arguments) -> Trace:
    path = arguments.traces / "libcachesim/cloudPhysicsIO.oracleGeneral.bin"
    keys = [key for _, key, _, _ in struct.iter_unpack("<IQIq", path.read_bytes())]
    return Trace(path, len(keys), len(set(keys)), "oracle-general", "ORACLE_GENERAL_TRACE")


def cloud_physics_txt(arguments) -> Trace:
    path = arguments.traces / "libcachesim/cloudPhysicsIO.txt"
    keys = path.read_text().split()
    return Trace(
        path, len(keys), len(set(keys)), "libcachesim-txt", "PLAIN_TXT_TRACE", future=False
    )


TRACES = {
    "zipf": zipf,
    "loop": loop,
    "twitter": twitter,
    "twitter-csv": twitter_csv,
    "oltp": oltp,
    "cloud-physics": cloud_physics,
    "cloud-physics-txt": cloud_physics_txt,
}


class Run:
    """The output and the costs of one process."""

    def __init__(self, command: list, core: int):
        environment = {**os.environ, "RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        with tempfile.NamedTemporaryFile("r") as report, tempfile.TemporaryFile("w+") as out:
            # A child's ru_maxrss is at least its parent's, and GNU time is a small parent.
            whole = [
                "taskset",
                "-c",
                str(core),
                "/usr/bin/time",
                "-f",
                "%M",
                "-o",
                report.name,
                *map(str, command),
            ]
            started = time.monotonic()
            process = subprocess.Popen(whole, stdout=out, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            self.wall_s = time.monotonic() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                sys.exit(f"failed ({process.returncode}): {' '.join(whole)}")
            self.cpu_s = usage.ru_utime + usage.ru_stime
            self.peak_bytes = int(report.read()) * 1024
            out.seek(0)
            self.out = out.read()
        self.misses: list[int] = []

    def document(self) -> dict:
        return {
            "cpu_s": round(self.cpu_s, 4),
            "wall_s": round(self.wall_s, 4),
            "peak_bytes": self.peak_bytes,
            "misses": self.misses,
        }


def run_hither(arguments, trace: Trace, policy: str, sizes: list[int]) -> Run:
    listed = ",".join(map(str, sizes))
    command = [
        arguments.hither,
        "sim",
        "-q",
        "--json",
        "--format",
        trace.format,
        "--policy",
        policy,
        "--size",
        listed,
        trace.path,
    ]
    run = Run(command, arguments.core)
    run.misses = [result["misses"] for result in json.loads(run.out)["results"]]
    return run


def run_libcachesim(arguments, trace: Trace, policy: str, sizes: list[int]) -> Run:
    job = {
        "path": str(trace.path),
        "type": trace.type,
        "fields": trace.fields,
        "reader": trace.reader,
        "policy": POLICIES[policy][0],
        "sizes": sizes,
        "hashpower": arguments.hashpower,
    }
    run = Run([arguments.python, "-c", LIBCACHESIM, json.dumps(job)], arguments.core)
    run.misses = [round(ratio * trace.references) for ratio in json.loads(run.out)]
    return run


def idle_cpu_s(command: list, arguments) -> float:
    return statistics.median(Run(command, arguments.core).cpu_s for _ in range(5))


def median(values) -> float:
    return statistics.median(list(values))


def compare(
    arguments, name: str, trace: Trace, policy: str, fractions: list[float], idle: dict
) -> dict:
    sizes = sorted({max(1, round(fraction * trace.distinct)) for fraction in fractions})
    pairs = []
    for number in range(arguments.pairs):
        order = [("libcachesim", run_libcachesim), ("hither", run_hither)]
        if number % 2:
            order.reverse()
        pair = {program: run(arguments, trace, policy, sizes) for program, run in order}
        pairs.append(pair)
    work = {
        program: lambda run, program=program: max(run.cpu_s - idle[program], 1e-4)
        for program in idle
    }
    references = trace.references * len(sizes)
    theirs, ours = ([pair[program] for pair in pairs] for program in ("libcachesim", "hither"))
    differing = sum(a != b for a, b in zip(theirs[0].misses, ours[0].misses))
    return {
        "trace": name,
        "policy": policy,
        "sizes": sizes,
        "references": trace.references,
        "libcachesim_million_refs_per_cpu_s": references
        / median(run.cpu_s for run in theirs)
        / 1e6,
        "hither_million_refs_per_cpu_s": references / median(run.cpu_s for run in ours) / 1e6,
        "cpu_ratio": median(a.cpu_s / b.cpu_s for a, b in zip(theirs, ours)),
        "work_ratio": median(
            work["libcachesim"](a) / work["hither"](b) for a, b in zip(theirs, ours)
        ),
        "wall_ratio": median(a.wall_s / b.wall_s for a, b in zip(theirs, ours)),
        "libcachesim_peak_bytes": median(run.peak_bytes for run in theirs),
        "hither_peak_bytes": median(run.peak_bytes for run in ours),
        "memory_ratio": median(a.peak_bytes / b.peak_bytes for a, b in zip(theirs, ours)),
        "alike": POLICIES[policy][1],
        "differing_sizes": differing,
        "runs": [{program: run.document() for program, run in pair.items()} for pair in pairs],
    }


def table(results: list[dict], speed: float) -> str:
    lines = [
        "| trace | policy | libCacheSim, M refs/CPU-s | hither, M refs/CPU-s | CPU | without "
        "start-up | wall | memory, MB | memory | misses |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    short = []
    for row in results:
        if row["alike"]:
            misses = (
                "equal"
                if row["differing_sizes"] == 0
                else f"**{row['differing_sizes']} of {len(row['sizes'])} differ**"
            )
        else:
            more = [
                ours / theirs - 1
                for theirs, ours in zip(
                    row["runs"][0]["libcachesim"]["misses"], row["runs"][0]["hither"]["misses"]
                )
            ]
            misses = f"{min(more):+.2%} to {max(more):+.2%}" if len(more) > 1 else f"{more[0]:+.2%}"
        met = row["cpu_ratio"] >= speed and row["memory_ratio"] >= 5
        mark = "" if met else " *"
        short += [] if met else [row]
        megabytes = (
            f"{row['libcachesim_peak_bytes'] / 1e6:.0f} / {row['hither_peak_bytes'] / 1e6:.0f}"
        )
        lines.append(
            f"| {row['trace']} | {row['policy']}{mark} | "
            f"{row['libcachesim_million_refs_per_cpu_s']:.2f} "
            f"| {row['hither_million_refs_per_cpu_s']:.2f} | {row['cpu_ratio']:.1f} x | "
            f"{row['work_ratio']:.1f} x "
            f"| {row['wall_ratio']:.1f} x | {megabytes} | 1/{row['memory_ratio']:.1f} | {misses} |"
        )
    met = len(results) - len(short)
    lines.append(
        f"\n{met} of {len(results)} reach the goal ({speed:g} x the references a CPU-second "
        f"in a fifth of the memory); * falls short."
    )
    lines.append(
        "Misses: whether the counts are equal, or by how much hither's differ where the "
        "policies' rules do."
    )
    return "\n".join(lines)


def machine(arguments) -> dict:
    version = "import importlib.metadata as m; print(m.version('libcachesim'))"
    model = next(
        (
            line.split(":")[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        "",
    )
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "hither": subprocess.run(
            [arguments.hither, "--version"], check=True, capture_output=True, text=True
        ).stdout.strip(),
        "libcachesim": subprocess.run(
            [arguments.python, "-c", version], check=True, capture_output=True, text=True
        ).stdout.strip(),
        "hashpower": arguments.hashpower or "default (24)",
        "pairs": arguments.pairs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--python", type=Path, default=Path(sys.executable), help="a Python that has libcachesim"
    )
    parser.add_argument("--traces", type=Path, help="folder of the real traces")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for converted and generated traces; kept"
    )
    parser.add_argument("--output", type=Path, help="every run, as JSON")
    parser.add_argument("--trace", action="append", choices=TRACES, help="only these")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument(
        "--case", action="append", choices=["one", "eight"], help="only one of the two"
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--references",
        type=int,
        default=10_000_000,
        help="of the zipf trace, to a tenth as many blocks",
    )
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument(
        "--hashpower",
        type=int,
        default=0,
        help="libCacheSim's initial hash table, as a power of two; 0: its default",
    )
    arguments = parser.parse_args()
    # Not resolved: the interpreter of a virtual environment is a link, and finds its packages by
    # its own path.
    arguments.hither = Path(os.path.abspath(arguments.hither))
    arguments.python = Path(os.path.abspath(arguments.python))
    if not shutil.which("/usr/bin/time"):
        sys.exit("GNU time is needed at /usr/bin/time (Debian: apt-get install time)")
    arguments.work.mkdir(parents=True, exist_ok=True)

    names = arguments.trace or (list(TRACES) if arguments.traces else ["zipf"])
    if names != ["zipf"] and not arguments.traces:
        sys.exit("--traces names the folder of the real traces")
    idle = {
        "libcachesim": idle_cpu_s([arguments.python, "-c", "import libcachesim"], arguments),
        "hither": idle_cpu_s([arguments.hither, "--version"], arguments),
    }
    about = {**machine(arguments), "idle_cpu_s": idle}
    print(f"{about}\n", flush=True)
    document = {"machine": about, "command": sys.argv, "one": [], "eight": []}
    cases = {"one": (ONE, 2.0), "eight": (EIGHT, 6.0)}
    for case in arguments.case or cases:
        fractions, goal = cases[case]
        for name in names:
            trace = TRACES[name](arguments)
            for policy in arguments.policy or POLICIES:
                if policy == "opt" and not trace.future:
                    continue
                row = compare(arguments, name, trace, policy, fractions, idle)
                document[case].append(row)
                print(
                    f"{case} {name} {policy}: CPU {row['cpu_ratio']:.2f} x, memory "
                    f"1/{row['memory_ratio']:.1f}",
                    file=sys.stderr,
                )
                if arguments.output:
                    arguments.output.write_text(json.dumps(document, indent=1) + "\n")
        print(
            f"### {'One size' if case == 'one' else 'Eight sizes'}\n\n"
            f"{table(document[case], goal)}\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
