"""The value of a term at a point, without the kernel: rationals, and Arb balls for what is not one.

Derivatives are taken by jets (polynomials in nilpotents), not by rules on terms, and functions
known by name alone are given a meaning: cubic polynomials of a number, polynomials of an array that
no permutation of its elements leaves alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, product
from math import factorial, isqrt
from typing import Any, TypeAlias
from zlib import crc32

from flint import arb, ctx, fmpq

from verify.symbolic.trusted import Term

BITS = 256  # a ball that is as wide as 2^-200 tells no more than that nothing is known

Number: TypeAlias = Any  # Fraction or arb


class UndefinedError(ArithmeticError):
    """The term has no value at this point, or its balls are too wide to tell."""


def ball(value: Number) -> arb:
    """A number as a ball."""
    if isinstance(value, arb):
        return value
    return arb(fmpq(value.numerator, value.denominator))


def _both(a: Number, b: Number, op: str) -> Number:
    if not (isinstance(a, Fraction) and isinstance(b, Fraction)):
        a, b = ball(a), ball(b)
    return a + b if op == "add" else a * b


def differ(a: Number, b: Number) -> bool:
    """Whether two numbers are certainly different."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a != b
    return not ball(a).overlaps(ball(b))


def _inverse(a: Number) -> Number:
    if isinstance(a, Fraction):
        if a == 0:
            raise UndefinedError("a division by zero")
        return 1 / a
    if a.contains(0):
        raise UndefinedError("a divisor that may be zero")
    return 1 / a


def _root(a: Number) -> Number:
    if not a > 0:  # of a ball: certainly greater
        raise UndefinedError("a root of what may not be positive")
    if isinstance(a, Fraction):
        root = Fraction(isqrt(a.numerator), isqrt(a.denominator))
        if root * root == a:
            return root
    return ball(a).sqrt()


# A jet is {set of nilpotents: coefficient}; the empty set has the value, each e^2 = 0.
Jet: TypeAlias = dict[frozenset[int], Number]
VALUE = frozenset[int]()
_tags = count()


def constant(value: Number) -> Jet:
    """A number as a jet."""
    return {VALUE: value}


def plus(a: Jet, b: Jet) -> Jet:
    """The sum of two jets."""
    zero = Fraction(0)
    return {k: _both(a.get(k, zero), b.get(k, zero), "add") for k in a.keys() | b.keys()}


def times(a: Jet, b: Jet) -> Jet:
    """The product of two jets."""
    result: Jet = {}
    for (s, x), (t, y) in product(a.items(), b.items()):
        if not s & t:
            result[s | t] = _both(result.get(s | t, Fraction(0)), _both(x, y, "mul"), "add")
    return result


def composed(derivatives: Sequence[Number], a: Jet) -> Jet:
    """g(a) by Taylor's formula, for g, g', g'', ... at the value of a."""
    small, power, result = {k: v for k, v in a.items() if k}, constant(Fraction(1)), Jet()
    for order, slope in enumerate(derivatives):
        scale = _both(slope, Fraction(1, factorial(order)), "mul")
        result = plus(result, times(constant(scale), power))
        power = times(power, small)
    return result


ORDERS = range(4)  # a term of these tests is differentiated twice at most


def inverse(a: Jet) -> Jet:
    """1/a."""
    r = _inverse(a[VALUE])
    return composed([_power(r, k + 1, Fraction((-1) ** k * factorial(k))) for k in ORDERS], a)


def _power(x: Number, e: int, c: Fraction) -> Number:
    for _ in range(e):
        c = _both(c, x, "mul")
    return c


def root(a: Jet) -> Jet:
    """sqrt(a)."""
    value, coefficient, slopes = _root(a[VALUE]), Fraction(1), []
    for k in ORDERS:
        slopes.append(_both(value, _power(_inverse(a[VALUE]), k, coefficient), "mul"))
        coefficient *= Fraction(1, 2) - k
    return composed(slopes, a)


def _weight(*what: Any) -> Fraction:
    """A rational of no pattern, the same in every run."""
    return Fraction(crc32(repr(what).encode()) % 19 - 9, 1 + crc32(repr(what[::-1]).encode()) % 5)


