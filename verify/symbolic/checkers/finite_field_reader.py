"""Reading a certificate: every term in the language, every child earlier, every name declared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from verify.symbolic.checkers.answer import Certificate, CertificateError

SCHEMA = 1
Scope: TypeAlias = tuple[str, ...]

# What follows the operation's name: a Number, a Dimension, a Symbol, Indices, a Child, a Name,
# Arguments or several Dimensions ("B", bound).
SIGNATURES = {
    "num": "N",
    "dim": "D",
    "sym": "S",
    "at": "SI",
    "sum": "DC",
    "add": "CC",
    "mul": "CC",
    "div": "CC",
    "sqrt": "C",
    "fun": "FIA",
    "lam": "BC",
    "diff": "CSS",
}


@dataclass(frozen=True)
class Claim:
    """One claim: names and terms of its steps; a `differ` has two and a witness."""

    kind: str
    name: str
    free: Scope
    steps: tuple[tuple[str, int], ...]
    witness: Mapping[str, Any] = field(default_factory=dict)


class Theorem:
    """A certificate that has been read: every term is in the language and every child is earlier.

    Raises CertificateError, in one line, on anything else.
    """

    def __init__(self, certificate: Certificate) -> None:
        if (came := certificate.get("schema")) != SCHEMA:
            raise CertificateError(f"schema {came!r:.60}: expected schema {SCHEMA}")
        keys = ("dims", "symbols", "positive", "terms", "claims")
        if absent := [key for key in keys if key not in certificate]:
            raise CertificateError(f"no {', '.join(absent)}: expected the keys {', '.join(keys)}")
        self.dims: dict[str, Any] = dict(certificate["dims"])
        self.symbols = {name: tuple(dims) for name, dims in certificate["symbols"].items()}
        self.positive = frozenset(certificate["positive"])
        self.check_declarations()
        self.terms: list[Sequence[Any]] = []
        self.free: list[tuple[int, ...]] = []  # free indices of each term, outermost first
        self.mentions: list[frozenset[str]] = []  # symbols below each term
        self.first: list[int] = []  # the first term that reads as each term does
        self.spelled: dict[str, int] = {}
        self.derivatives: dict[int, int] = {}
        for term in certificate["terms"]:
            self.append(term)
        self.claims = tuple(self.claim(entry) for entry in certificate["claims"])
        self.text = json.dumps([certificate[key] for key in keys], sort_keys=True)

    def check_declarations(self) -> None:
        for dim, least in self.dims.items():
            if not isinstance(least, int) or least < 1:
                raise CertificateError(
                    f"dimension {dim!r} from {least!r}: expected an integer >= 1"
                )
        for name, dims in self.symbols.items():
            if unknown := set(dims) - set(self.dims):
                raise CertificateError(f"symbol {name!r} over undeclared {sorted(unknown)}")
        for name in self.positive:
            if self.symbols.get(name) != ():
                raise CertificateError(f"positive {name!r}: expected a declared scalar symbol")

    def append(self, term: Any) -> int:
        """Add a term; its number."""
        op = term[0] if isinstance(term, Sequence) and term else term
        signature = SIGNATURES.get(op) if isinstance(op, str) else None
        if signature is None:
            raise CertificateError(
                f"term {len(self.terms)}: operation {op!r:.60} is outside the language: "
                f"expected one of {', '.join(SIGNATURES)}"
            )
        if len(term) != len(signature) + 1 or isinstance(term, str):
            raise CertificateError(
                f"term {len(self.terms)}: {list(term)!r:.80}: expected {len(signature)} operands"
            )
        for kind, operand in zip(signature, term[1:], strict=True):
            self.check_operand(op, kind, operand)
        self.check_shape(term)
        self.terms.append(term)
        self.free.append(self.free_indices(term))
        self.mentions.append(self.mentioned(term))
        self.first.append(self.spelled.setdefault(self.spelling(term), len(self.first)))
        return len(self.terms) - 1

    def check_operand(self, op: str, kind: str, operand: Any) -> None:
        here = f"term {len(self.terms)} ({op}): {operand!r:.60}"
        match kind:
            case "N":
                try:
                    Fraction(operand if isinstance(operand, str) else "")
                except (ValueError, ZeroDivisionError):
                    raise CertificateError(f"{here}: expected a rational 'p/q'") from None
            case "D" | "B":
                dims = operand if kind == "B" else [operand]
                if not isinstance(dims, Sequence) or not all(d in self.dims for d in dims):
                    raise CertificateError(f"{here}: expected one of {sorted(self.dims)}")
            case "S" if operand not in self.symbols:
                raise CertificateError(f"{here}: expected a declared symbol")
            case "F" if not isinstance(operand, str):
                raise CertificateError(f"{here}: expected the name of a function")
            case "C":
                self.check_child(here, operand, may_bind=False)
            case "A":
                for child in operand:
                    self.check_child(here, child, may_bind=True)
            case "I" if not all(type(k) is int and k >= 0 for k in operand):
                raise CertificateError(f"{here}: expected de Bruijn indices >= 0")

    def check_child(self, here: str, child: Any, *, may_bind: bool) -> None:
        if type(child) is not int or not 0 <= child < len(self.terms):
            raise CertificateError(
                f"{here}: child {child!r:.20}: expected the number of an earlier term"
            )
        if self.terms[child][0] == "lam" and not may_bind:
            raise CertificateError(f"{here}: 'lam' is outside the language except in 'fun'")

    def check_shape(self, term: Sequence[Any]) -> None:
        match term:
            case ["sym", name] if self.symbols[name]:
                raise CertificateError(f"'sym' of {name!r}: it has indices, expected 'at'")
            case ["at", name, indices] if len(indices) != len(self.symbols[name]) or not indices:
                raise CertificateError(f"{name!r} at {indices}: expected {self.symbols[name]}")
            case ["diff", _, x, h] if self.symbols[x] != self.symbols[h]:
                raise CertificateError(f"diff of {x!r} along {h!r}: expected one shape")

    def free_indices(self, term: Sequence[Any]) -> tuple[int, ...]:
        found: set[int] = set()
        bound = len(term[1]) if term[0] == "lam" else int(term[0] == "sum")
        for child in children(term):
            found |= {k - bound for k in self.free[child] if k >= bound}
        if term[0] in ("at", "fun"):
            found |= set(term[2])
        return tuple(sorted(found, reverse=True))

    def spelling(self, term: Sequence[Any]) -> str:
        """The term with each child replaced by the first that reads as it does."""
        spelled: list[Any] = [term[0]]
        for kind, operand in zip(SIGNATURES[term[0]], term[1:], strict=True):
            if kind == "A":
                spelled.append([self.first[child] for child in operand])
            else:
                spelled.append(self.first[operand] if kind == "C" else operand)
        return json.dumps(spelled)

    def mentioned(self, term: Sequence[Any]) -> frozenset[str]:
        names = {
            name for kind, name in zip(SIGNATURES[term[0]], term[1:], strict=True) if kind == "S"
        }
        return frozenset(names).union(*(self.mentions[child] for child in children(term)))

    def claim(self, entry: Mapping[str, Any]) -> Claim:
        kind, name, free = entry.get("kind"), entry.get("name"), tuple(entry.get("free", ()))
        if kind not in ("equal", "at_least", "differ"):
            raise CertificateError(
                f"claim {name!r} of kind {kind!r}: expected equal, at_least, differ"
            )
        if not set(free) <= set(self.dims):
            raise CertificateError(f"claim {name!r} over {free}: expected declared dimensions")
        steps = entry.get("steps", ())
        if kind == "differ":
            steps = [["left", entry.get("left")], ["right", entry.get("right")]]
        elif len(steps) < (2 if kind == "equal" else 1):
            raise CertificateError(
                f"claim {name!r}: {len(steps)} steps: expected a left and a right side"
            )
        for step, term in steps:
            self.check_child(f"claim {name!r}, step {step!r}", term, may_bind=False)
            if any(k >= len(free) for k in self.free[term]):
                raise CertificateError(
                    f"claim {name!r}, step {step!r}: an index is bound by nothing"
                )
        witness = entry.get("witness") or {}
        return Claim(kind, str(name), free, tuple((str(s), t) for s, t in steps), witness)

    def derivative(self, node: int) -> int:
        """The term f'(a) of the term f(a)."""
        if node not in self.derivatives:
            self.derivatives[node] = self.new_derivative(node)
        return self.derivatives[node]

    def new_derivative(self, node: int) -> int:
        _, name, indices, (a,) = self.terms[node]
        minus = self.append(["num", "-1"])
        match name:
            case "tanh":
                square = self.append(["mul", node, node])
                negative = self.append(["mul", minus, square])
                return self.append(["add", self.append(["num", "1"]), negative])
            case "exp":
                return node
            case "erf":
                root = self.append(["sqrt", self.append(["sym", "pi"])])
                factor = self.append(["div", self.append(["num", "2"]), root])
                negative = self.append(["mul", minus, self.append(["mul", a, a])])
                return self.append(["mul", factor, self.append(["fun", "exp", [], [negative]])])
        return self.append(["fun", f"{name}'", indices, [a]])

    def below(self, roots: Sequence[int]) -> set[int]:
        """All terms that the given ones are made of."""
        found: set[int] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += children(self.terms[node])
        return found


def children(term: Sequence[Any]) -> list[int]:
    """The numbers of a term's children."""
    found: list[int] = []
    for kind, operand in zip(SIGNATURES[term[0]], term[1:], strict=True):
        found += [operand] if kind == "C" else operand if kind == "A" else []
    return found
