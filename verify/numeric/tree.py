"""The body of a formula as an operation tree: the reading that everything else is compiled from.

`trace` runs a body once with symbols. Nodes are hash-consed, so a shared subexpression is one
node, and each node knows whether it varies along rows, along the elements of a row, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from verify.formula import Formula, Kind


@dataclass(frozen=True)
class Node:
    """One operation: ``op``, its arguments, and for leaves a ``payload`` (name or constant)."""

    op: str
    args: tuple[Node, ...]
    payload: Any
    by_row: bool
    by_element: bool
    level: int  # how many row reductions lie below: 0 for an input
    tree: Tree = field(repr=False, compare=False)
    number: int = 0

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other

    def __add__(self, other: Any) -> Node:
        return self.tree.node("add", self, self.tree.lift(other))

    def __radd__(self, other: Any) -> Node:
        return self.tree.node("add", self.tree.lift(other), self)

    def __sub__(self, other: Any) -> Node:
        return self.tree.node("sub", self, self.tree.lift(other))

    def __mul__(self, other: Any) -> Node:
        return self.tree.node("mul", self, self.tree.lift(other))

    def __truediv__(self, other: Any) -> Node:
        return self.tree.node("div", self, self.tree.lift(other))

    @property
    def is_nonnegative(self) -> bool:
        """Whether the value is at least 0 for every input, seen from the operations alone."""
        if self.op == "mul" and self.args[0] is self.args[1]:
            return True
        if self.op == "number":
            return bool(self.payload >= 0)
        if self.op in ("sqrt", "length", "exp"):
            return True
        return self.op in ("add", "mul", "div", "sum") and all(a.is_nonnegative for a in self.args)


@dataclass
class Tree:
    """An arithmetic whose values are nodes."""

    known: dict[tuple[Any, ...], Node] = field(default_factory=dict)

    def node(self, op: str, *args: Node, payload: Any = None) -> Node:
        """The node for ``op(args)``, made once."""
        key = (op, payload, *(a.number for a in args))
        if key not in self.known:
            self.known[key] = self._new(op, args, payload)
        return self.known[key]

    def _new(self, op: str, args: tuple[Node, ...], payload: Any) -> Node:
        reduces = op in ("sum", "fold")
        return Node(
            op,
            args,
            payload,
            by_row=op != "sum_rows" and any(a.by_row for a in args),
            by_element=not reduces and op != "fold_part" and any(a.by_element for a in args),
            level=max((a.level for a in args), default=0) + reduces,
            tree=self,
            number=len(self.known) + 1,
        )

    def leaf(self, name: str, kind: Kind) -> Node:
        """An input of the formula."""
        key = ("input", name)
        if key not in self.known:
            by_row = kind in (Kind.ROW, Kind.ROW_NUMBER)
            by_element = kind in (Kind.ROW, Kind.FEATURE)
            number = len(self.known) + 1
            self.known[key] = Node("input", (), name, by_row, by_element, 0, self, number)
        return self.known[key]

    def lift(self, value: Any) -> Node:
        """A node as it is; an int or a fraction as a constant. A float is refused."""
        if isinstance(value, Node):
            return value
        return self.number(value)

    def number(self, value: int | Fraction) -> Node:
        """A rational constant."""
        if not isinstance(value, int | Fraction):
            raise TypeError(f"a body may use only ints and fractions as constants, not {value!r}")
        return self.node("number", payload=Fraction(value))

    def length(self, row: Node) -> Node:
        """The number of elements of a row."""
        return self.node("length")

    def sum(self, row: Node) -> Node:
        """The sum over a row."""
        return self.node("sum", row)

    def sum_rows(self, rows: Node) -> Node:
        """The sum over rows."""
        return self.node("sum_rows", rows)

    def sqrt(self, value: Node) -> Node:
        """The square root."""
        return self.node("sqrt", value)

    def tanh(self, value: Node) -> Node:
        """Hyperbolic tangent."""
        return self.node("tanh", value)

    def erf(self, value: Node) -> Node:
        """Error function."""
        return self.node("erf", value)

    def exp(self, value: Node) -> Node:
        """Exponential."""
        return self.node("exp", value)

    def pi(self) -> Node:
        """The constant pi."""
        return self.node("pi")

    def cast(self, value: Node, point: str) -> Node:
        """The identity: a tree is exact."""
        return value

    def fold(self, leaves: tuple[Node, ...], merge: Callable[..., tuple[Node, ...]]) -> Any:
        """A fold over the row; its merge is traced once, on placeholders."""
        places = tuple(
            Node("place", (), k, True, False, 0, self, -1 - k) for k in range(2 * len(leaves))
        )
        merged = merge(*places)
        fold = self.node("fold", *leaves, payload=(places, merged))
        return tuple(self.node("fold_part", fold, payload=k) for k in range(len(leaves)))


def trace(formula: Formula) -> tuple[Node, ...]:
    """The formula's outputs as nodes of one tree."""
    tree = Tree()
    leaves = {p.name: tree.leaf(p.name, p.kind) for p in formula.parameters}
    return formula(tree, **leaves)


def walk(*roots: Node) -> Iterator[Node]:
    """Every node below the roots, once, arguments before their users."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node not in seen:
            seen.add(node)
            for argument in node.args:
                yield from visit(argument)
            yield node

    for root in roots:
        yield from visit(root)
