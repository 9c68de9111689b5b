"""What is no certificate is refused by the checker mod p, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.symbolic.checkers.sample_certificates import at, certificate, total
from tests.symbolic.checkers.sample_theorems import SAMPLES, x
from verify.symbolic.checkers.answer import CertificateError
from verify.symbolic.checkers.finite_field import CHECKER

I = (("i", "n"),)
WITNESS = {"dims": {"n": 2}, "values": {"x": ["3", "4"], "eps": "1/4"}, "index": [1]}


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
        (["add", 0], "2 operands"),
        (["num", "a"], "rational"),
        (["num", 0.5], "rational"),
        (["num", "1/0"], "rational"),
        (["dim", "d"], "'d'"),
        (["sym", "y"], "'y'"),
        (["sym", "x"], "indices"),
        (["at", "x", []], "expected"),
        (["at", "x", [-1]], "de Bruijn"),
        (["sum", "d", 0], "'d'"),
        (["diff", 0, "x", "eps"], "one shape"),
        ([], "outside the language"),
        ("sqrt", "outside the language"),
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


def test_an_array_is_no_number() -> None:
    document = SAMPLES[0].true()
    document["terms"] += [["num", "1"], ["lam", ["n"], len(document["terms"])]]
    document["terms"].append(["sqrt", len(document["terms"]) - 1])
    assert "'lam'" in _refused(document)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": None},
        {"dims": {"n": 0}},
        {"dims": {}},
        {"positive": ["x"]},
        {"claims": [{"kind": "less", "name": "c", "steps": []}]},
        {"claims": [{"kind": "equal", "name": "c", "free": ["n"], "steps": [["a", 0]]}]},
        {"claims": [{"kind": "equal", "name": "c", "free": [], "steps": [["a", 0], ["b", 999]]}]},
        {"claims": [{"kind": "equal", "name": "c", "free": ["d"], "steps": []}]},
        {"claims": [7]},
        {"terms": None},
    ],
)
def test_a_malformed_certificate_is_an_error_of_one_line(change: dict[str, Any]) -> None:
    _refused(SAMPLES[0].true() | change)


def test_an_index_that_nothing_binds_is_an_error() -> None:
    document = SAMPLES[0].true()
    document["claims"][0]["free"] = []
    assert "bound by nothing" in _refused(document)


def test_a_symbol_indexed_over_another_dimension_is_an_error() -> None:
    document = certificate(
        total(lambda k: at("v", k), "m"), at("A", "i", "j"), free=(*I, ("j", "m"))
    )
    document["claims"][0]["free"] = ["m", "m"]
    assert "indexed by" in _refused(document)


def test_a_missing_key_is_named() -> None:
    document = SAMPLES[0].true()
    del document["claims"]
    assert "claims" in _refused(document)


@pytest.mark.parametrize(
    "witness",
    [
        None,
        {"dims": {"n": 2}},
        WITNESS | {"values": {}},
        WITNESS | {"values": {"x": ["3"]}},
        WITNESS | {"values": {"x": [3, 4]}},
        WITNESS | {"index": [2]},
        WITNESS | {"index": []},
    ],
)
def test_a_witness_that_does_not_fit_is_an_error_of_one_line(witness: Any) -> None:
    document = certificate(x("i"), -x("i"), free=I, kind="differ", witness=witness)
    _refused(document)
