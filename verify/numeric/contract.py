"""A contract names every rounding point of a kernel; from it follow its outputs and its bound.

`Contract.run` is the rounded reading: a kernel that keeps the contract. `bound` is a rigorous
limit on how far *any* kernel that keeps it can be from the truth, and `allowed` the set of outputs
it may give. Derivations are in docs/bounds.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, Rounding, format_named
from verify.formula import Formula, Kind
from verify.norms import faulty, formula_named
from verify.numeric.affine import Affine, BoundArithmetic
from verify.numeric.order import PAIRWISE, SEQUENTIAL, Order
from verify.numeric.rounded import RoundedArithmetic, rounded_to
from verify.numeric.rounding import DTYPES
from verify.numeric.rows import Rows, prepare

Array = NDArray[Any]


@dataclass(frozen=True)
class Contract:
    """What a kernel claims to compute, rounding by rounding.

    ``formula`` and ``algorithm``: what is computed and by which body; ``fault``: a wrong
    ingredient (`verify.norms.FAULTS`). ``accumulate``: the format of every operation; ``order``
    and ``rows_order``: how sums over a row and over rows are made; ``casts``: (point, format)
    pairs where a value is rounded on the way; ``output`` and ``output_rounding``: the last
    rounding. ``sqrt_roundings``: the root's error in units of u (3 for an approximate reciprocal
    root of 2 ulp: with the division's own u that allows 4u); ``function_roundings``: likewise
    for tanh, erf and exp. ``stable`` is False for contracts that legitimate inputs break.
    """

    formula: str
    output: str
    name: str = ""
    algorithm: str = ""
    fault: str = ""
    accumulate: str = "float32"
    order: Order = PAIRWISE
    rows_order: Order = SEQUENTIAL
    casts: tuple[tuple[str, str], ...] = ()
    output_rounding: Rounding = Rounding.NEAREST_EVEN
    flush_to_zero: bool = False
    sqrt_roundings: float = 1.0
    function_roundings: float = 8.0
    stable: bool = True

    @property
    def body(self) -> Formula:
        """The formula whose body is run, in the layout of the formula that is computed."""
        target = formula_named(self.formula)
        body = formula_named(self.algorithm) if self.algorithm else target
        body = faulty(body, self.fault) if self.fault else body
        return replace(body, id=target.id, layout=target.layout)

    @property
    def output_format(self) -> Format:
        """The format of the outputs."""
        return format_named(self.output)

    def cast_at(self, point: str) -> Format | None:
        """The format that a value is rounded to at ``point``, if at all."""
        name = dict(self.casts).get(point)
        return None if name is None else format_named(name)

    def held(self, values: Array) -> Array:
        """Values as the accumulation format holds them."""
        fmt = format_named(self.accumulate)
        with np.errstate(invalid="ignore", over="ignore"):
            if fmt.name in ("float32", "float64"):
                return values.astype(DTYPES[fmt.name]).astype(np.float64)
            return rounded_to(values, fmt).astype(np.float64)

    def describe(self) -> str:
        """One line for a report: every choice that the contract makes."""
        casts = "".join(f", {point} rounded to {fmt}" for point, fmt in self.casts)
        algorithm = f" by {self.algorithm}" if self.algorithm else ""
        fault = f" with {self.fault}" if self.fault else ""
        rounding = "" if self.output_rounding is Rounding.NEAREST_EVEN else " (truncated)"
        return (
            f"{self.formula}{algorithm}{fault} in {self.accumulate}, {self.order.name} sums"
            f"{casts}, output rounded to {self.output}{rounding}"
        )

    def run(self, arguments: dict[str, Any], num_groups: int | None = None) -> tuple[Array, ...]:
        """The outputs of a kernel that keeps this contract, in the caller's shapes."""
        rows = prepare(self.body, self.completed(arguments), num_groups)
        ar = RoundedArithmetic(self, rows)
        values = {name: ar.value(v) for name, v in rows.block(slice(0, rows.n)).items()}
        outputs = self.body(ar, **values)
        return tuple(
            _restored(rows, k, self._stored(value.array)) for k, value in enumerate(outputs)
        )

    def _stored(self, array: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return rounded_to(array, self.output_format, self.output_rounding)

    def completed(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A shifted algorithm takes the row's first element as its shift."""
        if self.body.parameter("shift") is None or "shift" in arguments:
            return arguments
        return {**arguments, "shift": np.asarray(arguments["x"])[..., 0]}


def _restored(rows: Rows, k: int, value: Array) -> Array:
    """An output in the caller's shape; parameter gradients summed over space already."""
    if rows.formula.outputs[k].kind is Kind.ROW:
        return np.broadcast_to(value, (rows.n, rows.d)).reshape(rows.shape)
    return value.reshape(rows.feature_shape)


def _read(
    contract: Contract, arguments: dict[str, Any], num_groups: int | None, *, predict: bool = False
) -> tuple[Rows, tuple[Affine, ...]]:
    rows = prepare(contract.body, contract.completed(arguments), num_groups)
    ar = BoundArithmetic(contract, rows, predict=predict)
    with np.errstate(all="ignore"):
        values = {name: ar.input(v) for name, v in rows.block(slice(0, rows.n)).items()}
        return rows, contract.body(ar, **values)


def bound(
    contract: Contract, arguments: dict[str, Any], num_groups: int | None = None
) -> tuple[Array, ...]:
    """For each output, a limit on |kernel's output - exact value|, element by element.

    Rigorous for every kernel that keeps ``contract``; infinite where the contract guarantees
    nothing (an intermediate overflow, or a variance that rounding can make negative).
    """
    rows, values = _read(contract, arguments, num_groups)
    limits = []
    for k, value in enumerate(values):
        with np.errstate(all="ignore"):
            before = _clean(value.error + value.slop)
            last = _output_rounding(contract, value.size + before)
        limits.append(_restored(rows, k, _clean(before + last)))
    return tuple(limits)


def _output_rounding(contract: Contract, reach: Array) -> Array:
    """What the last rounding adds: u (or 2u for truncation) of the value, and half a subnormal."""
    fmt = contract.output_format
    if fmt.name == contract.accumulate:
        return np.zeros_like(reach)  # the last operation has rounded already
    scale = 1.0 if contract.output_rounding is Rounding.NEAREST_EVEN else 2.0
    last = scale * (float(fmt.unit_roundoff) * reach + float(fmt.eta))
    return np.where(reach >= float(fmt.max_finite), np.inf, last)


def _clean(error: Array) -> Array:
    """NaN bounds (inf - inf, 0 * inf) are no guarantee."""
    return np.where(np.isnan(error), np.inf, error) * (1.0 + 2.0**-40)


def allowed(
    contract: Contract, arguments: dict[str, Any], num_groups: int | None = None
) -> tuple[tuple[Array, Array], ...]:
    """For each output, the smallest and the largest value that a correct kernel may give.

    Values of the output format as float64; infinite where nothing is guaranteed.
    """
    rows, values = _read(contract, arguments, num_groups, predict=True)
    pairs = []
    for k, value in enumerate(values):
        with np.errstate(all="ignore"):
            error = _clean(value.error + value.slop)
            low, high = value.val - error, value.val + error
            # the float64 subtraction itself may round inward
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
            unknown = ~np.isfinite(value.val) | ~np.isfinite(error)
            ends = [
                np.where(unknown, far, _end(contract, end, far))
                for end, far in ((low, -np.inf), (high, np.inf))
            ]
        pairs.append((_restored(rows, k, ends[0]), _restored(rows, k, ends[1])))
    return tuple(pairs)


def _end(contract: Contract, end: Array, far: float) -> Array:
    """One end of the interval, rounded as the kernel rounds.

    A format without infinity overflows to NaN or saturates: beyond its range nothing is excluded,
    and the end moves out to ``far``.
    """
    rounded = rounded_to(end, contract.output_format, contract.output_rounding).astype(np.float64)
    return np.where(np.isnan(rounded) | ~np.isfinite(end), far, rounded)
