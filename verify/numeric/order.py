"""Summation orders: which additions a reduction makes, and how high its tree is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.numeric.folding import Merge, fold_by_lanes, fold_pairwise

Array = NDArray[Any]


@dataclass(frozen=True)
class Order:
    """``lanes`` accumulators, each filled in sequence, then merged pairwise.

    ``lanes`` = 1 is sequential summation; None is a pairwise tree over all elements. The height
    is the largest number of additions that any one element passes through.
    """

    name: str
    lanes: int | None

    def height(self, d: int) -> int:
        """Additions on the longest path from an element to the sum."""
        lanes = d if self.lanes is None else min(self.lanes, d)
        return math.ceil(d / max(lanes, 1)) - 1 + _levels(lanes) if d else 0

    def fold(self, leaves: tuple[Any, ...], merge: Merge) -> tuple[Any, ...]:
        """States combined in this order (`verify.formula.Arithmetic.fold`)."""
        if self.lanes is None:
            return fold_pairwise(leaves, merge)
        return fold_by_lanes(leaves, merge, self.lanes)

    def sum(self, values: Array, add: Callable[[Array, Array], Array]) -> Array:
        """The sum over the last axis (kept), every addition made by ``add``."""
        lanes = values.shape[-1] if self.lanes is None else self.lanes
        total = values[..., :lanes]
        for start in range(lanes, values.shape[-1], lanes):
            part = values[..., start : start + lanes]
            total = np.concatenate(
                [add(total[..., : part.shape[-1]], part), total[..., part.shape[-1] :]], axis=-1
            )
        return _pairwise(total, add)


def _levels(width: int) -> int:
    return max(width - 1, 0).bit_length()


def _pairwise(values: Array, add: Callable[[Array, Array], Array]) -> Array:
    while values.shape[-1] > 1:
        even = values.shape[-1] // 2 * 2
        merged = add(values[..., 0:even:2], values[..., 1:even:2])
        values = np.concatenate([merged, values[..., even:]], axis=-1)
    return values


PAIRWISE = Order("pairwise tree", None)
SEQUENTIAL = Order("sequential", 1)
EIGHT_LANES = Order("8 lanes", 8)
BLOCK_OF_1024 = Order("block of 1024 threads", 1024)
