"""The bound reading: how far any kernel that keeps a contract can be from the truth.

Each value of the body carries, for every element,

    val, slop   a float64 value and a bound on its distance from the exact one,
    terms       the part of the kernel's error that is linear in *shared* errors: one symbol for
                each rounded row number, the same for all elements of the row,
    rest        a bound on everything else.

So the kernel's value is val (within slop) + sum_s terms[s] delta_s + r with |delta_s| <= limit_s
and |r| <= rest. Keeping shared errors linear is what makes the bounds sharp: the error D of a mean
enters every c_j = x_j - mean alike, so in sum(c_j^2) it meets the factor 2 sum(c_j) = 0 and only
D^2 remains (docs/bounds.md). All of this is computed in float64 with its own errors added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, format_named
from verify.numeric.folding import Merge
from verify.numeric.rounded import rounded_to

if TYPE_CHECKING:
    from verify.numeric.contract import Contract
    from verify.numeric.rows import Rows

Array = NDArray[Any]
U = 2.0**-53
TINY = 2.0**-1060  # what float64 itself may lose to underflow here
CARE = 2.0**-48  # covers the float64 rounding of coefficients and bounds in one operation
_erf = np.frompyfunc(math.erf, 1, 1)


def growth(u: float, k: float) -> float:
    """(1 + u)^k - 1: k roundings in a row."""
    return math.expm1(k * math.log1p(u)) * (1.0 + 2.0**-50)


@dataclass(frozen=True)
class Affine:
    """A value of the body and what a kernel's version of it may deviate by."""

    val: Array
    slop: Array
    ar: BoundArithmetic
    terms: Mapping[int, Array] = field(default_factory=dict)
    rest: Array = field(default_factory=lambda: np.zeros((1, 1)))

    @property
    def size(self) -> Array:
        """An upper bound on the exact magnitude."""
        return np.abs(self.val) + self.slop

    @property
    def shared(self) -> Array:
        """A bound on the linear part."""
        parts = [np.abs(c) * self.ar.limits[s] for s, c in self.terms.items()]
        return sum(parts, start=np.zeros((1, 1)))

    @property
    def error(self) -> Array:
        """A bound on |kernel's value - exact value|."""
        return (self.shared * (1.0 + CARE) + self.rest) * (1.0 + CARE)

    def __add__(self, other: Affine) -> Affine:
        return self._plus(other, 1.0)

    def __sub__(self, other: Affine) -> Affine:
        return self._plus(other, -1.0)

    def is_exactly(self, value: float) -> bool:
        """Whether every element is this number, in the kernel as in truth."""
        spread = [self.slop, self.rest, *self.terms.values()]
        return bool(np.all(self.val == value)) and not any(np.any(s) for s in spread)

    @property
    def is_power_of_two(self) -> bool:
        """Whether this is one exactly known power of two."""
        if not self.val.size:
            return False
        number = float(self.val.flat[0])
        return math.frexp(number)[0] == 0.5 and self.is_exactly(number)

    def _plus(self, other: Affine, sign: float) -> Affine:
        if other.is_exactly(0.0):
            return self  # adding nothing rounds nothing
        val = self.val + sign * other.val
        slop = self.slop + other.slop + U * np.abs(val)
        terms = _combine(self.terms, other.terms, 1.0, sign)
        rest = self.rest + other.rest + CARE * (self.shared + other.shared)
        return self.ar.rounded(Affine(val, slop, self.ar, terms, rest), underflow=False)

    def __mul__(self, other: Affine) -> Affine:
        a, b = self, other
        if b.is_exactly(1.0) or a.is_exactly(1.0):
            return a if b.is_exactly(1.0) else b
        val = a.val * b.val
        slop = a.size * b.slop + b.size * a.slop + U * np.abs(val) + TINY
        terms = _combine(a.terms, b.terms, b.val, a.val)
        rest = a.size * b.rest + b.size * a.rest + a.error * b.error
        rest = rest + b.slop * a.shared + a.slop * b.shared
        rest = rest + CARE * (b.size * a.shared + a.size * b.shared)
        return a.ar.rounded(Affine(val, slop, a.ar, terms, rest))

    def __truediv__(self, other: Affine) -> Affine:
        a, b = self, other
        val = a.val / b.val
        least = np.abs(b.val) - b.slop  # of the exact divisor
        slop = _ratio(a.slop + (np.abs(val) * (1 + 4 * U)) * b.slop, least) + U * np.abs(val) + TINY
        terms = _combine(a.terms, b.terms, 1.0 / b.val, -val / b.val)
        moved = a.error + (np.abs(val) + slop) * b.error
        first = _ratio(a.rest + (np.abs(val) + slop) * b.rest, least)
        # (e_a - q e_b)/(b + e_b) - (e_a - q e_b)/b, and the float64 coefficients' own error
        second = _ratio(moved, least) * (_ratio(b.error, least - b.error) + _ratio(b.slop, least))
        second = second + _ratio(slop * b.shared, least) + CARE * _ratio(moved, least)
        u = 0.0 if b.is_power_of_two else None  # such a quotient is exact, but for underflow
        return a.ar.rounded(Affine(val, slop, a.ar, terms, first + second), u=u)


