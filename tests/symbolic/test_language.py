"""Writing statements: exact numbers only, no branch on a value, and no index left unbound."""

from __future__ import annotations

import inspect
import operator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.formula import Arithmetic
from verify.norms.catalogue import FORMULAS
from verify.norms.forward import chan_merge, rms_norm
from verify.symbolic.language import (
    Blocks,
    Expression,
    RowArithmetic,
    Statement,
    apply,
    array,
    closed,
    derivative,
    lift,
    sqrt,
    total,
)
from verify.symbolic.trusted import Claim, OutsideLanguageError, Setting, Term, num, rejections

ORDERS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@pytest.fixture
def s():
    return Statement()


@pytest.fixture
def row(s):
    """(statement, index, arithmetic, element of a row, eps)."""
    i = s.index()
    (x,), (eps,) = s.arrays("x", i), s.numbers("eps", positive=True)
    return s, i, RowArithmetic((i,)), x, eps


def refused(function, *arguments, **more):
    """The one line with which ``function`` refuses."""
    with pytest.raises(OutsideLanguageError) as caught:
        function(*arguments, **more)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


def same(left, right, setting, free=()):
    """Whether the kernel accepts that two expressions are equal."""
    sides = tuple((name, closed(lift(e).term, *free)) for name, e in (("l", left), ("r", right)))
    return not rejections(Claim("equal", "same", tuple(i.dim for i in free), sides), setting)


# --- exact numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.5, 1.0, float("nan"), 1j, True, False, "1", None, [1]])
def test_what_is_no_exact_number_is_refused(value):
    assert "expected an int or a Fraction" in refused(lift, value)


@pytest.mark.parametrize(
    "operation",
    [operator.add, operator.sub, operator.mul, operator.truediv],
    ids=lambda f: f.__name__,
)
def test_a_float_is_refused_on_either_side_of_an_operation(row, operation):
    x = row[3]
    for value in (x, Blocks((x, x))):
        assert "0.1 is no exact number" in refused(operation, value, 0.1)
        assert "0.1 is no exact number" in refused(operation, 0.1, value)


NUMBERS = st.fractions(max_denominator=50) | st.integers(-(10**30), 10**30)


@given(a=NUMBERS, b=NUMBERS)
def test_numbers_compute_as_fractions_do(a, b):
    setting, left = Setting({}, {}), lift(a)
    for op in (operator.add, operator.sub, operator.mul):
        assert same(op(left, b), op(Fraction(a), b), setting)
        assert same(op(a, lift(b)), op(Fraction(a), b), setting)
        assert not same(op(a, lift(b)), op(Fraction(a), b) + 1, setting)
    assert same(-left, -Fraction(a), setting)
    if b:
        assert same(left / b, Fraction(a) / b, setting)
        assert same(a / lift(b), Fraction(a) / b, setting)


# --- no branch on a value ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS, ids=lambda f: f.__name__)
def test_a_comparison_is_refused_with_the_reason(row, order):
    x = row[3]
    for value in (x, Blocks((x, x))):
        for other in (value, 0, x):
            assert "a comparison" in refused(order, value, other)
            assert "a comparison" in refused(order, other, value)


@pytest.mark.parametrize("branch", [bool, abs, operator.not_, lambda v: v and 0, lambda v: v or 0])
def test_a_truth_value_is_refused_with_the_reason(row, branch):
    x = row[3]
    for value in (x, Blocks((x, x))):
        assert "a comparison" in refused(branch, value)


BRANCHING = {
    "max": lambda ar, x, eps: x / ar.sqrt(max(ar.sum(x * x), eps)),
    "min, the number first": lambda ar, x, _: min(1, ar.sum(x)) * x,
    "clamp": lambda _, x, __: min(max(x, -10), 10),
    "if": lambda ar, x, _: x if ar.sum(x) else x / 2,
    "if equal": lambda ar, x, _: 0 * x if ar.sum(x) == 0 else x,
    "abs": lambda ar, x, _: x / ar.sum(abs(x)),
    "in": lambda ar, x, eps: x if eps in [ar.sum(x), 0] else eps,
}


