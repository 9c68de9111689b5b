"""The kernel of trust: terms, their normal form for every width, and when a proof is accepted.

What `verify prove` calls *proved* rests on this file and on `sympy.polys`, and on nothing else.
An equation is claimed wherever both sides are defined: all dimensions, real values and free
indices without a division by zero, radicands > 0. A normal form is a polynomial over Q in
dimensions, symbols, free elements, roots, inverses, values of functions, and contractions: sums of
products over bound indices, as sum_i x_i^2 w_i or sum_ik u_i A_ik a_k. It is sound for every
dimension: a sum is linear and a factor without its index leaves it; bound indices may be renamed;
sqrt(v)^2 = v, sqrt(s v) = sqrt(s) sqrt(v) for s > 0, p (1/p) = 1; equal arguments, equal values.
Two terms are equal if their difference, inverses cleared, is 0; docs/proofs.md: all else is false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial, reduce
from itertools import pairwise, permutations
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
    if t.op == "lam" or (t.op == "fun" and (a.op == "lam" or len(t.args) > 1)):
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
    name = t.data if t.op == "sym" else t.data[0] if t.op == "at" else None
    if t.op == "diff":
        return mentions(diff(t.args[0], *t.data), symbol)
    return name == symbol or any(mentions(a, symbol) for a in t.args)


# A generator is (kind, label, levels), of kind dim, sym, at, fun, root or inv, or ("con", dims,
# generators), a sum of a product. Levels count binders from the outside, so that a generator means
# the same at every depth; the bound indices of a contraction are -1, -2, ...
Generator: TypeAlias = tuple[Any, ...]


def levels_of(key: Generator) -> set[int]:
    """The levels of the enclosing binders on which a generator depends."""
    if key[0] == "con":
        return {k for atom in key[2] for k in atom[2] if k >= 0}
    return set(key[2])


def renamed(key: Generator, levels: Mapping[int, int]) -> Generator:
    """The generator with its levels renamed."""
    if key[0] == "con":
        return canonical(key[1], [renamed(atom, levels) for atom in key[2]])
    return (key[0], key[1], tuple(levels.get(k, k) for k in key[2]))


def canonical(dims: Sequence[str], atoms: Sequence[Generator]) -> Generator:
    """The least of all ways to number the bound indices -1, -2, ... of a contraction."""

    def numbered(order: tuple[int, ...]) -> Generator:
        names = {-1 - old: -1 - new for new, old in enumerate(order)}
        product = tuple(sorted(renamed(atom, names) for atom in atoms))
        return ("con", tuple(dims[k] for k in order), product)

    return min(map(numbered, permutations(range(len(dims)))))


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
    seen: dict[tuple[Term, tuple[str, ...]], PolyElement] = field(default_factory=dict)
    bodies: list[PolyElement] = field(default_factory=list)  # v of sqrt(v), p of 1/p
    functions: list[tuple[Any, list[PolyElement]]] = field(default_factory=list)

    def gen(self, key: Generator) -> PolyElement:
        """The polynomial that is one generator."""
        return self.ring.gens[self.position.setdefault(key, len(self.position))]

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
        if poly not in self.bodies:
            self.bodies.append(poly)
        levels = {k for key in self.keys(poly) for k in levels_of(key)}
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

    def cleared(self, poly: PolyElement) -> tuple[PolyElement, dict[PolyElement, int]]:
        """(num, powers) with poly = num / prod(p^k): no inverse is left in num."""
        most: dict[Generator, int] = {}
        for _, mono in self.monomials(poly):
            most |= {k: max(e, most.get(k, 0)) for k, e in mono if k[0] == "inv"}
        body, num = {key: self.bodies[key[1]] for key in most}, self.ring(0)
        for c, mono in self.monomials(poly):
            rest = [(self.gen(k), e) for k, e in mono if k[0] != "inv"]
            num += self.product(
                c, [*rest, *((body[k], most[k] - dict(mono).get(k, 0)) for k in most)]
            )
        num, powers = self.reduced(num), dict[PolyElement, int]()
        for key, power in most.items():
            k, p = power, body[key]
            while num and k and not num.rem(p):
                num, k = num.exquo(p), k - 1
            powers |= {p: k} if k else {}
        return num, powers

    def factors(self, poly: PolyElement) -> tuple[Any, dict[PolyElement, int]]:
        """poly = content prod(f^e) over generators, n + 1, denominators met so far, and a rest."""
        rest, powers = poly.monic(), dict[PolyElement, int]()
        met = [self.bodies[key[1]] for key in list(self.position) if key[0] == "inv"]
        for f in [*map(self.gen, self.keys(poly)), *met]:
            while not rest.is_ground and not rest.rem(f):
                rest, powers[f] = rest.exquo(f), powers.get(f, 0) + 1
        return poly.LC, powers if rest.is_ground else powers | {rest: 1}

    def inverse(self, a: PolyElement) -> PolyElement:
        """1/a, where a = roots rest / prod(p^k) and no root is left in rest."""
        (rest, powers), roots = self.cleared(a), self.ring(1)
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
        num, powers = self.cleared(a)
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
        good = {
            k for k in self.keys(poly) if k[0] in ("dim", "root") or k[1] in self.setting.positive
        }
        good |= {
            k
            for k in self.keys(poly)
            if k[0] == "con" and all(k[2].count(a) % 2 == 0 for a in k[2])
        }
        monomials = self.monomials(poly)
        return all(c > 0 and all(e % 2 == 0 or k in good for k, e in m) for c, m in monomials)

    def sum(self, dim: str, body: PolyElement, level: int) -> PolyElement:
        """The sum over the index at ``level``."""
        if any(k[0] in ("root", "inv") and level in levels_of(k) for k in self.keys(body)):
            raise OutsideLanguageError(
                f"a norm inside a sum: a root or quotient varies along {dim}"
            )
        total = self.ring(0)
        for c, mono in self.monomials(body):
            bound = [(key, e) for key, e in mono if level in levels_of(key)]
            free = [(self.gen(key), e) for key, e in mono if level not in levels_of(key)]
            key = self.contraction(dim, bound, level) if bound else ("dim", dim, ())
            total += self.product(c, [(self.gen(key), 1), *free])
        return total

    def contraction(self, dim: str, bound: list[tuple[Generator, int]], level: int) -> Generator:
        """The sum of a product; contractions in it are opened, each power with its own indices."""
        dims, atoms = [dim], list[Generator]()
        for key in (key for key, e in bound for _ in range(e)):
            inner, parts = key[1:] if key[0] == "con" else ((), (key,))
            fresh = {-1 - n: -1 - n - len(dims) for n in range(len(inner))} | {level: -1}
            atoms += [renamed(atom, fresh) for atom in parts]
            dims += inner
        return canonical(dims, atoms)

    def function(self, t: Term, scope: tuple[str, ...]) -> PolyElement:
        """f(arguments) as a generator, the same for equal arguments, at other levels too."""
        inner = [arg.data if arg.op == "lam" else () for arg in t.args]
        bodies = [arg.args[0] if arg.op == "lam" else arg for arg in t.args]
        values = list(map(self.nf, bodies, [scope + dims for dims in inner]))
        used = {k for v in values for key in self.keys(v) for k in levels_of(key)}
        levels = sorted(k for k in used if k < len(scope))
        own = range(len(scope), len(scope) + max(map(len, inner), default=0))
        plain = [self.moved(v, {k: n for n, k in enumerate([*levels, *own])}) for v in values]
        indices = self.levels(t.data[1], scope)
        mark = (t.data[0], tuple(inner), tuple(scope[k] for k in (*indices, *levels)), len(indices))
        for label, (other, arguments) in enumerate(self.functions):
            differences = map(PolyElement.__sub__, plain, arguments)
            if mark == other and not any(self.cleared(d)[0] for d in differences):
                return self.gen(("fun", label, (*levels, *indices)))
        self.functions.append((mark, plain))
        return self.gen(("fun", len(self.functions) - 1, (*levels, *indices)))

    def levels(self, indices: Sequence[int], scope: tuple[str, ...], name: str = "") -> Any:
        """The levels of de Bruijn indices; those of a symbol range over its dimensions."""
        levels = tuple(len(scope) - 1 - k for k in indices)
        dims = tuple(scope[k] for k in levels if 0 <= k < len(scope))
        if len(dims) < len(levels) or (name and self.setting.symbols.get(name) != dims):
            raise OutsideLanguageError(f"indices {list(indices)} of '{name}' do not fit its shape")
        return levels

    def nf(self, t: Term, scope: tuple[str, ...]) -> PolyElement:
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
            "sum": lambda: self.sum(what, self.nf(t.args[0], (*scope, what)), len(scope)),
            "fun": lambda: self.function(t, scope),
            "diff": lambda: self.nf(diff(t.args[0], *what), scope),
        }
        if t.op not in rules or (t.op in ("dim", "sum") and what not in self.setting.dims):
            known = "numbers, + * /, roots, sums over a declared index, functions known by name"
            raise OutsideLanguageError(f"'{t.op}' of {what!r} is outside the language: {known}")
        return self.seen.setdefault((t, scope), rules[t.op]())


@dataclass(frozen=True)
class Claim:
    """*equal*: all steps are equal; *at_least*: and >= 0 by the last one's shape; *differ*: not
    equal at the witness (dims, values, index).
    """

    kind: str
    name: str
    free: tuple[str, ...]
    steps: tuple[tuple[str, Term], ...]
    witness: Any = None


def rejections(claim: Claim, setting: Setting, capacity: int = 16) -> list[tuple[str, str]]:
    """(step, reason) for each step that is not accepted: a proof is accepted if there is none."""
    steps, free = claim.steps, claim.free
    if claim.kind not in ("equal", "at_least", "differ") or len(steps) < 2:
        return [(claim.name, f"'{claim.kind}' with {len(steps)} steps is no claim")]
    if claim.kind == "differ":
        steps, free = tuple((s, at_witness(t, setting, claim.witness)) for s, t in steps), ()
    algebra = Algebra(setting, PolyRing([f"g{k}" for k in range(capacity)], QQ))
    try:
        forms = [algebra.nf(t, free) for _, t in steps]
        equal = [not algebra.cleared(b - a)[0] for a, b in pairwise(forms)]
    except IndexError:
        if len(algebra.position) <= capacity:
            raise  # no lack of generators
        return rejections(claim, setting, 2 * capacity)
    if claim.kind == "differ":
        differ = all(form.is_ground for form in forms) and not equal[0]
        return [] if differ else [(steps[1][0], f"no two different rationals: {forms}")]
    unequal = [name for (name, _), same in zip(steps[1:], equal, strict=True) if not same]
    found = [(name, "the normal forms differ") for name in unequal]
    if claim.kind == "at_least" and not is_square_like(steps[-1][1], setting):
        found.append((steps[-1][0], "no sum of products of squares and of positive quantities"))
    return found


def is_square_like(t: Term, setting: Setting) -> bool:
    """Whether a term is >= 0 by its shape."""
    if t.op in ("num", "sym"):
        return t.data >= 0 if t.op == "num" else t.data in setting.positive
    square = t.op == "mul" and t.args[0] is t.args[1]
    parts = t.op in ("add", "mul", "div", "sum") and all(is_square_like(a, setting) for a in t.args)
    return square or parts or t.op in ("dim", "sqrt")


def at_witness(t: Term, setting: Setting, witness: Any, index: Any = None) -> Term:
    """The term with numbers for its symbols and dimensions, and with its sums written out."""
    index, dims, values = index or tuple(witness["index"]), witness["dims"], witness["values"]
    down = partial(at_witness, setting=setting, witness=witness)
    if t.op == "diff":
        return down(diff(t.args[0], *t.data), index=index)
    if t.op == "sum":
        return reduce(
            add, (down(t.args[0], index=(*index, k)) for k in range(dims[t.data])), num(0)
        )
    if t.op not in ("dim", "sym", "at"):
        return Term.make(t.op, *(down(a, index=index) for a in t.args), data=t.data)
    name, indices = t.data if t.op == "at" else (t.data, ())
    table = dims if t.op == "dim" else values
    value = reduce(lambda x, k: x[index[-1 - k]], indices, table[name])
    if value < setting.dims.get(name, value) or (name in setting.positive and value <= 0):
        raise OutsideLanguageError(f"the witness has {name} = {value}")
    return num(value)
