#!/usr/bin/env python3
"""A cluster cache on a mesh of machines, all of them on this one.

    run.py --hither PATH --mesh PATH --work DIR [--output DIR] [--grid small|full] [--nodes 5x5]
           [--placement NAME]... [--policy NAME] [--distances measured]
           [--event leave|vanish|join|replace]...
           [--workloads A,B] [--caches 10,25] [--latencies 5,20] [--seeds 1,2] [--resume]
           [--build TEXT]
    run.py --hither PATH --mesh PATH --work DIR --smoke

Each node is a network namespace with a node of `hither node`, mutual TLS between them. `mesh` is
built beside the command (see mesh/): its network delays each packet by 200 us for each hop, the
hops of the simulator's topology; its source answers a given time later; its readers, 8 threads a
node, read blocks of 16 KiB by the client library in the order of lists that are made beforehand,
and compare every byte. Each thread has all files open before; only those of the rewriter open one
for each read, which is a part of the read's time. All together read at most 1,200 blocks (20 MB) a
second, so that delay decides rather than two processors. The first third of each list warms the
caches, the rest is measured. All caches together hold a given part of the data.

A read is a miss if the source sent its block while it waited; all others are hits. Shares of reads
by where the bytes came from are the nodes' own figures; near is up to two hops away. Bytes times
hops and packets are counted by the network, among nodes. What the idle cluster takes of these, and
of the nodes' processor time, is left out: it has columns of its own.

Some blocks go from node to node since a reader has asked: as many as nodes say that they provided.
All others that arrived were pushed, by a placement or by a client of memcached. What nodes count as
moved, copied and forwarded are orders: some ride on a delivery to who has asked, and some come when
the block is gone. Control is all else that the network counts among nodes. A read is stale if its
file, when it was opened, had had a newer version for more than a second, the time that a volume
believes a version.

The placement `memcached` stands for no node at all, but for what programs can do instead: memcached
on each node, of the same memory in whole MiB and at least two, and consistent hashing in its
clients. It runs all workloads but the rewriter, since it knows no versions.

The placement `rclone` is the other thing that programs can do: `rclone mount` with a cache of files
on each node, in memory of its own (/dev/shm), which shares nothing. It asks the source for 1 MiB at
once: with 16 and 128 KiB, reads take longer. So it reads ahead, which the nodes of hither are told
not to do, and takes many times as much from the source, whose network has endless bandwidth here.
It removes whole files, and looks ten times a second: on the mean it has some
20 % of the data where 25 % are allowed. Reads are O_DIRECT, past the page cache of the kernel. A
hit is local. The rewriter is left out.

`--event` says what becomes of the node in the middle of the mesh after half of the measured part.
It leaves: it is killed, with all programs on it; connections end, as the kernel does it for a
process that is killed. It vanishes: the same, but no packet comes from it any more, as from a
machine that has no power. It is replaced: it is killed, and started again at once with nothing in
its memory. It joins: it is a member that was not there before. Its programs read once it is
connected with all others. The figures of such a run are of the other nodes and their readers alone,
but for those of the network. Hits are counted in windows of half a second, by when reads began;
they are back where four windows have on average 95 % of the median window before.

A no-op goes from node 0 to nodes at 1, 2, 4 and 8 hops, before, during and after each run. If the
median of one drifts by more than a quarter, or its p99 in the run is 5 ms above the median before,
or the processors were busy for more than 80 % of the time (niced processes aside: they yield), or
the network delivered more than 5 packets for each 100 reads 0.2 ms late, the run is thrown away,
counted, and done again, at most twice.

Writes raw.jsonl, a row a run, thrown away or not, and makes tables.md and plots of it in --output.
`--resume` leaves out what is there and was not thrown away. Needs root, iproute2, util-linux, numpy
and pandas, memcached and rclone for the placements of these names, and no Internet.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import platform
import shutil
import signal
import sys
import threading
import time

import numpy
import pandas

import report
import workloads
from network import VOLUME, Cluster, Helper, Memcached, Network, Rclone, in_space, wait_for

BLOCK = 16 << 10
READERS = 8
RATE = 1200
# Of all frames, those that are never resident, and of the memory, what is no frame: an eighth each.
RESIDENT = (7 / 8) ** 2
TTL_NS = 1_000_000_000
REWRITE_S = 0.5
ATTEMPTS = 3
DRIFT = 0.25
P99_US = 5000
BUSY = 0.8
# Packets that the network itself delivers late, for each read.
LATE = 0.05
NOOPS_S = 2
NEAR_HOPS = 2
# Of the part of reads that are hits.
WINDOW_S = 0.5
# They are back when so many windows have on average such a part of what they were.
BACK_WINDOWS = 4
BACK = 0.95
# How long before and after an event its reads are looked for.
AROUND_S = 5
WORDS = ["node", "file", "block", "version", "server", "given"]
TIMES = ["opened", "begun", "ended"]
RECORD = numpy.dtype([(it, "<u4") for it in WORDS] + [(it, "<u8") for it in TIMES])
# A failed read's version, and the server of a read that none served, or was given it.
ABSENT = 0xffff_ffff
GRIDS = {
    "small": {"workloads": ["ammp", "oltp", "racks", "moving"], "caches": [25],
              "latencies": [20], "seeds": [1]},
    "full": {"workloads": workloads.NAMES, "caches": [10, 25, 50], "latencies": [5, 20, 50],
             "seeds": [1, 2, 3]},
}
KEYS = ["nodes", "distances", "policy", "placement", "workload", "cache", "latency_ms", "seed",
        "event"]
NO_EVENT = report.NO_EVENT
EVENTS = ["leave", "vanish", "join", "replace"]
PLACEMENT = "first-and-forever"
POLICY = "s3-fifo"
MEMCACHED = "memcached"
RCLONE = "rclone"
# They know no versions, and share nothing or do not outlive the loss of a server.
NO_NODES = (MEMCACHED, RCLONE)


def main():
    arguments = parse()
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.W_OK):
        reason = "only root can make networks, and needs /dev/net/tun"
        # What a machine does not give is no failure of a check.
        sys.exit(print(f"skipped: {reason}") if arguments.smoke else reason)
    # So that Ctrl-C and SIGTERM both end by way of `finally`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    lab = Lab(arguments)
    raw = lab.output / "raw.jsonl"
    rows = [json.loads(line) for line in raw.open()] if raw.exists() else []
    if rows and not arguments.resume:
        sys.exit(f"{raw} is there: go on with --resume, or remove it")
    for row in rows:
        row.setdefault("event", NO_EVENT)
        row.setdefault("policy", POLICY)
    done = {tuple(row[key] for key in KEYS) for row in rows if not row["thrown_away"]}
    try:
        lab.start()
        for case in cases(arguments):
            if case not in done:
                for row in lab.attempts(dict(zip(KEYS, case))):
                    rows.append(row)
                    with raw.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(report.line(row), flush=True)
    finally:
        lab.end()
        report.write(rows, lab.output)
    if arguments.smoke:
        check(rows[-1], arguments)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--mesh", required=True, help="the program of ./mesh")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--output", help="where rows, tables and plots go [default: in --work]")
    parser.add_argument("--grid", choices=GRIDS, default="small")
    parser.add_argument("--nodes", default="3x3", help="rows and columns of the mesh, or a shape "
                        "of the simulator such as torus:5x5 [default: 3x3]")
    parser.add_argument("--placement", action="append", metavar="NAME",
                        help=f"of the file of a node, {MEMCACHED} or {RCLONE} "
                        f"[default: {PLACEMENT}]")
    parser.add_argument("--event", action="append", choices=[NO_EVENT, *EVENTS],
                        help=f"what becomes of a node [default: {NO_EVENT}]")
    parser.add_argument("--policy", default=POLICY,
                        help=f"by which nodes keep blocks [default: {POLICY}]")
    parser.add_argument("--distances", choices=["configured", "measured"], default="configured",
                        help="whether the nodes' files have them [default: configured]")
    for name in ("workloads", "caches", "latencies", "seeds"):
        parser.add_argument(f"--{name}", help="in place of the grid's, separated by commas")
    parser.add_argument("--accesses", type=int, default=6000, help="of a node [default: 6000]")
    parser.add_argument("--blocks", type=int, default=800, help="for each node [default: 800]")
    parser.add_argument("--rate", type=float, default=RATE, 
                        help="reads a second, all nodes together [default: 1200]")
    parser.add_argument("--resume", action="store_true", help="go on with an earlier experiment")
    parser.add_argument("--smoke", action="store_true", help="one short run; no time is judged")
    parser.add_argument("--build", default="", help="noted beside the results")
    arguments = parser.parse_args()
    grid = GRIDS[arguments.grid]
    for name, default in grid.items():
        given = getattr(arguments, name)
        kind = type(default[0])
        setattr(arguments, name, [kind(it) for it in given.split(",")] if given else default)
    if unknown := set(arguments.workloads) - set(workloads.NAMES):
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    if arguments.smoke:
        arguments.workloads, arguments.caches, arguments.latencies = ["rewriter"], [25], [5]
        arguments.seeds, arguments.accesses, arguments.blocks = [1], 240, 128
        arguments.nodes = "3x3"
    if ":" not in arguments.nodes:
        arguments.nodes = f"mesh:{arguments.nodes}"
    arguments.placement = arguments.placement or [PLACEMENT]
    arguments.event = arguments.event or [NO_EVENT]
    return arguments


def check(row, arguments):
    """What is true of a run however busy the machine is. Bytes were compared by the readers."""
    share = row["share"]
    found = {
        "reads fail": row["failed"] or row["errors"],
        "reads are stale": row["stale"],
        "reads are missing": row["reads"] != 9 * (arguments.accesses * 2 // 3),
        "no file was rewritten": not row["rewritten"],
        "a part has no reads": not all(share.values()),
        "misses are not what nodes say": abs(row["misses"] - share["source"]) > 0.05,
        "blocks were not counted": row["peer_bytes"] < (share["near"] + share["far"])
        * row["reads"] * BLOCK or row["byte_hops"] < row["peer_bytes"],
        "packets were lost": row["dropped"],
    }
    if wrong := [what for what, is_so in found.items() if is_so]:
        sys.exit(f"{', '.join(wrong)}: {json.dumps(row)}")


def cases(arguments):
    """Placements turn fastest: what is compared runs under the same conditions."""
    for seed, cache, latency_ms, workload, event, placement in itertools.product(
            arguments.seeds, arguments.caches, arguments.latencies, arguments.workloads,
            arguments.event, arguments.placement):
        if placement in NO_NODES and (workload == "rewriter" or event != NO_EVENT):
            continue
        yield (arguments.nodes, arguments.distances, arguments.policy, placement, workload, cache,
               latency_ms, seed, event)


class Lab:
    """The network, which stays, and one run after the other on it."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.hither, self.mesh = map(os.path.abspath, (arguments.hither, arguments.mesh))
        self.work = pathlib.Path(arguments.work).absolute()
        self.output = pathlib.Path(arguments.output or self.work / "results").absolute()
        self.network = None

    def start(self):
        self.work.mkdir(parents=True, exist_ok=True)
        self.output.mkdir(parents=True, exist_ok=True)
        self.network = Network(self.mesh, self.work, self.arguments.nodes)

    def end(self):
        if self.network:
            self.network.end()
        for path in self.work.iterdir():
            if path == self.output:
                continue
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def attempts(self, case):
        for attempt in range(1, ATTEMPTS + 1):
            row = Run(self, case).row()
            reasons = [] if self.arguments.smoke else busy(row)
            stamp = datetime.datetime.now().strftime("%F %T")
            yield {"time": stamp, "build": self.arguments.build, **case, "attempt": attempt,
                   "thrown_away": reasons, **row}
            if not reasons:
                return


