"""A builder of certificates: indices have names here and de Bruijn numbers there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYMBOLS = {
    **{name: ["n"] for name in ("x", "w", "b", "h", "k", "dy", "z")},
    **{name: [] for name in ("eps", "s", "beta", "alpha", "pi", "c")},
    "A": ["n", "m"],
    "W": ["m", "n"],
    "y": ["m"],
}
POSITIVE = ["eps", "s", "beta", "pi"]
DIMS = {"n": 1, "m": 1}


@dataclass(frozen=True)
class Term:
    node: tuple[Any, ...]

    def __add__(self, other: Any) -> Term:
        return Term(("add", self, lift(other)))

    def __mul__(self, other: Any) -> Term:
        return Term(("mul", self, lift(other)))

    def __truediv__(self, other: Any) -> Term:
        return Term(("div", self, lift(other)))

    def __sub__(self, other: Any) -> Term:
        return self + lift(-1) * other

    def __neg__(self) -> Term:
        return lift(-1) * self


def lift(value: Any) -> Term:
    return value if isinstance(value, Term) else Term(("num", str(value)))


def sym(name: str) -> Term:
    return Term(("sym", name))


def at(name: str, *indices: str) -> Term:
    return Term(("at", name, indices))


def dim(name: str = "n") -> Term:
    return Term(("dim", name))


def sqrt(a: Term) -> Term:
    return Term(("sqrt", a))


def total(i: str, body: Term, n: str = "n") -> Term:
    return Term(("sum", n, i, body))


def mean(i: str, body: Term, n: str = "n") -> Term:
    return total(i, body, n) / dim(n)


def diff(body: Term, x: str, h: str) -> Term:
    return Term(("diff", body, x, h))


def fun(name: str, *arguments: Term, select: Sequence[str] = ()) -> Term:
    return Term(("fun", name, tuple(select), arguments))


def lam(i: str, body: Term, n: str = "n") -> Term:
    return Term(("lam", (n,), (i,), body))


class Terms:
    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.known: dict[str, int] = {}

    def add(self, t: Term, scope: tuple[str, ...]) -> int:
        entry = self.entry(t.node, scope)
        key = json.dumps(entry)
        if key not in self.known:
            self.known[key] = len(self.entries)
            self.entries.append(entry)
        return self.known[key]

    def entry(self, node: tuple[Any, ...], scope: tuple[str, ...]) -> list[Any]:
        match node:
            case ("num" | "dim" | "sym", name):
                return [node[0], name]
            case ("at", name, indices):
                return ["at", name, [scope.index(i) for i in indices]]
            case ("sum", n, i, body):
                return ["sum", n, self.add(body, (i, *scope))]
            case ("lam", dims, names, body):
                return ["lam", list(dims), self.add(body, (*reversed(names), *scope))]
            case ("fun", name, selected, arguments):
                places = [scope.index(i) for i in selected]
                return ["fun", name, places, [self.add(a, scope) for a in arguments]]
            case ("diff", body, x, h):
                return ["diff", self.add(body, scope), x, h]
            case (op, *children):
                return [op, *(self.add(a, scope) for a in children)]
        raise AssertionError(node)


def certificate(
    *sides: Term,
    free: Mapping[str, str] | None = None,
    kind: str = "equal",
    dims: Mapping[str, int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """One claim about these sides; ``free`` maps the names of free indices to dimensions."""
    terms, free = Terms(), free or {}
    scope = tuple(reversed(free))
    numbers = [terms.add(side, scope) for side in sides]
    claim = {"kind": kind, "name": "claim", "free": list(free.values()), **more}
    if kind == "differ":
        claim["left"], claim["right"] = numbers
    else:
        claim["steps"] = [[f"step {k}", number] for k, number in enumerate(numbers)]
    return {
        "schema": 1,
        "name": "TEST",
        "dims": dict(dims or DIMS),
        "symbols": SYMBOLS,
        "positive": POSITIVE,
        "terms": terms.entries,
        "claims": [claim],
    }


def one_i(*sides: Term) -> dict[str, Any]:
    return certificate(*sides, free={"i": "n"})