@pytest.mark.parametrize("body", BRANCHING.values(), ids=BRANCHING)
def test_a_body_that_branches_on_values_is_refused_with_the_reason(row, body):
    _, _, ar, x, eps = row
    message = refused(body, ar, x, eps)
    assert "clamp" in message
    assert "expected + - * /, square roots" in message
    assert "a comparison" in refused(body, ar, Blocks((x,)), eps)


def test_a_fault_behind_a_branch_is_never_accepted(row):
    """A norm that returns 0 for a row of zeros: with == by identity it would pass for the norm."""
    s, i, ar, x, eps = row

    def guarded(ar, x):
        return 0 * x if ar.sum(x * x) == 0 else rms_norm(ar, x, 1, 0, eps)

    with pytest.raises(OutsideLanguageError, match="a comparison"):
        s.equal("guarded", ("a", guarded(ar, x)), ("b", rms_norm(ar, x, 1, 0, eps)), free=[i])
    assert s.claims == []


def test_expressions_are_still_told_apart_by_identity(row):
    _, _, _, x, eps = row
    assert {x: "x", eps: "eps"}[x] == "x"


# --- the arithmetic of a row ---------------------------------------------------------------------

METHODS = [
    name
    for name, member in vars(Arithmetic).items()
    if not name.startswith("_") and inspect.isfunction(member)
]


def test_the_protocol_of_an_arithmetic_is_read():
    assert {"number", "length", "sum", "sqrt", "fold", "cast", "pi"} <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_an_arithmetic_is_offered(name):
    own = inspect.signature(getattr(RowArithmetic, name)).parameters
    assert list(own) == list(inspect.signature(getattr(Arithmetic, name)).parameters)


def test_what_the_methods_mean(row):
    s, i, ar, x, eps = row
    d = s.dimension("n")
    assert same(ar.number(Fraction(1, 3)), Fraction(1, 3), s.setting)
    assert same(ar.length(x), d, s.setting)
    assert same(ar.sum(x), total(i, x), s.setting)
    assert same(ar.sum(1), d, s.setting)
    assert same(ar.sqrt(eps) * ar.sqrt(eps), eps, s.setting)
    assert ar.sum_rows(x) is x
    assert ar.cast(x, "before the weight") is x
    assert ar.pi().term == Term.make("sym", data="pi")
    for name in ("tanh", "erf", "exp"):
        assert getattr(ar, name)(x).term == apply(name, x).term
        each = getattr(ar, name)(Blocks((x, eps)))
        assert [part.term for part in each.parts] == [apply(name, v).term for v in (x, eps)]


@pytest.mark.parametrize("value", [0.5, True])
def test_the_arithmetic_takes_exact_numbers_only(row, value):
    assert "no exact number" in refused(row[2].number, value)


def test_a_fold_without_a_closed_form_is_refused_by_name(row):
    _, _, ar, x, _ = row
    leaves = (ar.number(1), x, ar.number(0))
    assert "'chan_merge'" in refused(ar.fold, leaves, chan_merge)
    assert "expected no fold at all" in refused(ar.fold, leaves, chan_merge)
    known = RowArithmetic(ar.indices, {"chan_merge": lambda ar, leaves: (ar.sum(leaves[1]),)})
    assert same(known.fold(leaves, chan_merge)[0], ar.sum(x), row[0].setting)
    assert "'<lambda>'" in refused(known.fold, leaves, lambda *states: states)
    assert "expected chan_merge" in refused(known.fold, leaves, lambda *states: states)


def reading(formula, ar, x):
    """Why a formula cannot be read as algebra; empty if it can."""
    names = [parameter.name for parameter in formula.parameters]
    symbols = {name: Expression(Term.make("sym", data=name)) for name in names}
    try:
        formula(ar, **(symbols | {"x": x}))
    except OutsideLanguageError as error:
        return str(error)
    return ""


