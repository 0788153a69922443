"""The examples of docs/python.md run, one after the other, as a reader would type them."""

import inspect
import re
import shutil
import subprocess
import sysconfig
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest

import hither

DOCUMENT = Path(__file__).parents[2] / "docs" / "python.md"


@pytest.mark.skipif(not DOCUMENT.exists(), reason="only in the repository")
def test_the_examples_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "src"
    source.mkdir()
    for number in range(20):
        (source / f"{number}.rs").write_text("a needle\n" * 20_000)
    hither.record(["grep", "-r", "needle", "src"], output="build.hither", block=4096).close()
    shutil.copytree("build.hither", "grep.hither")
    Path("papers.toml").write_text(
        'policies = ["lru", "opt"]\nsizes = ["10%"]\n[[traces]]\npath = "grep.hither"\n'
    )
    names: dict[str, Any] = {
        "duckdb": duckdb,
        "pandas": pandas,
        "polars": polars,
        "pyarrow": pyarrow,
        "numpy_array": numpy.arange(100) % 7,
        "table": pandas.DataFrame({"block": [1, 2, 1]}),
    }
    examples = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) >= 5
    for number, example in enumerate(examples):
        with warnings.catch_warnings():
            # A policy that a trace has too little data for is left out.
            warnings.simplefilter("ignore")
            exec(compile(example, f"{DOCUMENT}, example {number + 1}", "exec"), names)
    rows = pandas.read_parquet("papers.parquet")
    assert rows["policy"].tolist() == ["lru", "opt"]


def test_the_command_is_beside_the_module() -> None:
    command = Path(sysconfig.get_path("scripts"), "hither")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    # What follows is the commit.
    assert version.stdout.split()[:2] == ["hither", hither.__version__]


def test_every_function_has_an_example() -> None:
    everything = [getattr(hither, name) for name in hither.__all__]
    functions = [one for one in everything if inspect.isfunction(one)]
    assert len(functions) >= 10
    for owner in (hither.Trace, hither.Results, hither.Table):
        members = [one for name, one in vars(owner).items() if not name.startswith("_")]
        methods = [one.fget if isinstance(one, property) else one for one in members]
        functions += [one for one in methods if inspect.isfunction(one)]
    # What runs them is pytest's --doctest-modules.
    lacking = [one.__qualname__ for one in functions if ">>> " not in (one.__doc__ or "")]
    assert lacking == []
