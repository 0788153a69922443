"""Policies in Python: they count as the built-in ones do, and what they do wrong is an error."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import pytest

import hither
from hither import errors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    draw = random.Random(7)
    blocks = [int(2000 * draw.random() ** 3) for _ in range(20_000)]
    path = tmp_path / "blocks.txt"
    path.write_text("".join(f"{block}\n" for block in blocks))
    return path


@pytest.fixture
def loop() -> hither.Trace:
    return hither.generate("loop{blocks=100}", references=10_000)


@pytest.fixture
def shared() -> hither.Trace:
    return hither.generate("shared-files{like=oltp,blocks=500}", threads=4)


class Lru(hither.Replacement):
    def __init__(self, capacity: int) -> None:
        self.order: OrderedDict[int, None] = OrderedDict()

    def hit(self, block: int) -> None:
        self.order.move_to_end(block)

    def victim(self, incoming: int) -> int:
        return self.order.popitem(last=False)[0]

    def inserted(self, block: int) -> None:
        assert block not in self.order
        self.order[block] = None

    def removed(self, block: int) -> None:
        del self.order[block]


def test_a_policy_in_python_is_the_one_in_rust(path: Path) -> None:
    results = hither.simulate(hither.open(path), ["fifo", Lru, "lru"], sizes=["1%", "10%", 77])
    own, built_in = results[3:6], results[6:]
    assert [row.hits for row in own] == [row.hits for row in built_in]
    assert own[0].policy == "Lru" and own[2].cache_blocks == 77


def test_sizes_may_be_alike(path: Path) -> None:
    results = hither.simulate(hither.open(path), ["lru", Lru, "fifo"], sizes=["10%", "10.0%", 50])
    assert [row.policy for row in results] == ["lru"] * 3 + ["Lru"] * 3 + ["fifo"] * 3
    assert results[0].hits == results[1].hits == results[3].hits == results[4].hits
    assert results[2].cache_blocks == results[5].cache_blocks == results[8].cache_blocks == 50
    assert results[6].hits != results[0].hits


def test_samples_and_curves(path: Path) -> None:
    sample = hither.open(path, sample="20%")
    own, built_in = hither.simulate(sample, [Lru, "lru"], sizes=["10%"])
    assert own.hit_ratio == built_in.hit_ratio and own.standard_error == built_in.standard_error
    # clock is simulated size by size, as a policy in Python is; lru has more points.
    curve = hither.curve(hither.open(path), ["clock", Lru, "lru"], points=8)
    exact = {row.cache_blocks: row.miss_ratio for row in curve if row.policy == "lru"}
    own_points = [row for row in curve if row.policy == "Lru"]
    assert [row.policy for row in curve][0] == "clock" and len(own_points) >= 4
    assert all(row.miss_ratio == exact[row.cache_blocks] for row in own_points)
    assert ">Lru<" in curve._repr_html_()


class Seer(hither.Replacement):
    """Evicts the block of the file with the highest number, and notes what it is told."""

    seen: list[tuple[int, int, int, int, bool]] = []

    def __init__(self, capacity: int) -> None:
        self.files: dict[int, int] = {}
        self.now = (0, 0)

    def accessed(self, block: int, file: int, file_block: int, site: int, is_write: bool) -> None:
        self.seen.append((block, file, file_block, site, is_write))
        self.now = (block, file)

    def victim(self, incoming: int) -> int:
        assert self.now[0] == incoming
        block = max(self.files, key=lambda block: (self.files[block], block))
        del self.files[block]
        return block

    def inserted(self, block: int) -> None:
        assert self.now[0] == block
        self.files[block] = self.now[1]


def test_a_policy_sees_files_and_sites() -> None:
    table = {
        "file": ["a", "b", "a", "b", "c"],
        "file_block": [0, 0, 5, 0, 1],
        "site": ["main", "main", "other", "main", "main"],
        "op": ["read", "write", "read", "read", "write"],
    }
    pandas = pytest.importorskip("pandas")
    trace = hither.from_arrow(pandas.DataFrame(table))
    Seer.seen.clear()
    row = hither.simulate(trace, Seer, sizes=2)[0]
    assert (row.hits, row.misses) == (0, 5)
    assert Seer.seen == [
        (0, 0, 0, 1, False),
        (1, 1, 0, 1, True),
        (2, 0, 5, 2, False),
        (1, 1, 0, 1, False),
        (3, 2, 1, 1, True),
    ]


def test_replacements_that_break_the_rules(loop: hither.Trace) -> None:
    class Liar(hither.Replacement):
        def victim(self, incoming: int) -> int:
            return incoming

    with pytest.raises(errors.PolicyError, match="Liar: at access 10, of block 10, .* 10, which"):
        hither.simulate(loop, Liar, sizes=10)

    class Mute(hither.Replacement):
        def victim(self, incoming: int) -> int:
            return None  # type: ignore[return-value]

    with pytest.raises(errors.PolicyError, match="victim\\(\\) returned None"):
        hither.simulate(loop, Mute, sizes=10)

    class Raiser(hither.Replacement):
        def victim(self, incoming: int) -> int:
            raise KeyError(incoming)

    with pytest.raises(KeyError) as raised:
        hither.simulate(loop, ["lru", Raiser], sizes=10)
    assert raised.traceback[-1].name == "victim"

    class NeedsTwo(hither.Replacement):
        def __init__(self, capacity: int, more: int) -> None:
            pass

    with pytest.raises(TypeError, match="more"):
        hither.simulate(loop, NeedsTwo, sizes=10)
    with pytest.raises(NotImplementedError, match="Replacement names no victim"):
        hither.simulate(loop, hither.Replacement, sizes=10)
    with pytest.raises(TypeError, match="derives from hither.Replacement"):
        hither.simulate(loop, [int], sizes=10)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="derives from hither.Placement"):
        hither.place(loop, 4, [Lru])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="Lru: a policy in Python runs in simulate, curve"):
        hither.advise(loop, [Lru])  # type: ignore[list-item]


class OneStep(hither.Placement):
    def __init__(self, nodes: hither.Nodes) -> None:
        self.nodes = nodes

    def accessed(
        self, block: int, node: int, holder: int, home: int
    ) -> Iterable[hither.Action] | None:
        return [("migrate", block, self.nodes.next_hop(home, node))] if node != home else None

    def forward(self, block: int, node: int, came_from: int | None) -> int | None:
        return came_from


def test_a_placement_in_python_is_the_one_in_rust(shared: hither.Trace) -> None:
    def figures(policy: str | type[hither.Replacement]) -> list[dict[str, object]]:
        placements: list[str | type[hither.Placement]]
        placements = ["first-and-forever", OneStep, "one-step"]
        rows = hither.place(shared, "mesh:2x2", placements, sizes="10%", policies=policy)
        assert [row.placement for row in rows] == ["first-and-forever", "OneStep", "one-step"]
        own = {"placement", "policy"}
        return [{k: v for k, v in row.figures.items() if k not in own} for row in rows]

    first, step, built_in = figures("lru")
    assert step == built_in and step != first
    # A replacement in Python on the nodes: blocks leave it by migration.
    assert figures(Lru) == [first, step, built_in]


def test_a_placement_of_memory() -> None:
    class Follow(hither.Placement):
        moves = 0

        def accessed(
            self, block: int, node: int, holder: int, home: int
        ) -> Iterable[hither.Action] | None:
            if node == home:
                return None
            Follow.moves += 1
            return [("migrate", block, node)]

    trace = hither.generate("cfd", threads=4, nodes=4)
    stay, follow = hither.place(trace, 4, ["first-touch", Follow])
    assert follow["migrations"] == Follow.moves > 0 == stay["migrations"]


def test_nodes() -> None:
    seen = []

    class Look(hither.Placement):
        def __init__(self, nodes: hither.Nodes) -> None:
            seen.append(nodes)

    hither.place(hither.from_blocks([1, 2, 3]), "mesh:3x3", Look, sizes=7)
    (nodes,) = seen
    assert (len(nodes), nodes.capacity(8), nodes.hops(0, 8), nodes.next_hop(0, 1)) == (9, 7, 4, 1)
    assert nodes.median([0, 1, 0, 1, 0, 1, 0, 1, 0]) == 4
    assert nodes.latency_ns(0, 8) > nodes.latency_ns(0, 1) > nodes.latency_ns(0, 0)
    with pytest.raises(errors.RequestError, match="node 9 of 9"):
        nodes.hops(0, 9)
    with pytest.raises(errors.RequestError, match="2 weights for 9 nodes"):
        nodes.median([1, 2])


def test_placements_that_break_the_rules(shared: hither.Trace) -> None:
    class Nowhere(hither.Placement):
        def place(self, block: int, node: int) -> int:
            return 4

    with pytest.raises(errors.PolicyError, match="Nowhere: .* place.. returned 4, .* the 4 nodes"):
        hither.place(shared, "mesh:2x2", Nowhere)

    class Forgot(hither.Placement):
        def place(self, block: int, node: int) -> int:
            return None  # type: ignore[return-value]

    with pytest.raises(errors.PolicyError, match="Forgot: .* place.. returned None"):
        hither.place(shared, "mesh:2x2", Forgot)

    class Odd(hither.Placement):
        def accessed(self, block: int, node: int, holder: int, home: int) -> list[hither.Action]:
            return [("steal", block, node)]  # type: ignore[list-item]

    with pytest.raises(errors.PolicyError, match="Odd: accessed.. returned .'steal', .*no action"):
        hither.place(shared, "mesh:2x2", Odd)

    class Raiser(hither.Placement):
        def removed(self, block: int, node: int) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hither.place(shared, "mesh:2x2", Raiser, sizes="5%")


def test_other_threads_run_beside_a_policy(loop: hither.Trace) -> None:
    counted = threading.Event()

    class Waits(Lru):
        """Its last hit waits for another thread of Python, which has to be let run."""

        def hit(self, block: int) -> None:
            if not counted.is_set():
                assert counted.wait(60)

    other = threading.Timer(0.05, counted.set)
    other.start()
    assert hither.simulate(loop, Waits, sizes=100)[0].hits == 9900
    with pytest.raises(errors.PolicyError):

        class Liar(Lru):
            def victim(self, incoming: int) -> int:
                return incoming

        hither.simulate(loop, Liar, sizes=10)
    # Nothing is left behind by the one that failed.
    assert hither.simulate(loop, Lru, sizes=100)[0].hits == 9900


PROGRAM = """
import hither
from collections import OrderedDict

class Fifo(hither.Replacement):
    def __init__(self, capacity):
        self.order = OrderedDict()
        print("ready", flush=True)
    def victim(self, incoming):
        return self.order.popitem(last=False)[0]
    def inserted(self, block):
        self.order[block] = None

hither.simulate(hither.generate("loop{blocks=1000}", references=200_000_000), Fifo, sizes=900)
print("done")
"""


def test_ctrl_c_ends_a_policy_in_python() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert "done" not in out and "KeyboardInterrupt" in err
