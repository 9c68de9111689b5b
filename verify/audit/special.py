"""Inputs whose answer is known without a bound: constants, NaN, infinity, nothing, one element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.accuracy import judged
from verify.audit.case import Case
from verify.audit.check import Check, check
from verify.audit.elimination import Observation, Violation
from verify.audit.repro import script
from verify.audit.subject import Subject
from verify.audit.witness import witness_of
from verify.finding import Finding, Verdict, Witness
from verify.formats import format_named
from verify.numeric import allowed

Array = NDArray[Any]

# Powers of two times at most 6 bits: every partial sum of up to 16 of them is exact in 11 bits.
CONSTANTS = (1.0, 3.0, 31.0, 624.0, 9984.0)
BIAS = 3.0
NOTICED = 1e-3  # deviation from an exactly known answer of order 1 from which it is a hazard


@check(
    "constant row",
    title="A row without spread gives the bias, exactly",
    why="Padding and dead channels are constant rows; what is left there grows by 1/sqrt(eps).",
    derivation="x - mean x = 0 for every element, so y = bias whatever eps is.",
    citation="Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3",
    centred=True,
)
def check_constant_row(subject: Subject, about: Check) -> Iterator[Finding]:
    """Constants and widths whose sums are exact in any order: centring leaves exactly 0."""
    worst: Violation | None = None
    for c in CONSTANTS:
        if subject.format == "float16" and c > 6e4:
            continue
        for d in (4, 64):
            v = _off(subject, c, d)
            if v is not None and (worst is None or abs(v.got - BIAS) > abs(worst.got - BIAS)):
                worst = v
    if worst is None:
        words = f"gives the bias {BIAS:g} on rows of {', '.join(f'{c:g}' for c in CONSTANTS)}"
        yield about.finding(subject, Verdict.HOLDS, words, measured=0.0, bound=0.0)
        return
    yield _constant_finding(subject, about, worst)


def _off(subject: Subject, c: float, d: int) -> Violation | None:
    """The answer on one constant row if it is not the bias."""
    case = subject.case(f"constant row of {c:g}", np.full((1, d), c), bias=BIAS)
    y = np.asarray(subject.forward(case), np.float64)
    expected = BIAS if case.arrays.get("bias") is not None else 0.0
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(y - expected))), y.shape))
    if y[at] == expected:
        return None
    seen = Observation(case, (y,))
    return Violation(subject.judge, seen, 0, at, float(y[at]), expected, expected)


def _verdict(v: Violation, *, inside: bool) -> Verdict:
    if not inside:
        return Verdict.VIOLATED
    return Verdict.HAZARD if abs(v.got - v.low) > NOTICED else Verdict.HOLDS


def _constant_finding(subject: Subject, about: Check, v: Violation) -> Finding:
    low, high = allowed(v.contract, v.case.arguments(v.contract.body), v.case.num_groups)[0]
    inside = not (v.got < low[v.index] or v.got > high[v.index])
    verdict = _verdict(v, inside=inside)
    words = f"{v.case.name} with bias {BIAS:g} gives {v.got:.12g}, not {v.low:g}"
    if inside:
        words += (
            ": the mean is subtracted after scaling by 1/sqrt(eps); a kernel that centres first "
            "gives the bias exactly"
        )
    return about.finding(
        subject,
        verdict,
        words,
        measured=abs(v.got - v.low),
        bound=0.0,
        unit="absolute",
        witness=witness_of(v),
        repro=script(subject, v),
    )


@check(
    "range",
    title="Rows whose squares leave the accumulator's range",
    why="A finite row has a finite norm; squares of 1e30 do not fit into float32.",
    derivation="sum(x^2) overflows float32 for |x| > sqrt(max / d), underflows for |x| < 2^-75.",
    citation="Blue 1978, ACM TOMS 4(1), on the two-norm without overflow",
)
def check_range(subject: Subject, about: Check) -> Iterator[Finding]:
    """Rows around 1e30 and 1e-30, alternating in sign, where the format holds them."""
    if format_named(subject.format).max_finite < 1e31 or subject.format == "float64":
        return
    signs = np.where(np.arange(8) % 2 == 0, 1.0, -1.0)
    for size in (1e30, 1e-30):
        case = subject.case(f"rows of +-{size:g}", (size * signs)[None, :], eps=0.0)
        yield _range_finding(subject, about, case, size)


def _range_finding(subject: Subject, about: Check, case: Case, size: float) -> Finding:
    y = np.asarray(subject.forward(case), np.float64)
    exact = subject.exact(case)
    with np.errstate(invalid="ignore"):
        good = np.abs(y - exact) <= 0.01 * np.abs(exact)
    if good.all():
        return about.finding(subject, Verdict.HOLDS, f"{case.name}: right")
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    got, true = float(y[at]), float(exact[at])
    end = "overflow" if size > 1 else "underflow"
    x = np.asarray(case.x, np.float64).tolist()
    return about.finding(
        subject,
        Verdict.EXPECTED,
        f"{case.name} give {got:g} for {true:g}: squares {end} in the accumulator, and no contract "
        "without scaling guarantees anything there",
        measured=got,
        bound=true,
        unit="y",
        witness=Witness({"x": x, "eps": 0.0}, at, got, true, case.name),
    )


# --- NaN and infinity -----------------------------------------------------------------------------


@check(
    "nan and infinity",
    title="NaN and infinity stay in their row, and are not swallowed",
    why="A NaN that disappears hides a divergence; one that spreads ruins the batch.",
    derivation="IEEE 754 on the formula: NaN for the row of a NaN; x/inf = 0 beside an infinity.",
    citation="IEEE 754-2019, section 6",
)
def check_nan(subject: Subject, about: Check) -> Iterator[Finding]:
    """One NaN, one infinity, first, in the middle and last; other rows bit for bit as without."""
    clean = subject.case("clean", inputs.normal("nan", 4, 16))
    before = np.asarray(subject.forward(clean), np.float64).reshape(4, -1)
    wrong: list[str] = []
    for value in (np.nan, np.inf, -np.inf):
        for place in (0, 7, 15):
            wrong += _spoilt(subject, clean, before, value, place)
    if wrong:
        yield about.finding(subject, Verdict.VIOLATED, "; ".join(wrong[:3]), measured=len(wrong))
    else:
        words = (
            "one NaN or infinity gives NaN (or 0 beside an infinity) in its row, and there alone"
        )
        yield about.finding(subject, Verdict.HOLDS, words)


def _spoilt(
    subject: Subject, clean: Case, before: Array, value: float, place: int
) -> Iterator[str]:
    x = clean.x.copy()
    rows = x.reshape(4, -1)
    rows[1, place] = value
    y = np.asarray(subject.forward(clean.with_arrays(x=x)), np.float64).reshape(4, -1)
    if np.isnan(value) and not np.isnan(y[1]).all():
        yield f"NaN at element {place} is swallowed: {int(np.isfinite(y[1]).sum())} finite outputs"
    if np.isinf(value) and not (np.isnan(y[1]) | (y[1] == 0)).all():
        yield f"{value} at element {place} gives {y[1][~np.isnan(y[1])][0]:g}, expected NaN or 0"
    others = [0, 2, 3]
    if not np.array_equal(y[others], before[others]):
        yield f"{value} in row 1 changes other rows"


# --- nothing, and one element ---------------------------------------------------------------------


@check(
    "empty input",
    title="No rows give no rows",
    why="An empty batch happens with every mixture of experts.",
    derivation="The output has x's shape.",
)
def check_empty(subject: Subject, about: Check) -> Iterator[Finding]:
    """x of shape (0, ...)."""
    case = subject.case("no rows", inputs.normal("empty", 2, 16))
    empty = case.with_arrays(x=case.x[:0].copy())
    y = subject.forward(empty)
    yield about.finding(subject, Verdict.HOLDS, f"x of shape {empty.x.shape} gives y of {y.shape}")


@check(
    "one element",
    title="Rows of one element",
    why="d = 1 is where a divisor d-1 divides by zero.",
    derivation="LayerNorm gives the bias; RMSNorm w x / sqrt(x^2 + eps), bounded as any row.",
)
def check_one_element(subject: Subject, about: Check) -> Iterator[Finding]:
    """d = 1, large, small and zero."""
    rows = np.array([[2.0], [-0.001], [0.0], [100.0]])
    cases = [subject.case("d = 1", rows, weight=1.5, bias=0.5)]
    yield from judged(subject, about, cases, "synthetic")


@check(
    "subnormal rows",
    title="The smallest numbers of the format",
    why="Flushing them to zero is a contract of its own, and has to be known.",
    derivation="The bound's absolute part: half a subnormal for each rounding.",
)
def check_subnormal(subject: Subject, about: Check) -> Iterator[Finding]:
    """Multiples of the smallest subnormal: with eps they are far below the output's resolution."""
    least = float(format_named(subject.format).min_subnormal)
    rows = least * np.round(100.0 * inputs.normal("subnormal", 4, 16))
    case = subject.case("subnormal", rows)
    y = np.asarray(subject.forward(case), np.float64)
    low, high = allowed(subject.judge, case.arguments(subject.judge.body), case.num_groups)[0]
    flushed = (y == 0) & ((low > 0) | (high < 0))
    off = np.maximum(low - y, y - high)
    reach = 16 * least / np.sqrt(case.eps)  # each statistic off by a few subnormals
    if (off[~flushed] <= 0).all():
        words = f"flushes {int(flushed.sum())} elements to zero" if flushed.any() else "as bounded"
        yield about.finding(subject, Verdict.EXPECTED if flushed.any() else Verdict.HOLDS, words)
        return
    small = bool((off <= reach).all())
    yield about.finding(
        subject,
        Verdict.EXPECTED if small else Verdict.VIOLATED,
        "statistics lose a few of the smallest subnormals" if small else "wrong on subnormal rows",
        measured=float(np.nanmax(off)),
        bound=float(reach),
        unit="absolute",
    )
