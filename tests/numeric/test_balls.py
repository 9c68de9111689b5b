"""Every ball operation against exact rationals: the true value lies in the ball that comes out.

Operands are drawn with radii; true values are taken at the ends of their balls and inside. What a
computed radius may have lost to its own rounding is WIDEN, so containment is tested with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verify.norms import FORMULAS
from verify.numeric import balls
from verify.numeric.compile import accumulated, compensation_loss
from verify.numeric.tree import Node, trace
from verify.numeric.truth import fold_spatial

many = settings(max_examples=10 * settings.default.max_examples)
Ball = tuple[float, float, float]


# --- the checker --------------------------------------------------------------------------------


def ends(ball: Ball) -> tuple[Fraction, Fraction] | None:
    """The exact ends of a computed ball, None if it promises nothing."""
    if not all(map(math.isfinite, ball)):
        return None
    h, l, e = map(Fraction, ball)
    return h + l - e * Fraction(balls.WIDEN), h + l + e * Fraction(balls.WIDEN)


def holds(ball: Ball, low: Fraction, high: Fraction) -> bool:
    """Whether the ball contains [low, high]; a ball that is not finite contains everything."""
    found = ends(ball)
    return found is None or (found[0] <= low and high <= found[1])


def values_in(ball: Ball) -> list[Fraction]:
    """True values that a ball admits: its ends, its centre, and one between."""
    h, l, e = map(Fraction, ball)
    return [h + l + e * share for share in (Fraction(-1), Fraction(0), Fraction(3, 7), Fraction(1))]


def root_between(value: Fraction) -> tuple[Fraction, Fraction]:
    """Rationals around the square root, 2^-400 relative apart."""
    shift = max(0, 1200 - (value.numerator.bit_length() - value.denominator.bit_length()))
    shift += shift % 2
    scaled = (value.numerator << shift) // value.denominator
    low = math.isqrt(scaled)
    unit = Fraction(2) ** (shift // 2)
    return Fraction(low) / unit, Fraction(low + 1) / unit


BINARY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def binary_is_right(op: Callable[..., Ball], name: str, a: Ball, b: Ball) -> bool:
    """Whether ``op``'s ball holds the exact result for every sampled pair of true values."""
    result = op(*a, *b)
    if name == "div" and any(v == 0 for v in values_in(b)):
        return ends(result) is None
    exact = [BINARY[name](x, y) for x in values_in(a) for y in values_in(b)]
    return holds(result, min(exact), max(exact))


def root_is_right(op: Callable[..., Ball], a: Ball) -> bool:
    """The same for a square root."""
    result = op(*a)
    roots = [root_between(v) for v in values_in(a) if v > 0]
    return not roots or holds(result, min(r[0] for r in roots), max(r[1] for r in roots))


# --- operands -----------------------------------------------------------------------------------

MANTISSAS = st.one_of(
    st.integers(1 << 52, (1 << 53) - 1),
    st.sampled_from([1 << 52, (1 << 52) + 1, (1 << 53) - 1, 3 << 51, (3 << 51) + 1]),
)
EXPONENTS = st.one_of(st.integers(-60, 60), st.integers(-1126, 400), st.integers(-1126, -960))


@st.composite
def floats(draw: Any, exponents: Any = EXPONENTS) -> float:
    sign = draw(st.sampled_from([1.0, -1.0]))
    return sign * math.ldexp(float(draw(MANTISSAS)), draw(exponents) - 53)


@st.composite
def ball_of(draw: Any, high: float | None = None) -> Ball:
    """A normalised double-double with a radius from 0 to a hundredth of the value."""
    h = draw(floats()) if high is None else high
    l = math.ldexp(draw(st.floats(-1.0, 1.0)), -53) * h * draw(st.sampled_from([0.0, 1.0, 1e-8]))
    l = l if h + l == h else 0.0
    e = abs(h) * draw(st.sampled_from([0.0, 2.0**-100, 2.0**-60, 2.0**-52, 1e-9, 1e-2]))
    return h, l, e


@st.composite
def pairs(draw: Any) -> tuple[Ball, Ball]:
    """Two balls; often nearly opposite, so that a sum cancels."""
    a = draw(ball_of())
    if draw(st.booleans()):
        return a, draw(ball_of())
    near = -a[0] * (1.0 + draw(st.integers(-4, 4)) * 2.0**-52)
    return a, draw(ball_of(high=near or 1.0))


