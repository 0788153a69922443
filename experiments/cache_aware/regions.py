"""Tables 4.1 and 5.3 and figures 5.4 to 5.9 (and appendices A and B): whether regions whose first
faults are sequential miss the caches less than others, and whether the pages of a region are
alike."""

import json
import statistics
import subprocess
from collections import Counter
from pathlib import Path

import plot
from bench import PROGRAMS, Bench, Program, table

# Table 4.1: miss rates of sequential and of other regions, in %.
THESIS_RATES = {
    "applu": (2.0, 0.4),
    "apsi": (None, 9.7),
    "buk": (3.1, 62.5),
    "hydro2d": (1.9, 2.1),
    "mgrid": (0.6, None),
    "mxm": (3.1, None),
    "swim": (1.1, None),
    "tomcatv": (2.1, 11.7),
    "turb3d": (2.6, 4.6),
    "wave": (0.4, None),
}
# Table 5.3: pages within 1, 5 and 10 % of the median count of their region, in %.
THESIS_UNIFORM = {
    ("buk", "keys"): ("key", 37, 93, 99),
    ("buk", "sorted"): ("rank", 100, 100, 100),
    ("buk", "density"): ("keyden", 100, 100, 100),
    ("mgrid", "u"): ("u", 32, 59, 83),
    ("mgrid", "v"): ("v", 92, 93, 94),
    ("mgrid", "r"): ("r", 49, 77, 83),
}
SEQUENCE, FAULTS = 5, 10


def sequential(pages: list[int]) -> bool:
    """The rule of section 4.4.1: of the first 10 faults, 5 extend one sequence of pages."""
    ends: Counter = Counter()
    for page in pages[:FAULTS]:
        length = ends.pop(page - 1, 0) + 1
        ends[page] = max(ends[page], length)
        if length >= SEQUENCE:
            return True
    return False


