"""Laws that hold over the reals: what a kernel makes of them is limited by twice its bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.case import Case
from verify.audit.check import Check, check
from verify.audit.subject import Subject
from verify.finding import Finding, Verdict, Witness
from verify.formula import Layout
from verify.numeric import bound

Array = NDArray[Any]

TWICE = (
    "Both sides have the same exact value, so two kernels that keep the contract differ by at most "
    "the sum of the two bounds."
)
BA = "Ba, Kiros & Hinton 2016, arXiv:1607.06450, section 5.1"


def _grid(name: str, n: int, d: int) -> Array:
    """Multiples of 1/8 in [-4, 4]: sums with a constant, negations and doublings are exact."""
    return np.round(8.0 * np.clip(inputs.normal(name, n, d), -4, 4)) / 8.0


def compared(
    subject: Subject,
    about: Check,
    law: str,
    left: Case,
    right: Case,
    undo: Callable[[Array], Array] = lambda y: y,
) -> Iterator[Finding]:
    """f(left) against undo(f(right)), two values of one exact number."""
    y, z = (np.asarray(subject.forward(c), np.float64) for c in (left, right))
    contract = subject.judge
    limits = [bound(contract, c.arguments(contract.body), c.num_groups)[0] for c in (left, right)]
    limit = limits[0] + undo_bound(undo, limits[1])
    with np.errstate(invalid="ignore"):
        apart = np.abs(y - undo(z))
    broken = (apart > limit) | (np.isnan(apart) & np.isfinite(limit))
    equal = float(np.mean(y == undo(z)))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.where(broken, 1, 0))), y.shape))
    if not broken.any():
        with np.errstate(invalid="ignore"):
            share = np.where(np.isfinite(limit) & (limit > 0), apart / limit, 0.0)
        at = tuple(int(i) for i in np.unravel_index(int(np.nanargmax(share)), y.shape))
    yield about.finding(
        subject,
        Verdict.VIOLATED if broken.any() else Verdict.HOLDS,
        f"{law}: {equal:.0%} of elements bit for bit, the others "
        + ("beyond" if broken.any() else "within")
        + " twice the bound",
        measured=float(apart[at]),
        bound=float(limit[at]),
        unit="absolute",
        witness=_witness(left, at, float(y[at]), float(undo(z)[at]), law) if broken.any() else None,
    )


def undo_bound(undo: Callable[[Array], Array], limit: Array) -> Array:
    """Bounds go where their elements go; a change of sign does not touch them."""
    return np.abs(undo(limit))


def _witness(case: Case, at: tuple[int, ...], got: float, expected: float, note: str) -> Witness:
    row = {n: np.asarray(a, np.float64).tolist() for n, a in case.arrays.items() if a is not None}
    return Witness({**row, **case.numbers}, at, got, expected, note)


@check(
    "shift",
    title="LayerNorm does not see a shift",
    why="The mean of the residual stream drifts with depth; the norm must not follow it.",
    derivation=TWICE,
    citation=BA,
    centred=True,
)
def check_shift(subject: Subject, about: Check) -> Iterator[Finding]:
    """f(x + c) = f(x), for rows and shifts whose sums are exact in the format."""
    rows = np.clip(_grid("shift", 4, 64), -2, 1.875)
    shift = 4.0 if subject.format == "bfloat16" else 128.0
    w, b = inputs.features("shift", 64)
    left = subject.case("rows", rows, weight=w, bias=b)
    right = subject.case("rows shifted", rows + shift, weight=w, bias=b)
    kept = np.asarray(right.x, np.float64).ravel() - shift
    rows = kept.reshape(rows.shape)  # as far as the format holds the sum
    left = subject.case("rows", rows, weight=w, bias=b)
    yield from compared(subject, about, f"f(x + {shift:g}) = f(x)", left, right)


@check(
    "scale",
    title="A power of two in x and its square in eps cancel",
    why="Scaling by a power of two rounds nothing: what differs is a hidden constant.",
    derivation=TWICE,
    citation="Zhang & Sennrich 2019, arXiv:1910.07467, section 4",
)
def check_scale(subject: Subject, about: Check) -> Iterator[Finding]:
    """f(2^k x; 4^k eps) = f(x; eps), and with eps = 0."""
    rows = inputs.normal("scale", 4, 64)
    w, b = inputs.features("scale", 64)
    for k, eps in ((3, 2.0**-17), (-3, 2.0**-11), (4, 0.0)):
        left = subject.case("rows", rows, weight=w, bias=b, eps=eps)
        grown = subject.case("scaled", left.x.astype(np.float64).reshape(4, 64) * 2.0**k)
        right = subject.case("scaled", rows, weight=w, bias=b, eps=eps * 4.0**k)
        right = right.with_arrays(x=grown.x)
        law = f"f(2^{k} x; 4^{k} eps) = f(x; eps), eps = {eps:g}"
        yield from compared(subject, about, law, left, right)


@check(
    "sign",
    title="Odd symmetry",
    why="Rounding to nearest is symmetric; a kernel that rounds towards one side is not.",
    derivation=TWICE,
)
def check_sign(subject: Subject, about: Check) -> Iterator[Finding]:
    """f(-x) = -f(x) without bias."""
    w, _ = inputs.features("sign", 64)
    left = subject.case("rows", inputs.normal("sign", 4, 64), weight=w)
    right = left.with_arrays(x=-left.x)
    yield from compared(subject, about, "f(-x) = -f(x)", left, right, lambda y: -y)


@check(
    "permutation",
    title="Elements and their parameters permuted together",
    why="A mask, a tail or a vector lane treated apart breaks it.",
    derivation=TWICE,
)
def check_permutation(subject: Subject, about: Check) -> Iterator[Finding]:
    """f(P x; P w, P b) = P f(x; w, b)."""
    if subject.formula.layout is Layout.GROUPS:
        return  # a permutation within a group permutes channels: the last-axis norms cover it
    d = 61
    w, b = inputs.features("permutation", d)
    order = inputs.generator("permutation").permutation(d)
    back = np.argsort(order)
    rows = inputs.normal("permutation", 4, d)
    left = subject.case("rows", rows, weight=w, bias=b)
    right = subject.case("permuted", rows[:, order], weight=w[order], bias=b[order])
    yield from compared(subject, about, "f(Px) = P f(x)", left, right, lambda y: y[..., back])
