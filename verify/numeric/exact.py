"""Truth by integers: a norm's output lies in Q(sqrt R), where every comparison is decided.

A value is (a + b sqrt(R)) / den with integers a, b, R >= 0, den > 0 (object arrays, one radicand
for a row). Whether it lies above a rational m is a comparison of integers: no precision loop, no
doubt, and ties are seen as ties. For what the fast truth leaves open, and for tests.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Kind
from verify.numeric.folding import Merge
from verify.numeric.tree import Node

Integers = NDArray[Any]  # of Python ints


_isqrt = np.frompyfunc(math.isqrt, 1, 1)


class NotQuadraticError(ArithmeticError):
    """The value does not lie in one quadratic extension of the rationals."""


class UndefinedError(ArithmeticError):
    """0/0 over the reals: eps = 0 and a row without spread."""


@dataclass(frozen=True)
class Surd:
    """(a + b sqrt(radicand)) / den, element-wise; ``b`` and ``radicand`` None for rationals."""

    a: Integers
    den: Integers
    b: Integers | None = None
    radicand: Integers | None = None

    def _over(self, other: Surd) -> tuple[Integers, Integers | None, Integers]:
        """Numerators of self over the common denominator with ``other``."""
        if self.den is other.den:
            return self.a, self.b, self.den
        b = None if self.b is None else self.b * other.den
        return self.a * other.den, b, self.den * other.den

    def _radicand_with(self, other: Surd) -> Integers | None:
        mine, theirs = self.radicand, other.radicand
        if mine is None or theirs is None or mine is theirs:
            return theirs if mine is None else mine
        if not np.array_equal(mine, theirs):
            raise NotQuadraticError("two different roots meet in one expression")
        return mine

    def __add__(self, other: Surd) -> Surd:
        a, b, den = self._over(other)
        c, d, _ = other._over(self)
        surd = d if b is None else b if d is None else b + d
        return Surd(a + c, den, surd, self._radicand_with(other))

    def __neg__(self) -> Surd:
        return Surd(-self.a, self.den, None if self.b is None else -self.b, self.radicand)

    def __sub__(self, other: Surd) -> Surd:
        return self + -other

    def __mul__(self, other: Surd) -> Surd:
        root = self._radicand_with(other)
        a, den = self.a * other.a, self.den * other.den
        b: Integers | None = None
        if self.b is not None:
            b = self.b * other.a
        if other.b is not None:
            b = self.a * other.b if b is None else b + self.a * other.b
        if self.b is not None and other.b is not None:
            a = a + self.b * other.b * root
        return Surd(a, den, b, root)

    def __truediv__(self, other: Surd) -> Surd:
        return self * other.reciprocal()

    def reciprocal(self) -> Surd:
        """1/self, by the conjugate; raises UndefinedError where self is 0."""
        a, b = self.a, self.b
        norm = self._norm(a, b)
        if b is not None and np.any(norm == 0):  # there R is a square, and the conjugate may be 0
            root = _isqrt(np.asarray(self.radicand))
            a, b = np.where(norm == 0, a + b * root, a), np.where(norm == 0, 0, b)
            norm = self._norm(a, b)
        if np.any(norm == 0):
            raise UndefinedError("division by an exact zero")
        sign = np.where(np.greater(norm, 0), 1, -1).astype(object)
        b = None if b is None else -sign * self.den * b
        return Surd(sign * self.den * a, sign * norm, b, self.radicand)

    def _norm(self, a: Integers, b: Integers | None) -> Integers:
        """a^2 - b^2 R: the product of a + b sqrt(R) and its conjugate."""
        return a * a if b is None else a * a - b * b * self.radicand


class ExactArithmetic:
    """The integer reading of a body, for a block of rows (rows, d)."""

    def __init__(self, d: int) -> None:
        self.d = d

    def number(self, value: int | Fraction) -> Surd:
        fraction = Fraction(value)
        return Surd(_one(fraction.numerator), _one(fraction.denominator))

    def length(self, row: Surd) -> Surd:
        return self.number(self.d)

    def sum(self, row: Surd) -> Surd:
        """Over the last axis; the denominator must not vary along it."""
        if row.den.shape[-1] != 1 or (row.radicand is not None and row.radicand.shape[-1] != 1):
            raise NotQuadraticError("a row sum of numbers over different denominators or roots")
        width = (*row.a.shape[:-1], self.d)
        a = np.broadcast_to(row.a, width).sum(axis=-1, keepdims=True)
        b = None if row.b is None else np.broadcast_to(row.b, width).sum(axis=-1, keepdims=True)
        return Surd(a, row.den, b, row.radicand)

    def sum_rows(self, rows: Surd) -> Surd:
        """Of one row it is the row itself; of several, roots differ and balls must decide."""
        if rows.a.shape[0] != 1:
            raise NotQuadraticError("a sum over rows has a different root in each row")
        return rows

    def sqrt(self, value: Surd) -> Surd:
        """sqrt(p/q) = sqrt(p q)/q, of a rational."""
        if value.b is not None:
            raise NotQuadraticError("a root of a root")
        zero = np.zeros_like(value.a)
        return Surd(zero, value.den, np.ones_like(value.a), value.a * value.den)

    def cast(self, value: Surd, point: str) -> Surd:
        return value

    def fold(self, leaves: tuple[Surd, ...], merge: Merge) -> Any:
        """Element by element, on rationals with one denominator each: for short rows."""
        return _fold_surds(leaves, merge, self.d)

    def _refuse(self, *values: Any) -> Surd:
        raise NotQuadraticError("a transcendental function has no exact integer form")

    tanh = erf = exp = pi = _refuse


def _fold_surds(leaves: tuple[Surd, ...], merge: Merge, d: int) -> tuple[Surd, ...]:
    states = [tuple(_element(leaf, j) for leaf in leaves) for j in range(d)]
    while len(states) > 1:
        pairs = zip(states[0::2], states[1::2], strict=False)
        rest = states[-1:] if len(states) % 2 else []
        states = [tuple(_reduced(v) for v in merge(*p, *q)) for p, q in pairs] + rest
    return states[0]


def _element(value: Surd, j: int) -> Surd:
    def pick(part: Integers) -> Integers:
        return part if part.shape[-1] == 1 else part[..., j : j + 1]

    return Surd(pick(value.a), pick(value.den))


def _reduced(value: Surd) -> Surd:
    common = np.gcd(value.a, value.den)
    return Surd(value.a // common, value.den // common)


def _one(value: int) -> Integers:
    return np.array([[value]], dtype=object)


def rational(values: NDArray[Any]) -> Surd:
    """A block of finite floats (rows, d) exactly: integers over a power of two for each row.

    Raises ValueError for infinities and NaN.
    """
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    if not np.isfinite(mantissa).all():
        raise ValueError("infinities and NaN are no rationals")
    whole = np.ldexp(mantissa, 53).astype(np.int64).astype(object)
    exponent = np.where(mantissa == 0, 0, exponent - 53)
    least = np.minimum(exponent.min(axis=-1, keepdims=True), 0)
    shift = (exponent - least).astype(object)
    return Surd(whole * 2**shift, 2 ** (-least).astype(object))


def value_of(root: Node, arguments: dict[str, NDArray[Any]]) -> Surd:
    """One node of an element-wise tree, and only what it needs.

    Raises UndefinedError for 0/0, NotQuadraticError for what is not + - * / sqrt of inputs.
    """
    ar = ExactArithmetic(1)
    operations: dict[str, Callable[..., Surd]] = {
        "add": operator.add,
        "sub": operator.sub,
        "mul": operator.mul,
        "div": operator.truediv,
        "sqrt": ar.sqrt,
    }

    def value(node: Node) -> Surd:
        if node.op == "input":
            return rational(np.atleast_2d(arguments[node.payload]))
        if node.op == "number":
            return ar.number(node.payload)
        if node.op not in operations:
            raise NotQuadraticError(f"{node.op} is not element-wise arithmetic")
        return operations[node.op](*(value(a) for a in node.args))

    return value(root)


def elementwise_sum(root: Node, arguments: dict[str, NDArray[Any]]) -> Fraction:
    """The sum of all elements of a tree of + - * over inputs and constants.

    ``arguments``: arrays of one shape. Raises NotQuadraticError for any other operation, row
    sums included: their values are not to be had from the elements given.
    """
    value = value_of(root, {name: v.reshape(1, -1) for name, v in arguments.items()})
    if value.radicand is not None or value.den.size != 1:
        raise NotQuadraticError("the terms have roots or denominators of their own")
    return Fraction(int(value.a.sum()), int(value.den[0, 0]))


@dataclass(frozen=True)
class Quadratic:
    """One real number (a + b sqrt(radicand)) / den with den > 0."""

    a: int
    den: int
    b: int = 0
    radicand: int = 0

    def compare(self, m: Fraction) -> int:
        """The sign of self - m, decided in integers."""
        left = self.a * m.denominator - m.numerator * self.den
        right = self.b * m.denominator
        return _sign_of_sum(left, right, self.radicand)

    def enclosure(self, bits: int) -> tuple[Fraction, Fraction]:
        """Rationals around self, at most 2^-bits relative to its larger term apart."""
        root = self.b * self.b * self.radicand
        digits = max(0, bits + 2 - max(root.bit_length() // 2, abs(self.a).bit_length(), 1))
        low = math.isqrt(root << (2 * digits))
        high = low if low * low == root << (2 * digits) else low + 1
        ends = (low, high) if self.b >= 0 else (-high, -low)
        scale = self.den << digits
        return tuple(Fraction((self.a << digits) + end, scale) for end in ends)  # type: ignore[return-value]


def _sign_of_sum(p: int, q: int, radicand: int) -> int:
    """The sign of p + q sqrt(radicand)."""
    right = q * q * radicand
    if p >= 0 and (q >= 0 or right == 0):
        return int(p > 0 or right > 0)
    if p <= 0 and q <= 0:
        return -1
    larger = p * p - right
    return (larger > 0) - (larger < 0) if p > 0 else (larger < 0) - (larger > 0)


def evaluate(formula: Formula, arguments: dict[str, NDArray[Any] | float]) -> list[Surd]:
    """Every output for a block of rows (rows, d); features (1, d) or (rows, d); numbers floats.

    Raises UndefinedError for 0/0, NotQuadraticError where the outputs leave Q(sqrt R).
    """
    rows = next(arguments[p.name] for p in formula.parameters if p.kind is Kind.ROW)
    ar = ExactArithmetic(np.shape(rows)[-1])
    values = {name: rational(np.atleast_2d(np.asarray(v))) for name, v in arguments.items()}
    return list(formula(ar, **values))


def element(value: Surd, i: int, j: int) -> Quadratic:
    """Element (i, j) of an evaluated output."""

    def pick(part: Integers | None) -> int:
        if part is None:
            return 0
        return int(part[i if part.shape[0] > 1 else 0, j if part.shape[1] > 1 else 0])

    return Quadratic(pick(value.a), pick(value.den), pick(value.b), pick(value.radicand))
