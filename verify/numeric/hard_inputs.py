"""Rows that kernels get wrong, each kind written once over a source of choices.

A maker ``kind(source, d, fmt)`` asks its source for integers and for d numbers of unit scale, and
returns one row: d values of the format, all finite. Read with a random generator it is a seeded
input (`NAMED_ROWS`); read with Hypothesis' choices it is a strategy that shrinks
(`verify.numeric.strategies`). A property holds by construction: no row is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verify.formats import FORMATS, Format, Rounding, from_ordinal, ordinal, round_to, ulp
from verify.formats import format_named as any_format_named
from verify.numeric.rounded import rounded_to
from verify.numeric.rounding import DTYPES
from verify.numeric.rows import InputError

Array = NDArray[Any]
SPREAD: Final = 4.0  # no deviate is larger
WEIGHTS: Final = (0.0, -1.0, 15.8125, 0.5, -3.0)  # 15.8125 has the eight bits of bfloat16
FP16_LIMIT: Final = Fraction(65504)
ROOT_OF_LIMIT: Final = 256  # the first float16 whose square is infinite in float16

ROW_FORMATS: Final = tuple(
    name for name, fmt in FORMATS.items() if fmt.bits >= 8 and fmt.signed and fmt.has_zero
)


class Source(Protocol):
    """Where a maker's choices come from; 0 is the simplest choice wherever it is allowed."""

    def integer(self, low: int, high: int) -> int:
        """An integer in low ... high, both included."""

    def deviates(self, d: int) -> Array:
        """d float64 numbers of unit scale in [-SPREAD, SPREAD]."""


class Random:
    """Choices of a generator: uniform integers, Gaussian deviates."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high, endpoint=True))

    def deviates(self, d: int) -> Array:
        return np.clip(self.rng.standard_normal(d), -SPREAD, SPREAD)


Maker: TypeAlias = Callable[[Source, int, Format], Array]


# --- checked arguments -------------------------------------------------------------------------


def format_named(name: str) -> Format:
    """The format of that name; raises InputError for one too narrow, or unsigned, to hold rows."""
    fmt = any_format_named(name)
    if fmt.name not in ROW_FORMATS:
        raise InputError(
            f"no rows are made in {fmt.name}: expected one of {', '.join(ROW_FORMATS)}"
        )
    return fmt


def checked_width(d: Any, name: str = "d") -> int:
    """The width, or InputError."""
    if isinstance(d, bool) or not isinstance(d, int | np.integer) or d < 1:
        raise InputError(f"{name}={d!r} is not a width: expected an integer, at least 1")
    return int(d)


def checked_eps(eps: float) -> Fraction:
    """eps exactly, or InputError."""
    if not 0.0 <= eps <= 0.25:
        raise InputError(f"eps={eps!r} is out of range: expected 0 <= eps <= 0.25, e.g. 1e-6")
    return Fraction(eps)


# --- ingredients -------------------------------------------------------------------------------


def held(values: Any, fmt: Format) -> Array:
    """Values as the format holds them: rounded to nearest, the largest finite one at the ends."""
    limit = float(fmt.max_finite)
    return rounded_to(np.clip(np.asarray(values, dtype=np.float64), -limit, limit), fmt)


def _sign(source: Source) -> int:
    return 1 - 2 * source.integer(0, 1)


def _outward(deviates: Array, low: float, high: float) -> Array:
    """Magnitudes from low (at 0) to high, with the deviates' signs."""
    magnitude = low + np.abs(deviates) / SPREAD * (high - low)
    return np.where(deviates < 0, -magnitude, magnitude)


def _turned(source: Source, row: Array) -> Array:
    return np.roll(row, source.integer(0, len(row) - 1))


# --- kinds -------------------------------------------------------------------------------------


def plain(source: Source, d: int, fmt: Format) -> Array:
    """Gaussian-like, at a scale from 1/4 to 16."""
    return held(np.ldexp(source.deviates(d), source.integer(-2, 4)), fmt)


