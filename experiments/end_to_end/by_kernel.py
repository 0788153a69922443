#!/usr/bin/env python3
"""Programs that the library cannot see, recorded by the kernel's events: is every page there?

Each program is started and held: it waits for a line on its stdin, or is stopped before its exec.
`hither record -p PID` (or --cgroup) is attached. The program then does a known amount of work on a
file, and ends. The pages of that file in the trace are compared with a count that does not come
from hither:

- own:     the program counts its calls; each call counts all pages that it covers;
- pagemap: pages of the mapped file that are newly in the program's page tables, by its own
           /proc/self/pagemap. The file is not cached and not read ahead (MADV_RANDOM), so each
           touched page faults;
- fio:     io_bytes of fio's JSON; its requests are whole pages;
- strace:  read calls of the same command under strace in another run, rounded like `own`;
- size:    all pages of the file.

Cold files are dropped from the page cache before (posix_fadvise), warm ones are read before. A
file with holes is cached by single pages, of which each 16th is dropped: each request of 64 KiB
misses one page in its middle.

Needs root, a memory cgroup of version 1, gcc, musl-gcc, Go, fio, liblmdb, ripgrep, strace,
fincore, and pyarrow (PyPI). Prints Markdown; appends all runs as JSON lines to --raw.

    python3 by_kernel.py --hither target/release/hither --work /var/tmp/by_kernel --raw runs.jsonl
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pages import PAGE, STRACE, lost, of_strace, of_trace

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
FILE_MIB, CALLS, ENTRIES, LOOKUPS = 96, 4000, 150_000, 20_000
HOLES, HOLE_AT = 16, 5
GOAL = 0.001
READY_S, END_S = 30, 120
STOPPED = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]


@dataclass
class Case:
    name: str
    command: list[object]
    # Where the truth comes from.
    truth: str
    # What is compared: read, touched, or either of touched and mapped as distinct pages.
    compared: str = "read"
    file: str = "data"
    # What is cached before: warm, cold or holes.
    cache: str = "warm"
    # It is stopped before its exec, since it waits for nobody.
    is_stopped: bool = False
    in_group: bool = False
    # Words in front of the command.
    before: list[object] = field(default_factory=list)


def quiet(*words, **options):
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL, **options)


def pages_of(size):
    return (size + PAGE - 1) // PAGE


def forget(path):
    """Drops what is cached of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def make_holes(path):
    """Caches a file by single pages, but for each 16th."""
    forget(path)
    pages = pages_of(path.stat().st_size)
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    for page in range(pages):
        os.pread(descriptor, PAGE, page * PAGE)
    for page in range(HOLE_AT, pages, HOLES):
        os.posix_fadvise(descriptor, page * PAGE, PAGE, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def cached(path):
    """How many pages of a file are cached."""
    words = ["fincore", "--bytes", "--noheadings", "--output", "RES", path]
    return int(subprocess.run(words, capture_output=True, check=True).stdout) // PAGE


class Group:
    """A memory cgroup of version 1."""

    def __init__(self):
        self.path = Path("/sys/fs/cgroup/memory") / f"by-kernel-{os.getpid()}"

    def make(self):
        self.path.mkdir()
        (self.path / "memory.limit_in_bytes").write_text(str(256 * MIB))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(100):
            try:
                (self.path / "memory.force_empty").write_text("0")
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


def prepare(work):
    """Programs and files."""
    loads = HERE / "loads"
    reader, static = loads / "reader.c", ["gcc", "-O1", "-static", "-pthread"]
    quiet(*static, "-o", work / "static", reader)
    quiet("gcc", "-O1", "-pthread", "-o", work / "setuid", reader)
    (work / "setuid").chmod(0o4755)
    quiet("musl-gcc", "-O1", "-o", work / "musl", reader)
    quiet("musl-gcc", "-O1", "-static", "-o", work / "musl-static", reader)
    quiet("gcc", "-O1", "-o", work / "lmdb", loads / "lmdb.c", "-llmdb")
    go = dict(os.environ, CGO_ENABLED="0", GOCACHE=str(work / "go"), GOTOOLCHAIN="local")
    quiet("go", "build", "-o", work / "go-reader", loads / "reader.go", env=go)
    source = random.Random(1)
    for name in ["data", "other", "secret"]:
        path = work / name
        if not path.exists():
            path.write_bytes(b"".join(source.randbytes(MIB) for _ in range(FILE_MIB)))
    # Only its owner may read it.
    (work / "secret").chmod(0o600)
    text = work / "text"
    if not text.exists():
        words = [f"{source.getrandbits(40):x}" for _ in range(5000)]
        lines = (" ".join(source.choices(words, k=8)) for _ in range(800_000))
        text.write_text("\n".join(lines) + "\n")
    base = work / "base"
    if not base.exists():
        base.mkdir()
        quiet(work / "lmdb", "make", base, ENTRIES)
    image = work / "image"
    if not image.exists():
        with open(image, "wb") as file:
            file.truncate(160 * MIB)
        tree = work / "tree"
        tree.mkdir(exist_ok=True)
        shutil.copy(work / "data", tree / "data")
        quiet("mkfs.ext4", "-q", "-d", tree, image)
        shutil.rmtree(tree)
    os.sync()


def fio(work, engine, how, cache):
    way = {"4 KiB at random": ["randread", "4k"], "64 KiB in order": ["read", "64k"]}
    way = {**way, "1 MiB in order": ["read", "1m"]}[how]
    words = ["fio", "--name=job", f"--filename={work}/data", f"--rw={way[0]}", f"--bs={way[1]}"]
    words += ["--direct=0", f"--invalidate={int(cache == 'cold')}", f"--size={FILE_MIB}m"]
    words += ["--iodepth=16", "--output-format=json", "--randseed=1", "--readonly", "--norandommap"]
    words += [f"--ioengine={engine.split()[0]}", "--io_size=64m"]
    if "sqpoll" in engine:
        words.append("--sqthread_poll=1")
    return Case(f"fio, {engine}, {how}, {cache}", words, "fio", cache=cache, is_stopped=True)


def cases(work):
    data, calls = work / "data", CALLS
    found = []
    for cache in ["warm", "cold"]:

        def add(name, *command, truth="own", **more):
            found.append(Case(f"{name}, {cache}", list(command), truth, cache=cache, **more))

        add("static Go", work / "go-reader", data, calls, 4)
        add("static C (glibc)", work / "static", "pread", data, calls, 4)
        add("static C, read in order", work / "static", "read", data, 1 << 40, 1)
        add("static C, sendfile", work / "static", "sendfile", data, calls, 1)
        add("musl", work / "musl", "pread", data, calls, 4)
        add("musl, static", work / "musl-static", "pread", data, calls, 4)
        nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        setuid = [work / "setuid", "pread", work / "secret", calls, 1]
        add("setuid, started by nobody", *setuid, before=nobody, file="secret")
        inside = ["unshare", "--mount", "--pid", "--fork", "sh", "-c"]
        bind = f'mount --bind {work} /mnt && cd /mnt && exec "$0" pread data {calls} 4'
        add("mount and pid namespace, cgroup", "/mnt/static", before=[*inside, bind], in_group=True)
        mounted = f'mount -o ro,loop {work}/image /mnt && exec "$0" pread /mnt/data {calls} 4'
        add(
            "its own file system in the namespace, cgroup",
            work / "static",
            before=[*inside, mounted],
            in_group=True,
            file="image:data",
        )
        threads = [work / "static", "pread", data, calls // 8, 64, work / "other"]
        add("server of 64 threads in mid-life", *threads)
        add("ripgrep --no-mmap", *rg("--no-mmap", work), truth="strace", file="text",
            is_stopped=True)
        add("ripgrep --mmap", *rg("--mmap", work), truth="size", file="text", is_stopped=True,
            compared="either")
    holes = [work / "static", "sendfile", data, calls, 1]
    found.append(Case("static C, sendfile, holes", holes, "own", cache="holes"))
    holes = [work / "static", "pread", data, calls, 4]
    found.append(Case("static C (glibc), holes", holes, "own", cache="holes"))
    cold = {"cache": "cold", "compared": "touched"}
    touches = [work / "static", "mmap", data, calls, 1]
    found.append(Case("static C, mapped at random, cold", touches, "pagemap", **cold))
    get = [work / "lmdb", "get", work / "base", ENTRIES, LOOKUPS]
    found.append(Case("LMDB, lookups, cold", get, "pagemap", file="base/data.mdb", **cold))
    for engine in ["psync", "libaio", "io_uring", "io_uring sqpoll"]:
        for how in ["4 KiB at random", "64 KiB in order", "1 MiB in order"]:
            for cache in ["warm", "cold", "holes"]:
                found.append(fio(work, engine, how, cache))
    return found


def rg(way, work):
    return ["rg", "--no-config", "-j1", way, "-c", "abc", work / "text"]


class Runs:
    def __init__(self, arguments):
        self.hither, self.work = arguments.hither, arguments.work
        self.trace, self.group = arguments.work / "t.hither", Group()

    def attach(self, what):
        """Starts to record, and returns once all is seen: then the trace's folder is there."""
        shutil.rmtree(self.trace, ignore_errors=True)
        words = [self.hither, "record", "-o", self.trace, *what]
        recording = subprocess.Popen(
            [str(word) for word in words], stderr=subprocess.PIPE, text=True
        )
        end = time.monotonic() + READY_S
        while not any("t.hither" in name for name in os.listdir(self.work)):
            if recording.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"it does not record: {recording.stderr.read()}")
            time.sleep(0.02)
        return recording

    def run(self, case):
        work = self.work
        path = work / ("data" if case.file == "image:data" else case.file)
        if case.file == "image:data":
            inode = int(image_inode(work / "image"))
            forget(work / "image")
        else:
            inode = path.stat().st_ino
        if case.cache == "cold":
            forget(path)
        elif case.cache == "holes":
            make_holes(path)
        else:
            path.read_bytes()
        if case.in_group:
            self.group.make()
        words = [*(STOPPED if case.is_stopped else []), *case.before, *case.command]
        program = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=self.group.enter if case.in_group else None,
        )
        try:
            return self.attached(case, program, path, inode)
        finally:
            program.kill()
            program.wait()
            if case.in_group:
                self.group.remove()

    def attached(self, case, program, path, inode):
        if case.is_stopped:
            os.waitpid(program.pid, os.WUNTRACED)
        else:
            assert program.stdout.readline() == "ready\n", program.stderr.read()
        what = ["--cgroup", self.group.path] if case.in_group else ["-p", program.pid]
        recording = self.attach(what)
        cached_pages = [cached(path)]
        start = time.monotonic()
        try:
            if case.is_stopped:
                os.kill(program.pid, signal.SIGCONT)
            out, errors = program.communicate(None if case.is_stopped else "\n", timeout=END_S)
        finally:
            wall_s = time.monotonic() - start
            if case.in_group or program.returncode is None:
                recording.send_signal(signal.SIGINT)
            _, said = recording.communicate(timeout=END_S)
        cached_pages.append(cached(path))
        assert program.returncode == 0, (out, errors)
        assert recording.returncode == 0, said
        truth, size = self.truth(case, out, path)
        of_file = [pages for pages in of_trace(self.trace) if pages.inode == inode]
        assert len(of_file) <= 1, of_file
        found = of_file[0] if of_file else None
        counts = {"read": 0, "touched": 0, "mapped": 0, "either": 0}
        counts |= {"first_of_range": 0, "accesses": 0}
        if found:
            counts = {
                "read": found.read.total(),
                "distinct": len(found.read),
                "touched": found.touched.total(),
                "mapped": len(found.mapped),
                "either": len(found.touched | found.mapped),
                "first_of_range": found.first_of_range,
                "accesses": found.accesses,
            }
        told = {}
        if case.truth not in ("size", "strace"):
            told = json.loads(out[out.index("{") :])
            names = ["calls", "major_faults", "cached_before"]
            told = {name: told[name] for name in names if name in told}
        return {
            "case": case.name,
            "command": " ".join(str(word) for word in case.command).replace(str(self.work), "WORK"),
            "truth": case.truth,
            "truth_pages": truth,
            "truth_bytes": size,
            "compared": case.compared,
            "recorded_pages": counts[case.compared],
            **told,
            **counts,
            "named": found.path.replace(str(self.work), "WORK") if found else "",
            "cached_at_begin_and_end": cached_pages,
            "lost": lost(self.trace),
            "wall_s": round(wall_s, 2),
            "says": said.replace(str(self.work), "WORK").splitlines()[0],
        }

    def truth(self, case, out, path):
        """Pages, and bytes where they are known."""
        if case.truth == "size":
            return pages_of(path.stat().st_size), path.stat().st_size
        if case.truth == "strace":
            log = self.work / "strace.log"
            quiet(*STRACE, log, *case.command)
            found = of_strace(log)[str(path)]
            return found.read.total(), found.read_bytes
        told = json.loads(out[out.index("{") :])
        if case.truth == "fio":
            job = told["jobs"][0]
            assert job["error"] == 0
            size = job["read"]["io_bytes"]
            return size // PAGE, size
        return told["pages"], told.get("bytes")


