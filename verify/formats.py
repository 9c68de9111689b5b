"""Number formats, float64 down to float4, and one correct rounding into each of them.

A format is a finite set of rational numbers plus a few codes that are not numbers. Every set here
is contained in float64, so a value *of* a format is carried as a Python float, exactly. A value
that is still to be rounded may be any `int`, `Fraction`, `float` or `DoubleDouble`; it is rounded
once, from its exact value: there is no intermediate float32, hence no double rounding.

Codes are the formats' bit patterns, right-aligned: sign, exponent field, mantissa field.
Sources: IEEE 754-2019 sections 3.3, 3.4, 4.3; OCP OFP8 1.0 (e4m3fn, e5m2); OCP Microscaling 1.0
(float6, float4, e8m0); Noune et al. 2022, arXiv:2206.02915 (fnuz).
"""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple


class FormatError(ValueError):
    """A name, code, value or policy that the format does not have. The message is one line."""


class Rounding(StrEnum):
    """Which neighbour a value between two values of the format goes to.

    NEAREST_EVEN sends a tie to the even significand. AWAY_FROM_ZERO is directed rounding (every
    inexact value moves outwards), not "nearest, ties away".
    """

    NEAREST_EVEN = "nearest_even"
    TOWARD_ZERO = "toward_zero"
    AWAY_FROM_ZERO = "away_from_zero"


class Overflow(StrEnum):
    """What stands for a value that is too large, once rounded, for the format.

    An infinite input counts as too large: SATURATE makes it the largest finite value as well.
    """

    SATURATE = "saturate"
    NAN = "nan"
    INFINITY = "infinity"


class Nan(StrEnum):
    """Which codes are NaN: the name says how a format gave up codes for it."""

    IEEE = "ieee"  # the all-ones exponent field with a mantissa other than 0
    ALL_ONES = "all_ones"  # the one magnitude whose bits are all ones: e4m3fn, e8m0fnu
    NEGATIVE_ZERO = "negative_zero"  # the code that would be -0: fnuz
    NONE = "none"  # every code is a number: float6, float4


class DoubleDouble(NamedTuple):
    """The exact sum `hi + lo`. Nothing is assumed of `lo`: it may be the larger, or not finite."""

    hi: float
    lo: float


