"""Tables as Arrow: what pandas, polars, DuckDB and pyarrow take and give without a copy."""

from collections.abc import Callable
from typing import Any

from hither import _hither


class Table:
    """A table that other libraries read through the Arrow PyCapsule interface.

    `polars.DataFrame(table)` and `pyarrow.table(table)` take it as it is, and DuckDB finds it by
    the name of its variable. Nothing is copied but to the library's own form.

    Example:
        >>> import hither, pyarrow
        >>> trace = hither.from_blocks([7, 9, 7])
        >>> pyarrow.table(trace.accesses)["block"].to_pylist()
        [0, 1, 0]
    """

    def __init__(self, make: Callable[[], _hither.Table]) -> None:
        """Not for users: traces and results have tables."""
        self._make = make

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        Example:
            >>> import hither
            >>> hither.from_blocks([1]).accesses.columns[:3]
            ['block', 'file', 'file_block']
        """
        return self._make().columns

    def __len__(self) -> int:
        return len(self._make())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._make().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """A data frame of pandas.

        Raises:
            ImportError: pandas or pyarrow is not installed.

        Example:
            >>> import hither
            >>> hither.from_blocks([7, 9, 7]).accesses.to_pandas()["block"].tolist()
            [0, 1, 0]
        """
        import pyarrow

        return pyarrow.table(self).to_pandas()

    def __repr__(self) -> str:
        return f"<hither.Table: {len(self)} rows of {', '.join(self.columns)}>"