# --- the operations -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_binary_operation_contains_the_exact_result(name):
    op = getattr(balls, name)

    @many
    @given(pairs())
    def contained(operands):
        a, b = operands
        assert binary_is_right(op, name, a, b), (a, b, op(*a, *b))

    contained()


@many
@given(ball_of())
def test_root_contains_the_exact_result(a):
    positive = (abs(a[0]), math.copysign(a[1], a[0]) * math.copysign(1.0, a[1]), a[2])
    assert root_is_right(balls.sqrt, positive), (positive, balls.sqrt(*positive))


@many
@given(floats(), floats())
def test_results_are_normalised_and_two_sum_is_exact(a, b):
    s, t = balls.two_sum(a, b)
    assert Fraction(s) + Fraction(t) == Fraction(a) + Fraction(b)
    for op in (balls.add, balls.sub, balls.mul, balls.div):
        h, l, _ = op(a, 0.0, 0.0, b, 0.0, 0.0)
        assert not math.isfinite(h + l) or h + l == h


@pytest.mark.parametrize("tiny", [2.0**-1000, 2.0**-1040, 3.0 * 2.0**-1073])
def test_remainders_that_underflow_are_in_the_radius(tiny):
    """Between 2^-1074 and 2^-916 the remainder of a root or quotient is not a float64."""
    for k in range(64):
        value = tiny * (1.0 + k / 64.0)
        assert root_is_right(balls.sqrt, (value, 0.0, 0.0))
        divisor = (math.ldexp(1.0 + k / 97.0, -500), 0.0, 0.0)
        assert binary_is_right(balls.div, "div", (value, 0.0, 0.0), divisor)


@many
@given(floats(st.integers(-1070, 1000)), st.integers(-(1 << 52), 1 << 52), st.integers(24, 51))
def test_rounding_to_odd_is_undone_by_no_second_rounding(h, part, bits):
    """Rounded to 51 bits or fewer, the odd float and the exact sum give the same."""
    h, l = balls.two_sum(h, math.ldexp(h, -53) * part * 2.0**-52)
    exact, odd = Fraction(h) + Fraction(l), Fraction(balls.to_odd(h, l))
    shift = bits - math.frexp(h)[1]
    unit = Fraction(2) ** shift
    assert round(exact * unit) == round(odd * unit)
    assert (exact == odd) == (l == 0.0)


def test_rounding_to_odd_leaves_an_overflow_infinite():
    top = float(np.finfo(np.float64).max)
    for sign in (1.0, -1.0):
        assert balls.to_odd(*balls.two_sum(sign * top, sign * top)) == sign * math.inf


def test_division_near_zero_promises_nothing():
    assert balls.div(1.0, 0.0, 0.0, 1.0, 0.0, 1.0)[2] == math.inf
    assert balls.div(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)[2] == math.inf
    assert math.isnan(balls.sqrt(-1.0, 0.0, 2.0)[0])


# --- compensated sums ---------------------------------------------------------------------------


@numba.njit(error_model="numpy")
def lanes_of_four(values: Any) -> tuple[float, float, float]:
    """The loop that the compiler writes: four lanes, merged; and the sum of magnitudes."""
    s, c, a = np.zeros(4), np.zeros(4), 0.0
    whole = len(values) // 4 * 4
    for j in range(len(values)):
        k = j % 4 if j < whole else 0
        s[k], carry = balls.two_sum(s[k], values[j])
        c[k] += carry
        a += abs(values[j])
    for k in range(1, 4):
        s[0], carry = balls.two_sum(s[0], s[k])
        c[0] += carry + c[k]
    h, low = balls.two_sum(s[0], c[0])
    return h, low, a


