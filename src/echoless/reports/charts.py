"""How is a chart drawn? As inline SVG: colours come from the page's style, so that one drawing serves both schemes.

Every chart has a title and a text description for screen readers, and stores its scales, so that the page's script
can read values back from the drawing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from echoless.reports.axes import Axis, fit, medians, thin, tick_text

WIDTH, HEIGHT = 440, 240
LEFT, RIGHT, TOP, BOTTOM = 50, 14, 12, 34
SIDE = 98  # room for the names of rows
DRAWN = 400  # points of a curve
SPANS = 60  # of a smoothed curve
COLOURS = 8  # that the style defines; further series repeat them with dashes


@dataclass(frozen=True)
class Curve:
    """One line. `style` picks colour and dashes; `ramp` in [0, 1] a colour by depth instead."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: int = 0
    ramp: float | None = None
    dots: bool = False
    smoothed: bool = False  # the values faintly, the medians of equal spans on top
    band: Sequence[tuple[float, float]] | None = None


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart: a value and the interval around it."""

    name: str
    value: float
    interval: tuple[float, float] | None
    style: int | None  # None: a baseline, in grey
    text: str


@dataclass(frozen=True)
class Grid:
    """A table of values drawn as shades; None where nothing was measured."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]] = field(default_factory=list)


def line_chart(
    title: str,
    curves: Sequence[Curve],
    *,
    x: str,
    y: str = "",
    log: bool = False,
    include: tuple[float, ...] = (),
    labels: Sequence[str] | None = None,
) -> Markup:
    """Curves over a common x. `labels` name whole-number places of x, from 0."""
    across = fit([value for curve in curves for value in curve.xs], pad=0.0)
    ends = [value for curve in curves for pair in curve.band or () for value in pair]
    up = fit([*ends, *(value for curve in curves for value in curve.ys)], log=log, include=include)
    parts = [_frame(across, up, x, labels)]
    parts += [_curve(curve, across, up) for curve in curves]
    return _svg(title, _chart_summary(curves, x, y or title), parts, HEIGHT, across, up)


def dot_chart(title: str, dots: Sequence[Dot], *, include: tuple[float, ...] = ()) -> Markup:
    """Values with their intervals, one below the other on one scale."""
    ends = [end for dot in dots for end in dot.interval or (dot.value,)]
    across = fit([*ends, *(dot.value for dot in dots)], include=include)
    height = 40 * len(dots) + 26
    parts = [_vertical(across, height - 24)]
    parts += [_row(dot, across, 8 + 40 * index) for index, dot in enumerate(dots)]
    told = "; ".join(f"{dot.name}: {dot.text}" for dot in dots)
    return _svg(title, told, parts, height)


def heat_map(title: str, grid: Grid, *, x: str, y: str, percent: bool) -> Markup:
    """Darker is higher. Every cell shows its value."""
    known = [value for row in grid.values for value in row if value is not None]
    scale = fit(known, pad=0.0)
    wide, high = (WIDTH - SIDE - RIGHT) / len(grid.columns), 22
    parts: list[str | Markup] = [_text(SIDE - 4, 12, y, "end quiet"), _text(WIDTH - RIGHT, 12, x, "end quiet")]
    for column, name in enumerate(grid.columns):
        parts.append(_text(SIDE + (column + 0.5) * wide, 28, name, "middle"))
    for row, (name, values) in enumerate(zip(grid.rows, grid.values)):
        parts.append(_text(SIDE - 4, 36 + (row + 0.68) * high, name, "end"))
        for column, value in enumerate(values):
            parts.append(_cell(SIDE + column * wide, 36 + row * high, wide, high, value, scale, percent))
    told = f"{len(grid.rows)} x {len(grid.columns)} values of {title}, by {y} and {x}"
    if known:
        told += f", from {min(known):.4g} to {max(known):.4g}"
    return _svg(title, told, parts, 40 + high * len(grid.rows))


def sparkline(values: Sequence[float]) -> Markup:
    """A small curve without axes."""
    xs, ys = thin([float(i) for i in range(len(values))], list(values), 80)
    across, up = fit(xs, pad=0.0), fit(ys)
    points = " ".join(f"{118 * across.place(a) + 1:.1f},{31 - 30 * up.place(b):.1f}" for a, b in zip(xs, ys))
    told = escape(f"from {values[0]:.4g} to {values[-1]:.4g}")
    return Markup(f'<svg class="spark" viewBox="0 0 120 32" role="img"><title>{told}</title>') + Markup(
        f'<polyline class="line s0" points="{points}"/></svg>'
    )


def _svg(
    title: str,
    told: str,
    parts: Sequence[str | Markup],
    height: float,
    across: Axis | None = None,
    up: Axis | None = None,
) -> Markup:
    scales = ""
    if across and up:
        scales = f' data-x="{across.low!r},{across.high!r}" data-y="{up.low!r},{up.high!r},{int(up.log)}"'
    opening = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img"{scales}>'
        f"<title>{escape(title)}</title><desc>{escape(told)}</desc>"
    )
    return Markup(opening) + Markup("").join(Markup(part) for part in parts) + Markup("</svg>")


