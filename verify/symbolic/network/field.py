"""Exact arithmetic mod p = 2^61 - c on arrays of words, and the norms' bodies read with it.

A product of two words has 122 bits, a sum of products more; both are kept exact in the machine's
own types. Products are taken in halves of 31 bits (`_product`), matrix products in limbs of 21 bits
held as float64: 2^11 products of two limbs sum to less than 2^53, so BLAS adds them without a
rounding in whatever order it likes (`matmul`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from operator import index
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]

BITS = 61
LARGEST_C = 2**20  # the sums of `_product` stay below 2^64 up to here
LIMB = 21
LIMBS = 3  # of a word: 3 * 21 >= 61
INNER = 2 ** (53 - 2 * LIMB)  # products of two limbs that sum to less than 2^53
WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
BLOCK = 2**16  # words handled at a time, so that the intermediate results stay in the cache
COLUMNS = 256  # of a matrix product, at a time
ONE_THREAD = 2**18  # multiplications that BLAS does in one thread: its threads wait by spinning


class OutsideFieldError(ValueError):
    """Something that has no value in GF(p)."""


class NotASquareError(OutsideFieldError):
    """A radicand without a root in GF(p)."""


@dataclass(frozen=True)
class Field:
    """GF(p) for a prime p = 2^61 - c with p = 3 mod 4, so that a root is a power.

    Raises OutsideFieldError for another c.
    """

    c: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.c < LARGEST_C or self.c % 4 != 1 or not _is_prime(self.prime):
            raise OutsideFieldError(
                f"c = {self.c}: expected 0 < c < 2^20, c = 1 mod 4 and 2^61 - c prime; write c = 1"
            )

    @property
    def prime(self) -> int:
        """p."""
        return int(2**BITS - self.c)

    def __str__(self) -> str:
        return f"2^{BITS}-{self.c}"

    def array(self, values: Any) -> FieldArray:
        """Integers of any size, nested in lists, mod p; raises TypeError for other numbers."""
        exact = np.array(values, dtype=object)
        words = [index(v) % self.prime for v in exact.ravel()]
        return FieldArray(self, np.array(words, np.uint64).reshape(exact.shape or 1))

    def reduced(self, words: Words) -> FieldArray:
        """Any words of 64 bits, mod p; of uniform words no value has probability above 2^-60."""
        return FieldArray(self, _reduced(words, self.c))

    def draw(self, rng: np.random.Generator, *shape: int) -> FieldArray:
        """Independent elements, each value of the field with the same probability."""
        return FieldArray(self, rng.integers(0, self.prime, shape, np.uint64))

    def has_root(self, value: int) -> bool:
        """Whether the integer is a non-zero square mod p."""
        return pow(value, (self.prime - 1) // 2, self.prime) == 1


def _is_prime(n: int) -> bool:
    """Whether n is prime, for 37 < n < 2^64 with n = 3 mod 4: (n - 1) / 2 is odd.

    No composite number below 3 * 10^23 passes the strong test to all WITNESSES (Sorenson and
    Webster, Mathematics of Computation 86 (2017), 985-1003).
    """
    return all(pow(a, (n - 1) // 2, n) in {1, n - 1} for a in WITNESSES)


def field_with_root(value: int) -> Field:
    """GF(2^61 - c) of the least c in which ``value`` is a non-zero square.

    >>> print(field_with_root(4), field_with_root(3))
    2^61-1 2^61-45
    """
    for c in count(1, 4):
        if _is_prime(2**BITS - c) and Field(c).has_root(value):
            return Field(c)
    raise AssertionError


@dataclass(frozen=True, eq=False, slots=True)
class FieldArray:
    """An array of elements of GF(p), with + - * / and @; ``words`` lie in [0, p)."""

    field: Field
    words: Words

    __array_ufunc__ = None  # an array of NumPy on the left leaves the operation to us

    @property
    def shape(self) -> tuple[int, ...]:
        """As of NumPy."""
        return self.words.shape

    @property
    def T(self) -> FieldArray:
        """The last two axes exchanged."""
        return FieldArray(self.field, np.swapaxes(self.words, -1, -2))

    def __getitem__(self, key: Any) -> FieldArray:
        return FieldArray(self.field, np.atleast_1d(self.words[key]))

    def __add__(self, other: Any) -> FieldArray:
        total = self.words + self._words_of(other)
        return FieldArray(self.field, np.minimum(total, total - np.uint64(self.field.prime)))

    def __sub__(self, other: Any) -> FieldArray:
        gap = self.words - self._words_of(other)  # below 0 it wraps to a word near 2^64
        return FieldArray(self.field, np.minimum(gap, gap + np.uint64(self.field.prime)))

    def __neg__(self) -> FieldArray:
        return self._lift(0) - self

    def __mul__(self, other: Any) -> FieldArray:
        return FieldArray(self.field, _in_blocks(self.words, self._words_of(other), self.field.c))

    def __truediv__(self, other: Any) -> FieldArray:
        """Raises ZeroDivisionError where a divisor is 0."""
        return self * self._lift(other).each(_inverse)

    def __radd__(self, other: Any) -> FieldArray:
        return self._lift(other) + self

    def __rsub__(self, other: Any) -> FieldArray:
        return self._lift(other) - self

    def __rmul__(self, other: Any) -> FieldArray:
        return self._lift(other) * self

    def __rtruediv__(self, other: Any) -> FieldArray:
        return self._lift(other) * self.each(_inverse)

    def __matmul__(self, other: FieldArray) -> FieldArray:
        return matmul(self, other)

    def reshape(self, *shape: int) -> FieldArray:
        """As of NumPy."""
        return FieldArray(self.field, self.words.reshape(shape))

    def sum(self, axis: int = -1) -> FieldArray:
        """The sum over an axis, which is kept with length 1; exact below 2^32 elements."""
        halves = (self.words & np.uint64(2**32 - 1), self.words >> np.uint64(32))
        low, high = (self.field.reduced(half.sum(axis=axis, keepdims=True)) for half in halves)
        return low + high * 2**32

    def each(self, function: Callable[[int, int], int]) -> FieldArray:
        """function(word, p) of each element, by Python's integers: for few elements."""
        values = [function(int(w), self.field.prime) for w in self.words.ravel()]
        return FieldArray(self.field, np.array(values, np.uint64).reshape(self.shape))

    def same(self, other: FieldArray) -> bool:
        """Whether shapes and all elements are equal."""
        return self.field == other.field and bool(np.array_equal(self.words, other.words))

    def _lift(self, value: Any) -> FieldArray:
        if isinstance(value, FieldArray):
            if value.field != self.field:
                raise OutsideFieldError(f"an element mod {value.field} met one mod {self.field}")
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return self.field.array(value)
        raise OutsideFieldError(f"{value!r} is no element of GF({self.field}): expected an int")

    def _words_of(self, value: Any) -> Words:
        return self._lift(value).words


