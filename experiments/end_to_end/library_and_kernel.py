#!/usr/bin/env python3
"""The programs of strangers.py, recorded by the library and by the kernel's events: the same pages?

Each program runs under `hither record --seen-by=library`. A shell that waits starts it, so that
`hither record -p SHELL` sees the same run by the kernel's events. Of each file, the pages that were
read are compared: those that each request covers, as often as they were covered. The library's
ranges are rounded to whole pages. Files are compared by their paths, if either has read them.

Left out are reads that the dynamic loader or the C library make for themselves, inside of libc,
where a preloaded library cannot see them: programs and libraries (ELF files, by their contents),
ld.so.cache, locales and character sets, name services, time zones.

Touches of mapped files are not compared: the library sees none without --mapped.

Then each is run once more for the library alone and twice for the kernel alone, on the same data,
all cached. Some programs do not read the same bytes in each run, so the difference between the two
runs of the kernel is reported, too. A program of which the library sees nothing is compared with
strace, in another run.

Needs root, the packages of strangers.py, and pyarrow (PyPI). Programs that are not installed are
named and left out; nothing is installed but what pip and npm put into --work. Prints Markdown;
appends JSON lines to --raw.

    python3 library_and_kernel.py --hither target/release/hither --work /var/tmp/strangers \
        --raw runs.jsonl
"""

import argparse
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import strangers_programs
from pages import PAGE, STRACE, Pages, lost, of_strace, of_trace
from strangers import wait_until
from strangers_programs import PROGRAMS

from workloads import Kit

GOAL = 0.001
READY_S, RUN_S = 60, 600
# What libc and the loader read for themselves.
INTERNAL = ["/etc/ld.so", "/usr/lib/locale/", "/usr/share/locale", "/etc/locale", "/etc/nsswitch"]
INTERNAL += ["/etc/passwd", "/etc/group", "/usr/share/zoneinfo", "/etc/localtime", "/etc/host"]
INTERNAL += ["/etc/resolv.conf", "/etc/gai.conf", "/usr/lib/x86_64-linux-gnu/gconv"]
# What has no pages in the page cache.
INTERNAL += ["/proc/", "/sys/", "/dev/"]


class Missing(Exception):
    """A program that is not installed."""


def require(programs):
    absent = [name for name in programs if not shutil.which(name)]
    if absent:
        raise Missing(", ".join(absent))


def is_internal(path):
    """Whether the loader or libc read it for themselves, or it is code that the loader reads."""
    if any(path.startswith(start) for start in INTERNAL):
        return True
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return True
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


class Runs:
    def __init__(self, arguments):
        self.hither, self.work = arguments.hither, arguments.work
        self.library = arguments.work / "library.hither"
        self.trace = arguments.work / "kernel.hither"
        self.said = []

    def files(self, trace):
        """By path, what was read; not by the library's agent, which is there in runs of both."""
        found = {}
        for pages in of_trace(trace, self.hither):
            if pages.read:
                found.setdefault(os.path.realpath(pages.path), Pages(pages.path)).add(pages)
        return found

    def words_of_library(self, program):
        words = [self.hither, "-q", "record", "--seen-by=library", "--force", "-o", self.library]
        return [str(word) for word in [*words, "--", "sh", "-c", program.command]]

    def by_library(self, program):
        program.reset()
        self.whole(program, subprocess.Popen(self.words_of_library(program), **silent()))
        return self.files(self.library)

    def by_kernel(self, program, words=None):
        shutil.rmtree(self.trace, ignore_errors=True)
        program.reset()
        # It waits for its turn as a process of ours, and becomes the program.
        waits = ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
        words = words or ["sh", "-c", program.command]
        child = subprocess.Popen([*waits, *words], **silent())
        os.waitpid(child.pid, os.WUNTRACED)
        record = [str(self.hither), "record", "-p", str(child.pid), "-o", str(self.trace)]
        recording = subprocess.Popen(record, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + READY_S
        while not any(self.trace.name in name for name in os.listdir(self.work)):
            if recording.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"it does not record: {recording.stderr.read()}")
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGCONT)
        self.whole(program, child)
        # What the program has left behind is not waited for.
        recording.send_signal(signal.SIGINT)
        _, said = recording.communicate(timeout=RUN_S)
        assert recording.returncode == 0, said
        self.said = said.replace(str(self.work), "WORK").splitlines()
        return self.files(self.trace)

    def by_strace(self, program):
        log = self.work / "strace.log"
        program.reset()
        words = [*STRACE, str(log), "sh", "-c", program.command]
        self.whole(program, subprocess.Popen(words, **silent()))
        return of_strace(log)

    def both(self, program):
        """What the two have of one run."""
        kernel = self.by_kernel(program, self.words_of_library(program))
        return self.files(self.library), kernel

    def whole(self, program, child):
        """Waits for the program, and loads it if it is a server."""
        if program.client:
            wait_until(program.ready, child)
            subprocess.run(["sh", "-c", program.client], timeout=RUN_S, **silent())
            os.kill(int(program.pid.read_text()), signal.SIGTERM)
        child.wait(timeout=RUN_S)
        assert child.returncode == 0, program.command

    def measure(self, name):
        kit = Kit(self.work, quick=False)
        program = PROGRAMS[name](kit)
        work = str(self.work)
        # All is cached from here on.
        self.by_library(program)
        library, kernel = self.both(program)
        losses, said = [lost(self.library), lost(self.trace)], self.said
        by_strace = {}
        if not compare(library, {}, work)["one"]:
            by_strace = {"strace": compare(self.by_strace(program), kernel, work)}
        alone = [self.by_library(program), self.by_kernel(program), self.by_kernel(program)]
        program.reset()
        return {
            "program": name,
            "version": program.version,
            **compare(library, kernel, work),
            **by_strace,
            "separate": compare(*alone[:2], work),
            "kernel_again": compare(*alone[1:], work),
            "lost": losses,
            "says": said,
        }


