"""Contracts: their bounds hold, are nearly attained, and catch a kernel that breaks them."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import data

from verify.formats import Rounding, format_named, round_to
from verify.norms import FORMULAS
from verify.numeric import affine
from verify.numeric.contract import Contract, allowed, bound
from verify.numeric.families import contracts_for, faults_for, tolerance
from verify.numeric.order import EIGHT_LANES, PAIRWISE, SEQUENTIAL, Order
from verify.numeric.rounded import rounded_to
from verify.numeric.strategies import arguments
from verify.numeric.truth import reference

U32 = 2.0**-24
FORMATS = ("float32", "bfloat16", "float16", "float64")
FORWARD = [f for f in FORMULAS.values() if not f.differentiates and "shift" not in f.id]


def as_tuple(outputs):
    return outputs if isinstance(outputs, tuple) else (outputs,)


def worst_ratio(contract, args):
    """The largest |rounded reading - truth| / bound; must not exceed 1."""
    return worst_ratios([contract], args)[contract.name]


def worst_ratios(contracts, args):
    """The same for several contracts of one formula, by name."""
    args = dict(args)
    groups = args.pop("num_groups", None)
    definition = FORMULAS[contracts[0].formula]
    truth = as_tuple(reference(definition, **args, format="float64", num_groups=groups))
    return {c.name: _worst(c, args, groups, truth) for c in contracts}


def _worst(contract, args, groups, truth):
    got = contract.run(args, groups)
    limits = bound(contract, args, groups)
    return max(
        (_ratio(g, t, limit) for g, t, limit in zip(got, truth, limits, strict=True)), default=0.0
    )


def _ratio(got, truth, limit):
    with np.errstate(all="ignore"):
        exact = truth.astype(np.float64)
        # the float64 truth is itself rounded once
        error = np.abs(got.astype(np.float64) - exact) - 2.0**-53 * np.abs(exact)
        known = np.isfinite(limit)
        ratio = np.where(error <= 0, 0.0, error / limit)
        unguaranteed = known & ~np.isfinite(got.astype(np.float64)) & np.isfinite(exact)
    if np.any(unguaranteed):
        return np.inf
    return float(np.max(ratio[known], initial=0.0))


HALF = settings(max_examples=settings.default.max_examples // 2)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("formula", FORWARD, ids=lambda f: f.id)
@HALF
@given(data=data())
def test_no_kernel_that_keeps_a_contract_exceeds_its_bound(formula, fmt, data):
    args = data.draw(arguments(formula, format=fmt, max_d=17, max_rows=2))
    ratios = worst_ratios(contracts_for(formula.id, fmt), args)
    assert max(ratios.values()) <= 1.0, ratios


@pytest.mark.parametrize("formula", ["rms_norm_backward", "layer_norm_backward"])
@pytest.mark.parametrize("fmt", ["float32", "bfloat16"])
@HALF
@given(data=data())
def test_no_gradient_that_keeps_a_contract_exceeds_its_bound(formula, fmt, data):
    args = data.draw(arguments(FORMULAS[formula], format=fmt, max_d=9, max_rows=4))
    ratios = worst_ratios(contracts_for(formula, fmt), args)
    assert max(ratios.values()) <= 1.0, ratios


@pytest.mark.parametrize("fmt", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("accumulate", ["float32", "bfloat16", "float16"])
def test_bounds_hold_for_narrow_accumulators_and_outputs(fmt, accumulate):
    rng = np.random.default_rng(0)
    contract = Contract("layer_norm", fmt, accumulate=accumulate, order=EIGHT_LANES)
    for spread in (1.0, 2.0**-9, 30.0):
        x = rounded_to(spread * rng.standard_normal((8, 64)), format_named(fmt))
        weight = rounded_to(1 + 0.3 * rng.standard_normal(64), format_named(fmt))
        args = {"x": x, "weight": weight, "bias": weight, "eps": 2.0**-17}
        assert worst_ratio(contract, args) <= 1.0


def test_truncation_and_flushing_have_bounds_of_their_own():
    rng = np.random.default_rng(1)
    x = (1e-20 * rng.standard_normal((8, 64))).astype(np.float32)
    base = Contract("rms_norm", "bfloat16", flush_to_zero=True)
    for contract in (base, replace(base, output_rounding=Rounding.TOWARD_ZERO)):
        assert worst_ratio(contract, {"x": x, "eps": 2.0**-130}) <= 1.0


def attaining_row(d, order):
    """Squares that each addition loses: half an ulp of the running sum."""
    x = np.full((1, d), 2.0**-12, np.float32)
    if order is PAIRWISE:
        x[:] = 0.0
        x[0, [2**k for k in range(d.bit_length() - 1)]] = 2.0**-12
    x[0, 0] = 1.0
    return x


@pytest.mark.parametrize(("order", "share"), [(SEQUENTIAL, 0.95), (PAIRWISE, 0.6)])
def test_the_rms_norm_bound_is_nearly_attained(order, share):
    contract = Contract("rms_norm", "float32", order=order)
    rng = np.random.default_rng(0)
    weight = (1 + 0.1 * rng.standard_normal(4096)).astype(np.float32)
    args = {"x": attaining_row(4096, order), "weight": weight, "eps": 2.0**-20}
    ratio = worst_ratio(contract, args)
    print(f"bound attained, {order.name}: {ratio:.4f}")
    assert share <= ratio <= 1.0


def test_the_bound_is_the_published_one():
    """(k/2 + rho/u + n) u with k = h + 2, rho = 2u, n = 2: 11u at h = 12, 2052.5u at h = 4095."""
    rng = np.random.default_rng(0)
    args = {
        "x": rng.standard_normal((1, 4096)).astype(np.float32),
        "weight": np.full(4096, 1.25, np.float32),
        "eps": 2.0**-20,
    }
    y = np.abs(reference("rms_norm", **args, format="float64"))
    for order, units in ((PAIRWISE, 11.0), (SEQUENTIAL, 2052.5)):
        (limit,) = bound(Contract("rms_norm", "float32", order=order), args)
        assert np.max(limit / y) / U32 == pytest.approx(units, rel=2e-3)


def test_one_pass_variance_has_no_guarantee_at_large_kappa():
    rng = np.random.default_rng(0)
    x = (2000 + rng.standard_normal((1, 4096))).astype(np.float32)
    one_pass = Contract("layer_norm", "float32", algorithm="layer_norm_one_pass")
    (limit,) = bound(one_pass, {"x": x, "eps": 2.0**-20})
    assert np.isinf(limit).all()
    (limit,) = bound(Contract("layer_norm", "float32"), {"x": x, "eps": 2.0**-20})
    assert limit.max() < 3e-3


def test_the_allowed_set_is_nearly_always_one_value():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((16, 4096)).astype(ml_dtypes.bfloat16)
    weight = rng.standard_normal(4096).astype(ml_dtypes.bfloat16)
    args = {"x": x, "weight": weight, "eps": 2.0**-17}
    contract = contracts_for("rms_norm", "bfloat16")[0]
    ((low, high),) = allowed(contract, args)
    got = contract.run(args)[0].astype(np.float64)
    assert np.mean(low == high) > 0.999
    assert np.all((low <= got) & (got <= high))


# --- planted defects ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", faults_for("rms_norm", "bfloat16"), ids=lambda c: c.name)
def test_every_fault_leaves_the_allowed_set_of_every_right_contract(fault):
    """On rows made for it, each faulty reading is outside what right kernels may give."""
    rng = np.random.default_rng(3)
    rows = [2.0**-6 * rng.standard_normal((6, 96)), 300 * rng.standard_normal((6, 96))]
    x = np.concatenate(rows).astype(ml_dtypes.bfloat16)
    weight = np.full(96, 15.8125, ml_dtypes.bfloat16)
    args = {"x": x, "weight": weight, "eps": 2.0**-10}
    got = fault.run(args)[0].astype(np.float64)
    for contract in contracts_for("rms_norm", "bfloat16"):
        ((low, high),) = allowed(contract, args)
        assert np.any(~((low <= got) & (got <= high))), contract.name


def test_a_bound_that_forgets_the_sum_is_caught(monkeypatch):
    """The law above can fail: without the sum's growth, an attaining row exceeds the bound."""
    monkeypatch.setattr(affine, "growth", lambda _u, _k: 0.0)
    args = {"x": attaining_row(4096, SEQUENTIAL), "eps": 2.0**-20}
    assert worst_ratio(Contract("rms_norm", "float32", order=SEQUENTIAL), args) > 1.0


