"""The checker on python-flint: every step is decided in explicit coordinates.

At concrete dimensions each indexed symbol becomes one polynomial variable for each of its
elements, sums are written out, roots are algebraic atoms. Two sides are equal if their
difference, divisors cleared, is the zero polynomial. No power sums and no rewriting: this method
shares nothing with a prover that works for all dimensions at once. Which dimensions prove the
statement for all of them is computed by `verify.symbolic.checkers.cutoff`.

*Proved*: the difference is the zero polynomial at every dimension of the grid that the cutoff
demands. *Refuted*: at a rational point, which the answer names, rigorous balls for both sides
do not meet. *Undecided* is what is left: a difference that is not zero as a polynomial and was not
seen to be non-zero either (a relation between roots that was not found, a fact about tanh or
exp), a term for which no cutoff is known (a root or divisor that mixes a sum's index with sums),
or one that is too large when written out.

Complete: rational statements; statements with roots whose radicands are related by factors that
are formulas in the dimensions, powers of positive symbols and products of up to three earlier
roots. Not searched: squares of sums under a root, such as sqrt((x + y)^2) = |x + y|.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from verify.finding import Verdict
from verify.symbolic.checkers.answer import Answer, Certificate, Checker
from verify.symbolic.checkers.cutoff import Cutoff, Demand, Instance, NoCutoffError
from verify.symbolic.checkers.flint_evaluate import Evaluation
from verify.symbolic.checkers.flint_points import NoValueError, Witness, apart
from verify.symbolic.checkers.flint_reader import read
from verify.symbolic.checkers.flint_scale import Scales
from verify.symbolic.checkers.flint_sign import at_least_zero
from verify.symbolic.checkers.flint_terms import Claim, Problem
from verify.symbolic.checkers.flint_values import (
    NowhereDefinedError,
    Plan,
    TooLargeError,
    Value,
)

FIRST_TRIES = 3  # small dimensions at which a wrong statement usually fails
ROUNDS = 6  # dimensions -> plans -> cutoff -> dimensions usually settles in one


# Calls made one atom, and how each root was written: the same at all dimensions of a proof.
_Reliance: TypeAlias = tuple[
    tuple[tuple[Instance, Instance], ...], tuple[tuple[Instance, Plan], ...]
]


class _UndecidedError(Exception):
    """Why a step is neither proved nor refuted."""


@dataclass(frozen=True)
class _Row:
    """The steps of a claim at one dimension and one choice of the free indices."""

    dims: Mapping[str, int]
    evaluation: Evaluation
    values: Sequence[Value]


def check(certificate: Certificate) -> Sequence[Answer]:
    """One answer for each step after the first (is it equal to the first?), in order.

    An "at_least" claim has one more, for the sign of its last term; a "differ" claim has one.

    Raises
    ------
    CertificateError
        if the certificate cannot be read.
    """
    problem = read(certificate)
    scales = Scales(problem)
    answers: list[Answer] = []
    for claim in problem.claims:
        if claim.kind == "differ":
            answers.append(_differ(problem, claim))
            continue
        for pair in _pairs(claim):
            answers += _Steps(problem, scales, pair).answers()
        if claim.kind == "at_least":
            answers.append(at_least_zero(problem, claim))
    return answers


def demanded(certificate: Certificate, claim: int) -> list[dict[str, int]]:
    """The dimensions that prove claim number ``claim`` for all dimensions, by the cutoff theorem.

    None, if a step is not proved here, or if the claim is about a witness.

    Raises
    ------
    CertificateError
        if the certificate cannot be read.
    """
    problem = read(certificate)
    found = problem.claims[claim]
    if found.kind == "differ":
        return []
    scales, points = Scales(problem), []
    for pair in _pairs(found):
        steps = _Steps(problem, scales, pair)
        if any(answer.verdict is not Verdict.PROVED for answer in steps.answers()):
            return []
        points += [point for cutoff in steps.cutoffs for point in cutoff.grid()]
    return list({tuple(point.items()): point for point in points}.values())


def _pairs(claim: Claim) -> list[Claim]:
    """The first step with each other one, apart: a root of a third would narrow their domain."""
    first, *others = claim.steps
    return [replace(claim, steps=(first, other)) for other in others]


class _Steps:
    """The equalities of one claim."""

    def __init__(self, problem: Problem, scales: Scales, claim: Claim) -> None:
        self.problem, self.scales, self.claim = problem, scales, claim
        self.terms = [t for _, t in claim.steps]
        self.table = problem.table
        self.mentioned = self.table.dimensions(self.terms) | set(claim.free)
        self.cutoffs: list[Cutoff] = []  # of the steps that were proved
        self._rows: dict[tuple[tuple[int, ...], tuple[int, ...]], _Row | str] = {}

    def answers(self) -> Iterator[Answer]:
        """An answer for each step after the first."""
        for place in range(1, len(self.terms)):
            verdict, reason = self._step(place)
            yield Answer(self.claim.name, self.claim.steps[place][0], verdict, reason)

    def _step(self, place: int) -> tuple[Verdict, str]:
        reasons = []
        try:
            for pattern in _patterns(self.claim.free):
                found, reason = self._with_pattern(place, pattern)
                if found is Verdict.REFUTED:
                    return found, reason
                reasons.append(reason)
        except _UndecidedError as why:
            return Verdict.UNDECIDED, str(why)
        return Verdict.PROVED, "; ".join(dict.fromkeys(reasons))

    def _with_pattern(self, place: int, pattern: tuple[int, ...]) -> tuple[Verdict, str]:
        """Small dimensions first; then those that the cutoff demands."""
        least = self._room(pattern)
        tried = [{n: d + k for n, d in least.items()} for k in range(FIRST_TRIES)]
        for dims in tried:
            if seen := self._refuted(place, pattern, dims):
                return Verdict.REFUTED, seen
        floor, reason = least, ""
        for _ in range(ROUNDS):
            cutoff, relied_on = self._cutoff(place, pattern, floor, tried[-1])
            if seen := self._refuted_on(cutoff, place, pattern):
                return Verdict.REFUTED, seen
            reason = self._unlike(cutoff, place, pattern, relied_on)
            if not reason:
                self.cutoffs.append(cutoff)
                return Verdict.PROVED, self._range(cutoff)
            # Two arguments may be equal at n = 5 alone, say: try further up.
            floor = {n: d + cutoff.points[n] for n, d in cutoff.least.items()}
        raise _UndecidedError(reason)

    def _refuted_on(self, cutoff: Cutoff, place: int, pattern: tuple[int, ...]) -> str:
        """Where the step fails on the grid, or the empty string; raises if that is not clear."""
        for dims in cutoff.grid():
            if seen := self._refuted(place, pattern, dims):
                return seen
            row = self._row(pattern, dims)
            if not isinstance(row, str) and not self._is_zero(row, place):
                raise _UndecidedError(self._unseen(row, place))
        return ""

    def _unlike(
        self, cutoff: Cutoff, place: int, pattern: tuple[int, ...], relied_on: _Reliance
    ) -> str:
        """Why the points of the grid do not all count, or the empty string."""
        for dims in cutoff.grid():
            row = self._row(pattern, dims)
            if isinstance(row, str):
                return f"at {self._at(dims)} {row}"
            if self._demand(row, place, pattern)[1] != relied_on:
                return f"at {self._at(dims)} roots or arguments coincide that differ elsewhere"
        return ""

    def _room(self, pattern: tuple[int, ...]) -> dict[str, int]:
        """The smallest dimensions that have room for the free indices."""
        least = dict(self.problem.dims)
        for n, i in zip(self.claim.free, pattern, strict=True):
            least[n] = max(least[n], i + 1)
        return least

    def _at(self, dims: Mapping[str, int], pattern: Sequence[int] = ()) -> str:
        words = [f"{n} = {d}" for n, d in dims.items() if n in self.mentioned]
        words += [f"index {', '.join(map(str, pattern))}"] if pattern else []
        return ", ".join(words) or "every dimension"

    def _range(self, cutoff: Cutoff) -> str:
        spans = (
            f"{n} = {d}" + (f" .. {d + cutoff.points[n] - 1}" if cutoff.points[n] > 1 else "")
            for n, d in cutoff.least.items()
            if n in self.mentioned
        )
        where = ", ".join(spans)
        enough = f"at {where}, which is enough for all" if where else "(no dimension is mentioned)"
        return f"the difference is the zero polynomial {enough}"

    # --- one dimension ---------------------------------------------------------------------------

    def _row(self, pattern: tuple[int, ...], dims: Mapping[str, int]) -> _Row | str:
        """The values of all steps there, or why there are none."""
        key = (pattern, tuple(dims.values()))
        if key not in self._rows:
            evaluation = Evaluation(self.problem, self.scales, dims, self.terms)
            env = tuple(reversed(pattern))
            try:
                values = [evaluation.value(t, env) for t in self.terms]
                self._rows[key] = _Row(dims, evaluation, values)
            except NowhereDefinedError as error:
                self._rows[key] = str(error)
            except TooLargeError as error:
                raise _UndecidedError(f"at {self._at(dims)} {error}") from error
        return self._rows[key]

    def _is_zero(self, row: _Row, place: int) -> bool:
        return row.evaluation.field.same(row.values[0], row.values[place])

    def _refuted(self, place: int, pattern: tuple[int, ...], dims: Mapping[str, int]) -> str:
        """Where the step fails at these dimensions, or the empty string."""
        row = self._row(pattern, dims)
        if isinstance(row, str) or self._is_zero(row, place):
            return ""
        seen = apart(row.evaluation.field, row.values[0], row.values[place])
        return seen and f"at {self._at(dims, pattern)}, {seen}"

    def _unseen(self, row: _Row, place: int) -> str:
        field = row.evaluation.field
        size = field.size(field.add(row.values[0], field.negative(row.values[place])))
        return (
            f"at {self._at(row.dims)} the difference is not the zero polynomial ({size} terms), "
            "and no point was found at which it is proved not to vanish"
        )

    # --- all dimensions --------------------------------------------------------------------------

    def _cutoff(
        self,
        place: int,
        pattern: tuple[int, ...],
        floor: Mapping[str, int],
        dims: Mapping[str, int],
    ) -> tuple[Cutoff, _Reliance]:
        """Enough dimensions from ``floor`` on, and what was relied on, read off above them."""
        reason = "the dimensions demanded keep growing"
        for _ in range(ROUNDS):
            dims = {n: max(d, floor[n]) for n, d in dims.items()}
            row = self._row(pattern, dims)
            if isinstance(row, str):
                reason = f"at {self._at(dims)} {row}"
                dims = {n: d + 1 for n, d in dims.items()}
                continue
            cutoff, relied_on = self._demand(row, place, pattern)
            if all(dims[n] >= d for n, d in cutoff.least.items()):
                return cutoff.joined(Cutoff(floor, dict.fromkeys(floor, 1))), relied_on
            dims = {n: max(dims[n], d) for n, d in cutoff.least.items()}
        raise _UndecidedError(reason)

    def _demand(self, row: _Row, place: int, pattern: tuple[int, ...]) -> tuple[Cutoff, _Reliance]:
        """What the step demands, and all that the demand relied on."""
        demand = Demand(self.problem, self.scales, row.evaluation.field.plans)
        merged = self._merged(row, place, pattern)
        free: dict[str, set[int]] = {}
        for n, i in zip(self.claim.free, pattern, strict=True):
            free.setdefault(n, set()).add(i)
        env = dict(enumerate(reversed(pattern)))
        width = self._width(place, pattern)
        try:
            counts = {n: len(values) for n, values in free.items()}
            demand.equal(self.terms[0], self.terms[place], env, counts)
            for a, b in merged:
                demand.same_call(a, b)
        except NoCutoffError as error:
            seen = f"equal at {self._at(row.dims)}; no cutoff for all dimensions: {error}"
            raise _UndecidedError(seen) from error
        room = Cutoff(dict.fromkeys(self.problem.dims, width), dict.fromkeys(self.problem.dims, 1))
        plans = tuple((key, demand.plans[key]) for key in sorted(demand.asked, key=str))
        return demand.cutoff.joined(room), (merged, plans)

    def _width(self, place: int, pattern: tuple[int, ...]) -> int:
        """So many values of indices show every way in which two calls of functions can meet."""
        reached = self.table.reachable([self.terms[0], self.terms[place]])
        calls = [t for t in reached if self.table.nodes[t][0] == "fun"]
        widest = max((len(self.table.uses[t]) for t in calls), default=0)
        return 2 * widest + len(set(pattern)) if calls else 1

    def _merged(
        self, row: _Row, place: int, pattern: tuple[int, ...]
    ) -> tuple[tuple[Instance, Instance], ...]:
        """Calls of functions that are one atom because their arguments are equal."""
        width = self._width(place, pattern)
        reached = self.table.reachable([self.terms[0], self.terms[place]])
        first: dict[int, Instance] = {}
        pairs = []
        for call in sorted(row.evaluation.calls, key=str):
            if call[1] not in reached or any(i >= width for i in call[2]):
                continue
            other = first.setdefault(row.evaluation.calls[call], call)
            if other != call:
                pairs.append((other, call))
                if self._shown(other) != self._shown(call):
                    raise _UndecidedError("an argument of a function does not depend on its index")
        return tuple(pairs)

    def _shown(self, call: Instance) -> set[tuple[str, int]]:
        uses = self.table.uses[call[1]]
        return {(uses[k], i) for k, i in zip(sorted(uses), call[2], strict=True)}


def _patterns(free: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """One choice of the free indices for each way in which some of them are equal.

    Statements are symmetric in the values of an index, so one choice of each kind is enough.
    """
    for choice in itertools.product(*(range(k + 1) for k in range(len(free)))):
        seen: dict[str, int] = {}
        fits = True
        for n, i in zip(free, choice, strict=True):
            fits &= i <= seen.get(n, 0)
            seen[n] = max(seen.get(n, 0), i + 1)
        if fits:
            yield choice


# --- the other kinds of claims --------------------------------------------------------------------


def _differ(problem: Problem, claim: Claim) -> Answer:
    """Exact values of both sides at the witness."""
    witness = Witness(problem, claim)
    if outside := witness.outside_domain():
        return Answer(claim.name, "witness", Verdict.REFUTED, f"the witness is no case: {outside}")
    try:
        left, right = (witness.value(t, witness.env) for _, t in claim.steps)
    except ZeroDivisionError as error:
        reason = f"the witness is no case: {error}"
        return Answer(claim.name, "witness", Verdict.REFUTED, reason)
    except NoValueError as error:
        return Answer(claim.name, "witness", Verdict.UNDECIDED, f"at the witness {error}")
    if left == right:
        return Answer(claim.name, "witness", Verdict.REFUTED, f"both sides are {left}")
    return Answer(claim.name, "witness", Verdict.PROVED, f"{left} is not {right}")


CHECKER = Checker(
    name="python-flint",
    check=check,
    states=(
        "the difference of both sides, written out in coordinates at the dimensions that the "
        "cutoff theorem demands, is the zero polynomial, by python-flint's arithmetic"
    ),
)