def image_inode(image):
    shown = subprocess.run(
        ["debugfs", "-R", "stat /data", image], capture_output=True, text=True, check=True
    )
    return re.search(r"Inode: (\d+)", shown.stdout)[1]


def table(runs):
    """A row for each case: its worst round."""
    print(HEADING)
    for name in dict.fromkeys(run["case"] for run in runs):
        print(row(max((run for run in runs if run["case"] == name), key=lambda run: abs(off(run)))))
    print(f"\n{MAPPED}")
    for run in runs:
        if run["truth"] in ("pagemap", "size") and run["round"] == 0:
            names = ["truth_pages", "cached_before", "major_faults", "touched", "first_of_range"]
            cells = [f"{run[name]:,}" if name in run else "" for name in names]
            alone = run["touched"] - run["first_of_range"]
            print("| " + " | ".join([run["case"], *cells, f"{alone:,}"]) + " |")


def off(run):
    return run["recorded_pages"] / run["truth_pages"] - 1


def row(run):
    words = f"{off(run):+.4%}"
    if abs(off(run)) > GOAL:
        words = f"**{words}**"
    dropped = run["lost"].get("dropped_events", 0)
    cells = [run["case"], run["truth"], f"{run['truth_pages'] * PAGE:,}"]
    cells += [f"{run['recorded_pages'] * PAGE:,}", words, f"{dropped:,}"]
    return "| " + " | ".join(cells) + " |"


HEADING = """| case | truth | bytes by it, whole pages | recorded | difference | accesses lost |
|---|---|--:|--:|--:|--:|"""
MAPPED = """| mapped | pages by the truth | cached before | major faults | touches recorded \
| of these, first of a range | others |
|---|--:|--:|--:|--:|--:|--:|"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    arguments.work.chmod(0o755)
    prepare(arguments.work)
    runs = Runs(arguments)
    found = []
    for number in range(arguments.rounds):
        for case in cases(arguments.work):
            if arguments.only not in case.name:
                continue
            try:
                run = {"round": number, **runs.run(case)}
            except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as error:
                print(f"{case.name} failed: {error!r:.300}", file=sys.stderr, flush=True)
                continue
            found.append(run)
            print(row(run), file=sys.stderr, flush=True)
            if arguments.raw:
                with open(arguments.raw, "a") as raw:
                    raw.write(json.dumps(run) + "\n")
    table(found)


if __name__ == "__main__":
    main()
