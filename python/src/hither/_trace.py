"""Traces."""

import json
import os
from array import array
from collections.abc import Iterable, Mapping
from contextlib import closing
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from hither import _hither, _html
from hither._fetch import Copies, is_url
from hither._progress import shown
from hither._table import Table
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

    @property
    def accesses(self) -> Table:
        """The references as an Arrow table: a row for each, in order.

        Columns: `block` (numbered from 0, in the order in which they come first), `file` (the row
        in `files`), `file_block` (the block's number in its file), `op` ("read", "write", "map"),
        `site` (the row in `sites`), `process`, `thread`, `node` (of the machine), and `count` (how
        many successive accesses to a page of memory it stands for; 1 for files). What the trace
        does not know is 0; without files, `file_block` is the number that the trace has for the
        block. Of a sample, the references in it.

        Rows are made while they are read, 65,536 at a time: the table takes no memory of its own.

        Example:
            >>> import hither, duckdb
            >>> accesses = hither.generate("zipf{blocks=100,skew=1}", references=1000).accesses
            >>> duckdb.sql("select count(*), max(block) < 100 from accesses").fetchall()
            [(1000, True)]
        """
        return Table(lambda: _hither.accesses(self._inner))

    @property
    def files(self) -> Table:
        """The files, or the regions of memory, as an Arrow table.

        Columns: `path`, `kind` ("file" or "memory"), `size` (bytes, when first opened),
        `first_seen_ns` and `last_seen_ns` (since the start of the recording), and counts:
        `requests`, `sequential` (requests where the last one ended), `read_bytes`,
        `written_bytes`, `mapped_bytes`, and of memory `loads`, `stores`, `faults`. Empty for a
        trace of bare blocks.

        Example:
            >>> import hither
            >>> files = hither.record(["cat", "/etc/passwd"]).files.to_pandas()
            >>> "/etc/passwd" in set(files["path"])
            True
        """
        return Table(lambda: _hither.files(self._inner))

    @property
    def sites(self) -> Table:
        """The call sites as an Arrow table. Row 0 is the unknown site.

        Columns: `label` (the function and its line, as the command shows it), `signature` (the same
        in each run of the same program), `function`, `source` (file), `line`, `module` (null where
        they are not known), `stack` (a list, innermost frame first), and the counts of `files`.

        Example:
            >>> import hither
            >>> hither.from_blocks([1]).sites.to_pandas()["label"].tolist()
            ['unknown']
        """
        return Table(lambda: _hither.sites(self._inner))

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
        parts = [_html.paragraph(repr(self)[1:-1], is_bold=True)]
        try:
            used = json.loads(self._inner.most_used(10))
        except ValueError:
            return parts[0]
        for what in ("files", "sites"):
            # A trace of bare blocks has no file, and no site but the unknown one.
            if len(used[what]) > (what == "sites"):
                parts += [_html.paragraph(f"Most used {what}"), _html.table(used[what])]
        return "".join(parts)

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
    objects: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Trace:
    """Reads a trace: a folder of `hither record`, or a file in any format that hither knows.

    Args:
        path: the folder or file; bzip2, gzip, xz, zstd and tar are unpacked, and `ARCHIVE:FILE` is
            one file of an archive of several. Or a URL of a folder or file, such as
            "s3://bucket/a.oracleGeneral.zst": fsspec fetches it to a temporary place, which is
            removed once it is read. A folder by http or https ends in "/".
        format: the name of the format, such as `oracle-general` or `lirs`, or for delimited text
            its columns, such as `columns{key=3,size=4,time=1}`. None: by the content.
        block: bytes of a block, such as 65536 or "64KiB".
        sample: a share of the blocks ("1%") or at most a number of them; results are estimates.
        keep_repeats: count a block again if a request begins in the block where the thread's last
            one ended.
        in_kernel: count transfers inside the kernel (sendfile, copy_file_range, splice).
        maps: count the mapping of a file range as one read of it.
        objects: keep how large each object is, where the trace says it: caches are then of bytes,
            objects expire and are deleted, and results are by object and by byte.
        storage_options: of a URL, for the file system of fsspec: credentials, an endpoint.

    Raises:
        TraceError: it cannot be read; the text names the file and the place.
        RequestError: there is no such format, block or sample, or no such kind of URL.
        Error: the package that a URL needs is not installed; the text names it.

    Example:
        >>> import pathlib, tempfile
        >>> import hither
        >>> path = pathlib.Path(tempfile.mkdtemp(), "blocks.txt")
        >>> _ = path.write_text("1\\n2\\n1\\n")
        >>> hither.open(path).references
        3
    """
    name = os.fspath(path)
    options = format, str(block), str(sample), keep_repeats, in_kernel, maps, objects
    with shown() as show:
        if not is_url(name):
            if storage_options:
                raise RequestError(f"{name}: storage_options are for URLs")
            return Trace(_hither.load(name, *options, None, show), name)
        with closing(Copies(storage_options)) as copies, copies.named():
            copy = os.fspath(copies.path(name, show))
            return Trace(_hither.load(copy, *options, name, show), name)


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


def from_arrow(
    table: Any,
    *,
    block: int | str = 4096,
    keep_repeats: bool = False,
    name: str = "table",
) -> Trace:
    """A trace of a table: one of pandas, polars, pyarrow or DuckDB, or :attr:`Trace.accesses`.

    A row is a request, or a reference to a block. Which it is, the columns say; others than these
    are not read:

    - `file`, `offset` and `length`: a request for bytes of a file, as a program makes it.
    - `file` and `file_block`: a block of a file, numbered from 0.
    - `block`: a block, by any number below 2**64; with more columns than `op`, below 2**32.

    These may be there too: `op` ("read", "write" or "map"), `site` (the call site), `process`,
    `thread`, `node`, `count` (how often the same), `time_ns`. Files and sites are texts or numbers,
    the others are whole numbers from 0 on. Site 0 is the unknown one.

    Args:
        table: anything with `__arrow_c_stream__`. It is read in batches, and not kept.
        block: bytes of a block.
        keep_repeats: as in :func:`hither.open`.
        name: what errors and results call the trace.

    Raises:
        RequestError: the table has none of these columns, or a value that cannot be; the text names
            the column and the row.
        TraceError: a row cannot be a request: it is longer than a call can be, or its block has no
            number.
        TypeError: it is no table.

    Example:
        >>> import hither, pandas
        >>> table = pandas.DataFrame({
        ...     "file": ["a", "a", "b"], "offset": [0, 8192, 0], "length": [8192, 4096, 100],
        ... })
        >>> trace = hither.from_arrow(table)
        >>> trace.references, len(trace.files)
        (4, 2)
    """
    with shown() as show:
        inner = _hither.from_arrow(table, name, str(block), keep_repeats, show)
    return Trace(inner, name)


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
