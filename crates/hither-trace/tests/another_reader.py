"""Writes traces in formats that tests/another_reader.rs reads, with Python's own csv, struct, bz2,
gzip, lzma and tarfile, and prints for each what it counts in them:
FILE, FORMAT (or -), REFERENCES, BLOCKS and WRITTEN ones, separated by tabs."""

import bz2
import csv
import gzip
import io
import lzma
import random
import struct
import sys
import tarfile
from pathlib import Path

FOLDER = Path(sys.argv[1])
RANDOM = random.Random(20261130)
MAGIC = 0x123456789ABCDEF0
# By their numbers in libCacheSim's enum.
READS, WRITES = [0, 1, 2, 12], [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]


def put(name, content, form, keys, writes=0):
    path = FOLDER / name
    path.write_bytes(content)
    print(path, form, len(keys), len(set(keys)), writes, sep="\t")


def with_next(keys):
    """The number, from 1, of the next record of each key."""
    later, found = {}, []
    for at in range(len(keys), 0, -1):
        found.append(later.get(keys[at - 1], RANDOM.choice([-1, 2**63 - 1])))
        later[keys[at - 1]] = at
    return found[::-1]


def lcs(header_bytes, version):
    keys = [RANDOM.choice([RANDOM.randrange(50), 2**63 + RANDOM.randrange(9)]) for _ in range(999)]
    ops = [RANDOM.choice(READS + WRITES) for _ in keys]
    body = b""
    for at, (key, op, follows) in enumerate(zip(keys, ops, with_next(keys))):
        begin, op = struct.pack("<IQ", at, key), op | RANDOM.randrange(2**24) << 8
        if version == 1:
            body += begin + struct.pack("<Iq", 100, follows)
        elif version == 2:
            body += begin + struct.pack("<IIq", 100, op, follows)
        else:
            features = [0, 1, 2, 4, 8, 16][version - 3]
            body += begin + struct.pack("<qIIq", 2**40, op, 60, follows)
            body += struct.pack(f"<{features}I", *range(features))
    header = struct.pack("<QQqqq", MAGIC, version, 1, len(keys), len(set(keys)))
    header = header.ljust(header_bytes - 8, b"\0") + struct.pack("<Q", MAGIC)
    writes = 0 if version == 1 else sum(op in WRITES for op in ops)
    put(f"lcs-{header_bytes}-{version}", header + body, "-", keys, writes)


def lcs_described(letters, roles):
    """A header with a format string: time, object, size, next and op among `letters`."""
    keys = [RANDOM.randrange(100) for _ in range(500)]
    ops = [RANDOM.choice(READS + WRITES) for _ in keys]
    body = b""
    for at, (key, op, follows) in enumerate(zip(keys, ops, with_next(keys))):
        values = {"time": at, "object": key, "size": 77, "next": follows, "op": op}
        fields = [values.get(role, 5) for role in roles]
        body += struct.pack("<" + letters, *fields)
    place = [roles.index(role) + 1 if role in roles else 0
             for role in ["object", "size", "time", "last", "next", "op", "ttl", "tenant", "kind"]]
    header = struct.pack("<Q240s9B231x", MAGIC, b"<" + letters.encode(), *place)
    header += struct.pack("<qqqq480x", len(keys), len(set(keys)), 0, 0)
    size = struct.calcsize("<" + letters)
    header += struct.pack("<IIQQ", len(letters), size, 1, MAGIC)
    writes = sum(op in WRITES for op in ops) if "op" in roles else 0
    put(f"lcs-{letters}", header + body, "-", keys, writes)


def delimited(name, settings, **dialect):
    keys = [RANDOM.choice(["a,b", 'q"q', "tab\tx", "é", "7", "x y"]) for _ in range(300)]
    ops = [RANDOM.choice(["get", "SET", "delete", "r"]) for _ in keys]
    text = io.StringIO()
    rows = csv.writer(text, **dialect)
    rows.writerow(["when", "op", "the key", "n"])
    for at, (key, op) in enumerate(zip(keys, ops)):
        rows.writerow([at / 2, op, key, at])
    writes = sum(op in ["SET", "delete"] for op in ops)
    put(name, text.getvalue().encode(), settings, keys, writes)


def vscsi():
    """Requests of whole blocks of 4 KiB, none of which goes on where another ended."""
    blocks, writes, body = [], 0, b""
    for at in range(400):
        first, count = RANDOM.randrange(1000) * 1000 + at % 2 * 500, RANDOM.randrange(1, 9)
        command = RANDOM.choice([0x28, 0x2A])
        body += struct.pack("<IIIHHQQ", at, count * 4096, 1, command, 0x100, first * 8, at * 10)
        blocks += range(first, first + count)
        writes += count * (command == 0x2A)
    put("requests.vscsi", body, "vscsi-requests", blocks, writes)


