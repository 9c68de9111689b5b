"""The kernel of trust: terms, their normal form for every width, and when a proof is accepted.

What `verify prove` calls *proved* rests on this file and on `sympy.polys`, and on nothing else. An
equation is claimed where both sides are defined: no divisor is 0, radicands are > 0. Equal are
terms whose difference has the normal form 0, a polynomial over Q in the generators listed below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import permutations
from math import isqrt, prod
from typing import Any, ClassVar, TypeAlias

from sympy.polys.domains import QQ
from sympy.polys.rings import PolyElement, PolyRing


class OutsideLanguageError(ValueError):
    """A statement that the language cannot say; the message names what and why."""


@dataclass(frozen=True, eq=False)
class Term:
    """num (data: Fraction), dim, sym (name), at, fun (name, indices), sum, lam (dimensions), diff
    (symbol, direction), add, mul, div, sqrt. Indices are de Bruijn's: 0 is the innermost binder.
    """

    op: str
    args: tuple[Term, ...] = ()
    data: Any = None
    known: ClassVar[dict[tuple[Any, ...], Term]] = {}

    @staticmethod
    def make(op: str, *args: Term, data: Any = None) -> Term:
        """The term ``op(args)``, made once."""
        return Term.known.setdefault((op, args, data), Term(op, args, data))


def num(value: int | Fraction) -> Term:
    """A rational number."""
    return Term.make("num", data=Fraction(value))


add, mul, div = (partial(Term.make, op) for op in ("add", "mul", "div"))


@cache
def diff(t: Term, symbol: str, direction: str) -> Term:
    """The directional derivative with respect to ``symbol`` along a symbol of the same shape."""
    d, (a, b) = partial(diff, symbol=symbol, direction=direction), (*t.args, t, t)[:2]
    if not mentions(t, symbol):
        return num(0)
    if symbol == "pi" or t.op == "lam" or (t.op == "fun" and (a.op == "lam" or len(t.args) > 1)):
        raise OutsideLanguageError(f"no derivative of '{t.data}' by '{symbol}', in its array")
    rules = {
        "sym": lambda: Term.make("sym", data=direction),
        "at": lambda: Term.make("at", data=(direction, t.data[1])),
        "add": lambda: add(d(a), d(b)),
        "sum": lambda: Term.make("sum", d(a), data=t.data),
        "mul": lambda: add(mul(d(a), b), mul(a, d(b))),
        "div": lambda: add(div(d(a), b), mul(num(-1), div(mul(a, d(b)), mul(b, b)))),
        "sqrt": lambda: div(d(a), mul(num(2), t)),
        "fun": lambda: mul(slope(t), d(a)),
        "diff": lambda: d(diff(a, *t.data)),
    }
    return rules[t.op]()


def slope(value: Term) -> Term:
    """f'(a), for the value f(a) of a function of one number."""
    (a,), (name, indices) = value.args, value.data
    if name == "tanh":
        return add(num(1), mul(num(-1), mul(value, value)))
    if name == "erf":
        height = div(num(2), Term.make("sqrt", Term.make("sym", data="pi")))
        return mul(height, Term.make("fun", mul(num(-1), mul(a, a)), data=("exp", ())))
    return value if name == "exp" else Term.make("fun", a, data=(f"{name}'", indices))


@cache
def mentions(t: Term, symbol: str) -> bool:
    """Whether the symbol occurs in the term."""
    t = diff(t.args[0], *t.data) if t.op == "diff" else t
    name = t.data if t.op == "sym" else t.data[0] if t.op == "at" else None
    return name == symbol or any(mentions(a, symbol) for a in t.args)


# A generator is (kind, label, levels), of kind dim, sym, at, fun, root, inv or con: a contraction,
# labelled (dimensions, generators). Levels count binders from the outside; bound ones: -1, -2, ...
Generator: TypeAlias = tuple[Any, Any, tuple[int, ...]]


def renamed(key: Generator, levels: Mapping[int, int]) -> Generator:
    """The generator with its levels renamed."""
    if key[0] == "con":
        return canonical(key[1][0], [renamed(atom, levels) for atom in key[1][1]])
    return (key[0], key[1], tuple(levels.get(k, k) for k in key[2]))


