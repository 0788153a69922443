#!/usr/bin/env python3
"""Real programs on `hither mount`: does each see the bytes that it sees without?

    real.py --hither PATH --work DIR [--tools DIR] [--only NAME]...

Each case runs programs of others on a mount and on a plain directory, and compares what came out:

    directory   every byte of a tree, in parallel, cold, warm, and with the page cache dropped
    s3          the same over versitygw, an S3 server, then files written to the bucket
    kernel      Linux compiled from the mount, and in a --write mount: the objects are equal
    git         clone, fsck and log of a repository on the mount
    duckdb      queries over Parquet files, and a database on a --write mount
    fio         verified writes on a --write mount, again after a remount, and at the source
    programs    sqlite3, git, rsync, tar, cp and mmap on a --write mount
    pjdfstest   POSIX semantics on a --write mount, counted by group
    ltp         file system calls of the Linux Test Project on a --write mount

Prints a JSON line a case and then a table. Exits with 1 if a byte was wrong, a program failed that
does not fail without, or a mount hung. The last two cases count; they set no exit code.

Needs root, and Debian's packages fuse3, fio, sqlite3, rsync, git, rclone, golang, flex, bison, bc,
libelf-dev, linux-source-6.1, autoconf, automake, pkgconf and python3-venv. What else is needed is
fetched into --tools, which is kept: versitygw by go, duckdb by pip, pjdfstest and LTP by git from
GitHub (--pjdfstest and --ltp take a copy that is there already). Takes 10 GB below --work.

The script never touches a mount itself: programs do, each with a time limit. At its end, the
mount's connection is aborted, so that nothing hangs.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FUSE = Path("/sys/fs/fuse/connections")
PORT = 18431
MIB = 1 << 20


class Failed(Exception):
    """A case cannot go on."""


def run(command, timeout=300, env=None):
    """Runs a program to its end. Returns its exit status and what it printed."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}, start_new_session=True)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            Mount.abort_all()
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(60)
            raise Failed(f"no end after {timeout} s: {' '.join(map(str, command))[:200]}") from None
        out.seek(0)
        return status, out.read().decode(errors="replace")


def shell(script, timeout=300, **env):
    return run(["bash", "-c", "set -euo pipefail\n" + script], timeout,
               {name: str(value) for name, value in env.items()})


def must(script, timeout=600, **env):
    """A step that has nothing to do with what is tested, or without which a case is void."""
    status, out = shell(script, timeout, **env)
    if status != 0:
        raise Failed(f"status {status}: {script.strip()[:200]}: {out[-1500:]}")
    return out


def mounted(place):
    """The number of the mount at this place. It is not touched."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[4] == str(place):
            return int(fields[2].split(":")[1])
    return None


class Mount:
    """hither mount SOURCE PLACE, while the block lasts."""

    live = []

    def __init__(self, case, source, *options, place=None, env=None):
        self.case, self.source, self.options = case, source, options
        self.place, self.env = place or case.work / "mount", env or {}

    def __enter__(self):
        self.place.mkdir(exist_ok=True)
        self.log = open(self.case.work / "hither.log", "ab+")
        self.begin = self.log.seek(0, os.SEEK_END)
        self.process = subprocess.Popen(
            [self.case.hither, "mount", *self.options, self.source, self.place],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, **self.env}, start_new_session=True)
        Mount.live.append(self)
        end = time.monotonic() + 60
        while mounted(self.place) is None:
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"it does not mount: {self.words()}")
            time.sleep(0.02)
        self.connection = mounted(self.place)
        return self.place

    def __exit__(self, *_):
        try:
            status, out = run([self.case.hither, "unmount", self.place], 120)
            self.case.check("unmount", status == 0, out)
            ended = self.process.wait(60)
            self.case.check("the mount ends well", ended == 0, f"status {ended}: {self.words()}")
        except (Failed, subprocess.TimeoutExpired) as error:
            self.case.check("the mount ends", False, f"{error}: {self.words()}")
            self.abort()
        Mount.live.remove(self)
        if "panicked" in self.words():
            self.case.check("no panic", False, self.words())

    def words(self):
        self.log.seek(self.begin)
        return self.log.read().decode(errors="replace")[-2000:]

    def abort(self):
        abort = FUSE / str(getattr(self, "connection", "none")) / "abort"
        if abort.exists():
            abort.write_text("1")
        self.process.kill()
        self.process.wait(60)
        subprocess.run(["umount", "-l", self.place], capture_output=True, timeout=60)

    @staticmethod
    def abort_all():
        for mount in Mount.live:
            mount.abort()


class Case:
    """One case: what it checks, and what it found."""

    def __init__(self, name, arguments):
        self.name, self.hither = name, arguments.hither
        self.arguments, self.tools = arguments, arguments.tools
        self.work = arguments.work / name
        self.checks, self.wrong, self.counts = 0, [], {}

    def check(self, what, right, detail=""):
        self.checks += 1
        if not right:
            self.wrong.append({"what": what, "detail": str(detail)[-1500:]})
            print(f"{self.name}: {what}: {str(detail)[-1500:]}", file=sys.stderr, flush=True)

    def same(self, what, found, expected):
        """Of two texts, line by line."""
        lines, others = set(found.splitlines()), set(expected.splitlines())
        self.check(what, found == expected,
                   f"only here: {sorted(lines - others)[:5]}; "
                   f"missing: {sorted(others - lines)[:5]}")

    def both(self, what, script, mount, plain, timeout=300, **env):
        """A script in both places: the same status and the same output."""
        status, expected = shell(script, timeout, HERE=plain, **env)
        if status != 0:
            raise Failed(f"{what} fails without hither: {expected[-1500:]}")
        status, found = shell(script, timeout, HERE=mount, **env)
        self.check(f"{what}: status", status == 0, f"{status}: {found}")
        self.same(f"{what}: output", found, expected)

    def folders(self, *names):
        for name in names:
            (self.work / name).mkdir()
        return [self.work / name for name in names]

    def mount(self, source, *options, **more):
        return Mount(self, source, *options, **more)


def drop_page_cache():
    Path("/proc/sys/vm/drop_caches").write_text("3")


def linux(case):
    """Debian's kernel source, unpacked once."""
    tree = case.tools / "linux-source-6.1"
    if not tree.exists():
        must('tar xf /usr/src/linux-source-6.1.tar.xz -C "$TOOLS"', TOOLS=case.tools)
    return tree


