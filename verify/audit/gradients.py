"""dx, dweight and dbias against the truth, within the bound of a backward contract."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.case import Case, rounded
from verify.audit.check import Check, check
from verify.audit.elimination import Observation, Violation, excluded_by, worst_of
from verify.audit.repro import script
from verify.audit.subject import Subject
from verify.audit.witness import evidence, witness_of
from verify.finding import Finding, Verdict
from verify.numeric import Contract, allowed, bound, reference

Array = NDArray[Any]

NAMES = ("dx", "dweight", "dbias")
NOTICED = 0.01  # error of a gradient as a whole from which an unstable contract is a hazard
NEGLIGIBLE = 1e-3  # dweight that should be 0, for dy = 1
BACKWARD = (
    "The gradient's own body read with (1 + delta) for each operation; sums over rows in any order."
    " "
    "A contract that saves mean and rstd in the storage format loses them when the mean is large."
)


def cases(subject: Subject) -> Iterator[Case]:
    """Calls of the backward pass: random, large mean, few and many rows."""
    d = 64
    w, b = inputs.features("gradient", d)
    shapes = (("random", 8, 0.0), ("many rows", 64, 0.0))
    means = (("mean 32", 32, 32.0),) if subject.is_centred else ()
    for name, n, mean in shapes[: 1 if subject.quick else 2] + means:
        rows = inputs.normal(f"gradient {name}", n, d) + mean
        dy = inputs.normal(f"dy of {name}", n, d)
        yield _flat(subject.case(name, rows, weight=w, bias=b, dy=dy), w, b)
    if subject.is_centred:
        rows = inputs.normal("unit weight", 32, d) + 32.0
        dy = inputs.normal("dy of unit weight", 32, d)
        ones, zeros = np.ones(d), np.zeros(d)
        yield _flat(subject.case("mean 32, weight 1", rows, dy=dy), ones, zeros)


def _flat(case: Case, weight: Array, bias: Array) -> Case:
    """For group norms (N, C), one group: there a parameter's gradient is a sum over N alone."""
    if case.num_groups is None:
        return case
    d = weight.size
    x, dy = (np.asarray(case.arrays[name]).reshape(-1, d) for name in ("x", "dy"))
    dtype = x.dtype
    given = {"weight": rounded(weight, dtype), "bias": rounded(bias, dtype)}
    arrays = {"x": x, "dy": dy, **{n: a for n, a in given.items() if n in case.arrays}}
    return replace(case, arrays=arrays, num_groups=1)


@check(
    "gradients",
    title="dx, dweight and dbias against the truth",
    why="A wrong gradient trains anyway, only worse.",
    derivation=BACKWARD,
    citation="derivative of the formula; Higham 2002, chapters 3 and 4",
    backward=True,
)
def check_gradients(subject: Subject, about: Check) -> Iterator[Finding]:
    """Hold the backward pass against its contracts."""
    pool = subject.gradient_pool
    for case in cases(subject):
        pool.observe(case, subject.backward(case).outputs)
    best = pool.best
    if best is None:
        yield _violated(subject, about)
        return
    worst = _least_right(subject)
    if not best.stable and worst is not None and worst[0] > NOTICED:
        yield _hazard(subject, about, best, *worst)
        return
    error, limit = _worst(subject, best)
    outputs = pool.observations[0].outputs
    given = ", ".join(n for n, out in zip(NAMES, outputs, strict=False) if out is not None)
    words = f"{given} keep '{best.name}'"
    yield about.finding(subject, Verdict.HOLDS, words, measured=error, bound=limit, unit="absolute")


def _violated(subject: Subject, about: Check) -> Finding:
    """No contract is left: the input that excludes all, and what the kernel seems to do instead."""
    pool = subject.gradient_pool
    everything = pool.loosest(stable=False)
    parts = [seen.only(k) for seen in pool.observations for k in range(len(seen.outputs))]
    v = worst_of(everything, parts)
    excluders = everything if v is not None else [pool.violations[-1].contract]
    v = v or pool.violations[-1]
    return about.finding(
        subject,
        Verdict.VIOLATED,
        f"{NAMES[v.output]}: {v.sentence()} by any contract{_explained(subject, v)}; "
        f"{_off(subject)}",
        measured=v.got,
        bound=v.low if v.got < v.low else v.high,
        unit=NAMES[v.output],
        **evidence(subject, v, excluders, "backward"),
    )


def _off(subject: Subject) -> str:
    worst = _least_right(subject)
    if worst is None:
        return "nothing is given"
    off, seen, k = worst
    return f"at worst {NAMES[k]} as a whole is off by {off:.2%}, on '{seen.case.name}'"


def _explained(subject: Subject, v: Violation) -> str:
    """Whether summing over rows in the storage format gives these very gradients."""
    got = v.observation.outputs[v.output]
    if v.output == 0 or got is None:
        return ""
    shares = [
        float(np.mean(_summed_narrowly(contract, v.case, v.output) == got))
        for contract in subject.gradient_pool.loosest(stable=False)
    ]
    if max(shares) < 0.5:
        return ""
    return f"; {max(shares):.0%} of it is what a sum over rows in {subject.format} gives"


