"""Where the numbers lie must not matter: layouts, batches, repetition, threads, and no writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit import inputs
from verify.audit.accuracy import violated
from verify.audit.case import Case, channels_last
from verify.audit.check import Check, check
from verify.audit.elimination import Observation
from verify.audit.identify import hazard
from verify.audit.sandbox import Failure, Sandbox
from verify.audit.subject import KernelFailed, Subject
from verify.finding import Finding, Verdict, Witness

Array = NDArray[Any]

OWN = "The check's own claim: bit for bit."


# --- layouts --------------------------------------------------------------------------------------


def strided(x: Array) -> Array:
    """Every second element of a buffer twice as long."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def offset(x: Array) -> Array:
    """The same elements, one element after the start of their buffer."""
    buffer = np.zeros(x.size + 1, x.dtype)
    buffer[1:] = x.ravel()
    return buffer[1:].reshape(x.shape)


def expanded(x: Array) -> Array:
    """The first row (or sample), shown as often as there are rows, with a stride of 0."""
    return np.broadcast_to(x[:1], x.shape)


LAYOUTS: Mapping[str, Callable[[Array], Array]] = {
    "strided": strided,
    "offset": offset,
    "expanded": expanded,
    "channels_last": channels_last,
}


def laid(case: Case, layout: str) -> Case:
    """The case with x in another layout."""
    return replace(case, layout=layout).with_arrays(x=LAYOUTS[layout](case.x))


@check(
    "layout",
    title="Strides, offsets and memory orders",
    why="Another layout often runs another kernel, with another algorithm.",
    derivation="Each layout is held against the contracts on its own.",
)
def check_layout(subject: Subject, about: Check) -> Iterator[Finding]:
    """One finding for each layout that the kernel takes, beside the contiguous one."""
    for layout in subject.kernel.layouts:
        if layout in LAYOUTS:
            try:
                yield _layout(subject, about, layout)
            except KernelFailed as end:
                if end.failure.kind != "exception":
                    raise
                reason = f"{layout}: the kernel refuses it: {end.failure.message}"
                yield about.finding(subject, Verdict.SKIPPED, reason)


def _layout(subject: Subject, about: Check, layout: str) -> Finding:
    seen, shares = [], []
    for case in _layout_cases(subject):
        other = laid(case, layout)
        plain = case.with_arrays(x=np.array(other.x, order="C"))
        y, z = subject.forward(plain), subject.forward(other)
        shares.append(float(np.mean((y == z) | (np.isnan(y) & np.isnan(z)))))
        seen.append(Observation(other, (z,)))
    words = f"{layout}: {np.mean(shares):.0%} of elements bit for bit as contiguous"
    contiguous = subject.pool.best
    if min(shares) == 1.0 or contiguous is None or not contiguous.stable:
        return about.finding(subject, Verdict.HOLDS, words)
    return _other_kernel(subject, about, seen, words, layout)


def _other_kernel(
    subject: Subject, about: Check, seen: list[Observation], words: str, layout: str
) -> Finding:
    """A layout with other results is another kernel: it has a contract of its own."""
    pool = subject.pool.fresh()
    for each in seen:
        pool.observe(each.case, each.outputs)
    if pool.best is None:
        return violated(subject, about, pool.violations[-1])
    if not pool.best.stable:
        return hazard(subject, about, pool, lambda c: laid(c, layout), f"in {layout} layout")
    return about.finding(subject, Verdict.HOLDS, f"{words}, the rest keep '{pool.best.name}'")


def _layout_cases(subject: Subject) -> Iterator[Case]:
    w, b = inputs.features("layout", 128)
    for mean in (0.0, 1e3, 1e4) if subject.is_centred else (0.0,):
        rows = inputs.normal(f"layout {mean:g}", 4, 128) + mean
        yield subject.case(f"mean {mean:g}, spread 1", rows, weight=w, bias=b)


@check(
    "inputs unmodified",
    title="The kernel writes nothing into its inputs",
    why="Backward passes have been seen to overwrite dy.",
    derivation="Every byte of the inputs' buffers is compared after each call, guards included.",
)
def check_unmodified(subject: Subject, about: Check) -> Iterator[Finding]:
    """Told from all calls of the audit so far."""
    if not subject.modified:
        yield about.finding(subject, Verdict.HOLDS, "no byte of any input changed in any call")
    for name, case in subject.modified.items():
        words = f"writes into {name} (on '{case.name}', {case.layout})"
        yield about.finding(subject, Verdict.VIOLATED, words)


