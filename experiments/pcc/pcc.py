#!/usr/bin/env python3
"""The experiments of the PCC paper with today's programs (Gniady, Butt and Hu, OSDI 2004,
section 5): records workloads, simulates them, and writes table 1 and figures 7 to 11 as tables,
with the paper's numbers where it prints them.

    python3 experiments/pcc/pcc.py --hither target/release/hither --work /tmp/pcc --results \\
        experiments/pcc/results
    python3 experiments/pcc/pcc.py --hither target/debug/hither --work /tmp/pcc --tiny

--tiny is what CI runs: everything once, at a small size. The workloads, the paper's and ours:

- cscope over Linux 2.4.20: cscope over Debian's Linux source, eight queries in one session.
- glimpse: full-text queries. An index (SQLite's FTS5) finds the files, and grep reads them.
- gcc, Linux 2.4.20: make mm/ lib/ of a tinyconfig kernel; with --tiny, of generated files.
- tpc-h on PostgreSQL: scans, joins and aggregates like its queries 1, 3, 4 and 6 on PostgreSQL,
  over generated rows.
- viewperf (SPEC's, not free): gnuplot draws surfaces from five data sets of 8, 4, 1, 4 and 3
  files. The paper says that as many files make 95 % of the references. Five invocations, one per
  view, read each set completely.
- epochs (not in the paper): a reader that reads its files in another order in each epoch, as
  machine learning does.
- multi1, multi2, multi3: cscope and gcc at the same time; these with viewperf; glimpse and
  tpc-h.

As root on Debian it installs the packages it needs. A workload without its programs is skipped
with a message.
"""

import argparse
import json
import math
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "end_to_end")]
import hit_ratios  # noqa: E402
import plot  # noqa: E402

POLICIES = ["lru", "arc", "ubm", "pcc", "opt"]
SAMPLES = [1, 5, 20, 100, 1000]
THRESHOLDS = [5, 50, 100, 200, 400]
WORDS = ["spinlock", "readahead", "kmalloc", "timeout", "checksum", "deprecated"]
DATA_SETS = [8, 4, 1, 4, 3]
VIEWS = 5
PACKAGES = [
    "bc",
    "bison",
    "cscope",
    "flex",
    "gcc",
    "gnuplot-nox",
    "libelf-dev",
    "linux-source",
    "make",
    "postgresql",
]
# References, MB, files and signature PCs: the paper's table 1.
PAPER = {
    "cscope": (1119161, 260, 10635, 107),
    "glimpse": (519382, 669, 43649, 25),
    "gcc": (158667, 41, 2098, 334),
    "tpc-h": (121307, 196, 80, 242),
    "viewperf": (303123, 495, 289, 179),
    "multi1": (1278135, 297, 12246, 442),
    "multi2": (1580908, 792, 12514, 605),
    "multi3": (640467, 865, 43738, 268),
}


def install() -> None:
    """Installs the missing Debian packages, if permitted."""
    if not shutil.which("apt-get"):
        return
    status = lambda package: (
        subprocess.run(
            ["dpkg-query", "-W", "-f", "${db:Status-Status}", package],
            capture_output=True,
            text=True,
        ).stdout
    )
    missing = [package for package in PACKAGES if status(package) != "installed"]
    if not missing:
        return
    if os.geteuid() != 0:
        print(f"missing, and only root may install them: {', '.join(missing)}", file=sys.stderr)
        return
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    # An index older than the archive names files that no longer exist.
    if subprocess.run(command, stdout=sys.stderr).returncode != 0:
        subprocess.run(["apt-get", "update", "-qq"], check=True, stdout=sys.stderr)
        subprocess.run(command, check=True, stdout=sys.stderr)


def server() -> Path | None:
    """The folder of PostgreSQL's programs."""
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


