"""Certificates: a theorem with its proof as plain JSON, sealed step by step, and how to read one.

The layout (schema 1) is described in docs/proofs.md. A seal is a hash of a step's name and of its
whole term, so that a changed certificate is refused with the step named; the digest covers all.
A seal does not say who made a certificate, only that nothing in it was changed afterwards: that a
step is *true* is what the checkers say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from verify.symbolic.checkers.answer import CertificateError
from verify.symbolic.checkers.seals import SCHEMA, broken_seals, sealed, steps_of
from verify.symbolic.theorem import Theorem
from verify.symbolic.trusted import Claim, Setting, Term

__all__ = [
    "SCHEMA",
    "CertificateError",
    "broken_seals",
    "certificate",
    "read",
    "sealed",
    "steps_of",
]


class _Table:
    """Terms as rows that point to earlier rows, each term once."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.at: dict[Term, int] = {}

    def row(self, t: Term) -> int:
        """The number of the row of a term."""
        if t not in self.at:
            args = [self.row(a) for a in t.args]
            self.rows.append([t.op, *_row(t, args)])
            self.at[t] = len(self.rows) - 1
        return self.at[t]


def _row(t: Term, args: list[int]) -> list[Any]:
    """What follows the operation in a row of the table."""
    match t.op:
        case "num":
            return [str(t.data)]
        case "dim" | "sym":
            return [t.data]
        case "at":
            return [t.data[0], list(t.data[1])]
        case "fun":
            return [t.data[0], list(t.data[1]), args]
        case "sum":
            return [t.data, args[0]]
        case "lam":
            return [list(t.data), args[0]]
        case "diff":
            return [args[0], *t.data]
    return args


def certificate(theorem: Theorem) -> dict[str, Any]:
    """The certificate of a theorem, sealed; it says nothing about whether the proof is accepted."""
    table = _Table()
    claims = [_claim(claim, table) for claim in theorem.claims]
    setting = theorem.setting
    content = {
        "schema": SCHEMA,
        "name": theorem.name,
        "statement": theorem.statement,
        "hypotheses": list(theorem.hypotheses),
        "citation": theorem.citation,
        "used_in": list(theorem.used_in),
        "dims": dict(setting.dims),
        "symbols": {name: list(shape) for name, shape in setting.symbols.items()},
        "positive": sorted(setting.positive),
        "terms": table.rows,
        "claims": claims,
    }
    return sealed(content)


def _claim(claim: Claim, table: _Table) -> dict[str, Any]:
    head = {"kind": claim.kind, "name": claim.name, "free": list(claim.free)}
    rows = [table.row(t) for _, t in claim.steps]
    if claim.kind == "differ":
        return head | {"left": rows[0], "right": rows[1], "witness": _plain(claim.witness)}
    return head | {"steps": [[name, row] for (name, _), row in zip(claim.steps, rows, strict=True)]}


