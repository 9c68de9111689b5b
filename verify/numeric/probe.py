"""Reading the coefficients of a tolerance off the bound, on rows made for it."""

from __future__ import annotations

import numpy as np

from verify.formats import format_named
from verify.numeric.contract import Contract, bound

EPS = 2.0**-40


def coefficients(contract: Contract, d: int) -> tuple[float, float]:
    """(relative part, kappa part) of the accumulated error, in units of the accumulator's u.

    The last rounding into a narrower output is left out: it is u_out |y| and known.
    """
    inner = Contract(**{**contract.__dict__, "output": contract.accumulate})
    u = float(format_named(contract.accumulate).unit_roundoff)
    signs = np.where(np.arange(d) % 2 == 0, 1.0, -1.0)
    at_zero = _largest(inner, signs) / u
    if d < 2 or inner.body.differentiates:
        return at_zero, 0.0
    kappa = 2.0**6
    at_kappa = _largest(inner, signs + kappa) / u
    centred = "layer" in inner.body.id or "group" in inner.body.id or "instance" in inner.body.id
    return at_zero, max(at_kappa - at_zero, 0.0) / kappa if centred else 0.0


def _largest(contract: Contract, row: np.ndarray) -> float:
    x = row.reshape(1, -1).astype(np.float32)
    limit = bound(contract, {"x": x, "weight": np.ones(x.shape[1], np.float32), "eps": EPS})
    y = np.abs(contract.run({"x": x, "eps": EPS})[0].astype(np.float64))
    return float(np.max(limit[0] / np.maximum(y, 1e-300)))
