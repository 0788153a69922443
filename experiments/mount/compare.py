#!/usr/bin/env python3
"""hither mount beside rclone mount: the same files, the same server, in turns.

    compare.py --hither PATH --work DIR [--rounds N] [--small]

A WebDAV server (rclone serve webdav) serves a directory. Each round mounts it with one program and
then with the other, and measures: a large file read cold, from the program's memory (the kernel's
page cache is dropped before), 4 KiB at random places past the page cache (fio), and many small
files, cold and warm. CPU is the mounting process's own, user and system. Needs root, rclone, fio
and fuse3. Prints one JSON line a measurement, then medians and their ratios.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request

PORT = 18321
URL = f"http://127.0.0.1:{PORT}"


def main():
    arguments = parse()
    work = pathlib.Path(arguments.work)
    shutil.rmtree(work, ignore_errors=True)
    files = work / "files"
    make_files(files, arguments)
    server = subprocess.Popen(
        ["rclone", "serve", "webdav", "--addr", f"127.0.0.1:{PORT}", str(files)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    measured = []
    try:
        wait_for_server()
        for number in range(arguments.rounds):
            programs = [hither, rclone] if number % 2 == 0 else [rclone, hither]
            for program in programs:
                for row in measure(program, work, arguments):
                    row = {"round": number, "program": program.__name__, **row}
                    measured.append(row)
                    print(json.dumps(row), flush=True)
    finally:
        server.kill()
        server.wait()
    summarize(measured)
    shutil.rmtree(work)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    return parser.parse_args()


def make_files(files, arguments):
    scale = 10 if arguments.small else 1
    (files / "many").mkdir(parents=True)
    with open("/dev/urandom", "rb") as random:
        with open(files / "large", "wb") as large:
            for _ in range(1024 // scale):
                large.write(random.read(1 << 20))
        for number in range(2000 // scale):
            (files / "many" / f"{number:05}").write_bytes(random.read(1000 + number * 37 % 30000))


def wait_for_server():
    for _ in range(200):
        try:
            urllib.request.urlopen(URL, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the server does not start")


def hither(arguments, work, place):
    return [arguments.hither, "mount", "--memory", "2GiB", "--consistency", "immutable",
            "-o", "allow_http=true", URL, str(place)]


def rclone(arguments, work, place):
    cache = work / "rclone-cache"
    shutil.rmtree(cache, ignore_errors=True)
    return ["rclone", "mount", "--read-only", "--vfs-cache-mode", "full", "--dir-cache-time", "1h",
            "--cache-dir", str(cache), "--webdav-url", URL, ":webdav:", str(place)]


def measure(program, work, arguments):
    place = work / "mount"
    place.mkdir(exist_ok=True)
    command = program(arguments, work, place)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(place):
            if process.poll() is not None:
                sys.exit(f"{program.__name__} does not mount")
            time.sleep(0.02)
        large, many = place / "large", place / "many"
        yield timed("sequential cold", process, lambda: read(large))
        drop_caches()
        yield timed("sequential, page cache dropped", process, lambda: read(large))
        drop_caches()
        yield fio(large, arguments)
        yield timed("small files cold", process, lambda: sum(map(read, sorted(many.iterdir()))))
        drop_caches()
        yield timed("small files, page cache dropped", process,
                    lambda: sum(map(read, sorted(many.iterdir()))))
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        yield {"what": "memory", "peak_mib": int(peak.split()[1]) / 1024}
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)
        process.terminate()
        process.wait()


def read(path):
    total = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            total += len(piece)
    return total


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(what, process, action):
    cpu, start = cpu_seconds(process), time.monotonic()
    total = action()
    seconds, cpu = time.monotonic() - start, cpu_seconds(process) - cpu
    gigabytes = total / 1e9
    return {"what": what, "mb_per_s": total / 1e6 / seconds, "cpu_s_per_gb": cpu / gigabytes}


def fio(path, arguments):
    output = subprocess.run(
        ["fio", "--name=random", f"--filename={path}", "--readonly", "--rw=randread", "--bs=4k",
         "--direct=1", "--ioengine=psync", "--time_based", "--output-format=json",
         f"--runtime={2 if arguments.small else 5}"],
        check=True, capture_output=True, text=True)
    latency = json.loads(output.stdout)["jobs"][0]["read"]["clat_ns"]["percentile"]
    return {"what": "4 KiB random", "p50_us": latency["50.000000"] / 1e3,
            "p99_us": latency["99.000000"] / 1e3}


def drop_caches():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")


def summarize(measured):
    print()
    for what in dict.fromkeys(row["what"] for row in measured):
        for figure in next(row for row in measured if row["what"] == what):
            if figure in ("round", "program", "what"):
                continue
            medians = {
                program: statistics.median(
                    row[figure] for row in measured
                    if row["what"] == what and row["program"] == program)
                for program in ("hither", "rclone")
            }
            ratio = medians["hither"] / medians["rclone"] if medians["rclone"] else float("nan")
            print(f"{what:32} {figure:14} hither {medians['hither']:9.2f}   "
                  f"rclone {medians['rclone']:9.2f}   ratio {ratio:6.2f}")


if __name__ == "__main__":
    main()