def _summed_narrowly(contract: Contract, case: Case, k: int) -> Array:
    """A parameter's gradient with the running sum rounded to the storage format at every row."""
    inner, dtype = replace(contract, output="float32"), case.x.dtype
    total = np.zeros(case.x.shape[-1], dtype)
    for i in range(len(case.x)):
        row = case.with_arrays(x=case.x[i : i + 1], dy=np.asarray(case.arrays["dy"])[i : i + 1])
        term = inner.run(row.arguments(inner.body), row.num_groups)[k]
        total = (total.astype(np.float32) + term).astype(dtype)
    return total


def _hazard(
    subject: Subject, about: Check, best: Contract, off: float, seen: Observation, k: int
) -> Finding:
    stable = subject.gradient_pool.loosest()
    v = excluded_by(stable, seen) or worst_of(stable, subject.gradient_pool.observations)
    shown = {} if v is None else evidence(subject, v, stable, "backward")
    return about.finding(
        subject,
        Verdict.HAZARD,
        f"keeps '{best.name}': {NAMES[k]} is off by {off:.1%} (norm) on '{seen.case.name}'",
        measured=off,
        bound=NOTICED,
        unit="relative",
        **shown,
    )


def _least_right(subject: Subject) -> tuple[float, Observation, int] | None:
    """The output that is farthest off as a whole, and where."""
    found = [
        (_relative(subject, seen, k), seen, k)
        for seen in subject.gradient_pool.observations
        for k, output in enumerate(seen.outputs)
        if output is not None
    ]
    return max(found, key=lambda each: each[0], default=None)


def _exact(subject: Subject, case: Case) -> tuple[Array, ...]:
    if subject.gradient is None:
        return ()
    arguments = case.arguments(subject.gradient)
    x = arguments.pop("x")
    found = reference(
        subject.gradient, x, **arguments, format="float64", num_groups=case.num_groups
    )
    return tuple(found)


def _relative(subject: Subject, seen: Observation, k: int) -> float:
    """The error of one output as a whole: |got - exact| / |exact| in the Euclidean norm."""
    exact = _exact(subject, seen.case)[k]
    got = np.asarray(seen.outputs[k], np.float64)
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


def _worst(subject: Subject, contract: Contract) -> tuple[float, float]:
    """Error and bound of the element that uses most of its bound."""
    found = [(0.0, 0.0, 0.0)]
    for seen in subject.gradient_pool.observations:
        limits = bound(contract, seen.case.arguments(contract.body), seen.case.num_groups)
        exact = _exact(subject, seen.case)
        for got, true, limit in zip(seen.outputs, exact, limits, strict=False):
            if got is not None:
                found.append(_share(np.asarray(got, np.float64) - true, limit))
    return max(found)[1:]


def _share(error: Array, limit: Array) -> tuple[float, float, float]:
    """(share of the bound, error, bound) of the element that uses most of it."""
    with np.errstate(all="ignore"):
        share = np.where(np.isfinite(limit) & (limit > 0), np.abs(error) / limit, 0.0)
    i = np.unravel_index(int(np.argmax(np.nan_to_num(share))), error.shape)
    return float(share[i]), float(np.abs(error[i])), float(limit[i])


@check(
    "gradient of a constant row",
    title="dweight of a row without spread is 0, exactly",
    why="x_hat is 0 there, so any dweight is rounding noise times 1/sqrt(eps).",
    derivation="dweight = sum(dy x_hat) and x_hat = 0.",
    citation="derivative of Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3",
    backward=True,
    centred=True,
)
def check_constant_gradient(subject: Subject, about: Check) -> Iterator[Finding]:
    """Two equal elements: their sum is exact, and so is the mean."""
    worst: Violation | None = None
    for c in (1.0, 31.0, 624.0, 1000.1):
        v = _constant(subject, c)
        if v is not None and (worst is None or abs(v.got) > abs(worst.got)):
            worst = v
    if worst is None:
        yield about.finding(subject, Verdict.HOLDS, "dweight is 0 on constant rows", measured=0.0)
        return
    low, high = _allowed(worst)
    inside = not (worst.got < low or worst.got > high)
    verdict = Verdict.HOLDS if abs(worst.got) <= NEGLIGIBLE else Verdict.HAZARD
    yield about.finding(
        subject,
        verdict if inside else Verdict.VIOLATED,
        f"{worst.case.name} gives dweight {worst.got:.6g}, not 0"
        + (f": within '{worst.contract.name}'" if inside else ""),
        measured=abs(worst.got),
        bound=0.0,
        unit="absolute",
        witness=witness_of(worst),
        repro=script(subject, worst, "backward"),
    )


def _constant(subject: Subject, c: float) -> Violation | None:
    case = subject.case(f"constant row of {c:g}", np.full((1, 2), c), dy=np.ones((1, 2)))
    case = _flat(case, np.ones(2), np.zeros(2))
    seen = subject.backward(case)
    grad = seen.outputs[1]
    if grad is None or not np.any(grad):
        return None
    values = np.asarray(grad, np.float64)
    at = (int(np.argmax(np.abs(values))),)
    contract = subject.gradient_pool.best or subject.gradient_pool.contracts[-1]
    return Violation(contract, seen, 1, at, float(values[at]), 0.0, 0.0)


def _allowed(v: Violation) -> tuple[float, float]:
    """What the contract of a violation allows at its element."""
    low, high = allowed(v.contract, v.case.arguments(v.contract.body), v.case.num_groups)[v.output]
    return float(low[v.index]), float(high[v.index])
