"""The checker by random evaluation: what it proves, what it refutes, and what it leaves open."""

from __future__ import annotations

import copy
import itertools
from fractions import Fraction
from typing import Any

import pytest

from tests.symbolic.checkers.sample_certificates import (
    at,
    certificate,
    diff,
    dim,
    fun,
    mean,
    num,
    sqrt,
    square,
    sym,
    total,
)
from tests.symbolic.checkers.sample_theorems import EPS, SAMPLES, Sample, centred, x
from verify.finding import Verdict
from verify.symbolic.checkers import finite_field, finite_field_terms
from verify.symbolic.checkers.answer import Answer, CertificateError, verdict_of
from verify.symbolic.checkers.finite_field import CHECKER
from verify.symbolic.checkers.finite_field_arithmetic import P, Residues, is_residue
from verify.symbolic.checkers.finite_field_reader import Theorem

I = (("i", "n"),)
SIBLINGS = [(s.name, name, c) for s in SAMPLES for name, c in s.siblings()]


def answer(document: dict[str, Any]) -> Answer:
    (only,) = CHECKER.check(document)
    return only


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_true_theorems_are_proved_for_all_widths(sample: Sample) -> None:
    found = answer(sample.true())
    assert found.verdict is Verdict.PROVED, found.reason
    assert "not covered" not in found.reason
    assert "probability < 2^-" in found.reason


@pytest.mark.parametrize(("theorem", "sibling", "document"), SIBLINGS)
def test_wrong_siblings_are_refuted_with_dims_values_and_seed(
    theorem: str, sibling: str, document: dict[str, Any]
) -> None:
    found = answer(document)
    assert found.verdict is Verdict.REFUTED, f"{theorem}, {sibling}: {found.reason}"
    assert "n = " in found.reason
    assert "seed" in found.reason


@pytest.mark.parametrize(("theorem", "sibling", "document"), SIBLINGS)
def test_wrong_siblings_differ_mod_p_too(
    theorem: str, sibling: str, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finite_field, "_difference", lambda *_: None)
    assert answer(document).verdict is Verdict.UNDECIDED, f"{theorem}, {sibling}"


def test_each_theorem_has_five_siblings_and_more() -> None:
    assert all(len(sample.wrong) >= 5 for sample in SAMPLES)


def test_answers_are_reproducible() -> None:
    document = SAMPLES[0].true()
    assert CHECKER.check(document) == CHECKER.check(copy.deepcopy(document))


def test_each_step_is_compared_with_the_first() -> None:
    steps = (mean(x) * dim(), total(x), total(x) + 1, 1 + total(x))
    verdicts = [a.verdict for a in CHECKER.check(certificate(*steps))]
    assert verdicts == [Verdict.PROVED, Verdict.REFUTED, Verdict.REFUTED]


# --- roots and signs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argument", [sym("shift"), total(x), total(x) * square(sym("shift")), total(x) * at("w", "i")]
)
def test_the_root_of_a_square_of_either_sign_is_refuted(argument: Any) -> None:
    document = certificate(sqrt(square(argument)), argument, free=I)
    assert answer(document).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (sqrt(square(EPS)), EPS),
        (sqrt(square(dim())), dim()),
        (sqrt((dim() + 1) * EPS), sqrt(dim() + 1) * sqrt(EPS)),
        (1 / sqrt(2 * EPS), sqrt(num("1/2")) / sqrt(EPS)),
        (sqrt(sqrt(square(square(EPS)))), EPS),
    ],
)
def test_roots_of_positive_numbers_are_positive_and_multiplicative(left: Any, right: Any) -> None:
    assert answer(certificate(left, right)).verdict is Verdict.PROVED


def test_numbers_that_are_no_squares_mod_p_leave_a_true_step_undecided() -> None:
    assert not is_residue(3)
    assert answer(certificate(sqrt(9 * EPS), 3 * sqrt(EPS))).verdict is Verdict.UNDECIDED
    assert answer(certificate(sqrt(9 * EPS), 2 * sqrt(EPS))).verdict is Verdict.REFUTED
    never = answer(certificate(sqrt(3 * EPS), sqrt(num(3)) * sqrt(EPS)))
    assert never.verdict is Verdict.UNDECIDED
    assert "draws" in never.reason