def zero(source: Source, d: int, fmt: Format) -> Array:
    """Zeros, of both signs where the format has -0."""
    return np.copysign(0.0, source.deviates(d)).astype(DTYPES[fmt.name])


def constant(source: Source, d: int, fmt: Format) -> Array:
    """One value d times, from any binade: the variance is 0."""
    value = source.deviates(1)[0]
    return held(np.full(d, np.ldexp(value, source.integer(fmt.emin, fmt.emax - 3))), fmt)


def shifted(source: Source, d: int, fmt: Format, *, max_kappa: float = 1e6) -> Array:
    """Large mean, small spread: mean|x| / sigma is from about 10 to a few times ``max_kappa``.

    Never constant unless d = 1: where the format is too coarse for the kappa asked for, elements
    differ by one unit in the last place.
    """
    if not 10.0 <= max_kappa <= 1e15:
        raise InputError(f"max_kappa={max_kappa!r} is out of range: expected 10 ... 1e15, e.g. 1e6")
    kappa = 10.0 ** (source.integer(2, int(2 * math.log10(max_kappa))) / 2)
    scale = source.integer(0, min(fmt.emax - 2, 13))
    mean = round_to(fmt, math.ldexp(1.0 + abs(float(source.deviates(1)[0])) / SPREAD, scale))
    step = float(ulp(fmt, mean))
    steps = max(mean / step / kappa, 1 / SPREAD)
    row = held(mean + step * np.round(np.abs(source.deviates(d)) * steps), fmt)
    if d > 1 and (row == row[0]).all():
        row = held([mean] * (d - 1) + [mean + step], fmt)
    return row if _sign(source) > 0 else -row


def one_hot_outlier(source: Source, d: int, fmt: Format) -> Array:
    """The massive activation: one element 1e3 to 1e5 times as large as any other."""
    ratio = source.integer(1_000, 100_000)
    rest = min(0, math.floor(math.log2(fmt.max_finite / ratio)))
    row = held(np.ldexp(source.deviates(d) / SPREAD, rest), fmt)
    row[source.integer(0, d - 1)] = held(_sign(source) * math.ldexp(ratio, rest), fmt)
    return row


def overflowing_square(source: Source, d: int, fmt: Format) -> Array:
    """Every |x| is in float16's range and beyond 255.9, where x^2 is infinite in float16."""
    if fmt.max_finite < ROOT_OF_LIMIT:
        raise InputError(
            f"no square of {fmt.name} overflows float16: expected a format that holds "
            f"{ROOT_OF_LIMIT}, e.g. float16"
        )
    high = round_to(fmt, min(fmt.max_finite, FP16_LIMIT), Rounding.TOWARD_ZERO)
    return held(_outward(source.deviates(d), ROOT_OF_LIMIT, high), fmt)


def huge(source: Source, d: int, fmt: Format) -> Array:
    """Every square overflows the format itself: 1e30-like in float32."""
    scale = source.integer(math.ceil(0.75 * fmt.emax), fmt.emax - 1)
    return held(np.ldexp(_outward(source.deviates(d), 1.0, 2.0), scale), fmt)


def subnormal(source: Source, d: int, fmt: Format) -> Array:
    """Subnormals and zeros, at least one of them not zero."""
    steps = np.round(source.deviates(d) / SPREAD * ((1 << fmt.mantissa_bits) - 1))
    if not steps.any():
        steps[0] = 1.0
    return held(steps * float(fmt.min_subnormal), fmt)


def eps_dominated(source: Source, d: int, fmt: Format, *, eps: float = 1e-6) -> Array:
    """Mean square at most eps/64; in formats with no smaller value, zeros."""
    scale = math.sqrt(checked_eps(eps)) / 16
    return held(source.deviates(d) / SPREAD * scale, fmt)


def alternating(source: Source, d: int, fmt: Format) -> Array:
    """Neighbours have opposite signs: the mean cancels."""
    magnitude = np.ldexp(1.0 + np.abs(source.deviates(d)), source.integer(-2, 4))
    signs = np.where(np.arange(d) % 2, -1, 1)
    return held(magnitude * signs * _sign(source), fmt)


