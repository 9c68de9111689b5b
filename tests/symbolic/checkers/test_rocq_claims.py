"""Which claims Rocq's theorems state: all of them are proved, and a changed one is not answered."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from verify.finding import Verdict
from verify.symbolic.certificate import certificate
from verify.symbolic.checkers import rocq
from verify.symbolic.checkers.answer import CertificateError, verdict_of
from verify.symbolic.checkers.rocq import Compiled, RocqError
from verify.symbolic.checkers.rocq_claims import CLAIMS
from verify.symbolic.checkers.rocq_theorems import FILES
from verify.symbolic.siblings import siblings
from verify.symbolic.theorem import theorem_named, theorem_names

needs_rocq = pytest.mark.skipif(bool(rocq.missing()), reason=f"skipped: {rocq.missing()}")
PROOFS = rocq.proofs_folder() or Path()
PROJECTION = "CENTRING_IS_A_PROJECTION"


@needs_rocq
@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_with_theorems_is_proved(name):
    answers = rocq.CHECKER.check(certificate(theorem_named(name)))
    claims = [claim.name for claim in theorem_named(name).claims]
    assert [answer.claim for answer in answers] == claims
    assert [a for a in answers if a.claim in CLAIMS[name] and a.verdict != Verdict.PROVED] == []
    assert {a.claim for a in answers if a.verdict == Verdict.PROVED} == set(CLAIMS[name])


def test_the_table_names_certificates_claims_and_theorems_that_exist():
    assert CLAIMS.keys() <= set(theorem_names())
    for name, claims in CLAIMS.items():
        assert claims.keys() <= {claim.name for claim in theorem_named(name).claims}
        for _, stated_by in claims.values():
            assert set(stated_by.split()) <= rocq.THEOREMS.keys()


def test_the_two_tables_agree():
    assert [name for names in FILES.values() for name in names] == list(rocq.ROCQ_OF)
    assert {c for _, names in rocq.ROCQ_OF.values() for c in names} == set(CLAIMS)
    assert rocq.THEOREMS["pythagoras"].certificates == ("CENTRING_IS_A_PROJECTION",)


def test_a_certificate_without_theorems_is_undecided_and_compiles_nothing(monkeypatch):
    monkeypatch.setattr(rocq, "check_proofs", lambda: pytest.fail("compiled"))
    name = next(name for name in theorem_names() if name not in CLAIMS)
    answers = rocq.check(certificate(theorem_named(name)))
    assert {(a.verdict, a.reason) for a in answers} == {
        (Verdict.UNDECIDED, "no hand-written proof")
    }
    assert verdict_of(answers) == Verdict.UNDECIDED


@pytest.mark.parametrize("name", CLAIMS)
def test_a_wrong_claim_under_a_known_name_is_not_proved(monkeypatch, name):
    monkeypatch.setattr(rocq, "check_proofs", lambda: pytest.fail("compiled"))
    theorem = theorem_named(name)
    for sibling in siblings(theorem):
        for claim in CLAIMS[name]:
            wrong = replace(theorem, claims=(replace(sibling.claim, name=claim),))
            (answer,) = rocq.check(certificate(wrong))
            assert answer.verdict == Verdict.UNDECIDED
            assert answer.reason.startswith("not the claim that was read against")


def test_seals_of_the_right_claim_do_not_cover_a_wrong_one():
    name = "ONE_PASS_VARIANCE_IS_TWO_PASS"
    content = certificate(theorem_named(name))
    row = next(n for n, row in enumerate(content["terms"]) if row[0] == "num")
    content["terms"][row] = ["num", "7"]
    given = dict(zip(CLAIMS[name], rocq.fingerprints(content), strict=True))
    assert any(given[claim] != CLAIMS[name][claim][0] for claim in given)


def test_a_hypothesis_that_was_dropped_or_added_is_another_claim():
    name = "RMS_NORM_IS_ZERO_HOMOGENEOUS"
    content = certificate(theorem_named(name))
    right = rocq.fingerprints(content)
    assert right == [fingerprint for fingerprint, _ in CLAIMS[name].values()]
    for changed in ({"positive": []}, {"dims": {"n": 2}}, {"symbols": {}}):
        assert not set(rocq.fingerprints(content | changed)) & set(right)


def test_a_theorem_that_is_not_closed_leaves_its_claims_undecided(monkeypatch):
    said = [Compiled(name, name != "pythagoras", "Axioms: cheat") for name in rocq.THEOREMS]
    monkeypatch.setattr(rocq, "check_proofs", lambda: said)
    answers = {a.claim: a for a in rocq.check(certificate(theorem_named(PROJECTION)))}
    assert answers["it is idempotent"].verdict == Verdict.PROVED
    assert answers["Pythagoras"].verdict == Verdict.UNDECIDED
    assert answers["Pythagoras"].reason == "pythagoras: Axioms: cheat"


def test_without_rocq_a_known_claim_is_no_answer(monkeypatch):
    monkeypatch.setattr(rocq, "missing", lambda: "coqc is not installed")
    with pytest.raises(RocqError, match="coqc is not installed"):
        rocq.CHECKER.check(certificate(theorem_named(PROJECTION)))


@pytest.mark.parametrize("content", [{}, {"schema": 7}, {"schema": 1}, []])
def test_what_is_no_certificate_is_refused_in_one_line(content):
    with pytest.raises(CertificateError) as caught:
        rocq.check(content)
    assert "\n" not in str(caught.value)


@needs_rocq
def test_the_proofs_are_compiled_once(monkeypatch):
    rocq.check_proofs()
    monkeypatch.setattr(rocq, "compile_proofs", lambda *_: pytest.fail("compiled again"))
    assert all(answer.closed for answer in rocq.check_proofs())


def test_neither_the_prover_nor_a_theorem_is_loaded():
    code = (
        "import sys, verify.symbolic.checkers.rocq; "
        "print(sorted(m for m in sys.modules if m.startswith('verify.symbolic.t')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not PROOFS.name, reason="skipped: no proofs/ folder beside the package")
def test_the_readme_lists_every_theorem_under_its_file():
    text = (PROOFS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|$", text, re.MULTILINE)
    listed = {name: tuple(re.findall(r"`(\w+)`", names)) for name, names in rows}
    assert listed == {name: where.certificates for name, where in rocq.THEOREMS.items()}
    for file, names in FILES.items():
        section = text.split(f"### {file}\n")[1].split("\n### ")[0]
        assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == names
