"""Fifteen programs for promise.py that nothing else here names, and that nobody tuned on.

They were chosen, and their sizes set, before any of their figures was known: twelve, and the last
three when it was seen that convert, h5diff and fdupes have no forecast. Each does the same work in
each run, in a memory cgroup that does not hold its data, and prints something that depends on the
bytes it reads.
"""

import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import page_cache
import workloads
from machine import MIB
from workloads import Kit, Workload

# A folder that the program may write to, and its content is removed before and after.
SCRATCH = "scratch"


def run(*command: object) -> None:
    words = [str(word) for word in command]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def scratch(kit: Kit) -> Path:
    path = kit.folder(SCRATCH)
    path.mkdir(exist_ok=True)
    path.chmod(0o777)
    return path


def log(kit: Kit, name: str, size_mib: int) -> Path:
    """Lines of a web server's log."""

    def make(path: Path) -> None:
        source = random.Random(name)
        paths = [f"/page/{source.randrange(10**6)}.html" for _ in range(2000)]
        agents = [f"agent/{number}.0 (of a browser that names much)" for number in range(50)]
        lines = [
            f"10.0.{source.randrange(256)}.{source.randrange(256)} - - [30/Nov/2026:12:00:00] "
            f'"GET {source.choice(paths)}" {source.choice((200, 200, 304, 404))} '
            f'{source.randrange(100000)} "{source.choice(agents)}"'
            for _ in range(40_000)
        ]
        with path.open("w") as file:
            while file.tell() < size_mib * MIB:
                source.shuffle(lines)
                file.write("\n".join(lines) + "\n")

    return kit.made(name, make)


def gawk(kit: Kit) -> Workload:
    """Four reports of a log, each of which reads all of it."""
    page_cache.install({"gawk": "gawk"})
    data = log(kit, "access.log", kit.mib(320))
    reports = [
        "{ n[$7] += 1 } END { for (k in n) print k, n[k] }",
        "{ n[$1] += $9 } END { for (k in n) print k, n[k] }",
        "$8 == 404 { n[$7]++ } END { for (k in n) print k, n[k] }",
        "{ s += $9 } END { print s, NR }",
    ]
    each = (f"gawk '{report}' {data} | sort | cksum" for report in reports)
    return Workload("; ".join(each), [data], kit.mib(176))


def pigz(kit: Kit) -> Workload:
    """Compresses a file four times, with two threads."""
    page_cache.install({"pigz": "pigz"})
    data = log(kit, "access.log", kit.mib(320))
    command = workloads.repeat(4, f"pigz -1 -p 2 -c {data} | cksum")
    return Workload(command, [data], kit.mib(192))


def sevenzip(kit: Kit) -> Workload:
    """Archives a tree, tests the archive twice, and archives the tree again."""
    page_cache.install({"7z": "p7zip-full"})
    data, out = workloads.tree(kit, "tree-320", kit.mib(320)), scratch(kit)
    seven = f"7z {{}} -bd -bso0 -bsp0 {out}/tree.7z"
    add = seven.format("a -mx=0 -mmt=1") + f" {data}"
    test = seven.format("t")
    parts = [f"rm -f {out}/tree.7z", add, test, test, f"rm {out}/tree.7z", add]
    command = f"{' && '.join(parts)} && ls {out} | cksum && rm {out}/tree.7z"
    return Workload(command, [data], kit.mib(224))


