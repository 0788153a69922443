"""Results: rows with named fields, which tables and pictures are made of."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar, overload

from hither import _hither, _html


@dataclass(frozen=True)
class CacheRow:
    """What became of one cache.

    Args:
        policy: the policy as it was asked for, such as "pcc{threshold=50}"; of one in Python, the
            name of its class.
        params: all its parameters, those with their defaults too.
        size: the size as it was asked for, such as "10%".
        cache_blocks: the size in blocks; 0 for a cache of objects.
        accesses: references; of a sample, those in it.
        hits: references that found their block. None: a sample does not show it.
        misses: the others, cold misses among them. None: a sample does not show it.
        hit_ratio: hits by accesses, from 0 to 1; 0 without accesses.
        standard_error: of the hit ratio, where it is an estimate of a sample and known.
        classes: accesses by class ("sequential", "looping", "other"), for policies that classify.
        cache_bytes: the size in bytes. None: a cache of blocks, and so are all that follow.
        hit_bytes: bytes of references that found their object. None: a sample does not show it.
        missed_bytes: bytes of the others. None: a sample does not show it.
        byte_hit_ratio: bytes that were hit by all bytes, from 0 to 1.
        byte_standard_error: of the byte hit ratio, where it is an estimate and known.
        expired: misses of an object that had been there and had expired.
        passed_by: misses of an object that was not brought in, such as one larger than the cache.
        deleted: objects that were deleted.
    """

    policy: str
    params: dict[str, Any]
    size: str
    cache_blocks: int
    accesses: int
    hits: int | None
    misses: int | None
    hit_ratio: float | None
    standard_error: float | None = None
    classes: dict[str, int] = field(default_factory=dict)
    cache_bytes: int | None = None
    hit_bytes: int | None = None
    missed_bytes: int | None = None
    byte_hit_ratio: float | None = None
    byte_standard_error: float | None = None
    expired: int | None = None
    passed_by: int | None = None
    deleted: int | None = None

    @property
    def miss_ratio(self) -> float | None:
        """1 less the hit ratio.

        Example:
            >>> import hither
            >>> trace = hither.from_blocks([1, 1, 1, 2])
            >>> hither.simulate(trace, ["lru"], sizes=["1"])[0].miss_ratio
            0.5
        """
        return None if self.hit_ratio is None else 1 - self.hit_ratio


@dataclass(frozen=True)
class CurvePoint:
    """A point of a miss-ratio curve.

    Args:
        policy: the policy with its parameters.
        cache_blocks: the size of the cache in blocks; 0 for a cache of objects.
        miss_ratio: misses by references, from 0 to 1. None: a sample does not show it.
        cache_bytes: the size of a cache of objects. None: one of blocks.
        byte_miss_ratio: of a cache of objects, bytes that were missed by all bytes.
    """

    policy: str
    cache_blocks: int
    miss_ratio: float | None
    cache_bytes: int | None = None
    byte_miss_ratio: float | None = None


@dataclass(frozen=True)
class PlacementRow:
    """What became of one placement on nodes.

    Args:
        placement: the name of the placement; its parameters are among the figures.
        nodes: the topology.
        policy: the replacement of the nodes' caches. None: pages of memory are placed.
        size: the size of a node's cache.
        figures: all counts and times of `hither place --json`, by name; times in ns.
    """

    placement: str
    nodes: str
    policy: str | None
    size: str
    figures: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.figures[name]


_Row = TypeVar("_Row", bound=CacheRow | CurvePoint | PlacementRow, covariant=True)


class Results(Sequence[_Row], Generic[_Row]):
    """Rows in the order of the request: policies first, then sizes. They can be pickled.

    Example:
        >>> import hither
        >>> trace = hither.generate("loop{blocks=100}", references=1000)
        >>> results = hither.simulate(trace, ["lru", "opt"], sizes=["50%"])
        >>> len(results), results[0].policy, results[0].hits
        (2, 'lru', 0)
    """

    def __init__(self, rows: Sequence[_Row], trace: dict[str, Any], svg: str | None = None) -> None:
        """Not for users: :func:`hither.simulate` and others make results."""
        self._rows = list(rows)
        self.trace = trace
        self._svg = svg

    @overload
    def __getitem__(self, at: int) -> _Row: ...
    @overload
    def __getitem__(self, at: slice) -> "Results[_Row]": ...
    def __getitem__(self, at: int | slice) -> "_Row | Results[_Row]":
        if isinstance(at, slice):
            return Results(self._rows[at], self.trace)
        return self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[_Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Results) and (self._rows, self.trace) == (
            other._rows,
            other.trace,
        )

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, a key a field.

        Example:
            >>> import hither
            >>> trace = hither.from_blocks([1, 1])
            >>> hither.simulate(trace, ["lru"], sizes=["1"]).to_dicts()[0]["hits"]
            1
        """
        rows = [asdict(row) for row in self._rows]
        for row in rows:
            row.update(row.pop("figures", {}))
        return rows

    def to_pandas(self) -> Any:
        """The rows as a data frame, a column a field.

        Raises:
            ImportError: pandas is not installed.

        Example:
            >>> import hither
            >>> trace = hither.from_blocks([1, 1])
            >>> hither.simulate(trace, ["lru"], sizes=["1"]).to_pandas()["hits"].tolist()
            [1]
        """
        import pandas

        return pandas.DataFrame(self.to_dicts())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream: `polars.DataFrame(results)`, `pyarrow.table(results)`.

        Example:
            >>> import hither, pyarrow
            >>> trace = hither.from_blocks([1, 1])
            >>> pyarrow.table(hither.simulate(trace, ["lru"], sizes=["1"]))["hits"].to_pylist()
            [1]
        """
        rows = json.dumps(self.to_dicts(), default=str)
        return _hither.rows(rows).__arrow_c_stream__(requested_schema)

    def plot(self, axes: Any = None) -> Any:
        """Draws the miss ratio of each policy over the sizes, by matplotlib.

        Args:
            axes: where to draw. None: a new figure.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
            TypeError: placements have no curve.

        Example:
            >>> import hither
            >>> trace = hither.generate("zipf", references=1000)
            >>> axes = hither.simulate(trace, ["lru"]).plot()
            >>> axes.get_ylabel()
            'miss ratio'
        """
        lines: dict[str, list[tuple[int, float]]] = {}
        of_objects = False
        for row in self._rows:
            if isinstance(row, PlacementRow):
                raise TypeError("placements have no curve: plot a column of to_pandas()")
            if row.miss_ratio is not None:
                of_objects = row.cache_bytes is not None
                size = row.cache_bytes if row.cache_bytes is not None else row.cache_blocks
                lines.setdefault(row.policy, []).append((size, row.miss_ratio))
        if axes is None:
            from matplotlib import pyplot

            _, axes = pyplot.subplots()
        for policy, points in lines.items():
            axes.plot(*zip(*sorted(points)), marker=".", label=policy)
        axes.set_xscale("log")
        axes.set_xlabel("cache, bytes" if of_objects else "cache, blocks")
        axes.set_ylabel("miss ratio")
        axes.legend()
        return axes

    def __repr__(self) -> str:
        return f"<hither.Results: {len(self)} rows>"

    def _repr_html_(self) -> str:
        if self._svg is not None:
            return self._svg
        rows = self.to_dicts()
        for row in rows:
            for name in _NESTED & row.keys():
                del row[name]
        of_blocks = (row for row in self._rows if isinstance(row, CacheRow))
        caches = [row for row in of_blocks if row.cache_bytes is None]
        points = [(row.policy, row.cache_blocks, row.hit_ratio) for row in caches]
        return _html.table(rows) + _html.chart(points, self.trace)


#: What has no place in a cell of a table for people.
_NESTED = {
    "params", "classes", "costs", "statistics", "timeline", "iterations", "traffic", "processes",
    "capacity",
}
