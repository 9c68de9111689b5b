"""The kernel of trust: what it accepts holds wherever both sides are defined.

It is small and stands alone; each of its rules accepts and rejects; random statements that it
accepts are evaluated by another arithmetic; and the same tests find each defect planted in it.
"""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from tests.symbolic.exact_terms import Point, UndefinedError, constant, differ, value
from tests.symbolic.random_terms import (
    LAWS,
    SETTING,
    Equation,
    Pair,
    Scope,
    add,
    array,
    at,
    diff,
    dim,
    div,
    fun,
    mul,
    pairs,
    random_point,
    sqrt,
    statements,
    sub,
    sym,
    total,
)
from verify.symbolic import trusted
from verify.symbolic.trusted import (
    Algebra,
    Case,
    Claim,
    OutsideLanguageError,
    Setting,
    Term,
    num,
    rejections,
)

SOURCE = Path(trusted.__file__)
POINTS = 6
UNEQUAL = "its normal form is not that of the first step"
NO_SHAPE = "no sum of squares, or undefined where the first is not"
A, B, P, Q, X = sym("a"), sym("b"), sym("p"), sym("q"), at("x", 0)


def equation(left: Term, right: Term, free: Scope = ()) -> Claim:
    return Claim("equal", "sides", free, (("left", left), ("right", right)))


def accepts(left: Term, right: Term, free: Scope = (), setting: Setting = SETTING) -> bool:
    return not rejections(equation(left, right, free), setting)


# --- size and imports ----------------------------------------------------------------------------


