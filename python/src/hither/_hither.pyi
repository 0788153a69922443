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
    def block_numbers(self, start: int, count: int) -> bytes: ...
    def close(self) -> None: ...

def load(
    path: str,
    format: str | None,
    block: str,
    sample: str,
    keep_repeats: bool,
    in_kernel: bool,
    maps: bool,
    show: _Show,
) -> Trace: ...
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
def simulate(trace: Trace, policies: list[str], sizes: list[str], show: _Show) -> str: ...
def simulate_own(
    trace: Trace, name: str, make: Callable[[int], Any], sizes_as_written: list[str], show: _Show
) -> str: ...
def curve(
    trace: Trace, policies: list[str], points: int, is_log: bool, show: _Show
) -> tuple[str, str]: ...
def place(
    trace: Trace,
    nodes: list[str],
    placements: list[str],
    sizes: list[str],
    policies: list[str],
    bind: str,
    warm_up: str,
    costs: str,
    show: _Show,
) -> str: ...
def advise(
    trace: Trace, policies: list[str], sizes: list[str], nodes: list[str], show: _Show
) -> str: ...
