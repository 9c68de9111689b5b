"""Witnesses: a violation made small by trying smaller inputs on the kernel itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit.case import Case, channels_last
from verify.audit.elimination import Observation, Violation, excluded_by
from verify.audit.repro import script
from verify.audit.subject import KernelFailed, Subject
from verify.finding import Witness
from verify.formula import Kind, Layout
from verify.numeric import Contract
from verify.numeric.rows import InputError

Array = NDArray[Any]
Trial = Callable[[Case], Violation | None]

SECONDS = 4.0  # for one witness
SMALL = 8  # elements: enough to read


def shrunk(
    subject: Subject, start: Violation, contracts: Sequence[Contract], method: str = "forward"
) -> Violation:
    """A violation of all ``contracts`` with fewer elements and simpler numbers, found greedily."""
    trial = _trial(subject, contracts, method, start.output)
    deadline = time.monotonic() + SECONDS
    best = start
    layout = subject.formula.layout
    for candidates in (lambda v: _fewer(v, layout), _plainer):
        improved = True
        while improved and time.monotonic() < deadline:
            improved = False
            for case in candidates(best):
                found = trial(case)
                if found is not None:
                    best, improved = found, True
                    break
                if time.monotonic() > deadline:
                    break
    return best


def _trial(subject: Subject, contracts: Sequence[Contract], method: str, k: int) -> Trial:
    """Whether a case still violates, in the same output; a call that fails does not."""

    def trial(case: Case) -> Violation | None:
        try:
            if method == "backward":
                return excluded_by(contracts, subject.backward(case).only(k))
            return excluded_by(contracts, Observation(case, (subject.forward(case),)))
        except (KernelFailed, InputError):
            return None

    return trial


# --- fewer elements -------------------------------------------------------------------------------


def _fewer(v: Violation, layout: Layout) -> Iterator[Case]:
    """The row at hand alone, then parts of what varies along each axis."""
    case, x = v.case, v.case.x
    of_row = v.contract.body.outputs[v.output].kind is Kind.ROW
    if of_row and x.shape[0] > 1:
        yield taken(case, 0, slice(v.index[0], v.index[0] + 1), layout)
    first = 1 if of_row or x.shape[0] == 1 else 0
    for axis in range(first, x.ndim):
        if layout is Layout.GROUPS and axis == 1:
            yield from _one_group(v, layout)
        yield from _parts(case, axis, layout)


def _one_group(v: Violation, layout: Layout) -> Iterator[Case]:
    groups = v.case.num_groups or 1
    width = v.case.x.shape[1] // groups
    if groups > 1 and v.case.x.ndim == len(v.index):
        start = v.index[1] // width * width
        one = taken(v.case, 1, slice(start, start + width), layout)
        yield replace(one, num_groups=1)


def _parts(case: Case, axis: int, layout: Layout) -> Iterator[Case]:
    n = case.x.shape[axis]
    if n < 2 or (layout is Layout.GROUPS and axis == 1 and (case.num_groups or 1) > 1):
        return
    for size in sorted({2, 3, 4, n // 4, n // 2, n - 1}):
        if 1 <= size < n:
            yield taken(case, axis, slice(0, size), layout)
            yield taken(case, axis, slice(n - size, n), layout)
    if n <= 2 * SMALL:
        for i in range(n):
            yield taken(case, axis, np.delete(np.arange(n), i), layout)


def taken(case: Case, axis: int, part: Any, layout: Layout) -> Case:
    """The case restricted along one axis of x; parameters follow their axis."""
    features = 1 if layout is Layout.GROUPS else case.x.ndim - 1
    where = (slice(None),) * axis + (part,)
    arrays: dict[str, Array | None] = {}
    for name, array in case.arrays.items():
        is_row = array is not None and array.shape == case.x.shape and name in ("x", "dy")
        if array is None or (not is_row and axis != features):
            arrays[name] = array
        else:
            arrays[name] = _kept(array[where] if is_row else array[part], case.layout)
    return replace(case, arrays=arrays)


def _kept(array: Array, layout: str) -> Array:
    """A copy in the same order of axes; a view where the strides are what is under audit."""
    if layout == "channels_last" and array.ndim == 4:
        return channels_last(array)
    return array if layout in ("strided", "offset", "expanded") else array.copy(order="K")


# --- plainer numbers ------------------------------------------------------------------------------


def _plainer(v: Violation) -> Iterator[Case]:
    case = v.case
    for name, plain in (("bias", 0.0), ("weight", 1.0)):
        array = case.arrays.get(name)
        if array is not None and np.any(np.asarray(array, np.float64) != plain):
            yield case.with_arrays(**{name: np.full_like(array, plain)})
    if case.layout in ("strided", "offset", "expanded"):
        return
    for name, array in case.arrays.items():
        if array is None or array.size > 4 * SMALL:
            continue
        for simple in _simpler(array):
            yield case.with_arrays(**{name: simple})


def _simpler(array: Array) -> Iterator[Array]:
    """All numbers rounded to integers or powers of two at once, then one at a time."""
    values = np.asarray(array, dtype=np.float64)
    for way in (_power_of_two, np.round):
        whole = way(values)
        if _cost(whole) < _cost(values):
            yield _like(array, whole)
    for index in np.ndindex(array.shape):
        for way in (lambda _: 0.0, lambda _: 1.0, _power_of_two, np.round):
            changed = values.copy(order="K")
            changed[index] = way(values[index])
            if _cost(changed) < _cost(values):
                yield _like(array, changed)


def _power_of_two(values: Any) -> Any:
    with np.errstate(divide="ignore"):
        exponents = np.round(np.log2(np.abs(values)))
    return np.where(values == 0, 0.0, np.sign(values) * np.exp2(exponents))


def _cost(values: Array) -> int:
    """How long the numbers are when written."""
    return sum(len(f"{abs(v):.17g}") + (v < 0) for v in np.asarray(values).ravel())


def _like(array: Array, values: Array) -> Array:
    changed = array.copy(order="K")
    with np.errstate(over="ignore"):
        changed[...] = values.astype(array.dtype)
    return changed


# --- into a finding -------------------------------------------------------------------------------


def witness_of(v: Violation, note: str = "") -> Witness:
    """The record of a violation: its inputs as lists, what came and what was nearest allowed."""
    inputs: dict[str, Any] = {
        name: np.asarray(array, np.float64).tolist()
        for name, array in v.case.arrays.items()
        if array is not None
    }
    expected = v.low if v.got < v.low else v.high
    return Witness({**inputs, **v.case.numbers}, v.index, v.got, expected, note or v.case.name)


def evidence(
    subject: Subject,
    v: Violation,
    contracts: Sequence[Contract] = (),
    method: str = "forward",
    note: str = "",
) -> dict[str, Any]:
    """Witness and script for a finding, made small first if ``contracts`` are given."""
    small = shrunk(subject, v, contracts, method) if contracts else v
    return {
        "witness": witness_of(small, note),
        "repro": script(subject, small, method),
        "inputs": v.case.inputs,
    }
