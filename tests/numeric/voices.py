"""What the tests of the truth compare it with: other readings, inputs, and a rounding of their own.

Nothing here uses the coder of `verify.numeric.rounding`: ends are rounded by scaling to integers,
and where the two ends of a ball differ by `formats.round_to` of exact rationals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np

from verify.formats import FORMATS, Format, round_to
from verify.formula import Formula, Kind, Layout
from verify.numeric.arb import ArbArithmetic, interval, working_precision
from verify.numeric.exact import Quadratic
from verify.numeric.mp import MpArithmetic, fraction
from verify.numeric.rows import Rows, prepare

Ends = tuple[Fraction, Fraction]
TRANSCENDENTAL = ("dyt", "derf")

# --- rounding, apart from the engine's ------------------------------------------------------------


def rounded(fmt: Format, y: np.ndarray) -> np.ndarray:
    """float64 numbers rounded to nearest even into a narrower format, by scaling to integers."""
    exponent = np.maximum(np.frexp(y)[1] - 1, fmt.emin)
    whole = np.rint(np.ldexp(y, fmt.mantissa_bits - exponent))
    out = np.ldexp(whole, exponent - fmt.mantissa_bits)
    largest = float(fmt.max_finite)
    if not fmt.has_zero:
        out = np.where(y <= 0, np.nan, np.maximum(out, float(fmt.min_normal)))
    too_large = {
        "infinity": np.copysign(np.inf, y),
        "nan": np.nan,
        "saturate": np.sign(y) * largest,
    }
    return np.where(np.abs(out) > largest, too_large[str(fmt.overflow)], out)


def same(a: Any, b: Any) -> Any:
    """Equal as numbers, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


@dataclass
class Compared:
    """How many elements were compared, which disagreed, and which the voice left open."""

    count: int
    wrong: list[int]
    unsettled: list[int]


def compare(
    out: np.ndarray, low: np.ndarray, high: np.ndarray, ends: Callable[[int], Ends], fmt: Format
) -> Compared:
    """Outputs of the truth (flat) against intervals; ``ends(i)`` are those of i, exactly."""
    out = np.asarray(out).astype(np.float64).ravel()
    if fmt.name == "float64":
        clear = np.zeros(out.size, dtype=bool)
        wrong: list[int] = []
    else:
        a, b = rounded(fmt, low), rounded(fmt, high)
        clear = same(a, b) & ((low > 0) == (high > 0))
        wrong = np.flatnonzero(clear & ~same(out, a)).tolist()
    unsettled = []
    for i in np.flatnonzero(~clear):
        x, y = (round_to(fmt, end) for end in ends(int(i)))
        if not same(x, y):
            unsettled.append(int(i))
        elif not same(out[i], x):
            wrong.append(int(i))
    return Compared(out.size - len(unsettled), wrong, unsettled)


# --- voices ---------------------------------------------------------------------------------------


class ArbTerms(ArbArithmetic):
    """Sums over rows are left as terms; the layouts add them up here."""

    def sum_rows(self, rows: Any) -> Any:
        return rows


class MpTerms(MpArithmetic):
    """The same for mpmath."""

    def sum_rows(self, rows: Any) -> Any:
        return rows


def shaped(value: Any, rows: Rows, kind: Kind, add: Callable[[list[Any]], Any]) -> np.ndarray:
    """An evaluated output, flat, in the order of the truth's."""
    value = np.broadcast_to(value, (rows.n, rows.d))
    if kind is Kind.ROW:
        return value.ravel()
    classes, spatial = rows.classes, rows.spatial
    sums = [
        add(value[c::classes, f : f + spatial].ravel().tolist())
        for c in range(classes)
        for f in range(0, rows.d, spatial)
    ]
    return np.array(sums, dtype=object)


def by_arb(formula: Formula, rows: Rows, bits: int = 640) -> list[np.ndarray]:
    """Every output as balls, flat."""
    to_ball = np.frompyfunc(lambda v: flint.arb(float(v)), 1, 1)
    with working_precision(bits):
        values = {n: to_ball(np.atleast_2d(v)) for n, v in as_float64(rows).items()}
        outputs = formula(ArbTerms(rows.d), **values)
        return [
            shaped(v, rows, o.kind, lambda t: sum(t, start=flint.arb(0)))
            for v, o in zip(outputs, formula.outputs, strict=True)
        ]


def balls_of(formula: Formula, values: dict[str, Any], bits: int) -> np.ndarray:
    """The only output of a formula on given rows, flat."""
    to_ball = np.frompyfunc(lambda v: flint.arb(float(v)), 1, 1)
    with working_precision(bits):
        exactly = {n: to_ball(np.atleast_2d(np.asarray(v, float))) for n, v in values.items()}
        d = max(v.shape[1] for v in exactly.values())
        return np.asarray(formula(ArbTerms(d), **exactly)[0]).ravel()


def by_mpmath(formula: Formula, rows: Rows, bits: int = 400) -> list[np.ndarray]:
    """Every output as mpf, flat."""
    context = mpmath.mp.clone()
    context.prec = bits
    to_mpf = np.frompyfunc(lambda v: context.mpf(float(v)), 1, 1)
    values = {n: to_mpf(np.atleast_2d(v)) for n, v in as_float64(rows).items()}
    outputs = formula(MpTerms(rows.d, context), **values)
    return [
        shaped(v, rows, o.kind, context.fsum) for v, o in zip(outputs, formula.outputs, strict=True)
    ]


