"""Four truths agree: compiled balls, integers in Q(sqrt R), mpmath at 400 bits, and Arb."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import mpmath
import numba
import numpy as np
import pytest

from tests.numeric import voices
from verify.formats import FORMATS, Format, Overflow
from verify.formula import Formula, Identity, Kind, Output
from verify.norms import FORMULAS, IDENTITIES, faulty
from verify.numeric import balls, exact, reference, rounding
from verify.numeric import compile as compiler
from verify.numeric import truth as truth_module
from verify.numeric.decide import sum_equals
from verify.numeric.exact import NotQuadraticError, UndefinedError

ARB_PER_FORMULA = 33_000  # element-format comparisons; 31 formulas make more than a million
MPMATH_PER_FORMULA = 700
LAYER_NORM, RMS_NORM = FORMULAS["layer_norm"], FORMULAS["rms_norm"]
NARROW = tuple(f for f in FORMATS.values() if f.name != "float64")


def outputs_of(formula: Formula, made: dict, fmt: Format) -> tuple[np.ndarray, ...]:
    result = reference(formula, **made, format=fmt)
    return result if isinstance(result, tuple) else (result,)


def agreement(
    formula: Formula, made: dict, formats: tuple[Format, ...], *, mp: bool = False, asked: int = 1
) -> Counter[str]:
    """Compare the truth with the other voices on every output; returns the counts."""
    rows = voices.rows_of(formula, made)
    counts: Counter[str] = Counter()
    heard = {"arb": [voices.arb_bounds(v) for v in voices.by_arb(formula, rows)]}
    if mp:
        doubt = Fraction(formula.id.startswith(voices.TRANSCENDENTAL), 2**380)  # of numbers near 1
        heard["mpmath"] = [voices.mpmath_bounds(v, doubt) for v in voices.by_mpmath(formula, rows)]
    for fmt in formats:
        for k, out in enumerate(outputs_of(formula, made, fmt)):
            for voice, bounds in heard.items():
                found = voices.compare(out, *bounds[k], fmt)
                counts[voice] += found.count
                counts["wrong"] += len(found.wrong)
                counts[f"{voice} unsettled"] += len(found.unsettled)
            counts += integers_agree(formula, rows, k, out, fmt, asked)
    return counts


def integers_agree(
    formula: Formula, rows: voices.Rows, k: int, out: np.ndarray, fmt: Format, every: int
) -> Counter[str]:
    """Compare row outputs with the exact integers, row by row, on every so many columns."""
    counts: Counter[str] = Counter()
    if formula.outputs[k].kind is not Kind.ROW or formula.id.startswith(voices.TRANSCENDENTAL):
        return counts
    flat = np.asarray(out).astype(np.float64).reshape(rows.n, rows.d)
    for i in range(rows.n):
        value = exact.evaluate(formula, rows.block(slice(i, i + 1)))[k]
        for j in range(i % every, rows.d, every):
            right = voices.holds_exactly(exact.element(value, 0, j), float(flat[i, j]), fmt)
            counts["integers"] += 1
            counts["wrong"] += not right
    return counts


# --- the four voices ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMULAS)
def test_four_truths_agree_in_every_format(name):
    """Hard rows of width 32 for all four voices, and of width 512 for Arb."""
    formula, rng = FORMULAS[name], np.random.default_rng(len(name))
    formats = tuple(FORMATS.values())
    made = voices.arguments(formula, voices.hard_rows(rng, 32, 32), rng)
    counts = agreement(formula, made, formats, mp=True, asked=31)
    ties = np.where(np.arange(32) % 2 == 0, 4.0, -4.0) * np.ones((2, 1), np.float32)
    tied = tie_arguments(formula, ties.astype(np.float32), rng)
    counts += agreement(formula, tied, formats, mp=True)
    wide = voices.arguments(formula, voices.hard_rows(rng, 4, 512)[:, ::-1], rng)
    counts += agreement(formula, wide, NARROW, asked=2**9)
    print(f"\n{name}: " + ", ".join(f"{n:,} {voice}" for voice, n in counts.items()))
    assert counts["wrong"] == 0
    assert counts["arb"] >= ARB_PER_FORMULA
    assert counts["mpmath"] >= MPMATH_PER_FORMULA * len(formats)
    assert counts["arb unsettled"] <= counts["arb"] // 100  # beside a saturated erf, at 640 bits


def test_the_comparisons_number_a_million():
    arb, mp = ARB_PER_FORMULA * len(FORMULAS), MPMATH_PER_FORMULA * len(FORMULAS)
    print(f"\nat least {arb:,} comparisons with Arb, {mp:,} elements with mpmath")
    assert arb >= 1_000_000
    assert mp >= 20_000


def tie_arguments(formula: Formula, x: np.ndarray, rng: np.random.Generator) -> dict:
    """eps = 0, weight 1, rows of +-4: x_hat is +-1, and the bias makes ties of every format."""
    d, steps = x.shape[1], voices.tie_steps(x.shape[1]).astype(np.float32)
    around_zero = formula.id.startswith("gemma")
    given = {
        "eps": 0.0,
        "beta": 0.0,
        "weight": np.zeros(d, np.float32) if around_zero else np.ones(d, np.float32),
        "bias": steps,
        "residual": np.zeros_like(x),
        "dresidual_out": np.broadcast_to(1 + steps, x.shape).astype(np.float32),
    }
    return voices.arguments(formula, x, rng, **given)


NEAR_TIES = (
    "rms_norm",
    "layer_norm",
    "layer_norm_welford",
    "layer_norm_backward",
)


@pytest.mark.parametrize("name", NEAR_TIES)
def test_float64_inputs_a_rounding_away_from_a_tie(name):
    """The bias puts the first row 2^-53 beside midpoints; the full tier and the integers decide."""
    formula, rng = FORMULAS[name], np.random.default_rng(5)
    x = rng.standard_normal((4, 32)) * np.array([[1.0], [1e-3], [1e160], [1e-160]])
    x[1] += 1e6
    made = voices.arguments(formula, x, rng)
    if formula.parameter("bias"):
        made["bias"] = np.zeros(32)
        y = outputs_of(formula, made, FORMATS["float64"])[0].reshape(4, 32)[0]
        made["bias"] = 1.0 + voices.tie_steps(32) - y
    counts = agreement(formula, made, tuple(FORMATS.values()), asked=3)
    print(f"\n{name}: {dict(counts)}")
    assert counts["wrong"] == 0
    assert counts["arb unsettled"] == 0


# --- independent, plainly written norms guard the bodies ----------------------------------------

MP = mpmath.mp.clone()
MP.prec = 400


def plain_layer_norm(x: list, weight: list, bias: list, eps: float) -> list:
    mu = MP.fsum(x) / len(x)
    var = MP.fsum((v - mu) ** 2 for v in x) / len(x)
    return [(v - mu) / MP.sqrt(var + eps) * w + b for v, w, b in zip(x, weight, bias, strict=True)]


def plain_rms_norm(x: list, weight: list, bias: list, eps: float) -> list:
    root = MP.sqrt(MP.fsum(v * v for v in x) / len(x) + eps)
    return [v / root * w + b for v, w, b in zip(x, weight, bias, strict=True)]


def plain_group_norm(x: list, groups: int, weight: list, bias: list, eps: float) -> list:
    """x[channel][position] of one sample; every group of channels is normalised together."""
    out, width = [], len(x) // groups
    for g in range(groups):
        channels = range(g * width, (g + 1) * width)
        flat = [v for c in channels for v in x[c]]
        w = [weight[c] for c in channels for _ in x[c]]
        b = [bias[c] for c in channels for _ in x[c]]
        out += plain_layer_norm(flat, w, b, eps)
    return out


def plain_gradient(norm, x: list, weight: list, eps: float, dy: list) -> list:
    """dx by the Jacobian: d y_j / d x_i, written out for each norm."""
    d, mu = len(x), MP.fsum(x) / len(x) if norm is plain_layer_norm else MP.mpf(0)
    c = [v - mu for v in x]
    root = MP.sqrt(MP.fsum(v * v for v in c) / d + eps)
    shared = 1 / MP.mpf(d) if norm is plain_layer_norm else MP.mpf(0)
    return [
        MP.fsum(
            dy[j] * weight[j] * (((i == j) - shared) / root - c[j] * c[i] / (d * root**3))
            for j in range(d)
        )
        for i in range(d)
    ]


def mpf(values: np.ndarray) -> list:
    return [MP.mpf(float(v)) for v in values]


def nearest(values: list, fmt: str) -> np.ndarray:
    exactly = [voices.fraction(v) for v in values]
    return np.array([voices.round_to(FORMATS[fmt], v) for v in exactly])


@pytest.mark.parametrize("fmt", ["float32", "bfloat16", "float8_e4m3fn"])
def test_plain_norms_give_the_same(fmt):
    rng = np.random.default_rng(3)
    x, dy = (voices.hard_rows(rng, 16, 24)[:8], rng.standard_normal((8, 24)).astype(np.float32))
    w, b = voices.hard_weight(rng, 24), voices.hard_weight(rng, 24)[::-1].copy()
    for name, norm in {"layer_norm": plain_layer_norm, "rms_norm": plain_rms_norm}.items():
        y = reference(name, x, w, b, 1e-5, fmt)
        dx, dweight, dbias = reference(f"{name}_backward", x, w, None, 1e-5, fmt, dy=dy)
        hats = []
        for i in range(len(x)):
            row, g = mpf(x[i]), mpf(dy[i])
            assert voices.same(
                y[i].astype(float), nearest(norm(row, mpf(w), mpf(b), 1e-5), fmt)
            ).all()
            expected = nearest(plain_gradient(norm, row, mpf(w), 1e-5, g), fmt)
            assert voices.same(dx[i].astype(float), expected).all()
            hats.append(norm(row, [1] * 24, [0] * 24, 1e-5))
        sums = [MP.fsum(MP.mpf(float(dy[i, j])) * hats[i][j] for i in range(8)) for j in range(24)]
        assert voices.same(dweight.astype(float), nearest(sums, fmt)).all()
        sums = [MP.fsum(mpf(dy[:, j])) for j in range(24)]
        assert voices.same(dbias.astype(float), nearest(sums, fmt)).all()


def test_plain_group_norm_gives_the_same():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 6, 2, 2)).astype(np.float32) + np.float32(100)
    w, b = rng.standard_normal((2, 6)).astype(np.float32)
    for name, groups in {"group_norm": 3, "instance_norm": 6}.items():
        options = {"num_groups": groups} if name == "group_norm" else {}
        y = reference(name, x, w, b, 1e-5, "float32", **options)
        for i in range(3):
            channels = [mpf(x[i, c].ravel()) for c in range(6)]
            expected = nearest(plain_group_norm(channels, groups, mpf(w), mpf(b), 1e-5), "float32")
            assert (y[i].ravel() == expected).all()


# --- full range ---------------------------------------------------------------------------------


def hard_block(rows: list[np.ndarray]) -> np.ndarray:
    return np.stack(rows).astype(np.float32)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm", "layer_norm_backward"])
@pytest.mark.parametrize("d", [1, 2, 3, 257])
def test_range_of_float32_and_odd_widths(name, d):
    rng, formula = np.random.default_rng(d), FORMULAS[name]
    z, spike = rng.standard_normal(d), np.zeros(d)
    spike[d // 2] = np.finfo(np.float32).max
    x = hard_block([z * 1e30, z * 1e-40, z * 1e-44, spike, 0 * z, z + 1e4, 0 * z + 1e30])
    counts = agreement(formula, voices.arguments(formula, x, rng), tuple(FORMATS.values()))
    assert counts["wrong"] == 0


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_range_of_float64_is_decided_exactly(name):
    rng, formula = np.random.default_rng(1), FORMULAS[name]
    x = np.stack([rng.standard_normal(24) * s for s in (1e300, 1e-300, 1e-310, 1.0)])
    x[3, 5] = 1e308
    made = voices.arguments(formula, x, rng) | {"eps": 1e-320}
    counts = agreement(formula, made, tuple(FORMATS.values()))
    assert counts["wrong"] == 0


def test_width_65537():
    rng = np.random.default_rng(2)
    x = (rng.standard_normal((1, 65_537)) + 1000).astype(np.float32)
    for formula in (RMS_NORM, LAYER_NORM, FORMULAS["layer_norm_welford"]):
        made = voices.arguments(formula, x, rng)
        rows = voices.rows_of(formula, made)
        few = np.arange(0, 65_537, 1021)
        heard = voices.by_arb(formula, rows, bits=200)[0][few]
        for fmt in ("float32", "bfloat16"):
            out = reference(formula, **made, format=fmt).ravel()[few]
            found = voices.compare(out, *voices.arb_bounds(heard), FORMATS[fmt])
            assert not found.wrong
            assert not found.unsettled


def test_one_row_many_rows_and_none():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((100_000, 4)).astype(np.float32)
    w, b = rng.standard_normal((2, 4)).astype(np.float32)
    y = reference("layer_norm", x, w, b, 1e-6, "bfloat16")
    some = rng.choice(100_000, 50, replace=False)
    assert (reference("layer_norm", x[some], w, b, 1e-6, "bfloat16") == y[some]).all()
    assert (reference("layer_norm", x[7], w, b, 1e-6, "bfloat16") == y[7]).all()
    empty = np.zeros((0, 4), np.float32)
    assert reference("layer_norm", empty, w, b, 1e-6).shape == (0, 4)
    dx, dweight, dbias = reference("layer_norm_backward", empty, w, None, 1e-6, dy=empty)
    assert dx.shape == (0, 4)
    assert (dweight == 0).all()
    assert (dbias == 0).all()


def test_zero_rows_with_and_without_eps():
    x, bias = np.zeros((2, 6), np.float32), np.full(6, 3.0, np.float32)
    for name in ("rms_norm", "layer_norm", "layer_norm_welford", "layer_norm_folded_shift"):
        assert (reference(name, x, None, bias, 1e-6, "bfloat16") == 3).all()
        assert np.isnan(reference(name, x, None, bias, 0.0, "bfloat16")).all()
    constant = np.full((1, 6), 0.1, np.float32)
    assert np.isnan(reference("layer_norm", constant, None, bias, 0.0)).all()
    assert (reference("rms_norm", constant, None, None, 0.0) == 1).all()


def test_what_is_undefined_touches_nothing_else():
    """The residual beside a 0/0, and dyisru's elements beside a zero one, are still decided."""
    tie = np.full((1, 4), 2.0**-53 * 3)
    y, h = reference("add_layer_norm", np.ones((1, 4)), None, None, 0.0, "float64", residual=tie)
    assert np.isnan(y).all()
    assert (h == 1 + 2.0**-51).all()
    x = np.array([[0.0, 5.0, -5.0]], np.float32)
    bias = np.full(3, 2.0**-24, np.float32)
    y = reference("dyisru", x, None, bias, None, "float32", beta=0.0)
    assert np.isnan(y[0, 0])
    assert y[0, 1:].tolist() == [1.0, -1 + 2.0**-24]
    assert Fraction(-1) + Fraction(1, 2**24) == Fraction(float(y[0, 2]))


