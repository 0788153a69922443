"""What files.py and databases.py share: memory cgroups, the kernel's alternatives to LRU, and one
measured run.

A run has two cgroups, one in the other. The inner one has the limit. The outer one counts, so that
an agent that leaves the inner one is counted as well. Both need root. With version 1 the disk and
the CPU are counted by groups of the same name in the controllers blkio and cpuacct.

What counts is what the kernel charges to the processes (getrusage): it is there with both versions.
The disk's counter of version 1 stays at 0 where no group has a limit of bandwidth (Linux 6.18).
"""

import contextlib
import ctypes
import hashlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")
LRU_GEN = Path("/sys/kernel/mm/lru_gen/enabled")
DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
# A run that takes longer is killed, and fails.
LONGEST_RUN_S = 1800


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def read(path: Path) -> str:
    """The text of a file, or nothing."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cgroup_version() -> int:
    """2, 1, or 0 where no memory cgroup can be made."""
    if os.geteuid() != 0:
        return 0
    if (CGROUPS / "memory" / "memory.limit_in_bytes").exists():
        return 1
    return 2 if "memory" in read(CGROUPS / "cgroup.controllers").split() else 0


class Group:
    """The cgroups of one run, for as long as they are entered. What is left in them at the end is
    killed."""

    def __init__(self, limit_mib: int, name: str = "files") -> None:
        self.name = f"{name}-{os.getpid()}"
        self.limit_mib = limit_mib
        self.version = cgroup_version()
        self.counting: dict[str, Path] = {}
        self.limited = Path()

    def __enter__(self) -> "Group":
        roots = {"memory": CGROUPS, "io": CGROUPS, "cpu": CGROUPS}
        if self.version == 1:
            roots = {"memory": CGROUPS / "memory", "io": CGROUPS / "blkio"}
            roots["cpu"] = CGROUPS / "cpuacct"
        for controller, root in roots.items():
            if root.exists():
                self.counting[controller] = root / self.name
                self.counting[controller].mkdir(exist_ok=True)
        self.limited = self.counting["memory"] / "limited"
        if self.version == 2:
            for folder in (CGROUPS, self.counting["memory"]):
                for controller in roots:
                    with contextlib.suppress(OSError):
                        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
        self.limited.mkdir()
        limit = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.limited / limit).write_text(str(self.limit_mib * MIB))
        return self

    def enter(self) -> str:
        """Shell commands that put the shell into the groups."""
        folders = [self.limited]
        if self.version == 1:
            folders += [self.counting[name] for name in ("io", "cpu") if name in self.counting]
        return "".join(f"echo $$ > {folder}/cgroup.procs; " for folder in folders)

    def folders(self) -> list[Path]:
        return [self.limited, *dict.fromkeys(self.counting.values())]

    def members(self) -> set[int]:
        lists = [read(folder / "cgroup.procs") for folder in self.folders()]
        return {int(word) for words in lists for word in words.split()}

    def disk_bytes(self) -> tuple[int, int]:
        """Read and written. Of several devices the one with the most counts: a logical volume and
        the disk below it count the same bytes."""
        folder = self.counting.get("io", Path("/nowhere"))
        found: dict[str, dict[str, int]] = {}
        for line in read(folder / "blkio.throttle.io_service_bytes_recursive").splitlines():
            words = line.split()
            if len(words) == 3:
                found.setdefault(words[0], {})[words[1]] = int(words[2])
        for line in read(folder / "io.stat").splitlines():
            device, *pairs = line.split()
            values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            found[device] = {
                "Read": int(values.get("rbytes", 0)),
                "Write": int(values.get("wbytes", 0)),
            }
        return tuple(
            max((device.get(way, 0) for device in found.values()), default=0)
            for way in ("Read", "Write")
        )

    def cpu_s(self) -> float:
        folder = self.counting.get("cpu", Path("/nowhere"))
        if usage := read(folder / "cpuacct.usage"):
            return int(usage) / 1e9
        stat = dict(line.split() for line in read(folder / "cpu.stat").splitlines())
        return int(stat.get("usage_usec", 0)) / 1e6

    def memory(self) -> dict[str, int]:
        """Pages that came back soon after they were evicted, and the most memory in use."""
        stat = dict(line.split()[:2] for line in read(self.limited / "memory.stat").splitlines())
        name = "workingset_refault_file"
        peak = read(self.limited / "memory.peak")
        peak = peak or read(self.limited / "memory.max_usage_in_bytes")
        refaults = stat.get(f"total_{name}") or stat.get(name, 0)
        return {"refaults": int(refaults), "peak_bytes": int(peak or 0)}

    def empty(self) -> int:
        """Waits for the members to end, kills those that do not, and returns how many it killed."""
        deadline, killed = time.monotonic() + 5, set()
        while members := self.members():
            if time.monotonic() > deadline:
                killed |= members
                for member in members:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(member, signal.SIGKILL)
            time.sleep(0.02)
        return len(killed)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            for member in self.members():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
        self.empty()
        reap()
        for folder in self.folders():
            for _ in range(50):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.02)


def uncache(paths: list[Path]) -> None:
    """Drops these files, and those in these folders, from the page cache."""
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            if file.is_symlink() or not file.is_file():
                continue
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextlib.contextmanager
def mglru(on: bool) -> Iterator[None]:
    """The multi-generational LRU on or off, for as long as this is entered."""
    before = read(LRU_GEN)
    if not before:
        yield
        return
    LRU_GEN.write_text("y" if on else "n")
    try:
        yield
    finally:
        LRU_GEN.write_text(before)


# DAMON schemes by name: action, fewest and most accesses of an interval, the least age in
# intervals. Intervals are of 100 ms. "lru" does what CONFIG_DAMON_LRU_SORT does.
SCHEMES = {
    "damos-lru": [("lru_prio", 1, 20, 0), ("lru_deprio", 0, 0, 10)],
    "damos-pageout": [("pageout", 0, 0, 20)],
}


def without_damon() -> str:
    """Why no DAMON scheme can run here, or nothing."""
    if not DAMON.exists():
        return "this kernel has no DAMON in sysfs"
    count = int(read(DAMON / "nr_kdamonds") or 0)
    if any(read(DAMON / str(number) / "state") == "on" for number in range(count)):
        return "somebody else's DAMON scheme runs on this machine"
    return ""


def memory_regions() -> list[tuple[int, int]]:
    """The physical addresses of memory."""
    found = []
    for line in Path("/proc/iomem").read_text().splitlines():
        addresses, _, name = line.partition(" : ")
        if name.strip() == "System RAM" and not line.startswith(" "):
            start, end = (int(word, 16) for word in addresses.split("-"))
            found.append((start, end + 1))
    return found


@contextlib.contextmanager
def damos(name: str, group: Group) -> Iterator[None]:
    """DAMON schemes on the pages of the limited group, for as long as this is entered."""

    def write(folder: Path, values: dict[str, object]) -> None:
        for file, value in values.items():
            (folder / file).write_text(str(value))

    try:
        write(DAMON, {"nr_kdamonds": 1})
        write(DAMON / "0/contexts", {"nr_contexts": 1})
        context = DAMON / "0/contexts/0"
        write(context, {"operations": "paddr", "targets/nr_targets": 1})
        # The kernel's default of 1,000 regions makes them some 24 MiB large in 24 GiB.
        write(context / "monitoring_attrs/nr_regions", {"max": 10_000})
        write(context / "targets/0/regions", {"nr_regions": len(memory_regions())})
        for number, (start, end) in enumerate(memory_regions()):
            write(context / f"targets/0/regions/{number}", {"start": start, "end": end})
        write(context / "schemes", {"nr_schemes": len(SCHEMES[name])})
        for number, (action, fewest, most, age) in enumerate(SCHEMES[name]):
            scheme = context / f"schemes/{number}"
            write(scheme, {"action": action})
            pattern = {"sz/min": 0, "sz/max": 2**64 - 1, "age/min": age, "age/max": 2**32 - 1}
            pattern |= {"nr_accesses/min": fewest, "nr_accesses/max": most}
            write(scheme / "access_pattern", pattern)
            filters = scheme / "filters"
            write(filters, {"nr_filters": 1})
            root = CGROUPS / "memory" if group.version == 1 else CGROUPS
            path = f"/{group.limited.relative_to(root)}"
            # What does not match is left out: only pages of this group pass.
            write(filters / "0", {"type": "memcg", "memcg_path": path, "matching": "N"})
        write(DAMON / "0", {"state": "on"})
        yield
    finally:
        with contextlib.suppress(OSError):
            write(DAMON / "0", {"state": "off"})
        with contextlib.suppress(OSError):
            write(DAMON, {"nr_kdamonds": 0})


@dataclass
class Run:
    """A command in a memory cgroup."""

    command: list[str]
    limit_mib: int
    # None of these is cached when the command starts.
    files: list[Path]
    scheme: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def measure(run: Run) -> dict:
    """Runs it and returns what it cost. Its output is returned as a hash, its errors as text."""
    uncache(run.files)
    with contextlib.ExitStack() as stack:
        group = stack.enter_context(Group(run.limit_mib))
        if run.scheme in SCHEMES:
            stack.enter_context(damos(run.scheme, group))
        elif LRU_GEN.exists():
            stack.enter_context(mglru(run.scheme == "mglru"))
        out = stack.enter_context(tempfile.TemporaryFile())
        errors = stack.enter_context(tempfile.TemporaryFile())
        load, start = os.getloadavg()[0], time.perf_counter()
        child = subprocess.Popen(
            ["sh", "-c", f'{group.enter()}exec "$@"', "sh", *run.command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env=os.environ | {"LC_ALL": "C"} | run.environment,
            # The terminal's Ctrl-C is for this script, which then kills the group.
            start_new_session=True,
        )
        signal.alarm(LONGEST_RUN_S)
        _, status, usage = os.wait4(child.pid, 0)
        signal.alarm(0)
        wall_s = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        left_over = group.empty()
        usages = [usage, *reap()]
        of_group = group.disk_bytes()
        out.seek(0)
        errors.seek(0)
        return {
            "status": child.returncode,
            "wall_s": round(wall_s, 4),
            "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in usages), 4),
            "cpu_s_cgroup": round(group.cpu_s(), 4),
            "read_bytes": sum(one.ru_inblock for one in usages) * 512,
            "read_bytes_cgroup": of_group[0],
            "written_bytes": sum(one.ru_oublock for one in usages) * 512,
            "written_bytes_cgroup": of_group[1],
            **group.memory(),
            "left_over": left_over,
            "load": load,
            "output": hashlib.sha256(out.read()).hexdigest()[:16],
            "errors": errors.read().decode(errors="replace"),
        }


def adopt() -> None:
    """Makes this script the parent of servers that outlive theirs, so that it is told what they
    used. Of a child that nobody waits for (its parent ignores SIGCHLD) nothing is known."""
    # From linux/prctl.h.
    subreaper = 36
    if ctypes.CDLL(None, use_errno=True).prctl(subreaper, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap() -> list[resource.struct_rusage]:
    """What ended children used."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.wait4(-1, os.WNOHANG))[0]:
            found.append(ended[2])
    return found


def on_alarm(*_: object) -> None:
    raise TimeoutError(f"a run took more than {LONGEST_RUN_S} s")


def prepare() -> None:
    """Makes TERM and HUP end the script as Ctrl-C does, with all that is to be undone, and this
    script the parent of what it starts."""
    adopt()

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    signal.signal(signal.SIGALRM, on_alarm)


def machine(work: Path) -> dict:
    """What the figures depend on."""
    model = [line for line in read(Path("/proc/cpuinfo")).splitlines() if "model name" in line]
    kernel = os.uname()
    described = {
        "kernel": kernel.release,
        "cpu": model[0].partition(": ")[2] if model else kernel.machine,
        "cpus": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * resource.getpagesize() // MIB,
        "cgroup_version": cgroup_version(),
        "mglru": read(LRU_GEN) or "not in this kernel",
        "damon": without_damon() or "free",
    }
    device = os.stat(work).st_dev
    queue = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/queue")
    described["readahead_kib"] = read(queue / "read_ahead_kb") or "unknown"
    return described
