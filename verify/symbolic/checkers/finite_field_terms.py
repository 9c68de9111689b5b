"""Evaluating the terms of a certificate with any arithmetic of arrays.

A term is evaluated to an array over those of its free indices on which it depends: a closed term
is computed once, whatever the binders around it. Derivatives are forward-mode: the value of a
term *under seeds* ((x, h), (y, g), ...), outermost first, is the coefficient of t_1 t_2 ... where
each seed in turn replaces its symbol by x + t h. One rule for each operation (the product rule
over subsets of the seeds) then covers nested derivatives, also along a direction that is itself
differentiated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Protocol, TypeAlias

from verify.symbolic.checkers.answer import CertificateError
from verify.symbolic.checkers.finite_field_reader import Scope, Theorem

Axes: TypeAlias = tuple[tuple[int, str], ...]  # (de Bruijn index, dimension), outermost first
Seeds: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Row:
    """Values over ``axes``, the last axis fastest; a closed value is one number."""

    axes: Axes
    data: list[Any]


class Elements(Protocol):
    """An arithmetic of lists of numbers: of one length, or one of them a single number."""

    def size(self, dim: str) -> int:
        """How many positions an axis over ``dim`` has."""

    def dim(self, dim: str) -> Any:
        """The dimension as a number."""

    def number(self, value: Fraction) -> Any:
        """A rational constant."""

    def symbol(self, name: str) -> list[Any]:
        """All elements of a symbol, the last index fastest."""

    def add(self, a: list[Any], b: list[Any]) -> list[Any]:
        """a + b."""

    def mul(self, a: list[Any], b: list[Any]) -> list[Any]:
        """a b."""

    def div(self, a: list[Any], b: list[Any], axes: Axes) -> list[Any]:
        """a / b; ``axes`` are those of b. Raises UndefinedPointError where b is 0."""

    def sqrt(self, a: list[Any], axes: Axes) -> list[Any]:
        """The root that stands for the positive one, or UndefinedPointError."""

    def sum(self, dim: str, data: list[Any]) -> list[Any]:
        """The sums over the last axis."""

    def summary(self, name: str, place: int, values: Sequence[Any]) -> Any:
        """What a function needs to know of its argument number ``place``."""

    def apply(self, name: str, element: tuple[int, ...], arguments: tuple[Any, ...]) -> Any:
        """An element of f(arguments), from the arguments' summaries."""


class UndefinedPointError(ArithmeticError):
    """A denominator is 0 or a radicand has no root at this point: another must be drawn."""


@cache
def splits(seeds: Seeds) -> tuple[tuple[Seeds, Seeds], ...]:
    """All ways to share the seeds between two factors."""
    if not seeds:
        return (((), ()),)
    *rest, last = seeds
    pairs = splits(tuple(rest))
    return (*((a, (*b, last)) for a, b in pairs), *(((*a, last), b) for a, b in pairs))