def make_tree(case, tree, links):
    """Files of many lengths and names."""
    source = linux(case)
    tree.mkdir(parents=True)
    must('cp -r "$FROM/lib" "$FROM/include/linux" "$TO"; find "$TO" -type l -delete; '
         'find "$TO" -type d -empty -delete', FROM=source, TO=tree)
    block = 128 << 10
    for length in (0, 1, 4095, 4096, 4097, block - 1, block, block + 1, 5 * MIB + 3, 300 * MIB + 1):
        with open(tree / f"of {length} bytes", "wb") as file:
            for start in range(0, length, MIB):
                file.write(os.urandom(min(MIB, length - start)))
    for name in ("a b", "ü", "100%", "a%20b", "a+b", "a#b", "a&b=c;d", "it's", '"', "~",
                 "(x) [y]"):
        (tree / "names" / name).mkdir(parents=True)
        (tree / "names" / name / f"{name}.txt").write_text(name)
    with open(tree / "sparse", "wb") as file:
        file.seek(40 * MIB)
        file.write(b"end")
    if links:
        (tree / "link").symlink_to("names/ü")
        (tree / "dangling").symlink_to("nowhere")
        (tree / "empty").mkdir()
        (tree / "back\\slash\n").write_text("line")


SUMS = """cd "$HERE"
find . -type f -print0 | sort -z | xargs -0 -r -P 8 -n 8 sha256sum -z | tr '\\0' '\\n' | sort"""
NAMES = """cd "$HERE"; find . -printf '%P %y %l\\n' | LC_ALL=C sort
find . -type f -printf '%s %P\\n' | LC_ALL=C sort"""
# 4 KiB to 1 MiB at random places of all files, by 8 threads.
PIECES = """
import hashlib, os, pathlib, random, sys
from concurrent.futures import ThreadPoolExecutor
root = pathlib.Path(sys.argv[1])
files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
def pieces(seed):
    chance, sum = random.Random(seed), hashlib.sha256()
    for _ in range(400):
        path = files[chance.randrange(len(files))] if chance.random() < 0.5 else large
        with open(path, "rb", buffering=0) as file:
            length = os.fstat(file.fileno()).st_size
            for _ in range(4):
                start = chance.randrange(length + 1)
                sum.update(os.pread(file.fileno(), 1 << chance.randrange(12, 21), start))
    return sum.hexdigest()
large = max(files, key=lambda path: path.stat().st_size)
with ThreadPoolExecutor(8) as pool:
    print("\\n".join(pool.map(pieces, range(8))))
"""


