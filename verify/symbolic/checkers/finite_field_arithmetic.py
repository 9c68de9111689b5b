"""The arithmetics in which terms are evaluated: GF(p), decimals, fractions, degrees."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from hashlib import blake2b, shake_256
from itertools import accumulate
from operator import add, mul
from typing import Any

from verify.symbolic.checkers.finite_field_reader import Theorem
from verify.symbolic.checkers.finite_field_terms import Axes, UndefinedPointError

P = 2**61 - 1


def stream(seed: str, count: int) -> array[int]:
    """``count`` words of 64 bits, a function of the seed alone."""
    return array("Q", shake_256(seed.encode()).digest(8 * count))


def _word(*parts: Any) -> int:
    """A word of 64 bits, a function of the parts alone."""
    text = "|".join(map(str, parts)).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def is_residue(value: int) -> bool:
    """Whether a number is a non-zero square mod p."""
    return pow(value, (P - 1) // 2, P) == 1


class Residues:
    """GF(p) at a random point whose rows are made of values with random multiplicities.

    ``sizes`` says how many different values each dimension has. The multiplicities are elements
    of GF(p), their sum is the dimension as a number. A dimension d is drawn until d and d + 1
    are squares, positive symbols are squares.
    """

    def __init__(self, theorem: Theorem, sizes: Mapping[str, int], seed: str) -> None:
        self.theorem = theorem
        self.sizes = sizes
        self.seed = seed
        self.symbols: dict[str, list[int]] = {}
        self.totals = {dim: self.draw_dimension(dim) for dim in sizes}
        self.weights = {dim: self.draw_weights(dim) for dim in sizes}

    def draw(self, name: str, count: int) -> list[int]:
        return [(word >> 3) % P for word in stream(f"{self.seed}|{name}", count)]

    def draw_dimension(self, dim: str) -> int:
        return next(d for d in self.draw(f"dim {dim}", 256) if is_residue(d) and is_residue(d + 1))

    def draw_weights(self, dim: str) -> list[int]:
        weights = self.draw(f"weights {dim}", self.sizes[dim] - 1)
        return [*weights, (self.totals[dim] - sum(weights)) % P]

    def size(self, dim: str) -> int:
        return self.sizes[dim]

    def dim(self, dim: str) -> int:
        return self.totals[dim]

    def number(self, value: Fraction) -> int:
        if value.denominator % P == 0:
            raise UndefinedPointError
        return value.numerator * pow(value.denominator, -1, P) % P

    def symbol(self, name: str) -> list[int]:
        if name not in self.symbols:
            count = math.prod(self.sizes[dim] for dim in self.theorem.symbols[name])
            values = self.draw(f"symbol {name}", count)
            squared = name in self.theorem.positive
            self.symbols[name] = [v * v % P for v in values] if squared else values
        return self.symbols[name]

    def add(self, a: list[int], b: list[int]) -> list[int]:
        if len(b) == 1:
            a, b = b, a
        if len(a) == 1:
            x = a[0]
            return [(x + y) % P for y in b]
        return [(x + y) % P for x, y in zip(a, b, strict=True)]

    def mul(self, a: list[int], b: list[int]) -> list[int]:
        if len(b) == 1:
            a, b = b, a
        if len(a) == 1:
            x = a[0]
            return [x * y % P for y in b]
        return [x * y % P for x, y in zip(a, b, strict=True)]

    def div(self, a: list[int], b: list[int], axes: Axes) -> list[int]:
        """One inversion for all: 1/b_i from the products of all elements before and after i."""
        before = list(accumulate(b, lambda x, y: x * y % P, initial=1))
        if before[-1] == 0:
            raise UndefinedPointError
        after, inverses = pow(before[-1], -1, P), []
        for x, y in zip(reversed(b), reversed(before[:-1]), strict=True):
            inverses.append(after * y % P)
            after = after * x % P
        return self.mul(a, inverses[::-1])

    def sqrt(self, a: list[int], axes: Axes) -> list[int]:
        """The root that is a square itself (p = 3 mod 4: of r and -r exactly one is)."""
        roots = []
        for v in a:
            root = pow(v, (P + 1) // 4, P)
            if v == 0 or root * root % P != v:
                raise UndefinedPointError
            roots.append(root)
        return roots

    def sum(self, dim: str, data: list[int]) -> list[int]:
        weights, n = self.weights[dim], self.sizes[dim]
        if len(data) == n:
            return [sum(map(mul, weights, data)) % P]
        return [sum(map(mul, weights, data[p : p + n])) % P for p in range(0, len(data), n)]

    def summary(self, name: str, place: int, values: Sequence[int]) -> bytes:
        data = array("Q", values).tobytes()
        return data if len(values) == 1 else blake2b(data, digest_size=16).digest()

    def apply(self, name: str, element: tuple[int, ...], arguments: tuple[bytes, ...]) -> int:
        text = f"{self.seed}|{name}|{element}|".encode() + b"".join(arguments)
        return (int.from_bytes(blake2b(text, digest_size=8).digest(), "little") >> 3) % P


# --- real points ---------------------------------------------------------------------------------


class Numbers:
    """Plain numbers at concrete dimensions; the arithmetic is that of the elements."""

    def __init__(self, sizes: Mapping[str, int], symbols: Mapping[str, list[Any]]) -> None:
        self.sizes = sizes
        self.symbols = symbols

    def size(self, dim: str) -> int:
        return self.sizes[dim]

    def symbol(self, name: str) -> list[Any]:
        return self.symbols[name]

    def add(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self.each(add, a, b)

    def mul(self, a: list[Any], b: list[Any]) -> list[Any]:
        return self.each(mul, a, b)

    def each(self, op: Callable[[Any, Any], Any], a: list[Any], b: list[Any]) -> list[Any]:
        if len(a) == 1:
            return [op(a[0], y) for y in b]
        if len(b) == 1:
            return [op(x, b[0]) for x in a]
        return [op(x, y) for x, y in zip(a, b, strict=True)]

    def div(self, a: list[Any], b: list[Any], axes: Axes) -> list[Any]:
        if not all(b):
            raise UndefinedPointError("a denominator is 0")
        return self.each(lambda x, y: x / y, a, b)

    def sum(self, dim: str, data: list[Any]) -> list[Any]:
        n = self.sizes[dim]
        return [sum(data[p : p + n]) for p in range(0, len(data), n)]


class Decimals(Numbers):
    """Real numbers to the precision of the decimal context.

    An unknown function is a smooth one, l / (1 + l^2) of a linear form l with coefficients drawn
    for its name: equal arguments that differ by roundings then have nearly equal values.
    """

    def dim(self, dim: str) -> Decimal:
        return Decimal(self.sizes[dim])

    def number(self, value: Fraction) -> Decimal:
        return Decimal(value.numerator) / Decimal(value.denominator)

    def sqrt(self, a: list[Decimal], axes: Axes) -> list[Decimal]:
        if not all(v > 0 for v in a):
            raise UndefinedPointError
        return [v.sqrt() for v in a]

    def summary(self, name: str, place: int, values: Sequence[Decimal]) -> Decimal:
        return sum(
            (self.coefficient(name, place, j) * v for j, v in enumerate(values)), start=Decimal(0)
        )

    def apply(self, name: str, element: tuple[int, ...], arguments: tuple[Decimal, ...]) -> Decimal:
        form = self.coefficient(name, element)
        for place, value in enumerate(arguments):
            form += self.coefficient(name, element, place, "of") * value
        return form / (1 + form * form)

    def coefficient(self, *parts: Any) -> Decimal:
        """A number from 1/2 to 3/2."""
        return (512 + Decimal(_word(*parts) % 1024)) / 1024


class NotRationalError(ArithmeticError):
    """A value that has to be rational is not, or is that of an unknown function."""


def exact_sqrt(value: Fraction) -> Fraction:
    """The root of the square of a rational; raises NotRationalError for other numbers."""
    if value <= 0:
        raise UndefinedPointError("a radicand is not > 0")
    root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    if root * root != value:
        raise NotRationalError(f"the square root of {value} is not rational")
    return root


class Fractions(Numbers):
    """Exact rationals, for the witness of a claim that two terms differ."""

    EXACT: Mapping[str, Callable[[Fraction], Fraction]] = {
        "relu": lambda v: max(v, Fraction(0)),
        "abs": abs,
        "sign": lambda v: Fraction((v > 0) - (v < 0)),
    }

    def dim(self, dim: str) -> Fraction:
        return Fraction(self.sizes[dim])

    def number(self, value: Fraction) -> Fraction:
        return value

    def sqrt(self, a: list[Fraction], axes: Axes) -> list[Fraction]:
        return [exact_sqrt(v) for v in a]

    def summary(self, name: str, place: int, values: Sequence[Fraction]) -> tuple[Fraction, ...]:
        return tuple(values)

    def apply(self, name: str, element: tuple[int, ...], arguments: tuple[Any, ...]) -> Fraction:
        """An exact function of a number, or element-wise of an array."""
        values = arguments[0] if len(arguments) == 1 else ()
        if name not in self.EXACT or len(element) > 1 or len(values) <= sum(element):
            raise NotRationalError(f"'{name}' has no exact values")
        return self.EXACT[name](values[sum(element)])


# --- degrees -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Degree:
    """A bound on a quotient: the numerator's degree, the denominator's factors, the roots met.

    Factors and roots are (number, indices on which they depend) with a power or a count.
    """

    top: int
    factors: Mapping[tuple[int, Axes], int]
    roots: Mapping[tuple[int, Axes], int]


class Degrees:
    """The arithmetic of degrees: bounds of the numerators as polynomials in everything drawn.

    A root of N/D is sigma/D with sigma^2 = N D, so that sigma weighs (deg N + deg D)/2. A sum of
    m quotients has m times those factors and roots that vary with its index, others once.
    """

    def __init__(self, theorem: Theorem, sizes: Mapping[str, int]) -> None:
        self.theorem = theorem
        self.sizes = sizes
        self.degrees: list[int] = []  # of the factors
        self.roots = 0
        self.arguments = 0  # the largest degree of a function's argument

    def size(self, dim: str) -> int:
        return 1

    def dim(self, dim: str) -> Degree:
        return Degree(1, {}, {})

    def number(self, value: Fraction) -> Degree:
        return Degree(0, {}, {})

    def symbol(self, name: str) -> list[Degree]:
        return [Degree(2 if name in self.theorem.positive else 1, {}, {})]

    def bottom(self, a: Degree) -> int:
        """The degree of the denominator."""
        return sum(power * self.degrees[f] for (f, _), power in a.factors.items())

    def add(self, a: list[Degree], b: list[Degree]) -> list[Degree]:
        x, y = a[0], b[0]
        both = Degree(0, _largest(x.factors, y.factors), _largest(x.roots, y.roots))
        lcm = self.bottom(both)
        top = max(x.top + lcm - self.bottom(x), y.top + lcm - self.bottom(y))
        return [Degree(top, both.factors, both.roots)]

    def mul(self, a: list[Degree], b: list[Degree]) -> list[Degree]:
        x, y = a[0], b[0]
        keys = {*x.factors, *y.factors}
        factors = {f: x.factors.get(f, 0) + y.factors.get(f, 0) for f in keys}
        return [Degree(x.top + y.top, factors, _largest(x.roots, y.roots))]

    def div(self, a: list[Degree], b: list[Degree], axes: Axes) -> list[Degree]:
        self.degrees.append(b[0].top)
        factor = (len(self.degrees) - 1, axes)
        return self.mul(a, [Degree(self.bottom(b[0]), {factor: 1}, b[0].roots)])

    def sqrt(self, a: list[Degree], axes: Axes) -> list[Degree]:
        self.roots += 1
        weight = (a[0].top + self.bottom(a[0]) + 1) // 2
        return [Degree(weight, a[0].factors, {**a[0].roots, (self.roots, axes): 1})]

    def sum(self, dim: str, data: list[Degree]) -> list[Degree]:
        a, m = data[0], self.sizes[dim]
        both = Degree(0, _summed(a.factors, m), _summed(a.roots, m))
        top = a.top + self.bottom(both) - self.bottom(a)
        return [Degree(top + 1, both.factors, both.roots)]

    def summary(self, name: str, place: int, values: Sequence[Degree]) -> Degree:
        return values[0]

    def apply(self, name: str, element: tuple[int, ...], arguments: tuple[Degree, ...]) -> Degree:
        for a in arguments:
            weight = a.top + self.bottom(a)
            self.arguments = max(self.arguments, 2 * weight << 2 * sum(a.roots.values()))
        return Degree(1, {}, {})


def _largest(a: Mapping[Any, int], b: Mapping[Any, int]) -> dict[Any, int]:
    return {key: max(a.get(key, 0), b.get(key, 0)) for key in {*a, *b}}


def _summed(powers: Mapping[tuple[int, Axes], int], m: int) -> dict[tuple[int, Axes], int]:
    """Powers outside the binder of index 0, which had m positions."""
    result: dict[tuple[int, Axes], int] = {}
    for (f, axes), power in powers.items():
        key = (f, tuple((k - 1, dim) for k, dim in axes if k))
        varies = bool(axes) and axes[-1][0] == 0
        result[key] = result.get(key, 0) + power * (m if varies else 1)
    return result
