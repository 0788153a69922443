"""The command line of an experiment that measures one program after the other, and its table."""

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import workloads
from machine import machine
from workloads import Kit


class Experiment(Protocol):
    """Measures a program."""

    def measure(self, name: str) -> dict: ...


# Makes one, from the command line, where data are kept, and the build that is measured.
Begin = Callable[[argparse.Namespace, Kit, Path], Experiment]


def parse(
    about: str, programs: Collection[str], repeats: str, flags: dict[str, str] | None = None
) -> argparse.Namespace:
    """The command line. `repeats` is what is done several times. `flags` are further options that
    are on or off, with what they do."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, help="the command to measure")
    parser.add_argument("--work", type=Path, help="where data are made and kept")
    parser.add_argument("--only", default=",".join(programs), help="these, parted by commas")
    parser.add_argument(f"--{repeats}", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="data of a quarter")
    parser.add_argument("--results", type=Path, help="the JSON file for all runs")
    parser.add_argument("--table", type=Path, help="print the table of such a file")
    for flag, does in (flags or {}).items():
        parser.add_argument(f"--{flag}", action="store_true", help=does)
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := set(arguments.only) - set(programs):
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join(programs)}")
    if not arguments.table and not (arguments.hither and arguments.work):
        parser.error("--hither and --work are needed")
    return arguments


def run(
    arguments: argparse.Namespace, begin: Begin, heading: str, row: Callable[[dict], str]
) -> list[dict]:
    """Prints the table, of a file or of what is measured now, and writes all runs after each
    program. Returns what was measured."""
    print(heading)
    if arguments.table:
        print("\n".join(map(row, json.loads(arguments.table.read_text())["programs"])))
        return []
    os.environ["LC_ALL"] = "C"
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    kit = Kit(work, arguments.small)
    # The build that is measured does not change meanwhile.
    hither = Path(shutil.copy(arguments.hither.resolve(), work / "hither"))
    experiment = begin(arguments, kit, hither)
    here = str(Path(__file__).resolve().parent)
    document = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(work),
        "commit": workloads.version("git", "-C", here, "rev-parse", "HEAD"),
        "hither": workloads.version(str(hither), "--version"),
        "sha256": hashlib.sha256(hither.read_bytes()).hexdigest(),
        "argv": sys.argv[1:],
        "programs": [],
    }
    for name in arguments.only:
        measured = experiment.measure(name)
        document["programs"].append(measured)
        print(row(measured), flush=True)
        if arguments.results:
            arguments.results.parent.mkdir(parents=True, exist_ok=True)
            arguments.results.write_text(json.dumps(document, indent=1) + "\n")
    return document["programs"]
