"""The rounded reading: a body run operation by operation in one format, as a kernel would."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, Rounding, format_named
from verify.numeric.folding import Merge
from verify.numeric.rounding import DTYPES, Rounder

if TYPE_CHECKING:
    from verify.numeric.contract import Contract
    from verify.numeric.rows import Rows

Array = NDArray[Any]
_erf = np.frompyfunc(math.erf, 1, 1)


def rounded_to(values: Array, fmt: Format, rounding: Rounding = Rounding.NEAREST_EVEN) -> Array:
    """Float values rounded once into ``fmt``, as an array of its dtype."""
    exact = np.asarray(values, dtype=np.float64)
    if fmt.name == "float64":
        return exact
    flat = np.ascontiguousarray(exact).ravel()
    out, open_mask = np.zeros(flat.size, DTYPES[fmt.name]), np.empty(flat.size, np.bool_)
    Rounder(fmt, fmt.overflow).close(flat, np.zeros(flat.size), out, open_mask)
    for i in np.flatnonzero(open_mask):  # NaN
        out[i] = flat[i]
    if rounding is Rounding.TOWARD_ZERO:
        out = _truncated(out, flat, fmt)
    return out.reshape(exact.shape)


def _truncated(nearest: Array, exact: Array, fmt: Format) -> Array:
    """Step back towards zero where rounding to nearest went outward."""
    codes = nearest.view(f"u{nearest.dtype.itemsize}").copy()
    with np.errstate(invalid="ignore"):
        outward = np.abs(nearest.astype(np.float64)) > np.abs(exact)
    codes[outward] -= codes.dtype.type(1 << 13 if fmt.name == "tf32" else 1)
    if not fmt.has_negative_zero:  # the code that would be -0 is NaN
        codes[outward & (codes == 1 << (fmt.bits - 1))] = 0
    return codes.view(nearest.dtype)


class RoundedArithmetic:
    """Every operation rounded to the contract's accumulation format; casts where it says."""

    def __init__(self, contract: Contract, rows: Rows) -> None:
        self.contract, self.rows, self.d = contract, rows, rows.d
        self.format = format_named(contract.accumulate)
        self.wide = np.dtype(np.float64 if self.format.name == "float64" else np.float32)

    def value(self, raw: Any) -> Rounded:
        """A value of the accumulation format, rounded if need be."""
        return Rounded(self._round(np.asarray(raw, dtype=np.float64)), self)

    def _round(self, raw: Array) -> Array:
        """Into the accumulation format, held in float32 (float64 for float64)."""
        if self.format.name not in ("float32", "float64") or raw.dtype != self.wide:
            raw = rounded_to(raw, self.format)
        with np.errstate(invalid="ignore"):
            out = raw.astype(self.wide)
        if self.contract.flush_to_zero:
            out = np.where(np.abs(out) < float(self.format.min_normal), out * 0, out)
        return out

    def operate(self, function: Any, *arrays: Array) -> Rounded:
        """One operation: computed in the wide format, rounded into the accumulation format."""
        with np.errstate(all="ignore"):
            return Rounded(self._round(function(*arrays)), self)

    def number(self, value: int | Fraction) -> Rounded:
        return self.value([[float(value)]])

    def length(self, row: Rounded) -> Rounded:
        # d itself is not rounded: kernels divide by an integer or by a float32 that holds it
        return Rounded(np.array([[self.d]], dtype=self.wide), self)

    def sum(self, row: Rounded) -> Rounded:
        wide = np.broadcast_to(row.array, (*row.array.shape[:-1], self.d))
        return Rounded(self.contract.order.sum(wide, self._add), self)

    def _add(self, a: Array, b: Array) -> Array:
        return self.operate(np.add, a, b).array

    def sum_rows(self, rows: Rounded) -> Rounded:
        terms = self.rows.by_feature(rows.array)
        if not self.rows.n:
            return Rounded(np.zeros(terms.shape[:-1], self.wide), self)
        total = self.contract.rows_order.sum(terms, self._add)
        return Rounded(total[..., 0], self)

    def sqrt(self, value: Rounded) -> Rounded:
        return self.operate(np.sqrt, value.array)

    def tanh(self, value: Rounded) -> Rounded:
        return self.operate(np.tanh, value.array)

    def exp(self, value: Rounded) -> Rounded:
        return self.operate(np.exp, value.array)

    def erf(self, value: Rounded) -> Rounded:
        return self.value(np.asarray(_erf(value.array.astype(np.float64)), np.float64))

    def pi(self) -> Rounded:
        return self.value([[math.pi]])

    def cast(self, value: Rounded, point: str) -> Rounded:
        fmt = self.contract.cast_at(point)
        if fmt is None:
            return value
        with np.errstate(invalid="ignore"):
            return Rounded(rounded_to(value.array, fmt).astype(self.wide), self)

    def fold(self, leaves: tuple[Rounded, ...], merge: Merge) -> Any:
        def merge_arrays(*arrays: Array) -> tuple[Array, ...]:
            return tuple(m.array for m in merge(*(Rounded(a, self) for a in arrays)))

        shape = np.broadcast_shapes(*(leaf.array.shape for leaf in leaves), (1, self.d))
        arrays = tuple(np.broadcast_to(leaf.array, shape) for leaf in leaves)
        return tuple(Rounded(a, self) for a in self.contract.order.fold(arrays, merge_arrays))


class Rounded:
    """An array of values of one format, with rounded + - * /."""

    def __init__(self, array: Array, ar: RoundedArithmetic) -> None:
        self.array, self.ar = array, ar

    def __add__(self, other: Rounded) -> Rounded:
        return self.ar.operate(np.add, self.array, other.array)

    def __sub__(self, other: Rounded) -> Rounded:
        return self.ar.operate(np.subtract, self.array, other.array)

    def __mul__(self, other: Rounded) -> Rounded:
        return self.ar.operate(np.multiply, self.array, other.array)

    def __truediv__(self, other: Rounded) -> Rounded:
        return self.ar.operate(np.divide, self.array, other.array)
