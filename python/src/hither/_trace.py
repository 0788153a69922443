"""Traces."""

import html
import json
import os
from array import array
from collections.abc import Iterable, Iterator
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from hither import _hither
from hither._progress import shown
from hither.errors import RequestError


class Trace:
    """A trace: references to blocks, in order. :func:`hither.open` and others make it.

    It holds memory (at most about 20 bytes a reference, or what half of the free memory has room
    for; the rest lies in a temporary file) until it is closed or no longer used. It can be used
    by several threads, and in a `with` statement.

    Example:
        >>> import hither
        >>> with hither.from_blocks([1, 2, 3, 1]) as trace:
        ...     print(trace.references, trace.blocks)
        4 3
    """

    def __init__(self, inner: _hither.Trace, name: str) -> None:
        """Not for users: :func:`hither.open` and others make traces."""
        self._inner = inner
        self.name = name
        #: The exit code of a program that :func:`hither.record` ran, as `subprocess` has it.
        self.exit_code: int | None = None
        self._temporary: TemporaryDirectory[str] | None = None

    @property
    def references(self) -> int:
        """References to blocks; of a sample, those of the whole trace.

        Example:
            >>> import hither
            >>> hither.from_blocks([1, 1]).references
            2
        """
        return self._inner.references

    @property
    def blocks(self) -> int:
        """Distinct blocks; of a sample, an estimate for the whole trace.

        Example:
            >>> import hither
            >>> hither.from_blocks([1, 1]).blocks
            1
        """
        return self._inner.blocks

    @property
    def block_bytes(self) -> int:
        """Bytes of a block.

        Example:
            >>> import hither
            >>> hither.from_blocks([1, 1], block="64KiB").block_bytes
            65536
        """
        return self._inner.block_bytes

    def summary(self) -> dict[str, Any]:
        """What the results of the command say of a trace: path, format, SHA-256, counts.

        Example:
            >>> import hither
            >>> hither.from_blocks([1, 1]).summary()["references"]
            2
        """
        summary: dict[str, Any] = json.loads(self._inner.summary())
        return summary

    def statistics(self) -> dict[str, Any]:
        """What `hither stat --json` prints: bytes, popularity, reuse, sharing.

        Example:
            >>> import hither
            >>> sorted(hither.from_blocks([1, 1]).statistics())
            ['bytes', 'stats', 'trace']
        """
        with shown() as show:
            statistics: dict[str, Any] = json.loads(self._inner.statistics(show))
        return statistics

    def block_numbers(self, batch: int = 1 << 20) -> Iterator[memoryview]:
        """The blocks of all references, in order, as memory views of 32-bit unsigned numbers.

        Blocks are numbered from 0, in the order in which they come first. `numpy.asarray` takes a
        view without a copy.

        Args:
            batch: references in a view, at most.

        Example:
            >>> import hither
            >>> [list(view) for view in hither.from_blocks([7, 9, 7]).block_numbers()]
            [[0, 1, 0]]
        """
        start = 0
        while blocks := self._inner.block_numbers(start, batch):
            yield memoryview(blocks).cast("I")
            start += len(blocks) // 4

    def close(self) -> None:
        """Lets go of the memory. What is asked of the trace later raises `ClosedError`.

        Example:
            >>> import hither
            >>> trace = hither.from_blocks([1])
            >>> trace.close()
            >>> trace.blocks
            Traceback (most recent call last):
            ...
            hither.errors.ClosedError: the trace was closed
        """
        self._inner.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> "Trace":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        try:
            counts = f"{self.references} references to {self.blocks} blocks"
        except ValueError:
            counts = "closed"
        return f"<hither.Trace {self.name}: {counts}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self)[1:-1])}</p>"

    def __reduce__(self) -> str:
        raise TypeError("a trace cannot be pickled: pass its path, and open it there")


