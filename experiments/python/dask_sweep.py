#!/usr/bin/env python3
"""What a sweep by Dask costs beside one on one machine, and that its output has the same bytes.

    dask_sweep.py --work DIR [--references 1M] [--shards 16,64] [--output FILE]

Needs the Python package `hither`, `distributed` and aiohttp. Generates 8 traces, and simulates 12
policies at 8 sizes on each:

- in one process, with one thread and with all processors;
- by a LocalCluster of two workers with a thread each, in as many tasks as --shards says;
- by two workers that were started apart (`dask worker`), with the traces in the file system and
  by http, from a server on this machine;
- by those, one of which is killed when a fourth of the tasks is done.

*Work* is the processor time of the sweep in one process with one thread, the median of three: at
the beginning, in the middle and at the end. *Commands* is the
processor time of the commands that the tasks run, so what is above the work is what cutting the
sweep costs: traces that several tasks read, and starts of processes. *Dask* is the processor time
of all Python processes during the sweep: workers, scheduler and client, with fetching. The
overhead is what both are above the work. Processor time is compared since other programs' load
changes it little; wall times are those of a machine with whatever else runs. Of a worker that was
killed nobody knows the time, so there only the wall time is told.

Prints a table, and writes it to --output. Fails if any output differs.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import sysconfig
import threading
import time

import distributed

import hither

PATTERNS = [
    ["zipf{blocks=100k,skew=0.8}"],
    ["zipf{blocks=200k,skew=1}"],
    ["zipf{blocks=400k,skew=1.2}"],
    ["loop{blocks=50k}", "zipf{blocks=100k,skew=1}"],
    ["scan", "zipf{blocks=100k,skew=0.9}"],
    ["loop{blocks=20k}", "loop{blocks=80k}"],
    ["nested", "zipf{blocks=50k,skew=1}"],
    ["shifting", "scan"],
]
POLICIES = ["lru", "fifo", "clock", "sieve", "s3-fifo", "lfu", "arc", "2q", "lirs", "car",
            "w-tinylfu", "opt"]
SIZES = ["0.5%", "1%", "2%", "5%", "10%", "20%", "40%", "60%"]
ONE_THREAD = "one process, 1 thread"
COMMAND = pathlib.Path(sysconfig.get_path("scripts"), "hither")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--references", default="1M", help="of each trace [default: 1M]")
    parser.add_argument("--shards", default="16,64", help="tasks of a sweep [default: 16,64]")
    parser.add_argument("--output", type=pathlib.Path, help="a file for the table")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    traces = generated(work, arguments.references)
    counts = [int(count) for count in arguments.shards.split(",")]
    table = Table(work, traces)
    table.one_process(threads=1)
    table.one_process(threads=os.cpu_count())
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    for count in counts:
        with distributed.LocalCluster(**settings) as cluster:
            with distributed.Client(cluster) as client:
                table.sweep("LocalCluster of 2", client, count)
    table.one_process(threads=1)
    for count in counts:
        with apart(work) as (client, _):
            table.sweep("2 workers apart", client, count)
    with apart(work) as (client, _), served(work) as address:
        table.sweep("2 workers apart, http", client, counts[-1], address=address)
    with apart(work) as (client, workers):
        table.sweep("one of 2 is killed", client, counts[-1], kill=workers[0])
    table.one_process(threads=1)
    print(table)
    if arguments.output:
        arguments.output.write_text(f"{table}\n")


def generated(work, references):
    """Generates the traces that are not there."""
    paths = []
    for number, patterns in enumerate(PATTERNS):
        path = work / f"{number}.oracleGeneral"
        if not path.exists():
            subprocess.run([COMMAND, "gen", "--quiet", *patterns, "-n", references, "--seed",
                            str(number), "--format", "oracle-general", "-o", path], check=True)
        paths.append(path)
    return paths


class Table:
    """Does the sweeps, and notes what each cost."""

    def __init__(self, work, traces):
        self.work = work
        self.traces = traces
        self.rows = []
        self.expected = None

    def __str__(self):
        work_s = statistics.median(self.works())
        lines = ["| sweep | tasks | wall, s | commands, s | Dask, s | overhead | a task |",
                 "|---|--:|--:|--:|--:|--:|--:|"]
        for name, count, wall, commands, own in self.rows:
            texts = [name, str(count), f"{wall:.1f}"]
            texts += ["" if value is None else f"{value:.1f}" for value in (commands, own)]
            above = None if own is None else commands + own - work_s
            texts += ["" if above is None else f"{100 * above / work_s:.1f} %",
                      "" if above is None else f"{1000 * above / count:.0f} ms"]
            lines.append(f"| {' | '.join(texts)} |")
        return "\n".join(lines)

    def works(self):
        return [commands for name, _, _, commands, _ in self.rows if name == ONE_THREAD]

    def one_process(self, threads):
        output = self.work / "one.csv"
        words = [COMMAND, "sweep", "--quiet", "--force", "-o", output, "-p", ",".join(POLICIES),
                 "-s", ",".join(SIZES), *(f"--trace={trace}" for trace in self.traces)]
        words += ["--threads", str(threads)]
        before, start = seconds(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(words, check=True)
        wall = time.monotonic() - start
        commands = seconds(resource.RUSAGE_CHILDREN) - before
        self.expected = self.expected or output.read_bytes()
        assert output.read_bytes() == self.expected
        name = ONE_THREAD if threads == 1 else f"one process, {threads} threads"
        self.row(name, 1, wall, commands, None)

    def sweep(self, name, client, count, address=None, kill=None):
        output = self.work / "out.csv"
        traces = [f"{address}/{trace.name}" if address else trace for trace in self.traces]
        if kill is not None:
            killer = threading.Thread(target=self.kill, args=(kill, output, count // 4))
            killer.start()
        before, start = spent(client), time.monotonic()
        hither.sweep(traces=traces, policies=POLICIES, sizes=SIZES, output=output, force=True,
                     executor=client, shards=count)
        wall = time.monotonic() - start
        found = output.read_bytes()
        if address:
            found = found.replace(address.encode(), bytes(self.work))
        assert found == self.expected, f"{name}: other bytes"
        if kill is not None:
            killer.join()
            self.row(name, count, wall, None, None)
            return
        commands, own = (after - before for after, before in zip(spent(client), before))
        self.row(name, count, wall, commands, own)

    @staticmethod
    def kill(worker, output, done):
        while len(list(output.parent.glob(f"{output.name}.shard-*"))) < done:
            time.sleep(0.01)
        os.killpg(worker.pid, signal.SIGKILL)

    def row(self, *row):
        self.rows.append(row)
        print(f"{row[0]}, {row[1]} tasks: {row[2]:.1f} s", file=sys.stderr, flush=True)


def seconds(who):
    """The processor time of this process, or of the children that it has waited for."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def spent(client):
    """The processor time of all commands, and that of all Python processes."""
    both = functools.partial(map_seconds, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF))
    times = {**client.run(both), "client": both()}
    scheduler = client.run_on_scheduler(both)
    if scheduler[2] != os.getpid():
        times["scheduler"] = scheduler
    return [sum(time[which] for time in times.values()) for which in (0, 1)]


def map_seconds(kinds):
    return [*(seconds(kind) for kind in kinds), os.getpid()]


@contextlib.contextmanager
def apart(work):
    """A scheduler and two workers, each in a process of its own, and a client of them."""
    file = work / "scheduler.json"
    file.unlink(missing_ok=True)
    started = []

    def start(*words):
        words = [sys.executable, "-m", "dask", *words, "--scheduler-file", str(file)]
        started.append(subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        while not file.exists():
            time.sleep(0.1)
        for number in range(2):
            start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard",
                  "--local-directory", str(work / f"worker-{number}"))
        with distributed.Client(scheduler_file=str(file)) as client:
            client.wait_for_workers(2)
            yield client, started[1:]
    finally:
        for child in reversed(started):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextlib.contextmanager
def served(work):
    """The address of a server of a folder."""
    child = subprocess.Popen(
        [sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", work,
         "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        # Serving HTTP on 127.0.0.1 port 40000 (http://127.0.0.1:40000/) ...
        yield child.stdout.readline().split("(")[1].split("/)")[0]
    finally:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