class Evaluator:
    """Values of a theorem's terms at one point; None stands for a derivative that is 0."""

    def __init__(self, theorem: Theorem, elements: Elements) -> None:
        self.theorem = theorem
        self.at = elements
        self.seen: dict[Any, Row | None] = {}
        self.shapes: set[tuple[str, ...]] = {()}  # of all arrays met
        self.root_dims: set[str] = set()  # that index a radicand
        self.function_dims: set[str] = set()  # that index an application

    def value(self, node: int, scope: Scope, seeds: Seeds = ()) -> Row | None:
        """The value of a term under binders over ``scope`` and under seeds."""
        node = self.theorem.first[node]
        free = self.theorem.free[node]
        if free and free[0] >= len(scope):
            raise CertificateError(f"term {node}: index {free[0]} is bound by nothing")
        key = (node, seeds, tuple(scope[-1 - k] for k in free))
        if key not in self.seen:
            row = self.compute(node, scope, seeds)
            if row is not None:
                self.shapes.add(tuple(dim for _, dim in row.axes))
            self.seen[key] = row
        return self.seen[key]

    def plain(self, node: int, scope: Scope) -> Row:
        """The value of a term without seeds, which is never None."""
        row = self.value(node, scope)
        return Row((), [self.at.number(Fraction(0))]) if row is None else row

    def compute(self, node: int, scope: Scope, seeds: Seeds) -> Row | None:
        term = self.theorem.terms[node]
        match term:
            case ["sym", name] | ["at", name, _]:
                return self.symbol(name, term[2] if term[0] == "at" else [], scope, seeds)
            case ["num", text]:
                return None if seeds else Row((), [self.at.number(Fraction(text))])
            case ["dim", dim]:
                return None if seeds else Row((), [self.at.dim(dim)])
            case ["diff", body, x, h]:
                return self.value(body, scope, (*seeds, (x, h)))
            case ["add", a, b]:
                return self.plus(self.value(a, scope, seeds), self.value(b, scope, seeds))
            case ["mul", a, b]:
                return self.leibniz(a, b, scope, splits(seeds))
            case ["sum", dim, body]:
                return self.sum(dim, self.value(body, (*scope, dim), seeds))
            case ["div", a, b]:
                below = self.plain(b, scope)
                rest = self.leibniz(node, b, scope, splits(seeds)[:-1])
                return self.over(self.minus(self.value(a, scope, seeds), rest), below)
            case ["sqrt", a]:
                return self.sqrt(node, a, scope, seeds)
            case ["fun", *_]:
                return self.chain(node, scope, seeds) if seeds else self.function(node, scope)
        raise CertificateError(f"term {node}: {term[0]!r} has no value of its own")

    def symbol(self, name: str, indices: Sequence[int], scope: Scope, seeds: Seeds) -> Row | None:
        dims = tuple(scope[-1 - k] for k in indices)
        if dims != self.theorem.symbols[name]:
            raise CertificateError(
                f"{name!r} is indexed by {dims}: expected {self.theorem.symbols[name]}"
            )
        if seeds:  # t_last occurs only where its own symbol is replaced
            x, h = seeds[-1]
            return self.symbol(h, indices, scope, seeds[:-1]) if name == x else None
        axes = tuple(sorted(set(zip(indices, dims, strict=True)), reverse=True))
        data = self.at.symbol(name)
        if tuple(k for k, _ in axes) == tuple(indices):
            return Row(axes, data)
        return Row(
            axes, [data[i] for i in self.offsets(tuple(zip(indices, dims, strict=True)), axes)]
        )

    def sqrt(self, node: int, a: int, scope: Scope, seeds: Seeds) -> Row | None:
        """s^2 = v: D_S s = (D_S v - sum of D_T s D_(S - T) s over T not empty, not S) / (2 s)."""
        radicand = self.value(a, scope, seeds)
        if not seeds:
            assert radicand is not None
            self.root_dims |= {dim for _, dim in radicand.axes}
            return Row(radicand.axes, self.at.sqrt(radicand.data, radicand.axes))
        rest = self.leibniz(node, node, scope, splits(seeds)[1:-1])
        twice = self.plus(self.plain(node, scope), self.plain(node, scope))
        assert twice is not None
        return self.over(self.minus(radicand, rest), twice)

    def chain(self, node: int, scope: Scope, seeds: Seeds) -> Row | None:
        """The innermost seed of f(a) gives f'(a) times its derivative of a."""
        _, name, _, args = self.theorem.terms[node]
        outer, last = seeds[:-1], seeds[-1]
        if not any(last[0] in self.theorem.mentions[a] for a in args):
            return None
        if len(args) != 1 or self.theorem.terms[args[0]][0] == "lam":
            raise CertificateError(
                f"term {node}: the derivative of {name!r} is outside the language: "
                "expected a function of one scalar argument"
            )
        pairs = [(a, (*b, last)) for a, b in splits(outer)]
        return self.leibniz(self.theorem.derivative(node), args[0], scope, pairs)

    def function(self, node: int, scope: Scope) -> Row:
        _, name, indices, args = self.theorem.terms[node]
        columns = [self.argument(name, place, arg, scope) for place, arg in enumerate(args)]
        chosen = {(k, scope[-1 - k]) for k in indices}
        axes = tuple(sorted(chosen.union(*(c.axes for c in columns)), reverse=True))
        self.function_dims |= {dim for _, dim in axes}
        spread = [self.expanded(column, axes) for column in columns]
        elements = [self.offsets(((k, scope[-1 - k]),), axes) for k in indices]
        positions = range(self.count(axes))
        data = [
            self.at.apply(name, tuple(e[p] for e in elements), tuple(s[p] for s in spread))
            for p in positions
        ]
        return Row(axes, data)

    def argument(self, name: str, place: int, arg: int, scope: Scope) -> Row:
        """The summaries of an argument, an array for each position of the indices outside it."""
        term = self.theorem.terms[arg]
        dims = tuple(term[1]) if term[0] == "lam" else ()
        row = self.plain(term[2] if term[0] == "lam" else arg, scope + dims)
        inner = tuple((len(dims) - 1 - j, dim) for j, dim in enumerate(dims))
        outer = tuple(axis for axis in row.axes if axis[0] >= len(dims))
        data, step = self.expanded(row, outer + inner), self.count(inner)
        chunks = (data[p : p + step] for p in range(0, len(data), step))
        axes = tuple((k - len(dims), dim) for k, dim in outer)
        return Row(axes, [self.at.summary(name, place, chunk) for chunk in chunks])

    # -- arrays

    def sum(self, dim: str, row: Row | None) -> Row | None:
        if row is None:
            return None
        axes = tuple((k - 1, d) for k, d in row.axes if k)
        if row.axes and row.axes[-1][0] == 0:
            return Row(axes, self.at.sum(dim, row.data))
        return Row(axes, self.at.mul([self.at.dim(dim)], row.data))

    def plus(self, a: Row | None, b: Row | None) -> Row | None:
        if a is None or b is None:
            return b if a is None else a
        axes, left, right = self.aligned(a, b)
        return Row(axes, self.at.add(left, right))

    def minus(self, a: Row | None, b: Row | None) -> Row | None:
        if b is None:
            return a
        return self.plus(a, Row(b.axes, self.at.mul([self.at.number(Fraction(-1))], b.data)))

    def over(self, a: Row | None, b: Row) -> Row | None:
        if a is None:
            return None
        axes, left, right = self.aligned(a, b)
        return Row(axes, self.at.div(left, right, b.axes))

    def leibniz(
        self, a: int, b: int, scope: Scope, pairs: Sequence[tuple[Seeds, Seeds]]
    ) -> Row | None:
        """The sum of D_T a D_U b over the pairs (T, U)."""
        total: Row | None = None
        for first, second in pairs:
            left = self.value(a, scope, first)
            right = None if left is None else self.value(b, scope, second)
            if left is not None and right is not None:
                axes, x, y = self.aligned(left, right)
                total = self.plus(total, Row(axes, self.at.mul(x, y)))
        return total

    def aligned(self, a: Row, b: Row) -> tuple[Axes, list[Any], list[Any]]:
        """Two arrays over common axes; a closed one stays a single number."""
        if a.axes == b.axes or not b.axes:
            return a.axes, a.data, b.data
        if not a.axes:
            return b.axes, a.data, b.data
        axes = tuple(sorted({*a.axes, *b.axes}, reverse=True))
        return axes, self.expanded(a, axes), self.expanded(b, axes)

    def expanded(self, row: Row, axes: Axes) -> list[Any]:
        if row.axes == axes:
            return row.data
        return [row.data[i] for i in self.offsets(row.axes, axes)]

    def offsets(self, of: Axes, axes: Axes) -> list[int]:
        """Where in an array over ``of`` (an index may repeat) each position of ``axes`` reads."""
        result, strides = [0], dict.fromkeys(axes, 0)
        for axis, stride in self.strides(of):
            strides[axis] += stride
        for axis in axes:
            steps = range(self.at.size(axis[1]))
            result = [i + strides[axis] * j for i in result for j in steps]
        return result

    def strides(self, axes: Axes) -> Iterator[tuple[tuple[int, str], int]]:
        stride = 1
        for axis in reversed(axes):
            yield axis, stride
            stride *= self.at.size(axis[1])

    def count(self, axes: Axes) -> int:
        """The number of positions of an array over ``axes``."""
        product = 1
        for _, dim in axes:
            product *= self.at.size(dim)
        return product
