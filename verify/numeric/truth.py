"""`reference`: the correctly rounded output of any formula, in any format.

Fast truth first (balls compiled from the traced body: the filter tier, then the full tier for
the rows it leaves open), then exact integers in Q(sqrt R), and balls at rising precision for sums
over rows and for transcendental functions. Torch has no part in it.

Stated answers for what the reals do not define: 0/0 (eps = 0 on a row without spread) is NaN;
an element that depends on an infinity or a NaN gets what IEEE float64 arithmetic gives for the
body, rounded once (a sum over rows adds its special terms as IEEE does and the others exactly).
Zeros are compared as numbers: the sign of a zero result is that of the value that vanished where
the value's ball tells it, and is not stated elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, Overflow, format_named
from verify.formula import Formula, Kind, Parameter
from verify.norms import formula_named
from verify.numeric import decide
from verify.numeric.balls import two_sum
from verify.numeric.compile import NotCompilableError, accumulated, compensation_loss, compiled
from verify.numeric.rounding import Rounder
from verify.numeric.rows import Rows, prepare
from verify.numeric.tree import trace

Array = NDArray[Any]
BLOCK = 1 << 15  # elements handled at a time: their balls stay in the second-level cache


def reference(
    formula: str | Formula,
    x: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float | None = None,
    format: str | Format = "float32",
    *,
    overflow: Overflow | None = None,
    num_groups: int | None = None,
    **others: Any,
) -> Any:
    """The correctly rounded outputs of ``formula`` (to nearest, ties to even).

    ``x``: (..., d) in any format up to float64 (group norms: (N, C, ...)); ``weight``, ``bias``:
    (d,) or None; ``eps`` >= 0, taken exactly as the float64 given. ``others`` are the formula's
    further arguments, such as ``dy`` of a backward pass or ``residual`` of a fused add. Returns an
    array of ``format``'s dtype, or a tuple of them, one per output, in the formula's order.

    Raises InputError, UnknownFormulaError or FormatError, each with one clear line.
    """
    formula = formula if isinstance(formula, Formula) else formula_named(formula)
    fmt = format if isinstance(format, Format) else format_named(format)
    arguments = {"x": x, "weight": weight, "bias": bias, "eps": eps} | others
    rows = prepare(formula, arguments, num_groups)
    outputs = Truth(rows, Rounder(fmt, fmt.overflow if overflow is None else overflow)).outputs()
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


class Truth:
    """One evaluation: the rows, the rounder, and the outputs as they are filled in."""

    def __init__(self, rows: Rows, rounder: Rounder) -> None:
        self.rows, self.rounder, self.formula = rows, rounder, rows.formula
        self.roots = trace(rows.formula)
        arrays = [*rows.rows.values(), *rows.features.values(), *rows.row_numbers.values()]
        wide = any(a.dtype == np.float64 for a in arrays)
        self.dtype = np.dtype(np.float64 if wide else np.float32)
        self.bits = 53 if wide else 24
        self.kernels: dict[str, Callable[..., None]] = {}
        self.open_columns: dict[int, Array] = {}
        self.twins: dict[bytes, int] = {}
        self.kinds = [o.kind for o in self.formula.outputs]
        self.row_outputs = [k for k, kind in enumerate(self.kinds) if kind is Kind.ROW]
        self.sums = [k for k, kind in enumerate(self.kinds) if kind is Kind.FEATURE]

    def outputs(self) -> list[Array]:
        """Every output in the caller's shape."""
        n, d = self.rows.n, self.rows.d
        self.results: list[Array] = [
            np.empty((n, d) if kind is Kind.ROW else 0, self.rounder.dtype) for kind in self.kinds
        ]
        try:
            self._fast()
        except NotCompilableError:
            decide.by_balls(self)
        return [self._shaped(k) for k in range(len(self.kinds))]

    def _shaped(self, k: int) -> Array:
        row = self.kinds[k] is Kind.ROW
        return self.results[k].reshape(self.rows.shape if row else self.rows.feature_shape)

    # --- fast truth -----------------------------------------------------------------------------

    def _fast(self) -> None:
        tier = "filter" if self.rounder.filters else "full"
        self.open_columns = self._pass(tier)
        self._decide_columns(decide.rational_columns)
        if tier == "filter" and self.open_columns:
            self.open_columns = self._pass("full", rows_too=False)
        self._decide_columns(decide.columns)

    def _decide_columns(self, how: Callable[[Truth, int, Array], Array]) -> None:
        """Let ``how`` decide the open columns; it returns those that it leaves open."""
        left = {k: how(self, k, columns) for k, columns in self.open_columns.items()}
        self.open_columns = {k: columns for k, columns in left.items() if columns.size}

    def _pass(self, tier: str, *, rows_too: bool = True) -> dict[int, Array]:
        """One pass over all rows; returns the open columns of each parameter gradient."""
        sums = self._empty_sums()
        asked = self.sums if rows_too else list(self.open_columns)
        for block in self.blocks():
            balls = self._run(tier, block, sums)
            if not rows_too:
                continue
            for k, ball in balls.items():
                if tier == "full":
                    self.round_exactly(k, block, ball)
                elif self._round_filtered(k, block, ball):
                    self._full_rows(k, block)
        return {k: open_ for k in asked if (open_ := self._close(k, sums[k])).size}

    def _empty_sums(self) -> dict[int, Array]:
        return {k: np.zeros((4, self.rows.classes, self.rows.d)) for k in self.sums}

    def blocks(self) -> Iterator[slice]:
        """Blocks that start at feature class 0, so that their row i uses features[i % classes]."""
        classes = self.rows.classes
        step = max(1, BLOCK // self.rows.d // classes) * classes
        for start in range(0, self.rows.n, step):
            yield slice(start, min(start + step, self.rows.n))

    def _run(self, tier: str, block: slice, sums: dict[int, Array]) -> dict[int, Array]:
        """The compiled kernel on one block: balls of the row outputs, and terms into ``sums``."""
        parts = 2 if tier == "filter" else 3
        shape = (parts, block.stop - block.start, self.rows.d)
        balls = {k: np.empty(shape) for k in self.row_outputs}
        outs = [part for ball in (*balls.values(), *sums.values()) for part in ball]
        self._kernel(tier)(*self._arguments(block), *outs)
        return balls

    def _kernel(self, tier: str) -> Callable[..., None]:
        if tier not in self.kernels:
            self.kernels[tier] = compiled(self.formula, self.bits, tier)
        return self.kernels[tier]

    def _arguments(self, block: slice) -> list[Any]:
        return [self._argument(p, block) for p in self.formula.parameters]

    def _argument(self, p: Parameter, block: slice) -> Any:
        if p.kind is Kind.NUMBER:
            return self.rows.numbers[p.name]
        if p.kind is not Kind.FEATURE:
            return self._converted(np.asarray(self.rows.argument(p.name, block)))
        # a lone row of a later class: the classes are turned so that its own comes first
        feature = self.rows.features[p.name]
        turned = np.roll(feature, -(block.start % len(feature)), axis=0)
        return self._converted(turned)

    def _converted(self, array: Array) -> Array:
        return np.ascontiguousarray(array, dtype=self.dtype)

    def _round_filtered(self, k: int, block: slice, ball: Array) -> int:
        """Round the filter's balls; the number of open elements, whose mask is kept."""
        out = self.results[k][block].reshape(-1)
        self.open_mask = np.empty(out.size, np.bool_)
        return self.rounder.close(ball[0].reshape(-1), ball[1].reshape(-1), out, self.open_mask)

    def _full_rows(self, k: int, block: slice) -> None:
        """The full tier for the rows of a block that the filter left open."""
        for i in np.flatnonzero(self.open_mask.reshape(-1, self.rows.d).any(axis=1)):
            row = block.start + int(i)
            if not self._copied_from_twin(k, row):
                one = slice(row, row + 1)
                self.round_exactly(k, one, self._run("full", one, self._empty_sums())[k])

    def _copied_from_twin(self, k: int, row: int) -> bool:
        """Take a row's outputs from an equal row decided before, as padding repeats itself."""
        digest = hashlib.blake2b(str((k, row % self.rows.classes)).encode(), digest_size=16)
        for values in (*self.rows.rows.values(), *self.rows.row_numbers.values()):
            digest.update(values[row].tobytes())
        twin = self.twins.setdefault(digest.digest(), row)
        self.results[k][row] = self.results[k][twin]
        return twin != row

    def round_exactly(self, k: int, block: slice, ball: Array) -> None:
        """Round double-double balls; what they leave open is decided exactly, row by row."""
        self.results[k][block], open_mask = self.rounder.round_balls(*ball)
        for i in np.flatnonzero(open_mask.any(axis=1)):
            row = block.start + int(i)
            if block.stop - block.start == 1 or not self._copied_from_twin(k, row):
                decide.elements(self, k, row, np.flatnonzero(open_mask[i]))

    def _close(self, k: int, sums: Array) -> Array:
        """Round the column sums of one parameter gradient; returns the open columns."""
        h, l, e, total = fold_spatial(sums, self.rows.spatial)
        n = self.rows.n // self.rows.classes + 1 + self.rows.spatial
        radius = e * accumulated(n) + compensation_loss(n) * total
        out, open_mask = self.rounder.round_balls(h, l, radius)
        before = self.open_columns.get(k)
        if before is None:
            self.results[k] = out
            return np.argwhere(open_mask)
        # a second pass speaks only of what the first left open
        self.results[k][tuple(before.T)] = out[tuple(before.T)]
        return before[open_mask[tuple(before.T)]]


def fold_spatial(sums: Array, spatial: int) -> tuple[Array, Array, Array, Array]:
    """Column sums (4, classes, d) as balls (classes, d/spatial): sums, lows, radii, magnitudes."""
    classes, d = sums.shape[1:]
    s, c, e, a = sums.reshape(4, classes, d // spatial, spatial)
    high, low = s[..., 0], c.sum(axis=-1)
    for j in range(1, spatial):
        high, carry = two_sum.py_func(high, s[..., j])
        low = low + carry
    return *two_sum.py_func(high, low), e.sum(axis=-1), a.sum(axis=-1)
