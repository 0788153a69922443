"""The programs of files.py that are not others': readers of files in a given order. Each prints a
checksum of what it read.

    python3 programs.py passes TIMES FILE...
    python3 programs.py merge STREAMS one|many FILE
    python3 programs.py mapped TIMES FILE
    python3 programs.py log TIMES MIB OUTPUT FILE
    python3 programs.py epochs FOLDER TIMES
    python3 programs.py duckdb DATABASE CACHE TIMES
"""

import os
import random
import sys
import zlib

READ_BYTES = 64 << 10


def passes(times: str, *files: str) -> None:
    """Reads all files from end to end, several times."""
    total = 0
    for _ in range(int(times)):
        for name in files:
            with open(name, "rb", buffering=0) as file:
                while piece := file.read(READ_BYTES):
                    total = zlib.adler32(piece, total)
    print(total)


def merge(streams: str, descriptors: str, name: str) -> None:
    """Reads a file in several streams, each from its own start, in a random order of streams."""
    count = int(streams)
    many = [os.open(name, os.O_RDONLY) for _ in range(count if descriptors == "many" else 1)]
    each = os.fstat(many[0]).st_size // count
    done, unfinished, total = [0] * count, list(range(count)), 0
    source = random.Random(1)
    while unfinished:
        place = source.randrange(len(unfinished))
        stream = unfinished[place]
        offset = stream * each + done[stream]
        piece = os.pread(many[stream % len(many)], READ_BYTES, offset)
        total = zlib.adler32(piece, total)
        done[stream] += len(piece)
        if done[stream] >= each:
            unfinished[place] = unfinished[-1]
            unfinished.pop()
    print(total)


def mapped(times: str, name: str) -> None:
    """Reads a mapped file from end to end, several times."""
    import mmap

    with open(name, "rb") as file:
        memory, total = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), 0
    for _ in range(int(times)):
        for offset in range(0, len(memory), READ_BYTES):
            total = zlib.adler32(memory[offset : offset + READ_BYTES], total)
    print(total)


def log(times: str, mib: str, output: str, name: str) -> None:
    """Passes over a file that also append to a log, `mib` in each. The log is removed."""
    total, line = 0, b"x" * 4095 + b"\n"
    with open(output, "wb", buffering=0) as out:
        for _ in range(int(times)):
            with open(name, "rb", buffering=0) as file:
                reads = os.fstat(file.fileno()).st_size // READ_BYTES
                lines = (int(mib) << 20) // len(line) // reads
                while piece := file.read(READ_BYTES):
                    total = zlib.adler32(piece, total)
                    for _ in range(lines):
                        out.write(line)
    os.unlink(output)
    print(total)


def epochs(folder: str, times: str) -> None:
    """Loads all arrays of a folder, in another order each time."""
    import numpy

    names, source, total = sorted(os.listdir(folder)), random.Random(1), 0.0
    for _ in range(int(times)):
        source.shuffle(names)
        for name in names:
            total += float(numpy.load(os.path.join(folder, name))[0, 0])
    print(total)


def duckdb(name: str, cache: str, times: str) -> None:
    """Scans a table several times."""
    import duckdb

    with duckdb.connect(name, read_only=True) as database:
        database.execute(f"set memory_limit = '{cache}'")
        database.execute("set threads = 2")
        for number in range(int(times)):
            query = f"select count(*), max(h) from t where word like '%abc%' and i > {number}"
            print(database.execute(query).fetchall())


if __name__ == "__main__":
    {
        program.__name__: program
        for program in (passes, merge, mapped, log, epochs, duckdb)
    }[sys.argv[1]](*sys.argv[2:])
