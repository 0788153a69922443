"""What would help a program."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hither import _hither, _html
from hither._progress import shown
from hither._simulate import _inner, _texts
from hither._trace import Trace


@dataclass(frozen=True)
class Advice:
    """What would help, and how sure that is.

    Args:
        sentences: the advice in words, as `hither advise --explain` prints it.
        change: "policy" (another replacement policy), "size" (a larger cache), "nothing", or
            "unknown"; None for traces of memory, where only placements matter.
        policy: the policy to use, where one helps.
        gain: the gain in hit ratio over LRU, from 0 to 1.
        confidence: "sure", "likely" or "unsure"; None where nothing was simulated.
        document: all of it, as `hither advise --json` prints it.
    """

    sentences: tuple[str, ...]
    change: str | None
    policy: str | None
    gain: float
    confidence: str | None
    document: dict[str, Any]

    def __str__(self) -> str:
        return "\n".join(self.sentences)

    def _repr_html_(self) -> str:
        verdict = (self.document.get("advice") or {}).get("sentences") or self.sentences
        first = verdict[0] if verdict else "No advice."
        others = [sentence for sentence in self.sentences if sentence != first]
        results = self.document.get("results") or []
        shown = ("policy", "cache_blocks", "hits", "misses", "hit_ratio")
        rows = [{name: result[name] for name in shown} for result in results]
        points = [(row["policy"], row["cache_blocks"], row["hit_ratio"]) for row in rows]
        parts = [_html.paragraph(first, is_bold=True), *map(_html.paragraph, others)]
        if rows:
            parts += [_html.chart(points, self.document["trace"]), _html.table(rows)]
        return "".join(parts)


def advise(
    trace: Trace,
    policies: Iterable[str] | str = (),
    sizes: Iterable[str | int] | str | int = (),
    *,
    nodes: Iterable[str | int] | str | int = (),
) -> Advice:
    """Says what would help a program: another policy, more cache, another placement, or nothing.

    Args:
        trace: the trace.
        policies: the policies to try. None given: those that the trace has enough data for.
        sizes: cache sizes, as in :func:`hither.simulate`. None given: shares of the data, and the
            memory that a recorded program had.
        nodes: topologies, on which placements are tried. None given: the trace's own nodes.

    Raises:
        RequestError: there is no such policy, size or topology.

    Example:
        >>> import hither
        >>> trace = hither.generate("loop{blocks=1000}", references=50_000)
        >>> advice = hither.advise(trace, ["lru", "mru", "opt"], sizes=["50%"])
        >>> advice.change, advice.policy, round(advice.gain, 2)
        ('policy', 'mru', 0.49)
    """
    with shown() as show:
        document: dict[str, Any] = json.loads(
            _hither.advise(_inner(trace), _texts(policies), _texts(sizes), _texts(nodes), show)
        )
    advice = document.get("advice") or {}
    return Advice(
        sentences=tuple(document.pop("sentences")),
        change=advice.get("change"),
        policy=advice.get("policy"),
        gain=advice.get("gain", 0.0),
        confidence=(advice.get("confidence") or {}).get("level"),
        document=document,
    )
