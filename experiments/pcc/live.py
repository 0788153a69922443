#!/usr/bin/env python3
"""Figure 12 of the PCC paper, live: requests to the disk, bytes read and run time of the workloads
with the kernel's page cache, and with hither steering it by UBM and by PCC.

The paper's kernel has a cache of files of a fixed size, the paper's share of the workload's data
here. hither's LRU, UBM and PCC have it by `--cache`, and steer from the first access to the last
(`--always`). The kernel alone has it by a memory cgroup, whose limit is that size, what the
programs need themselves (their greatest memory that is not cache of files, in a run without a
limit) and 4 MiB for short peaks. The disk reads ahead up to 32 blocks, as in the paper. All ways
take turns within a round, and before each run none of the workload's files is cached. What is read
from the disk is what a blkio cgroup (version 1) counts. "Simulated" is what `hither sim --readahead
128KiB` says of the same policy, in a cache of that size, with the blocks of 16 KiB that hither
steers by; for the kernel, of LRU with blocks of 4 KiB in a cache of the size that the kernel's had
at most.

    python3 live.py --hither target/release/hither --work /tmp/pcc --output results --rounds 3

--work is the folder of pcc.py, which has the data and the traces. Needs root. Writes live.md and
the raw runs, live.jsonl, run by run; --resume takes those that are there. --quick has two tiny
workloads and one round.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "page_cache")]
import pcc  # noqa: E402
import workloads  # noqa: E402
from page_cache import Group, uncache  # noqa: E402

MIB = 1 << 20
BLKIO = Path("/sys/fs/cgroup/blkio")
# The least cache that hither steers.
STEERED_MIN_MIB = 8
# What short peaks of the programs' memory may take beyond what was seen of them.
SLACK_MIB = 4
READAHEAD_KIB = 128
LIVE_BLOCK = "16KiB"
QUICK = "cscope,glimpse"
# Name, and the policy that steers; None: nothing does.
WAYS = {
    "kernel": None,
    "lru": "lru",
    "ubm, paper": "ubm{as=paper}",
    "pcc, paper": "pcc{as=paper}",
    "pcc": "pcc",
}
STEERED = [way for way, policy in WAYS.items() if policy]


def disk(folder: Path) -> str:
    """The number of the disk that a folder is on, of the whole disk for a partition."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    block = Path(f"/sys/dev/block/{number}").resolve()
    whole = block.parent if (block / "partition").exists() else block
    if not (whole / "dev").exists():
        sys.exit(f"{folder}: its file system is on no disk")
    return (whole / "dev").read_text().strip()


class Account:
    """A blkio cgroup, for as long as it is entered: what its processes ask the disk of a folder
    for."""

    def __init__(self, folder: Path):
        self.device = disk(folder)

    def __enter__(self) -> "Account":
        self.folder = BLKIO / f"live-{os.getpid()}"
        self.folder.mkdir()
        # The kernel counts where something is limited.
        (self.folder / "blkio.throttle.read_bps_device").write_text(f"{self.device} {1 << 50}")
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.rmdir()

    def reads(self, what: str) -> int:
        words = map(str.split, (self.folder / f"blkio.throttle.{what}").read_text().splitlines())
        return sum(int(line[2]) for line in words if line[:2] == [self.device, "Read"])


class Memory:
    """The greatest memory of a cgroup while it is entered: its processes' own, and its cache of
    files."""

    def __init__(self, group: Path):
        self.stat, self.own, self.files, self.ended = group / "memory.stat", 0, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while not self.ended.wait(0.005):
            now = dict(map(str.split, self.stat.read_text().splitlines()))
            shared = int(now["total_shmem"])
            self.own = max(self.own, int(now["total_rss"]) + shared)
            self.files = max(self.files, int(now["total_cache"]) - shared)

    def __enter__(self) -> "Memory":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


class Readahead:
    """The disk of a folder reads ahead as far as in the paper, while this is entered."""

    def __init__(self, folder: Path):
        self.file = Path(f"/sys/class/bdi/{disk(folder)}/read_ahead_kb")

    def __enter__(self) -> None:
        self.before = self.file.read_text()
        self.file.write_text(str(READAHEAD_KIB))

    def __exit__(self, *_: object) -> None:
        self.file.write_text(self.before)