def read_all(case, tree, source, ways, env=None, direct=True):
    """Each way to mount a source, against the tree that it has."""
    sums = must(SUMS, HERE=tree)
    names = must(NAMES, HERE=tree)
    pieces = must('python3 -c "$PIECES" "$HERE"', PIECES=PIECES, HERE=tree)
    case.counts["files"] = len(sums.splitlines())
    for way in ways:
        label = " ".join(str(word) for word in way) or "defaults"
        with case.mount(source, *way, env=env) as place:
            for state in ("cold", "warm", "page cache dropped"):
                if state == "page cache dropped":
                    drop_page_cache()
                status, found = shell(SUMS, 600, HERE=place)
                case.check(f"{label}, {state}: sha256sum", status == 0, found)
                case.same(f"{label}, {state}: bytes", found, sums)
            status, found = shell(NAMES, 300, HERE=place)
            case.same(f"{label}: names, types and lengths", found, names)
            drop_page_cache()
            _, found = shell('python3 -c "$PIECES" "$HERE"', 600, PIECES=PIECES, HERE=place)
            case.same(f"{label}: pieces", found, pieces)
            drop_page_cache()
            status, found = shell('diff -r --no-dereference "$TREE" "$HERE"', 600,
                                  TREE=tree, HERE=place)
            case.check(f"{label}: diff -r", status == 0, found)


def directory(case):
    tree = case.work / "tree"
    make_tree(case, tree, links=True)
    disk = case.work / "disk"
    read_all(case, tree, tree, [
        [], ["--memory", "64MiB"], ["--direct-io", "--consistency", "strict"],
        ["--block", "16KiB", "--prefetch", "0"],
        ["--memory", "32MiB", "--disk", disk, "--disk-size", "1GiB"],
        # What the disk has kept, after a restart.
        ["--memory", "32MiB", "--disk", disk, "--disk-size", "1GiB"]])


def s3(case):
    server = case.tools / "bin" / "versitygw"
    if not server.exists():
        must('GOBIN="$BIN" go install github.com/versity/versitygw/cmd/versitygw@latest', 1200,
             BIN=server.parent)
    case.counts["server"] = re.sub(r"\s+", " ", must('"$S" --version', S=server)).strip()
    tree, buckets = case.work / "tree", case.work / "buckets"
    make_tree(case, tree, links=False)
    buckets.mkdir()
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    env = {**keys, "AWS_REGION": "us-east-1", "AWS_ENDPOINT": f"http://127.0.0.1:{PORT}",
           "AWS_ALLOW_HTTP": "true", "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENV_AUTH": "true",
           "RCLONE_S3_ENDPOINT": f"http://127.0.0.1:{PORT}"}
    # With it, rclone ends at once.
    os.environ.pop("AWS_CA_BUNDLE", None)
    with open(case.work / "server.log", "wb") as log:
        process = subprocess.Popen(
            [server, "--port", f"127.0.0.1:{PORT}", "--access", "key", "--secret", "secret",
             "--region", "us-east-1", "posix", buckets],
            stdout=log, stderr=log, env={**os.environ, **env})
    try:
        must("for n in $(seq 100); do rclone mkdir :s3:bucket && exit; sleep 0.1; done; exit 1",
             **env)
        must('rclone copy --transfers 8 "$TREE" :s3:bucket/data', 1200, TREE=tree, **env)
        disk = case.work / "disk"
        read_all(case, tree, "s3://bucket/data", [
            [], ["--memory", "64MiB", "--consistency", "immutable"],
            ["--memory", "32MiB", "--disk", disk, "--disk-size", "1GiB"],
            ["--memory", "32MiB", "--disk", disk, "--disk-size", "1GiB"]], env)
        s3_writes(case, tree, buckets / "bucket" / "out", env)
    finally:
        process.kill()
        process.wait()


def s3_writes(case, tree, stored, env):
    """Files written to the bucket by cp, as the server has stored them."""
    must("echo here | rclone rcat :s3:bucket/out/first", **env)
    with case.mount("s3://bucket/out", "--write", env=env) as place:
        status, out = shell('cp "$TREE"/of* "$TREE/lib"/*.c "$HERE"', 600, TREE=tree, HERE=place)
        case.check("cp to a bucket", status == 0, out)
        must(SUMS, HERE=place)
    expected = must('cd "$TREE"; (sha256sum of*; cd lib; sha256sum *.c) | sort -u', TREE=tree)
    found = must('cd "$HERE"; sha256sum of* *.c | sort -u', HERE=stored)
    case.same("cp to a bucket: bytes", found, expected)


BUILD = """make -s -C "$SRC" O="$OUT" KBUILD_BUILD_TIMESTAMP=@0 KBUILD_BUILD_USER=u \\
    KBUILD_BUILD_HOST=h KBUILD_BUILD_VERSION=1"""
OBJECTS = """cd "$OUT"; find . -name '*.o' -o -name '*.a' | sort | xargs sha256sum"""