def test_a_bound_that_forgets_kappa_is_caught():
    """A two-pass bound applied to a kernel that subtracts the mean of a neighbour is exceeded."""
    rng = np.random.default_rng(0)
    x = (3000 + rng.standard_normal((1, 256))).astype(np.float32)
    args = {"x": x, "eps": 2.0**-20}
    one_pass = Contract("layer_norm", "float32", algorithm="layer_norm_one_pass").run(args)[0]
    (limit,) = bound(Contract("layer_norm", "float32"), args)
    error = np.abs(one_pass.astype(np.float64) - reference("layer_norm", **args, format="float64"))
    assert not np.all(error <= limit)


# --- where nothing is guaranteed, nothing is excluded --------------------------------------------


def inside(contract, args, groups=None):
    """Whether the contract's own rounded reading lies in its allowed set, output by output."""
    for got, (low, high) in zip(
        contract.run(args, groups), allowed(contract, args, groups), strict=True
    ):
        value = got.astype(np.float64)
        assert np.all(np.isnan(value) | ((low <= value) & (value <= high)))


def test_a_gradient_whose_row_sum_overflows_has_no_guarantee():
    dy = np.repeat(np.array([[3e38], [3e38], [-3e38], [-2e38]], np.float32), 2, axis=1)
    args = {"x": np.ones((4, 2), np.float32), "eps": 1.0, "dy": dy}
    contract = Contract("rms_norm_backward", "float32")
    assert np.isinf(bound(contract, args)[2]).all()
    inside(contract, args)


