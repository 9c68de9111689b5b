"""What the fast truth leaves open: exact integers, and balls at rising precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Overflow, boundaries, round_to
from verify.formula import Kind
from verify.numeric import arb, exact
from verify.numeric.exact import NotQuadraticError, Quadratic, UndefinedError
from verify.numeric.rounding import Rounder
from verify.numeric.special import ieee_reading
from verify.numeric.tree import trace

if TYPE_CHECKING:
    from verify.numeric.truth import Truth

Array = NDArray[Any]
Enclosure = Callable[[int], tuple[Fraction, Fraction] | None]
PRECISIONS = (160, 320, 640, 1280, 2560, 5120)


class UndecidedError(ArithmeticError):
    """No precision tried decides the rounding, and no exact form is known."""


def elements(truth: Truth, k: int, row: int, columns: Array) -> None:
    """Decide elements of one row of output ``k``."""
    block = slice(row, row + 1)
    arguments = truth.rows.block(block)
    out = truth.results[k]
    special = ieee_reading(truth.formula, arguments) if not _finite(arguments) else None
    if special is not None:
        odd = _special_columns(arguments, truth.rows.d)
        for j in columns[odd[columns]]:
            out[row, j] = truth.rounder.round(float(special[k][0, j]))
        columns = columns[~odd[columns]]
        arguments = _without_special_features(arguments)
    if columns.size:
        _exact_elements(truth, k, row, columns, arguments)


def _finite(arguments: dict[str, Any]) -> bool:
    return all(np.isfinite(np.asarray(v, dtype=np.float64)).all() for v in arguments.values())


def _special_columns(arguments: dict[str, Any], d: int) -> Array:
    """Where an output is touched by an infinity or a NaN: everywhere if the row holds one."""
    odd = np.zeros(d, dtype=bool)
    for name, value in arguments.items():
        wrong = ~np.isfinite(np.asarray(value, dtype=np.float64))
        odd |= wrong.any() if name not in ("weight", "bias") else np.broadcast_to(wrong, (1, d))[0]
    return odd


def _without_special_features(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        name: np.where(np.isfinite(np.asarray(v, np.float64)), v, 0) if name in ("weight", "bias") else v
        for name, v in arguments.items()
    }


def _exact_elements(truth: Truth, k: int, row: int, columns: Array, arguments: Any) -> None:
    out = truth.results[k]
    try:
        value = exact.evaluate(truth.formula, arguments)[k]
    except UndefinedError:
        out[row, columns] = truth.rounder.round(math.nan)
        return
    except NotQuadraticError:
        _ball_elements(truth, k, row, columns, arguments)
        return
    for j in columns:
        out[row, j] = round_quadratic(exact.element(value, 0, int(j)), truth.rounder)


def _ball_elements(truth: Truth, k: int, row: int, columns: Array, arguments: Any) -> None:
    left = list(columns)
    for bits in PRECISIONS:
        balls = arb.evaluate(truth.formula, arguments, bits)[k]
        for j in left:
            value = truth.rounder.round_interval(arb.interval(balls[0, j]))
            if value is not None:
                truth.results[k][row, j] = value
        left = [j for j in left if truth.rounder.round_interval(arb.interval(balls[0, j])) is None]
        if not left:
            return
    raise UndecidedError(f"{truth.formula.id}: row {row}, elements {left} after {bits} bits")


def round_quadratic(value: Quadratic, rounder: Rounder) -> float:
    """A number of Q(sqrt R) rounded to nearest even: enclosed, and compared exactly if need be."""
    ends = value.enclosure(rounder.fmt.precision + 64)
    decided = rounder.round_interval(ends)
    if decided is not None:
        return decided
    return _decide_between(ends, rounder, value.compare)


def _decide_between(
    ends: tuple[Fraction, Fraction],
    rounder: Rounder,
    compare: Callable[[Fraction], int],
) -> float:
    """Two candidates remain: the side of the boundary between them, or a tie, decides."""
    boundary = boundary_between(*ends, rounder)
    side = compare(boundary)
    if side == 0:
        return rounder.round(boundary)
    return rounder.round(ends[0] if side < 0 else ends[1])


def boundary_between(low: Fraction, high: Fraction, rounder: Rounder) -> Fraction:
    """The one rounding boundary of the format in [low, high], which must be short."""
    fmt = rounder.fmt
    lower, upper, _ = boundaries(fmt, round_to(fmt, low, overflow=Overflow.SATURATE))
    return upper if low <= upper <= high else lower


# --- sums over rows -------------------------------------------------------------------------------


def rational_columns(truth: Truth, k: int, open_columns: Array) -> Array:
    """Decide the (class, feature) sums whose terms need nothing of their rows; return the others."""
    try:
        for group, feature in open_columns:
            where = _members(truth, group, feature)
            total = truth.rounder.round(_rational_sum(truth, k, *where))
            truth.results[k][group, feature] = total
    except (NotQuadraticError, ValueError, OverflowError):  # a root, a row sum, or not finite
        return open_columns
    return open_columns[:0]


def columns(truth: Truth, k: int, open_columns: Array) -> Array:
    """Decide every (class, feature) sum of the parameter gradient ``k``; none is left."""
    rows = truth.rows
    arguments = rows.block(slice(0, rows.n))
    if not _finite(arguments):
        open_columns = _special_sums(truth, k, open_columns, arguments)
    for group, feature in open_columns:
        where = _members(truth, group, feature)
        truth.results[k][group, feature] = _sum_of_column(truth, k, *where)
    return open_columns[:0]


def _members(truth: Truth, group: int, feature: int) -> tuple[Array, range]:
    """The rows and the positions in them that share one feature."""
    rows = truth.rows
    first = feature * rows.spatial
    return np.arange(group, rows.n, rows.classes), range(first, first + rows.spatial)


def _special_sums(truth: Truth, k: int, open_columns: Array, arguments: Any) -> Array:
    """A column touched by an infinity or a NaN gets IEEE's answer; the finite ones stay open."""
    terms = _terms_formula_reading(truth, k, arguments)
    left = []
    for group, feature in open_columns:
        total = terms[group :: truth.rows.classes, feature * truth.rows.spatial : (feature + 1) * truth.rows.spatial].sum()
        if np.isfinite(total):
            left.append((group, feature))
        else:
            truth.results[k][group, feature] = truth.rounder.round(float(total))
    return np.array(left, dtype=np.int64).reshape(-1, 2)


