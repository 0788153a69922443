"""The workloads of the PCC paper (section 5.2) with today's programs: their data, their commands,
and their recording. pcc.py's page says what stands for what."""

import math
import os
import random
import shutil
import subprocess
import sys
from array import array
from pathlib import Path

import tpch

PACKAGES = [
    "bc",
    "bison",
    "cscope",
    "flex",
    "gcc",
    "glimpse",
    "gnuplot-nox",
    "libelf-dev",
    "linux-source",
    "make",
    "postgresql",
    "strace",
]
MULTI = {
    "multi1": ["cscope", "gcc"],
    "multi2": ["cscope", "gcc", "viewperf"],
    "multi3": ["glimpse", "tpc-h"],
}

# cscope: as many sources as Linux 2.4.20 has, and six words in every field of its screen that
# searches (5 replaces).
CSCOPE_FOLDERS = ["block", "fs", "include", "ipc", "kernel", "lib", "mm", "net"]
CSCOPE_WORDS = ["vfs_read", "kmalloc", "schedule", "readahead", "tcp_sendmsg", "mutex_lock"]
CSCOPE_FIELDS = "01234678"
# The fields that scan the index. 4 and 6 read all sources; 7 is answered from the list of files.
CSCOPE_SYMBOLS = "01238"

# glimpse: about 43,000 texts of 540 MB. The queries come from narrow to wide, by the number of
# files that they open: then the call site that reads files has read most blocks twice early on.
GLIMPSE_FOLDERS = [
    *["Documentation", "block", "crypto", "drivers", "fs", "include", "kernel", "lib", "mm"],
    *["net", "security", "sound"],
]
GLIMPSE_LEFT_OUT = ["drivers/gpu", "drivers/net"]
GLIMPSE_WORDS = [
    *["inotify", "fsnotify", "fallocate", "readahead", "journal", "quota", "hibernation"],
    *["checksum", "timeout"],
]

# tpc-h: one client per list of queries. At this scale factor their data are 200 MB.
TPCH_SCALE = 0.15
TPCH_STREAMS = [[3], [4], [6], [14]]

# viewperf: the files of each data set, how often each is read in a row, and its side (a square of
# floats). The paper has 20 files for 95 % of the references, four of which are read twice, 495 MB
# and 303,123 references: so the four that are read twice are the large ones. 269 other files make
# the rest: 56 scripts, one per invocation, and small files that are read with the large ones.
VIEWPERF_SETS = [(8, 3, 1825), (4, 3, 1825), (1, 3, 1825), (4, 2, 4096), (3, 3, 1825)]
VIEWPERF_SMALL, SMALL_BYTES = 213, 105_000


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
    # Any version of the kernel's source will do.
    if sources():
        missing = [package for package in missing if package != "linux-source"]
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


def sources() -> Path | None:
    """Debian's archive of the Linux source."""
    return next(iter(sorted(Path("/usr/src").glob("linux-source-*.tar.xz"), reverse=True)), None)


def server() -> Path | None:
    """The folder of PostgreSQL's programs."""
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def quiet(command: list, **options) -> None:
    """Runs a program that must succeed, without its output."""
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL, **options)


