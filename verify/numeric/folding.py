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


def fold_in_order(leaves: tuple[Any, ...], merge: Merge) -> tuple[Any, ...]:
    """Merge one element after the other: height d-1."""
    parts = broadcast_leaves(leaves)
    state = tuple(p[..., :1] for p in parts)
    for j in range(1, parts[0].shape[-1]):
        state = merge(*state, *(p[..., j : j + 1] for p in parts))
    return state
