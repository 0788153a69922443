"""Traces of file and memory accesses: simulated caches and placements, and policies in Python.

Example:
    >>> import hither
    >>> trace = hither.generate("zipf{blocks=1000,skew=1}", references=100_000)
    >>> results = hither.simulate(trace, ["lru", "s3-fifo", "opt"], sizes=["1%", "10%"])
    >>> best = max(results, key=lambda row: row.hit_ratio)
    >>> best.policy, best.size
    ('opt', '10%')
"""

from hither import errors
from hither._advice import Advice, advise
from hither._hither import Nodes, __version__
from hither._policy import Action, Placement, Replacement
from hither._record import record
from hither._results import CacheRow, CurvePoint, PlacementRow, Results
from hither._simulate import curve, place, simulate
from hither._sweep import sweep
from hither._table import Table
from hither._trace import Trace, from_arrow, from_blocks, generate, open

__all__ = [
    "Action",
    "Advice",
    "CacheRow",
    "CurvePoint",
    "Nodes",
    "Placement",
    "PlacementRow",
    "Replacement",
    "Results",
    "Table",
    "Trace",
    "__version__",
    "advise",
    "curve",
    "errors",
    "from_arrow",
    "from_blocks",
    "generate",
    "open",
    "place",
    "record",
    "simulate",
    "sweep",
]
