from __future__ import annotations

import json
import time
from typing import Any

import flint
import pytest

from tests.symbolic.checkers.flint_builder import (
    Term,
    at,
    certificate,
    diff,
    fun,
    lam,
    lift,
    mean,
    one_i,
    sqrt,
    sym,
    total,
)
from tests.symbolic.checkers.flint_statements import (
    EPS,
    LN,
    THEOREMS,
    WRONG,
    N,
    X,
    Z,
    affine,
    centred,
    one_pass,
    rms,
    square,
    two_pass,
)
from verify.finding import Verdict
from verify.symbolic.checkers.answer import CertificateError, verdict_of
from verify.symbolic.checkers.flint_explicit import CHECKER
from verify.symbolic.checkers.flint_values import Field


def verdict(made: dict[str, Any]) -> Verdict:
    return verdict_of(CHECKER.check(json.loads(json.dumps(made))))


@pytest.mark.parametrize("name", THEOREMS)
def test_proves(name: str) -> None:
    answers = CHECKER.check(THEOREMS[name])
    assert answers
    assert {a.verdict for a in answers} == {Verdict.PROVED}, answers


@pytest.mark.parametrize("name", WRONG)
def test_refutes(name: str) -> None:
    (answer,) = CHECKER.check(WRONG[name])
    assert answer.verdict is Verdict.REFUTED, answer
    assert "is not" in answer.reason, answer


def test_a_root_of_a_dimension_is_not_its_value_at_one_dimension() -> None:
    made = certificate(sqrt(N), lift(2), dims={"n": 4, "m": 1})
    (answer,) = CHECKER.check(made)
    assert answer.verdict is Verdict.REFUTED
    assert answer.reason.startswith("at n = 5")


def test_d_minus_one_through_a_base_dimension() -> None:
    base = N + 1
    assert verdict(certificate(sqrt(base * base * base), base * sqrt(base))) is Verdict.PROVED
    assert verdict(certificate(sqrt(lift("12") / base), lift(2) * sqrt(lift(3) / base))) is (
        Verdict.PROVED
    )


def test_a_dimension_where_arguments_coincide_does_not_count() -> None:
    """At n = 2 alone both calls are one atom; the statement holds elsewhere as well."""
    f, g = fun("f", (N - 2) * X("i")), fun("f", (N - 2) * Z("i"))
    made = certificate((f + g) * (f - g), f * f - g * g, free={"i": "n"})
    (answer,) = CHECKER.check(made)
    assert answer.verdict is Verdict.PROVED
    wrong = certificate(f, g, free={"i": "n"}, dims={"n": 2, "m": 1})
    (answer,) = CHECKER.check(wrong)
    assert answer.reason.startswith("at n = 3")


def test_a_dimension_where_nothing_is_defined_does_not_count() -> None:
    unbiased = two_pass(X, N - 1)
    made = certificate(sym("c") * unbiased, unbiased * sym("c"))
    (answer,) = CHECKER.check(made)
    assert answer.verdict is Verdict.PROVED
    assert verdict(certificate(lift(1) / (N - 1), lift(1) / N)) is Verdict.REFUTED
    three = total("i", X("i")) / (N - 3)
    assert verdict(certificate(three * N, N * three)) is Verdict.PROVED


def test_a_factor_that_may_vanish_among_arguments() -> None:
    f = fun("f", (N - 1) * (N - 2) * (N - 5) * total("i", X("i")))
    assert verdict(certificate(f, fun("f", lift(0)))) is Verdict.REFUTED


def test_each_step_is_answered_and_the_wrong_one_is_named() -> None:
    made = one_i(LN, affine(rms(centred(X))("i")), affine(rms(X)("i")), affine(rms(X)("i")))
    answers = CHECKER.check(made)
    assert [a.step for a in answers] == ["step 1", "step 2", "step 3"]
    assert [a.verdict for a in answers] == [Verdict.PROVED, Verdict.REFUTED, Verdict.REFUTED]


SQUARES = total("i", centred(X)("i") * centred(X)("i")) / (N * N)


def test_at_least() -> None:
    left = mean("i", X("i") * X("i")) / N - mean("i", X("i")) * mean("i", X("i")) / N
    answers = CHECKER.check(certificate(left, SQUARES, kind="at_least"))
    assert [a.verdict for a in answers] == [Verdict.PROVED, Verdict.PROVED]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (SQUARES * sqrt(square(X) + EPS) * EPS, Verdict.PROVED),
        (X("i") / Z("i") * (X("i") / Z("i")), Verdict.PROVED),
        (X("i") * Z("i"), Verdict.UNDECIDED),
        (X("i") * X("i") * X("i"), Verdict.UNDECIDED),
        (-SQUARES, Verdict.UNDECIDED),
        (SQUARES - EPS, Verdict.UNDECIDED),
        (SQUARES + sym("c"), Verdict.UNDECIDED),
    ],
)
def test_the_sign_is_read_from_the_shape(last: Term, expected: Verdict) -> None:
    made = certificate(last, kind="at_least", free={"i": "n"})
    assert verdict(made) is expected