# --- infinities and NaN -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_special_values_in_rows_and_features(bad):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((3, 5)).astype(np.float32)
    clean = reference("layer_norm", x, None, None, 1e-5, "bfloat16").astype(float)
    spoilt = x.copy()
    spoilt[1, 2] = bad
    y = reference("layer_norm", spoilt, None, None, 1e-5, "bfloat16").astype(float)
    assert np.isnan(y[1]).all()
    assert (y[[0, 2]] == clean[[0, 2]]).all()
    y = reference("rms_norm", spoilt, None, np.ones(5, np.float32), 1e-5).astype(float)
    others = [0, 1, 3, 4]
    assert np.isnan(y[1, 2])
    assert (y[1, others] == 1).all() if np.isinf(bad) else np.isnan(y[1]).all()
    weight = np.ones(5, np.float32)
    weight[3] = bad
    y = reference("layer_norm", x, weight, None, 1e-5, "bfloat16").astype(float)
    assert voices.same(y[:, 3], clean[:, 3] * bad).all()
    assert (y[:, [0, 1, 2, 4]] == clean[:, [0, 1, 2, 4]]).all()


def test_special_values_in_gradients():
    rng = np.random.default_rng(9)
    x, dy = rng.standard_normal((2, 3, 4)).astype(np.float32)
    spoilt = x.copy()
    spoilt[0, 1] = np.inf
    dx, dweight, dbias = reference("rms_norm_backward", spoilt, None, None, 1e-5, dy=dy)
    rest = reference("rms_norm_backward", x[1:], None, None, 1e-5, dy=dy[1:])
    assert np.isnan(dweight[1])
    assert (dweight[[0, 2, 3]] == rest[1][[0, 2, 3]]).all()  # the row's other terms are dy * 0
    assert (dbias == reference("rms_norm_backward", x, None, None, 1e-5, dy=dy)[2]).all()
    assert (dx[1:] == rest[0]).all()
    weight = np.array([1, np.inf, 1, 1], np.float32)
    dx = reference("rms_norm_backward", x, weight, None, 1e-5, dy=dy)[0]
    assert not np.isfinite(dx).any()  # a row sum sees the weight
    out = np.zeros((3, 4), np.float32)
    out[2, 2] = -np.inf
    made = {"residual": x, "dy": dy, "dresidual_out": out}
    dx = reference("add_rms_norm_backward", x, None, None, 1e-5, **made)[0]
    assert dx[2, 2] == -np.inf
    assert np.isfinite(np.delete(dx.ravel(), 10)).all()


