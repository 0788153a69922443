#!/usr/bin/env python3
"""What a pread of cached bytes costs under hither run --page-cache, against alone: nanoseconds of
CPU a call at several sizes, in rounds. (Of wall time others would be a part: with a load of 8 on 2
CPUs ratios of 0.25 to 1.34 were seen.)

Three ways: alone; recorded with the agent's drops off (--dry-run), which is what interposition and
the model cost; steered. The file fits the budget, so nothing is dropped; the agent works on another
CPU, if there is one free.

    python3 hits.py --hither target/release/hither --work /tmp/steering --pairs 9
"""

import argparse
import os
import statistics
import subprocess
from pathlib import Path

PROGRAM = """
# include <fcntl.h>
# include <stdio.h>
# include <stdlib.h>
# include <time.h>
# include <unistd.h>
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
int main(int count, char **words) {
    size_t size = atol(words[2]), bytes = 64 << 20;
    long calls = atol(words[3]);
    char *buffer = malloc(size);
    int file = open(words[1], O_RDONLY);
    for (off_t offset = 0; offset < bytes; offset += size) pread(file, buffer, size, offset);
    double begin = now();
    for (long call = 0; call < calls; call++) pread(file, buffer, size, call * size % bytes);
    printf("%f\\n", (now() - begin) / calls);
    return 0;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=9)
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    program, data = work / "hits", work / "hits.data"
    subprocess.run(
        ["gcc", "-O1", "-x", "c", "-o", str(program), "-"], input=PROGRAM, text=True, check=True
    )
    data.write_bytes(os.urandom(64 << 20))
    steered = [
        str(arguments.hither.resolve()),
        "-q",
        "run",
        "--page-cache",
        "--cache",
        "1GiB",
        "--all-files",
        "--",
    ]
    ways = {"alone": [], "dry": [*steered[:-1], "--dry-run", "--"], "steered": steered}
    print(
        f"machine: {os.uname().release}, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; {arguments.pairs} rounds\n"
    )
    print(
        "| bytes | alone, ns | dry, ns | steered, ns | dry / alone | steered / alone: min, "
        "median, max |"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    for size, calls in ((512, 1_000_000), (4096, 500_000), (65536, 50_000)):
        runs: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(arguments.pairs):
            names = list(ways)
            for way in names[number % 3 :] + names[: number % 3]:
                command = [*ways[way], str(program), str(data), str(size), str(calls)]
                runs[way].append(
                    float(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    )
                )
        alone, dry, steered_ns = (statistics.median(runs[way]) for way in ways)
        ratio = {
            way: sorted(other / plain for other, plain in zip(runs[way], runs["alone"]))
            for way in ways
        }
        print(
            f"| {size} | {alone:.0f} | {dry:.0f} | {steered_ns:.0f} | "
            f"{statistics.median(ratio['dry']):.3f} |"
            f" {ratio['steered'][0]:.3f}, **{statistics.median(ratio['steered']):.3f}**, "
            f"{ratio['steered'][-1]:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
