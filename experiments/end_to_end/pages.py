"""What a trace, or a log of strace, has of files, by the page.

Needs pyarrow (PyPI).
"""

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet

PAGE = 4096
STRACE = ["strace", "-f", "-y", "-e", "trace=openat,read,pread64,lseek", "-o"]
RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)$")
OPENED = re.compile(r"openat\(.*\)\s+= (\d+)<(.*?)>")
SOUGHT = re.compile(r"lseek\((\d+)<(.*?)>,.*\)\s+= (\d+)$")
READ = re.compile(r"(read|pread64)\((\d+)<(.*?)>, .*?(?:, (\d+))?\)\s+= ([1-9]\d*)$")


@dataclass
class Pages:
    """Of one file. Each access counts all pages that it covers."""

    path: str = ""
    inode: int = 0
    # By page, how often it was read, touched in a mapping (`fault`), and mapped.
    read: Counter = field(default_factory=Counter)
    touched: Counter = field(default_factory=Counter)
    mapped: Counter = field(default_factory=Counter)
    # Of the touches, those that stand for a range of pages of which one was touched: its first.
    first_of_range: int = 0
    accesses: int = 0
    # As the rows have them.
    read_bytes: int = 0

    def add(self, other: "Pages") -> None:
        for name in ("read", "touched", "mapped"):
            getattr(self, name).update(getattr(other, name))
        self.first_of_range += other.first_of_range
        self.accesses += other.accesses
        self.read_bytes += other.read_bytes


COUNTED = {"read": "read", "fault": "touched", "map": "mapped"}


def of_trace(trace: Path, without: Path | None = None) -> list[Pages]:
    """The files of a trace, without what processes of that program did."""
    processes = json.loads((trace / "meta.json").read_text())["processes"]
    left_out = {one["process"] for one in processes if one.get("exe") == str(without)}
    objects = pyarrow.parquet.read_table(trace / "objects.parquet").to_pydict()
    columns = ["object", "path", "inode", "kind"]
    files = {
        number: Pages(path, inode)
        for number, path, inode, kind in zip(*(objects[name] for name in columns))
        if kind == "file"
    }
    columns = ["object", "op", "offset", "length", "count", "process", "time_ns", "thread"]
    rows = pyarrow.parquet.read_table(trace / "accesses.parquet", columns=columns).to_pydict()
    before: dict[int, tuple] = {}
    for number, op, offset, length, count, process, *when in zip(*(rows[name] for name in columns)):
        if op == "fault" and before.get(number) == ("map", offset, *when):
            files[number].first_of_range += 1
        before[number] = (op, offset, *when)
        if op not in COUNTED or number not in files or length == 0 or process in left_out:
            continue
        found = files[number]
        pages = getattr(found, COUNTED[op])
        for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1):
            pages[page] += count
        found.accesses += count
        if op == "read":
            found.read_bytes += length * count
    return list(files.values())


def of_strace(log: Path) -> dict[str, Pages]:
    """The files of a log of STRACE by their paths: the pages that read and pread calls cover."""
    files: dict[str, Pages] = {}
    positions: dict[tuple[str, str], int] = {}
    unfinished: dict[str, str] = {}
    for line in log.read_text(errors="replace").splitlines():
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            unfinished[thread] = call.removesuffix(" <unfinished ...>")
            continue
        if resumed := RESUMED.match(call):
            call = unfinished.pop(thread, "") + resumed[1]
        if opened := OPENED.match(call):
            positions[opened[1], opened[2]] = 0
        elif sought := SOUGHT.match(call):
            positions[sought[1], sought[2]] = int(sought[3])
        elif read := READ.match(call):
            descriptor, length = (read[2], read[3]), int(read[5])
            start = positions.get(descriptor, 0)
            if read[1] == "pread64":
                start = int(read[4])
            else:
                positions[descriptor] = start + length
            found = files.setdefault(read[3], Pages(read[3]))
            for page in range(start // PAGE, (start + length - 1) // PAGE + 1):
                found.read[page] += 1
            found.read_bytes += length
            found.accesses += 1
    return files


def lost(trace: Path) -> dict:
    """What the trace says of its losses, without the programs that were not recorded."""
    losses = json.loads((trace / "meta.json").read_text())["losses"]
    return {name: losses[name] for name in ("dropped_events", "damaged_records")}
