"""Double-double balls in numba: a value hi + lo with a radius that holds the true value.

Every function here takes and returns (h, l, e): the exact value lies within e of h + l, and
|l| <= u |h| with u = 2^-53. The local error of each operation is derived in docs/truth.md; the
constants below are those derivations rounded up generously. ETA covers what underflow can lose
in one operation. Radii are themselves computed in float64; their own rounding is covered by the
factor WIDEN that is applied once, where a radius is used.
"""

from __future__ import annotations

import math
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

U = 2.0**-53
U2 = 2.0**-106
ETA = 2.0**-1020
VISIBLE = 2.0**-900  # a remainder of a larger dividend cannot vanish by underflow
WIDEN = 1.0 + 2.0**-30
PI_LOW = 1.2246467991473532e-16  # pi - float64(pi), to 2^-106 pi


@intrinsic
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """A fused multiply-add: a*b + c rounded once."""
    signature = types.float64(types.float64, types.float64, types.float64)
    return signature, lambda context, builder, sig, args: builder.fma(*args)


@intrinsic
def bits_of(typing: Any, a: Any) -> Any:
    """The bit pattern of a float64 as an int64."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


_inline = numba.njit(error_model="numpy")


@intrinsic
def float_of(typing: Any, a: Any) -> Any:
    """The float64 with the bit pattern of an int64."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@_inline
def two_sum(a, b):
    """a + b exactly, as a rounded sum and its error (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@_inline
def to_odd(h, l):
    """h + l rounded to odd: where inexact, the neighbour of h + l whose last bit is 1."""
    b = bits_of(h)
    outward = (l > 0.0) == (h > 0.0)
    exact = (l == 0.0) | (l != l)  # two_sum of an overflow: h is infinite, l is NaN
    step = 0 if exact | ((b & 1) == 1) else (1 if outward else -1)
    return float_of(b + step)


@_inline
def add(ah, al, ae, bh, bl, be):
    """Local error at most 4 u^2 (|ah| + |bh|); none if neither operand has a low part."""
    s, t = two_sum(ah, bh)
    h, low = two_sum(s, t + (al + bl))
    slip = 0.0 if (al == 0.0) & (bl == 0.0) else 8.0 * U2 * (abs(ah) + abs(bh))
    return h, low, (ae + be) + slip


@_inline
def sub(ah, al, ae, bh, bl, be):
    """As add."""
    return add(ah, al, ae, -bh, -bl, be)


@_inline
def mul(ah, al, ae, bh, bl, be):
    """Local error at most 8 u^2 |ah bh| + ETA; ETA if neither has a low part; none at exact 0."""
    p = ah * bh
    h, low = two_sum(p, fma(ah, bh, -p) + (ah * bl + al * bh))
    slip = 0.0 if (al == 0.0) & (bl == 0.0) else 16.0 * U2 * abs(p)
    # an exact 0 makes an exact 0 of whatever is known to be finite
    zero = ((ah == 0.0) & (ae == 0.0) & (be < math.inf)) | (
        (bh == 0.0) & (be == 0.0) & (ae < math.inf)
    )
    zero = zero & (p == 0.0)
    e = 0.0 if zero else (abs(ah) * be + abs(bh) * ae) + (ae * be + slip + ETA)
    return h, low, e


@_inline
def div(ah, al, ae, bh, bl, be):
    """Local error at most 20 u^2 |ah/bh| + ETA/|b| + ETA; infinite if b's ball nears 0.

    None if exact numbers divide without a remainder, as the sum of a constant row by its length.
    """
    q = ah / bh
    remainder = fma(-q, bh, ah)
    r = (remainder + al) - q * bl
    h, low = two_sum(q, r / bh)
    exact = (al == 0.0) & (bl == 0.0) & (ae == 0.0) & (be == 0.0) & (remainder == 0.0)
    if exact & ((abs(ah) > VISIBLE) | (ah == 0.0)) & (bh != 0.0):
        return q, 0.0, 0.0
    room = abs(bh) * (1.0 - 2.0**-50) - WIDEN * be
    e = (ae + abs(q) * be + ETA) / room + (32.0 * U2 * abs(q) + ETA) if room > 0.0 else math.inf
    return h, low, e


@_inline
def sqrt(ah, al, ae):
    """Local error at most 16 u^2 sqrt(ah) + ETA/sqrt(ah); NaN if a's centre is not positive."""
    s = math.sqrt(ah)
    h, low = two_sum(s, (fma(-s, s, ah) + al) / (2.0 * s))
    return h, low, ((ae + ETA) / s + 32.0 * U2 * s + ETA)


@_inline
def magnitude_code(y, shift, offset, min_normal, magic, magic_bits, max_code, overflow_code):
    """The code of |y| rounded to nearest even, branch-free.

    ``shift`` = 52 - mantissa bits; ``offset`` aligns the exponent; below ``min_normal`` adding
    ``magic`` = 2^52 min_subnormal leaves the rounded code in the low bits.
    """
    a = abs(y)
    b = bits_of(a)
    normal = ((b + ((1 << (shift - 1)) - 1) + ((b >> shift) & 1)) >> shift) - offset
    code = (bits_of(a + magic) - magic_bits) if a < min_normal else normal
    return overflow_code if code > max_code else code
