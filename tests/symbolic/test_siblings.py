"""Wrong siblings: what the field gets wrong, made for every theorem, and rejected or explained."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import settings

from verify.symbolic import siblings as module
from verify.symbolic.certificate import broken_seals, certificate, read
from verify.symbolic.language import Statement, sqrt, total
from verify.symbolic.siblings import (
    EQUATED,
    KINDS,
    PER_THEOREM,
    reason_if_true,
    replaced,
    siblings,
)
from verify.symbolic.theorem import Theorem, theorem_named, theorem_names
from verify.symbolic.trusted import Claim, OutsideLanguageError, Term, num, rejections

# Making the siblings of the longest theorems takes the kernel minutes: under `deep` only.
LONGEST = 110 if settings.default.max_examples < 1000 else 10**9


def length(name):
    """The number of terms of a theorem."""
    return len(certificate(theorem_named(name))["terms"])


ALL = theorem_names()
NAMES = [name for name in ALL if length(name) <= LONGEST]


@cache
def of(name):
    """The siblings of a theorem; making them all takes seconds."""
    return siblings(theorem_named(name))


def made(state):
    """A theorem of the claims that ``state`` makes, over a row x and the numbers a, b, eps."""
    s = Statement()
    i = s.index()
    (x,), (a, b) = s.arrays("x", i), s.numbers("a b")
    (eps,) = s.numbers("eps", positive=True)
    state(s, i, x, a, b, eps)
    return Theorem("T", "A.", "a", (), "c", ("u",), s.setting, tuple(s.claims))


# --- of every theorem ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_has_ten_siblings_each_rejected_or_explained(name):
    theorem = theorem_named(name)
    found = of(name)
    assert 10 <= len(found) <= PER_THEOREM
    for sibling in found:
        assert sibling.kind in KINDS
        assert sibling.claim.kind == "equal"
        assert bool(reason_if_true(sibling, theorem.setting)) != sibling.rejected
    assert sum(sibling.rejected for sibling in found) >= 10, "too few that are wrong"


@pytest.mark.parametrize("name", ALL)
def test_every_theorem_has_enough_to_change(name, monkeypatch):
    monkeypatch.setattr(module, "rejections", lambda *_: [("step", "the normal forms differ")])
    assert len(siblings(theorem_named(name))) == PER_THEOREM


def test_most_theorems_are_tried_by_the_kernel():
    assert len(NAMES) > len(ALL) / 2


def test_the_kernel_says_which_siblings_are_rejected():
    for name in NAMES[::10]:
        setting = theorem_named(name).setting
        for sibling in of(name):
            assert sibling.rejected == bool(rejections(sibling.claim, setting))


@pytest.mark.parametrize("name", NAMES)
def test_no_sibling_is_the_theorem_or_another_sibling(name):
    stated = {tuple(term for _, term in claim.steps) for claim in theorem_named(name).claims}
    sides = [tuple(term for _, term in s.claim.steps) for s in of(name)]
    assert len({(s.claim.free, *pair) for s, pair in zip(of(name), sides, strict=True)}) == len(
        sides
    )
    assert len({sibling.name for sibling in of(name)}) == len(sides)
    wrong = [pair for s, pair in zip(of(name), sides, strict=True) if s.kind != EQUATED]
    assert not stated & set(wrong)
    assert all(left is not right for left, right in sides)


@pytest.mark.parametrize("name", NAMES)
def test_a_sibling_can_be_handed_to_a_checker(name):
    theorem = theorem_named(name)
    content = certificate(replace(theorem, claims=tuple(s.claim for s in of(name))))
    assert broken_seals(content) == []
    assert read(content)[1] == [sibling.claim for sibling in of(name)]


def test_siblings_are_spread_over_claims_and_kinds():
    kinds = Counter(sibling.kind for name in NAMES for sibling in of(name))
    assert set(kinds) == set(KINDS), "a kind that no theorem meets"
    assert max(kinds.values()) < sum(kinds.values()) / 4
    for name in NAMES:
        claims = {claim.name for claim in theorem_named(name).claims if claim.kind != "differ"}
        touched = {c for c in claims for s in of(name) if s.name.startswith(f"{c} / ")}
        assert len(touched) >= min(len(claims), PER_THEOREM), name
        assert len({sibling.kind for sibling in of(name)}) >= 4, name


def test_siblings_are_the_same_each_time():
    for name in NAMES[::6]:
        assert siblings(theorem_named(name)) == of(name)


def test_siblings_are_the_same_in_every_process():
    names = NAMES[::10]
    code = (
        "import sys; from verify.symbolic.siblings import siblings; "
        "from verify.symbolic.theorem import theorem_named; "
        "print([[(s.name, s.kind, s.rejected) for s in siblings(theorem_named(n))]"
        " for n in sys.argv[1:]])"
    )
    here = str([[(s.name, s.kind, s.rejected) for s in of(name)] for name in names])
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, *names]
        printed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        assert printed.stdout == here + "\n"


@pytest.mark.parametrize("count", [0, 1, 5])
def test_as_many_siblings_as_were_asked_for(count):
    assert len(siblings(theorem_named(NAMES[0]), count)) == count


# --- what the field gets wrong -------------------------------------------------------------------


def test_the_faults_of_a_norm_are_all_made_and_rejected():
    def layer_norm(s, i, x, a, b, eps):
        d = s.dimension("n")
        mean = total(i, x) / d
        variance = total(i, (x - mean) * (x - mean)) / d
        s.equal(
            "norm",
            ("by moments", (x - mean) / sqrt(total(i, x * x) / d - mean * mean + eps) * a + b),
            ("centred", (x - mean) / sqrt(variance + eps) * a + b),
            free=[i],
        )

    found = siblings(made(layer_norm), 1000)
    assert all(sibling.rejected for sibling in found)
    changes = {sibling.name.split(" / ")[1].split(" #")[0] for sibling in found}
    assert {
        "n+1 for n",
        "eps dropped",
        "eps doubled",
        "eps squared in the root",
        "the root lost",
        "the second summand lost",
        "the first summand lost",
        "a sign",
        "the divisor lost",
        "a factor lost",
        "x doubled",
        "b dropped",
        "a sum doubled",
    } <= changes


def test_d_minus_one_divides_where_no_root_is_taken():
    """The kernel takes no root of a quotient by n - 1, which may be 0: there, n + 1 is tried."""
    theorem = made(
        lambda s, i, x, a, b, eps: s.equal(
            "mean", ("l", total(i, x) / total(i, 1)), ("r", total(i, x / s.dimension("n")))
        )
    )
    found = {sib.kind: sib for sib in siblings(theorem, 100)}
    assert found["d-1 for d"].rejected
    assert found["d+1 for d"].rejected


def test_an_isometry_is_transposed():
    s = Statement()
    i, j = s.index(), s.index()
    (Q,), (x,) = s.arrays("Q", i, j), s.arrays("x", j)
    s.equal("map", ("Qx", total(j, Q * x)), ("xQ", total(j, x * Q)), free=[i])
    theorem = Theorem("T", "A.", "a", (), "c", ("u",), s.setting, tuple(s.claims))
    (found,) = [sib for sib in siblings(theorem, 100) if sib.kind == "transposed"]
    assert found.rejected
    assert found.changed.data == ("Q", (1, 0))


def test_eps_moves_out_of_the_root():
    theorem = made(
        lambda s, i, x, a, b, eps: s.equal(
            "root", ("l", sqrt(total(i, x * x) + eps)), ("r", sqrt(eps + total(i, x * x)))
        )
    )
    moved = [sib for sib in siblings(theorem, 100) if sib.kind == "eps moved"]
    assert {sib.name.split(" / ")[1].split(" #")[0] for sib in moved} == {
        "eps squared in the root",
        "eps outside the root",
    }
    assert all(sib.rejected for sib in moved)


def test_sides_that_differ_are_equated():
    theorem = made(
        lambda s, i, x, a, b, eps: s.differ("not", a + b, a - b, values={"a": 1, "b": 1})
    )
    (found,) = siblings(theorem)
    assert found.kind == EQUATED
    assert found.rejected
    assert found.claim.steps == theorem.claims[0].steps


def test_a_witness_is_no_reason_to_call_a_mutant_wrong():
    """a - b for a + b, mutated by its sign, is a + b: true by luck, so it must not be a sibling."""
    theorem = made(
        lambda s, i, x, a, b, eps: s.differ("not", a + b, a - b, values={"a": 1, "b": 1})
    )
    assert [reason_if_true(s, theorem.setting) for s in siblings(theorem, 100)] == [""]


# --- those that are true -------------------------------------------------------------------------


def test_a_change_that_changes_nothing_is_listed_as_true():
    theorem = made(lambda s, i, x, a, b, eps: s.equal("idle", ("a", a), ("a + 0 b", a + 0 * b)))
    found = {s.name.split(" / ")[1].split(" #")[0]: s for s in siblings(theorem, 100)}
    idle = found["b doubled"]
    assert not idle.rejected
    assert "leaves the side as it was" in reason_if_true(idle, theorem.setting)
    assert found["a doubled"].rejected
    assert reason_if_true(found["a doubled"], theorem.setting) == ""


def test_a_part_that_is_zero_is_the_reason():
    theorem = made(
        lambda s, i, x, a, b, eps: s.equal(
            "centred", ("a", a), ("and 0", a + total(i, x - total(i, x) / total(i, 1)))
        )
    )
    true = [s for s in siblings(theorem, 100) if not s.rejected]
    reasons = {
        s.name.split(" / ")[1].split(" #")[0]: reason_if_true(s, theorem.setting) for s in true
    }
    assert reasons["a sum doubled"] == "the part that was changed is 0 for every width"
    assert all(reasons.values())


def test_a_planted_change_into_the_same_value_is_caught(monkeypatch):
    """b + a for a + b: a change of the term, not of what it says."""

    def same(t, _):
        if t.op == "add":
            yield "a sign", "turned round", Term.make("add", t.args[1], t.args[0])

    monkeypatch.setattr(module, "_changes", same)
    theorem = made(lambda s, i, x, a, b, eps: s.equal("sum", ("l", 1 * (a + b)), ("r", a + b)))
    (found,) = siblings(theorem)
    assert not found.rejected
    assert reason_if_true(found, theorem.setting)


# --- what the kernel cannot say ------------------------------------------------------------------


def test_siblings_outside_the_language_are_not_counted():
    """Of sqrt(eps), eps dropped is sqrt(0), which the kernel refuses to read."""
    theorem = made(
        lambda s, i, x, a, b, eps: s.equal("r", ("l", sqrt(eps) + a), ("r", a + sqrt(eps)))
    )
    with pytest.raises(OutsideLanguageError):
        rejections(
            Claim("equal", "0", (), (("0", Term.make("sqrt", num(0))), ("1", num(0)))),
            theorem.setting,
        )
    found = siblings(theorem, 100)
    names = [s.name for s in found]
    assert found
    assert not [name for name in names if "eps dropped" in name]
    assert [name for name in names if "eps doubled" in name]


def test_a_kernel_that_refuses_everything_leaves_no_sibling(monkeypatch):
    def refuse(*_):
        raise OutsideLanguageError("nothing can be said")

    monkeypatch.setattr(module, "rejections", refuse)
    assert siblings(theorem_named(NAMES[0])) == []


def test_a_kernel_that_refuses_every_other_is_asked_until_there_are_enough(monkeypatch):
    asked = []

    def refuse(claim, setting):
        asked.append(claim)
        if len(asked) % 2:
            raise OutsideLanguageError("not this one")
        return rejections(claim, setting)

    monkeypatch.setattr(module, "rejections", refuse)
    assert len(siblings(theorem_named(NAMES[0]))) == PER_THEOREM
    assert len(asked) >= 2 * PER_THEOREM


def test_a_part_that_stands_below_a_binder_still_has_a_reason():
    theorem = made(
        lambda s, i, x, a, b, eps: s.equal("s", ("a", a), ("a + 0", a + 0 * total(i, x * x)))
    )
    true = [s for s in siblings(theorem, 100) if not s.rejected and s.changed.op == "at"]
    assert true
    assert all("leaves the side" in reason_if_true(s, theorem.setting) for s in true)


# --- the change of a term ------------------------------------------------------------------------


def test_every_occurrence_of_a_part_is_replaced():
    a, b = (Term.make("sym", data=name) for name in "ab")
    twice = Term.make("mul", a, Term.make("sqrt", a))
    assert replaced(twice, a, b) is Term.make("mul", b, Term.make("sqrt", b))
    assert replaced(twice, b, a) is twice
    assert replaced(twice, twice, a) is a


def test_a_prover_that_accepts_everything_would_be_seen(monkeypatch):
    monkeypatch.setattr(module, "rejections", lambda *_: [])
    found = siblings(theorem_named(NAMES[0]))
    assert found
    assert not any(sibling.rejected for sibling in found)