DIFFER = {"dims": {"n": 2}, "values": {"x": ["3", "-1"], "c": "1"}, "index": [0]}
SCALE_FREE = (
    X("i") / sqrt(square(X)),
    (X("i") - sym("c")) / sqrt(square(lambda j: X(j) - sym("c"))),
)
RELU = (fun("relu", X("i") - 4), fun("relu", X("i")))


@pytest.mark.parametrize(
    ("sides", "values", "expected"),
    [
        (RELU, {}, Verdict.PROVED),
        ((two_pass(X) * X("i"), one_pass(X)), {}, Verdict.PROVED),
        ((sqrt(two_pass(X)), lift(2)), {}, Verdict.REFUTED),
        ((two_pass(X), one_pass(X)), {}, Verdict.REFUTED),
        ((X("i") / (X("i") - 3), lift(1)), {}, Verdict.REFUTED),
        (SCALE_FREE, {}, Verdict.UNDECIDED),
        ((fun("f", X("i")), lift(1)), {}, Verdict.UNDECIDED),
        ((sqrt(X("i") - 3), lift(1)), {}, Verdict.REFUTED),
        ((EPS, -EPS), {"eps": "-1"}, Verdict.REFUTED),
        ((EPS, -EPS), {"eps": "1"}, Verdict.PROVED),
    ],
)
def test_differ(sides: tuple[Term, Term], values: dict[str, Any], expected: Verdict) -> None:
    witness = {**DIFFER, "values": {**DIFFER["values"], **values}}
    made = certificate(*sides, kind="differ", free={"i": "n"}, witness=witness)
    (answer,) = CHECKER.check(made)
    assert (answer.step, answer.verdict) == ("witness", expected), answer


@pytest.mark.parametrize(
    "change",
    [
        {"values": {"c": "1"}},
        {"values": {"x": ["1"]}},
        {"values": {"x": ["1", 0.5]}},
        {"index": [2]},
        {"index": []},
    ],
)
def test_a_witness_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    made = certificate(*RELU, kind="differ", free={"i": "n"}, witness={**DIFFER, **change})
    with pytest.raises(CertificateError, match=r"^[^\n]+$"):
        CHECKER.check(made)


