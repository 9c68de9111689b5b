"""Which contract a kernel keeps, by elimination; and if none, which fault explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.case import Case
from verify.audit.check import Check, check
from verify.audit.elimination import (
    Elimination,
    Observation,
    Violation,
    excluded_by,
    worst_of,
)
from verify.audit.subject import KernelFailed, Subject
from verify.audit.witness import evidence
from verify.finding import Finding, Verdict
from verify.formats import format_named
from verify.numeric import Contract

Array = NDArray[Any]

ELIMINATION = (
    "A contract is discarded only where an output lies outside the set that all kernels keeping it "
    "may give: the exact value, widened by the contract's own bound, rounded as it rounds."
)
USELESS = 0.5  # relative error from which an answer is of no use


def crafted(subject: Subject) -> Iterator[Case]:
    """The inputs by which contracts are told apart, as calls."""
    for name, given in inputs.identification(subject.is_centred, quick=subject.quick):
        yield subject.case(name, given.pop("rows"), **given)


@check(
    "shape and format",
    title="y has x's shape and format",
    why="A kernel that returns another format hides or adds a rounding.",
    derivation="Told from the output itself.",
)
def check_shape_and_format(subject: Subject, about: Check) -> Iterator[Finding]:
    """The first call: whether the kernel takes the format, and what it gives."""
    y = subject.forward(next(crafted(subject)))
    came = y.dtype.name
    verdict = Verdict.HOLDS if came == subject.format else Verdict.VIOLATED
    yield about.finding(subject, verdict, f"x in {subject.format} gives y in {came}")


@check(
    "contract",
    title="Which contract the kernel keeps",
    why="Two right kernels may differ in a quarter of their elements: a contract parts them.",
    derivation=ELIMINATION,
    citation="Higham 2002, Accuracy and Stability of Numerical Algorithms, chapters 2 to 4",
)
def check_contract(subject: Subject, about: Check) -> Iterator[Finding]:
    """Discard contracts by crafted inputs; report the strictest left and what discarded others."""
    for case in crafted(subject):
        subject.observe(case)
    best = subject.pool.best
    if best is None:
        yield _unexplained(subject, about)
    elif best.stable:
        yield about.finding(subject, Verdict.HOLDS, _told(subject, best), derivation=ELIMINATION)
    else:
        yield hazard(subject, about, subject.pool)


def _told(subject: Subject, best: Contract) -> str:
    others = [c.name for c in subject.pool.remaining if c.stable and c is not best]
    also = f" (as do: {'; '.join(others)})" if others else ""
    return f"keeps '{best.name or best.describe()}'{also}{_excluded(subject, best)}"


def _excluded(subject: Subject, best: Contract) -> str:
    """What discarded the other cast order, and how many elements it would change."""
    dead = [v for v in subject.pool.dead if v.contract.casts != best.casts]
    if not dead:
        return ""
    first = dead[0]
    other = next(c for c in subject.pool.contracts if c.casts == first.contract.casts)
    share = 1.0 - bit_equal(other, subject.pool.observations[:2])
    return f"; not '{other.name}' ({share:.0%} of elements differ from it): {first.sentence()}"


def bit_equal(contract: Contract, seen: Iterable[Observation]) -> float:
    """The share of elements that a kernel keeping ``contract`` to the letter gives too."""
    same = total = 0
    for each in seen:
        case = each.case
        y = contract.run(case.arguments(contract.body), case.num_groups)[0]
        got = each.outputs[0]
        if got is None:
            continue
        same += int(np.sum((got == y) | ((got != got) & (y != y))))
        total += y.size
    return same / max(total, 1)


# --- nothing is left ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explanation:
    """A contract of a wrong kernel, and the share of elements on which it agrees with this one."""

    contract: Contract
    share: float

    @property
    def name(self) -> str:
        """The fault's name, without the order of summation."""
        return self.contract.name.rpartition(" (")[0] or self.contract.name


