#!/usr/bin/env python3
"""hither mount beside rclone mount and mountpoint-s3: the same files, the same server, in turns.

    compare.py --hither PATH --work DIR [--rounds N] [--small] [--memory MIB] [--cache DIR]
               [--s3 VERSITYGW [--mountpoint MOUNT_S3]]

A WebDAV server (rclone serve webdav) serves a directory; with --s3, an S3 server (versitygw) does.
Each round mounts it with one program after the other, in another order than the round before, and
measures: a large file read cold, from the program's cache (the kernel's page cache is dropped
before), 4 KiB at random places past the page cache (fio), and many small files, cold and warm.
`source` is curl with one stream. CPU is the mounting process's own, user and system; the server's
and its requests are beside it. The server has its files in the page cache. In the first round,
all bytes are compared by checksum at the end.

Each program starts with an empty cache: hither's is memory, of MIB at most; those of the others are
files below --cache, which may be a tmpfs. MIB is mountpoint's --memory-target, too.

Needs root, rclone, fio, curl and fuse3. Prints one JSON line a measurement, then medians and what
hither's are to the best of the other programs'.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ADDRESS = "127.0.0.1:18321"
URL = f"http://{ADDRESS}"
S3_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true", "RCLONE_S3_PROVIDER": "Other",
    "RCLONE_S3_ENV_AUTH": "true", "RCLONE_S3_ENDPOINT": URL,
}


class WebDav:
    """rclone's WebDAV server, and how programs are told of it."""

    hither = ["-o", "allow_http=true", URL]
    rclone = ["--webdav-url", URL, ":webdav:"]
    curl = [f"{URL}/large"]

    def __init__(self, files, _):
        self.files = files
        self.process = quiet(["rclone", "serve", "webdav", "--addr", ADDRESS, str(files)])
        self.wait()

    def wait(self):
        for _ in range(200):
            if subprocess.run(["curl", "-s", URL], capture_output=True).returncode == 0:
                return
            time.sleep(0.05)
        sys.exit("the server does not start")

    def requests(self):
        """How many it has answered, if it says so."""
        return 0


class S3(WebDav):
    """versitygw with one bucket."""

    hither = ["-o", "allow_http=true", "-o", f"endpoint={URL}", "s3://bucket"]
    # Else rclone asks for the metadata of each object.
    rclone = ["--use-server-modtime", ":s3:bucket"]
    mountpoint = ["--endpoint-url", URL, "--force-path-style", "bucket"]
    curl = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "key:secret",
            "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", f"{URL}/bucket/large"]

    def __init__(self, files, versitygw):
        os.environ.update(S3_ENVIRONMENT)
        # With it, rclone ends at once.
        os.environ.pop("AWS_CA_BUNDLE", None)
        self.log = files.parent / "access.log"
        buckets = files.parent / "buckets"
        self.files = buckets / "bucket"
        self.files.mkdir(parents=True)
        self.process = quiet(
            [versitygw, "--port", ADDRESS, "--access", "key", "--secret", "secret", "--region",
             "us-east-1", "--access-log", str(self.log), "posix", str(buckets)])
        self.wait()
        subprocess.run(["rclone", "copy", str(files), ":s3:bucket"], check=True)

    def requests(self):
        return self.log.read_bytes().count(b"\n")


def main():
    arguments = parse()
    work = pathlib.Path(arguments.work).absolute()
    shutil.rmtree(work, ignore_errors=True)
    files = work / "files"
    make_files(files, arguments)
    server = (S3 if arguments.s3 else WebDav)(files, arguments.s3)
    programs = [hither, rclone] + ([mountpoint] if arguments.mountpoint else [])
    measured = []
    try:
        for number in range(arguments.rounds):
            for program in [None, *programs]:
                # The kernel was made to drop them.
                read_all(files_below(server.files))
                expected = files if number == 0 else None
                rows = measure(program, server, work, arguments, expected) if program \
                    else source(server)
                for row in rows:
                    row = {"round": number, "program": program.__name__ if program else "source",
                           "load": os.getloadavg()[0], **row}
                    measured.append(row)
                    print(json.dumps(row), flush=True)
            programs.append(programs.pop(0))
    finally:
        server.process.kill()
        server.process.wait()
    summarize(measured)
    shutil.rmtree(work)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    parser.add_argument("--memory", type=int, default=2048, help="in MiB")
    parser.add_argument("--cache", help="where the others' caches are [default: below --work]")
    parser.add_argument("--s3", metavar="VERSITYGW", help="the S3 server's command")
    parser.add_argument("--mountpoint", metavar="MOUNT_S3", help="mountpoint's command")
    arguments = parser.parse_args()
    if arguments.mountpoint and not arguments.s3:
        parser.error("--mountpoint needs --s3")
    return arguments


