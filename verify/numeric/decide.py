"""What the fast truth leaves open: exact integers, and balls at rising precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verify.formats import Format, Overflow, boundaries, round_to
from verify.numeric import arb, exact
from verify.numeric.exact import NotQuadraticError, Quadratic, UndefinedError
from verify.numeric.rounding import Rounder
from verify.numeric.special import ieee_reading
from verify.numeric.tree import Node, walk

if TYPE_CHECKING:
    from verify.numeric.truth import Truth

Array = NDArray[Any]
Enclosure = Callable[[int], tuple[Fraction, Fraction] | None]
PRECISIONS = (160, 320, 640, 1280, 2560, 5120)
FIRST_PRECISION = 128
SATURATES = 2560  # from here on tanh and erf that differ from 1 by less are taken just inside it
TERMS = 1 << 18  # exact terms held at a time
PIECE = 1 << 14  # terms of one sum that are turned into integers at a time


class UndecidedError(ArithmeticError):
    """No precision tried decides the rounding, and no exact form is known."""


def elements(truth: Truth, k: int, row: int, columns: Array) -> None:
    """Decide elements of one row of output ``k``."""
    arguments = truth.rows.block(slice(row, row + 1))
    touched = touched_by_special(truth.roots[k], arguments, truth.rows.d)
    if touched.any():
        special = ieee_reading(truth.formula, arguments)[k]
        for j in columns[touched[columns]]:
            truth.results[k][row, j] = truth.rounder.round(float(special[0, j]))
        columns = columns[~touched[columns]]
    if columns.size:
        _exact_elements(truth, k, row, columns, _without_special(arguments))


def touched_by_special(root: Node, arguments: dict[str, Any], d: int) -> Array:
    """Which elements depend on an infinity or a NaN: all of them, if a row sum sees one."""
    summed = {i for n in walk(root) if n.op in ("sum", "fold") for i in _inputs(n)}
    touched = np.zeros(d, dtype=bool)
    for name in _inputs(root):
        odd = ~np.isfinite(np.asarray(arguments[name], dtype=np.float64))
        if odd.any():
            touched |= odd.any() if name in summed else np.broadcast_to(odd, (1, d))[0]
    return touched


def _inputs(root: Node) -> set[str]:
    return {n.payload for n in walk(root) if n.op == "input"}


def _without_special(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with 0 for infinities and NaN, for the elements that do not see them."""
    values = {name: np.asarray(v, dtype=np.float64) for name, v in arguments.items()}
    return {name: np.where(np.isfinite(v), v, 0.0) for name, v in values.items()}


def _exact_elements(truth: Truth, k: int, row: int, columns: Array, arguments: Any) -> None:
    try:
        values = _quadratics(truth, k, arguments, columns)
    except NotQuadraticError:
        _ball_elements(truth, k, row, columns, arguments)
        return
    for j, value in zip(columns, values, strict=True):
        truth.results[k][row, j] = (
            truth.rounder.round(math.nan)
            if value is None
            else round_quadratic(value, truth.rounder)
        )


def _quadratics(truth: Truth, k: int, arguments: Any, columns: Array) -> list[Quadratic | None]:
    """Elements of one row, or its terms of a sum over rows, exactly; None where they are 0/0."""
    try:
        value = exact.evaluate(truth.formula, arguments)[k]
    except UndefinedError:  # somewhere in the row; another output or element may be defined
        return [_alone(truth, k, arguments, int(j)) for j in columns]
    return [exact.element(value, 0, int(j)) for j in columns]


def _alone(truth: Truth, k: int, arguments: Any, j: int) -> Quadratic | None:
    root = term_of(truth.roots[k])
    if not is_elementwise(root):
        return None
    try:
        return exact.element(exact.value_of(root, _element_of(arguments, j)), 0, 0)
    except UndefinedError:
        return None


def _element_of(arguments: Any, j: int) -> dict[str, Any]:
    rows = {name: np.atleast_2d(np.asarray(v)) for name, v in arguments.items()}
    return {n: v if v.shape[1] == 1 else v[:, j : j + 1] for n, v in rows.items()}