Number = int | Fraction | float | DoubleDouble


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: `exponent_bits` and stored `mantissa_bits` under a `bias`.

    `has_zero`: exponent field 0 holds zero and the subnormals; otherwise it is one more binade.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: bool = True
    has_infinity: bool = True
    has_zero: bool = True
    nan: Nan = Nan.IEEE

    @property
    def bits(self) -> int:
        """Significant storage bits: 19 for tf32 and 6 for float6, however they are padded."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @property
    def precision(self) -> int:
        """Bits of a normal significand, p, the implicit one included."""
        return self.mantissa_bits + 1

    @cached_property
    def max_code(self) -> int:
        """Code of the largest finite value: what NaN and infinity leave of the magnitudes."""
        if self.nan is Nan.IEEE:
            return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1 - (self.nan is Nan.ALL_ONES)

    @cached_property
    def max_significand(self) -> int:
        """Significand of the largest finite value, as a `precision`-bit integer."""
        implicit = 1 << self.mantissa_bits
        return implicit | (self.max_code & (implicit - 1))

    @cached_property
    def emin(self) -> int:
        """Exponent of the smallest normal value, 2**emin."""
        return self.has_zero - self.bias

    @cached_property
    def emax(self) -> int:
        """Exponent of the binade of the largest finite value."""
        return (self.max_code >> self.mantissa_bits) - self.bias

    @cached_property
    def max_finite(self) -> Fraction:
        """The largest finite value."""
        return Fraction(self.max_significand) * Fraction(2) ** (self.emax - self.mantissa_bits)

    @cached_property
    def min_normal(self) -> Fraction:
        """The smallest positive normal value, 2**emin."""
        return Fraction(2) ** self.emin

    @cached_property
    def min_subnormal(self) -> Fraction:
        """The smallest positive value: `min_normal` itself in a format without subnormals."""
        return Fraction(2) ** (self.emin - self.mantissa_bits)

    @property
    def unit_roundoff(self) -> Fraction:
        """2**-p: to nearest, a normal result is within that part of the value [Higham, thm 2.2]."""
        return Fraction(1, 1 << self.precision)

    @property
    def eta(self) -> Fraction:
        """Half the smallest subnormal: to nearest, a subnormal result is within eta of the value.

        Void for e8m0, where everything below the smallest value rounds up to it.
        """
        return self.min_subnormal / 2

    @cached_property
    def overflow(self) -> Overflow:
        """Default policy: the loudest the format can express, so no overflow passes unseen."""
        if self.has_infinity:
            return Overflow.INFINITY
        return Overflow.SATURATE if self.nan is Nan.NONE else Overflow.NAN

    @cached_property
    def has_negative_zero(self) -> bool:
        """Whether -0 has a code; where it has none, negative values that vanish give +0."""
        return self.signed and self.has_zero and self.nan is not Nan.NEGATIVE_ZERO

    @cached_property
    def nan_code(self) -> int | None:
        """The code written for NaN (IEEE: the positive quiet one, no payload), None without NaN."""
        ieee = (self.max_code + 1) | (1 << self.mantissa_bits >> 1)
        all_ones, sign = self.max_code + 1, 1 << (self.bits - 1)
        codes = {Nan.IEEE: ieee, Nan.ALL_ONES: all_ones, Nan.NEGATIVE_ZERO: sign, Nan.NONE: None}
        return codes[self.nan]

    def codes(self) -> range:
        """Every code, 0 ... 2**bits - 1, for formats of at most 16 bits.

        Raises FormatError: the format is wider; a walk over its codes would not end.
        """
        if self.bits > 16:
            few = "expected at most 16 bits: write from_ordinal(fmt, n) for the values you need"
            raise FormatError(f"{self.name} has 2**{self.bits} codes; {few}")
        return range(1 << self.bits)

    def decode(self, code: int) -> float:
        """The value of a code, exactly; NaN for each code that is one.

        Raises FormatError: `code` is not in [0, 2**bits).
        """
        if not 0 <= code < 1 << self.bits:
            raise FormatError(
                f"code {code} is not a {self.name} code; expected 0 <= code < {1 << self.bits}: "
                f"write code & {(1 << self.bits) - 1:#x} to drop padding"
            )
        negative = bool(self.signed and code >> (self.bits - 1))
        if self.nan is Nan.NEGATIVE_ZERO and code == self.nan_code:
            return math.nan
        magnitude = _decode_magnitude(self, code - (negative << (self.bits - 1)))
        return -magnitude if negative else magnitude

    def encode(self, value: float) -> int:
        """The code of a value of the format; NaN gives `nan_code`. It never rounds.

        Raises FormatError: the format has no such value: round first, with `round_to`.
        """
        if math.isnan(value) and self.nan_code is not None:
            return self.nan_code
        negative = math.copysign(1.0, value) < 0.0
        if negative and not (self.signed if value else self.has_negative_zero):
            raise _not_a_value(self, value)
        return _magnitude_code(self, value) + (negative << (self.bits - 1))


def round_to(
    fmt: Format,
    value: Number,
    rounding: Rounding = Rounding.NEAREST_EVEN,
    overflow: Overflow | None = None,
) -> float:
    """`value`, taken exactly and rounded once, as the value of `fmt` it rounds to.

    A value overflows when it would round beyond `max_finite` were the exponent unbounded, so
    TOWARD_ZERO never overflows on a finite value; an infinite input overflows in every mode.
    `overflow=None` takes `fmt.overflow`. NaN stays NaN, zero keeps its sign where `fmt` has -0.

    e8m0 has neither sign nor zero: zero, -0 and negative values give NaN under every policy; a
    positive value below 2**-127 gives 2**-127 in every mode, there being nothing below; a tie
    goes up (of the significands 1 and 2 around it, 2 is the even one).

    Raises FormatError: `fmt` cannot express the policy, or `value` is NaN and `fmt` has none.
    Raises TypeError: `value` is of another type (a NumPy or torch scalar: pass `float(value)`).
    """
    round_integer = _ROUND_INTEGER.get(rounding)
    if round_integer is None:
        raise _not_one_of(Rounding, rounding)
    policy = fmt.overflow if overflow is None else _checked_policy(fmt, overflow)
    number = value if isinstance(value, float) else _as_float_or_fraction(value)
    if isinstance(number, float) and not math.isfinite(number):
        return _round_not_finite(fmt, number, policy)
    if not fmt.has_zero and number <= 0:
        return math.nan
    exponent = _binade(fmt, number)
    significand = round_integer(_scaled(number, fmt.mantissa_bits - exponent))
    if significand == 0:
        return _underflowed(fmt, number)
    if exponent >= fmt.emax and (exponent > fmt.emax or abs(significand) > fmt.max_significand):
        inwards = rounding == Rounding.TOWARD_ZERO
        return _overflowed(fmt, number, Overflow.SATURATE if inwards else policy)
    return math.ldexp(significand, exponent - fmt.mantissa_bits)


def ulp(fmt: Format, value: Number) -> Fraction:
    """Spacing of the values of `fmt` in the binade that holds |value|, a number, not a count.

    Below the smallest normal it is the smallest subnormal's; beyond the largest finite value, the
    top binade's. At a power of two it is the spacing above.

    Raises FormatError: `value` is infinite or NaN.
    """
    number = value if isinstance(value, float) else _as_float_or_fraction(value)
    if isinstance(number, float) and not math.isfinite(number):
        raise FormatError(f"{number} has no ulp in {fmt.name}; expected a finite number")
    return Fraction(2) ** (min(_binade(fmt, number), fmt.emax) - fmt.mantissa_bits)


def ordinal(fmt: Format, value: float) -> int:
    """Number of a value of `fmt` in increasing order: adjacent values differ by 1, +0 and -0 are 0.

    Infinity, where there is one, follows the largest finite value. In e8m0, 2**-127 is 0. Two
    results that lie n values apart have ordinals that differ by n.

    Raises FormatError: `fmt` has no such value, or `value` is NaN, which has no place in an order.
    """
    if value < 0.0 and not fmt.signed:
        raise _not_a_value(fmt, value)
    code = _magnitude_code(fmt, value)
    return -code if value < 0.0 else code


def from_ordinal(fmt: Format, number: int) -> float:
    """The value whose `ordinal` is `number`; +0.0 for 0.

    Raises FormatError: `number` is beyond the largest value (infinity included).
    """
    last = fmt.max_code + fmt.has_infinity
    first = -last if fmt.signed else 0
    if not first <= number <= last:
        raise FormatError(f"{number} is not an ordinal of {fmt.name}; expected {first} ... {last}")
    magnitude = _decode_magnitude(fmt, abs(number))
    return -magnitude if number < 0 else magnitude


def boundaries(fmt: Format, value: float) -> tuple[Fraction, Fraction, bool]:
    """The numbers that round to nearest to `value`: (lower, upper, whether both ends do too).

    At the largest finite value the outer end is the overflow threshold, max_finite + ulp/2; under
    SATURATE everything beyond it arrives there too. Zero's interval is that of both zeros.

    Raises FormatError: `value` is not a finite value of `fmt`, or `fmt` is e8m0, whose
    intervals are closed below and open above and have no lower end at 2**-127.
    """
    if not fmt.has_zero:
        raise FormatError(f"{fmt.name} has half-open rounding intervals: write round_to(fmt, ...)")
    significand, exponent = _significand(fmt, value)
    half = Fraction(2) ** (exponent - fmt.mantissa_bits) / 2
    starts_binade = significand == 1 << fmt.mantissa_bits and exponent > fmt.emin
    inner, outer = half / 2 if starts_binade else half, half
    below, above = (outer, inner) if value < 0.0 else (inner, outer)
    return Fraction(value) - below, Fraction(value) + above, significand % 2 == 0


def _away_from_zero(scaled: float | Fraction) -> int:
    return math.ceil(scaled) if scaled > 0 else math.floor(scaled)


# Each of these is exact on a float and on a Fraction alike, and `round` sends ties to even.
_ROUND_INTEGER: Final[Mapping[Rounding, Callable[[float | Fraction], int]]] = {
    Rounding.NEAREST_EVEN: round,
    Rounding.TOWARD_ZERO: math.trunc,
    Rounding.AWAY_FROM_ZERO: _away_from_zero,
}


def _as_float_or_fraction(value: Number) -> float | Fraction:
    """The exact value: a Fraction, or a float where a sum is not finite or one term is zero."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    if isinstance(value, DoubleDouble):
        hi, lo = value
        if hi == 0.0 or lo == 0.0 or not (math.isfinite(hi) and math.isfinite(lo)):
            return hi + lo
        return Fraction(hi) + Fraction(lo)
    raise TypeError(
        f"cannot round a {type(value).__name__}; expected int, Fraction, float or DoubleDouble: "
        f"write float(value) where that is exact"
    )


