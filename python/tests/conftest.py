"""What the tests of sweeps have in common: traces, and the output of one process."""

import os
import random
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hither

COMMAND = Path(sysconfig.get_path("scripts")) / "hither"
POLICIES = ["lru", "fifo", "arc", "s3-fifo", "opt", "mru"]
SIZES: list[str | int] = ["5%", "10%", "25%", 50]

Swept = Callable[..., bytes]


@pytest.fixture
def traces(tmp_path: Path) -> list[Path]:
    source = random.Random(3)
    folder = tmp_path / "traces"
    folder.mkdir()
    paths = []
    for number in range(4):
        path = folder / f"{number}.trace"
        blocks = [int(source.paretovariate(0.6)) % 3000 for _ in range(20_000 + 5000 * number)]
        path.write_text("".join(f"{block}\n" for block in blocks))
        paths.append(path)
    return paths


@pytest.fixture
def arguments() -> list[str]:
    """What a sweep of these tests does, as arguments of the command."""
    return ["sweep", "-q", "-p", ",".join(POLICIES), "-s", ",".join(map(str, SIZES))]


@pytest.fixture
def expected(traces: list[Path], arguments: list[str], tmp_path: Path) -> bytes:
    """The output of one process."""
    words: list[Any] = [COMMAND, *arguments, "-o", tmp_path / "one.csv"]
    for trace in traces:
        words += ["-t", trace]
    subprocess.run(words, check=True)
    return (tmp_path / "one.csv").read_bytes()


@pytest.fixture
def swept() -> Swept:
    """Does a sweep, and returns its output. Nothing else is left beside it."""

    def swept(traces: list[Path] | list[str], output: Path, **options: Any) -> bytes:
        path = hither.sweep(traces=traces, policies=POLICIES, sizes=SIZES, output=output, **options)
        assert not [file for file in output.parent.iterdir() if f"{output.name}." in file.name]
        return path.read_bytes()

    return swept


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files. It is empty at the end."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", os.fspath(folder))
    yield folder
    assert not [file for file in folder.iterdir() if file.name.startswith("hither-")]
