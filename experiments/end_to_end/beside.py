#!/usr/bin/env python3
"""What does `hither record` as root add to the library's records, and does it change them?

Runs each program of library_and_kernel.py twice, all cached: with `hither record --seen-by=library`
and with `hither record`, which records the kernel's events beside the library. Of each file, the
requests of the two runs are compared: offset and length, each as often as it was made. A request
that only the second run has should be one that the kernel alone has seen. All of those together
should be `kernel_alone_bytes` of `hither stat --json`. A request that only the first run has is
either of a program that does not read the same in each run, or a fault: --again N compares N more
runs of the library with its first. Files that a program makes have random names: rsync's and
rustc's are compared without.

Needs root, the packages of strangers.py, and pyarrow (PyPI). Programs that are not installed are
named and left out. Prints Markdown; appends JSON lines to --raw.

    python3 beside.py --hither target/release/hither --work /var/tmp/strangers --raw runs.jsonl
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet
import strangers_programs
from library_and_kernel import Missing, is_internal, require, silent
from pages import lost
from strangers_programs import PROGRAMS

from workloads import Kit

RUN_S = 300
# The random part of the names of files that rsync and rustc make.
RANDOM = re.compile(
    r"(?<=\.txt\.)\w{6}$|(?<=/\.tmp)\w{6}(?=\.)|(?<=\.tmp)[0-9a-f]{7}$|(?<=\.)\w{7}(?=\.rcgu\.o$)"
    r"|(?<=/rustc|/rmeta)\w{6}(?=/)"
)
SERVERS = ["mariadb", "nginx"]


def requests(trace):
    """How often each request was made: by path, offset and length."""
    objects = pyarrow.parquet.read_table(trace / "objects.parquet").to_pydict()
    columns = ["object", "path", "kind"]
    files = {
        number: RANDOM.sub("RANDOM", os.path.realpath(path))
        for number, path, kind in zip(*(objects[name] for name in columns))
        if kind == "file"
    }
    columns = ["object", "op", "offset", "length", "count"]
    rows = pyarrow.parquet.read_table(trace / "accesses.parquet", columns=columns).to_pydict()
    found = Counter()
    for number, op, offset, length, count in zip(*(rows[name] for name in columns)):
        if op == "read" and number in files:
            found[files[number], offset, length] += count
    return found


def size(found):
    return sum(length * count for (_, _, length), count in found.items())


def by_file(found, work):
    """Bytes by path, most first."""
    total = Counter()
    for (path, _, length), count in found.items():
        path = path.replace(work, "WORK").replace(str(Path.home()), "~")
        total[path] += length * count
    return total.most_common()


def kind(path):
    """What a file is, in a word."""
    if not os.path.exists(path):
        return "gone"
    if not is_internal(path):
        return "data"
    with open(path, "rb") as file:
        return "ELF" if file.read(4) == b"\x7fELF" else "libc's"


class Runs:
    def __init__(self, arguments):
        self.hither, self.work = arguments.hither, arguments.work
        self.again = arguments.again
        self.trace = arguments.work / "beside.hither"

    def recorded(self, program, *options):
        """The requests, and what `hither stat` and the clock say."""
        program.reset()
        words = [self.hither, "-q", "record", *options, "--force", "-o", self.trace]
        words = [str(word) for word in [*words, "--", "sh", "-c", program.command]]
        start = time.monotonic()
        subprocess.run(words, check=True, timeout=RUN_S, **silent())
        wall_s = round(time.monotonic() - start, 2)
        stat = [str(self.hither), "-q", "stat", "--json", str(self.trace)]
        told = json.loads(subprocess.run(stat, check=True, capture_output=True).stdout)
        return requests(self.trace), told["trace"]["coverage"], wall_s, lost(self.trace)

    def measure(self, name):
        program, work = PROGRAMS[name](Kit(self.work, quick=False)), str(self.work)
        # All is cached from here on.
        self.recorded(program, "--seen-by=library")
        first, _, first_s, first_lost = self.recorded(program, "--seen-by=library")
        second, coverage, second_s, second_lost = self.recorded(program)
        more, less = second - first, first - second
        kinds = Counter()
        for (path, _, length), count in more.items():
            kinds[kind(path)] += length * count
        again = []
        for _ in range(self.again):
            other = self.recorded(program, "--seen-by=library")[0]
            again.append([size(other - first), size(first - other)])
        program.reset()
        shutil.rmtree(self.trace)
        return {
            "program": name,
            "version": program.version,
            "library_bytes": size(first),
            "both_bytes": size(second),
            "kernel_alone_bytes": coverage["kernel_alone_bytes"],
            "only_library_bytes": size(less),
            "only_both_bytes": size(more),
            "only_both_by_kind": kinds,
            "only_both_files": by_file(more, work)[:12],
            "only_library_files": by_file(less, work)[:12],
            "library_again": again,
            "wall_s": [first_s, second_s],
            "lost": [first_lost, second_lost],
        }


HEADING = """| program | bytes by the library | by both | more | by the kernel alone, by `stat` \
| requests of the library alone, bytes | of them in ELF files | libc's | data | accesses lost |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"""


def row(run):
    kinds = run["only_both_by_kind"]
    cells = [run["program"]]
    difference = run["both_bytes"] - run["library_bytes"]
    numbers = [run["library_bytes"], run["both_bytes"], difference, run["kernel_alone_bytes"]]
    numbers += [run["only_library_bytes"]]
    numbers += [kinds["ELF"], kinds["libc's"], kinds["data"] + kinds["gone"]]
    numbers += [sum(one["dropped_events"] for one in run["lost"])]
    return "| " + " | ".join([*cells, *(f"{number:,}" for number in numbers)]) + " |"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--again", type=int, default=1)
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    # What apt would install is asked for only.
    strangers_programs.install = require
    runs, missing = Runs(arguments), {}
    print(HEADING, flush=True)
    for name in arguments.programs.split(","):
        if name in SERVERS:
            continue
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
    for name, what in missing.items():
        print(f"\n{name}: not installed ({what})")


if __name__ == "__main__":
    main()
