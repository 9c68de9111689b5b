"""Element-wise replacements in numbers: where tanh rounds to 1, and how far a replacement is off.

Rounding is ml_dtypes' and NumPy's, tanh is mpmath's in 60 digits: neither knows the theorems.
"""

from fractions import Fraction
from functools import cache

import ml_dtypes
import mpmath
import numpy as np
import pytest

from verify.formats import format_named, round_to
from verify.norms.forward import dyt, layer_norm, rms_norm
from verify.numeric.mp import MpArithmetic
from verify.symbolic.siblings import reason_if_true, siblings
from verify.symbolic.theorem import theorem_named
from verify.symbolic.theorems import elementwise
from verify.symbolic.theorems.elementwise import FORMATS, saturation
from verify.symbolic.trusted import rejections

OWN = [n for n, f in vars(elementwise).items() if n.isupper() and getattr(f, "__doc__", None)]
OWN = [n for n in OWN if callable(vars(elementwise)[n])]
CONTEXT = mpmath.mp.clone()
CONTEXT.dps = 60
NUMBER = np.frompyfunc(CONTEXT.mpf, 1, 1)


def numpy_type(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


# ml_dtypes rounds a float64 to float32 first: nearer to the threshold than this, that may decide.
GAP = CONTEXT.mpf(2) ** -12


def tanh_at(u):
    return CONTEXT.tanh(CONTEXT.log(CONTEXT.mpf(u)) / 2)


def rounded_tanh(name, u):
    """tanh(log(u) / 2) in the format."""
    return np.float64(tanh_at(u)).astype(numpy_type(name))


def values_up_to_one(name):
    """The last values of a format up to 1; all from 0 on if there are not too many."""
    kind = numpy_type(name)
    bits = np.dtype(f"u{kind.itemsize}")
    one = int(np.ones(1, kind).view(bits)[0])
    return np.arange(max(0, one - 20_000), one + 1).astype(bits).view(kind)


# --- where tanh rounds to 1 ----------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_the_precision_of_each_format(name):
    below, one = values_up_to_one(name)[-2:]
    assert (float(one), 1 - float(below)) == (1.0, 2.0 ** -FORMATS[name])


@pytest.mark.parametrize("name", FORMATS)
def test_tanh_rounds_to_one_from_the_threshold_on(name):
    threshold = saturation(FORMATS[name])
    for u in (threshold, threshold + 1, 2 * threshold):
        assert float(rounded_tanh(name, u)) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_tanh_does_not_round_to_one_before_it(name):
    threshold = saturation(FORMATS[name])
    for u in (threshold * (1 - GAP), threshold * (1 - 4 * GAP)):
        assert float(rounded_tanh(name, u)) == 1 - 2.0 ** -FORMATS[name]


@pytest.mark.parametrize("name", FORMATS)
def test_the_search_for_the_threshold_ends_there(name):
    """Bisection over e^(2a) for the place where the rounding changes."""
    low, high = CONTEXT.mpf(1), CONTEXT.mpf(2) ** 40
    while high > low * (1 + GAP / 2):
        middle = (low + high) / 2
        low, high = (low, middle) if float(rounded_tanh(name, middle)) == 1 else (middle, high)
    assert abs(high / saturation(FORMATS[name]) - 1) < GAP


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("side", [-1, 1])
def test_an_exact_rounding_changes_there_to_30_digits(name, side):
    fmt = format_named(name)
    t = tanh_at(saturation(FORMATS[name]) * (1 + side * CONTEXT.mpf("1e-30")))
    rounded = round_to(fmt, Fraction(int(t.man)) * Fraction(2) ** int(t.exp))
    assert (float(rounded) == 1) == (side == 1)


@pytest.mark.parametrize("name", FORMATS)
def test_the_gradient_is_zero_where_tanh_is_one_and_nowhere_else(name):
    t = values_up_to_one(name)
    one = np.ones(1, t.dtype)
    zero = (one - (t * t).astype(t.dtype)).astype(t.dtype).astype(np.float64) == 0
    assert zero[-1]
    assert not zero[:-1].any()


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_lost_is_less_than_the_spacing(name):
    """At the threshold and beyond it, by the derivative of mpmath's tanh."""
    spacing = CONTEXT.mpf(2) ** -FORMATS[name]
    for factor in (1, 2, 16):
        a = CONTEXT.log(factor * CONTEXT.mpf(saturation(FORMATS[name]))) / 2
        assert 0 < CONTEXT.diff(CONTEXT.tanh, a) < spacing


# --- how far a replacement is off ----------------------------------------------------------------


def last(norm, row):
    ar = MpArithmetic(len(row), CONTEXT)
    return norm(ar, NUMBER(np.array([row])), NUMBER(1), NUMBER(0), CONTEXT.mpf(0))[0, -1]


@pytest.mark.parametrize("d", [2, 5, 64])
@pytest.mark.parametrize("alpha", [CONTEXT.mpf(1) / 8, CONTEXT.mpf(1), CONTEXT.mpf(64)])
def test_dyt_with_any_gain_misses_one_of_two_rows(d, alpha):
    one_hot, constant = [0] * (d - 1) + [3], [3] * d
    ar, bound = MpArithmetic(1, CONTEXT), (CONTEXT.sqrt(d) - 1) / 2
    worst = []
    for gain in np.linspace(-2, 2 * d, 41):
        y = dyt(ar, NUMBER(np.array([[3]])), CONTEXT.mpf(gain), CONTEXT.mpf(0), alpha)[0, 0]
        worst.append(max(abs(y - last(rms_norm, row)) for row in (one_hot, constant)))
    assert min(worst) >= bound
    assert min(worst) < bound + d  # the gains tried come near the bound: it is no idle one


@pytest.mark.parametrize("d", [2, 5, 64])
def test_no_number_is_nearer_to_both_values_of_layer_norm_than_zero(d):
    low, high = last(layer_norm, [4] * (d - 1) + [3]), last(layer_norm, [2] * (d - 1) + [3])
    worst = [max(abs(f - low), abs(f - high)) for f in NUMBER(np.linspace(-9, 9, 37))]
    assert abs(min(worst) - CONTEXT.sqrt(d - 1)) < CONTEXT.mpf("1e-50")
    assert worst.index(min(worst)) == 18  # at 0


def test_the_least_squares_gain_is_that_of_a_solver():
    rng = np.random.default_rng(3)
    z, y = np.tanh(rng.normal(size=50)), rng.normal(size=50)
    (solved,), *_ = np.linalg.lstsq(z[:, None], y, rcond=None)
    assert (y @ z) / (z @ z) == pytest.approx(solved, rel=1e-12)
    assert np.sqrt(y @ y / (z @ z)) != pytest.approx(solved, rel=1e-2)
    assert np.mean(y / z) != pytest.approx(solved, rel=1e-2)


# --- the theorems --------------------------------------------------------------------------------


@cache
def stated(name):
    return theorem_named(name)


@pytest.mark.parametrize("name", OWN)
def test_the_prover_accepts(name):
    claims = stated(name).claims
    assert claims
    assert [c.name for c in claims if rejections(c, stated(name).setting)] == []


@pytest.mark.parametrize("name", OWN)
def test_a_wrong_sibling_is_rejected_or_explained(name):
    found = siblings(stated(name))
    assert len([s for s in found if s.rejected]) >= 10
    assert all(s.rejected or reason_if_true(s, stated(name).setting) for s in found)


def test_a_threshold_that_is_off_by_one_is_rejected(monkeypatch):
    monkeypatch.setattr(elementwise, "saturation", lambda p: 2 ** (p + 2))
    made = theorem_named("WHERE_DYT_SATURATES")
    refused = [c.name for c in made.claims if rejections(c, made.setting)]
    assert len(refused) == len(FORMATS)
