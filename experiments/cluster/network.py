"""The machines: namespaces, the network between them, the source and the nodes.

Each node has a namespace `hmeshN` with one device, the end of `mesh fabric` there. Its address is
10.97.0.(N+1); the source has the next one after the last node. All processes that are started here
end with `end`; those of an earlier run that was killed end at the start of the next.
"""

import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

SPACE = "hmesh"
NETWORK = "10.97.0"
PORT = 7300
SOURCE_PORT = 8080
# Nobody listens there.
NOOP_PORT = 9
# Between two no-ops, whatever their address.
NOOP_MS = 5
MEMCACHED_PAGE = 1 << 20
LOCK = "/run/hither-mesh.lock"
VOLUME = "data"
# In memory, as other caches are.
RCLONE_CACHE = pathlib.Path("/dev/shm/hmesh-rclone")
# What rclone asks the source for at once. A read waits for the download of another one that begins
# less than that before it, however small its requests: with 16 KiB, reads take 180 ms, not 17.
RCLONE_CHUNK = "1M"
TICKS = os.sysconf("SC_CLK_TCK")


def run(*command, check=True, **others):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **others)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not after {seconds} s")
        time.sleep(0.05)


def address(node):
    return f"{NETWORK}.{node + 1}"


def in_space(node, *command):
    return ["nsenter", f"--net=/run/netns/{SPACE}{node}", *map(str, command)]


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start(command, log, **others):
    """A process that Ctrl-C does not reach: it is ended in its turn."""
    with open(log, "ab") as file:
        return subprocess.Popen([str(word) for word in command], stderr=file,
                                start_new_session=True, **others)


def await_end(process, seconds=20):
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Helper:
    """A part of `mesh`: a line goes to its stdin, and a line of JSON comes back."""

    def __init__(self, command, log, wait=True):
        self.log, self.lock = pathlib.Path(log), threading.Lock()
        self.log.unlink(missing_ok=True)
        self.process = start(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.answer() if wait else None

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("\n".join(self.errors()[-5:]))
        return json.loads(line)

    def errors(self):
        return self.log.read_text().splitlines()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line):
        with self.lock:
            self.tell(line)
            return self.answer()

    def cpu_s(self):
        return cpu_s(self.process.pid)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        # Closing is flushing, which fails if it has ended.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        await_end(self.process)