@pytest.mark.parametrize("name", ["dyt", "derf"])
def test_special_values_of_element_wise_formulas(name):
    x = np.array([[np.inf, 0.5, -np.inf, np.nan]], np.float32)
    y = reference(name, x, None, None, None, "float32", alpha=1.0)
    assert y[0, [0, 2]].tolist() == [1, -1]
    assert np.isnan(y[0, 3])
    assert y[0, 1] == reference(name, x[:, 1:2], None, None, None, "float32", alpha=1.0)[0, 0]
    both = np.vstack([x, np.full((1, 4), 0.5, np.float32)])
    dy = np.ones((2, 4), np.float32)
    _, dweight, _ = reference(f"{name}_backward", both, None, None, None, alpha=1.0, dy=dy)
    half = float(reference(name, both[1:], None, None, None, "float64", alpha=1.0)[0, 0])
    assert dweight[[0, 2]].tolist() == [np.float32(1 + half), np.float32(half - 1)]
    assert np.isnan(dweight[3])


# --- dtypes, strides, and the caller's arrays ---------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float64"]
)
def test_narrow_and_wide_inputs_are_taken_exactly(dtype):
    rng = np.random.default_rng(10)
    x = rng.standard_normal((4, 16)).astype(getattr(ml_dtypes, dtype, dtype))
    w = rng.standard_normal(16).astype(x.dtype)
    y = reference("layer_norm", x, w, w, 1e-5, "bfloat16")
    as_double = (x.astype(np.float64), w.astype(np.float64))
    assert (y == reference("layer_norm", as_double[0], *as_double[1:] * 2, 1e-5, "bfloat16")).all()


