"""The only record that crosses rooms: what was checked, the verdict, and a small witness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1


class Verdict(StrEnum):
    """Never a bare bool: what is not decided says so.

    For kernels: holds, violated, hazard, skipped, expected. For identities: proved, refuted,
    undecided. *Violated* is said only where a proved bound is exceeded. *Hazard* is a kernel
    that keeps a contract which is itself unstable on legitimate inputs.
    """

    HOLDS = "holds"
    VIOLATED = "violated"
    HAZARD = "hazard"
    SKIPPED = "skipped"
    EXPECTED = "expected"
    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    @property
    def is_bad(self) -> bool:
        """Whether a run that contains it should end with exit code 1."""
        return self in (Verdict.VIOLATED, Verdict.HAZARD, Verdict.REFUTED)


@dataclass(frozen=True)
class Witness:
    """An input on which the verdict can be seen, with what was got and what is true.

    ``inputs`` maps argument names to nested lists of floats (or one float); ``index`` is the
    output element, ``got`` and ``expected`` its values.
    """

    inputs: Mapping[str, Any]
    index: tuple[int, ...]
    got: float
    expected: float
    note: str = ""


@dataclass(frozen=True)
class Finding:
    """One verdict about one kernel (or theorem), with everything needed to check it again.

    ``measured`` and ``bound`` are in ``unit``; ``inputs`` says what it was run on ("synthetic"
    or the name of a real activation); ``message`` is one sentence for a person; ``why`` says
    what the check is for; ``derivation`` where the bound comes from; ``repro`` is a script that
    needs only NumPy and the kernel's own package.
    """

    kernel: str
    check: str
    format: str
    verdict: Verdict
    message: str
    measured: float | None = None
    bound: float | None = None
    unit: str = ""
    witness: Witness | None = None
    repro: str = ""
    citation: str = ""
    why: str = ""
    derivation: str = ""
    inputs: str = "synthetic"
    run_on: str = "cpu"


@dataclass(frozen=True)
class Series:
    """Points of one plot: a measured quantity of one kernel against one property of the input."""

    kernel: str
    format: str
    name: str  # "error against kappa", "error against d", "signed bias"
    x_label: str
    y_label: str
    x: Sequence[float]
    y: Sequence[float]
    bound: Sequence[float] = field(default=())


@dataclass(frozen=True)
class KernelRecord:
    """What a report says about a kernel that was audited: the contract is what was identified."""

    name: str
    version: str
    formula: str
    contract: str
    run_on: str


@dataclass(frozen=True)
class Report:
    """Everything an audit found; a page is drawn from this record and from nothing else."""

    environment: Mapping[str, Any]
    kernels: Sequence[KernelRecord]
    findings: Sequence[Finding]
    series: Sequence[Series] = ()
    notes: Sequence[str] = ()

    @property
    def worst_exit_code(self) -> int:
        """1 if anything is violated, hazardous or refuted, else 0."""
        return int(any(f.verdict.is_bad for f in self.findings))


def finite_or_text(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinities: those become the words 'nan', 'inf' and '-inf'."""
    if value is None or math.isfinite(value):
        return value
    return str(float(value))
