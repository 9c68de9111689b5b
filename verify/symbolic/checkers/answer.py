"""What a checker answers, and what every checker is: a name and a function of a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from verify.finding import Verdict

Certificate: TypeAlias = Mapping[str, Any]


class CertificateError(ValueError):
    """A certificate that cannot be read: outside the language, or not a certificate."""


@dataclass(frozen=True)
class Answer:
    """The verdict about one step of one claim: proved, refuted (with a witness) or undecided.

    ``reason`` is one sentence: the dimensions and points at which the step was tried, or what
    stood in the way.
    """

    claim: str
    step: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Checker:
    """``check`` answers for each step of each claim, in order; ``missing`` says why it cannot run.

    ``missing()`` is the empty string where the checker's tool is installed.
    """

    name: str
    check: Callable[[Certificate], Sequence[Answer]]
    missing: Callable[[], str] = str
    states: str = ""  # what an answer "proved" rests on, in one sentence


def verdict_of(answers: Sequence[Answer]) -> Verdict:
    """Refuted if any step is, proved only if every step is, else undecided."""
    verdicts = {answer.verdict for answer in answers}
    if Verdict.REFUTED in verdicts:
        return Verdict.REFUTED
    return Verdict.PROVED if verdicts == {Verdict.PROVED} else Verdict.UNDECIDED
