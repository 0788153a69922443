"""The Rust half: not for users. JSON is what the command prints with --json."""

from collections.abc import Callable
from typing import Any, final

__version__: str

_Show = Callable[[str, int, int], object] | None

@final
class Trace:
    @property
    def references(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def summary(self) -> str: ...
    def statistics(self, show: _Show) -> str: ...
    def most_used(self, count: int) -> str: ...
    def close(self) -> None: ...

@final
class Table:
    @property
    def columns(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

@final
class Nodes:
    """The nodes that a placement is for."""

    def __len__(self) -> int: ...
    @property
    def name(self) -> str:
        """The name of the topology."""
    def capacity(self, node: int) -> int:
        """Blocks that a node holds."""
    def hops(self, of: int, to: int) -> int:
        """Links between two nodes on the way that messages take."""
    def latency_ns(self, of: int, to: int) -> int:
        """Latency of an access of a node to the memory of another, or to its own."""
    def next_hop(self, of: int, to: int) -> int:
        """The next node on the way to `to`."""
    def median(self, weights: list[int]) -> int:
        """The node with the smallest sum of weight times hops, over all nodes."""

def accesses(trace: Trace) -> Table: ...
def files(trace: Trace) -> Table: ...
def sites(trace: Trace) -> Table: ...
def rows(json: str) -> Table: ...
def from_arrow(
    table: object, name: str, block: str, keep_repeats: bool, show: _Show
) -> Trace: ...
def load(
    path: str,
    format: str | None,
    block: str,
    sample: str,
    keep_repeats: bool,
    in_kernel: bool,
    maps: bool,
    objects: bool,
    name: str | None,
    show: _Show,
) -> Trace: ...
def half_of_free_bytes() -> int: ...
def from_blocks(
    name: str, blocks: bytes, writes: bytes | None, block: str, show: _Show
) -> Trace: ...
def generate(
    parts: list[str],
    references: int | None,
    threads: int | None,
    nodes: int | None,
    seed: int,
    show: _Show,
) -> Trace: ...
def simulate(trace: Trace, policies: list[Any], sizes: list[str], show: _Show) -> str: ...
def curve(
    trace: Trace, policies: list[Any], points: int, is_log: bool, show: _Show
) -> tuple[str, str]: ...
def chart(
    title: str,
    subtitle: str,
    block_bytes: int,
    lines: list[tuple[str, list[tuple[int, float]]]],
) -> str: ...
def place(
    trace: Trace,
    nodes: list[str],
    placements: list[Any],
    sizes: list[str],
    policies: list[Any],
    bind: str,
    warm_up: str,
    costs: str,
    show: _Show,
) -> str: ...
def advise(
    trace: Trace, policies: list[str], sizes: list[str], nodes: list[str], show: _Show
) -> str: ...

@final
class Reader:
    @property
    def size(self) -> int: ...
    def read_at(self, offset: int, length: int) -> bytes: ...

def open_reader(path: str) -> Reader: ...
def require_mount(path: str) -> None: ...