def packed():
    keys = [RANDOM.randrange(1000) for _ in range(20_000)]
    lines = "".join(f"{key}\n" for key in keys).encode()
    half = len(lines) // 2
    for name, pack in [("bz2", bz2.compress), ("gz", gzip.compress), ("xz", lzma.compress)]:
        put(f"one.{name}", pack(lines), "-", keys)
        put(f"two.{name}", pack(lines[:half]) + pack(lines[half:]), "-", keys)
    put("zeros.gz", gzip.compress(lines) + bytes(10_240), "-", keys)
    formats = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
    for kind, form in formats.items():
        name = "folder/" * 12 + "file" if kind == "ustar" else "folder é/" * 30 + "file"
        for mode in ["", "gz", "bz2", "xz"]:
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode=f"w:{mode}", format=form) as tar:
                folder = tarfile.TarInfo("folder")
                folder.type = tarfile.DIRTYPE
                tar.addfile(folder)
                member = tarfile.TarInfo(name)
                member.size = len(lines)
                tar.addfile(member, io.BytesIO(lines))
                link = tarfile.TarInfo("link")
                link.type, link.linkname = tarfile.SYMTYPE, name
                tar.addfile(link)
            put(f"{kind}.tar.{mode}", archive.getvalue(), "-", keys)


def perf_trace():
    """Processes that fork and read files of their own and of each other, in whole blocks."""
    lines, blocks, writes, time = [], [], 0, 0.0
    # Of each process: by descriptor, the name of the file and a list of its position alone.
    processes = {100: {}}

    def say(pid, call, result):
        nonlocal time
        time += RANDOM.random()
        line = f"{time:10.3f} ( 0.010 ms): a b/{pid} {call}"
        if RANDOM.randrange(4) == 0:
            lines.append(f"{time:10.3f} (         ): a b/{pid} {call} ...")
            lines.append(f"{time + 0.1:10.3f} ( 0.001 ms): other/7 brk() = 0x1000")
            name = call[: call.index("(")]
            line = f"{time:10.3f} ( 9.000 ms): a b/{pid}  ... [continued]: {name}())"
        lines.append(f"{line:<90} = {result}")

    for _ in range(4000):
        pid = RANDOM.choice(list(processes))
        files = processes[pid]
        free = next(number for number in range(3, 99) if number not in files)
        deeds = ["open", "read", "pread64", "write", "lseek", "dup", "close", "fork"]
        deed = RANDOM.choice(deeds)
        if not files or deed == "open":
            name = f"/data/a, b: {RANDOM.randrange(9)}>"
            shown = RANDOM.choice([f'"{name}"', "0x7f001122"])
            say(pid, f"openat(dfd: CWD, filename: {shown}, flags: RDWR|CLOEXEC)", free)
            files[free] = (name, [0])
            continue
        number = RANDOM.choice(list(files))
        name, position = files[number]
        file, count = f"fd: {number}<{name}>", RANDOM.randrange(1, 5)
        if deed in ["read", "write"]:
            say(pid, f"{deed}({file}, buf: 0x1, count: {count * 4096})", count * 4096)
            first, position[0] = position[0], position[0] + count
        elif deed == "pread64":
            first = RANDOM.randrange(5000)
            place = f", pos: {first * 4096}" if first else ""
            say(pid, f"pread64({file}, buf: 0x1, count: {count * 4096}{place})", count * 4096)
        elif deed == "lseek":
            position[0] = RANDOM.randrange(5000)
            say(pid, f"lseek({file}, offset: 1, whence: END)", position[0] * 4096)
        elif deed == "dup":
            say(pid, f"dup(fildes: {number})", free)
            files[free] = files[number]
        elif deed == "close":
            say(pid, f"close({file})", 0)
            del files[number]
        elif deed == "fork" and len(processes) < 9:
            child = 100 + 10 * len(processes)
            say(pid, "clone(clone_flags: CHILD_CLEARTID|0x11, child_tidptr: 0x1)", f"{child} (x)")
            lines.append(f"         ? (         ): a b/{child}  ... [continued]: clone()) = ")
            processes[child] = dict(files)
        if deed in ["read", "write", "pread64"]:
            blocks += [(name, block) for block in range(first, first + count)]
            writes += count * (deed == "write")
    put("perf.log", "\n".join(lines).encode(), "-", blocks, writes)


for version in [1, 2]:
    lcs(1024, version)
for version in range(1, 9):
    lcs(8192, version)
lcs_described("IQIqB", ["time", "object", "size", "next", "op"])
lcs_described("BqHdQf", ["op", "next", "size", "x", "object", "y"])
lcs_described("I", ["object"])
delimited("comma.csv", "columns{key=the key,op=2,time=when,size=n}")
delimited("tab.tsv", "columns{key=3,op=op,delimiter=tab}", delimiter="\t")
delimited("bar.txt", "columns{key=3,op=2,delimiter=bar}", delimiter="|", quoting=csv.QUOTE_ALL)
delimited("space.txt", "columns{key=3,op=2,delimiter=space}", delimiter=" ", quoting=csv.QUOTE_ALL)
vscsi()
packed()
perf_trace()
