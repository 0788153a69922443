#!/usr/bin/env python3
"""Do other people's programs behave under hither as they do alone?

Runs each program plain and in every mode of hither, and compares standard output, standard error
without hither's own lines, and exit status. What the programs write is part of their output: each
prints the checksums of its files. Programs that hither cannot be in (static ones, musl, 32 bits)
are among them, and such that limit or confine themselves.

--as-user runs everything once more as an ordinary user, who also has to reach the command and the
scratch folder. A program that is not installed, or does not run alone, is left out and named.
Exit status 1 if anything differs that is not known to.

    python3 experiments/end_to_end/equal.py --hither target/release/hither --work /tmp/equal
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from equal_programs import MODES, PROGRAMS, SETUP, SOURCES, Program

LONGEST_RUN_S = 120
USER = 65534


class Bench:
    """A scratch folder with the programs' input, for one user."""

    def __init__(self, hither: Path, work: Path, user: int | None) -> None:
        self.hither, self.user = hither, user
        self.folder = work / ("root" if user is None else "user")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for name, text in SOURCES.items():
            (self.folder / name).write_text(text)
        if user is not None:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, user, user)
        self.environment = {
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LC_ALL": "C",
        }
        made = self.run("sh", "-e", "-c", SETUP)
        if made.returncode != 0:
            sys.exit(f"the input cannot be made: {made.stderr.decode(errors='replace')}")

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Runs a command in the scratch folder."""
        rights = (
            {}
            if self.user is None
            else {
                "user": self.user,
                "group": self.user,
                "extra_groups": [],
            }
        )
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST_RUN_S,
            check=False,
            **rights,
        )

    def outcome(self, program: Program, mode: list[str]) -> dict:
        """What a program did, in a folder of its own that it may fill."""
        script = f"rm -rf out && mkdir out && {program.command}"
        under = [self.hither, *mode, "--"] if mode else []
        try:
            ended = self.run(*under, "bash", "-c", script)
        except subprocess.TimeoutExpired:
            return {"status": "it does not end", "stdout": "", "stderr": ""}
        errors = [
            line
            for line in ended.stderr.decode(errors="replace").splitlines()
            if not line.startswith("hither: ")
        ]
        return {
            # hither ends as a shell does: with 128 + the signal.
            "status": ended.returncode if ended.returncode >= 0 else 128 - ended.returncode,
            "stdout": ended.stdout.decode(errors="replace"),
            "stderr": "\n".join(errors),
        }


def differences(bench: Bench, program: Program) -> dict[str, dict] | None:
    """By mode, what is not as it is alone. `None` if the program does not run alone."""
    plain = bench.outcome(program, [])
    if plain["status"] != program.status or plain != bench.outcome(program, []):
        print(
            f"  left out: alone it gives {plain['status']}, or differs from run to run: "
            f"{plain['stderr'][-200:]}"
        )
        return None
    found = {}
    for name, mode in MODES.items():
        other = bench.outcome(program, mode)
        if other != plain:
            found[name] = {
                what: [plain[what], other[what]] for what in plain if plain[what] != other[what]
            }
    return found


def main() -> int:
    """Status 1 if anything differs that is not known to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="is emptied")
    parser.add_argument("--as-user", action="store_true", help="as an ordinary user too")
    parser.add_argument("--only", action="append", help="a program; may be repeated")
    parser.add_argument("--compiled", action="store_true", help="only those compiled from SOURCES")
    parser.add_argument("--results", type=Path, help="writes all differences as JSON")
    arguments = parser.parse_args()
    hither = arguments.hither.resolve()
    programs = [
        program
        for program in PROGRAMS
        if (not arguments.only or program.name in arguments.only)
        and (not arguments.compiled or "bin/" in program.command)
    ]
    differing: dict[str, dict] = {}
    unknown = ran = 0
    users = [None, USER] if arguments.as_user else [None]
    for user in users:
        bench = Bench(hither, arguments.work.resolve(), user)
        for program in programs:
            name = program.name if user is None else f"{program.name} (as a user)"
            print(name, flush=True)
            found = differences(bench, program)
            ran += found is not None
            if found:
                differing[name] = found
                unknown += not program.known
                if program.known:
                    print(f"  known: {program.known}")
                for mode, what in found.items():
                    print(f"  {mode} differs: {json.dumps(what)[:400]}", flush=True)
    print(f"{ran} programs in {len(MODES)} modes; {len(differing)} differ: " + ", ".join(differing))
    if arguments.results:
        arguments.results.write_text(json.dumps(differing, indent=1) + "\n")
    return 1 if unknown or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
