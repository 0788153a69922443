"""A sweep by Dask has the bytes of one process, also if workers die or the client does."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hither
from hither import _worker

distributed = pytest.importorskip("distributed")

Swept = Callable[..., bytes]


class Apart:
    """A scheduler and workers, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        while not self.file.exists():
            assert self.started[0].poll() is None
            time.sleep(0.05)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        words = (sys.executable, "-m", "dask", *words, "--scheduler-file", str(self.file))
        child = subprocess.Popen(
            words,
            start_new_session=True,
            stderr=subprocess.DEVNULL,
            # A worker with less memory than it has itself works on nevertheless.
            env={**os.environ, "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"},
        )
        self.started.append(child)
        return child

    def worker(self, limit: str) -> subprocess.Popen[bytes]:
        """Starts a worker with one thread, without what would start it again if it dies."""
        folder = self.folder / f"worker-{len(self.started)}"
        folder.mkdir()
        limits = "--nthreads", "1", "--memory-limit", limit, "--local-directory", str(folder)
        return self.start("worker", *limits, "--no-nanny", "--no-dashboard")

    @staticmethod
    def kill(child: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    folder = tmp_path / "dask"
    folder.mkdir()
    apart = Apart(folder)
    yield apart
    for child in reversed(apart.started):
        apart.kill(child)


@pytest.fixture
def workers(apart: Apart) -> list[subprocess.Popen[bytes]]:
    """Two workers. Their traces go to the disk, since 100 KiB have no room for them."""
    return [apart.worker("300KiB"), apart.worker("300KiB")]


@pytest.fixture
def client(apart: Apart, workers: list[Any]) -> Iterator[Any]:
    with distributed.Client(scheduler_file=str(apart.file)) as client:
        client.wait_for_workers(len(workers), timeout=120)
        yield client


def shards(output: Path) -> list[str]:
    return [file.name for file in output.parent.glob("*.shard-*-of-*[0-9]")]


def test_a_cluster_of_this_process(
    traces: list[Path], expected: bytes, swept: Swept, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        assert swept(traces, tmp_path / "dask.csv", executor=client) == expected


def test_limits_of_workers(client: Any, apart: Apart) -> None:
    task = _worker.Task("x", [], at_once_by_host=_worker.dask_threads(client))
    assert task.at_once_by_host == {"127.0.0.1": 2}
    for part in [client.submit(task._part, pure=False).result() for _ in range(3)]:
        assert part.threads == max(1, len(os.sched_getaffinity(0)) // 2)
        assert part.memory_bytes == 100 * 1024
        assert part.folder.startswith(str(apart.folder / "worker-"))


def test_urls_are_fetched_by_workers(
    client: Any, apart: Apart, traces: list[Path], expected: bytes, swept: Swept, tmp_path: Path
) -> None:
    urls = [f"file://{trace}" for trace in traces]
    output = tmp_path / "urls.csv"
    path = bytes(traces[0].parent)
    found = swept(urls, output, executor=client, shards=12)
    assert found == expected.replace(path, b"file://" + path)
    assert not list(apart.folder.glob("worker-*/**/hither-*"))


def test_a_worker_that_dies(
    client: Any,
    workers: list[subprocess.Popen[bytes]],
    traces: list[Path],
    expected: bytes,
    swept: Swept,
    tmp_path: Path,
) -> None:
    output = tmp_path / "killed.csv"

    def kill() -> None:
        while not shards(output):
            time.sleep(0.005)
        Apart.kill(workers[0])

    killer = threading.Thread(target=kill)
    killer.start()
    assert swept(traces, output, executor=client, shards=40) == expected
    killer.join()
    while len(client.nthreads()) > 1:
        time.sleep(0.05)


def test_a_client_that_dies(
    client: Any,
    apart: Apart,
    traces: list[Path],
    expected: bytes,
    swept: Swept,
    tmp_path: Path,
) -> None:
    output = tmp_path / "again.csv"
    text = (
        "import sys, conftest, distributed, hither\n"
        "client = distributed.Client(scheduler_file=sys.argv[1])\n"
        "hither.sweep(traces=sys.argv[3:], policies=conftest.POLICIES, sizes=conftest.SIZES,\n"
        "    output=sys.argv[2], executor=client, shards=30)\n"
    )
    first = subprocess.Popen(
        [sys.executable, "-c", text, apart.file, output, *traces],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
    )
    while len(shards(output)) < 2 and first.poll() is None:
        time.sleep(0.01)
    first.kill()
    first.wait()
    assert shards(output)
    # There are 30 tasks again, less those that are done.
    assert swept(traces, output, executor=client) == expected
