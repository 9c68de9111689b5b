"""Balls into formats: arrays of (h, l, e) rounded once, with a mask of what stays open.

The vectorised test is coarse and safe: an element is closed only if both ends of its ball,
widened to float64 numbers, have the same code. What it leaves open is decided from the exact
rational ends, one element at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import ml_dtypes
import numba
import numpy as np
from numpy.typing import NDArray

from verify.formats import FORMATS, Format, Overflow, round_to
from verify.numeric.balls import WIDEN, U, magnitude_code

Array = NDArray[Any]

# ml_dtypes and NumPy types that hold each format; tf32 lives in float32.
DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype({"tf32": "float32"}.get(name) or getattr(ml_dtypes, name, None) or name)
    for name in FORMATS
}


def format_of(dtype: np.dtype[Any]) -> str | None:
    """The name of the format that a NumPy dtype holds, or None."""
    names = {d: n for n, d in DTYPES.items() if n != "tf32"}
    return names.get(np.dtype(dtype))


@dataclass(frozen=True)
class CodeSpec:
    """What `balls.magnitude_code` needs to know of a format."""

    integers: tuple[int, int, int, int, int, int, int]
    floats: tuple[float, float]

    @property
    def argument(self) -> tuple[tuple[int, ...], tuple[float, float]]:
        """In the form that compiled code takes."""
        return self.integers, self.floats


@lru_cache(maxsize=64)
def code_spec(fmt: Format, overflow: Overflow) -> CodeSpec | None:
    """The fast coder of a format of at most 24 bits of precision; None for those without zero."""
    if not fmt.has_zero or fmt.precision > 24:
        return None
    m = fmt.mantissa_bits
    magic = float(fmt.min_subnormal) * 2.0**52
    policy = {
        Overflow.SATURATE: fmt.max_code,
        Overflow.INFINITY: fmt.max_code + 1,
        Overflow.NAN: fmt.nan_code,
    }[overflow]
    sign = 1 << (fmt.bits - 1)
    offset = (1023 - fmt.bias) << m
    magic_bits = int(np.float64(magic).view(np.int64))
    assert policy is not None  # formats.py refuses a policy that the format cannot express
    zero_sign = sign if fmt.has_negative_zero else 0
    integers = (52 - m, offset, magic_bits, fmt.max_code, policy, sign, zero_sign)
    return CodeSpec(integers, (float(fmt.min_normal), magic))


@numba.njit(error_model="numpy")
def _close_codes(h: Array, e: Array, codes: Array, open_mask: Array, spec: Any) -> int:
    shift, offset, magic_bits, max_code, overflow_code, sign_bit, zero_sign = spec[0]
    min_normal, magic = spec[1]
    count = 0
    for i in range(h.size):
        wide = (e[i] + 2.0 * U * abs(h[i])) * WIDEN if e[i] != 0.0 else 0.0
        lo, hi = h[i] - wide, h[i] + wide
        below = magnitude_code(
            lo, shift, offset, min_normal, magic, magic_bits, max_code, overflow_code
        )
        code = magnitude_code(
            hi, shift, offset, min_normal, magic, magic_bits, max_code, overflow_code
        )
        one_side = (lo >= 0.0) | (hi <= 0.0) | (code == 0)
        closed = (below == code) & one_side & (lo <= hi)
        open_mask[i] = not closed
        count += not closed
        sign = sign_bit if code != 0 else zero_sign
        codes[i] = code | (sign if hi < 0.0 else 0)
    return count


@numba.njit(error_model="numpy")
def _close_float32(h: Array, e: Array, out: Array, open_mask: Array) -> int:
    count = 0
    for i in range(h.size):
        wide = (e[i] + 2.0 * U * abs(h[i])) * WIDEN if e[i] != 0.0 else 0.0
        closed = np.float32(h[i] - wide) == np.float32(h[i] + wide)
        open_mask[i] = not closed
        count += not closed
        out[i] = h[i]
    return count


@numba.njit(error_model="numpy")
def _close_float64(h: Array, l: Array, e: Array, out: Array, open_mask: Array) -> int:
    count = 0
    for i in range(h.size):
        wide = (e[i] + 2.0 * U * abs(l[i])) * WIDEN if e[i] != 0.0 else 0.0
        lo, hi = h[i] + (l[i] - wide), h[i] + (l[i] + wide)
        closed = (lo == hi) & (abs(hi) < np.inf)  # what overflows is the policy's to say
        open_mask[i] = not closed
        count += not closed
        out[i] = hi
    return count


@dataclass(frozen=True)
class Rounder:
    """Rounds balls into one format under one overflow policy."""

    fmt: Format
    overflow: Overflow

    @property
    def spec(self) -> CodeSpec | None:
        """How codes are made, or None for formats that only the exact rounding serves."""
        return code_spec(self.fmt, self.overflow)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What holds the rounded values."""
        return DTYPES[self.fmt.name]

    @property
    def filters(self) -> bool:
        """Whether float64 balls can decide: for formats narrower than float64 with a zero."""
        return self.spec is not None

    def close(self, h: Array, e: Array, out: Array, open_mask: Array) -> int:
        """Round float64 balls (flat arrays) into ``out``; mark and count what stays open."""
        if self.fmt.name == "float32" and self.overflow is Overflow.INFINITY:
            return int(_close_float32(h, e, out, open_mask))
        if self.spec is None:
            open_mask[:] = True
            return h.size
        if self.fmt.name != "tf32":  # codes are what the dtype stores
            codes = out.view(f"u{out.itemsize}")
            return int(_close_codes(h, e, codes, open_mask, self.spec.argument))
        codes = np.empty(h.size, np.uint32)
        count = _close_codes(h, e, codes, open_mask, self.spec.argument)
        out[:] = (codes << np.uint32(13)).view(np.float32)  # 19 bits, left-aligned
        return int(count)

    def round_balls(self, h: Array, l: Array, e: Array) -> tuple[Array, Array]:
        """Double-double balls rounded to nearest even, and the mask of what stays open."""
        shape = np.broadcast_shapes(h.shape, l.shape, e.shape)
        h, l, e = (np.broadcast_to(a, shape).ravel() for a in (h, l, e))
        out, open_mask = np.zeros(h.size, self.dtype), np.empty(h.size, np.bool_)
        if self.fmt.name == "float64":
            _close_float64(h, l, e, out, open_mask)
        else:
            self.close(h, e + np.abs(l), out, open_mask)
        for i in np.flatnonzero(open_mask):
            value = self.round_interval(ball_ends(h[i], l[i], e[i]))
            if value is not None:
                out[i], open_mask[i] = value, False
        return out.reshape(shape), open_mask.reshape(shape)

    def round_interval(self, ends: tuple[Fraction, Fraction] | None) -> float | None:
        """What every number of the interval rounds to, or None if they do not agree."""
        if ends is None:
            return None
        low, high = (self.round(end) for end in ends)
        both_nan = low != low and high != high and (ends[0] > 0) == (ends[1] > 0)
        return high if low == high or both_nan else None

    def round(self, value: Fraction | float) -> float:
        """One number, rounded once."""
        return round_to(self.fmt, value, overflow=self.overflow)


def ball_ends(h: float, l: float, e: float) -> tuple[Fraction, Fraction] | None:
    """The exact rational ends of a ball; None if it is not finite."""
    if not np.isfinite([h, l, e]).all():
        return None
    middle, radius = Fraction(float(h)) + Fraction(float(l)), Fraction(float(e)) * Fraction(WIDEN)
    return middle - radius, middle + radius