def test_a_radicand_that_is_negative_everywhere_is_undecided() -> None:
    found = answer(certificate(sqrt(-EPS), sqrt(-EPS)))
    assert found.verdict is Verdict.UNDECIDED
    assert "no real point" in found.reason


def test_roots_and_denominators_that_vary_with_an_index_say_what_is_not_covered() -> None:
    r = 1 / sqrt(square(x("i")) + sym("eps"))
    dyisru = certificate(diff(x("i") * r, "x", "h"), at("h", "i") * EPS * r * r * r, free=I)
    wrong = certificate(diff(x("i") * r, "x", "h"), at("h", "i") * EPS * r * r, free=I)
    assert answer(dyisru).verdict is Verdict.PROVED
    assert "not covered" in answer(dyisru).reason
    assert answer(wrong).verdict is Verdict.REFUTED


def test_points_are_squares_where_positivity_is_meant() -> None:
    point = Residues(Theorem(SAMPLES[0].true()), {"n": 7}, "a seed")
    n = point.dim("n")
    assert n == sum(point.weights["n"]) % P
    assert all(map(is_residue, (n, n + 1, *point.symbol("eps"))))
    (root,) = point.sqrt(point.symbol("eps"), ())
    assert is_residue(root)
    assert point.div([1] * 7, point.symbol("x"), ()) == [pow(v, -1, P) for v in point.symbol("x")]


# --- dimensions ----------------------------------------------------------------------------------


def test_a_step_that_holds_at_small_dimensions_only_is_refuted() -> None:
    n = dim()
    found = answer(certificate((n - 2) * (n - 3) * (n - 4), num(0)))
    assert found.verdict is Verdict.REFUTED


def test_a_step_that_holds_at_one_large_dimension_is_refuted() -> None:
    assert answer(certificate((dim() - 4096) * total(x), num(0))).verdict is Verdict.REFUTED


def test_a_step_that_holds_at_more_dimensions_than_are_tried_is_not_proved() -> None:
    product = num(1)
    for d in range(1, 40):
        product *= dim() - d
    assert answer(certificate(product, num(0))).verdict is Verdict.UNDECIDED


def test_a_statement_without_dimensions() -> None:
    document = certificate(EPS + EPS, 2 * EPS) | {"dims": {}}
    assert answer(document).verdict is Verdict.PROVED
    assert "two points" in answer(document).reason


# --- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            diff(diff(square(total(x)), "x", "h"), "h", "k"),
            2 * total(x) * total(lambda j: at("k", j)),
        ),
        (
            diff(diff(square(total(x)), "x", "h"), "x", "k"),
            diff(diff(square(total(x)), "x", "k"), "x", "h"),
        ),
        (diff(1 / total(x), "x", "h"), -total(lambda j: at("h", j)) / square(total(x))),
        (diff(fun("f", total(x)), "x", "h"), fun("f'", total(x)) * total(lambda j: at("h", j))),
        (
            diff(diff(fun("exp", square(total(x))), "x", "h"), "x", "x"),
            fun("exp", square(total(x)))
            * total(lambda j: at("h", j))
            * (4 * square(total(x)) * total(x) + 2 * total(x)),
        ),
        (diff(fun("f", total(x)), "w", "h"), num(0)),
    ],
)
def test_derivatives_nested_and_by_name(left: Any, right: Any) -> None:
    assert answer(certificate(left, right)).verdict is Verdict.PROVED
    assert answer(certificate(left, right + total(x))).verdict is Verdict.REFUTED


def test_a_derivative_through_several_arguments_is_outside_the_language() -> None:
    document = certificate(diff(fun("f", total(x), EPS), "x", "h"), num(0))
    with pytest.raises(CertificateError, match="one scalar argument"):
        CHECKER.check(document)


# --- claims of other kinds -----------------------------------------------------------------------