def test_a_sum_that_overflows_by_rounding_up_has_no_guarantee():
    largest = 2.0**128 - 2.0**104
    squares = np.full(128, 0.72 * 2.0**104)
    squares[0] = largest - 113 * 2.0**104
    args = {"x": np.sqrt(squares).astype(np.float32)[None], "eps": 2.0**-20}
    contract = Contract("rms_norm", "float32", order=SEQUENTIAL)
    assert np.isinf(bound(contract, args)[0]).all()
    inside(contract, args)


def test_welford_in_lanes_is_folded_in_lanes():
    """A row on which eight sequential lanes err more than a pairwise tree may."""
    d, s = 2048, 2.0**-11.55
    x = np.zeros((1, d), np.float32)
    lane = np.where(np.arange(d // 8) % 2 == 0, s, -s)
    lane[:2] = 1.0, -1.0
    x[0, ::8] = lane
    args = {"x": x, "eps": 2.0**-60}
    lanes = Contract("layer_norm", "float32", algorithm="layer_norm_welford", order=EIGHT_LANES)
    assert worst_ratio(lanes, args) <= 1.0
    tree = replace(lanes, order=PAIRWISE)
    assert np.max(bound(tree, args)[0]) < np.max(bound(lanes, args)[0])


def test_flushing_applies_to_the_inputs_too():
    args = {"x": np.full((1, 4), 1e-39, np.float32), "eps": 1e-12}
    contract = Contract("rms_norm", "float32", flush_to_zero=True)
    assert worst_ratio(contract, args) <= 1.0
    inside(contract, args)


@pytest.mark.parametrize("fmt", ["float64", "bfloat16"])
def test_an_overflowing_statistic_excludes_nothing(fmt):
    args = {"x": np.array([[1e200, -2e200, 3e200]]), "eps": 2.0**-20}
    contract = Contract("rms_norm", fmt, accumulate="float64")
    assert np.isinf(bound(contract, args)[0]).all()
    ((low, high),) = allowed(contract, args)
    assert np.all(low == -np.inf)
    assert np.all(high == np.inf)


def test_a_format_without_infinity_may_saturate():
    """Three of four outputs lie beyond 448: a kernel may give NaN or 448 there."""
    x = np.array([[1.0, -2.0, 3.0, 4.0]], np.float32)
    args = {"x": x, "weight": np.full(4, 1000.0, np.float32), "eps": 2.0**-20}
    ((low, high),) = allowed(Contract("rms_norm", "float8_e4m3fn"), args)
    assert low[0, 0] == high[0, 0] == 352.0
    assert np.all(low[0, 1:] == -np.inf)
    assert np.all(high[0, 1:] == np.inf)


@pytest.mark.parametrize("fmt", ["tf32", "float8_e4m3fnuz", "float8_e5m2fnuz", "bfloat16"])
def test_truncation_is_that_of_the_format(fmt):
    target = format_named(fmt)
    tiny = float(target.min_subnormal)
    values = np.array([1 + 1.5 * 2.0**-11, -0.7 * tiny, 1.7 * tiny, -3.14159, 0.0])
    got = rounded_to(values, target, Rounding.TOWARD_ZERO).astype(np.float64)
    assert got.tolist() == [round_to(target, v, Rounding.TOWARD_ZERO) for v in values.tolist()]


def test_an_empty_batch_has_contracts_too():
    x = np.zeros((0, 8), np.float32)
    assert bound(Contract("layer_norm", "float32"), {"x": x, "eps": 1.0})[0].shape == (0, 8)
    args = {"x": x, "eps": 1.0, "dy": x}
    for contract in contracts_for("layer_norm_backward", "float32"):
        assert [g.shape for g in contract.run(args)] == [(0, 8), (8,), (8,)]
        assert [b.shape for b in bound(contract, args)] == [(0, 8), (8,), (8,)]


# --- orders and words -----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [PAIRWISE, SEQUENTIAL, EIGHT_LANES, Order("3 lanes", 3)])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 9, 64, 100])
def test_the_height_of_an_order_is_that_of_its_additions(order, d):
    """Summing depths: each addition is one deeper than its deeper operand."""
    depth = order.sum(np.zeros((1, d)), lambda a, b: np.maximum(a, b) + 1)
    assert depth[0, 0] == order.height(d)


def test_the_tolerance_prints_as_a_formula_with_its_numbers():
    text = tolerance(contracts_for("layer_norm", "bfloat16")[0], 4096)
    print(text)
    assert text.startswith("|got - y| <= ")
    assert "* 2^-24 * kappa + 2^-8 |y|" in text
    assert text.endswith("(d = 4096, pairwise tree: height 12)")


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=lambda f: f.id)
def test_every_contract_has_a_tolerance_that_prints(formula):
    for fmt in ("float32", "bfloat16"):
        for contract in contracts_for(formula.id, fmt):
            text = tolerance(contract, 16)
            assert text.startswith("|got - y| <= "), text
            assert "inf" not in text, text
            assert "nan" not in text, text


def test_contracts_describe_every_choice():
    contract = contracts_for("rms_norm", "bfloat16")[1]
    assert contract.name == "Llama order: cast, then weight, pairwise tree"
    assert contract.describe() == (
        "rms_norm in float32, pairwise tree sums, normalised rounded to bfloat16, "
        "output rounded to bfloat16"
    )
