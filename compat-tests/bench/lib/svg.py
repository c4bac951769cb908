"""Line plots as plain SVG."""

import math
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 400, 70, 170, 40, 50
COLOURS = ["#1668a8", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#475569"]


def _ticks(low, high, log):
    if log:
        return [10.0 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10(high / 4 or 1))
    step *= next(m for m in (1, 2, 5, 10) if high / (step * m) <= 6)
    return [step * i for i in range(int(high / step) + 2)]


def _text(value):
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e3 else f"{value:g}"


def lines(path, title, x_name, y_name, series, log_x=False, log_y=False):
    """`series` maps a name to (x, y) pairs; writes nothing and answers False without a point."""
    series = {name: sorted((x, y) for x, y in points if y is not None and (y > 0 or not log_y)) for name, points in series.items()}
    series = {name: points for name, points in series.items() if points}
    if not series:
        return False
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x_ticks, y_ticks = _ticks(min(xs), max(xs), log_x), _ticks(min(ys), max(ys), log_y)

    def scaled(value, ticks, log):
        low, high = ticks[0], ticks[-1]
        if low == high:
            return 0.5
        if log:
            return (math.log10(value) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return (value - low) / (high - low)

    def at(x, y):
        return (LEFT + scaled(x, x_ticks, log_x) * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - scaled(y, y_ticks, log_y) * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>']
    for tick in x_ticks:
        x, _ = at(tick, y_ticks[0])
        out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e2e8f0"/>'
                   f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_text(tick)}</text>')
    for tick in y_ticks:
        _, y = at(x_ticks[0], tick)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e2e8f0"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(tick)}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x_name)}</text>')
    out.append(f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>')
    for index, (name, points) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        dash = ' stroke-dasharray="5 3"' if index >= len(COLOURS) else ""
        where = [at(x, y) for x, y in points]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2"{dash} points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in where)}"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in where]
        y = TOP + 10 + index * 18
        out.append(f'<line x1="{WIDTH - RIGHT + 10}" y1="{y}" x2="{WIDTH - RIGHT + 30}" y2="{y}" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{WIDTH - RIGHT + 36}" y="{y + 4}">{escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>\n"]))
    return True
