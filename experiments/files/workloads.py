"""The workloads of files.py: programs, their data, and how much memory they get.

Each workload belongs to one of two sets. Those of `tune` may be looked at while a mechanism is
built. Those of `judge` are run when it is done, to see whether it holds for programs that nobody
had in mind. A coin chose: `judge` where the first byte of SHA-256("hither 27:" + name) is odd. It
was thrown once, on 2026-11-24, before any workload had run. Passes, merges and just-fits were
known to us from the start, so they are `tune`.

All programs are run to their end, do the same work each time, and print something that depends on
the bytes they read, so that runs can be compared. Sizes are those of a whole run; --quick divides
data and limits by four.
"""

import hashlib
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs.py"
OURS = {"passes-one", "passes-four", "just-fits", "merge-one", "merge-many"}
SERVERS = Path("/usr/lib/postgresql")


class Missing(Exception):
    """A workload cannot run here; the text says what it lacks."""


@dataclass
class Workload:
    # A shell command.
    command: str
    # What is not cached when it starts: files and folders.
    files: list[Path]
    limit_mib: int
    # The program runs as this user.
    user: str = ""
    # What the program says of its version.
    version: str = ""
    # The recorder sees its reads, so that the optimum can be simulated.
    optimum: bool = True


@dataclass
class Kit:
    """Where data are made, and how large."""

    work: Path
    quick: bool

    def mib(self, size: int) -> int:
        return max(size // 4, 1) if self.quick else size

    def folder(self, name: str) -> Path:
        return self.work / f"{name}{'-quick' if self.quick else ''}"

    def made(self, name: str, make: Callable[[Path], None]) -> Path:
        """A file or folder that is made once. Half-made ones have another name."""
        path = self.folder(name)
        if not path.exists():
            partial = path.with_name(path.name + ".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
            make(partial)
            partial.rename(path)
        return path


def role(name: str) -> str:
    """The set that a workload belongs to."""
    odd = hashlib.sha256(f"hither 27:{name}".encode()).digest()[0] & 1
    return "judge" if odd and name not in OURS else "tune"


def need(program: str, package: str) -> str:
    found = shutil.which(program)
    if not found:
        raise Missing(f"no {program} (Debian: {package})")
    return found


def version(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True)
    return (ran.stdout or ran.stderr).splitlines()[0]


def python(*words: object) -> str:
    """The shell command that runs a part of programs.py."""
    return " ".join(str(word) for word in (sys.executable, PROGRAMS, *words))


def noise(kit: Kit, name: str, size_mib: int) -> Path:
    """A file of random bytes."""

    def make(path: Path) -> None:
        source = random.Random(name)
        with path.open("wb") as file:
            for _ in range(size_mib):
                file.write(source.randbytes(MIB))

    return kit.made(name, make)


def text(source: random.Random, size: int) -> bytes:
    """Lines of words, of some 80 bytes."""
    letters = "etaoinshrdlu"
    words = ["".join(source.choices(letters, k=source.randint(2, 9))) for _ in range(400)]
    pool = [" ".join(source.choices(words, k=13)) for _ in range(500)]
    lines = source.choices(pool, k=size // 70 + 1)
    return "\n".join(lines).encode()[: size - 1] + b"\n"


def tree(kit: Kit, name: str, size_mib: int) -> Path:
    """A tree of text files between 4 KiB and 4 MiB."""

    def make(path: Path) -> None:
        source = random.Random(name)
        block, written, number = text(source, 8 * MIB), 0, 0
        while written < size_mib * MIB:
            size = min(int(4096 * 1024 ** source.random()), size_mib * MIB - written)
            folder = path / f"{number // 50:03}"
            folder.mkdir(parents=True, exist_ok=True)
            start = source.randrange(len(block) - size)
            (folder / f"{number:05}.txt").write_bytes(block[start : start + size])
            written, number = written + size, number + 1

    return kit.made(name, make)


def repeat(times: int, command: str) -> str:
    return f"for i in $(seq {times}); do {command}; done"


def zstd(kit: Kit) -> Workload:
    need("zstd", "zstd")
    size = kit.mib(448)
    data = kit.made("zstd.data", lambda path: path.write_bytes(text(random.Random(1), size * MIB)))
    command = repeat(5, f"zstd -1 -T1 -q -c {data} | cksum")
    return Workload(command, [data], kit.mib(256), version=version("zstd", "--version"))


def sha1sum(kit: Kit) -> Workload:
    data = tree(kit, "tree", kit.mib(448))
    command = repeat(5, f"sha1sum {data}/*/* | cksum")
    return Workload(command, [data], kit.mib(256), version=version("sha1sum", "--version"))


def ripgrep(kit: Kit) -> Workload:
    need("rg", "ripgrep")
    data = tree(kit, "tree", kit.mib(448))
    command = repeat(5, f"rg -c 'etao[a-m]+s' {data} | sort | cksum")
    return Workload(command, [data], kit.mib(256), version=version("rg", "--version"))


def rg_short(kit: Kit) -> Workload:
    """Nothing to gain: all fits."""
    need("rg", "ripgrep")
    data = tree(kit, "tree-small", kit.mib(64))
    command = repeat(4, f"rg -c 'etao[a-m]+s' {data} | sort | cksum")
    return Workload(command, [data], kit.mib(256), version=version("rg", "--version"))


def git(kit: Kit) -> Workload:
    """Nothing to gain: 120 short commands over a clone of this repository, which fits."""
    need("git", "git")
    source = version("git", "-C", str(HERE), "rev-parse", "--show-toplevel")
    if not Path(source).exists():
        raise Missing("no repository: this is not a clone")
    head = version("git", "-C", source, "rev-parse", "HEAD")

    def make(path: Path) -> None:
        clone = ["git", "clone", "-q", "--no-hardlinks", source, str(path)]
        subprocess.run(clone, check=True, stdout=sys.stderr)

    data = kit.made(f"clone-{head[:12]}", make)
    commands = [
        "status --short",
        "log --oneline -n 50",
        "diff --stat HEAD~1",
        "grep -c budget",
        "rev-parse HEAD",
        "ls-files",
        "blame -s README.md",
        "log --format=%h -n 20 -- README.md",
        "show --stat HEAD",
        "branch --list",
        "cat-file -p HEAD",
        "shortlog -s -n HEAD",
    ]
    git = f"git -C {data} --no-pager -c safe.directory='*' -c gc.auto=0"
    each = "; ".join(f"{git} {command} | cksum" for command in commands)
    return Workload(repeat(10, each), [data], kit.mib(256), version=version("git", "--version"))


def duckdb(kit: Kit) -> Workload:
    """DuckDB has a cache of its own, beside the kernel's."""
    try:
        import duckdb as module
    except ImportError:
        raise Missing(f"no module duckdb in {sys.executable} (pip install duckdb)")
    rows = kit.mib(448) * MIB // 40

    def make(path: Path) -> None:
        with module.connect(str(path)) as database:
            database.execute(
                "create table t as select i, hash(i) as h, "
                "md5(i::varchar) || md5(h::varchar) as word "
                f"from range({rows}) r(i)"
            )

    data = kit.made("table.duckdb", make)
    # The program itself needs 100 MiB beside its cache.
    limit = 128 + kit.mib(192)
    command = python("duckdb", data, f"{kit.mib(96) + 32}MiB", 5)
    return Workload(command, [data], limit, version=f"duckdb {module.__version__}")


def numpy(kit: Kit) -> Workload:
    """A loader: each record once an epoch, in another order in each."""
    try:
        import numpy as module
    except ImportError:
        raise Missing(f"no module numpy in {sys.executable} (pip install numpy)")

    def make(path: Path) -> None:
        path.mkdir()
        source = module.random.default_rng(1)
        for number in range(kit.mib(512)):
            module.save(path / f"{number:04}.npy", source.random((512, 512), dtype="float32"))

    data = kit.made("records", make)
    command = python("epochs", data, 5)
    return Workload(command, [data], kit.mib(256), version=f"numpy {module.__version__}")


def rsync(kit: Kit) -> Workload:
    """Compares two equal trees by checksums, three times."""
    need("rsync", "rsync")
    one = tree(kit, "tree-half", kit.mib(224))
    other = kit.made("tree-half-copy", lambda path: shutil.copytree(one, path))
    command = repeat(3, f"rsync -rcn --out-format=%n {one}/ {other}/ | cksum")
    files = [one, other]
    return Workload(command, files, kit.mib(256), version=version("rsync", "--version"))


def ours(kit: Kit, program: str, files: list[Path], *words: object) -> Workload:
    command = python(program, *words, *files)
    version = f"Python {sys.version.split()[0]}"
    return Workload(command, files, kit.mib(256), version=version)


def passes_one(kit: Kit) -> Workload:
    return ours(kit, "passes", [noise(kit, "noise", kit.mib(512))], 6)


def passes_four(kit: Kit) -> Workload:
    files = [noise(kit, f"noise-{number}", kit.mib(128)) for number in range(4)]
    return ours(kit, "passes", files, 6)


def just_fits(kit: Kit) -> Workload:
    """Nothing to gain: the file fits into what the limit leaves beside the program."""
    return ours(kit, "passes", [noise(kit, "noise-fits", kit.mib(236) - 1)], 6)


def merge_one(kit: Kit) -> Workload:
    """64 streams of one file, interleaved at random, through one descriptor."""
    return ours(kit, "merge", [noise(kit, "noise", kit.mib(512))], 64, "one")


def merge_many(kit: Kit) -> Workload:
    """The same through a descriptor for each stream."""
    return ours(kit, "merge", [noise(kit, "noise", kit.mib(512))], 64, "many")


def mmap(kit: Kit) -> Workload:
    workload = ours(kit, "mapped", [noise(kit, "noise", kit.mib(512))], 6)
    workload.optimum = False
    return workload


def log(kit: Kit) -> Workload:
    """A program that reads the same data again and again, and logs four times as much."""
    data, out = noise(kit, "noise-read", kit.mib(152)), kit.folder("written.log")
    workload = ours(kit, "log", [data], 8, kit.mib(75), out)
    workload.limit_mib, workload.optimum = kit.mib(208), False
    return workload


def archive(kit: Kit) -> Workload:
    data, out = tree(kit, "tree-half", kit.mib(224)), kit.folder("written.tar")
    command = repeat(4, f"tar -cf {out} -C {data} . && wc -c < {out}; rm {out}")
    tar = version("tar", "--version")
    return Workload(command, [data], kit.mib(320), version=tar, optimum=False)


def backup(kit: Kit) -> Workload:
    """A working set that is used between backups of other files."""
    data, out = noise(kit, "noise-read", kit.mib(152)), kit.folder("backup")
    files = [noise(kit, f"noise-{number}", kit.mib(128)) for number in range(4)]
    steps = [f"rm -rf {out}", f"mkdir {out}"]
    for file in files:
        steps += [f"cksum < {data}", f"cksum < {data}", f"cp {file} {out}"]
    command = "; ".join([*steps, f"cksum < {data}", f"rm -r {out}"])
    coreutils = version("cp", "--version")
    limit = kit.mib(256)
    return Workload(command, [data, *files], limit, version=coreutils, optimum=False)


def queries(kit: Kit, name: str, most: int) -> Path:
    """Point reads by key, most of them of few keys."""

    def make(path: Path) -> None:
        source = random.Random(name)
        keys = [int(most ** source.random()) for _ in range(kit.mib(20_000))]
        # Neighbours in the order of use are not neighbours in the table.
        keys = [key * 7919 % most + 1 for key in keys]
        path.write_text("".join(f"select word from points where id = {key};\n" for key in keys))

    return kit.made(name, make)


def recover(pid: Path, user: str, session: str) -> None:
    """Starts and stops a server that an interrupted run has killed, so that no run that counts has
    to recover."""
    if pid.exists():
        command = ["runuser", "-u", user, "--", "sh", "-c", session]
        subprocess.run(command, check=True, stdout=sys.stderr)


def postgres(kit: Kit) -> Workload:
    """Scans of one table beside point reads of another."""
    folders = sorted(SERVERS.glob("*/bin"), key=lambda folder: float(folder.parent.name))
    if not folders:
        raise Missing("no server (Debian: postgresql)")
    programs = folders[-1]
    rows = kit.mib(128) * MIB // 520
    points = queries(kit, "points.sql", rows)

    def client(data: Path) -> str:
        return f"{programs}/psql -X -q -t -v ON_ERROR_STOP=1 -h {data} -d postgres"

    def session(data: Path, script: str) -> str:
        settings = f"-c unix_socket_directories={data} -c listen_addresses= "
        settings += "-c shared_buffers=16MB -c autovacuum=off -c jit=off"
        start = f'{programs}/pg_ctl -D {data} -w -s -l {data}/server.log -o "{settings}" start'
        return f"{start} && {{ {script}; }}; {programs}/pg_ctl -D {data} -w -s -m fast stop"

    def make(data: Path) -> None:
        data.mkdir(mode=0o700)
        shutil.chown(data, "postgres")
        user = ["runuser", "-u", "postgres", "--"]
        initdb = [*user, str(programs / "initdb"), "-D", str(data), "-A", "trust"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL)
        sql = (
            "create table points as select l id, rpad(md5(l::text), 480, 'x') word "
            f"from generate_series(1, {rows}) l; alter table points add primary key (id);"
            "create table big as select l id, repeat(md5(l::text), 6) word "
            f"from generate_series(1, {rows * 4}) l; vacuum freeze analyze; checkpoint;"
        )
        load = session(data, f"echo \"{sql}\" | {client(data)}")
        subprocess.run([*user, "sh", "-c", load], check=True, stdout=sys.stderr)

    data = kit.made("postgres", make)
    recover(data / "postmaster.pid", "postgres", session(data, "true"))
    scan = f"{client(data)} -c \"select count(*) from big where word like '%abcde%'\""
    out = data / "points.out"
    script = f"{client(data)} -f {points} > {out} & {repeat(4, scan)} | cksum; wait; cksum < {out}"
    version_ = version(str(programs / "postgres"), "--version")
    files = [data / "base", data / "global", data / "pg_wal"]
    workload = Workload(session(data, script), files, kit.mib(192), version=version_)
    workload.user, workload.optimum = "postgres", False
    return workload


def mariadb(kit: Kit) -> Workload:
    """The same with InnoDB, through the page cache rather than by direct I/O, which is the
    default."""
    server = need("mariadbd", "mariadb-server")
    rows = kit.mib(128) * MIB // 560
    points = queries(kit, "points-mariadb.sql", rows)

    def client(data: Path) -> str:
        return f"mariadb --no-defaults -u root -N -S {data}/socket"

    def session(data: Path, script: str) -> str:
        settings = (
            f"--no-defaults --datadir={data} --socket={data}/socket --skip-networking "
            f"--pid-file={data}/pid --innodb-buffer-pool-size=16M --innodb-flush-method=fsync "
            f"--innodb-log-file-size=16M --log-error={data}/error.log"
        )
        admin = f"mariadb-admin --no-defaults -u root -S {data}/socket"
        ready = f"for i in $(seq 600); do {admin} ping > /dev/null 2>&1 && break; sleep 0.1; done"
        stop = f"{admin} shutdown && wait"
        return f"{server} {settings} & {ready}; {{ {script}; }} && {stop}"

    def make(data: Path) -> None:
        data.mkdir(mode=0o700)
        shutil.chown(data, "mysql")
        user = ["runuser", "-u", "mysql", "--"]
        install = [*user, "mariadb-install-db", "--no-defaults", f"--datadir={data}"]
        install += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        sql = (
            "create table points (id int primary key, word char(120) not null, more varchar(400));"
            "insert into points select seq, rpad(md5(seq), 120, 'x'), repeat(md5(seq), 12) "
            f"from seq_1_to_{rows};"
            "create table big (id int primary key, word varchar(200));"
            f"insert into big select seq, repeat(md5(seq), 6) from seq_1_to_{rows * 4};"
        )
        database = f"echo 'create database test' | {client(data)}"
        load = session(data, f'{database}; echo "{sql}" | {client(data)} test')
        subprocess.run([*user, "sh", "-c", load], check=True, stdout=sys.stderr)

    data = kit.made("mariadb", make)
    recover(data / "pid", "mysql", session(data, "true"))
    scan = f"{client(data)} test -e \"select count(*) from big where word like '%abcde%'\""
    out = data / "points.out"
    script = f"{client(data)} test < {points} > {out} & points=$!; {repeat(4, scan)} | cksum; "
    script += f"wait $points; cksum < {out}"
    workload = Workload(session(data, script), [data], kit.mib(192) + 96)
    workload.version = version(server, "--version")
    workload.user, workload.optimum = "mysql", False
    return workload


WORKLOADS: dict[str, Callable[[Kit], Workload]] = {
    "passes-one": passes_one,
    "passes-four": passes_four,
    "just-fits": just_fits,
    "merge-one": merge_one,
    "merge-many": merge_many,
    "numpy": numpy,
    "rsync": rsync,
    "log": log,
    "zstd": zstd,
    "sha1sum": sha1sum,
    "ripgrep": ripgrep,
    "duckdb": duckdb,
    "postgres": postgres,
    "mariadb": mariadb,
    "git": git,
    "rg-short": rg_short,
    "mmap": mmap,
    "archive": archive,
    "backup": backup,
}