def _binade(fmt: Format, number: float | Fraction) -> int:
    """Exponent e with 2**e <= |number| < 2**(e+1), or `emin` if that is larger or `number` 0."""
    if not number:
        return fmt.emin
    if isinstance(number, float):
        exponent = math.frexp(number)[1] - 1
    else:
        exponent = _floor_log2(abs(number.numerator), number.denominator)
    return max(exponent, fmt.emin)


def _floor_log2(numerator: int, denominator: int) -> int:
    """Floor of log2(numerator / denominator), both positive."""
    guess = numerator.bit_length() - denominator.bit_length()
    if guess >= 0:
        return guess - (numerator < denominator << guess)
    return guess - (numerator << -guess < denominator)


def _scaled(number: float | Fraction, shift: int) -> float | Fraction:
    """`number` * 2**shift, exactly.

    The result is below 2**precision and only numbers above 1 shrink: no float over- or underflows.
    """
    if isinstance(number, float):
        return math.ldexp(number, shift)
    return number * (1 << shift) if shift >= 0 else number / (1 << -shift)


def _significand(fmt: Format, value: float) -> tuple[int, int]:
    """(k, e) with |value| = k * 2**(e - mantissa_bits) and e the binade, for a value of `fmt`."""
    if not math.isfinite(value):
        raise _not_a_value(fmt, value)
    exponent = _binade(fmt, value)
    scaled = math.ldexp(abs(value), fmt.mantissa_bits - exponent)
    too_large = exponent > fmt.emax or (exponent == fmt.emax and scaled > fmt.max_significand)
    if too_large or not scaled.is_integer() or not (scaled or fmt.has_zero):
        raise _not_a_value(fmt, value)
    return int(scaled), exponent


