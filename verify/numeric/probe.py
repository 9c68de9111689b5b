"""Reading the coefficients of a tolerance off the bound, on rows made for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import format_named
from verify.formula import Kind, Layout
from verify.numeric.contract import Contract, bound

Array = NDArray[Any]
EPS = 2.0**-40
KAPPA = 64.0
NUMBERS = {"eps": EPS, "beta": EPS, "alpha": 1.0, "shift": 0.0}


def coefficients(contract: Contract, d: int) -> tuple[float, float]:
    """(relative part, kappa part) of the accumulated error, in units of the accumulator's u.

    The last rounding into a narrower output is left out: it is u_out |y| and known. Gradients and
    outputs that cancel are measured against the largest output of the row.
    """
    inner = replace(contract, output=contract.accumulate)
    u = float(format_named(contract.accumulate).unit_roundoff)
    signs = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    at_one = _largest(inner, signs) / u
    if d < 2 or not _is_centred(contract.formula):
        return at_one, 0.0
    return at_one, max(_largest(inner, signs + KAPPA) / u - at_one, 0.0) / KAPPA


def _is_centred(formula: str) -> bool:
    return any(name in formula for name in ("layer_norm", "group_norm", "instance_norm"))


def _largest(contract: Contract, row: Array) -> float:
    arguments, groups = _arguments(contract, row)
    limit = bound(contract, arguments, groups)[0]
    y = np.abs(contract.run(arguments, groups)[0].astype(np.float64))
    return float(np.max(limit) / max(float(np.max(y)), 1e-300))


def _arguments(contract: Contract, row: Array) -> tuple[dict[str, Any], int | None]:
    """Neutral arguments around one row, in the layout of the formula."""
    layout, d = contract.body.layout, row.size
    shape = (1, d) if layout is Layout.LAST_AXIS else (1, 1, d)  # one channel, or one head
    thirds = np.where(np.arange(d) % 3 == 0, 1.0, -0.5)
    values = {"x": row, "dy": thirds}
    arguments: dict[str, Any] = {}
    for p in contract.body.parameters:
        if p.kind is Kind.ROW:
            arguments[p.name] = values.get(p.name, np.zeros(d)).reshape(shape).astype(np.float32)
        elif p.kind is Kind.NUMBER:
            arguments[p.name] = NUMBERS[p.name]
    one_group = layout is Layout.GROUPS and not contract.formula.startswith("instance_norm")
    return arguments, 1 if one_group else None