def test_strides_orders_and_broadcasts_change_nothing_and_inputs_are_left_alone():
    rng = np.random.default_rng(11)
    base = rng.standard_normal((6, 4, 10)).astype(np.float32)
    w, dy = rng.standard_normal(10).astype(np.float32), base[::-1]
    views = {
        "plain": base,
        "fortran": np.asfortranarray(base),
        "transposed": base.transpose(1, 0, 2).copy().transpose(1, 0, 2),
        "strided": np.repeat(base, 2, axis=2)[:, :, ::2],
        "reversed": base[::-1].copy()[::-1],
    }
    expected = reference("layer_norm", base, w, w, 1e-5)
    gradients = reference("layer_norm_backward", base, w, None, 1e-5, dy=dy)
    for name, view in views.items():
        before = view.copy()
        view.flags.writeable = False
        assert (reference("layer_norm", view, w, w, 1e-5) == expected).all(), name
        found = reference("layer_norm_backward", view, w, None, 1e-5, dy=dy)
        assert all((a == b).all() for a, b in zip(found, gradients, strict=True)), name
        assert (view == before).all()
    one = np.broadcast_to(base[0, 0], (5, 10))
    assert (reference("layer_norm", one, w, w, 1e-5) == expected[0, 0]).all()


def test_overflow_follows_the_policy_in_every_tier():
    x = np.array([[1.0, -1.0]], np.float32)
    w = np.full(2, 3e38, np.float32)
    bias = np.array([3e38, -3e38], np.float32)
    top = float(np.finfo(np.float32).max)
    saturate = {"overflow": Overflow.SATURATE}
    assert reference("rms_norm", x, w, bias, 0.0).tolist() == [[np.inf, -np.inf]]
    assert reference("rms_norm", x, w, bias, 0.0, **saturate).tolist() == [[top, -top]]
    wide, edge = np.full(2, 1.7e308), np.array([1.7e308, -1.7e308])
    y = reference("rms_norm", x, wide, edge, 0.0, "float64", **saturate)
    assert y.tolist() == [[np.finfo(np.float64).max, np.finfo(np.float64).min]]