def _magnitude_code(fmt: Format, value: float) -> int:
    """The code of |value|, for a value of `fmt`: consecutive along the values, carries included."""
    if math.isinf(value) and fmt.has_infinity:
        return fmt.max_code + 1
    significand, exponent = _significand(fmt, value)
    first = 0 if fmt.has_zero else 1 << fmt.mantissa_bits
    return ((exponent - fmt.emin) << fmt.mantissa_bits) + significand - first


def _decode_magnitude(fmt: Format, code: int) -> float:
    if code > fmt.max_code:
        return math.inf if fmt.has_infinity and code == fmt.max_code + 1 else math.nan
    field, fraction = divmod(code, 1 << fmt.mantissa_bits)
    if fmt.has_zero and field == 0:
        return math.ldexp(fraction, fmt.emin - fmt.mantissa_bits)
    return math.ldexp(fraction + (1 << fmt.mantissa_bits), field - fmt.bias - fmt.mantissa_bits)


def _not_a_value(fmt: Format, value: float) -> FormatError:
    return FormatError(
        f"{value!r} is not a value of {fmt.name}; expected one it holds exactly: "
        f"write round_to({fmt.name}, {value!r}) to round"
    )


def _not_one_of(kind: type[StrEnum], given: str) -> FormatError:
    return FormatError(f"{given!r} is no {kind.__name__}; expected one of {', '.join(kind)}")


def _checked_policy(fmt: Format, overflow: Overflow) -> Overflow:
    """`overflow`, if `fmt` can express it; asked once a call, whatever the value."""
    choices = [Overflow.SATURATE]
    choices += [Overflow.NAN] * (fmt.nan is not Nan.NONE)
    choices += [Overflow.INFINITY] * fmt.has_infinity
    if overflow in choices:
        return Overflow(overflow)
    if overflow not in list(Overflow):
        raise _not_one_of(Overflow, overflow)
    raise FormatError(
        f"overflow {str(overflow)!r} asked of {fmt.name}, which has no {overflow}; "
        f"expected one of {', '.join(choices)}: write Overflow.{choices[-1].name}"
    )


def _round_not_finite(fmt: Format, number: float, policy: Overflow) -> float:
    if math.isinf(number):
        return _overflowed(fmt, number, policy)
    if fmt.nan is Nan.NONE:
        raise FormatError(f"NaN cannot be rounded to {fmt.name}, which has none; expected a number")
    return math.nan


