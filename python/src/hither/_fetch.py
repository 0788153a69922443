"""Traces under URLs: fsspec fetches copies of them.

A copy lies in a temporary folder and has a name of its own, so texts about it are changed to name
the URL. The processes of a sweep share nothing: each fetches what it reads, once.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from multiprocessing.util import Finalize
from pathlib import Path
from threading import Lock
from typing import Any

from hither._progress import _Show
from hither.errors import Error, RequestError, TraceError

_Options = Mapping[str, Any] | None

#: The files of a trace folder, for file systems that cannot list folders.
_FILES = ("accesses.parquet", "meta.json", "objects.parquet", "sites.parquet")


def is_url(name: str | os.PathLike[str]) -> bool:
    """Whether fsspec opens this: `s3://...`, or chained, `simplecache::s3://...`."""
    return isinstance(name, str) and "://" in name


@contextmanager
def _errors_of(url: str) -> Iterator[None]:
    """Errors of the file system, which may be of any class, as those of hither."""
    try:
        yield
    except Error:
        raise
    except FileNotFoundError as error:
        # Http has it for all that goes wrong, also where a server does not answer.
        cause = error.__cause__ or error
        missing = isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) == 404
        raise TraceError(f"{url}: {'there is no such file' if missing else cause}") from error
    except ImportError as error:
        raise Error(f"{url}: {error}") from error
    except Exception as error:
        raise TraceError(f"{url}: {error or type(error).__name__}") from error


def _files(url: str, options: _Options) -> tuple[Any, dict[str, tuple[str, int | None]]]:
    """The file system, and the path and size of each file: of one named "", or of a folder's."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        text = f"{url}: URLs need the package fsspec (pip install fsspec)"
        raise Error(text) from error
    try:
        system, path = url_to_fs(url, **(options or {}))
    except ValueError as error:
        raise RequestError(f"{url}: {error}") from error
    if url.startswith(("http://", "https://")) and url.endswith("/"):
        found = [path + name for name in _FILES if system.exists(path + name)]
        if not found:
            raise FileNotFoundError(path)
        listed = [system.info(file) for file in found]
    else:
        info = system.info(path)
        if info["type"] != "directory":
            return system, {"": (path, info.get("size"))}
        listed = [file for file in system.ls(path, detail=True) if file["type"] == "file"]
    named = {file["name"].rpartition("/")[2]: file for file in listed}
    # Stores without folders have an empty object in place of one.
    named.pop("", None)
    if not named:
        raise TraceError(f"{url}: a folder without files")
    return system, {name: (file["name"], file.get("size")) for name, file in named.items()}


def _size(url: str, options: _Options) -> int:
    with _errors_of(url):
        _, files = _files(url, options)
        return sum(size or 0 for _, size in files.values())


def sizes(urls: Iterable[str], options: _Options) -> dict[str, int]:
    """The bytes of each trace; 0 where the server does not say."""
    urls = list(urls)
    with ThreadPoolExecutor(8) as threads:
        return dict(zip(urls, threads.map(lambda url: _size(url, options), urls), strict=True))


def _fetch(url: str, to: Path, options: _Options, show: _Show | None) -> None:
    """Fetches a file, or a folder, to the path `to`."""
    with _errors_of(url):
        system, files = _files(url, options)
        from fsspec.callbacks import Callback

        length, before = sum(size or 0 for _, size in files.values()), 0
        for name, (path, size) in files.items():
            to_file = to / name if name else to
            to_file.parent.mkdir(exist_ok=True)

            def report(_: int | None, done: int, *, before: int = before, **__: Any) -> None:
                if show is not None:
                    show("fetching", before + done, length)

            system.get_file(path, os.fspath(to_file), callback=Callback(hooks={"show": report}))
            got = to_file.stat().st_size
            if size is not None and size != got:
                raise TraceError(f"{url}: {got} of {size} bytes came ({name or 'the file'})")
            before += got


def scratch() -> str:
    """Where large temporary files go, as those of the command: TMPDIR, else /var/tmp."""
    lasting = "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
    return os.environ.get("TMPDIR") or lasting


class Copies:
    """Copies of traces, in a temporary folder. It can be used by several threads."""

    def __init__(self, options: _Options = None, folder: str | None = None) -> None:
        """Their folder is made in `folder`, or in TMPDIR or /var/tmp."""
        self._options = options
        self.folder = Path(tempfile.mkdtemp(prefix="hither-", dir=folder or scratch()))
        self._lock = Lock()
        self._locks: dict[str, Lock] = {}
        self._names: dict[str, str] = {}
        # Also at the end of a process of `multiprocessing`, where `atexit` does nothing.
        self._remove = Finalize(None, shutil.rmtree, (self.folder, True), exitpriority=0)

    def path(self, url: str, show: _Show | None = None) -> Path:
        """The copy of a trace. It is fetched if there is none yet."""
        with self._lock:
            own = self._locks.setdefault(url, Lock())
        with own:
            copy = self.folder / sha256(url.encode()).hexdigest()[:32]
            if url not in self._names:
                partial = copy.with_suffix(".partial")
                _fetch(url, partial, self._options, show)
                partial.rename(copy)
                self._names = {**self._names, url: os.fspath(copy)}
            return copy

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors name the URLs, and not the copies."""
        try:
            yield
        except Error as error:
            text = str(error)
            for url, copy in self._names.items():
                text = text.replace(copy, url.rstrip("/"))
            raise type(error)(text) from error.__cause__

    def close(self) -> None:
        """Removes the folder."""
        self._remove()


#: The copies of this process, by sweep, and their lock.
_copies: dict[str, Copies] = {}
_lock = Lock()


def _begin() -> None:
    """A forked process has no copies: those are its parent's. Its lock is free."""
    global _copies, _lock
    _copies, _lock = {}, Lock()


os.register_at_fork(after_in_child=_begin)


def shared(sweep: str, options: _Options, folder: str | None) -> Copies:
    """The copies that all tasks of a sweep in this process share, until :func:`forget`."""
    with _lock:
        if sweep not in _copies:
            _copies[sweep] = Copies(options, folder)
        return _copies[sweep]


def forget(sweep: str) -> None:
    """Removes the copies of a sweep in this process."""
    with _lock:
        copies = _copies.pop(sweep, None)
    if copies is not None:
        copies.close()
