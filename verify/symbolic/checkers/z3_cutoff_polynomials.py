"""Polynomials and quotients of z3's terms: the normal form, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

Expr: TypeAlias = Any  # z3.ArithRef; z3 is imported where it is used
MAX_STEPS = 1_000_000  # of z3's simplifier, for one normal form: some seconds


class UndefinedError(ArithmeticError):
    """A denominator is 0, or a radicand not > 0, for all values of the symbols."""


class TooLargeError(ArithmeticError):
    """A polynomial has more monomials than z3 is allowed to write out."""


class UnknownValueError(ArithmeticError):
    """A value that has to be rational is not known."""


class Quotient(NamedTuple):
    """num / (product of factors with powers); factors are known by the id of their z3 term."""

    num: Expr
    den: Mapping[int, int]


class Root(NamedTuple):
    """A variable s > 0 with s^2 = radicand; ``reduces`` if s^2 may be rewritten to it."""

    var: Expr
    radicand: Quotient
    reduces: bool


class Call(NamedTuple):
    """A variable for f(arguments)."""

    var: Expr
    arguments: tuple[Quotient, ...]


def expanded(e: Expr) -> Expr:
    """The polynomial as a sum of monomials: its normal form. Raises TooLargeError."""
    import z3

    try:
        return z3.simplify(e, som=True, som_blowup=2**31 - 1, max_steps=MAX_STEPS)
    except z3.Z3Exception:
        raise TooLargeError(f"a normal form is out of reach of {MAX_STEPS} steps") from None


def as_fraction(e: Expr) -> Fraction | None:
    """The value of a numeral, None for other terms."""
    import z3

    return (
        Fraction(e.numerator_as_long(), e.denominator_as_long())
        if z3.is_rational_value(e)
        else None
    )


def monomials(e: Expr) -> list[tuple[Expr, list[Expr]]]:
    """(monomial, its factors) for each monomial of an expanded polynomial."""
    import z3

    result = []
    for monomial in e.children() if z3.is_add(e) else [e]:
        factors, waiting = [], [monomial]
        while waiting:
            f = waiting.pop()
            if z3.is_mul(f):
                waiting += f.children()
            elif z3.is_app_of(f, z3.Z3_OP_POWER):
                factors += [f.arg(0)] * f.arg(1).as_long()
            else:
                factors.append(f)
        result.append((monomial, factors))
    return result
