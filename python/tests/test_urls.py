"""Traces under URLs are what they are as files; copies of them are not left."""

import concurrent.futures
import http.server
import multiprocessing
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hither
from hither import errors

fsspec = pytest.importorskip("fsspec")

Swept = Callable[..., bytes]
Reads = Counter[str]


@pytest.fixture
def served(tmp_path: Path, traces: list[Path]) -> Iterator[tuple[str, Reads]]:
    """The address of a server of the folder of traces, and how often it sent each."""
    pytest.importorskip("aiohttp")
    reads: Reads = Counter()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            reads[self.path] += 1
            super().do_GET()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    handler = partial(Handler, directory=str(tmp_path / "traces"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", reads
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A trace folder."""
    path = tmp_path / "traces" / "cp.hither"
    path.parent.mkdir(exist_ok=True)
    hither.record(["cp", "/etc/passwd", "/dev/null"], output=path).close()
    return path


def same(url: str, path: Path) -> None:
    with hither.open(url) as trace, hither.open(path) as own:
        summary = own.summary()
        assert trace.name == url
        assert trace.summary() == {**summary, "path": url}
        assert trace.statistics()["stats"] == own.statistics()["stats"]


def test_files_and_folders(
    traces: list[Path], folder: Path, served: tuple[str, Reads], scratch: Path
) -> None:
    address, reads = served
    memory = fsspec.filesystem("memory")
    memory.pipe("/hither/0.trace", traces[0].read_bytes())
    memory.put(str(folder), "/hither/cp.hither", recursive=True)
    same("memory://hither/0.trace", traces[0])
    same("memory://hither/cp.hither", folder)
    same(f"file://{traces[1]}", traces[1])
    same(f"file://{folder}", folder)
    same(f"{address}/2.trace", traces[2])
    same(f"{address}/cp.hither/", folder)
    assert reads["/2.trace"] == 1
    cache = {"simplecache": {"cache_storage": str(scratch / "cache")}}
    with hither.open(f"simplecache::{address}/3.trace", storage_options=cache) as trace:
        assert trace.references == 35_000
    memory.rm("/hither", recursive=True)


def test_what_cannot_be_opened(
    traces: list[Path], served: tuple[str, Reads], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = served
    for url in ("memory://hither/none", f"file://{scratch}/none", f"{address}/none"):
        with pytest.raises(errors.TraceError, match=f"^{url}: there is no such file"):
            hither.open(url)
    with pytest.raises(errors.TraceError, match="^http://127.0.0.1:1/x: .*connect"):
        hither.open("http://127.0.0.1:1/x")
    with pytest.raises(errors.TraceError, match=f"^{address}/none/: there is no such file"):
        hither.open(f"{address}/none/")
    with pytest.raises(errors.RequestError, match="^what://x: "):
        hither.open("what://x")
    with pytest.raises(errors.RequestError, match="for URLs"):
        hither.open(traces[0], storage_options={"key": "x"})
    letter = traces[0].with_name("letter")
    letter.write_text("1\n2\nDear reader,\n")
    for name in ("letter", "letter.hither"):
        letter.with_name("letter.hither").mkdir(exist_ok=True)
        with pytest.raises(errors.TraceError, match=f"^file://{traces[0].parent}/{name}:"):
            hither.open(f"file://{traces[0].parent}/{name}")
    fsspec.register_implementation("none", "no_such_module.System", errtxt="Install nofs")
    with pytest.raises(errors.Error, match="^none://x: Install nofs"):
        hither.open("none://x")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(errors.Error, match=r"pip install fsspec"):
        hither.open("s3://bucket/x")


def test_sweeps(
    traces: list[Path],
    expected: bytes,
    swept: Swept,
    served: tuple[str, Reads],
    scratch: Path,
    tmp_path: Path,
) -> None:
    address, reads = served
    names = [f"{address}/{trace.name}" for trace in traces]
    expected = expected.replace(bytes(traces[0].parent), address.encode())
    assert swept(names, tmp_path / "none.csv") == expected
    assert set(reads.values()) == {1}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        reads.clear()
        assert swept(names, tmp_path / "threads.csv", executor=pool, shards=9) == expected
        assert len(reads) == 4 and set(reads.values()) == {1}
    # Forked processes have nothing of the sweeps before.
    for method in ("fork", "spawn"):
        reads.clear()
        context = multiprocessing.get_context(method)
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as processes:
            output = tmp_path / f"{method}.csv"
            assert swept(names, output, executor=processes, shards=9) == expected
        assert len(reads) == 4 and max(reads.values()) <= 2


def test_files_of_sweeps(
    traces: list[Path], served: tuple[str, Reads], scratch: Path, tmp_path: Path
) -> None:
    """URLs in the file of a sweep, beside a path, with settings of their own."""
    address, _ = served
    text = 'policies = ["lru", "arc"]\nsizes = [50, 70]\n'
    local = "".join(f'[[traces]]\npath = "traces/{number}.trace"\n' for number in range(4))
    remote = local.replace("traces/", f"{address}/").replace(f"{address}/2", "traces/2")
    results = []
    for name, tables in (("local", local), ("remote", remote)):
        spec = tmp_path / f"{name}.toml"
        spec.write_text(f"{text}{tables}block = 512\n")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for executor in (None, pool):
                output = tmp_path / f"{name}-{executor is None}.csv"
                results.append(hither.sweep(spec, output=output, executor=executor).read_text())
    assert results[0] == results[1] and results[2] == results[3]
    assert results[0] == results[2].replace(f"{address}/", "traces/")
    assert results[2].count(address) == 12


def test_sweeps_that_fail(
    traces: list[Path], served: tuple[str, Reads], scratch: Path, tmp_path: Path
) -> None:
    address, _ = served
    output = tmp_path / "out.csv"
    traces[1].with_name("letter").write_text("Dear reader,\n")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for executor in (None, pool):
            for name, match in (("none", "there is no such file"), ("letter", "")):
                urls = [f"{address}/0.trace", f"{address}/{name}"]
                with pytest.raises(errors.Error, match=f"^{address}/{name}: {match}"):
                    hither.sweep(traces=urls, sizes=[5], output=output, executor=executor)
            output.write_text("mine")
            with pytest.raises(errors.Error, match="already exists"):
                hither.sweep(traces=urls, output=output, executor=executor)
            output.unlink()
    command = Path(sys.executable).with_name("hither")
    done = subprocess.run([command, "sweep", "-t", urls[0]], capture_output=True, text=True)
    assert done.returncode == 2 and "the command reads no URLs" in done.stderr
