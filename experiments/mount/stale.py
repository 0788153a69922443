#!/usr/bin/env python3
"""Reads of a mount while files are replaced at its source: none torn, none older than it may be.

    stale.py --hither PATH --work DIR [--reads N]

One process replaces files of a directory by rename(2), over and over. Others open them through a
mount and read blocks at random places. Each block says which version of which file it is of. A read
is torn if its block is of two versions, or of another one than the blocks before it from the same
open file. It is stale if its version was replaced, before the file was opened, for longer than the
consistency mode allows.

Two controls show that both would be found: a mount that takes the source for immutable, and the
directory itself while files are written over in place. Prints a JSON line a case and a table; exits
with 1 if a mount is wrong or a control finds nothing. Needs root and fuse3.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import time

FILES = 40
BLOCKS = 64
BLOCK = 4096
READERS = 3
READS_AN_OPEN = 200
SECONDS_MIN = 10
# How long a reader may be kept waiting between two lines of its program, on a busy machine.
SLACK_S = 0.5

# case: the consistency mode, how long what was replaced may be shown, and what must be found.
CASES = {
    "strict": ("strict", 0, set()),
    "ttl": ("ttl=1", 1, set()),
    "control: immutable": ("immutable", 0, {"stale"}),
    "control: in place": (None, 0, {"torn"}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--reads", type=int, default=10_000_000,
                        help="reads of each mount, of 4 KiB [default: 10 million]")
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work).absolute()
    shutil.rmtree(work, ignore_errors=True)
    rows = []
    for name in CASES:
        row = run_case(name, work, arguments)
        rows.append(row)
        print(json.dumps(row), flush=True)
    print()
    print(f"{'case':20} {'reads':>11} {'replaced':>9} {'torn':>6} {'stale':>7} {'ESTALE':>7}")
    for row in rows:
        print(f"{row['case']:20} {row['reads']:11,} {row['replaced']:9,} {row['torn']:6} "
              f"{row['stale']:7} {row['estale']:7}  {row['verdict']}")
    sys.exit(any(row["verdict"] != "ok" for row in rows))


def run_case(name, work, arguments):
    mode, allowed_s, must_find = CASES[name]
    source, place = work / "source", work / "mount"
    shutil.rmtree(work, ignore_errors=True)
    source.mkdir(parents=True)
    place.mkdir()
    for file in range(FILES):
        (source / str(file)).write_bytes(contents(file, 0))
    context = multiprocessing.get_context("fork")
    versions = context.Array("q", [0] * FILES, lock=False)
    # When the version came that a file has now.
    since = context.Array("d", [0] * FILES, lock=False)
    over, found = context.Event(), context.Queue()
    process = None
    if mode:
        command = [arguments.hither, "mount", "--memory", "64MiB", "--consistency", mode,
                   str(source), str(place)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while not os.path.ismount(place):
            if process.poll() is not None:
                sys.exit("hither does not mount")
            time.sleep(0.02)
    read_from = place if mode else source
    # Controls need not run for long.
    reads = arguments.reads if not must_find else 0
    try:
        writer = context.Process(target=replace, daemon=True,
                                 args=(source, mode is None, versions, since, over, found))
        readers = [context.Process(target=read, daemon=True,
                                   args=(read_from, reads // READERS + 1, allowed_s, versions,
                                         since, found))
                   for _ in range(READERS)]
        for it in [writer, *readers]:
            it.start()
        results = [found.get() for _ in readers]
        over.set()
        replaced = found.get()
    finally:
        if process:
            subprocess.run([arguments.hither, "unmount", str(place)], check=False)
            process.terminate()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)
    total = {key: sum(it[key] for it in results) for key in results[0]}
    kinds = {kind for kind in ("torn", "stale") if total[kind]}
    verdict = "ok"
    if must_find and not must_find & kinds:
        verdict = "the control finds nothing"
    elif not must_find and kinds:
        verdict = "wrong"
    return {"case": name, **total, "replaced": replaced, "verdict": verdict}


def stamp(file, version):
    return struct.pack("<II", file, version)


def contents(file, version):
    return stamp(file, version) * (BLOCK * BLOCKS // 8)


def replace(source, in_place, versions, since, over, found):
    """Replaces files until told to end, each as often as a second or as fast as may be."""
    rng = random.Random(1)
    replaced = 0
    while not over.is_set():
        file = rng.randrange(FILES)
        version = versions[file] + 1
        beside = source.parent / "new"
        # While it is replaced it has no time.
        since[file] = float("inf")
        if in_place:
            with open(source / str(file), "r+b", buffering=0) as writing:
                for block in range(BLOCKS):
                    os.pwrite(writing.fileno(), stamp(file, version) * (BLOCK // 8), block * BLOCK)
        else:
            beside.write_bytes(contents(file, version))
            os.rename(beside, source / str(file))
        versions[file] = version
        since[file] = time.monotonic()
        replaced += 1
        # Some files are left alone long enough to be cached, others are not.
        time.sleep(rng.choice([0.0, 0.01, 0.1]))
    found.put(replaced)


def read(place, reads, allowed_s, versions, since, found):
    rng = random.Random(os.getpid())
    paths = [str(place / str(file)) for file in range(FILES)]
    buffer = bytearray(BLOCK)
    counts = {"reads": 0, "torn": 0, "stale": 0, "estale": 0}
    end = time.monotonic() + SECONDS_MIN
    while counts["reads"] < reads or time.monotonic() < end:
        file = rng.randrange(FILES)
        opened = time.monotonic()
        expected, came = versions[file], since[file]
        try:
            descriptor = os.open(paths[file], os.O_RDONLY)
        except FileNotFoundError:
            continue
        whole = None
        try:
            for _ in range(READS_AN_OPEN):
                os.preadv(descriptor, [buffer], rng.randrange(BLOCKS) * BLOCK)
                counts["reads"] += 1
                if whole is None:
                    whole = bytes(buffer[:8]) * (BLOCK // 8)
                if buffer != whole or whole[:4] != struct.pack("<I", file):
                    counts["torn"] += 1
                    break
        except OSError:
            # ESTALE: the version is gone at the source, and was not cached.
            counts["estale"] += 1
        finally:
            os.close(descriptor)
        if whole is not None:
            version = struct.unpack("<I", whole[4:8])[0]
            if version < expected and opened - came > allowed_s + SLACK_S:
                counts["stale"] += 1
    found.put(counts)


if __name__ == "__main__":
    main()