def wide_range(source: Source, d: int, fmt: Format) -> Array:
    """Magnitudes from the smallest subnormal to a quarter of the largest value, both present."""
    low, high = fmt.emin - fmt.mantissa_bits, fmt.emax - 1
    places = source.deviates(d) / (2 * SPREAD) + 0.5
    row = np.ldexp(
        _outward(source.deviates(d), 1.0, 2.0), np.round(low + places * (high - low)).astype(int)
    )
    row[0] = np.ldexp(1.0, high)
    row[1:2] = float(fmt.min_subnormal)
    return _turned(source, held(row, fmt))


def tower(source: Source, d: int, fmt: Format, *, order: str, accumulate: str = "float32") -> Array:
    """Attains the error bound of a sum of squares accumulated in ``accumulate``.

    A top T and small s with (s/T)^2 <= u, the largest such s: T^2 + s^2 rounds to T^2 (u is half
    a unit in the last place of 1, and a tie goes to the even significand, 1). ``order``
    "sequential": T, s, s, ...; "tree": s at 1, 2, 4, ..., which meets the partial sum that holds
    T^2 at each level, and zeros elsewhere.
    """
    if order not in ("sequential", "tree"):
        raise InputError(f"order={order!r} is no order: expected 'sequential' or 'tree'")
    acc = any_format_named(accumulate)
    p, bits = acc.precision, min(fmt.precision, acc.precision)
    down = (p + 1) // 2  # s is in the binade of 2**-down
    ratio = Fraction(math.isqrt(1 << (2 * (bits - 1) + p % 2)), 1 << (bits - 1 + down))
    spare = fmt.mantissa_bits if p % 2 == 0 else 0  # a power of two may be subnormal
    low = max(fmt.emin - spare + down, (acc.emin + p + 2) // 2)
    high = min(fmt.emax, (acc.emax - 1) // 2)
    if low > high:
        raise InputError(
            f"{fmt.name} has no two values so far apart that {acc.name} loses a square: "
            f"expected a narrower accumulation format, e.g. accumulate='{fmt.name}'"
        )
    top = Fraction(2) ** source.integer(max(low, min(-8, high)), min(high, max(8, low)))
    row = np.full(d, float(top * ratio))
    if order == "tree":
        index = np.arange(d)
        row[index & (index - 1) != 0] = 0.0
    row[0] = float(top)
    return held(row * _sign(source), fmt)


def near_tie(
    source: Source, d: int, fmt: Format, *, output: str | None = None, eps: float = 1e-6
) -> Array:
    """RMSNorm of the row (no weight) has an element beside, or on, a boundary of ``output``.

    For an element x and a boundary m, y = m needs the other squares to sum to
    d (x^2/m^2 - eps) - x^2. The last few elements are the largest whose squares still fit, each
    leaving about 2**-p of what it found: after k of them y is above m by less than 2**-k(p-2)
    of m. Half of the rows exceed the sum in the last step, and y is below m. d = 2 and d = 1 have
    one number to choose: m is then the largest boundary below max |y|.
    """
    exact_eps, out = checked_eps(eps), fmt if output is None else any_format_named(output)
    sign, below, q = _sign(source), source.integer(0, 1), out.precision
    if d == 1:
        return held([sign * _tied_alone(exact_eps, q)], fmt)
    fine = 1 << fmt.mantissa_bits
    x = Fraction(fine + source.integer(0, fine - 1), fine)
    m = (1 + 2 * Fraction(source.integer(1 << (q - 1), (1 << q) - 1))) / (1 << (q + 1))
    if d == 2:
        root = math.isqrt(math.floor(2 * x * x / (x * x + 2 * exact_eps) * 4**q))
        m = Fraction(root - 1 + root % 2, 1 << q)
    tuned = min(d - 1, -(-(q + 12) // (fmt.precision - 2)))
    body = held(float(x) * np.round(source.deviates(d - 1 - tuned) * 8) / 64, fmt).tolist()
    left = d * (x * x / (m * m) - exact_eps) - x * x - sum(Fraction(float(b)) ** 2 for b in body)
    row = [float(x), *map(float, body), *_squares(left, tuned, fmt, beyond=bool(below))]
    return _turned(source, held(np.array(row) * sign, fmt))


def _tied_alone(eps: Fraction, q: int) -> float:
    """x with x / sqrt(x^2 + eps) = 1 - 2**-(q+1), the last boundary below 1; 1 if eps is 0."""
    m = 1 - Fraction(1, 1 << (q + 1))
    return math.sqrt(eps * m * m / (1 - m * m)) if eps else 1.0


def _squares(left: Fraction, count: int, fmt: Format, *, beyond: bool) -> list[float]:
    """``count`` values, each the largest whose square fits in what is left.

    ``beyond``: the last is one unit too large, unless nothing was left.
    """
    values: list[float] = []
    for _ in range(count):
        steps = math.isqrt(math.floor(left / fmt.min_subnormal**2))
        value = round_to(fmt, steps * fmt.min_subnormal, Rounding.TOWARD_ZERO)
        values.append(value)
        left -= Fraction(value) ** 2
    if beyond and left:
        values[-1] = from_ordinal(fmt, ordinal(fmt, values[-1]) + 1)
    return values


MAKERS: Final[Mapping[str, Maker]] = MappingProxyType(
    {
        "plain": plain,
        "zero": zero,
        "constant": constant,
        "alternating": alternating,
        "shifted": shifted,
        "one_hot_outlier": one_hot_outlier,
        "overflowing_square": overflowing_square,
        "huge": huge,
        "subnormal": subnormal,
        "eps_dominated": eps_dominated,
        "wide_range": wide_range,
        "near_tie": near_tie,
        "tower_sequential": partial(tower, order="sequential"),
        "tower_tree": partial(tower, order="tree"),
    }
)


def with_eps(name: str, eps: float) -> Maker:
    """The maker of a kind, for a norm with that eps."""
    depending: dict[str, Maker] = {
        "eps_dominated": partial(eps_dominated, eps=eps),
        "near_tie": partial(near_tie, eps=eps),
    }
    return depending.get(name, MAKERS[name])


def kinds_for(format: str) -> tuple[str, ...]:
    """The names of the kinds that exist in a format, simplest first."""
    narrow = format_named(format).max_finite < ROOT_OF_LIMIT
    return tuple(name for name in MAKERS if not (narrow and name == "overflowing_square"))


def _named(maker: Maker, d: int, rng: np.random.Generator, format: str) -> Array:
    return maker(Random(rng), checked_width(d), format_named(format))


# name -> function(d, rng, format): one row, the same for the same generator.
NAMED_ROWS: Final[Mapping[str, Callable[[int, np.random.Generator, str], Array]]] = (
    MappingProxyType({name: partial(_named, maker) for name, maker in MAKERS.items()})
)


# --- what goes with rows -------------------------------------------------------------------------


def weight(source: Source, d: int, fmt: Format) -> Array:
    """Around 1, with up to three elements 0, negative, or 15.8125 (as far as the format has it)."""
    values = held(1.0 + source.deviates(d), fmt)
    for _ in range(source.integer(0, 3)):
        value = WEIGHTS[source.integer(0, len(WEIGHTS) - 1)]
        values[source.integer(0, d - 1)] = held(value, fmt)
    return values


def with_specials(source: Source, row: Array, fmt: Format) -> Array:
    """One to three elements replaced by NaN, infinity or -infinity, at any position."""
    specials = (math.nan, math.inf, -math.inf) if fmt.has_infinity else (math.nan,)
    row = row.copy()
    for _ in range(source.integer(1, min(3, len(row)))):
        row[source.integer(0, len(row) - 1)] = specials[source.integer(0, len(specials) - 1)]
    return row