# True statements that rest on more than this checker knows: never "refuted", and never "proved".
BEYOND: dict[str, dict[str, Any]] = {
    "a square under a root": one_i(sqrt((EPS + 1) * (EPS + 1)), EPS + 1),
    "the same inside a function": certificate(
        fun("f", sqrt((EPS + 1) * (EPS + 1))), fun("f", EPS + 1)
    ),
    "a third power under a root": certificate(
        sqrt(sym("c") * sym("c") * sym("c")), sym("c") * sqrt(sym("c"))
    ),
    "tanh is odd": one_i(fun("tanh", -X("i")), -fun("tanh", X("i"))),
    "exp of a sum": one_i(fun("exp", X("i") + Z("i")), fun("exp", X("i")) * fun("exp", Z("i"))),
    "relu of a multiple": one_i(fun("relu", lift(2) * X("i")), lift(2) * fun("relu", X("i"))),
    "a norm inside a sum": certificate(
        total("i", X("i") / sqrt(X("i") * X("i") + square(X) + EPS)),
        total("i", lift(2) * X("i") / (lift(2) * sqrt(X("i") * X("i") + square(X) + EPS))),
    ),
    "an argument without its index": certificate(
        total("i", fun("f", X("i") - X("i"))), N * fun("f", lift(0))
    ),
    "too large": certificate(
        total("i", total("l", total("k", lift(1) / (at("A", "i", "k") + X("l")), "m"))),
        total("l", total("i", total("k", lift(1) / (at("A", "i", "k") + X("l")), "m"))),
    ),
    "nowhere defined": one_i(X("i") / (EPS - EPS), X("i") / (EPS - EPS)),
    "root of a negative number": one_i(sqrt(lift(-4)), sqrt(lift(-4))),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_not_known_is_undecided(name: str) -> None:
    (answer,) = CHECKER.check(BEYOND[name])
    assert answer.verdict is Verdict.UNDECIDED
    assert answer.reason


def test_pi_is_pi() -> None:
    (answer,) = CHECKER.check(certificate(sym("pi"), lift(3)))
    assert answer.verdict is Verdict.REFUTED
    assert "3.1415927 is not 3" in answer.reason


def test_fingerprints_only_propose(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one fingerprint for everything all is compared exactly: slower, the same answers."""
    monkeypatch.setattr(Field, "seen", lambda self, value: flint.acb(1))
    for made in (THEOREMS["norm of a norm"], THEOREMS["network step"]):
        assert verdict(made) is Verdict.PROVED
    for made in (WRONG["roots add"], WRONG["network step, uncentred"], WRONG["LN without eps"]):
        assert verdict(made) is Verdict.REFUTED


def test_a_norm_inside_a_sum_is_still_refuted() -> None:
    inside = X("i") / sqrt(X("i") * X("i") + square(X) + EPS)
    assert verdict(certificate(total("i", inside), total("i", X("i")))) is Verdict.REFUTED


def changed(**changes: Any) -> dict[str, Any]:
    return {**THEOREMS["LN is RMS of centred"], **changes}


def with_term(*entry: Any) -> dict[str, Any]:
    made = THEOREMS["LN is RMS of centred"]
    return {**made, "terms": [*made["terms"], list(entry)]}


REFUSED = [
    (changed(schema=2), "schema 2"),
    ({}, "schema None"),
    (changed(claims=[]), "without claims"),
    (changed(positive=["x"]), "positive 'x'"),
    (changed(dims={"n": 0, "m": 1}), "'n' from 0"),
    (changed(symbols={}), "undeclared|declared"),
    (changed(terms=None), "not a certificate"),
    (changed(claims=[{"kind": "equal", "name": "c", "free": []}]), "steps"),
    (changed(claims=[{"kind": "less", "name": "c", "free": [], "steps": []}]), "'less'"),
    (
        changed(claims=[{"kind": "equal", "name": "c", "free": [], "steps": [["a", 0]]}]),
        "2 or more",
    ),
    (
        changed(claims=[{"kind": "equal", "name": "c", "free": [], "steps": [["a", 999]] * 2}]),
        "999",
    ),
    (with_term("max", 0, 1), "'max' is outside the language"),
    (with_term("add", 0, 10**6), "children must come earlier"),
    (with_term("add", 0, -1), "children must come earlier"),
    (with_term("add", 0), "operands"),
    (with_term("add", 0, "1"), "child '1'"),
    (with_term("num", 0.5), "number 0.5"),
    (with_term("num", "1/0"), "divides by zero"),
    (with_term("sym", "x"), "'x' with 0 indices"),
    (with_term("at", "q", [0]), "'q' is not a declared symbol"),
    (with_term("at", "x", [-1]), "indices"),
    (with_term("at", "A", [0, 0]), "runs over"),
    (with_term("dim", "d"), "'d' is not a declared dimension"),
    (with_term("diff", 0, "x", "eps"), "'eps' is not a direction"),
    (with_term("fun", "f", [], []), "without arguments"),
]


@pytest.mark.parametrize(("made", "message"), REFUSED)
def test_what_is_no_certificate_is_refused_in_one_line(made: dict[str, Any], message: str) -> None:
    with pytest.raises(CertificateError, match=message) as caught:
        CHECKER.check(made)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        fun("f", lam("j", X("j"))),
        fun("f", X("i"), X("i")),
    ],
)
def test_a_derivative_outside_the_language_is_refused(body: Term) -> None:
    with pytest.raises(CertificateError, match="outside the language"):
        CHECKER.check(one_i(diff(body, "x", "h"), X("i")))


def test_an_index_must_be_free_in_its_claim() -> None:
    made = changed()
    made["claims"] = [{**made["claims"][0], "free": []}]
    with pytest.raises(CertificateError, match="not free"):
        CHECKER.check(made)
    made["claims"] = [{**made["claims"][0], "free": ["m"]}]
    with pytest.raises(CertificateError, match="not free"):
        CHECKER.check(made)


def test_a_lam_stands_only_in_a_function() -> None:
    made = with_term("lam", ["n"], 0)
    made["terms"].append(["add", 0, len(made["terms"]) - 1])
    with pytest.raises(CertificateError, match="only as an argument"):
        CHECKER.check(made)


def test_it_is_quick() -> None:
    """The budgets are 0.3 s for a theorem and 3 s for the LayerNorm adjoint; here 10 % of them."""
    CHECKER.check(THEOREMS["LN is RMS of centred"])
    started = time.process_time()
    CHECKER.check(THEOREMS["LayerNorm adjoint"])
    assert time.process_time() - started < 0.3


def test_the_name_and_what_an_answer_rests_on() -> None:
    assert CHECKER.name == "python-flint"
    assert CHECKER.missing() == ""
    assert "cutoff" in CHECKER.states