def first_faults(bench: Bench, trace: Path, numbers: set[int]) -> dict[int, list[int]]:
    """The first pages of these objects, in the order of their first touches. Reads no more of the
    trace than it needs."""
    faults: dict[int, dict[int, None]] = {number: {} for number in numbers}
    lacking = set(numbers)
    command = [bench.hither, "export", trace, "-q", "--format", "csv", "-o", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as export:
        next(export.stdout)
        for line in export.stdout:
            # The number of the object and of its page, 32 bits each.
            block = int(line.split(",", 2)[1])
            pages = faults.get(block >> 32)
            if pages is None or len(pages) == FAULTS:
                continue
            pages[block & 0xFFFFFFFF] = None
            if len(pages) == FAULTS:
                lacking.discard(block >> 32)
            if not lacking:
                export.kill()
                break
    return {number: list(pages) for number, pages in faults.items()}


def regions(bench: Bench, program: Program) -> list[dict]:
    """The regions of a program alone: name, whether it faults in sequence, and by page references
    and misses."""
    trace = bench.alone(program)
    meta = json.loads((trace / "meta.json").read_text())
    stats = json.loads(bench.run("stat", trace, "--json", "--top", "100"))["stats"]
    names = {of["number"]: of["name"].split(".", 1)[1] for of in stats["by_object"]}
    large = [of for of in meta["references"] if 4096 * len(of["misses"]) >= bench.region_bytes]
    faults = first_faults(bench, trace, {region["object"] for region in large})
    return [
        {
            "name": names[region["object"]],
            "sequential": sequential(faults[region["object"]]),
            "references": region["references"],
            "misses": region["misses"],
        }
        for region in large
    ]


def within(counts: list[int], tolerance: float) -> float:
    """The share of pages whose count is within so much of the median, in %."""
    median = statistics.median(counts)
    near = sum(abs(count - median) <= tolerance * median for count in counts)
    return 100 * near / len(counts)


def rate(regions: list[dict]) -> float | None:
    references = sum(sum(region["references"]) for region in regions)
    misses = sum(sum(region["misses"]) for region in regions)
    return 100 * misses / references if references else None


def cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def miss_rates(bench: Bench) -> list[str]:
    """Tables 4.1 and 5.3."""
    rows, uniform, by_program = [], [], {}
    for program in PROGRAMS:
        found = by_program[program.thesis] = regions(bench, program)
        for region in found:
            rows.append(
                {
                    "program": program.thesis,
                    "region": region["name"],
                    "pages": len(region["misses"]),
                    "faults": "sequential" if region["sequential"] else "other",
                    "miss_rate": round(rate([region]), 2),
                    **{
                        f"within_{part}": round(within(region["misses"], part / 100))
                        for part in (1, 5, 10)
                    },
                    "rate_least": round(min(page_rates(region)), 2),
                    "rate_most": round(max(page_rates(region)), 2),
                }
            )
    bench.csv("regions.csv", rows)
    body = []
    for program in PROGRAMS:
        found = by_program[program.thesis]
        ours = [[of for of in found if of["sequential"] == kind] for kind in (True, False)]
        theirs = THESIS_RATES[program.thesis]
        kinds = "kernel" if program.name != "sweeps" else "pattern"
        cells = [program.thesis, kinds, len(ours[0]), len(ours[1])]
        body.append(cells + [cell(value) for value in (rate(ours[0]), theirs[0])])
        body[-1] += [cell(value) for value in (rate(ours[1]), theirs[1])]
    lines = [
        "## Sequential faults and miss rates (table 4.1)",
        "",
        "Misses of the second-level cache by all references, in %, over the regions whose first "
        "faults are sequential and over the others, ours and the thesis'. A *kernel* is executed "
        "and its caches are modelled: its rates are results. A *pattern* (`sweeps`) is given the "
        "thesis' order of faults and rates: it shows no more than that its trace has them.",
        *table(
            [
                "program",
                "",
                "sequential regions",
                "others",
                "sequential, %",
                "thesis",
                "others, %",
                "thesis",
            ],
            body,
            2,
        ),
    ]
    for (program, region), (theirs, *parts) in THESIS_UNIFORM.items():
        for of in by_program[program]:
            if of["name"] != region:
                continue
            ours = [f"{within(of['misses'], part / 100):.0f}" for part in (1, 5, 10)]
            both = [f"{mine} ({their})" for mine, their in zip(ours, parts)]
            uniform.append([program, f"{region} ({theirs})", *both])
    all_within = [row["within_10"] for row in rows]
    most = sum(part >= 80 for part in all_within)
    lines += [
        "",
        "## Pages of a region are alike (table 5.3, figures 5.4 and 5.5)",
        "",
        "Pages whose count of misses is within 1, 5 and 10 % of the median of their region, in %; "
        "in brackets the thesis'.",
        *table(["program", "region", "1 %", "5 %", "10 %"], uniform, 2),
        "",
        f"Of all {len(rows)} regions of the ten programs, in {most} at least 80 % of the pages are "
        "within 10 % (figures 5.4 to 5.9, A.1 to A.18 and B.1 to B.18: regions.csv has them all, "
        "with the least and the greatest miss rate of a page).",
    ]
    for name, programs in (("kernels", ("buk", "mgrid")), ("sections", ("apsi", "wave"))):
        drawn = {}
        for program in programs:
            for region in by_program[program]:
                drawn[f"{program} {region['name']}"] = histogram(region["misses"])
        plot.lines(
            bench.output / f"uniform_{name}.svg",
            "Pages by misses, as a part of their region's median (figures 5.4, 5.5, 5.8)",
            "% of pages",
            "misses / median",
            drawn,
        )
    return lines


def page_rates(region: dict) -> list[float]:
    pairs = zip(region["misses"], region["references"])
    return [100 * misses / max(1, references) for misses, references in pairs]


def histogram(counts: list[int]) -> list[tuple[float, float]]:
    """Pages by their count in bins of 10 % of the median, up to twice the median."""
    median = max(1, statistics.median(counts))
    bins = Counter(min(20, round(10 * count / median)) for count in counts)
    return [(bin / 10, 100 * bins[bin] / len(counts)) for bin in range(21)]