# --- gradients that sum over rows ---------------------------------------------------------------


def test_sums_over_rows_decide_ties_and_roots_that_cancel():
    """dbias sums to midpoints; dweight's irrational terms vanish in pairs, leaving a tie."""
    x = np.array([[1, 2, 4], [-1, -2, -4], [3, -3, 3]], np.float32)
    dy = np.array([[1, 1, 1], [1, 1, 1], [2.0**-24, 1 + 2.0**-23, 3]], np.float32)
    _, dweight, dbias = reference("rms_norm_backward", x, None, None, 0.0, dy=dy)
    exactly = dy.astype(np.float64).sum(axis=0)
    assert dbias.tolist() == [np.float32(v) for v in exactly]
    assert dweight.tolist() == [2.0**-24, -1 - 2.0**-23, 3]
    _, dweight, dbias = reference("rms_norm_backward", x, None, None, 0.0, "bfloat16", dy=dy)
    assert dweight.astype(float).tolist() == [2.0**-24, -1, 3]
    dy = np.array([[1, 1, 1], [1, 1, 1], [1 + 2.0**-8, -1 - 3 * 2.0**-8, 1]], np.float32)
    _, dweight, _ = reference("rms_norm_backward", x, None, None, 0.0, "bfloat16", dy=dy)
    assert dweight.astype(float).tolist() == [1, 1 + 2.0**-6, 1]


