"""Theorems: what each says in words, where it is used, and what an unknown name is told."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from verify.symbolic.theorem import (
    UnknownTheoremError,
    theorem,
    theorem_named,
    theorem_names,
)

NAMES = theorem_names()
A_NAME = re.compile(r"\b[A-Z0-9]+(?:_[A-Z0-9]+)+\b")
WORDS = {"statement": "a = b", "citation": "proved here", "used_in": ("the tests",)}


@pytest.fixture
def bodies(monkeypatch):
    """The register, put back after the test."""
    register = dict(sys.modules["verify.symbolic.theorem"].__dict__["_BODIES"])
    monkeypatch.setattr("verify.symbolic.theorem._BODIES", register)
    return register


def one_is_one(s):
    """One
    is one.
    """
    s.equal("one", ("1", 1), ("1 again", 1))


# --- registering ---------------------------------------------------------------------------------


def test_a_function_is_registered_under_its_name_in_capitals(bodies):
    assert theorem(**WORDS, hypotheses=("none",), true_siblings={"a": "b"})(one_is_one)
    assert list(bodies)[-1] == "ONE_IS_ONE"
    found = theorem_named("one_is_one")
    assert (found.name, found.summary) == ("ONE_IS_ONE", "One is one.")
    assert (found.statement, found.citation, found.used_in) == tuple(WORDS.values())
    assert (found.hypotheses, found.true_siblings) == (("none",), {"a": "b"})
    assert [claim.name for claim in found.claims] == ["one"]


def test_the_body_is_returned_as_it_was(bodies):
    assert theorem(**WORDS)(one_is_one) is one_is_one
    assert len(bodies) == len(NAMES) + 1


def test_a_name_is_registered_once(bodies):
    def other(s):
        """Something else."""

    other.__name__, other.__module__ = NAMES[0], "another.module"
    with pytest.raises(ValueError, match=f"theorem '{NAMES[0]}' is stated twice"):
        theorem(**WORDS)(other)
    assert list(bodies) == NAMES
    theorem(**WORDS)(one_is_one)
    theorem(**WORDS)(one_is_one)  # a module that is loaded again


# --- names ---------------------------------------------------------------------------------------


def refused(name):
    with pytest.raises(UnknownTheoremError) as caught:
        theorem_named(name)
    return str(caught.value)


def test_a_name_may_be_in_small_letters():
    assert theorem_named(NAMES[0].lower()).name == NAMES[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_slip_in_a_name_is_told_the_name(name):
    message = refused(name[:4] + name[5:])
    assert message.startswith(f"unknown theorem '{name[:4] + name[5:]}': expected one of ")
    assert name in message.split("expected one of ")[1].split(", ")


def test_a_part_of_a_name_is_told_names_that_have_it():
    near = refused("welford").split("expected one of ")[1].split(", ")
    assert "WELFORD_IS_TWO_PASS" in near
    assert len(near) == len(set(near)) <= 6


@pytest.mark.parametrize("name", ["7", "?", "\n", "7\n7"])
def test_a_name_that_nothing_is_near_is_told_where_names_are(name):
    message = refused(name)
    assert message == f"unknown theorem {name!r}: expected a name that `verify prove --list` prints"
    assert "\n" not in message


def test_the_order_of_names_does_not_depend_on_what_is_imported_first():
    code = (
        "import verify.symbolic.theorems.{} as first; "
        "from verify.symbolic.theorem import theorem_names; print(*theorem_names())"
    )
    for first in ("networks", "rotations"):
        printed = subprocess.run(
            [sys.executable, "-c", code.format(first)], capture_output=True, text=True, check=True
        )
        assert printed.stdout.split() == NAMES


# --- what each theorem says ----------------------------------------------------------------------


def unbalanced(latex):
    """What is wrong with the braces of LaTeX, and with its \\left and \\right; empty if nothing."""
    depth = 0
    for found in re.finditer(r"\\.|[{}]", latex):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth < 0:
            return f"a brace too many at {found.start()}"
    pairs = [("left", "right"), ("begin", "end"), ("big", "big"), ("Big", "Big")]
    for opening, closing in pairs:
        counts = [len(re.findall(rf"\\{word}(?![A-Za-z])", latex)) for word in (opening, closing)]
        if counts[0] != counts[1] or (opening == closing and counts[0] % 2):
            return f"\\{opening} {counts[0]} times, \\{closing} {counts[1]} times"
    return f"{depth} braces left open" if depth else ""


@pytest.mark.parametrize(
    "latex", [r"\frac{1}{2", r"a}{b", r"\left( a", r"\begin{aligned} a", r"\big( a + b", "}{"]
)
def test_broken_latex_is_seen(latex):
    assert unbalanced(latex)


@pytest.mark.parametrize("latex", [r"\{a\} = {b}", r"\big( a \big)", r"\leftarrow \bigoplus"])
def test_whole_latex_is_let_pass(latex):
    assert not unbalanced(latex)


def unknown(used_in):
    """The names in capitals that are no theorem."""
    return [word for use in used_in for word in A_NAME.findall(use) if word not in NAMES]


def test_a_use_that_is_no_theorem_is_seen():
    assert unknown(("PRE_LN_IS_PRE_RMS_NORM, base", "NO_SUCH_THEOREM", "conversion of RWKV")) == [
        "NO_SUCH_THEOREM"
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_says_what_a_reader_needs(name):
    found = theorem_named(name)
    assert found.name == name
    assert found.statement.strip()
    assert unbalanced(found.statement) == ""
    assert re.fullmatch(r"\S.*[^.]\.", found.summary), found.summary
    assert not re.search(r"[.!?] [A-Z]", found.summary.replace("i.e. ", "")), "one sentence"
    assert found.citation.strip()
    assert found.used_in
    assert all(words.strip() for words in (*found.used_in, *found.hypotheses))
    assert unknown(found.used_in) == []
    assert name not in found.used_in


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_claims_something_under_names_that_are_its_own(name):
    claims = theorem_named(name).claims
    names = [claim.name for claim in claims]
    assert names
    assert all(n.strip() for n in names)
    assert len(set(names)) == len(names)
    for claim in claims:
        steps = [step for step, _ in claim.steps]
        assert len(steps) >= 2
        assert len(set(steps)) == len(steps), claim.name


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_is_stated_the_same_each_time(name):
    assert theorem_named(name) == theorem_named(name)