class Workloads:
    """Data in the folder `work`, made once, `scale` times as large as the paper's. `quick` takes
    headers that every machine with a compiler has for the kernel's sources."""

    def __init__(self, work: Path, tree: Path | None, scale: float, quick: bool):
        self.work, self.scale, self.quick = work, scale, quick
        # A folder in which the owner of the database can write.
        self.work.chmod(0o755)
        self.tree = self.make_tree(tree)

    def make_tree(self, given: Path | None) -> Path:
        if given:
            return given.resolve()
        tree = self.work / "tree"
        if tree.exists():
            return tree
        if self.quick:
            for folder in ("fs", "include", "lib"):
                (tree / folder).mkdir(parents=True)
            for number, header in enumerate(sorted(Path("/usr/include").glob("*.h"))[:240]):
                shutil.copy(header, tree / ("fs", "include", "lib")[number % 3] / header.name)
            for number in range(12):
                (tree / "lib" / f"made{number}.c").write_text(
                    "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
                )
            return tree
        archive = sources()
        if not archive:
            sys.exit(
                "no Linux source to unpack: install Debian's linux-source, or name a tree with "
                "--tree"
            )
        quiet(["tar", "-xf", archive, "-C", self.work])
        (self.work / archive.name.removesuffix(".tar.xz")).rename(tree)
        return tree

    def files(self, folders: list[str], pattern: str, left_out: list[str] = []) -> list[Path]:
        """The regular files below folders of the tree, or a share of them if the scale is less."""
        found = sorted(
            path
            for folder in folders
            for path in (self.tree / folder).rglob(pattern)
            if path.is_file()
            and not path.is_symlink()
            and not any(path.is_relative_to(self.tree / other) for other in left_out)
        )
        if self.scale < 1 and not self.quick:
            found = sorted(random.Random(0).sample(found, round(self.scale * len(found))))
        return found

    def commands(self) -> dict[str, str]:
        """The shell command of each workload whose programs are there."""
        found = {}
        if shutil.which("cscope"):
            found["cscope"] = self.cscope(CSCOPE_FIELDS)
        builders = ["gcc"] if self.quick else ["gcc", "make", "flex", "bison", "bc"]
        if all(map(shutil.which, builders)):
            found["gcc"] = self.gcc()
        if shutil.which("glimpse"):
            found["glimpse"] = self.glimpse(GLIMPSE_WORDS)
        if server() and os.geteuid() == 0:
            found["tpc-h"] = self.tpch(TPCH_STREAMS)
        if shutil.which("gnuplot"):
            found["viewperf"] = self.viewperf()
        found["epochs"] = self.epochs()
        for name, parts in MULTI.items():
            if all(part in found for part in parts):
                found[name] = " ".join(f"{{ {found[part]}; }} &" for part in parts) + " wait"
        return found

    def switched(self) -> dict[str, tuple[str, str]]:
        """The same workloads with one thing changed each: what it is, and the command. Only those
        whose programs are there."""
        found = {}
        if shutil.which("cscope"):
            found["cscope, symbols"] = (
                "no text searches: only the fields that scan the index",
                self.cscope(CSCOPE_SYMBOLS),
            )
            if shutil.which("gcc"):
                reader = self.work / "index_reader"
                quiet(["gcc", "-O1", "-o", reader, Path(__file__).parent / "index_reader.c"])
                run = f"cd {self.tree} && {reader} {self.work}/cscope.out {self.work}/cscope.files"
                found["cscope, reader"] = (
                    "the same reads by `index_reader`, without a step back",
                    f"{run} 0 0",
                )
                found["cscope, steps back"] = (
                    "it steps back 16 KiB in the index after each 2,048 reads",
                    f"{run} 2048 16384",
                )
        if not self.quick and shutil.which("make"):
            found["gcc, pipe"] = (
                "no temporary files (`-pipe`)",
                f"cd {self.tree} && make -s -j1 KCFLAGS=-pipe mm/ lib/ >/dev/null",
            )
        if shutil.which("glimpse"):
            found["glimpse, wide first"] = (
                "the same queries from wide to narrow",
                self.glimpse(GLIMPSE_WORDS[::-1]),
            )
            found["glimpse, alphabetical"] = (
                "the same queries in alphabetical order",
                self.glimpse(sorted(GLIMPSE_WORDS)),
            )
        if server() and os.geteuid() == 0:
            one = [[query for stream in TPCH_STREAMS for query in stream]]
            found["tpc-h, one client"] = ("the same queries by one client", self.tpch(one))
            found["tpc-h, shared scans"] = (
                "scans that join others that run (PostgreSQL since 8.3)",
                self.tpch(TPCH_STREAMS, "on"),
            )
            if shutil.which("strace"):
                found["tpc-h, disk"] = (
                    "each read takes 0.1 ms more, as from a disk",
                    self.tpch(TPCH_STREAMS, disk_us=100),
                )
            found["tpc-h, two queries each"] = (
                "three clients with two queries each",
                self.tpch([[3, 6], [14, 4], [12, 10]]),
            )
        return found

    def cscope(self, fields: str) -> str:
        """One session of cscope with queries of these fields, word by word."""
        index, names = self.work / "cscope.out", self.work / "cscope.files"
        if not index.exists():
            files = self.files(CSCOPE_FOLDERS, "*.[chS]")
            names.write_text("".join(f"{path.relative_to(self.tree)}\n" for path in files))
            quiet(
                ["cscope", "-b", "-k", "-i", names, "-f", index],
                cwd=self.tree,
                stderr=subprocess.DEVNULL,
            )
        queries = self.work / f"queries.{fields}"
        queries.write_text(
            "".join(f"{field}{word}\n" for word in CSCOPE_WORDS for field in fields) + "q\n"
        )
        return f"cd {self.tree} && cscope -dl -f {index} < {queries} >/dev/null"

    def gcc(self) -> str:
        """A build of a part of the kernel, from clean."""
        if self.quick:
            made = self.work / "made.o"
            return f"cd {self.tree}/lib && for file in made*.c; do gcc -c -o {made} $file; done"
        if not (self.tree / ".config").exists():
            quiet(["make", "-s", "tinyconfig"], cwd=self.tree)
        quiet(["make", "-s", "prepare"], cwd=self.tree)
        return f"cd {self.tree} && make -s -j1 mm/ lib/ >/dev/null"

    def clean(self) -> None:
        """Removes what the build of `gcc` made."""
        for folder in () if self.quick else ("mm", "lib"):
            for path in (self.tree / folder).rglob("*"):
                if path.suffix in (".o", ".a", ".cmd") or path.name.startswith("."):
                    path.unlink()

    def glimpse(self, words: list[str]) -> str:
        """Single-word queries. The index names partitions, some 200 files each, and glimpse scans
        every file of a partition that has the word."""
        index = self.work / "glimpse"
        if not index.exists():
            index.mkdir()
            files = self.files(GLIMPSE_FOLDERS, "*", GLIMPSE_LEFT_OUT)
            quiet(
                ["glimpseindex", "-F", "-H", index],
                input="".join(f"{path}\n" for path in files).encode(),
                stderr=subprocess.DEVNULL,
            )
            for path in index.iterdir():
                path.chmod(0o644)
        query = lambda word: f"glimpse -y -H {index} -h -c {word} >/dev/null"
        # glimpse fails if nothing is found.
        return "; ".join([*map(query, words), "true"])

    def tpch(
        self, streams: list[list[int]], shared_scans: str = "off", disk_us: int | None = None
    ) -> str:
        """A server, and one client per stream. Its own buffers are small, so its reads reach the
        kernel. Each scan reads a table from its first block on, as in the paper's PostgreSQL. With
        `disk_us`, strace makes each read take so much longer, and the other backends run then."""
        data, programs = self.work / "postgres", server()
        settings = (
            f"-c shared_buffers=1MB -c work_mem=4MB -c max_parallel_workers_per_gather=0 "
            f"-c autovacuum=off -c jit=off -c fsync=off -c max_wal_size=8GB "
            f"-c synchronize_seqscans={shared_scans} -c listen_addresses="
        )
        slowed = "" if disk_us is None else (
            f"strace -f -qq -o /dev/null -e trace=pread64 -e inject=pread64:delay_exit={disk_us}"
        )
        script = self.work / "serve.sh"
        # A socket's path has at most 107 bytes.
        script.write_text(f"""settings=$1; slowed=$2; shift 2
sockets=$(mktemp -d /tmp/tpch.XXXXXX)
$slowed {programs}/postgres $settings -c unix_socket_directories=$sockets -D {data} \\
    >$sockets/log 2>&1 &
server=$!
for turn in $(seq 600); do
    {programs}/psql -q -h $sockets postgres -c 'select 1' >/dev/null 2>&1 && break
    sleep 0.1
done
clients=; failed=0
for stream in "$@"; do
    {programs}/psql -q -h $sockets -v ON_ERROR_STOP=1 -f "$stream" postgres >/dev/null &
    clients="$clients $!"
done
for client in $clients; do wait $client || failed=1; done
kill -INT $(head -n 1 {data}/postmaster.pid)
wait $server
rm -r $sockets
exit $failed
""")
        script.chmod(0o755)
        if not data.exists():
            data.mkdir()
            shutil.chown(data, "postgres")
            owner = ["runuser", "-u", "postgres", "--"]
            tables = self.work / "tables.sql"
            tables.write_text(tpch.tables(TPCH_SCALE * self.scale))
            tables.chmod(0o644)
            quiet([*owner, programs / "initdb", "-D", data], stderr=subprocess.DEVNULL, cwd="/")
            quiet([*owner, "sh", script, settings, "", tables], cwd="/")
        files = []
        for stream in streams:
            files.append(self.work / f"stream-{'-'.join(map(str, stream))}.sql")
            files[-1].write_text("".join(f"{tpch.QUERIES[query]};\n" for query in stream))
            files[-1].chmod(0o644)
        return f"cd / && sh {script} '{settings}' '{slowed}' {' '.join(map(str, files))}"

    def viewperf(self) -> str:
        """Surfaces over square grids, with points from small files. Each grid is drawn by several
        invocations in a row, and then no more. gnuplot reads each file completely and draws only a
        part of it; here only the reads matter."""
        grids, calls = self.work / "grids", []
        grids.mkdir(exist_ok=True)
        small = [grids / f"small.{number}" for number in range(VIEWPERF_SMALL)]
        count, names = sum(files for files, _, _ in VIEWPERF_SETS), []
        for data_set, (files, views, full) in enumerate(VIEWPERF_SETS):
            side = max(32, round(full * math.sqrt(self.scale)))
            for file in range(files):
                grid = grids / f"{data_set}.{file}"
                if not grid.exists():
                    wave = lambda y: (math.sin(x / 40 + file + y) for x in range(side))
                    rows = [array("f", wave(y)).tobytes() for y in range(16)]
                    grid.write_bytes(b"".join(rows[y % 16] for y in range(side)))
                drawn = [f"'{grid}' binary array=({side},{side}) format='%float' every 16:16"]
                for name in small[len(names) :: count]:
                    line = f"{file} {data_set} a point of the surface {'.' * 56}\n"
                    name.write_text(line * round(SMALL_BYTES * self.scale / len(line) + 1))
                    drawn.append(f"'{name}' using 1:2:(0) every 999")
                names.append(grid)
                for view in range(views):
                    program = self.work / f"view.{len(calls)}.gp"
                    program.write_text(
                        f"set terminal svg; set output '/dev/null'; set view {15 + 15 * view},30; "
                        f"splot {', '.join(drawn)}\n"
                    )
                    calls.append(f"gnuplot {program} 2>/dev/null")
        return "; ".join(calls)

    def epochs(self) -> str:
        """Shards that are read in another order in each epoch."""
        shards = self.work / "shards"
        shards.mkdir(exist_ok=True)
        count, blocks = (12, 16) if self.quick else (96, 256)
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

    def record(self, hither: Path, traces: Path, name: str, command: str) -> Path:
        """The trace of a workload, recorded if it is not there."""
        trace = traces / f"{name.replace(', ', '-').replace(' ', '-')}.hither"
        if not trace.exists():
            if name.startswith("gcc") or "gcc" in MULTI.get(name, ()):
                self.clean()
            record = [hither, "-q", "record", "--seen-by=library", "-o", trace, "--"]
            record += ["sh", "-c", command]
            # PostgreSQL does not run as root, and a recorder of root does not follow a process that
            # gives up root.
            owner = ["runuser", "-u", "postgres", "--"] if "serve.sh" in command else []
            subprocess.run([*owner, *record], check=True, cwd="/")
        return trace