def test_sums_over_rows_that_vanish_in_every_format():
    x = np.array([[1, 2, 4], [-1, -2, -4]], np.float32)
    dy = np.ones((2, 3), np.float32)
    for fmt in FORMATS.values():
        dweight = reference("rms_norm_backward", x, None, None, 1e-5, fmt, dy=dy)[1].astype(float)
        assert np.isnan(dweight).all() if not fmt.has_zero else (dweight == 0).all(), fmt.name


@pytest.mark.parametrize(
    "name", ["group_norm_backward", "instance_norm_backward", "qk_norm_backward"]
)
def test_layouts_sum_over_positions_and_heads(name):
    rng, formula = np.random.default_rng(12), FORMULAS[name]
    x = (rng.standard_normal((12, 32)) * 3 + 50).astype(np.float32)
    made = voices.arguments(formula, x, rng)
    counts = agreement(formula, made, tuple(FORMATS.values()))
    assert counts["wrong"] == 0
    dweight = outputs_of(formula, made, FORMATS["float32"])[1]
    assert dweight.shape == made["weight"].shape


# --- identities ---------------------------------------------------------------------------------


TWO_ROOTS = ("NARROW_RMS_NORM_IS_SCALED_RMS_NORM",)  # sqrt(d/(d-1)) meets the row's own root


def side_of(identity: Identity, body) -> Formula:
    outputs = (Output("value"),)
    return Formula("side", body, identity.parameters, outputs, identity.domain, identity.citation)


def identity_values(identity: Identity, d: int, rng: np.random.Generator) -> dict:
    """Small integers over 8."""
    values = {}
    for p in identity.parameters:
        shape = {"row": (1, d), "feature": (1, d), "row_number": (1, 1)}.get(p.kind)
        drawn = rng.integers(-40, 41, shape or (1, 1)) / 8.0
        values[p.name] = drawn if shape else float(abs(drawn[0, 0])) + 0.125
    return values


def both_sides(identity: Identity, d: int, seed: int) -> list:
    """Each side's exact elements."""
    values = identity_values(identity, d, np.random.default_rng(seed))
    return [
        exact.evaluate(side_of(identity, body), values) for body in (identity.left, identity.right)
    ]


def difference_is_zero(left, right, d: int) -> bool:
    """Whether every element of a - b is 0; the two may hold different roots."""
    for a, b in zip(left, right, strict=True):
        for j in range(d):
            x, y = exact.element(a, 0, j), exact.element(b, 0, j)
            minus = replace(y, a=-y.a, b=-y.b)
            if not sum_equals([x, minus], Fraction(0)):
                return False
    return True


@pytest.mark.parametrize("name", [n for n in IDENTITIES if n not in TWO_ROOTS])
def test_identities_hold_exactly(name):
    for d in (2, 3, 5, 8):
        for seed in range(3):
            assert difference_is_zero(*both_sides(IDENTITIES[name], d, seed), d), d


@pytest.mark.parametrize("name", TWO_ROOTS)
def test_identities_of_two_roots_hold_to_4000_bits(name):
    """A product of two roots leaves Q(sqrt R): the balls of both sides must meet, and be tiny."""
    identity, rng = IDENTITIES[name], np.random.default_rng(0)
    for d in (2, 3, 5, 8):
        values = identity_values(identity, d, rng)
        sides = [
            voices.balls_of(side_of(identity, body), values, 4000)
            for body in (identity.left, identity.right)
        ]
        for a, b in zip(*sides, strict=True):
            assert (a - b).contains(0)
            assert (a - b).rad() < 2.0**-1000


