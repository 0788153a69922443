"""What the nodes read: for each workload the files, and each node's list of accesses, made
beforehand from a seed. An access is a file and a block of it; a write of a trace is a read here.

The six applications are those of `hither gen shared-files`; popularity by racks, popularity that
moves and scans beside a popular file are those of ../placement, where the simulator runs them.
`uneven-oltp` and `uneven-ammp` are applications in which every second node has four times the
private data of its neighbours and reads four times as much. Its neighbours are done within the
first quarter, and idle from then on.
"""

import math
import pathlib
import random
import subprocess
import sys

import numpy
import pandas

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "placement"))
import placement  # noqa: E402

REWRITTEN_FILES = 16
UNEVEN = {f"uneven-{name}": name for name in ("ammp", "oltp")}
UNEVEN_TIMES = 4


class Workload:
    """Files as names and numbers of blocks; `lists` has an array of (file, block) for each node."""

    def __init__(self, files, lists, rewrites=False):
        self.files, self.lists, self.rewrites = files, lists, rewrites

    def blocks(self):
        return sum(blocks for _, blocks in self.files)


def make(name, hither, work, nodes, blocks, accesses, seed):
    """So many accesses of each node to about so many blocks in all."""
    if name in placement.SIX:
        return application(name, hither, work, nodes, blocks, accesses, seed)
    if name in UNEVEN:
        return application(UNEVEN[name], hither, work, nodes, blocks, accesses, seed, UNEVEN_TIMES)
    return OWN[name](nodes, blocks, accesses, seed)


def application(name, hither, work, nodes, blocks, accesses, seed, uneven=1):
    # As many nodes as have more to do than the others have so many accesses.
    large = nodes // 2
    total = accesses * (nodes if uneven == 1 else large + (nodes - large) / uneven)
    reuse = math.ceil(total / blocks)
    trace, text = work / "trace.hither", work / "trace.csv"
    spec = f"shared-files{{like={name},blocks={blocks},reuse={reuse},uneven={uneven}}}"
    for command in (
        ["gen", "-q", "--force", spec, "--threads", nodes, "--seed", seed, "-o", trace],
        ["export", "-q", "--force", "--format", "csv", trace, "-o", text],
    ):
        subprocess.run([str(word) for word in [hither, *command]], check=True)
    rows = pandas.read_csv(text, usecols=["object", "node"], dtype="int64")
    place = rows["object"].to_numpy()
    numbers, file = numpy.unique(place >> 32, return_inverse=True)
    block = place & 0xffff_ffff
    files = [(f"file{at}", int(block[file == at].max()) + 1) for at in range(len(numbers))]
    node = rows["node"].to_numpy()
    lists = by_node(nodes, node, file, block, accesses)
    if uneven != 1:
        counts = numpy.bincount(node, minlength=nodes)
        lists = [it[:accesses * count // counts.max()] for it, count in zip(lists, counts)]
    return Workload(files, lists)


def by_node(nodes, node, file, block, accesses):
    pairs = numpy.stack([file, block], axis=1).astype("<u4")
    lists = [pairs[node == at][:accesses] for at in range(nodes)]
    # Those that did less begin again.
    return [numpy.resize(it, (accesses, 2)) for it in lists]


def of_placement(generator):
    """A generator of ../placement: one file."""
    def made(nodes, blocks, accesses, seed):
        rows = numpy.array([(node, block) for node, block, _ in
                            generator(nodes, blocks, nodes * accesses, seed)])
        file = numpy.zeros(len(rows))
        size = max(blocks, int(rows[:, 1].max()) + 1)
        return Workload([("file0", size)], by_node(nodes, rows[:, 0], file, rows[:, 1], accesses))
    return made


def epochs(nodes, blocks, accesses, seed):
    """Training: in each epoch all blocks in another order, a part of them on each node."""
    source = numpy.random.default_rng(seed)
    part = blocks // nodes
    lists = [[] for _ in range(nodes)]
    for _ in range(-(-accesses // part)):
        order = source.permutation(blocks)
        for node in range(nodes):
            lists[node].append(order[node * part:(node + 1) * part])
    return one_file(blocks, [numpy.concatenate(it)[:accesses] for it in lists])


def model(nodes, blocks, accesses, seed):
    """All nodes load the same model, which is an eighth of the data, then the next one."""
    size = blocks // 8
    order = random.Random(seed).sample(range(8), 8)
    places = [first * size + block for first in order for block in range(size)]
    return one_file(blocks, [numpy.resize(places, accesses)] * nodes)


def rewriter(nodes, blocks, accesses, seed):
    """Blocks by popularity, of files of which one after the other gets a new version."""
    source = numpy.random.default_rng(seed)
    size = blocks // REWRITTEN_FILES
    odds = numpy.arange(1, blocks + 1) ** -0.8
    places = source.permutation(REWRITTEN_FILES * size)
    odds = odds[:len(places)] / odds[:len(places)].sum()
    lists = []
    for _ in range(nodes):
        drawn = source.choice(places, accesses, p=odds)
        lists.append(numpy.stack([drawn // size, drawn % size], axis=1).astype("<u4"))
    files = [(f"file{at}", size) for at in range(REWRITTEN_FILES)]
    return Workload(files, lists, rewrites=True)


def one_file(blocks, lists):
    pairs = [numpy.stack([numpy.zeros(len(it)), it], axis=1).astype("<u4") for it in lists]
    return Workload([("file0", blocks)], pairs)


OWN = {
    "epochs": epochs,
    "racks": of_placement(placement.racks),
    "moving": of_placement(placement.moving),
    "scans": of_placement(placement.scans),
    "model": model,
    "rewriter": rewriter,
}
NAMES = [*placement.SIX, *UNEVEN, *OWN]