def joined(*parts: FieldArray) -> FieldArray:
    """Arrays of one field, side by side along the last axis."""
    return FieldArray(parts[0].field, np.concatenate([part.words for part in parts], axis=-1))


# --- products ------------------------------------------------------------------------------------


def _reduced(words: Words, c: int) -> Words:
    """Any words of 64 bits, mod p: 2^61 = c."""
    folded = (words & np.uint64(2**BITS - 1)) + (words >> np.uint64(BITS)) * np.uint64(c)
    return np.minimum(folded, folded - np.uint64(2**BITS - c))


def _product(a: Words, b: Words, c: int) -> Words:
    """a b mod p for a, b < 2^61: a b = high 2^61 + low, and 2^61 = c.

    With halves of 31 bits, high < 2^61 + 2^32 and low < 2^61 + 2^62. Where c > 1 the upper bits
    of high are folded once more, so that nothing reaches 2^64 for c < 2^20.
    """
    half, mask = np.uint64(31), np.uint64(2**31 - 1)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    middle = a1 * b0 + a0 * b1
    high = (a1 * b1 << np.uint64(1)) + (middle >> np.uint64(30))
    low = ((middle & np.uint64(2**30 - 1)) << half) + a0 * b0
    if c == 1:
        return _reduced(high + low, 1)
    upper = (high >> np.uint64(40)) * np.uint64(c)
    low += (high & np.uint64(2**40 - 1)) * np.uint64(c)
    low += (upper >> half - np.uint64(10)) * np.uint64(c)
    low += (upper & np.uint64(2**21 - 1)) << np.uint64(40)
    return _reduced(low, c)