def _cubic(name: str, indices: Any, value: Number) -> list[Number]:
    """f, f', f'', ... of the cubic polynomial that a name stands for; f' is the derivative of f."""
    primes = len(name) - len(name.rstrip("'"))
    c = [_weight(name.rstrip("'"), indices, k) for k in ORDERS]
    slopes = []
    for order in (k + primes for k in ORDERS):
        terms = (
            _power(value, k - order, c[k] * factorial(k) / factorial(k - order))
            for k in range(order, len(c))
        )
        slopes.append(_sum(terms))
    return slopes


def _sum(values: Any) -> Number:
    total: Number = Fraction(0)
    for value in values:
        total = _both(total, value, "add")
    return total


def _known(name: str, value: Number) -> list[Number] | None:
    """The derivatives of exp and tanh."""
    x = ball(value)
    if name == "exp":
        return [x.exp()] * len(ORDERS)
    if name == "tanh":
        t = x.tanh()
        u = 1 - t * t
        return [t, u, -2 * t * u, u * (6 * t * t - 2)]
    return None


@dataclass(frozen=True)
class Point:
    """Dimensions and the values of symbols, of which each element is a jet."""

    dims: Mapping[str, int]
    values: Mapping[str, Mapping[tuple[int, ...], Jet]]
    index: tuple[int, ...] = ()


def value(t: Term, point: Point) -> Number:
    """The value of a term; UndefinedError where it has none."""
    ctx.prec = BITS
    result = jet(t, point).get(VALUE, Fraction(0))
    if isinstance(result, arb) and result.rad() > arb(2) ** -100:
        raise UndefinedError("a ball too wide")
    return result


def jet(t: Term, at: Point) -> Jet:
    """The jet of a term."""
    match t.op:
        case "num":
            return constant(t.data)
        case "dim":
            return constant(Fraction(at.dims[t.data]))
        case "sym":
            return at.values[t.data][()]
        case "at":
            name, indices = t.data
            return at.values[name][tuple(at.index[-1 - k] for k in indices)]
        case "add":
            return plus(jet(t.args[0], at), jet(t.args[1], at))
        case "mul":
            return times(jet(t.args[0], at), jet(t.args[1], at))
        case "div":
            return times(jet(t.args[0], at), inverse(jet(t.args[1], at)))
        case "sqrt":
            return root(jet(t.args[0], at))
        case "sum":
            return _added(jet(t.args[0], below(at, k)) for k in range(at.dims[t.data]))
        case "fun":
            return _function(t, at)
        case "diff":
            return _derivative(t, at)
    raise AssertionError(t.op)


def below(at: Point, *index: int) -> Point:
    """The point under binders of these indices."""
    return Point(at.dims, at.values, (*at.index, *index))


def _added(jets: Any) -> Jet:
    total = constant(Fraction(0))
    for one in jets:
        total = plus(total, one)
    return total


def _function(t: Term, at: Point) -> Jet:
    name, indices = t.data[0], tuple(at.index[-1 - k] for k in t.data[1])
    if len(t.args) == 1 and t.args[0].op != "lam":
        a = jet(t.args[0], at)
        return composed(_known(name, a[VALUE]) or _cubic(name, indices, a[VALUE]), a)
    total = constant(_weight(name, indices))
    for number, arg in enumerate(t.args):
        body, dims = (arg.args[0], arg.data) if arg.op == "lam" else (arg, ())
        for k in product(*(range(at.dims[d]) for d in dims)):
            a = jet(body, below(at, *k))
            weight = constant(_weight(name, indices, number, k))
            total = plus(total, times(weight, plus(a, times(a, a))))
    return total


def _derivative(t: Term, at: Point) -> Jet:
    (symbol, direction), tag = t.data, next(_tags)
    small = {frozenset([tag]): Fraction(1)}
    values = at.values[symbol]
    moved = {k: plus(v, times(small, at.values[direction][k])) for k, v in values.items()}
    result = jet(t.args[0], Point(at.dims, {**at.values, symbol: moved}, at.index))
    found = {k - {tag}: v for k, v in result.items() if tag in k}
    return found or constant(Fraction(0))