def kernel(case):
    source, place, out = linux(case), case.work / "src", case.work / "out"
    place.mkdir(exist_ok=True)
    build = BUILD + " tinyconfig\n" + BUILD + " -j$(nproc) kernel/ lib/"

    def objects(what):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        status, words = shell(build, 1500, SRC=place, OUT=out)
        case.check(f"{what}: make", status == 0, words)
        return must(OBJECTS, OUT=out)

    must('mount --bind "$FROM" "$TO"', FROM=source, TO=place)
    try:
        expected = objects("plain")
    finally:
        must('umount "$TO"', TO=place)
    case.counts["objects"] = len(expected.splitlines())
    with case.mount(source, "--consistency", "immutable", place=place):
        case.same("objects", objects("from the mount"), expected)
    # The same with the objects on a --write mount, which lies where they lay before.
    shutil.rmtree(out)
    objects_source = case.work / "objects"
    objects_source.mkdir()
    must('mount --bind "$FROM" "$TO"', FROM=source, TO=place)
    try:
        with case.mount(objects_source, "--write", place=out):
            status, words = shell(build, 1500, SRC=place, OUT=out)
            case.check("objects on a --write mount: make", status == 0, words)
        case.same("objects at the source", must(OBJECTS, OUT=objects_source), expected)
    finally:
        must('umount "$TO"', TO=place)


def git(case):
    source = case.work / "source"
    source.mkdir()
    own = Path(__file__).resolve().parent
    must('git clone -q --bare --no-local "$(git -C "$OWN" rev-parse --show-toplevel)" "$TO/r.git"',
         OWN=own, TO=source)
    log = 'git -C "$HERE" log -p --all | sha256sum; git -C "$HERE" rev-list --all --objects | ' \
          'sha256sum; git -C "$HERE" fsck --full 2>&1'
    expected = must(log, HERE=source / "r.git")
    case.counts["objects"] = int(must('git -C "$H" rev-list --all --objects | wc -l',
                                      H=source / "r.git"))
    with case.mount(source, "--memory", "64MiB") as place:
        for way in ("", "--no-local"):
            clone = case.work / f"clone{way}"
            status, out = shell(f'git clone -q --bare {way} "$M/r.git" "$TO"', M=place, TO=clone)
            case.check(f"git clone {way}", status == 0, out)
            case.same(f"clone {way}: log, objects, fsck", must(log, HERE=clone), expected)
        for state in ("", "page cache dropped"):
            if state:
                drop_page_cache()
            status, found = shell(log, HERE=place / "r.git")
            case.check(f"git on the mount {state}", status == 0, found)
            case.same(f"log, objects, fsck on the mount {state}", found, expected)


PARQUET = """
import duckdb, sys
at = sys.argv[1]
db = duckdb.connect()
db.execute("select setseed(0.5)")
for n in range(8):
    db.execute(f"copy (select i, hash(i * 8 + {n}) h, (i * 7919 + {n}) % 1000 k, "
               f"'name ' || (hash(i) % 5000) s, i / 7.0 d from range(1000000) t(i)) "
               f"to '{at}/p{n}.parquet' (row_group_size 50000)")
"""
QUERIES = """
import duckdb, sys
at = sys.argv[1]
db = duckdb.connect()
db.execute("set threads = 4")
all = f"from '{at}/*.parquet'"
for query in (
    f"select count(*), sum(h % 1000003), min(d), max(s) {all}",
    f"select k, count(*), sum(i), min(s) {all} group by k order by k",
    f"select s, max(h) {all} where k between 100 and 110 group by s order by s limit 500",
    f"select * {all} where i in (17, 500000, 999999) order by all",
    f"select a.k, count(*) from '{at}/p0.parquet' a join '{at}/p5.parquet' b using (h) group by 1",
    f"select i, h, s {all} order by h desc limit 1000",
    f"select a.s, sum(b.d)::bigint from '{at}/p1.parquet' a join '{at}/p2.parquet' b using (i) "
    f"where a.k < 5 group by 1 order by 1",
):
    for row in db.execute(query).fetchall():
        print(row)
"""
DATABASE = """
import duckdb, sys
path = sys.argv[1] + "/db.duckdb"
db = duckdb.connect(path)
db.execute("create table t as select i, hash(i) h, 'name ' || i s from range(500000) t(i)")
db.execute("checkpoint")
db.execute("delete from t where i % 3 = 0")
db.execute("update t set s = 'changed' where i % 5 = 0")
db.close()
db = duckdb.connect(path)
db.execute(f"copy (from t order by i) to '{sys.argv[1]}/t.parquet'")
print(db.execute("select count(*), sum(h % 1000003), count(distinct s) from t").fetchall())
print(db.execute(f"select count(*), sum(i) from '{sys.argv[1]}/t.parquet'").fetchall())
"""