def _overflowed(fmt: Format, number: float | Fraction, policy: Overflow) -> float:
    if policy is Overflow.NAN or (number < 0 and not fmt.signed):
        return math.nan
    magnitude = math.inf if policy is Overflow.INFINITY else float(fmt.max_finite)
    return -magnitude if number < 0 else magnitude


def _underflowed(fmt: Format, number: float | Fraction) -> float:
    if not fmt.has_zero:
        return float(fmt.min_normal)
    negative = math.copysign(1.0, number) < 0.0 if isinstance(number, float) else number < 0
    return -0.0 if negative and fmt.has_negative_zero else 0.0


float64: Final = Format("float64", exponent_bits=11, mantissa_bits=52, bias=1023)
float32: Final = Format("float32", exponent_bits=8, mantissa_bits=23, bias=127)
tf32: Final = Format("tf32", exponent_bits=8, mantissa_bits=10, bias=127)
bfloat16: Final = Format("bfloat16", exponent_bits=8, mantissa_bits=7, bias=127)
float16: Final = Format("float16", exponent_bits=5, mantissa_bits=10, bias=15)
float8_e5m2: Final = Format("float8_e5m2", exponent_bits=5, mantissa_bits=2, bias=15)
# IEEE-like, largest value 240; the "e4m3" of hardware papers is usually float8_e4m3fn, next.
float8_e4m3: Final = Format("float8_e4m3", exponent_bits=4, mantissa_bits=3, bias=7)


def _finite(name: str, exponent_bits: int, mantissa_bits: int, bias: int, nan: Nan) -> Format:
    return Format(name, exponent_bits, mantissa_bits, bias, has_infinity=False, nan=nan)


float8_e4m3fn: Final = _finite("float8_e4m3fn", 4, 3, 7, Nan.ALL_ONES)
float8_e4m3fnuz: Final = _finite("float8_e4m3fnuz", 4, 3, 8, Nan.NEGATIVE_ZERO)
float8_e5m2fnuz: Final = _finite("float8_e5m2fnuz", 5, 2, 16, Nan.NEGATIVE_ZERO)
float6_e2m3fn: Final = _finite("float6_e2m3fn", 2, 3, 1, Nan.NONE)
float6_e3m2fn: Final = _finite("float6_e3m2fn", 3, 2, 3, Nan.NONE)
float4_e2m1fn: Final = _finite("float4_e2m1fn", 2, 1, 1, Nan.NONE)
float8_e8m0fnu: Final = Format(
    "float8_e8m0fnu", 8, 0, 127, signed=False, has_infinity=False, has_zero=False, nan=Nan.ALL_ONES
)

# "e4m3" and "fp8" are no aliases on purpose: people mean different formats by them.
_SPELLINGS: Final[tuple[tuple[Format, str], ...]] = (
    (float64, "fp64 double"),
    (float32, "fp32 single"),
    (tf32, "tfloat32"),
    (bfloat16, "bf16"),
    (float16, "fp16 half"),
    (float8_e4m3fn, "e4m3fn"),
    (float8_e5m2, "e5m2"),
    (float8_e4m3fnuz, "e4m3fnuz"),
    (float8_e5m2fnuz, "e5m2fnuz"),
    (float8_e4m3, ""),
    (float8_e8m0fnu, "e8m0fnu float8_e8m0 e8m0"),
    (float6_e2m3fn, "e2m3fn float6_e2m3 e2m3"),
    (float6_e3m2fn, "e3m2fn float6_e3m2 e3m2"),
    (float4_e2m1fn, "e2m1fn float4_e2m1 e2m1"),
)

# Every format by its own name, the spelling of torch and ml_dtypes, widest first.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType({fmt.name: fmt for fmt, _ in _SPELLINGS})
_KNOWN: Final = {name: fmt for fmt, aliases in _SPELLINGS for name in (fmt.name, *aliases.split())}


def format_named(name: str) -> Format:
    """The format of that name or alias; case and a leading "torch." (as in `str(dtype)`) drop.

    Raises FormatError: there is none.
    """
    key = name.lower().removeprefix("torch.")
    if key in _KNOWN:
        return _KNOWN[key]
    nearest = difflib.get_close_matches(key, _KNOWN, n=1, cutoff=0.0)[0]
    raise FormatError(
        f"unknown format {name!r}; expected one of {', '.join(FORMATS)} or an alias: "
        f"write {nearest!r} if that is meant"
    )
