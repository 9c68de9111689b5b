"""Arithmetic mod p = 2^61 - c against Python's integers, at its limits, and norms read with it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import fmpz
from hypothesis import given
from hypothesis import strategies as st

from verify.norms.forward import crms_norm, layer_norm, narrow_rms_norm, rms_norm
from verify.symbolic.network import field as field_module
from verify.symbolic.network.field import (
    INNER,
    LARGEST_C,
    LIMB,
    Field,
    FieldArithmetic,
    FieldArray,
    NotASquareError,
    OutsideFieldError,
    canonical_root,
    field_with_root,
    joined,
)

MERSENNE = Field()
LARGEST = Field(next(c for c in range(LARGEST_C - 3, 0, -4) if fmpz(2**61 - c).is_prime()))
FIELDS = (MERSENNE, field_with_root(768), LARGEST)
EDGES = sorted({max(0, 2**k + e) for k in (0, 20, 21, 30, 31, 32, 40, 42, 60) for e in (-1, 0, 1)})

fields = st.sampled_from(FIELDS)


def elements(field: Field) -> st.SearchStrategy[int]:
    """Elements of the field, those at which a carry may be lost among them."""
    edges = [*EDGES, *(field.prime - 1 - e for e in EDGES if e < field.prime)]
    return st.one_of(st.sampled_from(edges), st.integers(0, field.prime - 1))


@st.composite
def operands(draw: st.DrawFn) -> tuple[Field, int, int]:
    field = draw(fields)
    return field, draw(elements(field)), draw(elements(field))


def ints(array: FieldArray) -> list[int]:
    return [int(w) for w in array.words.ravel()]


@given(operands())
def test_ring_operations_are_those_of_integers(case):
    field, a, b = case
    p, x, y = field.prime, field.array([a]), field.array([b])
    assert ints(x + y) == [(a + b) % p]
    assert ints(x - y) == [(a - b) % p]
    assert ints(x * y) == [a * b % p]
    assert ints(-x) == [-a % p]
    assert ints(3 * x + 2) == [(3 * a + 2) % p]
    assert ints(2 - x * 3) == [(2 - 3 * a) % p]


@given(operands())
def test_division_undoes_multiplication(case):
    field, a, b = case
    x, y = field.array([a]), field.array([b])
    if b == 0:
        with pytest.raises(ZeroDivisionError, match="division by 0"):
            x / y
    else:
        assert (x / y * y).same(x)
        assert ints(1 / y) == [pow(b, -1, field.prime)]


@given(fields, st.integers(0, 2**64 - 1))
def test_words_of_64_bits_are_reduced(field, word):
    assert ints(field.reduced(np.array([word], np.uint64))) == [word % field.prime]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_products_of_all_edges(field):
    edges = sorted({e % field.prime for edge in EDGES for e in (edge, -1 - edge)})
    row = field.array([edges])
    expected = [a * b % field.prime for a in edges for b in edges]
    assert ints(row.T * row) == expected


def test_large_products_are_taken_in_blocks(monkeypatch):
    rng = np.random.default_rng(3)
    a, b = MERSENNE.draw(rng, 37, 50), MERSENNE.draw(rng, 37, 1)
    whole = a * b
    monkeypatch.setattr(field_module, "BLOCK", 128)
    assert (a * b).same(whole)
    assert (b * a).same(whole)


@given(st.data(), fields)
def test_sums_are_those_of_integers(data, field):
    rows = data.draw(st.lists(st.lists(elements(field), min_size=3, max_size=3), min_size=1))
    array = field.array(rows)
    assert ints(array.sum()) == [sum(row) % field.prime for row in rows]
    assert ints(array.sum(axis=0)) == [sum(c) % field.prime for c in zip(*rows, strict=True)]


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_a_long_sum_of_the_largest_elements(field):
    assert ints(field.array([[field.prime - 1] * 100_003]).sum()) == [-100_003 % field.prime]


# --- matrix products -----------------------------------------------------------------------------


def product(a: FieldArray, b: FieldArray) -> list[int]:
    p = a.field.prime
    rows, columns = a.words.astype(object), b.words.astype(object)
    return [int(v) % p for v in (rows @ columns).ravel()]


@pytest.mark.parametrize("inner", [1, 2, INNER - 1, INNER, INNER + 1, 3072, 2 * INNER + 1])
@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_matmul_of_the_largest_elements(field, inner):
    for largest in (field.prime - 1, 2**42 - 1):  # all bits but one, and two limbs full
        a, b = field.array([[largest] * inner]), field.array([[largest, 1]] * inner)
        assert ints(a @ b) == product(a, b)


@given(st.data(), fields)
def test_matmul_is_that_of_integers(data, field):
    m, n, k = (data.draw(st.integers(1, 4)) for _ in range(3))
    a, b = (
        field.array(data.draw(st.lists(st.lists(elements(field), min_size=c, max_size=c),
                                       min_size=r, max_size=r)))
        for r, c in ((m, n), (n, k))
    )  # fmt: skip
    assert (a @ b).shape == (m, k)
    assert ints(a @ b) == product(a, b)


@pytest.mark.parametrize("shape", [(8, 300, 300), (1, 30, 1), (3, 5, 513)])
def test_matmul_of_random_elements(shape):
    m, n, k = shape
    rng = np.random.default_rng(5)
    for field in FIELDS:
        a, b = field.draw(rng, m, n), field.draw(rng, n, k)
        assert ints(a @ b) == product(a, b)


def test_matmul_of_a_stack_is_that_of_its_members():
    rng = np.random.default_rng(7)
    a, b = MERSENNE.draw(rng, 3, 5, 6), MERSENNE.draw(rng, 3, 6, 4)
    assert (a @ b).shape == (3, 5, 4)
    for i in range(3):
        assert (a @ b)[i].same(a[i] @ b[i])


def test_limbs_of_an_inner_length_sum_below_two_to_the_53():
    assert INNER * (2**LIMB - 1) ** 2 < 2**53 < 4 * INNER * (2**LIMB - 1) ** 2


def test_too_long_an_inner_length_is_seen(monkeypatch):
    monkeypatch.setattr(field_module, "INNER", 2**13)
    a = MERSENNE.array([[2**42 - 1] * (2**13 - 1)])
    assert ints(a @ a.T) != product(a, a.T)


def test_operands_that_do_not_fit_are_refused_in_one_line():
    a = MERSENNE.array([[1, 2]])
    with pytest.raises(OutsideFieldError, match=r"expected one field, n >= 1"):
        a @ LARGEST.array([[1], [2]])
    with pytest.raises(OutsideFieldError, match=r"\(1, 0\).*n >= 1"):
        a[:, :0] @ a.T[:0]
    with pytest.raises(OutsideFieldError, match="met one mod"):
        a + LARGEST.array([1])
    with pytest.raises(OutsideFieldError, match=r"1.5 is no element.*expected an int"):
        a * 1.5
    with pytest.raises(OutsideFieldError, match="True is no element"):
        a + True
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        MERSENNE.array([1.5])


# --- roots ---------------------------------------------------------------------------------------


@given(operands())
def test_the_canonical_root_is_a_square_and_the_only_one(case):
    field, a, b = case
    square = field.array([a]) * field.array([a])
    root = canonical_root(square)
    assert (root * root).same(square)
    assert ints(root) in ([a], [-a % field.prime])
    assert a == 0 or field.has_root(ints(root)[0])
    other = field.array([b]) * field.array([b])
    assert canonical_root(square * other).same(root * canonical_root(other))


@given(operands())
def test_an_element_without_a_root_is_refused(case):
    field, a, _ = case
    if a and not field.has_root(a):
        with pytest.raises(NotASquareError, match="is no square mod"):
            canonical_root(field.array([a]))
        assert field.has_root(field.prime - a)  # p = 3 mod 4: -1 has no root


def test_a_field_with_the_root_of_a_number_has_it():
    assert field_with_root(16) == MERSENNE
    assert not MERSENNE.has_root(3)
    for number in (2, 3, 5, 24, 768):
        field = field_with_root(number)
        root = canonical_root(field.array([number]))
        assert ints(root * root) == [number]


def test_primes_are_those_of_flint():
    numbers = [*range(2**61 - 1, 2**61 - 40_000, -4), *range(39, 20_000, 4)]
    assert [field_module._is_prime(n) for n in numbers] == [fmpz(n).is_prime() for n in numbers]


@pytest.mark.parametrize("c", [0, 2, 3, 5, -3, LARGEST_C + 1])
def test_a_modulus_that_is_no_prime_is_refused(c):
    with pytest.raises(OutsideFieldError, match=rf"c = {c}: expected .* write c = 1"):
        Field(c)


# --- the reading ---------------------------------------------------------------------------------


def by_hand(p: int, x: list[int], root: int, eps: int, name: str) -> list[int]:
    """A norm of gain 3 and bias 5 in Python's integers, its root given."""
    d = len(x) + (name in {"crms", "narrow"})
    mean = sum(x) * pow(d, -1, p) if name == "layer" else 0
    row = [v - mean for v in x]
    square = sum(v * v for v in row) + (sum(x) ** 2 if name == "crms" else 0)
    assert (root * root - square * pow(d, -1, p) - eps) % p == 0
    return [(v * pow(root, -1, p) * 3 + 5) % p for v in row]


