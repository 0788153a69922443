#!/usr/bin/env python3
"""Cost of a pread of cached bytes under hither run --page-cache: nanoseconds of CPU per call at
several sizes, beside the same program without hither. It is CPU time, since other load changes wall
time: with a load of 8 on 2 CPUs, ratios of 0.25 to 1.34 were seen.

Three modes take turns:

- plain: without hither;
- dry: with --dry-run, which records and simulates but drops nothing: the cost of interposition;
- page-cache: with --page-cache. The file fits the budget, so nothing is dropped either. The agent
  runs on another CPU, if one is free.

With --limited, this script has to run in a memory cgroup with a limit of 256 MiB or more, and the
budget is what that leaves. Programs then report only while they read from storage, and so none of
the reads that are timed. Without it, the budget is given, and all reads are reported.

    python3 hits.py --hither target/release/hither --work /tmp/page_cache --pairs 9
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
    parser.add_argument("--limited", action="store_true")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    program, data = work / "hits", work / "hits.data"
    subprocess.run(
        ["gcc", "-O1", "-x", "c", "-o", str(program), "-"], input=PROGRAM, text=True, check=True
    )
    data.write_bytes(os.urandom(64 << 20))
    page_cache = [
        str(arguments.hither.resolve()),
        "-q",
        "run",
        "--page-cache",
        "--cache",
        "1GiB",
        "--all-files",
        "--",
    ]
    dry = [*page_cache[:-1], "--dry-run", "--"]
    if arguments.limited:
        page_cache = [word for word in page_cache if word not in ("--cache", "1GiB")]
    modes = {
        "plain": [],
        "dry": dry,
        "page-cache": page_cache,
    }
    print(
        f"machine: {os.uname().release}, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; {arguments.pairs} rounds\n"
    )
    print(
        "| bytes | plain, ns | dry, ns | page-cache, ns | dry / plain | page-cache / plain: min, "
        "median, max |"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    for size, calls in ((512, 1_000_000), (4096, 500_000), (65536, 50_000)):
        runs: dict[str, list[float]] = {mode: [] for mode in modes}
        for number in range(arguments.pairs):
            names = list(modes)
            for mode in names[number % 3 :] + names[: number % 3]:
                command = [*modes[mode], str(program), str(data), str(size), str(calls)]
                runs[mode].append(
                    float(
                        subprocess.run(command, check=True, capture_output=True, text=True).stdout
                    )
                )
        plain_ns, dry_ns, page_cache_ns = (statistics.median(runs[mode]) for mode in modes)
        ratio = {
            mode: sorted(other / plain for other, plain in zip(runs[mode], runs["plain"]))
            for mode in modes
        }
        print(
            f"| {size} | {plain_ns:.0f} | {dry_ns:.0f} | {page_cache_ns:.0f} | "
            f"{statistics.median(ratio['dry']):.3f} |"
            f" {ratio['page-cache'][0]:.3f}, **{statistics.median(ratio['page-cache']):.3f}**, "
            f"{ratio['page-cache'][-1]:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
