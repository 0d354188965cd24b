"""A plot of lines, both scales logarithmic, as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 420, 70, 20, 220, 50
_COLOURS = ("#1b6ca8", "#0b3d62", "#7fb2d9", "#c0571b", "#7a3108", "#e5ad86")


@dataclass(frozen=True, slots=True)
class Line:
    label: str
    points: Sequence[tuple[float, float]]


def plot(across: str, up: str, lines: Sequence[Line]) -> str:
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points]
    low, high = 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys)))

    def place(x: float, y: float) -> tuple[float, float]:
        part = math.log(x / min(xs)) / math.log(max(xs) / min(xs))
        rise = math.log(y / low) / math.log(high / low)
        width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
        return _LEFT + part * width, _TOP + (1 - rise) * height

    parts = [_grid(place, min(xs), max(xs), value) for value in _decades(low, high)]
    parts += [_mark(place, x, low) for x in sorted(set(xs))]
    parts += [_line(place, line, number) for number, line in enumerate(lines)]
    parts.append(_text(_LEFT, _HEIGHT - 8, f"{across} (across), {up} (up)"))
    body = "\n".join(parts)
    size = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12"'
    background = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{background}\n{body}\n</svg>\n'


def _decades(low: float, high: float) -> list[float]:
    return [low * 10**step for step in range(round(math.log10(high / low)) + 1)]


def _grid(place, first: float, last: float, value: float) -> str:  # type: ignore[no-untyped-def]
    (x1, y), (x2, _) = place(first, value), place(last, value)
    line = f'<line x1="{x1:.0f}" y1="{y:.0f}" x2="{x2:.0f}" y2="{y:.0f}" stroke="#ddd"/>'
    return line + _text(x1 - 60, y + 4, f"{value:g}")


def _mark(place, x: float, low: float) -> str:  # type: ignore[no-untyped-def]
    across, down = place(x, low)
    return _text(across - 12, down + 18, f"{x:g}")


def _line(place, line: Line, number: int) -> str:  # type: ignore[no-untyped-def]
    points = [place(*point) for point in line.points]
    colour = _COLOURS[number % len(_COLOURS)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
    y = _TOP + 14 + 18 * number
    label = f'<g fill="{colour}">{_text(_WIDTH - _RIGHT + 20, y, line.label)}</g>'
    return drawn + label


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}">{escape(words)}</text>'