def run(command: list, group: Path, account: Account) -> dict:
    """Runs a command in both cgroups."""
    script = f'echo $$ > {group}/cgroup.procs; echo $$ > {account.folder}/cgroup.procs; exec "$@"'
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ran = subprocess.run(
        ["sh", "-c", script, "sh", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd="/",
    )
    if ran.returncode != 0:
        sys.exit(f"{command}: exit status {ran.returncode}\n{ran.stderr}")
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    said = [line for line in ran.stderr.splitlines() if line.startswith("{")]
    return {
        "wall_s": wall_s,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "requests": account.reads("io_serviced"),
        "bytes": account.reads("io_service_bytes"),
        "hither": json.loads(said[-1]) if said else None,
    }


class Live:
    """The workloads, run."""

    def __init__(self, arguments: argparse.Namespace):
        self.lab = pcc.Lab(arguments.hither, arguments.work.resolve())
        self.made = workloads.Workloads(
            arguments.work.resolve(), arguments.tree, arguments.scale, arguments.quick
        )
        self.commands = self.made.commands()
        if workloads.server():
            # hither runs as the database's owner beside glimpse, and steers no files of which it
            # may not ask what is cached.
            owned = [one for one in ("tree", "glimpse") if (self.made.work / one).exists()]
            subprocess.run(["chown", "-R", "postgres", *owned], cwd=self.made.work, check=True)

    def measured(
        self, name: str, policy: str | None = None, cache_mib: int = 0, limit_mib: int = 1 << 20
    ) -> dict:
        """One run, by a policy in a cache of this size, or by the kernel under a limit."""
        if "gcc" in (name, *workloads.MULTI.get(name, ())):
            self.made.clean()
        found = (Path(at, file) for at, _, files in os.walk(self.made.work) for file in files)
        data = [path for path in found if path.is_file() and not path.is_symlink()]
        uncache([path for path in data if path != self.lab.hither])
        # So that nobody reads it for these cgroups.
        self.lab.hither.read_bytes()
        command = self.commands[name]
        owner = ["runuser", "-u", "postgres", "--"] if "serve.sh" in command else []
        hither = [self.lab.hither, "-q", "run", f"--page-cache={policy}", "--always"]
        hither += ["--cache", f"{cache_mib}MiB", "--keep-readahead", "--json", "--"]
        words = [*owner, *(hither if policy else []), "sh", "-c", command]
        with Group(limit_mib) as group, Account(self.made.work) as account:
            with Memory(group) as memory:
                measured = run(words, group, account)
        return {**measured, "own_bytes": memory.own, "cache_bytes": memory.files}

    def simulated(self, trace: Path, policy: str, cache_mib: float, block: str) -> dict:
        """The reads of a simulated cache."""
        words = ["-p", policy, "-s", f"{max(1, round(cache_mib))}MiB", "--block", block]
        words += ["--readahead", f"{READAHEAD_KIB}KiB"]
        return self.lab.json("sim", trace, *words)["results"][0]["reads"]


def middle(runs: list[dict], what: str) -> float:
    return statistics.median(run[what] for run in runs)


def relative(runs: dict[str, list[dict]], way: str, base: str, what: str) -> float | None:
    """The median over the rounds of a count in per cent of another way's in the same round."""
    pairs = zip(runs[way], runs[base])
    ratios = [100 * one[what] / other[what] for one, other in pairs if other[what]]
    return statistics.median(ratios) if ratios else None


def shown(number: float | None) -> str:
    return "" if number is None else f"{number:.0f}"


def tables(rows: list[dict]) -> str:
    """Markdown of what was measured."""
    text = "### What each workload had\n\n"
    heads = ["", "data, MB", "own memory, MB", "cache, MB", "the kernel's at most, MB"]
    text += pcc.table(
        [*heads, "kernel: s"],
        [
            [
                row["name"],
                f"{row['data_mib']:.0f}",
                f"{row['own_mib']:.0f}",
                f"{row['cache_mib']:.1f}",
                f"{row['held_mib']:.1f}",
                f"{middle(row['runs']['kernel'], 'wall_s'):.2f}",
            ]
            for row in rows
        ],
    )
    for what, title, unit in (
        ("requests", "requests to the disk", 1),
        ("bytes", "MiB read", MIB),
    ):
        text += f"\n### {title[0].upper()}{title[1:]}: measured and simulated\n\n"
        body = []
        for row in rows:
            cells = [row["name"]]
            for way in WAYS:
                runs, simulated = row["runs"][way], row["simulated"].get(way)
                measured = f"{middle(runs, what) / unit:,.0f}" if runs else ""
                known = simulated and what in simulated
                cells += [measured, f"{simulated[what] / unit:,.0f}" if known else ""]
            body.append(cells)
        text += pcc.table(["", *(head for way in WAYS for head in (way, "simulated"))], body)
    text += "\n### Simulated with the kernel's blocks of 4 KiB: requests, in % of lru's\n\n"
    parts = [
        [100 * row["pages"][way]["requests"] / row["pages"]["lru"]["requests"] for way in STEERED]
        for row in rows
    ]
    body = [[row["name"], *map(shown, part)] for row, part in zip(rows, parts)]
    means = map(statistics.mean, zip(*parts))
    text += pcc.table(["", *STEERED], [*body, ["mean", *map(shown, means)]])
    for base, ways in (("lru", STEERED[1:]), ("kernel", STEERED)):
        for what, title in (
            ("requests", "requests to the disk"),
            ("bytes", "bytes read"),
            ("wall_s", "run time"),
        ):
            ratios = [[relative(row["runs"], way, base, what) for way in ways] for row in rows]
            text += f"\n### Figure 12: {title}, in % of {base}'s\n\n"
            body = [[row["name"], *map(shown, ratio)] for row, ratio in zip(rows, ratios)]
            means = [
                statistics.mean(found) if (found := [one for one in all_ if one]) else None
                for all_ in zip(*ratios)
            ]
            text += pcc.table(["", *ways], [*body, ["mean", *map(shown, means)]])
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="the folder of pcc.py")
    parser.add_argument("--output", type=Path, required=True, help="folder for the results")
    parser.add_argument("--tree", type=Path, help="as pcc.py's")
    parser.add_argument("--scale", type=float, default=1.0, help="as pcc.py's")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="workloads, with commas between")
    parser.add_argument("--resume", action="store_true", help="keep the runs that are there")
    parser.add_argument("--quick", action="store_true", help="tiny workloads, one round")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    if os.geteuid() != 0 or not (BLKIO / "blkio.throttle.io_serviced").exists():
        print("not run: it takes root, and cgroups of version 1 for memory and blkio")
        return
    # So that the readahead is restored.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ["LC_ALL"] = "C"
    for folder in (arguments.work, arguments.output):
        folder.mkdir(parents=True, exist_ok=True)
    live = Live(arguments)
    only = arguments.only or (QUICK if arguments.quick else None)
    names = only.split(",") if only else list(pcc.PAPER)
    rows = []
    file = arguments.output / "live.jsonl"
    done = {}
    if arguments.resume and file.exists():
        for run in map(json.loads, file.read_text().splitlines()):
            done[run["workload"], run["way"], run["turn"]] = run
    with Readahead(arguments.work), file.open("w") as raw:

        def once(name: str, way: str, turn: int, *what: object) -> dict:
            """A run, measured now or before."""
            run = done.get((name, way, turn))
            if run is None:
                measured = live.measured(name, *what)
                run = {"workload": name, "way": way, "turn": turn, **measured}
                print(f"{name}, {way}: {run['requests']} requests, {run['wall_s']:.2f} s")
            print(json.dumps(run), file=raw, flush=True)
            return run

        for name in names:
            if name not in live.commands:
                print(f"not run: {name}, whose programs are not installed", file=sys.stderr)
                continue
            trace = live.made.record(live.lab.hither, live.lab.traces, name, live.commands[name])
            about = live.lab.json("stat", trace)["stats"]
            data_mib = about["blocks"] * about["block_bytes"] / MIB
            own_mib = once(name, "alone", 0)["own_bytes"] / MIB + SLACK_MIB
            cache_mib = data_mib * pcc.CACHES[name] / pcc.PAPER[name][1]
            runs = {way: [] for way in WAYS}
            for turn in range(rounds):
                ways = list(WAYS)
                for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                    if way == "kernel":
                        what = (None, 0, round(own_mib + cache_mib))
                    else:
                        what = (WAYS[way], round(cache_mib))
                    if way == "kernel" or cache_mib >= STEERED_MIN_MIB:
                        runs[way].append(once(name, way, turn, *what))
            held_mib = middle(runs["kernel"], "cache_bytes") / MIB
            simulated = {"kernel": live.simulated(trace, "lru", held_mib, "4KiB")}
            # The last block of a file is not a whole one, which only matters for large blocks.
            simulated["kernel"]["bytes"] = 4096 * simulated["kernel"]["blocks"]
            for way in STEERED:
                if runs[way]:
                    simulated[way] = live.simulated(trace, WAYS[way], cache_mib, LIVE_BLOCK)
            pages = {way: live.simulated(trace, WAYS[way], cache_mib, "4KiB") for way in STEERED}
            rows.append(
                {
                    "name": name,
                    "data_mib": data_mib,
                    "own_mib": own_mib,
                    "cache_mib": cache_mib,
                    "held_mib": held_mib,
                    "runs": runs,
                    "simulated": simulated,
                    "pages": pages,
                }
            )
            (arguments.output / "live.md").write_text(tables(rows))


if __name__ == "__main__":
    main()