def busy(row):
    """Why the machine was too busy for this run."""
    reasons = []
    for hops, before in row["noop_us"]["before"].items():
        for when in ("during", "after"):
            now = row["noop_us"][when][hops]
            if abs(now["p50"] / before["p50"] - 1) > DRIFT:
                reasons.append(f"{when}, {hops} hops: p50 {before['p50']} to {now['p50']} us")
        p99 = row["noop_us"]["during"][hops]["p99"]
        if p99 > before["p50"] + P99_US:
            reasons.append(f"during, {hops} hops: p99 {p99} us")
    if row["late_packets"] > LATE * row["reads"]:
        reasons.append(f"{row['late_packets']} packets were late")
    if row["busy"] > BUSY:
        reasons.append(f"the processors were busy for {row['busy']:.0%} of the time")
    return reasons


def processor_ticks():
    """Of all processors: busy with what does not yield to this, and all."""
    line = pathlib.Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, line.split()[1:9])
    busy = user + system + irq + softirq + steal
    if os.nice(0) > 0:
        busy += nice
    return busy, user + nice + system + idle + iowait + irq + softirq + steal


class Run:
    """All of one run."""

    def __init__(self, lab, case):
        self.lab, self.case, self.network = lab, case, lab.network
        self.arguments = lab.arguments
        nodes = self.network.nodes
        # The node of the event, and its programs.
        self.apart = None if case["event"] == NO_EVENT else nodes // 2
        self.apart_reader = None
        self.warm = self.arguments.accesses // 3
        self.load = workloads.make(case["workload"], lab.hither, lab.work, nodes,
                                   self.arguments.blocks * nodes, self.arguments.accesses,
                                   case["seed"])

    def row(self):
        self.parts = []
        try:
            return self.measure()
        finally:
            for part in reversed(self.parts):
                part.end()
            if self.case["event"] == "vanish":
                self.network.set_link(self.apart, "up")

    def part(self, part):
        self.parts.append(part)
        return part

    def measure(self):
        case, network, lab = self.case, self.network, self.lab
        self.source = self.part(network.source(case["latency_ms"], self.load.files, BLOCK))
        data = self.load.blocks() * BLOCK
        memory = int(data * case["cache"] / 100 / network.nodes / RESIDENT)
        self.cluster = self.part(self.start_cluster(data, memory))
        noops = self.part(network.noops())
        idle = self.figures()
        before = self.noop_us(noops, wait=True)
        idle = idle, self.figures()
        readers = self.start_readers()
        with Rewriter(self.source, self.load):
            log = self.source_log()
            noops.ask("times")
            start = self.figures()
            begun_ns = time.monotonic_ns()
            for reader in filter(None, [*readers, self.apart_reader]):
                reader.tell("")
            event = None if self.apart is None else self.event(begun_ns)
            seconds = max(reader.answer()["seconds"] for reader in readers)
            end = self.figures()
            if self.apart_reader:
                self.apart_reader.kill()
            during = self.noop_us(noops)
            log = pandas.concat([log, self.source_log()])
        after = self.noop_us(noops, wait=True)
        parts = [numpy.fromfile(path, RECORD) for path in lab.work.glob("records*")]
        records = numpy.concatenate(parts)
        errors = {line.split(": ", 1)[1] for reader in readers for line in reader.errors()}
        kept = records[records["version"] != ABSENT]
        if not len(kept):
            raise RuntimeError(f"no read succeeds: {', '.join(sorted(errors)[:5])}")
        missed = waited(kept, log)
        hits = windows(kept, missed, begun_ns, seconds)
        return {"cpus": len(os.sched_getaffinity(0)), "load": round(os.getloadavg()[0], 1),
                "kernel": platform.release(), "data_bytes": data,
                "memory_bytes": self.cluster.memory, "reads": len(records),
                "seconds": round(seconds, 3), "failed": len(records) - len(kept),
                **latencies(kept, missed), **versions(kept, log), "errors": sorted(errors)[:5],
                "window_s": WINDOW_S, "hits": hits,
                "disturbed": event and disturbed(event, begun_ns, hits, kept),
                **self.counted(idle, start, end, kept, missed),
                "noop_us": {"before": before, "during": during, "after": after}}

    def start_cluster(self, data, memory):
        lab, placement = self.lab, self.case["placement"]
        cache_bytes = data * self.case["cache"] / 100 / self.network.nodes
        if placement == MEMCACHED:
            return Memcached(self.network, lab.work, cache_bytes / BLOCK, BLOCK)
        if placement == RCLONE:
            return Rclone(self.network, lab.work, cache_bytes)
        return Cluster(self.network, lab.hither, lab.work, memory, BLOCK, placement,
                       self.case["policy"], self.case["distances"] == "configured", self.apart,
                       self.case["event"] == "join")

    def start_readers(self):
        """They have warmed the caches when this returns."""
        work = self.lab.work
        for path in work.glob("records*"):
            path.unlink()
        lists = [self.list_of(node) for node in range(self.network.nodes)]
        readers = [self.start_reader(f"records{number}", node, lines, self.warm)
                   for number, (node, lines) in enumerate(self.cluster.readers(lists))]
        if self.apart in self.cluster.processes:
            lines = [self.cluster.reader(self.apart, lists[self.apart])]
            self.apart_reader = self.start_reader("apart", None, lines, self.warm)
        for reader in filter(None, [*readers, self.apart_reader]):
            reader.answer()
        return readers

    def list_of(self, node, first=0):
        path = self.lab.work / f"list{node}"
        self.load.lists[node][first:].tofile(path)
        return path

    def start_reader(self, name, node, lines, warm):
        lab = self.lab
        lines = [*lines, f"volume {VOLUME}", f"block {BLOCK}", f"threads {READERS}",
                 f"reopen {int(self.load.rewrites)}",
                 f"rate {self.arguments.rate / self.network.nodes}",
                 "files " + " ".join(name for name, _ in self.load.files),
                 f"warm {warm}", f"output {lab.work / name}"]
        plan = lab.work / f"plan-{name}"
        plan.write_text("\n".join(lines))
        command = [lab.mesh, "read", plan]
        command = command if node is None else in_space(node, *command)
        return self.part(Helper(command, lab.work / f"read-{name}.log", wait=False))

    def event(self, begun_ns):
        """What becomes of a node in the middle of the measured part: when, and how long it took."""
        cluster, node, kind = self.cluster, self.apart, self.case["event"]
        half = (self.arguments.accesses - self.warm) // 2
        due_s = half * self.network.nodes / self.arguments.rate
        time.sleep(max(0, due_s - (time.monotonic_ns() - begun_ns) / 1e9))
        at_ns, joined_s = time.monotonic_ns(), None
        if kind == "vanish":
            self.network.set_link(node, "down")
        if kind != "join":
            cluster.kill_node(node)
            self.apart_reader.kill()
        if kind in ("join", "replace"):
            cluster.start_node(node)
            wait_for("the node that joins", cluster.is_whole)
            joined_s = round((time.monotonic_ns() - at_ns) / 1e9, 3)
            lines = [cluster.reader(node, self.list_of(node, self.warm + half))]
            self.apart_reader = self.start_reader("apart", None, lines, 0)
            self.apart_reader.answer()
            self.apart_reader.tell("")
        return {"node": node, "at_ns": at_ns, "joined_s": joined_s}

    def source_log(self):
        path = self.lab.work / "source.csv"
        self.source.ask(f"log {path}")
        return pandas.read_csv(path, dtype="int64")

    def noop_us(self, noops, wait=False):
        """What the no-ops took, by hops: since the last time, or for a while from now on."""
        if wait:
            noops.ask("times")
            time.sleep(NOOPS_S)
        times = noops.ask("times")
        return {str(hops): {"p50": int(numpy.median(of)), "p99": int(numpy.percentile(of, 99)),
                            "count": len(of)}
                for hops, of in zip(self.network.places(), times)}

    def figures(self):
        """What all have counted until now."""
        return {"at": time.monotonic(), "ticks": processor_ticks(), "nodes": self.cluster.status(),
                "cpu_s": self.cluster.cpu_s(), "fabric_cpu_s": self.network.fabric.cpu_s(),
                "fabric": self.network.fabric.ask("counts"), "source": self.source.ask("counts")}

    def sent(self, name, start, end):
        """From node to node, between two figures."""
        nodes = self.network.nodes
        sent = numpy.array(end["fabric"][name]) - start["fabric"][name]
        return sent[:nodes, :nodes]

    def served(self, start, end, records, missed):
        """Bytes by where they came from, what the nodes have counted, and what they hold."""
        hops = numpy.array(self.network.hops)
        served, machine = dict.fromkeys(("local", "near", "far", "source"), 0), {}
        if self.case["placement"] == MEMCACHED:
            hit = records[records["server"] != ABSENT]
            distance = hops[hit["node"], hit["server"]]
            served["local"] = int((distance == 0).sum()) * BLOCK
            served["far"] = int((distance > NEAR_HOPS).sum()) * BLOCK
            served["near"] = len(hit) * BLOCK - served["local"] - served["far"]
            served["source"] = (len(records) - len(hit)) * BLOCK
            return served, machine, self.cluster.resident
        if self.case["placement"] == RCLONE:
            served["source"] = int(missed.sum()) * BLOCK
            served["local"] = len(records) * BLOCK - served["source"]
            return served, machine, self.cluster.resident
        resident = sum(status["memory"]["bytes"] for status in end["nodes"].values())
        for node, new in end["nodes"].items():
            old = start["nodes"][node]
            for name, value in new["machine"].items():
                machine[name] = machine.get(name, 0) + value - old["machine"].get(name, 0)
            old, new = old["volumes"][0], new["volumes"][0]
            served["local"] += new["served"]["memory"] - old["served"]["memory"]
            served["source"] += new["served"]["source"] - old["served"]["source"]
            for name, value in new["peers"].items():
                distance = hops[node][self.cluster.names.index(name)]
                served["near" if distance <= NEAR_HOPS else "far"] += \
                    value - old["peers"].get(name, 0)
        return served, machine, resident

    def blocks_sent(self, machine, records):
        """From node to node: blocks that readers asked for, and those that were pushed."""
        if self.case["placement"] in NO_NODES:
            given, server = (records[it][(records[it] != ABSENT) & (records[it] != records["node"])]
                             for it in ("given", "server"))
            return len(server), len(given)
        asked = machine["provided_blocks"]
        return asked, machine["arrived_blocks"] - asked

    def counted(self, idle, start, end, records, missed):
        """What was counted between two figures, less what an idle cluster sends."""
        served, machine, resident = self.served(start, end, records, missed)
        hops = numpy.array(self.network.hops)[:self.network.nodes, :self.network.nodes]
        total = sum(served.values())
        seconds, idle_seconds = (b["at"] - a["at"] for a, b in ((start, end), idle))
        idle_bytes, idle_packets = (self.sent(name, *idle) / idle_seconds
                                    for name in ("bytes", "packets"))
        idle_cpu = (idle[1]["cpu_s"] - idle[0]["cpu_s"]) / idle_seconds
        sent = self.sent("bytes", start, end) - idle_bytes * seconds
        packets = self.sent("packets", start, end) - idle_packets * seconds
        reads = len(records)
        gigabytes = reads * BLOCK / 1e9
        asked, pushed = self.blocks_sent(machine, records)
        control = int(sent.sum()) - (asked + pushed) * BLOCK
        # What a node that comes and goes has sent is not known.
        known = self.apart is None
        busy, all_ticks = (new - old for old, new in zip(start["ticks"], end["ticks"]))
        return {
            "busy": busy / all_ticks,
            "resident_bytes": resident,
            "share": {name: value / total for name, value in served.items()},
            "source_reads": end["source"]["reads"] - start["source"]["reads"],
            "source_requests": end["source"]["requests"] - start["source"]["requests"],
            "source_bytes": end["source"]["bytes"] - start["source"]["bytes"],
            "peer_bytes": int(sent.sum()),
            "byte_hops": int((sent * hops).sum()),
            "busiest": float(sent.sum(axis=1).max() / sent.sum(axis=1).mean())
            if asked else None,
            "cpu_s_gb": (end["cpu_s"] - start["cpu_s"] - idle_cpu * seconds) / gigabytes,
            "idle_cpu": idle_cpu,
            "fabric_cpu_s": end["fabric_cpu_s"] - start["fabric_cpu_s"],
            "packets_a_read": float(packets.sum()) / reads,
            "pushed_bytes": pushed * BLOCK if known else None,
            "control_a_read": control / reads if known else None,
            "control_share": control / (reads * BLOCK) if known else None,
            "idle_packets_s": float(idle_packets.sum()),
            "idle_bytes_s": float(idle_bytes.sum()),
            "late_packets": end["fabric"]["late"] - start["fabric"]["late"],
            "late_us_max": end["fabric"]["late_us_max"],
            "dropped": end["fabric"]["dropped"] - start["fabric"]["dropped"],
            "machine": {name: value for name, value in machine.items() if value},
        }


