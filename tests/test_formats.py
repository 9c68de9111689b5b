"""Formats against NumPy, ml_dtypes, torch and a plain oracle: a search in the list of all values.

The oracle knows nothing of exponents and significands. It reads a format's values off the other
libraries' codes, sorts them, and finds a number's two neighbours by bisection.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.formats import (
    FORMATS,
    DoubleDouble,
    Format,
    FormatError,
    Nan,
    Overflow,
    Rounding,
    bfloat16,
    boundaries,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    format_named,
    from_ordinal,
    ordinal,
    round_to,
    tf32,
    ulp,
)

try:
    import torch
except ImportError:
    torch = None

DOCUMENT = Path(__file__).parent.parent / "docs" / "formats.md"
SMALL = [fmt for fmt in FORMATS.values() if fmt.bits <= 16]
TINY = [fmt for fmt in SMALL if fmt.bits <= 8]
SIGNED = [fmt for fmt in FORMATS.values() if fmt.signed]
NOT_IN_TORCH = {"float8_e4m3", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"}  # or no cast
NUDGE = Fraction(1, 3 << 200)  # below every spacing tested, and not dyadic


def by_name(formats: Iterable[Format]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fmt", formats, ids=lambda fmt: fmt.name)


def dtype_of(fmt: Format) -> np.dtype:
    return np.dtype(getattr(np, fmt.name, None) or getattr(ml_dtypes, fmt.name))


def library_values(fmt: Format) -> np.ndarray:
    """The value of every code, in code order, as NumPy and ml_dtypes decode it."""
    codes = np.arange(1 << fmt.bits, dtype=f"uint{8 * dtype_of(fmt).itemsize}")
    with np.errstate(invalid="ignore"):  # signalling NaN
        return codes.view(dtype_of(fmt)).astype(np.float64)


def cast(values: np.ndarray, fmt: Format) -> np.ndarray:
    with np.errstate(all="ignore"):  # overflow is the subject, not an accident
        return values.astype(dtype_of(fmt)).astype(np.float64)


def same(a: float, b: float) -> bool:
    """Equal as results: NaN is NaN, and the two zeros differ."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)


def skip_without_measured_torch() -> None:
    if torch is None:
        pytest.skip("torch is not installed")
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13):
        pytest.skip(f"its casts are documented from 2.13 on; this is {torch.__version__}")


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    equal = (a == b) & (np.signbit(a) == np.signbit(b))
    return ~(equal | (np.isnan(a) & np.isnan(b)))


# --------------------------------------------------------------------------------- the plain oracle

UNIT = 1 << 200  # all magnitudes of the small formats are whole multiples of 1 / UNIT


