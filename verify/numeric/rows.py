"""From a caller's arrays to rows: shapes checked, layouts undone, one clear line for bad input."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formula import Formula, Kind, Layout, Parameter
from verify.numeric.rounding import format_of

Array = NDArray[Any]


class InputError(ValueError):
    """An argument that a formula cannot take: what came, what was expected, what to write."""


@dataclass(frozen=True)
class Rows:
    """The arguments of a formula as rows.

    ``rows``: (n, d) each; ``features``: (classes, d), row i uses features[i % classes];
    ``numbers``: floats, or (n, 1) for numbers of a row. ``shape`` is the caller's.
    """

    formula: Formula
    shape: tuple[int, ...]
    rows: Mapping[str, Array]
    features: Mapping[str, Array]
    row_numbers: Mapping[str, Array]
    numbers: Mapping[str, float]
    feature_shape: tuple[int, ...]
    spatial: int  # elements of a row that share one feature

    @property
    def n(self) -> int:
        return len(next(iter(self.rows.values())))

    @property
    def d(self) -> int:
        return int(next(iter(self.rows.values())).shape[1])

    @property
    def classes(self) -> int:
        """How many different feature rows there are."""
        return max((len(f) for f in self.features.values()), default=1)

    def by_feature(self, values: Array) -> Array:
        """(n, d) regrouped as (classes, features of a class, all terms that share the feature)."""
        wide = np.broadcast_to(values, (self.n, self.d))
        split = wide.reshape(-1, self.classes, self.d // self.spatial, self.spatial)
        return split.transpose(1, 2, 0, 3).reshape(*split.shape[1:3], -1)

    def argument(self, name: str, rows: slice | Array) -> Array | float:
        """One argument for a block of rows, features laid out row by row."""
        if name in self.rows:
            return self.rows[name][rows]
        if name in self.row_numbers:
            return self.row_numbers[name][rows]
        if name in self.features:
            index = np.arange(self.n)[rows] % len(self.features[name])
            feature = self.features[name]
            return feature if len(feature) == 1 else feature[index]
        return self.numbers[name]

    def block(self, rows: slice | Array) -> dict[str, Array | float]:
        """Every argument for a block of rows."""
        return {p.name: self.argument(p.name, rows) for p in self.formula.parameters}


def prepare(formula: Formula, arguments: Mapping[str, Any], num_groups: int | None) -> Rows:
    """Check the arguments and lay them out as rows; raises InputError."""
    given = {p.name: _take(formula, p, arguments) for p in formula.parameters}
    unknown = set(arguments) - set(given)
    if any(arguments[name] is not None for name in unknown):
        raise InputError(
            f"{formula.id} does not take {', '.join(sorted(unknown))}: "
            f"its arguments are {', '.join(given)}"
        )
    first = next(p.name for p in formula.parameters if p.kind is Kind.ROW)
    x = given[first]
    view = _View(formula, x.shape, num_groups)
    rows = {
        p.name: _row(p, given[p.name], first, x, view)
        for p in formula.parameters
        if p.kind is Kind.ROW
    }
    features = {
        p.name: view.feature(p, given[p.name]) for p in formula.parameters if p.kind is Kind.FEATURE
    }
    return Rows(
        formula,
        x.shape,
        rows,
        features,
        {
            p.name: _row_number(p, given[p.name], view)
            for p in formula.parameters
            if p.kind is Kind.ROW_NUMBER
        },
        {p.name: given[p.name] for p in formula.parameters if p.kind is Kind.NUMBER},
        view.feature_shape(given),
        view.spatial,
    )


def _take(formula: Formula, p: Parameter, arguments: Mapping[str, Any]) -> Any:
    """One argument by name, as an array of a known format or a float."""
    value = arguments.get(p.name)
    if value is None and p.default is None:
        raise InputError(f"{formula.id} needs {p.name}: write {p.name}=...")
    if p.kind is Kind.NUMBER:
        return _number(formula, p, p.default if value is None else value)
    return None if value is None else _array(p, value)


def _number(formula: Formula, p: Parameter, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{p.name} must be one number, not {type(value).__name__}") from None
    if not math.isfinite(number):
        raise InputError(f"{p.name}={number} is not finite: write a finite number, e.g. 1e-6")
    if p.name in ("eps", "beta") and number < 0:
        raise InputError(f"{p.name}={number} is negative: {formula.id} needs {p.name} >= 0")
    return number


def _array(p: Parameter, value: Any) -> Array:
    array = np.asarray(value)
    if isinstance(value, list | tuple | float | int):
        array = np.asarray(value, dtype=np.float64)
    if format_of(array.dtype) is None:
        raise InputError(
            f"{p.name} has dtype {array.dtype}: expected a floating format such as float32 or "
            f"bfloat16, write {p.name}.astype('float32')"
        )
    return array


class _View:
    """How a shape becomes (n, d) rows and (classes, d) features."""

    def __init__(self, formula: Formula, shape: tuple[int, ...], num_groups: int | None) -> None:
        self.formula, self.shape, self.spatial = formula, shape, 1
        if len(shape) < (2 if formula.layout is not Layout.LAST_AXIS else 1):
            raise InputError(
                f"x of {formula.id} has shape {shape}: expected "
                + (
                    "(N, C, ...)"
                    if formula.layout is Layout.GROUPS
                    else "(..., heads, d)"
                    if formula.layout is Layout.HEADS
                    else "(..., d)"
                )
            )
        self.groups = self._groups(num_groups)
        self.d = shape[-1]
        if formula.layout is Layout.GROUPS:
            self.spatial = math.prod(shape[2:])
            self.d = shape[1] // self.groups * self.spatial
        if self.d == 0:
            raise InputError(
                f"x of {formula.id} has rows of length 0 (shape {shape}): expected d >= 1"
            )

    def _groups(self, num_groups: int | None) -> int:
        if self.formula.layout is not Layout.GROUPS:
            if num_groups is not None:
                raise InputError(f"{self.formula.id} does not take num_groups")
            return 1
        if self.formula.id.startswith("instance_norm"):
            return self.shape[1]
        if num_groups is None or num_groups < 1 or self.shape[1] % num_groups:
            raise InputError(
                f"num_groups={num_groups} does not divide the {self.shape[1]} channels of x "
                f"(shape {self.shape}): write num_groups=k with k a divisor"
            )
        return num_groups

    @property
    def features(self) -> int:
        return self.shape[1] if self.formula.layout is Layout.GROUPS else self.d

    def feature_shape(self, given: Mapping[str, Any]) -> tuple[int, ...]:
        shapes = [v.shape for n, v in given.items() if n in ("weight", "bias") and v is not None]
        return shapes[0] if shapes else (self.features,)

    def rows(self, x: Array) -> Array:
        return x.reshape(-1, self.d)

    def feature(self, p: Parameter, value: Array | None) -> Array:
        """(classes, d); an absent one is the neutral value."""
        if value is None:
            return np.full((self.groups, self.d), p.default, dtype=np.float32)
        allowed: list[tuple[int, ...]] = [(self.features,)]
        if self.formula.layout is Layout.HEADS:
            allowed.append(self.shape[-2:])
        if value.shape not in allowed:
            raise InputError(
                f"{p.name} has shape {value.shape}, x has shape {self.shape}: expected {p.name} of "
                f"shape {' or '.join(map(str, allowed))}"
            )
        if self.formula.layout is Layout.GROUPS:
            return np.repeat(value.reshape(self.groups, -1), self.spatial, axis=1)
        return value.reshape(-1, self.d)


def _row(p: Parameter, value: Array | None, first: str, x: Array, view: _View) -> Array:
    if value is None:
        return np.broadcast_to(np.float32(p.default or 0), view.rows(x).shape)
    if value.shape != x.shape:
        raise InputError(
            f"{p.name} has shape {value.shape}, {first} has shape {x.shape}: "
            f"expected the same shape"
        )
    return view.rows(value)


def _row_number(p: Parameter, value: Array, view: _View) -> Array:
    expected = view.shape[:-1]
    if value.shape not in (expected, (*expected, 1)):
        raise InputError(f"{p.name} has shape {value.shape}: expected one number a row, {expected}")
    return value.reshape(-1, 1)