def _ratio(top: Array, bottom: Array) -> Array:
    """top / bottom where bottom > 0, infinity elsewhere."""
    safe = np.where(bottom > 0, bottom, 1.0)
    return np.where(bottom > 0, np.abs(top) / safe * (1.0 + 4 * U), np.inf)


def _combine(
    left: Mapping[int, Array], right: Mapping[int, Array], by_left: Any, by_right: Any
) -> dict[int, Array]:
    terms = {s: c * by_left for s, c in left.items()}
    for s, c in right.items():
        terms[s] = terms[s] + c * by_right if s in terms else c * by_right
    return terms


class BoundArithmetic:
    """Reads a body under a contract, for a block of rows.

    ``predict``: follow the kernel's own value rather than the exact one through casts whose
    result is certain. The intervals then hold what kernels give, not how far that is from truth.
    """

    def __init__(self, contract: Contract, rows: Rows, *, predict: bool = False) -> None:
        self.contract, self.rows, self.d, self.predict = contract, rows, rows.d, predict
        self.format = format_named(contract.accumulate)
        self.u = float(self.format.unit_roundoff)
        least = self.format.min_normal if contract.flush_to_zero else self.format.eta
        self.eta = float(least)
        self.limits: dict[int, Array] = {}

    # --- roundings ----------------------------------------------------------------------------

    def rounded(self, exact: Affine, *, underflow: bool = True, u: float | None = None) -> Affine:
        """One rounding into the accumulation format of what the kernel computed exactly."""
        eta = self.eta if underflow or self.contract.flush_to_zero else 0.0
        return self._rounded_into(exact, self.format, self.u if u is None else u, eta)

    def _rounded_into(self, exact: Affine, fmt: Format, u: float, eta: float) -> Affine:
        reach = exact.size + exact.error
        beyond = np.where(reach >= float(fmt.max_finite), np.inf, 0.0)
        rest = exact.rest + u * reach + eta + beyond
        return self._shared(Affine(exact.val, exact.slop, self, exact.terms, rest))

    def _shared(self, value: Affine) -> Affine:
        """A row number's own error becomes a symbol that all its uses share."""
        if value.val.shape[-1] != 1 or self.d == 1:
            return value
        return self.symbol(value, value.rest, value.terms)

    def symbol(
        self, value: Affine, limit: Array, terms: Mapping[int, Array] | None = None
    ) -> Affine:
        """``value`` with an error of at most ``limit`` named by a new symbol."""
        name = len(self.limits)
        self.limits[name] = np.where(np.isfinite(limit), limit, 0.0)
        rest = np.where(np.isfinite(limit), 0.0, np.inf)
        return Affine(value.val, value.slop, self, {**(terms or {}), name: np.ones((1, 1))}, rest)

    def input(self, values: Any) -> Affine:
        """An argument: exact if the accumulation format holds it, else rounded into it."""
        val = np.atleast_2d(np.asarray(values, dtype=np.float64))
        zero = np.zeros_like(val)
        held = self.contract.held(val)
        moved = np.abs(held - val)
        if self.contract.flush_to_zero:
            moved = np.where(np.abs(held) < self.eta, np.maximum(moved, np.abs(val)), moved)
        return Affine(val, zero, self, {}, moved)

    # --- what a body asks for -----------------------------------------------------------------

    def number(self, value: int | Fraction) -> Affine:
        val = np.array([[float(value)]])
        slop = np.array([[abs(float(Fraction(value) - Fraction(float(value))))]])
        return Affine(val, slop, self, {}, np.abs(self.contract.held(val) - val) + slop)

    def length(self, row: Affine) -> Affine:
        """d: exact; the reciprocal that some kernels multiply by costs one more rounding."""
        exact = self.d & (self.d - 1) == 0
        val = np.array([[float(self.d)]])
        return Affine(val, np.zeros((1, 1)), self, {}, val * (0.0 if exact else self.u))

    def sum(self, row: Affine) -> Affine:
        shape = (*row.val.shape[:-1], self.d)
        val, slop = accurate_sum(np.broadcast_to(row.val, shape))
        slop = slop + _total(row.slop, shape)
        terms = {s: accurate_sum(np.broadcast_to(c, shape))[0] for s, c in row.terms.items()}
        size = _total(row.size + row.error, shape)
        rest = _total(row.rest, shape) + growth(self.u, self.contract.order.height(self.d)) * size
        rest = rest + CARE * _total(row.shared, shape) + self._flushed(self.d)
        height = self.contract.order.height(self.d)
        return self._shared(self._checked_sum(Affine(val, slop, self, terms, rest), size, height))

    def _flushed(self, additions: int) -> float:
        if not self.contract.flush_to_zero:
            return 0.0
        return self.eta * additions * (1.0 + growth(self.u, additions))

    def _checked_sum(self, value: Affine, size: Array, height: int) -> Affine:
        """No guarantee where a partial sum, every addition rounded up, could overflow."""
        reach = size * (1.0 + growth(self.u, height))
        beyond = np.where(reach >= float(self.format.max_finite), np.inf, 0.0)
        return Affine(value.val, value.slop, self, value.terms, value.rest + beyond)

    def sum_rows(self, rows: Affine) -> Affine:
        """Over rows each symbol is another error, so all of it goes into the rest."""
        if not self.rows.n:
            nothing = np.zeros(self.rows.by_feature(rows.val).shape[:-1])
            return Affine(nothing, nothing, self, {}, nothing)
        val, slop = accurate_sum(self.rows.by_feature(rows.val))
        terms = (*val.shape[:-1], self.rows.by_feature(rows.val).shape[-1])
        size, rest, spread = (
            _total(self.rows.by_feature(part), terms)[..., 0]
            for part in (rows.size + rows.error, rows.error, rows.slop)
        )
        height = self.contract.rows_order.height(terms[-1])
        rest = rest + growth(self.u, height) * size + self._flushed(terms[-1])
        total = Affine(val[..., 0], slop[..., 0] + spread, self, {}, rest)
        return self._checked_sum(total, size, height)

    def sqrt(self, value: Affine) -> Affine:
        root = np.sqrt(np.maximum(value.val, 0.0))
        least = np.sqrt(np.maximum(value.val - value.slop, 0.0)) * (1 - 2 * U)
        slop = _ratio(value.slop, least) + U * root
        half = _ratio(np.full_like(root, 0.5), root)
        terms = {s: c * half for s, c in value.terms.items()}
        second = _ratio(value.error**2, 2.0 * least**3) + _ratio(value.shared * slop, least * least)
        negative = np.where(value.val - value.slop - value.error > 0, 0.0, np.inf)
        rest = (
            _ratio(value.rest, 2.0 * least) + second + CARE * _ratio(value.shared, least) + negative
        )
        result = Affine(root, slop, self, terms, rest)
        return self.rounded(result, u=self.u * self.contract.sqrt_roundings)

    def cast(self, value: Affine, point: str) -> Affine:
        fmt = self.contract.cast_at(point)
        if fmt is None:
            return value
        inexact = self._rounded_into(value, fmt, float(fmt.unit_roundoff), float(fmt.eta))
        return self._predicted(value, inexact, fmt) if self.predict else inexact

    def _predicted(self, before: Affine, after: Affine, fmt: Format) -> Affine:
        """Where the whole interval rounds to one value, the kernel holds exactly that value."""
        error = before.error + before.slop + 4 * U * before.size
        low, high = (rounded_to(before.val + e, fmt).astype(np.float64) for e in (-error, error))
        known = (low == high) & np.isfinite(low)
        terms = {s: np.where(known, 0.0, c) for s, c in after.terms.items()}
        val, slop, rest = (
            np.where(known, k, a)
            for k, a in ((low, after.val), (0.0, after.slop), (0.0, after.rest))
        )
        return Affine(val, slop, self, terms, rest)

    def fold(self, leaves: tuple[Affine, ...], merge: Merge) -> Any:
        """Merge by merge: within one, each operand's error is a symbol; then it is collapsed."""
        shape = np.broadcast_shapes(*(leaf.val.shape for leaf in leaves), (1, self.d))
        parts = [a for leaf in leaves for a in (leaf.val, leaf.slop, leaf.error)]
        arrays = tuple(np.broadcast_to(a, shape) for a in parts)
        flat = self.contract.order.fold(arrays, lambda *operands: self._merged(merge, operands))
        return tuple(self._folded(*flat[k : k + 3]) for k in range(0, len(flat), 3))

    def _merged(self, merge: Merge, operands: tuple[Array, ...]) -> tuple[Array, ...]:
        before = dict(self.limits)
        values = [
            self.symbol(Affine(val, slop, self), error)
            for val, slop, error in zip(*(operands[k::3] for k in range(3)), strict=True)
        ]
        merged = [m for v in merge(*values) for m in (v.val, v.slop, v.error)]
        self.limits = before
        shape = np.broadcast_shapes(*(m.shape for m in merged))
        return tuple(np.broadcast_to(m, shape) for m in merged)

    def _folded(self, val: Array, slop: Array, error: Array) -> Affine:
        return self._shared(Affine(val, slop, self, {}, error))

    def pi(self) -> Affine:
        val = np.array([[math.pi]])
        return Affine(val, val * U, self, {}, val * self.u)

    def _function(self, value: Affine, val: Array, slope: Array) -> Affine:
        """A library function: its own error is ``function_ulps`` roundings."""
        slop = slope * value.slop + 16 * U * np.abs(val) + TINY
        collapsed = Affine(val, slop, self, {}, slope * value.error)
        return self.rounded(collapsed, u=self.u * self.contract.function_roundings)

    def tanh(self, value: Affine) -> Affine:
        return self._function(value, np.tanh(value.val), np.ones((1, 1)))

    def erf(self, value: Affine) -> Affine:
        val = np.asarray(_erf(value.val), dtype=np.float64)
        return self._function(value, val, np.full((1, 1), 1.13))  # 2/sqrt(pi) < 1.13

    def exp(self, value: Affine) -> Affine:
        val = np.exp(value.val)
        slope = np.exp(value.val + value.slop + value.error) * (1 + 8 * U)
        return self._function(value, val, slope)


def accurate_sum(values: Array) -> tuple[Array, Array]:
    """The sum over the last axis (kept) in pairwise double-double, and a bound on its error."""
    high, low = values, np.zeros_like(values)
    levels = 0
    while high.shape[-1] > 1:
        if high.shape[-1] % 2:
            pad = [(0, 0)] * (high.ndim - 1) + [(0, 1)]
            high, low = np.pad(high, pad), np.pad(low, pad)
        a, b = high[..., 0::2], high[..., 1::2]
        s = a + b
        t = s - a
        low = ((a - (s - t)) + (b - t)) + (low[..., 0::2] + low[..., 1::2])
        high, levels = s, levels + 1
    total = high + low
    size = np.abs(values).sum(axis=-1, keepdims=True)
    return total, U * np.abs(total) + 8.0 * (levels + 1) ** 2 * U * U * size


def _total(values: Array, shape: tuple[int, ...]) -> Array:
    """An upper bound on the sum of non-negative values over the last axis."""
    return np.broadcast_to(values, shape).sum(axis=-1, keepdims=True) * (1.0 + 2.0**-30)
