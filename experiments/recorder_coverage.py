#!/usr/bin/env python3
"""Holds what the recorder saw of real programs against what strace saw, and their outputs with and without it.

Usage: experiments/recorder_coverage.py TARGET_DIR [NAME...]

Builds nothing: TARGET_DIR/release must have libhither_preload.so (feature `interpose`) and examples/recorded_bytes
(`cargo build --release -p hither-preload --example recorded_bytes`). Prints one line a program: bytes that strace saw
read(2) and its kin move out of regular files, bytes recorded, their ratio, and whether the output was the same. Reads
that the dynamic linker makes for itself happen before any library can see them, and are listed apart, as is what was
read in the kernel (sendfile and its kin) and mapped.
"""

import collections
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time

READS = {"read", "pread64", "readv", "preadv", "preadv2"}
PYTHON = "import json, decimal, asyncio, xml.dom.minidom, unittest.mock, email.mime.text, sqlite3, ctypes, http.server"
JAVA_HOME = "/usr/lib/jvm/default-java"

WORK = tempfile.mkdtemp(prefix="coverage-")


def prepare():
    """Inputs for the programs below."""
    with open(f"{WORK}/lines", "w") as lines:
        for number in range(400_000):
            lines.write(f"{number * 2654435761 % 2**32} some text on a line\n")
    with open(f"{WORK}/main.c", "w") as source:
        source.write("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n#include <pthread.h>\n"
                     "int main(void) { puts(strerror(0)); return abs((int)floor(0.5)); }\n")
    with open(f"{WORK}/threads.c", "w") as source:
        source.write("""#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int fd;
static void *reader(void *argument) {
    char buffer[4096]; long sum = 0;
    for (long at = (long)argument * 4096; pread(fd, buffer, 4096, at) > 0; at += 8 * 4096) sum += buffer[0];
    return (void *)sum;
}
int main(int argc, char **argv) {
    pthread_t threads[8]; long total = 0; void *sum;
    fd = open(argv[1], O_RDONLY);
    for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, reader, (void *)i);
    for (int i = 0; i < 8; i++) { pthread_join(threads[i], &sum); total += (long)sum; }
    printf("%ld\\n", total);
}
""")
    run = lambda command: subprocess.run(command, shell=True, check=True, cwd=WORK, stdout=subprocess.DEVNULL)
    run("gcc -O1 -pthread threads.c -o threads")
    run("sqlite3 db 'create table t(a integer, b text); with recursive n(i) as (select 1 union all select i+1 from n"
        " where i < 300000) insert into t select i, hex(randomblob(40)) from n'")
    run("mkdir -p tree && cp -r /usr/include/linux /usr/include/c++ tree/ && cd tree && git init -q . && git add -A &&"
        " git -c user.name=x -c user.email=x@y commit -qm x")
    run("find tree -name '*.h' > cscope.files && cscope -b -q -k -i cscope.files")


PROGRAMS = {
    "grep": "grep -r zzz_nothing /usr/include; true",
    "gcc": "gcc -O1 -c main.c -o main.o && md5sum < main.o",
    "cscope": "for s in task_struct list_head u64 socket; do cscope -d -q -L0 $s | wc -l; done",
    "python": f"python3 -B -c '{PYTHON}; print(1)'",
    "sort": "sort -n lines | md5sum",
    "md5sum": "md5sum lines main.c",
    "git-grep": "cd tree && git grep --threads=4 -c zzz_nothing; git log --stat | tail -1",
    "sqlite3": "sqlite3 db 'pragma cache_size=-500; select count(*), sum(length(b)) from t; select max(b) from t'",
    "threads": "./threads lines",
    "tar": "tar cf - -C tree linux | md5sum",
    "sed": "sed s/text/word/ lines | md5sum",
    "java": "java -version 2>&1 | head -1",
    "node": "node -e 'const fs=require(\"fs\"); console.log(fs.readFileSync(\"lines\").length, fs.readdirSync(\"tree/linux\").length)'",
    "cp-cat": "cat lines lines | md5sum; cp lines copy; cmp lines copy",
    "perl": "perl -ne '$n++; END { print \"$n\\n\" }' lines",
    "awk": "awk '{ n += length($0) } END { print n }' lines",
}

