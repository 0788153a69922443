#!/usr/bin/env python3
"""All experiments of the five papers, one after the other.

Each paper's script writes its tables into its own folder of results. What they say is in
docs/results/papers.md, which has a row for each figure and table of each paper.

    python3 papers.py --hither target/release/hither --work /tmp/papers
    python3 papers.py --hither target/release/hither --work /tmp/papers --only pcc,upm
    python3 papers.py --hither target/debug/hither --work /tmp/papers --quick

--quick runs every part at a tiny size, to see whether
it works, and leaves the results in --work.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

# Paper, and its scripts. A script of pcc reads what the one before it recorded.
PAPERS = {
    "pcc": ["pcc/pcc.py", "pcc/departures.py", "pcc/live.py"],
    "post-office": ["post_office/post_office.py"],
    "dual-layer": ["dual_layer/dual_layer.py"],
    "upm": ["upm/upm.py", "upm/npb.py"],
    "cache-aware": ["cache_aware/cache_aware.py"],
}


def run(script: str, arguments: argparse.Namespace) -> bool:
    """Whether it succeeds. Only what it says of a failure is shown."""
    path = HERE / script
    work = arguments.work / path.parent.name
    output = work / "results" if arguments.quick else path.parent / "results"
    for folder in (work, output):
        folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, path, "--hither", arguments.hither]
    if path.name == "departures.py":
        source = ["--quick"] if arguments.quick else ["--traces", work / "traces"]
        command += [*source, "--output", output / "departures.md"]
    else:
        command += ["--work", work, "--output", output, *["--quick"] * arguments.quick]
    tree = arguments.work / "pcc" / "tree"
    if path.name == "dual_layer.py" and not arguments.quick and tree.exists():
        # The kernel's sources, which pcc.py has unpacked.
        command += ["--tree", tree]
    if path.name == "npb.py":
        command += ["--lab", arguments.lab]
    start = time.monotonic()
    print(f"{script} ...", flush=True)
    log = work / f"{path.stem}.log"
    with log.open("w") as said:
        ran = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, check=False)
    took = time.monotonic() - start
    if ran.returncode != 0:
        print(log.read_text()[-4000:])
    print(f"{script}: {'failed' if ran.returncode else 'done'} after {took:.0f} s", flush=True)
    return ran.returncode == 0


def main() -> int:
    """Status 1 if a script fails; the others run all the same."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for sources, data and traces"
    )
    parser.add_argument(
        "--lab", type=Path, help="the lab's program [default: beside hither, as cargo builds it]"
    )
    parser.add_argument("--only", default=",".join(PAPERS), help="papers, with commas between")
    parser.add_argument("--quick", action="store_true", help="every part, tiny")
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work = arguments.work.resolve()
    arguments.lab = (arguments.lab or arguments.hither.with_name("lab")).resolve()
    papers = arguments.only.split(",")
    for paper in papers:
        if paper not in PAPERS:
            parser.error(f"no paper `{paper}`: there are {', '.join(PAPERS)}")
    scripts = [script for paper in papers for script in PAPERS[paper]]
    # All of them run, whatever becomes of one.
    return 0 if all([run(script, arguments) for script in scripts]) else 1


if __name__ == "__main__":
    sys.exit(main())
