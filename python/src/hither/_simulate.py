"""Simulations of caches and placements."""

import json
from collections.abc import Iterable
from typing import Any

from hither import _hither
from hither._policy import Placement, Replacement
from hither._progress import shown
from hither._results import CacheRow, CurvePoint, PlacementRow, Results
from hither._trace import Trace
from hither.errors import RequestError

_Policy = str | type[Replacement]
_Placement = str | type[Placement]


def _inner(trace: Trace) -> _hither.Trace:
    if not isinstance(trace, Trace):
        raise TypeError(f"a hither.Trace is needed, not {type(trace).__name__}: hither.open(path)")
    return trace._inner


def _named(policies: Any) -> list[Any]:
    """Names and classes as a list. A single one need not be in a list."""
    return [policies] if isinstance(policies, str | type) else list(policies)


def _texts(values: Iterable[str | int] | str | int) -> list[str]:
    if isinstance(values, str | int | type):
        values = [values]
    texts = list(values)
    for value in texts:
        if isinstance(value, type):
            problem = "a policy in Python runs in simulate, curve and place alone"
            raise TypeError(f"{value.__name__}: {problem}")
    return [str(value) for value in texts]


def _row(policy: str, size: str, result: dict[str, Any]) -> CacheRow:
    estimate = result.get("estimate") or {}
    of_bytes = estimate.get("bytes") or {}
    estimate = estimate.get("objects") or estimate
    return CacheRow(
        policy=policy,
        params=result["params"],
        size=size,
        cache_blocks=result.get("cache_blocks", 0),
        accesses=result["accesses"],
        hits=result["hits"],
        misses=result["misses"],
        hit_ratio=result["hit_ratio"],
        standard_error=estimate.get("standard_error"),
        classes=result.get("classes", {}),
        cache_bytes=result.get("cache_bytes"),
        hit_bytes=result.get("hit_bytes"),
        missed_bytes=result.get("missed_bytes"),
        byte_hit_ratio=result.get("byte_hit_ratio"),
        byte_standard_error=of_bytes.get("standard_error"),
        expired=result.get("expired"),
        passed_by=result.get("passed_by"),
        deleted=result.get("deleted"),
    )


def simulate(
    trace: Trace,
    policies: Iterable[_Policy] | _Policy = (),
    sizes: Iterable[str | int] | str | int = (),
) -> Results[CacheRow]:
    """Simulates caches: each policy at each size.

    Args:
        trace: the trace.
        policies: names with parameters, such as "lru" or "pcc{threshold=50}", and classes derived
            from :class:`hither.Replacement`. None given: lru, arc and opt.
        sizes: "64MiB" (bytes), "512" or 512 (blocks), "10%" (of the distinct blocks; of the bytes
            of all objects where the trace was opened with `objects`). None given: five shares.

    Returns:
        A row for each policy and size, in this order.

    Raises:
        RequestError: there is no such policy or parameter, a size holds no block, or a policy
            needs what the trace does not have.
        PolicyError: a policy in Python named a victim that is not in the cache.

    Example:
        >>> import hither
        >>> trace = hither.generate("loop{blocks=100}", references=1000)
        >>> for row in hither.simulate(trace, ["lru", "opt"], sizes=["50%"]):
        ...     print(row.policy, row.hits, row.misses)
        lru 0 1000
        opt 450 550
    """
    named = _named(policies)
    with shown() as show:
        found = json.loads(_hither.simulate(_inner(trace), named, _texts(sizes), show))
    names = [policy if isinstance(policy, str) else policy.__name__ for policy in named]
    asked = [(name, size) for name in names or found["policies"] for size in found["sizes"]]
    rows = [_row(policy, size, result) for (policy, size), result in zip(asked, found["results"])]
    return Results(rows, found["trace"])


def curve(
    trace: Trace,
    policies: Iterable[_Policy] | _Policy = (),
    *,
    points: int = 64,
    scale: str = "log",
) -> Results[CurvePoint]:
    """The miss ratio of each policy over all cache sizes.

    Args:
        trace: the trace.
        policies: names with parameters, and classes derived from :class:`hither.Replacement`. None
            given: lru, arc and opt.
        points: sizes, at most; lru and opt take one pass for all sizes and have up to 1000.
        scale: "log" (equal factors between sizes) or "linear" (equal steps).

    Raises:
        RequestError: there is no such policy, or the trace is empty.

    Example:
        >>> import hither
        >>> trace = hither.generate("loop{blocks=100}", references=1000)
        >>> points = hither.curve(trace, "lru")
        >>> points[-1].cache_blocks, points[-1].miss_ratio
        (100, 0.1)
    """
    if scale not in ("log", "linear"):
        raise RequestError(f"scale={scale!r}: it is log or linear")
    with shown() as show:
        rows, svg = _hither.curve(_inner(trace), _named(policies), points, scale == "log", show)
    found = [
        CurvePoint(
            row["policy"],
            row["cache_blocks"] or 0,
            row["miss_ratio"],
            None if row["cache_blocks"] is not None else row["cache_bytes"],
            row["byte_miss_ratio"],
        )
        for row in json.loads(rows)
    ]
    return Results(found, trace.summary(), svg)


def place(
    trace: Trace,
    nodes: Iterable[str | int] | str | int,
    placements: Iterable[_Placement] | _Placement = (),
    *,
    sizes: Iterable[str | int] | str | int = (),
    policies: Iterable[_Policy] | _Policy = (),
    bind: str = "auto",
    warm_up: str | int = 0,
    costs: str = "",
) -> Results[PlacementRow]:
    """Simulates placements: which data is on which node of a machine or a cluster.

    Args:
        trace: the trace: of files, or of memory.
        nodes: topologies: shapes ("mesh:5x5", "4"), presets ("opteron2"), or files (.toml).
        placements: names with parameters, such as "post-office", and classes derived from
            :class:`hither.Placement`. None given: the default ones.
        sizes: of a node's cache or memory, as in :func:`hither.simulate`.
        policies: the replacement of the nodes' caches, as in :func:`hither.simulate`.
        bind: which node a thread runs on: auto, trace, threads or processes.
        warm_up: what is not counted: references (100000), a part ("10%"), or "2iterations".
        costs: costs that replace those of the model: "disk_ns=20000000,compute_ns=1000".

    Raises:
        RequestError: there is no such topology, placement or cost.
        PolicyError: a policy in Python named a victim that is not in the cache, a node that there
            is not, or an action that is none.

    Example:
        >>> import hither
        >>> trace = hither.generate("shared-files{like=oltp,blocks=100}", threads=4)
        >>> rows = hither.place(trace, "mesh:2x2", ["first-and-forever", "post-office"])
        >>> [row.placement for row in rows]
        ['first-and-forever', 'post-office']
    """
    with shown() as show:
        found = json.loads(
            _hither.place(
                _inner(trace),
                _texts(nodes),
                _named(placements),
                _texts(sizes),
                _named(policies),
                bind,
                str(warm_up),
                costs,
                show,
            )
        )
    rows = [
        PlacementRow(
            placement=result["placement"],
            nodes=result["nodes"],
            policy=result.get("policy"),
            size=str(result.get("size")),
            figures=result,
        )
        for result in found["results"]
    ]
    return Results(rows, found["trace"])
