#!/usr/bin/env python3
"""Post-office placement (POP) against first-and-forever (FAF), always-migrate (AMG) and one-step
(OSM): figures 2, 3 and 6 to 10 of Son, Kandemir, Zhang and Garg, "Topology-aware I/O caching for
shared storage systems", with the paper's values beside ours; and what it leaves open: other
topologies, replication distance, sizes of network, block and cache, positions of disks,
thresholds, contention.

The six applications are `hither gen shared-files` with the style of each, which has the sharing
of figures 2 and 3. Writes CSV tables, SVG plots and summary.md to --output. Traces go to --work,
and the next run uses them again.

    python3 post_office.py --hither target/release/hither --work /tmp/post_office --output \\
        experiments/post_office/results
"""

import argparse
import csv
import json
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
import plot


POP = "post-office{miss_ratio=0.15,remote_misses=0}"
APPLICATIONS = ["ammp", "fma3d", "wupwise", "oltp", "specjbb", "specweb"]
SCHEMES = {"FAF": "first-and-forever", "AMG": "always-migrate", "OSM": "one-step", "POP": POP}

# The values in the paper's text. Its bars have no numbers.
PAPER = {
    "hit latency against FAF": {"FAF": 0.0, "AMG": 0.104, "OSM": -0.117, "POP": -0.291},
    "hops": {"FAF": 4.32, "AMG": 4.61, "OSM": 3.28, "POP": 2.07},
    "access latency against FAF": {"FAF": 0.0, "OSM": -0.153, "POP": -0.326},
    "migrations against OSM": {"OSM": 0.0, "POP": -0.196},
    "miss rate against FAF": {"FAF": 0.0, "POP": -0.070},
    "blocks": {"private": 0.807},
    "accesses": {"private": 0.333, "two": 0.028, "more": 0.639},
}

# The paper has 512 MiB on each of 25 nodes and 9.3 to 21.8 GB of data: 0.6 to 1.4 of the data fit.
# Here each node holds this share of the data.
NODE_PART = 0.8 / 25
# A disk access takes the time of table 1, after earlier accesses. The model of arm and buffer is
# shown separately: at this scale a disk's buffer of 16 MiB would hold all of its data. The paper
# gives no computation between accesses.
COSTS = {"compute_ns": "1000000", "disk_ns": "8200000"}
# Costs of a mesh, for topologies that otherwise have those of a machine.
TABLE_1 = "cache_ns=100000,lookup_ns=100000,hop_ns=100000,message_hop_ns=1562"
# Two applications represent all in parameter sweeps: an array code and a transaction system.
SWEPT = ["ammp", "oltp"]