class Lab:
    def __init__(self, arguments):
        self.tiny = arguments.tiny
        self.hither = arguments.hither.resolve()
        self.work = arguments.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.tree = self.make_tree(arguments.tree)
        # A folder in which the owner of the database can write, with a program that it can run.
        self.work.chmod(0o755)
        self.traces = self.work / "traces"
        self.traces.mkdir(exist_ok=True)
        self.traces.chmod(0o1777)
        self.hither = Path(shutil.copy(self.hither, self.work / "hither"))

    def make_tree(self, given: Path | None) -> Path:
        if given:
            return given.resolve()
        tree = self.work / "tree"
        if self.tiny:
            # Headers that every machine with a compiler has.
            for folder in ("fs", "include", "lib"):
                (tree / folder).mkdir(parents=True, exist_ok=True)
            for number, header in enumerate(sorted(Path("/usr/include").glob("*.h"))[:240]):
                shutil.copy(header, tree / ("fs", "include", "lib")[number % 3] / header.name)
            for number in range(12):
                (tree / "lib" / f"made{number}.c").write_text(
                    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                )
        elif not tree.exists():
            archive = next(
                iter(sorted(Path("/usr/src").glob("linux-source-*.tar.xz"), reverse=True)), None
            )
            if not archive:
                sys.exit(
                    "no Linux source to unpack: install Debian's linux-source, or name a tree "
                    "with --tree"
                )
            subprocess.run(["tar", "-xf", archive, "-C", self.work], check=True)
            (self.work / archive.name.removesuffix(".tar.xz")).rename(tree)
        return tree

    def workloads(self) -> dict[str, str]:
        """The shell commands of the workloads."""
        tree, work = self.tree, self.work
        found = {}
        programs = (
            ["cscope", "gcc"] if self.tiny else ["cscope", "gcc", "make", "flex", "bison", "bc"]
        )
        if all(map(shutil.which, programs)):
            if self.tiny:
                (work / "queries").write_text(hit_ratios.QUERIES)
                files = "\n".join(
                    str(path.relative_to(tree)) for path in sorted(tree.rglob("*.[ch]"))
                )
                (work / "cscope.files").write_text(files + "\n")
                command = [
                    "cscope",
                    "-b",
                    "-k",
                    "-i",
                    work / "cscope.files",
                    "-f",
                    work / "cscope.out",
                ]
                subprocess.run(command, cwd=tree, check=True, stderr=subprocess.DEVNULL)
                found["cscope"] = (
                    f"cd {tree} && cscope -dl -f {work}/cscope.out < {work}/queries >/dev/null"
                )
                found["gcc"] = (
                    f"cd {tree}/lib && for f in made*.c; do gcc -c -o {work}/made.o $f; done"
                )
            else:
                hit_ratios.prepare(tree, work)
                found |= {
                    name: hit_ratios.workloads(tree, work)[name] for name in ("cscope", "gcc")
                }
        found["glimpse"] = self.search()
        if server() and os.geteuid() == 0:
            found["tpc-h"] = self.database()
        if shutil.which("gnuplot"):
            found["viewperf"] = self.viewperf()
        found["epochs"] = self.epochs()
        for name, parts in {
            "multi1": ["cscope", "gcc"],
            "multi2": ["cscope", "gcc", "viewperf"],
            "multi3": ["glimpse", "tpc-h"],
        }.items():
            if all(part in found for part in parts):
                found[name] = " ".join(f"{{ {found[part]}; }} &" for part in parts) + " wait"
        left_out = [name for name in PAPER if name not in found]
        if left_out:
            print(
                f"left out, as their programs are missing: {', '.join(left_out)}", file=sys.stderr
            )
        return found

    def search(self) -> str:
        """A full-text index of the tree, and a program that queries it and reads the files it
        names."""
        index = self.work / "index.db"
        if not index.exists():
            database = sqlite3.connect(index)
            database.execute("create virtual table texts using fts5(path, text, content='')")
            folders = [self.tree / folder for folder in ("fs", "include", "lib")]
            files = [path for folder in folders for path in sorted(folder.rglob("*.[ch]"))]
            database.execute("create table files(id integer primary key, path)")
            for number, path in enumerate(files):
                database.execute(
                    "insert into texts(rowid, path, text) values (?, ?, ?)",
                    (number, str(path), path.read_text(errors="replace")),
                )
                database.execute("insert into files values (?, ?)", (number, str(path)))
            database.commit()
            database.close()
        script = self.work / "search.sh"
        lines = []
        for word in WORDS:
            query = (
                f"select path from files where id in (select rowid from texts where texts "
                f"match '{word}*')"
            )
            lines.append(
                f'python3 {self.work}/ask.py "{query}" | xargs -r -d "\\n" grep -c {word} '
                f">/dev/null"
            )
        script.write_text("\n".join([*lines, *lines, "true"]) + "\n")
        (self.work / "ask.py").write_text(
            f"import sqlite3, sys\nfor row in "
            f"sqlite3.connect({str(index)!r}).execute(sys.argv[1]): print(*row)\n"
        )
        return f"sh {script}"

    def database(self) -> str:
        """A database in single-user mode, which is one process. Its own buffers are small, so
        its reads reach the kernel."""
        data, programs = self.work / "postgres", server()
        rows = 20_000 if self.tiny else 600_000
        as_owner = ["runuser", "-u", "postgres", "--"]
        settings = (
            "-c shared_buffers=1MB -c work_mem=4MB -c "
            "max_parallel_workers_per_gather=0 -c autovacuum=off -c jit=off"
        )
        single = f"{programs}/postgres --single {settings} -D {data} postgres"
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "postgres")
            subprocess.run(
                [*as_owner, programs / "initdb", "-D", data], check=True, stdout=subprocess.DEVNULL
            )
            made = [
                f"create table orders as select o orderkey, o % {rows // 40} custkey, date "
                f"'1992-01-01' + (o * 37) % 2400 orderdate, o % 5 priority, repeat('o', 60) "
                f"comment from generate_series(1, {rows // 4}) o",
                f"create table lineitem as select l / 4 orderkey, l % 50 quantity, (l::bigint "
                f"* 7919) % 100000 price, (l % 11) / 100.0 discount, l % 3 flag, date "
                f"'1992-01-01' + (l * 13) % 2500 shipdate, repeat('l', 70) comment from "
                f"generate_series(1, {rows}) l",
                f"create table customer as select c custkey, c % 5 segment, repeat('c', 100) "
                f"comment from generate_series(1, {rows // 40}) c",
                "create index on orders(orderkey)",
                "vacuum freeze analyze",
            ]
            load = subprocess.run(
                [*as_owner, "sh", "-c", single],
                input="\n".join(made) + "\n",
                text=True,
                capture_output=True,
            )
            # In this mode it continues after an error and exits with 0.
            assert "ERROR" not in load.stderr + load.stdout, load.stderr
        queries = self.work / "queries.sql"
        queries.write_text(
            "\n".join(
                [
                    "select flag, sum(quantity), sum(price * (1 - discount)), count(*) from "
                    "lineitem where shipdate <= date '1998-09-02' group by flag",
                    "select l.orderkey, sum(l.price * (1 - l.discount)) from customer c, "
                    "orders o, lineitem l where c.segment = 1 and c.custkey = o.custkey and "
                    "l.orderkey = o.orderkey and o.orderdate < date '1995-03-15' group by "
                    "l.orderkey order by 2 desc limit 10",
                    "select priority, count(*) from orders o where orderdate < date "
                    "'1993-10-01' and exists (select 1 from lineitem l where l.orderkey = "
                    "o.orderkey and l.shipdate < date '1996-01-01') group by priority",
                    "select sum(price * discount) from lineitem where shipdate < date "
                    "'1995-01-01' and discount between 0.05 and 0.07 and quantity < 24",
                ]
                * 2
            )
            + "\n"
        )
        queries.chmod(0o644)
        return f"{single} < {queries} >/dev/null 2>&1"

    def viewperf(self) -> str:
        """Surfaces over square grids. gnuplot reads each file completely and draws only a part
        of it; here only the reads matter."""
        grids, side = self.work / "grids", 64 if self.tiny else 1024
        grids.mkdir(exist_ok=True)
        lines = []
        for number, files in enumerate(DATA_SETS):
            names = [grids / f"{number}.{file}" for file in range(files)]
            for file, name in enumerate(names):
                if not name.exists():
                    row = lambda y: array(
                        "f",
                        (math.sin(x / 40 + file) * math.cos(y / 60 + number) for x in range(side)),
                    )
                    name.write_bytes(b"".join(row(y).tobytes() for y in range(side)))
            surfaces = ", ".join(
                f"'{name}' binary array=({side},{side}) format='%float' every 16:16 with lines"
                for name in names
            )
            for view in range(VIEWS):
                lines.append(
                    f"gnuplot -e \"set terminal svg; set output '/dev/null'; set view "
                    f'{15 + 15 * view},30; splot {surfaces}"'
                )
        script = self.work / "viewperf.sh"
        script.write_text("\n".join(lines) + "\n")
        return f"sh {script}"

    def epochs(self) -> str:
        """Shards that are read in another order in each epoch."""
        shards = self.work / "shards"
        shards.mkdir(exist_ok=True)
        count, blocks = (12, 16) if self.tiny else (96, 256)
        for number in range(count):
            shard = shards / str(number)
            if not shard.exists():
                shard.write_bytes(random.Random(number).randbytes(4096 * blocks))
        script = self.work / "epochs.py"
        script.write_text(f"""import random
order = list(range({count}))
for epoch in range(5):
    random.Random(epoch).shuffle(order)
    for number in order:
        with open({str(shards)!r} + f"/{{number}}", "rb", buffering=0) as shard:
            while shard.read(65536): pass
""")
        return f"python3 {script}"

    def record(self, name: str, command: str) -> Path:
        trace = self.traces / f"{name}.hither"
        if not trace.exists():
            if name in ("gcc", "multi1", "multi2") and not self.tiny:
                hit_ratios.clean(self.tree)
            record = [self.hither, "-q", "record", "--seen-by=library", "-o", trace, "--"]
            record += ["sh", "-c", command]
            # PostgreSQL does not run as root, and a recorder of root does not follow a process that
            # gives up root.
            owner = ["runuser", "-u", "postgres", "--"] if "postgres --single" in command else []
            subprocess.run([*owner, *record], check=True)
        return trace

    def json(self, *words) -> dict:
        return json.loads(
            subprocess.run(
                [self.hither, "-q", *map(str, words), "--json"], check=True, stdout=subprocess.PIPE
            ).stdout
        )