# --- the same row again ---------------------------------------------------------------------------


@check(
    "batch invariance",
    title="A row alone and in a batch, bit for bit",
    why="An answer that depends on who else is in the batch cannot be reproduced.",
    derivation=OWN,
    citation="He et al. 2025, Defeating Nondeterminism in LLM Inference",
)
def check_batch(subject: Subject, about: Check) -> Iterator[Finding]:
    """Batches of 1, 2, 7, 64 and 257 rows, first and last row compared with themselves alone."""
    sizes = (2, 7) if subject.quick else (2, 7, 64, 257)
    for d in (100, 768):
        w, b = inputs.features(f"batch {d}", d)
        rows = 2 * inputs.normal(f"batch {d}", 2 * max(sizes), d)
        for size in sizes:
            batch = subject.case(f"{size} rows", rows[: 2 * size], weight=w, bias=b)
            y = subject.forward(batch)
            for i in (0, len(y) - 1):
                alone = batch.with_arrays(x=batch.x[i : i + 1].copy())
                z = subject.forward(alone)
                if z.tobytes() != y[i : i + 1].tobytes():
                    yield _differs(subject, about, f"row {i} of {size}", y[i : i + 1], z)
                    return
    yield about.finding(subject, Verdict.HOLDS, "bit for bit in batches of every size tried")


def _differs(subject: Subject, about: Check, what: str, y: Array, z: Array) -> Finding:
    a, b = np.asarray(y, np.float64), np.asarray(z, np.float64)
    at = tuple(int(i) for i in np.argwhere(a != b)[0])
    return about.finding(
        subject,
        Verdict.VIOLATED,
        f"{what}: {int(np.sum(a != b))} of {a.size} elements differ: {a[at]:.9g} and {b[at]:.9g}",
        measured=float(np.max(np.abs(a - b))),
        bound=0.0,
        unit="absolute",
        witness=Witness({}, at, float(a[at]), float(b[at]), what),
    )


@check(
    "run to run",
    title="The same call twice, bit for bit",
    why="Atomic additions and uninitialised memory show here first.",
    derivation=OWN,
)
def check_repeat(subject: Subject, about: Check) -> Iterator[Finding]:
    """Five runs, forward and (where there is one) backward."""
    w, b = inputs.features("repeat", 768)
    rows = inputs.normal("repeat", 64, 768)
    case = subject.case("repeated", rows, weight=w, bias=b, dy=inputs.normal("dy", 64, 768))
    methods = ("forward", "backward") if subject.has_backward else ("forward",)
    for method in methods:
        call = case if method == "backward" else _without_dy(case)
        first = subject.run(call, method)
        for _ in range(2 if subject.quick else 4):
            for y, z in zip(first, subject.run(call, method), strict=True):
                if y is not None and z is not None and y.tobytes() != z.tobytes():
                    yield _differs(subject, about, f"{method}, second run", y, z)
                    return
    yield about.finding(subject, Verdict.HOLDS, f"{' and '.join(methods)}: bit for bit")


def _without_dy(case: Case) -> Case:
    return replace(case, arrays={n: a for n, a in case.arrays.items() if n != "dy"})


@check(
    "threads",
    title="One thread and two, bit for bit",
    why="A sum that is split by the number of cores differs from machine to machine.",
    derivation=OWN,
)
def check_threads(subject: Subject, about: Check) -> Iterator[Finding]:
    """Forward, in a second process with another number of threads; in one format only."""
    if subject.quick or subject.format != subject.kernel.formats[0]:
        return
    w, b = inputs.features("threads", 768)
    case = subject.case("threads", inputs.normal("threads", 256, 768), weight=w, bias=b)
    y = subject.forward(case)
    other = 2 if subject.sandbox.threads == 1 else 1
    with Sandbox(subject.kernel, threads=other) as sandbox:
        reply = sandbox.forward(case.arrays, case.numbers)
    if isinstance(reply, Failure):
        yield about.finding(subject, Verdict.SKIPPED, f"{other} threads: {reply.message}")
    elif reply.y.tobytes() != y.tobytes():
        yield _differs(subject, about, f"{other} threads", y, reply.y)
    else:
        yield about.finding(subject, Verdict.HOLDS, "bit for bit with 1 and 2 threads")
