"""JSON in, `Problem` out; whatever is not a certificate of schema 1 is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from verify.symbolic.checkers.answer import Certificate, CertificateError
from verify.symbolic.checkers.flint_terms import (
    KINDS,
    NUMBER,
    OPERATIONS,
    SCHEMA,
    Claim,
    Problem,
    Table,
)


def read(certificate: Certificate) -> Problem:
    """The problem that a certificate states.

    Raises
    ------
    CertificateError
        if it is not a certificate of schema 1 or holds a term outside the language.
    """
    try:
        got = certificate.get("schema")
        _expect(got == SCHEMA, f"schema {got!r}: expected a certificate of schema {SCHEMA}")
        return _problem(certificate)
    except CertificateError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CertificateError(
            f"not a certificate of schema {SCHEMA}: {type(error).__name__} at {error}"
        ) from error


def _problem(certificate: Certificate) -> Problem:
    dims = {str(name): _smallest(name, least) for name, least in certificate["dims"].items()}
    symbols = {str(s): tuple(shape) for s, shape in certificate["symbols"].items()}
    for name, shape in symbols.items():
        for dim in shape:
            _expect(dim in dims, f"symbol '{name}' is indexed by the undeclared dimension '{dim}'")
    positive = frozenset(certificate["positive"])
    for name in positive:
        _expect(symbols.get(name) == (), f"positive '{name}': expected a declared scalar symbol")
    table = Table(dims, symbols)
    reader = _Reader(table)
    for number, entry in enumerate(certificate["terms"]):
        reader.add(number, entry)
    claims = tuple(_claim(reader, claim) for claim in certificate["claims"])
    _expect(bool(claims), "a certificate without claims: expected at least one")
    return Problem(table, dims, symbols, positive, claims)


def _expect(condition: bool, message: str) -> None:  # noqa: FBT001
    if not condition:
        raise CertificateError(message)


def _smallest(name: str, least: Any) -> int:
    good = isinstance(least, int) and not isinstance(least, bool) and least >= 1
    _expect(good, f"dimension '{name}' from {least!r}: expected an integer >= 1")
    return int(least)


def number(text: Any) -> Fraction:
    """A number of a certificate: the string "p/q" or "p"."""
    good = isinstance(text, str) and NUMBER.fullmatch(text) is not None
    _expect(good, f"number {text!r}: expected a string 'p/q' or 'p'")
    _expect("/" not in text or int(text.split("/")[1]) != 0, f"number {text!r} divides by zero")
    return Fraction(text)


class _Reader:
    """Entries of the certificate's table, in order, into terms of ours."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.ours: list[int] = []

    def add(self, number: int, entry: Any) -> None:
        """Read one entry; ``number`` is its place, for messages."""
        where = f"term {number}"
        _expect(isinstance(entry, Sequence) and bool(entry), f"{where}: expected [operation, ...]")
        op, *rest = entry
        _expect(
            op in OPERATIONS,
            f"{where}: '{op}' is outside the language: expected one of {', '.join(OPERATIONS)}",
        )
        self.ours.append(
            self._leaf(op, rest, where) if op in LEAVES else self._inner(op, rest, where)
        )

    def _leaf(self, op: str, rest: list[Any], where: str) -> int:
        _expect(len(rest) == LEAVES[op], f"{where}: '{op}' with {len(rest)} operands")
        if op == "num":
            return self.table.make("num", number(rest[0]))
        name = rest[0]
        if op == "dim":
            _expect(name in self.table.dims, f"{where}: '{name}' is not a declared dimension")
            return self.table.make("dim", name)
        shape = self.table.symbols.get(name)
        _expect(shape is not None, f"{where}: '{name}' is not a declared symbol")
        indices = _indices(rest[1], where) if op == "at" else ()
        assert shape is not None
        _expect(
            len(indices) == len(shape),
            f"{where}: '{name}' with {len(indices)} indices, expected {len(shape)}",
        )
        return self.table.make("at", name, indices) if indices else self.table.make("sym", name)

    def _inner(self, op: str, rest: list[Any], where: str) -> int:
        _expect(len(rest) == INNER[op], f"{where}: '{op}' with {len(rest)} operands")
        if op in ("add", "mul", "div", "sqrt"):
            return self.table.make(op, *(self._child(c, where) for c in rest))
        if op == "sum":
            self._dims(rest[:1], where)
            return self.table.make("sum", rest[0], self._child(rest[1], where))
        if op == "lam":
            self._dims(rest[0], where)
            return self.table.make("lam", tuple(rest[0]), self._child(rest[1], where))
        if op == "fun":
            arguments = tuple(self._child(c, where, lam=True) for c in rest[2])
            _expect(bool(arguments), f"{where}: '{rest[0]}' without arguments")
            return self.table.make("fun", str(rest[0]), _indices(rest[1], where), arguments)
        return self._derivative(rest, where)

    def _derivative(self, rest: list[Any], where: str) -> int:
        body, x, h = self._child(rest[0], where), rest[1], rest[2]
        shapes = self.table.symbols
        good = x in shapes and shapes.get(x) == shapes.get(h)
        _expect(good, f"{where}: '{h}' is not a direction for '{x}': expected the same shape")
        return self.table.slope(body, x, h)

    def _dims(self, dims: Any, where: str) -> None:
        for dim in dims:
            _expect(dim in self.table.dims, f"{where}: '{dim}' is not a declared dimension")

    def _child(self, child: Any, where: str, *, lam: bool = False) -> int:
        good = isinstance(child, int) and not isinstance(child, bool)
        _expect(good, f"{where}: child {child!r}, expected the number of an earlier term")
        _expect(
            0 <= child < len(self.ours),
            f"{where} points to term {child}: children must come earlier",
        )
        ours: int = self.ours[child]
        is_lam = self.table.nodes[ours][0] == "lam"
        _expect(lam or not is_lam, f"{where}: a 'lam' stands only as an argument of a 'fun'")
        return ours

    def closed_under(self, child: Any, free: tuple[str, ...], where: str) -> int:
        """A term of a claim: its indices must be the claim's free ones."""
        _expect(
            isinstance(child, int) and not isinstance(child, bool) and 0 <= child < len(self.ours),
            f"{where} is term {child!r}, which does not exist",
        )
        ours = self._child(child, where)
        for k, dim in self.table.uses[ours].items():
            good = k < len(free) and dim in ("", free[-1 - k])
            _expect(good, f"{where} mentions index {k} over '{dim}', which is not free in it")
        return ours


