"""Random statements: tempting equations, true and false ones, that the kernel has to tell apart."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.symbolic.exact_terms import Point, constant
from verify.symbolic.trusted import Setting, Term, num

Scope: TypeAlias = tuple[str, ...]
Pair: TypeAlias = tuple[Term, Term]

SETTING = Setting(
    {"n": 1, "m": 1},
    {
        **dict.fromkeys(("a", "b", "da", "p", "q"), ()),
        **dict.fromkeys(("x", "y", "dx"), ("n",)),
        "z": ("m",),
        **dict.fromkeys(("A", "B"), ("n", "n")),
        "C": ("n", "m"),
    },
    frozenset({"p", "q"}),
)
SCOPES: tuple[Scope, ...] = ((), ("n",), ("n", "n"), ("m", "n"))
make = Term.make


def sym(name: str) -> Term:
    """A symbol without indices."""
    return make("sym", data=name)


def at(name: str, *indices: int) -> Term:
    """An element of an array, by de Bruijn indices."""
    return make("at", data=(name, indices))


def dim(name: str) -> Term:
    """A dimension as a number."""
    return make("dim", data=name)


def add(a: Term, b: Term) -> Term:
    """a + b."""
    return make("add", a, b)


def sub(a: Term, b: Term) -> Term:
    """a - b."""
    return add(a, mul(num(-1), b))


def mul(a: Term, b: Term) -> Term:
    """a b."""
    return make("mul", a, b)


def div(a: Term, b: Term) -> Term:
    """a / b."""
    return make("div", a, b)


def sqrt(a: Term) -> Term:
    """sqrt(a)."""
    return make("sqrt", a)


def total(dimension: str, body: Term) -> Term:
    """The sum over a dimension; the body's index 0 is bound."""
    return make("sum", body, data=dimension)


def array(dims: Scope, body: Term) -> Term:
    """An array as an argument."""
    return make("lam", body, data=dims)


def fun(name: str, *args: Term, index: tuple[int, ...] = ()) -> Term:
    """f(args), or the element of it at an index."""
    return make("fun", *args, data=(name, index))


def diff(a: Term, symbol: str = "a", direction: str = "da") -> Term:
    """The directional derivative."""
    return make("diff", a, data=(symbol, direction))


def raised(t: Term, by: int = 1, bound: int = 0) -> Term:
    """The term below ``by`` more binders: free indices are shifted."""

    def shift(k: int) -> int:
        return k + by if k >= bound else k

    inner = bound + (len(t.data) if t.op == "lam" else t.op == "sum")
    data = (t.data[0], tuple(map(shift, t.data[1]))) if t.op in ("at", "fun") else t.data
    return make(t.op, *(raised(a, by, inner) for a in t.args), data=data)


def renamed(t: Term, new: Callable[[int], int], bound: int = 0) -> Term:
    """The term with its free indices renamed."""
    inner = bound + (len(t.data) if t.op == "lam" else t.op == "sum")
    data = t.data
    if t.op in ("at", "fun"):
        indices = (new(k - bound) + bound if k >= bound else k for k in t.data[1])
        data = (t.data[0], tuple(indices))
    return make(t.op, *(renamed(a, new, inner) for a in t.args), data=data)


# --- terms ---------------------------------------------------------------------------------------


def elements(scope: Scope) -> list[Term]:
    """All elements of symbols that can be named in a scope, those with most indices first."""
    where: dict[str, list[int]] = {}
    for k, d in enumerate(reversed(scope)):
        where.setdefault(d, []).append(k)
    found = []
    for name, shape in SETTING.symbols.items():
        choices: list[tuple[int, ...]] = [()]
        for d in shape:
            choices = [(*c, k) for c in choices for k in where.get(d, [])]
        found += [at(name, *c) if shape else sym(name) for c in choices]
    return found[::-1]


