"""The crafted inputs: each tells some contracts or faults apart. None is filtered away.

Every function gives rows (n, d) and features as float64; `Subject.case` casts them into the format
under audit and lays them out as the formula asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# bf16 and fp16 hold it, and times a rounded x_hat it needs twice their bits: near every tie.
AWKWARD_WEIGHT = 15.8125


def generator(name: str) -> np.random.Generator:
    """Random numbers that depend on the name of the input alone."""
    return np.random.default_rng([ord(c) for c in name])


def normal(name: str, n: int, d: int) -> Array:
    """Rows of independent normal numbers."""
    return generator(name).standard_normal((n, d))


def features(name: str, d: int) -> tuple[Array, Array]:
    """A weight between 0.5 and 2 of either sign, and a bias around 0."""
    rng = generator(f"features of {name}")
    sign = np.where(rng.random(d) < 0.25, -1.0, 1.0)
    return sign * np.exp2(rng.uniform(-1, 1, d)), rng.standard_normal(d)


def outlier_rows(n: int, d: int) -> Array:
    """Normal rows with one element of 600: a massive activation."""
    x = normal("outlier", n, d)
    x[np.arange(n), np.arange(n) * 7 % d] = 600.0
    return x


def identification(centred: bool, *, quick: bool = False) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: FBT001
    """Name and arguments of each input by which contracts are told apart."""
    d = 64 if quick else 128
    w, b = features("identification", d)
    yield "random", {"rows": normal("random", 8, d), "weight": w, "bias": b}
    awkward = AWKWARD_WEIGHT * np.where(np.arange(d) % 3 == 0, -1.0, 1.0)
    yield "weight 15.8125", {"rows": normal("awkward", 8, d), "weight": awkward}
    yield "short rows", {"rows": normal("short", 32, 4), "weight": w[:4]}
    tiny = normal("tiny", 8, d) * np.exp2(-np.arange(4.0, 12.0))[:, None]
    yield "tiny rows", {"rows": tiny, "weight": w}
    yield "large rows", {"rows": 400.0 * normal("large", 8, d), "weight": w}
    yield "outlier", {"rows": outlier_rows(8, d), "weight": w, "bias": b}
    yield "long rows", {"rows": normal("long", 2, 1024), "weight": w}
    if centred:
        for kappa in (1e2, 1e3, 1e4):
            rows = normal(f"kappa {kappa:g}", 4, d) + kappa
            yield f"mean {kappa:g}, spread 1", {"rows": rows, "weight": w, "bias": b}


def widths(*, quick: bool = False) -> tuple[int, ...]:
    """Widths for the accuracy sweep: powers of two and their neighbours."""
    return (1, 2, 3, 64, 257) if quick else (1, 2, 3, 7, 8, 31, 64, 129, 256, 1023, 4096)


def kappas(*, quick: bool = False) -> tuple[float, ...]:
    """Means of rows of spread 1, for the sweep over the condition number."""
    return (1.0, 1e2, 1e4) if quick else (1.0, 1e1, 1e2, 1e3, 1e4, 1e5)
