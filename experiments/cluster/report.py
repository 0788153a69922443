"""Tables and plots of the rows of run.py."""

import itertools
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import plot  # noqa: E402

# What a table has of each run: name, how it is written, and where it is. Earlier rows lack some.
FIGURES = [
    ("hit p50 ms", "{:.2f}", lambda row: row["hit_us"] and row["hit_us"]["p50"] / 1e3),
    ("p99", "{:.2f}", lambda row: row["hit_us"] and row["hit_us"]["p99"] / 1e3),
    ("mean", "{:.2f}", lambda row: row["hit_us"] and row["hit_us"]["mean"] / 1e3),
    ("miss p50 ms", "{:.1f}", lambda row: row["miss_us"] and row["miss_us"]["p50"] / 1e3),
    ("p99", "{:.1f}", lambda row: row["miss_us"] and row["miss_us"]["p99"] / 1e3),
    ("read mean ms", "{:.2f}", lambda row: row["read_us"]["mean"] / 1e3),
    ("local", "{:.1%}", lambda row: row["share"]["local"]),
    ("near", "{:.1%}", lambda row: row["share"]["near"]),
    ("far", "{:.1%}", lambda row: row["share"]["far"]),
    ("source", "{:.1%}", lambda row: row["share"]["source"]),
    ("resident", "{:.1%}", lambda row: row.get("resident_bytes")
     and row["resident_bytes"] / row["data_bytes"]),
    ("source MB", "{:.0f}", lambda row: row["source_bytes"] / 1e6),
    ("MB x hops", "{:.0f}", lambda row: row["byte_hops"] / 1e6),
    ("busiest", "{:.2f}", lambda row: row["busiest"]),
    ("CPU-s/GB", "{:.1f}", lambda row: row["cpu_s_gb"]),
    ("packets a read", "{:.1f}", lambda row: row["packets_a_read"]),
    ("pushed MB", "{:.0f}", lambda row: row.get("pushed_bytes") and row["pushed_bytes"] / 1e6),
    ("control bytes a read", "{:.0f}", lambda row: row.get("control_a_read")),
    ("of the block", "{:.1%}", lambda row: row.get("control_share")),
    ("idle packets/s", "{:.0f}", lambda row: row["idle_packets_s"]),
    ("idle CPUs", "{:.2f}", lambda row: row["idle_cpu"]),
    ("reads/s", "{:.0f}", lambda row: row["reads"] / row["seconds"]),
    ("stale", "{:.0f}", lambda row: row["stale"]),
    ("failed", "{:.0f}", lambda row: row["failed"]),
]
# The same of runs in which something has become of a node.
EVENT_FIGURES = [
    ("hits before", "{:.1%}", lambda row: row["disturbed"]["hits_before"]),
    ("least in 2 s", "{:.1%}", lambda row: row["disturbed"]["hits_least"]),
    ("95 % of before after s", "{:.1f}", lambda row: row["disturbed"]["back_s"]),
    ("never", "{:.0%}", lambda row: row["disturbed"]["back_s"] is None),
    ("connected after s", "{:.2f}", lambda row: row["disturbed"]["joined_s"]),
    ("longest read before ms", "{:.0f}", lambda row: row["disturbed"]["longest_before_ms"]),
    ("longest read ms", "{:.0f}", lambda row: row["disturbed"]["longest_ms"]),
    ("stale", "{:.0f}", lambda row: row["stale"]),
    ("failed", "{:.0f}", lambda row: row["failed"]),
]
# Of a row in which nothing happens.
NO_EVENT = "none"
PLOTS = {
    "hits": ("Mean latency of a hit", "ms", lambda row: row["hit_us"]["mean"] / 1e3),
    "reads": ("Mean latency of a read", "ms", lambda row: row["read_us"]["mean"] / 1e3),
    "source": ("Reads from the source", "%", lambda row: 100 * row["share"]["source"]),
    "byte_hops": ("Bytes times hops of a read", "KB",
                  lambda row: row["byte_hops"] / row["reads"] / 1e3),
}


