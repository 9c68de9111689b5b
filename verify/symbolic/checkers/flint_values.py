"""Values at concrete dimensions: polynomials in coordinates, roots and functions, exactly.

A value is (sum over S of P_S * prod of r for r in S) * prod of f^e: S are sets of *root atoms*,
P_S polynomials over the rationals in one variable for each coordinate, f *factors* that were
once divided by, e integers. A product r * r is replaced by the square of r, so a value whose
every P_S is the zero polynomial is zero wherever it is defined. That direction needs nothing
else. The other one, that a value with some P_S != 0 is not zero, holds when the root atoms are
independent; `Field.root` looks for products of earlier roots that a new one equals, but it does
not prove that there is none, so a difference is called real only after it was seen at a point.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import flint

Poly: TypeAlias = Any  # flint.fmpq_mpoly; flint has no annotations
Roots: TypeAlias = tuple[int, ...]  # the root atoms of a term, in order, each once
Key: TypeAlias = tuple[Any, ...]  # ("root", term, indices), ("dim", "n + 1"), ("prime", 2) ...

ALL_SUBSETS = 8  # up to so many roots, products of three are searched; beyond, single roots

MOST_PRODUCTS = 10**7  # products of monomials in one multiplication: a second or two


class TooLargeError(ArithmeticError):
    """More than MOST_PRODUCTS products of monomials: sums of reciprocals explode in coordinates."""


class NowhereDefinedError(ArithmeticError):
    """A divisor or a radicand that is zero for all values of the symbols."""


@dataclass(frozen=True, slots=True)
class Value:
    """``nums`` maps sets of roots to polynomials (none is zero), ``powers`` factors to powers."""

    nums: Mapping[Roots, Poly]
    powers: Mapping[int, int]


# sqrt(scale) as (key of sqrt(value), value, exponent): value^(exponent/2), value > 0.
Scale: TypeAlias = Sequence[tuple[Key, Value, int]]


@dataclass(frozen=True)
class Plan:
    """How a root was written: sqrt(v / (scale content)) = the product of ``roots``^exponent.

    ``content`` are the positive symbols taken out; a ``new`` root is its own product.
    """

    roots: Mapping[Key, int]
    content: tuple[tuple[str, int], ...]
    new: bool = False


@dataclass(frozen=True)
class Root:
    """A positive root atom: its square is a constant times powers of factors."""

    key: Key
    square: Value
    seen: Any  # the square at the field's point, a complex ball


@dataclass(frozen=True)
class Function:
    """A function atom: its variable is generator ``generator`` of the ring."""

    name: str
    selected: tuple[int, ...]
    arguments: tuple[tuple[Value, ...], ...]
    generator: int
    seen: tuple[Any, ...]


class Field:
    """Arithmetic of values over the variables ``names``, with room for functions among them."""

    def __init__(self, names: Sequence[str], positive: Sequence[str], functions: int) -> None:
        """A ring with one variable for each name and ``functions`` further ones."""
        extra = [f"function{i}" for i in range(functions)]
        self.names = [*names, *extra]
        self.ring = flint.fmpq_mpoly_ctx.get([*self.names, "none"], "lex")
        self.positive = positive
        self.gens = dict(zip(self.names, self.ring.gens(), strict=False))
        self.roots: list[Root] = []
        self.functions: list[Function] = []
        self.order: list[Root | Function] = []  # in order of birth: each needs earlier ones only
        self.factors: list[Mapping[Roots, Poly]] = []
        self.plans: dict[Key, Plan] = {}
        self._by_key: dict[Key, int] = {}
        self._known: dict[Any, list[int]] = {}
        self._functions: dict[Any, list[Function]] = {}
        self.coordinates = self._free = len(names)
        draw = random.Random(20)  # noqa: S311 - a fingerprint, not a secret
        self._point = [flint.fmpq(draw.randint(2, 10**4)) for _ in (*self.names, "none")]
        self.one = self.constant(1)
        self.zero = Value({}, {})

    def constant(self, value: Fraction | int) -> Value:
        """A rational number."""
        exact = Fraction(value)
        if not exact:
            return Value({}, {})
        ratio = flint.fmpq(exact.numerator, exact.denominator)
        return Value({(): self.ring.constant(ratio)}, {})

    def variable(self, name: str) -> Value:
        """A coordinate or a scalar symbol."""
        return Value({(): self.gens[name]}, {})

    # --- arithmetic ------------------------------------------------------------------------------

    def add(self, a: Value, b: Value) -> Value:
        """a + b, over the factors that both share."""
        if not a.nums or not b.nums:
            return a if a.nums else b
        if a.powers == b.powers:
            return Value(_sum(a.nums, b.nums), a.powers)
        common = {f: min(a.powers.get(f, 0), b.powers.get(f, 0)) for f in {*a.powers, *b.powers}}
        left, right = (self._over(v, common) for v in (a, b))
        if left.powers == right.powers:
            return Value(_sum(left.nums, right.nums), left.powers)
        # A factor with roots in it: multiplied out, it brought further factors along.
        return self.add(left, right)

    def _over(self, v: Value, common: Mapping[int, int]) -> Value:
        """The same value with those powers outside, the rest multiplied out."""
        out = Value(v.nums, {f: e for f, e in common.items() if e})
        for f, e in common.items():
            for _ in range(v.powers.get(f, 0) - e):
                out = self.mul(out, Value(self.factors[f], {}))
        return out

    def mul(self, a: Value, b: Value) -> Value:
        """a * b; the square of a root becomes powers of factors."""
        powers = _clean(
            {f: a.powers.get(f, 0) + b.powers.get(f, 0) for f in {*a.powers, *b.powers}}
        )
        if self.size(a) * self.size(b) > MOST_PRODUCTS:
            raise TooLargeError(f"a product takes more than {MOST_PRODUCTS} products of monomials")
        parts: dict[Roots, dict[Roots, Poly]] = {}
        for (s, p), (t, q) in itertools.product(a.nums.items(), b.nums.items()):
            twice = tuple(sorted(set(s) & set(t)))
            once = tuple(sorted(set(s) ^ set(t)))
            part = parts.setdefault(twice, {})
            part[once] = part[once] + p * q if once in part else p * q
        total = Value({}, {})
        for twice, part in parts.items():
            value = Value({s: p for s, p in part.items() if p != 0}, powers)
            for r in twice:
                value = self.mul(value, self.roots[r].square)
            total = self.add(total, value)
        return total

    def negative(self, a: Value) -> Value:
        """-a."""
        return Value({s: -p for s, p in a.nums.items()}, a.powers)

    def inverse(self, a: Value) -> Value:
        """1 / a; raises NowhereDefinedError if a is zero."""
        if len(a.nums) == 1:
            ((roots, poly),) = a.nums.items()
            plain = self.factored(Value({(): poly}, a.powers))
            out = Value({roots: self._reciprocal(plain)}, _negated(plain.powers))
            for r in roots:
                out = self.mul(out, self.inverse(self.roots[r].square))
            return out
        plain = self.factored(a)
        return Value({(): self._reciprocal(plain)}, _negated(plain.powers))

    def _reciprocal(self, plain: Value) -> Poly:
        return self.ring.constant(1 / plain.nums[()].leading_coefficient())

    def power(self, a: Value, exponent: int) -> Value:
        """a to an integer power."""
        base = a if exponent >= 0 else self.inverse(a)
        out = self.one
        for _ in range(abs(exponent)):
            out = self.mul(out, base)
        return out

    def factored(self, a: Value) -> Value:
        """The same value as a constant times powers of factors."""
        if not a.nums:
            raise NowhereDefinedError("a divisor or radicand is zero for all values")
        if len(a.nums) == 1 and () in a.nums and a.nums[()].is_constant():
            return a
        lead = a.nums[min(a.nums)].leading_coefficient()
        f = self._factor({s: p / lead for s, p in a.nums.items()})
        powers = _clean({**a.powers, f: a.powers.get(f, 0) + 1})
        return Value({(): self.ring.constant(lead)}, powers)

    def _factor(self, nums: Mapping[Roots, Poly]) -> int:
        mark = tuple((s, len(nums[s]), nums[s](*self._point)) for s in sorted(nums))
        known = self._known.setdefault(mark, [])
        for f in known:
            if self.factors[f] == nums:
                return f
        self.factors.append(nums)
        known.append(len(self.factors) - 1)
        return known[-1]

    def same(self, a: Value, b: Value) -> bool:
        """Whether a - b is zero as a polynomial in coordinates, roots and functions."""
        return not self.add(a, self.negative(b)).nums

    def size(self, a: Value) -> int:
        """The number of terms of the numerator."""
        return sum(len(p) for p in a.nums.values())

    # --- fingerprints ----------------------------------------------------------------------------

    def seen(self, a: Value) -> Any:
        """The value at the field's point, a complex ball; equal values have overlapping balls."""
        total = self._seen(a.nums)
        for f, e in a.powers.items():
            total *= self._seen(self.factors[f]) ** e
        return total

    def _seen(self, nums: Mapping[Roots, Poly]) -> Any:
        total = flint.acb(0)
        for roots, poly in nums.items():
            term = flint.acb(flint.arb(poly(*self._point)))
            for r in roots:
                term *= self.roots[r].seen.sqrt()
            total += term
        return total

    # --- roots -----------------------------------------------------------------------------------

    def root(self, v: Value, key: Key, scale: Scale) -> Value:
        """The positive square root of v, over independent atoms as far as these are found.

        sqrt(v) = sqrt(scale) * sqrt(s^k) * sqrt(v / (scale s^k)) with scale > 0 the same
        formula at all dimensions and s^k powers of positive symbols. The last root is a product
        of known roots where its radicand equals the product of their squares, else a new atom.
        """
        self.factored(v)  # raises where v is zero
        content = self._positive_content(v)
        outside = self.one
        taken = [(("positive", name), self.variable(name), e) for name, e in content]
        for mark, value, exponent in (*scale, *taken):
            outside = self.mul(outside, self._root_power(mark, value, exponent))
            v = self.mul(v, self.power(value, -exponent))
        if self._is_negative(v):
            raise NowhereDefinedError("a radicand is negative for all values")
        relation = self._relation(v)
        if relation is None:
            self.plans[key] = Plan({key: 1}, content, new=True)
            return self.mul(outside, self._atom(key, v))
        self.plans[key] = Plan({self.roots[r].key: e for r, e in relation.items()}, content)
        for r, e in relation.items():
            outside = self.mul(outside, self.power(self._alone(r), e))
        return outside

    def _alone(self, root: int) -> Value:
        return Value({(root,): self.ring.constant(1)}, {})

    def _is_negative(self, v: Value) -> bool:
        constant = not v.powers and set(v.nums) == {()} and v.nums[()].is_constant()
        return constant and bool(v.nums[()].leading_coefficient() < 0)

    def _atom(self, key: Key, square: Value) -> Value:
        if key not in self._by_key:
            self._by_key[key] = len(self.roots)
            root = Root(key, self.factored(square), self.seen(square))
            self.roots.append(root)
            self.order.append(root)
        return self._alone(self._by_key[key])

    def _root_power(self, key: Key, value: Value, exponent: int) -> Value:
        """sqrt(value)^exponent, value > 0."""
        whole = self.power(value, exponent // 2)
        return self.mul(whole, self._atom(key, value)) if exponent % 2 else whole

    def _positive_content(self, v: Value) -> tuple[tuple[str, int], ...]:
        """The powers of positive symbols that divide a radicand without roots in it."""
        pieces = [(v.nums, 1), *((self.factors[f], e) for f, e in v.powers.items())]
        if any(set(nums) != {()} for nums, _ in pieces):
            return ()
        out = []
        for name in self.positive:
            place = self.names.index(name)
            lows = ((min(m[place] for m in nums[()].monoms()), e) for nums, e in pieces)
            if total := sum(low * e for low, e in lows):
                out.append((name, total))
        return tuple(out)

    def _relation(self, v: Value) -> Mapping[int, int] | None:
        """Exponents with v = the product of the roots' squares to these exponents, if found.

        Fingerprints propose, exact arithmetic decides. Searched: one root to +-1 or +-2, and
        products of two or three to +-1 while the roots are few.
        """
        wanted = [r for r, root in enumerate(self.roots) if root.key[0] == "root"]
        image = self.seen(v)
        for relation in _relations(wanted):
            product = flint.acb(1)
            for r, e in relation.items():
                product *= self.roots[r].seen ** e
            if product.overlaps(image) and self._holds(v, relation):
                return relation
        return None

    def _holds(self, v: Value, relation: Mapping[int, int]) -> bool:
        product = self.one
        for r, e in relation.items():
            product = self.mul(product, self.power(self.roots[r].square, e))
        return self.same(v, product)

    # --- functions -------------------------------------------------------------------------------

    def function(
        self, name: str, selected: tuple[int, ...], arguments: tuple[tuple[Value, ...], ...]
    ) -> Function:
        """The atom of a function known by name: equal arguments give the same atom."""
        seen = tuple(self.seen(v) for argument in arguments for v in argument)
        shape = (name, selected, tuple(map(len, arguments)))
        for known in self._functions.setdefault(shape, []):
            close = all(a.overlaps(b) for a, b in zip(known.seen, seen, strict=True))
            if close and self._same_arguments(known.arguments, arguments):
                return known
        made = Function(name, selected, arguments, self._free, seen)
        self._free += 1
        self._functions[shape].append(made)
        self.functions.append(made)
        self.order.append(made)
        return made

    def _same_arguments(self, a: Sequence[Any], b: Sequence[Any]) -> bool:
        flat = zip(itertools.chain(*a), itertools.chain(*b), strict=True)
        return all(self.same(p, q) for p, q in flat)


def _sum(a: Mapping[Roots, Poly], b: Mapping[Roots, Poly]) -> Mapping[Roots, Poly]:
    total = dict(a)
    for roots, poly in b.items():
        total[roots] = total[roots] + poly if roots in total else poly
    return {roots: poly for roots, poly in total.items() if poly != 0}


def _clean(powers: Mapping[int, int]) -> Mapping[int, int]:
    return {f: e for f, e in powers.items() if e}


def _negated(powers: Mapping[int, int]) -> Mapping[int, int]:
    return {f: -e for f, e in powers.items()}


def _relations(roots: Sequence[int]) -> Iterable[Mapping[int, int]]:
    """Exponents to try, likelier ones first; the empty product is 1."""
    yield {}
    for e in (1, -1, 2, -2):
        yield from ({r: e} for r in roots)
    for count in (2, 3) if len(roots) <= ALL_SUBSETS else ():
        for chosen in itertools.combinations(roots, count):
            for signs in itertools.product((1, -1), repeat=count):
                yield dict(zip(chosen, signs, strict=True))
