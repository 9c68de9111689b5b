"""Proving theorems, having every proof checked again, and trying every judge on wrong siblings.

A theorem is *proved* if the kernel accepts every step of every claim. A checker then reads the
certificate alone. A judge that accepts everything would accept every theorem too, so that all of
them, the prover first, are also given statements that are wrong.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from verify.finding import Verdict
from verify.symbolic.certificate import certificate
from verify.symbolic.checkers.answer import Certificate, Checker
from verify.symbolic.checkers.recheck import Opinion, checkers, opinion
from verify.symbolic.siblings import PER_THEOREM, Sibling, reason_if_true, siblings
from verify.symbolic.theorem import Theorem, theorem_named
from verify.symbolic.trusted import rejections

PROVER = "kernel"


@dataclass(frozen=True, repr=False)
class Proof:
    """What the kernel says of a theorem: (claim, step, reason) for each step not accepted."""

    theorem: Theorem
    rejected: tuple[tuple[str, str, str], ...]

    def __repr__(self) -> str:
        claims = self.theorem.claims
        steps = sum(len(claim.steps) - 1 for claim in claims)
        return f"<{self.theorem.name}: {self.verdict}, {len(claims)} claims, {steps} steps>"

    @property
    def verdict(self) -> Verdict:
        """Proved, or undecided: that two normal forms differ is no witness against the theorem."""
        return Verdict.UNDECIDED if self.rejected else Verdict.PROVED


def prove(theorem: Theorem | str) -> Proof:
    """The proof of a theorem, or of the theorem of that name.

    Raises
    ------
    UnknownTheoremError
        if there is none of that name.
    OutsideLanguageError
        if a claim cannot be said in the language of the kernel.

    Examples
    --------
    >>> prove("LAYER_NORM_IS_RMS_NORM_OF_CENTRED")
    <LAYER_NORM_IS_RMS_NORM_OF_CENTRED: proved, 2 claims, 3 steps>
    """
    found = theorem_named(theorem) if isinstance(theorem, str) else theorem
    return Proof(
        found,
        tuple(
            (claim.name, step, reason)
            for claim in found.claims
            for step, reason in rejections(claim, found.setting)
        ),
    )


@dataclass(frozen=True)
class Tried:
    """A wrong sibling, and the verdicts on it: the kernel's and those of every judge it was given.

    ``reason`` says why it is true, if the kernel accepts it; it is given to nobody else then.
    """

    name: str
    kind: str
    verdicts: Mapping[str, Verdict]
    reason: str = ""

    @property
    def accepted_by(self) -> list[str]:
        """The judges that call the statement proved."""
        return [judge for judge, verdict in self.verdicts.items() if verdict is Verdict.PROVED]


@dataclass(frozen=True)
class Judged:
    """All that is known of one theorem."""

    proof: Proof
    certificate: Certificate
    opinions: Mapping[str, Opinion]
    siblings: tuple[Tried, ...]
    seconds: Mapping[str, float]

    @property
    def steps(self) -> int:
        """How many equations the proof consists of."""
        return sum(len(claim.steps) - 1 for claim in self.proof.theorem.claims)

    @property
    def wrong(self) -> list[Tried]:
        """The siblings that are not true."""
        return [sibling for sibling in self.siblings if not sibling.reason]

    @property
    def is_whole(self) -> bool:
        """Proved, refuted by nobody, and no judge that accepted it accepted a wrong sibling."""
        refuted = any(o.verdict is Verdict.REFUTED for o in self.opinions.values())
        caught = not any(sibling.accepted_by for sibling in self.wrong)
        return self.proof.verdict is Verdict.PROVED and not refuted and caught


def judge(name: str, count: int = PER_THEOREM) -> Judged:
    """Prove a theorem, have the certificate checked, and try everyone on ``count`` siblings."""
    clock, judges = _Clock(), checkers()
    theorem = theorem_named(name)
    proof = clock.timed(PROVER, lambda: prove(theorem))
    content = certificate(theorem)
    opinions = {
        checker.name: clock.timed(checker.name, partial(opinion, checker, content))
        for checker in judges
    }
    accepting = [c for c in judges if opinions[c.name].verdict is Verdict.PROVED]
    tried = clock.timed(
        "siblings", lambda: tuple(_tried(s, theorem, accepting) for s in siblings(theorem, count))
    )
    return Judged(proof, content, opinions, tried, clock.seconds)


class _Clock:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """The result of ``work``, its time noted."""
        start = perf_counter()
        result = work()
        self.seconds[name] = perf_counter() - start
        return result


def _tried(sibling: Sibling, theorem: Theorem, accepting: Iterable[Checker]) -> Tried:
    """The verdicts on one sibling of those that accepted the theorem."""
    if not sibling.rejected:
        reason = reason_if_true(sibling, theorem.setting)
        return Tried(sibling.name, sibling.kind, {PROVER: Verdict.PROVED}, reason)
    content = certificate(replace(theorem, claims=(sibling.claim,)))
    verdicts = {PROVER: Verdict.UNDECIDED}
    verdicts |= {checker.name: opinion(checker, content).verdict for checker in accepting}
    return Tried(sibling.name, sibling.kind, verdicts)


ROCQ = "Rocq"


def rocq_opinions(names: Sequence[str]) -> dict[str, Opinion]:
    """What Rocq says of the theorems that have proofs of their own in ``proofs/``.

    They are written by hand, for every dimension, over every real closed field, and compiled once
    in this process. Which Rocq theorem states which claim is a table that was read by hand; a
    claim that is not as it was read is undecided.
    """
    from verify.symbolic.checkers import rocq
    from verify.symbolic.checkers.rocq_claims import CLAIMS

    contents = {name: certificate(theorem_named(name)) for name in names if name in CLAIMS}
    return {name: opinion(rocq.CHECKER, content) for name, content in contents.items()}


def judge_all(
    names: Sequence[str],
    *,
    processes: int = 2,
    count: int = PER_THEOREM,
) -> Iterator[Judged]:
    """`judge` for each name, in order, on several processes: the checkers share nothing.

    Processes are spawned, so that a script that calls this needs ``if __name__ == "__main__"``.
    """
    work = partial(judge, count=count)
    if processes <= 1 or len(names) < 2 * processes:
        yield from map(work, names)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(work, names)