def duckdb(case):
    python = case.tools / "venv" / "bin" / "python"
    if not python.exists():
        must('python3 -m venv "$V" && "$V/bin/pip" -q install duckdb', V=python.parent.parent)
    case.counts["duckdb"] = must('"$P" -c "import duckdb; print(duckdb.__version__)"',
                                 P=python).strip()
    source, plain, target = case.folders("source", "plain", "target")
    must('"$P" -c "$CODE" "$HERE"', P=python, CODE=PARQUET, HERE=source)
    for way in ([], ["--memory", "32MiB"], ["--direct-io"]):
        with case.mount(source, *way) as place:
            for state in ("cold", "warm"):
                case.both(f"{way} {state}: queries", '"$P" -c "$CODE" "$HERE"', place, source,
                          600, P=python, CODE=QUERIES)
    with case.mount(target, "--write") as place:
        case.both("a database", '"$P" -c "$CODE" "$HERE"', place, plain, 600, P=python,
                  CODE=DATABASE)
        case.both("the file written", 'sha256sum < "$HERE/t.parquet"', place, plain)
    case.both("the file at the source", 'sha256sum < "$HERE/t.parquet"', target, plain)


FIO = """fio --verify=crc32c --verify_fatal=1 --directory="$HERE" --group_reporting \\
    --minimal --output=/dev/null --bs=4k --size=48m --randrepeat=1 --allow_file_create=1 """
JOBS = {
    "sequential": "--name=sequential --rw=write --bs=128k --ioengine=psync",
    "random": "--name=random --rw=randwrite --ioengine=psync",
    "four jobs": "--name=jobs --rw=randwrite --numjobs=4 --size=15m --bs=12k --ioengine=psync",
    "one file, four jobs": "--name=shared --filename=shared --rw=randwrite --numjobs=4 "
                           "--size=16m --offset_increment=16m --ioengine=psync",
    "mmap": "--name=mapped --rw=randwrite --ioengine=mmap",
    "libaio": "--name=aio --rw=randwrite --ioengine=libaio --iodepth=16",
    "io_uring": "--name=uring --rw=randwrite --ioengine=io_uring --iodepth=16",
    "direct": "--name=direct --rw=randwrite --ioengine=psync --direct=1",
    "fsync": "--name=synced --rw=randwrite --size=4m --ioengine=psync --fsync=64",
}


def fio(case):
    target, plain = case.folders("target", "plain")
    works = []
    with case.mount(target, "--write", "--memory", "64MiB") as place:
        for name, job in JOBS.items():
            if shell(FIO + job, 300, HERE=plain)[0] != 0:
                case.counts.setdefault("not here", []).append(name)
                continue
            works.append(name)
            status, out = shell(FIO + job, 300, HERE=place)
            case.check(f"{name}: write and verify", status == 0, out)
    for where, options in (("a new mount", ["--write"]), ("a read-only mount", [])):
        with case.mount(target, *options) as place:
            fio_again(case, works, where, place)
    fio_again(case, works, "the source", target)


def fio_again(case, works, where, place):
    """Each block that was written, read again."""
    for name in works:
        job = re.sub(r"--rw=\w+", "--readonly --rw=read", JOBS[name])
        status, out = shell(FIO + job, 300, HERE=place)
        case.check(f"{name}: verify on {where}", status == 0, out)


