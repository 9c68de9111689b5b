"""What a report says in short, in words and counts; terminal and page both draw from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verify.finding import Finding, KernelRecord, Report, Verdict, Witness

SYNTHETIC = "synthetic"

# A verdict is told by its word and its sign, never by colour alone.
SIGNS: Mapping[Verdict, str] = {
    Verdict.HOLDS: "✓",
    Verdict.VIOLATED: "✗",
    Verdict.HAZARD: "!",
    Verdict.SKIPPED: "–",
    Verdict.EXPECTED: "≈",
    Verdict.PROVED: "✓",
    Verdict.REFUTED: "✗",
    Verdict.UNDECIDED: "?",
}
OF_KERNELS = (
    Verdict.HOLDS,
    Verdict.VIOLATED,
    Verdict.HAZARD,
    Verdict.SKIPPED,
    Verdict.EXPECTED,
)
# Worst first; what holds comes last.
ORDER = (
    *(Verdict.VIOLATED, Verdict.REFUTED, Verdict.HAZARD, Verdict.UNDECIDED),
    *(Verdict.EXPECTED, Verdict.SKIPPED, Verdict.HOLDS, Verdict.PROVED),
)
_RANK = {verdict: place for place, verdict in enumerate(ORDER)}


def rank(verdict: Verdict) -> int:
    """The place of a verdict among all, worst first; a word that is none comes before them."""
    return _RANK.get(verdict, -1)


@dataclass(frozen=True)
class Score:
    """The scorecard of one kernel: how often each verdict was given, on each kind of input."""

    kernel: KernelRecord
    counts: Mapping[str, Counter[Verdict]]

    @property
    def total(self) -> Counter[Verdict]:
        """The counts over all inputs."""
        return sum(self.counts.values(), Counter())

    @property
    def worst(self) -> Verdict | None:
        """The gravest verdict given, or None where nothing was checked."""
        return min(self.total, key=rank, default=None)


def scores(report: Report) -> list[Score]:
    """One `Score` a kernel, in the report's order; a finding's kernel is never left out."""
    records = {kernel.name: kernel for kernel in report.kernels}
    for finding in report.findings:
        unlisted = KernelRecord(finding.kernel, "", "", "", finding.run_on)
        records.setdefault(finding.kernel, unlisted)
    return [Score(record, _counts(of_kernel(report, name))) for name, record in records.items()]


def of_kernel(report: Report, name: str) -> list[Finding]:
    """The findings about one kernel, worst first, else in the report's order."""
    return sorted(
        (finding for finding in report.findings if finding.kernel == name),
        key=lambda finding: rank(finding.verdict),
    )


def _counts(findings: Sequence[Finding]) -> dict[str, Counter[Verdict]]:
    """Counts by input, synthetic first, then real activations by name."""
    names = {finding.inputs for finding in findings}
    ordered = sorted(names, key=lambda name: (name != SYNTHETIC, name))
    return {
        name: Counter(finding.verdict for finding in findings if finding.inputs == name)
        for name in ordered
    }


def columns(report: Report) -> list[Verdict]:
    """The verdicts a scorecard has columns for: those of kernels, and others that were given."""
    given = {finding.verdict for finding in report.findings}
    return [*OF_KERNELS, *(v for v in Verdict if v in given and v not in OF_KERNELS)]


def bad(report: Report) -> list[Finding]:
    """The findings that make a run end with exit code 1, worst first."""
    return sorted(
        (finding for finding in report.findings if finding.verdict.is_bad),
        key=lambda finding: rank(finding.verdict),
    )


def sentence(report: Report) -> str:
    """The whole report in a few sentences."""
    synthetic = sum(finding.inputs == SYNTHETIC for finding in report.findings)
    real = len(report.findings) - synthetic
    count = plural(len(report.findings), "finding")
    where = f"{synthetic:,} on synthetic input, {real:,} on real activations"
    return f"{_audited(report)}, {count}: {where}. {_wrong(report)}"


def _audited(report: Report) -> str:
    """How many kernels ran; those of which nothing is told but that they were skipped are apart."""
    named = {kernel.name for kernel in report.kernels} | {f.kernel for f in report.findings}
    ran = {kernel.name for kernel in report.kernels}
    ran |= {f.kernel for f in report.findings if f.verdict is not Verdict.SKIPPED}
    skipped = len(named - ran)
    apart = f" ({skipped} more could not be)" if skipped else ""
    return f"{plural(len(ran), 'kernel')} audited{apart}"


