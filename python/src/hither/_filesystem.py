"""Files of mounts for fsspec: `fsspec.filesystem("hither")`. It is fsspec that imports this module.

Directories are looked at through the mount. What is opened is read through the cache of the node
that serves the mount, over a socket and shared memory, without a call of the kernel for each page.
"""

import contextlib
import errno
import io
import os
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from fsspec.implementations.local import LocalFileSystem, make_path_posix
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from hither import _hither

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: Bytes that are read at least, unless the file has fewer: a block of a mount by default. Of 8 KiB
#: to 1 MiB it was the fastest for reads of 16 KiB from start to end (3.5 GB/s from memory); 1 MiB
#: made reads of 1000 bytes here and there ten times slower (2026-11-27).
BUFFER_BYTES = 128 << 10

_LOCAL = LocalFileSystem()


class _Raw(io.RawIOBase):
    """A position in an open file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._reader: _hither.Reader | None = _hither.open_reader(path)
        self.name = path
        self.size = self._reader.size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _read(self, length: int) -> bytes:
        if self._reader is None:
            raise ValueError("I/O operation on closed file")
        data = self._reader.read_at(self._position, length)
        self._position += len(data)
        return data

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        data = self._read(len(view))
        view[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        return self._read(max(self.size - self._position, 0))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if self._reader is None:
            raise ValueError("I/O operation on closed file")
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise ValueError(f"whence is 0, 1 or 2, not {whence}")
        position = (0, self._position, self.size)[whence] + offset
        if position < 0:
            raise ValueError(f"position {position}: before the start of the file")
        self._position = position
        return position

    def close(self) -> None:
        self._reader = None
        super().close()


class HitherFile(io.BufferedReader):
    """An open file of a mount. It keeps the version that it had when it was opened.

    Threads that read at once do best with a file each. A process that was forked opens its own.
    """

    def __init__(self, path: str, buffer_bytes: int = BUFFER_BYTES) -> None:
        raw = _Raw(path)
        super().__init__(raw, buffer_bytes)
        #: Bytes of the file.
        self.size = raw.size
        self.path = path


class HitherFileSystem(AbstractFileSystem):
    """Files of the mounts that `hither mount` and `hither node` serve on this machine, to be read.

    A path is the one at which programs see the file: `/mnt/data/part-0001`, or as a URL
    `hither:///mnt/data/part-0001`. Nothing is written: that is for the mount. A path in no mount,
    or whose node has ended, raises an `OSError` that names it.

    Example:
        >>> import fsspec
        >>> fs = fsspec.filesystem("hither")
        >>> fs.glob("/mnt/data/*.parquet")  # doctest: +SKIP
        ['/mnt/data/part-0001.parquet', '/mnt/data/part-0002.parquet']
        >>> fs.cat_file("/mnt/data/part-0001.parquet", end=4)  # doctest: +SKIP
        b'PAR1'
        >>> import pandas
        >>> pandas.read_parquet("hither:///mnt/data/part-0001.parquet")  # doctest: +SKIP
    """

    protocol = "hither"
    root_marker = "/"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path).removeprefix("hither://")
        return make_path_posix(path).rstrip("/") or cls.root_marker

    def _in_mount(self, path: Any) -> str:
        stripped: str = self._strip_protocol(path)
        _hither.require_mount(stripped)
        return stripped

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """What the mount says of a file or directory: `name`, `size`, `type`, `mtime`, ..."""
        info: dict[str, Any] = _LOCAL.info(self._in_mount(path))
        return info

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The entries of a directory, as paths or as what `info` says of each."""
        entries: list[Any] = _LOCAL.ls(self._in_mount(path), detail=detail)
        return entries

    def exists(self, path: Any, **kwargs: Any) -> bool:
        """Whether there is such a path. One in no mount raises `OSError`."""
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def walk(self, path: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """As for any file system, but a path in no mount raises `OSError` instead of being empty.

        So do `find` and `glob`.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._in_mount(path)
        entries: Iterator[Any] = super().walk(path, *args, **kwargs)
        return entries

    def modified(self, path: Any) -> datetime:
        """When the file was last changed."""
        time: datetime = _LOCAL.modified(self._in_mount(path))
        return time

    def cat_file(
        self, path: Any, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """The bytes of a file, or of a part of it; negative numbers count from its end."""
        reader = _hither.open_reader(self._strip_protocol(path))
        first, last, _ = slice(start, end).indices(reader.size)
        return reader.read_at(first, max(last - first, 0))

    def _open(
        self, path: Any, mode: str = "rb", block_size: int | None = None, **kwargs: Any
    ) -> HitherFile:
        if mode != "rb":
            self._refuse(path)
        return HitherFile(self._strip_protocol(path), block_size or BUFFER_BYTES)

    def _refuse(self, path: Any, *args: Any, **kwargs: Any) -> NoReturn:
        what = "hither:// only reads; to write, use the path of a mount made with --write"
        raise OSError(errno.EROFS, what, self._strip_protocol(path))

    # fsspec takes some of these to have succeeded where a file system does not have them.
    mkdir = makedirs = rmdir = rm_file = _rm = touch = _refuse

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> NoReturn:
        """Raises `OSError`: nothing is written."""
        self._refuse(path2)