class Lab:
    """Generates each trace once, and simulates it."""

    def __init__(self, hither: Path, work: Path, scale: float):
        self.hither, self.work, self.scale = hither, work, scale
        work.mkdir(parents=True, exist_ok=True)

    def call(self, *arguments: object) -> str:
        command = [str(argument) for argument in (self.hither, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def trace(self, application: str, threads: int = 25) -> Path:
        blocks = int(40_000 * self.scale)
        path = self.work / f"{application}-{threads}-{blocks}.hither"
        if not path.exists():
            spec = f"shared-files{{like={application},blocks={blocks},reuse=100}}"
            self.call("gen", "-q", "--force", spec, "--threads", threads, "-o", path)
        return path

    def sharing(self, application: str) -> dict:
        return json.loads(self.call("stat", "-q", "--json", self.trace(application)))

    def simulate(
        self,
        application: str,
        placements: list[str],
        nodes: str = "mesh5x5-io",
        threads: int = 25,
        part: float = NODE_PART,
        costs: str = "",
        extra: tuple = (),
    ) -> list[dict]:
        """The results of the placements, by their position in the list."""
        given = dict(part.split("=") for part in costs.split(",") if part)
        costs = ",".join(f"{name}={value}" for name, value in (COSTS | given).items())
        answer = self.call(
            "place",
            "-q",
            "--json",
            "--nodes",
            nodes,
            "--placement",
            ",".join(placements),
            "--size",
            f"{100 * part:.4f}%",
            "--bind",
            "threads",
            "--costs",
            costs,
            *extra,
            self.trace(application, threads),
        )
        return [measures(result) for result in json.loads(answer)["results"]]


def measures(result: dict) -> dict:
    hits = result["local"] + result["remote"]
    return {
        "hit_latency_ms": result["hit_latency_ns"] / 1e6,
        "access_latency_ms": result["access_latency_ns"] / 1e6,
        "miss_latency_ms": result["miss_latency_ns"] / 1e6,
        "miss_rate": result["misses"] / result["accesses"],
        "local_hit_ratio": result["local"] / result["accesses"],
        "hops": result["hops"],
        "remote_hops": result["hops_sum"] / max(result["remote"], 1),
        "lookup_hops": result["lookup_hops"] / max(result["remote"], 1),
        "round_trip": 2 * result["hops_sum"] / max(hits, 1),
        "migrations": result["migrations"],
        "forwarded": result["forwarded"],
        "replications": result["replications"],
        "bytes_moved": result["bytes_moved"],
        "node_imbalance": result["node_imbalance"],
        "modelled_s": result["modelled_time_ns"] / 1e9,
    }


def mean(rows: list[dict]) -> dict:
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}


def write_csv(path: Path, rows: list[dict]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(
                {
                    name: f"{value:.6g}" if isinstance(value, float) else value
                    for name, value in row.items()
                }
            )


def table(head: list[str], rows: list[list]) -> str:
    def cell(value) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    out = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join(out + ["| " + " | ".join(map(cell, row)) + " |" for row in rows]) + "\n"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:+.1f} %"


def figures(lab: Lab, results: Path, pool: ThreadPoolExecutor) -> str:
    """Figures 2, 3 and 6 to 10."""
    by_application = dict(
        zip(
            APPLICATIONS,
            pool.map(lambda name: lab.simulate(name, list(SCHEMES.values())), APPLICATIONS),
        )
    )
    rows = [
        {"application": name, "scheme": scheme, **values}
        for name, all_of in by_application.items()
        for scheme, values in zip(SCHEMES, all_of)
    ]
    write_csv(results / "figures.csv", rows)
    means = {
        scheme: mean([row_values(row) for row in rows if row["scheme"] == scheme])
        for scheme in SCHEMES
    }

    shared = list(pool.map(lab.sharing, APPLICATIONS))
    sharing = [
        {"application": name, "of": of, **users}
        for name, stat in zip(APPLICATIONS, shared)
        for of, users in shares(stat).items()
    ]
    write_csv(results / "sharing.csv", sharing)
    for number, of in ((2, "blocks"), (3, "accesses")):
        kept = {
            row["application"]: [100 * row[users] for users in ("private", "two", "more")]
            for row in sharing
            if row["of"] == of
        }
        plot.bars(
            results / f"figure_{number}.svg",
            f"Figure {number}: {of} by the nodes that share them",
            "%",
            kept,
            ["private", "two", "more"],
        )

    def by_application_of(
        name: str, schemes: list[str], scale: float = 1.0, relative: bool = False
    ) -> dict[str, list[float]]:
        """The values of the schemes for each application; with `relative`, divided by those of
        the first scheme."""
        at = [list(SCHEMES).index(scheme) for scheme in schemes]
        return {
            app: [scale * all_of[one][name] / (all_of[0][name] if relative else 1) for one in at]
            for app, all_of in by_application.items()
        }

    every = list(SCHEMES)
    plot.bars(
        results / "figure_6.svg",
        "Figure 6: hit latency",
        "% of FAF's",
        by_application_of("hit_latency_ms", every, 100, True),
        every,
    )
    plot.bars(
        results / "figure_7.svg",
        "Figure 7: hops of a hit",
        "hops",
        by_application_of("hops", every),
        every,
    )
    plot.bars(
        results / "figure_8.svg",
        "Figure 8: misses",
        "% of accesses",
        by_application_of("miss_rate", every, 100),
        every,
    )
    plot.bars(
        results / "figure_9.svg",
        "Figure 9: access latency",
        "% of FAF's",
        by_application_of("access_latency_ms", every, 100, True),
        every,
    )
    plot.bars(
        results / "figure_10.svg",
        "Figure 10: migrations",
        "blocks",
        by_application_of("migrations", ["OSM", "POP"]),
        ["OSM", "POP"],
    )

    def against(name: str, base: str) -> dict[str, float]:
        """The mean relative difference over the applications."""
        return {
            scheme: mean(
                [
                    {
                        "": one[list(SCHEMES).index(scheme)][name]
                        / one[list(SCHEMES).index(base)][name]
                        - 1
                    }
                    for one in by_application.values()
                ]
            )[""]
            for scheme in SCHEMES
        }

    hits, accesses, misses, migrations = (
        against("hit_latency_ms", "FAF"),
        against("access_latency_ms", "FAF"),
        against("miss_rate", "FAF"),
        against("migrations", "OSM"),
    )
    lines_of = []
    for scheme in SCHEMES:
        paper = [
            PAPER[name].get(scheme)
            for name in (
                "hit latency against FAF",
                "hops",
                "miss rate against FAF",
                "access latency against FAF",
                "migrations against OSM",
            )
        ]
        ours = means[scheme]
        lines_of.append(
            [
                scheme,
                f"{ours['hit_latency_ms']:.3f}",
                percent(hits[scheme]),
                percent(paper[0]),
                ours["hops"],
                ours["remote_hops"],
                ours["lookup_hops"],
                f"{paper[1]:.2f}",
                f"{100 * ours['miss_rate']:.2f} %",
                percent(misses[scheme]),
                percent(paper[2]),
                f"{ours['access_latency_ms']:.3f}",
                percent(accesses[scheme]),
                percent(paper[3]),
                f"{ours['migrations']:,.0f}",
                percent(migrations[scheme]) if scheme in ("OSM", "POP") else "",
                percent(paper[4]),
            ]
        )
    head = [
        "scheme",
        "hit, ms",
        "against FAF",
        "paper",
        "hops",
        "of remote hits",
        "with lookup",
        "paper",
        "misses",
        "against FAF",
        "paper",
        "access, ms",
        "against FAF",
        "paper",
        "migrations",
        "against OSM",
        "paper",
    ]
    average = {
        of: [
            mean([{"": row[users]} for row in sharing if row["of"] == of])[""]
            for users in ("private", "two", "more")
        ]
        for of in ("blocks", "accesses")
    }
    shared_rows = [
        [
            of,
            *(f"{100 * value:.1f} %" for value in values),
            f"{100 * PAPER[of]['private']:.1f} %",
            *(
                f"{100 * PAPER[of][users]:.1f} %" if users in PAPER[of] else ""
                for users in ("two", "more")
            ),
        ]
        for of, values in average.items()
    ]
    return "\n".join(
        [
            "## Sharing (figures 2 and 3)\n",
            table(["of", "private", "two", "more", "paper: private", "two", "more"], shared_rows),
            "## Schemes (figures 6 to 10)\n",
            "Means over the six applications.\n",
            table(head, lines_of),
        ]
    )


def row_values(row: dict) -> dict:
    return {name: value for name, value in row.items() if isinstance(value, (int, float))}


def shares(stat: dict) -> dict[str, dict[str, float]]:
    """The shares of blocks, and of accesses to them, by the number of threads that use them:
    one, two, more."""
    users = stat["stats"]["sharing"]["threads"]
    out = {}
    for of in ("blocks", "accesses"):
        private, two, *more = users[of]
        whole = sum(users[of])
        out[of] = {"private": private / whole, "two": two / whole, "more": sum(more) / whole}
    return out


def sweep(
    lab: Lab, pool: ThreadPoolExecutor, cases: list[tuple[str, dict, list[str]]]
) -> list[dict]:
    """The means of every case (name, arguments of `simulate`, placements) over the two
    representative applications."""
    jobs = [
        (label, arguments, placements, application)
        for label, arguments, placements in cases
        for application in SWEPT
    ]
    answers = list(pool.map(lambda job: lab.simulate(job[3], job[2], **job[1]), jobs))
    rows = []
    for at, (label, _, placements) in enumerate(cases):
        of_case = answers[at * len(SWEPT) :][: len(SWEPT)]
        rows += [
            {"case": label, "placement": placement, **mean([answer[nth] for answer in of_case])}
            for nth, placement in enumerate(placements)
        ]
    return rows


TRIGGERS = [5, 10, 20, 50, 100, 200]
SHOWN = {
    "hit, ms": "hit_latency_ms",
    "hops": "hops",
    "miss rate": "miss_rate",
    "access, ms": "access_latency_ms",
}


def compared(title: str, why: str, rows: list[dict]) -> str:
    """The table of a parameter's values for the four schemes."""
    lines_of = []
    cases = list(dict.fromkeys(row["case"] for row in rows))
    for case in cases:
        first, *_, last = of_case = [row for row in rows if row["case"] == case]
        for row in of_case:
            gain = [
                percent(row[name] / first[name] - 1) if row is not first else ""
                for name in ("hit_latency_ms", "access_latency_ms")
            ]
            lines_of.append(
                [
                    case if row is first else "",
                    row["placement"],
                    *(row[name] for name in SHOWN.values()),
                    f"{row['migrations']:,.0f}",
                    f"{row['forwarded']:,.0f}",
                    *gain,
                ]
            )
    return f"## {title}\n\n{why}\n\n" + table(
        [
            "",
            "placement",
            *SHOWN,
            "migrations",
            "forwarded",
            "hit against first",
            "access against first",
        ],
        lines_of,
    )


def relative(
    path: Path, title: str, across: str, at: list[int], base: dict, rows: list[dict]
) -> None:
    """Draws the effect of a parameter: hit latency, miss rate and access latency, relative to
    first-and-forever."""
    drawn = {
        "hit latency": "hit_latency_ms",
        "miss rate": "miss_rate",
        "access latency": "access_latency_ms",
    }
    plot.lines(
        path,
        title,
        "% of FAF's",
        across,
        {
            name: [(x, 100 * row[of] / base[of]) for x, row in zip(at, rows)]
            for name, of in drawn.items()
        },
    )


def open_questions(lab: Lab, results: Path, pool: ThreadPoolExecutor) -> str:
    """What the paper leaves open, one table each."""
    faf, pop = "first-and-forever", "post-office"
    all_of, two = list(SCHEMES.values()), [faf, POP]
    parts = []

    def section(
        file: str, title: str, why: str, cases: list[tuple[str, dict, list[str]]]
    ) -> list[dict]:
        print(f"{file} ...", file=sys.stderr, flush=True)
        rows = sweep(lab, pool, cases)
        write_csv(results / f"{file}.csv", rows)
        parts.append(compared(title, why, rows))
        return rows

    even = {"threads": 16, "part": 0.8 / 16}
    section(
        "topologies",
        "Topologies of 16 nodes",
        "The same 16 threads, laid out on a 4x4 mesh by the workload, whatever the network is.",
        [
            (nodes, {"nodes": nodes, **even, "costs": TABLE_1}, all_of)
            for nodes in ("mesh:4x4", "torus:4x4", "hypercube:4", "tree:4x4", "ring:16x1")
        ],
    )
    section(
        "network_sizes",
        "Sizes of the network",
        "The cache of all nodes together is 80 % of the data.",
        [
            (
                f"{side}x{side}",
                {"nodes": f"mesh:{side}x{side}", "threads": side * side, "part": 0.8 / side**2},
                all_of,
            )
            for side in (3, 4, 5, 6, 8)
        ],
    )
    section(
        "block_sizes",
        "Block sizes",
        "A block costs by its size, a lookup does not.",
        [
            (f"{kib} KiB", {"extra": ("--block", f"{kib}KiB"), "nodes": "mesh:5x5"}, all_of)
            for kib in (4, 8, 16, 32)
        ],
    )
    disks = {
        "all nodes": "",
        "corners": "disks=0:4:20:24",
        "left edge": "disks=0:5:10:15:20",
        "middle row": "disks=10:11:12:13:14",
    }
    section(
        "disk_places",
        "Places of disks",
        "Blocks are striped over the nodes that have one.",
        [(name, {"costs": costs}, two) for name, costs in disks.items()],
    )
    section(
        "cache_sizes",
        "Cache sizes",
        "All nodes together, as a part of the data.",
        [
            (f"{100 * part:.0f} %", {"part": part / 25}, all_of)
            for part in (0.1, 0.2, 0.4, 0.6, 0.8, 1.2)
        ],
    )
    triggers = section(
        "trigger",
        "The trigger T_tr",
        "Accesses to a block before it moves.",
        [
            (
                "",
                {},
                [
                    faf,
                    *(
                        f"{pop}{{miss_ratio=0.15,remote_misses=0,trigger={count}}}"
                        for count in TRIGGERS
                    ),
                ],
            )
        ],
    )
    section(
        "pressure",
        "The pressure T_m",
        "The local miss ratio from which on victims are forwarded; what other caches serve "
        "counted as missed or not.",
        [
            (
                "",
                {"part": 0.4 / 25},
                [
                    faf,
                    *(
                        f"{pop}{{miss_ratio={ratio},remote_misses={remote}}}"
                        for remote in (1, 0)
                        for ratio in (0, 0.05, 0.1, 0.15, 0.2, 0.4, 0.6, 0.8)
                    ),
                ],
            )
        ],
    )
    section(
        "uneven",
        "Unequal nodes",
        "Nodes with odd numbers have a quarter of the room of the others; the sum is the same.",
        [
            (name, {"nodes": nodes}, [faf, "one-step", POP, f"{pop}{{miss_ratio=0}}"])
            for name, nodes in (("even", "mesh5x5-io"), ("uneven", str(uneven(lab.work))))
        ],
    )
    section(
        "contention",
        "Contention",
        "Time that a node computes between two accesses, and links that make nobody wait.",
        [
            (f"{ns / 1e6:g} ms", {"costs": f"compute_ns={ns}"}, all_of)
            for ns in (0, 1_000_000, 10_000_000)
        ]
        + [("no contention", {"costs": "contention=false"}, all_of)],
    )
    section(
        "disk_model",
        "Disks with an arm and a buffer",
        "Instead of 8.2 ms each time. The buffer holds a large part of these small data sets.",
        [
            ("flat", {}, all_of),
            ("arm and buffer", {"costs": "disk_ns=0"}, all_of),
            (
                "arm, small buffer",
                {"costs": "disk_ns=0,disk_streams=4,disk_ahead_blocks=8"},
                all_of,
            ),
        ],
    )
    distances = [0, 1, 2, 3, 4, 5, 6, 8]
    for part in (0.2, 0.8):
        specs = [
            faf,
            POP,
            *(
                f"{pop}{{miss_ratio=0.15,remote_misses=0,replication={distance}}}"
                for distance in distances
            ),
        ]
        rows = section(
            f"replication_{100 * part:.0f}",
            f"Replication distance, caches of {100 * part:.0f} % of the data",
            "A read-only block farther than so many hops is replicated.",
            [("", {"part": part / 25}, specs)],
        )
        relative(
            results / f"replication_{100 * part:.0f}.svg",
            f"Replication distance, caches of {100 * part:.0f} % of the data",
            "hops",
            distances,
            rows[0],
            rows[2:],
        )
    relative(
        results / "trigger.svg",
        "Accesses to a block before it moves (T_tr)",
        "accesses",
        TRIGGERS,
        triggers[0],
        triggers[1:],
    )
    return "\n".join(parts)


def uneven(work: Path) -> Path:
    """A 5x5 mesh in which nodes with odd numbers have a quarter of the others' room."""
    path = work / "uneven.toml"
    nodes = "".join(f'\n[[nodes]]\ncapacity = "{1 if node % 2 else 4}GiB"\n' for node in range(25))
    path.write_text(f'shape = "mesh5x5-io"\n{nodes}')
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for the traces")
    parser.add_argument(
        "--output", type=Path, required=True, help="where tables, plots and the summary go"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="blocks of each application, as a part of 40,000"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="runs of the command at a time; each uses all processors",
    )
    arguments = parser.parse_args()
    lab = Lab(arguments.hither.resolve(), arguments.work.resolve(), arguments.scale)
    arguments.output.mkdir(parents=True, exist_ok=True)
    version = lab.call("--version").strip()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        parts = [figures(lab, arguments.output, pool), open_questions(lab, arguments.output, pool)]
    head = (
        f"# Post-office placement: figures of the paper, and what it left open\n\n{version}, "
        f"{time.strftime('%Y-%m')}, Linux {platform.release()}. "
        f"`post_office.py --scale {arguments.scale:g}`: {int(40_000 * arguments.scale):,} "
        f"blocks an application, 100 accesses to each on average, "
        f"{100 * 25 * NODE_PART:.0f} % of the data in all caches together, 8.2 ms a disk "
        f"access, 1 ms of computation between a node's accesses; sweeps are means over "
        f"{' and '.join(SWEPT)}. "
        "See [discussion.md](discussion.md).\n\n"
    )
    (arguments.output / "summary.md").write_text(head + "\n".join(parts))


if __name__ == "__main__":
    main()
