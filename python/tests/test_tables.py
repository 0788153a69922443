"""Tables: what traces and results give to other libraries, and traces of their tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow
import pytest

import hither
from hither import errors


@pytest.fixture
def recorded(tmp_path: Path) -> hither.Trace:
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    return hither.record(["sh", "-c", f"cat {data} {data} > /dev/null"])


def test_libraries_take_the_tables(recorded: hither.Trace) -> None:
    accesses, files, sites = recorded.accesses, recorded.files, recorded.sites
    assert len(accesses) == recorded.references
    table = pyarrow.table(accesses)
    assert table.column_names == accesses.columns
    assert table["op"].type == pyarrow.dictionary(pyarrow.int8(), pyarrow.string())
    frame = polars.DataFrame(accesses)
    assert frame.shape == (recorded.references, 9)
    found = duckdb.sql("select count(*) from accesses")
    assert found is not None and found.fetchall() == [(recorded.references,)]
    query = """
        select path, count(*) as n, max(file_block) from accesses join
        (select *, row_number() over () - 1 as number from files) on file = number
        where path like '%/data' group by path
    """
    found = duckdb.sql(query)
    assert found is not None and [row[1:] for row in found.fetchall()] == [(512, 255)]
    paths = files.to_pandas()
    (size,) = paths[paths["path"].str.endswith("/data")]["size"]
    assert size == 1 << 20
    assert sites.to_pandas()["label"][0] == "unknown" and len(sites) > 1
    assert pyarrow.table(sites)["stack"].type == pyarrow.list_(pyarrow.string())


def test_a_table_has_many_batches() -> None:
    trace = hither.generate("zipf{blocks=1000,skew=1}", references=200_000)
    reader = pyarrow.RecordBatchReader.from_stream(trace.accesses)
    assert [batch.num_rows for batch in reader] == [65536, 65536, 65536, 3392]
    # Each stream begins anew, and keeps the trace.
    table = trace.accesses
    numbers = pyarrow.table(table)["block"]
    trace.close()
    with pytest.raises(errors.ClosedError):
        len(table)
    assert len(numbers) == 200_000


def as_it_is(table: hither.Table) -> Any:
    return table


def by_duckdb(table: hither.Table) -> Any:
    accesses = table
    assert accesses.columns
    return duckdb.sql("select * from accesses")


@pytest.mark.parametrize(
    "convert",
    [as_it_is, pyarrow.table, polars.DataFrame, hither.Table.to_pandas, by_duckdb],
)
def test_tables_come_back(recorded: hither.Trace, convert: Callable[[hither.Table], Any]) -> None:
    again = hither.from_arrow(convert(recorded.accesses))
    assert (again.references, again.blocks) == (recorded.references, recorded.blocks)
    policies, sizes = ["lru", "arc", "pcc", "opt"], ["1%", "10%", "50%"]
    expected = hither.simulate(recorded, policies, sizes)
    assert [row.hits for row in hither.simulate(again, policies, sizes)] == [
        row.hits for row in expected
    ]


def test_requests_are_cut_into_blocks(tmp_path: Path) -> None:
    table = pandas.DataFrame({
        "file": pandas.Categorical(["a", "a", "b", "a"]),
        "offset": [0, 6000, 4095, 6000],
        "length": [6000, 100, 2, 100],
        "op": ["read", "read", "read", "write"],
        "thread": [7, 7, 7, 9],
        "time_ns": [10, 20, 30, 40],
    })
    trace = hither.from_arrow(table, name="mine")
    # The second goes on where the first ended, in the same block; another thread's does not.
    assert pyarrow.table(trace.accesses)["file_block"].to_pylist() == [0, 1, 0, 1, 1]
    assert hither.from_arrow(table, keep_repeats=True).references == 6
    assert hither.from_arrow(table, block="64KiB").blocks == 2
    files = trace.files.to_pandas()
    assert files["path"].tolist() == ["a", "b"]
    assert files["written_bytes"].tolist() == [100, 0]
    assert trace.summary()["path"] == "mine"


def test_numbers_of_blocks_may_be_large() -> None:
    table = pyarrow.table({"block": pyarrow.array([2**63, 5, 2**63], pyarrow.uint64())})
    trace = hither.from_arrow(table)
    assert (trace.references, trace.blocks) == (3, 2)
    written = table.append_column("op", pyarrow.array(["write", "read", "read"]))
    assert pyarrow.table(hither.from_arrow(written).accesses)["op"].to_pylist()[0] == "write"


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        ({"blocks": [1]}, errors.RequestError, "the columns blocks: what is read is `file`"),
        ({"block": [1, -2]}, errors.RequestError, "column `block`, row 1: -2 is below 0"),
        ({"block": [1, None]}, errors.RequestError, "column `block`, row 1: there is no value"),
        ({"block": [0.5]}, errors.RequestError, "`block` has to be of whole numbers, not Float64"),
        ({"block": [1], "op": ["eat"]}, errors.RequestError, "`op`: `eat` is none of read"),
        ({"block": [2**40], "site": ["a"]}, errors.TraceError, "mine.*row 0"),
        ({"file": ["a"], "offset": [0], "length": [2**40]}, errors.TraceError, "row 0.*more than"),
        ({"block": [1], "node": [2**40]}, errors.TraceError, "node 4294967295"),
        ({"block": [1], "count": [0]}, errors.TraceError, "a count of 0"),
    ],
)
def test_tables_that_are_no_traces(
    columns: dict[str, list[Any]], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        hither.from_arrow(pyarrow.table(columns), name="mine")


def test_what_is_no_table() -> None:
    with pytest.raises(TypeError, match="__arrow_c_stream__ is needed, not .*list"):
        hither.from_arrow([1, 2])

    class Lies:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return 7

    with pytest.raises(TypeError):
        hither.from_arrow(Lies())

    def batches() -> Any:
        yield pyarrow.record_batch({"block": [1, 2]})
        raise RuntimeError("the source broke")

    schema = pyarrow.schema({"block": pyarrow.int64()})
    reader = pyarrow.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(errors.Error, match="the source broke"):
        hither.from_arrow(reader)


def test_results_are_tables() -> None:
    trace = hither.from_blocks([1, 2, 1, 3])
    results = hither.simulate(trace, ["lru", "opt"], sizes=[1, 2])
    frame = polars.DataFrame(results)
    assert frame["policy"].to_list() == ["lru", "lru", "opt", "opt"]
    assert frame["hits"].to_list() == [row.hits for row in results]
    assert frame["hit_ratio"].to_list() == [row.hit_ratio for row in results]
    placed = pyarrow.table(hither.place(trace, 2))
    assert placed.num_rows == len(hither.place(trace, 2)) and "hit_ratio" in placed.column_names
    assert pyarrow.table(hither.curve(trace, "lru"))["miss_ratio"].to_pylist()[-1] == 0.75