def table(heads: list[str], rows: list[list]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def needed(distribution: dict, share: float) -> str:
    """The number of rows that make up that share of the references."""
    rows, sums = distribution["rows"], distribution["references"]
    return f"{next((row for row, sum in zip(rows, sums) if sum >= share * sums[-1]), 0):,}"


def advised(advice: dict) -> list[str]:
    """The table cells of one workload's advice."""
    size = lambda blocks: f"{blocks * 4096 / 2**20:.1f} MiB"
    sure = advice["confidence"]
    if not sure:
        return ["no verdict", *[""] * 7]
    change = {"policy": advice["policy"], "size": "more room", "nothing": "nothing"}[
        advice["change"]
    ]
    others = [
        f"{other['policy'] or 'lru'} in {size(other['cache_blocks'])}: {100 * other['gain']:.1f}"
        for other in advice["alternatives"]
    ]
    return [
        change,
        size(advice["cache_blocks"]) if advice["cache_blocks"] else "",
        f"{100 * advice['gain']:.1f}",
        f"{100 * advice['gain_max']:.1f}",
        " to ".join(f"{100 * end:.1f}" for end in sure["interval"] or []),
        f"{sure['gaining']} of {len(sure['gains']) - sure['warm_up']}",
        "; ".join([sure["level"], *sure["doubts"]]),
        ", ".join(others),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for sources, data and traces"
    )
    parser.add_argument(
        "--tree",
        type=Path,
        help="a Linux source tree that may be built in, instead of unpacking Debian's",
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="folder to write the tables and charts to; else they are printed",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="everything once, small, installing nothing"
    )
    arguments = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    if not arguments.tiny:
        install()
    lab = Lab(arguments)
    commands = lab.workloads()
    reports, fig9, thresholds = {}, {}, {}
    for name, command in commands.items():
        trace = lab.record(name, command)
        reports[name] = lab.json("report", trace, "--points", 8, "-p", ",".join(POLICIES))["runs"][
            0
        ]
        ratios = lambda parameter, values: [
            row["hit_ratio"]
            for row in lab.json(
                "sim",
                trace,
                "-s",
                "25%",
                "-p",
                ",".join(f"pcc{{{parameter}={value}}}" for value in values),
            )["results"]
        ]
        fig9[name], thresholds[name] = ratios("sample", SAMPLES), ratios("threshold", THRESHOLDS)
        assert reports[name]["stats"]["references"] > 0, f"{name} read nothing"
        print(f"{name}: {reports[name]['stats']['references']:,} references", file=sys.stderr)

    parts = [
        "### Table 1: the workloads\n",
        table(
            [
                "",
                "references",
                "data, MB",
                "files",
                "call sites",
                "in the paper: references",
                "MB",
                "files",
                "PCs",
            ],
            [
                [
                    name,
                    f"{(stats := run['stats'])['references']:,}",
                    round(stats["footprint_bytes"] / 1e6),
                    f"{stats['objects']:,}",
                    stats["sites"],
                    *(f"{number:,}" for number in PAPER.get(name, ())),
                    *([""] * (0 if name in PAPER else 4)),
                ]
                for name, run in reports.items()
            ],
        ),
    ]
    parts += [
        "### Figures 7 and 8: how many files and call sites make 50, 90, 99 % of the references\n",
        table(
            ["", "files: 50 %", "90 %", "99 %", "call sites: 50 %", "90 %", "99 %"],
            [
                [
                    name,
                    *(
                        needed(run["distributions"][of], share)
                        for of in ("objects", "sites")
                        for share in (0.5, 0.9, 0.99)
                    ),
                ]
                for name, run in reports.items()
            ],
        ),
    ]
    parts += [
        "### Figure 9: hit ratio of PCC at 25 % of the data, by sampling period\n",
        table(
            ["", *(f"T = {sample}" for sample in SAMPLES)],
            [[name, *map(percent, row)] for name, row in fig9.items()],
        ),
    ]
    parts += [
        "### Section 5.3.1: by threshold\n",
        table(
            ["", *map(str, THRESHOLDS)],
            [[name, *map(percent, row)] for name, row in thresholds.items()],
        ),
    ]
    classes = lambda run, policy: next(
        row["classes"] for row in run["results"] if row["policy"] == policy
    )
    shares = lambda found: [
        percent(found[which] / max(1, sum(found.values())))
        for which in ("sequential", "looping", "other")
    ]
    parts += [
        "### Figure 10: classes of references\n",
        table(
            ["", "ubm: sequential", "looping", "other", "pcc: sequential", "looping", "other"],
            [
                [name, *shares(classes(run, "ubm")), *shares(classes(run, "pcc"))]
                for name, run in reports.items()
            ],
        ),
    ]
    parts += ["### Figure 11: hit ratios by cache size\n"]
    for name, run in reports.items():
        sizes = [
            f"{size['size']} ({size['cache_blocks'] * 4096 / 2**20:.1f} MiB)"
            for size in run["sizes"]
        ]
        rows = [
            [
                policy,
                *(percent(row["hit_ratio"]) for row in run["results"] if row["policy"] == policy),
            ]
            for policy in POLICIES
        ]
        parts.append(table([f"**{name}**", *sizes], rows))
    parts += [
        "### What `hither advise` says of them\n",
        table(
            [
                "",
                "change",
                "cache",
                "gain, points",
                "the most that there is",
                "95 % interval",
                "stretches with a gain",
                "how sure",
                "else",
            ],
            [[name, *advised(run["advice"])] for name, run in reports.items()],
        ),
    ]
    text = "\n".join(parts)
    if not arguments.results:
        print(text)
        return
    arguments.results.mkdir(parents=True, exist_ok=True)
    about = (
        f"hither {next(iter(reports.values()))['trace']['hither']}, Linux "
        f"{os.uname().release}, {os.cpu_count()} CPUs; `experiments/pcc/pcc.py` wrote "
        f"this."
    )
    (arguments.results / "pcc.md").write_text(f"{about}\n\n{text}")
    quarter = lambda run, policy: next(
        100 * row["hit_ratio"]
        for row in run["results"]
        if row["policy"] == policy and row["cache_blocks"] == run["sizes"][2]["cache_blocks"]
    )
    groups = {name: [quarter(run, policy) for policy in POLICIES] for name, run in reports.items()}
    plot.bars(
        arguments.results / "hit_ratios.svg",
        "Hit ratio in a cache of a quarter of the data",
        "%",
        groups,
        POLICIES,
    )
    for of, noun in (("objects", "files"), ("sites", "call sites")):
        sums = {name: run["distributions"][of] for name, run in reports.items()}
        drawn = {
            name: [
                (row, 100 * sum / found["references"][-1])
                for row, sum in zip(found["rows"], found["references"])
            ]
            for name, found in sums.items()
        }
        file = arguments.results / f"{noun.replace(' ', '_')}.svg"
        plot.lines(
            file,
            f"Share of the references by number of {noun}",
            "%",
            f"{noun}, the most referenced first",
            drawn,
            log=True,
        )
    plot.bars(
        arguments.results / "sampling.svg",
        "Hit ratio of PCC in a cache of a quarter of the data, by sampling period",
        "%",
        {name: [100 * ratio for ratio in row] for name, row in fig9.items()},
        [f"T = {sample}" for sample in SAMPLES],
    )
    classified = {
        f"{policy}: {which}": (policy, which)
        for policy in ("ubm", "pcc")
        for which in ("sequential", "looping", "other")
    }
    part = lambda found, which: 100 * found[which] / max(1, sum(found.values()))
    plot.bars(
        arguments.results / "classes.svg",
        "Classes of references",
        "%",
        {
            name: [part(classes(run, policy), which) for policy, which in classified.values()]
            for name, run in reports.items()
        },
        list(classified),
    )


if __name__ == "__main__":
    main()
