"""Sweeps over many traces, by any executor."""

import os
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import Executor, Future, as_completed
from pathlib import Path
from typing import Any, cast

from hither._progress import shown
from hither._record import _command
from hither._simulate import _texts
from hither.errors import Error, RequestError

_Text = str | os.PathLike[str]


def _run(arguments: list[str]) -> None:
    """Runs the command. What it says on standard error is the text of the exception."""
    done = subprocess.run([_command(), "--quiet", *arguments], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        text = done.stderr.strip().removeprefix("hither: ") or f"exit code {done.returncode}"
        raise (RequestError if done.returncode == 2 else Error)(text)


def _shard(arguments: list[str], shard: str) -> bytes:
    """Does a shard, on any machine that sees the traces. Returns what it has saved."""
    with tempfile.TemporaryDirectory(prefix="hither-") as folder:
        output = Path(folder, "out.csv")
        _run([*arguments, "--output", str(output), "--shard", shard])
        return _file(output, shard).read_bytes()


def _file(output: Path, shard: str) -> Path:
    number, of = shard.split("/")
    return output.with_name(f"{output.name}.shard-{number}-of-{of}")


def sweep(
    spec: _Text | None = None,
    *,
    output: _Text,
    traces: Iterable[_Text] = (),
    policies: Iterable[str] | str = (),
    sizes: Iterable[str | int] | str | int = (),
    executor: Executor | Any = None,
    shards: int | None = None,
    force: bool = False,
) -> Path:
    """Simulates many policies and sizes on many traces, on as many machines as `executor` has.

    The sweep is cut into shards, as by `hither sweep --shard`; each is a task. What a shard has
    done comes back and is saved beside the output, so the same call goes on where an interrupted
    one was. The output has the same bytes as that of one process on one machine.

    Args:
        spec: a TOML file, as of `hither sweep`; its traces may have settings of their own.
        output: the file to write: .csv, .json or .parquet, a row for each cache.
        traces: traces, in place of those of the file. Workers see them under the same paths.
        policies: names with parameters, in place of those of the file.
        sizes: as in :func:`hither.simulate`, in place of those of the file.
        executor: a `concurrent.futures.Executor`, or a client of Dask (`distributed.Client`). None:
            this process, with all its processors.
        shards: tasks. None: four for each worker that the executor is known to have, or 16.
        force: replace an output that is there.

    Returns:
        The path of the output.

    Raises:
        RequestError: the sweep is none: no traces, an unknown policy, a shard of another plan.
        Error: a trace cannot be read, or the output cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> import hither
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> trace, output = folder / "a.txt", folder / "out.csv"
        >>> _ = trace.write_text("1\\n2\\n1\\n")
        >>> path = hither.sweep(traces=[trace], policies=["lru", "opt"], sizes=[1], output=output)
        >>> len(path.read_text().splitlines())
        3
    """
    path = Path(output).absolute()
    arguments = ["sweep"]
    if spec is not None:
        arguments.append(os.path.abspath(spec))
    for trace in traces:
        arguments += ["--trace", os.path.abspath(trace)]
    if named := _texts(policies):
        arguments += ["--policy", ",".join(named)]
    if named := _texts(sizes):
        arguments += ["--size", ",".join(named)]
    replace = ["--force"] * force
    if executor is None:
        _run([*arguments, "--output", str(path), *replace])
        return path
    if path.exists() and not force:
        raise Error(f"{path}: already exists (force=True replaces it)")
    if hasattr(executor, "get_executor"):
        executor = executor.get_executor(pure=False)
    count = shards or 4 * _workers(executor)
    if count < 1:
        raise RequestError(f"{count} shards: there is at least one")
    names = [f"{number}/{count}" for number in range(1, count + 1)]
    left = [name for name in names if not _file(path, name).exists()]
    tasks: dict[Future[bytes], str] = {}
    try:
        for name in left:
            tasks[cast("Future[bytes]", executor.submit(_shard, arguments, name))] = name
        with shown() as show:
            for done, task in enumerate(as_completed(tasks), len(names) - len(left) + 1):
                _save(_file(path, tasks[task]), task.result())
                if show is not None:
                    show("sweep", done, len(names))
    except BaseException:
        for task in tasks:
            task.cancel()
        raise
    _run([*arguments, "--output", str(path), "--merge", *replace])
    return path


def _workers(executor: Any) -> int:
    workers = getattr(executor, "_max_workers", None)
    return workers if isinstance(workers, int) else 4


def _save(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
