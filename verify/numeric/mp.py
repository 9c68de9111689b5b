"""Truth by mpmath: the named ground truth, at a fixed high precision."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Kind
from verify.numeric.folding import Merge, fold_pairwise

Numbers = NDArray[Any]  # of mpmath.mpf


def _elementwise(name: str) -> Any:
    def apply(self: MpArithmetic, value: Numbers) -> Numbers:
        return np.frompyfunc(getattr(self.context, name), 1, 1)(value)

    return apply


class MpArithmetic:
    """The mpmath reading of a body; each reading has a context, so nothing global is changed."""

    def __init__(self, d: int, context: Any) -> None:
        self.d, self.context = d, context

    def number(self, value: int | Fraction) -> Numbers:
        fraction = Fraction(value)
        return _one(self.context.mpf(fraction.numerator) / fraction.denominator)

    def length(self, row: Numbers) -> Numbers:
        return self.number(self.d)

    def sum(self, row: Numbers) -> Numbers:
        wide = np.broadcast_to(row, (*row.shape[:-1], self.d))
        return self._sums(wide, axis=-1)

    def sum_rows(self, rows: Numbers) -> Numbers:
        return self._sums(rows, axis=0)

    def _sums(self, values: Numbers, axis: int) -> Numbers:
        total = np.apply_along_axis(
            lambda v: np.array([self.context.fsum(v)], object), axis, values
        )
        return np.asarray(total)

    def cast(self, value: Numbers, point: str) -> Numbers:
        return value

    def pi(self) -> Numbers:
        return _one(+self.context.pi)

    def fold(self, leaves: tuple[Numbers, ...], merge: Merge) -> Any:
        return fold_pairwise(leaves, merge)

    sqrt = _elementwise("sqrt")
    tanh = _elementwise("tanh")
    erf = _elementwise("erf")
    exp = _elementwise("exp")


def _one(value: Any) -> Numbers:
    out = np.empty((1, 1), dtype=object)
    out[0, 0] = value
    return out


def evaluate(
    formula: Formula, arguments: dict[str, NDArray[Any] | float], bits: int = 400
) -> list[Numbers]:
    """Every output for a block of rows (rows, d) as mpf at ``bits`` of precision."""
    context = mpmath.mp.clone()
    context.prec = bits
    rows = next(arguments[p.name] for p in formula.parameters if p.kind is Kind.ROW)
    exact = np.frompyfunc(lambda v: context.mpf(float(v)), 1, 1)
    values = {n: exact(np.atleast_2d(np.asarray(v, np.float64))) for n, v in arguments.items()}
    return list(formula(MpArithmetic(np.shape(rows)[-1], context), **values))


def fraction(value: Any) -> Fraction:
    """The exact rational value of an mpf."""
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** int(exponent)
