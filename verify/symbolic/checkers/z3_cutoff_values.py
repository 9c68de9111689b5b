"""Terms at concrete dimensions as quotients of z3 polynomials, with roots as axiomatised variables.

A quotient keeps its denominator as powers of factors (roots, symbols, polynomials), so that sums
with a common denominator stay small. z3's ``simplify`` with ``som`` writes a polynomial as a sum
of monomials, which is a normal form: a polynomial is zero iff it becomes the numeral 0.

A root of N/D is a variable s > 0 with s^2 D = N. Three rewritings, each an equivalence under these
axioms, make most identities polynomial:

- radicands N/D = q m^2 N'/D', with a rational q > 0 and m a positive symbol, its inverse or 1,
  share a variable: the root is sqrt(q) m s'; and of N/D = q D'/N', sqrt(q)/s';
- a scalar e that occurs in N as c e + R, c a number, is replaced by (s^2 D - R)/c: as e runs
  through the reals with N/D > 0, s runs through the positive ones, and conversely;
- other roots of polynomials, and of primes, are reduced by s^2 = N.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, TypeAlias

from verify.symbolic.checkers.z3_cutoff_polynomials import (
    Call,
    Expr,
    Quotient,
    Root,
    UndefinedError,
    UnknownValueError,
    as_fraction,
    expanded,
    monomials,
)
from verify.symbolic.checkers.z3_cutoff_terms import Table, expect

Env: TypeAlias = tuple[tuple[str, int], ...]  # (dimension, value) of each binder, outermost first


class Values:
    """The values of a table's terms at concrete dimensions.

    ``given`` are rational values of symbols; all others are real variables.
    """

    EXACT = frozenset({"relu", "abs", "sign"})

    def __init__(
        self, table: Table, sizes: Mapping[str, int], given: Mapping[str, Any] | None = None
    ) -> None:
        self.table, self.sizes, self.given = table, sizes, given
        self.variables: dict[tuple[Any, ...], Expr] = {}
        self.factors: dict[int, Expr] = {}  # keeps z3's terms alive, and so their ids
        self.roots: list[Root] = []
        self.primes: dict[int, Root] = {}
        self.calls: dict[tuple[Any, ...], list[Call]] = {}
        self.replaced: list[tuple[Expr, Expr]] = []
        self.seen: dict[tuple[int, Env], Quotient] = {}
        self.points: list[tuple[Expr, tuple[Expr, Expr]]] = []

    # --- arithmetic ------------------------------------------------------------------------------

    def rational(self, value: Fraction | int) -> Quotient:
        import z3

        return Quotient(z3.RealVal(str(Fraction(value))), {})

    def factor(self, e: Expr) -> int:
        self.factors[e.get_id()] = e
        return int(e.get_id())

    def power(self, powers: Mapping[int, int]) -> Expr:
        """The product of factors with powers."""
        result = self.rational(1).num
        for f, e in powers.items():
            for _ in range(e):
                result = result * self.factors[f]
        return result

    def add(self, a: Quotient, b: Quotient) -> Quotient:
        if a.den == b.den:
            return Quotient(a.num + b.num, a.den)
        den = {f: max(a.den.get(f, 0), b.den.get(f, 0)) for f in {**a.den, **b.den}}
        left, right = ({f: e - q.den.get(f, 0) for f, e in den.items()} for q in (a, b))
        return Quotient(a.num * self.power(left) + b.num * self.power(right), den)

    def mul(self, a: Quotient, b: Quotient) -> Quotient:
        den = {f: a.den.get(f, 0) + b.den.get(f, 0) for f in {**a.den, **b.den}}
        return Quotient(a.num * b.num, den)

    def minus(self, a: Quotient, b: Quotient) -> Quotient:
        return self.add(a, Quotient(-b.num, b.den))

    def inverse(self, a: Quotient) -> Quotient:
        num = self.reduced(a.num)
        if as_fraction(num) == 0:
            raise UndefinedError("a denominator is 0")
        top, den = self.power(a.den), dict[int, int]()
        terms = monomials(num)
        for f in terms[0][1] if len(terms) == 1 else [num]:
            q = as_fraction(f)
            if q is None:
                den[self.factor(f)] = den.get(self.factor(f), 0) + 1
            else:
                top = top * self.rational(1 / q).num
        return Quotient(top, den)

    def reduced(self, e: Expr) -> Expr:
        """The normal form under the rewritings."""
        import z3

        for var, value in self.replaced:
            e = z3.substitute(e, (var, value))
        e = expanded(e)
        for root in [*reversed(self.roots), *self.primes.values()]:
            if root.reduces:
                e = self.with_squares_reduced(e, root)
        return e

    def with_squares_reduced(self, e: Expr, root: Root) -> Expr:
        import z3

        changed, terms = False, []
        for monomial, factors in monomials(e):
            count = sum(1 for f in factors if f.eq(root.var))
            if count < 2:
                terms.append(monomial)
                continue
            changed = True
            kept = [f for f in factors if not f.eq(root.var)]
            kept += [root.radicand.num] * (count // 2) + [root.var] * (count % 2)
            terms.append(z3.Product(*kept) if len(kept) > 1 else kept[0])
        return self.with_squares_reduced(expanded(z3.Sum(*terms)), root) if changed else e

    def difference(self, a: Quotient, b: Quotient) -> Expr:
        """The numerator of a - b in normal form: the numeral 0 iff they are shown equal."""
        return self.reduced(self.minus(a, b).num)

    def same(self, a: Quotient, b: Quotient) -> bool:
        return as_fraction(self.difference(a, b)) == 0

    # --- terms -----------------------------------------------------------------------------------

    def value(self, t: int, env: Env) -> Quotient:
        """The value of a term under binders with values."""
        depth = self.table.depth(t)
        expect(depth < len(env), f"an index of '{self.table.entries[t][0]}' is unbound")
        key = (t, env[len(env) - depth - 1 :] if depth >= 0 else ())
        if key not in self.seen:
            self.seen[key] = self.new_value(t, env)
        return self.seen[key]

    def new_value(self, t: int, env: Env) -> Quotient:
        match self.table.entries[t]:
            case ("num", q):
                return self.rational(q)
            case ("dim", n):
                return self.rational(self.sizes[n])
            case ("at", name, ks):
                return self.symbol(name, tuple(env[-1 - k] for k in ks))
            case ("add", a, b):
                return self.add(self.value(a, env), self.value(b, env))
            case ("mul", a, b):
                return self.mul(self.value(a, env), self.value(b, env))
            case ("div", a, b):
                return self.mul(self.value(a, env), self.inverse(self.value(b, env)))
            case ("sqrt", a):
                return self.sqrt(self.value(a, env))
            case ("sum", n, body):
                total = self.rational(0)
                for i in range(self.sizes[n]):
                    total = self.add(total, self.value(body, (*env, (n, i))))
                return total
            case ("fun", name, ks, arguments):
                element = tuple(env[-1 - k][1] for k in ks)
                values = [v for a in arguments for v in self.argument(a, env)]
                shape = tuple(
                    self.table.entries[a][1] if self.is_array(a) else () for a in arguments
                )
                return self.call((name, element, shape), values)
        raise AssertionError(f"term {t} has no value of its own")

    def is_array(self, t: int) -> bool:
        return bool(self.table.entries[t][0] == "lam")

    def argument(self, t: int, env: Env) -> list[Quotient]:
        """The elements of an argument."""
        if not self.is_array(t):
            return [self.value(t, env)]
        _, dims, body = self.table.entries[t]
        ranges = [[(n, i) for i in range(self.sizes[n])] for n in dims]
        return [self.value(body, (*env, *inner)) for inner in product(*ranges)]

    def symbol(self, name: str, place: Env) -> Quotient:
        dims, index = tuple(n for n, _ in place), tuple(i for _, i in place)
        declared = self.table.symbols[name]
        expect(dims == declared, f"'{name}' is indexed by {dims}, expected {declared}")
        if self.given is not None:
            value = self.given[name]
            for i in index:
                value = value[i]
            return self.rational(Fraction(value))
        return Quotient(self.variable(name, *index), {})

    def variable(self, name: str, *index: int) -> Expr:
        key = (name, *index)
        if key not in self.variables:
            self.variables[key] = self.fresh(f"{name}{list(index)}" if index else name)
        return self.variables[key]

    def call(self, key: tuple[Any, ...], arguments: list[Quotient]) -> Quotient:
        """f(arguments): a variable, the same for arguments that are shown equal."""
        normal = tuple(Quotient(self.reduced(a.num), a.den) for a in arguments)
        if self.given is not None:
            return self.rational(self.exact(key, normal))
        name, element, _ = key
        earlier = self.calls.setdefault(key, [])
        for other in earlier:
            if len(other.arguments) == len(normal) and all(map(self.same, other.arguments, normal)):
                return Quotient(other.var, {})
        earlier.append(Call(self.fresh(f"{name}{list(element)}!{len(self.points)}"), normal))
        return Quotient(earlier[-1].var, {})

    def exact(self, key: tuple[Any, ...], arguments: Sequence[Quotient]) -> Fraction:
        name, element, _ = key
        values = [as_fraction(a.num) for a in arguments]
        place = element[0] if len(element) == 1 else 0
        if name not in self.EXACT or len(element) > 1 or place >= len(values):
            raise UnknownValueError(f"'{name}' has no exact values")
        v = values[place]
        if v is None or arguments[place].den:
            raise UnknownValueError(f"the argument of '{name}' is not rational")
        return {"relu": max(v, Fraction(0)), "abs": abs(v), "sign": Fraction((v > 0) - (v < 0))}[
            name
        ]

    # --- roots -----------------------------------------------------------------------------------

    def sqrt(self, v: Quotient) -> Quotient:
        num = self.reduced(v.num)
        q = as_fraction(num)
        if q is not None and q <= 0 and not v.den:
            raise UndefinedError("a radicand is not > 0")
        if q is not None and not v.den:
            return self.sqrt_of_number(q)
        v = Quotient(num, v.den)
        return self.by_older_roots(v) or self.new_root(v)

    def sqrt_of_number(self, q: Fraction) -> Quotient:
        """sqrt(a/b) = sqrt(ab)/b, with one variable for each prime of odd power."""
        rest, whole = q.numerator * q.denominator, Fraction(1, q.denominator)
        if math.isqrt(rest) ** 2 == rest:
            return self.rational(whole * math.isqrt(rest))
        result, prime = self.rational(1), 2
        while rest > 1:
            if prime > 1000 or prime * prime > rest:
                prime = rest  # a prime, or a number that is treated as one
            power = 0
            while rest % prime == 0:
                rest, power = rest // prime, power + 1
            whole *= prime ** (power // 2)
            if power % 2:
                result = self.mul(result, Quotient(self.sqrt_of_prime(prime), {}))
            prime += 1
        return self.mul(self.rational(whole), result)

    def sqrt_of_prime(self, prime: int) -> Expr:
        if prime not in self.primes:
            var = self.fresh(f"sqrt({prime})")
            self.primes[prime] = Root(var, self.rational(prime), reduces=True)
        return self.primes[prime].var

    def by_older_roots(self, v: Quotient) -> Quotient | None:
        """sqrt(q) m s' or sqrt(q) m / s' where v = q m^2 v'^(+-1)."""
        one = Root(self.rational(1).num, self.rational(1), reduces=False)
        for root in [one, *self.roots]:
            old = Quotient(self.reduced(root.radicand.num), root.radicand.den)
            pairs = [(old, Quotient(root.var, {}))]
            if root is not one:
                pairs.append((self.inverse(old), self.inverse(pairs[0][1])))
            for radicand, var in pairs:
                found = self.multiple(v, radicand)
                if found is not None:
                    return self.mul(found, var)
        return None

    def multiple(self, v: Quotient, old: Quotient) -> Quotient | None:
        """sqrt(q) m where v = q m^2 old."""
        tops, bottoms = self.samples(v), self.samples(old)
        if 0 in tops or 0 in bottoms:
            return None
        scales = [self.rational(1)]
        for name in self.table.positive if self.given is None else ():
            scale = Quotient(self.variable(name), {})
            scales += [scale, self.inverse(scale)]
        for m in scales:
            triples = zip(tops, bottoms, self.samples(m), strict=True)
            q, other = (top / bottom / scale**2 for top, bottom, scale in triples)
            if q != other or q <= 0:
                continue
            if self.same(v, self.mul(self.rational(q), self.mul(self.mul(m, m), old))):
                return self.mul(self.sqrt_of_number(q), m)
        return None

    def samples(self, v: Quotient) -> tuple[Fraction, Fraction]:
        """The values at two points, where every variable and root is some number of its own."""
        import z3

        bottom, result = self.power(v.den), []
        for place in (0, 1):
            point = [(var, values[place]) for var, values in self.points]
            values = [as_fraction(z3.simplify(z3.substitute(e, *point))) for e in (v.num, bottom)]
            result.append(values[0] / values[1] if values[0] and values[1] else Fraction(0))
        return result[0], result[1]

    def fresh(self, name: str) -> Expr:
        """A real variable, with its values at the two points."""
        import z3

        var, place = z3.Real(name), len(self.points)
        self.points.append((var, (z3.RealVal(2 * place + 3), z3.RealVal(place * place + 5))))
        return var

    def new_root(self, v: Quotient) -> Quotient:
        s = self.fresh(f"root!{len(self.roots)}")
        eliminated = self.given is None and self.eliminate(s, v)
        self.roots.append(Root(s, v, reduces=not eliminated and not v.den))
        return Quotient(s, {})

    def eliminate(self, s: Expr, v: Quotient) -> bool:
        """Replace a scalar e, in a radicand (c e + R)/D, by (s^2 D - R)/c."""
        import z3

        names = [*self.table.positive, *(n for n, dims in self.table.symbols.items() if not dims)]
        bottom = self.power(v.den)
        for name in dict.fromkeys(names):
            e = self.variable(name)
            rest = expanded(z3.substitute(v.num, (e, self.rational(0).num)))
            slope = expanded(z3.substitute(v.num, (e, self.rational(1).num)) - rest)
            c = as_fraction(slope)
            linear = c and as_fraction(expanded(v.num - slope * e - rest)) == 0
            if c and linear and z3.substitute(bottom, (e, s)).eq(bottom):
                value = (s * s * bottom - rest) * self.rational(1 / c).num
                self.replaced.append((e, expanded(value)))
                return True
        return False

    # --- axioms ----------------------------------------------------------------------------------

    def axioms(self) -> list[Any]:
        """What holds wherever everything is defined: of roots, denominators, signs and calls."""
        facts = [
            self.variables[(name,)] > 0 for name in self.table.positive if (name,) in self.variables
        ]
        for root in [*self.roots, *self.primes.values()]:
            bottom = self.power(root.radicand.den)
            facts += [root.var > 0, root.var * root.var * bottom == root.radicand.num]
        return [*facts, *(f != 0 for f in self.factors.values()), *self.congruences()]

    def congruences(self) -> list[Any]:
        """Equal arguments, equal values."""
        import z3

        facts = []
        for calls in self.calls.values():
            for i, a in enumerate(calls):
                for b in calls[:i]:
                    if len(a.arguments) == len(b.arguments):
                        pairs = zip(a.arguments, b.arguments, strict=True)
                        equal = [self.minus(x, y).num == 0 for x, y in pairs]
                        facts.append(z3.Implies(z3.And(equal), a.var == b.var))
        return facts