LEAVES = {"num": 1, "dim": 1, "sym": 1, "at": 2}
INNER = {"sum": 2, "add": 2, "mul": 2, "div": 2, "sqrt": 1, "fun": 3, "lam": 2, "diff": 3}


def _indices(value: Any, where: str) -> tuple[int, ...]:
    good = isinstance(value, Sequence) and not isinstance(value, str)
    good = good and all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in value)
    _expect(good, f"{where}: indices {value!r}, expected a list of de Bruijn indices")
    return tuple(value)


def _claim(reader: _Reader, claim: Mapping[str, Any]) -> Claim:
    kind, name, free = claim["kind"], str(claim["name"]), tuple(claim["free"])
    _expect(kind in KINDS, f"claim '{name}' of kind '{kind}': expected one of {', '.join(KINDS)}")
    for dim in free:
        _expect(dim in reader.table.dims, f"claim '{name}': '{dim}' is not a declared dimension")
    if kind == "differ":
        named = [("left", claim["left"]), ("right", claim["right"])]
    else:
        named = [(str(step), term) for step, term in claim["steps"]]
    least = 1 if kind == "at_least" else 2
    _expect(len(named) >= least, f"claim '{name}' has {len(named)} steps: expected {least} or more")
    steps = tuple(
        (step, reader.closed_under(term, free, f"step '{step}' of claim '{name}'"))
        for step, term in named
    )
    return Claim(kind, name, free, steps, claim.get("witness") or {})
