"""Certificates for the tests of checkers, written as formulas.

Terms are built with named indices and turned into a DAG with de Bruijn indices at the end, by
code that no part of the package shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_names = itertools.count()


@dataclass(frozen=True)
class E:
    """A term with named indices: (op, operands ...)."""

    node: tuple[Any, ...]

    def __add__(self, other: E | int) -> E:
        return E(("add", self, _term(other)))

    __radd__ = __add__

    def __mul__(self, other: E | int) -> E:
        return E(("mul", self, _term(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: E | int) -> E:
        return E(("div", self, _term(other)))

    def __rtruediv__(self, other: E | int) -> E:
        return E(("div", _term(other), self))

    def __neg__(self) -> E:
        return E(("mul", num(-1), self))

    def __sub__(self, other: E | int) -> E:
        return self + -_term(other)

    def __rsub__(self, other: E | int) -> E:
        return _term(other) + -self


def _term(value: E | int) -> E:
    return value if isinstance(value, E) else num(value)


def num(value: int | str) -> E:
    return E(("num", str(value)))


def dim(name: str = "n") -> E:
    return E(("dim", name))


def sym(name: str) -> E:
    return E(("sym", name))


def at(name: str, *indices: str) -> E:
    return E(("at", name, indices))


def total(body: Callable[[str], E], over: str = "n") -> E:
    i = f"i{next(_names)}"
    return E(("sum", over, i, body(i)))


def mean(body: Callable[[str], E]) -> E:
    return total(body) / dim()


def sqrt(a: E) -> E:
    return E(("sqrt", a))


def diff(body: E, x: str, h: str) -> E:
    return E(("diff", body, x, h))


def fun(name: str, *args: E, element: Sequence[str] = ()) -> E:
    return E(("fun", name, tuple(element), args))


def lam(body: Callable[[str], E], over: str = "n") -> E:
    i = f"i{next(_names)}"
    return E(("lam", (over,), (i,), body(i)))


def square(a: E) -> E:
    return a * a


class Dag:
    """Terms numbered as they are met, the same term once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.terms: list[list[Any]] = []

    def add(self, e: E, bound: tuple[str, ...]) -> int:
        op, *rest = e.node
        index = {name: len(bound) - 1 - level for level, name in enumerate(bound)}
        match op:
            case "at":
                term = ["at", rest[0], [index[i] for i in rest[1]]]
            case "sum":
                term = ["sum", rest[0], self.add(rest[2], (*bound, rest[1]))]
            case "lam":
                term = ["lam", list(rest[0]), self.add(rest[2], (*bound, *rest[1]))]
            case "fun":
                args = [self.add(a, bound) for a in rest[2]]
                term = ["fun", rest[0], [index[i] for i in rest[1]], args]
            case "diff":
                term = ["diff", self.add(rest[0], bound), *rest[1:]]
            case _:
                term = [op, *(self.add(a, bound) if isinstance(a, E) else a for a in rest)]
        if str(term) not in self.numbers:
            self.numbers[str(term)] = len(self.terms)
            self.terms.append(term)
        return self.numbers[str(term)]


SYMBOLS: Mapping[str, list[str]] = {
    **{name: ["n"] for name in ("x", "z", "w", "b", "g", "h", "k")},
    **{name: [] for name in ("eps", "c", "alpha", "shift", "pi")},
    "A": ["n", "m"],
    "v": ["m"],
}
POSITIVE = ("eps", "c", "pi")


def certificate(
    *steps: E, free: Sequence[tuple[str, str]] = (), kind: str = "equal", **more: Any
) -> dict[str, Any]:
    """A certificate with one claim; ``free`` are (index, dimension) pairs."""
    dag, bound = Dag(), tuple(i for i, _ in free)
    numbers = [dag.add(e, bound) for e in steps]
    used = {t[1] for t in dag.terms if t[0] in ("at", "sym")}
    used |= {name for t in dag.terms if t[0] == "diff" for name in t[2:]}
    used |= {"pi"} if any(t[:2] == ["fun", "erf"] for t in dag.terms) else set()
    claim: dict[str, Any] = {"kind": kind, "name": "claim", "free": [d for _, d in free]}
    if kind == "differ":
        claim |= {"left": numbers[0], "right": numbers[1]}
    else:
        claim["steps"] = [[f"step {j}", t] for j, t in enumerate(numbers)]
    symbols = {name: SYMBOLS[name] for name in SYMBOLS if name in used}
    return {
        "schema": 1,
        "name": "SAMPLE",
        "dims": {"n": 1, "m": 1} if "A" in used else {"n": 1},
        "symbols": symbols,
        "positive": [name for name in POSITIVE if name in used],
        "terms": dag.terms,
        "claims": [claim | more],
        "digest": "",
    }
