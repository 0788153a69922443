#!/usr/bin/env python3
"""How often the 95 % interval of `hither sim --sample` holds the hit ratio of the whole trace.

Twelve generated traces, 17 policies that need no future, caches of 5 and 20 % of the distinct
blocks, four sampling rates, and three seeds of each trace. The check in `hither-sim/src/sample.rs`
was chosen by the first six traces and is judged by the other six. Real traces are judged too, with
`--traces` or `HITHER_TRACES`; they have one seed only.

Prints a Markdown table with one row a policy. `--raw` names the file for each case as a JSON line.

    python3 sampling.py --hither target/debug/hither --raw sampling.jsonl --traces traces
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The arguments of `hither gen`.
CHOSEN_BY = {
    "zipf": ["zipf{blocks=50000,skew=0.9}", "-n", "300k"],
    "shifting": ["shifting{blocks=20000,phase=100000}", "-n", "300k"],
    "zipf, scan": ["zipf{blocks=20000}", "scan", "-n", "200k"],
    "loops": ["loop{blocks=5000}", "loop{blocks=20000}", "zipf{blocks=10000}", "-n", "300k"],
    "nested": ["nested", "zipf{blocks=20000}", "-n", "200k"],
    "compile": ["compile{sources=3000,source_mib=48}"],
}
JUDGED_BY = {
    "uniform": ["uniform{blocks=30000}", "zipf{blocks=10000}", "-n", "200k"],
    "drift": ["shifting{blocks=10000,phase=1,overlap=0.9999,skew=0.8}", "-n", "200k"],
    "short phases": [
        "shifting{blocks=15000,phase=40000,overlap=0.2,skew=0.7}", "scan", "-n", "300k",
    ],
    "shared-files": ["shared-files{like=oltp,blocks=40000,reuse=6}"],
    "web-server": ["web-server{requests=20,files=8000,files_mib=400}"],
    "parallel-grep": ["parallel-grep{runs=16,files=8000,size_mib=120}"],
}
REAL = [
    "arc/OLTP.lis.zst",
    "libcachesim/cloudPhysicsIO.vscsi",
    "libcachesim/twitter_cluster52.csv.zst",
    "lirs/2_pools.trace.gz",
]
# All but `opt`, which needs the future, and those that refuse samples.
POLICIES = (
    "2q,arc,car,clock,eelru,fifo,lfu,lirs,lrfu,lru,lru-k,mq,mru,random,s3-fifo,sieve,w-tinylfu"
)
SIZES = "5%,20%"
RATES = ["5%", "10%", "25%", "50%"]
SEEDS = [1, 2, 3]


def simulate(hither: Path, trace: Path, sizes: str, *more: str) -> list[dict]:
    command = [hither, "sim", "-q", "--json", trace, "-p", POLICIES, "-s", sizes, *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["results"]


def cases(hither: Path, trace: Path, about: dict) -> list[dict]:
    """One case for each policy, size and rate."""
    exact = simulate(hither, trace, SIZES)
    # By number of blocks, since a share of the distinct blocks is itself an estimate in a sample.
    sizes = ",".join(str(size) for size in sorted({result["cache_blocks"] for result in exact}))
    found = []
    for rate in RATES:
        estimates = simulate(hither, trace, sizes, "--sample", rate)
        for truth, guess in zip(exact, estimates, strict=True):
            found.append(
                about
                | {"policy": truth["policy"], "cache_blocks": truth["cache_blocks"], "rate": rate}
                | {"truth": truth["hit_ratio"], "estimate": guess["hit_ratio"]}
                | {name: guess["estimate"][name] for name in ("interval", "refused")}
            )
    return found


def generated(hither: Path, group: str, name: str, program: list[str], seed: int) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.hither"
        command = [hither, "gen", "-q", *program, "--seed", str(seed), "-o", trace]
        subprocess.run(command, check=True)
        return cases(hither, trace, {"group": group, "trace": name, "seed": seed})


def holds(case: dict) -> bool:
    low, high = case["interval"]
    # The counts are whole numbers, so an exact estimate may differ in the last digits.
    return low - 1e-9 <= case["truth"] <= high + 1e-9


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def row(title: str, of: list[dict]) -> str:
    """Shares of the cases in which the cache is large enough for an error."""
    judged = [case for case in of if case["interval"] or case["refused"]]
    cells = [title, str(len(judged))]
    for group in ("chosen", "judged", "real"):
        here = [case for case in judged if case["group"] == group]
        refused = sum(bool(case["refused"]) for case in here)
        held = sum(holds(case) for case in here if case["interval"])
        cells += [share(refused, len(here)), share(held, len(here) - refused)]
    widths = [case["interval"][1] - case["interval"][0] for case in judged if case["interval"]]
    cells.append(f"{100 * statistics.median(widths) / 2:.1f}" if widths else "-")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--hither", type=Path, required=True)
    arguments.add_argument("--raw", type=Path)
    arguments.add_argument("--traces", type=Path, default=os.environ.get("HITHER_TRACES"))
    arguments.add_argument("--jobs", type=int, default=2)
    options = arguments.parse_args()
    found: list[dict] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [
            pool.submit(generated, options.hither, group, name, program, seed)
            for group, programs in (("chosen", CHOSEN_BY), ("judged", JUDGED_BY))
            for name, program in programs.items()
            for seed in SEEDS
        ]
        for name in REAL if options.traces else []:
            about = {"group": "real", "trace": name, "seed": 0}
            runs.append(pool.submit(cases, options.hither, Path(options.traces) / name, about))
        for run in runs:
            found += run.result()
    if options.raw:
        options.raw.write_text("".join(json.dumps(case) + "\n" for case in found))
    print(
        "| | cases | chosen: refused | held | judged: refused | held | real: refused | held | ± |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for policy in POLICIES.split(","):
        print(row(policy, [case for case in found if case["policy"] == policy]))
    for trace in dict.fromkeys(case["trace"] for case in found):
        print(row(f"*{trace}*", [case for case in found if case["trace"] == trace]))
    print(row("all", found))


if __name__ == "__main__":
    main()