def as_float64(rows: Rows) -> dict[str, np.ndarray]:
    return {n: np.asarray(v, np.float64) for n, v in rows.block(slice(0, rows.n)).items()}


def arb_bounds(balls: np.ndarray) -> tuple[np.ndarray, np.ndarray, Callable[[int], Ends]]:
    """float64 bounds of balls, widened generously, and the exact ends."""
    middle = np.array([float(b.mid()) for b in balls])
    radius = np.array([float(b.rad()) for b in balls])
    pad = np.abs(middle) * 2.0**-51 + radius * (1 + 2.0**-20) + 2.0**-1070
    return middle - pad, middle + pad, lambda i: interval(balls[i])  # type: ignore[return-value]


def mpmath_bounds(
    values: np.ndarray, doubt: Fraction = Fraction(0)
) -> tuple[np.ndarray, np.ndarray, Callable[[int], Ends]]:
    """The same for mpf: numbers and no intervals, taken exactly or with a stated ``doubt``."""
    middle = np.array([float(v) for v in values])
    pad = np.abs(middle) * 2.0**-51 + 2.0**-1070 + float(doubt)

    def ends(i: int) -> Ends:
        return fraction(values[i]) - doubt, fraction(values[i]) + doubt

    return middle - pad, middle + pad, ends


def holds_exactly(value: Quadratic, out: float, fmt: Format) -> bool:
    """Whether the integers say that ``out`` is the nearest: beyond neither end of its interval."""
    low, high = (round_to(fmt, end) for end in value.enclosure(1500))
    return bool(same(low, out) and same(high, out))


# --- inputs ---------------------------------------------------------------------------------------


def hard_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """float32 rows of every kind that is known to hurt."""
    z = rng.standard_normal((n, d))
    kinds: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda r: r,
        lambda r: r + 1e2,
        lambda r: r + 1e4,
        lambda r: r * 3 + 3e6,
        lambda r: 0 * r + 7.3,
        lambda r: np.where(np.arange(d) == 3 % d, 2e4, r * 1e-2),
        lambda r: r * 1e-42,
        lambda r: r * 1e30,
        lambda r: r * 1e-40,
        lambda r: np.where(np.arange(len(r)) % 2 == 0, 4.0, -4.0),
        lambda r: 0 * r,
        lambda r: np.rint(r * 3),
        lambda r: np.where(np.arange(d) == d - 1, 3.4e38, r),
        lambda r: np.rint(r * 100) * 2.0**-9,
        lambda r: r + 32.0,
        lambda r: np.where(np.arange(d) % 3 == 0, 0.0, -r),
    ]
    return np.stack([kinds[i % len(kinds)](z[i]) for i in range(n)]).astype(np.float32)


def hard_weight(rng: np.random.Generator, d: int) -> np.ndarray:
    weight = rng.standard_normal(d).astype(np.float32)
    weight[::5], weight[1::7] = 0.0, -2.5
    return weight


def tie_steps(d: int) -> np.ndarray:
    """Half units in the last place of every format beside 1, by column, of both signs."""
    precisions = sorted({f.precision for f in FORMATS.values() if f.precision <= 24})
    return np.array([(-1.0) ** j * 2.0 ** -precisions[j % len(precisions)] for j in range(d)])


def arguments(formula: Formula, x: np.ndarray, rng: np.random.Generator, **given: Any) -> Any:
    """Keyword arguments of ``reference`` for rows (n, d), laid out as the formula wants them."""
    n, d = x.shape
    scale = 1.0 if not formula.id.startswith(TRANSCENDENTAL) else 300.0 / max(300.0, abs(x).max())
    made: dict[str, Any] = {"x": (x * np.float32(scale)).astype(x.dtype)}
    for p in formula.parameters:
        if p.name in given:
            made[p.name] = given[p.name]
        elif p.kind is Kind.FEATURE:
            made[p.name] = hard_weight(rng, d).astype(x.dtype)
        elif p.kind is Kind.ROW_NUMBER:
            made[p.name] = np.ascontiguousarray(x[:, :1])
        elif p.kind is Kind.NUMBER:
            made[p.name] = {"alpha": 0.5, "shift": 0.25}.get(p.name, 1e-5)
        elif p.name != "x":
            made[p.name] = rng.standard_normal((n, d)).astype(x.dtype)
    return laid_out(formula, made, n, d)


def laid_out(formula: Formula, made: dict[str, Any], n: int, d: int) -> Any:
    """(n, d) rows as (n/2, 2 groups of d/4 channels, 4 positions), or with 2 heads."""
    if formula.layout is Layout.LAST_AXIS:
        return made
    groups = formula.layout is Layout.GROUPS
    instance = formula.id.startswith("instance")
    channels = d // 4 if not instance else 1
    shape = (n // 2, 2 * channels, d // channels) if groups else (n // 2, 2, d)
    for p in formula.parameters:
        if p.kind is Kind.ROW:
            made[p.name] = made[p.name].reshape(shape)
        elif p.kind is Kind.FEATURE and groups:
            made[p.name] = np.resize(made[p.name], shape[1])
        elif p.kind is Kind.FEATURE:
            made[p.name] = np.stack([made[p.name], made[p.name][::-1]])
    return made if instance or not groups else made | {"num_groups": 2}


def rows_of(formula: Formula, made: dict[str, Any]) -> Rows:
    """The engine's view of the arguments: layouts alone, no arithmetic."""
    plain = {k: v for k, v in made.items() if k != "num_groups"}
    return prepare(formula, plain, made.get("num_groups"))