def line(row):
    """One run, for people who wait."""
    head = (f"{row['nodes']} {row['distances']} {row['policy']} {row['placement']} "
            f"{row['workload']} "
            f"{row['cache']} % {row['latency_ms']} ms, seed {row['seed']}")
    if row["event"] != NO_EVENT:
        head += f", {row['event']}"
    if row["thrown_away"]:
        return f"{head}: thrown away: {row['thrown_away'][0]}"
    share = row["share"]
    return (f"{head}: read {row['read_us']['mean'] / 1e3:.2f} ms, local {share['local']:.0%}, "
            f"near {share['near']:.0%}, far {share['far']:.0%}, source {share['source']:.0%}, "
            f"{row['reads'] / row['seconds']:.0f} reads/s, {row['stale']} stale, "
            f"{row['failed']} failed")


def mean(figure, rows):
    values = [value for value in map(figure, rows) if value is not None]
    return statistics.fmean(values) if values else None


def write(rows, folder):
    kept = [row for row in rows if not row["thrown_away"]]
    if not kept:
        return
    settings = sorted({setting(row) for row in kept})
    parts = []
    for here_is in settings:
        nodes, distances, policy, cache, latency_ms = here_is
        here = [row for row in kept if setting(row) == here_is]
        place = f"{nodes.replace(':', '')}-{distances}-{policy}-{cache}-{latency_ms}"
        of = f"{nodes}, {cache} %, {latency_ms} ms"
        quiet = [row for row in here if row["event"] == NO_EVENT]
        disturbed = [row for row in here if row["event"] != NO_EVENT]
        parts.append(f"## {nodes}, distances {distances}, nodes keep by {policy}, caches of "
                     f"{cache} % of the data, source {latency_ms} ms\n")
        if quiet:
            parts.append(table(quiet, FIGURES, ["workload", "placement"]))
            for name, (title, unit, figure) in PLOTS.items():
                draw(folder / f"{name}-{place}.svg", f"{title}: {of}", unit, quiet, figure)
        if disturbed:
            parts.append(table(disturbed, EVENT_FIGURES, ["event", "workload", "placement"]))
            for workload in names(disturbed, "workload"):
                draw_hits(folder / f"event-{workload}-{place}.svg", f"{workload}: {of}",
                          [row for row in here if row["workload"] == workload and "hits" in row])
    parts.append(f"{len(rows)} runs, of which {len(rows) - len(kept)} were thrown away: the "
                 "machine was too busy.\n")
    builds = ", ".join(names(rows, "build"))
    kernels = ", ".join(filter(None, dict.fromkeys(row.get("kernel") for row in rows)))
    parts.append(f"Builds: {builds or '-'}. Kernel: {kernels or '-'}. "
                 f"Processors: {', '.join(str(it) for it in names(rows, 'cpus'))}.\n")
    (folder / "tables.md").write_text("\n".join(parts))


def setting(row):
    return row["nodes"], row["distances"], row["policy"], row["cache"], row["latency_ms"]


def table(rows, figures, keys):
    head = [*keys, "runs", *(name for name, _, _ in figures)]
    lines = ["| " + " | ".join(head) + " |",
             "|" + "---|" * len(keys) + "--:|" * (len(head) - len(keys))]
    for group in itertools.product(*(names(rows, key) for key in keys)):
        here = [row for row in rows if tuple(row[key] for key in keys) == group]
        if here:
            means = ((form, mean(figure, here)) for _, form, figure in figures)
            cells = ["-" if value is None else form.format(value) for form, value in means]
            lines.append(f"| {' | '.join(group)} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def draw_hits(path, title, rows):
    """Hits over time, the means of runs; 0 is the event."""
    series = {}
    for placement, event in itertools.product(names(rows, "placement"), names(rows, "event")):
        here = [row for row in rows if (row["placement"], row["event"]) == (placement, event)]
        count = min((len(row["hits"]) for row in here), default=0)
        means = (mean(lambda row: row["hits"][number], here) for number in range(count))
        points = [((number - count // 2) * here[0]["window_s"], 100 * value)
                  for number, value in enumerate(means) if value is not None]
        if points:
            series[f"{placement}, {event}"] = points
    plot.lines(path, f"Hits around the event: {title}", "% of reads", "seconds", series)


def draw(path, title, unit, rows, figure):
    placements = names(rows, "placement")
    groups = {}
    for workload in names(rows, "workload"):
        parts = [[row for row in rows if row["hit_us"]
                  and (row["workload"], row["placement"]) == (workload, placement)]
                 for placement in placements]
        groups[workload] = [mean(figure, part) for part in parts]
    if any(value for group in groups.values() for value in group):
        plot.bars(path, title, unit, groups, placements)


def names(rows, key):
    """In the order of their first appearance."""
    return list(dict.fromkeys(row[key] for row in rows))