def _chart_summary(curves: Sequence[Curve], x: str, y: str) -> str:
    """What the curves show, in words."""
    words = [
        f"{curve.name}: {curve.ys[0]:.4g} at {tick_text(curve.xs[0])}, "
        f"{curve.ys[-1]:.4g} at {tick_text(curve.xs[-1])}, between {min(curve.ys):.4g} and {max(curve.ys):.4g}"
        for curve in curves
        if len(curve.xs)
    ]
    return f"{y} against {x}. " + "; ".join(words)


def _px(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * axis.place(value)


def _py(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * axis.place(value)


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def _frame(across: Axis, up: Axis, x: str, labels: Sequence[str] | None) -> str:
    parts = []
    for tick in up.ticks():
        height = _py(up, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(_text(LEFT - 6, height + 4, tick_text(tick), "end"))
    base = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>')
    for place, name in _x_labels(across, labels):
        kind = "end" if len(name) > 4 and _px(across, place) > WIDTH - RIGHT - 12 else "middle"
        parts.append(_text(min(_px(across, place), WIDTH - 2), base + 15, name, kind))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, x, "middle quiet"))
    if up.log:
        parts.append(_text(WIDTH - RIGHT, TOP - 3, "logarithmic scale", "end quiet"))  # below, a long x leaves no room
    return "".join(parts)


def _x_labels(across: Axis, labels: Sequence[str] | None) -> list[tuple[float, str]]:
    if labels is None:
        return [(tick, tick_text(tick)) for tick in across.ticks()]
    every = max(1, -(-len(labels) // 8))
    return [(float(place), name) for place, name in enumerate(labels) if place % every == 0]


def _curve(curve: Curve, across: Axis, up: Axis) -> str:
    xs, ys = list(map(float, curve.xs)), list(map(float, curve.ys))
    look, style = _look(curve)
    parts = []
    if curve.band is not None:
        parts.append(_band(curve, across, up, look))
    if curve.smoothed and len(xs) >= 50:
        parts.append(_line(*thin(xs, ys, DRAWN), across, up, f"{look} faint", style, ""))
        xs, ys = medians(xs, ys, SPANS)
    drawn = thin(xs, ys, DRAWN)
    parts.append(_line(*drawn, across, up, look, style, curve.name))
    if curve.dots or len(xs) == 1:
        parts += [
            f'<circle class="{look}" {style} cx="{_px(across, a):.1f}" cy="{_py(up, b):.1f}" r="2.6"/>'
            for a, b in zip(*drawn)
        ]
    return "".join(parts)


def _look(curve: Curve) -> tuple[str, str]:
    if curve.ramp is not None:
        return "ramp", f'style="--t:{curve.ramp:.3f}"'
    return f"s{curve.style % COLOURS} d{curve.style // COLOURS}", ""


def _line(xs: Sequence[float], ys: Sequence[float], across: Axis, up: Axis, look: str, style: str, name: str) -> str:
    points = " ".join(f"{_px(across, a):.1f},{_py(up, b):.1f}" for a, b in zip(xs, ys))
    named = f' data-name="{escape(name)}"' if name else ""
    return f'<polyline class="line {look}" {style} points="{points}"{named}/>'


def _band(curve: Curve, across: Axis, up: Axis, look: str) -> str:
    lower = [f"{_px(across, x):.1f},{_py(up, low):.1f}" for x, (low, _) in zip(curve.xs, curve.band or ())]
    upper = [f"{_px(across, x):.1f},{_py(up, high):.1f}" for x, (_, high) in zip(curve.xs, curve.band or ())]
    return f'<polygon class="band {look}" points="{" ".join([*lower, *reversed(upper)])}"/>'


def _vertical(across: Axis, height: float) -> str:
    parts = []
    for tick in across.ticks():
        x = 8 + (WIDTH - 16 - RIGHT) * across.place(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height:.1f}"/>')
        parts.append(_text(x, height + 16, tick_text(tick), "middle" if x > 16 else ""))
    return "".join(parts)


def _row(dot: Dot, across: Axis, top: float) -> str:
    """The name and the value in words, and below them the interval."""
    look = "base" if dot.style is None else f"s{dot.style % COLOURS}"
    low, value, high = (
        8 + (WIDTH - 16 - RIGHT) * across.place(end)
        for end in ((dot.interval or (dot.value, dot.value))[0], dot.value, (dot.interval or (dot.value, dot.value))[1])
    )
    y = top + 20
    return (
        _text(8, top + 8, _cut(dot.name, 28), "halo")
        + _text(WIDTH - RIGHT, top + 8, dot.text, "end halo")
        + f'<line class="reach {look}" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>'
        + f'<circle class="{look}" cx="{value:.1f}" cy="{y}" r="4.5"/>'
    )


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"


def _cell(x: float, y: float, wide: float, high: float, value: float | None, scale: Axis, percent: bool) -> str:
    if value is None:
        return _text(x + wide / 2, y + 0.68 * high, "–", "middle quiet")
    shown = f"{100 * value:.1f}" if percent else f"{value:.3g}"
    share = f'style="--t:{scale.place(value):.3f}"'
    box = f'<rect class="shade" {share} x="{x:.1f}" y="{y:.1f}" width="{wide - 1:.1f}" height="{high - 1:.1f}"/>'
    return box + _text(x + wide / 2, y + 0.68 * high, shown, "middle")