def test_planted_identity_is_refuted():
    wrong = replace(IDENTITIES["ONE_PASS_IS_TWO_PASS"], right=faulty(LAYER_NORM, "no eps").body)
    assert not difference_is_zero(*both_sides(wrong, 3, 0), 3)


# --- planted: a wrong truth is caught -----------------------------------------------------------


def planted_counts(formula: Formula, **given) -> Counter[str]:
    """The agreement of a formula with the voices of the right one, beside midpoints."""
    rng = np.random.default_rng(13)
    right = FORMULAS[formula.id.split(" ")[0]]
    made = voices.arguments(right, rng.standard_normal((1, 48)) + 1e3, rng, **given)
    made["bias"] = np.zeros(48)
    y = outputs_of(right, made, FORMATS["float64"])[0][0]
    made["bias"] = 1.0 + voices.tie_steps(48) - y
    rows = voices.rows_of(right, made)
    counts: Counter[str] = Counter()
    for fmt in NARROW:
        out = outputs_of(formula, made, fmt)
        for k, v in enumerate(voices.by_arb(right, rows)):
            counts["wrong"] += len(voices.compare(out[k], *voices.arb_bounds(v), fmt).wrong)
    return counts


@pytest.fixture
def fresh_kernels():
    """Kernels compiled in a test must not outlive what it plants, nor may operations."""
    for op in (balls.add, balls.sub, balls.mul, balls.div):
        op(1.0, 0.0, 0.0, 2.0, 0.0, 0.0)
    balls.sqrt(2.0, 0.0, 0.0)
    compiler._compiled_source.cache_clear()
    yield
    compiler._compiled_source.cache_clear()


def test_the_right_truth_passes_where_the_planted_ones_fail():
    assert planted_counts(LAYER_NORM)["wrong"] == 0


def test_planted_sum_without_its_errors_is_caught(monkeypatch, fresh_kernels):
    """Row sums kept to float64 alone, under a radius that does not say so."""

    def careless(a, b):
        return a + b, 0.0

    monkeypatch.setattr(balls, "two_sum", numba.njit(careless))
    assert planted_counts(LAYER_NORM)["wrong"] > 0


def test_planted_radius_of_zero_is_caught(monkeypatch):
    """Every ball taken for a point: the filter then closes what it cannot know."""
    run = truth_module.Truth._run

    def pointlike(self, tier, block, sums):
        made = run(self, tier, block, sums)
        for ball in made.values():
            ball[-1] = 0.0
        return made

    monkeypatch.setattr(truth_module.Truth, "_run", pointlike)
    assert planted_counts(LAYER_NORM)["wrong"] > 0


@pytest.mark.parametrize("fault", ["divisor d-1 instead of d", "eps outside the square root"])
def test_planted_body_is_caught(fault):
    assert planted_counts(faulty(LAYER_NORM, fault), eps=0.5)["wrong"] > 0


def test_planted_double_rounding_is_caught():
    """float64, then float32, then bfloat16: wrong beside midpoints, where the truth is right."""
    x = np.full((1, 64), 4.0, np.float32)
    w = np.ones(64, np.float32)
    bias = np.tile(np.array([2.0**-8 + 2.0**-30, 2.0**-8 - 2.0**-30]), 32)
    made = {"x": x, "weight": w, "bias": bias, "eps": 0.0}
    heard = voices.by_arb(RMS_NORM, voices.rows_of(RMS_NORM, made))[0]
    bounds, fmt = voices.arb_bounds(heard), FORMATS["bfloat16"]
    twice = (x.astype(np.float64) / 4.0 * w + bias).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert len(voices.compare(twice, *bounds, fmt).wrong) == 32
    assert not voices.compare(reference("rms_norm", **made, format=fmt), *bounds, fmt).wrong


# --- the narrow corners of the decision ---------------------------------------------------------


def test_terms_that_cancel_far_beyond_the_first_enclosure():
    """a + b sqrt(R) of 2^-300 beside terms of 1: the enclosure must shrink before it decides."""
    root = exact.math.isqrt(2 << 600)
    value = exact.Quadratic(-root, 1 << 300, 1 << 300, 2)
    ends = value.enclosure(5000)
    for fmt in FORMATS.values():
        found = rounding_of(value, fmt)
        assert voices.same(found, voices.round_to(fmt, ends[0])), fmt.name


