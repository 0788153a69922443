"""What the module says is what the command says, and a policy in Python is one of Rust."""

import json
import random
import subprocess
import sysconfig
from pathlib import Path

import numpy
import pytest

import hither
from hither import errors

COMMAND = Path(sysconfig.get_path("scripts")) / "hither"


@pytest.fixture
def blocks() -> list[int]:
    source = random.Random(1)
    return [int(source.paretovariate(0.7)) % 5000 for _ in range(20_000)]


@pytest.fixture
def path(tmp_path: Path, blocks: list[int]) -> Path:
    path = tmp_path / "blocks.txt"
    path.write_text("".join(f"{block}\n" for block in blocks))
    return path


def command(*arguments: object) -> dict[str, object]:
    words = [str(word) for word in (COMMAND, *arguments)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def test_caches_are_those_of_the_command(path: Path) -> None:
    policies, sizes = ["lru", "arc", "s3-fifo{small=0.2}", "opt"], ["1%", "100", "64KiB"]
    found = command("sim", "--json", path, "-p", ",".join(policies), "-s", ",".join(sizes))
    results = hither.simulate(hither.open(path), policies, sizes)
    assert results.trace == found["trace"]
    expected = found["results"]
    assert isinstance(expected, list)
    names = ("params", "cache_blocks", "accesses", "hits", "misses", "hit_ratio")
    assert [[getattr(row, name) for name in names] for row in results] == [
        [row[name] for name in names] for row in expected
    ]
    assert [(row.policy, row.size) for row in results] == [
        (policy, size) for policy in policies for size in sizes
    ]


def test_defaults_are_those_of_the_command(path: Path) -> None:
    found = command("sim", "--json", path)["results"]
    assert isinstance(found, list)
    results = hither.simulate(hither.open(path))
    assert [(row.policy, row.hits) for row in results] == [
        (row["policy"], row["hits"]) for row in found
    ]


def test_placements_are_those_of_the_command(tmp_path: Path) -> None:
    folder = tmp_path / "shared.hither"
    spec = "shared-files{like=oltp,blocks=500}"
    subprocess.run([COMMAND, "gen", "-q", spec, "--threads", "4", "-o", folder], check=True)
    placements = ["first-and-forever", "cost-benefit{load=no}"]
    options = ["--nodes", "mesh:2x2", "--placement", ",".join(placements), "-s", "10%"]
    found = command("place", "--json", folder, *options, "--bind", "threads")["results"]
    results = hither.place(
        hither.open(folder), "mesh:2x2", placements, sizes="10%", bind="threads"
    )
    assert [row.figures for row in results] == found
    assert results[1]["local"] > 0


def test_samples_say_their_error(path: Path) -> None:
    trace = hither.open(path, sample="20%")
    row = hither.simulate(trace, ["lru"], sizes=["10%"])[0]
    assert row.standard_error is None or 0 < row.standard_error < 1


@pytest.mark.parametrize("kind", ["u8", "i4", "u2"])
def test_arrays_of_any_whole_type(blocks: list[int], kind: str) -> None:
    array = numpy.array(blocks, dtype=kind).reshape(100, -1)
    expected = hither.simulate(hither.from_blocks(blocks), ["lru"])
    assert hither.simulate(hither.from_blocks(array), ["lru"]) == expected
    trace = hither.from_blocks(array, writes=array % 2 == 0)
    assert trace.statistics()["bytes"]["written"] > 0


def test_blocks_are_numbered_as_they_come(blocks: list[int]) -> None:
    first: dict[int, int] = {}
    expected = [first.setdefault(block, len(first)) for block in blocks]
    numbers = hither.from_blocks(blocks).accesses.to_pandas()["block"]
    assert numbers.tolist() == expected


def test_notebooks_and_tables(path: Path) -> None:
    trace = hither.open(path)
    results = hither.simulate(trace, ["lru"], sizes=["10%"])
    assert results.to_pandas()["hits"].tolist() == [results[0].hits]
    assert "<td>lru</td>" in results._repr_html_() and "<svg" not in results._repr_html_()
    both = hither.simulate(trace, ["lru", "arc"], sizes=["1%", "10%"])._repr_html_()
    assert both.startswith("<table><tr><th>policy</th>") and ">arc</text>" in both
    assert "timeline" not in hither.place(trace, 2)._repr_html_()
    many = hither.simulate(trace, ["lru"], sizes=range(1, 100))._repr_html_()
    assert many.count("<tr>") == 61 and "and 39 more" in many
    assert hither.curve(trace, ["lru", "arc"])._repr_html_().startswith("<svg")
    assert f"{trace.references} references" in trace._repr_html_()
    page = hither.advise(trace, ["lru", "arc"], sizes=["1%", "10%"])._repr_html_()
    assert page.startswith("<p><b>") and "<svg" in page and "<td>arc</td>" in page


def test_advice_is_that_of_the_command(path: Path) -> None:
    found = command("advise", "--json", path)
    advice = hither.advise(hither.open(path))
    assert advice.document == found
    explained = [str(COMMAND), "advise", "--explain", str(path)]
    words = subprocess.run(explained, capture_output=True, text=True).stdout
    assert all(sentence in words for sentence in advice.sentences)
    assert advice.sentences and advice.sentences[0] in advice._repr_html_().replace("&#x27;", "'")


def test_a_recorded_program(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    folder = tmp_path / "cat.hither"
    script = f"cat {data} > /dev/null; exit 3"
    with hither.record(["sh", "-c", script], output=folder) as trace:
        assert trace.exit_code == 3
        assert trace.references >= 256
        assert trace.summary()["command"][:2] == ["sh", "-c"]
        assert f"<td>{data}</td>" in trace._repr_html_()
    assert hither.open(folder).references >= 256
    temporary = hither.record(["cp", str(data), "/dev/null"], cwd=tmp_path)
    held = Path(temporary.name)
    assert held.is_dir()
    temporary.close()
    assert not held.exists()


def test_caches_of_objects(tmp_path: Path) -> None:
    path = tmp_path / "kv.csv"
    lines = ["0,a,100,get", "1,b,300,get", "2,a,100,get", "3,b,300,delete", "4,b,300,get"]
    path.write_text("time,object,size,op\n" + "\n".join(lines) + "\n")
    trace = hither.open(path, objects=True)
    found = hither.simulate(trace, ["lru", "s3-fifo"], ["4000B", "100%"])
    row = found[0]
    assert (row.cache_blocks, row.cache_bytes, row.accesses) == (0, 4000, 4)
    assert (row.hits, row.hit_bytes, row.missed_bytes, row.deleted) == (1, 100, 700, 1)
    assert found[1].cache_bytes == 400
    points = hither.curve(trace, "lru")
    assert points[-1].cache_bytes == 400 and points[-1].byte_miss_ratio == 0.875
    assert found.plot().get_xlabel() == "cache, bytes"
    assert "lru" in found._repr_html_()
    # Without sizes, all are alike, and a delete is a write.
    alike = hither.open(path)
    assert alike.references == 5 and hither.simulate(alike, "lru", 2)[0].hits == 3
    with pytest.raises(errors.RequestError, match="number of objects"):
        hither.simulate(alike, "lru", "400B")
    with pytest.raises(errors.Error, match="does not take sizes"):
        hither.simulate(trace, "lirs", "400B")
