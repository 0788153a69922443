"""Runs the tests that rights matter to as an ordinary user, for `.ci/run`, which runs as root.

Rights differ in the crates that watch, change or mount something; the simulator is the same for
everybody. The binaries are those that root built and ran: this user needs no compiler and no cargo.

    .ci/as_user.py SCRATCH [TEST BINARY]...
"""

import json
import os
import subprocess
import sys
from pathlib import Path

USER = 65534
PACKAGES = (
    "hither",
    "hither-client",
    "hither-live",
    "hither-mount",
    "hither-node",
    "hither-preload",
    "hither-kernel",
    "hither-service",
    "hither-session",
)
# It runs cargo, which may lie where this user does not reach it, and is about sources alone.
NOT_RUN = {"tidy"}


def binaries() -> list[tuple[str, Path, Path]]:
    """Name, executable and package folder of each test binary."""
    # As `.ci/run` builds them: with fewer packages some would be built again, with fewer features.
    command = ["cargo", "test", "--workspace", "--no-run", "--quiet", "--message-format=json"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            name = message["target"]["name"]
            folder = Path(message["manifest_path"]).parent
            is_bench = "bench" in message["target"]["kind"]
            if folder.name in PACKAGES and name not in NOT_RUN and not is_bench:
                found.append((name, Path(message["executable"]), folder))
    return found


def reaches(folder: str) -> bool:
    """Whether the user finds what lies in `folder`."""
    asked = subprocess.run(["test", "-x", folder], user=USER, group=USER, extra_groups=[])
    return asked.returncode == 0


def main() -> int:
    """Status 1 if a test fails."""
    scratch = Path(sys.argv[1])
    home, temporary = scratch / "home", scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True)
        os.chown(folder, USER, USER)
    # Cargo's, and Python with its packages, may lie in root's home. That they are installed was
    # required of root's tests.
    own = ("CARGO", "HITHER_PYTHON", "HITHER_REQUIRE", "XDG_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    # Of the places where programs lie, those that this user reaches: a name that is in none of them
    # is not found then, where it would be forbidden.
    reached = [at for at in environment["PATH"].split(":") if reaches(at)]
    environment |= {
        "PATH": ":".join(reached),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "nobody",
        "LOGNAME": "nobody",
        # The preload libraries are built already.
        "CARGO": "true",
        # A new snapshot would be written beside the sources.
        "INSTA_UPDATE": "no",
        # Faults of the simulated network know no users.
        "HITHER_SIMULATION_SEEDS": "10",
    }
    only = sys.argv[2:]
    found = [binary for binary in binaries() if not only or binary[0] in only]
    # What root's tests left there, compiled programs above all, is replaced.
    made = found[0][1].parents[2] / "tmp"
    for left in (made, *made.rglob("*")):
        os.chown(left, USER, USER, follow_symlinks=False)
    failed = []
    for name, executable, folder in found:
        # A file of root's as output would be one that the tests' programs have open.
        ran = subprocess.run(
            [executable, "--quiet"],
            cwd=folder,
            env=environment,
            user=USER,
            group=USER,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        print(f"-- {folder.name} {name}\n{ran.stdout}", flush=True)
        if ran.returncode != 0:
            failed.append(f"{folder.name} {name}")
    if failed:
        print("as an ordinary user, these tests fail:", *failed, sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