class Rewriter:
    """Makes a new version of one file after the other, if the workload has it so."""

    def __init__(self, source, load):
        self.source, self.load, self.ended = source, load, threading.Event()
        self.thread = threading.Thread(target=self.rewrite)

    def __enter__(self):
        if self.load.rewrites:
            self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        if self.load.rewrites:
            self.thread.join()

    def rewrite(self):
        for name, _ in itertools.cycle(self.load.files):
            if self.ended.wait(REWRITE_S):
                return
            self.source.ask(f"rewrite {name}")


def latencies(records, missed):
    """How long reads took, by whether they waited for the source."""
    took_us = (records["ended"] - records["begun"]) / 1e3
    found = {"misses": float(missed.mean())}
    for name, part in [("hit", took_us[~missed]), ("miss", took_us[missed]), ("read", took_us)]:
        found[f"{name}_us"] = {
            "mean": round(float(part.mean()), 1), "p50": round(float(numpy.median(part)), 1),
            "p99": round(float(numpy.percentile(part, 99)), 1),
        } if len(part) else None
    return found


def windows(records, missed, begun_ns, seconds):
    """The part of reads that are hits, in successive windows of the time in which they began."""
    at = ((records["begun"].astype("int64") - begun_ns) / 1e9 // WINDOW_S).astype("int64")
    count = int(seconds / WINDOW_S)
    reads, misses = (numpy.bincount(of, minlength=count) for of in (at, at[missed]))
    return [round(1 - int(missed) / int(of), 4) if of else None
            for of, missed in zip(reads[:count], misses)]


def disturbed(event, begun_ns, hits, records):
    """What an event has cost."""
    at_s = (event["at_ns"] - begun_ns) / 1e9
    first = int(at_s / WINDOW_S)
    before = float(numpy.median([it for it in hits[:first] if it is not None]))
    after = numpy.array([0 if it is None else it for it in hits[first:]])
    after = numpy.convolve(after, numpy.full(BACK_WINDOWS, 1 / BACK_WINDOWS), "valid")
    at = next((at for at, it in enumerate(after) if it >= BACK * before), None)
    begun, ended = ((records[it].astype("int64") - event["at_ns"]) / 1e9
                    for it in ("begun", "ended"))
    took_ms = (records["ended"] - records["begun"]) / 1e6
    earlier = took_ms[(begun > -AROUND_S) & (ended < 0)]
    during = took_ms[(begun < AROUND_S) & (ended >= 0)]
    return {"node": event["node"], "at_s": round(at_s, 3), "joined_s": event["joined_s"],
            "hits_before": round(before, 4), "hits_least": round(float(after.min()), 4),
            "back_s": None if at is None else round(max(0, (first + at) * WINDOW_S - at_s), 3),
            "longest_before_ms": round(float(earlier.max(initial=0)), 1),
            "longest_ms": round(float(during.max(initial=0)), 1)}


def waited(records, log):
    """Whether the source sent the block of each read during the read."""
    log = log[log["node"] != 0]
    # A request is for one or for several blocks.
    first = log["offset"].to_numpy() // BLOCK
    counts = -(-(log["offset"] + log["bytes"]).to_numpy() // BLOCK) - first
    rows = numpy.repeat(numpy.arange(len(log)), counts)
    within = numpy.arange(len(rows)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)
    sent = keys(log["file"].to_numpy()[rows], first[rows] + within)
    read = keys(records["file"], records["block"])
    known, number = numpy.unique(numpy.concatenate([sent, read]), return_inverse=True)
    # By block, then by time: less than 18 minutes, in nanoseconds.
    base = min(records["begun"].min(), log["ended"].min() if len(log) else ABSENT << 31)
    times = (number[:len(sent)] << 40) | (log["ended"].to_numpy()[rows] - int(base))
    times.sort()
    begun, ended = ((number[len(sent):] << 40) | (records[it] - base).astype("int64")
                    for it in ("begun", "ended"))
    at = numpy.searchsorted(times, begun)
    next_sent = numpy.append(times, numpy.iinfo("int64").max)[at]
    return next_sent <= ended


def keys(file, block):
    return (numpy.asarray(file, "int64") << 32) | numpy.asarray(block, "int64")


def versions(kept, log):
    """Reads of a version that had been replaced for too long when the file was opened."""
    rewritten = log[log["node"] == 0]
    stale = 0
    for file in numpy.unique(kept["file"]):
        times = numpy.sort(rewritten["begun"][rewritten["file"] == file].to_numpy())
        of_file = kept[kept["file"] == file]
        if len(of_file) and of_file["version"].max() > 1 + len(times):
            raise RuntimeError(f"file {file} was read in a version that it never had")
        least = 1 + numpy.searchsorted(times, of_file["opened"].astype("int64") - TTL_NS)
        stale += int((of_file["version"] < least).sum())
    return {"stale": stale, "rewritten": len(rewritten)}


if __name__ == "__main__":
    main()