def sum_is_right(values: np.ndarray, loss: Callable[[int], float] = compensation_loss) -> bool:
    h, l, size = lanes_of_four(values)
    exact = sum(map(Fraction, values.tolist()), Fraction(0))
    return holds((h, l, loss(len(values) // 4 + 8) * size), exact, exact)


@many
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.sampled_from([0, 30, 300, 1000]))
def test_compensated_sum_contains_the_exact_sum(seed, n, spread):
    """Terms over a wide range, most of them paired with their negatives, so that all cancels."""
    rng = np.random.default_rng(seed)
    values = np.ldexp(rng.standard_normal(n), rng.integers(-spread, 1, n))
    opposite = -values[rng.permutation(n)] * (1.0 + (rng.random(n) < 0.1) * 2.0**-50)
    both = np.concatenate([values, opposite])
    rng.shuffle(both)
    assert sum_is_right(values)
    assert sum_is_right(both)


@many
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 12))
def test_sums_of_features_are_folded_with_their_carries(seed, n, spatial):
    rng = np.random.default_rng(seed)
    terms = np.ldexp(rng.standard_normal((n, 2 * spatial)), rng.integers(-70, 1, (n, 2 * spatial)))
    sums = np.zeros((4, 1, 2 * spatial))
    for row in terms:
        sums[0, 0], carry = balls.two_sum.py_func(sums[0, 0], row)
        sums[1, 0] += carry
        sums[3, 0] += abs(row)
    h, l, e, size = fold_spatial(sums, spatial)
    for f in range(2):
        exact = sum(map(Fraction, terms[:, f * spatial : (f + 1) * spatial].ravel().tolist()))
        radius = e[0, f] + compensation_loss(n + 1 + spatial) * size[0, f]
        assert holds((h[0, f], l[0, f], radius), exact, exact)


# --- radii --------------------------------------------------------------------------------------


def test_roundings_of_a_radius_stay_within_widen():
    """8 roundings for each node of the tree written out; (1 - 2^-53)^-k <= WIDEN to k = 2^23."""

    @cache
    def size(node: Node) -> int:
        return 1 + sum(map(size, node.args))

    largest = max(8 * size(root) for f in FORMULAS.values() for root in trace(f))
    print(f"\nroundings on the way of a radius: at most {largest}")
    assert largest < 2**16
    assert accumulated(1000) >= (1 - Fraction(1, 2**53)) ** -1000


# --- planted: the checker sees a radius without its error term ----------------------------------


def without_local_error(op: Callable[..., Ball]) -> Callable[..., Ball]:
    """The operation with its propagated radius alone: exact operands give radius 0."""

    def wrong(*operands: float) -> Ball:
        h, l, _ = op(*operands)
        return h, l, 0.0

    return wrong


def hard_exact_operands() -> list[Ball]:
    rng = np.random.default_rng(7)
    high = rng.standard_normal(200)
    low = high * 2.0**-54 * rng.uniform(-1, 1, 200)
    return [(float(h), float(l), 0.0) for h, l in zip(high, low, strict=True)]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_planted_missing_error_term_is_caught(name):
    operands = hard_exact_operands()
    op = getattr(balls, name)
    wrong = without_local_error(op)
    couples = list(zip(operands[::2], operands[1::2], strict=True))
    assert all(binary_is_right(op, name, a, b) for a, b in couples)
    assert not all(binary_is_right(wrong, name, a, b) for a, b in couples)


def test_planted_missing_error_term_of_a_root_is_caught():
    operands = [(abs(h), math.copysign(l, h), e) for h, l, e in hard_exact_operands()]
    assert all(root_is_right(balls.sqrt, a) for a in operands)
    assert not all(root_is_right(without_local_error(balls.sqrt), a) for a in operands)


def test_planted_propagation_without_the_other_radius_is_caught():
    def wrong(ah: float, al: float, ae: float, bh: float, bl: float, _: float) -> Ball:
        return balls.mul(ah, al, ae, bh, bl, 0.0)

    a, b = (1.5, 0.0, 1e-9), (2.5, 0.0, 1e-9)
    assert binary_is_right(balls.mul, "mul", a, b)
    assert not binary_is_right(wrong, "mul", a, b)


def test_planted_uncompensated_loss_is_caught():
    rng = np.random.default_rng(11)
    samples = [np.ldexp(rng.standard_normal(400), rng.integers(-40, 1, 400)) for _ in range(20)]
    assert all(sum_is_right(v) for v in samples)
    assert not all(sum_is_right(v, loss=lambda _: 0.0) for v in samples)
