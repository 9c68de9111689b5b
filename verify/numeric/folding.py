"""Folds over the last axis of arrays, for the readings whose values are arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Merge = Callable[..., tuple[Any, ...]]


def broadcast_leaves(leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """The components of a fold's leaves as arrays of one shape."""
    return tuple(np.broadcast_arrays(*leaves))


def fold_pairwise(leaves: tuple[Any, ...], merge: Merge) -> tuple[Any, ...]:
    """Merge neighbours level by level: height ceil(log2 d). Components keep a last axis of 1."""
    state = broadcast_leaves(leaves)
    while state[0].shape[-1] > 1:
        even = state[0].shape[-1] // 2 * 2
        merged = merge(*(s[..., 0:even:2] for s in state), *(s[..., 1:even:2] for s in state))
        rest = (s[..., even:] for s in state)
        state = tuple(np.concatenate([m, r], axis=-1) for m, r in zip(merged, rest, strict=True))
    return state


def fold_by_lanes(leaves: tuple[Any, ...], merge: Merge, lanes: int) -> tuple[Any, ...]:
    """Each lane merges its elements j, j + lanes, ... in order; the lanes then merge pairwise."""
    parts = broadcast_leaves(leaves)
    state = tuple(p[..., :lanes] for p in parts)
    for start in range(lanes, parts[0].shape[-1], lanes):
        more = tuple(p[..., start : start + lanes] for p in parts)
        width = more[0].shape[-1]
        merged = merge(*(s[..., :width] for s in state), *more)
        rest = (s[..., width:] for s in state)
        state = tuple(np.concatenate([m, r], axis=-1) for m, r in zip(merged, rest, strict=True))
    return fold_pairwise(state, merge)
