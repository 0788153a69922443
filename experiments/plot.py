"""Charts as SVG for the experiments: grouped bars, and lines. No dependencies. Equal data give
equal bytes."""

import math
from pathlib import Path
from xml.sax.saxutils import escape

# The colours of Okabe and Ito, which colour-blind people can distinguish. Position in the legend
# also identifies a series.
COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000"]
# So many numbers fit below an axis.
MARKS_MAX = 24
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 380, 62, 16, 64, 52


class Chart:
    """Axes, a title and a legend. Values start at 0."""

    def __init__(self, title: str, unit: str, series: list[str], most: float):
        self.parts: list[str] = []
        self.top = step(most)[1]
        places, at, row = [], LEFT, 0
        for name in series:
            width = 30 + 6.3 * len(name)
            if at > LEFT and at + width > WIDTH:
                at, row = LEFT, row + 1
            places.append((at, row))
            at += width
        # A legend of several rows makes the picture higher.
        self.above = 16 * row
        self.text(LEFT, 20 - self.above, title, size=15)
        self.text(LEFT, TOP - 8, unit, size=11)
        for number, (name, (at, row)) in enumerate(zip(series, places)):
            y = 30 - self.above + 16 * row
            colour = COLOURS[number % len(COLOURS)]
            # Where colours repeat, boxes are hollow and lines dashed.
            fill = colour if number < len(COLOURS) else "none"
            box = f'stroke="{colour}" stroke-width="2"' if fill == "none" else ""
            self.parts.append(
                f'<rect x="{at}" y="{y}" width="11" height="11" '
                f'fill="{fill}"{" " * bool(box)}{box}/>'
            )
            self.text(at + 15, y + 10, name, size=11)
        value = 0.0
        while value <= self.top + 1e-9:
            y = self.y(value)
            self.parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            )
            self.text(LEFT - 6, y + 4, f"{value:g}", size=11, anchor="end")
            value += step(most)[0]

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def text(self, x: float, y: float, text: str, size: int, anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )

    def write(self, path: Path) -> None:
        height = HEIGHT + self.above
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-self.above} {WIDTH} '
            f'{height}" font-family="sans-serif">'
        )
        ground = f'<rect y="{-self.above}" width="{WIDTH}" height="{height}" fill="#fff"/>'
        path.write_text("\n".join([head, ground, *self.parts, "</svg>", ""]))


def step(most: float) -> tuple[float, float]:
    """The distance of round values on an axis up to `most`, and the end of the axis."""
    size = 10.0**-6
    while size * 10 < most:
        size *= 10
    for factor in (0.2, 0.5, 1, 2):
        if most / (size * factor) <= 10:
            distance = size * factor
            break
    ends = distance
    while ends < most - 1e-9:
        ends += distance
    return distance, ends


def bars(
    path: Path,
    title: str,
    unit: str,
    groups: dict[str, list[float | None]],
    series: list[str],
    spread: dict | None = None,
) -> None:
    """Groups of bars, one bar per series; a missing value leaves a gap. `spread` is the smallest
    and the largest value of a bar, by group and number of the series."""
    spread = spread or {}
    values = [value for group in groups.values() for value in group if value is not None]
    chart = Chart(title, unit, series, max([*values, *(most for _, most in spread.values())]))
    place = (WIDTH - LEFT - RIGHT) / len(groups)
    width = place * 0.8 / len(series)
    for number, (name, group) in enumerate(groups.items()):
        left = LEFT + place * number + place * 0.1
        chart.text(left + place * 0.4, HEIGHT - BOTTOM + 18, name, size=11, anchor="middle")
        for bar, value in enumerate(group):
            if value is None:
                continue
            x, y = left + bar * width, chart.y(value)
            chart.parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * 0.92:.1f}" '
                f'height="{chart.y(0) - y:.1f}" fill="{COLOURS[bar % len(COLOURS)]}">'
                f"<title>{escape(f'{name}, {series[bar]}: {value:.4g}')}</title></rect>"
            )
            if (name, bar) in spread:
                least, most = (chart.y(end) for end in spread[name, bar])
                middle = x + width * 0.46
                chart.parts.append(
                    f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{least:.1f}" '
                    f'y2="{most:.1f}" stroke="#000"/>'
                )
    chart.write(path)


def lines(
    path: Path,
    title: str,
    unit: str,
    across: str,
    series: dict[str, list[tuple[float, float]]],
    log: bool = False,
) -> None:
    """One line per series through its points. With `log`, equal factors are equal distances, the
    axis has numbers at 1, 2 and 5. Where points are many they have no markers, and the axis has
    round numbers."""
    points = [point for line in series.values() for point in line]
    chart = Chart(title, unit, list(series), max(y for _, y in points))
    place = math.log if log else float
    low, high = (place(end(x for x, _ in points)) for end in (min, max))

    def x(value: float) -> float:
        return LEFT + 20 + (place(value) - low) / (high - low or 1) * (WIDTH - LEFT - RIGHT - 40)

    marks = sorted({x for x, _ in points})
    if log:
        marks = [
            mark
            for mark in (factor * 10**power for power in range(-6, 12) for factor in (1, 2, 5))
            if marks[0] <= mark <= marks[-1]
        ]
    many = log or len(marks) > MARKS_MAX
    if many and not log:
        distance = step(marks[-1] - marks[0])[0]
        ends = math.ceil(marks[0] / distance), math.floor(marks[-1] / distance)
        marks = [number * distance for number in range(ends[0], ends[1] + 1)]
    for value in marks:
        chart.text(x(value), HEIGHT - BOTTOM + 16, f"{value:g}", size=11, anchor="middle")
    chart.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, across, size=11, anchor="middle")
    for number, line in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        path_of = " ".join(f"{x(at):.1f},{chart.y(value):.1f}" for at, value in line)
        dashes = ' stroke-dasharray="7 3"' if number >= len(COLOURS) else ""
        chart.parts.append(
            f'<polyline points="{path_of}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>'
        )
        if not many:
            chart.parts += [
                f'<circle cx="{x(at):.1f}" cy="{chart.y(value):.1f}" r="3" fill="{colour}"/>'
                for at, value in line
            ]
    chart.write(path)