MAPPED = """
import mmap, os, random, sys
chance = random.Random(7)
with open(sys.argv[1] + "/mapped", "w+b") as file:
    file.truncate(9_000_001)
    with mmap.mmap(file.fileno(), 0) as memory:
        for number in range(3000):
            start, length = chance.randrange(8_990_000), chance.randrange(1, 9000)
            memory[start:start + length] = chance.randbytes(length)
            if number % 500 == 0:
                memory.flush()
                os.pwrite(file.fileno(), chance.randbytes(5000), chance.randrange(8_000_000))
with open(sys.argv[1] + "/mapped", "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
    file.close()
    memory[4_000_000:4_000_100] = b"x" * 100
    memory.flush()
    memory.close()
"""
PROGRAMS = {
    "sqlite3, rollback journal": """cd "$HERE"; sqlite3 rollback.db <<'SQL'
pragma journal_mode=delete;
create table t(i integer primary key, s text); create index x on t(s);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(i * 7919 % 10007) from n;
begin; delete from t where i % 3 = 0; rollback;
begin; update t set s = s || 'x' where i % 7 = 0; commit;
delete from t where i % 11 = 0; vacuum; pragma integrity_check;
SQL
for i in $(seq 20); do sqlite3 rollback.db "insert into t(s) values('later $i')"; done
sqlite3 rollback.db .dump | sha256sum; sha256sum rollback.db""",
    "sqlite3, write-ahead log": """cd "$HERE"; sqlite3 wal.db <<'SQL'
pragma journal_mode=wal;
create table t(i integer primary key, s text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(i * 7919 % 10007) from n;
update t set s = s || 'x' where i % 7 = 0; pragma integrity_check;
SQL
for i in $(seq 20); do sqlite3 wal.db "insert into t(s) values('later $i')"; done
sqlite3 wal.db 'pragma integrity_check' .dump | sha256sum""",
    "sqlite3, two writers": """cd "$HERE"; sqlite3 two.db 'create table t(w, i)'
for mode in delete wal; do sqlite3 two.db "pragma journal_mode=$mode"
for w in 1 2; do (for i in $(seq 25); do
sqlite3 -cmd '.timeout 60000' two.db "insert into t values('$mode $w', $i)"; done) & p[$w]=$!; done
wait ${p[1]}; wait ${p[2]}; done
sqlite3 two.db 'pragma integrity_check' 'select w, count(*), sum(i) from t group by w'""",
    "git init, commit, gc": """cd "$HERE"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git init -q -b main r; cd r; cp -r "$LINUX/lib" .; git add .; git commit -qm one
for i in $(seq 15); do echo $i >> lib/$i; git add .; git commit -qm $i; done
git checkout -q -b side HEAD~9; echo side > side; git add .; git commit -qm side
git checkout -q main; git merge -q -m merged side; git gc -q; git repack -adfq; git status --short
git fsck --full 2>&1; git log --format=%H --all | sha256sum
git rev-list --all --objects | sha256sum
git rebase -q HEAD~3 2>&1; git stash list; git clone -q . ../copy; git -C ../copy fsck 2>&1
git -C ../copy log -p | sha256sum""",
    "rsync, twice": """rsync -a "$LINUX/lib" "$LINUX/kernel" "$HERE/rsynced/"
echo "second: $(rsync -ai "$LINUX/lib" "$LINUX/kernel" "$HERE/rsynced/")"
rsync -ai --checksum "$LINUX/lib" "$LINUX/kernel" "$HERE/rsynced/"
rsync -a --delete "$LINUX/lib/" "$HERE/rsynced/kernel/"
rsync -a --inplace --no-whole-file "$LINUX/mm/" "$HERE/rsynced/kernel/"
cd "$HERE/rsynced"; find . -mindepth 2 -printf '%P %y %m %l %T@\\n' | sort | sha256sum
find . -type f -printf '%P %s\\n' | sort | sha256sum""",
    "tar x": """tar cf "$HERE/t.tar" --sort=name --mtime=@0 -C "$LINUX" fs/ext4 scripts
mkdir "$HERE/tar"; tar xf "$HERE/t.tar" -C "$HERE/tar"; cd "$HERE/tar"
find . -mindepth 1 ! -path ./fs -printf '%P %y %m %l %T@\\n' | sort | sha256sum; tar df ../t.tar
sha256sum ../t.tar""",
    "cp -a": """cp -a "$LINUX/scripts" "$HERE/cp"; cd "$HERE/cp"
find . -printf '%P %y %m %l %T@ %u %g\\n' | sort | sha256sum""",
    "cp within, mv, rm, sed -i, dd": """cd "$HERE"; cp -r cp cp2; mv cp2 cp3; rm -r cp3/kconfig
find cp3 -name '*.c' -exec sed -i s/int/INT/ {} +; cp --reflink=auto cp3/mod/*.c .
truncate -s 100000 grown; truncate -s 5 short; echo more >> short; mv -T short grown
dd if="$LINUX/MAINTAINERS" of=dd bs=1000 seek=3 conv=notrunc,fsync status=none
dd if="$LINUX/COPYING" of=dd bs=7 seek=100 conv=notrunc status=none; sort -o dd dd
find . \\( -path ./r -o -path ./copy -o -path ./tar \\) -prune -o \\
-name '*.db*' -o -type f -print0 | \\
grep -zv '^./mapped' | sort -z | xargs -0 sha256sum | sha256sum""",
    "mmap": """python3 -c "$MAPPED" "$HERE"; sha256sum < "$HERE/mapped" """,
    "zip and sqlite in python": """cd "$HERE"; python3 - <<'CODE'
import os, shutil, tempfile, zipfile
with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as file:
    for n in range(200): file.writestr(zipfile.ZipInfo(f"f{n}"), str(n) * n)
with zipfile.ZipFile("z.zip", "a") as file: file.writestr(zipfile.ZipInfo("last"), "x")
assert zipfile.ZipFile("z.zip").testzip() is None
with tempfile.TemporaryFile(dir=".") as file:
    file.write(b"a" * 100000); file.seek(5000); file.write(b"b"); file.seek(0)
    assert file.read() == b"a" * 5000 + b"b" + b"a" * 94999
with open("atomic.tmp", "w") as file: file.write("new"); file.flush(); os.fsync(file.fileno())
os.replace("atomic.tmp", "atomic")
CODE
sha256sum z.zip atomic""",
}
CONTENTS = """cd "$HERE"
find . -path ./r/.git -prune -o -path ./copy/.git -prune -o -name '*.db*' -o \\
-type f -print0 | sort -z | xargs -0 sha256sum; find . -path ./r/.git -prune -o \\
-path ./copy/.git -prune -o -printf '%P %y %m %l\\n' | sort; for d in *.db; do
sqlite3 $d 'pragma integrity_check' .dump | sort; done; git -C r fsck --full 2>&1
git -C r log -p --all | sha256sum"""


