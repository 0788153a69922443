"""Grouped bars and lines as SVG, without a library: what a result looks like must not depend on one."""

COLOURS = ["#999999", "#d55e00", "#e69f00", "#0072b2", "#009e73", "#cc79a7"]
LEFT, TOP, WIDTH, HEIGHT = 60, 60, 640, 220


def frame(title: str, labels: list[str], names: list[str], most: float, body: list[str]) -> str:
    """Title, legend, scale from 0 to `most`, and labels of so many groups."""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {TOP + HEIGHT + 50}" font-family="sans-serif" font-size="12" fill="#222">',
           f'<rect width="{LEFT + WIDTH + 20}" height="{TOP + HEIGHT + 50}" fill="white"/>', f'<text x="{LEFT}" y="20" font-weight="bold">{title}</text>']
    for at, name in enumerate(names):
        out.append(f'<rect x="{LEFT + at * 100}" y="32" width="10" height="10" fill="{COLOURS[at]}"/><text x="{LEFT + 14 + at * 100}" y="41">{name}</text>')
    for step in range(6):
        y = TOP + HEIGHT - HEIGHT * step / 5
        out.append(f'<path d="M{LEFT} {y:.1f}H{LEFT + WIDTH}" stroke="#ddd"/><text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * step / 5:.3g}</text>')
    for at, label in enumerate(labels):
        x = LEFT + WIDTH * (at + 0.5) / len(labels)
        out.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{label}</text>')
    return "\n".join([*out, *body, "</svg>"]) + "\n"


def rounded_up(value: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 1e-6
    while True:
        for factor in (1, 2, 2.5, 5):
            if factor * power >= value:
                return factor * power
        power *= 10


def bars(title: str, labels: list[str], series: dict[str, list[float]]) -> str:
    most = rounded_up(max(max(values) for values in series.values()))
    group = WIDTH / len(labels)
    width = group * 0.8 / len(series)
    body = []
    for nth, values in enumerate(series.values()):
        for at, value in enumerate(values):
            height = HEIGHT * value / most
            x = LEFT + group * (at + 0.1) + width * nth
            body.append(f'<rect x="{x:.1f}" y="{TOP + HEIGHT - height:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{COLOURS[nth]}"/>')
    return frame(title, labels, list(series), most, body)


def lines(title: str, across: str, labels: list[str], series: dict[str, list[float]]) -> str:
    """Each line by its own largest value, which its name tells: they have different units."""
    body = [f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle">{across}</text>']
    names = []
    for nth, (name, values) in enumerate(series.items()):
        most = max(values)
        names.append(f"{name} / {most:.3g}")
        placed = [(LEFT + WIDTH * (at + 0.5) / len(labels), TOP + HEIGHT - HEIGHT * value / most) for at, value in enumerate(values)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        body.append(f'<path d="M{path}" fill="none" stroke="{COLOURS[nth + 1]}" stroke-width="2"/>')
        body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[nth + 1]}"/>' for x, y in placed]
    return frame(title, labels, ["", *names], 1.0, body)
