"""A certificate read into a table of terms without derivatives, by this checker's own code.

The reader takes nothing on trust: names must be declared, children must come earlier, indices
must run over the dimension that the symbol declares. Equal terms get equal numbers, so "the
same term twice" is an equality of integers. ``diff`` is carried out here, structurally; what is
left are sums, arithmetic, roots, symbols and functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from verify.symbolic.checkers.answer import CertificateError

SCHEMA = 1
OPERATIONS = ("num", "dim", "sym", "at", "sum", "add", "mul", "div", "sqrt", "fun", "lam", "diff")
KINDS = ("equal", "at_least", "differ")
NUMBER = re.compile(r"-?\d+(/\d+)?", re.ASCII)

# A node is ("num", Fraction), ("at", "x", (k, ...)), ("sum", "n", body) ...: children are numbers.
Node: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Claim:
    """One claim: ``steps`` are (name, term); a "differ" claim has two steps and a witness."""

    kind: str
    name: str
    free: tuple[str, ...]
    steps: tuple[tuple[str, int], ...]
    witness: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What a certificate claims: its table of terms, the declarations and the claims."""

    table: Table
    dims: Mapping[str, int]
    symbols: Mapping[str, tuple[str, ...]]
    positive: frozenset[str]
    claims: tuple[Claim, ...]