def _plain(value: Any) -> Any:
    """A witness with its numbers as text."""
    if isinstance(value, Mapping):
        return {k: v if k in ("index", "dims") else _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return str(Fraction(value))


# --- reading -------------------------------------------------------------------------------------

# No statement comes near these. They keep a hostile file from costing hours, or the stack.
LONGEST_NUMBER, DEEPEST_TERM, WIDEST_WITNESS, MOST_INDICES = 1000, 200, 100, 8

_WORDS, _SENTENCES = ("name", "statement", "citation"), ("hypotheses", "used_in")
_KEYS = ("schema", *_WORDS, *_SENTENCES, "dims", "symbols", "positive", "terms", "claims")
_CLAIM = ("kind", "name", "free")
_SIDES = {"equal": ("steps",), "at_least": ("steps",), "differ": ("left", "right", "witness")}
_OPERATIONS = "num, dim, sym, at, sum, add, mul, div, sqrt, fun, lam or diff with its parts"
_RATIONAL = re.compile(r"-?[0-9]+(/0*[1-9][0-9]*)?")


def read(content: Any) -> tuple[Setting, list[Claim]]:
    """The setting and the claims of a certificate.

    Raises
    ------
    CertificateError
        in one line, if anything is missing, unknown, of another type or out of its place. Seals
        are not compared: that is `broken_seals`.
    """
    found = content.get("schema") if isinstance(content, Mapping) else content
    if type(found) is not int or found != SCHEMA:
        _refuse("a certificate", found, f"schema {SCHEMA}")
    _entries(content, _KEYS, "a certificate", optional=("digest",))
    for key in _WORDS:
        _text(content[key], key)
    for key in _SENTENCES:
        _texts(content[key], key)
    setting = _setting(content)
    rows = _Rows(setting)
    for row in _list(content["terms"], "terms"):
        rows.append(row)
    claims = [_read_claim(claim, rows) for claim in _list(content["claims"], "claims")]
    _distinct([claim.name for claim in claims], "claims")
    return setting, claims


def _refuse(where: str, found: Any, expected: str) -> NoReturn:
    raise CertificateError(f"{where}: found {_shown(found)}, expected {expected}")


def _shown(value: Any) -> str:
    """A value in a few characters; what a hostile file holds may be too long or deep for repr."""
    if isinstance(value, str):
        return repr(value[:60])
    small = isinstance(value, int) and value.bit_length() < 64
    return repr(value) if small or value is None or isinstance(value, float) else _kind(value)


def _kind(value: Any) -> str:
    return f"a value of type {type(value).__name__}"


def _text(value: Any, where: str) -> str:
    return value if isinstance(value, str) else _refuse(where, value, "a string")


def _list(value: Any, where: str) -> list[Any]:
    return value if isinstance(value, list) else _refuse(where, value, "a list")


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple(_text(v, where) for v in _list(value, where))


def _integer(value: Any, where: str, least: int, below: int) -> int:
    if type(value) is int and least <= value < below:
        return value
    _refuse(where, value, f"an integer from {least} to {below - 1}")


def _number(value: Any, where: str) -> Fraction:
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER and _RATIONAL.fullmatch(value):
        return Fraction(value)
    _refuse(where, value, f"a string p or p/q of at most {LONGEST_NUMBER} characters")


def _entries(
    value: Any, keys: Iterable[str], where: str, optional: Iterable[str] = ()
) -> Mapping[str, Any]:
    """An object that has these keys and no others but the optional ones."""
    if not isinstance(value, Mapping):
        _refuse(where, value, "an object")
    for key in keys:
        if key not in value:
            raise CertificateError(f"{where}: no key '{key}', expected {', '.join(keys)}")
    for key in value:
        if key not in (*keys, *optional):
            _refuse(f"{where}, a key", key, f"one of {', '.join((*keys, *optional))}")
    return value


def _distinct(names: Sequence[str], where: str) -> None:
    for name in names:
        if not name or names.count(name) > 1:
            _refuse(f"{where}, a name", name, "a name that is not empty and occurs once")


def _known(name: Any, names: Mapping[str, Any], where: str) -> str:
    """A declared name."""
    if isinstance(name, str) and name in names:
        return name
    _refuse(where, name, f"a declared name, one of {', '.join(names)}"[:200])


def _setting(content: Mapping[str, Any]) -> Setting:
    """The declarations, each of a dimension or a symbol that is known."""
    dims, shapes, positive = content["dims"], content["symbols"], content["positive"]
    for where, names in (("dims", dims), ("symbols", shapes)):
        if not isinstance(names, Mapping):
            _refuse(where, names, "an object")
    least = {_text(d, "dims"): _integer(k, "dims", 1, 2**31) for d, k in dims.items()}
    symbols = {
        _text(name, "symbols"): tuple(_known(d, least, "symbols") for d in _list(shape, "symbols"))
        for name, shape in shapes.items()
    }
    for name, shape in symbols.items():
        _integer(len(shape), f"symbols, indices of {_shown(name)}", 0, MOST_INDICES + 1)
    numbers = {name: shape for name, shape in symbols.items() if not shape}
    names = [_known(name, numbers, "positive") for name in _list(positive, "positive")]
    return Setting(least, symbols, frozenset(names))


class _Rows:
    """The terms that were read, each with its depth and the dimensions of its free indices."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.terms: list[Term] = []
        self.depth: dict[Term, int] = {}
        self.scope: dict[Term, dict[int, str]] = {}  # "" where any dimension will do

    def at(self, k: Any, where: str) -> Term:
        """The term of an earlier row."""
        return self.terms[_integer(k, f"{where}, a row", 0, len(self.terms))]

    def append(self, row: Any) -> None:
        """The next row, of earlier ones."""
        where = f"row {len(self.terms)}"
        term = self.term(row, where)
        depth = 1 + max((self.depth[a] for a in term.args), default=0)
        if depth > DEEPEST_TERM:
            _refuse(f"{where}, its depth", depth, f"at most {DEEPEST_TERM}")
        self.depth[term], self.scope[term] = depth, self.scope_of(term, where)
        self.terms.append(term)

    def term(self, row: Any, where: str) -> Term:
        """One row, whose names are declared and whose operation has its parts."""
        dims, symbols = self.setting.dims, self.setting.symbols
        match row:
            case ["num", text]:
                return Term.make("num", data=_number(text, where))
            case [("dim" | "sym") as op, name]:
                names = {s: () for s, shape in symbols.items() if not shape}
                return Term.make(op, data=_known(name, dims if op == "dim" else names, where))
            case ["at", name, list(indices)]:
                name = _known(name, symbols, where)
                if len(indices) != len(symbols[name]):
                    _refuse(f"{where}, indices", len(indices), f"{len(symbols[name])} of '{name}'")
                return Term.make("at", data=(name, self.indices(indices, where)))
            case [("add" | "mul" | "div") as op, a, b]:
                return Term.make(op, self.at(a, where), self.at(b, where))
            case ["sqrt", a]:
                return Term.make("sqrt", self.at(a, where))
            case ["sum", dim, a]:
                return Term.make("sum", self.at(a, where), data=_known(dim, dims, where))
            case ["lam", list(bound), a]:
                data = tuple(_known(dim, dims, where) for dim in bound)
                return Term.make("lam", self.at(a, where), data=data)
            case ["diff", a, *names] if len(names) == 2:
                symbol, direction = (_known(name, symbols, where) for name in names)
                if symbols[symbol] != symbols[direction]:
                    _refuse(f"{where}, a direction", direction, f"one of the shape of '{symbol}'")
                return Term.make("diff", self.at(a, where), data=(symbol, direction))
            case ["fun", str(name), list(indices), list(args)]:
                terms = [self.at(a, where) for a in args]
                return Term.make("fun", *terms, data=(name, self.indices(indices, where)))
        found = row[0] if isinstance(row, list) and row else row
        _refuse(f"{where}, an operation", found, f"one of the language: {_OPERATIONS}")

    def indices(self, values: list[Any], where: str) -> tuple[int, ...]:
        return tuple(_integer(k, f"{where}, an index", 0, DEEPEST_TERM) for k in values)

    def scope_of(self, t: Term, where: str) -> dict[int, str]:
        """The dimension of each free index; those that a binder binds are checked and left out."""
        bound = (t.data,) if t.op == "sum" else t.data if t.op == "lam" else ()
        found = [pair for a in t.args for pair in self.scope[a].items()]
        if t.op in ("at", "fun"):
            shape = self.setting.symbols[t.data[0]] if t.op == "at" else [""] * len(t.data[1])
            found += zip(t.data[1], shape, strict=True)
        return self.below(found, bound, where)

    def below(
        self, found: Iterable[tuple[int, str]], bound: Sequence[str], where: str
    ) -> dict[int, str]:
        """The indices that are free below binders over ``bound``, the last one being index 0."""
        dims = dict(enumerate(reversed(bound)))
        for k, dim in found:
            if dim and dims.get(k) and dims[k] != dim:
                _refuse(f"{where}, an index over '{dims[k]}'", dim, "the same dimension")
            dims[k] = dims.get(k) or dim
        return {k - len(bound): dim for k, dim in dims.items() if k >= len(bound)}


def _read_claim(claim: Any, rows: _Rows) -> Claim:
    kind = claim.get("kind") if isinstance(claim, Mapping) else claim
    if not isinstance(kind, str) or kind not in _SIDES:
        _refuse("a claim, its kind", kind, f"one of {', '.join(_SIDES)}")
    _entries(claim, (*_CLAIM, *_SIDES[kind]), "a claim", optional=("seals",))
    where = f"claim {_shown(_text(claim['name'], 'a claim, its name'))}"
    free = tuple(_known(dim, rows.setting.dims, where) for dim in _list(claim["free"], where))
    _texts(claim.get("seals", []), f"{where}, seals")
    steps = _read_steps(claim, rows, where)
    for _, t in steps:
        if over := rows.below(rows.scope[t].items(), free, where):
            _refuse(f"{where}, an index bound by nothing", max(over), f"{len(free)} free indices")
    witness = _witness(claim["witness"], steps, free, rows.setting) if kind == "differ" else None
    return Claim(kind, claim["name"], free, steps, witness)


def _read_steps(claim: Mapping[str, Any], rows: _Rows, where: str) -> tuple[tuple[str, Term], ...]:
    sides: list[Any] = [[side, claim[side]] for side in ("left", "right") if side in claim]
    steps = sides or _list(claim["steps"], where)
    if len(steps) < 2 or not all(isinstance(s, list) and len(s) == 2 for s in steps):
        _refuse(f"{where}, steps", len(steps), "two or more, each a name and a row")
    _distinct([_text(name, f"{where}, a step") for name, _ in steps], f"{where}, steps")
    return tuple((name, rows.at(row, where)) for name, row in steps)


def _witness(
    value: Any, steps: Iterable[tuple[str, Term]], free: Sequence[str], setting: Setting
) -> dict[str, Any]:
    """A witness with fractions for its numbers, whole: nothing that the sides need is missing."""
    _entries(value, ("dims", "values", "index"), "a witness")
    sizes, values = value["dims"], value["values"]
    if not isinstance(sizes, Mapping) or not isinstance(values, Mapping):
        _refuse("a witness", [sizes, values], "objects as dims and values")
    dims = {
        _known(name, setting.dims, "a witness"): _integer(
            size, f"a witness, '{name}'", setting.dims[name], WIDEST_WITNESS + 1
        )
        for name, size in sizes.items()
    }
    given = {_known(name, setting.symbols, "a witness"): values[name] for name in values}
    needed = {name for _, t in steps for name in _names(t)}.union(
        free, *(setting.symbols[name] for name in given)
    )
    _entries({**dims, **given}, sorted(needed), "a witness", (*setting.dims, *setting.symbols))
    tensors = {
        name: _tensor(v, [dims[d] for d in setting.symbols[name]], f"a witness, '{name}'")
        for name, v in given.items()
    }
    indices = _list(value["index"], "a witness, index")
    if len(indices) != len(free):
        _refuse("a witness, index", len(indices), f"{len(free)} integers")
    limits = zip(indices, free, strict=True)
    index = tuple(_integer(k, "a witness, index", 0, dims[dim]) for k, dim in limits)
    return {"dims": dims, "values": tensors, "index": index}


def _names(term: Term) -> set[str]:
    """The dimensions and symbols that occur in a term."""
    met, waiting = {term}, [term]
    names = set[str]()
    while waiting:
        t = waiting.pop()
        if t.op in ("dim", "sym", "sum", "at"):
            names.add(t.data[0] if t.op == "at" else t.data)
        names |= set(t.data) if t.op in ("lam", "diff") else set()
        waiting += (new := set(t.args) - met)
        met |= new
    return names


def _tensor(value: Any, sizes: Sequence[int], where: str) -> Any:
    """The numbers of a symbol in lists of these sizes."""
    if not sizes:
        return _number(value, where)
    if not isinstance(value, list) or len(value) != sizes[0]:
        _refuse(where, value, f"a list of {sizes[0]}")
    return [_tensor(v, sizes[1:], where) for v in value]