def strangers(source: str) -> list[str]:
    """The modules that a source imports, of neither the standard library nor sympy.polys."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            found.append("." * node.level + (node.module or ""))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
            "__import__",
            "exec",
            "eval",
        ):
            found.append(ast.unparse(node))
    return [m for m in found if not _is_own(m)]


def _is_own(module: str) -> bool:
    polys = module == "sympy.polys" or module.startswith("sympy.polys.")
    standard = module.split(".", maxsplit=1)[0] in sys.stdlib_module_names - {"importlib"}
    return polys or standard


def test_the_kernel_has_400_lines_at_most() -> None:
    assert len(SOURCE.read_text(encoding="utf-8").splitlines()) <= 400


def test_the_kernel_imports_the_standard_library_and_sympy_polys_alone() -> None:
    assert strangers(SOURCE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import numpy", "numpy"),
        ("import sympy", "sympy"),
        ("from sympy.polys_of_another import QQ", "sympy.polys_of_another"),
        ("from verify.symbolic.language import Statement", "verify.symbolic.language"),
        ("from . import language", "."),
        ("def f():\n    import flint", "flint"),
        ("import importlib", "importlib"),
        ("__import__('flint')", "__import__('flint')"),
    ],
)
def test_an_import_planted_in_the_kernel_is_found(line: str, module: str) -> None:
    assert strangers(f"{SOURCE.read_text(encoding='utf-8')}\n{line}\n") == [module]


# --- each rule accepts, and rejects --------------------------------------------------------------

ROW = array(("n",), at("x", 0))
TRACE = total("n", total("n", mul(at("A", 1, 0), at("A", 0, 1))))
N2 = ("n", "n")

RULES: dict[str, tuple[Term, Term, Term, Scope]] = {
    # rule: (left, a right side that is equal, one that is not, free dimensions)
    "numbers": (num(Fraction(1, 2)), div(num(2), num(4)), num(Fraction(1, 3)), ()),
    "addition": (add(A, B), add(B, A), sub(A, B), ()),
    "multiplication": (mul(A, add(A, B)), add(mul(A, A), mul(B, A)), add(mul(A, A), B), ()),
    "division": (div(mul(A, B), B), A, B, ()),
    "division by a product": (div(A, mul(B, P)), div(div(A, P), B), div(mul(A, P), B), ()),
    "division by a content": (
        div(A, add(mul(num(2), B), mul(num(4), P))),
        mul(num(Fraction(1, 2)), div(A, add(B, mul(num(2), P)))),
        div(A, add(B, mul(num(2), P))),
        (),
    ),
    "division by a root": (div(A, sqrt(B)), div(mul(A, sqrt(B)), B), div(A, B), ()),
    "a difference of squares": (
        div(sub(mul(A, A), mul(B, B)), sub(A, B)),
        add(A, B),
        sub(A, B),
        (),
    ),
    "a root squared": (mul(sqrt(A), sqrt(A)), A, mul(num(-1), A), ()),
    "the root of a square of a positive number": (sqrt(mul(P, P)), P, mul(num(-1), P), ()),
    "the root of a square of any number": (sqrt(mul(A, A)), sqrt(mul(A, A)), A, ()),
    "the root of a product": (sqrt(mul(P, A)), mul(sqrt(P), sqrt(A)), mul(P, sqrt(A)), ()),
    "the root of a quotient": (sqrt(div(A, mul(P, P))), div(sqrt(A), P), div(sqrt(A), Q), ()),
    "the root of a rational": (sqrt(num(Fraction(9, 4))), num(Fraction(3, 2)), num(3), ()),
    "the root of a sum of squares": (
        sqrt(mul(add(mul(A, A), num(1)), B)),
        mul(sqrt(add(mul(A, A), num(1))), sqrt(B)),
        mul(add(A, num(1)), sqrt(B)),
        (),
    ),
    "the root of a sum over squares": (
        sqrt(mul(total("n", mul(X, X)), B)),
        mul(sqrt(total("n", mul(X, X))), sqrt(B)),
        mul(total("n", X), sqrt(B)),
        (),
    ),
    "linearity of a sum": (
        total("n", add(X, mul(A, at("y", 0)))),
        add(total("n", X), mul(A, total("n", at("y", 0)))),
        add(total("n", X), total("n", at("y", 0))),
        (),
    ),
    "a constant sum": (total("n", A), mul(dim("n"), A), mul(dim("m"), A), ()),
    "a product of sums": (
        mul(total("n", X), total("n", at("y", 0))),
        total("n", total("n", mul(at("x", 1), at("y", 0)))),
        total("n", mul(X, at("y", 0))),
        (),
    ),
    "a power of a sum": (
        mul(total("n", X), total("n", X)),
        total("n", mul(X, total("n", X))),
        total("n", mul(X, X)),
        (),
    ),
    "the order of sums": (
        total("n", total("m", at("C", 1, 0))),
        total("m", total("n", at("C", 0, 1))),
        total("n", total("n", at("A", 0, 1))),
        (),
    ),
    "renaming bound indices": (
        TRACE,
        total("n", total("n", mul(at("A", 0, 1), at("A", 1, 0)))),
        total("n", total("n", mul(at("A", 0, 1), at("A", 0, 1)))),
        (),
    ),
    "free indices": (at("A", 0, 1), at("A", 0, 1), at("A", 1, 0), N2),
    "a bound and a free index": (
        total("n", mul(at("A", 1, 0), at("x", 0))),
        total("n", mul(at("x", 0), at("A", 1, 0))),
        total("n", mul(at("A", 1, 0), at("x", 1))),
        ("n",),
    ),
    "dimensions": (total("n", num(1)), dim("n"), dim("m"), ()),
    "equal arguments": (fun("f", add(A, B)), fun("f", add(B, A)), fun("f", A), ()),
    "arguments with inverses": (fun("f", div(mul(A, B), B)), fun("f", A), fun("f", B), ()),
    "names of functions": (fun("f", A), fun("f", A), fun("g", A), ()),
    "numbers of arguments": (fun("f", A), fun("f", A), fun("f", A, A), ()),
    "arrays as arguments": (
        fun("F", array(N2, mul(at("A", 1, 0), num(1)))),
        fun("F", array(N2, at("A", 1, 0))),
        fun("F", array(N2, at("A", 0, 1))),
        (),
    ),
    "shapes of arguments": (
        fun("F", array(("n",), num(1))),
        fun("F", array(("n",), num(1))),
        fun("F", array(("m",), num(1))),
        (),
    ),
    "a bound index of an argument is not a free one": (
        fun("F", ROW),
        fun("F", array(("n",), mul(num(1), at("x", 0)))),
        fun("F", array(("n",), at("x", 1))),
        ("n",),
    ),
    "elements of values": (
        fun("F", ROW, index=(0,)),
        fun("F", array(("n",), mul(at("x", 0), num(1))), index=(0,)),
        fun("F", ROW, index=(1,)),
        N2,
    ),
    "functions below binders": (
        total("n", fun("f", X)),
        total("n", fun("f", add(X, num(0)))),
        mul(dim("n"), fun("f", X)),
        ("n",),
    ),
    "the derivative of a symbol": (diff(A), sym("da"), num(1), ()),
    "the derivative of an element": (diff(X, "x", "dx"), at("dx", 0), at("dx", 1), N2),
    "the derivative of another symbol": (diff(B), num(0), sym("da"), ()),
    "the derivative of a sum of two": (diff(add(A, B)), sym("da"), num(0), ()),
    "the derivative of a product": (
        diff(mul(A, mul(A, B))),
        mul(num(2), mul(mul(A, B), sym("da"))),
        mul(mul(A, B), sym("da")),
        (),
    ),
    "the derivative of a quotient": (
        diff(div(B, A)),
        mul(num(-1), div(mul(B, sym("da")), mul(A, A))),
        div(mul(B, sym("da")), mul(A, A)),
        (),
    ),
    "the derivative of a root": (
        diff(sqrt(A)),
        div(sym("da"), mul(num(2), sqrt(A))),
        div(sym("da"), sqrt(A)),
        (),
    ),
    "the derivative of a sum": (
        diff(total("n", mul(X, X)), "x", "dx"),
        mul(num(2), total("n", mul(X, at("dx", 0)))),
        total("n", mul(X, at("dx", 0))),
        (),
    ),
    "the derivative of a function": (
        diff(fun("f", mul(A, A))),
        mul(fun("f'", mul(A, A)), mul(num(2), mul(A, sym("da")))),
        mul(fun("f", mul(A, A)), mul(num(2), mul(A, sym("da")))),
        (),
    ),
    "the derivative of tanh": (
        diff(fun("tanh", A)),
        mul(sub(num(1), mul(fun("tanh", A), fun("tanh", A))), sym("da")),
        mul(fun("tanh", A), sym("da")),
        (),
    ),
    "the derivative of exp": (
        diff(fun("exp", A)),
        mul(fun("exp", A), sym("da")),
        fun("exp", A),
        (),
    ),
    "the second derivative": (
        diff(diff(mul(A, mul(A, A)))),
        mul(num(6), mul(A, mul(sym("da"), sym("da")))),
        mul(num(3), mul(A, mul(sym("da"), sym("da")))),
        (),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_accepts(rule: str) -> None:
    left, right, _, free = RULES[rule]
    assert accepts(left, right, free)
    assert accepts(right, left, free)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_rejects(rule: str) -> None:
    left, _, wrong, free = RULES[rule]
    assert rejections(equation(left, wrong, free), SETTING) == [("right", UNEQUAL)]
    assert refuted(left, wrong, free), "the other arithmetic finds no difference"


def test_the_derivative_of_erf_is_the_bell_curve() -> None:
    setting = Setting({}, {"a": (), "da": (), "pi": ()})
    bell = fun("exp", mul(num(-1), mul(A, A)))
    slope = div(mul(mul(num(2), sym("da")), bell), sqrt(sym("pi")))
    assert accepts(diff(fun("erf", A)), slope, setting=setting)
    assert not accepts(diff(fun("erf", A)), mul(bell, sym("da")), setting=setting)


def test_the_inverse_of_an_argument_does_not_change_an_inverse_of_the_statement() -> None:
    """An inverse met first within an argument, at other indices, may have another content."""
    xi, yi, xj, yj = at("x", 1), at("y", 1), at("x", 0), at("y", 0)
    met = mul(num(0), add(yi, fun("f", div(num(1), add(xj, mul(num(2), yj))))))
    p = add(xi, mul(num(2), yi))
    assert accepts(add(met, div(p, p)), num(1), N2)
    assert not accepts(add(met, div(p, p)), num(Fraction(1, 2)), N2)


def test_a_step_that_is_nowhere_defined_joins_no_others() -> None:
    """With v = sqrt(2) sqrt(3) - sqrt(6) = 0, w (sqrt(v) / sqrt(v) - 1) may seem to be anything."""
    two, three, six = (sqrt(num(k)) for k in (2, 3, 6))
    v, last = sub(mul(two, three), six), add(mul(two, three), six)
    one = mul(sqrt(v), div(num(1), sqrt(v)))
    middle = sub(add(last, mul(A, one)), A)
    steps = (("0", num(0)), ("nowhere", middle), ("2 sqrt(6)", last))
    assert ("2 sqrt(6)", UNEQUAL) in rejections(Claim("equal", "chain", (), steps), SETTING)


def test_a_positive_name_is_the_name_of_a_symbol() -> None:
    """The first function of a claim has the label 0, which is no name."""
    setting = Setting({}, {"a": ()}, frozenset({0}))  # type: ignore[arg-type]
    value_of_f = fun("f", A)
    assert not accepts(sqrt(mul(value_of_f, value_of_f)), value_of_f, setting=setting)


def test_the_step_that_differs_is_named() -> None:
    steps = (("one", A), ("two", add(A, num(0))), ("three", B))
    found = rejections(Claim("equal", "chain", (), steps), SETTING)
    assert found == [("three", UNEQUAL)]


# --- >= 0 by shape -------------------------------------------------------------------------------

SHAPES: dict[str, tuple[Term, Term, Scope]] = {
    # shape: (a term that shows >= 0, one that does not, free dimensions)
    "square": (mul(A, A), mul(A, B), ()),
    "number": (num(3), num(-3), ()),
    "positive symbol": (P, A, ()),
    "dimension": (dim("n"), sub(dim("n"), num(2)), ()),
    "sum of two": (add(mul(A, A), P), add(mul(A, A), B), ()),
    "product": (mul(P, mul(A, A)), mul(P, A), ()),
    "quotient": (div(P, mul(A, A)), div(P, A), ()),
    "root": (sqrt(A), mul(num(-1), sqrt(A)), ()),
    "sum over squares": (total("n", mul(X, X)), total("n", X), ()),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_shows_that_a_value_is_not_negative(shape: str) -> None:
    good, bad, free = SHAPES[shape]
    for term, accepted in ((good, True), (bad, False)):
        claim = Claim("at_least", shape, free, (("it", term), ("by shape", add(term, num(0)))))
        found = rejections(claim, SETTING)
        assert (found == []) is accepted
        if not accepted:
            assert found == [("by shape", NO_SHAPE)]


def test_at_least_needs_a_shape_that_is_defined_where_the_first_step_is() -> None:
    """x = sqrt(x)^2 holds where x > 0, and says nothing of x elsewhere."""
    steps = (("it", A), ("a square", mul(sqrt(A), sqrt(A))))
    assert rejections(Claim("at_least", "no", (), steps), SETTING) == [("a square", NO_SHAPE)]
    root = mul(num(0), sqrt(A))
    steps = (("it", add(A, root)), ("a square", mul(sqrt(A), sqrt(A))))
    assert rejections(Claim("at_least", "yes", (), steps), SETTING) == []


def test_at_least_needs_equal_steps_too() -> None:
    claim = Claim("at_least", "no", (), (("it", A), ("by shape", mul(A, A))))
    assert rejections(claim, SETTING) == [("by shape", UNEQUAL)]


# --- soundness by another arithmetic -------------------------------------------------------------


def refuted(left: Term, right: Term, free: Scope, seed: int = 0, points: int = 30) -> Point | None:
    """A point where both sides are defined and certainly different."""
    rng = random.Random(seed)
    for point in (random_point(rng, free) for _ in range(points)):
        try:
            if differ(value(left, point), value(right, point)):
                return point
        except UndefinedError:
            continue
    return None


def is_sound(drawn: Equation, seed: int) -> None:
    """What the kernel accepts has no counterexample among some random points."""
    free, left, right = drawn.free, drawn.left, drawn.right
    try:
        accepted = accepts(left, right, free)
    except OutsideLanguageError:
        event("outside the language")
        return
    event("accepted" if accepted else "rejected")
    if accepted:
        point = refuted(left, right, free, seed, POINTS)
        assert point is None, f"accepted, and false at {point}: {drawn}"


def draws_a_statement(law: str, data: st.DataObject) -> None:
    is_sound(data.draw(statements(law)), data.draw(st.integers(0, 2**32)))


@pytest.mark.parametrize("law", LAWS)
@given(data=st.data())
def test_what_is_accepted_holds_wherever_both_sides_are_defined(
    law: str, data: st.DataObject
) -> None:
    draws_a_statement(law, data)


@given(pairs(((), ("n",)), 3, "+*/rsfd"), st.sampled_from((-1, 2, Fraction(1, 2))))
def test_a_perturbed_term_is_rejected(drawn: Equation, factor: Fraction) -> None:
    try:
        assert accepts(drawn.left, drawn.left, drawn.free)
    except OutsideLanguageError:
        return
    for unit in (num(1), P, dim("n")):
        assert not accepts(drawn.left, add(drawn.left, mul(num(factor), unit)), drawn.free)


@pytest.mark.parametrize("law", LAWS)
def test_each_law_draws_statements_that_are_accepted_and_some_that_are_not(law: str) -> None:
    found = set[bool]()

    @settings(database=None, phases=[Phase.generate], derandomize=True)
    @given(statements(law))
    def draw(drawn: Equation) -> None:
        try:
            found.add(accepts(drawn.left, drawn.right, drawn.free))
        except OutsideLanguageError:
            return

    draw()
    assert found == {True, False}


# --- witnesses -----------------------------------------------------------------------------------


def witness(point: Point) -> dict[str, Any]:
    """A point as a witness: arrays as nested lists of fractions."""

    def nested(name: str, key: tuple[int, ...]) -> Any:
        shape = SETTING.symbols[name]
        if len(key) == len(shape):
            return point.values[name][key][frozenset()]
        return [nested(name, (*key, k)) for k in range(point.dims[shape[len(key)]])]

    values = {name: nested(name, ()) for name in SETTING.symbols}
    return {"dims": dict(point.dims), "values": values, "index": point.index}


def difference(left: Term, right: Term, free: Scope, point: Point) -> Claim:
    steps = (("left", left), ("right", right))
    return Claim("differ", "sides", free, steps, witness(point))


def is_a_witness(drawn: Equation, point: Point) -> None:
    """A difference that the kernel accepts is one, at a point that the statement allows."""
    left, right = mul(P, drawn.left), drawn.right
    try:
        accepted = not rejections(difference(left, right, drawn.free, point), SETTING)
    except OutsideLanguageError:
        return
    event("accepted" if accepted else "rejected")
    if accepted:
        assert point.values["p"][()][frozenset()] > 0, "p is positive by hypothesis"
        assert differ(value(left, point), value(right, point)), f"no difference: {drawn}"


def draws_a_witness(data: st.DataObject) -> None:
    """A random point; the positive symbol p is sometimes not positive there."""
    drawn = data.draw(pairs(((), ("n",), ("m", "n")), 2, "+*/s"))
    point = random_point(random.Random(data.draw(st.integers(0, 2**32))), drawn.free)
    p = data.draw(st.sampled_from((2, Fraction(1, 2), 0, -1)))
    values = {**point.values, "p": {(): constant(Fraction(p))}}
    is_a_witness(drawn, Point(point.dims, values, point.index))


@given(data=st.data())
def test_a_difference_that_is_accepted_is_one(data: st.DataObject) -> None:
    draws_a_witness(data)


def test_a_difference_needs_a_witness_that_tells_the_sides_apart() -> None:
    point = random_point(random.Random(1), ())
    values = {**point.values, "a": {(): constant(Fraction(2))}, "b": {(): constant(Fraction(3))}}
    here = Point(point.dims, values)
    assert rejections(difference(mul(A, B), num(5), (), here), SETTING) == []
    found = rejections(difference(mul(A, B), num(6), (), here), SETTING)
    assert found == [("right", "both sides are 6")]
    for term in (sqrt(A), fun("f", A)):  # no rational values
        with pytest.raises(OutsideLanguageError, match="rational value at the witness"):
            rejections(difference(term, num(6), (), here), SETTING)


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [("p", Fraction(0), "the witness has p = 0"), ("q", Fraction(-1), "the witness has q = -1")],
)
def test_a_witness_may_not_break_a_hypothesis(name: str, bad: Fraction, message: str) -> None:
    point = random_point(random.Random(1), ())
    point = Point(point.dims, {**point.values, name: {(): constant(bad)}})
    with pytest.raises(OutsideLanguageError, match=message):
        rejections(difference(sym(name), num(7), (), point), SETTING)


def squared_root(v: Term) -> Pair:
    """sqrt(v^2) and v: equal where v > 0, and different elsewhere."""
    return sqrt(mul(v, v)), v


ROWS = total("n", mul(X, X))
NO_CASES: dict[str, tuple[Pair, Scope, dict[str, Any]]] = {
    # what is wrong with a witness: (sides that are equal in each case of a statement, ...)
    "a dimension below the least": (
        squared_root(sub(mul(num(2), dim("n")), num(3))),
        (),
        {"dims": {"n": 1}},
    ),
    "a dimension below the least, in a sum": (
        squared_root(sub(mul(num(2), total("n", num(1))), num(3))),
        (),
        {"dims": {"n": 0}},
    ),
    "an index out of range": (
        squared_root(add(sub(ROWS, mul(X, X)), num(1))),
        ("n",),
        {"dims": {"n": 2}, "values": {"x": [0, 0, 5]}, "index": (2,)},
    ),
    "an index below zero": (
        squared_root(add(sub(ROWS, mul(X, X)), num(1))),
        ("n",),
        {"dims": {"n": 2}, "values": {"x": [0, 0, 5]}, "index": (-1,)},
    ),
    "a root of a negative number": (
        (mul(sqrt(A), sqrt(A)), sqrt(mul(A, A))),
        (),
        {"dims": {"n": 2}, "values": {"a": -1}},
    ),
    "a division by zero": ((div(A, A), num(0)), (), {"dims": {"n": 2}, "values": {"a": 0}}),
    "a symbol of another shape": ((at("y", 0), num(0)), ("n",), {"index": (0,), "dims": {"n": 2}}),
}


@pytest.mark.parametrize("what", NO_CASES)
def test_a_witness_outside_the_statement_shows_nothing(what: str) -> None:
    (left, right), free, given_ = NO_CASES[what]
    case = {"dims": {}, "values": {}, "index": ()} | given_
    setting = Setting({"n": 2}, {"a": (), "x": ("n",), "y": ("m",)})
    claim = Claim("differ", what, free, (("left", left), ("right", right)), case)
    with pytest.raises(OutsideLanguageError):
        rejections(claim, setting)


# --- what cannot be said -------------------------------------------------------------------------

OUTSIDE: dict[str, tuple[Term, str]] = {
    "a root inside a sum": (total("n", sqrt(X)), "norm inside a sum: a root or quotient along n"),
    "a quotient inside a sum": (total("n", div(A, X)), "a root or quotient along n"),
    "a maximum": (Term.make("max", A, B), "'max' of None is outside the language"),
    "an operation without meaning": (Term.make("floor", A), "'floor' .* is outside the language"),
    "an array that is no argument": (ROW, "'lam' .* is outside the language"),
    "a sum over no dimension": (total("k", A), "'sum' of 'k' is outside the language"),
    "a dimension not declared": (dim("k"), "'dim' of 'k' is outside the language"),
    "a symbol not declared": (sym("c"), "'c' do not fit its shape"),
    "an array without indices": (sym("x"), "'x' do not fit its shape"),
    "an index that nothing binds": (at("x", 0), r"\[0\] of 'x' do not fit its shape"),
    "an index of the wrong dimension": (total("m", X), "'x' do not fit its shape"),
    "too many indices": (total("n", at("x", 0, 0)), "'x' do not fit its shape"),
    "an index below zero": (total("n", at("x", -1)), "'x' do not fit its shape"),
    "an element of a value that nothing binds": (fun("F", A, index=(0,)), "do not fit its shape"),
    "a division by zero": (div(A, sub(B, B)), "a division by zero"),
    "a division by a sum with a root": (div(A, add(sqrt(B), num(1))), "a sum that contains a root"),
    "a root of zero": (sqrt(sub(A, A)), "a root of zero"),
    "a root of a quotient": (sqrt(div(A, B)), "a quotient by what may be negative"),
    "a derivative by what is in an array": (
        diff(fun("F", ROW), "x", "dx"),
        "no derivative of .* by 'x', in its array",
    ),
    "a derivative of a function of two numbers": (
        diff(fun("f", A, B)),
        "no derivative of .* by 'a'",
    ),
    "a direction of another shape": (diff(A, "a", "x"), "'x' do not fit its shape"),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_cannot_be_said_is_refused_by_a_reason(what: str) -> None:
    term, reason = OUTSIDE[what]
    with pytest.raises(OutsideLanguageError, match=reason):
        accepts(term, term)


@pytest.mark.parametrize("kind", ["differs", "", "at_most"])
def test_a_claim_of_an_unknown_kind_is_rejected(kind: str) -> None:
    claim = Claim(kind, "odd", (), (("left", A), ("right", A)))
    assert rejections(claim, SETTING) == [("odd", f"'{kind}' with 2 steps is no claim")]


@pytest.mark.parametrize("kind", ["equal", "at_least", "differ"])
def test_a_claim_of_one_step_is_rejected(kind: str) -> None:
    claim = Claim(kind, "short", (), (("only", mul(A, A)),))
    assert rejections(claim, SETTING) == [("short", f"'{kind}' with 1 steps is no claim")]


# --- planted defects -----------------------------------------------------------------------------

REAL: dict[str, Any] = (
    {name: getattr(trusted, name) for name in ("diff", "canonical")}
    | {name: getattr(Algebra, name) for name in ("factors", "function", "sum")}
    | {"gen": Case.gen}
)


def product_rule_that_loses_a_term(t: Term, symbol: str, direction: str) -> Term:
    if t.op == "mul":
        return mul(trusted.diff(t.args[0], symbol, direction), t.args[1])
    return REAL["diff"].__wrapped__(t, symbol, direction)


def canonical_without_order(dims: Any, atoms: Any) -> Any:
    return REAL["canonical"](dims, [(kind, label, tuple(sorted(k))) for kind, label, k in atoms])


def factors_without_content(self: Algebra, poly: Any) -> Any:
    content, powers = REAL["factors"](self, poly)
    return content / abs(content), powers


def sum_that_loses_its_factor(self: Algebra, *what: Any) -> Any:
    """sum_i c x_i = sum_i x_i, for c without the index."""
    found = self.ring(0)
    for c, mono in self.monomials(REAL["sum"](self, *what)):
        found += self.product(c, [(self.gen(k), e) for k, e in mono if k[0] in ("con", "dim")])
    return found


def function_by_its_name(self: Algebra, t: Term, scope: Any) -> Any:
    return self.gen(("fun", t.data[0], ()))


def value_without_its_index(self: Algebra, t: Term, scope: Any) -> Any:
    return REAL["function"](self, Term.make("fun", *t.args, data=(t.data[0], ())), scope)


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    # defect: (owner, name, what stands in its place, the law that finds it)
    "any root of a square is taken": (Algebra, "is_positive", lambda _, poly: True, "roots"),
    "a root squared keeps its root": (Algebra, "reduced", lambda _, poly: poly**2, "roots"),
    "a content is lost": (Algebra, "factors", factors_without_content, "quotients"),
    "a factor of a sum is lost": (Algebra, "sum", sum_that_loses_its_factor, "sums"),
    "the order of indices is lost": (trusted, "canonical", canonical_without_order, "indices"),
    "arguments are not compared": (Algebra, "function", function_by_its_name, "functions"),
    "the index of a value is lost": (Algebra, "function", value_without_its_index, "functions"),
    "a term of the product rule is lost": (
        trusted,
        "diff",
        product_rule_that_loses_a_term,
        "derivatives",
    ),
    "the slope is the value": (trusted, "slope", lambda value: value, "derivatives"),
}


@pytest.fixture
def fresh_caches() -> Iterator[None]:
    """Derivatives taken by a planted defect are forgotten."""
    yield
    REAL["diff"].cache_clear()
    trusted.mentions.cache_clear()


def finds(body: Callable[[st.DataObject], None]) -> bool:
    """Whether a property fails in one of many cases, the same ones in each run."""
    many = settings(
        max_examples=20 * settings.default.max_examples,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    try:
        many(given(st.data())(body))()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("defect", PLANTED)
def test_the_soundness_test_finds_a_planted_defect(
    defect: str, monkeypatch: pytest.MonkeyPatch, fresh_caches: None
) -> None:
    owner, name, instead, law = PLANTED[defect]
    REAL["diff"].cache_clear()
    monkeypatch.setattr(owner, name, instead)
    assert finds(lambda data: draws_a_statement(law, data))


def gen_without_positivity(self: Case, key: Any) -> Any:
    """Any value will do for a positive symbol."""
    setting, self.setting = self.setting, Setting(self.setting.dims, self.setting.symbols)
    found = REAL["gen"](self, key)
    self.setting = setting
    return found


def test_the_witness_test_finds_a_lost_positivity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Case, "gen", gen_without_positivity)
    assert finds(draws_a_witness)
