#!/usr/bin/env python3
"""The error of estimates from samples, and whether the error that `hither sim --sample` reports
is right. For each trace, policy and size, compares the hit ratio of the whole trace with those
of samples of several sizes. Prints a Markdown table: the median and the largest deviation, the
median reported error, and how many estimates are within one, two and three reported errors of
the exact value (68, 95 and 99.7 % for a normal distribution).

    python3 sampling.py --hither target/release/hither --traces traces
"""

import argparse
import itertools
import json
import statistics
import subprocess
from pathlib import Path

TRACES = [
    "arc/OLTP.lis.zst",
    "arc/P3.lis.zst",
    "arc/P6.lis.zst",
    "libcachesim/twitter_cluster52.csv.zst",
    "libcachesim/cloudPhysicsIO.vscsi",
]
# LFU is separate: in a cache of any size it keeps only a few slots for blocks referenced once, so
# it does not scale.
POLICIES = {"": "lru,arc,lirs,sieve,s3-fifo,w-tinylfu,opt", " (lfu)": "lfu"}
SIZES = "5%,10%,20%,40%"
SAMPLES = [5000, 10000, 20000, 40000]


def simulate(hither: Path, trace: Path, policies: str, sizes: str, *more: str) -> list[dict]:
    command = [hither, "sim", "-q", "--json", trace, "-p", policies, "-s", sizes, *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["results"]


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--hither", type=Path, required=True)
    arguments.add_argument("--traces", type=Path, required=True)
    options = arguments.parse_args()
    print(
        "| trace | blocks sampled | estimates | median distance | largest | median stated "
        "error | within 1, 2, 3 errors |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|")
    for name, (group, policies) in itertools.product(TRACES, POLICIES.items()):
        trace = options.traces / name
        exact = simulate(options.hither, trace, policies, SIZES)
        # By number of blocks, since a share of the distinct blocks is itself an estimate in a
        # sample.
        sizes = ",".join(str(size) for size in sorted({result["cache_blocks"] for result in exact}))
        for sample in SAMPLES:
            estimates = simulate(options.hither, trace, policies, sizes, "--sample", str(sample))
            distances, errors, within = [], [], [0, 0, 0]
            for truth, found in zip(exact, estimates, strict=True):
                error = found["estimate"]["standard_error"]
                if error is None:
                    continue
                distance = abs(truth["hit_ratio"] - found["hit_ratio"])
                distances.append(distance)
                errors.append(error)
                for times in (1, 2, 3):
                    within[times - 1] += distance <= times * error
            shares = ", ".join(f"{100 * count / len(distances):.0f} %" for count in within)
            points = [
                f"{100 * value:.2f}"
                for value in (
                    statistics.median(distances),
                    max(distances),
                    statistics.median(errors),
                )
            ]
            print(
                f"| {Path(name).name.split('.')[0]}{group} | {sample:,} | {len(distances)} | "
                f"{points[0]} | {points[1]} | {points[2]} | {shares} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