def berkeley(kit: Kit) -> Workload:
    """Dumps a btree three times and verifies it once: its pages are all over the file."""
    page_cache.install({"db5.3_load": "db5.3-util"})

    def make(path: Path) -> None:
        source, rows = random.Random(3), path.with_name("rows.txt")
        with rows.open("w") as file:
            for _ in range(kit.mib(256) * MIB // 420):
                file.write(f"{source.randrange(10**9)}\n{source.randbytes(150).hex()}\n")
        run("db5.3_load", "-T", "-t", "btree", "-f", rows, path)
        rows.unlink()

    data = kit.made("rows.db", make)
    dump = f"db5.3_dump -p {data} | cksum"
    command = f"{dump}; {dump}; db5.3_verify {data}; {dump}"
    return Workload(command, [data], data.stat().st_size // MIB // 2 + 16)


def datamash(kit: Kit) -> Workload:
    """Two statistics of a log by columns, in turn, twice."""
    page_cache.install({"datamash": "datamash"})
    data = log(kit, "access.log", kit.mib(320))
    each = f"datamash -W sum 8 mean 8 < {data} | cksum; datamash -W max 8 min 8 < {data} | cksum"
    return Workload(f"{each}; {each}", [data], kit.mib(176))


LUA = """
local hot, cold = arg[1], arg[2]
math.randomseed(7)
local sum, size = 0, 0
local index = assert(io.open(hot, "rb"))
index:setvbuf("no")
size = index:seek("end")
for pass = 1, 3 do
  for chunk in io.lines(cold, 65536) do
    sum = (sum + chunk:byte(1)) % 1000003
    for n = 1, 4 do
      index:seek("set", math.random(0, size // 4096 - 1) * 4096)
      sum = (sum * 31 + index:read(4096):byte(9)) % 1000003
    end
  end
end
print(sum)
"""


def lua(kit: Kit) -> Workload:
    """Three scans of a file, and random reads of an index beside them."""
    page_cache.install({"lua5.4": "lua5.4"})
    cold, hot = log(kit, "access.log", kit.mib(320)), workloads.noise(kit, "index", kit.mib(64))
    script = kit.work / "scan.lua"
    script.write_text(LUA)
    command = f"lua5.4 {script} {hot} {cold}"
    return Workload(command, [hot, cold], kit.mib(192))


def magick(kit: Kit) -> Workload:
    """Thumbnails of a hundred pictures, in three sizes one after the other."""
    page_cache.install({"convert": "imagemagick"})

    def make(path: Path) -> None:
        path.mkdir()
        source = random.Random(5)
        for number in range(kit.mib(100)):
            pixels = source.randbytes(1200 * 900 * 3)
            (path / f"{number:03}.ppm").write_bytes(b"P6\n1200 900\n255\n" + pixels)

    data = kit.made("pictures", make)
    convert = shutil.which("convert", path="/usr/bin") or "convert"
    each = f"for p in {data}/*.ppm; do {convert} $p -sample {{}} gray:-; done | cksum"
    command = "; ".join(each.format(size) for size in ("120x90", "60x45", "240x180"))
    return Workload(command, [data], kit.mib(192))


def sox(kit: Kit) -> Workload:
    """Statistics of a sound, then its mean, then its normalised copy."""
    page_cache.install({"sox": "sox"})

    def make(path: Path) -> None:
        seconds = kit.mib(320) * MIB // (44100 * 4)
        wave = path.with_suffix(".wav")
        run("sox", "-R", "-n", "-r", 44100, "-c", 2, "-b", 16, wave, "synth", seconds, "pinknoise")
        wave.rename(path)

    data = kit.made("sound", make)
    stat = f"sox -t wav {data} -n stat 2>&1 | cksum"
    norm = f"sox -R -t wav {data} -t raw - gain -n -3 | cksum"
    return Workload(f"{stat}; {stat}; {norm}", [data], kit.mib(176))


def h5diff(kit: Kit) -> Workload:
    """Compares two files of chunked data three times."""
    page_cache.install({"h5diff": "hdf5-tools"})

    def make(path: Path) -> None:
        import h5py

        path.mkdir()
        source = random.Random(9)
        rows = kit.mib(160) * MIB // 8192
        for name in ("a.h5", "b.h5"):
            source.seed(9)
            with h5py.File(path / name, "w") as file:
                shape, chunks = (rows, 1024), (64, 1024)
                table = file.create_dataset("table", shape, dtype="i8", chunks=chunks)
                for row in range(0, rows, 64):
                    count = min(64, rows - row)
                    bytes_ = source.randbytes(count * 8192)
                    table[row : row + count] = memoryview(bytes_).cast("q", [count, 1024])

    data = kit.made("tables", make)
    command = workloads.repeat(3, f"h5diff -r {data}/a.h5 {data}/b.h5; echo $?") + " | cksum"
    return Workload(command, [data], kit.mib(176))


def borg(kit: Kit) -> Workload:
    """A backup, the same again without knowing the files, and a check of all data."""
    page_cache.install({"borg": "borgbackup"})
    data, out = workloads.tree(kit, "tree-240", kit.mib(240)), scratch(kit)
    environment = f"export BORG_BASE_DIR={out}/base BORG_RELOCATED_REPO_ACCESS_IS_OK=yes"
    environment += " BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK=yes"
    create = f"borg create --compression none --files-cache disabled {out}/repo::{{}} {data}"
    parts = [
        environment,
        f"rm -rf {out}/base {out}/repo",
        f"borg init -e none {out}/repo",
        create.format("one"),
        create.format("two"),
        f"borg check --verify-data {out}/repo",
        f"borg list --short {out}/repo | cksum",
        f"rm -rf {out}/base {out}/repo",
    ]
    return Workload(" && ".join(parts), [data], kit.mib(224))


def ctags(kit: Kit) -> Workload:
    """Tags of a source tree, made four times."""
    page_cache.install({"ctags": "universal-ctags"})

    def make(path: Path) -> None:
        source, written, number = random.Random(11), 0, 0
        while written < kit.mib(224) * MIB:
            functions = source.randint(20, 4000)
            text = "".join(
                f"static int function_{number}_{n}(int a)\n{{\n\treturn a * {n} + {number};\n}}\n"
                for n in range(functions)
            )
            folder = path / f"{number // 40:03}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number:05}.c").write_text(text)
            written, number = written + len(text), number + 1

    data = kit.made("sources", make)
    command = workloads.repeat(4, f"ctags -R -f - --sort=no {data} | cksum")
    return Workload(command, [data], kit.mib(128))


def fdupes(kit: Kit) -> Workload:
    """Looks for equal files among two copies of a tree: it reads their starts, then all of them,
    then compares the pairs."""
    page_cache.install({"fdupes": "fdupes"})
    first = workloads.tree(kit, "tree-160", kit.mib(160))
    second = kit.made("tree-160-copy", lambda path: shutil.copytree(first, path))
    command = f"fdupes -q -r {first} {second} | sort | cksum"
    return Workload(command, [first, second], kit.mib(176))


def miller(kit: Kit) -> Workload:
    """Four reports of a table, each of which reads all of it."""
    page_cache.install({"mlr": "miller"})

    def make(path: Path) -> None:
        source = random.Random(13)
        rows = [
            f"{source.randrange(10**6)},{source.choice('abcdefgh')},{source.random():.9f},"
            f"{source.randbytes(40).hex()}\n"
            for _ in range(40_000)
        ]
        with path.open("w") as file:
            file.write("id,group,value,word\n")
            while file.tell() < kit.mib(256) * MIB:
                source.shuffle(rows)
                file.writelines(rows)

    data = kit.made("rows.csv", make)
    verbs = (
        "count -g group",
        "stats1 -a sum -f id -g group",
        "filter '$id < 10' then count",
        "top -f id -g group",
    )
    each = (f"GOMEMLIMIT=64MiB mlr --icsv --ojson {verb} {data} | cksum" for verb in verbs)
    return Workload("; ".join(each), [data], kit.mib(176))


def squashfs(kit: Kit) -> Workload:
    """An image of a tree without compression, what is in it, and the image again."""
    page_cache.install({"mksquashfs": "squashfs-tools"})
    data, out = workloads.tree(kit, "tree-320", kit.mib(320)), scratch(kit)
    image = f"{out}/tree.squashfs"
    # Its caches take a quarter of the machine, whatever the cgroup has.
    plain = "-mem 48M -noI -noD -noF -noX -no-duplicates -processors 1 -no-progress -quiet"
    make = f"rm -f {image} && mksquashfs {data} {image} {plain} -all-time 0 -mkfs-time 0"
    read = f"unsquashfs -da 16 -fr 16 -d {out}/back -processors 1 -no-progress -quiet {image}"
    look = f"cat {out}/back/*/* | cksum && rm -r {out}/back"
    parts = [f"rm -rf {out}/back", make, read, look, make, f"rm {image}"]
    return Workload(" && ".join(parts), [data], kit.mib(224))


def par2(kit: Kit) -> Workload:
    """Recovery blocks of a file, and two verifications."""
    page_cache.install({"par2": "par2"})
    data, out = workloads.noise(kit, "blob", kit.mib(256)), scratch(kit)
    create = f"par2 create -q -q -m16 -s1048576 -c4 -n1 -B {data.parent} {out}/blob.par2 {data}"
    verify = f"par2 verify -q -q -m16 -B {data.parent} {out}/blob.par2; echo $?"
    command = f"rm -f {out}/*; {create} && ({verify}; {verify}) | cksum; rm {out}/*"
    return Workload(command, [data], kit.mib(144))


STRANGERS: dict[str, Callable[[Kit], Workload]] = {
    "gawk": gawk,
    "pigz": pigz,
    "7z": sevenzip,
    "db5.3": berkeley,
    "datamash": datamash,
    "lua": lua,
    "convert": magick,
    "sox": sox,
    "h5diff": h5diff,
    "borg": borg,
    "ctags": ctags,
    "fdupes": fdupes,
    "mlr": miller,
    "mksquashfs": squashfs,
    "par2": par2,
}
