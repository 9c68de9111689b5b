"""Truth by balls: python-flint's Arb, at any precision, for every formula and every composition."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Kind
from verify.numeric.folding import Merge, fold_pairwise

Balls = NDArray[Any]  # of flint.arb


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Run with ``bits`` of Arb precision, restored afterwards."""
    before, flint.ctx.prec = flint.ctx.prec, bits
    try:
        yield
    finally:
        flint.ctx.prec = before


def _elementwise(name: str) -> Any:
    apply = np.frompyfunc(lambda ball: getattr(ball, name)(), 1, 1)
    return lambda _self, value: apply(value)


class ArbArithmetic:
    """The ball reading of a body: arrays of balls, one per element."""

    def __init__(self, d: int, *, saturated: bool = False) -> None:
        self.d, self.saturated = d, saturated

    def number(self, value: int | Fraction) -> Balls:
        fraction = Fraction(value)
        return _one(flint.arb(fraction.numerator) / flint.arb(fraction.denominator))

    def length(self, row: Balls) -> Balls:
        return self.number(self.d)

    def sum(self, row: Balls) -> Balls:
        return np.broadcast_to(row, (*row.shape[:-1], self.d)).sum(axis=-1, keepdims=True)

    def sum_rows(self, rows: Balls) -> Balls:
        return rows.sum(axis=0, keepdims=True)

    def cast(self, value: Balls, point: str) -> Balls:
        return value

    def pi(self) -> Balls:
        return _one(flint.arb.pi())

    def fold(self, leaves: tuple[Balls, ...], merge: Merge) -> Any:
        return fold_pairwise(leaves, merge)

    sqrt = _elementwise("sqrt")

    def tanh(self, value: Balls) -> Balls:
        return self._inside(_tanh(value))

    def erf(self, value: Balls) -> Balls:
        return self._inside(_erf(value))

    def _inside(self, values: Balls) -> Balls:
        """tanh and erf never reach 1: what no precision tells from it is put just inside."""
        return _just_inside(values) if self.saturated else values

    exp = _elementwise("exp")


def _step_inside(ball: Any) -> Any:
    """s (1 - INSIDE) for a ball around s = +-1; any other ball as it is.

    The value is s (1 - t) with 0 < t < INSIDE, and a body that is linear in it stays on the same
    side of a number that it meets at t = 0, whatever t is: so one such t shows the side. INSIDE
    times the largest float64 is far below the smallest gap between numbers that do not meet.
    """
    for sign in (1, -1):
        if abs(ball - sign) < INSIDE:
            return sign * (1 - INSIDE)
    return ball


INSIDE = 1 / flint.arb(2) ** 2500
_tanh, _erf = (np.frompyfunc(lambda b, f=f: getattr(b, f)(), 1, 1) for f in ("tanh", "erf"))
_just_inside = np.frompyfunc(_step_inside, 1, 1)


def zeros(d: int) -> Balls:
    """A row of exact zeros (1, d)."""
    out = np.empty((1, d), dtype=object)
    out.fill(flint.arb(0))
    return out


def floats(values: Balls) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Balls as float64 (h, l, e) that hold them; e is infinite where float64 does not reach."""
    with working_precision(256):
        high, low, spread = (part.astype(np.float64) for part in _split(values))
    known = np.isfinite(high) & np.isfinite(low) & np.isfinite(spread)
    return high, low, np.where(known, spread * (1 + 2.0**-40) + (spread > 0) * 2.0**-1060, np.inf)


def _split_one(ball: Any) -> tuple[float, float, float]:
    high = float(ball.mid())
    if not math.isfinite(high):
        return high, 0.0, math.inf
    rest = ball - high
    low = float(rest.mid())
    return high, low, float((rest - low).abs_upper())


_split = np.frompyfunc(_split_one, 1, 3)


def _one(ball: Any) -> Balls:
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = ball
    return out


_to_ball = np.frompyfunc(lambda v: flint.arb(float(v)), 1, 1)


def ball_of(value: float) -> Any:
    """A float64 as a ball, exactly."""
    return flint.arb(value)


def evaluate(
    formula: Formula,
    arguments: dict[str, NDArray[Any] | float],
    bits: int,
    *,
    saturated: bool = False,
) -> list[Balls]:
    """Every output for a block of rows (rows, d) as balls, at ``bits`` of working precision.

    ``saturated``: see `_step_inside`; only for rounding outputs that are linear in tanh or erf.
    """
    rows = next(arguments[p.name] for p in formula.parameters if p.kind is Kind.ROW)
    with working_precision(bits):
        values = {
            n: _to_ball(np.atleast_2d(np.asarray(v, dtype=np.float64)))
            for n, v in arguments.items()
        }
        return list(formula(ArbArithmetic(np.shape(rows)[-1], saturated=saturated), **values))


FAR = 20_000  # beyond 2^-FAR and 2^FAR no format has anything to tell apart


def interval(ball: Any) -> tuple[Fraction, Fraction] | None:
    """Rational ends that hold the ball; None for a ball that is not finite.

    Arb's exponents are unbounded (the radius of erf(1e30) is near 2^(-10^60)), a Fraction's
    powers are not: parts below 2^-FAR are widened to it, values beyond 2^FAR cut down to it.
    """
    if not ball.is_finite():
        return None
    middle, radius = _dyadic(ball.mid()), _dyadic(ball.rad())
    return middle[0] - radius[1], middle[1] + radius[1]


def _dyadic(exact: Any) -> tuple[Fraction, Fraction]:
    """Bounds on a dyadic number, equal if its exponent is one that a format can see."""
    mantissa, exponent = (int(part) for part in exact.man_exp())
    top = exponent + mantissa.bit_length()
    if mantissa == 0 or (exponent >= -FAR and top <= FAR):
        value = Fraction(mantissa) * Fraction(2) ** exponent
        return value, value
    if top > FAR:
        ends = (Fraction(2) ** FAR, Fraction(2) ** (FAR + 1))
        return ends if mantissa > 0 else (-ends[1], -ends[0])
    tiny = Fraction(1, 2**FAR)
    whole = Fraction(mantissa >> (-FAR - exponent)) * tiny if top > -FAR else Fraction(0)
    return whole - tiny, whole + tiny
