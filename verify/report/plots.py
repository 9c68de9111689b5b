"""Plots as geometry: points, bounds and ticks in the units of an SVG picture.

One `Figure` for a kernel and a quantity; its formats share the axes. Nothing is drawn here: the
template writes it down, so that a picture takes the page's colours, in light, in dark and on paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from verify.finding import Series
from verify.report.summary import number

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 50.0, WIDTH - 10.0, 12.0, HEIGHT - 38.0
DECADES = 1.5  # a range of more decades is drawn on a logarithmic axis
HUGE, TINY = 1e300, 1e-300
PLACES = 1  # digits after the point of a coordinate; points that then coincide are drawn once


class Axis(Protocol):
    """A scale from values to [0, 1], with its ticks."""

    def at(self, value: float) -> float: ...

    def ticks(self) -> Iterator[tuple[float, str]]: ...


@dataclass(frozen=True)
class Linear:
    """Even steps from ``low`` to ``high``."""

    low: float
    high: float

    def at(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[tuple[float, str]]:
        step = _round_step((self.high - self.low) / 4)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        for i in range(first, last + 1):
            yield i * step, number(i * step)


@dataclass(frozen=True)
class Log:
    """Decades from 10^low to 10^high. What is zero stands on the floor, half a step below them."""

    low: int
    high: int
    zero: bool = False

    def at(self, value: float) -> float:
        floor = self.low - self._below
        exponent = math.log10(value) if value > 0 else floor
        return (exponent - floor) / (self.high - floor)

    @property
    def _below(self) -> float:
        return 0.12 * (self.high - self.low) if self.zero else 0.0

    def ticks(self) -> Iterator[tuple[float, str]]:
        if self.zero:
            yield 0.0, "0"
        step = math.ceil((self.high - self.low) / 6)
        for exponent in range(self.low, self.high + 1, step):
            yield 10.0**exponent, _power(exponent)


@dataclass(frozen=True)
class Signed:
    """Both signs over many decades: linear within ``small``, logarithmic beyond it (asinh)."""

    small: float
    largest: float

    def at(self, value: float) -> float:
        return 0.5 + 0.5 * math.asinh(value / self.small) / math.asinh(self.largest / self.small)

    def ticks(self) -> Iterator[tuple[float, str]]:
        top = math.floor(math.log10(self.largest))
        low = math.ceil(math.log10(self.small))
        exponents = range(top, low - 1, -max(1, math.ceil((top - low + 1) / 3)))
        for sign, mark in ((-1.0, "−"), (1.0, "")):
            yield from ((sign * 10.0**e, f"{mark}{_power(e)}") for e in exponents)
        yield 0.0, "0"


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= rough * 0.999)


def _power(exponent: int) -> str:
    """A power of ten as it is read.

    >>> _power(2), _power(-5)
    ('100', '10⁻⁵')
    """
    if -2 <= exponent <= 3:
        return format(10.0**exponent, "g")
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


# --------------------------------------------------------------------------------------- figures


@dataclass(frozen=True)
class Mark:
    """A tick: where it stands and what is written there."""

    at: float
    text: str


@dataclass(frozen=True)
class Layer:
    """One format in a figure: its points, those beyond the bound and the bound, as SVG paths."""

    format: str
    points: str
    beyond: str
    bound: str
    words: str


@dataclass(frozen=True)
class Figure:
    """One plot, ready to be written down; coordinates are those of a WIDTH x HEIGHT picture."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[Mark, ...]
    y_ticks: tuple[Mark, ...]
    zero: float | None
    layers: tuple[Layer, ...]

    @property
    def words(self) -> str:
        """What the picture shows, for who does not see it."""
        return f"{self.title}. " + " ".join(layer.words for layer in self.layers)


def figure(series: Sequence[Series]) -> Figure:
    """The plot of one quantity of one kernel, a layer for each format.

    Raises ValueError for a series that cannot be drawn: nothing in it, or lengths that differ.
    """
    for each in series:
        _check(each)
    x_axis = _axis(value for each in series for value in each.x)
    y_axis = _axis(value for each in series for value in (*each.y, *_limits(each)))
    across, up = _across(x_axis), _up(y_axis)
    first = series[0]
    return Figure(
        title=first.name,
        x_label=first.x_label,
        y_label=first.y_label,
        x_ticks=tuple(Mark(across(value), text) for value, text in x_axis.ticks()),
        y_ticks=tuple(Mark(up(value), text) for value, text in y_axis.ticks()),
        zero=None if isinstance(y_axis, Log) else up(0.0),
        layers=tuple(_layer(each, across, up) for each in series),
    )


