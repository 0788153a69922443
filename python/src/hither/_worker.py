"""A task of a sweep, on the machine where it runs: what of the machine it takes, and its command.

Dask's workers have limits of their own, by which its tasks go: a task takes what its worker has,
divided by the threads that the worker runs tasks with. Elsewhere a task takes its part of the
machine.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hither import _fetch, _hither
from hither._record import _command
from hither.errors import Error, RequestError

#: A third of a task's memory is for the trace and a third for the simulated caches, which the
#: command keeps below the same limit. The rest is for what neither limit counts.
_PARTS_OF_MEMORY = 3


def run(
    arguments: list[str], *, env: Mapping[str, str] | None = None, dies_with_us: bool = False
) -> str:
    """Runs the command. What it says on standard error is the text of the exception."""
    return run_bytes(arguments, env=env, dies_with_us=dies_with_us).decode()


def run_bytes(
    arguments: list[str], *, env: Mapping[str, str] | None = None, dies_with_us: bool = False
) -> bytes:
    """As `run`, where the output is no text."""
    words = [_command(), "--quiet", *arguments]
    if dies_with_us and (setpriv := shutil.which("setpriv")):
        words = [setpriv, "--pdeathsig", "KILL", *words]
    done = subprocess.run(words, capture_output=True, env=env)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("hither: ")
        text = said or f"exit code {done.returncode}"
        raise (RequestError if done.returncode == 2 else Error)(text)
    return done.stdout


def copies_file(paths: Mapping[str, Path], sizes: Mapping[str, int] | None = None) -> str:
    """The text of a file for `hither sweep --copies`: where copies are, and sizes of all."""

    def quoted(text: object) -> str:
        # Strings of JSON are strings of TOML, but for this character.
        return json.dumps(str(text), ensure_ascii=False).replace("\x7f", "\\u007f")

    lines = []
    sizes = sizes or {}
    for url in {**sizes, **paths}:
        lines += ["[[copies]]", f"trace = {quoted(url)}"]
        if url in sizes:
            lines.append(f"bytes = {sizes[url]}")
        if url in paths:
            lines.append(f"path = {quoted(paths[url])}")
    return "".join(f"{line}\n" for line in lines)


@dataclass
class _Part:
    """What of the machine a task takes."""

    threads: int
    memory_bytes: int
    #: Where temporary files go. None: TMPDIR or /var/tmp.
    folder: str | None

    def options(self) -> list[str]:
        return ["--threads", str(self.threads), "--memory", str(self.memory_bytes)]

    def env(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": self.folder} if self.folder else dict(os.environ)


@dataclass
class Task:
    """What all tasks of a sweep have in common."""

    sweep: str
    arguments: list[str]
    #: The bytes of the traces under URLs.
    sizes: dict[str, int] = field(default_factory=dict)
    storage_options: Mapping[str, Any] | None = None
    #: Tasks that a machine runs at the same time, by its address where there are several.
    at_once: int = 1
    at_once_by_host: dict[str, int] = field(default_factory=dict)

    def shard(self, shard: str) -> bytes:
        """Does a shard. Returns what it has saved."""
        part = self._part()
        with tempfile.TemporaryDirectory(
            prefix="hither-", dir=part.folder or _fetch.scratch()
        ) as folder:
            output = Path(folder, "out.csv")
            arguments = [*self.arguments, "--output", str(output), "--shard", shard]
            options = part.options()
            if not self.sizes:
                run([*arguments, *options], env=part.env(), dies_with_us=True)
                return saved(output, shard).read_bytes()
            file = Path(folder, "copies.toml")
            arguments += ["--copies", str(file)]
            file.write_text(copies_file({}, self.sizes), encoding="utf-8")
            reads = run([*arguments, "--print", "traces"]).splitlines()
            copies = _fetch.shared(self.sweep, self.storage_options, part.folder)
            with copies.named():
                paths = {name: copies.path(name) for name in reads if name in self.sizes}
                file.write_text(copies_file(paths, self.sizes), encoding="utf-8")
                run([*arguments, *options], env=part.env(), dies_with_us=True)
            return saved(output, shard).read_bytes()

    def _part(self) -> _Part:
        processors = len(os.sched_getaffinity(0))
        at_once, limit, folder = self.at_once, None, None
        if worker := _dask_worker():
            own = worker.state.nthreads
            at_once = max(own, self.at_once_by_host.get(_host(worker.address), own))
            limit, folder = worker.memory_manager.memory_limit, worker.local_directory
            limit = limit and limit // own
        memory = _hither.half_of_free_bytes() // at_once
        if limit:
            memory = min(memory, limit // _PARTS_OF_MEMORY)
        return _Part(max(1, processors // at_once), max(memory, 1), folder)


def saved(output: Path, shard: str) -> Path:
    """The file of a shard, beside the output."""
    number, of = shard.split("/")
    return output.with_name(f"{output.name}.shard-{number}-of-{of}")


def _dask_worker() -> Any:
    """The worker of Dask that runs this task, if one does."""
    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def _host(address: str) -> str:
    from distributed.comm.addressing import get_address_host

    return str(get_address_host(address))


def dask_threads(client: Any) -> dict[str, int]:
    """The threads of all workers of a client, by machine."""
    threads: dict[str, int] = {}
    for address, count in client.nthreads().items():
        host = _host(address)
        threads[host] = threads.get(host, 0) + count
    return threads
