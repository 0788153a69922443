#!/usr/bin/env python3
"""Cache-aware page placement (thesis of the University of Toronto on NUMAchine): its tables and
figures again, against first-touch, round-robin and the best static placement, and what it
proposes without building it. See bench.py for the machine and the programs.

Parts: miss rates (tables 4.1 and 5.3, figures 5.4 to 5.9); one program at a time (figures 3.2,
5.10 and 5.11), at several sizes of memory; mixes of programs on one station (figure 5.12 and
table 5.4); memory in use by sampling (figure 5.13); and beyond the thesis its parameters, several
remote distances, page migration, replacement and scheduling.

Writes a CSV file per part, charts (SVG) and cache_aware.md into --output. Takes about ten minutes;
with --quick programs are a quarter of the size and few, which only shows that all parts run.

    python3 cache_aware.py --hither target/release/hither --work /tmp/cache_aware --output results
"""

import argparse
import platform
import sys
import textwrap
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
from bench import Bench
from beyond import parameters, replacement, together, two_rings
from mixes import mixes, scheduling
from regions import miss_rates
from single import computation, pressure, sampling, single

PARTS = (
    miss_rates,
    single,
    computation,
    pressure,
    mixes,
    sampling,
    parameters,
    two_rings,
    together,
    replacement,
    scheduling,
)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--hither", type=Path, required=True)
    arguments.add_argument(
        "--work", type=Path, required=True, help="folder for traces, which are kept"
    )
    arguments.add_argument("--output", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--quick", action="store_true", help="small programs, to test the parts")
    arguments.add_argument(
        "--part", choices=[part.__name__ for part in PARTS], help="print one part alone"
    )
    options = arguments.parse_args()
    bench = Bench(options.hither, options.work, options.output, options.quick)
    if options.part:
        part = next(part for part in PARTS if part.__name__ == options.part)
        print("\n".join(part(bench)))
        return
    version = bench.run("--version").decode().strip()
    lines = [
        "# Cache-aware page placement",
        "",
        f"Made by `experiments/cache_aware/cache_aware.py{' --quick' * options.quick}` with "
        f"{version}, Python {platform.python_version()}. What is modelled and how it is scaled "
        "stands in bench.py. The same version gives the same figures on any machine. Every figure "
        "and table of the thesis: [papers.md](../../../docs/results/papers.md).",
        "",
    ]
    for part in PARTS:
        began = time.monotonic()
        lines += part(bench)
        took = time.monotonic() - began
        print(f"{part.__name__}: {took:.0f} s", file=sys.stderr, flush=True)
    text = [line if line.startswith(("|", "#")) else textwrap.fill(line, 100) for line in lines]
    (options.output / "cache_aware.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
