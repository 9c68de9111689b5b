"""The IEEE float64 reading of a body: the stated answer for infinities and NaN."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Kind
from verify.numeric.folding import Merge, fold_pairwise

Array = NDArray[Any]
_erf = np.frompyfunc(math.erf, 1, 1)


class Float64Arithmetic:
    """NumPy float64, operation by operation."""

    def __init__(self, d: int, *, sum_rows: bool = True) -> None:
        self.d, self.sums = d, sum_rows

    def number(self, value: int | Fraction) -> Any:
        return np.float64(value)

    def length(self, row: Array) -> Any:
        return np.float64(self.d)

    def sum(self, row: Array) -> Array:
        return np.broadcast_to(row, (*row.shape[:-1], self.d)).sum(axis=-1, keepdims=True)

    def sum_rows(self, rows: Array) -> Array:
        return rows.sum(axis=0, keepdims=True) if self.sums else rows

    def sqrt(self, value: Array) -> Array:
        return np.sqrt(value)

    def tanh(self, value: Array) -> Array:
        return np.tanh(value)

    def exp(self, value: Array) -> Array:
        return np.exp(value)

    def erf(self, value: Array) -> Array:
        return np.asarray(_erf(value), dtype=np.float64)

    def pi(self) -> Any:
        return np.float64(math.pi)

    def cast(self, value: Array, point: str) -> Array:
        return value

    def fold(self, leaves: tuple[Array, ...], merge: Merge) -> Any:
        return fold_pairwise(leaves, merge)


def ieee_reading(
    formula: Formula, arguments: dict[str, Any], *, sum_rows: bool = True
) -> list[Array]:
    """Every output for a block of rows, in float64; ``sum_rows=False`` gives the terms instead."""
    values = {n: np.atleast_2d(np.asarray(v, dtype=np.float64)) for n, v in arguments.items()}
    rows = next(values[p.name] for p in formula.parameters if p.kind is Kind.ROW)
    with np.errstate(all="ignore"):
        outputs = formula(Float64Arithmetic(rows.shape[-1], sum_rows=sum_rows), **values)
    return [np.broadcast_to(o, rows.shape) if o.shape[0] == rows.shape[0] else o for o in outputs]
