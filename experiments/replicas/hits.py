#!/usr/bin/env python3
"""Cost of reading cached bytes from a replica, against the program alone: nanoseconds of CPU per
call at several sizes, in pairs. It is CPU time, since other load changes wall time.

Calls: `pread` over a file of 1 MiB, which stays in the processor's cache, and of 64 MiB, which
does not; `read`, whose offset the kernel keeps; and `sendfile` to a socket, with the `recv` that
takes the bytes from it. Reads of less than 64 KiB are never served. On one node the whole page
cache counts as remote (--replicate all). The agent runs on another CPU, if one is free.

    python3 hits.py --hither target/release/hither --work /tmp/replicas --pairs 9
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
# include <string.h>
# include <sys/sendfile.h>
# include <sys/socket.h>
# include <time.h>
# include <unistd.h>
static char buffer[1 << 20];
static int ends[2];
static ssize_t send_and_receive(int file, off_t offset, size_t size) {
    for (size_t done = 0; done < size;) {
        ssize_t sent = sendfile(ends[0], file, &offset, size - done);
        if (sent <= 0 || recv(ends[1], buffer, sent, MSG_WAITALL) != sent) exit(1);
        done += sent;
    }
    return size;
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}
int main(int count, char **words) {
    size_t size = atol(words[3]), bytes = atol(words[2]);
    long calls = atol(words[4]);
    int positioned = strcmp(words[5], "read") != 0, sends = strcmp(words[5], "sendfile") == 0;
    int file = open(words[1], O_RDONLY);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
    for (int round = 0; round < 4; round++) {
        for (size_t offset = 0; offset < bytes; offset += 131072) {
            if (sends) send_and_receive(file, offset, 131072);
            else for (int half = 0; half < 2; half++)
                pread(file, buffer, 65536, offset + half * 65536);
        }
        usleep(250000);
    }
    double begin = now();
    if (sends) {
        for (long call = 0; call < calls; call++) send_and_receive(file, call * size % bytes, size);
    } else if (positioned) {
        for (long call = 0; call < calls; call++) pread(file, buffer, size, call * size % bytes);
    } else {
        long each = bytes / size;
        for (long call = 0; call < calls; call++) {
            if (call % each == 0) lseek(file, 0, SEEK_SET);
            if (read(file, buffer, size) != (long)size) return 1;
        }
    }
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
    replicas = [
        str(arguments.hither.resolve()),
        "-q",
        "run",
        "--replicas",
        "--replicate",
        "all",
        "--",
    ]
    print(
        f"machine: {os.uname().release}, {os.cpu_count()} CPUs, load "
        f"{os.getloadavg()[0]:.1f}; {arguments.pairs} pairs\n"
    )
    print(
        "| call | over | bytes | alone, ns | replicas, ns | alone / replicas: min, median, "
        "max | all pairs, ns |"
    )
    print("|---|--:|--:|--:|--:|--:|---|")
    reads = ((65536, 50_000), (262144, 20_000), (1048576, 5_000))
    sends = ((65536, 50_000), (131072, 25_000))
    for call, over, sizes in (
        ("pread", 1 << 20, reads),
        ("pread", 64 << 20, reads),
        ("read", 1 << 20, reads),
        ("sendfile", 1 << 20, sends),
        ("sendfile", 64 << 20, sends),
    ):
        for size, calls in sizes:
            pairs = []
            for _ in range(arguments.pairs):
                pair = []
                for way in ([], replicas):
                    command = [
                        *way,
                        str(program),
                        str(data),
                        str(over),
                        str(size),
                        str(calls),
                        call,
                    ]
                    pair.append(
                        float(
                            subprocess.run(
                                command, capture_output=True, text=True, check=True
                            ).stdout
                        )
                    )
                pairs.append(pair)
            alone, served = (statistics.median(each) for each in zip(*pairs))
            ratios = sorted(alone / served for alone, served in pairs)
            raw = " ".join(f"{alone:.0f}/{served:.0f}" for alone, served in pairs)
            print(
                f"| {call} | {over >> 20} MiB | {size} | {alone:.0f} | {served:.0f} | "
                f"{ratios[0]:.2f}, {statistics.median(ratios):.2f}, {ratios[-1]:.2f} | {raw} |",
                flush=True,
            )


main()
