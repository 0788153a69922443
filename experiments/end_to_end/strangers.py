#!/usr/bin/env python3
"""Sixteen programs that hither was not made for: does recording work, and what does it cost?

Runs each program (strangers_programs.py) plain and under `hither record` in turn, and once under
both `hither record` and `strace -f -y`, since some programs do not read the same bytes in each run.
Reports whether the output stayed the same; the bytes read of files, recorded against strace's of
the same run; the share of what was read that the recorder says it saw; the CPU time of the whole
tree, user and system, hither's own and the writing of the trace included, as a ratio within each
pair; and the verdict of `hither advise`. All data are cached. A server is loaded by a client
outside of the tree that is measured, so that the client's CPU time never counts.

Goals: at most 1.25 times the CPU time for rsync, cargo, RocksDB and nginx, at most 1.05 for the
others; bytes within 0.1 %. A missed goal is marked, and is no error. Another output, or a program
that fails, is.

Installs what it needs, as root: Debian packages, PyPI packages into a virtual environment, npm
packages into a folder. Needs 3 GB below --work. Prints Markdown; writes all runs as JSON to
--results.

    python3 experiments/end_to_end/strangers.py --hither target/release/hither \\
        --work /tmp/strangers --pairs 5
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coverage import strace, traced_bytes
from strangers_programs import PROGRAMS, Program

import by_program
import machine
from workloads import Kit

BYTES_GOAL = 0.001
# Of one program, its client included.
LONGEST_RUN_S = 300


def wait_until(ready: str, child: subprocess.Popen) -> None:
    """Until the server answers."""
    end = time.monotonic() + 60
    while subprocess.run(["sh", "-c", ready], capture_output=True).returncode != 0:
        if child.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the server does not answer: {ready}")
        time.sleep(0.05)


def run(program: Program, before: list[str]) -> dict:
    """Runs a program behind these words, and returns what its tree of processes cost."""
    program.reset()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        load, start = os.getloadavg()[0], time.perf_counter()
        child = subprocess.Popen(
            [*before, "sh", "-c", program.command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
        )
        if program.client:
            wait_until(program.ready, child)
            client = ["sh", "-c", program.client]
            subprocess.run(client, stdout=out, stderr=errors, timeout=LONGEST_RUN_S)
            os.kill(int(program.pid.read_text()), signal.SIGTERM)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall_s = time.perf_counter() - start
        # Those whose parents did not wait for them.
        usages = [usage, *machine.reap()]
        out.seek(0)
        errors.seek(0)
        output = hashlib.sha256(out.read())
        if program.result:
            command = ["sh", "-c", program.result]
            output.update(subprocess.run(command, capture_output=True).stdout)
        return {
            "status": child.returncode,
            "output": output.hexdigest()[:16],
            "cpu_s": round(sum(one.ru_utime + one.ru_stime for one in usages), 4),
            "wall_s": round(wall_s, 4),
            "load": load,
            "errors": errors.read().decode(errors="replace")[-2000:],
        }


class Strangers:
    """One invocation."""

    def __init__(self, arguments: argparse.Namespace, kit: Kit, hither: Path) -> None:
        self.pairs, self.kit, self.hither = arguments.pairs, kit, hither
        self.trace, self.log = kit.work / "trace.hither", kit.work / "strace.log"

    def asked(self, command: str) -> dict:
        """What hither says about the trace."""
        asked = [self.hither, "-q", command, "--json", self.trace]
        return json.loads(subprocess.run(asked, check=True, capture_output=True).stdout)

    def recorded(self, program: Program, between: list[str] = []) -> dict:
        record = [str(self.hither), "-q", "record", "--seen-by=library", "--force"]
        record += ["-o", str(self.trace), "--"]
        found = run(program, [*record, *between])
        if found["status"] == 0:
            stat = self.asked("stat")
            found["bytes"] = stat["bytes"]["read"]
            found["coverage"] = stat["trace"]["coverage"]
            found["losses"] = stat["trace"]["losses"]
            found["memory"] = stat["trace"]["memory"]
            found["trace_bytes"] = sum(path.stat().st_size for path in self.trace.iterdir())
        return found

    def traced(self, program: Program) -> dict:
        """A run that is recorded and traced. strace itself is not recorded, but what it starts."""
        words, *options = strace(self.log)
        script = 'recorder=$LD_PRELOAD; unset LD_PRELOAD; exec "$0" -E LD_PRELOAD="$recorder" "$@"'
        found = self.recorded(program, ["sh", "-c", script, words, *options])
        found["strace"] = vars(traced_bytes(self.log))
        self.log.unlink()
        return found

    def measure(self, name: str) -> dict:
        """All runs of a program."""
        program = PROGRAMS[name](self.kit)
        first = run(program, [])
        runs: dict[str, list[dict]] = {"plain": [], "recorded": []}
        for pair in range(self.pairs):
            for way in list(runs)[:: -1 if pair % 2 else 1]:
                found = run(program, []) if way == "plain" else self.recorded(program)
                runs[way].append(found)
                machine.say(f"{name}, pair {pair + 1}, {way}: {found['cpu_s']} s of CPU")
        advice = self.asked("advise") if runs["recorded"][-1]["status"] == 0 else {}
        traced = self.traced(program)
        shutil.rmtree(self.trace, ignore_errors=True)
        program.reset()
        every = [first, *runs["plain"], *runs["recorded"], traced]
        return {
            "program": name,
            "version": program.version,
            "command": program.command.replace(str(self.kit.work), "WORK"),
            "goal": program.goal,
            "works": all(found["status"] == 0 for found in every),
            "equal": len({found["output"] for found in every}) == 1,
            "traced": traced,
            "advice": advice.get("advice", {}),
            **runs,
        }


def verdict(measured: dict) -> str:
    """What `hither advise` says, in a few words."""
    advice = measured["advice"]
    if not advice:
        return ""
    if advice["change"] == "unknown":
        return "none"
    memory = measured["recorded"][-1]["memory"] or {}
    fits = "all fits; with less memory: " if memory.get("fit") else ""
    what = advice["policy"] or {"size": "more cache", "nothing": "nothing helps"}.get(
        advice["change"], advice["change"]
    )
    return f"{fits}{what}, {(advice['confidence'] or {}).get('level', 'unsure')}"


def row(measured: dict) -> str:
    """Of the table."""
    plain, recorded = measured["plain"], measured["recorded"]
    ratios = sorted(one["cpu_s"] / other["cpu_s"] for one, other in zip(recorded, plain))
    ratio = statistics.median(ratios)
    seen, ours = measured["traced"]["strace"]["read"], measured["traced"].get("bytes", 0)
    difference = (ours - seen) / seen if seen else 0.0
    coverages = [found.get("coverage", {}) for found in recorded]
    share = f"{min(coverage.get('share', 0) for coverage in coverages):.1%}"
    if any(coverage.get("io_uring_processes") for coverage in coverages):
        share += " beside io_uring"
    bold = lambda good, words: words if good else f"**{words}**"
    yes = lambda good: bold(good, "yes" if good else "no")
    cells = [
        measured["program"],
        yes(measured["works"]),
        yes(measured["equal"]),
        f"{seen:,}",
        bold(abs(difference) < BYTES_GOAL, f"{difference:+.4%}"),
        share,
        f"{statistics.median(found['cpu_s'] for found in plain):.2f}",
        bold(ratio <= measured["goal"], f"{ratio:.3f}")
        + f" ({ratios[0]:.2f}-{ratios[-1]:.2f}), {measured['goal']}",
        verdict(measured),
    ]
    return f"| {' | '.join(cells)} |"


def heading() -> str:
    columns = (
        "program | works | output equal | bytes by strace | recorded | share seen | CPU plain, s | "
        "CPU ratio (range), goal | verdict"
    )
    return f"| {columns} |\n|---|---|---|--:|--:|--:|--:|---|---|"


def main() -> int:
    arguments = by_program.parse(__doc__, PROGRAMS, "pairs")
    if not arguments.table:
        machine.adopt()
    measured = by_program.run(arguments, Strangers, heading(), row)
    failed = [one["program"] for one in measured if not (one["works"] and one["equal"])]
    if failed:
        machine.say(f"failed, or with another output: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