def _is_signed(series: Series) -> bool:
    return any(y < 0 for y in series.y)


def _limits(series: Series) -> list[float]:
    """The bounds; where errors have signs, on both sides."""
    below = [-bound for bound in series.bound] if _is_signed(series) else []
    return [*series.bound, *below]


def _check(series: Series) -> None:
    if not series.x:
        raise ValueError(f"{series.format} has no points, expected at least one")
    points, bounds = len(series.x), len(series.bound)
    if len(series.y) != points:
        raise ValueError(
            f"{series.format} has {points} x and {len(series.y)} y, expected as many of each"
        )
    if bounds not in (0, points):
        raise ValueError(
            f"{series.format} has {points} x and {bounds} bounds, expected a bound each"
        )


def _axis(values: Iterable[float]) -> Axis:
    """The scale that these values ask for."""
    finite = [value for value in map(_tame, values) if math.isfinite(value)]
    sizes = sorted(abs(value) for value in finite if value)
    if not sizes:
        return Linear(-1.0, 1.0)
    wide = math.log10(sizes[-1]) - math.log10(sizes[0]) > DECADES
    if min(finite) >= 0 and wide:
        low, high = math.floor(math.log10(sizes[0])), math.ceil(math.log10(sizes[-1]))
        return Log(low, high, zero=min(finite) == 0)
    typical = sizes[len(sizes) // 2]
    if min(finite) < 0 and sizes[-1] > 30 * typical:
        return Signed(max(typical, sizes[-1] / 1e12), sizes[-1] * 1.1)
    return Linear(min(0.0, *finite) * 1.05, max(0.0, *finite) * 1.05)


def _tame(value: float) -> float:
    """The value, at the ends of the range infinite or zero, where arithmetic on it would fail."""
    if abs(value) < TINY:
        return 0.0
    return float(value) if abs(value) < HUGE else math.copysign(math.inf, value)


def _across(axis: Axis) -> Callable[[float], float]:
    """From a value to its place; what is not finite stands at the edge that it has left by."""
    return lambda value: _place(axis, value, LEFT, RIGHT)


def _up(axis: Axis) -> Callable[[float], float]:
    return lambda value: _place(axis, value, BOTTOM, TOP)


def _place(axis: Axis, value: float, low: float, high: float) -> float:
    tame = _tame(value)
    if not math.isfinite(tame):
        return low if tame < 0 else high
    return round(low + (high - low) * axis.at(tame), PLACES)


def _layer(series: Series, across: Callable[[float], float], up: Callable[[float], float]) -> Layer:
    places = [(across(x), up(y)) for x, y in zip(series.x, series.y, strict=True)]
    beyond = [place for i, place in enumerate(places) if _is_beyond(series, i)]
    signs = (1, -1) if _is_signed(series) else (1,)
    limits = (
        _line(
            (across(x), up(sign * bound)) for x, bound in zip(series.x, series.bound, strict=False)
        )
        for sign in signs
    )
    return Layer(
        format=series.format,
        points=_dots(places),
        beyond=_dots(beyond),
        bound="".join(limits),
        words=_words(series, len(beyond)),
    )


def _is_beyond(series: Series, i: int) -> bool:
    """Not within the bound: a NaN is not."""
    return bool(series.bound) and not abs(series.y[i]) <= series.bound[i]


def _dots(places: Iterable[tuple[float, float]]) -> str:
    """Lines of no length, which round caps turn into dots."""
    return "".join(f"M{x:g} {y:g}h0" for x, y in dict.fromkeys(places))


def _line(places: Iterable[tuple[float, float]]) -> str:
    """A line from left to right; of several limits at one x the lowest."""
    lowest: dict[float, float] = {}
    for x, y in places:
        lowest[x] = max(y, lowest.get(x, y))
    steps = (f"{x:g} {lowest[x]:g}" for x in sorted(lowest))
    return "M" + "L".join(steps) if lowest else ""


def _words(series: Series, beyond: int) -> str:
    """The figures of one format in a sentence."""
    finite = [i for i, y in enumerate(series.y) if math.isfinite(y)]
    lost = len(series.y) - len(finite)
    parts = [f"{len(series.y):,} point{'' if len(series.y) == 1 else 's'}"]
    if finite:
        top = max(finite, key=lambda i: abs(series.y[i]))
        where = f"{series.x_label} = {number(series.x[top])}"
        parts.append(f"largest {number(series.y[top])} at {where}")
    if lost:
        parts.append(f"{lost:,} not finite, drawn at the edge")
    if series.bound:
        parts.append(f"{beyond:,} beyond the bound" if beyond else "all within the bound")
    return f"{series.format}: {', '.join(parts)}."
