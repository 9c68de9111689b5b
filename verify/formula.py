"""A norm is written once, as a function over an *arithmetic*; everything else is a reading of it.

The body of a formula uses Python's ``+ - * /`` on the values it is given and asks its
arithmetic for the rest: constants, the length of a row, sums, roots, casts. Read with exact
numbers the body is the truth; read with rounded numbers it is a contract that a kernel may
keep; read as a tree it is compiled, printed, or proved.

Conventions of every body: ``x`` is a row (the last axis, d elements); ``weight`` and ``bias``
are features, one number per element of a row; ``eps`` is a number. Constants enter through
``ar.number`` and are integers or fractions, never floats: a float literal would silently
choose a format.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

# NumPy arrays, mpf, Arb balls, surds and tree nodes share + - * / but no checkable protocol.
Value: TypeAlias = Any


class Arithmetic(Protocol):
    """What a reading supplies besides ``+ - * /`` on its values.

    ``cast`` marks a *named point* at which kernels are known to round: the identity in exact
    readings, a rounding in machine ones if the contract at hand places one there.
    """

    def number(self, value: int | Fraction) -> Value:
        """An exact rational constant."""

    def length(self, row: Value) -> Value:
        """The number d of elements of a row."""

    def sum(self, row: Value) -> Value:
        """The sum over a row (last axis, kept)."""

    def sum_rows(self, rows: Value) -> Value:
        """The sum over all rows that share a parameter: one value per feature."""

    def sqrt(self, value: Value) -> Value:
        """The square root, element-wise."""

    def fold(self, leaves: tuple[Value, ...], merge: Callable[..., tuple[Value, ...]]) -> Any:
        """Combine the states of a row's elements into one, in the reading's own order.

        ``leaves`` are the components of each element's state; ``merge(*left, *right)`` gives
        the components of the union and must be associative over the reals.
        """

    def cast(self, value: Value, point: str) -> Value:
        """Round ``value`` to whatever the contract says about ``point``; exactly: identity."""

    def tanh(self, value: Value) -> Value:
        """Hyperbolic tangent, element-wise."""

    def erf(self, value: Value) -> Value:
        """Error function, element-wise."""

    def exp(self, value: Value) -> Value:
        """Exponential, element-wise."""

    def pi(self) -> Value:
        """The constant pi."""


class Kind(StrEnum):
    """What a parameter or an output varies with."""

    ROW = "row"  # (rows, d): one number per element of each row
    FEATURE = "feature"  # (d,): one number per element, shared by all rows
    ROW_NUMBER = "row_number"  # (rows, 1): one number per row
    NUMBER = "number"  # one number


class Layout(StrEnum):
    """How a tensor becomes rows; the body never knows."""

    LAST_AXIS = "last_axis"  # x: (..., d), features (d,)
    GROUPS = "groups"  # x: (N, C, ...), a row is one group of channels of one sample
    HEADS = "heads"  # x: (..., H, d), features (d,) or (H, d)


@dataclass(frozen=True)
class Parameter:
    """One argument of a formula: its name, what it varies with, and its neutral value."""

    name: str
    kind: Kind
    default: int | None = None  # the exact value that stands for an absent weight (1) or bias (0)


@dataclass(frozen=True)
class Output:
    """One result of a formula."""

    name: str
    kind: Kind = Kind.ROW


@dataclass(frozen=True)
class Formula:
    """A function of the field, written once.

    ``body(ar, *arguments)`` takes the parameters in order and returns one value per output (a
    bare value when there is one). ``domain`` says where the formula is defined over the reals,
    ``citation`` who defined it. ``definition`` names the formula that an algorithm computes by
    another route, ``differentiates`` the one whose gradient it is.
    """

    id: str
    body: Callable[..., Any] = field(compare=False)
    parameters: tuple[Parameter, ...]
    outputs: tuple[Output, ...]
    domain: str
    citation: str
    layout: Layout = Layout.LAST_AXIS
    definition: str | None = None
    differentiates: str | None = None

    def __call__(self, ar: Arithmetic, **arguments: Value) -> tuple[Value, ...]:
        """Read the body with ``ar``; one value per output, in order."""
        values = [arguments[p.name] for p in self.parameters]
        result = self.body(ar, *values)
        return result if isinstance(result, tuple) else (result,)

    @property
    def statement(self) -> str:
        """What the body computes, as its docstring says."""
        return inspect.getdoc(self.body) or ""

    def parameter(self, name: str) -> Parameter | None:
        """The parameter of that name, or None."""
        return next((p for p in self.parameters if p.name == name), None)


@dataclass(frozen=True)
class Identity:
    """Two formulas that are one function over the reals, on the domain stated.

    ``left`` and ``right`` are bodies over the same ``parameters``; an identity is a claim to be
    proved (symbolically, for every d) and tried (exactly, on numbers).
    """

    id: str
    left: Callable[..., Any] = field(compare=False)
    right: Callable[..., Any] = field(compare=False)
    parameters: tuple[Parameter, ...]
    domain: str
    citation: str


class UnknownFormulaError(ValueError):
    """No formula has that name."""


def lookup(name: str, formulas: Mapping[str, Formula]) -> Formula:
    """The formula called ``name``; raises UnknownFormulaError in one clear line."""
    if name in formulas:
        return formulas[name]
    near = difflib.get_close_matches(name, formulas, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    known = ", ".join(sorted(formulas))
    raise UnknownFormulaError(f"unknown formula '{name}': expected one of {known}{hint}")