def term_of(root: Node) -> Node:
    """What a sum over rows adds up; any other node itself."""
    return root.args[0] if root.op == "sum_rows" else root


def is_elementwise(root: Node) -> bool:
    """Whether an element needs nothing of the rest of its row."""
    return not any(n.op in ("sum", "fold", "length") for n in walk(root))


def _ball_elements(truth: Truth, k: int, row: int, columns: Array, arguments: Any) -> None:
    left = columns
    for bits in PRECISIONS:
        values = _enclosed(truth, k, arguments, left, bits)
        truth.results[k][row, left] = [0.0 if v is None else v for v in values]
        left = left[[v is None for v in values]]
        if not left.size:
            return
    raise UndecidedError(f"{truth.formula.id}: row {row}, elements {left} after {bits} bits")


def _enclosed(
    truth: Truth, k: int, arguments: Any, columns: Array, bits: int
) -> list[float | None]:
    """Elements by balls at one precision, None where it does not decide; only what is needed."""
    alone = is_elementwise(truth.roots[k])
    needed = _columns_of(arguments, columns) if alone else arguments
    saturated = bits >= SATURATES and alone
    balls = arb.evaluate(truth.formula, needed, bits, saturated=saturated)[k][0]
    picked = balls if alone else balls[columns]
    return [truth.rounder.round_interval(arb.interval(ball)) for ball in picked]


def _columns_of(arguments: Any, columns: Array) -> dict[str, Any]:
    rows = {name: np.atleast_2d(np.asarray(v)) for name, v in arguments.items()}
    return {n: v if v.shape[1] == 1 else v[:, columns] for n, v in rows.items()}


def round_quadratic(value: Quadratic, rounder: Rounder) -> float:
    """A number of Q(sqrt R) rounded to nearest even: enclosed, and compared exactly if need be.

    A rational number is its own enclosure. The enclosure of an irrational one, which lies on no
    boundary, shrinks until it holds a single boundary, with which the number is compared.
    """
    bits = rounder.fmt.precision + 64
    while True:
        ends = value.enclosure(bits)
        decided = rounder.round_interval(ends)
        if decided is not None:
            return decided
        first, last = boundaries_in(*ends, rounder)
        if first == last:
            return rounder.round(ends[0] if value.compare(first) < 0 else ends[1])
        bits *= 2  # the two terms cancel


def boundaries_in(low: Fraction, high: Fraction, rounder: Rounder) -> tuple[Fraction, Fraction]:
    """The first and the last rounding boundary in [low, high], which must hold one."""
    if not rounder.fmt.has_zero:
        return _unsigned_boundary(rounder.fmt, low, up=True), _unsigned_boundary(
            rounder.fmt, high, up=False
        )
    below, above = (
        boundaries(rounder.fmt, round_to(rounder.fmt, end, overflow=Overflow.SATURATE))[:2]
        for end in (low, high)
    )
    first = below[0] if below[0] >= low else below[1]
    return first, above[1] if above[1] <= high else above[0]


def _unsigned_boundary(fmt: Format, end: Fraction, *, up: bool) -> Fraction:
    """In e8m0: 0, below which all is NaN, and 3/2 of every power of two; the next from ``end``."""
    if end <= 0 or (not up and end < fmt.min_normal * 3 / 2):
        return Fraction(0)
    power = fmt.min_normal
    while power < fmt.max_finite and (power * 3 / 2 < end if up else power * 3 <= end):
        power *= 2
    return power * 3 / 2


# --- sums over rows -------------------------------------------------------------------------------


