"""A certificate alone: no prover is loaded, and a changed one is refused with the step named."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from verify.finding import Verdict
from verify.symbolic.certificate import certificate
from verify.symbolic.checkers.answer import CertificateError
from verify.symbolic.checkers.recheck import checkers, load, opinion
from verify.symbolic.checkers.seals import sealed
from verify.symbolic.theorem import theorem_named

NAME = "LAYER_NORM_IS_SHIFT_INVARIANT"


@pytest.fixture
def path(tmp_path):
    """A certificate as `verify prove` writes it."""
    file = tmp_path / f"{NAME}.json"
    file.write_text(json.dumps(certificate(theorem_named(NAME))))
    return file


def changed(path, change) -> str:
    """What is said of the certificate after a change."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(CertificateError) as refused:
        load(path)
    line = str(refused.value)
    assert "\n" not in line
    return line


def test_every_checker_proves_it_from_the_file(path) -> None:
    content = load(path)
    verdicts = {checker.name: opinion(checker, content).verdict for checker in checkers()}
    assert verdicts == dict.fromkeys(("python-flint", "GF(2^61-1)", "z3"), Verdict.PROVED)


def test_neither_the_prover_nor_sympy_is_loaded(path) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['verify', 'check', {str(path)!r}]\n"
        "from verify.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: code = done.code\n"
        "loaded = [m for m in sys.modules if m.split('.')[0] == 'sympy' or m in\n"
        "          ('verify.symbolic.trusted', 'verify.symbolic.language', 'verify.norms')]\n"
        "assert not loaded, loaded\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "every step as it was sealed" in done.stdout


def test_one_step_changed_is_named(path) -> None:
    def swap(content):
        steps = content["claims"][0]["steps"]
        steps[1][1] = steps[2][1]

    line = changed(path, swap)
    claim = theorem_named(NAME).claims[0]
    assert f"step '{claim.steps[1][0]}' of claim '{claim.name}'" in line
    assert "was changed after it was sealed" in line


def test_one_digit_changed_is_named(path) -> None:
    def digit(content):
        row = next(row for row in content["terms"] if row[0] == "num")
        row[1] = "7"

    assert "step '" in changed(path, digit)


def test_a_word_changed_is_noticed(path) -> None:
    line = changed(path, lambda content: content.update(statement="x = 2 x"))
    assert "in the words or declarations around the steps" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no JSON"),
        ("[1, 2", "holds no JSON"),
        ("[" * 100_000, "holds no JSON"),
        ("[]", "is no certificate of schema 1"),
        ('{"schema": 1, "schema": 1}', "a key stands there twice"),
        ('{"schema": 2}', "is no certificate of schema 1"),
        ('{"schema": 1, "terms": [["sqrt", 5]], "claims": []}', "is no whole certificate"),
        ('{"schema": 1, "terms": [], "claims": [{}]}', "is no whole certificate"),
        ('{"schema": 1, "terms": 3, "claims": 4}', "is no whole certificate"),
    ],
)
def test_what_is_no_certificate_is_told_in_one_line(tmp_path, text, said) -> None:
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(CertificateError, match=said) as refused:
        load(file)
    assert "expected" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change", [{"name": "A\nB"}, {"name": "\x1b[31m"}, {"name": 3}, {"dims": {"n": 2000}}]
)
def test_names_that_would_forge_a_line_and_dimensions_without_end_are_refused(path, change) -> None:
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps(sealed(content)))
    with pytest.raises(CertificateError) as refused:
        load(path)
    assert "\n" not in str(refused.value)


def test_a_false_certificate_whose_seals_are_whole_is_refuted(path) -> None:
    """Seals only say that nothing changed: that it is true is for the checkers."""
    content = json.loads(path.read_text())
    claim = content["claims"][-1]
    content["terms"].append(["add", claim["steps"][-1][1], claim["steps"][-1][1]])
    claim["steps"][-1][1] = len(content["terms"]) - 1
    path.write_text(json.dumps(sealed(content)))
    verdicts = {opinion(checker, load(path)).verdict for checker in checkers()}
    assert verdicts == {Verdict.REFUTED}