def make_files(files, arguments):
    scale = 10 if arguments.small else 1
    (files / "many").mkdir(parents=True)
    with open("/dev/urandom", "rb") as random:
        with open(files / "large", "wb") as large:
            for _ in range(1024 // scale):
                large.write(random.read(1 << 20))
        for number in range(2000 // scale):
            (files / "many" / f"{number:05}").write_bytes(random.read(1000 + number * 37 % 30000))
    os.sync()


def quiet(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def hither(server, arguments, cache):
    return [arguments.hither, "mount", "--memory", f"{arguments.memory}MiB", "--consistency",
            "immutable", *server.hither]


def rclone(server, arguments, cache):
    return ["rclone", "mount", "--read-only", "--vfs-cache-mode", "full", "--dir-cache-time", "1h",
            "--cache-dir", str(cache), *server.rclone]


def mountpoint(server, arguments, cache):
    return [arguments.mountpoint, "--foreground", "--read-only", "--cache", str(cache),
            "--metadata-ttl", "indefinite", "--memory-target", str(arguments.memory),
            *server.mountpoint]


def source(server):
    def curl():
        return int(subprocess.run(
            ["curl", "-sf", "-o", "/dev/null", "-w", "%{size_download}", *server.curl],
            check=True, capture_output=True).stdout)

    yield timed("sequential cold", None, server, curl)


def measure(program, server, work, arguments, expected):
    place = work / "mount"
    place.mkdir(exist_ok=True)
    cache = pathlib.Path(arguments.cache or work) / "compare-cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    process = quiet([*program(server, arguments, cache), str(place)])
    try:
        while not os.path.ismount(place):
            if process.poll() is not None:
                sys.exit(f"{program.__name__} does not mount")
            time.sleep(0.02)
        large, many = place / "large", place / "many"
        yield timed("sequential cold", process, server, lambda: read(large))
        drop_caches()
        yield timed("sequential, page cache dropped", process, server, lambda: read(large))
        drop_caches()
        yield fio(large, arguments)
        yield timed("small files cold", process, server, lambda: read_all(many.iterdir()))
        drop_caches()
        yield timed("small files, page cache dropped", process, server,
                    lambda: read_all(many.iterdir()))
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        cached = sum(path.stat().st_blocks for path in files_below(cache)) * 512
        yield {"what": "memory", "peak_mib": int(peak.split()[1]) / 1024,
               "cache_files_mib": cached / (1 << 20)}
        if expected:
            drop_caches()
            yield {"what": "wrong bytes", "files": compare(place, expected)}
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(place)], check=False)
        process.terminate()
        process.wait()
        shutil.rmtree(cache)


def compare(place, expected):
    """How many files of the mount are not as they should be."""
    return sum(checksum(place / path.relative_to(expected)) != checksum(path)
               for path in files_below(expected))


def files_below(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path):
    total = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            total += len(piece)
    return total


def read_all(paths):
    return sum(map(read, sorted(paths)))


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(what, process, server, action):
    def figures():
        return (time.monotonic(), cpu_seconds(process) if process else 0,
                cpu_seconds(server.process), server.requests())

    before = figures()
    gigabytes = action() / 1e9
    seconds, cpu, server_cpu, requests = (b - a for a, b in zip(before, figures()))
    return {"what": what, "mb_per_s": gigabytes * 1e3 / seconds, "cpu_s_per_gb": cpu / gigabytes,
            "server_cpu_s_per_gb": server_cpu / gigabytes, "requests": requests}


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
    """Medians, and the ratio of hither's to the best other program's."""
    programs = list(dict.fromkeys(row["program"] for row in measured))
    print(f"\n| | {' | '.join(programs)} | ratio |\n|---|{'--:|' * (len(programs) + 1)}")
    for what in dict.fromkeys(row["what"] for row in measured):
        rows = [row for row in measured if row["what"] == what]
        for figure in rows[-1]:
            if figure in ("round", "program", "load", "what"):
                continue
            medians = {}
            for program in programs:
                values = [row[figure] for row in rows if row["program"] == program]
                if values:
                    medians[program] = statistics.median(values)
            others = [value for program, value in medians.items()
                      if program not in ("hither", "source")]
            best = (max if figure == "mb_per_s" else min)(others)
            ratio = f"{medians['hither'] / best:.2f}" if best else ""
            cells = [f"{medians[program]:.2f}" if program in medians else ""
                     for program in programs]
            print(f"| {what}: {figure} | {' | '.join(cells)} | {ratio} |")


if __name__ == "__main__":
    main()
