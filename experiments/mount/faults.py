#!/usr/bin/env python3
"""Nodes of a cluster cache that are killed, cut off, stopped and starved while programs read.

    faults.py --hither PATH --work DIR [--only NAME,NAME] [--quick]

Three nodes, each in a network namespace of its own, mount two sources, a WebDAV server (rclone
serve webdav) and a directory, and share their memories; etcd keeps the list of members. On each
mount two processes open files at random, read ranges of them and compare every byte. Then one fault
after the other happens:

  kill          SIGKILL of a node (the process of its mount too), and its restart
  kill-etcd     SIGKILL of etcd, and its restart
  cut           a node can reach no other, and none it; the source it can
  cut-one-way   a node's packets to the others are lost, not theirs
  stop          SIGSTOP of a node for a minute, and SIGCONT
  disk-full     the file system of a node's disk cache is full
  source-down   SIGKILL of the source for 30 s, and its restart
  source-change files of a directory are replaced while they are read
  restart-all   all nodes are stopped by SIGTERM and started

A case fails on a wrong byte, on an error that the case does not allow, or if reads do not go on in
the end. Prints a JSON line a case and a table. Needs root, rclone, etcd, fuse3 and iproute2.
"""

import argparse
import errno
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback

NODES = 3
READERS = 2
BRIDGE = "hitherfault"
SOURCE_PORT = 18521
ETCD_PORT = 18522
NODE_PORT = 7300
MIB = 1 << 20

# How long a version may be shown that was replaced: that of the consistency mode, and the time that
# a process may be kept waiting on a busy machine.
STALE_S = 1 + 2


def main():
    arguments = parse()
    work = pathlib.Path(arguments.work).absolute()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    names = [name.strip() for name in arguments.only.split(",")] if arguments.only else list(CASES)
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"unknown cases: {', '.join(sorted(unknown))}")
    lab = Lab(work, arguments)
    rows = []
    try:
        lab.start()
        for name in names:
            row = run_case(lab, name)
            rows.append(row)
            print(json.dumps(row), flush=True)
    finally:
        lab.end()
    print()
    print(f"{'case':16} {'reads':>9} {'wrong':>6} {'errors':>7} {'longest read':>13}  verdict")
    for row in rows:
        print(f"{row['case']:16} {row['reads']:9,} {row['wrong']:6} {row['errors_total']:7} "
              f"{row['longest_s']:11.2f} s  {row['verdict']}")
    sys.exit(any(row["verdict"] != "ok" for row in rows))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hither", required=True, help="the hither command")
    parser.add_argument("--work", required=True, help="a directory to make and remove")
    parser.add_argument("--only", help="these cases alone, separated by commas")
    parser.add_argument("--quick", action="store_true", help="short faults")
    return parser.parse_args()


def contents(name, version, size):
    """The bytes of a version of a file."""
    return random.Random(f"{name} {version}").randbytes(size)


