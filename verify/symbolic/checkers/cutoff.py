"""Which dimensions prove a statement for every dimension, computed from its terms alone.

Setting. At dimension d a symbol x stands for d variables x_1 .. x_d (a matrix for d m of them). A
term is a sum over sets S of roots of P_S r_S over a product of factors that were divided by,
P_S being sums over indices of products of *indexed atoms*: x_i, A_ik, f(..)_i. Clear the factors
from left - right: each P_S becomes

    F_d = sum over G of c_G(d) hom_G,    hom_G = sum over i_1 .. i_a in 1..d of G(i_1 .. i_a),

where G is a product of atoms that mentions each of its a bound indices (an index that no atom
mentions is a factor d of c_G), and c_G is a polynomial in d over the rational functions of the
scalar symbols, of the form d^lo times a polynomial of degree <= hi - lo.

Theorem. Let a <= N for every G, and hi - lo < q for all G with the same a. If F_d = 0 for q
values d >= N, then every c_G is 0 and F_d = 0 for every d.

Proof. Sort the maps i by which indices coincide: hom_G is the sum over set partitions of G's
indices of inj_G', where G' is G with the indices of each block made one, and inj_G' sums over
pairwise different indices. The partition into singletons gives G itself, each other one fewer
indices; the coefficients are positive integers that do not depend on d. A monomial of inj_G'
shows all of its indices, so it determines G' up to renaming of indices: the inj of
non-isomorphic G' share no monomial, and for d >= N none is empty. So F_d = 0 says that for every
G' the total c_G' + (multiples of c_G with more indices) is 0 at this d. Descend from a = N: once
the c_G with more indices are the zero polynomial, c_G'(d) = 0 at q values d >= 1, and
c_G' / d^lo, of degree < q, is the zero polynomial.

Several dimensions: a counts the indices of each dimension, lo and hi are bounds for each, and
a polynomial of degree < q_n in n and < q_m in m that is 0 on a grid of q_n times q_m points is
0. Free indices are distinguished points: a bound index may meet them (further set partitions) or
stay away, which needs d >= N + (number of free indices), separately for each pattern of
equalities among the free ones.

Local functions. The proof uses only that the atoms of one index have a basis (the monomials) that
contains 1. It holds as it stands if that basis is one of any algebra of functions of the atoms
of one index: so roots and reciprocals of sum-free, d-free terms in one bound index, such as
1/sqrt(x_i^2 + beta), cost nothing. They may have a part along 1, in which the index does not
show: a sum over such an index is counted in both ways. (A part along 1 that appears only when two
indices are made one belongs to a G' with fewer indices, and goes with c_G in the descent.)

Hypotheses, which the caller checks at its dimensions d:
(a) Roots that vary with a bound index are local functions. The others are written over root
    atoms in one way at all these d (a *plan*: sqrt(v) = sqrt(scale) * product of atoms, the scale
    > 0 and one formula in d), and F_d is zero as a polynomial in the atoms: then each P_S is.
(b) Wherever the plan writes a root by older atoms, or calls of an unknown function with equal
    arguments were made one atom, the equation behind it holds at all these d; its own bounds
    are part of the demand, so that it holds for every d, and the atoms may be taken as given.
(c) Each divisor and radicand is not the zero polynomial at these d, so clearing loses nothing.
    (A common factor such as n - 3 is left outside only if it is > 0 for all n.)

The bounds are found by reading terms over classes of G: (which enclosing indices it mentions,
a) -> (lo, hi). Sums of values keep common factors outside (a mean keeps its 1/n), which is what
keeps the bounds small. This reading need not resemble the caller's computation: F_d only has to
exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from verify.symbolic.checkers.flint_scale import Scales
from verify.symbolic.checkers.flint_terms import Problem
from verify.symbolic.checkers.flint_values import Key, Plan

Marker: TypeAlias = Any  # an int: a distinguished index; ("bound", level): the index of a sum
Counts: TypeAlias = tuple[int, ...]  # one number for each dimension symbol
Class: TypeAlias = tuple[frozenset[Any], Counts]
Poly: TypeAlias = Mapping[Class, tuple[Counts, Counts]]
Nums: TypeAlias = Mapping[frozenset[Key], Poly]
Env: TypeAlias = Mapping[int, Marker]
Instance: TypeAlias = Key  # ("root" or "fun", term, values of the indices it mentions)


class NoCutoffError(ValueError):
    """No finite number of dimensions is known to be enough, for the reason given."""


@dataclass(frozen=True)
class Cutoff:
    """``points`` consecutive values from ``least`` on, for each dimension: the whole grid."""

    least: Mapping[str, int]
    points: Mapping[str, int]

    def joined(self, other: Cutoff) -> Cutoff:
        """What is enough for both."""
        return Cutoff(
            {n: max(v, other.least[n]) for n, v in self.least.items()},
            {n: max(v, other.points[n]) for n, v in self.points.items()},
        )

    def grid(self) -> list[dict[str, int]]:
        """The dimensions at which the statement is to be checked."""
        axes = [[(n, v + k) for k in range(self.points[n])] for n, v in self.least.items()]
        return [dict(point) for point in itertools.product(*axes)]


@dataclass(frozen=True)
class Bounded:
    """A term: classes of its numerator for each set of roots, times powers of factors."""

    nums: Nums
    powers: Mapping[Key, int]


class Demand:
    """Reads terms of one problem, given the plans of its roots, and collects what they demand.

    ``plans`` are those of one dimension; ``asked`` are the roots whose plans were relied on.
    """

    def __init__(self, problem: Problem, scales: Scales, plans: Mapping[Key, Plan]) -> None:
        """Nothing is demanded yet but the smallest dimensions."""
        self.problem, self.table, self.scales, self.plans = problem, problem.table, scales, plans
        self.names = sorted(problem.dims)
        self.cutoff = Cutoff(dict(problem.dims), dict.fromkeys(self.names, 1))
        self.asked: set[Key] = set()
        self.none: Counts = (0,) * len(self.names)
        self.unit: Poly = {(frozenset(), self.none): (self.none, self.none)}
        self.one = Bounded({frozenset(): self.unit}, {})
        self._factors: dict[Key, Nums] = {}
        self._polynomials: dict[Key, Any] = {}
        self._squares: dict[Key, Mapping[Key, int]] = {}
        self._known: dict[tuple[int, tuple[Marker, ...]], Bounded] = {}

    # --- what is asked ---------------------------------------------------------------------------

    def equal(self, a: int, b: int, env: Env, distinguished: Mapping[str, int]) -> None:
        """Demand dimensions enough for a = b; raises NoCutoffError where none are known."""
        self._vanishing(self.add(self.value(a, env), self.value(b, env)), distinguished)

    def same_call(self, a: Instance, b: Instance) -> None:
        """Demand dimensions enough for the equality of the arguments of two calls."""
        for s, t in zip(*(self.table.nodes[key[1]][3] for key in (a, b)), strict=True):
            ends = []
            for argument, (_, call, place) in ((s, a), (t, b)):
                env = dict(zip(sorted(self.table.uses[call]), place, strict=True))
                ends.append(self._entry(argument, env))
            width = len(a[2]) + len(b[2]) + max(extra for _, extra in ends)
            difference = self.add(ends[0][0], ends[1][0])
            self._vanishing(difference, dict.fromkeys(self.names, width))

    def _entry(self, argument: int, env: Env) -> tuple[Bounded, int]:
        """A scalar argument, or the general entry of an array; how many indices that added."""
        node = self.table.nodes[argument]
        if node[0] != "lam":
            return self.value(argument, env), 0
        count = len(node[1])
        inner = {**dict.fromkeys(range(count), 0), **{k + count: m for k, m in env.items()}}
        return self.value(node[2], inner), count

    def _vanishing(self, difference: Bounded, distinguished: Mapping[str, int]) -> None:
        difference = self._with_possible_zeros(difference)
        least, points = dict(self.cutoff.least), dict(self.cutoff.points)
        for (_, indices), (lo, hi) in (c for p in difference.nums.values() for c in p.items()):
            for place, n in enumerate(self.names):
                least[n] = max(least[n], indices[place] + distinguished.get(n, 0))
                points[n] = max(points[n], hi[place] - lo[place] + 1)
        self.cutoff = self.cutoff.joined(Cutoff(least, points))

    def _with_possible_zeros(self, a: Bounded) -> Bounded:
        """Multiply out what may be 0 at some dimension, such as n - 3: it is no common factor.

        What was divided by, or stood under a root, is not 0 where the statement is defined.
        """
        for f, e in a.powers.items():
            if f[0] == "dim" and e > 0 and not self.scales.is_positive(self._polynomials[f]):
                return self._with_possible_zeros(self._over(a, {**a.powers, f: 0}))
        return a

    # --- terms -----------------------------------------------------------------------------------

    def value(self, t: int, env: Env) -> Bounded:
        """The classes of a term; ``env`` says what each index that it mentions is."""
        key = (t, self._place(t, env))
        if key not in self._known:
            formula = self.scales.formula(t)
            self._known[key] = self._value(t, env) if formula is None else self._product(formula)
        return self._known[key]

    def _place(self, t: int, env: Env) -> tuple[Marker, ...]:
        return tuple(env[k] for k in sorted(self.table.uses[t]))

    def _value(self, t: int, env: Env) -> Bounded:
        match self.table.nodes[t]:
            case ("sym", _):
                return self.one
            case ("at", *_) | ("fun", *_):
                shown = frozenset(m for m in self._place(t, env) if not isinstance(m, int))
                return Bounded({frozenset(): {(shown, self.none): (self.none, self.none)}}, {})
            case ("sum", n, body):
                return self._sum(n, body, env)
            case ("sqrt", a):
                return self._root(t, a, env)
            case ("div", a, b):
                return self.mul(self.value(a, env), self._inverse(b, env))
            case (op, a, b):
                operation = self.add if op == "add" else self.mul
                return operation(self.value(a, env), self.value(b, env))
        raise AssertionError(f"term {t} is no scalar")

    def _sum(self, n: str, body: int, env: Env) -> Bounded:
        bound = (
            "bound",
            max((m[1] for m in env.values() if not isinstance(m, int)), default=0) + 1,
        )
        inner = self.value(body, {0: bound, **{k + 1: m for k, m in env.items()}})
        step = tuple(int(name == n) for name in self.names)
        return Bounded(
            {s: self._summed(p, bound, step) for s, p in inner.nums.items()}, inner.powers
        )

    def _summed(self, poly: Poly, bound: Marker, step: Counts) -> Poly:
        """An index that shows is one more index; one that does not is a factor d."""
        out: list[Poly] = []
        for (shown, indices), (lo, hi) in poly.items():
            rest = shown - {bound, ("local", bound)}
            if bound in shown:
                out.append({(rest, _plus(indices, step)): (lo, hi)})
            if bound not in shown or ("local", bound) in shown:
                out.append({(rest, indices): (_plus(lo, step), _plus(hi, step))})
        return _union(out)

    # --- arithmetic ------------------------------------------------------------------------------

    def add(self, a: Bounded, b: Bounded) -> Bounded:
        """The classes of a + b, and of a - b; common factors stay outside."""
        if not a.nums or not b.nums:
            return a if a.nums else b
        if a.powers == b.powers:
            sets = {*a.nums, *b.nums}
            return Bounded(
                {s: _union([a.nums.get(s, {}), b.nums.get(s, {})]) for s in sets}, a.powers
            )
        common = {f: min(a.powers.get(f, 0), b.powers.get(f, 0)) for f in {*a.powers, *b.powers}}
        return self.add(self._over(a, common), self._over(b, common))

    def _over(self, a: Bounded, common: Mapping[Key, int]) -> Bounded:
        out = Bounded(a.nums, {f: e for f, e in common.items() if e})
        for f, e in common.items():
            for _ in range(a.powers.get(f, 0) - e):
                out = self.mul(out, Bounded(self._factors[f], {}))
        return out

    def mul(self, a: Bounded, b: Bounded) -> Bounded:
        """The classes of a * b; the square of a root becomes powers of factors."""
        parts = []
        for (s, p), (t, q) in itertools.product(a.nums.items(), b.nums.items()):
            powers = _powers(a.powers, b.powers, *(self._squares[r] for r in s & t))
            parts.append(Bounded({s ^ t: _times(p, q)}, powers))
        total = Bounded({}, {})
        for part in parts:
            total = self.add(total, part)
        return total

    def _inverse(self, t: int, env: Env) -> Bounded:
        a = self.value(t, env)
        local = self._as_local(a)
        return local or self._reciprocal(a, ("term", t, self._place(t, env)))

    def _reciprocal(self, a: Bounded, key: Key) -> Bounded:
        """1 / a with a's numerator as a factor; roots that stand alone go up."""
        plain = self._factored(a, key)
        alone = next(iter(a.nums)) if len(a.nums) == 1 else frozenset()
        squares = (self._squares[r] for r in alone)
        return Bounded({alone: self.unit}, _powers(*map(_negated, (plain, *squares))))

    def _factored(self, a: Bounded, key: Key) -> Mapping[Key, int]:
        """The powers of factors that make up a, but for roots that stand alone."""
        if not a.nums:
            raise NoCutoffError("a divisor or radicand is zero")
        nums: Nums = {frozenset(): next(iter(a.nums.values()))} if len(a.nums) == 1 else a.nums
        if nums == self.one.nums:
            return a.powers
        if any(shown for poly in nums.values() for shown, _ in poly):
            raise NoCutoffError("a root or denominator varies with the index of a sum")
        self._factors[key] = nums
        return _powers(a.powers, {key: 1})

    def _as_local(self, a: Bounded) -> Bounded | None:
        """The classes of any function of a sum-free, d-free term in at most one bound index."""
        if a.powers or set(a.nums) != {frozenset()}:
            return None
        (poly,) = a.nums.values()
        shown = frozenset().union(*(s for s, _ in poly))
        bound = {m for m in shown if m[0] == "bound"}
        free_of_d = all(
            c == self.none and r == (self.none, self.none) for (_, c), r in poly.items()
        )
        if not free_of_d or len(bound) > 1:
            return None
        marks = frozenset({*bound, *(("local", m) for m in bound)})
        return Bounded({frozenset(): {(marks, self.none): (self.none, self.none)}}, {})

    def _product(self, formula: Iterable[tuple[Key, Any, int]]) -> Bounded:
        """A formula in the dimensions as powers of its irreducible factors; 0 has no classes."""
        powers = {}
        for key, poly, e in formula:
            if key == ("zero",):
                return Bounded({}, {})
            if key[0] == "dim":
                powers[key] = e
                self._polynomials[key] = poly
                self._factors[key] = {
                    frozenset(): {(frozenset(), self.none): self.scales.span(poly)}
                }
        return Bounded(self.one.nums, powers)

    # --- roots -----------------------------------------------------------------------------------

    def _root(self, t: int, radicand: int, env: Env) -> Bounded:
        v = self.value(radicand, env)
        local = self._as_local(v)
        if local is not None:
            return local
        key = ("root", t, self._place(t, env))
        if key not in self.plans:
            raise NoCutoffError("a root varies with the index of a sum")
        self.asked.add(key)
        plan, scale = self.plans[key], self.scales.of(radicand)
        v = self.mul(v, Bounded(self.one.nums, _negated(self._product(scale).powers)))
        outside = self._outside([*scale, *((("positive", s), s, e) for s, e in plan.content)])
        if plan.new:
            if len(v.nums) == 1 and frozenset() not in v.nums:
                raise NoCutoffError("a radicand is a multiple of another root")
            self._squares[key] = self._factored(v, key)
            return self.mul(outside, Bounded({frozenset({key}): self.unit}, {}))
        others = [self._older(other, e) for other, e in plan.roots.items()]
        square, product = self.one, outside
        for root in others:
            product, square = self.mul(product, root), self.mul(square, self.mul(root, root))
        everywhere = {n: len({m for m in key[2] if isinstance(m, int)}) for n in self.names}
        self._vanishing(self.add(v, square), everywhere)
        return product

    def _outside(self, scale: Iterable[tuple[Key, Any, int]]) -> Bounded:
        """sqrt(scale): whole powers, and one root atom for each odd exponent."""
        out = self.one
        for key, value, e in scale:
            square = self._product([(key, value, 1)]).powers
            self._squares[key] = square
            for _ in range(abs(e // 2)):
                out = self.mul(out, Bounded(self.one.nums, square if e > 0 else _negated(square)))
            if e % 2:
                out = self.mul(out, Bounded({frozenset({key}): self.unit}, {}))
        return out

    def _older(self, key: Key, exponent: int) -> Bounded:
        """A power of an atom that was met before, at its own term."""
        _, t, place = key
        env = dict(zip(sorted(self.table.uses[t]), place, strict=True))
        self.value(t, env)
        if key not in self._squares:  # a local function
            return self.one
        root = Bounded({frozenset({key}): self.unit}, {})
        if exponent < 0:
            root = self._reciprocal(root, key)
        out = self.one
        for _ in range(abs(exponent)):
            out = self.mul(out, root)
        return out


def _plus(a: Counts, b: Counts) -> Counts:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _union(polys: Sequence[Poly]) -> Poly:
    out: dict[Class, tuple[Counts, Counts]] = {}
    for poly in polys:
        for key, (lo, hi) in poly.items():
            old_lo, old_hi = out.get(key, (lo, hi))
            out[key] = (tuple(map(min, lo, old_lo)), tuple(map(max, hi, old_hi)))
    return out


def _times(p: Poly, q: Poly) -> Poly:
    products = []
    for ((s, a), (lo, hi)), ((t, b), (low, high)) in itertools.product(p.items(), q.items()):
        products.append({(s | t, _plus(a, b)): (_plus(lo, low), _plus(hi, high))})
    return _union(products)


def _powers(*factors: Mapping[Key, int]) -> Mapping[Key, int]:
    total: dict[Key, int] = {}
    for powers in factors:
        for f, e in powers.items():
            total[f] = total.get(f, 0) + e
    return {f: e for f, e in total.items() if e}


def _negated(powers: Mapping[Key, int]) -> Mapping[Key, int]:
    return {f: -e for f, e in powers.items()}