def rounding_of(value: exact.Quadratic, fmt: Format) -> float:
    return truth_module.decide.round_quadratic(value, rounding.Rounder(fmt, fmt.overflow))


def test_an_interval_across_zero_is_no_nan():
    """Both ends overflow to NaN, the middle does not: nothing may be concluded."""
    wide = (Fraction(-1000), Fraction(1000))
    e4m3, e8m0 = FORMATS["float8_e4m3fn"], FORMATS["float8_e8m0fnu"]
    assert rounding.Rounder(e4m3, e4m3.overflow).round_interval(wide) is None
    across = (Fraction(-1), Fraction(2) ** 200)
    assert rounding.Rounder(e8m0, e8m0.overflow).round_interval(across) is None


def test_reciprocals_by_a_conjugate_that_vanishes():
    """1/(sqrt(1) + 1): the norm a^2 - b^2 R is 0, the number is not."""
    x = np.array([[1.0, -1.0]], np.float32)
    wrong = faulty(LAYER_NORM, "eps outside the square root")
    assert reference(wrong, x, None, None, 1.0, "float64").tolist() == [[0.5, -0.5]]
    with pytest.raises(UndefinedError):
        exact.evaluate(RMS_NORM, {"x": 0 * x, "weight": x, "bias": x, "eps": 0.0})
    with pytest.raises(NotQuadraticError):
        exact.evaluate(FORMULAS["dyt"], {"x": x, "weight": x, "bias": x, "alpha": 1.0})


def test_a_vanished_negative_value_keeps_its_sign_where_the_format_has_it():
    x = np.array([[1e4, -1e-4]], np.float32)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float32"):
        y = reference("rms_norm", x * np.float32(1e-30), None, None, 1e30, name)
        zero = y[0, 1].astype(float)
        assert zero == 0
        assert np.signbit(zero) == FORMATS[name].has_negative_zero, name


def test_ties_beside_a_saturated_tanh_fall_inwards():
    """tanh(1e30) < 1 by less than any precision shows; w + b may be a midpoint, or beside one."""
    x, big = np.full((1, 3), 1e30, np.float32), 2.0**300
    weight = np.array([1.0, 1.0, big * (1 + 2.0**-24)])
    bias = np.array([2.0**-24, 2.0**-24 + 2.0**-60, 2.0**-1074])
    for name in ("dyt", "derf"):
        y = reference(name, x, weight, bias, None, "float32", alpha=1.0, overflow=Overflow.SATURATE)
        assert y[0, :2].tolist() == [1.0, 1 + 2.0**-23]
        y = reference(name, x[:, 2:], weight[2:], bias[2:], None, "float64", alpha=1.0)
        assert y[0, 0] == weight[2]
        scaled = reference(
            name, x, -weight / big, np.full(3, -(2.0**-1074)), None, "float32", alpha=1.0
        )
        assert scaled[0, 2] == -(1 + 2.0**-23)  # the bias, 2^-1074, outweighs what tanh lacks


# --- memory and imports -------------------------------------------------------------------------

MEMORY = """
import tracemalloc
import numpy as np
from verify.numeric import reference

rng = np.random.default_rng(0)
x = rng.standard_normal((100_000, 512), dtype=np.float32)
dy = rng.standard_normal(x.shape, dtype=np.float32)
dy[:, :64] = rng.integers(-8, 9, (100_000, 64))
w = np.ones(512, np.float32)
for name, more in (("layer_norm", {}), ("layer_norm_backward", {"dy": dy})):
    small = {key: value[:64] for key, value in more.items()}
    reference(name, x[:64], w, None, 1e-5, "bfloat16", **small)  # compiles
    tracemalloc.start()  # NumPy reports its arrays to it; compiled code allocates nothing
    y = reference(name, x, w, None, 1e-5, "bfloat16", **more)
    print((tracemalloc.get_traced_memory()[1] - x.nbytes / 2) / 2**20)
    tracemalloc.stop()
"""


def test_extra_memory_is_bounded():
    """Beyond input and output at most 64 MB for 100,000 rows of 512; some dbias tie in bfloat16."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True, timeout=280
    )
    forward, backward = map(float, done.stdout.split())
    print(f"\nextra memory: {forward:.1f} MB forward, {backward:.1f} MB backward")
    assert 0 < forward <= 64
    assert 0 < backward <= 64


def test_the_truth_imports_no_torch():
    code = "import sys, verify.numeric; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
