#!/usr/bin/env python3
"""Scaling of the simulator: wall time, CPU time and peak memory of `hither sim` for 1, 10 and
100 million references, and for 1 to 64 configurations: sizes of LRU (one pass for all), sizes of
S3-FIFO, or policies by sizes.

Traces are Zipf (skew 1) with a tenth as many blocks as references. They are generated under
--work in oracleGeneral (24 bytes per reference: 2.4 GB for the largest) and removed at the end.
All cores are used. Prints a Markdown table, writes a plot as SVG and every run as JSON. Takes
about five minutes on two cores; --quick uses a hundredth of the references.

Needs: GNU time.

    python3 scaling.py --hither target/release/hither --work /tmp/scaling --plot \\
        docs/simulator_scaling.svg --output scaling.json
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLICIES = ["lru", "arc", "lirs", "sieve", "s3-fifo", "lfu", "2q", "clock"]
KINDS = {"sizes of lru": ["lru"], "sizes of s3-fifo": ["s3-fifo"], "policies by sizes": POLICIES}
CONFIGURATIONS = [1, 2, 4, 8, 16, 32, 64]
# The number of configurations while references grow, and of references while configurations grow.
SEVERAL = 8
MIDDLE = 1


def generate(hither: Path, references: int, path: Path) -> None:
    spec = f"zipf{{blocks={max(references // 10, 10)},skew=1}}"
    subprocess.run(
        [
            hither,
            "gen",
            "-q",
            "--force",
            spec,
            "-n",
            str(references),
            "--format",
            "oracle-general",
            "-o",
            path,
        ],
        check=True,
    )


def configured(kind: str, configurations: int, blocks: int) -> tuple[list[str], list[int]]:
    """Policies and sizes whose product is the number of configurations. Sizes are 0.1 % to half
    of the blocks."""
    policies = KINDS[kind][:configurations]
    count = configurations // len(policies)
    least, most = math.log(blocks / 1000), math.log(blocks / 2)
    steps = [least + (most - least) * (at + 0.5) / count for at in range(count)]
    return policies, [max(1, round(math.exp(step))) for step in steps]


def run(hither: Path, trace: Path, policies: list[str], sizes: list[int]) -> dict:
    command = [
        hither,
        "sim",
        "-q",
        "--json",
        "--format",
        "oracle-general",
        "-p",
        ",".join(policies),
        "-s",
        ",".join(map(str, sizes)),
        trace,
    ]
    with tempfile.NamedTemporaryFile("r") as report, tempfile.TemporaryFile() as out:
        # A child's ru_maxrss is at least its parent's, and GNU time is a small parent.
        timed = ["/usr/bin/time", "-f", "%M", "-o", report.name, *command]
        started = time.monotonic()
        process = subprocess.Popen(timed, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"failed: {timed}")
        peak_bytes = int(report.read()) * 1024
        out.seek(0)
        results = json.loads(out.read())["results"]
    assert len(results) == len(policies) * len(sizes), "a result for each configuration"
    return {
        "wall_s": round(wall_s, 4),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 4),
        "peak_bytes": peak_bytes,
    }


def short(power: int) -> str:
    """A power of ten as the label of an axis: 0.1, 10, 10k, 100M."""
    for exponent, unit in ((6, "M"), (3, "k")):
        if power >= exponent:
            return f"{10 ** (power - exponent)}{unit}"
    return f"{10**power:g}"


class Panel:
    """A plot with two logarithmic axes."""

    WIDTH, HEIGHT, LEFT, TOP = 330, 200, 70, 40
    COLOURS = ["#0072b2", "#d55e00", "#009e73"]

    def __init__(
        self, x: int, y: int, title: str, across: str, lines: dict[str, list[tuple[float, float]]]
    ):
        self.x, self.y, self.title, self.across, self.lines = (
            x + self.LEFT,
            y + self.TOP,
            title,
            across,
            lines,
        )
        points = [point for line in lines.values() for point in line]
        self.spans = []
        for axis in (0, 1):
            values = [point[axis] for point in points]
            low, high = (
                math.floor(math.log10(min(values)) + 1e-9),
                math.ceil(math.log10(max(values)) - 1e-9),
            )
            self.spans.append((low, max(high, low + 1)))

    def place(self, point: tuple[float, float]) -> tuple[float, float]:
        (x_low, x_high), (y_low, y_high) = self.spans
        across = (math.log10(point[0]) - x_low) / (x_high - x_low) * self.WIDTH
        up = (math.log10(point[1]) - y_low) / (y_high - y_low) * self.HEIGHT
        return round(self.x + across, 1), round(self.y + self.HEIGHT - up, 1)

    def svg(self) -> list[str]:
        (x_low, x_high), (y_low, y_high) = self.spans
        right, bottom = self.x + self.WIDTH, self.y + self.HEIGHT
        parts = [f'<text x="{self.x}" y="{self.y - 12}" font-weight="bold">{self.title}</text>']
        for power in range(y_low, y_high + 1):
            _, y = self.place((10**x_low, 10**power))
            parts.append(f'<path d="M{self.x} {y}H{right}" stroke="#ddd"/>')
            parts.append(
                f'<text x="{self.x - 6}" y="{y + 4}" text-anchor="end">{short(power)}</text>'
            )
        for power in range(x_low, x_high + 1):
            x, _ = self.place((10**power, 10**y_low))
            parts.append(f'<path d="M{x} {self.y}V{bottom}" stroke="#ddd"/>')
            parts.append(
                f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{short(power)}</text>'
            )
        parts.append(
            f'<text x="{self.x + self.WIDTH / 2}" y="{bottom + 34}" '
            f'text-anchor="middle">{self.across}</text>'
        )
        for colour, line in zip(self.COLOURS, self.lines.values()):
            placed = [self.place(point) for point in line]
            path = "L".join(f"{x} {y}" for x, y in placed)
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in placed]
        return parts


def plot(rows: list[dict], middle: int) -> str:
    def lines(across: str, up: str, unit: float, keep) -> dict:
        return {
            kind: [
                (row[across], row[up] / unit) for row in rows if row["kind"] == kind and keep(row)
            ]
            for kind in KINDS
        }

    def several(row):
        return row["configurations"] == SEVERAL

    def million(row):
        return row["references"] == middle

    of, by = f"{SEVERAL} configurations", f"{middle:,} references"
    panels = [
        Panel(0, 30, f"CPU time, s: {of}", "references", lines("references", "cpu_s", 1, several)),
        Panel(
            420,
            30,
            f"CPU time, s: {by}",
            "configurations",
            lines("configurations", "cpu_s", 1, million),
        ),
        Panel(
            0,
            320,
            f"Peak memory, MB: {of}",
            "references",
            lines("references", "peak_bytes", 1e6, several),
        ),
        Panel(
            420,
            320,
            f"Peak memory, MB: {by}",
            "configurations",
            lines("configurations", "peak_bytes", 1e6, million),
        ),
    ]
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 620" '
        'font-family="sans-serif" font-size="12" fill="#222">'
    ]
    parts.append('<rect width="850" height="620" fill="white"/>')
    for at, (colour, kind) in enumerate(zip(Panel.COLOURS, KINDS)):
        parts.append(
            f'<circle cx="{76 + at * 170}" cy="20" r="5" fill="{colour}"/><text '
            f'x="{86 + at * 170}" y="24">{kind}</text>'
        )
    for panel in panels:
        parts += panel.svg()
    return "\n".join([*parts, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hither", type=Path, required=True)
    parser.add_argument(
        "--work",
        type=Path,
        required=True,
        help="folder for the traces, which are removed at the end",
    )
    parser.add_argument("--plot", type=Path, help="where the SVG goes")
    parser.add_argument("--output", type=Path, help="every run, as JSON")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the references")
    arguments = parser.parse_args()
    arguments.hither = arguments.hither.resolve()
    arguments.work.mkdir(parents=True, exist_ok=True)
    scale = 100 if arguments.quick else 1
    lengths = [count // scale for count in (1_000_000, 10_000_000, 100_000_000)]

    version = subprocess.run(
        [arguments.hither, "--version"], check=True, capture_output=True, text=True
    ).stdout.strip()
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "hither": version,
    }
    print(
        f"{about}\n\n| references | configurations | of | wall, s | CPU, s | M references x "
        f"configurations/CPU-s | peak memory, MB |\n|--:|--:|---|--:|--:|--:|--:|"
    )
    rows = []
    for at, references in enumerate(lengths):
        trace = arguments.work / f"zipf-{references}.oracleGeneral"
        try:
            generate(arguments.hither, references, trace)
            for configurations in CONFIGURATIONS if at == MIDDLE else (1, SEVERAL):
                for kind in KINDS:
                    policies, sizes = configured(kind, configurations, references // 10)
                    row = {"references": references, "configurations": configurations, "kind": kind}
                    row |= run(arguments.hither, trace, policies, sizes)
                    rows.append(row)
                    speed = references * configurations / row["cpu_s"] / 1e6
                    print(
                        f"| {references:,} | {configurations} | {kind} | {row['wall_s']:.3f} "
                        f"| {row['cpu_s']:.3f} "
                        f"| {speed:.1f} | {row['peak_bytes'] / 1e6:.0f} |",
                        flush=True,
                    )
        finally:
            trace.unlink(missing_ok=True)
    if arguments.plot:
        arguments.plot.write_text(plot(rows, lengths[MIDDLE]))
    if arguments.output:
        document = {"machine": about, "command": sys.argv, "runs": rows}
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
