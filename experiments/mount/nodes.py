#!/usr/bin/env python3
"""Several nodes of a cluster cache: what a block costs that another node has, and how often the
source is asked.

    nodes.py --hither PATH --measure PATH --versitygw PATH --work DIR [--only NAME,NAME]
             [--rounds N] [--reads N] [--build TEXT]

The source is versitygw, an S3 server, beside a bridge that joins network namespaces. `measure` is
the example of hither-client: it reads by the client library, so that no part of FUSE is measured,
and compares all bytes. In each round of a case, all of its subjects have their turn.

  hits        4 KiB at random that only the other one of two nodes has, in blocks of 4 KiB: mutual
              TLS and `tls = "off"` on the loopback of one namespace (TLS cannot be off elsewhere),
              mutual TLS from one namespace to another; the last also in blocks of 128 KiB. Beside
              them bare TCP, 64 bytes there and 4 KiB back, on both ways; and hits in the node's own
              memory, which is what the client library costs
  nodes       4 KiB that one of the others has in clusters of 2, 3, 5 and 9 nodes with mutual TLS, a
              namespace each
  large       1 MiB at random that only the other node has, 1 to 8 reads in flight, in blocks of
              128 KiB, and the processor time of both nodes; 1 MiB by bare TCP
  readers     a new file, which 100 threads read whole on the mounts of 2, 3, 5 and 9 nodes: how
              often the S3 server is asked for each block
  full        the same with less memory, 64 MiB a node: full from the second or third file on

Appends each measurement to results/nodes.csv beside this script, and prints medians. A run fails on
a wrong byte, and if more than a hundredth of the hits did not come from peers. `taskset -c 0
nodes.py ...` keeps all processes on one processor, so that a wake-up costs the same each time.
Needs root, iproute2, curl, rclone and fuse3.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

from faults import quiet, run, wait_for

BRIDGE = "hithernodes"
NETWORK = "10.98.0"
SOURCE = f"{NETWORK}.254:18531"
DOOR = f"{NETWORK}.254:18532"
SPACES = 9
COUNTS = [2, 3, 5, 9]
READERS = 100
MIB = 1 << 20
BLOCK = 128 << 10
# Blocks that were read from the source since another node did not answer in time, answers that came
# late, and blocks that were evicted where they were asked for.
EVENTS = {"late_blocks": ["answer_timeout_blocks", "delivery_timeout_blocks", "patience_blocks",
                          "grant_timeout_blocks"],
          "late_answers": ["late_answers"], "gone_blocks": ["gone_blocks"]}
RESULTS = pathlib.Path(__file__).parent / "results" / "nodes.csv"
FIELDS = ["time", "build", "cpus", "load", "case", "round", "subject", "nodes", "in_flight",
          "read_bytes", "reads", "seconds", "p50_us", "p99_us", "cpu_s", "peer_bytes", "gets",
          "get_bytes", "file_bytes", "gets_a_block_min", "gets_a_block_max", "late_blocks",
          "late_answers", "gone_blocks"]
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": f"http://{SOURCE}", "AWS_ALLOW_HTTP": "true",
        "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENV_AUTH": "true",
        "RCLONE_S3_ENDPOINT": f"http://{SOURCE}"}


def main():
    arguments = parse()
    names = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := set(names) - set(CASES):
        sys.exit(f"unknown cases: {', '.join(sorted(unknown))}")
    # So that Ctrl-C and SIGTERM both end by way of `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # With it, rclone ends at once.
    os.environ.pop("AWS_CA_BUNDLE", None)
    os.environ.update(KEYS)
    lab = Lab(arguments)
    try:
        lab.start()
        for name in names:
            rows = list(CASES[name](lab))
            SUMMARIES[name](rows)
            lab.end_case()
    finally:
        lab.end()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--measure", required=True, help="the example of hither-client")
    parser.add_argument("--versitygw", required=True, help="the S3 server")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--only", help="these cases alone, separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--reads", type=int, default=20000, help="reads of 4 KiB a round")
    parser.add_argument("--build", default="", help="noted beside the results")
    arguments = parser.parse_args()
    for program in ("hither", "measure", "versitygw"):
        setattr(arguments, program, os.path.abspath(getattr(arguments, program)))
    return arguments


class Lab:
    """The network, the source, and what was measured."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.work = pathlib.Path(arguments.work).absolute()
        self.log = self.work / "access.log"
        self.source = None
        self.servers = []
        self.clusters = []
        self.files = 0

    def start(self):
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "buckets").mkdir(parents=True)
        os.environ["HITHER_RUNTIME_DIR"] = str(self.work / "run")
        self.remove_network()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for space in range(SPACES):
            name, outer, inner = f"{BRIDGE}{space}", f"hn{space}", f"hn{space}i"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            run("ip", "link", "set", inner, "netns", name)
            run("ip", "link", "set", outer, "master", BRIDGE, "up")
            run("ip", "-n", name, "addr", "add", f"{address(space)}/24", "dev", inner)
            run("ip", "-n", name, "link", "set", inner, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")
        run(self.arguments.hither, "cluster", "ca", "nodes", "--out", str(self.work / "ca"))
        self.source = quiet(
            [self.arguments.versitygw, "--port", SOURCE, "--access", "key", "--secret", "secret",
             "--region", "us-east-1", "--access-log", str(self.log), "posix",
             str(self.work / "buckets")])
        command = ["rclone", "mkdir", ":s3:bucket"]
        wait_for("the S3 server", lambda: subprocess.run(command, capture_output=True,
                                                         check=False).returncode == 0)

    def remove_network(self):
        for space in range(SPACES):
            # The namespace takes its end of the link along, but later.
            run("ip", "link", "del", f"hn{space}", check=False)
            run("ip", "netns", "del", f"{BRIDGE}{space}", check=False)
        run("ip", "link", "del", BRIDGE, check=False)

    def make_file(self, size):
        """Puts a new file into the bucket. Returns its seed; its name is `f` and the seed."""
        self.files += 1
        path = self.work / "file"
        run(self.arguments.measure, "make", str(self.files), str(size), str(path))
        run("rclone", "copyto", str(path), f":s3:bucket/f{self.files}")
        path.unlink()
        return self.files

    def measure(self, *command, space=None):
        """Runs `measure`. Returns what it has printed."""
        command = [self.arguments.measure, *map(str, command)]
        if space is not None:
            command = in_space(space, command)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command[:4])}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def note(self, **row):
        row = {"time": datetime.datetime.now().strftime("%F %T"), "build": self.arguments.build,
               "cpus": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1), **row}
        is_new = not RESULTS.exists()
        RESULTS.parent.mkdir(exist_ok=True)
        with open(RESULTS, "a", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        return row

    def start_tcp(self, space, where):
        """A server of bare TCP."""
        self.servers.append(quiet(in_space(space, [self.arguments.measure, "serve", where])))
        host, port = where.split(":")
        query = ["ss", "-Hltn", "src", host, "sport", f"= :{port}"]
        wait_for("the server of bare TCP",
                 lambda: subprocess.run(in_space(space, query), capture_output=True,
                                        check=True).stdout)
        return self.servers[-1]

    def end_case(self):
        for cluster in self.clusters:
            cluster.end()
        self.clusters.clear()
        for process in self.servers:
            process.kill()
            process.wait()
        self.servers.clear()

    def end(self):
        self.end_case()
        if self.source:
            self.source.kill()
            self.source.wait()
        self.remove_network()
        shutil.rmtree(self.work, ignore_errors=True)


def address(space):
    return f"{NETWORK}.{space + 1}"


def in_space(space, command):
    return ["nsenter", f"--net=/run/netns/{BRIDGE}{space}", *command]


class Door:
    """Passes connections on to the S3 server, and notes the ranges that GETs of objects ask for:
    the server's log does not have them."""

    def __init__(self):
        self.ranges = []
        host, port = DOOR.split(":")
        self.listener = socket.create_server((host, int(port)), backlog=1000)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            host, port = SOURCE.split(":")
            server = socket.create_connection((host, int(port)))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pass_on, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(server, client, False), daemon=True).start()

    def close(self):
        # Ends a wait in accept(2) too.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def pass_on(self, one, other, are_requests):
        """Requests have no bodies: nodes only read here."""
        head = b""
        try:
            while data := one.recv(1 << 18):
                if are_requests:
                    *heads, head = (head + data).split(b"\r\n\r\n")
                    for it in heads:
                        self.note(it)
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            one.close()
            other.close()

    def note(self, head):
        if head.startswith(b"GET /bucket/f"):
            found = re.search(rb"(?i)\r\nrange: bytes=(\d+)-(\d+)", head)
            self.ranges.append(tuple(map(int, found.groups())))