SPREAD = dim() * total(lambda j: square(x(j))) - square(total(x))
AS_SQUARES = dim() * total(lambda j: square(centred(x)(j)))


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        ((SPREAD, AS_SQUARES), Verdict.PROVED),
        ((SPREAD, AS_SQUARES + 1), Verdict.REFUTED),
        ((SPREAD, SPREAD), Verdict.UNDECIDED),
        ((SPREAD,), Verdict.UNDECIDED),
        ((AS_SQUARES / sqrt(EPS) + num("1/3"),), Verdict.PROVED),
        ((total(x),), Verdict.UNDECIDED),
        ((num(-1),), Verdict.UNDECIDED),
        ((x("i") * at("w", "i"),), Verdict.UNDECIDED),
    ],
)
def test_at_least(steps: Any, verdict: Verdict) -> None:
    assert answer(certificate(*steps, free=I, kind="at_least")).verdict is verdict


WITNESS = {"dims": {"n": 2}, "values": {"x": ["3", "4"], "eps": "1/4"}, "index": [1]}


@pytest.mark.parametrize(
    ("left", "right", "verdict", "reason"),
    [
        (x("i") / sqrt(total(lambda j: square(x(j)))), x("i"), Verdict.PROVED, "4/5 against 4"),
        (
            x("i") / sqrt(total(lambda j: square(x(j)))),
            x("i") / 5,
            Verdict.REFUTED,
            "both sides are 4/5",
        ),
        (sqrt(EPS), num("1/2"), Verdict.REFUTED, "1/2"),
        (fun("relu", -x("i")), fun("sign", x("i")), Verdict.PROVED, "0 against 1"),
        (sqrt(total(x)), num(1), Verdict.UNDECIDED, "not rational"),
        (fun("f", x("i")), num(1), Verdict.UNDECIDED, "no exact values"),
        (1 / (x("i") - 4), num(1), Verdict.UNDECIDED, "a denominator is 0"),
    ],
)
def test_differ_is_decided_exactly_at_the_witness(
    left: Any, right: Any, verdict: Verdict, reason: str
) -> None:
    found = answer(certificate(left, right, free=I, kind="differ", witness=WITNESS))
    assert found.verdict is verdict
    assert reason in found.reason


def test_a_witness_outside_the_domain_shows_nothing() -> None:
    witness = WITNESS | {"values": {"eps": "-1", "x": ["3", "4"]}}
    document = certificate(EPS + x("i"), x("i"), free=I, kind="differ", witness=witness)
    assert answer(document).verdict is Verdict.UNDECIDED


def test_exact_values_are_fractions() -> None:
    found = answer(certificate(x("i") / 3, x("i"), free=I, kind="differ", witness=WITNESS))
    assert str(Fraction(4, 3)) in found.reason


# --- planted defects -----------------------------------------------------------------------------


def _unconditioned(_self: Residues, a: list[int], _axes: Any) -> list[int]:
    return [P - pow(v, (P + 1) // 4, P) for v in a]


def test_roots_of_the_wrong_sign_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Residues, "sqrt", _unconditioned)
    narrow = next(s for s in SAMPLES if s.name.startswith("narrow"))
    assert answer(narrow.true()).verdict is Verdict.UNDECIDED


def test_a_dimension_that_is_not_the_sum_of_its_multiplicities_proves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Residues, "dim", lambda _self, _dim: 4096)
    assert answer(SAMPLES[1].true()).verdict is Verdict.UNDECIDED


def test_half_a_product_rule_proves_no_adjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = finite_field_terms.splits
    monkeypatch.setattr(finite_field_terms, "splits", lambda seeds: whole(seeds)[:1])
    for sample in SAMPLES:
        if sample.name.endswith("adjoint"):
            assert answer(sample.true()).verdict is Verdict.REFUTED


def test_without_congruence_a_network_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    monkeypatch.setattr(Residues, "apply", lambda *_: next(calls))
    network = next(s for s in SAMPLES if "network" in s.name)
    assert answer(network.true()).verdict is Verdict.UNDECIDED


def test_a_bound_that_says_nothing_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite_field, "LOG2_LARGEST_PROBABILITY", -20)
    found = answer(SAMPLES[0].true())
    assert found.verdict is Verdict.UNDECIDED
    assert "bound" in found.reason


def test_verdict_of_a_theorem() -> None:
    assert verdict_of(CHECKER.check(SAMPLES[0].true())) is Verdict.PROVED
    assert CHECKER.missing() == ""
    assert "Schwartz-Zippel" in CHECKER.states