def programs(case):
    target, plain = case.folders("target", "plain")
    source = linux(case)
    with case.mount(target, "--write") as place:
        for name, script in PROGRAMS.items():
            case.both(name, script, place, plain, 400, LINUX=source, MAPPED=MAPPED)
        case.both("all, on the mount", CONTENTS, place, plain)
    case.both("all, at the source", CONTENTS, target, plain)
    with case.mount(target) as place:
        expected = must(SUMS, HERE=target)
        case.same("all, on a new mount", must(SUMS, HERE=place), expected)
    case.check("nothing unfinished is left", not must('find "$T" -name ".hither-*"', T=target))


def checkout(case, given, url, name):
    """A copy of a test suite, which is built there."""
    place = case.tools / name
    if not place.exists():
        must('git clone -q --depth 1 "$URL" "$TO"', 1800, URL=given or url, TO=place)
    return place


def pjdfstest(case):
    suite = checkout(case, case.arguments.pjdfstest, "https://github.com/pjd/pjdfstest",
                     "pjdfstest")
    if not (suite / "pjdfstest").exists():
        must('cd "$S"; autoreconf -ifs; ./configure; make pjdfstest', S=suite)
    # Without the types of files that a mount refuses, what fails is not what follows from that.
    fewer = case.work / "suite"
    must('cp -r "$S" "$TO"; cd "$TO/tests"; rm -r link mkfifo mknod; sed -i "/for type/s/'
         ' fifo block char socket//" */*.t', S=suite, TO=fewer)
    target, plain = case.folders("target", "plain")
    with case.mount(target, "--write", "--allow-other") as place:
        groups, _ = pjdfstest_pass(case, suite, place, plain)
        supported, failed = pjdfstest_pass(case, fewer, place, plain)
    for name, group in groups.items():
        for kind in ("passed", "failed"):
            group[f"{kind}, types it has"] = supported.get(name, {}).get(kind, 0)
    case.counts["groups"], case.counts["failed"] = groups, failed


def pjdfstest_pass(case, suite, place, plain):
    """All tests: counts by group, and the words of those that fail on the mount only."""
    groups, failed = {}, []
    for test in sorted((suite / "tests").glob("*/*.t")):
        control, here = (tap(case, test, where) for where in (plain, place))
        name, group = f"{test.parent.name}/{test.stem}", groups.setdefault(
            test.parent.name, {"passed": 0, "failed": 0, "failed without too": 0, "not run": 0})
        group["not run"] += len(set(control) - set(here))
        for number, (right, words) in here.items():
            if right:
                group["passed"] += 1
            elif number in control and not control[number][0]:
                group["failed without too"] += 1
            else:
                group["failed"] += 1
                failed.append(f"{name} {number}: {words}")
    return groups, failed


def tap(case, test, where):
    """What each test of a file says: whether it passed, and its words."""
    script = 'mkdir -p "$W/t"; cd "$W/t"; LC_ALL=C bash "$T" 2>&1; cd ..; rm -rf t'
    try:
        _, out = run(["bash", "-c", script], 300, {"W": str(where), "T": str(test)})
    except Failed as error:
        case.check(f"{test} ends", False, error)
        raise
    found = {}
    for line in out.splitlines():
        if match := re.match(r"(not )?ok (\d+)(.*)", line):
            if "# TODO" not in line and "# SKIP" not in line:
                found[int(match[2])] = (match[1] is None, match[3].strip(" -"))
    return found


LTP = """access close dup fstat fsync ftruncate getdents llseek lseek lstat mkdir mmap msync open
openat pread preadv pwrite pwritev read readahead readdir readlink readv rename rmdir sendfile stat
statfs statx symlink truncate unlink utimensat write writev""".split()