def open(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    block: int | str = 4096,
    sample: int | float | str = "100%",
    keep_repeats: bool = False,
    in_kernel: bool = True,
    maps: bool = False,
) -> Trace:
    """Reads a trace: a folder of `hither record`, or a file in any format that hither knows.

    Args:
        path: the folder or file; gzip, zstd and xz are unpacked.
        format: the name of the format, such as `oracle-general` or `lirs`. None: by the content.
        block: bytes of a block, such as 65536 or "64KiB".
        sample: a share of the blocks ("1%") or at most a number of them; results are estimates.
        keep_repeats: count a block again if a request begins in the block where the thread's last
            one ended.
        in_kernel: count transfers inside the kernel (sendfile, copy_file_range, splice).
        maps: count the mapping of a file range as one read of it.

    Raises:
        TraceError: it cannot be read; the text names the file and the place.
        RequestError: there is no such format, block or sample.

    Example:
        >>> import pathlib, tempfile
        >>> import hither
        >>> path = pathlib.Path(tempfile.mkdtemp(), "blocks.txt")
        >>> _ = path.write_text("1\\n2\\n1\\n")
        >>> hither.open(path).references
        3
    """
    with shown() as show:
        inner = _hither.load(
            os.fspath(path), format, str(block), str(sample), keep_repeats, in_kernel, maps, show
        )
    return Trace(inner, os.fspath(path))


def from_blocks(
    blocks: Any,
    *,
    writes: Any = None,
    block: int | str = 4096,
    name: str = "blocks",
) -> Trace:
    """A trace of block numbers.

    Args:
        blocks: whole numbers from 0 to 2**64 - 1, one a reference: an iterable, or a numpy array
            of any shape and whole type, which is read in C order.
        writes: as many truth values: which references write. None: none.
        block: bytes of a block, for sizes in bytes.
        name: what errors and results call the trace.

    Raises:
        RequestError: a number is negative or too large, or there are fewer `writes` than blocks.
        TypeError: what is given are no whole numbers.

    Example:
        >>> import hither
        >>> hither.from_blocks([5, 6, 5]).blocks
        2
        >>> import numpy
        >>> hither.from_blocks(numpy.arange(6).reshape(2, 3)).references
        6
    """
    numbers = _numbers(blocks)
    flags = None
    if writes is not None:
        flags = bytes(bool(one) for one in _flat(writes))
        if 8 * len(flags) != len(numbers):
            raise RequestError(f"{len(flags)} writes for {len(numbers) // 8} blocks")
    with shown() as show:
        return Trace(_hither.from_blocks(name, numbers, flags, str(block), show), name)


def _flat(values: Any) -> Iterable[Any]:
    flat: Iterable[Any] = values.reshape(-1).tolist() if hasattr(values, "reshape") else values
    return flat


def _numbers(blocks: Any) -> bytes:
    """Native 64-bit numbers."""
    if hasattr(blocks, "dtype"):
        if blocks.dtype.kind not in "iu":
            raise TypeError(f"blocks are whole numbers, not {blocks.dtype}")
        if blocks.dtype.kind == "i" and blocks.size and blocks.min() < 0:
            raise RequestError(f"a block of number {blocks.min()}: they begin at 0")
        data: bytes = blocks.astype("=u8").tobytes()
        return data
    try:
        return array("Q", blocks).tobytes()
    except OverflowError as error:
        raise RequestError(f"a block number below 0 or above 2**64 - 1 ({error})") from None


def generate(
    *parts: str,
    references: int | None = None,
    threads: int | None = None,
    nodes: int | None = None,
    seed: int = 1,
) -> Trace:
    """Generates a trace, as `hither gen` does.

    Args:
        parts: patterns, such as "zipf{blocks=1M,skew=1}" or "scan", which are mixed; or programs,
            such as "parallel-grep" or "shared-files{like=oltp}". `hither gen --help` lists them.
        references: length of a trace of patterns [default: a million].
        threads: threads of each program.
        nodes: nodes of the machine of programs.
        seed: of all random numbers.

    Raises:
        RequestError: there is no such pattern or program, or it has no such parameter.

    Example:
        >>> import hither
        >>> hither.generate("loop{blocks=100}", references=1000).blocks
        100
    """
    with shown() as show:
        inner = _hither.generate(list(parts), references, threads, nodes, seed, show)
    return Trace(inner, " + ".join(parts))