@st.composite
def terms(draw: DrawFn, scope: Scope, depth: int = 2, ops: str = "+*/rsf") -> Term:
    """A term of the operations ``ops``: + * /, (r)oot, (s)um, (f)unction, (d)erivative."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        numbers = st.sampled_from([num(0), num(1), num(-2), num(Fraction(1, 2)), num(4)])
        dims = st.sampled_from([dim("n"), dim("m")])
        return draw(st.sampled_from(elements(scope)) | numbers | dims)
    op = draw(st.sampled_from(ops))
    inner = draw(st.sampled_from(("n", "m"))) if op == "s" else ""
    below = (*scope, inner) if inner else scope
    # the kernel refuses roots and quotients that vary within a sum
    kept = ops.replace("r", "").replace("/", "") if op == "s" else ops
    a = draw(terms(below, depth - 1, kept))
    if op == "s":
        return total(inner, a)
    if op == "r":
        square = draw(st.sampled_from(["square", "sum of squares", "any"]))
        b = draw(terms(scope, depth - 1, ops))
        return sqrt({"square": mul(a, a), "any": a}.get(square, add(mul(a, a), mul(b, b))))
    if op == "f":
        return fun(draw(st.sampled_from(["f", "g", "tanh", "exp"])), a)
    if op == "d":
        symbol = draw(st.sampled_from(("a", "x")))
        return diff(a, symbol, "d" + symbol)
    b = draw(terms(scope, depth - 1, ops))
    return {"+": add, "*": mul, "/": div}[op](a, b)


@st.composite
def simple(draw: DrawFn, scope: Scope) -> Term:
    """A term for a root: an element, a product, a square or a sum of squares, shifted or not."""
    a, b = draw(st.sampled_from(elements(scope))), draw(st.sampled_from(elements(scope)))
    shapes = [a, mul(a, a), mul(a, b), add(mul(a, a), mul(b, b)), sub(a, b), add(mul(a, a), num(1))]
    shapes += [div(a, b), fun("f", a), mul(fun("f", a), fun("f", a)), dim("n"), num(-2), num(9)]
    return draw(st.sampled_from(shapes))


def parts(t: Term) -> list[Term]:
    """All parts of a term."""
    found = dict.fromkeys([t])
    for a in t.args:
        found |= dict.fromkeys(parts(a))
    return list(found)


def replaced(t: Term, part: Term, new: Term) -> Term:
    """The term with ``new`` for each occurrence of ``part``."""
    if t is part:
        return new
    return make(t.op, *(replaced(a, part, new) for a in t.args), data=t.data)


# --- tempting equations --------------------------------------------------------------------------


@st.composite
def mutations(draw: DrawFn, scope: Scope) -> Pair:
    """A term, and the same with one part changed: sometimes without effect."""
    t = draw(terms(scope, 3, "+*/rsfd"))
    part = draw(st.sampled_from([p for p in parts(t) if p.op != "lam"]))
    changes = [mul(num(2), part), add(part, num(1)), sub(part, num(1)), mul(num(-1), part)]
    changes += list(part.args) if part.op in ("add", "mul", "div", "sqrt") else []
    if part.op in ("add", "mul", "div"):
        changes.append(make(part.op, *part.args[::-1]))
    return t, replaced(t, part, draw(st.sampled_from(changes)))


@st.composite
def roots(draw: DrawFn, scope: Scope) -> Pair:
    """Laws of the square root, of which some need positive arguments."""
    u, v = draw(simple(scope)), draw(simple(scope))
    return draw(
        st.sampled_from(
            [
                (sqrt(mul(u, u)), u),
                (sqrt(mul(u, u)), mul(num(-1), u)),
                (sqrt(mul(u, v)), mul(sqrt(u), sqrt(v))),
                (sqrt(mul(mul(u, u), v)), mul(u, sqrt(v))),
                (sqrt(div(u, v)), div(sqrt(u), sqrt(v))),
                (sqrt(div(num(1), mul(v, v))), div(num(1), v)),
                (mul(sqrt(u), sqrt(u)), u),
                (sqrt(add(u, v)), add(sqrt(u), sqrt(v))),
                (div(num(1), sqrt(u)), div(sqrt(u), u)),
                (sqrt(mul(num(4), u)), mul(num(2), sqrt(u))),
                (sqrt(sqrt(mul(u, u))), sqrt(u)),
                (sqrt(mul(sqrt(u), sqrt(mul(u, v)))), mul(sqrt(sqrt(u)), sqrt(sqrt(mul(u, v))))),
            ]
        )
    )


@st.composite
def quotients(draw: DrawFn, scope: Scope) -> Pair:
    """Laws of fractions."""
    u, v, w = (draw(terms(scope, 1, "+*/r")) for _ in range(3))
    one = num(1)
    return draw(
        st.sampled_from(
            [
                (div(mul(u, v), v), u),
                (add(div(u, v), div(w, v)), div(add(u, w), v)),
                (div(u, mul(v, w)), div(div(u, v), w)),
                (div(u, add(v, w)), add(div(u, v), div(u, w))),
                (div(one, div(one, u)), u),
                (div(u, mul(num(2), v)), div(u, v)),
                (div(u, mul(num(2), v)), mul(num(Fraction(1, 2)), div(u, v))),
                (div(sub(mul(u, u), mul(v, v)), sub(u, v)), add(u, v)),
                (div(u, v), div(v, u)),
                (div(u, div(v, w)), div(mul(u, w), v)),
                (div(u, div(v, w)), div(u, mul(v, w))),
            ]
        )
    )


@st.composite
def sums(draw: DrawFn, scope: Scope) -> Pair:
    """Laws of sums, of which some need a factor without the index."""
    d, e = draw(st.sampled_from(("n", "m"))), draw(st.sampled_from(("n", "m")))
    u, v = (draw(terms((*scope, d), 2, "+*sf")) for _ in range(2))
    c, w = draw(terms(scope, 1, "+*s")), draw(terms((*scope, d, e), 1, "+*sf"))
    swapped = renamed(w, lambda k: {0: 1, 1: 0}.get(k, k))
    return draw(
        st.sampled_from(
            [
                (total(d, add(u, v)), add(total(d, u), total(d, v))),
                (total(d, mul(raised(c), u)), mul(c, total(d, u))),
                (total(d, mul(raised(c), u)), total(d, u)),
                (total(d, mul(u, v)), mul(total(d, u), total(d, v))),
                (total(d, total(e, w)), total(e, total(d, swapped))),
                (total(d, total(e, w)), total(d, total(e, swapped)) if d == e else num(0)),
                (mul(total(d, u), total(d, u)), total(d, mul(u, u))),
                (
                    mul(total(d, u), total(d, v)),
                    total(d, total(d, mul(raised(u), raised(v, 1, 1)))),
                ),
                (total(d, raised(c)), mul(dim(d), c)),
                (total(d, raised(c)), mul(dim(e), c)),
                (total(d, u), total(d, add(u, num(1)))),
            ]
        )
    )


@st.composite
def indices(draw: DrawFn, scope: Scope) -> Pair:
    """Elements of arrays, and contractions of them, with their indices exchanged."""
    deep = (*scope, "n", "n")
    pair = st.sampled_from([at("A", 0, 1), at("A", 1, 0), at("B", 0, 1), at("B", 1, 0)])
    first = draw(pair)
    t = mul(draw(pair), draw(terms(deep, 1, "+*f")))

    def exchanged(part: Term) -> Term:
        return renamed(part, lambda k: {0: 1, 1: 0}.get(k, k))

    def diagonal(part: Term) -> Term:
        return renamed(part, lambda k: 0 if k == 1 else k)

    sides = [
        (t, exchanged(t)),
        (t, diagonal(t)),
        (mul(t, first), mul(exchanged(t), first)),
        (mul(t, first), mul(exchanged(t), exchanged(first))),
    ]
    left, right = draw(st.sampled_from(sides))
    return total("n", total("n", left)), total("n", total("n", right))


@st.composite
def functions(draw: DrawFn, scope: Scope) -> Pair:
    """Values of functions known by name, of equal and of other arguments."""
    scope = (*scope, "n", "n")
    u, v = (draw(terms(scope, 1, "+*/r")) for _ in range(2))
    k, other = draw(st.permutations([0, 1]))
    row, body = at("A", 1 + k, 0), draw(terms((*scope, "n"), 1, "+*"))
    turned = renamed(body, lambda i: {1: 2, 2: 1}.get(i, i))
    left = fun("F", array(("n",), mul(row, body)), index=(k,))
    return draw(
        st.sampled_from(
            [
                (fun("f", add(u, v)), fun("f", add(v, u))),
                (fun("f", mul(u, v)), fun("f", u)),
                (fun("f", div(mul(u, v), v)), fun("f", u)),
                (fun("f", u), fun("g", u)),
                (fun("f", u), fun("f", u, num(0))),
                (fun("f", u, v), fun("f", v, u)),
                (left, fun("F", array(("n",), mul(body, row)), index=(k,))),
                (left, fun("F", array(("n",), mul(row, body)), index=(other,))),
                (left, fun("F", array(("n",), mul(row, turned)), index=(k,))),
                (left, fun("F", array(("n",), mul(at("A", 0, 1 + k), body)), index=(k,))),
                (
                    fun("F", array(("n", "n"), at("A", 0, 1))),
                    fun("F", array(("n", "n"), at("A", 1, 0))),
                ),
                (fun("F", array(("n",), num(1))), fun("F", array(("m",), num(1)))),
                (total("n", raised(left)), mul(dim("n"), left)),
                (total("n", renamed(raised(left), lambda i: max(0, i - 1))), mul(dim("n"), left)),
            ]
        )
    )


@st.composite
def derivatives(draw: DrawFn, scope: Scope) -> Pair:
    """Rules of derivatives, with and without one of their terms."""
    symbol = draw(st.sampled_from(("a", "x")))
    scope = (*scope, "n")
    head = sym("a") if symbol == "a" else at("x", 0)
    u = mul(head, draw(terms(scope, 1, "+*f")))
    v = add(head, draw(terms(scope, 1, "+*f")))

    def d(t: Term) -> Term:
        return diff(t, symbol, "d" + symbol)

    return draw(
        st.sampled_from(
            [
                (d(mul(u, v)), add(mul(d(u), v), mul(u, d(v)))),
                (d(mul(u, v)), mul(d(u), v)),
                (d(mul(u, v)), mul(d(u), d(v))),
                (d(add(u, v)), add(d(u), d(v))),
                (d(add(u, v)), d(u)),
                (d(div(u, v)), div(sub(mul(d(u), v), mul(u, d(v))), mul(v, v))),
                (d(div(u, v)), div(add(mul(d(u), v), mul(u, d(v))), mul(v, v))),
                (d(sqrt(u)), div(d(u), mul(num(2), sqrt(u)))),
                (d(sqrt(u)), div(d(u), sqrt(u))),
                (d(fun("f", u)), mul(fun("f'", u), d(u))),
                (d(fun("f", u)), fun("f'", u)),
                (d(fun("f", u)), mul(fun("f", u), d(u))),
                (d(d(fun("f", u))), mul(fun("f''", u), mul(d(u), d(u)))),
                (
                    d(d(fun("f", u))),
                    add(mul(fun("f''", u), mul(d(u), d(u))), mul(fun("f'", u), d(d(u)))),
                ),
                (d(fun("tanh", u)), mul(d(u), sub(num(1), mul(fun("tanh", u), fun("tanh", u))))),
                (d(fun("exp", u)), mul(d(u), fun("exp", u))),
                (total("n", d(u)), diff(total("n", u), symbol, "d" + symbol)),
                (d(mul(head, head)), mul(num(2), mul(head, d(head)))),
                (d(d(mul(head, mul(head, u)))), d(mul(add(head, head), mul(u, d(head))))),
            ]
        )
    )


LAWS: dict[str, Callable[[Scope], st.SearchStrategy[Pair]]] = {
    "mutations": mutations,
    "roots": roots,
    "quotients": quotients,
    "sums": sums,
    "indices": indices,
    "functions": functions,
    "derivatives": derivatives,
}


class Equation:
    """Free dimensions and two sides; printed in one line, as a term has many parts."""

    def __init__(self, free: Scope, left: Term, right: Term) -> None:
        self.free, self.left, self.right = free, left, right

    def __repr__(self) -> str:
        return f"{written(self.left)} = {written(self.right)} over {self.free}"


def written(t: Term) -> str:
    """A term in one line, its indices as numbers."""
    if t.op in ("num", "dim", "sym"):
        return str(t.data)
    data = "" if t.data is None else str(t.data)
    return f"{t.op}{data}({', '.join(map(written, t.args))})" if t.args else data


@st.composite
def statements(draw: DrawFn, law: str) -> Equation:
    """A tempting equation."""
    scope = draw(st.sampled_from(SCOPES))
    left, right = draw(LAWS[law](scope))
    # the index of a sum or of a derivative stands free here; SCOPES + it is the whole scope
    extra = {"functions": ("n", "n"), "derivatives": ("n",)}.get(law, ())
    return Equation((*scope, *extra), left, right)


@st.composite
def pairs(draw: DrawFn, scopes: tuple[Scope, ...], depth: int, ops: str) -> Equation:
    """Two terms that have nothing to do with each other."""
    free = draw(st.sampled_from(scopes))
    return Equation(free, draw(terms(free, depth, ops)), draw(terms(free, depth, ops)))


def random_point(rng: random.Random, scope: Scope) -> Point:
    """Dimensions, small rational values, zero and negative ones too, and the free indices."""
    dims = {d: rng.choice((1, 2, 3)) for d in SETTING.dims}
    values = {}
    for name, shape in SETTING.symbols.items():
        keys: list[tuple[int, ...]] = [()]
        for d in shape:
            keys = [(*k, i) for k in keys for i in range(dims[d])]
        least = 1 if name in SETTING.positive else -4
        values[name] = {
            k: constant(Fraction(rng.randint(least, 4), rng.choice((1, 2, 3)))) for k in keys
        }
    return Point(dims, values, tuple(rng.randrange(dims[d]) for d in scope))