CALL = re.compile(r"^(?:\d+\s+)?(\w+)\((\d+)<([^>]*)>.*\)\s+= (\d+)")
RESUMED = re.compile(r"^(\d+)\s+<\.\.\. (\w+) resumed>.*\)\s+= (\d+)")
UNFINISHED = re.compile(r"^(\d+)\s+(\w+)\(\d+<([^>]*)>.*<unfinished")


def traced(command):
    """Bytes that each regular file's reads moved, and those of the dynamic linker (ELF headers as it loads them)."""
    log = f"{WORK}/strace"
    subprocess.run(["strace", "-f", "-y", "-s0", "-o", log, "-e", "trace=" + ",".join(READS), "sh", "-c", command],
                   cwd=WORK, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    files, linker, open_calls = collections.Counter(), 0, {}
    for line in open(log, errors="replace"):
        if match := UNFINISHED.match(line):
            open_calls[match[1]] = (match[2], match[3])
            continue
        if match := RESUMED.match(line):
            name, path = open_calls.pop(match[1], (None, ""))
            result = match[3]
        elif match := CALL.match(line):
            name, path, result = match[1], match[3], match[4]
        else:
            continue
        if name not in READS or not path.startswith("/") or path.startswith(("/proc/", "/sys/", "/dev/", "/memfd:")):
            continue
        if int(result) in (832, 784, 68, 64) and re.search(r"\.so[.\d]*$|\.node$", path):
            linker += int(result)
            continue
        files[path] += int(result)
    return files, linker


def recorded(target, command):
    """What the recorder saw, as a counter by operation and path, and its own remarks."""
    out = f"{WORK}/recorded"
    subprocess.run([f"{target}/release/examples/recorded_bytes", f"{target}/release/libhither_preload.so", out,
                    "sh", "-c", command], cwd=WORK, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen, remark = collections.defaultdict(collections.Counter), ""
    for line in open(out):
        operation, size, calls, path = line.rstrip("\n").split("\t", 3)
        if operation == "#sites":
            remark = f"sites {size}, unsigned {calls}, {path}"
        else:
            seen[operation][path] += int(size)
    return seen, remark


def output(arguments):
    begin = time.monotonic()
    done = subprocess.run(arguments, cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return hashlib.md5(done.stdout).hexdigest(), done.returncode, time.monotonic() - begin


def main():
    target = os.path.abspath(sys.argv[1])
    prepare()
    print(f"{'program':10} {'strace':>12} {'recorded':>12} {'ratio':>9} {'linker':>8} {'kernel':>10} {'mapped':>12}  output")
    for name in sys.argv[2:] or PROGRAMS:
        command = PROGRAMS[name]
        files, linker = traced(command)
        seen, remark = recorded(target, command)
        reads = seen["read"]
        plain = output(["sh", "-c", command])
        under = output([f"{target}/release/examples/recorded_bytes", f"{target}/release/libhither_preload.so",
                        f"{WORK}/recorded", "sh", "-c", command])
        same = "same" if plain[:2] == under[:2] else "DIFFERS"
        ratio = sum(reads.values()) / max(1, sum(files.values()))
        print(f"{name:10} {sum(files.values()):12} {sum(reads.values()):12} {ratio:9.5f} {linker:8} "
              f"{sum(seen['read-in-kernel'].values()):10} {sum(seen['map'].values()):12}  {same}  {remark}", flush=True)
        missing = [(files[path] - reads[path], path) for path in files.keys() | reads.keys() if files[path] != reads[path]]
        for difference, path in sorted(missing, key=lambda pair: -abs(pair[0]))[:4]:
            print(f"    {difference:+} {path}")


if __name__ == "__main__":
    main()
