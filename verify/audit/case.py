"""What a kernel is run on: one set of arguments, with a name that says what is hard about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Layout
from verify.numeric.rounding import DTYPES

Array = NDArray[Any]
EPS = 1e-5
GROUPS = 2  # groups of the channels in synthetic input of group norms


@dataclass(frozen=True, eq=False)
class Case:
    """Arguments of one call: ``arrays`` (x, weight, bias, dy; None for absent ones) and ``eps``.

    ``inputs`` names where they come from: "synthetic" or a carrier of real activations.
    """

    name: str
    arrays: Mapping[str, Array | None]
    eps: float = EPS
    num_groups: int | None = None
    inputs: str = "synthetic"
    layout: str = "contiguous"

    @property
    def x(self) -> Array:
        """The rows, in the caller's shape."""
        x = self.arrays["x"]
        if x is None:
            raise ValueError(f"case '{self.name}' has no x")
        return x

    @property
    def numbers(self) -> dict[str, float]:
        """What goes to the kernel beside the arrays."""
        groups = {} if self.num_groups is None else {"num_groups": self.num_groups}
        return {"eps": self.eps, **groups}

    def arguments(self, formula: Formula) -> dict[str, Any]:
        """The arguments that ``formula`` takes, for the truth and the bounds."""
        named: dict[str, Any] = {**self.arrays, "eps": self.eps}
        return {p.name: named.get(p.name) for p in formula.parameters}

    def with_arrays(self, **arrays: Array | None) -> Case:
        """The same call with other arrays."""
        return replace(self, arrays={**self.arrays, **arrays})


def shape_of(rows: int, d: int, layout: Layout) -> tuple[tuple[int, ...], int]:
    """A tensor's shape that holds ``rows`` rows of ``d`` elements, and its number of features."""
    if layout is Layout.HEADS:
        return (rows, 1, d), d
    if layout is Layout.LAST_AXIS:
        return (rows, d), d
    channels = channels_of_group(d)
    spatial = d // channels
    height = next(h for h in (8, 4, 2, 1) if spatial % h == 0)
    samples, groups = (rows // GROUPS, GROUPS) if rows % GROUPS == 0 else (rows, 1)
    return (samples, groups * channels, height, spatial // height), groups * channels


def channels_of_group(d: int) -> int:
    """Channels of one group in synthetic input, rows of d elements."""
    return next(c for c in (4, 2, 1) if d % c == 0)


def make_case(
    name: str,
    rows: Any,
    formula: Formula,
    format: str,
    *,
    weight: Any = None,
    bias: Any = None,
    dy: Any = None,
    eps: float = EPS,
    parameters: Sequence[str] = ("weight", "bias"),
    weight_format: str = "same",
) -> Case:
    """Rows (n, d) and features of any length as a call of ``formula`` in ``format``.

    Features are repeated or cut to the number that the layout asks for; a parameter that is not in
    ``parameters`` is left out, one that is there and not given is 1 (weight) or 0 (bias).
    """
    dtype = DTYPES[format]
    kept = dtype if weight_format == "same" else DTYPES[weight_format]
    x = np.atleast_2d(np.asarray(rows, dtype=np.float64))
    shape, features = shape_of(x.shape[0], x.shape[1], formula.layout)
    given = {"weight": weight, "bias": bias}
    arrays: dict[str, Array | None] = {"x": rounded(x, dtype).reshape(shape)}
    for p in ("weight", "bias"):
        neutral = formula.parameter(p)
        if neutral is None or p not in parameters:
            continue
        value = neutral.default if given[p] is None else given[p]
        arrays[p] = rounded(np.resize(np.asarray(value, dtype=np.float64), features), kept)
    if dy is not None:
        arrays["dy"] = rounded(np.asarray(dy, dtype=np.float64), dtype).reshape(shape)
    is_grouped = formula.layout is Layout.GROUPS
    groups = shape[1] // channels_of_group(x.shape[1]) if is_grouped else None
    return Case(name, arrays, eps, groups)


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Values in a format: inputs, so that how they are rounded does not matter."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype)


def channels_last(x: Array) -> Array:
    """(N, C, H, W) in memory order N, H, W, C; strides as torch gives them, also for axes of 1."""
    return np.array(np.moveaxis(x, 1, -1), order="C").transpose(0, 3, 1, 2)
