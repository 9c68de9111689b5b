"""The scale of a radicand, as a formula in the dimensions: what makes sqrt(4 v) and sqrt(v) meet.

A radicand v is divided by V, its value where every symbol is a constant array (or the first unit
array), some of them 0, and every positive symbol is 1. Two radicands that differ by a positive
factor c(n) give the same quotient, and sqrt(v) = sqrt(V) sqrt(v / V) wherever V > 0. V is
computed as a rational function of the dimensions, never at one dimension: sqrt(n) at n = 4 is
not replaced by 2, because that is a fact about 4 and the proof is about every n (see the module
on the cutoff).

At such a point the value of a term depends on each index only through "is it the first", so
sum over i of f(i) = f(first) + (n - 1) f(other) is exact for every n.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import flint
from flint.utils.flint_exceptions import DomainError

from verify.symbolic.checkers.flint_terms import Problem

# (key, polynomial in the dimensions or prime, exponent), ...: their product.
Formula: TypeAlias = tuple[tuple[tuple[Any, ...], Any, int], ...]
ARITHMETIC = ("num", "dim", "add", "mul", "div", "sum")

FIRST, OTHER = 0, 1


@dataclass(frozen=True)
class Point:
    """The value of symbols at the first index and elsewhere; 0 for all but ``only``, if given."""

    first: int
    other: int
    only: str = ""

    def value(self, name: str, *, is_first: bool) -> int:
        """The value of an element."""
        return 0 if self.only not in ("", name) else self.first if is_first else self.other


ZERO = Point(0, 0)


class NoScaleError(ArithmeticError):
    """The value at the point is not a rational function of the dimensions."""


class Scales:
    """The scales of the radicands of one problem; `of` is their only use."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is computed until it is asked for."""
        self.problem = problem
        self.names = sorted(problem.dims)
        self.ring = flint.fmpq_mpoly_ctx.get([*self.names, "none"], "lex")
        self.gens = dict(zip(self.names, self.ring.gens(), strict=False))
        self._found: dict[int, Formula] = {}
        self._formulas: dict[int, Formula | None] = {}

    def of(self, radicand: int) -> Formula:
        """(key, polynomial or prime, exponent): V as a product, empty where none is known > 0."""
        if radicand not in self._found:
            tries = (self._product(radicand, point) for point in self._points())
            self._found[radicand] = next((found for found in tries if found is not None), ())
        return self._found[radicand]

    def _points(self) -> Iterator[Point]:
        """Zero first; where that divides by 0, one symbol is not 0: x and its reflection agree."""
        yield ZERO
        yield from (Point(1, 0, only=name) for name in sorted(self.problem.symbols))
        yield from (Point(1, 0), Point(1, 1))

    def _product(self, radicand: int, point: Point) -> Any:
        try:
            uses = self.problem.table.uses[radicand]
            above, below = _Reading(self, point).value(radicand, dict.fromkeys(uses, FIRST))
        except NoScaleError:
            return None
        sign, product = self._factors(above, below)
        good = all(self.is_positive(f) for key, f, _ in product if key[0] == "dim")
        return product if good and sign > 0 else None

    def formula(self, t: int) -> Formula | None:
        """A term made of numbers and dimensions as a product (("zero",) if 0), else None."""
        if t not in self._formulas:
            self._formulas[t] = self._formula(t)
        return self._formulas[t]

    def _formula(self, t: int) -> Formula | None:
        reached = self.problem.table.reachable([t])
        if any(self.problem.table.nodes[s][0] not in ARITHMETIC for s in reached):
            return None
        try:
            above, below = _Reading(self, ZERO).value(t, {})
        except NoScaleError:
            return None
        return self._factors(above, below)[1]

    def _factors(self, above: Any, below: Any) -> tuple[int, Formula]:
        """The sign and the factors of a quotient: primes, and polynomials with leading term 1."""
        if above == 0:
            return 0, ((("zero",), 0, 1),)
        up, down = above.factor(), below.factor()
        constant = _fraction(up[0]) / _fraction(down[0])
        out = []
        for f, e in (*up[1], *((f, -e) for f, e in down[1])):
            lead = f.leading_coefficient()
            constant *= _fraction(lead) ** int(e)
            out.append((("dim", str(f / lead)), f / lead, int(e)))
        return (1 if constant > 0 else -1), (*_primes(abs(constant)), *out)

    def span(self, f: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The lowest and the highest exponent of each dimension in a polynomial."""
        exponents = list(zip(*f.monoms(), strict=True))[: len(self.names)]
        return tuple(int(min(e)) for e in exponents), tuple(int(max(e)) for e in exponents)

    def is_positive(self, f: Any) -> bool:
        """Shifted to the smallest dimensions it has no negative coefficient: enough, not needed."""
        shifted = f.compose(
            *(self.gens[n] + self.problem.dims[n] for n in self.names), self.ring.gens()[-1]
        )
        at_least = shifted.to_dict().get((0,) * (len(self.names) + 1), 0)
        return at_least > 0 and all(c > 0 for c in shifted.coeffs())

    def at(self, value: Any, dims: Mapping[str, int]) -> Fraction:
        """A polynomial in the dimensions (or a prime) at concrete ones."""
        if isinstance(value, int):
            return Fraction(value)
        return _fraction(value(*(flint.fmpq(dims[n]) for n in self.names), flint.fmpq(0)))


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def _primes(value: Fraction) -> list[tuple[tuple[Any, ...], Any, int]]:
    out: list[tuple[tuple[Any, ...], Any, int]] = []
    for whole, sign in ((value.numerator, 1), (value.denominator, -1)):
        if whole > 1:
            out += [(("prime", int(p)), int(p), sign * e) for p, e in flint.fmpz(whole).factor()]
    return out


class _Reading:
    """Terms at one point, as pairs (numerator, denominator) of polynomials in the dimensions."""

    def __init__(self, scales: Scales, point: Point) -> None:
        self.scales, self.point = scales, point
        self.table = scales.problem.table
        self._known: dict[Any, Any] = {}

    def value(self, t: int, env: Mapping[int, int]) -> Any:
        """The value where each index is the first one or not."""
        key = (t, tuple(env[k] for k in sorted(self.table.uses[t])))
        if key not in self._known:
            self._known[key] = self._reduced(*self._value(t, env))
        return self._known[key]

    def _reduced(self, above: Any, below: Any) -> Any:
        common = above.gcd(below)
        return above / common, below / common

    def _value(self, t: int, env: Mapping[int, int]) -> Any:
        constant, one = self.scales.ring.constant, self.scales.ring.constant(1)
        match self.table.nodes[t]:
            case ("num", value):
                return constant(flint.fmpq(value.numerator, value.denominator)), one
            case ("dim", n):
                return self.scales.gens[n], one
            case ("sym", name):
                positive = name in self.scales.problem.positive
                return constant(1 if positive else self.point.value(name, is_first=True)), one
            case ("at", name, indices):
                is_first = all(env[k] == FIRST for k in indices)
                return constant(self.point.value(name, is_first=is_first)), one
            case ("sum", n, body):
                first, other = (self.value(body, _pushed(env, c)) for c in (FIRST, OTHER))
                return _added(first, _times((self.scales.gens[n] - 1, one), other))
            case ("fun", *_):
                return constant(0), one  # the zero function keeps congruence
            case ("sqrt", a):
                return self._root(self.value(a, env))
            case (op, a, b):
                return self._pair(op, self.value(a, env), self.value(b, env))
        raise NoScaleError

    def _pair(self, op: str, a: Any, b: Any) -> Any:
        if op == "add":
            return _added(a, b)
        if op == "div":
            if b[0] == 0:
                raise NoScaleError
            return _times(a, (b[1], b[0]))
        return _times(a, b)

    def _root(self, a: Any) -> Any:
        try:
            return a[0].sqrt(), a[1].sqrt()
        except (ValueError, DomainError) as error:
            raise NoScaleError from error


def _added(a: Any, b: Any) -> Any:
    return a[0] * b[1] + b[0] * a[1], a[1] * b[1]


def _times(a: Any, b: Any) -> Any:
    return a[0] * b[0], a[1] * b[1]


def _pushed(env: Mapping[int, int], value: int) -> Mapping[int, int]:
    return {0: value, **{k + 1: v for k, v in env.items()}}
