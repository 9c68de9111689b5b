"""Claims seen at points: exact values of a "differ" claim, and balls that tell two values apart."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import flint

from verify.symbolic.checkers.answer import CertificateError
from verify.symbolic.checkers.flint_reader import number
from verify.symbolic.checkers.flint_terms import Claim, Problem
from verify.symbolic.checkers.flint_values import Field, Function, Root, Value

TRIES = 8
BALLS = {"tanh": "tanh", "exp": "exp", "erf": "erf", "abs": "__abs__"}  # methods of flint.arb


def _relu(value: Fraction) -> Fraction:
    return max(value, Fraction(0))


def _sign(value: Fraction) -> Fraction:
    return Fraction((value > 0) - (value < 0))


def _abs(value: Fraction) -> Fraction:
    return abs(value)


EXACT: Mapping[str, Callable[[Fraction], Fraction]] = {"relu": _relu, "abs": _abs, "sign": _sign}


class NoValueError(ArithmeticError):
    """A term has no value at a point, or none that can be computed exactly."""


# --- a witness of a "differ" claim ----------------------------------------------------------------


class Witness:
    """Exact rational values of terms at the witness of a claim."""

    def __init__(self, problem: Problem, claim: Claim) -> None:
        """Raises CertificateError where the witness does not fit the declarations."""
        self.problem, self.claim = problem, claim
        try:
            self.dims = {
                n: int(claim.witness["dims"].get(n, problem.dims[n])) for n in problem.dims
            }
            self.values = {s: self._read(s, v) for s, v in claim.witness["values"].items()}
            index = claim.witness.get("index", [])
            self.env = tuple(reversed([int(i) for i in index]))
        except (KeyError, TypeError, AttributeError) as error:
            raise CertificateError(
                f"claim '{claim.name}': no witness, {error} is missing"
            ) from error
        ranges = [self.dims[n] for n in reversed(claim.free)]
        good = len(self.env) == len(ranges)
        if not good or not all(0 <= i < d for i, d in zip(self.env, ranges, strict=True)):
            raise CertificateError(f"claim '{claim.name}': index {index} does not fit {claim.free}")

    def _read(self, symbol: str, value: Any) -> Any:
        shape = [self.dims[n] for n in self.problem.symbols[symbol]]
        return _nested(value, shape, f"'{symbol}' of the witness of '{self.claim.name}'")

    def outside_domain(self) -> str:
        """What the witness violates of the declarations, or the empty string."""
        for n, d in self.dims.items():
            if d < self.problem.dims[n]:
                return f"{n} = {d} is below its smallest value {self.problem.dims[n]}"
        if "pi" in self.values:
            return "pi is given a value, and it has its own"
        bad = [s for s in self.problem.positive if s in self.values and self.values[s] <= 0]
        return f"{bad[0]} = {self.values[bad[0]]} is not positive" if bad else ""

    def value(self, t: int, env: tuple[int, ...]) -> Fraction:
        """The value of a term; raises ZeroDivisionError or NoValueError where there is none."""
        match self.problem.table.nodes[t]:
            case ("num", value):
                return Fraction(value)
            case ("dim", n):
                return Fraction(self.dims[n])
            case ("sym", name):
                return self._entry(name, ())
            case ("at", name, indices):
                return self._entry(name, tuple(env[k] for k in indices))
            case ("sum", n, body):
                return sum((self.value(body, (i, *env)) for i in range(self.dims[n])), Fraction(0))
            case ("sqrt", a):
                return _rational_root(self.value(a, env))
            case ("fun", name, (), (a,)) if name in EXACT and self._is_scalar(a):
                return EXACT[name](self.value(a, env))
            case ("fun", name, *_):
                raise NoValueError(f"'{name}' has no exact value here")
            case (op, a, b):
                return _operate(op, self.value(a, env), self.value(b, env))
        raise AssertionError(f"term {t} is no scalar")

    def _is_scalar(self, t: int) -> bool:
        return bool(self.problem.table.nodes[t][0] != "lam")

    def _entry(self, name: str, place: tuple[int, ...]) -> Fraction:
        if name not in self.values:
            raise CertificateError(f"the witness of '{self.claim.name}' gives no value to '{name}'")
        found = self.values[name]
        for i in place:
            found = found[i]
        return Fraction(found)


def _nested(value: Any, shape: Sequence[int], what: str) -> Any:
    if not shape:
        return number(value)
    if not isinstance(value, list) or len(value) != shape[0]:
        raise CertificateError(f"{what}: {value!r}, expected a list of {shape[0]}")
    return [_nested(v, shape[1:], what) for v in value]


def _operate(op: str, a: Fraction, b: Fraction) -> Fraction:
    if op == "add":
        return a + b
    return a * b if op == "mul" else a / b


def _rational_root(value: Fraction) -> Fraction:
    if value <= 0:
        raise ZeroDivisionError(f"the radicand {value} is not positive")
    above, below = math.isqrt(value.numerator), math.isqrt(value.denominator)
    if above * above != value.numerator or below * below != value.denominator:
        raise NoValueError(f"sqrt({value}) is not rational")
    return Fraction(above, below)


# --- a point at which two values differ -----------------------------------------------------------


def apart(field: Field, a: Value, b: Value) -> str:
    """A rational point at which a and b are proved to differ, in words; empty if none was found.

    Rigorous: the values are balls (Arb) that do not meet, at a point of the domain. An unknown
    function takes any value at arguments that are proved to be different; tanh, exp, erf, relu,
    sign and abs take their own values, and pi is pi.
    """
    draw = random.Random(5)  # noqa: S311 - any points do
    for attempt in range(TRIES):
        point = _Point(field, draw, 2 + 2 * attempt)
        try:
            left, right = point.read([a, b])
        except NoValueError:
            continue
        if left.is_finite() and right.is_finite() and not left.overlaps(right):
            at = ", ".join(f"{name} = {value}" for name, value in point.drawn.items())
            sides = f"{left.str(8, radius=False)} is not {right.str(8, radius=False)}"
            return f"{at}: {sides}" if at else sides
    return ""


class _Point:
    """One point: small rationals for the coordinates, balls for roots and functions."""

    def __init__(self, field: Field, draw: random.Random, size: int) -> None:
        self.field, self.draw, self.size = field, draw, size
        self.drawn: dict[str, Fraction] = {}
        self.gens: list[Any] = []
        for name in field.names[: field.coordinates]:
            self.drawn[name] = self._draw(positive=name in field.positive)
            self.gens.append(_exact(self.drawn[name]))
        if "pi" in self.drawn:
            self.gens[field.names.index("pi")] = flint.arb.pi()
            del self.drawn["pi"]
        self.roots: list[Any] = []
        self.calls: list[tuple[Function, list[Any]]] = []

    def _draw(self, *, positive: bool) -> Fraction:
        low = 1 if positive else -self.size
        return Fraction(self.draw.randint(low, self.size), self.draw.choice((1, 1, 2, 3)))

    def read(self, values: Sequence[Value]) -> list[Any]:
        """Balls for the values; raises NoValueError at a point outside the domain."""
        for made in self.field.order:
            if isinstance(made, Root):
                square = self._value(made.square)
                if not square > 0:
                    raise NoValueError("a radicand that is not positive here")
                self.roots.append(square.sqrt())
            else:
                self.gens.append(self._call(made))
        for factor in self.field.factors:
            if self._nums(factor).contains(0):
                raise NoValueError("a divisor that may be zero here")
        return [self._value(v) for v in values]

    def _value(self, v: Value) -> Any:
        total = self._nums(v.nums)
        for f, e in v.powers.items():
            total *= self._nums(self.field.factors[f]) ** e
        return total

    def _nums(self, nums: Mapping[Any, Any]) -> Any:
        total = flint.arb(0)
        for roots, poly in nums.items():
            part = self._poly(poly)
            for r in roots:
                part *= self.roots[r]
            total += part
        return total

    def _poly(self, poly: Any) -> Any:
        total = flint.arb(0)
        for exponents, coefficient in poly.terms():
            part = flint.arb(coefficient)
            for place, e in enumerate(exponents):
                if e:
                    part *= self.gens[place] ** e
            total += part
        return total

    def _call(self, made: Function) -> Any:
        balls = [self._value(v) for argument in made.arguments for v in argument]
        known = made.name.rstrip("'") in (*BALLS, *EXACT)
        if known:
            return self._known(made.name, balls)
        for other, seen in self.calls:
            near = (other.name, len(seen)) == (made.name, len(balls)) and all(
                p.overlaps(q) for p, q in zip(seen, balls, strict=True)
            )
            if near and (other.selected == made.selected or not self._same_entries(other, made)):
                raise NoValueError("arguments that cannot be told apart here")
        self.calls.append((made, balls))
        value = self._draw(positive=False)
        self.drawn[f"{made.name}({', '.join(b.str(6, radius=False) for b in balls)})"] = value
        return _exact(value)

    def _same_entries(self, a: Function, b: Function) -> bool:
        flat = ([v for argument in f.arguments for v in argument] for f in (a, b))
        return all(self.field.same(p, q) for p, q in zip(*flat, strict=True))

    def _known(self, name: str, balls: list[Any]) -> Any:
        if len(balls) != 1 or (name not in BALLS and name not in EXACT):
            raise NoValueError(f"'{name}' of these arguments is not computed")
        (a,) = balls
        if name in BALLS:
            return getattr(a, BALLS[name])()
        if a.contains(0):
            raise NoValueError(f"'{name}' at a ball around 0")
        if name == "sign":
            return flint.arb(1 if a > 0 else -1)
        return a if a > 0 else flint.arb(0)


def _exact(value: Fraction) -> Any:
    return flint.arb(flint.fmpq(value.numerator, value.denominator))
