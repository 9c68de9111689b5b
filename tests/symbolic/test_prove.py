"""Every theorem, every judge, every wrong sibling; and what is said where one of them fails."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest

from verify.finding import Verdict
from verify.symbolic import prove as module
from verify.symbolic.checkers import recheck, rocq
from verify.symbolic.checkers.answer import Answer, Checker
from verify.symbolic.language import Statement, sqrt
from verify.symbolic.prove import judge, judge_all, prove, rocq_opinions
from verify.symbolic.theorem import UnknownTheoremError, theorem_named, theorem_names
from verify.symbolic.trusted import OutsideLanguageError

NAMES = theorem_names()
ONE = "LAYER_NORM_IS_RMS_NORM_OF_CENTRED"
LEAST_SIBLINGS = 10


@pytest.mark.parametrize("name", NAMES)
def test_a_theorem_is_proved_and_whoever_accepts_it_rejects_its_siblings(name: str) -> None:
    judged = judge(name)
    assert judged.proof.verdict is Verdict.PROVED, judged.proof.rejected
    for judge_name in ("python-flint", "GF(2^61-1)"):
        assert judged.opinions[judge_name].verdict is Verdict.PROVED, judged.opinions[judge_name]
    # z3 says undecided where the cutoff's dimensions are out of its reach; never refuted.
    assert judged.opinions["z3"].verdict in {Verdict.PROVED, Verdict.UNDECIDED}
    assert len(judged.wrong) >= LEAST_SIBLINGS
    for sibling in judged.wrong:
        assert sibling.accepted_by == [], sibling.name
        accepting = [n for n, o in judged.opinions.items() if o.verdict is Verdict.PROVED]
        assert list(sibling.verdicts) == ["kernel", *accepting]
    assert judged.is_whole


def test_there_are_forty_theorems_and_more() -> None:
    assert len(NAMES) >= 40
    assert len(NAMES) * LEAST_SIBLINGS >= 400


# --- a prover and a checker that are wrong -------------------------------------------------------


def stated(*sides: object) -> object:
    """The theorem ONE with another claim, which may be false."""
    about = Statement()
    (x,) = about.numbers("x")
    about.equal("planted", *((f"side {k}", side(x)) for k, side in enumerate(sides)))
    return replace(theorem_named(ONE), claims=tuple(about.claims), setting=about.setting)


def test_a_false_theorem_is_undecided_with_the_step_named() -> None:
    proof = prove(stated(lambda x: x + x, lambda x: 2 * x, lambda x: 3 * x))
    assert proof.verdict is Verdict.UNDECIDED
    assert [(claim, step) for claim, step, _ in proof.rejected] == [("planted", "side 2")]


def test_what_cannot_be_said_is_never_undecided() -> None:
    with pytest.raises(OutsideLanguageError, match="division by zero"):
        prove(stated(lambda x: x / (x - x), lambda x: x))
    with pytest.raises(UnknownTheoremError, match="expected one of"):
        prove("LAYER_NORM_IS_RMS")


def checker_that_says(verdict: Verdict) -> Checker:
    def check(certificate):
        return [Answer(c["name"], "step", verdict, "planted") for c in certificate["claims"]]

    return Checker("planted", check)


def test_a_checker_that_accepts_everything_is_caught(monkeypatch) -> None:
    monkeypatch.setattr(module, "checkers", lambda: (checker_that_says(Verdict.PROVED),))
    judged = judge(ONE)
    assert not judged.is_whole
    assert judged.wrong
    assert all(sibling.accepted_by == ["planted"] for sibling in judged.wrong)


def test_a_checker_that_refutes_a_theorem_is_heard(monkeypatch) -> None:
    monkeypatch.setattr(module, "checkers", lambda: (checker_that_says(Verdict.REFUTED),))
    judged = judge(ONE)
    assert not judged.is_whole
    assert judged.opinions["planted"].doubts[0][2] == "refuted: planted"


def test_a_checker_that_is_not_here_is_skipped_and_tries_no_sibling(monkeypatch) -> None:
    absent = replace(checker_that_says(Verdict.PROVED), missing=lambda: "not installed")
    monkeypatch.setattr(module, "checkers", lambda: (absent,))
    judged = judge(ONE)
    assert judged.opinions["planted"] == recheck.Opinion(Verdict.SKIPPED, "not installed")
    assert all(list(sibling.verdicts) == ["kernel"] for sibling in judged.siblings)


def test_a_prover_that_accepts_everything_is_caught(monkeypatch) -> None:
    monkeypatch.setattr("verify.symbolic.siblings.rejections", lambda claim, setting: [])
    monkeypatch.setattr(module, "rejections", lambda claim, setting: [])
    judged = judge(ONE, count=3)
    # What it accepts is listed as true, with a reason: the table has no wrong sibling left.
    assert [s.verdicts["kernel"] for s in judged.siblings] == [Verdict.PROVED] * 3
    assert len(judged.wrong) < LEAST_SIBLINGS


# --- several processes, and Rocq -----------------------------------------------------------------


def test_two_processes_say_what_one_says() -> None:
    names = NAMES[:5]
    alone = list(judge_all(names, processes=1, count=1))
    shared = list(judge_all(names, processes=2, count=1))
    assert [each.certificate for each in shared] == [each.certificate for each in alone]
    assert [each.opinions for each in shared] == [each.opinions for each in alone]
    assert not multiprocessing.active_children()


def test_rocq_is_skipped_with_its_reason_and_counts_for_nothing(monkeypatch) -> None:
    absent = replace(rocq.CHECKER, missing=lambda: "coqc is not installed")
    monkeypatch.setattr(rocq, "CHECKER", absent)
    opinions = rocq_opinions([ONE, "CHANNEL_GATES_DO_NOT_FOLD"])
    assert opinions == {ONE: recheck.Opinion(Verdict.SKIPPED, "coqc is not installed")}


def test_a_root_of_a_number_that_is_no_square_is_a_number_like_any_other() -> None:
    two = stated(lambda x: sqrt(2) * sqrt(2) * x, lambda x: 2 * x, lambda x: x * sqrt(2) * sqrt(2))
    assert prove(two).verdict is Verdict.PROVED
    assert prove(stated(lambda x: sqrt(2) * x, lambda x: x)).verdict is Verdict.UNDECIDED