class Cluster:
    """Nodes, one for each place: the number of a namespace, and where it listens there."""

    def __init__(self, lab, name, places, tls=True, source=SOURCE, mounted=False, **cache):
        self.lab, self.name, self.nodes, self.mounts = lab, name, [], []
        lab.clusters.append(self)
        folder = lab.work / name
        folder.mkdir()
        members = "\n".join(f'm{at} = "{where}"' for at, (_, where) in enumerate(places))
        cache = "\n".join(f'{key} = "{value}"' for key, value in cache.items())
        for at, (space, where) in enumerate(places):
            security = '"off"'
            if tls:
                run(lab.arguments.hither, "cluster", "issue", f"m{at}", "--ca",
                    str(lab.work / "ca"), "--out", str(folder))
                security = (f'{{ authority = "../ca/ca.pem", certificate = "m{at}.pem", '
                            f'key = "m{at}.key" }}')
            mount = ""
            if mounted:
                place = folder / f"mount{at}"
                place.mkdir()
                self.mounts.append(place)
                mount = f'directory = "mount{at}"\nconsistency = "ttl=0.01"\ndirect-io = true\n'
            (folder / f"m{at}.toml").write_text(f"""
name = "m{at}"
cluster = "nodes"
listen = "{where}"
tls = {security}
{cache}
[members]
{members}
[[volume]]
name = "v"
source = "s3://bucket"
{'' if mounted else 'prefetch = "0"'}
{mount}
""")
            command = [lab.arguments.hither, "node", str(folder / f"m{at}.toml")]
            with open(folder / f"m{at}.log", "ab") as log:
                self.nodes.append(subprocess.Popen(
                    in_space(space, command), stdout=subprocess.DEVNULL, stderr=log,
                    env={**os.environ, "AWS_ENDPOINT": f"http://{source}"}))
        wait_for(f"the cluster {name}", self.is_whole)
        wait_for(f"the mounts of {name}", lambda: all(map(os.path.ismount, self.mounts)))

    def socket(self, at):
        return f"{os.environ['HITHER_RUNTIME_DIR']}/{self.nodes[at].pid}.sock"

    def status(self, at):
        done = subprocess.run([self.lab.arguments.hither, "cluster", "status", "--json",
                               self.socket(at)], capture_output=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def is_whole(self):
        if any(node.poll() is not None for node in self.nodes):
            raise RuntimeError(f"a node of {self.name} has ended: see its log in {self.lab.work}")
        lists = [self.status(at).get("members", []) for at in range(len(self.nodes))]
        return all(len(members) == len(self.nodes)
                   and all(it["this_node"] or it["connected"] for it in members)
                   for members in lists)

    def load(self, at, size, read=MIB):
        """A new file that node `at` has read, and holds."""
        seed = self.lab.make_file(size)
        self.lab.measure("sequence", self.socket(at), "v", read, f"{seed}:f{seed}")
        return f"{seed}:f{seed}"

    def figures(self, at):
        status = subprocess.run(["curl", "-s", "--unix-socket", self.socket(at),
                                 "http://node/status"], capture_output=True, check=True)
        return json.loads(status.stdout)

    def from_peers(self, at):
        return self.figures(at)["volumes"][0]["served"]["peer"]

    def events(self, *names):
        """The sum of what all nodes have counted under these names."""
        counted = [self.figures(at)["machine"] for at in range(len(self.nodes))]
        return sum(it[name] for it in counted for name in names)

    def cpu_s(self):
        return sum(map(cpu_s, self.nodes))

    def read(self, at, files, read, count, threads=1):
        return self.lab.measure("hits", self.socket(at), "v", read, count, threads, *files)

    def hits(self, files, read, count, threads=1, at=0):
        """Reads of node `at` that another one has. CPU is that of all nodes."""
        before, cpu = self.from_peers(at), self.cpu_s()
        row = self.read(at, files, read, count, threads)
        row["cpu_s"] = self.cpu_s() - cpu
        row["peer_bytes"] = self.from_peers(at) - before
        # On a busy machine a node may be late, and the source be asked.
        if row["peer_bytes"] < 0.99 * row["bytes"]:
            raise RuntimeError(f"{row['peer_bytes']} of {row['bytes']} bytes came from peers")
        return row

    def end(self):
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            try:
                node.wait(20)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        for place in self.mounts:
            run("umount", "-l", str(place), check=False)


def cpu_s(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_turns(lab, subjects):
    """Each subject once a round, another one first in each. Yields round, name and what it
    returns."""
    subjects = list(subjects.items())
    for number in range(lab.arguments.rounds):
        first = number % len(subjects)
        for name, subject in subjects[first:] + subjects[:first]:
            yield number, name, subject()


def pairs(lab, **cache):
    """Two nodes without TLS and two with it on one loopback, two with it in two namespaces, and a
    server of bare TCP on each way."""
    def places(first):
        return [(0, f"127.0.0.1:{first + at}") for at in range(2)]

    clusters = {
        "off, loopback": Cluster(lab, "off", places(7321), tls=False, **cache),
        "TLS, loopback": Cluster(lab, "tls", places(7311), **cache),
        "TLS, veth": Cluster(lab, "veth", spaces(2, 7300), **cache),
    }
    servers = {"bare TCP, loopback": (0, "127.0.0.1:7399"),
               "bare TCP, veth": (1, f"{address(1)}:7399")}
    return clusters, {name: (lab.start_tcp(*place), place[1]) for name, place in servers.items()}


def spaces(count, port):
    """A place in each of so many namespaces."""
    return [(space, f"{address(space)}:{port}") for space in range(count)]


def bare_tcp(lab, server, read, count, threads=1):
    process, where = server
    before = cpu_s(process) + children_cpu_s()
    row = lab.measure("tcp", where, read, count, threads, space=0)
    row["cpu_s"] = cpu_s(process) + children_cpu_s() - before
    return row


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hits(lab):
    reads = lab.arguments.reads
    clusters, servers = pairs(lab, block="4KiB", memory="128MiB")
    clusters["TLS, veth, 128 KiB"] = Cluster(lab, "large", spaces(2, 7301), memory="128MiB")
    subjects = {}
    for name, cluster in clusters.items():
        file = cluster.load(1, 16 * MIB)
        subjects[name] = lambda it=cluster, file=file: it.hits([file], 4096, reads)
    own = clusters["TLS, loopback"]
    file = own.load(1, 16 * MIB)
    subjects["own memory"] = lambda: own.read(1, [file], 4096, reads)
    for name, server in servers.items():
        subjects[name] = lambda it=server: bare_tcp(lab, it, 4096, reads)
    for number, name, row in in_turns(lab, subjects):
        yield lab.note(case="hits", round=number, subject=name, nodes=2, in_flight=1,
                       read_bytes=4096, **kept(row))


def nodes(lab):
    reads = lab.arguments.reads // 2
    subjects = {}
    for count in COUNTS:
        cluster = Cluster(lab, f"of{count}", spaces(count, 7400 + count), block="4KiB",
                          memory="64MiB")
        files = [cluster.load(at, 8 * MIB) for at in range(1, count)]
        subjects[count] = lambda it=cluster, files=files: it.hits(files, 4096, reads)
    for number, count, row in in_turns(lab, subjects):
        yield lab.note(case="nodes", round=number, subject="TLS, veth", nodes=count, in_flight=1,
                       read_bytes=4096, **kept(row))


def large(lab):
    clusters, servers = pairs(lab, block="128KiB", memory="512MiB")
    subjects = {}
    for threads in (1, 2, 4, 8):
        for name, server in servers.items():
            subjects[name, threads] = \
                lambda it=server, threads=threads: bare_tcp(lab, it, MIB, 2048, threads)
    for name, cluster in clusters.items():
        file = cluster.load(1, 128 * MIB)
        for threads in (1, 2, 4, 8):
            subjects[name, threads] = \
                lambda it=cluster, file=file, threads=threads: it.hits([file], MIB, 2048, threads)
    for number, (name, threads), row in in_turns(lab, subjects):
        yield lab.note(case="large", round=number, subject=name, nodes=2, in_flight=threads,
                       read_bytes=MIB, **kept(row))


def readers(lab, case="readers", memory="512MiB"):
    size = 32 * MIB
    door = Door()
    clusters = {count: Cluster(lab, f"{case}{count}", spaces(count, 7500 + count), source=DOOR,
                               mounted=True, memory=memory)
                for count in COUNTS}

    def read(cluster):
        seed = lab.make_file(size)
        name = f"f{seed}"
        wait_for("the new file", lambda: all((it / name).exists() for it in cluster.mounts))
        paths = [cluster.mounts[at % len(cluster.mounts)] / name for at in range(READERS)]
        door.ranges.clear()
        events = {name: cluster.events(*them) for name, them in EVENTS.items()}
        before = lab.log.read_text().count(f" s3_GetObject {name} ")
        row = lab.measure("files", seed, *paths)
        ranges = list(door.ranges)
        counted = lab.log.read_text().count(f" s3_GetObject {name} ") - before
        if counted != len(ranges):
            raise RuntimeError(f"the server counts {counted} GETs, the door {len(ranges)}")
        times = [0] * (size // BLOCK)
        for first, last in ranges:
            for block in range(first // BLOCK, last // BLOCK + 1):
                times[block] += 1
        return row | {"gets": len(ranges), "get_bytes": sum(b - a + 1 for a, b in ranges),
                      "file_bytes": size, "gets_a_block_min": min(times),
                      "gets_a_block_max": max(times),
                      **{name: cluster.events(*them) - events[name]
                         for name, them in EVENTS.items()}}

    subjects = {count: lambda it=cluster: read(it) for count, cluster in clusters.items()}
    for number, count, row in in_turns(lab, subjects):
        yield lab.note(case=case, round=number, subject="TLS, veth", nodes=count,
                       in_flight=READERS, read_bytes=MIB, **kept(row))
    door.close()


def kept(row):
    return {key: value for key, value in row.items() if key in FIELDS}


def medians(rows, key, figure):
    found = {}
    for row in rows:
        found.setdefault(key(row), []).append(figure(row))
    return {name: statistics.median(values) for name, values in found.items()}


def paired(rows, one, other, less=None):
    """The median of the ratios of two subjects in the same round."""
    by = {(row["round"], row["subject"]): row["p50_us"] for row in rows}
    return statistics.median((by[it, one] - by.get((it, less), 0)) / by[it, other]
                             for it in {row["round"] for row in rows})


def summarize_hits(rows):
    for figure in ("p50_us", "p99_us"):
        found = medians(rows, lambda it: it["subject"], lambda it: it[figure])
        print(figure, {name: round(value, 1) for name, value in found.items()})
    for one, other in [("TLS, loopback", "off, loopback"), ("TLS, loopback", "bare TCP, loopback"),
                       ("off, loopback", "bare TCP, loopback"), ("TLS, veth", "bare TCP, veth")]:
        print(f"{one} / {other}: {paired(rows, one, other):.2f}")
    for way in ("loopback", "veth"):
        ratio = paired(rows, f"TLS, {way}", f"bare TCP, {way}", less="own memory")
        print(f"TLS, {way}, less a hit in the node's own memory / bare TCP: {ratio:.2f}")


def summarize_nodes(rows):
    for figure in ("p50_us", "p99_us"):
        found = medians(rows, lambda it: it["nodes"], lambda it: it[figure])
        print(figure, {name: round(value, 1) for name, value in found.items()})


def summarize_large(rows):
    def gigabytes(row):
        return row["reads"] * MIB / 1e9
    rates = medians(rows, lambda it: (it["subject"], it["in_flight"]),
                    lambda it: gigabytes(it) / it["seconds"])
    costs = medians(rows, lambda it: (it["subject"], it["in_flight"]),
                    lambda it: it["cpu_s"] / gigabytes(it))
    for (name, threads), rate in rates.items():
        print(f"{name:20} {threads} in flight  {rate:5.2f} GB/s  "
              f"{costs[name, threads]:5.2f} CPU-s/GB")


def summarize_readers(rows):
    for row in rows:
        print(f"{row['nodes']} nodes: {row['gets']} GETs, "
              f"{row['get_bytes'] / row['file_bytes']:.3f} times the file's bytes, "
              f"{row['gets_a_block_min']} to {row['gets_a_block_max']} a block, "
              f"{row['late_blocks']} late, {row['late_answers']} late answers, "
              f"{row['gone_blocks']} gone")


CASES = {"hits": hits, "nodes": nodes, "large": large, "readers": readers,
         "full": lambda lab: readers(lab, "full", "64MiB")}
SUMMARIES = {"hits": summarize_hits, "nodes": summarize_nodes, "large": summarize_large,
             "readers": summarize_readers, "full": summarize_readers}


if __name__ == "__main__":
    main()
