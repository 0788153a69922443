#!/usr/bin/env python3
"""What `hither record` costs with the library, with the kernel's events, and with both.

Small programs run alone and in the three ways in turn, all cached. Reported are the medians over
the rounds: seconds alone, and per way the difference to the run alone of the same round, per call.
For preads and opens the time is the program's own; for a start it is that of the whole command,
hither's own start and end included.

Needs root and gcc. Prints Markdown; appends JSON lines to --raw.

    python3 beside_cost.py --hither target/release/hither --work /var/tmp/cost --rounds 5
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from pathlib import Path

PREADS, OPENS = 300_000, 20_000
SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    static char bytes[4096];
    struct timespec start, end;
    int preads = atoi(words[2]), opens = atoi(words[3]), file = open(words[1], O_RDONLY);
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int at = 0; at < preads; at++)
        if (pread(file, bytes, 4096, at % 1024 * 4096L) != 4096) return 1;
    for (int at = 0; at < opens; at++) {
        int other = open(words[1], O_RDONLY);
        if (read(other, bytes, 4096) != 4096) return 1;
        close(other);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.9f\n", end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
}
"""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--raw", type=Path)
    arguments = parser.parse_args()
    hither, work = arguments.hither.resolve(), arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    compiler = ["gcc", "-O2", "-x", "c", "-o", work / "calls", "-"]
    subprocess.run(compiler, input=SOURCE, text=True, check=True)
    data = work / "data"
    data.write_bytes(os.urandom(4 << 20))
    programs = {
        f"{PREADS:,} preads of 4 KiB": ([work / "calls", data, PREADS, 0], PREADS, True),
        f"{OPENS:,} times open, read, close": ([work / "calls", data, 0, OPENS], OPENS, True),
        "start of /bin/true": (["/bin/true"], 1, False),
    }
    ways = {"alone": []}
    for seen in ["library", "kernel", "both"]:
        record = [hither, "-q", "record", f"--seen-by={seen}", "--force", "-o", work / "t.hither"]
        ways[seen] = [*record, "--"]
    print("| | alone | library, more per call | kernel | both |\n|---|--:|--:|--:|--:|")
    for name, (command, calls, tells) in programs.items():
        took = {way: [] for way in ways}
        for number in range(arguments.rounds):
            for way in list(ways)[:: -1 if number % 2 else 1]:
                words = [str(word) for word in [*ways[way], *command]]
                start = time.monotonic()
                ran = subprocess.run(words, check=True, capture_output=True, text=True)
                took[way].append(float(ran.stdout) if tells else time.monotonic() - start)
        if arguments.raw:
            with open(arguments.raw, "a") as raw:
                load = os.getloadavg()[0]
                raw.write(json.dumps({"program": name, "load": load, "seconds": took}) + "\n")
        cells = [name, f"{statistics.median(took['alone']) / calls * 1e6:,.2f} us"]
        for way in list(ways)[1:]:
            more = [one - alone for one, alone in zip(took[way], took["alone"])]
            cells.append(f"{statistics.median(more) / calls * 1e6:+,.2f} us")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
