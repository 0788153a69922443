"""What users get wrong: each is an exception that says what, and nothing hangs or crashes."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time

import pytest

import hither
from hither import errors


@pytest.fixture
def loop() -> hither.Trace:
    return hither.generate("loop{blocks=100}", references=10_000)


@pytest.mark.parametrize(
    ("policies", "sizes", "says"),
    [
        (["lruu"], ["10"], "unknown policy `lruu`"),
        (["pcc{threshold=x}"], ["10"], "threshold"),
        (["lru"], ["0"], "holds no block"),
        (["lru"], ["10 apples"], "is not a size"),
        (["ubm"], ["10"], "needs"),
    ],
)
def test_requests_that_cannot_be_met(policies: list[str], sizes: list[str], says: str) -> None:
    trace = hither.from_blocks(range(100))
    if says == "needs":
        # Every block of it has a file, so ask for what it does not have: call sites.
        policies = ["pcc"]
    with pytest.raises(errors.RequestError, match=says):
        hither.simulate(trace, policies, sizes)


def test_wrong_types(loop: hither.Trace) -> None:
    with pytest.raises(TypeError):
        hither.simulate("a path", ["lru"])  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        hither.from_blocks(["a"])
    with pytest.raises(TypeError):
        hither.from_blocks([1.5])
    for blocks in ([-1], [2**64]):
        with pytest.raises(errors.RequestError, match="block number"):
            hither.from_blocks(blocks)
    with pytest.raises(errors.RequestError, match="2 writes for 1 blocks"):
        hither.from_blocks([1], writes=[True, False])
    with pytest.raises(errors.RequestError, match="2 to 4096"):
        hither.curve(loop, "lru", points=1)
    with pytest.raises(errors.RequestError, match="log or linear"):
        hither.curve(loop, "lru", scale="cubic")
    for parts, options, says in [
        ([], {}, "nothing to generate"),
        (["nothing"], {}, "unknown generator `nothing`"),
        (["zipf", "parallel-grep"], {}, "cannot be mixed"),
        (["zipf"], {"threads": 2}, "threads are for programs"),
        (["zipf"], {"references": 0}, "at least one reference"),
        (["parallel-grep"], {"references": 5}, "references is for patterns"),
        (["parallel-grep"], {"threads": 0}, "at least one thread"),
        (["cfd"], {"threads": 1000}, "at most 64 threads"),
        (["cfd"], {"nodes": 0}, "1 to 65534 nodes"),
    ]:
        with pytest.raises(errors.RequestError, match=says):
            hither.generate(*parts, **options)


def test_traces_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.TraceError, match="no such file|No such file"):
        hither.open(tmp_path / "missing")
    bad = tmp_path / "bad.hither"
    bad.mkdir()
    with pytest.raises(errors.TraceError, match="bad.hither"):
        hither.open(bad)
    with pytest.raises(errors.RequestError, match="unknown"):
        hither.open(bad, format="nonsense")


def test_a_closed_trace(loop: hither.Trace) -> None:
    with loop:
        assert loop.blocks == 100
    loop.close()
    for use in (
        lambda: loop.blocks,
        lambda: hither.simulate(loop, ["lru"]),
        lambda: hither.curve(loop, "lru"),
        lambda: hither.place(loop, 4),
        lambda: loop.accesses.columns,
    ):
        with pytest.raises(errors.ClosedError, match="was closed"):
            use()
    assert "closed" in repr(loop)


def test_a_trace_in_many_threads(loop: hither.Trace) -> None:
    expected = hither.simulate(loop, ["lru", "arc"], sizes=["50%"])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        runs = [pool.submit(hither.simulate, loop, ["lru", "arc"], ["50%"]) for _ in range(32)]
        assert all(run.result() == expected for run in runs)


def misses(blocks: int) -> int | None:
    trace = hither.generate(f"loop{{blocks={blocks}}}", references=1000)
    return hither.simulate(trace, ["lru"], sizes=["50%"])[0].misses


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(method: str, loop: hither.Trace) -> None:
    hither.simulate(loop, ["lru"])
    with multiprocessing.get_context(method).Pool(2) as pool:
        # A child that waited for its parent's threads would wait for ever.
        assert pool.map_async(misses, [10, 20]).get(timeout=60) == [1000, 1000]


def test_pickling(loop: hither.Trace) -> None:
    results = hither.simulate(loop, ["lru", "opt"])
    assert pickle.loads(pickle.dumps(results)) == results
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(loop)


PROGRAM = """
import hither, sys
trace = hither.generate("zipf{blocks=1M}", references=20_000_000)
print("ready", flush=True)
hither.simulate(trace, ["lirs", "arc", "dear", "w-tinylfu", "opt"], sizes=["1%", "2%", "5%", "9%"])
print("done")
"""


def test_ctrl_c_ends_a_simulation() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.kill(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert "done" not in out and "KeyboardInterrupt" in err


def test_programs_that_cannot_be_recorded(
    tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(errors.TraceError, match=r"/no/such: no trace was made \(exit code 127\)"):
        hither.record(["/no/such"], output=tmp_path / "a.hither")
    assert "/no/such" in capfd.readouterr().err
    with pytest.raises(TypeError, match="list of words"):
        hither.record("make -j8")
    with pytest.raises(ValueError, match="nothing to record"):
        hither.record([])
