#!/usr/bin/env python3
"""Figure 12 of the PCC paper, live: requests to the disk, bytes read and run time of the workloads
with the kernel's page cache, and with hither steering it by UBM and by PCC.

Each run has cgroups of its own (version 1: memory and blkio). Its memory limit is what the programs
need themselves (their greatest resident memory, in a run without a limit, and 16 MiB) and the
paper's share of their data for files. hither's agent runs within the limit, too. The disk reads
ahead up to 32 blocks, as in the paper. All ways take turns within a round, and before each run none
of the workload's files is cached. "simulated" is what `hither sim --readahead kernel` says of an
LRU cache of the same size.

    python3 live.py --hither target/release/hither --work /tmp/pcc --output results --rounds 3

--work is the folder of pcc.py, which has the data and the traces. Needs root. Writes live.md and
the raw runs, live.jsonl.
"""

import argparse
import json
import os
import resource
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
SLACK_MIB = 16
# Name, and the policy that steers; None: nothing does.
WAYS = {
    "kernel": None,
    "lru": "lru",
    "ubm, paper": "ubm{as=paper}",
    "pcc, paper": "pcc{as=paper}",
    "pcc": "pcc",
}


class Account:
    """A blkio cgroup, for as long as it is entered: what its processes ask the disk of a folder
    for."""

    def __init__(self, folder: Path):
        device = os.stat(folder).st_dev
        self.device = f"{os.major(device)}:{os.minor(device)}"

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
        return sum(int(line[2]) for line in words if line[1:2] == ["Read"])


class Resident:
    """The greatest resident memory of a cgroup's processes while it is entered."""

    def __init__(self, group: Path):
        self.stat, self.most, self.ended = group / "memory.stat", 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self) -> None:
        while not self.ended.wait(0.005):
            now = dict(map(str.split, self.stat.read_text().splitlines()))
            self.most = max(self.most, int(now["total_rss"]))

    def __enter__(self) -> "Resident":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()


class Readahead:
    """The disk of a folder reads ahead as far as in the paper, while this is entered."""

    def __init__(self, folder: Path):
        device = os.stat(folder).st_dev
        name = f"{os.major(device)}:{os.minor(device)}"
        self.file = Path(f"/sys/class/bdi/{name}/read_ahead_kb")

    def __enter__(self) -> None:
        self.before = self.file.read_text()
        self.file.write_text("128")

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

    def measured(self, name: str, policy: str | None, limit_mib: int) -> dict:
        """One run under a limit."""
        if "gcc" in (name, *workloads.MULTI.get(name, ())):
            self.made.clean()
        found = self.made.work.rglob("*")
        data = [path for path in found if path.is_file() and not path.is_symlink()]
        uncache([path for path in data if path != self.lab.hither])
        # So that nobody reads it for these cgroups.
        self.lab.hither.read_bytes()
        command = self.commands[name]
        owner = ["runuser", "-u", "postgres", "--"] if "serve.sh" in command else []
        hither = [self.lab.hither, "-q", "run", f"--page-cache={policy}", "--json", "--"]
        words = [*owner, *(hither if policy else []), "sh", "-c", command]
        with Group(limit_mib) as group, Account(self.made.work) as account:
            with Resident(group) as resident:
                measured = run(words, group, account)
        return {**measured, "resident_bytes": resident.most}

    def simulated(self, trace: Path, cache_mib: float) -> dict:
        """The reads of an LRU cache."""
        words = ["-p", "lru", "-s", f"{max(1, round(cache_mib))}MiB", "--readahead", "kernel"]
        return self.lab.json("sim", trace, *words)["results"][0]["reads"]


def relative(runs: dict[str, list[dict]], way: str, what: str) -> float | None:
    """The median over the rounds of a count in per cent of the kernel's in the same round."""
    pairs = zip(runs[way], runs["kernel"])
    ratios = [100 * one[what] / other[what] for one, other in pairs if other[what]]
    return statistics.median(ratios) if ratios else None


def shown(number: float | None) -> str:
    return "" if number is None else f"{number:.0f}"


def tables(rows: list[tuple]) -> str:
    """Markdown of what was measured."""
    text = "### What each workload had\n\n"
    heads = ["", "data, MB", "cache, MB", "own memory, MB", "kernel: requests", "simulated"]
    text += pcc.table(
        [*heads, "kernel: MiB read", "simulated", "kernel: s"],
        [
            [
                name,
                f"{data:.0f}",
                f"{cache:.0f}",
                f"{own:.0f}",
                f"{statistics.median(one['requests'] for one in runs['kernel']):,.0f}",
                f"{simulated['requests']:,}",
                f"{statistics.median(one['bytes'] for one in runs['kernel']) / MIB:,.0f}",
                f"{simulated['blocks'] * 4096 / MIB:,.0f}",
                f"{statistics.median(one['wall_s'] for one in runs['kernel']):.2f}",
            ]
            for name, data, cache, own, runs, simulated in rows
        ],
    )
    steered = [way for way, policy in WAYS.items() if policy]
    for what, title in (
        ("requests", "requests to the disk"),
        ("bytes", "bytes read"),
        ("wall_s", "run time"),
    ):
        ratios = [[relative(row[4], way, what) for way in steered] for row in rows]
        all_ = [[row[at] for row in ratios if row[at] is not None] for at in range(len(steered))]
        means = ["mean", *(shown(statistics.mean(one)) if one else "" for one in all_)]
        text += f"\n### Figure 12: {title}, in % of the kernel's\n\n"
        body = [[row[0], *map(shown, ratio)] for row, ratio in zip(rows, ratios)]
        text += pcc.table(["", *steered], [*body, means])
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
    parser.add_argument("--quick", action="store_true", help="tiny workloads, one round")
    arguments = parser.parse_args()
    rounds = 1 if arguments.quick else arguments.rounds
    if os.geteuid() != 0 or not (BLKIO / "blkio.throttle.io_serviced").exists():
        print("not run: it takes root, and cgroups of version 1 for memory and blkio")
        return
    os.environ["LC_ALL"] = "C"
    for folder in (arguments.work, arguments.output):
        folder.mkdir(parents=True, exist_ok=True)
    live = Live(arguments)
    names = arguments.only.split(",") if arguments.only else list(pcc.PAPER)
    raw, rows = [], []
    with Readahead(arguments.work):
        for name in names:
            if name not in live.commands:
                print(f"not run: {name}, whose programs are not installed", file=sys.stderr)
                continue
            trace = live.made.record(live.lab.hither, live.lab.traces, name, live.commands[name])
            about = live.lab.json("stat", trace)["stats"]
            data_mib = about["blocks"] * about["block_bytes"] / MIB
            alone = live.measured(name, None, 1 << 20)
            own_mib = alone["resident_bytes"] / MIB + SLACK_MIB
            cache_mib = data_mib * pcc.CACHES[name] / pcc.PAPER[name][1]
            runs = {way: [] for way in WAYS}
            for turn in range(rounds):
                ways = list(WAYS.items())
                for way, policy in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                    if policy and cache_mib < STEERED_MIN_MIB:
                        continue
                    one = live.measured(name, policy, round(own_mib + cache_mib))
                    runs[way].append(one)
                    raw.append({"workload": name, "way": way, "turn": turn, **one})
                    print(f"{name}, {way}: {one['requests']} requests, {one['wall_s']:.2f} s")
            simulated = live.simulated(trace, cache_mib)
            rows.append((name, data_mib, cache_mib, own_mib, runs, simulated))
    (arguments.output / "live.md").write_text(tables(rows))
    (arguments.output / "live.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in raw))


if __name__ == "__main__":
    main()
