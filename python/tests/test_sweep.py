"""A sweep by any executor has the bytes of one process, also if workers die."""

import concurrent.futures
import os
import random
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hither
from hither import errors

COMMAND = Path(sysconfig.get_path("scripts")) / "hither"
POLICIES = ["lru", "fifo", "arc", "s3-fifo", "opt", "mru"]
SIZES: list[str | int] = ["5%", "10%", "25%", 50]


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    source = random.Random(3)
    paths = []
    for number in range(4):
        path = tmp_path / f"{number}.trace"
        blocks = [int(source.paretovariate(0.6)) % 3000 for _ in range(20_000 + 5000 * number)]
        path.write_text("".join(f"{block}\n" for block in blocks))
        paths.append(path)
    return paths


@pytest.fixture
def expected(traces: list[Path], tmp_path: Path) -> bytes:
    words: list[Any] = [COMMAND, "sweep", "-q", "-p", ",".join(POLICIES)]
    words += ["-s", ",".join(map(str, SIZES)), "-o", tmp_path / "one.csv"]
    for trace in traces:
        words += ["-t", trace]
    subprocess.run(words, check=True)
    return (tmp_path / "one.csv").read_bytes()


def swept(traces: list[Path], output: Path, **options: Any) -> bytes:
    path = hither.sweep(traces=traces, policies=POLICIES, sizes=SIZES, output=output, **options)
    left = [file for file in output.parent.iterdir() if ".shard-" in file.name]
    assert not left
    return path.read_bytes()


def test_executors(traces: list[Path], expected: bytes, tmp_path: Path) -> None:
    assert swept(traces, tmp_path / "none.csv") == expected
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert swept(traces, tmp_path / "threads.csv", executor=pool) == expected
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        assert swept(traces, tmp_path / "own.csv", executor=processes, shards=7) == expected


@pytest.fixture
def cluster() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        with distributed.Client(cluster) as client:
            yield client


def test_dask(cluster: Any, traces: list[Path], expected: bytes, tmp_path: Path) -> None:
    assert swept(traces, tmp_path / "dask.csv", executor=cluster, shards=12) == expected


def test_a_worker_that_dies(
    cluster: Any, traces: list[Path], expected: bytes, tmp_path: Path
) -> None:
    workers = list(cluster.run(os.getpid).values())
    killer = threading.Timer(0.2, os.kill, (workers[0], signal.SIGKILL))
    killer.start()
    assert swept(traces, tmp_path / "killed.csv", executor=cluster, shards=40) == expected
    killer.join()
    assert workers[0] not in cluster.run(os.getpid).values()


def test_what_is_done_is_not_done_again(
    traces: list[Path], expected: bytes, tmp_path: Path
) -> None:
    output = tmp_path / "parts.csv"

    class Tired(concurrent.futures.ThreadPoolExecutor):
        """Its tasks fail from the fourth on."""

        started = 0

        def submit(self, *arguments: Any, **options: Any) -> concurrent.futures.Future[Any]:
            self.started += 1
            if self.started > 3:
                raise OSError("no more")
            return super().submit(*arguments, **options)

    with Tired(1) as pool, pytest.raises(OSError, match="no more"):
        hither.sweep(
            traces=traces, policies=POLICIES, sizes=SIZES, output=output, executor=pool, shards=6
        )
    words = [str(COMMAND), "sweep", "-q", "-p", ",".join(POLICIES), "-s", ",".join(map(str, SIZES))]
    words += [word for trace in traces for word in ("-t", str(trace))]
    subprocess.run([*words, "-o", str(output), "--shard", "2/6"], check=True)
    with Tired(2) as pool:
        pool.started = -2
        assert swept(traces, output, executor=pool, shards=6) == expected
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        with pytest.raises(errors.Error, match="already exists"):
            swept(traces, output, executor=threads)
        assert swept(traces, output, executor=threads, force=True) == expected


def test_requests_that_cannot_be_met(traces: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            with pytest.raises(errors.RequestError, match="lruu"):
                hither.sweep(traces=traces, policies=["lruu"], output=output, executor=executor)
            with pytest.raises(errors.Error, match="missing.trace"):
                hither.sweep(traces=[tmp_path / "missing.trace"], output=output, executor=executor)
        with pytest.raises(errors.RequestError, match="-1 shards"):
            hither.sweep(traces=traces, output=output, executor=pool, shards=-1)