def ltp(case):
    suite = checkout(case, case.arguments.ltp, "https://github.com/linux-test-project/ltp", "ltp")
    if not (suite / "lib" / "libltp.a").exists():
        must('cd "$S"; make -s autotools; ./configure -q; make -s -j2 -C lib', 1800, S=suite)
    folders = [suite / "testcases/kernel/syscalls" / name for name in LTP]
    folders = [folder for folder in folders if folder.exists()]
    for folder in folders:
        shell('make -s -k -C "$F"', 900, F=folder)
    target, plain = case.folders("target", "plain")
    groups, failed = {}, []
    with case.mount(target, "--write", "--allow-other") as place:
        must('chmod 1777 "$P"', P=place)
        for folder in folders:
            for test in sorted(folder.glob(f"{folder.name}*[0-9]*")):
                if test.suffix or not os.access(test, os.X_OK) or test.is_dir():
                    continue
                control, here = (ltp_test(test, where) for where in (plain, place))
                group = groups.setdefault(folder.name, dict.fromkeys(here[0], 0))
                for kind, count in here[0].items():
                    group[kind] += count
                if here[0]["failed"] + here[0]["broken"] > control[0]["failed"] + \
                        control[0]["broken"]:
                    failed.append(f"{test.name}: {here[1]}")
    case.counts["groups"], case.counts["failed"] = groups, failed
    case.counts["passed"] = sum(group["passed"] for group in groups.values())


def ltp_test(test, where):
    """How many results of each kind, and the words of those that are not passes."""
    path = f"{test.parent}:{os.environ['PATH']}"
    status, out = run(["timeout", "-s", "KILL", "100", test], 200,
                      {"TMPDIR": str(where), "PATH": path, "LTP_TIMEOUT_MUL": "2"})
    counts = {kind: len(re.findall(rf"\b{word}\b", out)) for kind, word in
              (("passed", "TPASS"), ("failed", "TFAIL"), ("broken", "TBROK"), ("skipped", "TCONF"))}
    if status in (-9, 137):
        counts["broken"] += 1
        out += "TBROK: killed after 100 s"
    words = [line for line in out.splitlines() if re.search(r"\b(TFAIL|TBROK)\b", line)]
    return counts, re.sub(r"/\S*/", "", "; ".join(words[:4]))[:500]


CASES = [directory, s3, kernel, git, duckdb, fio, programs, pjdfstest, ltp]


def main():
    arguments = parse()
    if os.geteuid() != 0:
        sys.exit("real.py: needs root")
    if not os.path.ismount(FUSE):
        must('mount -t fusectl fusectl "$F"', F=FUSE)
    arguments.tools.mkdir(parents=True, exist_ok=True)
    measured = []
    for function in CASES:
        if arguments.only and function.__name__ not in arguments.only:
            continue
        case = Case(function.__name__, arguments)
        clean(case.work)
        case.work.mkdir(parents=True)
        try:
            function(case)
        except Failed as error:
            case.check("the case is run to its end", False, error)
        measured.append({"case": case.name, "right": not case.wrong, "checks": case.checks,
                         "wrong": case.wrong, **case.counts})
        print(json.dumps(measured[-1]), flush=True)
        clean(case.work)
    print("\n| case | checks | wrong |\n|---|--:|--:|")
    for row in measured:
        print(f"| {row['case']} | {row['checks']} | {len(row['wrong'])} |")
    for row in measured:
        if "groups" in row:
            table(row)
    sys.exit(0 if all(row["right"] for row in measured) else 1)


def table(row):
    """Of a suite, by group."""
    kinds = list(next(iter(row["groups"].values())))
    print(f"\n| {row['case']} | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for name, group in row["groups"].items():
        print(f"| {name} | {' | '.join(str(group[kind]) for kind in kinds)} |")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hither", required=True, type=Path, help="the hither command")
    parser.add_argument("--work", required=True, type=Path, help="a directory to make and empty")
    parser.add_argument("--tools", type=Path, help="what is fetched, kept [default: WORK-tools]")
    parser.add_argument("--only", action="append", choices=[case.__name__ for case in CASES],
                        help="this case only; may be given again")
    parser.add_argument("--pjdfstest", help="a git repository of it [default: GitHub's]")
    parser.add_argument("--ltp", help="a git repository of it [default: GitHub's]")
    arguments = parser.parse_args()
    arguments.hither, arguments.work = arguments.hither.resolve(), arguments.work.resolve()
    arguments.tools = (arguments.tools or Path(f"{arguments.work}-tools")).resolve()
    return arguments


def clean(work):
    """Removes what a case has left. A mount there is never walked into."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in places:
        if place.startswith(f"{work}/"):
            subprocess.run(["umount", "-l", place], check=False, timeout=60)
    shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
