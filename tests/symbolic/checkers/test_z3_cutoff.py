"""The checker by z3: what it proves at concrete dimensions, refutes, and leaves open."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("z3", reason="the package z3-solver is not installed")

from tests.symbolic.checkers.sample_certificates import (
    at,
    certificate,
    diff,
    dim,
    fun,
    lam,
    mean,
    num,
    sqrt,
    square,
    sym,
    total,
)
from tests.symbolic.checkers.sample_theorems import EPS, SAMPLES, Sample, centred, x
from verify.finding import Verdict
from verify.symbolic.checkers import z3_cutoff, z3_cutoff_polynomials
from verify.symbolic.checkers.answer import Answer, CertificateError
from verify.symbolic.checkers.z3_cutoff import CHECKER, check, smallest
from verify.symbolic.checkers.z3_cutoff_terms import Table
from verify.symbolic.checkers.z3_cutoff_values import Values

I = (("i", "n"),)
SIBLINGS = [(s.name, name, c) for s in SAMPLES for name, c in s.siblings()]


def answer(document: dict[str, Any]) -> Answer:
    (only,) = CHECKER.check(document)
    return only


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_true_theorems_are_proved_at_the_dimensions_named(sample: Sample) -> None:
    found = answer(sample.true())
    assert found.verdict is Verdict.PROVED, found.reason
    assert "n = " in found.reason
    assert "which is enough for all dimensions" in found.reason


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.name)
def test_small_dimensions_alone_prove_nothing(sample: Sample) -> None:
    (found,) = check(sample.true(), smallest)
    assert found.verdict is Verdict.UNDECIDED
    assert "unsat at n = 2" in found.reason
    assert "nothing about others" in found.reason


@pytest.mark.parametrize(("theorem", "sibling", "document"), SIBLINGS)
def test_wrong_siblings_are_refuted_with_dims_and_values(
    theorem: str, sibling: str, document: dict[str, Any]
) -> None:
    found = answer(document)
    assert found.verdict is Verdict.REFUTED, f"{theorem}, {sibling}: {found.reason}"
    assert "n = 2" in found.reason
    assert "differ at" in found.reason


def test_each_step_is_compared_with_the_first() -> None:
    steps = (mean(x) * dim(), total(x), total(x) + 1, 1 + total(x))
    enough = ([{"n": 3}], True)
    verdicts = [a.verdict for a in check(certificate(*steps), lambda *_: enough)]
    assert verdicts == [Verdict.PROVED, Verdict.REFUTED, Verdict.REFUTED]


# --- dimensions ----------------------------------------------------------------------------------


def test_a_grid_that_is_enough_is_said_to_be() -> None:
    (found,) = check(SAMPLES[0].true(), lambda _certificate, _claim: ([{"n": 3}], True))
    assert found.verdict is Verdict.PROVED
    assert found.reason == "unsat at n = 3; which is enough for all dimensions"


def test_what_holds_at_few_dimensions_is_refuted_at_others() -> None:
    document = certificate((dim() - 2) * (dim() - 3) * (dim() - 4), num(0))
    assert answer(document).verdict is Verdict.UNDECIDED
    assert "nothing about others" in answer(document).reason
    (found,) = check(document, lambda _certificate, _claim: ([{"n": 5}], False))
    assert found.verdict is Verdict.REFUTED


def test_the_smallest_dimensions_respect_the_certificate() -> None:
    document = SAMPLES[0].true() | {"dims": {"n": 5, "m": 1}}
    grid, enough = smallest(document, 0)
    assert grid == [{"n": n, "m": m} for n in (5, 6) for m in (2, 3)]
    assert not enough


def test_free_indices_are_tried_alike_and_apart() -> None:
    product = at("x", "i") * at("x", "j")
    document = certificate(product, square(x("i")), free=(("i", "n"), ("j", "n")))
    assert answer(document).verdict is Verdict.REFUTED


# --- roots and functions -------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [sym("shift"), total(x)])
def test_the_root_of_a_square_of_either_sign_is_refuted(argument: Any) -> None:
    assert answer(certificate(sqrt(square(argument)), argument)).verdict is Verdict.REFUTED


R = sqrt(mean(lambda j: square(x(j))) + EPS)
PLAIN = sqrt(mean(lambda j: square(x(j))))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (sqrt(square(EPS)), EPS),
        (sqrt(9 * EPS), 3 * sqrt(EPS)),
        (sqrt(num(12)) / 2, sqrt(num(3))),
        (sqrt(num(6)), sqrt(num(2)) * sqrt(num(3))),
        (sqrt(1 / (mean(lambda j: square(x(j))) + EPS)), 1 / R),
        (sqrt(square(EPS) * (1 + square(sym("shift")))), EPS * sqrt(1 + square(sym("shift")))),
        (square(PLAIN) * square(PLAIN), square(mean(lambda j: square(x(j))))),
        (total(lambda j: square(x(j) / PLAIN)), dim()),
        (sqrt(square(R)), R),
    ],
)
def test_roots(left: Any, right: Any) -> None:
    assert answer(certificate(left, right)).verdict is Verdict.PROVED
    assert answer(certificate(left, right + EPS)).verdict is Verdict.REFUTED
    assert answer(certificate(left, -right)).verdict is Verdict.REFUTED


def test_roots_that_vary_with_an_index_are_written_out() -> None:
    r = 1 / sqrt(square(x("i")) + EPS)
    dyisru = certificate(diff(x("i") * r, "x", "h"), at("h", "i") * EPS * r * r * r, free=I)
    assert answer(dyisru).verdict is Verdict.PROVED
    inside = total(lambda i: x(i) / sqrt(square(x(i)) + EPS))
    assert answer(certificate(inside, total(lambda i: x(i) * EPS))).verdict is Verdict.REFUTED


def test_congruence_is_all_that_is_known_of_a_function() -> None:
    a, b = fun("f", x("i")), fun("f", 2 * x("i") - x("i"))
    assert answer(certificate(a, b, free=I)).verdict is Verdict.PROVED
    assert answer(certificate(a, fun("f", -x("i")), free=I)).verdict is Verdict.REFUTED
    assert answer(certificate(a, fun("g", x("i")), free=I)).verdict is Verdict.REFUTED


def test_arrays_and_numbers_are_different_arguments() -> None:
    left = fun("f", lam(lambda _: EPS), EPS)
    assert (
        answer(certificate(left, fun("f", lam(lambda _: EPS), 1 * EPS))).verdict is Verdict.PROVED
    )
    assert answer(certificate(left, fun("f", EPS, lam(lambda _: EPS)))).verdict is Verdict.REFUTED


@pytest.mark.parametrize("nowhere", [sqrt(-EPS), 1 / (total(x) - total(x)), sqrt(num(-1))])
def test_what_is_defined_nowhere_is_not_proved(nowhere: Any) -> None:
    found = answer(certificate(nowhere, nowhere + 0))
    assert found.verdict is Verdict.UNDECIDED
    assert "defined" in found.reason


def test_an_unknown_is_undecided_with_the_reason_of_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z3_cutoff, "POINT_RLIMIT", 1)
    monkeypatch.setattr(z3_cutoff, "QUERY_RLIMIT", 1)
    found = answer(SAMPLES[0].siblings()[0][1])
    assert found.verdict is Verdict.UNDECIDED
    assert "unknown" in found.reason


def test_a_normal_form_that_is_too_large_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(z3_cutoff_polynomials, "MAX_STEPS", 50)
    found = answer(SAMPLES[0].true())
    assert found.verdict is Verdict.UNDECIDED
    assert "out of reach" in found.reason


def test_a_statement_without_dimensions() -> None:
    document = certificate(EPS + EPS, 2 * EPS) | {"dims": {}}
    assert answer(document).verdict is Verdict.PROVED


# --- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            diff(diff(square(total(x)), "x", "h"), "h", "k"),
            2 * total(x) * total(lambda j: at("k", j)),
        ),
        (diff(1 / total(x), "x", "h"), -total(lambda j: at("h", j)) / square(total(x))),
        (diff(fun("f", total(x)), "x", "h"), fun("f'", total(x)) * total(lambda j: at("h", j))),
        (
            diff(diff(fun("exp", square(total(x))), "x", "h"), "x", "x"),
            fun("exp", square(total(x)))
            * total(lambda j: at("h", j))
            * (4 * square(total(x)) * total(x) + 2 * total(x)),
        ),
        (diff(fun("f", total(x), EPS), "w", "h"), num(0)),
    ],
)
def test_derivatives_nested_and_by_name(left: Any, right: Any) -> None:
    assert answer(certificate(left, right)).verdict is Verdict.PROVED
    assert answer(certificate(left, right + total(x))).verdict is Verdict.REFUTED


def test_a_derivative_through_an_array_is_outside_the_language() -> None:
    document = certificate(diff(fun("f", lam(x)), "x", "h"), num(0))
    assert "outside the language" in _refused(document)


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
        ((num(-1),), Verdict.UNDECIDED),
        ((x("i") * at("w", "i"),), Verdict.UNDECIDED),
    ],
)
def test_at_least(steps: Any, verdict: Verdict) -> None:
    assert answer(certificate(*steps, free=I, kind="at_least")).verdict is verdict


WITNESS = {"dims": {"n": 2}, "values": {"x": ["3", "4"], "eps": "1/4"}, "index": [1]}
UNIT = x("i") / sqrt(total(lambda j: square(x(j))))


@pytest.mark.parametrize(
    ("left", "right", "verdict", "reason"),
    [
        (UNIT, x("i"), Verdict.PROVED, "4/5 against 4"),
        (UNIT, x("i") / 5, Verdict.REFUTED, "both sides are 4/5"),
        (sqrt(EPS), num("1/2"), Verdict.REFUTED, "1/2"),
        (fun("relu", -x("i")), fun("sign", x("i")), Verdict.PROVED, "0 against 1"),
        (sqrt(total(x)), num(1), Verdict.UNDECIDED, "not rational"),
        (fun("abs", 1 / sqrt(total(x))), num(1), Verdict.UNDECIDED, "not rational"),
        (fun("f", x("i")), num(1), Verdict.UNDECIDED, "no exact values"),
        (1 / (x("i") - 4), num(1), Verdict.UNDECIDED, "a denominator is 0"),
    ],
)
def test_differ_is_decided_at_the_witness(
    left: Any, right: Any, verdict: Verdict, reason: str
) -> None:
    found = answer(certificate(left, right, free=I, kind="differ", witness=WITNESS))
    assert found.verdict is verdict
    assert reason in found.reason


def test_a_witness_outside_the_domain_shows_nothing() -> None:
    witness = WITNESS | {"values": {"eps": "-1", "x": ["3", "4"]}}
    document = certificate(EPS + x("i"), x("i"), free=I, kind="differ", witness=witness)
    assert answer(document).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    "witness",
    [
        None,
        {"dims": {"n": 2}},
        WITNESS | {"dims": {}},
        WITNESS | {"values": {}},
        WITNESS | {"values": {"x": ["3"]}},
        WITNESS | {"values": {"x": [3, 4]}},
        WITNESS | {"index": [2]},
        WITNESS | {"index": []},
    ],
)
def test_a_witness_that_does_not_fit_is_an_error_of_one_line(witness: Any) -> None:
    _refused(certificate(x("i"), -x("i"), free=I, kind="differ", witness=witness))


# --- what is no certificate ----------------------------------------------------------------------


def _refused(document: Any) -> str:
    with pytest.raises(CertificateError) as caught:
        CHECKER.check(document)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("term", "words"),
    [
        (["max", 0, 0], "'max'"),
        (["sqrt", 99], "99"),
        (["add", 0], "expected 2"),
        (["num", "a"], "p/q"),
        (["num", 0.5], "p/q"),
        (["num", "1/0"], "p/q"),
        (["dim", "d"], "'d'"),
        (["sym", "y"], "'y'"),
        (["sym", "x"], "indices"),
        (["at", "x", []], "expected 'sym'"),
        (["at", "x", [-1]], "de Bruijn"),
        (["sum", "d", 0], "'d'"),
        (["diff", 0, "x", "eps"], "two shapes"),
        ([], "[op, ...]"),
        ("sqrt", "[op, ...]"),
    ],
)
def test_a_term_outside_the_language_is_an_error_of_one_line(term: Any, words: str) -> None:
    document = SAMPLES[0].true()
    document["terms"].append(term)
    assert words in _refused(document)


def test_a_child_that_points_forward_is_an_error() -> None:
    document = SAMPLES[0].true()
    document["terms"][0] = ["sqrt", 1]
    assert "earlier" in _refused(document)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"dims": {"n": 0}},
        {"dims": {}},
        {"positive": ["x"]},
        {"symbols": {"x[0]": []}},
        {"claims": [{"kind": "less", "name": "c", "steps": []}]},
        {"claims": [{"kind": "equal", "name": "c", "free": ["n"], "steps": [["a", 0]]}]},
        {"claims": [{"kind": "equal", "name": "c", "free": [], "steps": [["a", 0], ["b", 999]]}]},
        {"claims": [7]},
        {"terms": None},
    ],
)
def test_a_malformed_certificate_is_an_error_of_one_line(change: dict[str, Any]) -> None:
    _refused(SAMPLES[0].true() | change)


def test_an_index_that_nothing_binds_is_an_error() -> None:
    document = SAMPLES[0].true()
    document["claims"][0]["free"] = []
    assert "unbound" in _refused(document)


# --- planted defects -----------------------------------------------------------------------------


def test_without_the_axioms_of_roots_a_true_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Values, "axioms", lambda _self: [])
    monkeypatch.setattr(Values, "eliminate", lambda *_: False)
    monkeypatch.setattr(Values, "by_older_roots", lambda *_: None)
    assert answer(SAMPLES[1].true()).verdict is Verdict.REFUTED


def test_a_wrong_rule_of_calculus_proves_no_adjoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "minus", lambda _self, a: a)
    for sample in SAMPLES:
        if sample.name.endswith("adjoint"):
            assert answer(sample.true()).verdict is Verdict.REFUTED


def test_without_congruence_a_network_is_not_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Values, "same", lambda *_: False)
    monkeypatch.setattr(Values, "congruences", lambda _self: [])
    network = next(s for s in SAMPLES if "network" in s.name)
    assert answer(network.true()).verdict is Verdict.REFUTED


def test_z3_decides_without_the_rewritings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rewritings only save time: the axioms alone give the same answers."""
    monkeypatch.setattr(Values, "eliminate", lambda *_: False)
    monkeypatch.setattr(Values, "by_older_roots", lambda *_: None)
    grid = ([{"n": 2}], True)
    for sample in (SAMPLES[0], SAMPLES[1], SAMPLES[3]):
        (found,) = check(sample.true(), lambda *_: grid)
        assert found.verdict is Verdict.PROVED, f"{sample.name}: {found.reason}"


def test_states_what_is_proved() -> None:
    assert CHECKER.missing() == ""
    assert "the cutoff theorem says are enough" in CHECKER.states


def test_dimensions_beyond_the_reach_of_z3_give_way_to_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(z3_cutoff, "GRID_SIZE", 0)
    found = answer(SAMPLES[0].true())
    assert found.verdict is Verdict.UNDECIDED
    assert "unsat at n = 2; n = 3; n = 4; this says nothing about others" in found.reason