@pytest.mark.parametrize(
    ("name", "body"),
    [("layer", layer_norm), ("rms", rms_norm), ("crms", crms_norm), ("narrow", narrow_rms_norm)],
)
@given(st.data(), fields)
def test_norms_are_those_of_integers(name, body, data, field):
    p = field.prime
    x = data.draw(st.lists(elements(field), min_size=2, max_size=5))
    ar = FieldArithmetic(field)
    root = pow(data.draw(st.integers(1, p - 1)), 2, p)  # a square: the canonical one
    seen: list[FieldArray] = []
    recording = FieldArithmetic(field, lambda v: seen.append(v) or v.each(lambda *_: 1))
    body(recording, field.array([x]), ar.number(3), ar.number(5), ar.number(0))
    eps = (root * root - ints(seen[0])[0]) % p
    read = body(ar, field.array([x]), ar.number(3), ar.number(5), field.array([[eps]]))
    assert ints(read) == by_hand(p, x, root, eps, name)


def test_numbers_of_the_reading():
    ar = FieldArithmetic(MERSENNE)
    assert ints(ar.number(Fraction(-2, 3)) * 3) == [MERSENNE.prime - 2]
    assert ints(ar.length(MERSENNE.array([[1, 2, 3]]))) == [3]
    assert ints(ar.sum_rows(MERSENNE.array([[1, 2], [3, 4]]))) == [4, 6]
    assert ints(ar.cast(ar.number(7), "square")) == [7]
    with pytest.raises(ZeroDivisionError):
        ar.number(Fraction(1, MERSENNE.prime))


@pytest.mark.parametrize("name", ["tanh", "erf", "exp"])
def test_what_is_not_algebraic_has_no_value(name):
    ar = FieldArithmetic(MERSENNE)
    with pytest.raises(OutsideFieldError, match=f"{name} has no value"):
        getattr(ar, name)(ar.number(1))


def test_pi_and_folds_have_no_value():
    ar = FieldArithmetic(MERSENNE)
    with pytest.raises(OutsideFieldError, match="pi has no value"):
        ar.pi()
    with pytest.raises(OutsideFieldError, match="a fold"):
        ar.fold((ar.number(1),), lambda a, b: (a + b,))


def test_arrays_of_numpy_leave_the_operation_to_the_field():
    with pytest.raises(OutsideFieldError, match=r"array.*expected an int"):
        np.array([1.5]) + MERSENNE.array([1])


def test_joined_rows_stand_side_by_side():
    assert ints(joined(MERSENNE.array([[1, 2]]), MERSENNE.array([[3]]))) == [1, 2, 3]
