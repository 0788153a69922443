"""What the parts of the dual-layered file cache's experiments share: the paper's figures, and a lab
that generates each trace once, simulates placements over it, and keeps every run."""

import json
import subprocess
import sys
from pathlib import Path

FIRST = "first-and-forever"
DUAL = "dual-layer"
COLUMNS = [
    "experiment",
    "workload",
    "nodes",
    "size",
    "placement",
    "accesses",
    "local",
    "remote",
    "misses",
    "replications",
    "invalidations",
    "evictions",
    "bytes_moved",
    "hit_latency_ns",
    "access_latency_ns",
    "overhead_ns",
    "modelled_time_ns",
]

# Table 1: seconds of an average grep, with first touch and with the dual-layered cache. Figure 3
# gives 50 % and 98.8 % local hits in the text.
GREP_S = {2: (3.36, 3.36), 4: (6.98, 6.90), 6: (10.38, 9.98), 8: (13.78, 12.93), 10: (17.12, 15.75)}
# Table 2: pages found locally.
COMPILE_LOCAL = {
    "tar": (76602, 76657),
    "gcc": (386070, 421631),
    "cscope": (88025, 88031),
    "tar, gcc and cscope": (439517, 657510),
}
# Table 3: MB/s with first touch, by test and threads.
IOZONE_MB_S = {
    "write": (328, 306, 304, 249, 235),
    "re-write": (731, 868, 818, 937, 870),
    "read": (2087, 1903, 1938, 1932, 2191),
    "re-read": (2155, 2093, 1912, 2153, 2198),
    "backward read": (1618, 2179, 2136, 2077, 2153),
    "stride read": (1542, 1555, 1672, 1663, 1953),
}
# Table 5: percent of additional bandwidth, by test and threads.
IOZONE = {
    "write": (0, -0.3, 0, -0.4, 0),
    "re-write": (0, -0.2, 0, -0.4, 0.1),
    "read": (-0.8, -0.4, -0.9, -0.8, 0.2),
    "re-read": (-0.4, 2.4, 0.2, 0.7, 0.3),
    "backward read": (3.5, 6.7, 3.2, 11.9, 0.7),
    "stride read": (14.3, 12.7, 4.7, 8.7, 2.2),
}
# Table 6: thousands of pages found locally.
WEB_LOCAL = (1041, 1354)
SHELLS = [2, 4, 6, 8, 10]


class Lab:
    """Generates each trace once, simulates placements over it, and keeps every row."""

    def __init__(self, hither: Path, work: Path, quick: bool):
        self.hither, self.work, self.quick, self.rows = hither, work, quick, []
        self.tree = Path("/usr/include")

    def trace(
        self, workload: str, threads: int, nodes: int, seed: int = 1, migrate_every: int = 0
    ) -> Path:
        text = f"{workload}-{threads}-{nodes}-{seed}-{migrate_every}"
        path = self.work / f"{''.join(c if c.isalnum() else '-' for c in text)}.hither"
        if not path.exists():
            options = ["--threads", str(threads), "--nodes", str(nodes), "--seed", str(seed)]
            if migrate_every:
                options += ["--migrate-every", str(migrate_every)]
            self.run(["gen", "-q", workload, *options, "-o", str(path)])
        return path

    def run(self, arguments: list[str]) -> str:
        done = subprocess.run([self.hither, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"failed: {arguments}\n{done.stderr}")
        return done.stdout

    def place(
        self,
        experiment: str,
        trace: Path,
        nodes: str,
        size: str,
        placements: list[str],
        *options: str,
    ) -> list[dict]:
        """The results of the placements, in the same order."""
        arguments = [
            "place",
            "-q",
            "--json",
            "--nodes",
            nodes,
            "-s",
            size,
            "--placement",
            ",".join(placements),
            *options,
        ]
        results = json.loads(self.run([*arguments, str(trace)]))["results"]
        for placement, result in zip(placements, results, strict=True):
            named = {
                "experiment": experiment,
                "workload": trace.stem,
                "nodes": nodes,
                "size": size,
                "placement": placement,
            }
            self.rows.append(named | {column: result[column] for column in COLUMNS[5:]})
        return results

    def scaled(self, count: int) -> int:
        return max(count // 10, 4) if self.quick else count


def local(result: dict) -> float:
    """Percent of the accesses to cached blocks that the accessing node served."""
    return 100 * result["local"] / max(result["local"] + result["remote"], 1)


def local_as_counted(result: dict) -> int:
    """Local hits as the paper counts them: a page that was just read from the disk is local, and
    first touch puts it on the node that reads it."""
    return result["local"] + result["misses"]


def more(first: float, dual: float) -> float:
    return 100 * (dual / first - 1)


def table(head: list[str], rows: list[list]) -> str:
    def cell(value) -> str:
        return (
            f"{value:.1f}"
            if isinstance(value, float)
            else f"{value:,}"
            if isinstance(value, int)
            else str(value)
        )

    lines = [head, ["--:" if at else "---" for at in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines) + "\n"
