"""The modelled NUMAchine, the ten programs of the thesis, and how traces are made and simulated:
what all parts of cache_aware.py share.

The machine is that of the thesis (`--nodes numachine-4`: 900 ns local, 3960 ns remote, table 5.1)
at a sixteenth of its size: caches of 64 KiB for 1 MiB, 6 MiB of memory a station for 96 MiB,
network caches of 512 KiB for 8 MiB (1100 ns, table 5.1), and regions from 64 KiB for 1 MiB. Not
scaled are the pages of 4 KiB and the thresholds of 5 pages and 10 faults. Lines have 64 bytes,
NUMAchine's 128.

A thread computes 27 ns for each reference that its modelled caches count, four cycles at 150 MHz:
about one instruction in three is a load or a store. So the time between two misses follows the
miss rate of the page. Page faults cost nothing, since the thesis' programs run for minutes after
their last one, ours for a second.
"""

import csv
import json
import subprocess
from pathlib import Path

NODES = "numachine-4"
LOCAL_MB = 96
# 6 MiB of pages of 4 KiB.
LOCAL_FRAMES = 1536
REGION_BYTES = 65536
NAMES = ["first-touch", "round-robin", "cache-aware", "a-priori"]

REFERENCE_NS = 27
NETWORK_CACHE = "network_cache_kib=512,network_cache_ns=1100"
# Costs of the machine with and without network caches, and with a constant between misses.
COSTS = {
    "network cache": f"fault_ns=0,reference_ns={REFERENCE_NS},{NETWORK_CACHE}",
    "no network cache": f"fault_ns=0,reference_ns={REFERENCE_NS}",
    "500 ns a miss": "fault_ns=0,compute_ns=500",
}


class Program:
    """A program and its counterpart in the thesis: `single` and `mixed` are its parameters at a
    sixteenth of the thesis' size as far as they allow, `quick` replaces both. `megabytes` is the
    counterpart's memory alone and in mixes (table 5.2), `factor` a correction of the share of
    memory that fits.
    """

    def __init__(self, thesis, name, single, mixed, quick, megabytes, factor=1.0):
        self.thesis, self.name, self.factor = thesis, name, factor
        self.parameters = {"single": single, "mixed": mixed, "quick": quick}
        self.megabytes = megabytes

    def spec(self, size: str) -> str:
        return f"{self.name}{{{self.parameters[size]}}}"

    def part(self) -> float:
        """The share of its memory, alone, that fits on a node."""
        return LOCAL_MB / self.megabytes[0] * self.factor


def sweeps(like: str, megabytes: tuple, iterations: tuple, more: str = "") -> Program:
    parameters = [
        f"like={like},kib={64 * size},iterations={count}{more}"
        for size, count in zip(megabytes, iterations)
    ]
    quick = f"like={like},kib={16 * megabytes[0]},iterations=2{more}"
    return Program(like, "sweeps", *parameters, quick, megabytes)


# In the order of table 5.2. buk touches two of its three arrays before the one accessed at random,
# bucket-sort two of four. So bucket-sort gets three quarters of the share: then the first arrays
# fill the same share of the node.
PROGRAMS = [
    Program(
        "applu",
        "cfd",
        "points=44,iterations=4",
        "points=34,iterations=6",
        "points=26,iterations=2",
        (240, 103),
    ),
    sweeps("apsi", (63, 63), (12, 12)),
    Program(
        "buk",
        "bucket-sort",
        "keys=524288,bucket_bits=0,iterations=6",
        "keys=524288,bucket_bits=0,iterations=4",
        "keys=131072,key_bits=17,bucket_bits=0,iterations=2",
        (134, 134),
        0.75,
    ),
    sweeps("hydro2d", (172, 172), (6, 6)),
    Program(
        "mgrid",
        "multigrid",
        "levels=6,iterations=6",
        "levels=6,iterations=4",
        "levels=5,iterations=2",
        (216, 55),
    ),
    sweeps("mxm", (192, 108), (6, 6), ",l2_kib=32"),
    Program(
        "swim",
        "stencil",
        "points=368,iterations=10",
        "points=230,iterations=12",
        "points=160,iterations=2",
        (225, 88),
    ),
    sweeps("tomcatv", (126, 126), (3, 3)),
    sweeps("turb3d", (195, 130), (4, 4)),
    sweeps("wave", (107, 107), (6, 6)),
]
BY_NAME = {program.thesis: program for program in PROGRAMS}


class Bench:
    """Generates traces and simulates them."""

    def __init__(self, hither: Path, work: Path, output: Path, quick: bool):
        self.hither, self.work, self.output, self.quick = hither, work, output, quick
        self.single = "quick" if quick else "single"
        self.mixed = "quick" if quick else "mixed"
        # Quick programs are a quarter of the size.
        self.frames = LOCAL_FRAMES // (4 if quick else 1)
        self.region_bytes = REGION_BYTES // (4 if quick else 1)
        self.cache_aware = f"cache-aware{{region={self.region_bytes}}}"
        self.placements = ["first-touch", "round-robin", self.cache_aware, "a-priori"]
        self.work.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)

    def run(self, *command) -> bytes:
        command = [str(part) for part in (self.hither, *command)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout

    def trace(self, name: str, specs: list[str], threads: int = 1, *more: str) -> Path:
        """Generates the trace, unless it exists."""
        path = self.work / f"{'quick-' * self.quick}{name}"
        if not path.exists():
            self.run("gen", *specs, "-q", "--threads", threads, "-o", path, *more)
        return path

    def alone(self, program: Program) -> Path:
        """The trace of a program alone, on one node."""
        name = f"{program.thesis}-single"
        return self.trace(name, [program.spec(self.single)], 1, "--nodes", "1")

    def frames_alone(self, program: Program) -> int:
        return int(self.blocks(self.alone(program)) * program.part())

    def blocks(self, trace: Path) -> int:
        return json.loads(self.run("stat", trace, "--json"))["stats"]["blocks"]

    def simulate(
        self,
        trace: Path,
        placements: list[str],
        frames: int,
        nodes: str | Path = NODES,
        costs: str = COSTS["network cache"],
        bind: str = "trace",
    ) -> list[dict]:
        """Everything runs on node 0, unless the trace has nodes, or `bind` says otherwise."""
        command = ["place", trace, "-q", "--json", "--nodes", nodes, "--bind", bind]
        command += ["--placement", ",".join(placements), "--size", max(1, frames)]
        output = self.run(*command, "--costs", costs)
        return json.loads(output)["results"]

    def csv(self, name: str, rows: list[dict]) -> None:
        with open(self.output / name, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def local_part(result: dict) -> float:
    """The local share of all accesses but the first touches of pages."""
    return result["local"] / max(1, result["local"] + result["remote"])


def percent(part: float | None, digits: int = 0) -> str:
    return "" if part is None else f"{100 * part:.{digits}f}"


def table(head: list[str], rows: list[list], text_columns: int = 1) -> list[str]:
    """A table in Markdown, after an empty line."""
    columns = ["---"] * text_columns + ["--:"] * (len(head) - text_columns)
    lines = ["", "| " + " | ".join(head) + " |", "|" + "|".join(columns) + "|"]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