class Lab:
    """The source, etcd and the nodes, in namespaces beside a bridge."""

    def __init__(self, work, arguments):
        self.work, self.arguments = work, arguments
        self.hither = os.path.abspath(arguments.hither)
        self.files = work / "files"
        self.changing = work / "changing"
        self.sizes = {}
        self.processes = {}

    def start(self):
        self.files.mkdir()
        self.changing.mkdir()
        sizes = [0, 1, 4096, 131072, 131073] + [300_000 + 37_777 * n % 4_000_000 for n in range(95)]
        for number, size in enumerate(sizes):
            name = f"file{number:03}"
            self.sizes[name] = size
            for folder in (self.files, self.changing):
                (folder / name).write_bytes(contents(name, 0, size))
        self.make_network()
        self.start_source()
        self.start_etcd()
        for node in range(NODES):
            self.write_config(node)
            self.start_node(node)
        self.await_members(NODES)

    def make_network(self):
        self.remove_network()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", "10.97.0.254/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for node in range(NODES):
            space, outer, inner = f"{BRIDGE}{node}", f"hf{node}", f"hf{node}i"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
            run("ip", "link", "set", inner, "netns", space)
            run("ip", "link", "set", outer, "master", BRIDGE, "up")
            run("ip", "-n", space, "addr", "add", f"{address(node)}/24", "dev", inner)
            run("ip", "-n", space, "link", "set", inner, "up")
            run("ip", "-n", space, "link", "set", "lo", "up")

    def remove_network(self):
        for node in range(NODES):
            run("ip", "netns", "del", f"{BRIDGE}{node}", check=False)
        run("ip", "link", "del", BRIDGE, check=False)

    def start_source(self):
        command = ["rclone", "serve", "webdav", "--addr", f"10.97.0.254:{SOURCE_PORT}",
                   "--dir-cache-time", "1s", "--poll-interval", "0", str(self.files)]
        self.processes["source"] = quiet(command)

    def start_etcd(self):
        url = f"http://10.97.0.254:{ETCD_PORT}"
        peer = f"http://10.97.0.254:{ETCD_PORT + 1}"
        command = ["etcd", "--data-dir", str(self.work / "etcd"), "--listen-client-urls", url,
                   "--advertise-client-urls", url, "--listen-peer-urls", peer,
                   "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.processes["etcd"] = quiet(command)
        time.sleep(1)

    def write_config(self, node):
        if node == 0:
            run(self.hither, "cluster", "ca", "faults", "--out", str(self.work / "ca"))
        name = f"n{node}"
        run(self.hither, "cluster", "issue", name, "--ca", str(self.work / "ca"), "--out",
            str(self.work))
        disk = ""
        if node == 1:
            # Less than it may use, so that it fills up.
            (self.work / "disk").mkdir()
            run("mount", "-t", "tmpfs", "-o", "size=64m", "none", str(self.work / "disk"))
            disk = 'disk = "disk/cache"\ndisk-size = "60MiB"\n'
        (self.work / f"m{node}").mkdir()
        (self.work / f"d{node}").mkdir()
        (self.work / f"{name}.toml").write_text(f"""
name = "{name}"
cluster = "faults"
listen = "{address(node)}:{NODE_PORT}"
tls = {{ authority = "ca/ca.pem", certificate = "{name}.pem", key = "{name}.key" }}
memory = "48MiB"
{disk}
[etcd]
endpoints = ["http://10.97.0.254:{ETCD_PORT}"]
address = "{address(node)}:{NODE_PORT}"

[[volume]]
source = "http://10.97.0.254:{SOURCE_PORT}"
options = {{ allow_http = "true" }}
directory = "m{node}"
consistency = "ttl=1"
direct-io = true

[[volume]]
source = "changing"
directory = "d{node}"
consistency = "ttl=1"
direct-io = true
""")

    def start_node(self, node):
        command = ["nsenter", f"--net=/run/netns/{BRIDGE}{node}", self.hither, "node",
                   str(self.work / f"n{node}.toml")]
        log = open(self.work / f"n{node}.log", "ab")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
        self.processes[node] = process
        places = [self.work / f"m{node}", self.work / f"d{node}"]
        wait_for(f"the mounts of node {node}", lambda: all(map(is_served, places)), process)

    def kill(self, key, number=signal.SIGKILL):
        process = self.processes[key]
        process.send_signal(number)
        process.wait()

    def status(self, node):
        output = subprocess.run([self.hither, "cluster", "status", "--json",
                                 str(self.work / f"m{node}")],
                                capture_output=True, timeout=20, check=False)
        return json.loads(output.stdout) if output.returncode == 0 else {}

    def await_members(self, count):
        def is_whole():
            lists = [self.status(node).get("members", []) for node in range(NODES)]
            return all(len(members) == count and all(map(is_well, members)) for members in lists)
        wait_for(f"{count} members", is_whole)

    def cut(self, node, both):
        """The node and the others lose each other's packets; or the others lose the node's."""
        for other in range(NODES):
            if other != node:
                blackhole(node, other, "add")
                if both:
                    blackhole(other, node, "add")

    def mend(self, node, both):
        for other in range(NODES):
            if other != node:
                blackhole(node, other, "del")
                if both:
                    blackhole(other, node, "del")

    def end(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        for place in [f"{kind}{node}" for node in range(NODES) for kind in "md"] + ["disk"]:
            run("umount", "-l", str(self.work / place), check=False)
        self.remove_network()


def is_well(member):
    return member["this_node"] or (member["connected"] and not member["suspected"])


def address(node):
    return f"10.97.0.{node + 1}"


def blackhole(here, there, what):
    run("ip", "-n", f"{BRIDGE}{here}", "route", what, "blackhole", f"{address(there)}/32")


def run(*command, check=True):
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL,
                   stderr=None if check else subprocess.DEVNULL)


def quiet(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def is_served(place):
    try:
        return os.path.ismount(place) and bool(os.listdir(place))
    except OSError:
        return False


def wait_for(what, is_so, process=None, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{what}: the process ended")
        if time.monotonic() > end:
            raise RuntimeError(f"{what} never comes")
        time.sleep(0.1)


def read_for_ever(place, node, sizes, versions, changed, over, counts):
    """Opens, reads and compares until told to end. `versions` says which version each file has, and
    `changed` since when; `counts` gets what was seen."""
    rng = random.Random(os.getpid())
    names = sorted(sizes)
    known = {}

    def of(name, version):
        key = (name, version)
        if key not in known:
            if len(known) > 150:
                known.clear()
            known[key] = contents(name, version, sizes[name])
        return known[key]

    reads, wrong, errors, longest, last_good = 0, [], {}, 0.0, 0.0
    while not over.is_set():
        name = rng.choice(names)
        start = opened = time.monotonic()
        try:
            # One version for each open: the versions that fit what was read so far.
            at = names.index(name)
            last, since = versions[at], changed[at]
            with open(place / name, "rb", buffering=0) as file:
                fits = None
                for _ in range(rng.randrange(1, 6)):
                    offset = rng.randrange(sizes[name] + 1)
                    length = rng.choice([1, 4096, 65536, MIB])
                    start = time.monotonic()
                    data = os.pread(file.fileno(), length, offset)
                    longest = max(longest, time.monotonic() - start)
                    reads += 1
                    if fits is None:
                        fits = range(versions[at] + 1)
                    fits = [it for it in fits if of(name, it)[offset:offset + length] == data]
                    if not fits:
                        wrong.append(f"{name} at {offset}, {length} bytes")
                        break
                # Every size but 0 tells versions apart from some byte on.
                if fits and max(fits) < last and opened - since > STALE_S:
                    wrong.append(f"{name}: version {max(fits)} after {last}")
                last_good = time.monotonic()
        except OSError as error:
            longest = max(longest, time.monotonic() - start)
            code = errno.errorcode.get(error.errno, str(error.errno))
            errors[code] = errors.get(code, 0) + 1
            time.sleep(0.01)
    counts.put({"node": node, "reads": reads, "wrong": wrong[:5], "errors": errors,
                "longest_s": longest, "last_good": last_good})


def run_case(lab, name):
    """Runs readers on all nodes, lets the fault happen, and judges what they saw."""
    case = CASES[name]
    context = multiprocessing.get_context("fork")
    over, counts = context.Event(), context.Queue()
    # Only files of the directory are ever replaced.
    kind = case.get("kind", "m")
    versions = context.Array("i", [0] * len(lab.sizes))
    changed = context.Array("d", [0] * len(lab.sizes))
    readers = [context.Process(target=read_for_ever, daemon=True,
                               args=(lab.work / f"{kind}{node}", node, lab.sizes, versions, changed,
                                     over, counts))
               for node in range(NODES) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    trouble = None
    time.sleep(3)
    try:
        case["fault"](lab, (versions, changed))
        lab.await_members(NODES)
        time.sleep(3)
    except (RuntimeError, subprocess.SubprocessError, OSError) as error:
        traceback.print_exc()
        trouble = str(error)
    end = time.monotonic()
    over.set()
    results = []
    for _ in readers:
        try:
            results.append(counts.get(timeout=60))
        except Exception:
            trouble = "a reader hangs"
            break
    for reader in readers:
        reader.join(1)
        reader.kill()
    return judge(name, case, results, end, trouble)


def judge(name, case, results, end, trouble):
    hit = case.get("hit", set())
    others = [row for row in results if row["node"] not in hit]
    row = {
        "case": name,
        "reads": sum(it["reads"] for it in results),
        "wrong": sum(len(it["wrong"]) for it in results),
        "errors_total": sum(sum(it["errors"].values()) for it in results),
        "errors": {f"n{node}": merged(it["errors"] for it in results if it["node"] == node)
                   for node in range(NODES)},
        "longest_s": max((it["longest_s"] for it in others), default=0),
        "longest_s_of_the_node_hit": max((it["longest_s"] for it in results
                                          if it["node"] in hit), default=None),
    }
    problems = [trouble] if trouble else []
    problems += [f"wrong: {it['wrong'][0]}" for it in results if it["wrong"]][:1]
    allowed = case.get("errors", set())
    for it in results:
        bad = set(it["errors"]) - allowed - (case.get("errors_hit", set())
                                             if it["node"] in hit else set())
        if bad:
            problems.append(f"n{it['node']}: {', '.join(sorted(bad))}")
    if row["longest_s"] > case.get("longest_s", 2):
        problems.append(f"a read took {row['longest_s']:.1f} s")
    late = [it for it in results if it["last_good"] < end - 3]
    if late:
        problems.append(f"n{late[0]['node']}: reads do not go on")
    row["verdict"] = "; ".join(problems) or "ok"
    return row


def merged(counts):
    total = {}
    for it in counts:
        for key, count in it.items():
            total[key] = total.get(key, 0) + count
    return total


def kill(lab, _):
    lab.kill(1)
    time.sleep(8)
    lab.start_node(1)


def kill_etcd(lab, _):
    lab.kill("etcd")
    time.sleep(5 if lab.arguments.quick else 20)
    lab.start_etcd()
    time.sleep(8)


def cut(both):
    def fault(lab, _):
        lab.cut(1, both)
        time.sleep(5 if lab.arguments.quick else 15)
        lab.mend(1, both)
        time.sleep(5)
    return fault


def stop(lab, _):
    lab.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(8 if lab.arguments.quick else 60)
    lab.processes[1].send_signal(signal.SIGCONT)
    time.sleep(5)


def disk_full(lab, _):
    with open(lab.work / "disk" / "filler", "wb") as filler:
        try:
            while True:
                filler.write(bytes(MIB))
                filler.flush()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    time.sleep(10)
    (lab.work / "disk" / "filler").unlink()
    time.sleep(3)


def source_down(lab, _):
    lab.kill("source")
    time.sleep(10 if lab.arguments.quick else 30)
    lab.start_source()
    time.sleep(8)


def source_change(lab, state):
    versions, changed = state
    rng = random.Random(1)
    names = sorted(lab.sizes)
    end = time.monotonic() + (8 if lab.arguments.quick else 30)
    while time.monotonic() < end:
        at = rng.randrange(len(names))
        name = names[at]
        beside = lab.work / "new"
        beside.write_bytes(contents(name, versions[at] + 1, lab.sizes[name]))
        # Readers may see it from here on, and must from the time that comes after.
        changed[at] = float("inf")
        versions[at] += 1
        os.rename(beside, lab.changing / name)
        changed[at] = time.monotonic()
        time.sleep(0.1)


def restart_all(lab, _):
    for node in range(NODES):
        lab.kill(node, signal.SIGTERM)
    for node in range(NODES):
        lab.start_node(node)


GONE = {"ENOTCONN", "ECONNABORTED", "ENOENT", "EIO"}

# fault: what happens. hit: the nodes whose own programs notice it. errors, errors_hit: what may be
# seen on all, and on these. longest_s: how long a read on the others may take.
CASES = {
    "kill": {"fault": kill, "hit": {1}, "errors_hit": GONE},
    "kill-etcd": {"fault": kill_etcd},
    "cut": {"fault": cut(True), "hit": {1}},
    "cut-one-way": {"fault": cut(False), "hit": {1}},
    "stop": {"fault": stop, "hit": {1}},
    "disk-full": {"fault": disk_full},
    "source-down": {"fault": source_down, "errors": {"EIO"}, "longest_s": 45},
    "source-change": {"fault": source_change, "kind": "d", "errors": {"ESTALE"}},
    "restart-all": {"fault": restart_all, "hit": {0, 1, 2}, "errors_hit": GONE},
}


if __name__ == "__main__":
    main()