def test_every_formula_of_the_catalogue_is_read_but_for_folds(row):
    _, _, ar, x, _ = row
    words = {name: reading(formula, ar, x) for name, formula in FORMULAS.items()}
    refusals = [why for why in words.values() if why]
    assert len(refusals) < len(words) / 2
    assert all("a fold with" in why and "\n" not in why for why in refusals)


# --- rows in blocks ------------------------------------------------------------------------------

INTS = st.integers(-9, 9)
OPERATIONS = st.sampled_from([operator.add, operator.sub, operator.mul, operator.truediv])


@given(values=st.lists(INTS, min_size=1, max_size=4), data=st.data(), op=OPERATIONS)
def test_blocks_compute_block_by_block(values, data, op):
    size = st.lists(INTS.filter(bool), min_size=len(values), max_size=len(values))
    others, setting = data.draw(size), Setting({}, {})
    left, right = (Blocks(tuple(map(lift, v))) for v in (values, others))
    expected = [op(Fraction(a), b) for a, b in zip(values, others, strict=True)]
    results = [op(left, right)]
    if len(set(others)) == 1:  # one value for all blocks, a number or an expression
        results += [op(left, others[0]), op(left, lift(others[0]))]
    if len(set(values)) == 1:
        results += [op(values[0], right), op(lift(values[0]), right)]
    for result in results:
        assert len(result.parts) == len(expected)
        assert all(same(a, b, setting) for a, b in zip(result.parts, expected, strict=True))
    assert all(same(a, -b, setting) for a, b in zip((-left).parts, values, strict=True))


def test_blocks_sum_and_have_a_length(row):
    s, i, ar, x, _ = row
    wide = RowArithmetic((i, None))
    zero_sum = Blocks((x, -ar.sum(x)))
    assert same(wide.sum(zero_sum), 0, s.setting)
    assert not same(wide.sum(zero_sum), 1, s.setting)
    assert same(wide.length(zero_sum), s.dimension("n") + 1, s.setting)
    assert same(RowArithmetic((None,)).sum(3), 3, s.setting)


def test_rows_in_other_blocks_are_refused(row):
    _, i, ar, x, eps = row
    assert "3 blocks: expected 2" in refused(lambda: Blocks((x, x)) + Blocks((x, x, eps)))
    assert "2 blocks: expected 1" in refused(ar.sum, Blocks((x, x)))
    assert "2 blocks: expected 3" in refused(RowArithmetic((i, i, None)).sum, Blocks((x, x)))


# --- indices -------------------------------------------------------------------------------------


def test_a_name_is_not_what_tells_indices_apart(s):
    i, j = s.index(), s.index()
    assert i != j
    (x,) = s.arrays("x", i)
    assert total(i, x).term == total(j, x.at(i, j)).term
    assert total(j, x).term != total(i, x).term


def test_closing_captures_no_index(s):
    """sum_j (x_i y_j) keeps i free, whatever binder is put around it, and in whatever order."""
    i, j = s.index(), s.index()
    (x,), (y,) = s.arrays("x", i), s.arrays("y", j)
    inner = total(j, x * y)
    assert inner.term.args[0].args[0].data == ("x", (i,))
    assert same(total(i, inner), total(i, x) * total(j, y), s.setting)
    assert same(inner, x * total(j, y), s.setting, free=[i])
    assert not same(inner, total(j, x.at(i, j) * y), s.setting, free=[i])


def test_free_indices_are_bound_in_order(s):
    s.dimension("m")
    i, k = s.index(), s.index("m")
    (A,) = s.arrays("A", i, k)
    assert closed(A.term, i, k).data == ("A", (1, 0))
    assert closed(A.term, k, i).data == ("A", (0, 1))
    assert closed(array(A, i, k).term).args[0].data == ("A", (1, 0))
    assert closed(array(A, k).term, i).args[0].data == ("A", (1, 0))