def silent():
    null = subprocess.DEVNULL
    return {"stdin": null, "stdout": null, "stderr": null}


def compare(one, other, work):
    """Pages that both, or only one of them, have read."""
    total = {"one": 0, "other": 0, "only_one": 0, "only_other": 0, "internal": 0}
    total |= {"files": 0, "files_differ": 0, "distinct_one": 0, "distinct_other": 0}
    differ = []
    for path in sorted({*one, *other}):
        first, second = one.get(path, Pages()).read, other.get(path, Pages()).read
        if is_internal(path):
            total["internal"] += (second | first).total()
            continue
        more, less = (first - second).total(), (second - first).total()
        total["one"] += first.total()
        total["other"] += second.total()
        total["distinct_one"] += len(first)
        total["distinct_other"] += len(second)
        total["only_one"] += more
        total["only_other"] += less
        total["files"] += 1
        if more or less:
            total["files_differ"] += 1
            differ.append((more + less, path.replace(work, "WORK"), first.total(), second.total()))
    differ.sort(reverse=True)
    return {**total, "differ": differ[:8]}


def cell(run):
    if not run["one"]:
        return f"{cell(run['strace'])} to strace" if "strace" in run else ""
    net = (run["other"] - run["one"]) / run["one"]
    words = f"{net:+.4%}"
    return f"**{words}**" if abs(net) > GOAL else words


def row(run):
    cells = [run["program"], f"{run['files']:,}", f"{run['one'] * PAGE:,}"]
    cells += [f"{run['other'] * PAGE:,}", cell(run), f"{run['only_one']:,}"]
    cells += [f"{run['only_other']:,}", cell(run["separate"]), cell(run["kernel_again"])]
    cells += [f"{run['internal']:,}", f"{sum(one['dropped_events'] for one in run['lost']):,}"]
    return "| " + " | ".join(cells) + " |"


HEADING = """| program | files | bytes by the library, whole pages | by the kernel | difference \
| pages of the library alone | of the kernel alone | difference in separate runs \
| of two runs by the kernel | left out, pages | accesses lost |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    # What apt would install is asked for only.
    strangers_programs.install = require
    runs, missing = Runs(arguments), {}
    print(HEADING)
    for name in arguments.programs.split(","):
        try:
            run = runs.measure(name)
        except Missing as error:
            missing[name] = str(error)
            continue
        except (AssertionError, RuntimeError, subprocess.SubprocessError, OSError) as error:
            print(f"{name} failed: {error!r:.300}", file=sys.stderr, flush=True)
            continue
        if arguments.raw:
            with open(arguments.raw, "a") as raw:
                raw.write(json.dumps(run) + "\n")
        print(row(run), flush=True)
        for count, path, first, second in run["differ"][:4]:
            print(f"{name}: {path}: {first} and {second} pages", file=sys.stderr, flush=True)
    for name, what in missing.items():
        print(f"\n{name}: not installed ({what})")


if __name__ == "__main__":
    main()