def _in_blocks(a: Words, b: Words, c: int) -> Words:
    """The element-wise product, some rows at a time."""
    if max(a.size, b.size) <= BLOCK or min(a.ndim, b.ndim) < 2:
        return _product(a, b, c)
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, np.uint64)
    rows = max(1, BLOCK * len(a) // a.size)
    for start in range(0, len(a), rows):
        block = slice(start, start + rows)
        out[block] = _product(a[block], b[block], c)
    return out


def _limb(words: Words, place: int) -> NDArray[np.float64]:
    shifted = words >> np.uint64(LIMB * place) if place else words
    return (shifted & np.uint64(2**LIMB - 1)).astype(np.float64)


def matmul(a: FieldArray, b: FieldArray) -> FieldArray:
    """The matrix product over the last two axes, as of NumPy; a: (..., m, n), b: (..., n, k).

    Raises OutsideFieldError for operands of different fields and for n = 0.
    """
    n, k = b.shape[-2:]
    if a.field != b.field or n == 0:
        raise OutsideFieldError(
            f"{a.shape} mod {a.field} @ {b.shape} mod {b.field}: expected one field, n >= 1"
        )
    columns = []
    for left in range(0, k, COLUMNS):
        total = a.field.array(0)
        for top in range(0, n, INNER):
            inner = slice(top, top + INNER)
            block = b.words[..., inner, left : left + COLUMNS]
            total = total + _matmul(a.field, a.words[..., inner], block)
        columns.append(total)
    return joined(*columns)


def _matmul(field: Field, a: Words, b: Words) -> FieldArray:
    """A product of inner length <= 2^11: of each pair of limbs a product in float64.

    The limbs of ``a``, which has few rows here, are stacked, so that each limb of ``b`` is made and
    read once, some rows at a time.
    """
    m, n = a.shape[-2:]
    stacked = np.concatenate([_limb(a, i) for i in range(LIMBS)], axis=-2)
    sums: list[Any] = [0] * LIMBS
    rows = max(1, ONE_THREAD // (LIMBS * m * b.shape[-1]))
    for start in range(0, n, rows):
        part = slice(start, start + rows)
        for j in range(LIMBS):
            sums[j] = sums[j] + stacked[..., part] @ _limb(b[..., part, :], j)
    shifts: list[Any] = [np.uint64(0)] * (2 * LIMBS - 1)
    for j, partial in enumerate(sums):
        for i in range(LIMBS):
            words = partial[..., i * m : (i + 1) * m, :].astype(np.uint64)
            shifts[i + j] = shifts[i + j] + words  # three terms at most, < 2^55
    total = field.array(0)
    for place, words in enumerate(shifts):
        total = total + field.reduced(words) * 2 ** (LIMB * place)
    return total


# --- the reading ---------------------------------------------------------------------------------


def _inverse(word: int, p: int) -> int:
    if word == 0:
        raise ZeroDivisionError("division by 0 in GF(p)")
    return pow(word, -1, p)


def _root(word: int, p: int) -> int:
    root = pow(word, (p + 1) // 4, p)
    if root * root % p != word:
        raise NotASquareError(f"{word} is no square mod {p}")
    return root


def canonical_root(value: FieldArray) -> FieldArray:
    """Of the two roots of each element the one that is itself a square; few elements.

    Raises NotASquareError where an element has no root.
    """
    return value.each(_root)


@dataclass(frozen=True)
class FieldArithmetic:
    """The arithmetic that reads a formula over GF(p) (see `verify.formula.Arithmetic`).

    Rows are arrays (..., d), numbers of a row arrays (..., 1). ``root`` stands for the square root.
    What is no algebraic function has no value here: OutsideFieldError.
    """

    field: Field
    root: Callable[[FieldArray], FieldArray] = canonical_root

    def number(self, value: int | Fraction) -> FieldArray:
        exact = Fraction(value)
        return self.field.array(exact.numerator) / self.field.array(exact.denominator)

    def length(self, row: FieldArray) -> FieldArray:
        return self.field.array(row.shape[-1])

    def sum(self, row: FieldArray) -> FieldArray:
        return row.sum()

    def sum_rows(self, rows: FieldArray) -> FieldArray:
        """The sum over all axes but the last."""
        return rows.reshape(-1, rows.shape[-1]).sum(axis=0)[0]

    def sqrt(self, value: FieldArray) -> FieldArray:
        return self.root(value)

    def fold(self, leaves: tuple[Any, ...], merge: Callable[..., tuple[Any, ...]]) -> Any:
        raise OutsideFieldError(f"a fold ({merge!r}) is not read over GF({self.field})")

    def cast(self, value: FieldArray, point: str) -> FieldArray:
        return value

    def tanh(self, value: FieldArray) -> FieldArray:
        raise OutsideFieldError(f"tanh has no value in GF({self.field})")

    def erf(self, value: FieldArray) -> FieldArray:
        raise OutsideFieldError(f"erf has no value in GF({self.field})")

    def exp(self, value: FieldArray) -> FieldArray:
        raise OutsideFieldError(f"exp has no value in GF({self.field})")

    def pi(self) -> FieldArray:
        raise OutsideFieldError(f"pi has no value in GF({self.field})")