def rational_columns(truth: Truth, k: int, open_columns: Array) -> Array:
    """Decide the (class, feature) sums whose terms need no root and no row; return the others."""
    root = term_of(truth.roots[k])
    try:
        for group, feature in open_columns:
            pieces = (_cut(truth, root, m, feature) for m in _members(truth, int(group)))
            total = sum((exact.elementwise_sum(root, piece) for piece in pieces), Fraction(0))
            truth.results[k][group, feature] = truth.rounder.round(total)
    except (NotQuadraticError, ValueError, OverflowError):  # a root, a row sum, or not finite
        return open_columns
    return open_columns[:0]


def _members(truth: Truth, group: int) -> Iterator[range]:
    """The rows of one feature class, a bounded number of terms at a time."""
    step = max(1, PIECE // truth.rows.spatial) * truth.rows.classes
    for start in range(group, max(truth.rows.n, group + 1), step):
        yield range(start, min(start + step, truth.rows.n), truth.rows.classes)


def _cut(truth: Truth, root: Node, rows_of_class: range, feature: int) -> dict[str, Array]:
    """What some terms of one sum need of the arguments, (members, positions) each."""
    rows, positions = truth.rows, _positions(truth, np.array([feature]))
    group, shape = rows_of_class.start, (len(rows_of_class), len(positions))
    members = slice(group, rows_of_class.stop, rows.classes)
    cut = {}
    for name in _inputs(root):
        if name in rows.rows:
            value: Any = rows.rows[name][members, positions[0] : positions[-1] + 1]
        elif name in rows.features:
            value = rows.features[name][group % len(rows.features[name])][positions]
        else:
            value = (
                rows.row_numbers[name][members] if name in rows.row_numbers else rows.numbers[name]
            )
        cut[name] = np.broadcast_to(np.asarray(value, np.float64), shape)
    return cut


def _positions(truth: Truth, features: Array) -> Array:
    """The elements of a row that belong to the features given."""
    return (features[:, None] * truth.rows.spatial + np.arange(truth.rows.spatial)).ravel()


def columns(truth: Truth, k: int, open_columns: Array) -> Array:
    """Decide every (class, feature) sum of the parameter gradient ``k``; none is left."""
    step = max(1, TERMS // (truth.rows.n * truth.rows.spatial + 1))
    for group in np.unique(open_columns[:, 0]):
        features = open_columns[open_columns[:, 0] == group, 1]
        for start in range(0, len(features), step):
            _decide_sums(truth, k, int(group), features[start : start + step])
    return open_columns[:0]


def _decide_sums(truth: Truth, k: int, group: int, features: Array) -> None:
    positions = _positions(truth, features)
    members = range(group, truth.rows.n, truth.rows.classes)
    out, spatial = truth.results[k], truth.rows.spatial
    try:
        terms = [_row_terms(truth, k, i, positions) for i in members]
    except NotQuadraticError:
        for feature in features:
            out[group, feature] = _balls_of_column(truth, k, group, int(feature))
        return
    for n, feature in enumerate(features):
        of_feature = slice(n * spatial, (n + 1) * spatial)
        out[group, feature] = _round_terms([t for row in terms for t in row[of_feature]], truth)


def _row_terms(truth: Truth, k: int, row: int, positions: Array) -> list[Quadratic | float]:
    """One row's terms of a sum over rows; a float where the term is no real number."""
    arguments = truth.rows.block(slice(row, row + 1))
    touched = touched_by_special(term_of(truth.roots[k]), arguments, truth.rows.d)
    terms: dict[int, Quadratic | float] = {}
    if touched.any():
        special = ieee_reading(truth.formula, arguments, sum_rows=False)[k][0]
        terms = {int(j): _as_term(float(special[j])) for j in positions[touched[positions]]}
    clean = positions[~touched[positions]]
    if clean.size:
        values = _quadratics(truth, k, _without_special(arguments), clean)
        terms |= {int(j): math.nan if v is None else v for j, v in zip(clean, values, strict=True)}
    return [terms[int(j)] for j in positions]


def _as_term(value: float) -> Quadratic | float:
    """A finite float64 as an exact number; others as they are."""
    if not math.isfinite(value):
        return value
    exactly = Fraction(value)
    return Quadratic(exactly.numerator, exactly.denominator)


def _round_terms(terms: list[Quadratic | float], truth: Truth) -> float:
    limits = [t for t in terms if isinstance(t, float)]
    if limits:
        return truth.rounder.round(sum(limits))
    return round_sum([t for t in terms if not isinstance(t, float)], truth.rounder)


def round_sum(terms: Sequence[Quadratic], rounder: Rounder) -> float:
    """A sum of numbers from different quadratic fields, rounded to nearest even."""
    for bits in PRECISIONS:
        pairs = [t.enclosure(bits) for t in terms]
        ends = (sum((p[0] for p in pairs), Fraction(0)), sum((p[1] for p in pairs), Fraction(0)))
        decided = rounder.round_interval(ends)
        if decided is not None:
            return decided
        first, last = boundaries_in(*ends, rounder)
        if first == last and sum_equals(terms, first):
            return rounder.round(first)
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


def _balls_of_column(truth: Truth, k: int, group: int, feature: int) -> float:
    """A sum over rows by balls at rising precision; what IEEE says of special terms is added."""
    root, rows = term_of(truth.roots[k]), truth.rows
    if is_elementwise(root):  # the rest of each row is not needed
        arguments: dict[str, Any] = {p.name: np.zeros((1, 1)) for p in truth.formula.parameters}
        arguments |= _cut(truth, root, range(group, rows.n, rows.classes), feature)
        positions = np.arange(rows.spatial)
    else:
        arguments = rows.block(np.arange(group, rows.n, rows.classes))
        positions = _positions(truth, np.array([feature]))
    arguments, special = _split_special(truth, k, root, arguments, positions)
    if not math.isfinite(special):
        return truth.rounder.round(special)
    for bits in PRECISIONS:
        with_sum = arb.evaluate(truth.formula, arguments, bits)[k]
        with arb.working_precision(bits):
            ball = sum((with_sum[0, j] for j in positions), start=arb.ball_of(special))
        value = truth.rounder.round_interval(arb.interval(ball))
        if value is not None:
            return value
    raise UndecidedError(f"{truth.formula.id}: a column sum after {bits} bits")


def _split_special(
    truth: Truth, k: int, root: Node, arguments: dict[str, Any], positions: Array
) -> tuple[dict[str, Any], float]:
    """The rows without infinities and NaN, and the float64 sum of the terms of the others."""
    used = [np.asarray(arguments[name], np.float64) for name in _inputs(root)]
    odd = np.logical_or.reduce([~np.isfinite(v).all(axis=-1) for v in used if v.ndim == 2])
    if not np.any(odd):
        return arguments, 0.0
    tall = {n: np.atleast_2d(np.asarray(v, np.float64)) for n, v in arguments.items()}
    parts = [
        {n: v[mask] if len(v) == len(odd) else v for n, v in tall.items()} for mask in (~odd, odd)
    ]
    with np.errstate(invalid="ignore"):
        terms = ieee_reading(truth.formula, parts[1], sum_rows=False)[k]
        return parts[0], float(terms[:, positions].sum())


# --- formulas without a compiled form -----------------------------------------------------------


def by_balls(truth: Truth) -> None:
    """Everything by Arb, block by block: for formulas with tanh, erf or exp.

    Their sums over rows are only ever over all rows: one class, one position for a feature.
    """
    totals: dict[int, Any] = {}
    for block in truth.blocks():
        outputs = arb.evaluate(truth.formula, truth.rows.block(block), FIRST_PRECISION)
        for k in truth.sums:
            with arb.working_precision(FIRST_PRECISION):
                totals[k] = totals[k] + outputs[k] if k in totals else outputs[k]
        for k in truth.row_outputs:
            truth.round_exactly(k, block, np.stack(arb.floats(outputs[k])))
    for k in truth.sums:
        total = totals.get(k, arb.zeros(truth.rows.d))
        truth.results[k], open_mask = truth.rounder.round_balls(*arb.floats(total))
        columns(truth, k, np.argwhere(open_mask))
