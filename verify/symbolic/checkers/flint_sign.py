"""Terms that are at least 0 by their shape alone."""

from __future__ import annotations

from verify.finding import Verdict
from verify.symbolic.checkers.answer import Answer
from verify.symbolic.checkers.flint_terms import Claim, Problem


def at_least_zero(problem: Problem, claim: Claim) -> Answer:
    """The sign of the last term, from its shape."""
    step, term = claim.steps[-1]
    good = _Sign(problem).is_at_least_zero(term)
    reason = "" if good else "the shape of the last term does not show that it is at least 0"
    verdict = Verdict.PROVED if good else Verdict.UNDECIDED
    return Answer(claim.name, f"{step} >= 0", verdict, reason)


class _Sign:
    """Terms that are at least 0 by their shape: sums and products of squares and of positives."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.table = problem, problem.table

    def is_at_least_zero(self, t: int) -> bool:
        """Each factor occurs an even number of times or is at least 0 itself."""
        factors: dict[int, int] = {}
        self._collect(t, factors)
        return all(e % 2 == 0 or self._alone(f) for f, e in factors.items())

    def _collect(self, t: int, factors: dict[int, int]) -> None:
        node = self.table.nodes[t]
        if node[0] in ("mul", "div"):
            self._collect(node[1], factors)
            self._collect(node[2], factors)
        else:
            factors[t] = factors.get(t, 0) + 1

    def _alone(self, t: int) -> bool:
        match self.table.nodes[t]:
            case ("num", value):
                return bool(value >= 0)
            case ("dim", _) | ("sqrt", _):
                return True
            case ("sym", name):
                return name in self.problem.positive
            case ("add", a, b):
                return self.is_at_least_zero(a) and self.is_at_least_zero(b)
            case ("sum", _, body):
                return self.is_at_least_zero(body)
            case _:
                return False
