#!/usr/bin/env python3
"""Reads that the kernel's page cache serves never reach a node. Which reads is a placement to
count, then, all of them or those that a node sees?

    seen.py --hither PATH --work DIR [--output FILE] [--nodes 5x5] [--accesses 20000]
            [--blocks 400] [--caches 2,5,10] [--workloads A,B] [--seeds 1,2,3]

For each workload, the page cache of each node is an LRU list of a given part of the data. A read
that it does not serve is *seen*, and costs the way from who holds the block: so what a placement is
worth is the mean of hops over the reads that are seen. Blocks are put at the weighted median of
their readers by two counts, of all reads and of those that are seen; beside them, at their first
reader. The counts are of the first half of the accesses, the hops of the second.

Prints and writes a table: how many reads are seen, the mean hops, and how many blocks reach the
post-office trigger of 50 in the first half by one count and the other. No node runs, and no time is
measured. Needs numpy and pandas.
"""

import argparse
import collections
import itertools
import pathlib
import tempfile

import numpy

import workloads

TRIGGER = 50
WORKLOADS = [*workloads.placement.SIX, "racks", "moving", "scans"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hither", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, help="a file for the table")
    parser.add_argument("--nodes", default="5x5", help="rows and columns [default: 5x5]")
    parser.add_argument("--accesses", type=int, default=20_000, help="of a node [default: 20000]")
    parser.add_argument("--blocks", type=int, default=400, help="for each node [default: 400]")
    parser.add_argument("--caches", default="2,5,10", help="per cent of the data that the page "
                        "cache of a node holds [default: 2,5,10]")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--seeds", default="1,2,3")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    rows, columns = map(int, arguments.nodes.split("x"))
    hops = hops_of_mesh(rows, columns)
    caches = [int(cache) for cache in arguments.caches.split(",")]
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    head = ["workload", "page cache", "seen", "hops: first reader", "all reads", "seen reads",
            "blocks of 50: all reads", "seen reads"]
    lines = []
    for name, cache in itertools.product(arguments.workloads.split(","), caches):
        found = []
        for seed in seeds:
            with tempfile.TemporaryDirectory(dir=arguments.work) as work:
                load = workloads.make(name, arguments.hither, pathlib.Path(work), rows * columns,
                                      arguments.blocks * rows * columns, arguments.accesses, seed)
            found.append(measure(load, cache, hops))
        seen, first, by_all, by_seen, many_all, many_seen = numpy.mean(found, axis=0)
        lines.append([name, f"{cache} %", f"{100 * seen:.0f} %", f"{first:.2f}", f"{by_all:.2f}",
                      f"{by_seen:.2f}", f"{100 * many_all:.0f} %", f"{100 * many_seen:.1f} %"])
        print(*lines[-1], flush=True)
    rule = ["---"] + ["--:"] * (len(head) - 1)
    text = "".join(f"| {' | '.join(line)} |\n" for line in [head, rule, *lines])
    if arguments.output:
        arguments.output.write_text(text)


def hops_of_mesh(rows, columns):
    row, column = numpy.divmod(numpy.arange(rows * columns), columns)
    return (abs(row[:, None] - row[None, :]) + abs(column[:, None] - column[None, :]))


def measure(load, cache, hops):
    nodes, blocks = len(hops), load.blocks()
    first = numpy.cumsum([0] + [count for _, count in load.files])
    lists = [first[accesses[:, 0]] + accesses[:, 1] for accesses in load.lists]
    seen = [seen_by_node(accesses, max(1, blocks * cache // 100)) for accesses in lists]
    half = len(lists[0]) // 2
    all_reads, seen_reads = (numpy.zeros((blocks, nodes)) for _ in range(2))
    cost = numpy.zeros((blocks, nodes))
    for node, (accesses, is_seen) in enumerate(zip(lists, seen)):
        numpy.add.at(all_reads, (accesses[:half], node), 1)
        numpy.add.at(seen_reads, (accesses[:half][is_seen[:half]], node), 1)
        numpy.add.at(cost, (accesses[half:][is_seen[half:]], node), 1)
    # Of the first half, in turn; a block that nobody reads there is left out.
    firsts = numpy.full(blocks, -1)
    for at in range(half - 1, -1, -1):
        for node in range(nodes - 1, -1, -1):
            firsts[lists[node][at]] = node
    known = firsts >= 0
    cost = cost[known]

    def mean_hops(place):
        return (cost * hops[place]).sum() / cost.sum()

    def medians(counts):
        return (counts[known] @ hops).argmin(axis=1)

    def many(counts):
        return (counts[known].sum(axis=1) >= TRIGGER).mean()

    return (numpy.concatenate(seen).mean(), mean_hops(firsts[known]),
            mean_hops(medians(all_reads)), mean_hops(medians(seen_reads)),
            many(all_reads), many(seen_reads))


def seen_by_node(accesses, frames):
    """Which accesses an LRU list of so many frames does not serve."""
    kept, seen = collections.OrderedDict(), numpy.zeros(len(accesses), dtype=bool)
    for at, block in enumerate(accesses.tolist()):
        if block in kept:
            kept.move_to_end(block)
            continue
        seen[at] = True
        kept[block] = None
        if len(kept) > frames:
            kept.popitem(last=False)
    return seen


if __name__ == "__main__":
    main()
