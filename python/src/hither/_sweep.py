"""Sweeps over many traces, by any executor."""

import glob
import io
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from contextlib import closing, nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hither import _fetch
from hither._fetch import is_url
from hither._progress import shown
from hither._simulate import _texts
from hither._worker import Task, copies_file, dask_threads, run, run_bytes, saved
from hither.errors import Error, RequestError

_Text = str | os.PathLike[str]


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
    on_rows: Callable[[Any], object] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Path:
    """Simulates many policies and sizes on many traces, on as many machines as `executor` has.

    The sweep is cut into shards, as by `hither sweep --shard`; each is a task. What a shard has
    done comes back and is saved beside the output, so the same call goes on where an interrupted
    one was. The output has the same bytes as that of one process on one machine.

    Args:
        spec: a TOML file, as of `hither sweep`; its traces may have settings of their own.
        output: the file to write: .csv, .json or .parquet, a row for each cache.
        traces: traces, in place of those of the file. Workers see them under the same paths, or
            fetch those under URLs, as in :func:`hither.open`, each once. So may the file's be URLs.
        policies: names with parameters, in place of those of the file.
        sizes: as in :func:`hither.simulate`, in place of those of the file.
        executor: a `concurrent.futures.Executor`, or a client of Dask (`distributed.Client`). None:
            this process, with all its processors.
        shards: tasks. None: as many as the interrupted sweep had, or four for each worker that the
            executor is known to have, or 16.
        force: replace an output that is there.
        on_rows: called with the rows of each task as it ends, a `pyarrow.Table` with the columns of
            the output; first with those of tasks that an interrupted sweep had done. What it raises
            ends the sweep, and the same call goes on with it.
        storage_options: of all URLs, as in :func:`hither.open`.

    Returns:
        The path of the output.

    Raises:
        RequestError: the sweep is none: no traces, an unknown policy, a shard of another plan.
        Error: a trace cannot be read, or the output cannot be written.
        TraceError: a trace under a URL cannot be fetched.
        ImportError: there is `on_rows`, and pyarrow is not installed.

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
    all_traces = [os.fspath(trace) for trace in traces]
    for trace in all_traces:
        arguments += ["--trace", trace if is_url(trace) else os.path.abspath(trace)]
    if named := _texts(policies):
        arguments += ["--policy", ",".join(named)]
    if named := _texts(sizes):
        arguments += ["--size", ",".join(named)]
    if spec is not None and not all_traces:
        all_traces = run([*arguments, "--print", "traces"]).splitlines()
    urls = list(dict.fromkeys(trace for trace in all_traces if is_url(trace)))
    if path.exists() and not force and (executor is not None or on_rows is not None or urls):
        raise Error(f"{path}: already exists (force=True replaces it)")
    end = ["--output", str(path), *["--force"] * force]
    if executor is None and on_rows is None:
        _here(arguments, end, urls, storage_options)
        return path
    task = Task(uuid.uuid4().hex, arguments, storage_options=storage_options)
    take_rows = None
    if on_rows is not None:
        # If it is missing, that is said before hours of simulation.
        import_module("pyarrow.parquet")
        take_rows = partial(_take_rows, arguments, path, on_rows)
    with ThreadPoolExecutor(1) if executor is None else nullcontext(executor) as executor:
        _by_tasks(task, executor, urls, path, shards, take_rows)
    run([*arguments, *end, "--shard", "merge"])
    return path


def _by_tasks(
    task: Task,
    executor: Any,
    urls: list[str],
    path: Path,
    shards: int | None,
    take_rows: Callable[[str], None] | None,
) -> None:
    """Does all shards of a sweep by an executor."""
    client = executor if hasattr(executor, "get_executor") else None
    submit: Any = executor.submit
    completed: Any = as_completed
    workers = getattr(executor, "_max_workers", None)
    if client is not None:
        # Not its executor, which raises an error of its own if a worker dies with a result that
        # was about to be fetched (ValueError in cfexecutor.py, 2026.8.0).
        import distributed

        submit, completed = partial(client.submit, pure=False), distributed.as_completed
        task.at_once_by_host = dask_threads(client)
        workers = sum(task.at_once_by_host.values())
    else:
        task.at_once = workers or 1
    try:
        if urls:
            task.sizes = submit(_fetch.sizes, urls, task.storage_options).result()
        _all_shards(task, submit, completed, path, shards, workers or 4, take_rows)
    finally:
        _fetch.forget(task.sweep)
        if urls and client is not None:
            # They go at the end of the workers in any case.
            with suppress(Exception):
                client.run(_fetch.forget, task.sweep)


def _take_rows(
    arguments: list[str], path: Path, on_rows: Callable[[Any], object], shard: str
) -> None:
    """Calls `on_rows` with the rows of a shard that is saved beside the output."""
    from pyarrow import parquet

    words = [*arguments, "--output", str(path), "--shard", shard, "--print", "rows"]
    words += ["--to", "parquet"]
    on_rows(parquet.ParquetFile(io.BytesIO(run_bytes(words))).read())


def _here(
    arguments: list[str], end: list[str], urls: list[str], options: Mapping[str, Any] | None
) -> None:
    """Does a sweep in one process on this machine."""
    if not urls:
        run([*arguments, *end])
        return
    with closing(_fetch.Copies(options)) as copies, copies.named():
        with shown() as show:
            paths = {url: copies.path(url, show) for url in urls}
        file = copies.folder / "copies.toml"
        file.write_text(copies_file(paths), encoding="utf-8")
        run([*arguments, *end, "--copies", str(file)])


def _all_shards(
    task: Task,
    submit: Any,
    completed: Any,
    path: Path,
    shards: int | None,
    workers: int,
    take_rows: Callable[[str], None] | None,
) -> None:
    """Does the shards that are not beside the output yet."""
    count = _shards_there(path) or 4 * workers if shards is None else shards
    if count < 1:
        raise RequestError(f"{count} shards: there is at least one")
    # Neighbours read the same traces. Each worker begins at a place of its own, so that what it
    # does next is likely of a trace that it has.
    each = -(-count // workers)
    order = sorted(range(count), key=lambda number: (number % each, number))
    names = [f"{number + 1}/{count}" for number in order]
    left = [name for name in names if not saved(path, name).exists()]
    tasks: dict[Any, str] = {}
    try:
        for name in left:
            tasks[submit(task.shard, name)] = name
        if take_rows is not None:
            for name in names:
                if name not in left:
                    take_rows(name)
        with shown() as show:
            for done, future in enumerate(completed(tasks), len(names) - len(left) + 1):
                _save(saved(path, tasks[future]), future.result())
                if take_rows is not None:
                    take_rows(tasks[future])
                if show is not None:
                    show("sweep", done, len(names))
    except BaseException:
        for future in tasks:
            future.cancel()
        raise


def _shards_there(output: Path) -> int | None:
    """How many shards the interrupted sweep of this output had, if there was one."""
    counts = [
        int(of)
        for file in output.parent.glob(f"{glob.escape(output.name)}.shard-*")
        if (of := file.name.rpartition("-of-")[2]).isdecimal()
    ]
    return max(counts, default=None)


def _save(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(content)
    partial.replace(path)