def _terms_formula_reading(truth: Truth, k: int, arguments: Any) -> Array:
    return ieee_reading(truth.formula, arguments, sum_rows=False)[k]


def _sum_of_column(truth: Truth, k: int, members: Array, positions: range) -> float:
    try:
        terms = [
            exact.element(value, 0, j)
            for i in members
            for value in [exact.evaluate(truth.formula, truth.rows.block(slice(i, i + 1)))[k]]
            for j in positions
        ]
    except UndefinedError:
        return truth.rounder.round(math.nan)
    except NotQuadraticError:
        return _balls_of_column(truth, k, members, positions)
    return round_sum(terms, truth.rounder)


def _rational_sum(truth: Truth, k: int, members: Array, positions: range) -> Fraction:
    """The column sum if its terms need nothing of the rest of their rows, as dbias does."""
    root = trace(truth.formula)[k].args[0]
    arguments = {
        name: np.broadcast_to(np.asarray(v, np.float64), (len(members), truth.rows.d))[:, list(positions)]
        for name, v in truth.rows.block(members).items()
    }
    return exact.elementwise_sum(root, arguments)


def round_sum(terms: Sequence[Quadratic], rounder: Rounder) -> float:
    """A sum of numbers from different quadratic fields, rounded to nearest even."""
    for bits in PRECISIONS:
        pairs = [t.enclosure(bits) for t in terms]
        ends = (sum((p[0] for p in pairs), Fraction(0)), sum((p[1] for p in pairs), Fraction(0)))
        decided = rounder.round_interval(ends)
        if decided is not None:
            return decided
        boundary = boundary_between(*ends, rounder)
        if bits >= PRECISIONS[1] and sum_equals(terms, boundary):
            return rounder.round(boundary)
    raise UndecidedError(f"a sum of {len(terms)} roots after {PRECISIONS[-1]} bits")


def sum_equals(terms: Sequence[Quadratic], m: Fraction) -> bool:
    """Whether sum (a_i + b_i sqrt(R_i))/den_i = m, decided exactly.

    Square roots of positive integers whose pairwise products are not squares, together with 1,
    are linearly independent over Q (Besicovitch 1940, J. London Math. Soc. 15); so the terms are
    sorted into classes of one root each, and every class must vanish.
    """
    left = sum((Fraction(t.a, t.den) for t in terms), Fraction(0)) - m
    classes: list[tuple[int, Fraction]] = []
    for t in terms:
        if t.b * t.radicand == 0:
            continue
        for n, (root, weight) in enumerate([(1, left), *classes]):
            product = root * t.radicand
            whole = math.isqrt(product)
            if whole * whole == product:
                share = Fraction(t.b * whole, t.den * root)
                if n == 0:
                    left += share
                else:
                    classes[n - 1] = (root, weight + share)
                break
        else:
            classes.append((t.radicand, Fraction(t.b, t.den)))
    return left == 0 and all(weight == 0 for _, weight in classes)


def _balls_of_column(truth: Truth, k: int, members: Array, positions: range) -> float:
    arguments = truth.rows.block(members)
    for bits in PRECISIONS:
        with_sum = arb.evaluate(truth.formula, arguments, bits)[k]
        with arb.working_precision(bits):
            ball = sum((with_sum[0, j] for j in positions), start=0 * with_sum[0, positions[0]])
        value = truth.rounder.round_interval(arb.interval(ball))
        if value is not None:
            return value
    raise UndecidedError(f"{truth.formula.id}: a column sum after {bits} bits")


# --- formulas without a compiled form ---------------------------------------------------------------


def by_balls(truth: Truth) -> None:
    """Everything by Arb: for formulas with tanh, erf or exp."""
    rows = truth.rows
    for k, kind in enumerate(truth.kinds):
        if kind is Kind.ROW:
            for i in range(rows.n):
                elements(truth, k, i, np.arange(rows.d))
        else:
            features = rows.d // rows.spatial
            truth.results[k] = np.empty((rows.classes, features), truth.rounder.dtype)
            columns(truth, k, np.argwhere(np.ones((rows.classes, features), dtype=bool)))