def _wrong(report: Report) -> str:
    violated = [f for f in report.findings if f.verdict in (Verdict.VIOLATED, Verdict.REFUTED)]
    hazards = [f for f in report.findings if f.verdict is Verdict.HAZARD]
    if not violated and not hazards:
        return "Nothing is violated, nothing is hazardous."
    return f"{_count(violated, 'in violation')}, {_count(hazards, 'hazardous')}."


def _count(findings: Sequence[Finding], word: str) -> str:
    if not findings:
        return f"no kernel is {word}"
    kernels = len({finding.kernel for finding in findings})
    verb = "is" if kernels == 1 else "are"
    return f"{plural(kernels, 'kernel')} {verb} {word} ({plural(len(findings), 'finding')})"


def plural(count: int, noun: str) -> str:
    """The count and its noun.

    >>> plural(1, "kernel"), plural(1200, "finding")
    ('1 kernel', '1,200 findings')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# --------------------------------------------------------------------------------------- numbers


def number(value: float) -> str:
    """A measured value for reading: four digits, or a whole number where it has more.

    >>> number(0.70312345), number(31415.9), number(6.02e23), number(float("inf"))
    ('0.7031', '31,416', '6.02e+23', 'inf')
    """
    value = float(value)
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e7 else format(value, ".4g")


def exact(value: float) -> str:
    """An element of a witness: nine digits tell any two float32 values apart.

    >>> exact(1000.0), exact(0.10000000149011612), exact(-0.0)
    ('1000', '0.100000001', '-0')
    """
    return format(float(value), ".9g")


def quantity(value: float, unit: str) -> str:
    """A value with its unit, if it has one."""
    return f"{number(value)} {unit}".strip()


def ratio(finding: Finding) -> float | None:
    """How much of its bound was measured, or None where that says nothing."""
    measured, bound = finding.measured, finding.bound
    if measured is None or bound is None or not math.isfinite(bound) or bound <= 0:
        return None
    return None if math.isnan(measured) else abs(measured) / bound


def against(finding: Finding) -> str:
    """Measured against bound, in words, or nothing where nothing was measured."""
    if finding.measured is None:
        return ""
    measured = f"measured {quantity(finding.measured, finding.unit)}"
    if finding.bound is None:
        return measured
    return f"{measured}, bound {quantity(finding.bound, finding.unit)}{_share(finding)}"


def _share(finding: Finding) -> str:
    share = ratio(finding)
    if share is None:
        return ""
    return f" ({number(share)} times the bound)" if share > 1 else f" ({share:.0%} of it)"


def nested(value: Any, limit: int = 8) -> str:
    """Nested lists on one line; of a long list the first elements and how many more there are.

    >>> nested([[1.0, 2.5], [3.0, 4.0]]), nested(list(range(10)), 3)
    ('[[1, 2.5], [3, 4]]', '[0, 1, 2, ... 7 more]')
    """
    items = listed(value)
    if items is None:
        return exact(value)
    shown = [nested(each, limit) for each in items[:limit]]
    more = [f"... {len(items) - limit:,} more"] if len(items) > limit else []
    return f"[{', '.join(shown + more)}]"


def listed(value: Any) -> list[Any] | None:
    """The elements of a list, a tuple or an array, or None of a number."""
    plain = value.tolist() if hasattr(value, "tolist") else value
    return list(plain) if isinstance(plain, list | tuple) else None


def element(index: Iterable[int]) -> str:
    """The name of an output element.

    >>> element((0, 3)), element(())
    ('y[0, 3]', 'y')
    """
    inside = ", ".join(map(str, index))
    return f"y[{inside}]" if inside else "y"


def witness_lines(witness: Witness) -> Iterator[str]:
    """The witness in a few lines of text."""
    for name, value in witness.inputs.items():
        yield f"{name} = {nested(value)}"
    got, true = exact(witness.got), exact(witness.expected)
    yield f"{element(witness.index)} = {got}, expected {true}"
    if witness.note:
        yield witness.note


def visible(text: str) -> str:
    r"""The text with control characters drawn as signs, so that none reaches a terminal.

    >>> visible("red: \x1b[31m")
    'red: ␛[31m'
    """
    return "".join(_sign(each) for each in text)


def _sign(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or 0x20 <= code < 0x7F:
        return character
    if code < 0x20:
        return chr(0x2400 + code)
    return "\ufffd" if code <= 0x9F or 0xD800 <= code <= 0xDFFF else character
