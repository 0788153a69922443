"""A sweep by any executor has the bytes of one process."""

import concurrent.futures
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

import hither
from hither import _worker, errors

COMMAND = Path(sysconfig.get_path("scripts")) / "hither"

Swept = Callable[..., bytes]


def test_executors(traces: list[Path], expected: bytes, swept: Swept, tmp_path: Path) -> None:
    assert swept(traces, tmp_path / "none.csv") == expected
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        assert swept(traces, tmp_path / "threads.csv", executor=pool) == expected
    with concurrent.futures.ProcessPoolExecutor(2) as processes:
        assert swept(traces, tmp_path / "own.csv", executor=processes, shards=7) == expected


def test_what_is_done_is_not_done_again(
    traces: list[Path], expected: bytes, swept: Swept, arguments: list[str], tmp_path: Path
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
        swept(traces, output, executor=pool, shards=6)
    words = [str(COMMAND), *arguments, *(f"--trace={trace}" for trace in traces)]
    subprocess.run([*words, "-o", str(output), "--shard", "2/6"], check=True)
    with Tired(2) as pool:
        pool.started = -2
        # As many as there were.
        assert swept(traces, output, executor=pool) == expected
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        with pytest.raises(errors.Error, match="already exists"):
            swept(traces, output, executor=threads)
        assert swept(traces, output, executor=threads, force=True) == expected


def test_rows_come_as_tasks_end(
    traces: list[Path], expected: bytes, swept: Swept, tmp_path: Path
) -> None:
    tables: list[Any] = []
    for name, end in (("none.csv", {}), ("threads.csv", {"shards": 5})):
        tables.clear()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            executor = {"executor": pool} if end else {}
            output = tmp_path / name
            assert swept(traces, output, on_rows=tables.append, **executor, **end) == expected
        assert len(tables) == end.get("shards", 4)
        rows = pyarrow.concat_tables(tables).to_pandas()
        whole = pandas.read_csv(output)
        columns = ["trace", "policy", "cache_blocks", "size"]
        sorted_rows = rows.sort_values(columns).reset_index(drop=True)
        sorted_whole = whole.sort_values(columns).reset_index(drop=True)
        pandas.testing.assert_frame_equal(sorted_rows, sorted_whole, check_dtype=False)


def test_rows_of_traces_under_urls(traces: list[Path], swept: Swept, tmp_path: Path) -> None:
    counts: list[int] = []
    urls = [f"file://{trace}" for trace in traces]
    output = tmp_path / "out.csv"
    content = swept(urls, output, shards=2, on_rows=lambda rows: counts.append(len(rows)))
    assert len(counts) == 2
    assert sum(counts) == len(content.splitlines()) - 1


def test_rows_of_an_interrupted_sweep_come_first(
    traces: list[Path], expected: bytes, swept: Swept, tmp_path: Path
) -> None:
    output, counts = tmp_path / "out.csv", []

    def stop(rows: pyarrow.Table) -> None:
        counts.append(len(rows))
        if len(counts) == 2:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        swept(traces, output, on_rows=stop, shards=5)
    first = list(counts)
    counts.append(0)
    assert swept(traces, output, on_rows=stop) == expected
    assert counts[3:5] == first or counts[3:5] == first[::-1]
    assert sum(counts[3:]) == len(expected.splitlines()) - 1


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


def test_tasks_divide_the_machine() -> None:
    processors = len(os.sched_getaffinity(0))
    whole, half = (_worker.Task("x", [], at_once=at_once)._part() for at_once in (1, 2))
    assert (whole.threads, half.threads) == (processors, max(1, processors // 2))
    assert 0 < half.memory_bytes < whole.memory_bytes * 3 // 4
    assert _worker.Task("x", [], at_once=10_000)._part().threads == 1