def canonical(dims: Sequence[str], atoms: Sequence[Generator]) -> Generator:
    """The least of all ways to number the bound indices -1, -2, ... of a contraction."""
    labels = list[Any]()
    for order in permutations(range(len(dims))):
        names = {-1 - old: -1 - new for new, old in enumerate(order)}
        product = tuple(sorted(renamed(atom, names) for atom in atoms))
        labels.append((tuple(dims[k] for k in order), product))
    return ("con", min(labels), tuple(sorted({k for atom in atoms for k in atom[2] if k >= 0})))


@dataclass(frozen=True)
class Setting:
    """What a statement is about: least dimensions, the shape of each symbol, positive symbols."""

    dims: Mapping[str, int]
    symbols: Mapping[str, tuple[str, ...]]
    positive: frozenset[str] = frozenset()


@dataclass
class Algebra:
    """The normal forms of one claim, as polynomials over a growing list of generators."""

    setting: Setting
    ring: PolyRing
    position: dict[Generator, int] = field(default_factory=dict)
    seen: dict[tuple[Term, tuple[Any, ...]], PolyElement] = field(default_factory=dict)
    bodies: list[PolyElement] = field(default_factory=list)  # v of sqrt(v), p of 1/p
    functions: list[tuple[Any, list[PolyElement]]] = field(default_factory=list)

    def gen(self, key: Generator) -> PolyElement:
        """The polynomial that is one generator."""
        place = self.position.setdefault(key, len(self.position))
        if place == self.ring.ngens:
            raise OutsideLanguageError(f"more than {place} generators: give rejections() more")
        return self.ring.gens[place]

    def monomials(self, poly: PolyElement) -> Iterator[tuple[Any, list[tuple[Generator, int]]]]:
        """The coefficient and the (generator, exponent) pairs of each monomial."""
        keys = list(self.position)
        for mono, c in list(poly.items()):
            yield c, [(keys[k], e) for k, e in enumerate(mono) if e]

    def keys(self, poly: PolyElement) -> set[Generator]:
        """The generators that occur."""
        return {key for _, mono in self.monomials(poly) for key, _ in mono}

    def product(self, c: Any, powers: Iterable[tuple[PolyElement, int]]) -> PolyElement:
        """c times a product of powers."""
        return prod((factor**e for factor, e in powers), start=self.ring(c))

    def moved(self, poly: PolyElement, levels: Mapping[int, int]) -> PolyElement:
        """The polynomial with its levels renamed."""
        image = dict[Generator, PolyElement]()
        for key in self.keys(poly):
            named = key[0] in ("root", "inv") and self.moved(self.bodies[key[1]], levels)
            image[key] = self.named(key[0], named) if named else self.gen(renamed(key, levels))
        parts = (self.product(c, ((image[k], e) for k, e in m)) for c, m in self.monomials(poly))
        return sum(parts, self.ring(0))

    def named(self, kind: str, poly: PolyElement) -> PolyElement:
        """The generator that stands for the root or the inverse of ``poly``."""
        self.bodies += [poly] if poly not in self.bodies else []
        levels = {k for key in self.keys(poly) for k in key[2]}
        return self.gen((kind, self.bodies.index(poly), tuple(sorted(levels))))

    def reduced(self, poly: PolyElement) -> PolyElement:
        """sqrt(v)^2 -> v, so that a root occurs at most once in a monomial."""
        total = self.ring(0)
        for c, mono in self.monomials(poly):
            twice = [(self.bodies[k[1]], e // 2) for k, e in mono if k[0] == "root" and e > 1]
            once = [(self.gen(k), e % 2 if k[0] == "root" else e) for k, e in mono]
            term = self.product(c, [*once, *twice])
            total += self.reduced(term) if twice else term
        return total

    def cleared(self, poly: PolyElement, *, lowest: bool = False) -> tuple[PolyElement, Any]:
        """(num, powers) with poly = num / prod(p^k): no inverse is left in num."""
        powers = [(k, e) for _, mono in self.monomials(poly) for k, e in mono if k[0] == "inv"]
        most = dict(sorted(powers, key=lambda power: power[1]))  # the largest is the last
        body, num = {key: self.bodies[key[1]] for key in most}, self.ring(0)
        for c, mono in self.monomials(poly):
            rest = [(self.gen(k), e) for k, e in mono if k[0] != "inv"]
            over = [(body[k], most[k] - dict(mono).get(k, 0)) for k in most]
            num += self.product(c, [*rest, *over])
        num, left = self.reduced(num), dict[PolyElement, int]()
        for key, power in most.items():
            k, p = power, body[key]
            while lowest and num and k and not num.rem(p):
                num, k = num.exquo(p), k - 1
            left |= {p: k} if k else {}
        return num, left

    def factors(self, poly: PolyElement) -> tuple[Any, dict[PolyElement, int]]:
        """poly = content prod(f^e) over generators, denominators met so far, and a rest."""
        rest, powers = poly.monic(), dict[PolyElement, int]()
        met = [self.bodies[key[1]] for key in list(self.position) if key[0] == "inv"]
        for f in [*map(self.gen, self.keys(poly)), *met]:
            while not rest.is_ground and not rest.rem(f):
                rest, powers[f] = rest.exquo(f), powers.get(f, 0) + 1
        return (poly.LC * rest.LC, powers) if rest.is_ground else (poly.LC, powers | {rest: 1})

    def inverse(self, a: PolyElement) -> PolyElement:
        """1/a, where a = roots rest / prod(p^k) and no root is left in rest."""
        (rest, powers), roots = self.cleared(a, lowest=True), self.ring(1)
        for root in [self.gen(key) for key in self.keys(rest) if key[0] == "root"]:
            if not rest.rem(root):
                rest, roots = rest.exquo(root), roots * root
        if not rest or any(key[0] == "root" for key in self.keys(rest)):
            raise OutsideLanguageError("a division by zero, or by a sum that contains a root")
        content, factors = self.factors(rest * self.reduced(roots**2))
        inverses = ((self.named("inv", f), e) for f, e in factors.items())
        return self.product(1 / content, [(roots, 1), *powers.items(), *inverses])

    def root(self, a: PolyElement) -> PolyElement:
        """sqrt(a): roots of the factors known to be positive, and one root of all the others."""
        num, powers = self.cleared(a, lowest=True)
        if not num or not all(map(self.is_positive, powers)):
            raise OutsideLanguageError("a root of zero, or of a quotient by what may be negative")
        content, factors = self.factors(self.product(num, ((p, k % 2) for p, k in powers.items())))
        result = QQ(isqrt(abs(content.numerator)), isqrt(content.denominator))
        result, rest = (result, self.ring(1)) if result**2 == content else (1, self.ring(content))
        for f, e in factors.items():
            if self.is_positive(f):
                result *= f ** (e // 2) * (self.named("root", f) if e % 2 else 1)
            else:
                rest *= f**e
        inverses = [(self.named("inv", p), (k + 1) // 2) for p, k in powers.items()]
        return self.product(result if rest == 1 else result * self.named("root", rest), inverses)

    def is_positive(self, poly: PolyElement) -> bool:
        """Not negative by its shape, hence positive: a factor of a denominator is not zero."""
        good: set[Generator] = {("sym", name, ()) for name in self.setting.positive}
        for key in self.keys(poly):
            squares = key[0] == "con" and all(key[1][1].count(a) % 2 == 0 for a in key[1][1])
            good |= {key} if squares or key[0] in ("dim", "root") else set()
        even = (all(not e % 2 or k in good for k, e in m) for _, m in self.monomials(poly))
        return all(even) and min(poly.coeffs()) > 0

    def sum(self, dim: str, term: Term, scope: tuple[Any, ...]) -> PolyElement:
        """The sum of a term over one more index, at the level ``len(scope)``."""
        body, level = self.nf(term, (*scope, dim)), len(scope)
        if any(k[0] in ("root", "inv") and level in k[2] for k in self.keys(body)):
            raise OutsideLanguageError(f"a norm inside a sum: a root or quotient along {dim}")
        total = self.ring(0)
        for c, mono in self.monomials(body):
            bound = [(key, e) for key, e in mono if level in key[2]]
            free = [(self.gen(key), e) for key, e in mono if level not in key[2]]
            key = self.contraction(dim, bound, level) if bound else ("dim", dim, ())
            total += self.product(c, [(self.gen(key), 1), *free])
        return total

    def contraction(self, dim: str, bound: list[tuple[Generator, int]], level: int) -> Generator:
        """The sum of a product; contractions in it are opened, each power with its own indices."""
        dims, atoms = [dim], list[Generator]()
        for key in (key for key, e in bound for _ in range(e)):
            inner, parts = key[1] if key[0] == "con" else ((), (key,))
            fresh = {-1 - n: -1 - n - len(dims) for n in range(len(inner))} | {level: -1}
            atoms += [renamed(atom, fresh) for atom in parts]
            dims += inner
        return canonical(dims, atoms)

    def function(self, t: Term, scope: tuple[Any, ...]) -> PolyElement:
        """f(arguments) as a generator, the same for equal arguments, at other levels too."""
        arrays = [a if a.op == "lam" else Term.make("lam", a, data=()) for a in t.args]
        values = [self.nf(a.args[0], scope + a.data) for a in arrays]
        levels = sorted({k for v in values for g in self.keys(v) for k in g[2] if k < len(scope)})
        own = range(len(scope), len(scope) + max((len(a.data) for a in arrays), default=0))
        plain = [self.moved(v, {k: n for n, k in enumerate([*levels, *own])}) for v in values]
        indices = self.levels(t.data[1], scope)
        shape = [[a.data for a in arrays], len(indices), [scope[k] for k in (*indices, *levels)]]
        for label, (other, arguments) in enumerate(self.functions):
            gaps = map(PolyElement.__sub__, plain, arguments)
            if [t.data[0], shape] == other and not any(self.cleared(gap)[0] for gap in gaps):
                return self.gen(("fun", label, (*levels, *indices)))
        self.functions.append(([t.data[0], shape], plain))
        return self.gen(("fun", len(self.functions) - 1, (*levels, *indices)))

    def levels(self, indices: Sequence[int], scope: tuple[Any, ...], name: str = "") -> Any:
        """The levels of de Bruijn indices; those of a symbol range over its dimensions."""
        levels = tuple(len(scope) - 1 - k for k in indices)
        dims = tuple(scope[k] for k in levels if 0 <= k < len(scope))
        if len(dims) < len(levels) or (name and self.setting.symbols.get(name) != dims):
            raise OutsideLanguageError(f"indices {list(indices)} of '{name}' do not fit its shape")
        return levels

    def nf(self, t: Term, scope: tuple[Any, ...]) -> PolyElement:
        """The normal form of a term under binders over the dimensions ``scope``."""
        if (t, scope) in self.seen:
            return self.seen[t, scope]
        at, what = [partial(self.nf, a, scope) for a in t.args], t.data
        rules = {
            "num": lambda: self.ring(QQ(what.numerator, what.denominator)),
            "dim": lambda: self.gen(("dim", what, ())),
            "sym": lambda: self.gen(("sym", what, self.levels((), scope, what))),
            "at": lambda: self.gen(("at", what[0], self.levels(what[1], scope, what[0]))),
            "add": lambda: at[0]() + at[1](),
            "mul": lambda: self.reduced(at[0]() * at[1]()),
            "div": lambda: self.reduced(at[0]() * self.inverse(at[1]())),
            "sqrt": lambda: self.root(at[0]()),
            "sum": lambda: self.sum(what, t.args[0], scope),
            "fun": lambda: self.function(t, scope),
            "diff": lambda: self.nf(diff(t.args[0], *what), scope),
        }
        if t.op not in rules or (t.op in ("dim", "sum") and what not in self.setting.dims):
            raise OutsideLanguageError(f"'{t.op}' of {what!r} is outside the language")
        return self.seen.setdefault((t, scope), rules[t.op]())


@dataclass
class Case(Algebra):
    """The rational numbers at a witness: a scope consists of (dimension, value of the index)."""

    witness: Any = None

    def scope(self, free: Sequence[str]) -> tuple[Any, ...]:
        """The free indices at the witness; raises OutsideLanguageError if there is no such case."""
        dims, index = self.witness["dims"], self.witness["index"]
        inside = [0 <= k < dims.get(n, 0) for n, k in zip(free, index, strict=True)]
        inside += [type(dims.get(n)) is int and dims[n] >= k for n, k in self.setting.dims.items()]
        if not all(inside):
            raise OutsideLanguageError(f"the statement has no case {dict(dims)} with index {index}")
        return tuple(zip(free, index, strict=True))

    def gen(self, key: Generator) -> PolyElement:
        """A dimension, a symbol or an element, as a number; nothing else has to have a value."""
        kind, name, index = key
        if kind not in ("dim", "sym", "at"):
            raise OutsideLanguageError(f"'{kind}' without a rational value at the witness")
        table = self.witness["dims" if kind == "dim" else "values"]
        value = Fraction(reduce(lambda value, k: value[k], index, table[name]))
        if name == "pi" or (name in self.setting.positive and value <= 0):
            raise OutsideLanguageError(f"the witness has {name} = {value}")
        return self.ring(QQ(value.numerator, value.denominator))

    def levels(self, indices: Sequence[int], scope: tuple[Any, ...], name: str = "") -> Any:
        """The values of the indices."""
        if not all(isinstance(bound, tuple) for bound in scope):
            raise OutsideLanguageError("an array under a function has no value at the witness")
        return tuple(scope[k][1] for k in super().levels(indices, tuple(d for d, _ in scope), name))

    def sum(self, dim: str, term: Term, scope: tuple[Any, ...]) -> PolyElement:
        """The sum, written out."""
        parts = (self.nf(term, (*scope, (dim, k))) for k in range(self.witness["dims"][dim]))
        return sum(parts, self.ring(0))


@dataclass(frozen=True)
class Claim:
    """*equal*: each step equals the first; *at_least*: that is >= 0; *differ*: at the witness."""

    kind: str
    name: str
    free: tuple[str, ...]
    steps: tuple[tuple[str, Term], ...]
    witness: Any = None


def rejections(claim: Claim, setting: Setting, capacity: int = 64) -> list[tuple[str, str]]:
    """(step, reason) for each step that is not accepted: a proof is accepted if there is none."""
    steps, least = claim.steps, min(setting.dims.values(), default=1)
    if claim.kind not in ("equal", "at_least", "differ") or len(steps) < 2 or least < 1:
        return [(claim.name, f"'{claim.kind}' with {len(steps)} steps is no claim")]
    ring, scope = PolyRing([f"g{k}" for k in range(capacity)], QQ), claim.free
    algebra = Algebra(setting, ring)
    if claim.kind == "differ":
        algebra = case = Case(setting, ring, witness=claim.witness)
        scope = case.scope(claim.free)
    forms = [algebra.nf(t, scope) for _, t in steps]
    unequal = [steps[k][0] for k, f in enumerate(forms) if algebra.cleared(f - forms[0])[0]]
    if claim.kind == "differ":
        return [] if unequal else [(steps[1][0], f"both sides are {forms[0]}")]
    found = [(step, "its normal form is not that of the first step") for step in unequal]
    if claim.kind == "at_least":
        (known, _), (new, last) = [(needed(t, algebra, scope), t) for _, t in (steps[0], steps[-1])]
        doubts = [t for form, t in new.items() if form not in known and sign(t, setting) < 2]
        if doubts or not sign(last, setting):
            found.append((steps[-1][0], "no sum of squares, or undefined where the first is not"))
    return found


def needed(term: Term, algebra: Algebra, scope: tuple[str, ...]) -> dict[PolyElement, Term]:
    """The divisors (not 0) and radicands (> 0) of a term that is defined, by normal form."""
    algebra.seen.clear()
    algebra.nf(term, scope)
    met = [(t.args[-1], inner) for t, inner in algebra.seen if t.op in ("div", "sqrt")]
    return {algebra.seen[key]: key[0] for key in met}


def sign(t: Term, setting: Setting) -> int:
    """2 if a term is > 0 by its shape, wherever it is defined; 1 if it is >= 0; else 0."""
    parts = [sign(a, setting) for a in t.args]
    if t.op in ("num", "sym"):
        return (t.data > 0) + (t.data >= 0) if t.op == "num" else 2 * (t.data in setting.positive)
    joined = max if t.op == "add" and min(parts) else min
    whole = joined(parts) if t.op in ("add", "mul", "div", "sum") else 0
    return 2 if t.op in ("dim", "sqrt") else max(whole, t.op == "mul" and t.args[0] is t.args[1])
