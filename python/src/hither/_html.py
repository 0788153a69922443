"""How traces, results and advice look in a notebook: tables, and the charts of the command."""

import html
from collections.abc import Iterable
from typing import Any

from hither import _hither

#: Rows of a table, at most: a notebook is for people.
ROWS_MAX = 60


def paragraph(text: str, is_bold: bool = False) -> str:
    """A paragraph of plain text."""
    escaped = html.escape(text)
    return f"<p><b>{escaped}</b></p>" if is_bold else f"<p>{escaped}</p>"


def table(rows: list[dict[str, Any]]) -> str:
    """A table with a column for each key of the first row; at most ROWS_MAX of the rows."""
    names = list(rows[0]) if rows else []
    lines = [_cells([row[name] for name in names], "td") for row in rows[:ROWS_MAX]]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    more = len(rows) - ROWS_MAX
    left = paragraph(f"and {more} more") if more > 0 else ""
    return f"<table><tr>{_cells(names, 'th')}</tr>{body}</table>{left}"


def chart(results: Iterable[tuple[str, int, float | None]], trace: dict[str, Any]) -> str:
    """The miss ratios of policies by cache size in blocks, as SVG; nothing if no line has points.

    Args:
        results: policy, cache size in blocks, hit ratio.
        trace: the summary of the trace.
    """
    lines: dict[str, dict[int, float]] = {}
    for policy, blocks, hit_ratio in results:
        if hit_ratio is not None:
            lines.setdefault(policy, {})[blocks] = 1 - hit_ratio
    if not any(len(points) > 1 for points in lines.values()):
        return ""
    name, blocks = trace["path"], trace["distinct_blocks"]
    subtitle = f"{trace['references']:,} references to {blocks:,} blocks"
    sorted_lines = [(policy, sorted(points.items())) for policy, points in lines.items()]
    title = f"Miss ratio by cache size: {name.rsplit('/', 1)[-1][:60]}"
    return _hither.chart(title, subtitle, trace["block_bytes"], sorted_lines)


def _cells(values: list[Any], tag: str) -> str:
    return "".join(f"<{tag}>{html.escape(_text(value))}</{tag}>" for value in values)


def _text(value: Any) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.4g}"
    return str(value)
