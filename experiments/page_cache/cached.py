#!/usr/bin/env python3
"""What hither costs a program that finds all of its files cached, so that nothing is to be gained.

CPU time of plain, the agent's and the command's own start and end included, in pairs that take
turns. Prints Markdown; appends all pairs as JSON lines to --raw. Needs gcc and rg.

    python3 cached.py --hither target/release/hither --work /tmp/cached --pairs 9 --raw runs.jsonl
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
from pathlib import Path

OPENS = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    char bytes[4096], path[64];
    for (int round = 0; round < 20; round++)
        for (int number = 0; number < 2000; number++) {
            sprintf(path, "small/%d", number);
            int file = open(path, O_RDONLY);
            if (read(file, bytes, sizeof bytes) < 0) return 1;
            close(file);
        }
}
"""

READS = """
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    static char bytes[4096];
    unsigned long state = 1;
    int file = open("large", O_RDONLY);
    for (int read = 0; read < 400000; read++) {
        state = state * 6364136223846793005ul + 1;
        if (pread(file, bytes, sizeof bytes, (state >> 33) % 8192 * 4096) != 4096) return 1;
    }
}
"""

TREE_FILES, TREE_BYTES = 14_000, 12_000

MODES = {
    "`record`": ["record", "--seen-by=library", "--force", "-q", "-o", "trace.hither"],
    "`--cache 64MiB`": ["run", "-q", "--page-cache", "--cache", "64MiB"],
    "`--no-cache`": ["run", "-q", "--no-cache"],
    "automatic": ["run", "-q"],
}


def make(work):
    """Makes the files and programs. Returns the commands, by what they do."""
    (work / "small").mkdir(parents=True)
    for number in range(2000):
        (work / "small" / str(number)).write_bytes(os.urandom(3000))
    (work / "large").write_bytes(os.urandom(8192 * 4096))
    for number in range(TREE_FILES):
        folder = work / "tree" / str(number // 200)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_text("straw\n" * (TREE_BYTES // 6))
    for name, source in {"opens": OPENS, "reads": READS}.items():
        compiler = ["gcc", "-O2", "-x", "c", "-o", name, "-"]
        subprocess.run(compiler, input=source, text=True, cwd=work, check=True)
    starts = "for i in $(seq 200); do /bin/true; done"
    return {
        "open, read, close of 2,000 files of 3 KB, 20 times": ["./opens"],
        "400,000 preads of 4 KiB, 32 MiB at random": ["./reads"],
        "200 starts of `/bin/true` by a shell": ["sh", "-c", starts],
        f"`rg -j2` over {TREE_FILES:,} files of 12 KB": ["rg", "-j2", "needle", "tree"],
    }


def cpu(work, command):
    """CPU seconds of a command with its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=work, stdout=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    hither, work = arguments.hither.resolve(), arguments.work.resolve()
    commands = make(work)
    print("| program |", " | ".join(MODES), "|")
    print("|---|" + "--:|" * len(MODES))
    for name, command in commands.items():
        cpu(work, command)
        cells = []
        for mode, words in MODES.items():
            pairs = []
            for _ in range(arguments.pairs):
                plain = cpu(work, command)
                pairs.append((plain, cpu(work, [hither, *words, "--", *command])))
            ratios = sorted(ours / plain for plain, ours in pairs)
            middle = statistics.median(ratios)
            cells.append(f"{middle:.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
            if arguments.raw:
                row = {"program": name, "mode": mode, "plain and hither, CPU seconds": pairs}
                with arguments.raw.open("a") as raw:
                    raw.write(json.dumps(row) + "\n")
        print(f"| {name} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