class Network:
    """Namespaces and the fabric. `hops` are from row to column, the source last."""

    def __init__(self, mesh, work, shape, hop_us=200, source_hops=1):
        self.mesh, self.work, self.shape = mesh, work, shape
        self.lock = open(LOCK, "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("another mesh runs on this machine") from None
        self.fabric = None
        self.remove()
        try:
            self.make(hop_us, source_hops)
        except BaseException:
            self.end()
            raise

    def make(self, hop_us, source_hops):
        # The network must not wait for what it connects.
        command = ["chrt", "--fifo", 50, self.mesh, "fabric", self.shape, hop_us, source_hops]
        self.fabric = Helper(command, self.work / "fabric.log")
        self.hops = self.fabric.first["hops"]
        self.nodes = len(self.hops) - 1
        for port in range(self.nodes + 1):
            name, device = f"{SPACE}{port}", f"mesh{port}"
            run("ip", "netns", "add", name)
            run("ip", "link", "set", device, "netns", name)
            run("ip", "-n", name, "-batch", "-", input=f"""
addr add {address(port)}/24 dev {device}
link set {device} mtu {self.fabric.first["mtu"]} up
link set lo up
""")

    def set_link(self, node, state):
        run("ip", "-n", f"{SPACE}{node}", "link", "set", f"mesh{node}", state)

    def places(self):
        """Nodes by what they are from node 0: one at each power of two of hops."""
        row = self.hops[0][:self.nodes]
        return {hops: row.index(hops) for hops in (1, 2, 4, 8) if hops in row}

    def noops(self):
        targets = [f"{address(to)}:{NOOP_PORT}" for to in self.places().values()]
        command = in_space(0, self.mesh, "noop", NOOP_MS, *targets)
        return Helper(command, self.work / "noop.log")

    def source(self, latency_ms, files, block):
        place = f"{address(self.nodes)}:{SOURCE_PORT}"
        sizes = [f"{name}:{blocks * block}" for name, blocks in files]
        command = in_space(self.nodes, self.mesh, "source", place, latency_ms, *sizes)
        return Helper(command, self.work / "source.log")

    def remove(self):
        """What an earlier run has left, and all that runs there."""
        for line in run("ip", "netns", "list").splitlines():
            name = line.split()[0]
            if not name.startswith(SPACE):
                continue
            for pid in run("ip", "netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            run("ip", "netns", "del", name)
        # Mounts of processes that were killed.
        for line in pathlib.Path("/proc/mounts").read_text().splitlines():
            path = line.split()[1]
            if path.startswith(f"{self.work}/mount"):
                run("umount", "--lazy", path)

    def end(self):
        # A device that goes with its namespace is an error to the fabric.
        if self.fabric:
            self.fabric.end()
        self.remove()
        self.lock.close()


class Control(http.client.HTTPConnection):
    """The control socket of a node."""

    def __init__(self, path):
        super().__init__("node")
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def status(self):
        self.request("GET", "/status")
        try:
            return json.loads(self.getresponse().read())
        finally:
            self.close()


class Processes:
    """One in each namespace of the network but the source's, by node."""

    def __init__(self):
        self.processes = {}

    def cpu_s(self):
        return sum(cpu_s(process.pid) for process in self.processes.values())

    def end(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            await_end(process)


class Cluster(Processes):
    """Nodes of `hither node`. Figures are of all but `apart`, a node that may come and go; it is
    not started if it is `absent`."""

    def __init__(self, network, hither, work, memory, block, placement, policy, configured,
                 apart=None, absent=False):
        super().__init__()
        self.network, self.hither, self.work = network, hither, work
        self.memory, self.apart = memory, apart
        self.authority()
        folder = work / "nodes"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.names = names = [f"m{node:03}" for node in range(network.nodes)]
        members = "\n".join(f'{name} = "{address(node)}:{PORT}"'
                            for node, name in enumerate(names))
        topology = ""
        if configured:
            topology = f'[topology]\nshape = "{network.shape}"\nmembers = {json.dumps(names)}'
        try:
            for node, name in enumerate(names):
                (folder / f"{name}.toml").write_text(f"""
name = "{name}"
cluster = "mesh"
listen = "{address(node)}:{PORT}"
tls = {{ authority = "../ca/ca.pem", certificate = "../ca/{name}.pem", key = "../ca/{name}.key" }}
memory = "{memory}"
block = "{block}"
placement = "{placement}"
policy = "{policy}"
[members]
{members}
{topology}
[[volume]]
name = "{VOLUME}"
source = "http://{address(network.nodes)}:{SOURCE_PORT}/"
prefetch = "0"
""")
                # As on machines of their own, they do not see each other's sockets.
                (folder / name).mkdir()
            for node in range(network.nodes):
                if not (node == apart and absent):
                    self.start_node(node)
            wait_for("the cluster", self.is_whole)
        except BaseException:
            self.end()
            raise

    def authority(self):
        """Certificates, which later runs use again."""
        ca = self.work / "ca"
        if not ca.exists():
            run(self.hither, "cluster", "ca", "mesh", "--out", ca)
        for node in range(self.network.nodes):
            if not (ca / f"m{node:03}.pem").exists():
                run(self.hither, "cluster", "issue", f"m{node:03}", "--ca", ca, "--out", ca)

    def start_node(self, node):
        path = self.work / "nodes" / self.names[node]
        command = in_space(node, self.hither, "node", path.with_suffix(".toml"))
        self.processes[node] = start(command, path.with_suffix(".log"), stdout=subprocess.DEVNULL,
                                     env={**os.environ, "HITHER_RUNTIME_DIR": str(path)})

    def kill_node(self, node):
        process = self.processes.pop(node)
        process.kill()
        process.wait()

    def socket(self, node):
        return self.work / "nodes" / self.names[node] / f"{self.processes[node].pid}.sock"

    def is_whole(self):
        """Whether all that run are connected."""
        for node, process in self.processes.items():
            if process.poll() is not None:
                log = (self.work / "nodes" / f"{self.names[node]}.log").read_text()
                raise RuntimeError(f"node {self.names[node]} has ended: {log.strip()[-500:]}")
        running = {self.names[node] for node in self.processes}
        try:
            members = (it for node in self.processes
                       for it in self.status_of(node)["cluster"]["members"])
            return all(it["this_node"] or it["connected"] for it in members
                       if it["name"] in running)
        except (OSError, http.client.HTTPException):
            return False

    def cpu_s(self):
        return sum(cpu_s(self.processes[node].pid) for node in self.counted())

    def counted(self):
        return [node for node in self.processes if node != self.apart]

    def status_of(self, node):
        return Control(self.socket(node)).status()

    def status(self):
        return {node: self.status_of(node) for node in self.counted()}

    def readers(self, lists):
        """One process reads for all nodes that are counted: it needs only their sockets."""
        yield None, [self.reader(node, lists[node]) for node in self.counted()]

    def reader(self, node, path):
        return f"node {node} {self.socket(node)} {path}"


class Memcached(Processes):
    """A server in each namespace. Readers are in the namespaces too, and find a block's server by
    consistent hashing."""

    def __init__(self, network, work, blocks, block):
        super().__init__()
        self.network = network
        # One class of items, as large as blocks with their names and heads. It takes no less than
        # two pages.
        item = block + 160
        pages = max(2, round(blocks / (MEMCACHED_PAGE // item)))
        self.memory = pages * MEMCACHED_PAGE
        self.resident = pages * (MEMCACHED_PAGE // item) * block * network.nodes
        try:
            for node in range(network.nodes):
                command = in_space(node, "memcached", "-u", "root", "-l", address(node),
                                   "-p", PORT, "-m", pages, "-t", 2, "-c", 4096,
                                   "-o", f"slab_sizes={item}")
                self.processes[node] = start(command, work / f"memcached{node}.log",
                                             stdout=subprocess.DEVNULL)
            wait_for("memcached", self.is_whole)
        except BaseException:
            self.end()
            raise

    def is_whole(self):
        query = ["ss", "-Hltn", "sport", f"= :{PORT}"]
        return all(run(*in_space(node, *query)) for node in range(self.network.nodes))

    def status(self):
        """It has no figures that its readers do not have."""

    def readers(self, lists):
        servers = " ".join(f"{address(node)}:{PORT}" for node in range(self.network.nodes))
        source = f"{address(self.network.nodes)}:{SOURCE_PORT}"
        for node, path in enumerate(lists):
            yield node, [f"servers {servers}", f"source {source}", f"node {node} - {path}"]


class Rclone(Processes):
    """A mount on each node, which shares nothing with the others. It drops whole files, ten times
    a second, until what is left fits."""

    def __init__(self, network, work, cache_bytes):
        super().__init__()
        self.network, self.memory = network, int(cache_bytes)
        self.mounts = [work / f"mount{node}" for node in range(network.nodes)]
        shutil.rmtree(RCLONE_CACHE, ignore_errors=True)
        source = f"http://{address(network.nodes)}:{SOURCE_PORT}/"
        try:
            for node, mount in enumerate(self.mounts):
                mount.mkdir(exist_ok=True)
                command = in_space(
                    node, "rclone", "mount", ":http:", mount, "--http-url", source, "--config", "",
                    "--read-only", "--cache-dir", RCLONE_CACHE / str(node),
                    "--vfs-cache-mode", "full", "--vfs-cache-max-size", f"{self.memory}b",
                    "--vfs-cache-poll-interval", "100ms", "--vfs-read-chunk-size", RCLONE_CHUNK,
                    "--vfs-read-chunk-size-limit", RCLONE_CHUNK, "--vfs-read-ahead", 0,
                    "--buffer-size", 0)
                self.processes[node] = start(command, work / f"rclone{node}.log",
                                             stdout=subprocess.DEVNULL)
            wait_for("rclone", lambda: all(os.path.ismount(mount) for mount in self.mounts))
        except BaseException:
            self.end()
            raise

    def end(self):
        super().end()
        for mount in self.mounts:
            # It has done so itself, unless it was killed.
            run("umount", "--lazy", mount, check=False)
        shutil.rmtree(RCLONE_CACHE, ignore_errors=True)

    @property
    def resident(self):
        return sum(path.stat().st_blocks * 512 for path in RCLONE_CACHE.glob("*/vfs/**/file*"))

    def status(self):
        """It has no figures that are of use."""

    def readers(self, lists):
        yield None, [f"folder {node} {self.mounts[node]} {path}"
                     for node, path in enumerate(lists)]
