"""Truth by balls: python-flint's Arb, at any precision, for every formula and every composition."""

from __future__ import annotations

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
    return lambda self, value: apply(value)


class ArbArithmetic:
    """The ball reading of a body: arrays of balls, one per element."""

    def __init__(self, d: int) -> None:
        self.d = d

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
    tanh = _elementwise("tanh")
    erf = _elementwise("erf")
    exp = _elementwise("exp")


def _one(ball: Any) -> Balls:
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = ball
    return out


_to_ball = np.frompyfunc(lambda v: flint.arb(float(v)), 1, 1)


def evaluate(
    formula: Formula, arguments: dict[str, NDArray[Any] | float], bits: int
) -> list[Balls]:
    """Every output for a block of rows (rows, d) as balls, at ``bits`` of working precision."""
    rows = next(arguments[p.name] for p in formula.parameters if p.kind is Kind.ROW)
    with working_precision(bits):
        values = {n: _to_ball(np.atleast_2d(np.asarray(v, dtype=np.float64))) for n, v in arguments.items()}
        return list(formula(ArbArithmetic(np.shape(rows)[-1]), **values))


def interval(ball: Any) -> tuple[Fraction, Fraction] | None:
    """The ball's ends as exact rationals; None for a ball that is not finite."""
    if not ball.is_finite():
        return None
    middle, radius = _dyadic(ball.mid()), _dyadic(ball.rad())
    return middle - radius, middle + radius


def _dyadic(exact: Any) -> Fraction:
    mantissa, exponent = exact.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