def explanations(subject: Subject) -> list[Explanation]:
    """Wrong contracts, the one that agrees on most elements first."""
    seen = subject.pool.observations
    found = [Explanation(c, bit_equal(c, seen)) for c in subject.wrong]
    return sorted(found, key=lambda e: -e.share)


def _unexplained(subject: Subject, about: Check) -> Finding:
    nearest = _nearest(subject)
    found = explanations(subject)
    right = bit_equal(nearest.contract, subject.pool.observations)
    message = f"keeps no right contract: {nearest.sentence()} by '{nearest.contract.name}'"
    if found and found[0].share > max(right, 0.2):
        message = (
            f"{found[0].name}: {found[0].share:.0%} of elements are those of a kernel with this "
            f"fault, {right:.0%} those of the nearest right one; {nearest.sentence()}"
        )
    return about.finding(
        subject,
        Verdict.VIOLATED,
        message,
        measured=nearest.got,
        bound=nearest.high if nearest.got > nearest.high else nearest.low,
        unit="y",
        **evidence(subject, nearest, _excluders(subject, nearest)),
    )


def _nearest(subject: Subject) -> Violation:
    """A violation on the one input that excludes all contracts, if there is one; else the last."""
    loosest = subject.pool.loosest()
    for seen in subject.pool.observations:
        found = excluded_by(loosest, seen)
        if found is not None:
            return found
    return subject.pool.violations[-1]


def _excluders(subject: Subject, v: Violation) -> list[Contract]:
    loosest = subject.pool.loosest()
    return loosest if excluded_by(loosest, v.observation) is not None else [v.contract]


# --- an unstable contract is left -----------------------------------------------------------------


def hazard(
    subject: Subject, about: Check, pool: Elimination, relayout: Any = None, layout: str = ""
) -> Finding:
    """The kernel keeps an unstable contract: an input of a few elements that shows it, if there is
    one, or the one that discarded the stable contracts. ``relayout`` lays a case out in memory.
    """
    contract = pool.best
    if contract is None:
        raise ValueError("no contract is left: that is a violation, not a hazard")
    stable = pool.loosest()
    lay = relayout or (lambda case: case)
    tiny = _tiny(subject, stable, lay)
    v = tiny or worst_of(stable, pool.observations)
    if v is None:  # no one input excludes all: the last that excluded one
        v = next(x for x in pool.dead if x.contract.stable)
        stable = [v.contract]
    where = f" {layout}" if layout else ""
    return about.finding(
        subject,
        Verdict.HAZARD,
        f"keeps '{contract.name}'{where}, which loses its digits on rows with a large mean: "
        f"{v.case.name} give {v.got:.6g} for {(v.low + v.high) / 2:.6g}",
        measured=v.got,
        bound=v.low if v.got < v.low else v.high,
        unit="y",
        **evidence(subject, v, () if tiny else stable),
    )


def _tiny(subject: Subject, stable: list[Contract], lay: Any) -> Violation | None:
    """The first few-element row on which the answer is useless and no stable contract allows it."""
    for case in _large_means(subject):
        laid = lay(case)
        try:
            seen = Observation(laid, (subject.forward(laid),))
        except KernelFailed:
            continue
        v = excluded_by(stable, seen)
        if v is not None and _is_useless(v):
            return v
    return None


def _is_useless(v: Violation) -> bool:
    middle = v.low if v.got < v.low else v.high
    return not abs(v.got - middle) <= USELESS * abs(middle)


def _large_means(subject: Subject) -> Iterator[Case]:
    """Rows K + (0, 1, ...) * step of 2 to 4 elements (8 for images), K a power of two."""
    eps = 2.0**-20
    largest = float(format_named(subject.format).max_finite)
    for d in (2, 3, 4, 8):
        for k in range(2, 31):
            for step in (1.0, 2.0**-3):
                row = 2.0**k + step * np.arange(d)
                case = subject.case(f"{d} elements around {2.0**k:g}", row, eps=eps)
                if row[-1] < largest and np.ptp(np.asarray(case.x, np.float64)) > 0:
                    yield case