class Table:
    """Terms, each once; ``nodes[t]`` is the term t, ``uses[t]`` says which indices it mentions.

    ``uses[t]`` maps a de Bruijn index to the dimension it runs over.
    """

    def __init__(self, dims: Mapping[str, int], symbols: Mapping[str, tuple[str, ...]]) -> None:
        """An empty table over these dimensions and symbols."""
        self.dims, self.symbols = dims, symbols
        self.nodes: list[Node] = []
        self.uses: list[Mapping[int, str]] = []
        self._known: dict[Node, int] = {}
        self._slopes: dict[tuple[int, str, str], int] = {}
        self._mentions: dict[tuple[int, str], bool] = {}

    def make(self, *node: Any) -> int:
        """The number of that node."""
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.uses.append(self._indices(node))
            self.nodes.append(node)
        return self._known[node]

    def lean(self, op: str, a: int, b: int) -> int:
        """As `make` for an operation of a derivative: ``0 + a``, ``0 * a``, ``0 / a`` are dropped.

        The divisors and radicands of a derivative are those of the term that was
        differentiated, so nothing is lost about where it is defined.
        """
        zero = self.number(0)
        if op == "add" and zero in (a, b):
            return b if a == zero else a
        return zero if zero in (a, b) else self.make(op, a, b)

    def children(self, node: Node) -> tuple[int, ...]:
        """The numbers of a node's children."""
        match node:
            case ("num" | "dim" | "sym" | "at", *_):
                return ()
            case ("sum" | "lam", _, body):
                return (body,)
            case ("fun", _, _, arguments):
                return tuple(arguments)
            case _:
                return tuple(node[1:])

    def reachable(self, terms: Sequence[int]) -> set[int]:
        """All terms that these are made of."""
        found: set[int] = set()
        waiting = list(terms)
        while waiting:
            t = waiting.pop()
            if t not in found:
                found.add(t)
                waiting += self.children(self.nodes[t])
        return found

    def dimensions(self, terms: Sequence[int]) -> set[str]:
        """The dimensions that occur in these terms."""
        found: set[str] = set()
        for node in (self.nodes[t] for t in self.reachable(terms)):
            if node[0] in ("dim", "sum"):
                found.add(node[1])
            elif node[0] in ("at", "lam"):
                found.update(self.symbols[node[1]] if node[0] == "at" else node[1])
        return found

    def _indices(self, node: Node) -> Mapping[int, str]:
        found: dict[int, str] = {}
        match node:
            case ("at", name, indices):
                merge(found, zip(indices, self.symbols[name], strict=True), name)
            case ("sum", dim, body):
                merge(found, self._outside(body, (dim,)).items(), "a sum")
            case ("lam", dims, body):
                merge(found, self._outside(body, dims).items(), "a lam")
            case _:
                for child in self.children(node):
                    merge(found, self.uses[child].items(), node[0])
                if node[0] == "fun":
                    # A selected index tells its dimension wherever the arguments do not.
                    for k in node[2]:
                        found.setdefault(k, "")
        return found

    def _outside(self, body: int, dims: Sequence[str]) -> Mapping[int, str]:
        """What a binder of ``dims`` leaves free in its body."""
        bound = dict(enumerate(reversed(dims)))
        for k, dim in self.uses[body].items():
            if bound.get(k, dim) != dim and dim:
                raise CertificateError(
                    f"an index over '{bound[k]}' stands where an index over '{dim}' is expected"
                )
        return {k - len(dims): dim for k, dim in self.uses[body].items() if k >= len(dims)}

    # --- derivatives -----------------------------------------------------------------------------

    def slope(self, t: int, x: str, h: str) -> int:
        """The derivative of t with respect to x along h; binders stay where they are."""
        zero = self.number(0)
        if not self.mentions(t, x):
            return zero
        key = (t, x, h)
        if key not in self._slopes:
            self._slopes[key] = self._slope(t, x, h)
        return self._slopes[key]

    def mentions(self, t: int, x: str) -> bool:
        """Whether x occurs in t."""
        key = (t, x)
        if key not in self._mentions:
            node = self.nodes[t]
            here = node[0] in ("sym", "at") and node[1] == x
            self._mentions[key] = here or any(self.mentions(c, x) for c in self.children(node))
        return self._mentions[key]

    def _slope(self, t: int, x: str, h: str) -> int:
        node = self.nodes[t]
        match node:
            case ("sym", _):
                return self.make("sym", h)
            case ("at", _, indices):
                return self.make("at", h, indices)
            case ("sum", dim, body):
                return self.make("sum", dim, self.slope(body, x, h))
            case ("fun", *_):
                return self._slope_of_function(node, x, h)
            case ("sqrt", a):
                twice = self.lean("mul", self.number(2), t)
                return self.lean("div", self.slope(a, x, h), twice)
            case (op, a, b):
                return self._slope_of_pair(op, a, b, self.slope(a, x, h), self.slope(b, x, h))
        raise CertificateError(f"the derivative of '{node[0]}' is outside the language")

    def _slope_of_pair(self, op: str, a: int, b: int, da: int, db: int) -> int:
        if op == "add":
            return self.lean("add", da, db)
        if op == "mul":
            return self.lean("add", self.lean("mul", da, b), self.lean("mul", a, db))
        fall = self.lean("div", self.lean("mul", a, db), self.lean("mul", b, b))
        return self.lean("add", self.lean("div", da, b), self.lean("mul", self.number(-1), fall))

    def _slope_of_function(self, node: Node, x: str, h: str) -> int:
        _, name, selected, arguments = node
        if len(arguments) != 1 or self.nodes[arguments[0]][0] == "lam":
            raise CertificateError(
                f"the derivative of '{name}' through an array or several arguments is outside "
                "the language: expected one scalar argument"
            )
        (a,) = arguments
        return self.lean("mul", self._outer_slope(name, selected, a), self.slope(a, x, h))

    def _outer_slope(self, name: str, selected: tuple[int, ...], a: int) -> int:
        value = self.make("fun", name, selected, (a,))
        minus = self.number(-1)
        square = self.lean("mul", a, a)
        if name == "exp":
            return value
        if name == "tanh":
            fall = self.lean("mul", minus, self.lean("mul", value, value))
            return self.lean("add", self.number(1), fall)
        if name == "erf":
            if self.symbols.get("pi") != ():
                raise CertificateError("the derivative of 'erf' needs the positive symbol 'pi'")
            scale = self.lean("div", self.number(2), self.make("sqrt", self.make("sym", "pi")))
            bell = self.make("fun", "exp", (), (self.lean("mul", minus, square),))
            return self.lean("mul", scale, bell)
        return self.make("fun", name + "'", selected, (a,))

    def number(self, value: int) -> int:
        """An integer as a term."""
        return self.make("num", Fraction(value))


def merge(found: dict[int, str], more: Any, where: str) -> None:
    """Add indices with the dimensions they run over; two different dimensions are an error."""
    for k, dim in more:
        if found.get(k) and dim and found[k] != dim:
            raise CertificateError(
                f"index {k} of '{where}' runs over '{found[k]}' and over '{dim}': expected one"
            )
        found[k] = found.get(k) or dim