@dataclass(frozen=True)
class Oracle:
    """Non-negative finite magnitudes in order, times UNIT; the last one stands for overflow."""

    magnitudes: list[int]
    floats: list[float]
    even: list[bool]
    negative_zero: bool

    def expected(self, value: Fraction) -> dict[Rounding, float]:
        scaled, overflow = abs(value) * UNIT, len(self.magnitudes) - 1
        if self.magnitudes[0] and value <= 0:  # e8m0
            return dict.fromkeys(Rounding, math.nan)
        low = bisect_right(self.magnitudes, scaled.numerator // scaled.denominator) - 1
        if low < 0 or low == overflow or scaled == self.magnitudes[low]:
            nearest, inner, outer = [max(low, 0)] * 3
        else:
            twice, middle = 2 * scaled, self.magnitudes[low] + self.magnitudes[low + 1]
            up = not self.even[low] if twice == middle else twice > middle
            nearest, inner, outer = low + up, low, low + 1
        indices = nearest, min(inner, overflow - 1), outer
        return {
            mode: self.signed(index, value < 0)
            for mode, index in zip(Rounding, indices, strict=True)
        }

    def signed(self, index: int, negative: bool) -> float:
        result = self.floats[index]
        return -result if negative and (result or self.negative_zero) else result


@cache
def oracle(fmt: Format) -> Oracle:
    values = library_values(fmt)
    code_of = {Fraction(v): code for code, v in enumerate(values.tolist()) if math.isfinite(v)}
    magnitudes = sorted(v for v in code_of if v >= 0)
    # e8m0 has one significand, 1, and no even one: a tie goes up to the 2 of its binade.
    even = [magnitudes[0] == 0 and code_of[v] % 2 == 0 for v in magnitudes]
    top = magnitudes[-1]
    beyond = 2 * top - magnitudes[-2] if magnitudes[0] == 0 else 2 * top
    symbols = values[~np.isfinite(values)]
    overflowed = float(np.nan if len(symbols) else top)
    return Oracle(
        [int(v * UNIT) for v in [*magnitudes, beyond]],
        [*map(float, magnitudes), math.inf if np.inf in symbols else overflowed],
        [*even, False],
        bool(np.signbit(values[values == 0.0]).any()),
    )


Round = Callable[[Format, Fraction, Rounding], float]


def mistakes(fmt: Format, values: Iterable[Fraction], round_function: Round = round_to) -> list:
    """Every (value, mode, got, expected) on which a rounding function and the oracle differ."""
    return [
        (value, mode, got, expected)
        for value in values
        for mode, expected in oracle(fmt).expected(value).items()
        if not same(got := round_function(fmt, value, mode), expected)
    ]


def midpoints(fmt: Format) -> list[Fraction]:
    magnitudes = oracle(fmt).magnitudes
    return [Fraction(a + b, 2 * UNIT) for a, b in pairwise(magnitudes)]


def around(points: Iterable[Fraction]) -> list[Fraction]:
    return [point + nudge for point in points for nudge in (-NUDGE, 0, NUDGE)]


# ----------------------------------------------------------------------------- parameters and codes


def parameters(fmt: Format) -> str:
    """A row of the first table of docs/formats.md."""
    numbers = (fmt.max_finite, fmt.min_normal, fmt.min_subnormal)
    spelt = " | ".join(f"{float(number):.6g}" for number in numbers)
    layout = (
        f"{fmt.bits} | {fmt.exponent_bits} + {fmt.mantissa_bits} | {fmt.bias} | {fmt.precision}"
    )
    infinity = "yes" if fmt.has_infinity else "no"
    return f"| {fmt.name} | {layout} | {spelt} | {infinity} | {fmt.nan} | {fmt.overflow} |"


@by_name([fmt for fmt in FORMATS.values() if fmt is not tf32])
def test_parameters_agree_with_finfo(fmt):
    info = ml_dtypes.finfo(dtype_of(fmt))
    assert fmt.max_finite == Fraction(float(info.max))
    assert fmt.min_normal == Fraction(float(info.smallest_normal))
    assert fmt.min_subnormal == Fraction(float(info.smallest_subnormal))
    assert fmt.unit_roundoff == Fraction(float(info.eps)) / 2
    assert fmt.eta == fmt.min_subnormal / 2
    assert (fmt.precision, fmt.bits) == (info.nmant + 1, info.bits)


def test_tf32_has_the_range_of_float32_and_the_precision_of_float16():
    assert (tf32.bits, tf32.emin, tf32.emax) == (19, float32.emin, float32.emax)
    assert tf32.unit_roundoff == float16.unit_roundoff
    assert tf32.max_finite == (2 - Fraction(1, 1 << 10)) * 2**127


@by_name(SMALL)
def test_every_code_decodes_as_in_the_libraries_and_round_trips(fmt):
    wanted = library_values(fmt)
    decoded = [fmt.decode(code) for code in fmt.codes()]
    assert not differ(np.array(decoded), wanted).any()
    for code, value in enumerate(decoded):
        number = math.isnan(value)
        assert fmt.encode(value) == (fmt.nan_code if number else code)
        if not number:
            assert same(round_to(fmt, value), value)
            assert fmt.encode(round_to(fmt, value)) == code


@by_name([fmt for fmt in SMALL if fmt.nan is not Nan.NONE])
def test_nan_is_written_as_the_libraries_write_it(fmt):
    nan = np.array([np.nan], np.float32).astype(dtype_of(fmt))
    assert fmt.nan_code == nan.view(f"uint{8 * nan.itemsize}")[0]
    assert math.isnan(round_to(fmt, math.nan))
    assert fmt.encode(-math.nan) == fmt.nan_code


@by_name([float32, float64])
def test_codes_of_the_wide_formats_are_their_bit_patterns(fmt):
    info = ml_dtypes.finfo(dtype_of(fmt))
    for value in (0.0, -0.0, 1.0, -1.5, info.max, info.smallest_normal, math.inf, -math.inf):
        bits = int(np.asarray(value, dtype_of(fmt)).view(f"uint{fmt.bits}"))
        assert fmt.encode(float(value)) == bits
        assert same(fmt.decode(bits), float(value))


@by_name(SMALL)
def test_ordinals_count_the_values_in_order(fmt):
    values = sorted({v for v in library_values(fmt).tolist() if not math.isnan(v)})
    ordinals = [ordinal(fmt, value) for value in values]
    assert ordinals == list(range(ordinals[0], ordinals[0] + len(values)))
    assert [from_ordinal(fmt, number) for number in ordinals] == values
    assert ordinal(fmt, 0.0 if fmt.has_zero else 2.0**-127) == 0


# ----------------------------------------------------------------------------------------- rounding


@by_name(SMALL)
def test_every_value_and_midpoint_exact_and_nudged_rounds_as_the_oracle_says(fmt):
    values = [Fraction(m, UNIT) for m in oracle(fmt).magnitudes]
    if fmt in TINY:
        points = around(values + midpoints(fmt))
        assert mistakes(fmt, points + [-point for point in points]) == []
    else:  # sixteen bits: one sign for each midpoint, in turn, and the values exactly
        signed = [point * (-1) ** i for i, point in enumerate(midpoints(fmt))]
        assert mistakes(fmt, around(signed)) == []
        assert mistakes(fmt, around(values[::8] + values[-8:])) == []


@by_name([fmt for fmt in TINY if fmt.signed])
def test_boundaries_are_the_midpoints_and_their_ends_round_as_told(fmt):
    for value in {v for v in library_values(fmt).tolist() if math.isfinite(v)}:
        lower, upper, closed = boundaries(fmt, value)
        inside = round_to(fmt, lower + NUDGE), round_to(fmt, upper - NUDGE)
        assert inside == (value, value)
        for end, outside in ((lower, lower - NUDGE), (upper, upper + NUDGE)):
            saturated = abs(end) > fmt.max_finite and fmt.overflow is Overflow.SATURATE
            assert (round_to(fmt, end) == value) == (closed or saturated)
            assert (round_to(fmt, outside) == value) == saturated


@by_name(SIGNED)
def test_boundaries_at_zero_at_a_power_of_two_and_at_the_overflow_threshold(fmt):
    assert boundaries(fmt, 0.0) == boundaries(fmt, -0.0) == (-fmt.eta, fmt.eta, True)
    _, threshold, closed = boundaries(fmt, float(fmt.max_finite))
    assert threshold == fmt.max_finite + ulp(fmt, fmt.max_finite) / 2
    assert closed == (fmt is float8_e4m3fn)  # 448 is 1.75 * 2**8: its significand 14 is even
    if fmt is not float4_e2m1fn:
        spacing = fmt.unit_roundoff
        assert boundaries(fmt, 2.0) == (2 - spacing, 2 + 2 * spacing, True)
        assert boundaries(fmt, -2.0) == (-2 - 2 * spacing, -2 + spacing, True)


@by_name(TINY)
def test_ulp_is_the_distance_to_the_next_value_outwards(fmt):
    magnitudes = [Fraction(m, UNIT) for m in oracle(fmt).magnitudes]
    for value, following in pairwise(magnitudes):
        assert ulp(fmt, value) == ulp(fmt, float(value)) == following - value
        assert ulp(fmt, -(value + following) / 2) == following - value
    assert ulp(fmt, 10**400) == ulp(fmt, fmt.max_finite)


def structured_mantissas(bits: int) -> list[int]:
    """float32 mantissas at, just below and just above each midpoint of `bits` stored bits.

    Subnormal results have fewer bits, hence all smaller counts too; 64 others lie anywhere.
    """
    near = {
        (step << (23 - kept)) + half + nudge
        for kept in range(bits + 1)
        for step in range(1 << kept)
        for half in (0, 1 << (22 - kept))
        for nudge in (-1, 0, 1)
    }
    scattered = {(2_654_435_761 * k) % (1 << 23) for k in range(1, 65)}
    return sorted({m for m in near | scattered if 0 <= m < 1 << 23})


def structured_float32(bits: int) -> np.ndarray:
    """Those mantissas under every exponent field, subnormal to largest, and both signs."""
    mantissas = np.array(structured_mantissas(bits), np.uint32)
    if bits > 8:  # of ten bits' 6,000 mantissas, an even sample
        mantissas = mantissas[:: len(mantissas) // 800]
    fields = np.arange(255, dtype=np.uint32) << 23
    positive = (fields[:, None] | mantissas).ravel()
    return np.concatenate([positive, positive | np.uint32(1 << 31)]).view(np.float32)


def test_the_structured_set_is_large_enough():
    parts = [structured_float32(fmt.mantissa_bits) for fmt in SMALL]
    distinct = np.unique(np.concatenate(parts).view(np.uint32))
    print(f"{sum(map(len, parts)):,} roundings of {len(distinct):,} distinct float32 values")
    assert len(distinct) >= 500_000


@by_name(SMALL)
def test_float32_rounds_as_in_ml_dtypes(fmt):
    """No exception is made for overflow: the default policies are ml_dtypes' behaviour."""
    values = np.append(structured_float32(fmt.mantissa_bits), np.float32([np.inf, -np.inf]))
    rounded = np.array([round_to(fmt, value) for value in values.tolist()])
    wrong = differ(rounded, cast(values, fmt)) & ~low_in_e8m0(values, fmt)
    assert not wrong.any(), values[wrong][:5]


def low_in_e8m0(values: np.ndarray, fmt: Format) -> np.ndarray:
    """Where ml_dtypes and torch round up to 2**-126 what is nearer to 2**-127."""
    inside = (values > 2.0**-127) & (values < 1.5 * 2.0**-127)
    return inside & (fmt is float8_e8m0fnu)


def test_e8m0_rounds_to_nearest_in_its_lowest_binade_and_ml_dtypes_up():
    values = structured_float32(0)
    values = values[low_in_e8m0(values, float8_e8m0fnu)]
    assert len(values) > 10
    assert {round_to(float8_e8m0fnu, value) for value in values.tolist()} == {2.0**-127}
    upstream = set(cast(values, float8_e8m0fnu).tolist())
    print(f"ml_dtypes {ml_dtypes.__version__} gives {upstream}")
    assert upstream in ({2.0**-126}, {2.0**-127})  # the latter once it rounds to nearest here


@by_name([fmt for fmt in SMALL if fmt.name not in NOT_IN_TORCH])
def test_torch_casts_differ_from_ml_dtypes_only_as_documented(fmt):
    skip_without_measured_torch()
    values = structured_float32(fmt.mantissa_bits)
    by_torch = torch.from_numpy(values).to(getattr(torch, fmt.name)).to(torch.float64).numpy()
    allowed = low_in_e8m0(values, fmt)
    if fmt is float8_e4m3fn:  # saturates
        allowed = np.abs(values) > 464
        assert not differ(by_torch, np.copysign(448.0, values))[allowed].any()
    elif fmt is float8_e8m0fnu:  # takes the magnitude, and has 2**-127 for zero
        allowed |= values <= 0
    wrong = differ(by_torch, cast(values, fmt)) & ~allowed
    assert not wrong.any(), values[wrong][:5]


def test_float64_to_bfloat16_is_rounded_once():
    """Through float32, 1 + 2**-8 + 2**-40 becomes the tie 1 + 2**-8 and goes down."""
    value = 1 + 2.0**-8 + 2.0**-40
    assert round_to(bfloat16, value) == 1.0078125
    assert round_to(bfloat16, DoubleDouble(1 + 2.0**-8, 2.0**-300)) == 1.0078125
    upstream = float(np.array([value]).astype(ml_dtypes.bfloat16)[0])
    print(f"ml_dtypes {ml_dtypes.__version__} gives {upstream}")
    assert upstream in {1.0, 1.0078125}  # 1.0 until ml_dtypes rounds float64 once


# ------------------------------------------------------------------------------- the overflow table

INPUTS = (448.0, 464.0, 465.0, 1000.0, 61440.0, math.inf, -math.inf, math.nan, -2.0, 0.0, -0.0)


def spell(value: float) -> str:
    return "2^-127" if value == 2.0**-127 else f"{value:g}"


def ours(fmt: Format) -> list[str]:
    return [
        "error" if math.isnan(value) and fmt.nan is Nan.NONE else spell(round_to(fmt, value))
        for value in INPUTS
    ]


def of_ml_dtypes(fmt: Format) -> list[str]:
    return [spell(value) for value in cast(np.array(INPUTS, np.float32), fmt).tolist()]


def of_torch(fmt: Format) -> list[str]:
    rounded = torch.tensor(INPUTS, dtype=torch.float32).to(getattr(torch, fmt.name))
    return [spell(value) for value in rounded.to(torch.float64).tolist()]


def row(fmt: Format, who: str, cells: list[str]) -> str:
    return f"| {fmt.name} | {who} | {' | '.join(cells)} |"


def documented(name: str, who: str) -> list[str]:
    return re.findall(rf"^\| {name} \| {who} \|.*$", OVERFLOW_TABLE, re.MULTILINE)


OVERFLOW_TABLE = """
| format | by | 448 | 464 | 465 | 1000 | 61440 | inf | -inf | nan | -2 | 0 | -0 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| float8_e4m3fn | round_to | 448 | 448 | nan | nan | nan | nan | nan | nan | -2 | 0 | -0 |
| float8_e4m3fn | ml_dtypes | 448 | 448 | nan | nan | nan | nan | nan | nan | -2 | 0 | -0 |
| float8_e4m3fn | torch | 448 | 448 | 448 | 448 | 448 | 448 | -448 | nan | -2 | 0 | -0 |
| float8_e5m2 | round_to | 448 | 448 | 448 | 1024 | inf | inf | -inf | nan | -2 | 0 | -0 |
| float8_e5m2 | ml_dtypes | 448 | 448 | 448 | 1024 | inf | inf | -inf | nan | -2 | 0 | -0 |
| float8_e5m2 | torch | 448 | 448 | 448 | 1024 | inf | inf | -inf | nan | -2 | 0 | -0 |
| float8_e4m3fnuz | round_to | nan | nan | nan | nan | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e4m3fnuz | ml_dtypes | nan | nan | nan | nan | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e4m3fnuz | torch | nan | nan | nan | nan | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e5m2fnuz | round_to | 448 | 448 | 448 | 1024 | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e5m2fnuz | ml_dtypes | 448 | 448 | 448 | 1024 | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e5m2fnuz | torch | 448 | 448 | 448 | 1024 | nan | nan | nan | nan | -2 | 0 | 0 |
| float8_e4m3 | round_to | inf | inf | inf | inf | inf | inf | -inf | nan | -2 | 0 | -0 |
| float8_e4m3 | ml_dtypes | inf | inf | inf | inf | inf | inf | -inf | nan | -2 | 0 | -0 |
| float8_e8m0fnu | round_to | 512 | 512 | 512 | 1024 | 65536 | nan | nan | nan | nan | nan | nan |
| float8_e8m0fnu | ml_dtypes | 512 | 512 | 512 | 1024 | 65536 | nan | nan | nan | nan | nan | nan |
| float8_e8m0fnu | torch | 512 | 512 | 512 | 1024 | 65536 | nan | nan | nan | 2 | 2^-127 | 2^-127 |
| float6_e2m3fn | round_to | 7.5 | 7.5 | 7.5 | 7.5 | 7.5 | 7.5 | -7.5 | error | -2 | 0 | -0 |
| float6_e2m3fn | ml_dtypes | 7.5 | 7.5 | 7.5 | 7.5 | 7.5 | 7.5 | -7.5 | -0 | -2 | 0 | -0 |
| float6_e3m2fn | round_to | 28 | 28 | 28 | 28 | 28 | 28 | -28 | error | -2 | 0 | -0 |
| float6_e3m2fn | ml_dtypes | 28 | 28 | 28 | 28 | 28 | 28 | -28 | -0 | -2 | 0 | -0 |
| float4_e2m1fn | round_to | 6 | 6 | 6 | 6 | 6 | 6 | -6 | error | -2 | 0 | -0 |
| float4_e2m1fn | ml_dtypes | 6 | 6 | 6 | 6 | 6 | 6 | -6 | -0 | -2 | 0 | -0 |
"""


@by_name(TINY)
def test_overflow_table_of_round_to_and_ml_dtypes(fmt):
    rows = row(fmt, "round_to", ours(fmt)), row(fmt, "ml_dtypes", of_ml_dtypes(fmt))
    print("\n".join(rows))
    assert [rows[0]] == documented(fmt.name, "round_to")
    assert [rows[1]] == documented(fmt.name, "ml_dtypes")


@by_name([fmt for fmt in TINY if documented(fmt.name, "torch")])
def test_overflow_table_of_torch(fmt):
    skip_without_measured_torch()
    printed = row(fmt, "torch", of_torch(fmt))
    print(printed)
    assert [printed] == documented(fmt.name, "torch")


def test_the_tables_of_the_document_are_the_measured_ones():
    if not DOCUMENT.exists():
        pytest.skip("docs/formats.md is not part of this distribution")
    text = DOCUMENT.read_text(encoding="utf-8")
    assert OVERFLOW_TABLE.strip() in text
    assert "\n".join(parameters(fmt) for fmt in FORMATS.values()) in text


POLICY_RESULTS = {Overflow.SATURATE: 448.0, Overflow.NAN: math.nan}


@pytest.mark.parametrize(("policy", "result"), POLICY_RESULTS.items())
@pytest.mark.parametrize("value", [464.5, 1000, Fraction(10) ** 400, math.inf])
def test_an_overflow_policy_overrides_the_default(policy, result, value):
    assert same(round_to(float8_e4m3fn, value, overflow=policy), result)
    assert same(round_to(float8_e4m3fn, -value, overflow=policy), -result)
    assert round_to(float8_e4m3fn, 464, overflow=policy) == 448.0


def test_rounding_toward_zero_never_overflows_on_a_finite_value():
    assert round_to(float8_e4m3fn, 10**9, Rounding.TOWARD_ZERO) == 448.0
    assert round_to(float16, -(10**9), Rounding.TOWARD_ZERO) == -65504.0
    assert round_to(float16, math.inf, Rounding.TOWARD_ZERO) == math.inf
    assert round_to(float16, 65504.5, Rounding.AWAY_FROM_ZERO) == math.inf


@pytest.mark.parametrize("policy", [Overflow.NAN, Overflow.SATURATE])
def test_e8m0_has_no_sign_no_zero_and_a_floor(policy):
    for value in (0, -0.0, -2, -math.inf, math.nan, DoubleDouble(1.0, -1.0)):
        assert math.isnan(round_to(float8_e8m0fnu, value, overflow=policy))
    for mode in Rounding:
        assert round_to(float8_e8m0fnu, Fraction(1, 10**400), mode, policy) == 2.0**-127
    assert [round_to(float8_e8m0fnu, value) for value in (1.5, 3, 6)] == [2.0, 4.0, 8.0]


# --------------------------------------------------------------------------------- laws of round_to

finite = st.floats(allow_nan=False, allow_infinity=False)
formats = st.sampled_from(list(FORMATS.values()))
modes = st.sampled_from(list(Rounding))
double_doubles = st.builds(DoubleDouble, finite, finite)
# Close to a value or a midpoint of float32 and narrower: where one rounding and two part ways.
near_ties = st.builds(
    lambda k, exponent, lo: DoubleDouble(math.ldexp(k, exponent), math.ldexp(lo, exponent - 60)),
    st.integers(-(1 << 25), 1 << 25),
    st.integers(-180, 130),
    st.floats(-1.0, 1.0),
)


def exactly(value: DoubleDouble) -> Fraction:
    return Fraction(value.hi) + Fraction(value.lo)


def as_float64(value: Fraction) -> float:
    """Python's own correctly rounded division, with overflow to infinity."""
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(formats, double_doubles | near_ties, modes)
def test_a_double_double_rounds_as_its_exact_sum(fmt, value, mode):
    exact = exactly(value)
    if exact:
        assert same(round_to(fmt, value, mode), round_to(fmt, exact, mode))
    if fmt in SMALL and exact:
        assert mistakes(fmt, [exact]) == []


@given(double_doubles | near_ties)
def test_float64_and_float32_round_as_python_and_numpy_do(value):
    exact = exactly(value)
    assert round_to(float64, value) == as_float64(exact)
    assert round_to(float64, exact) == as_float64(exact)
    with np.errstate(over="ignore"):
        assert round_to(float32, value.hi) == float(np.float32(value.hi))


@given(double_doubles | near_ties)
def test_tf32_rounds_as_float32_arithmetic_on_bits(value):
    bits = int(np.float32(round_to(float32, value, Rounding.TOWARD_ZERO)).view(np.uint32))
    truncated = float(np.uint32(bits & ~0x1FFF).view(np.float32))
    assert same(round_to(tf32, value, Rounding.TOWARD_ZERO), truncated)


def test_a_double_double_that_is_not_finite_or_is_zero_is_its_float_sum():
    assert round_to(float16, DoubleDouble(math.inf, 1.0)) == math.inf
    assert math.isnan(round_to(float16, DoubleDouble(math.inf, -math.inf)))
    assert round_to(float64, DoubleDouble(1.5e308, 1.5e308), Rounding.TOWARD_ZERO) < math.inf
    assert same(round_to(float16, DoubleDouble(-0.0, -0.0)), -0.0)
    assert same(round_to(float16, DoubleDouble(-0.0, 0.0)), 0.0)
    assert same(round_to(float16, DoubleDouble(1.0, -1.0)), 0.0)


@given(formats, finite, modes)
def test_a_float_rounds_as_its_fraction(fmt, value, mode):
    if value:
        assert same(round_to(fmt, value, mode), round_to(fmt, Fraction(value), mode))


@given(st.sampled_from(SIGNED), double_doubles | near_ties, modes)
def test_rounding_is_odd_and_idempotent(fmt, value, mode):
    rounded = round_to(fmt, value, mode, Overflow.SATURATE)
    mirrored = round_to(fmt, DoubleDouble(-value.hi, -value.lo), mode, Overflow.SATURATE)
    assert mirrored == -rounded
    assert same(round_to(fmt, rounded, mode), rounded)
    assert round_to(fmt, fmt.decode(fmt.encode(rounded))) == rounded


@given(formats, double_doubles | near_ties, double_doubles | near_ties, modes)
def test_rounding_is_monotone(fmt, one, other, mode):
    small, large = sorted([abs(exactly(one)), abs(exactly(other))])
    if small:
        low, high = (round_to(fmt, v, mode, Overflow.SATURATE) for v in (small, large))
        assert low <= high


@given(st.sampled_from(SIGNED), double_doubles | near_ties)
def test_directed_modes_bracket_within_one_ulp_and_nearest_takes_the_nearer(fmt, value):
    exact = max(-fmt.max_finite, min(exactly(value), fmt.max_finite))
    inner, outer = (
        round_to(fmt, exact, mode) for mode in (Rounding.TOWARD_ZERO, Rounding.AWAY_FROM_ZERO)
    )
    nearest = round_to(fmt, exact)
    assert abs(Fraction(inner)) <= abs(exact) <= abs(Fraction(outer))
    assert abs(ordinal(fmt, outer) - ordinal(fmt, inner)) == (Fraction(inner) != exact)
    assert nearest in {inner, outer}
    error = abs(Fraction(nearest) - exact)
    assert error == min(abs(Fraction(inner) - exact), abs(Fraction(outer) - exact))
    assert error <= min(ulp(fmt, exact) / 2, fmt.unit_roundoff * abs(exact) + fmt.eta)
    lower, upper, _ = boundaries(fmt, nearest)
    assert lower <= exact <= upper


# ------------------------------------------------------------------- planted defects, and the words


def through_float32(fmt, value, mode):
    return round_to(fmt, round_to(float32, value, mode), mode)


def truncating(fmt, value, _mode):
    return round_to(fmt, value, Rounding.TOWARD_ZERO)


def ties_away(fmt, value, mode):
    if mode is not Rounding.NEAREST_EVEN:
        return round_to(fmt, value, mode)
    return round_to(fmt, value + NUDGE * (1 if value > 0 else -1), mode)


def flushing_subnormals(fmt, value, mode):
    rounded = round_to(fmt, value, mode)
    return rounded if abs(rounded) >= fmt.min_normal else 0.0 * rounded


@pytest.mark.parametrize("defect", [through_float32, truncating, ties_away, flushing_subnormals])
@by_name([float16, bfloat16, float8_e4m3fn, float4_e2m1fn])
def test_the_oracle_catches_a_planted_defect(fmt, defect):
    points = around(midpoints(fmt)[:64])
    assert mistakes(fmt, points) == []
    assert len(mistakes(fmt, points, defect)) >= 1


@pytest.mark.parametrize(
    ("alias", "name"),
    {
        "bf16": "bfloat16",
        "FP16": "float16",
        "fp32": "float32",
        "fp64": "float64",
        "e4m3fn": "float8_e4m3fn",
        "torch.float8_e4m3fn": "float8_e4m3fn",
        "e8m0fnu": "float8_e8m0fnu",
        "float6_e2m3": "float6_e2m3fn",
        "float6_e3m2": "float6_e3m2fn",
        "float4_e2m1": "float4_e2m1fn",
    }.items(),
)
def test_aliases(alias, name):
    assert format_named(alias) is FORMATS[name]


@by_name(FORMATS.values())
def test_every_format_is_found_by_its_own_name(fmt):
    assert format_named(fmt.name) is FORMATS[fmt.name] is fmt


NAMES = ", ".join(FORMATS)
MESSAGES = {
    "unknown name": (
        lambda: format_named("floot16"),
        (
            f"unknown format 'floot16'; expected one of {NAMES} or an alias: "
            "write 'float16' if that is meant"
        ),
    ),
    "ambiguous name": (
        lambda: format_named("e4m3"),
        (
            f"unknown format 'e4m3'; expected one of {NAMES} or an alias: "
            "write 'e4m3fn' if that is meant"
        ),
    ),
    "no infinity": (
        lambda: round_to(float8_e4m3fn, 1.0, overflow=Overflow.INFINITY),
        (
            "overflow 'infinity' asked of float8_e4m3fn, which has no infinity; "
            "expected one of saturate, nan: write Overflow.NAN"
        ),
    ),
    "no NaN": (
        lambda: round_to(float4_e2m1fn, 1.0, overflow=Overflow.NAN),
        (
            "overflow 'nan' asked of float4_e2m1fn, which has no nan; "
            "expected one of saturate: write Overflow.SATURATE"
        ),
    ),
    "no such policy": (
        lambda: round_to(float16, 1.0, overflow="wrap"),
        "'wrap' is no Overflow; expected one of saturate, nan, infinity",
    ),
    "no such mode": (
        lambda: round_to(float16, 1.0, "up"),
        "'up' is no Rounding; expected one of nearest_even, toward_zero, away_from_zero",
    ),
    "NaN into float4": (
        lambda: round_to(float4_e2m1fn, math.nan),
        "NaN cannot be rounded to float4_e2m1fn, which has none; expected a number",
    ),
    "no such value": (
        lambda: bfloat16.encode(0.1),
        (
            "0.1 is not a value of bfloat16; expected one it holds exactly: "
            "write round_to(bfloat16, 0.1) to round"
        ),
    ),
    "no such code": (
        lambda: float4_e2m1fn.decode(16),
        (
            "code 16 is not a float4_e2m1fn code; expected 0 <= code < 16: "
            "write code & 0xf to drop padding"
        ),
    ),
    "too many codes": (
        float32.codes,
        (
            "float32 has 2**32 codes; expected at most 16 bits: "
            "write from_ordinal(fmt, n) for the values you need"
        ),
    ),
    "no such ordinal": (
        lambda: from_ordinal(float4_e2m1fn, 8),
        "8 is not an ordinal of float4_e2m1fn; expected -7 ... 7",
    ),
    "ulp of infinity": (
        lambda: ulp(float16, math.inf),
        "inf has no ulp in float16; expected a finite number",
    ),
    "boundaries in e8m0": (
        lambda: boundaries(float8_e8m0fnu, 1.0),
        "float8_e8m0fnu has half-open rounding intervals: write round_to(fmt, ...)",
    ),
}


@pytest.mark.parametrize(("call", "message"), MESSAGES.values(), ids=MESSAGES)
def test_an_error_says_what_came_what_was_expected_and_what_to_write(call, message):
    with pytest.raises(FormatError, match=f"^{re.escape(message)}$"):
        call()


def test_a_number_of_a_foreign_type_is_refused():
    with pytest.raises(TypeError, match=r"cannot round a float32; expected .*: write float\(value"):
        round_to(float16, np.float32(1.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("float8_e4m3fnuz", -0.0),
        ("float8_e4m3fn", math.inf),
        ("float8_e4m3fn", 480.0),
        ("float8_e8m0fnu", -2.0),
        ("float8_e8m0fnu", 0.0),
        ("float4_e2m1fn", math.nan),
        ("float16", 2.0**-25),
    ],
)
def test_encode_refuses_what_the_format_does_not_hold(name, value):
    with pytest.raises(FormatError, match="is not a value of"):
        FORMATS[name].encode(value)


@pytest.mark.parametrize("value", [math.nan, 0.1])
def test_ordinal_refuses_what_has_no_place_in_the_order(value):
    with pytest.raises(FormatError, match="is not a value of float16"):
        ordinal(float16, value)
