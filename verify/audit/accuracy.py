"""Error against the bound of the contract that the kernel keeps, on crafted and on real input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.case import Case, rounded
from verify.audit.check import Check, check
from verify.audit.elimination import Observation, Violation, excluded_by
from verify.audit.identify import hazard
from verify.audit.subject import KernelFailed, Subject
from verify.audit.witness import evidence
from verify.finding import Finding, Series, Verdict
from verify.formats import format_named
from verify.numeric import bound
from verify.numeric.activations import Activation
from verify.numeric.rounding import DTYPES

Array = NDArray[Any]

BOUND = (
    "A rigorous bound per element, from the body of the formula read with one (1 + delta), |delta| "
    "<= u, for each operation of the contract; the condition number of the row is part of it."
)
HIGHAM = "Higham 2002, Accuracy and Stability of Numerical Algorithms, chapters 3 and 4"


@dataclass(frozen=True)
class Measured:
    """The element of a case that uses most of its bound."""

    case: Case
    error: float
    bound: float

    @property
    def share(self) -> float:
        """error / bound; 0 where both are 0."""
        return self.error / self.bound if self.bound else float(self.error > 0)


def measured(subject: Subject, case: Case, y: Array) -> Measured:
    """The worst element of y against the bound of the contract at hand."""
    contract = subject.judge
    limit = bound(contract, case.arguments(contract.body), case.num_groups)[0]
    with np.errstate(all="ignore"):
        error = np.abs(np.asarray(y, np.float64) - subject.exact(case))
        share = np.where(limit > 0, error / limit, np.where(error > 0, np.inf, 0.0))
    share = np.where(np.isfinite(limit), share, 0.0)
    worst = np.unravel_index(int(np.argmax(np.nan_to_num(share, nan=np.inf))), y.shape)
    return Measured(case, float(error[worst]), float(limit[worst]))


def judged(subject: Subject, about: Check, cases: Iterable[Case], source: str) -> Iterator[Finding]:
    """One finding for all cases of one source: holds, or violated by the first that no contract
    allows.
    """
    worst: Measured | None = None
    count = 0
    was_stable = _is_stable(subject)
    for case in cases:
        y = subject.forward(case)
        v = _violation(subject, case, y)
        if v is not None:
            yield violated(subject, about, v)
            return
        if was_stable and not _is_stable(subject):
            yield hazard(subject, about, subject.pool)
            return
        each = measured(subject, case, y)
        count += y.size
        worst = each if worst is None or each.share > worst.share else worst
    if worst is None:
        return
    yield about.finding(
        subject,
        Verdict.HOLDS,
        f"{count:,} elements within the bound of '{subject.judge.name}'; nearest on "
        f"'{worst.case.name}'",
        measured=worst.error,
        bound=worst.bound,
        unit="absolute",
        inputs=source,
    )


def _is_stable(subject: Subject) -> bool:
    best = subject.pool.best
    return best is not None and best.stable


def _violation(subject: Subject, case: Case, y: Array) -> Violation | None:
    """A violation if the output leaves no contract over, the earlier observations included."""
    if subject.pool.best is None:
        return excluded_by(subject.pool.loosest(stable=False), Observation(case, (y,)))
    pool = subject.pool
    pool.observe(case, (y,))
    return None if pool.remaining else pool.violations[-1]


def violated(subject: Subject, about: Check, v: Violation, method: str = "forward") -> Finding:
    """The finding for an output that no contract allows."""
    return about.finding(
        subject,
        Verdict.VIOLATED,
        f"{v.sentence()} by '{v.contract.name}'",
        measured=v.got,
        bound=v.low if v.got < v.low else v.high,
        unit="y",
        **evidence(subject, v, [v.contract], method),
    )


def sweep(subject: Subject) -> Iterator[Case]:
    """Rows of many widths, with and without spread-out weights."""
    for d in inputs.widths(quick=subject.quick):
        w, b = inputs.features(f"width {d}", d)
        rows = inputs.normal(f"width {d}", 4 if d < 1000 else 2, d)
        yield subject.case(f"d = {d}", rows, weight=w, bias=b)


@check(
    "accuracy",
    title="Error against the bound of the kernel's own contract",
    why="A tolerance set by hand hides faults or accuses the innocent; this one is derived.",
    derivation=BOUND,
    citation=HIGHAM,
)
def check_accuracy(subject: Subject, about: Check) -> Iterator[Finding]:
    """Widths from 1 to 4096, powers of two and their neighbours."""
    yield from judged(subject, about, sweep(subject), "synthetic")


@check(
    "accuracy on float32 weights",
    title="Narrow rows with parameters kept in float32",
    why="Mixed precision is how models are trained; the weight must not be rounded on the way.",
    derivation=BOUND,
    citation=HIGHAM,
)
def check_mixed_weights(subject: Subject, about: Check) -> Iterator[Finding]:
    """x in 16 bits, weight and bias in float32 that 16 bits cannot hold."""
    if subject.format == "float32" or "float32" not in subject.kernel.weight_formats:
        return
    if format_named(subject.format).precision > 24:
        return
    w, b = inputs.features("mixed", 128)
    rows = inputs.normal("mixed", 8, 128)
    case = subject.case("float32 weights", rows, weight=w, bias=b, weight_format="float32")
    y = subject.forward(case)
    if y.dtype.name != subject.format:
        reason = f"x in {subject.format} with float32 weights gives y in {y.dtype.name}"
        yield about.finding(subject, Verdict.EXPECTED, reason)
        return
    yield from judged(subject, about, [case], "synthetic")


@check(
    "accuracy on real activations",
    title="What trained transformers hand to their norms",
    why="Real residual streams have outliers of thousands of standard deviations.",
    derivation=BOUND,
    citation=HIGHAM,
)
def check_real(subject: Subject, about: Check) -> Iterator[Finding]:
    """One finding for each carrier whose norm is the kernel's formula."""
    fitting = [a for a in subject.activations if a.formula == subject.formula.id]
    for source in dict.fromkeys(a.source for a in fitting):
        of_source = [a for a in fitting if a.source == source]
        chosen = of_source[:: max(1, len(of_source) // 3)] if subject.quick else of_source
        yield from judged(subject, about, (real_case(subject, a) for a in chosen), source)


def real_case(subject: Subject, activation: Activation) -> Case:
    """The rows of one site with that norm's own parameters, cast into the format under audit."""
    dtype = DTYPES[subject.format]
    arrays: dict[str, Array | None] = {"x": rounded(activation.x, dtype)}
    given = {"weight": activation.weight, "bias": activation.bias}
    for name in subject.parameters:
        value = given.get(name)
        default = np.full(activation.x.shape[-1], float(name == "weight"))
        arrays[name] = rounded(default if value is None else value, dtype)
    return Case(activation.site, arrays, activation.eps, inputs=activation.source)


# --- signed bias ----------------------------------------------------------------------------------

CHANCE = 1e-9  # of accusing a kernel whose rounding errors are independent
ROWS_OF_BIAS = 32


@check(
    "signed bias",
    title="Mean signed error of magnitudes, in ulp",
    why="Truncation costs half an ulp in the same direction everywhere: models drift by it.",
    derivation=(
        "Hoeffding: the mean of N independent rounding errors within +-r ulp exceeds r sqrt(2 "
        "ln(2/p)/N) with chance p = 1e-9; the error before it adds at most its bound."
    ),
    citation="Hoeffding 1963, J. Amer. Statist. Assoc. 58(301), theorem 2",
)
def check_bias(subject: Subject, about: Check) -> Iterator[Finding]:
    """Magnitudes that come out too small or too large on average."""
    widths = (64, 512) if subject.quick else (64, 256, 1024, 4096)
    points = [_bias(subject, d) for d in widths]
    subject.series.append(
        Series(
            subject.kernel.name,
            subject.format,
            "signed bias",
            "d",
            "mean signed error (ulp)",
            widths,
            [m for m, _ in points],
            [limit for _, limit in points],
        )
    )
    d, (mean, limit) = max(
        zip(widths, points, strict=True), key=lambda each: abs(each[1][0]) / each[1][1]
    )
    ok = abs(mean) <= limit
    words = "magnitudes are " + ("unbiased" if ok else "too small" if mean < 0 else "too large")
    if not ok and -0.65 < mean < -0.35:
        words += ", as by truncation (-0.5 ulp)"
    yield about.finding(
        subject,
        Verdict.HOLDS if ok else Verdict.VIOLATED,
        f"{words} (d = {d})",
        measured=mean,
        bound=limit,
        unit="ulp",
    )


def _bias(subject: Subject, d: int) -> tuple[float, float]:
    """Mean signed error of |y| in ulp over well-conditioned elements, and its limit."""
    w, _ = inputs.features(f"bias {d}", d)
    rows = inputs.normal(f"bias {d}", ROWS_OF_BIAS, d)
    case = subject.case(f"bias, d = {d}", rows, weight=w)
    y = np.asarray(subject.forward(case), np.float64)
    exact = subject.exact(case)
    fmt = format_named(subject.format)
    large = np.abs(exact) > 0.25
    ulp = np.exp2(np.floor(np.log2(np.abs(exact[large]))) + 1 - fmt.precision)
    error = (np.abs(y[large]) - np.abs(exact[large])) / ulp
    before = _before_last(subject, case)[large] / ulp
    roundings = 0.5 + float(len(subject.judge.casts))
    spread = roundings * np.sqrt(2.0 * np.log(2.0 / CHANCE) / error.size)
    return float(np.mean(error)), float(spread + np.mean(before))


def _before_last(subject: Subject, case: Case) -> Array:
    """The bound on the error of everything but the roundings into the output's format."""
    contract = subject.judge
    inner = replace(contract, output=contract.accumulate, casts=())
    return bound(inner, case.arguments(inner.body), case.num_groups)[0]


# --- series ---------------------------------------------------------------------------------------


@check(
    "conditioning",
    title="Error as the row's mean grows",
    why="A mean far from 0 costs digits; how many, kappa = mean|x|/spread says.",
    derivation=BOUND,
    citation=HIGHAM,
    centred=True,
)
def check_conditioning(subject: Subject, about: Check) -> Iterator[Finding]:
    """Rows of spread 1 around means from 1 to 1e5; the bound grows with kappa."""
    means = [k for k in inputs.kappas(quick=subject.quick) if k < _largest_mean(subject)]
    rows = inputs.normal("conditioning", 4, 256)
    cases = [subject.case(f"mean {k:g}, spread 1", rows + k) for k in means]
    yield from judged(subject, about, cases, "synthetic")
    _series(subject, "error against kappa", "kappa", means, cases)


def _largest_mean(subject: Subject) -> float:
    return float(format_named(subject.format).max_finite) / 4


@check(
    "width",
    title="Error as the row grows",
    why="A sum in one long chain loses digits that a tree keeps.",
    derivation=BOUND,
    citation=HIGHAM,
)
def check_width(subject: Subject, about: Check) -> Iterator[Finding]:
    """Normal rows of width 16 to 4096."""
    widths = [16, 256, 1024] if subject.quick else [16, 64, 256, 1024, 4096]
    cases = [subject.case(f"d = {d}", inputs.normal(f"row of {d}", 2, d)) for d in widths]
    yield from judged(subject, about, cases, "synthetic")
    _series(subject, "error against d", "d", [float(d) for d in widths], cases)


def _series(
    subject: Subject, name: str, label: str, points: list[float], cases: list[Case]
) -> None:
    """The largest error of each case and the largest bound, as a plot."""
    contract = subject.judge
    errors, limits = [], []
    for case in cases:
        try:
            y = np.asarray(subject.forward(case), np.float64)
        except KernelFailed:
            return
        limit = bound(contract, case.arguments(contract.body), case.num_groups)[0]
        errors.append(float(np.max(np.nan_to_num(np.abs(y - subject.exact(case)), nan=np.inf))))
        limits.append(float(np.max(limit)))
    subject.series.append(
        Series(
            subject.kernel.name,
            subject.format,
            name,
            label,
            "largest error",
            points,
            errors,
            limits,
        )
    )
