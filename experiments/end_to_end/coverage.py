#!/usr/bin/env python3
"""Checks that the recorder sees every byte and does not change the programs' results.

Runs each program three times: plain, under `hither record`, and under `strace -f -y`. Compares
the outputs byte for byte, and the bytes read from files that hither recorded with those that
strace saw, transfers inside the kernel (sendfile, copy_file_range, splice) included. Reads of the
dynamic loader (the first 832 bytes and the program headers of each library) happen inside ld.so,
where a preloaded library cannot see them; they are listed separately. So are mapped bytes, since no
system call shows them being read.

Needs: strace, cscope, sqlite3, git, gcc, ripgrep (Debian packages), a source tree.

    python3 coverage.py --hither target/release/hither --tree /usr/src/linux-source-6.1 --work \\
        /tmp/coverage
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

# A read call on a regular file in a log of strace -f -y: name, path, and bytes moved.
READ = re.compile(
    r"(?:^|\s)(read|pread64|readv|preadv|preadv2)\(\d+<(/[^>]*)>(?:\(deleted\))?, (.*) = (\d+)$"
)
# Transfers of a file's bytes inside the kernel: the file is the second descriptor of sendfile, and
# the first of the others.
TRANSFER = re.compile(
    r"(?:^|\s)(?:sendfile\(\d+<[^>]*>|copy_file_range\(|splice\()(?:, )?\d+<(/[^>]*)>"
    r".*\) = (\d+)$"
)
MAP = re.compile(r"(?:^|\s)mmap\([^,]+, (\d+), [^,]+, [^,]+, \d+<(/[^>]*)>")
NO_FILE = ("/dev/", "/proc/", "/sys/", "/memfd:")


def workloads(tree: Path, work: Path) -> dict[str, str]:
    """Shell commands by name. The output of each depends on what it read."""
    return {
        "grep -r": f"grep -rc EXPORT_SYMBOL {tree}/lib",
        "gcc -c": f"gcc -O1 -c {work}/hello.c -o {work}/hello.o && cksum < {work}/hello.o",
        "cscope": f"cd {tree} && cscope -d -f {work}/cscope.out -L0 vfs_read",
        "python": f"{sys.executable} -B -c 'import asyncio, ctypes, email.mime.text, "
        f"http.server, json, multiprocessing, sqlite3, unittest, xml.dom.minidom; "
        f'print(len(__import__("sys").modules))\'',
        "sort": f"sort {work}/lines",
        "md5sum": f"md5sum {work}/lines",
        "git grep": f"cd {work}/repository && git --no-pager grep -c printk",
        "sqlite3": f"sqlite3 {work}/table.db 'pragma cache_size=-2000; select count(*), "
        f'sum(length(b)), max(c) from t where b like "%77%"\'',
        "ripgrep (threads)": f"rg --no-config -j4 --no-mmap --sort path -c EXPORT_SYMBOL "
        f"{tree}/lib",
        "tar": f"tar cf - {tree}/lib 2>/dev/null | cksum",
        "java": "java -Xshare:off -version 2>&1",
        "node": "node -e 'console.log(Object.keys(require(\"module\").builtinModules).length)'",
        "perl": "perl -MCPAN -MPod::Man -e 'print join(qq(\\n), sort keys %INC)'",
    }


def prepare(tree: Path, work: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    (work / "hello.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <pthread.h>\n"
        "#include <sys/socket.h>\n"
        'int main(void) { printf("%zu\\n", strlen("hello")); return 0; }\n'
    )
    lines = work / "lines"
    if not lines.exists():
        with lines.open("wb") as out:
            for path in sorted((tree / "lib").rglob("*.c")):
                out.write(path.read_bytes())
    if not (work / "cscope.out").exists():
        sources = [
            str(path.relative_to(tree))
            for folder in ("fs", "mm", "kernel")
            for path in sorted((tree / folder).rglob("*.[ch]"))
        ]
        (work / "cscope.files").write_text("\n".join(sources) + "\n")
        subprocess.run(
            ["cscope", "-b", "-k", "-i", work / "cscope.files", "-f", work / "cscope.out"],
            cwd=tree,
            check=True,
            stderr=subprocess.DEVNULL,
        )
    if not (work / "repository").exists():
        shutil.copytree(tree / "lib", work / "repository", symlinks=True)
        identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
        subprocess.run(["git", "init", "-q"], cwd=work / "repository", check=True)
        subprocess.run(["git", "add", "-A"], cwd=work / "repository", check=True)
        subprocess.run(
            ["git", *identity, "commit", "-qm", "tree"], cwd=work / "repository", check=True
        )
    if not (work / "table.db").exists():
        subprocess.run(
            [
                "sqlite3",
                work / "table.db",
                "create table t(a integer primary key, b text, c real); with recursive n(i) "
                "as (select 1 union all select i+1 from n where i<400000) "
                "insert into t select i, 'row ' || i || ' ' || hex(i*7919), i*0.5 from n; "
                "create index tb on t(b);",
            ],
            check=True,
        )


def output_of(command: list[str] | str) -> tuple[str, int]:
    """Hash of stdout and the exit code."""
    done = subprocess.run(
        command,
        shell=isinstance(command, str),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        executable="/bin/sh" if isinstance(command, str) else None,
    )
    return hashlib.sha256(done.stdout).hexdigest(), done.returncode


@dataclass
class Traced:
    """Bytes of files in a log of strace."""

    # By programs, by calls and inside the kernel.
    read: int = 0
    # By the dynamic loader.
    loader: int = 0
    mapped: int = 0


def strace(log: Path) -> list[str]:
    """What comes before a command whose reads go to a log."""
    calls = "read,pread64,readv,preadv,preadv2,mmap,sendfile,copy_file_range,splice"
    return ["strace", "-f", "-y", "-s", "8", "-e", f"trace={calls}", "-o", str(log)]


def traced_bytes(log: Path) -> Traced:
    """Bytes that a log of `strace` has."""
    traced = Traced()
    pending: dict[str, str] = {}
    loading: dict[str, str] = {}
    for line in log.open(errors="replace"):
        pid, _, rest = line.rstrip("\n").partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            pending[pid] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)", rest):
            before, after = pending.pop(pid, ""), resumed[1].lstrip()
            rest = before + (" " if before.endswith(",") else "") + after
        rest = re.sub(r"\s+= ", " = ", rest)
        if found := READ.search(rest):
            name, path, arguments, count = found[1], found[2], found[3], int(found[4])
            if path.startswith(NO_FILE):
                continue
            # ld.so reads the first 832 bytes of a library, and then its program headers and notes
            # with pread64.
            elf_header = (
                name == "read"
                and arguments.startswith('"\\177ELF')
                and arguments.endswith(", 832)")
            )
            if elf_header:
                loading[pid] = path
            if elf_header or (name == "pread64" and loading.get(pid) == path and count <= 1024):
                traced.loader += count
            else:
                traced.read += count
        elif found := TRANSFER.search(rest):
            if not found[1].startswith(NO_FILE):
                traced.read += int(found[2])
        elif found := MAP.search(rest):
            if not found[2].startswith(NO_FILE):
                traced.mapped += int(found[1])
    return traced


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--tree", type=Path, required=True, help="a Linux source tree")
    parser.add_argument("--work", type=Path, required=True, help="folder for inputs and logs")
    parser.add_argument("--only", help="run only the workloads whose name contains this")
    arguments = parser.parse_args()
    tree, work, hither = (
        arguments.tree.resolve(),
        arguments.work.resolve(),
        arguments.hither.resolve(),
    )
    prepare(tree, work)
    os.environ.setdefault("LC_ALL", "C")
    print(
        "| program | bytes seen by strace | recorded | difference | loader | mapped | output "
        "equal |"
    )
    print("|---|--:|--:|--:|--:|--:|---|")
    failed = []
    for name, command in workloads(tree, work).items():
        if arguments.only and arguments.only not in name:
            continue
        if (
            shutil.which(name.split()[0].replace("ripgrep", "rg").replace("python", "python3"))
            is None
        ):
            print(f"| {name} | not installed | | | | | |")
            continue
        plain = output_of(command)
        trace = work / f"trace-{int(time.time() * 1000)}.hither"
        record = [str(hither), "--quiet", "record", "--seen-by=library", "-o", str(trace), "--"]
        recorded = output_of([*record, "/bin/sh", "-c", command])
        stat = json.loads(
            subprocess.run(
                [hither, "stat", "--json", trace], check=True, stdout=subprocess.PIPE
            ).stdout
        )
        shutil.rmtree(trace)
        log = work / "strace.log"
        subprocess.run(
            [*strace(log), "/bin/sh", "-c", command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        traced = traced_bytes(log)
        seen, ours = traced.read, stat["bytes"]["read"]
        difference = (ours - seen) / seen if seen else 0.0
        equal = plain == recorded
        if abs(difference) > 0.001 or not equal:
            failed.append(name)
        print(
            f"| {name} | {seen:,} | {ours:,} | {difference:+.4%} | {traced.loader:,} | "
            f"{traced.mapped:,} | {'yes' if equal else 'NO'} |",
            flush=True,
        )
    if failed:
        sys.exit(f"more than 0.1 % apart, or another output: {', '.join(failed)}")


if __name__ == "__main__":
    main()