def test_the_elements_of_a_function_are_closed_too(s):
    i, j = s.index(), s.index()
    (x,) = s.arrays("x", i)
    softmax = apply("softmax", array(x.at(i, j), j), at=[i])
    term = closed(softmax.term, i)
    assert term.data == ("softmax", (0,))
    assert term.args[0].args[0].data == ("x", (0,))
    assert total(i, softmax).term.args[0] == term


def test_a_derivative_is_along_another_symbol(s):
    i = s.index()
    x, h = s.arrays("x h", i)
    slope = derivative(total(i, x * x), "x", "h")
    assert same(slope, 2 * total(i, x * h), s.setting)
    assert not same(slope, total(i, x * h), s.setting)


@given(order=st.permutations(range(4)))
def test_renaming_bound_indices_changes_no_term(order):
    s = Statement()
    p, q, *indices = (s.index() for _ in range(6))
    (A,) = s.arrays("A", p, q)

    def chain(i, j, k, m):
        first, second, third = (A.at(p, a).at(q, b) for a, b in ((i, j), (j, k), (k, m)))
        return total(i, total(j, first * total(k, second * total(m, third))))

    assert chain(*indices).term == chain(*(indices[k] for k in order)).term


# --- statements ----------------------------------------------------------------------------------


def test_an_index_that_nothing_binds_is_refused(row):
    s, i, ar, x, _ = row
    message = refused(s.equal, "open", ("x", x), ("x again", ar.sum(x) / ar.sum(1) * x))
    assert "claim 'open', step 'x'" in message
    assert "free=[..]" in message
    assert s.claims == []
    s.equal("bound", ("x", x), ("x again", x), free=[i])
    assert not rejections(s.claims[0], s.setting)


def test_what_is_declared_twice_is_refused(row):
    s = row[0]
    assert "'x' is declared twice" in refused(s.numbers, "y x")
    assert "'n' is declared twice" in refused(s.arrays, "n", row[1])
    assert "'eps' is declared twice" in refused(s.dimension, "eps")
    assert "'again' is declared twice" in refused(s.numbers, "again again")


def test_two_claims_of_one_name_are_refused(row):
    s = row[0]
    s.equal("a", ("1", 1), ("2", 1))
    assert "two claims are called 'a'" in refused(s.at_least, "a", ("1", 1), ("2", 1))


def test_an_undeclared_dimension_is_refused(s):
    assert "no dimension 'm': expected one of n" in refused(s.index, "m")
    s.dimension("m", 2)
    assert s.index("m").dim == "m"
    assert s.setting.dims == {"n": 1, "m": 2}


@pytest.mark.parametrize("least", [0, -1, 1.0, True])
def test_a_dimension_has_at_least_one_element(s, least):
    assert "expected an int >= 1" in refused(s.dimension, "m", least)


def test_a_setting_is_what_was_declared_so_far(row):
    s = row[0]
    before = s.setting
    s.numbers("c")
    assert before == Setting({"n": 1}, {"x": ("n",), "eps": ()}, frozenset({"eps"}))
    assert s.setting.symbols == {"x": ("n",), "eps": (), "c": ()}


def test_a_witness_is_exact_and_whole(row):
    s, i, _, x, eps = row
    values = {"x": (1, Fraction(1, 2)), "eps": 3}
    s.differ("d", x, eps, free=[i], dims={"n": 2}, values=values, index=[1])
    expected = {"dims": {"n": 2}, "values": {"x": [1, Fraction(1, 2)], "eps": 3}, "index": (1,)}
    assert s.claims[0].witness == expected
    assert not rejections(s.claims[0], s.setting)
    assert "no exact number" in refused(s.differ, "f", x, eps, free=[i], values={"eps": 0.5})
    assert "a witness with 'sym'" in refused(s.differ, "g", x, eps, free=[i], values={"eps": eps})
    with pytest.raises(TypeError, match="expected dims, values and index"):
        s.differ("h", x, eps, free=[i], value={"eps": 1})


def test_a_root_of_a_number_is_no_number(row):
    assert sqrt(2).term == Term.make("sqrt", num(2))
    assert "no exact number" in refused(sqrt, 2.0)
